"""The pair rule against the encoders themselves: real ones by their libraries, random small ones by simulation."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from oracles import toy_merges
from oracles.library_encoders import pair_kinds, text_pairs

from fsa_compile.canonical.encoder.merge_table import all_splits
from fsa_compile.canonical.encoder.merge_trees import merge_trees
from fsa_compile.canonical.encoder.pair_rule import PairRule, pair_rule
from fsa_compile.canonical.toy import toy_merge_table
from tests.canonical.conftest import load_encoder, load_piece_encoder


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["llama2", "gpt2", "llama3", "llama4", "qwen"])
def test_pairs_of_real_tokenizers(name: str, data_dir: Path, documents: list[str], exhaustive: bool) -> None:
    """Every pair is allowed exactly when the library gives it back for its joint bytes."""
    if name in ("llama4", "qwen") and not exhaustive:
        pytest.skip("two large vocabularies more: only with --exhaustive")
    tokenizer, encoder, trees, rule = load_encoder(name, data_dir)
    tokens, encode = tokenizer.vocabulary.tokens, load_piece_encoder(name, data_dir)
    assert len(trees.pieces) == (588 if name == "llama3" else 0)  # tokens that merging never reaches
    unmerged = {tokens[token] for token in trees.pieces}
    n = 100_000 if exhaustive else 3_000
    kinds = pair_kinds(rule, trees, encoder.table, tokens, np.random.default_rng(7), n)
    kinds["text"] = text_pairs(lambda text: encode(text.encode()), documents[:3], rule.own, n)
    for kind, pairs in kinds.items():
        forbidden = rule.forbidden(pairs[:, 0], pairs[:, 1])
        if kind != "uniform" or n > 10_000:
            assert forbidden.any(), kind
        wrong = [
            (a, b)
            for (a, b), never in zip(pairs.tolist(), forbidden.tolist())
            # A joint text that is an unmerged token becomes that token as a whole: that is no property of the pair.
            if (encode(tokens[a] + tokens[b]) != [a, b]) != never and tokens[a] + tokens[b] not in unmerged
        ]
        assert not wrong, f"{name}, {kind}: {len(wrong)} of {len(pairs)} wrong, such as {wrong[:3]}"


def rule_of(tokens: list[bytes], merges: list[tuple[int, int]]) -> PairRule:
    return pair_rule(toy_merge_table(tokens, merges))


@pytest.mark.exhaustive
def test_random_small_encoders(exhaustive: bool) -> None:
    """All pairs and all short sequences of random encoders; runs such as a a test the ties."""
    rng = random.Random(11)
    seen_forbidden = seen_allowed = 0
    for round_ in range(400 if exhaustive else 30):
        tokens, merges = toy_merges.random_encoder(rng, letters=1 + round_ % 3, merges=rng.randint(2, 7))
        rule = rule_of(tokens, merges)
        for size in (2, 3):
            for sequence in itertools.product(range(len(tokens)), repeat=size):
                want = toy_merges.encode(b"".join(tokens[t] for t in sequence), tokens, merges) == list(sequence)
                got = all(rule.canonical_pair(a, b) for a, b in itertools.pairwise(sequence))
                assert got == want, (tokens, merges, sequence)
                seen_allowed += want
                seen_forbidden += not want
    assert seen_allowed > 1000
    assert seen_forbidden > 1000


def test_ties_go_to_the_left() -> None:
    """a a merges: three a's are aa a, never a aa; four are aa aa, and aaaa where that is merged too."""
    tokens = [b"a", b"aa"]
    rule = rule_of(tokens, [(0, 0)])
    assert [rule.canonical_pair(a, b) for a in (0, 1) for b in (0, 1)] == [False, False, True, True]
    rule = rule_of([*tokens, b"aaaa"], [(0, 0), (1, 1)])
    assert [rule.canonical_pair(2, b) for b in (0, 1, 2)] == [True, True, True]
    assert not rule.canonical_pair(1, 1)
    assert not rule.canonical_pair(1, 2)


def test_tokens_that_merging_does_not_reach() -> None:
    """abc needs a bc, but ab is merged first: it is not its own form, and its pieces are known."""
    tokens = [b"a", b"b", b"c", b"ab", b"bc", b"abc", b""]
    table = toy_merge_table(tokens, [(0, 1), (1, 2), (0, 4)])
    trees = merge_trees(table)
    assert trees.own.tolist() == [True] * 5 + [False, False]
    assert trees.pieces == {5: (3, 2)}
    rule = pair_rule(table, trees)
    assert not rule.canonical_pair(5, 0)
    assert table.encode([0, 1, 2]) == [3, 2]


def test_all_splits_are_all() -> None:
    """Every way to write a token as two tokens, however it was trained."""
    tokens = [b"a", b"b", b"ab", b"ba", b"aba", b"", b"abab", b"xa"]
    offset = np.concatenate([[0], np.cumsum([len(t) for t in tokens])])
    left, right, result = all_splits(np.frombuffer(b"".join(tokens), np.uint8), offset)
    found = {(tokens[a], tokens[b], tokens[z]) for a, b, z in zip(left, right, result)}
    want = {(z[:k], z[k:], z) for z in tokens for k in range(1, len(z)) if z[:k] in tokens and z[k:] in tokens}
    assert found == want


def test_rows_and_pairs_agree() -> None:
    rng = random.Random(3)
    tokens, merges = toy_merges.random_encoder(rng, letters=2, merges=9)
    rule = rule_of(tokens, merges)
    for first in range(len(tokens)):
        row = rule.forbidden_row(first)
        assert row.tolist() == [not rule.canonical_pair(first, second) for second in range(len(tokens))]
