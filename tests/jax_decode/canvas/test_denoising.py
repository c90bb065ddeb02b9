"""Canvases that a model fills, step by step, are in the language of their constraint."""

import dataclasses
import itertools
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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Neighbours(Arbitrary):
    """A model that sees both neighbours of a position."""

    def __call__(self, prompt, tokens):
        beside = jnp.pad(tokens, ((0, 0), (1, 1)), constant_values=self.mask_id)
        return super().__call__(prompt, tokens) + self.table[beside[:, :-2]] - 2 * self.table[beside[:, 2:]]


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


@pytest.mark.sampled(2)
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


def free_runs(model, length, block, steps, left_to_right):
    """Every run of the model's own sampler on a short canvas: its probability by canvas, all draws of all steps written out."""
    position = np.arange(length)

    def go(canvas, known, at):
        if at == length // block * steps:
            return {tuple(canvas.tolist()): 1.0}
        first = at // steps * block
        window = (position >= first) & (position < first + block)
        logits = np.array(model(jnp.zeros((1, 1), jnp.int32), jnp.asarray(canvas)[None])[0], np.float64)
        logits[:, model.mask_id] = -np.inf
        probability = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        free = np.flatnonzero(window & ~known)
        count = block * (at % steps + 1) // steps - (window & known).sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.nansum(probability * np.log(probability), axis=1)
        chosen = free[np.argsort(free if left_to_right else entropy[free], kind="stable")[:count]]
        out = {}
        for tokens in itertools.product(*[np.flatnonzero(probability[i] > 0) for i in chosen]):
            after, settled = canvas.copy(), known.copy()
            after[chosen], settled[chosen] = tokens, True
            for end, p in go(after, settled, at + 1).items():
                out[end] = out.get(end, 0.0) + p * np.prod(probability[chosen, list(tokens)])
        return out

    return go(np.full(length, model.mask_id), np.zeros(length, bool), 0)


LITTLE = fc.Vocabulary.from_tokens([b"", b"a", b"#", b"b", b"ab"], stop_ids=[0])
"""Token 2 is the mask of the model."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("steps", "left_to_right"), [(3, True), (2, False)])
def test_many_draws_have_the_distribution_of_rejection(steps, left_to_right, exhaustive):
    """Against every run of the model's own sampler: mean weights are its probability of the constraint, and what is kept of 16 draws
    has its distribution given the constraint. Without resampling, weights alone do the same; one draw does not."""
    if steps == 3 and not exhaustive:
        pytest.skip("three steps only with --exhaustive, two always")
    model = Neighbours(jax.random.normal(jax.random.key(6), (5, 5)))
    constraint = fc.compile_regex("a(ab|b)?|bb?a?", LITTLE)
    exact = free_runs(model, 3, 3, steps, left_to_right)
    assert sum(exact.values()) == pytest.approx(1)
    share = {row: exact.get(row, 0.0) for row in map(tuple, canvases(constraint, 3).tolist())}
    total, rows, distance = sum(share.values()), 400, {}
    for draws, below in ((1, 0.5), (16, 0.5), (16, 0.0))[: 3 if left_to_right else 2]:
        given = {"key": jax.random.key(7), "length": 3, "steps": steps, "left_to_right": left_to_right}
        prompts, tables = np.zeros((rows, 1), np.int32), canvas.to_canvas(constraint)
        out = canvas.denoise(model, prompts, tables, **given, draws=draws, resample_below=below)
        weights = np.exp(out.log_weights.astype(np.float64)).mean(1)
        assert abs(weights.mean() - total) < 5 * weights.std() / np.sqrt(rows) + 1e-6
        found = {row: (out.tokens == row).all(1).mean() for row in share}
        assert sum(found.values()) == pytest.approx(1)
        distance[draws, below] = 0.5 * sum(abs(found[row] - p / total) for row, p in share.items())
    noise = 0.5 * sum(np.sqrt(2 / np.pi * p / total / rows) for p in share.values())  # mean distance of exact samples
    assert distance[1, 0.5] > 2 * noise
    assert all(distance[draws, below] < 2 * noise for draws, below in distance if draws > 1)


def test_rows_without_a_canvas_are_marked(arbitrary):
    tables = canvas.to_canvas([fc.compile_regex("[ab]{40}", MANY), fc.compile_regex("[ab]{2}", MANY)])
    out = canvas.denoise(arbitrary, np.zeros((2, 1), np.int32), tables, key=jax.random.key(0), length=4, which=[0, 1])
    assert (out.tokens[0] == -1).all()
    assert (out.tokens[1] >= 0).all()
    assert out.text(MANY)[0] == ""


def test_a_model_that_knows_more_ids():
    """Draws without the constraint may be ids that its vocabulary lacks; such canvases are never kept."""
    width = len(MANY.tokens)
    wide = Arbitrary(jax.random.normal(jax.random.key(0), (width + 9, width + 9)).at[width:].add(9.0))
    tables = canvas.to_canvas(fc.compile_regex("[a-z]{1,3}[^!]?", MANY))
    out = canvas.denoise(wide, np.zeros((8, 1), np.int32), tables, key=jax.random.key(0), length=4, steps=2, draws=2)
    assert all(re.fullmatch("[a-z]{1,3}[^!]?", text) for text in out.text(MANY))
    assert (out.log_weights[:, 0] == -np.inf).any()


def test_without_a_constraint_positions_are_drawn_on_their_own(arbitrary):
    out = canvas.denoise(arbitrary, np.zeros((4, 1), np.int32), None, key=jax.random.key(0), length=4, steps=2)
    assert (out.tokens >= 0).all()
    assert (out.tokens != arbitrary.mask_id).all()


def test_a_model_that_sees_both_sides():
    config = dataclasses.replace(tiny_config("gemma3"), bidirectional=True)
    denoiser = Denoiser(models.Gemma.init(config, jax.random.key(0)))
    tokens = np.array([[5, 6, 7, 8]], np.int32)
    with jax.numpy_rank_promotion("allow"):  # the model's own business
        sees = jax.jit(lambda model, canvas: model(jnp.asarray(tokens[:, :1]), canvas))
        changed = sees(denoiser, jnp.asarray([[6, 7, 9]]))
        assert not np.allclose(sees(denoiser, jnp.asarray([[6, 7, 8]]))[:, 0], changed[:, 0])


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


def test_a_model_that_no_program_can_take(arbitrary):
    class Plain:
        mask_id = 2

        def __call__(self, prompt, tokens):
            return arbitrary(prompt, tokens)

    with pytest.raises(DecodeError, match="is no pytree"):
        canvas.denoise(Plain(), np.zeros((1, 1), np.int32), None, key=jax.random.key(0), length=4)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"length": 0}, "length is 0"),
        ({"block": 3}, "blocks of 3"),
        ({"temperature": 0}, "temperature"),
        ({"draws": 0}, "draws is 0"),
        ({"resample_below": -1}, "resample_below is -1"),
        ({"prompts": [0]}, "prompts are"),
    ],
)
def test_mistakes_are_told(arbitrary, changed, text):
    given = {"prompts": np.zeros((1, 1), np.int32), "key": jax.random.key(0), "length": 4} | changed
    with pytest.raises(DecodeError, match=text):
        canvas.denoise(arbitrary, given.pop("prompts"), None, **given)
