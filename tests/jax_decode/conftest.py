"""Tests of the device half: no silent dtype promotion, no silent rank promotion; what is compiled meanwhile."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(autouse=True)
def _strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def compiled():
    """Names of the programs that XLA compiles meanwhile, by JAX's own events."""
    names: list[str] = []

    def heard(event: str, duration_secs: float, **facts) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(str(facts.get("fun_name", "")).removeprefix("jit(").removesuffix(")"))

    jax.monitoring.register_event_duration_secs_listener(heard)
    yield names
    jax.monitoring.unregister_event_duration_listener(heard)
