"""The token walk of machines with one counter and no stack: for every control and token, where it leads and what it counts.

As in `trie_walk`, what follows a token's first byte is walked over symbol strings from the controls that read whole classes of
bytes, and by a join with the trie from all others; here with the number of iterations begun on the way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, ByteMachine
from fsa_compile.composition.tokens.class_walk import entry_arcs, wide_states
from fsa_compile.composition.tokens.token_classes import TokenClasses, symbol_steps, token_classes_of
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "walking the vocabulary"
_PAIR_BYTES = 96
_MANY = 1024
"""Controls with fewer tokens over arcs into entries are joined."""
_CHUNK = 2_000_000
"""Walk that many (entry, string) pairs at a time."""


class CounterArcs(NamedTuple):
    """Every token of every control.

    Attributes:
      control, token, target, adds: int64[A] each; a token occurs once in a control.
    """

    control: np.ndarray
    token: np.ndarray
    target: np.ndarray
    adds: np.ndarray


class _Steps(NamedTuple):
    """What a control does at every byte: the next one int64[S, 256], and 1 where an iteration begins."""

    following: np.ndarray
    adds: np.ndarray


def walk_counter(machine: ByteMachine, tables: VocabularyTables, deadline: Deadline) -> CounterArcs:
    """Every token of every control, as if the loop had no bounds.

    Args:
      machine: one that `counts_alone`.
      tables: of the vocabulary.
      deadline: checked between levels.

    Raises:
      LimitError: out of time or memory.
    """
    steps = _steps(machine)
    twofold = _twofold(steps)
    wide = wide_states(twofold)
    source, byte, target = twofold.arcs
    by_entry = entry_arcs(twofold, tables, wide)
    even = source & 1 == 1  # states 1, 3, … are the controls, 2, 4, … the same after an odd number of iterations
    source, byte, target, by_entry = (source[even] + 1) >> 1, byte[even], (target[even] + 1) >> 1, by_entry[even]
    by_entry &= np.bincount(source[by_entry], tables.weight[byte[by_entry]], len(machine.end))[source] > _MANY
    plain = ~by_entry & (tables.root_child[byte] > 0)
    parts = [_join(steps, tables, source[plain], byte[plain], target[plain], deadline)]
    if by_entry.any():
        origins, bytes_, entries = source[by_entry], byte[by_entry], target[by_entry]
        parts += _entered(steps, twofold, wide, tables, origins, bytes_, entries, deadline)
    return CounterArcs(*[np.concatenate(column) for column in zip(*parts)])


def counts_alone(machine: ByteMachine) -> bool:
    """Whether the machine is one counted loop and nothing else, as this walk and `counter_artifact` take it for granted.

    It has no stack and no special tokens; the start begins an iteration at every byte that it reads; where the loop may end,
    these bytes do the same; and every iteration can be finished without beginning another.
    """
    if machine.num_symbols or machine.specials or not machine.deterministic or machine.num_controls < 2:
        return False
    if machine.bounds[1, 1] <= 0 or (machine.bounds[1:] != machine.bounds[1]).any() or (machine.end == END_RETURN).any():
        return False
    steps = _steps(machine)
    begins = steps.following[machine.start] > 0
    ends = machine.end == END_HERE
    if not ends[machine.start] or not steps.adds[machine.start][begins].all():
        return False
    alike = steps.following[ends][:, begins] == steps.following[machine.start][begins]
    if not alike.all() or not steps.adds[ends][:, begins].all():
        return False
    inside = (steps.following > 0) & (steps.adds == 0)
    finishes = ends.copy()
    while True:
        more = (inside & finishes[steps.following]).any(1) & ~finishes
        if not more.any():
            return bool(finishes[1:].all())
        finishes |= more


def _steps(machine: ByteMachine) -> _Steps:
    begin = machine.entry_offset[machine.action]
    live = machine.entry_offset[machine.action + 1] > begin
    at = np.where(live, begin, 0)
    following = np.where(live, machine.entry_next[at], 0).astype(np.int64)
    adds = np.where(live, machine.entry_add[at], 0)
    kind = machine.byte_class[:256]
    return _Steps(following[:, kind], adds[:, kind])


def _twofold(steps: _Steps) -> ByteDfa:
    """The automaton that also knows whether the number of iterations begun is odd: controls that differ in what they count
    on some byte of a class then lead to different states."""
    following, adds = steps
    even = np.where(following, 2 * following - 1 + adds, 0)
    odd = np.where(following, 2 * following - adds, 0)
    table = np.zeros((2 * len(following) - 1, 256), np.int32)
    table[1::2], table[2::2] = even[1:], odd[1:]
    return ByteDfa(table=table, byte_class=np.arange(256, dtype=np.uint8), final=np.zeros(len(table), bool), start=1)


def _join(
    steps: _Steps, tables: VocabularyTables, origin: np.ndarray, byte: np.ndarray, state: np.ndarray, deadline: Deadline
) -> CounterArcs:
    """Breadth-first join of controls and trie nodes, from the control after each first byte on."""
    node, adds = tables.root_child[byte], steps.adds[origin, byte].astype(np.int64)
    levels = []
    kept = 0
    while len(node):
        levels.append((origin, node, state, adds))
        kept += len(node)
        count = tables.trie_count[node]
        total = int(count.sum())
        deadline.check_bytes((total + kept) * _PAIR_BYTES, _DOING)
        deadline.check(_DOING)
        parent = np.repeat(np.arange(len(node)), count)
        child = np.arange(total) + np.repeat(tables.trie_first[node] - (np.cumsum(count) - count), count)
        here, read = state[parent], tables.trie_byte[child]
        reached = steps.following[here, read]
        on = reached.nonzero()[0]
        parent = parent[on]
        node, origin, adds = child[on], origin[parent], adds[parent] + steps.adds[here[on], read[on]]
        state = reached[on]
    if not levels:
        return CounterArcs(*[np.zeros(0, np.int64)] * 4)
    origin, node, state, adds = (np.concatenate(column) for column in zip(*levels))
    ends = (tables.trie_token[node] >= 0).nonzero()[0]
    found = CounterArcs(origin[ends], tables.trie_token[node[ends]].astype(np.int64), state[ends], adds[ends])
    if not len(tables.alias_offset):
        return found
    begin = tables.alias_offset[found.token].astype(np.int64)
    more = tables.alias_offset[found.token + 1] - begin
    which = np.repeat(np.arange(len(begin)), more)
    at = np.arange(len(which)) + np.repeat(begin - (np.cumsum(more) - more), more)
    aliases = CounterArcs(found.control[which], tables.alias_token[at].astype(np.int64), found.target[which], found.adds[which])
    return CounterArcs(*[np.concatenate(pair) for pair in zip(found, aliases)])


def _entered(
    steps: _Steps,
    twofold: ByteDfa,
    wide: np.ndarray,
    tables: VocabularyTables,
    source: np.ndarray,
    byte: np.ndarray,
    target: np.ndarray,
    deadline: Deadline,
) -> list[CounterArcs]:
    """Tokens over the given arcs (source, byte, target)."""
    token_classes, string_steps, _ = token_classes_of(tables, symbol_steps(twofold, wide))
    entries, which_entry = np.unique(target, return_inverse=True)
    deadline.check_bytes(len(entries) * (token_classes.num_strings + 1) * 8, _DOING)
    reached = np.zeros((len(entries), token_classes.num_strings + 1), np.int32)
    adds = np.zeros((len(entries), token_classes.num_strings + 1), np.int32)
    apart: list[tuple[np.ndarray, np.ndarray]] = []
    size = max(1, _CHUNK // max(1, token_classes.num_strings))
    for at in range(0, len(entries), size):
        deadline.check(_DOING)
        who, string = _walk_strings(token_classes, string_steps, entries[at : at + size], reached[at:], adds[at:])
        apart.append((who + at, string))
    order, offset = _by_first_byte(tables)
    parts, kept = [], 0
    for control in np.unique(source).tolist():
        mine = source == control
        entry_of = np.full(256, -1)
        entry_of[byte[mine]] = which_entry[mine]
        token = np.concatenate([order[offset[b] : offset[b + 1]] for b in byte[mine].tolist()])
        kept += len(token)
        deadline.check_bytes(kept * _PAIR_BYTES, _DOING)
        first = tables.first_byte[token]
        string = entry_of[first] * (token_classes.num_strings + 1) + token_classes.string_of[token]
        there = reached.ravel()[string]
        live = there.nonzero()[0]
        counted = adds.ravel()[string[live]] + steps.adds[control, first[live]]
        parts.append(
            CounterArcs(np.full(len(live), control), token[live], there[live].astype(np.int64), counted.astype(np.int64))
        )
        for who, strings in apart:
            if len(who):
                parts.append(_walk_apart(steps, tables, token_classes, control, entries, entry_of, who, strings))
    return parts


def _walk_strings(
    token_classes: TokenClasses, steps: np.ndarray, entries: np.ndarray, reached: np.ndarray, adds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Walks every symbol string from every entry.

    Args:
      token_classes: of the vocabulary's strings.
      steps: int64[2 S, C] of the twofold automaton, from `token_classes_of`; the last row is the marker for "byte by byte".
      entries: controls.
      reached, adds: int32[*, G + 1], filled in: control after the string, and iterations begun.

    Returns:
      (entry index, string) of the strings that have to be walked byte by byte.
    """
    marker = len(steps) - 1
    width = steps.shape[1]
    flat = steps.ravel()
    strings = np.arange(token_classes.num_strings)
    entry, string = np.repeat(np.arange(len(entries)), len(strings)), np.tile(strings, len(entries))
    state = 2 * entries[entry] - 1
    run, end = token_classes.offset[string], token_classes.offset[string + 1]
    count = np.zeros(len(entry), np.int64)
    handed = []
    left = token_classes.run_length[np.minimum(run, len(token_classes.run_length) - 1)]
    while len(entry):
        done = (run == end).nonzero()[0]
        reached[entry[done], string[done]] = (state[done] + 1) >> 1
        adds[entry[done], string[done]] = count[done]
        on = (run < end).nonzero()[0]
        entry, string, state, run, end, count, left = (x[on] for x in (entry, string, state, run, end, count, left))
        if not len(entry):
            break
        even = state - 1 + (state & 1)  # the walk counts itself: it always goes on from the even copy
        there = flat[even * width + token_classes.run_class[run]]
        told = there == marker
        if told.any():
            handed.append((entry[told], string[told]))
            there = np.where(told, 0, there)
        odd = (there > 0) & (there & 1 == 0)
        stays = (there + 1) >> 1 == (even + 1) >> 1
        taken = np.where(stays, left, 1)
        count = count + odd * taken
        state, left = there, left - taken
        over = (left == 0).nonzero()[0]
        run = run.copy()
        run[over] += 1
        left[over] = token_classes.run_length[np.minimum(run[over], len(token_classes.run_length) - 1)]
        alive = state.nonzero()[0]
        entry, string, state, run, end, count, left = (x[alive] for x in (entry, string, state, run, end, count, left))
    if not handed:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([h[0] for h in handed]), np.concatenate([h[1] for h in handed])


def _walk_apart(
    steps: _Steps,
    tables: VocabularyTables,
    token_classes: TokenClasses,
    control: int,
    entries: np.ndarray,
    entry_of: np.ndarray,
    who: np.ndarray,
    string: np.ndarray,
) -> CounterArcs:
    """Tokens of one control whose strings are walked byte by byte: `entry_of` is the entry index of each first byte, or -1."""
    which, token = token_classes.tokens_of(string)
    mine = (entry_of[tables.first_byte[token]] == who[which]).nonzero()[0]
    who, token = who[which[mine]], token[mine]
    state = entries[who]
    adds = steps.adds[control, tables.first_byte[token]].astype(np.int64)
    at, end = tables.offset[token] + 1, tables.offset[token + 1]
    done: list[CounterArcs] = []
    while len(token):
        ended = (at == end).nonzero()[0]
        done.append(CounterArcs(np.full(len(ended), control), token[ended], state[ended], adds[ended]))
        on = (at < end).nonzero()[0]
        token, state, adds, at, end = token[on], state[on], adds[on], at[on], end[on]
        read = tables.data[at]
        adds = adds + steps.adds[state, read]
        state = steps.following[state, read]
        on = state.nonzero()[0]
        token, state, adds, at, end = token[on], state[on], adds[on], at[on] + 1, end[on]
    return CounterArcs(*[np.concatenate(column) for column in zip(*done)]) if done else CounterArcs(*[np.zeros(0, np.int64)] * 4)


def _by_first_byte(tables: VocabularyTables) -> tuple[np.ndarray, np.ndarray]:
    """Token ids sorted by first byte, and where each byte's begin, int64[257]."""
    found = tables.memo.get("by first byte")
    if found is None:
        order = np.argsort(tables.first_byte, kind="stable")
        offset = np.searchsorted(tables.first_byte[order], np.arange(257))
        found = remember(tables, "by first byte", (order, offset))
    return found
