"""How long does a constraint take to compile, here and in other libraries?

    python -m pip install -e ".[compile,bench]"
    python benchmarks/compile_speed.py [--quick] [--no-peers] [--only NAME ...]

Times every constraint on real vocabularies (`$CONSTRAX_DATA`, else `../shared/data`): this project from pattern to ready
`CompiledConstraint`, the peers from pattern to first mask. Writes raw numbers to `benchmarks/results/compile_speed.json` and
prints the table. Every compiler lives in a process of its own, all pinned to one core and idle but for the one that is
measured, so that one that crashes or hangs is reported and ended; per constraint they are measured one after another.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import platform
import random
import re
import statistics
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from compilers import COMPILERS, Compiler, Constraint, timed

from fsa_compile import ConstraintError, load_tokenizer

RESULTS = Path(__file__).parent / "results" / "compile_speed.json"
MEMORY_BYTES = 10 << 30
OURS = ("constrax", "llama3")
OURS_WIDE = ("constrax", "llama4")
OUR_FORMS = ("first", "repeated", "first, with mask", "repeated, with mask")
WIDE_RATIO = 1.7
SETUP_BARS = {"cold": 1.5, "disk": 0.1}


def product_names(count: int, seed: int = 0) -> tuple[str, ...]:
    """Made-up product names, distinct and sorted: `Lurano Desk Lamp 4071`. No character has a meaning in a pattern."""
    draw = random.Random(seed)
    starts, ends = ("Lu", "Ka", "Ro", "Vi", "Sa", "Mo", "De", "Ta"), ("rano", "vex", "lite", "mara", "do", "sina", "tron")
    kinds = ("Desk Lamp", "Chair", "Kettle", "Garden Hose", "Phone", "Keyboard", "Tea Pot", "Running Shoe", "Drill", "Camera")
    names: set[str] = set()
    while len(names) < count:
        names.add(f"{draw.choice(starts)}{draw.choice(ends)} {draw.choice(kinds)} {draw.randrange(100_000)}")
    return tuple(sorted(names))


def constraints() -> list[Constraint]:
    """What is timed. The first three are the examples of Koo et al. 2024, Appendix C (arXiv 2407.08103)."""
    octet = "(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
    iso = "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]([+-][0-2][0-9]:[0-5][0-9]|Z)"
    quoted = r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
    email = r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"
    few, many = product_names(1_000), product_names(100_000)
    return [
        Constraint("choice", "Red|Orange|Yellow|Green|Blue|Indigo|Violet", (), "Indigo", "Indigos", 0.6),
        Constraint("iso", iso, (), "2024-02-29T23:59:59Z", "2024-02-29 23:59:59Z", 0.6),
        Constraint("ipv4", rf"({octet}\.){{3}}{octet}", (), "192.168.0.1", "192.168.0.256", 0.6),
        Constraint("quoted", quoted, (), r'"a\"b\u00e9 é"', r'"a\x"', 1.2),
        Constraint("email", email, (), "jane.doe@example.com", "jane@doe", 8.0),
        Constraint("any200", r"(.|\n){0,200}", (), "x\n" * 100, "x\n" * 100 + "x", 30.0),
        Constraint("alnum500", "[a-zA-Z0-9 ]{1,500}", (), "ab 1" * 125, "ab 1" * 125 + "x", 30.0),
        Constraint("choices1000", None, few, few[500], few[500] + "x", 13.0),
        Constraint("choices100000", None, many, many[50_000], many[50_000] + "x", 2_000.0),
    ]


def work(connection: Any, name: str, model: str, options: dict[str, Any]) -> None:
    """A compiler's process, for the compilers and constraints of this script; see `serve`."""
    serve(connection, COMPILERS[name], constraints(), model, options)


def serve(
    connection: Any, compiler_class: type[Compiler], known_constraints: Iterable[Any], model: str, options: dict[str, Any]
) -> None:
    """Sets up a compiler once, then measures what it is asked for: the name of a constraint, forms to leave out.

    Sends ("start", name) before each form, ("beat", None) while slow repetitions go on, ("form", {name: result}) after it,
    ("done", result) at the end of a request, or ("failed", reason).
    """
    _pin(options["core"])
    _limit_memory()
    try:
        tokenizer = load_tokenizer(Path(options["data"]) / "tokenizers" / model / "tokenizer.model")
        compiler = compiler_class(tokenizer.vocabulary)
        connection.send(("done", {"setup": _figures(compiler.setups(options["setups"])), "version": compiler.version()}))
    except Exception as error:
        connection.send(("failed", _short(error)))
        return
    known = {c.name: c for c in known_constraints}
    while (request := connection.recv()) is not None:
        constraint, left_out = known[request[0]], request[1]
        ids = {text: tokenizer.encode(text) for text in (constraint.accept, constraint.refuse)}
        for form in compiler.forms(constraint):
            if form.name in left_out:
                continue
            connection.send(("start", form.name))
            try:
                result = _measure(compiler, constraint, form, ids, options, connection)
            except Exception as error:
                result = {"failed": _short(error)}
            connection.send(("form", {form.name: result}))
        connection.send(("done", {}))


def _measure(
    compiler: Compiler, constraint: Constraint, form: Any, ids: dict[str, list[int]], options: Any, connection: Any
) -> Any:
    """Repeats one form at least `options["repeats"]` times, fewer when that takes longer than the budget allows."""
    cpu: list[float] = []
    wall: list[float] = []
    made = None
    end = time.perf_counter() + options["budget"]
    gc.collect()
    while len(cpu) <= options["repeats"] and (len(cpu) < 2 or time.perf_counter() < end):
        made = None
        form.prepare()
        cpu_seconds, wall_seconds, made = timed(form.make)
        cpu.append(cpu_seconds * 1e3)
        wall.append(wall_seconds * 1e3)
        if wall_seconds > 1:
            connection.send(("beat", None))
            if wall_seconds > options["budget"]:
                break
    # The very first one also pays for pages and code touched for the first time: kept, but apart.
    figures = {"very_first_cpu_ms": cpu[0], "cpu_ms": _summary(cpu[1:] or cpu), "wall_ms": _summary(wall[1:] or wall)}
    figures["accepts_sample"] = compiler.accepts(made, ids[constraint.accept])
    figures["refuses_sample"] = not compiler.accepts(made, ids[constraint.refuse])
    return figures | {"sizes": compiler.sizes(made)}


def _summary(values: list[float]) -> dict[str, Any]:
    rounded = [round(v, 4) for v in values]
    return {"median": round(statistics.median(values), 4), "min": min(rounded), "max": max(rounded), "all": rounded}


def _figures(setups: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    return {k: {"cpu_s": _summary([c for c, _ in v]), "wall_s": _summary([w for _, w in v])} for k, v in setups.items()}


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _pin(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})


def _limit_memory() -> None:
    """Keeps a peer that needs too much memory from taking the machine with it."""
    try:
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    except (ImportError, OSError, ValueError):
        return


class Worker:
    """The parent's end of one compiler's process; started again after it had to be ended.

    Attributes:
      work: what the process runs: a function of a connection, a compiler's name, a tokenizer's name and options.
    """

    work = staticmethod(work)

    def __init__(self, name: str, model: str, options: dict[str, Any]) -> None:
        self.name, self.model, self.options = name, model, options
        self.process: Any = None
        self.running: str | None = None
        self.setup = self._start()

    def measure(self, constraint: Constraint) -> dict[str, Any]:
        """Results by form, each with its figures or {"failed": reason}; {"failed": reason} when there is no process."""
        forms: dict[str, Any] = {}
        while True:
            if self.process is None and "failed" in (restarted := self._start()):
                return forms | restarted
            self.running = None
            self.connection.send((constraint.name, list(forms)))
            answer = self._answer()
            reason = answer.pop("failed", None)
            forms |= answer
            if reason is None:
                return forms
            if self.running is None:  # not a form's fault: trying again would not end
                return forms | {"failed": reason}
            forms[self.running] = {"failed": reason}

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None

    def _start(self) -> dict[str, Any]:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=self.work, args=(theirs, self.name, self.model, self.options), daemon=True)
        self.process.start()
        theirs.close()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        forms: dict[str, Any] = {}
        try:
            while self.connection.poll(self.options["limit"]):
                kind, content = self.connection.recv()
                if kind == "start":
                    self.running = content
                elif kind == "form":
                    forms |= content
                    self.running = None
                elif kind == "done":
                    return forms | content
                elif kind == "failed":
                    self.stop()
                    return {"failed": content}
            reason = f"> {self.options['limit']} s"
        except (EOFError, ConnectionError):
            self.process.join()
            reason = f"its process ended (exit status {self.process.exitcode}; memory is limited to {MEMORY_BYTES >> 30} GiB)"
        self.stop()
        return forms | {"failed": reason}


def best(forms: dict[str, Any]) -> tuple[str, float] | None:
    """Name and median CPU milliseconds of the fastest form that gives the right answers."""
    good = [(f["cpu_ms"]["median"], name) for name, f in forms.items() if isinstance(f, dict) and f.get("accepts_sample")]
    return min(good)[::-1] if good else None


def cell(forms: dict[str, Any]) -> str:
    """A peer's entry in the table."""
    found = best(forms)
    if found is None:
        reasons = [f if isinstance(f, str) else f.get("failed", "refuses the sample") for f in forms.values()]
        return "; ".join(dict.fromkeys(reason.splitlines()[0][:80] for reason in reasons)).replace("|", "\\|")
    note = "" if forms[found[0]]["refuses_sample"] else " (accepts too much)"
    return f"{found[1]:,.2f}{note}"


def table(results: dict[str, Any], chosen: Iterable[Constraint], peers: list[str]) -> str:
    """The Markdown table of CPU milliseconds, bars and ratios."""
    static = [p for p in peers if not COMPILERS[p].lazy]
    lines = [
        "CPU ms, Llama-3, medians. Ours: very first; first for a pattern (min–max); repeated. Peers: pattern → first mask.",
        "",
    ]
    head = [
        "constraint",
        "constrax very first; first; repeated",
        "bar",
        "met",
        *peers,
        "÷ best precomputing",
        "÷ llguidance",
        "Llama-4 first / repeated",
        "÷ Llama-3",
    ]
    lines += [_row(head), _row(["---"] * len(head))]
    for constraint in chosen:
        entry = results[constraint.name]
        ours, wide = entry["constrax/llama3"], entry["constrax/llama4"]
        if not _complete(ours):
            lines.append(_row([constraint.name, cell(ours), f"{constraint.bar_ms:g}", "no", *(cell(entry[p]) for p in peers)]))
            continue
        first, again = (ours[k]["cpu_ms"] for k in ("first", "repeated"))
        rivals = [b[1] for p in static if (b := best(entry[p]))]
        lazy = best(entry["llguidance"]) if "llguidance" in entry else None
        met = [("yes" if f["median"] <= constraint.bar_ms else "**no**") for f in (first, again)]
        lines.append(_row([
            constraint.name,
            f"{ours['first']['very_first_cpu_ms']:.2f}; {first['median']:.2f} ({first['min']:.2f}–{first['max']:.2f}); "
            f"{again['median']:.2f}",
            f"{constraint.bar_ms:g}", " / ".join(met), *(cell(entry[p]) for p in peers),
            _ratios(ours, min(rivals, default=None)), _ratios(ours, lazy[1] if lazy else None), *_wide(ours, wide),
        ]))  # fmt: skip
    return "\n".join(lines)


def _complete(ours: dict[str, Any]) -> bool:
    """Whether all of this project's forms gave right answers."""
    return all(isinstance(ours.get(k), dict) and ours[k].get("accepts_sample") for k in OUR_FORMS)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ratios(ours: dict[str, Any], rival: float | None) -> str:
    """Ours over a rival's, both with the first mask: first / repeated."""
    if rival is None:
        return "–"
    return " / ".join(f"{ours[k + ', with mask']['cpu_ms']['median'] / rival:.2f}" for k in ("first", "repeated"))


def _wide(ours: dict[str, Any], wide: dict[str, Any]) -> tuple[str, str]:
    if not _complete(wide):
        return cell(wide), "–"
    pairs = [
        (wide[k]["cpu_ms"]["median"], wide[k]["cpu_ms"]["median"] / ours[k]["cpu_ms"]["median"]) for k in ("first", "repeated")
    ]
    ratios = " / ".join(f"{r:.2f}" + ("" if r <= WIDE_RATIO else " **over**") for _, r in pairs)
    return " / ".join(f"{t:.2f}" for t, _ in pairs), ratios


def setup_table(setups: dict[str, Any]) -> str:
    """The Markdown table of vocabulary set-up."""
    lines = [
        "Vocabulary set-up, CPU s, medians (tokens already in memory as bytes).",
        "",
        _row(["compiler", "kind", "s", "bar"]),
        _row(["---"] * 4),
    ]
    for name, setup in setups.items():
        if "failed" in setup:
            lines.append(_row([name, "failed", setup["failed"].replace("|", "\\|"), "–"]))
            continue
        for kind, figures in setup["setup"].items():
            seconds, bar = figures["cpu_s"]["median"], SETUP_BARS.get(kind) if name.startswith("constrax/") else None
            verdict = "–" if bar is None else f"≤ {bar:g}: " + ("met" if seconds <= bar else "**not met**")
            lines.append(_row([name, kind, f"{seconds:.3f}", verdict]))
    return "\n".join(lines)


def environment(core: int | None) -> dict[str, Any]:
    """What the figures depend on, and nothing that names a machine."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next(
            (line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")), model
        )
    packages = ["constrax", "numpy", "pynini", "regex", *sorted({c.package for c in COMPILERS.values()} - {"constrax"})]
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "pinned_to_one_core": core is not None,
        "load_average": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d"),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def write_report(report: dict[str, Any], path: Path) -> None:
    """Writes JSON with every list of numbers on one line."""
    number_lists = re.compile(r"\[\s+([-\d.,e\s]+?)\s+\]")
    text = number_lists.sub(lambda found: "[" + " ".join(found[1].split()) + "]", json.dumps(report, indent=1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def main() -> None:
    """Measures, writes the JSON, prints the tables."""
    names = [c.name for c in constraints()]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; 100,000 choices here only")
    parser.add_argument("--no-peers", action="store_true", help="this project only")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--limit", type=float, help="most seconds without a sign of life from a compiler (60; --quick: 20)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the raw numbers go")
    given = parser.parse_args()
    for variable in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"  # for the compilers' processes
    data = Path(os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (data / "tokenizers").is_dir():
        raise SystemExit(f"No folder 'tokenizers' in {data}: set CONSTRAX_DATA to the folder that holds it.")
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    options = {"data": str(data), "core": core, "limit": 60, "repeats": 25, "budget": 10.0, "setups": 5}
    if given.quick:
        options |= {"limit": 20, "repeats": 7, "budget": 2.0, "setups": 1}
    if given.limit:
        options["limit"] = given.limit
    chosen = [c for c in constraints() if not given.only or c.name in given.only]
    peers = [] if given.no_peers else [name for name in COMPILERS if name != "constrax"]
    print(f"Setting up {2 + len(peers)} compilers.", file=sys.stderr)
    workers = {f"constrax/{model}": Worker("constrax", model, options) for _, model in (OURS, OURS_WIDE)}
    workers |= {peer: Worker(peer, "llama3", options) for peer in peers}
    setups = {name: worker.setup for name, worker in workers.items()}
    results: dict[str, dict[str, Any]] = {}
    try:
        for constraint in chosen:
            results[constraint.name] = {}
            for name, worker in workers.items():
                print(f"{constraint.name}: {name}", file=sys.stderr)
                skip = given.quick and name in peers and len(constraint.strings) > 10_000
                answer = {"failed": "left out by --quick"} if skip else worker.measure(constraint)
                results[constraint.name][name] = answer
    finally:
        for worker in workers.values():
            worker.stop()
    report = {"environment": environment(core), "options": {k: v for k, v in options.items() if k not in ("data", "core")},
              "bars_ms": {c.name: c.bar_ms for c in chosen}, "setup": setups, "constraints": results}  # fmt: skip
    write_report(report, given.output)
    print(table(results, chosen, peers), setup_table(setups), sep="\n\n")


if __name__ == "__main__":
    try:
        main()
    except ConstraintError as error:
        raise SystemExit(str(error)) from error
