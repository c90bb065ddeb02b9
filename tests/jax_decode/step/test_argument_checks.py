"""Mistakes in a loop of one's own: each is an error while tracing, and says what to pass."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
from jax_decode import Categorical, DecodeError, Greedy

VOCABULARY = fsa_compile.Vocabulary.from_tokens([b"a", b"b", b"ab", b"(", b")", b"c", b""], stop_ids=[6])
TABLES = jax_decode.to_device(fsa_compile.compile_regex("(ab|c)+", VOCABULARY))
NESTED = jax_decode.to_device(fsa_compile.compile_grammar('start: "(" start ")" | "a"', VOCABULARY))
ROWS = jnp.zeros(2, jnp.int32)
STATE = jax_decode.init_state(TABLES, ROWS, 8)
LOGITS = jnp.zeros((2, 7), jnp.float32)
TOKENS = jnp.array([0, 5], jnp.int32)
WORDS = jax_decode.key_words(jax.random.split(jax.random.key(0), 2))
STEP = jnp.zeros(2, jnp.uint32)

DECODER = toy(7)
CACHE = DECODER.init_cache(2, 4)

MISTAKES = {
    "logits with an axis too many": (lambda: jax_decode.mask_logits(TABLES, STATE, LOGITS[:, None]), r"\(2, 1, 7\).*logits\[:, -1\]"),
    "logits without rows": (lambda: jax_decode.mask_logits(TABLES, STATE, LOGITS[0]), r"logits\[None\]"),
    "narrow logits": (lambda: jax_decode.mask_logits(TABLES, STATE, LOGITS[:, :5]), "5 columns.*7 ids"),
    "logits of other rows": (lambda: jax_decode.mask_logits(TABLES, STATE, jnp.zeros((3, 7), jnp.float32)), "3 rows, and the state has 2"),
    "whole numbers as logits": (lambda: jax_decode.mask_logits(TABLES, STATE, jnp.zeros((2, 7), jnp.int32)), r"int32\[2, 7\], not floating"),
    "a list as logits": (lambda: jax_decode.mask_logits(TABLES, STATE, [[0.0] * 7] * 2), "a list, not floating"),
    "state and tables swapped": (lambda: jax_decode.mask_logits(STATE, TABLES, LOGITS), r"Write mask_logits\(tables, state"),
    "swapped in mask": (lambda: jax_decode.mask(STATE, TABLES), r"Write mask\(tables, state"),
    "swapped in mask_words": (lambda: jax_decode.mask_words(STATE, TABLES), r"Write mask_words\(tables, state"),
    "swapped in advance": (lambda: jax_decode.advance(STATE, TABLES, TOKENS), r"Write advance\(tables, state"),
    "state and logits swapped": (lambda: jax_decode.mask_logits(TABLES, LOGITS, STATE), "the state is a ArrayImpl"),
    "an artifact as tables": (lambda: jax_decode.mask(fsa_compile.compile_regex("a", VOCABULARY), STATE), "to_device"),
    "no state": (lambda: jax_decode.mask(TABLES, None), "the state is a NoneType"),
    "a state of other tables": (lambda: jax_decode.mask(NESTED, STATE), "made from other tables"),
    "a narrow mask": (lambda: jax_decode.mask(TABLES, STATE, width=5), "below the vocabulary's 7"),
    "one token for two rows": (lambda: jax_decode.advance(TABLES, STATE, TOKENS[:1]), r"shape \(1,\), the state has 2 rows"),
    "a token alone": (lambda: jax_decode.advance(TABLES, STATE, jnp.int32(0)), r"shape \(\)"),
    "a column of tokens": (lambda: jax_decode.advance(TABLES, STATE, TOKENS[:, None]), r"shape \(2, 1\)"),
    "tokens as floats": (lambda: jax_decode.advance(TABLES, STATE, TOKENS.astype(jnp.float32)), "float32.*not whole numbers"),
    "a list of tokens": (lambda: jax_decode.advance(TABLES, STATE, [0, 5]), "a list, not whole numbers"),
    "an index out of range": (lambda: jax_decode.init_state(TABLES, jnp.array([0, 1], jnp.int32), 8), "no constraint 1 among 1"),
    "an index below -1": (lambda: jax_decode.init_state(TABLES, jnp.array([-2], jnp.int32), 8), "no constraint -2"),
    "a number as indices": (lambda: jax_decode.init_state(TABLES, 0, 8), r"jnp\.zeros\(B, jnp\.int32\)"),
    "floats as indices": (lambda: jax_decode.init_state(TABLES, jnp.zeros(2, jnp.float32), 8), "indices are float32"),
    "limits of other rows": (lambda: jax_decode.init_state(TABLES, ROWS, jnp.array([8, 8, 8], jnp.int32)), r"limits has shape \(3,\) for 2 rows"),
    "less than no room": (lambda: jax_decode.init_state(TABLES, ROWS, -1), "a limit is -1"),
    "limits as floats": (lambda: jax_decode.init_state(TABLES, ROWS, 8.5), "limits are no whole numbers"),
    "stop ids of one row": (lambda: jax_decode.init_state(TABLES, ROWS, 8, jnp.array([6], jnp.int32)), r"stop_ids has shape \(1,\)"),
    "an artifact in init_state": (lambda: jax_decode.init_state(fsa_compile.compile_regex("a", VOCABULARY), ROWS, 8), "to_device"),
    "a key for words": (lambda: jax_decode.sample(Greedy(), LOGITS, jax.random.key(0), STEP, TABLES, STATE), "key_words"),
    "words of one key": (lambda: jax_decode.sample(Greedy(), LOGITS, WORDS[:1], STEP, TABLES, STATE), r"not uint32\[2, 2\]"),
    "logits of one row": (lambda: jax_decode.sample(Greedy(), LOGITS[:1], WORDS, STEP, TABLES, STATE), "1 rows, and the state has 2"),
    "steps of another kind": (lambda: jax_decode.sample(Greedy(), LOGITS, WORDS, STEP.astype(jnp.int32), TABLES, STATE), r"int32\[2\], not uint32\[2\]"),
    "a number as a step": (lambda: jax_decode.sample(Greedy(), LOGITS, WORDS, 3, TABLES, STATE), "a int, not uint32"),
    "a seed for words of keys": (lambda: jax_decode.key_words(0), r"a int, not one PRNG key per row.*split\(key, B\)"),
    "one key for words of keys": (lambda: jax_decode.key_words(jax.random.key(0)), "not one PRNG key per row"),
    "words for words of keys": (lambda: jax_decode.key_words(jnp.zeros((2, 3), jnp.uint32)), r"uint32\[2, 3\], not"),
    "a text as a width": (lambda: jax_decode.mask(TABLES, STATE, width="9"), "the width is '9'"),
    "no tables to force": (lambda: jax_decode.only_token(None, STATE), "to_device"),
    "swapped in only_token": (lambda: jax_decode.only_token(STATE, TABLES), r"Write only_token\(tables, state"),
    "swapped in longest_spelling": (lambda: jax_decode.longest_spelling(STATE, TABLES), r"Write longest_spelling\(tables, state"),
    "a single row to fork": (lambda: jax_decode.fork(STATE, 1), "parent is a single number"),
    "a row to fork that is not there": (lambda: jax_decode.fork(STATE, jnp.array([0, 2], jnp.int32)), "parent is 2, and the state has 2 rows.*from 0 to 1"),
    "a row to take that is not there": (lambda: jax_decode.take_rows(STATE, [-1]), "rows is -1"),
    "a row to move that is not there": (lambda: jax_decode.move_row(STATE, 2, 0), "source is 2"),
    "a place to move to that is not there": (lambda: jax_decode.move_row(STATE, 0, 2), "target is 2"),
    "a row to swap that is not there": (lambda: jax_decode.swap_rows(STATE, 0, 2), "other is 2"),
    "a row to put that is not there": (lambda: jax_decode.put_row(STATE, 0, STATE, 2), "source is 2"),
    "a place below the first": (lambda: jax_decode.put_row(STATE, -1, STATE), "row is -1"),
    "no decoder of a cache": (lambda: jax_decode.fork_cache(None, CACHE, ROWS), "the decoder is None"),
    "another cache": (lambda: jax_decode.fork_cache(DECODER, {}, ROWS), "not one of the decoder's"),
    "no rows of a cache": (lambda: jax_decode.fork_cache(DECODER, CACHE, None), "parent is no rows' numbers"),
    "no length of a cache": (lambda: jax_decode.fork_cache(DECODER, CACHE, ROWS, length=0), "the length is 0"),
    "a row of a cache that is not there": (lambda: jax_decode.fork_cache(DECODER, CACHE, jnp.array([0, 2], jnp.int32)), "parent is 2, and the cache has 2 rows"),
    "a row of a cache below the first": (lambda: jax_decode.fork_cache(DECODER, CACHE, jnp.array([-1], jnp.int32)), "parent is -1"),
    "less than no stack": (lambda: jax_decode.init_state(NESTED, ROWS, 8, max_depth=-1), "max_depth is -1"),
    "a position of other rows": (lambda: jax_decode.rewind(STATE, jax_decode.fork(STATE, [0]).position), r"node has shape \(1, 1\) in the position"),
    "a position of other tables": (lambda: jax_decode.rewind(STATE, jax_decode.init_state(NESTED, ROWS, 8).position), r"top has shape \(2, 1\)"),
    "no size to warm up": (lambda: jax_decode.warm_up(DECODER, batch=None), "batch is None"),
    "a text as a size": (lambda: jax_decode.warm_up(DECODER, prompt="64"), "prompt is '64'"),
    "threads": (lambda: jax_decode.warm_up(DECODER, threads=0), "threads is 0"),
    "a text as a vocabulary": (lambda: jax_decode.warm_up(DECODER, profile="regular", vocabulary="gemma"), "the vocabulary is 'gemma'"),
    "no tables to report on": (lambda: jax_decode.step_report(None), "to_device"),
    "no batch to report on": (lambda: jax_decode.step_report(TABLES, batch_size=1.5), "batch_size=1.5"),
    "no width to report on": (lambda: jax_decode.step_report(TABLES, logits_width="9"), "logits_width is '9'"),
    "a width beyond any": (lambda: jax_decode.step_report(TABLES, logits_width=2**31 - 1), "at most 4,194,304"),
    "more logits than memory": (lambda: jax_decode.step_report(TABLES, batch_size=1 << 16, logits_width=1 << 22), "and the devices have"),
    "no tokens of logits": (lambda: jax_decode.token_logprobs(LOGITS[:, None], None, TABLES), "tokens are no whole numbers"),
    "constraints of other rows": (lambda: jax_decode.token_logprobs(LOGITS[:, None], TOKENS[:, None], TABLES, which=[0, 0, 0]), r"which has shape \(3,\)"),
    "fractions as constraints": (lambda: jax_decode.token_logprobs(LOGITS[:, None], TOKENS[:, None], TABLES, which=[0.5, 0]), "which are no whole"),
    "no log-probabilities": (lambda: jax_decode.importance_weights(None), "a NoneType, not two float"),
    "one of the log-probabilities": (lambda: jax_decode.sampled_log_mass(LOGITS), "not two float"),
    "a group of all": (lambda: jax_decode.importance_weights((LOGITS, LOGITS), 1), r"groups has shape \(\) for 2 rows"),
    "an open file's number": (lambda: jax_decode.load_programs(True), "True is no path"),
    "a number as a folder": (lambda: jax_decode.keep_programs(5), "5 is no path"),
    "too many rows to warm up": (lambda: jax_decode.warm_up(DECODER, batch=[10**6], threads=1), "1,000,000 rows of 128 tokens"),
    "a text as a flag": (lambda: jax_decode.sample(Greedy(), LOGITS, WORDS, STEP, TABLES, STATE, with_raw="no"), "with_raw is 'no'.*True or False"),
    "a class as sampler": (lambda: jax_decode.sample(Categorical, LOGITS, WORDS, STEP, TABLES, STATE), "the sampler is"),
}  # fmt: skip


OF_VALUES = {"an index out of range", "an index below -1", "a row to fork that is not there", "a row of a cache that is not there", "a row of a cache below the first"}


@pytest.mark.parametrize(
    ("mistake", "traced"), [(name, traced) for name in MISTAKES for traced in (False, True) if not (traced and name in OF_VALUES)]
)
def test_mistakes(mistake, traced):
    """Inside `jax.jit` as well, but for values, which nobody knows there."""
    call, says = MISTAKES[mistake]
    with pytest.raises(DecodeError) as caught:
        (jax.jit(call) if traced else call)()
    assert re.search(says, str(caught.value).replace("\n", " ")), str(caught.value)
    assert caught.value.fix


def test_values_are_not_looked_at_inside_jit():
    which = jax.jit(lambda which: jax_decode.init_state(TABLES, which, 8).node)(jnp.array([0, 5], jnp.int32))
    assert which.shape == (2, 1)


def test_lists_are_arrays():
    state = jax_decode.init_state(TABLES, [0, -1], [8, 7], [[6], [6]])
    assert state.remaining.tolist() == [8, 7]


def test_right_arguments_pass_everywhere():
    @jax.jit
    def step(state, logits, words):
        choice = jax_decode.sample(Categorical(0.7), logits, words, STEP, TABLES, state)
        masked = jax_decode.mask_logits(TABLES, state, logits)
        return jax_decode.advance(TABLES, state, choice.token), masked, jax_decode.mask(TABLES, state, width=9)

    after, masked, wide = step(STATE, LOGITS, WORDS)
    assert masked.shape == (2, 7)
    assert wide.shape == (2, 9)
    assert after.remaining.tolist() == [7, 7]
    each = jax.vmap(lambda which: jax_decode.init_state(TABLES, which[None], 8).node)(ROWS)
    assert each.shape == (2, 1, 1)
    assert jax_decode.advance(None, STATE, TOKENS).status.tolist() == [0, 0]


def test_a_state_says_how_its_rows_stand():
    after = jax_decode.advance(TABLES, STATE, jnp.array([5, 0], jnp.int32))
    assert repr(after) == "ConstraintState(2 rows: RUNNING (7 left), RUNNING (7 left))"
    assert (
        repr(jax_decode.advance(TABLES, after, jnp.array([6, 0], jnp.int32)))
        == "ConstraintState(2 rows: ACCEPTED (6 left), DEAD_END (6 left))"
    )
    assert repr(jax_decode.init_state(TABLES, ROWS[:1])) == "ConstraintState(1 row: RUNNING)"
    seen = []
    jax.jit(lambda state: seen.append(repr(state)) or state.node)(STATE)
    assert seen == ["ConstraintState(2 rows, traced)"]
