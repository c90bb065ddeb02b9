"""Pictures of grammars: their frames as automata over terminals and calls, and the stack along a text. matplotlib when asked for.

`draw` has the pictures of automata; this module makes the graphs of a grammar for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.palette import ACCENT, CALL, FILL, INK, LINE
from fsa_compile.artifact.stack_view import stack_history
from fsa_compile.errors import ConstraintError
from fsa_compile.inspection.automaton_graphs import Graph, shortened
from fsa_compile.inspection.draw import UNIT, arranged, draw_arranged, label_size, plain, pyplot
from fsa_compile.inspection.explain import token_text
from fsa_compile.limits import CompileLimits, Deadline


def frame_graphs(
    text: str, *, start: str | None = None, syntax: Any = None, mode: Any = None, max_nodes: int = 20
) -> dict[str, Graph]:
    """The frames of a grammar: what is called, each an automaton over terminals and calls, by name, the start first.

    Rules that do not embed themselves are not among them: they are written out where they are used.

    Args:
      text, start, syntax, mode: as for `compile_grammar`.
      max_nodes: states to draw of each, those nearest to its start.

    Raises:
      GrammarError: as for `compile_grammar`.
    """
    from fsa_compile.compiler.grammars import parse_grammar, special_tokens
    from fsa_compile.grammar.lexing.terminals import Lexicon
    from fsa_compile.grammar.transition_network import build_network

    limits = CompileLimits()
    deadline = Deadline(limits)
    grammar = parse_grammar(text, start=start, syntax=syntax, mode=mode)
    specials = {node.name: i for i, node in enumerate(special_tokens(grammar))}
    network = build_network(grammar, Lexicon(grammar, specials, limits, deadline), limits, deadline)
    terminals = network.lexicon.terminals
    graphs = {}
    for frame in network.frames:
        between: dict[tuple[int, int], list[str]] = {}
        for state, arcs in enumerate(frame.dfa.arcs):
            for symbol, target in arcs.items():
                name = terminals[symbol].name if symbol >= 0 else f"‹{network.frames[~symbol].name}›"
                between.setdefault((state, target), []).append(shortened(name, 16))
        nodes = [0]
        for node in nodes:  # grows while it is read
            nodes += [t for s, t in between if s == node and t not in nodes and len(nodes) < max_nodes]
        edges = tuple((s, t, ", ".join(names)) for (s, t), names in between.items() if s in nodes and t in nodes)
        cut = frozenset(s for s, t in between if s in nodes and t not in nodes)
        accepting = frozenset(n for n in nodes if frame.dfa.final[n])
        graphs[frame.name] = Graph(tuple(nodes), accepting, edges, len(frame.dfa.arcs) - len(nodes), cut)
    return graphs


def plot_frames(text: str, *, start: str | None = None, syntax: Any = None, mode: Any = None, max_nodes: int = 20) -> Any:
    """Draws the frames of a grammar below one another; ‹name› on an arc is a call of another frame, which the stack remembers.

    Args:
      text, start, syntax, mode, max_nodes: as for `frame_graphs`.

    Returns:
      The matplotlib figure.

    Raises:
      ConstraintError: matplotlib is not installed.
      GrammarError: as for `compile_grammar`.
    """
    graphs = frame_graphs(text, start=start, syntax=syntax, mode=mode, max_nodes=max_nodes)
    plt = pyplot()
    places = {name: arranged(graph) for name, graph in graphs.items()}
    sizes = {name: (place.high - place.low) * UNIT for name, place in places.items()}
    wide, title = max(3.0, *(size[0] for size in sizes.values())), 0.3
    top = high = sum(size[1] + title for size in sizes.values())
    figure = plt.figure(figsize=(wide, high))
    for name, graph in graphs.items():
        across, down = sizes[name]
        top -= down + title
        ax = figure.add_axes((0, top / high, across / wide, down / high))
        draw_arranged(ax, graph, places[name])
        ax.set_title(name + (f" ({graph.remark})" if graph.remark else ""), fontsize=10, color=INK, loc="left")
    return figure


def plot_stack(constraint: CompiledConstraint, tokenizer: Any, ids: Sequence[int], *, ax: Any = None) -> Any:
    """Draws the stack along a text: tokens from left to right, open frames as bars, the outermost at the bottom.

    Args:
      constraint: the artifact. Where it follows several configurations, the first one is drawn.
      tokenizer: its tokenizer, or the vocabulary.
      ids: tokens of the text, allowed one after the other.
      ax: axes to draw on, all in one line; by default a new figure, with long texts on several lines.

    Returns:
      The matplotlib figure.

    Raises:
      ArtifactError: the constraint belongs to another vocabulary.
      ConstraintError: a token is not allowed, or matplotlib is not installed.
    """
    check_vocabulary(constraint, tokenizer)
    tokens = getattr(tokenizer, "vocabulary", tokenizer).tokens
    bars = stack_bars(constraint, ids)
    plt = pyplot()
    names = [plain(shortened(token_text(tokens[i]).replace(" ", "␣"), 12)) for i in ids]
    wide = np.array([max(0.3, float(label_size(name, 9)[0]) * UNIT + 0.06) for name in names])
    for _, begin, end, name in bars:  # wide enough for the names of short frames, too
        named = min(float(label_size(plain(name), 8)[0]) * UNIT + 0.1, 1.4)
        wide[begin:end] *= max(1.0, named / max(wide[begin:end].sum(), 0.1))
    edge = np.concatenate([[0.0], np.cumsum(wide)])
    lines = [(0, len(names))] if ax is not None else _lines(edge)
    height = max((level for level, *_ in bars), default=0) + 1
    if ax is None:
        size = (max(4.0, 0.5 + max(edge[b] - edge[a] for a, b in lines)), len(lines) * (0.4 * height + 0.55))
        figure, grid = plt.subplots(len(lines), 1, figsize=size, layout="constrained", squeeze=False)
        width = size[0] - 0.5
        axes = list(grid[:, 0])
    else:
        figure, axes, width = ax.figure, [ax], max(edge[-1], 0.3)
    for one, (first, last) in zip(axes, lines):
        _plot_bars(one, bars, edge, first, last)
        one.set_xticks((edge[first:last] + edge[first + 1 : last + 1]) / 2, names[first:last])
        one.tick_params(axis="x", labelsize=9, labelcolor=ACCENT)
        one.set(xlim=(edge[first], edge[first] + width), ylim=(0, height), yticks=[])
        one.spines[["top", "right", "left"]].set_visible(False)
    axes[0].set_ylabel("open frames", fontsize=9)
    return figure


_LINE = 10.5
"""Inches of tokens on one line of `plot_stack`."""


def _lines(edge: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The lines of a text as (first, behind the last) of their tokens, of about one length, given where the tokens begin."""
    total = float(edge[-1])
    count = max(1, int(np.ceil(total / _LINE)))
    cuts = [0, *(int(np.searchsorted(edge, total * n / count)) for n in range(1, count)), len(edge) - 1]
    return [(a, b) for a, b in itertools.pairwise(cuts) if b > a] or [(0, 0)]


def _plot_bars(ax: Any, bars: list[tuple[int, int, int, str]], edge: NDArray[np.float64], first: int, last: int) -> None:
    """The bars over one line of tokens; open at a side where they go on in another line."""
    from matplotlib.patches import FancyBboxPatch

    for level, begin, end, name in bars:
        left, right = max(begin, first), min(end, last)
        if right <= left:
            continue
        x, wide = edge[left] + 0.03, edge[right] - edge[left] - 0.06
        box: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.08", "ec": LINE, "lw": 0.9}
        box["fc"] = CALL if level % 2 else FILL
        ax.add_patch(FancyBboxPatch((x, level + 0.08), wide, 0.84, **box))
        shown = plain(name + " …" if right < end else name)
        while len(shown) > 1 and float(label_size(shown, 8)[0]) * UNIT > wide:
            shown = shortened(shown, len(shown) - 1)
        ax.text(x + wide / 2, level + 0.5, shown, ha="center", va="center", fontsize=8, color=INK)


def plot_blocks(constraint: CompiledConstraint, tokenizer: Any, ids: Sequence[int], *, rule: str = "block") -> Any:
    """Draws a text line by line, and beside it the open frames of a rule, the outermost first: the stack of indentation.

    Args:
      constraint: the artifact. Where it follows several configurations, the first one is drawn.
      tokenizer: its tokenizer, or the vocabulary.
      ids: tokens of the text, allowed one after the other.
      rule: the grammar's rule whose frames are drawn; what several rules share is drawn for each of them.

    Returns:
      The matplotlib figure.

    Raises:
      ArtifactError: the constraint belongs to another vocabulary.
      ConstraintError: a token is not allowed, no frame is called so, or matplotlib is not installed.
    """
    check_vocabulary(constraint, tokenizer)
    known = {one for name in constraint.extra.get("symbols", []) for one in _rules(name)}
    if rule not in known:
        what = f"The constraint has no frame of a rule {rule!r:.60}"
        raise ConstraintError(what, fix=f"It has: {', '.join(sorted(one for one in known if one.isidentifier()))}.")
    tokens = getattr(tokenizer, "vocabulary", tokenizer).tokens
    boxes = block_lines([tokens[i] for i in ids], stack_bars(constraint, ids), rule)
    lines = b"".join(tokens[i] for i in ids).decode("utf-8", "replace").rstrip("\n").split("\n")
    plt = pyplot()
    from matplotlib.patches import FancyBboxPatch

    deep, row, column = max((level for level, *_ in boxes), default=-1) + 1, 0.22, 0.34
    shown = [plain(line) for line in lines]
    wide = column * deep + 0.2 + max(float(label_size(line, 9)[0]) for line in shown) * 1.25 * UNIT
    figure = plt.figure(figsize=(max(4.0, wide), row * (len(lines) + 1)))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, figure.get_figwidth()), ylim=(row * len(lines), -row))
    ax.set_axis_off()
    ax.text(0.05, -0.5 * row, f"open frames of {plain(rule)}", va="center", fontsize=8, color=LINE)
    for level, first, last in boxes:
        place, size = (column * level + 0.04, row * first + 0.03), (column - 0.08, row * (last - first + 1) - 0.06)
        look = "round,pad=0,rounding_size=0.06"
        ax.add_patch(FancyBboxPatch(place, *size, boxstyle=look, fc=CALL if level % 2 else FILL, ec=LINE, lw=0.9))
        ax.text(place[0] + size[0] / 2, place[1] + size[1] / 2, str(level + 1), ha="center", va="center", fontsize=8, color=INK)
    for number, line in enumerate(shown):
        ax.text(column * deep + 0.12, row * (number + 0.5), line, va="center", fontsize=9, color=INK, family="monospace")
    return figure


def _rules(name: str) -> set[str]:
    """The rules and terminals that a frame's name in an artifact stands for."""
    return {one.partition("#")[0] for one in name.split(" | ")}


def block_lines(written: Sequence[bytes], bars: list[tuple[int, int, int, str]], rule: str) -> list[tuple[int, int, int]]:
    """The lines on which frames of a rule are open: (how many more are around it, first line, last line).

    A frame that is entered or left between two lines belongs to the lines whose text it has, not to the blank ones around it.
    A token that leaves one counts as text behind it.

    Args:
      written: what the tokens of the text write.
      bars: from `stack_bars`.
      rule: its name.
    """
    text, edge = b"".join(written), np.cumsum([0, *map(len, written)])
    kept = [(begin, end) for _, begin, end, name in bars if rule in _rules(name)]
    boxes = []
    for begin, end in kept:
        head, tail = text[: edge[begin + 1]].rstrip(), text[: edge[end]].rstrip()
        before = head if len(head) > edge[begin] else text[: len(text) - len(text[edge[begin] :].lstrip())]
        around = sum(first <= begin and end <= last for first, last in kept) - 1
        boxes.append((around, before.count(b"\n"), tail.count(b"\n")))
    return sorted(boxes)


def stack_bars(constraint: CompiledConstraint, ids: Iterable[int]) -> list[tuple[int, int, int, str]]:
    """Where the frames of a text are open: (level, first token, token after the last one, name), outermost first.

    Raises:
      ConstraintError: a token is not allowed.
    """
    try:
        history = stack_history(constraint, ids)
    except ValueError as error:
        raise ConstraintError(str(error), fix="Ask fsa_compile.inspection.explain.explain why.") from error
    stacks = [[(frame.since, frame.name) for frame in views[0].frames] for views in history[1:]]
    bars: list[tuple[int, int, int, str]] = []
    open_: list[tuple[int, str]] = []
    begins: list[int] = []
    for position, stack in enumerate([*stacks, []]):
        same = next((i for i, (a, b) in enumerate(zip(open_, stack)) if a != b), min(len(open_), len(stack)))
        for level in range(len(open_) - 1, same - 1, -1):
            bars.append((level, begins[level], max(position, begins[level] + 1), open_[level][1]))
        open_ = list(stack)
        begins = begins[:same] + [position] * (len(stack) - same)
    return sorted(bars)
