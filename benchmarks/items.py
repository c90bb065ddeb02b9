"""Millions of items: how long is the build, how large the trie, and what does a step cost beside STATIC's?

    python benchmarks/items.py [--items 1000000] [--static CHECKOUT] [--beams 70] [--repeat 30]

Random items of 8 ids out of 2,048, as in the STATIC paper (arXiv 2602.22647, appendix). Build: time of the process from the
matrix of ids to the artifact, its bytes, and the peak of the memory. Over B = 2 x beams rows that stand at random prefixes of
every length, many steps in one jitted loop, in turn with the peer's functions for the same:

* mask and step: log-probabilities of what may follow, and the node (state) after a given token. For each length the peer reads
  its dense tables, or as many children as the widest node of that level has; ours reads mask rows or lists, whichever the nodes
  have: both are told which.
* choice: from logits and beams to the best beams of two prompts, their scores, parents and next nodes; here ours finds out on
  the device what its nodes have.

Search: whole beam searches over the same random model; ours check arguments and return texts, log-probabilities and statuses to
the host. `the program alone` is what compares with the peer's function, a jitted one whose tokens stay on the device. STATIC is a
public research code that is not on PyPI; `--static` names a checkout of it. Times are milliseconds by the clock and of the
processor (all threads), each function in turn. Writes `benchmarks/results/items.json`.
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
from jax_decode.beams import beam_loop
from jax_decode.beams.expansion import Beams, expanded
from jax_decode.beams.ranking import Best
from jax_decode.decoding.requests import Asked, read_request
from jax_decode.kernels.planes import plain_log_sum
from jax_decode.step.masking import mask_parts
from jax_decode.tables.items import only_lists

RESULTS = Path(__file__).parent / "results" / "items.json"
VOCABULARY, LENGTH, AT_ONCE = 2048, 8, 16


def by_lists(tables: Any, state: Any, logits: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities of what is listed, and the nodes after the tokens."""
    parts = mask_parts(tables, state)
    logprobs = jnp.take_along_axis(logits, parts.token, 1) - plain_log_sum(logits)[:, None]
    return jnp.where(parts.allowed, logprobs, -jnp.inf), jax_decode.advance(tables, state, tokens).node


def by_rows(tables: Any, state: Any, logits: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities of what mask rows hold, and the nodes after the tokens.

    In planes, [B, n, W], as the masks lie: the order in memory is that of [B, V].
    """
    words = mask_parts(tables, state).words[:, None]
    plane = jnp.arange(logits.shape[1] // words.shape[2], dtype=jnp.uint32)[:, None]
    logprobs = logits - plain_log_sum(logits)[:, None]
    logprobs = jnp.where((words >> plane) & 1, logprobs.reshape(len(logits), len(plane), -1), -jnp.inf)
    return logprobs, jax_decode.advance(tables, state, tokens).node


def our_choice(tables: Any, state: Any, logits: jax.Array, scores: jax.Array, beams: int) -> tuple[jax.Array, ...]:
    """What one step of the beam search makes of the beams: scores, tokens, parents, nodes."""
    given = Beams(jnp.ones(len(logits), bool), logits, scores, scores, jnp.int32(0))
    found = expanded(tables, Best(None), state, given, beams, beams).best
    row = (found.parent + jnp.arange(len(logits) // beams, dtype=jnp.int32)[:, None] * beams).reshape(-1)
    after = jax_decode.advance(tables, jax_decode.fork(state, row), found.token.reshape(-1))
    return found.rank, found.token, found.parent, after.node


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

    return [first, second, *(later(int(limit)) for limit in limits[2:])]


def peer_choices(index: tuple[Any, ...], decoding: Any, beams: int) -> list[Callable[..., Any]]:
    """What one pass of the peer's loop makes of the beams, for every length of prefix: (states, logits, scores) to the same."""
    packed, pointers, limits, start, dense_mask, dense_states = index

    def best(scores: jax.Array, found: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        logprobs, tokens, states = (x.reshape(len(scores) // beams, beams, -1) for x in found)
        each = logprobs.shape[2]
        top, place = jax.lax.top_k((scores.reshape(-1, beams, 1) + logprobs).reshape(len(logprobs), -1), beams)
        tokens, states = (jnp.take_along_axis(x.reshape(len(logprobs), -1), place, 1) for x in (tokens, states))
        return top, tokens, place // each, states

    def first(states: jax.Array, logits: jax.Array, scores: jax.Array) -> Any:
        del states
        return jax.lax.top_k(jnp.where(start, jax.nn.log_softmax(logits[::beams]), -jnp.inf), beams), scores

    def second(states: jax.Array, logits: jax.Array, scores: jax.Array) -> Any:
        parents = states - 1
        logprobs = jnp.where(dense_mask[parents], jax.nn.log_softmax(logits), -jnp.inf)
        top, tokens = jax.lax.top_k(logprobs, min(30, beams))
        return best(scores, (top, tokens, dense_states[parents[:, None], tokens]))

    def later(limit: int) -> Callable[..., Any]:
        def step(states: jax.Array, logits: jax.Array, scores: jax.Array) -> Any:
            logprobs = jax.nn.log_softmax(logits)
            found = decoding.generate_and_apply_logprobs_mask(logprobs, states, packed, pointers, limit, VOCABULARY)
            return best(scores, found)

        return step

    return [first, second, *(later(int(limit)) for limit in limits[2:])]


def finite(logprobs: jax.Array) -> np.ndarray:
    """How many of each row's numbers are."""
    return np.isfinite(logprobs).reshape(*logprobs.shape[:2], -1).sum(-1)


def timed(calls: list[Callable[[], Any]], repeat: int, together: int, steps: int = 1) -> list[dict[str, float]]:
    """Milliseconds of every call, or of each of its steps: of the processor (median, p10, p90), and by the clock.

    The calls are timed in turn, `repeat` times; processor time, which the system counts in coarse ticks, over `together` calls.
    """
    for call in calls:
        jax.block_until_ready(call())
    took: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(repeat):
        for times, call in zip(took, calls):
            clock, used = [], time.process_time()
            for _ in range(together):
                started = time.perf_counter()
                jax.block_until_ready(call())
                clock.append((time.perf_counter() - started) * 1e3 / steps)
            times.append((statistics.median(clock), (time.process_time() - used) * 1e3 / together / steps))
    out = []
    for times in took:
        clock, processor = (sorted(column) for column in zip(*times))
        n = len(clock)
        of_processor = {"median": statistics.median(processor), "p10": processor[n // 10], "p90": processor[n * 9 // 10]}
        out.append(of_processor | {"clock": statistics.median(clock), "clock, least": clock[0]})
    return out


def looped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a function of (constant arguments, states, logits, more) for many steps in one program, as a decoding loop does.

    A model, here a table of logits and rows of it, leaves a step's logits in memory once, whatever reads them.
    """

    def run(constant: Any, table: jax.Array, each: Any) -> Any:
        return jax.lax.map(lambda x: function(*constant, x[0], table[x[1]], x[2]), each)

    return jax.jit(run)


def steps(matrix: np.ndarray, tables: Any, index: Any, decoding: Any, beams: int, repeat: int) -> dict[str, Any]:
    """Times of a step after every length of prefix, ours and the peer's."""
    rng, rows = np.random.default_rng(1), 2 * beams
    chosen = jnp.asarray(matrix[rng.integers(0, len(matrix), rows)])
    logits = jax.random.normal(jax.random.key(0), (VOCABULARY, VOCABULARY), jnp.float32)
    asked = jnp.asarray(rng.integers(0, VOCABULARY, (AT_ONCE, rows)))
    scores = -jnp.arange(rows, dtype=jnp.float32) / 100
    state = jax_decode.init_state(tables, [0] * rows)
    theirs = jnp.zeros(rows, jnp.int32)
    masks = peer_steps(index, decoding) if index else []
    choices = peer_choices(index, decoding, beams) if index else []
    free = jax_decode.init_state(tables, [-1] * rows)
    choose = looped(functools.partial(our_choice, beams=beams))
    ours_by = {False: looped(by_rows), True: looped(by_lists)}
    many = functools.partial(jax.tree.map, lambda x: jnp.tile(x, (AT_ONCE,) + (1,) * x.ndim))
    out: dict[str, Any] = {}
    for length in range(LENGTH):
        tokens = chosen[:, length]
        lists = bool(only_lists(tables.items, state.node[:, 0], state.running))
        ours = functools.partial(ours_by[lists], (tables,), logits, (many(state), asked, many(tokens)))
        choice = functools.partial(choose, (tables,), logits, (many(state), asked, many(scores)))
        calls = [ours, choice, functools.partial(choose, (tables,), logits, (many(free), asked, many(scores)))]
        if index:
            calls.append(functools.partial(looped(masks[length]), (), logits, (many(theirs), asked, many(tokens))))
            calls.append(functools.partial(looped(choices[length]), (), logits, (many(theirs), asked, many(scores))))
        mask, chose, without, *peer = timed(calls, repeat, 2, AT_ONCE)
        found: dict[str, Any] = {"read": "lists" if lists else "rows", "mask and step": {"constrax": mask}}
        found["choice"] = {"constrax": chose, "constrax, no constraint": without}
        if index:
            found["mask and step"]["static"], found["choice"]["static"] = peer
            other, after = calls[3]()
            assert (finite(ours()[0]) == finite(other)).all()  # the same sets
            if length > 1:  # the peer keeps 30 continuations of a beam where it reads dense tables
                for a, b in zip(choice()[:3], calls[4]()):
                    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)
            theirs = after[0]
        out[str(length)] = found
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
    request = read_request(model, [[0], [0]], tables, Asked(LENGTH), least_steps=1, allow_truncation=False)
    sizes = beam_loop.Sizes(request.stop_ids.shape[1], request.steps, request.cache_length, beams, beams, 1)
    program = functools.partial(beam_loop.search, model, tables, Best(None), jax.device_put(request.joined()), sizes=sizes)
    calls = [lambda: beam_search(tables).scores, program, lambda: beam_search(None, stop_ids=[1]).scores]
    names = ["constrax", "constrax, the program alone", "constrax, no constraint"]
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
    return dict(zip(names, timed(calls, repeat, 4)))


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
        report["step"] = steps(matrix, tables, index, decoding, options.beams, options.repeat)
        report["search"] = searches(tables, index, decoding, options.beams, options.repeat)
    report |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "python": platform.python_version()}
    print(json.dumps(report, indent=1))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[f"{options.items:,} items, {options.beams} beams"] = report
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
