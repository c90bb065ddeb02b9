"""What the arguments of `fsa-compile` name: tokenizers, texts, ids, and constraints, compiled on the spot where they are not."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.errors import ConstraintError
from fsa_compile.limits import CompileLimits

if TYPE_CHECKING:
    from fsa_compile.json_schema import SchemaOptions

_FLAGS = "aimsx"
_LIBRARY = "library:"


def constraint_of(args: argparse.Namespace) -> tuple[CompiledConstraint, Any]:
    """The constraint an argument names, and the tokenizer if one is given."""
    path = Path(args.constraint)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a pattern may be too long for a file name
        is_file = False
    if not is_file and path.suffix == ".npz":
        raise ConstraintError("there is no such constraint file", where=args.constraint, fix="Check the path.")
    tokenizer = None if args.tokenizer is None else tokenizer_of(args)
    is_grammar = args.constraint.startswith(_LIBRARY) or (is_file and path.suffix in (".lark", ".gbnf"))
    if is_file and not is_grammar:
        return CompiledConstraint.load(path, tokenizer), tokenizer
    if tokenizer is None:
        raise ConstraintError(
            f"a {'grammar' if is_grammar else 'pattern'} can only be compiled for a tokenizer", where=f"  {args.constraint}",
            fix="Give --tokenizer PATH (or, if a file was meant, check its path).",
        )  # fmt: skip
    return (from_grammar if is_grammar else from_pattern)(args.constraint, tokenizer, args), tokenizer


def from_pattern(pattern: str, tokenizer: Any, args: argparse.Namespace) -> CompiledConstraint:
    """A constraint of a pattern and `--flags`."""
    from fsa_compile.compiler.entry_points import compile_regex

    flags = 0
    for letter in args.flags:
        if letter not in _FLAGS:
            raise ConstraintError(f"{letter!r} is no pattern flag", where=f"--flags {args.flags}", fix="Use letters of 'aimsx'.")
        flags |= int(getattr(re, letter.upper()))
    return compile_regex(pattern, tokenizer, flags=flags, canonical=args.canonical, **narrowing(args), limits=limits_of(args))


def from_grammar(name: str, tokenizer: Any, args: argparse.Namespace) -> CompiledConstraint:
    """A constraint of a grammar's file, or of library:NAME; warnings go to standard error."""
    from fsa_compile.formats.grammar_constraints import compile_grammar
    from fsa_compile.grammar.front.modules import read_grammar

    given = {option: value for option in ("syntax", "start", "mode", "stacks") if (value := getattr(args, option)) is not None}
    if name.startswith(_LIBRARY):
        from fsa_compile import library

        name = name.removeprefix(_LIBRARY)
        text, given = library.grammar_text(name), library.options(name) | given
    else:
        text = read_grammar(name)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        constraint = compile_grammar(
            text, tokenizer, **given, canonical=args.canonical, **narrowing(args), max_depth=args.canonical_depth,
            limits=limits_of(args),
        )
    for warning in found:
        print(f"fsa-compile: warning: {warning.message}", file=sys.stderr)
    return constraint


def from_schema(path: Path, tokenizer: Any, args: argparse.Namespace) -> CompiledConstraint:
    """A constraint of a JSON Schema's file."""
    from fsa_compile.json_schema import compile_json_schema

    depth = args.canonical_depth
    options = written(args, max_object_depth=depth, max_array_depth=depth)
    text = path.read_text(encoding="utf-8-sig")
    how = {"canonical": args.canonical, **narrowing(args)}
    return compile_json_schema(text, tokenizer, options=options, **how, limits=limits_of(args))


def written(args: argparse.Namespace, **more: Any) -> SchemaOptions:
    """How schemas are read and JSON is written."""
    from fsa_compile.json_schema import SchemaOptions

    return SchemaOptions(whitespace=args.whitespace, draft=args.draft, additional_properties=not args.closed, **more)


def narrowing(args: argparse.Namespace) -> dict[str, Any]:
    """Filters, and whether the output starts a text."""
    if not args.filter and not args.starts_text:
        return {}
    from fsa_compile.filters.named import named_filter

    return {"filters": [named_filter(text) for text in args.filter], "starts_text": args.starts_text}


def limits_of(args: argparse.Namespace) -> CompileLimits:
    """The limits that the options give."""
    return CompileLimits(**{field.name: getattr(args, field.name) for field in dataclasses.fields(CompileLimits)})


def tokenizer_of(args: argparse.Namespace) -> Any:
    """The tokenizer that `--tokenizer` names; `small` is that of the model that comes with the package, which is not imported."""
    from fsa_compile.tokenizers import load_tokenizer

    if args.tokenizer == "small" and not Path("small").exists() and (found := importlib.util.find_spec("models")) is not None:
        for folder in found.submodule_search_locations or ():
            if (path := Path(folder) / "small" / "tokenizer.model").is_file():
                return load_tokenizer(path)
    return load_tokenizer(args.tokenizer)


def lines_of(path: Path) -> list[str]:
    """Lines of a UTF-8 file; only the line break ends a line, and an empty last line is none."""
    text = path.read_text(encoding="utf-8-sig")
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_ids(text: str) -> list[int]:
    """Ids as in 12,7,1."""
    try:
        return [int(part) for part in re.split(r"[\s,]+", text.strip("[] \t\n")) if part]
    except ValueError as error:
        raise ConstraintError("the ids are not whole numbers", where=f"--ids {text}", fix="Write --ids 12,7,1.") from error
