"""Which of an object's keys a string is: automata over decoded keys whose labels name a key and the conditions it meets."""

from __future__ import annotations

import bisect
from typing import Any, NamedTuple

from fsa_compile.automata.labelled_dfa import Row, TextDfa, any_text, labels_ahead, words_trie
from fsa_compile.automata.labelled_product import product
from fsa_compile.json_schema.decision_diagrams import Decisions
from fsa_compile.json_schema.scalars import Scalars
from fsa_compile.json_schema.schema_options import SchemaOptions

_OTHERS = 1
"""Label of the keys that are not named, in a trie."""


class KeyClass(NamedTuple):
    """Keys that an object cannot tell apart.

    Attributes:
      key: the key, or None for all that the object does not name.
      true: the conditions on keys that hold.
    """

    key: str | None
    true: frozenset[Any]

    def holds(self, atom: Any) -> bool:
        """Whether a condition holds for these keys."""
        return atom in self.true


class KeyAutomaton(NamedTuple):
    """An automaton over decoded keys.

    Attributes:
      number: tells automata apart.
      labels: by state, index into `classes`.
      classes: index 0 is unused.
      by_key, other: indices of the classes of a key, and of keys that are not named.
      reach: per state the labels that can be reached.
      span: of a trie, per state first and last + 1 of the named labels that can be reached; else empty.
      depth: of a trie, per state how many characters have been read; else empty.
      branches: of a trie, per state the characters that go on towards named keys; all others lead to the last state. Else empty.
      rows: per state, of others than tries; else empty.
    """

    number: int
    labels: list[int]
    classes: list[KeyClass]
    by_key: dict[str, list[int]]
    other: list[int]
    reach: list[frozenset[int]]
    span: list[tuple[int, int]]
    depth: list[int]
    branches: list[Row]
    rows: list[Row]

    def row(self, state: int) -> Row:
        """What a state does with every character."""
        return _completed(self.branches[state], len(self.branches) - 1) if self.branches else self.rows[state]

    def row_to(self, state: int, targets: tuple[tuple[int, int], ...]) -> Row:
        """What a state does with every character, or with those that lead to some (label, anything) pairs, sorted by label."""
        return self.branches[state] if self.branches and targets[:1] and targets[0][0] != _OTHERS else self.row(state)

    def dfa(self) -> TextDfa:
        """The whole automaton."""
        return TextDfa([self.row(state) for state in range(len(self.labels))], self.labels)

    def within(self, state: int, targets: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """The (label, anything) pairs, sorted by label, whose label can be reached from a state."""
        if not self.span:
            reach = self.reach[state]
            return tuple([target for target in targets if target[0] in reach])
        first, last = self.span[state]
        if len(targets) == 1:  # most often
            label = targets[0][0]
            return targets if label == _OTHERS or first <= label < last else ()
        begin, end = bisect.bisect_left(targets, (first,)), bisect.bisect_left(targets, (last,))
        others = targets[:1] if targets and targets[0][0] == _OTHERS else ()
        return targets if end - begin + len(others) == len(targets) else others + targets[begin:end]

    def rest_of(self, state: int, label: int) -> str | None:
        """What is left of the only key with a label, None when the label may stand for several keys."""
        key = self.classes[label].key
        return key[self.depth[state] :] if self.depth and key is not None else None


class KeyClasses:
    """Makes key automata, each once."""

    def __init__(self, decisions: Decisions, scalars: Scalars, options: SchemaOptions) -> None:
        self._decisions, self._scalars, self._options = decisions, scalars, options
        self._known: dict[Any, KeyAutomaton] = {}

    def of(self, keys: tuple[str, ...], conditions: tuple[Any, ...]) -> KeyAutomaton:
        """The automaton that tells keys and conditions apart.

        Args:
          keys: the keys that an object names.
          conditions: string atoms.
        """
        found = self._known.get((keys, conditions))
        if found is None:
            found = self._known[keys, conditions] = self._make(keys, conditions)
        return found

    def _make(self, keys: tuple[str, ...], conditions: tuple[Any, ...]) -> KeyAutomaton:
        classes: list[KeyClass] = [KeyClass(None, frozenset())]
        index: dict[KeyClass, int] = {}

        def number(named: int, held: tuple[int, ...]) -> int:
            found = KeyClass(keys[named - 1] if named else None, frozenset(c for c, h in zip(conditions, held) if h))
            if found not in index:
                index[found] = len(classes)
                classes.append(found)
            return index[found]

        trie = words_trie(keys, number=True)
        if conditions:
            dfas = [trie, *map(self._scalars.dfa, conditions), any_text()]
            dfa = product(dfas, lambda said: number(said[0], said[1:-1]), self._options.max_product, "the keys of an object")
            labels, rows = dfa.labels, dfa.rows
            reach, span, depth, branches = labels_ahead(dfa), list[tuple[int, int]](), list[int](), list[Row]()
        else:
            number(0, ())  # so that it is _OTHERS
            of_key = [number(named, ()) for named in range(len(keys) + 1)]
            branches, labels, rows = [*trie.rows, ()], [*map(of_key.__getitem__, trie.labels), _OTHERS], []
            reach, span, depth = [], _spans(branches, labels), _depths(trie)
        by_key: dict[str, list[int]] = {}
        other = []
        for i, found in enumerate(classes):
            if i and found.key is None:
                other.append(i)
            elif found.key is not None:
                by_key.setdefault(found.key, []).append(i)
        return KeyAutomaton(len(self._known), labels, classes, by_key, other, reach, span, depth, branches, rows)


def _depths(trie: TextDfa) -> list[int]:
    """Length of the prefix that each state of a trie stands for."""
    depth = [0] * len(trie.rows)
    for q, row in enumerate(trie.rows):
        for _, _, t in row:
            depth[t] = depth[q] + 1
    return depth


def _completed(row: Row, sink: int) -> Row:
    """A row of a trie made complete: what leaves it is another key."""
    out: list[tuple[int, int, int]] = []
    at = 0
    for low, high, target in row:
        if low > at:
            out.append((at, low - 1, sink))
        out.append((low, high, target))
        at = high + 1
    return tuple(_cut_surrogates([*out, (at, 0x10FFFF, sink)]))


def _cut_surrogates(row: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    out = []
    for low, high, target in row:
        if low < 0xD800 and high > 0xDFFF:
            out += [(low, 0xD7FF, target), (0xE000, high, target)]
        elif not (0xD800 <= low <= 0xDFFF and high <= 0xDFFF):
            low, high = (0xE000 if 0xD800 <= low <= 0xDFFF else low), (0xD7FF if 0xD800 <= high <= 0xDFFF else high)
            if low <= high:
                out.append((low, high, target))
    return out


def _spans(rows: list[Row], labels: list[int]) -> list[tuple[int, int]]:
    """Named labels below each state of a trie of sorted words: they are neighbours. States lead to later ones."""
    out = [(label, label + 1) if label != _OTHERS else (_OTHERS, _OTHERS) for label in labels]
    for q in range(len(out) - 1, -1, -1):
        first, last = out[q]
        for _, _, t in rows[q]:
            low, high = out[t]
            first, last = (min(first, low), max(last, high)) if last > first else (low, high)
        out[q] = first, last
    return out
