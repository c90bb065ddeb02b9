"""The jitted loop on real vocabularies: every mask it used, over the whole vocabulary, against the independent byte oracle."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corpus.walk_patterns import REAL, TOY, WIDE
from oracles.byte_oracle import ByteOracle

import fsa_compile
import jax_decode
from jax_decode.step.state import Status

STEPS = 20


def bigram(vocab_size: int, seed: int) -> jax_decode.FunctionDecoder:
    """A random bigram model of low rank: its logits depend on the last token."""
    first, second = jax.random.split(jax.random.key(seed))
    params = (
        jax.random.normal(first, (vocab_size, 8), jnp.float32),
        jax.random.normal(second, (8, vocab_size), jnp.float32),
    )
    return jax_decode.FunctionDecoder(bigram_logits, params, lambda batch, length: jnp.zeros((batch,), jnp.int32), vocab_size)


def bigram_logits(params, tokens, cache, lengths):
    return params[0][tokens] @ params[1], cache + lengths


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["llama2", "llama3", "llama4", "gpt2"])
def test_generated_text_and_device_masks_equal_the_oracle(family: str, data_dir, exhaustive) -> None:
    vocabulary = fsa_compile.load_tokenizer(data_dir / "tokenizers" / family).vocabulary
    every = list(dict.fromkeys([*REAL, *WIDE, *TOY]))
    patterns = every[:160] if exhaustive else random.Random(family).sample(every, 4)
    decoder = bigram(vocabulary.size, 1)
    data, offset = vocabulary.packed
    for at in range(0, len(patterns), 8):
        chosen = patterns[at : at + 8]
        constraints = [fsa_compile.compile_regex(p, vocabulary) for p in chosen]
        tables = jax_decode.to_device(constraints)
        limits = [max(STEPS, c.shortest_completion) for c in constraints]
        out = jax_decode.generate(
            decoder,
            [[i] for i in range(len(chosen))],
            tables,
            key=jax.random.key(at),
            max_new_tokens=limits,
            sampler=jax_decode.Categorical(),
            num_samples=2,
        )
        check_rows(out, chosen, limits, vocabulary)
        check_masks(out, tables, chosen, vocabulary, data, offset)


def check_rows(out, patterns, limits, vocabulary) -> None:
    """Every row is complete, within its limit and accepted; its tokens were allowed one by one."""
    for row, (tokens, status) in enumerate(zip(out.tokens, out.status)):
        pattern = patterns[row // 2]
        oracle = ByteOracle(pattern)
        assert status == Status.ACCEPTED, (pattern, status)
        assert len(tokens) <= limits[row // 2]
        state = oracle.run(b"".join(vocabulary.tokens[t] for t in tokens))
        assert state, pattern
        assert oracle.accepting(state), pattern


def check_masks(out, tables, patterns, vocabulary, data, offset) -> None:
    """The device's mask before every generated token, over the whole vocabulary, without a limit."""
    which = jnp.asarray(np.repeat(np.arange(len(patterns)), 2), jnp.int32)
    see, follow = jax.jit(jax_decode.mask), jax.jit(jax_decode.advance)
    state = jax_decode.init_state(tables, which, 1 << 20)
    oracles = [ByteOracle(p) for p in patterns]
    at = [oracles[row // 2].start for row in range(len(which))]
    reached: dict[tuple[int, int], np.ndarray] = {}
    for step in range(max(len(t) for t in out.tokens)):
        mask = np.asarray(see(tables, state))
        taken = np.full(len(which), -1, np.int32)
        for row, tokens in enumerate(out.tokens):
            if step >= len(tokens):
                continue
            oracle, key = oracles[row // 2], (row // 2, at[row])
            if key not in reached:
                reached[key] = oracle.run_tokens(at[row], data, offset)
                expected = reached[key] > 0
                expected[list(vocabulary.stop_ids)] = oracle.accepting(at[row])
                wrong = np.flatnonzero(expected != mask[row])
                assert not len(wrong), (patterns[row // 2], step, wrong[:5])
            taken[row] = tokens[step]
            at[row] = int(reached[key][tokens[step]])
        state = follow(tables, state, jnp.asarray(taken))
