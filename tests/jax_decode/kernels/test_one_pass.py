"""The kernels for TPUs and GPUs, run by Pallas's interpreter: the same best tokens, draws and sums as XLA's form, and as NumPy says."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_decode.kernels import one_pass
from jax_decode.kernels.noise import key_words
from jax_decode.kernels.planes import NEVER, allowed_logits, column_max, planes
from jax_decode.kernels.row_layout import pack_planes, words_for
from jax_decode.sampling.samplers import Categorical, TopK
from jax_decode.sampling.sampling import sample
from jax_decode.sampling.summary import Noise, Rows, _fused, in_one_pass, in_one_pass_of_gpu

KERNELS = [in_one_pass, in_one_pass_of_gpu]
SHAPES = [(9, 5000, jnp.float32), (1, 130, jnp.float32), (17, 4096, jnp.bfloat16)]
"""Rows that fill no block, words that fill no block, planes that are missing or cut off."""


def example(batch, width, dtype, seed=0):
    """Logits with NaN and infinities, and a random mask, as booleans and as words."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(batch, width)).astype(np.float32) * 5
    for row, value in zip(rng.integers(0, batch, 4), (np.nan, np.inf, -np.inf, 1e38)):
        logits[row, rng.integers(width)] = value
    allowed = rng.random((batch, width)) < rng.choice([0.001, 0.3, 0.9], (batch, 1))
    bits = np.packbits(np.pad(allowed, ((0, 0), (0, -width % 32))), axis=1, bitorder="little").view(np.uint32)
    return jnp.asarray(logits, dtype), allowed, jnp.asarray(pack_planes(bits, words_for(width)))


def jitted(kernel):
    return jax.jit(kernel, static_argnums=(0, 1), static_argnames="interpret")


def noise_of(batch):
    rng = np.random.default_rng(1)
    key = rng.integers(0, 2**32, (batch, 2), dtype=np.uint64).astype(np.uint32)
    return Noise(jnp.asarray(key), jnp.arange(batch, dtype=jnp.uint32))


@pytest.mark.sampled(6, every=("kernel", "masked", "width"))
@pytest.mark.parametrize(("batch", "width", "dtype"), SHAPES)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
def test_best_token_and_sums_are_numpys(kernel, batch, width, dtype, masked):
    logits, allowed, words = example(batch, width, dtype)
    got = jitted(kernel)(words_for(width), True, logits, words if masked else None, Rows(), interpret=True)
    x = np.asarray(logits.astype(jnp.float32))
    x = np.clip(np.where(np.isnan(x), -3e38, x), -3e38, 3e38)
    inside = np.where(allowed, x, -np.inf) if masked else x
    some = np.isfinite(inside).any(1)
    np.testing.assert_array_equal(np.asarray(got.score), inside.max(1))
    np.testing.assert_array_equal(np.asarray(got.item)[some], inside.argmax(1)[some])
    np.testing.assert_allclose(got.allowed, np.logaddexp.reduce(inside.astype(np.float64), axis=1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.raw, np.logaddexp.reduce(x.astype(np.float64), axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(6, every=("kernel", "inverse", "width"))
@pytest.mark.parametrize(("batch", "width", "dtype"), SHAPES)
@pytest.mark.parametrize(("inverse", "threshold", "with_raw"), [(None, None, True), (1.7, 1.0, False)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_are_those_of_the_other_form(kernel, batch, width, dtype, inverse, threshold, with_raw):
    logits, _, words = example(batch, width, dtype)
    inverse = None if inverse is None else jnp.float32(inverse)
    threshold = None if threshold is None else jnp.full(batch, threshold, jnp.float32)
    arguments = (words_for(width), with_raw, logits, words, Rows(noise_of(batch), inverse, threshold))
    got, want = jitted(kernel)(*arguments, interpret=True), jax.jit(_fused, static_argnums=(0, 1))(*arguments)
    some = np.asarray(want.score) > NEVER
    np.testing.assert_array_equal(np.asarray(got.item)[some], np.asarray(want.item)[some])
    for mine, other in zip(got, want):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_unions_of_bit_rows_are_read_where_they_lie(kernel):
    """A kernel takes the rows of a table as it takes their union."""
    logits, _, rows = example(9, 5000, jnp.float32)
    of_each = jnp.asarray(np.random.default_rng(2).integers(0, 9, (9, 3)), jnp.int32)
    words = rows[of_each[:, 0]] | rows[of_each[:, 1]] | rows[of_each[:, 2]]
    arguments = (words_for(5000), True, logits, words, Rows(noise_of(9)))
    got = jitted(kernel)(*arguments, union=(rows, of_each), interpret=True)
    for mine, other in zip(got, jitted(kernel)(*arguments, interpret=True)):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("batch", "width", "dtype"), SHAPES)
def test_columns_are_mapped(batch, width, dtype):
    logits, _, words = example(batch, width, dtype)
    num_words = words_for(width)
    best = lambda parts, _: column_max(allowed_logits(parts))  # noqa: E731
    got = one_pass.mapped(best, one_pass.Read(logits, words, num_words), interpret=True)
    np.testing.assert_array_equal(got, column_max(allowed_logits(planes(logits, words, num_words))))


@pytest.mark.parametrize("kernel", KERNELS)
def test_logits_past_the_last_plane_belong_to_no_token(kernel):
    """A model's padded output is wider than its vocabulary: it counts in the sum over all logits, and is never chosen."""
    logits, _, words = example(2, 4000, jnp.float32)
    wide = jnp.concatenate([logits, jnp.full((2, 1000), 50.0)], 1)
    got = jitted(kernel)(words_for(4000), True, wide, words, Rows(), interpret=True)
    want = jitted(kernel)(words_for(4000), True, logits, words, Rows(), interpret=True)
    np.testing.assert_array_equal(got.item, want.item)
    np.testing.assert_array_equal(got.allowed, want.allowed)
    assert (np.asarray(got.raw) >= 50 + np.log(1000) - 1e-3).all()


def test_programs_for_a_tpu_use_it_when_asked(monkeypatch):
    """Lowered for a TPU on this machine, whose compiler need not be here."""
    logits, keys, step = jnp.zeros((2, 32_768)), key_words(jax.random.split(jax.random.key(0), 2)), jnp.zeros(2, jnp.uint32)
    for sampler, kernels in ((Categorical(None), 1), (TopK(5, None), 4)):  # a pass and three that follow
        for choice, want in (("pallas", kernels), ("xla", 0), ("auto", 0)):  # no TPU here
            monkeypatch.setenv("JAX_DECODE_KERNELS", choice)
            traced = jax.jit(lambda *args, s=sampler: sample(s, *args)).trace(logits, keys, step)
            text = traced.lower(lowering_platforms=("tpu",)).as_text()
            assert text.count("tpu_custom_call") == want, (sampler, choice)


@pytest.mark.parametrize(
    ("capability", "want"), [("9.0", True), ("8.0", True), ("12.0", True), ("7.5", False), ("gfx942", False), (None, False)]
)
def test_gpus_that_triton_does_not_compile_for_do_without(monkeypatch, capability, want):
    """Such as a T4: there the compiler refuses the whole program."""
    device = types.SimpleNamespace(**({} if capability is None else {"compute_capability": capability}))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert one_pass.wanted("gpu") == want
    monkeypatch.setenv("JAX_DECODE_KERNELS", "xla")
    assert not one_pass.wanted("gpu")


def test_no_kernel_of_a_gpu_without_one(monkeypatch):
    monkeypatch.setenv("JAX_DECODE_KERNELS", "pallas")
    assert one_pass.wanted("tpu")
    assert not one_pass.wanted("gpu")
