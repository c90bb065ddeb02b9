"""JSON without a stack: the byte automaton of a schema's texts whose arrays and objects nest to a bounded depth.

Every stack that can occur within the bounds is written out, and what cannot be completed within them is cut, so that the result
needs no stack on the device and has no dead ends.

Source: Koo et al. 2024, §5.1 (depth-truncated JSON, limits k_O and k_A).
"""

from __future__ import annotations

import dataclasses
import sys
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.graphs import Numbers, moves, reach, useful
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, RETURN, ByteMachine, Configuration
from fsa_compile.errors import LimitError, UnsatisfiableSchemaError, UnsupportedSchemaError
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "Writing out the stacks of a schema"
_LOWER = "Lower SchemaOptions.max_object_depth and max_array_depth"


class Depths(NamedTuple):
    """How deep containers may nest: objects within objects, and arrays within arrays, whatever stands between; None: no bound."""

    objects: int | None
    arrays: int | None

    def __str__(self) -> str:
        return f"max_object_depth={self.objects}, max_array_depth={self.arrays}"


def depths_of(options: SchemaOptions) -> Depths:
    """The bounds that options ask for."""
    return Depths(options.max_object_depth, options.max_array_depth)


def without_counters(options: SchemaOptions) -> SchemaOptions:
    """The options under which no length is counted in a register and no array has a set; `max_length`, `max_count` and
    `max_unique` bound what is written out."""
    return dataclasses.replace(
        options, max_object_depth=None, max_array_depth=None, max_chain=sys.maxsize, max_string_chain=sys.maxsize,
        max_unique_states=sys.maxsize,
    )  # fmt: skip


class _Stack(NamedTuple):
    """The frames of a configuration.

    Attributes:
      symbols: of the suspended frames, bottom first.
      kinds: what runs above each of them: "{" an object, "[" an array, "-" anything else.
    """

    symbols: tuple[int, ...]
    kinds: str


def truncated(machine: ByteMachine, depths: Depths, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """The byte automaton of a schema's texts within bounds on their depth.

    Args:
      machine: of `schema_machine`, without counters.
      depths: the bounds.

    Raises:
      UnsatisfiableSchemaError: every value of the schema nests deeper.
      UnsupportedSchemaError: the schema recurs through containers that have no bound.
    """
    dfa = _Truncation(machine, depths, limits, deadline).automaton()
    if not dfa.start:
        raise UnsatisfiableSchemaError(
            f"every value of the schema nests deeper than {depths}", pointer="#",
            fix="Raise these depths, or leave them out: decoding then keeps a stack.",
        )  # fmt: skip
    return dfa


class _Truncation:
    """States are (stack, control) pairs; their keys are `number of the stack * S + control`, 0 for the dead one.

    In a machine of a schema without counters only arrays and objects call, and always on the first byte of what is called, so
    that this byte says what kind of frame begins. The initial frame becomes an array or an object by its own first byte.
    """

    def __init__(self, machine: ByteMachine, depths: Depths, limits: CompileLimits, deadline: Deadline) -> None:
        self._machine, self._depths, self._limits, self._deadline = machine, depths, limits, deadline
        self._width = machine.num_controls
        live = np.diff(machine.entry_offset) > 0
        entry = machine.entry_offset[:-1][live]
        self._next, self._push = np.zeros(len(live), np.int64), np.zeros(len(live), np.int64)
        self._next[live], self._push[live] = machine.entry_next[entry], machine.entry_push[entry]
        # brackets get classes of their own
        classes = machine.byte_class[:256].astype(np.int64) * 3
        classes[list(b"{[")] += [1, 2]
        distinct, self._byte_class = np.unique(classes, return_inverse=True)
        self._column = distinct // 3
        self._open = {int(self._byte_class[ord(kind)]): kind for kind in "{["}
        self._bounded = "".join(kind for kind, most in zip("{[", depths) if most is not None)
        self._frames: dict[int, np.ndarray] = {}
        self._near = _successors(machine, self._next, self._push)
        self._number: dict[_Stack, int] = {}
        self._stacks: list[_Stack] = []

    def automaton(self) -> ByteDfa:
        """The automaton, without what is not reached or leads nowhere; `start` is 0 when nothing is left."""
        if self._machine.sets is not None:
            return self._with_sets()
        start, bottom = self._machine.start, self._stack(_Stack(self._machine.stack, "-"))
        keys = [np.zeros(1, np.int64), np.array([bottom * self._width + start])]
        rows = [np.zeros((1, len(self._column)), np.int64), self._begun(self._rows(bottom, np.array([start])))]
        final = [np.zeros(1, bool), self._final(bottom, np.array([start]))]
        seen = set(np.concatenate(keys).tolist())
        todo = sorted(set(np.unique(rows[-1]).tolist()) - seen)
        while todo:
            stack, control = divmod(todo.pop(), self._width)
            here = self._frame(control)
            key = stack * self._width + here
            new = np.array([k not in seen for k in key.tolist()])
            here, key = here[new], key[new]
            if not len(key):
                continue
            seen.update(key.tolist())
            self._check(len(seen))
            keys.append(key)
            rows.append(self._rows(stack, here))
            final.append(self._final(stack, here))
            todo += sorted(set(np.unique(rows[-1]).tolist()) - seen)
        every = np.concatenate(keys)
        at = np.argsort(every)
        table = np.searchsorted(every[at], np.concatenate(rows)[at])
        first = int(np.searchsorted(every[at], keys[1][0]))
        return _useful(table, np.concatenate(final)[at], first, self._byte_class.astype(np.uint8))

    def _with_sets(self) -> ByteDfa:
        """The automaton of a machine that remembers keys: states are (configuration, kinds of its frames) pairs."""
        machine, dead = self._machine, (Configuration(0, 0, (), 0, ()), "")
        byte_of = np.zeros(len(self._column), np.int64)
        byte_of[self._byte_class[::-1]] = np.arange(256)[::-1]
        number = Numbers[tuple[Configuration, str]]([dead, (machine.initial, "-")])
        rows, final = list[np.ndarray](), list[bool]()
        for here, kinds in number.order:
            row = np.zeros(len(self._column), np.int64)
            for column in np.flatnonzero(machine.action[here.control][self._column]).tolist():
                opens = self._open.get(column, "")
                for reads, after in machine.moves([here], int(byte_of[column])):
                    symbols = tuple([symbol for symbol, _ in after.stack])
                    above = opens if reads == machine.initial or len(after.stack) > len(reads.stack) else ""
                    inside = (kinds[: len(symbols) - len(above)] + above).ljust(len(symbols), "-")
                    row[column] = number[after, inside] if self._stack(_Stack(symbols, inside)) >= 0 else 0
            rows.append(row)
            final.append(machine.may_end([here]))
            self._check(len(number))
        return _useful(np.stack(rows), np.array(final), 1, self._byte_class.astype(np.uint8))

    def _check(self, states: int) -> None:
        if states > self._limits.max_states:
            raise LimitError(
                "max_states", self._limits.max_states, _DOING,
                fix=f"{_LOWER}, leave both out to decode with a stack, or raise CompileLimits.max_states.",
            )  # fmt: skip
        self._deadline.check(_DOING)
        self._deadline.check_bytes(states * len(self._column) * 24, _DOING)

    def _frame(self, control: int) -> np.ndarray:
        """The controls of the same frame that a control may lead to, itself included."""
        found = self._frames.get(control)
        if found is None:
            found = self._frames[control] = np.array(sorted(reach([control], self._near.__getitem__)))
        return found

    def _begun(self, row: np.ndarray) -> np.ndarray:
        """The row of the start: after an opening bracket the initial frame is a container."""
        for column, kind in self._open.items():
            stack = self._stack(_Stack(self._machine.stack, kind))
            row[:, column] = np.where(row[:, column], stack * self._width + row[:, column] % self._width, 0) if stack >= 0 else 0
        return row

    def _stack(self, stack: _Stack) -> int:
        """The number of a stack, -1 when it is too deep."""
        found = self._number.get(stack)
        if found is None:
            if any(most is not None and stack.kinds.count(kind) > most for kind, most in zip("{[", self._depths)):
                return -1
            if len(self._bounded) < 2:
                self._check_recursion(stack)
            found = self._number[stack] = len(self._stacks)
            self._stacks.append(stack)
        return found

    def _check_recursion(self, stack: _Stack) -> None:
        """Refuses a stack that would grow for ever through containers that have no bound."""
        frames = list(zip(stack.symbols, stack.kinds))
        for below in frames[-2::-1] if stack.kinds and stack.kinds[-1] not in self._bounded else []:
            if below == frames[-1]:
                missing = "max_array_depth" if self._depths.arrays is None else "max_object_depth"
                raise UnsupportedSchemaError(
                    f"without {missing} the schema nests without end", pointer="#", fix=f"Give SchemaOptions.{missing} too.",
                )  # fmt: skip
            if below[1] in self._bounded:
                return

    def _rows(self, stack: int, control: np.ndarray) -> np.ndarray:
        """Keys of the states after every class, int64[n, C]."""
        action = self._machine.action[control][:, self._column]
        following, push = self._next[action], self._push[action]
        symbols, kinds = self._stacks[stack]
        out = np.where((following > 0) & (push == 0), stack * self._width + following, 0)
        at, column = ((following > 0) & (push > 0)).nonzero()
        pushed = push[at, column]
        for p, c in set(zip(pushed.tolist(), column.tolist())):
            ((symbol, _),) = self._machine.pushes[p]
            above = self._stack(_Stack((*symbols, symbol), kinds + self._open.get(c, "-")))
            if above >= 0:
                which = at[(pushed == p) & (column == c)]
                out[which, c] = above * self._width + following[which, c]
        returns = following == RETURN
        below = self._returned(stack, control, returns.any(1))
        if below is not None:
            at, place, there = below
            out[at] = np.where(returns[at], self._rows(place, there), out[at])
        return out

    def _final(self, stack: int, control: np.ndarray) -> np.ndarray:
        """Whether the text may end, bool[n]."""
        end = self._machine.end[control]
        out = end == END_HERE
        below = self._returned(stack, control, end == END_RETURN)
        if below is not None:
            at, place, there = below
            out[at] |= self._final(place, there)
        return out

    def _returned(self, stack: int, control: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, int, np.ndarray] | None:
        """Of the controls asked for: which can return, the stack below, and the controls there."""
        symbols, kinds = self._stacks[stack]
        if not symbols or not asked.any():
            return None
        there = self._machine.ret[control, symbols[-1]].astype(np.int64)
        at = (asked & (there > 0)).nonzero()[0]
        return (at, self._stack(_Stack(symbols[:-1], kinds[:-1])), there[at]) if len(at) else None


def _successors(machine: ByteMachine, following: np.ndarray, push: np.ndarray) -> list[set[int]]:
    """Per control others of its frame: those it moves to, and those where what it calls may return to."""
    out: list[set[int]] = [set() for _ in range(machine.num_controls)]
    back = [set(np.unique(column).tolist()) - {0} for column in machine.ret.T]
    source, kind = machine.action.nonzero()
    action = machine.action[source, kind]
    for s, t, p in {*zip(source.tolist(), following[action].tolist(), push[action].tolist())}:
        if p:
            out[s] |= back[machine.pushes[p][0][0]]
        elif t > 0:
            out[s].add(t)
    return out


def _useful(table: np.ndarray, final: np.ndarray, start: int, byte_class: np.ndarray) -> ByteDfa:
    """The automaton without states that are not reached or from which no text can be completed."""
    kept = useful(*moves(table), final, start)
    kept[0] = True
    number = np.where(kept, np.cumsum(kept) - 1, 0)
    return ByteDfa(number[table[kept]].astype(np.int32), byte_class, final[kept], int(number[start]))
