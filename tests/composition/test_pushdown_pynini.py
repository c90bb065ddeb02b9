"""Token languages of pushdown constraints, up to a bound, equal those that OpenFst's own pushdown operations compute."""

from __future__ import annotations

import pynini
import pytest
from oracles.pushdown_pynini import (
    acceptor,
    artifact_language,
    minimal,
    nesting,
    pushdown_of,
    shorter,
    token_language,
    within_calls,
)  # fmt: skip

from fsa_compile.automata.labels import token_label
from fsa_compile.composition.compose import compose_machine
from fsa_compile.composition.detokenize import build_cycles, build_trie
from fsa_compile.grammar.gbnf_syntax import parse_gbnf
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.vocabulary import Vocabulary


def vocabulary_of(*tokens: str) -> Vocabulary:
    """These tokens and all their single bytes; the last id ends the text."""
    singles = sorted({c for token in tokens for c in token})
    words = [*singles, *(t for t in tokens if len(t) > 1)]
    return Vocabulary.from_tokens([*(w.encode() for w in words), b""], stop_ids=[len(words)])


def compiled(text: str, vocabulary: Vocabulary):
    grammar = parse_gbnf(text)
    return grammar, compose_machine(machine_of(grammar), vocabulary, source=text)


# Recursion inside brackets only: every depth of nesting is a regular language with texts of any length.
NESTED = [
    ('root ::= "[" (root ("," root)*)? "]" | [01]', "[]", ("[", "]", ",", "0", "1", "[[", "]]", "],[", "[]", "0,", ",1]", "[0")),
    (
        'root ::= obj\nobj ::= "{" (pair ("," pair)*)? "}"\npair ::= "k" ":" (obj | "v")',
        "{}", ("{", "}", "k", ":", "v", ",", "k:", "{k:", "v}", "}}", "},k", ":{", "}}}", "{}"),
    ),
    (
        'root ::= "(" a ")" | "<" b ">"\na ::= "x" | root "x" root\nb ::= root? "y"', "()<>",
        ("(", ")", "<", ">", "x", "y", "(x", ")x(", "y>", ")>", "x)", "((", "<y>"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("build", [build_trie, build_cycles])
@pytest.mark.parametrize(("text", "brackets", "tokens"), NESTED)
def test_all_texts_up_to_a_depth(text: str, brackets: str, tokens: tuple[str, ...], build) -> None:
    vocabulary = vocabulary_of(*tokens)
    grammar, constraint = compiled(text, vocabulary)
    fst, parentheses = pushdown_of(grammar)
    alphabet = "".join(t for t in tokens if len(t) == 1)
    sizes = []
    for deepest in range(1, 6):
        wanted = token_language(fst, parentheses, build(vocabulary), text=nesting(deepest, alphabet, brackets))
        found = artifact_language(constraint, vocabulary, brackets=brackets, deepest=deepest)
        assert pynini.equivalent(found, wanted), deepest
        sizes.append(wanted.num_states())
    assert sizes[-1] > sizes[0]


# Recursion at the ends too: texts of at most so many tokens.
RECURSIVE = [
    ('root ::= root "+" t | t\nt ::= "(" root ")" | "1"', ("(", ")", "+", "1", "((", "))", ")+", "1+1", "+(")),
    ('root ::= t "+" root | t\nt ::= "-" t | "(" root ")" | "1"', ("(", ")", "+", "1", "-", "--", "-(", ")+1", "1)")),
    ('root ::= a | b\na ::= "(" a ")" | root ";" | ""\nb ::= "[" b "]" | "x"', ("(", ")", "[", "]", "x", ";", "x;", ";)", "]]", "([")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tokens"), RECURSIVE)
def test_all_token_strings_up_to_a_length(text: str, tokens: tuple[str, ...]) -> None:
    vocabulary = vocabulary_of(*tokens)
    grammar, constraint = compiled(text, vocabulary)
    labels = [token_label(t) for t, data in enumerate(vocabulary.tokens) if data]
    sizes = []
    for most in (2, 3, 4, 5):
        fst, parentheses = pushdown_of(grammar)
        # Every call reads a byte or is one of few that do not; a token has at most three bytes.
        bounded = within_calls(fst, parentheses, 4 * 3 * most)
        wanted = token_language(bounded, parentheses, build_trie(vocabulary), tokens=shorter(most, labels))
        found = artifact_language(constraint, vocabulary, brackets="", deepest=0, most=most)
        assert pynini.equivalent(found, wanted), most
        sizes.append(wanted.num_states())
    assert sizes[-1] > sizes[0]


def test_a_bound_on_calls_bounds_the_language() -> None:
    """Two calls reach no bracket inside a bracket; the bound is what makes left recursion finite."""
    fst, parentheses = pushdown_of(parse_gbnf('root ::= "(" root ")" | "1"'))
    vocabulary = vocabulary_of("(", ")", "1")
    detokenizer = build_trie(vocabulary)
    found = token_language(within_calls(fst, parentheses, 2), parentheses, detokenizer)
    ids = {data: t for t, data in enumerate(vocabulary.tokens) if data}
    texts = [[ids[bytes([b])] for b in text] for text in (b"1", b"(1)")]
    assert pynini.equivalent(found, minimal(pynini.union(*(acceptor(map(token_label, text)) for text in texts))))


def test_a_planted_mistake_is_found() -> None:
    text, brackets, tokens = NESTED[0]
    vocabulary = vocabulary_of(*tokens)
    grammar = parse_gbnf(text)
    _, other = compiled('root ::= "[" (root ("," root)* ","?)? "]" | [01]', vocabulary)
    fst, parentheses = pushdown_of(grammar)
    wanted = token_language(fst, parentheses, build_trie(vocabulary), text=nesting(2, "[]01,", brackets))
    assert not pynini.equivalent(artifact_language(other, vocabulary, brackets=brackets, deepest=2), wanted)
