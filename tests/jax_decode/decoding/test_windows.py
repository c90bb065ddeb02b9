"""What ends or changes inside a window of drafts: free text that turns into a constraint, texts, budgets, accepting states."""

from __future__ import annotations

import dataclasses
import re

import jax
import numpy as np
import pytest
from oracles.block_decoder import block_toy, disturbed

import fsa_compile
import jax_decode
from fsa_compile import Vocabulary
from jax_decode import Categorical, ForcedText, Greedy, ModelDraft, PromptLookup, Status

TOKENS = [
    b"x",
    b"y",
    b"<",
    b">",
    b"c",
    b"<c",
    b"c>",
    b"<c>",
    b"x<",
    b">1",
    b"1",
    b"2",
    b"12",
    b"21",
    b"1;",
    b";",
    b"xy",
    b"yx<c>2",
    b"",
]
STOP = len(TOKENS) - 1
VOCABULARY = Vocabulary.from_tokens(TOKENS, stop_ids=[STOP])
UNTIL = re.compile(r"(?:(?!<c>)[\s\S])*<c>[12]{2,9};")
CONSTRAINTS = [
    fsa_compile.compile_grammar('start: %until("<c>") /[12]{2,9}/ ";"', VOCABULARY),
    fsa_compile.compile_regex("[xy]{3,20}", VOCABULARY),
    fsa_compile.compile_regex("(x|y)(12){1,4};(<c>1)*", VOCABULARY),
]
DRAFT, EACH = 7, 24
KINDS = {
    "until": (0, [STOP]),
    "accepting all the way": (1, [STOP]),
    "forced in between": (2, [STOP]),
    "no stop token": (1, []),
    "no constraint": (None, [STOP]),
}


def writer(vocabulary: Vocabulary = VOCABULARY):
    """Likes to end, and the trigger."""
    decoder = block_toy(vocabulary.size, 3, scale=0.7)
    table = decoder.params["table"].at[0, :, STOP].add(0.7).at[0, :, TOKENS.index(b"c>")].add(1.0)
    return dataclasses.replace(decoder, params=decoder.params | {"table": table.at[0, :, TOKENS.index(b"<c>")].add(1.5)})


def decode(decoder, sampler, limits, *, texts_known=True, **options):
    which = [which for which, _ in KINDS.values() for _ in range(EACH)]
    stops = [stops for _, stops in KINDS.values() for _ in range(EACH)]
    prompts = [[1 + i % 15, i % 7] for i in range(len(which))]
    tables = jax_decode.to_device(CONSTRAINTS, vocabulary=VOCABULARY if texts_known else None)
    return jax_decode.generate(
        decoder, prompts, tables, constraint=which, stop_ids=stops, max_new_tokens=limits, sampler=sampler, num_samples=2,
        key=jax.random.key(5), raw_logprobs=False, **options,
    )  # fmt: skip


def inside(place: int) -> bool:
    """Whether the token there and the next one are drafted, when all drafts are kept: a pass chooses every eighth."""
    return place % (DRAFT + 1) not in (0, DRAFT)


@pytest.fixture(scope="module")
def plain(exhaustive):
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        limits = [8 + i % 23 for i in range(len(KINDS) * EACH)]
        decoder = writer()
        return (
            decoder,
            limits,
            {sampler: decode(decoder, sampler, limits) for sampler in (Categorical(1.1), Greedy())[: 1 + exhaustive]},
        )


def rows_of(kind: str) -> range:
    first = list(KINDS).index(kind) * EACH * 2
    return range(first, first + EACH * 2)


def test_windows_hold_every_kind_of_end(plain):
    """Of the very windows that the next tests draft: with a draft model that is right about everything, whole ones are kept."""
    decoder, limits, texts = plain
    draft = ModelDraft(decoder, DRAFT, same_noise=True)
    out = decode(decoder, Categorical(1.1), limits, texts_known=False, draft=draft)
    assert out.work.acceptance_rate == 1
    assert [t.tolist() for t in out.tokens] == [t.tolist() for t in texts[Categorical(1.1)].tokens]
    switched = stopped = cut = complete = finished = 0
    for row in range(len(out)):
        count, status = len(out.tokens[row]), out.status[row]
        if row in rows_of("until"):
            assert UNTIL.fullmatch(VOCABULARY.decode(out.tokens[row].tolist()))
            trigger = next(n for n in range(count) if "<c>" in VOCABULARY.decode(out.tokens[row][: n + 1].tolist()))
            switched += inside(trigger)
        if status is Status.ACCEPTED:
            stopped += out.stop_token[row] == STOP and inside(count)
            cut += count == limits[row // 2] and inside(count - 1)
            complete += row in rows_of("no stop token") and count < limits[row // 2] and inside(count - 1)
        finished += status is Status.FINISHED and inside(count)
    assert min(switched, stopped, cut, complete, finished) >= 3, (switched, stopped, cut, complete, finished)


MODES = {
    "a bad model": {"draft": ModelDraft(disturbed(writer(), 1.0), DRAFT, same_noise=True), "texts_known": False},
    "a bad model after forced text": {"draft": ModelDraft(disturbed(writer(), 1.0), DRAFT, same_noise=True)},
    "a bad model without penalties": {"draft": ModelDraft(disturbed(writer(), 1.0), 5, False, same_noise=True), "forced": 3},
    "lookup": {"draft": PromptLookup(DRAFT), "forced": 4},
    "forced text": {"draft": ForcedText(DRAFT)},
    "forced": {"forced": 4},
}


@pytest.mark.parametrize("mode", MODES)
def test_the_text_is_the_plain_one(mode, plain, exhaustive):
    """Tokens, ends and log-probabilities of every row and of both samples of a prompt.

    The sample of this has the program of the test before; `test_forced` and `test_speculation` have the other kinds.
    """
    decoder, limits, texts = plain
    if not exhaustive and mode != "a bad model":
        pytest.skip("run with --exhaustive")
    for sampler, want in texts.items():
        out = decode(decoder, sampler, limits, **MODES[mode])
        assert [t.tolist() for t in out.tokens] == [t.tolist() for t in want.tokens]
        assert out.status == want.status
        assert out.stop_token == want.stop_token
        np.testing.assert_allclose(out.total_logprob, want.total_logprob, atol=2e-4)
        assert out.passes_per_token < 1
        drafted = out.work.drafted.sum()
        assert drafted == 0 if mode == "forced" else 0 < out.work.accepted.sum() < drafted


def test_what_is_forced_at_the_beginning_costs_no_pass_of_its_own(exhaustive):
    """It enters with the prompt; a text that is forced as a whole takes that one pass."""
    tables = jax_decode.to_device([fsa_compile.compile_regex(p, VOCABULARY) for p in (">>>>>>>>>>", ">>>>>>[xy]{2}")])
    options = {"constraint": [0, 1], "max_new_tokens": 16, "num_samples": 2, "sampler": Categorical(), "key": jax.random.key(1)}
    for run, passes in ((16, 1), (3, 4)) if exhaustive else ((16, 1),):  # eleven tokens, the stop token among them
        out = jax_decode.generate(writer(), [[1], [2, 3]], tables, forced=run, raw_logprobs=False, **options)
        assert out.status == [Status.ACCEPTED] * 4
        assert [VOCABULARY.decode(t.tolist()) for t in out.tokens[:2]] == [">" * 10] * 2
        assert out.stop_token[:2] == [STOP] * 2
        assert out.work.target_passes[:2].tolist() == [passes] * 2
        assert (out.work.forced[:2] >= 9).all()
        if run == 16:
            assert (out.work.target_passes[2:] <= out.lengths[2:] + 1 - 6).all()
