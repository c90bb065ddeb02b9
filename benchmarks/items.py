"""Millions of items: how long is the build, how large the trie, and what does a step cost beside STATIC's?

    python benchmarks/items.py [--items 1000000] [--static CHECKOUT] [--beams 70] [--repeat 30]

Random items of 8 ids out of 2,048, as in the STATIC paper (arXiv 2602.22647, appendix). Build: time of the process from the
matrix of ids to the artifact, its bytes, and the peak of the memory. Step: over B = 2 x beams rows that stand at random prefixes
of every length, constrained log-probabilities of what may follow and the step to the next node, jitted, in turn with the peer's
functions for the same: for each length the peer reads its dense tables, or as many children as the widest node of that level
has; ours reads mask rows or lists, whichever the nodes have. Search: whole beam searches over the same random model. STATIC is a
public research code that is not on PyPI; `--static` names a checkout of it. Writes `benchmarks/results/items.json`.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import resource
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

import jax_decode
from fsa_compile import CompileLimits, compile_items
from jax_decode.masking import dense, mask_parts

RESULTS = Path(__file__).parent / "results" / "items.json"
VOCABULARY, LENGTH = 2048, 8


@jax.jit
def our_step(tables: Any, state: Any, logits: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
    """Log-probabilities of what is listed and of what mask rows hold, and the state after the tokens."""
    parts = mask_parts(tables, state)
    logprobs = jax.nn.log_softmax(logits)
    listed = jnp.where(parts.allowed, jnp.take_along_axis(logprobs, parts.token, 1), -jnp.inf)
    allowed = dense(parts._replace(allowed=jnp.zeros_like(parts.allowed)), logits.shape[1])
    return listed, jnp.where(allowed, logprobs, -jnp.inf), jax_decode.advance(tables, state, tokens).node


def peer_steps(index: tuple[Any, ...], decoding: Any) -> list[Callable[..., Any]]:
    """The peer's function for every length of prefix: (states, logits, tokens) to log-probabilities and next states."""
    packed, pointers, limits, start, dense_mask, dense_states = index

    def first(states: jax.Array, logits: jax.Array, tokens: jax.Array) -> Any:
        del states
        return jnp.where(start, jax.nn.log_softmax(logits), -jnp.inf), tokens + 1

    def second(states: jax.Array, logits: jax.Array, tokens: jax.Array) -> Any:
        parents = states - 1
        return jnp.where(dense_mask[parents], jax.nn.log_softmax(logits), -jnp.inf), dense_states[parents, tokens]

    def later(limit: int) -> Callable[..., Any]:
        def step(states: jax.Array, logits: jax.Array, tokens: jax.Array) -> Any:
            found = decoding.generate_and_apply_logprobs_mask(
                jax.nn.log_softmax(logits), states, packed, pointers, limit, VOCABULARY
            )
            hit = jnp.argmax(found[1] == tokens[:, None], 1)
            return found[0], jnp.take_along_axis(found[2], hit[:, None], 1)[:, 0]

        return step

    return [jax.jit(f) for f in (first, second, *(later(int(limit)) for limit in limits[2:]))]


def timed(calls: list[Callable[[], Any]], repeat: int) -> list[dict[str, float]]:
    """Wall milliseconds of every call, all of them in turn."""
    for call in calls:
        jax.block_until_ready(call())
    took: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat):
        for times, call in zip(took, calls):
            started = time.perf_counter()
            jax.block_until_ready(call())
            times.append((time.perf_counter() - started) * 1e3)
    return [{"median": statistics.median(t), "p10": sorted(t)[len(t) // 10], "p90": sorted(t)[len(t) * 9 // 10]} for t in took]


def steps(matrix: np.ndarray, tables: Any, index: Any, decoding: Any, rows: int, repeat: int) -> dict[str, Any]:
    """Times of a step after every length of prefix, ours and the peer's."""
    rng = np.random.default_rng(1)
    chosen = jnp.asarray(matrix[rng.integers(0, len(matrix), rows)])
    logits = jax.random.normal(jax.random.key(0), (rows, VOCABULARY), jnp.float32)
    state = jax_decode.init_state(tables, [0] * rows)
    theirs = jnp.zeros(rows, jnp.int32)
    functions = peer_steps(index, decoding) if index else []
    out: dict[str, Any] = {}
    for length in range(LENGTH):
        tokens = chosen[:, length]
        calls = [lambda s=state, t=tokens: our_step(tables, s, logits, t)]
        if functions:
            calls.append(lambda s=theirs, t=tokens, f=functions[length]: f(s, logits, t))
        both = timed(calls, repeat)
        out[str(length)] = {"constrax": both[0]} | ({"static": both[1]} if functions else {})
        if functions:
            listed, wide, _ = our_step(tables, state, logits, tokens)
            mine = np.sort(np.concatenate([listed, wide], 1), 1)[:, ::-1]
            other, theirs = functions[length](theirs, logits, tokens)
            count = np.isfinite(np.asarray(other)).sum(1)
            assert (np.isfinite(mine).sum(1) == count).all()  # the same sets
        state = jax_decode.advance(tables, state, tokens)
    return out


def searches(tables: Any, index: Any, decoding: Any, beams: int, repeat: int) -> dict[str, Any]:
    """Times of whole beam searches for two prompts over random logits that depend on the last token only."""
    table = jax.random.uniform(jax.random.key(7), (VOCABULARY, VOCABULARY), jnp.float32)
    model = jax_decode.FunctionDecoder(
        lambda p, tokens, cache, lengths: (p[tokens], cache + lengths), table, lambda b, n: jnp.zeros(b, jnp.int32), VOCABULARY
    )
    beam_search = functools.partial(
        jax_decode.beam_search, model, [[0], [0]], beams=beams, num_return=beams, max_new_tokens=LENGTH
    )
    calls = [lambda: beam_search(tables).scores, lambda: beam_search(None, stop_ids=[1]).scores]
    names = ["constrax", "constrax, no constraint"]
    if index:
        packed, pointers, limits, start, dense_mask, dense_states = index

        def lookup(tokens: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            return table[tokens], key

        calls.append(
            lambda: decoding.sparse_transition_jax(
                lookup, jax.random.key(0), 2, beams, 30, 0, LENGTH, VOCABULARY, tuple(int(x) for x in limits),
                packed, pointers, start, dense_mask, dense_states,
            )
        )  # fmt: skip
        calls.append(lambda: unconstrained(table, beams))
        names += ["static", "static's loop, no constraint"]
    return dict(zip(names, timed(calls, repeat)))


@functools.partial(jax.jit, static_argnames="beams")
def unconstrained(table: jax.Array, beams: int) -> jax.Array:
    """What is left of the peer's loop when the constraint is taken out: a beam search for two prompts, unrolled."""
    scores, tokens = jax.lax.top_k(jax.nn.log_softmax(table[jnp.zeros(2, jnp.int32)]), beams)
    texts = jnp.zeros((2, beams, LENGTH), jnp.int32).at[:, :, 0].set(tokens)
    for step in range(1, LENGTH):
        best, candidates = jax.lax.top_k(jax.nn.log_softmax(table[tokens.reshape(-1)]), min(30, beams))
        each = best.shape[1]
        scores, place = jax.lax.top_k((scores[:, :, None] + best.reshape(2, beams, each)).reshape(2, -1), beams)
        tokens = jnp.take_along_axis(candidates.reshape(2, -1), place, 1)
        texts = jnp.take_along_axis(texts, (place // each)[:, :, None], 1).at[:, :, step].set(tokens)
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--static", type=Path)
    parser.add_argument("--beams", type=int, default=70)
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    matrix = np.random.default_rng(0).integers(0, VOCABULARY, (options.items, LENGTH), dtype=np.int32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    compiled = compile_items(matrix, VOCABULARY, limits=CompileLimits(max_bytes=8 << 30, max_seconds=600))
    report: dict[str, Any] = {
        "build": {
            "seconds": time.process_time() - started,
            "megabytes": compiled.nbytes / 1e6,
            "nodes": compiled.num_nodes,
            "peak megabytes beyond the matrix": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
        }
    }
    print(json.dumps(report))
    if not options.build_only:
        index = decoding = None
        if options.static:
            sys.path.insert(0, str(options.static))
            from static_decoding import csr_utils  # type: ignore[import-not-found]
            from static_decoding import decoding_jax as decoding

            ordered = matrix[np.lexsort(matrix.T[::-1])]
            started = time.process_time()
            built = csr_utils.build_static_index(ordered, VOCABULARY)
            report["build of STATIC, from sorted items"] = {
                "seconds": time.process_time() - started,
                "megabytes": sum(x.nbytes for x in built if isinstance(x, np.ndarray)) / 1e6,
            }
            index = tuple(jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in built)
        tables = jax_decode.to_device(compiled)
        report["device megabytes"] = tables.nbytes / 1e6
        report["step"] = steps(matrix, tables, index, decoding, 2 * options.beams, options.repeat)
        report["search"] = searches(tables, index, decoding, options.beams, options.repeat)
    report |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "python": platform.python_version()}
    print(json.dumps(report, indent=1))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[f"{options.items:,} items, {options.beams} beams"] = report
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
