"""Canonical constraints that nest without a bound: against encoders run by plain simulation, and against bounded nesting."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from oracles import toy_merges
from oracles.toy_decoder import toy

import jax_decode
import models
from fsa_compile import CanonicalWalk, CompiledConstraint, CompileLimits, SchemaOptions, compile_grammar, compile_json_schema
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.automata.unfold_counters import without_registers
from fsa_compile.canonical.encoder.normal_form import check_machine_normal
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, canonical_tables
from fsa_compile.canonical.restrict import canonical_product, with_stack
from fsa_compile.canonical.stacks import stack_artifact, stack_distances
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.composition.compose import compose_machine
from fsa_compile.errors import ConstraintError
from fsa_compile.filters import nfc_inert
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.json_schema import schema_machine
from fsa_compile.limits import Deadline
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

LIMITS = CompileLimits()
GRAMMARS = (
    'start: "[" [start ("," start)*] "]" | "a"',
    'start: "(" start ")" | "a"',
    'start: "[" start "]" | "(" start ")" | "a" | "aa"',
    'start: "[" start "," start "]" | "a"',
    'start: "(" "a"* start? ")"',
    'start: list | "a"\nlist: "[" pair "]"\npair: "(" start "," start ")" | "aa"',
)
SPLITTERS = (r"[\s\S]+", r"a+(?!\])|[\s\S]", r"[^a]+|a+", r"\]+(?!\])|[^\]]|\]", r"[^a]{1,3}|a")


TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["v"],
            "additionalProperties": False,
        }
    },
}
LINKED = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["name", "next"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def grammar_machine(grammar: str) -> ByteMachine:
    return machine_of(parse_grammar(grammar), stacks=1, specials={}, limits=LIMITS, deadline=Deadline(LIMITS))


def compiled(machine: ByteMachine, vocabulary: Vocabulary, tables: CanonicalTables) -> CompiledConstraint | None:
    deadline = Deadline(LIMITS)
    plain = compose_machine(without_registers(machine, LIMITS, deadline), vocabulary, source="toy", limits=LIMITS)
    return with_stack(plain, tables, tables_for(vocabulary), LIMITS, deadline)


def texts_of(machine: ByteMachine, letters: bytes, longest: int) -> list[bytes]:
    """All accepted texts of up to so many letters."""
    out, layer = [], [(b"", {machine.initial})]
    for _ in range(longest + 1):
        after = []
        for text, at in layer:
            if machine.may_end(at):
                out.append(text)
            for letter in letters:
                there = machine.step(at, letter)
                if there:
                    after.append((text + bytes([letter]), there))
        layer = after
    return out


@pytest.mark.exhaustive
def test_exactly_what_the_encoder_makes(exhaustive: bool) -> None:
    """Random encoders over brackets: what it makes of every short text is allowed, and whatever is allowed can be completed to
    what it makes of an accepted text, under limits as well."""
    rng, decided, refused, sequences = random.Random(11), 0, 0, 0
    for round_ in range(400 if exhaustive else 12):
        grammar = GRAMMARS[round_ % len(GRAMMARS)]
        letters = bytes(sorted({ord(ch) for literal in re.findall(r'"([^"]*)"', grammar) for ch in literal}))
        tokens, merges = toy_merges.random_merges(rng, [bytes([b]) for b in letters], rng.randint(2, 9))
        every = [*tokens, *(bytes([b]) for b in range(256) if b not in letters), b""]
        stop, pattern = len(every) - 1, rng.choice(SPLITTERS)
        tables = toy_tables(every, merges, pattern=pattern, stop_ids=[stop])
        vocabulary = Vocabulary.from_tokens(every, stop_ids=[stop])
        machine = grammar_machine(grammar)

        def encode(text: bytes) -> list[int]:
            pieces = re.findall(pattern, text.decode())  # noqa: B023
            return [token for piece in pieces for token in toy_merges.encode(piece.encode(), tokens, merges)]  # noqa: B023

        made = compiled(machine, vocabulary, tables)
        if made is None:
            refused += 1
            continue
        decided += 1
        assert not made.is_regular
        for text in texts_of(machine, letters, 9 if exhaustive else 8):
            sequences += 1
            walk = CanonicalWalk(made, tables)
            for token in encode(text):
                walk.advance(token)  # raises where it is not allowed
            assert walk.accepting, (grammar, text)
        for _ in range(12):
            walk, taken = CanonicalWalk(made, tables), []
            budget = made.shortest_completion + rng.randrange(12)
            for left in range(budget, 0, -1):
                mask = walk.allowed(left)
                assert mask.any(), (grammar, merges, pattern, taken)
                choices = [t for t in np.flatnonzero(mask).tolist() if t != stop]
                if not choices or (walk.accepting and rng.random() < 0.1):
                    break
                taken.append(rng.choice(choices))
                walk.advance(taken[-1])
            assert walk.accepting, (grammar, merges, pattern, taken)
            text = b"".join(every[token] for token in taken)
            assert machine.accepts(text)
            assert encode(text) == taken
    assert decided > refused
    assert sequences > (3_000 if exhaustive else 100)


def nesting(text: str) -> int:
    """How many brackets outside of strings are open after a text."""
    plain = re.sub(r'"(\\\\.|[^"\\\\])*("|$)', "", text)
    return sum(plain.count(ch) for ch in "[{") - sum(plain.count(ch) for ch in "]}")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "schema", "bound"),
    [
        ("llama3", TREE, 6), ("llama2", TREE, 6), ("gpt2", LINKED, 8), ("llama4", LINKED, 8),
        ("llama3", OPEN, 4), ("llama3", {}, 4), ("llama2", {}, 4), ("gpt2", {}, 4), ("llama4", {}, 3), ("qwen", OPEN, 3),
    ],
)  # fmt: skip
def test_masks_are_those_of_bounded_nesting(name: str, schema: Any, bound: int, data_dir: Path, exhaustive: bool) -> None:
    """Wherever a bound is far enough, the stack written out allows the same tokens."""
    if (schema not in (TREE, LINKED) or name == "llama4") and not exhaustive:
        pytest.skip("free values, and a large vocabulary more: only with --exhaustive")
    tokenizer = load_tokenizer(data_dir / "tokenizers" / name)
    tables, decode = canonical_tables(tokenizer), tokenizer.vocabulary.decode
    inert = [nfc_inert()] if name == "qwen" else []
    made = compile_json_schema(schema, tokenizer, canonical=True, filters=inert)
    options, limits = SchemaOptions(max_object_depth=bound, max_array_depth=bound), CompileLimits(max_seconds=300)
    written_out = compile_json_schema(schema, tokenizer, canonical=True, filters=inert, options=options, limits=limits)
    assert not made.is_regular
    assert written_out.is_regular
    rng, compared = random.Random(3), 0
    marks = np.array([any(ch in decode([token]) for ch in '{}[],:"') for token in range(made.vocab_size)])
    for _ in range(400 if exhaustive else 6):
        one, other, text = CanonicalWalk(made, tables), CanonicalWalk(written_out, tables), ""
        for _ in range(40):
            mask = one.allowed()
            more = [decode([token]) for token in np.flatnonzero(mask & ~other.allowed()).tolist()]
            assert not (other.allowed() & ~mask).any(), text
            assert all(nesting(text) + sum(map(token.count, "[{")) > bound - 2 for token in more), (text, more[:5])
            compared += 1
            choices = np.flatnonzero(mask)
            some = choices[marks[choices]]
            token = int(rng.choice(some if len(some) and rng.random() < 0.7 else choices))
            text += decode([token])
            if token in made.stop_ids or nesting(text) > bound - 2:
                break
            one.advance(token)
            other.advance(token)
    assert compared > (5_000 if exhaustive else 50)


@pytest.mark.parametrize("schema", [{}, TREE])
def test_limits_are_kept(schema: Any, exhaustive: bool) -> None:
    """Whatever is chosen, within limits on tokens and nesting, is completed in time, and is the encoder's own."""
    tokenizer = load_tokenizer(models.small_tokenizer_path())
    made, machine = compile_json_schema(schema, tokenizer, canonical=True), schema_machine(schema)
    tables, rng, deepest = canonical_tables(tokenizer), random.Random(2), 0
    for round_ in range(60 if exhaustive else 30):
        walk, taken = CanonicalWalk(made, tables, 2 + 6 * (round_ % 2)), []
        for left in range(rng.randint(made.shortest_completion, 40), 0, -1):
            choices = [t for t in np.flatnonzero(walk.allowed(left)).tolist() if t not in made.stop_ids]
            if not choices:
                break
            some = [t for t in choices if set(tokenizer.vocabulary.decode([t])) & set("[{")]
            taken.append(rng.choice(some if some and rng.random() < 0.9 else choices))
            walk.advance(taken[-1])
        text = tokenizer.vocabulary.decode(taken)
        assert walk.accepting, text
        assert machine.accepts(text.encode())
        assert tokenizer.encode(text) == taken
        deepest = max([deepest, *(nesting(text[:at]) for at in range(len(text)))])
    assert (made.need < 1_000).all()
    assert deepest > 2


@pytest.mark.exhaustive
def test_generated_texts(exhaustive: bool) -> None:
    """The jitted loop: every text is complete, valid, and made of the encoder's own tokens, within limits on tokens and nesting."""
    if not exhaustive:
        pytest.skip("the device's masks are the walk's (tests/jax_decode): whole texts with --exhaustive")
    tokenizer = load_tokenizer(models.small_tokenizer_path())
    schemas = [{}, TREE]
    made = [compile_json_schema(schema, tokenizer, canonical=True) for schema in schemas]
    device = jax_decode.to_device(made, canonical=canonical_tables(tokenizer))
    decoder, rows, deepest = toy(made[0].vocab_size), np.arange(48) % 2, 0
    depths = np.where(rows // 2 % 2, 2, 9)
    out = jax_decode.generate(
        decoder, [[1]] * len(rows), device, key=jax.random.key(0), max_new_tokens=40, sampler=jax_decode.Categorical(),
        constraint=rows, max_depth=depths,
    )  # fmt: skip
    for ids, which in zip(out.tokens, rows.tolist(), strict=True):
        text = tokenizer.vocabulary.decode(ids.tolist())
        json.loads(text)
        assert schema_machine(schemas[which]).accepts(text.encode())  # numbers like 1e999 are beyond floats
        assert tokenizer.encode(text) == ids.tolist()
        deepest = max([deepest, *(nesting(text[:at]) for at in range(len(text)))])
    assert deepest > 3


def test_what_the_topmost_cells_do_not_tell(data_dir: Path) -> None:
    """Several readings, and keys in any order, still need a bound."""
    tokenizer = load_tokenizer(models.small_tokenizer_path())
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "null"}}, "additionalProperties": False}
    with pytest.raises(ConstraintError, match="needs a bound on how deep texts nest"):
        compile_json_schema(schema, tokenizer, canonical=True, options=SchemaOptions(key_order="any"))
    with pytest.raises(ConstraintError, match="needs a bound on how deep texts nest"):
        compile_grammar('start: "a" start "a" | "a"', tokenizer, canonical=True, stacks=16)


def test_long_ways_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens and cells are told apart however many tokens it takes; where they could not be, nothing is decided."""
    every = [*(bytes([b]) for b in range(256)), b"ab", b""]
    tables, vocabulary = toy_tables(every, [(97, 98)], stop_ids=[257]), Vocabulary.from_tokens(every, stop_ids=[257])
    short, long = (grammar_machine(f'start: "(" "{"x" * length}" [start] ")"') for length in (100, 5_000))
    made = compiled(long, vocabulary, tables)
    assert made is not None
    assert 5_002 <= made.shortest_completion < 5_010
    assert (made.need < 10).all()
    for module in (stack_distances, stack_artifact):
        monkeypatch.setattr(module, "CELL", 1 << 12)
    monkeypatch.setattr(stack_distances, "_MOST", (1 << 10, 256))
    assert compiled(short, vocabulary, tables) is not None
    assert compiled(long, vocabulary, tables) is None


def test_constraints_with_a_stack_take_another_way() -> None:
    tokenizer = load_tokenizer(models.small_tokenizer_path())
    nested = compile_grammar('start: "(" start ")" | "a"', tokenizer)
    tables = canonical_tables(tokenizer)
    with pytest.raises(ConstraintError, match="without a stack"):
        canonical_product(nested, tables, tables_for(tokenizer.vocabulary), LIMITS, Deadline(LIMITS))


def test_characters_that_normalizing_may_change() -> None:
    """Of machines with a stack too: é stays as it is in form C, a mark behind it does not."""
    check_machine_normal(grammar_machine('start: "[" start "]" | "é" | "a"'), "NFC")
    with pytest.raises(ConstraintError, match="COMBINING ACUTE ACCENT"):
        check_machine_normal(grammar_machine('start: "[" start "]" | "e" /[a\\u0301]/'), "NFC")
    with pytest.raises(ConstraintError, match="LATIN SMALL LETTER E WITH ACUTE"):
        check_machine_normal(grammar_machine('start: "[" start "]" | "é" | "a"'), "NFD")
