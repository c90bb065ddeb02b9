"""`compile_response_format`: what a client of a chat server asks for, as a constraint on the answer.

Read are OpenAI's `response_format`, `tools`, `tool_choice` and `parallel_tool_calls`, and structural tags of vLLM, SGLang and
XGrammar. Fields that are not known are refused, since a field that is ignored is a constraint that is not kept.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.compiler.arguments import Canonical, Request
from fsa_compile.errors import ConstraintError, named_fields
from fsa_compile.formats.format_machines import compile_format, schemas_at
from fsa_compile.formats.request import FormatError, child, elements, flag, members, text
from fsa_compile.formats.tree import Format, FreeText, Json, OneOf, Parts, Text, separated
from fsa_compile.inputs.guard import guarded
from fsa_compile.inputs.json_input import check_json, json_text
from fsa_compile.interop.structural_tags import Tag, structural_tag, triggered
from fsa_compile.json_schema import SchemaOptions, compile_json_schema
from fsa_compile.limits import CompileLimits

if TYPE_CHECKING:
    from fsa_compile.filters import Filter

_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolTags:
    """How a model writes a tool call: `begin{"name": NAME, "arguments": ARGUMENTS}end`.

    The default is the convention of Hermes and Qwen. What a model was trained on stands in its chat template.

    Attributes:
      begin, end: texts around a call.
      trigger: beginning of `begin` after which, in free text, a call must follow; None: `begin` without white space at its end.
      name_key, arguments_key: keys of the call's object.
      separator: text between calls where nothing but calls is written.
    """

    begin: str = "<tool_call>\n"
    end: str = "\n</tool_call>"
    trigger: str | None = None
    name_key: str = "name"
    arguments_key: str = "arguments"
    separator: str = "\n"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str) and not (value is None and field.name == "trigger"):
                raise ConstraintError(f"ToolTags.{field.name} must be a str, not {value!r:.40}")
            text(value or "", f"ToolTags.{field.name}")
        if not self.begin or self.trigger == "" or not self.begin.startswith(self.trigger or ""):
            fix = 'Write ToolTags(begin="<call>", end="</call>"), or trigger="<call" besides.'
            raise ConstraintError("ToolTags needs a begin that is not empty and starts with its trigger", fix=fix)

    @property
    def mark(self) -> str:
        """The trigger."""
        return self.trigger or self.begin.rstrip() or self.begin


@guarded
def compile_response_format(
    response_format: Any,
    tokenizer: Any,
    *,
    tools: Sequence[Any] | None = None,
    tool_choice: Any = None,
    parallel_tool_calls: bool = True,
    tool_tags: ToolTags | None = ToolTags(),
    options: SchemaOptions | None = None,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles the output that a request asks for.

    Args:
      response_format: None, or an object with `type` "text", "json_object" (any object), "json_schema" (`json_schema.schema`) or
        "structural_tag" (`structures` and `triggers`, or `format`).
      tokenizer: from `load_tokenizer`, a `Vocabulary`, or anything `load_tokenizer` takes.
      tools: as in OpenAI's API, `{"type": "function", "function": {"name", "description", "parameters", "strict"}}`; a function
        without `parameters` takes no arguments.
      tool_choice: "auto" (the default where there are tools): the response format, or calls; with "text", free text with calls
        in it. "required": calls only. "none": the response format, and in free text no call begins.
        `{"type": "function", "function": {"name": ...}}`: calls of this function only. `{"type": "allowed_tools", ...}`: of some.
      parallel_tool_calls: whether there may be more calls than one.
      tool_tags: how the model writes a call; None: as vLLM has it written, "required" as an array of objects with `name` and
        `parameters`, a named function by its arguments alone ("auto" then needs tags).
      options: how schemas are read and JSON is written.
      canonical, filters, max_depth: as for `compile_call`.
      limits: bounds of the compilation.

    Returns:
      The artifact.

    Raises:
      FormatError: the request is not well formed, has an unknown field, or asks for what one byte ahead cannot decide; its
        `pointer` begins with the argument's name, as in `#/tools/0/function`.
      SchemaError: a schema in it is refused; the pointer leads through the request.
      ConstraintError: the vocabulary cannot spell it, or a limit is exceeded.

    Examples:
      >>> from fsa_compile.vocabulary.vocabulary import Vocabulary
      >>> vocabulary = Vocabulary.from_tokens([b"true", b"t", b"null", b""], stop_ids=[3])
      >>> schema = {"type": "json_schema", "json_schema": {"name": "flag", "schema": {"type": "boolean"}}}
      >>> compile_response_format(schema, vocabulary).walk().allowed().tolist()
      [True, False, False, False]
    """
    limits = limits or CompileLimits()
    for name, given in (("response_format", response_format), ("tools", tools), ("tool_choice", tool_choice)):
        check_json(given, limits, FormatError, pointer=f"#/{name}", what="the request")
    root = requested(response_format, tools, tool_choice, parallel_tool_calls, tool_tags)
    source = json_text({"response_format": response_format, "tools": tools, "tool_choice": tool_choice})[:200]
    how: dict[str, Any] = {"canonical": canonical, "filters": tuple(filters), "limits": limits}
    request = Request.of(tokenizer, source, max_depth=max_depth, **how)
    if isinstance(root, Json) and max_depth is None:
        with schemas_at(root):
            return compile_json_schema(root.schema, request.tokenizer, options=options, **how)
    return compile_format(root, request, options)


def requested(
    response_format: Any, tools: Any, tool_choice: Any, parallel_tool_calls: bool = True, tool_tags: ToolTags | None = None
) -> Format:
    """The tree of the output that a request asks for; the arguments are `compile_response_format`'s."""
    many = flag(parallel_tool_calls, "#/parallel_tool_calls")
    answer = _response(response_format)
    calls = _Calls(tools, tool_tags, many)
    choice = "auto" if tool_choice is None and calls.functions else "none" if tool_choice is None else tool_choice
    if isinstance(choice, str) and choice not in ("auto", "required", "none"):
        fix = 'It is "auto", "required", "none" or {"type": "function", "function": {"name": ...}}.'
        raise FormatError(f"{choice!r} is no choice of tools", pointer="#/tool_choice", fix=fix)
    if choice == "none":
        return calls.without(answer)
    if not calls.functions:
        raise FormatError("there are no tools to choose from", pointer="#/tool_choice", fix="Pass tools=[...].")
    if not isinstance(choice, str):
        choice, named = _chosen(choice, calls)
        if choice == "named":
            return calls.only(named[0])
        calls.functions = {name: calls.functions[name] for name in named}
    return calls.required() if choice == "required" else calls.auto(answer)


class _Calls:
    """The tools of a request, and texts with calls of them. `functions`: schema of the arguments by name."""

    def __init__(self, tools: Any, tags: ToolTags | None, many: bool) -> None:
        self.functions: dict[str, Json] = {}
        self._tags, self._many = tags, many
        for i, tool in enumerate(elements(tools or [], "#/tools")):
            at = child("#/tools", i)
            fields = members(tool, at, required=["type", "function"])
            if fields["type"] != "function":
                what = f"tools of type {fields['type']!r} are not known"
                raise FormatError(what, pointer=child(at, "type"), fix='Use "function".')
            at = child(at, "function")
            fields = members(fields["function"], at, required=["name"], optional=["description", "parameters", "strict"])
            _checked_words(fields, at)
            name, place = fields["name"], child(at, "name")
            if not _FUNCTION_NAME(text(name, place)):
                fix = "Use at most 64 of letters, digits, '_', '-' and '.'."
                raise FormatError(f"{name!r:.80} is no name of a function", pointer=place, fix=fix)
            if name in self.functions:
                raise FormatError(f"two functions are called {name!r}", pointer=place, fix="Rename one of them.")
            self.functions[name] = Json(fields.get("parameters", _NO_ARGUMENTS), child(at, "parameters"))

    def without(self, answer: Format) -> Format:
        """The answer, in which no call begins if it is free text."""
        if self.functions and self._tags is not None and isinstance(answer, FreeText):
            return FreeText((self._tags.mark,), answer.pointer)
        return answer

    def required(self) -> Format:
        """At least one call, and nothing else."""
        if self._tags is None:
            some = separated(self._one(), ", ", least=1) if self._many else self._one()
            return Parts((Text("["), some, Text("]")))
        return separated(self._one(), self._tags.separator, least=1) if self._many else self._one()

    def only(self, name: str) -> Format:
        """Calls of one function."""
        if self._tags is None:
            return self.functions[name]
        self.functions = {name: self.functions[name]}
        return self.required()

    def auto(self, answer: Format) -> Format:
        """The answer or calls, or free text with calls in it."""
        if self._tags is None:
            fix = "Pass tool_tags=ToolTags(...) as the model writes its calls."
            raise FormatError("without tags a call cannot be told from an answer", pointer="#/tool_choice", fix=fix)
        if not isinstance(answer, FreeText):
            return OneOf((answer, self.required()))
        tags = [Tag(self._tags.begin, self._call(name), (self._tags.end,), "#/tools") for name in self.functions]
        return triggered(tags, [self._tags.mark], "#/tools", None, stop_after_first=not self._many)

    def _one(self) -> Format:
        around = ("", "") if self._tags is None else (self._tags.begin, self._tags.end)
        return OneOf(tuple(Parts((Text(around[0]), self._call(name), Text(around[1]))) for name in self.functions))

    def _call(self, name: str) -> Format:
        keys = ("name", "parameters") if self._tags is None else (self._tags.name_key, self._tags.arguments_key)
        head = f"{{{json.dumps(keys[0])}: {json.dumps(name)}, {json.dumps(keys[1])}: "
        return Parts((Text(head), self.functions[name], Text("}")))


def _response(value: Any) -> Format:
    """The tree of a response format."""
    at = "#/response_format"
    if value is None:
        return FreeText((), at)
    kind = value.get("type") if isinstance(value, dict) else members(value, at, required=["type"])
    rest = {name: content for name, content in value.items() if name != "type"}
    match kind:
        case "text":
            members(rest, at)
            return FreeText((), at)
        case "json_object":
            members(rest, at)
            return Json({"type": "object"}, at)
        case "json_schema":
            inner = members(rest, at, required=["json_schema"])["json_schema"]
            at = child(at, "json_schema")
            fields = members(inner, at, required=["schema"], optional=_WORDS)
            _checked_words(fields, at)
            return Json(fields["schema"], child(at, "schema"))
        case "structural_tag":
            return structural_tag(rest, at)
    fix = 'It is "text", "json_object", "json_schema" or "structural_tag".'
    raise FormatError(f"{kind!r} is no type of a response format", pointer=child(at, "type"), fix=fix)


_WORDS = ("name", "description", "strict")


def _checked_words(fields: dict[str, Any], pointer: str) -> None:
    """Checks the fields that say nothing about the text; schemas are enforced whether or not `strict` is true."""
    for name in ("name", "description"):
        if name in fields:
            text(fields[name], child(pointer, name))
    if "strict" in fields:
        flag(fields["strict"], child(pointer, "strict"))


def _chosen(choice: Any, calls: _Calls) -> tuple[str, list[str]]:
    """ "named", "auto" or "required", and the functions that an object as `tool_choice` names."""
    at = "#/tool_choice"
    kind = choice.get("type") if isinstance(choice, dict) else members(choice, at, required=["type", "function"])
    if kind == "allowed_tools":
        place = child(at, "allowed_tools")
        fields = members(choice, at, required=["type", "allowed_tools"])
        fields = members(fields["allowed_tools"], place, required=["mode", "tools"])
        if fields["mode"] not in ("auto", "required"):
            raise FormatError('this must be "auto" or "required"', pointer=child(place, "mode"))
        place = child(place, "tools")
        listed = elements(fields["tools"], place, least=1)
        return str(fields["mode"]), [_named(item, child(place, i), calls) for i, item in enumerate(listed)]
    return "named", [_named(choice, at, calls)]


def _named(value: Any, pointer: str, calls: _Calls) -> str:
    fields = members(value, pointer, required=["type", "function"])
    if fields["type"] != "function":
        raise FormatError(f"{fields['type']!r} is not known here", pointer=child(pointer, "type"), fix='Use "function".')
    place = child(child(pointer, "function"), "name")
    name = text(members(fields["function"], child(pointer, "function"), required=["name"])["name"], place)
    if name not in calls.functions:
        known = ", ".join(list(calls.functions)[:8])
        raise FormatError(f"there is no tool called {name!r:.80}", pointer=place, fix=f"Tools are {known}.")
    return name
