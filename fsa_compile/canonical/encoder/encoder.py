"""`Encoder`: what a byte-pair encoder does, as far as the canonical tables need it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from fsa_compile.canonical.encoder.merge_table import MergeTable
from fsa_compile.errors import TokenizerError
from fsa_compile.vocabulary.vocabulary import Vocabulary

Engine = Literal["tiktoken", "tokenizers"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Encoder:
    """A byte-pair encoder.

    Attributes:
      vocabulary: the bytes of all ids.
      pattern: regular expression that cuts a text into pieces before merging; None where nothing is cut.
      engine: the package whose regular expressions and Unicode tables interpret the pattern.
      unicode_form: normal form a text is brought to first, or None.
      byte_tokens: int32[256], tokens that spell a character byte by byte where it has no token of its own; None for encoders
        whose atoms are bytes.
      characters: code points that are spelled by tokens of their own, ascending, where there are `byte_tokens`; else None.
      cut_pieces: int32[*], tokens that are cut out of a text before merging, the longest where one begins; see `piece_filter`.
    """

    vocabulary: Vocabulary
    table: MergeTable
    pattern: str | None = None
    engine: Engine | None = None
    unicode_form: str | None = None
    byte_tokens: np.ndarray | None = None
    characters: np.ndarray | None = None
    cut_pieces: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))


def refused(what: str, where: str = "") -> TokenizerError:
    """The error for an encoder whose canonical form is not decided by merges, cuts and byte fallback."""
    fix = "Use byte-pair encoding as of Llama, GPT, or Qwen, or compile without canonical=True."
    return TokenizerError(f"canonical tokenization is not defined here: {what}", where=where, fix=fix)


def listed_merges(model: Mapping[str, Any], names: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges of some tokens, the first first."""
    pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
    return [(left, right) for left, right in pairs if {left, right, left + right} <= names.keys()]
