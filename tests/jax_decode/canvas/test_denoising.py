"""Canvases that a model fills, step by step, are in the language of their constraint."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.canvases import MANY, canvases, logprobs_of

import fsa_compile as fc
import models
from jax_decode import canvas, key_words
from jax_decode.canvas.canvas import by_row, fill_with_confidence, read
from jax_decode.canvas.denoising import _denoised
from jax_decode.errors import DecodeError
from models.denoiser import CANVAS, Denoiser
from models.tiny import tiny_config


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Arbitrary:
    """A model whose logits depend on what is settled, and want nothing in particular."""

    table: jax.Array
    mask_id: int = dataclasses.field(default=2, metadata={"static": True})

    def __call__(self, prompt, tokens):
        seen = self.table[tokens].mean(1, keepdims=True)
        return self.table[:, : tokens.shape[1]].T[None] + seen


@pytest.fixture(scope="module")
def arbitrary():
    width = len(MANY.tokens)
    return Arbitrary(jax.random.normal(jax.random.key(0), (width, width)))


def test_confidence_is_the_marginal_of_the_sample():
    constraint = fc.compile_regex("[a-z]{1,3}[0-9]|12", MANY)
    tables, x = canvas.to_canvas(constraint), jnp.asarray(logprobs_of(4, 5, 4, len(MANY.tokens)))
    rows = read(tables, x, key_words(jax.random.split(jax.random.key(3), 5)))
    filled, sure = jax.jit(lambda tables, rows: by_row(fill_with_confidence, tables, rows))(tables, rows)
    want = np.take_along_axis(np.asarray(canvas.marginals(tables, x).logprobs), np.asarray(filled.tokens)[..., None], 2)[..., 0]
    np.testing.assert_allclose(sure, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(filled.tokens, canvas.sample(tables, x, rows.key).tokens)


@pytest.mark.parametrize(("block", "steps"), [(None, 3), (4, 4), (2, 1)])
def test_every_text_is_complete_and_in_its_language(arbitrary, block, steps):
    """Two constraints in one batch: a pattern, and lists that nest."""
    lists = fc.compile_json_schema({"type": "array", "items": {"type": "array", "items": {"enum": [1, 12]}}}, MANY)
    tables = canvas.to_canvas([fc.compile_regex("(ab|[x-z]{2,})*c", MANY), lists], max_depth=2)
    which = np.arange(32) % 2
    prompts = np.zeros((32, 3), np.int32)
    out = canvas.denoise(arbitrary, prompts, tables, key=jax.random.key(1), length=8, block=block, steps=steps, which=which)
    for i, text in enumerate(out.text(MANY)):
        if which[i]:
            assert all(number in (1, 12) for part in json.loads(text) for number in part)
        else:
            assert re.fullmatch("(ab|[x-z]{2,})*c", text)
    assert len(set(out.text(MANY))) > 10
    assert sorted(np.unique(out.settled)) == list(range(8 // (block or 8) * steps))


def free_probabilities(model, constraint, length):
    """Of every canvas of the language: its probability under the model's own sampler, one position after another."""
    out = {}
    for row in map(tuple, canvases(constraint, length).tolist()):
        probability = 1.0
        for i, token in enumerate(row):
            seen = jnp.asarray([[*row[:i], *[model.mask_id] * (length - i)]], jnp.int32)
            logits = np.array(model(jnp.zeros((1, 1), jnp.int32), seen)[0, i], np.float64)
            logits[model.mask_id] = -np.inf
            probability *= np.exp(logits[token] - np.logaddexp.reduce(logits))
        out[row] = probability
    return out


def test_weights_from_the_left_are_those_of_the_models_own_sampler(arbitrary):
    """For every canvas of the language, the mean weight with which it is drawn is its probability under the free sampler."""
    constraint, rows, length = fc.compile_regex("(ab|b)[ac]?b?", MANY), 3000, 4
    given = (jnp.zeros((rows, 1), jnp.int32), canvas.to_canvas(constraint), key_words(jax.random.split(jax.random.key(5), rows)))
    settings = (jnp.float32(1.0), jnp.zeros(rows, jnp.int32), jnp.bool_(True))
    tokens, settled, weights = jax.device_get(_denoised(arbitrary, *given, *settings, length=length, block=2, steps=2))
    assert (settled == np.arange(length)).all()
    exact = free_probabilities(arbitrary, constraint, length)
    likely = {row: p for row, p in exact.items() if p > 0.02 * sum(exact.values())}
    assert len(likely) > 4
    for row, probability in likely.items():
        each = np.exp(weights.astype(np.float64)) * (tokens == row).all(1)
        assert abs(each.mean() - probability) < 5 * each.std() / np.sqrt(rows)
    assert np.exp(weights.astype(np.float64)).mean() == pytest.approx(sum(exact.values()), rel=0.1)


def test_of_many_draws_one_is_kept_as_rejection_would(arbitrary):
    constraint, rows, length = fc.compile_regex("(ab|b)[ac]?b?", MANY), 500, 4
    exact = free_probabilities(arbitrary, constraint, length)
    distances = []
    for draws in (1, 12):
        given = {"key": jax.random.key(1), "length": length, "block": 2, "steps": 2, "left_to_right": True, "draws": draws}
        out = canvas.denoise(arbitrary, np.zeros((rows, 1), np.int32), canvas.to_canvas(constraint), **given)
        assert out.log_weights.shape == (rows, draws)
        shares = [(out.tokens == row).all(1).mean() for row in exact]
        assert sum(shares) == pytest.approx(1)
        distances.append(0.5 * np.abs(np.array(shares) - np.array(list(exact.values())) / sum(exact.values())).sum())
    assert distances[1] < 0.08
    assert distances[0] > 2 * distances[1]


def test_what_ends_a_text_is_settled_last(arbitrary):
    """A model that is surest of the end: the text is settled before it all the same."""
    ends = dataclasses.replace(arbitrary, table=arbitrary.table.at[0].set(3.0))
    tables = canvas.to_canvas(fc.compile_regex("[a-z]{2,7}", MANY))
    out = canvas.denoise(ends, np.zeros((64, 1), np.int32), tables, key=jax.random.key(2), length=8, steps=8)
    end = out.tokens == 0
    assert end.any(1).mean() > 0.5
    assert not end[out.settled < 2].any()  # every text has two letters, and one position is settled in a step


def test_rows_without_a_canvas_are_marked(arbitrary):
    tables = canvas.to_canvas([fc.compile_regex("[ab]{40}", MANY), fc.compile_regex("[ab]{2}", MANY)])
    out = canvas.denoise(arbitrary, np.zeros((2, 1), np.int32), tables, key=jax.random.key(0), length=4, which=[0, 1])
    assert (out.tokens[0] == -1).all()
    assert (out.tokens[1] >= 0).all()
    assert out.text(MANY)[0] == ""


def test_without_a_constraint_positions_are_drawn_on_their_own(arbitrary):
    out = canvas.denoise(arbitrary, np.zeros((4, 1), np.int32), None, key=jax.random.key(0), length=4, steps=2)
    assert (out.tokens >= 0).all()
    assert (out.tokens != arbitrary.mask_id).all()


def test_a_model_that_sees_both_sides():
    config = dataclasses.replace(tiny_config("gemma3"), bidirectional=True)
    denoiser = Denoiser(models.Gemma.init(config, jax.random.key(0)))
    tokens = np.array([[5, 6, 7, 8]], np.int32)
    with jax.numpy_rank_promotion("allow"):  # the model's own business
        changed = denoiser(jnp.asarray(tokens[:, :1]), jnp.asarray([[6, 7, 9]]))
        assert not np.allclose(denoiser(jnp.asarray(tokens[:, :1]), jnp.asarray([[6, 7, 8]]))[:, 0], changed[:, 0])


def test_the_small_denoiser_inside_a_pattern():
    tokenizer = fc.load_tokenizer(models.small_tokenizer_path())
    denoiser = models.load_small_denoiser()
    prompt = "Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: "
    prompts = denoiser.prompts([prompt] * 4, tokenizer)
    pattern = r'\{"name": "[A-Z][a-z]+( [A-Z][a-z]+){1,2}", "born": [0-9]{4}, "city": "[A-Z][a-z]+", "occupation": "[a-z ]+"\}'
    tables = canvas.to_canvas(fc.compile_regex(pattern, tokenizer))
    with jax.numpy_rank_promotion("allow"):  # the model's own business
        out = canvas.denoise(denoiser, prompts, tables, key=jax.random.key(0), length=CANVAS, block=16, steps=4)
    for text in out.text(tokenizer):
        assert re.fullmatch(pattern, text), text
    assert any("1815" in text for text in out.text(tokenizer))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"length": 0}, "length is 0"),
        ({"block": 3}, "blocks of 3"),
        ({"temperature": 0}, "temperature"),
        ({"draws": 0}, "draws is 0"),
        ({"prompts": [0]}, "prompts are"),
    ],
)
def test_mistakes_are_told(arbitrary, changed, text):
    given = {"prompts": np.zeros((1, 1), np.int32), "key": jax.random.key(0), "length": 4} | changed
    with pytest.raises(DecodeError, match=text):
        canvas.denoise(arbitrary, given.pop("prompts"), None, **given)
