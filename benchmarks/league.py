"""Which sampler writes the model's own distribution given a constraint, and what does a sample cost?

    python benchmarks/league.py [--quick] [--only NAME] [--resume] [--output FILE]

One harness, one model, one set of constraints for all samplers. Constraints are of the kinds that grammar-aligned decoding is
tried on (bit vectors, string expressions, conditional programs), over a vocabulary of 24 tokens and two random models, and tasks
of the small model that comes with the package, whose vocabulary has 2,048. All texts of each are enumerated, so that the
distribution that samples should have is known.

Recorded for every sampler: the Kullback-Leibler divergence of its samples from that distribution, beside the 99 % quantile of the
divergence of as many exact samples (`noise`); passes of the model per sample (rows, not batches; a known prefix that enters as a
block is one), and for ours the tokens fed; processor time per sample of ours, compiled. Published samplers run in NumPy
(`league_reference.py`). Raw figures go to `benchmarks/results/league.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
from league_reference import Prefix, Tree, Trie, chain, masked, rejection
from numpy.typing import NDArray

import fsa_compile as fc
import jax_decode
import models
from jax_decode import Adaptive, FunctionDecoder, LookAhead, Masked, Rejection

RESULTS = Path(__file__).parent / "results" / "league.json"
BUDGET = 100_000
"""Passes of the model after which a sampler that rejects gives up."""
UNLISTED = 1e-3
"""The share of its mass that a case's list of texts may leave out, at most."""
CHAIN = 10
"""Steps of a Markov chain for every sample."""
PARTICLES = 8
WORDS = "( ) , 0 1 x y s t a b bvand bvor bvnot concat replace substr < = and".split()  # noqa: SIM905
WORDS = [*WORDS, "if ", " then ", " else "]
TOKENS = [b"", *(word.encode() for word in WORDS)]

BITS = 'b: "x" | "y" | "0" | "1"\n'
STRINGS = 'v: "s" | "t" | "a" | "b"\ni: "0" | "1"\n'
VALUES = 'v: "x" | "y" | "0" | "1"\n'
GRAMMARS = {
    "bits/operations": ('start: b | "bvnot(" start ")" | "bvand(" start "," start ")" | "bvor(" start "," start ")"\n' + BITS, 9),
    "bits/no constants": ('start: "x" | "y" | "bvnot(" start ")" | "bvor(" start "," start ")"\n', 12),
    "bits/negations": ('start: "x" | "bvnot(" start ")"\n', 12),
    "bits/pairs": ('start: "bvand(" b "," b ")" | "bvor(" b "," b ")"\n' + BITS, 8),
    "strings/concat": ('start: v | "concat(" start "," start ")"\n' + STRINGS, 9),
    "strings/replace": ('start: v | "replace(" start "," v "," v ")"\n' + STRINGS, 10),
    "strings/substr": ('start: v | "substr(" start "," i "," i ")"\n' + STRINGS, 12),
    "strings/one variable": ('start: "s" | "concat(" start "," start ")" | "replace(" start ",a,b)"\n', 12),
    "programs/if": ('start: "if " c " then " v " else " v\nc: v "<" v | v "=" v\n' + VALUES, 10),
    "programs/nested": ('start: v | "if x<y then " start " else " start\n' + VALUES, 14),
    "programs/and": ('start: "if " c " then x else y"\nc: k | k "and" c\nk: "x<" v | "y=" v\n' + VALUES, 14),
}
PATTERNS = {
    "bits/four": ("[01]{4}", 5),
    "bits/up to eight": ("[01]{1,8}", 9),
    "bits/even": ("(0*10*1)*0*", 8),
    "bits/alternate": ("(01)+0?|(10)+1?", 9),
    "strings/has ab": ("[abst]*ab[abst]*", 6),
    "strings/pairs": ("((ab|ba|st)(,|$))*[ab]", 7),
    "programs/bounds": ("if x<[01] then [01xy] else [01xy]", 10),
    "programs/tests": ("[xy][<=][xy01](and[xy][<=][xy01])?", 8),
}
TASKS: dict[str, tuple[str, str, Any, int]] = {
    "choice": ("Review: The soup was cold and the waiter was rude.\nSentiment: ", "choices", ["good", "bad", "badly"], 8),
    "sentiment": ("Review: A fine meal, but slow.\nSentiment: ", "choices", ["positive", "negative", "neutral", "mixed"], 8),
    "stars": ("Review: The soup was cold.\nSentiment: ", "regex", "[1-5]( stars?)?", 8),
    "words": (
        "Question: What is 3 + 4?\nAnswer: ",
        "choices",
        ["one", "two", "three", "five", "six", "seven", "eight", "ten"],
        8,
    ),
    "digits": ("Question: What is 13 + 24?\nAnswer: ", "regex", "[0-9]{1,3}", 4),
    "even": ("Question: What is 13 + 24?\nAnswer: ", "regex", "[0-9]{0,2}[02468]", 4),
    "answer": ("Question: What is 3 + 4?\nAnswer: ", "regex", r'\{"answer": [0-9]{1,2}\}', 12),
    "yes": ("Question: Is the kettle red?\nAnswer: ", "regex", "(yes|no)(, because)?", 8),
    "true": ("Question: Is the kettle red?\nAnswer: ", "choices", ["true", "false", "null"], 8),
    "year": ("Bio: Ada Lovelace was born in 1815 in London.\nJSON: ", "regex", r"18[0-9]{2}", 5),
    "born": ("Bio: Ada Lovelace was born in 1815 in London.\nJSON: ", "regex", r'\{"born": 1[0-9]{3}\}', 14),
    "city": ("Bio: Ada was born in London in 1815.\nJSON: ", "choices", ["London", "Paris", "Rome", "Oslo", "Bonn"], 8),
    "host": ("Log: request from 10.0.0.7 took 3 ms.\nIP: ", "regex", r"10\.0\.0\.[0-9]{1,2}", 12),
    "date": ("Event: Dinner on 3 May 2021 at noon.\nWhen: ", "regex", r"2021-0[1-9]-0[1-9]", 14),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model behind a prompt, a constraint (number `which` of the tables), and what samples should follow."""

    name: str
    decoder: Any
    prompt: list[int]
    tables: Any
    which: int
    limit: int
    tree: Tree
    exact: dict[Prefix, float]
    mass: float
    draws: int
    others: float


def random_model(seed: int) -> tuple[FunctionDecoder, Callable[[Prefix], NDArray[np.float64]]]:
    """A random model whose logits depend on all tokens before, on the device and in NumPy."""
    size = len(TOKENS)
    table = np.random.default_rng(seed).normal(size=(size, size)).astype(np.float32) * 1.5
    decoder = FunctionDecoder(_apply, jnp.asarray(table), _empty, size)

    def probabilities(prefix: Prefix) -> NDArray[np.float64]:
        memory = np.zeros(size)
        for token in (1, *prefix):
            memory = 0.5 * memory + table[token]
        weights = np.exp(memory - memory.max())
        return np.asarray(weights / weights.sum())

    return decoder, probabilities


def _empty(rows: int, length: int) -> jax.Array:
    return jnp.zeros((rows, len(TOKENS)), jnp.float32)


def _apply(table: jax.Array, tokens: jax.Array, memory: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(memory: jax.Array, xs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        token, at = xs
        memory = jnp.where((at < lengths)[:, None], 0.5 * memory + table[token], memory)
        return memory, memory

    memory, logits = jax.lax.scan(step, memory, (tokens.T, jnp.arange(tokens.shape[1])))
    return logits.swapaxes(0, 1), memory


def small_model(decoder: Any, prompt: list[int], width: int) -> Callable[[Prefix], NDArray[np.float64]]:
    """The small model's probabilities behind a prompt and a prefix."""
    logits = jax.jit(lambda tokens, n: decoder.apply(tokens, decoder.init_cache(1, tokens.shape[1]), n, last_only=True)[0][0, -1])

    def probabilities(prefix: Prefix) -> NDArray[np.float64]:
        row = np.zeros((1, width), np.int32)
        ids = [*prompt, *prefix]
        row[0, : len(ids)] = ids
        x = np.asarray(logits(row, np.array([len(ids)], np.int32)), np.float64)
        weights = np.exp(x - x.max())
        return np.asarray(weights / weights.sum())

    return probabilities


def cases(quick: bool, only: str) -> Iterator[Case]:
    """The cases whose name contains `only`, those of the random models first."""
    vocabulary = fc.Vocabulary.from_tokens(TOKENS, stop_ids=[0])
    limits = {name: limit for name, (_, limit) in (GRAMMARS | PATTERNS).items()}
    compiled = {name: fc.compile_grammar(text, vocabulary) for name, (text, _) in GRAMMARS.items()}
    compiled |= {name: fc.compile_regex(text, vocabulary) for name, (text, _) in PATTERNS.items()}
    tables = jax_decode.to_device(list(compiled.values()))
    for seed in (0, 1):
        decoder, probabilities = random_model(seed)
        for which, (name, constraint) in enumerate(compiled.items()):
            if only not in f"random {seed}/{name}":
                continue
            tree = Tree(probabilities, constraint, limits[name])
            yield _case(f"random {seed}/{name}", decoder, [1], tables, which, tree, 300 if quick else 1000, 0.0)
    tokenizer, decoder = fc.load_tokenizer(models.small_tokenizer_path()), models.load_small()
    makers = {"choices": fc.compile_choices, "regex": fc.compile_regex}
    made = [makers[kind](what, tokenizer) for _, kind, what, _ in TASKS.values()]
    tables = jax_decode.to_device(made)
    for which, (name, (text, _, _, limit)) in enumerate(TASKS.items()):
        if only not in f"small/{name}":
            continue
        prompt = [tokenizer.vocabulary.bos_id, *tokenizer.encode(text)]
        tree = Tree(small_model(decoder, prompt, 96), made[which], limit)
        yield _case(f"small/{name}", decoder, prompt, tables, which, tree, 100 if quick else 300, 1e-6)


def _case(name: str, decoder: Any, prompt: list[int], tables: Any, which: int, tree: Tree, draws: int, least: float) -> Case:
    exact, others = tree.texts(least)
    while others > UNLISTED * sum(exact.values()):
        least /= 30
        exact, others = tree.texts(least)
    return Case(name, decoder, prompt, tables, which, tree.limit, tree, exact, sum(exact.values()), draws, others)


def divergence(counts: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Kullback-Leibler divergence of shares from probabilities, nats."""
    shares = counts / counts.sum()
    there = shares > 0
    return float((shares[there] * np.log(shares[there] / expected[there])).sum())


def judged(case: Case, texts: list[Prefix], rng: Any) -> dict[str, float]:
    """Divergence, and that of exact samples. Texts too improbable to be listed count together."""
    listed = {text: i for i, text in enumerate(case.exact)}
    rest = max(case.others / case.mass, 1e-12)
    expected = np.array([*case.exact.values(), rest * case.mass]) / (case.mass * (1 + rest))
    counts = np.zeros(len(expected))
    for text, number in Counter(texts).items():
        counts[listed.get(text, len(listed))] += number
    exact = rng.multinomial(len(texts), expected, 300)
    noise = float(np.quantile([divergence(row, expected) for row in exact], 0.99))
    return {"samples": len(texts), "kl": divergence(counts, expected), "noise": noise}


def reference(case: Case, draw: Callable[[], Prefix | None]) -> tuple[list[Prefix], dict[str, float]]:
    """Samples of a sampler in NumPy, until there are enough or the budget is spent."""
    texts: list[Prefix] = []
    case.tree.passes = 0
    while len(texts) < case.draws and case.tree.passes < BUDGET:
        text = draw()
        if text is not None:
            texts.append(text)
    return texts, {"passes": case.tree.passes / max(len(texts), 1)}


def on_device(case: Case, method: Adaptive, rows: int) -> tuple[list[Prefix], dict[str, float]]:
    """Samples of `generate_exact`."""
    given = {"max_new_tokens": case.limit, "constraint": case.which, "num_samples": case.draws, "method": method, "rows": rows}
    run = functools.partial(jax_decode.generate_exact, case.decoder, case.prompt, case.tables, **given)
    run(key=jax.random.key(0), max_rounds=2)
    begin = time.process_time()
    out = run(key=jax.random.key(1), max_rounds=20_000)
    seconds, found = time.process_time() - begin, int(out.found[0])
    costs = {"passes": int(out.passes[0]) / found, "positions": int(out.positions[0]) / found, "cpu_ms": 1000 * seconds / found}
    return _texts(out.generation, range(found)), costs | {"tries": int(out.tries[0]) / found}


def particles(case: Case, proposal: Any, size: int = PARTICLES) -> tuple[list[Prefix], dict[str, float]]:
    """One draw of every group of particles; of groups of one, all are kept, without weights."""
    groups = min(case.draws, 100)
    given = {"max_new_tokens": case.limit, "constraint": [case.which] * groups, "particles": size}
    run = functools.partial(jax_decode.generate_smc, case.decoder, [case.prompt] * groups, case.tables, **given)
    run(key=jax.random.key(0), proposal=proposal)
    texts, passes, begin = [], 0, time.process_time()
    for seed in range(-(-case.draws // groups)):
        out = run(key=jax.random.key(1 + seed), proposal=proposal)
        proposal = out.proposal if isinstance(proposal, LookAhead) else proposal
        texts += _texts(out.generation, range(groups) if size == 1 else out.draw(seed)[:, 0])
        passes += int(out.generation.work.target_passes.sum())
    seconds = time.process_time() - begin
    return texts, {"passes": passes / len(texts), "cpu_ms": 1000 * seconds / len(texts)}


def _texts(generation: Any, rows: Any) -> list[Prefix]:
    ends = [() if stop is None else (stop,) for stop in generation.stop_token]
    return [(*generation.tokens[i].tolist(), *ends[i]) for i in rows]


def samplers(case: Case) -> dict[str, Callable[[], tuple[list[Prefix], dict[str, float]]]]:
    """By name, those whose draws cost nothing but passes first."""
    tree, rng = case.tree, np.random.default_rng(7)
    cars, asap = Trie(tree), Trie(tree)
    slow = {
        "masked": functools.partial(masked, tree, rng),
        "rejection": functools.partial(rejection, tree, rng),
        "CARS": functools.partial(cars.cars, rng),
        "ASAp": functools.partial(asap.asap, rng),
        "MCMC": functools.partial(chain, tree, rng, CHAIN),
    }
    return {name: functools.partial(reference, case, draw) for name, draw in slow.items()} | {
        "SMC": functools.partial(particles, case, Masked()),
        "AWRS": functools.partial(particles, case, Rejection(8)),
        "look-ahead masks": functools.partial(particles, case, LookAhead(), 1),
        "SMC, look-ahead": functools.partial(particles, case, LookAhead()),
        "generate_exact": functools.partial(on_device, case, Adaptive(), 16),
        "generate_exact, one row": functools.partial(on_device, case, Adaptive(scout=False), 1),
        "generate_exact, reject=False": functools.partial(on_device, case, Adaptive(reject=False), 16),
    }


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all cases, for every sampler: how many are within the noise, and costs beside those of CARS."""
    out = {}
    for name in results[-1]["samplers"]:
        rows = [(r["samplers"][name], r["samplers"]["CARS"]) for r in results if name in r["samplers"]]
        enough = [row for row, _ in rows if row["samples"]]
        out[name] = {
            "within noise": sum(row["kl"] <= row["noise"] for row in enough),
            "cases with samples": len(enough),
            "median KL": float(np.median([row["kl"] for row in enough or [{"kl": 0.0}]])),
            "largest KL": max((row["kl"] for row in enough), default=0.0),
            "median passes": float(np.median([row["passes"] for row in enough or [{"passes": 0.0}]])),
            "passes at most CARS's": sum(row["passes"] <= cars["passes"] for row, cars in rows if row["samples"]),
        }
        if "cpu_ms" in rows[0][0]:
            out[name]["median cpu_ms"] = float(np.median([row["cpu_ms"] for row in enough]))
    return out


def main() -> None:
    """Runs everything and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--resume", action="store_true", help="run only what the file does not have yet")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    rng, results = np.random.default_rng(0), []
    if args.resume and args.output.exists():
        results = json.loads(args.output.read_text(encoding="utf-8"))["cases"]
    known = {row["case"]: row for row in results}
    for case in cases(args.quick, args.only):
        row: dict[str, Any] = known.get(case.name) or {"case": case.name, "samplers": {}}
        row |= {"texts": len(case.exact), "mass": case.mass, "unlisted": case.others}
        for name, run in samplers(case).items():
            if name not in row["samplers"]:
                texts, costs = run()
                row["samplers"][name] = ({"samples": 0} if not texts else judged(case, texts, rng)) | costs
        if case.name not in known:
            results.append(row)
        shown = {
            k: (round(v.get("kl", -1), 4), round(v.get("noise", -1), 4), round(v["passes"], 2))
            for k, v in row["samplers"].items()
        }
        print(case.name, row["texts"], f"{row['mass']:.2e}", shown, flush=True)
        report = {"jax": jax.__version__, "summary": summary(results), "cases": results}
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary(results), indent=1))


if __name__ == "__main__":
    main()
