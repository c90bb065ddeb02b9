"""What cuts off and draws from the largest logits of every column, run by Pallas's interpreter: thresholds as a sort in NumPy finds
them, draws as XLA's form makes them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_decode.kernels.column_tops import TOPS, Cut, tops_of
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.planes import LOWEST, NEVER, clean, column_sum
from jax_decode.kernels.row_layout import LANES, words_for
from jax_decode.kernels.settled_rows import Given, Lanes, Settled, columns_of_block, settled
from jax_decode.sampling.by_tops import _cut_and_summed_plainly, _drawn, _settled_by_tops
from jax_decode.sampling.choices import Allowed
from jax_decode.sampling.samplers import MinP, TopK, TopP
from jax_decode.sampling.within_column import chosen_of
from tests.jax_decode.kernels.test_one_pass import example, noise_of

SAMPLERS = [TopK(1, None), TopK(20, None), TopP(np.float32(0.4), None), TopP(np.float32(0.95), None), TopP(np.float32(1), None)]
SAMPLERS += [MinP(np.float32(0.05), None)]


BESIDE_ZERO = np.array([-1.3e-38, -0.0, 0.0, 1.2e-38, 1.6e-38], np.float32)
"""Zeros of both signs and the least normal numbers: devices have no others between them."""


def cells(seed, batch, width):
    """Planes of logits [32, B, W] and a list [B, 5], some with many equal logits, zeros of both signs, or few that are allowed."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(32, batch, width)) * rng.choice([0.5, 3, 8])).astype(np.float32)
    logits = [np.round(logits), logits, logits * np.float32(1e30), rng.choice(BESIDE_ZERO, logits.shape)][seed % 4]
    logits = np.where(rng.random(logits.shape) < rng.choice([0.0, 0.2, 0.99, 1.0], (batch, 1)), -np.inf, logits)
    listed = np.where(rng.random((batch, 5)) < 0.5, rng.normal(size=(batch, 5)) * 3, -np.inf)
    return logits.astype(np.float32), listed.astype(np.float32)


def border(cut, number, own):
    """The threshold among the allowed logits of a row, descending in float64: least and greatest that a rounded sum may say."""
    if cut is Cut.OF_BEST:
        found = max(own[0] + number, LOWEST) if len(own) else LOWEST
        return found, found
    wanted, found = number, []
    mass = np.arange(1.0, len(own) + 1)
    if cut is Cut.MASS and len(own):
        mass, wanted = np.cumsum(np.exp(own - own[0])), np.exp(number - own[0])
    for factor in (1 + 1e-5, 1 - 1e-5):
        place = np.searchsorted(mass, wanted * factor)
        found.append(own[place] if place < len(own) else LOWEST)
    return min(found), max(found)


@pytest.mark.sampled(12, every=("cut", "seed"))
@pytest.mark.parametrize("cut", list(Cut))
@pytest.mark.parametrize("seed", range(8))
def test_thresholds_are_those_of_a_sort(cut, seed):
    batch, width = [(3, 128), (9, 256), (1, 384), (16, 640)][seed % 4]
    logits, listed = cells(seed, batch, width)
    tops, hidden = jax.jit(lambda x: tops_of(list(x)))(logits)
    rng = np.random.default_rng(seed)
    every_logit = np.concatenate([np.moveaxis(logits, 1, 0).reshape(batch, -1), listed], 1).astype(np.float64)
    number = rng.integers(1, 60, batch).astype(np.float32)
    if cut is Cut.MASS:
        number = rng.choice([0.1, 0.5, 0.95], batch).astype(np.float32)
    elif cut is Cut.OF_BEST:
        number = rng.choice([0.01, 0.5], batch).astype(np.float32)
    lanes = np.asarray(hidden).reshape(batch, -1, LANES)
    of_lanes = Lanes(jnp.asarray(lanes.max(1)), column_sum(list(np.moveaxis(logits.reshape(32, batch, -1, LANES), 2, 1).reshape(-1, batch, LANES))), None, None)
    token = jnp.where(listed > NEVER, jnp.arange(5, dtype=jnp.int32), -1)
    given = Given.of(jnp.asarray(number), None, tuple(noise_of(batch)), (token, jnp.asarray(listed)))
    rows, untold = settled(cut, given, jnp.stack(tops), of_lanes, interpret=True)
    got, hidden = Settled.unpacked(rows.rows), lanes.max((1, 2))
    not_told = np.flatnonzero(np.add.reduceat(np.asarray(got.threshold) <= hidden, np.arange(0, batch, 8)))
    assert np.asarray(untold.blocks)[0, : len(not_told)].tolist() == not_told.tolist()
    assert untold.blocks[0, -1] == len(not_told)
    assert [x.item() for x in untold.turns] == [max(len(not_told), 1), width // columns_of_block(width) if len(not_told) else 1]
    total = np.logaddexp.reduce(every_logit, 1)
    np.testing.assert_allclose(got.allowed, total, rtol=1e-5, atol=1e-5)
    if cut is Cut.MASS:
        number = np.log(number) + total
    elif cut is Cut.OF_BEST:
        number = np.log(number)
    told = 0
    for threshold, wanted, other, own in zip(np.asarray(got.threshold), number, hidden, every_logit):
        least, most = border(cut, float(wanted), -np.sort(-own[own > -np.inf]))
        if threshold > other:
            told += 1
            assert np.float32(least) - 1e-6 * abs(least) <= threshold <= np.float32(most) + 1e-6 * abs(most)
        else:
            assert least <= other, "all tokens from the threshold on are there, and were not seen"
    assert told or seed % 4 in (0, 3) or cut is Cut.MASS


@pytest.mark.sampled(6, every=("sampler", "masked", "with_raw"))
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("masked", [True, False, "union"])
@pytest.mark.parametrize("inverse", [None, 0.5, "rows"])
@pytest.mark.parametrize(
    ("batch", "width", "dtype", "with_raw"), [(9, 5000, jnp.float32, True), (2, 4096, jnp.bfloat16, True), (9, 5000, jnp.float32, False)]
)
def test_cuts_and_draws_are_those_of_the_other_form(sampler, masked, inverse, batch, width, dtype, with_raw):
    compare(sampler, masked, inverse, batch, width, dtype, with_raw)


FLAT = [1, 2, *range(8, 12), -2]
"""Rows whose largest few of every column do not tell: in both halves of a block of sixteen, and of the second 128."""


def test_rows_and_candidates_that_are_turned_in_several_parts():
    compare(TopK(20, None), True, "rows", 140, 4000, jnp.bfloat16, True, FLAT)


def test_rows_that_are_not_told_of_have_words_that_fill_no_two_blocks():
    compare(TopP(np.float32(0.9), None), True, None, 13, 12_100, jnp.bfloat16, True, FLAT)


def _with(function, found, *rest):
    return found, function(found, *rest)


def compare(sampler, masked, inverse, batch, width, dtype, with_raw, flat=(0,)):
    """With the other form. Some rows, of flat logits, are worked on again; they must not change the rows beside them.

    `masked`: whether words allow what is drawn, or "union", two bit rows of a table together.
    """
    logits, _, words = example(batch, width, dtype)
    logits = logits.at[-1].set(0).at[np.array(flat)].multiply(0.01)
    rng = np.random.default_rng(3)
    shape = batch, 150 if batch > LANES else 7
    token, ok = rng.integers(0, width, shape), jnp.asarray(rng.random(shape) < 0.5)
    listed = (jnp.asarray(token, jnp.int32), ok, clean(jnp.take_along_axis(logits, token, 1))) if masked else None
    allowed = Allowed(logits, words if masked else None, None, Columns(words_for(width)), listed)
    allowed = allowed._replace(word_at=lambda column: jnp.take_along_axis(words, column.reshape(batch, -1), 1).reshape(column.shape))
    if masked == "union":
        of_both = jnp.asarray(rng.permutation(2 * batch).reshape(batch, 2), jnp.int32)
        halves = jnp.stack([words & np.uint32(0xFF00F0A5), words & ~np.uint32(0xFF00F0A5)], 1)
        table = jnp.zeros((2 * batch, words.shape[1]), jnp.uint32).at[of_both].set(halves)
        allowed = allowed._replace(union=(table, of_both))
    scale = jnp.linspace(0.3, 2, batch)[:, None] if inverse == "rows" else None if inverse is None else jnp.float32(inverse)
    arguments = (sampler, allowed, scale, noise_of(batch), with_raw or not masked)
    by_kernels, plainly = functools.partial(_drawn, interpret=True), functools.partial(_cut_and_summed_plainly, *arguments)
    rows, chosen = jax.jit(lambda: _with(by_kernels, _settled_by_tops(*arguments, interpret=True), *arguments[1:]))()
    want, meant = jax.jit(lambda: _with(lambda drawn: chosen_of(*arguments[1:4], drawn), plainly()))()
    got = Settled.unpacked(rows.rows)
    np.testing.assert_array_equal(rows.column[0], np.minimum(got.column, allowed.num_words - 1))
    np.testing.assert_array_equal(got.threshold, want.threshold)
    some, some_listed = np.asarray(want.summary.score) > NEVER, masked and np.asarray(want.candidate[0]) > NEVER
    np.testing.assert_array_equal(np.asarray(got.column)[some], np.asarray(want.summary.item)[some])
    assert (got.candidate is None) == (not masked)
    for mine, other in zip(got.candidate or (), want.candidate or ()):
        np.testing.assert_allclose(mine[some_listed], other[some_listed], rtol=1e-6 if mine.dtype == jnp.float32 else 0)
    for mine, other in zip((got.score, got.allowed, got.raw), want.summary[:1] + want.summary[2:]):
        if with_raw or not masked or other is not want.summary.raw:
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(chosen.token, meant.token)
    assert (np.asarray(meant.token) >= 0).sum() > batch // 2
    for mine, other in zip(chosen[1:], meant[1:]):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_columns_keep_their_largest():
    planes = np.random.default_rng(0).normal(size=(32, 3, 128)).astype(np.float32)
    tops, hidden = jax.jit(lambda x: tops_of(list(x)))(planes)
    want = -np.sort(-planes, axis=0)
    np.testing.assert_array_equal(np.stack(tops), want[:TOPS])
    np.testing.assert_array_equal(hidden, want[TOPS])
