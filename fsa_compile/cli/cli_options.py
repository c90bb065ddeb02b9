"""Options that several commands of `fsa-compile` share, and a parser that lets them stand between other arguments."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from fsa_compile.errors import MissingPackageError
from fsa_compile.limits import CompileLimits


class Intermixed(argparse.ArgumentParser):
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


def compile_options(command: argparse.ArgumentParser, *, tokenizer_required: bool) -> None:
    """Tokenizer, form of the output, and how constraints are compiled that are not compiled yet."""
    command.add_argument(
        "--tokenizer", required=tokenizer_required, metavar="PATH",
        help="SentencePiece .model, tiktoken ranks, tokenizer.json, GPT-2's pair of files in a folder; or 'small'",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--flags", default="", metavar="LETTERS", help="pattern flags as in (?…): a i m s x")
    grammar = command.add_argument_group("grammars")
    grammar.add_argument("--syntax", choices=("lark", "gbnf"), help="how it is written (default: told by its text)")
    grammar.add_argument("--start", metavar="RULE", help="start rule (default: start, or root in GBNF)")
    modes = ("longest", "lark", "characters")
    grammar.add_argument("--mode", choices=modes, help="lexical mode (default: longest; GBNF: characters)")
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


def schema_options(command: argparse.ArgumentParser) -> None:
    """How JSON is written and schemas are read."""
    schema = command.add_argument_group("JSON Schema")
    explained = {"whitespace": "white space in the text", "draft": "version of JSON Schema"}
    try:
        from fsa_compile.json_schema.schema_options import SchemaOptions
    except MissingPackageError:  # which compiling says; the other commands do without
        for name in explained:
            schema.add_argument(f"--{name}")
        return
    for name, meaning in explained.items():
        choices = SchemaOptions.choices(name)
        default = getattr(SchemaOptions(), name)
        schema.add_argument(f"--{name}", choices=choices, default=default, help=f"{meaning} (default: {default})")
    schema.add_argument("--closed", action="store_true", help="objects hold the keys that their schemas name, and no others")
