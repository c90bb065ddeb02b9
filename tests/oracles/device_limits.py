"""Limits that cannot be met: an error on the host; the device, which cannot raise, goes on as without a limit and cuts the text off."""

from __future__ import annotations

from typing import Any

import numpy as np

from fsa_compile.errors import BudgetError


def met(walk: Any, remaining: int | None) -> int | None:
    """The limit, or None where it is below the bound on the rest of the text."""
    try:
        walk.allowed_words(remaining)
    except BudgetError:
        return None
    return remaining


def allowed_on_the_device(walk: Any, remaining: int | None) -> np.ndarray:
    """The device's mask at a host walk's place, bool[V]."""
    mask: np.ndarray = walk.allowed(met(walk, remaining))
    return mask
