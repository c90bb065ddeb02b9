"""Numbers of rows, which XLA has with a row in every lane, turned for kernels that have a row in every sublane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.kernels.row_layout import LANES

SUBLANES = 8
"""Rows that are worked on at a time."""
TURNED = LANES // SUBLANES
"""Blocks of rows whose numbers are turned together."""


def turn(sheets: Sequence[Sequence[Any]], sheet: Any, turned: Any) -> None:
    """Fills int32[128, 128 * n] with the numbers [k, 128] of 128 rows, the row of which is the lane: those of a sheet one beside
    the other, long ones in several sheets."""
    place = 0
    for refs in sheets:
        for begin in range(0, max(ref.shape[0] for ref in refs), LANES):
            row = 0
            for ref in refs:
                own = ref[begin : begin + LANES]
                sheet[row : row + own.shape[0]] = jax.lax.bitcast_convert_type(own, jnp.int32)
                row += own.shape[0]
            turned[:, place : place + LANES] = sheet[...].T
            place += LANES
