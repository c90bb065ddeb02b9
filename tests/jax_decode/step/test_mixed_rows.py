"""Rows of every kind of constraint in one table, which are swapped, copied, forked, set aside and rewound: masks are those of host walks."""

from __future__ import annotations

import functools
import types

import pytest
from oracles.pooled_rows import TurnedRows

import fsa_compile
import jax_decode
import models

LIMIT, ROWS = 24, 6
TREE = r"""
start: (NAME _NL [_INDENT tree+ _DEDENT])+
tree: NAME _NL [_INDENT tree+ _DEDENT]
NAME: /[a-c]+/
_NL: /(\n *)+/
%declare _INDENT _DEDENT
%ignore " "
%indent 1 3
"""
LEXED = 'start: (N | D | "ab" "(" start ")")+\nN: /[a-c]+/\nD: /[0-2]+/\n%ignore " "'
PALINDROMES = 'start: "a" start "a" | "b" start "b" | "a" | "b"'
KEYS = {"a": {"enum": [1, "b"]}, "b": {"type": "boolean"}, "c": {"type": "null"}}
OBJECT = {"type": "object", "properties": KEYS, "required": ["b"], "additionalProperties": False}
NODE = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"enum": [1, 2]}}, "required": ["b"], "additionalProperties": False}
COUNTED = {"type": "array", "items": {"type": "array", "items": {"enum": [1, 22]}, "maxItems": 60}, "minItems": 1, "maxItems": 50}


@functools.cache
def _tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


class _Canonical:
    """A canonical constraint that walks as others do."""

    def __init__(self, constraint, tables):
        self.constraint, self.tables, self.source = constraint, tables, constraint.source

    def walk(self, max_depth):
        return fsa_compile.CanonicalWalk(self.constraint, self.tables, max_depth)


def of_kinds(kinds):
    """Constraints, as they walk and as they are."""
    t, any_order = _tokenizer(), fsa_compile.SchemaOptions(key_order="any")
    schema, regex, grammar = fsa_compile.compile_json_schema, fsa_compile.compile_regex, fsa_compile.compile_grammar
    make = {
        "regular": lambda: [regex("[a-z]{2,6}", t), regex("(yes|no), because [a-z ]{3,30}", t)],
        "canonical": lambda: [regex("[a-z ]{2,9}(!|\\?)", t, canonical=True), schema(OBJECT, t, canonical=True)],
        "canonical stack": lambda: [schema({"items": {"$ref": "#"}, "type": "array"}, t, canonical=True), grammar('start: "(" start ")" | "a"+', t, canonical=True)],
        "any order": lambda: [schema(OBJECT, t, options=any_order), schema(NODE, t, options=any_order)],
        "counted": lambda: [schema({"type": "string", "minLength": 3, "maxLength": 90}, t), schema(COUNTED, t)],
        "several stacks": lambda: [grammar(PALINDROMES, t, stacks=3)],
        "lexer": lambda: [grammar(LEXED, t, mode="longest"), grammar(TREE, t, mode="longest")],
    }  # fmt: skip
    tables = fsa_compile.canonical_tables(t)
    made = [constraint for kind in kinds for constraint in make[kind]()]
    return [_Canonical(one, tables) if one.is_canonical else one for one in made], made


class _Rows(TurnedRows):
    def __init__(self, tables, constraints, rng):
        super().__init__(types.SimpleNamespace(tables=tables), ROWS, LIMIT, rng)
        self.constraints = constraints

    def entered(self):
        slot = self.rng.randrange(len(self.constraints))
        return self.constraints[slot], slot


MIXTURES = {
    "sets of keys": ["regular", "any order", "counted", "lexer"],
    "several stacks": ["regular", "counted", "several stacks", "lexer"],
    "canonical": ["canonical", "canonical stack"],
}
"""Of what one table may hold."""


@pytest.mark.parametrize("name", MIXTURES)
def test_rows_of_every_kind_beside_each_other(name, tally, exhaustive):
    constraints, made = of_kinds(MIXTURES[name])
    canonical = fsa_compile.canonical_tables(_tokenizer()) if made[0].is_canonical else None
    tables = jax_decode.to_device(made, canonical=canonical)
    for rng in tally.cases(2, least=200, name=name):
        rows = _Rows(tables, constraints, rng)
        for _ in range(300 if exhaustive else 60):
            rng.choice(TurnedRows.HAPPENINGS)(rows)
        tally["checks"] += rows.counts["masks"] * 100
        tally["made"] += 1
        tally["rewound"] += rows.counts["rewound"]
    assert tally["rewound"] > 3
