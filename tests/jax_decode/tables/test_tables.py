"""The device layout against its definition, and the device mask and step against the host walk."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made
from oracles.device_limits import allowed_on_the_device

import fsa_compile
import jax_decode
from fsa_compile.artifact.configurations import Configuration
from fsa_compile.artifact.host_walk import HostWalk
from jax_decode.kernels import row_layout
from jax_decode.step.state import ConstraintState, Status, unconstrained_state
from jax_decode.step.transition import next_node
from jax_decode.tables import tables as layout

mask = jax.jit(jax_decode.mask, static_argnames="width")
advance = jax.jit(jax_decode.advance)
step_from = jax.jit(next_node)

CONSTRAINTS = {
    **{f"random {i}": hand_made.random_constraint(i) for i in range(6)},
    "odd vocabulary": hand_made.random_constraint(20, vocab_size=77, stop_ids=(3, 76)),
    "no stop ids": hand_made.random_constraint(21, stop_ids=()),
    "large vocabulary": hand_made.random_constraint(22, vocab_size=9001, num_nodes=8),
    "many arcs": hand_made.from_table(
        np.stack([np.zeros(1000, np.int32), 2 + np.arange(1000, dtype=np.int32) % 900] + [np.zeros(1000, np.int32)] * 900),
        [False, False] + [True] * 900,
        wide=5,
    ),
    "trie": hand_made.one_of([[1, 2, 3], [1, 2], [4], [5, 6, 7, 8]], 64),
    "free text": hand_made.repeated(range(1, 64), 0, 5, 64),
}


def walk_at(constraint, node: int) -> HostWalk:
    return constraint.walk().resumed([Configuration(node, 0, ())])


def state_at(nodes, remaining, stops) -> ConstraintState:
    stops = np.broadcast_to(np.array(stops or [-1], np.int32), (len(nodes), max(len(stops), 1)))
    state = unconstrained_state(jnp.asarray(remaining, jnp.int32), jnp.asarray(stops))
    return dataclasses.replace(state, node=jnp.asarray(nodes, jnp.int32)[:, None])


@pytest.mark.parametrize("vocab_size", [64, 100, 4096, 5000])
def test_planes_join_the_file_order_and_the_device_order(vocab_size):
    rng = np.random.default_rng(0)
    bits = rng.random((7, vocab_size)) < 0.3
    padded = np.zeros((7, (vocab_size + 31) // 32 * 32), bool)
    padded[:, :vocab_size] = bits
    rows = np.packbits(padded, axis=1, bitorder="little").view(np.uint32)
    num_words = row_layout.words_for(vocab_size)
    words = row_layout.pack_planes(rows, num_words)
    assert num_words % row_layout.LANES == 0
    assert words.shape == (7, num_words)
    token = np.arange(vocab_size)
    back = (words[:, token % num_words] >> (token // num_words).astype(np.uint32)) & 1
    assert (back.astype(bool) == bits).all()
    assert np.bitwise_count(words).sum() == bits.sum()


def test_planes_in_several_chunks_are_the_same(monkeypatch):
    rows = np.random.default_rng(1).integers(0, 2**32, (9, 4), np.uint32)
    whole = row_layout.pack_planes(rows, 128)
    monkeypatch.setattr(row_layout, "_CHUNK_BYTES", 128 * 4 * 2)
    assert (row_layout.pack_planes(rows, 128) == whole).all()


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_mask_is_the_host_walks_at_every_node_and_budget(name):
    """Two-sided: every token of the vocabulary, every node, every remaining budget up to past the longest distance."""
    c = CONSTRAINTS[name]
    tables = jax_decode.to_device([hand_made.from_table(c_table(c), c.accept, stop_ids=c.stop_ids), c])
    first = int(tables.constraints[1, layout.START]) - c.start
    assert c.start == 1
    nodes = np.arange(1, min(c.num_nodes, 40))
    budgets = range(1, min(int(c.distance[1:].max()) + 3, 8)) if c.vocab_size < 5000 else (1, 2, 9)
    for remaining in [*budgets, 2**30]:
        got = np.asarray(
            mask(tables, state_at(nodes + first, np.full(len(nodes), remaining), c.stop_ids), width=c.vocab_size + 5)
        )
        want = np.stack([allowed_on_the_device(walk_at(c, n), remaining) for n in nodes])
        assert (got[:, : c.vocab_size] == want).all()
        assert not got[:, c.vocab_size :].any()


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_next_node_is_the_host_walks_for_every_token(name):
    c = CONSTRAINTS[name]
    tables = jax_decode.to_device([c])
    first = int(tables.constraints[0, layout.START]) - c.start
    tokens = np.arange(c.vocab_size) if c.vocab_size < 5000 else np.arange(0, c.vocab_size, 7)
    for n in range(1, min(c.num_nodes, 10)):
        got = np.asarray(step_from(tables, jnp.full(len(tokens), n + first, jnp.int32), jnp.asarray(tokens, jnp.int32)))
        want = c.outgoing(n)[tokens]
        assert (got == np.where(want > 0, want + first, 0)).all()


def c_table(c):
    """The dense automaton of an artifact."""
    return np.stack([c.outgoing(n) for n in range(c.num_nodes)])


def test_advance_takes_stop_ids_only_from_accepted_text():
    c = hand_made.one_of([[1], [1, 2]], 8, stop_ids=(0, 7))
    tables = jax_decode.to_device(c)
    state = jax_decode.init_state(tables, np.zeros(4, np.int32), np.full(4, 5))
    after = advance(tables, state, jnp.array([0, 1, 7, 2], jnp.int32))
    assert after.status.tolist() == [Status.DEAD_END, Status.RUNNING, Status.DEAD_END, Status.DEAD_END]
    last = advance(tables, after, jnp.array([1, 7, 1, 1], jnp.int32))
    assert last.status.tolist() == [Status.DEAD_END, Status.ACCEPTED, Status.DEAD_END, Status.DEAD_END]
    assert last.node[1] == after.node[1]
    again = advance(tables, last, jnp.array([1, 1, 1, 1], jnp.int32))
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(last)))


def test_limit_ends_accepted_or_truncated():
    c = hand_made.repeated([1, 2, 3], 2, 4, 8)
    tables = jax_decode.to_device(c)
    state = jax_decode.init_state(tables, np.array([0, 0, -1]), np.array([2, 1, 1]))
    state = advance(tables, state, jnp.array([1, 1, 5], jnp.int32))
    assert state.status.tolist() == [Status.RUNNING, Status.TRUNCATED, Status.TRUNCATED]
    state = advance(tables, state, jnp.array([3, 3, 3], jnp.int32))
    assert state.status[0] == Status.ACCEPTED


def test_nothing_to_take_accepts_complete_text_only():
    c = hand_made.one_of([[1]], 8, stop_ids=())
    tables = jax_decode.to_device(c)
    state = jax_decode.init_state(tables, np.zeros(2, np.int32))
    state = advance(tables, state, jnp.array([1, -1], jnp.int32))
    assert state.status.tolist() == [Status.RUNNING, Status.DEAD_END]
    assert advance(tables, state, jnp.array([-1, -1], jnp.int32)).status.tolist() == [Status.ACCEPTED, Status.DEAD_END]


def test_unconstrained_rows_allow_the_tokenizer_and_nothing_more():
    c = hand_made.random_constraint(0, vocab_size=77)
    tables = jax_decode.to_device(c, logits_width=128)
    state = jax_decode.init_state(tables, np.array([-1, 0]), np.array([9, 9]))
    allowed = np.asarray(mask(tables, state, width=5000))
    assert allowed[0].tolist() == [True] * 77 + [False] * (5000 - 77)
    assert (allowed[1, :77] == c.walk().allowed(9)).all()
    after = advance(tables, state, jnp.array([76, 0], jnp.int32))
    assert after.status[0] == Status.RUNNING
    assert advance(tables, after, jnp.array([0, 0], jnp.int32)).status[0] == Status.FINISHED
    assert advance(tables, after, jnp.array([77, 0], jnp.int32)).status[0] == Status.DEAD_END


def test_states_are_values_so_an_old_one_is_a_rewind():
    c = hand_made.random_constraint(3)
    tables = jax_decode.to_device(c)
    state = jax_decode.init_state(tables, np.zeros(1, np.int32))
    before = np.asarray(mask(tables, state))
    token = jnp.asarray([int(np.flatnonzero(before[0])[-1])], jnp.int32)
    advance(tables, state, token)
    assert (np.asarray(mask(tables, state)) == before).all()


def test_mask_logits_keeps_the_dtype():
    c = hand_made.random_constraint(1)
    tables = jax_decode.to_device(c)
    state = jax_decode.init_state(tables, np.zeros(1, np.int32))
    out = jax_decode.mask_logits(tables, state, jnp.ones((1, 64), jnp.bfloat16))
    assert out.dtype == jnp.bfloat16
    assert (np.asarray(jnp.isfinite(out))[0] == c.walk().allowed()).all()


def test_twenty_constraints_of_a_bucket_have_one_shape():
    shapes = set()
    for seed in range(20):
        tables = jax_decode.to_device(hand_made.repeated(range(1, 5 + seed), 1, 3 + seed % 7, 64))
        shapes.add((jax.tree.structure(tables), tuple(x.shape for x in jax.tree.leaves(tables))))
    assert len(shapes) == 1


def test_rows_of_equal_content_are_stored_once():
    some = [hand_made.random_constraint(i) for i in (0, 1, 0, 1, 0)]
    one, all_of_them = jax_decode.to_device(some[:2], profile=None), jax_decode.to_device([dataclasses.replace(c) for c in some])
    rows = np.asarray(all_of_them.rows)
    used = rows[rows.any(1)]
    assert len(np.unique(used, axis=0)) == len(used)
    assert rows.shape == one.rows.shape
    state = jax_decode.init_state(all_of_them, np.arange(5, dtype=np.int32))
    for row, c in zip(np.asarray(mask(all_of_them, state)), some):
        assert (row == c.walk().allowed()).all()


def test_repr_is_short():
    assert "64 tokens" in repr(jax_decode.to_device(hand_made.random_constraint(0)))


@pytest.mark.parametrize(
    ("argument", "options", "text"),
    [
        (3, {}, "takes one CompiledConstraint or a list of them, not int"),
        ([], {}, "the list is empty"),
        ([hand_made.random_constraint(0), "x"], {}, "not str\n  constraint 1"),
        ([hand_made.random_constraint(0), hand_made.random_constraint(0, vocab_size=65)], {}, "different vocabularies"),
        (hand_made.random_constraint(0), {"logits_width": 63}, "63 logits are fewer than the vocabulary's 64 ids"),
    ],
)
def test_to_device_errors(argument, options, text):
    with pytest.raises(jax_decode.DecodeError, match=text):
        jax_decode.to_device(argument, **options)


def test_nothing_follows_the_last_item_of_a_set_before_another():
    """Tries lie one after another; the first node of the next one is no child of the last node."""
    sets = [fsa_compile.compile_items(items, 8, stop_ids=(7,)) for items in ([[1, 2], [3]], [[4, 5]])]
    tables = jax_decode.to_device(sets)
    state = jax_decode.init_state(tables, np.zeros(1, np.int32))
    for token in (1, 2):
        state = advance(tables, state, jnp.array([token], jnp.int32))
    assert np.flatnonzero(np.asarray(mask(tables, state))[0]).tolist() == [7]
