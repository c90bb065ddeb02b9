"""The byte machine of the arguments of many tools, which share the controls of what they have in common."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fsa_compile.arrays.garbage import collected_rarely
from fsa_compile.arrays.recursion import deep_recursion
from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.automata.labelled_dfa import TextDfa, from_letters
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.call_syntax.call_frames import CallFrames, MarkedFrames, PythonFrames, is_apart
from fsa_compile.call_syntax.call_scalars import CallScalars, MarkedScalars, OwnControls, PythonScalars, TextMarkedScalars
from fsa_compile.call_syntax.call_spelling import PythonSpeller, RawSpeller
from fsa_compile.call_syntax.syntax import MARK, CallSyntax
from fsa_compile.errors import ConstraintError, SchemaError, flat_enough
from fsa_compile.inputs.json_input import json_text
from fsa_compile.json_schema.atoms import OBJECT
from fsa_compile.json_schema.container_base import Attempts, SchemaParts
from fsa_compile.json_schema.containers import Frames
from fsa_compile.json_schema.derivatives import Derivatives
from fsa_compile.json_schema.documents import Document, document_of, read_schema
from fsa_compile.json_schema.machine_builder import Controls
from fsa_compile.json_schema.scalars import Scalars
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.json_schema.schema_pushdown import Reach, byte_machines
from fsa_compile.json_schema.string_spelling import Speller
from fsa_compile.languages.group_syntax import parse_with_groups
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.regex_automaton import build_automaton

_QUOTES = b"'\""
_BYTES = 200
"""Of a control or an entry, beside its row in a table."""


@dataclasses.dataclass(frozen=True, eq=False)
class Arguments:
    """A machine for the arguments of several tools.

    Attributes:
      machine: of all of them; its `start` is that of the first.
      starts: its controls at which the arguments of each begin.
    """

    machine: ByteMachine
    starts: tuple[int, ...]


@collected_rarely
def arguments_machine(
    schemas: Mapping[str, Any],
    syntax: CallSyntax,
    *,
    marks: Mapping[str, int],
    without: Sequence[str] = (),
    options: SchemaOptions,
    limits: CompileLimits,
    deadline: Deadline,
) -> Arguments:
    """The machine of the arguments that keep to some schemas.

    Args:
      schemas: JSON Schema of an object, by the JSON pointer of its place, for errors.
      marks: token ids of the marks that are special tokens; others are text.
      without: texts that no string holds.
      options: how the schemas are read, and JSON is written.

    Raises:
      SchemaError: a schema is not well formed, refused, or has no values; the pointer leads to its place.
      ConstraintError: the syntax has a mark that is text, and can be read where no string begins or ends.
    """
    with _Pointers(list(schemas)):
        joined = _joined(schemas, limits)
        key = json_text(joined), syntax, tuple(marks.items()), tuple(without), options, limits
        return _KEPT.get(key, lambda: _built(joined, syntax, marks, tuple(without), options, limits, deadline))


def _built(
    joined: dict[str, Any], syntax: CallSyntax, marks: Mapping[str, int], without: tuple[str, ...], options: SchemaOptions,
    limits: CompileLimits, deadline: Deadline,
) -> Arguments:  # fmt: skip
    special = syntax.mark in marks
    if syntax.style == "marked" and not special and not is_apart(syntax.mark):
        fix = """Let it begin with one of < > | ", as '<|"|>' does, or give a vocabulary in which it is a special token."""
        raise ConstraintError(f"the mark {syntax.mark!r:.80} is text, and begins as keys, brackets or literals may", fix=fix)
    imitations = _texts_without(without) if without else None
    if syntax.style == "marked":
        options = dataclasses.replace(options, whitespace="compact")
    document = document_of(joined, options, of_defs=True)
    attempts = Attempts(document, options)
    with deep_recursion(), flat_enough():
        try:
            while True:
                build = _Build(document, syntax, special, imitations, options, limits, deadline, attempts)
                try:
                    if build.is_last:
                        machine, starts = build.result()
                        break
                finally:
                    build.release()
        finally:
            attempts.release()
    if special:
        machine = _with_mark(machine, marks[syntax.mark])
    return Arguments(machine, tuple(starts))


def _size(made: Arguments) -> int:
    machine = made.machine
    return machine.action.nbytes + machine.ret.nbytes + _BYTES * (machine.num_controls + len(machine.entry_next))


_KEPT: SizedMemo[Arguments] = SizedMemo(64 << 20, _size, largest=32 << 20)
"""The machines of the tools that were compiled last: requests of one conversation have the same tools."""


@functools.lru_cache(maxsize=16)
def _texts_without(texts: tuple[str, ...]) -> TextDfa:
    """The texts in which none of some others occurs."""
    limits = CompileLimits()
    pattern = f"(?s:(?:(?!{'|'.join(map(re.escape, texts))}).)*)"
    return from_letters(build_automaton(parse_with_groups(pattern, 0, limits), limits, Deadline(limits)))


def _joined(schemas: Mapping[str, Any], limits: CompileLimits) -> dict[str, Any]:
    """One document of all schemas."""
    root: dict[str, Any] = {"$defs": {}}
    for number, schema in enumerate(schemas.values()):
        schema = read_schema(schema, limits)
        if isinstance(schema, bool):
            schema = {} if schema else {"not": {}}
        draft = schema.get("$schema")
        if draft is not None and root.setdefault("$schema", draft) != draft:
            fix = "Leave $schema out, or say SchemaOptions(draft=...)."
            raise SchemaError("the tools' schemas are of different drafts", pointer=f"#/$defs/{number}/$schema", fix=fix)
        root["$defs"][str(number)] = schema
    return root


class _Pointers:
    """Errors name the place of the schema that was given."""

    def __init__(self, places: list[str]) -> None:
        self._places = places

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SchemaError):
            number, _, rest = error.pointer.removeprefix("#/$defs/").partition("/")
            known = error.pointer.startswith("#/$defs/") and number.isdecimal() and int(number) < len(self._places)
            pointer = self._places[int(number)] if known else self._places[0] if len(self._places) == 1 else "#/tools"
            if known and rest:
                pointer += f"/{rest}"
            raise type(error)(error.what, pointer=pointer, fix=error.fix) from None


class _Build:
    """One attempt: everything from the schemas to their controls, some states being known to be dead."""

    def __init__(
        self, document: Document, syntax: CallSyntax, special: bool, without: TextDfa | None, options: SchemaOptions,
        limits: CompileLimits, deadline: Deadline, attempts: Attempts,
    ) -> None:  # fmt: skip
        decisions, values, keywords = attempts.decisions, attempts.values, attempts.keywords
        self._controls = controls = Controls(options.max_controls, deadline)

        def scalars_of(kind: Any, speller: Speller, pool: Any = controls, *more: Any) -> Any:
            return kind(*more, without, pool, speller, decisions, keywords, options, limits)

        def parts_of(speller: Speller, scalars: Scalars) -> SchemaParts:
            derivatives = Derivatives(decisions, values, keywords, options, scalars.matches)
            return SchemaParts(controls, speller, scalars, attempts, derivatives, options)

        frames: Frames
        if syntax.style in ("json", "keywords"):
            speller = Speller(controls)
            parts = parts_of(speller, scalars_of(CallScalars, speller))
            frames = CallFrames(parts) if syntax.is_call else Frames(parts)
        elif syntax.style == "python":
            pools = [OwnControls(controls, quote) for quote in _QUOTES]
            strings = [
                (speller, scalars_of(PythonScalars, speller, pool))
                for pool, speller in ((pool, PythonSpeller(controls, quote)) for pool, quote in zip(pools, _QUOTES))
            ]
            parts = parts_of(*strings[0])
            frames = PythonFrames(parts, strings)
        else:
            raw = RawSpeller(controls, MARK)
            marked = scalars_of(MarkedScalars, raw) if special else scalars_of(TextMarkedScalars, raw, controls, syntax.mark)
            parts = parts_of(raw, marked)
            frames = MarkedFrames(parts, marked)
        self._parts = (*(part for part in parts[:-1] if part is not attempts), frames)
        self._derivatives, self._scalars = parts.derivatives, parts.scalars
        self._end = controls.new()
        self._symbol = controls.symbol(((1, self._end),))
        try:
            self._entries = []
            for schema in document.roots:
                value = keywords.value(schema)
                value = value._replace(formulas=tuple(f if k == OBJECT else 0 for k, f in enumerate(value.formulas)))
                self._entries.append(frames.arguments(value) if isinstance(frames, CallFrames) else frames.entry(value))
            controls.finish()
        except BaseException:
            self.release()
            raise
        self._reach = Reach(controls, self._end)
        self.is_last = attempts.are_over(self._reach.poisoned, frames.state_keys.items())

    def result(self) -> tuple[ByteMachine, list[int]]:
        """The machine, and where each tool's arguments begin."""
        for number, entry in enumerate(self._entries):
            if not entry or not self._reach.outcomes[entry]:
                undecided = self._scalars.undecided()
                raise self._derivatives.nothing("no arguments satisfy the schema", undecided, f"#/$defs/{number}")
        return byte_machines(self._controls, self._reach, self._entries, self._symbol, self._end)

    def release(self) -> None:
        """Empties the parts, which know each other, for the sake of Python's cycle collector."""
        for part in self._parts:
            vars(part).clear()


def _with_mark(machine: ByteMachine, token: int) -> ByteMachine:
    """A machine that reads a special token where it read the byte that stood for it."""
    kinds = machine.byte_class
    spare = machine.action.shape[1]
    action = np.concatenate((machine.action, np.zeros((machine.num_controls, 1), np.int32)), axis=1)
    byte_class = np.append(kinds, kinds[MARK]).astype(np.int32)
    byte_class[MARK] = spare
    return dataclasses.replace(machine, byte_class=byte_class, action=action, specials=(token,))
