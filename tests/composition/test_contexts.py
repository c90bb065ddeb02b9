"""What open brackets cost by those below them: tokens that close several count once."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from fsa_compile import ArtifactError, CompiledConstraint, Vocabulary, compile_grammar, compile_json_schema, load_tokenizer
from fsa_compile.composition.pushdown.stack_contexts import with_contexts, without_contexts

CLOSING = [b"]]", b"}}", b"}]", b"]]]]", b"}]}"]


def over(*tokens: bytes) -> Vocabulary:
    return Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256)), *tokens], stop_ids=[0])


def fewest(text: bytes, tokens: list[bytes]) -> int:
    """Tokens that spell a text at least."""
    known = set(tokens) - {b""}
    best = [0]
    for end in range(1, len(text) + 1):
        best.append(1 + min(best[begin] for begin in range(max(end - 8, 0), end) if text[begin:end] in known))
    return best[-1]


def after(constraint: CompiledConstraint, ids):
    walk = constraint.walk()
    for token in ids:
        walk.advance(token)
    return walk


def test_any_json_over_llama_3(data_dir):
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "llama3")
    constraint = compile_json_schema(True, tokenizer)
    assert after(constraint, tokenizer.encode('[[[[{"a":[[1')).distance == 4
    ids = tokenizer.encode('[[[[{"a":[[1]]}]]]]')
    for budget in (len(ids), len(ids) + 1, 40):
        walk = constraint.walk()
        for n, token in enumerate(ids):
            assert walk.allowed(budget - n)[token], (budget, n)
            walk.advance(token, budget - n)
        assert walk.accepting


@pytest.mark.parametrize("tokens", [CLOSING, CLOSING[:1], CLOSING[2:4], []])
def test_closing_takes_few_tokens_more_than_spell_it_at_most(tokens):
    vocabulary = over(*tokens)
    constraint, rng = compile_json_schema(True, vocabulary), random.Random(len(tokens))
    for _ in range(60):
        opened = rng.choices([b"[", b'{"a":'], k=rng.randint(0, 12))
        closing = b"".join(b"]" if bracket == b"[" else b"}" for bracket in reversed(opened))
        walk = after(constraint, [byte + 1 for byte in b"".join(opened) + b"1"])
        assert 0 <= walk.distance - fewest(closing, vocabulary.tokens) < max(map(len, [*tokens, b'1'])), (opened, walk.distance)


def test_without_tokens_that_close_several_nothing_changes():
    constraint = compile_json_schema(True, over())
    assert constraint.context == 0
    assert with_contexts(constraint) is constraint


def test_contexts_are_added_and_taken_away():
    constraint = compile_json_schema(True, over(*CLOSING))
    plain = without_contexts(constraint)
    assert constraint.context == plain.num_nodes
    assert plain.context == 0
    again = with_contexts(plain)
    assert (again.context, again.num_nodes) == (constraint.context, constraint.num_nodes)
    text = [byte + 1 for byte in b"[[[[1"]
    assert after(plain, text).distance == 4
    assert after(again, text).distance == after(constraint, text).distance == 2


def test_counters_pay_for_what_is_missing():
    grammar = 'start: "(" start ")" | "[" "a"~3..9 "]" | "x"'
    constraint = compile_grammar(grammar, over(b"))", b"]))"))
    walk = after(constraint, [byte + 1 for byte in b"((((["])
    assert constraint.context
    left = walk.distance
    while not walk.accepting:
        walk.advance(int(walk.allowed(left).nonzero()[0][-1]), left)
        left -= 1
    assert left >= 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: {"context": c.num_nodes}, "is not one of"),
        (lambda c: {"context": -1}, "is not one of"),
        (lambda c: {"start": c.context}, "a token leads to a context"),
        (lambda c: {"distance": np.where(np.arange(c.num_nodes) > c.context, c.distance + 9, c.distance).astype(np.int32)}, "less than nothing"),
        (lambda c: {"accept": np.arange(c.num_nodes) >= c.context}, "a context has tokens, or accepts"),
        (lambda c: {"context": c.start}, "a context has tokens, or accepts"),
    ],
)
def test_damaged_files_are_refused(change, words, tmp_path):
    constraint = compile_json_schema(True, over(*CLOSING))
    dataclasses.replace(constraint, **change(constraint)).save(tmp_path / "damaged.npz")
    with pytest.raises(ArtifactError, match=words):
        CompiledConstraint.load(tmp_path / "damaged.npz")
    constraint.save(tmp_path / "whole.npz")
    whole = CompiledConstraint.load(tmp_path / "whole.npz")
    assert whole.context == constraint.context
