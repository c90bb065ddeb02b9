"""`Controls`: the byte machine while it is being built. Controls are made on demand and equal ones are one.

A control reads bytes by its own moves; where it has none it may *call*: push a stack symbol and go on as the callee's entry.
A control with an outcome is the end of its frame: it returns, and the symbol on the stack says where that outcome leads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from fsa_compile.errors import LimitError
from fsa_compile.limits import Deadline

Moves: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""(first byte, last byte, next control), disjoint."""
Bounds: TypeAlias = "tuple[int, int]"
"""Lower and upper bound of the loop that a frame counts; upper bound -1: none."""

_DOING = "Building the byte machine of the schema"


class Controls:
    """A growing pushdown automaton over bytes; control 0 is dead.

    Attributes:
      moves: own moves per control.
      outcome: per control the outcome with which its frame may end there, 0 for none.
      calls: (symbol, entry control) pairs of the controls that call; the entries' bytes are disjoint.
      bounds: of the controls of counted frames.
      adds: controls whose own moves start one more iteration of their frame's loop.
      potential: of some counted controls, what a move to them adds to the register on top, and a move from them takes off.
      symbols: per stack symbol, control to return to by outcome.
      symbol_names: per stack symbol, what it waits for, in the user's words: keys, most often one.
      required: by kind of frame with a set of keys, from kind 1 on, the keys that it must have at its end.
      kind: kinds of the controls of such frames that stand before a key or after a member.
      firsts: those of them before the first key.
      before: those of them from which a key is begun.
      closing: of those after a member that may end the frame, the keys that must have come.
      key_ends: controls that stand after a key, and that key's bit; -1 where its key is not remembered.
      value_ends: moves (from a control, to a control) that end an element of an array whose elements differ, and its bit: to such
        an array, values are what keys are to an object.
      strays: controls at which a frame ends with another outcome than is hoped for (see `schema_pushdown.Aims`).
      needed: what frames must be able to read, by control: of each list of controls, at least the number given with it.
    """

    def __init__(self, max_controls: int, deadline: Deadline) -> None:
        self.moves: list[Moves] = [()]
        self.outcome = [0]
        self.calls: dict[int, tuple[tuple[int, int], ...]] = {}
        self.bounds: dict[int, Bounds] = {}
        self.adds: set[int] = set()
        self.potential: dict[int, int] = {}
        self.symbols: list[dict[int, int]] = []
        self.symbol_names: list[dict[str, None]] = []
        self.required: list[int] = []
        self.kind: dict[int, int] = {}
        self.firsts: set[int] = set()
        self.before: set[int] = set()
        self.closing: dict[int, int] = {}
        self.key_ends: dict[int, int] = {}
        self.value_ends: dict[tuple[int, int], int] = {}
        self.strays: set[int] = set()
        self.needed: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        self._max_controls, self._deadline = max_controls, deadline
        self._known: dict[Hashable, int] = {}
        self._symbol_number: dict[tuple[tuple[int, int], ...], int] = {}
        self._copies: list[tuple[int, Callable[[int], None]]] = []
        self._todo: list[tuple[int, Callable[[int], None]]] = []

    def new(self, moves: Moves = (), outcome: int = 0, bounds: Bounds | None = None) -> int:
        """A control of its own."""
        number = len(self.moves)
        if number > self._max_controls:
            raise LimitError(
                "max_controls", self._max_controls, _DOING,
                fix="Split the schema, or raise SchemaOptions.max_controls.",
            )  # fmt: skip
        self.moves.append(moves)
        self.outcome.append(outcome)
        if bounds is not None:
            self.bounds[number] = bounds
        return number

    def new_kind(self, required: int) -> int:
        """A kind of frames with a set of keys, of which some are required."""
        self.required.append(required)
        return len(self.required)

    def later(self, key: Hashable, make: Callable[[int], None]) -> int:
        """The control of a key; `make(control)` gives a new one its moves, when `finish` comes to it."""
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = self.new()
            self._todo.append((number, make))
        return number

    def node(self, moves: Iterable[tuple[int, int, int]], bounds: Bounds | None = None) -> int:
        """The control that has exactly these moves; equal ones are one. No moves: 0, the dead control."""
        moves = tuple(moves)
        if not moves:
            return 0
        key = (moves, bounds)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = self.new(moves, 0, bounds)
        return number

    def chain(self, text: bytes, target: int) -> int:
        """The control that reads a text on the way to another."""
        known = self._known
        for byte in reversed(text):
            key = (((byte, byte, target),), None)
            number = known.get(key)
            if number is None:
                number = known[key] = self.new(key[0])
            target = number
        return target

    def key_end(self, bit: int, control: int, owner: Hashable) -> int:
        """The control that does what another does, after a key with a bit (-1: none); every owner has one of its own."""
        number = self._known.get(("key end", bit, control, owner))
        if number is None:
            number = self._known["key end", bit, control, owner] = self.new(self.moves[control])
            if control in self.calls:
                self.calls[number] = self.calls[control]
            self.key_ends[number] = bit
        return number

    def final(self, outcome: int) -> int:
        """The control at which a frame ends with an outcome."""
        number = self._known.get(("final", outcome))
        if number is None:
            number = self._known["final", outcome] = self.new((), outcome)
        return number

    def symbol(self, returns: tuple[tuple[int, int], ...], name: str = "") -> int:
        """The stack symbol that leads from (outcome) to (control), and what it waits for."""
        number = self._symbol_number.get(returns)
        if number is None:
            number = self._symbol_number[returns] = len(self.symbols)
            self.symbols.append(dict(returns))
            self.symbol_names.append({})
        if name:
            self.symbol_names[number][name if len(name) <= 40 else name[:39] + "…"] = None
        return number

    def caller(self, symbol: int, entry: int) -> int:
        """The control that only calls."""
        number = self._known.get(("caller", symbol, entry))
        if number is None:
            number = self._known["caller", symbol, entry] = self.new()
            self.add_call(number, symbol, entry)
        return number

    def add_call(self, control: int, symbol: int, entry: int) -> None:
        """Lets a control call: the bytes of the entry push the symbol."""
        self.calls[control] = (*self.calls.get(control, ()), (symbol, entry))

    def spaced(self, byte: int, control: int, bounds: Bounds | None = None) -> int:
        """The control that does what another does, and may read one byte before."""
        number = self._known.get(("spaced", byte, control))
        if number is None:

            def make(made: int) -> None:
                self.moves[made] = (*self.moves[control], (byte, byte, control))
                if control in self.calls:
                    self.calls[made] = (*self.calls.get(made, ()), *self.calls[control])

            number = self._known["spaced", byte, control] = self.new((), 0, bounds)
            self._copies.append((number, make))
        return number

    def finish(self) -> None:
        """Gives every control that is still owed its moves."""
        count = 0
        while self._todo:
            number, make = self._todo.pop()
            make(number)
            count += 1
            if not count & 255:
                self._deadline.check(_DOING)
        for number, make in self._copies:  # what they copy is complete now
            make(number)
        self._copies.clear()
