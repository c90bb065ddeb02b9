"""Factored canonical constraints: they allow what the multiplied ones do, step by step, and stay as small as without the filter."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from oracles import toy_merges

from fsa_compile import CanonicalWalk, CompiledConstraint, CompileLimits, compile_regex
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, canonical_tables
from fsa_compile.canonical.lazy_product import lazy_distances as lazy_distances
from fsa_compile.canonical.lazy_product import pairs as lazy_pairs
from fsa_compile.canonical.restrict import factored, multiplied
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.errors import UnspellableError
from fsa_compile.limits import Deadline
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

LIMITS = CompileLimits()
STRING = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
SPLITTERS = (r"[\s\S]+", r"a?b+|[\s\S]", r"a+(?!b)|[\s\S]", r"[ab]{1,3}|c+|[\s\S]", r"é+|a(?!é)|[\s\S]")


def both(
    pattern: str, vocabulary: Vocabulary, tables: CanonicalTables, prompt: list[int]
) -> tuple[CompiledConstraint | None, CompiledConstraint]:
    plain, state = compile_regex(pattern, vocabulary), tables.after(prompt)
    one = factored(plain, tables, tables_for(vocabulary), LIMITS, Deadline(LIMITS), *state)
    return one, multiplied(plain, tables, tables_for(vocabulary), LIMITS, Deadline(LIMITS), *state)


def same_masks(one: CompiledConstraint, other: CompiledConstraint, tables: CanonicalTables, rng: random.Random, walks: int) -> int:
    """Random walks through both; masks must agree in every state. Returns how many were compared."""
    compared = 0
    for _ in range(walks):
        here, there = CanonicalWalk(one, tables), CanonicalWalk(other, tables)
        for _ in range(12):
            mask = here.allowed()
            np.testing.assert_array_equal(mask, there.allowed())
            assert here.accepting == there.accepting
            assert mask.any() or here.accepting
            compared += 1
            choices = [t for t in np.flatnonzero(mask).tolist() if t not in one.stop_ids]
            if not choices:
                break
            token = rng.choice(choices)
            here.advance(token)
            there.advance(token)
    return compared


@pytest.mark.exhaustive
def test_masks_are_those_of_the_product(exhaustive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random encoders over letters of one and two bytes, splitters that look ahead, constraints with loops and counts."""
    rng, compared, decided, noted = random.Random(4), 0, 0, 0
    patterns = ("[abé]*", "(a|b)*é", "[aé]{0,4}", "(ab|ba|é){1,3}b*", "a[bé]*a|b", "[ab]*aba[abé]{0,2}", "(é|a)(é|b)*")
    for round_ in range(200 if exhaustive else 14):
        if round_ % 2:
            monkeypatch.setattr(lazy_pairs, "_LISTED", 1)
            monkeypatch.setattr(lazy_pairs, "_ALIKE", 1)
            monkeypatch.setattr(lazy_distances, "_TRIED", rng.choice([1, 4]))
        else:
            monkeypatch.undo()
        tokens, merges = toy_merges.random_merges(rng, [b"a", b"b", b"\xc3", b"\xa9"], rng.randint(2, 9))
        every = [*tokens, *(bytes([b]) for b in range(256) if bytes([b]) not in tokens), b""]
        stop = [len(every) - 1]
        tables = toy_tables(every, merges, pattern=rng.choice(SPLITTERS), stop_ids=stop)
        vocabulary = Vocabulary.from_tokens(every, stop_ids=stop)
        try:
            one, other = both(rng.choice(patterns), vocabulary, tables, [])
        except UnspellableError:
            continue
        if one is not None:
            decided += 1
            noted += len(one.canonical_unless[0]) > 0
            compared += same_masks(one, other, tables, rng, 12)
            assert one.shortest_completion >= other.shortest_completion
            budgets_hold(one, tables, rng)
    assert decided > 6
    assert compared > 250
    assert noted > 0  # some tokens may not lead to some states


def budgets_hold(constraint: CompiledConstraint, tables: CanonicalTables, rng: random.Random) -> None:
    """Whatever is chosen under a limit, the text is complete within it."""
    for budget in range(constraint.shortest_completion, constraint.shortest_completion + 4):
        walk = CanonicalWalk(constraint, tables)
        for left in range(budget, 0, -1):
            choices = [t for t in np.flatnonzero(walk.allowed(left)).tolist() if t not in constraint.stop_ids]
            if not choices:
                break
            walk.advance(rng.choice(choices))
        assert walk.accepting


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gpt2", "llama2", "llama3"])
def test_free_text(name: str, data_dir: Path, exhaustive: bool) -> None:
    """Free text needs no states of the filter: about the plain artifact's size, and the product's masks."""
    if name != "gpt2" and not exhaustive:
        pytest.skip("further vocabularies: only with --exhaustive")
    tokenizer = load_tokenizer(data_dir / "tokenizers" / name)
    tables = canonical_tables(tokenizer)
    rng = random.Random(1)
    template = r"\{\"name\": \"[a-z]{3,8}\", \"score\": [0-9]\.[0-9]\}"
    for pattern in (STRING, ".{0,3}", r"[\s\S]*", template, "[a-z ]{1,5}") if exhaustive else (STRING, ".{0,3}"):
        one, other = both(pattern, tokenizer.vocabulary, tables, [])
        assert one is not None
        assert one.nbytes < 3 * compile_regex(pattern, tokenizer).nbytes
        assert same_masks(one, other, tables, rng, 12) > 20
        budgets_hold(one, tables, rng)


def test_contractions_in_pieces(data_dir: Path) -> None:
    """Behind " I'", Llama 4 may cut "vE" in two. Its filter has kinds of tokens that only tokens without text belong to."""
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "llama4")
    tables = canonical_tables(tokenizer)
    walk = CanonicalWalk(compile_regex(r" I'[a-zE]*", tokenizer, canonical=True), tables)
    for token in tokenizer.encode(" I'vE"):
        assert walk.allowed()[token]
        walk.advance(token)
    assert walk.accepting
