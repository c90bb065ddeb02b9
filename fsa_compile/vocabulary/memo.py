"""A bounded memo of what was derived from a vocabulary."""

from __future__ import annotations

from typing import Any, TypeVar

from fsa_compile.vocabulary.vocabulary_tables import (
    VocabularyTables,
)

_MEMO_ENTRIES = 4096


T = TypeVar("T")


def remember(tables: VocabularyTables, key: object, value: T) -> T:
    """Keeps a derived value in the vocabulary's memo, dropping the oldest past its size."""
    return _kept(tables.memo, key, value)


def remember_set(tables: VocabularyTables, key: object, value: T) -> T:
    """The same of a token set, of which there are far more than of anything else."""
    return _kept(tables.set_memo, key, value)


def _kept(memo: dict[Any, Any], key: object, value: T) -> T:
    while len(memo) >= _MEMO_ENTRIES:
        memo.pop(next(iter(memo)))
    memo[key] = value
    return value
