"""`TextDfa`: a deterministic automaton over decoded code points whose states carry labels. Tries, minimising.

The languages of string values are handled here as what they mean; `spelling` knows how JSON writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from fsa_compile.arrays.graphs import converse, distances, examples, leading, longest_path, reach, refined
from fsa_compile.automata.letter_dfa import LetterDfa
from fsa_compile.limits import check_time
from fsa_compile.unicode.code_points import FIRST_SURROGATE, LAST, LAST_SURROGATE

Row: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""(first code point, last code point, next state), sorted and disjoint; code points that are missing lead nowhere."""


class TextDfa(NamedTuple):
    """A deterministic automaton; state 0 is initial, surrogates are never read.

    Attributes:
      rows: transitions of each state.
      labels: label of each state; 0 says that no text ends here.
    """

    rows: list[Row]
    labels: list[int]

    def label(self, text: str) -> int:
        """The label of a text, 0 when it is not read to its end."""
        state = 0
        for character in text:
            code_point = ord(character)
            for low, high, target in self.rows[state]:
                if low <= code_point <= high:
                    state = target
                    break
            else:
                return 0
        return self.labels[state]


def loop(state: int) -> Row:
    """The row that leads from every code point to one state."""
    return ((0, FIRST_SURROGATE - 1, state), (LAST_SURROGATE + 1, LAST, state))


def any_text(label: int = 1) -> TextDfa:
    """Every text, with one label."""
    return TextDfa([loop(0)], [label])


def words_trie(words: Sequence[str], *, number: bool = False) -> TextDfa:
    """The automaton of a finite set of texts. `number`: label each word with 1 + its index; otherwise all with 1."""
    children: list[dict[int, int]] = [{}]
    ends: dict[int, int] = {}
    for index, word in enumerate(words):
        state = 0
        for at, c in enumerate(map(ord, word)):
            target = children[state].get(c)
            if target is None:  # all that follows is new
                rest = [*map(ord, word[at + 1 :])]
                children[state][c] = state = len(children)
                children += [{c: t} for t, c in enumerate(rest, state + 1)]
                children.append({})
                state += len(rest)
                break
            state = target
        ends[state] = index + 1 if number else 1
    labels = [0] * len(children)
    for state, label in ends.items():
        labels[state] = label
    rows = [tuple([(c, c, t) for c, t in (sorted(below.items()) if len(below) > 1 else below.items())]) for below in children]
    return TextDfa(rows, labels)


def lengths(low: int, high: int | None) -> TextDfa:
    """The texts of `low` to `high` code points."""
    last = low if high is None else high
    rows = [loop(i + 1) for i in range(last)]
    rows.append(loop(last) if high is None else ())
    return TextDfa(rows, [int(i >= low) for i in range(last + 1)])


def num_moves(dfa: TextDfa) -> int:
    """The number of states and moves, for memos."""
    return len(dfa.rows) + sum(map(len, dfa.rows))


def shortest_rests(dfa: TextDfa) -> list[int]:
    """The fewest code points from each state to an accepted text; -1 where there is none."""
    return distances([[t for _, _, t in row] for row in dfa.rows], [q for q, label in enumerate(dfa.labels) if label])


def labels_ahead(dfa: TextDfa) -> list[frozenset[int]]:
    """The labels that can be reached from each state."""
    before = converse([{t for _, _, t in row} for row in dfa.rows])
    out = [{label} - {0} for label in dfa.labels]
    todo = list(range(len(dfa.rows)))
    while todo:
        check_time("Analysing an automaton over texts")
        q = todo.pop()
        for p in before[q]:
            if not out[q] <= out[p]:
                out[p] |= out[q]
                todo.append(p)
    return list(map(frozenset, out))


def longest_text(dfa: TextDfa) -> int | None:
    """Code points of the longest accepted text, -1 when there is none; None when they have no bound."""
    useful = [rest >= 0 for rest in shortest_rests(dfa)]
    return longest_path([[t for _, _, t in row if useful[t]] for row in dfa.rows], 0) if useful[0] else -1


def steps(dfa: TextDfa, rests: Sequence[int]) -> Iterator[int]:
    """By how much every move makes the text longer than it has to be, 0 or more; see `shortest_rests`."""
    for q, row in enumerate(dfa.rows):
        for _, _, t in row:
            if rests[t] >= 0:
                yield 1 + rests[t] - rests[q]


def from_letters(dfa: LetterDfa | None) -> TextDfa:
    """A letter automaton with label 1 on its final states; None is the empty language."""
    if dfa is None:
        return TextDfa([()], [0])
    ranges: dict[int, list[tuple[int, int]]] = {}
    rows = []
    for arcs in dfa.arcs:
        row: list[tuple[int, int, int]] = []
        for letters, target in arcs:
            found = ranges.get(letters)
            if found is None:
                found = ranges[letters] = _ranges(letters, dfa)
            row += [(low, high, target) for low, high in found]
        row.sort()
        rows.append(_joined(row))
    return TextDfa(rows, [int(final) for final in dfa.final])


def _ranges(letters: int, dfa: LetterDfa) -> list[tuple[int, int]]:
    out = []
    ascii_, start = letters & ((1 << 128) - 1), -1
    for c in range(129):
        if ascii_ >> c & 1:
            start = c if start < 0 else start
        elif start >= 0:
            out.append((start, c - 1))
            start = -1
    for j, ranges in enumerate(dfa.atoms):
        if letters >> 128 + j & 1:
            out += list(ranges)
    return out


def _joined(row: Iterable[tuple[int, int, int]]) -> Row:
    """Joins neighbouring ranges with one target."""
    out: list[tuple[int, int, int]] = []
    for low, high, target in row:
        if out and out[-1][2] == target and out[-1][1] + 1 == low:
            out[-1] = (out[-1][0], high, target)
        else:
            out.append((low, high, target))
    return tuple(out)


def minimized(dfa: TextDfa) -> TextDfa:
    """The automaton without useless states, equal states merged (Moore). State 0 stays initial, even when useless."""
    dfa = trimmed(dfa)
    rows, labels = dfa
    outline = [(label, _joined((a, z, 0) for a, z, _ in row)) for label, row in zip(labels, rows)]

    def key(q: int, block: list[int]) -> Row:
        check_time("Analysing an automaton over texts")
        return _joined((a, z, block[t]) for a, z, t in rows[q])

    block = refined(outline, key)
    chosen = examples(block)
    if len(chosen) == len(rows):
        return dfa
    return TextDfa([_joined((a, z, block[t]) for a, z, t in rows[q]) for q in chosen], [labels[q] for q in chosen])


def trimmed(dfa: TextDfa) -> TextDfa:
    """The automaton without states from which no label is reached, and without those that are not reached."""
    rows, labels = dfa
    after = [[t for _, _, t in row] for row in rows]
    live = leading(after, [q for q, label in enumerate(labels) if label])
    if len(live) < len(rows):
        after = [[t for t in targets if t in live] for targets in after]
    number = reach([0], after.__getitem__)
    if len(number) == len(live) == len(rows):
        return dfa
    return TextDfa(
        [tuple((a, z, number[t]) for a, z, t in rows[q] if t in live) for q in number], [labels[q] for q in number]
    )
