"""What does a regular constraint add to a draw on one core of a CPU, without a model?

    CONSTRAX_DATA=... python benchmarks/sampling_cpu.py

64 rows of 128,256 float32 logits, Llama 3's vocabulary. With the constraint a step is `sample` and `advance`, without it `sample`
alone; both in turns, processor time, the least and the median of 15. Raw figures, and the temporaries that XLA reserves, go to
`benchmarks/results/sampling_cpu.json`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
if hasattr(os, "sched_setaffinity"):  # one core also for what XLA runs beside
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp

import fsa_compile
import jax_decode
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.sampling import sample

RESULTS = Path(__file__).parent / "results" / "sampling_cpu.json"
DATA = Path(os.environ.get("CONSTRAX_DATA", Path(__file__).parents[2] / "shared/data"))
ROWS, WIDTH, RUNS = 64, 128_256, 101
SAMPLERS = {
    "greedy": jax_decode.Greedy(),
    "categorical": jax_decode.Categorical(),
    "top-k 50": jax_decode.TopK(50),
    "top-p 0.95": jax_decode.TopP(0.95),
    "min-p 0.05": jax_decode.MinP(0.05),
}


def programs(sampler: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Compiled steps without and with a constraint, with their arguments."""
    tokenizer = fsa_compile.load_tokenizer(DATA / "tokenizers/llama3/tokenizer.model")
    tables = jax_decode.to_device(fsa_compile.compile_regex("([a-z]+ )*x", tokenizer))
    state = jax_decode.init_state(tables, jnp.zeros(ROWS, jnp.int32))
    logits = jax.random.normal(jax.random.key(0), (ROWS, WIDTH)) * 3
    key, step = key_words(jax.random.split(jax.random.key(1), ROWS)), jnp.zeros(ROWS, jnp.uint32)

    def free(logits: jax.Array) -> Any:
        return sample(sampler, logits, key, step)

    def constrained(logits: jax.Array, tables: Any, state: Any) -> Any:
        choice = sample(sampler, logits, key, step, tables, state)
        return choice, jax_decode.advance(tables, state, choice.token)

    made = {"no_constraint": (free, (logits,)), "regular": (constrained, (logits, tables, state))}
    return {name: (jax.jit(step).lower(*given).compile(), given) for name, (step, given) in made.items()}


def measured(sampler: Any) -> dict[str, Any]:
    """Milliseconds of processor time and megabytes of temporaries."""
    steps = programs(sampler)
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(RUNS + 1):
        for name, (step, given) in steps.items():
            begin = time.process_time()
            jax.block_until_ready(step(*given))
            spent[name].append((time.process_time() - begin) * 1e3)
    out: dict[str, Any] = {}
    for name, (step, _) in steps.items():
        times = spent[name][1:]
        out[f"{name}_cpu_ms"] = {"least": round(min(times), 1), "median": round(statistics.median(times), 1)}
        out[f"{name}_temporaries_mb"] = round(step.memory_analysis().temp_size_in_bytes / 1e6, 1)
    return out


def main() -> int:
    found = {name: measured(sampler) for name, sampler in SAMPLERS.items()}
    what = f"processor time of sample + advance, {RUNS} runs in turns, B {ROWS}, V {WIDTH}, float32, one core"
    RESULTS.write_text(json.dumps({"what": what, "jax": jax.__version__, "samplers": found}, indent=1) + "\n")
    for name, figures in found.items():
        free, regular = (figures[f"{step}_cpu_ms"] for step in ("no_constraint", "regular"))
        ratios = [round(regular[which] / free[which], 3) for which in ("least", "median")]
        print(f"{name:12} {free['least']:6.1f} -> {regular['least']:6.1f} ms; with ÷ without: {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
