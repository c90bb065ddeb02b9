"""A choice that stands in several places of a tree is written out once where the same follows, and reads the same texts."""

from __future__ import annotations

import copy
import random

import pytest

from fsa_compile.formats.text_automaton import text_automaton
from fsa_compile.formats.tree import Joined, Named, OneOf, Parts, Repeated, Text
from fsa_compile.limits import CompileLimits, Deadline

LIMITS = CompileLimits()


def tree(rng, depth, shared):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([Text(rng.choice(["", "a", "b", "ab", "ba"])), shared])
    match rng.randrange(5):
        case 0:
            return Repeated(tree(rng, depth - 1, shared), rng.randint(0, 1), rng.choice([1, 2, None]))
        case 1:
            return Joined(tree(rng, depth - 1, shared), tree(rng, depth - 1, shared))
        case 2:
            return OneOf(tuple(tree(rng, depth - 1, shared) for _ in range(rng.randint(1, 3))))
        case 3:
            return Named(tuple((name, tree(rng, depth - 1, shared)) for name in ("a", "ab")))
    return Parts(tuple(tree(rng, depth - 1, shared) for _ in range(rng.randint(1, 3))))


def apart(node):
    """The tree with choices of its own in every place."""
    match node:
        case Parts(parts=parts):
            return Parts(tuple(apart(part) for part in parts))
        case OneOf(branches=branches):
            return OneOf(tuple(apart(branch) for branch in branches))
        case Named(branches=branches):
            return Named(tuple((name, apart(behind)) for name, behind in branches))
        case Repeated(part=part, low=low, high=high):
            return Repeated(apart(part), low, high)
        case Joined(part=part, between=between):
            return Joined(apart(part), apart(between))
    return copy.copy(node)


def made(root):
    return text_automaton(root, LIMITS, Deadline(LIMITS))


def same(one, other):
    """Whether two trimmed automata read the same texts."""
    seen = {(one.start, other.start)}
    todo = list(seen)
    for at, there in todo:
        if one.final[at] != other.final[there]:
            return False
        for byte in b"abc":
            pair = int(one.table[at, one.byte_class[byte]]), int(other.table[there, other.byte_class[byte]])
            if bool(pair[0]) != bool(pair[1]):
                return False
            if pair[0] and pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return True


@pytest.mark.parametrize("seed", range(4))
def test_the_texts_are_the_same(seed):
    rng = random.Random(seed)
    for _ in range(250):
        shared = OneOf(tuple(tree(rng, 1, Text("b")) for _ in range(rng.randint(1, 3))))
        root = tree(rng, 4, shared)
        assert same(made(root), made(apart(root))), root


def test_it_is_written_out_once():
    calls = OneOf((Parts((Text("a"), Named((("one", Text(";")), ("other", Text(".")))))),))
    root = OneOf((calls, Parts((Text("b"), calls))))
    assert len(made(root).table) == len(made(apart(root)).table) - 8
