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

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

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
    *,
    prompt: Sequence[int] = (),
) -> CompiledConstraint:
    """The canonical sequences of a constraint.

    Args:
      constraint: a regular one, over the tables' vocabulary.
      tables: of the tokenizer.
      vocabulary: tables of the vocabulary, for bit rows.
      limits, deadline: of the compilation.
      prompt: tokens that stand before the text; see `CanonicalTables.after`.

    Returns:
      An artifact whose `extra["canonical"]` names the tables it needs. Behind a prompt, `extra["canonical_prompt"]` holds the
      prompt's last token and the tokens of a shortest text.

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
    state, last = tables.after(prompt)
    product = _Product(constraint, tables, limits, deadline)
    product.explore(state, last)
    product.settle()
    shortest = product.distance(0, last)
    if shortest >= _FAR:
        raise UnspellableError(
            f"no text that the constraint accepts has a canonical tokenization{' behind the prompt' if prompt else ''}",
            where=constraint.source[:200],
            fix="Back up over the prompt's last tokens (token healing), or compile without canonical=True."
            if prompt
            else "Check the texts' Unicode form and characters, or compile without canonical=True.",
        )
    extra = {**constraint.extra, "canonical": tables.identity}
    if last >= 0:
        extra["canonical_prompt"] = [last, shortest]
    edges = minimize_product(product.edges())
    return assemble_product(constraint, edges, vocabulary, limits, deadline, extra)


class _Outgoing(NamedTuple):
    """The tokens of a constraint's node from one kind of filter state, by what they do: G segments of alike tokens.

    Attributes:
      token: int64[n], segment after segment; by_token: the order that sorts them.
      sets: int64[n], forbidden set of each.
      begin: int64[G + 1], where each segment begins.
      target: int64[G], node of the constraint that a segment leads to.
      kind: int64[G], its class in the filter, -1 for special tokens.
      distinct: per segment, its forbidden sets without repetition.
    """

    token: np.ndarray
    by_token: np.ndarray
    sets: np.ndarray
    begin: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    distinct: list[np.ndarray]


class _Product:
    def __init__(
        self, constraint: CompiledConstraint, tables: CanonicalTables, limits: CompileLimits, deadline: Deadline
    ) -> None:
        self.constraint, self.rule, self.filter = constraint, tables.rule, tables.filter
        self._limits, self._deadline = limits, deadline
        self._special = np.diff(tables.packed[1]) == 0
        self._set_of = tables.rule.set_of.astype(np.int64)
        self._known: dict[tuple[int, int], _Outgoing] = {}
        self.number: dict[tuple[int, int], int] = {}
        self.nodes: list[tuple[int, int]] = []
        self.outgoing: list[_Outgoing] = []
        """Per node: its tokens."""
        self.targets: list[tuple[np.ndarray, np.ndarray]] = []
        """Per node: product node of each segment after an allowed and after a forbidden pair, int64[G], -1 for none."""
        self._sets: list[np.ndarray] = []
        """Per node: forbidden sets of the tokens that lead into it, ascending."""
        self._distance: list[np.ndarray] = []
        """Per node: distance after each of these sets."""
        self._same = np.zeros(0, np.int64)
        """Per node: its distance where that is the same after all sets, else -1."""

    def far(self, node: int) -> bool:
        """Whether no accepted text can be completed from a node, whatever came before it."""
        return bool((self._distance[node] >= _FAR).all())

    def _outgoing(self, node: int, class_of: np.ndarray) -> _Outgoing:
        # Filter states share the array of classes as long as they stand at the same place inside a character.
        key = (node, id(class_of))
        found = self._known.get(key)
        if found is None:
            every = self.constraint.outgoing(node)
            token = np.flatnonzero(every)
            token = token[(class_of[token] >= 0) | self._special[token]]
            width = int(class_of.max(initial=0)) + 2
            code = every[token].astype(np.int64) * width + class_of[token] + 1
            order = np.argsort(code, kind="stable")
            token, code = token[order], code[order]
            first = np.flatnonzero(np.append(True, code[1:] != code[:-1])) if len(code) else np.zeros(0, np.int64)
            sets = self._set_of[token]
            distinct = [np.unique(part) for part in np.split(sets, first[1:])] if len(code) else []
            target, kind = code[first] // width, code[first] % width - 1
            begin = np.append(first, len(code))
            found = self._known[key] = _Outgoing(token, np.argsort(token), sets, begin, target, kind, distinct)
        return found

    def distance(self, node: int, last: int) -> int:
        """Tokens to the end of a shortest text from a node after a token, or from the start of a text."""
        group = self._set_of[last] if last >= 0 else 0
        return int(self._distance[node][np.searchsorted(self._sets[node], group)])

    def explore(self, state: int, last: int) -> None:
        """Finds all product nodes, breadth first, from a state of the filter on, and the sets that lead into each."""
        self._numbered(self.constraint.start, state)
        into: list[dict[int, np.ndarray]] = [{-1: self._set_of[[last]] if last >= 0 else np.zeros(1, np.int64)}]
        at = 0
        while at < len(self.nodes):
            self._deadline.check("following the canonical tokens of the constraint")
            node, state = self.nodes[at]
            moves = self.filter.moves(state)
            after = self._outgoing(node, moves.class_of)
            branches = []
            for states in (moves.allowed, moves.forbidden):
                # A special token is a cut of its own.
                special = START if self.filter.final(state) else NONE
                then = np.where(after.kind >= 0, states[np.maximum(after.kind, 0)] if len(states) else NONE, special)
                pairs = zip(after.target.tolist(), then.tolist())
                branches.append(np.array([self._numbered(q, f) if f >= 0 else -1 for q, f in pairs], np.int64))
            into += [{} for _ in range(len(self.nodes) - len(into))]
            for numbers in branches:
                for number, sets in zip(numbers.tolist(), after.distinct):
                    if number >= 0:
                        into[number][id(sets)] = sets
            self.outgoing.append(after)
            self.targets.append((branches[0], branches[1]))
            at += 1
        self._sets = [np.unique(np.concatenate(list(sets.values()))) for sets in into]

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
            for target in set(np.concatenate(branches).tolist()) - {-1}:
                before[target].add(node)
        self._distance = [np.full(len(sets), _FAR) for sets in self._sets]
        self._same = np.full(len(self.nodes), _FAR)
        order = sorted(range(len(self.nodes)), key=lambda k: int(self.constraint.distance[self.nodes[k][0]]))
        todo, waiting = deque(order), set(order)
        while todo:
            self._deadline.check("completing the canonical tokens of the constraint")
            node = todo.popleft()
            waiting.discard(node)
            closer = self._settled(node)
            if (closer < self._distance[node]).any():
                self._distance[node] = closer
                self._same[node] = closer[0] if (closer == closer[0]).all() else -1
                new = [b for b in before[node] if b not in waiting]
                todo.extend(new)
                waiting.update(new)

    def accepts(self, node: int) -> bool:
        """Whether the text may end at a product node."""
        at, state = self.nodes[node]
        return bool(self.constraint.accept[at]) and self.filter.final(state)

    def costs(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens that each outgoing token and the shortest completion after it take, per branch: int64[n] each."""
        after = self.outgoing[node]
        out = []
        for numbers in self.targets[node]:
            same = np.where(numbers >= 0, self._same[np.maximum(numbers, 0)], _FAR)
            cost = np.repeat(np.minimum(same + 1, _FAR), np.diff(after.begin))
            for segment in np.flatnonzero(same < 0).tolist():
                target = int(numbers[segment])
                part = slice(after.begin[segment], after.begin[segment + 1])
                index = np.searchsorted(self._sets[target], after.sets[part])
                cost[part] = np.minimum(self._distance[target][index] + 1, _FAR)
            out.append(cost)
        return out[0], out[1]

    def _settled(self, node: int) -> np.ndarray:
        """Distances of a node by those of its targets."""
        sets = self._sets[node]
        if self.accepts(node):
            return np.zeros(len(sets), np.int64)
        token = self.outgoing[node].token
        allowed, forbidden = self.costs(node)
        best = np.full(len(sets), int(forbidden.min(initial=_FAR)))  # what may come in any case: its pair cannot forbid it
        useful = np.flatnonzero(allowed < best.max(initial=0))
        open_ = np.arange(len(sets))
        while len(useful) and len(open_):
            level = int(allowed[useful].min())
            open_ = open_[best[open_] > level]
            here, useful = useful[allowed[useful] == level], useful[allowed[useful] > level]
            at, step = 0, 8
            while at < len(here) and len(open_):
                step = min(step, max(8, _TESTED // len(open_)))
                apart = self.rule.set_holds(sets[open_][:, None], token[here[at : at + step]][None])
                reached = ~apart.all(1)
                best[open_[reached]] = level
                open_ = open_[~reached]
                at, step = at + step, step * 4
        return best

    def edges(self) -> ProductEdges:
        """All tokens that stay, with their costs, of the nodes that can be completed."""
        alive = np.array([not self.far(node) for node in range(len(self.nodes))])
        number = np.cumsum(alive) - 1
        parts = []
        for node in np.flatnonzero(alive).tolist():
            after = self.outgoing[node]
            segment = np.repeat(np.arange(len(after.target)), np.diff(after.begin))
            for branch, (numbers, cost) in enumerate(zip(self.targets[node], self.costs(node))):
                kept = after.by_token[cost[after.by_token] < _FAR]
                target = 2 * number[numbers[segment[kept]]] + 1
                parts.append((int(2 * number[node] + 1 + branch), after.token[kept], target, cost[kept]))
        accept = np.zeros(2 * int(alive.sum()) + 1, bool)
        distance = np.full(len(accept), _FAR)
        for node in np.flatnonzero(alive).tolist():
            here = 2 * number[node] + 1
            accept[here : here + 2] = self.accepts(node)
            distance[here : here + 2] = int(self._distance[node].min())
        return ProductEdges(accept, distance, parts)
