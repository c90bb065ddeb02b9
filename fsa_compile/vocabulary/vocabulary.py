"""What each token id writes: exact bytes per id, special ids, stop ids, and a fingerprint of all of it.

Imports the standard library and NumPy only. Reading tokenizer files belongs to `fsa_compile.tokenizers`; what
compilation derives from a vocabulary (tries, byte sets) belongs to its own modules.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact import known_vocabularies
from fsa_compile.errors import TokenizerError, named_fields, shown

MAX_TOKENS = 1 << 22
"""Most ids a vocabulary may have: sixteen times the largest published ones, small enough to allocate."""

MOST_IDS = 1 << 24
"""Most ids that are decoded at once."""

MAX_TOKEN_BYTES = 1 << 16
"""Most bytes one token may write."""


def listed_ids(ids: Iterable[int]) -> list[int]:
    """Token ids as a list. Raises `TokenizerError`: they are none, or more than `MOST_IDS`, as of a generator without end."""
    of_one = isinstance(ids, Iterable) and not isinstance(ids, (str, bytes)) and getattr(ids, "ndim", 1) == 1
    found = list(itertools.islice(ids, MOST_IDS + 1)) if of_one else None
    if found is None or len(found) > MOST_IDS:
        fix = f"Give ids, such as tokenizer.encode(text), {MOST_IDS:,} at most."
        raise TokenizerError(f"the ids are {shown(ids)}, not a list of token ids", fix=fix)
    return found


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Vocabulary:
    """The bytes every token id contributes to a text, frozen.

    Ids that are never text (control, unknown, unused, reserved, padding) write `b""`: a constraint over text
    can never allow them, and their printed names are never matched. Several ids may write equal bytes, and an
    id may write bytes that are not valid UTF-8 alone.

    Attributes:
      tokens: exact bytes per id; index = id, length = `size`.
      special: printed name -> id of the ids that are not text and have a name.
      stop_ids: the default end-of-text ids, ascending; empty when the tokenizer has none.
      bos_id: id that starts a text, or None.
      logits_width: number of logits of the model, at least `size`, or None when not known. Ids from `size` on
        are padding and always masked. It describes the model, so it is no part of the fingerprint.
    """

    tokens: tuple[bytes, ...]
    special: Mapping[str, int] = dataclasses.field(default_factory=dict)
    stop_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    logits_width: int | None = None

    def __post_init__(self) -> None:
        put = functools.partial(object.__setattr__, self)
        put("tokens", _checked_tokens(self.tokens))
        put("special", MappingProxyType(self._checked_special(self.special)))
        put("stop_ids", tuple(sorted({self._never_text(i, "stop id") for i in _listed(self.stop_ids)})))
        if self.bos_id is not None:
            put("bos_id", self._never_text(self.bos_id, "bos_id"))
        if self.logits_width is not None:
            width = _index(self.logits_width, "logits_width")
            if not self.size <= width <= MAX_TOKENS:
                raise TokenizerError(
                    f"logits_width={width:,} does not fit a vocabulary of {self.size:,} ids",
                    fix=f"Give the size of the logits' last axis, {self.size:,} to {MAX_TOKENS:,}.",
                )
            put("logits_width", width)

    @classmethod
    def from_tokens(
        cls,
        tokens: Iterable[bytes],
        *,
        special: Mapping[str, int] | None = None,
        stop_ids: Iterable[int] = (),
        bos_id: int | None = None,
        logits_width: int | None = None,
    ) -> Vocabulary:
        """A vocabulary from an explicit list of bytes.

        Args:
          tokens: exact bytes per id, in id order; `b""` for ids that are never text.
          special: printed name -> id, each id writing `b""`.
          stop_ids: end-of-text ids, each writing `b""`.
          bos_id: id that starts a text, writing `b""`.
          logits_width: number of logits of the model, at least the number of tokens.

        Returns:
          The vocabulary.

        Raises:
          TokenizerError: a token is not bytes, an id is out of range or is text, a size is absurd.

        Examples:
          >>> Vocabulary.from_tokens([b"yes", b"no", b""], special={"<eos>": 2}, stop_ids=[2]).decode([0, 2])
          'yes'
        """
        if isinstance(tokens, (bytes, bytearray, str, Mapping)) or not isinstance(tokens, Iterable):
            raise TokenizerError(
                f"the tokens are one {type(tokens).__name__}, not a list of bytes",
                fix='Give one bytes object per id, in id order, such as [b"a", b"b", b""].',
            )
        return cls(
            tokens=tuple(itertools.islice(tokens, MAX_TOKENS + 1)),
            special={} if special is None else special,
            stop_ids=_listed(stop_ids),
            bos_id=bos_id,
            logits_width=logits_width,
        )

    @property
    def size(self) -> int:
        """Number of tokenizer ids."""
        return len(self.tokens)

    @property
    def width(self) -> int:
        """Number of logits to mask: `logits_width` where known, else `size`."""
        return self.size if self.logits_width is None else self.logits_width

    @functools.cached_property
    def packed(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All token bytes in id order, and where each begins.

        Returns:
          bytes, uint8[total], and offsets, int64[size + 1]: token i is `bytes[offsets[i]:offsets[i + 1]]`.
          Both are read-only.
        """
        offsets = np.zeros(self.size + 1, np.int64)
        np.cumsum(np.fromiter(map(len, self.tokens), np.int64, self.size), out=offsets[1:])
        offsets.flags.writeable = False
        return np.frombuffer(b"".join(self.tokens), np.uint8), offsets

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the size, all token bytes, the special ids and the stop ids.

        It depends on nothing else: the same vocabulary read from two file formats, or by two processes, has one
        fingerprint.
        """
        joined, offsets = self.packed
        special = np.array(sorted(set(self.special.values())), "<u4")
        stops = np.array(self.stop_ids, "<u4")
        digest = hashlib.sha256(b"constrax vocabulary 1\0")
        digest.update(np.array([self.size, len(joined), len(special), len(stops)], "<u8").tobytes())
        for part in (np.diff(offsets).astype("<u4"), joined, special, stops):
            digest.update(np.ascontiguousarray(part).data)
        known_vocabularies.remember(digest.hexdigest(), self)
        return digest.hexdigest()

    def with_logits_width(self, logits_width: int | None) -> Vocabulary:
        """The same vocabulary for a model whose logits have `logits_width` entries.

        Args:
          logits_width: at least `size`, or None.

        Returns:
          A new vocabulary with the same fingerprint.
        """
        return dataclasses.replace(self, special=dict(self.special), logits_width=logits_width)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` write one after another; ids that are not text write nothing.

        Args:
          ids: token ids, each in [0, width).

        Returns:
          The concatenated bytes.

        Raises:
          TokenizerError: an id is out of range.
        """
        tokens, parts = self.tokens, []
        for position, token_id in enumerate(listed_ids(ids)):
            index = _index(token_id, "token id")
            if not 0 <= index < self.width:
                raise TokenizerError(
                    f"token id {index} does not exist in a vocabulary of {self.width:,} ids",
                    where=f"position {position} of the sequence",
                    fix="Check that the ids were made with this tokenizer.",
                )
            parts.append(tokens[index] if index < len(tokens) else b"")
        return b"".join(parts)

    def decode(self, ids: Iterable[int]) -> str:
        """The text that `ids` write; bytes that are not UTF-8 become U+FFFD, ids that are not text nothing.

        Args:
          ids: token ids, each in [0, width).

        Returns:
          The text.

        Raises:
          TokenizerError: an id is out of range.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self is other or self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        tokens, special, stop_ids, bos_id, width = self._fields()
        return _rebuild, (tokens, special, stop_ids, bos_id, width)

    def __repr__(self) -> str:
        padding = "" if self.logits_width is None else f", logits_width={self.logits_width}"
        return (
            f"Vocabulary(size={self.size}, special={len(self.special)}, stop_ids={self.stop_ids}, "
            f"bos_id={self.bos_id}{padding}, fingerprint={self.fingerprint[:12]}…)"
        )

    def _fields(self) -> tuple[tuple[bytes, ...], dict[str, int], tuple[int, ...], int | None, int | None]:
        return self.tokens, dict(self.special), self.stop_ids, self.bos_id, self.logits_width

    def _checked_special(self, special: Mapping[str, int]) -> dict[str, int]:
        if not isinstance(special, Mapping) or not all(isinstance(name, str) for name in special):
            raise TokenizerError(
                "the special ids are not a mapping from name to id", fix='Give {"<eos>": 2}.'
            )
        return {name: self._never_text(i, f"special id of {name!r}") for name, i in special.items()}

    def _never_text(self, token_id: Any, what: str) -> int:
        """`token_id` as an int, checked to be in range and to write nothing."""
        index = _index(token_id, what)
        if not 0 <= index < self.size:
            raise TokenizerError(
                f"{what} {index} is outside the vocabulary of {self.size:,} ids",
                fix=f'Give an id from 0 to {self.size - 1}, or append b"" to the tokens for it.',
            )
        if self.tokens[index]:
            raise TokenizerError(
                f"{what} {index} writes the text {self.tokens[index][:40]!r}",
                where=f"tokens[{index}]",
                fix='An id that is not text is never matched by its printed name: put b"" there.',
            )
        return index


def _rebuild(
    tokens: tuple[bytes, ...],
    special: dict[str, int],
    stop_ids: tuple[int, ...],
    bos_id: int | None,
    logits_width: int | None,
) -> Vocabulary:
    """The vocabulary of `__reduce__`'s fields (a mapping proxy cannot be pickled)."""
    return Vocabulary(
        tokens=tokens, special=special, stop_ids=stop_ids, bos_id=bos_id, logits_width=logits_width
    )


def _checked_tokens(tokens: Sequence[bytes]) -> tuple[bytes, ...]:
    """`tokens` as a tuple, after checking its types and sizes."""
    if not isinstance(tokens, Iterable):
        raise TokenizerError(f"the tokens are {shown(tokens)}, not a list", fix="Give one bytes object per id, in id order.")
    tokens = tuple(itertools.islice(tokens, MAX_TOKENS + 1))
    if set(map(type, tokens)) - {bytes}:
        index, wrong = next((i, t) for i, t in enumerate(tokens) if type(t) is not bytes)
        raise TokenizerError(
            f"a token is {type(wrong).__name__}, not bytes",
            where=f"tokens[{index}]",
            fix="Encode text: 'é'.encode().",
        )
    if len(tokens) > MAX_TOKENS:
        raise TokenizerError(f"the tokens are more than a vocabulary may have ({MAX_TOKENS:,})")
    if not any(tokens):
        raise TokenizerError(
            "the vocabulary has no token that writes text", fix="Give at least one non-empty token."
        )
    lengths = list(map(len, tokens))
    if (most := max(lengths)) > MAX_TOKEN_BYTES:
        raise TokenizerError(
            f"a token of {most:,} bytes is longer than allowed ({MAX_TOKEN_BYTES:,})",
            where=f"tokens[{lengths.index(most)}]",
        )
    return tokens


def _listed(ids: Any) -> tuple[Any, ...]:
    """`ids`, or an error that says that a list was wanted."""
    try:
        found = None if isinstance(ids, (str, bytes)) else tuple(itertools.islice(ids, MAX_TOKENS + 1))
    except TypeError:
        found = None
    if found is None:
        raise TokenizerError(f"the stop ids are {ids!r}, not a list of ids", fix="Give a list such as [2].")
    if len(found) > MAX_TOKENS:
        raise TokenizerError(f"there are over {MAX_TOKENS:,} stop ids", fix="Give a list such as [2].")
    return found


def _index(value: Any, what: str) -> int:
    """`value` as an int; booleans and floats are mistakes, NumPy integers are not."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TokenizerError(f"the {what} is {shown(value)}, not an integer") from None
