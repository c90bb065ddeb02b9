"""Requests that come and go in a fused decoding loop get the tokens that masks of the host would give them: of a table, and of a model.

The loop is tpu-inference's own where that package is installed (`make test-servers`), else one with the same calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from oracles.fused_loop import STEPS, fused_loop, greedy, own_loop, their_loop
from oracles.fused_requests import WORDS, Small, Toy, served

import jax_decode
from jax_decode.errors import DecodeError
from jax_decode.integrations.tpu_inference import FusedRows

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=[None, 1, 0], ids=["own", "theirs", "theirs to the last step"])
def loop(request, monkeypatch):
    if request.param is None:
        return own_loop
    module = pytest.importorskip("tpu_inference.runner.decode_loop", reason="tpu-inference is not installed")
    metadata = pytest.importorskip("tpu_inference.layers.common.attention_metadata", reason="tpu-inference is not installed")
    for name in ("get_step_fn_compiler_options", "get_sampling_compiler_options"):
        monkeypatch.setattr(module, name, dict)
    return their_loop(module, metadata.AttentionMetadata, request.param)


@pytest.mark.parametrize("kind", [Toy, Small])
def test_requests_get_the_tokens_of_the_hosts_masks_and_compile_nothing(loop, kind, exhaustive, record_property):
    """By JAX's own events."""
    rows, count = (64, 10_000) if exhaustive else (8, 80 if kind is Toy else 24)
    names: list[str] = []

    def heard(event: str, duration_secs: float, **facts) -> None:
        if event in ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_trace_duration"):
            names.append(f"{event} {facts.get('fun_name', '')}")

    served(loop, kind(rows), 3 * rows, rows, seed=1)
    model = kind(rows)
    jax.monitoring.register_event_duration_secs_listener(heard)
    met = served(loop, model, count, rows, seed=2)
    jax.monitoring.unregister_event_duration_listener(heard)
    record_property("met", dict(met))
    assert names == []
    assert met["single steps"] > 2
    assert met["tokens"] > 3 * met["requests"]
    assert met["ties"] <= met["tokens"] / 10_000


def test_functions_around_the_same_functions_are_equal():
    pool = jax_decode.ConstraintPool(WORDS, profile="regular", slots=4)
    fused = FusedRows(pool, requests=2, max_tokens=8)
    one, other = (fused.functions(Toy.model_fn, Toy.logits_fn) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != fused.functions(greedy, Toy.logits_fn)


@pytest.mark.parametrize("kind", [Toy, Small])
def test_the_lowered_loop_calls_no_host(kind):
    model, pool = kind(2), jax_decode.ConstraintPool(kind.vocabulary, profile="general", slots=4)
    fused = FusedRows(pool, requests=2, max_tokens=8)
    parameters, caches = fused.carried(model.state, model.caches, [0, -1])
    zeros = jnp.zeros(2, jnp.int32)
    given = (parameters, *fused.functions(kind.model_fn, kind.logits_fn), greedy, zeros, (zeros, zeros), caches, jnp.int32(4))
    text = fused_loop.lower(*given, steps=STEPS, stops=kind.stops, padding=-1).as_text()
    assert not [word for word in ("callback", "infeed", "outfeed", "send", "recv") if word in text]


def test_wrong_calls_are_errors_that_say_what_to_do():
    pool = jax_decode.ConstraintPool(WORDS, profile="regular", slots=4)
    for wrong in ({"requests": 0}, {"requests": True}, {"max_tokens": 2.5}):
        with pytest.raises(DecodeError, match=f"{next(iter(wrong))} is"):
            FusedRows(pool, **({"requests": 2, "max_tokens": 8} | wrong))
    fused = FusedRows(pool, requests=2, max_tokens=8)
    with pytest.raises(DecodeError, match="there is no request 2 of 2"):
        fused.enter(2, None, 4)
    with pytest.raises(DecodeError, match="request 0 has a limit of 9 tokens"):
        fused.enter(0, None, 9)
    with pytest.raises(DecodeError, match=r"numbers are \[0, 2\]"):
        fused.follow([0, 2], [1, 1])
    with pytest.raises(DecodeError, match="'kept' needs the caches"):
        fused.kept([])
    fused.carried({}, [], [0])
    with pytest.raises(DecodeError, match="twice"):
        fused.carried({}, [], [0])


def test_devices_with_rows_of_their_own_exchange_only_whether_a_text_has_ended():
    """The loop's rows over eight devices, as a runner with data parallelism has them; the tokens are checked there."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("fused_devices.py"))],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["met"]["requests"] == 2 * 24
    assert found["compiled"] == []
    assert found["exchanged"] == {"pred[]": 1}
