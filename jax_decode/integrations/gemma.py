"""google-deepmind/gemma: a constraint inside its unmodified samplers, and its models inside our `generate`.

Nothing of that library is imported: what it passes around is enough. The samplers thread two pytrees through `model.apply`
that they do not look into, the parameters and the KV cache of each layer. So the tables ride with the parameters, the state of
the constraint hides in the cache of one layer, and a wrapper of the model advances the one by means of the other and masks the
logits. Nothing else would do: a `gm.text.SamplingMethod` sees neither state nor history, and it is a static argument, so that one
that held tables would be compiled anew for every constraint, with the tables as constants.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.errors import DecodeError
from jax_decode.integrations.carried import Carried, Layout, carry, named
from jax_decode.integrations.gemma_decoder import GemmaDecoder
from jax_decode.step.state import MAX_DEPTH, Status
from jax_decode.tables.tables import ConstraintTables

__all__ = ["ConstrainedModel", "GemmaDecoder", "constrain", "statuses"]

MAX_OUT_LENGTH = 2048
"""Tokens that a `gm.text.Sampler` writes at most in one turn, unless told otherwise."""

_PARAMS, _CARRIED = "params", "tables"
"""Keys of what `constrain` returns as parameters. The sampler takes the dtype of its KV cache from the first leaf, and keys are
sorted: the model's must come before ours."""
_STATE, _NEXT = "constraint_state", "constraint_next"
"""Keys in the cache of one layer. In a layer, because the library maps over layers; other keys than its own it leaves alone."""


@dataclasses.dataclass(frozen=True)
class ConstrainedModel:
    """A `gm.nn` model whose logits are masked: what `constrain` returns, for `gm.text.Sampler` and `ChatSampler`.

    Equal for all constraints of the same size buckets, so that they share the sampler's compilation.

    Attributes:
      model: the model underneath.
      layout: shapes of the state.
    """

    model: Any
    layout: Layout

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    @property
    def INFO(self) -> Any:  # noqa: N802 (the library's name)
        """The model's information, such as the version of its tokenizer."""
        return self.model.INFO

    def init_cache(self, *, batch_size: int, **kwargs: Any) -> Any:
        """The model's cache, with room for the state of `batch_size` rows. Before the first step it is that of nothing."""
        cache = dict(self.model.init_cache(batch_size=batch_size, **kwargs))
        layer = _layer_of(cache)
        ours = {_STATE: self.layout.zeros(batch_size), _NEXT: jnp.int32(-1)}
        return {**cache, layer: {**cache[layer], **ours}}

    def apply(self, variables: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's `apply`; in a decoding step with the state advanced and the logits masked.

        A call with `return_last_only=True` is a prefill, which passes through; so does one without a cache.

        Raises:
          DecodeError: the parameters are not those that `constrain` returned, or a step is not one of single tokens.
        """
        held = variables["params"]
        if not isinstance(held, dict) or held.keys() != {_PARAMS, _CARRIED}:
            raise DecodeError(
                "the parameters are not those of a constrained model",
                fix="Use both results of constrain: model, params = constrain(model, params, tables).",
            )
        variables = {**variables, "params": held[_PARAMS]}
        cache = kwargs.get("cache")
        if cache is None:
            return self.model.apply(variables, *args, **kwargs)
        layer = _layer_of(cache)
        inside = dict(cache[layer])
        ours = {name: inside.pop(name) for name in (_STATE, _NEXT)}
        out = self.model.apply(variables, *args, **kwargs | {"cache": {**cache, layer: inside}})
        logits = out.logits
        if not kwargs.get("return_last_only"):
            tokens = kwargs["tokens"] if "tokens" in kwargs else args[0]
            if tokens.ndim != 2 or tokens.shape[1] != 1:
                raise DecodeError(
                    f"a constrained step takes one token of every row, not {tokens.shape}",
                    fix="For blocks of tokens use jax_decode.generate with a GemmaDecoder.",
                )
            # A turn begins where the sampler feeds the last token of the prompt once more. The cache then does not go on where
            # the last step left it: before a turn the sampler skips the slot of the last token and those of the new prompt.
            at = inside["end_index"][0]
            state = held[_CARRIED].state(ours[_STATE], tokens[:, 0], at == ours[_NEXT])
            logits = held[_CARRIED].masked(state, logits[:, 0])[:, None]
            ours = {_STATE: state, _NEXT: at + 1}
        after = {**out.cache, layer: {**out.cache[layer], **ours}}
        return dataclasses.replace(out, logits=logits, cache=after)


def constrain(
    model: Any,
    params: Any,
    tables: ConstraintTables,
    *,
    constraint: Any = None,
    max_new_tokens: Any = MAX_OUT_LENGTH,
    max_depth: Any = MAX_DEPTH,
    stop_ids: Any = None,
    allow_truncation: bool = False,
) -> tuple[ConstrainedModel, dict[str, Any]]:
    """A model and parameters for `gm.text.Sampler`, `ChatSampler` or their loops, that write only what the constraints allow.

    Every turn of a conversation begins its constraint anew. Other constraints of the same size buckets, and other assignments of
    constraints to rows, compile nothing.

    Args:
      model: a model of `gm.nn`.
      params: its parameters.
      tables: from `jax_decode.to_device`.
      constraint: index into the tables, one number for all rows or a list of one per row, None in a list for no constraint. By
        default the only constraint applies to all rows, or constraint i to row i.
      max_new_tokens: most tokens of a turn, the stop token included; one number, or one per row. Rows choose only tokens after
        which the text can still be completed within it. Give what the sampler is given: it does not tell its model, and cuts
        rows off at its own limit.
      max_depth: most stack cells of a row, one number, or one per row.
      stop_ids: ids that end a text, for all rows or one list per row; by default the vocabulary's own, for Gemma the tokenizer's
        EOS and END_OF_TURN. The sampler must stop at them, too.
      allow_truncation: accept a `max_new_tokens` below a constraint's shortest text.

    Returns:
      The model and the parameters; both go to the sampler.

    Raises:
      DecodeError: an argument is wrong; says which, and what to do.
    """
    if isinstance(model, ConstrainedModel):
        raise DecodeError("the model is constrained already", fix="Give the model underneath: constrain(model.model, ...).")
    carried, layout = carry(
        tables,
        vocab_size=model.config.num_embed,
        constraint=constraint,
        max_new_tokens=max_new_tokens,
        max_depth=max_depth,
        stop_ids=stop_ids,
        allow_truncation=allow_truncation,
    )
    return ConstrainedModel(model, layout), {_PARAMS: params, _CARRIED: carried}


def statuses(state: Any, params: Any) -> list[Status]:
    """How every row of a turn has ended.

    The sampler ends silently when its cache or its limit is used up; here that is `Status.TRUNCATED`, unless the text happens to
    be complete. In a stream, rows that are still going count as if they ended there.

    Args:
      state: `gm.text.SamplerOutput.state`, or `ChatSampler.last_state`.
      params: from `constrain`, as given to the sampler.
    """
    layer = state.cache[_layer_of(state.cache)]
    going = layer["end_index"][0] == layer[_NEXT]
    return named(_statuses(params[_CARRIED], layer[_STATE], state.last_token, state.done, going))


@jax.jit
def _statuses(carried: Carried, state: Any, last: jax.Array, done: jax.Array, going: jax.Array) -> jax.Array:
    # A turn without any step, because the prompt has filled the cache, leaves the state of the turn before.
    last, done = jnp.where(going, last, -1), done & going
    found = carried.statuses(carried.state(state, jnp.full_like(last, -1), jnp.bool_(False)), last, done)
    return jnp.where(going, carried.statuses(state, last, done), jnp.where(found == Status.DEAD_END, Status.TRUNCATED, found))


def _layer_of(cache: Any) -> str:
    """The layer that hides the state: of the same name in every cache, in whichever order."""
    return min(cache)
