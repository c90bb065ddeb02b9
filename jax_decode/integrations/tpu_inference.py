"""Constraints inside the fused decoding loop of tpu-inference, vLLM's runner for TPUs, which stays as it is.

The loop (`runner/decode_loop.py: continue_decode`) carries what it knows nothing of: parameters and caches are pytrees to it, and
the model and its last layer are functions that it calls. So the tables ride with the parameters, every row's place in its
constraint with the caches, and two functions around the runner's own advance and mask.

Source: tpu-inference 0.32.0. The package is imported nowhere here: only shapes of its calls are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from jax_decode.decoding.programs import program
from jax_decode.errors import DecodeError, is_whole, shown
from jax_decode.integrations.carried import masked
from jax_decode.kernels.placement import on_own_rows, put_rows, spread_rows
from jax_decode.serving.pool import ConstraintPool
from jax_decode.serving.rows import put_row, take_rows
from jax_decode.step.state import MAX_DEPTH, ConstraintState, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


class _Parameters(NamedTuple):
    """What the loop takes for the model's parameters."""

    own: Any
    tables: ConstraintTables


class _Caches(NamedTuple):
    """What the loop takes for the model's caches; the state is that before the tokens that it feeds next."""

    own: Any
    rows: ConstraintState


class _Hidden(NamedTuple):
    """What the loop hands from the model to its last layer; the state is that after the tokens fed."""

    own: Any
    rows: ConstraintState


@dataclasses.dataclass(frozen=True)
class _Model:
    """The runner's model, and every row's step through its constraint. Two of the same function are equal, as jit needs it."""

    own: Callable[..., Any]
    spread: NamedSharding | None

    def __call__(self, state: _Parameters, kv_caches: _Caches, tokens: jax.Array, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        rows = on_own_rows(advance, self.spread)(state.tables, kv_caches.rows, tokens)
        caches, hidden, *more = self.own(state.own, kv_caches.own, tokens, *args, **kwargs)
        return _Caches(caches, rows), _Hidden(hidden, rows), *more


@dataclasses.dataclass(frozen=True)
class _Logits:
    """The runner's last layer, and the mask."""

    own: Callable[..., jax.Array]
    spread: NamedSharding | None

    def __call__(self, state: _Parameters, hidden: _Hidden, *args: Any) -> jax.Array:
        logits = self.own(state.own, hidden.own, *args)
        allowed: jax.Array = on_own_rows(masked, self.spread)(state.tables, hidden.rows, logits)
        return allowed


class FusedRows:
    """The places of a runner's requests in their constraints, for its fused loop.

    A request has a number from 0 to `requests` - 1 while it lives, wherever the runner puts it in its batches. Programs depend
    on the pool's profile, the numbers given here and the size of the batch; requests that come and go compile nothing.

    Args:
      pool: the constraints, over the model's vocabulary.
      requests: most of them at a time.
      max_tokens: most tokens of one of them.
      stop_ids: the runner's ids that end a text; by default those of the pool's vocabulary.
      max_depth: most stack cells of a request.

    Raises:
      DecodeError: a number is wrong, or no id ends a text.

    Examples:
      >>> fused = FusedRows(pool, requests=256, max_tokens=1024, stop_ids=runner.eos_token_id)
      >>> fused.enter(number, pool.add(constraint), max_tokens=200)  # its first token was chosen with the mask of the host
      >>> model_fn, compute_logits_fn = fused.functions(model_fn, compute_logits_fn)
      >>> state, kv_caches = fused.carried(state, kv_caches, numbers)
      >>> tokens, kv_caches, *more = continue_decode(state, model_fn, compute_logits_fn, sample, first, kv_caches, ...)
      >>> kv_caches = fused.kept(kv_caches)
    """

    def __init__(
        self,
        pool: ConstraintPool,
        *,
        requests: int,
        max_tokens: int,
        stop_ids: Sequence[int] | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        if not isinstance(pool, ConstraintPool):
            raise DecodeError(f"the pool is a {type(pool).__name__}", fix="Pass a ConstraintPool over the model's vocabulary.")
        for name, number in (("requests", requests), ("max_tokens", max_tokens)):
            if not is_whole(number, 1):
                raise DecodeError(f"{name} is {shown(number)}", fix="Give a whole number of at least 1.")
        self._pool, self._requests, self._most, self._depth = pool, int(requests), int(max_tokens), max_depth
        stops = tuple(pool.stop_ids if stop_ids is None else stop_ids)
        if not stops:
            raise DecodeError("the vocabulary names no id that ends a text", fix="Pass stop_ids=, the runner's own.")
        self._stops = np.asarray(stops, np.int32)
        self._rows = self._begun([-1] * (self._requests + 1), [self._most] * (self._requests + 1))
        self._numbers: NDArray[np.int32] | None = None

    def functions(
        self, model_fn: Callable[..., Any], compute_logits_fn: Callable[..., Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The runner's two functions with the constraints around them; equal objects for the same two, so that a loop that was
        compiled stays compiled."""
        return _Model(model_fn, spread_rows()), _Logits(compute_logits_fn, spread_rows())

    def enter(self, number: int, slot: int | None, max_tokens: int, tokens: Sequence[int] = ()) -> None:
        """Puts a request at the beginning of its constraint.

        Args:
          number: of the request.
          slot: of its constraint in the pool; None for none.
          max_tokens: most tokens of its text, the stop token included.
          tokens: those chosen so far that the model has read. The last one chosen is not among them: the loop feeds it first.

        Raises:
          DecodeError: a number is out of range.
        """
        if not 0 <= number < self._requests:
            fix = "Give FusedRows requests=, as many as may live at once."
            raise DecodeError(f"there is no request {number} of {self._requests}", fix=fix)
        if not 1 <= max_tokens <= self._most:
            fix = f"Give at most {self._most:,}, or FusedRows a larger max_tokens."
            raise DecodeError(f"request {number} has a limit of {max_tokens:,} tokens", fix=fix)
        begun = self._begun([-1 if slot is None else slot], [max_tokens])
        self._rows = _put(self._rows, np.asarray([number], np.int32), begun)
        for token in tokens:
            self.follow([number], [token])

    def follow(self, numbers: Sequence[int], tokens: Sequence[int]) -> None:
        """Tells of tokens that the model has read outside the loop: in a step of the runner that chooses one token at a time.

        Args:
          numbers: requests of that step, int[n], each once, -1 for none.
          tokens: what the step has fed for each, int[n].
        """
        at = self._places(numbers)
        self._rows = _followed(self._pool.tables, self._rows, at, np.asarray(tokens, np.int32))

    def carried(self, state: Any, kv_caches: Any, numbers: Sequence[int]) -> tuple[Any, Any]:
        """What the loop is given in place of the parameters and the caches.

        Args:
          state, kv_caches: the runner's.
          numbers: of the request in every row of the batch, -1 for rows without one; as many as the batch has rows.

        Within `sharded_rows` the rows are spread as the runner's own are; the pool needs a sharding over the same mesh.
        """
        if self._numbers is not None:
            raise DecodeError("'carried' was called twice", fix="Call kept with the caches that the loop returned, first.")
        self._numbers = self._places(numbers)
        rows = put_rows(_taken(self._rows, self._numbers))
        return _Parameters(state, self._pool.tables), _Caches(kv_caches, rows)

    def kept(self, kv_caches: Any) -> Any:
        """The runner's own caches out of those that the loop returned; the rows' places are kept for the next time."""
        if self._numbers is None or not isinstance(kv_caches, _Caches):
            raise DecodeError("'kept' needs the caches of a loop that 'carried' began", fix="Pass what continue_decode returned.")
        self._rows, self._numbers = self._placed(_put(self._rows, self._numbers, kv_caches.rows)), None
        return kv_caches.own

    def _begun(self, which: list[int], limits: list[int]) -> ConstraintState:
        stops = np.broadcast_to(self._stops, (len(which), len(self._stops)))
        given = (np.asarray(which, np.int32), np.asarray(limits, np.int32), stops)
        depths = np.full(len(which), self._depth, np.int32)
        return self._placed(_begun(self._pool.tables, *given, depths, max_tokens=self._most))

    def _placed(self, rows: ConstraintState) -> ConstraintState:
        """The rows where the tables are, bound to that place as all that the runner's programs return: programs depend on it."""
        placed: ConstraintState = jax.device_put(rows, self._pool.tables.constraints.sharding)
        return placed

    def _places(self, numbers: Sequence[int]) -> NDArray[np.int32]:
        """Rows of `self._rows`; those without a request are the last, which is free and stays so."""
        given = np.asarray(numbers, np.int32)
        if given.ndim != 1 or (given >= self._requests).any() or (given < -1).any():
            raise DecodeError(f"the requests' numbers are {given.tolist()}", fix=f"Give numbers from -1 to {self._requests - 1}.")
        return np.where(given < 0, self._requests, given).astype(np.int32)


@program()
def _begun(
    tables: ConstraintTables, which: Any, limits: Any, stop_ids: Any, depths: Any, *, max_tokens: int
) -> ConstraintState:
    return init_state(tables, which, limits, stop_ids, max_depth=depths, max_tokens=max_tokens)


@program()
def _taken(rows: ConstraintState, at: Any) -> ConstraintState:
    return take_rows(rows, at)


@program(donate=["rows"])
def _put(rows: ConstraintState, at: Any, other: ConstraintState) -> ConstraintState:
    """The rows with others in place of some; the last one, which has no request, stays."""
    last = rows.status.shape[0] - 1
    at = jnp.where(at == last, last + 1, at)
    return put_row(rows, at, other, jnp.arange(at.shape[0], dtype=jnp.int32))


@program(donate=["rows"])
def _followed(tables: ConstraintTables, rows: ConstraintState, at: Any, tokens: Any) -> ConstraintState:
    return _put(rows, at, advance(tables, take_rows(rows, at), tokens))
