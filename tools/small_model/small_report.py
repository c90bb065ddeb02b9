"""Measures the small model on held-out prompts, without any constraint: `python -m tools.small_model.small_report`.

One responsibility: what the model does by itself. For each domain of `tools.small_model.corpus`: the share of outputs in the
domain's form, sampled and greedy, and the share of fields that are right when the output is greedy. Figures with a
constraint need the decoding half of the project and are not made here.
"""

import argparse
import functools
import json
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sentencepiece

from models.gemma import Gemma
from models.small_model import load_small, small_tokenizer_path
from tools.small_model import corpus, corpus_tokens
from tools.small_model.train_small import held_out_loss

_STOPS = (corpus_tokens.EOS, corpus_tokens.END_OF_TURN)


@functools.partial(jax.jit, static_argnames="new_tokens")
def _roll_out(
    decoder: Gemma, tokens: jax.Array, lengths: jax.Array, key: jax.Array, temperature: jax.Array, new_tokens: int
) -> jax.Array:
    """int32[T, B]: the tokens that follow the prompts, past a stop token too."""
    cache = decoder.init_cache(tokens.shape[0], tokens.shape[1] + new_tokens)
    logits, cache = decoder.apply(tokens, cache, lengths, last_only=True)

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        logits, cache = carry
        hot = jax.random.categorical(key, logits[:, 0] / jnp.maximum(temperature, 1e-6))
        chosen = jnp.where(temperature > 0, hot, jnp.argmax(logits[:, 0], axis=-1)).astype(jnp.int32)
        return decoder.apply(chosen[:, None], cache, jnp.ones_like(lengths)), chosen

    return jax.lax.scan(step, (logits, cache), jax.random.split(key, new_tokens))[1]


def continue_prompts(
    decoder: Gemma, prompts: list[str], *, new_tokens: int = 160, temperature: float = 0.0, seed: int = 0, width: int = 128
) -> list[str | None]:
    """What the model writes after each prompt, without a constraint.

    Args:
      decoder: The small model.
      prompts: Prompts in the format of `tools.small_model.corpus`.
      new_tokens: Most tokens to write.
      temperature: Of sampling; 0 takes the likeliest token.
      seed: Of sampling.
      width: Tokens to which prompts are padded; calls of one width and number of prompts share a compilation.

    Returns:
      One text per prompt, without its end marker; None where no end came within `new_tokens`.

    Raises:
      ValueError: A prompt is longer than `width`.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(small_tokenizer_path()))
    rows = [[corpus_tokens.BOS, *processor.encode(prompt)] for prompt in prompts]
    if max(map(len, rows)) > width:
        raise ValueError(f"a prompt has {max(map(len, rows))} tokens, more than width={width}; pass a larger width")
    tokens = np.zeros((len(rows), width), np.int32)
    for at, row in enumerate(rows):
        tokens[at, : len(row)] = row
    lengths = np.array([len(row) for row in rows], np.int32)
    written = np.asarray(
        _roll_out(decoder, tokens, lengths, jax.random.key(seed), np.float32(temperature), new_tokens=new_tokens)
    ).T
    return [_until_stop(processor, row.tolist()) for row in written]


def _until_stop(processor: sentencepiece.SentencePieceProcessor, ids: list[int]) -> str | None:
    ends = [ids.index(stop) for stop in _STOPS if stop in ids]
    return processor.decode(ids[: min(ends)]) if ends else None


def field_score(domain: str, text: str | None, answer: str) -> tuple[int, int]:
    """How many fields of the reference answer the text has right, and how many there are."""
    wanted = corpus.parse_fields(domain, answer) or {}
    found = (corpus.parse_fields(domain, text) if text is not None else None) or {}
    return sum(found.get(key) == value for key, value in wanted.items()), len(wanted)


def _in_form(pattern: str, texts: list[str | None]) -> float:
    return float(np.mean([text is not None and re.fullmatch(pattern, text) is not None for text in texts]))


def report(decoder: Gemma, prompts: int = 100) -> dict[str, Any]:
    """Figures of every domain.

    Args:
      decoder: The small model.
      prompts: Held-out prompts per domain.

    Returns:
      Domain to a dict of shares: `greedy_in_form`, `sampled_in_form` (temperature 1), `fields_right` (greedy, an
      output out of form counts as wrong) and `answers_right` (greedy, all fields).
    """
    figures = {}
    for task in corpus.CONFORMANCE_TASKS:
        examples = task.examples(prompts)
        asked = [example.prompt for example in examples]
        greedy = continue_prompts(decoder, asked)
        sampled = continue_prompts(decoder, asked, temperature=1.0)
        scores = [field_score(task.name, text, example.answer) for text, example in zip(greedy, examples)]
        right, total = (sum(column) for column in zip(*scores))
        figures[task.name] = {
            "greedy_in_form": _in_form(task.pattern, greedy),
            "sampled_in_form": _in_form(task.pattern, sampled),
            "fields_right": round(right / total, 4),
            "answers_right": float(np.mean([right == total for right, total in scores])),
        }
    return figures


def main(arguments: list[str] | None = None) -> int:
    """The command line; prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tools.small_model.small_report", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--prompts", type=int, default=100, help="held-out prompts per domain")
    options = parser.parse_args(arguments)
    decoder = load_small()
    prompt_loss, output_loss = held_out_loss(decoder, small_tokenizer_path().read_bytes())
    losses = {"nats_per_prompt_token": round(prompt_loss, 4), "nats_per_output_token": round(output_loss, 4)}
    figures = {"parameters": decoder.num_parameters, "held_out": losses, "domains": report(decoder, options.prompts)}
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
