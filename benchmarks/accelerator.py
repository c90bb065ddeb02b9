"""What does a constraint cost on this accelerator? Everything worth knowing of it, within eight minutes.

    make bench-accelerator        (or: python benchmarks/accelerator.py [--budget 420] [--tiny])

Verifies the tokens of every sampler against the CPU, then times one step in a jitted loop, with and without a constraint, for
every sampler, batch, vocabulary and kind of constraint; the same with a model of the shape of Gemma 3 1B in bfloat16 with random
weights; and beside masks that XGrammar and llguidance make on the host, copied in every step of the same model, where they are
installed. Counts the kernels of a step in the profiler's trace, retraces, and bytes of device memory. Writes
`benchmarks/results/accelerator_<device>.json` after every case, the most informative ones first; none begins after the budget.

Vocabularies are random strings over letters, digits and JSON's punctuation: nothing is downloaded. Canonical constraints, which
need a real tokenizer's merges, are measured if `CONSTRAX_DATA` names a folder of tokenizers.
"""

from __future__ import annotations

import argparse
import functools
import glob
import itertools
import json
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
from device_step import RESULTS, SAMPLERS, Bench, _model, forward, looped, model_loop, random_constraint, sampler_step

import fsa_compile
from jax_decode.kernels.noise import key_words
from jax_decode.kernels.target import compiled_for
from jax_decode.sampling.sampling import among, choose, sample
from jax_decode.step.masking import located, mask_parts
from jax_decode.step.packing import packed, unpacked
from jax_decode.step.state import init_state
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables, to_device

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
RECURSIVE = {"$defs": {"v": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/v"}}, SCHEMA]}}, "$ref": "#/$defs/v"}
LETTERS = b'abcdefghijklmnopqrstuvwxyz0123456789 {}[]":,.-_\\/'


def vocabulary_of(size: int) -> Any:
    """All bytes, then distinct random strings of 2 to 8 characters, and one stop id."""
    rng = np.random.default_rng(size)
    tokens = dict.fromkeys(bytes([b]) for b in range(256))
    while len(tokens) < size - 1:
        letters = rng.integers(0, len(LETTERS), (size, 8))
        lengths = rng.integers(2, 9, size)
        made = (bytes(LETTERS[i] for i in row[:n]) for row, n in zip(letters.tolist(), lengths.tolist()))
        tokens |= dict.fromkeys(itertools.islice(made, size - 1 - len(tokens)))
    return fsa_compile.Vocabulary.from_tokens([*tokens, b""], stop_ids=[size - 1])


def kinds_of(vocab_size: int) -> dict[str, ConstraintTables]:
    """Tables of every kind of constraint."""
    vocabulary = vocabulary_of(vocab_size)
    in_order = fsa_compile.compile_json_schema(RECURSIVE, vocabulary)
    options = fsa_compile.SchemaOptions(key_order="any")
    any_order = fsa_compile.compile_json_schema(SCHEMA, vocabulary, options=options)
    regular = fsa_compile.compile_regex(r'\{"name": "[a-z ]{1,40}", "age": [0-9]{1,3}\}', vocabulary)
    return {
        "regular": to_device(random_constraint(vocab_size)),
        "stack": to_device(in_order),
        "any order": to_device(any_order),
        "mixed": to_device([regular, in_order]),
    }


def _tokenizer() -> str | None:
    found = glob.glob(os.path.join(os.environ.get("CONSTRAX_DATA", ""), "tokenizers", "llama3", "tokenizer.model"))
    return found[0] if os.environ.get("CONSTRAX_DATA") and found else None


def canonical_tables() -> ConstraintTables | None:
    """Of a pattern in a real tokenizer's own tokens, if there is one."""
    found = _tokenizer()
    if found is None:
        return None
    tokenizer = fsa_compile.load_tokenizer(found)
    constraint = fsa_compile.compile_regex(r"[a-z]{1,12}( [a-z]{1,12}){0,9}\.", tokenizer, canonical=True)
    return to_device(constraint, canonical=fsa_compile.canonical_tables(tokenizer))


def served(vocab_size: int, kinds: dict[str, ConstraintTables]) -> tuple[Any, dict[str, ConstraintTables]]:
    """What a model's steps are measured with: a real tokenizer's vocabulary if there is one, as host masks are made for those."""
    found = _tokenizer()
    if found is None:
        return vocabulary_of(vocab_size), kinds
    vocabulary = fsa_compile.load_tokenizer(found).vocabulary
    in_order = fsa_compile.compile_json_schema(RECURSIVE, vocabulary)
    return vocabulary, {"regular": to_device(random_constraint(vocabulary.size)), "stack": to_device(in_order)}


class Case(NamedTuple):
    """A jitted program of some steps and its arguments, to be timed; `free`: the case that it is a ratio of, by its place."""

    name: str
    program: Any
    arguments: tuple[Any, ...]
    steps: int
    facts: dict[str, Any]
    free: int | None = None
    kernels: bool = False


def timed(bench: Bench, cases: list[Case]) -> None:
    """All of them, compiled side by side first: that takes more time than they do."""
    if bench.over():
        return
    lowered = [attempted(bench, case.name, case.program.lower, *case.arguments, **case.facts) for case in cases]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(lambda each: each and attempted(bench, "compilation", each.compile), lowered))
    medians: list[float | None] = []
    for case, run in zip(cases, compiled):
        if run is None:
            medians.append(None)
            continue
        mine = bench.case(case.name, functools.partial(run, *case.arguments), case.steps, **case.facts)
        medians.append(mine)
        free = None if case.free is None else medians[case.free]
        if mine and free:
            bench.rows[-1] |= {"ratio": round(mine / free, 4), "difference_us": round(mine - free, 2)}
    apart = None if jax.default_backend() == "cpu" else {"xla_gpu_enable_command_buffer": ""}  # else a step is one event
    traced = [(case, program) for case, program in zip(cases, lowered) if case.kernels and program is not None]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(lambda each: attempted(bench, "compilation", each[1].compile, apart), traced))
    for (case, _), run in zip(traced, runs):
        found = run and attempted(bench, "kernels per step", kernels_of, functools.partial(run, *case.arguments), case.steps)
        bench.rows.append({"case": f"kernels: {case.name}", **case.facts, **(found or {})})
    bench.write()


def verify(vocab_size: int) -> dict[str, Any]:
    """Tokens of every sampler on this device and on the CPU."""
    batch, programs = 8, {}
    constraint = random_constraint(vocab_size)
    logits = np.random.default_rng(0).normal(size=(batch, vocab_size)).astype(np.float32) * 3
    for name, sampler in SAMPLERS.items():
        for where, device in (("here", jax.devices()[0]), ("cpu", jax.devices("cpu")[0])):
            with jax.default_device(device):
                tables = to_device(constraint)
                state = init_state(tables, np.zeros(batch, np.int32), np.full(batch, 99, np.int32))
                words = key_words(jax.random.split(jax.random.key(1), batch))
                run = jax.jit(lambda x, k, t, s, sampler=sampler: sample(sampler, x, k, jnp.zeros(batch, jnp.uint32), t, s))
                arguments = jnp.asarray(logits), words, tables, state
                programs[name, where] = run.lower(*arguments), arguments
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = dict(zip(programs, pool.map(lambda each: each[0].compile(), programs.values())))
    tokens = {case: np.asarray(compiled[case](*programs[case][1]).token).tolist() for case in compiled}
    found = {name: (tokens[name, "here"], tokens[name, "cpu"]) for name in SAMPLERS}
    return {name: {"equal": here == cpu, "here": here, "cpu": cpu} for name, (here, cpu) in found.items()}


def walks(vocab_size: int) -> dict[str, Any]:
    """Tokens and statuses of constrained texts, on this device and on the CPU: whole steps, for every kind of constraint."""
    batch, steps, found = 40, 24, {}
    logits = np.random.default_rng(1).normal(size=(batch, vocab_size)).astype(np.float32) * 3

    def walk(x: jax.Array, tables: ConstraintTables, state: Any) -> Any:
        def body(rows: Any, i: jax.Array) -> Any:
            shifted = jnp.roll(x, i * 7919, 1)
            state = unpacked(rows)
            at = located(tables, state)
            choice = choose(SAMPLERS["greedy"], among(shifted, mask_parts(tables, state, at), tables.columns), None, None)
            return packed(advance(tables, state, choice.token, at)), choice.token

        rows, tokens = jax.lax.scan(body, packed(state), jnp.arange(steps))
        return tokens, unpacked(rows).status

    for where, device in (("here", jax.devices()[0]), ("cpu", jax.devices("cpu")[0])):
        with jax.default_device(device), compiled_for(device.platform):
            for kind, tables in kinds_of(vocab_size).items():
                which = np.arange(batch, dtype=np.int32) % int(tables.num_constraints)
                state = init_state(tables, which, np.full(batch, 20, np.int32), max_tokens=steps)
                found[kind, where] = [x.tolist() for x in jax.jit(walk)(jnp.asarray(logits), tables, state)]
    kinds = sorted({kind for kind, _ in found})
    return {kind: {"equal": found[kind, "here"] == found[kind, "cpu"], "statuses": found[kind, "cpu"][1]} for kind in kinds}


def kernels_of(program: Any, steps: int) -> dict[str, Any]:
    """Events on the device's lines of the profiler's trace, per step."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(program())
        [path] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        data = jax.profiler.ProfileData.from_file(path)
        lines = [line for plane in data.planes if plane.name.startswith("/device:") for line in plane.lines]
        counts = {line.name: sum(1 for _ in line.events) / steps for line in lines}
        times: dict[str, list[float]] = {}
        for event in itertools.chain.from_iterable(line.events for line in lines if line.name.startswith("Stream")):
            times.setdefault(event.name, []).append(event.duration_ns / 1000)
    longest = sorted(times.items(), key=lambda item: -sum(item[1]))[:80]
    return {
        "events_per_step": {name: round(n, 1) for name, n in counts.items() if n},
        "kernels": {name: [round(len(t) / steps, 2), round(sum(t) / steps, 2)] for name, t in longest},  # times and µs a step
    }


def attempted(bench: Bench, what: str, function: Any, *arguments: Any, **facts: Any) -> Any:
    """What a function returns; None where the time is up or it raises, which is noted: a part that fails costs no other."""
    if bench.over():
        return None
    try:
        return function(*arguments)
    except Exception as error:
        bench.rows.append({"case": what, **facts, "error": f"{type(error).__name__}: {error}"[:300]})
        print(f"{what}: {type(error).__name__}: {error}"[:300], flush=True)
        bench.write()
        return None


def step_cases(bench: Bench, batch: int, vocab_size: int, kinds: dict[str, ConstraintTables], samplers: list[str]) -> None:
    """Steps without a model."""
    logits = jax.random.normal(jax.random.key(0), (batch, vocab_size), jnp.float32) * 3
    words = key_words(jax.random.split(jax.random.key(1), batch))
    steps, nothing = bench.args.steps, (jnp.zeros(batch), jnp.zeros(batch))
    alone = looped(lambda x, s, i, e: (i + jnp.zeros(batch, jnp.int32), s), steps)
    cases = [Case("loop alone", alone, (logits, nothing, None), steps, {"B": batch, "V": vocab_size})]
    for name in samplers:
        facts = {"B": batch, "V": vocab_size, "sampler": name}
        free = len(cases)
        step = sampler_step(SAMPLERS[name])
        cases.append(Case("no constraint", looped(step, steps), (logits, nothing, (words, None)), steps, facts))
        usual = name in ("greedy", "categorical")
        for kind, tables in kinds.items() if usual else [("regular", kinds["regular"])]:
            which = np.arange(batch, dtype=np.int32) % int(tables.num_constraints)
            state = init_state(tables, which, np.full(batch, 4 * steps, np.int32), max_tokens=4 * steps)
            told = batch == 64 and name == "greedy"
            cases.append(Case(kind, looped(step, steps), (logits, state, (words, tables)), steps, facts, free, told))
    timed(bench, cases)


def model_cases(
    bench: Bench, which: str, batch: int, vocab_size: int, kinds: dict[str, ConstraintTables], place: int
) -> list[Case]:
    """Steps with a model's forward pass of one token; `place`: how many cases lie before them."""
    decoder = attempted(bench, f"model {which}", _model, which, vocab_size)
    if decoder is None:
        return []
    cache = decoder.init_cache(batch, 128)
    words = key_words(jax.random.split(jax.random.key(1), batch))
    nothing, steps = (jnp.zeros(batch), jnp.zeros(batch)), bench.args.steps
    loop = functools.partial(model_loop, batch, steps)
    facts = {"B": batch, "V": vocab_size, "model": which}
    cases = [Case("model alone", loop(forward), (decoder, cache, nothing, None), steps, facts)]
    for name in bench.args.samplers if batch == 64 else bench.args.samplers[:1]:
        step, own, free = sampler_step(SAMPLERS[name]), {**facts, "sampler": name}, place + len(cases)
        cases.append(Case("model, no constraint", loop(step), (decoder, cache, nothing, (words, None)), steps, own))
        for kind in ("regular", "stack"):
            tables, most = kinds.get(kind), 16 * steps
            if tables is not None:
                which_of = np.arange(batch, dtype=np.int32) % int(tables.num_constraints)
                state = init_state(tables, which_of, np.full(batch, most, np.int32), max_tokens=most)
                cases.append(Case(f"model, {kind}", loop(step), (decoder, cache, state, (words, tables)), steps, own, free))
    return cases


def of_models(bench: Bench, which: str, batches: list[int], vocabulary: Any, kinds: dict[str, ConstraintTables]) -> None:
    """A model with and without constraints, all batches compiled side by side; then with masks made on the host."""
    cases: list[Case] = []
    for batch in batches:
        cases += model_cases(bench, which, batch, vocabulary.size, kinds, len(cases))
    timed(bench, cases)
    decoder = attempted(bench, f"model {which}", _model, which, vocabulary.size)
    if decoder is None:
        return

    def compiled(batch: int) -> Any:
        words = jax.ShapeDtypeStruct((batch, -(-vocabulary.size // 32)), jnp.uint32)
        tokens = jax.ShapeDtypeStruct((batch,), jnp.int32)
        return attempted(bench, "compilation", masked_step.lower(decoder, tokens, decoder.init_cache(batch, 128), words).compile)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        steps = list(pool.map(compiled, batches))
    for batch, step in zip(batches, steps):
        for name, filler in (("XGrammar", _xgrammar), ("llguidance", _llguidance)):
            facts = {"B": batch, "V": vocabulary.size, "model": which, "library": name}
            made = attempted(bench, "model + host masks", filler, vocabulary, batch, **facts)
            if made is not None and step is not None:
                run = functools.partial(host_masks, step, decoder, decoder.init_cache(batch, 128), batch, *made)
                bench.case("model + host masks", run, 16, **facts)


@jax.jit
def masked_step(decoder: Any, token: Any, cache: Any, packed: Any) -> Any:
    """A greedy step under masks `packed` into words."""
    logits, cache = decoder.apply(token[:, None], cache, jnp.ones_like(token))
    bits = (packed[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    allowed = bits.reshape(token.size, -1)[:, : logits.shape[-1]] != 0
    return jnp.argmax(jnp.where(allowed, logits[:, -1], -jnp.inf), -1).astype(jnp.int32), cache


def host_masks(step: Any, decoder: Any, cache: Any, batch: int, fill: Any, accept: Any) -> Any:
    """16 steps whose masks another library makes on the host, for the tokens that it reads back, and copies."""
    token = jnp.zeros(batch, jnp.int32)
    for _ in range(16):
        token, cache = step(decoder, token, cache, jnp.asarray(fill()))
        accept(np.asarray(token))
    return token


def _xgrammar(vocabulary: Any, batch: int) -> tuple[Any, Any]:
    import xgrammar

    tokens = [token or b"<|nothing|>" for token in vocabulary.tokens]
    info = xgrammar.TokenizerInfo(tokens, vocab_size=vocabulary.size, stop_token_ids=list(vocabulary.stop_ids))
    compiler = xgrammar.GrammarCompiler(info)
    grammar = compiler.compile_json_schema(json.dumps(RECURSIVE), any_whitespace=False)
    matchers = [xgrammar.GrammarMatcher(grammar) for _ in range(batch)]
    together = xgrammar.BatchGrammarMatcher(os.cpu_count())
    words = xgrammar.allocate_token_bitmask(batch, vocabulary.size)

    def fill() -> np.ndarray:
        together.batch_fill_next_token_bitmask(matchers, words)
        return words.numpy().view(np.uint32)

    def accept(tokens: np.ndarray) -> None:
        for i, token in enumerate(tokens.tolist()):
            if not matchers[i].accept_token(token) or matchers[i].is_terminated():
                matchers[i].reset()

    return fill, accept


def _llguidance(vocabulary: Any, batch: int) -> tuple[Any, Any]:
    import llguidance
    from compilers import _GreedyEncoder
    from llguidance.numpy import fill_next_token_bitmask_par

    tokens = [token or b"\xff<|%d|>" % i for i, token in enumerate(vocabulary.tokens)]
    special = [i for i, token in enumerate(vocabulary.tokens) if not token]
    encoder = _GreedyEncoder(vocabulary, eos_token_id=vocabulary.stop_ids[0], tokens=tokens, special_token_ids=special)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(encoder), n_vocab=vocabulary.size)
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(RECURSIVE))
    matchers = [llguidance.LLMatcher(tokenizer, grammar) for _ in range(batch)]
    together = llguidance.LLExecutor(os.cpu_count())
    words = np.zeros((batch, -(-vocabulary.size // 32)), np.int32)

    def fill() -> np.ndarray:
        fill_next_token_bitmask_par(together, [(matcher, i) for i, matcher in enumerate(matchers)], words)
        return words.view(np.uint32)

    def accept(tokens: np.ndarray) -> None:
        for i, token in enumerate(tokens.tolist()):
            if matchers[i].try_consume_tokens([token]) == 0 or matchers[i].is_stopped():
                matchers[i].reset()

    return fill, accept


def retraces(vocab_size: int) -> int:
    """Programs compiled for a second constraint of the same profile: none is wanted."""
    vocabulary, count = vocabulary_of(vocab_size), 0

    def step(logits: jax.Array, words: jax.Array, tables: ConstraintTables, state: Any) -> jax.Array:
        nonlocal count
        count += 1
        return sample(SAMPLERS["greedy"], logits, words, jnp.zeros(4, jnp.uint32), tables, state).token

    run = jax.jit(step)
    for pattern in ("[a-z]{2,9}", "(yes|no)[0-9]{1,4}"):
        tables = to_device(fsa_compile.compile_regex(pattern, vocabulary))
        state = init_state(tables, np.zeros(4, np.int32), np.full(4, 9, np.int32))
        run(jnp.zeros((4, vocab_size)), jnp.zeros((4, 2), jnp.uint32), tables, state).block_until_ready()
    return count - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=420, help="seconds after which no case begins")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes: does it run?")
    parser.add_argument("--model", default="gemma3-1b")
    parser.add_argument("--output", type=Path, help="by default a file named after the device, in benchmarks/results")
    args = parser.parse_args()
    args.steps, args.reps, args.samplers = (2, 1, ["greedy"]) if args.tiny else (64, 10, ["greedy", "categorical"])
    batches, sizes = ([2], [1024]) if args.tiny else ([64, 512, 256, 8, 1], [131_072, 262_144, 32_768])
    bench = Bench(args)
    name = re.sub("^device_step", "accelerator_tiny" if args.tiny else "accelerator", bench.file.name)
    bench.file = args.output or RESULTS / name
    for what, function in (("tokens", verify), ("walks", walks), ("retraces", retraces)):
        bench.header[what] = attempted(bench, what, function, sizes[0])
    bench.write()
    which = "small" if args.tiny else args.model
    for vocab_size in sizes:
        regular = {"regular": to_device(random_constraint(vocab_size))}
        kinds = attempted(bench, "constraints", kinds_of, vocab_size, V=vocab_size) or regular
        if vocab_size == sizes[0]:
            of_models(bench, which, [batch for batch in batches if batch <= 256], *served(vocab_size, kinds))
        for batch in batches:
            first = batch == batches[0] and not args.tiny
            samplers = list(SAMPLERS) if first else ["greedy"] if args.tiny else ["greedy", "categorical"]
            step_cases(bench, batch, vocab_size, kinds if first or args.tiny else regular, samplers)
    if tables := attempted(bench, "canonical constraints", canonical_tables):
        step_cases(bench, batches[0], tables.vocab_size, {"canonical": tables}, ["greedy", "categorical"])
    bench.header["memory"] = jax.devices()[0].memory_stats()  # None on a CPU
    bench.write()
    print(f"{time.perf_counter() - bench.start:.0f} s; wrote {bench.file}")


if __name__ == "__main__":
    main()
