"""Code-point letters to UTF-8 bytes: the only place that knows how a character is spelt in bytes.

ASCII letters are bytes already. The other letters of a state become a small tree of continuation states; its shape depends on
the state's classes alone and is kept for the life of the process, so splicing is a copy. Overlong forms and surrogates have no
path.
"""

from __future__ import annotations

import bisect
import functools
from collections import Counter
from collections.abc import Iterable

import numpy as np

from fsa_compile.arrays import bit_sets
from fsa_compile.arrays.ranges import indices
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.letter_dfa import LetterDfa
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, check_time
from fsa_compile.unicode.code_points import Ranges, normal

_IDENTITY = np.arange(256, dtype=np.uint8)
_DOING = "Spelling the pattern in UTF-8 bytes"
_FULL_TABLE_STATES = 2048
"""Below this many states the byte table keeps all 256 columns."""


@functools.lru_cache(maxsize=512)
def template(classes: tuple[Ranges, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The UTF-8 automaton that tells disjoint classes of non-ASCII characters apart.

    Args:
      classes: ranges of each class.

    Returns:
      lead int32[128], by first byte - 128, and rows int32[R, 64], by continuation byte - 128. Entries: 0 dead, -(j + 1) the
      character is complete and in class j, r > 0 go on with row r - 1. Equal rows are one.
    """
    tree = _Tree(sorted((low, high, j) for j, ranges in enumerate(classes) for low, high in ranges))
    lead = np.zeros(128, np.int32)
    for byte in range(0xC2, 0xE0):
        lead[byte - 128] = tree.node((byte & 0x1F) << 6, 1, 0x80)
    for byte in range(0xE0, 0xF0):
        lead[byte - 128] = tree.node((byte & 0x0F) << 12, 2, 0x800)
    for byte in range(0xF0, 0xF5):
        lead[byte - 128] = tree.node((byte & 0x07) << 18, 3, 0x10000)
    return lead, np.array(list(tree.rows), np.int32).reshape(-1, 64)


class _Tree:
    """The continuation bytes of characters in disjoint classes: `pieces` are (first, last, class), sorted.

    Attributes:
      rows: entries of a node at the bytes 128..191 (see `template`), and the entry that leads to the node.
    """

    def __init__(self, pieces: list[tuple[int, int, int]]) -> None:
        self._pieces, self._starts = pieces, [low for low, _, _ in pieces]
        self._whole: dict[tuple[int, int], int] = {}
        self.rows: dict[tuple[int, ...], int] = {}

    def _row(self, entries: list[int]) -> int:
        return self.rows.setdefault(tuple(entries), len(self.rows) + 1)

    def _all_of(self, j: int, depth: int) -> int:
        """Entry for "any character with `depth` more bytes belongs to class j"."""
        found = self._whole.get((j, depth))
        if found is None:
            found = self._whole[j, depth] = -(j + 1) if depth == 0 else self._row([self._all_of(j, depth - 1)] * 64)
        return found

    def node(self, base: int, depth: int, floor: int) -> int:
        """Entry for the block of 64**depth characters from `base`; those below `floor` are spelt shorter."""
        size, pieces = 64**depth, self._pieces
        at = bisect.bisect_right(self._starts, base) - 1
        if at >= 0 and pieces[at][1] >= base + size - 1 and base >= floor:
            return self._all_of(pieces[at][2], depth)
        if at < 0 or pieces[at][1] < base:
            at += 1
        if at == len(pieces) or pieces[at][0] >= base + size or base + size <= floor:
            return 0
        entries = [0] * 64
        if depth == 1:
            while at < len(pieces) and pieces[at][0] < base + 64:
                low, high, j = pieces[at]
                low, high = max(low, base, floor) - base, min(high, base + 63) - base + 1
                if high > low:
                    entries[low:high] = [-(j + 1)] * (high - low)
                at += 1
        else:
            child = size // 64
            while at < len(pieces) and pieces[at][0] < base + size:
                low, high, _ = pieces[at]
                for k in range((max(low, base) - base) // child, (min(high, base + size - 1) - base) // child + 1):
                    if not entries[k]:
                        entries[k] = self.node(base + k * child, depth - 1, floor)
                at += 1
        return self._row(entries) if any(entries) else 0


def to_byte_dfa(dfa: LetterDfa, limits: CompileLimits) -> ByteDfa:
    """The byte automaton of a trimmed letter automaton: letter state q is byte state q + 1, continuation states follow."""
    S = len(dfa.arcs) + 1
    wide, leads, rows = _continuations(dfa, S, limits) if dfa.atoms else _NO_CONTINUATIONS
    total = S + len(rows)
    check_time(_DOING)
    if total > limits.max_states:
        raise LimitError("max_states", limits.max_states, _DOING)
    final = np.zeros(total, bool)
    final[1:S] = dfa.final
    source, byte, target = _ascii_arcs(dfa)
    if total < _FULL_TABLE_STATES:
        byte_class, columns = _IDENTITY, 256
    else:
        byte_class, columns = _used_bytes(byte, bool(len(wide)))
    if total * columns * 4 > limits.max_bytes:
        raise LimitError("max_bytes", limits.max_bytes, f"A table of {total:,} byte states")
    table = np.zeros((total, columns), np.int32)
    table[source, byte_class[byte]] = target
    if len(wide):
        if columns == 256:
            table[wide, 128:] = leads
            table[S:, 128:192] = rows
        else:
            table[wide[:, None], byte_class[128:]] = leads
            table[S:, byte_class[128:192]] = rows
    result = ByteDfa(table=table, byte_class=byte_class, final=final, start=1)
    if not len(wide):
        result.__dict__["arcs"] = source, byte, target
    return result


_NO_CONTINUATIONS = (np.zeros(0, np.int64), np.zeros((0, 128), np.int32), np.zeros((0, 64), np.int32))
_Wide = tuple[tuple[int, int], ...]


def _continuations(dfa: LetterDfa, base: int, limits: CompileLimits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The states that spell non-ASCII letters.

    Args:
      dfa: letter automaton with atoms.
      base: number of the first continuation state.

    Returns:
      The W states that read non-ASCII letters int64[W], what they do at the bytes from 128 on int32[W, 128], and what the
      continuation states do at the bytes 128..191 int32[R, 64].
    """
    groups = _wide_arcs(dfa)
    if not groups:
        return _NO_CONTINUATIONS
    uses = Counter(target for wide in groups for _, target in wide)
    ranges = _class_ranges(dfa, groups)
    alone: dict[tuple[Ranges, ...], list[tuple[_Wide, list[int]]]] = {}
    states: list[int] = []
    leads: list[np.ndarray] = []
    shared: dict[bytes, int] = {}
    pieces: list[np.ndarray] = []
    for wide, members in groups.items():
        classes = tuple([ranges[mask] for mask, _ in wide])
        if all(uses[target] == 1 for _, target in wide):
            alone.setdefault(classes, []).append((wide, members))
            continue
        lead, rows = template(classes)
        k = len(classes)
        # Entry e of the template is element e + k here: classes lead to their target, rows to their place in the table.
        where = np.zeros(k + 1 + len(rows), np.int32)
        where[:k] = [target for _, target in reversed(wide)]
        for r, row in enumerate(rows + k):  # children come before their parents
            resolved = where[row]
            number = shared.setdefault(resolved.tobytes(), base + len(pieces))
            where[k + 1 + r] = number
            if number == base + len(pieces):
                pieces.append(resolved[None])
        if len(pieces) > limits.max_states:
            raise LimitError("max_states", limits.max_states, _DOING)
        states += members
        leads.append(where[lead + k][None].repeat(len(members), axis=0))
    at = base + len(pieces)
    for classes, instances in alone.items():
        lead, rows = template(classes)
        k, n, R = len(classes), len(instances), len(rows)
        if at + n * R > limits.max_states:
            raise LimitError("max_states", limits.max_states, _DOING)
        where = np.zeros((n, k + 1 + R), np.int32)
        where[:, :k] = [[target for _, target in reversed(wide)] for wide, _ in instances]
        where[:, k + 1 :] = np.arange(at, at + n * R).reshape(n, R)
        pieces.append(where[:, rows.ravel() + k].reshape(n * R, 64))
        leads.append(where[:, lead + k].repeat([len(members) for _, members in instances], axis=0))
        states += [q for _, members in instances for q in members]
        at += n * R
    return np.array(states), np.concatenate(leads), np.concatenate(pieces)


def _wide_arcs(dfa: LetterDfa) -> dict[_Wide, list[int]]:
    """The states that read non-ASCII letters, by what they do: (atoms, target) pairs in byte-state numbers."""
    groups: dict[_Wide, list[int]] = {}
    for q, arcs in enumerate(dfa.arcs, 1):
        wide = tuple([(letters >> 128, target + 1) for letters, target in arcs if letters >> 128])
        if wide:
            groups.setdefault(wide if len(wide) == 1 else tuple(sorted(wide)), []).append(q)
    return groups


def _class_ranges(dfa: LetterDfa, groups: Iterable[_Wide]) -> dict[int, Ranges]:
    """The characters of every set of atoms that occurs."""
    out: dict[int, Ranges] = {}
    for wide in groups:
        for mask, _ in wide:
            if mask not in out:
                check_time(_DOING)
                members = [dfa.atoms[j] for j in bit_sets.members(mask)]
                out[mask] = members[0] if len(members) == 1 else normal([r for m in members for r in m])
    return out


def _ascii_arcs(dfa: LetterDfa) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arcs on ASCII letters as (source, byte, target) in byte-state numbers, sorted by source, then byte."""
    distinct: dict[int, int] = {}
    sources, kind, targets = [], [], []
    mask = (1 << 128) - 1
    for q, arcs in enumerate(dfa.arcs, 1):
        for letters, t in arcs:
            letters &= mask
            if letters:
                sources.append(q)
                kind.append(distinct.setdefault(letters, len(distinct)))
                targets.append(t + 1)
    if not sources:
        none = np.zeros(0, np.int64)
        return none, none, none
    packed = np.frombuffer(b"".join([c.to_bytes(16, "little") for c in distinct]), np.uint8).reshape(-1, 16)
    of_kind, byte = np.nonzero(np.unpackbits(packed, axis=1, bitorder="little"))
    count = np.bincount(of_kind, minlength=len(distinct))
    kinds = np.array(kind)
    ends, repeats = count.cumsum()[kinds], count[kinds]
    byte = byte[indices(ends - repeats, ends)]
    source, target = np.array(sources).repeat(repeats), np.array(targets).repeat(repeats)
    order = (source << 8 | byte).argsort(kind="stable")
    return source[order], byte[order], target[order]


def _used_bytes(byte: np.ndarray, wide: bool) -> tuple[np.ndarray, int]:
    """A column for each byte that occurs; column 0 for all others."""
    used = np.zeros(256, bool)
    used[byte] = True
    if wide:
        used[128:192] = used[0xC2:0xF5] = True
    byte_class = np.where(used, used.cumsum(), 0).astype(np.uint8)
    return byte_class, int(byte_class.max()) + 1
