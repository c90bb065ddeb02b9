"""The jitted loop of adaptive rejection sampling: rounds of draws from an envelope, which every round makes tighter.

Why the draws are exact. A row stands at a prefix, whose texts had the bound h, relative to the prefix's probability, when the row
was sent there. It goes on with probability H / h, where H <= h is what the model and the mask say of the next tokens, and then
takes token t with probability p(t) h(t) / H, where h(t) is the bound of the texts behind it. By induction from the end, a row at
the prefix is accepted with text x with probability p(x | prefix) / h: in proportion to p, whatever the bounds are, as long as
they depend on the past alone. So what is accepted has the model's distribution given the constraint.

Source: Gilks and Wild 1992, Adaptive Rejection Sampling for Gibbs Sampling, for the idea; for language models Parys et al. 2025,
Constrained Adaptive Rejection Sampling (arXiv 2510.01902), who walk down a trie of prefixes token by token. Drawing a cell at
once needs no pass of the model for what is known, and one pass over a block for where it is not.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.decoding.decoder import Decoder
from jax_decode.decoding.loop import feed_but_last
from jax_decode.decoding.requests import PromptBatch
from jax_decode.kernels.noise import gumbel, threefry
from jax_decode.kernels.planes import NEVER, log_sum
from jax_decode.probability.endings import ended
from jax_decode.probability.envelope import Envelope, Walk
from jax_decode.probability.tree import next_tokens
from jax_decode.step.forking import fork
from jax_decode.step.state import Status
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables

_BLOCK = 8
"""Tokens of a known prefix that are fed at once."""
_INDEX = 2**32 - 1
"""Counter of the uniform numbers; the draws of tokens and of cells use small ones."""


class Rules(NamedTuple):
    """wanted: int32[], samples of each prompt; rounds: int32[], most rounds; learn: bool[], whether the envelope grows; reject:
    bool[], whether draws are rejected; scout: bool[], whether rejected rows go on while most rows are rejected; always_stop:
    bool[], see the package."""

    wanted: Any
    rounds: Any
    learn: Any
    reject: Any
    scout: Any
    always_stop: Any


class Samples(NamedTuple):
    """tokens: int32[P * S, T], -1 past the end and where there is no sample; raw, local: float32[P * S, T], see `Envelope`;
    dropped: bool[P * S]; found, tries, passes, positions: int32[P], samples, draws, rows' passes of the model, tokens fed to it.
    """

    tokens: jax.Array
    raw: jax.Array
    local: jax.Array
    dropped: jax.Array
    found: jax.Array
    tries: jax.Array
    passes: jax.Array
    positions: jax.Array


class Rounds(NamedTuple):
    """round: int32[]; accepted: int32[P], draws of the last round that were accepted; broken: bool[P], whether the model gave
    NaN; idle: bool[], whether no row could draw anything."""

    envelope: Envelope
    samples: Samples
    round: jax.Array
    accepted: jax.Array
    broken: jax.Array
    idle: jax.Array


class _Rows(NamedTuple):
    """Of one round: node: int32[B], where each row stands in the envelope, -1 outside; alive: bool[B], not rejected; walking:
    bool[B], whether it takes more tokens; passes: int32[B]."""

    envelope: Envelope
    cache: Any
    logits: jax.Array
    walk: Walk
    node: jax.Array
    alive: jax.Array
    walking: jax.Array
    passes: jax.Array
    broken: jax.Array
    step: jax.Array


@functools.partial(jax.jit, static_argnames=("room",))
def run_rounds(
    decoder: Decoder,
    tables: ConstraintTables,
    rules: Rules,
    keys: jax.Array,
    envelope: Envelope,
    prompts: PromptBatch,
    *,
    room: int,
) -> Rounds:
    """Draws until every prompt has its samples, or the rounds are over.

    Args:
      decoder: the model.
      tables: the constraints.
      rules: how.
      keys: uint32[B, 2], B = P * R rows.
      envelope: what is known.
      prompts: P of them; each is fed once.
      room: static, S, samples of a prompt that there is room for.
    """
    count, batch = prompts.tokens.shape[0], keys.shape[0]
    owner = jnp.repeat(jnp.arange(count, dtype=jnp.int32), batch // count)
    cache, last = feed_but_last(decoder, prompts, owner)
    shape, none = (count * room, envelope.tokens.shape[1]), jnp.zeros(count, jnp.int32)
    samples = Samples(
        tokens=jnp.full(shape, -1, jnp.int32),
        raw=jnp.zeros(shape, jnp.float32),
        local=jnp.zeros(shape, jnp.float32),
        dropped=jnp.zeros(shape[0], bool),
        found=none,
        tries=none,
        passes=none,
        positions=none,
    )

    def going(run: Rounds) -> jax.Array:
        missing = (run.samples.found < rules.wanted).any()
        return (run.round < rules.rounds) & missing & ~run.broken.any() & ~run.idle

    one = functools.partial(_one_round, decoder, tables, rules, keys, owner, cache, last)
    first = Rounds(envelope, samples, jnp.int32(0), none, jnp.zeros(count, bool), jnp.bool_(False))
    return jax.lax.while_loop(going, one, first)


def _one_round(
    decoder: Decoder,
    tables: ConstraintTables,
    rules: Rules,
    keys: jax.Array,
    owner: jax.Array,
    cache: Any,
    last: jax.Array,
    run: Rounds,
) -> Rounds:
    """Every row draws a cell, and goes on from there until it ends or is rejected."""
    envelope, samples, batch = run.envelope, run.samples, len(keys)
    count, steps = len(samples.found), envelope.tokens.shape[1]
    each = batch // count
    missing = jnp.maximum(rules.wanted - samples.found, 0)
    useful = missing * (samples.tries + 1) // (samples.found + 1)  # as many rows as should do, by what was accepted so far
    active = (jnp.arange(each)[None, :] < jnp.where(missing > 0, jnp.maximum(useful, 1), 0)[:, None]).reshape(-1)
    counter = jnp.broadcast_to(run.round.astype(jnp.uint32) * jnp.uint32(steps + 1), (batch,))

    masses = jnp.where(envelope.owner[None, :] == owner[:, None], envelope.masses[None, :], NEVER)
    active &= masses.max(1) > NEVER
    noise = gumbel(keys, counter, jnp.arange(masses.shape[1], dtype=jnp.uint32)[None, :])
    node = (masses + noise).argmax(1).astype(jnp.int32)
    names = [f.name for f in dataclasses.fields(Walk) if f.name != "state"]
    walk = Walk(state=fork(envelope.state, node), **{name: getattr(envelope, name)[node] for name in names})
    over = envelope.ends[node]
    walking = active & ~over
    logits, cache = _fed(decoder, cache, last, walk, walking)
    rows = _Rows(envelope, cache, logits, walk, node, active, walking, walking.astype(jnp.int32), run.broken, jnp.int32(0))
    scout = rules.scout & (2 * run.accepted < each)[owner]

    def going(rows: _Rows) -> jax.Array:
        return rows.walking.any() & (rows.step < steps)

    step = functools.partial(_step, decoder, tables, rules, keys, counter, scout)
    rows = jax.lax.while_loop(going, step, rows)
    ended_well = over | (rows.walk.state.status == Status.ACCEPTED)
    accepted = active & rows.alive & ended_well

    def added(total: jax.Array, of_rows: jax.Array) -> jax.Array:
        return total + of_rows.reshape(count, each).sum(1, dtype=jnp.int32)

    samples = _kept(samples, rows.walk, accepted, rules.wanted)._replace(
        tries=added(samples.tries, active.astype(jnp.int32)),
        passes=added(samples.passes, rows.passes),
        positions=added(samples.positions, rows.passes + jnp.where(walking, walk.length, 0)),
    )
    number = accepted.reshape(count, each).sum(1, dtype=jnp.int32)
    return Rounds(rows.envelope, samples, run.round + 1, number, rows.broken, ~active.any())


def _fed(decoder: Decoder, cache: Any, last: jax.Array, walk: Walk, walking: jax.Array) -> tuple[jax.Array, Any]:
    """Logits behind every row's prefix, float32[B, V'], and the cache; in blocks, as many as the longest prefix takes."""
    tokens = jnp.concatenate([last[:, None], jnp.maximum(walk.tokens, 0)], axis=1)
    tokens = jnp.pad(tokens, ((0, 0), (0, -tokens.shape[1] % _BLOCK)))
    lengths = jnp.where(walking, walk.length + 1, 0)

    def feed(carry: tuple[jax.Array, jax.Array, Any]) -> tuple[jax.Array, jax.Array, Any]:
        start, logits, cache = carry
        block = jax.lax.dynamic_slice_in_dim(tokens, start, _BLOCK, 1)
        here = jnp.clip(lengths - start, 0, _BLOCK)
        new, cache = decoder.apply(block, cache, here, last_only=True)
        return start + _BLOCK, jnp.where((here > 0)[:, None], new[:, -1].astype(jnp.float32), logits), cache

    first = jnp.zeros((len(last), decoder.vocab_size), jnp.float32)
    _, logits, cache = jax.lax.while_loop(lambda c: c[0] < lengths.max(), feed, (jnp.int32(0), first, cache))
    return logits, cache


def _step(
    decoder: Decoder, tables: ConstraintTables, rules: Rules, keys: jax.Array, counter: jax.Array, scout: jax.Array, rows: _Rows
) -> _Rows:
    """Every walking row is rejected or not, and takes a token; the envelope learns what the model said."""
    envelope, walk, width, batch = rows.envelope, rows.walk, decoder.vocab_size, len(keys)
    first, at = rows.step == 0, jnp.arange(batch)
    logprobs, allowed, share = next_tokens(tables, walk.state, rows.logits)
    fresh = allowed & ~(first & envelope.children(rows.node, width))
    mass = log_sum(jnp.where(fresh, logprobs, NEVER))
    bound = jnp.where(first, envelope.rest[rows.node], 0.0)
    step = counter + 1 + rows.step.astype(jnp.uint32)
    bits = threefry(keys, step, jnp.full((1, 1), _INDEX, jnp.uint32)).astype(jnp.float32)[:, 0]
    survives = jnp.log((bits + 0.5) * jnp.float32(2.0**-32)) < mass - bound
    alive = rows.alive & (survives | ~rules.reject | ~rows.walking)
    going = rows.walking & (alive | scout) & (mass > NEVER)
    noise = gumbel(keys, step, jnp.arange(width, dtype=jnp.uint32)[None, :])
    token = jnp.where(fresh, logprobs + noise, NEVER).argmax(1).astype(jnp.int32)
    raw = logprobs[at, token]
    after = ended(tables, advance(tables, walk.state, token), rules.always_stop)
    state = jax.tree.map(lambda new, old: jnp.where(going.reshape(-1, *[1] * (new.ndim - 1)), new, old), after, walk.state)
    place = jnp.where(going, walk.length, walk.tokens.shape[1])

    def put(buffer: jax.Array, value: jax.Array) -> jax.Array:
        return buffer.at[at, place].set(value, mode="drop")

    walk = Walk(
        owner=walk.owner,
        total=walk.total + jnp.where(going, raw, 0.0),
        length=walk.length + going.astype(jnp.int32),
        tokens=put(walk.tokens, token),
        raw=put(walk.raw, raw),
        local=put(walk.local, raw - share),
        state=state,
    )
    kept = jnp.where(rows.walking & rules.learn, rows.node, -1)
    over = going & ~state.running
    envelope, child = envelope.grown(jnp.where(going, kept, -1), token, over, walk)
    left = log_sum(jnp.where(allowed & ~envelope.children(kept, width), logprobs, NEVER))
    asked = jnp.where(kept < 0, len(envelope.rest), kept)
    envelope = dataclasses.replace(envelope, rest=envelope.rest.at[asked].set(left, mode="drop"))
    walking = going & ~over
    broken = jnp.zeros_like(rows.broken).at[walk.owner].max(rows.walking & jnp.isnan(logprobs[:, 0]))

    def feed() -> tuple[jax.Array, Any]:
        logits, cache = decoder.apply(token[:, None], rows.cache, walking.astype(jnp.int32))
        return logits[:, -1].astype(jnp.float32), cache

    logits, cache = jax.lax.cond(walking.any(), feed, lambda: (rows.logits, rows.cache))
    passes = rows.passes + walking.astype(jnp.int32)
    return _Rows(envelope, cache, logits, walk, child, alive, walking, passes, rows.broken | broken, rows.step + 1)


def _kept(samples: Samples, walk: Walk, accepted: jax.Array, wanted: jax.Array) -> Samples:
    """With the accepted rows behind the samples of their prompts, in the order of the rows."""
    count = len(samples.found)
    room = len(samples.tokens) // count
    yes = accepted.reshape(count, -1)
    number = (samples.found[:, None] + jnp.cumsum(yes, axis=1, dtype=jnp.int32) - 1).reshape(-1)
    place = jnp.where(accepted & (number < wanted), walk.owner * room + number, len(samples.tokens))

    def put(buffer: jax.Array, rows: jax.Array) -> jax.Array:
        return buffer.at[place].set(rows, mode="drop")

    return samples._replace(
        tokens=put(samples.tokens, walk.tokens),
        raw=put(samples.raw, walk.raw),
        local=put(samples.local, walk.local),
        dropped=put(samples.dropped, walk.state.dropped),
        found=jnp.minimum(samples.found + yes.sum(1, dtype=jnp.int32), wanted),
    )
