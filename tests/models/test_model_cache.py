"""The decoder boundary: cached = full, block of k = k steps past the window, per-row rewind, ragged rows, one trace."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config import Attention
from models.errors import ModelError
from models.gemma import Gemma
from models.kv_cache import KVCache
from models.tiny import VARIANTS, tiny_config, tiny_gemma

LENGTH = 30  # well past the tiny models' window of 8
CAPACITY = LENGTH + 2
TOLERANCE = 2e-5

apply = jax.jit(Gemma.apply, static_argnames="last_only")
_forward = jax.jit(Gemma.forward)


@pytest.fixture(scope="module", params=VARIANTS)
def decoder(request: pytest.FixtureRequest) -> Gemma:
    return tiny_gemma(3, request.param)


def random_tokens(batch: int, length: int = LENGTH, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 64, (batch, length), dtype=np.int32)


def forward(decoder: Gemma, tokens: np.ndarray) -> np.ndarray:
    """Logits of the full forward, each row on its own, padded at the end so that all tests share one compilation."""
    width = tokens.shape[1]
    assert width <= LENGTH + 5
    rows = [_forward(decoder, np.pad(row, (0, LENGTH + 5 - width))[None]) for row in tokens]
    return np.concatenate(rows)[:, :width]


def feed(decoder: Gemma, tokens: np.ndarray, block: int) -> tuple[np.ndarray, KVCache]:
    """Logits of all positions, fed in blocks of `block` (the last one padded)."""
    batch, length = tokens.shape
    cache, out = decoder.init_cache(batch, CAPACITY), []
    for start in range(0, length, block):
        real = min(block, length - start)
        padded = np.pad(tokens[:, start : start + real], ((0, 0), (0, block - real)), constant_values=7)
        logits, cache = apply(decoder, padded, cache, jnp.full(batch, real))
        out.append(logits[:, :real])
    return np.concatenate(out, axis=1), cache


def test_a_forward_that_skips_positions_is_the_rest_of_the_full_one(decoder: Gemma) -> None:
    tokens = random_tokens(2)
    rest = jax.jit(functools.partial(Gemma.forward, skip=9))(decoder, tokens)
    assert rest.shape[1] == LENGTH - 9
    np.testing.assert_allclose(rest, forward(decoder, tokens)[:, 9:], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("block", [1, 4, LENGTH])
def test_blocks_of_any_size_equal_the_full_forward(decoder: Gemma, block: int) -> None:
    tokens = random_tokens(2)
    logits, cache = feed(decoder, tokens, block)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, forward(decoder, tokens), atol=TOLERANCE, rtol=0)
    np.testing.assert_array_equal(cache.n, [LENGTH, LENGTH])


def test_a_draft_block_past_the_window_equals_single_steps(decoder: Gemma) -> None:
    tokens = random_tokens(2, LENGTH)
    _, cache = feed(decoder, tokens[:, :20], 4)
    together, _ = apply(decoder, tokens[:, 20:24], cache, jnp.array([4, 4]))
    for i in range(4):
        alone, cache = apply(decoder, tokens[:, 20 + i : 21 + i], cache, jnp.array([1, 1]))
        np.testing.assert_allclose(alone[:, 0], together[:, i], atol=TOLERANCE, rtol=0)


def test_rewind_by_different_amounts_equals_a_fresh_forward(decoder: Gemma) -> None:
    tokens, new = random_tokens(2), random_tokens(2, 4, seed=1)
    _, full = feed(decoder, tokens, LENGTH)
    for kept in ([25, 12], [LENGTH + 5, 0]):
        cache = decoder.rewind(full, jnp.array(kept))
        np.testing.assert_array_equal(cache.n, np.minimum(kept, LENGTH))
        logits, _ = apply(decoder, new, cache, jnp.array([2, 2]))
        for row, n in enumerate(np.minimum(kept, LENGTH)):
            fresh = np.concatenate([tokens[row, :n], new[row, :2]])[None]
            np.testing.assert_allclose(logits[row, :2], forward(decoder, fresh)[0, -2:], atol=TOLERANCE, rtol=0)


def test_ragged_rows_equal_separate_rows(decoder: Gemma) -> None:
    tokens = random_tokens(2)
    for lengths, more in (([14, 1], [2, 4]), ([9, 25], [3, 1])):
        empty = decoder.init_cache(2, CAPACITY)
        logits, cache = apply(decoder, tokens, empty, jnp.array(lengths))
        last, _ = apply(decoder, tokens, empty, jnp.array(lengths), last_only=True)
        then, cache = apply(decoder, tokens[:, :4], cache, jnp.array(more))
        assert last.shape == (2, 1, 64)
        for row, (n, m) in enumerate(zip(lengths, more)):
            longer = np.concatenate([tokens[row, :n], tokens[row, :m]])[None]
            alone = forward(decoder, longer)[0]
            np.testing.assert_allclose(logits[row, :n], alone[:n], atol=TOLERANCE, rtol=0)
            np.testing.assert_allclose(last[row, 0], alone[n - 1], atol=TOLERANCE, rtol=0)
            np.testing.assert_allclose(then[row, :m], alone[n:], atol=TOLERANCE, rtol=0)
        np.testing.assert_array_equal(cache.n, np.add(lengths, more))


def test_an_idle_row_keeps_its_cache_to_the_bit() -> None:
    decoder, tokens = tiny_gemma(3), random_tokens(2, 4)
    _, before = apply(decoder, tokens, decoder.init_cache(2, CAPACITY), jnp.array([4, 4]))
    _, after = apply(decoder, tokens, before, jnp.array([0, 2]))
    for old, new in zip(before.keys + before.values, after.keys + after.values):
        np.testing.assert_array_equal(old[0], new[0])
        assert (np.asarray(old[1]) != np.asarray(new[1])).any()
    np.testing.assert_array_equal(after.n, [4, 6])


def test_padding_at_the_end_of_a_full_cache_overwrites_nothing() -> None:
    decoder, tokens = tiny_gemma(3), random_tokens(1, 8)
    _, cache = apply(decoder, tokens[:, :7], decoder.init_cache(1, 8), jnp.array([7]))
    logits, cache = apply(decoder, np.pad(tokens[:, 7:], ((0, 0), (0, 5))), cache, jnp.array([1]))
    np.testing.assert_allclose(logits[:, 0], forward(decoder, tokens)[:, 7], atol=TOLERANCE, rtol=0)
    np.testing.assert_array_equal(cache.n, [8])


def test_only_the_window_is_seen() -> None:
    """One local layer: a token at distance 7 of a window of 8 changes the logits, one at distance 8 does not."""
    config = dataclasses.replace(tiny_config("gemma3"), num_layers=1, attention_pattern=(Attention.LOCAL,))
    decoder = Gemma.init(config, jax.random.key(0))
    tokens = random_tokens(1, 20)
    changed = tokens.copy()
    changed[0, 5] = (changed[0, 5] + 1) % 64
    one, two = (np.asarray(forward(decoder, t))[0] for t in (tokens, changed))
    differs = (one != two).any(axis=-1)
    assert differs[5:13].all()
    assert not differs[:5].any()
    assert not differs[13:].any()


@pytest.mark.parametrize("variant", ["gemma1-mha", "gemma3"])
def test_bfloat16_is_near_float32(variant: str) -> None:
    decoder = tiny_gemma(3, variant)
    half = decoder.astype(jnp.bfloat16)
    tokens = random_tokens(2, 12)
    exact = np.asarray(forward(decoder, tokens))
    logits, cache = apply(half, tokens, half.init_cache(2, 16), jnp.array([12, 12]))
    step, cache = apply(half, tokens[:, :1], cache, jnp.array([1, 1]))
    assert logits.dtype == step.dtype == jnp.float32
    assert cache.keys[0].dtype == jnp.bfloat16
    assert np.abs(logits - exact).max() < 0.15 * np.abs(exact).max()


def test_a_greedy_loop_compiles_once_for_all_parameters() -> None:
    traces = 0

    @jax.jit
    def greedy(decoder: Gemma, prompt: jax.Array) -> jax.Array:
        nonlocal traces
        traces += 1
        logits, cache = decoder.apply(prompt, decoder.init_cache(2, 16), jnp.array([4, 4]), last_only=True)

        def step(carry: tuple, _: None) -> tuple:
            token, cache = carry
            logits, cache = decoder.apply(token, cache, jnp.ones(2, jnp.int32))
            token = jnp.argmax(logits[:, -1:], axis=-1).astype(jnp.int32)
            return (token, cache), token[:, 0]

        first = jnp.argmax(logits[:, -1:], axis=-1).astype(jnp.int32)
        _, tokens = jax.lax.scan(step, (first, cache), None, length=8)
        return jnp.concatenate([first, tokens.T], axis=1)

    prompt = random_tokens(2, 4)
    for seed in range(3):
        decoder = tiny_gemma(seed)
        text = prompt
        for _ in range(9):
            text = np.concatenate([text, np.argmax(forward(decoder, text)[:, -1:], axis=-1)], axis=1)
        np.testing.assert_array_equal(greedy(decoder, prompt), text[:, 4:])
    assert traces == 1


def test_inside_a_while_loop_with_a_donated_cache() -> None:
    decoder, tokens = tiny_gemma(0), random_tokens(2, 10)

    def run(decoder: Gemma, tokens: jax.Array, cache: KVCache) -> tuple[jax.Array, KVCache]:
        def body(carry: tuple) -> tuple:
            i, cache, _ = carry
            token = jax.lax.dynamic_slice_in_dim(tokens, i, 1, axis=1)
            logits, cache = decoder.apply(token, cache, jnp.ones(2, jnp.int32))
            return i + 1, cache, logits

        start = (0, cache, jnp.zeros((2, 1, 64)))
        _, cache, logits = jax.lax.while_loop(lambda carry: carry[0] < tokens.shape[1], body, start)
        return logits, cache

    logits, cache = jax.jit(run, donate_argnums=2)(decoder, tokens, decoder.init_cache(2, 12))
    np.testing.assert_allclose(logits[:, 0], forward(decoder, tokens)[:, -1], atol=TOLERANCE, rtol=0)
    np.testing.assert_array_equal(cache.n, [10, 10])


def test_shapes_that_do_not_go_together() -> None:
    decoder = tiny_gemma(0)
    cache = decoder.init_cache(2, 8)
    for tokens, lengths in [((3, 4), (3,)), ((2, 4), (3,)), ((2,), (2,))]:
        with pytest.raises(ModelError, match="does not fit a cache of 2 rows"):
            decoder.apply(jnp.zeros(tokens, jnp.int32), cache, jnp.zeros(lengths, jnp.int32))


def test_gradients_flow_through_the_full_forward() -> None:
    decoder, tokens = tiny_gemma(0), random_tokens(2, 10)
    gradient = jax.jit(jax.grad(lambda d: jnp.mean(jax.nn.logsumexp(d.forward(tokens), axis=-1))))(decoder)
    assert all(np.isfinite(leaf).all() and (leaf != 0).any() for leaf in jax.tree.leaves(gradient))
