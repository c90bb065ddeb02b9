"""Which parts of recursive rules become calls: bracketed groups around the recursion, each seen from its first byte.

A *span* is a stretch of a sequence from a part that is never empty (the opener) over recursion to the next such part (the
closer). Not every span has to be called: once the parentheses of expressions are calls, what stands between two keywords may not
recurse any more. So the openers are taken one by one, first those whose first symbol tells them, and of these the one that
leaves the fewest spans.

The language is the same whatever is called; how much of it one stack can decide is not. `Outlining` names the ways to choose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from fsa_compile.grammar.lexing.terminals import Lexicon
from fsa_compile.grammar.rule_expressions import (  # fmt: skip
    EMPTY,
    Node,
    choice,
    recurs,
    recursive_components,
    references,
    sequence,
)
from fsa_compile.limits import Deadline

_MAX_TRIED = 64
"""Openers to be compared; more are taken together."""
_DOING = "Choosing which parts of the grammar's rules are called"
_MIRRORED = {"(": ")", "[": "]", "{": "}"}


@dataclasses.dataclass(frozen=True, slots=True)
class Outlining:
    """A way to choose the calls.

    Attributes:
      sparing: only spans that are needed, else all.
      behind: a call begins behind its opener even where the opener's first symbol tells it.
      alike: groups without recursion are called, too, if they begin and end like called ones.
    """

    sparing: bool = True
    behind: bool = False
    alike: bool = False


WAYS = (
    Outlining(), Outlining(alike=True), Outlining(behind=True), Outlining(sparing=False), Outlining(sparing=False, behind=True),
)  # fmt: skip
"""Ways to choose, the usual one first."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Span:
    """Places of the opener and the closer in a sequence, and the opener."""

    low: int
    high: int
    opener: Node


class Outliner:
    """Makes calls of spans.

    Args:
      bodies: rules, changed in place.
      lexicon: closed terminals.
      outlining: the way to choose.
      can_be_empty: whether a node has the empty text.
      first_terminals: the terminals that a node may begin with.
      group: makes a rule of a node that stands in a rule, and gives the number of its frame.
    """

    def __init__(
        self, bodies: dict[str, Node], lexicon: Lexicon, outlining: Outlining, can_be_empty: Callable[[Node], bool],
        first_terminals: Callable[[Node], set[int]], group: Callable[[Node, str], int], deadline: Deadline,
    ) -> None:  # fmt: skip
        self.bodies, self.lexicon, self.outlining, self.deadline = bodies, lexicon, outlining, deadline
        self._can_be_empty, self._first_terminals, self._group = can_be_empty, first_terminals, group
        self._pairs: dict[Node, set[Node]] = {}
        """Closers of what is called, by openers that belong to the call."""

    def outline(self) -> None:
        """Takes spans until no recursion stands inside one."""
        rules = set(self.bodies)
        while True:
            self.deadline.check(_DOING)
            components = recursive_components(self._needs(self.bodies))
            found = [(c, openers) for c in components if (openers := self._openers(self.bodies, c))]
            if not found:
                break
            for component, openers in found:
                chosen = self._chosen(component, openers) if self.outlining.sparing else openers
                for name in sorted(component):
                    self.bodies[name] = self._rewritten(self.bodies[name], component, chosen, name)
        if self.outlining.alike and self._pairs:
            for name in list(self.bodies):
                self.bodies[name] = self._alike(self.bodies[name], name, called=name not in rules)

    def outlined_parts(self, parts: list[Node], component: set[str], name: str) -> list[Node]:
        """A branch of a rule with its spans as calls."""
        return self._with_calls(parts, self._spans(parts, component), name)

    # ---------------------------------------------------------------- choosing

    @staticmethod
    def _needs(bodies: dict[str, Node]) -> dict[str, list[str]]:
        return {name: list(references(body)) for name, body in bodies.items()}

    def _openers(self, bodies: dict[str, Node], component: set[str]) -> dict[Node, int]:
        """Openers of the spans in the rules of a component, and how many spans each opens."""
        out: dict[Node, int] = {}
        for name in sorted(component):
            for parts in _sequences(bodies[name], component):
                for span in self._spans(parts, component):
                    out[span.opener] = out.get(span.opener, 0) + 1
        return out

    def _chosen(self, component: set[str], openers: dict[Node, int]) -> dict[Node, int]:
        """The openers to take now: one of those whose first symbol tells them, while there are any."""
        candidates = [o for o in openers if self._is_telling(o)] or list(openers)
        if 1 < len(candidates) <= _MAX_TRIED:
            candidates = [min(candidates, key=lambda o: (self._left_by(component, o), self._size(o)))]
        return {o: openers[o] for o in candidates}

    def _left_by(self, component: set[str], opener: Node) -> int:
        """How many spans stand around recursion once those of an opener are calls."""
        bodies = {name: self._rewritten(self.bodies[name], component, {opener: 1}, "") for name in sorted(component)}
        needs = {name: [other for other in others if other in bodies] for name, others in self._needs(bodies).items()}
        return sum(n for c in recursive_components(needs) for n in self._openers(bodies, c).values())

    def _size(self, opener: Node) -> int:
        return len(self.lexicon.terminals[opener[1]].automaton.final) if opener[0] == "terminal" else 1 << 30

    def _is_telling(self, node: Node) -> bool:
        """Whether the first symbol of a part is enough to know it, so that a frame can be entered with it."""
        return all(self.lexicon.stands_alone(t) for t in self._first_terminals(node))

    # ---------------------------------------------------------------- spans

    def _spans(self, parts: list[Node], component: set[str]) -> list[_Span]:
        solid = [not recurs(p, component) and not self._can_be_empty(p) for p in parts]
        out: list[_Span] = []
        for i, part in enumerate(parts):
            if not recurs(part, component) or (out and i < out[-1].high):
                continue
            low = next((j for j in range(i - 1, -1, -1) if solid[j]), -1)
            high = next((j for j in range(i + 1, len(parts)) if solid[j]), -1)
            if low < 0 or high < 0:
                continue
            if out and out[-1].high >= low:
                last = out.pop()
                out.append(_Span(last.low, max(high, last.high), last.opener))
            else:
                out.append(_Span(low, max(high, self._mirrored(parts, low)), parts[low]))
        return out

    def _mirrored(self, parts: list[Node], low: int) -> int:
        """Place of the bracket that closes an opening one in its sequence, -1 if there is none."""
        closing = _MIRRORED.get(self._text(parts[low]))
        depth = 0
        for j in range(low, len(parts)) if closing else ():
            depth += (parts[j] == parts[low]) - (self._text(parts[j]) == closing)
            if not depth:
                return j
        return -1

    def _text(self, node: Node) -> str:
        key = self.lexicon.terminals[node[1]].key if node[0] == "terminal" else ("",)
        return str(key[1]) if key[0] == "literal" else ""

    def _rewritten(self, node: Node, component: set[str], openers: dict[Node, int], name: str) -> Node:
        """The node with the spans of some openers as calls; without a rule's name only for trial."""
        if not recurs(node, component) or node[0] in ("rule", "core"):
            return node
        parts = [self._rewritten(p, component, openers, name) if isinstance(p, tuple) else p for p in node[1:]]
        if node[0] != "sequence":
            return (node[0], *parts)
        return sequence(*self._with_calls(parts, [s for s in self._spans(parts, component) if s.opener in openers], name))

    def _with_calls(self, parts: list[Node], spans: list[_Span], name: str) -> list[Node]:
        for span in reversed(spans):
            behind = self.outlining.behind or not self._is_telling(span.opener)
            number = -1
            if name:
                number = self._group(sequence(*parts[span.low + behind : span.high + 1]), name)
                if not behind:
                    self._pairs.setdefault(span.opener, set()).add(parts[span.high])
            parts = [*parts[: span.low + behind], ("call", number), *parts[span.high + 1 :]]
        return parts

    # ---------------------------------------------------------------- what looks like a call

    def _alike(self, node: Node, name: str, *, called: bool = False) -> Node:
        """The node with groups as calls that begin and end like called ones. If it is called itself, as a whole it is none."""
        if node[0] in ("terminal", "rule", "core", "call", "count"):
            return node
        parts = [self._alike(p, name) if isinstance(p, tuple) else p for p in node[1:]]
        if node[0] != "sequence":
            return (node[0], *parts)
        at = len(parts) - 1
        while at >= 0:
            high = self._closing(parts, at)
            if high >= 0 and not (called and at == 0 and high == len(parts) - 1):
                parts = [*parts[:at], ("call", self._group(sequence(*parts[at : high + 1]), name)), *parts[high + 1 :]]
            at -= 1
        return sequence(*parts)

    def _closing(self, parts: list[Node], low: int) -> int:
        closers = self._pairs.get(parts[low], ())
        return next((j for j in range(low + 1, len(parts)) if parts[j] in closers), -1)


def _sequences(node: Node, component: set[str]) -> Iterator[list[Node]]:
    """The sequences in an expression that hold recursion."""
    if recurs(node, component) and node[0] not in ("rule", "core"):
        if node[0] == "sequence":
            yield list(node[1:])
        for part in node[1:]:
            if isinstance(part, tuple):
                yield from _sequences(part, component)


def call_lines(
    bodies: dict[str, Node], marks: set[int], called: dict[str, int], can_be_empty: Callable[[Node], bool],
    group: Callable[[Node, str], int],
) -> None:  # fmt: skip
    """Makes calls, in place, of all that stands between newlines and the begins and ends of blocks; of a rule, one of its own.

    Args:
      bodies: rules.
      marks: the terminals for newlines, begins and ends.
      called: the frames of rules that are called already.
      can_be_empty: whether a node has the empty text.
      group: makes a rule of a node that stands in a rule, and gives the number of its frame.
    """
    name_of = {number: name for name, number in called.items()}

    def holds(node: Node) -> bool:
        """Whether a newline, or the begin or end of a block, stands in a node."""
        if node[0] == "terminal":
            return node[1] in marks
        if node[0] in ("rule", "core", "call", "count"):
            return (name_of.get(node[1]) if node[0] == "call" else node[1]) in deep
        return any(holds(part) for part in node[1:] if isinstance(part, tuple))

    deep: set[str] = set()
    while more := {name for name, body in bodies.items() if name not in deep and holds(body)}:
        deep |= more

    def calls(node: Node, name: str) -> Node:
        if node == EMPTY:
            return EMPTY
        call: Node = ("call", group(node, name))
        return choice(call, EMPTY) if can_be_empty(node) else call

    def lifted(node: Node, name: str) -> Node:
        if not holds(node):
            return calls(node, name)
        if node[0] in ("terminal", "rule", "core", "call"):
            return node
        if node[0] != "sequence":
            return (node[0], *(lifted(part, name) if isinstance(part, tuple) else part for part in node[1:]))
        out: list[Node] = []
        run: list[Node] = []
        for part in (*node[1:], None):
            if part is not None and part[0] != "rule" and not holds(part):
                run.append(part)
                continue
            if run:
                out.append(calls(sequence(*run), name))
            run = []
            out += [lifted(part, name)] if part is not None else []
        return sequence(*out)

    for name in [name for name in bodies if name in deep]:
        bodies[name] = lifted(bodies[name], name)
