"""Free text before a machine: any text, and after the first occurrence of a trigger the machine's."""

from __future__ import annotations

import re

import numpy as np

from fsa_compile.automata.pushdown import END_HERE, NO_END, UNCOUNTED, ByteMachine
from fsa_compile.errors import ConstraintError
from fsa_compile.languages import constructors as languages
from fsa_compile.limits import CompileLimits, Deadline


def text_then(machine: ByteMachine, trigger: str, limits: CompileLimits, deadline: Deadline) -> ByteMachine:
    """The machine of the texts without the trigger, and of those in which a text of `machine` follows its first occurrence.

    Args:
      machine: over bytes alone, without special tokens.
      trigger: not empty.

    Raises:
      ConstraintError: the trigger is empty, or no text.
    """
    if not trigger:
        raise ConstraintError("the trigger is empty", fix='Use a text that stands before every call, such as "<tool_call>".')
    mark = re.escape(trigger)
    dfa = languages.regex(f"(?s:(?:(?!{mark}).)*(?:{mark})?)").to_byte_dfa(limits, deadline)
    full = dfa.table[:, dfa.byte_class].astype(np.int64)
    done = np.flatnonzero(dfa.final & ~full.any(1))  # after the trigger nothing more is read: one state
    assert len(done) == 1
    base, size = machine.num_controls, dfa.num_states
    classes = machine.byte_class[:256].astype(np.int64) * (int(dfa.byte_class.max()) + 1) + dfa.byte_class
    _, first, byte_class = np.unique(classes, return_index=True, return_inverse=True)
    number = _Added(machine, base, size, int(done[0]))
    action = np.zeros((base + size, len(first)), np.int32)
    action[:base] = machine.action[:, machine.byte_class[first]]
    action[base:] = number.action[full[:, first]]
    return ByteMachine(
        byte_class=byte_class.ravel().astype(np.int32),
        specials=machine.specials,
        action=action,
        entry_offset=number.entry_offset,
        entry_next=number.entry_next,
        entry_push=number.entry_push,
        entry_add=np.append(machine.entry_add, np.zeros(size - 1, np.int8)).astype(np.int8),
        pushes=(*machine.pushes, *([tuple((symbol, 0) for symbol in machine.stack)] if machine.stack else [])),
        ret=np.vstack([machine.ret, np.zeros((size, machine.num_symbols), machine.ret.dtype)]),
        end=np.append(machine.end, np.where(dfa.final & (np.arange(size) != done[0]), END_HERE, NO_END)).astype(np.int8),
        bounds=np.vstack([machine.bounds, np.full((size, 2), UNCOUNTED, machine.bounds.dtype)]),
        start=base + dfa.start,
        stack=(),
        control_names=(*machine.control_names, *["text"] * size) if machine.control_names else (),
        symbol_names=machine.symbol_names,
        deterministic=machine.deterministic,
        sets=machine.sets and machine.sets.extended(size, size - 1),
    )


class _Added:
    """The machine's entries, and one more for every state that the text can lead to."""

    def __init__(self, machine: ByteMachine, base: int, size: int, done: int) -> None:
        target = np.arange(1, size)
        last = int(machine.entry_offset[-1])
        self.action = np.append(0, len(machine.entry_offset) - 2 + target).astype(np.int32)
        self.entry_offset = np.append(machine.entry_offset, last + target).astype(np.int32)
        self.entry_next = np.append(machine.entry_next, np.where(target == done, machine.start, base + target)).astype(np.int32)
        push = len(machine.pushes) if machine.stack else 0
        self.entry_push = np.append(machine.entry_push, np.where(target == done, push, 0)).astype(np.int32)

