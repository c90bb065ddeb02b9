"""Pictures of automata and masks: Graphviz text, and matplotlib drawings that need no other program.

Looks at finished artifacts and byte automata only, with or without a stack: `+name` on an arc enters a frame, and an arc `end of
name` leaves one. matplotlib is imported when a plot is asked for.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.artifact.stack_view import symbol_name
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, RETURN, ByteMachine
from fsa_compile.errors import ConstraintError, MissingPackageError
from fsa_compile.inspection.draw_layout import Point, layout
from fsa_compile.inspection.explain import byte_ranges, token_text
from fsa_compile.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fsa_compile.languages.language import Language

Automaton: TypeAlias = CompiledConstraint | CompiledItems | ByteDfa | ByteMachine

_RADIUS = 0.19
INK, LINE, ACCENT, FILL = "#1f2933", "#52606d", "#b44d12", "#e8eef4"


@dataclasses.dataclass(frozen=True)
class Graph:
    """A labelled automaton, cut to the states that are drawn.

    Attributes:
      nodes: state numbers, breadth first from the start, which comes first.
      accepting: those of them that accept.
      edges: (source, target, label), one per pair of drawn states.
      hidden: number of states that are not drawn.
      cut: drawn states with arcs to states that are not.
    """

    nodes: tuple[int, ...]
    accepting: frozenset[int]
    edges: tuple[tuple[int, int, str], ...]
    hidden: int
    cut: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A picture of an automaton for notebooks: by Graphviz where its `dot` is installed, else by matplotlib, else Graphviz text.

    Attributes:
      graph: what is drawn.
      dot: the same as Graphviz text.
    """

    graph: Graph
    dot: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture to a file, whose ending says how: `.svg`, `.png`, `.pdf`, or `.dot` for Graphviz text.

        SVG comes from Graphviz where its `dot` is installed; all else from matplotlib.

        Raises:
          ConstraintError: there is no such ending.
          MissingPackageError: matplotlib is needed, and not installed.
        """
        path = Path(path)
        if path.suffix not in (".svg", ".png", ".pdf", ".dot"):
            raise ConstraintError(f"the ending {path.suffix!r} names no kind of picture", fix="Use .svg, .png, .pdf or .dot.")
        svg = self._svg() if path.suffix == ".svg" else None
        if svg is not None or path.suffix == ".dot":
            path.write_text(self.dot if svg is None else svg, encoding="utf-8")
            return
        figure = plot_graph(self.graph)
        figure.savefig(path, bbox_inches="tight")
        pyplot().close(figure)

    def _svg(self) -> str | None:
        """The picture by Graphviz, None where it is not installed or cannot draw it."""
        if shutil.which("dot") is None:
            return None
        done = subprocess.run(["dot", "-Tsvg"], input=self.dot.encode(), capture_output=True, check=False)
        return done.stdout.decode() if done.returncode == 0 else None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        svg = self._svg()
        if svg is not None:
            return {"image/svg+xml": svg}
        import io

        try:
            figure = plot_graph(self.graph)
        except MissingPackageError:
            return {"text/plain": self.dot}
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
        pyplot().close(figure)
        return {"image/png": buffer.getvalue()}


def draw(automaton: Automaton | Language, tokenizer: Any = None, *, max_nodes: int = 20, max_labels: int = 4) -> Drawing:
    """A picture of an automaton that a notebook shows.

    Args:
      automaton: a compiled constraint (its token automaton), a set of items (its trie), a byte automaton, a byte machine with a
        stack, a `Language` or a pynini acceptor (their byte automata).
      tokenizer: tokenizer or vocabulary whose texts label a constraint's arcs; without it they are ids.
      max_nodes: states to draw, those nearest to the start.
      max_labels: most texts written on one arc.

    Raises:
      ArtifactError: the constraint belongs to another vocabulary.
    """
    graph = build_graph(automaton, tokenizer, max_nodes=max_nodes, max_labels=max_labels)
    return Drawing(graph, graph_to_dot(graph))


def to_dot(automaton: Automaton | Language, tokenizer: Any = None, *, max_nodes: int = 40, max_labels: int = 6) -> str:
    """Graphviz text of an automaton; the arguments are `draw`'s."""
    return graph_to_dot(build_graph(automaton, tokenizer, max_nodes=max_nodes, max_labels=max_labels))


def _written_out(automaton: Any) -> Automaton:
    """A language or an automaton of pynini as the byte automaton that is drawn; all else as it is."""
    if type(automaton).__module__.partition(".")[0] in ("pynini", "_pynini", "_pywrapfst", "pywrapfst"):
        from fsa_compile.languages.constructors import acceptor  # needs pynini, which drawing does not

        automaton = acceptor(automaton)
    return automaton.to_byte_dfa() if hasattr(automaton, "to_byte_dfa") else automaton


def build_graph(automaton: Automaton | Language, tokenizer: Any = None, *, max_nodes: int = 40, max_labels: int = 6) -> Graph:
    """The part of an automaton that is drawn; the arguments are `draw`'s."""
    if max_nodes < 1:
        raise ConstraintError(f"max_nodes is {max_nodes}, so there is nothing to draw", fix="Give 1 or more.")
    automaton = _written_out(automaton)
    if not isinstance(automaton, CompiledItems) and not hasattr(automaton, "start"):
        what = f"a {type(automaton).__name__} cannot be drawn"
        raise ConstraintError(what, fix="Give a compiled constraint, or a language's automaton: regex(...).to_byte_dfa().")
    start = 0 if isinstance(automaton, CompiledItems) else automaton.start
    if isinstance(automaton, ByteDfa):
        out = lambda state: _byte_arcs(automaton, state)  # noqa: E731
        accept, total = automaton.final, automaton.num_states - 1
    elif isinstance(automaton, ByteMachine):
        out = lambda state: _machine_arcs(automaton, state)  # noqa: E731
        accept, total = automaton.end == END_HERE, automaton.num_controls - 1
    else:
        if tokenizer is not None:
            check_vocabulary(automaton, tokenizer)
        vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
        tokens = None if vocabulary is None else vocabulary.tokens
        if isinstance(automaton, CompiledItems):
            out = lambda state: _item_arcs(automaton, tokens, state)  # noqa: E731
            accept, total = automaton.distance == 0, automaton.num_nodes
        else:
            out = lambda state: _token_arcs(automaton, tokens, state, max_labels)  # noqa: E731
            accept, total = automaton.accept, automaton.num_nodes - 1
    nodes, edges, cut = [start], [], set()
    known = {start}
    for source in nodes:  # grows while it is read
        for target, label in out(source):
            if target not in known and len(nodes) < max_nodes:
                known.add(target)
                nodes.append(target)
            if target in known:
                edges.append((source, target, label))
            else:
                cut.add(source)
    accepting = frozenset(n for n in nodes if accept[n])
    return Graph(tuple(nodes), accepting, tuple(edges), total - len(nodes), frozenset(cut))


def graph_to_dot(graph: Graph) -> str:
    """Graphviz text of a graph."""
    lines = [
        "digraph automaton {",
        "  rankdir=LR;",
        '  node [shape=circle, fontname="Helvetica", fontsize=11, style=filled, fillcolor="#e8eef4"];',
        '  edge [fontname="Helvetica", fontsize=10];',
        '  start [shape=point, label=""];',
        f"  start -> {graph.nodes[0]};",
    ]
    lines += [f"  {n} [shape=doublecircle];" for n in graph.nodes if n in graph.accepting]
    lines += [f"  {source} -> {target} [label={_quoted(label)}];" for source, target, label in graph.edges]
    if graph.hidden:
        lines.append(f'  more [shape=plaintext, style="", label="… {graph.hidden:,} more states"];')
        lines += [f"  {n} -> more [style=dashed];" for n in sorted(graph.cut)]
    return "\n".join([*lines, "}", ""])


def plot_automaton(
    automaton: Automaton, tokenizer: Any = None, *, max_nodes: int = 12, max_labels: int = 3, ax: Any = None
) -> Any:
    """Draws an automaton with matplotlib, from left to right by the distance from the start.

    Args:
      automaton, tokenizer, max_nodes, max_labels: as in `draw`.
      ax: axes to draw on; by default a new figure of fitting size.

    Returns:
      The matplotlib figure.

    Raises:
      MissingPackageError: matplotlib is not installed.
    """
    return plot_graph(build_graph(automaton, tokenizer, max_nodes=max_nodes, max_labels=max_labels), ax=ax)


def plot_graph(graph: Graph, *, ax: Any = None) -> Any:
    """Draws a graph with matplotlib; see `plot_automaton`."""
    plt = pyplot()
    from matplotlib.patches import Circle

    pairs = [(source, target) for source, target, _ in graph.edges]
    place, bends = layout(graph.nodes, pairs)
    points = np.array([*place.values(), *(p for way in bends.values() for p in way)])
    low, high = points.min(0) - np.array([0.9, 0.8]), points.max(0) + np.array([0.6, 0.9])
    if ax is None:
        _, ax = plt.subplots(figsize=(high - low) * 0.95, layout="constrained")
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.axis("off")
    for i, (source, target, label) in enumerate(graph.edges):
        back = place[target][0] <= place[source][0]
        _plot_edge(ax, place[source], place[target], bends.get(i, []), label, back=back)
    first = place[graph.nodes[0]]
    arrow = {"arrowstyle": "-|>", "color": LINE, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=(first[0] - _RADIUS, first[1]), xytext=(first[0] - 0.7, first[1]), arrowprops=arrow, zorder=2)
    for node, (x, y) in place.items():
        if node in graph.accepting:
            ax.add_patch(Circle((x, y), _RADIUS + 0.045, fc="white", ec=INK, lw=1.2, zorder=3))
        ax.add_patch(Circle((x, y), _RADIUS, fc=FILL, ec=INK, lw=1.2, zorder=3))
        ax.text(x, y, str(node), ha="center", va="center", fontsize=9 if node < 1000 else 7, color=INK, zorder=4)
        if node in graph.cut:
            ax.text(x + 0.26, y - 0.2, "…", fontsize=12, color=LINE, zorder=4)
    if graph.hidden:
        ax.set_title(f"the {len(graph.nodes)} states nearest to the start; {graph.hidden:,} more", fontsize=9, color=LINE)
    return ax.figure


def plot_mask(
    masks: Sequence[NDArray[np.bool_]],
    tokenizer: Any = None,
    *,
    ids: Sequence[int] | None = None,
    bins: int = 200,
    ax: Any = None,
) -> Any:
    """Draws which tokens are allowed at each step of a text: steps downwards, the vocabulary from left to right.

    Args:
      masks: bool[V] each, one per step.
      tokenizer: tokenizer or vocabulary, to write the tokens of `ids` beside the steps.
      ids: the token that was taken at each step (one fewer than masks, or as many); marked in the picture.
      bins: columns; the ids of one column are drawn by the share of them that is allowed, on a logarithmic scale.
      ax: axes to draw on; by default a new figure of fitting size.

    Returns:
      The matplotlib figure.

    Raises:
      ConstraintError: there is no mask, or (`MissingPackageError`) matplotlib is not installed.
    """
    if len(masks) == 0:
        raise ConstraintError("there is no mask to draw", fix="Give one per step, such as [walk.allowed()].")
    plt = pyplot()
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import PercentFormatter

    grid = np.stack([np.asarray(m, bool) for m in masks])
    size = grid.shape[1]
    bins = min(bins, size)
    edges = np.arange(bins) * size // bins
    widths = np.diff(np.append(edges, size))
    counts = np.add.reduceat(grid, edges, axis=1, dtype=np.int64)
    share = np.where(counts > 0, counts / widths, np.nan)
    if ax is None:
        _, ax = plt.subplots(figsize=(9, max(2.0, 0.3 * len(grid) + 1.3)), layout="constrained")
    shades = plt.get_cmap("YlGnBu")(np.linspace(0.3, 1, 64))  # its first ones cannot be told from the background
    colours = ListedColormap(shades).with_extremes(bad="#f4f4f2")
    norm = LogNorm(1 / widths.max(), 1) if widths.max() > 1 else None
    extent = (0, size, len(grid) - 0.5, -0.5)
    image = ax.imshow(share, aspect="auto", cmap=colours, norm=norm, interpolation="nearest", extent=extent)
    ids = list(ids or [])
    if ids:
        ax.plot(np.array(ids) + 0.5, np.arange(len(ids)), "o", ms=7, mfc="none", mec=ACCENT, mew=1.8, clip_on=False)
    names = _step_names(len(grid), ids, getattr(tokenizer, "vocabulary", tokenizer))
    ax.set_yticks(range(len(grid)), [name.replace("$", r"\$") for name in names], fontsize=9)
    ax.set_xlabel("token id", fontsize=9)
    ax.set_ylabel("step and token taken" if ids else "step", fontsize=9)
    right = ax.secondary_yaxis("right")
    right.set_yticks(range(len(grid)), [f"{n:,}" for n in grid.sum(1)], fontsize=9)
    right.set_ylabel("tokens allowed", fontsize=9)
    ax.tick_params(axis="x", labelsize=9)
    if norm is not None:
        bar = ax.figure.colorbar(image, ax=ax, pad=0.02, fraction=0.03, format=PercentFormatter(1, decimals=0))
        bar.set_label("allowed in the column", fontsize=9)
        bar.ax.tick_params(labelsize=8)
    return ax.figure


def _step_names(steps: int, ids: Sequence[int], vocabulary: Vocabulary | None) -> list[str]:
    """Names of the steps of a text: their numbers, and the tokens taken."""
    if vocabulary is None:
        return [f"{n}" for n in range(steps)]
    stops = set(vocabulary.stop_ids)
    taken = ["end of text" if t in stops else f"'{shortened(token_text(vocabulary.tokens[t]), 14)}'" for t in ids]
    return [f"{taken[n]}  {n}" if n < len(taken) else f"{n}" for n in range(steps)]


def _token_arcs(
    constraint: CompiledConstraint, tokens: Sequence[bytes] | None, state: int, max_labels: int
) -> list[tuple[int, str]]:
    """Targets of a state with the tokens that lead there, in words; targets of few tokens first, frames that end last."""
    found: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for target, push, ids in _effects(constraint, state):
        found.setdefault((target, push), np.zeros(constraint.vocab_size, bool))[ids] = True
    labels: dict[int, list[str]] = {}
    for (target, push), present in sorted(found.items(), key=lambda item: (int(item[1].sum()), item[0])):
        ids = np.flatnonzero(present)
        texts = [str(i) if tokens is None else token_text(tokens[i]) for i in ids[:400]]
        texts = sorted(dict.fromkeys(texts), key=lambda t: (not t.isascii(), "\\x" in t, len(t), t))
        labels.setdefault(target, []).append(_summary(texts, len(ids), max_labels) + _pushed(constraint, push))
    for symbol in range(constraint.num_symbols):
        child = int(constraint.delta[constraint.delta_offset[state] + symbol])
        if child:
            labels.setdefault(child, []).append(f"end of {symbol_name(constraint, symbol)}")
    return [(target, " ".join(dict.fromkeys(parts))) for target, parts in labels.items()]


def _item_arcs(items: CompiledItems, tokens: Sequence[bytes] | None, node: int) -> list[tuple[int, str]]:
    """Children of a trie's node with the token that leads to each."""
    children = range(items.first[node], items.first[node + 1])
    ids = items.token[children.start : children.stop].tolist()
    texts = map(str, ids) if tokens is None else (shortened(token_text(tokens[i]).replace(" ", "␣"), 16) for i in ids)
    return list(zip(children, texts))


def _effects(c: CompiledConstraint, state: int) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(target, push string, tokens) of the token sets of a state."""
    for g in range(c.group_offset[state], c.group_offset[state + 1]):
        yield int(c.group_next[g]), int(c.group_push[g]), c.row_tokens(c.group_row[g])
    for a in range(c.arc_offset[state], c.arc_offset[state + 1]):
        target, push = c.effects[c.arc_effect[a], :2].tolist()
        yield target, push, np.array([c.arc_token[a]], np.int64)


def _pushed(c: CompiledConstraint, push: int) -> str:
    """The frames that a push string enters, in words."""
    symbols = c.push_symbol[c.push_offset[push] : c.push_offset[push + 1]].tolist()
    return "".join(f" +{symbol_name(c, symbol)}" for symbol in symbols)


def _summary(texts: list[str], count: int, max_labels: int) -> str:
    names = [shortened(t.replace(" ", "␣"), 16) for t in texts]
    if len(texts) <= max_labels and count <= 400:
        return " ".join(names)
    return f"{count:,} tokens: {' '.join(names[:max_labels])} …"


def _byte_arcs(dfa: ByteDfa, state: int) -> list[tuple[int, str]]:
    targets = dfa.table[state, dfa.byte_class]
    return [(int(t), byte_ranges(targets == t)) for t in np.unique(targets[targets > 0])]


def _machine_arcs(machine: ByteMachine, state: int) -> list[tuple[int, str]]:
    """Moves and calls of a control by their bytes, and where it returns to when its frame ends."""
    labels: dict[int, list[str]] = {}
    action = machine.action[state][machine.byte_class[:256]]
    name = lambda s: machine.symbol_names[s] if machine.symbol_names else f"frame {s}"  # noqa: E731
    for a in np.unique(action[action > 0]).tolist():
        for e in range(machine.entry_offset[a], machine.entry_offset[a + 1]):
            if machine.entry_next[e] != RETURN:
                pushed = "".join(f" +{name(symbol)}" for symbol, _ in machine.pushes[machine.entry_push[e]])
                labels.setdefault(int(machine.entry_next[e]), []).append(byte_ranges(action == a) + pushed)
    for symbol, target in enumerate(machine.ret[state].tolist()):
        if target:
            labels.setdefault(target, []).append(f"end of {name(symbol)}")
    return [(target, " ".join(dict.fromkeys(parts))) for target, parts in labels.items()]


def shortened(text: str, width: int) -> str:
    """A text of at most `width` characters; … stands for what is cut off."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plot_edge(ax: Any, a: Point, b: Point, bends: list[Point], label: str, *, back: bool) -> None:
    """One arc with its label: straight to the next column, through its bends over several, arched when it leads back."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    start, end = np.array(a), np.array(b)
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "color": LINE, "lw": 1.1, "zorder": 2}
    box = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.85}
    if a == b:
        corners = start + np.array([[-0.14, 0.8], [-0.9, 3.1], [0.9, 3.1], [0.14, 0.8]]) * [1, _RADIUS]
        path = Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        middle = start + np.array([0, 0.62])
    elif back:
        length = float(np.hypot(*(end - start)))
        normal = np.array([start[1] - end[1], end[0] - start[0]]) / max(length, 1e-9)  # below an arc that leads to the left
        lift = normal * (0.3 + 0.22 * length)
        inner = [start + (end - start) * 0.25 + lift, start + (end - start) * 0.75 + lift]
        points = _trimmed([start, *inner, end])
        path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        middle = (start + end) / 2 + 0.75 * lift
    else:
        points = _trimmed([start, *map(np.array, bends), end])
        path = _smooth(points)
        middle = np.array(bends[(len(bends) - 1) // 2]) if bends else (start + end) / 2
    ax.add_patch(FancyArrowPatch(path=path, **style))
    ax.text(*middle, _wrapped(label).replace("$", r"\$"), ha="center", va="center", fontsize=8, color=ACCENT, zorder=5, bbox=box)


def _trimmed(points: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The points with the first and last moved to the border of their state."""
    out = np.array(points, float)
    for end, inner in ((0, 1), (-1, -2)):
        way = out[inner] - out[end]
        out[end] += way / max(float(np.hypot(*way)), 1e-9) * (_RADIUS + 0.04)
    return out


def _smooth(points: NDArray[np.float64]) -> Any:
    """A curve through points from left to right, level at each inner one."""
    from matplotlib.path import Path

    if len(points) == 2:
        return Path(points)
    slopes = np.zeros_like(points)
    slopes[1:-1] = (points[2:] - points[:-2]) / 6
    slopes[0], slopes[-1] = (points[1] - points[0]) / 3, (points[-1] - points[-2]) / 3
    corners = [points[0]]
    for i in range(len(points) - 1):
        corners += [points[i] + slopes[i], points[i + 1] - slopes[i + 1], points[i + 1]]
    return Path(corners, [Path.MOVETO] + [Path.CURVE4] * (len(corners) - 1))


def _wrapped(label: str, width: int = 14) -> str:
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def pyplot() -> Any:
    """matplotlib's plotting module, or an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        ways = "; Graphviz text needs no package: fsa_compile.inspection.draw.to_dot."
        raise MissingPackageError("matplotlib", "drawing", "notebooks", otherwise=ways) from error
    return plt
