"""`Envelope`: what is known of a constraint's prefixes, as an upper bound of the model's distribution over its texts.

The texts of a prompt's constraint are covered by disjoint cells. A cell is a known prefix with the tokens that may follow it but
for those of its known children, or a whole text. Its mass, the probability of the prefix times that of those tokens, bounds the
probability of its texts. Drawing cells by mass, going on from there, and rejecting what leads nowhere gives the model's own
distribution; every node that the model was asked about cuts what leads nowhere from the bound.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jax_decode.kernels.planes import NEVER
from jax_decode.step.state import ConstraintState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Envelope:
    """N nodes, the first of them in use; a pytree. Node p is the empty prefix of prompt p.

    Attributes:
      parent, token: int32[N], -1 at the roots and where there is no node.
      owner: int32[N], the prompt, -1 where there is no node.
      total: float32[N], log-probability of the prefix under the model, nats.
      rest: float32[N], log-probability, given the prefix, of the tokens that may follow it and are no child; 0 where the model
        was not asked yet.
      ends: bool[N], whether it is a whole text.
      length: int32[N], tokens of the prefix.
      tokens: int32[N, T], the prefix, padded with -1.
      raw, local: float32[N, T], log-probability of each of its tokens under the model, and among the allowed ones.
      state: [N], of the constraint behind the prefix.
      count: int32[], nodes in use.
    """

    parent: jax.Array
    token: jax.Array
    owner: jax.Array
    total: jax.Array
    rest: jax.Array
    ends: jax.Array
    length: jax.Array
    tokens: jax.Array
    raw: jax.Array
    local: jax.Array
    state: ConstraintState
    count: jax.Array

    @property
    def masses(self) -> jax.Array:
        """float32[N], log-mass of the cell of every node, -inf where there is no node."""
        return jnp.where(self.owner >= 0, self.total + jnp.where(self.ends, 0.0, self.rest), NEVER)

    def children(self, node: jax.Array, width: int) -> jax.Array:
        """Which tokens lead to a child of nodes int32[B], bool[B, width]; none for node -1."""
        size, rows = len(self.parent), len(node)
        every, place = jnp.arange(rows, dtype=jnp.int32), jnp.where(node < 0, size, node)
        by_node = jnp.full(size, rows, jnp.int32).at[place].set(every, mode="drop")
        row = jnp.where(self.parent >= 0, by_node[self.parent], rows)
        found = jnp.zeros((rows, width), bool).at[row, self.token].set(True, mode="drop")
        return found[jnp.where(node < 0, 0, by_node[node])] & (node >= 0)[:, None]  # rows at one node share one entry

    def grown(self, node: jax.Array, token: jax.Array, ends: jax.Array, walk: Walk) -> tuple[Envelope, jax.Array]:
        """With a child of every row's node; rows with the same child share it, and there is none past the last place.

        Args:
          node: int32[B], -1 where nothing is to be added; token: int32[B]; ends: bool[B]; walk: with the token.

        Returns:
          The envelope, and the child of every row, int32[B], -1 where there is none.
        """
        size = len(self.parent)
        same = (self.parent[None, :] == node[:, None]) & (self.token[None, :] == token[:, None]) & (node >= 0)[:, None]
        known, old = same.any(1), same.argmax(1).astype(jnp.int32)
        alike = (node[:, None] == node[None, :]) & (token[:, None] == token[None, :])
        first = alike.argmax(1).astype(jnp.int32)
        new = (node >= 0) & ~known & (first == jnp.arange(len(node)))
        own = self.count + jnp.cumsum(new, dtype=jnp.int32) - 1
        own = jnp.where(new & (own < size), own, size)
        child = jnp.where(known, old, jnp.where((node >= 0) & (own[first] < size), own[first], -1))

        def put(old: jax.Array, rows: jax.Array) -> jax.Array:
            return old.at[own].set(rows, mode="drop")

        grown = Envelope(
            parent=put(self.parent, node),
            token=put(self.token, token),
            owner=put(self.owner, walk.owner),
            total=put(self.total, walk.total),
            rest=put(self.rest, jnp.zeros(len(node), jnp.float32)),
            ends=put(self.ends, ends),
            length=put(self.length, walk.length),
            tokens=put(self.tokens, walk.tokens),
            raw=put(self.raw, walk.raw),
            local=put(self.local, walk.local),
            state=jax.tree.map(put, self.state, walk.state),
            count=jnp.minimum(self.count + new.sum(dtype=jnp.int32), size),
        )
        return grown, child


@dataclasses.dataclass(frozen=True, kw_only=True)
class Walk:
    """Where B rows stand: fields as in `Envelope`, of every row."""

    owner: jax.Array
    total: jax.Array
    length: jax.Array
    tokens: jax.Array
    raw: jax.Array
    local: jax.Array
    state: ConstraintState


for _kind in (Envelope, Walk):
    jax.tree_util.register_dataclass(_kind, data_fields=[f.name for f in dataclasses.fields(_kind)], meta_fields=[])


def first_envelope(state: ConstraintState, steps: int, size: int) -> Envelope:
    """Of nothing but roots.

    Args:
      state: [P], before the first token.
      steps: T; size: N, at least P.
    """
    count, more = len(state.status), size - len(state.status)
    nothing = jnp.full(size, -1, jnp.int32)
    zeros = jnp.zeros((size, steps), jnp.float32)

    def padded(leaf: jax.Array) -> jax.Array:
        return jnp.pad(leaf, ((0, more), *[(0, 0)] * (leaf.ndim - 1)))

    return Envelope(
        parent=nothing,
        token=nothing,
        owner=jnp.where(jnp.arange(size) < count, jnp.arange(size, dtype=jnp.int32), -1),
        total=zeros[:, 0],
        rest=zeros[:, 0],
        ends=padded(~state.running),
        length=jnp.zeros(size, jnp.int32),
        tokens=jnp.full((size, steps), -1, jnp.int32),
        raw=zeros,
        local=zeros,
        state=jax.tree.map(padded, state),
        count=jnp.int32(count),
    )
