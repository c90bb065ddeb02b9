"""`starts_text=True`: every token sequence that a mask allows decodes to a text of the constraint, and the tokenizer's own is one."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from preprocessing.test_normalizers import byte_level, metaspace, sentence_piece

import fsa_compile
from fsa_compile import filters, load_tokenizer, regex


def accepted(constraint, ids) -> bool:
    walk = constraint.walk()
    for token in ids:
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return bool(walk.accepting)


def some_sequences(constraint, count: int, seed: int):
    rng = random.Random(seed)
    for _ in range(count):
        walk, ids = constraint.walk(), []
        while not (walk.accepting and (rng.random() < 0.3 or len(ids) > 12)):
            allowed = [i for i in np.flatnonzero(walk.allowed()).tolist() if i not in constraint.stop_ids]
            if not allowed:
                break
            ids.append(rng.choice(allowed))
            walk.advance(ids[-1])
        assert walk.accepting
        yield ids


@pytest.mark.parametrize("kind", ["bytes", "bytes with a space", "metaspace", "sentencepiece", "sentencepiece without extra spaces"])
def test_what_is_read_is_what_was_asked_for(kind, tmp_path):
    tokenizer = {
        "bytes": lambda: byte_level(False),
        "bytes with a space": lambda: byte_level(True),
        "metaspace": metaspace,
        "sentencepiece": lambda: sentence_piece(tmp_path, normalization_rule_name="identity", remove_extra_whitespaces=False),
        "sentencepiece without extra spaces": lambda: sentence_piece(tmp_path, normalization_rule_name="identity", remove_extra_whitespaces=True),
    }[kind]()
    start = fsa_compile.preprocessing.text_start(tokenizer)
    language = regex("[ab ]{1,4}|b a b")
    dfa = language.to_byte_dfa()
    constraint = fsa_compile.compile_language(language, tokenizer, starts_text=True)
    texts = ["".join(t) for n in range(1, 5) for t in itertools.product("ab ", repeat=n)]
    for text in texts:  # the tokenizer's own tokens, where they can be read back
        ids = tokenizer.encode(text)
        readable = tokenizer.decode(ids) == (text if start.dropped or not start.prefix or text.startswith(" ") else " " + text)
        if readable:
            assert accepted(constraint, ids), (text, ids)
    for ids in some_sequences(constraint, 150, 3):
        read = tokenizer.decode(ids)
        if start.prefix and not start.dropped:  # the decoder leaves the space where it is
            assert dfa.accepts(read.encode()) or dfa.accepts(read.removeprefix(" ").encode())
        else:
            assert dfa.accepts(read.encode()), (read, ids)


def test_llama2(data_dir):
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "llama2")
    plain = fsa_compile.compile_regex("[A-Z][a-z]+( [a-z]+)*[.!]", tokenizer)
    started = fsa_compile.compile_regex("[A-Z][a-z]+( [a-z]+)*[.!]", tokenizer, starts_text=True)
    own = fsa_compile.compile_regex("[A-Z][a-z]+( [a-z]+)*[.!]", tokenizer, starts_text=True, canonical=True)
    tables = fsa_compile.canonical_tables(tokenizer)
    for text in ("Hello world.", "Ok!", "Zebras eat grass all day."):
        ids = tokenizer.encode(text)
        assert accepted(started, ids)
        assert not accepted(plain, ids)  # behind a prompt these tokens would write a space first
        walk = fsa_compile.CanonicalWalk(own, tables)
        for token in ids:
            assert walk.allowed()[token]
            walk.advance(token)
        assert walk.accepting
    short = regex("[A-Z][a-z ]{1,8}[.!]?")
    for ids in some_sequences(fsa_compile.compile_language(short, tokenizer, starts_text=True), 40, 1):
        assert short.to_byte_dfa().accepts(tokenizer.decode(ids).encode())


def test_schemas_and_grammars(data_dir):
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "llama2")
    nested = fsa_compile.compile_json_schema(True, tokenizer, starts_text=True, filters=[filters.ascii()])
    assert nested.num_symbols > 0
    flat = fsa_compile.compile_json_schema({"enum": ["a b", 17]}, tokenizer, starts_text=True)
    grammar = fsa_compile.compile_grammar('start: "(" start? ")"', tokenizer, starts_text=True)
    typed = fsa_compile.compile_type(list[int], tokenizer, starts_text=True)
    for constraint, text in ((nested, '{"a": [1, {}]}'), (flat, '"a b"'), (flat, "17"), (grammar, "((()))"), (typed, "[1, 2]")):
        assert accepted(constraint, tokenizer.encode(text)), text
        first = np.flatnonzero(constraint.walk().allowed()).tolist()
        assert all(tokenizer.decode([i]).encode() == tokenizer.vocabulary.tokens[i][1:] for i in first)
        assert 35 not in first  # the byte token of a space, which decoding would keep
    with pytest.raises(fsa_compile.ConstraintError, match="special tokens or whole tokens"):
        fsa_compile.compile_regex("a(?P<TEXT_TOKEN>)", tokenizer, starts_text=True)
    with pytest.raises(fsa_compile.ConstraintError, match="vocabulary without its encoder"):
        fsa_compile.compile_regex("a", tokenizer.vocabulary, starts_text=True)
