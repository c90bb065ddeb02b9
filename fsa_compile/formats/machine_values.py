"""Machines as values in other text."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.artifact.arrays import NO_TEMPERATURE
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, UNCOUNTED, ByteMachine


def as_value(machine: ByteMachine) -> ByteMachine:
    """A machine whose texts end by a return through one symbol into one control, as those of schemas do.

    Args:
      machine: without a stack at first.
    """
    assert not machine.stack
    size, symbols = machine.ret.shape
    ret = np.zeros((size + 1, symbols + 1), machine.ret.dtype)
    ret[:size, :symbols] = machine.ret
    ends = np.flatnonzero(machine.end == END_HERE)
    ret[ends, symbols] = size
    end = np.append(machine.end, END_HERE).astype(machine.end.dtype)
    end[ends] = END_RETURN
    sets = machine.sets and machine.sets.extended(1, 0)
    names = (*machine.control_names, "end") if machine.control_names else ()
    heat = None if machine.temperature is None else np.append(machine.temperature, np.float32(NO_TEMPERATURE))
    return dataclasses.replace(
        machine, action=np.vstack([machine.action, np.zeros((1, machine.action.shape[1]), machine.action.dtype)]), ret=ret,
        end=end, bounds=np.vstack([machine.bounds, np.full((1, 2), UNCOUNTED, machine.bounds.dtype)]), stack=(symbols,),
        control_names=names, symbol_names=(*machine.symbol_names, "end") if machine.symbol_names else (), sets=sets,
        temperature=heat,
    )  # fmt: skip
