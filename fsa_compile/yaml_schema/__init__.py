"""YAML texts of the values of a JSON Schema, in block or flow style, that every reader of YAML understands alike.

    constraint = compile_yaml_schema({"type": "object", "properties": {"age": {"type": "integer"}}}, tokenizer)

The schema is read as by `json_schema`, whose conventions on key order, additional keys and numbers hold here too. The layout:

* Block style: `key: value`, or `key:` and below it a list or a mapping; mappings two columns to the right of their key, lists two
  columns to the right or at the column of their key; `- ` before each item, whose list or mapping begins on the same line.
  Empty collections are `[]` and `{}`. Collections beyond `YamlOptions.max_indent` are in flow style.
* Flow style: `{key: value, other: [1, 2]}`, always with a space after `:` and `,`.
* Scalars: `null`, `true`, `false`, numbers that versions 1.1 and 1.2 read alike; strings plain where no reader takes them for
  something else, or in single quotes, or in double quotes. Keys likewise.
* One line break may stand at the end. No comments, anchors, tags, block scalars, or lines that are folded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from fsa_compile.arrays.recursion import deep_recursion
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Canonical, Request
from fsa_compile.compiler.cache import CompileCache
from fsa_compile.compiler.machines import compile_machine
from fsa_compile.errors import ConstraintError, flat_enough, is_word
from fsa_compile.inputs.guard import guarded
from fsa_compile.inputs.json_input import json_text
from fsa_compile.json_schema import with_bounds
from fsa_compile.json_schema.container_base import Attempts, SchemaParts
from fsa_compile.json_schema.derivatives import Derivatives
from fsa_compile.json_schema.documents import Document, document_of, read_schema
from fsa_compile.json_schema.machine_builder import Controls
from fsa_compile.json_schema.schema_pushdown import Aims, Reach
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.yaml_schema.yaml_containers import Codes, YamlFrames
from fsa_compile.yaml_schema.yaml_options import DEFAULT_LAYOUT, Style, YamlOptions
from fsa_compile.yaml_schema.yaml_pushdown import byte_machine
from fsa_compile.yaml_schema.yaml_scalars import Texts, YamlScalars
from fsa_compile.yaml_schema.yaml_strings import YamlSpeller

if TYPE_CHECKING:
    from fsa_compile.filters import Filter

FLAT_STATES = 1_024
"""Schemas without recursion and counters are compiled without a stack up to this size."""
_SOURCE = 200
"""Characters of the schema's text that are kept in an artifact, for people."""


@guarded
def compile_yaml_schema(
    schema: Any,
    tokenizer: Any,
    *,
    style: Style = "block",
    options: YamlOptions | None = None,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
    cache: CompileCache | None = None,
) -> CompiledConstraint:
    """Compiles a JSON Schema to a constraint on YAML texts, over a tokenizer's vocabulary.

    Args:
      schema: a schema as decoded JSON, or its text.
      tokenizer: from `load_tokenizer`, a `Vocabulary`, or anything `load_tokenizer` takes.
      style: "block": lists and mappings by indentation; "flow": in brackets, on one line.
      options: the layout, and how the schema is read.
      canonical, filters, starts_text, max_depth: see `compile_language` and `compile_grammar`; schemas that contain
        themselves, or leave a place open for any value, need `max_depth`.
      limits: bounds of the compilation.
      cache: where artifacts are kept on disk; None: nowhere.

    Returns:
      The artifact. Every accepted text is one YAML document that `yaml.safe_load`, and readers of YAML 1.2, read as a value that
      is valid under the schema; every valid value has such a text, but for the narrowings of `json_schema` and of `YamlOptions`.

    Raises:
      SchemaError: the schema is not well formed (or one of the subclasses: it is refused, or has no values).
      ConstraintError: the vocabulary cannot spell it, or a limit is exceeded.

    Examples:
      >>> from fsa_compile.vocabulary.vocabulary import Vocabulary
      >>> vocabulary = Vocabulary.from_tokens([b"- ", b"yes", b"'yes'", b""], stop_ids=[3])
      >>> schema = {"type": "array", "items": {"const": "yes"}, "minItems": 1}
      >>> walk = compile_yaml_schema(schema, vocabulary).walk()
      >>> walk.advance(0)
      >>> walk.allowed().tolist()
      [False, False, True, False]
    """
    options, limits = _checked(options), limits or CompileLimits()
    given, schema = schema, read_schema(schema, limits)
    text = given if isinstance(given, str) else json_text(schema)
    request = Request.of(
        tokenizer, text[:_SOURCE], canonical=canonical, filters=filters, starts_text=starts_text, max_depth=max_depth,
        limits=limits,
    )  # fmt: skip

    def make(apart: bool) -> CompiledConstraint:
        machine = yaml_machine(
            schema, style=style, options=options, limits=limits, deadline=request.deadline, outcomes_apart=apart
        )
        return compile_machine(machine, request, flat_states=FLAT_STATES)

    what = {"YAML of JSON Schema": text, "style": style, "options": dataclasses.asdict(options)}
    return request.cached(cache, what, lambda: with_bounds(make))


@guarded
def yaml_machine(
    schema: Any,
    *,
    style: Style = "block",
    options: YamlOptions | None = None,
    limits: CompileLimits | None = None,
    deadline: Deadline | None = None,
    outcomes_apart: bool = False,
) -> ByteMachine:
    """The byte machine of a schema's YAML texts; see `compile_yaml_schema`, and `schema_machine` for the last argument.

    Raises:
      SchemaError: the schema is not well formed.
      UnsupportedSchemaError: it asks for what is not enforced exactly.
      UnsatisfiableSchemaError: no value satisfies it.
      LimitError: a limit of `options.schema` or `limits` is exceeded.
    """
    if not is_word(style, ("block", "flow")):
        raise ConstraintError(f"unknown style {style!r}", fix='Write style="block" or style="flow".')
    options, limits = _checked(options), limits or CompileLimits()
    deadline = deadline or Deadline(limits)
    with deep_recursion():
        document = document_of(read_schema(schema, limits), options.schema)
    attempts = Attempts(document, options.schema, apart=outcomes_apart)
    with deep_recursion(), flat_enough():
        while True:
            build = _Build(document, style, options, limits, deadline, attempts)
            if build.is_last:
                return build.machine()


def _checked(options: YamlOptions | None) -> YamlOptions:
    """The options that were given, or the defaults."""
    if options is not None and not isinstance(options, YamlOptions):
        what = f"options must be YamlOptions, not {type(options).__name__}"
        raise ConstraintError(what, fix="Write options=YamlOptions(schema=SchemaOptions(...)), for example.")
    return options or DEFAULT_LAYOUT


class _Build:
    """One attempt: everything from the schema to its controls, some states being known to be dead."""

    def __init__(
        self,
        document: Document,
        style: Style,
        options: YamlOptions,
        limits: CompileLimits,
        deadline: Deadline,
        attempts: Attempts,
    ) -> None:
        self._apart = attempts.values.apart
        schema = options.schema
        decisions, values, keywords = attempts.decisions, attempts.values, attempts.keywords
        self._controls = controls = Controls(schema.max_controls, deadline)
        speller = YamlSpeller(controls)
        scalars = YamlScalars(controls, speller, decisions, keywords, schema, limits)
        code = Codes()
        texts = Texts(controls, speller, scalars, decisions, options, code)
        self._derivatives = derivatives = Derivatives(decisions, values, keywords, schema, scalars.matches)
        self._undecided = scalars.undecided
        frames = YamlFrames(SchemaParts(controls, speller, scalars, attempts, derivatives, schema), texts, options, code)
        self._call, self._ends = frames.root(keywords.value(document.root), style == "block")
        controls.finish()
        self._reach = Reach(controls, self._ends[-1])
        self.is_last = attempts.are_over(self._reach.poisoned, chain(frames.state_keys.items(), frames.member_keys))

    def machine(self) -> ByteMachine:
        if self._call is None or not self._reach.outcomes[self._call[1]]:
            raise self._derivatives.nothing("no value satisfies the schema", self._undecided())
        symbol, entry = self._call
        if self._apart:
            symbol, entry = Aims(self._controls, self._reach).called(symbol, entry)
            self._reach = Reach(self._controls, self._ends[-1])
        return byte_machine(self._controls, self._reach, entry, symbol, self._ends)


__all__ = ["YamlOptions", "compile_yaml_schema", "yaml_machine"]
