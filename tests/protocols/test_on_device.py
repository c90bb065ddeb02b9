"""Turns on the device: special tokens, stacks and sets of keys in one constraint, masks as on the host, and whole generations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.call_writers import write_turn
from protocols.turns import ids_of, small_vocabulary

import jax_decode
from fsa_compile import PROTOCOLS, compile_response, parse_response


def get_weather(city: str, days: int = 1) -> str:
    """The weather."""
    return f"{city} {days}"


@pytest.mark.parametrize(("name", "bound"), [("gemma4", {"max_reasoning_chars": 200}), ("harmony", {"max_reasoning_tokens": 4})])
def test_masks_on_the_device_are_those_of_the_host(name, bound):
    vocabulary = small_vocabulary(PROTOCOLS[name], special=True)
    constraint = compile_response(vocabulary, protocol=name, tools=[get_weather], **bound)
    ids = ids_of(write_turn(name, thought="Hm.", calls=[("get_weather", {"days": 2, "city": "é"})]), vocabulary)
    tables = jax_decode.to_device(constraint)
    state, walk = jax_decode.init_state(tables, jnp.zeros(1, jnp.int32), max_tokens=len(ids) + 40), constraint.walk()
    mask = jax.jit(lambda state: jnp.isfinite(jax_decode.mask_logits(tables, state, jnp.zeros((1, vocabulary.size)))))
    advance = jax.jit(lambda state, token: jax_decode.advance(tables, state, token))
    for token in ids:
        np.testing.assert_array_equal(np.asarray(mask(state))[0], walk.allowed())
        state = advance(state, jnp.array([token]))
        walk.advance(token)
    np.testing.assert_array_equal(np.asarray(mask(state))[0], walk.allowed())
    assert parse_response(ids, vocabulary, protocol=name, tools=[get_weather]).calls[0]() == "é 2"
