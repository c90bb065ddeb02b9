"""Trains the small denoiser of the repository: `python -m tools.small_model.train_diffusion --out models/small_diffusion`.

One responsibility: the training run. The network is the small model's with attention to both sides, and begins with its
parameters; it learns to fill in what is masked of a canvas behind a prompt, block by block or all of it.

Source: masked diffusion as in Sahoo et al. 2024 (arXiv 2406.07524): a share t of the canvas is masked, and the losses of the
masked positions are divided by t; blocks as in Arriola et al. 2025 (arXiv 2503.09573).
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import models
from models.checkpoint import save
from models.denoiser import BLOCK, CANVAS, MASK_ID, PROMPT, Denoiser
from models.gemma import Gemma
from tools.small_model import corpus_tokens
from tools.small_model.train_small import _optimizer

_CHUNK = 4_000


def canvases(tokenizer: bytes, seed: int, batch: int, *, held_out: bool = False) -> Iterator[np.ndarray]:
    """Endless batches of prompt and canvas, int32[batch, PROMPT + CANVAS]; what does not fit is left out."""
    rng, kept = np.random.default_rng(seed), list[np.ndarray]()
    for number in itertools.count():
        chatty = {"chatty_share": 0.0} if held_out else {}
        for row in corpus_tokens.encode_rows(tokenizer, seed + number, _CHUNK, held_out=held_out, **chatty):
            prompt, output = row.ids[~row.is_output], row.ids[row.is_output]
            chained = bool(np.any(np.diff(row.is_output.astype(int)) < 0))
            if chained or len(prompt) > PROMPT or len(output) > CANVAS or output[-1] != corpus_tokens.EOS:
                continue
            ids = np.full(PROMPT + CANVAS, corpus_tokens.PAD, np.int32)
            ids[PROMPT - len(prompt) : PROMPT] = prompt
            ids[PROMPT:] = corpus_tokens.EOS
            ids[PROMPT : PROMPT + len(output)] = output
            kept.append(ids)
        order = rng.permutation(len(kept))
        for at in range(0, len(kept) - batch + 1, batch):
            yield np.stack([kept[i] for i in order[at : at + batch]])
        kept = []


def loss(params: Any, config: Any, ids: jax.Array, key: jax.Array) -> jax.Array:
    """The mean loss of masked tokens, each divided by the share that was masked. Nats."""
    rows = len(ids)
    share, block, place, chosen = jax.random.split(key, 4)
    t = jax.random.uniform(share, (rows, 1), minval=0.05, maxval=1.0)
    first = jax.random.randint(block, (rows, 1), 0, CANVAS // BLOCK) * BLOCK
    whole = jax.random.bernoulli(chosen, 0.4, (rows, 1))
    at = jnp.arange(CANVAS)[None, :]
    inside = whole | ((at >= first) & (at < first + BLOCK))
    behind = ~whole & (at >= first + BLOCK)
    hidden = inside & (jax.random.uniform(place, (rows, CANVAS)) < t)
    canvas = jnp.where(hidden | behind, MASK_ID, ids[:, PROMPT:])
    tokens = jnp.concatenate([ids[:, :PROMPT], canvas], 1)
    logits = Gemma(params, config).forward(tokens)[:, PROMPT:]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, PROMPT:])
    return (losses * hidden / t).sum() / inside.sum()


def train(tokenizer: bytes, minutes: float, batch: int, peak: float, seed: int) -> tuple[Denoiser, dict[str, Any]]:
    """The model after a time, and a report of the run."""
    small = models.load_small()
    config = dataclasses.replace(small.config, bidirectional=True)
    params, optimizer = small.params, _optimizer()
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, ids: jax.Array, key: jax.Array, rate: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, config, ids, key)
        updates, state = optimizer.update(grads, state, params)
        return jax.tree.map(lambda leaf, update: leaf - rate * update, params, updates), state, value

    started, mean = time.monotonic(), 0.0
    for number, ids in enumerate(canvases(tokenizer, 7_000_000 + seed, batch), 1):
        progress = min((time.monotonic() - started) / (60 * minutes), 1.0)
        rate = peak * min(number / 100, 1.0) * 0.5 * (1 + math.cos(math.pi * progress))
        params, state, value = step(params, state, ids, jax.random.fold_in(jax.random.key(seed), number), np.float32(rate))
        mean += 0.02 * (float(value) - mean) if number > 1 else float(value)
        if number % 50 == 0 or progress == 1.0:
            print(f"step {number}  {mean:.3f} nats/token  {time.monotonic() - started:,.0f} s", flush=True)
        if progress == 1.0:
            break
    of_held_out = jax.jit(lambda params, ids, key: loss(params, config, ids, key))
    held = [
        float(of_held_out(params, ids, jax.random.key(i)))
        for i, ids in enumerate(itertools.islice(canvases(tokenizer, 90_001, batch, held_out=True), 10))
    ]
    report: dict[str, Any] = {"steps": number, "seconds": round(time.monotonic() - started), "rows_per_batch": batch}
    report |= {"peak_rate": peak, "seed": seed}
    report |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    report |= {"held_out_nats_per_token": round(float(np.mean(held)), 4)}
    return Denoiser(Gemma(params, config, small.vocabulary_fingerprint)), report


def main(arguments: list[str] | None = None) -> int:
    """The command line; see `--help`."""
    description = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.small_model.train_diffusion", description=description)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for checkpoint and report")
    parser.add_argument("--minutes", type=float, default=25, help="how long to train")
    parser.add_argument("--batch", type=int, default=32, help="rows per step")
    parser.add_argument("--peak-rate", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tokenizer = models.small_tokenizer_path().read_bytes()
    denoiser, report = train(tokenizer, options.minutes, options.batch, options.peak_rate, options.seed)
    print(json.dumps(report), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(options.out / "checkpoint", ignore_errors=True)
    save(denoiser.model.astype(jnp.bfloat16), options.out / "checkpoint")
    (options.out / "checkpoint" / "commit_success.txt").unlink(missing_ok=True)  # names a temporary folder; nobody reads it
    (options.out / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
