"""Regular expressions with lazy loops, read as a lexer does: each alternative stands for its shortest matches.

Works on the pattern's text, which must be well formed.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

_HEADER = re.compile(r"\((?:\?(?:P?<[^\W\d]\w*>|(?P<flags>[aimsux]*)(?:-[imsx]+)?:))?(?!\?)").match
_OTHER_HEADER = re.compile(r"\(\?(?:<?[=!]|>)").match
_QUANTIFIED = re.compile(r"[*+?{]").match
_QUANTIFIED_VERBOSE = re.compile(r"(?:\s|#(?:[^\\\n]|\\.)*\n)*[*+?{]", re.DOTALL).match
_QUANTIFIER = re.compile(r"(?P<optional>[*?]|\{0*,\d*\})(?P<mode>[?+]?)|(?:\+|\{\d+(?:,\d*)?\})[?+]?").match
_COMMENT = re.compile(r"\(\?#(?:[^\\)]|\\.)*\)|#(?:[^\\\n]|\\.)*", re.DOTALL).match
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL).match

MOST_ALTERNATIVES = 64


@dataclasses.dataclass(slots=True)
class _Group:
    """A group, or (parent None) the whole pattern; `plain`: it stands for one of its branches, once."""

    start: int
    parent: _Group | None
    plain: bool
    verbose: bool
    bars: list[int] = dataclasses.field(default_factory=list)
    end: int = 0
    has_lazy: bool = False

    def decides(self) -> bool:
        """Whether it chooses between branches of the whole pattern, a lazy loop in one of them."""
        group: _Group | None = self
        while group and group.plain:
            group = group.parent
        return bool(self.bars) and self.has_lazy and group is None


def alternatives(pattern: str, *, verbose: bool) -> list[str] | None:
    """The pattern as a list of patterns, none of which has a choice that a lazy loop is part of, outside loops.

    Args:
      verbose: whether the flag x holds.

    Returns:
      The patterns, in order; None when there are more than `MOST_ALTERNATIVES`.
    """
    done, todo = list[str](), [pattern]
    while todo:
        here = todo.pop()
        group = next((group for group in _groups(here, verbose) if group.decides()), None)
        if not group:
            done.append(here)
        else:
            cuts = [group.start - 1, *group.bars, group.end]
            branches = [here[a + 1 : b] for a, b in itertools.pairwise(cuts)]
            todo += [here[: group.start] + branch + here[group.end :] for branch in reversed(branches)]
        if len(done) + len(todo) > MOST_ALTERNATIVES:
            return None
    return done


def shortest(pattern: str, *, verbose: bool) -> str:
    """A pattern for the matches that do not begin with a shorter match."""
    inner = pattern + "\n" * verbose  # ends a comment
    return f"(?!(?:{inner})(?s:.))(?:{inner})"


def optional_end(pattern: str, *, verbose: bool) -> int:
    """Where the greedy loops begin with which a pattern ends and that may be left out; its length where it ends in none."""
    cut, begin, depth, at = None, None, 0, 0  # begin: of an item that nothing repeats, so far
    while at < len(pattern):
        found = _QUANTIFIER(pattern, at) if begin is not None and not depth else None
        if found:
            cut = None if not found["optional"] or found["mode"] else begin if cut is None else cut
            begin, at = None, found.end()
        elif verbose and not depth and (pattern[at].isspace() or pattern[at] == "#"):
            at = _after_item(pattern, at, verbose)
        else:
            if not depth:
                cut, begin = None if begin is not None else cut, at
            opens = pattern[at] == "(" and not pattern.startswith("(?#", at)
            depth += opens - (pattern[at] == ")")
            at = at + 1 if opens else _after_item(pattern, at, verbose)
    return len(pattern) if cut is None or begin is not None else cut


def _groups(pattern: str, verbose: bool) -> list[_Group]:
    """All groups, outer ones first."""
    here = _Group(0, None, True, verbose)
    found, at = [here], 0
    while at < len(pattern):
        c = pattern[at]
        if c == "(" and not pattern.startswith("(?#", at):
            here, at = _opened(pattern, at, here)
            found.append(here)
        elif c == ")":
            here.end = at
            here.plain &= not (_QUANTIFIED_VERBOSE if here.verbose else _QUANTIFIED)(pattern, at + 1)
            assert here.parent is not None
            here.parent.has_lazy |= here.has_lazy
            here, at = here.parent, at + 1
        elif c == "|":
            here.bars.append(at)
            at += 1
        else:
            here.has_lazy |= c in "*+?}" and pattern[at + 1 : at + 2] == "?"
            at = _after_item(pattern, at, here.verbose)
    here.end = len(pattern)
    return found


def _opened(pattern: str, at: int, parent: _Group) -> tuple[_Group, int]:
    header = _HEADER(pattern, at)
    plain = bool(header) and not _OTHER_HEADER(pattern, at)
    header = header or _OTHER_HEADER(pattern, at)
    end = header.end() if header else at + 1
    flags = header.groupdict().get("flags") if header else None
    return _Group(end, parent, plain, parent.verbose or "x" in (flags or "")), end


def _after_item(pattern: str, at: int, verbose: bool) -> int:
    """The offset after a character, an escape, a class, a quantifier or a comment."""
    c = pattern[at]
    if c == "[" and (found := _CLASS(pattern, at)):
        return found.end()
    if (c == "(" or (c == "#" and verbose)) and (found := _COMMENT(pattern, at)):
        return found.end()
    if c in "*+?}" and pattern[at + 1 : at + 2] in ("?", "+"):
        return at + 2
    return at + 1 + (c == "\\")
