"""What share of the small model's outputs has the wanted form, without and with a constraint?

    python benchmarks/conformance.py [--prompts 100] [--temperature 1.0]

For every task of `tools.small_model.corpus`: held-out prompts, sampled in the jitted loop once without and once with the task's
pattern as the constraint, and the same greedily. Besides the form, the share of fields that are right is given: a constraint
must not make the content worse. Raw numbers go to `benchmarks/results/conformance.json`.

Source: Koo, Liu and He 2024, Table 3, asks the same of their models.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fsa_compile
import jax_decode
import models
from tools.small_model import corpus
from tools.small_model.small_report import field_score

RESULTS = Path(__file__).parent / "results"
NEW_TOKENS = 192


def rate(values: list[bool]) -> float:
    return round(float(np.mean(values)), 4)


def task_figures(task: Any, decoder: Any, tokenizer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Shares for one task."""
    examples = task.examples(options.prompts)
    prompts = [tokenizer.encode(e.prompt) for e in examples]
    tables = jax_decode.to_device(fsa_compile.compile_regex(task.pattern, tokenizer), logits_width=decoder.vocab_size)
    samplers = {"sampled": jax_decode.Categorical(options.temperature), "greedy": jax_decode.Greedy()}
    figures: dict[str, Any] = {"prompts": len(prompts)}
    for name, sampler in samplers.items():
        for constrained in (False, True):
            out = jax_decode.generate(
                decoder,
                prompts,
                tables if constrained else None,
                key=jax.random.key(options.seed),
                max_new_tokens=NEW_TOKENS,
                sampler=sampler,
                stop_ids=list(tokenizer.vocabulary.stop_ids),
                bos_id=tokenizer.vocabulary.bos_id,
                constraint=0 if constrained else None,
            )
            ended = [s in (jax_decode.Status.ACCEPTED, jax_decode.Status.FINISHED) for s in out.status]
            texts = [t if e else None for t, e in zip(out.text(tokenizer), ended)]
            scores = [field_score(task.name, t, e.answer) for t, e in zip(texts, examples)]
            figures[f"{name}, {'with' if constrained else 'without'}"] = {
                "in_form": rate([t is not None and re.fullmatch(task.pattern, t) is not None for t in texts]),
                "fields_right": round(sum(a for a, _ in scores) / sum(b for _, b in scores), 4),
                "mean_tokens": round(float(out.lengths.mean()), 1),
            }
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "conformance.json")
    options = parser.parse_args()
    decoder = models.load_small()
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    started = time.time()
    tasks = {task.name: task_figures(task, decoder, tokenizer, options) for task in corpus.CONFORMANCE_TASKS}
    print(f"| task | {' | '.join(k for k in next(iter(tasks.values())) if k != 'prompts')} |  (in form / fields right)")
    for name, figures in tasks.items():
        cells = [f"{v['in_form']:.0%} / {v['fields_right']:.0%}" for k, v in figures.items() if k != "prompts"]
        print(f"| {name} | {' | '.join(cells)} |")
    result = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "parameters": decoder.num_parameters,
        "temperature": options.temperature,
        "seconds": round(time.time() - started, 1),
        "tasks": tasks,
    }
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
