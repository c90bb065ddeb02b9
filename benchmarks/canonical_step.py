"""What does the pair rule add to a step of sampling? A wide constraint (quoted text) with and without `canonical=True`.

    CONSTRAX_DATA=/path/to/data python benchmarks/canonical_step.py [--names llama2 llama3] [--batch 64]

One step is: mask, sample, advance, on logits made before; the model is left out, so the share of a real step is smaller. Plain
and canonical steps take turns; times are medians. Both the time on the clock and the processor's time of all threads are given:
on a shared machine only the second means much, and only as a ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import jax_decode  # noqa: E402
from fsa_compile import CompileLimits, canonical_tables, compile_regex, load_tokenizer  # noqa: E402
from jax_decode.kernels.noise import key_words  # noqa: E402
from jax_decode.sampling.samplers import prepared  # noqa: E402
from jax_decode.sampling.sampling import sample  # noqa: E402
from jax_decode.step.state import init_state  # noqa: E402
from jax_decode.step.transition import advance  # noqa: E402

PATTERN = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
WARM = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=["llama2", "gpt2", "llama3"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "canonical_step.json")
    args = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA") or HERE.parents[1] / "shared" / "data")
    device = jax.devices()[0]
    result: dict[str, Any] = {"jax": jax.__version__, "device": str(device.device_kind), "cpu": platform.machine(), "steps": {}}
    for name in args.names:
        result["steps"][name] = measure(data / "tokenizers" / name, args.batch, args.repeat)
        print(name, json.dumps(result["steps"][name]), flush=True)
        args.output.write_text(json.dumps(result, indent=1) + "\n")


def measure(path: Path, batch: int, repeat: int) -> dict[str, Any]:
    tokenizer = load_tokenizer(path)
    canonical = canonical_tables(tokenizer)
    start = time.process_time()
    plain = compile_regex(PATTERN, tokenizer)
    middle = time.process_time()
    own = compile_regex(PATTERN, tokenizer, canonical=True, limits=CompileLimits(max_seconds=600))
    end = time.process_time()
    tables = {"plain": jax_decode.to_device(plain), "canonical": jax_decode.to_device(own, canonical=canonical)}
    pairs = tables["canonical"].pairs
    assert pairs is not None
    out: dict[str, Any] = {
        "batch": batch, "tokens": plain.vocab_size, "compile_cpu_s": {"plain": middle - start, "canonical": end - middle},
        "artifact_bytes": {"plain": plain.nbytes, "canonical": own.nbytes},
        "pair_tables_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(pairs)),
        "filter_tables_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(tables["canonical"].filter)),
    }  # fmt: skip
    logits = jax.random.normal(jax.random.key(0), (batch, plain.vocab_size), jnp.float32)
    quotes = np.array([token == b'"' for token in tokenizer.vocabulary.tokens])
    quote = int(np.flatnonzero(quotes & canonical.rule.own)[0])
    for kind, sampler in (("greedy", jax_decode.Greedy()), ("sampled", jax_decode.Categorical())):
        steps = {form: _step(one, sampler, logits, batch, quote) for form, one in tables.items()}
        clock: dict[str, list[float]] = {form: [] for form in steps}
        busy: dict[str, list[float]] = {form: [] for form in steps}
        for i in range(WARM + repeat):
            for form, step in steps.items():
                begin, processor = time.perf_counter(), time.process_time()
                step()
                if i >= WARM:
                    clock[form].append((time.perf_counter() - begin) * 1e3)
                    busy[form].append((time.process_time() - processor) * 1e3)
        out[kind] = {
            "ms": {form: statistics.median(times) for form, times in clock.items()},
            "cpu_ms": {form: statistics.median(times) for form, times in busy.items()},
        }
        out[kind]["cpu_ratio"] = out[kind]["cpu_ms"]["canonical"] / out[kind]["cpu_ms"]["plain"]
    return out


def _step(tables: Any, sampler: Any, logits: jax.Array, batch: int, quote: int) -> Any:
    """A step from inside the quotes, after a different token in every row."""
    ready = prepared(sampler)
    key = key_words(jax.random.split(jax.random.key(1), batch))
    counter = jnp.zeros(batch, jnp.uint32)
    state = advance(tables, init_state(tables, np.zeros(batch, np.int32)), jnp.full(batch, quote, jnp.int32))

    @jax.jit
    def run(tables: Any, state: Any, logits: jax.Array) -> Any:
        choice = sample(ready, logits, key, counter, tables, state)
        return choice, advance(tables, state, choice.token)

    _, state = run(tables, state, logits)
    return lambda: jax.block_until_ready(run(tables, state, logits))


if __name__ == "__main__":
    main()
