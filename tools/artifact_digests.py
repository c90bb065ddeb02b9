"""Digests of many artifacts, by which a change of the code is known to leave what it compiles as it is.

    python tools/artifact_digests.py write digests.json             # compiles more than 1,500 artifacts (ten minutes)
    python tools/artifact_digests.py compare before.json after.json # which differ, and how long each class took
    python tools/artifact_digests.py times --beside OTHER           # processor time beside another checkout, in turns
    python tools/artifact_digests.py walks names.txt --out a.json   # hashes of masks along walks, for artifacts that do differ

Only public names are used, so that one copy of this file runs in every checkout: CHECKOUT=OTHER PYTHONPATH=OTHER python ...
Refusals count too, by their class and text. The data are the corpora of the tests and, where CONSTRAX_DATA (or ../shared/data)
has them, real tokenizers and MaskBench's schemas.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(os.environ.get("CHECKOUT") or Path(__file__).resolve().parents[1])
sys.path[:0] = [str(HERE), str(HERE / "tests")]

import fsa_compile as fc  # noqa: E402
import models  # noqa: E402
from fsa_compile.vocabulary.vocabulary import Vocabulary  # noqa: E402

Case = tuple[str, Callable[[], Any]]


def data_folder() -> Path:
    """Where the public data lies."""
    return Path(os.environ.get("CONSTRAX_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


class Tokenizers:
    """Tokenizers by name, each loaded once; those whose files are not there are None."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            folder = data_folder() / "tokenizers" / name
            path = {"small": Path(str(models.small_tokenizer_path())), "gpt2": folder / "encoder.json"}.get(
                name, folder / "tokenizer.model"
            )
            self._loaded[name] = fc.load_tokenizer(path) if path.exists() else None
        return self._loaded[name]


TOKENIZERS = Tokenizers()


def over(names: tuple[str, ...], kind: str, compile_one: Callable[..., Any], *args: Any, **options: Any) -> Iterator[Case]:
    """A case for each tokenizer that is there."""
    for name in names:
        if TOKENIZERS[name] is not None:
            yield f"{kind}/{name}", lambda name=name: compile_one(*args, TOKENIZERS[name], **options)


def pattern_cases() -> Iterator[Case]:
    from corpus.patterns import PATTERNS
    from corpus.walk_patterns import TOY

    for i, case in enumerate(PATTERNS):
        names = ("small", "llama3", "gpt2", "llama2")[: 1 + (i % 4 == 0) + (i % 8 == 0) + (i % 16 == 0)]
        yield from over(names, f"pattern {i} {case.pattern[:40]!r}", fc.compile_regex, case.pattern, flags=case.flags)
    for i, pattern in enumerate(TOY):
        names = ("small", "llama3") if i % 3 == 0 else ("small",)
        yield from over(names, f"walk {i} {pattern[:40]!r}", fc.compile_regex, pattern)
    for pattern in (r"[a-zA-Z0-9 ]{1,500}", r"(.|\n){0,200}", r".{0,65535}", r"[a-z]{3,5000}\.", r"(ab|c){0,300}x"):
        yield from over(("small", "llama3", "gpt2", "llama2"), f"counter {pattern}", fc.compile_regex, pattern)
    for n in (1, 3, 1000):
        words = [f"item number {i * 7919 % 100003}" for i in range(n)]
        yield from over(("small", "llama3"), f"choices {n}", fc.compile_choices, words)


def extension_cases() -> Iterator[Case]:
    from fsa_compile.extensions import substring_of

    text = "The bridge was built in 1932. It carries four lanes of traffic. " * 20
    for pattern in (
        "(?P<QUOTED_TEXT>)",
        "(?P<UNQUOTED_TEXT>)",
        r"(?P<TEXT_UNTIL>END|\n\n)",
        "(?P<SUBSTRING_OF>to be or not to be)",
        "(?P<DELIMITED_LIST>[a-z]+|, )",
        "(?P<DELIMITED_SUBSEQUENCE_OF>red|green|blue|, )",
        "a (?P<TEXT_TOKEN>) b",
        "(?P<PARAGRAPH_TOKEN>){1,8}\\.",
    ):
        yield from over(("small", "llama3"), f"extension {pattern}", fc.compile_regex, pattern)
    yield from over(("small", "llama3"), "extension substring", lambda t: fc.compile_language(substring_of(text), t))
    yield from over(
        ("small", "llama3"), "language minus", lambda t: fc.compile_language(fc.regex("[a-z]{1,6}") - fc.choices(["red"]), t)
    )
    yield from over(("small", "llama3"), "language not", lambda t: fc.compile_language(~fc.regex(".*a.*"), t))


def grammar_cases() -> Iterator[Case]:
    from corpus.grammars import RIGHT, WRONG

    from fsa_compile import library

    for i, case in enumerate((*RIGHT, *WRONG)):
        options = dict(case.options) if isinstance(getattr(case, "options", None), dict) else {}
        syntax = {"syntax": case.syntax} if hasattr(case, "syntax") else {}
        names = ("small", "llama3") if i % 3 == 0 else ("small",)
        yield from over(names, f"grammar {i}", fc.compile_grammar, case.text, **syntax, **options)
    for name in library.names():
        yield from over(
            ("small", "llama3", "gpt2"),
            f"library {name}",
            fc.compile_grammar,
            library.grammar_text(name),
            **library.options(name),
        )


def schemas() -> list[tuple[str, Any]]:
    """MaskBench's schemas."""
    path = data_folder() / "maskbench_dev.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt") as file:
        return [(row["name"], row["schema"]) for row in map(json.loads, file)]


def schema_cases() -> Iterator[Case]:
    any_order = fc.SchemaOptions(key_order="any")
    for i, (name, schema) in enumerate(schemas()):
        yield from over(("llama3",) if i % 5 else ("gpt2",), f"schema {name}", fc.compile_json_schema, schema)
        if i % 10 == 1:
            yield from over(("small",), f"any order {name}", fc.compile_json_schema, schema, options=any_order)
        if i % 20 == 2:
            yield from over(("small",), f"yaml {name}", fc.compile_yaml_schema, schema)
        if i % 20 == 3:
            yield from over(("small",), f"yaml flow {name}", fc.compile_yaml_schema, schema, style="flow")
        if i % 40 == 4:
            bounded = fc.SchemaOptions(max_object_depth=2, max_array_depth=2)
            yield from over(("small",), f"bounded {name}", fc.compile_json_schema, schema, options=bounded)


def type_cases() -> Iterator[Case]:
    from python_types.sample_types import TYPES

    def add_item(name: str, count: int = 1, where: list[str] | None = None) -> None: ...

    def stop() -> None: ...

    for name, (T, _) in TYPES.items():
        for style in ("json", "python"):
            yield from over(("small",), f"type {style} {name}", fc.compile_type, T, style=style)
    for style in ("json", "python"):
        for options in ({}, {"trigger": "<tool_call>"}):
            yield from over(
                ("small", "llama3"), f"call {style} {bool(options)}", fc.compile_call, [add_item, stop], style=style, **options
            )
    tools = [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        }
    ]
    for choice in ("auto", "required"):
        yield from over(
            ("small", "llama3"),
            f"response {choice}",
            lambda t, c=choice: fc.compile_response_format(None, t, tools=tools, tool_choice=c),
        )


def functions() -> list[dict[str, Any]]:
    """BFCL's functions of different names."""
    path = data_folder() / "bfcl" / "multiple.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return list({tool["name"]: tool for line in lines if line.strip() for tool in json.loads(line)["function"]}.values())


def with_tokens(protocol: Any, over_llama3: bool) -> Any:
    """A tokenizer with a protocol's special tokens."""
    size = 128_000 if over_llama3 else 259
    names = dict.fromkeys((*protocol.tokens, *protocol.stops))
    ids = {name: size + place for place, name in enumerate(names)}
    stops = [ids[name] for name in protocol.stops] or [size + len(ids)]
    if over_llama3:
        path = data_folder() / "tokenizers" / "llama3" / "tokenizer.model"
        return fc.load_tokenizer(path, special_tokens=ids, stop_ids=stops)
    tokens = [bytes([i]) for i in range(256)] + [b'": "', b'"}', b'{"'] + [b""] * (len(ids) + 1)
    return Vocabulary.from_tokens(tokens, special=ids, stop_ids=stops)


def turn_cases() -> Iterator[Case]:
    tools = functions()
    for p, (name, protocol) in enumerate(fc.PROTOCOLS.items()):
        options: dict[str, dict[str, Any]] = {
            "text": {}, "schema": {"response": {"type": "object", "properties": {"a": {"type": "number"}}}},
            "required": {"tools": tools[p : p + 3], "tool_choice": "required"}, "one": {"tools": tools[7 * p : 7 * p + 1]},
            "off": {"tools": tools[5 * p : 5 * p + 6], "reasoning": "off"}, "many": {"tools": tools[9 * p : 9 * p + 40]},
        }  # fmt: skip
        for label, given in options.items():
            if not given.get("tools", True):
                continue
            for large in ((True, False) if label in ("many", "text") else (False,)):
                yield f"turn {name} {label}/{'llama3' if large else 'bytes'}", lambda p=protocol, g=given, large=large: (
                    fc.compile_response(with_tokens(p, large), protocol=p, **g)
                )


def filter_cases() -> Iterator[Case]:
    from fsa_compile import filters

    chosen = {
        "scripts": [filters.scripts(["Latin"])],
        "forbid": [filters.forbid("red")],
        "language": [fc.regex("[^0-9]*")],
        "two": [filters.scripts(["Latin"]), filters.forbid("ab")],
    }
    for name, passing in chosen.items():
        yield from over(
            ("small", "llama3"), f"filter {name} words", fc.compile_regex, r"\w{3,12}( \w{1,12}){0,4}", filters=passing
        )
        yield from over(("small",), f"filter {name} grammar", fc.compile_grammar, 'start: "a" start? "b"', filters=passing)
    yield from over(("small", "llama2"), "starts text", fc.compile_regex, "[a-z]+( [a-z]+)*", starts_text=True)
    yield from over(
        ("small", "llama3"),
        "heal",
        lambda t: fc.heal("Question: red?\nAnswer: no, the kett", fc.compile_regex("[a-z ]{2,60}\\.", t), t).constraint,
    )


CANONICAL = {
    "choices": "red|green|light green",
    "date": r"[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}",
    "quoted": r'"(?:[^"\\]|\\.)*"',
    "words": "[a-z]+( [a-z]+)*",
    "free": r"(?s:.*)",
    "bounded": "[a-z ]{3,60}\\.",
    "json": r'\{"name": "[A-Z][a-z]+", "age": [0-9]+\}',
}
NESTING = {
    "arithmetic": 'start: term (("+"|"-") term)*\nterm: factor (("*"|"/") factor)*\nfactor: /[0-9]+/ | "(" start ")"',
    "lists": 'start: "[" [start ("," start)*] "]" | /[0-9]/',
    "s-expressions": 'start: /[a-z]+/ | "(" [start (" " start)*] ")"',
}


def canonical_cases() -> Iterator[Case]:
    for name, pattern in CANONICAL.items():
        yield from over(("small", "llama3", "gpt2", "llama2"), f"canonical {name}", fc.compile_regex, pattern, canonical=True)
        yield from over(
            ("small", "llama3"),
            f"canonical behind {name}",
            lambda t, p=pattern: fc.compile_regex(p, t, canonical=t.encode("so ")),
        )
    for name, grammar in NESTING.items():
        yield from over(("small", "llama3", "llama2"), f"canonical stack {name}", fc.compile_grammar, grammar, canonical=True)
    bounded = fc.SchemaOptions(max_object_depth=1, max_array_depth=1)
    for i, (name, schema) in enumerate(schemas()):
        if i % 60 == 7:
            yield from over(("small",), f"canonical schema {name}", fc.compile_json_schema, schema, canonical=True)
            yield from over(
                ("llama3",), f"canonical bounded {name}", fc.compile_json_schema, schema, canonical=True, options=bounded
            )


def item_cases() -> Iterator[Case]:
    rng = random.Random(1)
    for n in (3, 200, 5000):
        rows = np.array([[rng.randrange(2048) for _ in range(4)] for _ in range(n)])
        yield f"items {n}", lambda rows=rows: fc.compile_items(rows, 2048)


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "patterns": pattern_cases,
    "extensions": extension_cases,
    "grammars": grammar_cases,
    "schemas": schema_cases,
    "types": type_cases,
    "turns": turn_cases,
    "filters": filter_cases,
    "canonical": canonical_cases,
    "items": item_cases,
}


def content(artifact: Any, path: Path) -> dict[str, Any]:
    """Arrays and header of an artifact, from its file; canonical entries that once stood in `extra` count like fields.

    Rows and children count as they are, not as a file keeps them.
    """
    artifact.save(path)
    with np.load(path) as file:
        out = {name: file[name] for name in file.files}
    for name in {name.split(".")[0] for name in out} & {"rows", "delta"}:
        out = {n: x for n, x in out.items() if n.split(".")[0] != name} | {name: np.asarray(getattr(artifact, name))}
    header = json.loads(bytes(out.pop("header"))) if "header" in out else {}
    extra = header.get("extra") or {}
    header |= {name: extra.pop(name) for name in [*extra] if name.startswith("canonical")}
    header |= extra
    for name in ("magic", "format_version", "contents", "arrays", "source"):
        header.pop(name, None)
    return {**out, **{f"header {k}": v for k, v in header.items() if v not in (None, [], {}, False)}}


def digest(parts: dict[str, Any]) -> str:
    """A hash of names, types, shapes and values."""
    found = hashlib.sha256()
    for name in sorted(parts):
        value = parts[name]
        if isinstance(value, np.ndarray):
            found.update(f"{name} {value.dtype} {value.shape} ".encode() + np.ascontiguousarray(value).tobytes())
        else:
            found.update(f"{name} {json.dumps(value, sort_keys=True)} ".encode())
    return found.hexdigest()[:24]


def selected(groups: list[str], every: int) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    for group in groups:
        for i, (name, make) in enumerate(GROUPS[group]()):
            if i % every == 0:
                yield group, name, make


def write(out: Path, groups: list[str], every: int) -> None:
    """Compiles and writes the digests."""
    rows: dict[str, Any] = {}
    part = out.with_suffix(".part.npz")
    for group, name, make in selected(groups, every):
        begin = time.process_time()
        try:
            artifact = make()
            row = {"digest": None, "bytes": artifact.nbytes}
            seconds = time.process_time() - begin
            row["digest"] = digest(content(artifact, part))
        except Exception as error:  # refusals are results too
            seconds = time.process_time() - begin
            row = {"digest": f"{type(error).__name__}: {error}"}
        rows[name] = {"group": group, "seconds": round(seconds, 5), **row}
    part.unlink(missing_ok=True)
    out.write_text(json.dumps(rows, indent=0, sort_keys=True), encoding="utf-8")
    print(f"{len(rows)} artifacts, {sum(r['seconds'] for r in rows.values()):.0f} s")


def compare(a: dict[str, Any], b: dict[str, Any]) -> int:
    """Prints what differs and the ratio of times; the number of differences."""
    wrong = [name for name in a.keys() | b.keys() if a.get(name, {}).get("digest") != b.get(name, {}).get("digest")]
    for name in sorted(wrong):
        print(
            "differs:",
            name,
            *(str(x.get(name, {}).get("digest", "missing"))[:160].replace("\n", " ") for x in (a, b)),
            sep="\n    ",
        )
    for group in sorted({row["group"] for row in a.values()}):
        names = [name for name, row in a.items() if row["group"] == group and name in b]
        before, after = (sum(x[name]["seconds"] for name in names) for x in (a, b))
        print(f"{group:12} {len(names):5} artifacts, {before:7.1f} s -> {after:7.1f} s, ratio {after / max(before, 1e-9):.3f}")
    print(f"{len(wrong)} of {len(a.keys() | b.keys())} differ")
    return len(wrong)


def times(other: Path, groups: list[str], every: int, rounds: int) -> None:
    """Processor time of classes in two checkouts, in turns in fresh processes."""
    totals: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for side, root in (("this", HERE), ("other", other)):
            out = Path(os.environ.get("TMPDIR", "/tmp")) / f"times-{os.getpid()}.json"
            command = [
                sys.executable,
                str(Path(__file__).resolve()),
                "write",
                str(out),
                "--groups",
                ",".join(groups),
                "--every",
                str(every),
            ]
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "CHECKOUT": str(root), "PYTHONPATH": str(root)}
            )
            for name, row in json.loads(out.read_text()).items():
                for kind in (row["group"], f"{row['group']} {name.split()[0]}"):
                    totals.setdefault(kind, {}).setdefault(side, []).append(row["seconds"])
            out.unlink()
    for kind, sides in sorted(totals.items()):
        count = len(sides["this"]) // rounds
        this, that = (
            statistics.median(sum(v[i * count : (i + 1) * count]) for i in range(rounds)) for v in (sides["this"], sides["other"])
        )
        print(f"{kind:30} {count:5} artifacts: {this:8.3f} s beside {that:8.3f} s, ratio {this / max(that, 1e-9):.3f}")


def walks(names: set[str], out: Path, steps: int) -> None:
    """Hashes of masks along walks that choose by the mask alone, so that equal languages walk alike; limits are tried as well."""
    found: dict[str, Any] = {}
    for _, name, make in selected([*GROUPS], 1):
        if name not in names:
            continue
        constraint = make()
        lines = []
        for seed in range(3):
            rng, walk = random.Random(seed), None
            if constraint.is_canonical:
                walk = fc.CanonicalWalk(constraint, fc.canonical_tables(TOKENIZERS[name.rsplit("/", 1)[1]]))
            else:
                walk = constraint.walk()
            for _ in range(steps):
                masks = [walk.allowed(), walk.allowed(walk.distance + rng.randint(0, 3))]
                lines.append(
                    [hashlib.sha256(mask.tobytes()).hexdigest()[:16] for mask in masks]
                    + [bool(walk.accepting), int(walk.distance)]
                )
                ids = np.flatnonzero(masks[0])
                ids = ids[~np.isin(ids, constraint.stop_ids)]
                if not len(ids):
                    break
                at = len(ids) - 1 if rng.random() < 0.1 else rng.randrange(len(ids))  # special tokens come last
                walk.advance(int(ids[at]))
        found[name] = lines
    out.write_text(json.dumps(found), encoding="utf-8")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one, two, three, four = (commands.add_parser(name) for name in ("write", "compare", "times", "walks"))
    one.add_argument("out", type=Path)
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    three.add_argument("--beside", type=Path, required=True)
    three.add_argument("--rounds", type=int, default=3)
    four.add_argument("names", type=Path)
    four.add_argument("--out", type=Path, required=True)
    four.add_argument("--steps", type=int, default=12)
    for command in (one, three):
        command.add_argument("--groups", default=",".join(GROUPS))
        command.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    if options.command == "write":
        write(options.out, options.groups.split(","), options.every)
    elif options.command == "compare":
        return 1 if compare(*(json.loads(path.read_text()) for path in (options.before, options.after))) else 0
    elif options.command == "times":
        times(options.beside, options.groups.split(","), options.every, options.rounds)
    else:
        walks(set(options.names.read_text().splitlines()), options.out, options.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
