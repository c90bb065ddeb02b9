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
    from fsa_compile.grammar.terminals import Lexicon
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
