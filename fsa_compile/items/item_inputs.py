"""What a user calls a catalogue, to a matrix of ids."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from fsa_compile.artifact.item_trie import LONGEST_ITEM
from fsa_compile.errors import ConstraintError, listed, shown
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary

_READING = "Reading the items"
_EVERY = 1 << 14
_FIX = "Give an int array [items, length] padded with -1, or sequences of ids, or strings and a tokenizer."


def catalogue_vocabulary(tokenizer: Any, stop_ids: tuple[int, ...] | None) -> tuple[Any, Any]:
    """The vocabulary, and the tokenizer where there is one. Raises `ConstraintError`: neither a tokenizer nor a number of ids."""
    stop_ids = None if stop_ids is None else tuple(listed(stop_ids, "stop_ids"))
    if isinstance(tokenizer, (int, np.integer)) and not isinstance(tokenizer, bool):
        return NumberedIds(int(tokenizer), stop_ids or ()), None
    from fsa_compile.compiler.arguments import vocabulary_of

    vocabulary: Vocabulary | NumberedIds = vocabulary_of(tokenizer)
    if stop_ids is not None:
        vocabulary = NumberedIds(vocabulary.size, stop_ids, vocabulary.fingerprint)
    return vocabulary, tokenizer if hasattr(tokenizer, "encode") else None


class NumberedIds:
    """A vocabulary of ids that stand for no text.

    Attributes:
      size: number of ids.
      stop_ids: those that end a text.
      fingerprint: tells it from others.
    """

    def __init__(self, size: int, stop_ids: tuple[int, ...], fingerprint: str | None = None) -> None:
        if not 0 < size < 2**24:
            raise ConstraintError(f"{size} is no number of ids", fix="Give the number of the model's ids, or a tokenizer.")
        for token in stop_ids:
            if not isinstance(token, (int, np.integer)) or not 0 <= token < size:
                raise ConstraintError(f"stop id {token!r} is none of the {size:,} ids", fix="Give ids of the vocabulary.")
        self.size, self.stop_ids = size, tuple(int(token) for token in stop_ids)
        self.fingerprint = fingerprint or f"{size:064x}"


def item_matrix(items: Any, vocabulary: Vocabulary | NumberedIds, tokenizer: Any, deadline: Deadline) -> np.ndarray:
    """int[N, L], -1 after the end of shorter items; checked. Raises `ConstraintError`: see `compile_items`."""
    if isinstance(items, (str, bytes, dict)) or not isinstance(items, (np.ndarray, Iterable)):
        raise ConstraintError(f"items cannot be a {type(items).__name__}", fix=_FIX)
    if not isinstance(items, np.ndarray):
        items = items if isinstance(items, (list, tuple)) else listed(items, "items")
        try:
            whole = np.asarray(items)  # the fast way for equal lengths
        except (ValueError, OverflowError):
            whole = np.empty(0, object)
        of_ids = whole.dtype.kind in "iu" and whole.ndim == 2
        items = whole if of_ids or not len(items) else _ragged(items, tokenizer, deadline)
    if not items.size and len(items) == 0:
        return np.zeros((0, 1), np.int32)
    if items.ndim != 2 or items.dtype.kind not in "iu" or not items.shape[1]:
        raise ConstraintError(f"items are an array of {items.dtype} with {items.ndim} dimensions", fix=_FIX)
    _check(items, vocabulary)
    return items


def _ragged(items: Any, tokenizer: Any, deadline: Deadline) -> np.ndarray:
    """A matrix of sequences of different lengths, or of strings."""
    rows: list[list[int]] = []
    for i, entry in enumerate(items):
        if not i % _EVERY:
            deadline.check(_READING)
        if isinstance(entry, str):
            if tokenizer is None:
                fix = "Give its ids, or a tokenizer."
                raise ConstraintError("an item is a string", where=f"item {i}: {shown(entry)}", fix=fix)
            rows.append(list(tokenizer.encode(entry)))
            continue
        try:
            rows.append([operator.index(token) for token in entry])
        except TypeError:
            raise ConstraintError("an item is no sequence of ids", where=f"item {i}: {shown(entry)}", fix=_FIX) from None
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    longest = int(lengths.max(initial=1))
    if longest > LONGEST_ITEM[np.uint16]:
        what = f"an item has {longest:,} ids, more than {LONGEST_ITEM[np.uint16]:,}"
        raise ConstraintError(what, where=f"item {int(lengths.argmax())}", fix="Use compile_choices for long texts.")
    deadline.check_bytes(len(rows) * longest * 4, _READING)
    inside = np.arange(longest) < lengths[:, None]
    out = np.full(inside.shape, -1, np.int64)
    try:
        out[inside] = np.fromiter((token for row in rows for token in row), np.int64, int(lengths.sum()))
    except OverflowError:
        i = next(i for i, row in enumerate(rows) if any(abs(token) >= 2**63 for token in row))
        raise ConstraintError("an id is larger than every vocabulary", where=f"item {i}", fix="Check the ids.") from None
    negative = inside & (out < 0)
    if negative.any():
        i, at = (int(x[0]) for x in negative.nonzero())
        raise ConstraintError(f"{out[i, at]} is no id", where=f"item {i}, position {at}", fix="Ids count from 0.")
    return out.astype(np.int32) if out.max(initial=0) < 2**31 else out


def _check(items: np.ndarray, vocabulary: Vocabulary | NumberedIds) -> None:
    """Raises `ConstraintError` for ids that cannot be, column by column."""

    def refuse(bad: np.ndarray, at: int, what: str, fix: str) -> None:
        i = int(bad.argmax())
        raise ConstraintError(what.format(items[i, at]), where=f"item {i}, position {at}", fix=fix)

    if items.shape[1] > LONGEST_ITEM[np.uint16]:
        raise ConstraintError(f"items have {items.shape[1]:,} ids", fix=f"At most {LONGEST_ITEM[np.uint16]:,} are possible.")
    ended = np.zeros(len(items), bool)
    for at in range(items.shape[1]):
        column = items[:, at]
        if int(column.max()) >= vocabulary.size:
            refuse(column >= vocabulary.size, at, "{} is no id of the vocabulary of " + f"{vocabulary.size:,}", "Check the ids.")
        padded = column == -1
        if int(column.min()) < -1:
            refuse(column < -1, at, "{} is no id", "Ids count from 0; -1 stands after the end of an item.")
        if at == 0 and padded.any():
            refuse(padded, at, "the item is empty", "Leave it out: the empty text is no item.")
        if (ended & ~padded).any():
            refuse(ended & ~padded, at, "{} stands after the end of the item", "-1 may only stand at the end.")
        for stop in vocabulary.stop_ids:
            if (column == stop).any():
                refuse(column == stop, at, "{} ends the text and cannot be part of an item", "Leave end-of-text ids out.")
        ended = padded
