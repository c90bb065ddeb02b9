"""Trains the small model that the repository ships: `python -m tools.small_model.train_small --out models/small`.

One responsibility: the training run. Text comes from `tools.small_model.corpus`, ids from `tools.small_model.corpus_tokens`,
the network from `models.transformer`. Runs on any JAX device; the defaults are those of the shipped model, sized for two CPU
cores. The shipped model had `--steps 7000 --minutes 43` and took 2,651 steps (10.7 million tokens) on two shared cores; how far
a timed run comes depends on the machine, a run without `--minutes` does not.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from models import layouts
from models.checkpoint import save
from models.config import Attention, GemmaConfig, gemma3
from models.gemma import Gemma
from tools.small_model import corpus_tokens

PROMPT_WEIGHT = 0.1
"""Weight of a prompt token in the loss; an output token weighs 1. Made-up names in prompts cannot be foreseen."""

_CHUNK = 8_000  # rows that are made at a time; under a second of work
_HELD_OUT_SEED = 90_001


def small_config() -> GemmaConfig:
    """The shipped model's architecture: Gemma 3 in small, every second layer global."""
    return gemma3(
        vocab_size=corpus_tokens.VOCABULARY_SIZE,
        num_layers=4,
        embed_dim=160,
        hidden_dim=448,
        num_heads=4,
        num_kv_heads=2,
        head_dim=40,
        attention_pattern=(Attention.LOCAL, Attention.GLOBAL),
        sliding_window=64,
    )


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What a run depends on.

    Attributes:
      steps: Optimizer steps, at most.
      budget_seconds: Time after which to stop, or None. The learning rate falls with whichever runs out first.
      tokens_per_batch: Tokens per step, padding included.
      peak_rate: Highest learning rate, reached after `warmup` steps and left along a cosine.
      warmup: Steps of linear warm-up.
      seed: Of parameters, text and order.
      workers: Processes that make training rows; 0 makes them between steps.
      bfloat16: Compute in bfloat16 (parameters stay float32).
      report_every: Steps between lines of progress.
      snapshot: File that receives the parameters every `snapshot_seconds`, or None.
      snapshot_seconds: Seconds between snapshots.
    """

    steps: int = 6000
    budget_seconds: float | None = None
    tokens_per_batch: int = 4096
    peak_rate: float = 3e-3
    warmup: int = 150
    seed: int = 0
    workers: int = 0
    bfloat16: bool = False
    report_every: int = 50
    snapshot: pathlib.Path | None = None
    snapshot_seconds: float = 100.0


def loss_sums(decoder: Gemma, ids: jax.Array, kind: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum of the next-token losses over prompt and over output tokens, and how many there are of each.

    Args:
      decoder: The model.
      ids: int32[B, L].
      kind: int8[B, L]: 0 padding, 1 prompt, 2 output.

    Returns:
      float32[2] sums in nats and float32[2] counts: prompt, output.
    """
    losses = optax.softmax_cross_entropy_with_integer_labels(decoder.forward(ids)[:, :-1], ids[:, 1:])
    of_kind = jnp.stack([kind[:, 1:] == 1, kind[:, 1:] == 2]).astype(jnp.float32)
    return jnp.sum(of_kind * losses, axis=(1, 2)), jnp.sum(of_kind, axis=(1, 2))


def _make_step(config: GemmaConfig, optimizer: optax.GradientTransformation, bfloat16: bool) -> Any:
    """The jitted update; the learning rate is an argument, because it may depend on the clock."""
    weights = jnp.array([PROMPT_WEIGHT, 1.0])

    def objective(params: Any, ids: jax.Array, kind: jax.Array) -> tuple[jax.Array, jax.Array]:
        decoder = Gemma(params, config)
        sums, counts = loss_sums(decoder.astype(jnp.bfloat16) if bfloat16 else decoder, ids, kind)
        return jnp.dot(weights, sums) / jnp.maximum(jnp.dot(weights, counts), 1.0), sums / jnp.maximum(counts, 1.0)

    def step(
        params: Any, state: Any, ids: jax.Array, kind: jax.Array, rate: jax.Array
    ) -> tuple[Any, Any, jax.Array]:
        (_, means), grads = jax.value_and_grad(objective, has_aux=True)(params, ids, kind)
        updates, state = optimizer.update(grads, state, params)
        return jax.tree.map(lambda leaf, update: leaf - rate * update, params, updates), state, means

    return jax.jit(step, donate_argnums=(0, 1))


def _optimizer() -> optax.GradientTransformation:
    """AdamW without its learning rate.

    Source: Loshchilov and Hutter 2019 (arXiv:1711.05101).
    """

    def decays(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)  # norm scales are left alone

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(b1=0.9, b2=0.98, eps=1e-9),
        optax.add_decayed_weights(0.02, mask=decays),
    )


def _rate(options: TrainOptions, number: int, seconds: float) -> float:
    """The learning rate of step `number` (from 1), `seconds` after the start: linear warm-up, then half a cosine."""
    used = 0.0 if options.budget_seconds is None else seconds / options.budget_seconds
    progress = min(1.0, max(number / options.steps, used))
    warmup = min(1.0, number / max(1, min(options.warmup, options.steps // 4)))
    return options.peak_rate * warmup * 0.5 * (1.0 + math.cos(math.pi * progress))


def _chunks(tokenizer: bytes, options: TrainOptions) -> Iterator[list[corpus_tokens.Row]]:
    """Endless chunks of training rows, in an order that does not depend on the number of workers."""
    seeds = itertools.count(1_000 + options.seed * 1_000_000)
    if options.workers == 0:
        for seed in seeds:
            yield corpus_tokens.encode_rows(tokenizer, seed, _CHUNK)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        waiting: collections.deque[concurrent.futures.Future[list[corpus_tokens.Row]]] = collections.deque()
        try:
            while True:
                while len(waiting) < 2 * options.workers:
                    waiting.append(pool.submit(corpus_tokens.encode_rows, tokenizer, next(seeds), _CHUNK))
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _batches(tokenizer: bytes, options: TrainOptions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for number, rows in enumerate(_chunks(tokenizer, options)):
        yield from corpus_tokens.batches(rows, options.tokens_per_batch, options.seed + number)


def train(tokenizer: bytes, config: GemmaConfig, options: TrainOptions) -> tuple[Gemma, int]:
    """Trains a model from random parameters.

    Args:
      tokenizer: The bytes of the tokenizer's model file.
      config: The architecture.
      options: The run.

    Returns:
      The trained model, float32, and the number of steps taken.
    """
    params = Gemma.init(config, jax.random.key(options.seed)).params
    optimizer = _optimizer()
    state, step = optimizer.init(params), _make_step(config, optimizer, options.bfloat16)
    started = saved = time.monotonic()
    tokens = number = 0
    for number, (ids, kind) in enumerate(itertools.islice(_batches(tokenizer, options), options.steps), 1):
        rate = _rate(options, number, time.monotonic() - started)
        params, state, means = step(params, state, ids, kind, np.float32(rate))
        tokens += ids.size
        last = number == options.steps or rate == 0.0
        if number % options.report_every == 0 or last:
            prompt_loss, output_loss = np.asarray(means)
            seconds = time.monotonic() - started
            print(
                f"step {number}/{options.steps}  prompt {prompt_loss:.3f}  output {output_loss:.3f} nats/token  "
                f"{tokens / seconds:,.0f} tokens/s  {seconds:,.0f} s",
                flush=True,
            )
        if last:
            break
        if options.snapshot is not None and time.monotonic() - saved > options.snapshot_seconds:
            write_snapshot(Gemma(params, config), options.snapshot)
            saved = time.monotonic()
    if options.snapshot is not None:
        write_snapshot(Gemma(params, config), options.snapshot)
    return Gemma(params, config), number


def held_out_loss(decoder: Gemma, tokenizer: bytes, rows: int = 1000) -> tuple[float, float]:
    """Mean loss on held-out rows whose outputs are reference answers.

    Args:
      decoder: The model.
      tokenizer: The bytes of the tokenizer's model file.
      rows: Number of rows (a few are dropped when they are put together by length).

    Returns:
      Nats per prompt token and nats per output token.
    """
    text = corpus_tokens.encode_rows(tokenizer, _HELD_OUT_SEED, rows, held_out=True, chatty_share=0.0)
    measure = jax.jit(loss_sums)
    sums, counts = np.zeros(2), np.zeros(2)
    for ids, kind in corpus_tokens.batches(text, 2048, seed=0):
        more, number = measure(decoder, ids, kind)
        sums += np.asarray(more)
        counts += np.asarray(number)
    prompt, output = (sums / counts).tolist()
    return prompt, output


def write_snapshot(decoder: Gemma, path: pathlib.Path) -> None:
    """Writes the parameters as one `.npz` file, which replaces `path` only when complete."""
    draft = path.with_name(f".{path.stem}.draft.npz")
    arrays: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in layouts.flatten(decoder.params).items()}
    np.savez(draft, **arrays)
    os.replace(draft, path)


def read_snapshot(path: pathlib.Path, config: GemmaConfig) -> Gemma:
    """The model that `write_snapshot` wrote."""
    with np.load(path) as arrays:
        return Gemma(layouts.nest({name: jnp.asarray(arrays[name]) for name in arrays.files}), config)


def _publish(decoder: Gemma, tokenizer: bytes, folder: pathlib.Path, report: dict[str, Any]) -> None:
    """Writes tokenizer, bfloat16 checkpoint and the report of the run into `folder`, replacing older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(tokenizer)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    save(decoder.astype(jnp.bfloat16), folder / "checkpoint")
    (folder / "checkpoint" / "commit_success.txt").unlink(missing_ok=True)  # names a temporary folder; nobody reads it
    (folder / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """The command line; see `--help`."""
    defaults = TrainOptions()
    parser = argparse.ArgumentParser(prog="python -m tools.small_model.train_small", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for tokenizer, checkpoint and report")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--minutes", type=float, help="stop after this time, with the learning rate at its end")
    parser.add_argument("--tokens-per-batch", type=int, default=defaults.tokens_per_batch)
    parser.add_argument("--peak-rate", type=float, default=defaults.peak_rate)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--workers", type=int, default=0, help="processes that make text; 0: none beside this one")
    parser.add_argument("--bfloat16", action="store_true", help="compute in bfloat16, for accelerators")
    parser.add_argument("--snapshot", type=pathlib.Path, help=".npz file with the parameters so far")
    parser.add_argument("--from-snapshot", type=pathlib.Path, help="publish these parameters instead of training")
    options = parser.parse_args(arguments)

    config = small_config()
    tokenizer = corpus_tokens.train_tokenizer()
    run = TrainOptions(
        steps=options.steps,
        budget_seconds=options.minutes and 60 * options.minutes,
        tokens_per_batch=options.tokens_per_batch,
        peak_rate=options.peak_rate,
        seed=options.seed,
        workers=options.workers,
        bfloat16=options.bfloat16,
        snapshot=options.snapshot,
    )
    started = time.monotonic()
    report: dict[str, Any] = {}
    if options.from_snapshot is not None:
        decoder = read_snapshot(options.from_snapshot, config)
    else:
        decoder, steps = train(tokenizer, config, run)
        report = {"steps": steps, "seconds": round(time.monotonic() - started), "device": jax.devices()[0].device_kind}
        report |= {"budget_seconds": run.budget_seconds}
        report |= {"tokens_per_batch": run.tokens_per_batch, "peak_rate": run.peak_rate, "seed": run.seed}
    prompt_loss, output_loss = held_out_loss(decoder.astype(jnp.bfloat16), tokenizer)
    report |= {
        "parameters": decoder.num_parameters,
        "jax": jax.__version__,
        "held_out_nats_per_prompt_token": round(prompt_loss, 4),
        "held_out_nats_per_output_token": round(output_loss, 4),
    }
    print(json.dumps(report), f"perplexity of outputs {math.exp(output_loss):.3f}", flush=True)
    _publish(decoder, tokenizer, options.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
