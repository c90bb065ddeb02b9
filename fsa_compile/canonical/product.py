"""`canonical_product`: a regular constraint whose sequences are canonical, as an artifact for a walk that knows the pair rule.

A product node stands for (node of the constraint, state of the filter). It has two nodes in the artifact: the first holds the
tokens that may come when the pair rule allows the last token and the next, the second, right behind it, those when it forbids
them (a cut must then lie between). The mask is (row of the first AND NOT forbidden(last)) OR (row of the second AND
forbidden(last)); `last` is all that a walk keeps besides the node.

What a last token allows later depends on it only through its forbidden set. So each product node has a distance per forbidden
set of the tokens that lead into it, and a token stays only where the distance behind it is finite: no dead ends. The distances
are least ones: they are the fixed point, from infinity down, of

    distance(node, set) = min over next tokens t of 1 + distance(target(t), set of t),      0 where the text may end.

Source: Tran-Thien 2024 (CartesianMerge, relevant states); Cognetta et al. 2025, §3.3.
"""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np

from fsa_compile.artifact import UNREACHABLE, CompiledConstraint
from fsa_compile.canonical.product_artifact import ProductEdges, assemble_product
from fsa_compile.canonical.product_minimize import minimize_product
from fsa_compile.canonical.tables import CanonicalTables
from fsa_compile.canonical.token_filter import NONE, START
from fsa_compile.errors import ConstraintError, LimitError, UnspellableError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary_tables import VocabularyTables

_FAR = np.int64(UNREACHABLE)
_TESTED = 1 << 21
"""Most pairs of a set and a token that are tested at once."""


def canonical_product(
    constraint: CompiledConstraint,
    tables: CanonicalTables,
    vocabulary: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
) -> CompiledConstraint:
    """The canonical sequences of a constraint.

    Args:
      constraint: a regular one, over the tables' vocabulary.
      tables: of the tokenizer.
      vocabulary: tables of the vocabulary, for bit rows.
      limits, deadline: of the compilation.

    Returns:
      An artifact whose `extra["canonical"]` names the tables it needs.

    Raises:
      ConstraintError: the constraint has a stack or a register.
      UnspellableError: no accepted text has canonical tokens.
      LimitError: too many states, or out of time.
    """
    if not constraint.is_regular:
        raise ConstraintError(
            "canonical=True is offered for constraints without a stack and without counters only",
            fix="Compile it without canonical=True, or bound its nesting so that it becomes regular.",
        )
    tables.check_unnormalized()
    product = _Product(constraint, tables, limits, deadline)
    product.explore()
    product.settle()
    if product.far(0):
        raise UnspellableError(
            "no text that the constraint accepts has a canonical tokenization",
            where=constraint.source[:200],
            fix="Check the texts' Unicode form and characters, or compile without canonical=True.",
        )
    extra = {**constraint.extra, "canonical": tables.identity}
    edges = minimize_product(product.edges())
    return assemble_product(constraint, edges, vocabulary, limits, deadline, extra)


@dataclasses.dataclass(frozen=True)
class _Outgoing:
    """The tokens of a constraint's node, in ascending order, and where they lead."""

    token: np.ndarray
    target: np.ndarray


class _Product:
    def __init__(
        self, constraint: CompiledConstraint, tables: CanonicalTables, limits: CompileLimits, deadline: Deadline
    ) -> None:
        self.constraint, self.rule, self.filter = constraint, tables.rule, tables.filter
        self._limits, self._deadline = limits, deadline
        self._special = np.diff(tables.packed[1]) == 0
        self._set_of = tables.rule.set_of.astype(np.int64)
        self._outgoing: dict[int, _Outgoing] = {}
        self.number: dict[tuple[int, int], int] = {}
        self.nodes: list[tuple[int, int]] = []
        self.targets: list[tuple[np.ndarray, np.ndarray]] = []
        """Per node: product node of each outgoing token after an allowed and after a forbidden pair, -1 for none."""
        self._sets: list[np.ndarray] = []
        """Per node: forbidden sets of the tokens that lead into it, ascending."""
        self._distance: list[np.ndarray] = []
        """Per node: distance after each of these sets."""

    def far(self, node: int) -> bool:
        """Whether no accepted text can be completed from a node, whatever came before it."""
        return bool((self._distance[node] >= _FAR).all())

    def outgoing(self, node: int) -> _Outgoing:
        found = self._outgoing.get(node)
        if found is None:
            every = self.constraint.outgoing(node)
            token = np.flatnonzero(every)
            found = self._outgoing[node] = _Outgoing(token, every[token].astype(np.int64))
        return found

    def explore(self) -> None:
        """Finds all product nodes, breadth first, and the sets that lead into each."""
        self._numbered(self.constraint.start, START)
        into: list[list[np.ndarray]] = [[np.zeros(1, np.int64)]]
        at = 0
        while at < len(self.nodes):
            self._deadline.check("following the canonical tokens of the constraint")
            node, state = self.nodes[at]
            after = self.outgoing(node)
            moves = self.filter.moves(state)
            kind = moves.class_of[after.token]
            branches = []
            for states in (moves.allowed, moves.forbidden):
                then = np.where(kind >= 0, states[np.maximum(kind, 0)], NONE)
                if self.filter.final(state):
                    then[self._special[after.token]] = START  # a special token is a cut of its own
                branches.append(self._targets(after.target, then))
            into += [[] for _ in range(len(self.nodes) - len(into))]
            for numbers in branches:
                self._collect(into, numbers, after.token)
            self.targets.append((branches[0], branches[1]))
            at += 1
        self._sets = [np.unique(np.concatenate(sets)) for sets in into]

    def _collect(self, into: list[list[np.ndarray]], numbers: np.ndarray, token: np.ndarray) -> None:
        live = np.flatnonzero(numbers >= 0)
        if not len(live):
            return
        size = len(self.rule.set_offset)
        both = np.unique(numbers[live].astype(np.int64) * size + self._set_of[token[live]])
        owner, sets = both // size, both % size
        first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        for number, part in zip(owner[first].tolist(), np.split(sets, first[1:])):
            into[number].append(part)

    def _targets(self, target: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Product node of each (node, filter state), int32[n], -1 where there is no state."""
        out = np.full(len(target), -1, np.int32)
        live = np.flatnonzero(state >= 0)
        key = target[live] << 32 | state[live].astype(np.int64)
        distinct, inverse = np.unique(key, return_inverse=True)
        numbers = [self._numbered(k >> 32, k & 0xFFFFFFFF) for k in distinct.tolist()]
        out[live] = np.array(numbers, np.int32)[inverse.ravel()]
        return out

    def _numbered(self, node: int, state: int) -> int:
        key = (node, state)
        found = self.number.get(key)
        if found is None:
            found = self.number[key] = len(self.nodes)
            self.nodes.append(key)
            if found >= self._limits.max_states:
                raise LimitError("max_states", self._limits.max_states, "following the canonical tokens of the constraint")
        return found

    def settle(self) -> None:
        """Computes all distances: nodes are looked at again whenever what follows them got closer."""
        before: list[set[int]] = [set() for _ in self.nodes]
        for node, branches in enumerate(self.targets):
            for target in np.unique(np.concatenate(branches)).tolist():
                if target >= 0:
                    before[target].add(node)
        self._distance = [np.full(len(sets), _FAR) for sets in self._sets]
        order = sorted(range(len(self.nodes)), key=lambda k: int(self.constraint.distance[self.nodes[k][0]]))
        todo, waiting = deque(order), set(order)
        while todo:
            self._deadline.check("completing the canonical tokens of the constraint")
            node = todo.popleft()
            waiting.discard(node)
            closer = self._settled(node)
            if (closer < self._distance[node]).any():
                self._distance[node] = closer
                new = [b for b in before[node] if b not in waiting]
                todo.extend(new)
                waiting.update(new)

    def accepts(self, node: int) -> bool:
        """Whether the text may end at a product node."""
        at, state = self.nodes[node]
        return bool(self.constraint.accept[at]) and self.filter.final(state)

    def costs(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens that each outgoing token and the shortest completion after it take, per branch: int64[n] each."""
        token = self.outgoing(self.nodes[node][0]).token
        out = []
        for numbers in self.targets[node]:
            cost = np.full(len(token), _FAR)
            live = np.flatnonzero(numbers >= 0)
            order = live[np.argsort(numbers[live], kind="stable")]
            changes = 1 + np.flatnonzero(numbers[order][1:] != numbers[order][:-1])
            for part in np.split(order, changes) if len(order) else ():
                target = int(numbers[part[0]])
                index = np.searchsorted(self._sets[target], self._set_of[token[part]])
                cost[part] = np.minimum(self._distance[target][index] + 1, _FAR)
            out.append(cost)
        return out[0], out[1]

    def _settled(self, node: int) -> np.ndarray:
        """Distances of a node by those of its targets."""
        sets = self._sets[node]
        if self.accepts(node):
            return np.zeros(len(sets), np.int64)
        token = self.outgoing(self.nodes[node][0]).token
        allowed, forbidden = self.costs(node)
        best = np.full(len(sets), int(forbidden.min(initial=_FAR)))  # what may come in any case: its pair cannot forbid it
        useful = np.flatnonzero(allowed < best.max(initial=0))
        useful = useful[np.argsort(allowed[useful], kind="stable")]
        open_, at, step = np.arange(len(sets)), 0, 8
        while at < len(useful) and len(open_):
            step = min(step, max(8, _TESTED // len(open_)))
            chosen = useful[at : at + step]
            open_ = open_[best[open_] > allowed[chosen[0]]]
            apart = self.rule.set_holds(sets[open_][:, None], token[chosen][None])
            cost = np.where(apart, _FAR, allowed[chosen][None]).min(1, initial=_FAR)
            best[open_] = np.minimum(best[open_], cost)
            at, step = at + step, step * 4
        return best

    def edges(self) -> ProductEdges:
        """All tokens that stay, with their costs, of the nodes that can be completed."""
        alive = np.array([not self.far(node) for node in range(len(self.nodes))])
        number = np.cumsum(alive) - 1
        parts = []
        for node in np.flatnonzero(alive).tolist():
            token = self.outgoing(self.nodes[node][0]).token
            for branch, (numbers, cost) in enumerate(zip(self.targets[node], self.costs(node))):
                kept = cost < _FAR
                parts.append((2 * number[node] + 1 + branch, token[kept], 2 * number[numbers[kept]] + 1, cost[kept]))
        accept = np.zeros(2 * int(alive.sum()) + 1, bool)
        distance = np.full(len(accept), _FAR)
        for node in np.flatnonzero(alive).tolist():
            here = 2 * number[node] + 1
            accept[here : here + 2] = self.accepts(node)
            distance[here : here + 2] = int(self._distance[node].min())
        return ProductEdges(accept, distance, parts)
