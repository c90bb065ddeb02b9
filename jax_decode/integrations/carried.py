"""A constraint as two pytrees that another library's loop carries for us: one read in every step, one written.

What does not change (tables, the first state) rides where the loop keeps its parameters, what changes (the state) where it keeps
its cache. Which library that is, and where in its cache there is room, other modules know.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.decoding import inputs
from jax_decode.errors import DecodeError, checked_flag
from jax_decode.step.masking import dense, mask_parts
from jax_decode.step.state import ConstraintState, Status, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.concatenation import FREE
from jax_decode.tables.tables import ConstraintTables


@dataclasses.dataclass(frozen=True)
class Layout:
    """Shapes of a `ConstraintState`: all that must be known of it where there are no tables. Hashable, for static arguments.

    Attributes:
      fields: name, shape without the axis of rows, and dtype of every field.
    """

    fields: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, state: ConstraintState) -> Layout:
        """The layout of a state."""
        named = ((f.name, getattr(state, f.name)) for f in dataclasses.fields(state))
        return cls(tuple((name, x.shape[1:], x.dtype.name) for name, x in named))

    def zeros(self, rows: int) -> ConstraintState:
        """A state that stands for none yet: every field has its shape, and `Carried.state` replaces it."""
        return ConstraintState(**{name: jnp.zeros((rows, *shape), dtype) for name, shape, dtype in self.fields})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carried:
    """What is read in every step: a pytree.

    Attributes:
      tables: the constraints.
      start: the state before the first token, of one row (for batches of any size) or of every row. Of its cells only the first
        ones are kept, those of the initial stack.
    """

    tables: ConstraintTables
    start: ConstraintState

    def begun(self, rows: int) -> ConstraintState:
        """The first state of `rows` rows.

        Raises:
          DecodeError: it was made for another number of rows.
        """
        known = self.start.status.shape[0]
        if known not in (1, rows):
            raise DecodeError(
                f"the constraints were given for {known} rows, and there are {rows}",
                fix="Give constraint= and max_new_tokens= one entry for every row, or one number for all of them.",
            )
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *x.shape[1:])), self.start)

    def state(self, before: ConstraintState, tokens: jax.Array, going: jax.Array) -> ConstraintState:
        """The state after one more token of every row, or the first state.

        Args:
          before: the state so far.
          tokens: int32[B].
          going: bool[], whether the tokens were chosen in the state `before`. If not, the constraints begin here.
        """
        start = self.begun(tokens.shape[0])
        first = start.cell.shape[1]
        cell = before.cell.at[:, :first].set(jnp.where(going, before.cell[:, :first], start.cell))

        def chosen(state: ConstraintState) -> ConstraintState:
            fields = {
                f.name: jnp.where(going, getattr(state, f.name), getattr(start, f.name))
                for f in dataclasses.fields(state)
                if f.name != "cell"
            }
            return dataclasses.replace(state, **fields)

        # Chosen before the step as well: an old state may belong to tables that are no longer there.
        begun = chosen(dataclasses.replace(before, cell=cell))
        return chosen(advance(self.tables, begun, jnp.where(going, tokens, -1)))

    def masked(self, state: ConstraintState, logits: jax.Array) -> jax.Array:
        """See `masked`."""
        return masked(self.tables, state, logits)

    def statuses(self, state: ConstraintState, last: jax.Array, done: jax.Array) -> jax.Array:
        """How every row has ended, if the loop stops here, int32[B].

        Args:
          state: before the last token.
          last: int32[B], the last token of every row.
          done: bool[B], rows that the loop takes for done.
        """
        after = advance(self.tables, state, last)
        closed = advance(self.tables, after, jnp.full_like(last, -1)).status == Status.ACCEPTED
        open_end = jnp.where(closed, Status.ACCEPTED, Status.TRUNCATED)
        open_end = jnp.where(done & (after.node[:, 0] == FREE), Status.FINISHED, open_end)
        return jnp.where(after.running, open_end, after.status).astype(jnp.int32)


def masked(tables: ConstraintTables, state: ConstraintState, logits: jax.Array) -> jax.Array:
    """Logits float[B, V'] with -inf in place of every forbidden token.

    A row that has ended, or that nothing can continue, keeps one token, its first stop id: other loops go on with all rows
    until the last one is done, and none of their samplers knows what to do with a row without any token.
    """
    parts = mask_parts(tables, state)
    width = logits.shape[-1]
    none = ~((parts.words != 0).any(1) | parts.allowed.any(1))
    last = jnp.arange(width, dtype=jnp.int32)[None] == state.stop_ids[:, :1]
    allowed = jnp.where(none[:, None], last, dense(parts, width))
    return jnp.where(allowed, logits, jnp.asarray(-jnp.inf, logits.dtype))


jax.tree_util.register_dataclass(Carried, ["tables", "start"], [])


def carry(
    tables: ConstraintTables,
    *,
    vocab_size: int,
    constraint: Any,
    max_new_tokens: Any,
    max_depth: Any,
    stop_ids: Any,
    allow_truncation: bool,
) -> tuple[Carried, Layout]:
    """Checks the arguments, which are those of `generate`, and makes what a loop has to carry.

    Args:
      vocab_size: V', logits of the model.
      constraint, max_new_tokens, max_depth: each for all rows, or a list of one for every row.

    Raises:
      DecodeError: an argument is wrong; says which, and what to do.
    """
    if not isinstance(tables, ConstraintTables):
        raise DecodeError(f"the tables are a {type(tables).__name__}", fix="Pass jax_decode.to_device(constraint).")
    if tables.has_temperatures:
        what = "rules of these grammars have temperatures, and another library's sampler draws at its own"
        raise DecodeError(what, fix="Use generate or stream, or leave the option temperature out of the grammar.")
    if tables.vocab_size > vocab_size:
        raise DecodeError(
            f"the constraint is for a vocabulary of {tables.vocab_size:,} ids, the model has {vocab_size:,} logits",
            fix="Compile the constraint for the tokenizer of this model.",
        )
    rows = _rows(tables, constraint, max_new_tokens, max_depth)
    which = inputs.read_constraints(constraint, tables, rows)
    limits = inputs.read_limits(max_new_tokens, rows)
    depths = inputs.read_depths(max_depth, rows)
    stops = inputs.read_stop_ids(stop_ids, tables, which, vocab_size)
    if (stops[:, 0] < 0).any():
        raise DecodeError(
            "the vocabulary names no id that ends a text",
            fix="Pass stop_ids=, ids at which the sampler stops, too: its tokenizer's EOS and END_OF_TURN, or its stop_tokens.",
        )
    inputs.check_depth(tables, which, depths)
    if not checked_flag(allow_truncation, "allow_truncation"):
        inputs.check_budget(tables, which, limits)
    arrays = jax.device_put((which, limits, stops, depths))
    start = _init_state(tables, *arrays[:3], max_depth=arrays[3], max_tokens=int(limits.max()))
    layout = Layout.of(start)
    first = tables.initial.shape[1] * tables.cell_width if tables.has_stack else 0
    return Carried(tables=tables, start=dataclasses.replace(start, cell=start.cell[:, :first])), layout


_init_state = jax.jit(init_state, static_argnames="max_tokens")


def _rows(tables: ConstraintTables, constraint: Any, *others: Any) -> int:
    """For how many rows arguments were given: 1 where all of them are for any number."""
    counts = {len(x) for x in (constraint, *others) if inputs.is_listed(x)}
    if constraint is None and (count := int(jax.device_get(tables.num_constraints))) > 1:
        counts.add(count)
    if len(counts) > 1:
        raise DecodeError(
            f"the arguments are for different numbers of rows: {', '.join(map(str, sorted(counts)))}",
            fix="Give constraint=, max_new_tokens= and max_depth= one entry for every row, or one number for all of them.",
        )
    if 0 in counts:
        raise DecodeError("the arguments are for no rows", fix="Give one entry for every row, or one number for all of them.")
    return counts.pop() if counts else 1


def named(statuses: Any) -> list[Status]:
    """Statuses int32[B] by name."""
    return [Status(int(s)) for s in np.asarray(jax.device_get(statuses))]
