"""Whole turns of chat models: thinking, answers and tool calls in the model's own tokens, compiled and read back.

    constraint = compile_response(tokenizer, protocol="qwen3", tools=[get_weather])
    response = parse_response(ids, tokenizer, protocol="qwen3", tools=[get_weather])
    response.calls[0]()

How each model writes a turn is a description, a `Protocol`; `known` has those of published models.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsa_compile.arrays.garbage import collected_rarely
from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.call_syntax.argument_machines import Arguments, arguments_machine
from fsa_compile.call_syntax.syntax import CallSyntax
from fsa_compile.compiler.arguments import Canonical, Request, tokenizer_of, vocabulary_of
from fsa_compile.errors import ConstraintError, checked_flag, is_whole
from fsa_compile.formats import known_forms
from fsa_compile.formats.format_machines import compile_format, compile_named, short_text
from fsa_compile.formats.known_forms import Compiled
from fsa_compile.formats.token_counts import MAX_TOKENS
from fsa_compile.formats.tree import Format, Value
from fsa_compile.inputs.guard import guarded
from fsa_compile.inputs.json_input import json_text
from fsa_compile.json_schema.bounded_depth import without_counters
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.protocols.answers import GrammarText, answer_of
from fsa_compile.protocols.known import PROTOCOLS, protocol_of
from fsa_compile.protocols.protocol import Builtin, Calls, Protocol, Section
from fsa_compile.protocols.protocol_marks import Marks
from fsa_compile.protocols.response_stream import (
    ArgumentsDelta,
    CallBegun,
    CallFinished,
    ContentDelta,
    Event,
    ReasoningDelta,
    ResponseError,
    ResponseStream,
    ToolCall,
)
from fsa_compile.protocols.tools import Tool, chosen, syntax_of, tools_of
from fsa_compile.protocols.turn import Reasoning, Turn

if TYPE_CHECKING:
    from fsa_compile.filters import Filter

TOOL_OPTIONS = SchemaOptions(key_order="any")
"""How the schemas of tools are read, where nothing else is said: models write arguments in every order."""


@dataclasses.dataclass(frozen=True)
class Response:
    """A turn that was read.

    Attributes:
      reasoning: what the model thought, without line breaks around it; "" for nothing.
      content: the answer, or what was said before calls: text, or a value where `response=` asks for one; None where there are
        calls and nothing was said.
      calls: the calls, in their order.
    """

    reasoning: str
    content: Any
    calls: tuple[ToolCall, ...]

    @property
    def message(self) -> dict[str, Any]:
        """The turn as a message of the assistant, for the next prompt; thoughts are left out, as chat templates have it."""
        said = self.content if self.content is None or isinstance(self.content, str) else json_text(self.content)
        out: dict[str, Any] = {"role": "assistant", "content": said or ""}
        if self.calls:
            out["tool_calls"] = [call.description for call in self.calls]
        return out


@guarded
def compile_response(
    tokenizer: Any,
    *,
    protocol: str | Protocol | None = None,
    tools: Sequence[Any] | None = None,
    tool_choice: Any = "auto",
    response: Any = None,
    reasoning: Reasoning = "allowed",
    max_reasoning_chars: int | None = None,
    max_reasoning_tokens: int | None = None,
    parallel_tool_calls: bool = True,
    strict: bool = True,
    options: SchemaOptions | None = None,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a whole turn of the assistant, as a model's protocol writes it.

    Args:
      tokenizer: from `load_tokenizer`, a `Vocabulary`, or anything `load_tokenizer` takes.
      protocol: a name of `PROTOCOLS`, or a `Protocol`; None: what the special tokens and the chat template tell.
      tools: functions; descriptions as in OpenAI's API; names of tools that the protocol has built in.
      tool_choice: "auto": an answer, or calls (behind text, where the protocol has it so); "required": calls only; "none"; the
        name of a tool, or a list of names, that must be called.
      response: what an answer is: None for text, a JSON Schema (a dict), a type, a pattern (a str or `Language`), `GrammarText`.
      reasoning: "allowed", "required" or "off" (as when the prompt says that there is none); "begun": the prompt has begun it.
      max_reasoning_chars: most characters of a thought, counted on the device; None: no bound.
      max_reasoning_tokens: most tokens of a thought, without those that mark it, counted on the device; None: no bound.
      parallel_tool_calls: whether there may be several calls, where the protocol has it so.
      strict: whether objects of tools take no members but those that their schema names, unless it says otherwise.
      options: how the schemas of tools and of the answer are read; None: keys of arguments come in every order.
      canonical, filters, max_depth: see `compile_language` and `compile_grammar`.
      limits: bounds of the compilation.

    Returns:
      The artifact. `parse_response` with the same arguments reads every turn that it accepts. Give `generate` the ids that
      `protocols.stop_ids(tokenizer, protocol)` says, so that every token that ends a turn ends it.

    Raises:
      FormatError: the request is not well formed, or asks for what one byte ahead cannot decide; with a pointer.
      SchemaError: a schema is refused; the pointer leads to its place.
      ConstraintError: the protocol is not known, the vocabulary cannot spell the turn, or a limit is exceeded.

    Examples:
      >>> from fsa_compile.vocabulary.vocabulary import Vocabulary
      >>> vocabulary = Vocabulary.from_tokens([b"yes", b"", b"", b""], special={"<think>": 1, "</think>": 2}, stop_ids=[3])
      >>> compile_response(vocabulary, protocol="qwen3", response="yes", reasoning="required").walk().allowed().tolist()
      [False, True, False, False]
    """
    tokenizer = tokenizer_of(tokenizer)
    read = _Read(tokenizer, protocol, tools, tool_choice, strict)
    if reasoning not in ("allowed", "required", "off", "begun"):
        raise ConstraintError(f"reasoning={reasoning!r}", fix='It is "allowed", "required", "off" or "begun".')
    source = f"a turn of the protocol {read.protocol.name}"
    request = Request.of(tokenizer, source, canonical=canonical, filters=filters, max_depth=max_depth, limits=limits)
    bounds = _checked_bounds(max_reasoning_chars, max_reasoning_tokens)
    several = checked_flag(parallel_tool_calls, "parallel_tool_calls")
    return _compiled(read, request, (response, reasoning, several, bounds, options))


@collected_rarely
def _compiled(read: _Read, request: Request, asked: tuple[Any, ...]) -> CompiledConstraint:
    """The constraint of a request that was compiled before, or made now; `asked`: what `_turn` takes."""

    def made() -> CompiledConstraint:
        return compile_format(_turn(read, request, *asked), request, asked[-1])

    def joined() -> CompiledConstraint:
        own = {name: schema for name, _, is_own, schema in tools if is_own}
        others = tuple(name for name, _, is_own, _ in tools if not is_own)
        form = (read.choice, others, asked, request.limits, read.key)
        return known_forms.constraint(form, own, request, functools.partial(_named, read, request, asked))

    if not request.is_plain or request.max_depth is not None or not (asked[0] is None or isinstance(asked[0], str)):
        return made()
    try:
        tools = tuple((one.name, one.pointer, one.builtin is None, json_text(one.schema)) for one in read.tools.values())
        key = (tools, read.choice, asked, request.limits, read.key)
        hash(key)
    except (TypeError, ValueError, RecursionError):
        return made()  # which says what is wrong with the request
    return _KEPT.get(key, joined if any(tool.builtin is None for tool in read.tools.values()) else made)


def _named(read: _Read, request: Request, asked: tuple[Any, ...], names: Collection[str], *, sketch: bool = False) -> Compiled:
    """A turn with some of the user's tools, and what tells its parts."""
    read = read.only(names)
    pointers = {tool.pointer: tool.name for tool in read.tools.values() if tool.builtin is None}
    closing = b")" if read.protocol.calls.arguments.is_call else b"}"
    return Compiled(*compile_named(_turn(read, request, *asked), request, asked[-1], sketch=sketch), pointers, closing)


_KEPT: SizedMemo[CompiledConstraint] = SizedMemo(64 << 20, lambda made: made.nbytes, largest=32 << 20)
"""The turns that were compiled last: the requests of one conversation ask for the same."""


def _turn(
    read: _Read, request: Request, response: Any, reasoning: Reasoning, many: bool, bounds: tuple[int | None, int | None],
    options: SchemaOptions | None,
) -> Format:
    """The tree of a turn."""
    answer = None if response is None else answer_of(response).format(options, request.limits, request.deadline)
    turn = Turn(
        protocol=read.protocol, marks=read.marks, reasoning=reasoning, answer=answer, tools=read.tools, choice=read.choice,
        many=many, max_reasoning=bounds[0], max_tokens=bounds[1],
    )  # fmt: skip
    tool_options = options or TOOL_OPTIONS
    if not request.is_plain:
        tool_options = without_counters(tool_options)
    return turn.format(
        _ArgumentsOf(read, tool_options, request.limits, request.deadline),
        lambda most: short_text(most, read.marks.texts, "#/max_reasoning_chars", request),
    )


def _checked_bounds(characters: Any, tokens: Any) -> tuple[int | None, int | None]:
    for unit, given in (("characters", characters), ("tokens", tokens)):
        if given is not None and not is_whole(given, 0, MAX_TOKENS):
            name = "max_reasoning_chars" if unit == "characters" else "max_reasoning_tokens"
            raise ConstraintError(f"{name}={given!r:.40}", fix=f"Give a whole number of {unit} up to {MAX_TOKENS:,}, or None.")
    if characters is not None and tokens is not None:
        raise ConstraintError("a thought is bounded by characters and by tokens", fix="Give one of the bounds.")
    return None if characters is None else int(characters), None if tokens is None else int(tokens)


@guarded
def parse_response(
    written: Iterable[int] | str,
    tokenizer: Any,
    *,
    protocol: str | Protocol | None = None,
    tools: Sequence[Any] | None = None,
    tool_choice: Any = "auto",
    response: Any = None,
    reasoning: Reasoning = "allowed",
    strict: bool = True,
) -> Response:
    """Reads a whole turn.

    What a function takes, and an answer that is a type, are checked. Where a schema describes a tool or the answer, JSON is read
    and not held against it: what a constraint has written keeps to the schema, other texts are for a validator.

    Args:
      written: the token ids, ids that end the turn at their end or not; or text, in which the names of special tokens stand for
        these. Only ids tell a special token from text that looks like one.
      tokenizer, protocol, tools, tool_choice, response, reasoning, strict: as for `compile_response`.

    Returns:
      Reasoning, content and calls.

    Raises:
      ResponseError: it is no turn of the protocol, or not complete.
      TypeTextError: the answer, or the arguments of a function, are no values of their type.
    """
    stream = response_stream(
        tokenizer, protocol=protocol, tools=tools, tool_choice=tool_choice, reasoning=reasoning, strict=strict
    )
    events = [*stream.feed(written), *stream.finish()]
    thought = "".join([event.text for event in events if isinstance(event, ReasoningDelta)])
    said = "".join([event.text for event in events if isinstance(event, ContentDelta)])
    calls = tuple(event.call for event in events if isinstance(event, CallFinished))
    content: Any = said.strip("\n") if calls else said
    if calls:
        content = content or None
    elif response is not None:
        content = answer_of(response).read(said)
    return Response(thought.strip("\n"), content, calls)


@guarded
def response_stream(
    tokenizer: Any,
    *,
    protocol: str | Protocol | None = None,
    tools: Sequence[Any] | None = None,
    tool_choice: Any = "auto",
    reasoning: Reasoning = "allowed",
    strict: bool = True,
) -> ResponseStream:
    """A reader of one turn while it is written: `feed(ids)` gives the events, `finish()` the last ones.

    Args:
      tokenizer, protocol, tools, tool_choice, reasoning, strict: as for `compile_response`.
    """
    tokenizer = tokenizer_of(tokenizer)
    read = _Read(tokenizer, protocol, tools, tool_choice, strict)
    vocabulary = vocabulary_of(tokenizer)
    return ResponseStream(
        read.protocol, read.marks, vocabulary, read.tools, begun=reasoning == "begun", has_calls=read.choice != "none"
    )


@guarded
def stop_ids(tokenizer: Any, protocol: str | Protocol | None = None) -> tuple[int, ...]:
    """The ids that end a turn: the vocabulary's own, and those of the protocol. For `generate(..., stop_ids=)`."""
    tokenizer = tokenizer_of(tokenizer)
    known = protocol_of_tokenizer(tokenizer, protocol)
    return Marks(known, vocabulary_of(tokenizer)).stop_ids(known.stops)


def protocol_of_tokenizer(tokenizer: Any, protocol: str | Protocol | None = None) -> Protocol:
    """The protocol that is named or described; None: what a tokenizer's special tokens and chat template tell.

    Raises:
      ConstraintError: it is not known, or nothing tells which it is; lists those known.
    """
    return protocol_of(protocol, vocabulary_of(tokenizer), _template(tokenizer) if protocol is None else "")


class _Read:
    """A request, read: its protocol, marks, and the tools that may be called."""

    def __init__(self, tokenizer: Any, protocol: Any, tools: Any, tool_choice: Any, strict: bool) -> None:
        vocabulary = vocabulary_of(tokenizer)
        self.protocol = protocol_of_tokenizer(tokenizer, protocol)
        self.marks = Marks(self.protocol, vocabulary)
        self.choice, self.tools = chosen(tool_choice, tools_of(tools, self.protocol, checked_flag(strict, "strict")))
        self._vocabulary = vocabulary

    def only(self, names: Collection[str]) -> _Read:
        """The request with those of the user's tools that have some names."""
        out = copy.copy(self)
        out.tools = {name: tool for name, tool in self.tools.items() if tool.builtin is not None or name in names}
        return out

    @property
    def key(self) -> tuple[Any, ...]:
        """What a constraint depends on beside the request: the vocabulary, and the names that are its special tokens."""
        vocabulary, special = self._vocabulary, tuple(self.marks.special.items())
        return repr(self.protocol), vocabulary.fingerprint, vocabulary.logits_width, vocabulary.bos_id, special


def _template(tokenizer: Any) -> str:
    """The text of the chat template that belongs to a tokenizer, "" where there is none."""
    from fsa_compile.prompts.chat import _beside

    origin = getattr(tokenizer, "origin", None)
    if isinstance(origin, (str, Path)):
        return _beside(Path(origin))[0]
    found = getattr(origin, "chat_template", None)
    return found if isinstance(found, str) else ""


class _ArgumentsOf:
    """The arguments of tools as parts of a tree; those of one syntax are one machine."""

    def __init__(self, read: _Read, options: SchemaOptions, limits: CompileLimits, deadline: Deadline) -> None:
        groups: dict[CallSyntax, list[Tool]] = {}
        for tool in read.tools.values():
            if tool.builtin is None or not tool.builtin.text:
                groups.setdefault(syntax_of(tool, read.protocol), []).append(tool)
        self._found: dict[str, Value] = {}
        for syntax, tools in groups.items():
            made: Arguments = arguments_machine(
                {tool.pointer: tool.schema for tool in tools}, syntax, marks=read.marks.special, without=read.marks.within_calls,
                options=options, limits=limits, deadline=deadline,
            )  # fmt: skip
            for tool, start in zip(tools, made.starts):
                self._found[tool.name] = Value(made.machine, start, tool.pointer)

    def __call__(self, tool: Tool) -> Format:
        return self._found[tool.name]


__all__ = [
    "PROTOCOLS", "ArgumentsDelta", "Builtin", "CallBegun", "CallFinished", "CallSyntax", "Calls", "ContentDelta", "Event",
    "GrammarText", "Protocol", "ReasoningDelta", "Response", "ResponseError", "ResponseStream", "Section", "ToolCall",
    "compile_response", "parse_response", "protocol_of_tokenizer", "response_stream", "stop_ids",
]  # fmt: skip
