"""DirectMerge, CartesianMerge and brute force give the same language for random encoders and automata."""

from __future__ import annotations

import random

import pytest
from oracles import toy_merges
from oracles.cartesian_merge import all_spellings, cartesian_merge
from oracles.direct_merge import direct_merge, tokenizer_automaton
from oracles.token_automaton import TokenAutomaton

from fsa_compile.canonical.encoder.pair_rule import pair_rule
from fsa_compile.canonical.toy import toy_merge_table

LONGEST = 7


def random_automaton(rng: random.Random, letters: int) -> TokenAutomaton:
    """A random deterministic automaton over the letters, loops included."""
    states = rng.randint(1, 5)
    arcs = tuple(
        {letter: rng.randrange(states) for letter in range(letters) if rng.random() < 0.75} for _ in range(states)
    )
    return TokenAutomaton(arcs, frozenset(s for s in range(states) if rng.random() < 0.5) | {states - 1}, 0)


@pytest.mark.exhaustive
def test_three_ways_agree(exhaustive: bool) -> None:
    """The automata are equivalent, and on all texts up to 7 letters their sequences are what the encoder makes."""
    rng = random.Random(2)
    compared = 0
    for round_ in range(1500 if exhaustive else 30):
        letters = 1 + round_ % 3
        tokens, merges = toy_merges.random_encoder(rng, letters=letters, merges=rng.randint(1, 6))
        triples = [(a, b, tokens.index(tokens[a] + tokens[b])) for a, b in merges]
        language = random_automaton(rng, letters)
        direct = direct_merge(language, triples)
        rule = pair_rule(toy_merge_table(tokens, merges))
        product = cartesian_merge(all_spellings(language, tokens), rule)
        assert direct.minimized() == product.minimized(), (tokens, merges, language)
        longest = LONGEST if letters < 3 else 5
        texts = [t for t in toy_merges.all_texts(letters, longest) if language.accepts([tokens.index(bytes([b])) for b in t])]
        want = {tuple(toy_merges.encode(text, tokens, merges)) for text in texts} | ({()} if language.accepts([]) else set())
        got = {s for s in direct.sequences(longest) if sum(len(tokens[t]) for t in s) <= longest}
        assert got == want, (tokens, merges, language)
        compared += len(want)
    assert compared > 1_000


def test_all_texts() -> None:
    """BuildTokenizerDFA: the canonical sequences of all texts are those in which every pair is canonical."""
    rng = random.Random(4)
    for _ in range(30):
        tokens, merges = toy_merges.random_encoder(rng, letters=2, merges=5)
        triples = [(a, b, tokens.index(tokens[a] + tokens[b])) for a, b in merges]
        every = TokenAutomaton(({0: 0, 1: 0},), frozenset({0}), 0)
        rule = pair_rule(toy_merge_table(tokens, merges))
        assert tokenizer_automaton((0, 1), triples).minimized() == cartesian_merge(all_spellings(every, tokens), rule).minimized()


def test_parity() -> None:
    """a a → aa: of a run only the last of an odd number stays, and nothing of the run follows it."""
    automaton = tokenizer_automaton((0,), [(0, 0, 1)])
    assert [automaton.accepts(s) for s in ([], [0], [1], [1, 0], [1, 1, 0])] == [True] * 5
    assert not any(automaton.accepts(s) for s in ([0, 0], [0, 1], [1, 0, 1], [1, 0, 0]))
    assert len(automaton.minimized().arcs) == 2


def test_states_without_an_end_are_left_out() -> None:
    """ab alone: after a the pair rule forbids b, so a must not be offered at all."""
    tokens = [b"a", b"b", b"ab"]
    language = TokenAutomaton(({0: 1}, {1: 2}, {}), frozenset({2}), 0)
    rule = pair_rule(toy_merge_table(tokens, [(0, 1)]))
    found = cartesian_merge(all_spellings(language, tokens), rule)
    assert list(found.arcs[found.start]) == [2]
    assert list(found.sequences(3)) == [(2,)]
