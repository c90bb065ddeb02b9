"""Run in a process with eight devices: every way to decode, with rows, the vocabulary or both spread over them; prints what differs.

Arguments: jobs `KIND:SPREAD:AXES:MODE,MODE…`, see `WORLDS`, `SPREADS`, `AXES` and `results`; `page`, the documentation's blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from oracles import mixed_constraints as mixed
from oracles.block_decoder import block_toy, disturbed
from oracles.filtered_walks import marked
from oracles.markdown import python_blocks

import fsa_compile
import jax_decode
import models
from jax_decode.tables import items as catalogue

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
    "longest": {"forced": jax_decode.Forced(4, jax_decode.longest_spelling), "sampler": jax_decode.Categorical()},
    "looked_up": {"draft": jax_decode.PromptLookup(3), "sampler": jax_decode.TopP(0.8)},
    "spelled": {"draft": jax_decode.ForcedText(3), "sampler": jax_decode.Categorical(), "forced": 2},
    "progress": {"sampler": jax_decode.Categorical(), "progress": lambda done, most: None, "chunk": 2},
}
"""Ways to call `generate`."""
PROMPTS = [[i % 13, i % 7 + 1] for i in range(16)]
COLUMNS = {"table": P(None, None, "ids"), "bias": P("ids")}


class Letters:
    """Spells tokens, and reads letters."""

    def decode(self, ids):
        return "".join(chr(65 + i) for i in ids)

    def encode(self, text):
        return [ord(c) - 65 for c in text]


@dataclasses.dataclass(frozen=True)
class World:
    """Constraints, the number of logits, what else `to_device` is given, and a tokenizer."""

    constraints: list[Any]
    width: int = -(-mixed.SIZE // 8) * 8
    given: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokenizer: Any = Letters()  # noqa: RUF009 (without state)


def items(*others) -> World:
    """Sets of items, beside other constraints or alone: nodes of more than two children have mask rows."""
    rng = np.random.default_rng(4)
    texts = [[int(rng.integers(1, 21 if at < 2 else 5)) for at in range(rng.integers(2, 6))] for _ in range(80)]
    sets = [fsa_compile.compile_items(x, mixed.SIZE, stop_ids=(0,)) for x in (texts[:60], texts[60:])]
    return World([*sets, *(dataclasses.replace(c, fingerprint=sets[0].fingerprint) for c in others)])


@functools.cache
def small_tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


def texts() -> World:
    """Over the small model's tokenizer: a pattern, a filtered one, keys in any order, nested objects, and a healed pattern."""
    tokenizer, options = small_tokenizer(), fsa_compile.SchemaOptions(key_order="any")
    schema = {
        "type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "array", "items": {"$ref": "#"}}, "c": {"const": 1}},
        "required": ["a"], "additionalProperties": False,
    }  # fmt: skip
    filters = [fsa_compile.filters.byte_fallback(), fsa_compile.filters.forbid("ab")]
    plain = fsa_compile.compile_regex("(yes|no|perhaps)(, because)?", tokenizer)
    constraints = [
        plain,
        fsa_compile.compile_regex("[a-c ]{1,6}!", tokenizer, filters=filters),
        fsa_compile.compile_json_schema(schema, tokenizer, options=options),
        fsa_compile.compile_json_schema(schema, tokenizer),
        fsa_compile.heal("The answer: y", plain, tokenizer).constraint,
    ]
    return World(constraints, tokenizer.vocabulary.size, {"vocabulary": tokenizer}, tokenizer)


def canonical() -> World:
    """Canonical constraints, one with a stack: every token depends on the one before."""
    tokenizer = small_tokenizer()
    patterns = ["yes|no|perhaps", '"[a-z ]{1,20}"', "[0-9]{3}(, [a-z]+)*"]
    constraints = [fsa_compile.compile_regex(pattern, tokenizer, canonical=True) for pattern in patterns]
    own = fsa_compile.canonical_tables(tokenizer)
    given = {"canonical": own, "vocabulary": tokenizer}
    constraints.append(marked(fsa_compile.compile_grammar('start: "[" [start ("," start)*] "]" | /[0-9]/', tokenizer), own))
    return World(constraints, tokenizer.vocabulary.size, given, tokenizer)


def tempered() -> World:
    """Rules with temperatures of their own, and a constraint without."""
    tokens = [b"", *(bytes([byte]) for byte in b'abcdefghij{}:"'), b'":', b"ab"]
    vocabulary = fsa_compile.Vocabulary.from_tokens(tokens, stop_ids=[0])
    grammar = 'start: "{" key ":" text "}"\nkey[temperature=0]: /[a-e]{1,3}/\ntext[temperature=1.5]: /"[a-j]{0,4}"/'
    constraints = [fsa_compile.compile_grammar(grammar, vocabulary), fsa_compile.compile_regex("[a-j]{2,8}", vocabulary)]
    return World(constraints, -(-len(tokens) // 8) * 8)


WORLDS = {
    "regular": lambda: World(mixed.regular()),
    "stacks": lambda: World(mixed.with_stacks()),
    "ambiguous": lambda: World(mixed.ambiguous()),
    "items": items,
    "beside_items": lambda: items(*mixed.regular()),
    "texts": texts,
    "canonical": canonical,
    "tempered": tempered,
}


def on_device(world: World, **placement: Any) -> Any:
    before, catalogue.LISTED = catalogue.LISTED, 2
    try:
        return jax_decode.to_device(world.constraints, logits_width=world.width, **world.given, **placement)
    finally:
        catalogue.LISTED = before


def results(decoder, draft, tables, world, mode):
    """Tokens, status and numbers of one way to decode."""
    count = len(world.constraints)
    which = [i % (count + 1) if i % (count + 1) < count else None for i in range(len(PROMPTS))]
    stops = [0] if world.tokenizer is World.tokenizer else None
    given = {"constraint": which, "max_new_tokens": 12, "allow_truncation": True, "stop_ids": stops, "max_depth": 8}
    key = jax.random.key(3)
    if mode in MODES:
        out = jax_decode.generate(decoder, PROMPTS, tables, key=key, **given, **MODES[mode])
    elif mode in ("drafted", "rejection", "unmasked"):
        drafts = jax_decode.ModelDraft(draft, 3, same_noise=mode == "drafted", share_penalties=mode != "unmasked")
        out = jax_decode.generate(decoder, PROMPTS, tables, key=key, sampler=jax_decode.Categorical(), draft=drafts, **given)
    elif mode == "beams":
        out = jax_decode.beam_search(decoder, PROMPTS, tables, beams=3, **given)
    elif mode == "long_beams":
        out = jax_decode.beam_search(decoder, PROMPTS, tables, beams=5, num_return=2, length_penalty=1.2, chunk=3, **given)
    elif mode == "without_replacement":
        out = jax_decode.sample_without_replacement(decoder, PROMPTS, tables, key=key, num_samples=3, temperature=0.9, **given)
    elif mode == "stream":
        rules = [jax_decode.StopStrings("B"), jax_decode.StopWhen(lambda row, text: len(text) > 9)]
        stream = jax_decode.stream(decoder, PROMPTS, tables, tokenizer=world.tokenizer, stopping=rules, **given)
        list(stream)
        out = stream.result
    elif mode == "own_loop":
        return own_loop(decoder, tables, which, stops)
    else:
        return of_probability(decoder, tables, world, mode)
    texts = [[int(token) for token in text] for text in out.tokens]
    return (
        texts,
        [int(status) for status in out.status],
        np.concatenate([np.asarray(x) for x in (*out.logprobs, *out.raw_logprobs)]),
    )


def of_probability(decoder, tables, world, mode):
    """`results` of what weighs texts: prompts whose constraints have short ones."""
    constraints, key = world.constraints, jax.random.key(3)
    short = [i for i, c in enumerate(constraints) if isinstance(c, fsa_compile.CompiledItems) or c.shortest_completion <= 3]
    which = [short[i % len(short)] for i in range(len(PROMPTS))]
    given = {"constraint": which, "max_new_tokens": 4, "max_depth": 8}
    fewer = given | {"constraint": which[:8], "max_new_tokens": 3, "ignore_below": 1e-3}
    if mode == "score":
        rows = [[1, 2], [1], [5], [12, 13], [1, 1]] * 4
        scores = jax_decode.score(decoder, PROMPTS, tables, tokens=rows[:16], constraint=which)
        return [], [], np.concatenate([*scores.logprobs, *scores.raw_logprobs, scores.total_logprob])
    if mode == "text_scores":
        found = jax_decode.score_texts(decoder, PROMPTS[3], ["yes", "no"], world.tokenizer, tables=tables,
                                       constraint=0, key=key)  # fmt: skip
        return [], [int(n) for n in found.tokenizations], np.concatenate([found.raw_logprobs, found.logprobs])
    if mode == "sequences":
        found = jax_decode.enumerate_sequences(decoder, PROMPTS[:8], tables, **fewer)
        return [[int(t) for t in text] for text in found.tokens], [], np.asarray(found.raw_logprobs)
    if mode == "mass":
        exact = jax_decode.log_mass(decoder, PROMPTS[:8], tables, **fewer)
        drawn = jax_decode.log_mass(decoder, PROMPTS, tables, key=key, samples=64, max_prefixes=0, **given)
        return [], [], np.concatenate([exact.log_mass, drawn.log_mass, drawn.effective_sample_size])
    if mode == "options":
        found = jax_decode.option_probabilities(decoder, PROMPTS[:8], tables, world.tokenizer, **fewer)
        return found.texts, [], np.concatenate([found.log_probabilities.reshape(-1), found.rest])
    proposal = jax_decode.Rejection(3) if mode == "smc_rejection" else jax_decode.Masked()
    weighted = jax_decode.generate_smc(decoder, PROMPTS, tables, key=key, particles=4, proposal=proposal, **given)
    out = weighted.generation
    texts = [[int(token) for token in text] for text in out.tokens]
    return (
        texts,
        [int(status) for status in out.status],
        np.concatenate([*out.logprobs, *out.raw_logprobs, weighted.log_weights.reshape(-1)]),
    )


def own_loop(decoder, tables, which, stops):
    """`results` of a loop of the user's own, with every function that is offered for one."""
    rows = len(PROMPTS)
    which, limits = (np.asarray(x, np.int32) for x in ([-1 if w is None else w for w in which], [12] * rows))
    given = () if stops is None else (np.full((rows, 1), stops[0], np.int32),)
    state = jax_decode.init_state(tables, which, limits, *given, max_depth=8, max_tokens=16)
    words = jax_decode.key_words(jax.random.split(jax.random.key(5), rows))
    parent = np.array([0, *range(rows - 1)], np.int32)

    def step(decoder, cache, token, state, words, at, parent, tables):
        logits, cache = decoder.apply(token[:, None], cache, jnp.ones(rows, jnp.int32))
        logits = logits[:, -1]
        here = jax_decode.mask(tables, state, width=logits.shape[1])
        masked = jax_decode.mask_logits(tables, state, logits)
        best = jnp.where(here.any(1), jnp.argmax(masked, 1), -1).astype(jnp.int32)
        choice = jax_decode.sample(jax_decode.Categorical(), logits, words, at, tables, state)
        only = jax_decode.only_token(tables, state)
        ahead = jax_decode.advance(tables, state, best)
        state = jax_decode.advance(tables, jax_decode.rewind(ahead, state.position), choice.token)
        cache, state = jax_decode.fork_cache(decoder, cache, parent), jax_decode.fork(state, parent)
        return cache, jnp.maximum(choice.token, 0)[parent], state, (here, best, only, choice.token, state.status, choice.logprob)

    step, seen, numbers = jax.jit(step), [], []
    cache, token = decoder.init_cache(rows, 32), jnp.asarray([p[-1] for p in PROMPTS], jnp.int32)
    mesh = tables.rows.sharding.mesh if isinstance(tables.rows.sharding, NamedSharding) else None
    with contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh):
        if mesh is not None:  # on automatic axes, as the documentation says
            decoder = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, x.sharding.spec)), decoder)
        for at in range(5):
            places = jnp.full(rows, at, jnp.uint32)
            cache, token, state, found = step(decoder, cache, token, state, words, places, parent, tables)
            *whole, logprob = map(np.asarray, found)
            seen += [x.tolist() for x in whole]
            numbers.append(logprob)
    return seen, [], np.concatenate(numbers)


def run(kind, spread, axes, modes) -> None:
    """Compares modes over one mesh."""
    mesh = jax.make_mesh(SPREADS[spread], ("rows", "ids"), axis_types=(AXES[axes],) * 2)
    world = WORLDS[kind]()
    decoder = block_toy(world.width)
    draft = disturbed(decoder, 1.0)
    over = "ids" if spread != "rows" else None
    one, several = on_device(world), on_device(world, sharding=NamedSharding(mesh, P()), vocabulary_axis=over)
    for mode in modes.split(","):
        expected = results(decoder, draft, one, world, mode)
        by_rows = spread != "ids" and mode not in ("score", "text_scores", "sequences", "options", "own_loop")
        with jax_decode.sharded_rows(mesh, "rows") if by_rows else contextlib.nullcontext():
            found = results(placed(decoder, mesh), placed(draft, mesh), several, world, mode)
        same = expected[:2] == found[:2] and np.allclose(expected[2], found[2], atol=1e-4, equal_nan=True)
        print(f"{kind}:{spread}:{axes}:{mode}: {'equal' if same else 'DIFFERENT'}", flush=True)
        jax.clear_caches()  # every program holds mappings of memory, of which a process may have 65,530 on Linux


def placed(decoder, mesh):
    """The decoder with its logits spread over `ids`."""
    params = {name: jax.device_put(x, NamedSharding(mesh, COLUMNS[name])) for name, x in decoder.params.items()}
    return dataclasses.replace(decoder, params=params)


def page() -> None:
    """Runs the blocks of the page on devices, and its loop under a mesh with explicit axes."""
    names: dict = {}
    for block in python_blocks((Path(__file__).parents[3] / "docs" / "devices.md").read_text(encoding="utf-8")):
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
    mesh, width = jax.make_mesh((8,), ("rows",)), World([]).width
    with jax_decode.sharded_rows(mesh, "rows"):
        try:
            jax_decode.generate(block_toy(width), PROMPTS[:5], None, max_new_tokens=2, stop_ids=[0])
        except jax_decode.DecodeError as error:
            print("refused:", str(error).splitlines()[0])
        rows = jax_decode.kernels.placement.put_rows(np.zeros((16, 2)))
    print("pieces:", sorted({shard.data.shape for shard in rows.addressable_shards}))
    try:
        jax_decode.to_device(mixed.regular(), logits_width=width + 1, sharding=NamedSharding(mesh, P()), vocabulary_axis="rows")
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
