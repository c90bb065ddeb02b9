"""Tools as users give them: functions, descriptions as servers take them, names of built-in tools; and which may be called."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fsa_compile.call_syntax.syntax import CallSyntax
from fsa_compile.formats.request import FormatError, child, members, text
from fsa_compile.protocols.protocol import Builtin, Protocol
from fsa_compile.protocols.tool_schemas import enforced
from fsa_compile.python_types import TypeTextError
from fsa_compile.python_types.calls import shape_of_calls
from fsa_compile.python_types.json_values import read_json
from fsa_compile.python_types.shapes import TypeShape
from fsa_compile.python_types.to_json_schema import schema_of

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII).fullmatch
_NO_ARGUMENTS = {"type": "object", "properties": {}}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool that a turn may call.

    Attributes:
      name: as it is written.
      schema: JSON Schema of the arguments, an object.
      pointer: where it stands in the request, for errors.
      builtin: the form of a tool that the model knows from its training.
      function: what a call runs, or None.
      shape: of the function's arguments.
    """

    name: str
    schema: Mapping[str, Any]
    pointer: str
    builtin: Builtin | None = None
    function: Callable[..., Any] | None = None
    shape: TypeShape | None = None

    def read(self, arguments: str) -> dict[str, Any]:
        """The arguments of a JSON text: of a function, values of its parameters' types.

        Raises:
          TypeTextError: the text is not well formed, or these are no arguments of the function.
        """
        if self.shape is not None:
            return dict(read_json(self.shape, arguments).arguments)
        try:
            found = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise TypeTextError(f"the arguments are no JSON ({error})", place=self.name) from None
        return dict(found)


def tools_of(tools: Any, protocol: Protocol, strict: bool) -> dict[str, Tool]:
    """The tools of a request by name.

    Args:
      tools: functions, descriptions `{"type": "function", "function": {"name", "description", "parameters"}}` or the inner object
        alone, and names of the protocol's built-in tools.
      strict: whether objects take no other members than those that their schema names, unless it says otherwise.

    Raises:
      FormatError: one is no tool, or two have one name.
    """
    out: dict[str, Tool] = {}
    listed = [] if tools is None else tools
    if isinstance(listed, (str, bytes, Mapping)) or not isinstance(listed, Iterable):
        raise FormatError(f"the tools are one {type(tools).__name__}, not a list", pointer="#/tools", fix="Write tools=[...].")
    for number, given in enumerate(listed):
        tool = _tool(given, child("#/tools", number), protocol, strict)
        if tool.name in out:
            raise FormatError(f"two tools are called {tool.name!r}", pointer=tool.pointer, fix="Rename one of them.")
        if protocol.calls.arguments.is_call and tool.builtin is None and not _DOTTED(tool.name):
            what = f"{tool.name!r} cannot be called in Python, as the protocol {protocol.name!r} writes calls"
            raise FormatError(what, pointer=tool.pointer, fix="Rename it: letters, digits and '_', and dots between names.")
        out[tool.name] = tool
    return out


def _tool(given: Any, pointer: str, protocol: Protocol, strict: bool) -> Tool:
    if isinstance(given, str):
        builtin = protocol.calls.builtins.get(given)
        if builtin is None:
            known = ", ".join(protocol.calls.builtins) or "none"
            what = f"the protocol {protocol.name!r} has no built-in tool {given!r:.80}"
            raise FormatError(what, pointer=pointer, fix=f"It has: {known}. Pass tools of your own as functions.")
        return Tool(given, dict(builtin.parameters), pointer, builtin)
    if callable(given) and not isinstance(given, type):
        shape = shape_of_calls([given], "python", None, False)
        return Tool(given.__name__, schema_of(shape), pointer, function=given, shape=shape)
    return _described(given, pointer, strict)


def _described(given: Any, pointer: str, strict: bool) -> Tool:
    """A tool as a server takes it."""
    fields: Any = given
    if isinstance(given, Mapping) and "function" in given:
        outer = members(given, pointer, required=["function"], optional=["type"])
        if outer.get("type", "function") != "function":
            what = f"tools of type {outer['type']!r:.40} are not known"
            raise FormatError(what, pointer=child(pointer, "type"), fix='Use "function".')
        pointer, fields = child(pointer, "function"), outer["function"]
    known = members(fields, pointer, required=["name"], optional=["type", "description", "parameters", "strict", "response"])
    place, name = child(pointer, "name"), known["name"]
    if not _NAME(text(name, place)):
        fix = "Use at most 128 of letters, digits, '_', '-' and '.'."
        raise FormatError(f"{name!r:.80} is no name of a function", pointer=place, fix=fix)
    place = child(pointer, "parameters")
    parameters = known.get("parameters") or _NO_ARGUMENTS
    if not isinstance(parameters, Mapping):
        raise FormatError("parameters are a JSON Schema, an object", pointer=place)
    closed = strict and known.get("strict") is not False
    return Tool(name, enforced(parameters, closed), place)


def chosen(choice: Any, tools: dict[str, Tool]) -> tuple[str, dict[str, Tool]]:
    """"auto", "required" or "none", and the tools that may be called.

    Args:
      choice: one of these words, a name, a list of names, or `{"type": "function", "function": {"name": NAME}}`.
    """
    at = "#/tool_choice"
    if choice in ("auto", "none"):
        return (choice if tools else "none"), ({} if choice == "none" else tools)
    if not tools:
        raise FormatError("there are no tools to choose from", pointer=at, fix="Pass tools=[...].")
    if choice == "required":
        return "required", tools
    if isinstance(choice, Mapping):
        fields = members(choice, at, required=["type", "function"])
        place = child(at, "function")
        choice = members(fields["function"], place, required=["name"])["name"]
    names = [choice] if isinstance(choice, str) else choice
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        fix = 'It is "auto", "required", "none", the name of a tool, or a list of names.'
        raise FormatError(f"{choice!r:.60} is no choice of tools", pointer=at, fix=fix)
    for name in names:
        if name not in tools:
            raise FormatError(f"there is no tool called {name!r:.80}", pointer=at, fix=f"Tools are {', '.join(list(tools)[:8])}.")
    return "required", {name: tools[name] for name in names}


def syntax_of(tool: Tool, protocol: Protocol) -> CallSyntax:
    """How a tool's arguments are written."""
    return protocol.calls.arguments if tool.builtin is None else tool.builtin.arguments


def form_of(tool: Tool, protocol: Protocol) -> tuple[str, str, str]:
    """What stands before a tool's name, between name and arguments, and behind these."""
    form = protocol.calls if tool.builtin is None else tool.builtin
    return form.begin, form.middle, form.end
