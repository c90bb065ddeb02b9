"""One of two processes of two devices each: restores a checkpoint onto its own devices, and decodes together with the other.

Arguments: number of the process, port, folder of a checkpoint by `save_orbax`. Prints what the parent compares.
"""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from oracles.block_decoder import block_toy

import jax_decode

WIDTH, PROMPTS = 48, [[1, 2], [3], [5, 6, 7], [4]]


def generated(decoder, tables) -> list:
    """Sampled texts."""
    given = {"constraint": [0] * 4, "max_new_tokens": 6, "chunk": 2, "allow_truncation": True, "key": jax.random.key(2)}
    made = jax_decode.generate(decoder, PROMPTS, tables, sampler=jax_decode.Categorical(0.9), **given)
    return [[int(token) for token in row] for row in made.tokens]


def main() -> None:
    process, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
    assert (jax.device_count(), jax.local_device_count()) == (4, 2)
    constraint = jax_decode.load_orbax(folder)
    mesh = jax.make_mesh((4,), ("ids",))
    everywhere = NamedSharding(mesh, P())
    tables = jax_decode.to_device(constraint, logits_width=WIDTH, sharding=everywhere, vocabulary_axis="ids")
    pieces = {shard.index[1].start or 0: list(shard.data.shape) for shard in tables.rows.addressable_shards}
    decoder = block_toy(WIDTH)
    spread = {"table": P(None, None, "ids"), "bias": P("ids")}
    params = {
        name: jax.make_array_from_callback(x.shape, NamedSharding(mesh, spread[name]), np.asarray(x).__getitem__)
        for name, x in decoder.params.items()
    }
    texts = generated(type(decoder)(decoder.apply_fn, params, decoder.init_cache_fn, WIDTH, decoder.rewind_fn), tables)
    print(json.dumps({"pieces": pieces, "texts": texts}))


if __name__ == "__main__":
    main()
