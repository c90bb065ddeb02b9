"""Machines with a stack times filters over text: the language by brute force, no dead ends, and real schemas and grammars."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from oracles.text_walks import takes

import fsa_compile
from fsa_compile import filters, regex
from fsa_compile.automata.pushdown_product import filtered_machine
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.errors import ConstraintError, UnsatisfiableError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.json_schema import SchemaOptions, schema_machine
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary import Vocabulary

LIMITS = CompileLimits()
BYTES = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b'{"', b'": ', b'"a', b"[[", b"]]", b"", b'"}'], stop_ids=[261])
MACHINES = {
    "lists": lambda: schema_machine({"type": "array", "items": {"$ref": "#"}}, options=SchemaOptions(whitespace="compact")),
    "brackets": lambda: machine_of(parse_grammar('start: "[" (start | "a")* "]" | "<" start? ">"'), limits=LIMITS, deadline=Deadline(LIMITS)),
    "sums": lambda: machine_of(parse_grammar('start: term ("," term)*\nterm: "a" | "[" start "]"'), limits=LIMITS, deadline=Deadline(LIMITS)),
}
FILTERS = {
    "length": filters.length(at_most=5),
    "exactly": filters.length(6),
    "forbid": filters.forbid("[[", "a]", "]["),
    "even": regex("(..)*"),
    "ends": regex(r".*[>\]]"),
    "depth": ~regex(r".*\[\[\[.*"),
    "words": regex(r"[^a]*a[^a]*a[^a]*|\[\]|<>"),
}


@pytest.mark.sampled(12, every=("name", "kind"))
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", FILTERS)
def test_language_and_no_dead_ends(name, kind, exhaustive):
    machine, passing = MACHINES[name](), FILTERS[kind].to_byte_dfa()
    found = filtered_machine(machine, passing, LIMITS, Deadline(LIMITS))
    longest = 8 if name != "brackets" else 7 if exhaustive else 6
    accepted, alive, level = set(), set(), [b""]
    for length in range(longest + 1):  # prefixes that the machine itself reads
        accepted |= {text for text in level if machine.accepts(text) and passing.accepts(text)}
        alive |= set(level)
        level = [t + bytes([c]) for t in level for c in b"[],a<>" if machine.run(t + bytes([c]))] if length < longest else []
    if found is None:
        assert not accepted
        return
    assert accepted
    for text in alive:
        assert found.accepts(text) == (text in accepted), text
        configurations = found.run(text)
        assert len(configurations) <= 1
        if configurations:  # some text goes on from here
            assert _completes(found, configurations), text
        elif any(other.startswith(text) for other in accepted):
            raise AssertionError(text)


def _completes(machine, configurations) -> bool:
    """Whether an end is reached within 14 more bytes."""
    seen, level = set(), set(configurations)
    for _ in range(14):
        if machine.may_end(level):
            return True
        seen |= level
        level = {c for byte in b"[],a<>" for c in machine.step(level, byte) if len(c.stack) < 12} - seen
    return False


def test_json_of_any_value_in_ascii():
    options = SchemaOptions(whitespace="compact")
    machine = schema_machine(True, options=options)
    found = filtered_machine(machine, filters.ascii().to_byte_dfa(), LIMITS, Deadline(LIMITS))
    values = [1, "a", "é", {"é": 1}, {"k": ["€"]}, [[], {}], {"a": {"b": "日本"}}, None, "\U0001f600"]
    for value in values:
        for ascii_only in (False, True):
            text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode()
            assert found.accepts(text) == (machine.accepts(text) and text.isascii()), text
    constraint = fsa_compile.compile_json_schema(True, BYTES, options=options, filters=[filters.ascii(), filters.forbid("secret")])
    assert constraint.num_symbols > 0  # the stack is kept
    for text, right in (('{"a":[1,"x"]}', True), ('{"secret":1}', False), ('["é"]', False), ('["sec","ret"]', True)):
        walk = constraint.walk()
        ok = all(walk.allowed()[byte] and walk.advance(byte) is None for byte in text.encode())
        assert (ok and walk.accepting) == right, text


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2}},
    "required": ["name", "tags"],
    "additionalProperties": False,
}


def test_counts_are_written_out_and_tokens_counted(tmp_path):
    chosen = [filters.scripts(["Latin"]), filters.length(at_most=34), filters.token_set(deny=['": '])]
    constraint = fsa_compile.compile_json_schema(SCHEMA, BYTES, filters=chosen)
    for value, right in (({"name": "Ada", "tags": []}, True), ({"name": "Ада", "tags": []}, False), ({"name": "Ada", "tags": ["abcdefg", "h"]}, False)):
        walk = constraint.walk()
        text = json.dumps(value, ensure_ascii=False)
        ok = all(walk.allowed()[byte] and walk.advance(byte) is None for byte in text.encode())
        assert (ok and walk.accepting) == right, value
    walk = constraint.walk()
    for byte in b'{"name':
        walk.advance(byte)
    assert walk.allowed()[ord('"')]
    assert not walk.allowed()[257]
    cache = fsa_compile.CompileCache(tmp_path)
    for one in (filters.ascii(), filters.ascii(), filters.forbid("x"), regex("(?s).*")):
        fsa_compile.compile_json_schema({"type": "boolean"}, BYTES, filters=[one], cache=cache)
    assert (cache.hits, cache.misses) == (1, 2)  # an arbitrary language has no name to keep it by


def test_every_front_end_takes_filters():
    deny = filters.token_set(deny=["[["])
    grammar = 'start: "[" start* "]"'
    made = fsa_compile.compile_grammar(grammar, BYTES, filters=[filters.length(at_most=4)])
    walk = made.walk()
    for byte in b"[[]":
        walk.advance(byte)
    assert set(walk.allowed().nonzero()[0].tolist()) == {ord("]")}
    with pytest.raises(ConstraintError, match=r"a filter over tokens needs a bound on how deep"):
        fsa_compile.compile_grammar(grammar, BYTES, filters=[deny])
    shallow = fsa_compile.compile_grammar(grammar, BYTES, filters=[deny], max_depth=3).walk()
    assert shallow.allowed()[ord("[")]
    assert not shallow.allowed()[259]
    typed = fsa_compile.compile_type(list[str], BYTES, filters=[filters.ascii()]).walk()
    for byte in b'["':
        typed.advance(byte)
    assert not typed.allowed()[0xC3]
    flow = fsa_compile.compile_yaml_schema({"enum": ["é", "e"]}, BYTES, filters=[filters.ascii()]).walk()
    assert {chr(i) for i in flow.allowed().nonzero()[0].tolist() if i < 128} >= {"e"}
    assert not flow.allowed()[0xC3]
    with pytest.raises(UnsatisfiableError, match="passes characters"):
        fsa_compile.compile_grammar(grammar, BYTES, filters=[filters.characters("a")])
    with pytest.raises(UnsatisfiableError, match="passes length"):
        fsa_compile.compile_json_schema(SCHEMA, BYTES, filters=[filters.length(at_most=9)])


def test_all_products_of_short_texts_with_a_counted_grammar():
    grammar = 'start: "a"~2..300 ("[" start "]")?'
    made = fsa_compile.compile_grammar(grammar, BYTES, filters=[filters.length(at_most=7)], max_depth=2)
    for length in range(9):
        for letters in itertools.product("a[]", repeat=length):
            text = "".join(letters)
            if not text.startswith("aa"):
                continue
            walk = made.walk()
            ok = all(walk.allowed()[byte] and walk.advance(byte) is None for byte in text.encode())
            right = re.fullmatch(r"a{2,}(\[a{2,}(\[a{2,}\])?\])?", text) is not None and len(text) <= 7
            assert (ok and walk.accepting) == right, text


def test_long_texts_need_no_stack_of_pythons():
    """A literal, and the members of a list, that are many states one behind the other."""
    word = "ab" * 700
    grammar = fsa_compile.compile_grammar(f'start: "(" start ")" | "{word}"', BYTES, filters=[filters.forbid("zz")])
    assert takes(grammar, f"(({word}))".encode())
    assert not takes(grammar, f"(({word})".encode())
    members = {"type": "object", "properties": {"a": {"enum": ["x", "zz"]}}, "required": ["a"], "additionalProperties": False}
    listed = fsa_compile.compile_yaml_schema({"type": "array", "items": members, "maxItems": 100}, BYTES, filters=[filters.forbid("zz")])
    assert takes(listed, b"- a: x\n- a: x")
    assert not takes(listed, b"- a: x\n- a: zz")
