"""What does a constraint add to a step of the `gemma` library's own sampler? Its jitted loop with and without one.

    CONSTRAX_DATA=/path/to/data .venv-parity/bin/python benchmarks/gemma_sampler.py [--batch 1 8] [--steps 8] [--repeat 9]

The architecture and sizes are Gemma 3 270M's (262,144 logits), the parameters random, the vocabulary a real one (by default Llama
4's of 202,048 ids: Gemma's may not be passed on). All forms take turns with the same prompt and the same number of steps, several
steps in one call of the loop; times are medians per step. Both the time on the clock and the processor's time of all threads are
given: on a shared machine only the second means much, and only as a ratio. Needs the environment of
`tests/models/parity/requirements-gemma3.txt`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
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
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from oracles import official_gemma  # noqa: E402

import fsa_compile  # noqa: E402
import jax_decode  # noqa: E402
from jax_decode.integrations.gemma import constrain  # noqa: E402

STRING = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
NESTED = 'start: value\nvalue: "[" (value ("," value)*)? "]" | STRING\nSTRING: /"[^"\\\\\\x00-\\x1f]*"/\n'
PROMPT, CACHE, BUFFER = 32, 256, 128
WARM = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--tokenizer", default="llama4")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "gemma_sampler.json")
    args = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA") or HERE.parents[1] / "shared" / "data")
    gm = official_gemma.import_gm()
    model = gm.nn.Gemma3_270M(dtype=jnp.dtype(args.dtype))
    params = random_params(model, args.dtype)
    tokenizer = fsa_compile.load_tokenizer(data / "tokenizers" / args.tokenizer)
    compiled = {
        "pattern": fsa_compile.compile_regex(STRING, tokenizer),
        "stack": fsa_compile.compile_grammar(NESTED, tokenizer),
    }
    forms = {"unconstrained": (model, params)}
    for name, constraint in compiled.items():
        tables = jax_decode.to_device(constraint, logits_width=model.config.num_embed)
        forms[name] = constrain(model, params, tables, max_new_tokens=BUFFER)
    device = jax.devices()[0]
    result: dict[str, Any] = {
        "jax": jax.__version__, "gemma": importlib.metadata.version("gemma"), "device": str(device.device_kind),
        "cpu": platform.machine(), "dtype": args.dtype, "logits": model.config.num_embed, "tokens": tokenizer.vocabulary.size,
        "steps_per_call": args.steps, "repeat": args.repeat, "load_average": os.getloadavg()[0], "batches": {},
    }  # fmt: skip
    for batch in args.batch:
        result["batches"][str(batch)] = found = measure(gm, forms, batch, args.steps, args.repeat)
        print(batch, json.dumps(found["ratio"]), flush=True)
        args.output.write_text(json.dumps(result, indent=1) + "\n")


def random_params(model: Any, dtype: str) -> Any:
    """Parameters of the model's shapes, normal with a standard deviation of 0.02."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.ones((1, 4), jnp.int32))["params"]
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape, np.float32) * 0.02, dtype), shapes)


def measure(gm: Any, forms: dict[str, Any], batch: int, steps: int, repeat: int) -> dict[str, Any]:
    loops = {name: _loop(gm, *form, batch, steps) for name, form in forms.items()}
    clock: dict[str, list[float]] = {name: [] for name in loops}
    busy: dict[str, list[float]] = {name: [] for name in loops}
    for i in range(WARM + repeat):
        for name, loop in loops.items():
            begin, processor = time.perf_counter(), time.process_time()
            state = loop()
            if i >= WARM:
                clock[name].append((time.perf_counter() - begin) * 1e3 / steps)
                busy[name].append((time.process_time() - processor) * 1e3 / steps)
            assert int(state.step) == steps, "a text has ended early: the figures would be of fewer steps"
    ms, cpu_ms = ({name: statistics.median(times) for name, times in each.items()} for each in (clock, busy))
    ratio = {name: {"clock": ms[name] / ms["unconstrained"], "cpu": cpu_ms[name] / cpu_ms["unconstrained"]} for name in loops}
    return {"ms": ms, "cpu_ms": cpu_ms, "ratio": ratio, "raw_cpu_ms": busy}


def _loop(gm: Any, model: Any, params: Any, batch: int, steps: int) -> Any:
    """The sampler's loop over so many steps, after one prefill."""
    prefill = importlib.import_module("gemma.gm.text._prefill").prefill
    types = importlib.import_module("gemma.gm.utils._types")
    loop = importlib.import_module("gemma.gm.text._sampler_loop").SamplerLoop(
        model=model,
        end_tokens=(1, 106),
        forbidden_tokens=None,
        sampling=gm.text.RandomSampling(),
        cache_length=CACHE,
        special_tokens=gm.text.Gemma3Tokenizer.special_tokens,
    )
    rng = np.random.default_rng(1)
    text = jnp.asarray(rng.integers(1000, 2000, (batch, PROMPT)), jnp.int32)
    state = prefill(
        model=model,
        params=params,
        input=types.Input(text=text, images=None, config=model.config.input_config),
        last_state=None,
        cache_length=CACHE,
        max_out_length=BUFFER,
        pad_length=None,
        rng=jax.random.key(2),
        sharding=None,
    )
    most = jnp.asarray(steps)
    return lambda: jax.block_until_ready(loop.sample(params=params, init_state=state, max_new_tokens=most))


if __name__ == "__main__":
    main()
