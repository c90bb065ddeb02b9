"""What rides in another library's loop, without that library: masks and steps are those of our own functions, restarts included."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
from jax_decode import Status
from jax_decode.integrations.carried import Layout, carry

VOCABULARY = fsa_compile.Vocabulary.from_tokens(
    [b"[", b"]", b",", b"x", b"xx", b"1", b"12", b"z", b"],", b"[[", b"", b""], stop_ids=[10, 11]
)
NESTED = 'start: value\nvalue: "[" [value ("," value)*] "]" | "x"~2..5 | /[12]{3,9}z/\n'
WIDTH = 16  # more logits than ids


@pytest.fixture(autouse=True)
def _strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module")
def tables():
    """A grammar with a stack and a counter, and a pattern."""
    return jax_decode.to_device([fsa_compile.compile_grammar(NESTED, VOCABULARY), fsa_compile.compile_regex("x{3,7}", VOCABULARY)])


def carried(tables, **options):
    given = {"constraint": None, "max_new_tokens": 20, "max_depth": 8, "stop_ids": None, "allow_truncation": False}
    return carry(tables, vocab_size=WIDTH, **(given | options))


@jax.jit
def step(held, before, tokens, going, logits):
    state = held.state(before, tokens, going)
    return state, held.masked(state, logits)


@jax.jit
def ends(held, state, last, done):
    return held.statuses(state, last, done)


def test_masks_steps_and_restarts_are_those_of_our_own_functions(tables):
    """Three turns of different lengths over one state, with rows of all kinds; what a turn leaves behind does not matter."""
    which, limits = np.array([0, 1, -1, 0], np.int32), np.array([20, 6, 12, 9], np.int32)
    held, layout = carried(tables, constraint=[0, 1, None, 0], max_new_tokens=limits.tolist())
    rng, state, ended = np.random.default_rng(0), layout.zeros(4), 0
    own_mask, own_advance = jax.jit(jax_decode.mask, static_argnames="width"), jax.jit(jax_decode.advance)
    for turn, steps in enumerate((25, 4, 25)):
        own = jax_decode.init_state(tables, which, limits, max_depth=8, max_tokens=20)
        tokens = jnp.asarray(rng.integers(0, 12, 4), jnp.int32)  # of the prompt: no matter which
        for i in range(steps):
            logits = jnp.asarray(rng.normal(size=(4, WIDTH)), jnp.float32)
            state, masked = step(held, state, tokens, jnp.bool_(i > 0), logits)
            own = own_advance(tables, own, tokens) if i else own
            allowed = np.asarray(own_mask(tables, own, width=WIDTH))
            for row in range(4):
                found = np.flatnonzero(np.isfinite(masked[row])).tolist()
                running = int(own.status[row]) == Status.RUNNING
                assert found == (np.flatnonzero(allowed[row]).tolist() if running else [10])
                np.testing.assert_array_equal(masked[row, found], logits[row, found])
            np.testing.assert_array_equal(state.status, own.status)
            tokens = jnp.argmax(masked, 1).astype(jnp.int32)
        own = own_advance(tables, own, tokens)
        told = ends(held, state, tokens, jnp.asarray(np.isin(tokens, (10, 11))))
        for row in range(4):
            if own.status[row] != Status.RUNNING:
                assert told[row] == own.status[row]
                ended += 1
            else:
                assert told[row] in (Status.TRUNCATED, Status.ACCEPTED)
        assert turn == 1 or set(np.asarray(told[:2]).tolist()) == {Status.ACCEPTED}
    assert ended > 6


def test_forbidden_tokens_and_hopeless_rows_are_told(tables):
    """A token that the sampler takes against the mask makes a dead end, and the row is then kept at its stop id."""
    held, layout = carried(tables, constraint=[0, 0, None, 1])
    state, logits = layout.zeros(4), jnp.zeros((4, WIDTH), jnp.float32)
    state, _ = step(held, state, jnp.array([3, 3, 3, 3], jnp.int32), jnp.bool_(False), logits)
    taken = jnp.array([0, 1, 10, 10], jnp.int32)  # "]" cannot come first, nor can the second pattern's text be empty
    told = [Status.TRUNCATED, Status.DEAD_END, Status.FINISHED, Status.DEAD_END]
    assert ends(held, state, taken, jnp.array([False, False, True, True])).tolist() == told
    state, masked = step(held, state, taken, jnp.bool_(True), logits)
    assert [np.flatnonzero(np.isfinite(row)).tolist() for row in masked[1:]] == [[10]] * 3
    assert state.status.tolist() == [Status.RUNNING, *told[1:]]


def test_layouts_are_equal_where_programs_can_be_shared(tables):
    other = jax_decode.to_device([fsa_compile.compile_grammar(NESTED, VOCABULARY), fsa_compile.compile_regex("z{2,9}", VOCABULARY)])
    (one, first), (two, second) = carried(tables), carried(other)
    assert first == second
    assert hash(first) == hash(second)
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert [x.shape for x in jax.tree.leaves(one)] == [x.shape for x in jax.tree.leaves(two)]
    plain = jax_decode.to_device(fsa_compile.compile_regex("x", VOCABULARY))
    assert carried(plain)[1] != first
    assert Layout.of(first.zeros(3)) == first


def test_one_row_serves_batches_of_any_size_and_others_do_not(tables):
    one, _ = carried(tables, constraint=1)
    assert one.begun(7).node.shape == (7, 1)
    with pytest.raises(jax_decode.DecodeError, match="given for 2 rows, and there are 3"):
        carried(tables)[0].begun(3)
