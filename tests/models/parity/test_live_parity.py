"""Our logits against the official `gemma` package, run side by side. Skipped where that package is not installed."""

from __future__ import annotations

import importlib.util

import jax
import numpy as np
import pytest
from oracles import official_gemma

from models.gemma import Gemma
from models.tiny import VARIANTS, tiny_config

needs_gemma = pytest.mark.skipif(
    importlib.util.find_spec("gemma") is None, reason="the official gemma package is not installed: make test-parity"
)


@needs_gemma
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_logits_agree_with_the_official_package(variant: str, seed: int) -> None:
    config = tiny_config(variant)
    params, tokens = official_gemma.random_case(config, seed)
    theirs = official_gemma.official_logits(config, params, tokens)
    ours = jax.jit(Gemma.forward)(Gemma(params, config), tokens)
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)
    assert theirs.std() > 0.1
