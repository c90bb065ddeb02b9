"""`MergeTable`: the atoms of every token and all merges of a byte-pair encoder, whatever file they came from.

Only the form and the search for splits live here; which tokenizers have a table is the business of `encoder_sources`.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property

import numpy as np

NO_RANK = np.int64(1) << 40
"""Rank of a pair that has no merge."""

_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MergeTable:
    """Atoms per token, and which adjacent pairs the encoder merges.

    The encoder starts from the atoms of a text and again and again merges the adjacent pair of least rank, the leftmost of
    those, until no adjacent pair has a merge.

    Axes: V tokens, M merges, A atoms of all tokens.

    Attributes:
      vocab_size: V.
      atoms: int32[A], ids of the tokens that are atoms (single bytes or characters), token after token.
      atom_offset: int64[V + 1]; tokens outside the encoder (special tokens, byte fallback) have no atoms.
      left, right, result, rank: int64[M], sorted by (left, right). Merges may share a rank.
      whole_tokens: whether a piece of text that equals a token becomes that token even where merging never reaches it.
    """

    vocab_size: int
    atoms: np.ndarray
    atom_offset: np.ndarray
    left: np.ndarray
    right: np.ndarray
    result: np.ndarray
    rank: np.ndarray
    whole_tokens: bool

    @cached_property
    def key(self) -> np.ndarray:
        """int64[M], ascending: left * V + right."""
        return self.left * self.vocab_size + self.right

    @cached_property
    def inside(self) -> np.ndarray:
        """bool[V], tokens that the encoder can read as atoms."""
        return np.diff(self.atom_offset) > 0

    def find(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rank and result of pairs.

        Args:
          left, right: int64[n], token ids.

        Returns:
          int64[n] ranks, `NO_RANK` where there is no merge, and int64[n] results, -1 there.
        """
        if not len(self.key):
            return np.full(left.shape, NO_RANK), np.full(left.shape, -1, np.int64)
        wanted = left.astype(np.int64) * self.vocab_size + right
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        hit = self.key[at] == wanted
        return np.where(hit, self.rank[at], NO_RANK), np.where(hit, self.result[at], -1)

    def encode(self, atoms: list[int]) -> list[int]:
        """Merges one sequence of atoms: slow and plain, for tests and single tokens.

        Args:
          atoms: token ids of the atoms.

        Returns:
          Token ids; the rule for whole tokens is not applied.
        """
        out = list(atoms)
        while True:
            best = min(
                ((*self._merges[pair], i) for i, pair in enumerate(itertools.pairwise(out)) if pair in self._merges),
                key=lambda found: (found[0], found[2]),
                default=None,
            )
            if best is None:
                return out
            out[best[2] : best[2] + 2] = [best[1]]

    @cached_property
    def _merges(self) -> dict[tuple[int, int], tuple[int, int]]:
        pairs = zip(self.left.tolist(), self.right.tolist())
        return dict(zip(pairs, zip(self.rank.tolist(), self.result.tolist())))


def make_table(
    *,
    atoms: np.ndarray,
    atom_offset: np.ndarray,
    merges: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    whole_tokens: bool,
) -> MergeTable:
    """A table with its merges sorted.

    Args:
      atoms: int32[A].
      atom_offset: int64[V + 1].
      merges: left, right, result, rank of each merge, int64[M].
    """
    left, right, result, rank = (np.asarray(part, np.int64) for part in merges)
    size = len(atom_offset) - 1
    order = np.lexsort((right, left))
    left, right, result, rank = left[order], right[order], result[order], rank[order]
    return MergeTable(
        vocab_size=size, atoms=atoms.astype(np.int32), atom_offset=atom_offset, left=left, right=right, result=result,
        rank=rank, whole_tokens=whole_tokens,
    )  # fmt: skip


def all_splits(units: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every way to write a token as two tokens.

    Encoders that look up ranks by text merge any two neighbours that spell a token, not only those that training merged.

    Args:
      units: integers of all tokens one after another (bytes or code points).
      offset: int64[V + 1]; tokens without units take no part. No two tokens have the same units.

    Returns:
      left, right, result: int64[M].

    Raises:
      RuntimeError: two tokens have the same 64-bit hash.
    """
    length = np.diff(offset)
    tokens = np.flatnonzero(length > 0)
    start, length = offset[tokens], length[tokens]
    flat = units.astype(np.uint64) + np.uint64(1)
    longest = int(length.max(initial=0))
    power = np.ones(longest + 1, np.uint64)
    power[1:] = _BASE
    power = np.multiply.accumulate(power)
    whole = np.zeros(len(tokens), np.uint64)
    owners, sizes, prefixes = [], [], []
    live = np.arange(len(tokens))
    for prefix_size in range(1, longest + 1):  # hashes of all prefixes of one length at once
        live = live[length[live] >= prefix_size]
        whole[live] = whole[live] * _BASE + flat[start[live] + prefix_size - 1]
        longer = live[length[live] > prefix_size]
        owners.append(longer)
        sizes.append(np.full(len(longer), prefix_size))
        prefixes.append(whole[longer])
    owner, size, prefix = np.concatenate(owners), np.concatenate(sizes), np.concatenate(prefixes)
    order = np.argsort(whole)
    hashes = whole[order]
    if (hashes[1:] == hashes[:-1]).any():
        raise RuntimeError("two tokens share a 64-bit hash")

    def find(wanted: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        return np.where(hashes[at] == wanted, order[at], -1)

    first = find(prefix)
    hit = first >= 0
    owner, size, prefix, first = owner[hit], size[hit], prefix[hit], first[hit]
    # The hash of a suffix follows from those of the whole and of the prefix.
    second = find(whole[owner] - prefix * power[length[owner] - size])
    hit = second >= 0
    owner, size, first, second = owner[hit], size[hit], first[hit], second[hit]
    hit = (length[first] == size) & (length[second] == length[owner] - size)
    owner, size, first, second = owner[hit], size[hit], first[hit], second[hit]
    hit = _same_units(flat, start[owner], start[first], size)
    hit &= _same_units(flat, start[owner] + size, start[second], length[second])
    owner, first, second = owner[hit], first[hit], second[hit]
    return tokens[first], tokens[second], tokens[owner]


def _same_units(flat: np.ndarray, a: np.ndarray, b: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Whether the segments of `size` units at `a` and at `b` are equal: hashes only say that they probably are."""
    before = np.cumsum(size) - size
    step = np.arange(int(size.sum())) - np.repeat(before, size)
    same = flat[np.repeat(a, size) + step] == flat[np.repeat(b, size) + step]
    return np.logical_and.reduceat(same, before) if len(size) else np.zeros(0, bool)
