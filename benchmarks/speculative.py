"""How many passes of the model does a token cost, and how many tokens a second does that make?

    python benchmarks/speculative.py [--quick] [--prompts N] [--repeats N] [--output FILE]

The small model that comes with the package writes JSON objects for held-out prompts of `models.corpus`: one whose keys it was
trained on, and one with the keys of the example object of Koo et al. 2024. Every mode writes the text of plain decoding with
the same key, and this is checked; `longest spelling` alone need not. Raw figures go to `benchmarks/results/speculative.json`.

A pass counts for every row that takes part in it, the prompt's too, so plain decoding needs 1 per token. Tokens per second are
those of the whole call, prompt and transfers included, with log-probabilities over all logits left out, in the median of some
repetitions; "unconstrained" is the same call without tables, for as many tokens as the constrained texts have on average.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np

import fsa_compile
import models
from fsa_compile.json_schema.options import SchemaOptions
from jax_decode import Categorical, Forced, ForcedText, Greedy, ModelDraft, PromptLookup, generate, longest_spelling, to_device
from models import corpus

RESULTS = Path(__file__).parent / "results" / "speculative.json"
_TEXT = {"type": "string"}
OBJECTS: dict[str, dict[str, Any]] = {
    "biography": {"name": _TEXT, "born": {"type": "integer"}, "city": _TEXT, "occupation": _TEXT},
    "paper's object": {"name": _TEXT, "age": {"type": "integer"}, "colour": {"enum": ["Red", "Orange", "Yellow"]}},
}
BARS = {"forced text": 0.75, "longest spelling": 0.45, "forced text and lookup": 0.35}
"""Most passes per token."""
LEAST_SPEEDUP = 1.3
"""Of `forced text` over unconstrained decoding, in tokens per second."""


def first_layers(model: models.Gemma, count: int) -> models.Gemma:
    """The model without its last layers: a draft that needs no training, and is as bad as that."""
    gone = {f"layer_{i}" for i in range(count, model.config.num_layers)}
    params = {name: value for name, value in model.params.items() if name not in gone}
    return models.Gemma(params, dataclasses.replace(model.config, num_layers=count))


def modes(model: models.Gemma) -> dict[str, dict[str, Any]]:
    """What is compared."""
    half = first_layers(model, model.config.num_layers // 2)
    return {
        "plain": {},
        "only tokens": {"forced": 8},
        "forced text": {"draft": ForcedText(6)},
        "longest spelling": {"forced": Forced(6, longest_spelling)},
        "lookup": {"draft": PromptLookup(8)},
        "lookup, not shared": {"draft": PromptLookup(8, share_penalties=False)},
        "forced text and lookup": {"draft": PromptLookup(8)},
        "half model": {"draft": ModelDraft(half, 4, same_noise=True)},
        "half model, not shared": {"draft": ModelDraft(half, 4, share_penalties=False, same_noise=True)},
        "half model, rejection": {"draft": ModelDraft(half, 4)},
    }


KNOWS_TEXTS = ("forced text", "longest spelling", "forced text and lookup")
"""Modes whose tables know the tokens' texts."""


def timed(call: Any, repeats: int) -> list[float]:
    """Seconds of each repetition, the first (compilation) left out."""
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return seconds


def measure(
    name: str, model: models.Gemma, tokenizer: Any, prompts: list[list[int]], repeats: int, quick: bool
) -> dict[str, Any]:
    """All modes on one object, greedy and sampled."""
    schema = {"type": "object", "properties": OBJECTS[name], "required": list(OBJECTS[name]), "additionalProperties": False}
    constraint = fsa_compile.compile_json_schema(schema, tokenizer, options=SchemaOptions(whitespace="spaced"))
    tables = {True: to_device(constraint, vocabulary=tokenizer), False: to_device(constraint)}
    bos = tokenizer.vocabulary.bos_id
    out: dict[str, Any] = {}
    for sampler in (Greedy(),) if quick else (Greedy(), Categorical(0.7)):
        options = {"key": jax.random.key(1), "max_new_tokens": 96, "bos_id": bos, "sampler": sampler, "raw_logprobs": False}
        plain, rows = None, {}
        for mode, change in modes(model).items():
            if isinstance(sampler, Greedy) and mode == "half model, rejection":
                continue  # the same as "half model"
            known = tables[mode in KNOWS_TEXTS]
            made = generate(model, prompts, known, **options, **change)
            plain = plain or made
            tokens = int(made.work.target_passes.sum() / made.passes_per_token)
            differ = sum(a.tolist() != b.tolist() for a, b in zip(made.tokens, plain.tokens))
            rows[mode] = {
                "passes_per_token": made.passes_per_token,
                "acceptance_rate": made.work.acceptance_rate,
                "draft_passes_per_token": int(made.work.draft_passes.sum()) / tokens,
                "forced_share": int(made.work.forced.sum()) / tokens,
                "texts_that_differ": differ,
                "tokens_per_text": tokens / len(prompts),
            }
            if isinstance(sampler, Greedy):
                call = lambda: generate(model, prompts, known, **options, **change)  # noqa: B023, E731
                rows[mode]["seconds"] = timed(call, repeats)
                rows[mode]["tokens_per_second"] = tokens / statistics.median(rows[mode]["seconds"])
        if isinstance(sampler, Greedy):
            assert plain is not None
            length = round(rows["plain"]["tokens_per_text"])
            free = {**options, "max_new_tokens": length, "stop_ids": []}
            seconds = timed(lambda: generate(model, prompts, **free), repeats)  # noqa: B023
            rows["unconstrained"] = {"seconds": seconds, "tokens_per_second": length * len(prompts) / statistics.median(seconds)}
        out[type(sampler).__name__] = rows
    return out


def verdicts(report: dict[str, Any]) -> list[str]:
    """One line per bar."""
    lines = []
    for name, by_sampler in report["objects"].items():
        rows = by_sampler["Greedy"]
        for mode, most in BARS.items():
            found = rows[mode]["passes_per_token"]
            lines.append(f"{name}: {mode}: {found:.3f} passes per token (at most {most}): {'yes' if found <= most else 'NO'}")
        ratio = rows["forced text"]["tokens_per_second"] / rows["unconstrained"]["tokens_per_second"]
        kept = "yes" if ratio >= LEAST_SPEEDUP else "NO"
        lines.append(f"{name}: forced text: {ratio:.2f} x unconstrained decoding (at least {LEAST_SPEEDUP}): {kept}")
    return lines


def main() -> None:
    """Measures, prints, writes the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="greedy only, three repetitions")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    repeats = 3 if options.quick else options.repeats
    tokenizer, model = fsa_compile.load_tokenizer(models.small_tokenizer_path()), models.load_small()
    examples = itertools.islice(corpus.generate(5, held_out=True, domain="biography", chatty_share=0), options.prompts)
    prompts = [tokenizer.encode(example.prompt) for example in examples]
    report: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "machine": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__},
        "prompts": options.prompts,
        "objects": {name: measure(name, model, tokenizer, prompts, repeats, options.quick) for name in OBJECTS},
    }
    for name, by_sampler in report["objects"].items():
        for sampler, rows in by_sampler.items():
            print(f"{name}, {sampler}")
            for mode, row in rows.items():
                figures = "  ".join(f"{key} {value:.3f}" for key, value in row.items() if key != "seconds")
                print(f"  {mode:24} {figures}")
    report["bars"] = verdicts(report)
    print("\n".join(report["bars"]))
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
