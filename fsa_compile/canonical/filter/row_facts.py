"""`KnownRows`: what is asked again and again of the bit rows of constraints over one vocabulary, such as those of digits."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fsa_compile.artifact.bitmask import holds, tokens_of

_MOST_BYTES = 8 << 20
"""So many bytes of rows are kept."""
_SOONER = 4096
"""So many tokens of a row are kept in the vocabulary's order."""
_FEW = 256
"""So many of them are looked at before the others."""


class KnownRow:
    """A bit row. `bits`: uint32[W]."""

    def __init__(self, bits: np.ndarray, rows: KnownRows) -> None:
        self.bits, self._rows = bits, rows
        self.size = int(np.bitwise_count(bits).sum())
        self.is_between = not (bits & rows.elsewhere).any()
        """Whether all of its tokens begin and end between characters."""

    @cached_property
    def tokens(self) -> np.ndarray:
        """int64[n], ascending."""
        return tokens_of(self.bits)

    @cached_property
    def kinds(self) -> int:
        """How many classes its tokens have."""
        return len(set(self._rows.class_of[self.tokens].tolist()))

    @cached_property
    def _sooner(self) -> np.ndarray:
        rank = self._rows.rank[tokens_of(self.bits)]
        first = np.sort(np.partition(rank, _SOONER)[:_SOONER] if len(rank) > _SOONER else rank)
        return self._rows.order[first]

    def first_of(self, bits: np.ndarray, count: int) -> np.ndarray:
        """int64[n], the first `count` of its tokens that are also in another row, in the vocabulary's order."""
        known = self._sooner
        for part in (known[:_FEW], known):
            found = part[holds(bits, part)]
            if len(found) >= count or len(part) == self.size:
                return found[:count]
        rank = self._rows.rank
        found = tokens_of(self.bits & bits)
        if len(found) > count:
            found = found[np.argpartition(rank[found], count)[:count]]
        return found[np.argsort(rank[found])]


class KnownRows:
    """The rows that were met lately.

    Args:
      class_of: int[V], equal for tokens that lead from every state to the same ones.
      elsewhere: uint32[W], tokens that begin or end inside characters.
      order: int64[V], all tokens, those first that are to be tried first; rank: its inverse.
    """

    def __init__(self, class_of: np.ndarray, elsewhere: np.ndarray, order: np.ndarray, rank: np.ndarray) -> None:
        self.class_of, self.elsewhere, self.order, self.rank = class_of, elsewhere, order, rank
        self._known: dict[bytes, KnownRow] = {}

    def __call__(self, bits: np.ndarray) -> KnownRow:
        """What is known of a bit row, uint32[W]."""
        key = bits.tobytes()
        found = self._known.get(key)
        if found is None:
            if (len(self._known) + 1) * len(key) > _MOST_BYTES:
                self._known.clear()
            found = self._known[key] = KnownRow(np.frombuffer(key, np.uint32), self)
        return found
