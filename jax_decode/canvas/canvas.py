"""What a constraint says of a canvas: its most probable text, an exact sample, marginals, and the mass.

The distribution over canvases is the product of one distribution per position, conditioned on the constraint. With diffusion
language models the positions' distributions come from one denoising step.

Source: dynamic programming over positions and states, as for the forward-backward algorithm of hidden Markov models; for
diffusion language models Suresh et al. 2025, DINGO (arXiv 2505.23061), who find the most probable text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.errors import naming
from jax_decode.canvas.canvas_tables import BLOCK, START, CanvasTables
from jax_decode.canvas.semiring import LOG, MAX, Semiring, SetWeights, backward, forward, label_weights, set_weights, through
from jax_decode.errors import CallError, DecodeError, named_arguments
from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import LOWEST, NEVER, clean, finite, log_shares, scaled
from jax_decode.step.argument_checks import check_among, first_outside, is_floats, kind_of, numbers_of

_BYTES_AT_ONCE = 1 << 28
"""Log-probabilities of the rows that are worked on together; temporaries are a few times as large."""
_MOST = 1e30
"""Log-probabilities are clamped to these: sums of finite ones stay finite, so that no text counts as impossible that is not."""
_KINDS = _EDGE, _TERM, _CLASS, _PART, _TOKEN = tuple(range(5))
"""Kinds of draws at a position."""


class Filled(NamedTuple):
    """Canvases that a constraint allows.

    Attributes:
      tokens: int32[B, L], -1 throughout a row without any such canvas, or whose canvases all have probability 0.
      logprob: float32[B], sum of the log-probabilities of the tokens that were not fixed.
      log_mass: float32[B], log-probability of the constraint, -inf where nothing is allowed; of `most_probable`, of its text.
      state: int32[B], where the text stands behind the canvas: what the next block begins with. 0 is dead.
    """

    tokens: jax.Array
    logprob: jax.Array
    log_mass: jax.Array
    state: jax.Array


class Marginals(NamedTuple):
    """What the constraint makes of every position.

    Attributes:
      logprobs: float32[B, L, V'], log-probability of each token at each position, given that the constraint holds.
      log_mass: float32[B], as in `Filled`.
    """

    logprobs: jax.Array
    log_mass: jax.Array


class Row(NamedTuple):
    """Arguments of one row, or of all: see `most_probable`."""

    logprobs: jax.Array
    fixed: jax.Array
    which: jax.Array
    state: jax.Array
    remaining: jax.Array
    key: jax.Array


@named_arguments
def most_probable(tables: CanvasTables, logprobs: jax.Array, **asked: Any) -> Filled:
    """The most probable canvas of the constraint.

    Args:
      tables: from `to_canvas`.
      logprobs: float[B, L, V'], log-probabilities of every position, V' at least the vocabulary's size; further ids are not
        allowed. NaN counts as -inf; numbers are clamped to ±1e30. Sums are float32: those near -1e6 are exact to 0.1.
      fixed: int32[B, L], tokens that are settled, -1 elsewhere; default: none.
      which: int32[B], the constraint of each row; default: 0.
      state: int32[B], where the text of each row stands before the canvas: `Filled.state` of the block before it, or 1 for the
        start, which is the default.
      remaining: int32[B] or a number: how many tokens may follow the canvas. Default 0: the text is complete within the canvas.

    Returns:
      The canvases. Of equally probable ones it is the same each time.

    Raises:
      DecodeError: a shape or dtype is wrong.
    """
    return _filled(tables, read(tables, logprobs, None, **asked), draws=False)


@named_arguments
def sample(tables: CanvasTables, logprobs: jax.Array, keys: jax.Array, **asked: Any) -> Filled:
    """An exact sample of the canvas, given that the constraint holds: forward filtering, backward sampling.

    Args:
      keys: uint32[B, 2], from `jax_decode.key_words`. A row's draw depends on its own key alone.
      tables, logprobs, and the others: as in `most_probable`.
    """
    return _filled(tables, read(tables, logprobs, keys, **asked), draws=True)


@named_arguments
def marginals(tables: CanvasTables, logprobs: jax.Array, **asked: Any) -> Marginals:
    """The distribution of every position, given that the constraint holds. Arguments as in `most_probable`."""
    return _marginals(tables, read(tables, logprobs, None, **asked))


@named_arguments
def log_mass(tables: CanvasTables, logprobs: jax.Array, **asked: Any) -> jax.Array:
    """The log-probability of the constraint, float32[B]; arguments as in `most_probable`.

    Its gradient by the log-probabilities is the probability of each token given the constraint, so that it can be a loss.
    """
    return _log_mass(tables, read(tables, logprobs, None, **asked))


@naming(CallError, "canvas")
def read(
    tables: CanvasTables,
    logprobs: Any,
    keys: Any,
    *,
    fixed: Any = None,
    which: Any = None,
    state: Any = None,
    remaining: Any = 0,
) -> Row:
    """Arguments of all rows, checked for shapes and dtypes."""
    check_canvas(tables)
    if not is_floats(logprobs, 3):
        raise DecodeError("the log-probabilities are no floating numbers of shape [B, L, V]", fix="Pass log_softmax(logits).")
    rows, length, width = logprobs.shape
    if width < tables.vocab_size:
        what = f"there are {width:,} log-probabilities per position, the constraint's vocabulary has {tables.vocab_size:,} ids"
        raise DecodeError(what, fix="Compile for the tokenizer of this model.")

    def integers(
        name: str, value: Any, default: int, shape: tuple[int, ...], count: int | None = None, told: str = ""
    ) -> jax.Array:
        what, fix = f"{name} is {kind_of(value)}", f"Pass int32{list(shape)}."
        value = numbers_of(default if value is None else value, what, fix)
        if np.shape(value) not in ((), shape):
            raise DecodeError(what, fix=fix)
        if count is not None and (wrong := first_outside(value, 0, count)) is not None:
            raise DecodeError(f"{name} is {wrong}", fix=f"Give numbers from 0 to {count - 1:,}: {told}.")
        return jnp.broadcast_to(jnp.asarray(value, jnp.int32), shape)

    if keys is None:
        keys = jnp.zeros((rows, 2), jnp.uint32)
    if not hasattr(keys, "dtype") or keys.dtype != jnp.uint32 or keys.shape != (rows, 2):
        fix = "Pass jax_decode.key_words(jax.random.split(key, B))."
        raise DecodeError(f"the keys are not uint32[{rows}, 2]", fix=fix)
    check_which(tables, which)
    return Row(
        logprobs,
        integers("fixed", fixed, -1, (rows, length)),
        integers("which", which, 0, (rows,)),
        integers("state", state, START, (rows,), tables.distance.shape[1], "Filled.state of the same tables, or 1 for the start"),
        integers("remaining", remaining, 0, (rows,), 1 << 30, "how many tokens may follow"),
        keys,
    )


def check_canvas(tables: Any) -> None:
    """Raises `DecodeError` unless these are tables of a canvas."""
    if not isinstance(tables, CanvasTables):
        what = f"a canvas needs its own tables, not {type(tables).__name__}"
        raise DecodeError(what, fix="Pass jax_decode.canvas.to_canvas(constraint).")


def check_which(tables: CanvasTables, which: Any) -> None:
    """Raises `DecodeError` unless `which`, None for the first everywhere, names constraints of the tables."""
    numbers_of(0 if which is None else which, f"which is {kind_of(which)}", "Pass int32[B], indices in the order of to_canvas.")
    check_among(0 if which is None else which, len(tables.start), "which", 0, "in the order of to_canvas")


def distributions(logits: jax.Array, inverse: jax.Array | None = None) -> jax.Array:
    """Log-probabilities of a model's logits, float32[B, L, V'], at an inverse temperature (None: 1).

    Where a logit is -inf or NaN the token is improbable, yet allowed. NaN throughout a position of which no logit is a number.
    """
    return jnp.maximum(log_shares(scaled(clean(logits), inverse)), LOWEST)


def by_row(function: Callable[..., Any], tables: CanvasTables, rows: Row, *more: jax.Array | None) -> Any:
    """`function(tables, row, *more)` of every row, of as many at once as memory allows."""
    _, length, width = rows.logprobs.shape
    at_once = max(_BYTES_AT_ONCE // (4 * length * width), 1)

    def one(given: tuple[Row, tuple[jax.Array | None, ...]]) -> Any:
        row, more = given
        own = jax.tree.map(lambda table: table[0 if len(table) == 1 else row.which], tables)
        x = row.logprobs.astype(jnp.float32)
        token = jnp.arange(width, dtype=jnp.int32)[None, :]
        x = jnp.where((x > NEVER) & (token < tables.vocab_size), jnp.clip(x, -_MOST, _MOST), NEVER)  # of NaN this is false
        fixed = row.fixed[:, None]
        x = jnp.where(fixed < 0, x, jnp.where(token == fixed, 0.0, NEVER))
        state = jnp.where(row.state == START, own.start, row.state)
        return function(own, row._replace(logprobs=x, state=state), *more)

    return jax.lax.map(one, (rows, more), batch_size=min(at_once, len(rows.key)))


@functools.partial(jax.jit, static_argnames="draws")
def _filled(tables: CanvasTables, rows: Row, *, draws: bool) -> Filled:
    return by_row(functools.partial(fill, draws), tables, rows)


@jax.custom_vjp
@jax.jit
def _log_mass(tables: CanvasTables, rows: Row) -> jax.Array:
    return by_row(mass_of, tables, rows)


def mass_of(tables: CanvasTables, row: Row) -> jax.Array:
    """The log-probability of the constraint in one row, float32[]."""
    return backward(LOG, tables, _weights(tables, row).labels, row.remaining)[0][row.state]


def _log_mass_forward(tables: CanvasTables, rows: Row) -> tuple[jax.Array, tuple[CanvasTables, Row]]:
    return _log_mass(tables, rows), (tables, rows)


def _log_mass_backward(residuals: tuple[CanvasTables, Row], given: jax.Array) -> tuple[Any, Any]:
    tables, rows = residuals
    share = jnp.where(rows.fixed[..., None] < 0, jnp.exp(_marginals(tables, rows).logprobs), 0.0)
    nothing = jax.tree.map(_no_gradient, (tables, rows))
    return nothing[0], nothing[1]._replace(logprobs=(share * given[:, None, None]).astype(rows.logprobs.dtype))


_log_mass.defvjp(_log_mass_forward, _log_mass_backward)


def _no_gradient(x: jax.Array) -> Any:
    return np.zeros(x.shape, jax.dtypes.float0)


@jax.jit
def _marginals(tables: CanvasTables, rows: Row) -> Marginals:
    def one(tables: CanvasTables, row: Row) -> Marginals:
        x, weights = row.logprobs, _weights(tables, row)
        ways = backward(LOG, tables, weights.labels, row.remaining)
        of_class, listed = _rest_of_tokens(weights, ways, tables, row)
        out = jnp.full_like(x, NEVER).at[:, : tables.vocab_size].set(of_class[tables.token_class].T)
        wide = out.at[:, tables.arc_token].get(mode="fill", fill_value=NEVER)
        out = out.at[:, tables.arc_token].set(jnp.logaddexp(wide, listed.T), mode="drop")
        return Marginals(jnp.where(out > NEVER, jnp.minimum(out + x, 0.0), NEVER), ways[0][row.state])

    return by_row(one, tables, rows)


class _Weights(NamedTuple):
    """Of token sets, and float32[L, G] of labels."""

    sets: SetWeights
    labels: jax.Array


def _weights(tables: CanvasTables, row: Row, ring: Semiring = LOG) -> _Weights:
    sets = set_weights(ring, tables, row.logprobs)
    return _Weights(sets, label_weights(ring, tables, sets.values))


def fill_with_confidence(tables: CanvasTables, row: Row) -> tuple[Filled, jax.Array]:
    """A sample of one row, and the log-probability of each of its tokens given that the constraint holds, float32[L]."""
    weights = _weights(tables, row)
    ways = backward(LOG, tables, weights.labels, row.remaining)
    filled = _filled_by(weights, ways, True, tables, row)
    token, position = jnp.maximum(filled.tokens, 0), jnp.arange(len(filled.tokens))
    ahead = forward(LOG, tables, weights.labels, row.state) - finite(ways[0][row.state])
    rest = through(LOG, tables, label_weights(LOG, tables, _values_of(tables, token)), ahead, ways[1])
    return filled, jnp.where(rest > NEVER, jnp.minimum(rest + row.logprobs[position, token], 0.0), NEVER)


def _values_of(tables: CanvasTables, token: jax.Array) -> jax.Array:
    """Weights of token sets, float32[J, L], at positions that hold tokens int32[L]: 0 if the token is in the set."""
    of_class = tables.token_class.at[token].get(mode="fill", fill_value=0)  # the model may know more ids
    holds = jnp.concatenate([tables.holds[:, of_class], tables.arc_token[:, None] == token[None, :]])
    return jnp.where(holds, 0.0, NEVER)


def _rest_of_tokens(
    weights: _Weights, ways: tuple[jax.Array, jax.Array], tables: CanvasTables, row: Row
) -> tuple[jax.Array, jax.Array]:
    """What the other positions add where a position has a token of a class, float32[K, L], or one of the listed tokens,
    float32[A, L]: with the token's own log-probability, its log-probability given the constraint.

    `weights` and `ways` are those of the row and of `backward`.
    """
    (sets, labels), (before, behind) = weights, ways
    ahead = forward(LOG, tables, labels, row.state)
    rest = (ahead[:, tables.source] + behind[:, tables.target] - finite(before[row.state])).T
    of_label = LOG.segments(rest, tables.edge_label, len(tables.first_term))
    of_value = LOG.segments(of_label[tables.term_label], tables.term_value, len(sets.values))
    rows, listed = of_value[: len(tables.holds)], of_value[len(tables.holds) :]
    return LOG.segments(rows[tables.held_row], tables.held_class, tables.holds.shape[1]), listed


def fill(draws: bool, tables: CanvasTables, row: Row) -> Filled:
    """One row: an exact sample, or the most probable canvas."""
    ring = LOG if draws else MAX
    weights = _weights(tables, row, ring)
    return _filled_by(weights, backward(ring, tables, weights.labels, row.remaining), draws, tables, row)


def fill_and_settle(tables: CanvasTables, row: Row, settle: jax.Array, given: jax.Array | None) -> tuple[Filled, jax.Array]:
    """A sample of one row, and the mass of the constraint once the positions `settle`, bool[L], hold its tokens.

    Tokens `given`, int32[L], where they are not negative, take the place of the sample's; the state behind the canvas is then
    that of its tokens if all are settled.
    """
    weights = _weights(tables, row)
    filled = _filled_by(weights, backward(LOG, tables, weights.labels, row.remaining), True, tables, row)
    if given is not None:
        filled = filled._replace(tokens=jnp.where(given >= 0, given, filled.tokens))
    values = jnp.where(settle[None, :], _values_of(tables, jnp.maximum(filled.tokens, 0)), weights.sets.values)
    labels = label_weights(LOG, tables, values)

    def step(state: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
        edge, leaves = _edges_from(tables, state)
        ways = jnp.where(leaves, weight[tables.edge_label[edge]], NEVER)
        return jnp.where(ways.max() > NEVER, tables.target[edge[ways.argmax()]], 0), None

    if given is not None:
        filled = filled._replace(state=jax.lax.scan(step, row.state, labels)[0])
    return filled, backward(LOG, tables, labels, row.remaining)[0][row.state]


def _edges_from(tables: CanvasTables, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Edges, int32[D], with all that leave a state; and which of them do."""
    edge = jnp.minimum(tables.first_edge[state] + tables.place, len(tables.source) - 1)
    return edge, tables.source[edge] == state


def _filled_by(weights: _Weights, ways: tuple[jax.Array, jax.Array], draws: bool, tables: CanvasTables, row: Row) -> Filled:
    """Edges first, then of every edge a token set, of a set a class, of a class a block, and of a block a token: so that noise is
    drawn for a few alternatives and not for the vocabulary."""
    x, positions = row.logprobs, jnp.arange(len(row.logprobs))
    ((values, classes, blocks), labels), (before, behind) = weights, ways

    def best(kind: int, position: jax.Array, of: jax.Array, number: jax.Array | None = None) -> jax.Array:
        """The drawn or the best of alternatives float32[n, m], int32[n], at positions [n]; noise is by their number."""
        if draws:
            key = jnp.broadcast_to(row.key[None, :], (len(position), 2))
            number = jnp.arange(of.shape[1])[None, :] if number is None else number
            of += gumbel(key, (position * len(_KINDS) + kind).astype(jnp.uint32), number.astype(jnp.uint32))
        return of.argmax(1).astype(jnp.int32)

    def step(state: jax.Array, at: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        position, weight, rest = at
        some, leaves = _edges_from(tables, state)
        on = jnp.where(leaves, weight[tables.edge_label[some]] + rest[tables.target[some]], NEVER)
        edge = jnp.where(on.max() > NEVER, some[best(_EDGE, position[None], on[None], some[None])[0]], 0)
        return tables.target[edge], edge

    state, taken = jax.lax.scan(step, row.state, (positions, labels, behind))
    label, last = tables.edge_label[taken][:, None], len(tables.term_label) - 1
    term = jnp.minimum(tables.first_term[label] + jnp.arange(BLOCK)[None, :], last)
    terms = jnp.where(tables.term_label[term] == label, values[tables.term_value[term], positions[:, None]], NEVER)
    value = jnp.take_along_axis(tables.term_value[term], best(_TERM, positions, terms, term)[:, None], 1)[:, 0]
    wide = jnp.minimum(value, len(tables.holds) - 1)
    held = best(_CLASS, positions, jnp.where(tables.holds[wide], classes.T, NEVER))
    part = best(_PART, positions, jnp.where(tables.block_class[None, :] == held[:, None], blocks.T, NEVER))
    tokens = tables.order.reshape(-1, BLOCK)[part]
    within = best(_TOKEN, positions, x.at[positions[:, None], tokens].get(mode="fill", fill_value=NEVER))
    token = jnp.take_along_axis(tokens, within[:, None], 1)[:, 0]
    token = jnp.where(value >= len(tables.holds), tables.arc_token[jnp.maximum(value - len(tables.holds), 0)], token)
    mass = before[row.state]
    possible = mass > NEVER
    token = jnp.where(possible, token, -1)
    logprob = jnp.take_along_axis(x, jnp.maximum(token, 0)[:, None], 1)[:, 0].sum()
    return Filled(token, jnp.where(possible, logprob, NEVER), mass, jnp.where(possible, state, 0))
