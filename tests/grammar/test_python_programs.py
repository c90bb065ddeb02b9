"""`python` of the library on Python programs: those of the shared data, and changed ones, against `ast.parse`."""

from __future__ import annotations

import ast
import io
import json
import random
import re
import tokenize
import warnings
from functools import cache

import pytest
from oracles.grammar_checks import TokenSampler, check_machine, library_machine
from oracles.keyword_swaps import keywords_of, with_keyword
from oracles.python_fstrings import FStrings
from oracles.python_statements import LEFT_OUT_STATEMENTS, statement
from oracles.stack_sets import StackSets

import fsa_compile
from fsa_compile import library
from fsa_compile.composition.compose import compose_machine

PROGRAM = '''import os.path as path
from typing import List, Dict

LIMIT: int = 10  # a comment


def search(rows: List[int], wanted: Dict[str, int], deep=True,
           found=None) -> bool:
    """Looks.

  Anywhere.
    """
    total, count = 0, len(rows)
    for i, row in enumerate(rows):
        if row == wanted['x'] and not (deep or row is None):
            # first
            return True

        elif i % 2 != 0:
            try:
                total += row ** 2 if row > -1 else 0
            except (KeyError, ValueError) as error: raise
            finally:
                pass
        else:
            rows[i:].append({k: [v for v in [1, 2.5] if v] for k in "ab" 'c'})
    while total < LIMIT: total += 1
    with open("f", mode="r") as file:
        return file.read(
            10
        ).strip()


class A(object):
    x = y = lambda a, b: a + b
print(search([], {}), A().x(1, 2)[-1])
'''
"""Uses most of what the grammar has."""
SHORT = (
    "x = a.b\n", "import a\n", "from a import b as c\n", "a[b], c = d\n", "global a\n", "del a\n", "x = {a: b, **c}\n", "x = lambda a: b\n",
    "async def f():\n    await a\n", "@a.b\ndef f(a, *b, c=1, **d): return a\n", "x = f'{a!r:b}'\n", "assert a, b\n", "raise a from b\n",
    "with a as b: pass\n", "try:\n    a\nexcept b as c:\n    d\n", "1, a /9\n", "(a := b)\n", "class A(B, c=D):\n    x: int = 1\n",
    "f(a, # b\n  c)\n", "(a, [b, *c]) = [d] = e\n", "for (a.b, c[0]), *d in e: pass\n", "with a as (b, c): d\n", "x = b'' b\"\"\"a\"\"\" + rb'\\a'\n",
    "x = u'' r'''a''' f'' '\\U0010ffff'\n", "def f(a, /, b=1, *, c, **d): pass\n", "def f(a=1, /, *b): pass\n", "x = lambda a, /: a\n", "from .. . import a\n",
    "if a:\n    b\n    # c\n# d", "a\n# b", "  # a\n \t\nx\n", " # a\nx\n", "\t\nx\n", "a = \\\n    b + \\\n    c if d \\\n    else e\n", "with a, \\\n     b: c\n", "assert a, \\\n    'b' \\\n    'c'\n", "from a import b, \\\n    c\n",
    "f(\\\n a \\\n , b)\n", "a \\\n  .b \\\n  [c] \\\n  = d\n", "with a \\\n  as b: c\n",
    "del (a, [b.c]), d[0],\n", "for a \\\n  in b: c\n", "x = b'a' \\\n  b'b'\n", "with (a as b, c): pass\n",
    "a[b:=c, d]\n", "def f(*a: *b): pass\n", "def f(a, *b: c, d: e = f): pass\n", "@a := b\n@c if d else e\nclass A: pass\n", "match ...:\n    case a: b\n",
    "a\n  ", "if a:\n    b\n         ", "if a:\n    b\n  # c", "a\n \t", "a  # b\n    \n ",
    "from ... import a\nfrom ...b import c\nfrom .....d import e\n",
    "f'{a.b}{c[1]}{d(e, -1)!r:>{f}}'\n", "f(\n f\"{', '.join(a)}\", f'{a[1:]} {b+1}{{' \n)\n", 'f"""{a.b}\n"d" {e=:x}"""\n',
    "".join(f"{'    ' * k}if a{k}:\n" for k in range(8)) + "    " * 8 + "b\nc\n",
)  # fmt: skip


@cache
def machine():
    return library_machine("python")


def accepts(text: str) -> bool:
    return machine().accepts(text.encode())


def parses(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            return False
    return True


def reindented(text: str) -> str:
    """A program with four spaces for every block; the lines inside of brackets and strings as they are."""
    rows, level, begins = text.split("\n"), 0, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        level += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type == tokenize.NEWLINE:
            begins = True
        elif begins and token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER):
            begins, row = False, token.start[0] - 1
            rows[row] = "    " * level + rows[row].lstrip()
    return "\n".join(rows)


def changed(rng: random.Random, text: str) -> str:
    """A program with one lexeme removed, doubled or swapped with the next one, or one line indented otherwise."""
    parts = re.findall(r'[A-Za-z_]\w*|\d+|\n *|"""|.', text, re.DOTALL)
    k, kind = rng.randrange(len(parts) - 1), rng.randrange(4)
    if kind < 3:
        parts[k : k + 2] = [[parts[k + 1]], [parts[k], parts[k], parts[k + 1]], [parts[k + 1], parts[k]]][kind]
    else:
        k = rng.choice([i for i, part in enumerate(parts) if part[0] == "\n"])
        parts[k] = "\n" + " " * max(0, len(parts[k]) - 1 + rng.choice([-8, -4, 4, -1, 1, 2]))
    return "".join(parts)


def check_changed(programs: list[str], count: int, seed: int) -> None:
    rng, both, missed = random.Random(seed), {True: 0, False: 0}, 0
    for _ in range(count):
        text = changed(rng, rng.choice(programs))
        taken, right = accepts(text), parses(text)
        assert right or not taken, text
        both[right] += 1
        missed += right and not taken and text.rstrip(" ") == reindented(text)
    assert min(both.values()) > count // 10
    assert missed < both[True] / 50  # what the grammar leaves out, beside blocks that are indented otherwise


def test_a_program_is_read_and_changed_ones_are_refused_where_python_refuses_them(exhaustive):
    assert parses(PROGRAM)
    assert accepts(PROGRAM)
    check_changed([PROGRAM], 10_000 if exhaustive else 150, 1)


def test_keywords_are_no_names(exhaustive):
    draw, words = random.Random(3), keywords_of(library.grammar_text("python"))
    for _ in range(20_000 if exhaustive else 500):
        text = with_keyword(draw, draw.choice([PROGRAM, *SHORT]), words)
        assert parses(text) or not accepts(text), text


def test_the_shared_programs(data_dir, exhaustive):
    if not (data_dir / "programs").is_dir():
        pytest.skip("the shared programs are not here")
    rows = [json.loads(line) for line in (data_dir / "programs" / "python.jsonl").read_text().splitlines()]
    texts = [reindented(row["text"].rstrip() + "\n") for row in (rows if exhaustive else rows[::5])]
    taken = [text for text in texts if accepts(text)]
    assert len(taken) > 0.98 * len(texts)
    check_changed(taken, 10_000 if exhaustive else 150, 2)


@pytest.mark.parametrize(
    "text", ["def\n", "if x:\n", "x = \n", "f() = 1\n", "None = 1\n", "for = 1\n", "f(a=1, 2)\n", "def f(a=1, b): pass\n", "x = 1_\n",
             "return x y\n", "if x:\npass\n", "  x\n", "if x:\n    a\n  b\n", "try:\n    a\n", "else:\n    a\n", "a[1:2:3:4]\n", "not\n",
             "a is is b\n", "'a\n'\n", "lambda: \n", "await\n", "x = yield\n    y\n", "from a importé\n", "x = 1é\n", "fromα import b\n", "import a asñ b\n", "[x for in y]\n", "{1: 2, 3}\n", "a[b:=c:d]\n", "a[b.c:=d]\n", "a[d:b:=c]\n", "def f(*, a: *b): pass\n", "def f(**a: *b): pass\n", "lambda *a: *b: c\n", "def f(a: *b): pass\n", "@*a\nclass A: pass\n", "{**a}: 1\n",
             "def f(*, **a): pass\n", "def f(/, a): pass\n", "def f(*, /, a): pass\n", "def f(a, /, b, /): pass\n", "def f(a=1, /, b): pass\n", "(*a) = b\n",
             "(a, b()) = c\n", "for a() in b: pass\n", "a \\\n", "a + \\\n\n    b\n", "a + \\ \n b\n", "'a' \\\n", "  # a\n  b\n", "   \n b\n", "b'é'\n", "b'' 'a'\n",
             "f'{a b}'\n", "f'{}'\n", "f'{a.if}'\n", "f'{a('b')}'\n", "f'{a[]}'\n", "f(f'{a\n}')\n", "f(f'{a(\nb)}')\n", "f'{a!x}'\n", "f'{a!r }'\n", "f'{1.a}'\n", "f'{a}}'\n", "f'{a(b,)!}'\n",
             "if a:\n    b\n      # c\n   d\n", "if a:\n    ", "a\n    \tb", "f(a\n  ", "try:\n    a\n    ", "x = 1.real\n", "x = 1.5.5\n", "x = 1..5\n", "x = 0x1.5\n", "x = 0_0.real\n", "from a... import b\n"],
)  # fmt: skip
def test_what_is_no_python_is_refused(text):
    assert not parses(text)
    assert not accepts(text)


LEFT_OUT = (
    "if a:\n  b\n", "if a:\n\tb\n", "'\\N{BULLET}'\n", "match *a, b:\n    case c: d\n", "match not a:\n    case b: c\n",
    "match a:\n    case 1 + 2j: b\n", "match a:\n    case f'b': c\n", "match a:\n    case b(_=c): d\n",
    "f'{ {a} }'\n", "f'{a or {}}'\n", "f'{(lambda: a)}'\n", "f'{(yield)}'\n", "f'{(a := b)}'\n", "f'{f\"a\"}'\n", "f'{[a for b.c in d]}'\n",
    "f'''{a\n}'''\n", "f'''{(a\n)}'''\n", "f'{a:\">3}'\n", "f'\\{a}'\n", "(a): b = c\n",
    "f'{\"a\" \"b\"}'\n", "f'{...}'\n", "f'{*a, b}'\n", "f'{[*a]}'\n", "f'{a[*b]}'\n", "f'{[a async for a in b]}'\n", "f'{a for a in b}'\n", "f'{a:{{}}}'\n", "f'{a:{b!r}}'\n", "f'{a:{b:c}}'\n", "f'{a:{b[0]}}'\n",
    "a\r\n", "a\x0c\n", "with a as *b: c\n",
    "".join(f"{'    ' * k}if a{k}:\n" for k in range(9)) + "    " * 9 + "b\n", "1if a else b\n", "x = 1.5if a else b\n", "from ... . import a\n",
)  # fmt: skip
"""What the grammar's comment says is left out, by example."""


@pytest.mark.parametrize("text", LEFT_OUT)
def test_what_is_left_out(text):
    assert parses(text)
    assert not accepts(text)


@pytest.mark.parametrize("text", SHORT)
def test_short_programs_are_read(text):
    assert parses(text)
    assert accepts(text)


def test_of_changed_short_programs_none_is_taken_that_python_refuses(exhaustive):
    rng = random.Random(4)
    for _ in range(20_000 if exhaustive else 500):
        text = changed(rng, rng.choice(SHORT))
        assert parses(text) or not accepts(text), text


def test_the_grammar_is_deterministic():
    assert machine().deterministic


STARRED = ("{}", "{}, b", "a, {}", "x = {}", "x = y = b, {}", "x += {}, a", "x: a = {},", "return {}", "yield {}, a", "[{}]", "{{a, {}}}", "({}, a)", "(a, {})", "f({})", "f(a, {})",
           "a[{}]", "a[b, {}]", "for x in {}: a", "for x in a, {}: b", "with ({}, a): b", "with (a, {}): b", "class A({}): b", "del {}", "match a, {}:\n    case b: c", "f(({},))", "{} = a", "print({}, end=a)")  # fmt: skip
"""Places for what is starred."""
VALUES = "a|a.b|f(a)|-a|a + b|a | b|await a|a ** -b|(a or b)|[a]|a or b|a and b|not a|a < b|a in b|a not in b|a is None|a if b else c|lambda: a|a := b|a if b else lambda: c"


def test_of_starred_values_those_are_read_that_python_reads():
    """In calls and indices any, elsewhere none with `or`, `not`, comparisons and what binds less."""
    for place in STARRED:
        for value in re.split(r"\|(?! )", VALUES):
            text = place.format(f"*{value}") + "\n"
            assert accepts(text) == parses(text), text


def test_numbers_with_underscores():
    """And with attributes of numbers, which a number that may have a fraction cannot have."""
    for number in re.split(" ", "1.real 1_0.a 0.a 00.a 1._a 1.e 1.5.5 1.5.a.5 0x1.5 0b1.5 1.5.real 1..a 1.e5 1.5.e5 .5.a 1e5.a 1j.a 1.j.a 0x1.a 0xe.e5 0o7.a -1.5.a 1_0j 1_0.0_1 .1_0 .1_0j 1e1_0 1_0e-1_0j 0_0 0_1j 1__0 1_ _1. 1._0 .1_ 1e_1 1e1_ 1_j 0x_f 0_1"):
        assert accepts(f"x = {number}\n") == parses(f"x = {number}\n"), number


def test_names_that_begin_with_keywords():
    text = "ifé = varα.nullñ + Trueß[日本]\ndef notλ(Ж, inÿ): return fё\nf'{isé}'\n"
    assert parses(text)
    assert accepts(text)


def test_statements_are_read_as_python_reads_them(exhaustive):
    rng, both, missed = random.Random(11), {True: 0, False: 0}, 0
    for _ in range(60_000 if exhaustive else 2_000):
        text = statement(rng)
        right, taken = parses(text), accepts(text)
        both[right] += 1
        missed += right and not taken
        assert taken == right or (right and LEFT_OUT_STATEMENTS.search(text)), text
    assert min(both.values()) > 250
    assert missed < both[True] / 20


@pytest.mark.parametrize("odd", [False, True])
def test_fstrings_are_read_as_python_reads_them(odd, exhaustive):
    drawn, both = FStrings(random.Random(12), odd), {True: 0, False: 0}
    for _ in range(60_000 if exhaustive else 1_500):
        text = drawn.line()
        right = parses(text)
        both[right] += 1
        assert accepts(text) == right or (right and odd), text
    assert min(both.values()) > 75


def test_masks_inside_fstrings(data_dir, exhaustive):
    if not exhaustive:
        pytest.skip("composing python with a vocabulary takes a minute and 5 GB: run with --exhaustive")
    drawn, vocabulary = FStrings(random.Random(13), False), fsa_compile.load_tokenizer(data_dir / "tokenizers" / "llama3").vocabulary
    constraint = compose_machine(machine(), vocabulary, source="python")
    texts = (line.encode() for line in (drawn.line() for _ in range(200)) if accepts(line))
    tally = check_machine(constraint, StackSets(machine()), TokenSampler(vocabulary), random.Random(14), tokens=400, texts=texts)
    assert tally.wrong == []
    assert tally.allowed > tally.checks / 10
    assert tally.positions > 100


def test_match_and_case_are_names_elsewhere():
    uses = "match = 1\nmatch.x = case\nmatch(x).y, b = match[1:2]\nmatch += 1\nmatch: int = 2\nmatch in y\nmatch not in y\nmatch if x else y\n"
    uses += "f(match=1, case=2); match(a, b=1)\nimport match\nfor match in case: case = match\nx.match()\nmatch and case\nmatch - 1\nmatch(a for a in b)\n"
    assert parses(uses)
    assert accepts(uses)
