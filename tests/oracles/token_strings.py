"""A compiled constraint against all short strings of tokens: what it accepts, allows, and promises to complete."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from fsa_compile.artifact import CompiledConstraint


def check_all_token_strings(constraint: CompiledConstraint, num_ids: int, stop: int, longest: int, good: Callable[[Sequence[int]], bool]) -> int:
    """Accepting is `good`, nothing good is refused, and every allowed token can be completed to something good.

    Args:
      num_ids: ids below this one are tried.
      stop: end-of-text id.
      longest: length of the strings.
      good: whether a sequence of ids satisfies the constraint.

    Returns:
      Number of strings that are allowed.
    """
    accepted, prefixes = set(), set()
    for n in range(longest + 1):
        for ids in itertools.product(range(num_ids), repeat=n):
            if ids and ids[-1] == stop:
                continue
            if stop not in ids and good(ids):
                accepted.add(ids)
                prefixes.update(ids[:k] for k in range(n + 1))
    walk = constraint.walk()
    seen = 0

    def visit(ids: tuple[int, ...]) -> None:
        nonlocal seen
        seen += 1
        allowed = walk.allowed()
        assert bool(allowed[stop]) == (ids in accepted), ids
        _complete(walk, ids, good)
        if len(ids) == longest:
            return
        for token in range(num_ids):
            if token == stop:
                continue
            if allowed[token]:
                walk.advance(token)
                visit((*ids, token))
                walk.rewind(1)
            else:
                assert (*ids, token) not in prefixes, (ids, token)

    visit(())
    return seen


def _complete(walk, ids: tuple[int, ...], good: Callable[[Sequence[int]], bool]) -> None:
    """Follows the shortest way to the end, which has to be good."""
    taken = 0
    while walk.distance:
        token = int(walk.allowed(walk.distance).nonzero()[0][0])
        before = walk.distance
        walk.advance(token)
        ids = (*ids, token)
        taken += 1
        assert walk.distance == before - 1, ids
    assert good(ids), ids
    walk.rewind(taken)
