"""Pictures of grammars: their frames as automata over terminals and calls, and the stack along a text. matplotlib when asked for.

`draw` has the pictures of automata; this module makes the graphs of a grammar for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.stack_view import stack_history
from fsa_compile.errors import ConstraintError
from fsa_compile.inspection.draw import ACCENT, FILL, INK, LINE, Graph, plot_graph, pyplot, shortened
from fsa_compile.inspection.explain import token_text
from fsa_compile.limits import CompileLimits, Deadline

_CALL_FILL = "#f6e3d3"


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
        edges = tuple((s, t, " ".join(names)) for (s, t), names in between.items() if s in nodes and t in nodes)
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
    figure, axes = plt.subplots(len(graphs), 1, figsize=(9, 2.2 * len(graphs)), layout="constrained", squeeze=False)
    for ax, (name, graph) in zip(axes[:, 0], graphs.items()):
        plot_graph(graph, ax=ax)
        ax.set_title(name + (f" ({graph.hidden:,} more states)" if graph.hidden else ""), fontsize=10, color=INK, loc="left")
    right = max(ax.get_xlim()[1] for ax in axes[:, 0])
    low, high = min(ax.get_ylim()[0] for ax in axes[:, 0]), max(ax.get_ylim()[1] for ax in axes[:, 0])
    for ax in axes[:, 0]:  # one scale for all
        ax.set(xlim=(ax.get_xlim()[0], right), ylim=(low, high))
    figure.set_size_inches(min(12.0, 0.95 * (right + 1)), 0.95 * (high - low) * len(graphs))
    return figure


def plot_stack(constraint: CompiledConstraint, tokenizer: Any, ids: Sequence[int], *, ax: Any = None) -> Any:
    """Draws the stack along a text: tokens from left to right, open frames as bars, the outermost at the bottom.

    Args:
      constraint: the artifact. Where it follows several configurations, the first one is drawn.
      tokenizer: its tokenizer, or the vocabulary.
      ids: tokens of the text, allowed one after the other.
      ax: axes to draw on; by default a new figure of fitting size.

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
    from matplotlib.patches import FancyBboxPatch

    height = max((level for level, *_ in bars), default=0) + 1
    if ax is None:
        _, ax = plt.subplots(figsize=(max(5.0, 0.55 * len(ids) + 1), 0.42 * height + 1.2), layout="constrained")
    for level, begin, end, name in bars:
        box: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.12", "ec": LINE, "lw": 0.9}
        box["fc"] = _CALL_FILL if level % 2 else FILL
        ax.add_patch(FancyBboxPatch((begin + 0.04, level + 0.08), end - begin - 0.08, 0.84, **box))
        shown = shortened(name, max(1, int((end - begin) * 6.5)))
        ax.text((begin + end) / 2, level + 0.5, shown.replace("$", r"\$"), ha="center", va="center", fontsize=8, color=INK)
    names = [shortened(token_text(tokens[i]).replace(" ", "␣"), 12) for i in ids]
    ax.set_xticks([i + 0.5 for i in range(len(ids))], [n.replace("$", r"\$") for n in names], fontsize=9, color=ACCENT)
    ax.set(xlim=(0, max(len(ids), 1)), ylim=(0, height), yticks=[])
    ax.set_ylabel("open frames", fontsize=9)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax.figure


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
