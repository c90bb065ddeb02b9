"""What is worked on a few nodes at once, and what is read once for many nodes: the same as all at once, and as each by itself."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import fsa_compile
import models
from fsa_compile.artifact import stored_arrays
from fsa_compile.artifact.arrays import ARRAYS
from fsa_compile.composition import compose
from fsa_compile.composition.pushdown import pushdown_artifact, return_nodes, token_groups
from fsa_compile.composition.tokens import pruned
from fsa_compile.vocabulary.vocabulary_tables import tables_for

_PROGRAMS = r"""
start: statement*
statement: NAME "=" sum ";" | "if" "(" sum ")" block
block: "{" statement* "}" | "[" sum* "]"
sum: sum "+" value | value
value: NAME | NUMBER | "(" sum ")" | "{" sum "}"
NAME: /[a-z]+/
NUMBER: /[0-9]+/
COMMENT: /#[^\n]*\n/
%ignore COMMENT
%ignore /[ \n]+/
"""


@pytest.fixture(scope="module")
def vocabulary():
    """Many tokens end a line and go on behind it."""
    pieces = [b"".join(p) for n in (1, 2, 3) for p in itertools.product((b";", b")", b"}", b"]", b" ", b"\n", b"#a", b"if"), repeat=n)]
    return fsa_compile.Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256)), *pieces], stop_ids=[0])


def compiled(vocabulary, **sizes):
    with pytest.MonkeyPatch.context() as patch:
        for module in (compose, pushdown_artifact):
            patch.setattr(module, "LEAST_BYTES", 1)
        for module in (stored_arrays, pushdown_artifact):
            patch.setattr(module, "is_smaller", lambda array: True)
        for name, value in sizes.items():
            module, attribute = {
                "groups": (token_groups, "_BLOCK"), "returns": (return_nodes, "_BLOCK"), "large": (return_nodes, "_LARGE"),
                "sets": (stored_arrays, "_SETS"), "listed": (stored_arrays, "_LISTED"), "marks": (pruned, "_MOST_MARKS"),
            }[name]  # fmt: skip
            assert hasattr(module, attribute)
            patch.setattr(module, attribute, value)
        return fsa_compile.compile_grammar(_PROGRAMS, vocabulary, syntax="lark", mode="longest")


def pushes(c):
    """Push strings by number."""
    symbols = zip(c.push_symbol.tolist(), c.push_register.tolist())
    pairs = list(symbols)
    return [tuple(pairs[a:b]) for a, b in itertools.pairwise(c.push_offset.tolist())]


def effects_of(c):
    """What every arc and every group does, push strings written out."""
    strings = pushes(c)
    rows = [(strings[push], target, *rest) for target, push, *rest in np.asarray(c.effects).tolist()]
    return [rows[i] for i in np.asarray(c.arc_effect).tolist()], [strings[i] for i in c.group_push.tolist()], strings[c.initial_push]


def test_few_nodes_at_once(vocabulary):
    """Every array is the same, whatever is worked on together."""
    one = compiled(vocabulary)
    other = compiled(vocabulary, groups=8, returns=8, sets=8, listed=3, marks=1)
    for name in ARRAYS:
        assert np.array_equal(np.asarray(getattr(one, name)), np.asarray(getattr(other, name))), name


def test_groups_read_once(vocabulary):
    """What is read once for many nodes changes nothing but the numbers of push strings and effects."""
    each, together = compiled(vocabulary, large=1 << 30), compiled(vocabulary, large=2)
    assert len(each.arc_token) > 10_000
    named = {"arc_effect", "effects", "group_push", "initial_push", "push_offset", "push_symbol", "push_register"}
    for field in dataclasses.fields(each):
        if field.name in ARRAYS and field.name not in named:
            assert np.array_equal(np.asarray(getattr(each, field.name)), np.asarray(getattr(together, field.name))), field.name
    assert effects_of(each) == effects_of(together)


def test_sets_are_taken_together(vocabulary, monkeypatch):
    """The test before this one looks at something."""
    taken = []
    own = return_nodes.shared_parts
    monkeypatch.setattr(return_nodes, "shared_parts", lambda *given: taken.append(own(*given)) or taken[-1])
    compiled(vocabulary, large=2)
    assert sum(len(parts.owner) for parts in taken) > 100


@pytest.mark.parametrize("marks", [1, 1 << 25])
def test_cut_tries(marks, monkeypatch):
    """The paths to some tokens of some entries, and no others."""
    monkeypatch.setattr(pruned, "_MOST_MARKS", marks)
    tables = tables_for(fsa_compile.load_tokenizer(models.small_tokenizer_path()).vocabulary)
    node_of = {int(token): node for node, token in enumerate(tables.trie_token.tolist()) if token >= 0}
    parent = np.append(0, np.repeat(np.arange(len(tables.trie_first)), tables.trie_count))
    rng = np.random.default_rng(5)
    for size in (0, 1, 7, 40, 300):
        pairs = {(int(e) * 3, int(t)) for e, t in zip(rng.integers(0, 5, size), rng.integers(0, tables.vocab_size, size)) if int(t) in node_of}
        entry, token = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
        cut = pruned.cut_trie(tables, entry, token, tables.subtrees.depth)
        wanted = set()
        for e, t in pairs:
            node = node_of[t]
            while node:
                wanted.add((e, node))
                node = int(parent[node])
        found, ends = list[tuple[int, int]](), set()
        todo = [(int(root) // len(parent), i) for i, root in enumerate(cut.roots)]
        assert [int(cut.node[i]) for _, i in todo] == [int(root) % len(parent) for root in cut.roots]
        while todo:
            e, i = todo.pop()
            found.append((e, int(cut.node[i])))
            if cut.token[i] >= 0:
                ends.add((e, int(cut.token[i])))
            children = range(int(cut.first[i]), int(cut.first[i] + cut.children[i]))
            assert all(parent[cut.node[child]] == cut.node[i] for child in children)
            todo += [(e, child) for child in children]
        assert len(found) == len(cut.node)
        assert set(found) == wanted
        assert ends == pairs
