"""Mass of constraints: every sequence against sums written down by hand, importance samples against both, options, limits."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from oracles import exact_sums, hand_made
from oracles import hand_pushdown as by_hand
from oracles.toy_decoder import toy

import jax_decode
from jax_decode import DecodeError
from jax_decode.probability import sequences
from jax_decode.probability.tree import walk_tree

SIZE, LIMIT = 8, 4
TOKENS = ["", "a", "b", "ab", "ba", "aab", "abc", "c"]
"""A vocabulary in which most texts have several tokenizations."""
TEXTS = ["ab", "aab", "ba", "abc"]


class Letters:
    """The tokenizer of `TOKENS`."""

    def decode(self, ids):
        return "".join(TOKENS[i] for i in ids)


def spellings(text: str) -> list[list[int]]:
    """All tokenizations of a text."""
    found = [
        [i, *rest] for i, token in enumerate(TOKENS) if token and text.startswith(token) for rest in spellings(text[len(token) :])
    ]
    return found if text else [[]]


SMALL = {
    "1|2": [[1], [2]],
    "1|12": [[1], [1, 2]],
    "empty": [[]],
    "texts": [way for text in TEXTS for way in spellings(text)],
}
CONSTRAINTS = [hand_made.random_constraint(i, SIZE, num_nodes=6) for i in range(25)] + [
    hand_made.one_of(texts, SIZE) for texts in SMALL.values()
]
WHICH = {name: 25 + i for i, name in enumerate(SMALL)}
TABLES = jax_decode.to_device(CONSTRAINTS)
KEY = jax.random.key(0)
ROWS = {"max_prefixes": 1024}
"""With two prompts and the same tables everywhere one program does for the whole file."""


@pytest.fixture(autouse=True)
def _one_size(monkeypatch):
    """One program instead of a small and a large one."""
    monkeypatch.setattr(sequences, "_FIRST_PREFIXES", 1 << 20)


def mild(vocab_size: int, seed: int = 0):
    """A toy decoder whose distributions are not too peaked for importance sampling."""
    decoder = toy(vocab_size, seed)
    return dataclasses.replace(decoder, params=jax.tree.map(lambda x: x * 0.3, decoder.params))


def as_leaves(found, prompt: int):
    rows = [i for i in range(len(found)) if found.prompt[i] == prompt]
    probabilities = np.exp(found.raw_logprobs), np.exp(found.logprobs)
    return [
        exact_sums.Leaf(tuple(found.tokens[i].tolist()), probabilities[0][i], probabilities[1][i], bool(found.stopped[i]))
        for i in rows
    ]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(sorted(found), sorted(expected)):
        assert (a.tokens, a.stopped) == (b.tokens, b.stopped)
        np.testing.assert_allclose((a.raw, a.local), (b.raw, b.local), rtol=3e-5)


@pytest.mark.parametrize("always_stop", [False, True])
def test_every_sequence_and_its_probabilities(always_stop, exhaustive):
    decoder = toy(SIZE, seed=1)
    which = [i for i, c in enumerate(CONSTRAINTS) if c.shortest_completion < LIMIT]
    different = 0
    for i in which if exhaustive else which[::8]:
        options = {"constraint": [i, i], "max_new_tokens": [LIMIT, LIMIT - 1], "always_stop": always_stop}
        found = jax_decode.enumerate_sequences(decoder, [[1, 2], [3]], TABLES, **ROWS, **options)
        for p, prompt in enumerate(([1, 2], [3])):
            expected = exact_sums.leaves(decoder, CONSTRAINTS[i], prompt, LIMIT - p, always_stop=always_stop)
            assert_same(as_leaves(found, p), expected)
            assert np.exp(found.log_mass[p]) == pytest.approx(exact_sums.mass(expected), rel=1e-5)
            different += len(expected)
        assert np.bincount(found.prompt, found.conditional) == pytest.approx([1, 1])
        assert np.bincount(found.prompt, np.exp(found.logprobs)) == pytest.approx([1, 1], abs=1e-5)
    assert different > 500


@pytest.mark.parametrize("name", ["brackets", "counted", "twins"])
def test_stacks_counters_and_several_configurations(name, exhaustive):
    if not exhaustive:
        pytest.skip("run by --exhaustive: every kind of stack is another program")
    c, limit = {
        "brackets": (by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS), 3),
        "counted": (by_hand.counted(1, 3), 7),
        "twins": (by_hand.composed(by_hand.twins(), [b"", b"a", b"b", b"c", b"aa", b"ab", b"bb", b"cc"], stacks=2), 4),
    }[name]
    decoder = toy(c.vocab_size, seed=2)
    expected = exact_sums.leaves(decoder, c, [1], limit, max_depth=3)
    found = jax_decode.enumerate_sequences(
        decoder, [[1]], jax_decode.to_device(c), max_new_tokens=limit, max_depth=3, max_prefixes=256
    )
    assert_same(as_leaves(found, 0), expected)
    assert len(expected) > 10


def test_where_a_stop_token_counts():
    model, stop = exact_sums.ToyModel(toy(SIZE)), 0
    p1 = model.probabilities([7])
    p2, p3 = model.probabilities([7, 1]), model.probabilities([7, 2])

    def mass(name, limit=LIMIT, **options):
        both = {"constraint": [WHICH[name]] * 2, "max_new_tokens": limit}
        out = jax_decode.log_mass(toy(SIZE), [[7], [7, 1]], TABLES, **both, **ROWS, **options)
        assert out.exact
        return np.exp(out.log_mass[0])

    assert mass("1|2") == pytest.approx(p1[1] + p1[2], rel=1e-5)
    assert mass("1|2", always_stop=True) == pytest.approx(p1[1] * p2[stop] + p1[2] * p3[stop], rel=1e-5)
    assert mass("1|12") == pytest.approx(p1[1] * (p2[stop] + p2[2]), rel=1e-5)
    assert mass("1|12", limit=1) == pytest.approx(p1[1], rel=1e-5)  # cut by the limit: it counts as it stands
    assert mass("empty") == 1
    assert mass("empty", always_stop=True) == pytest.approx(p1[stop], rel=1e-5)


def test_improbable_prefixes_may_be_ignored(exhaustive):
    decoder, which = toy(SIZE, seed=1), [i for i in range(25) if CONSTRAINTS[i].shortest_completion < LIMIT]
    fewer = 0
    for i in which[:: 3 if exhaustive else 5]:
        given = {"constraint": [i, i], "max_new_tokens": LIMIT}
        every = jax_decode.enumerate_sequences(decoder, [[1, 2], [3]], TABLES, **ROWS, **given)
        some = jax_decode.enumerate_sequences(decoder, [[1, 2], [3]], TABLES, ignore_below=1e-4, **ROWS, **given)
        assert (every.ignored == 0).all()
        full, found = np.exp(every.log_mass), np.exp(some.log_mass)
        assert (found <= full * (1 + 1e-5)).all()
        assert (full <= (found + some.ignored) * (1 + 1e-5)).all()
        likely = {(p, *t.tolist()) for p, t, x in zip(every.prompt, every.tokens, every.raw_logprobs) if x > np.log(1.01e-4)}
        assert likely <= {(p, *t.tolist()) for p, t in zip(some.prompt, some.tokens)}
        fewer += len(some) < len(every)
    assert fewer > 2
    with pytest.raises(DecodeError, match="ignore_below is 2"):
        jax_decode.log_mass(decoder, [[1], [2]], TABLES, ignore_below=2, **given)
    assert "exact but for at most" in repr(jax_decode.log_mass(decoder, [[1], [2]], TABLES, ignore_below=0.5, **ROWS, **given))


@pytest.mark.exhaustive
def test_importance_samples_agree_with_the_exact_mass(exhaustive):
    """Within three standard errors; which is close enough to find a mass of another limit wrong.

    16 cases; in full 50, with 1024 samples.
    """
    number = 25 if exhaustive else 8
    decoder = mild(SIZE, seed=5)
    cases = [i for i, c in enumerate(CONSTRAINTS[:25]) if c.shortest_completion < LIMIT]
    cases = (cases * 2)[:number]
    prompts = [([1, 2], [3]) if n <= number // 2 else ([4], [5, 6, 7]) for n in range(number)]

    def exact(limit, first=number):
        parts = [
            jax_decode.log_mass(decoder, list(both), TABLES, constraint=[i, i], max_new_tokens=limit, **ROWS)
            for i, both in zip(cases[:first], prompts)
        ]
        assert all(part.exact and not part.standard_error.any() for part in parts)
        return np.concatenate([part.log_mass for part in parts])

    drawn = jax_decode.log_mass(
        decoder, [prompt for both in prompts for prompt in both], TABLES, max_prefixes=0, key=KEY, samples=1024 if exhaustive else 400,
        constraint=[i for i in cases for _ in "12"],
        max_new_tokens=LIMIT,
    )  # fmt: skip
    assert not drawn.exact
    assert (drawn.effective_sample_size > 20).all()
    error = np.expm1(drawn.log_mass - exact(LIMIT))
    certain = drawn.standard_error < 1e-4  # every sample has the same weight but for rounding
    assert (np.abs(error) < np.where(certain, 1e-4, 3 * drawn.standard_error)).all()
    assert len(error) == 2 * number
    assert (~certain).sum() > 1.6 * number
    other = exact(LIMIT - 1)
    wrong = np.abs(np.expm1(drawn.log_mass[: len(other)] - other)) > 3 * drawn.standard_error[: len(other)]
    assert wrong.sum() > 0.4 * len(other)


def test_options_sum_to_the_mass_over_all_tokenizations():
    decoder = toy(SIZE, seed=3)
    options = {"max_new_tokens": LIMIT, "constraint": [WHICH["texts"]] * 2, **ROWS}
    found = jax_decode.option_probabilities(decoder, [[1], [2, 3]], TABLES, Letters(), **options)
    assert sorted(found.texts) == sorted(TEXTS)
    assert (found.rest == -np.inf).all()
    assert found.probabilities.sum(1) == pytest.approx(np.exp(found.mass.log_mass), abs=1e-5)
    assert found.conditional.sum(1) == pytest.approx([1, 1], abs=1e-5)
    for p, prompt in enumerate(([1], [2, 3])):
        by_text: dict[str, list[float]] = {}
        for leaf in exact_sums.leaves(decoder, CONSTRAINTS[WHICH["texts"]], prompt, LIMIT):
            by_text.setdefault(Letters().decode(leaf.tokens), []).append(leaf.raw)
        assert max(map(len, by_text.values())) > 2
        assert found.probabilities[p] == pytest.approx([sum(by_text[text]) for text in found.texts], rel=1e-4)
    some = jax_decode.option_probabilities(decoder, [[1], [2, 3]], TABLES, Letters(), options=["ba", "no"], **options)
    assert some.probabilities[0] == pytest.approx([found.probabilities[0, found.texts.index("ba")], 0])
    assert some.probabilities.sum(1) + np.exp(some.rest) == pytest.approx(np.exp(some.mass.log_mass), abs=1e-5)
    assert "2 prompts, 2 texts" in repr(some)


def test_options_from_samples_sum_to_the_estimated_mass():
    decoder = mild(SIZE, seed=3)
    given = {"max_new_tokens": LIMIT}
    every, which = [[1], [2, 3]] * 25, [WHICH["texts"]] * 50
    exact = jax_decode.option_probabilities(
        decoder, every[:2], TABLES, Letters(), options=TEXTS, constraint=which[:2], **ROWS, **given
    )
    drawn = jax_decode.option_probabilities(
        decoder, every, TABLES, Letters(), options=TEXTS[:3], constraint=which, max_prefixes=0, key=KEY, samples=512, **given
    )
    assert drawn.probabilities.sum(1) + np.exp(drawn.rest) == pytest.approx(np.exp(drawn.mass.log_mass), abs=1e-9)
    means = drawn.probabilities.reshape(25, 2, 3).mean(0)
    errors = (drawn.standard_errors * drawn.probabilities).reshape(25, 2, 3)
    spread = np.sqrt((errors**2).mean(0) / 25)
    assert (np.abs(means - exact.probabilities[:, :3]) < 5 * spread).all()
    assert (spread < 0.06 * exact.probabilities[:, :3]).all()


def test_other_constraints_prompts_and_limits_cause_no_trace():
    before = walk_tree._cache_size()
    test_where_a_stop_token_counts()
    once = walk_tree._cache_size()
    assert once - before <= 2
    for i in range(8):
        prompts = [[1 + i % 3] * (1 + i), [i]]
        given = {"constraint": [i % 2 + 25, 28], "max_new_tokens": 4 + i}
        jax_decode.enumerate_sequences(toy(SIZE, seed=i), prompts, TABLES, **ROWS, **given)
    assert walk_tree._cache_size() == once


def test_texts_that_the_model_rules_out_twice_are_listed_all_the_same():
    """Two logits of -inf in a text, one of them its stop token's: its probability is 0, and it is no less in the language."""
    decoder, given = mild(SIZE), {"constraint": [25, 28], "max_new_tokens": 4} | ROWS
    ruled = dataclasses.replace(decoder, params=decoder.params | {"table": decoder.params["table"].at[:, :4].set(-np.inf)})
    plain, out = (jax_decode.enumerate_sequences(one, [[1], [2]], TABLES, **given) for one in (decoder, ruled))
    assert [t.tolist() for t in out.tokens] == [t.tolist() for t in plain.tokens]
    assert out.stopped.tolist() == plain.stopped.tolist()
    assert np.exp(out.raw_logprobs).min() == 0


def test_errors():
    decoder, given = toy(SIZE), {"max_new_tokens": 6, "constraint": [1, 1]}
    prompts = [[1], [2]]
    message = "too many token sequences to enumerate: over 1,024 prefixes.*\n  Give ignore_below"
    with pytest.raises(DecodeError, match=message):
        jax_decode.enumerate_sequences(decoder, prompts, TABLES, **ROWS, **given)
    with pytest.raises(DecodeError, match=r"too many token sequences to enumerate \(max_prefixes=1,024\)\n  Pass key="):
        jax_decode.log_mass(decoder, prompts, TABLES, **ROWS, **given)
    with pytest.raises(DecodeError, match="no constraint\n  prompt 1"):
        jax_decode.log_mass(decoder, prompts, TABLES, max_new_tokens=6, constraint=[1, None])
    with pytest.raises(DecodeError, match="there are no tables"):
        jax_decode.log_mass(decoder, prompts, None, max_new_tokens=6)
    with pytest.raises(DecodeError, match="samples is 0"):
        jax_decode.log_mass(decoder, prompts, TABLES, samples=0, **given)
    with pytest.raises(DecodeError, match="an option occurs twice\n  'ab'"):
        jax_decode.option_probabilities(decoder, prompts, TABLES, Letters(), options=["ab", "c", "ab"], **given)
    with pytest.raises(DecodeError, match="not a list of texts"):
        jax_decode.option_probabilities(decoder, prompts, TABLES, Letters(), options="ab", **given)
    with pytest.raises(DecodeError, match="the options are 5, not a list of texts"):
        jax_decode.option_probabilities(decoder, prompts, TABLES, Letters(), options=5, **given)
    with pytest.raises(DecodeError, match=r"the tokenizer \(NoneType\) has no 'decode'"):
        jax_decode.option_probabilities(decoder, prompts, TABLES, None, **given)
    with pytest.raises(DecodeError, match=r"max_prefixes is 2\.5"):
        jax_decode.log_mass(decoder, prompts, TABLES, max_prefixes=2.5, **given)
    both = jax_decode.log_mass(decoder, prompts, TABLES, max_new_tokens=4, constraint=[25, 26], **ROWS)
    assert "exact" in repr(both)
    with pytest.raises(TypeError, match="there are 2 prompts"):
        float(both)
