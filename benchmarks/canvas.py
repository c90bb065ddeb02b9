"""What does a constraint do to a masked-diffusion model's canvases, and what does it cost?

    python benchmarks/canvas.py [--quick] [--rows N] [--only TASKS] [--draws N ...] [--output FILE]

The small denoiser that comes with the package, held-out prompts of `tools.small_model.corpus`, blocks of 16, positions settled in
two ways. Rejection keeps what the model's own sampler writes in the form, of as many canvases as the constrained one fills (equal
passes of the model). Recorded for each number of draws: how many texts are valid; their mean log-likelihood per token under the
small autoregressive model; the same of rejection, and of the constrained texts weighted by how often rejection answers their
prompt, with the difference and its standard error over prompts; the model's probability of the form, as the weights and as
rejection estimate it. CPU time of a canvas with and without the constraint, in turns, as a ratio; and what a step takes at a
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
    "left": {"steps": 16, "left_to_right": True},
    "surest": {"steps": 8},
}
"""Ways to settle positions, from the left or the surest first; the model's own sampler settles them in the same way."""
LENGTHS = {"email": 32, "ip": 16, "question": 16, "event": 32, "biography": CANVAS}
"""Of canvases: whole blocks in which the reference answers fit."""
ROWS_AT_ONCE = 256


class Bench:
    """The parts of one kind of prompt."""

    def __init__(self, domain: str, constraint: Any, judge: Callable[[str], bool], rows: int, parts: Any) -> None:
        self.decoder, self.denoiser, self.tokenizer = parts
        examples = itertools.islice(corpus.generate(90_001, domain=domain, held_out=True, chatty_share=0.0), rows)
        self.texts, self.judge, self.length = [e.prompt for e in examples], judge, LENGTHS[domain]
        self.prompts, self.tables = self.denoiser.prompts(self.texts, self.tokenizer), canvas.to_canvas(constraint)

    def denoise(self, tables: Any, seed: int, draws: int, prompts: np.ndarray, **way: Any) -> tuple[list[str], np.ndarray]:
        """Texts and log-weights of all prompts, some at once."""
        texts, weights, at_once = [], [], max(ROWS_AT_ONCE // draws, 1)
        for first in range(0, len(prompts), at_once):
            key = jax.random.fold_in(jax.random.key(seed), first)
            given = {"key": key, "length": self.length, "block": BLOCK, "draws": draws} | way
            out = canvas.denoise(self.denoiser, prompts[first : first + at_once], tables, **given)
            texts += out.text(self.tokenizer)
            weights.append(out.log_weights)
        return texts, np.concatenate(weights)

    def likelihood(self, texts: list[list[str]]) -> np.ndarray:
        """Of several texts of each prompt, float64[rows, n]; NaN of those that are not valid."""
        pairs = sorted({(i, t) for i, row in enumerate(texts) for t in row if self.judge(t)})
        prompts, answers = [self.texts[i] for i, _ in pairs], [t for _, t in pairs]
        known = dict(zip(pairs, likelihood(self.decoder, self.tokenizer, prompts, answers) if pairs else []))
        return np.array([[known.get((i, t), np.nan) for t in row] for i, row in enumerate(texts)])


def beside_rejection(inside: np.ndarray, free: np.ndarray, draws: int) -> dict[str, Any]:
    """Constrained texts, float[rows, repeats], beside the first valid one of `draws` of the model's own, float[rows, tries]."""
    size = min(draws, free.shape[1])
    groups = free[:, : free.shape[1] // size * size].reshape(len(free), -1, size)
    answered = np.isfinite(groups).any(2)
    first = np.take_along_axis(groups, np.isfinite(groups).argmax(2)[..., None], 2)[..., 0]
    share, own = answered.mean(1), inside.mean(1)
    if not answered.any():
        return {"rejection answered": 0.0}
    rejected = np.where(answered, first, 0.0).sum(1) / np.maximum(answered.sum(1), 1)
    weight = share / share.sum()
    differences = own - rejected
    mean = float((weight * differences).sum())
    error = float(np.sqrt((weight**2 * (differences - mean) ** 2).sum()))
    return {
        "rejection answered": float(answered.mean()),
        "logprob_per_token, rejection": float((weight * rejected).sum()),
        "logprob_per_token, weighted as rejection answers": float((weight * own).sum()),
        "difference": mean,
        "standard_error": error,
    }


def task(bench: Bench, ways: dict[str, Any], all_draws: list[int], tries: int, note: Callable[..., None]) -> dict[str, Any]:
    """One kind of prompt."""
    rows = len(bench.texts)
    out: dict[str, Any] = {"rows": rows, "tries": tries, "length": bench.length, "tables": repr(bench.tables), "ways": {}}
    for name, way in ways.items():
        texts, _ = bench.denoise(None, 0, 1, np.repeat(bench.prompts, tries, 0), **way)
        free = bench.likelihood([texts[i * tries : (i + 1) * tries] for i in range(rows)])
        found: dict[str, Any] = {"valid_unconstrained": float(np.isfinite(free).mean()), "draws": {}}
        out["ways"][name] = found
        for draws in all_draws:
            runs = [bench.denoise(bench.tables, 1 + r, draws, bench.prompts, **way) for r in range(max(4 // draws, 1))]
            each = [list(texts) for texts in zip(*[texts for texts, _ in runs])]
            inside = bench.likelihood(each)
            found["draws"][str(draws)] = {
                "valid_constrained": float(np.isfinite(inside).mean()),
                "logprob_per_token": float(np.nanmean(inside)),
                "probability of the form, by weights": float(np.mean([np.exp(w.astype(np.float64)).mean() for _, w in runs])),
            } | beside_rejection(inside, free, draws)
            note(name, draws, found["draws"][str(draws)])
    return out


def cost(bench: Bench, repeats: int) -> dict[str, Any]:
    """CPU seconds of a canvas, with a constraint and without."""
    key = jax.random.key(1)
    run = functools.partial(canvas.denoise, bench.denoiser, bench.prompts, length=bench.length, block=BLOCK, key=key, steps=8)
    calls = {"constrained": lambda: run(bench.tables).tokens, "free": lambda: run(None).tokens}
    seconds = timed(calls | {"constrained, 4 draws": lambda: run(bench.tables, draws=4).tokens}, repeats)
    return {"cpu_seconds": seconds, "cpu_ratio": seconds["constrained"] / seconds["free"]}


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
    parser.add_argument("--tries", type=int, default=64, help="canvases of the model's own sampler for every prompt")
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--repeats", type=int, default=5, help="of what is timed; 0 times nothing")
    parser.add_argument("--only", help="tasks, with commas between them; without the large vocabulary")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows, tries, repeats = (8, 4, 1) if args.quick else (args.rows, args.tries, args.repeats)
    all_draws = [1, 4] if args.quick else args.draws
    tokenizer = fc.load_tokenizer(models.small_tokenizer_path())
    parts = (models.load_small(), models.load_small_denoiser(), tokenizer)
    report: dict[str, Any] = {"machine": platform.machine(), "jax": jax.__version__, "prompt": PROMPT, "tasks": {}}
    judges = {d: functools.partial(lambda p, text: bool(re.fullmatch(p, text)), pattern) for d, pattern in PATTERNS.items()}
    for domain in args.only.split(",") if args.only else [*PATTERNS, "biography"]:
        regular = domain in PATTERNS
        made = fc.compile_regex(PATTERNS[domain], tokenizer) if regular else fc.compile_json_schema(BIOGRAPHY, tokenizer)
        bench = Bench(domain, made, judges.get(domain, is_biography), rows, parts)
        note = functools.partial(print, domain, flush=True)
        report["tasks"][domain] = task(bench, {name: WAYS[name] for name in args.ways}, all_draws, tries, note)
        report["tasks"][domain] |= cost(bench, repeats) if repeats else {}
        print(domain, json.dumps(report["tasks"][domain]), flush=True)
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not args.only:
        report["large_vocabulary"] = large_vocabulary(repeats)
        print("large vocabulary", json.dumps(report["large_vocabulary"]), flush=True)
    args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
