"""A few rows of a batch at a time: for a CPU, whose caches hold their logits from one pass to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

_ROWS = 2
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
