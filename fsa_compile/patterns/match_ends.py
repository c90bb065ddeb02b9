"""What a pattern matches within a longer text: conditions in it may look beyond the begin and the end of the match.

Marks are put where the match begins and where it ends, and conditions read over them. What the minimal automaton of such texts
reads before the first mark and behind the second is what the conditions want of the text around the match.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from fsa_compile.arrays.bit_sets import union
from fsa_compile.arrays.graphs import reach
from fsa_compile.automata.letter_dfa import LetterDfa, trim
from fsa_compile.automata.minimize import minimize
from fsa_compile.errors import PatternError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.patterns.regex_tree import Alternate, Anchor, Atomic, Chars, Concat, Look, Node, Repeat, Text, children, widths
from fsa_compile.patterns.trailing_guards import END_OF_TEXT
from fsa_compile.unicode.code_points import ANY, ASCII, CodePointSet, Ranges, complement, intersection, normal, single
from fsa_compile.unicode.code_points import union as joined

_MARKS = [code_point + last for code_point in range(0x100000, 0xE000, -0x10000) for last in (0xFFFF, 0xFFFD)]
"""Characters that patterns hardly ever tell from the one before each."""


class MatchEnd(NamedTuple):
    """Matches, and what must follow them.

    Attributes:
      texts: the matches.
      forbidden: the characters that may not follow, `END_OF_TEXT` among them; None where more than a character decides.
      rest: all that may follow, up to the end of the whole text.
    """

    texts: LetterDfa
    forbidden: CodePointSet | None
    rest: LetterDfa


class Matches(NamedTuple):
    """What a pattern matches.

    Attributes:
      texts: the matches; None if there is none.
      ends: each match in one of several, by what must follow.
      before: the texts behind which it matches so, and else nothing; None for all texts.
    """

    texts: LetterDfa | None
    ends: list[MatchEnd]
    before: LetterDfa | None


class BeginsDiffer(Exception):  # noqa: N818  (a signal between modules, never shown)
    """Behind some texts the pattern matches other texts than behind others."""


def matches_within(tree: Node, limits: CompileLimits, deadline: Deadline) -> Matches:
    """What a tree matches within longer texts.

    Raises:
      BeginsDiffer: see there.
    """
    mark, back = _Mark(tree), may_see_before(tree)
    parts: list[Node] = [mark.any_text, mark.node] if back else []
    parts += [mark.read_over(tree), mark.node, mark.any_text]
    marked = build_automaton(Concat(parts, 0, 0), limits, deadline)
    if marked is None:
        return Matches(None, [], None)
    letter = mark.taken_out(marked)
    every = (1 << 128 + len(marked.atoms)) - 1 & ~letter
    behind = [next((t for letters, t in arcs if letters & letter), -1) for arcs in marked.arcs]
    plain = [[(letters, t) for letters, t in arcs if not letters & letter] for arcs in marked.arcs]

    def part(start: int, final: list[bool]) -> LetterDfa:
        """The texts without a mark that lead from a state to others."""
        number = reach([start], lambda q: [t for _, t in plain[q]])
        arcs = [[(letters, number[t]) for letters, t in plain[q]] for q in number]
        found = trim(LetterDfa(arcs, [final[q] for q in number], marked.atoms))
        assert found is not None
        return minimize(found)

    marks, start, before = [r >= 0 for r in behind], 0, None
    if back:
        starts = {behind[q] for q in reach([0], lambda q: [t for _, t in plain[q]])} - {-1}
        if len(starts) > 1:
            raise BeginsDiffer
        (start,), before = starts, part(0, marks)
        before = None if before.final[0] and before.arcs[0] == [(every, 0)] else before
    inside = reach([start], lambda q: [t for _, t in plain[q]])
    ends = []
    for r in sorted({behind[q] for q in inside} - {-1}):
        rest = part(r, marked.final)
        ends.append(MatchEnd(part(start, [one == r for one in behind]), _forbidden(rest, every), rest))
    return Matches(part(start, marks), ends, before)


def rest_without(forbidden: CodePointSet, limits: CompileLimits, deadline: Deadline) -> LetterDfa:
    """All that may follow where some characters, or with `END_OF_TEXT` the end of the text, may not; perhaps nothing."""
    first = Chars(intersection(complement(forbidden), ANY), 0, 0)
    some = Concat([first, Repeat(Chars(ANY, 0, 0), 0, None, 0, 0)], 0, 0)
    may_end = not forbidden[1] or forbidden[1][-1][1] != END_OF_TEXT
    found = build_automaton(Repeat(some, 0, 1, 0, 0) if may_end else some, limits, deadline)
    return found or LetterDfa([[]], [False], [])


def _forbidden(rest: LetterDfa, every: int) -> CodePointSet | None:
    """The characters that may not follow; None where more than a character decides. `every`: all letters."""
    free = {q for q, arcs in enumerate(rest.arcs) if rest.final[q] and arcs == [(every, q)]}
    if not all(t in free for _, t in rest.arcs[0]):
        return None
    read = union(letters for letters, _ in rest.arcs[0])
    wide = normal(pair for j, ranges in enumerate(rest.atoms) if read >> 128 + j & 1 for pair in ranges)
    out = complement((read & ASCII, wide))
    return out if rest.final[0] else joined(out, single(END_OF_TEXT))


def may_see_before(node: Node, least: int = 0) -> bool:
    """Whether a condition may reach back over a node's begin, before which `least` characters belong to the match."""
    match node:
        case Look(item=item, behind=True):
            return widths(item)[1] > least or may_see_before(item, 0)
        case Anchor(kind=kind):
            return least == 0 and kind not in ("text end", "line end", "end or final newline")
        case Concat(items=items):
            for item in items:
                if may_see_before(item, least):
                    return True
                least += 0 if isinstance(item, Look | Anchor) else widths(item)[0]
            return False
    return any(may_see_before(child, least) for child in children(node))


class _Mark:
    """A character that marks a place in the text: one that a tree does not tell from the one before it, which stands for both.

    Attributes:
      node: reads it; any_text: any text without it.
    """

    def __init__(self, tree: Node) -> None:
        sets = _sets(tree)
        try:
            self._code_point = next(c for c in _MARKS if all(_holds(one, c) == _holds(one, c - 1) for one in sets))
        except StopIteration:
            raise PatternError("the pattern tells too many characters apart", pattern="", start=0, fix="Use fewer.") from None
        self._set = single(self._code_point)
        self._others = intersection(ANY, complement(self._set))
        self.node = Chars(self._set, 0, 0)
        self.any_text = Repeat(Chars(self._others, 0, 0), 0, None, 0, 0)

    def taken_out(self, marked: LetterDfa) -> int:
        """Makes the mark what the character before it is, in place, but for its letter, which is returned."""
        letter = 1 << 128 + marked.atoms.index(self._set[1])
        marked.atoms = [self._with_mark(ranges) for ranges in marked.atoms]
        return letter

    def _with_mark(self, ranges: Ranges) -> Ranges:
        if ranges == self._set[1]:
            return ()
        if any(high == self._code_point - 1 for _, high in ranges):
            return normal((*ranges, (self._code_point, self._code_point)))
        return ranges

    def read_over(self, node: Node, *, inside: bool = False) -> Node:
        """A tree whose conditions read over the mark; `inside`: of one, so that all of it does. Anchors become conditions."""
        match node:
            case Chars(members=members) if not inside:
                return Chars(intersection(members, self._others), 0, 0)
            case Chars() | Text() if inside:
                sets = [node.members] if isinstance(node, Chars) else [single(ord(c)) for c in node.text]
                letters = [Chars(intersection(members, self._others), 0, 0) for members in sets]
                mark = Repeat(self.node, 0, 1, 0, 0)
                return Concat([mark, *(part for letter in letters for part in (letter, mark))], 0, 0)
            case Concat(items=items):
                return Concat([self.read_over(item, inside=inside) for item in items], 0, 0)
            case Alternate(branches=branches):
                return Alternate([self.read_over(branch, inside=inside) for branch in branches], 0, 0)
            case Repeat(item=item):
                return dataclasses.replace(node, item=self.read_over(item, inside=inside))
            case Atomic(item=item):
                return Atomic(self.read_over(item, inside=inside), 0, 0)
            case Look(item=item):
                return dataclasses.replace(node, item=self.read_over(item, inside=True))
            case Anchor():
                return self.read_over(_conditions(node), inside=inside)
        return node


def _sets(tree: Node) -> list[CodePointSet]:
    """All sets of characters in a tree."""
    out, todo = list[CodePointSet](), [tree]
    while todo:
        node = todo.pop()
        todo += children(node)
        match node:
            case Chars(members=members):
                out.append(members)
            case Text(text=text):
                out += [single(ord(c)) for c in text]
            case Anchor(word=word):
                out.append(word)
    return out


def _holds(members: CodePointSet, code_point: int) -> bool:
    return any(low <= code_point <= high for low, high in members[1])


def _conditions(anchor: Anchor) -> Node:
    """An anchor as conditions on characters."""

    def look(item: Node, *, behind: bool, negative: bool) -> Look:
        return Look(item, behind, negative, 0, 0)

    match anchor.kind:
        case "text start":
            return look(Chars(ANY, 0, 0), behind=True, negative=True)
        case "line start":
            return look(Chars(complement(single(10)), 0, 0), behind=True, negative=True)
        case "text end":
            return look(Chars(ANY, 0, 0), behind=False, negative=True)
        case "line end":
            return look(Chars(complement(single(10)), 0, 0), behind=False, negative=True)
        case "end or final newline":
            more = Concat([Text("\n", 0, 0), Chars(ANY, 0, 0)], 0, 0)
            return look(Alternate([Chars(complement(single(10)), 0, 0), more], 0, 0), behind=False, negative=True)
    word = Chars(anchor.word, 0, 0)
    flipped = anchor.kind == "word boundary"
    sides = [
        Concat([look(word, behind=True, negative=no), look(word, behind=False, negative=no != flipped)], 0, 0)
        for no in (False, True)
    ]
    return Alternate([*sides], 0, 0)
