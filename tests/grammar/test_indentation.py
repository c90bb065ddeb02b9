"""Blocks by indentation: against Lark's `Indenter`, against `ast.parse`, and masks against all texts of a small language."""

from __future__ import annotations

import ast
import itertools
import random
import re

import lark
import pytest
from lark.indenter import Indenter

from fsa_compile import Vocabulary, compile_grammar
from fsa_compile.errors import GrammarSyntaxError, UnsupportedGrammarError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

TREE = r"""
start: (_NL | tree)*
tree: NAME _NL [_INDENT tree+ _DEDENT]
NAME: /[a-z]+/
_NL: /(\r?\n[\t ]*)+/
%declare _INDENT _DEDENT
%ignore " "
"""
SCRIPT = r"""
start: (_NEWLINE | statement)*
statement: line _NEWLINE | "if" head block ("elif" head block)* ["else" ":" block] | "def" NAME "(" [names] ")" ":" block
    | "try" ":" block (("except" [expression] ":" block)+ ["else" ":" block] ["finally" ":" block] | "finally" ":" block)
block: line _NEWLINE | _NEWLINE _INDENT statement+ _DEDENT
line: (NAME "=")* expression | "pass"
head: expression ":"
names: NAME ("," NAME)*
expression: term ("+" term)*
term: NAME | NUMBER | term "(" [expression ("," expression)*] ")" | "(" expression ")" | "[" [expression ("," expression)*] "]"
NAME: /[a-z]+/
NUMBER: /[1-9][0-9]*(?![0-9a-z])/
_NEWLINE: /(#[^\n]*)?\n([ ]*(#[^\n]*)?\n)*[ ]*(?!#)/
%ignore " "
%ignore "\n"
%ignore /#[^\n]*\n/
%declare _INDENT _DEDENT
%indent 2 3
"""
PROGRAM = """def f(x, y):
  # first
  if x:

    try:
      y = g(x,
 # inside
[1, 2 + (3)])
    except x: pass
  elif y + 1:
    pass
  else:
      # anywhere
    z = y = f()

f(1)
"""


class _Blocks(Indenter):
    NL_type, INDENT_type, DEDENT_type, tab_len = "_NL", "_INDENT", "_DEDENT", 8
    OPEN_PAREN_types, CLOSE_PAREN_types = [], []


class _Units(_Blocks):
    """Lark's `Indenter` where each of at most three blocks is indented by two spaces more, as `%indent 2 3` says."""

    def handle_NL(self, token):  # noqa: N802
        column = len(token.rsplit("\n", 1)[1])
        if self.paren_level <= 0 and (column % 2 or not column <= min(self.indent_level[-1] + 2, 6)):
            raise lark.indenter.DedentError
        yield from super().handle_NL(token)


def parses(parse, text: str) -> bool:
    """Whether a parser reads a text."""
    try:
        parse(text)
    except (lark.exceptions.LarkError, lark.indenter.DedentError, SyntaxError):
        return False
    return True


def lines(rng: random.Random, levels: int) -> str:
    """A text whose lines begin at a level or beside one."""
    out, level = "", 0
    for _ in range(rng.randint(1, 6)):
        level = max(0, min(levels, level + rng.choice([1, 1, 0, 0, -1, -2, -3])))
        shift = rng.choice([0] * 20 + [1, 2])
        out += " " * (2 * level + shift) + rng.choice(["a", "b ", "a b", "ab", "", "  "]) + "\n" * rng.choice([1, 1, 1, 2])
    return out if rng.random() < 0.8 else out.rstrip("\n")


def test_blocks_are_those_of_larks_indenter():
    """But for blocks that are indented by anything else than the unit, and spaces before the first line, which Lark ignores."""
    parser = lark.Lark(TREE, parser="lalr", postlex=_Blocks())
    machine = machine_of(parse_lark(TREE + "%indent 2 4", mode="longest"))
    assert machine.deterministic
    rng, both = random.Random(5), {True: 0, False: 0}
    for _ in range(4_000):
        text = lines(rng, 5)
        columns = [len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()]
        ours = machine.accepts(text.encode())
        usual = all(c % 2 == 0 and c <= 8 for c in columns) and all(d - c <= 2 for c, d in itertools.pairwise(columns))
        usual = usual and not text.startswith(" ") and not re.search(r"\n +\Z", text)
        theirs = usual and parses(parser.parse, text + "\n")
        assert ours == theirs, (text, ours)
        both[ours] += 1
    assert min(both.values()) > 400


def changed(rng: random.Random, text: str) -> str:
    """A text with one lexeme removed, doubled or swapped with the next one, or one line's indentation changed."""
    if rng.random() < 0.4:
        rows = text.split("\n")
        k = rng.randrange(len(rows))
        rows[k] = " " * rng.choice([0, 1, 2, 3, 4, 6, 8]) + rows[k].lstrip(" ")
        return "\n".join(rows)
    parts = re.findall(r"[a-z]+|[0-9]+|\n *|#[^\n]*|.", text)
    k = rng.randrange(len(parts) - 1)
    parts[k : k + 2] = rng.choice([[parts[k + 1]], [parts[k], parts[k], parts[k + 1]], [parts[k + 1], parts[k]]])
    return "".join(parts)


def test_scripts_are_read_as_python_reads_them(exhaustive):
    machine = machine_of(parse_lark(SCRIPT, mode="longest"))
    assert machine.accepts(PROGRAM.encode())
    assert machine.accepts(PROGRAM.rstrip("\n").encode())
    rng, both = random.Random(7), {True: 0, False: 0}
    for _ in range(20_000 if exhaustive else 600):
        text = PROGRAM
        for _ in range(rng.randint(1, 3)):
            text = changed(rng, text)
        ours = machine.accepts(text.encode())
        both[ours] += 1
        if ours:
            assert parses(ast.parse, text), repr(text)
        elif parses(ast.parse, text):
            assert outside(text), repr(text)
    assert min(both.values()) > 100


def outside(text: str) -> bool:
    """Whether a text has what the script grammar leaves out: other columns, tuples, adjacent or annotated names and the like."""
    rows = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if any((len(row) - len(row.lstrip(" "))) % 2 for row in rows) or text[:1] == " " or not text.endswith("\n"):
        return True
    odd = (
        ast.Tuple,
        ast.AnnAssign,
        ast.IfExp,
        ast.Subscript,
        ast.UnaryOp,
        ast.keyword,
        ast.TryStar,
        ast.Compare,
        ast.BoolOp,
        ast.Starred,
    )
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, odd) or (isinstance(node, ast.Assign) and not all(isinstance(t, ast.Name) for t in node.targets)):
            return True
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for one in body if isinstance(body, list) else ():
                inner = getattr(node, "col_offset", None)
                line = text.split("\n")[one.lineno - 1]
                first = not line[: one.col_offset].strip()
                if first and inner is not None and one.col_offset - inner not in (2, 0):
                    return True
    return bool(re.search(r",\s*(#[^\n]*\n\s*)*[)\]]|[0-9][a-z]|[a-z][0-9]|\b0|\bpass\b\s*[(\[=+]|;", text))


def test_masks_allow_what_can_be_completed_and_nothing_else():
    tokens = [b"", *(bytes([b]) for b in b"ab \n"), b"\n ", b"\n  ", b"a\n", b"\n\n ", b"a\n b", b"b\na", b"  a"]
    grammar = TREE.replace("[a-z]+", "[ab]").replace('%ignore " "', "").replace(r"(\r?\n[\t ]*)+", r"(\n[ ]*)+") + "%indent 1 2"
    constraint, machine = compile_grammar(grammar, Vocabulary.from_tokens(tokens, stop_ids=[0])), machine_of(parse_lark(grammar))
    texts = {bytes(t) for n in range(8) for t in itertools.product(b"a \n", repeat=n)}
    language = {t for t in texts if machine.accepts(t)}
    prefixes = {t[:n] for t in language for n in range(len(t) + 1)}
    todo, seen = [(constraint.walk(), b"")], set()
    while todo:
        walk, text = todo.pop()
        seen.add(text)
        allowed = walk.allowed()
        assert bool(allowed[0]) == walk.accepting == machine.accepts(text)
        for token, piece in enumerate(tokens):
            further = text + piece
            if not token or len(further) > 6:
                continue
            wanted = bool(machine.run(further))
            assert bool(allowed[token]) == wanted, (text, piece)
            if wanted and b"b" not in piece and further not in seen:
                assert further in prefixes
                after = constraint.walk()
                for byte in further:
                    after.advance(tokens.index(bytes([byte])))
                todo.append((after, further))
    assert len(seen) > 60


def test_a_line_may_end_any_number_of_blocks():
    machine = machine_of(parse_lark(TREE + "%indent 2 4", mode="longest"))
    deep = "a\n  b\n    c\n      d\n        e\n"
    for level in range(5):
        assert machine.accepts((deep + "  " * level + "f\n").encode())
        assert not machine.accepts((deep + "  " * level + " f\n").encode())
    assert not machine.accepts((deep + " " * 10 + "f\n").encode())
    assert not machine.accepts(b"a\n    b\n")


@pytest.mark.parametrize(
    ("grammar", "error", "words"),
    [
        ("start: A\n%declare A", UnsupportedGrammarError, "but for %declare _INDENT _DEDENT"),
        (TREE.replace("_NL", "_EOL"), UnsupportedGrammarError, "a terminal for the ends of lines"),
        (TREE + "%indent 0 4", GrammarSyntaxError, "out of bounds"),
        (TREE.replace(r"[\t ]*", ""), UnsupportedGrammarError, "does not end with 4 spaces"),
    ],
)
def test_what_cannot_be_is_refused(grammar, error, words):
    with pytest.raises(error, match=re.escape(words)):
        machine_of(parse_lark(grammar, mode="longest"))


def test_indentation_needs_a_lexer():
    with pytest.raises(UnsupportedGrammarError, match='mode="longest"'):
        parse_lark(TREE.replace('%ignore " "', ""), mode="characters")


class _Brackets(Indenter):
    NL_type, INDENT_type, DEDENT_type, tab_len = "_NL", "_INDENT", "_DEDENT", 8
    OPEN_PAREN_types, CLOSE_PAREN_types = ["LPAR"], ["RPAR"]


@pytest.mark.parametrize("condition", ["", "(?![a-z])", "(?!ab)", "(?=[^a]|$)"])
def test_newlines_are_ignored_in_brackets_behind_conditions_too(condition: str) -> None:
    """A terminal that stands in brackets alone: what follows it there follows it nowhere else."""
    grammar = rf"""
start: (_NL | item)*
item: "a" b _NL [_INDENT item+ _DEDENT]
b: "(" N* ")"
N: /[0-9]+{condition}/
_NL: /(\n *)+/
%ignore " "
%declare _INDENT _DEDENT
"""
    machine, judge = machine_of(parse_lark(grammar)), lark.Lark(grammar, parser="lalr", postlex=_Brackets())
    seen = {True: 0, False: 0}
    for middle in map("".join, itertools.product("1\n a)", repeat=5)):
        text = f"a({middle})\n"
        assert machine.accepts(text.encode()) == parses(judge.parse, text), text
        seen[parses(judge.parse, text)] += 1
    assert min(seen.values()) > 50


def with_newlines(newline: str):
    """Blocks with a pattern of the newline terminal: the machine, and Lark with its indenter."""
    grammar = rf"""
start: (_NL | item)*
item: NAME _NL [_INDENT item+ _DEDENT]
NAME: /[a-z]+/
_NL: /{newline}/
%ignore " "
%declare _INDENT _DEDENT
"""
    return machine_of(parse_lark(grammar + "%indent 2 3")), lark.Lark(grammar, parser="lalr", postlex=_Units())


@pytest.mark.parametrize(
    "newline", [r"(\n *)+(?!x)", r"(\n *)+(?!xy)", r"(\n *)+(?=[xb]|$)", r"\n *(?!xy)", r"\n *", r"(?<!a)\n *", r"(\n *)+(?=[^\n]*b|$)"]
)
def test_newlines_with_conditions_and_of_one_line_each(newline: str) -> None:
    """They are those of Lark; but the last newline may be missing, and spaces begin no text and end none."""
    machine, judge = with_newlines(newline)
    both = {True: 0, False: 0}
    for text in ("".join(parts) for n in range(5) for parts in itertools.product(["x", "b", "a", "y", "\n", "\n  "], repeat=n)):
        if not text.endswith("\n"):
            continue
        theirs = parses(judge.parse, text)
        assert machine.accepts(text.encode()) == theirs, text
        both[theirs] += 1
    assert min(both.values()) > 10


def test_ignored_comments_before_a_colon():
    """A comment may stand before the line's end and not before the colon, though it is one lexeme that both places call."""
    grammar = r"""
start: item*
item: NAME ":" _NL _INDENT item+ _DEDENT | NAME ";" _NL
NAME: /[a-z]+/
_NL: /(\n *)+/
%ignore " "
%ignore /#[^\n]*/
%declare _INDENT _DEDENT
%indent 2 3
"""
    machine = machine_of(parse_lark(grammar))
    for text, read in (("a: #c\n  b;\n", True), ("a; #:\nb: #;\n  c;#", True), ("a #c\n", False), ("a #:\n", False), ("a #", False)):
        assert machine.accepts(text.encode()) == read
        assert bool(machine.run(text.encode())) == read


@pytest.mark.parametrize("newline", [r"(?<!a)\n *", r"(?<=[a-z])\n *", r"(?<!a)(#[^\n]*)?\n *"])
def test_a_line_end_that_looks_back_is_not_missing(newline: str) -> None:
    """What would stand for it reads nothing, so its condition would not be looked at; a comment reads it."""
    machine, judge = with_newlines(newline)
    both = {True: 0, False: 0}
    for text in ("".join(parts) for n in range(5) for parts in itertools.product(["b", "a", "\n", "\n  ", " ", "#"], repeat=n)):
        ours = machine.accepts(text.encode())
        assert not ours or parses(judge.parse, text) or parses(judge.parse, text + "\n"), text
        assert ours or not text.endswith("\n") or text[:1] == " " or not parses(judge.parse, text), text
        both[ours] += 1
    assert min(both.values()) > 10


def test_a_last_line_may_be_blank_where_a_newline_says_so(tally):
    """`\\Z` lets the text end with any spaces, be they a column or not; masks lead to what is read."""
    plain = r"""
start: (_NL | item)*
item: NAME ("(" NAME* ")")? _NL [_INDENT item+ _DEDENT]
NAME: /a+/
_NL: /(#b*)?\n([ \t]*(#b*)?\n)* *(?![#\t])/
%ignore " "
%ignore "\n"
%declare _INDENT _DEDENT
%indent 2 2
"""
    blank = plain.replace(r" *(?![#\t])/", r"( *(?![#\t])|[ \t]+\Z)/")
    assert blank != plain
    before, after = (machine_of(parse_lark(grammar, mode="longest")) for grammar in (plain, blank))
    assert after.deterministic
    parts = ["a", "a", "\n", "\n", "\n  ", "\n    ", " ", "  ", "\t", "#b", "(", ")"]
    for rng in tally.cases(400, least=0):
        text = "".join(rng.choices(parts, k=rng.randint(1, 9))) + rng.choice(["", "\n", "\n ", "\n      ", "\n\t"])
        ours = after.accepts(text.encode())
        assert ours == before.accepts(re.sub(r"\n[ \t]*\Z", "\n", text).encode()), text
        last = text.rpartition("\n")[2]
        tally.update(["checks", f"{ours}, blank {last.isspace()}"])
    assert min(tally[f"{ours}, blank {last}"] for ours in (True, False) for last in (True, False)) > 20
    vocabulary = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256)), b"\n   ", b" \t"], stop_ids=[0])
    constraint = compile_grammar(blank, vocabulary)
    for text in (b"a\n  a\n   ", b"a(\n \t", b"a\n\t", b"\n    ", b"a\n  a\n      "):
        walk, here = constraint.walk(), {after.initial}
        for byte in text:
            wanted = [after.may_end(here), *(bool(after.run(piece, here)) for piece in vocabulary.tokens[1:])]
            assert walk.allowed()[: len(wanted)].tolist() == wanted, walk
            here = after.run([byte], here)
            if not here:
                break
            walk.advance(byte + 1)
