"""Prompt and constraint as one canonical language, against the encoders run on whole texts."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest
from oracles import toy_merges

import fsa_compile
import models
from fsa_compile import CanonicalWalk, CompileLimits, compile_regex
from fsa_compile.canonical.filter.canonical_tables import canonical_tables
from fsa_compile.canonical.prompt_border import canonical_border
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.composition.prefix.partial_tokens import PartialTokens
from fsa_compile.errors import ConstraintError, UnspellableError
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.lookup import token_lookup
from fsa_compile.vocabulary.vocabulary_tables import tables_for
from tests.canonical.test_restrict import SPLITTERS, walked

PATTERNS = ("[abc]{0,3}", "(a|b)c", "a{0,4}", "(ab|ba|c){1,2}", "abc|ab|bca|aabb", "b?")


def kept_by_all(encodings: list[list[int]], prompt: int, lengths: Callable[[int], int]) -> list[int]:
    """The first tokens that all encodings share and that end inside the prompt."""
    out: list[int] = []
    for column in zip(*encodings):
        if len(set(column)) > 1 or sum(map(lengths, [*out, column[0]])) > prompt:
            break
        out.append(column[0])
    return out


@pytest.mark.exhaustive
def test_random_small_encoders_and_splitters(exhaustive: bool) -> None:
    """Every text's encoding behind every prompt can be walked, nothing else, and no token is taken back that all share."""
    rng = random.Random(11)
    compared = taken_back = 0
    for round_ in range(400 if exhaustive else 8):
        tokens, merges = toy_merges.random_encoder(rng, letters=3, merges=rng.randint(2, 7))
        splitter, cut = SPLITTERS[round_ % len(SPLITTERS)]
        every = [*tokens, *(bytes([b]) for b in range(256) if bytes([b]) not in tokens)]
        tables, vocabulary = toy_tables(every, merges, pattern=splitter), Vocabulary.from_tokens(every)
        lookup = token_lookup(vocabulary)

        def encode(text: str, tokens=tokens, merges=merges, cut=cut) -> list[int]:
            return [token for piece in cut(text) for token in toy_merges.encode(piece.encode(), tokens, merges)]

        pattern = rng.choice(PATTERNS)
        partial_tokens = PartialTokens(compile_regex(pattern, vocabulary), lookup)
        texts = [t.decode() for t in [b"", *toy_merges.all_texts(3, 4)] if re.fullmatch(pattern, t.decode())]
        for _ in range(6):
            prompt = "".join(rng.choice("aabbc") for _ in range(rng.randint(0, 9)))
            # the prompt's own tokens, or any others that write it: then it is encoded again
            ids = encode(prompt) if rng.random() < 0.7 else [every.index(letter.encode()) for letter in prompt]
            kept, written, _, made = canonical_border(
                [], ids, partial_tokens, tables, lookup, tables_for(vocabulary), CompileLimits(), encode
            )  # fmt: skip
            want = [encode(prompt + text) for text in texts]
            found = {(*kept, *seq) for seq in walked(CanonicalWalk(made, tables), 8)}
            assert {seq for seq in found if sum(len(every[t]) for t in seq) <= len(prompt) + 4} == set(map(tuple, want))
            if len(texts) > 1 and "" not in texts:
                assert kept == kept_by_all(want, len(prompt), lambda token, every=every: len(every[token]))
            assert b"".join(every[t] for t in kept) + written == prompt.encode()
            least = min(map(len, want)) - len(kept)
            assert least <= made.shortest_completion <= (least + 9 if made.canonical_unless[0] else least)
            compared += len(want)
            taken_back += bool(written)
    assert compared > 150
    assert taken_back > 10


@pytest.mark.parametrize("name", ["small", "gpt2", "llama2", "llama3"])
def test_real_tokenizers(name: str, request: pytest.FixtureRequest, exhaustive: bool) -> None:
    """Every text behind every prompt: the tokenizer's own ids of both together, and none besides."""
    if name == "llama3" and not exhaustive:
        pytest.skip("its tables take seconds: run with --exhaustive")
    path = models.small_tokenizer_path() if name == "small" else request.getfixturevalue("data_dir") / "tokenizers" / name
    tokenizer = load_tokenizer(path)
    tables, vocabulary = canonical_tables(tokenizer), tokenizer.vocabulary
    texts = ["red", "blue", "kettle is", "12", "'s", "  x", "\n\nab", "!", "é", " the"]
    constraint = fsa_compile.compile_choices(texts, tokenizer)
    taken_back = 0
    for prompt in ("The answer is ", "Is the kett", "I", "I'", "x\n  ", "x \n\n", "12", "a.", "===", "Ünd é"):
        healed = fsa_compile.heal(prompt, constraint, tokenizer, canonical=True)
        want = {text: tokenizer.encode(prompt + text) for text in texts}
        found = {healed.text(seq): [*healed.prompt, *seq] for seq in walked(CanonicalWalk(healed.constraint, tables), 12)}
        assert found == want, prompt
        assert healed.prompt == kept_by_all(
            list(want.values()), len(vocabulary.decode_bytes(tokenizer.encode(prompt))), lambda token: len(vocabulary.tokens[token])
        )
        taken_back += bool(healed.written)
    assert taken_back >= 2


def test_stacks_and_counters_are_written_out_first() -> None:
    """A grammar and a schema: the texts are those of the constraint alone, the tokens those of prompt and text."""
    tokenizer = load_tokenizer(models.small_tokenizer_path())
    tables = canonical_tables(tokenizer)
    nested = {"properties": {"a": {"enum": [1, None]}, "b": {"$ref": "#"}}, "additionalProperties": False, "type": "object"}
    for compiled in (
        lambda form: fsa_compile.compile_grammar('start: "(" [start] ")" | "le"', tokenizer, canonical=form, max_depth=2),
        lambda form: fsa_compile.compile_json_schema(
            nested, tokenizer, options=fsa_compile.SchemaOptions(max_object_depth=2, max_array_depth=1), canonical=form
        ),
    ):
        own = CanonicalWalk(compiled(True), tables)
        texts = {tokenizer.vocabulary.decode(seq) for seq in walked(own, 16)}
        assert len(texts) > 3
        for prompt in ("kett", "A: "):
            healed = fsa_compile.heal(prompt, compiled("heal"), tokenizer, canonical=True)
            found = {healed.text(seq): [*healed.prompt, *seq] for seq in walked(CanonicalWalk(healed.constraint, tables), 18)}
            assert {text: found.get(text) for text in texts} == {text: tokenizer.encode(prompt + text) for text in texts}


def test_special_tokens_and_tokens_that_are_not_the_tokenizers_own() -> None:
    tokenizer = load_tokenizer(models.small_tokenizer_path())
    vocabulary, tables = tokenizer.vocabulary, canonical_tables(tokenizer)
    constraint = fsa_compile.compile_regex("(yes|no)", tokenizer)
    turn = vocabulary.special["<start_of_turn>"]
    spelled = [vocabulary.tokens.index(bytes([b])) for b in b"The answer is "]
    healed = fsa_compile.heal([turn, *spelled], constraint, tokenizer, canonical=True)
    assert healed.prompt == [turn, *tokenizer.encode("The answer is")]
    assert healed.written == b" "
    assert {healed.text(s) for s in walked(CanonicalWalk(healed.constraint, tables), 5)} == {"yes", "no"}
    with pytest.raises(ConstraintError, match="no text that it could encode"):
        fsa_compile.heal([turn, *(vocabulary.tokens.index(bytes([b])) for b in b"\xff\xfe")], constraint, tokenizer, canonical=True)
    with pytest.raises(UnspellableError, match="no text that the constraint accepts"):
        # U+2581 is written as a space, so that no text of the constraint has tokens
        fsa_compile.heal("a", fsa_compile.compile_regex("\u2581", tokenizer), tokenizer, canonical=True)


def test_a_long_prompt_is_cheap() -> None:
    """Only the prompt's end takes part in the product: nodes do not grow with the prompt."""
    tokenizer = load_tokenizer(models.small_tokenizer_path())
    constraint = fsa_compile.compile_regex("[a-z]{2,4}", tokenizer)
    short = fsa_compile.heal("and the kett", constraint, tokenizer, canonical=True)
    long = fsa_compile.heal("and the kettle is red, " * 300 + "and the kett", constraint, tokenizer, canonical=True)
    assert long.written == short.written
    assert long.constraint.num_nodes == short.constraint.num_nodes
    assert np.array_equal(long.constraint.rows, short.constraint.rows)
