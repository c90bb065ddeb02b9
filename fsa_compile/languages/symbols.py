"""Symbols in a pattern that stand for tokens instead of text."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class SpecialToken:
    """One token that writes no text, by its printed name or its id."""

    name: str | int
    is_one_token: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class AnyToken:
    """Any one token that writes text; of a paragraph: text without line breaks."""

    kind: Literal["text", "paragraph"]
    is_one_token: ClassVar[bool] = False


Symbol = SpecialToken | AnyToken


class SymbolArcs(NamedTuple):
    """Arcs that read whole tokens. `source`, `symbol`, `target`: int64[n]; `symbol` is an index into `symbols`."""

    source: np.ndarray
    symbol: np.ndarray
    target: np.ndarray
    symbols: list[Symbol]
