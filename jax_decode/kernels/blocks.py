"""A few rows of a batch, or planes of their logits, at a time: for a CPU, whose caches hold them from one pass to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

_ROWS = 2
_PLANES = 8
SMALL = 1 << 16
"""Logits of a batch below which passes cost less than their compilation: one form is then enough."""

Tree = TypeVar("Tree")


def by_blocks(function: Callable[..., Tree], *rows: Any) -> Tree:
    """What a function makes of every row.

    Args:
      function: takes the trees of some rows, returns one of arrays of as many; what it makes of a row depends on that row alone.
      rows: trees of arrays with one row each, or None.
    """
    batch = len(jax.tree.leaves(rows)[0])
    if batch <= _ROWS:
        return function(*rows)
    whole = batch - batch % _ROWS
    blocks = jax.tree.map(lambda x: x[:whole].reshape(whole // _ROWS, _ROWS, *x.shape[1:]), rows)
    out = jax.lax.map(lambda block: function(*block), blocks)
    out = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), out)
    if whole == batch:
        return out
    rest = function(*jax.tree.map(lambda x: x[whole:], rows))
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), out, rest)


def over_planes(
    function: Callable[[Tree, jax.Array, jax.Array], Tree], start: Tree, logits: jax.Array, rows: jax.Array, num_words: int
) -> Tree:
    """What a function gathers of some rows, from a few planes of their logits at a time.

    Args:
      function: takes what it has gathered, float32[n, W] each; logits [n, planes * W], fewer at the end; and the number
        of the first of these planes, uint32[].
      start: a tree of numbers, what is gathered at first.
      logits: float[B, V'], of all rows: those of a few, taken from outside of the loop over planes, would be copied for it.
      rows: int32[n], which, one after another.
      num_words: W.
    """
    size, width = _PLANES * num_words, logits.shape[1]
    groups = width // size
    rest = width - groups * size

    def part(kept: Tree, group: Any, size: int) -> Tree:
        x = jax.lax.dynamic_slice(logits, (rows[0], group * (_PLANES * num_words)), (len(rows), size))
        return function(kept, x, (group * _PLANES).astype(jnp.uint32))

    kept = jax.tree.map(lambda x: jnp.full((len(rows), num_words), x, jnp.float32), start)
    if groups:
        kept, _ = jax.lax.scan(lambda kept, group: (part(kept, group, size), None), kept, jnp.arange(groups, dtype=jnp.int32))
    return part(kept, jnp.int32(groups), rest) if rest else kept
