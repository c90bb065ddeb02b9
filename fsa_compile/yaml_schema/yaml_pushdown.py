"""Controls of YAML frames to `ByteMachine`: as for JSON, but one symbol may end many frames at once."""

from __future__ import annotations

import numpy as np

from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, ByteMachine
from fsa_compile.json_schema.machine_builder import Controls
from fsa_compile.json_schema.schema_pushdown import MoveTable, Reach, assembled


def byte_machine(controls: Controls, reach: Reach, start: int, symbol: int, ends: tuple[int, ...]) -> ByteMachine:
    """The machine of a finished, unpoisoned pool.

    Args:
      reach: what its controls reach.
      symbol: stack symbol below it.
      ends: the controls at which a text may end.
    """
    live = reach.live(start, symbol)
    number = np.zeros(len(controls.moves), np.int32)
    number[live] = np.arange(1, len(live) + 1)
    moves = MoveTable(controls, reach, live, number, symbol)
    action, byte_class = moves.action()
    end_of = np.full(len(live) + 1, NO_END, np.int8)
    end_of[number[list(ends)]] = END_HERE
    end_of[0] = NO_END
    ret = _returns(controls, live, number, moves)
    _let_return(controls, live, number, ret, action, end_of, len(moves.entries) + 1)
    return assembled(controls, number, moves, action, byte_class, ret, end_of, (symbol, start))


def _returns(controls: Controls, live: list[int], number: np.ndarray, moves: MoveTable) -> np.ndarray:
    """int32[S, P], the control after a return, by what ends and the symbol below."""
    ret = np.zeros((len(live) + 1, len(moves.symbols)), np.int32)
    of_outcome: dict[int, np.ndarray] = {}
    for control in live:
        outcome = controls.outcome[control]
        if outcome:
            if outcome not in of_outcome:
                of_outcome[outcome] = number[[controls.symbols[y].get(outcome, 0) for y in moves.symbols]]
            ret[number[control]] = of_outcome[outcome]
    return ret


def _let_return(
    controls: Controls, live: list[int], number: np.ndarray, ret: np.ndarray, action: np.ndarray, end_of: np.ndarray, leave: int
) -> None:
    """Lets frames end on what can be read after the return, which may be the end of the next frame: to a fixpoint."""
    ending: dict[int, list[int]] = {}
    for control in live:
        if controls.outcome[control]:
            ending.setdefault(controls.outcome[control], []).append(int(number[control]))
    groups = []
    for members in ending.values():
        after = np.unique(ret[members[0]])
        groups.append((np.array(members), after[after > 0]))
    changed = True
    while changed:
        changed = False
        for at, after in groups:
            readable = (action[after] != 0).any(0)
            new = readable & (action[at] == 0)
            if new.any():
                action[at] = np.where(new, leave, action[at])
                changed = True
            if (end_of[after] != NO_END).any() and (end_of[at] == NO_END).any():
                end_of[at] = END_RETURN
                changed = True
