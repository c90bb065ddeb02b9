"""Lists of texts: exactly those, with as few states as possible, however many there are."""

from __future__ import annotations

import random

import numpy as np
import pynini
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.text_walks import is_trim

from fsa_compile.automata import acyclic as module
from fsa_compile.automata.openfst import to_pynini
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.languages.constructors import choices, regex
from fsa_compile.limits import CompileLimits, Deadline

LIMITS = CompileLimits()


def language_of(dfa) -> set[bytes]:
    """All members of a finite language."""
    arcs: dict[int, list[tuple[int, int]]] = {}
    for source, byte, target in zip(*(a.tolist() for a in dfa.arcs)):
        arcs.setdefault(source, []).append((byte, target))
    out, todo = set(), [(dfa.start, b"")]
    while todo:
        q, word = todo.pop()
        if dfa.final[q]:
            out.add(word)
        todo += [(t, word + bytes((byte,))) for byte, t in arcs.get(q, ())]
    return out


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.text("abé日", max_size=6), min_size=1, max_size=60))
def test_exactly_the_texts_and_minimal(texts):
    dfa = choices(texts).to_byte_dfa()
    assert language_of(dfa) == {text.encode() for text in texts}
    assert is_trim(dfa)
    assert to_pynini(dfa).minimize().num_states() == dfa.num_states - 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 7))
def test_both_ways_of_merging_agree(seed, count, longest):
    rng = random.Random(seed)
    texts = module.checked_texts({"".join(rng.choices("abc", k=rng.randint(0, longest))) for _ in range(count)})
    trie = module._trie(texts, Deadline(LIMITS))
    slow = module._merge_one_by_one(trie, Deadline(LIMITS))
    fast = module._merge_by_height(trie, max(map(len, texts)), Deadline(LIMITS)) if len(trie.parent) else slow
    assert fast is not None
    # The same partition, though a class may have another representative.
    assert len(set(zip(slow.tolist(), fast.tolist()))) == len(set(slow.tolist())) == len(set(fast.tolist()))


def test_misleading_sums_are_noticed(monkeypatch):
    texts = module.checked_texts(f"{a}{b}" for a in "abcdefgh" for b in ("xy" if a < "e" else "xz"))
    trie = module._trie(texts, Deadline(LIMITS))
    assert module._merge_by_height(trie, 2, Deadline(LIMITS)) is not None
    monkeypatch.setattr(module, "mixed", lambda x: np.zeros_like(x))
    assert module._merge_by_height(trie, 2, Deadline(LIMITS)) is None


def test_the_same_as_the_pattern():
    words = ["red", "green", "blue", "", "reddish", "naïve", "日本", "red"]
    a = to_pynini(choices(words).to_byte_dfa())
    b = to_pynini(regex("|".join(words)).to_byte_dfa()).minimize()
    assert pynini.equivalent(a, b)


def test_a_thousand_and_a_hundred_thousand():
    rng = random.Random(4)
    parts = ["ba", "re", "mi", "to", "ka", "lu", "né", "st", "ing", "er", "on", "日"]
    words = ["".join(rng.choices(parts, k=rng.randint(1, 8))) + (f"-{i}" if i % 3 == 0 else "") for i in range(100_000)]
    small = choices(words[:1000]).to_byte_dfa()
    assert language_of(small) == {word.encode() for word in words[:1000]}
    large = choices(words).to_byte_dfa()
    assert language_of(large) == {word.encode() for word in words}
    assert large.table.shape[1] < 64
    assert large.table.nbytes < 100e6


def test_one_very_long_text():
    text = "ab" * 100_000
    dfa = choices([text, text[:-1]]).to_byte_dfa()
    assert dfa.num_states == len(text) + 2
    assert dfa.accepts(text.encode())


@pytest.mark.parametrize(
    ("strings", "says"),
    [
        (["a", 3], r"choice 1 is a int, not a str"),
        (["a", None], r"choice 1 is a NoneType"),
        (["a", b"b"], r"choice 1 is a bytes"),
        (["a", "b", "x\udc80"], r"choice 2 holds a surrogate at offset 1"),
        ("abc", "need a list of strings, not one string"),
        (None, "need a list of strings, not NoneType"),
    ],
)
def test_bad_entries(strings, says):
    with pytest.raises(ConstraintError, match=says):
        choices(strings)


def test_no_entries():
    with pytest.raises(UnsatisfiableError, match="no choice in the list"):
        choices([]).to_byte_dfa()


def test_limits():
    words = [f"{i:06}" for i in range(0, 20_000, 7)]
    with pytest.raises(LimitError, match="max_states=10"):
        choices(words).to_byte_dfa(CompileLimits(max_states=10))
    with pytest.raises(LimitError, match="max_bytes=1,000"):
        choices(words).to_byte_dfa(CompileLimits(max_bytes=1000))


def test_the_empty_text_alone_and_with_others():
    assert language_of(choices([""]).to_byte_dfa()) == {b""}
    assert language_of(choices(["", "a"]).to_byte_dfa()) == {b"", b"a"}
