"""A server's step of speculative decoding, for rows with constraints: masks along a draft, and how much of it is kept.

The servers' own verify steps know no grammars. `mask_along` gives them logits under which their rules, greedy or by rejection,
are right; `verify_drafts` is a rule of ours. Both are one program whatever is drafted, and nothing of them runs on the host.
Drafts are chains, one token after another; of a tree, a server verifies each path as a row of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.errors import shown
from jax_decode.decoding.verification import by_same_draw
from jax_decode.errors import DecodeError
from jax_decode.sampling.samplers import Greedy, Sampler, check_sampler
from jax_decode.sampling.sampling import among
from jax_decode.step.argument_checks import check_key_words, check_logits, check_state, check_tables, kind_of, numbers_of
from jax_decode.step.forced import advance_some
from jax_decode.step.masking import MaskParts, dense, mask_parts, parts_at
from jax_decode.step.state import ConstraintState, Position
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


class Verified(NamedTuple):
    """What a step has written.

    Attributes:
      tokens: int32[B, K + 1], drafts that are kept and the token after them; then -1.
      written: int32[B], how many tokens that are: 0 for rows that have ended, less than K + 1 where a text ends.
      state: after these tokens.
    """

    tokens: jax.Array
    written: jax.Array
    state: ConstraintState


class _Along(NamedTuple):
    """Of each place of a draft, [K + 1, B, ...]: where the row stood before it, and the mask there; `last` is the last state."""

    before: Position
    parts: tuple[jax.Array, ...]
    last: ConstraintState

    def flat(self) -> MaskParts:
        """The masks of all places, those of one place together."""
        return parts_at(*(part.reshape(-1, *part.shape[2:]) for part in self.parts))


def mask_along(tables: ConstraintTables, state: ConstraintState, drafts: jax.Array, logits: jax.Array) -> jax.Array:
    """Logits with -inf in place of what the constraints forbid after each beginning of a draft.

    Args:
      tables: the constraints.
      state: where every row stands before its draft.
      drafts: int32[B, K], -1 for none. From the first draft that is not allowed on, nothing is.
      logits: float[B, K + 1, V'], the model's; place i is read after i drafts.

    Returns:
      float[B, K + 1, V'], to be used in place of `logits` by any verify step.

    Raises:
      DecodeError: while tracing, for arguments that do not go together.
    """
    _check(tables, state, drafts, logits)
    parts = _along(tables, state, drafts).flat()
    batch, places, width = logits.shape
    allowed = dense(parts, width).reshape(places, batch, width)
    return jnp.where(jnp.moveaxis(allowed, 0, 1), logits, jnp.asarray(-jnp.inf, logits.dtype))


def verify_drafts(
    tables: ConstraintTables,
    state: ConstraintState,
    drafts: jax.Array,
    logits: jax.Array,
    *,
    sampler: Sampler | None = None,
    key: jax.Array | None = None,
    step: jax.Array | None = None,
) -> Verified:
    """Draws a token at every place under its mask, and keeps drafts as long as they are what was drawn.

    The tokens are those that `sample` draws one by one with the same keys and steps, whatever was drafted: greedy output is the
    same, and sampled output has the same distribution. Forbidden drafts are never kept.

    Args:
      tables, state, drafts, logits: as for `mask_along`.
      sampler: `Greedy()` by default.
      key: uint32[B, 2] from `noise.key_words`; not needed for `Greedy`.
      step: int32[B], tokens of each row's own text before the draft; not needed for `Greedy`.

    Returns:
      The tokens, and the state after them.

    Raises:
      DecodeError: while tracing, for arguments that do not go together.
    """
    _check(tables, state, drafts, logits)
    batch, places, _ = logits.shape
    sampler = Greedy() if sampler is None else sampler
    check_sampler(sampler, traced=True)
    if not isinstance(sampler, Greedy) and (key is None or step is None):
        raise DecodeError("verify_drafts: this sampler draws, and there is no noise", fix="Pass key= and step=.")
    key = jnp.zeros((batch, 2), jnp.uint32) if key is None else key
    check_key_words(key, batch, "verify_drafts")
    first, what = np.zeros(batch, np.int32) if step is None else step, f"verify_drafts: the step is {kind_of(step)}"
    if np.shape(numbers_of(first, what, f"Pass int32[{batch}].")) not in ((), (batch,)):
        raise DecodeError(what, fix=f"Pass int32[{batch}].")
    first = jnp.broadcast_to(jnp.asarray(first, jnp.int32), batch)
    along = _along(tables, state, drafts)
    rows = jnp.moveaxis(logits, 1, 0).reshape(places * batch, -1)
    steps = first[None] + jnp.arange(places, dtype=jnp.int32)[:, None]
    verdict = by_same_draw(sampler, among(rows, along.flat(), tables.columns), key, steps, drafts.T.astype(jnp.int32))

    def at_kept(values: jax.Array) -> jax.Array:
        place = verdict.kept.reshape(1, batch, *(1,) * (values.ndim - 2))
        return jnp.take_along_axis(values, place, axis=0)[0]

    before = along.last.rewound(Position(*map(at_kept, along.before)))
    goes = before.running & (verdict.token >= 0)
    after = advance_some(tables, before, verdict.token, goes)
    place = jnp.arange(places, dtype=jnp.int32)[None]
    padded = jnp.pad(drafts.astype(jnp.int32), ((0, 0), (0, 1)), constant_values=-1)
    tokens = jnp.where(place < verdict.kept[:, None], padded, -1)
    tokens = jnp.where((place == verdict.kept[:, None]) & goes[:, None], verdict.token[:, None], tokens)
    return Verified(tokens, verdict.kept + goes, after)


def _along(tables: ConstraintTables, state: ConstraintState, drafts: jax.Array) -> _Along:
    """Follows drafts."""

    def follow(state: ConstraintState, token: jax.Array) -> tuple[ConstraintState, Any]:
        return advance(tables, state, token), (state.position, mask_parts(tables, state).arrays)

    columns = jnp.pad(drafts.T.astype(jnp.int32), ((0, 1), (0, 0)), constant_values=-1)
    last, (before, parts) = jax.lax.scan(follow, state, columns)
    return _Along(before, parts, last)


def _check(tables: ConstraintTables, state: ConstraintState, drafts: jax.Array, logits: jax.Array) -> None:
    check_tables(tables, "verify_drafts")
    check_state(tables, state, "verify_drafts")
    whole = hasattr(drafts, "ndim") and jnp.issubdtype(drafts.dtype, jnp.integer)
    if not whole or not hasattr(logits, "ndim"):
        what = f"verify_drafts: the drafts are {shown(drafts)}, the logits {shown(logits)}"
        raise DecodeError(what, fix="Pass arrays, drafts int32[B, K] and logits float[B, K + 1, V].")
    if drafts.ndim != 2 or logits.ndim != 3 or logits.shape[:2] != (drafts.shape[0], drafts.shape[1] + 1):
        raise DecodeError(
            f"the drafts have shape {drafts.shape} and the logits {logits.shape}",
            fix="Pass drafts int32[B, K] and logits float[B, K + 1, V], one more place than drafts.",
        )
    check_logits(logits[:, 0], tables, state, "verify_drafts")
