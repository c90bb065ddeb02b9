"""`with_prefixes`: a compiled constraint that also begins at texts that must be written before it.

New nodes stand for "these bytes, then the constraint". They need no recompilation: a token inside the bytes leads to the node of
the rest, one that writes exactly the rest to the constraint's start, and one that goes on to where `PartialTokens` says. What a
token does to the stack is an effect like any other, so that stacks, counters and sets of keys work as they do elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import ARC_BURST, UNREACHABLE
from fsa_compile.artifact.configurations import Configuration
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.effects import arc_effects
from fsa_compile.artifact.guard_checks import first_twin
from fsa_compile.artifact.host_walk import rung
from fsa_compile.composition.prefix.partial_tokens import PartialTokens
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.errors import UnspellableError
from fsa_compile.vocabulary.lookup import TokenLookup

_MOST_LEVELS = 32
"""Of a new node; more are thinned out as in `budget_levels`, so that masks close to a limit are stricter than they need be."""


class _Effect(NamedTuple):
    """What a token does from a new node, as in `CompiledConstraint.effects`."""

    target: int
    push: int = 0
    add: int = 0
    set_to: int = 0
    guard: int = 0
    held: int = 0


class _Node(NamedTuple):
    """A new node: of every token its effect (an index of `_Prefixed.effects`), cost and need; and the least of them."""

    token: NDArray[np.int64]
    effect: NDArray[np.int64]
    cost: NDArray[np.int64]
    need: NDArray[np.int64]
    distance: int
    least_need: int


def with_prefixes(partial_tokens: PartialTokens, lookup: TokenLookup, prefixes: Iterable[bytes]) -> list[CompiledConstraint]:
    """A constraint behind texts, one start for each.

    Args:
      partial_tokens: of the constraint, compiled without `canonical=True`.
      lookup: of its vocabulary.
      prefixes: bytes to write before the constraint, in any tokenization; a token may write the end of them and go on.

    Returns:
      For every prefix the constraint on the whole text; all share their arrays and differ in their starts. Where no prefix has
      any bytes, it is the constraint itself.

    Raises:
      UnspellableError: no tokens write a prefix and a text of the constraint.
      ConstraintError: see `PartialTokens`.
    """
    prefixes = list(prefixes)
    if not any(prefixes):
        return [partial_tokens.constraint] * len(prefixes)
    made = _Prefixed(partial_tokens, lookup)
    starts = [made.node(prefix) if prefix else 0 for prefix in prefixes]
    for prefix, start in zip(prefixes, starts):
        if prefix and made.nodes[start - 1].distance >= UNREACHABLE:
            raise UnspellableError(
                f"no tokens of the vocabulary write {prefix!r} and then a text that the constraint accepts",
                where=partial_tokens.constraint.source[:200],
                fix="Use a tokenizer with a token for each byte, or check that prompt and constraint belong together.",
            )
    whole = made.assembled()
    first = made.first
    return [dataclasses.replace(whole, start=first + start - 1, initial_push=0) if start else whole for start in starts]


class _Prefixed:
    """New nodes of one constraint, numbered from 1 in the order in which they were made."""

    def __init__(self, partial_tokens: PartialTokens, lookup: TokenLookup) -> None:
        self.partial_tokens, self.lookup, self.old = partial_tokens, lookup, partial_tokens.constraint
        self.first = first_twin(self.old)
        """The new nodes come before twins, which must be the last ones."""
        self.nodes: list[_Node] = []
        self._numbers: dict[bytes, int] = {b"": 0}
        self.effects: dict[_Effect, int] = {}
        self._landed: dict[int, list[tuple[int, int, int]]] = {}
        self._strings: dict[bytes, int] = {}
        self._pushes: list[tuple[list[int], list[int], list[int]]] = []
        self._masks: dict[int, int] = {}
        self._settings: dict[int, int] = {}

    def node(self, rest: bytes) -> int:
        """The number of the node "these bytes, then the constraint"."""
        todo = [rest]
        while todo:  # shorter ones first, without recursion: a prefix may be long
            at = todo[-1]
            missing = [at[n:] for n, _ in self.lookup.prefixes(at) if at[n:] not in self._numbers]
            if missing:
                todo += missing
                continue
            todo.pop()
            if at not in self._numbers:
                self.nodes.append(self._made(at))
                self._numbers[at] = len(self.nodes)
        return self._numbers[rest]

    def _made(self, rest: bytes) -> _Node:
        parts: list[tuple[NDArray[np.int64], int, int, int]] = []
        for n, ids in self.lookup.prefixes(rest):
            token = np.array(ids, np.int64)
            if n == len(rest):
                parts += [(token, *landed) for landed in self._landing(0)]
            else:
                number = self._numbers[rest[n:]]
                after = self.nodes[number - 1]
                if after.distance < UNREACHABLE:
                    effect = self._effect(_Effect(self.first + number - 1))
                    parts.append((token, effect, after.distance + 1, after.least_need))
        tokens, states = self.partial_tokens.after(rest)
        order = np.argsort(states, kind="stable")
        for alike in np.split(order, np.flatnonzero(np.diff(states[order])) + 1):
            if len(alike):
                parts += [(tokens[alike], *landed) for landed in self._landing(int(states[alike[0]]))]
        if not parts:
            none = np.zeros(0, np.int64)
            return _Node(none, none, none, none, int(UNREACHABLE), 0)
        token = np.concatenate([part[0] for part in parts])
        sizes = [len(part[0]) for part in parts]
        effects, cost, need = (np.repeat([part[k] for part in parts], sizes) for k in (1, 2, 3))
        order = np.argsort(token, kind="stable")
        least_need = int(need.min())
        distance = int(cost[need == least_need].min())  # of one completion, which keeps both limits
        return _Node(token[order], effects[order], cost[order], need[order], distance, least_need)

    def _landing(self, state: int) -> list[tuple[int, int, int]]:
        """(effect, cost, need) of a token that leads to a state of the constraint: one for every configuration followed there."""
        if state not in self._landed:
            landing = self.partial_tokens.landings[state]
            at = landing.configurations
            self._landed[state] = [(self._effect(self._to(one)), landing.distance + 1, landing.need) for one in at]
        return self._landed[state]

    def _effect(self, effect: _Effect) -> int:
        return self.effects.setdefault(effect, len(self.effects))

    def _to(self, at: Configuration) -> _Effect:
        """The effect that leads from an empty stack, register 0 and no keys to a configuration."""
        target = _base(self.old.ladder, at.node, at.register)
        if not at.stack:
            return _Effect(target, add=at.register, guard=self._setting(at.used))
        push = self._string(at)
        return _Effect(target, push, at.stack[0].register, at.register, self._setting(at.stack[0].used), self._key_row(at.used))

    def _string(self, at: Configuration) -> int:
        """The number of the push string that makes a stack."""
        symbols = [_base(self.old.symbol_ladder, cell.symbol, cell.register) for cell in at.stack]
        registers = [0, *(cell.register for cell in at.stack[1:])]  # the first is the register of the frame left behind
        keys = [0, *(self._key_row(cell.used) for cell in at.stack[1:])]
        key = np.array([symbols, registers, keys]).tobytes()
        if key not in self._strings:
            self._strings[key] = len(self.old.push_offset) - 1 + len(self._pushes)
            self._pushes.append((symbols, registers, keys))
        return self._strings[key]

    def _key_row(self, used: int) -> int:
        """The row of `keys` with a set, which may be a new one."""
        return len(self.old.keys) + self._masks.setdefault(used, len(self._masks)) if used else 0

    def _setting(self, used: int) -> int:
        """The guard that allows every set and adds these keys."""
        return len(self.old.guards) + self._settings.setdefault(used, len(self._settings)) if used else 0

    def assembled(self) -> CompiledConstraint:
        """The constraint with the new nodes; its start is still the old one."""
        old, extra = self.old, len(self.nodes)
        parts = _Arrays(self, list(self.effects))
        for node in self.nodes:
            parts.add(node)
        at = self.first

        def moved(ids: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.where(ids >= at, ids + extra, ids).astype(np.int32)

        def per_node(values: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([values[:at], own.astype(values.dtype), values[at:]])

        def repeated(values: NDArray[Any]) -> NDArray[Any]:
            return per_node(values, np.repeat(values[:1], extra, axis=0))

        changes: dict[str, Any] = {
            "accept": repeated(old.accept),
            "distance": per_node(old.distance, np.array([node.distance for node in self.nodes])),
            "need": per_node(old.need, np.array([node.least_need for node in self.nodes])),
            "ladder": per_node(old.ladder, np.zeros((extra, 4))),
            "level_slope": per_node(old.level_slope, np.tile([0, 1, 0], (extra, 1))),
            "delta_offset": repeated(old.delta_offset),
            "delta": moved(old.delta),
        }
        if len(old.temperature):
            changes["temperature"] = repeated(old.temperature)  # the dead node has none
        if old.has_sets:
            for name in ("wanted", "pop_guard", "pop_offset"):
                changes[name] = repeated(getattr(old, name))
            changes["twin"] = moved(repeated(old.twin))
            words = old.keys.shape[1]
            masks = [np.frombuffer(used.to_bytes(4 * words, "little"), "<u4") for used in self._masks]
            changes["keys"] = np.concatenate([old.keys, np.array(masks, np.uint32).reshape(-1, words)])
            settings = [[0, 0, 0, self._key_row(used)] for used in self._settings]
            changes["guards"] = np.concatenate([old.guards, np.array(settings, np.int32).reshape(-1, 4)])
        if self._pushes:
            symbols, registers, keys = (np.concatenate(column).astype(np.int32) for column in zip(*self._pushes))
            ends = old.push_offset[-1] + np.cumsum([len(push[0]) for push in self._pushes])
            changes["push_offset"] = np.append(old.push_offset, ends).astype(np.int32)
            changes["push_symbol"] = np.append(old.push_symbol, symbols)
            changes["push_register"] = np.append(old.push_register, registers)
            if old.has_sets:
                changes["push_keys"] = np.append(old.push_keys, keys)
            changes["max_push"] = int(np.diff(changes["push_offset"]).max())
        return dataclasses.replace(old, **changes, **parts.arrays(moved))


class _Arrays:
    """Collects token sets, arcs and levels of the new nodes."""

    def __init__(self, made: _Prefixed, effects: list[_Effect]) -> None:
        self.old, self.at = made.old, made.first
        self._effects = np.array(effects, np.int64)
        self._pack_bits = (self.old.vocab_size + 31) // 32 * 32
        self._rows: dict[bytes, int] = {}
        self._groups: list[list[int]] = []
        self._arcs: list[NDArray[np.int64]] = []
        self._levels: list[list[int]] = []
        self._counts: list[list[int]] = []

    def add(self, node: _Node) -> None:
        """Stores the next node."""
        size = np.bincount(node.effect, minlength=len(self._effects))
        wide = (size > NARROW) & (self._effects[:, 4:] == 0).all(1)  # only arcs can have a guard or keys
        of_group = wide[node.effect]
        for effect in np.flatnonzero(wide & (size > 0)).tolist():
            self._groups.append([self._row(node.token[node.effect == effect]), *self._effects[effect, :4].tolist()])
        columns = (node.token, node.effect, node.cost, node.need)
        self._arcs.append(np.stack([column[~of_group] for column in columns], 1))
        levels = 0
        if of_group.any() or len(self._arcs[-1]) > ARC_BURST:
            for cost, need, tokens in _levels(node):
                self._levels.append([cost, need, self._row(tokens)])
                levels += 1
        self._counts.append([int((wide & (size > 0)).sum()), len(self._arcs[-1]), levels])

    def _row(self, tokens: NDArray[np.int64]) -> int:
        bits = np.zeros(self._pack_bits, bool)
        bits[tokens] = True
        row = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
        return self._rows.setdefault(row.tobytes(), len(self.old.rows) + len(self._rows))

    def arrays(self, moved: Any) -> dict[str, Any]:
        """The changed arrays: of rows, groups, arcs, effects and levels."""
        old = self.old
        counts = np.array(self._counts, np.int64)
        rows = [np.frombuffer(row, np.uint32) for row in self._rows]
        groups = np.array(self._groups, np.int64).reshape(-1, 5)
        levels = np.array(self._levels, np.int64).reshape(-1, 3)
        arcs = np.concatenate([np.zeros((0, 4), np.int64), *self._arcs])
        own = self._effects[arcs[:, 1]]
        sets = (own[:, 4], own[:, 5]) if old.has_sets else ()
        effects, numbers = arc_effects(*own[:, :4].T, arcs[:, 2], arcs[:, 3], *sets)
        known = old.effects.copy()
        known[:, 0] = moved(known[:, 0])
        out: dict[str, Any] = {
            "rows": np.concatenate([old.rows, np.array(rows, np.uint32).reshape(-1, old.rows.shape[1])]),
            "effects": np.concatenate([known, effects[1:]]),
        }
        number = np.where(numbers > 0, numbers + len(known) - 1, 0)
        for kind, column, fields in (
            ("group", 0, zip(("row", "next", "push", "add", "set"), groups.T)),
            ("arc", 1, (("token", arcs[:, 0]), ("effect", number))),
            ("level", 2, zip(("cost", "need", "row"), levels.T)),
        ):
            offset = getattr(old, f"{kind}_offset").astype(np.int64)
            place = int(offset[self.at])
            total = int(counts[:, column].sum())
            ends = place + np.cumsum(counts[:, column])
            out[f"{kind}_offset"] = np.concatenate([offset[: self.at + 1], ends, offset[self.at + 1 :] + total]).astype(np.int32)
            for name, values in fields:
                before = moved(old.group_next) if name == "next" else getattr(old, f"{kind}_{name}")
                joined = np.concatenate([before[:place], values, before[place:]])
                out[f"{kind}_{name}"] = joined.astype(before.dtype)
        return out


def _levels(node: _Node) -> list[tuple[int, int, NDArray[np.int64]]]:
    """(cost, need, tokens within both), by cost, then need; those that add nothing are left out."""
    kinds, of_token = np.unique(np.stack([node.cost, node.need], 1), axis=0, return_inverse=True)
    of_token = of_token.ravel()
    costs, needs = np.unique(kinds[:, 0]).tolist(), np.unique(kinds[:, 1]).tolist()
    if len(costs) * len(needs) > _MOST_LEVELS:
        costs = sorted({node.distance, *costs[:: -(-len(costs) * len(needs) // _MOST_LEVELS)], costs[-1]})
    out, seen = [], {}
    for i, cost in enumerate(costs):
        for j, need in enumerate(needs):
            within = (kinds[:, 0] <= cost) & (kinds[:, 1] <= need)
            seen[i, j] = within
            if within.any() and not any((seen.get(k, ~within) == within).all() for k in ((i - 1, j), (i, j - 1))):
                out.append((cost, need, node.token[within[of_token]]))
    return out


def _base(ladder: NDArray[np.int32], effective: int, register: int) -> int:
    """An entry from which a register leads to an effective one: itself, if it stays where it is."""
    if rung(ladder[effective], register) == 0:
        return effective
    every = ladder.astype(np.int64)
    rungs = sum(np.clip(register - every[:, k], 0, every[:, k + 1]) for k in (0, 2))
    return int(np.flatnonzero(np.arange(len(ladder)) + rungs == effective)[0])
