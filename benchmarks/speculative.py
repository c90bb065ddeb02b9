"""How many passes of the model does a token cost, and how many tokens a second does that make?

    python benchmarks/speculative.py [--quick] [--only OBJECT] [--modes MODE ...] [--prompts N] [--repeats N] [--output FILE]

The small model that comes with the package writes JSON objects: one whose keys it was trained on, for held-out prompts of
`tools.small_model.corpus`, and the example object of Koo et al. 2024, whose keys it never saw, for prompts about people of the
past. Every mode writes the text of plain decoding with the same key, the canonical modes that of plain decoding among canonical
tokens, and this is checked; `longest spelling` alone need not. Raw figures go to `benchmarks/results/speculative.json`.

A pass counts for every row that takes part in it, the prompt's too, so plain decoding needs 1 per token; a row has one stop
token. Tokens per second are those of the whole call, prompt and transfers included, without log-probabilities over all logits,
in the median of some repetitions, by the clock and by the processor time of all threads; "unconstrained" is the same call
without tables, for as many tokens as the constrained texts have on average.

In the small model a pass costs no more than the rest of the loop. "heavy" repeats some modes, one prompt at a time, with a
model that writes the same texts and costs more: beside the small one a random Gemma of 76 million parameters reads every block,
and its logits are added, times a millionth.

What a tokenizer leaves to decide of the example object is counted on the host as well, over tokenizers of `$CONSTRAX_DATA`:
with runs that fit their block there is one pass per decision.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import os
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
from fsa_compile.json_schema.schema_options import SchemaOptions
from jax_decode import Categorical, Forced, ForcedText, Greedy, ModelDraft, PromptLookup, generate, longest_spelling, to_device
from tools.small_model import corpus

RESULTS = Path(__file__).parent / "results" / "speculative.json"
DATA = Path(os.environ.get("CONSTRAX_DATA", Path(__file__).parents[2] / "shared" / "data"))
SPACED = SchemaOptions(whitespace="spaced")
_TEXT = {"type": "string"}
OBJECTS: dict[str, dict[str, Any]] = {
    "biography": {"name": _TEXT, "born": {"type": "integer"}, "city": _TEXT, "occupation": _TEXT},
    "paper's object": {"name": _TEXT, "age": {"type": "integer"}, "colour": {"enum": ["Red", "Orange", "Yellow"]}},
}
PEOPLE = (
    "Ada Lovelace", "Alan Turing", "Grace Hopper", "Katherine Johnson", "Carl Friedrich Gauss", "Marie Curie", "Emmy Noether",
    "Charles Babbage", "Isaac Newton", "Albert Einstein", "Rosalind Franklin", "Niels Bohr", "Lise Meitner", "Max Planck",
    "Mary Shelley", "Jane Austen",
)  # fmt: skip
COLOURS = ("Red", "Orange", "Yellow")
BARS = {"forced text": 0.75, "canonical, forced": 0.45, "canonical, forced and lookup": 0.35, "forced text and lookup": 0.35}
"""Most passes per token."""
LEAST_SPEEDUP = 1.3
"""Of coalescence over unconstrained decoding, in tokens per second."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Heavy:
    """A decoder that writes what `model` writes, and reads every block with `burden`, too."""

    model: models.Gemma
    burden: models.Gemma

    @property
    def vocab_size(self) -> int:
        """See `Decoder`."""
        return self.model.vocab_size

    def init_cache(self, batch_size: int, length: int) -> Any:
        """See `Decoder`."""
        return tuple(part.init_cache(batch_size, length) for part in (self.model, self.burden))

    def apply(self, tokens: jax.Array, cache: Any, lengths: jax.Array, *, last_only: bool = False) -> Any:
        """See `Decoder`."""
        parts = zip((self.model, self.burden), cache)
        (own, first), (other, second) = (m.apply(tokens, c, lengths, last_only=last_only) for m, c in parts)
        return own + 1e-6 * other, (first, second)

    def rewind(self, cache: Any, kept: jax.Array) -> Any:
        """See `Decoder`."""
        return tuple(part.rewind(c, kept) for part, c in zip((self.model, self.burden), cache))


def heavy(model: models.Gemma) -> Heavy:
    """The model with 76 million random parameters beside it."""
    sizes = {"num_layers": 8, "embed_dim": 768, "hidden_dim": 3072, "num_heads": 6, "num_kv_heads": 6, "head_dim": 128}
    return Heavy(model, models.Gemma.init(dataclasses.replace(model.config, **sizes), jax.random.key(0)))


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
        "half model, forced text": {"draft": ModelDraft(half, 4, same_noise=True)},
        "half model, rejection": {"draft": ModelDraft(half, 4)},
        "canonical": {},
        "canonical, forced": {"forced": 8},
        "canonical, forced and lookup": {"forced": 8, "draft": PromptLookup(8)},
    }


KNOWS_TEXTS = ("forced text", "longest spelling", "forced text and lookup", "half model, forced text")
"""Modes whose tables know the tokens' texts."""
COALESCED = "canonical, forced"


@dataclasses.dataclass(frozen=True)
class Task:
    """One object: prompts, and the tables of every kind of mode."""

    prompts: list[list[int]]
    tables: dict[str, Any]
    options: dict[str, Any]

    def of(self, mode: str) -> Any:
        """The tables of a mode."""
        return self.tables["canonical" if mode.startswith("canonical") else "texts" if mode in KNOWS_TEXTS else "plain"]


def schema_of(name: str) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": OBJECTS[name], "required": list(OBJECTS[name]), "additionalProperties": False}


def task(name: str, tokenizer: Any, count: int) -> Task:
    """An object's prompts and tables."""
    if name == "biography":
        examples = itertools.islice(corpus.generate(5, held_out=True, domain="biography", chatty_share=0), count)
        texts = [example.prompt for example in examples]
    else:
        people = itertools.islice(itertools.cycle(PEOPLE), count)
        texts = [f"Bio: {who}, aged {20 + 7 * i % 60}, likes {COLOURS[i % 3]}.\nJSON: " for i, who in enumerate(people)]
    compiled = functools.partial(fsa_compile.compile_json_schema, schema_of(name), tokenizer, options=SPACED)
    every, canonical = compiled(), compiled(canonical=True)
    tables = {
        "plain": to_device(every),
        "texts": to_device(every, vocabulary=tokenizer),
        "canonical": to_device(canonical, canonical=fsa_compile.canonical_tables(tokenizer)),
    }
    vocabulary = tokenizer.vocabulary
    options = {"key": jax.random.key(1), "bos_id": vocabulary.bos_id, "stop_ids": [vocabulary.stop_ids[0]], "raw_logprobs": False}
    return Task([tokenizer.encode(text) for text in texts], tables, options | {"max_new_tokens": 96})


def timed(call: Any, repeats: int) -> dict[str, list[float]]:
    """Seconds of each repetition by the clock and by the processor, the first (compilation) left out."""
    call()
    out: dict[str, list[float]] = {"seconds": [], "cpu_seconds": []}
    for _ in range(repeats):
        begin = time.perf_counter(), time.process_time()
        call()
        out["seconds"].append(time.perf_counter() - begin[0])
        out["cpu_seconds"].append(time.process_time() - begin[1])
    return out


def speeds(tokens: int, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Tokens a second, by both."""
    names = {"seconds": "tokens_per_second", "cpu_seconds": "tokens_per_cpu_second"}
    return seconds | {names[name]: tokens / statistics.median(values) for name, values in seconds.items()}


def measure(given: Task, model: models.Gemma, chosen: list[str], repeats: int, quick: bool) -> dict[str, Any]:
    """All modes on one object, greedy and sampled."""
    out: dict[str, Any] = {}
    for sampler in (Greedy(),) if quick else (Greedy(), Categorical(0.7)):
        options, plain, rows = given.options | {"sampler": sampler}, {}, {}
        for mode, change in modes(model).items():
            kind = mode.startswith("canonical")
            if (mode not in chosen and mode not in ("plain", "canonical")) or (kind and COALESCED not in chosen):
                continue
            if isinstance(sampler, Greedy) and mode == "half model, rejection":
                continue  # the same as "half model"
            tables = given.of(mode)
            made = generate(model, given.prompts, tables, **options, **change)
            plain.setdefault(kind, made)
            tokens = int(made.work.target_passes.sum() / made.passes_per_token)
            differ = sum(a.tolist() != b.tolist() for a, b in zip(made.tokens, plain[kind].tokens))
            rows[mode] = {
                "passes_per_token": made.passes_per_token,
                "acceptance_rate": made.work.acceptance_rate,
                "draft_passes_per_token": int(made.work.draft_passes.sum()) / tokens,
                "forced_share": int(made.work.forced.sum()) / tokens,
                "texts_that_differ": differ,
                "tokens_per_text": tokens / len(given.prompts),
            }
            if isinstance(sampler, Greedy):
                call = functools.partial(generate, model, given.prompts, tables, **options, **change)
                rows[mode] |= speeds(tokens, timed(call, repeats))
        if isinstance(sampler, Greedy):
            length = round(rows["plain"]["tokens_per_text"])
            free = options | {"max_new_tokens": length, "stop_ids": []}
            call = functools.partial(generate, model, given.prompts, **free)
            rows["unconstrained"] = speeds(length * len(given.prompts), timed(call, repeats))
        out[type(sampler).__name__] = rows
    return out


def measure_heavy(given: Task, model: models.Gemma, repeats: int) -> dict[str, Any]:
    """Coalescence, with and without lookup, and decoding without a constraint: four prompts, one at a time."""
    decoder, rows, prompts = heavy(model), {}, given.prompts[:4]
    every = modes(model)
    for mode in ("canonical", COALESCED, "canonical, forced and lookup"):
        one = functools.partial(generate, decoder, tables=given.of(mode), **given.options, **every[mode])
        made = [one([prompt]) for prompt in prompts]
        tokens = sum(int(m.work.target_passes.sum() / m.passes_per_token) for m in made)
        rows[mode] = {"passes_per_token": sum(int(m.work.target_passes.sum()) for m in made) / tokens}
        rows[mode] |= speeds(tokens, timed(lambda: [one([prompt]) for prompt in prompts], repeats))  # noqa: B023
        rows[mode]["tokens"] = tokens
    length = round(rows["canonical"]["tokens"] / len(prompts))
    free = functools.partial(generate, decoder, **given.options | {"max_new_tokens": length, "stop_ids": []})
    seconds = timed(lambda: [free([prompt]) for prompt in prompts], repeats)
    rows["unconstrained"] = speeds(length * len(prompts), seconds)
    return rows


def decisions(tokenizer: Any) -> dict[str, int]:
    """What is left to decide of the example object in canonical tokens, over all `PEOPLE`: choices and tokens, counted on the
    host."""
    tables = fsa_compile.canonical_tables(tokenizer)
    schema = schema_of("paper's object")
    constraint = fsa_compile.compile_json_schema(schema, tokenizer, options=SPACED, canonical=True)
    chosen = tokens = 0
    for i, name in enumerate(PEOPLE):
        walk = fsa_compile.CanonicalWalk(constraint, tables)
        text = json.dumps({"name": name, "age": 20 + 7 * i % 60, "colour": COLOURS[i % 3]})
        for token in tokenizer.encode(text):
            chosen += int(walk.allowed().sum()) > 1
            tokens += 1
            walk.advance(token)
        assert walk.accepting
        tokens += 1  # a stop token, the only one that may follow
    return {"decisions": chosen, "tokens": tokens}


def verdicts(report: dict[str, Any]) -> list[str]:
    """One line per bar."""
    lines = []
    for name, by_sampler in report["objects"].items():
        rows = by_sampler["Greedy"]
        for mode, most in BARS.items():
            if mode in rows:
                found = rows[mode]["passes_per_token"]
                lines.append(f"{name}: {mode}: {found:.3f} passes per token (at most {most}): {'yes' if found <= most else 'NO'}")
    for name, row in report["decisions"].items():
        lines.append(f"paper's object, {name}: {row['decisions'] / row['tokens']:.3f} decisions per canonical token")
    for name, rows in report["heavy"].items():
        for mode in (COALESCED, "canonical, forced and lookup"):
            ratios = [rows[mode][unit] / rows["unconstrained"][unit] for unit in ("tokens_per_second", "tokens_per_cpu_second")]
            kept = "yes" if min(ratios) >= LEAST_SPEEDUP else "NO"
            found = " and ".join(f"{ratio:.2f}" for ratio in ratios)
            lines.append(f"{name}, heavy: {mode}: {found} x unconstrained by clock and CPU (at least {LEAST_SPEEDUP}): {kept}")
    return lines


def main() -> None:
    """Measures, prints, writes the JSON."""
    tokenizer, model = fsa_compile.load_tokenizer(models.small_tokenizer_path()), models.load_small()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="greedy only, three repetitions")
    parser.add_argument("--only", nargs="+", default=list(OBJECTS), choices=list(OBJECTS), help="some objects")
    parser.add_argument("--modes", nargs="+", default=list(modes(model)), choices=list(modes(model)), help="some modes")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    repeats = 3 if options.quick else options.repeats
    tasks = {name: task(name, tokenizer, options.prompts) for name in options.only}
    counted = {"the small model's": decisions(tokenizer)}
    for name in ("gpt2",):
        if (DATA / "tokenizers" / name).exists():
            counted[name] = decisions(fsa_compile.load_tokenizer(DATA / "tokenizers" / name))
    report: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "machine": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__},
        "prompts": options.prompts,
        "decisions": counted,
        "heavy": {name: measure_heavy(given, model, repeats) for name, given in tasks.items()},
        "objects": {name: measure(given, model, options.modes, repeats, options.quick) for name, given in tasks.items()},
    }
    for name, rows in [
        *((f"{name}, {sampler}", rows) for name, each in report["objects"].items() for sampler, rows in each.items()),
        *((f"{name}, heavy", rows) for name, rows in report["heavy"].items()),
    ]:
        print(name)
        for mode, row in rows.items():
            figures = "  ".join(f"{key} {value:.3f}" for key, value in row.items() if not isinstance(value, list))
            print(f"  {mode:28} {figures}")
    report["bars"] = verdicts(report)
    print("\n".join(report["bars"]))
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
