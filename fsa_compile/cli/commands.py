"""The `fsa-compile` command: compile a constraint to a file, look into one, check texts against one.

Commands only: `cli_inputs` has what arguments name, `cli_output` what is printed; what is computed lives in `compiler` and
`inspection`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.cli import cli_inputs as inputs
from fsa_compile.cli.cli_options import Intermixed, compile_options, schema_options
from fsa_compile.cli.cli_output import as_json, cut, facts_of, in_bytes, inspected, print_json, sentence, sizes, text_of, title
from fsa_compile.errors import ArtifactError, ConstraintError, MissingPackageError, in_options
from fsa_compile.inspection.explain import explain, sample, shortest_tokens, spell, statistics

if TYPE_CHECKING:
    from fsa_compile.inspection.draw import Graph

_EPILOG = """examples:
  fsa-compile compile '[0-9]{4}-[0-9]{2}-[0-9]{2}' --tokenizer tokenizer.model --output date.npz
  fsa-compile compile --choices cities.txt --tokenizer tokenizer.model --output city.npz
  fsa-compile inspect date.npz --tokenizer tokenizer.model --dot date.dot
  fsa-compile compile --grammar query.lark --tokenizer tokenizer.model --output query.npz
  fsa-compile compile --schema person.json --tokenizer tokenizer.model --output person.npz
  fsa-compile batch schemas/*.json --tokenizer tokenizer.model --output constraints/
  fsa-compile batch constraints.jsonl --shard 0/4 --tokenizer tokenizer.model --output constraints/
  fsa-compile check date.npz --tokenizer tokenizer.model 2024-02-30 2024-13-01
  fsa-compile check library:json --tokenizer tokenizer.model '[1, 2,]'
  fsa-compile registry add constraints/ date.npz
  fsa-compile tokenizer report tokenizer.model

A CONSTRAINT is a file written by `compile`, or is compiled on the spot: a grammar file (.lark, .gbnf), library:NAME for a
grammar of the library, or else a pattern.
Exit status: 0 done (check: every text is accepted), 1 a text is not accepted or a schema of a batch refused, 2 bad input,
130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      argv: arguments without the program's name; None for `sys.argv`.

    Returns:
      The exit status: 0, 1 when `check` finds a text that is not accepted or `batch` a schema that is refused, 2 for bad input
      (one message on standard error), 130 when interrupted.
    """
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except (ConstraintError, OSError, UnicodeDecodeError) as error:
        said = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"fsa-compile: error: {in_options(said, vars(args))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fsa-compile: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fsa-compile",
        description="Compiles patterns, grammars, JSON Schemas and choices over a tokenizer's vocabulary; looks into the result.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fsa-compile {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Intermixed)
    for add in (_add_compile, _add_batch, _add_inspect, _add_check, _add_registry, _add_tokenizer):
        add(commands)
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("constrax")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _add_compile(commands: Any) -> None:
    """Adds `compile`: one constraint to a file."""
    command = commands.add_parser("compile", help="pattern, grammar, JSON Schema or choices, and a tokenizer in; one file out")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("pattern", nargs="?", metavar="PATTERN", help="regular expression the whole text must match")
    what.add_argument("--choices", type=Path, metavar="FILE", help="UTF-8 file, one allowed text per line")
    what.add_argument("--grammar", metavar="FILE", help="grammar file, or library:NAME for one of the library")
    what.add_argument("--schema", type=Path, metavar="FILE", help="JSON Schema file")
    command.add_argument("--output", "-o", type=Path, required=True, metavar="FILE", help="file to write (.npz)")
    command.add_argument("--force", action="store_true", help="replace a file that is there already")
    compile_options(command, tokenizer_required=True)
    schema_options(command)
    command.set_defaults(run=_compile)


def _add_batch(commands: Any) -> None:
    """Adds `batch`: many constraints to a folder."""
    command = commands.add_parser("batch", help="many JSON Schemas, or constraints of any kind, on all cores; a file for each")
    files = "JSON Schema files; or one .jsonl file with a constraint a line: then a run that was stopped can be started again"
    command.add_argument("schemas", nargs="+", type=Path, metavar="FILE", help=files)
    command.add_argument("--shard", metavar="I/N", help="of a .jsonl file: only part I of N (I from 0), for N machines")
    command.add_argument("--retry", action="store_true", help="of a .jsonl file: compile again what was refused")
    command.add_argument("--output", "-o", type=Path, required=True, metavar="FOLDER", help="where NAME.npz files go")
    command.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core)")
    compile_options(command, tokenizer_required=True)
    schema_options(command)
    command.set_defaults(run=_batch)


def _add_inspect(commands: Any) -> None:
    """Adds `inspect`: what a constraint is."""
    command = commands.add_parser("inspect", help="sizes, shortest and sample texts, a drawing")
    command.add_argument("constraint", metavar="CONSTRAINT", help="compiled file, grammar or pattern")
    command.add_argument("--samples", type=int, default=5, metavar="N", help="random texts to print (default 5)")
    command.add_argument("--seed", type=int, default=0, help="seed of the random texts (default 0)")
    command.add_argument("--dot", type=Path, metavar="FILE", help="write a Graphviz drawing of the token automaton")
    command.add_argument("--svg", type=Path, metavar="FILE", help="write the drawing as SVG, by Graphviz's dot or by matplotlib")
    command.add_argument("--max-nodes", type=int, default=40, metavar="N", help="states to draw (default 40)")
    compile_options(command, tokenizer_required=False)
    command.set_defaults(run=_inspect)


def _add_check(commands: Any) -> None:
    """Adds `check`: texts against a constraint."""
    command = commands.add_parser("check", help="is a text accepted, and if not, where does it stop?")
    command.add_argument("constraint", metavar="CONSTRAINT", help="compiled file, grammar or pattern")
    command.add_argument("texts", nargs="*", metavar="TEXT", help="texts to check; with none given, lines of standard input")
    command.add_argument("--ids", metavar="IDS", help="check one sequence of token ids instead, such as 12,7,1")
    command.add_argument("--max-depth", type=int, metavar="N", help="most stack cells of a grammar (default: no limit)")
    compile_options(command, tokenizer_required=True)
    command.set_defaults(run=_check)


def _add_registry(commands: Any) -> None:
    """Adds `registry`: a folder of constraints by name."""
    command = commands.add_parser("registry", help="a folder of compiled constraints by name")
    command.add_argument("what", choices=("list", "show", "add"), help="list all, show one, or add a compiled file")
    command.add_argument("folder", type=Path, metavar="FOLDER", help="where they lie")
    command.add_argument("item", nargs="?", metavar="NAME|FILE", help="show: a name; add: a file written by compile")
    command.add_argument("--name", help="add: its name (default: the file's)")
    command.add_argument("--replace", action="store_true", help="add: replace one of this name")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_registry)


def _add_tokenizer(commands: Any) -> None:
    """Adds `tokenizer report`."""
    command = commands.add_parser("tokenizer", help="what a tokenizer's own encoder makes of texts: counts and odd tokens")
    command.add_argument("what", choices=("report",), help="report: canonical tokens, forbidden pairs, tokens never reached")
    command.add_argument("tokenizer", metavar="PATH", help="as --tokenizer of the other commands")
    command.add_argument("--examples", type=int, default=10, metavar="N", help="tokens to list of each kind (default 10)")
    command.add_argument("--json", action="store_true", help="print JSON, all tokens included")
    command.set_defaults(run=_tokenizer_report)


def _tokenizer_report(args: argparse.Namespace) -> int:
    from fsa_compile.canonical.filter.canonical_tables import canonical_tables
    from fsa_compile.canonical.tokenizer_report import describe, tokenizer_report

    tokenizer = inputs.tokenizer_of(args)
    report = tokenizer_report(canonical_tables(tokenizer), tokenizer.vocabulary)
    if args.json:
        print_json(dataclasses.asdict(report))
    else:
        print(describe(report, tokenizer.vocabulary, args.examples))
    return 0


def _compile(args: argparse.Namespace) -> int:
    if args.output.exists() and not args.force:
        fix = "Add --force to replace it, or name another file."
        raise ConstraintError("there is a file of this name already", where=str(args.output), fix=fix)
    if not args.output.parent.is_dir():  # before the work, not after it
        raise ConstraintError(f"there is no folder {args.output.parent}", where=str(args.output), fix="Make it first.")
    begin = time.perf_counter()
    tokenizer = inputs.tokenizer_of(args)
    loaded = time.perf_counter()
    if args.choices is not None:
        from fsa_compile.compiler.entry_points import compile_choices

        strings, how = inputs.lines_of(args.choices), inputs.narrowing(args)
        constraint = compile_choices(
            _progress(strings, "choices"), tokenizer, canonical=args.canonical, **how, limits=inputs.limits_of(args)
        )
    elif args.grammar is not None:
        constraint = inputs.from_grammar(args.grammar, tokenizer, args)
    elif args.schema is not None:
        constraint = inputs.from_schema(args.schema, tokenizer, args)
    else:
        constraint = inputs.from_pattern(args.pattern, tokenizer, args)
    compiled = time.perf_counter()
    constraint.save(args.output)
    size = args.output.stat().st_size
    if args.json:
        seconds = {"tokenizer": round(loaded - begin, 4), "compile": round(compiled - loaded, 4)}
        print_json({"output": str(args.output), "bytes": size, "seconds": seconds, **facts_of(constraint)})
        return 0
    print(
        f"Compiled {title(constraint)!r} over {constraint.vocab_size:,} tokens in {compiled - loaded:.3f} s "
        f"(tokenizer: {loaded - begin:.2f} s). {sizes(statistics(constraint))} Wrote {args.output} ({in_bytes(size)})."
    )
    return 0


def _inspect(args: argparse.Namespace) -> int:
    constraint, tokenizer = inputs.constraint_of(args)
    facts = facts_of(constraint)
    if constraint.is_canonical:
        return _inspect_canonical(args, constraint, tokenizer, facts)
    walks = [shortest_tokens(constraint)]
    if tokenizer is not None:
        seeds = _progress(range(args.seed, args.seed + args.samples), "samples")
        walks += [sample(constraint, seed=seed) for seed in seeds]
        facts["shortest"], *facts["samples"] = [text_of(tokenizer, ids) for ids in walks]
    facts["shortest_ids"] = walks[0]
    if args.dot or args.svg:
        _draw(args, constraint, tokenizer)
    if args.json:
        print_json(facts)
        return 0
    print("\n".join(inspected(constraint)))
    if tokenizer is None:
        print(f"A shortest text, as token ids: {walks[0]}. Give --tokenizer to see texts.")
        return 0
    print(f"A shortest text: {cut(facts['shortest'])!r}")
    for text in facts["samples"]:
        print(f"A random text:   {cut(text)!r}")
    return 0


def _inspect_canonical(
    args: argparse.Namespace, constraint: CompiledConstraint, tokenizer: Any, facts: dict[str, Any]
) -> int:
    """Sizes and a shortest text of a constraint on the tokenizer's own tokens."""
    if args.dot or args.svg:
        what = "a constraint on canonical tokens is not drawn: which tokens may come depends on the last one too"
        raise ConstraintError(what, fix="Draw the constraint without --canonical.")
    if tokenizer is not None:
        facts["shortest_ids"] = _canonical_walk(constraint, tokenizer).shortest()
        facts["shortest"] = text_of(tokenizer, facts["shortest_ids"])
    if args.json:
        print_json(facts)
        return 0
    print(f"Source: {title(constraint)}, as the tokenizer itself writes it")
    print(sizes(statistics(constraint)))
    text = "Give --tokenizer to see texts." if tokenizer is None else f"A shortest text: {cut(facts['shortest'])!r}"
    print(text)
    return 0


def _canonical_walk(constraint: CompiledConstraint, tokenizer: Any, max_depth: int | None = None) -> Any:
    from fsa_compile.canonical.canonical_walk import CanonicalWalk
    from fsa_compile.canonical.filter.canonical_tables import canonical_tables

    return CanonicalWalk(constraint, canonical_tables(tokenizer), max_depth)


def _check_canonical(args: argparse.Namespace, constraint: CompiledConstraint, tokenizer: Any, item: Any) -> bool:
    """Prints whether a text's own tokens, or some ids, are accepted."""
    walk = _canonical_walk(constraint, tokenizer, args.max_depth)
    ids = spell(tokenizer, item) if isinstance(item, str) else list(item)
    for token in ids:
        if not 0 <= token < constraint.vocab_size or not walk.allowed()[token]:
            break
        walk.advance(token)
    position = walk.num_tokens
    verdict = "refused" if position < len(ids) else "accepted" if walk.accepting or walk.finished else "incomplete"
    if args.json:
        text = {"text": item} if isinstance(item, str) else {}
        print(json.dumps(text | {"verdict": verdict, "ids": ids, "position": position}))
    else:
        where = f" at token {position + 1} of {len(ids)} (id {ids[position]})" if verdict == "refused" else ""
        print(f"{verdict}: {cut(item)!r}{where}" if isinstance(item, str) else f"{verdict}: {len(ids)} ids{where}")
    return verdict == "accepted"


def _check(args: argparse.Namespace) -> int:
    if args.ids is not None and args.texts:
        raise ConstraintError("--ids and texts were given together", fix="Give one of them.")
    constraint, tokenizer = inputs.constraint_of(args)
    items: list[Any]
    if args.ids is not None:
        items = [inputs.read_ids(args.ids)]
    else:
        items = args.texts or [line.rstrip("\n") for line in sys.stdin]
    accepted = True
    for item in items:
        if constraint.is_canonical:
            accepted &= _check_canonical(args, constraint, tokenizer, item)
            continue
        found = explain(constraint, tokenizer, item, max_depth=args.max_depth)
        accepted &= found.accepted
        print(json.dumps(as_json(found, tokenizer, item)) if args.json else sentence(found, tokenizer, item))
    return 0 if accepted else 1


def _batch(args: argparse.Namespace) -> int:
    from fsa_compile.batch.schemas import compile_schemas

    if args.shard is not None or args.retry or args.schemas[0].suffix == ".jsonl":
        return _batch_lines(args)
    names = [path.stem for path in args.schemas]
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ConstraintError(f"two of the files are called {double}", fix="Give them different names, or compile them apart.")
    schemas = {path.stem: path.read_text(encoding="utf-8-sig") for path in args.schemas}
    options = inputs.written(args)
    results = compile_schemas(
        schemas, inputs.tokenizer_of(args), options=options, limits=inputs.limits_of(args), output=args.output,
        workers=args.workers,
    )  # fmt: skip
    refused = [result for result in results.values() if result.error is not None]
    if args.json:
        errors = {r.name: str(r.error) for r in refused}
        print_json({"written": {r.name: str(r.path) for r in results.values() if r.path}, "errors": errors})
    else:
        print(f"Wrote {len(results) - len(refused):,} of {len(results):,} constraints to {args.output}.")
        for result in refused:
            print(f"fsa-compile: {result.name}: {result.error}", file=sys.stderr)
    return 1 if refused else 0


def _batch_lines(args: argparse.Namespace) -> int:
    from fsa_compile.batch.folder import compile_folder

    if len(args.schemas) != 1 or args.schemas[0].suffix != ".jsonl":
        fix = 'Give one file with lines like {"name": "date", "regex": "[0-9]{4}"}.'
        raise ConstraintError("--shard and --retry, and files in lines, need one .jsonl file", fix=fix)
    try:
        part, parts = map(int, (args.shard or "0/1").split("/"))
    except ValueError:
        raise ConstraintError(f"the shard is {args.shard!r}", fix="Give I/N such as 0/4.") from None
    options = inputs.written(args)
    records = compile_folder(
        args.schemas[0], inputs.tokenizer_of(args), args.output, options=options, limits=inputs.limits_of(args),
        workers=args.workers, shard=(part, parts), retry=args.retry,
    )  # fmt: skip
    refused = {record.name: record.error for record in records.values() if record.error is not None}
    if args.json:
        files = {name: str(args.output / f"{name}.npz") for name in records if name not in refused}
        print_json({"written": files, "errors": refused})
    else:
        print(f"{len(records) - len(refused):,} of {len(records):,} constraints are in {args.output}.")
        for name, error in refused.items():
            print(f"fsa-compile: {name}: {error}", file=sys.stderr)
    return 1 if refused else 0


def _registry(args: argparse.Namespace) -> int:
    from fsa_compile.artifact.item_trie import CompiledItems
    from fsa_compile.interop.registry import Registry

    registry = Registry(args.folder)
    if (args.item is None) != (args.what == "list"):
        needed = {"list": "takes no name", "show": "needs a name", "add": "needs a file"}[args.what]
        raise ConstraintError(f"registry {args.what} {needed}", fix="See fsa-compile registry --help.")
    if args.what == "add":
        path = Path(args.item)
        try:
            made: CompiledConstraint | CompiledItems = CompiledConstraint.load(path)
        except ArtifactError as error:
            try:
                made = CompiledItems.load(path)
            except ArtifactError:
                raise error from None
        saved = registry.save(args.name or path.stem, made, replace=args.replace)
        if args.json:
            print_json({"written": str(saved)})
        else:
            print(f"Wrote {saved}.")
        return 0
    if not args.folder.is_dir():
        raise ConstraintError("there is no such folder", where=str(args.folder), fix="registry add makes it.")
    entries = [registry.entry(name) for name in (registry.names() if args.what == "list" else [args.item])]
    if args.json and args.what == "list":
        print_json({entry.name: dataclasses.asdict(entry) for entry in entries})
    elif args.json:
        print_json(dataclasses.asdict(entries[0]))
    else:
        for entry in entries:
            source = cut(" ".join(entry.source.split()), 60)
            print(f"{entry.name}  {entry.kind}, {in_bytes(entry.bytes)}, vocabulary {entry.fingerprint[:12]}: {source}")
    return 0


def _draw(args: argparse.Namespace, constraint: CompiledConstraint, tokenizer: Any) -> None:
    from fsa_compile.inspection.draw import build_graph, graph_to_dot

    graph = build_graph(constraint, tokenizer, max_nodes=args.max_nodes)
    text = graph_to_dot(graph)
    if args.dot:
        args.dot.write_text(text, encoding="utf-8")
    if args.svg and shutil.which("dot") is None:
        _plot(graph, args.svg)
    elif args.svg:
        done = subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            raise ConstraintError(f"dot failed: {done.stderr.decode(errors='replace').strip()}")
        args.svg.write_bytes(done.stdout)


def _plot(graph: Graph, path: Path) -> None:
    """Draws as SVG without Graphviz."""
    from fsa_compile.inspection.draw import plot_graph

    try:
        plot_graph(graph).savefig(path, format="svg", bbox_inches="tight")
    except MissingPackageError as error:
        what = "an SVG needs the program dot or the package matplotlib, and neither is installed"
        fix = 'Install Graphviz or "constrax[notebooks]", or write --dot FILE and convert it elsewhere.'
        raise ConstraintError(what, where=str(path), fix=fix) from error


def _progress(items: Iterable[Any], what: str) -> Iterable[Any]:
    """The items, under a progress bar when there is a terminal to show one and tqdm to draw it."""
    if not sys.stderr.isatty():
        return items
    try:
        from tqdm import tqdm
    except ImportError:
        return items
    return tqdm(items, desc=what, leave=False, delay=0.5)


if __name__ == "__main__":
    sys.exit(main())
