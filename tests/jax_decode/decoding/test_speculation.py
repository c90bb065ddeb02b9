"""Drafts and forced runs change what decoding costs, not what it gives: the same text, token for token, where draws are the same."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from oracles import mixed_constraints as mixed
from oracles.block_decoder import block_toy, disturbed

import jax_decode
from jax_decode import Categorical, ModelDraft, PromptLookup, Status, TopP

DECODER = block_toy(mixed.SIZE, scale=1.5)
DRAFT = disturbed(DECODER, 1.0)
KEY = jax.random.key(4)


def requests(constraints, each: int):
    """Prompts, constraints and limits of `each` rows per constraint: limits from the tightest on, so that windows outlast them."""
    rng = np.random.default_rng(each)
    which = [i for i in range(len(constraints)) for _ in range(each)]
    prompts = [rng.integers(1, mixed.SIZE, rng.integers(1, 9)).tolist() for _ in which]
    limits = [max(constraints[w].shortest_completion, 1) + int(rng.integers(0, 24)) for w in which]
    return prompts, {"constraint": which, "max_new_tokens": limits, "max_depth": 8, "key": KEY}


def assert_same(plain, other):
    """Every token, every status, every log-probability."""
    assert [t.tolist() for t in other.tokens] == [t.tolist() for t in plain.tokens]
    assert other.status == plain.status
    assert other.stop_token == plain.stop_token
    for name in ("logprobs", "raw_logprobs"):
        for a, b in zip(getattr(other, name), getattr(plain, name)):
            np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_allclose(other.raw_total_logprob, plain.raw_total_logprob, atol=2e-4)
    np.testing.assert_allclose(other.total_logprob, plain.total_logprob, atol=2e-4)


def test_greedy_with_drafts_is_greedy(exhaustive):
    """Regular, pushdown and counted constraints in one batch; in full, 200 prompts of each of ten constraints."""
    constraints = mixed.regular() + mixed.with_stacks() + (mixed.ambiguous() if exhaustive else [])
    tables = jax_decode.to_device(constraints)
    prompts, options = requests(constraints, 200 if exhaustive else 6)
    plain = jax_decode.generate(DECODER, prompts, tables, **options)
    assert set(plain.status) == {Status.ACCEPTED}
    modes = [{"draft": ModelDraft(DRAFT, 3), "forced": 4}]
    if exhaustive:
        modes += [
            {"forced": 8},
            {"draft": PromptLookup(5)},
            {"draft": PromptLookup(5), "forced": 3},
            {"draft": ModelDraft(DRAFT, 7)},
        ]
        modes += [{"draft": ModelDraft(DRAFT, 3, share_penalties=False), "forced": 4}]
    for mode in modes:
        drafted = jax_decode.generate(DECODER, prompts, tables, **options, **mode)
        assert_same(plain, drafted)
        assert drafted.passes_per_token < plain.passes_per_token == 1.0
        work = drafted.work
        taken = drafted.lengths + [stop is not None for stop in drafted.stop_token]
        assert (work.accepted <= work.drafted).all()
        # Every token was forced, drafted and accepted, or chosen by a pass; a pass after the end scores what was forced there.
        chosen = taken - work.forced - work.accepted
        assert (chosen >= 0).all()
        assert (work.target_passes <= chosen + 1).all()
        if "draft" in mode and isinstance(mode["draft"], ModelDraft):
            assert (work.draft_passes == work.drafted).all()
            assert 0.1 < work.acceptance_rate < 1


@pytest.mark.parametrize("sampler", [Categorical(1.5), TopP(0.9, 0.7)], ids=repr)
def test_the_same_noise_gives_the_same_text(sampler, exhaustive):
    """The sample of this is `test_forced`'s."""
    if not exhaustive:
        pytest.skip("runs with --exhaustive")
    constraints = mixed.regular() + mixed.with_stacks() + mixed.ambiguous()
    tables = jax_decode.to_device(constraints)
    prompts, options = requests(constraints, 40)
    plain = jax_decode.generate(DECODER, prompts, tables, sampler=sampler, **options)
    for mode in (
        {"draft": PromptLookup(4), "forced": 3},
        {"draft": ModelDraft(DRAFT, 3, same_noise=True), "forced": 4},
        {"draft": ModelDraft(DRAFT, 7, same_noise=True)},
        {"draft": ModelDraft(DRAFT, 5, share_penalties=False, same_noise=True)},
        {"forced": 4},
    ):
        assert_same(plain, jax_decode.generate(DECODER, prompts, tables, sampler=sampler, **options, **mode))
