"""Strictness of every test of the device half: no silent dtype promotion, no silent rank promotion."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(autouse=True)
def _strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield
