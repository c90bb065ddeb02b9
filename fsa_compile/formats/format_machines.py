"""From a tree of formats to a constraint."""

from __future__ import annotations

from typing import Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Request
from fsa_compile.compiler.machines import compile_dfa, compile_machine
from fsa_compile.errors import SchemaError
from fsa_compile.formats.framing import framed_machine
from fsa_compile.formats.text_automaton import text_automaton
from fsa_compile.formats.tree import Format, Json
from fsa_compile.json_schema import schema_machine
from fsa_compile.json_schema.bounded_depth import without_counters
from fsa_compile.json_schema.schema_options import SchemaOptions


def compile_format(root: Format, request: Request, options: SchemaOptions | None) -> CompiledConstraint:
    """The constraint of a tree of texts, special tokens and values.

    Args:
      options: how its schemas are read, and JSON is written.
    """
    if not request.is_plain:
        options = without_counters(options or SchemaOptions())
    limits, deadline = request.limits, request.deadline
    automaton = text_automaton(root, limits, deadline)
    if not automaton.calls and not automaton.specials:
        dfa = ByteDfa(automaton.table, automaton.byte_class.astype("uint8"), automaton.final, automaton.start)
        return compile_dfa(dfa, request)
    machines: list[ByteMachine] = []
    starts = []
    for node in automaton.schemas:
        if isinstance(node, Json):
            with schemas_at(node):
                machines.append(schema_machine(node.schema, options=options, limits=limits, deadline=deadline))
            starts.append(machines[-1].start)
        else:
            machines.append(node.machine)
            starts.append(node.start)
    return compile_machine(framed_machine(automaton, machines, deadline, starts), request)


class schemas_at:  # noqa: N801 (a context manager, used like a function)
    """Errors of a schema name its place in the request."""

    def __init__(self, node: Json) -> None:
        self._pointer = node.pointer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SchemaError):
            raise type(error)(error.what, pointer=self._pointer + error.pointer.removeprefix("#"), fix=error.fix) from None
