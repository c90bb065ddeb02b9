"""What eight devices exchange in every way to decode, where the vocabulary is spread over them: read off the compiled programs.

    python benchmarks/mode_exchanges.py

Simulated CPU devices, 16 prompts, vocabularies whose columns do and do not fall evenly on the devices. Of every program that a
call compiles: how many exchanges it has (those in loops once), their bytes on each device, and the largest. Raw figures go to
`benchmarks/results/mode_exchanges.json`.
"""

# ruff: noqa: E402 (jax reads the flags when it is imported)

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "mode_exchanges.json"
DUMP = tempfile.mkdtemp()
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 --xla_dump_to={DUMP} --xla_dump_hlo_as_text"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path[:0] = [str(HERE), str(HERE.parent)]

import jax
import jax.numpy as jnp
import numpy as np
from collectives import collectives
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from vocabulary_shards import constraint

import jax_decode

BATCH, STATES = 16, 64
VOCABULARIES = (32_768, 50_264)


def calls(vocab_size: int) -> dict[str, Callable[[], Any]]:
    """The ways to decode, over a model whose logits depend on the last token."""
    mesh = jax.make_mesh((8,), ("ids",), axis_types=(AxisType.Auto,))
    tables = jax_decode.to_device(
        constraint(vocab_size), sharding=NamedSharding(mesh, PartitionSpec()), vocabulary_axis="ids"
    )
    logits = np.random.default_rng(0).normal(0, 2, (STATES, vocab_size)).astype(np.float32)
    spread = NamedSharding(mesh, PartitionSpec(None, "ids"))
    model, draft = (
        jax_decode.FunctionDecoder(
            lambda params, tokens, cache, lengths: (params[tokens % STATES], cache + lengths),
            jax.device_put(logits * scale, spread), lambda rows, length: jnp.zeros(rows, jnp.int32), vocab_size, jnp.minimum,
        )
        for scale in (1.0, 0.9)
    )  # fmt: skip
    given: Any = {"constraint": [0] * BATCH, "max_new_tokens": 6}
    prompts, key, sampler = [[i + 1] for i in range(BATCH)], jax.random.key(0), jax_decode.Categorical()

    def generated(**options: Any) -> Any:
        return jax_decode.generate(model, prompts, tables, key=key, **{"sampler": sampler, **given, **options})

    def smc(**options: Any) -> Any:
        return jax_decode.generate_smc(model, prompts, tables, key=key, particles=2, **given, **options)

    few: Any = {"constraint": [0] * 4, "max_new_tokens": 1, "max_prefixes": 1024}
    return {
        "greedy": lambda: generated(sampler=jax_decode.Greedy()),
        "categorical": generated,
        "top-k 50": lambda: generated(sampler=jax_decode.TopK(50)),
        "forced runs": lambda: generated(forced=4),
        "drafts, same noise": lambda: generated(draft=jax_decode.ModelDraft(draft, 3, same_noise=True)),
        "drafts, rejection": lambda: generated(draft=jax_decode.ModelDraft(draft, 3)),
        "beams": lambda: jax_decode.beam_search(model, prompts, tables, beams=3, **given),
        "without replacement": lambda: jax_decode.sample_without_replacement(
            model, prompts, tables, key=key, num_samples=3, **given
        ),
        "particles": smc,
        "particles by rejection": lambda: smc(proposal=jax_decode.Rejection(3)),
        "score": lambda: jax_decode.score(model, prompts, tables, tokens=[[1, 2, 3]] * BATCH, constraint=[0] * BATCH),
        "sequences": lambda: jax_decode.enumerate_sequences(model, prompts[:4], tables, **few),
    }


def main() -> None:
    report: dict[str, Any] = {"jax": jax.__version__, "batch": BATCH, "devices": 8}
    for vocab_size in VOCABULARIES:
        programs: dict[str, Any] = {}
        for name, call in calls(vocab_size).items():
            before = set(Path(DUMP).glob("*after_optimizations.txt"))
            call()
            for path in sorted(set(Path(DUMP).glob("*after_optimizations.txt")) - before):
                found = collectives(path.read_text())
                module = re.search(r"module_\d+\.jit_(.*?)\.", path.name)
                if found and module:
                    largest = max(found, key=lambda c: c["bytes"])
                    total = sum(c["bytes"] for c in found)
                    programs[f"{name}: {module[1]}"] = {"exchanges": len(found), "bytes": total, "largest": largest}
                    print(f"{vocab_size:,} {name:24s} {module[1]:16s} {len(found):3d} exchanges, {total:>9,} bytes", flush=True)
        report[f"{vocab_size:,} tokens"] = {"logits_bytes_per_device": BATCH * vocab_size // 8 * 4, "programs": programs}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
