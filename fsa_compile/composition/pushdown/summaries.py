"""Parts of machines that many machines share, such as string bodies, numbers and formats: walked once for each vocabulary.

A *leaf procedure* (a leaf, for short) is a set of controls that do not call. What tokens do from them inside the leaf depends on
nothing else; where a token leaves it, by a return or for a control outside, the walk of the whole machine goes on. So the leaf is
walked as a machine of its own in which every byte that it does not read itself is a return, and the result is kept under a hash
of its moves. Leaves that count are walked once for all bounds: registers only grow, so a bound forbids what ends above it.
Those that count characters in a bounded shape are walked without their register (`length_summaries`), and of states that do the
same, up to a shift, one is walked (`shifted_leaves`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import distinct, exampled, firsts, numbered, order_of
from fsa_compile.arrays.ranges import segment_starts
from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.automata.pushdown import NO_END, RETURN, UNCOUNTED, ByteMachine
from fsa_compile.composition.pushdown.items import NO_ITEMS, Items, joined
from fsa_compile.composition.pushdown.links import Returns
from fsa_compile.composition.tokens.leaf_stock import stocked
from fsa_compile.composition.tokens.token_sets import Parts
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_FEWEST_ARCS = 40
"""Leaves that read fewer bytes in all are not worth it."""
_MOST_CROSSING = 2_000
"""Trie nodes whose bytes lead into or out of a loop that is a leaf by itself: a string's body stands between quotation marks."""
_FEWEST_CALLED = 32
"""Calls at fewer bytes are walked."""
_ADDS = 128
"""What a move may add to a register is below this."""
_MOST_BYTES = 128 << 20
"""Memory of the leaves that are kept for a vocabulary."""
_OBJECTS = 3_000
"""Bytes of the Python objects of a leaf, beside what its arrays hold."""


class Summary(NamedTuple):
    """What the tokens of a leaf's controls do. Owners and controls are numbered as in the leaf's own machine.

    Attributes:
      parts: of controls and runs; targets are controls of the leaf, or those outside that it leads to. What is kept has int32 in
        place of int64 here and in `leaving`.
      links: (run, caller, symbol, count) as in `StackArcs`.
      leaving: (owner, trie node, control, count) int64[*] each: the trie node would be read next, in a control that returns there
        or that lies outside.
      size: k, controls that belong to the leaf.
      runs: number of runs, whose owners come after the controls.
    """

    parts: Parts
    links: tuple[np.ndarray, ...]
    leaving: tuple[np.ndarray, ...]
    size: int
    runs: int

    def within(self, high: int) -> Summary:
        """The same where no register may rise above an upper bound."""
        fits = (self.parts.count <= high).nonzero()[0]
        columns = {name: getattr(self.parts, name)[fits] for name in ("owner", "target", "count", "hash", "size", "begin", "row")}
        leaving = Items(*self.leaving)
        leaving = leaving.at((leaving.begun <= high).nonzero()[0])
        return self._replace(parts=dataclasses.replace(self.parts, **columns), leaving=tuple(leaving))

    def narrowed(self) -> Summary:
        """The same with int32 in place of int64, in parts and in what leaves."""
        names = ("owner", "target", "count", "size", "begin", "row")
        columns = {name: getattr(self.parts, name).astype(np.int32) for name in names}
        leaving = tuple(column.astype(np.int32) for column in self.leaving)
        return self._replace(parts=dataclasses.replace(self.parts, **columns), leaving=leaving)

    @property
    def nbytes(self) -> int:
        """Memory."""
        columns = (*(getattr(self.parts, f.name) for f in dataclasses.fields(Parts) if f.name != "rows"), *self.parts.rows)
        return sum(column.nbytes for column in (*columns, *self.links, *self.leaving))


class LeafProcedure(NamedTuple):
    """One leaf of a machine.

    Attributes:
      controls: int64[k + e], control of the machine for each one of the leaf's own from control 1 on; those outside come last.
      walk: what was found.
    """

    controls: np.ndarray
    walk: Summary


def _kept_size(walk: Summary) -> int:
    return walk.nbytes + _OBJECTS


_KEPT: WeakKeyDictionary[VocabularyTables, SizedMemo[Summary]] = WeakKeyDictionary()
_KEPT_LOCK = threading.Lock()


def leaf_procedures_of(
    machine: ByteMachine,
    derived: np.ndarray,
    bases: np.ndarray,
    tables: VocabularyTables,
    walk: Callable[[ByteMachine, int], Summary],
    wide: np.ndarray | None = None,
    *,
    only_loops: bool = False,
) -> list[LeafProcedure]:
    """The leaves of a machine, walked.

    Args:
      derived: int64[*], controls that belong to none.
      bases: int64[*], controls whose loops are leaves even where they lead to a call.
      walk: walks the machine of a leaf that is not known, whose first controls belong to it.
      wide: int64[*], controls whose loops are leaves by themselves where few tokens enter or leave them.
      only_loops: the loops of bases and no others.
    """
    if not machine.deterministic:
        return []
    moves = _Moves(machine)
    with _KEPT_LOCK:
        kept = _KEPT.setdefault(tables, SizedMemo(_MOST_BYTES, _kept_size, largest=_MOST_BYTES))
    most = 1 + int(tables.length.max(initial=0)) * int(machine.entry_add.max(initial=0))  # no token adds as much
    bounds = np.minimum(machine.bounds, most)
    out = []
    for controls in moves.leaves(derived, bases, bases[:0] if wide is None else wide, tables, only_loops):
        codes, outside = moves.codes(controls)
        every = np.concatenate((controls, outside))
        own = bounds[every]
        same = bool((own == own[0]).all())
        loosest = np.where(own == UNCOUNTED, UNCOUNTED, (0, most)) if same and (own[0] != UNCOUNTED).any() else own
        content = (codes, moves.returns[controls], loosest.astype(bounds.dtype))
        key, walked = _key(*content), partial(_walked, walk, content, len(controls))
        found = kept.get(key, partial(stocked, tables, key, walked, Summary))
        high = int(own[0, 1])
        out.append(LeafProcedure(every, found.within(high) if same and UNCOUNTED < high < most else found))
    return out


def _walked(walk: Callable[[ByteMachine, int], Summary], content: tuple[np.ndarray, ...], size: int) -> Summary:
    return walk(_machine(*content), size).narrowed()


def _key(codes: np.ndarray, returns: np.ndarray, bounds: np.ndarray) -> bytes:
    """Tells leaves apart; most of what many controls read is nothing."""
    flat = codes.ravel()
    at = (flat != 0).nonzero()[0]
    parts = (np.array((*codes.shape, len(bounds), len(at))), at, flat[at], returns, bounds)
    return hashlib.blake2b(b"".join([part.tobytes() for part in parts]), digest_size=16).digest()


def forget_summaries() -> None:
    """Drops what was kept, of all vocabularies."""
    with _KEPT_LOCK:
        _KEPT.clear()


class SummaryCall(NamedTuple):
    """A control that, at some bytes, calls and then does what a control of a leaf does at these bytes, which are all it reads.

    Attributes:
      caller, entry: controls; the latter belongs to a leaf.
      symbol: what is pushed.
      bytes: bool[256].
    """

    caller: int
    entry: int
    symbol: int
    bytes: np.ndarray


def summary_calls(machine: ByteMachine, leaves: list[LeafProcedure]) -> list[SummaryCall]:
    """The calls of whole controls of leaves, at many bytes: their tokens need not be walked again."""
    if not leaves or len(machine.pushes) < 2:
        return []
    offset = machine.entry_offset
    some = np.diff(offset) > 0
    entry = np.where(some, offset[:-1], 0)
    push = np.where(some, machine.entry_push[entry], 0)
    following = machine.entry_next[entry].astype(np.int64)
    does = np.where(some & (following > 0), _ADDS * following + machine.entry_add[entry], 0)
    size = np.bincount(machine.byte_class[:256], minlength=machine.action.shape[1])
    control, symbol, action = machine.cells
    calls = (push[action] > 0).nonzero()[0]
    callers = (np.bincount(control[calls], size[symbol[calls]], machine.num_controls) >= _FEWEST_CALLED).nonzero()[0]
    if not len(callers):
        return []
    # The moves of a control, and those of a caller's calls, are told apart by sums of hashes.
    code = np.where(does[action] > 0, mixed(symbol * (_ADDS * machine.num_controls) + does[action]), np.uint64(0))
    inside, first = np.concatenate([leaf.controls[: leaf.walk.size] for leaf in leaves]), firsts(control, machine.num_controls)
    upto = np.append(np.uint64(0), np.where(push[action] == 0, code, np.uint64(0)).cumsum(dtype=np.uint64))
    known = dict(zip((upto[first[inside + 1]] - upto[first[inside]]).tolist(), inside.tolist()))
    calls = calls[np.isin(control[calls], callers)]
    key = control[calls] * len(machine.pushes) + push[action[calls]]
    order = order_of(key)
    begin, out = segment_starts(key[order]), []
    total = np.add.reduceat(code[calls[order]], begin)
    for at, found in zip(calls[order[begin]].tolist(), map(known.get, total.tolist())):
        (of_frame, add), *more = machine.pushes[p := int(push[action[at]])]
        if found is not None and not add and not more:
            pushed = push[machine.action[control[at]]] == p
            out.append(SummaryCall(int(control[at]), found, of_frame, pushed[machine.byte_class[:256]]))
    return out


class _Moves:
    """The moves of a deterministic machine that neither push nor pop.

    Attributes:
      returns: bool[S], whether a control returns at some byte.
    """

    def __init__(self, machine: ByteMachine) -> None:
        offset, size = machine.entry_offset, machine.num_controls
        some = np.diff(offset) > 0
        at = offset[:-1][some]
        following, push, add = np.zeros((3, len(some)), np.int64)
        following[some], push[some], add[some] = machine.entry_next[at], machine.entry_push[at], machine.entry_add[at]
        goal = np.where((following > 0) & (push == 0), following, 0)
        self._kind, self._action, self._goal, self._add = machine.byte_class[:256], machine.action, goal, add
        self.returns, self._calls = np.zeros((2, size), bool)
        control, symbol, action = machine.cells
        self.returns[control[following[action] == RETURN]] = True
        self._calls[control[push[action] > 0]] = True
        if machine.specials:
            self._calls |= machine.action[:, machine.byte_class[256:]].any(1)
        target = goal[action]
        inside = target.nonzero()[0]
        pair = distinct(control[inside] * size + target[inside])
        self._source, self._target = np.divmod(pair, size)
        self._first = firsts(self._source, size)
        of_class = np.bincount(self._kind, minlength=machine.action.shape[1])
        self._reads = np.bincount(control[inside], of_class[symbol[inside]], size).astype(np.int64)

    def leaves(
        self, derived: np.ndarray, bases: np.ndarray, wide: np.ndarray, tables: VocabularyTables, only_loops: bool
    ) -> Iterator[np.ndarray]:
        """Disjoint sets of controls, each ascending: loops of `wide` that few tokens enter or leave, then those that never lead
        to a call, by connection, then the loops of bases."""
        source, target = self._source, self._target
        leads = self._calls | only_loops
        while True:
            more = source[leads[target] & ~leads[source]]
            if not len(more):
                break
            leads[more] = True
        taken = np.zeros(len(leads), bool)
        taken[derived] = True
        yield from self._loops(wide, taken, lambda loop: self._is_apart(loop, taken, tables))
        free = ~leads & ~taken & (self._reads > 0)
        label = self._connected(free)
        member = free.nonzero()[0]
        member = member[label[member].argsort(kind="stable")]
        begin = segment_starts(label[member])
        reads = np.add.reduceat(self._reads[member], begin) if len(begin) else begin
        for low, high, number in zip(begin.tolist(), [*begin[1:].tolist(), len(member)], reads.tolist()):
            if number >= _FEWEST_ARCS:
                yield member[low:high]
        taken |= ~leads
        yield from self._loops(bases[leads[bases]], taken, lambda loop: True)

    def _loops(self, bases: np.ndarray, taken: np.ndarray, fits: Callable[[np.ndarray], bool]) -> Iterator[np.ndarray]:
        """The loops of some controls that are not taken, if they call nothing and fit; they are taken then."""
        for base in bases.tolist():
            if not taken[base]:
                loop = self._loop(base, taken)
                if not self._calls[loop].any() and fits(loop):
                    taken[loop] = True
                    yield loop

    def _is_apart(self, loop: np.ndarray, taken: np.ndarray, tables: VocabularyTables) -> bool:
        """Whether few trie nodes have bytes that lead into or out of a loop, derived controls and returns aside."""
        inside = np.zeros(len(self._action), bool)
        inside[loop] = True
        before = distinct(self._source[inside[self._target] & ~inside[self._source] & ~taken[self._source]])
        there, here = self._goal[self._action[loop]], self._goal[self._action[before]]
        crossing = ((there > 0) & ~inside[there]).any(0) | inside[here].any(0)
        return int(tables.trie_bytes[crossing[self._kind]].sum()) <= _MOST_CROSSING

    def _connected(self, free: np.ndarray) -> np.ndarray:
        """A label for every control, the same for those that moves between free controls connect."""
        inside = free[self._source] & free[self._target]
        source, target = self._source[inside], self._target[inside]
        label = np.arange(len(free))
        while True:
            least = np.minimum(label[source], label[target])
            if (least == label[source]).all() and (least == label[target]).all():
                return label
            np.minimum.at(label, label[source], least)
            np.minimum.at(label, label[target], least)
            label = label[label]

    def _loop(self, base: int, taken: np.ndarray) -> np.ndarray:
        """The controls between a control and itself, through none that is taken."""
        (before, into), (after, first) = self._arcs
        shut = taken.data
        back, todo = {base}, [base]
        for control in todo:
            for there in before[into[control] : into[control + 1]]:
                if there not in back and not shut[there]:
                    back.add(there)
                    todo.append(there)
        inside, todo = {base}, [base]
        for control in todo:
            for there in after[first[control] : first[control + 1]]:
                if there in back and there not in inside:
                    inside.add(there)
                    todo.append(there)
        return np.array(sorted(inside))

    @cached_property
    def _arcs(self) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
        """(controls before, where those of each control begin), and the same of controls after."""
        order = order_of(self._target)
        into = firsts(self._target, len(self._first) - 1)
        return (self._source[order].tolist(), into.tolist()), (self._target.tolist(), self._first.tolist())

    def codes(self, controls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int32[k, 256], by byte `_ADDS` n + add for a move to control n of the leaf's own machine, else 0; controls outside."""
        action = self._action[controls]
        goal = self._goal[action]
        number = np.zeros(len(self._action), np.int32)
        number[goal.ravel()] = 1
        number[controls] = 0
        number[0] = 0
        outside = number.nonzero()[0]
        number[controls] = np.arange(1, len(controls) + 1)
        number[outside] = np.arange(len(controls) + 1, len(controls) + len(outside) + 1)
        codes = np.where(goal > 0, _ADDS * number[goal] + self._add[action], 0).astype(np.int32)
        return codes[:, self._kind], outside


def _machine(codes: np.ndarray, returns: np.ndarray, bounds: np.ndarray) -> ByteMachine:
    """The machine of a leaf: controls 1 to k, then those outside, which return at every byte."""
    size = len(bounds) + 1
    columns: dict[bytes, int] = {}
    turned = np.ascontiguousarray(codes.T)
    byte_class = np.array([columns.setdefault(column.tobytes(), len(columns)) for column in turned], np.int32)
    codes = codes[:, exampled(byte_class)[1]]
    every, which = numbered(codes.ravel())
    leave = len(every) + 1
    action = np.full((size, codes.shape[1]), leave, np.int32)
    action[0] = 0
    unread = np.where(returns[:, None], leave, 0)
    action[1 : len(codes) + 1] = np.where(codes > 0, which.reshape(codes.shape) + 1, unread)
    return ByteMachine(
        byte_class=byte_class,
        specials=(),
        action=action,
        entry_offset=np.append(0, np.arange(leave + 1)).astype(np.int32),
        entry_next=np.append(every // _ADDS, RETURN).astype(np.int32),
        entry_push=np.zeros(leave, np.int32),
        entry_add=np.append(every % _ADDS, 0).astype(np.int8),
        pushes=((),),
        ret=np.zeros((size, 1), np.int32),
        end=np.full(size, NO_END, np.int8),
        bounds=np.concatenate([[(UNCOUNTED, UNCOUNTED)], bounds]).astype(np.int32),
        start=1,
        stack=(),
    )


class UsedSummaries:
    """The leaves of a machine, in the numbers of its walk, and the calls that do what a control of a leaf does.

    Attributes:
      runs: number of runs of all leaves.
      parts, links: of `StackArcs`, once the leaves are taken.
    """

    def __init__(self, machine: ByteMachine, leaves: list[LeafProcedure]) -> None:
        self._leaves, self._calls = leaves, summary_calls(machine, leaves)
        self.runs = sum(leaf.walk.runs for leaf in leaves)
        self.parts: list[Parts] = []
        self.links: list[tuple[np.ndarray, ...]] = []

    def known(self, live: np.ndarray, byte: np.ndarray) -> None:
        """Takes away what need not be walked.

        Args:
          live: bool[S, n], which controls read the bytes; changed in place.
          byte: int64[n].
        """
        for controls, found in self._leaves:
            live[controls[: found.size]] = False
        for call in self._calls:
            live[call.caller] &= ~call.bytes[byte]

    def taken(self, first_run: int) -> Items:
        """Fills `parts` and `links`, runs numbered from `first_run` on; where tokens leave the leaves, in the controls there."""
        leaving = [NO_ITEMS]
        for controls, found in self._leaves:
            number = np.concatenate([[0], controls, np.arange(first_run, first_run + found.runs)])
            first_run += found.runs
            parts = found.parts
            self.parts.append(dataclasses.replace(parts, owner=number[parts.owner], target=number[parts.target]))
            run, caller, symbol, count = found.links
            self.links.append((number[run], number[caller], symbol, count))
            owner, node, control, count = found.leaving
            leaving.append(Items(number[owner], node, number[control], count))
        return joined(leaving)

    def called(self, pending: Items, returns: Returns) -> list[Items]:
        """Links the calls; what is to be read in the callers where tokens return from there.

        Args:
          pending: what leaves the leaves by a return, in frames that may end there.
          returns: of the machine.
        """
        out = []
        none = np.zeros(1, np.int64)
        for caller, entry, symbol, _ in self._calls:
            self.links.append((none + entry, none + caller, none + symbol, none))
            back = pending.at(pending.owner == entry)
            there = returns.at(back.control, symbol)
            back, there = back.at(there > 0), there[there > 0]
            out.append(Items(back.owner * 0 + caller, back.node, there, back.begun * 0))
        return out
