"""Boolean and many-valued formulas over atoms, as reduced ordered decision diagrams. Knows nothing of JSON.

A diagram is an integer. Those below `FIRST_NODE` are leaves: 0 is false, 1 is true, larger ones are outcomes of a
classification. Equal functions are equal integers, so formulas are hash-consed for free.

Source: R. Bryant, "Graph-based algorithms for Boolean function manipulation", 1986.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from fsa_compile.errors import LimitError

FIRST_NODE = 1 << 20
"""Diagrams from here on are inner nodes."""


class Decisions:
    """A store of diagrams over atoms; atoms are ordered by their first use.

    Attributes:
      atoms: atom of each variable.
      meets: what pairs of outcomes, the smaller first, have in common; pairs that are not here have nothing.
    """

    def __init__(self, max_nodes: int) -> None:
        self.atoms: list[Hashable] = []
        self.meets: dict[tuple[int, int], int] = {}
        self._max_nodes = max_nodes
        self._variable: dict[Hashable, int] = {}
        self._nodes: list[tuple[int, int, int]] = []
        self._number: dict[tuple[int, int, int], int] = {}
        self._chosen: dict[tuple[int, int, int], int] = {}
        self._agreed: dict[tuple[int, int], int] = {}
        self._supports: dict[int, tuple[int, ...]] = {}

    def variable(self, atom: Hashable) -> int:
        """The number of an atom's variable."""
        found = self._variable.get(atom)
        if found is None:
            found = self._variable[atom] = len(self.atoms)
            self.atoms.append(atom)
        return found

    def known(self, atom: Hashable) -> int | None:
        """The number of an atom's variable, or None when no formula uses it."""
        return self._variable.get(atom)

    def atom(self, atom: Hashable) -> int:
        """The diagram that is true exactly when the atom is."""
        return self._node(self.variable(atom), 0, 1)

    def _node(self, variable: int, low: int, high: int) -> int:
        if low == high:
            return low
        key = (variable, low, high)
        found = self._number.get(key)
        if found is None:
            if len(self._nodes) >= self._max_nodes:
                raise LimitError(
                    "max_formula", self._max_nodes, "Combining the conditions of the schema",
                    fix="Use fewer overlapping branches, or raise SchemaOptions.max_formula.",
                )  # fmt: skip
            found = self._number[key] = FIRST_NODE + len(self._nodes)
            self._nodes.append(key)
        return found

    def choose(self, condition: int, then: int, other: int) -> int:
        """`then` where the (boolean) condition holds, elsewhere `other`."""
        if condition == 1:
            return then
        if condition == 0:
            return other
        if then == other:
            return then
        if then == 1 and other == 0:
            return condition
        key = (condition, then, other)
        found = self._chosen.get(key)
        if found is None:
            nodes = self._nodes
            v, c0, c1 = nodes[condition - FIRST_NODE]
            if then >= FIRST_NODE:
                v = min(v, nodes[then - FIRST_NODE][0])
            if other >= FIRST_NODE:
                v = min(v, nodes[other - FIRST_NODE][0])
            c0, c1 = self._cofactors(condition, v)
            t0, t1 = self._cofactors(then, v)
            o0, o1 = self._cofactors(other, v)
            found = self._chosen[key] = self._node(v, self.choose(c0, t0, o0), self.choose(c1, t1, o1))
        return found

    def _cofactors(self, f: int, variable: int) -> tuple[int, int]:
        if f >= FIRST_NODE:
            v, low, high = self._nodes[f - FIRST_NODE]
            if v == variable:
                return low, high
        return f, f

    def both(self, f: int, g: int) -> int:
        """f and g."""
        return self.choose(f, g, 0)

    def agreed(self, f: int, g: int) -> int:
        """What f and g both say; where they differ, what their outcomes have in common (`meets`), or 0."""
        if f == g:
            return f
        key = (min(f, g), max(f, g))
        if key[1] < FIRST_NODE:
            return self.meets.get(key, 0)
        found = self._agreed.get(key)
        if found is None:
            v = min(self._nodes[x - FIRST_NODE][0] for x in key if x >= FIRST_NODE)
            (f0, f1), (g0, g1) = self._cofactors(f, v), self._cofactors(g, v)
            found = self._agreed[key] = self._node(v, self.agreed(f0, g0), self.agreed(f1, g1))
        return found

    def all_of(self, parts: Iterable[int]) -> int:
        """The conjunction of many; quick for atoms, because it begins with the last variable."""
        out = 1
        for part in sorted(parts, key=self._top, reverse=True):
            out = self.choose(part, out, 0)
        return out

    def _top(self, f: int) -> int:
        return self._nodes[f - FIRST_NODE][0] if f >= FIRST_NODE else -1

    def either(self, f: int, g: int) -> int:
        """f or g."""
        return self.choose(f, 1, g)

    def negated(self, f: int) -> int:
        """Not f."""
        return self.choose(f, 0, 1)

    def possible(self, f: int) -> int:
        """True where a classification is not false."""
        if f < FIRST_NODE:
            return min(f, 1)
        if self.leaves(f) <= {0, 1}:
            return f
        memo: dict[int, int] = {}

        def visit(node: int) -> int:
            if node < FIRST_NODE:
                return min(node, 1)
            found = memo.get(node)
            if found is None:
                v, low, high = self._nodes[node - FIRST_NODE]
                found = memo[node] = self._node(v, visit(low), visit(high))
            return found

        return visit(f)

    def substitute(self, f: int, values: Mapping[int, int]) -> int:
        """Replaces variables by boolean diagrams, all at once."""
        if f < FIRST_NODE or not values:
            return f
        return self._substituted(f, values, max(values), {})

    def _substituted(self, node: int, values: Mapping[int, int], last: int, memo: dict[int, int]) -> int:
        if node < FIRST_NODE:
            return node
        found = memo.get(node)
        if found is None:
            v, low, high = self._nodes[node - FIRST_NODE]
            if v > last:
                return node
            below, above = self._substituted(low, values, last, memo), self._substituted(high, values, last, memo)
            value = values.get(v)
            if value is not None:
                found = self.choose(value, above, below)
            elif below == low and above == high:
                found = node
            else:
                found = above if above == below else self.choose(self._node(v, 0, 1), above, below)
            memo[node] = found
        return found

    def node(self, f: int) -> tuple[int, int, int]:
        """(variable, the rest where it is false, the rest where it is true) of an inner node."""
        return self._nodes[f - FIRST_NODE]

    def support(self, f: int) -> tuple[int, ...]:
        """The variables that f depends on, in order."""
        if f < FIRST_NODE:
            return ()
        found = self._supports.get(f)
        if found is None:
            found = self._supports[f] = self._find_support(f)
        return found

    def _find_support(self, f: int) -> tuple[int, ...]:
        """The variables of an inner node; quick for conjunctions, some part of which is known."""
        above, at = list[int](), f
        while at not in self._supports:
            v, low, high = self._nodes[at - FIRST_NODE]
            if low >= FIRST_NODE and high >= FIRST_NODE:
                return tuple(sorted({self._nodes[n - FIRST_NODE][0] for n in self._below(f)}))
            above.append(v)
            at = max(low, high)  # the inner node, if there is one
            if at < FIRST_NODE:
                return tuple(above)
        return (*above, *self._supports[at])

    def outline(self, f: int) -> Hashable:
        """What tells f apart from the diagrams of other stores, written out: only for those of few nodes."""
        if f < FIRST_NODE:
            return f
        v, low, high = self._nodes[f - FIRST_NODE]
        atom = self.atoms[v]
        return type(atom).__name__, atom, self.outline(low), self.outline(high)

    def leaves(self, f: int) -> set[int]:
        """The leaves that f can reach."""
        if f < FIRST_NODE:
            return {f}
        return {child for n in self._below(f) for child in self._nodes[n - FIRST_NODE][1:] if child < FIRST_NODE}

    def _below(self, f: int) -> set[int]:
        seen = {f}
        todo = [f]
        while todo:
            for child in self._nodes[todo.pop() - FIRST_NODE][1:]:
                if child >= FIRST_NODE and child not in seen:
                    seen.add(child)
                    todo.append(child)
        return seen

    def evaluate(self, f: int, truth: Callable[[int], object]) -> int:
        """The leaf of f when `truth` says which variables hold."""
        while f >= FIRST_NODE:
            v, low, high = self._nodes[f - FIRST_NODE]
            f = high if truth(v) else low
        return f
