"""Token masks as bit rows, in the order that serving engines exchange: token t is bit t % 32 of word t // 32, low bit first.

`BitmaskWalk` gives a host walk the methods that write such rows. Imports NumPy only.

Source: the layout is that of XGrammar's `allocate_token_bitmask` and of llguidance, which vLLM and SGLang upload; it is also the
order of the rows in an artifact.
"""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Hashable
from typing import Any, Self

import numpy as np

from fsa_compile.arrays.index_sets import _SPARSE
from fsa_compile.errors import ConstraintError, is_whole, shown, whole

_SINGLE = 3
"""Up to this many tokens: scalar bit sets."""
_MANY = 2000
"""Above this many: one boolean array, then `packbits`."""
_WORDS = frozenset([np.dtype(np.int32), np.dtype(np.uint32)])
_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def bitmask_shape(batch_size: int, vocab_size: int) -> tuple[int, int]:
    """(B, ceil(V / 32)); raises `ConstraintError` for sizes that are none."""
    return whole(batch_size, "batch_size"), math.ceil(whole(vocab_size, "vocab_size") / 32)


def allocate_bitmask(batch_size: int, vocab_size: int) -> np.ndarray:
    """int32[B, ceil(V / 32)] that allows everything.

    Raises:
      ConstraintError: sizes that are none, or more than 2^31 words.
    """
    shape = bitmask_shape(batch_size, vocab_size)
    if math.prod(shape) >> 31:
        what = f"a bitmask of {shape[0]:,} rows of {shape[1]:,} words takes {4 * math.prod(shape):,} bytes"
        raise ConstraintError(what, fix="Use one row for each text of a batch.")
    return np.full(shape, -1, np.int32)


def whole_limit(limit: Any, name: str) -> int | None:
    """A limit of a walk as an int; None for none. Raises `ConstraintError` for what is no whole number."""
    if limit is None or limit.__class__ is int:
        return limit
    try:
        if not isinstance(limit, bool):
            return operator.index(limit)
    except TypeError:
        pass
    raise ConstraintError(f"{name} is {shown(limit)}", fix="Give a whole number, or None for no limit.")


def token_id(token: Any) -> int:
    """A token id as an int; raises `ConstraintError` for what is no whole number."""
    try:
        if not isinstance(token, (bool, np.bool_)):
            return operator.index(token)
    except TypeError:
        pass
    what = f"a token is a whole number, not {shown(token, 40)}"
    raise ConstraintError(what, fix="Take ids one by one: for token in tokenizer.encode(text): walk.advance(token).")


def words_of(tokens: Any, vocab_size: int) -> np.ndarray:
    """uint32[ceil(V / 32)] with the bits of some token ids, each in range; they may come twice."""
    tokens = np.asarray(tokens, np.int64)
    words = np.zeros(math.ceil(vocab_size / 32), np.uint32)
    if tokens.size <= _SINGLE:
        for token in tokens.ravel().tolist():
            words[token >> 5] |= np.uint32(1 << (token & 31))
        return words
    if tokens.size > _MANY:
        mask = np.zeros(vocab_size, bool)
        mask[tokens] = True
        return packed(mask)
    np.bitwise_or.at(words, tokens >> 5, _BITS.take(tokens & 31))
    return words


def holds(words: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """bool[n], whether a bit row uint32[W] holds tokens."""
    return (words.take(tokens >> 5) & _BITS.take(tokens & 31)).astype(bool)


def packed(mask: np.ndarray) -> np.ndarray:
    """A mask, bool[V], as uint32[ceil(V / 32)]; bits past V are 0."""
    out = np.zeros(4 * math.ceil(len(mask) / 32), np.uint8)
    data = np.packbits(mask, bitorder="little")
    out[: len(data)] = data
    return out.view("<u4").astype(np.uint32, copy=False)


def unpacked(bitmask: Any, vocab_size: int) -> np.ndarray:
    """Bit rows as booleans, bool[..., V]; V may be larger than the rows are, nothing is allowed there."""
    data = np.ascontiguousarray(host_array(bitmask)).view(np.uint8)
    bits = np.unpackbits(data, axis=-1, bitorder="little", count=vocab_size)
    return bits.view(bool)


def apply_bitmask(logits: np.ndarray, bitmask: Any) -> np.ndarray:
    """Logits with -inf in place of those whose bit is 0.

    Args:
      logits: float[B, V'].
      bitmask: int32[B, W] or uint32[B, W]; ids past 32 * W are not allowed.

    Raises:
      ConstraintError: these are no such arrays, or of different B.
    """
    try:
        masks = np.zeros(0) if isinstance(bitmask, range) else host_array(bitmask)
    except (TypeError, ValueError):  # keys of JAX, lists of several lengths
        masks = np.zeros(0)
    fits = isinstance(logits, np.ndarray) and np.issubdtype(logits.dtype, np.floating) and masks.dtype in _WORDS
    if not fits or logits.ndim != 2 or masks.ndim != 2 or len(logits) != len(masks):
        what = f"logits and bitmask are {shown(logits, 40)} and {shown(bitmask, 40)}"
        raise ConstraintError(what, fix="Give float[B, V] as a NumPy array, and int32[B, W] as of allocate_bitmask(B, V).")
    return np.where(unpacked(bitmask, logits.shape[-1]), logits, -np.inf).astype(logits.dtype)


def host_array(bitmask: Any) -> np.ndarray:
    """A NumPy array, or a tensor on the CPU, as a NumPy array of the same memory."""
    return bitmask if isinstance(bitmask, np.ndarray) else np.asarray(bitmask)


def write_row(out: Any, row: int, words: np.ndarray) -> None:
    """Writes one bit row; words of `out` past it become 0.

    Raises:
      ConstraintError: `out` is no array (or CPU tensor) of 32-bit integers, too small, or not writable.
    """
    fix = "Use allocate_bitmask(batch_size, vocab_size)."
    array = host_array(out)
    if array.dtype not in _WORDS or array.ndim not in (1, 2):
        raise ConstraintError(f"a bitmask is int32[B, W], not {array.dtype} of {array.ndim} dimensions", fix=fix)
    array = array[None] if array.ndim == 1 else array
    if not isinstance(row, (int, np.integer)) or not 0 <= row < len(array):
        raise ConstraintError(f"row {shown(row)} is not one of the bitmask's {len(array)}", fix=fix)
    if array.shape[1] < len(words) or not array.flags.writeable:
        what = "it cannot be written" if array.shape[1] >= len(words) else f"it has {array.shape[1]} words of {len(words)}"
        raise ConstraintError(f"the bitmask does not take a row of this vocabulary: {what}", fix=fix)
    target = array[row]
    if len(target) > len(words):
        target[len(words) :] = 0
        target = target[: len(words)]
    target[:] = words if words.dtype == array.dtype else words.view(array.dtype)


class BitmaskWalk(abc.ABC):
    """What host walks share: their places and masks.

    Attributes:
      constraint: what is walked, which has a `vocab_size`.
      _history: the place before the first token, and after each one, which says whether it is `finished`.
    """

    constraint: Any
    _history: list[Any]

    @property
    def finished(self) -> bool:
        """Whether an end-of-text id was taken."""
        return bool(self._history[-1].finished)

    @property
    @abc.abstractmethod
    def accepting(self) -> bool:
        """Whether the text may end here."""

    @property
    def vocab_size(self) -> int:
        """V, ids of the vocabulary."""
        return int(self.constraint.vocab_size)

    @property
    def position(self) -> Hashable:
        """What everything that may follow depends on."""
        return self._history[-1]

    @property
    def num_tokens(self) -> int:
        """Tokens taken so far, the end-of-text id included."""
        return len(self._history) - 1

    @abc.abstractmethod
    def allowed_words(self, remaining: int | None = None) -> np.ndarray:
        """The mask of the next token as bits, uint32[ceil(V / 32)]; see `allowed`."""

    @abc.abstractmethod
    def advance(self, token: int, remaining: int | None = None) -> None:
        """Takes one token, within a limit; raises `ValueError` (`ConstraintError` is one) where it is forbidden.

        With `remaining`, as in `allowed`, tokens are forbidden too after which the text cannot be completed inside it.
        """

    def rewind(self, n: int) -> None:
        """Takes back the last n tokens.

        Raises:
          ConstraintError: n is negative or larger than `num_tokens`. (A ValueError.)
        """
        if not is_whole(n, 0, self.num_tokens):
            what = f"cannot rewind {n if is_whole(n, 0) else shown(n)} of {self.num_tokens} tokens"
            raise ConstraintError(what, fix="Give a whole number up to the tokens taken.")
        del self._history[len(self._history) - int(n) :]

    def copy(self) -> Self:
        """A walk at the same place that goes its own way."""
        walk = object.__new__(type(self))
        walk.__dict__.update(self.__dict__, _history=list(self._history))
        return walk

    def allowed(self, remaining: int | None = None) -> np.ndarray:
        """The mask of the next token.

        Args:
          remaining: how many more tokens may be taken in all, or None for no limit. With a limit, only tokens after which the
            text can still be completed inside it are allowed.

        Returns:
          bool[V].

        Raises:
          BudgetError: `remaining` is below the bound on the rest of the text. (On the device, which cannot raise, such a limit
            cuts the text off: generation refuses it before the first token, unless `allow_truncation=True`.)
        """
        return unpacked(self.allowed_words(remaining), self.vocab_size)

    def fill_bitmask(self, out: Any, row: int = 0, remaining: int | None = None) -> bool:
        """Writes the mask of the next token into one row of a bitmask.

        Args:
          out: int32[B, W] with W at least ceil(V / 32), as NumPy array or CPU tensor; its row is overwritten in place.
          row: which row.
          remaining: as in `allowed`.

        Returns:
          Whether anything is forbidden, so that the mask must be applied.

        Raises:
          ConstraintError: `out` is something else; `BudgetError` as in `allowed`.
        """
        words = self.allowed_words(remaining)
        write_row(out, row, words)
        whole, rest = divmod(self.vocab_size, 32)
        return not (bool((words[:whole] == 0xFFFFFFFF).all()) and (not rest or int(words[whole]) == (1 << rest) - 1))


def tokens_of(rows: np.ndarray) -> np.ndarray:
    """int64[n], the tokens of bit rows uint32[R, W], row by row and ascending, or of one, uint32[W]."""
    flat = rows.reshape(-1)
    some = (flat != 0).nonzero()[0]
    if rows.ndim == 1 and _SPARSE * len(some) > len(flat):
        return np.unpackbits(flat.astype("<u4", copy=False).view(np.uint8), bitorder="little").view(bool).nonzero()[0]
    place = np.unpackbits(flat[some].astype("<u4", copy=False).view(np.uint8), bitorder="little").view(bool).nonzero()[0]
    return (some % rows.shape[-1] << 5)[place >> 5] | (place & 31)
