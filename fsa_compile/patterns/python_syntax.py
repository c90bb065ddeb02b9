"""Pattern text to syntax tree, in the dialect of Python's `re` plus `\\p{...}`. Knows nothing of automata.

One pass over the text with an explicit stack of open groups. Departures from `re`: properties (`\\p{Lu}`, `\\P{Greek}`),
`(?<name>...)` besides `(?P<name>...)`, lookbehind of any width; refused are the constructs that are not regular, surrogates, and
bytes patterns.
"""

from __future__ import annotations

import itertools
import re
import sys
from typing import NamedTuple, NoReturn, Protocol

from fsa_compile.errors import ConstraintError, LimitError, RegexSyntaxError, UnsupportedPatternError, is_whole
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns import python_escapes as escapes
from fsa_compile.patterns.glushkov import one_character
from fsa_compile.patterns.regex_tree import Alternate, Anchor, AnchorKind, Atomic, Chars, Concat, Look, Node, Repeat, Text
from fsa_compile.unicode.code_points import ANY, ASCII, NONE, CodePointSet, union
from fsa_compile.unicode.properties import category, same_ignoring_case

MAX_DEPTH = 100
"""Largest number of groups inside each other."""

_A, _I, _M, _S, _U, _X = (int(f) for f in (re.A, re.I, re.M, re.S, re.U, re.X))
_FLAG_OF = {"a": _A, "i": _I, "m": _M, "s": _S, "u": _U, "x": _X}
_NO_NEWLINE: CodePointSet = (ASCII & ~(1 << 10), ANY[1])

# A run of characters that mean themselves; with (?x) white space and "#" do not.
_RUN = re.compile(r"[^\\\[(){|*+?.^$]+").match
_RUN_VERBOSE = re.compile(r"[^\\\[(){|*+?.^$#\s]+").match
# In comments a backslash takes the next character with it, as everywhere in Python's patterns.
_COMMENT = re.compile(r"\(\?#(?:[^\\)]|\\.)*\)", re.DOTALL).match
_SPACE_OR_COMMENT = re.compile(r"(?:[ \t\n\r\v\f]+|#(?:[^\\\n]|\\.)*)+", re.DOTALL).match
_BRACES = re.compile(r"\{(?:(?P<low>\d+)|(?=,))(?:(?P<comma>,)(?P<high>\d*))?\}", re.ASCII).match
_SURROGATE = re.compile("[\ud800-\udfff]").search

# How an item may be quantified: as a whole, not again, not at all, or its last character alone.
_FREE, _REPEATED, _NOTHING, _RUN_OF_TEXT = 0, 1, 2, 3


class GroupReader(Protocol):
    """What knows the extension groups `(?P<NAME>...)`, which stand for languages of their own."""

    def knows(self, name: str) -> bool:
        """Whether groups of this name are extensions."""

    def node(self, parser: Parser, name: str, body: list[Node] | None, start: int, end: int) -> Node:
        """The tree of a group; `body`: the branches between its bars, None when there is nothing at all."""


class _Open(NamedTuple):
    """A group that is not closed yet: what was read before it, and what it will become."""

    start: int
    kind: str
    branches: list[Node]
    items: list[Node]
    flags: int
    branch_start: int
    name: str


def parse(
    pattern: str, flags: int = 0, limits: CompileLimits | None = None, extensions: GroupReader | None = None
) -> Node:
    """The syntax tree of a pattern.

    Args:
      pattern: as for `re.compile`.
      flags: `re.A | re.I | re.M | re.S | re.U | re.X`.
      limits: `max_pattern` and `max_repeat` apply here.
      extensions: reader of extension groups; without one, their names are those of ordinary groups.

    Raises:
      RegexSyntaxError: the pattern is not well formed.
      UnsupportedPatternError: it uses what is not a regular language.
      LimitError: the pattern or a bound in it is too large.
    """
    return Parser(pattern, flags, limits or CompileLimits(), extensions).parse()


class Parser:
    def __init__(self, pattern: str, flags: int, limits: CompileLimits, extensions: GroupReader | None = None) -> None:
        if not isinstance(pattern, str):
            raise ConstraintError(
                f"a pattern must be a str, not {type(pattern).__name__}",
                fix="Decode it, or pass pattern.pattern of a compiled one.",
            )
        if len(pattern) > limits.max_pattern:
            raise LimitError("max_pattern", limits.max_pattern, f"Reading a pattern of {len(pattern):,} characters")
        self.text, self.limits = pattern, limits
        self.plain_groups: list[int] = []
        self.flags = _checked_flags(flags)
        self.names: dict[str, int] = {}
        self.stack: list[_Open] = []
        self.has_atomic = False
        self.extensions = extensions
        if not pattern.isascii() and (found := _SURROGATE(pattern)):
            self.refuse_surrogate(found.start(), found.end())

    def syntax(self, what: str, start: int, end: int | None = None, fix: str = "") -> NoReturn:
        """Refuses a malformed pattern."""
        raise RegexSyntaxError(what, pattern=self.text, start=start, end=end, fix=fix)

    def unsupported(self, what: str, start: int, end: int | None = None, fix: str = "") -> NoReturn:
        """Refuses a pattern that is well formed."""
        raise UnsupportedPatternError(what, pattern=self.text, start=start, end=end, fix=fix)

    def refuse_surrogate(self, start: int, end: int) -> NoReturn:
        """Refuses half of a UTF-16 pair."""
        self.unsupported(
            "a surrogate code point is not a character and has no UTF-8 form", start, end,
            fix=r"Write the character itself or \U with eight digits.",
        )  # fmt: skip

    def parse(self) -> Node:
        text, n = self.text, len(self.text)
        stack = self.stack
        branches: list[Node] = []
        items: list[Node] = []
        branch_start = i = 0
        state = _NOTHING
        while i < n:
            if run := (_RUN_VERBOSE if self.flags & _X else _RUN)(text, i):
                j = run.end()
                if j < n and j - i > 1 and text[j] in "*+?{":
                    j -= 1
                if self.flags & _I:
                    items += [self.literal(ord(text[k]), k, k + 1) for k in range(i, j)]
                else:
                    items.append(Text(text[i:j], i, j))
                i, state = j, _RUN_OF_TEXT
                continue
            c = text[i]
            if c == "(":
                if text.startswith("(?#", i):
                    comment = _COMMENT(text, i)
                    i = comment.end() if comment else self.syntax("missing ) after a comment", i, n)
                    continue
                opened = self.open_group(i, branches, items, branch_start)
                if isinstance(opened, int):  # only flags, no group
                    i = opened
                    continue
                group, i = opened
                stack.append(group)
                if len(stack) > MAX_DEPTH:
                    self.unsupported(f"groups are nested more than {MAX_DEPTH} deep", group.start, i, fix="Flatten the pattern.")
                branches, items, branch_start, state = [], [], i, _NOTHING
            elif c == ")":
                if not stack:
                    self.syntax("unbalanced ): no group is open here", i, fix=r"Write \) for the character itself.")
                empty = not (branches or items)
                branches.append(_concat(items, branch_start, i))
                i += 1
                node, branches, items, branch_start = self.close_group(branches, empty, branch_start, i)
                items.append(node)
                state = _FREE
            elif c == "|":
                branches.append(_concat(items, branch_start, i))
                i += 1
                items, branch_start, state = [], i, _NOTHING
            elif c in "*+?{":
                i, state = self.quantified(items, i, state)
            elif self.flags & _X and (skipped := _SPACE_OR_COMMENT(text, i)):
                i = skipped.end()
            else:
                node, i, state = self.item(i)
                items.append(node)
        if stack:
            self.syntax("missing ): this group is never closed", stack[-1].start, fix=r"Write \( for the character itself.")
        branches.append(_concat(items, branch_start, n))
        tree = _alternate(branches, 0, n)
        if self.has_atomic:
            self.check_atomics(tree)
        return tree

    def item(self, i: int) -> tuple[Node, int, int]:
        """A character class, an escape, an anchor or a character at offset i; the offset after it; how it may be quantified."""
        c = self.text[i]
        if c == "[":
            members, j = escapes.parse_class(self, i)
            return Chars(members, i, j), j, _FREE
        if c == "\\":
            node, j = self.escape(i)
            return node, j, _NOTHING if type(node) is Anchor else _FREE
        if c == ".":
            return Chars(ANY if self.flags & _S else _NO_NEWLINE, i, i + 1), i + 1, _FREE
        if c == "^":
            return Anchor("line start" if self.flags & _M else "text start", NONE, i, i + 1), i + 1, _NOTHING
        if c == "$":
            return Anchor("line end" if self.flags & _M else "end or final newline", NONE, i, i + 1), i + 1, _NOTHING
        return self.literal(ord(c), i, i + 1), i + 1, _FREE  # white space that (?x) keeps, such as a no-break space

    def quantified(self, items: list[Node], i: int, state: int) -> tuple[int, int]:
        """Applies the quantifier at offset i to the last item, in place; the offset after it, and how this may be quantified."""
        quantifier = self.quantifier(i)
        if quantifier is None:  # a brace that means itself
            items.append(self.literal(ord("{"), i, i + 1))
            return i + 1, _FREE
        low, high, mode, j = quantifier
        if state == _RUN_OF_TEXT:
            items[-1:] = _last_character(items[-1])  # a comment or white space may lie between it and the quantifier
        elif state != _FREE:
            self.refuse_quantifier(state, i, j)
        items[-1] = self.repeat(items[-1], low, high, mode, i, j)
        return j, _REPEATED

    def check_atomics(self, tree: Node) -> None:
        """Refuses an atomic group that may change the language."""
        from fsa_compile.patterns.atomic_groups import check_atomics

        if (found := check_atomics(tree, self.limits)) is not None:
            self.unsupported(
                "this atomic group or possessive quantifier may change which texts match",
                found.start,
                found.end,
                fix="Use an ordinary group (?:...) or quantifier, or exclude the longer match with a lookahead.",
            )

    def literal(self, code_point: int, start: int, end: int) -> Node:
        """One character, under the flags in force."""
        if self.flags & _I:
            return Chars(same_ignoring_case(code_point, bool(self.flags & _A)), start, end)
        return Text(chr(code_point), start, end)

    def escape(self, i: int) -> tuple[Node, int]:
        """The escape at offset `i` outside a class."""
        letter = self.text[i + 1 : i + 2]
        if letter in escapes.CATEGORIES:
            if not letter:
                self.syntax("the pattern ends in a backslash", i, fix=r"Write \\ for a backslash.")
            return Chars(category(letter, bool(self.flags & _A)), i, i + 2), i + 2
        if (kind := _ANCHORS.get(letter)) is not None:
            word = category("w", bool(self.flags & _A)) if letter in "bB" else NONE
            return Anchor(kind, word, i, i + 2), i + 2
        if letter in "pP":
            members, j = escapes.parse_property(self, i)
            return Chars(members, i, j), j
        code_point, j = escapes.parse_escape(self, i, in_class=False)
        return self.literal(code_point, i, j), j

    def quantifier(self, i: int) -> tuple[int, int | None, str, int] | None:
        """(low, high, "" or "?" or "+", end) of the quantifier at offset `i`; None for a brace that is none."""
        text = self.text
        c = text[i]
        low: int
        high: int | None
        if c == "{":
            match = _BRACES(text, i)
            if match is None:
                return None
            j = match.end()
            digits = match["low"] or "0", match["high"]
            if max(len(d or "") for d in digits) > 9:
                raise LimitError("max_repeat", self.limits.max_repeat, f"The repetition {match[0][:40]} at offset {i}")
            low = int(digits[0])
            high = (int(digits[1]) if digits[1] else None) if match["comma"] else low
            if high is not None and high < low:
                self.syntax(f"the smallest count {low} exceeds the largest count {high}", i, j, fix=f"Write {{{high},{low}}}.")
            if max(low, high or 0) > self.limits.max_repeat:
                raise LimitError("max_repeat", self.limits.max_repeat, f"The repetition {match[0]} at offset {i}")
        else:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
            j = i + 1
        mode = text[j : j + 1]
        return (low, high, mode, j + 1) if mode and mode in "?+" else (low, high, "", j)

    def refuse_quantifier(self, state: int, start: int, end: int) -> NoReturn:
        """The error for a quantifier with nothing before it, or another quantifier."""
        itself = rf"Write \{self.text[start]} for the character itself"
        if state == _NOTHING:
            self.syntax("nothing to repeat before this quantifier", start, end, fix=f"{itself}.")
        self.syntax(
            "multiple repeat: a quantifier follows another", start, end, fix=f"{itself}, or group what comes before: (?:...)."
        )

    def repeat(self, item: Node, low: int, high: int | None, mode: str, start: int, end: int) -> Node:
        """The item repeated."""
        if low == high == 1 and mode != "+":
            return item
        node: Node = Repeat(item, low, high, item.start, end, mode == "?")
        if mode == "+":
            self.has_atomic = True
            return Atomic(node, start, end)
        return node

    def open_group(self, i: int, branches: list[Node], items: list[Node], branch_start: int) -> tuple[_Open, int] | int:
        """What the parenthesis at offset `i` opens and where its body begins; only an offset for flags without a group."""
        text = self.text
        kind, name, flags, j = "group", "", self.flags, i + 1
        if not text.startswith("(?", i):
            self.plain_groups.append(i)
        else:
            after = text[i + 2 : i + 4]
            if after[:1] == ":":
                j = i + 3
            elif after[:1] and after[:1] in "=!>":
                kind, j = after[0], i + 3
            elif after in ("<=", "<!"):
                kind, j = after, i + 4
            elif after[:1] == "<" or after == "P<":
                name, j, extends = self.group_name(i, i + 2 + after.index("<") + 1)
                kind = "extension" if extends else kind
            else:
                if not after or after[0] not in "aiLmsux-":
                    self.refuse_group(i, after)
                opened = self.group_flags(i, at_start=not (self.stack or branches or items))
                if isinstance(opened, int):
                    return opened
                flags, j = opened
        outer = self.flags
        self.flags = flags
        return _Open(i, kind, branches, items, outer, branch_start, name), j

    def close_group(
        self, body: list[Node], empty: bool, last_start: int, end: int
    ) -> tuple[Node, list[Node], list[Node], int]:
        """The finished group, and what was being read around it."""
        group = self.stack.pop()
        self.flags = group.flags
        if group.kind == "extension":
            assert self.extensions is not None
            node = self.extensions.node(self, group.name, None if empty else body, group.start, end)
            return node, group.branches, group.items, group.branch_start
        node = _alternate(body, last_start, end - 1)
        if group.kind == ">":
            node = Atomic(node, group.start, end)
            self.has_atomic = True
        elif group.kind != "group":
            node = Look(node, group.kind[0] == "<", group.kind[-1] == "!", group.start, end)
        return node, group.branches, group.items, group.branch_start

    def group_name(self, start: int, i: int) -> tuple[str, int, bool]:
        """The name at offset `i` of the group at `start`, where its body begins, and whether it is an extension."""
        j = self.text.find(">", i)
        if j < 0:
            self.syntax("missing > after a group name", start, len(self.text))
        name = self.text[i:j]
        if not name.isidentifier():
            self.syntax(
                f"{name!r} is not a group name" if name else "missing group name", start, j + 1, fix="Use letters, digits and _."
            )
        if self.extensions is not None and self.text.startswith("P<", start + 2) and self.extensions.knows(name):
            return name, j + 1, True
        if name in self.names:
            self.syntax(f"the group name {name!r} is used twice", start, j + 1, fix=f"The first is at offset {self.names[name]}.")
        self.names[name] = start
        return name, j + 1, False

    def group_flags(self, start: int, at_start: bool) -> tuple[int, int] | int:
        """Flags at `(?`: (new flags, where the body begins), or the offset after global flags, which take effect."""
        text = self.text
        on = off = 0
        removing = False
        j = start + 2
        while j < len(text) and text[j] not in ":)":
            letter = text[j]
            if letter == "-" and not removing:
                removing = True
            elif letter == "L":
                self.unsupported("the L (locale) flag is only for bytes patterns", start, j + 1, fix="Leave it out.")
            elif letter not in _FLAG_OF:
                self.syntax(f"unknown flag {letter!r}", j, fix="The flags are a i m s u x.")
            elif removing:
                if letter in "au":
                    self.syntax(f"the flag {letter} cannot be switched off", j, fix="Switch the other of a and u on.")
                off |= _FLAG_OF[letter]
            else:
                on |= _FLAG_OF[letter]
            j += 1
        if j == len(text):
            self.syntax("missing : or ) after flags", start, j)
        if on & off or (on & _A and on & _U):
            self.syntax("these flags contradict each other", start, j + 1)
        if removing and (text[j] == ")" or not off):
            self.syntax("missing flag or : after -", start, j + 1, fix="Flags are switched off for a group: (?-i:...).")
        keep = self.flags & ~off
        if on & (_A | _U):
            keep &= ~(_A | _U)
        if text[j] == ":":
            return keep | on, j + 1
        if not at_start:
            self.syntax(
                "flags for the whole pattern must stand at its start", start, j + 1, fix=f"Use a group: {text[start:j]}:...)."
            )
        self.flags = keep | on
        return j + 1

    def refuse_group(self, i: int, after: str) -> NoReturn:
        """The error for `(?` and what follows, when it opens nothing that can be compiled."""
        text = self.text
        close = text.find(")", i)
        end = close + 1 if close >= 0 else len(text)
        if after in ("P=", "P>", "P&") or (after[:1] and (after[0] in "R&" or after[0].isdigit())):
            what, fix = "recursion", "Texts that nest are rules of a grammar: write them as one."
            if after == "P=":
                what, fix = "a back-reference", "Write the alternatives out."
            self.unsupported(f"{what} is not a regular language", i, end, fix=fix)
        if after[:1] == "(":
            self.unsupported(
                "a conditional on a group is not supported", i, end, fix="Write both cases as alternatives: (?:a...b|c...d)."
            )
        if not after:
            self.syntax("the pattern ends after (?", i, i + 2)
        self.syntax(f"unknown group syntax (?{after}", i, i + 2 + len(after), fix=r"Write \( for the character itself.")


_ANCHORS: dict[str, AnchorKind] = {"A": "text start", "Z": "text end", "b": "word boundary", "B": "no word boundary"}


def _checked_flags(given: int) -> int:
    if not is_whole(given, -sys.maxsize, sys.maxsize):
        raise ConstraintError(
            f"flags must be a number such as re.I | re.S, not {given!r}", fix="Or write them into the pattern: (?is)..."
        )
    flags = int(given)
    known = _A | _I | _M | _S | _U | _X | int(re.DEBUG)
    if flags & int(re.LOCALE):
        raise ConstraintError("the flag re.LOCALE is only for bytes patterns", fix="Leave it out.")
    if flags & ~known:
        raise ConstraintError(f"unknown flags {flags & ~known:#x}", fix="Use re.A, re.I, re.M, re.S, re.U, re.X.")
    if flags & _A and flags & _U:
        raise ConstraintError("the flags re.ASCII and re.UNICODE contradict each other", fix="Give one of them.")
    return flags


def _last_character(item: Node) -> list[Node]:
    """The item, or a text before its last character and that character."""
    if not isinstance(item, Text) or len(item.text) < 2:
        return [item]
    at = item.end - 1
    return [Text(item.text[:-1], item.start, at), Text(item.text[-1], at, item.end)]


def _concat(items: list[Node], start: int, end: int) -> Node:
    return items[0] if len(items) == 1 else Concat(items, start, end)


def _alternate(branches: list[Node], start: int, end: int) -> Node:
    """One of the branches; single characters next to one another become one set."""
    joined: list[Node] = []
    for single_one, some in itertools.groupby(branches, lambda branch: one_character(branch) is not None):
        run = list(some)
        if single_one and len(branches) > 1:
            run = [Chars(union(*(one_character(branch) or NONE for branch in run)), start, end)]
        joined += run
    return joined[0] if len(joined) == 1 else Alternate(joined, start, end)
