"""`TextDfa`: a deterministic automaton over decoded code points whose states carry labels. Tries, minimising.

The languages of string values are handled here as what they mean; `spelling` knows how JSON writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from fsa_compile.automata.letter_dfa import LetterDfa
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
    """The automaton of a finite set of texts.

    Args:
      words: the texts.
      number: label each word with 1 + its index; otherwise all with 1.
    """
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


def shortest_rests(dfa: TextDfa) -> list[int]:
    """The fewest code points from each state to an accepted text; -1 where there is none."""
    before: list[list[int]] = [[] for _ in dfa.rows]
    for q, row in enumerate(dfa.rows):
        for _, _, t in row:
            before[t].append(q)
    out = [0 if label else -1 for label in dfa.labels]
    order = [q for q, label in enumerate(dfa.labels) if label]
    for q in order:
        for p in before[q]:
            if out[p] < 0:
                out[p] = out[q] + 1
                order.append(p)
    return out


def longest_text(dfa: TextDfa) -> int | None:
    """Code points of the longest accepted text, -1 when there is none; None when they have no bound."""
    useful = [rest >= 0 for rest in shortest_rests(dfa)]
    after = [{t for _, _, t in row if useful[t]} for row in dfa.rows]
    seen, reached = {0}, [0]
    for q in reached:
        fresh = after[q] - seen
        seen |= fresh
        reached += fresh
    waits = [0] * len(after)
    for q in reached:
        for t in after[q]:
            waits[t] += 1
    longest, order = {0: 0}, [] if waits[0] else [0]
    for q in order:
        for t in after[q]:
            longest[t] = max(longest.get(t, 0), longest[q] + 1)
            waits[t] -= 1
            if not waits[t]:
                order.append(t)
    if len(order) < len(reached):
        return None  # a loop
    return max((longest[q] for q in order if dfa.labels[q]), default=-1)


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
    outline: dict[object, list[int]] = {}
    for q, row in enumerate(rows):
        outline.setdefault((labels[q], _joined((a, z, 0) for a, z, _ in row)), []).append(q)
    block = [0] * len(rows)
    for b, members in enumerate(outline.values()):
        for q in members:
            block[q] = b
    count = len(outline)
    mixed = [members for members in outline.values() if len(members) > 1]
    if not mixed:
        return dfa
    while mixed:
        split: list[list[list[int]]] = []
        for members in mixed:
            alike: dict[Row, list[int]] = {}
            for q in members:
                alike.setdefault(_joined((a, z, block[t]) for a, z, t in rows[q]), []).append(q)
            split.append(list(alike.values()))
        if all(len(parts) == 1 for parts in split):
            break
        for parts in split:
            for part in parts[1:]:
                for q in part:
                    block[q] = count
                count += 1
        mixed = [part for parts in split for part in parts if len(part) > 1]
    return _quotient(dfa, block)


def _quotient(dfa: TextDfa, block: list[int]) -> TextDfa:
    """The automaton whose states are the blocks of another's."""
    representative: dict[int, int] = {}
    for q, b in enumerate(block):
        representative.setdefault(b, q)
    if len(representative) == len(block):
        return dfa
    ids = {b: i for i, b in enumerate(representative)}
    chosen = list(representative.values())
    rows = [_joined((a, z, ids[block[t]]) for a, z, t in dfa.rows[q]) for q in chosen]
    return TextDfa(rows, [dfa.labels[q] for q in chosen])


def trimmed(dfa: TextDfa) -> TextDfa:
    """The automaton without states from which no label is reached, and without those that are not reached."""
    rows, labels = dfa
    before: list[list[int]] = [[] for _ in rows]
    for q, row in enumerate(rows):
        for _, _, t in row:
            before[t].append(q)
    live = [bool(label) for label in labels]
    todo = [q for q, alive in enumerate(live) if alive]
    while todo:
        for p in before[todo.pop()]:
            if not live[p]:
                live[p] = True
                todo.append(p)
    number = {0: 0}
    order = [0]
    for q in order:
        for _, _, t in rows[q]:
            if live[t] and t not in number:
                number[t] = len(order)
                order.append(t)
    if len(order) == len(rows) and all(live):
        return dfa
    return TextDfa([tuple((a, z, number[t]) for a, z, t in rows[q] if live[t]) for q in order], [labels[q] for q in order])
