"""Drafts and then answers in one program, against `generate` called once for each."""

from __future__ import annotations

import collections
import dataclasses

import jax
import numpy as np
import pytest
from oracles import hand_made
from oracles import hand_pushdown as by_hand
from oracles.block_decoder import block_toy

import jax_decode
from jax_decode import Categorical, DecodeError, Greedy, Status

SIZE = 12
CONSTRAINTS = [hand_made.random_constraint(i, SIZE, num_nodes=6) for i in (3, 12)]
TABLES = jax_decode.to_device(CONSTRAINTS)
WIDTH = SIZE + 4
"""Logits of the models: the last ones belong to no token, and drafts have none of them either."""
DECODER = block_toy(WIDTH, seed=2)
PROMPTS = [[1, 2], [3, 4, 5], [1], [7, 2, 2]]
BRIDGE, ENDS, FREE = [5, 6, 7], [9], [None] * 4


def run(sampler=Greedy(), prompts=PROMPTS, **options):  # noqa: B008
    options = {"bridge": BRIDGE, "draft_stop_ids": ENDS, "constraint": [0, 1, 1, 0], "max_draft_tokens": 2} | options
    return jax_decode.draft_then_constrain(
        DECODER, prompts, TABLES, key=jax.random.key(3), max_new_tokens=5, sampler=sampler, **options
    )


@pytest.mark.parametrize("bridge", [BRIDGE, []], ids=["bridge", "no bridge"])
def test_draft_and_answer_are_those_of_two_calls(bridge):
    out = run(bridge=bridge)
    assert {Status.FINISHED, Status.TRUNCATED} == set(out.drafts.status)
    stops = sorted({*ENDS, *CONSTRAINTS[0].stop_ids})
    drafts = jax_decode.generate(DECODER, PROMPTS, TABLES, constraint=FREE, max_new_tokens=2, stop_ids=stops)
    np.testing.assert_array_equal(out.drafts.padded, drafts.padded)
    assert out.drafts.stop_token == drafts.stop_token
    prompts = [[*p, *d.tolist(), *bridge] for p, d in zip(PROMPTS, drafts.tokens)]
    answers = jax_decode.generate(DECODER, prompts, TABLES, constraint=[0, 1, 1, 0], max_new_tokens=5)
    assert [t.tolist() for t in out.answers.tokens] == [t.tolist() for t in answers.tokens]
    assert out.answers.status == answers.status == [Status.ACCEPTED] * 4
    for name in ("raw_total_logprob", "total_logprob"):
        np.testing.assert_allclose(getattr(out.answers, name), getattr(answers, name), rtol=1e-4)
        np.testing.assert_allclose(getattr(out.drafts, name), getattr(drafts, name), rtol=1e-4)


def test_samples_are_independent_and_in_the_language():
    out = run(Categorical(1.5), num_samples=50)
    assert set(out.answers.status) == {Status.ACCEPTED}
    drafts = jax_decode.generate(
        DECODER, PROMPTS, TABLES, constraint=FREE, max_new_tokens=2, stop_ids=sorted({*ENDS, *CONSTRAINTS[0].stop_ids}),
        key=jax.random.key(3), sampler=Categorical(1.5), num_samples=50,
    )  # fmt: skip
    assert [t.tolist() for t in out.drafts.tokens] == [t.tolist() for t in drafts.tokens]
    for row, tokens in enumerate(out.answers.tokens):
        walk = CONSTRAINTS[[0, 1, 1, 0][row // 50]].walk()
        for token in tokens:
            walk.advance(int(token))
        assert walk.accepting
    scores = jax_decode.score(
        DECODER, [[*PROMPTS[row // 50], *out.drafts.tokens[row].tolist(), *BRIDGE] for row in range(200)], TABLES,
        tokens=out.answers.tokens, constraint=np.repeat([0, 1, 1, 0], 50).tolist(), max_new_tokens=5,
    )  # fmt: skip
    for mine, theirs in zip(out.answers.raw_logprobs, scores.raw_logprobs):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def two_calls(decoder, tables, options):
    """Drafts and answers as (tokens, stop token, status) of every row, by `generate` called once for each, greedily."""
    stops = sorted({*ENDS, *CONSTRAINTS[0].stop_ids})
    drafts = rows_of(jax_decode.generate(decoder, PROMPTS, tables, constraint=FREE, max_new_tokens=2, stop_ids=stops))
    prompts = [[*prompt, *draft[0], *BRIDGE] for prompt, draft in zip(PROMPTS, drafts)]
    return drafts, rows_of(jax_decode.generate(decoder, prompts, tables, max_new_tokens=5, **options))


def rows_of(out):
    return list(zip([tokens.tolist() for tokens in out.tokens], out.stop_token, out.status))


def test_random_models_some_of_whose_logits_are_no_numbers(tally):
    """A row ends where all that it may take is NaN, without a token that nobody chose; such drafts are answered all the same."""
    ended = collections.Counter()
    for rng in tally.cases(12, least=100):
        seed = rng.randrange(1 << 20)
        constraints = [hand_made.random_constraint(seed + i, SIZE, num_nodes=6) for i in range(2)]
        tables = jax_decode.to_device(constraints, profile=TABLES.profile)
        model, options = block_toy(WIDTH, seed=seed), {"constraint": [0, 1, 1, 0]}
        if any(c.shortest_completion > 5 for c in constraints):
            continue
        odd = np.random.default_rng(seed).random(WIDTH) < rng.choice([0, 0.15, 0.4])
        table = model.params["table"].at[0, odd].set(np.nan)  # behind some last tokens all logits
        if rng.random() < 0.3:
            table = table.at[1, :, ::2].set(np.nan)  # and from the second token on every other one
        model = dataclasses.replace(model, params=model.params | {"table": table})
        out = jax_decode.draft_then_constrain(
            model, PROMPTS, tables, max_draft_tokens=2, max_new_tokens=5, bridge=BRIDGE, draft_stop_ids=ENDS, **options
        )
        found = rows_of(out.drafts), rows_of(out.answers)
        assert found == two_calls(model, tables, options)
        ended.update(status for rows in found for *_, status in rows)
        tally["made"] += 1
        tally["checks"] += SIZE * sum(len(tokens) + 1 for rows in found for tokens, *_ in rows)
    assert min(ended[Status.NOT_A_NUMBER], ended[Status.ACCEPTED]) > 5


def test_stacks(exhaustive):
    if not exhaustive:
        pytest.skip("run by --exhaustive: stacks are another program")
    c = by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS)
    model, tables = block_toy(c.vocab_size, seed=3), jax_decode.to_device(c)
    out = jax_decode.draft_then_constrain(model, [[1], [2]], tables, max_draft_tokens=20, max_new_tokens=6, constraint=[0, 0])
    prompts = [[p, *d.tolist()] for p, d in zip((1, 2), out.drafts.tokens)]
    answers = jax_decode.generate(model, prompts, tables, constraint=[0, 0], max_new_tokens=6)
    assert [t.tolist() for t in out.answers.tokens] == [t.tolist() for t in answers.tokens]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_draft_tokens": 0}, "max_draft_tokens is 0"),
        ({"bridge": [99]}, "id at position 0 of bridge is 99, outside"),
        ({"draft_stop_ids": "a"}, "'draft_stop_ids' is str 'a'"),
    ],
    ids=str,
)
def test_errors(options, message):
    with pytest.raises(DecodeError, match=message):
        run(**options)
