"""Rules with a temperature: which one holds at a place, against Lark's lexer; what stays as it is; what is refused."""

from __future__ import annotations

import dataclasses

import lark
import numpy as np
import pytest
from grammar.test_embedded_values import BYTES

import fsa_compile
import models
from fsa_compile import CompiledConstraint, compile_grammar
from fsa_compile.errors import ArtifactError, ConstraintError

# For Lark upper case; for us rules. Every text of so many letters is looked at.
LEXED = {
    "flat": ('start: KEY ":" TEXT\nKEY: /[ab]{1,2}/\nTEXT: /"[ab]*"/', {"KEY": 0, "TEXT": 1.5}, 'ab:"', 7),
    "alternatives": ('start: (A | B | "c")~1..2\nA: /a[bc]?/\nB: "bd"', {"A": 0.5, "B": 0.25}, "abcd", 5),
    "called": ('start: "(" (T | start)* ")" N?\nT: /ab?ab?ab?/\nN: "b"', {"T": 0.5, "N": 2}, "()ab", 7),
    "before a return": ('start: item N?\nitem: "(" item* ")" | T\nT: /a+/\nN: /b+/', {"N": 0.5, "T": 2}, "()ab", 6),
    "ignored": ('start: (A "," )* B\nA: /a+/\nB: "b"\n%ignore " "', {"A": 0.5}, "ab, ", 5),
    "returns twice": ('start: x N\nx: "(" y ")" | "a"\ny: "[" x M? "]"\nN: "n"\nM: "m"', {"N": 3, "M": 0.5}, "()[]anm", 9),
}


def ours(grammar: str, temperatures: dict[str, float]) -> str:
    """The grammar with rules in the place of some terminals."""
    for name, value in temperatures.items():
        grammar = grammar.replace(f"\n{name}:", f"\n{name.lower()}[temperature={value}]:").replace(name, name.lower())
    return grammar


def texts(constraint: CompiledConstraint, letters: str, length: int) -> list[str]:
    """All accepted texts."""
    out, todo = [], [""]
    while todo:
        text = todo.pop()
        walk = constraint.walk()
        for byte in text.encode():
            walk.advance(byte + 1)
        out += [text] if walk.accepting else []
        todo += [text + c for c in letters if len(text) < length and walk.allowed()[ord(c) + 1]]
    return out


@pytest.mark.parametrize("name", LEXED)
def test_the_temperature_is_the_greatest_of_the_lexemes_of_the_next_byte(name):
    """By Lark's tokens of every text: which may be the one that the next byte belongs to."""
    grammar, temperatures, letters, length = LEXED[name]
    constraint = compile_grammar(ours(grammar, temperatures), BYTES)
    parser = lark.Lark(grammar, parser="lalr", keep_all_tokens=True)
    found = texts(constraint, letters, length)
    assert len(found) > 2
    wanted: dict[str, float | None] = {}
    for text in found:
        for token in parser.parse(text).scan_values(lambda x: isinstance(x, lark.Token)):
            for end in range(token.start_pos, token.end_pos):
                own = temperatures.get(token.type)
                known = wanted.setdefault(text[:end], own)
                wanted[text[:end]] = max(filter(lambda t: t is not None, (known, own)), default=None)
    shorter = {text[:end] for text in found if len(text) < length - 1 for end in range(len(text))} & set(wanted)
    assert {wanted[text] for text in shorter} - {None} == {float(t) for t in temperatures.values()}
    for text in shorter:
        walk = constraint.walk()
        for byte in text.encode():
            walk.advance(byte + 1)
        got = walk.temperature
        assert got == wanted[text] or len(text) > length - 4, text  # what is too long is not among the texts


def trace(grammar: str, text: str, **options) -> list[float | None]:
    """The temperature before every byte, and at the end."""
    walk, out = compile_grammar(grammar, BYTES, **options).walk(), []
    for byte in text.encode():
        out.append(walk.temperature)
        walk.advance(byte + 1)
    return [*out, walk.temperature]


def test_bounds_values_modes_and_stacks():
    bounded = 'start: "<" x ">"\nx[max_chars=2, temperature=0.5]: /[a-z]+/'
    assert trace(bounded, "<ab>") == [None, 0.5, 0.5, None, None]
    counted = 'start: "<" x <|x|>\nx[max_tokens=3, temperature=0.5]: /[a-z]+/'
    assert trace(counted, "<ab")[:3] == [None, 0.5, 0.5]
    nested = 'start: "<" v ">"\nv: %lark { start: x "." \n x[temperature=2]: /[a-z]{5,}/ } | "B"'
    assert trace(nested, "<aaaaa.>") == [None, *[2] * 6, None, None]
    characters = 'start: "a" x "b"\nx[temperature=0]: /[ab]*/'
    assert trace(characters, "aab", mode="characters") == [None, 0, 0, 0]
    several = 'start: "i" start | "i" start "e" start | x\nx[temperature=2]: "x" | "y"'
    assert trace(several, "iixex", mode="characters", stacks=4) == [2, 2, 2, None, 2, None]
    assert trace("start: x y\nx[temperature=1]: /a+/\ny[temperature=3]: /b+/", "ab") == [1, 3, 3]


def test_tokens_longer_than_lexemes():
    """A token that ends a lexeme, and the frames around it, and begins another one."""
    tokens = [b"", *(bytes([c]) for c in b"()[]ab,"), b"a))", b"),(", b"),(a", b"[(a"]
    vocabulary = fsa_compile.Vocabulary.from_tokens(tokens, stop_ids=[0])
    grammar = 'start: "[" x ("," x)* "]"\nx: "(" x ")" | a\na[temperature=0.5]: /a+/'
    walk, plain = (compile_grammar(g, vocabulary).walk() for g in (grammar, grammar.replace("[temperature=0.5]", "")))
    wanted = {b"[(a": 0.5, b")": None, b",": 0.5, b"a": 0.5, b"]": None, b"),(": 0.5}
    for token in (b"[(a", b"),(", b"a", b")", b",", b"a", b"]"):
        assert (walk.allowed() == plain.allowed()).all()
        walk.advance(tokens.index(token))
        plain.advance(tokens.index(token))
        assert walk.temperature == wanted[token]
    assert walk.accepting


def test_the_language_stays_as_it_is_and_so_do_constraints_without_temperatures():
    rng = np.random.default_rng(3)
    for grammar, temperatures, *_ in LEXED.values():
        hot, plain = (compile_grammar(ours(grammar, temperatures), BYTES), compile_grammar(grammar, BYTES))
        assert len(plain.temperature) == 0
        for _ in range(5):
            walks = hot.walk(), plain.walk()
            for _ in range(12):
                allowed = walks[0].allowed()
                assert (allowed == walks[1].allowed()).all()
                token = int(rng.choice(np.flatnonzero(allowed)))
                for walk in walks:
                    walk.advance(token)
                if token == 0:
                    break


REFUSED = {
    'start: x\nx[temperature=0.5]: "a" /b/': "line 2.*\n.*\n.*\n.*to the rules of its lexemes",
    'start: x\nx[temperature=0.5]: y\ny: "a"': "temperature is of one terminal, and x uses y",
    'start: x\nx[temperature=0.0001]: "a"': "temperature takes 0, or a number from 0.001 to 1000000",
    'start: x\nx[temperature="hot"]: "a"': "temperature takes 0, or a number",
    'start: x\nx[temperature]: "a"': "temperature takes 0, or a number",
    'start: x\nx[temperature=0.+5]: "a"': "temperature takes 0, or a number",
    'start: x\nx[max_chars=1.5]: "a"': "max_chars takes a number from 1",
    'start: x "c" | y "d"\nx[temperature=1]: /a/\ny[temperature=2]: /a/': "can never match",
    "start: x\nx[temperature=0.5]: <|x|>": "temperature is of one terminal",
}


@pytest.mark.parametrize("grammar", REFUSED)
def test_what_is_not_offered_is_refused_with_its_place(grammar):
    with pytest.raises(ConstraintError, match=REFUSED[grammar]):
        compile_grammar(grammar, BYTES)


def test_what_would_lose_temperatures_is_refused():
    grammar = 'start: x\nx[temperature=0.5]: "a"'
    for options in ({"canonical": True}, {"filters": [fsa_compile.filters.ascii()]}):
        with pytest.raises(ConstraintError, match="temperatures of rules are kept only without canonical="):
            compile_grammar(grammar, models.small_tokenizer_path() if "canonical" in options else BYTES, **options)


def test_files_keep_temperatures_and_damaged_ones_are_refused(tmp_path):
    grammar, temperatures, *_ = LEXED["called"]
    made = compile_grammar(ours(grammar, temperatures), BYTES)
    made.save(tmp_path / "c.npz")
    assert np.array_equal(CompiledConstraint.load(tmp_path / "c.npz").temperature, made.temperature)
    assert made.nbytes == dataclasses.replace(made, temperature=made.temperature[:0]).nbytes + 4 * made.num_nodes
    for at, value in [(1, -0.5), (1, np.nan), (1, np.inf), (1, 1e-9), (1, 1e7), (0, 0.5)]:
        own = made.temperature.copy()
        own[at] = value
        dataclasses.replace(made, temperature=own).save(tmp_path / "bad.npz")
        with pytest.raises(ArtifactError, match="'temperature' has a number out of range"):
            CompiledConstraint.load(tmp_path / "bad.npz")
    dataclasses.replace(made, temperature=made.temperature[:-1]).save(tmp_path / "bad.npz")
    with pytest.raises(ArtifactError, match="'temperature' must have one entry per node"):
        CompiledConstraint.load(tmp_path / "bad.npz")
