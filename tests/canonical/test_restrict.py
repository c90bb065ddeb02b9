"""Canonical constraints against brute force: exactly the encoder's sequences of the accepted texts can be walked, without dead ends."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from oracles import toy_merges
from oracles.library_encoders import segmentations

import fsa_compile
from fsa_compile import CanonicalWalk, CompiledConstraint, CompileLimits, SchemaOptions, compile_regex
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.automata.unfold_configurations import written_out
from fsa_compile.canonical.explicit_product import product_distances, product_graph
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, canonical_tables
from fsa_compile.canonical.lazy_product import lazy_distances as lazy_distances
from fsa_compile.canonical.lazy_product import pairs as lazy_pairs
from fsa_compile.canonical.restrict import canonical_product
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.composition.compose import compose_machine
from fsa_compile.composition.regular import regular_artifact as assemble
from fsa_compile.errors import ArtifactError, ConstraintError, LimitError, TokenizerError, UnsatisfiableError, UnspellableError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.limits import Deadline
from fsa_compile.python_types.marks import Ge, Le
from fsa_compile.tokenizers import Tokenizer, load_tokenizer
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for
from tests.canonical.conftest import load_piece_encoder


def walked(walk: CanonicalWalk, longest: int) -> Iterator[tuple[int, ...]]:
    """All complete sequences of at most `longest` tokens; a place where nothing is allowed must be complete."""
    mask = walk.allowed()
    assert mask.any() or walk.accepting, "dead end"
    if walk.accepting:
        yield ()
    if longest:
        for token in np.flatnonzero(mask).tolist():
            if token in walk.constraint.stop_ids:
                continue
            walk.advance(token)
            for rest in walked(walk, longest - 1):
                yield (token, *rest)
            walk.rewind(1)


def made(pattern: str, tokens: list[bytes], tables: CanonicalTables) -> CompiledConstraint:
    vocabulary = Vocabulary.from_tokens(tokens)
    limits = CompileLimits()
    return canonical_product(compile_regex(pattern, vocabulary), tables, tables_for(vocabulary), limits, Deadline(limits))


STRING = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
SPLITTERS: tuple[tuple[str, Callable[[str], list[str]]], ...] = (
    (r"[\s\S]+", lambda text: [text]),
    (r"a?b+|[\s\S]", lambda text: re.findall(r"a?b+|[\s\S]", text)),
    (r"a+(?!b)|[\s\S]", lambda text: re.findall(r"a+(?!b)|[\s\S]", text)),
    (r"[ab]{1,3}|c+|[\s\S]", lambda text: re.findall(r"[ab]{1,3}|c+|[\s\S]", text)),
)
PATTERNS = ("[abc]{0,5}", "(a|b)*c", "a*", "(ab|ba|c){1,3}", "(?:aa)*b?", "abc|ab|bca|aabb", "[ab]*aba[ab]{0,2}", "c?(a{2}|b){0,4}")


@pytest.mark.exhaustive
def test_random_small_encoders_and_splitters(exhaustive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts up to 6 letters: the walk gives their canonical sequences and no others, cyclic constraints included. In every
    other round small sets of tokens are treated as large ones are."""
    rng = random.Random(9)
    compared = widened = 0
    for round_ in range(600 if exhaustive else 16):
        large = round_ % 8 > 3
        monkeypatch.setattr(assemble, "NARROW", 1 if large else 64)
        monkeypatch.setattr(lazy_pairs, "_LISTED", 1 if large else 512)
        monkeypatch.setattr(lazy_pairs, "_ALIKE", 1 if large else 4096)
        monkeypatch.setattr(lazy_distances, "_TRIED", 2 if large else 48)
        monkeypatch.setattr(product_graph, "_LISTED", 1 if large else 4096)
        monkeypatch.setattr(product_graph, "_FEW", 1 if large else 256)
        monkeypatch.setattr(product_distances, "_AT_ONCE", 2 if large else 2048)
        monkeypatch.setattr(product_distances, "_SORTED", 1 if large else 21)
        monkeypatch.setattr(product_distances, "_MARKED", 0 if large else 1 << 24)
        tokens, merges = toy_merges.random_encoder(rng, letters=3, merges=rng.randint(1, 7))
        splitter, cut = SPLITTERS[round_ % len(SPLITTERS)]
        every = [*tokens, *(bytes([b]) for b in range(256) if bytes([b]) not in tokens)]
        tables = toy_tables(every, merges, pattern=splitter)
        pattern = rng.choice(PATTERNS)
        if large:
            widened += len(compile_regex(pattern, Vocabulary.from_tokens(every)).group_row) > 0
        constraint = made(pattern, every, tables)
        want = set()
        for text in [b"", *toy_merges.all_texts(3, 6)]:
            if re.fullmatch(pattern, text.decode()):
                pieces = [toy_merges.encode(piece.encode(), tokens, merges) for piece in cut(text.decode())]
                want.add(tuple(token for piece in pieces for token in piece))
        found = {s for s in walked(CanonicalWalk(constraint, tables), 6) if sum(len(every[t]) for t in s) <= 6}
        assert found == want, (tokens, merges, splitter, pattern)
        assert constraint.shortest_completion == min(map(len, want))
        compared += len(want)
    assert compared > 300
    assert widened > 2


def test_budgets_hold() -> None:
    """Whatever is chosen under a limit, the text is complete within it."""
    rng = random.Random(1)
    for _ in range(4):
        tokens, merges = toy_merges.random_encoder(rng, letters=2, merges=5)
        every = [*tokens, *(bytes([b]) for b in range(256) if bytes([b]) not in tokens)]
        tables = toy_tables(every, merges, pattern=r"a+(?!b)|[\s\S]")
        constraint = made("[ab]*aba[ab]{2,5}", every, tables)
        for budget in range(constraint.shortest_completion, 9):
            for _ in range(6):
                walk = CanonicalWalk(constraint, tables)
                for left in range(budget, 0, -1):
                    mask = np.flatnonzero(walk.allowed(left))
                    if not len(mask):
                        break
                    walk.advance(int(rng.choice(mask.tolist())))
                assert walk.accepting


CITIES = "Cologne|Berlin|Munich"
BOUNDED = (
    CITIES, "yes|no|maybe", "true|false|null", r"[0-9]{1,3}", r"-?[0-9]{1,2}(\.[0-9]{1,2})?", r"2024-(0[1-9]|1[0-2])-[0-3][0-9]",
    r"\{\"a\": [0-9], \"b\": (true|false)\}", r"(Mr|Mrs|Dr)\. (Smith|Jones|García)", r"  ?  ?x", r" {1,6}", r"\n{1,3} {0,3}a?",
    r"(don't|can't|we'll|I've|'tis)", r"[a-d]{1,4}", r"(ab){1,5}", r"a{1,9}", r"(foo|bar|baz)( foo| bar){0,2}", r"https?://(www\.)?a\.(com|org)",
    "日本語|中文|한국어|ไทย", "naïve|café|Zürich|ÅÄÖ", r"[😀-😃]{1,2}", r"x[⁰-⁳]", r"#[0-9a-f]{2}", r"\"(\\\\n|\\\\\"|a|b){0,3}\"", r"(  |\t)return [01];?\n?",
    r"(I|i)(s|S) (it|IT)\?{1,2}", r"[\r\n\t ]{1,3}", r"1,000|10,000|1000", r"(\+|-|\*|/){1,4}", r"[A-C][a-c]?[0-2]?", r"(the |a )?(cat|dog)s?\.?",
)  # fmt: skip
"""Thirty bounded languages."""


def texts_of(constraint: CompiledConstraint, tokens: tuple[bytes, ...]) -> set[bytes]:
    """All texts of a constraint without loops."""
    todo, seen, out = [(constraint.start, b"")], set(), set()
    while todo:
        node, text = todo.pop()
        if (node, text) in seen:
            continue
        seen.add((node, text))
        if constraint.accept[node]:
            out.add(text)
        after = constraint.outgoing(node)
        # Every text is spelled by its single bytes too, so longer tokens need not be followed.
        todo += [(int(after[t]), text + tokens[t]) for t in np.flatnonzero(after).tolist() if len(tokens[t]) == 1]
    return out


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gpt2", "llama2", "llama3"])
def test_bounded_languages(name: str, data_dir: Path, exhaustive: bool) -> None:
    """Of all segmentations of all accepted texts, exactly the encoder's own can be walked."""
    if name == "llama3" and not exhaustive:
        pytest.skip("a large vocabulary more: only with --exhaustive")
    tokenizer = load_tokenizer(data_dir / "tokenizers" / name)
    tables, encode = canonical_tables(tokenizer), encoder(name, tokenizer, data_dir)
    tokens = tokenizer.vocabulary.tokens
    ids: dict[bytes, list[int]] = {}
    for i, token in enumerate(tokens):
        if token:
            ids.setdefault(token, []).append(i)
    for pattern in BOUNDED if exhaustive else BOUNDED[:: 6 if name == "gpt2" else 3]:
        every = compile_regex(pattern, tokenizer)
        texts = texts_of(every, tokens)
        want = {tuple(encode(text.decode())) for text in texts}
        constraint = compile_regex(pattern, tokenizer, canonical=True)
        assert set(walked(CanonicalWalk(constraint, tables), 40)) == want, pattern
        assert constraint.shortest_completion == min(map(len, want))
        sample = sorted(texts)[:: max(1, len(texts) // 20)]
        for text in sample:  # the oracle among all segmentations of one text
            assert segmentations(tables.filter, text, ids, 64) == [tuple(encode(text.decode()))]


def encoder(name: str, tokenizer: Tokenizer, data: Path) -> Callable[[str], list[int]]:
    """The library's encoder, without a space in front."""
    if name == "llama2":
        piece = load_piece_encoder(name, data)
        return lambda text: piece(text.encode())
    return tokenizer.encode


def test_cologne_berlin_munich(data_dir: Path) -> None:
    """Cognetta et al. 2025, Figure 1: three texts, and exactly three sequences."""
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "llama2")
    constraint, tables = compile_regex(CITIES, tokenizer, canonical=True), canonical_tables(tokenizer)
    piece = load_piece_encoder("llama2", data_dir)
    want = {tuple(piece(city)) for city in (b"Cologne", b"Berlin", b"Munich")}
    assert set(walked(CanonicalWalk(constraint, tables), 8)) == want
    assert len(np.flatnonzero(CanonicalWalk(constraint, tables).allowed())) == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gpt2", "llama2", "llama3"])
def test_wide_constraints(name: str, data_dir: Path, documents: list[str], exhaustive: bool) -> None:
    """Free text: the encoder's sequences are walked to the end, and at each step the mask is the filter's judgement."""
    if name == "llama3" and not exhaustive:
        pytest.skip("a large vocabulary more: only with --exhaustive")
    tokenizer = load_tokenizer(data_dir / "tokenizers" / name)
    tables, encode = canonical_tables(tokenizer), encoder(name, tokenizer, data_dir)
    constraint = compile_regex(STRING, tokenizer, canonical=True)
    rng = np.random.default_rng(2)
    for text in ('"a  b\'s 12345 Zürich — 日本 😀 x"', '"' + re.sub(r'["\\\n]', " ", documents[3][:120]) + '"', '""', '"  "', '" jeho, nhanh. jeho"'):
        walk, path = CanonicalWalk(constraint, tables), encode(text)
        for i, token in enumerate(path):
            mask = walk.allowed()
            assert mask[token]
            state, last = 0, -1
            for before in path[:i]:
                state, last = tables.filter.step(state, last, before), before
            for other in rng.integers(0, constraint.vocab_size, 200).tolist():
                assert not mask[other] or tables.filter.step(state, last, other) >= 0
            walk.advance(token)
        assert walk.accepting
    for _ in range(15):  # random walks end in sequences that are their texts' own
        walk, path = CanonicalWalk(constraint, tables), []
        for left in range(25, 0, -1):
            choices = np.flatnonzero(walk.allowed(left))
            if not len(choices):
                break
            token = int(rng.choice(choices))
            if token in constraint.stop_ids:
                break
            path.append(token)
            walk.advance(token)
        assert walk.accepting
        assert list(encode(tokenizer.vocabulary.decode_bytes(path).decode())) == path


def test_file_and_refusals(data_dir: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "llama2")
    tables = canonical_tables(tokenizer)
    constraint = compile_regex(CITIES, tokenizer, canonical=True)
    constraint.save(tmp_path / "c.npz")
    again = CompiledConstraint.load(tmp_path / "c.npz", tokenizer)
    assert set(walked(CanonicalWalk(again, tables), 8)) == set(walked(CanonicalWalk(constraint, tables), 8))
    with pytest.raises(ArtifactError, match="walked together with its tokenizer's tables"):
        again.walk()
    with pytest.raises(ArtifactError, match="allows every tokenization"):
        CanonicalWalk(compile_regex(CITIES, tokenizer), tables)
    with pytest.raises(ArtifactError, match="was made with canonical tables"):
        CanonicalWalk(constraint, toy_tables([bytes([b]) for b in range(256)], []))
    with pytest.raises(TokenizerError, match="has no merges"):
        compile_regex(CITIES, tokenizer.vocabulary, canonical=True)
    with pytest.raises(ConstraintError, match="how deep texts nest"):
        fsa_compile.compile_grammar('start: "x" start "x" | "x"', tokenizer, canonical=True, stacks=8)
    with pytest.raises(LimitError, match="leave out upper bounds on the"):
        compile_regex(STRING, load_tokenizer(data_dir / "tokenizers" / "gpt2"), canonical=True, limits=CompileLimits(max_rows=18))
    with pytest.raises(UnspellableError, match="canonical"):
        compile_regex("▁", tokenizer, canonical=True)  # reads back as a space
    walk = CanonicalWalk(constraint, tables)
    with pytest.raises(ValueError, match="not allowed"):
        walk.advance(5)
    with pytest.raises(ValueError, match="cannot rewind"):
        walk.rewind(1)


@dataclasses.dataclass
class Item:
    kind: Literal["red", "blue"]
    count: Annotated[int, Ge(0), Le(20)]


@dataclasses.dataclass
class Tree:
    leaf: bool
    below: list[Tree]


def paint(colour: Literal["red", "blue"], twice: bool = False) -> None: ...


def test_every_compile_function(data_dir: Path) -> None:
    """Choices, automata, grammars, schemas, types and calls, YAML; stacks, counters, sets of keys, several stacks."""
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "gpt2")
    tables = canonical_tables(tokenizer)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    keys = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}, "additionalProperties": False}
    cases = [
        (fsa_compile.compile_choices(["red", "green"], tokenizer, canonical=True), "green"),
        (fsa_compile.compile_grammar('start: "a" ("," "b")?', tokenizer, canonical=True), "a,b"),
        (fsa_compile.compile_json_schema(schema, tokenizer, canonical=True, options=SchemaOptions(max_object_depth=2, max_array_depth=2)), '{"n": 7}'),
        (compile_regex("[a-z]{2,60}", tokenizer, canonical=True), "constraint"),
        (fsa_compile.compile_grammar('start: "(" start ")" | "x"~2..40', tokenizer, canonical=True, max_depth=3), "((xxx))"),
        (fsa_compile.compile_grammar('start: a | b\na: "(" a ")" | "x"\nb: "(" b ")" | "x" "y"', tokenizer, stacks=2, canonical=True, max_depth=4), "(xy)"),
        (fsa_compile.compile_json_schema(keys, tokenizer, canonical=True, options=SchemaOptions(key_order="any")), '{"b": true, "a": false}'),
        (fsa_compile.compile_type(Item, tokenizer, canonical=True), '{"kind": "blue", "count": 17}'),
        (fsa_compile.compile_type(Item, tokenizer, style="python", canonical=True), "Item(kind='blue', count=17)"),
        (fsa_compile.compile_type(Tree, tokenizer, canonical=True, max_depth=6), '{"leaf": true, "below": [{"leaf": false, "below": []}]}'),
        (fsa_compile.compile_call(paint, tokenizer, canonical=True), '{"name": "paint", "arguments": {"colour": "red", "twice": true}}'),
        (fsa_compile.compile_yaml_schema({"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3}, tokenizer, canonical=True), "- red\n- blue\n"),
    ]
    for constraint, text in cases:
        walk = CanonicalWalk(constraint, tables)
        for token in tokenizer.encode(text):
            assert walk.allowed()[token]
            walk.advance(token)
        assert walk.accepting
        assert walk.allowed()[50256]
        walk.advance(50256)
        assert walk.finished
        assert not walk.allowed().any()
    with pytest.raises(ConstraintError, match="Give max_depth="):
        fsa_compile.compile_grammar('start: "x" start "x" | "x"', tokenizer, canonical=True, stacks=8)
    schema, options = {"properties": {"a": {"$ref": "#"}, "b": {}}}, fsa_compile.SchemaOptions(key_order="any")
    with pytest.raises(ConstraintError, match="max_object_depth and max_array_depth"):
        fsa_compile.compile_json_schema(schema, tokenizer, canonical=True, options=options)
    with pytest.raises(UnsatisfiableError, match="nests deeper than max_depth=0"):
        fsa_compile.compile_type(Tree, tokenizer, canonical=True, max_depth=0)
    with pytest.raises(ConstraintError, match="max_depth bounds canonical and filtered constraints"):
        fsa_compile.compile_type(Tree, tokenizer, max_depth=3)


def texts_within(machine: ByteMachine, depth: int | None, longest: int) -> set[bytes]:
    """All texts of a machine up to a length, read by the machine itself, whose stacks keep to a depth."""
    layer, out = [(b"", {machine.initial})], set()
    for _ in range(longest + 1):
        after = []
        for text, here in layer:
            if machine.may_end(here):
                out.add(text)
            for byte in b"([{}])xy,":
                there = {c for c in machine.step(here, byte) if depth is None or len(c.stack) <= depth}
                after += [(text + bytes([byte]), there)] if there else []
        layer = after
    return out


@pytest.mark.parametrize(
    ("grammar", "stacks", "depth"),
    [
        ('start: "(" start ")" | "[" start? "]" | "x"', 1, 3),
        ('start: ("(" start ")" | "x")~1..3', 1, 2),
        ('start: a | b\na: "(" a ")" | "x"\nb: "(" b ")" | "x" "y"', 2, 3),
        ('start: item ("," item)*\nitem: "x"~2..3 | "{" start "}"', 1, 2),
        ('start: "(" "x"~1..9 ")"', 1, None),
    ],
)
def test_stacks_and_counters_written_out(grammar: str, stacks: int, depth: int | None) -> None:
    """The regular machine has exactly the texts whose stacks keep to the depth; random encoders' own sequences are walked."""
    machine = machine_of(parse_grammar(grammar, mode="characters"), stacks=stacks)
    limits = CompileLimits()
    made = written_out(machine, limits, Deadline(limits), max_depth=depth, way_out="")
    texts = texts_within(machine, depth, 7)
    assert texts_within(made, None, 7) == texts
    assert len(texts) > 2
    letters = [bytes([b]) for b in b"()[]{}xy,"]
    rng = random.Random(len(grammar))
    for _ in range(3):
        tokens, merges = toy_merges.random_merges(rng, letters, 9)
        every = [*tokens, *(bytes([b]) for b in range(256) if bytes([b]) not in tokens)]
        tables, vocabulary = toy_tables(every, merges), Vocabulary.from_tokens(every)
        plain = compose_machine(made, vocabulary, source=grammar)
        constraint = canonical_product(plain, tables, tables_for(vocabulary), limits, Deadline(limits))
        want = {tuple(toy_merges.encode(text, tokens, merges)) for text in texts if len(text) <= 7}
        assert {s for s in walked(CanonicalWalk(constraint, tables), 7) if sum(len(every[t]) for t in s) <= 7} == want


def test_behind_a_prompt(data_dir: Path) -> None:
    """Together with the prompt, the texts' tokens are the encoder's own; where no text goes on so, there is an error."""
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "gpt2")
    tables = canonical_tables(tokenizer)
    texts = [" yes", " no", "s", "'s", "  x", "\n", "7", "é", ""]
    for prompt in ("It is", "It", "a\n", "12", "don", "  ", "naï"):
        ids = tokenizer.encode(prompt)
        want = {tuple(whole[len(ids) :]) for text in texts if (whole := tokenizer.encode(prompt + text))[: len(ids)] == ids}
        constraint = fsa_compile.compile_choices(texts, tokenizer, canonical=ids)
        walk = CanonicalWalk(constraint, tables)
        assert set(walked(walk, 6)) == want
        assert constraint.shortest_completion == 0
        again = fsa_compile.compile_choices(texts[:-1], tokenizer, canonical=[50256, *ids])
        assert set(walked(CanonicalWalk(again, tables), 6)) == want - {()}
        assert again.shortest_completion == min(map(len, want - {()}))
    with pytest.raises(UnspellableError, match="behind the prompt"):
        fsa_compile.compile_choices(["llow"], tokenizer, canonical=tokenizer.encode("so ye"))
    with pytest.raises(TokenizerError, match="token 1 of the prompt"):
        fsa_compile.compile_choices(["x"], tokenizer, canonical=[tokenizer.encode("a")[0], tokenizer.encode("b")[0]])
    with pytest.raises(TokenizerError, match="does not exist"):
        fsa_compile.compile_choices(["x"], tokenizer, canonical=[50257])
