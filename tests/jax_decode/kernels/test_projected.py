"""Choices inside of a model's output projection: those among the logits that it makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
from jax_decode.errors import DecodeError
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.noise import key_words
from jax_decode.kernels.projected import Projected, Projection, fits_inside
from jax_decode.kernels.row_layout import pack_planes, words_for
from jax_decode.sampling import sampling
from jax_decode.sampling.choices import inverse_of
from jax_decode.sampling.sampling import among, choose
from jax_decode.sampling.summary import Noise
from jax_decode.step.masking import parts_at

SHAPES = [(5, 5000, 16, jnp.float32, None), (1, 130, 8, jnp.float32, 5.0), (130, 4096, 24, jnp.bfloat16, None)]
"""Words that fill no block, planes that are missing or cut off, more rows than a block has."""


def example(batch, width, depth, dtype, cap):
    """Projected logits, a row's word columns and a list of few tokens beside them."""
    rng = np.random.default_rng(width)
    hidden, table = (jnp.asarray(rng.normal(size=(n, depth)), dtype) for n in (batch, width))
    hidden = hidden.at[-1, 0].set(jnp.nan) if cap else hidden
    allowed = rng.random((batch, width)) < rng.choice([0.001, 0.3], (batch, 1))
    bits = np.packbits(np.pad(allowed, ((0, 0), (0, -width % 32))), axis=1, bitorder="little").view(np.uint32)
    token = jnp.asarray(np.sort(rng.permuted(np.tile(np.arange(64), (batch, 1)), axis=1)[:, :3]), jnp.int32)
    given = parts_at(jnp.asarray(pack_planes(bits, words_for(width))), token, jnp.asarray(rng.random((batch, 3)) < 0.7))
    return Projected(hidden, Projection(table, cap)), given


@pytest.mark.sampled(6, every=("shape", "masked", "sampler", "with_raw"))
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]} x {shape[1]}")
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("with_raw", [True, False])
@pytest.mark.parametrize("sampler", [jax_decode.Greedy(), jax_decode.Categorical(), jax_decode.Categorical(0.6)], ids=repr)
def test_the_kernel_chooses_as_among_logits(shape, masked, with_raw, sampler):
    projected, given = example(*shape)
    parts, columns, batch = given if masked else None, Columns(words_for(shape[1])), shape[0]
    noise = Noise(key_words(jax.random.split(jax.random.key(3), batch)), jnp.arange(batch, dtype=jnp.uint32))

    @jax.jit
    def both(projected):
        inside, beside = (among(x, parts, columns) for x in (projected, projected.logits))
        drawn = None if isinstance(sampler, jax_decode.Greedy) else noise
        own = sampling._projected(with_raw or not masked, inside, inverse_of(sampler, inside), drawn, interpret=True)
        return own, choose(sampler, beside, *noise, with_raw=with_raw)

    got, want = both(projected)
    np.testing.assert_array_equal(got.token, want.token)
    for mine, other in zip(got[1:], want[1:]):
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-4)
    if batch > 1:
        assert len(set(np.asarray(got.token).tolist())) > batch // 3


def test_shapes_that_do_not_go_together_are_refused():
    keys, step = key_words(jax.random.split(jax.random.key(0), 2)), jnp.zeros(2, jnp.uint32)
    table = Projection(jnp.zeros((16, 4)))
    for hidden, projection, text in (
        (jnp.zeros((2, 8)), table, r"hidden states \(2, 8\) do not go with an embedding \(16, 4\)"),
        (jnp.zeros((2, 1, 4)), table, r"hidden states \(2, 1, 4\)"),
        (jnp.zeros((2, 4), jnp.int8), table, "not both floating"),
        (jnp.zeros((2, 4)), jnp.zeros((16, 4)), r"Pass Projected\(hidden, Projection"),
    ):
        with pytest.raises(DecodeError, match=text):
            jax_decode.sample(jax_decode.Greedy(), Projected(hidden, projection), keys, step)
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a"], stop_ids=[0])
    tables = jax_decode.to_device(fsa_compile.compile_regex("a+", vocabulary))
    state = jax_decode.init_state(tables, jnp.zeros(2, jnp.int32))
    with pytest.raises(DecodeError, match=r"mask_logits: the logits are projected"):
        jax_decode.mask_logits(tables, state, Projected(jnp.zeros((2, 4)), table))
    several = jax.tree.map(lambda x: jnp.stack([x, x]), Projected(jnp.zeros((2, 4)), table))
    assert several.hidden.shape == (2, 2, 4)
    for cap in (0, -1.0, float("nan"), jnp.float32(3), "30"):
        with pytest.raises(DecodeError, match="is no positive number"):
            Projection(jnp.zeros((16, 4)), cap)


@pytest.mark.parametrize(("batch", "width", "depth", "dtype", "fits"), [
    (64, 262_144, 5376, jnp.bfloat16, True), (256, 128_256, 4096, jnp.bfloat16, True), (8, 32_000, 8192, jnp.float32, True),
    (128, 128_256, 8192, jnp.float32, False), (128, 128_256, 8192, jnp.bfloat16, True), (128, 128_256, 16_384, jnp.bfloat16, False),
])  # fmt: skip
def test_models_that_a_core_has_no_room_for_write_their_logits(batch, width, depth, dtype, fits):
    shape = jax.ShapeDtypeStruct
    assert fits_inside(Projected(shape((batch, depth), dtype), Projection(shape((width, depth), dtype))), words_for(width)) == fits
