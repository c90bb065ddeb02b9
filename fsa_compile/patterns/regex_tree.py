"""The nodes of a parsed pattern. Each knows its span in the pattern's text; none knows automata.

Flags are already resolved: a node means the same wherever it stands.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from fsa_compile.unicode.code_points import CodePointSet

AnchorKind: TypeAlias = Literal[
    "text start", "text end", "line start", "line end", "end or final newline", "word boundary", "no word boundary"
]


@dataclasses.dataclass(slots=True)
class Text:
    """A run of literal characters."""

    text: str
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Chars:
    """One character out of a set."""

    members: CodePointSet
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Concat:
    """Items one after the other; no items match the empty text."""

    items: list[Node]
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Alternate:
    """One of several branches."""

    branches: list[Node]
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Repeat:
    """`low` to `high` times the item (`high` None: any number). Lazy and greedy loops have the same language."""

    item: Node
    low: int
    high: int | None
    start: int
    end: int
    lazy: bool = False


@dataclasses.dataclass(slots=True)
class Atomic:
    """An item whose first match is final: `(?>...)`, or a possessive quantifier."""

    item: Node
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Anchor:
    """A place in the text, of no width. `word` holds the word characters of a boundary."""

    kind: AnchorKind
    word: CodePointSet
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Look:
    """A condition on the text after (or `behind`: before) this place."""

    item: Node
    behind: bool
    negative: bool
    start: int
    end: int


Node: TypeAlias = Text | Chars | Concat | Alternate | Repeat | Atomic | Anchor | Look


def children(node: Node) -> list[Node]:
    """The nodes that a node is made of."""
    if isinstance(node, Concat):
        return node.items
    if isinstance(node, Alternate):
        return node.branches
    return [node.item] if isinstance(node, Repeat | Atomic | Look) else []


def widths(node: Node) -> tuple[int, float]:
    """Lengths of a node's shortest and longest text in characters, conditions taken to hold; the second may be infinite."""
    if isinstance(node, Text):
        return len(node.text), len(node.text)
    if isinstance(node, Chars):
        return 1, 1
    if isinstance(node, Anchor | Look):
        return 0, 0
    parts = [widths(part) for part in children(node)]
    if isinstance(node, Alternate):
        return min(low for low, _ in parts), max(high for _, high in parts)
    low, high = sum(low for low, _ in parts), sum(high for _, high in parts)
    if isinstance(node, Repeat):
        return low * node.low, high and (high * node.high if node.high is not None else float("inf"))
    return low, high


def has_lazy_loop(tree: Node) -> bool:
    """Whether a lazy loop that may make several numbers of rounds is in a tree, outside conditions."""
    if isinstance(tree, Repeat) and tree.lazy and tree.low != tree.high:
        return True
    return not isinstance(tree, Look) and any(map(has_lazy_loop, children(tree)))
