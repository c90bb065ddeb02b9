"""Arcs as curves and places for their labels: no label lies on a state or a label or, where it can be helped, on an arc.

A label takes the best of some places along its arc and beside it, given where the others are, until none moves; where some still
collide, rows are drawn further apart and all is placed anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fsa_compile.inspection.draw_layout import ROW, Point, layout

Floats = NDArray[np.float64]

RADIUS = 0.19
"""Of a state, in the units of the drawing."""
_ROOM = 0.05
"""Least distance between a label and what it must not touch."""
_HIT, _CROSSED = 100.0, 6.0
"""What it costs that a label lies on a state or a label, and on another arc."""
_STRETCHES = (1.0, 1.25, 1.6, 2.0, 2.6)


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """Where everything of a drawn automaton goes.

    Attributes:
      place: centre of every state.
      curves: float64[3 k + 1, 2] per arc, the corners of its cubic Bézier segments.
      labels: centre of every arc's label.
      low, high: corners of what is drawn.
      clashes: labels that still lie on something.
    """

    place: dict[int, Point]
    curves: list[Floats]
    labels: list[Point]
    low: Floats
    high: Floats
    clashes: int


def arrange(
    nodes: Sequence[int], edges: Sequence[tuple[int, int]], sizes: Sequence[tuple[float, float]], marks: Sequence[Point] = ()
) -> Arrangement:
    """Places for states, arcs and labels.

    Args:
      nodes, edges: see `layout`.
      sizes: width and height of every arc's label, in the units of the drawing.
      marks: what is written beside the states: offsets from the centre of each state in `nodes` order, (0, 0) for nothing.
    """
    room = [width + 2 * RADIUS + 0.5 for width, _ in sizes]
    tried: list[Arrangement] = []
    for stretch in _STRETCHES:
        place, bends = layout(nodes, edges, widths=room, row=ROW * stretch)
        tried.append(_arranged(place, bends, edges, np.array(sizes, float).reshape(-1, 2), dict(zip(nodes, marks))))
        if tried[-1].clashes == 0:
            break
    return min(tried, key=lambda one: one.clashes)


def _arranged(
    place: dict[int, Point],
    bends: dict[int, list[Point]],
    edges: Sequence[tuple[int, int]],
    sizes: Floats,
    marks: dict[int, Point],
) -> Arrangement:
    states = np.array(list(place.values()), float)
    curves: list[Floats] = [np.zeros((0, 2))] * len(edges)
    traces: list[Floats] = [np.zeros((0, 2))] * len(edges)
    first = states[0]
    lines = [np.linspace(first - [0.75, 0], first - [RADIUS, 0], 12)]  # the arrow to the start
    for i in sorted(range(len(edges)), key=lambda i: _rank(place, edges[i])):
        ways = _ways(np.array(place[edges[i][0]]), np.array(place[edges[i][1]]), bends.get(i, []))
        cost = [_way_cost(way, states, lines) for way in ways]
        curves[i] = ways[int(np.argmin(cost))]
        traces[i] = _trace(curves[i])
        lines.append(traces[i])
    extra = [np.array(place[n]) + offset for n, offset in marks.items() if offset != (0, 0)]
    labels, clashes = _placed(traces, lines[0], sizes, states, np.array(extra).reshape(-1, 2))
    drawn = [states - 0.3, states + 0.3, lines[0], *traces, labels - sizes / 2, labels + sizes / 2]
    points = np.concatenate(drawn)
    return Arrangement(
        place, curves, [(float(x), float(y)) for x, y in labels], points.min(0) - 0.1, points.max(0) + 0.1, clashes
    )


def _rank(place: dict[int, Point], edge: tuple[int, int]) -> tuple[int, float]:
    """Arcs to the right have one way and come first, then those to the left, the short ones first, then loops."""
    (x, y), (u, v) = place[edge[0]], place[edge[1]]
    return (2 if edge[0] == edge[1] else int(u <= x)), abs(u - x) + abs(v - y)


def _ways(start: Floats, end: Floats, bends: list[Point]) -> list[Floats]:
    """Curves that an arc may take, the preferred one first."""
    if (start == end).all():
        loop = np.array([[-0.14, 0.8], [-0.9, 3.1], [0.9, 3.1], [0.14, 0.8]]) * [1, RADIUS]
        return [start + loop, start + loop * [1, -1]]
    if end[0] > start[0]:
        return [_smooth(_trimmed([start, *map(np.array, bends), end]))]
    length = float(np.hypot(*(end - start)))
    normal = np.array([start[1] - end[1], end[0] - start[0]]) / length  # below an arc that leads to the left
    ways = []
    for height in (1.0, 1.6, 2.4, 3.4):
        for side in (1, -1):
            lift = side * normal * (0.3 + 0.2 * length) * height
            ways.append(_trimmed([start, start + (end - start) * 0.25 + lift, start + (end - start) * 0.75 + lift, end]))
    return ways


def _way_cost(way: Floats, states: Floats, lines: list[Floats]) -> float:
    """What a curve crosses: states, and other arcs along their way."""
    trace = _trace(way)[4:-4]
    near = np.hypot(*(trace[:, None] - states[None]).transpose(2, 0, 1)) < RADIUS + 0.1
    others = np.concatenate(lines)
    along = np.hypot(*(trace[:, None] - others[None]).transpose(2, 0, 1)) < 0.1
    return 5.0 * near.any(1).sum() + along.any(1).sum() + 0.5 * float(np.hypot(*np.diff(trace, axis=0).T).sum())


def _trace(curve: Floats) -> Floats:
    """Points along a curve."""
    t = np.linspace(0, 1, 33)[:, None]
    parts = []
    for i in range(0, len(curve) - 1, 3):
        a, b, c, d = curve[i : i + 4]
        parts.append((1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d)
    return np.concatenate(parts)


def _trimmed(points: list[Floats]) -> Floats:
    """The points with the first and last moved to the border of their state."""
    out = np.array(points, float)
    for end, inner in ((0, 1), (-1, -2)):
        way = out[inner] - out[end]
        out[end] += way / max(float(np.hypot(*way)), 1e-9) * (RADIUS + 0.04)
    return out


def _smooth(points: Floats) -> Floats:
    """A curve through points from left to right, level at each inner one."""
    slopes = np.zeros_like(points)
    slopes[1:-1] = (points[2:] - points[:-2]) / 6
    slopes[0], slopes[-1] = (points[1] - points[0]) / 3, (points[-1] - points[-2]) / 3
    corners = [points[0]]
    for i in range(len(points) - 1):
        corners += [points[i] + slopes[i], points[i + 1] - slopes[i + 1], points[i + 1]]
    return np.array(corners)


def _placed(traces: list[Floats], arrow: Floats, sizes: Floats, states: Floats, marks: Floats) -> tuple[Floats, int]:
    """Centres of the labels, and how many of them still collide."""
    if not traces:
        return np.zeros((0, 2)), 0
    choices, fixed = [], []
    for i, trace in enumerate(traces):
        centres, dislike = _places(trace, sizes[i])
        other = np.concatenate([arrow, *(line for j, line in enumerate(traces) if j != i)])
        choices.append(centres)
        fixed.append(dislike + _cost(centres, sizes[i], states, marks, other))
    at = [int(np.argmin(cost)) for cost in fixed]
    centres = np.array([choices[i][k] for i, k in enumerate(at)])
    for _ in range(12):
        moved = False
        for i in sorted(range(len(traces)), key=lambda i: -sizes[i].prod()):
            cost = fixed[i] + _HIT * _overlaps(choices[i], sizes[i], np.delete(centres, i, 0), np.delete(sizes, i, 0)).sum(1)
            k = int(np.argmin(cost))
            if cost[k] < cost[at[i]] - 1e-9:
                at[i], centres[i], moved = k, choices[i][k], True
        if not moved:
            break
    crossed = sum(fixed[i][k] >= _CROSSED for i, k in enumerate(at))
    pairs = np.triu(_overlaps(centres, sizes, centres, sizes), 1).any(1).sum()
    return centres, int(crossed + pairs)


def _places(trace: Floats, size: Floats) -> tuple[Floats, Floats]:
    """Places for a label on its arc and on both sides of it, and how much each is disliked."""
    steps = np.hypot(*np.diff(trace, axis=0).T)
    way = np.concatenate([[0], np.cumsum(steps)]) / steps.sum()
    at = np.array([0.5, 0.45, 0.55, 0.4, 0.6, 0.35, 0.65, 0.3, 0.7, 0.25, 0.75, 0.2, 0.8])
    middle = np.stack([np.interp(at, way, trace[:, k]) for k in (0, 1)], 1)
    ahead = np.stack([np.interp(np.minimum(at + 0.02, 1), way, trace[:, k]) for k in (0, 1)], 1) - middle
    normal = np.stack([-ahead[:, 1], ahead[:, 0]], 1) / np.maximum(np.hypot(*ahead.T), 1e-9)[:, None]
    beside = normal * (np.abs(normal) @ (size / 2) + 0.03)[:, None]
    dislike = 3 * np.abs(at - 0.5)
    return np.concatenate([middle, middle + beside, middle - beside]), np.concatenate([dislike, dislike + 0.7, dislike + 0.8])


def _cost(centres: Floats, size: Floats, states: Floats, marks: Floats, other: Floats) -> Floats:
    """What lies under a label at each of some places."""
    half = size / 2 + _ROOM / 2
    outside = np.maximum(np.abs(centres[:, None] - states[None]) - half, 0)
    hits = (np.hypot(*outside.transpose(2, 0, 1)) < RADIUS + 0.06).sum(1).astype(float)
    if len(marks):
        hits += (np.abs(centres[:, None] - marks[None]) < half + 0.1).all(2).sum(1)
    crossed = (np.abs(centres[:, None] - other[None]) < half).all(2).sum(1)
    return _HIT * hits + np.where(crossed > 0, _CROSSED + 0.3 * crossed, 0.0)


def _overlaps(centres: Floats, size: Floats, others: Floats, other_sizes: Floats) -> NDArray[np.bool_]:
    """Which boxes overlap which others."""
    size = np.broadcast_to(size, centres.shape)
    reach = (size[:, None] + other_sizes[None]) / 2 + _ROOM
    return np.asarray((np.abs(centres[:, None] - others[None]) < reach).all(2), bool)
