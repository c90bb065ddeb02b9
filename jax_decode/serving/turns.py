"""The jitted programs of an engine: rows enter, all rows take several steps, rows end. Nothing of them depends on a request."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.decoding.decoder import Decoder, projection_of
from jax_decode.decoding.loop import applied, said
from jax_decode.decoding.programs import program
from jax_decode.decoding.requests import Numbers, first_state
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.noise import key_words
from jax_decode.kernels.row_layout import words_for
from jax_decode.sampling.samplers import Sampler
from jax_decode.sampling.sampling import among, checked, choose
from jax_decode.serving.rows import put_row
from jax_decode.step.forking import row_axes
from jax_decode.step.masking import located, mask_parts
from jax_decode.step.packing import PackedState, packed, unpacked
from jax_decode.step.state import ConstraintState, Status
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


@functools.partial(jax.tree_util.register_dataclass, data_fields=["cache", "state", "logits", "keys", "count"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Rows:
    """All rows of an engine on the device.

    Attributes:
      cache: the decoder's.
      state: every row's place in its constraint; rows that are free do not run.
      logits: float[B, V'], what the decoder says about the next token; or float[B, D], of which it makes that.
      keys: uint32[B, 2].
      count: uint32[B], tokens that each row has chosen.
    """

    cache: Any
    state: ConstraintState
    logits: jax.Array
    keys: jax.Array
    count: jax.Array


class Entering(NamedTuple):
    """Requests that enter together, int32[P] where nothing else is said; those beyond the real ones have rows from B up.

    tokens: int32[P, L], prompts, right padded; lengths; rows: where they go; owner: whose prompt a row has; seeds: int32[P], or
    int64[P]; samples: uint32[P], number among the samples of its request; numbers: which slot, limits, stop ids and depths.
    """

    tokens: Any
    lengths: Any
    rows: Any
    owner: Any
    seeds: Any
    samples: Any
    numbers: Numbers


class Room(NamedTuple):
    """Static sizes: slots of the cache of each row, and the most tokens of one."""

    cache_length: int
    max_tokens: int


@program()
def no_rows(decoder: Decoder, tables: ConstraintTables | None, *, count: int, num_stops: int, room: Room) -> Rows:
    """Rows of which none runs."""
    zeros = jnp.zeros(count, jnp.int32)
    numbers = Numbers(zeros - 1, zeros, jnp.full((count, num_stops), -1, jnp.int32), zeros)
    state = first_state(tables, numbers, room.max_tokens)
    cache = decoder.init_cache(count, room.cache_length)
    logits = jax.eval_shape(lambda: applied(decoder, projection_of(decoder), zeros[:, None], cache, zeros)[0])
    return Rows(
        cache,
        dataclasses.replace(state, status=zeros + jnp.int32(Status.FINISHED)),
        jnp.zeros((count, logits.shape[-1]), logits.dtype),
        jnp.zeros((count, 2), jnp.uint32),
        jnp.zeros(count, jnp.uint32),
    )


@program(donate=["rows"])
def enter(decoder: Decoder, tables: ConstraintTables | None, rows: Rows, new: Entering, *, room: Room) -> Rows:
    """The rows after requests have entered: their prompts are fed, each once, and nothing is chosen."""
    length = new.tokens.shape[1]
    empty = decoder.init_cache(new.tokens.shape[0], room.cache_length)
    logits, cache = applied(decoder, projection_of(decoder), new.tokens, empty, new.lengths, last_only=True)
    keys = jax.vmap(lambda seed, sample: jax.random.fold_in(jax.random.key(seed), sample))(new.seeds, new.samples)
    state = first_state(tables, new.numbers, room.max_tokens)
    axes = row_axes(decoder, length)

    def put(own: jax.Array, given: jax.Array, axis: int) -> jax.Array:
        if axis < 0:
            return own
        own, given = jnp.moveaxis(own, axis, 0), jnp.moveaxis(given, axis, 0)
        return jnp.moveaxis(own.at[new.rows].set(given[new.owner], mode="drop"), 0, axis)

    return Rows(
        jax.tree.map(put, rows.cache, cache, axes),
        put_row(rows.state, new.rows, state, jnp.arange(len(new.rows), dtype=jnp.int32)),
        put(rows.logits, logits[:, -1].astype(rows.logits.dtype), 0),
        rows.keys.at[new.rows].set(key_words(keys), mode="drop"),
        rows.count.at[new.rows].set(jnp.uint32(0), mode="drop"),
    )


@program(donate=["rows"])
def turn(
    decoder: Decoder, tables: ConstraintTables | None, sampler: Sampler, rows: Rows, *, steps: int
) -> tuple[Rows, jax.Array]:
    """Lets every running row take up to `steps` tokens.

    Returns:
      The rows, and int32[steps + 1, B]: tokens, -1 where none was taken, and last the status of every row.
    """

    projection = projection_of(decoder)

    def step(carry: tuple[jax.Array, Rows, PackedState, jax.Array]) -> tuple[jax.Array, Rows, PackedState, jax.Array]:
        i, rows, places, out = carry
        state, logits = unpacked(places), said(tables, sampler, rows.logits, projection)
        if tables is None:
            at, allowed = None, among(logits, None, Columns(words_for(logits.shape[1])))
        else:
            at = located(tables, state) if tables.stacks == 1 else None
            allowed = among(logits, mask_parts(tables, state, at), tables.columns)
        token = checked(choose(sampler, allowed, rows.keys, rows.count, with_raw=False).token, logits)
        taken = jnp.where(state.running, token, -1)
        state = advance(tables, state, token, at)
        fed, count = jnp.maximum(taken, 0)[:, None], state.running.astype(jnp.int32)
        logits, cache = applied(decoder, projection, fed, rows.cache, count)
        logits = logits[:, -1].astype(rows.logits.dtype)
        out = jax.lax.dynamic_update_index_in_dim(out, jnp.maximum(taken, -1), i, 0)
        return i + 1, dataclasses.replace(rows, cache=cache, logits=logits, count=rows.count + 1), packed(state), out

    def going(carry: tuple[jax.Array, Rows, PackedState, jax.Array]) -> jax.Array:
        return (carry[0] < steps) & carry[2].running.any()

    out = jnp.full((steps + 1, rows.keys.shape[0]), -1, jnp.int32)
    places, rows = packed(rows.state), dataclasses.replace(rows, state=None)  # type: ignore[arg-type]
    _, rows, places, out = jax.lax.while_loop(going, step, (jnp.int32(0), rows, places, out))
    return dataclasses.replace(rows, state=unpacked(places)), out.at[steps].set(places.status)


@program(donate=["rows"])
def end_rows(rows: Rows, ended: Any) -> Rows:
    """The rows with those of `ended` bool[B] stopped."""
    status = jnp.where(ended, jnp.int32(Status.STOPPED), rows.state.status)
    return dataclasses.replace(rows, state=dataclasses.replace(rows.state, status=status))
