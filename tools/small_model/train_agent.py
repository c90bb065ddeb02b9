"""Trains the small agent of the repository: `python -m tools.small_model.train_agent --out models/small_agent`.

One responsibility: the training run. The network begins with the small model's parameters and embeddings for the special tokens
of two protocols; every turn of the assistant is a row behind the prompt that the shipped template writes.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import random
import re
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import models
from fsa_compile.prompts.chat_jinja import render_jinja
from models.checkpoint import save
from models.gemma import Gemma
from models.small_agent import PROTOCOLS
from tools.small_model import agent_corpus, corpus_tokens
from tools.small_model.train_small import TrainOptions, _make_step, _optimizer, _rate, loss_sums

_CHUNK = 4_000
_LONGEST = 256
_WIDTH = 2176
_NAMES = (
    "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_response>",
    "<tool_response|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>",
)  # fmt: skip


def tokenizer() -> bytes:
    """The small model's tokenizer with control pieces behind its own: special tokens of the protocols, and unused ones.

    A SentencePiece model is a message of protocol buffers, whose field 1 is repeated: more of it may follow at the end.
    """
    names = [*_NAMES, *(f"<unused{number}>" for number in range(_WIDTH - corpus_tokens.VOCABULARY_SIZE - len(_NAMES)))]
    out = models.small_tokenizer_path().read_bytes()
    for name in names:
        text = name.encode()
        # Its text, its score 0, its type: control.
        piece = bytes([0x0A, len(text)]) + text + b"\x15" + bytes(4) + b"\x18\x03"
        out += bytes([0x0A, len(piece)]) + piece
    return out


def rows(seed: int, count: int, *, held_out: bool = False) -> list[corpus_tokens.Row]:
    """Turns behind their prompts, in both protocols."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer())
    special = {processor.id_to_piece(token): token for token in range(processor.get_piece_size()) if processor.is_control(token)}
    marks = re.compile("(" + "|".join(map(re.escape, sorted(special, key=len, reverse=True))) + ")")
    templates = {name: models.small_agent_template(name) for name in PROTOCOLS}
    rng, out = random.Random(f"agent/{seed}"), list[corpus_tokens.Row]()

    def encoded(text: str) -> list[int]:
        parts = marks.split(text)
        return [token for part in parts for token in ([special[part]] if part in special else processor.encode(part))]

    while len(out) < count:
        protocol = rng.choice(PROTOCOLS)
        asked, turns = agent_corpus.conversation(rng, held_out)
        tools = [{"function": {"name": name}} for name in rng.sample(agent_corpus.TOOLS, len(agent_corpus.TOOLS))]
        messages: list[dict[str, Any]] = [{"role": "user", "content": asked}]
        for turn in turns:
            variables = {"messages": messages, "tools": tools, "add_generation_prompt": True}
            prompt, output = encoded(render_jinja(templates[protocol], variables)), encoded(turn.written(protocol))
            if len(prompt) + len(output) <= _LONGEST:
                ids = np.array(prompt + output, np.int16)
                out.append(corpus_tokens.Row(ids, np.arange(len(ids)) >= len(prompt)))
            messages = [*messages, *turn.messages]
    return out


def _batches(options: TrainOptions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for number in itertools.count():
        yield from corpus_tokens.batches(rows(1_000 + number, _CHUNK), options.tokens_per_batch, options.seed + number)


def begun(seed: int) -> Gemma:
    """The small model with embeddings for more tokens, near the mean of the others."""
    small = models.load_small()
    table = small.params["embedder"]["input_embedding"]
    noise = jax.random.normal(jax.random.key(seed), (_WIDTH - len(table), table.shape[1])) * table.std(0) * 0.5
    params = {**small.params, "embedder": {"input_embedding": jnp.concatenate([table, table.mean(0) + noise])}}
    return Gemma(params, dataclasses.replace(small.config, vocab_size=_WIDTH))


def train(options: TrainOptions) -> tuple[Gemma, int]:
    """The model after a time, and how many steps it took."""
    assert options.budget_seconds is not None
    model, optimizer = begun(options.seed), _optimizer()
    params, config = model.params, model.config
    state, step = optimizer.init(params), _make_step(config, optimizer, options.bfloat16)
    started = time.monotonic()
    for number, (ids, kind) in enumerate(_batches(options), 1):
        seconds = time.monotonic() - started
        params, state, means = step(params, state, ids, kind, np.float32(_rate(options, number, seconds)))
        if number % 20 == 0:
            print(f"step {number}  output {float(means[1]):.3f} nats/token  {seconds:,.0f} s", flush=True)
        if seconds >= options.budget_seconds:
            break
    return Gemma(params, config), number


def main(arguments: list[str] | None = None) -> int:
    """The command line; see `--help`."""
    parser = argparse.ArgumentParser(prog="python -m tools.small_model.train_agent", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for checkpoint and report")
    parser.add_argument("--minutes", type=float, default=15, help="how long to train")
    parser.add_argument("--tokens-per-batch", type=int, default=2048)
    parser.add_argument("--peak-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    options = TrainOptions(
        steps=1_000_000, budget_seconds=60 * given.minutes, tokens_per_batch=given.tokens_per_batch, peak_rate=given.peak_rate,
        seed=given.seed,
    )
    started = time.monotonic()
    model, steps = train(options)
    report: dict[str, Any] = {"steps": steps, "seconds": round(time.monotonic() - started), "peak_rate": given.peak_rate}
    report |= {"seed": given.seed, "device": jax.devices()[0].device_kind, "jax": jax.__version__}
    measure, sums, counts = jax.jit(loss_sums), np.zeros(2), np.zeros(2)
    for ids, kind in corpus_tokens.batches(rows(90_001, 1_000, held_out=True), 2048, seed=0):
        more, number = measure(model, ids, kind)
        sums, counts = sums + np.asarray(more), counts + np.asarray(number)
    report["held_out_nats_per_output_token"] = round(float(sums[1] / counts[1]), 4)
    print(json.dumps(report), flush=True)
    (given.out / "tokenizer.model").write_bytes(tokenizer())
    shutil.rmtree(given.out / "checkpoint", ignore_errors=True)
    save(model.astype(jnp.bfloat16), given.out / "checkpoint")
    (given.out / "checkpoint" / "commit_success.txt").unlink(missing_ok=True)  # names a temporary folder; nobody reads it
    (given.out / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
