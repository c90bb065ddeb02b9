"""Vocabularies without a token for each byte, with a stack: masks against searches of the byte machine, or an error."""

from __future__ import annotations

import random

import pytest
from oracles.shortest_texts import ShortestTexts

from fsa_compile import UnspellableError, Vocabulary, compile_grammar, compile_json_schema
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.compose import compose_machine
from fsa_compile.errors import ConstraintError, GrammarError, UnsatisfiableError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

BRACKETS = 'start: "[" start? "]"'
ASCII = [bytes([i]) for i in range(32, 127)]


def of(*tokens: bytes) -> Vocabulary:
    return Vocabulary.from_tokens([b"", *tokens], stop_ids=[0])


def random_vocabulary(rng: random.Random, alphabet: bytes) -> Vocabulary:
    """Some of the bytes alone, and longer tokens."""
    alone = [bytes([b]) for b in alphabet if rng.random() < 0.7]
    longer = [bytes(rng.choices(alphabet, k=rng.randint(2, 4))) for _ in range(rng.randint(1, 6))]
    brackets = [bytes([b]) * rng.randint(2, 3) for b in alphabet if rng.random() < 0.5]
    return of(*dict.fromkeys(alone + longer + brackets))


def random_brackets(rng: random.Random) -> str:
    """A deterministic recursive grammar over `[]()a,`."""
    parts = ["\"[\" x? \"]\"", "\"(\" x \")\"", "\"[\" x (\",\" x)* \"]\"", "\"(\" \"a\"? \")\"", "\"[\" y \"]\"", "\"(\" y y \")\""]
    x = rng.sample(['"[" x? "]"', '"[" x ("," x)* "]"', '"[" y "]"'], 1) + rng.sample(['"(" x ")"', '"(" "a"? ")"', '"(" y y ")"'], 1)
    y = rng.choice(['"a"', '"a" y?', '"(" x ")"', '"," y | "a"'])
    return f"start: {rng.choice(parts)}\nx: {' | '.join(x)}\ny: {y}\n"


def wrong_masks(machine: ByteMachine, vocabulary: Vocabulary, rng: random.Random, steps: int) -> tuple[int, list[object]]:
    """(tokens asked about, those whose mask is not what a search says) along one random walk."""
    constraint = compose_machine(machine, vocabulary, source="")
    texts = ShortestTexts(machine, vocabulary.tokens, 2_000)
    walk, here, wrong, asked = constraint.walk(), {machine.initial}, list[object](), 0
    for _ in range(steps):
        allowed = walk.allowed()
        assert walk.accepting == machine.may_end(here)
        for token in range(1, len(vocabulary.tokens)):
            rest = texts.rest(machine.run(vocabulary.tokens[token], here))
            asked += texts.decided
            if texts.decided and (rest is not None) != allowed[token]:
                wrong.append((walk.num_tokens, vocabulary.tokens[token], rest))
        some = [token for token in allowed.nonzero()[0].tolist() if token]
        if not some:
            assert walk.accepting
            break
        token = rng.choice(some)
        walk.advance(token)
        here = machine.run(vocabulary.tokens[token], here)
    return asked, wrong


@pytest.mark.parametrize("tokens", [[b"[", b"]]"], [b"[", b"[[", b"[]", b"]]"], [b"[", b"]]]"], [b"[[", b"]]]"]])
def test_what_depends_on_the_whole_stack_is_an_error_that_names_bytes(tokens):
    with pytest.raises(UnspellableError, match=r"alone\n") as caught:
        compile_grammar(BRACKETS, of(*tokens))
    assert "5d (']')" in str(caught.value)


def test_what_cannot_be_spelled_at_all_is_said_to_be_so():
    with pytest.raises(UnspellableError, match="cannot spell any text"):
        compile_grammar(BRACKETS, of(b"[", b"[["))


def test_characters_need_no_bytes():
    tokens = [*ASCII, *(c.encode() for c in "éü€😀"), b'["', b'"]', b"]]", b"}}"]
    walk = compile_json_schema(True, of(*tokens)).walk()
    assert walk.allowed()[1 + tokens.index(b'["')]
    walk.advance(1 + tokens.index(b'["'))
    assert walk.allowed()[1 + tokens.index("€".encode())]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
def test_masks_are_exact_or_refused(tally):
    for rng in tally.cases(60, least=2_000):
        text = random_brackets(rng)
        try:
            machine = machine_of(parse_lark(text))
        except (GrammarError, UnsatisfiableError):
            continue
        vocabulary = random_vocabulary(rng, b"[](),a")
        try:
            more, wrong = wrong_masks(machine, vocabulary, rng, 8)
        except UnspellableError:
            tally["refused"] += 1
            continue
        except ConstraintError:  # one token could close any number of rules
            continue
        tally.update(made=1, checks=more)
        assert not wrong, (text, vocabulary.tokens, wrong[:3])
    assert tally["made"] > tally["refused"] / 10
    assert tally["checks"] > 500


def test_bytes_that_no_token_holds_are_named():
    grammar = r"""
start: item
item: "el" line _NL | line block
block: _NL _INDENT item+ _DEDENT
line: NAME+
NAME: /[a-z][a-z0-9]*/
_NL: /(#[^\n]*)?\n([ ]*(#[^\n]*)?\n)*[ ]*(?!#)/
%declare _INDENT _DEDENT
%ignore / +/
%indent 2 3
"""
    with pytest.raises(UnspellableError, match="no token is one of the bytes 09 alone\n"):
        compile_grammar(grammar, of(*(bytes([b]) for b in range(256) if b != 9)))
