"""Texts with names: one automaton is made in which one letter stands for every name, and then each name is written out in it.

What is read of a name, and all that stands behind one, is then copied as arrays, in place of subsets of states for each letter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts
from fsa_compile.errors import LimitError
from fsa_compile.formats import tree
from fsa_compile.formats.letter_masks import classes_of
from fsa_compile.formats.text_labels import END, Answer, TextAutomaton
from fsa_compile.limits import CompileLimits

LETTER = 1
"""The byte that stands for a name."""
_NAME = chr(LETTER).encode()
Labels = frozenset[Hashable] | bytes


class _ApartError(Exception):
    """What stands behind names differs in more than one value."""


@dataclasses.dataclass(frozen=True, eq=False)
class OneName:
    """A tree in which one name stands for all.

    Attributes:
      root: the tree.
      names: those that it stands for.
      values: what each ends with.
      slot: what stands for these.
    """

    root: tree.Format
    names: tuple[bytes, ...]
    values: tuple[tree.Value, ...]
    slot: tree.Value


def one_name(root: tree.Format) -> OneName | None:
    """The tree with one name; None where names differ in more than the value behind each."""
    reader = _Reader()
    try:
        made = reader.of(root)
    except _ApartError:
        return None
    names = set(reader.names)
    if not names or reader.slot is None or any(set(leads) != names or len(leads) != len(names) for leads in reader.leads):
        return None
    return OneName(made, tuple(name.encode() for name in reader.names), reader.values, reader.slot)


class _Reader:
    """Replaces the names of a tree. `leads`: the names of the leads of each free text."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.values: tuple[tree.Value, ...] = ()
        self.slot: tree.Value | None = None
        self.leads: list[list[str]] = []
        self._choices: dict[int, tree.Format] = {}

    def of(self, node: tree.Format) -> tree.Format:
        match node:
            case tree.Named(branches=branches):
                return self._named(branches)
            case tree.FreeText(leads=leads) if leads:
                before, _, behind = leads[0]
                if not before or any(lead[0] != before or lead[2] != behind for lead in leads):
                    raise _ApartError
                self.leads.append([name for _, name, _ in leads])
                return dataclasses.replace(node, leads=((before, _NAME.decode(), behind),))
            case tree.Parts(parts=parts):
                return tree.Parts(tuple(map(self.of, parts)))
            case tree.OneOf(branches=branches):
                if id(node) not in self._choices:
                    self._choices[id(node)] = tree.OneOf(tuple(map(self.of, branches)))
                return self._choices[id(node)]
            case tree.Repeated(part=part):
                return dataclasses.replace(node, part=self.of(part))
            case tree.Joined(part=part, between=between):
                return tree.Joined(self.of(part), self.of(between))
        return node

    def _named(self, branches: tuple[tuple[str, tree.Format], ...]) -> tree.Format:
        names, values, before = tuple(name for name, _ in branches), list[tree.Value](), None
        for _, behind in branches:
            match behind:
                case tree.Parts(parts=(*more, tree.Value() as value)) if before is None or more == before:
                    values.append(value)
                    before = more
                case _:
                    raise _ApartError
        known = self.slot is None or (self.names == names and all(map(_is_same, values, self.values)))
        if before is None or not known or not all(names) or len(set(names)) < len(names) or _NAME.decode() in "".join(names):
            raise _ApartError
        if self.slot is None:
            self.names, self.values, self.slot = names, tuple(values), tree.Value(values[0].machine, -1, "")
        return tree.Named(((_NAME.decode(), tree.Parts((*before, self.slot))),))


def _is_same(one: tree.Value, other: tree.Value) -> bool:
    return one.machine is other.machine and one.start == other.start


def written_out(made: TextAutomaton, masks: set[int], small: OneName, limits: CompileLimits) -> TextAutomaton | None:
    """The automaton of all names; None where anything else is read beside a name, or goes on as a name might.

    Args:
      made: that of the tree with one name.
      masks: the letters of its moves, but where the name is read.
    """
    out = _Written(made, masks, small)
    if not out.fits:
        return None
    if out.num_states > limits.max_states:
        raise LimitError("max_states", limits.max_states, "Writing out the text around the values")
    return out.automaton()


class _Written:
    """States of the whole automaton are numbered so: those of the small one; by state where names end, what is read of a name,
    which is not nothing; by name, states behind it. Of the small one, those where its name ends and behind it are not come to.

    Attributes:
      fits: whether the automaton can be made so.
      num_states: its states, but the dead one.
    """

    def __init__(self, made: TextAutomaton, masks: set[int], small: OneName) -> None:
        self.made, self.names = made, small.names
        prefixes: dict[bytes, int] = {b"": 0}
        for name in small.names:
            for size in range(1, len(name) + 1):
                prefixes.setdefault(name[:size], len(prefixes))
        self.prefixes = list(prefixes)
        self.parent = np.array([prefixes[read[:-1]] for read in self.prefixes], np.int64)
        self.end = np.array([prefixes[name] for name in small.names])
        self._read_labels()
        self.byte_class = classes_of(masks | {1 << byte for byte in set(b"".join(small.names))}, 256 + len(made.specials))
        letters = np.append(LETTER, np.delete(np.arange(len(self.byte_class)), LETTER))  # of a class, another one if there is
        example = np.zeros(int(self.byte_class.max()) + 1, np.int64)
        example[self.byte_class[letters]] = letters
        self.table = made.table[:, made.byte_class[example]]
        self.letter = np.array([0, *(self.byte_class[read[-1]] for read in self.prefixes[1:])])
        name_class = made.byte_class[LETTER]
        self.to = made.table[self.roots, name_class]
        self.ends = distinct(self.to)
        self.behind = self.inner + len(self.ends) * (len(self.prefixes) - 1)
        self.size = self.behind + len(self.names) * len(self.own)
        self.num_states = self.size - len(self.own) - len(self.ends) - 1
        self._number_schemas(small)
        beside = made.table[self.roots].astype(bool)
        beside[:, name_class] = False
        goes_on = self.table[self.ends][:, self.letter[1:]]
        self.fits = bool(self.ends.all()) and not beside.any() and not goes_on.any()
        self.table[self.roots] = 0

    def _read_labels(self) -> None:
        """Finds where names begin, and the states behind them."""
        roots, own = list[int](), list[int]()
        for state, labels in enumerate(self.made.labels):
            if isinstance(labels, bytes):
                own.append(state)
                continue
            tuples = [label for label in labels if isinstance(label, tuple)]
            if any(len(label) == 2 and not label[1] for label in tuples):
                roots.append(state)
            is_end = any(len(label) == 2 and label[1] == _NAME for label in tuples)
            if not is_end and any(label[1] == _NAME for label in tuples):
                own.append(state)
        self.roots, self.own = roots, own
        self.place = np.zeros(len(self.made.labels), np.int64)
        self.place[own] = np.arange(len(own))
        self.is_copied = np.zeros(len(self.made.labels), bool)
        self.is_copied[own] = True
        self.inner = len(self.made.labels)

    def _number_schemas(self, small: OneName) -> None:
        known: dict[tuple[int, int], int] = {}
        schemas, number = list[Any](), list[int]()
        self.slot, self.schema_of = -1, list[int]()
        for place, node in enumerate(self.made.schemas):
            values = small.values if node is small.slot else (node,)
            found = []
            for value in values:
                key = (id(value.machine), value.start) if isinstance(value, tree.Value) else (id(value), -1)
                if key not in known:
                    known[key] = len(schemas)
                    schemas.append(value)
                found.append(known[key])
            number.append(found[0])
            if node is small.slot:
                self.slot, self.schema_of = place, found
        self.schemas, self.number = tuple(schemas), number

    def _at(self, names: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Numbers of states of the small automaton as they come behind names, or outside of them."""
        copies = self.behind + names * len(self.own) + self.place[states]
        return np.where(self.is_copied[states], copies, states)

    def automaton(self) -> TextAutomaton:
        """The automaton, its states numbered in the order in which they are come to."""
        made, count = self.made, len(self.prefixes) - 1
        table = np.zeros((self.size, self.table.shape[1]), np.int32)
        table[: self.inner] = self.table
        every = np.arange(len(self.names))
        first = (self.parent[1:] == 0).nonzero()[0] + 1
        for j, end in enumerate(self.ends.tolist()):
            number = self.inner + j * count - 1 + np.arange(count + 1)
            table[np.array(self.roots)[self.to == end][:, None], self.letter[first]] = number[first]
            below = (self.parent > 0).nonzero()[0]
            table[number[self.parent[below]], self.letter[below]] = number[below]
            table[number[self.end]] += self._at(every[:, None], self.table[end][None]).astype(np.int32)
        copied = self._at(every[:, None, None], self.table[self.own][None])
        table[self.behind :] = copied.reshape(-1, table.shape[1])
        final = np.concatenate((made.final, made.final[self.ends].repeat(count), np.tile(made.final[self.own], len(self.names))))
        assert made.left is not None
        left = np.concatenate((made.left, np.full(len(self.ends) * count, -1), np.tile(made.left[self.own], len(self.names))))
        calls, labels = self._calls(), self._labels()
        order = _reached(table, calls, made.start)
        number = np.zeros(self.size, np.int32)
        number[order] = np.arange(1, len(order) + 1)
        kept = np.append(0, order)
        to = number.tolist()
        return TextAutomaton(
            table=number[table[kept]], byte_class=self.byte_class, final=final[kept], start=1,
            calls={to[s]: {k: to[t] for k, t in called.items()} for s, called in sorted(calls.items(), key=lambda c: to[c[0]])
                   if to[s]},
            schemas=self.schemas, specials=made.specials, labels=tuple([labels[s] for s in kept.tolist()]), left=left[kept],
            is_sketch=made.is_sketch,
        )  # fmt: skip

    def _calls(self) -> dict[int, dict[int, int]]:
        """The calls of all states."""
        calls, out, names = self.made.calls, dict[int, dict[int, int]](), range(len(self.names))
        count = len(self.prefixes) - 1
        places = [(state, [self.behind + i * len(self.own) + b for i in names]) for b, state in enumerate(self.own)]
        ends = self.end.tolist()
        places += [(state, [self.inner + j * count + end - 1 for end in ends]) for j, state in enumerate(self.ends.tolist())]
        own = {state for state, _ in places}
        out = {s: {self.number[k]: t for k, t in called.items()} for s, called in calls.items() if s not in own}
        for state, copies in places:
            for k, after in calls.get(state, {}).items():
                there = self._at(np.arange(len(self.names)), np.array(after)).tolist()
                for i, copy in enumerate(copies):
                    out.setdefault(copy, {})[self.schema_of[i] if k == self.slot else self.number[k]] = there[i]
        return out

    def _labels(self) -> list[Labels]:
        """The labels of all states."""
        out: list[Labels] = list(self.made.labels)
        ends = set(self.end.tolist())
        name_at = dict(zip(self.end.tolist(), self.names))
        for there in map(self.made.labels.__getitem__, self.ends.tolist()):
            assert not isinstance(there, bytes)
            places = [label[0] for label in there if isinstance(label, tuple) and len(label) == 2]
            more = frozenset(label for label in there if not (isinstance(label, tuple) and len(label) == 2))
            some = more & {END}
            for number, read in enumerate(self.prefixes[1:], 1):
                labels = frozenset([(place, read) for place in places]) | some
                out.append(labels | _of_name(more, name_at[number]) if number in ends else labels)  # type: ignore[operator]
        for name in self.names:
            out += [_of_name(self.made.labels[state], name) for state in self.own]
        return out


def _of_name(labels: Labels, name: bytes) -> Labels:
    """Labels with a name in the place of the one that stands for all."""
    if isinstance(labels, bytes):
        return name
    return frozenset([_label_of(label, name) if isinstance(label, tuple) and label[1] == _NAME else label for label in labels])


def _label_of(label: tuple[Any, ...], name: bytes) -> tuple[Any, ...]:
    place, _, number = label
    return place, name, number + len(name) - 1 if isinstance(place, Answer) else number


def _reached(table: np.ndarray, calls: dict[int, dict[int, int]], start: int) -> np.ndarray:
    """The states in the order of a breadth-first search: by letters, then by calls."""
    pairs = [(state, after) for state, called in calls.items() for after in called.values()]
    source, target = np.array(sorted(pairs, key=lambda pair: pair[0]), np.int64).reshape(-1, 2).T
    begin = firsts(source, len(table))
    behind = np.zeros((len(table), int(np.diff(begin).max(initial=0))), np.int32)
    behind[source, np.arange(len(source)) - begin[source]] = target
    seen = np.zeros(len(table), bool)
    seen[[0, start]] = True
    order, level = [], np.array([start])
    while len(level):
        order.append(level)
        found = np.concatenate((table[level], behind[level]), axis=1).ravel()
        found = found[~seen[found]]
        seen[found] = True
        level = found[np.sort(np.unique(found, return_index=True)[1])]
    return np.concatenate(order)


def checked_masks(moves: Sequence[list[tuple[int, int]]], labels: Sequence[Hashable]) -> set[int] | None:
    """The letters of moves but those of the name, by state; None where others read the name's letter alone."""
    out = {mask for moves_of in moves for mask, _ in moves_of}
    for moves_of, label in zip(moves, labels):
        begins = isinstance(label, tuple) and len(label) == 2 and not label[1]
        if not begins and any(mask == 1 << LETTER for mask, _ in moves_of):
            return None
    return out - {1 << LETTER}
