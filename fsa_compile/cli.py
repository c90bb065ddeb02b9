"""The `fsa-compile` command: compile a constraint to a file, look into one, check texts against one.

Arguments and printing only; what is computed lives in `pipeline`, `inspect` and `draw`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.errors import ArtifactError, ConstraintError
from fsa_compile.inspect import (
    Explanation,
    Statistics,
    byte_ranges,
    explain,
    sample,
    shortest_tokens,
    spell,
    statistics,
    token_text,
)
from fsa_compile.limits import CompileLimits
from fsa_compile.stack_view import StackView

_EPILOG = """examples:
  fsa-compile compile '[0-9]{4}-[0-9]{2}-[0-9]{2}' --tokenizer tokenizer.model --output date.npz
  fsa-compile compile --choices cities.txt --tokenizer tokenizer.model --output city.npz
  fsa-compile inspect date.npz --tokenizer tokenizer.model --dot date.dot
  fsa-compile compile --grammar query.lark --tokenizer tokenizer.model --output query.npz
  fsa-compile compile --schema person.json --tokenizer tokenizer.model --output person.npz
  fsa-compile batch schemas/*.json --tokenizer tokenizer.model --output constraints/
  fsa-compile check date.npz --tokenizer tokenizer.model 2024-02-30 2024-13-01
  fsa-compile check library:json --tokenizer tokenizer.model '[1, 2,]'
  fsa-compile registry add constraints/ date.npz
  fsa-compile tokenizer report tokenizer.model

A CONSTRAINT is a file written by `compile`, or is compiled on the spot: a grammar file (.lark, .gbnf), library:NAME for a
grammar of the library, or else a pattern.
Exit status: 0 done (check: every text is accepted), 1 a text is not accepted or a schema of a batch refused, 2 bad input,
130 interrupted.
"""
_FLAGS = "aimsx"
_LIBRARY = "library:"


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
        print(f"fsa-compile: {type(error).__name__}: {error}", file=sys.stderr)
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
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Intermixed)

    command = commands.add_parser("compile", help="pattern, grammar, JSON Schema or choices, and a tokenizer in; one file out")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("pattern", nargs="?", metavar="PATTERN", help="regular expression the whole text must match")
    what.add_argument("--choices", type=Path, metavar="FILE", help="UTF-8 file, one allowed text per line")
    what.add_argument("--grammar", metavar="FILE", help="grammar file, or library:NAME for one of the library")
    what.add_argument("--schema", type=Path, metavar="FILE", help="JSON Schema file")
    command.add_argument("--output", "-o", type=Path, required=True, metavar="FILE", help="file to write (.npz)")
    _compile_options(command, tokenizer_required=True)
    _schema_options(command)
    command.set_defaults(run=_compile)

    command = commands.add_parser("batch", help="many JSON Schemas on all cores, one file out for each")
    command.add_argument("schemas", nargs="+", type=Path, metavar="FILE", help="JSON Schema files")
    command.add_argument("--output", "-o", type=Path, required=True, metavar="FOLDER", help="where NAME.npz files go")
    command.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core)")
    _compile_options(command, tokenizer_required=True)
    _schema_options(command)
    command.set_defaults(run=_batch)

    command = commands.add_parser("inspect", help="sizes, shortest and sample texts, a drawing")
    command.add_argument("constraint", metavar="CONSTRAINT", help="compiled file, grammar or pattern")
    command.add_argument("--samples", type=int, default=5, metavar="N", help="random texts to print (default 5)")
    command.add_argument("--seed", type=int, default=0, help="seed of the random texts (default 0)")
    command.add_argument("--dot", type=Path, metavar="FILE", help="write a Graphviz drawing of the token automaton")
    command.add_argument("--svg", type=Path, metavar="FILE", help="write the drawing as SVG; needs Graphviz's dot program")
    command.add_argument("--max-nodes", type=int, default=40, metavar="N", help="states to draw (default 40)")
    _compile_options(command, tokenizer_required=False)
    command.set_defaults(run=_inspect)

    command = commands.add_parser("check", help="is a text accepted, and if not, where does it stop?")
    command.add_argument("constraint", metavar="CONSTRAINT", help="compiled file, grammar or pattern")
    command.add_argument("texts", nargs="*", metavar="TEXT", help="texts to check; with none given, lines of standard input")
    command.add_argument("--ids", metavar="IDS", help="check one sequence of token ids instead, such as 12,7,1")
    command.add_argument("--max-depth", type=int, metavar="N", help="most stack cells of a grammar (default: no limit)")
    _compile_options(command, tokenizer_required=True)
    command.set_defaults(run=_check)

    command = commands.add_parser("registry", help="a folder of compiled constraints by name")
    command.add_argument("what", choices=("list", "show", "add"), help="list all, show one, or add a compiled file")
    command.add_argument("folder", type=Path, metavar="FOLDER", help="where they lie")
    command.add_argument("item", nargs="?", metavar="NAME|FILE", help="show: a name; add: a file written by compile")
    command.add_argument("--name", help="add: its name (default: the file's)")
    command.add_argument("--replace", action="store_true", help="add: replace one of this name")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_registry)

    command = commands.add_parser("tokenizer", help="what a tokenizer's own encoder makes of texts: counts and odd tokens")
    command.add_argument("what", choices=("report",), help="report: canonical tokens, forbidden pairs, tokens never reached")
    command.add_argument("tokenizer", metavar="PATH", help="as --tokenizer of the other commands")
    command.add_argument("--examples", type=int, default=10, metavar="N", help="tokens to list of each kind (default 10)")
    command.add_argument("--json", action="store_true", help="print JSON, all tokens included")
    command.set_defaults(run=_tokenizer_report)
    return parser


class _Intermixed(argparse.ArgumentParser):
    """A parser that allows options between the positional arguments of a sub-command, where argparse can do that."""

    _inside = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._inside or self._mutually_exclusive_groups:
            return super().parse_known_args(args, namespace)
        self._inside = True  # the intermixed form calls this method again
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inside = False


def _compile_options(command: argparse.ArgumentParser, *, tokenizer_required: bool) -> None:
    command.add_argument(
        "--tokenizer", required=tokenizer_required, metavar="PATH",
        help="SentencePiece .model, tiktoken ranks, tokenizer.json, or GPT-2's pair of files in a folder",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--flags", default="", metavar="LETTERS", help="pattern flags as in (?…): a i m s x")
    grammar = command.add_argument_group("grammars")
    grammar.add_argument("--syntax", choices=("lark", "gbnf"), help="how it is written (default: told by its text)")
    grammar.add_argument("--start", metavar="RULE", help="start rule (default: start, or root in GBNF)")
    grammar.add_argument("--mode", choices=("longest", "characters"), help="lexical mode (default: longest; GBNF: characters)")
    grammar.add_argument("--stacks", type=int, metavar="K", help="parallel stacks, for what one cannot decide (default 1)")
    command.add_argument("--canonical", action="store_true", help="only the token sequences that the tokenizer itself makes")
    command.add_argument(
        "--filter", action="append", default=[], metavar="FILTER",
        help='narrow it (docs/filters.md): ascii, byte_fallback, "scripts Latin Hangul", "forbid secret", "length 80", ...',
    )  # fmt: skip
    command.add_argument("--starts-text", action="store_true", help="the output starts a text instead of continuing a prompt")
    command.add_argument("--canonical-depth", type=int, metavar="N", help="with --canonical: most open frames of a grammar")
    limits = command.add_argument_group("limits of the compilation")
    for field in dataclasses.fields(CompileLimits):
        kind: Any = float if field.name == "max_seconds" else int
        name = "--" + field.name.replace("_", "-")
        limits.add_argument(name, type=kind, default=field.default, metavar="N", help=f"default {field.default:,}")


def _schema_options(command: argparse.ArgumentParser) -> None:
    from fsa_compile.json_schema.options import SchemaOptions

    schema = command.add_argument_group("JSON Schema")
    for name, explained in (("whitespace", "white space in the text"), ("draft", "version of JSON Schema")):
        choices = SchemaOptions.choices(name)
        default = getattr(SchemaOptions(), name)
        schema.add_argument(f"--{name}", choices=choices, default=default, help=f"{explained} (default: {default})")


def _tokenizer_report(args: argparse.Namespace) -> int:
    from fsa_compile.canonical.report import describe, tokenizer_report
    from fsa_compile.canonical.tables import canonical_tables

    tokenizer = _tokenizer(args)
    report = tokenizer_report(canonical_tables(tokenizer), tokenizer.vocabulary)
    if args.json:
        _print_json(dataclasses.asdict(report))
    else:
        print(describe(report, tokenizer.vocabulary, args.examples))
    return 0


def _compile(args: argparse.Namespace) -> int:
    if not args.output.parent.is_dir():  # before the work, not after it
        raise ConstraintError(f"there is no folder {args.output.parent}", where=str(args.output), fix="Make it first.")
    begin = time.perf_counter()
    tokenizer = _tokenizer(args)
    loaded = time.perf_counter()
    if args.choices is not None:
        from fsa_compile.pipeline import compile_choices

        strings = _lines(args.choices)
        constraint = compile_choices(
            _progress(strings, "choices"), tokenizer, canonical=args.canonical, **_narrowing(args), limits=_limits(args)
        )
    elif args.grammar is not None:
        constraint = _from_grammar(args.grammar, tokenizer, args)
    elif args.schema is not None:
        constraint = _from_schema(args.schema, tokenizer, args)
    else:
        constraint = _from_pattern(args.pattern, tokenizer, args)
    compiled = time.perf_counter()
    constraint.save(args.output)
    size = args.output.stat().st_size
    if args.json:
        seconds = {"tokenizer": round(loaded - begin, 4), "compile": round(compiled - loaded, 4)}
        _print_json({"output": str(args.output), "bytes": size, "seconds": seconds, **_facts(constraint)})
        return 0
    print(
        f"Compiled {_title(constraint)!r} over {constraint.vocab_size:,} tokens in {compiled - loaded:.3f} s "
        f"(tokenizer: {loaded - begin:.2f} s). {_sizes(statistics(constraint))} Wrote {args.output} ({_bytes(size)})."
    )
    return 0


def _inspect(args: argparse.Namespace) -> int:
    constraint, tokenizer = _constraint(args)
    facts = _facts(constraint)
    if constraint.is_canonical:
        return _inspect_canonical(args, constraint, tokenizer, facts)
    walks = [shortest_tokens(constraint)]
    if tokenizer is not None:
        seeds = _progress(range(args.seed, args.seed + args.samples), "samples")
        walks += [sample(constraint, seed=seed) for seed in seeds]
        facts["shortest"], *facts["samples"] = [_text(tokenizer, ids) for ids in walks]
    facts["shortest_ids"] = walks[0]
    if args.dot or args.svg:
        _draw(args, constraint, tokenizer)
    if args.json:
        _print_json(facts)
        return 0
    numbers = statistics(constraint)
    print(f"Source: {_title(constraint)}")
    print(_sizes(numbers))
    print(
        f"One state has up to {numbers.max_groups} wide sets of tokens and {numbers.max_levels} mask rows; "
        f"{numbers.groups:,} wide sets, {numbers.levels:,} mask rows and {numbers.arcs:,} single arcs in all."
    )
    if numbers.symbols:
        stacks = f"{numbers.stacks} stacks" if numbers.stacks > 1 else "One stack"
        print(
            f"{stacks}, {numbers.symbols:,} symbols; one token pops at most {numbers.max_pops} cells and pushes at most "
            f"{numbers.max_push}. A step reads at most {_bytes(numbers.step_bytes)} of mask rows for each sequence."
        )
    print(f"End-of-text ids: {', '.join(map(str, constraint.stop_ids)) or 'none'}.")
    if tokenizer is None:
        print(f"A shortest text, as token ids: {walks[0]}. Give --tokenizer to see texts.")
        return 0
    print(f"A shortest text: {_cut(facts['shortest'])!r}")
    for text in facts["samples"]:
        print(f"A random text:   {_cut(text)!r}")
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
        facts["shortest"] = _text(tokenizer, facts["shortest_ids"])
    if args.json:
        _print_json(facts)
        return 0
    print(f"Source: {_title(constraint)}, as the tokenizer itself writes it")
    print(_sizes(statistics(constraint)))
    text = "Give --tokenizer to see texts." if tokenizer is None else f"A shortest text: {_cut(facts['shortest'])!r}"
    print(text)
    return 0


def _canonical_walk(constraint: CompiledConstraint, tokenizer: Any) -> Any:
    from fsa_compile.canonical.tables import canonical_tables
    from fsa_compile.canonical.walk import CanonicalWalk

    return CanonicalWalk(constraint, canonical_tables(tokenizer))


def _check_canonical(args: argparse.Namespace, constraint: CompiledConstraint, tokenizer: Any, item: Any) -> bool:
    """Prints whether a text's own tokens, or some ids, are accepted."""
    walk, ids = _canonical_walk(constraint, tokenizer), spell(tokenizer, item) if isinstance(item, str) else list(item)
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
        print(f"{verdict}: {_cut(item)!r}{where}" if isinstance(item, str) else f"{verdict}: {len(ids)} ids{where}")
    return verdict == "accepted"


def _check(args: argparse.Namespace) -> int:
    if args.ids is not None and args.texts:
        raise ConstraintError("--ids and texts were given together", fix="Give one of them.")
    constraint, tokenizer = _constraint(args)
    items: list[Any]
    if args.ids is not None:
        items = [_read_ids(args.ids)]
    else:
        items = args.texts or [line.rstrip("\n") for line in sys.stdin]
    accepted = True
    for item in items:
        if constraint.is_canonical:
            accepted &= _check_canonical(args, constraint, tokenizer, item)
            continue
        found = explain(constraint, tokenizer, item, max_depth=args.max_depth)
        accepted &= found.accepted
        print(json.dumps(_as_json(found, tokenizer, item)) if args.json else _sentence(found, tokenizer, item))
    return 0 if accepted else 1


def _sentence(found: Explanation, tokenizer: Any, item: Any) -> str:
    """The verdict in words."""
    tokens = tokenizer.vocabulary.tokens
    shown = repr(_cut(item)) if isinstance(item, str) else f"the sequence of {len(found.ids)} ids"
    if found.accepted:
        return f"accepted: {shown} ({_tokens(len(found.ids))})"
    ending = f"A shortest way to finish: {_text(tokenizer, found.completion)!r} ({_tokens(len(found.completion))})."
    if found.verdict == "incomplete":
        return f"incomplete: {shown} is a valid beginning of {_tokens(found.position)}, but not accepted.\n  {ending}"
    if not found.token_bytes:
        refused = f"id {found.token}, which is not text"
        if found.token in tokenizer.vocabulary.stop_ids:
            refused = f"id {found.token}, which ends the text"
    else:
        refused = f"id {found.token}, '{token_text(found.token_bytes)}'"
    begin = tokenizer.vocabulary.decode_bytes(found.ids)[: found.matched]
    lines = [f"refused: {shown} stops at token {found.position + 1} of {len(found.ids)} ({refused})."]
    lines.append(f"  Longest valid beginning: {_cut(begin.decode('utf-8', 'backslashreplace'))!r} ({found.matched} bytes).")
    if found.allowed_count:
        examples = ", ".join(f"{i} '{token_text(tokens[i])}'" for i in found.examples)
        lines.append(
            f"  After {_tokens(found.position)}, {found.allowed_count:,} were allowed, beginning with "
            f"{byte_ranges(found.allowed_bytes)}; for example {examples}."
        )
        if found.completion:
            lines.append(f"  {ending}")
    if found.too_deep:
        lines.append("  It would be allowed without the limit on the stack.")
    lines += [f"  Open there: {_open_frames(found, view, tokenizer)}." for view in found.stack if view.frames]
    if found.stop_allowed:
        lines.append(f"  The text may end after {_tokens(found.position)}{'' if found.allowed_count else ', and must'}.")
    return "\n".join(lines)


def _open_frames(found: Explanation, view: StackView, tokenizer: Any) -> str:
    """The frames of a stack with what stood where each was entered, outermost first."""
    frames = [f"{f.name} since '{_text(tokenizer, found.ids[f.since : f.since + 1])}'" for f in view.frames if f.since >= 0]
    return "; ".join([*map(_cut, frames), f"at {view.inside}"])


def _as_json(found: Explanation, tokenizer: Any, item: Any) -> dict[str, Any]:
    tokens = tokenizer.vocabulary.tokens
    out = {"text": item} if isinstance(item, str) else {}
    return out | {
        "verdict": found.verdict,
        "ids": list(found.ids),
        "position": found.position,
        "token": found.token,
        "token_text": None if found.token is None else token_text(found.token_bytes),
        "matched_bytes": found.matched,
        "allowed_count": found.allowed_count,
        "allowed_bytes": [i for i in range(256) if found.allowed_bytes[i]],
        "examples": [{"id": i, "text": token_text(tokens[i])} for i in found.examples],
        "stop_allowed": found.stop_allowed,
        "completion_ids": list(found.completion),
        "completion": _text(tokenizer, found.completion),
        "stack": [dataclasses.asdict(view) for view in found.stack],
        "too_deep": found.too_deep,
    }


def _constraint(args: argparse.Namespace) -> tuple[CompiledConstraint, Any]:
    """The constraint an argument names, and the tokenizer if one is given."""
    path = Path(args.constraint)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a pattern may be too long for a file name
        is_file = False
    if not is_file and path.suffix == ".npz":
        raise ConstraintError("there is no such constraint file", where=args.constraint, fix="Check the path.")
    tokenizer = None if args.tokenizer is None else _tokenizer(args)
    is_grammar = args.constraint.startswith(_LIBRARY) or (is_file and path.suffix in (".lark", ".gbnf"))
    if is_file and not is_grammar:
        return CompiledConstraint.load(path, tokenizer), tokenizer
    if tokenizer is None:
        raise ConstraintError(
            f"a {'grammar' if is_grammar else 'pattern'} can only be compiled for a tokenizer", where=f"  {args.constraint}",
            fix="Give --tokenizer PATH (or, if a file was meant, check its path).",
        )  # fmt: skip
    return (_from_grammar if is_grammar else _from_pattern)(args.constraint, tokenizer, args), tokenizer


def _from_grammar(name: str, tokenizer: Any, args: argparse.Namespace) -> CompiledConstraint:
    from fsa_compile.pipeline import compile_grammar

    given = {option: value for option in ("syntax", "start", "mode", "stacks") if (value := getattr(args, option)) is not None}
    if name.startswith(_LIBRARY):
        from fsa_compile import library

        name = name.removeprefix(_LIBRARY)
        text, given = library.grammar_text(name), library.options(name) | given
    else:
        text = Path(name).read_text(encoding="utf-8-sig")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        constraint = compile_grammar(
            text, tokenizer, **given, canonical=args.canonical, **_narrowing(args), max_depth=args.canonical_depth,
            limits=_limits(args),
        )
    for warning in found:
        print(f"fsa-compile: warning: {warning.message}", file=sys.stderr)
    return constraint


def _narrowing(args: argparse.Namespace) -> dict[str, Any]:
    """Filters, and whether the output starts a text."""
    if not args.filter and not args.starts_text:
        return {}
    from fsa_compile.filters.named import named_filter

    return {"filters": [named_filter(text) for text in args.filter], "starts_text": args.starts_text}


def _from_schema(path: Path, tokenizer: Any, args: argparse.Namespace) -> CompiledConstraint:
    from fsa_compile.json_schema import SchemaOptions, compile_json_schema

    depth = args.canonical_depth
    options = SchemaOptions(whitespace=args.whitespace, draft=args.draft, max_object_depth=depth, max_array_depth=depth)
    text = path.read_text(encoding="utf-8-sig")
    narrowing = _narrowing(args)
    return compile_json_schema(text, tokenizer, options=options, canonical=args.canonical, **narrowing, limits=_limits(args))


def _batch(args: argparse.Namespace) -> int:
    from fsa_compile.batch_compile import compile_schemas
    from fsa_compile.json_schema import SchemaOptions

    names = [path.stem for path in args.schemas]
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ConstraintError(f"two of the files are called {double}", fix="Give them different names, or compile them apart.")
    schemas = {path.stem: path.read_text(encoding="utf-8-sig") for path in args.schemas}
    options = SchemaOptions(whitespace=args.whitespace, draft=args.draft)
    results = compile_schemas(
        schemas, _tokenizer(args), options=options, limits=_limits(args), output=args.output, workers=args.workers
    )  # fmt: skip
    refused = [result for result in results.values() if result.error is not None]
    if args.json:
        errors = {r.name: str(r.error) for r in refused}
        _print_json({"written": {r.name: str(r.path) for r in results.values() if r.path}, "errors": errors})
    else:
        print(f"Wrote {len(results) - len(refused):,} of {len(results):,} constraints to {args.output}.")
        for result in refused:
            print(f"fsa-compile: {result.name}: {result.error}", file=sys.stderr)
    return 1 if refused else 0


def _registry(args: argparse.Namespace) -> int:
    from fsa_compile.items.artifact import CompiledItems
    from fsa_compile.registry import Registry

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
        written = registry.save(args.name or path.stem, made, replace=args.replace)
        if args.json:
            _print_json({"written": str(written)})
        else:
            print(f"Wrote {written}.")
        return 0
    entries = [registry.entry(name) for name in (registry.names() if args.what == "list" else [args.item])]
    if args.json and args.what == "list":
        _print_json({entry.name: dataclasses.asdict(entry) for entry in entries})
    elif args.json:
        _print_json(dataclasses.asdict(entries[0]))
    else:
        for entry in entries:
            source = _cut(" ".join(entry.source.split()), 60)
            print(f"{entry.name}  {entry.kind}, {_bytes(entry.bytes)}, vocabulary {entry.fingerprint[:12]}: {source}")
    return 0


def _from_pattern(pattern: str, tokenizer: Any, args: argparse.Namespace) -> CompiledConstraint:
    from fsa_compile.pipeline import compile_regex

    flags = 0
    for letter in args.flags:
        if letter not in _FLAGS:
            raise ConstraintError(f"{letter!r} is no pattern flag", where=f"--flags {args.flags}", fix="Use letters of 'aimsx'.")
        flags |= int(getattr(re, letter.upper()))
    return compile_regex(pattern, tokenizer, flags=flags, canonical=args.canonical, **_narrowing(args), limits=_limits(args))


def _tokenizer(args: argparse.Namespace) -> Any:
    from fsa_compile.tokenizers import load_tokenizer

    return load_tokenizer(args.tokenizer)


def _limits(args: argparse.Namespace) -> CompileLimits:
    return CompileLimits(**{field.name: getattr(args, field.name) for field in dataclasses.fields(CompileLimits)})


def _draw(args: argparse.Namespace, constraint: CompiledConstraint, tokenizer: Any) -> None:
    from fsa_compile.draw import to_dot

    if args.svg and shutil.which("dot") is None:
        raise ConstraintError(
            "the program dot is not installed, so no SVG can be made", where=str(args.svg),
            fix="Install Graphviz, or write --dot FILE and convert it elsewhere.",
        )  # fmt: skip
    text = to_dot(constraint, tokenizer, max_nodes=args.max_nodes)
    if args.dot:
        args.dot.write_text(text, encoding="utf-8")
    if args.svg:
        done = subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            raise ConstraintError(f"dot failed: {done.stderr.decode(errors='replace').strip()}")
        args.svg.write_bytes(done.stdout)


def _lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file; only the line break ends a line, and an empty last line is none."""
    text = path.read_text(encoding="utf-8-sig")
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _read_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in re.split(r"[\s,]+", text.strip("[] \t\n")) if part]
    except ValueError as error:
        raise ConstraintError("the ids are not whole numbers", where=f"--ids {text}", fix="Write --ids 12,7,1.") from error


def _progress(items: Iterable[Any], what: str) -> Iterable[Any]:
    """The items, under a progress bar when there is a terminal to show one and tqdm to draw it."""
    if not sys.stderr.isatty():
        return items
    try:
        from tqdm import tqdm
    except ImportError:
        return items
    return tqdm(items, desc=what, leave=False, delay=0.5)


def _facts(constraint: CompiledConstraint) -> dict[str, Any]:
    numbers = dataclasses.asdict(statistics(constraint))
    numbers["shortest_tokens"], numbers["longest_tokens"] = numbers.pop("shortest"), numbers.pop("longest")
    return {"source": constraint.source, "fingerprint": constraint.fingerprint, **numbers}


def _sizes(numbers: Statistics) -> str:
    longest = "any number of" if numbers.longest is None else f"{numbers.longest:,}"
    length = "Every text takes" if numbers.longest == numbers.shortest else f"A text takes {numbers.shortest:,} to"
    return (
        f"{numbers.states:,} states ({numbers.accepting:,} accepting), {numbers.rows:,} token sets, {_bytes(numbers.nbytes)}. "
        f"{length} {longest} token{'' if longest == '1' else 's'}."
    )


def _text(tokenizer: Any, ids: Iterable[int]) -> str:
    """Exactly what the ids write (a tokenizer's own `decode` may drop a first space)."""
    return str(tokenizer.vocabulary.decode(ids))


def _bytes(count: int) -> str:
    return f"{count:,} bytes" if count < 10_000 else f"{count / 1e3:,.0f} kB" if count < 1e7 else f"{count / 1e6:,.1f} MB"


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def _title(constraint: CompiledConstraint) -> str:
    """The source on one line."""
    return _cut(" ".join(constraint.source.split()) if "\n" in constraint.source else constraint.source)


def _cut(text: str, width: int = 300) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
