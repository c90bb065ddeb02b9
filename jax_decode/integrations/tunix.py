"""google-tunix: its `Sampler` with constraints, for rollouts of NNX models. That library is imported when a sampler is made.

Its loop has no hook between the model and the choice of a token, so this is a subclass. The tables ride beside the parameters,
which the sampler does not donate; the state rides in the cache, which it does. The models rebuild the cache from their layers, so
the state is taken out before the model runs and put back after the token is chosen.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.decoding.inputs import is_listed
from jax_decode.errors import DecodeError, MissingPackageError
from jax_decode.integrations.carried import Carried, carry, named
from jax_decode.probability.training import TokenLogprobs, importance_weights, token_logprobs
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

    Prompts that stand beside each other several times, as trainers ask for groups of samples, are read once: the cache of one row
    is copied to the others.

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
        self._beams = self._each = self._forked = 1
        self._groups: dict[int, int] = {}
        self._shardings: Any = None
        prefill = jax.jit(self._carrying(self._prefill_fn), donate_argnums=(2,), static_argnames=("echo", "each"))
        decode = jax.jit(self._carrying(self._decode_fn), donate_argnums=(2,))
        self._programs: tuple[Any, Any] = prefill, decode
        self._compiled_prefill_fn = lambda params, *args, **kwargs: prefill(
            self._carried, self._as_compiled(params), *args, each=self._each, **kwargs
        )
        self._compiled_decode_fn = lambda params, *args: self._ended(decode(self._carried, self._as_compiled(params), *args))

    @property
    def compilations(self) -> tuple[int, int]:
        """How many programs were compiled so far: to read prompts, and to write texts."""
        prefill, decode = self._programs
        return prefill._cache_size(), decode._cache_size()

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
        if constraint is None or not is_listed(constraint):
            several = int(jax.device_get(self.tables.num_constraints)) > 1 and constraint is None
            constraint = list(range(rows)) if several else [constraint or 0] * rows
        self._beams = beams = beam_size or 1
        self._each = 1 if beams > 1 or rows == 1 else self._group(list(input_strings))
        depths = self.max_depth
        self._carried, self._layout = carry(
            self.tables,
            vocab_size=self.transformer.num_embed,
            constraint=[index for index in constraint for _ in range(beams)],
            max_new_tokens=[max_generation_steps] * rows * beams,
            max_depth=[x for x in depths for _ in range(beams)] if is_listed(depths) else depths,
            stop_ids=eos_tokens,
            allow_truncation=allow_truncation,
        )
        stops = [t for t in np.unique(jax.device_get(self._carried.start.stop_ids)).tolist() if t >= 0]
        return super().__call__(input_strings, max_generation_steps, *args, eos_tokens=stops, beam_size=beam_size, **kwargs)

    def init_sample_state(self, *args: Any, **kwargs: Any) -> Any:
        state = super().init_sample_state(*args, **kwargs)
        rows = state.token_buffer.shape[0] * self._beams  # the prompts are repeated for their beams after they were read
        return dataclasses.replace(state, cache={**state.cache, _STATE: self._layout.zeros(rows)})

    def _group(self, prompts: Sequence[str]) -> int:
        """How many rows beside each other have one prompt: what divides all such runs in all batches of this size so far."""
        rows = len(prompts)
        for _, run in itertools.groupby(prompts):
            self._groups[rows] = math.gcd(self._groups.get(rows, 0), sum(1 for _ in run))
        return self._groups[rows]

    def _as_compiled(self, params: Any) -> Any:
        """Parameters as the first call had them placed.

        A trainer's program may return them with shardings that are written otherwise and mean the same, for which `jax.jit` would
        compile anew.
        """
        if self._shardings is None:
            self._shardings = jax.tree.map(lambda x: x.sharding, params)
        return jax.tree.map(_replaced, params, self._shardings)

    def _carrying(self, program: Any) -> Any:
        """A program of the base class, traced with what is carried at hand."""

        def run(carried: Carried, params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            self._traced = carried
            try:
                return program(params, state, *args, **kwargs)
            finally:
                del self._traced

        return run

    def _prefill_fn(self, params: Any, sampler_state: Any, images: Any = None, echo: bool = True, each: int = 1) -> Any:
        held, sampler_state = _without(sampler_state)
        self._before = self._traced.state(held, jnp.zeros_like(held.status), jnp.bool_(False))
        if each == 1 or images is not None:
            return super()._prefill_fn(params, sampler_state, images, echo)
        self._forked = each
        try:
            return super()._prefill_fn(params, _by_rows(sampler_state, lambda x: x[::each]), images, echo)
        finally:
            self._forked = 1

    def _sample_step(self, params: Any, sampler_state: Any) -> Any:
        held, sampler_state = _without(sampler_state)
        last = sampler_state.token_buffer[:, sampler_state.decoding_step]
        self._before = self._traced.state(held, last, jnp.bool_(True))
        return super()._sample_step(params, sampler_state)

    def _sample(self, logits: Any, eos: Any, cache: Any, sampler_state: Any) -> Any:
        state, self._before = self._before, None
        if (each := self._forked) > 1:
            logits = jnp.repeat(logits[:, -1:], each, axis=0)
            cache = jax.tree.map(lambda x: jnp.repeat(x, each, axis=0), cache)
            sampler_state = _by_rows(sampler_state, lambda x: jnp.repeat(x, each, axis=0))
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
_ROWS = "token_buffer", "positions", "done", "cache", "logits_buffer", "logprobs_buffer"
"""Fields of that sampler's state whose arrays have an axis of rows."""


def _by_rows(state: Any, change: Callable[[Any], Any]) -> Any:
    """A sampler's state with other rows."""
    return dataclasses.replace(state, **{name: jax.tree.map(change, getattr(state, name)) for name in _ROWS})


def _replaced(x: Any, sharding: Any) -> Any:
    """An array with an equivalent sharding, without a copy."""
    if x.sharding == sharding or not x.sharding.is_equivalent_to(sharding, x.ndim):
        return x
    return jax.make_array_from_single_device_arrays(x.shape, sharding, [shard.data for shard in x.addressable_shards])


def _without(state: Any) -> tuple[Any, Any]:
    cache = dict(state.cache)
    return cache.pop(_STATE), dataclasses.replace(state, cache=cache)


IMPORTANCE = "importance_weighted"
"""Name of the policy loss that `constrained_rollout(importance=True)` registers with Tunix."""


def constrained_rollout(
    tables: ConstraintTables,
    constraint: Callable[[str], int | None] | None = None,
    *,
    importance: bool = False,
    max_depth: Any = MAX_DEPTH,
) -> Any:
    """A rollout engine for Tunix's trainers that writes only what constraints allow.

    Pass it as `rollout_engine=` of `tunix.rl.rl_cluster.ClusterConfig`; everything else of a training run stays as it is. Its
    log-probabilities `get_per_token_logps` are the model's own, as the losses of that library expect;
    `get_constrained_per_token_logps` are those of the masked choice. Tables can be exchanged between steps
    (`engine.sampler.tables = ...`); those of the same sizes compile nothing, nor do new weights. Samples of one prompt share its
    prefill. Where the rollout configuration has no seed, every call has noise of its own.

    With `importance`, old log-probabilities are those of the masked choice, and GRPO's learner corrects for them with
    `GRPOConfig(policy_loss_fn="importance_weighted", num_iterations=2)` (one iteration asks for none): that library's own loss,
    each text weighted by `importance_weights` within the group of its prompt. What is then improved is the expected reward of the
    model's own distribution given the constraint, instead of that of masked sampling. Only for rollouts without `top_p` and
    `top_k`, and with groups whole in a micro-batch.

    Args:
      tables: from `jax_decode.to_device`.
      constraint: the index of a prompt's constraint in the tables, None for no constraint; by default every prompt has the first.
      importance: whether texts are weighted, see above.
      max_depth: most stack cells of a row.

    Returns:
      A subclass of `tunix.rl.rollout.base_rollout.BaseRollout`.

    Raises:
      MissingPackageError: that library is not installed.
    """
    base = _library("tunix.rl.rollout.vanilla_rollout", "Constraining Tunix's rollouts").VanillaRollout
    fields = {"__doc__": "See `constrained_rollout`.", "tables": tables, "max_depth": max_depth, "importance": importance}
    if importance:
        registry = _library("tunix.rl.function_registry", "Weighting Tunix's rollouts")
        _library("tunix.rl.algo_core", "Weighting Tunix's rollouts")  # which makes the lists
        if IMPORTANCE not in registry.default_registry.list_functions("policy_loss_fn"):
            registry.register_policy_loss_fn(IMPORTANCE)(_weighted_loss)
    return type("ConstrainedRollout", (_Rollout, base), fields | {"constraint_of": staticmethod(constraint or _first)})


def _weighted_loss(model: Any, train_example: Any, algo_config: Any, pad_id: int, eos_id: int, **options: Any) -> Any:
    """Tunix's GRPO loss, each text weighted by its probability under the model over that of being sampled under the mask."""
    core, common = (_library(f"tunix.rl.{name}", "Weighting Tunix's rollouts") for name in ("algo_core", "common"))
    old, mask = train_example.old_per_token_logps, train_example.completion_mask
    if old is None:
        raise DecodeError(
            "the learner did not ask how rollouts were sampled",
            where=f'policy_loss_fn="{IMPORTANCE}"',
            fix="Pass num_iterations=2 or more; with 1, GRPO takes the log-probabilities of its own model.",
        )
    prompts, ids = train_example.prompt_ids, {"pad_id": pad_id, "eos_id": eos_id}
    raw = common.compute_per_token_logps(
        *common.nnx.split(model), prompts, train_example.completion_ids, **ids, temperature=algo_config.temperature
    )
    same = (prompts[:, None] == prompts[None, :]).all(-1)
    weights = importance_weights(TokenLogprobs(raw * mask, old * mask), same.argmax(1))
    given = train_example.advantages.astype(jnp.float32)
    mean = (same * (weights * given)[None, :]).sum(1) / same.sum(1)
    example = dataclasses.replace(
        train_example, advantages=given - mean, old_per_token_logps=None,
        sampler_is_weights=jnp.broadcast_to(weights[:, None], raw.shape),
    )  # fmt: skip
    return core.grpo_loss_fn(model, example, algo_config, **ids, **options)


def _first(prompt: str) -> int:
    return 0


class _Rollout(_Base):
    """What `constrained_rollout` changes of its base class, which comes behind this one among the bases."""

    tables: ConstraintTables
    max_depth: Any
    importance: bool
    constraint_of: Callable[[str], int | None]

    def __init__(self, rollout_actor: Any, tokenizer: Any, mesh: Any = None, rollout_config: Any = None) -> None:
        config = rollout_actor.config
        sizes = (rollout_config.kv_cache_size, config.num_layers, config.num_kv_heads, config.head_dim)
        cache_config = _library("tunix.generate.sampler", "Constraining Tunix's rollouts").CacheConfig(*sizes)
        self._sampler = constrained_sampler(rollout_actor, tokenizer, cache_config, self.tables, max_depth=self.max_depth)
        self._calls = 0
        self._temperature = 1.0
        self._constraints: dict[bytes, int] = {}

    @property
    def sampler(self) -> Any:
        """The sampler underneath: its `tables`, its `compilations`, and the `statuses` of the last rollouts."""
        return self._sampler

    def generate(self, prompts: Any, rollout_config: Any, **kwargs: Any) -> Any:
        prompts = [str(prompt) for prompt in prompts]
        seed = rollout_config.seed
        if seed is None:  # that library's sampler would take the same noise in every call
            seed = jax.random.fold_in(jax.random.PRNGKey(0), self._calls)
        self._calls += 1
        self._temperature = rollout_config.temperature
        constraints = [self.constraint_of(prompt) for prompt in prompts]
        out = self._sampler(
            input_strings=prompts,
            max_generation_steps=rollout_config.max_tokens_to_generate,
            max_prompt_length=rollout_config.max_prompt_length,
            constraint=constraints,
            temperature=rollout_config.temperature,
            top_p=rollout_config.top_p,
            top_k=rollout_config.top_k,
            seed=seed,
            eos_tokens=rollout_config.eos_tokens,
            return_logprobs=rollout_config.return_logprobs,
        )
        if len(self._constraints) > _REMEMBERED:
            self._constraints.clear()
        for row, index in zip(_rows_of(out.padded_prompt_tokens), constraints):
            self._constraints[row] = -1 if index is None else index
        output = _library("tunix.rl.rollout.base_rollout", "Constraining Tunix's rollouts").RolloutOutput
        return output(
            text=out.text,
            logits=out.logits,
            tokens=out.tokens,
            left_padded_prompt_tokens=out.padded_prompt_tokens,
            logprobs=out.logprobs,
        )

    def get_per_token_logps(self, prompt_tokens: Any, completion_tokens: Any) -> Any:
        if self.importance:
            return self.get_constrained_per_token_logps(prompt_tokens, completion_tokens)
        return super().get_per_token_logps(prompt_tokens, completion_tokens)

    def get_constrained_per_token_logps(
        self, prompt_tokens: Any, completion_tokens: Any, constraint: Any = None, *, temperature: float | None = None
    ) -> Any:
        """Log-probabilities of completions among the allowed tokens, float32[B, T]; 0 behind their end.

        Args:
          prompt_tokens: int32[B, P], padded on the left; completion_tokens: int32[B, T], padded on the right.
          constraint: int32[B], the constraint of each row, -1 for none; by default those that the prompts were sampled with.
          temperature: by default that of the last rollouts.
        """
        common = _library("tunix.rl.common", "Constraining Tunix's rollouts")
        if constraint is None:
            constraint = [self._constraints.get(row, 0) for row in _rows_of(prompt_tokens)]
        graph, weights = self._sampler.model_def_and_state()
        ids = {"pad_id": self.pad_id(), "eos_id": self.eos_id()}
        given = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        weights = self._sampler._as_compiled(weights)
        _, logits = common.compute_per_token_logps(graph, weights, **given, **ids, return_logits=True)
        numbers = np.float32(self._temperature if temperature is None else temperature), np.int32(self.pad_id())
        return _constrained_logps(logits, completion_tokens, self._sampler.tables, np.asarray(constraint, np.int32), *numbers)


_REMEMBERED = 100_000
"""Prompts whose constraints a rollout engine remembers at most."""


def _rows_of(tokens: Any) -> list[bytes]:
    return [row.tobytes() for row in np.asarray(jax.device_get(tokens), np.int32)]


@jax.jit
def _constrained_logps(logits: Any, tokens: Any, tables: ConstraintTables, which: Any, temperature: Any, pad: Any) -> Any:
    lengths, limits = (tokens != pad).sum(1), jnp.full(len(tokens), tokens.shape[1], jnp.int32)
    return token_logprobs(logits / temperature, tokens, tables, which=which, lengths=lengths, limits=limits).constrained


def _library(name: str, doing: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] != "tunix":
            raise  # tunix is there, and something that it needs is not
        raise MissingPackageError("google-tunix", doing) from error
