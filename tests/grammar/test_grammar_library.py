"""The library's grammars against real parsers: json, ast, SQLite, expat and Lark judge the same texts, on both sides."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import random
import re
import string

import pytest
from corpus.library_texts import JSON_ACCEPTED, TEXTS
from corpus.program_texts import PROGRAMS
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import grammar_judges as judges
from oracles.samples import examples

from fsa_compile import ConstraintError, Vocabulary, compile_grammar, library
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, RETURN, ByteMachine
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.inspection.explain import spell

MUTATIONS = 40
JUDGES = {
    "arithmetic": judges.is_arithmetic,
    "csv": judges.is_csv,
    "graphql": judges.is_graphql,
    "json": judges.is_json,
    "json_compact": judges.is_compact_json,
    "json_object": judges.is_json_object,
    "python_values": judges.is_python_value,
    "tags": judges.is_tagged,
    "toml": judges.is_toml,
} | {
    name: functools.partial(judges.lark_reads, library.grammar_text(name))
    for name in ("c_dangling_else", "c_functions", "json_tutorial", "sql_select")
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
PYTHON_ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
    | st.binary(max_size=8) | st.complex_numbers(allow_nan=False, allow_infinity=False).map(lambda z: complex(0, z.imag))
)  # fmt: skip
PYTHON_VALUES = st.recursive(
    PYTHON_ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(PYTHON_ATOMS, inner, max_size=3) | st.sets(PYTHON_ATOMS, min_size=1, max_size=3),
    max_leaves=10,
)  # fmt: skip
ELSEWHERE = {*PROGRAMS, "java", "python"}  # judged by `test_real_languages`, `test_java_programs` and `test_python_programs`
NAMES = [name for name in library.names() if name not in ELSEWHERE]


@functools.cache
def machine(name: str):
    """The byte machine of a grammar of the library."""
    options = library.options(name)
    stacks = options.pop("stacks", 1)
    return machine_of(parse_grammar(library.grammar_text(name), **options), stacks=stacks)


def accepts(name: str, text: str | bytes) -> bool:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return accepts_in_place(machine(name), data) if machine(name).deterministic else machine(name).accepts(data)


def accepts_in_place(m: ByteMachine, data: bytes) -> bool:
    """`ByteMachine.accepts` for deterministic machines without counters, in time linear in the text, whatever its depth."""
    control, stack = m.start, list(m.stack)
    for byte in data:
        while True:
            action = m.action[control, m.byte_class[byte]]
            if not action:
                return False
            entry = m.entry_offset[action]
            if m.entry_next[entry] != RETURN:
                break
            if not stack or not (control := m.ret[control, stack.pop()]):
                return False
        stack += [symbol for symbol, _ in m.pushes[m.entry_push[entry]]]
        control = m.entry_next[entry]
    while m.end[control] == END_RETURN and stack:
        control = m.ret[control, stack.pop()]
    return bool(m.end[control] == END_HERE)


def mutations(name: str, count: int, seed: int = 0):
    """Texts of the corpus with one to three small changes: characters removed, put in, doubled; parts of others put in."""
    draw = random.Random(f"{name} {seed}")
    originals = [text for text in TEXTS[name][0] if text]
    alphabet = sorted({c for text in originals for c in text} | set(string.punctuation + "\n aE0_1"))
    for text in originals:
        for _ in range(count):
            changed = text
            for _ in range(draw.randint(1, 3)):
                at, kind = draw.randint(0, len(changed)), draw.randrange(5)
                until = min(len(changed), at + draw.randint(1, 4))
                if kind == 0:
                    changed = changed[:at] + changed[until:]
                elif kind == 1:
                    changed = changed[:at] + draw.choice(alphabet) + changed[at:]
                elif kind == 2:
                    changed = changed[:at] + draw.choice(alphabet) + changed[until:]
                elif kind == 3:
                    changed = changed[:until] + changed[at:]
                else:
                    other = draw.choice(originals)
                    begin = draw.randrange(len(other))
                    changed = changed[:at] + other[begin : begin + draw.randint(1, 12)] + changed[at:]
            yield changed


def test_the_corpus_and_the_judges_cover_the_library():
    assert set(TEXTS) == set(JUDGES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_judge_agrees_with_the_corpus(name):
    accepted, refused = TEXTS[name]
    assert [text for text in accepted if not JUDGES[name](text)] == []
    assert [text for text in refused if JUDGES[name](text)] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_machine_agrees_with_the_corpus(name):
    accepted, refused = TEXTS[name]
    assert [text for text in accepted if not accepts(name, text)] == []
    assert [text for text in refused if accepts(name, text)] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_artifact_agrees_with_the_corpus(name):
    pairs = sorted({text[i : i + 2].encode() for text in TEXTS[name][0] for i in range(len(text) - 1) if text.isascii()})
    vocabulary = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), *pairs, b""], stop_ids=[256 + len(pairs)])
    constraint = compile_grammar(library.grammar_text(name), vocabulary, **library.options(name))
    verdicts = [(text, wanted) for texts, wanted in zip(TEXTS[name], (True, False)) for text in texts]
    assert [(text, wanted) for text, wanted in verdicts if follows(constraint, vocabulary, text) != wanted] == []


def follows(constraint, vocabulary: Vocabulary, text: str) -> bool:
    """Whether the masks lead through a text, by its longest tokens, to a place where it may end."""
    walk = constraint.walk()
    for token in spell(vocabulary, text.encode()):
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return walk.accepting


@pytest.mark.parametrize("name", NAMES)
def test_changed_texts_are_judged_like_the_real_parser_does(name, exhaustive):
    verdicts = {True: 0, False: 0}
    for text in mutations(name, MUTATIONS * 25 if exhaustive else MUTATIONS):
        expected = JUDGES[name](text)
        verdicts[expected] += 1
        assert accepts(name, text) == expected, repr(text)
    assert min(verdicts.values()) > sum(verdicts.values()) / 30  # so both sides were seen


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_run_is_the_reference(name):
    for text in (*TEXTS[name][0], *TEXTS[name][1]):
        data = text.encode("utf-8", "surrogatepass")
        assert accepts(name, data) == machine(name).accepts(data)


@pytest.mark.parametrize("name", NAMES)
def test_text_that_is_not_utf8_is_refused(name):
    for text in TEXTS[name][0]:
        assert not accepts(name, text.encode() + b"\xff")
    for broken in (b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80"):
        for template in (b'"%b"', b"'%b'", b"%b", b'{"%b":1}', b"SELECT '%b'", b'void f() { "%b"; }'):
            assert not accepts(name, template % broken)


def test_what_sql_select_takes_sqlite_reads():
    assert [text for text in TEXTS["sql_select"][0] if not judges.sqlite_reads(text)] == []
    taken = [text for text in mutations("sql_select", MUTATIONS, seed=1) if accepts("sql_select", text)]
    assert len(taken) > 30
    assert [text for text in taken if not judges.sqlite_reads(text)] == []


def test_the_sqlite_judge_tells_syntax_from_meaning():
    assert judges.sqlite_reads("SELECT nothing_there FROM nowhere")
    assert not judges.sqlite_reads("SELECT FROM nowhere")


@pytest.mark.parametrize("name", ["json", "json_compact"])
@given(value=JSON_VALUES, ascii_only=st.booleans())
@settings(max_examples=examples(25, 600), deadline=None)
def test_what_json_dumps_writes_is_accepted(name, value, ascii_only):
    for separators in (None, (",", ":")):
        text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
        assert accepts(name, text.encode("utf-8", "replace") if not ascii_only else text)


@given(value=JSON_VALUES, draw=st.randoms(use_true_random=False))
@settings(max_examples=examples(25, 600), deadline=None)
def test_json_with_white_space_anywhere(value, draw):
    text = json.dumps(value)
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s"\[\]{},:]+', text)
    spaced = "".join(draw.choice(["", " ", "\n\t", "\r\n  "]) + part for part in parts) + draw.choice(["", "\n"])
    assert judges.is_json(spaced)
    assert accepts("json", spaced)


@given(value=st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3), indent=st.sampled_from([None, 1, 2, "\t"]))
@settings(max_examples=examples(25, 600), deadline=None)
def test_json_objects_in_gbnf(value, indent):
    text = json.dumps(value, indent=indent)
    assert accepts("json_object", text) == judges.is_json_object(text)


@given(value=PYTHON_VALUES)
@settings(max_examples=examples(60, 1_500), deadline=None)
def test_what_repr_writes_is_accepted(value):
    assert accepts("python_values", repr(value))
    assert accepts("python_values", f"f({value!r}, key={value!r})")


def test_json_parsing_suite(data_dir):
    with gzip.open(data_dir / "json_parsing.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert {row["expect"] for row in rows} == {"accept", "reject", "either"}
    wrong = [
        row["name"]
        for row in rows
        if row["expect"] != "either" and accepts("json", base64.b64decode(row["bytes"])) != (row["expect"] == "accept")
    ]
    assert wrong == []


def test_all_grammars_but_one_are_deterministic():
    """Those judged elsewhere are asked there, where their machines are built anyway."""
    assert [name for name in NAMES if not machine(name).deterministic] == ["c_dangling_else"]


def test_every_grammar_says_what_it_is():
    for name in library.names():
        said = library.description(name)
        assert len(said.splitlines()) >= 2, name
        assert library.grammar_text(name).isascii()
        assert "eaves out" in said or name in ("json_tutorial", "c_dangling_else")


def test_a_wrong_name_is_an_error():
    with pytest.raises(ConstraintError, match=r"no grammar 'yaml'\n.*arithmetic, c, c_dangling_else"):
        library.grammar_text("yaml")
    with pytest.raises(ConstraintError, match="no grammar"):
        library.options("yaml")


def test_options_are_copies():
    library.options("json")["mode"] = "characters"
    assert library.options("json")["mode"] == "longest"


def test_the_judges_can_refuse():
    assert not any(judge("(") for name, judge in JUDGES.items() if name not in ("tags", "csv"))
    assert not judges.is_tagged("<p>")
    assert not judges.is_csv('"')
    assert all(map(judges.is_json, JSON_ACCEPTED))
