r"""Conditions at the very begin of a terminal: what may not stand before it, as in `/\bnot/` and `/(?<![0-9.])[0-9]+/`.

In longest-match mode such a condition is no part of the lexeme: it says where one may begin, by the text before that. Which texts
these are is regular (`before_of`), so that an automaton beside the text knows which conditions hold.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fsa_compile.patterns.regex_tree import Alternate, Anchor, Chars, Concat, Look, Node, Repeat, Text
from fsa_compile.patterns.trailing_guards import condition_at_edge, edge
from fsa_compile.unicode.code_points import ANY, NONE, CodePointSet, complement, intersection, single, union

Behind = tuple[Look | Anchor, ...]
"""Conditions on the text before a place, all of which must hold."""


def split_begin(tree: Node) -> tuple[Node, Behind]:
    """A terminal's tree without the conditions at its begin, and these. Conditions of other kinds stay where they are.

    Alternatives with different conditions keep them.
    """
    match tree:
        case Concat(items=items):
            behind: list[Look | Anchor] = []
            for place, item in enumerate(items):
                if (found := _behind(item, items[place + 1 :])) is not None:
                    behind.append(found)
                elif not isinstance(item, Look | Anchor):
                    bare, more = split_begin(item)
                    rest = [other for other in items[:place] if isinstance(other, Look) and not other.behind]
                    return Concat([*rest, bare, *items[place + 1 :]], tree.start, tree.end), (*behind, *more)
        case Alternate(branches=branches):
            parts = [split_begin(branch) for branch in branches]
            if len({tuple(map(_shape, behind)) for _, behind in parts}) == 1:
                return Alternate([bare for bare, _ in parts], tree.start, tree.end), parts[0][1]
    return tree, ()


def before_of(behind: Behind) -> Node:
    """A tree of the texts behind which all conditions hold."""
    return Concat([Repeat(Chars(ANY, 0, 0), 0, None, 0, 0), *behind], 0, 0)


def _behind(condition: Node, rest: list[Node]) -> Look | Anchor | None:
    """The condition on the text before a place that a condition before some nodes is; None when it is no such condition."""
    match condition:
        case Look(item=item, behind=True):
            return None if condition_at_edge(item, leading=False) else condition
        case Anchor(kind="text start" | "line start"):
            return condition
        case Anchor(kind=kind, word=word) if kind.endswith("word boundary"):
            first = _first_characters(Concat(rest, 0, 0))
            inside = first is not None and intersection(first, complement(word)) == NONE
            if first is None or (not inside and intersection(first, word) != NONE):
                return None
            return Look(Chars(word, 0, 0), True, inside == (kind == "word boundary"), 0, 0)
    return None


def _first_characters(tree: Node) -> CodePointSet | None:
    """The characters with which a text of the tree may begin; None when that is not known."""
    out = NONE
    for node in edge(tree, leading=True):
        match node:
            case Chars(members=members):
                out = union(out, members)
            case Text(text=text) if text:
                out = union(out, single(ord(text[0])))
    return None if out == NONE else out


def _shape(node: Any) -> Any:
    """What a node says, wherever it stands in the pattern."""
    if isinstance(node, list):
        return tuple(map(_shape, node))
    if not dataclasses.is_dataclass(node):
        return node
    fields = (field.name for field in dataclasses.fields(node) if field.name not in ("start", "end"))
    return type(node).__name__, *(_shape(getattr(node, name)) for name in fields)
