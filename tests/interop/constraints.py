"""Constraints of every kind over one small vocabulary, for the tests of the host side."""

from __future__ import annotations

import functools

from oracles.toy import every_byte

import fsa_compile
from fsa_compile.vocabulary import Vocabulary


@functools.cache
def vocabulary() -> Vocabulary:
    return every_byte([b'{"', b'":', b'"}', b"na", b"me", b'{"name": ', b"ye", b"yes", b"s"])


@functools.cache
def all_kinds() -> dict:
    """Rows, arcs, counters, a stack, two stacks, sets of keys, items; the stop ids of the vocabulary."""
    v = vocabulary()
    ids = [[v.tokens.index(c) for c in word] for word in ([b"a", b"b"], [b"a", b"ab", b"c"], [b"yes"])]
    keys = {"type": "object", "properties": {k: {"type": "boolean"} for k in "abc"}, "required": ["a"], "additionalProperties": False}
    return {
        "pattern": fsa_compile.compile_regex("(yes|no|ab{1,3}[^a-y]*)", v),
        "words": fsa_compile.compile_choices(["yes", "yea", "a.1"], v),
        "counter": fsa_compile.compile_regex(".{0,300}", v),
        "stack": fsa_compile.compile_grammar('start: "(" start ")" | /[ab]+/', v),
        "stacks": fsa_compile.compile_grammar('start: a* b\na: "a" | "ab"\nb: "b" a "b" | "ba"', v, stacks=4, mode="characters"),
        "keys": fsa_compile.compile_json_schema(keys, v, options=fsa_compile.SchemaOptions(key_order="any")),
        "items": fsa_compile.compile_items(ids, v),
    }
