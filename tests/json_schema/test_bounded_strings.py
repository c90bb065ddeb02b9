"""Strings with a pattern or a format and a bound on their length: counted in a register as written out as states, and no dead ends."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from oracles.counting import language_difference, mask_differences

import fsa_compile
import models
from fsa_compile.automata.labelled_dfa import lengths, longest_text, shortest_rests, steps, words_trie
from fsa_compile.automata.pushdown import UNCOUNTED
from fsa_compile.automata.unfold_stacks import flattened
from fsa_compile.composition.compose import compose_machine
from fsa_compile.json_schema import SchemaOptions, patterns, schema_machine, strings
from fsa_compile.json_schema.formats import format_dfa
from fsa_compile.json_schema.patterns import without_count

STRINGS = [
    {"pattern": "^a(ba)*$", "maxLength": 10},
    {"pattern": "^(c|a+dd(e|ff)*)$", "maxLength": 9},
    {"pattern": "^a*(bxxxxxx)?$", "maxLength": 11},
    {"pattern": "^a*(bxxxxxx)?$", "minLength": 5, "maxLength": 11},
    {"pattern": "^(aaa)+$", "minLength": 4, "maxLength": 12},
    {"pattern": "^(aaa)+$", "minLength": 8, "maxLength": 14},
    {"pattern": "^[aé😀]+(\n|é😀é)$", "maxLength": 9},
    {"pattern": "^(é|ab😀)*$", "maxLength": 9},
    {"pattern": "@.*\\.x$", "maxLength": 10},
    {"anyOf": [{"pattern": "^a+@a+$", "maxLength": 9}, {"enum": ["", "none"]}]},
    {"oneOf": [{"maxLength": 9}, {"const": "a"}]},
    {"format": "email", "maxLength": 12},
    {"format": "uri", "maxLength": 9},
    {"format": "date-time", "minLength": 22, "maxLength": 24},
    {"format": "hostname", "maxLength": 10},
    {"pattern": "^[ab]{1,6}(-[ab]{1,6}){0,3}$", "minLength": 3, "maxLength": 12},
]


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


@pytest.fixture
def counting(monkeypatch):
    """Everything that can be counted is."""
    monkeypatch.setattr(strings, "_FEW_STATES", 0)


@pytest.mark.parametrize("string", STRINGS, ids=str)
def test_the_register_counts_what_states_do(string, monkeypatch):
    """Equal at every reachable pair of states: the same bytes go on, the same texts end, and nothing is ambiguous."""
    schema = {"type": "string", **string}
    written_out = flattened(schema_machine(schema, options=SchemaOptions(max_string_chain=99)), 1 << 20)
    monkeypatch.setattr(strings, "_FEW_STATES", 0)
    counted = schema_machine(schema)
    assert (counted.bounds != UNCOUNTED).any()
    assert written_out is not None
    assert language_difference(written_out, counted) is None


@pytest.mark.parametrize("name", ["email", "uri", "iri", "idn-email", "time", "json-pointer"])
def test_what_a_character_adds_is_never_negative(name):
    dfa = format_dfa(name)
    rests = shortest_rests(dfa)
    assert min(steps(dfa, rests)) >= 0
    assert rests[0] == min(n for n in range(30) if _has_length(dfa, n))


def _has_length(dfa, n):
    states = {0}
    for _ in range(n):
        states = {t for q in states for _, _, t in dfa.rows[q]}
    return any(dfa.labels[q] for q in states)


def test_no_length_between_the_bounds(counting):
    with pytest.raises(fsa_compile.UnsatisfiableSchemaError):
        schema_machine({"type": "string", "pattern": "^(aaa)+$", "minLength": 10, "maxLength": 11})


@pytest.mark.parametrize("most", [64, 252])
def test_host_names_within_a_bound(most):
    """Labels of 1 to 63 characters, and no more than so many in all: more than the format allows where nothing counts."""
    machine = schema_machine({"type": "string", "format": "hostname", "maxLength": most})
    assert machine.num_controls < 200
    rng = random.Random(most)
    for _ in range(200):
        sizes = [rng.choice([1, 2, 5, 30, 62, 63, 64]) for _ in range(rng.randint(1, 6))]
        labels = ["".join(rng.choice("ab-0") for _ in range(size)) for size in sizes]
        text = ".".join(labels)[: rng.choice([most - 1, most, most + 1, 300])]
        plain = all(re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", label) for label in text.split("."))
        assert machine.accepts(f'"{text}"'.encode()) == (plain and len(text) <= most), text
    assert machine.accepts(b'"' + b".".join([b"a" * 50] * (most // 51)) + b'"')


@pytest.mark.parametrize(("low", "high"), [(1500, 2000), (1500, None), (1500, 1499)])
def test_lengths_of_several_branches_are_one(low, high):
    branches = [{"minLength": low}, {"minLength": 3}, {"pattern": "^[a-z]"}, {} if high is None else {"maxLength": high}]
    schema = {"type": "string", "allOf": branches}
    if high is not None and high < low:
        with pytest.raises(fsa_compile.UnsatisfiableSchemaError):
            schema_machine(schema)
        return
    machine = schema_machine(schema)
    for size in (3, low - 1, low, low + 1, high or 9_000, (high or 9_000) + 1):
        assert machine.accepts(b'"' + b"a" * size + b'"') == (low <= size and (high is None or size <= high)), size
    assert not machine.accepts(b'"' + b"A" * low + b'"')


def test_longest_text():
    assert longest_text(format_dfa("hostname")) == 253
    assert longest_text(format_dfa("uuid")) == 36
    assert longest_text(format_dfa("email")) is None
    assert longest_text(words_trie(["", "abc", "de"])) == 3
    assert longest_text(words_trie([])) == -1
    assert longest_text(lengths(2, 5)) == 5
    assert longest_text(lengths(2, None)) is None


@pytest.mark.parametrize("string", [STRINGS[1], STRINGS[3], STRINGS[6], STRINGS[9]], ids=str)
def test_masks_are_those_of_the_machine(string, counting, tokenizer):
    machine = schema_machine({"type": "object", "properties": {"k": {"type": "string", **string}}, "required": ["k"]})
    vocabulary = tokenizer.vocabulary
    constraint = compose_machine(machine, vocabulary, source="")
    checked, wrong = mask_differences(
        constraint, machine, vocabulary.tokens, np.random.default_rng(0), walks=12, length=24, eager=0.7
    )
    assert not wrong, wrong[:5]
    assert checked > 100_000


@pytest.mark.parametrize("string", [{"format": "email", "maxLength": 40}, {"pattern": "^[\\s\\S]{3,40}x$"}], ids=str)
def test_masks_near_the_bound_over_a_real_vocabulary(string, counting, data_dir):
    machine = schema_machine({"type": "string", **string})
    vocabulary = fsa_compile.load_tokenizer(data_dir / "tokenizers" / "llama3").vocabulary
    constraint = compose_machine(machine, vocabulary, source="")
    rng = np.random.default_rng(1)
    checked, wrong = mask_differences(constraint, machine, vocabulary.tokens, rng, walks=2, length=14, eager=0.8)
    assert not wrong, wrong[:5]
    assert checked > 1_000_000


@pytest.mark.parametrize(
    "string",
    [
        {"format": "email", "maxLength": 254},
        {"format": "uri", "maxLength": 2048},
        {"format": "hostname", "maxLength": 255},
        {"pattern": "^arn:aws:[a-z0-9]+:[a-z0-9-]*:\\d{12}:.+$", "minLength": 20, "maxLength": 2048},
    ],
    ids=str,
)
def test_common_bounds_compile_and_hold(string, tokenizer):
    """Random texts up to the limit on tokens are valid, and never too long."""
    constraint = fsa_compile.compile_json_schema({"type": "string", **string}, tokenizer)
    rng = random.Random(0)
    machine = schema_machine({"type": "string", **string})
    for limit in (60, 400):
        walk, tokens = constraint.walk(), []
        while not (walk.accepting and rng.random() < 0.01):
            allowed = np.flatnonzero(walk.allowed(limit - len(tokens)))
            going = [t for t in allowed.tolist() if t not in tokenizer.vocabulary.stop_ids]
            if not going:
                break
            tokens.append(rng.choice(going))
            walk.advance(tokens[-1])
        data = b"".join(tokenizer.vocabulary.tokens[t] for t in tokens)
        assert walk.accepting
        assert machine.accepts(data)


COUNTED_PATTERNS = [
    ("^.{1,500}$", "^.*$", 1, 500),
    (r"^[\s\S]{10,5000}$", r"^[\s\S]*$", 10, 5000),
    (r"^(.|\n){0,10000}$", r"^(.|\n)*$", 0, 10000),
    ("^(?:a|b)x{3}(?=.*c).{40,}yz$", "^(?:a|b)x{3}(?=.*c).*yz$", 46, None),
    ("^([a-z]{900})$", "^([a-z]*)$", 900, 900),
    (r"^[^\x00]{2,99}?$", r"^[^\x00]*$", 2, 99),
]


@pytest.mark.parametrize(("pattern", "other", "low", "high"), COUNTED_PATTERNS)
def test_counts_of_one_character_are_lengths(pattern, other, low, high):
    assert without_count(pattern) == (other, low, high)
    kind = {"type": "string"}
    same = {**kind, "pattern": other, "minLength": low, **({} if high is None else {"maxLength": high})}
    assert schema_machine({**kind, "pattern": pattern}).num_controls == schema_machine(same).num_controls


@pytest.mark.parametrize(
    "pattern",
    ["a{1,500}$", "^a{1,500}", "^a{1,5}$", "^(ab){1,500}$", "^a*b{1,500}$", "^a?.{1,500}$", "^.{1,500}$|^x$", "^(.{0,500}x){1,2}$",
     "^.{1,90}.{1,90}$", "^(a|bc).{1,500}$", "^.{1,500$", "(", "^(?>.{1,500})$"],
)  # fmt: skip
def test_other_counts_stay(pattern):
    assert without_count(pattern) is None


@pytest.mark.parametrize("pattern", ["^x(?=.*é)[aé]{3,7}b$", "^[aé]{2,4}$", "^(a|é){6}$", "^a.{3,}$", "^(?!aa).{2,5}b{2}$"])
def test_texts_of_patterns_without_their_count(pattern, monkeypatch):
    monkeypatch.setattr(patterns, "_FEW_COUNTED", 1)
    other, low, high = without_count(pattern)
    rng = random.Random(0)
    matched = 0
    for _ in range(4_000):
        text = rng.choice(["", "x", "a", "aé"]) + "".join(rng.choices("aéb", k=rng.randint(0, 9)))
        found = re.fullmatch(pattern[1:-1], text) is not None
        assert found == bool(re.fullmatch(other[1:-1], text) and low <= len(text) <= (high or len(text))), text
        matched += found
    assert matched > 10


@pytest.mark.parametrize("string", [{"minLength": 40}, {"minLength": 33, "pattern": "^[ab]*$"}, {"minLength": 34, "pattern": "^aab"}], ids=str)
def test_lower_bounds_alone_are_counted(string, tokenizer):
    """The masks of the register are those of the states written out, with and without a limit on the tokens."""
    schema = {"type": "string", **string}
    counted = fsa_compile.compile_json_schema(schema, tokenizer)
    states = fsa_compile.compile_json_schema(schema, tokenizer, options=SchemaOptions(max_string_chain=99, max_chain=99))
    assert (schema_machine(schema).bounds != UNCOUNTED).any()
    rng = random.Random(0)
    for _ in range(12):
        walks, limit = (counted.walk(), states.walk()), rng.choice([None, 45])
        for used in range(45):
            left = None if limit is None else limit - used
            one, two = (walk.allowed(left) for walk in walks)
            assert (one <= two).all()
            if left is None:
                assert (one == two).all()
            going = [t for t in np.flatnonzero(one).tolist() if t not in tokenizer.vocabulary.stop_ids]
            if not going:
                break
            token = rng.choice(going)
            for walk in walks:
                walk.advance(token)
            assert walks[0].accepting == walks[1].accepting
        assert limit is None or walks[0].accepting


def test_lengths_of_one_string_are_one():
    kind = {"type": "string", "pattern": "^.{1,500}$"}
    assert schema_machine({**kind, "maxLength": 200}).bounds.max() <= 200
    with pytest.raises(fsa_compile.UnsatisfiableSchemaError):
        schema_machine({**kind, "minLength": 501})


def test_lengths_beyond_a_format_need_no_counter():
    """A host name is never longer than 253."""
    schema = {"type": "string", "format": "hostname"}
    plain = schema_machine(schema)
    assert schema_machine({**schema, "maxLength": 253}).num_controls == plain.num_controls
    assert schema_machine({**schema, "minLength": 1, "maxLength": 300}).num_controls == plain.num_controls


def test_options_that_write_counts_out_read_it_too(counting, tokenizer):
    schema = {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^(c|a+dd(ee|ff)*)$", "maxLength": 9}}
    options = SchemaOptions(max_array_depth=2, max_object_depth=2)
    flat = fsa_compile.compile_json_schema(schema, tokenizer, options=options)
    stack = fsa_compile.compile_json_schema(schema, tokenizer)
    own = fsa_compile.compile_json_schema(schema, tokenizer, canonical=True, options=options)
    for text, valid in (('["aaaadde","c"]', False), ('["aaaaddee","c"]', True), ('["aaaaaaaadd"]', False), ('["aaaaaaadd"]', True)):
        tokens = tokenizer.encode(text)
        assert [_accepts(c, tokens) for c in (flat, stack)] == [valid, valid], text
        canonical = fsa_compile.CanonicalWalk(own, fsa_compile.canonical_tables(tokenizer))
        assert _follows(canonical, tokens) == valid, text


def _accepts(constraint, tokens):
    return _follows(constraint.walk(), tokens)


def _follows(walk, tokens):
    for token in tokens:
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return bool(walk.accepting)


@pytest.mark.parametrize("items", [{"const": 1}, {"type": ["null", "array"]}], ids=str)
def test_arrays_of_at_least_so_many(items):
    schema = {"type": "array", "items": items, "minItems": 500}
    machine = schema_machine(schema)
    assert machine.num_controls < 400
    element = "1" if "const" in items else "[null, [1]]"
    for count, valid in ((1, False), (499, False), (500, True), (501, True), (1300, True)):
        assert machine.accepts(("[" + ", ".join([element] * count) + "]").encode()) == valid
    assert not machine.accepts(b"[]")
