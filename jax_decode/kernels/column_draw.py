"""The last of a draw that was settled by the columns' tops, as one kernel of a TPU, a row in every lane: which token of the
column, whether a candidate is before it, and what it is worth."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import NEVER, clean, scaled
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.settled_rows import Settled

_NOTHING = 2**31 - 1
"""Larger than every token."""


def drawn_in_column(
    rows: jax.Array,
    logits: jax.Array,
    word: jax.Array | None,
    noise: tuple[jax.Array, jax.Array],
    inverse: jax.Array | None,
    columns: tuple[int, int],
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Token, log-probability and raw log-probability of every row, int32[B], -1 where nothing is allowed, and float32[B] twice.

    Args:
      rows: int32[n, B], of `Settled.packed`.
      logits: float[B, P] of the column's tokens plane by plane, anything for those beyond the last.
      word: uint32[B, n] of the column: a token is allowed where any of them has its bit; None where all are.
      noise: key words uint32[B, 2] and step uint32[B].
      inverse: inverse temperature, float32[] or [B, 1], or None.
      columns: their number, and that of the logits of a row.
      interpret: run without a TPU, slowly.
    """
    batch = len(logits)
    given = {"logits": logits.astype(jnp.float32).T, "key": noise[0].T, "step": noise[1][None]}
    if word is not None:
        given["word"] = word.T
    if inverse is not None:
        given["inverse"] = jnp.broadcast_to(inverse.reshape(1, -1), (1, batch))
    shapes = [jax.ShapeDtypeStruct((1, batch), dtype) for dtype in (jnp.int32, jnp.float32, jnp.float32)]

    def of_lanes(x: Any) -> pl.BlockSpec:
        return pl.BlockSpec((len(x) if isinstance(x, jax.Array) else 1, LANES), lambda i: (0, i))

    found = pl.pallas_call(
        _kernel([*given], *columns),
        grid=(-(-batch // LANES),),
        in_specs=[of_lanes(x) for x in (rows, *given.values())],
        out_specs=[of_lanes(x) for x in shapes],
        out_shape=shapes,
        interpret=interpret,
        name="lanes_drawn_in_column",
    )(rows, *given.values())
    token, logprob, raw = (x[0] for x in found)
    return token, logprob, raw


def _kernel(names: list[str], num_columns: int, width: int) -> Callable[..., None]:
    def kernel(rows: Any, *refs: Any) -> None:
        given = {name: ref[...] for name, ref in zip(names, refs)}
        chosen, *worth = refs[len(names) :]
        settled = Settled.unpacked([rows[k : k + 1] for k in range(rows.shape[0])])
        column = jnp.minimum(settled.column, num_columns - 1)  # a row that allows nothing has no column
        plane = jax.lax.broadcasted_iota(jnp.int32, given["logits"].shape, 0)
        own = column + plane * num_columns
        ok, x = own < width, clean(given["logits"])
        if "word" in given:
            word = functools.reduce(jnp.bitwise_or, [given["word"][k : k + 1] for k in range(len(given["word"]))])
            ok &= ((word >> plane.astype(jnp.uint32)) & 1) != 0
        y = scaled(x, given.get("inverse"))
        key, step = given["key"], given["step"]
        noise = gumbel((key[:1], key[1:]), step, (num_columns + plane).astype(jnp.uint32))
        score = jnp.where(ok & (y >= settled.threshold), y + noise, NEVER)
        best = jnp.max(score, 0, keepdims=True)
        token = jnp.min(jnp.where(score == best, own, _NOTHING), 0, keepdims=True)
        value = jnp.max(jnp.where((score == best) & (own == token), x, NEVER), 0, keepdims=True)
        most = settled.score
        if settled.candidate is not None:
            best, other, of_other = settled.candidate
            wins = (best > most) | ((best == most) & (other < token))
            token, value = jnp.where(wins, other, token), jnp.where(wins, of_other, value)
            most = jnp.maximum(most, best)
        chosen[...] = jnp.where(most == NEVER, -1, token)
        for ref, total in zip(worth, (settled.allowed, settled.raw)):
            ref[...] = value - total

    return kernel
