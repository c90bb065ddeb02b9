"""Token healing: the same tokens as of a constraint on prompt end and text, and the border where it must be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import models
from fsa_compile import (
    ArtifactError,
    ConstraintError,
    SchemaOptions,
    UnspellableError,
    Vocabulary,
    compile_choices,
    compile_grammar,
    compile_json_schema,
    compile_regex,
    filters,
    library,
    load_tokenizer,
    regex,
)
from fsa_compile.artifact.artifact_checks import check_contents
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.prompts.continuation import encode_continuation
from fsa_compile.prompts.healing import Healed, heal, heal_batch

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 300}, "age": {"type": "integer", "minimum": -9, "maximum": 200}, "ok": {"type": "boolean"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {"properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}}, "additionalProperties": False}
CALLS = 'start: NAME "(" [start ("," start)*] ")" | NAME\nNAME: /[a-z]{1,8}/\n%ignore " "'


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(models.small_tokenizer_path())


@pytest.fixture(scope="module")
def constraints(tokenizer):
    """Constraints of every kind, each with texts that it accepts."""
    person = ['{"name": "Ada", "age": 36}', '{"name": " K", "age": -1, "ok": true}']
    any_order = SchemaOptions(key_order="any")
    grammar = library.grammar_text("json_compact")
    dangling = library.grammar_text("c_dangling_else")
    return {
        "pattern": (compile_regex(r"[a-z ]{3,10}\.", tokenizer), ["tle is red.", "abc."]),
        "choices": (compile_choices(["tle", "the red one", "Munich", " Berlin"], tokenizer), ["the red one", " Berlin"]),
        "counter": (compile_regex(r"[a-z ]{2,500}!", tokenizer), ["les and more!", "ab!"]),
        "schema": (compile_json_schema(PERSON, tokenizer), person),
        "recursive schema": (compile_json_schema(TREE, tokenizer), ['{"v": 1, "kids": [{"kids": []}]}', "{}"]),
        "keys in any order": (
            compile_json_schema(PERSON, tokenizer, options=any_order), [*person, '{"ok": true, "age": 3, "name": ""}'],
        ),
        "grammar": (compile_grammar(grammar, tokenizer, **library.options("json_compact")), ['{"a": [1, {}]}', '"x"']),
        "calls": (compile_grammar(CALLS, tokenizer), ["f(g, h( ))", "le"]),
        "several stacks": (
            compile_grammar(dangling, tokenizer, **library.options("c_dangling_else")), ["if (a) if (b) c = 1; else d = 2;", "kett = 1;"],
        ),
    }  # fmt: skip


PROMPTS = ["The answer is ", "Is the kett", 'Reply:\n{"na', 'A: "', "x = int f", "é"]


def after_bytes(constraint, data: bytes, vocabulary: Vocabulary) -> HostWalk | None:
    """The constraint after bytes, one token of one byte after the other: what healing must agree with."""
    walk = constraint.walk()
    for byte in data:
        token = next(i for i, t in enumerate(vocabulary.tokens) if t == bytes([byte]) and i not in vocabulary.stop_ids)
        try:
            walk.advance(token)
        except ValueError:
            return None
    return walk


def expected(healed: Healed, constraint, done: bytes, vocabulary: Vocabulary) -> np.ndarray:
    """The mask after some bytes of prompt end and text, token by token from the constraint on the text alone."""
    left = healed.written[len(done) :]
    if not left:
        walk = after_bytes(constraint, done[len(healed.written) :], vocabulary)
        return walk.allowed()
    mask = np.zeros(vocabulary.size, bool)
    for token, data in enumerate(vocabulary.tokens):
        if data and left.startswith(data):
            mask[token] = True
        elif data.startswith(left):
            mask[token] = after_bytes(constraint, data[len(left) :], vocabulary) is not None
    return mask


NAMES = ["pattern", "choices", "counter", "schema", "recursive schema", "keys in any order", "grammar", "calls", "several stacks"]


@pytest.mark.parametrize("name", NAMES)
def test_masks_are_those_of_prompt_end_and_text(name, tokenizer, constraints):
    constraint, _ = constraints[name]
    vocabulary = tokenizer.vocabulary
    rng = np.random.default_rng(3)
    taken_back = 0
    for prompt in PROMPTS:
        healed = heal(prompt, constraint, tokenizer)
        ids = tokenizer.encode(prompt)
        assert ids == [*healed.prompt, *healed.taken_back]
        assert healed.written == vocabulary.decode_bytes(healed.taken_back)
        assert (healed.constraint is constraint) == (not healed.written)
        taken_back += bool(healed.written)
        if not healed.written:
            continue
        check_contents(healed.constraint, Path(name))
        walk, done = healed.constraint.walk(), b""
        for _ in range(6):
            mask = walk.allowed()
            assert (mask == expected(healed, constraint, done, vocabulary)).all(), (prompt, done)
            mask[list(vocabulary.stop_ids)] = False
            if not mask.any():
                break
            token = int(rng.choice(np.flatnonzero(mask)))
            walk.advance(token)
            done += vocabulary.tokens[token]
    assert taken_back


@pytest.mark.parametrize("name", NAMES)
def test_accepted_texts_in_any_tokens_within_tight_limits(name, tokenizer, constraints):
    constraint, texts = constraints[name]
    vocabulary = tokenizer.vocabulary
    rng = np.random.default_rng(4)
    ids_of: dict[bytes, list[int]] = {}
    for token, data in enumerate(vocabulary.tokens):
        ids_of.setdefault(data, []).append(token)
    for prompt, text in zip(PROMPTS * 2, texts * 3):
        healed = heal(prompt, constraint, tokenizer)
        whole, walk, tokens, at = healed.written + text.encode(), healed.constraint.walk(), [], 0
        while at < len(whole):
            lengths = [n for n in range(1, 12) if whole[at : at + n] in ids_of and at + n <= len(whole)]
            n = int(rng.choice(lengths))
            token = int(rng.choice(ids_of[whole[at : at + n]]))
            walk.advance(token)  # raises where it is forbidden
            tokens.append(token)
            at += n
        assert walk.accepting
        assert healed.text(tokens) == text
        assert healed.text([]) == ""
        # within the limits that the artifact names, every choice can be completed
        least = healed.constraint.walk()
        limit, depth = least.distance + 2, least.need + 1
        walk = healed.constraint.walk(depth)
        taken = []
        for left in range(limit, 0, -1):
            allowed = np.flatnonzero(walk.allowed(left))
            assert len(allowed), (prompt, left)
            token = int(rng.choice(allowed))
            walk.advance(token, left)
            if walk.finished:
                break
            taken.append(token)
        assert walk.finished or walk.accepting
        end = after_bytes(constraint, healed.text(taken).encode(), vocabulary)
        assert end is not None
        assert end.accepting


def test_equal_to_a_grammar_that_begins_with_the_text(tokenizer):
    """The oracle compiles the text into the grammar, so that no artifact is changed."""
    text = library.grammar_text("json_object")
    constraint = compile_grammar(text, tokenizer, **library.options("json_object"))
    healed = heal('Answer: ', constraint, tokenizer)
    assert healed.written == b" "
    renamed = re.sub(r"\broot\b", "inner", text)
    whole = compile_grammar(f'root ::= " " inner\n{renamed}', tokenizer)
    rng = np.random.default_rng(5)
    for _ in range(20):
        ours, theirs = healed.constraint.walk(), whole.walk()
        for left in range(30, 0, -1):
            assert (ours.allowed() == theirs.allowed()).all()
            mask = ours.allowed(left)
            assert not (mask & ~theirs.allowed(left)).any()
            token = int(rng.choice(np.flatnonzero(mask)))
            ours.advance(token)
            theirs.advance(token)
            if ours.finished:
                break


def test_the_border_is_where_a_token_can_lie_across():
    """Every prompt of a toy vocabulary against the definition: the longest suffix that a token goes on from into the constraint."""
    tokens = [b"a", b"b", b"c", b"ab", b"abc", b"bca", b"cab", b"cc", b""]
    vocabulary = Vocabulary.from_tokens(tokens, special={"<s>": 8}, stop_ids=[])
    rng = np.random.default_rng(6)
    for pattern in ("c|ca", "[bc]*", "(ab)+", "a{2}b"):
        constraint = compile_regex(pattern, vocabulary)
        begins = {"c|ca": r"ca?", "[bc]*": r"[bc]*", "(ab)+": r"(ab)*a?", "a{2}b": r"a|aa|aab"}[pattern]
        for _ in range(60):
            ids = rng.integers(0, len(tokens), rng.integers(1, 6)).tolist()
            healed = heal(ids, constraint, vocabulary)
            behind = ids[max((i + 1 for i, t in enumerate(ids) if t == 8), default=0) :]
            data = b"".join(tokens[t] for t in behind).decode()
            across = [
                i for i in range(len(data))
                if any(t.startswith(data[i:].encode()) and len(t) > len(data) - i and re.fullmatch(begins, t[len(data) - i :].decode()) for t in tokens)
            ]  # fmt: skip
            starts = np.cumsum([0, *(len(tokens[t]) for t in behind)])
            want = data[max(s for s in starts if s <= min(across)) :] if across else ""
            assert healed.written.decode() == want, (pattern, data)


def test_a_language_over_a_vocabulary_that_cannot_spell_every_rest():
    vocabulary = Vocabulary.from_tokens([b"x", b" ", b" yes", b"yes", b" no", b""], stop_ids=[5])
    compiled = compile_regex("yes|yesyes", vocabulary)
    with pytest.raises(ConstraintError, match=r"token 4 writes b'no' behind the end of the prompt.*\n.*the language itself"):
        heal([0, 1], compiled, vocabulary)
    healed = heal([0, 1], regex("yes|no"), vocabulary)
    assert (healed.prompt, healed.written) == ([0], b" ")
    assert healed.constraint.walk().allowed().tolist() == [False, True, True, False, True, False]
    assert healed.text([4]) == "no"
    vocabulary = Vocabulary.from_tokens([b"x", b" ", b"yes", b""], stop_ids=[3])
    assert heal([0, 1], compile_regex("yes", vocabulary), vocabulary).written == b""


def test_a_batch_shares_arrays(tokenizer, constraints):
    constraint, _ = constraints["schema"]
    healed = heal_batch(["The answer is ", 'Reply:\n{"na', "x"], constraint, tokenizer)
    assert len({id(h.constraint.rows) for h in healed}) == 1
    assert not healed[2].written
    for prompt, one in zip(["The answer is ", 'Reply:\n{"na', "x"], healed):
        alone = heal(prompt, constraint, tokenizer)
        assert (alone.prompt, alone.written) == (one.prompt, one.written)
        assert (alone.constraint.walk().allowed() == one.constraint.walk().allowed()).all()
    mixed = heal_batch(["a ", "b "], [constraint, regex("x")], tokenizer)
    assert [h.constraint.walk().accepting for h in mixed] == [False, False]


def test_response_prefix(tokenizer, constraints):
    constraint, _ = constraints["pattern"]
    healed = heal("Question\n", constraint, tokenizer, response_prefix="The kett")
    assert tokenizer.vocabulary.decode([*healed.prompt, *healed.taken_back]) == "Question\nThe kett"
    assert healed.response_prefix == "The kett"
    ids = [*tokenizer.encode("Question\n"), tokenizer.vocabulary.special["<start_of_turn>"]]
    for prefix in ("The kett", encode_continuation(tokenizer, "The kett")):
        healed = heal(ids, constraint, tokenizer, response_prefix=prefix)
        assert healed.prompt[: len(ids)] == ids
        assert healed.response_prefix == "The kett"
        assert healed.text(tokenizer.encode("kettle is.")[-4:]) != ""


def test_special_tokens_are_never_taken_back(tokenizer, constraints):
    turn = tokenizer.vocabulary.special["<start_of_turn>"]
    healed = heal([turn], constraints["pattern"][0], tokenizer)
    assert (healed.prompt, healed.written) == ([turn], b"")
    healed = heal([turn, *tokenizer.encode(" ")], constraints["pattern"][0], tokenizer)
    assert healed.prompt == [turn]


def test_what_is_refused(tokenizer, constraints):
    constraint, _ = constraints["pattern"]
    other = Vocabulary.from_tokens([b"a", b""], stop_ids=[1])
    with pytest.raises(ArtifactError, match="compiled for vocabulary"):
        heal([0], constraint, other)
    with pytest.raises(ConstraintError, match="canonical=True: which tokens it allows"):
        heal("a", compile_regex("a", tokenizer, canonical=True), tokenizer)
    with pytest.raises(ConstraintError, match="a constraint is needed, not str"):
        heal("a", "a+", tokenizer)
    with pytest.raises(ConstraintError, match="needs a tokenizer, and a Vocabulary cannot encode"):
        heal("a", constraint, tokenizer.vocabulary)
    with pytest.raises(ConstraintError, match="neither text nor token ids"):
        heal(7, constraint, tokenizer)
    with pytest.raises(ConstraintError, match="does not exist in a vocabulary of 2,048 ids\n  position 1"):
        heal([5, 2048], constraint, tokenizer)
    with pytest.raises(ConstraintError, match="heal_batch takes a list"):
        heal_batch("a", constraint, tokenizer)
    with pytest.raises(ConstraintError, match="2 prompts and 1 constraints"):
        heal_batch(["a", "b"], [constraint], tokenizer)
    with pytest.raises(ConstraintError, match="TEXT_TOKEN, PARAGRAPH_TOKEN"):
        heal("a ", compile_regex("(?P<TEXT_TOKEN>){3}", tokenizer), tokenizer)
    with pytest.raises(ConstraintError, match="filters over tokens"):
        heal("a ", compile_regex("[a-z]+", tokenizer, filters=[filters.byte_fallback()]), tokenizer)
    narrow = compile_regex(".+", tokenizer, filters=[filters.characters("abc")])
    assert after_bytes(heal("a ", narrow, tokenizer).constraint, b" ab", tokenizer.vocabulary).accepting


def test_texts_are_json_and_valid(tokenizer, constraints):
    """A walk that ends inside the schema gives text that parses."""
    jsonschema = pytest.importorskip("jsonschema")
    constraint, _ = constraints["keys in any order"]
    healed = heal("Reply: ", constraint, tokenizer)
    rng = np.random.default_rng(9)
    for _ in range(10):
        walk, tokens = healed.constraint.walk(), []
        for left in range(40, 0, -1):
            token = int(rng.choice(np.flatnonzero(walk.allowed(left))))
            walk.advance(token)
            if walk.finished:
                break
            tokens.append(token)
        jsonschema.validate(json.loads(healed.text(tokens)), PERSON)


def test_unspellable_prefixes_are_errors():
    vocabulary = Vocabulary.from_tokens([b"ab", b"b", b""], stop_ids=[2])
    constraint = compile_regex("b", vocabulary)
    from fsa_compile.composition.prefix.partial_tokens import PartialTokens
    from fsa_compile.composition.prefix.prepend import with_prefixes
    from fsa_compile.vocabulary.lookup import token_lookup

    lookup = token_lookup(vocabulary)
    with pytest.raises(UnspellableError, match="no tokens of the vocabulary write b'aa'"):
        with_prefixes(PartialTokens(constraint, lookup), lookup, [b"aa"])
    assert with_prefixes(PartialTokens(constraint, lookup), lookup, [b"a"])[0].walk().allowed().tolist() == [True, False, False]
