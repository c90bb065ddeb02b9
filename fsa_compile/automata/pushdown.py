"""`ByteMachine`: the pushdown byte automaton with counters between the grammar front ends and the token walk. NumPy only.

A configuration is (control, register, stack). Every frame of the network (a rule that is called) has one integer register,
which counts the iterations of the frame's counted loop, if it has one; a call saves the caller's register in the pushed cell,
a return restores it. A regular automaton is the special case without pushes (`ByteDfa` remains its own, leaner form).

Reading a symbol (a byte, or 256 + i for special token i) in control c:

* the entries of `action[c, class]` are the moves; each leads to a control of the same frame, or, with a push string, through
  one or more calls into a callee's control; or it is RETURN: pop the top cell, go to `ret[c, symbol]`, and look at the same
  symbol again.
* `add` starts one more iteration of a counted loop: allowed only while the register is below the loop's upper bound, and
  raises it by one (by more where the register says how long a text will be at least). In a push string every pushed symbol has
  an `add` of its own, for the frame that it suspends, before it is suspended. A new frame's register is 0; the entry's own `add`
  belongs to the frame it ends in.
* RETURN, and accepting, need the register to be at least the lower bound, in a frame that counts.
* where the machine has `sets`, every frame also has a bit set, empty at first, saved and restored like the register; a guarded
  entry is enabled only where its guard allows the set, and adds to it before anything is pushed.

At most one entry is enabled for every register in a deterministic machine; a nondeterministic one is for K stacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import occupied
from fsa_compile.artifact.guards import KeySets

RETURN = -1
"""Value of `next`: pop, then look at the same symbol again."""
NO_END, END_HERE, END_RETURN = 0, 1, 2
"""Values of `end`: no text ends here; it may end here; pop, then look again."""
UNCOUNTED = -1
"""Bound of a frame that counts nothing."""


class Configuration(NamedTuple):
    """control; its frame's register; suspended frames, bottom first, as (symbol, register) pairs; the frame's bit set, and those
    of the suspended frames."""

    control: int
    register: int
    stack: tuple[tuple[int, int], ...]
    used: int = 0
    kept: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ByteMachine:
    """A trimmed pushdown automaton over bytes and special tokens.

    Axes: S controls (0 is dead), C symbol classes, A actions (0 is none), E entries, P stack symbols, T special tokens.

    Attributes:
      byte_class: int32[256 + T], class of every byte and special token.
      specials: token ids of the special tokens, in the order of their symbols.
      action: int32[S, C], 0 where nothing can be read.
      entry_offset: int32[A + 1]; entries of action a are `entry_offset[a]:entry_offset[a + 1]`.
      entry_next: int32[E], a control or RETURN.
      entry_push: int32[E], index into `pushes`; 0 is the empty push string.
      entry_add: int8[E], what the move adds to the register; 0 or 1, but in frames that bound the length of a text.
      pushes: push strings, bottom first, each of (symbol, add of the frame it suspends).
      ret: int32[S, P], control after returning from control s through symbol p; 0 where that cannot be.
      end: int8[S], NO_END, END_HERE or END_RETURN.
      bounds: int32[S, 2], lower and upper bound of the loop that the control's frame counts, else UNCOUNTED twice.
      start: initial control (register 0).
      stack: initial stack symbols, bottom first (registers 0).
      control_names, symbol_names: what they stand for, in the grammar's words; may be empty.
      strays: int[n], controls whose endings are in no plan: bounds charge them, not the symbols that they pop; None: none is.
      deterministic: whether at most one entry is enabled in every configuration.
      sets: guards on the bit sets of frames; None where no entry has one.
      token_reserve: int32[S], of controls in frames whose register counts tokens (and no bytes), the fewest tokens after which
        the frame may end, which the register holds as well; -1 elsewhere. None where no frame counts tokens. Only special tokens
        and the end of the text end such a frame, and `entry_add` of the entry that begins it is 1. `step` does not count these.
      temperature: float32[S], greatest temperature of the lexemes that the next symbol may begin or go on in the control's own
        frame or in one that it calls; NO_TEMPERATURE where none has one. None: none anywhere.
    """

    byte_class: np.ndarray
    specials: tuple[int, ...]
    action: np.ndarray
    entry_offset: np.ndarray
    entry_next: np.ndarray
    entry_push: np.ndarray
    entry_add: np.ndarray
    pushes: tuple[tuple[tuple[int, int], ...], ...]
    ret: np.ndarray
    end: np.ndarray
    bounds: np.ndarray
    start: int
    stack: tuple[int, ...]
    control_names: tuple[str, ...] = ()
    symbol_names: tuple[str, ...] = ()
    strays: np.ndarray | None = None
    deterministic: bool = True
    sets: KeySets | None = None
    token_reserve: np.ndarray | None = None
    temperature: np.ndarray | None = None

    @property
    def num_controls(self) -> int:
        """S, the dead control included."""
        return len(self.end)

    @property
    def num_symbols(self) -> int:
        """P, stack symbols."""
        return self.ret.shape[1]

    @cached_property
    def returns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(control, symbol, control after the return) int64[*] each, of all entries of `ret`, by control."""
        some = np.flatnonzero(self.ret.max(1, initial=0))
        row, symbol = occupied(self.ret[some])
        control = some[row]
        return control, symbol, self.ret[control, symbol].astype(np.int64)

    @cached_property
    def cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(control, class, action) int64[*] each, wherever something can be read, by control, then class: most controls read one
        byte, and so this is a small part of `action`."""
        control, symbol = occupied(self.action)
        return control, symbol, self.action[control, symbol].astype(np.int64)

    @property
    def initial(self) -> Configuration:
        """The configuration before the first byte."""
        return Configuration(self.start, 0, tuple((symbol, 0) for symbol in self.stack), 0, (0,) * len(self.stack))

    def step(self, configurations: Iterable[Configuration], symbol: int) -> set[Configuration]:
        """All configurations after reading one symbol. Slow and plain: the reference for everything built from the machine."""
        return {after for _, after in self.moves(configurations, symbol)}

    def moves(self, configurations: Iterable[Configuration], symbol: int) -> set[tuple[Configuration, Configuration]]:
        """The same, each behind the configuration that reads the symbol: there, what ends with this symbol has returned."""
        out, todo = set(), list(configurations)
        kind = int(self.byte_class[symbol])
        while todo:
            here = todo.pop()
            action = self.action[here.control, kind]
            for e in range(self.entry_offset[action], self.entry_offset[action + 1]):
                if self.entry_next[e] == RETURN:
                    todo += self.returned(here)
                elif (there := self.moved(here, e)) is not None:
                    out.add((here, there))
        return out

    def run(self, data: Iterable[int], configurations: Iterable[Configuration] | None = None) -> set[Configuration]:
        """All configurations after reading symbols from the given configurations (default: the initial one)."""
        current = {self.initial} if configurations is None else set(configurations)
        for symbol in data:
            current = self.step(current, symbol)
        return current

    def may_end(self, configurations: Iterable[Configuration]) -> bool:
        """Whether the text may end in one of the configurations."""
        todo = list(configurations)
        while todo:
            here = todo.pop()
            end = self.end[here.control]
            if end == END_HERE and self.enough(here):
                return True
            if end == END_RETURN:
                todo += self.returned(here)
        return False

    def accepts(self, data: Iterable[int]) -> bool:
        """Whether the machine accepts a string of symbols."""
        return self.may_end(self.run(data))

    def enough(self, here: Configuration) -> bool:
        """Whether the loop of the present frame has come as often as it must."""
        return here.register >= self.bounds[here.control, 0]  # UNCOUNTED is below every register

    def returned(self, here: Configuration) -> list[Configuration]:
        """The configuration after a return, none where it cannot be; of a stack, the topmost cell must be known."""
        if not here.stack or not self.enough(here):
            return []
        symbol, register = here.stack[-1]
        control = int(self.ret[here.control, symbol])
        return [Configuration(control, register, here.stack[:-1], here.kept[-1], here.kept[:-1])] if control else []

    def moved(self, here: Configuration, entry: int) -> Configuration | None:
        """The configuration after a move; None when a loop is full or its guard forbids it. Bounds of callee frames are at least
        1."""
        control, register, stack = int(self.entry_next[entry]), here.register, here.stack
        used, kept = here.used, here.kept
        if self.sets is not None:
            guard = self.sets.guards[self.sets.entry[entry]]
            if not guard.allows(used):
                return None
            used |= guard.set
        high = int(self.bounds[here.control, 1])
        for symbol, add in self.pushes[self.entry_push[entry]]:
            register += add
            if high != UNCOUNTED and register > high:
                return None
            stack += ((symbol, register),)
            kept += (used,)
            register, high, used = 0, UNCOUNTED, 0
        register += int(self.entry_add[entry])
        if 0 <= int(self.bounds[control, 1]) < register:
            return None
        return Configuration(control, register, stack, used, kept)
