"""Where the states and arcs of a drawn automaton go: columns from left to right, long arcs around what lies between.

Source: Sugiyama, Tagawa, Toda 1981, in its simplest form: arcs that close a cycle are set aside, columns are longest paths, an
arc over several columns gets a bend point in each, and rows are ordered by the mean of their neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

COLUMN, NARROW, ROW = 1.8, 1.35, 0.85
"""Distances between columns, at least, where labels are short, and between rows, in the units of the drawing."""

Point = tuple[float, float]


def layout(
    nodes: Sequence[int], edges: Sequence[tuple[int, int]], *, widths: Sequence[float] | None = None, row: float = ROW
) -> tuple[dict[int, Point], dict[int, list[Point]]]:
    """Places for the states and bend points for the arcs.

    Args:
      nodes: states; the first one is the start and reaches all others.
      edges: (source, target), at most one per pair.
      widths: room that each arc's label takes between two columns; None: columns stand `COLUMN` apart.
      row: distance between rows.

    Returns:
      Place of every state; and for the number of every arc that runs over columns in between, its bend points.
    """
    backward = _closing(nodes, edges)
    forward = [i for i in range(len(edges)) if i not in backward]
    column = _columns(nodes, [edges[i] for i in forward])
    width = max(column.values()) + 1
    rows: list[list[tuple[int, int]]] = [[] for _ in range(width)]  # (state, -1) or (column, arc) of a bend
    for n in nodes:
        rows[column[n]].append((n, -1))
    links: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for i in forward:
        source, target = edges[i]
        chain = [(source, -1), *((c, i) for c in range(column[source] + 1, column[target])), (target, -1)]
        links += itertools.pairwise(chain)
        for c in range(column[source] + 1, column[target]):
            rows[c].append((c, i))
    height = _heights(rows, links)
    at = _across(width, [(column[a], column[b]) for a, b in edges], widths)
    place = {n: (at[column[n]], row * height[n, -1]) for n in nodes}
    bends = {i: [(at[c], row * height[c, i]) for c in range(column[edges[i][0]] + 1, column[edges[i][1]])] for i in forward}
    return place, {i: points for i, points in bends.items() if points}


def _across(columns: int, spans: list[tuple[int, int]], widths: Sequence[float] | None) -> list[float]:
    """Where the columns stand: wide enough apart for the labels of the arcs from one to the next."""
    gap = [COLUMN if widths is None else NARROW] * columns
    for (source, target), width in zip(spans, widths or ()):
        if target == source + 1 or target == source - 1:
            gap[min(source, target)] = max(gap[min(source, target)], width)
    return [0.0, *itertools.accumulate(gap[:-1])]


def _closing(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> set[int]:
    """Numbers of the arcs that lead back to a state on the way to their source; without them there is no cycle."""
    out: dict[int, list[int]] = {n: [] for n in nodes}
    for i, (source, _) in enumerate(edges):
        out[source].append(i)
    open_, closing = {nodes[0]}, set()
    done: set[int] = set()
    path = [(nodes[0], iter(out[nodes[0]]))]
    while path:
        node, rest = path[-1]
        i = next(rest, -1)
        if i < 0:
            open_.discard(node)
            done.add(node)
            path.pop()
            continue
        target = edges[i][1]
        if target in open_:
            closing.add(i)
        elif target not in done:
            open_.add(target)
            path.append((target, iter(out[target])))
    return closing


def _columns(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Length of the longest way from the start to each state; the arcs have no cycle."""
    column = dict.fromkeys(nodes, 0)
    for _ in nodes:
        changed = False
        for source, target in edges:
            if column[target] <= column[source]:
                column[target], changed = column[source] + 1, True
        if not changed:
            break
    return column


def _heights(
    rows: list[list[tuple[int, int]]], links: list[tuple[tuple[int, int], tuple[int, int]]]
) -> dict[tuple[int, int], float]:
    """A height for every state and bend, at least one apart within a column, near the mean of its neighbours."""
    before: dict[tuple[int, int], list[tuple[int, int]]] = {item: [] for column in rows for item in column}
    after: dict[tuple[int, int], list[tuple[int, int]]] = {item: [] for item in before}
    for left, right in links:
        before[right].append(left)
        after[left].append(right)
    height = {item: i - (len(column) - 1) / 2 for column in rows for i, item in enumerate(column)}
    for sweep in range(12):
        order, sides = (rows, before) if sweep % 2 == 0 else (rows[::-1], after)
        if sweep >= 8:  # the order has settled; now only straighten
            sides = {item: before[item] + after[item] for item in before}
        for column in order:
            wish = {item: float(np.mean([height[o] for o in sides[item]] or [height[item]])) for item in column}
            column.sort(key=lambda item: (wish[item] if sweep < 8 else height[item], item))
            height.update(zip(column, _apart([wish[item] for item in column])))
    return height


def _apart(wishes: list[float]) -> list[float]:
    """Heights in the given order, at least one apart and near the wishes: the mean of pushing up only and down only."""
    up, down = list(wishes), list(wishes)
    for i in range(1, len(wishes)):
        up[i] = max(wishes[i], up[i - 1] + 1)
        down[-1 - i] = min(wishes[-1 - i], down[-i] - 1)
    return [(a + b) / 2 for a, b in zip(up, down)]
