"""`TokenLookup`: which tokens are prefixes of a byte string, and which go on after one."""

from __future__ import annotations

import functools
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from fsa_compile.vocabulary.vocabulary import Vocabulary


class TokenLookup:
    """The tokens of a vocabulary by their bytes.

    Attributes:
      ids: bytes → ids that write them, ascending.
      longest: bytes of the longest token.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids: dict[bytes, list[int]] = {}
        for token, data in enumerate(vocabulary.tokens):
            if data:
                ids.setdefault(data, []).append(token)
        self.ids = {data: tuple(found) for data, found in ids.items()}
        self.longest = max(map(len, ids))
        self._texts = sorted(ids)
        self._tokens = vocabulary.tokens

    @functools.cached_property
    def every_byte(self) -> bool:
        """Whether each of the 256 bytes is a token."""
        return all(bytes([b]) in self.ids for b in range(256))

    def text(self, token: int) -> bytes:
        """What a token writes."""
        return self._tokens[token]

    def prefixes(self, data: bytes) -> list[tuple[int, tuple[int, ...]]]:
        """Tokens that are prefixes of a byte string, the whole string included: (length, ids), shortest first."""
        found = ((n, self.ids.get(data[:n])) for n in range(1, min(len(data), self.longest) + 1))
        return [(n, ids) for n, ids in found if ids]

    def longer(self, data: bytes) -> NDArray[np.int64]:
        """Ids of all tokens that begin with a byte string and are longer."""
        begin = bisect_left(self._texts, data)
        end = bisect_left(self._texts, True, lo=begin, key=lambda text: not text.startswith(data))
        found = self._texts[begin:end]
        if found and found[0] == data:
            found = found[1:]
        return np.array([token for text in found for token in self.ids[text]], np.int64)

    def reaches(self, data: bytes, begin: int) -> int:
        """Where the longest token ends that a text has at a place; one more than the text's length if a longer token may follow.
        """
        end = begin
        for stop in range(begin + 1, min(len(data), begin + self.longest) + 1):
            part = data[begin:stop]
            at = bisect_left(self._texts, part)
            if at == len(self._texts) or not self._texts[at].startswith(part):
                return end
            if self._texts[at] == part:
                end = stop
                at += 1
            if stop == len(data) and at < len(self._texts) and self._texts[at].startswith(part):
                return len(data) + 1
        return end

    def spells(self, data: bytes) -> bool:
        """Whether some sequence of tokens writes exactly these bytes."""
        if self.every_byte:
            return True
        reached = [True] + [False] * len(data)
        for at in range(len(data)):
            if reached[at]:
                for n, _ in self.prefixes(data[at:]):
                    reached[at + n] = True
        return reached[-1]


@functools.lru_cache(maxsize=4)
def token_lookup(vocabulary: Vocabulary) -> TokenLookup:
    """The lookup of a vocabulary; the last few are kept."""
    return TokenLookup(vocabulary)
