"""Structural tags, in both forms that servers take, as trees of formats.

The older form lists tags and their triggers, `{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`; the newer one is
a tree of typed objects, `{"format": {"type": "triggered_tags", ...}}`. What is read and what is refused stands in
`docs/serving.md`. Field names and meanings: XGrammar's documentation of structural tags (version 0.2.6).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from fsa_compile.formats import tree
from fsa_compile.formats.grammar_constraints import grammar_format
from fsa_compile.formats.request import FormatError, child, decoded, elements, flag, kind_of, members, text, texts
from fsa_compile.formats.token_counts import MAX_TOKENS
from fsa_compile.languages.constructors import regex
from fsa_compile.limits import CompileLimits, Deadline

MAX_DEPTH = 40
"""Formats inside each other."""
MAX_COUNT = 1_000
"""Largest bound of a `repeat`."""
MAX_CHARACTERS = 4_096
"""Largest bound on the characters of free text: they are counted by states."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tag:
    """A text or a special token, what stands behind it, and the texts one of which ends it."""

    begin: str | tree.Special
    content: Any
    ends: tuple[str, ...]
    pointer: str


def structural_tag(value: Any, pointer: str) -> tree.Format:
    """The tree of a structural tag of either form (without its `type`).

    Raises:
      FormatError: it is not well formed, or not supported.
    """
    if isinstance(value, dict) and "format" in value:
        fields = members(value, pointer, required=["format"])
        return _Reader().format(fields["format"], child(pointer, "format"), None, 0)
    fields = members(value, pointer, required=["structures", "triggers"])
    at = child(pointer, "structures")
    tags = []
    for i, item in enumerate(elements(fields["structures"], at, least=1)):
        here = child(at, i)
        found = members(item, here, required=["begin", "end"], optional=["schema"])
        place = child(here, "schema")
        schema = tree.Json(decoded(found.get("schema", {}), place), place)
        begin = text(found["begin"], child(here, "begin"), empty=False)
        tags.append(Tag(begin, schema, (text(found["end"], child(here, "end")),), here))
    triggers = texts(fields["triggers"], child(pointer, "triggers"), least=1)
    return triggered(tags, triggers, child(pointer, "triggers"), None)


def triggered(
    tags: list[Tag],
    triggers: list[str],
    pointer: str,
    ends: tuple[str, ...] | None,
    *,
    without: tuple[str, ...] = (),
    at_least_one: bool = False,
    stop_after_first: bool = False,
) -> tree.Format:
    """Free text in which, after a trigger, one of its tags must follow; then free text again.

    Args:
      tags: each begins with exactly one of the triggers; their content is a tree already.
      triggers: none contains another.
      ends: texts one of which ends it all; None: the end of the output does.
      without: texts that must not occur outside the tags.
      at_least_one: it begins with a tag.
      stop_after_first: it ends behind the first tag.

    Raises:
      FormatError: triggers and tags do not fit each other.
    """
    marks = (*triggers, *(ends or ()))
    for i, mark in enumerate(marks):
        for j, other in enumerate(marks):
            if i != j and mark in other:
                what = f"{mark!r} is a part of {other!r}, so {other!r} can never come"
                raise FormatError(what, pointer=pointer, fix="Use one of them only.")
    rest: dict[str, list[tree.Format]] = {trigger: [] for trigger in triggers}
    whole: list[tree.Format] = []
    for tag in tags:
        if isinstance(tag.begin, tree.Special):
            fix = 'Use "token_triggered_tags" for tags that begin with a special token.'
            raise FormatError("a text triggers no special token", pointer=child(tag.pointer, "begin"), fix=fix)
        fitting = [trigger for trigger in triggers if tag.begin.startswith(trigger)]
        if len(fitting) != 1:
            what = f"the tag's begin {tag.begin!r} starts with {'none' if not fitting else 'several'} of the triggers"
            raise FormatError(what, pointer=child(tag.pointer, "begin"), fix=f"Triggers are {', '.join(map(repr, triggers))}.")
        behind = closed(tag.content, tag.ends)
        rest[fitting[0]].append(tree.Parts((tree.Text(tag.begin[len(fitting[0]) :]), behind)))
        whole.append(tree.Parts((tree.Text(tag.begin), behind)))
    for trigger, found in rest.items():
        if not found:
            raise FormatError(f"no tag begins with the trigger {trigger!r}", pointer=pointer, fix="Remove it, or add its tag.")
    for mark in marks:
        for bad in without:
            if bad in mark:
                raise FormatError(f"{mark!r} holds {bad!r}, which must not occur", pointer=pointer, fix="Exclude another text.")
    begun = [tree.Parts((tree.Until(t, marks, without, pointer), tree.OneOf(tuple(found)))) for t, found in rest.items()]
    one = tree.OneOf(tuple(begun))
    if ends is None:
        last: tree.Format = tree.FreeText((*triggers, *without), pointer)
    else:
        last = tree.OneOf(tuple(tree.Until(end, marks, without, pointer) for end in ends))
    finish: tree.Format = tree.NOTHING if ends is None else tree.OneOf(tuple(tree.Text(end) for end in ends))
    more = tree.Parts((tree.Repeated(one, 0, None), last))
    if at_least_one:
        return tree.Parts((tree.OneOf(tuple(whole)), finish if stop_after_first else more))
    return tree.OneOf((tree.Parts((one, finish)), last)) if stop_after_first else more


def closed(content: tree.Format, ends: tuple[str, ...]) -> tree.Format:
    """A tag's content and its end; free text that stands last in it ends at the first of the ends.

    Ends that are empty close nothing: the content must end by itself.
    """
    marks = tuple(end for end in ends if end)
    if len(marks) < len(ends):
        return tree.Parts((content, tree.OneOf(tuple(tree.Text(end) for end in ends))))
    match content:
        case tree.FreeText(without=without, pointer=pointer):
            return tree.OneOf(tuple(tree.Until(end, marks, without, pointer) for end in marks))
        case tree.Parts(parts=parts) if parts:
            return tree.Parts((*parts[:-1], closed(parts[-1], ends)))
        case tree.OneOf(branches=branches) if branches:
            return tree.OneOf(tuple(closed(branch, ends) for branch in branches))
    return tree.Parts((content, tree.OneOf(tuple(tree.Text(end) for end in ends))))


class _Reader:
    """Reads typed formats; `ends` is passed down to free text whose end an enclosing tag gives."""

    def __init__(self) -> None:
        self._kinds: dict[str, Callable[[Any, str, tuple[str, ...] | None, int], tree.Format]] = {
            "const_string": self._const_string,
            "json_schema": self._json_schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "any_text": self._any_text,
            "sequence": self._sequence,
            "or": self._or,
            "optional": self._optional,
            "plus": self._plus,
            "star": self._star,
            "repeat": self._repeat,
            "tag": self._tag,
            "triggered_tags": self._triggered_tags,
            "tags_with_separator": self._tags_with_separator,
            "token": self._token,
            "any_tokens": self._any_tokens,
            "token_triggered_tags": self._token_triggered_tags,
        }

    def format(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        """The tree of one format; with `ends`, these close it."""
        if depth > MAX_DEPTH:
            raise FormatError(f"formats are nested more than {MAX_DEPTH} deep", pointer=pointer, fix="Flatten them.")
        if not isinstance(value, dict):
            raise FormatError(f"a format is an object with a type, not {kind_of(value)}", pointer=pointer)
        kind = value.get("type")
        reader = self._kinds.get(kind) if isinstance(kind, str) else None
        if reader is None:
            fix = f"Supported are {', '.join(self._kinds)}."
            raise FormatError(f"formats of type {kind!r} are not supported", pointer=child(pointer, "type"), fix=fix)
        return reader({k: v for k, v in value.items() if k != "type"}, pointer, ends, depth + 1)

    def _const_string(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        fields = members(value, pointer, required=["value"])
        return _then(tree.Text(text(fields["value"], child(pointer, "value"))), ends)

    def _json_schema(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        fields = members(value, pointer, required=["json_schema"], optional=["style", "any_order"])
        if fields.get("style", "json") != "json":
            what = f"values in the style {fields['style']!r} are not supported"
            raise FormatError(what, pointer=child(pointer, "style"), fix='Use "json".')
        if fields.get("any_order"):
            fix = 'Compile with options=SchemaOptions(key_order="any"): then every key still comes once, in any order.'
            raise FormatError("any_order is not read here", pointer=child(pointer, "any_order"), fix=fix)
        place = child(pointer, "json_schema")
        return _then(tree.Json(decoded(fields["json_schema"], place), place), ends)

    def _regex(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        place = child(pointer, "pattern")
        return _then(tree.Regex(text(members(value, pointer, required=["pattern"])["pattern"], place), place), ends)

    def _grammar(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        place, limits = child(pointer, "grammar"), CompileLimits()
        given = text(members(value, pointer, required=["grammar"])["grammar"], place)
        return _then(grammar_format(given, None, place, limits, Deadline(limits)), ends)

    def _any_text(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        fields = members(value, pointer, optional=["excludes", "max_tokens", "max_chars"])
        without = tuple(texts(fields.get("excludes", []), child(pointer, "excludes")))
        if ends is not None and all(ends):
            without = tuple(mark for mark in without if mark not in ends)
            bad = next((mark for mark in without for end in ends if mark in end), None)
            if bad is not None:
                raise FormatError(f"the end of the tag holds {bad!r}, which must not occur", pointer=child(pointer, "excludes"))
        if "max_tokens" in fields:
            place = child(pointer, "max_tokens")
            if ends is not None or "max_chars" in fields:
                fix = 'Write the tag\'s end as {"type": "token", "token": ...}, or bound the text by max_chars alone.'
                raise FormatError("tokens are counted only up to a special token, and without max_chars", pointer=place, fix=fix)
            return tree.FewTokens(without, _count(fields["max_tokens"], place, MAX_TOKENS), place)
        free = tree.FreeText(without, pointer)
        if "max_chars" in fields:
            return _at_most(free, _count(fields["max_chars"], child(pointer, "max_chars"), MAX_CHARACTERS), ends)
        return free if ends is None else closed(free, ends)

    def _token(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        place = child(pointer, "token")
        return _then(tree.Special((_token_name(members(value, pointer, required=["token"])["token"], place),), place), ends)

    def _any_tokens(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        """Text and special tokens in any order, but for some of these."""
        place = child(pointer, "exclude_tokens")
        listed = elements(members(value, pointer, optional=["exclude_tokens"]).get("exclude_tokens", []), place)
        without = tuple(_token_name(item, child(place, i)) for i, item in enumerate(listed))
        others = tree.Special(without, place, excluded=True)
        text, last = _free_parts(pointer, ends)
        return tree.Parts((tree.Repeated(tree.Parts((text, others)), 0, None), last))

    def _token_triggered_tags(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        """Free text in which, at certain special tokens, one of their tags must stand; then free text again."""
        optional = ["at_least_one", "stop_after_first", "exclude_tokens"]
        fields = members(value, pointer, required=["trigger_tokens", "tags"], optional=optional)
        place = child(pointer, "trigger_tokens")
        listed = elements(fields["trigger_tokens"], place, least=1)
        triggers = [_token_name(item, child(place, i)) for i, item in enumerate(listed)]
        elements(fields.get("exclude_tokens", []), child(pointer, "exclude_tokens"))  # no special token stands in text anyway
        tags = self._tags(fields["tags"], pointer, depth)
        for tag in tags:
            if not isinstance(tag.begin, tree.Special) or tag.begin.tokens[0] not in triggers:
                what = "the tag's begin is none of the trigger tokens"
                raise FormatError(what, pointer=child(tag.pointer, "begin"), fix=f"They are {', '.join(map(repr, triggers))}.")
        least = flag(fields.get("at_least_one", False), child(pointer, "at_least_one"))
        one: tree.Format = tree.OneOf(tuple(tree.Parts((_begun(tag), tag.content)) for tag in tags))
        text, last = _free_parts(pointer, ends)
        if flag(fields.get("stop_after_first", False), child(pointer, "stop_after_first")):
            ended = _then(one, ends)
            return ended if least else tree.OneOf((tree.Parts((text, ended)), last))
        more = tree.Parts((tree.Repeated(tree.Parts((text, one)), 0, None), last))
        return tree.Parts((one, more)) if least else more

    def _sequence(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        listed, at = self._elements(value, pointer)
        last = len(listed) - 1
        return tree.Parts(tuple(self.format(e, child(at, i), ends if i == last else None, depth) for i, e in enumerate(listed)))

    def _or(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        listed, at = self._elements(value, pointer)
        return tree.OneOf(tuple(self.format(e, child(at, i), ends, depth) for i, e in enumerate(listed)))

    def _elements(self, value: Any, pointer: str) -> tuple[list[Any], str]:
        at = child(pointer, "elements")
        return elements(members(value, pointer, required=["elements"])["elements"], at, least=1), at

    def _optional(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        return _then(tree.Repeated(self._content(value, pointer, depth), 0, 1), ends)

    def _plus(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        return _then(tree.Repeated(self._content(value, pointer, depth), 1, None), ends)

    def _star(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        return _then(tree.Repeated(self._content(value, pointer, depth), 0, None), ends)

    def _repeat(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        fields = members(value, pointer, required=["content", "min", "max"])
        for name, least in (("min", 0), ("max", -1)):
            count = fields[name]
            if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= MAX_COUNT:
                what = f"{name} must be a whole number from {least} to {MAX_COUNT:,}"
                raise FormatError(what, pointer=child(pointer, name), fix="A max of -1 is no bound.")
        low, high = fields["min"], None if fields["max"] == -1 else fields["max"]
        if high is not None and high < low:
            raise FormatError("max is smaller than min", pointer=child(pointer, "max"), fix="Swap them.")
        part = self.format(fields["content"], child(pointer, "content"), None, depth)
        return _then(tree.Repeated(part, low, high), ends)

    def _content(self, value: Any, pointer: str, depth: int) -> tree.Format:
        return self.format(members(value, pointer, required=["content"])["content"], child(pointer, "content"), None, depth)

    def _tag(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        tag = self._read_tag({"type": "tag", **value}, pointer, depth)
        return _then(tree.Parts((_begun(tag), tag.content)), ends)

    def _read_tag(self, value: Any, pointer: str, depth: int) -> Tag:
        """A tag whose content is closed already: its ends are one empty text."""
        fields = members(value, pointer, required=["begin", "content", "end"], optional=["type"])
        if fields.get("type", "tag") != "tag":
            raise FormatError("this must be a tag", pointer=child(pointer, "type"))
        begin, place = _mark(fields["begin"], child(pointer, "begin")), child(pointer, "end")
        if isinstance(fields["end"], dict):
            content = self.format(fields["content"], child(pointer, "content"), None, depth)
            return Tag(begin, tree.Parts((content, _special(fields["end"], place))), ("",), pointer)
        given = fields["end"] if isinstance(fields["end"], (list, tuple)) else [fields["end"]]
        ends = tuple(text(end, place) for end in elements(given, place, least=1))
        for i, end in enumerate(ends):
            if any(end in other for j, other in enumerate(ends) if i != j):
                raise FormatError(f"the end {end!r} is a part of another one", pointer=place, fix="Use one of them only.")
        content = self.format(fields["content"], child(pointer, "content"), ends, depth)
        return Tag(begin, content, ("",), pointer)

    def _tags(self, value: Any, pointer: str, depth: int) -> list[Tag]:
        at = child(pointer, "tags")
        return [self._read_tag(item, child(at, i), depth) for i, item in enumerate(elements(value, at, least=1))]

    def _triggered_tags(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        fields = members(value, pointer, required=["triggers", "tags"], optional=["at_least_one", "stop_after_first", "excludes"])
        given = texts(fields["triggers"], child(pointer, "triggers"), least=1)
        how = {n: flag(fields.get(n, False), child(pointer, n)) for n in ("at_least_one", "stop_after_first")}
        without = tuple(texts(fields.get("excludes", []), child(pointer, "excludes")))
        if ends is not None and not all(ends):
            raise FormatError("free text in a tag without an end cannot end", pointer=pointer, fix="Give the tag an end.")
        tags = self._tags(fields["tags"], pointer, depth)
        return triggered(tags, given, child(pointer, "triggers"), ends, without=without, **how)

    def _tags_with_separator(self, value: Any, pointer: str, ends: tuple[str, ...] | None, depth: int) -> tree.Format:
        fields = members(value, pointer, required=["tags", "separator"], optional=["at_least_one", "stop_after_first"])
        tags = self._tags(fields["tags"], pointer, depth)
        one = tree.OneOf(tuple(tree.Parts((_begun(tag), tag.content)) for tag in tags))
        least = int(flag(fields.get("at_least_one", False), child(pointer, "at_least_one")))
        separator = text(fields["separator"], child(pointer, "separator"))
        if flag(fields.get("stop_after_first", False), child(pointer, "stop_after_first")):
            return _then(tree.Repeated(one, least, 1), ends)
        return _then(tree.separated(one, separator, least=least), ends)


def _mark(value: Any, pointer: str) -> str | tree.Special:
    """What a tag begins with: a text, or a special token."""
    return _special(value, pointer) if isinstance(value, dict) else text(value, pointer)


def _special(value: Any, pointer: str) -> tree.Special:
    fields = members(value, pointer, required=["type", "token"])
    if fields["type"] != "token":
        raise FormatError(f"{fields['type']!r:.40} is no mark of a tag", pointer=child(pointer, "type"), fix='Use "token".')
    place = child(pointer, "token")
    return tree.Special((_token_name(fields["token"], place),), place)


def _begun(tag: Tag) -> tree.Format:
    return tree.Text(tag.begin) if isinstance(tag.begin, str) else tag.begin


def _token_name(value: Any, pointer: str) -> str | int:
    """A token as requests name it: its printed name, or its id."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return text(value, pointer, empty=False)


def _count(value: Any, pointer: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise FormatError(f"this must be a whole number from 0 to {most:,}", pointer=pointer)
    return value


def _free_parts(pointer: str, ends: tuple[str, ...] | None) -> tuple[tree.Format, tree.Format]:
    """Free text before a special token, and the last one, up to the first of the ends."""
    if ends is None or not all(ends):
        return tree.FreeText((), pointer), _then(tree.FreeText((), pointer), ends)
    return tree.FreeText(ends, pointer), closed(tree.FreeText((), pointer), ends)


def _at_most(free: tree.FreeText, most: int, ends: tuple[str, ...] | None) -> tree.Format:
    """Free text of at most `most` characters; with `ends`, up to the first of these."""
    marks, short = tuple(end for end in ends or () if end), f"(?s:.{{0,{most}}})"
    bad = regex(f"(?s:.*(?:{'|'.join(map(re.escape, free.without))}).*)") if free.without else None
    found: list[tree.Format] = []
    for end in ends or ("",):
        made = regex(short + re.escape(end))
        if end:
            made = made - regex(f"(?s:.*(?:{'|'.join(map(re.escape, marks))}).+)")
        found.append(tree.Words(made if bad is None else made - bad, free.pointer))
    return tree.OneOf(tuple(found))


def _then(node: tree.Format, ends: tuple[str, ...] | None) -> tree.Format:
    """A format, and the end of the tag around it."""
    return node if ends is None else tree.Parts((node, tree.OneOf(tuple(tree.Text(end) for end in ends))))
