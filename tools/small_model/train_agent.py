"""Trains the small agent of the repository: `python -m tools.small_model.train_agent --out models/small_agent`.

One responsibility: its rows. The network begins with the small model's parameters and embeddings for the special tokens
of two protocols; every turn of the assistant is a row behind the prompt that the shipped template writes.
"""

import dataclasses
import random
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import models
from fsa_compile.prompts.chat_jinja import render_jinja
from models.gemma import Gemma
from models.small_agent import PROTOCOLS
from tools.small_model import agent_corpus, corpus_tokens, train_further

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


def begun(seed: int) -> Gemma:
    """The small model with embeddings for more tokens, near the mean of the others."""
    small = models.load_small()
    table = small.params["embedder"]["input_embedding"]
    noise = jax.random.normal(jax.random.key(seed), (_WIDTH - len(table), table.shape[1])) * table.std(0) * 0.5
    params = {**small.params, "embedder": {"input_embedding": jnp.concatenate([table, table.mean(0) + noise])}}
    return Gemma(params, dataclasses.replace(small.config, vocab_size=_WIDTH))


def main(arguments: list[str] | None = None) -> int:
    """The command line; see `--help`."""
    out = train_further.main("train_agent", (__doc__ or "").split("\n")[0], begun, rows, arguments)
    (out / "tokenizer.model").write_bytes(tokenizer())
    return 0


if __name__ == "__main__":
    sys.exit(main())
