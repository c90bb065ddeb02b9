"""Syntax tree to position automaton, for patterns with conditions: lookahead, lookbehind, anchors, word boundaries.

As in `glushkov`, but an edge carries a guard: the conditions that must hold at the place in the text between its two characters.
A condition of no width between two characters belongs to the edge that joins them, so guards compose by union. The bodies of
lookaheads and lookbehinds are position automata of their own in the same numbering. What the guards mean is the business of
`alternating`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias, TypeVar

from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline, check_time
from fsa_compile.patterns.glushkov import count_positions
from fsa_compile.patterns.regex_tree import Alternate, Anchor, Atomic, Chars, Concat, Look, Node, Repeat, Text
from fsa_compile.unicode.code_points import ANY, NONE, CodePointSet, single

T = TypeVar("T")

Guard: TypeAlias = frozenset[int]
"""Conditions that must all hold: 2 * look for "it matches here", 2 * look + 1 for "it does not"."""

ALWAYS: Guard = frozenset()
_BOUNDARY_IN_EMPTY_TEXT = re.fullmatch(r"\B", "") is not None  # Python 3.14 changed its mind
_BYTES_PER_EDGE = 1024
"""Memory of a guarded edge, its guard included."""


class Fragment(NamedTuple):
    """A part of the pattern.

    Attributes:
      empty: guards under which it matches the empty text (any one suffices).
      first: (guard, position) pairs that may begin it.
      last: (position, guard) pairs that may end it.
    """

    empty: list[Guard]
    first: list[tuple[Guard, int]]
    last: list[tuple[int, Guard]]


class Body(NamedTuple):
    """The automaton of a lookahead or lookbehind; `start` is a position without letters."""

    start: int
    behind: bool


_EMPTY_TEXT = Fragment([ALWAYS], [], [])


class GuardedPositions:
    """The position automata of a tree and of its lookarounds.

    Attributes:
      sets: character set per position; start positions have none.
      follow: per position (guard, next position) pairs.
      ends: per position the guards under which its automaton may end after it.
      open_ended: per position whether it belongs to a lookahead, which leaves the rest of the text open.
      looks: the lookarounds; one inside another comes before it.
      start: start position of the whole pattern.
    """

    def __init__(self, tree: Node, limits: CompileLimits, deadline: Deadline) -> None:
        self.sets: list[CodePointSet] = []
        self.follow: list[list[tuple[Guard, int]]] = []
        self.ends: list[list[Guard]] = []
        self.open_ended: list[bool] = []
        self.looks: list[Body] = []
        self._known: dict[object, int] = {}
        self._limits, self._deadline = limits, deadline
        self._edges = 0
        self._open = False
        if count_positions(tree) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Expanding the repetitions of the pattern")
        self.start = self._automaton(tree, open_ended=False)

    def _automaton(self, tree: Node, *, open_ended: bool) -> int:
        """Adds the automaton of a tree; returns its start position."""
        outer, self._open = self._open, open_ended
        start = self._position(NONE)
        fragment = self._build(tree)
        self.follow[start], self.ends[start] = fragment.first, fragment.empty
        for p, guard in fragment.last:
            self.ends[p].append(guard)
        self._open = outer
        return start

    def _position(self, members: CodePointSet) -> int:
        self.sets.append(members)
        self.follow.append([])
        self.ends.append([])
        self.open_ended.append(self._open)
        return len(self.sets) - 1

    def _build(self, node: Node) -> Fragment:
        if isinstance(node, Text):
            return self._concat(self._chars(single(ord(c))) for c in node.text)
        if isinstance(node, Chars):
            return self._chars(node.members)
        if isinstance(node, Concat):
            return self._concat(map(self._build, node.items))
        if isinstance(node, Alternate):
            parts = [self._build(branch) for branch in node.branches]
            empty = weakest(guard for part in parts for guard in part.empty)
            return Fragment(empty, [x for part in parts for x in part.first], [x for part in parts for x in part.last])
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Atomic):  # the parser lets it pass only where it changes nothing
            return self._build(node.item)
        if isinstance(node, Look):
            look = self._look(id(node), node.item, behind=node.behind)
            return Fragment([frozenset((2 * look + node.negative,))], [], [])
        return Fragment(self._anchor(node), [], [])

    def _chars(self, members: CodePointSet) -> Fragment:
        if members == NONE:
            return Fragment([], [], [])
        p = self._position(members)
        return Fragment([], [(ALWAYS, p)], [(p, ALWAYS)])

    def _link(self, last: list[tuple[int, Guard]], first: list[tuple[Guard, int]]) -> None:
        """Lets `first` follow `last`."""
        self._edges += len(last) * len(first)
        if self._edges > self._limits.max_bytes // _BYTES_PER_EDGE:
            raise LimitError("max_bytes", self._limits.max_bytes, "Linking the parts of a pattern with conditions")
        for p, before in last:
            check_time("Linking the parts of a pattern with conditions")
            follow = self.follow[p]
            have = set(follow)
            for after, q in first:
                edge = before | after, q
                if edge not in have:
                    follow.append(edge)

    def _concat(self, parts: Iterable[Fragment]) -> Fragment:
        empty, first, last = _EMPTY_TEXT
        for part in parts:
            check_time("Linking the parts of a pattern with conditions")
            self._link(last, part.first)
            first = first + [(before | after, q) for before in empty for after, q in part.first]
            last = part.last + [(p, before | after) for p, before in last for after in part.empty]
            empty = weakest(before | after for before in empty for after in part.empty)
        return Fragment(empty, first, last)

    def _repeat(self, node: Repeat) -> Fragment:
        """`low` copies that may each be empty where their guards allow it, then copies that are not empty.

        An empty round beyond the smallest count never helps, so only the first `low` copies can be empty.
        """
        low, high = node.low, node.high
        if high == 0:
            return _EMPTY_TEXT
        part = self._build(node.item)
        if not part.first:
            return part if low else _EMPTY_TEXT
        if ALWAYS in part.empty:
            low = 0
        first_copy: Fragment | None = part
        out = _EMPTY_TEXT
        for k in range(low):
            self._deadline.check("Expanding a repetition")
            copy = first_copy or self._build(node.item)
            first_copy = None
            if high is None and k == low - 1:
                self._link(copy.last, copy.first)
            out = self._concat((out, copy))
        if high is None:
            if low:
                return out
            self._link(part.last, part.first)
            return Fragment([ALWAYS], part.first, part.last)
        tail: list[Fragment] = []
        for _ in range(high - low):
            self._deadline.check("Expanding a repetition")
            tail.append(first_copy or self._build(node.item))
            first_copy = None
            if len(tail) > 1:
                self._link(tail[-2].last, tail[-1].first)
        if not tail:
            return out
        return self._concat((out, Fragment([ALWAYS], tail[0].first, [x for copy in tail for x in copy.last])))

    def _look(self, key: object, tree: Node, *, behind: bool) -> int:
        """The number of a lookaround; those with the same key are one."""
        found = self._known.get(key)
        if found is None:
            start = self._automaton(tree, open_ended=not behind)
            found = self._known[key] = len(self.looks)
            self.looks.append(Body(start, behind))
        return found

    def _beside(self, members: CodePointSet, *, behind: bool) -> int:
        """The lookaround "the character before (or after) is one of these"."""
        return 2 * self._look((members, behind), Chars(members, 0, 0), behind=behind)

    def _anchor(self, node: Anchor) -> list[Guard]:
        """An anchor or word boundary as conditions of width one."""
        kind = node.kind
        if kind in ("text start", "line start"):
            text_start = frozenset((self._beside(ANY, behind=True) + 1,))
            return [text_start] if kind == "text start" else [text_start, frozenset((self._beside(single(10), behind=True),))]
        text_end = frozenset((self._beside(ANY, behind=False) + 1,))
        if kind == "text end":
            return [text_end]
        if kind == "line end":
            return [text_end, frozenset((self._beside(single(10), behind=False),))]
        if kind == "end or final newline":
            newline = Concat([Text("\n", 0, 0), Anchor("text end", NONE, 0, 0)], 0, 0)
            return [text_end, frozenset((2 * self._look(kind, newline, behind=False),))]
        before, after = self._beside(node.word, behind=True), self._beside(node.word, behind=False)
        if kind == "word boundary":
            return [frozenset((before, after + 1)), frozenset((before + 1, after))]
        outside = frozenset((before + 1, after + 1))
        if _BOUNDARY_IN_EMPTY_TEXT:
            return [frozenset((before, after)), outside]
        some = self._beside(ANY, behind=True), self._beside(ANY, behind=False)
        return [frozenset((before, after)), *(outside | {not_empty} for not_empty in some)]


def weakest(sets: Iterable[frozenset[T]]) -> list[frozenset[T]]:
    """The sets of conditions without those that ask for more than another one."""
    out: list[frozenset[T]] = []
    for one in sorted(set(sets), key=len):
        if not any(other <= one for other in out):
            out.append(one)
    return out


def strip_edges(node: Node, *, at_start: bool = True, at_end: bool = True) -> Node:
    """The tree without anchors that hold anyway: `^` and `\\A` at the very start of a full match, `$` and `\\Z` at its end."""
    if isinstance(node, Anchor):
        starts = node.kind in ("text start", "line start") and at_start
        ends = node.kind in ("text end", "line end", "end or final newline") and at_end
        return Concat([], node.start, node.end) if starts or ends else node
    if isinstance(node, Alternate):
        branches = [strip_edges(branch, at_start=at_start, at_end=at_end) for branch in node.branches]
        return Alternate(branches, node.start, node.end)
    if isinstance(node, Concat):
        items = list(node.items)
        lo, hi = 0, len(items)
        while at_start and lo < hi:
            items[lo] = strip_edges(items[lo], at_start=True, at_end=at_end and lo == hi - 1)
            if not _is_empty(items[lo]):
                break
            lo += 1
        while at_end and lo < hi:
            items[hi - 1] = strip_edges(items[hi - 1], at_start=at_start and lo == hi - 1, at_end=True)
            if not _is_empty(items[hi - 1]):
                break
            hi -= 1
        return Concat(items[lo:hi], node.start, node.end)
    return node


def _is_empty(node: Node) -> bool:
    return isinstance(node, Concat) and not node.items
