"""Forced tokens: which they are, that taking them changes no text, drafts by lookup, compilations, and every error."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made
from oracles import mixed_constraints as mixed
from oracles.block_decoder import block_toy, disturbed
from oracles.toy import every_byte
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
from fsa_compile import Vocabulary
from jax_decode import Categorical, DecodeError, Forced, ForcedText, ModelDraft, PromptLookup, Status
from jax_decode.decoding import block_loop as speculation
from jax_decode.decoding.drafts import look_up
from jax_decode.kernels.row_layout import only_tokens

DECODER = block_toy(mixed.SIZE, scale=1.5)
KEY = jax.random.key(4)
PROMPTS = [[3, 5, 7, 3, 5], [9], [2, 2, 2]]
CONSTRAINTS = mixed.regular()[:3]


def test_the_only_tokens_of_bit_rows():
    bits = np.zeros((70, 70), bool)
    bits[np.arange(70), np.arange(70)] = True
    more = np.zeros((3, 70), bool)
    more[1, [3, 4]] = more[2, [3, 64]] = True
    rows = np.packbits(np.pad(np.concatenate([bits, more]), ((0, 0), (0, 26))), axis=1, bitorder="little").view(np.uint32)
    assert only_tokens(rows).tolist() == [*range(70), -1, -2, -2]


def test_the_only_token_is_the_mask_of_one():
    """Along random walks, under budgets that leave one token and without; stop ids count."""
    constraints = mixed.regular()
    tables = jax_decode.to_device(constraints)
    which = np.repeat(np.arange(len(constraints)), 24)
    limits = np.array([max(constraints[w].shortest_completion, 1) + i % 6 for i, w in enumerate(which)])
    state, found = jax_decode.init_state(tables, which, limits), []
    step = jax.jit(
        lambda s, t: (s := jax_decode.advance(tables, s, t), jax_decode.mask(tables, s), jax_decode.only_token(tables, s))
    )
    rng = np.random.default_rng(0)
    allowed = np.asarray(jax.jit(jax_decode.mask)(tables, state))
    for _ in range(14):
        tokens = [int(rng.choice(np.flatnonzero(row))) if row.any() else -1 for row in allowed]
        state, allowed, only = step(state, jnp.asarray(tokens, jnp.int32))
        allowed = np.asarray(allowed)
        want = np.where(allowed.sum(1) == 1, allowed.argmax(1), -1)
        assert np.asarray(only).tolist() == want.tolist()
        found += want[want >= 0].tolist()
    assert len(set(found)) >= 8
    assert 0 in found  # the stop id


VOCABULARY = every_byte([b'{"', b'": ', b"name", b'", "', b"age", b'", "age": '])
OBJECT = r'\{"name": "[abc]{2,5}", "age": [0-9]{2}\}'
WRITER = block_toy(VOCABULARY.size, scale=0.3)


@functools.cache
def three_constraints():
    """An object, a list, and a code of which each part begins alike."""
    patterns = (OBJECT, "(red|green|blue)(, (red|green|blue)){1,3}", "(AB-00[12]|AB-007[ab]){2}")
    return [fsa_compile.compile_regex(pattern, VOCABULARY) for pattern in patterns]


def test_forced_runs_forced_texts_and_lookups_change_no_text():
    """Sampled: the noise belongs to the position. A row is the same whatever its neighbours; so is its work."""
    tables = jax_decode.to_device(three_constraints(), vocabulary=VOCABULARY)
    which = [0, 1, 2] * 6
    prompts, limits = [PROMPTS[i % 3] for i in range(18)], [24 + i for i in range(18)]
    options = {"constraint": which, "max_new_tokens": limits, "sampler": Categorical()}
    keys = jnp.stack([jax.random.fold_in(KEY, i) for i in range(18)])
    plain = jax_decode.generate(WRITER, prompts, tables, key=keys, **options)
    assert plain.passes_per_token == 1
    mode = {"draft": PromptLookup(4), "forced": 6}
    out = jax_decode.generate(WRITER, prompts, tables, key=keys, **options, **mode)
    assert [t.tolist() for t in out.tokens] == [t.tolist() for t in plain.tokens]
    assert out.status == plain.status == [Status.ACCEPTED] * 18
    for name in ("logprobs", "raw_logprobs"):
        for a, b in zip(getattr(out, name), getattr(plain, name)):
            np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_allclose(out.raw_total_logprob, plain.raw_total_logprob, atol=2e-4)
    assert out.work.forced.sum() > 0
    assert out.work.drafted.sum() > out.work.accepted.sum() > 0
    assert out.passes_per_token < 0.95
    back = {"constraint": which[::-1], "max_new_tokens": limits[::-1], "sampler": Categorical()}
    again = jax_decode.generate(WRITER, prompts[::-1], tables, key=keys[::-1], **back, **mode)
    assert [t.tolist() for t in again.tokens[::-1]] == [t.tolist() for t in plain.tokens]
    for field in dataclasses.fields(out.work):
        assert getattr(again.work, field.name)[::-1].tolist() == getattr(out.work, field.name).tolist()


def test_a_rule_may_choose_among_spellings():
    """Where the text is forced, its longest tokens are taken without asking: fewer passes, a text of the language."""
    constraint = three_constraints()[0]
    tables = jax_decode.to_device(constraint, vocabulary=VOCABULARY)
    options = {"key": KEY, "max_new_tokens": 48, "sampler": Categorical(), "num_samples": 6, "raw_logprobs": False}
    out = jax_decode.generate(WRITER, PROMPTS, tables, forced=Forced(12, jax_decode.longest_spelling), **options)
    assert out.passes_per_token < 0.7
    for text in out.text(VOCABULARY):
        assert re.fullmatch(OBJECT, text)
    longest = VOCABULARY.tokens.index(b'", "age": ')
    assert sum(longest in row for row in out.tokens) > 9  # the others left the name by a token that goes beyond its end
    with pytest.raises(DecodeError, match="the tables do not know the texts of the tokens"):
        jax_decode.generate(WRITER, PROMPTS, jax_decode.to_device(constraint), draft=ForcedText(), **options)
    with pytest.raises(DecodeError, match="the vocabulary is not the constraint's"):
        jax_decode.to_device(constraint, vocabulary=every_byte())


def test_a_draft_model_reads_the_forced_texts_that_it_did_not_draft():
    """Several turns draft a forced text alone. A draft model that is the model itself is right about everything after it."""
    vocabulary = Vocabulary.from_tokens([b"b", b"c", b"a", b"aaaa", b"0", b"1", b""], stop_ids=[6])
    tables = jax_decode.to_device(fsa_compile.compile_regex("[bc]a{24}[01]{6}", vocabulary), vocabulary=vocabulary)
    writer = block_toy(vocabulary.size, scale=0.6)
    table = writer.params["table"].at[:, :, 3].add(20.0)  # it writes the longest tokens, as they are drafted
    writer = dataclasses.replace(writer, params=writer.params | {"table": table})
    draft = ModelDraft(writer, 2)
    out = jax_decode.generate(writer, [[0]], tables, max_new_tokens=32, draft=draft, raw_logprobs=False)
    assert re.fullmatch("(b|c)a{24}[01]{6}", out.text(vocabulary)[0])
    assert out.work.acceptance_rate == 1
    assert out.passes_per_token < 0.5


def test_lookup_finds_the_longest_then_the_latest_match():
    texts = jnp.array(
        [[1, 2, 3, 1, 2, 4, 9, 1, 2, 0, 0, 0], [5, 6, 5, 7, 5, 0, 0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]]
    )
    assert look_up(texts.astype(jnp.int32), jnp.array([9, 5, 4], jnp.int32), 3).tolist() == [4, 7, -1]
    assert look_up(texts.astype(jnp.int32), jnp.array([5, 3, 1], jnp.int32), 3).tolist() == [3, 6, -1]


def test_lengths_of_a_bucket_and_constraints_cause_no_trace():
    """And the samples of a prompt share its prefill, and calls that return to the host in between change nothing."""

    def run(length, seed, **more):
        constraint = hand_made.repeated(range(1, 8 + seed), 66 + seed % 3, 70 + seed % 5, mixed.SIZE)
        return jax_decode.generate(
            block_toy(mixed.SIZE, seed), [[1, 2], [3] * (1 + seed)], jax_decode.to_device(constraint), key=jax.random.key(seed),
            max_new_tokens=80 + seed, sampler=Categorical(0.55 + 0.1 * seed), draft=PromptLookup(length), num_samples=2,
            raw_logprobs=False, **more,
        )  # fmt: skip

    first, seen = run(3, 0), []
    before = speculation.begin._cache_size(), speculation.proceed._cache_size()
    assert len({tuple(t.tolist()) for t in first.tokens}) == 4
    assert np.isnan(first.raw_logprobs[0]).all()
    again = run(4, 0, progress=lambda *x: seen.append(x))
    assert [t.tolist() for t in again.tokens] == [t.tolist() for t in first.tokens]
    assert seen[0][0] < seen[-1][0] == 80
    for seed in range(1, 6):
        assert run(3 + seed % 2, seed).status == [Status.ACCEPTED] * 4
    assert (speculation.begin._cache_size(), speculation.proceed._cache_size()) == before


@functools.partial(jax.tree_util.register_dataclass, data_fields=["of"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Short:
    """A model of few positions."""

    of: Any
    max_length = 16

    def __getattr__(self, name):
        return getattr(self.of, name)

    def init_cache(self, batch_size, length):
        assert length <= self.max_length
        return self.of.init_cache(batch_size, length)


def test_a_draft_model_may_have_fewer_positions():
    """Than the buckets of prompts and limits, as long as the texts fit."""
    draft = ModelDraft(Short(DECODER), 2)
    out = jax_decode.generate(DECODER, [[1, 2]], max_new_tokens=8, draft=draft, raw_logprobs=False)
    assert len(out.tokens[0]) == 8
    assert out.work.acceptance_rate == 1


WIDE = disturbed(block_toy(40), 0.1)
ERRORS = {
    "forced": ({"forced": True}, "'forced' is True"),
    "long runs": ({"forced": 65}, "the length of forced runs is 65"),
    "draft": ({"draft": "small"}, "the draft is str"),
    "length": ({"draft": PromptLookup(0)}, "the draft's length is 0, not a whole number from 1 to 32"),
    "ngram": ({"draft": PromptLookup(3, 0)}, "the draft's ngram is 0"),
    "no model": ({"draft": ModelDraft(None)}, "the draft's decoder .NoneType. has no 'vocab_size'"),
    "no rewind": ({"draft": ModelDraft(toy(mixed.SIZE))}, "the draft's decoder .FunctionDecoder. cannot take tokens back"),
    "short draft": ({"draft": ModelDraft(Short(block_toy(mixed.SIZE)))}, "do not fit the draft model's 16 positions"),
    "rule": ({"forced": Forced(3, "longest")}, "the rule of forced runs is 'longest'"),
    "narrow draft": ({"draft": ModelDraft(block_toy(9))}, "the draft has 9 logits, the model 34"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    options, message = ERRORS[name]
    with pytest.raises(DecodeError, match=message):
        jax_decode.generate(DECODER, [[1]], jax_decode.to_device(CONSTRAINTS[0]), max_new_tokens=30, **options)


def test_more_errors():
    with pytest.raises(DecodeError, match=r"the decoder .FunctionDecoder. cannot take tokens back"):
        jax_decode.generate(toy(mixed.SIZE), [[1]], max_new_tokens=4, draft=PromptLookup())
    with pytest.raises(DecodeError, match="the draft has 40 logits, the model 34"):
        jax_decode.generate(DECODER, [[1]], max_new_tokens=4, draft=ModelDraft(WIDE))
