"""Text of a growing row of tokens: whole characters only, until the row ends."""

from __future__ import annotations

import codecs
from typing import Any


class RowText:
    """The text of one row.

    Bytes of a character that is not complete wait for the rest. Tokens that are not text (special ones, padding ids) write
    nothing. At the end, what is no character becomes U+FFFD, so that the text is what decoding all tokens at once gives.

    Attributes:
      text: complete characters so far.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Starts an empty row; `tokenizer` as in `Generation.text`."""
        self._tokenizer = getattr(tokenizer, "vocabulary", tokenizer)
        self._size = getattr(self._tokenizer, "size", None)
        self._bytes = hasattr(self._tokenizer, "decode_bytes")
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ids: list[int] = []
        self._ends: list[int | None] = []
        self.text = ""

    def feed(self, token: int) -> None:
        """Appends a token."""
        if self._size is not None and token >= self._size:
            self._ends.append(self._ends[-1] if self._ends else 0)
            return
        if self._bytes:
            self.text += self._decoder.decode(self._tokenizer.decode_bytes([token]))
            waiting = bool(self._decoder.getstate()[0])
        else:
            self._ids.append(token)
            whole = self._tokenizer.decode(self._ids)
            stable = whole.rstrip("\ufffd")
            waiting = stable != whole
            if stable.startswith(self.text):
                self.text = stable
        self._ends.append(None if waiting else len(self.text))

    def finish(self) -> None:
        """No token follows: bytes that wait become U+FFFD."""
        if self._bytes:
            self.text += self._decoder.decode(b"", final=True)
        elif self._ids:
            self.text = self._tokenizer.decode(self._ids)

    def tokens_within(self, characters: int) -> int:
        """The least number of tokens fed that spell all of the first `characters` of the text but a token cut in two."""
        ends = [0, *(0 if end is None or end > characters else end for end in self._ends)]
        return ends.index(max(ends))
