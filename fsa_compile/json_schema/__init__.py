"""JSON Schema to a byte machine that accepts exactly the JSON texts of its values, written in one canonical way.

    machine = schema_machine({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]})
    machine.accepts(b'{"age": 3}')

Every keyword of drafts 3 to 2020-12 is enforced exactly or the schema is refused with the JSON pointer of the place.
Conventions:

* Objects list declared keys in their declared order, then additional keys. Keys named only by `required` or dependencies
  count as declared, after those of `properties`. Where `required` lists keys in another order than `properties`, it may also
  be the keys of `required` in that order, then the others; a key that others depend on may come before or after them. Objects
  are open unless the schema closes them.
* With `key_order="any"` keys come in every order, declared and additional ones mixed, by a set of the declared keys that have
  come in every object's frame (256 at most). The machine is linear in the number of keys, but for keys on which a condition other
  than plain ones depends: `anyOf` branches that require different keys, `oneOf`, `not`, a count next to them.
* A declared key comes at most once, in every spelling. Additional keys are not remembered, so that one of them may come
  twice, and counts each time.
* `pattern` is a search in the decoded string in the dialect of ECMA-262; lengths count code points.
* Numbers are exact decimals; integers are written plainly unless `SchemaOptions.integers` says otherwise. Which spellings with
  an exponent are decided is said in `numbers`.
* White space, escapes, drafts and limits: see `SchemaOptions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fsa_compile.arrays.garbage import collected_rarely
from fsa_compile.arrays.recursion import deep_recursion
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Canonical, Request
from fsa_compile.compiler.machines import compile_dfa, compile_machine
from fsa_compile.errors import (
    ConstraintError,
    LimitError,
    NoBoundError,
    SchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
    flat_enough,
)
from fsa_compile.inputs.guard import guarded
from fsa_compile.inputs.json_input import json_text
from fsa_compile.json_schema.container_base import Attempts, SchemaParts
from fsa_compile.json_schema.containers import Frames
from fsa_compile.json_schema.derivatives import Derivatives
from fsa_compile.json_schema.documents import Document, document_of, enforceable, open_places, read_schema
from fsa_compile.json_schema.machine_builder import Controls
from fsa_compile.json_schema.scalars import Scalars
from fsa_compile.json_schema.schema_options import SchemaOptions, checked_options
from fsa_compile.json_schema.schema_pushdown import Aims, Reach, byte_machine
from fsa_compile.json_schema.string_spelling import Speller
from fsa_compile.limits import CompileLimits, Deadline

if TYPE_CHECKING:
    from fsa_compile.automata.byte_dfa import ByteDfa
    from fsa_compile.compiler.cache import CompileCache
    from fsa_compile.filters import Filter

FLAT_STATES = 512
"""Schemas without recursion and counters are compiled without a stack up to this size; larger ones walk faster with one."""
BOUND_DEPTH = "Set SchemaOptions.max_object_depth and max_array_depth: values that nest deeper are left out then."
"""What to do about schemas whose values nest without bound, for canonical constraints."""
_MOST_APART = 60_000
"""Most states of a byte machine whose frames are shared less for the sake of a bound."""
_SOURCE = 200
"""Characters of the schema's text that are kept in an artifact, for people."""


@guarded
def compile_json_schema(
    schema: Any,
    tokenizer: Any,
    *,
    options: SchemaOptions | None = None,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    limits: CompileLimits | None = None,
    cache: CompileCache | None = None,
) -> CompiledConstraint:
    """Compiles a JSON Schema over a tokenizer's vocabulary.

    Args:
      schema: a schema as decoded JSON, or its text.
      tokenizer: from `load_tokenizer`, a `Vocabulary`, or anything `load_tokenizer` takes.
      options: how the schema is read and how values are written.
      canonical: see `compile_language`. Counts and stacks are written out; schemas that contain themselves, or leave a place open
        for any value, need bounds on depth (`SchemaOptions.max_object_depth` and `max_array_depth`).
      starts_text: see `compile_language`.
      filters: see `compile_language`; of the JSON text as it is written. Counts are written out; for filters over tokens, which
        need the same bounds, stacks too.
      limits: bounds of the compilation.
      cache: where artifacts are kept on disk; None: nowhere.

    Returns:
      The artifact: a text is accepted exactly when it is a JSON value of the schema, written as the options say.

    Raises:
      SchemaError: the schema is not well formed (or one of the subclasses: it is refused, or has no values).
      ConstraintError: the vocabulary cannot spell it, or a limit is exceeded.

    Examples:
      >>> from fsa_compile.vocabulary.vocabulary import Vocabulary
      >>> vocabulary = Vocabulary.from_tokens([b"true", b"t", b"null", b""], stop_ids=[3])
      >>> compile_json_schema({"type": "boolean"}, vocabulary).walk().allowed().tolist()
      [True, False, False, False]
    """
    options, limits = checked_options(options), limits or CompileLimits()
    given, schema = schema, read_schema(schema, limits)
    text = given if isinstance(given, str) else json_text(schema)
    request = Request.of(tokenizer, text[:_SOURCE], canonical=canonical, filters=filters, starts_text=starts_text, limits=limits)
    read = options if request.is_plain and not options.bounds_depth else _without_counters(options)

    def make(apart: bool) -> CompiledConstraint:
        def build(kept: Any) -> tuple[ByteMachine, Document]:
            own = dataclasses.replace(read, max_controls=min(read.max_controls, _MOST_APART)) if apart else read
            return _machine_of(document := document_of(kept, options), own, limits, request.deadline, apart), document

        (machine, document), left_out = enforceable(schema, options.unenforced, build)
        if options.bounds_depth:
            made = compile_dfa(_truncated(machine, options, request), request)
        else:
            made = compile_machine(machine, request, way_out=BOUND_DEPTH, flat_states=FLAT_STATES)
        whole = document_of(schema, options) if left_out else document
        more = {"unenforced": left_out, "open_objects": open_places(whole, options)}
        return dataclasses.replace(made, extra=made.extra | {name: places for name, places in more.items() if places})

    return request.cached(cache, {"JSON Schema": text, "options": dict(vars(options))}, lambda: with_bounds(make))


def _without_counters(options: SchemaOptions) -> SchemaOptions:
    from fsa_compile.json_schema.bounded_depth import without_counters  # most schemas do without

    return without_counters(options)


def _truncated(machine: ByteMachine, options: SchemaOptions, request: Request) -> ByteDfa:
    from fsa_compile.json_schema.bounded_depth import depths_of, truncated  # most schemas do without

    return truncated(machine, depths_of(options), request.limits, request.deadline)


def with_bounds(make: Callable[[bool], CompiledConstraint]) -> CompiledConstraint:
    """A constraint that knows a bound on the rest of every text; `make` is told whether frames with other outcomes stay apart.

    Where that takes more than the limits allow, the constraint is one without a bound.
    """
    found: CompiledConstraint | NoBoundError
    try:
        found = make(False)
        if found.has_bounds:
            return found
    except NoBoundError as error:
        found = error
    try:
        other = make(True)
        if other.has_bounds or isinstance(found, NoBoundError):
            return other
    except (LimitError, NoBoundError):
        pass
    if isinstance(found, NoBoundError):
        raise found
    return found


@guarded
def schema_machine(
    schema: Any,
    *,
    options: SchemaOptions | None = None,
    limits: CompileLimits | None = None,
    deadline: Deadline | None = None,
    outcomes_apart: bool = False,
) -> ByteMachine:
    """The byte machine of a schema's JSON texts.

    Args:
      schema: a schema as decoded JSON, or its text.
      options: how it is read and how values are written.
      limits: bounds of the compilation; patterns keep to them too.
      outcomes_apart: whether frames are shared less, which some schemas need for a bound on the rest of every text.

    Raises:
      SchemaError: the schema is not well formed.
      UnsupportedSchemaError: it asks for what is not enforced exactly.
      UnsatisfiableSchemaError: no value satisfies it.
    """
    options, limits = checked_options(options), limits or CompileLimits()
    deadline = deadline or Deadline(limits)
    if options.bounds_depth:
        what = "a machine with a stack has no bounds on depth"
        raise ConstraintError(what, fix="Use compile_json_schema, or leave max_object_depth and max_array_depth out.")
    return _machine_of(document_of(read_schema(schema, limits), options), options, limits, deadline, outcomes_apart)


@collected_rarely
def _machine_of(
    document: Document, options: SchemaOptions, limits: CompileLimits, deadline: Deadline, apart: bool
) -> ByteMachine:
    """The byte machine of a document that was read; see `schema_machine`."""
    attempts = Attempts(document, options, apart=apart)
    with deep_recursion(), flat_enough():
        try:
            while True:
                build = _Build(document, options, limits, deadline, attempts)
                try:
                    if build.is_last:
                        return build.machine()
                finally:
                    build.release()
        finally:
            attempts.release()


class _Build:
    """One attempt: everything from the schema to its controls, some states being known to be dead."""

    def __init__(
        self,
        document: Document,
        options: SchemaOptions,
        limits: CompileLimits,
        deadline: Deadline,
        attempts: Attempts,
    ) -> None:
        self._document, self._apart = document, attempts.values.apart
        decisions, values, keywords = attempts.decisions, attempts.values, attempts.keywords
        self._controls = controls = Controls(options.max_controls, deadline)
        speller = Speller(controls)
        scalars = Scalars(controls, speller, decisions, keywords, options, limits)
        self._derivatives = derivatives = Derivatives(decisions, values, keywords, options, scalars.matches)
        self._undecided = scalars.undecided
        frames = Frames(SchemaParts(controls, speller, scalars, attempts, derivatives, options))
        self._parts = (controls, speller, scalars, derivatives, frames)
        self._end = controls.new()
        try:
            self._call = frames.call(keywords.value(document.root), self._end, "value")
            controls.finish()
        except BaseException:
            self.release()
            raise
        self._reach = Reach(controls, self._end)
        self.is_last = attempts.are_over(self._reach.poisoned, frames.state_keys.items())

    def machine(self) -> ByteMachine:
        if self._call is None or not self._reach.outcomes[self._call[1]]:
            raise self._derivatives.nothing("no JSON value satisfies the schema", self._undecided())
        symbol, entry = self._call
        if self._apart:
            symbol, entry = Aims(self._controls, self._reach).called(symbol, entry)
            self._reach = Reach(self._controls, self._end)
        return byte_machine(self._controls, self._reach, entry, symbol, self._end)

    def release(self) -> None:
        """Empties the parts. Functions among them know each other, and Python's cycle collector would have to find that out from
        hundreds of thousands of tuples; so these go at once."""
        for part in self._parts:
            vars(part).clear()


__all__ = [
    "SchemaError",
    "SchemaOptions",
    "UnsatisfiableSchemaError",
    "UnsupportedSchemaError",
    "compile_json_schema",
    "schema_machine",
]
