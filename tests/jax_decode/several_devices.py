"""Run in a process with eight devices: every way to decode, with rows, the vocabulary or both spread over them; prints what differs.

Arguments: jobs `KIND:SPREAD:AXES:MODE,MODE…`, see `KINDS`, `SPREADS`, `AXES` and `results`; `page`, the documentation's blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from oracles import mixed_constraints as mixed
from oracles.block_decoder import block_toy, disturbed
from oracles.markdown import python_blocks

import jax_decode

KINDS = {"regular": mixed.regular, "stacks": mixed.with_stacks, "ambiguous": mixed.ambiguous}
SPREADS = {"rows": (8, 1), "ids": (1, 8), "both": (4, 2)}
AXES = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}
MODES = {
    "greedy": {},
    "sampled": {"sampler": jax_decode.Categorical(0.7), "num_samples": 2},
    "plain": {"sampler": jax_decode.Categorical(), "raw_logprobs": False},
    "top_k": {"sampler": jax_decode.TopK(3)},
    "nucleus": {"sampler": jax_decode.TopP(0.8, 1.3)},
    "min_p": {"sampler": jax_decode.MinP(0.1)},
    "forced": {"forced": 4},
    "looked_up": {"draft": jax_decode.PromptLookup(3), "sampler": jax_decode.TopP(0.8)},
}
PROMPTS = [[i % 13, i % 7 + 1] for i in range(16)]
WIDTH = -(-mixed.SIZE // 8) * 8
COLUMNS = {"table": P(None, None, "ids"), "bias": P("ids")}


class Letters:
    """Spells tokens for `stream`."""

    def decode(self, ids):
        return "".join(chr(65 + i) for i in ids)


def results(decoder, draft, tables, constraints, mode):
    """Tokens, status and log-probabilities of one way to decode."""
    count = len(constraints)
    which = [i % (count + 1) if i % (count + 1) < count else None for i in range(len(PROMPTS))]
    given = {"constraint": which, "max_new_tokens": 12, "allow_truncation": True, "stop_ids": [0], "max_depth": 8}
    key = jax.random.key(3)
    if mode in MODES:
        out = jax_decode.generate(decoder, PROMPTS, tables, key=key, **given, **MODES[mode])
    elif mode in ("drafted", "rejection"):
        drafts = jax_decode.ModelDraft(draft, 3, same_noise=mode == "drafted")
        out = jax_decode.generate(decoder, PROMPTS, tables, key=key, sampler=jax_decode.Categorical(), draft=drafts, **given)
    elif mode == "beams":
        out = jax_decode.beam_search(decoder, PROMPTS, tables, beams=3, **given)
    elif mode == "without_replacement":
        out = jax_decode.sample_without_replacement(decoder, PROMPTS, tables, key=key, num_samples=3, **given)
    elif mode == "stream":
        stream = jax_decode.stream(decoder, PROMPTS, tables, tokenizer=Letters(), **given)
        list(stream)
        out = stream.result
    else:
        short = [i for i, c in enumerate(constraints) if c.shortest_completion <= 3]
        which = [short[i % len(short)] for i in range(len(PROMPTS))]
        given = {"constraint": which, "max_new_tokens": 4, "max_depth": 8}
        if mode == "score":
            rows = [[1, 2], [1], [5], [12, 13], [1, 1]] * 4
            scores = jax_decode.score(decoder, PROMPTS, tables, tokens=rows[:16], constraint=which)
            return [], [], np.concatenate([*scores.logprobs, *scores.raw_logprobs, scores.total_logprob])
        if mode == "sequences":
            which, given = which[:8], given | {"constraint": which[:8], "max_new_tokens": 3, "ignore_below": 1e-3}
            found = jax_decode.enumerate_sequences(decoder, PROMPTS[:8], tables, **given)
            return [[int(t) for t in text] for text in found.tokens], [], np.asarray(found.raw_logprobs)
        proposal = jax_decode.Masked() if mode == "smc" else jax_decode.Rejection(3)
        weighted = jax_decode.generate_smc(decoder, PROMPTS, tables, key=key, particles=4, proposal=proposal, **given)
        out = weighted.generation
    texts = [[int(token) for token in text] for text in out.tokens]
    return texts, [int(status) for status in out.status], np.concatenate([np.asarray(x) for x in (*out.logprobs, *out.raw_logprobs)])


def run(kind, spread, axes, modes) -> None:
    """Compares modes over one mesh."""
    mesh = jax.make_mesh(SPREADS[spread], ("rows", "ids"), axis_types=(AXES[axes],) * 2)
    constraints = KINDS[kind]()
    decoder = block_toy(WIDTH)
    draft = disturbed(decoder, 1.0)
    one = jax_decode.to_device(constraints, logits_width=WIDTH)
    over = "ids" if spread != "rows" else None
    several = jax_decode.to_device(constraints, logits_width=WIDTH, sharding=NamedSharding(mesh, P()), vocabulary_axis=over)
    for mode in modes.split(","):
        expected = results(decoder, draft, one, constraints, mode)
        by_rows = spread != "ids" and mode not in ("score", "sequences")
        with jax_decode.sharded_rows(mesh, "rows") if by_rows else contextlib.nullcontext():
            found = results(placed(decoder, mesh), placed(draft, mesh), several, constraints, mode)
        same = expected[:2] == found[:2] and np.allclose(expected[2], found[2], atol=1e-4, equal_nan=True)
        print(f"{kind}:{spread}:{axes}:{mode}: {'equal' if same else 'DIFFERENT'}", flush=True)


def placed(decoder, mesh):
    """The decoder with its logits spread over `ids`."""
    params = {name: jax.device_put(x, NamedSharding(mesh, COLUMNS[name])) for name, x in decoder.params.items()}
    return dataclasses.replace(decoder, params=params)


def page() -> None:
    """Runs the blocks of the page on devices, and its loop under a mesh with explicit axes."""
    names: dict = {}
    for block in python_blocks((Path(__file__).parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")):
        exec(compile(block, "devices.md", "exec", dont_inherit=True), names)
    mesh = names["mesh"]
    tables, state, words = names["tables"], jax_decode.init_state(names["tables"], jnp.zeros(4, jnp.int32)), names["words"]
    with jax.set_mesh(mesh):
        logits = jax.device_put(names["logits"], NamedSharding(mesh, P(None, "ids")))
        step = jax.jit(jax.sharding.auto_axes(names["step"], out_sharding=P()))
        arguments = jax.device_put((words, jnp.zeros(4, jnp.uint32), tables, state), NamedSharding(mesh, P()))
        token, _ = step(logits, *arguments)
    print("explicit:", (np.asarray(token) == np.asarray(names["token"])).all())


def refusals() -> None:
    """What is said where prompts or logits cannot be spread evenly."""
    mesh = jax.make_mesh((8,), ("rows",))
    with jax_decode.sharded_rows(mesh, "rows"):
        try:
            jax_decode.generate(block_toy(WIDTH), PROMPTS[:5], None, max_new_tokens=2, stop_ids=[0])
        except jax_decode.DecodeError as error:
            print("refused:", str(error).splitlines()[0])
        rows = jax_decode.placement.put_rows(np.zeros((16, 2)))
    print("pieces:", sorted({shard.data.shape for shard in rows.addressable_shards}))
    try:
        jax_decode.to_device(mixed.regular(), logits_width=WIDTH + 1, sharding=NamedSharding(mesh, P()), vocabulary_axis="rows")
    except jax_decode.DecodeError as error:
        print("refused:", str(error).splitlines()[0])


if __name__ == "__main__":
    assert jax.device_count() == 8
    for job in sys.argv[1:]:
        if job == "page":
            page()
        else:
            run(*job.split(":"))
    refusals()
