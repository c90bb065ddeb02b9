"""Grammars of several files: what they read beside Lark, which reads the same files, and what is said of broken ones."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import lark
import pytest
from oracles.grammar_judges import parses
from oracles.lark_conflicts import larks_parser

from fsa_compile import Vocabulary, compile_grammar, parse_captures, read_grammar
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import ConstraintError, GrammarError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.limits import CompileLimits

BYTES = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256))], stop_ids=[0])

SMALL = CompileLimits(max_states=1_000)
"""Grammars that one stack cannot decide may grow up to a limit."""

FILES = {
    "a rule and its terminals": {"main": "start: pair\n%import .m.pair", "m": 'pair: X "," X\nX: /a+/\nother: "b"'},
    "under another name": {"main": 'start: p p\n%import .m.pair -> p\nX: "b"', "m": 'pair: X ","\nX: /a+/'},
    "a list": {"main": "start: pair X\n%import .m (pair, X)", "m": 'pair: X ","\nX: /a+/'},
    "two statements": {"main": "start: p Y\n%import .m.pair -> p\n%import .m.X -> Y", "m": 'pair: X ","\nX: /a+/'},
    "what is ignored stays behind": {"main": 'start: x\n%ignore "b"\n%import .m.x', "m": 'x: "a" "a"\n%ignore ","'},
    "modules in modules": {
        "main": 'start: x "b"\n%import .m.x',
        "m": 'x: y "," y\n%import .deep.n.y',
        "deep/n": "y: X\n%import .o.X",
        "deep/o": 'X: _A | "ba"\n_A: "a"',
    },
    "one module twice": {"main": "start: x y\n%import .m.x\n%import .n.y", "m": 'x: z\n%import .n.y -> z', "n": 'y: A\nA: "a" | "b,"'},
    "templates": {"main": 'start: list{"a"} list{B}\n%import .m.list\nB: "b"', "m": 'list{x}: x ("," x)* end{x}\nend{y}: y?'},
    "overriding": {"main": 'start: x X\n%import .m (x, X)\n%override X: "b"', "m": 'x: X ","\nX: "a"'},
    "extending": {"main": 'start: x\n%import .m.x\n%extend x: "b"', "m": 'x: "a"'},
    "common beneath": {"main": "start: x\n%import .m.x", "m": 'x: LCASE_LETTER ("," LCASE_LETTER)*\n%import common.LCASE_LETTER'},
    "recursion": {"main": 'start: x\n%import .m.x', "m": 'x: "a" x "b" | ","'},
    "priorities": {"main": 'start: (X | y)+\n%import .m (X, y)', "m": 'X.2: /a[,b]?/\ny: Y\nY: /ab?,?/'},
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.lark").write_text(text)
    return folder / "main.lark"


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_as_lark_reads_them(name, tmp_path):
    path = written(tmp_path, FILES[name])
    parser = lark.Lark.open(str(path), parser="lalr")
    machine = machine_of(parse_lark(read_grammar(path), mode="lark"))
    texts = ["".join(letters) for n in range(7) for letters in itertools.product("ab,", repeat=n)]
    judged = [parses(parser, text) for text in texts]
    assert [machine.accepts(text.encode()) for text in texts] == judged
    assert any(judged)


def test_folders_come_before_that_of_the_file(tmp_path):
    path = written(tmp_path, {"main": "start: A B\n%import .m.A\n%import n.B", "m": 'A: "a"', "lib/m": 'A: "b"', "lib/n": 'B: ","'})
    folders = [str(tmp_path / "nowhere"), str(tmp_path / "lib")]
    assert parses(lark.Lark.open(str(path), parser="lalr", import_paths=folders), "b,")
    assert machine_of(parse_lark(read_grammar(path, import_paths=folders))).accepts(b"b,")
    with pytest.raises(GrammarError, match="there is no module n behind"):
        parse_lark(read_grammar(path))


def test_the_grammars_of_lark_itself(tmp_path):
    path = written(tmp_path, {"main": 'start: NAME "=" DEC_NUMBER COMMENT?\n%import python (NAME, DEC_NUMBER, COMMENT)'})
    parser, machine = lark.Lark.open(str(path), parser="lalr"), machine_of(parse_lark(read_grammar(path)))
    for text, judged in (("ab=10", True), ("ab=10#x", True), ("ab=", False), ("1=10", False), ("ab=0b1", False)):
        assert parses(parser, text) == judged
        assert machine.accepts(text.encode()) == judged


def test_blocks_of_a_module():
    module = 'block: ":" _NL _INDENT line+ _DEDENT\nline: /[a-z]/ (_NL | block)\n_NL: /(\\n *)+/\n%declare _INDENT _DEDENT\n'
    whole, split = f"start: line+\n{module}", f"start: line+\n%import .m.line\n%module m\n{module}"
    machines = [machine_of(parse_lark(text)) for text in (whole, split)]
    for text, judged in (("a:\n    b\nc\n", True), ("a:\nb\n", False), ("a\n", True), ("a:\n    b:\n        c\nd\n", True)):
        assert [machine.accepts(text.encode()) for machine in machines] == [judged, judged]


def in_files(rng: random.Random) -> tuple[str, dict[str, str]]:
    """A random grammar with a rule that starts, and the same spread over a file and two modules, under other names in places.

    Terminals have priorities of their own, so that none is chosen by its name, and each module is imported once, so that no
    terminal is there twice.
    """
    files, numbers = ("main", "m", "n"), range(rng.randint(3, 7))
    file_of = [0, *sorted(rng.choices(range(3), k=len(numbers) - 1))]
    names = ["start", *(rng.choice(["rule", "rule", "TERM"]) + str(number) for number in numbers[1:])]
    whole, parts = list[str](), {file: list[str]() for file in files}
    aliases: dict[tuple[int, int], str] = {}
    for number in numbers:
        others = [k for k in numbers[1:] if 0 <= file_of[k] - file_of[number] <= 1 and k != number]
        used = [rng.choice(others) if others and rng.random() < 0.7 else -1 for _ in range(3)]
        for other in used:
            if other >= 0 and file_of[other] != file_of[number]:
                alias = rng.choice([names[other], f"_{names[other]}", names[other] + "9"])
                aliases.setdefault((file_of[number], other), alias)
        last, texts = rng.choice(["", "*", "+"]), rng.choices(['"a"', '","', '"b"'], k=3)
        pattern = f"/{rng.choice('ab')}{rng.choice(['', '+', 'b?', '[ab]'])}{rng.choice(['', ',', 'b'])}/"
        for file, lines in ((-1, whole), (file_of[number], parts[files[file_of[number]]])):
            body = [aliases.get((file, k), names[k]) if k >= 0 else text for k, text in zip(used, texts)]
            rule = f"{names[number]}: {body[0]} {body[1]} | {body[2]} {body[0]}{last}"
            lines.append(f"{names[number]}.{number}: {pattern}" if names[number][0] == "T" else rule)
    for (file, other), alias in aliases.items():
        parts[files[file]].append(f"%import .{files[file_of[other]]}.{names[other]} -> {alias}")
    return "\n".join(whole), {file: "\n".join(lines) for file, lines in parts.items()}


@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
def test_random_grammars_in_files(tally, tmp_path):
    texts = ["".join(letters) for n in range(6) for letters in itertools.product("ab,", repeat=n)]
    for rng in tally.cases(80, least=2_000):
        whole, files = in_files(rng)
        path = written(tmp_path, files)
        machines = list[ByteMachine | None]()
        for text in (whole, read_grammar(path)):
            try:
                machines.append(machine_of(parse_lark(text, mode="lark"), limits=SMALL))
            except ConstraintError:
                machines.append(None)
        if machines[0] is None or machines[1] is None:  # the order of rules may tell whether one stack is enough
            tally["refused"] += 1
            continue
        tally["made"] += 1
        parser = larks_parser(path)
        for text in texts:
            read = machines[0].accepts(text.encode())
            assert machines[1].accepts(text.encode()) == read, (files, text)
            assert read or parser is None or not parses(parser, text), (files, text)
            tally.update([f"texts {read}", f"by Lark {parser is not None}"])
    assert min(tally["texts True"], tally["texts False"], tally["by Lark True"]) > tally["made"] > tally["refused"] / 4


def test_captures_of_a_module():
    text = 'start: x "," y\n%import .m (x, y)\n%module m\nx[capture]: /[a-c]+/\ny: z\nz[capture="end"]: /[0-9]+/\n'
    found = parse_captures(text, BYTES, "ab,12")
    assert {name: [capture.text for capture in spans] for name, spans in found.items()} == {"x": ["ab"], "end": ["12"]}
    walk = compile_grammar(text, BYTES).walk()
    assert all(walk.advance(byte + 1) is not False for byte in b"ab,12")
    assert walk.accepting


BROKEN = [
    ("start: a\n%import .m.a", "there is no module m behind this grammar .line 2, column 10", "read_grammar"),
    ("start: a\n%import m.n.a", "there is no module m.n", "%module m.n"),
    ("start: a\n%import .m.a\n%module m\nb: \"x\"", "the module m has no a", "It has b"),
    ("start: a\n%import .m.a -> A\n%module m\na: \"x\"", "'A' stands for a rule", "lower case"),
    ("start: A\n%import .m.A -> a\n%module m\nA: \"x\"", "'a' stands for a terminal", "upper case"),
    ("start: a\n%import .m.a\n%module m\nz: \"x\"\na: b", "rule 'b' is not defined .line 5, column 4, in line 2 of module m", "Define it"),
    ("start: a\n%import .m.a\n%module m\na: \"x\n", "never closed in its line .line 4, column 4, in line 1 of module m", "Add"),
    ("start: a\n%import .m.a\n%module m\na: b\n%import .n.b\n%module n\nb: a\n%import .m.a", "n and m import each other", "third"),
    ("start: a\n%import .m.a\n%module m\na: a\n%import .m.a", "m imports itself", "third"),
    ("start: a\n%import .m.a\n%module m\na: \"x\"\n%module m\na: \"y\"", "the module m is there twice", "Rename"),
    ("start: \"a\"\n%module\nb: \"x\"", "a module has a name here", "a line of its own"),
    ("start: \"a\"\n%module m x\nb: \"x\"", "a module has a name here", "a line of its own"),
    ("start: a\na: \"y\"\n%import .m.a\n%module m\na: \"x\"", "a is defined a second time", "rename one"),
    ("start: s\n%import .m.s\n%module m\ns: \"x\" _INDENT \"y\" _DEDENT\n%declare _INDENT _DEDENT", "without ends of lines", "one file"),
]


@pytest.mark.parametrize(("text", "what", "fix"), BROKEN)
def test_what_is_wrong_is_said_with_its_place(text, what, fix):
    with pytest.raises(GrammarError, match=what) as caught:
        parse_lark(text)
    assert fix in caught.value.fix


@pytest.mark.parametrize("end", ["%import", "%import .", "%import m", "%import .m.", "%import (", "%import .m (", '"', "%module"])
def test_files_that_are_not_well_formed_are_told_with_their_place(end, tmp_path):
    text = read_grammar(written(tmp_path, {"main": f'start: "a"\n{end}', "m": 'a: "x"'}))
    with pytest.raises(GrammarError, match="line 2"):
        parse_lark(text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConstraintError, match="cannot be read"):
        read_grammar(tmp_path / "none.lark")
    (tmp_path / "x.lark").write_bytes(b"start: \xff")
    with pytest.raises(ConstraintError, match="cannot be read"):
        read_grammar(tmp_path / "x.lark")
    path = written(tmp_path, {"main": "start: a NAME\n%import .python.a\n%import python.NAME", "python": 'a: "x"'})
    with pytest.raises(ConstraintError, match="the module python is two files"):
        read_grammar(path)
