"""Trains the small model some minutes more, on other text: what `train_agent` and `train_programmer` have in common.

One responsibility: the training run from parameters that are given.
"""

import argparse
import itertools
import json
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from models.checkpoint import save
from models.gemma import Gemma
from tools.small_model import corpus_tokens
from tools.small_model.train_small import TrainOptions, _make_step, _optimizer, _rate, loss_sums

_CHUNK = 4_000
_HELD_OUT_SEED = 90_001


class Rows(Protocol):
    """Training rows by seed and number; held-out ones are for the report."""

    def __call__(self, seed: int, count: int, *, held_out: bool = False) -> list[corpus_tokens.Row]: ...


def train(begun: Gemma, rows: Rows, options: TrainOptions) -> tuple[Gemma, int]:
    """The model after a time, and how many steps it took.

    Args:
      begun: The model before.
      rows: What to train on.
      options: `budget_seconds` is how long.
    """
    assert options.budget_seconds is not None
    optimizer = _optimizer()
    params, config = begun.params, begun.config
    state, step = optimizer.init(params), _make_step(config, optimizer, options.bfloat16)
    chunks = (
        corpus_tokens.batches(rows(1_000 + number, _CHUNK), options.tokens_per_batch, options.seed + number)
        for number in itertools.count()
    )
    started = time.monotonic()
    for number, (ids, kind) in enumerate(itertools.chain.from_iterable(chunks), 1):
        seconds = time.monotonic() - started
        params, state, means = step(params, state, ids, kind, np.float32(_rate(options, number, seconds)))
        if number % 20 == 0:
            print(f"step {number}  output {float(means[1]):.3f} nats/token  {seconds:,.0f} s", flush=True)
        if seconds >= options.budget_seconds:
            break
    return Gemma(params, config, begun.vocabulary_fingerprint), number


def main(
    name: str, description: str, begin: Callable[[int], Gemma], rows: Rows, arguments: list[str] | None
) -> pathlib.Path:
    """The command line of a training script, and its run.

    Args:
      name: The script's.
      description: Its first line of help.
      begin: The model before, by seed.
      rows: What to train on.
      arguments: Of the command line.

    Returns:
      The folder that has checkpoint and report.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tools.small_model.{name}", description=description)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for checkpoint and report")
    parser.add_argument("--minutes", type=float, default=15, help="how long to train")
    parser.add_argument("--tokens-per-batch", type=int, default=2048)
    parser.add_argument("--peak-rate", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    options = TrainOptions(
        steps=1_000_000, budget_seconds=60 * given.minutes, tokens_per_batch=given.tokens_per_batch, peak_rate=given.peak_rate,
        warmup=given.warmup, seed=given.seed,
    )  # fmt: skip
    started = time.monotonic()
    model, steps = train(begin(given.seed), rows, options)
    given.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(given.out / "checkpoint", ignore_errors=True)
    save(model.astype(jnp.bfloat16), given.out / "checkpoint")
    (given.out / "checkpoint" / "commit_success.txt").unlink(missing_ok=True)  # names a temporary folder; nobody reads it
    report: dict[str, Any] = {"steps": steps, "seconds": round(time.monotonic() - started), "peak_rate": given.peak_rate}
    report |= {"tokens_per_batch": given.tokens_per_batch, "warmup": given.warmup}
    report |= {"seed": given.seed, "device": jax.devices()[0].device_kind, "jax": jax.__version__}
    measure, sums, counts = jax.jit(loss_sums), np.zeros(2), np.zeros(2)
    for ids, kind in corpus_tokens.batches(rows(_HELD_OUT_SEED, 1_000, held_out=True), 2048, seed=0):
        more, number = measure(model, ids, kind)
        sums, counts = sums + np.asarray(more), counts + np.asarray(number)
    report["held_out_nats_per_output_token"] = round(float(sums[1] / counts[1]), 4)
    print(json.dumps(report), flush=True)
    (given.out / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return pathlib.Path(given.out)
