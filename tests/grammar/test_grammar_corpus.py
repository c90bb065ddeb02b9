"""The corpus of grammars that users might write: each compiles to its language, or gives an error that says how to mend it."""

from __future__ import annotations

import contextlib

import pytest
from corpus.grammars import RIGHT, WRONG, GrammarCase, Sample, Token

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import ConstraintError, GrammarConflictError, GrammarError
from fsa_compile.formats.grammar_constraints import compile_grammar
from fsa_compile.grammar.gbnf_syntax import parse_gbnf
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.vocabulary import Vocabulary

WORDS = [
    b'":',
    b'"}',
    b"}}",
    b"]]",
    b"()",
    b"))",
    b"], [",
    b"if",
    b" if",
    b"else",
    b" x",
    b"</",
    b"</think>",
    b"select ",
    b"\n\n",
    b"12",
]
STOP = 300
SPECIALS = ("<end>", "<think>", "<tool>")


def vocabulary() -> Vocabulary:
    """All bytes, some words, a stop token (300) and three special tokens (301 to 303)."""
    tokens = [bytes([byte]) for byte in range(256)] + WORDS
    tokens += [b""] * (STOP + 1 + len(SPECIALS) - len(tokens))
    return Vocabulary.from_tokens(tokens, stop_ids=[STOP], special={name: STOP + 1 + i for i, name in enumerate(SPECIALS)})


def compiled(case: GrammarCase, stacks: int) -> CompiledConstraint:
    return compile_grammar(case.text, vocabulary(), syntax=case.syntax, stacks=stacks)


def spelled(sample: Sample, tokens: list[bytes]) -> list[int]:
    """The sample as ids: long tokens first where they fit."""
    out = []
    for piece in (sample,) if isinstance(sample, str) else sample:
        if isinstance(piece, Token):
            out.append(STOP + 1 + SPECIALS.index(piece))
            continue
        rest = piece.encode()
        while rest:
            token = max((t for t in tokens if t and rest.startswith(t)), key=len)
            out.append(tokens.index(token))
            rest = rest[len(token) :]
    return out


def accepts(constraint: CompiledConstraint, ids: list[int]) -> bool:
    """Whether every token is allowed in its turn, and the stop token after the last."""
    walk = constraint.walk()
    for token in [*ids, STOP]:
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return True


def expected_warning(case: GrammarCase) -> contextlib.AbstractContextManager[object]:
    return pytest.warns(match=case.warning) if case.warning else contextlib.nullcontext()


def machine(case: GrammarCase, stacks: int) -> ByteMachine:
    grammar = parse_gbnf(case.text) if case.syntax == "gbnf" else parse_lark(case.text)
    ids: dict[str | int, int] = {name: STOP + 1 + i for i, name in enumerate(SPECIALS)}
    return machine_of(grammar, stacks=stacks, specials=ids | {i: i for i in ids.values()})


def symbols(sample: Sample, specials: tuple[int, ...]) -> list[int] | None:
    """The sample as symbols of a machine; None when it has a token that the machine does not know."""
    out: list[int] = []
    for piece in (sample,) if isinstance(sample, str) else sample:
        if not isinstance(piece, Token):
            out += piece.encode()
        elif (token := STOP + 1 + SPECIALS.index(piece)) in specials:
            out.append(256 + specials.index(token))
        else:
            return None
    return out


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_machines_of_right_grammars(case: GrammarCase) -> None:
    with expected_warning(case):
        built = machine(case, case.stacks)
    for sample in (*case.accepted, *case.rejected):
        read = symbols(sample, built.specials)
        assert (read is not None and built.accepts(read)) == (sample in case.accepted), sample


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_right_grammars(case: GrammarCase) -> None:
    with expected_warning(case):
        constraint = compiled(case, case.stacks)
    for tokens in (list(vocabulary().tokens), [bytes([byte]) for byte in range(256)]):
        for sample in (*case.accepted, *case.rejected):
            assert accepts(constraint, spelled(sample, tokens)) == (sample in case.accepted), sample


@pytest.mark.parametrize("case", [case for case in RIGHT if case.stacks > 1], ids=lambda case: case.name)
def test_one_stack_is_a_conflict(case: GrammarCase) -> None:
    with pytest.raises(GrammarConflictError) as caught:
        machine(case, 1)
    error = caught.value
    assert error.readings[0] != error.readings[1]
    assert "stacks" in error.fix


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case.syntax}: {case.name}")
def test_wrong_grammars(case: GrammarCase) -> None:
    assert case.error is not None
    with pytest.raises(ConstraintError) as caught:
        compiled(case, case.stacks)
    error = caught.value
    assert type(error) is case.error, str(error)
    for word in case.words:
        assert word in str(error), str(error)
    assert error.fix
    if isinstance(error, GrammarError):
        assert error.where


def test_there_are_enough() -> None:
    assert len(RIGHT) + len(WRONG) >= 40
    assert {case.syntax for case in RIGHT} == {case.syntax for case in WRONG} == {"lark", "gbnf"}
    assert any(case.stacks > 1 for case in RIGHT)
