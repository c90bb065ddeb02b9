"""What does a constraint cost per decoding step on this device?

    python benchmarks/device_step.py [--quick] [--models small gemma3-1b] [--budget SECONDS]

Times one step inside one jitted loop, with and without a constraint, with and without a model's forward pass, and writes raw
numbers to `benchmarks/results/device_step_<device>.json` after every case. Needs no tokenizer and no checkpoint: constraints
and parameters are random. The most informative cases come first; none is started after the budget.

Log-probabilities are part of every step of this package's samplers: unconstrained one log-sum per row, constrained two (over the
allowed and over all logits), or one where the case says "no raw".

The logits are part of the loop's state and one column of them changes every step, so that nothing is loop-invariant; that
update alone is timed as "loop" and is part of every figure.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import platform
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.artifact import CompiledConstraint
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.samplers import Categorical, Greedy, MinP, TopK, TopP
from jax_decode.sampling.sampling import sample
from jax_decode.step.masking import mask, mask_rows, mask_words
from jax_decode.step.stack import sources
from jax_decode.step.state import init_state
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables, to_device

RESULTS = Path(__file__).parent / "results"
SAMPLERS = {
    "greedy": Greedy(),
    "categorical": Categorical(None),
    "top-k 50": TopK(50, None),
    "top-p 0.95": TopP(0.95, None),
    "min-p 0.05": MinP(0.05, None),
}


def random_constraint(vocab_size: int, seed: int = 0, num_nodes: int = 128) -> CompiledConstraint:
    """A random automaton of the usual shape: most nodes have a few large token sets, a quarter a few single tokens."""
    rng = np.random.default_rng(seed)
    part = rng.integers(0, 8, vocab_size)
    words = (vocab_size + 31) // 32

    def row(labels: Any) -> np.ndarray:
        bits = np.zeros(words * 32, bool)
        bits[:vocab_size] = np.isin(part, labels)
        return np.packbits(bits, bitorder="little").view(np.uint32)

    picks = [sorted(rng.choice(8, 4, replace=False)) for _ in range(16)]
    rows = np.stack([np.zeros(words, np.uint32), *(row(i) for i in range(8)), *(row(p) for p in picks)])
    groups, arcs, levels = [], [], []
    offsets: list[list[int]] = [[0, 0], [0, 0], [0, 0]]
    for n in range(1, num_nodes):
        if n % 4 == 0:
            tokens = np.sort(rng.choice(vocab_size, 10, replace=False))
            arcs += [(t, rng.integers(1, num_nodes)) for t in tokens]
        else:
            pick = rng.integers(16)
            groups += [(1 + label, rng.integers(1, num_nodes)) for label in picks[pick]]
            levels.append((1, 9 + pick))
        for offset, items in zip(offsets, (groups, arcs, levels)):
            offset.append(len(items))
    accept = np.arange(num_nodes) > 0
    (group_row, group_next), (arc_token, arc_next), (cost, level_row) = (
        np.array(x, np.int32).T.copy() for x in (groups, arcs, levels)
    )
    return CompiledConstraint(
        vocab_size=vocab_size,
        fingerprint="random",
        stop_ids=(),
        source="random",
        start=1,
        accept=accept,
        distance=np.where(accept, 0, 2**30).astype(np.int32),
        rows=rows,
        group_offset=np.array(offsets[0], np.int32),
        group_row=group_row,
        group_next=group_next,
        arc_offset=np.array(offsets[1], np.int32),
        arc_token=arc_token,
        arc_effect=arc_next,
        level_offset=np.array(offsets[2], np.int32),
        level_cost=cost,
        level_row=level_row,
    )


class Bench:
    """Timed cases, written to a file as they come."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.start, self.rows = args, time.perf_counter(), []
        device = jax.devices()[0]
        name = re.sub(r"[^A-Za-z0-9]+", "-", device.device_kind if device.platform != "cpu" else "cpu").strip("-").lower()
        self.file = RESULTS / f"device_step_{name}.json"
        self.header = {
            "device": device.device_kind,
            "platform": device.platform,
            "jax": jax.__version__,
            "python": platform.python_version(),
            "host": platform.processor() or platform.machine(),
            "steps_per_loop": args.steps,
            "repetitions": args.reps,
        }
        self.header["read_bytes_per_s"] = self._bandwidth()

    def _bandwidth(self) -> float:
        x = jnp.ones((16 << 20) if self.header["platform"] == "cpu" else (256 << 20), jnp.float32)
        total = jax.jit(lambda x, i: jnp.max(x + i))
        return x.nbytes / min(self._times(lambda: total(x, jnp.float32(1)), 10))

    def _times(self, run: Any, reps: int) -> list[float]:
        jax.block_until_ready(run())
        jax.block_until_ready(run())
        out = []
        for _ in range(reps):
            begin = time.perf_counter()
            jax.block_until_ready(run())
            out.append(time.perf_counter() - begin)
        return out

    def over(self) -> bool:
        """Whether the budget is spent."""
        return time.perf_counter() - self.start > self.args.budget

    def case(self, name: str, run: Any, steps: int, **facts: Any) -> float | None:
        """Times `run()`, which makes `steps` steps; returns the median µs per step, None when over budget."""
        if self.over():
            return None
        begin = time.perf_counter()
        try:
            times = sorted(t / steps * 1e6 for t in self._times(run, self.args.reps))
        except Exception as error:
            self.rows.append({"case": name, **facts, "error": f"{type(error).__name__}: {error}"[:300]})
            print(f"{name}: {type(error).__name__}", flush=True)
            return None
        median = statistics.median(times)
        quarter = len(times) // 4
        line = {
            "case": name,
            **facts,
            "median_us": round(median, 2),
            "quartiles_us": [round(times[quarter], 2), round(times[-1 - quarter], 2)],
            "min_us": round(times[0], 2),
            "wall_s": round(time.perf_counter() - begin, 1),
        }
        self.rows.append(line)
        print(f"{time.perf_counter() - self.start:4.0f} s  {name:36s} {median:12.2f} µs  {facts}", flush=True)
        self.write()
        return median

    def write(self) -> None:
        """Writes everything so far."""
        RESULTS.mkdir(exist_ok=True)
        self.file.write_text(json.dumps({**self.header, "cases": self.rows}, indent=1, default=str) + "\n")


def looped(step: Any, steps: int) -> Any:
    """`steps` times `step(logits, state, counter) -> (token, state)` in one jitted loop whose logits change every step."""

    @jax.jit
    def run(logits: jax.Array, state: Any, extra: Any) -> Any:
        def body(i: jax.Array, carry: Any) -> Any:
            logits, token, state = carry
            column = (token % 7).astype(logits.dtype)[:, None]
            logits = jax.lax.dynamic_update_slice(logits, column, (jnp.int32(0), i))
            token, state = step(logits, state, i, extra)
            return logits, token, state

        token = jnp.zeros(logits.shape[0], jnp.int32)
        _, token, state = jax.lax.fori_loop(0, steps, body, (logits, token, state))
        return token, state

    return run


def sampler_step(sampler: Any, with_raw: bool = True) -> Any:
    """A step of the package's sampler: with tables in `extra` constrained, without them not."""

    def step(logits: jax.Array, state: Any, i: jax.Array, extra: Any) -> Any:
        key, tables = extra
        counter = jnp.full(logits.shape[:1], i, jnp.uint32)
        of_rows = None if tables is None else state
        choice = sample(sampler, logits, key, counter, tables, of_rows, with_raw=with_raw)
        token = jnp.maximum(choice.token, 0)
        if tables is None:
            # log-probabilities are part of the step: without this the compiler would drop them
            return token, (state[0] + choice.logprob, state[1] + choice.raw_logprob)
        sums = jnp.where(choice.logprob + choice.raw_logprob < 1, 1, 0)
        new = advance(tables, state, choice.token)
        return token, dataclasses.replace(new, remaining=new.remaining + sums)

    return step


def naive_step(kind: str, masked: bool) -> Any:
    """What one writes without this package; the `[B, V]` mask comes for nothing."""

    def step(logits: jax.Array, state: Any, i: jax.Array, extra: Any) -> Any:
        key, allowed = extra
        if masked:
            logits = jnp.where(allowed, logits, -jnp.inf)
        if kind == "greedy":
            return jnp.argmax(logits, -1).astype(jnp.int32), state
        return jax.random.categorical(jax.random.fold_in(key, i), logits).astype(jnp.int32), state

    return step


def sampling_cases(bench: Bench, batch: int, vocab_size: int, dtype: Any, tables: ConstraintTables, naive: bool) -> None:
    """All cases without a model at one size."""
    args = bench.args
    facts = {"B": batch, "V": vocab_size, "logits": jnp.dtype(dtype).name}
    logits = (jax.random.normal(jax.random.key(0), (batch, vocab_size), jnp.float32) * 3).astype(dtype)
    words = key_words(jax.random.split(jax.random.key(1), batch))
    state = init_state(tables, np.zeros(batch, np.int32), np.full(batch, 2**29, np.int32))
    nothing = (jnp.zeros(batch), jnp.zeros(batch))
    run = functools.partial(_run, bench, args.steps, facts, logits)
    run("loop", lambda x, s, i, e: ((i + jnp.zeros(batch, jnp.int32)), s), nothing, None)
    for name in args.samplers:
        sampler = SAMPLERS[name]
        free = run(f"{name}, no constraint", sampler_step(sampler), nothing, (words, None))
        mine = run(f"{name}, constrained", sampler_step(sampler), state, (words, tables))
        _ratio(bench, name, free, mine, facts)
        mine = run(f"{name}, constrained, no raw", sampler_step(sampler, False), state, (words, tables))
        _ratio(bench, f"{name}, no raw", free, mine, facts)
    bandwidth = bench.header["read_bytes_per_s"]
    alone = {
        "mask row alone": (lambda x, s, i, e: (mask_rows(e, s, sources(e, s))[:, 0], _turn(s, i)), batch * 32),
        "mask words, written out": (lambda x, s, i, e: _popcount(mask_words(e, s), s, i), batch * tables.num_words * 4),
        "advance alone": (lambda x, s, i, e: _advanced(e, s, i), batch * 64),
    }
    for name, (step, least_bytes) in alone.items():
        if run(name, step, state, tables) is not None:
            bench.rows[-1]["byte_floor_us"] = round(least_bytes / bandwidth * 1e6, 4)
    if naive:
        allowed = jax.jit(mask, static_argnames="width")(tables, state, width=vocab_size)
        for kind in ("greedy", "categorical"):
            key = jax.random.key(0)
            run(f"jnp {kind}, no constraint", naive_step(kind, False), nothing, (key, None))
            run(f"jnp {kind}, where-masked", naive_step(kind, True), nothing, (key, allowed))


def _run(bench: Bench, steps: int, facts: dict, logits: Any, name: str, step: Any, state: Any, extra: Any) -> float | None:
    program = looped(step, steps)
    return bench.case(name, lambda: program(logits, state, extra), steps, **facts)


def _turn(state: Any, i: jax.Array) -> Any:
    """The state with running rows and nodes that differ from step to step."""
    node = 2 + (state.node * 5 + i) % 120
    return dataclasses.replace(state, node=node, status=jnp.zeros_like(state.status))


def _advanced(tables: ConstraintTables, state: Any, i: jax.Array) -> Any:
    node = state.node[:, 0]
    return i + node, _turn(advance(tables, state, node * 991 % tables.vocab_size), i)


def _popcount(words: jax.Array, state: Any, i: jax.Array) -> Any:
    return jax.lax.population_count(words).sum(1).astype(jnp.int32), _turn(state, i)


def _ratio(bench: Bench, name: str, free: float | None, mine: float | None, facts: dict) -> None:
    if free and mine:
        line = {"case": f"{name}, constrained / unconstrained", **facts, "ratio": round(mine / free, 4)}
        bench.rows.append({**line, "difference_us": round(mine - free, 2)})
        print(f"  {name}: {mine / free:.3f} x, {mine - free:+.2f} µs", flush=True)
        bench.write()


def model_cases(bench: Bench, which: str, batch: int, vocab_size: int, tables: ConstraintTables) -> None:
    """Constrained and not, with a model's forward pass of one token in the loop."""
    if bench.over():
        return
    facts = {"B": batch, "V": vocab_size, "model": which}
    try:
        decoder = _model(which, vocab_size)
        cache = decoder.init_cache(batch, 128)
        tokens = jnp.ones((batch, 32), jnp.int32)
        fill = jax.jit(lambda d, t, c: d.apply(t, c, jnp.full(batch, 32, jnp.int32), last_only=True)[1])
        cache = fill(decoder, tokens, cache)
    except Exception as error:
        bench.rows.append({"case": f"model {which}", **facts, "error": f"{type(error).__name__}: {error}"[:300]})
        print(f"model {which}: {type(error).__name__}: {error}"[:300], flush=True)
        return
    words = key_words(jax.random.split(jax.random.key(1), batch))
    steps = min(64, bench.args.steps)
    state = init_state(tables, np.zeros(batch, np.int32), np.full(batch, 2**29, np.int32))
    nothing = (jnp.zeros(batch), jnp.zeros(batch))

    program = functools.partial(model_loop, batch, steps)
    alone = program(forward)
    bench.case("model forward alone", lambda: alone(decoder, cache, nothing, None), steps, **facts)
    for name in bench.args.samplers:
        if name not in ("greedy", "categorical"):
            continue
        run = program(sampler_step(SAMPLERS[name]))
        free = bench.case(
            f"model + {name}, no constraint", lambda run=run: run(decoder, cache, nothing, (words, None)), steps, **facts
        )
        mine = bench.case(
            f"model + {name}, constrained", lambda run=run: run(decoder, cache, state, (words, tables)), steps, **facts
        )
        _ratio(bench, f"model + {name}", free, mine, facts)
        run = program(sampler_step(SAMPLERS[name], False))
        mine = bench.case(
            f"model + {name}, constrained, no raw", lambda run=run: run(decoder, cache, state, (words, tables)), steps, **facts
        )
        _ratio(bench, f"model + {name}, no raw", free, mine, facts)


def model_loop(batch: int, steps: int, step: Any) -> Any:
    """`looped`, with a model's forward pass in every step."""

    @jax.jit
    def run(decoder: Any, cache: Any, state: Any, extra: Any) -> Any:
        def body(i: jax.Array, carry: Any) -> Any:
            token, cache, state = carry
            logits, cache = decoder.apply(token[:, None], cache, jnp.ones(batch, jnp.int32))
            token, state = step(logits[:, -1], state, i, extra)
            return token, cache, state

        token, _, state = jax.lax.fori_loop(0, steps, body, (jnp.ones(batch, jnp.int32), cache, state))
        return token, state

    return run


def forward(logits: jax.Array, state: Any, *_: Any) -> Any:
    """A step that samples nothing: what a model costs alone."""
    return logits[:, 0].astype(jnp.int32) % 7, state


@functools.lru_cache(maxsize=1)
def _model(which: str, vocab_size: int) -> Any:
    """A model with random parameters: a published size in bfloat16, or "small", the shipped model's architecture."""
    import models

    if which == "small":
        config = dataclasses.replace(models.load_small().config, vocab_size=vocab_size)
        return models.Gemma.init(config, jax.random.key(0))
    config = dataclasses.replace(models.get_config(which), vocab_size=vocab_size)
    shapes = jax.eval_shape(lambda: models.Gemma.init(config, jax.random.key(0), dtype=jnp.bfloat16))
    leaves, tree = jax.tree.flatten(shapes)

    @functools.partial(jax.jit, static_argnums=(1, 2))
    def drawn(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:  # one program for all would compile for minutes
        return (jax.random.normal(key, shape, jnp.float32) * 0.02).astype(dtype)

    keys = jax.random.split(jax.random.key(0), len(leaves))
    return jax.tree.unflatten(tree, [drawn(k, s.shape, s.dtype) for k, s in zip(keys, leaves)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few sizes and repetitions: does it run?")
    parser.add_argument("--steps", type=int, help="steps per timed loop")
    parser.add_argument("--reps", type=int, help="timed loops per case")
    parser.add_argument("--budget", type=float, default=270, help="seconds after which no case is started")
    parser.add_argument("--samplers", nargs="+", default=["greedy", "categorical"], choices=list(SAMPLERS))
    parser.add_argument("--models", nargs="*", help='published sizes, or "small"; default: by device')
    parser.add_argument("--only-models", action="store_true", help="no cases without a model")
    parser.add_argument("--sizes", nargs="+", help="B x V pairs such as 64x128256; default: by device")
    args = parser.parse_args()
    cpu = jax.default_backend() == "cpu"
    args.steps = args.steps or (4 if cpu else 64)
    args.reps = args.reps or (3 if args.quick else 20)
    models = args.models if args.models is not None else (["small"] if cpu else ["gemma3-1b"])
    sizes = args.sizes or (["8x128256"] if args.quick else ["64x128256", "8x128256", "1x128256"])
    if not args.sizes and not cpu and not args.quick:
        sizes = ["256x262144", "64x262144", "64x128256", "8x262144", "1x262144", "8x128256", "1x128256"]
    bench = Bench(args)
    print(json.dumps(bench.header), flush=True)
    for number, size in enumerate(sizes):
        batch, vocab_size = (int(x) for x in size.split("x"))
        tables = to_device(random_constraint(vocab_size))
        if not args.only_models:
            sampling_cases(bench, batch, vocab_size, jnp.float32, tables, naive=number < 2)
            if not cpu and number == 0:
                sampling_cases(bench, batch, vocab_size, jnp.bfloat16, tables, naive=False)
        for which in models:
            model_cases(bench, which, batch, vocab_size, tables)
    bench.write()
    print(f"{time.perf_counter() - bench.start:.0f} s; wrote {bench.file}")


if __name__ == "__main__":
    main()
