"""Is the time of a step bounded, wherever in a nested text the rows stand?

    python benchmarks/stack_step.py [--batch 64] [--steps 200] [--tokenizer FILE] [ARTIFACT.npz ...]

For every grammar of the library (or every artifact given) rows are walked through adversarial positions: as deep as the depth
limit allows, inside strings and words, and through the tokens with the most brackets at once. Every position of the walk is
then timed as one jitted loop of mask, union of the words and `advance` over the whole batch, several times in turn. The figure
is p99.9 ÷ p50 over positions of each position's median, so that the noise of the machine is left out; on a CPU in the time of
the process (other processes do not count), elsewhere by the clock. Beside it stands the same figure of one position timed as
often as the whole walk: what is left of the machine's noise. No ratio can be told from 1 below that. Every second position has
the deepest row in all rows of the batch, whose bit rows stay in a processor's cache; the same figure over the others, whose rows
all differ, as those of a server do, stands alone, too. The quantiles over all timed loops, noise included, stand there too, as do
D, K, PM, and the bytes that a step reads for one row. Writes `benchmarks/results/stack_step_<device>.json` after every
constraint. Grammars with several stacks are walked through a quarter of the positions.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
# One thread: time of the process is then the time of the step.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.artifact import CompiledConstraint
from jax_decode.step.masking import mask_parts
from jax_decode.step.stack import sources
from jax_decode.step.state import ConstraintState, Status, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.concatenation import ARC_COUNT
from jax_decode.tables.tables import ConstraintTables, to_device

RESULTS = Path(__file__).parent / "results"
MOST_RATIO = 1.5
LEAST_LOOP = 4e-3  # seconds: what starts a loop, and what else the process does, is little beside it
LLAMA_3 = Path(os.environ.get("CONSTRAX_DATA", Path(__file__).parents[2] / "shared" / "data")) / "tokenizers" / "llama3"


def bytes_per_step(tables: ConstraintTables) -> dict[str, int]:
    """Bytes that one row reads: bit rows of all sources once, and everything `advance` looks at, by their static bounds."""
    sources_of_row = tables.stacks * (tables.max_pops + 1)
    node = 4 * (8 + 2 * tables.has_stack + 8 * tables.has_counters)
    chain = 2 * sources_of_row * (node + 4 * (1 + 5))  # before and after the token
    levels = sources_of_row * tables.max_levels * 4 * (1 + tables.has_stack)
    groups = tables.max_groups * (8 + 4)
    arcs = tables.max_candidates * 16 + sources_of_row * tables.search_depth * 7 * 4
    return {"rows": sources_of_row * tables.num_words * 4, "tables": chain + levels + groups + arcs}


@jax.jit
def masked(tables: ConstraintTables, state: ConstraintState) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Words, candidate tokens and which are allowed, and the depth of the deepest stack of every row."""
    deepest = sources(tables, state).depth.max(1)
    parts = mask_parts(tables, state)
    return parts.words, parts.token, parts.allowed, deepest


step = jax.jit(advance)


def choose(words: np.ndarray, listed: np.ndarray, ok: np.ndarray, liked: np.ndarray, rng: np.random.Generator) -> int:
    """An allowed token of one row, usually of the kind it likes; -1 when nothing but the end is allowed."""
    num_words = len(words)
    bits = (words[liked % num_words] >> (liked // num_words).astype(np.uint32)) & 1
    good = np.concatenate([liked[bits > 0], np.intersect1d(listed[ok], liked)])
    if len(good) and rng.random() < 0.9:
        return int(rng.choice(good))
    column = rng.permutation(np.flatnonzero(words))[:1]
    if len(column) and (not ok.any() or rng.random() < 0.7):
        planes = np.flatnonzero((words[column[0]] >> np.arange(32, dtype=np.uint32)) & 1)
        return int(column[0] + num_words * rng.choice(planes))
    return int(rng.choice(listed[ok])) if ok.any() else -1


def kinds_of_tokens(tokens: list[bytes]) -> list[np.ndarray]:
    """Token ids: openers, closers, words, and everything with the longest runs of one of `([{}])-"`."""
    ids = np.arange(len(tokens))

    def where(test: Any) -> np.ndarray:
        return ids[[bool(t) and bool(test(t)) for t in tokens]]

    bracket = re.compile(rb"[()\[\]{}<>\"\-]{4,}")
    opening = where(lambda t: set(t) <= set(b"([{"))
    return [
        opening,
        opening,
        where(lambda t: set(t) <= set(b')]}>"')),
        where(lambda t: t.isalpha()),
        where(bracket.fullmatch),
    ]


def positions(
    tables: ConstraintTables, batch: int, steps: int, depth: int, kinds: list[np.ndarray], seed: int
) -> list[tuple[ConstraintState, jax.Array]]:
    """States of a walk, and the token each was left by; a row that ends begins anew.

    Every second state is that of the row with the deepest stack, in all rows: no row of a batch hides behind easier ones.
    """
    rng = np.random.default_rng(seed)
    first = init_state(tables, np.zeros(batch, np.int32), np.full(batch, steps + 64), max_depth=depth)
    state, out = first, []
    phase = rng.integers(0, len(kinds), batch)
    for i in range(steps):
        words, listed, ok, deep = (np.asarray(x) for x in masked(tables, state))
        token = [choose(words[b], listed[b], ok[b], kinds[phase[b]], rng) for b in range(batch)]
        tokens = jnp.asarray(token, jnp.int32)
        worst = jnp.full(batch, int(deep.argmax()), jnp.int32)
        same = functools.partial(jnp.take, indices=worst, axis=0)
        out.append((state, tokens) if i % 2 else jax.tree.map(same, (state, tokens)))
        state = step(tables, state, tokens)
        ended = state.status != Status.RUNNING
        state = state.rewound(jax.tree.map(functools.partial(_rows_of, ended), first.position, state.position))
        if i % 16 == 15:
            phase = rng.integers(0, len(kinds), batch)
    return out


def _rows_of(which: jax.Array, yes: jax.Array, no: jax.Array) -> jax.Array:
    return jnp.where(which.reshape(-1, *[1] * (no.ndim - 1)), yes, no)


@functools.partial(jax.jit, static_argnames="repeats")
def repeated(tables: ConstraintTables, state: ConstraintState, tokens: jax.Array, repeats: int) -> jax.Array:
    """The same step many times, none of which the compiler can leave out: its words and its next state are summed."""

    def body(i: jax.Array, carry: tuple[jax.Array, ConstraintState]) -> tuple[jax.Array, ConstraintState]:
        total, here = carry
        parts = mask_parts(tables, here)
        words, token, ok = parts.words, parts.token, parts.allowed
        # As in decoding, the token depends on the mask: so every cell is read before one is written, in place.
        seen = jax.lax.population_count(words).sum(1).astype(jnp.int32) + token.sum(1) + ok.sum(1).astype(jnp.int32)
        after = advance(tables, here, tokens + jnp.minimum(seen, 0) // jnp.int32(2**30))
        total += seen + after.node.sum(1) + after.top.sum(1) + after.register.sum(1)
        # The next turn begins at the same position, which depends on this one in a way the compiler cannot know, and writes
        # the same cells.
        same = jnp.minimum(total, 0) // jnp.int32(2**30)
        return total & 0xFFFF, after.rewound(state.position._replace(node=state.node + same[:, None]))

    return jax.lax.fori_loop(0, repeats, body, (jnp.zeros(tokens.shape, jnp.int32), state))[0]


def spread(us: np.ndarray) -> dict[str, float]:
    """Quantiles of times in µs, and p99.9 ÷ p50."""
    p50, p99, p999 = (float(x) for x in np.percentile(us, [50, 99, 99.9]))
    return {"p50 us": round(p50, 2), "p99 us": round(p99, 2), "p99.9 us": round(p999, 2), "ratio": round(p999 / p50, 3)}


def measure(name: str, c: CompiledConstraint, args: argparse.Namespace, kinds: list[np.ndarray]) -> dict[str, Any]:
    """Times one constraint at every position of its walk."""
    tables = to_device(c)
    steps = args.steps if c.stacks == 1 else -(-args.steps // 4)
    walk = positions(tables, args.batch, steps, args.depth, kinds, args.seed)
    repeats, loops = args.repeats, (walk, walk[:1] * len(walk))
    jax.block_until_ready(repeated(tables, *walk[0], repeats))
    begin = time.perf_counter()
    jax.block_until_ready(repeated(tables, *walk[0], repeats))
    repeats = max(repeats, math.ceil(LEAST_LOOP / (time.perf_counter() - begin) * repeats))
    jax.block_until_ready(repeated(tables, *walk[0], repeats))
    cpu, wall = (np.zeros((2, args.runs, len(walk))) for _ in range(2))
    for run in range(args.runs):
        for which, i in itertools.product(range(2), range(len(walk))):
            begin, busy = time.perf_counter(), time.process_time()
            jax.block_until_ready(repeated(tables, *loops[which][i], repeats))
            wall[which, run, i], cpu[which, run, i] = time.perf_counter() - begin, time.process_time() - busy
    times = {"cpu": cpu, "wall": wall} if jax.default_backend() == "cpu" else {"wall": wall}
    times = {clock: x / repeats * 1e6 for clock, x in times.items()}
    at = sources(tables, walk[-1][0])
    depth = max(int(jnp.max(sources(tables, state).depth)) for state, _ in walk[:: max(1, len(walk) // 32)])
    line = {
        "constraint": name,
        "B": args.batch,
        "positions": len(walk),
        "D": c.max_pops,
        "K": c.stacks,
        "PM": c.max_push,
        "sources": at.node.shape[1],
        "groups": tables.max_groups,
        "levels": tables.max_levels,
        "candidates": tables.max_candidates,
        "most arcs": int(np.asarray(tables.nodes)[:, ARC_COUNT].max()),
        "bytes per row": bytes_per_step(tables),
        "deepest stack": depth,
        "steps per loop": repeats,
        "over positions": {clock: spread(np.median(x[0], 0)) for clock, x in times.items()},
        "over different rows": {clock: spread(np.median(x[0][:, 1::2], 0)) for clock, x in times.items()},
        "one position as often": {clock: spread(np.median(x[1], 0)) for clock, x in times.items()},
        "over positions, fastest": {clock: spread(x[0].min(0)) for clock, x in times.items()},
        "over all loops": {clock: spread(x[0]) for clock, x in times.items()},
    }
    print(json.dumps(line), flush=True)
    return line


def constraints(args: argparse.Namespace) -> tuple[Iterator[tuple[str, CompiledConstraint]], list[bytes]]:
    """The artifacts given, or the library's grammars compiled for the tokenizer; and the bytes of its tokens."""
    import fsa_compile
    from fsa_compile import library

    vocabulary = fsa_compile.load_tokenizer(args.tokenizer).vocabulary

    def every() -> Iterator[tuple[str, CompiledConstraint]]:
        for path in args.artifacts:
            yield path.stem, CompiledConstraint.load(path, vocabulary)
        for name in [] if args.artifacts else args.only or library.names():
            yield name, fsa_compile.compile_grammar(library.grammar_text(name), vocabulary, **library.options(name))

    return every(), list(vocabulary.tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="*", type=Path, help="compiled constraints; default: the library's grammars")
    parser.add_argument("--tokenizer", default=LLAMA_3, help="tokenizer file or folder; default: Llama-3's below $CONSTRAX_DATA")
    parser.add_argument("--only", nargs="+", default=(), help="library grammars, in this order")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200, help="positions of the walk")
    parser.add_argument("--depth", type=int, default=64, help="depth limit")
    parser.add_argument("--repeats", type=int, default=5, help="least steps per timed loop")
    parser.add_argument("--runs", type=int, default=7, help="timed loops per position; the median counts")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found, tokens = constraints(args)
    kinds = kinds_of_tokens(tokens)
    device = jax.devices()[0]
    name = re.sub(r"[^A-Za-z0-9]+", "-", device.device_kind if device.platform != "cpu" else "cpu").strip("-").lower()
    header = {"device": device.device_kind, "jax": jax.__version__, "runs": args.runs}
    lines: list[dict[str, Any]] = []
    for constraint, c in found:
        lines.append(measure(constraint, c, args, kinds))
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"stack_step_{name}.json").write_text(json.dumps({**header, "constraints": lines}, indent=1) + "\n")
    slow = [line["constraint"] for line in lines if next(iter(line["over positions"].values()))["ratio"] > MOST_RATIO]
    if slow:
        sys.exit(f"p99.9 / p50 above {MOST_RATIO}: {', '.join(slow)}")


if __name__ == "__main__":
    main()
