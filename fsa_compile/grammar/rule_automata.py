"""Rules to minimal automata over terminals and calls, once their recursion stands at the ends of branches only.

Recursion at one end of a branch is a loop: at the left end from where the rule ends, at the right end to where it begins.

Source: M.-J. Nederhof, "Practical experiments with regular approximation of context-free languages", 2000.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from fsa_compile.automata.symbol_dfa import SymbolDfa, SymbolNfa, without_empty
from fsa_compile.errors import LimitError
from fsa_compile.grammar.grammar_tree import Expression
from fsa_compile.grammar.rule_expressions import Node, recurs
from fsa_compile.limits import CompileLimits, Deadline

_MARK = 1 << 60
"""Added to (or taken from) a symbol that begins an iteration, while the automaton of a loop is made."""
_DOING = "Turning the grammar's rules into automata"


@dataclasses.dataclass(eq=False)
class Loop:
    """A repetition with bounds too large to be written out.

    Attributes:
      node: what is repeated, with the bounds: names it when it has to be written out after all.
      low, high: the bounds.
      begins: (state, symbol) of the arcs that begin an iteration.
      place: the repetition in the grammar.
    """

    node: Node
    low: int
    high: int
    begins: set[tuple[int, int]]
    place: Expression


class UncountableError(Exception):
    """Repetitions that one register per frame cannot count: the text does not tell where an iteration begins.

    Args:
      nodes: the `Loop.node` of each.
    """

    def __init__(self, nodes: set[Node]) -> None:
        super().__init__(f"{len(nodes)} repetitions")
        self.nodes = nodes


class RuleAutomata:
    """The automata of rules.

    Args:
      bodies: rules that do not recurse.
      branches: rules of recursive components, their non-empty texts branch by branch.
      nullable: rules that have the empty text.
      loops: counted repetitions, by the rule that each is.
      can_be_empty: whether an expression has the empty text.

    Attributes:
      automata: by rule, minimal and without the empty text.
    """

    def __init__(
        self, bodies: dict[str, Node], branches: dict[str, list[list[Node]]], nullable: set[str], loops: dict[str, Loop],
        can_be_empty: Callable[[Node], bool], limits: CompileLimits, deadline: Deadline,
    ) -> None:  # fmt: skip
        self.bodies, self.branches, self.nullable, self.loops = bodies, branches, nullable, loops
        self._can_be_empty, self.limits, self.deadline = can_be_empty, limits, deadline
        self.automata: dict[str, SymbolDfa] = {}

    def build(self, component: set[str]) -> None:
        """Automata of the rules of a component: all their texts, but only the non-empty ones of a rule that is called."""
        for name in sorted(component):
            nfa = SymbolNfa()
            begin, end = nfa.state(), nfa.state()
            if name in self.branches:
                self._add_branches(nfa, name, component, begin, end)
            else:
                self._add(nfa, self.bodies[name], begin, end)
            dfa = without_empty(nfa.minimal(begin, end, self._check))
            self.automata[name] = self._unmarked(dfa, self.loops[name]) if name in self.loops else dfa

    def _unmarked(self, dfa: SymbolDfa, loop: Loop) -> SymbolDfa:
        """The automaton of a counted loop with its begins set down in the loop."""
        if self._can_be_empty(loop.node[1]):
            loop.low = 0
        arcs: list[dict[int, int]] = []
        for q, marked in enumerate(dfa.arcs):
            plain: dict[int, int] = {}
            for symbol, target in marked.items():
                begins = not -_MARK // 2 < symbol < _MARK // 2
                bare = symbol if not begins else symbol - _MARK if symbol > 0 else symbol + _MARK
                if bare in plain:
                    raise UncountableError({loop.node})
                plain[bare] = target
                if begins:
                    loop.begins.add((q, bare))
            arcs.append(plain)
        return SymbolDfa(arcs, dfa.final)

    def whole(self, name: str) -> SymbolDfa:
        """The automaton of all texts of a rule, the empty one included."""
        nfa = SymbolNfa()
        begin, end = nfa.state(), nfa.state()
        self._add(nfa, ("rule", name), begin, end)
        return nfa.minimal(begin, end, self._check)

    def _check(self, states: int) -> None:
        self.deadline.check(_DOING)
        if states > self.limits.max_states:
            raise LimitError("max_states", self.limits.max_states, _DOING)

    def _add(self, nfa: SymbolNfa, node: Node, begin: int, end: int) -> None:
        match node[0]:
            case "terminal":
                nfa.arcs[begin].append((node[1], end))
            case "call":
                nfa.arcs[begin].append((~node[1], end))
            case "rule" | "core":
                nfa.splice(self.automata[node[1]], begin, end)
                if node[0] == "rule" and node[1] in self.nullable:
                    nfa.empty[begin].append(end)
            case "choice":
                for branch in node[1:]:
                    self._add(nfa, branch, begin, end)
            case "star":
                middle = nfa.state()
                nfa.empty[begin].append(middle)
                self._add(nfa, node[1], middle, middle)
                nfa.empty[middle].append(end)
            case "nonempty":
                nfa.splice(self._nonempty(node[1]), begin, end)
            case "loop":
                self._add_loop(nfa, node[1], begin, end)
            case "upto":
                for _ in range(node[2]):
                    nfa.empty[begin].append(end)
                    after = nfa.state()
                    self._add(nfa, node[1], begin, after)
                    begin = after
                nfa.empty[begin].append(end)
            case _:
                self._add_sequence(nfa, list(node[1:]), begin, end)
        self._check(len(nfa.arcs))

    def _nonempty(self, node: Node) -> SymbolDfa:
        part = SymbolNfa()
        a, b = part.state(), part.state()
        self._add(part, node, a, b)
        return without_empty(part.minimal(a, b, self._check))

    def _add_loop(self, nfa: SymbolNfa, node: Node, begin: int, end: int) -> None:
        """One or more rounds; the symbols that begin one are marked."""
        dfa = self._nonempty(node)
        states = [nfa.state() for _ in dfa.arcs]
        for q, arcs, final in zip(states, dfa.arcs, dfa.final):
            nfa.arcs[q] += [(symbol, states[target]) for symbol, target in arcs.items()]
            if final:
                nfa.empty[q] += [begin, end]
        nfa.arcs[begin] += [(s + _MARK if s >= 0 else s - _MARK, states[target]) for s, target in dfa.arcs[0].items()]

    def _add_sequence(self, nfa: SymbolNfa, parts: list[Node], begin: int, end: int) -> None:
        if not parts:
            nfa.empty[begin].append(end)
        for i, part in enumerate(parts):
            after = end if i == len(parts) - 1 else nfa.state()
            self._add(nfa, part, begin, after)
            begin = after

    def _add_branches(self, nfa: SymbolNfa, name: str, component: set[str], begin: int, end: int) -> None:
        """Recursion at the left end (and in a single rule at both ends) goes on from where the rule ends."""
        sides = {side for n in component for parts in self.branches[n] for side in recursion_sides(parts, component)}
        if "left" in sides and len(component) > 1:
            ends = {n: nfa.state() for n in sorted(component)}
            nfa.empty[ends[name]].append(end)
            for n in sorted(component):
                for parts in self.branches[n]:
                    left = inner_rule(parts[0], component)
                    self._add_sequence(nfa, parts[1:] if left else parts, ends[left] if left else begin, ends[n])
            return
        begins = {n: nfa.state() for n in sorted(component)}
        nfa.empty[begin].append(begins[name])
        for n in sorted(component):
            for parts in self.branches[n]:
                left = inner_rule(parts[0], component) if len(parts) > 1 else ""
                right = inner_rule(parts[-1], component)
                middle = parts[bool(left) : len(parts) - bool(right)]
                self._add_sequence(nfa, middle, end if left else begins[n], begins[right] if right else end)


def is_end(i: int, parts: list[Node]) -> bool:
    """Whether a part is the first or the last one of a branch."""
    return i in (0, len(parts) - 1)


def recursion_sides(parts: list[Node], component: set[str]) -> Iterator[str]:
    """Where recursion stands in a branch: "left", "right", "inside", or "alone"."""
    for i, part in enumerate(parts):
        if recurs(part, component):
            if part[0] != "core" or not is_end(i, parts):
                yield "inside"
            else:
                yield "alone" if len(parts) == 1 else "left" if i == 0 else "right"


def inner_rule(node: Node, component: set[str]) -> str:
    """The rule of the component that a part is, or ""."""
    return node[1] if node[0] == "core" and node[1] in component else ""


def substituted(parts: list[Node], me: Node, bodies: list[list[Node]]) -> Iterator[list[Node]]:
    """A branch with one rule at its ends written out."""
    heads = bodies if parts[0] == me else [parts[:1]]
    if len(parts) == 1:
        yield from heads
        return
    tails = bodies if parts[-1] == me else [parts[-1:]]
    for head in heads:
        for tail in tails:
            yield [*head, *parts[1:-1], *tail]
