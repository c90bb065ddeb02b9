"""The forms of a step for all kinds of devices do the same, kind of constraint by kind; and the choice is part of JAX's keys."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile as fc
import jax_decode
from jax_decode.kernels.placement import on_own_rows, rows_may_stand_last, spread_rows
from jax_decode.kernels.target import compiled_for, target
from jax_decode.step.packing import packed, unpacked

TOKENS = [b"", *(bytes([c]) for c in range(256)), b'{"', b'":', b'"a', b'"}', b", ", b"[[", b"]]", b"ab", b"aa", b"bb", b"123"]
MANY = fc.Vocabulary.from_tokens(TOKENS, stop_ids=[0])
PAIRS = fc.Vocabulary.from_tokens([b"", b"a", b"b", b"ab", b"ba", b"aa", b"[", b"]", b"[["], stop_ids=[0])
ANY_ORDER = {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "ab": {"type": "string"}},
    "required": ["b"], "additionalProperties": False,
}  # fmt: skip
KINDS = {
    "regular": lambda: fc.compile_regex("[a-z ]{2,9}(,[0-9]+)*|12", MANY),
    "stack": lambda: fc.compile_json_schema({"type": "array", "items": {"type": ["string", "integer"], "maxLength": 9}}, MANY),
    "counters": lambda: fc.compile_json_schema({"type": "string", "minLength": 3, "maxLength": 900}, MANY),
    "any order": lambda: fc.compile_json_schema(ANY_ORDER, MANY, options=fc.SchemaOptions(key_order="any")),
    "several stacks": lambda: fc.compile_grammar('start: "a" start "a" | "b" start "b" | "a" | "b"', PAIRS, stacks=2),
    "items": lambda: fc.compile_items([[3], [3, 4], [4, 1, 1], [5, 5, 2]], 9, stop_ids=(0,)),
}


@jax.jit
def walked(tables, state, keys):
    """Along random texts, the mask before every token, the token, and all that a loop carries after it."""

    def step(rows, key):
        state = unpacked(rows)
        allowed = jax_decode.mask(tables, state)
        token = jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)).astype(jnp.int32)
        rows = packed(jax_decode.advance(tables, state, jnp.where(allowed.any(1), token, -1)))
        return rows, (allowed, token, rows.small)

    return jax.lax.scan(step, packed(state), keys)


@pytest.mark.parametrize("kind", KINDS)
def test_all_forms_do_the_same(kind, exhaustive):
    """On one device and, but for the largest program, which is in full only, with rows spread over devices."""
    tables = jax_decode.to_device(KINDS[kind]())
    state = jax_decode.init_state(tables, [0, 0, 0, -1, 0], [24, 20, 9, 24, 2], max_tokens=24)
    found = {}
    for platform in ("cpu", "gpu", "tpu"):
        with compiled_for(platform):
            found[platform] = jax.device_get(walked(tables, state, jax.random.split(jax.random.key(1), 24)))
    _, (allowed, tokens, _) = found["cpu"]
    assert len(np.unique(tokens)) > 3, "short texts show little"
    assert not allowed[:, 0].all()
    same = functools.partial(jax.tree.map, np.testing.assert_array_equal, found["cpu"])
    same(found["gpu"])
    same(found["tpu"])
    if kind != "several stacks" or exhaustive:
        with compiled_for("tpu"), jax_decode.sharded_rows(jax.make_mesh((1,), ("rows",)), "rows"):
            same(jax.device_get(walked(tables, state, jax.random.split(jax.random.key(1), 24))))


def test_rows_stand_last_on_a_tpu_where_its_compiler_does_not_spread_them():
    traced = []

    def f(_, x):
        traced.append(rows_may_stand_last())
        return x

    spread = jax_decode.sharded_rows(jax.make_mesh((1,), ("rows",)), "rows")
    g = jax.jit(functools.partial(f, None))
    with compiled_for("tpu"):
        g(jnp.zeros(1))
        with spread:
            g(jnp.zeros(1))
            jax.eval_shape(on_own_rows(f, spread_rows()), None, jnp.zeros(1))
    g(jnp.zeros(1))
    assert traced == [True, False, True, False]


def test_what_was_traced_for_one_device_is_not_used_for_another():
    traced = []

    @jax.jit
    def f(x):
        traced.append(target())
        return x + 1

    for platform in ("tpu", "gpu", "tpu"):
        with compiled_for(platform):
            f(1.0)
    f(1.0)
    assert traced == ["tpu", "gpu", jax.default_backend()]


@pytest.mark.parametrize("kind", ["any order", "several stacks"])
def test_packing_loses_nothing(kind):
    """Nor in one program, where XLA sees the fields without numbers of either."""
    tables = jax_decode.to_device(KINDS[kind]())
    state = jax_decode.init_state(tables, [0, -1], [7, 9], max_tokens=9)
    token = jnp.argmax(jax.jit(jax_decode.mask)(tables, state), 1).astype(jnp.int32)
    state = jax.jit(jax_decode.advance)(tables, state, token)
    state = dataclasses.replace(state, dropped=jnp.array([kind == "several stacks", False]))
    assert state.status.tolist() == [0, 2]
    for there_and_back in (lambda s: unpacked(packed(s)), jax.jit(lambda s: unpacked(packed(s)))):
        jax.tree.map(np.testing.assert_array_equal, state, there_and_back(state))
    np.testing.assert_array_equal(packed(state).dropped, state.dropped)
    assert packed(state).with_status(jnp.array([3, 0])).status.tolist() == [3, 0]


@pytest.mark.parametrize("kind", ["regular", "several stacks"])
def test_what_has_come_to_the_host_stays_there(kind):
    """What `generate` asks of a loop's last state it has brought over: nothing is sent back, or compiled to be read."""
    state = jax_decode.init_state(jax_decode.to_device(KINDS[kind]()), [0, -1], [7, 9], max_tokens=9)
    state = packed(dataclasses.replace(state, dropped=jnp.array([kind == "several stacks", False])))
    on_host = dataclasses.replace(state, small=np.asarray(state.small))
    for name in ("status", "dropped"):
        found = getattr(on_host, name)
        assert isinstance(found, np.ndarray), name
        np.testing.assert_array_equal(found, getattr(unpacked(state), name))
