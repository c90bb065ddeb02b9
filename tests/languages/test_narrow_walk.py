"""The token walk by the arcs of narrow states gives what the walk by the children of the trie gives."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.toy import every_byte, few_bytes

from fsa_compile import regex
from fsa_compile.composition.regular import trie_walk as token_walk
from fsa_compile.composition.regular.trie_walk import walk_tokens
from fsa_compile.extensions import substring_of
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import tables_for

PATTERNS = ["(?P<T>)", '"(?P<T>)"|[^"]*', "[ab]{1,40}.", "(?P<T>)*"]
TEXT = 'aab abc "é日本€" 12.1 a@b 😀 -- Ab u0 ' * 3


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("vocabulary", [every_byte(), few_bytes()], ids=["all bytes", "few bytes"])
def test_both_ways_agree(pattern, vocabulary, monkeypatch):
    dfa = regex(pattern, extensions={"T": substring_of(TEXT)}).to_byte_dfa()
    tables = tables_for(vocabulary)
    found = []
    for bound in (0, 1 << 60):
        monkeypatch.setattr(token_walk, "_MANY_PAIRS", bound)
        arcs = walk_tokens(dfa, tables, Deadline(CompileLimits()))
        rows = np.stack([arcs.state, arcs.token, arcs.target])
        found.append((rows[:, np.lexsort(rows)], arcs.row_state, arcs.row_target, np.array(arcs.hashes)[arcs.row_set]))
    assert len(found[0][0][0]) > 40
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_children_are_found_by_their_key():
    tables = tables_for(every_byte())
    assert (np.diff(tables.trie_key) > 0).all()
    for node in range(len(tables.trie_count)):
        for child in range(tables.trie_first[node], tables.trie_beyond[node]):
            assert tables.trie_key[child - 1] == node * 256 + tables.trie_byte[child]
