"""Run in a process with eight devices: a fused loop whose rows are spread over them, as a runner with data parallelism has it.

Prints one JSON object: what was met, what a second set of requests compiled, and the sizes of what the loop's devices exchange.
"""

from __future__ import annotations

import collections
import json
import re

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from oracles.fused_loop import STEPS, fused_loop, greedy, own_loop
from oracles.fused_requests import Toy, served

import jax_decode

MESH = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
EVERYWHERE, ROWS = NamedSharding(MESH, P()), NamedSharding(MESH, P("data"))
seen: list[str] = []


def loop(state, model, logits, tokens, positions, pages, caches, most, stops):
    """The loop with its batch spread over the devices."""
    tokens, positions, pages = jax.device_put((tokens, positions, pages), ROWS)
    if not seen:
        given = (state, model, logits, greedy, tokens, (positions, pages), caches, jnp.int32(most))
        seen.append(fused_loop.lower(*given, steps=STEPS, stops=stops, padding=-1).compile().as_text())
    return own_loop(state, model, logits, tokens, positions, pages, caches, most, stops)


def heard(event: str, duration_secs: float, **facts) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        programs.append(str(facts.get("fun_name", "")))


def made() -> Toy:
    model = Toy(8)
    model.state, model.caches = jax.device_put((model.state, model.caches), EVERYWHERE)
    return model


programs: list[str] = []
with jax_decode.sharded_rows(MESH, "data"):
    first = served(loop, made(), 24, 8, seed=1, sharding=EVERYWHERE)
    another = made()
    jax.monitoring.register_event_duration_secs_listener(heard)
    second = served(loop, another, 24, 8, seed=2, sharding=EVERYWHERE)
kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
exchanged = collections.Counter(re.findall(rf"= (\S+?\[[^\]]*\])\S* (?:{kinds})(?:-start)?\(", seen[0]))
print(json.dumps({"met": first + second, "compiled": programs, "exchanged": exchanged}))
