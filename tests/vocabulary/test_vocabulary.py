"""`Vocabulary`: exact bytes, validation, fingerprint."""

from __future__ import annotations

import gc
import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsa_compile.artifact.known_vocabularies import recall, remember
from fsa_compile.errors import ConstraintError, TokenizerError
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary import MAX_TOKEN_BYTES, MAX_TOKENS

TOKENS = [b"a", b"b", b"ab", b"\xff", "é".encode()[:1], b"a", b"", b""]


def make(**changes):
    options = {"special": {"<eos>": 6, "<bos>": 7}, "stop_ids": [6], "bos_id": 7} | changes
    return Vocabulary.from_tokens(options.pop("tokens", TOKENS), **options)


def test_fields():
    vocabulary = make()
    assert vocabulary.tokens == tuple(TOKENS)
    assert vocabulary.size == vocabulary.width == 8
    assert dict(vocabulary.special) == {"<eos>": 6, "<bos>": 7}
    assert vocabulary.stop_ids == (6,)
    assert vocabulary.bos_id == 7
    assert vocabulary.logits_width is None


def test_frozen():
    vocabulary = make()
    with pytest.raises(AttributeError):
        vocabulary.stop_ids = (1,)
    with pytest.raises(TypeError):
        vocabulary.special["<x>"] = 1
    bytes_, offsets = vocabulary.packed
    with pytest.raises(ValueError, match="read-only"):
        bytes_[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        offsets[0] = 1


def test_stop_ids_are_sorted_and_distinct():
    assert make(stop_ids=[7, 6, 7]).stop_ids == (6, 7)


def test_decode_drops_special_and_padding():
    vocabulary = make(logits_width=10)
    assert vocabulary.width == 10
    assert vocabulary.decode_bytes([0, 6, 1, 9, 3]) == b"ab\xff"
    assert vocabulary.decode([0, 4, 7]) == "a\ufffd"
    assert vocabulary.decode_bytes(np.array([2, 2])) == b"abab"
    assert vocabulary.decode([]) == ""


@settings(deadline=None)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=30).filter(any), st.data())
def test_packed_holds_every_token(tokens, data):
    vocabulary = Vocabulary.from_tokens(tokens)
    joined, offsets = vocabulary.packed
    assert [joined[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == tokens
    ids = data.draw(st.lists(st.integers(0, len(tokens) - 1), max_size=8))
    assert vocabulary.decode_bytes(ids) == b"".join(tokens[i] for i in ids)


def test_fingerprint_tells_different_vocabularies_apart():
    variants = [
        make(),
        make(tokens=[*TOKENS, b""]),
        make(tokens=[b"b", b"a", *TOKENS[2:]]),
        make(tokens=[b"ab", b"b", b"a", *TOKENS[3:]]),
        make(tokens=[b"aa", b"b", b"b", *TOKENS[3:]]),
        make(stop_ids=[]),
        make(stop_ids=[7]),
        make(stop_ids=[6, 7]),
        make(special={"<eos>": 6}),
        make(special={}),
    ]
    assert len({v.fingerprint for v in variants}) == len(variants)
    assert len({make().fingerprint, make(logits_width=64).fingerprint, make(bos_id=None).fingerprint}) == 1
    renamed = make(special={"</s>": 6, "<s>": 7})
    assert renamed.fingerprint == make().fingerprint
    assert renamed != make()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3), min_size=2, max_size=6).filter(any))
def test_fingerprint_is_that_of_the_tokens_and_not_of_their_concatenation(tokens):
    moved = [tokens[0] + tokens[1], b"", *tokens[2:]]
    same = Vocabulary.from_tokens(tokens).fingerprint == Vocabulary.from_tokens(moved).fingerprint
    assert same == (moved == tokens)


def test_fingerprint_is_the_same_in_another_process():
    code = (
        "from fsa_compile.vocabulary.vocabulary import Vocabulary;"
        f"print(Vocabulary.from_tokens({TOKENS!r}, special={{'<bos>': 7, '<eos>': 6}}, stop_ids=[6]).fingerprint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == make().fingerprint


def test_fingerprint_is_stable_across_versions():
    """Artifacts saved by an earlier version name it."""
    assert make().fingerprint == "2d82307450741f4ab4fc9b30d6e984aa78e8356bb4ffd534b0dc4c6d5ca08bc0"


def test_fingerprint_is_computed_once():
    vocabulary = make()
    assert vocabulary.fingerprint is vocabulary.fingerprint


def test_equality_hash_and_pickle():
    vocabulary = make(logits_width=12)
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)
    assert again.fingerprint == vocabulary.fingerprint
    assert vocabulary != make()
    assert vocabulary != TOKENS
    assert "size=8" in repr(vocabulary)
    assert vocabulary.fingerprint[:12] in repr(vocabulary)


def test_with_logits_width():
    wide = make().with_logits_width(16)
    assert wide.width == 16
    assert wide.fingerprint == make().fingerprint
    assert wide.with_logits_width(None) == make()


WRONG = {
    "str": ({"tokens": "abc"}, "the tokens are one str, not a list of bytes"),
    "bytes": ({"tokens": b"abc"}, "the tokens are one bytes"),
    "number": ({"tokens": 7}, "the tokens are one int"),
    "text token": ({"tokens": [b"a", "b"]}, r"a token is str, not bytes\n  tokens\[1\]\n  Encode text"),
    "bytearray": ({"tokens": [bytearray(b"a")]}, "a token is bytearray"),
    "no tokens": ({"tokens": [], "special": {}, "stop_ids": [], "bos_id": None}, "no token that writes text"),
    "no text": ({"tokens": [b""] * 8}, "no token that writes text"),
    "long token": ({"tokens": [b"a", b"x" * (MAX_TOKEN_BYTES + 1)]}, r"longer than allowed.*\n  tokens\[1\]"),
    "stop out of range": (
        {"stop_ids": [8]},
        r"stop id 8 is outside the vocabulary of 8 ids\n  Give an id from 0",
    ),
    "negative stop": ({"stop_ids": [-1]}, "stop id -1 is outside"),
    "stop is text": ({"stop_ids": [2]}, r"stop id 2 writes the text b'ab'\n  tokens\[2\]\n.*put b\"\" there"),
    "stop is a bool": ({"stop_ids": [True]}, "the stop id is True, not an integer"),
    "stop is a float": ({"stop_ids": [6.0]}, "the stop id is 6.0, not an integer"),
    "stops no list": ({"stop_ids": 6}, "the stop ids are 6, not a list"),
    "stops without end": ({"stop_ids": itertools.repeat(6)}, "there are over 4,194,304 stop ids"),
    "special is text": ({"special": {"a": 0}}, "special id of 'a' 0 writes the text b'a'"),
    "special no mapping": ({"special": ["<eos>"]}, "not a mapping from name to id"),
    "special name": ({"special": {3: 6}}, "not a mapping from name to id"),
    "bos is text": ({"bos_id": 0}, "bos_id 0 writes the text"),
    "narrow logits": ({"logits_width": 7}, "logits_width=7 does not fit a vocabulary of 8 ids"),
    "huge logits": ({"logits_width": MAX_TOKENS + 1}, "does not fit"),
    "logits no number": ({"logits_width": "8"}, "the logits_width is '8', not an integer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    changes, message = WRONG[name]
    with pytest.raises(TokenizerError, match=message) as caught:
        make(**changes)
    assert isinstance(caught.value, ConstraintError)


def test_too_many_tokens():
    with pytest.raises(TokenizerError, match="more than a vocabulary may have"):
        Vocabulary.from_tokens([b"a"] * (MAX_TOKENS + 1))


@pytest.mark.parametrize("ids", [[8], [-1], [0, 99]])
def test_decode_out_of_range(ids):
    with pytest.raises(TokenizerError, match=rf"does not exist.*\n  position {len(ids) - 1} of"):
        make().decode(ids)


@pytest.mark.parametrize("ids", [[0.5], ["a"], [None], [True], [np.array([1, 2])]])
def test_decode_not_integers(ids):
    with pytest.raises(TokenizerError, match="not an integer"):
        make().decode_bytes(ids)


def test_imports_neither_pynini_nor_jax():
    code = (
        "import sys, fsa_compile.vocabulary.vocabulary;"
        "assert not {'jax', 'pynini', 'sentencepiece', 'tiktoken', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_vocabulary_is_known_while_any_object_of_it_lives():
    tokens = [b"known", b"while", b"alive"]
    first, second = Vocabulary.from_tokens(tokens), Vocabulary.from_tokens(tokens)
    fingerprint = first.fingerprint
    for one in (first, second):
        remember(fingerprint, one)
    del first, one
    gc.collect()
    assert recall(fingerprint) is second
    del second
    gc.collect()
    assert recall(fingerprint) is None
