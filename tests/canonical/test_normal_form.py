"""Encoders that normalize: constraints whose texts stay as they are, by `unicodedata` and by the encoder itself."""

from __future__ import annotations

import dataclasses
import unicodedata

import numpy as np
import pytest

from fsa_compile import CanonicalWalk, CompileLimits, Language, compile_language, compile_regex, filters
from fsa_compile.canonical.encoder.normal_form import is_normal, nfc_inert_points
from fsa_compile.canonical.restrict import canonical_product
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.errors import ConstraintError
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for


def test_characters_that_stay() -> None:
    """In any order they are in the form; every other character that Unicode knows is changed by itself or beside some other."""
    inert = nfc_inert_points()
    draw = np.random.default_rng(0)
    text = "".join(map(chr, draw.permutation(np.concatenate([inert, draw.choice(inert, 300_000)]))))
    assert unicodedata.is_normalized("NFC", text)
    assert {ord(c) for c in "äß日本가각яع"} <= set(inert.tolist())
    pairs = [unicodedata.decomposition(chr(c)).split() for c in range(0x30000)]
    seconds = {int(pair[1], 16): chr(int(pair[0], 16)) for pair in pairs if len(pair) == 2 and pair[0][0] != "<"}
    stays = np.zeros(0x110000, bool)
    stays[inert] = True
    for point in np.flatnonzero(~stays[0x80:0x33480]) + 0x80:
        letter = chr(point)
        if unicodedata.category(letter) in ("Cn", "Cs"):
            continue
        beside = [letter, "a\u0345" + letter, "a" + letter + "\u0334"]
        beside += [first + letter for first in ("\u1100", "\uac00", seconds.get(int(point), ""))]
        assert any(not unicodedata.is_normalized("NFC", x) for x in beside), hex(point)


@pytest.mark.parametrize(
    ("pattern", "form", "example"),
    [
        ("[a-zé日]{1,3}", "NFC", None),
        ("가|각|я", "NFC", None),
        ("e\u0301?", "NFC", "U\\+0301 COMBINING ACUTE"),
        ("\u212b", "NFC", "U\\+212B ANGSTROM"),
        ("[a-z]é", "NFKC", "U\\+00E9"),
        ("[ -~]*", "NFKD", None),
        (r"[\s\S]*", "NFC", "U\\+0300"),
        (filters.nfc_inert(), "NFC", None),
    ],
)
def test_constraints(pattern: str | Language, form: str, example: str | None) -> None:
    every = [bytes([b]) for b in range(256)] + ["é".encode(), b"ab"]
    acute = list("é".encode())
    tables = dataclasses.replace(toy_tables(every, [(acute[0], acute[1]), (97, 98)]), unicode_form=form)
    vocabulary, limits = Vocabulary.from_tokens(every), CompileLimits()
    plain = compile_regex(pattern, vocabulary) if isinstance(pattern, str) else compile_language(pattern, vocabulary)
    if example is not None:
        with pytest.raises(ConstraintError, match=example):
            canonical_product(plain, tables, tables_for(vocabulary), limits, Deadline(limits))
        return
    walk = CanonicalWalk(canonical_product(plain, tables, tables_for(vocabulary), limits, Deadline(limits)), tables)
    draw = np.random.default_rng(1)
    for _ in range(20):
        ids: list[int] = []
        while len(ids) < 12 and len(choices := np.flatnonzero(walk.allowed(12 - len(ids)))):
            ids.append(int(draw.choice(choices)))
            walk.advance(ids[-1])
        assert walk.accepting
        assert is_normal(vocabulary.decode_bytes(ids), form)
        assert tables.is_canonical(ids)
        walk.rewind(len(ids))
