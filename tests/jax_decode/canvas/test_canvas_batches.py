"""Batches of rows with different constraints, settled tokens, blocks before and tokens behind, over log-probabilities of any size: every
answer against all canvases written out.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.canvases import canvases

import fsa_compile as fc
from jax_decode import DecodeError, canvas, key_words

VOCABULARY = fc.Vocabulary.from_tokens([b"", b"a", b"b", b"ab", b"ba", b"(", b")", b"((", b"),", b",", b"1"], stop_ids=[0])
SIZE, WIDTH, LENGTH, ROWS, DEPTH = len(VOCABULARY.tokens), len(VOCABULARY.tokens) + 3, 3, 6, 3
PATTERNS = ["(a|ab)*b?", "[ab]{2,4}", "a{2,200}", "(ab|1)*,(a|b)+", "1", "[ab]*(1,)*", "a{5}"]
GRAMMARS = {
    'start: "(" start? ")" | "a"': {},
    'start: ("(" start ")")+ | "1"': {},
    'start: "a" start "a" | "b" start "b" | "a" | "b"': {"stacks": 3},
    'start: (N | "(" start ")")+\nN: /[ab]+/\n%ignore ","': {"mode": "longest"},
}
KINDS = ("usual", "-inf", "NaN", "-1e30", "lowest", "sure", "+inf", "any size", "nothing")
PRECISE = 1e3
"""Sums of float32 up to this size are exact enough to compare probabilities."""


@functools.cache
def _constraints():
    made = [fc.compile_regex(pattern, VOCABULARY) for pattern in PATTERNS]
    return made + [fc.compile_grammar(text, VOCABULARY, **given) for text, given in GRAMMARS.items()]


@functools.cache
def _tables():
    return canvas.to_canvas(_constraints(), max_depth=DEPTH)


@functools.cache
def _every(index, length, remaining):
    return canvases(_constraints()[index], length, remaining=remaining, max_depth=DEPTH)


def _rows(index, remaining, before):
    """Canvases of a constraint behind a block, all of them."""
    whole = _every(index, LENGTH + len(before), remaining)
    return whole[(whole[:, : len(before)] == np.array(before, int)).all(1)][:, len(before) :]


def logprobs_of(rng, kind):
    x = rng.normal(size=(LENGTH, WIDTH)) * rng.choice([0.3, 3, 30])
    x = (x - np.logaddexp.reduce(x, -1, keepdims=True)).astype(np.float32)
    some = rng.random(x.shape) < 0.4
    number = {"-inf": -np.inf, "NaN": np.nan, "-1e30": -1e30, "lowest": np.finfo(np.float32).min, "+inf": np.inf}.get(kind)
    if number is not None:
        x[some & ((kind != "+inf") | (rng.random(x.shape) < 0.3))] = number
    if kind == "any size":
        x = (rng.choice([-1, 1]) * 10.0 ** rng.integers(0, 38, size=x.shape)).astype(np.float32)
    return {"sure": np.full_like(x, -1e-30), "nothing": np.full_like(x, -np.inf)}.get(kind, x)


def asked_of(rng):
    """The constraint of every row, settled tokens, states behind a block, and tokens that may follow; and the blocks."""
    which, remaining = rng.integers(0, len(_constraints()), ROWS).astype(np.int32), rng.integers(0, 3, ROWS).astype(np.int32)
    before = [() for _ in range(ROWS)]
    for row in range(ROWS):
        first = _every(int(which[row]), 1, 3)
        if len(first) and rng.random() < 0.4:
            before[row] = tuple(rng.choice(first).tolist())
    block = np.array([[*own, -1][:1] for own in before], np.int32)
    x = jnp.zeros((ROWS, 1, WIDTH))
    behind = canvas.most_probable(_tables(), x, fixed=block, which=which, remaining=9).state
    state = np.where([bool(own) for own in before], behind, 1).astype(np.int32)
    fixed = np.full((ROWS, LENGTH), -1, np.int32)
    for row in range(ROWS):
        inside = _rows(int(which[row]), int(remaining[row]), before[row])
        tokens = rng.choice(inside) if len(inside) and rng.random() < 0.8 else rng.integers(0, WIDTH + 2, LENGTH)
        chosen = (rng.random(LENGTH) < 0.4) & (rng.random() < 0.5)
        fixed[row][chosen] = tokens[chosen]
    return {"fixed": fixed, "which": which, "state": state, "remaining": remaining}, before


_proposed = jax.jit(canvas.proposed)
_slope = jax.jit(lambda tables, x, asked: jax.grad(lambda x: canvas.log_mass(tables, x, **asked).sum())(x))


def answers_of(x, keys, asked):
    """Of all rows: the best, a sample, marginals, the mass, its gradient, and a proposal."""
    tables = _tables()
    proposal = _proposed(tables, x, keys, asked["fixed"], asked["which"], asked["state"], asked["remaining"])
    slope = _slope(tables, x, asked)
    best, drawn = canvas.most_probable(tables, x, **asked), canvas.sample(tables, x, keys, **asked)
    return jax.device_get((best, drawn, canvas.marginals(tables, x, **asked), canvas.log_mass(tables, x, **asked), slope, proposal))


def check_row(row, answers, x, inside, fixed):
    """One row's answers against its canvases; whether any is possible."""
    best, drawn, marginals, mass, slope, (proposed, sure, _) = answers
    inside = inside[((inside == fixed) | (fixed < 0)).all(1)]
    x = np.where(x > -np.inf, np.clip(x, -1e30, 1e30), -np.inf).astype(np.float64)
    x = np.where((fixed >= 0)[:, None], 0.0, x)
    weight = np.take_along_axis(x[None], inside[..., None], 2)[..., 0].sum(1)
    if not (weight > -np.inf).any():
        for one in (best, drawn):
            assert (one.tokens[row] == -1).all()
            assert (one.state[row], one.logprob[row], one.log_mass[row]) == (0, -np.inf, -np.inf)
        assert mass[row] == marginals.log_mass[row] == -np.inf
        assert (marginals.logprobs[row] == -np.inf).all()
        assert (slope[row] == 0).all()
        return False
    place = {tuple(tokens): i for i, tokens in enumerate(inside.tolist())}
    for one in (best, drawn):  # inside, possible, and told with its own probability
        own = weight[place[tuple(one.tokens[row].tolist())]]
        assert own > -np.inf
        np.testing.assert_allclose(one.logprob[row], own, rtol=1e-4, atol=1e-4)
        assert one.state[row] > 0
    np.testing.assert_allclose(best.logprob[row], weight.max(), rtol=1e-4, atol=1e-4)
    total = np.logaddexp.reduce(weight)
    np.testing.assert_allclose([mass[row], marginals.log_mass[row], drawn.log_mass[row]], total, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(proposed[row], drawn.tokens[row])
    assert (marginals.logprobs[row] <= 0).all()
    assert (sure[row] <= 0).all()
    if np.abs(weight[weight > -np.inf]).max() < PRECISE or (abs(total) < PRECISE and (x <= 0).all()):
        want, share = np.zeros(x.shape), np.exp(weight - total)
        for position in range(LENGTH):
            np.add.at(want[position], inside[:, position], share)
        given = np.exp(marginals.logprobs[row])
        np.testing.assert_allclose(given, want, rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(slope[row], np.where((fixed >= 0)[:, None], 0, want), rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(np.exp(sure[row]), want[np.arange(LENGTH), proposed[row]], rtol=1e-2, atol=1e-3)
    return True


def test_rows_of_a_batch_against_all_their_canvases(tally):
    for case in tally.cases(8, least=0):
        rng = np.random.default_rng(case.randrange(2**32))
        kinds = [str(rng.choice(KINDS)) for _ in range(ROWS)]
        x = np.stack([logprobs_of(rng, kind) for kind in kinds])
        asked, before = asked_of(rng)
        answers = answers_of(jnp.asarray(x), key_words(jax.random.split(jax.random.key(case.randrange(2**31)), ROWS)), asked)
        for row in range(ROWS):
            inside = _rows(int(asked["which"][row]), int(asked["remaining"][row]), before[row])
            possible = check_row(row, answers, x[row], inside, asked["fixed"][row])
            tally["possible" if possible else "impossible"] += 1
            tally["checks"] += len(inside)
    assert min(tally["possible"], tally["impossible"]) > 5


def test_improbable_beyond_all_sums_is_not_impossible():
    """Two tokens of the lowest number that a float32 holds: their sum would be -inf."""
    x = np.full((1, 2, SIZE), np.finfo(np.float32).min)
    x[..., 0] = 0
    out = canvas.most_probable(canvas.to_canvas(fc.compile_regex("ba", VOCABULARY)), jnp.asarray(x), fixed=np.array([[2, -1]]))
    assert out.tokens.tolist() == [[2, 1]]
    out = canvas.most_probable(canvas.to_canvas(fc.compile_regex("aa", VOCABULARY)), jnp.asarray(x))
    assert out.tokens.tolist() == [[1, 1]]
    assert np.isfinite(out.log_mass).all()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Extreme:
    """A model of given logits, whatever it sees; its mask is a token of its own."""

    logits: jax.Array
    mask_id: int = dataclasses.field(default=WIDTH - 1, metadata={"static": True})

    def __call__(self, prompt, tokens):
        return jnp.broadcast_to(self.logits, (*tokens.shape, WIDTH)) + 0 * tokens[..., None].astype(jnp.float32)


@pytest.mark.parametrize(("draws", "left_to_right"), [(1, False), (3, True)])
def test_no_logits_keep_a_model_from_a_text(draws, left_to_right):
    """-inf, NaN, +inf and the largest numbers: every row has a text of its constraint if any canvas has."""
    which = np.arange(len(_constraints())).repeat(2)
    for seed, kind in enumerate(["-inf", "NaN", "lowest", "+inf", "any size"]):
        logits = logprobs_of(np.random.default_rng(seed), kind)
        logits = np.concatenate([logits, logits[:1]])
        given = {"key": jax.random.key(seed), "length": LENGTH + 1, "block": 2, "steps": 2, "temperature": 0.7}
        model, prompts = Extreme(jnp.asarray(logits)), np.zeros((len(which), 1), np.int32)
        out = canvas.denoise(model, prompts, _tables(), which=which, draws=draws, left_to_right=left_to_right, **given)
        for row, index in enumerate(which):
            inside = _every(int(index), LENGTH + 1, 0).tolist()
            assert out.tokens[row].tolist() in inside if inside else (out.tokens[row] == -1).all()
        assert not np.isnan(out.log_weights).any()


@pytest.mark.parametrize("with_tables", [False, True])
def test_a_model_without_a_number_fills_nothing(with_tables):
    logits = np.zeros((LENGTH, WIDTH), np.float32)
    logits[2] = np.nan
    for draws in (1, 2):
        given = {"key": jax.random.key(0), "length": LENGTH, "steps": 2, "draws": draws}
        tables = _tables() if with_tables else None
        out = canvas.denoise(Extreme(jnp.asarray(logits)), np.zeros((3, 1), np.int32), tables, **given)
        assert (out.tokens == -1).all()


@pytest.mark.parametrize("asked", [{"state": 10**6}, {"state": [-1]}, {"remaining": -1}, {"which": 99}], ids=repr)
def test_numbers_that_are_none_of_the_tables(asked):
    """Else the nearest one would be read, and its texts would count as allowed."""
    with pytest.raises(DecodeError, match=r"is -?1|there is no|Give numbers from 0 to|is 1000000"):
        canvas.most_probable(_tables(), jnp.zeros((1, LENGTH, WIDTH)), **asked)
