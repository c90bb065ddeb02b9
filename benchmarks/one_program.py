"""What does a new constraint cost a process that decodes: compiling, the first text, the step, bytes on the device?

    python benchmarks/one_program.py [--schemas 60] [--only first step bytes sequence]

With the small model, one row, `generate(max_new_tokens=48)`:

* first: seconds of the first text in a fresh process, without a constraint, for a pattern, and for a schema; then those of a
  second, different one. With an empty cache of programs, again with the cache that the first process has left, and with the
  programs loaded that another process exported. Beside them
  the seconds that JAX reports for tracing, lowering and XLA, of all programs of the first call.
* step: `step_report` of a batch, with the constraint in its profile and in sizes of its own (tight), in turns. Of the smallest
  and the median schema, for 1, 8 and 64 rows.
* sequence: `--sequence` schemas, a fifth as many patterns and the library's grammars one after another, in random order, then
  random batches of 1, 4 and 16 with free rows between, all in one profile: how often XLA compiled the loop. `--seconds` bounds
  each half; what was reached is in the result.
* bytes: of the tables of every schema in its profile and in sizes of its own; and how many profiles and scales there are.

Writes `benchmarks/results/one_program.json`, with the load of the machine beside every figure of time.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

RESULTS = Path(__file__).parent / "results" / "one_program.json"
DATA = Path(os.environ.get("CONSTRAX_DATA", Path(__file__).parents[2] / "shared" / "data"))
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
OTHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 16}, "open": {"type": "boolean"}},
    "required": ["city", "open"],
    "additionalProperties": False,
}
EVENTS = {
    "trace": "/jax/core/compile/jaxpr_trace_duration",
    "lower": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "xla": "/jax/core/compile/backend_compile_duration",
}


def child(kind: str, cache: str, programs: str) -> dict[str, Any]:
    """In a process of its own: the first text, and those after it; with `programs`, a file that is written or else loaded."""
    import jax

    import fsa_compile
    import jax_decode
    import models

    spent: collections.Counter[str] = collections.Counter()
    of_loop: list[float] = []

    def heard(event: str, seconds: float, **facts: Any) -> None:
        for name, known in EVENTS.items():
            spent[name] += seconds if event == known else 0.0
        if event == EVENTS["xla"] and "decode" in str(facts.get("fun_name", "")):
            of_loop.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(heard)
    if cache:
        jax_decode.keep_programs(cache)
    jax_decode.announce_compilation(False)
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    model = models.load_small()
    prompt = tokenizer.encode("Is the sky blue? ")

    def timed(constraint: Any) -> float:
        begin = time.perf_counter()
        tables = None if constraint is None else jax_decode.to_device(constraint)
        jax_decode.generate(model, prompt, tables, max_new_tokens=48)
        return time.perf_counter() - begin

    patterns = ("(yes|no), because [a-z ]{3,30}\\.", "[0-9]{4}-[0-9]{2}")
    made = {
        "none": [None, None],
        "pattern": [fsa_compile.compile_regex(text, tokenizer) for text in patterns],
        "schema": [fsa_compile.compile_json_schema(schema, tokenizer) for schema in (SCHEMA, OTHER)],
    }[kind]
    begin = time.perf_counter()
    if programs and not Path(programs).exists():
        with jax_decode.export_programs(programs):
            timed(made[0])
    elif programs:
        jax_decode.load_programs(programs)
    loading = time.perf_counter() - begin
    first = timed(made[0])
    compiling = {name: round(seconds, 3) for name, seconds in spent.items()}
    loops = len(of_loop)
    second = timed(made[1])
    return {
        "loading_s": round(loading, 3), "first_s": round(first, 3), "second_other_s": round(second, 3),
        "repeated_s": round(timed(made[0]), 3),
        "compiling_s": compiling, "loop_xla_s": [round(x, 3) for x in of_loop], "loops_of_first": loops,
        "loops_of_second": len(of_loop) - loops, "load": load(),
    }  # fmt: skip


def load() -> float:
    """Processes that wanted to run in the last minute."""
    return round(os.getloadavg()[0], 2)


def in_process(kind: str, cache: str, programs: str = "") -> dict[str, Any]:
    """`child` in a fresh process."""
    command = [sys.executable, __file__, "--child", kind, "--cache", cache, "--programs", programs]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(kind, "cache" if cache else "no cache", found, flush=True)
    return found


def firsts() -> dict[str, Any]:
    """Of every kind: without a cache; with an empty one, which is filled; with the cache filled."""
    out: dict[str, Any] = {}
    for kind in ("none", "pattern", "schema"):
        with tempfile.TemporaryDirectory() as folder:
            out[kind] = {"cold": in_process(kind, folder), "warm": in_process(kind, folder)}
            file = str(Path(folder) / "programs.bin")
            in_process(kind, "", file)
            out[kind]["exported"] = in_process(kind, "", file)
    cold = {kind: sum(found["cold"]["compiling_s"].values()) for kind, found in out.items()}
    out["compile_ratio"] = {kind: round(cold[kind] / cold["none"], 3) for kind in ("pattern", "schema")}
    return out


@contextlib.contextmanager
def tight() -> Iterator[None]:
    """Within, tables get sizes of their own."""
    from jax_decode.tables import tables

    with mock.patch.object(tables, "choose_profile", return_value=None):
        yield


def compiled_schemas(count: int) -> list[Any]:
    """`count` schemas, evenly spread over MaskBench's development split over the small model's tokenizer."""
    import fsa_compile
    import models

    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    with gzip.open(DATA / "maskbench_dev.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    return [fsa_compile.compile_json_schema(row["schema"], tokenizer) for row in rows[:: max(len(rows) // count, 1)][:count]]


def sizes(every: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Bytes of the tables; and the smallest and the median constraint."""
    import jax_decode

    with tight():
        own = [jax_decode.to_device(c).nbytes for c in every]
    tables = [jax_decode.to_device(c) for c in every]
    order = sorted(range(len(every)), key=own.__getitem__)
    middle = order[len(order) // 2]
    found = {
        "count": len(every), "profiles": dict(collections.Counter(str(t.profile) for t in tables).most_common()),
        "tight_bytes": own, "profile_bytes": [t.nbytes for t in tables],
        "median_schema": {"tight": own[middle], "profile": tables[middle].nbytes},
        "ratio_median": round(statistics.median(t.nbytes / size for t, size in zip(tables, own)), 3),
    }  # fmt: skip
    return found, [every[order[0]], every[middle]]


POOL = "general x4"
TURNS = 7  # of a step in either sizes; each compiles it anew


def sequence(count: int, batches: int, seconds: float) -> dict[str, Any]:
    """Constraint after constraint, then batches, in one profile: compilations of the loop, by JAX's events."""
    import random

    import jax

    import fsa_compile
    import jax_decode
    import models

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from corpus.patterns import PATTERNS

    loops: list[float] = []

    def heard(event: str, duration: float, **facts: Any) -> None:
        if event == EVENTS["xla"] and "decode" in str(facts.get("fun_name", "")):
            loops.append(round(duration, 3))

    jax.monitoring.register_event_duration_secs_listener(heard)
    rng, library = random.Random(0), fsa_compile.library
    tokenizer, model = fsa_compile.load_tokenizer(models.small_tokenizer_path()), models.load_small()
    with gzip.open(DATA / "maskbench_dev.jsonl.gz", "rt") as file:
        schemas = [json.loads(line)["schema"] for line in file]
    plain = sorted({case.pattern for case in PATTERNS if case.oracle == "re" and not case.flags})
    tasks = [("schema", schema) for schema in rng.sample(schemas, min(count, len(schemas)))]
    tasks += [("pattern", text) for text in rng.sample(plain, min(count // 5, len(plain)))]
    rng.shuffle(tasks)
    compilers = {
        "schema": fsa_compile.compile_json_schema, "pattern": fsa_compile.compile_regex,
        "grammar": lambda name, t: fsa_compile.compile_grammar(library.grammar_text(name), t, **library.options(name)),
    }  # fmt: skip
    run = functools.partial(jax_decode.generate, model, max_new_tokens=8, chunk=4, allow_truncation=True)
    prompt = tokenizer.encode("Is the sky blue? ")
    met, kept, own = collections.Counter[str](), list[Any](), collections.Counter[str]()
    begin = time.perf_counter()
    for kind, text in [("grammar", name) for name in library.names()] + tasks:
        if time.perf_counter() - begin > seconds:
            break
        try:
            constraint = compilers[kind](text, tokenizer)
        except fsa_compile.ConstraintError:
            met[f"{kind} refused"] += 1
            continue
        met[kind] += 1
        try:
            tables = jax_decode.to_device(constraint, profile=POOL)
        except jax_decode.DecodeError:
            tables = jax_decode.to_device(constraint)
            own[str(tables.profile)] += 1
        else:
            kept.append(constraint)
        run(prompt, tables)
    alone, done, begin = len(loops), 0, time.perf_counter()
    while done < batches and time.perf_counter() - begin < seconds:
        rows = rng.choice([1, 4, 16])
        try:
            tables = jax_decode.to_device(rng.sample(kept, min(rows, len(kept))), profile=POOL)
        except jax_decode.DecodeError:  # too much together
            own["a batch"] += 1
            continue
        which = [i % len(kept) if rng.random() < 0.8 else None for i in range(rows)]
        run([prompt] * rows, tables, constraint=which)
        done += 1
    return {
        "profile": POOL, "one_after_another": dict(met), "not_in_the_profile": dict(own), "batches": done,
        "loops_compiled": len(loops), "loops_compiled_one_after_another": alone, "loop_xla_s": loops, "load": load(),
    }  # fmt: skip


def steps(chosen: list[Any], repeats: int) -> list[dict[str, Any]]:
    """Costs of a step in a profile and in tight sizes."""
    import jax_decode

    out = []
    for name, constraint in zip(("smallest", "median"), chosen):
        in_profile = jax_decode.to_device(constraint)
        with tight():
            own = jax_decode.to_device(constraint)
        for batch in (1, 8, 64):
            seconds: dict[str, list[float]] = {"profile": [], "tight": []}
            for _ in range(TURNS):  # in turns: other processes disturb both alike, and so does how XLA lays out a program
                for kind, tables in (("profile", in_profile), ("tight", own)):
                    sampler = jax_decode.Categorical(0.9)
                    report = jax_decode.step_report(tables, batch_size=batch, repeats=repeats, sampler=sampler)
                    seconds[kind].append(report.constrained.seconds)
            best = {kind: min(times) for kind, times in seconds.items()}
            ratio = round(best["profile"] / best["tight"], 3)
            row = {"schema": name, "batch": batch, "profile": str(in_profile.profile), "ratio": ratio, "load": load()}
            row["seconds"] = seconds
            print({k: v for k, v in row.items() if k != "seconds"}, best, flush=True)
            out.append(row)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=["first", "step", "bytes"])
    parser.add_argument("--sequence", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--cache", default="", help=argparse.SUPPRESS)
    parser.add_argument("--programs", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.cache, options.programs)))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {"model": "small, 1.5M parameters", "cores": os.cpu_count()}
    if "first" in options.only:
        results["first"] = firsts()
    if "sequence" in options.only:
        results["sequence"] = sequence(options.sequence, options.batches, options.seconds)
        print(results["sequence"], flush=True)
    if {"step", "bytes"} & set(options.only):
        results["bytes"], chosen = sizes(compiled_schemas(options.schemas))
        print({k: v for k, v in results["bytes"].items() if "_bytes" not in k}, flush=True)
        if "step" in options.only:
            results["step"] = steps(chosen, options.repeats)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
