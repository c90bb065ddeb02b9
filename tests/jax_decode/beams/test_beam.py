"""Beam search against enumeration and a plain Python search; sampling without replacement against exact inclusion probabilities."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import jax
import numpy as np
import pytest
from oracles import hand_made, searches
from oracles import hand_pushdown as by_hand
from oracles.toy_decoder import toy

import jax_decode
from jax_decode import DecodeError, Status, beam_search, sample_without_replacement
from jax_decode.beams import beam_loop
from jax_decode.beams.ranking import Best

SIZE = len(by_hand.BRACKET_TOKENS)
TWIN_TOKENS = [b"", b"a", b"b", b"c", b"aa", b"ab", b"bb", b"cc", b"abb", b"aabb", b"aaa", b"ccc", b"ac", b"aac"]
BRACKETS = by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS)


def over_all(constraint, stop_ids=None):
    """The constraint over the vocabulary of the brackets, where every id it does not know is forbidden."""
    rows = np.zeros((constraint.num_rows, (SIZE + 31) // 32), np.uint32)
    rows[:, : constraint.rows.shape[1]] = constraint.rows
    table = np.zeros((len(constraint.increments), SIZE), np.uint16)
    table[:, : constraint.vocab_size] = constraint.increments
    changes = {} if stop_ids is None else {"stop_ids": stop_ids}
    return dataclasses.replace(
        constraint, vocab_size=SIZE, rows=rows, increments=table, fingerprint=BRACKETS.fingerprint, **changes
    )


CASES = {
    "regular": (over_all(hand_made.random_constraint(5, 8, 6, stop_ids=(0, 3))), 4),
    "brackets": (BRACKETS, 3),
    "two stacks": (over_all(by_hand.composed(by_hand.twins(), TWIN_TOKENS, stacks=2)), 5),
    "counted": (over_all(by_hand.counted(2, 3)), 6),
    "words": (over_all(hand_made.one_of([[1], [1, 2], [3, 2], [2, 2, 2], [5, 4, 3]], 8)), 6),
    "no stop ids": (over_all(hand_made.one_of([[1], [1, 2], [3, 2], [2, 2, 2]], 8, stop_ids=())), 4),
}
PROMPT = [1, 2]
PLAIN = [
    hand_made.random_constraint(5, 64, 6),
    hand_made.one_of([[1, 2], [3], [4, 4, 4]], 64),
    hand_made.repeated(range(1, 6), 1, 200, 64),
    hand_made.one_of([[2, 3, 2], [3, 3, 3, 3]], 64),
    hand_made.random_constraint(6, 64, 8, stop_ids=(0,)),
]
OPTIONS = {"beams": 3, "chunk": 4}
"""Of all searches among `PLAIN`, so that they share a compilation."""


def texts_of(name, penalty, decoder):
    constraint, limit = CASES[name]
    logits = searches.toy_logits(decoder, PROMPT)
    return searches.ranked(searches.all_texts(logits, constraint.walk(64), limit, constraint.stop_ids), penalty)


def check(out, wanted, penalty, row=0):
    """The hypotheses of one prompt are the wanted texts, in order, with their log-probabilities; the rest are absent."""
    n = out.num_return
    for i, at in enumerate(range(row * n, row * n + n)):
        if i >= len(wanted):
            assert out.status[at] is Status.ABSENT
            assert len(out.tokens[at]) == 0
            assert out.scores[at] == -np.inf
            continue
        text = wanted[i]
        assert tuple(out.tokens[at].tolist()) == text.tokens
        assert (out.stop_token[at] is not None) == text.stopped
        assert out.scores[at] == pytest.approx(searches.score(text, penalty), abs=2e-4)
        assert out.raw_total_logprob[at] == pytest.approx(text.logprob, abs=2e-4)
    assert out.found[row] == min(n, len(wanted))


@pytest.fixture(scope="module")
def every_text(exhaustive):
    """Beam searches with more beams than there are texts, of all cases side by side.

    Two stacks make the compilation twice as long, so they are left to the exhaustive run; `test_custom_loop` forks them always.
    """
    names = [name for name in CASES if exhaustive or name != "two stacks"]
    tables = jax_decode.to_device([CASES[name][0] for name in names])
    limits = [CASES[name][1] for name in names]

    def run(penalty):
        prompts = [PROMPT] * len(names)
        return beam_search(toy(SIZE), prompts, tables, beams=160, max_new_tokens=limits, length_penalty=penalty)

    return names, {penalty: run(penalty) for penalty in (0.0, 1.0, -1.0)}


@pytest.mark.parametrize("penalty", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("name", CASES)
def test_with_enough_beams_the_list_is_the_exact_one(name, penalty, every_text):
    """Every text of the language once, in the exact order, and nothing else: further places are marked absent."""
    names, runs = every_text
    if name not in names:
        pytest.skip("run with --exhaustive")
    wanted, row, out = texts_of(name, penalty, toy(SIZE)), names.index(name), runs[penalty]
    assert 2 < len(wanted) < 160
    check(out, wanted, penalty, row)
    rows = slice(row * 160, row * 160 + 160)
    assert out.status[rows] == [Status.ACCEPTED] * len(wanted) + [Status.ABSENT] * (160 - len(wanted))
    assert len({tuple(tokens.tolist()) for tokens in out.tokens[rows][: len(wanted)]}) == len(wanted)


def plain_search(which, limit, penalty, prompt, decoder, beams=3):
    logits = searches.toy_logits(decoder, prompt)
    fresh = (lambda: None) if which is None else PLAIN[which].walk
    return searches.beam_search(logits, fresh, limit, (0,), beams, penalty)


@pytest.mark.parametrize(("seed", "penalty"), [(1, 0.0), (2, 0.7), (3, 2.0), (4, -0.5)])
def test_a_batch_is_the_plain_searches(seed, penalty):
    """Few beams, several constraints, limits and none side by side: each prompt's list is its own plain search."""
    prompts, which, limits = [[1, 2], [3], [9, 8, 7], [4], [5, 6]], [0, 0, 1, None, 2], [9, 6, 4, 5, 150]
    decoder = toy(64, seed)
    tables = jax_decode.to_device(PLAIN)
    out = beam_search(
        decoder, prompts, tables, constraint=which, max_new_tokens=limits, stop_ids=[0], length_penalty=penalty, **OPTIONS
    )
    for row, case in enumerate(zip(which, limits, prompts)):
        index, limit, prompt = case
        if row < 4 or penalty <= 0:  # the long one only where it stops early
            check(out, plain_search(index, min(limit, 24), penalty, prompt, decoder), penalty, row)
    assert set(out.status[9:12]) <= {Status.FINISHED, Status.TRUNCATED}
    assert out.found.tolist() == [3] * 5


def test_random_constraints_limits_and_models(exhaustive):
    """With ties and with tokens that the model all but forbids: scores are those of the plain search, and where they tell texts
    apart, so are the texts."""
    for seed in range(400 if exhaustive else 6):
        rng = np.random.default_rng(seed)
        stops = [hand_made.random_constraint(int(rng.integers(1 << 20)), 64, int(rng.integers(2, 8)), fan=2) for _ in range(5)]
        which, penalty = rng.integers(5, size=5).tolist(), float(rng.choice([0.7, 1.0, -0.5, 2.5]))
        limits = [max(1, int(stops[w].distance[stops[w].start])) + int(rng.integers(4)) for w in which]
        decoder = toy(64, seed)
        table = decoder.params["table"].at[:, int(rng.integers(64))].set(-1e4)
        decoder = changed(decoder, table=[table, table.round(0), table * 8][seed % 3])
        prompts = rng.integers(64, size=(5, 2)).tolist()
        options = OPTIONS | {"constraint": which, "max_new_tokens": limits, "length_penalty": penalty}
        out = beam_search(decoder, prompts, jax_decode.to_device(stops), **options)
        for row, (index, limit, prompt) in enumerate(zip(which, limits, prompts)):
            logits = searches.toy_logits(decoder, prompt)
            wanted = searches.beam_search(logits, stops[index].walk, limit, (0,), 3, penalty)[:3]
            scores = [searches.score(text, penalty) for text in wanted]
            found = out.scores[3 * row : 3 * row + len(wanted)]
            np.testing.assert_allclose(found, scores, rtol=3e-4, atol=3e-4)
            assert out.found[row] == len(wanted)
            for i, text in enumerate(wanted):
                if sum(abs(other - scores[i]) < 1e-2 * (1 + abs(other)) for other in scores) == 1:
                    assert tuple(out.tokens[3 * row + i].tolist()) == text.tokens


@pytest.mark.exhaustive
@pytest.mark.parametrize("beams", [1, 2, 5])
def test_fewer_beams_with_stacks_are_the_plain_search(beams, exhaustive):
    if not exhaustive:
        pytest.skip("compiles a program of two stacks per number of beams")
    tables, limits = jax_decode.to_device([c for c, _ in CASES.values()]), [limit + 4 for _, limit in CASES.values()]
    for seed, penalty in ((1, 0.0), (2, 0.7), (3, 2.0), (4, -0.5)):
        decoder = toy(SIZE, seed)
        logits = searches.toy_logits(decoder, PROMPT)
        out = beam_search(decoder, [PROMPT] * len(CASES), tables, beams=beams, max_new_tokens=limits, length_penalty=penalty)
        for row, (constraint, limit) in enumerate(CASES.values()):
            fresh = lambda c=constraint: c.walk(64)  # noqa: E731
            check(out, searches.beam_search(logits, fresh, limit + 4, constraint.stop_ids, beams, penalty), penalty, row)


def test_a_prompt_does_not_see_its_neighbours():
    tables = jax_decode.to_device(PLAIN)
    options = OPTIONS | {"max_new_tokens": 180}
    one = beam_search(toy(64), [[1], [2, 3], [4], [5], [6]], tables, constraint=[0, 4, 1, 2, 3], **options)
    other = beam_search(toy(64), [[2, 3], [7], [8], [4], [4]], tables, constraint=[4, 2, 2, 1, 0], **options)
    assert [t.tolist() for t in one.tokens[3:9]] == [t.tolist() for t in other.tokens[:3] + other.tokens[9:12]]


def test_without_tables():
    decoder = toy(10, 3)
    out = beam_search(decoder, [PROMPT, [4]], beams=3, max_new_tokens=6, stop_ids=[0, 1])
    for row, prompt in enumerate([PROMPT, [4]]):
        check(out, searches.beam_search(searches.toy_logits(decoder, prompt), lambda: None, 6, (0, 1), 3, 0.0), 0.0, row)


def test_constrained_log_probabilities_and_the_end(every_text):
    """Per token among the allowed ones, and the end with the mass of both stop ids."""
    constraint, limit = CASES["regular"]
    out, logits = every_text[1][0.0], searches.toy_logits(toy(SIZE), PROMPT)
    for row in range(20):
        tokens, walk, total = out.tokens[row].tolist(), constraint.walk(), 0.0
        for i, token in enumerate(tokens):
            x, allowed = logits(tuple(tokens[:i])), walk.allowed(limit - i)
            assert out.logprobs[row][i] == pytest.approx(x[token] - searches.log_sum(x[allowed]), abs=1e-4)
            total += x[token] - searches.log_sum(x[allowed])
            walk.advance(token)
        if out.stop_token[row] is not None:
            x = logits(tuple(tokens))
            total += searches.log_sum(x[list(constraint.stop_ids)]) - searches.log_sum(x[walk.allowed(limit - len(tokens))])
        assert out.total_logprob[row] == pytest.approx(total, abs=2e-4)


def changed(decoder, **params):
    return dataclasses.replace(decoder, params=decoder.params | params)


def test_impossible_yet_allowed_tokens_are_found_and_nothing_else():
    """A model that gives -inf or NaN to everything allowed: the language's texts all the same."""
    params = toy(64).params
    bias = params["bias"].at[2].set(-np.inf).at[3].set(np.nan)
    decoder = changed(toy(64), table=params["table"] * 0, bias=bias)
    out = beam_search(
        decoder, [PROMPT] * 5, jax_decode.to_device(PLAIN), constraint=3, max_new_tokens=180, length_penalty=-1.0, **OPTIONS
    )
    assert {tuple(t.tolist()) for t in out.tokens[:2]} == {(2, 3, 2), (3, 3, 3, 3)}
    assert out.status == [Status.ACCEPTED, Status.ACCEPTED, Status.ABSENT] * 5


def test_the_search_stops_when_nothing_can_improve(monkeypatch):
    """A model that likes to end: far fewer steps than the limit, and the list is that of a search without a bound."""
    decoder = changed(toy(64, 2), table=toy(64, 2).params["table"].at[:, 0].add(9.0))
    steps, program = [], beam_loop.search

    def counted(*args, **kwargs):
        texts = program(*args, **kwargs)
        steps.append(int(texts.steps))
        return texts

    monkeypatch.setattr(beam_loop, "search", counted)
    for penalty, most in ((0.0, 16), (-1.0, 16)):
        out = beam_search(
            decoder,
            [PROMPT, [5], [6], [7], [8]],
            jax_decode.to_device(PLAIN),
            constraint=2,
            max_new_tokens=180,
            length_penalty=penalty,
            **OPTIONS,
        )
        assert steps.pop() <= most
        for row, prompt in enumerate([PROMPT, [5]]):
            check(out, plain_search(2, 20, penalty, prompt, decoder), penalty, row)


@pytest.mark.parametrize("penalty", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_the_bound_is_never_below_a_score_that_can_be_reached(penalty):
    """And is reached: by a text of probability one from here on, of the least or the most length."""
    ranking = Best(np.float32(penalty))
    for total in (-0.1, -3.0, -80.0):
        bound = float(ranking.bound(np.float32(total), np.int32(4), np.int32(30)))
        scores = [float(ranking.score(np.float32(total + more), np.int32(n))) for n in range(4, 31) for more in (0, -0.5, -9)]
        assert bound == max(scores)


HOST = ("callback", "infeed", "outfeed", "send(", "recv(", "stablehlo.send", "stablehlo.recv", "host_transfer")


def test_no_trace_for_other_constraints_and_no_host_inside(monkeypatch):
    def run(seed):
        mixed = [*PLAIN[:2], hand_made.repeated(range(1, 5 + seed), 1 + seed % 3, 200 - seed, 64), *PLAIN[3:]]
        prompts = [list(range(1, 2 + seed)), *[[5]] * 4]
        options = OPTIONS | {"max_new_tokens": 170 + seed, "length_penalty": (seed + 1) / 9, "constraint": [2, seed % 5, 1, 1, 1]}
        return beam_search(toy(seed=seed), prompts, jax_decode.to_device(mixed), **options)

    program, called = beam_loop.search, {}

    def wrapped(*args, **kwargs):
        called["shapes"], called["options"] = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args), kwargs
        with jax.transfer_guard("disallow"):
            return program(*args, **kwargs)

    monkeypatch.setattr(beam_loop, "search", wrapped)
    run(0)
    size = program._cache_size()
    for seed in range(1, 6):
        run(seed)
    assert program._cache_size() == size
    text = program.lower(*called["shapes"], **called["options"]).as_text()
    assert [word for word in HOST if word in text] == []


def test_texts_are_lists_without_the_absent_ones():
    class Letters:
        def decode(self, ids):
            return "".join(chr(64 + t) for t in ids)

    out = beam_search(
        toy(64), [[1], [2], [3], [4], [5]], jax_decode.to_device(PLAIN), constraint=3, max_new_tokens=180, **OPTIONS
    )
    assert [sorted(texts) for texts in out.text(Letters())] == [["BCB", "CCCC"]] * 5
    assert out.found.tolist() == [2] * 5
    assert "ABSENT" in repr(out)


# Sampling without replacement


def inclusion(probabilities, k):
    """Probability that each item is among the first k draws without replacement, exactly."""
    out = np.zeros(len(probabilities))
    for order in itertools.permutations(range(len(probabilities)), k):
        left, p = 1.0, 1.0
        for item in order:
            p *= probabilities[item] / left
            left -= probabilities[item]
        out[list(order)] += p
    return out


def exact(constraint, limit, decoder, temperature):
    """Every text and the probability with which plain constrained sampling at a temperature draws it."""
    logits = searches.toy_logits(decoder, PROMPT)
    out = {}

    def grow(walk, tokens, p):
        x, allowed = logits(tokens), walk.allowed(limit - len(tokens)).copy()
        stops = [s for s in constraint.stop_ids if allowed[s]]
        allowed[list(constraint.stop_ids)] = False
        follow = np.flatnonzero(allowed)
        weights = np.append(x[follow], searches.log_sum(x[stops])) / temperature
        weights = np.exp(weights - searches.log_sum(weights))
        if stops:
            out[tokens] = p * weights[-1]
        for token, w in zip(follow.tolist(), weights):
            longer = (*tokens, token)
            if len(longer) == limit:
                out[longer] = p * w
                continue
            walk.advance(token)
            grow(walk, longer, p * w)
            walk.rewind(1)

    grow(constraint.walk(), (), 1.0)
    return out


EIGHT = hand_made.one_of([[1], [1, 2], [1, 3], [2], [2, 2, 2], [3, 4], [3, 5, 6], [7]], 8)
TWO = hand_made.one_of([[4, 4], [5]], 8)


def test_draws_without_replacement_have_the_exact_inclusion_probabilities():
    """3 of 8 texts, 2,500 times: every text's frequency within 4.5 standard errors, as first draw and among the three.

    And each prompt's draws depend on its own key alone; two prompts whose language has two texts get both, marked as all.
    """
    n, k, limit, temperature = 2_500, 3, 5, 1.6
    decoder = changed(toy(8, 11), **jax.tree.map(lambda x: x * 0.4, toy(8, 11).params))
    want = exact(EIGHT, limit, decoder, temperature)
    texts, p = list(want), np.array(list(want.values()))
    assert len(texts) == 8
    assert p.sum() == pytest.approx(1)
    tables, keys = jax_decode.to_device([EIGHT, TWO]), jax.random.split(jax.random.key(1), n + 2)

    def run(keys, which):
        return sample_without_replacement(
            decoder,
            [PROMPT] * (n + 2),
            tables,
            key=keys,
            num_samples=k,
            max_new_tokens=limit,
            temperature=temperature,
            constraint=which,
        )

    out = run(keys, [0] * n + [1, 1])
    rows = [tuple(tokens.tolist()) for tokens in out.tokens]
    assert all(len(set(rows[i : i + k])) == k for i in range(0, n * k, k))
    assert out.found.tolist() == [3] * n + [2, 2]
    assert [set(rows[i : i + 2]) for i in (n * k, n * k + 3)] == [{(4, 4), (5,)}] * 2
    assert out.status[n * k + 2] is out.status[-1] is Status.ABSENT
    for counts, expected in ((Counter(rows[: n * k]), inclusion(p, k)), (Counter(rows[: n * k : k]), p)):
        got = np.array([counts[text] for text in texts]) / n
        assert (np.abs(got - expected) < 4.5 * np.sqrt(expected * (1 - expected) / n) + 1e-4).all(), (got, expected)
    assert (np.diff(out.scores[: n * k].reshape(n, k), axis=1) <= 0).all()
    for row in range(50):
        assert out.draw_logprobs[row] == pytest.approx(np.log(want[rows[row]]), abs=1e-3)
    turned = [tuple(t.tolist()) for t in run(keys[::-1], [1, 1] + [0] * n).tokens]
    assert [turned[i * k : i * k + k] for i in range(n + 1, 1, -1)] == [rows[i * k : i * k + k] for i in range(n)]


ERRORS = {
    "beams": ({"beams": 0}, "the number of beams is 0"),
    "return": ({"num_return": 5}, "num_return is 5, more than the 4 beams"),
    "penalty": ({"length_penalty": float("nan")}, "the length_penalty is nan"),
    "penalty range": ({"length_penalty": 6.0}, "the length_penalty is 6.0"),
    "limit": ({"max_new_tokens": 2}, "below the number of tokens of the shortest text"),
    "chunk": ({"chunk": 0}, "chunk is 0"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    changes, text = ERRORS[name]
    tables = jax_decode.to_device(hand_made.repeated(range(1, 6), 3, 5, 8))
    with pytest.raises(DecodeError, match=text):
        beam_search(toy(8), [1], tables, **({"beams": 4, "max_new_tokens": 9} | changes))


def test_beams_that_cannot_be_numbered():
    with pytest.raises(DecodeError, match="more places than a program can number"):
        beam_search(toy(257), [1], None, beams=1 << 24, max_new_tokens=2, stop_ids=[0])
