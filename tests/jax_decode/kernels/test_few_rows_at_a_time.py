"""A CPU's form for many logits: the tokens, draws and sums of the general form, and of NumPy, rows of extreme logits among others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_decode.kernels.blocks import SMALL
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.planes import column_max_in_memory, to_order
from jax_decode.kernels.row_layout import pack_planes, words_for
from jax_decode.sampling.by_tops import _cut_and_summed_plainly, cut_and_summed
from jax_decode.sampling.candidates import with_candidates
from jax_decode.sampling.choices import inverse_of, largest_columns
from jax_decode.sampling.few_columns import _MOST, Few
from jax_decode.sampling.mass_search import ByExponential, lanes_sum, row_lanes
from jax_decode.sampling.row_sums import masked
from jax_decode.sampling.samplers import MinP, TopK, TopP
from jax_decode.sampling.sampling import among, choose
from jax_decode.sampling.summary import Noise, Rows, _fused, _on_cpu, summarize
from jax_decode.sampling.truncation import threshold_of
from jax_decode.step.masking import parts_at

BATCH, WIDTH = 7, 20_000
NARROWER = 10_000
"""A width of fewer than 32 planes, which is many logits still."""


def example():
    """Rows: ordinary; of equal logits; that overflow; whose allowed logits vanish; NaN; without an allowed token; bfloat16."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(BATCH, WIDTH)).astype(np.float32) * 3
    allowed = rng.random((BATCH, WIDTH)) < 0.3
    logits[1] = np.round(logits[1])
    logits[2, ::7] = 200.0
    logits[3, allowed[3]] -= 300
    logits[4] = np.nan
    allowed[5] = False
    logits[6] = np.asarray(jnp.asarray(logits[6], jnp.bfloat16), np.float32)
    bits = np.packbits(allowed, axis=1, bitorder="little").view(np.uint32)
    return jnp.asarray(logits), allowed, jnp.asarray(pack_planes(bits, words_for(WIDTH)))


def noise_of():
    key = np.random.default_rng(1).integers(0, 2**32, (BATCH, 2), dtype=np.uint64).astype(np.uint32)
    return Noise(jnp.asarray(key), jnp.arange(BATCH, dtype=jnp.uint32))


@pytest.mark.sampled(3, every=("masked", "drawn", "inverse"))
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("drawn", "inverse", "threshold"), [(False, None, None), (True, None, 2.0), (True, 1.4, 2.0)])
def test_summaries_are_those_of_the_general_form(masked, drawn, inverse, threshold):
    logits, allowed, words = example()
    assert logits.size >= SMALL
    numbers = (None if inverse is None else jnp.float32(inverse), None if threshold is None else jnp.full(BATCH, threshold))
    arguments = (words_for(WIDTH), True, logits, words if masked else None, Rows(noise_of() if drawn else None, *numbers))
    got, want = (jax.jit(form, static_argnums=(0, 1))(*arguments) for form in (_on_cpu, _fused))
    some = np.isfinite(np.asarray(want.score))
    np.testing.assert_array_equal(np.isfinite(np.asarray(got.score)), some)
    np.testing.assert_array_equal(np.asarray(got.item)[some], np.asarray(want.item)[some])
    for mine, other in zip(got, want):
        np.testing.assert_allclose(np.asarray(mine)[some], np.asarray(other)[some], rtol=2e-5, atol=2e-5)
    if not drawn:
        x = np.asarray(logits)[:4]
        inside = np.where(allowed[:4], x, -np.inf) if masked else x
        np.testing.assert_array_equal(np.asarray(got.item)[:4], inside.argmax(1))


@jax.jit
def _threshold(sampler, logits, words):
    none = jnp.zeros((BATCH, 1), jnp.int32)
    parts = None if words is None else parts_at(words, none, none > 0)
    return threshold_of(sampler, among(logits, parts, Columns(words_for(logits.shape[1]))), None)


@jax.jit
def _cut(sampler, logits, words, listed, noise):
    """The threshold of a sampler, of two ways, and what is drawn with it, of two ways: a program of many seconds to compile."""
    parts = None if words is None else parts_at(words, *listed)
    allowed = among(logits, parts, Columns(words_for(logits.shape[1])))
    inverse = inverse_of(sampler, allowed)
    threshold, drawn, _ = cut_and_summed(sampler, allowed, inverse, noise, True)
    alone = threshold_of(sampler, allowed, inverse)
    again = summarize(logits, allowed.words, words_for(logits.shape[1]), noise=noise, inverse=inverse, threshold=threshold)
    return threshold, alone, drawn, with_candidates(allowed, inverse, noise, threshold, again).summary


NOTHING_LISTED = np.zeros((BATCH, 1), np.int32), np.zeros((BATCH, 1), bool)


def chosen_set(sampler, masked):
    """Thresholds, and the clean logits that they are for; those of a masked top-p by the program that draws with it."""
    logits, allowed, words = example()
    if masked and isinstance(sampler, TopP):
        threshold = _cut(sampler, logits, words, NOTHING_LISTED, noise_of())[0]
    else:
        threshold = _threshold(sampler, logits, words if masked else None)
    return np.asarray(threshold), np.where(allowed | (not masked), np.asarray(logits), -np.inf)


@pytest.mark.sampled(2, every=("p", "masked"))
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("p", [0.5, 0.95])
def test_a_top_p_is_the_smallest_set_of_its_mass(masked, p):
    threshold, x = chosen_set(TopP(np.float32(p), np.float32(1) if masked else None), masked)
    for row in (0, 1, 2, 3, 6):
        kept = x[row] >= threshold[row]
        shares = np.exp(x[row].astype(np.float64) - x[row].max())
        least = x[row][kept].min()
        assert shares[kept].sum() >= (p - 1e-5) * shares.sum()
        assert shares[x[row] > least].sum() < (p + 1e-5) * shares.sum(), "a smaller set has enough"


@pytest.mark.parametrize(("p", "width"), [(0.1, WIDTH), (0.5, WIDTH), (0.95, WIDTH), (0.999, WIDTH), (0.95, NARROWER)])
def test_a_top_p_of_logits_as_texts_have_them(p, width):
    """Beside rows of which a few tokens have the probability lie some of which only a search finds the border; ties among both.

    A row lies in memory in eight pieces, or as here 27 where its planes cannot be divided so.
    """
    assert -(-width // words_for(width)) == (32 if width == WIDTH else 27)
    rng = np.random.default_rng(2)
    ranks = 1 + rng.permuted(np.tile(np.arange(width), (BATCH, 1)), axis=1)
    x = (-np.arange(BATCH)[:, None] * 0.5 * np.log(ranks)).astype(np.float32)
    x[5:] = np.round(x[5:])
    x += np.array([0, 0, 0, 3, -2, 0, 1], np.float32)[:, None]  # the best logit is a zero of either sign, or another number
    x[2] += 0.0
    sampler, logits = TopP(np.float32(p), None), jnp.asarray(x)
    of_all = _threshold(sampler, logits, None) if width == WIDTH else _cut(sampler, logits, None, None, noise_of())[0]
    threshold = np.asarray(of_all)
    assert x[:3].size < SMALL
    alone = np.asarray(_threshold(sampler, logits[:3], None))  # by the general form
    np.testing.assert_allclose(alone, threshold[:3], rtol=1e-3)
    few = 0
    assert np.signbit(x.max(1)).any()
    assert (x[2].max(), np.signbit(x[2].max())) == (0, False)
    for row in range(BATCH):
        kept, shares = x[row] >= threshold[row], np.exp(x[row].astype(np.float64) - x[row].max())
        few += kept.sum() <= 64
        assert shares[kept].sum() >= (p - 1e-5) * shares.sum()
        assert shares[x[row] > x[row][kept].min()].sum() < (p + 1e-5) * shares.sum()
    assert 0 < few < BATCH


def any_logits(rng, width):
    """Rows whose borders are hard to find: far or equal logits, some whose exponentials are equal though they are not."""
    x = rng.normal(size=(BATCH, width))
    grid = rng.choice([0.25, 1.0, 3.0])
    kinds = [
        lambda y: y * rng.choice([0.3, 1, 4, 30]),
        lambda y: np.round(y / grid) * grid,
        lambda y: np.abs(y) * 1e-9,
        lambda y: np.where(rng.random(width) < 0.4, -np.abs(y) * 1e-8, y - 3),
        lambda y: -np.log1p(np.arange(width)) * rng.uniform(0, 3),
        lambda y: np.where(rng.random(width) < 0.01, 80.0, y * 1e30),
        lambda y: np.where(rng.random(width) < 0.5, -np.inf, np.round(y * 1e-3, 9)),
        lambda y: np.full(width, rng.choice([0.0, -0.0, 7.0, -3e38])),
    ]
    rows = [kinds[i](row) for i, row in zip(rng.choice(len(kinds), BATCH, replace=False), x)]
    return np.stack(rows).astype(np.float32) + np.float32(rng.choice([0, 0, -50, 90]))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(60))
def test_a_top_p_of_any_logits_is_the_smallest_set_of_its_mass(seed, exhaustive):
    """Each choice of a mask and a temperature is a program: sampled, one that has both."""
    rng = np.random.default_rng(seed)
    logits = any_logits(rng, WIDTH)
    allowed = rng.random(logits.shape) < rng.choice([0.1, 0.9, 1.0])
    words = pack_planes(np.packbits(allowed, axis=1, bitorder="little").view(np.uint32), words_for(WIDTH))
    token = rng.integers(0, WIDTH, (BATCH, 1)).astype(np.int32)
    listed = token, ~np.take_along_axis(allowed, token, 1)
    masked = bool(rng.random() < 0.8) or not exhaustive
    if masked:
        np.put_along_axis(allowed, token, True, 1)
    else:
        allowed[:] = True
    p, temperature = np.float32(rng.choice([1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0])), rng.choice([0, 0.5, 1.5])
    if not exhaustive:
        temperature = temperature or 1.5
    sampler = TopP(p, np.float32(temperature) if temperature else None)
    found, alone, drawn, again = _cut(sampler, logits, words if masked else None, listed if masked else None, noise_of())
    np.testing.assert_array_equal(found, alone)
    some = np.isfinite(np.asarray(again.score))
    for mine, other in zip(drawn[2:], again[2:]):
        np.testing.assert_allclose(np.asarray(mine)[some], np.asarray(other)[some], rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(np.asarray(drawn.item)[some], np.asarray(again.item)[some])
    ends = np.float32(-3e38), np.float32(3e38)
    x = np.clip(logits, *ends)
    with np.errstate(over="ignore"):
        x = x if not temperature else np.clip(x * (np.float32(1) / np.float32(temperature)), *ends)
    for row in range(BATCH):
        y = x[row][allowed[row]]
        kept, shares = y >= np.asarray(found)[row], np.exp(y.astype(np.float64) - y.max())
        assert shares[kept].sum() >= (float(p) - 1e-5) * shares.sum()
        assert p >= 1 or shares[y > y[kept].min()].sum() < (float(p) + 1e-5) * shares.sum(), "a smaller set has enough"


def test_a_top_p_whose_border_is_the_last_of_the_columns_looked_at():
    """The exponentials of 100 columns' best are equal, the logits are not, and 64 of them have the probability."""
    assert words_for(NARROWER) < 512, "no sample tells that there are more"
    x = np.full((BATCH, NARROWER), -30, np.float32)
    x[:, :100] = np.arange(BATCH)[:, None] * -1e-11 * np.arange(100)
    found, _, drawn, again = _cut(TopP(np.float32(0.635), None), jnp.asarray(x), None, None, noise_of())
    np.testing.assert_array_equal((x >= np.asarray(found)[:, None]).sum(1), [100] + [64] * (BATCH - 1))
    np.testing.assert_array_equal(drawn.item, again.item)
    np.testing.assert_allclose(drawn.score, again.score, rtol=2e-5)


def test_a_top_k_keeps_ties():
    threshold, x = chosen_set(TopK(50, None), True)
    for row in (0, 1, 2, 3, 6):
        assert threshold[row] == np.sort(x[row])[-50]


@pytest.mark.parametrize("seed", range(3))
def test_few_columns_are_those_that_reach_the_threshold(seed):
    rng = np.random.default_rng(seed)
    columns, share = 128 * int(rng.integers(2, 9)), 10 ** rng.uniform(-3, -0.3, 6)
    top = np.where(rng.random((6, columns)) < share[:, None], 1, rng.choice([0, -np.inf], (6, columns))).astype(np.float32)
    top[1] = -np.inf
    few = jax.jit(Few.of)(top, np.ones(6, np.float32))
    count = (top == 1).sum(1)
    np.testing.assert_array_equal(few.many, count > _MOST)
    rows, found = np.nonzero((top == 1) & (count <= _MOST)[:, None])
    assert int(few.rows[-1]) == len(rows)
    row, column = jax.jit(Few.places)(few, np.arange(len(rows) + 3, dtype=np.int32))
    pairs = np.stack([row, column], 1)[: len(rows)]
    np.testing.assert_array_equal(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], np.stack([rows, found], 1))


@pytest.mark.sampled(3, every=("sampler", "masked", "inverse"))
@pytest.mark.parametrize("sampler", [MinP(np.float32(0.05), None), TopK(50, None)], ids=["min-p", "top-k"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("inverse", [None, 1.4, "rows"])
def test_draws_among_few_columns_are_those_among_all(sampler, masked, inverse):
    """Rows of extreme logits; one whose columns are many for a min-p; a row without an allowed token."""
    logits, _, words = example()
    logits = logits.at[6].multiply(0.3)
    none, noise = jnp.zeros((BATCH, 1), jnp.int32), noise_of()
    scale = jnp.linspace(0.7, 1.5, BATCH)[:, None] if inverse == "rows" else inverse if inverse is None else jnp.float32(inverse)

    @jax.jit
    def both(sampler, logits, key):
        parts = parts_at(words, none, none > 0) if masked else None
        allowed = among(logits, parts, Columns(words_for(WIDTH)))._replace(listed=None)
        own = noise._replace(key=key)
        return [form(sampler, allowed, scale, own, True) for form in (cut_and_summed, _cut_and_summed_plainly)]

    tokens = set()
    for turn in range(20):
        few, all_ = both(sampler, logits, noise.key + np.uint32(turn))
        np.testing.assert_array_equal(few.threshold, all_.threshold)
        some = np.isfinite(np.asarray(all_.summary.score))
        np.testing.assert_array_equal(np.isfinite(np.asarray(few.summary.score)), some)
        np.testing.assert_array_equal(np.asarray(few.summary.item)[some], np.asarray(all_.summary.item)[some])
        for mine, other in zip(few.summary, all_.summary):
            np.testing.assert_allclose(np.asarray(mine)[some], np.asarray(other)[some], rtol=2e-5, atol=2e-5)
        tokens.add(tuple(np.asarray(few.summary.item).tolist()))
    assert len(tokens) > 15, "columns are drawn"


def test_tokens_that_are_kept_are_drawn_however_low_the_best_logit_is():
    """49 tokens 7.6 below the best one have 2.4 % of the mass."""
    rows, place = 256, np.arange(NARROWER)
    below = np.select([place == 77, (place >= 1000) & (place < 1049)], [0, 7.6], 40).astype(np.float32)

    @jax.jit
    def drawn(best, step):
        key = jnp.stack([jnp.arange(rows, dtype=jnp.uint32), jnp.full(rows, 5, jnp.uint32)], 1)
        allowed = among(jnp.broadcast_to(best - below, (rows, NARROWER)), None, Columns(words_for(NARROWER)))
        return choose(TopK(50, None), allowed, key, jnp.full(rows, step, jnp.uint32)).token

    for best in (-50.0, -79.9, -300.0, 79.0, 200.0):
        tokens = np.concatenate([drawn(np.float32(best), np.uint32(step)) for step in range(8)])
        assert 20 < (tokens != 77).sum() < 90, best
        assert set(tokens.tolist()) <= {77, *range(1000, 1049)}


@pytest.mark.parametrize("kind", ["top-p", "min-p"])
def test_a_row_does_not_depend_on_its_neighbours(kind):
    """Nor do what is drawn of a top-p and its threshold."""
    logits, _, words = example()
    logits = logits.at[6].multiply(0.3)  # many columns of it reach what a min-p leaves, and few of others
    noise, sampler = noise_of(), MinP(np.float32(0.05), None)

    @jax.jit
    def chosen(logits, words, noise):
        return choose(sampler, among(logits, parts_at(words, *NOTHING_LISTED), Columns(words_for(WIDTH))), *noise)

    def run(rows):
        own = logits[rows], words[rows], jax.tree.map(lambda x: x[rows], noise)
        if kind == "min-p":
            return chosen(*own)
        return _cut(TopP(np.float32(0.9), np.float32(1)), *own[:2], NOTHING_LISTED, own[2])[:3:2]

    every = run(np.arange(BATCH))
    for others in ([6, 3, 1, 0, 2, 2, 5], [0, 3, 1, 0, 2, 2, 5]):
        assert len(others) == BATCH, "one program"
        place = np.array(others)
        for one, some in zip(jax.tree.leaves(every), jax.tree.leaves(run(place)), strict=True):
            np.testing.assert_array_equal(np.asarray(one)[place], some)


@pytest.mark.parametrize("width", [2048, 1536, 1100])
def test_the_largest_columns_are_those_of_a_sort(width):
    """With many equal numbers, and widths whose columns are chosen by groups, and not."""
    x = np.random.default_rng(width).integers(-40, 40, (3, width)).astype(np.float32)
    most, place = map(np.asarray, jax.jit(largest_columns, static_argnums=1)(x, 64))
    np.testing.assert_array_equal(most, -np.sort(-x, 1)[:, :64])
    np.testing.assert_array_equal(np.take_along_axis(x, place, 1), most)
    assert all(len(set(row)) == 64 for row in place.tolist())


@pytest.mark.parametrize("width", [100, 128, 3 * 128, 5 * 128 + 7, 32 * 128, 32 * 128 + 50, 40 * 128 + 9])
def test_numbers_of_rows_in_memory_are_those_of_numpy(width):
    """Best of columns, sums of rows, the largest below a place: of whole planes, of a part of one, of more than 32."""
    rng = np.random.default_rng(width)
    x = rng.integers(0, 50, (2, width)).astype(np.float32)
    words = rng.integers(0, 2**32, (2, 128), dtype=np.uint64).astype(np.uint32)
    plane, column = np.divmod(np.arange(width), 128)
    ok = (plane < 32) & ((words[:, column] >> np.minimum(plane, 31).astype(np.uint32)) & 1 != 0)

    def of_columns(y, fill):
        return np.pad(y, ((0, 0), (0, -width % 128)), constant_values=fill).reshape(2, -1, 128).max(1)

    best = jax.jit(column_max_in_memory, static_argnums=2)
    np.testing.assert_array_equal(best(x, None, 128), of_columns(x, -np.inf))
    np.testing.assert_array_equal(best(x, words, 128), of_columns(np.where(ok, x, -np.inf), -np.inf))
    np.testing.assert_array_equal(jax.jit(lambda x: lanes_sum(row_lanes(x)))(x), x.sum(1))
    low, high = np.float32([5, 0]), np.float32([20, 9])
    number_of_pieces = []

    @jax.jit
    def of_tokens(x, own, low, high):
        pieces = masked(x, own, 128)
        number_of_pieces.append(len(pieces))
        tokens = ByExponential(pieces, jnp.full((2, 1), 9.0), 128, 2.0)
        low, high = to_order(low), to_order(high)
        return tokens.columns_below(high), tokens.mass(low, high), tokens.number_from(low)

    listed = np.where((low <= 9) & (high > 9), 9, 0)
    for y, own in ((x, None), (np.where(ok, x, 0), words), (x * (plane < 32), np.full_like(words, 2**32 - 1))):
        below, mass, number = of_tokens(x, own, low, high)
        least, most = low[:, None], high[:, None]
        assert number_of_pieces[-1] == (1 if own is None or width < 128 or (width % 128 == 0 and width <= 32 * 128) else 2)
        np.testing.assert_array_equal(below, of_columns(np.where(y < most, y, 0), 0))
        np.testing.assert_array_equal(mass, 2 * (y * ((y >= least) & (y < most))).sum(1) + listed)
        np.testing.assert_array_equal(number, (y >= least).sum(1))
