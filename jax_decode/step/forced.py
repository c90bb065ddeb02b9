"""Coalescence: where a constraint leaves one token, nothing is sampled, and a run of such tokens enters the model as one block.

Source: Cognetta et al. 2025, §3.3.1; Tran-Thien 2024, "Fast, High-Fidelity LLM Decoding with Regex Constraints".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fsa_compile.errors import named_fields
from jax_decode.errors import DecodeError, check_function, is_whole, named_arguments, shown
from jax_decode.kernels.gather import read
from jax_decode.kernels.history import select, write
from jax_decode.kernels.row_layout import SEVERAL_TOKENS
from jax_decode.step.argument_checks import check_state, check_tables
from jax_decode.step.masking import allows, likely_spelling, listed, mask_parts, mask_rows
from jax_decode.step.parallel_stacks import by_rows
from jax_decode.step.stack import sources
from jax_decode.step.state import ConstraintState
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables

MAX_RUN = 64
"""Longest block of forced tokens: every pass of the model is as wide as the longest run may be."""

Rule = Callable[[ConstraintTables, ConstraintState], jax.Array]
"""Which token is forced in every row, int32[B], -1 for none."""


@named_arguments
def only_token(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """The only token that a row may take next, int32[B]; -1 where there are several or none. A stop id counts as a token.

    Limits count too: a row whose budget leaves one token has one. Costs no pass over the vocabulary: the tokens of bit rows
    that hold one were looked up when the tables were made. Only canonical constraints, whose masks are more than their rows,
    are counted mask by mask.
    """
    check_tables(tables, "only_token")
    check_state(tables, state, "only_token")
    if tables.pairs is not None:
        return _counted(tables, state)
    return by_rows(tables, _only, state) if tables.stacks > 1 else _only(tables, state)


def _only(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    at = sources(tables, state)
    of_rows = read(tables.only, mask_rows(tables, state, at))
    token, allowed = listed(tables, state, at)
    found = jnp.concatenate([of_rows, jnp.where(allowed, token, -1)], 1)
    most = found.max(1)
    least = jnp.where(found >= 0, found, most[:, None]).min(1)  # several stacks may allow the same token
    return jnp.where((least == most) & (found > SEVERAL_TOKENS).all(1), most, -1)


@named_arguments
def longest_spelling(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Where the following text is forced, its longest allowed token; elsewhere the only token. A rule for `Forced`.

    The model is not asked in which tokens it would write what it must write: the fewest passes, and the same texts can be
    written, but a text's probability is then that of one of its tokenizations. (`ForcedText` asks.) The tables must know the
    tokens: `to_device(constraint, vocabulary=tokenizer)`.

    Source: Tran-Thien 2024.
    """
    check_tables(tables, "longest_spelling")
    check_state(tables, state, "longest_spelling")
    if not tables.spelling.shape[0]:
        fix = "Call to_device(constraint, vocabulary=tokenizer)."
        raise DecodeError("the tables do not know the texts of the tokens", fix=fix)
    token = likely_spelling(tables, state)
    return jnp.where(allows(mask_parts(tables, state), token, tables.columns), token, only_token(tables, state))


def _counted(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    parts = mask_parts(tables, state)
    count = jax.lax.population_count(parts.words).sum(1).astype(jnp.int32) + parts.allowed.sum(1, dtype=jnp.int32)
    column = jnp.argmax(parts.words != 0, 1).astype(jnp.int32)
    word = jnp.take_along_axis(parts.words, column[:, None], axis=1)[:, 0]
    plane = 31 - jax.lax.clz(word).astype(jnp.int32)
    of_words = jnp.where(word > 0, tables.columns.token(column, plane), -1)
    token = jnp.maximum(of_words, jnp.where(parts.allowed, parts.token, -1).max(1))
    return jnp.where(count == 1, token, -1)


@named_fields
@dataclasses.dataclass(frozen=True)
class Forced:
    """How forced tokens are taken. The text is the one without; but no logit of a forced token is looked at, so that a row goes
    on where it is NaN.

    Most is forced by constraints compiled with `canonical=True`, for one stop id. With `raw_logprobs=False` what is forced at the
    beginning enters with the prompt.

    Attributes:
      length: most tokens of a run that enter the model together, 1..64; static. Longer runs take several passes.
      choose: which token is forced, static: `(tables, state) -> int32[B]`, -1 for none. By default the only allowed one. A
        rule that decides among spellings (the canonical tokenization of the bytes that must follow) may name one of several
        allowed tokens, which then counts as the only one. The token that begins a block is sampled all the same, but for the
        beginning of a text.
    """

    length: int = 8
    choose: Rule = only_token


def read_forced(forced: Any) -> Forced | None:
    """`forced` as given to `generate`: a number of tokens, 0 for none, or a `Forced`; raises `DecodeError` otherwise."""
    if is_whole(forced, 0):
        if forced == 0:
            return None
        forced = Forced(int(forced))
    fix = f"Give forced=8, a whole number up to {MAX_RUN}, or Forced(length, choose)."
    if not isinstance(forced, Forced):
        raise DecodeError(f"'forced' is {shown(forced)}", fix=fix)
    length = forced.length
    if not is_whole(length, 1, MAX_RUN):
        raise DecodeError(f"the length of forced runs is {shown(length)}", fix=fix)
    check_function(forced.choose, "the rule of forced runs", "Give only_token, longest_spelling or a function.")
    return forced


def take_run(
    forced: Forced | None,
    tables: ConstraintTables | None,
    state: ConstraintState,
    tokens: jax.Array,
    end: jax.Array,
    token: jax.Array,
    goes: jax.Array,
    room: jax.Array,
) -> tuple[ConstraintState, jax.Array, jax.Array]:
    """Takes a token, then forced ones until none is forced or there is no room.

    Args:
      forced: None takes no more than the one token.
      tables: from `to_device`, or None: then nothing is forced.
      state: the rows.
      tokens: int32[B, H], the texts; end: int32[B], where each row's next token belongs.
      token: int32[B], the first one; -1 as in `advance`.
      goes: bool[B], rows that take it; the others stay where they are.
      room: int32[B], most forced tokens.

    Returns:
      The states, the texts, and their ends. Loops only as often as the longest run asks for.
    """
    last = end + 1 + (jnp.zeros_like(end) if forced is None else jnp.minimum(room, forced.length))

    def take(carry: Any) -> Any:
        state, tokens, end, token, goes = carry
        state = advance_some(tables, state, token, goes)
        goes &= token >= 0
        tokens, end = write(tokens, end, token, goes), end + goes.astype(jnp.int32)
        if forced is not None and tables is not None:
            token = forced.choose(tables, state)
            goes &= state.running & (token >= 0) & (end < last)
        return state, tokens, end, token, goes

    start = (state, tokens, end, token, goes)
    if forced is None or tables is None:
        return take(start)[:3]
    return jax.lax.while_loop(lambda carry: carry[4].any(), take, start)[:3]


def advance_some(tables: ConstraintTables | None, state: ConstraintState, tokens: jax.Array, goes: jax.Array) -> ConstraintState:
    """`advance` of the rows `goes` bool[B]; the others stay where they are."""
    after = advance(tables, state, tokens)
    position = jax.tree.map(lambda new, old: select(goes, new, old), after.position, state.position)
    return after.rewound(position)
