"""Decoders that tell how they make their logits: the texts are those of decoders that return them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
from jax_decode.decoding.decoder import projection_of
from jax_decode.errors import DecodeError
from models import Gemma
from models.tiny import tiny_config

TEXTS = [b"", *(bytes([c]) for c in b"abcdefgh()"), b"ab", b"a(", b"))"]
VOCABULARY = fsa_compile.Vocabulary.from_tokens(TEXTS, stop_ids=[0])


def gemma():
    config = dataclasses.replace(tiny_config("gemma2", vocab_size=24), final_soft_cap=3.0)
    return Gemma.init(config, jax.random.key(0))


class Another(Gemma):
    """A model that makes other logits."""

    def apply(self, *arguments, **options):
        logits, cache = super().apply(*arguments, **options)
        return logits.at[..., 5].add(50.0), cache


jax.tree_util.register_dataclass(Another, ["params"], ["config", "vocabulary_fingerprint"])


@pytest.mark.parametrize("sampler", [jax_decode.Greedy(), jax_decode.Categorical(0.8), jax_decode.TopP(0.8)], ids=repr)
def test_texts_are_those_of_a_decoder_that_returns_logits(sampler):
    model = gemma()
    plain = jax_decode.FunctionDecoder(Gemma.apply, model, model.init_cache, 24)
    tables = jax_decode.to_device(fsa_compile.compile_regex(r"[a-h]+\([a-h]+\)", VOCABULARY))
    key = None if isinstance(sampler, jax_decode.Greedy) else jax.random.key(1)
    options = {"tables": tables, "sampler": sampler, "key": key, "max_new_tokens": 24, "num_samples": 2}
    got, want = (jax_decode.generate(one, [[1, 2], [3]], **options) for one in (model, plain))
    for mine, other in zip(got.tokens, want.tokens, strict=True):
        np.testing.assert_array_equal(mine, other)
    for mine, other in zip(got.logprobs, want.logprobs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_an_engine_and_a_stream_carry_hidden_states():
    model, constraint = gemma(), fsa_compile.compile_regex(r"[a-h]+\([a-h]+\)", VOCABULARY)
    plain, written = jax_decode.FunctionDecoder(Gemma.apply, model, model.init_cache, 24), []
    sampler = jax_decode.Categorical(0.9)
    for decoder in (model, plain):
        pool = jax_decode.ConstraintPool(VOCABULARY, slots=4, logits_width=24)
        engine = jax_decode.Engine(decoder, pool, rows=2, max_prompt=4, max_new_tokens=12, sampler=sampler)
        assert engine._device.logits.shape[1] == (model.config.embed_dim if decoder is model else 24)
        requests = [engine.submit([1, 2, 3], constraint, seed=seed) for seed in range(3)]
        own = {done.request: list(done.tokens) for done in engine.run()}
        written.append([own[request] for request in requests])
    assert written[0] == written[1]
    assert len(set(map(tuple, written[0]))) == 3
    options = {"tables": jax_decode.to_device(constraint), "sampler": sampler, "key": jax.random.key(0), "max_new_tokens": 12}
    got, want = (jax_decode.stream(one, [[1, 2]], tokenizer=VOCABULARY, **options) for one in (model, plain))
    assert [piece.text for piece in got] == [piece.text for piece in want]


def test_a_decoder_of_functions_may_return_hidden_states():
    model = gemma()
    made = jax_decode.FunctionDecoder(Gemma.states, model, model.init_cache, 24, projection_fn=lambda model: model.projection)
    given = jnp.asarray([[1, 2, 3]], jnp.int32), model.init_cache(1, 4), jnp.asarray([3])
    for last_only in (False, True):
        got, want = (one.apply(*given, last_only=last_only)[0] for one in (made, model))
        np.testing.assert_allclose(got, want, rtol=1e-6)
    got, want = (jax_decode.generate(one, [[1, 2]], max_new_tokens=8) for one in (made, model))
    np.testing.assert_array_equal(got.tokens, want.tokens)


def test_a_class_with_an_apply_of_its_own_is_asked_for_logits():
    model = gemma()
    other = Another(model.params, model.config)
    assert projection_of(model) is not None
    assert projection_of(other) is None
    written = jax_decode.generate(other, [[1, 2]], max_new_tokens=4)
    assert np.asarray(written.tokens).ravel().tolist() == [5] * 4


class Later(Another):
    """One that tells states of its own, without an `apply` beside them."""

    def states(self, *arguments, **options):
        return super().states(*arguments, **options)


@dataclasses.dataclass
class Fields:
    """A decoder whose methods and parameters are fields, one of which has the name of something else."""

    apply: object
    init_cache: object
    projection: jax.Array
    vocab_size: int = 24


def test_a_projection_counts_only_beside_states_that_belong_to_it():
    model = gemma()
    assert projection_of(Later(model.params, model.config)) is not None
    assert projection_of(Fields(model.apply, model.init_cache, jnp.zeros((3, 3)))) is None


def test_what_does_not_go_together_is_refused():
    model = gemma()
    short = jax_decode.FunctionDecoder(Gemma.states, model, model.init_cache, 25, projection_fn=lambda model: model.projection)
    with pytest.raises(DecodeError, match="its vocab_size is 25"):
        jax_decode.generate(short, [[1]], max_new_tokens=2)
    none = jax_decode.FunctionDecoder(Gemma.states, model, model.init_cache, 24, projection_fn=lambda model: model.projection[0])
    with pytest.raises(DecodeError, match=r"projection has an embedding float32\[24, 16\]"):
        jax_decode.generate(none, [[1]], max_new_tokens=2)
    wide = jax_decode.FunctionDecoder(Gemma.apply, model, model.init_cache, 24, projection_fn=lambda model: model.projection)
    with pytest.raises(DecodeError, match="its projection takes"):
        jax_decode.generate(wide, [[1]], max_new_tokens=2)
