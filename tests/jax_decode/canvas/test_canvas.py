"""The canvas against every canvas written out: the best one, the distribution of samples, marginals and mass."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.canvases import MANY, WIDE, canvases, logprobs_of

import fsa_compile as fc
import models
from fsa_compile.vocabulary import Vocabulary
from jax_decode import canvas, key_words
from jax_decode.errors import DecodeError

FEW = Vocabulary.from_tokens([b"", b"a", b"b", b"ab", b"ba", b"aa"], stop_ids=[0])


def weights(x, rows):
    """Log-probability of every canvas, float64[n]."""
    return np.take_along_axis(x[None].astype(np.float64), rows[..., None], 2)[..., 0].sum(1)


def check_against(tables, x, rows, **asked):
    """One row of log-probabilities x [L, V] against all canvases."""
    weight = weights(x, rows)
    best = canvas.most_probable(tables, jnp.asarray(x)[None], **asked)
    marginals = canvas.marginals(tables, jnp.asarray(x)[None], **asked)
    mass = canvas.log_mass(tables, jnp.asarray(x)[None], **asked)
    if not len(rows):
        assert float(mass[0]) == -np.inf
        assert float(marginals.log_mass[0]) == -np.inf
        assert (np.asarray(best.tokens) == -1).all()
        assert int(best.state[0]) == 0
        assert not np.isfinite(np.asarray(marginals.logprobs)).any()
        return
    total = np.logaddexp.reduce(weight)
    np.testing.assert_allclose([mass[0], marginals.log_mass[0]], total, rtol=1e-5, atol=1e-5)
    assert np.asarray(best.tokens)[0].tolist() in rows.tolist()
    np.testing.assert_allclose([best.logprob[0], best.log_mass[0]], weight.max(), rtol=1e-5, atol=1e-5)
    want = np.zeros(x.shape)
    for position in range(len(x)):
        np.add.at(want[position], rows[:, position], np.exp(weight - total))
    np.testing.assert_allclose(np.exp(np.asarray(marginals.logprobs)[0]), want, rtol=2e-4, atol=1e-6)
    np.testing.assert_array_equal(np.isfinite(np.asarray(marginals.logprobs)[0]), want > 0)


def patterns_of(rng):
    """A random pattern over a and b."""

    def part(depth):
        kind = rng.integers(5) if depth else 0
        if kind == 0:
            return str(rng.choice(["a", "b", "ab", "ba", "[ab]"]))
        if kind == 1:
            return f"({part(depth - 1)}|{part(depth - 1)})"
        if kind == 2:
            return f"({part(depth - 1)}){rng.choice(['*', '+', '?', '{1,2}', '{2,3}'])}"
        return part(depth - 1) + part(depth - 1)

    return part(3)


def all_rows(length, width):
    return np.stack(np.meshgrid(*[np.arange(width)] * length, indexing="ij"), -1).reshape(-1, length)


def test_random_patterns_over_every_canvas(exhaustive):
    """All 6^4 canvases are judged by `re`, by random distributions of which some are sharp: the best, marginals, the mass; and of
    samples a statistic of each, whose sum over all patterns is a sum over many degrees of freedom."""
    rng = np.random.default_rng(0)
    total, degrees = 0.0, 0
    rows, length = all_rows(4, 6), 4
    texts, ended = [], []
    for row in rows.tolist():
        cut = row.index(0) if 0 in row else length
        texts.append(b"".join(FEW.tokens[t] for t in row[:cut]))
        ended.append(not any(row[cut:]))
    texts, ended = np.array(texts, object), np.array(ended)
    for seed in range(1000 if exhaustive else 12):
        pattern = patterns_of(rng)
        inside = np.array([bool(re.fullmatch(pattern.encode(), t)) for t in texts]) & ended
        tables = canvas.to_canvas(fc.compile_regex(pattern, FEW))
        x = logprobs_of(seed, 1, length, 6, float(rng.choice([0.3, 2.0, 8.0])))[0]
        check_against(tables, x, rows[inside])
        statistic, own = chi_square(tables, x, rows[inside], seed)
        total, degrees = total + statistic, degrees + own
        assert statistic < own + 6 * np.sqrt(2 * own) + 25, pattern
    assert degrees > 25
    assert abs(total - degrees) < 4 * np.sqrt(2 * degrees) + 10


def chi_square(tables, x, rows, seed, draws=512):
    """Of samples over all canvases, those of fewer than five expected together: the statistic and its degrees of freedom."""
    if not len(rows):
        return 0.0, 0
    keys = key_words(jax.random.split(jax.random.key(seed), draws))
    got = canvas.sample(tables, jnp.broadcast_to(jnp.asarray(x), (draws, *x.shape)), keys)
    number = {tuple(row): i for i, row in enumerate(rows.tolist())}
    counts = np.bincount([number[tuple(row)] for row in np.asarray(got.tokens).tolist()], minlength=len(rows))
    weight = weights(x, rows)
    expected = draws * np.exp(weight - np.logaddexp.reduce(weight))
    few = expected < 5
    observed, expected = np.append(counts[~few], counts[few].sum()), np.append(expected[~few], expected[few].sum())
    kept = expected > 1  # what is rarer still is left out
    return float(((observed - expected)[kept] ** 2 / expected[kept]).sum()), max(int(kept.sum()) - 1, 0)


CASES = {
    "pattern": (lambda: fc.compile_regex(r"[a-z ]{1,3}[0-9]|12", MANY), 3, {}),
    "counter": (lambda: fc.compile_regex(r"[ab]{3,900}", MANY), 4, {}),
    "stack": (lambda: fc.compile_grammar('start: "[" start? "]"', MANY), 5, {"max_depth": 3}),
    "several stacks": (lambda: fc.compile_grammar('start: "a" start "a" | "b" start "b" | "a" | "b"', FEW, stacks=3), 4, {"max_depth": 4}),
    "schema": (lambda: fc.compile_json_schema({"type": "array", "items": {"type": "array", "items": {"const": 1}}}, MANY), 4, {"max_depth": 2}),
    "any order": (
        lambda: fc.compile_json_schema(
            {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "additionalProperties": False},
            MANY,
            options=fc.SchemaOptions(key_order="any"),
        ),
        6,
        {"max_depth": 4},
    ),
}  # fmt: skip


@pytest.mark.sampled(6, every=("name", "remaining"))
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("remaining", [0, 2])
def test_kinds_of_constraints_against_their_walks(name, remaining):
    make, length, given = CASES[name]
    constraint = make()
    rows = canvases(constraint, length, remaining=remaining, pad_ids=[3], **given)
    assert len(rows), "a case without any canvas shows nothing"
    tables = canvas.to_canvas(constraint, pad_ids=[3], **given)
    check_against(tables, logprobs_of(3, 1, length, constraint.vocab_size)[0], rows, remaining=remaining)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pattern", ["[a-z]{1,3}", "[a-z]{2}[n-z0-9]|[a-f][a-z]{2,4}", "[^!]{1,2}a?"])
def test_classes_of_tokens(pattern):
    """Sets of many tokens that overlap, beside lists of few."""
    constraint = fc.compile_regex(pattern, WIDE)
    tables = canvas.to_canvas(constraint)
    assert (np.asarray(tables.block_class) > 0).sum() > 2
    rows = canvases(constraint, 2)
    check_against(tables, logprobs_of(6, 1, 2, len(WIDE.tokens))[0], rows)
    check_against(tables, logprobs_of(6, 1, 1, len(WIDE.tokens))[0], canvases(constraint, 1, remaining=1), remaining=1)


def test_a_set_of_items():
    items = fc.compile_items([[3, 4], [3, 5, 6], [9]], MANY)
    rows = np.array([[3, 4, 0], [3, 5, 6], [9, 0, 0]])
    check_against(canvas.to_canvas(items), logprobs_of(1, 1, 3, len(MANY.tokens))[0], rows)


def test_a_state_of_more_edges_than_one_loop_sums():
    """Items of two tokens with 20 first ones, each with its own next ones."""
    rows = np.array([[token, 22 - token] for token in range(1, 21)] + [[token, 99] for token in range(2, 21, 3)])
    tables = canvas.to_canvas(fc.compile_items(rows.tolist(), MANY))
    assert tables.leaving[-1].shape[1] == 32
    x, key = logprobs_of(4, 1, 2, len(MANY.tokens)), key_words(jax.random.split(jax.random.key(3), 1))
    token, sure, _ = canvas.proposed(tables, jnp.asarray(x), key, jnp.full((1, 2), -1), 0, 1, 0)
    weight, token = weights(x[0], rows), np.asarray(token)[0]
    assert token.tolist() in rows.tolist()
    given = [np.logaddexp.reduce(weight[rows[:, i] == token[i]]) - np.logaddexp.reduce(weight) for i in range(2)]
    np.testing.assert_allclose(sure[0], given, rtol=1e-4, atol=1e-4)


def test_fixed_positions():
    constraint = fc.compile_regex("[ab]{2,4}", MANY)
    rows = canvases(constraint, 3)
    a = MANY.tokens.index(b"a")
    x = logprobs_of(2, 1, 3, len(MANY.tokens))
    fixed = np.array([[-1, a, -1]])
    chosen = rows[rows[:, 1] == a]
    tables, settled = canvas.to_canvas(constraint), x[0].copy()
    settled[1] = -np.inf
    settled[1, a] = 0
    with np.errstate(invalid="ignore"):
        check_against(tables, settled, chosen)
    best = canvas.most_probable(tables, jnp.asarray(x), fixed=jnp.asarray(fixed))
    np.testing.assert_array_equal(best.tokens, canvas.most_probable(tables, jnp.asarray(settled)[None]).tokens)
    impossible = canvas.most_probable(tables, jnp.asarray(x), fixed=jnp.asarray([[0, a, -1]]))
    assert (np.asarray(impossible.tokens) == -1).all()


def test_samples_have_the_conditional_distribution():
    """χ² of 8,000 draws over all canvases of a pattern with lists and classes of tokens; 1 in 10,000 would fail by chance.

    What differs from the exact distribution by an effect size (Cohen's w) of 0.25 is found with a power above 0.99.
    """
    constraint = fc.compile_regex("[a-z]{1,2}|12", WIDE)
    rows = canvases(constraint, 2)
    x = logprobs_of(5, 1, 2, len(WIDE.tokens), 1.0)
    draws = 8_000
    keys = key_words(jax.random.split(jax.random.key(0), draws))
    got = canvas.sample(canvas.to_canvas(constraint), jnp.broadcast_to(jnp.asarray(x), (draws, *x.shape[1:])), keys)
    number = {tuple(row): i for i, row in enumerate(rows.tolist())}
    counts = np.bincount([number[tuple(row)] for row in np.asarray(got.tokens).tolist()], minlength=len(rows))
    weight = weights(x[0], rows)
    expected = draws * np.exp(weight - np.logaddexp.reduce(weight))
    few = expected < 5
    observed = np.append(counts[~few], counts[few].sum())
    expected = np.append(expected[~few], expected[few].sum())
    degrees = len(observed) - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert statistic < degrees + 3.72 * np.sqrt(2 * degrees) + 10
    np.testing.assert_allclose(got.log_mass, np.logaddexp.reduce(weight), rtol=1e-5)
    np.testing.assert_allclose(got.logprob[:50], weights(x[0], np.asarray(got.tokens)[:50]), rtol=1e-5)


def test_a_row_depends_on_its_own_key_constraint_and_state_alone():
    both = [fc.compile_regex("[a-z]{1,3}", MANY), fc.compile_regex("(12)*", MANY)]
    tables = canvas.to_canvas(both)
    x = jnp.asarray(logprobs_of(7, 4, 3, len(MANY.tokens)))
    keys, which = key_words(jax.random.split(jax.random.key(1), 4)), jnp.array([0, 1, 1, 0])
    together = canvas.sample(tables, x, keys, which=which)
    for i in range(4):
        alone = canvas.sample(tables, x[i : i + 1], keys[i : i + 1], which=which[i : i + 1])
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[i])
        own = canvas.to_canvas(both[int(which[i])])
        np.testing.assert_allclose(canvas.log_mass(own, x[i : i + 1])[0], together.log_mass[i], rtol=1e-5)


def test_blocks_go_on_where_the_last_one_ended():
    """Two blocks of two tokens are one canvas of four whose first half was drawn first."""
    constraint = fc.compile_regex("(a|bb)*c", MANY)
    tables, x = canvas.to_canvas(constraint), logprobs_of(9, 1, 4, len(MANY.tokens))
    first = canvas.most_probable(tables, jnp.asarray(x[:, :2]), remaining=2)
    second = canvas.most_probable(tables, jnp.asarray(x[:, 2:]), state=first.state)
    row = [*np.asarray(first.tokens)[0].tolist(), *np.asarray(second.tokens)[0].tolist()]
    assert row in canvases(constraint, 4).tolist()
    halves = canvases(constraint, 2, remaining=2)
    np.testing.assert_allclose(first.logprob[0], weights(x[0, :2], halves).max(), rtol=1e-5)


def test_improbable_texts_keep_their_probabilities():
    """All that is allowed may be far less probable than what is not."""
    constraint = fc.compile_regex("[b-d]{2}", MANY)
    x = np.full((1, 2, len(MANY.tokens) + 7), -1000.0, np.float32)
    x[:, :, 0] = 0
    x[:, :, MANY.tokens.index(b"b")] = -900
    x[:, :, -1] = np.nan
    got = canvas.most_probable(canvas.to_canvas(constraint), jnp.asarray(x))
    assert [MANY.tokens[t] for t in np.asarray(got.tokens)[0]] == [b"b", b"b"]
    np.testing.assert_allclose(canvas.log_mass(canvas.to_canvas(constraint), jnp.asarray(x)), -1800, atol=1e-2)


def test_the_gradient_of_the_mass_is_finite_differences():
    constraint = fc.compile_regex("[a-z]{1,2}[0-9]|12", MANY)
    tables, x = canvas.to_canvas(constraint), jnp.asarray(logprobs_of(11, 2, 3, len(MANY.tokens)))
    fixed = jnp.asarray([[-1, -1, -1], [-1, MANY.tokens.index(b"7"), -1]])
    direction = jnp.asarray(logprobs_of(12, 2, 3, len(MANY.tokens)))

    def mass(step):
        return canvas.log_mass(tables, x + step * direction, fixed=fixed).sum()

    slope = (direction * jax.grad(lambda x: canvas.log_mass(tables, x, fixed=fixed).sum())(x)).sum()
    np.testing.assert_allclose(slope, (mass(0.01) - mass(-0.01)) / 0.02, rtol=5e-3)


def test_another_constraint_of_the_same_sizes_compiles_nothing():
    x = jnp.asarray(logprobs_of(0, 1, 3, len(MANY.tokens)))
    canvas.most_probable(canvas.to_canvas(fc.compile_regex("abc|de", MANY)), x)
    misses = canvas.canvas._filled._cache_size()
    canvas.most_probable(canvas.to_canvas(fc.compile_regex("xyz|uv", MANY)), x)
    assert canvas.canvas._filled._cache_size() == misses


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: canvas.to_canvas("a*"), "to_canvas|compiled constraint"),
        (lambda: canvas.to_canvas([]), "the list is empty"),
        (lambda: canvas.to_canvas(fc.compile_regex("a+", fc.load_tokenizer(models.small_tokenizer_path()), canonical=True)), "canonical=True"),
        (lambda: canvas.to_canvas(fc.compile_grammar('start: "[" start "]" | "x"', MANY), max_depth=0), None),
        (lambda: canvas.to_canvas(fc.compile_regex("[ab]{3,9000}", MANY), max_states=100), "more than 100 states"),
        (lambda: canvas.to_canvas([fc.compile_regex("a", MANY), fc.compile_regex("a", FEW)]), "different vocabularies"),
        (lambda: canvas.most_probable(canvas.to_canvas(fc.compile_regex("a", MANY)), jnp.zeros((2, 3))), r"\[B, L, V\]"),
        (lambda: canvas.most_probable(canvas.to_canvas(fc.compile_regex("a", MANY)), jnp.zeros((1, 2, 5))), "vocabulary has"),
        (lambda: canvas.sample(canvas.to_canvas(fc.compile_regex("a", FEW)), jnp.zeros((1, 2, 6)), jax.random.key(0)), "key_words"),
        (lambda: canvas.log_mass(canvas.to_canvas(fc.compile_regex("a", FEW)), jnp.zeros((1, 2, 6)), fixed=jnp.zeros((1, 3), jnp.int32)), "fixed is"),
    ],
)  # fmt: skip
def test_mistakes_are_told(call, text):
    if text is None:
        call()
        return
    with pytest.raises(DecodeError, match=text):
        call()
