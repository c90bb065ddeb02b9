"""Our logits against those the official `gemma` package gave (fixtures written by `parity/make_fixtures.py`)."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import layouts
from models.config import GemmaConfig
from models.gemma import Gemma
from models.tiny import VARIANTS

FIXTURES = pathlib.Path(__file__).parent / "parity" / "fixtures"
TOLERANCE = 1e-4


def read_fixture(variant: str) -> tuple[Gemma, np.ndarray, np.ndarray]:
    with np.load(FIXTURES / f"{variant}.npz", allow_pickle=False) as file:
        config = GemmaConfig.from_json(json.loads(str(file["config"])))
        flat = {name.removeprefix("param:"): file[name] for name in file if name.startswith("param:")}
        return Gemma(layouts.nest(flat), config), file["tokens"], file["logits"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_full_forward(variant: str) -> None:
    decoder, tokens, official = read_fixture(variant)
    logits = jax.jit(Gemma.forward)(decoder, tokens)
    np.testing.assert_allclose(logits, official, atol=TOLERANCE, rtol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("variant", VARIANTS)
def test_prefill_and_steps_through_the_cache(variant: str) -> None:
    decoder, tokens, official = read_fixture(variant)
    apply = jax.jit(Gemma.apply)
    batch, length = tokens.shape
    cache = decoder.init_cache(batch, length)
    logits, cache = apply(decoder, tokens[:, :5], cache, jnp.full(batch, 5))
    np.testing.assert_allclose(logits, official[:, :5], atol=TOLERANCE, rtol=0)
    for i in range(5, length):
        logits, cache = apply(decoder, tokens[:, i : i + 1], cache, jnp.ones(batch, jnp.int32))
        np.testing.assert_allclose(logits[:, 0], official[:, i], atol=TOLERANCE, rtol=0)


CHANGES = [
    ("gemma3", {"sliding_window": 9}),
    ("gemma3", {"global_rope_scale": 1.0}),
    ("gemma3", {"local_rope_base": 20_000.0}),
    ("gemma2", {"attention_soft_cap": None}),
    ("gemma2", {"final_soft_cap": None}),
    ("gemma2", {"query_scalar": None}),
]


@pytest.mark.parametrize(("variant", "change"), CHANGES)
def test_the_fixture_notices_a_wrong_architecture(variant: str, change: dict[str, float | None]) -> None:
    decoder, tokens, official = read_fixture(variant)
    wrong = Gemma(decoder.params, dataclasses.replace(decoder.config, **change))
    assert np.abs(jax.jit(Gemma.forward)(wrong, tokens) - official).max() > 10 * TOLERANCE
