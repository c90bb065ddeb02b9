"""Small byte machines with a stack, written down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine

BACK = "return"
"""Target of an arc that returns."""


class Arc(NamedTuple):
    """Reading one of `symbols` (bytes, or 256 + i) in `source`: `target`, or BACK; pushes are (symbol, add) or symbol names."""

    source: str
    symbols: Sequence[int]
    target: str
    push: Sequence[str | tuple[str, int]] = ()
    add: int = 0


def machine(
    arcs: Sequence[Arc],
    returns: dict[tuple[str, str], str],
    *,
    ends: Sequence[str],
    end_returns: Sequence[str] = (),
    start: str = "start",
    stack: Sequence[str] = (),
    specials: tuple[int, ...] = (),
    bounds: dict[str, tuple[int, int]] | None = None,
    deterministic: bool = True,
) -> ByteMachine:
    """The machine of some arcs.

    Args:
      returns: control after returning from a control through a symbol.
      ends, end_returns: controls where the text may end, and that return at the end.
      bounds: of counted controls.
    """
    names = list(dict.fromkeys([start, *(n for a in arcs for n in (a.source, a.target) if n != BACK), *returns.values()]))
    controls = {name: i + 1 for i, name in enumerate(names)}
    pushes = [tuple((p, 0) if isinstance(p, str) else p for p in a.push) for a in arcs]
    symbols = {name: i for i, name in enumerate(dict.fromkeys([*stack, *(n for p in pushes for n, _ in p), *(s for _, s in returns)]))}
    size, wide = len(controls) + 1, 256 + len(specials)
    entries: dict[tuple[int, int, int], int] = {}
    strings: dict[tuple[tuple[int, int], ...], int] = {(): 0}
    cells: dict[tuple[int, int], list[int]] = {}
    for arc, push in zip(arcs, pushes):
        string = strings.setdefault(tuple((symbols[n], add) for n, add in push), len(strings))
        target = RETURN if arc.target == BACK else controls[arc.target]
        entry = entries.setdefault((target, string, arc.add), len(entries))
        for symbol in arc.symbols:
            cells.setdefault((controls[arc.source], symbol), []).append(entry)
    actions: dict[tuple[int, ...], int] = {(): 0}
    action = np.zeros((size, wide), np.int32)
    for (control, symbol), found in cells.items():
        action[control, symbol] = actions.setdefault(tuple(sorted(set(found))), len(actions))
    columns, byte_class = np.unique(action, axis=1, return_inverse=True)
    listed = [e for found in actions for e in found]
    ret = np.zeros((size, len(symbols)), np.int32)
    for (control, symbol), after in returns.items():
        ret[controls[control], symbols[symbol]] = controls[after]
    end = np.full(size, NO_END, np.int8)
    end[[controls[n] for n in ends]] = END_HERE
    end[[controls[n] for n in end_returns]] = END_RETURN
    limits = np.full((size, 2), UNCOUNTED, np.int32)
    for name, pair in (bounds or {}).items():
        limits[controls[name]] = pair
    keys = list(entries)
    return ByteMachine(
        byte_class=byte_class.ravel().astype(np.int32),
        specials=specials,
        action=columns.astype(np.int32),
        entry_offset=np.cumsum([0, *map(len, actions)]).astype(np.int32),
        entry_next=np.array([keys[e][0] for e in listed], np.int32),
        entry_push=np.array([keys[e][1] for e in listed], np.int32),
        entry_add=np.array([keys[e][2] for e in listed], np.int8),
        pushes=tuple(strings),
        ret=ret,
        end=end,
        bounds=limits,
        start=controls[start],
        stack=tuple(symbols[n] for n in stack),
        control_names=("", *names),
        symbol_names=tuple(symbols),
        deterministic=deterministic,
    )


def nested_lists() -> ByteMachine:
    """`value: "[" (value ("," value)*)? "]" | word` where a word is a callee that returns on the byte after it."""
    arcs = [
        Arc("start", b"[", "open", ["top"]),
        Arc("start", b"ab", "word", ["top"]),
        Arc("open", b"[", "open", ["item"]),
        Arc("open", b"ab", "word", ["item"]),
        Arc("open", b"]", "closed"),
        Arc("item", b",", "comma"),
        Arc("item", b"]", "closed"),
        Arc("comma", b"[", "open", ["item"]),
        Arc("comma", b"ab", "word", ["item"]),
        Arc("word", b"ab", "word"),
        Arc("word", b",]", BACK),
        Arc("closed", b",]", BACK),
    ]
    returns = {("word", "top"): "done", ("closed", "top"): "done", ("word", "item"): "item", ("closed", "item"): "item"}
    return machine(arcs, returns, ends=["done"], end_returns=["word", "closed"])


def negations() -> ByteMachine:
    """`e: "n" e | "a"+ | "(" e ")" | "<" e ">"`: `n` and names are called together, and which one it was decides what follows.

    A bracket pushes two symbols at once, and endings of words differ in what they ask for.
    """

    def begins(control: str, where: str) -> list[Arc]:
        return [
            Arc(control, b"n", "not", [f"word in {where}"]),
            Arc(control, b"a", "name", [f"word in {where}"]),
            Arc(control, b"(", "body", [f"group in {where}", "round"]),
            Arc(control, b"<", "body", [f"group in {where}", "angle"]),
        ]

    arcs = [
        *begins("start", "main"),
        *begins("body", "body"),
        Arc("not", b"na(<", BACK),
        Arc("name", b"a", "name"),
        Arc("name", b")>", BACK),
        Arc("full", b")>", BACK),
        Arc("close round", b")", "closed"),
        Arc("close angle", b">", "closed"),
        Arc("closed", b")>", BACK),
    ]
    returns = {
        ("not", "word in main"): "start",
        ("not", "word in body"): "body",
        ("name", "word in main"): "done",
        ("name", "word in body"): "full",
        ("full", "round"): "close round",
        ("full", "angle"): "close angle",
        ("closed", "group in main"): "done",
        ("closed", "group in body"): "full",
    }
    return machine(arcs, returns, ends=["done"], end_returns=["name", "closed"])


def tool_calls(open_id: int, close_id: int) -> ByteMachine:
    """Words and calls, a call being a special token, a nested list, and another special token."""
    arcs = [
        Arc("start", b"ab ", "start"),
        Arc("start", [256], "call", ["call"]),
        Arc("call", b"[", "list", ["outer"]),
        Arc("list", b"[", "list", ["inner"]),
        Arc("list", b"]", "closed"),
        Arc("closed", b"[]", BACK),
        Arc("closed", [257], BACK),
        Arc("last", [257], "called"),
        Arc("called", b"ab ", BACK),
        Arc("called", [256], BACK),
    ]
    returns = {("closed", "inner"): "list", ("closed", "outer"): "last", ("called", "call"): "start"}
    return machine(arcs, returns, ends=["start"], end_returns=["called"], specials=(open_id, close_id))


def counted_lists(low: int, high: int) -> ByteMachine:
    """`value: "a"+ | "[" value ("," value){low,high} "]"`: a loop over values that nest, its counter saved by every call."""
    arcs = [
        Arc("start", b"[", "value", ["top", "loop"]),
        Arc("value", b"a", "word"),
        Arc("value", b"[", "value", ["item", "loop"]),
        Arc("word", b"a", "word"),
        Arc("word", b",", "value", (), 1),
        Arc("word", b"]", BACK),
        Arc("after", b",", "value", (), 1),
        Arc("after", b"]", BACK),
        Arc("close", b"]", "closed"),
        Arc("closed", b",]", BACK),
    ]
    returns = {
        ("word", "loop"): "close",
        ("after", "loop"): "close",
        ("closed", "item"): "after",
        ("closed", "top"): "done",
    }
    bounds = dict.fromkeys(("value", "word", "after"), (low, high))
    return machine(arcs, returns, ends=["done"], end_returns=["closed"], bounds=bounds)


def counted_words(low: int, high: int) -> ByteMachine:
    """`("(" [ab]{low,high} ")" | "<" [ab]{low,high} "a>")*`; where the bounds are equal, an `a` may count or end the loop."""
    arcs = [
        Arc("start", b"(", "round", ["end of round"]),
        Arc("round", b"ab", "round", (), 1),
        Arc("round", b")", BACK),
        Arc("closing", b")", "start"),
    ]
    returns = {("round", "end of round"): "closing"}
    if low == high:
        arcs += [
            Arc("start", b"<", "angle", ["end of angle"]),
            Arc("angle", b"ab", "angle", (), 1),
            Arc("angle", b"a", BACK),
            Arc("last", b"a", "closing angle"),
            Arc("closing angle", b">", "start"),
        ]
        returns[("angle", "end of angle")] = "last"
    bounds = {"round": (low, high), **({"angle": (low, high)} if low == high else {})}
    return machine(arcs, returns, ends=["start"], bounds=bounds)


def prefixed_words(low: int, high: int) -> ByteMachine:
    """`(("a" | "bb"){low,high} ";")*` with pushes on the first letter, which counts at once."""
    arcs = [
        Arc("start", b"a", "loop", ["end"], 1),
        Arc("start", b"b", "half", ["end"], 1),
        Arc("half", b"b", "loop"),
        Arc("loop", b"a", "loop", (), 1),
        Arc("loop", b"b", "half", (), 1),
        Arc("loop", b";", BACK),
        Arc("closing", b";", "start"),
    ]
    bounds = {"loop": (low, high), "half": (low, high)}
    return machine(arcs, {("loop", "end"): "closing"}, ends=["start"], bounds=bounds)


def undecided(most: int) -> ByteMachine:
    """`x ("a"{n} "c" "b"{m})` for n, m up to `most` such that m <= n: every `a` pushes or not, which shows only at the end."""
    arcs = [
        Arc("start", b"x", "letters 0", ["bottom"]),
        *(Arc(f"letters {i}", b"a", f"letters {i + 1}") for i in range(most)),
        *(Arc(f"letters {i}", b"a", f"letters {i + 1}", ["b"]) for i in range(most)),
        *(Arc(f"letters {i}", b"c", "end") for i in range(most + 1)),
        Arc("end", b"b", BACK),
        Arc("want", b"b", "end"),
    ]
    returns = {("end", "b"): "want", ("end", "bottom"): "done"}
    return machine(arcs, returns, ends=["done"], end_returns=["end"], deterministic=False)
