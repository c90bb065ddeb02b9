"""Least values in one pass against rounds over everything, until nothing changes."""

from __future__ import annotations

import random
from typing import TypeAlias

import numpy as np
import pytest

from fsa_compile.composition.pushdown import least_fixpoint as cheapest_first
from fsa_compile.composition.pushdown.least_fixpoint import Waits, Ways, least_sums, least_values

_FAR = 1 << 30


_Ends: TypeAlias = tuple[np.ndarray, np.ndarray]


def random_ways(rng: random.Random) -> tuple[np.ndarray, Ways, _Ends, _Ends, int]:
    """A network of random calls; some symbols may return to places from which nothing goes on, and some places pay for that."""
    places, symbols, effects = rng.randint(2, 12), rng.randint(1, 5), rng.randint(1, 20)
    strings = [[], *([rng.randrange(symbols) for _ in range(rng.randint(1, 3))] for _ in range(4))]
    padded = np.array([[*string, *[symbols] * (3 - len(string))] for string in strings])
    pairs = {(rng.randrange(places), rng.randrange(effects)) for _ in range(rng.randint(1, 40))}
    place, effect = np.array(sorted(pairs)).T
    push = np.array([rng.randrange(5) if rng.random() < 0.5 else 0 for _ in range(effects)])
    ways = Ways(
        place=place,
        effect=effect,
        target=np.array([rng.randrange(places) for _ in range(effects)]),
        push=push,
        string=padded,
        tokens=np.where(push > 0, [rng.randrange(2) for _ in range(effects)], 1),
    )

    def ends(many: int, number: int) -> _Ends:
        below = [rng.randrange(-1 if rng.random() < 0.1 else 0, places) for _ in range(number)]
        return np.array([rng.randrange(many) for _ in range(number)], np.int64), np.array(below, np.int64)

    first = np.array([rng.random() < 0.3 for _ in range(places)])
    return first, ways, ends(symbols, rng.randint(0, 2 * symbols)), ends(places, rng.randint(0, 3)), symbols


def rounds(first: np.ndarray, ways: Ways, returns: _Ends, closing: _Ends, size: int, step: int) -> tuple[list, list]:
    """The same from above, all places and symbols again and again."""
    symbol, below = returns
    value, of_symbol = [0 if f else _FAR for f in first], [_FAR] * size
    while True:
        new_symbol = [_FAR] * size
        for s in set(symbol.tolist()):
            new_symbol[s] = max(value[b] if b >= 0 else _FAR for t, b in zip(symbol.tolist(), below.tolist()) if t == s)
        new = list(value)
        for p in set(closing[0].tolist()):
            new[p] = min(new[p], max(value[b] if b >= 0 else _FAR for t, b in zip(*(c.tolist() for c in closing)) if t == p))
        for place, effect in zip(ways.place.tolist(), ways.effect.tolist()):
            target, string = value[ways.target[effect]], [s for s in ways.string[ways.push[effect]].tolist() if s < size]
            if step:
                found = ways.tokens[effect] + target + sum(new_symbol[s] for s in string)
            else:
                found = max(len(string) + target, *(new_symbol[s] + i for i, s in enumerate(string)), 0)
            new[place] = min(new[place], found, _FAR)
        if (new, new_symbol) == (value, of_symbol):
            return value, of_symbol
        value, of_symbol = new, new_symbol


@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("step", [0, 1])
def test_least_values_are_those_of_rounds(step: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`few` places at most are worked on one by one."""
    monkeypatch.setattr(cheapest_first, "_FEW", few)
    finite = 0
    for seed in range(400):
        first, ways, returns, closing, size = random_ways(random.Random(seed))
        value, of_symbol = least_values(first, ways, Waits(ways, returns, closing, len(first), size), step, _FAR)
        want, want_symbol = rounds(first, ways, returns, closing, size, step)
        assert (value.tolist(), of_symbol.tolist()) == (want, want_symbol), seed
        finite += int(((value > 0) & (value < _FAR)).sum()) + int((of_symbol < _FAR).sum())
    assert finite > 300


def test_least_sums_are_those_of_rounds() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        size, edges = int(rng.integers(1, 12)), int(rng.integers(0, 30))
        first = rng.random(size) < 0.2
        source, target = rng.integers(0, size, (2, edges))
        weight = rng.integers(0, 3, edges)
        want = np.where(first, 0, _FAR)
        for _ in range(size):
            np.minimum.at(want, source, want[target] + weight)
        assert least_sums(first, source, target, weight, _FAR).tolist() == np.minimum(want, _FAR).tolist()
