"""Healed constraints on the device: masks as on the host, rows that share one constraint."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
import models
from fsa_compile import library
from jax_decode import Status

PROMPTS = ["Question: Is the kettle red?\nAnswer:", "Question: Is the kettle red?\nAnswer: ", "Question: Is the kett", "x = f"]


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


@pytest.fixture(scope="module")
def constraints(tokenizer):
    grammar = library.grammar_text("c_dangling_else")
    schema = {
        "type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 300}},
        "required": ["v"], "additionalProperties": False,
    }  # fmt: skip
    any_order = fsa_compile.SchemaOptions(key_order="any")
    return {
        "pattern": fsa_compile.compile_regex(r"[a-z ]{3,200}\.", tokenizer),
        "schema": fsa_compile.compile_json_schema(schema, tokenizer),
        "keys in any order": fsa_compile.compile_json_schema(schema, tokenizer, options=any_order),
        "several stacks": fsa_compile.compile_grammar(grammar, tokenizer, **library.options("c_dangling_else")),
    }


def compare(constraints, tokenizer, steps=24, depth=12):
    """Random walks of every prompt with every constraint, each row within its own limits: host masks and device masks."""
    healed = [h for c in constraints for h in fsa_compile.heal_batch(PROMPTS, c, tokenizer)]
    assert len({h.written for h in healed}) >= 2
    rows = len(healed)
    tables = jax_decode.to_device([h.constraint for h in healed])
    begin = jax.jit(jax_decode.init_state, static_argnames=("max_tokens",))
    state = begin(tables, jnp.arange(rows), jnp.full(rows, steps, jnp.int32), max_depth=depth, max_tokens=steps)
    see, take = jax.jit(jax_decode.mask), jax.jit(jax_decode.advance)
    walks = [h.constraint.walk(depth) for h in healed]
    rng = np.random.default_rng(1)
    for left in range(steps, 0, -1):
        masks = np.asarray(see(tables, state))
        tokens = []
        for row, walk in enumerate(walks):
            allowed = walk.allowed(left)
            assert (masks[row, : len(allowed)] == allowed).all(), (row, left)
            token = int(rng.choice(np.flatnonzero(allowed))) if allowed.any() else -1
            if token >= 0:
                walk.advance(token, left)
            tokens.append(token)
        state = take(tables, state, jnp.array(tokens, jnp.int32))
    assert set(np.asarray(state.status).tolist()) == {Status.ACCEPTED}


def test_masks_are_those_of_the_host(tokenizer, constraints):
    compare([constraints[name] for name in ("pattern", "schema", "keys in any order")], tokenizer)


def test_masks_with_several_stacks(tokenizer, constraints, exhaustive):
    if not exhaustive:
        pytest.skip("compiles for long: run with --exhaustive")
    compare([constraints["several stacks"]], tokenizer)


def test_rows_share_their_constraint(tokenizer, constraints):
    healed = [h.constraint for h in fsa_compile.heal_batch(PROMPTS, constraints["schema"], tokenizer)]
    assert len({h.start for h in healed}) >= 2
    tables, own = jax_decode.to_device(healed), jax_decode.to_device(constraints["schema"])
    assert tables.num_constraints == len(PROMPTS)
    assert tables.rows.nbytes <= 2 * own.rows.nbytes
    assert tables.nodes.nbytes <= 2 * own.nodes.nbytes


def test_a_constraint_given_twice_is_stored_once(constraints):
    one = jax_decode.to_device(constraints["schema"])
    twice = jax_decode.to_device([constraints["schema"]] * 2)
    assert twice.nodes.shape == one.nodes.shape
    assert twice.rows.shape == one.rows.shape
    assert (np.asarray(twice.constraints)[:2] == np.asarray(one.constraints)[[0, 0]]).all()


def test_canonical_rows_begin_behind_their_prompts(tokenizer):
    """Masks as on the host, and what is drawn is, with the prompt, what the tokenizer makes of both."""
    tables = fsa_compile.canonical_tables(tokenizer)
    constraint = fsa_compile.compile_regex(r"[a-z ]{1,12}\.", tokenizer)
    prompts = ["The answer is ", "Is the kett", "x"]
    healed = fsa_compile.heal_batch(prompts, constraint, tokenizer, canonical=True)
    on_device = jax_decode.to_device([h.constraint for h in healed], canonical=tables)
    state = jax_decode.init_state(on_device, jnp.arange(3), jnp.full(3, 12, jnp.int32))
    see, take = jax.jit(jax_decode.mask), jax.jit(jax_decode.advance)
    walks, rng = [fsa_compile.CanonicalWalk(h.constraint, tables) for h in healed], np.random.default_rng(2)
    taken: list[list[int]] = [[] for _ in prompts]
    for left in range(12, 0, -1):
        masks, tokens = np.asarray(see(on_device, state)), []
        for row, walk in enumerate(walks):
            allowed = walk.allowed(left)
            assert (masks[row, : len(allowed)] == allowed).all()
            tokens.append(int(rng.choice(np.flatnonzero(allowed))) if allowed.any() else -1)
            if tokens[-1] >= 0:
                walk.advance(tokens[-1])
                taken[row] += [] if walk.finished else [tokens[-1]]
        state = take(on_device, state, jnp.array(tokens, jnp.int32))
    assert set(np.asarray(state.status).tolist()) == {Status.ACCEPTED}
    for prompt, h, ids in zip(prompts, healed, taken):
        assert tokenizer.encode(prompt + h.text(ids)) == [*h.prompt, *ids]
