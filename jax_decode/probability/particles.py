"""`generate_smc`: weighted samples of the model's own distribution over a constraint's texts, and an estimate of its mass."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding import inputs
from jax_decode.decoding.origin import Origin
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Asked, Request, read_positive
from jax_decode.decoding.result import Generation, Written, collect
from jax_decode.errors import DecodeError, checked_flag, is_number, named_arguments, no_numbers, shown
from jax_decode.kernels.placement import on_automatic_axes, placed_like
from jax_decode.probability.endings import first_state
from jax_decode.probability.proposals import LookAhead, Masked, Proposal, check_proposal
from jax_decode.probability.sequences import read_constrained
from jax_decode.probability.smc import Scheme, run_particles
from jax_decode.probability.weights import draw_rows, effective_sample_size, log_mean_exp
from jax_decode.step.state import MAX_DEPTH, Status
from jax_decode.tables.tables import ConstraintTables


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightedGeneration:
    """Weighted rows, N per prompt; those of prompt i are rows `i * N .. i * N + N - 1`.

    For any function f of a text, the sum of exp(log_weights) / N times f over the rows of a prompt has the mean
    E[f(text); the constraint holds]: f = 1 gives the mass. Divided by their own sum, the weights give estimates of
    E[f(text) | the constraint holds], whose bias falls as 1 / N.

    Attributes:
      generation: the rows; its `logprobs` are raw ones minus the logs of the weights of the draws.
      log_weights: float64[P, N].
      ess: float32[T, P], effective sample size after each token, before any resampling.
      resampled: bool[T, P], whether a prompt's rows were resampled then.
      draws: with `Rejection`, tokens drawn and asked about, of all rows.
      proposal: with `LookAhead`, the one with what was learned, for the next call.
    """

    generation: Generation
    log_weights: NDArray[np.float64]
    ess: NDArray[np.float32]
    resampled: NDArray[np.bool_]
    draws: int
    proposal: Proposal = dataclasses.field(default_factory=Masked, repr=False)

    @property
    def log_mass(self) -> NDArray[np.float64]:
        """float64[P], log of an unbiased estimate of the constraint's mass."""
        return log_mean_exp(self.log_weights)[0]

    @property
    def effective_sample_size(self) -> NDArray[np.float64]:
        """float64[P], of the final weights; rows that share their beginnings are worth less than it says."""
        return effective_sample_size(self.log_weights)

    def draw(self, seed: Any = 0, size: int = 1) -> NDArray[np.intp]:
        """Rows drawn by weight (self-normalised resampling): int[P, size], indices of rows of `generation`."""
        count = self.log_weights.shape[1]
        return draw_rows(self.log_weights, seed, size) + np.arange(len(self.log_weights))[:, None] * count


@named_arguments
@on_automatic_axes
def generate_smc(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables,
    *,
    key: jax.Array,
    max_new_tokens: Any,
    particles: int = 16,
    resample_below: float = 0.5,
    proposal: Proposal = Masked(),  # noqa: B008 (frozen)
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    always_stop: bool = False,
) -> WeightedGeneration:
    """Samples the model's own distribution given the constraint, by sequential Monte Carlo.

    Sampling token by token among the allowed ones follows another distribution: it enters beginnings that the model hardly ever
    completes inside the constraint as gladly as others. Here such particles lose weight, and copies of better ones take their
    places.

    Args:
      decoder, prompts, tables, max_new_tokens, constraint, stop_ids, bos_id, max_depth: as in `generate`; every prompt needs a
        constraint.
      key: as in `generate`, with `particles` rows per prompt.
      particles: N, rows per prompt.
      resample_below: a prompt's rows are resampled when their effective sample size is below this share of N: 0 for never, which
        is importance sampling; over 1 for after every token.
      proposal: `Masked()`, `Rejection(max_rejects)`, or `LookAhead()`, whose masks weigh tokens by the estimated probability
        that a text completes behind them.
      always_stop: whether the stop token counts even where nothing else is allowed; see `jax_decode.probability`.

    Returns:
      Rows and weights. The estimate of the mass is unbiased for every N and threshold.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.

    Source: Lew et al. 2023, Sequential Monte Carlo Steering of Large Language Models using Probabilistic Programs; Del Moral,
    Doucet, Jasra 2006, Sequential Monte Carlo Samplers (adaptive resampling).
    """
    request = read_constrained(decoder, prompts, tables, Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth))
    check_proposal(proposal)
    size = read_positive(particles, "particles")
    if not is_number(resample_below, 0):
        raise DecodeError(f"resample_below is {shown(resample_below)}", fix="Give a number of at least 0; 0 never resamples.")
    return weighted(decoder, request, key, size, float(resample_below), proposal, always_stop=always_stop)


def weighted(
    decoder: Any, request: Request, key: Any, size: int, resample_below: float, proposal: Proposal, *, always_stop: bool
) -> WeightedGeneration:
    """`generate_smc` after its arguments were checked."""
    assert request.tables is not None
    if isinstance(proposal, LookAhead):
        values = proposal.values
        proposal = proposal.with_values(jnp.zeros(proposal.slots) if values is None else jnp.asarray(values, jnp.float32))
    else:
        proposal = jax.tree.map(np.int32, proposal)
    always = np.bool_(checked_flag(always_stop, "always_stop"))
    scheme = placed_like(jax.device_put(Scheme(proposal, np.float32(resample_below), always)), decoder)
    words = inputs.read_words(key, request.num_prompts, size)
    state = first_state(request, size, scheme.always_stop)
    p = run_particles(decoder, request.tables, scheme, words, state, request.batch(), steps=request.steps)
    names = ("tokens", "weights", "raw_logprobs", "log_weights", "log_mass", "ess", "resampled", "draws", "step", "broken")
    out = to_host({name: getattr(p, name) for name in names} | {"status": p.state.status, "dropped": p.state.dropped})
    for prompt in np.flatnonzero(out["broken"]):
        raise no_numbers(f"after prompt {prompt} or one of its continuations")
    stops = request.stop_ids[request.rows(size)]
    single = request.prompts.single and size == 1
    logprobs = out["raw_logprobs"] - out["weights"]
    written = Written(out["tokens"], logprobs, out["raw_logprobs"], out["status"], out["dropped"])
    rows = collect(written, stops, single=single, origin=Origin.of(request, size))
    accepted = (out["status"] == Status.ACCEPTED).reshape(-1, size)
    log_weights = out["log_weights"].astype(np.float64).reshape(-1, size) + out["log_mass"].astype(np.float64)[:, None]
    steps = int(out["step"])
    return WeightedGeneration(
        generation=rows,
        log_weights=np.where(accepted, log_weights, -np.inf),
        ess=out["ess"][:steps],
        resampled=out["resampled"][:steps],
        draws=int(out["draws"]),
        proposal=p.proposal,
    )
