"""Syntax tree to position automaton (Glushkov), for patterns without conditions on their surroundings.

Letters are code points. A position is one occurrence of a character set in the expanded pattern; its follow set holds the
positions that may come next and `END` where the text may stop. Counted repetitions are chains: copy i is followed by copy i + 1
only, so `x{0,n}` costs n follow entries and not n squared.

Source: V. Glushkov, "The abstract theory of automata", 1961.
"""

from __future__ import annotations

from typing import TypeAlias

from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline, check_time
from fsa_compile.patterns.regex_tree import Alternate, Atomic, Chars, Concat, Node, Repeat, Text, children
from fsa_compile.unicode.code_points import NONE, CodePointSet, single

END = -1
"""The member of a follow set that says the text may end here."""

Fragment: TypeAlias = "tuple[bool, list[int], list[int]]"
"""(matches the empty text, first positions, last positions)."""

_EMPTY: frozenset[int] = frozenset()
_BYTES_PER_LINK = 64
"""Memory of one member of a follow set, in the time it takes to make it twice."""


class ConditionFound(Exception):  # noqa: N818  (a signal between modules, never shown)
    """The tree holds an anchor or lookaround: use `conditions` instead."""


class Positions:
    """The position automaton of one tree.

    Attributes:
      sets: character set of each position.
      follow: positions that may follow each position.
      first: the positions that may begin the text; empty when no text matches.
      acyclic: whether no repetition is unbounded.
      atomics: every atomic group with its last positions and what follows each of them inside the group.
    """

    def __init__(self, tree: Node, limits: CompileLimits, deadline: Deadline) -> None:
        self.sets: list[CodePointSet] = []
        self.follow: list[frozenset[int]] = []
        self._limits, self._deadline = limits, deadline
        self._links = 0
        self._max_links = limits.max_bytes // _BYTES_PER_LINK
        self.acyclic = True
        self.atomics: list[tuple[Atomic, list[int], list[frozenset[int]]]] = []
        if count_positions(tree) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Expanding the repetitions of the pattern")
        fragment = self._build(tree)
        if fragment is None:
            self.first = _EMPTY
            return
        nullable, first, last = fragment
        self._link(last, frozenset((END,)))
        self.first = frozenset((*first, END) if nullable else first)

    def _link(self, last: list[int], first: frozenset[int]) -> None:
        """Lets every position of `first` follow every position of `last`."""
        follow = self.follow
        joined: dict[int, frozenset[int]] = {}  # many positions share one follow set
        for p in last:
            have = follow[p]
            if have:
                both = joined.get(id(have))
                if both is None:
                    both = joined[id(have)] = have | first
                    self._links += len(both)
                follow[p] = both
            else:
                follow[p] = first
        if self._links > self._max_links:
            raise LimitError("max_bytes", self._limits.max_bytes, "Linking the optional parts of the pattern")

    def _build(self, node: Node) -> Fragment | None:
        """Adds the node's positions; None when it matches nothing at all."""
        if isinstance(node, Text):
            return self._text(node.text)
        if isinstance(node, Chars):
            if node.members == NONE:
                return None
            p = len(self.sets)
            self.sets.append(node.members)
            self.follow.append(_EMPTY)
            return False, [p], [p]
        if isinstance(node, Concat):
            return self._concat(node)
        if isinstance(node, Alternate):
            return self._alternate(node)
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Atomic):  # allowed only where it changes nothing
            fragment = self._build(node.item)
            if fragment is not None:
                self.atomics.append((node, fragment[2], [self.follow[p] for p in fragment[2]]))
            return fragment
        raise ConditionFound

    def _text(self, text: str) -> Fragment:
        p, n = len(self.sets), len(text)
        self.sets += [(1 << c, ()) if c < 128 else (0, ((c, c),)) for c in map(ord, text)]
        self.follow += [frozenset((q,)) for q in range(p + 1, p + n)]
        self.follow.append(_EMPTY)
        return False, [p], [p + n - 1]

    def _concat(self, node: Concat) -> Fragment | None:
        nullable = True
        first: list[int] = []
        last: list[int] = []
        for item in node.items:
            check_time("Reading the parts of a pattern")
            fragment = self._build(item)
            if fragment is None:
                return None
            item_nullable, item_first, item_last = fragment
            if last:
                self._link(last, frozenset(item_first))
            if nullable:
                first = first + item_first
                nullable = item_nullable
            last = last + item_last if item_nullable else item_last
        return nullable, first, last

    def _alternate(self, node: Alternate) -> Fragment | None:
        fragments = [f for f in map(self._build, node.branches) if f is not None]
        if not fragments:
            return None
        first: list[int] = []
        last: list[int] = []
        nullable = False
        for branch_nullable, branch_first, branch_last in fragments:
            nullable |= branch_nullable
            first += branch_first
            last += branch_last
        return nullable, first, last

    def _repeat(self, node: Repeat) -> Fragment | None:
        low, high = node.low, node.high
        if high == 0:
            return True, [], []
        copies = high if high is not None else max(low, 1)
        self.acyclic &= high is not None
        item = node.item
        if copies > 1:
            members = one_character(item)
            if members is not None and members != NONE:
                return self._run(members, low, copies, high is None)
        fragment = self._build(item)
        if fragment is None:
            return (True, [], []) if low == 0 else None
        nullable, first, last = fragment
        if copies > 1 and not first:
            return fragment
        if nullable:
            low = 0
        lasts = [last]
        for _ in range(1, copies):
            self._deadline.check("Expanding a repetition")
            _, again_first, again_last = self._build(item) or (True, [], [])
            self._link(lasts[-1], frozenset(again_first))
            lasts.append(again_last)
            if high is None:
                first_of_last = again_first
        if high is None:
            self._link(lasts[-1], frozenset(first if copies == 1 else first_of_last))
        return low == 0, first, [p for some in lasts[max(low, 1) - 1 :] for p in some]

    def _run(self, members: CodePointSet, low: int, copies: int, unbounded: bool) -> Fragment:
        """`copies` times one character set."""
        p = len(self.sets)
        end = p + copies
        self.sets += [members] * copies
        self.follow += [frozenset((q,)) for q in range(p + 1, end)]
        self.follow.append(frozenset((end - 1,)) if unbounded else _EMPTY)
        return low == 0, [p], list(range(p + max(low, 1) - 1, end))


def one_character(node: Node) -> CodePointSet | None:
    """The characters of a node that matches exactly one of them, or None."""
    if isinstance(node, Chars):
        return node.members
    return single(ord(node.text)) if isinstance(node, Text) and len(node.text) == 1 else None


def count_positions(node: Node) -> int:
    """Number of positions of the tree with its repetitions written out."""
    if isinstance(node, Text):
        return len(node.text)
    if isinstance(node, Chars):
        return 1
    copies = 1
    if isinstance(node, Repeat):
        copies = node.high if node.high is not None else max(node.low, 1)
    return sum(map(count_positions, children(node))) * copies
