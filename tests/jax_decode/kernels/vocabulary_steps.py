"""Run in a process with eight devices: one step over a vocabulary that is spread over them, and what the compiled step exchanges.

Arguments: jobs `TOKENS:WIDTH:SHARDS` or `TOKENS:WIDTH:SHARDS:CHOICE,CHOICE…`. Prints one JSON object per job and choice:
what each sampler takes, a draw by rejection (`rejection`), and two of different tokens (`distinct`). `canonical`: texts of canonical constraints of the small model's tokenizer; prints how many masks and tokens differ.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from oracles import hand_made
from oracles.filtered_walks import marked

import jax_decode
from fsa_compile import canonical_tables, compile_grammar, compile_regex, load_tokenizer
from jax_decode.beams.expansion import Beams, expanded
from jax_decode.beams.ranking import Perturbed
from jax_decode.probability.proposals import draw
from jax_decode.sampling.sampling import sample

SAMPLERS = {
    "greedy": jax_decode.Greedy(),
    "categorical": jax_decode.Categorical(None),
    "cool": jax_decode.Categorical(0.6),
    "top_k": jax_decode.TopK(7),
    "top_p": jax_decode.TopP(0.7, 1.5),
    "min_p": jax_decode.MinP(0.02),
}
CHOICES = [*SAMPLERS, "rejection", "distinct"]
BATCH, DRAWS = 8, 6
COLLECTIVE = re.compile(r"= \(?(.*?)\)? (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
SHAPE = re.compile(r"[a-z]+\d*\[([\d,]*)\]")


def collectives(text: str) -> list[tuple[str, int]]:
    """Kind of every exchange of a compiled program, and how many numbers it leaves on each device."""
    found = []
    for shapes, kind in COLLECTIVE.findall(text):
        found.append((kind, sum(math.prod(int(n) for n in dims.split(",") if n) for dims in SHAPE.findall(shapes))))
    return found


def chosen_by(name: str, logits, key, step, tables, state):
    """Tokens int32[B] or [B, 2], and two arrays of log-probabilities."""
    if name == "rejection":
        return draw(jax_decode.Rejection(5), logits, key, step, tables, state)[:3]
    if name == "distinct":
        none = jnp.zeros(BATCH)
        beams = Beams(state.running, logits, none, none, step[0].astype(jnp.int32))
        best = expanded(tables, Perturbed(key, None), state, beams, 1, 2).best
        return best.token, best.rank, best.weight
    return sample(SAMPLERS[name], logits, key, step, tables, state)


def run(tokens: int, width: int, count: int, names: str = ",".join(CHOICES)) -> None:
    """Compares choices over `count` shards with one device."""
    constraints = [hand_made.random_constraint(seed, tokens) for seed in (0, 1)] + [
        hand_made.one_of([[5, 7], [tokens - 1]], tokens)
    ]
    mesh = jax.make_mesh((count,), ("ids",), devices=jax.devices()[:count])
    one = jax_decode.to_device(constraints, logits_width=width)
    several = jax_decode.to_device(constraints, logits_width=width, sharding=NamedSharding(mesh, P()), vocabulary_axis="ids")
    mesh = several.shards.mesh
    rng = np.random.default_rng(width)
    which = np.arange(BATCH) % 4 - 1
    key, step = rng.integers(0, 2**32, (BATCH, 2), np.uint32), np.zeros(BATCH, np.uint32)
    states = [jax_decode.init_state(tables, which.astype(np.int32)) for tables in (one, several)]
    masks = [
        np.asarray(jax.jit(jax_decode.mask, static_argnames="width")(t, s, width=width)) for t, s in zip((one, several), states)
    ]
    assert (masks[0] == masks[1]).all()
    assert masks[0].any(1).all()
    for name in names.split(","):

        @jax.jit
        def chosen(logits, key, step, tables, state, name=name):
            token, *numbers = chosen_by(name, logits, key, step, tables, state)
            return token, numbers, jax_decode.advance(tables, state, token.reshape(BATCH, -1)[:, 0])

        wrong, last = 0, 0.0
        spread = NamedSharding(mesh, P(None, "ids"))
        for at in range(DRAWS):
            logits = rng.normal(0, 3, (BATCH, width)).astype(np.float32)
            step = np.full(BATCH, at, np.uint32)
            a, numbers, after = chosen(logits, key, step, one, states[0])
            b, others, later = chosen(jax.device_put(logits, spread), key, step, several, states[1])
            wrong += int((np.asarray(after.node) != np.asarray(later.node)).sum())
            wrong += int((np.asarray(a) != np.asarray(b)).sum())
            for x, y in zip(numbers, others):
                x, y = np.asarray(x), np.asarray(y)
                wrong += int((np.isfinite(x) != np.isfinite(y)).sum())
                last = max(last, float(np.abs(x - y, where=np.isfinite(x), out=np.zeros(x.shape)).max()))
        compiled = chosen.lower(jax.device_put(logits, spread), key, step, several, states[1]).compile()
        found = collectives(compiled.as_text())
        report = {
            "tokens": tokens,
            "batch": BATCH,
            "shards": count,
            "sampler": name,
            "wrong": wrong,
            "error": last,
            "collectives": found,
        }
        print(json.dumps(report | {"columns": several.shards.columns}), flush=True)


def canonical(count: int = 8, steps: int = 12) -> None:
    """Masks and draws of canonical constraints, one with a stack, over the real tokenizer of the small model."""
    tokenizer = load_tokenizer(Path(__file__).parents[3] / "models" / "small" / "tokenizer.model")
    made = [compile_regex(pattern, tokenizer, canonical=True) for pattern in ('"[a-z ]{1,20}"', "[0-9]{3}(, [a-z]+)*")]
    shared = canonical_tables(tokenizer)
    made.append(marked(compile_grammar('start: "[" [start ("," start)*] "]" | /[0-9]/', tokenizer), shared))
    width = -(-tokenizer.vocabulary.size // count) * count
    mesh = jax.make_mesh((count,), ("ids",))
    one = jax_decode.to_device(made, canonical=shared, logits_width=width)
    several = jax_decode.to_device(
        made, canonical=shared, logits_width=width, sharding=NamedSharding(mesh, P()), vocabulary_axis="ids"
    )
    mask = jax.jit(jax_decode.mask)

    @jax.jit
    def step(logits, key, at, tables, state):
        choice = sample(jax_decode.Categorical(1.5), logits, key, at, tables, state)
        return choice.token, jax_decode.advance(tables, state, choice.token)

    rng = np.random.default_rng(0)
    which, key = np.arange(BATCH, dtype=np.int32) % 3, rng.integers(0, 2**32, (BATCH, 2), np.uint32)
    states = [jax_decode.init_state(tables, which, np.full(BATCH, 40), max_tokens=40) for tables in (one, several)]
    wrong, masks = 0, 0
    for i in range(steps):
        wrong += int((np.asarray(mask(one, states[0])) != np.asarray(mask(several, states[1]))).sum())
        logits, at = rng.normal(0, 2, (BATCH, width)).astype(np.float32), np.full(BATCH, i, np.uint32)
        spread = jax.device_put(logits, NamedSharding(several.shards.mesh, P(None, "ids")))
        tokens, states = zip(step(logits, key, at, one, states[0]), step(spread, key, at, several, states[1]))
        wrong += int((np.asarray(tokens[0]) != np.asarray(tokens[1])).sum())
        masks += int((np.asarray(tokens[0]) >= 0).sum())
    print(json.dumps({"canonical": wrong, "tokens": masks}), flush=True)


if __name__ == "__main__":
    for job in sys.argv[1:]:
        if job == "canonical":
            canonical()
            continue
        tokens, width, count, *names = job.split(":")
        run(int(tokens), int(width), int(count), *names)
