"""The models of `docs/decoders.md`: each keeps the decoder's promises and generates; so does one that is no neural network."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.compression_model import lz_model, reference_bits
from oracles.markdown import python_blocks

import fsa_compile
import jax_decode

PAGE = Path(__file__).parents[3] / "docs" / "decoders.md"


@pytest.fixture(scope="module")
def page():
    """Names and printed lines of the page's code, run from top to bottom."""
    names: dict = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in python_blocks(PAGE.read_text(encoding="utf-8")):
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    return names


@pytest.fixture(autouse=True)
def _as_flax_needs(_strict):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_each_example_is_short():
    for block in python_blocks(PAGE.read_text(encoding="utf-8")):
        assert len([line for line in block.splitlines() if line.strip()]) <= 25


@pytest.mark.parametrize("name", ["recurrent", "attentive", "classic"])
def test_the_adapters_keep_the_promises(page, name):
    """Blocks equal single steps, ragged rows equal rows alone, padding leaves no trace, and the past matters."""
    decoder = page[name]
    tokens = jnp.array([[1, 2, 3, 4, 5], [7, 8, 0, 0, 0]], jnp.int32)
    lengths = jnp.array([5, 2], jnp.int32)
    apply = jax.jit(lambda d, t, c, n: d.apply(t, c, n))
    logits, cache = apply(decoder, tokens, decoder.init_cache(2, 16), lengths)
    after, _ = apply(decoder, jnp.array([[9], [9]], jnp.int32), cache, jnp.ones(2, jnp.int32))
    for row, ids in enumerate([[1, 2, 3, 4, 5, 9], [7, 8, 9]]):
        alone, out = decoder.init_cache(1, 16), []
        for token in ids:
            step, alone = apply(decoder, jnp.array([[token]], jnp.int32), alone, jnp.ones(1, jnp.int32))
            out.append(np.asarray(step[0, 0]))
        np.testing.assert_allclose(logits[row, : len(ids) - 1], np.stack(out[:-1]), atol=1e-5)
        np.testing.assert_allclose(after[row, 0], out[-1], atol=1e-5)
    other, _ = apply(decoder, tokens.at[0, 0].set(6), decoder.init_cache(2, 16), lengths)
    assert np.abs(np.asarray(other - logits))[0, 4].max() > 1e-3


def test_a_rewound_cache_is_a_fresh_one(page):
    decoder = page["classic"]
    tokens = jnp.array([[1, 2, 3, 4], [7, 8, 9, 10]], jnp.int32)
    _, cache = decoder.apply(tokens, decoder.init_cache(2, 8), jnp.array([4, 4], jnp.int32))
    cache = decoder.rewind(cache, jnp.array([2, 4], jnp.int32))
    got, _ = decoder.apply(jnp.array([[5], [5]], jnp.int32), cache, jnp.ones(2, jnp.int32))
    for row, ids in enumerate([[1, 2, 5], [7, 8, 9, 10, 5]]):
        want, _ = decoder.apply(jnp.array([ids], jnp.int32), decoder.init_cache(1, 8), jnp.array([len(ids)], jnp.int32))
        np.testing.assert_allclose(got[row, 0], want[0, -1], atol=1e-5)


@pytest.mark.parametrize("name", ["recurrent", "attentive", "classic"])
def test_the_adapters_generate(page, name):
    vocabulary, tables = page["vocabulary"], page["tables"]
    greedy = jax_decode.generate(page[name], [[1, 2, 3], [4]], tables, constraint=0, max_new_tokens=12)
    for text in greedy.text(vocabulary):
        assert re.fullmatch("[a-e]{2,4}(fgh|n)+", text)


def test_beams_fork_the_adapters_caches(page):
    """The scores are those of a replay, which a cache that was not forked with its beam would miss."""
    decoder, tables = page["attentive"], page["tables"]
    out = jax_decode.beam_search(decoder, [[1, 2, 3], [4]], tables, constraint=0, beams=4, max_new_tokens=12)
    assert out.found.tolist() == [4, 4]
    for row, tokens in enumerate(out.tokens):
        prompt = [[1, 2, 3], [4]][row // 4]
        ids = prompt + tokens.tolist()
        block = jnp.array([ids + [0] * (16 - len(ids))], jnp.int32)
        logits, _ = decoder.apply(block, decoder.init_cache(1, 16), jnp.array([len(ids)], jnp.int32))
        each = jax.nn.log_softmax(logits[0])[jnp.arange(len(prompt) - 1, len(ids) - 1), jnp.array(tokens)]
        np.testing.assert_allclose(out.raw_logprobs[row], each, atol=1e-4)


# A model that compresses


def test_the_compressor_needs_the_bits_of_its_definition():
    rng = np.random.default_rng(0)
    decoder, ids = lz_model(5), rng.integers(0, 5, 40).tolist()
    block = jnp.array([ids[:30] + [0] * 10, ids], jnp.int32)
    logits, cache = decoder.apply(block, decoder.init_cache(2, 64), jnp.array([30, 40], jnp.int32))
    for row, n in ((0, 30), (1, 40)):
        for at in (0, 1, 5, 17, n - 1):
            np.testing.assert_allclose(-logits[row, at] / np.log(2), reference_bits(ids[: at + 1], 5), rtol=1e-5)
    step, _ = decoder.apply(jnp.array([[3], [3]], jnp.int32), cache, jnp.ones(2, jnp.int32))
    np.testing.assert_allclose(-step[0, 0] / np.log(2), reference_bits([*ids[:30], 3], 5), rtol=1e-5)


def test_a_compressor_answers_by_repeating_what_it_has_seen():
    """In the jitted loop, without a neural network: the answer that costs the fewest bits after a few examples."""
    vocabulary = fsa_compile.Vocabulary.from_tokens([bytes([b]) for b in range(128)] + [b"red", b"blue", b""], stop_ids=[130])
    tables = jax_decode.to_device(fsa_compile.compile_choices(["red", "green", "blue"], vocabulary))
    facts = "sky is blue. grass is green. blood is red. sea is blue. leaf is green. rose is red. "
    prompts = [list((facts + end).encode()) for end in ("sky is ", "grass is ", "blood is ", "leaf is ", "rose is ")]
    decoder = lz_model(131)
    out = jax_decode.generate(decoder, prompts, tables, constraint=0, max_new_tokens=6)
    assert out.text(vocabulary) == ["blue", "green", "red", "green", "red"]
