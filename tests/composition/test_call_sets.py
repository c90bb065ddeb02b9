"""What nodes read through calls, put together once for what is called alike, against every way written out."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest

from fsa_compile.composition.pushdown.call_sets import (
    CallSets,
    Leaves,
    Strings,
    call_sets,
    called_sets,
    leaves_of,
    nested_ways,
    within,
)
from fsa_compile.composition.pushdown.least_fixpoint import Ways
from fsa_compile.composition.pushdown.token_groups import EffectTable, _Ways
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_FAR = 1 << 30
_TARGETS, _SYMBOLS = 4, 3
Way: TypeAlias = tuple[int, tuple[tuple[int, int], ...], int, int]
"""(target, push string, register before the first call, register of the target)."""


def random_owners(rng: random.Random, counts: bool) -> tuple[Any, Any]:
    """The links and parts of a walk: runs are called by owners before them; some are parts of their callers' frames."""
    nodes, owners = rng.randint(1, 4), rng.randint(5, 12)
    links = list[tuple[int, int, int, int]]()
    for run in range(nodes, owners):
        inside = rng.random() < 0.3
        for caller in rng.sample(range(run), min(run, rng.randint(1, 4))):
            links.append((run, caller, -1 if inside else rng.randrange(_SYMBOLS), rng.randrange(2) if counts and not inside else 0))
    parts = sorted({(rng.randrange(owners), rng.randrange(_TARGETS), rng.randrange(2) if counts else 0) for _ in range(9)})
    run, caller, symbol, count = np.array(links, np.int64).reshape(-1, 4).T
    owner, target, register = np.array(parts, np.int64).T
    arcs = SimpleNamespace(
        node_owner=np.array(rng.sample(range(nodes), nodes)), num_owners=owners,
        link_run=run, link_caller=caller, link_symbol=symbol, link_count=count,
    )  # fmt: skip
    return arcs, SimpleNamespace(owner=owner, target=target, count=register)


def written_out(arcs: Any, parts: Any, owner: int) -> list[Way]:
    """(target, string, register, part) of everything that an owner reads."""
    columns = (parts.owner, parts.target, parts.count)
    out = [(t, (), r, i) for i, (o, t, r) in enumerate(zip(*(c.tolist() for c in columns))) if o == owner]
    for link in zip(*(c.tolist() for c in (arcs.link_run, arcs.link_caller, arcs.link_symbol, arcs.link_count))):
        run, caller, symbol, count = link
        if caller == owner:
            more = () if symbol < 0 else ((symbol, count),)
            out += [(t, more + string, r, part) for t, string, r, part in written_out(arcs, parts, run)]
    return out


def sets_of(arcs: Any, parts: Any) -> tuple[CallSets, Leaves]:
    full = np.zeros(arcs.num_owners, bool)
    full[parts.owner] = True
    sets = call_sets(arcs, full, Deadline(CompileLimits()))
    return sets, leaves_of(sets, parts, arcs.num_owners)


def test_called_sets_are_the_ways_written_out() -> None:
    nested = shared = 0
    for seed in range(300):
        arcs, parts = random_owners(random.Random(seed), counts=seed % 2 > 0)
        sets, leaves = sets_of(arcs, parts)
        strings = Strings()
        called, of_call = called_sets(sets, leaves, strings, Deadline(CompileLimits()))
        found: list[list[tuple[Way, int]]] = [[] for _ in arcs.node_owner]
        for leaf, node in enumerate(leaves.set.tolist()):
            if node < len(found):
                found[node].append(((int(leaves.target[leaf]), (), int(leaves.register[leaf]), 0), leaf))
        for call, which in zip((sets.above < len(found)).nonzero()[0].tolist(), of_call.tolist()):
            for k in range(called.size[which]):
                does = called.begin[which] + k
                target, string, under, final = (int(column[does]) for column in called[4:])
                way = target, strings.all[string], under, final
                found[sets.above[call]].append((way, int(called.leaf[called.first[which] + k])))
        for node, owner in enumerate(arcs.node_owner.tolist()):
            want = Counter[tuple[Way, int]]()
            for target, string, register, part in written_out(arcs, parts, owner):
                first = string[0][1] if string else register
                pushed = ((string[0][0], 0), *string[1:]) if string else ()
                want[(target, pushed, first, register if string else 0), part] += 1
            ends = leaves.offset.tolist()
            got = Counter((way, p) for way, leaf in found[node] for p in leaves.part[ends[leaf] : ends[leaf + 1]].tolist())
            assert got == want, seed
            assert len({way for way, _ in found[node]}) == len(found[node]), seed
            nested += sum(len(way[1]) > 1 for way, _ in found[node])
        shared += len(of_call) - len(set(of_call.tolist()))
    assert nested > 500
    assert shared > 20


def test_token_sets_behind_calls_are_written_out_where_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before the limit is asked: one string each, but a thousand token sets behind each of three calls."""
    links = np.array([(1, 0, symbol, 0) for symbol in range(_SYMBOLS)], np.int64)
    run, caller, symbol, count = links.T
    arcs: Any = SimpleNamespace(
        node_owner=np.zeros(1, np.int64), num_owners=2, link_run=run, link_caller=caller, link_symbol=symbol, link_count=count
    )
    targets = np.arange(1000)
    parts: Any = SimpleNamespace(owner=targets * 0 + 1, target=targets, count=targets * 0)
    sets, _ = sets_of(arcs, parts)
    assert _Ways(arcs, parts, sets, Deadline(CompileLimits())).size.tolist() == [3000]
    monkeypatch.setattr(EffectTable, "of", lambda *_: pytest.fail("written out"))
    with pytest.raises(LimitError, match="max_bytes"):
        _Ways(arcs, parts, sets, Deadline(CompileLimits(max_bytes=200_000)))


def ways_from(ways: Ways, place: int) -> set[tuple[int, tuple[int, ...]]]:
    """(target, symbols) of all ways from a place, those through sets written out."""
    out = set()
    for effect in ways.effect[ways.place == place].tolist():
        symbols = tuple(s for s in ways.string[ways.push[effect]].tolist() if s < _SYMBOLS)
        target = int(ways.target[effect])
        out |= {(target, symbols)} if ways.tokens[effect] else {(t, symbols + more) for t, more in ways_from(ways, target)}
    return out


def cells(control: list[int], symbol: list[int], way: tuple[int, tuple[int, ...]]) -> int:
    """What a way takes, of the cells of its target and of the symbols that it pushes."""
    target, pushed = way
    return min(_FAR, max(len(pushed) + control[target], *(symbol[s] + i for i, s in enumerate(pushed)), 0))


def needs(rng: random.Random, ways: Ways) -> tuple[list[int], list[int], np.ndarray]:
    """Random cells of controls and symbols, and what each effect takes at least."""
    control, symbol = ([rng.choice((0, 1, 2, 3, _FAR)) for _ in range(n)] for n in (_TARGETS, _SYMBOLS))

    def least(effect: int) -> int:
        place = np.append(ways.place, -1), np.append(ways.effect, effect)
        return min([cells(control, symbol, way) for way in ways_from(Ways(*place, *ways[2:]), -1)], default=_FAR)

    return control, symbol, np.array([least(effect) for effect in range(len(ways.target))])


def test_nested_ways_are_those_written_out_and_keep_within_cells() -> None:
    dropped = kept = 0
    for seed in range(300):
        rng = random.Random(seed)
        arcs, parts = random_owners(rng, counts=False)
        flat = [written_out(arcs, parts, owner) for owner in arcs.node_owner.tolist()]
        every = [{(target, tuple(s for s, _ in string)) for target, string, *_ in ways} for ways in flat]
        node = [rng.randrange(len(every)) for _ in range(4)]
        full = [(place, *way) for place, n in enumerate(node) if n == 0 for way in sorted(every[n])]
        string = np.array([[*way[2], *[_SYMBOLS] * (12 - len(way[2]))] for way in full], np.int64).reshape(-1, 12)
        written = np.array([way[0] for way in full], np.int64), np.arange(len(full)), np.array([way[1] for way in full], np.int64), string
        sets, leaves = sets_of(arcs, parts)
        ways, size = nested_ways(sets, leaves, np.array([n or -1 for n in node]), written, _TARGETS, _SYMBOLS)
        assert [ways_from(ways, place) for place in range(4)] == [every[n] for n in node], seed
        control, symbol, value = needs(rng, ways)
        most = np.array([rng.choice((0, 1, 2, 3, 4, 5, _FAR)) for _ in node])
        some, more = within(ways, value, most, size, _FAR, Deadline(CompileLimits()))
        assert more >= max(some.place.max(initial=0), some.target.max(initial=0)) + (len(some.place) > 0)
        for place, n in enumerate(node):
            want = {way for way in every[n] if cells(control, symbol, way) <= most[place]}
            assert ways_from(some, place) == want, seed
            dropped, kept = dropped + len(every[n]) - len(want), kept + len(want)
    assert dropped > 500
    assert kept > 500
