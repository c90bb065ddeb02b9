"""A turn as a tree of formats: thinking, then an answer, or calls, as a protocol writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from fsa_compile.formats.request import FormatError
from fsa_compile.formats.tree import NOTHING, FewTokens, Format, FreeText, Joined, Named, OneOf, Parts, Regex, Repeated, Text
from fsa_compile.protocols.protocol import Calls, Protocol, Section
from fsa_compile.protocols.protocol_marks import Marks
from fsa_compile.protocols.tools import Tool, form_of, syntax_of

Reasoning: TypeAlias = Literal["allowed", "required", "off", "begun"]
ID_PATTERN = "[A-Za-z0-9]{9}"
"""Ids of calls, where a protocol writes them."""
_MOST_BREAKS = 2
_GAP = Repeated(Text("\n"), 0, _MOST_BREAKS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """What a turn may hold.

    Attributes:
      protocol, marks: how it is written, over which vocabulary.
      reasoning: whether it thinks; "begun": the prompt has begun it.
      answer: what an answer is; None: free text.
      tools: that may be called.
      choice: "auto", "required" or "none".
      many: whether there may be several calls.
      max_reasoning: most characters of a thought; None: no bound.
      max_tokens: most tokens of a thought; None: no bound.
    """

    protocol: Protocol
    marks: Marks
    reasoning: Reasoning
    answer: Format | None
    tools: Mapping[str, Tool]
    choice: str
    many: bool
    max_reasoning: int | None = None
    max_tokens: int | None = None

    def format(self, arguments: Callable[[Tool], Format], short: Callable[[int], Format]) -> Format:
        """The tree of the turn.

        Args:
          arguments: what reads the arguments of a tool.
          short: what reads free text of at most n characters, given n.
        """
        rest = self._rest(arguments)
        section = self.protocol.reasoning
        if self.reasoning == "off" or section is None:
            if self.reasoning in ("required", "begun"):
                what = f"the protocol {self.protocol.name!r} has no reasoning"
                raise FormatError(what, pointer="#/reasoning", fix='Write reasoning="off", or "allowed".')
            return rest
        begin = NOTHING if self.reasoning == "begun" else self.marks.format(section.begin)
        if self.max_reasoning is None and self.max_tokens is None:
            thinking = Parts((begin, self.marks.until(section.end, self._gap(), "#/reasoning")))
        else:
            unit = "chars" if self.max_tokens is None else "tokens"
            if not self.marks.is_special(section.end):
                what = f"{section.end!r} is text in this vocabulary, so that what a thought takes cannot be counted up to it"
                fix = f"Load the tokenizer with its special tokens, or leave max_reasoning_{unit} out."
                raise FormatError(what, pointer=f"#/max_reasoning_{unit}", fix=fix)
            if self.max_tokens is not None:
                thought: Format = FewTokens(self.marks.texts, self.max_tokens, "#/max_reasoning_tokens")
            else:
                thought = short(self.max_reasoning or 0)
            thinking = Parts((begin, thought, self.marks.format(section.end), self._gap()))
        return Parts((Repeated(thinking, 0, 1) if self.reasoning == "allowed" else thinking, rest))

    def _gap(self) -> Format:
        return self.marks.format(self.protocol.join) if self.protocol.join else _GAP

    def _rest(self, arguments: Callable[[Tool], Format]) -> Format:
        """What stands behind the thought."""
        calls, section = self.protocol.calls, self.protocol.content
        if self.choice == "none":
            return self._section(section, self._free() if self.answer is None else self.answer)
        made = self._calls(arguments)
        if self.choice == "required":
            return made
        if self.answer is not None:
            return OneOf((self._section(section, self.answer), made))
        if not self.protocol.is_marked or calls.preamble is None:
            return OneOf((self._section(section, self._free()), made))
        if calls.preamble.begin or calls.preamble.end:
            before = self._until(calls.preamble, Parts((self._gap(), made)))
            return OneOf((self._section(section, self._free()), before, made))
        behind = self._calls(arguments, opened=True)
        return OneOf((self._section(section, self._free()), self.marks.until_first(calls.opening, behind, "#/tools")))

    def _section(self, section: Section, content: Format) -> Format:
        return Parts((self.marks.format(section.begin), content, self.marks.format(section.end)))

    def _until(self, section: Section, rest: Format) -> Format:
        return Parts((self.marks.format(section.begin), self.marks.until(section.end, rest, "#/tools")))

    def _free(self) -> Format:
        """Free text as an answer: no name of the protocol, and where nothing marks calls, no beginning of one."""
        leads: tuple[tuple[str, str, str], ...] = ()
        if self.choice != "none" and not self.protocol.is_marked:
            leads = tuple(self._lead(tool) for tool in self.tools.values())
            leads = tuple(lead for lead in leads if not any(name in "".join(lead) for name in self.marks.special))
            if self.protocol.reasoning is not None and not self.protocol.join:  # the gap behind a thought is no content
                gaps = ["\n" * breaks for breaks in range(_MOST_BREAKS + 1)]
                leads = tuple((gap + before, name, behind) for before, name, behind in leads for gap in gaps)
        return FreeText(self.marks.texts, "#/response", leads)

    def _lead(self, tool: Tool) -> tuple[str, str, str]:
        """The beginning of a call of a tool, up to the first byte of its arguments."""
        begin, middle, _ = form_of(tool, self.protocol)
        before = "" if tool.builtin else self.protocol.calls.all_begin
        return before + begin, tool.name, middle + ("(" if syntax_of(tool, self.protocol).is_call else "{")

    def _calls(self, arguments: Callable[[Tool], Format], opened: bool = False) -> Format:
        """Calls; `opened`: behind the first piece of what opens them, without built-in tools."""
        own = [tool for tool in self.tools.values() if tool.builtin is None]
        built = [self._builtin(tool, arguments) for tool in self.tools.values() if tool.builtin is not None]
        ways = [self._written(way, own, arguments, opened) for way in self.protocol.calls.ways if own]
        return OneOf((*ways, *built))

    def _written(self, way: Calls, own: Sequence[Tool], arguments: Callable[[Tool], Format], opened: bool) -> Format:
        """Calls of the user's tools, written in one way."""
        marks = self.marks
        id_behind = Parts((marks.format(way.id_behind), Regex(ID_PATTERN, "#/tools"), Text('"')))
        end = Parts((Repeated(id_behind, 0, 1), marks.format(way.end))) if way.id_behind else marks.format(way.end)
        call = Parts((Named(tuple((tool.name, self._call(way, tool, arguments)) for tool in own)), end))
        several = Joined(call, marks.format(way.separator + way.begin)) if self.many and self.protocol.calls.many else call
        opening = Parts(tuple(marks.pieces(way.opening)[opened:]))
        return Parts((opening, several, marks.format(way.all_end)))

    def _call(self, way: Calls, tool: Tool, arguments: Callable[[Tool], Format]) -> Format:
        """A call from behind its name to its arguments."""
        marks = self.marks
        call_id: Format = NOTHING
        if way.call_id:
            call_id = Repeated(Parts((marks.format(way.call_id), Regex(ID_PATTERN, "#/tools"))), 0, 1)
        return Parts((call_id, marks.format(way.middle), arguments(tool)))

    def _builtin(self, tool: Tool, arguments: Callable[[Tool], Format]) -> Format:
        form, marks = tool.builtin, self.marks
        assert form is not None
        if form.text:
            others = [(other.name, other.builtin) for other in self.tools.values() if other.builtin and not other.builtin.text]
            leads = tuple((f"{name}{form.middle}(", "", "") for name, form in others)
            return Parts((marks.format(form.begin), FreeText(self.marks.texts, tool.pointer, leads)))
        return Parts((marks.format(form.begin + tool.name + form.middle), arguments(tool), marks.format(form.end)))
