"""Beams over sets of items: against a plain Python search, the same set as an automaton, and other neighbours."""

from __future__ import annotations

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made, searches
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile import compile_items
from jax_decode import Status, beam_search, sample_without_replacement
from jax_decode.kernels.planes import plain_log_sum
from jax_decode.tables import items as catalogue

V, BEAMS = 24, 4
PROMPTS = [[1, 2], [3], [9, 8, 7], [4], [5, 6], [7, 7]]
LIMITS = [6, 3, 5, 4, 6, 5]
"""Of the prompts; some items are longer than the limit."""


def some_items(rng: random.Random, count: int) -> list[list[int]]:
    """Items that share beginnings, some the beginnings of others: many branches at first, few later."""
    return [[rng.choice(range(1, 21 if at < 2 else 5)) for at in range(rng.randint(2, 6))] for _ in range(count)]


@pytest.fixture(scope="module")
def world():
    """Sets of items with one, two, and no stop ids, one of them as an automaton too, and another automaton; and their tables.

    Nodes of more than two children have mask rows.
    """
    rng = random.Random(4)
    items = [some_items(rng, n) for n in (60, 25, 8)]
    sets = [compile_items(x, V, stop_ids=stop) for x, stop in zip(items, [(0,), (0, 23), ()])]
    others = [hand_made.one_of(items[0], V), hand_made.random_constraint(3, V, 8)]
    others = [dataclasses.replace(c, fingerprint=sets[0].fingerprint) for c in others]
    before, catalogue.LISTED = catalogue.LISTED, 2
    try:
        return [*sets, *others], jax_decode.to_device([*sets, *others])
    finally:
        catalogue.LISTED = before


ITEMS_ALONE = [0, 1, 2, 0, 1, 2]
MIXED = [0, 4, 2, 3, None, 1]
"""Of each prompt, its constraint. Alone, sets of items are searched by their lists wherever all beams are at nodes that have one."""


@pytest.fixture(scope="module")
def searched(world):
    _, tables = world

    def run(which, penalty):
        options = {"max_new_tokens": LIMITS, "beams": BEAMS, "chunk": 2, "length_penalty": penalty}
        return beam_search(toy(V), PROMPTS, tables, constraint=which, **options)

    return {
        (name, penalty): run(which, penalty)
        for name, which in (("alone", ITEMS_ALONE), ("mixed", MIXED))
        for penalty in (0.0, 1.0)
    }


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("name", ["alone", "mixed"])
def test_a_search_is_the_plain_one(name, penalty, world, searched):
    constraints, _ = world
    which = {"alone": ITEMS_ALONE, "mixed": MIXED}[name]
    out = searched[name, penalty]
    for row, (index, limit, prompt) in enumerate(zip(which, LIMITS, PROMPTS)):
        stops = (0,) if index is None else constraints[index].stop_ids
        fresh = (lambda: None) if index is None else constraints[index].walk
        wanted = searches.beam_search(searches.toy_logits(toy(V), prompt), fresh, limit, stops, BEAMS, penalty)[:BEAMS]
        assert out.found[row] == len(wanted)
        for i, text in enumerate(wanted):
            at = row * BEAMS + i
            assert tuple(out.tokens[at].tolist()) == text.tokens
            assert (out.stop_token[at] is not None) == text.stopped
            assert out.scores[at] == pytest.approx(searches.score(text, penalty), abs=2e-4)
            assert out.status[at] in ([Status.ACCEPTED] if index is not None else [Status.FINISHED, Status.TRUNCATED])


def test_neighbours_change_no_bit(world, searched):
    """Prompts 0, 2 and 5 with the same sets, among items alone and beside automata and a row without a constraint."""
    del world
    for penalty in (0.0, 1.0):
        alone, mixed = searched["alone", penalty], searched["mixed", penalty]
        for row in (0, 2):
            for at in range(row * BEAMS, row * BEAMS + BEAMS):
                assert alone.tokens[at].tolist() == mixed.tokens[at].tolist()
                assert alone.status[at] == mixed.status[at]
                assert alone.scores[at] == mixed.scores[at]
                assert alone.logprobs[at].tolist() == mixed.logprobs[at].tolist()
                assert alone.raw_logprobs[at].tolist() == mixed.raw_logprobs[at].tolist()


def test_tables_of_items_alone_give_the_same_bits(world, searched):
    """The programs for them leave out what other constraints need; rows without a constraint are theirs, too."""
    constraints, tables = world
    before, catalogue.LISTED = catalogue.LISTED, 2
    try:
        alone = jax_decode.to_device(constraints[:3])
    finally:
        catalogue.LISTED = before
    assert alone.only_items
    assert not tables.only_items
    options = {"max_new_tokens": LIMITS, "beams": BEAMS, "chunk": 2}
    free = [0, None, 2, None, 1, 1]
    for out, wanted in [
        (beam_search(toy(V), PROMPTS, alone, constraint=ITEMS_ALONE, **options), searched["alone", 0.0]),
        (beam_search(toy(V), PROMPTS, alone, constraint=free, **options), beam_search(toy(V), PROMPTS, tables, constraint=free, **options)),
    ]:
        assert out.status == wanted.status
        assert out.padded.tolist() == wanted.padded.tolist()
        assert out.scores.tolist() == wanted.scores.tolist()
        for a, b in zip(out.logprobs + out.raw_logprobs, wanted.logprobs + wanted.raw_logprobs):
            assert a.tolist() == b.tolist()


def test_log_sums_of_rows():
    """Of ordinary rows, of some whose exponentials overflow or vanish, and of those that must be cleaned; each by itself."""
    x = np.random.default_rng(0).normal(size=(9, 50)).astype(np.float32)
    x[1], x[2], x[3], x[4], x[5, 1:] = x[1] + 90, x[2] - 90, x[3] + 3e38, x[4] * 30, -np.inf
    x[6, 7], x[7, 8], x[8] = np.nan, np.inf, -np.inf
    total = np.asarray(jax.jit(plain_log_sum)(x))
    np.testing.assert_allclose(total[:6], np.logaddexp.reduce(x[:6].astype(np.float64), 1), rtol=1e-6)
    assert np.isnan(total[6:]).all()
    for i in range(9):
        np.testing.assert_array_equal(jax.jit(plain_log_sum)(x[i : i + 1]), total[i : i + 1])


def test_log_probabilities_among_the_allowed(world, searched):
    """Over what may follow, stop ids and budgets included; the raw ones over all logits."""
    constraints, _ = world
    out = searched["alone", 0.0]
    for row, (index, limit, prompt) in enumerate(zip(ITEMS_ALONE, LIMITS, PROMPTS)):
        logits = searches.toy_logits(toy(V), prompt)
        for at in range(row * BEAMS, row * BEAMS + out.found[row]):
            walk = constraints[index].walk()
            tokens = out.tokens[at].tolist()
            for i, token in enumerate(tokens):
                x = logits(tuple(tokens[:i]))
                assert out.logprobs[at][i] == pytest.approx(x[token] - searches.log_sum(x[walk.allowed(limit - i)]), abs=1e-4)
                assert out.raw_logprobs[at][i] == pytest.approx(x[token] - searches.log_sum(x), abs=1e-4)
                walk.advance(token)


def test_draws_without_replacement_are_those_of_the_automaton(world):
    """The same set as a trie and as an automaton gives the same draws; and so do other neighbours, bit by bit."""
    _, tables = world
    keys = jax.random.split(jax.random.key(5), len(PROMPTS))
    options = {"key": keys, "max_new_tokens": LIMITS, "num_samples": BEAMS, "chunk": 2, "temperature": 1.5}
    runs = [
        sample_without_replacement(toy(V), PROMPTS, tables, constraint=which, **options)
        for which in ([0] * 6, [3] * 6, [0, 3, 0, 3, 4, 0])
    ]
    for at in range(len(runs[0].tokens)):
        assert runs[0].tokens[at].tolist() == runs[1].tokens[at].tolist()
        assert runs[0].scores[at] == pytest.approx(runs[1].scores[at], abs=1e-4)
        assert runs[0].draw_logprobs[at] == pytest.approx(runs[1].draw_logprobs[at], abs=1e-4)
        if at // BEAMS in (0, 2, 5):
            assert runs[0].tokens[at].tolist() == runs[2].tokens[at].tolist()
            assert runs[0].scores[at] == runs[2].scores[at]
            assert runs[0].logprobs[at].tolist() == runs[2].logprobs[at].tolist()


def test_impossible_and_broken_logits(world):
    """Logits of -inf leave the items to be found; a row of NaN is given up, its neighbours are not."""
    constraints, tables = world
    decoder = toy(V)
    table = decoder.params["table"].at[9].set(-jnp.inf)
    decoder = dataclasses.replace(decoder, params=decoder.params | {"table": table})
    options = {"max_new_tokens": LIMITS, "beams": BEAMS, "chunk": 2, "length_penalty": 0.0}
    out = beam_search(decoder, PROMPTS, tables, constraint=ITEMS_ALONE, **options)
    rows = slice(2 * BEAMS, 3 * BEAMS)  # the prompt with the token 9
    assert set(out.status[rows]) == {Status.ACCEPTED} or set(out.status[rows]) == {Status.NOT_A_NUMBER}
    assert out.found[[0, 1, 3, 4, 5]].min() > 0
    for at in range(rows.start, rows.start + out.found[2]):
        assert constraints[2].find(out.tokens[at]) is not None


def test_as_many_beams_as_items_give_them_all():
    """Lists alone, from the first step: every item once, in the order of its probability."""
    rng = random.Random(9)
    items = sorted({tuple(rng.choice(range(1, 6)) for _ in range(4)) for _ in range(90)})
    compiled = compile_items(items, V, stop_ids=(0,))
    out = beam_search(toy(V), [[3], [9]], jax_decode.to_device(compiled), beams=128, max_new_tokens=5)
    for row, prompt in enumerate(([3], [9])):
        wanted = searches.ranked(searches.all_texts(searches.toy_logits(toy(V), prompt), compiled.walk(), 5, (0,)), 0.0)
        assert out.found[row] == len(wanted) == len(items)
        got = [tuple(t.tolist()) for t in out.tokens[row * 128 : row * 128 + len(items)]]
        assert got == [text.tokens for text in wanted]
