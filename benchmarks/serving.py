"""What does it cost a batch that decodes when all of its requests have a schema of their own, and they come and go?

    python benchmarks/serving.py [--requests 20000] [--schemas 2000] [--rows 32] [--profile "general x4"]

The small model, `jax_decode.Engine`, prompts that arrive by Poisson, prefill and decode interleaved. Every schema is another one:
half are made at random, half are MaskBench's development schemas that `CONSTRAX_DATA` has (all at random where it is not there).

* serve: all requests through one pool, a share of them cancelled at any step. Counts texts that `jsonschema` refuses, programs
  compiled after warm-up, bytes on the device and resident memory over time, and what is left in the pool.
* ratio: tokens per second with all rows constrained beside none constrained (an engine without a pool), in turns. A request
  without a constraint has the prompt and the number of tokens of the one with it, so that both feed and choose the same. Once
  with schemas most of which the pool has not seen, once with 100 that come again.
* writes: processor time of an add that writes, of one that finds its constraint, and of one step of all rows.

Writes `benchmarks/results/serving.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jsonschema
import numpy as np

import fsa_compile
import jax_decode
import models

RESULTS = Path(__file__).parent / "results" / "serving.json"
DATA = Path(os.environ.get("CONSTRAX_DATA", Path(__file__).parents[2] / "shared" / "data"))
LIMIT, STEPS, TOGETHER = 64, 8, 8
WORDS = ["name", "age", "city", "open", "items", "tags", "price", "kind", "owner", "note", "unit", "size", "rank", "date"]


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """An object of a few members, each a scalar, a list or, at the top, one more object."""
    scalars: list[dict[str, Any]] = [
        {"type": "integer", "minimum": rng.randrange(5), "maximum": rng.randrange(10, 5000)},
        {"type": "boolean"},
        {"type": "string", "maxLength": rng.randrange(3, 12)},
        {"enum": rng.sample(WORDS, rng.randrange(2, 5))},
        {"type": "string", "pattern": f"^[a-{rng.choice('efgxyz')}]{{{rng.randrange(1, 3)},{rng.randrange(3, 7)}}}$"},
    ]
    names = rng.sample(WORDS, rng.randrange(1, 4))
    members = {}
    for name in names:
        one = rng.choice(scalars)
        if depth == 0 and rng.random() < 0.2:
            one = random_schema(rng, 1)
        elif rng.random() < 0.2:
            one = {"type": "array", "items": one, "maxItems": rng.randrange(1, 4)}
        members[name] = one
    required = [name for name in names if rng.random() < 0.7]
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False}


def compiled(count: int, tokenizer: Any, pool: Any) -> list[tuple[dict[str, Any], Any]]:
    """Different schemas with constraints that the pool holds and whose texts fit the limit."""
    rng, out, seen = random.Random(24), [], set()
    path, given = DATA / "maskbench_dev.jsonl.gz", list[dict[str, Any]]()
    if path.exists():
        with gzip.open(path, "rt") as file:
            given = [row["schema"] for row in map(json.loads, file)]
    while len(out) < count:
        schema = given.pop() if given and len(out) % 2 else random_schema(rng)
        text = json.dumps(schema)
        if text in seen or len(text) > 20_000:
            continue
        seen.add(text)
        try:
            constraint = fsa_compile.compile_json_schema(schema, tokenizer, limits=fsa_compile.CompileLimits.for_requests())
            if constraint.shortest_completion > LIMIT or constraint.shortest_depth > 64:
                continue
            pool.check(constraint)
        except (fsa_compile.ConstraintError, jax_decode.DecodeError):
            continue
        out.append((schema, constraint))
    return out


def engine(pool: Any, rows: int, decoder: Any) -> Any:
    """With or without constraints, the same sizes."""
    sampler = jax_decode.Categorical(1.0)
    sizes = {"rows": rows, "max_prompt": 16, "max_new_tokens": LIMIT, "steps": STEPS, "together": TOGETHER}
    return jax_decode.Engine(decoder, pool, sampler=sampler, **sizes)


def resident_mb() -> float:
    """Of this process, in MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def serve(made: list[Any], count: int, rows: int, decoder: Any, tokenizer: Any, pool: Any) -> dict[str, Any]:
    """All requests through one pool."""
    programs, rng = list[str](), random.Random(1)
    arrivals = np.random.default_rng(2)
    serving = engine(pool, rows, decoder)
    validators = [jsonschema.validators.validator_for(s, default=jsonschema.Draft202012Validator)(s) for s, _ in made]

    def heard(event: str, duration_secs: float, **facts: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            programs.append(str(facts.get("fun_name", "")))

    prompts = [tokenizer.encode(p) for p in ("A person: ", "Is the sky blue? ", "2 + 2 = ", "One day ")]
    which, cancelled, invalid, tokens, done, submitted = dict[int, int](), set[int](), [], 0, 0, 0
    memory = list[tuple[int, float, float]]()
    jax.monitoring.register_event_duration_secs_listener(heard)
    began, spent = time.perf_counter(), time.process_time()
    rate = 1.2 * rows * STEPS / 24  # of arrivals per turn: a little more than what can be served
    while done < count:
        if serving.pending < 4 * rows:
            for _ in range(min(int(arrivals.poisson(rate)), count - submitted)):
                schema = rng.randrange(len(made))
                which[serving.submit(rng.choice(prompts), made[schema][1], seed=submitted)] = schema
                submitted += 1
        if which and rng.random() < 0.25:
            number = rng.choice(list(which)[-2 * rows :])
            serving.cancel(number)
            cancelled.add(number)
        for one in serving.turn():
            done += 1
            schema = which.pop(one.request)
            tokens += len(one.tokens)
            if one.status is jax_decode.Status.STOPPED and one.request in cancelled:
                continue
            text = tokenizer.vocabulary.decode(one.tokens)
            try:
                assert one.status is jax_decode.Status.ACCEPTED, one.status
                validators[schema].validate(json.loads(text))
            except Exception as error:
                invalid.append((made[schema][0], text, repr(error)[:200]))
            if done % max(count // 10, 1) == 0:
                device = sum(x.nbytes for x in jax.live_arrays()) / 1e6
                memory.append((done, round(device, 1), round(resident_mb(), 1)))
                print(memory[-1], f"{tokens / (time.perf_counter() - began):.0f} tokens/s", pool, flush=True)
    jax.monitoring.unregister_event_duration_listener(heard)
    seconds = time.perf_counter() - began
    spent, left = time.process_time() - spent, len(pool)
    pool.clear()
    entries = {name: used for name, (used, _) in pool.usage.items() if used}
    return {
        "requests": done, "schemas": len(made), "cancelled": len(cancelled), "tokens": tokens, "invalid": len(invalid),
        "first_invalid": invalid[:3], "compiled": programs, "memory_mb": memory, "slots_left": left, "seconds": round(seconds, 1),
        "processor_seconds": round(spent, 1), "entries_left": entries,
    }  # fmt: skip


def ratio(made: list[Any], count: int, rows: int, decoder: Any, tokenizer: Any, pool: Any, rounds: int) -> dict[str, Any]:
    """Tokens per second of both engines, in turns."""
    prompts = [tokenizer.encode(p) for p in ("A person: ", "Is the sky blue? ", "2 + 2 = ", "One day ")]
    constrained, free = engine(pool, rows, decoder), engine(None, rows, decoder)
    rng, rates = random.Random(3), {"constrained": [], "free": []}
    for _ in range(rounds):
        asked = [(rng.choice(prompts), rng.randrange(len(made)), rng.randrange(1 << 30)) for _ in range(count)]
        lengths = [LIMIT] * count
        for name, serving in (("constrained", constrained), ("free", free)):
            arrivals, waiting, numbers = np.random.default_rng(4), list(enumerate(asked)), dict[int, int]()
            tokens, rate = 0, 1.2 * rows * STEPS / 24
            began, spent = time.perf_counter(), time.process_time()
            while waiting or serving.pending:
                if serving.pending < 4 * rows:
                    for _ in range(min(int(arrivals.poisson(rate)), len(waiting))):
                        i, (prompt, schema, seed) = waiting.pop(0)
                        if name == "constrained":
                            numbers[serving.submit(prompt, made[schema][1], seed=seed)] = i
                        else:  # stops only at its limit
                            numbers[serving.submit(prompt, max_new_tokens=lengths[i], stop_ids=[], seed=seed)] = i
                for one in serving.turn():
                    own = len(one.tokens) + (name == "constrained")  # the end-of-text token was chosen, too
                    tokens += own
                    if name == "constrained":
                        lengths[numbers[one.request]] = min(own, LIMIT)
            wall, processor = time.perf_counter() - began, time.process_time() - spent
            speed = {"per_s": round(tokens / wall, 1), "per_processor_s": round(tokens / processor, 1)}
            rates[name].append({"tokens": tokens} | speed)
            print(name, rates[name][-1], flush=True)
    middle = {n: {k: statistics.median(r[k] for r in rs) for k in ("per_s", "per_processor_s")} for n, rs in rates.items()}
    each = {k: round(middle["constrained"][k] / middle["free"][k], 3) for k in ("per_s", "per_processor_s")}
    return {"ratio": each, "rates": rates, "requests_a_round": count}


def writes(made: list[Any], rows: int, decoder: Any, pool: Any) -> dict[str, Any]:
    """Seconds of wall time of adds and of steps, each waited for."""
    pool.clear()
    wrote, found = [], []
    for _, constraint in made[:200]:
        jax.block_until_ready(pool.tables)
        for kind in (wrote, found):
            began = time.perf_counter()
            slot = pool.add(constraint)
            jax.block_until_ready(pool.tables)
            kind.append(time.perf_counter() - began)
            pool.remove(slot)
    serving = engine(pool, rows, decoder)
    for i in range(rows):
        serving.submit([5], made[i][1], seed=i)
    steps = []
    while serving.pending:
        began = time.perf_counter()
        serving.turn()
        steps.append((time.perf_counter() - began) / STEPS)
    ms = {"add_writes": wrote, "add_finds": found, "step": steps[:4]}
    return {name: {"median_ms": round(statistics.median(x) * 1e3, 3), "p99_ms": round(float(np.quantile(x, 0.99)) * 1e3, 3)}
            for name, x in ms.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--schemas", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", default="general x4")
    parser.add_argument("--only", nargs="*", default=["serve", "ratio", "writes"])
    options = parser.parse_args()
    tokenizer, decoder = fsa_compile.load_tokenizer(models.small_tokenizer_path()), models.load_small()
    pool = jax_decode.ConstraintPool(tokenizer, profile=options.profile, slots=256)
    began = time.process_time()
    made = compiled(options.schemas, tokenizer, pool)
    print(f"{len(made)} schemas compiled in {time.process_time() - began:.0f} s", flush=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {"model": "small, 1.5M parameters", "cores": os.cpu_count(), "rows": options.rows, "profile": options.profile,
                "steps_a_turn": STEPS, "limit": LIMIT, "jax": jax.__version__, "load": round(os.getloadavg()[0], 2)}  # fmt: skip
    if "ratio" in options.only:
        for name, some in (("new", made), ("again", made[:100])):
            if name == "again":  # in the pool before the clock runs
                ratio(some, 200, options.rows, decoder, tokenizer, pool, 1)
            found = ratio(some, 10 * options.rows, options.rows, decoder, tokenizer, pool, options.rounds)
            results["ratio"] = results.get("ratio", {}) | {name: found}
            print(name, found["ratio"], flush=True)
    if "writes" in options.only:
        results["writes"] = writes(made, options.rows, decoder, pool)
        print(results["writes"], flush=True)
    if "serve" in options.only:
        results["serve"] = serve(made, options.requests, options.rows, decoder, tokenizer, pool)
        print({k: v for k, v in results["serve"].items() if k != "memory_mb"}, flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
