"""`stream` against `generate`: the same rows, text in whole characters, and rules that cut it."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from oracles import hand_made
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile.vocabulary import Vocabulary
from jax_decode import Categorical, DecodeError, Status, StopStrings, StopWhen, TimeLimit, stream
from jax_decode.decoding import loop
from jax_decode.decoding.incremental import RowText

TOKENS = [
    b"", b"a", b"b", b"c", b"ab", b"bc", b"abc", b" ", b".", b"\n", "é".encode(), b"\xc3", b"\xa9", "€".encode(), b"\xe2", b"\x82\xac",
    b"\xe2\x82", b"\xac", "😀".encode(), b"\xf0\x9f", b"\x98\x80", b"\xff", b"c.", b".a", b"\n\n", b"a\xc3", b"\xa9b", b"x", b"y", b"", b"",
    b"zz",
]  # fmt: skip
VOCABULARY = Vocabulary.from_tokens(TOKENS, special={"<end>": 0, "<turn>": 29, "<mark>": 30}, stop_ids=[0])
SIZE = len(TOKENS)
PROMPTS = [[1, 2], [3], [7, 8, 9]]


def weak(seed=0):
    """A toy decoder with nearly equal probabilities, so that every kind of token comes."""
    decoder = toy(SIZE, seed)
    params = jax.tree.map(lambda x: x * 0.2, decoder.params)
    return jax_decode.FunctionDecoder(decoder.apply_fn, params, decoder.init_cache_fn, SIZE)


def gathered(pieces, rows):
    """The texts, and the statuses of the pieces, per row."""
    texts, statuses = [""] * rows, [[] for _ in range(rows)]
    for piece in pieces:
        texts[piece.row] += piece.text
        statuses[piece.row].append(piece.status)
    for each in statuses:
        assert each[-1] is not Status.RUNNING
        assert set(each[:-1]) <= {Status.RUNNING}
    return texts, [each[-1] for each in statuses]


CONSTRAINTS = [
    hand_made.repeated(list(range(1, SIZE)), 3, 40, SIZE),
    hand_made.one_of([[11, 12, 14, 15, 16, 17, 19, 20, 25, 26, 10], [19, 20, 11, 12, 1]], SIZE),
    hand_made.repeated([1, 2, 3], 30, 40, SIZE),
    hand_made.one_of([[1, 2, 3]], SIZE),
]
CONSTRAINTS = [dataclasses.replace(constraint, fingerprint=VOCABULARY.fingerprint) for constraint in CONSTRAINTS]
OPTIONS = {"sampler": Categorical(1.0), "num_samples": 2, "stop_ids": [0], "chunk": 4}
"""Of nearly all runs, so that they share a compilation."""


def both(which, limits=50, seed=0, **changes):
    """The stream, and what `generate` makes of the same arguments."""
    tables = jax_decode.to_device(CONSTRAINTS)
    options = OPTIONS | {"constraint": which, "max_new_tokens": limits, "key": jax.random.key(seed)}
    out = jax_decode.generate(weak(seed), PROMPTS, tables, **options)
    return stream(weak(seed), PROMPTS, tables, **({"tokenizer": VOCABULARY} | options | changes)), out


@pytest.mark.parametrize("chunk", [1, 4])
def test_the_pieces_make_the_text_of_generate(chunk):
    """Constrained and free rows; special, stop and padding ids write nothing; bytes that are no text become U+FFFD."""
    flow, out = both([0, None, None], [33, 41, 5], chunk=chunk)
    texts, statuses = gathered(flow, 6)
    assert texts == out.text(VOCABULARY) == flow.result.texts == flow.result.text()
    assert statuses == out.status == flow.result.status == flow.status
    assert [t.tolist() for t in flow.result.tokens] == [t.tolist() for t in out.tokens]
    assert flow.result.stop_token == out.stop_token
    np.testing.assert_allclose(flow.result.total_logprob, out.total_logprob, rtol=1e-5)
    assert (flow.result.padded == out.padded).all()
    assert "�" in "".join(texts)
    assert any(t in (29, 30) for row in out.tokens for t in row)
    assert not any("<" in text for text in texts)


def test_characters_arrive_whole():
    """No piece holds a part of a character, although nearly every one is cut into several tokens."""
    flow, out = both(1, chunk=1)
    pieces = list(flow)
    assert {piece.text for piece in pieces} <= {"é", "€", "😀", "a", "éb", ""}
    assert len(pieces) > 15
    assert flow.result.texts == out.text(VOCABULARY)


def test_the_first_piece_comes_after_the_first_token():
    flow, _ = both(2)
    assert len(next(flow).text) == 1
    early = flow.result
    assert early.status == [Status.STOPPED] * 6
    assert [len(t) for t in early.tokens] == [1] * 6
    assert [len(t) for t in early.texts] == [1] * 6
    assert len(list(flow)) >= 12
    assert flow.result.status == [Status.ACCEPTED] * 6
    single = stream(weak(), [1], tokenizer=VOCABULARY, max_new_tokens=2, stop_ids=[])
    list(single)
    assert single.result.text() == single.result.texts[0]


def cut_by_hand(text, strings, keep):
    """Where a text must end: character by character, the first end at which a stop string is complete."""
    for end in range(len(text) + 1):
        found = [s for s in strings if text[:end].endswith(s)]
        if found:
            return text[:end] if keep else text[: end - max(map(len, found))]
    return text


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("strings", [("ab",), ("abc", "é"), (".\n", " a", "€")])
def test_stop_strings_across_token_borders(strings, keep):
    """Against a search in the finished text of `generate`; nothing that is cut was ever shown."""
    stopped = 0
    for seed in range(6):
        flow, out = both([0, 0, None], seed=seed, stopping=StopStrings(*strings, keep=keep))
        texts, statuses = gathered(flow, 6)
        result = flow.result
        for row, whole in enumerate(out.text(VOCABULARY)):
            want, every, tokens = cut_by_hand(whole, strings, keep), out.tokens[row].tolist(), result.tokens[row].tolist()
            assert texts[row] == want == result.texts[row]
            if statuses[row] is not Status.STOPPED:
                assert statuses[row] is out.status[row]
                assert want == whole
                assert tokens == every
                continue
            assert any(s in whole for s in strings)
            n = len(tokens)
            assert tokens == every[:n]
            assert want.startswith(VOCABULARY.decode(tokens))
            if "\ufffd" not in want:
                best = max(i for i in range(len(every) + 1) if want.startswith(VOCABULARY.decode(every[:i])))
                assert VOCABULARY.decode(tokens) == VOCABULARY.decode(every[:best])
            assert len(result.logprobs[row]) == len(result.raw_logprobs[row]) == n
            assert result.stop_token[row] is None
            assert result.stop_logprobs[row] == 0
        stopped += statuses.count(Status.STOPPED)
        assert result.padded.shape == (6, max(1, *result.lengths))
    assert 3 < stopped < 36


def test_a_row_that_is_stopped_stops_on_the_device_and_its_neighbours_go_on():
    flow, plain = both(2, stopping=[StopWhen(lambda row, text: row == 1 and len(text) >= 9)])
    texts, statuses = gathered(flow, 6)
    assert statuses == [Status.STOPPED if row == 1 else Status.ACCEPTED for row in range(6)]
    assert len(texts[1]) == 9
    assert texts[1:2] + texts[2:] == [texts[1], *plain.text(VOCABULARY)[2:]]
    assert texts[0] == plain.text(VOCABULARY)[0]
    assert int((np.asarray(flow._carry.tokens)[1] >= 0).sum()) == 9


@pytest.mark.parametrize(
    ("stopping", "status", "text"),
    [
        (StopStrings("abc", keep=True), Status.ACCEPTED, "abc"),
        (StopStrings("abc"), Status.STOPPED, ""),
        (StopStrings("c"), Status.STOPPED, "ab"),
        (StopStrings("cc"), Status.ACCEPTED, "abc"),
        (StopWhen(lambda row, text: text == "abc"), Status.ACCEPTED, "abc"),
    ],
)
def test_a_rule_that_keeps_all_of_a_complete_text_leaves_its_status(stopping, status, text):
    flow, _ = both(3, stopping=stopping)
    assert gathered(flow, 6) == ([text] * 6, [status] * 6)
    assert flow.result.status == [status] * 6


def test_the_time_limit_ends_every_row():
    ticks = iter(range(100))
    flow, _ = both(2, stopping=(TimeLimit(3), StopStrings("zz")), clock=lambda: next(ticks))
    texts, statuses = gathered(flow, 6)
    assert statuses == [Status.STOPPED] * 6
    assert [len(t) for t in texts] == [9] * 6  # looked at after 1, 5 and 9 tokens
    assert flow.result.texts == texts


class Plain:
    """A tokenizer with `decode` only; bytes that are no text become U+FFFD."""

    def decode(self, ids):
        return b"".join(TOKENS[i] for i in ids).decode("utf-8", errors="replace")


def test_a_tokenizer_that_only_decodes():
    texts = [gathered(both(0, tokenizer=tokenizer)[0], 6)[0] for tokenizer in (Plain(), VOCABULARY)]
    assert texts[0] == texts[1]


def test_random_tokens_spell_what_decoding_at_once_spells():
    rng = np.random.default_rng(0)
    for _ in range(300):
        ids, row = rng.integers(0, SIZE + 2, 12).tolist(), RowText(VOCABULARY)
        seen = [""]
        for token in ids:
            row.feed(token)
            assert row.text.startswith(seen[-1])
            seen.append(row.text)
        row.finish()
        assert row.text == VOCABULARY.decode([i for i in ids if i < SIZE])
        for characters in range(len(row.text) + 1):
            n = row.tokens_within(characters)
            assert row.text[:characters].startswith(VOCABULARY.decode([i for i in ids[:n] if i < SIZE]))


def test_streams_share_the_programs_of_generate():
    both(0)
    before = loop.prefill._cache_size(), loop.decode._cache_size()
    for seed in range(3):
        list(both([seed, 1, None], 60 - seed, seed=seed, stopping=StopStrings("a"))[0])
    assert (loop.prefill._cache_size(), loop.decode._cache_size()) == before


def test_a_restored_model_has_one_program():
    """Its parameters are committed to a device, and so is all that is made of them: the second chunk is as the first."""
    decoder = jax.device_put(weak(), jax.local_devices()[0])
    before, tables = loop.decode._cache_size(), jax_decode.to_device(CONSTRAINTS)
    flow = stream(decoder, PROMPTS, tables, tokenizer=VOCABULARY, **OPTIONS, constraint=[0, 0, 0], max_new_tokens=40, key=jax.random.key(0))
    texts, _ = gathered(flow, 6)
    assert loop.decode._cache_size() == before + 1
    assert texts == both([0, 0, 0], 40)[1].text(VOCABULARY)


ERRORS = {
    "no string": (lambda: StopStrings(), r"the stop strings are \(\)"),
    "empty string": (lambda: StopStrings("a", ""), r"the stop strings are \('a', ''\)"),
    "time": (lambda: TimeLimit(0), "the time limit is 0"),
    "rule": (lambda: stream(toy(SIZE), [1], tokenizer=VOCABULARY, max_new_tokens=3, stopping="ab"), "'ab' is no stopping rule"),
    "tokenizer": (lambda: stream(toy(SIZE), [1], tokenizer=None, max_new_tokens=3), "the tokenizer has no 'decode'"),
    "key": (
        lambda: stream(toy(SIZE), [1], tokenizer=VOCABULARY, max_new_tokens=3, sampler=Categorical(), stop_ids=[]),
        "sampling needs a key",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, text = ERRORS[name]
    with pytest.raises(DecodeError, match=text):
        call()
