"""`generate` end to end: outputs walked again on the host, budgets, ragged batches, traces, transfers, every error."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made
from oracles.block_decoder import block_toy
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile.vocabulary import Vocabulary
from jax_decode import Categorical, DecodeError, Greedy, ModelDraft, PromptLookup, Status, TopP
from jax_decode.decoding import loop

PROMPTS = [[1, 2, 3], [4], [9, 8, 7, 6, 5]]
CONSTRAINTS = [hand_made.random_constraint(i) for i in range(3)]
KEY = jax.random.key(0)


def rewalk(constraint, tokens, limit=None):
    """The host walk takes the tokens; every one is allowed within the limit."""
    walk = constraint.walk()
    for i, token in enumerate(tokens):
        assert walk.allowed(None if limit is None else limit - i)[token]
        walk.advance(token)
    return walk


@pytest.mark.parametrize("sampler", [Greedy(), Categorical(2.0)], ids=repr)
def test_every_row_follows_its_own_constraint_to_acceptance(sampler):
    tables = jax_decode.to_device(CONSTRAINTS)
    for seed in range(4):
        out = jax_decode.generate(toy(), PROMPTS, tables, key=jax.random.key(seed), max_new_tokens=[20, 25, 30], sampler=sampler)
        assert out.status == [Status.ACCEPTED] * 3
        for constraint, tokens, limit, stop in zip(CONSTRAINTS, out.tokens, (20, 25, 30), out.stop_token):
            walk = rewalk(constraint, tokens, limit)
            assert walk.accepting
            assert stop in (None, *constraint.stop_ids)
            assert len(tokens) + (stop is not None) <= limit


def test_a_limit_of_the_shortest_text_is_enough_and_one_less_is_an_error():
    choices = hand_made.one_of([[1, 2, 3, 4], [5, 6, 7, 8, 9]], 64)
    for c in (hand_made.repeated(range(1, 20), 6, 9, 64), choices, hand_made.random_constraint(11, num_nodes=14)):
        tables = jax_decode.to_device(c)
        shortest = c.shortest_completion
        out = jax_decode.generate(
            toy(), [[1]], tables, key=KEY, max_new_tokens=max(shortest, 1), num_samples=4, sampler=Categorical(3.0)
        )
        assert out.status == [Status.ACCEPTED] * 4
        for tokens in out.tokens:
            assert rewalk(c, tokens).accepting
        if shortest > 1:
            with pytest.raises(DecodeError, match=f"shortest text.*\n  prompt 0: {shortest - 1} of {shortest}"):
                jax_decode.generate(toy(), [[1]], tables, max_new_tokens=shortest - 1)
            out = jax_decode.generate(toy(), [[1]], tables, max_new_tokens=shortest - 1, allow_truncation=True)
            assert out.status == [Status.TRUNCATED]
            rewalk(c, out.tokens[0])


def test_stop_is_forced_when_nothing_else_is_possible():
    c = hand_made.one_of([[5, 6]], 64, stop_ids=(0, 63))
    out = jax_decode.generate(toy(), [1], jax_decode.to_device(c), max_new_tokens=9)
    assert out.tokens[0].tolist() == [5, 6]
    assert out.text(Letters()) == "EF"
    assert out.stop_token[0] in (0, 63)
    assert out.logprobs[0].tolist() == [0.0, 0.0]
    assert out.stop_logprobs[0] < 0  # a choice of two stop ids
    assert out.raw_total_logprob[0] == pytest.approx(out.raw_logprobs[0].sum() + out.raw_stop_logprobs[0])


def test_own_stop_ids_constraints_and_none_side_by_side():
    tables = jax_decode.to_device(CONSTRAINTS[:2])
    out = jax_decode.generate(
        toy(seed=3),
        [[1], [2], [3], [4]],
        tables,
        key=KEY,
        max_new_tokens=[40, 40, 12, 40],
        constraint=[1, 0, None, None],
        stop_ids=[[0], [0], [], list(range(10, 40))],
        sampler=Categorical(3.0),
    )
    assert out.status == [Status.ACCEPTED, Status.ACCEPTED, Status.TRUNCATED, Status.FINISHED]
    assert rewalk(CONSTRAINTS[1], out.tokens[0]).accepting
    assert rewalk(CONSTRAINTS[0], out.tokens[1]).accepting
    assert len(out.tokens[2]) == 12
    assert out.stop_token[2] is None
    assert out.stop_token[3] in range(10, 40)
    assert not set(out.tokens[3].tolist()) & set(range(10, 40))
    assert out.padded.shape == (4, max(out.lengths))
    assert (out.padded[2, :12] == out.tokens[2]).all()
    assert (out.padded[3, out.lengths[3] :] == -1).all()


def test_no_constraint_at_all_is_plain_sampling():
    decoder = toy()
    out = jax_decode.generate(decoder, [1, 2], max_new_tokens=6, stop_ids=[])
    tokens = [1, 2]
    for step in range(6):
        cache = decoder.init_cache(1, 16)
        logits, _ = decoder.apply(jnp.array([tokens], jnp.int32), cache, jnp.array([len(tokens)], jnp.int32))
        tokens.append(int(logits[0, -1].argmax()))
        want = jax.nn.log_softmax(logits[0, -1])[tokens[-1]]
        assert out.raw_logprobs[0][step] == pytest.approx(float(want), abs=1e-5)
    assert out.tokens[0].tolist() == tokens[2:]
    assert (out.logprobs[0] == out.raw_logprobs[0]).all()
    assert out.status == [Status.TRUNCATED]


@pytest.mark.parametrize("options", [{}, {"draft": PromptLookup(2)}, {"draft": ModelDraft(block_toy(64), 2)}, {"forced": 2}])
def test_a_free_row_may_take_its_stop_id_with_its_last_token(options):
    """Alone, and beside a constraint; the same limit without the stop id ends the row early."""
    decoder = block_toy(64)
    written = jax_decode.generate(decoder, [1, 2], max_new_tokens=6, stop_ids=[]).tokens[0].tolist()
    last = max(i for i, token in enumerate(written) if token not in written[:i])
    tables = jax_decode.to_device(CONSTRAINTS[0])
    for more in ({}, {"tables": tables, "constraint": [None, 0]}):
        prompts = [[1, 2], [3]] if more else [[1, 2]]
        stop_ids = [[written[last]], [0]][: len(prompts)]
        limits = [last + 1, 30][: len(prompts)]
        out = jax_decode.generate(decoder, prompts, max_new_tokens=limits, stop_ids=stop_ids, **more, **options)
        assert out.status[0] == Status.FINISHED
        assert out.stop_token[0] == written[last]
        assert out.tokens[0].tolist() == written[:last]
        limits[0] -= 1
        if last:
            out = jax_decode.generate(decoder, prompts, max_new_tokens=limits, stop_ids=stop_ids, **more, **options)
            assert out.status[0] == Status.TRUNCATED
            assert out.stop_token[0] is None


def test_log_probabilities_are_those_of_a_replay():
    tables = jax_decode.to_device(CONSTRAINTS)
    decoder = toy()
    out = jax_decode.generate(decoder, PROMPTS, tables, key=KEY, max_new_tokens=18, sampler=Categorical(1.5))
    for row, (prompt, c) in enumerate(zip(PROMPTS, CONSTRAINTS)):
        ids = out.tokens[row].tolist() + ([out.stop_token[row]] if out.stop_token[row] is not None else [])
        block = jnp.array([prompt + ids], jnp.int32)
        logits, _ = decoder.apply(block, decoder.init_cache(1, 64), jnp.array([block.shape[1]], jnp.int32))
        walk, constrained, raw = c.walk(), 0.0, 0.0
        for i, token in enumerate(ids):
            x = np.asarray(logits[0, len(prompt) - 1 + i], np.float64)
            raw += x[token] - np.log(np.exp(x).sum())
            constrained += x[token] - np.log(np.exp(x[walk.allowed(18 - i)]).sum())
            walk.advance(token)
        assert out.total_logprob[row] == pytest.approx(constrained, abs=1e-4)
        assert out.raw_total_logprob[row] == pytest.approx(raw, abs=1e-4)


def test_a_row_is_the_same_whatever_its_neighbours():
    tables = jax_decode.to_device(CONSTRAINTS)
    options = {"max_new_tokens": 18, "sampler": Categorical(1.7)}
    together = jax_decode.generate(toy(), PROMPTS, tables, key=KEY, **options)
    for i, prompt in enumerate(PROMPTS):
        key = jax.random.fold_in(KEY, i)[None]
        alone = jax_decode.generate(toy(), [prompt], tables, key=key, constraint=[i], **options)
        assert alone.tokens[0].tolist() == together.tokens[i].tolist()
        np.testing.assert_allclose(alone.logprobs[0], together.logprobs[i], atol=1e-4)
    again = jax_decode.generate(
        toy(), PROMPTS[::-1], tables, key=jnp.stack([jax.random.fold_in(KEY, i) for i in (2, 1, 0)]),
        constraint=[2, 1, 0], **options,
    )  # fmt: skip
    assert [t.tolist() for t in again.tokens[::-1]] == [t.tolist() for t in together.tokens]


def test_keys_decide_the_draws():
    tables = jax_decode.to_device(CONSTRAINTS[0])
    options = {"max_new_tokens": 20, "sampler": Categorical(2.0)}

    def run(key, n=1):
        return [t.tolist() for t in jax_decode.generate(toy(), [[1], [1]], tables, key=key, num_samples=n, **options).tokens]

    first = run(KEY)
    assert first == run(KEY)
    assert first != run(jax.random.key(1))
    assert first[0] != first[1]
    keys = jax.random.split(KEY, 2)
    assert run(keys[jnp.array([0, 0])])[0] == run(keys[jnp.array([0, 0])])[1]
    assert run(jax.random.PRNGKey(0)) == first  # a legacy key
    samples = run(keys, 3)
    assert len({tuple(t) for t in samples}) > 1
    assert samples[:3] == run(keys[jnp.array([0, 1])], 3)[:3]


def test_chunk_and_progress_change_nothing():
    tables = jax_decode.to_device(hand_made.repeated(range(1, 60), 70, 90, 64))
    seen = []
    options = {"key": KEY, "max_new_tokens": 88, "sampler": Categorical()}
    a = jax_decode.generate(toy(), [[1], [2]], tables, **options)
    b = jax_decode.generate(toy(), [[1], [2]], tables, chunk=5, progress=lambda *x: seen.append(x), **options)
    assert [t.tolist() for t in a.tokens] == [t.tolist() for t in b.tokens]
    assert seen[-1] == (88, 88)
    assert [s for s, _ in seen] == sorted(s for s, _ in seen)


def test_ten_more_constraints_and_prompts_cause_no_trace():
    def run(seed):
        constraint = hand_made.repeated(range(1, 8 + seed), 1 + seed % 3, 4 + seed % 9, 64)
        prompt = [list(range(1, 2 + seed % 10)), [5]]
        out = jax_decode.generate(
            toy(seed=seed), prompt, jax_decode.to_device(constraint), key=jax.random.key(seed),
            max_new_tokens=9 + seed % 5, sampler=Categorical(0.5 + 0.01 * seed),
        )  # fmt: skip
        assert out.status == [Status.ACCEPTED] * 2

    run(0)
    before = loop.prefill._cache_size(), loop.decode._cache_size()
    for seed in range(1, 20):
        run(seed)
    assert (loop.prefill._cache_size(), loop.decode._cache_size()) == before


HOST = ("callback", "infeed", "outfeed", "send(", "recv(", "stablehlo.send", "stablehlo.recv", "host_transfer")


def host_operations(text):
    return [word for word in HOST if word in text]


def captured(monkeypatch, decoder, tables):
    """The arguments with which `generate` calls its two programs."""
    calls = {}
    for name in ("prefill", "decode"):
        program = getattr(loop, name)

        def wrapped(*args, _name=name, _program=program, **kwargs):
            calls[_name] = (_program, args, kwargs)
            if _name == "decode":  # its carry is about to be donated
                shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
                calls[_name] = (_program, shapes, kwargs)
            with jax.transfer_guard("disallow"):
                return _program(*args, **kwargs)

        monkeypatch.setattr(loop, name, wrapped)
    jax_decode.generate(decoder, PROMPTS, tables, key=KEY, max_new_tokens=20, sampler=Categorical(0.9))
    return calls


def test_the_loop_never_talks_to_the_host(monkeypatch):
    calls = captured(monkeypatch, toy(), jax_decode.to_device(CONSTRAINTS))
    for program, args, kwargs in calls.values():
        lowered = program.lower(*args, **kwargs)
        assert host_operations(lowered.as_text()) == []
        assert host_operations(lowered.compile().as_text()) == []


def test_the_check_finds_a_planted_callback():
    decoder = toy()

    def spy(params, tokens, cache, lengths):
        tokens = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(tokens.shape, tokens.dtype), tokens)
        return decoder.apply_fn(params, tokens, cache, lengths)

    planted = dataclasses.replace(decoder, apply_fn=spy)
    lowered = jax.jit(lambda d, t, c, n: d.apply(t, c, n)).lower(
        planted, jnp.zeros((1, 4), jnp.int32), planted.init_cache(1, 8), jnp.ones(1, jnp.int32)
    )
    assert host_operations(lowered.as_text())


def test_the_transfer_guard_finds_a_host_array():
    program = jax.jit(lambda x: x + 1)
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="transfer"):
        program(np.zeros(3, np.float32))


@pytest.mark.parametrize(("vocab_size", "width", "dtype"), [(77, 90, jnp.bfloat16)])
def test_odd_vocabularies_wide_logits_and_bfloat16(vocab_size, width, dtype):
    c = hand_made.random_constraint(4, vocab_size, stop_ids=(3, 76))
    decoder = toy(width, dtype=dtype)
    out = jax_decode.generate(
        decoder, [[1], [2]], jax_decode.to_device(c, logits_width=width), key=KEY, max_new_tokens=20,
        sampler=Categorical(2.0), num_samples=3, constraint=[0, None],
    )  # fmt: skip
    for row in range(3):
        assert rewalk(c, out.tokens[row]).accepting
    assert max(t.max() for t in out.tokens) < vocab_size
    assert all(np.isfinite(x).all() for x in out.logprobs)


def test_samples_of_a_prompt_share_the_prefill():
    """The decoder is traced with two rows in the prefill and eight in the loop; the texts are those of eight prompts."""
    decoder, batches = toy(), []

    def spy(params, tokens, cache, lengths):
        batches.append(tokens.shape)
        return decoder.apply_fn(params, tokens, cache, lengths)

    tables = jax_decode.to_device(CONSTRAINTS[0])
    options = {"key": KEY, "max_new_tokens": 20, "sampler": Categorical()}
    spying = dataclasses.replace(decoder, apply_fn=spy)
    shared = jax_decode.generate(spying, [[1, 2], [3]], tables, num_samples=4, **options)
    plain = jax_decode.generate(decoder, [[1, 2]] * 4 + [[3]] * 4, tables, **options)
    assert [t.tolist() for t in shared.tokens] == [t.tolist() for t in plain.tokens]
    assert set(batches) == {(2, 16), (8, 1)}


class Letters:
    """A tokenizer that writes id t as chr(64 + t)."""

    def decode(self, ids):
        return "".join(chr(64 + t) for t in ids)


def test_text_and_repr():
    tables = jax_decode.to_device(hand_made.one_of([[5, 6]], 64))
    many = jax_decode.generate(toy(), np.array([[1, 2], [3, 4]]), tables, max_new_tokens=5)
    assert many.text(Letters()) == ["EF", "EF"]
    assert "2 rows" in repr(many)
    assert "0: ACCEPTED ids [5, 6] (2 tokens, log-probability" in repr(many)
    assert len(many) == 2


def test_text_of_ids_beyond_the_tokenizer():
    """Without tables a model may take one of its padding ids: it writes nothing, and text() still works."""
    out = jax_decode.generate(toy(), [[1, 2], [3, 4]], max_new_tokens=6, stop_ids=[])
    vocabulary = Vocabulary.from_tokens([b"a", b"b"])
    expected = ["".join("ab"[t] for t in row.tolist() if t < 2) for row in out.tokens]
    assert any((row >= 2).any() for row in out.tokens)
    assert out.text(vocabulary) == expected


def test_bos_starts_every_prompt():
    decoder = toy()
    a = jax_decode.generate(decoder, [[], [5]], bos_id=7, max_new_tokens=4, stop_ids=[])
    b = jax_decode.generate(decoder, [[7], [7, 5]], max_new_tokens=4, stop_ids=[])
    assert [t.tolist() for t in a.tokens] == [t.tolist() for t in b.tokens]


@jax.tree_util.register_static
class Short:
    """A decoder that serves 24 positions."""

    vocab_size, max_length, init_cache, apply = 64, 24, len, len


ERRORS = {
    "string": ({"prompts": "text"}, "the prompts are str 'text', not token ids"),
    "no prompt": ({"prompts": []}, "there is no prompt"),
    "empty prompt": ({"prompts": [[1], []]}, "the prompt is empty\n  prompt 1\n  Give bos_id"),
    "mixed": ({"prompts": [[1], 5]}, "the prompt is int 5, not a list of token ids\n  prompt 1"),
    "float id": ({"prompts": [[1.5]]}, "token at position 0 of prompt 0 is float 1.5, not a whole number"),
    "bool id": ({"prompts": [[True]]}, "not a whole number"),
    "large id": ({"prompts": [[1, 64]]}, "token at position 1 of prompt 0 is 64, outside 0..63"),
    "negative id": ({"prompts": [[-1]]}, "is -1, outside 0..63"),
    "bos": ({"bos_id": 64}, "the bos_id is 64, outside 0..63"),
    "limit zero": ({"max_new_tokens": 0}, "max_new_tokens of prompt 0 is 0"),
    "limit float": ({"max_new_tokens": 2.0}, "max_new_tokens of prompt 0 is float 2.0, not a whole number"),
    "limits": ({"max_new_tokens": [1, 2, 3]}, "'max_new_tokens' has 3 entries for 1 prompts"),
    "samples": ({"num_samples": 0}, "num_samples is 0"),
    "rows": (
        {"prompts": [[1]] * 4096, "num_samples": 1 << 24},
        "a step's logits of 68,719,476,736 rows over 64 ids take 17,592 GB, and the devices have .* GB\n  Ask for fewer rows",
    ),
    "chunk": ({"chunk": True}, "chunk is True"),
    "progress": ({"progress": "bar"}, "'progress' is 'bar', which cannot be called\n  Give a function of two numbers"),
    "no key": ({"key": None, "sampler": Categorical()}, "sampling needs a key"),
    "key int": ({"key": 0}, "the key is int 0, not a PRNG key"),
    "key floats": ({"key": np.zeros(2, np.float32)}, r"array of float32\[2\], not a PRNG key"),
    "keys": ({"key": jax.random.split(KEY, 3)}, r"there are \(3,\) keys for 1 rows"),
    "tables": ({"tables": CONSTRAINTS[0]}, "the tables are CompiledConstraint"),
    "no tables": ({"tables": None, "constraint": 0}, "'constraint' was given without tables"),
    "index": ({"constraint": 3}, "constraint index of prompt 0 is 3, outside 0..2"),
    "indices": ({"constraint": [0, 1]}, "'constraint' has 2 entries for 1 prompts"),
    "which": ({"constraint": None}, "there are 3 constraints for 1 prompts"),
    "stop text": (
        {"constraint": 0, "stop_ids": [int(CONSTRAINTS[0].arc_token[0])]},
        "is a token that the constraint's text may contain\n  prompt 0",
    ),
    "stop range": ({"constraint": 0, "stop_ids": [64]}, "stop id of prompt 0 is 64, outside 0..63"),
    "stop lists": ({"constraint": 0, "stop_ids": [[0], [0]]}, "'stop_ids' has 2 lists for 1 prompts"),
    "sampler": ({"sampler": TopP(2.0)}, "the p 2.0 is out of range"),
    "decoder": ({"decoder": object()}, r"the decoder \(object\) has no 'vocab_size'"),
    "vocabulary": ({"decoder": toy(32)}, "a vocabulary of 64 ids, the model has 32 logits"),
    "positions": (
        {"decoder": Short(), "constraint": 0, "max_new_tokens": 24},
        "1 prompt tokens and 24 new ones do not fit the model's 24 positions",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    changes, text = ERRORS[name]
    options = {"decoder": toy(), "prompts": [[1]], "tables": jax_decode.to_device(CONSTRAINTS), "key": KEY}
    options |= {"max_new_tokens": 30, "constraint": 0, **changes}
    with pytest.raises(DecodeError, match=text) as error:
        jax_decode.generate(options.pop("decoder"), options.pop("prompts"), options.pop("tables"), **options)
    assert error.value.what


def test_wrong_logits_are_reported():
    def narrow(params, tokens, cache, lengths):
        return jnp.zeros((*tokens.shape, 5)), cache

    with pytest.raises(DecodeError, match=r"returned logits .*; its vocab_size is 64"):
        jax_decode.generate(dataclasses.replace(toy(), apply_fn=narrow), [[1]], max_new_tokens=3)
