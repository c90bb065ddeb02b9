"""What it costs to close the frames of a stack, by what lies below them: tokens may close several frames at once.

A symbol's own cost (`costs`) is enough whatever lies below it, so that the sum over a stack counts every bracket of `]]]]` for
itself. Here the cost of a cell depends on its *context*: which tokens that close it may go on to close what is below. There are
few contexts, and one symbol more leads from one to another, so they are nodes like any others: the children of a context are
those of the cells on top of it, and its `distance` is what its cell costs less than the symbol alone.

Let C(x) be the cost of a stack whose top cell has context x, and w(r) the tokens that finish the text from a source with the
children r, once x's symbol is popped. With q the child of r by the symbol, y the context below, and least(q) the fewest tokens
that a token of q and the rest of q's frame take,

    w(r) = min(least(q) + C(y), what y has for the children of q)        and
    C(x) = max over the nodes n that only an end of their frame finishes: w(children of n) - distance(n).

So within distance + C tokens, as within the sum of the symbols' own costs, there always is a token after which this is true
again; and C is never more than that sum. A context is what the differences w - C are. Tokens count only if they need no more
cells than their symbol allows, so that they keep limits of depth too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fsa_compile.arrays.integers import distinct, equal_rows, exampled
from fsa_compile.arrays.ranges import indices, ranges, segment_starts
from fsa_compile.artifact.arrays import NO_TEMPERATURE, UNBOUNDED
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.stored_arrays import StoredEffects

_FAR = 1 << 29
_MOST = 64
"""Contexts of a constraint up to which new ones are told apart; from then on those of one symbol are one, at its own cost."""
_MOST_ENTRIES = 1 << 22
"""Largest number of (children, symbol) pairs: beyond, contexts are not looked for."""


def with_contexts(c: CompiledConstraint) -> CompiledConstraint:
    """The constraint with contexts, or itself where all cells cost what their symbols do, and where frames have sets of keys."""
    if not c.num_symbols or c.has_sets:
        return c
    rows = _Rows(c)
    if rows.too_many or not len(rows.ending) or not rows.same_slopes():
        return c
    found = _contexts(c, rows)
    return c if found is None else _with_nodes(c, *found)


def without_contexts(c: CompiledConstraint) -> CompiledConstraint:
    """The constraint as it was composed: every cell costs what its symbol does."""
    if not c.context:
        return c
    size = c.context
    per_node = ("accept", "distance", "need", "ladder", "level_slope", "delta_offset", "temperature")
    changes: dict[str, Any] = {name: getattr(c, name)[:size] for name in per_node}
    changes |= {f"{kind}_offset": getattr(c, f"{kind}_offset")[: size + 1] for kind in ("group", "arc", "level")}
    return dataclasses.replace(c, context=0, delta=c.delta[: int(c.delta_offset[size:].min())], **changes)


class _Rows:
    """What sources may pop: the distinct rows of children.

    Attributes:
      child: int64[R, P]; row: int64[R, P], the number of each child's own row.
      ending, within: int64[E], rows of nodes that are finished by the end of their frames only, and the least distance of these.
      too_many: whether there are more (children, symbol) pairs than are looked at; nothing else is then made.
      least: int64[R, P], what a token of each child and the rest of its frame take, if it needs no more than the symbol allows;
        `_FAR` where there is no child.
    """

    def __init__(self, c: CompiledConstraint) -> None:
        self.constraint, p = c, c.num_symbols
        ends = _targets(c)
        for least in (_least_of_rows, _least_of_arcs):  # where a row is enough, the arcs are not looked at
            ends = ends[least(c, ends, c.need[ends]) > c.distance[ends]]
        offsets = distinct(c.delta_offset[ends].astype(np.int64))
        at, children = c.children
        row_of, number = at // p, np.empty(len(c.delta) // p, np.int64)
        while True:
            self.too_many = len(offsets) * p > _MOST_ENTRIES
            if self.too_many:
                return
            number.fill(-1)
            number[offsets // p] = np.arange(len(offsets))
            some = (number[row_of] >= 0).nonzero()[0]
            more = distinct(np.concatenate((offsets, c.delta_offset[children[some]])))
            if len(more) == len(offsets):
                break
            offsets = more
        child = np.zeros((len(offsets), p), np.int64)
        child[number[row_of[some]], at[some] % p] = children[some]
        self.child, self.row = child, offsets.searchsorted(c.delta_offset[child])
        of_end = offsets.searchsorted(c.delta_offset[ends])
        self.ending = distinct(of_end)
        self.within = np.full(len(self.ending), _FAR)
        np.minimum.at(self.within, self.ending.searchsorted(of_end), c.distance[ends])
        at = child.ravel().nonzero()[0]
        pair, _, which = exampled(child.ravel()[at] * p + at % p)
        self.least = np.full(child.shape, _FAR)
        asked = c, pair // p, c.symbol_need[pair % p]
        self.least.ravel()[at] = np.minimum(_least_of_rows(*asked), _least_of_arcs(*asked))[which]

    def same_slopes(self) -> bool:
        """Whether what a child's register is short of is in its symbol's cost."""
        if not self.constraint.level_slope[:, 2].any():
            return True
        own, paid = self.constraint.level_slope[self.child], self.constraint.symbol_slope[None]
        return bool(((self.child == 0) | (own[..., 2] == 0) | (own == paid).all(-1)).all())


def _targets(c: CompiledConstraint) -> np.ndarray:
    """The nodes that texts come to after whole tokens, ascending."""
    base = distinct(np.concatenate(([c.start], c.group_next, c.effects[1:, 0])).astype(np.int64))
    return distinct(indices(base, base + c.ladder[base, 1] + c.ladder[base, 3] + 1))


def _least_of_rows(c: CompiledConstraint, node: np.ndarray, need: np.ndarray) -> np.ndarray:
    """int64[n], the least cost of the rows of some nodes that need no more than so many cells."""
    which, at = ranges(c.level_offset[node], c.level_offset[node + 1])
    return _least_of_each(len(node), which, c.level_cost[at], c.level_need[at] <= need[which])


def _least_of_arcs(c: CompiledConstraint, node: np.ndarray, need: np.ndarray) -> np.ndarray:
    """The same of their arcs."""
    if isinstance(c.arc_effect, StoredEffects):
        which, effect = c.arc_effect.of_nodes(node)
    else:
        which, at = ranges(c.arc_offset[node], c.arc_offset[node + 1])
        effect = c.arc_effect[at]
    return _least_of_each(len(node), which, c.effects[effect, 4], c.effects[effect, 5] <= need[which])


def _least_of_each(size: int, which: np.ndarray, values: np.ndarray, some: np.ndarray) -> np.ndarray:
    """int64[n], the least of some values; `which` says whose each value is, and ascends."""
    out, which, values = np.full(size, _FAR), which[some], values[some]
    begin = segment_starts(which)
    if len(begin):
        out[which[begin]] = np.minimum.reduceat(values, begin)
    return out


def _contexts(c: CompiledConstraint, rows: _Rows) -> tuple[np.ndarray, np.ndarray] | None:
    """int64[X, P] contexts after each symbol, and int64[X], what cells of each cost less than their symbols; the first one is
    that of the empty stack. None where that is nothing, or where it is not certain that the costs are enough."""
    p = c.num_symbols
    dead = rows.child == 0
    least = np.where(dead, _FAR, np.where(c.accept[rows.child], 0, rows.least))
    paid = c.symbol_cost.astype(np.int64)
    unpaid = paid >= UNBOUNDED  # of symbols that are pushed nowhere
    unknown = dead | unpaid
    alone = np.concatenate((np.where(unknown | (least >= _FAR), _FAR, least - paid), np.zeros((1, p), np.int64))).T
    ended, within = dead[rows.ending], rows.within[:, None]
    known: dict[bytes, int] = {}
    found, after = [np.full(len(rows.child) + 1, _FAR)], list[np.ndarray]()

    def numbers(contexts: np.ndarray) -> list[int]:
        here, out = dict[bytes, int](), list[int]()
        for context, other in zip(contexts, alone):
            key = own = context.tobytes()
            if own not in here:
                if own not in known and len(found) >= _MOST:
                    context, key = other, other.tobytes()
                here[own] = number = known.setdefault(key, len(found))
                if number == len(found):
                    found.append(context)
            out.append(here[own])
        return out

    for below in found:  # grows
        value = np.where(unknown, _FAR, np.minimum(least, below[:-1][rows.row]))
        asked = np.where(ended, -_FAR, value[rows.ending] - within).max(0)
        cost = np.where((asked <= -_FAR // 2) | unpaid, paid, np.maximum(asked, 0))
        if (cost > paid).any():
            return None
        own = np.empty((p, len(below)), np.int64)
        own[:, :-1], own[:, -1] = np.where(value >= _FAR, _FAR, value - cost).T, paid - cost
        after.append(np.array(numbers(own)))
    less = np.array([0, *(one[-1] for one in found[1:])], np.int64)
    return (np.stack(after), less) if less.any() else None


def _with_nodes(c: CompiledConstraint, table: np.ndarray, less: np.ndarray) -> CompiledConstraint:
    """The constraint with a node for each context, behind all others."""
    first, more = c.num_nodes, len(less)
    shared, which = equal_rows(table)

    def longer(name: str, own: np.ndarray) -> np.ndarray:
        values = getattr(c, name)
        return np.concatenate((values, own.astype(values.dtype)))

    none = np.zeros(more, np.int64)
    changes: dict[str, Any] = {
        "accept": longer("accept", none),
        "distance": longer("distance", less),
        "need": longer("need", none),
        "ladder": longer("ladder", np.zeros((more, 4))),
        "level_slope": longer("level_slope", np.tile([0, 1, 0], (more, 1))),
        "delta_offset": longer("delta_offset", len(c.delta) + which * c.num_symbols),
        "delta": longer("delta", first + table[shared].ravel()),
    }
    if len(c.temperature):
        changes["temperature"] = longer("temperature", np.full(more, NO_TEMPERATURE))
    for kind in ("group", "arc", "level"):
        name = f"{kind}_offset"
        changes[name] = longer(name, np.full(more, getattr(c, name)[-1]))
    return dataclasses.replace(c, context=first, **changes)
