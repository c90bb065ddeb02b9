"""The library's larger languages against their own implementations: nothing that these refuse is accepted, and little is missed.

A judge may stop at the meaning of a text before it has read all of it, so it is asked about what the grammar takes, and what
the grammar refuses is counted.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from corpus.program_texts import PROGRAMS
from oracles import grammar_judges as judges
from oracles.grammar_checks import library_machine
from oracles.keyword_swaps import keywords_of, with_keyword

from fsa_compile import library
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

JUDGES: dict[str, Callable[[str], bool]] = {
    "c": judges.is_c,
    "go": judges.is_go,
    "javascript": judges.is_javascript,
    "regex": judges.is_regex,
    "sql": judges.sqlite_reads,
    "typescript": judges.is_typescript,
    "xml": judges.is_xml,
}
MISSED = {"c": 0.04, "go": 0.05, "javascript": 0.25, "regex": 0.02, "sql": 0.12, "typescript": 0.3, "xml": 0.005}
"""The most changed texts that the judge takes and the grammar leaves out, of those that the judge takes."""
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "c": ("struct s { int; int a; };", "void f(void) { a > b = c; }", "typedef int t;", "void f(void) { if (1) if (2) ; else ; else ; }", "int a = 'bc';", "int (f)(void) { }", "int f(int *size_t);", "int a$;"),
    "go": (
        "package a\nfunc f() { 4 := 8 }", "package a\ntype T struct { x [n + 1]\n}", "package a\n\t//line a.go:1\n",
        "package a\nvar ªº int", "package a\nvar x = 1 // end",
    ),
    "javascript": (
        "f() = 1\n", "a = b + c\n++d\n", "if (a) b\n++c\n", "a\n++b + c\n", "a\n!b\n", "x = /a/ * 2\n", "x = /a/ ?? b\n", "for (a && b; ;) c\n", "f = (a = b & c) => a\n", ".5\n", "x = a ?.5 + b : c\n", "x = 1..a\n", "x = a\n// b",
        "x = ªº\n", "x = async(1)\n", "async.a = b\n", "(a) => b\n", "(a.b) = c\n", "[super.a] = b\n", "a: while (b) { break a\n(c) }\n", 'export { default }\nfrom "a"\n', "do a(); while (b)\n", "#!/usr/bin/env node\n",
        "for ([].a; ;) b\n", "if (a) if (b) c; else d; else e\n", "a\nin b\n",
        "(a)++\n", "++(a)\n", "a()++\n", "x = ++a ** b\n", "delete 1\n", "delete a()\n", "delete this\n", "x = new a`b`\n", "x = a`\\u{`\n", "class A extends null { }\n", "class A extends class { } { }\n", "do { } while (a) b\n",
        "for (let a = () => { b in c }; ;) d\n", "x = { .5: a }\n", "class A { #a; b() { #a in c } }\n", "class A { #a; b() { return 1 == #a in c } }\n", "export default { }.a\n",
        "export default /a/\n", "export default .5\n", "export default a => b => c\n", "export default a => /b/\n", "import a from 'b' assert { c: 'd' }\n", "x =\u00a0a\n",
    ),
    "sql": ("SELECT a FROM t INDEXED BY i", "SELECT a -- b", "SELECT 'a' IS DISTINCT FROM b", "CREATE TABLE t (g AS (a) AS (b))", "SELECT 'a'.b", "SELECT a FROM t LEFT NATURAL JOIN u", "SELECT a.raise FROM t", "SELECT a over FROM t", "SELECT indexed(1)", "CREATE TABLE t (a generated b)", "SELECT f() OVER (ROWS ? PRECEDING)"),
    "typescript": (
        "x = a >\n b\n", "x = a<b\n", "x = y as T ? a : b\n", "x = y as T && z\n", "x = y as T + z\n",
        "interface A<out in T> { }\n", "x = f<T>\n", "x = a! = b\n", "f = (a?) => b\n",
        "f = (a): (T | U) => b\n", "x = y ? (a): b => c : d\n", "declare const x: T = y\n",
        "{ namespace A { } }\n", "declare async function f()\n", "let x: (T)\n", "type F = ([a]: T) => U\n", "type F = ({ a = b }: T) => U\n",
        "let x: infer U extends V\n", 'let x: import("a", { with: { } }).B\n', "let x\n: T\n", "x = <T>(y)\n", "x = <T>/y/\n", "x = !<T>y\n", "<T>y\n", "x = <() => T>y\n",
        "using = a\n", "for (using a of b) c\n", "using of = a\n", "x = a > /b/\n", "x = a > // b\n c\n",
        "x = a ? /b/ && c : d\n", "f = (a): T\n=> b\n", 'import A = require( "b" )\n', "{ @a class B { } }\n", "export @a class B { }\n", "x = @a class { }\n", "x = y ? () => (b) : c\n",
        "type satisfies = T\n", "class A { a: infer B extends C\n b: T }\n", "type A = ((b: B) => infer C extends D)\n", "x = a.\nb\n", "x = /a/?.b.c\n", "@a let x\n", "@a\n(b) class C { }\n", "x = a; // b",
    ),
}  # fmt: skip
"""What the comments of the grammars say is left out, by example."""
TAKEN = {
    "typescript": (
        "x = 1 << 2 > (c)\n", "x = a << b >> (c)\n", "f(a << b, c >> (d))\n", "f(a << 1, b > (c))\n", "x = a < [b()] > (c)\n", "x = a < <T>b > (c)\n", "x = -a < b > (c) ** d\n",
    ),
}  # fmt: skip
"""What the comments of the grammars say is taken though the judge refuses it, by example."""
_PARTS = re.compile(r"'(?:[^']|'')*'|\w+|\s+|.", re.DOTALL)


PARSERS = {"go": "gofmt", "javascript": "node"}
"""Programs that judge, of those that are not Python packages."""
SOURCES: dict[str, Callable[[], Iterable[Path]]] = {
    "go": lambda: (Path(shutil.which("gofmt") or "").resolve().parents[1] / "src").rglob("*.go"),
    "javascript": lambda: (Path(shutil.which("node") or "").resolve().parents[1] / "lib/node_modules/npm").rglob("*.js"),
}
"""Real programs, in the folder where the judge is installed."""


def judge_of(name: str) -> Callable[[str], bool]:
    """The judge, a skip where it is not installed."""
    if name == "typescript" and not judges.has_typescript():
        pytest.skip("Node finds no typescript here")
    if name in PARSERS and not shutil.which(PARSERS[name]):
        pytest.skip(f"there is no {PARSERS[name]} here")
    if name == "go" and not judges.has_present_gofmt():
        pytest.skip("gofmt here is an old one, whose parser refuses what is left to the type checker now")
    return JUDGES[name]


@functools.cache
def machine(name: str):
    return library_machine(name)


def accepts(name: str, text: str) -> bool:
    return machine(name).accepts(text.encode())


def changed(draw: random.Random, texts: tuple[str, ...]) -> str:
    """A text with one or two lexemes removed, doubled, swapped, or some of another text put in."""
    texts = tuple(filter(None, texts))
    parts = _PARTS.findall(draw.choice(texts))
    for _ in range(draw.randint(1, 2)):
        k, kind = draw.randrange(max(1, len(parts) - 1)), draw.randrange(4)
        one, two = parts[k : k + 1], parts[k + 1 : k + 2]
        if kind < 3:
            parts[k : k + 2] = [two, one * 2 + two, two + one][kind]
        else:
            other = _PARTS.findall(draw.choice(texts))
            begin = draw.randrange(len(other))
            parts[k:k] = other[begin : begin + draw.randint(1, 6)]
    return "".join(parts)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_grammar_and_the_judge_agree_with_the_corpus(name):
    accepted, refused = PROGRAMS[name]
    assert [text for text in accepted if not accepts(name, text)] == []
    assert [text for text in refused if accepts(name, text)] == []
    judge = judge_of(name)
    assert [text for text in accepted if not judge(text)] == []
    assert [text for text in refused if judge(text)] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_grammar_is_deterministic(name):
    assert machine(name).deterministic


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out(name):
    assert [text for text in LEFT_OUT[name] if accepts(name, text)] == []
    judge = judge_of(name)
    assert [text for text in LEFT_OUT[name] if not judge(text)] == []


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_though_the_judge_refuses_it(name):
    assert [text for text in TAKEN[name] if not accepts(name, text)] == []
    judge = judge_of(name)
    assert [text for text in TAKEN[name] if judge(text)] == []


@pytest.mark.parametrize("name", SOURCES)
def test_real_programs_are_read(name, exhaustive):
    judge, end = judge_of(name), "\n" if name == "javascript" else ""
    files = sorted(path for path in SOURCES[name]() if "testdata" not in path.parts and 500 < path.stat().st_size < 20_000)
    texts = [
        path.read_text(encoding="utf-8") + end
        for path in random.Random(name).sample(files, min(len(files), 1000 if exhaustive else 30))
    ]
    texts = list(filter(judge, texts))
    if not files:
        pytest.skip(f"{PARSERS[name]} comes without sources here")
    assert len(texts) > 20
    assert sum(accepts(name, text) for text in texts) >= (0.99 if exhaustive or name == "go" else 0.95) * len(texts)


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_changed_texts_none_is_taken_that_the_judge_refuses(name, exhaustive):
    draw, counts, judge = random.Random(name), {True: 0, False: 0}, judge_of(name)
    missed = 0
    for _ in range(10_000 if exhaustive else 300):
        text = changed(draw, PROGRAMS[name][0])
        taken, right = accepts(name, text), judge(text)
        assert right or not taken, text
        counts[right] += 1
        missed += right and not taken
    assert min(counts.values()) > sum(counts.values()) / 20
    assert missed < MISSED[name] * counts[True]


@pytest.mark.parametrize("name", ["c", "go", "javascript", "sql", "typescript"])
def test_keywords_are_no_names(name, exhaustive):
    """But `arguments` in JavaScript, which V8 refuses for where it stands."""
    draw, judge = random.Random(name), judge_of(name)
    words = [word for word in keywords_of(library.grammar_text(name)) if word != "arguments"]
    assert len(words) > 20
    for _ in range(10_000 if exhaustive else 250):
        text = with_keyword(draw, draw.choice([text for text in PROGRAMS[name][0] if re.search("[A-Za-z]", text)]), words)
        assert judge(text) or not accepts(name, text), text


def test_words_of_joins_are_those_of_sqlite():
    """All sequences of up to three; what is left out has NATURAL behind other words, or three words with it."""
    words = ["", "left", "right", "full", "outer", "inner", "cross", "natural"]
    for kinds in itertools.combinations_with_replacement(words, 3):
        for kind in itertools.permutations(kinds):
            for end in ("", " ON 1"):
                text = f"SELECT a FROM t {' '.join(filter(None, kind))} JOIN u{end}"
                taken, left_out = accepts("sql", text), "natural" in kind
                assert judges.sqlite_reads(text) if taken else left_out or not judges.sqlite_reads(text), text


def test_what_follows_less_and_greater_typescript_reads_too():
    """Behind type arguments it expects ( or a template, and what begins a value and is on the same line makes them comparisons."""
    judge = judge_of("typescript")
    ends = ("\n c", " \n c", " // c\n d", " /* c\n */ d", " /c/", " as", " as.c", " satisfies", " of", " c", " -c", " `c`", " [c]", " .5", " <T>c")
    texts = [f"{begin}{end}{close}\n" for begin, close in (("x = a < b >", ""), ("f(a < b, c >", ")"), ("x = a >", "")) for end in ends]
    taken = [text for text in texts if accepts("typescript", text)]
    assert [text for text in taken if not judge(text)] == []
    assert len(taken) > 20


def test_a_comment_may_end_javascript_where_a_statement_has_ended(exhaustive):
    """Programs cut anywhere, with a comment that no line end follows."""
    draw, judge, taken = random.Random(4), judge_of("javascript"), 0
    for _ in range(5_000 if exhaustive else 250):
        text = changed(draw, PROGRAMS["javascript"][0])
        places = [m.end() for m in re.finditer(r"[;}\n]+|\w+", text)]
        text = text[: draw.choice(places or [0])] + draw.choice([" // b", "\n// b\n//", "; //", "} // b"])
        if accepts("javascript", text):
            assert judge(text), text
            taken += 1
    assert taken > 20


def test_xml_with_given_names_is_wellformed_and_compares_them(exhaustive):
    more = """
%override element: _element{"note"} | _element{"n"} | _element{"to"}
%override attributes: _attribute{"id"}? _attribute{"lang"}?
"""
    named = machine_of(parse_lark(library.grammar_text("xml") + more, mode="characters"))
    texts = (
        '<note id="1"><to>a</to><n lang="x">b<to/></n></note>',
        "<n><n><note></note></n>&lt;</n >",
        "<to id=\"1\" lang='2'><n/>x</to>",
    )
    draw, counts = random.Random(2), {True: 0, False: 0}
    assert all(named.accepts(text.encode()) for text in texts)
    for _ in range(10_000 if exhaustive else 500):
        text = changed(draw, texts)
        right = judges.is_xml(text, names=True)
        kept = not re.search(r"lang[^<>]*\bid\b", text) and set(re.findall(r"</?(\w+)", text)) <= {"note", "n", "to"}
        kept = kept and set(re.findall(r"(\w+) *=", text)) <= {"id", "lang"}
        taken = named.accepts(text.encode())
        assert right if taken else not (right and kept), text
        counts[taken] += 1
    assert counts[True] > 20
