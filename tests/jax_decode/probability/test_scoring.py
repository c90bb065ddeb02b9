"""Scores of given sequences and texts: against sums written down by hand, and over all tokenizations."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from oracles import exact_sums
from oracles.toy import every_byte
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile import compile_choices
from fsa_compile.artifact.artifact_checks import check_contents
from fsa_compile.vocabulary import Vocabulary
from jax_decode import DecodeError
from jax_decode.probability.scoring import teacher_forced

SIZE = 16
VOCABULARY = Vocabulary.from_tokens(
    [b"", b"a", b"b", b"c", b"ab", b"ba", b"aab", b"abc", b"bb", b"aa", b"ca", b"cab", b"", b"aaa", b"cc", b"ab"], stop_ids=[0]
)
TABLES = jax_decode.to_device(
    [compile_choices(["ab", "aab", "abab", "aabca"], VOCABULARY), compile_choices(["c", "ca"], VOCABULARY)]
)
CONSTRAINTS = [compile_choices(["ab", "aab", "abab", "aabca"], VOCABULARY), compile_choices(["c", "ca"], VOCABULARY)]
STOP = 0


class Tokenizer:
    """The longest token first."""

    vocabulary = VOCABULARY

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            ids.append(
                max(
                    (i for i, t in enumerate(VOCABULARY.tokens) if t and data.startswith(t)),
                    key=lambda i: len(VOCABULARY.tokens[i]),
                )
            )
            data = data[len(VOCABULARY.tokens[ids[-1]]) :]
        return ids


def spellings(data: bytes) -> list[tuple[int, ...]]:
    """All tokenizations."""
    if not data:
        return [()]
    tokens = VOCABULARY.tokens
    return [(i, *rest) for i, t in enumerate(tokens) if t and data.startswith(t) for rest in spellings(data[len(t) :])]


def expected(model, prompt, tokens, walk=None, always_stop=False):
    """Raw and constrained log-probabilities per token, and of the stop where it counts, in float64."""
    raw, local, dead = [], [], False
    for t, token in enumerate(tokens):
        p = model.probabilities([*prompt, *tokens[:t]])
        raw.append(np.log(p[token]))
        mask = walk.allowed() if walk and not dead else np.full(len(p), not dead)
        dead = dead or not mask[token]
        local.append(-np.inf if dead else raw[-1] - np.log(p[mask].sum()))
        if walk and not dead:
            walk.advance(token)
    if walk is None or dead or not walk.accepting:
        return raw, local, 0.0, 0.0
    mask = walk.allowed()
    if not always_stop and mask.sum() == 1:
        return raw, local, 0.0, 0.0
    p = model.probabilities([*prompt, *tokens])
    return raw, local, np.log(p[STOP]), np.log(p[STOP] / p[mask].sum())


@pytest.mark.parametrize("always_stop", [False, True])
def test_every_log_probability(always_stop):
    decoder, rng = toy(SIZE, seed=1), np.random.default_rng(0)
    model = exact_sums.ToyModel(decoder)
    rows = [
        *spellings(b"aabca"),
        *spellings(b"ab"),
        (1,),
        (),
        (2, 2),
        (4, 3),
        *map(tuple, rng.integers(1, SIZE, (20, 5)).tolist()),
    ]
    out = jax_decode.score(decoder, [3, 1, 2], TABLES, tokens=rows, constraint=0, always_stop=always_stop)
    finite = 0
    for i, row in enumerate(rows):
        raw, local, raw_stop, stop = expected(model, [3, 1, 2], row, CONSTRAINTS[0].walk(), always_stop)
        np.testing.assert_allclose(out.raw_logprobs[i], raw, atol=1e-4)
        np.testing.assert_allclose(out.logprobs[i], local, atol=1e-4)
        assert (out.raw_stop_logprobs[i], out.stop_logprobs[i]) == (
            pytest.approx(raw_stop, abs=1e-4),
            pytest.approx(stop, abs=1e-4),
        )
        accepted = VOCABULARY.decode(row) in ("ab", "aab", "abab", "aabca")
        assert out.accepted[i] == accepted
        assert out.total_logprob[i] == (pytest.approx(sum(local) + stop, abs=1e-4) if accepted else -np.inf)
        assert out.raw_total_logprob[i] == pytest.approx(sum(raw) + raw_stop, abs=1e-4)
        finite += accepted
    assert finite > 12
    assert (~out.accepted).sum() > 10


def test_scores_of_generated_rows_are_those_of_the_generation(exhaustive):
    if not exhaustive:
        pytest.skip("run by --exhaustive: test_generate compares the same numbers with a replay")
    decoder = toy(SIZE, seed=2)
    prompts = [[3], [4, 5, 6]] * 4
    which = {"constraint": [0, 1] * 4, "max_new_tokens": 6}
    made = jax_decode.generate(decoder, prompts, TABLES, key=jax.random.key(0), sampler=jax_decode.Categorical(2.0), **which)
    out = jax_decode.score(decoder, prompts, TABLES, tokens=made.tokens, always_stop=True, **which)
    for a, b in ((out.logprobs, made.logprobs), (out.raw_logprobs, made.raw_logprobs)):
        np.testing.assert_allclose(np.concatenate(a), np.concatenate(b), atol=1e-4)
    np.testing.assert_allclose(out.total_logprob, made.total_logprob, atol=1e-4)
    np.testing.assert_allclose(out.raw_total_logprob, made.raw_total_logprob, atol=1e-4)
    other = jax_decode.score(decoder, prompts[::-1], TABLES, tokens=made.tokens, always_stop=True, **which)
    assert np.abs(out.raw_total_logprob - other.raw_total_logprob).max() > 0.1


def test_without_tables_and_long_sequences():
    decoder, row = toy(SIZE, seed=1), np.random.default_rng(1).integers(0, SIZE, 75).tolist()
    out = jax_decode.score(decoder, [[3]], tokens=[row, row[:40]], stop_ids=[STOP], always_stop=True)
    raw, *_ = expected(exact_sums.ToyModel(decoder), [3], row)
    np.testing.assert_allclose(out.raw_logprobs[0], raw, atol=2e-4)
    np.testing.assert_allclose(out.logprobs[1], raw[:40], atol=2e-4)
    end = np.log(exact_sums.ToyModel(decoder).probabilities([3, *row[:40]])[STOP])
    assert out.raw_stop_logprobs[1] == pytest.approx(end, abs=1e-4)


def test_a_limit_forbids_what_could_not_be_completed():
    decoder = toy(SIZE)
    rows = [(1, 2), (4,)] * 20
    free = jax_decode.score(decoder, [3], TABLES, tokens=rows, constraint=0)
    tight = jax_decode.score(decoder, [3], TABLES, tokens=rows, constraint=0, max_new_tokens=2)
    assert (free.total_logprob > -np.inf).all()
    assert tight.total_logprob[0] > free.total_logprob[0]  # fewer tokens can still be completed
    assert not tight.stopped[0]
    np.testing.assert_allclose(tight.raw_logprobs[0], free.raw_logprobs[0], atol=1e-5)


def test_texts_are_encoded_and_marginalised():
    decoder, prompt = toy(SIZE, seed=4), [3, 1]
    model = exact_sums.ToyModel(decoder)
    texts = ["ab", "aabca", "abc", "c"]
    one = jax_decode.score(decoder, prompt, TABLES, texts=texts, tokenizer=Tokenizer(), constraint=0)
    assert one.tokens[1].tolist() == Tokenizer().encode("aabca")
    out = jax_decode.score_texts(decoder, prompt, texts, VOCABULARY, TABLES, constraint=0)
    assert out.exact
    for i, text in enumerate(texts):
        ways = spellings(text.encode())
        each = [expected(model, prompt, way, CONSTRAINTS[0].walk()) for way in ways]
        assert out.tokenizations[i] == len(ways)
        total = sum(np.exp(sum(raw) + stop) for raw, _, stop, _ in each)
        assert np.exp(out.raw_logprobs[i]) == pytest.approx(total, rel=1e-4)
        accepted = text in ("ab", "aabca")
        local = sum(np.exp(sum(local) + stop) for _, local, _, stop in each) if accepted else 0
        assert np.exp(out.logprobs[i]) == pytest.approx(local, rel=1e-4)
        assert out.raw_logprobs[i] >= one.raw_total_logprob[i] - 1e-4
    assert out.raw_logprobs[1] > one.raw_total_logprob[1] + 1e-3


def test_many_tokenizations_are_sampled(exhaustive):
    if not exhaustive:
        pytest.skip("run by --exhaustive: the samples are those of test_smc, the scores those of the test above")
    decoder, prompt = toy(SIZE, seed=4), [3, 1]
    texts = ["ab", "aabca", "abc", "c"]
    exact = jax_decode.score_texts(decoder, prompt, texts, VOCABULARY, TABLES, constraint=0)
    drawn = jax_decode.score_texts(
        decoder, prompt, texts, VOCABULARY, TABLES, constraint=0, max_prefixes=0, key=jax.random.key(0), samples=1024
    )
    assert not drawn.exact
    assert drawn.standard_errors[1] > 0
    assert (np.abs(np.expm1(drawn.raw_logprobs - exact.raw_logprobs)) < 4 * drawn.standard_errors + 1e-5).all()
    np.testing.assert_allclose(drawn.logprobs, exact.logprobs, atol=0.3)


def test_tokenizations_allow_exactly_all_of_them():
    for text in ("aabca", "cab", ""):
        (c,) = jax_decode.tokenizations([text], VOCABULARY)
        check_contents(c, VOCABULARY)
        leaves = exact_sums.leaves(toy(SIZE), c, [1], 8)
        assert sorted(leaf.tokens for leaf in leaves) == sorted(spellings(text.encode()))
    real = every_byte([b"a" * n for n in range(5, 75)])  # more arcs at one byte than a list holds
    (c,) = jax_decode.tokenizations(["a" * 80 + "é"], real)
    check_contents(c, real)
    walk = c.walk()
    assert walk.allowed().sum() > 64
    fits = [i for i, t in enumerate(real.tokens) if t and (b"a" * 80).startswith(t)]
    assert np.flatnonzero(walk.allowed()).tolist() == fits
    assert walk.allowed(c.shortest_completion).sum() < len(fits)


def test_other_constraints_cause_no_trace():
    decoder = toy(SIZE)
    run = lambda i, rows: jax_decode.score(decoder, [1] * (i + 1), TABLES, tokens=rows, constraint=i % 2)  # noqa: E731
    run(0, [(1, 2), (3,), (4,)])
    before = teacher_forced._cache_size()
    for i in range(1, 6):
        run(i, [(1, 2, i), (3,) * i, (4, 4), (1,)])
    assert teacher_forced._cache_size() == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "there must be either tokens or texts"),
        ({"tokens": [[1]], "texts": ["a"]}, "there must be either tokens or texts"),
        ({"tokens": []}, r"the tokens are \[\], not a list of sequences"),
        ({"tokens": [1, 2]}, "not a list of token ids\n  sequence 0"),
        ({"tokens": [[1], [1.5]]}, "not a list of token ids\n  sequence 1"),
        ({"tokens": [[1], [2, 16]]}, "token id 16 is outside 0..15\n  position 1 of sequence 1"),
        ({"tokens": [[1], [2, 2**32]]}, "token id 4294967296 is outside 0..2147483647\n  position 1 of sequence 1"),
        ({"tokens": [[1], [2, [3]]]}, "not a list of token ids\n  sequence 1"),
        ({"texts": 5, "tokenizer": Tokenizer()}, "the texts are 5, not a list of texts"),
        ({"tokens": [[1, 2, 3]], "max_new_tokens": 2}, "the sequence has 3 tokens, the limit is 2\n  sequence 0"),
        ({"texts": "ab", "tokenizer": Tokenizer()}, "the texts are 'ab', not a list of texts"),
        ({"texts": ["ab"]}, r"the tokenizer \(NoneType\) has no 'encode'"),
        ({"prompts": [[1], [2]], "tokens": [[1]] * 3}, "there are 2 prompts for 3 sequences"),
    ],
)
def test_errors(options, text):
    with pytest.raises(DecodeError, match=text):
        jax_decode.score(toy(SIZE), **({"prompts": [1]} | options))


def test_errors_of_texts():
    with pytest.raises(DecodeError, match="no token sequence writes the text\n  text 1"):
        jax_decode.score_texts(toy(SIZE), [1], ["ab", "x"], VOCABULARY)
    with pytest.raises(DecodeError, match="not a list of texts"):
        jax_decode.tokenizations("ab", VOCABULARY)
    with pytest.raises(DecodeError, match="the texts are 5, not a list of texts"):
        jax_decode.tokenizations(5, VOCABULARY)
    with pytest.raises(DecodeError, match="there is no text"):
        jax_decode.score_texts(toy(SIZE), [1], [], VOCABULARY)
