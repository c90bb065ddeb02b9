"""google-tunix: its `Sampler` with constraints, for rollouts of NNX models. That library is imported when a sampler is made.

Its loop has no hook between the model and the choice of a token, so this is a subclass. The tables ride beside the parameters,
which the sampler does not donate; the state rides in the cache, which it does. The models rebuild the cache from their layers, so
the state is taken out before the model runs and put back after the token is chosen.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.errors import DecodeError, MissingPackageError
from jax_decode.integrations.carried import Carried, carry, named
from jax_decode.probability.training import token_logprobs
from jax_decode.step.state import MAX_DEPTH, Status
from jax_decode.tables.tables import ConstraintTables

_STATE = "constraint_state"
"""Key in the cache, beside the layers."""
_Base: Any = object  # of which nothing is known before that library is imported


def constrained_sampler(
    transformer: Any,
    tokenizer: Any,
    cache_config: Any,
    tables: ConstraintTables,
    *,
    max_depth: Any = MAX_DEPTH,
    **options: Any,
) -> Any:
    """A `tunix.generate.sampler.Sampler` that writes only what constraints allow.

    It is called like its base class, with two arguments more, `constraint=` and `allow_truncation=`, as in
    `jax_decode.generate`. The limit is `max_generation_steps`, within which every text is complete. It stops at the constraints'
    stop ids unless `eos_tokens` are given, which then are those of the constraints. Attribute `statuses` says how the rows of the
    last call have ended, and attribute `tables` may be set anew: tables of the same size buckets compile nothing.

    With `beam_size`, its beam search ranks by the log-probabilities among the allowed tokens and returns the best beam.

    Of its outputs, `logprobs` are those among the allowed tokens, and `logits` those of the model without a mask: what
    reinforcement learning needs of both.

    Args:
      transformer, tokenizer, cache_config, options: of the base class.
      tables: from `jax_decode.to_device`.
      max_depth: most stack cells of a row, one number, or one per row.
    """
    return _sampler_class()(transformer, tokenizer, cache_config, tables, max_depth, **options)


@functools.cache
def _sampler_class() -> Any:
    Sampler = _library("tunix.generate.sampler", "Constraining Tunix's sampler").Sampler
    return type("ConstrainedSampler", (_Constrained, Sampler), {"__doc__": "See `constrained_sampler`."})


class _Constrained(_Base):
    """What `constrained_sampler` changes of its base class, which comes behind this one among the bases."""

    def __init__(
        self, transformer: Any, tokenizer: Any, cache_config: Any, tables: ConstraintTables, max_depth: Any, **options: Any
    ) -> None:
        super().__init__(transformer, tokenizer, cache_config, **options)
        self.tables, self.max_depth = tables, max_depth
        self.statuses: list[Status] = []
        self._carried: Any = None
        self._before: Any = None
        self._beams = 1
        prefill = jax.jit(self._carrying(self._prefill_fn), donate_argnums=(2,), static_argnames=("echo",))
        decode = jax.jit(self._carrying(self._decode_fn), donate_argnums=(2,))
        self._programs = prefill, decode
        self._compiled_prefill_fn = lambda *args, **kwargs: prefill(self._carried, *args, **kwargs)
        self._compiled_decode_fn = lambda *args: self._ended(decode(self._carried, *args))

    def __call__(
        self,
        input_strings: Any,
        max_generation_steps: int,
        *args: Any,
        constraint: Any = None,
        allow_truncation: bool = False,
        eos_tokens: Any = None,
        beam_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        if beam_size is not None and (kwargs.get("return_logits") or kwargs.get("return_logprobs")):
            raise DecodeError(
                "this sampler's beam search does not keep the logits and log-probabilities of its beams apart",
                where="return_logits, return_logprobs",
                fix="Leave them out and ask jax_decode.score for those of the texts, or use jax_decode.beam_search.",
            )
        rows = 1 if isinstance(input_strings, str) else len(input_strings)
        if constraint is None or not hasattr(constraint, "__len__"):
            several = int(jax.device_get(self.tables.num_constraints)) > 1 and constraint is None
            constraint = list(range(rows)) if several else [constraint or 0] * rows
        self._beams = beams = beam_size or 1
        depths = self.max_depth
        self._carried, self._layout = carry(
            self.tables,
            vocab_size=self.transformer.num_embed,
            constraint=[index for index in constraint for _ in range(beams)],
            max_new_tokens=[max_generation_steps] * rows * beams,
            max_depth=[x for x in depths for _ in range(beams)] if hasattr(depths, "__len__") else depths,
            stop_ids=eos_tokens,
            allow_truncation=allow_truncation,
        )
        stops = [t for t in np.unique(jax.device_get(self._carried.start.stop_ids)).tolist() if t >= 0]
        return super().__call__(input_strings, max_generation_steps, *args, eos_tokens=stops, beam_size=beam_size, **kwargs)

    def init_sample_state(self, *args: Any, **kwargs: Any) -> Any:
        state = super().init_sample_state(*args, **kwargs)
        rows = state.token_buffer.shape[0] * self._beams  # the prompts are repeated for their beams after they were read
        return dataclasses.replace(state, cache={**state.cache, _STATE: self._layout.zeros(rows)})

    def _carrying(self, program: Any) -> Any:
        """A program of the base class, traced with what is carried at hand."""

        def run(carried: Carried, params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            self._traced = carried
            try:
                return program(params, state, *args, **kwargs)
            finally:
                del self._traced

        return run

    def _prefill_fn(self, params: Any, sampler_state: Any, images: Any = None, echo: bool = True) -> Any:
        held, sampler_state = _without(sampler_state)
        self._before = self._traced.state(held, jnp.zeros_like(held.status), jnp.bool_(False))
        return super()._prefill_fn(params, sampler_state, images, echo)

    def _sample_step(self, params: Any, sampler_state: Any) -> Any:
        held, sampler_state = _without(sampler_state)
        last = sampler_state.token_buffer[:, sampler_state.decoding_step]
        self._before = self._traced.state(held, last, jnp.bool_(True))
        return super()._sample_step(params, sampler_state)

    def _sample(self, logits: Any, eos: Any, cache: Any, sampler_state: Any) -> Any:
        state, self._before = self._before, None
        masked = self._traced.masked(state, logits[:, -1])[:, None]
        return super()._sample(masked, eos, {**cache, _STATE: state}, sampler_state)  # beams put their cache in order there

    def _ended(self, state: Any) -> Any:
        # The loop goes one step beyond the buffer's end, where the token is lost; the limit has ended all rows by then.
        at = state.decoding_step
        last = jnp.where(at < state.token_buffer.shape[1], state.token_buffer[:, at], -1)
        every = named(_statuses(self._carried, state.cache[_STATE], last, state.done))
        self.statuses = every[:: self._beams]  # the best beam of every prompt comes first, and is the only one returned
        return state


_statuses = jax.jit(Carried.statuses)


def _without(state: Any) -> tuple[Any, Any]:
    cache = dict(state.cache)
    return cache.pop(_STATE), dataclasses.replace(state, cache=cache)


def constrained_rollout(
    tables: ConstraintTables, constraint: Callable[[str], int | None] | None = None, *, max_depth: Any = MAX_DEPTH
) -> Any:
    """A rollout engine for Tunix's trainers that writes only what constraints allow.

    Pass it as `rollout_engine=` of `tunix.rl.rl_cluster.ClusterConfig`; everything else of a training run stays as it is. Its
    log-probabilities `get_per_token_logps` are the model's own, as the losses of that library expect;
    `get_constrained_per_token_logps` are those of the masked choice. The difference of their sums is the logarithm of the
    importance weight of a rollout. Tables can be exchanged between steps (`engine.sampler.tables = ...`); those of the same sizes
    compile nothing, nor do new weights. Where the rollout configuration has no seed, every call has noise of its own.

    Args:
      tables: from `jax_decode.to_device`.
      constraint: the index of a prompt's constraint in the tables, None for no constraint; by default every prompt has the first.
      max_depth: most stack cells of a row.

    Returns:
      A subclass of `tunix.rl.rollout.base_rollout.BaseRollout`.

    Raises:
      MissingPackageError: that library is not installed.
    """
    base = _library("tunix.rl.rollout.vanilla_rollout", "Constraining Tunix's rollouts").VanillaRollout
    fields = {"__doc__": "See `constrained_rollout`.", "tables": tables, "max_depth": max_depth}
    return type("ConstrainedRollout", (_Rollout, base), fields | {"constraint_of": staticmethod(constraint or _first)})


def _first(prompt: str) -> int:
    return 0


class _Rollout(_Base):
    """What `constrained_rollout` changes of its base class, which comes behind this one among the bases."""

    tables: ConstraintTables
    max_depth: Any
    constraint_of: Callable[[str], int | None]

    def __init__(self, rollout_actor: Any, tokenizer: Any, mesh: Any = None, rollout_config: Any = None) -> None:
        config = rollout_actor.config
        sizes = (rollout_config.kv_cache_size, config.num_layers, config.num_kv_heads, config.head_dim)
        cache_config = _library("tunix.generate.sampler", "Constraining Tunix's rollouts").CacheConfig(*sizes)
        self._sampler = constrained_sampler(rollout_actor, tokenizer, cache_config, self.tables, max_depth=self.max_depth)
        self._calls = 0

    @property
    def sampler(self) -> Any:
        """The sampler underneath: its `tables`, and the `statuses` of the last rollouts."""
        return self._sampler

    def generate(self, prompts: Any, rollout_config: Any, **kwargs: Any) -> Any:
        prompts = [str(prompt) for prompt in prompts]
        seed = rollout_config.seed
        if seed is None:  # that library's sampler would take the same noise in every call
            seed = jax.random.fold_in(jax.random.PRNGKey(0), self._calls)
        self._calls += 1
        out = self._sampler(
            input_strings=prompts,
            max_generation_steps=rollout_config.max_tokens_to_generate,
            max_prompt_length=rollout_config.max_prompt_length,
            constraint=[self.constraint_of(prompt) for prompt in prompts],
            temperature=rollout_config.temperature,
            top_p=rollout_config.top_p,
            top_k=rollout_config.top_k,
            seed=seed,
            eos_tokens=rollout_config.eos_tokens,
            return_logprobs=rollout_config.return_logprobs,
        )
        output = _library("tunix.rl.rollout.base_rollout", "Constraining Tunix's rollouts").RolloutOutput
        return output(
            text=out.text,
            logits=out.logits,
            tokens=out.tokens,
            left_padded_prompt_tokens=out.padded_prompt_tokens,
            logprobs=out.logprobs,
        )

    def get_constrained_per_token_logps(
        self, prompt_tokens: Any, completion_tokens: Any, constraint: Any = None, *, temperature: float = 1.0
    ) -> Any:
        """Log-probabilities of completions among the allowed tokens, float32[B, T]; 0 behind their end.

        Args:
          prompt_tokens: int32[B, P], padded on the left; completion_tokens: int32[B, T], padded on the right.
          constraint: int32[B], the constraint of each row, -1 for none; by default the first.
          temperature: of the rollouts.
        """
        common = _library("tunix.rl.common", "Constraining Tunix's rollouts")
        graph, weights = self._sampler.model_def_and_state()
        ids = {"pad_id": self.pad_id(), "eos_id": self.eos_id()}
        given = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        _, logits = common.compute_per_token_logps(graph, weights, **given, **ids, return_logits=True)
        lengths = (jnp.asarray(completion_tokens) != self.pad_id()).sum(1)
        limits = jnp.full(len(lengths), jnp.asarray(completion_tokens).shape[1], jnp.int32)
        which = None if constraint is None else jnp.asarray(constraint, jnp.int32)
        found = token_logprobs(
            logits / temperature, completion_tokens, self._sampler.tables, which=which, lengths=lengths, limits=limits
        )
        return found.constrained


def _library(name: str, doing: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] != "tunix":
            raise  # tunix is there, and something that it needs is not
        raise MissingPackageError("google-tunix", doing) from error
