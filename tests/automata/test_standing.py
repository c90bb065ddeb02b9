"""What may lie on top of a stack, beside all configurations of small random systems."""

from __future__ import annotations

import itertools
import random

from fsa_compile.automata.standing import standing


def configurations(start, moves, calls, returns, deepest):
    """All (place, stack) that are reached without a stack deeper than that."""
    found, todo = set(), [start]
    while todo:
        place, stack = at = todo.pop()
        if at in found or len(stack) > deepest:
            continue
        found.add(at)
        todo += [(q, stack) for p, q in moves if p == place]
        todo += [(q, stack + string) for p, string, q in calls if p == place]
        todo += [(q, stack[:-1]) for p, symbol, q in returns if p == place and len(stack) > 1 and symbol == stack[-1]]
    return found


def test_whatever_is_reached_is_found_and_little_else(exhaustive):
    rng, more, all_pairs = random.Random(19), 0, 0
    for _ in range(3_000 if exhaustive else 150):
        places, symbols = rng.randint(2, 5), rng.randint(1, 3)
        moves, calls, returns = ([(rng.randrange(places), rng.randrange(places)) for _ in range(rng.randint(0, 3))] for _ in range(3))
        calls = [(p, tuple(rng.randrange(symbols) for _ in range(rng.randint(1, 2))), q) for p, q in calls]
        returns = [(p, rng.randrange(symbols), q) for p, q in returns]
        stack = (symbols, *(rng.randrange(symbols) for _ in range(rng.randint(0, 2))))
        found = standing(
            moves,
            ((p, string[0]) for p, string, _ in calls),
            [(0, stack[-1]), *((q, string[-1]) for _, string, q in calls)],
            [(b, a) for string in (stack, *(string for _, string, _ in calls)) for a, b in itertools.pairwise(string)],
            returns,
        )
        reached = {(place, stack[-1]) for place, stack in configurations((0, stack), moves, calls, returns, 6)}
        assert reached <= found
        more, all_pairs = more + len(found - reached), all_pairs + places * (symbols + 1)
    assert more < all_pairs / 2  # calls from places that are never reached
