"""`ConstraintState`: where every row of a batch stands. Reading tables and stepping belong to other modules."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.artifact.arrays import UNREACHABLE
from jax_decode.errors import DecodeError, named_arguments
from jax_decode.kernels.row_layout import LANES
from jax_decode.step.argument_checks import check_room, checked_indices
from jax_decode.step.popping import kept, num_kept, popped
from jax_decode.tables.canonical import first_canonical
from jax_decode.tables.concatenation import FIRST_STATE, FIRST_TOP, FREE, PROMPT_LAST, PUSHES, SHORTEST, START
from jax_decode.tables.items import node_in
from jax_decode.tables.tables import ConstraintTables

MAX_DEPTH = 64
"""Default limit of the stack's depth, in cells."""
NO_NUMBER = -2
"""Given to `advance` in place of a token whose logit is NaN."""


class Status(enum.IntEnum):
    """How a row stands; every status but RUNNING is absorbing."""

    RUNNING = 0
    ACCEPTED = 1
    """The text belongs to the row's language: ended by a stop id, or complete when the limit was reached."""
    FINISHED = 2
    """A row without a constraint took a stop id."""
    TRUNCATED = 3
    """The limit was reached before the text was complete (or, without a constraint, before a stop id)."""
    DEAD_END = 4
    """A forbidden token was taken. The package's own samplers never do that."""
    ABSENT = 5
    """There is no such row: fewer texts exist than were asked for. Only in results."""
    STOPPED = 6
    """A stopping rule ended the row; its text need not be complete. Only between chunks of `stream`, and in its results."""
    NOT_A_NUMBER = 7
    """The model gave NaN for every token that could be taken: the row ends before it, its text need not be complete."""


class Position(NamedTuple):
    """What a history must keep of each position to return to it: fields of `ConstraintState`."""

    node: jax.Array
    top: jax.Array
    register: jax.Array
    canonical: jax.Array
    alloc: jax.Array
    remaining: jax.Array
    status: jax.Array
    dropped: jax.Array
    used: jax.Array
    sources: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstraintState:
    """Position of every row in its constraint: a small pytree of arrays. To take tokens back, keep the old one.

    With stacks, the cells are the large part, and they need not be kept: `rewound` returns to an old `position`, because cells
    are only ever appended. Without stacks, K is 1 and K' and M are 0.

    Attributes:
      node: int32[B, K], nodes of `ConstraintTables`, one per configuration, 0 where there is none.
      top: int32[B, K'], the stack's top cell, 0 for the empty stack.
      register: int32[B, K'], of the frame that the node belongs to.
      canonical: int32[B, 3], see `canonical.LAST`; int32[B, 0] where constraints are not canonical.
      used: int32[B, W'], set of keys of the frame that the node belongs to; W' is 0 where no constraint has sets of keys.
      alloc: int32[B], where the next cell will be written.
      sources: int32[B, *], what the stack leads to, see `popping`; nothing where `num_kept` is 0.
      cell: int32[B, M * C], cells one after another, their C columns as in `stack_layout`; cell 0 lies below every stack.
      depth_limit: int32[B], most cells of a stack.
      dropped: bool[B], whether more configurations arose than K: then some texts of the language may be refused.
      remaining: int32[B], tokens that may still be taken, the stop token included.
      status: int32[B], a `Status`.
      stop_ids: int32[B, E], distinct end-of-text ids of each row, padded with -1.
    """

    node: jax.Array
    top: jax.Array
    register: jax.Array
    canonical: jax.Array
    used: jax.Array
    alloc: jax.Array
    sources: jax.Array
    cell: jax.Array
    depth_limit: jax.Array
    dropped: jax.Array
    remaining: jax.Array
    status: jax.Array
    stop_ids: jax.Array

    def __repr__(self) -> str:
        rows = self.node.shape[0]
        if isinstance(self.status, jax.core.Tracer) or not isinstance(self.status, jax.Array | np.ndarray):
            return f"ConstraintState({rows} rows, traced)"
        status, left = np.asarray(self.status).tolist(), np.asarray(self.remaining).tolist()
        shown = ", ".join(f"{Status(how).name} ({most} left)" if most < UNREACHABLE else Status(how).name
                          for how, most in zip(status[:8], left))  # fmt: skip
        return f"ConstraintState({rows} row{'s' * (rows != 1)}: {shown}{', …' * (rows > 8)})"

    @property
    def running(self) -> jax.Array:
        """bool[B], rows that still take tokens."""
        return self.status == Status.RUNNING

    @property
    def position(self) -> Position:
        """The small arrays that a history keeps."""
        return Position(*(getattr(self, name) for name in Position._fields))

    def rewound(self, position: Position) -> ConstraintState:
        """The state at an earlier position; rows may return to different ones.

        Args:
          position: of this state or of one before it, every row's from the same run. What was appended since is forgotten.

        Raises:
          DecodeError: it is no position, or one of other rows or tables.
        """
        if not isinstance(position, Position):
            raise DecodeError(f"rewind: the position is a {type(position).__name__}", fix="Pass what state.position was.")
        for name, own, given in zip(Position._fields, self.position, position):
            if np.shape(given) != np.shape(own):
                what = f"rewind: {name} has shape {np.shape(given)} in the position and {np.shape(own)} in the state"
                raise DecodeError(what, fix="Pass an earlier position of the same rows.")
        return dataclasses.replace(self, **position._asdict())


jax.tree_util.register_dataclass(
    ConstraintState, data_fields=[f.name for f in dataclasses.fields(ConstraintState)], meta_fields=[]
)


@named_arguments
def init_state(
    tables: ConstraintTables,
    which: Any,
    limits: Any = None,
    stop_ids: Any = None,
    *,
    max_depth: Any = MAX_DEPTH,
    max_tokens: int | None = None,
) -> ConstraintState:
    """The state before the first token.

    Inside `jax.jit` the arguments' values cannot be checked (`generate` checks its own). A row whose constraint cannot be
    satisfied within `max_depth` allows no token.

    Args:
      tables: from `to_device`.
      which: int32[B], index of each row's constraint in the tables, -1 for none.
      limits: int32[B], most tokens of each row, the stop token included; None for no limit.
      stop_ids: int32[B, E], distinct end-of-text ids per row, padded with -1; None for the vocabulary's own.
      max_depth: most cells of a stack, a number or int32[B].
      max_tokens: static; room for the cells of this many tokens, which becomes the limit of rows with a stack where theirs is
        larger: so cells cannot run out. By default the largest of `limits`, if those are known outside `jax.jit`. Needed only
        for tables with stacks.

    Returns:
      The state.

    Raises:
      DecodeError: a wrong shape, dtype or known value; or the tables have stacks, and for how many tokens is not known.
    """
    which = checked_indices(tables, which, limits, stop_ids)
    check_room(len(which), max_depth, max_tokens)
    room = _known_most(limits) if tables.has_stack and max_tokens is None else max_tokens
    limits, stop_ids = (x if x is None else jnp.asarray(x, jnp.int32) for x in (limits, stop_ids))
    return _first_state(tables, which, limits, stop_ids, jnp.asarray(max_depth, jnp.int32), room if tables.has_stack else None)


@functools.partial(jax.jit, static_argnames="max_tokens", inline=True)
def _first_state(
    tables: ConstraintTables, which: jax.Array, limits: jax.Array | None, stop_ids: jax.Array | None, max_depth: jax.Array,
    max_tokens: int | None,
) -> ConstraintState:  # fmt: skip
    """One program: outside of `jax.jit` every operation would be one of its own."""
    index, constrained = jnp.maximum(which, 0), which >= 0
    remaining = jnp.full(which.shape, int(UNREACHABLE), jnp.int32) if limits is None else jnp.broadcast_to(limits, which.shape)
    record = tables.constraints[index]
    node = jnp.where(constrained, record[:, START], FREE)[:, None]
    top = found = cell = jnp.zeros((len(which), 0), jnp.int32)
    if tables.has_stack:
        assert max_tokens is not None
        remaining = jnp.where(constrained & (record[:, PUSHES] > 0), jnp.minimum(remaining, max_tokens), remaining)
        top = jnp.where(constrained, record[:, FIRST_TOP], 0)[:, None]
        # Every token appends at most K * PM cells, and a row that has ended writes that many past its last.
        room = (max_tokens + 1) * tables.stacks * tables.max_push * tables.cell_width
        cell = tables.initial[index].reshape(len(which), -1)
        cell = jnp.pad(cell, ((0, 0), (0, room + -(cell.shape[1] + room) % LANES)))
        found = _first_sources(tables, cell, node, top)
    return ConstraintState(
        node=jnp.pad(node, ((0, 0), (0, tables.stacks - 1))),
        top=jnp.pad(top, ((0, 0), (0, tables.stacks - 1))) if tables.has_stack else top,
        register=jnp.zeros((len(which), tables.stacks if tables.has_stack else 0), jnp.int32),
        canonical=_first_canonical(tables, record, constrained, remaining),
        used=jnp.zeros((len(which), tables.key_words), jnp.int32),
        alloc=jnp.full(which.shape, tables.initial.shape[1], jnp.int32),
        sources=found,
        cell=cell,
        depth_limit=jnp.broadcast_to(max_depth, which.shape),
        dropped=jnp.zeros(which.shape, bool),
        remaining=remaining,
        status=jnp.zeros(which.shape, jnp.int32),
        stop_ids=tables.stop_ids[index] if stop_ids is None else stop_ids,
    )


def _first_sources(tables: ConstraintTables, cell: jax.Array, node: jax.Array, top: jax.Array) -> jax.Array:
    """What the initial stack leads to, as a state carries it."""
    if not num_kept(tables):
        return jnp.zeros((len(cell), 0), jnp.int32)
    zero = jnp.zeros_like(top)
    most = tables.initial.shape[1] - 1  # few turns are written out, which is compiled sooner than a loop
    return kept(tables, popped(tables, cell, node_in(tables.items, node)[0], top, zero, (zero,) * tables.key_words, most))


def _first_canonical(tables: ConstraintTables, record: jax.Array, constrained: jax.Array, remaining: jax.Array) -> jax.Array:
    """What canonical constraints know of the prompt, int32[B, 3]; int32[B, 0] where they are not canonical."""
    if tables.pairs is None:
        return jnp.zeros((len(constrained), 0), jnp.int32)
    last = jnp.where(constrained, record[:, PROMPT_LAST] - 1, -1)
    at = jnp.where(constrained, record[:, FIRST_STATE], 0)
    return first_canonical(last, remaining, jnp.where(constrained, record[:, SHORTEST], 0), at)


def unconstrained_state(limits: Any, stop_ids: Any) -> ConstraintState:
    """The state of rows without constraints and without tables; `limits` int32[B], `stop_ids` int32[B, E]."""
    rows = len(limits)
    zeros, none = jnp.zeros(rows, jnp.int32), jnp.zeros((rows, 0), jnp.int32)
    return ConstraintState(
        node=jnp.full((rows, 1), FREE, jnp.int32),
        top=none,
        register=none,
        canonical=none,
        used=none,
        alloc=zeros,
        sources=none,
        cell=none,
        depth_limit=zeros,
        dropped=jnp.zeros(rows, bool),
        remaining=limits,
        status=zeros,
        stop_ids=stop_ids,
    )


def _known_most(limits: Any) -> int:
    if limits is None or isinstance(limits, jax.core.Tracer):
        raise DecodeError(
            "the tables have stacks, and for how many tokens their cells must last is not known",
            fix="Pass max_tokens=, a number known outside jax.jit.",
        )
    return int(np.max(np.asarray(limits)))
