"""Long strings and lists over tokens that count many characters at once: every mask against the byte machine, and no dead end."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.json_schema import compile_json_schema, schema_machine
from fsa_compile.vocabulary import Vocabulary

LONG = [b"a" * k for k in (2, 3, 7, 20, 33, 34, 50, 64)] + [b"1," * k for k in (2, 5, 40)] + [b"[[", b']],[["', b'{"k":"', b'"},{"k"']
PARTS = ["é".encode(), "é".encode()[1:] + b"aaa", b"aa\xc3", "漢a".encode(), b"\xe6\xbc", b"\xa2aa", b'a"', b'aaaa"]', b"\\", b"\\n" * 9]
PARTS += ["é".encode()[1:] + b"a" * 40, "漢".encode()[2:] + b"a" * 36, b"n" + b"a" * 35, b"]," * 38 + b"[1"]
VOCABULARY = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256)), *LONG, *PARTS], stop_ids=[0])
CUT = (b"\xe6\xbc", b"aa\xc3", b"\\")
"""Tokens within a character or an escape."""
SCHEMAS: dict[str, Any] = {
    "string": {"type": "string", "maxLength": 70},
    "string between": {"type": "string", "minLength": 40, "maxLength": 75},
    "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 60},
    "strings in a list": {"type": "array", "items": {"type": "string", "maxLength": 45}, "maxItems": 50},
    "lists in lists": {"type": "array", "maxItems": 40, "items": {"type": "array", "minItems": 1, "maxItems": 40, "items": {
        "type": "object", "properties": {"k": {"type": "string", "maxLength": 40}}, "required": ["k"]}}},
}  # fmt: skip


def tokens(words: np.ndarray) -> list[int]:
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return [t for t in np.flatnonzero(bits).tolist() if t not in VOCABULARY.stop_ids]


def some_walk(constraint: CompiledConstraint, rng: random.Random, steps: int) -> tuple[HostWalk, list[int]]:
    """A walk of random tokens, mostly long ones."""
    walk, taken = constraint.walk(), list[int]()
    for _ in range(steps):
        able = tokens(walk.allowed_words())
        if not able:
            break
        some = [rng.choice(able) for _ in range(rng.choice((1, 30)))]
        taken.append(max(some, key=lambda t: len(VOCABULARY.tokens[t])))
        walk.advance(taken[-1])
    return walk, taken


def allowed_by(machine: ByteMachine, taken: list[int]) -> list[int]:
    """The tokens after which the machine is still on its way to an accepted text."""
    here = machine.run(b"".join(VOCABULARY.tokens[t] for t in taken))
    return [t for t, text in enumerate(VOCABULARY.tokens) if text and machine.run(text, here)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_are_those_of_the_machine(name: str) -> None:
    constraint, machine, rng = compile_json_schema(SCHEMAS[name], VOCABULARY), schema_machine(SCHEMAS[name]), random.Random(0)
    for steps in (0, 1, 2, 3, 4, 6, 8, 12, 20, 30, 45, 60):
        walk, taken = some_walk(constraint, rng, steps)
        assert tokens(walk.allowed_words()) == allowed_by(machine, taken), taken


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_limit_is_a_dead_end(name: str) -> None:
    """Within any number of tokens and cells that are known to do, some token always leads to the end."""
    constraint, rng = compile_json_schema(SCHEMAS[name], VOCABULARY), random.Random(1)
    for extra in (*[0] * 12, 1, 2, 5, 30):
        walk, taken = some_walk(constraint, rng, rng.randrange(40))
        limited = constraint.walk(max(walk.need, 1) + rng.randrange(2))
        for token in taken:
            limited.advance(token)
        if cut := [t for t in tokens(limited.allowed_words()) if VOCABULARY.tokens[t] in CUT]:
            limited.advance(rng.choice(cut))
        left = limited.distance + extra
        while left and (able := tokens(limited.allowed_words(left))):
            limited.advance(rng.choice(able))
            left -= 1
            assert limited.distance <= left
            assert limited.need <= limited.max_depth
        assert limited.accepting
