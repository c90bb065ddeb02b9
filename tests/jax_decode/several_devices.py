"""Run in a process with eight devices: every way to decode, with rows or the vocabulary spread over them; prints what differs."""

from __future__ import annotations

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from oracles import mixed_constraints as mixed
from oracles.toy_decoder import toy

import jax_decode

KINDS, MODES = (argument.split(",") for argument in sys.argv[1:])
CONSTRAINTS = {"regular": mixed.regular, "stacks": mixed.with_stacks}
PROMPTS = [[i % 13, i % 7 + 1] for i in range(16)]


def results(decoder, tables, count, mode):
    """Tokens, status and log-probabilities of one way to decode."""
    which = [i % (count + 1) if i % (count + 1) < count else None for i in range(len(PROMPTS))]
    given = {"constraint": which, "max_new_tokens": 12, "allow_truncation": True, "stop_ids": [0]}
    key = jax.random.key(3)
    if mode == "greedy":
        out = jax_decode.generate(decoder, PROMPTS, tables, **given)
    elif mode == "sampled":
        out = jax_decode.generate(decoder, PROMPTS, tables, key=key, sampler=jax_decode.Categorical(0.7), num_samples=2, **given)
    elif mode == "nucleus":
        out = jax_decode.generate(decoder, PROMPTS, tables, key=key, sampler=jax_decode.TopP(0.8), **given)
    elif mode == "forced":
        out = jax_decode.generate(decoder, PROMPTS, tables, forced=4, **given)
    elif mode == "drafted":
        out = jax_decode.generate(decoder, PROMPTS, tables, draft=jax_decode.PromptLookup(3), **given)
    elif mode == "beams":
        out = jax_decode.beam_search(decoder, PROMPTS, tables, beams=3, **given)
    else:
        raise ValueError(mode)
    texts = [[int(token) for token in text] for text in out.tokens]
    return texts, [int(status) for status in out.status], np.concatenate([np.asarray(x) for x in out.raw_logprobs])


def main() -> None:
    assert jax.device_count() == 8
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Auto,))
    everywhere = NamedSharding(mesh, P())
    ids = jax.make_mesh((8,), ("ids",), axis_types=(AxisType.Auto,))
    for name in KINDS:
        constraints = CONSTRAINTS[name]()
        decoder = toy(mixed.SIZE)
        one = jax_decode.to_device(constraints)
        copies = jax_decode.to_device(constraints, sharding=everywhere)
        spread = dataclasses.replace(decoder, params=jax.device_put(decoder.params, everywhere))
        width = -(-mixed.SIZE // 8) * 8
        wide = jax.tree.map(lambda x, n=width: jnp.pad(x, [(0, n - m) for m in x.shape], constant_values=-50.0), decoder.params)
        over_ids = NamedSharding(ids, P("ids"))
        padded = dataclasses.replace(toy(width), params=wide)
        columns = {"table": NamedSharding(ids, P(None, "ids")), "bias": over_ids}
        by_ids = dataclasses.replace(padded, params={k: jax.device_put(x, columns[k]) for k, x in wide.items()})
        for mode in MODES:
            expected = results(decoder, one, len(constraints), mode)
            with jax_decode.sharded_rows(mesh, "rows"):
                found = results(spread, copies, len(constraints), mode)
            compare(f"{name}, {mode}, rows", expected, found)
            if mode in ("greedy", "sampled"):
                expected = results(padded, one, len(constraints), mode)
                found = results(by_ids, jax_decode.to_device(constraints, sharding=NamedSharding(ids, P())), len(constraints), mode)
                compare(f"{name}, {mode}, ids", expected, found)
    with jax_decode.sharded_rows(mesh, "rows"):
        try:
            jax_decode.generate(decoder, PROMPTS[:5], None, max_new_tokens=2, stop_ids=[0])
        except jax_decode.DecodeError as error:
            print("refused:", str(error).splitlines()[0])
        rows = jax_decode.placement.put_rows(np.zeros((16, 2)))
    print("pieces:", sorted({shard.data.shape for shard in rows.addressable_shards}))


def compare(name, expected, found) -> None:
    same = expected[:2] == found[:2] and np.allclose(expected[2], found[2], atol=1e-4, equal_nan=True)
    print(f"{name}: {'equal' if same else 'DIFFERENT'}")


main()
