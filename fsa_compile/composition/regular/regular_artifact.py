"""Groups the token walk's result into the artifact's arrays: shared rows, arcs, distances, levels, trimmed nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct, numbered, sorted_rows
from fsa_compile.arrays.ranges import indices, joined, segment_sizes, segment_starts, spread
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.composition.regular.trie_walk import TokenArcs, TokenLists
from fsa_compile.composition.tokens.artifact_builder import ArtifactBuilder
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.errors import UnspellableError
from fsa_compile.limits import CompileLimits, Deadline, check_time
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_FEW_ARCS = 1000


class _Segments(NamedTuple):
    """One entry for every pair of states, ascending: the pair, where its sorted tokens begin, their number and hash."""

    pair: np.ndarray
    begin: np.ndarray
    size: np.ndarray
    hash: np.ndarray


def _by_pair(pair: np.ndarray, token: np.ndarray, tables: VocabularyTables) -> tuple[np.ndarray, _Segments]:
    """Single tokens by pair of states: all of them sorted, and the segment of each pair."""
    pair, token = sorted_rows(pair, token)
    begin = segment_starts(pair)
    size = segment_sizes(begin, len(pair))
    hashes = np.add.reduceat(tables.token_hash[token], begin) if len(begin) else np.zeros(0, np.uint64)
    return token, _Segments(pair[begin], begin, size, hashes)


class _Groups:
    """Token sets by (state, target): `pair` ascending, each either a row or a segment of sorted tokens."""

    def __init__(self, arcs: TokenArcs, tables: VocabularyTables, num_states: int, pool: RowPool) -> None:
        s = num_states
        self.token, found = _by_pair(arcs.state * s + arcs.target, arcs.token, tables)
        if arcs.lists is not None:
            found = self._with_lists(arcs, arcs.lists, tables, s, found)
        row = np.zeros(len(found.pair), np.int64)
        if len(arcs.row_state):
            found, row = self._with_sets(arcs, tables, s, pool, found)
        pair, begin, size, hashes = found
        wide = ((size > NARROW) & (row == 0)).nonzero()[0]
        if len(wide):
            lo, hi = begin[wide], begin[wide] + size[wide]
            row[wide] = pool.numbers(hashes[wide], lambda i: tables.pack(self.token[lo[i] : hi[i]]))
        self.state, self.target = pair // s, pair % s
        self.begin, self.size, self.hash, self.row = begin, size, hashes, row

    def _with_lists(
        self, arcs: TokenArcs, lists: TokenLists, tables: VocabularyTables, s: int, found: _Segments
    ) -> _Segments:
        """Adds the tokens given as lists; lists of one (state, target) are sorted as single tokens are."""
        of_list = lists.state * s + lists.target
        every, which = numbered(np.concatenate((found.pair, of_list)))
        several = (np.bincount(which, minlength=len(every)) > 1)[which[len(found.pair) :]]
        if several.any():
            listed, at = spread(lists.begin[several], lists.size[several])
            pair = np.concatenate((arcs.state * s + arcs.target, of_list[several][listed]))
            self.token, found = _by_pair(pair, np.concatenate((arcs.token, lists.token[at])), tables)
        alone = (~several).nonzero()[0]
        pair = np.concatenate((found.pair, of_list[alone]))
        order = pair.argsort(kind="stable")
        begin = np.concatenate((found.begin, lists.begin[alone] + len(self.token)))[order]
        self.token = np.concatenate((self.token, lists.token))
        columns = (found.size, lists.size), (found.hash, lists.hash)
        return _Segments(pair[order], begin, *(np.concatenate((own, known[alone]))[order] for own, known in columns))

    def _with_sets(
        self, arcs: TokenArcs, tables: VocabularyTables, s: int, pool: RowPool, found: _Segments
    ) -> tuple[_Segments, np.ndarray]:
        """Adds the sets given as bit rows, and says each pair's row; one with both a row and single tokens has one row."""
        pair, begin, size, hashes = found
        order = np.argsort(arcs.row_state * s + arcs.row_target, kind="stable")
        set_pair, member = (arcs.row_state * s + arcs.row_target)[order], arcs.row_set[order]
        set_begin = segment_starts(set_pair)
        set_end = np.append(set_begin[1:], len(set_pair))
        set_hash = np.add.reduceat(arcs.hashes[member], set_begin)
        set_pair = set_pair[set_begin]
        at = pair.searchsorted(set_pair)
        both = at < len(pair)
        both[both] = pair[at[both]] == set_pair[both]
        set_hash[both] += hashes[at[both]]

        def build(i: int) -> np.ndarray:
            parts = [arcs.sets[m] for m in member[set_begin[i] : set_end[i]].tolist()]
            if both[i]:
                b = begin[at[i]]
                parts.append(tables.pack(self.token[b : b + size[at[i]]]))
            return parts[0] if len(parts) == 1 else np.bitwise_or.reduce(parts)

        numbers = pool.numbers(set_hash, build)
        alone = np.ones(len(pair), bool)
        alone[at[both]] = False
        zeros = np.zeros(len(set_pair), np.int64)
        pair = np.concatenate([pair[alone], set_pair])
        order = pair.argsort(kind="stable")
        columns = (begin, zeros), (size, zeros), (hashes, set_hash)
        every = _Segments(pair[order], *(np.concatenate([own[alone], of_set])[order] for own, of_set in columns))
        return every, np.concatenate([np.zeros(int(alone.sum()), np.int64), numbers])[order]

    def select(self, keep: np.ndarray, renumber: np.ndarray) -> None:
        """Keeps some groups and renumbers states."""
        self.state, self.target = renumber[self.state[keep]], renumber[self.target[keep]]
        self.begin, self.size, self.hash, self.row = (x[keep] for x in (self.begin, self.size, self.hash, self.row))


def assemble(
    dfa: ByteDfa,
    arcs: TokenArcs,
    tables: VocabularyTables,
    *,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
    levels: bool = True,
) -> CompiledConstraint:
    """The artifact of a token automaton; without levels nothing in it says what a limit on the number of tokens leaves.

    Raises:
      UnspellableError: no token sequence spells an accepted text.
      LimitError: too many rows or bytes, or out of time.
    """
    pool = RowPool(tables, limits)
    groups = _Groups(arcs, tables, dfa.num_states, pool)
    accept, start = dfa.final, dfa.start
    distance = distances(groups.state, groups.target, accept)
    if distance[start] == UNREACHABLE:
        raise unspellable(source)
    if not tables.spells_every_byte:
        accept, start, distance = _trim(groups, accept, start, distance)
    deadline.check("assembling the artifact")
    wide = groups.row > 0
    out = ArtifactBuilder(len(accept))
    out.groups(groups.state[wide], groups.row[wide], groups.target[wide])
    narrow = (~wide).nonzero()[0]
    size = groups.size[narrow]
    token = groups.token[joined(groups.begin[narrow], size)]
    out.arcs(groups.state[narrow], groups.target[narrow], token, size)
    if levels:
        part = out.masked()[groups.state].nonzero()[0]
        cost, hashes = distance[groups.target[part]] + 1, groups.hash[part]
        out.levels_by_cost(groups.state[part], cost, hashes, pool, lambda i: _union(groups, part[i], tables, pool))
    return out.constraint(
        tables, rows=pool.stored(), source=source, start=start, extra=extra, accept=accept, distance=distance
    )


def unspellable(source: str) -> UnspellableError:
    """The error for a constraint that no token sequence satisfies."""
    return UnspellableError(
        "the vocabulary cannot spell any text that the constraint accepts",
        where=source if len(source) <= 200 else source[:197] + "...",
        fix="Use a tokenizer with a token for each byte (byte fallback), or loosen the constraint.",
    )


def distances(state: np.ndarray, target: np.ndarray, accept: np.ndarray) -> np.ndarray:
    """Least number of arcs from each state to an accepting one, int64[S]; `UNREACHABLE` where there is no path."""
    distance = np.full(len(accept), int(UNREACHABLE), np.int64)
    distance[accept] = 0
    if len(state) < _FEW_ARCS:
        return _distances_in_python(state.tolist(), target.tolist(), distance.tolist())
    order = target.argsort(kind="stable")
    source = state[order]
    begin = target[order].searchsorted(np.arange(len(accept) + 1))
    frontier, step = accept.nonzero()[0], 0
    mark = np.empty(len(accept), np.int64)
    while len(frontier):
        check_time("assembling the artifact")
        step += 1
        reached = source[indices(begin[frontier], begin[frontier + 1])]
        reached = reached[distance[reached] > step]
        distance[reached] = step
        number = np.arange(len(reached))
        mark[reached] = number  # of equal entries one number stays: that one is kept
        frontier = reached[mark[reached] == number]
    return distance


def _distances_in_python(state: list[int], target: list[int], distance: list[int]) -> np.ndarray:
    """The same for small automata, where NumPy's overhead per level would dominate."""
    sources: dict[int, list[int]] = {}
    for q, r in zip(state, target):
        sources.setdefault(r, []).append(q)
    queue = [q for q, d in enumerate(distance) if d == 0]
    for r in queue:
        step = distance[r] + 1
        for q in sources.get(r, ()):
            if distance[q] > step:
                distance[q] = step
                queue.append(q)
    return np.array(distance)


def _trim(
    groups: _Groups, accept: np.ndarray, start: int, distance: np.ndarray
) -> tuple[np.ndarray, int, np.ndarray]:
    """Drops states that no token sequence reaches, or from which none completes."""
    alive = distance < UNREACHABLE
    useful = alive[groups.state] & alive[groups.target]
    state, target = groups.state[useful], groups.target[useful]
    seen = np.zeros(len(accept), bool)
    seen[start] = True
    frontier = np.array([start])
    order = state.argsort(kind="stable")
    begin, target = state[order].searchsorted(np.arange(len(accept) + 1)), target[order]
    while len(frontier):
        frontier = distinct(target[indices(begin[frontier], begin[frontier + 1])])
        frontier = frontier[~seen[frontier]]
        seen[frontier] = True
    keep = seen & alive
    keep[0] = True
    renumber = keep.cumsum() - 1
    groups.select(useful & keep[groups.state], renumber)
    return accept[keep], int(renumber[start]), distance[keep]


def _union(groups: _Groups, part: np.ndarray, tables: VocabularyTables, pool: RowPool) -> np.ndarray:
    """Bit row of all tokens of some groups."""
    rows, listed = [], []
    for row, b, n in zip(groups.row[part].tolist(), groups.begin[part].tolist(), groups.size[part].tolist()):
        if row:
            rows.append(pool[row])
        else:
            listed.append(groups.token[b : b + n])
    if listed:
        rows.append(tables.pack(np.concatenate(listed)))
    return rows[0] if len(rows) == 1 else np.bitwise_or.reduce(rows)
