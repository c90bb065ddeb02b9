"""A model whose logits are NaN: no row of it is passed off as text, and no number is made of them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made
from oracles.block_decoder import block_toy

import jax_decode
from jax_decode import Categorical, DecodeError, ModelDraft, PromptLookup, Status

SIZE, POISON = 40, 7
SOUND = block_toy(SIZE, 1, scale=0.5)
TABLES = jax_decode.to_device([hand_made.repeated(range(1, 12), 6, 14, SIZE), hand_made.one_of([[1, 2, 3, 4], [1, 2, 5]], SIZE)])
PROMPTS = [[2], [POISON, 3], [3, 9], [4, POISON], [5], [6]]
WHICH = [0, 0, 0, None, 1, None]
OPTIONS = {"constraint": WHICH, "max_new_tokens": 16, "sampler": Categorical(), "key": jax.random.key(0)}


def poisoned():
    """Once it has read one token, all of its logits are NaN."""
    table = SOUND.params["table"].at[0, POISON].set(jnp.nan)
    return dataclasses.replace(SOUND, params=SOUND.params | {"table": table})


def test_rows_end_before_the_first_token_that_nothing_speaks_for(exhaustive):
    """With drafts and forced runs, too; rows that never meet it, and what was written before, are as ever."""
    sound = jax_decode.generate(SOUND, PROMPTS, TABLES, **OPTIONS)
    modes = [{}, {"forced": 4, "draft": PromptLookup(3)}, {"forced": 4, "draft": ModelDraft(SOUND, 3)}]
    for mode in modes if exhaustive else modes[:2]:
        out = jax_decode.generate(poisoned(), PROMPTS, TABLES, **OPTIONS, **mode)
        for row, prompt in enumerate(PROMPTS):
            text = sound.tokens[row].tolist()
            if prompt[-1] == POISON:
                assert out.status[row] is Status.NOT_A_NUMBER
                assert out.tokens[row].tolist() == []
            elif POISON not in [*prompt, *text[:-1]] and "draft" not in mode:
                assert (out.tokens[row].tolist(), out.status[row]) == (text, sound.status[row])
        met = [POISON in t[:-1].tolist() or (len(t) and t[-1] == POISON) for t in out.tokens]
        for row, status in enumerate(out.status):
            if met[row] and len(out.tokens[row]) < 14 and WHICH[row] != 1:
                assert status is Status.NOT_A_NUMBER
                assert out.tokens[row][-1] == POISON
    assert sum(status is Status.NOT_A_NUMBER for status in out.status) < len(PROMPTS)
    with pytest.raises(DecodeError, match=r"none of the model's logits is a number\n  in row \d\n  Check its parameters"):
        jax_decode.log_weights(jax_decode.generate(poisoned(), PROMPTS, TABLES, **OPTIONS))


def test_beams_that_meet_it_are_given_up():
    out = jax_decode.beam_search(poisoned(), [[2], [POISON]], TABLES, constraint=1, beams=2, max_new_tokens=8)
    assert out.status == [Status.ACCEPTED] * 2 + [Status.NOT_A_NUMBER] * 2
    assert out.found.tolist() == [2, 0]
    assert np.isfinite(out.raw_total_logprob).all()


def test_no_probability_is_made_of_it(exhaustive):
    decoder, given = poisoned(), {"max_new_tokens": 6, "constraint": 1}
    with pytest.raises(DecodeError, match="none of the model's logits is a number\n  before position 0 of sequence 1"):
        jax_decode.score(decoder, [[1], [POISON]], tokens=[[1, 2], [1, 2]])
    with pytest.raises(DecodeError, match="none of the model's logits is a number\n  after prompt 1 or one"):
        jax_decode.log_mass(decoder, [[1], [POISON]], TABLES, **given)
    if not exhaustive:
        return
    with pytest.raises(DecodeError, match="none of the model's logits is a number\n  after prompt 1 or one"):
        jax_decode.generate_smc(decoder, [[1], [POISON]], TABLES, key=jax.random.key(0), particles=3, **given)
