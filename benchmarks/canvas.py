"""What does a constraint do to a masked-diffusion model's canvases, and what does it cost?

    python benchmarks/canvas.py [--quick] [--rows N] [--output FILE]

The small denoiser that comes with the package, held-out prompts of `tools.small_model.corpus`, canvases of 48 tokens in blocks of
16, positions settled in three ways. Recorded for each: the share of valid texts with and without the constraint; their mean
log-likelihood per token under the small autoregressive model, beside that of the texts that rejection keeps of the model's own
sampler in the same way; CPU time of a canvas with and without the constraint, in turns, as a ratio; and what a step takes at a
vocabulary of 128,256 tokens. Raw figures go to `benchmarks/results/canvas.json`, after every task.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np

import fsa_compile as fc
import models
from jax_decode import canvas, key_words, score
from models.denoiser import BLOCK, CANVAS, PROMPT
from tools.small_model import corpus

RESULTS = Path(__file__).parent / "results" / "canvas.json"
PATTERNS = {
    "email": r"[a-z0-9._]+@[a-z0-9.]+\.[a-z]{2,6}",
    "ip": r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])",
    "question": r"(yes|no), because [a-z ]+\.",
    "event": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})",
}
BIOGRAPHY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "born": {"type": "integer"},
        "city": {"type": "string", "maxLength": 40},
        "occupation": {"type": "string", "maxLength": 40},
    },
    "required": ["name", "born", "city", "occupation"],
    "additionalProperties": False,
}


def is_biography(text: str) -> bool:
    """Whether a text is a JSON object with the four properties."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and set(value) == set(BIOGRAPHY["required"]) and isinstance(value["born"], int)


def timed(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median CPU seconds of calls in turns; the first of each (compilation) is left out."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            begin = time.process_time()
            jax.block_until_ready(call())
            if turn:
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(s) for name, s in seconds.items()}


def likelihood(decoder: Any, tokenizer: Any, prompts: list[str], texts: list[str]) -> list[float]:
    """Nats per token of texts under the small autoregressive model, end of text included."""
    ids = [tokenizer.encode(text) for text in texts]
    given = {"stop_ids": list(tokenizer.vocabulary.stop_ids), "always_stop": True, "bos_id": tokenizer.vocabulary.bos_id}
    found = score(decoder, [tokenizer.encode(prompt) for prompt in prompts], tokens=ids, **given)
    return [float(total) / (len(row) + 1) for total, row in zip(found.raw_total_logprob, ids)]


WAYS: dict[str, dict[str, Any]] = {
    "surest first, 8 steps": {"steps": 8},
    "from the left, 16 steps": {"steps": 16, "left_to_right": True},
    "from the left, 16 steps, 3 draws": {"steps": 16, "left_to_right": True, "draws": 3},
}
"""Ways to settle positions; the model's own sampler settles them in the same way."""


def task(domain: str, constraint: Any, judge: Callable[[str], bool], rows: int, repeats: int, parts: Any) -> dict[str, Any]:
    """One kind of prompt."""
    decoder, denoiser, tokenizer = parts
    examples = list(itertools.islice(corpus.generate(90_001, domain=domain, held_out=True, chatty_share=0.0), rows))
    prompts, texts = denoiser.prompts([e.prompt for e in examples], tokenizer), [e.prompt for e in examples]
    tables = canvas.to_canvas(constraint)
    run = functools.partial(canvas.denoise, denoiser, prompts, length=CANVAS, block=BLOCK)
    out: dict[str, Any] = {"rows": rows, "tables": repr(tables), "ways": {}}
    free: dict[int, tuple[list[bool], list[float]]] = {}
    for name, way in WAYS.items():
        steps = way["steps"]
        if steps not in free:
            own = run(None, key=jax.random.key(0), **way).text(tokenizer)
            free[steps] = ([judge(text) for text in own], likelihood(decoder, tokenizer, texts, own))
        valid, rejection = free[steps]
        inside = run(tables, key=jax.random.key(0), **way).text(tokenizer)
        found, kept = likelihood(decoder, tokenizer, texts, inside), [i for i, ok in enumerate(valid) if ok]
        out["ways"][name] = {
            "valid_constrained": sum(map(judge, inside)) / rows,
            "valid_unconstrained": len(kept) / rows,
            "equal_to_reference": sum(t == e.output for t, e in zip(inside, examples)) / rows,
            "logprob_per_token": statistics.mean(found),
            "logprob_per_token, prompts that rejection answered": statistics.mean(found[i] for i in kept) if kept else None,
            "logprob_per_token, rejection": statistics.mean(rejection[i] for i in kept) if kept else None,
        }
        print(domain, name, json.dumps(out["ways"][name]), flush=True)
    key = jax.random.key(1)
    calls = {"constrained": lambda: run(tables, key=key, steps=8).tokens, "free": lambda: run(None, key=key, steps=8).tokens}
    seconds = timed(calls, repeats)
    return out | {"cpu_seconds": seconds, "cpu_ratio": seconds["constrained"] / seconds["free"]}


def large_vocabulary(repeats: int) -> dict[str, Any]:
    """One step over made-up logits of 128,256 tokens, 64 positions, beside a draw and a softmax without a constraint."""
    width, length = 128_256, 64
    tokens = [b""] + [bytes([i]) for i in range(256)]
    letters = np.random.default_rng(0).integers(97, 123, (width - 257, 3)).astype(np.uint8)
    tokens += [bytes(part) + str(i).encode() for i, part in enumerate(letters)]
    vocabulary = fc.Vocabulary.from_tokens(tokens, stop_ids=[0])
    tables = canvas.to_canvas(fc.compile_json_schema(BIOGRAPHY, vocabulary))
    x = jax.nn.log_softmax(jax.random.normal(jax.random.key(0), (1, length, width)))
    key = key_words(jax.random.split(jax.random.key(0), 1))
    nothing = jnp.full((1, length), -1, jnp.int32)

    @jax.jit
    def free(x: jax.Array, key: jax.Array) -> Any:
        return canvas.proposed(None, jax.nn.log_softmax(x), key, nothing, None, None, 0)[:2]

    calls = {
        "free": lambda: free(x, key),
        "most_probable": lambda: canvas.most_probable(tables, x),
        "sample": lambda: canvas.sample(tables, x, key),
        "marginals": lambda: canvas.marginals(tables, x),
        "log_mass": lambda: canvas.log_mass(tables, x),
    }
    return {"tables": repr(tables), "cpu_seconds": timed(calls, repeats)}


def main() -> None:
    """Runs everything and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", help="tasks, with commas between them; without the large vocabulary")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows, repeats = (8, 1) if args.quick else (args.rows, args.repeats)
    tokenizer = fc.load_tokenizer(models.small_tokenizer_path())
    parts = (models.load_small(), models.load_small_denoiser(), tokenizer)
    report: dict[str, Any] = {"machine": platform.machine(), "jax": jax.__version__, "prompt": PROMPT, "tasks": {}}
    judges = {d: functools.partial(lambda p, text: bool(re.fullmatch(p, text)), pattern) for d, pattern in PATTERNS.items()}
    for domain in args.only.split(",") if args.only else [*PATTERNS, "biography"]:
        regular = domain in PATTERNS
        made = fc.compile_regex(PATTERNS[domain], tokenizer) if regular else fc.compile_json_schema(BIOGRAPHY, tokenizer)
        report["tasks"][domain] = task(domain, made, judges.get(domain, is_biography), rows, repeats, parts)
        print(domain, json.dumps(report["tasks"][domain]), flush=True)
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not args.only:
        report["large_vocabulary"] = large_vocabulary(repeats)
        print("large vocabulary", json.dumps(report["large_vocabulary"]), flush=True)
    args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
