"""Reads a turn while it is written: tokens in, events out; a whole turn is all of its events."""

from __future__ import annotations

import codecs
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from fsa_compile.call_syntax.written_arguments import ArgumentsEnd, ArgumentsError, json_of
from fsa_compile.errors import ConstraintError, is_whole, shown
from fsa_compile.protocols.protocol import Protocol
from fsa_compile.protocols.protocol_marks import Marks
from fsa_compile.protocols.tools import Tool, form_of, syntax_of
from fsa_compile.protocols.turn import ID_PATTERN
from fsa_compile.vocabulary.vocabulary import Vocabulary


class ResponseError(ConstraintError):
    """A turn that is not written as its protocol has it."""


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call that was read and has not been run.

    Attributes:
      name: of the tool.
      arguments: by name; of a function, values of its parameters' types.
      function: what calling this runs; None for a tool that was described.
      id: where the protocol writes one, else "".
    """

    name: str
    arguments: dict[str, Any]
    function: Any = None
    id: str = ""

    @property
    def description(self) -> dict[str, Any]:
        """The call as messages of servers and chat templates have it; arguments that are no JSON values by their text."""
        plain = json.loads(json.dumps(self.arguments, default=str))
        found = {"type": "function", "function": {"name": self.name, "arguments": plain}}
        return {"id": self.id, **found} if self.id else found

    def answered(self, result: Any) -> dict[str, Any]:
        """The message that tells the model what the call gave."""
        said = result if isinstance(result, str) else json.dumps(result, default=str)
        return {"role": "tool", "name": self.name, "content": said, **({"tool_call_id": self.id} if self.id else {})}

    def __call__(self) -> Any:
        """Runs the function with the arguments."""
        if self.function is None:
            raise ResponseError(f"the tool {self.name!r} was described, not given as a function", fix="Run it yourself.")
        return self.function(**self.arguments)


@dataclasses.dataclass(frozen=True)
class ReasoningDelta:
    """More of what the model thinks."""

    text: str


@dataclasses.dataclass(frozen=True)
class ContentDelta:
    """More of the answer, or of what is said before calls."""

    text: str


@dataclasses.dataclass(frozen=True)
class CallBegun:
    """A call of a tool has begun."""

    index: int
    name: str


@dataclasses.dataclass(frozen=True)
class ArgumentsDelta:
    """More of a call's arguments, as they are written."""

    index: int
    text: str


@dataclasses.dataclass(frozen=True)
class CallFinished:
    """A call is complete."""

    index: int
    call: ToolCall


Event: TypeAlias = ReasoningDelta | ContentDelta | CallBegun | ArgumentsDelta | CallFinished


class ResponseStream:
    """Reads the tokens of one turn as they come.

    Args:
      protocol, marks, vocabulary: how the turn is written.
      tools: that may be called, by name.
      begun: whether the prompt has begun the reasoning.
      has_calls: whether there may be calls.
    """

    def __init__(
        self, protocol: Protocol, marks: Marks, vocabulary: Vocabulary, tools: Mapping[str, Tool], *, begun: bool, has_calls: bool
    ) -> None:
        self._protocol, self._marks, self._vocabulary, self._tools = protocol, marks, vocabulary, tools
        self._letters = marks.letters
        self._stops = set(marks.stop_ids(protocol.stops))
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._buffer = ""
        self._over = self._ended = False
        self._phase = "reasoning" if begun else "start"
        self._has_calls = has_calls and bool(tools)
        self._unspaced = begun
        self._calls = 0
        self._ways = protocol.calls.ways
        self._tool: Tool | None = None
        self._id = ""
        self._arguments = ""
        self._end: ArgumentsEnd | None = None
        names = sorted(tools, key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names)) or "(?!)")

    def feed(self, tokens: Iterable[int] | str) -> list[Event]:
        """The events of some more tokens, or of some more text.

        In text, the names of special tokens stand for these; from ids they are told from what looks like them.

        Raises:
          ResponseError: the turn is not written as its protocol has it.
        """
        if not isinstance(tokens, Iterable):
            raise ResponseError(f"{shown(tokens)} is neither token ids nor text", fix="Give the ids of a turn, or its text.")
        self._buffer += self._marks.read(tokens) if isinstance(tokens, str) else self._decoded(tokens)
        return self._events()

    def finish(self) -> list[Event]:
        """The last events of a turn that is over.

        Raises:
          ResponseError: the turn is not complete.
        """
        if not self._ended:
            self._buffer += self._text(b"", last=True)
        self._over = True
        out = self._events()
        if self._phase not in ("done", "content", "text"):
            raise ResponseError(f"the turn ends in {_SAID[self._phase]}", where=f"  {self._shown()}", fix="Give it more tokens.")
        return out

    def _text(self, data: bytes, *, last: bool = False) -> str:
        """What further bytes write; `last`: a character has to end with them."""
        try:
            return self._decoder.decode(data, last)
        except UnicodeDecodeError as error:
            what = "the turn ends inside a character" if last else f"the bytes {data!r:.60} go on no text in UTF-8"
            fix = "Give it more tokens." if last else "Give ids that this vocabulary's constraint allowed."
            raise ResponseError(what, where=f"  {self._shown()}", fix=fix) from error

    def _decoded(self, tokens: Iterable[int]) -> str:
        out = []
        for token in tokens:
            if self._ended:
                break
            if not is_whole(token, 0, self._vocabulary.size - 1):
                raise ResponseError(f"{shown(token)} is no id of the vocabulary")
            written = self._vocabulary.tokens[token]
            if written:
                out.append(self._text(written))
                continue
            if token in self._stops:
                out.append(self._text(b"", last=True))
                self._ended = True
            elif token in self._letters:
                out += [self._text(b"", last=True), self._letters[token]]
            else:
                raise ResponseError(f"the special token {token} is none of the protocol {self._protocol.name!r}")
        return "".join(out)

    def _shown(self) -> str:
        return self._marks.shown(self._buffer)[:200]

    def _events(self) -> list[Event]:
        out: list[Event] = []
        while True:
            before = (self._phase, len(self._buffer))
            getattr(self, f"_in_{self._phase}")(out)
            if (self._phase, len(self._buffer)) == before:
                return out

    # phases

    def _take(self, mark: str, phase: str) -> bool | None:
        """Whether the buffer begins with a mark, which is then taken away; None where that is not known yet."""
        mark = self._marks.read(mark)
        if self._buffer.startswith(mark):
            self._buffer, self._phase = self._buffer[len(mark) :], phase
            return True
        return None if not self._over and mark.startswith(self._buffer) else False

    def _first_of(self, *ways: tuple[str, str]) -> bool | None:
        """Takes the first of some marks that the buffer begins with, and goes on in its phase."""
        open_ = False
        for mark, phase in ways:
            found = self._take(mark, phase)
            if found:
                return True
            open_ |= found is None
        return None if open_ else False

    def _in_start(self, out: list[Event]) -> None:
        section = self._protocol.reasoning
        if section is None or self._take(section.begin, "reasoning") is False:
            self._phase = "body"

    def _in_reasoning(self, out: list[Event]) -> None:
        section = self._protocol.reasoning
        assert section is not None
        self._text_until(section.end, "gap", ReasoningDelta, out)

    def _in_gap(self, out: list[Event]) -> None:
        """Between two parts."""
        if self._protocol.join:
            if self._take(self._protocol.join, "body") is False:
                self._refuse(f"{self._protocol.join!r} is missing")
            return
        while self._buffer.startswith("\n"):
            self._buffer = self._buffer[1:]
        if self._buffer or self._over:
            self._phase = "body"

    def _in_body(self, out: list[Event]) -> None:
        """Where an answer, content before calls, or calls begin."""
        calls, content = self._protocol.calls, self._protocol.content
        ways: list[tuple[str, str]] = []
        if self._has_calls:
            ways = [(form.begin, f"builtin {name}") for name, form in self._builtins()]
            if not self._protocol.is_marked and self._begins_call() is None:
                return
            if self._protocol.is_marked or self._begins_call():
                ways += [(way.opening, "name") for way in calls.ways]
            if calls.preamble is not None and calls.preamble.begin:
                ways.append((calls.preamble.begin, "preamble"))
        if content.begin:
            ways.append((content.begin, "text"))
        before = self._buffer
        found = self._first_of(*ways)
        if self._phase.startswith("builtin "):
            self._builtin(out)
        elif self._phase == "name":
            self._ways = tuple(way for way in calls.ways if before.startswith(self._marks.read(way.opening)))
        elif found is False:
            if content.begin or any(self._buffer.startswith(token) for token in self._call_tokens()):
                self._refuse("neither an answer nor a call begins here")
            self._phase = "content" if self._has_calls and self._protocol.is_marked else "text"

    def _call_tokens(self) -> set[str]:
        """The tokens that begin calls."""
        ways = [self._protocol.calls.opening] if self._has_calls else []
        ways += [form.begin for _, form in self._builtins()]
        found = [next((name for name in self._protocol.tokens if way.startswith(name)), "") for way in ways]
        return {self._marks.read(name) for name in found if name}

    def _begins_call(self) -> bool | None:
        """Whether a call that no token marks begins here."""
        open_ = False
        for tool in self._tools.values():
            if tool.builtin is not None:
                continue
            begin, middle, _ = form_of(tool, self._protocol)
            bracket = "(" if syntax_of(tool, self._protocol).is_call else "{"
            lead = self._protocol.calls.all_begin + begin + tool.name + middle + bracket
            if self._buffer.startswith(lead):
                return True
            open_ |= not self._over and lead.startswith(self._buffer)
        return None if open_ else False

    def _builtins(self) -> list[tuple[str, Any]]:
        return [(name, tool.builtin) for name, tool in self._tools.items() if tool.builtin is not None]

    def _builtin(self, out: list[Event]) -> None:
        """Behind what begins a built-in tool: which it is."""
        free = next((name for name, form in self._builtins() if form.text), None)
        for name, form in self._builtins():
            lead = name + form.middle
            if not form.text and self._buffer.startswith(lead + "("):
                self._buffer = self._buffer[len(lead) :]
                self._begin(self._tools[name], out)
                return
            if not form.text and not self._over and (lead + "(").startswith(self._buffer):
                self._buffer = self._marks.read(form.begin) + self._buffer
                self._phase = "body"
                return
        if free is None:
            self._refuse("no built-in tool has this name")
        self._begin(self._tools[str(free)], out)
        self._phase = "code"

    def _in_content(self, out: list[Event]) -> None:
        """Content, behind which calls may come."""
        calls = self._protocol.calls
        if calls.preamble is None:
            self._in_text(out)
            return
        firsts = self._call_tokens()
        at = min((place for mark in firsts if (place := self._buffer.find(mark)) >= 0), default=-1)
        if at >= 0:
            self._say(ContentDelta, self._buffer[:at], out)
            self._buffer = self._buffer[at:]
            self._phase = "body"
            return
        held = 0 if self._over else max(_held(self._buffer, mark) for mark in firsts)
        self._say(ContentDelta, self._buffer[: len(self._buffer) - held], out)
        self._buffer = self._buffer[len(self._buffer) - held :]

    def _in_preamble(self, out: list[Event]) -> None:
        preamble = self._protocol.calls.preamble
        assert preamble is not None
        self._text_until(preamble.end, "gap", ContentDelta, out)

    def _in_text(self, out: list[Event]) -> None:
        """An answer, up to the end of the turn."""
        self._say(ContentDelta, self._buffer, out)
        self._buffer = ""

    def _in_name(self, out: list[Event]) -> None:
        longest = 0
        for way in self._ways:
            middle, mark = self._marks.read(way.middle), self._marks.read(way.call_id)
            id_of = f"(?:{re.escape(mark)}({ID_PATTERN}))?" if mark else "()"
            found = re.match(f"({self._names.pattern}){id_of}{re.escape(middle)}", self._buffer)
            if found and not self._over and self._may_be_longer(found[1], middle, mark):
                return
            if found:
                self._id, self._ways = found[2] or "", (way,)
                self._buffer = self._buffer[found.end() :]
                self._begin(self._tools[found[1]], out)
                return
            longest = max(longest, len(middle) + len(mark) + 9)
        if self._over or len(self._buffer) > max(map(len, self._tools)) + longest:
            self._refuse("no tool has this name")

    def _may_be_longer(self, name: str, *behind: str) -> bool:
        """Whether the buffer may yet turn out to name a tool whose name begins with another's."""
        longer = [other for other in self._tools if other.startswith(name) and other != name]
        leads = [other + more for other in longer for more in behind]
        return any(len(lead) > len(self._buffer) and lead.startswith(self._buffer) for lead in leads)

    def _begin(self, tool: Tool, out: list[Event]) -> None:
        self._tool, self._arguments, self._phase = tool, "", "arguments"
        syntax = syntax_of(tool, self._protocol)
        self._end = ArgumentsEnd(syntax, self._marks.read(syntax.mark))
        out.append(CallBegun(self._calls, tool.name))

    def _in_arguments(self, out: list[Event]) -> None:
        tool, end = self._tool, self._end
        assert tool is not None
        assert end is not None
        held = 0 if self._over else end.held(self._buffer)
        ready = self._buffer[: len(self._buffer) - held]
        try:
            size = end.feed(ready)
        except ArgumentsError as error:
            raise ResponseError(error.what, where=f"  {self._shown()}") from None
        taken = ready if size is None else ready[:size]
        self._arguments += taken
        self._buffer = self._buffer[len(taken) :]
        if taken:
            out.append(ArgumentsDelta(self._calls, self._marks.shown(taken)))
        if size is not None:
            self._phase = "end"

    def _finish_call(self, tool: Tool, out: list[Event]) -> None:
        syntax = syntax_of(tool, self._protocol)
        try:
            text = json_of(syntax, self._arguments, self._marks.read(syntax.mark))
            arguments = tool.read(text)
        except ArgumentsError as error:
            raise ResponseError(f"the call of {tool.name}: {error.what}", where=error.where) from None
        out.append(CallFinished(self._calls, ToolCall(tool.name, arguments, tool.function, self._id)))
        self._calls += 1

    def _in_code(self, out: list[Event]) -> None:
        """The free text of a built-in tool, up to the end of the turn."""
        tool = self._tool
        assert tool is not None
        assert tool.builtin is not None
        if self._buffer:
            out.append(ArgumentsDelta(self._calls, self._buffer))
            self._arguments += self._buffer
            self._buffer = ""
        if self._over:
            out.append(CallFinished(self._calls, ToolCall(tool.name, {tool.builtin.text: self._arguments})))
            self._calls += 1
            self._phase = "done"

    def _in_end(self, out: list[Event]) -> None:
        """Behind arguments: the end of the call, then another call or the end of all."""
        tool = self._tool
        assert tool is not None
        if tool.builtin is None and not self._id and self._ways[0].id_behind and not self._takes_id(self._ways[0].id_behind):
            return
        found = self._take(tool.builtin.end if tool.builtin else self._ways[0].end, "done" if tool.builtin else "more")
        if found:
            self._finish_call(tool, out)
        elif found is False:
            self._refuse("the call does not end here")

    def _takes_id(self, mark: str) -> bool:
        """Takes an id behind a call's arguments away; False where it is not known yet whether there is one."""
        mark = self._marks.read(mark)
        found = re.match(f'{re.escape(mark)}({ID_PATTERN})"', self._buffer)
        if found:
            self._id, self._buffer = found[1], self._buffer[found.end() :]
            return True
        known = self._buffer[: len(mark)] != mark[: len(self._buffer)] or len(self._buffer) > len(mark) + 9
        return self._over or known

    def _in_more(self, out: list[Event]) -> None:
        calls = self._ways[0]
        ways = [(calls.separator + calls.begin, "name")]
        if calls.all_end:
            ways = [(calls.all_end, "done"), *ways]
        elif self._over and not self._buffer:
            self._phase = "done"
            return
        if self._first_of(*ways) is False:
            self._refuse("neither another call nor the end follows")

    def _in_done(self, out: list[Event]) -> None:
        if self._buffer:
            self._refuse("the turn is over, and more follows")

    # text

    def _text_until(self, mark: str, phase: str, kind: Any, out: list[Event]) -> None:
        mark = self._marks.read(mark)
        text, found, rest = self._buffer.partition(mark)
        if found:
            self._say(kind, text, out)
            self._buffer, self._phase = rest, phase
            return
        held = 0 if self._over else _held(self._buffer, mark)
        self._say(kind, self._buffer[: len(self._buffer) - held], out)
        self._buffer = self._buffer[len(self._buffer) - held :]

    def _say(self, kind: Any, text: str, out: list[Event]) -> None:
        if text:
            shown = self._marks.shown(text)
            if shown != text:
                self._refuse(f"a special token stands in text: {shown!r:.80}")
            out.append(kind(text))

    def _refuse(self, what: str) -> None:
        raise ResponseError(f"{what}, in a turn of the protocol {self._protocol.name!r}", where=f"  {self._shown()}")


_SAID = {
    "start": "its beginning", "reasoning": "reasoning", "gap": "the gap behind reasoning", "body": "its beginning",
    "preamble": "text before a call", "name": "the name of a tool", "arguments": "a call's arguments", "end": "a call",
    "more": "a list of calls", "code": "a call",
}  # fmt: skip


def _held(text: str, mark: str) -> int:
    """Characters at the end of a text that may be the beginning of a mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)
