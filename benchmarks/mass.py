"""What does the probability of a constraint cost, exactly and by importance sampling, and do the two agree?

    python benchmarks/mass.py [--quick] [--prompts N] [--repeats N] [--output FILE]

The small model that comes with the package, 10 held-out prompts of `tools.small_model.corpus` and 5 constraints: 50 masses.
Exact ones come from all token sequences but those whose beginning is less probable than 1e-12; what these can add is bounded
and recorded. Importance samples are drawn among the allowed tokens, 1,024 for each prompt. z is the difference of the two
logarithms in standard errors of the sampled one. Raw figures go to `benchmarks/results/mass.json`.

Times are CPU time of the process for all prompts together, warm, in the median of some repetitions, with transfers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np

import fsa_compile
import models
from jax_decode import enumerate_sequences, generate_smc, log_mass, to_device
from tools.small_model import corpus

RESULTS = Path(__file__).parent / "results" / "mass.json"
CONSTRAINTS = {
    "one of 2 words": "yes|no",
    "one of 7 words": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "up to 3 digits": "[0-9]{1,3}",
    "a year": "(18|19|20)[0-9]{2}",
    "a name": "[A-Z][a-z]{1,3} [A-Z]\\.",
}
IGNORE, LIMIT, SAMPLES = 1e-12, 12, 1024


def timed(call: Any, repeats: int) -> tuple[Any, float]:
    """What the call returns, and the median of its CPU seconds, the first (compilation) left out."""
    found, seconds = call(), []
    for _ in range(repeats):
        begin = time.process_time()
        found = call()
        seconds.append(time.process_time() - begin)
    return found, statistics.median(seconds)


def measure(decoder: Any, tokenizer: Any, prompts: list[list[int]], pattern: str, repeats: int) -> dict[str, Any]:
    """One constraint after all prompts."""
    tables = to_device(fsa_compile.compile_regex(pattern, tokenizer))
    given = {"constraint": [0] * len(prompts), "max_new_tokens": LIMIT, "bos_id": tokenizer.vocabulary.bos_id}
    out: dict[str, Any] = {}
    sequences = enumerate_sequences(decoder, prompts, tables, ignore_below=IGNORE, **given)
    exact, seconds = timed(lambda: log_mass(decoder, prompts, tables, ignore_below=IGNORE, **given), repeats)
    out |= {"exact_seconds": seconds, "exact": exact.log_mass.tolist(), "ignored": exact.ignored.tolist()}
    out |= {"sequences": len(sequences), "is_exact": exact.exact}
    key = jax.random.key(0)
    drawn, seconds = timed(
        lambda: log_mass(decoder, prompts, tables, key=key, samples=SAMPLES, max_prefixes=0, **given), repeats
    )
    out |= {"sampled_seconds": seconds, "sampled": drawn.log_mass.tolist(), "standard_error": drawn.standard_error.tolist()}
    out["effective_sample_size"] = drawn.effective_sample_size.tolist()
    out["z"] = ((drawn.log_mass - exact.log_mass) / drawn.standard_error).tolist()
    particles, seconds = timed(lambda: generate_smc(decoder, prompts, tables, key=key, particles=64, **given), repeats)
    out |= {"particles_seconds": seconds, "particles": particles.log_mass.tolist()}
    return out


def main() -> None:
    """Measures, prints, writes the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    tokenizer, decoder = fsa_compile.load_tokenizer(models.small_tokenizer_path()), models.load_small()
    examples = itertools.islice(corpus.generate(5, held_out=True), options.prompts)
    prompts = [tokenizer.encode(example.prompt) for example in examples]
    repeats = 1 if options.quick else options.repeats
    rows = {name: measure(decoder, tokenizer, prompts, pattern, repeats) for name, pattern in CONSTRAINTS.items()}
    z = np.abs(np.concatenate([row["z"] for row in rows.values()]))
    report: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "machine": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__},
        "prompts": len(prompts),
        "samples": SAMPLES,
        "constraints": {name: {"pattern": CONSTRAINTS[name], **row} for name, row in rows.items()},
        "within_3_standard_errors": f"{int((z <= 3).sum())} of {len(z)}",
        "largest_z": float(z.max()),
    }
    for name, row in rows.items():
        size = statistics.median(row["effective_sample_size"])
        print(
            f"{name:16} {row['sequences'] / len(prompts):8.1f} sequences a prompt, exact {row['exact_seconds']:.3f} s; "
            f"{SAMPLES} samples {row['sampled_seconds']:.3f} s, worth {size:.0f}; 64 particles {row['particles_seconds']:.3f} s"
        )
    print(f"{report['within_3_standard_errors']} within 3 standard errors, the largest is {report['largest_z']:.2f}")
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
