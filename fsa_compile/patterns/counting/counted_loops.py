"""Pattern tree to frames: every large repetition becomes one position of the frame around it. Knows nothing of bytes.

A frame is the position automaton (see `positions`) of one piece of the pattern: of the whole pattern, or of the item of a large
repetition `x{m,n}`, which is then counted instead of written out. In the frame around it a counted repetition is a single
position, the *call site*: what may come after all its iterations is the follow set of that position.

Without an upper bound, `x{m,}` is `x{m}x*`, except where it is the whole pattern: then one frame does both.

An iteration is never empty: `x{m,n}` with an item that matches the empty text is `y{0,n}` with y the item's other texts.
"""

from __future__ import annotations

import dataclasses
from typing import cast

from fsa_compile.automata.pushdown import UNCOUNTED
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import END, ConditionFound, Fragment, Positions
from fsa_compile.patterns.regex_tree import Alternate, Atomic, Chars, Concat, Node, Repeat, Text
from fsa_compile.unicode.code_points import NONE

UNLIMITED = 2**28 - 1
"""Upper bound of a loop without one: no text is that long."""
LARGE = 64
"""Repetitions with more positions than this, written out, are counted."""

_FEW_COPIES = 8
"""Repetitions of fewer iterations are written out whatever their item: most of a frame would be calls and returns."""
_CALL_WEIGHT = 16
"""A call site is reckoned to cost as much as this many positions."""
_MAX_WRITTEN = 4096
"""Most positions of a pattern that still counts something: beyond, the rest dominates and nothing is gained."""


@dataclasses.dataclass(slots=True, eq=False)
class Frame:
    """One piece of the pattern.

    Attributes:
      positions: its position automaton; END says that the piece, or one iteration of it, may stop.
      low, high: bounds of the number of iterations, or UNCOUNTED twice in the frame of an uncounted pattern.
      repeat: the repetition whose item it is, None for the whole pattern.
      sites: (frame, position) of every call site.
    """

    positions: FramePositions
    low: int
    high: int
    repeat: Repeat | None
    sites: list[tuple[int, int]]


@dataclasses.dataclass(slots=True)
class _Call:
    """Stands for a counted repetition in the tree around it."""

    frame: int
    nullable: bool


class FramePositions(Positions):
    """Positions some of which are calls: `calls` maps the position to the called frame; its character set is empty."""

    def __init__(self, tree: Node, limits: CompileLimits, deadline: Deadline) -> None:
        self.calls: dict[int, int] = {}
        super().__init__(tree, limits, deadline)

    def _build(self, node: Node | _Call) -> Fragment | None:
        if not isinstance(node, _Call):
            return super()._build(node)
        p = len(self.sets)
        self.calls[p] = node.frame
        self.sets.append(NONE)
        self.follow.append(frozenset())
        return node.nullable, [p], [p]


def build_frames(
    tree: Node, large: int, written_out: frozenset[int], limits: CompileLimits, deadline: Deadline
) -> list[Frame] | None:
    """The frames of a pattern, callees before their callers, so that the last one is the frame the text starts in.

    Args:
      tree: without conditions on the surroundings.
      large: repetitions with more positions than this are counted.
      written_out: ids of the `Repeat` nodes that must not be counted.

    Returns:
      None when there is nothing to count, or when what is written out is too large for counting the rest to pay.

    Raises:
      ConditionFound: the tree holds an anchor or lookaround.
    """
    while isinstance(tree, Concat) and len(tree.items) == 1:
        tree = tree.items[0]
    builder = _Builder(tree, large, written_out, limits, deadline)
    root, size = builder.node(tree)
    if not builder.frames or size > _MAX_WRITTEN:
        return None
    if not isinstance(root, _Call):
        builder.add_frame(root, None, UNCOUNTED, UNCOUNTED)
    frames = builder.frames
    for number, frame in enumerate(frames):
        for p, callee in frame.positions.calls.items():
            frames[callee].sites.append((number, p))
    return frames


class _Builder:
    def __init__(self, tree: Node, large: int, written_out: frozenset[int], limits: CompileLimits, deadline: Deadline) -> None:
        self.frames: list[Frame] = []
        self._tree, self._large, self._written_out, self._limits, self._deadline = tree, large, written_out, limits, deadline

    def add_frame(self, item: Node | _Call, repeat: Repeat | None, low: int, high: int) -> FramePositions:
        positions = FramePositions(cast(Node, item), self._limits, self._deadline)
        self.frames.append(Frame(positions, low, high, repeat, []))
        return positions

    def node(self, node: Node) -> tuple[Node | _Call, int]:
        """The tree with calls in the place of large repetitions, and its size in positions."""
        if isinstance(node, Text):
            return node, len(node.text)
        if isinstance(node, Chars):
            return node, 1
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Atomic):  # the parser refuses those that matter
            return self.node(node.item)
        if isinstance(node, Concat):
            items, size = self._nodes(node.items)
            return Concat(items, node.start, node.end), size
        if isinstance(node, Alternate):
            branches, size = self._nodes(node.branches)
            return Alternate(branches, node.start, node.end), size
        raise ConditionFound

    def _nodes(self, nodes: list[Node]) -> tuple[list[Node], int]:
        size = 0
        out = []
        for node in nodes:
            counted, more = self.node(node)
            out.append(cast(Node, counted))
            size += more
        return out, size

    def _repeat(self, node: Repeat) -> tuple[Node | _Call, int]:
        if node.high == 0:
            return Concat([], node.start, node.end), 0
        item, size = self.node(node.item)
        copies = node.low if node.high is None else node.high
        if copies < _FEW_COPIES or copies * size <= self._large or id(node) in self._written_out:
            return self._again(item, node, node.low, node.high), size * max(copies, 1)
        whole = node.high is None and node is self._tree
        positions = self.add_frame(item, node, node.low, UNLIMITED if whole else copies)
        first = positions.first
        empty = END in first
        if len(first) == empty:  # no text, or the empty one only
            self.frames.pop()
            nothing: Node = Concat([], node.start, node.end) if empty or not node.low else Chars(NONE, node.start, node.end)
            return nothing, 0
        if node.high is None and empty:
            self.frames.pop()
            return self._again(item, node, 0, None), size
        low = self.frames[-1].low = 0 if empty else node.low
        call = _Call(len(self.frames) - 1, low == 0)
        if whole or node.high is not None:
            return call, _CALL_WEIGHT
        more = self._again(item, node, 0, None)
        return Concat([cast(Node, call), more], node.start, node.end), _CALL_WEIGHT + size

    @staticmethod
    def _again(item: Node | _Call, node: Repeat, low: int, high: int | None) -> Repeat:
        return Repeat(cast(Node, item), low, high, node.start, node.end, node.lazy)
