"""The jitted loop of sequential Monte Carlo: particles are drawn token by token, weighted, and resampled in their groups.

Without resampling it is importance sampling.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.decoding.decoder import Decoder
from jax_decode.decoding.loop import feed_but_last
from jax_decode.decoding.programs import program
from jax_decode.decoding.requests import PromptBatch
from jax_decode.kernels.planes import NEVER, log_sum
from jax_decode.probability.endings import ended
from jax_decode.probability.lookahead import draw_ahead
from jax_decode.probability.proposals import LookAhead, Proposal, draw
from jax_decode.probability.resampling import effective_size, systematic
from jax_decode.sampling.sampling import checked
from jax_decode.step.forking import fork, fork_cache
from jax_decode.step.state import ConstraintState, Status
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


@dataclasses.dataclass(frozen=True, kw_only=True)
class Particles:
    """What one step hands to the next: B = G * N particles, those of a group together.

    Attributes:
      cache, state: of every particle.
      token: int32[B], last token, not yet fed.
      step: int32[], tokens drawn so far.
      broken: bool[G], whether a particle met logits that are NaN: then there are no weights.
      proposal: how the next tokens are drawn, with what it has learned.
      twist: float32[B], what the particles' weights are to be multiplied by for resampling: the estimated probability of
        completion, in nats, 0 where all is done or nothing is estimated.
      log_weights: float32[B], since the group was last resampled.
      log_mass: float32[G], log of the product of the mean weights at all resamplings so far.
      tokens: int32[B, T], -1 where none; weights, raw_logprobs: float32[B, T], of each token.
      ess: float32[T, G], effective sample size after each step, before resampling; resampled: bool[T, G].
      draws: int32[], tokens drawn from the model's own distribution.
    """

    cache: Any
    state: ConstraintState
    token: jax.Array
    step: jax.Array
    broken: jax.Array
    proposal: Proposal
    twist: jax.Array
    log_weights: jax.Array
    log_mass: jax.Array
    tokens: jax.Array
    weights: jax.Array
    raw_logprobs: jax.Array
    ess: jax.Array
    resampled: jax.Array
    draws: jax.Array


jax.tree_util.register_dataclass(Particles, data_fields=[f.name for f in dataclasses.fields(Particles)], meta_fields=[])


class Scheme(NamedTuple):
    """proposal: how tokens are drawn; resample_below: float32[], a group is resampled when its effective sample size is below
    this share of N; always_stop: bool[], see the package."""

    proposal: Proposal
    resample_below: Any
    always_stop: Any


@program()
def run_particles(
    decoder: Decoder,
    tables: ConstraintTables,
    scheme: Scheme,
    keys: jax.Array,
    state: ConstraintState,
    prompts: PromptBatch,
    *,
    steps: int,
) -> Particles:
    """Draws until every particle has ended.

    Args:
      decoder: the model.
      tables: the constraints.
      scheme: how they are drawn and resampled.
      keys: uint32[B, 2], B = G * N.
      state: [B], before the first token, from `endings.first_state`.
      prompts: G of them; each is fed once.
      steps: T, at least the largest limit of the state.
    """
    groups, batch = prompts.tokens.shape[0], keys.shape[0]
    size = batch // groups
    cache, last = feed_but_last(decoder, prompts, jnp.repeat(jnp.arange(groups, dtype=jnp.int32), size))
    first = Particles(
        cache=cache,
        state=state,
        token=last,
        step=jnp.int32(0),
        broken=jnp.zeros(groups, bool),
        proposal=scheme.proposal,
        twist=jnp.zeros(batch, jnp.float32),
        log_weights=jnp.zeros(batch, jnp.float32),
        log_mass=jnp.zeros(groups, jnp.float32),
        tokens=jnp.full((batch, steps), -1, jnp.int32),
        weights=jnp.zeros((batch, steps), jnp.float32),
        raw_logprobs=jnp.zeros((batch, steps), jnp.float32),
        ess=jnp.full((steps, groups), size, jnp.float32),
        resampled=jnp.zeros((steps, groups), bool),
        draws=jnp.int32(0),
    )

    def going(p: Particles) -> jax.Array:
        return (p.step < steps) & p.state.running.any()

    def step(p: Particles) -> Particles:
        p = _extended(decoder, tables, scheme, keys, p)
        p = _resampled(decoder, keys, scheme.resample_below, prompts.cache_length, p)
        return dataclasses.replace(p, step=p.step + 1)

    return jax.lax.while_loop(going, step, first)


def _extended(decoder: Decoder, tables: ConstraintTables, scheme: Scheme, keys: jax.Array, p: Particles) -> Particles:
    """Every running particle takes one token, and its weight the token's."""
    running = p.state.running
    logits, cache = decoder.apply(p.token[:, None], p.cache, running.astype(jnp.int32))
    step = jnp.broadcast_to(p.step.astype(jnp.uint32), running.shape)
    proposal = p.proposal
    if isinstance(proposal, LookAhead):
        drawn, proposal = draw_ahead(proposal, logits[:, -1], keys, step, tables, p.state, p.token)
    else:
        drawn = draw(proposal, logits[:, -1], keys, step, tables, p.state)
    token = checked(drawn.token, logits[:, -1])
    after = advance(tables, p.state, token)
    after = ended(tables, after, scheme.always_stop)
    taken = running & (token >= 0)
    weight = jnp.where(taken, drawn.log_weight, jnp.where(running & (after.status != Status.ACCEPTED), NEVER, 0.0))
    return dataclasses.replace(
        p,
        cache=cache,
        state=after,
        broken=p.broken | (after.status == Status.NOT_A_NUMBER).reshape(len(p.broken), -1).any(1),
        token=jnp.maximum(token, 0),
        proposal=proposal,
        twist=jnp.where(after.running, drawn.twist, 0.0),
        log_weights=p.log_weights + weight,
        tokens=p.tokens.at[:, p.step].set(jnp.where(taken, token, -1)),
        weights=p.weights.at[:, p.step].set(jnp.where(taken, drawn.log_weight, 0.0)),
        raw_logprobs=p.raw_logprobs.at[:, p.step].set(jnp.where(taken, drawn.raw_logprob, 0.0)),
        draws=p.draws + jnp.where(running, drawn.draws, 0).sum(dtype=jnp.int32),
    )


def _resampled(decoder: Decoder, keys: jax.Array, resample_below: jax.Array, cache_length: int, p: Particles) -> Particles:
    """Groups of too small an effective size are resampled, as long as one of their particles runs."""
    groups, batch = len(p.log_mass), len(p.token)
    size = batch // groups
    weights = (p.log_weights + p.twist).reshape(groups, size)
    ess = effective_size(weights)
    chosen = (ess < resample_below * size) & (ess > 0) & p.state.running.reshape(groups, size).any(1)
    p = dataclasses.replace(p, ess=p.ess.at[p.step].set(ess), resampled=p.resampled.at[p.step].set(chosen))

    def forked(p: Particles) -> Particles:
        step = jnp.broadcast_to(p.step.astype(jnp.uint32), (groups,))
        base = jnp.arange(0, batch, size, dtype=jnp.int32)[:, None]
        same = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (groups, size))
        parent = (base + jnp.where(chosen[:, None], systematic(weights, keys[::size], step), same)).reshape(-1)
        mean = log_sum(weights) - jnp.log(jnp.float32(size))
        copied = {name: getattr(p, name)[parent] for name in ("token", "tokens", "weights", "raw_logprobs", "twist")}
        return dataclasses.replace(
            p,
            **copied,
            cache=fork_cache(decoder, p.cache, parent, length=cache_length),
            state=fork(p.state, parent),
            log_weights=jnp.where(jnp.repeat(chosen, size), -copied["twist"], p.log_weights),
            log_mass=p.log_mass + jnp.where(chosen, mean, 0.0),
        )

    return jax.lax.cond(chosen.any(), forked, lambda p: p, p)
