"""Machines of long grammars kept on disk: found again when nothing changed, made again when anything did."""

from __future__ import annotations

import dataclasses
import lzma
import warnings

import numpy as np
import pytest
from oracles.grammar_checks import grammar_of, library_machine

from fsa_compile import CompileLimits, ConstraintError, Vocabulary, compile_grammar, library
from fsa_compile.compiler import cache, stored_machines
from fsa_compile.compiler.grammars import parse_grammar, special_tokens
from fsa_compile.compiler.stored_machines import packaged_machine
from fsa_compile.formats import grammar_constraints
from fsa_compile.grammar.grammar_checks import GrammarWarning, check_grammar
from tools.library_machines import LANGUAGES

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b"(a", b"))", b""], stop_ids=[258])
OTHER = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b"a)", b"a,", b""], stop_ids=[258])
RULES = 'start: item\nitem: NAME | "(" (item ("," item)*)? ")"\nNAME: /[a-z]+/\n'
COMMENT = "// " + "long" * (stored_machines.LONG // 4) + "\n"
VALID, INVALID = (b"a", b"()", b"(a,(bc),())"), (b"", b"(", b"(a", b"a)", b"(a,)", b"(a b)")


@pytest.fixture
def made(monkeypatch, tmp_path):
    """The machines that were made, not read; the folder is new."""
    monkeypatch.setenv("CONSTRAX_CACHE", str(tmp_path))
    found, make = [], grammar_constraints.machine_of

    def counted(*args, **options):
        found.append(make(*args, **options))
        return found[-1]

    monkeypatch.setattr(grammar_constraints, "machine_of", counted)
    return found


def stored(folder):
    return sorted(folder.glob("machine-*.npz"))


def packaged(name, more="", **others):
    return packaged_machine(library.grammar_text(name) + more, **{"limits": CompileLimits(), **library.options(name), **others})


def check(constraint):
    for text in VALID + INVALID:
        walk = constraint.walk()
        fine = all(walk.allowed()[b] and walk.advance(b) is None for b in text)
        assert (fine and bool(walk.allowed()[258])) == (text in VALID), text


def test_the_table_of_returns_is_written_out_when_asked_for():
    machine, other = packaged("sql"), packaged("sql")
    control, symbol, after = machine.returns
    assert "ret" not in vars(machine)
    assert machine.ret.shape == (machine.num_controls, machine.num_symbols) == (other.num_controls, other.num_symbols)
    assert np.count_nonzero(machine.ret) == len(after) > 1000
    assert (machine.ret[control, symbol] == after).all()
    replaced = dataclasses.replace(other, end=other.end)
    assert (replaced.ret == machine.ret).all()
    assert replaced.num_symbols == machine.num_symbols
    assert all((a == b).all() for a, b in zip(replaced.returns, machine.returns))


@pytest.mark.parametrize("vocabulary", [LETTERS, OTHER])
def test_found_again(made, tmp_path, vocabulary):
    first = compile_grammar(COMMENT + RULES, LETTERS)
    again = compile_grammar(COMMENT + RULES, vocabulary)
    assert len(made) == len(stored(tmp_path)) == 1
    for constraint in (first, again):
        check(constraint)
    direct = compile_grammar(RULES, vocabulary)
    for name in ("rows", "delta", "arc_token", "arc_effect", "effects", "group_row", "level_cost"):
        assert (getattr(again, name)[:] == getattr(direct, name)[:]).all(), name
    assert again.extra == direct.extra


def test_everything_counts(made, tmp_path):
    for _ in range(2):
        compile_grammar(COMMENT + RULES, LETTERS)
        compile_grammar(COMMENT + RULES.replace("[a-z]", "[b-z]"), LETTERS)
        compile_grammar(COMMENT + RULES, LETTERS, mode="characters")
        compile_grammar(COMMENT + RULES, LETTERS, stacks=2)
        compile_grammar(COMMENT + RULES, LETTERS, limits=CompileLimits(max_states=10_000))
        compile_grammar(COMMENT + RULES, LETTERS, limits=CompileLimits(max_seconds=50))
    assert len(made) == len(stored(tmp_path)) == 5


@pytest.mark.parametrize("other", [("9.0.0", "2024.11.6"), ("15.0.0", None)])
def test_other_unicode_data_make_another_machine(made, other, monkeypatch):
    """Pythons of several versions may share a folder, and `\\w` is not the same in all."""
    compile_grammar(COMMENT + RULES, LETTERS)
    with monkeypatch.context() as changed:
        changed.setattr(cache, "_unicode_data", lambda: other)
        cache.code_digest.cache_clear()
        compile_grammar(COMMENT + RULES, LETTERS)
    cache.code_digest.cache_clear()
    assert len(made) == 2
    compile_grammar(COMMENT + RULES, LETTERS)
    assert len(made) == 2


def test_warnings_are_those_of_a_machine_that_is_made(made):
    text = COMMENT + RULES + 'unused: "b"\n'
    for _ in range(2):
        with pytest.warns(GrammarWarning, match="does not need these rules: unused") as caught:
            compile_grammar(text, LETTERS)
        assert caught[0].filename == __file__
    assert len(made) == 1


def test_a_damaged_file_is_replaced(made, tmp_path):
    compile_grammar(COMMENT + RULES, LETTERS)
    (path,) = stored(tmp_path)
    whole = path.read_bytes()
    other = compile_grammar(COMMENT + RULES.replace("[a-z]", "[b-z]"), LETTERS)
    foreign = next(p for p in stored(tmp_path) if p != path).read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[:200] + b"\0" * 40 + whole[240:], foreign):
        path.write_bytes(content)
        before = len(made)
        check(compile_grammar(COMMENT + RULES, LETTERS))
        assert len(made) == before + 1
        assert len(path.read_bytes()) == len(whole)
    assert not other.walk().allowed()[ord("a")]


def test_what_is_not_kept(made, tmp_path, monkeypatch):
    compile_grammar(RULES, LETTERS)  # a short one
    with pytest.raises(ConstraintError):
        compile_grammar(COMMENT + 'start: "a" start', LETTERS)
    assert not stored(tmp_path)
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    check(compile_grammar(COMMENT + RULES, LETTERS))
    assert not stored(tmp_path)


def test_those_used_longest_ago_are_deleted(made, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_machines, "MOST_FILES", 2)
    for letter in "bcd":
        compile_grammar(COMMENT + RULES.replace("[a-z]", f"[{letter}-z]"), LETTERS)
    assert len(stored(tmp_path)) == 2
    compile_grammar(COMMENT + RULES.replace("[a-z]", "[d-z]"), LETTERS)
    assert len(made) == 3


@pytest.mark.parametrize("name", LANGUAGES)
def test_machines_of_the_package_are_those_that_the_code_makes(name):
    found, made = packaged(name), library_machine(name)
    assert not list(special_tokens(grammar_of(name)))  # which depend on the vocabulary
    for field in dataclasses.fields(made):
        one, other = getattr(found, field.name), getattr(made, field.name)
        same = one.dtype == other.dtype and np.array_equal(one, other) if isinstance(other, np.ndarray) else one == other
        assert same, f"{field.name}: run python -m tools.library_machines {name}"


def test_each_file_of_the_package_is_of_a_language():
    files = {path.name for path in stored_machines.LIBRARY.glob("*.xz")}
    assert files == {stored_machines.packaged_path(name).name for name in LANGUAGES}


def test_a_language_of_the_library_is_not_made(made, tmp_path):
    constraint = compile_grammar(library.grammar_text("java"), LETTERS, **library.options("java"))
    for text, fine in ((b"class A { int a; }", True), (b"class A { int; }", False)):
        walk = constraint.walk()
        assert fine == all(walk.allowed()[b] and walk.advance(b) is None for b in text)
    assert not made
    assert not stored(tmp_path)


def test_a_text_of_the_library_is_not_parsed(monkeypatch):
    """Its options may be left out, where they are what a parser takes by itself."""
    monkeypatch.setattr(grammar_constraints, "parse_grammar", None)
    compile_grammar(library.grammar_text("sql"), LETTERS)
    own = packaged("sql")
    for options in ({}, {"start": "start"}, {"mode": "longest"}, {"syntax": "lark"}):
        found = packaged_machine(library.grammar_text("sql"), limits=CompileLimits(), **options)
        assert (found.action == own.action).all()


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_text_of_the_library_is_parsed_without_options_as_with_them(name):
    """And warns of nothing, so that nothing is said twice or never."""
    text = library.grammar_text(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grammar = parse_grammar(text)
        check_grammar(grammar)
    assert grammar == parse_grammar(text, **library.options(name))
    assert grammar == parse_grammar(text, start="start")


def test_whatever_is_not_the_language_of_the_library_has_no_machine_in_the_package():
    limits = CompileLimits()
    assert packaged("java") is not None
    assert packaged("java", limits=CompileLimits(max_seconds=1, max_rules=30_000)) is not None
    assert packaged("java", limits=dataclasses.replace(limits, max_rules=limits.max_rules - 1)) is None
    for other in ({"stacks": 2}, {"more": "\n"}, {"start": "expression"}, {"mode": "characters"}, {"syntax": "gbnf"}):
        assert packaged("java", **other) is None
    for wrong in ({"start": ""}, {"start": 0}, {"mode": ""}, {"mode": 0}, {"syntax": ""}, {"syntax": False}, {"stacks": True}):
        with pytest.raises(ConstraintError):
            compile_grammar(library.grammar_text("java"), LETTERS, **wrong)


def test_a_file_of_another_text_is_not_taken(monkeypatch):
    """As where a grammar was changed, and its file was not made anew."""
    text = library.grammar_text("sql") + "\n"
    monkeypatch.setattr(library, "grammar_text", lambda name: text)
    assert packaged("sql") is None


def test_a_file_of_the_package_that_cannot_be_read_is_none(monkeypatch, tmp_path):
    whole = stored_machines.packaged_path("sql").read_bytes()
    monkeypatch.setattr(stored_machines, "LIBRARY", tmp_path)
    for content, fine in ((whole, True), (b"", False), (whole[:-40], False), (lzma.compress(b"PK"), False)):
        stored_machines.packaged_path("sql").write_bytes(content)
        assert (packaged("sql") is not None) == fine
