"""A vocabulary without an encoder of its own: an explicit list of bytes, or a `Vocabulary`."""

from __future__ import annotations

import functools

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.tokenizer import Tokenizer, checked_text
from fsa_compile.vocabulary.vocabulary import Vocabulary


class ExplicitTokenizer(Tokenizer):
    """Encodes with the fewest tokens; among equals the one whose first differing token is longest, then lowest."""

    kind = "bytes"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        data = checked_text(text).encode("utf-8")
        ids, lengths = self._ids, self._lengths
        unreachable = len(data) + 1
        best = [unreachable] * len(data) + [0]
        step = [0] * len(data)
        for at in range(len(data) - 1, -1, -1):
            for length in lengths:  # longest first, so that a tie keeps the longest
                end = at + length
                if end <= len(data) and best[end] + 1 < best[at] and data[at:end] in ids:
                    best[at], step[at] = best[end] + 1, length
        if best[0] >= unreachable:
            raise self._unspellable(data)
        found, at = [], 0
        while at < len(data):
            found.append(ids[data[at : at + step[at]]])
            at += step[at]
        return found

    @functools.cached_property
    def _ids(self) -> dict[bytes, int]:
        """Bytes -> lowest id that writes them."""
        return {token: i for i, token in reversed(list(enumerate(self.vocabulary.tokens))) if token}

    @functools.cached_property
    def _lengths(self) -> list[int]:
        return sorted({len(token) for token in self._ids}, reverse=True)

    def _unspellable(self, data: bytes) -> TokenizerError:
        """The error that says how far any tokens spell the text."""
        reached = [True] + [False] * len(data)
        for at in range(len(data)):
            for length in self._lengths if reached[at] else ():
                if data[at : at + length] in self._ids and at + length <= len(data):
                    reached[at + length] = True
        furthest = max(at for at, ok in enumerate(reached) if ok)
        return TokenizerError(
            f"no tokens of this vocabulary spell the text from byte {furthest}: {data[furthest : furthest + 20]!r}",
            fix="Add the missing tokens to the list.",
        )
