"""Drafts that are kept or not by rejection sampling leave the distribution of the texts as it is, however bad they are."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import exact_texts, hand_made
from oracles import hand_pushdown as by_hand
from oracles.block_decoder import block_toy, disturbed

import jax_decode
from jax_decode import Categorical, MinP, ModelDraft, PromptLookup, TopK, TopP

SIZE, LIMIT, PROMPT = len(by_hand.COUNTED_TOKENS), 4, [3, 1]
DECODER = block_toy(SIZE, seed=2, scale=0.7)
BAD = block_toy(SIZE, seed=7, scale=1.0)
REPEATED = hand_made.repeated([1, 2, 3, 5, 8], 1, 4, SIZE)
"""1 to 4 of five tokens: 780 texts; the last of four is the end of the budget, the shorter ones end with a stop id."""
EVERY = [(REPEATED, LIMIT), (dataclasses.replace(by_hand.counted(1, 3), fingerprint=REPEATED.fingerprint), 7)]
"""Constraints and limits; decoded side by side, so that one program serves both."""
CASES = [
    (Categorical(1.5), {"draft": ModelDraft(disturbed(DECODER, 0.7), 3)}),
    (TopK(3), {"draft": ModelDraft(BAD, 3)}),
]
ALL_CASES = [
    (sampler, {"draft": ModelDraft(draft, length, share_penalties=shared), "forced": forced})
    for sampler in (Categorical(1.5), TopK(3), TopP(0.85, 1.2), MinP(0.3))
    for length, shared, forced in ((1, True, 0), (3, True, 4), (7, True, 0), (3, False, 0))
    for draft in (disturbed(DECODER, 0.7), BAD)
] + [
    (Categorical(1.5), {"draft": PromptLookup(3)}),
    (Categorical(1.5), {"draft": ModelDraft(BAD, 3, same_noise=True), "forced": 2}),
]


def sampled(every, sampler, options, draws):
    """Texts with their stop tokens, of each constraint, and what making them cost."""
    constraints, limits = zip(*every)
    out = jax_decode.generate(
        DECODER, [PROMPT] * len(every), jax_decode.to_device(constraints), constraint=list(range(len(every))), key=jax.random.key(11),
        max_new_tokens=list(limits), sampler=sampler, num_samples=draws, raw_logprobs=False, **options,
    )  # fmt: skip
    ends = [[] if stop is None else [stop] for stop in out.stop_token]
    texts = [(*tokens.tolist(), *end) for tokens, end in zip(out.tokens, ends)]
    return [texts[i * draws : i * draws + draws] for i in range(len(every))], out


def test_the_distribution_is_exact(exhaustive):
    """Total variation within the sampling error: 5,000 draws of two cases; in full, 20,000 draws of all and of two constraints."""
    for sampler, options in ALL_CASES if exhaustive else CASES:
        every = EVERY if exhaustive else EVERY[:1]
        texts, out = sampled(every, sampler, options, 20_000 if exhaustive else 5_000)
        for found, (constraint, limit) in zip(texts, every):
            exact = exact_texts.distribution(DECODER, PROMPT, constraint, limit, sampler)
            assert sum(exact.values()) == pytest.approx(1)
            distance, bound = exact_texts.distance(exact, found)
            assert distance < bound, (sampler, options)
        assert 0 < out.work.acceptance_rate < 1
        assert out.passes_per_token < 1


def test_the_distance_finds_another_distribution():
    """What the draft alone would write, and what the target would write at another temperature, are outside the bound."""
    (texts,), _ = sampled(EVERY[:1], Categorical(1.5), CASES[0][1], 5_000)
    for decoder, sampler in ((disturbed(DECODER, 0.7), Categorical(1.5)), (DECODER, Categorical(1.0))):
        found, bound = exact_texts.distance(exact_texts.distribution(decoder, PROMPT, REPEATED, LIMIT, sampler), texts)
        assert found > bound


def next_logits(decoder, texts):
    """float64[n, V], logits after each of some texts of one length."""
    tokens = jnp.array(texts, jnp.int32)
    logits, _ = decoder.apply(tokens, decoder.init_cache(len(texts), 16), jnp.full(len(texts), tokens.shape[1], jnp.int32))
    return np.asarray(logits[:, -1], np.float64)


def acceptance(target, draft, sampler, draws, bias):
    """The rate at which drafts of one token are accepted, what it should be, and what it would be with that bias, both ways.

    A draft per text: the second token, after every first one. At most 30,000 texts at a time.
    """
    size, batch = target.vocab_size, min(draws, 30_000)
    accepted, every = 0, np.ones(size, bool)
    for part in range(draws // batch):
        out = jax_decode.generate(
            target, [[0, 1]], key=jax.random.key(part), max_new_tokens=2, sampler=sampler, num_samples=batch, stop_ids=[],
            draft=ModelDraft(draft, 1), raw_logprobs=False,
        )  # fmt: skip
        assert (out.work.drafted == 1).all()
        accepted += int(out.work.accepted.sum())
    first = exact_texts.drawn(sampler, next_logits(target, [[0, 1]])[0], every)
    texts = [[0, 1, token] for token in range(size)]
    pairs = zip(next_logits(target, texts), next_logits(draft, texts))
    both = [(exact_texts.drawn(sampler, p, every), exact_texts.drawn(sampler, q, every)) for p, q in pairs]
    rates = [first @ [np.minimum(q, p * np.exp(shift)).sum() for p, q in both] for shift in (-bias, 0, bias)]
    return accepted / draws, rates[1], (rates[0], rates[2])


@pytest.mark.parametrize(("sampler", "model"), [(Categorical(1.5), (5, 7, 3.0)), (TopP(0.9), (5, 1, 2.0))], ids=repr)
@pytest.mark.exhaustive
def test_the_rate_of_acceptance_is_exact(sampler, model, exhaustive):
    """A bias of 0.02 in the log-ratio is more than five standard errors, and 0.01 in full.

    On five tokens, with a draft so decided that a draft is nearly always the same token: then rates vary least. In full also over
    the larger vocabulary, with the draft of the other tests, whose rates need a million draws.
    """
    target = block_toy(*model)
    cases = [(target, dataclasses.replace(target, params=jax.tree.map(lambda x: x * 40, target.params)), 30_000 if exhaustive else 7_500)]
    if exhaustive:
        cases.append((DECODER, disturbed(DECODER, 0.7), 1_500_000))
    for decoder, draft, draws in cases:
        found, expected, biased = acceptance(decoder, draft, sampler, draws, 0.01 if exhaustive else 0.02)
        error = np.sqrt(expected * (1 - expected) / draws)
        assert min(abs(rate - expected) for rate in biased) > 5 * error, (expected, biased, error)
        assert abs(found - expected) < 3 * error


def test_a_draft_like_the_target_is_always_accepted():
    (texts,), out = sampled(EVERY[:1], Categorical(1.5), {"draft": ModelDraft(DECODER, 3)}, 5_000)
    assert out.work.acceptance_rate > 0.9999  # but for rounding: a block's logits may differ in the last bit
    assert len(set(texts)) > 200
