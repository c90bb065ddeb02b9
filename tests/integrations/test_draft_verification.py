"""A server's verify step under constraints writes what decoding token by token does, and knows what it may keep."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
import models
from jax_decode.errors import DecodeError
from jax_decode.integrations.draft_verification import mask_along, verify_drafts
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.sampling import sample

ROWS, DRAFTS, LENGTH = 4, 3, 18


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


@pytest.fixture(scope="module")
def constraints(tokenizer):
    schema = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "maxItems": 3}
    return [
        fsa_compile.compile_regex("(yes|no), because [a-z ]{3,20}\\.", tokenizer),
        fsa_compile.compile_json_schema(schema, tokenizer),
        fsa_compile.compile_grammar('start: "(" start ")" | "x"', tokenizer),
    ]


@pytest.fixture(scope="module")
def tables(constraints):
    return jax_decode.to_device(constraints)


def begun(tables):
    """Rows in each of the constraints, one of them twice."""
    return jax_decode.init_state(tables, jnp.array([0, 1, 2, 1]), jnp.full(ROWS, LENGTH))


def model(width: int, prefix: jax.Array, length: jax.Array) -> jax.Array:
    """Logits of every row after a prefix: any function of it will do."""
    weight = jnp.arange(1, prefix.shape[1] + 1) * 7919
    seed = jnp.where(jnp.arange(prefix.shape[1])[None] < length[:, None], (prefix + 3) * weight[None], 0).sum(1)
    return jax.vmap(lambda s: 3 * jax.random.normal(jax.random.key(s), (width,)))(seed.astype(jnp.uint32))


def one_by_one(tables, state, sampler, key, width):
    """Tokens of every row, by `sample` and `advance`."""

    @jax.jit
    def step(state, prefix, at):
        logits = model(width, prefix, jnp.full(ROWS, at))
        choice = sample(sampler, logits, key, jnp.full(ROWS, at, jnp.uint32), tables, state, with_raw=False)
        token = jnp.where(state.running, choice.token, -1)
        after = jax_decode.advance(tables, state, token)
        kept = jax.tree.map(lambda a, b: jnp.where(state.running.reshape(-1, *(1,) * (a.ndim - 1)), a, b), after, state)
        return kept, prefix.at[:, at].set(token)

    prefix = jnp.full((ROWS, LENGTH + DRAFTS + 1), -1, jnp.int32)
    for at in range(LENGTH):
        state, prefix = step(state, prefix, at)
    return np.asarray(prefix[:, :LENGTH]), state


@pytest.mark.parametrize("sampler", [jax_decode.Greedy(), jax_decode.Categorical(temperature=1.2)], ids=["greedy", "drawn"])
def test_drafts_change_nothing_but_the_number_of_steps(tables, tokenizer, sampler):
    width, key = tokenizer.vocabulary.size + 3, key_words(jax.random.split(jax.random.key(5), ROWS))
    state = begun(tables)
    wanted, ended = one_by_one(tables, state, sampler, key, width)
    traces = []

    @jax.jit
    def turn(state, prefix, length, drafts):
        traces.append(1)
        places = []
        for i in range(DRAFTS + 1):
            at = jnp.arange(prefix.shape[1])[None] - length[:, None]
            text = jnp.where((at >= 0) & (at < i), jnp.take_along_axis(jnp.pad(drafts, ((0, 0), (0, 1))), jnp.clip(at, 0, DRAFTS), 1), prefix)
            places.append(model(width, text, length + i))
        return verify_drafts(tables, state, drafts, jnp.stack(places, 1), sampler=sampler, key=key, step=length)

    rng = np.random.default_rng(1)
    prefix, length = np.full((ROWS, LENGTH + DRAFTS + 1), -1, np.int32), np.zeros(ROWS, np.int32)
    kept = turns = 0
    while (np.asarray(state.status) == 0).any() and turns < LENGTH:
        drafts = np.full((ROWS, DRAFTS), -1, np.int32)
        for row in range(ROWS):  # right ones, then a wrong one: perhaps forbidden, perhaps none
            right = rng.integers(0, DRAFTS + 1)
            coming = wanted[row, length[row] : length[row] + DRAFTS]
            drafts[row, : len(coming)] = coming
            drafts[row, right : right + 1] = rng.integers(-1, width)
        before = length.copy()
        found = turn(state, jnp.asarray(prefix), jnp.asarray(length), jnp.asarray(drafts))
        state, count, tokens = found.state, np.asarray(found.written), np.asarray(found.tokens)
        for row in range(ROWS):
            assert (tokens[row, count[row] :] == -1).all()
            prefix[row, length[row] : length[row] + count[row]] = tokens[row, : count[row]]
        length = before + count
        kept, turns = kept + int(np.maximum(count - 1, 0).sum()), turns + 1
    assert (prefix[:, :LENGTH] == wanted).all()
    assert (np.asarray(state.status) == np.asarray(ended.status)).all()
    assert kept > 10
    assert len(traces) == 1


def test_masks_along_a_draft_are_those_of_the_host(tables, constraints, tokenizer):
    texts = ["yes, be", "[[1],[2]]", "((x))", "[true]"]
    width = tokenizer.vocabulary.size
    drafts = np.full((ROWS, 9), -1, np.int32)
    for row, text in enumerate(texts):
        ids = tokenizer.encode(text)[:9]
        drafts[row, : len(ids)] = ids
    out = np.asarray(jax.jit(mask_along)(tables, begun(tables), jnp.asarray(drafts), jnp.zeros((ROWS, 10, width))))
    for row, which in enumerate([0, 1, 2, 1]):
        walk = constraints[which].walk()
        for place in range(10):
            assert (np.isfinite(out[row, place]) == walk.allowed(LENGTH - place)).all(), (row, place)
            token = drafts[row, place] if place < 9 else -1
            if token < 0 or not walk.allowed()[token]:
                assert not np.isfinite(out[row, place + 1 :]).any() or token < 0
                break
            walk.advance(int(token))


def test_first_tokens_have_the_sampler_s_distribution_whatever_is_drafted(tables, tokenizer):
    width, draws = tokenizer.vocabulary.size, 1_500
    state = jax.tree.map(lambda x: jnp.repeat(x[:1], draws, 0), begun(tables))
    logits = 2 * jax.random.normal(jax.random.key(2), (1, 2, width))
    allowed = np.isfinite(np.asarray(mask_along(tables, begun(tables), jnp.full((ROWS, 1), -1), jnp.zeros((ROWS, 2, width))))[0, 0])
    p = np.where(allowed, np.exp(np.asarray(logits[0, 0], np.float64)), 0)
    p /= p.sum()
    drafts = np.random.default_rng(3).choice(np.flatnonzero(allowed), (draws, 1)).astype(np.int32)
    every = jnp.broadcast_to(logits, (draws, 2, width))
    noise = {"key": key_words(jax.random.split(jax.random.key(9), draws)), "step": jnp.zeros(draws, jnp.int32)}
    found = jax.jit(verify_drafts)(tables, state, jnp.asarray(drafts), every, sampler=jax_decode.Categorical(), **noise)
    seen = np.bincount(np.asarray(found.tokens[:, 0]), minlength=width) / draws
    likely = p > 5 / draws
    error = np.sqrt(p[likely] * (1 - p[likely]) / draws)
    assert (np.abs(seen[likely] - p[likely]) < 5 * error).all()
    assert (np.asarray(found.written) == 2).any()


def test_a_server_s_own_greedy_rule_is_right_under_masks_along_a_draft(tables, tokenizer):
    """Drafts are kept up to the first that is not the best token of its place, which is written in its stead."""
    width, state = tokenizer.vocabulary.size, begun(tables)
    wanted, _ = one_by_one(tables, state, jax_decode.Greedy(), jnp.zeros((ROWS, 2), jnp.uint32), width)
    for right in range(DRAFTS + 1):
        drafts = wanted[:, :DRAFTS].copy()
        drafts[:, right : right + 1] = 7  # allowed in some rows, forbidden in others
        texts = np.pad(drafts, ((0, 0), (0, LENGTH - DRAFTS)), constant_values=-1)
        logits = jnp.stack([model(width, jnp.asarray(texts), jnp.full(ROWS, i)) for i in range(DRAFTS + 1)], 1)
        best = np.asarray(jax.jit(mask_along)(tables, state, jnp.asarray(drafts), logits)).argmax(-1)
        for row in range(ROWS):
            kept = next((i for i in range(DRAFTS) if best[row, i] != drafts[row, i]), DRAFTS)
            assert kept >= min(right, np.argmin(np.append(wanted[row], -1) >= 0))
            assert best[row, : kept + 1].tolist() == wanted[row, : kept + 1].tolist() or wanted[row, kept] < 0


def test_a_server_s_own_rule_of_sampling_is_right_under_masks_along_a_draft(tables, tokenizer):
    """A draft is kept as often as the target would draw it; in its stead, one of the others is drawn as the target would."""
    width, draws, rng = tokenizer.vocabulary.size, 1_500, np.random.default_rng(4)
    logits = 2 * jax.random.normal(jax.random.key(2), (1, 2, width))
    likely = np.asarray(mask_along(tables, begun(tables), jnp.full((ROWS, 1), -1), jnp.broadcast_to(logits, (ROWS, 2, width))))[0, 0]
    drafts = rng.choice([*np.argsort(likely)[-3:], 7, 9], (draws, 1)).astype(np.int32)  # two of them forbidden
    state = jax.tree.map(lambda x: jnp.repeat(x[:1], draws, 0), begun(tables))
    masked = jax.jit(mask_along)(tables, state, jnp.asarray(drafts), jnp.broadcast_to(logits, (draws, 2, width)))
    p = np.asarray(jax.nn.softmax(masked[:, 0]), np.float64)
    row = np.arange(draws)
    kept = rng.random(draws) <= p[row, drafts[:, 0]]
    rest = p.copy()
    rest[row, drafts[:, 0]] = 0
    other = (rest.cumsum(1) > rng.random((draws, 1)) * rest.sum(1, keepdims=True)).argmax(1)
    seen = np.bincount(np.where(kept, drafts[:, 0], other), minlength=width) / draws
    exact = np.exp(likely - likely.max(), dtype=np.float64)
    exact /= exact.sum()
    assert not seen[exact == 0].any()
    assert not kept[np.isin(drafts[:, 0], np.flatnonzero(exact == 0))].any()
    common = exact > 5 / draws
    assert (np.abs(seen - exact)[common] < 5 * np.sqrt(exact * (1 - exact) / draws)[common]).all()
    after = np.asarray(masked[:, 1])
    assert np.isfinite(after[kept]).any(1).all()
    assert not np.isfinite(after[exact[drafts[:, 0]] == 0]).any()


def test_arguments_that_do_not_go_together(tables, tokenizer):
    state, width = begun(tables), tokenizer.vocabulary.size
    with pytest.raises(DecodeError, match="one more place than drafts"):
        verify_drafts(tables, state, jnp.zeros((ROWS, 2), jnp.int32), jnp.zeros((ROWS, 2, width)))
    with pytest.raises(DecodeError, match="no noise"):
        verify_drafts(tables, state, jnp.zeros((ROWS, 1), jnp.int32), jnp.zeros((ROWS, 2, width)), sampler=jax_decode.Categorical())
