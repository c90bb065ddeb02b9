"""Token sets of machines whose frames have sets of keys: guards told apart from registers, and targets by what is still wanted.

At a control before or in a key, it matters to the bounds of the rest whether one of the required keys that may come next is
still to come (then reading it is progress) or not (then the next key is one more than there must be). So token sets that lead to
such a control are split by a condition of their own, and each half has the cost of its case.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.arrays.integers import equal_tuples, firsts
from fsa_compile.arrays.ranges import spread
from fsa_compile.artifact.guards import IMPOSSIBLE, Guard, Guards, KeySets, composed
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.arcs import StackArcs
from fsa_compile.composition.pushdown.call_sets import PushStrings
from fsa_compile.composition.pushdown.token_groups import Groups, GroupSets


def with_sets(machine: ByteMachine, arcs: StackArcs, groups: Groups) -> Groups:
    """The token sets with their guards apart; the registers of frames with sets are 0."""
    if machine.sets is None:
        return groups
    registers = arcs.registers
    plain = ~registers.counted
    effects = groups.effects.at(groups.effect)
    own, target = arcs.kind[groups.node], registers.of_control[effects.target]
    guard = np.where(plain[own], effects.add, 0)
    held = np.where(registers.set_kind[target] > 0, effects.set, 0)
    strings, kept = [], []
    for string in groups.strings:
        keyed = [bool(plain[registers.of_symbol[symbol]]) for symbol, _ in string]
        strings.append(tuple((symbol, 0 if k else register) for (symbol, register), k in zip(string, keyed)))
        kept.append(tuple(register if k and registers.set_kind[registers.of_symbol[symbol]] else 0
                          for (symbol, register), k in zip(string, keyed)))  # fmt: skip
    add, final = np.where(plain[own], 0, effects.add), np.where(plain[target], 0, effects.set)
    cleaned = groups.with_effects(add, final, PushStrings.of(strings))
    fresh = registers.set_kind[own] == 0
    return _split(machine.sets, arcs, cleaned, _known_empty(arcs, guard, fresh), held, fresh, kept)


def _known_empty(arcs: StackArcs, guard: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Guards, decided where the set begins within the token without a push: where a text's first value becomes an object."""
    out = guard.copy()
    at = (fresh & (guard > 0)).nonzero()[0]
    out[at] = [arcs.guards.composition(0, number, known=True) for number in guard[at].tolist()]
    return out


def _split(
    sets: KeySets, arcs: StackArcs, groups: Groups, guard: np.ndarray, held: np.ndarray, fresh: np.ndarray,
    strings: list[tuple[int, ...]],
) -> Groups:  # fmt: skip
    """The token sets that can be, split where both cases of their targets are possible.

    Args:
      guard: int64[G], IMPOSSIBLE for those that cannot be.
      fresh: bool[G], their set was empty before.
    """
    guards = arcs.guards
    required, others = sets.required_next, sets.others_next
    wanting = np.array([mask > 0 for mask in required])
    possible, effects = guard != IMPOSSIBLE, groups.effects.at(groups.effect)
    at = (wanting[effects.target] & possible).nonzero()[0]
    masks: dict[int, int] = {}
    mask = np.array([masks.setdefault(one, len(masks)) for one in required])[effects.target[at]]
    example, which = equal_tuples(mask, guard[at], effects.push[at] > 0, held[at], fresh[at], others[effects.target[at]])
    rows: list[list[tuple[int, bool]]] = [[] for _ in example]
    for number in example.argsort().tolist():  # guards are numbered as they occur
        g = int(at[example[number]])
        rows[number] = _halves(guards, int(guard[g]), required[effects.target[g]], bool(others[effects.target[g]]),
                               int(held[g]) if effects.push[g] else int(guard[g]) if fresh[g] else None)  # fmt: skip
    size = np.array([len(some) for some in rows], np.int64)
    half = np.array([one for some in rows for one in some], np.int64).reshape(-1, 2)
    of, row = spread((size.cumsum() - size)[which], size[which])
    rest = (~wanting[effects.target] & possible).nonzero()[0]
    index = np.concatenate((rest, at[of]))
    order = np.argsort(index, kind="stable")
    index = index[order]
    guarded = np.concatenate((guard[rest], half[row, 0]))[order]
    wants = np.concatenate((np.zeros(len(rest), bool), half[row, 1] > 0))[order]
    names = ("node", "effect", "leaf")
    return dataclasses.replace(
        groups,
        **{name: getattr(groups, name)[index] for name in names},
        first=firsts(groups.node[index], len(groups.first) - 1),
        sets=GroupSets(guards, guarded, held[index], wants, strings),
    )


def _halves(guards: Guards, number: int, required: int, has_others: bool, known: int | None) -> list[tuple[int, bool]]:
    """The guards of a token set that leads to where required keys may come, and whether some of these have not come then.

    Args:
      number: its guard.
      required: the keys.
      has_others: whether other keys may come there.
      known: the guard that says what has come, where the frame began within the token; else None.
    """
    if known is not None:
        return [(number, bool(required & ~guards.all[known].set))]
    if not has_others:
        return [(number, True)]
    halves = (composed(guards.all[number], condition) for condition in (Guard((required,)), Guard((), required)))
    return [(guards.number(both), wanted) for both, wanted in zip(halves, (True, False)) if both is not None]
