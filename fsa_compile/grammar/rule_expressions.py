"""Expressions over numbers of terminals and calls, between a grammar's rules and their automata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Node: TypeAlias = "tuple[Any, ...]"
"""An expression over numbers: `("terminal", t)`, `("rule", name)`, `("core", name)` (its non-empty texts), `("call", frame)`,
`("sequence", *parts)`, `("choice", *branches)`, `("star", part)`, `("nonempty", part)`, `("upto", part, times)`, and for what is
counted `("count", rule, frame)`, whose rule's body is `("loop", part, number)`."""

EMPTY: Node = ("sequence",)


def sequence(*parts: Node) -> Node:
    """Parts one after the other, without nesting."""
    flat: list[Node] = []
    for part in parts:
        if part[0] == "sequence":
            flat += part[1:]
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else ("sequence", *flat)


def choice(*branches: Node) -> Node:
    """One of several branches, without nesting and repetition."""
    flat: dict[Node, None] = {}
    for branch in branches:
        flat.update(dict.fromkeys(branch[1:] if branch[0] == "choice" else (branch,)))
    return next(iter(flat)) if len(flat) == 1 else ("choice", *flat)


def branches_of(node: Node) -> tuple[Node, ...]:
    """The branches of a choice, or the node alone."""
    return node[1:] if node[0] == "choice" else (node,)


def references(node: Node) -> Iterator[str]:
    """Rules that are named in an expression and not called."""
    if node[0] in ("rule", "core"):
        yield node[1]
    elif node[0] not in ("terminal", "call", "count"):
        for part in node[1:]:
            if isinstance(part, tuple):
                yield from references(part)


def terminals_in(node: Node) -> Iterator[int]:
    """Terminals that stand in an expression itself."""
    if node[0] == "terminal":
        yield node[1]
    elif node[0] not in ("rule", "core", "call", "count"):
        for part in node[1:]:
            if isinstance(part, tuple):
                yield from terminals_in(part)


def recurs(node: Node, component: set[str]) -> bool:
    """Whether an expression names a rule of a component."""
    return any(name in component for name in references(node))


def speaks(node: Node) -> bool:
    """Whether a terminal, or a counted repetition, stands in an expression."""
    if node[0] in ("terminal", "count"):
        return True
    return node[0] not in ("rule", "core", "call") and any(speaks(part) for part in node[1:] if isinstance(part, tuple))


def without(node: Node, speaking: set[str]) -> Node:
    """The expression without references to other rules than these."""
    match node[0]:
        case "rule":
            return node if node[1] in speaking else EMPTY
        case "terminal" | "count":
            return node
        case "sequence":
            return sequence(*(without(part, speaking) for part in node[1:]))
        case "choice":
            return choice(*(without(branch, speaking) for branch in node[1:]))
        case _:
            part = without(node[1], speaking)
            return EMPTY if part == EMPTY else (node[0], part, *node[2:])


def with_calls(node: Node, numbers: dict[str, int], nullable: set[str]) -> Node:
    """The expression with references to some rules as calls of frames.

    Args:
      numbers: the frame of each rule that is called.
      nullable: rules that have the empty text, which is no text of a frame.
    """
    match node[0]:
        case "rule" if node[1] in numbers:
            call: Node = ("call", numbers[node[1]])
            return choice(call, EMPTY) if node[1] in nullable else call
        case "terminal" | "rule" | "core" | "call" | "count":
            return node
        case "sequence":
            return sequence(*(with_calls(part, numbers, nullable) for part in node[1:]))
        case "choice":
            return choice(*(with_calls(branch, numbers, nullable) for branch in node[1:]))
        case _:
            return (node[0], with_calls(node[1], numbers, nullable), *node[2:])


def strong_components(needs: dict[str, list[str]]) -> list[set[str]]:
    """Strongly connected components of a graph, those without needs in others first. Source: R. Tarjan, 1972."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    out: list[set[str]] = []
    for root in needs:
        todo = [(root, iter(needs[root]))] if root not in index else []
        if todo:
            index[root] = low[root] = len(index)
            path.append(root)
            on_path.add(root)
        while todo:
            name, others = todo[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    on_path.add(other)
                    todo.append((other, iter(needs[other])))
                    break
                if other in on_path:
                    low[name] = min(low[name], index[other])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[name])
                if low[name] == index[name]:
                    component: set[str] = set()
                    while name not in component:
                        component.add(path.pop())
                    on_path -= component
                    out.append(component)
    return out


def recursive_components(needs: dict[str, list[str]]) -> list[set[str]]:
    """The components whose members need themselves."""
    return [c for c in strong_components(needs) if len(c) > 1 or any(n in needs[n] for n in c)]
