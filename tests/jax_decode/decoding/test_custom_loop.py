"""The functional core: `docs/custom_loop.md` is true, and forks, rewinds, `scan` and `vmap` agree with the host walks."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made
from oracles import hand_pushdown as by_hand
from oracles.markdown import python_blocks
from oracles.toy_decoder import toy

import jax_decode
from jax_decode import DecodeError, Status

PAGE = Path(__file__).parents[3] / "docs" / "custom_loop.md"
TWINS = by_hand.composed(
    by_hand.twins(), [b"", b"a", b"b", b"c", b"aa", b"ab", b"bb", b"cc", b"abb", b"aabb", b"aaa", b"ccc", b"ac", b"aac"], stacks=2
)
LIMIT = 12


def test_the_page_is_true(capsys):
    names: dict = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in python_blocks(PAGE.read_text(encoding="utf-8")):
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out.splitlines()
    language = re.compile("(ab|c)+(-(ab|c)+){2}")
    for line in printed[:4]:
        status, text = line.split()
        assert status == "ACCEPTED"
        assert language.fullmatch(text)
    assert language.fullmatch(names["written"])
    loop = python_blocks(PAGE.read_text(encoding="utf-8"))[0]
    body = loop[loop.index("def model") :].strip().splitlines()
    assert len([line for line in body if line.strip()]) <= 30
    for name in re.findall(r"^\| `(\w+)\(", PAGE.read_text(encoding="utf-8"), re.M):
        assert callable(getattr(jax_decode, name))


def test_the_loop_of_the_page_draws_what_the_model_and_the_language_say():
    """20,000 rows of the page's loop against the exact probability of every text; the keys are fixed."""
    names: dict = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(python_blocks(PAGE.read_text(encoding="utf-8"))[0], str(PAGE), "exec", dont_inherit=True), names)
        n = 20_000
        constraint = hand_made.one_of([[1, 2], [1, 3], [2], [2, 2, 3], [5]], 7, stop_ids=(6,))
        tables = jax_decode.to_device(constraint)
        tokens, status = names["sample"](
            tables, names["weights"], jax.random.key(3), jnp.zeros(n, jnp.int32), jnp.full(n, 5, jnp.int32)
        )
    assert (np.asarray(status) == Status.ACCEPTED).all()
    weights = np.asarray(names["weights"], np.float64)

    def grow(walk, tokens, last, p):
        allowed = np.flatnonzero(walk.allowed(5 - len(tokens)))
        odds = np.exp(weights[last, allowed])
        for token, share in zip(allowed.tolist(), odds / odds.sum()):
            if token == 6:
                yield tokens, p * share
                continue
            walk.advance(token)
            yield from grow(walk, (*tokens, token), token, p * share)
            walk.rewind(1)

    rows = np.asarray(tokens)
    for text, p in grow(constraint.walk(), (), 0, 1.0):
        want = np.full(rows.shape[1], -1)
        want[: len(text) + 1] = [*text, 6]
        share = (rows == want).all(1).mean()
        assert abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-4


@pytest.fixture(scope="module")
def histories():
    """Random histories of two rows of two stacks each: every state, and the tokens."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        tables = jax_decode.to_device(TWINS)
        step, see = jax.jit(jax_decode.advance), jax.jit(jax_decode.mask)
        state = jax_decode.init_state(tables, jnp.zeros(4, jnp.int32), jnp.full(4, LIMIT, jnp.int32), max_tokens=LIMIT)
        rng, states, tokens = np.random.default_rng(3), [state], []
        for _ in range(5):
            allowed = np.asarray(see(tables, state))
            chosen = [int(rng.choice(np.flatnonzero(row[1:]))) + 1 if row[1:].any() else 0 for row in allowed]
            tokens.append(chosen)
            state = step(tables, state, jnp.array(chosen, jnp.int32))
            states.append(state)
        return tables, step, see, states, np.array(tokens)


def walked(tokens):
    walk = TWINS.walk(jax_decode.step.state.MAX_DEPTH)
    for i, token in enumerate(tokens):
        if token == 0:
            break
        walk.advance(int(token), LIMIT - i)
    return walk


def test_forked_rows_are_their_parents_and_go_their_own_ways(histories):
    """Rows with stacks and two configurations: shuffled, doubled and dropped, each is the host walk of its parent's tokens."""
    tables, step, see, states, tokens = histories
    rng = np.random.default_rng(0)
    for n in range(1, len(states)):
        parent = np.array([3, 1, 1, 2])
        forked = jax.jit(jax_decode.fork)(states[n], jnp.array(parent, jnp.int32))
        allowed = np.asarray(see(tables, forked))
        walks = [walked(tokens[:n, p]) for p in parent]
        chosen = []
        for row, walk in enumerate(walks):
            running = bool(forked.running[row])
            want = walk.allowed(LIMIT - n) if running else np.zeros_like(allowed[row])
            assert allowed[row].tolist() == want.tolist()
            text = np.flatnonzero(want[1:]) + 1
            chosen.append(int(rng.choice(text)) if len(text) else 0)
        after = np.asarray(see(tables, step(tables, forked, jnp.array(chosen, jnp.int32))))
        for row, walk in enumerate(walks):
            if chosen[row]:
                walk.advance(chosen[row], LIMIT - n)
                assert after[row].tolist() == walk.allowed(LIMIT - n - 1).tolist()
    wider = jax_decode.fork(states[2], [0, 0, 0, 1, 2, 3])
    assert {leaf.shape[0] for leaf in jax.tree.leaves(wider)} == {6}


def test_rewound_rows_are_as_before(histories):
    tables, _, see, states, _ = histories
    for n in range(len(states) - 1):
        back = jax_decode.rewind(states[-1], states[n].position)
        assert (see(tables, back) == see(tables, states[n])).all()


def test_under_vmap_every_group_is_as_alone():
    constraint = hand_made.random_constraint(3, 40, 8)
    tables = jax_decode.to_device(constraint)

    def run(logits):
        def step(state, logits):
            token = jnp.argmax(jax_decode.mask_logits(tables, state, logits), 1).astype(jnp.int32)
            return jax_decode.advance(tables, state, token), jnp.where(state.running, token, -1)

        state = jax_decode.init_state(tables, jnp.zeros(2, jnp.int32), jnp.full(2, 9, jnp.int32))
        state, tokens = jax.lax.scan(step, state, logits)
        return tokens, state.status

    logits = jax.random.normal(jax.random.key(0), (3, 9, 2, 40))
    tokens, status = jax.jit(jax.vmap(run))(logits)
    assert (status == Status.ACCEPTED).all()
    for group in range(3):
        alone, _ = jax.jit(run)(logits[group])
        assert (alone == tokens[group]).all()
        for row in range(2):
            walk = constraint.walk()
            for i, token in enumerate(tokens[group, :, row].tolist()):
                if token in (-1, *constraint.stop_ids):
                    break
                assert walk.allowed(9 - i)[token]
                walk.advance(token)
            assert walk.accepting


def test_caches_are_forked_by_their_axis_of_rows():
    decoder = toy(16)
    cache = decoder.init_cache(3, 8)
    cache = (jnp.array([5, 6, 7], jnp.int32), cache[1].at[:, 0].set(jnp.array([1.0, 2.0, 3.0])))
    count, memory = jax_decode.fork_cache(decoder, cache, jnp.array([2, 0, 0, 1]))
    assert count.tolist() == [7, 5, 5, 6]
    assert memory[:, 0].tolist() == [3.0, 1.0, 1.0, 2.0]

    class Layered:
        vocab_size = 4

        def init_cache(self, batch, length):
            return {"layers": jnp.zeros((2, batch, length)), "shared": jnp.zeros(length)}

    made = {"layers": jnp.arange(2 * 3 * 4.0).reshape(2, 3, 4), "shared": jnp.arange(4.0)}
    forked = jax_decode.fork_cache(Layered(), made, jnp.array([1, 1]), length=4)
    assert (forked["layers"] == made["layers"][:, jnp.array([1, 1])]).all()
    assert (forked["shared"] == made["shared"]).all()

    class Unclear:
        vocab_size = 4

        def init_cache(self, batch, length):
            return jnp.zeros((batch, batch))

    with pytest.raises(DecodeError, match=r"shape \(1, 1\) for 1 row and \(2, 2\) for 2"):
        jax_decode.fork_cache(Unclear(), jnp.zeros((3, 3)), jnp.array([0]))
