"""Pictures of automata and masks: Graphviz text, and matplotlib drawings that need no other program.

`fsa_compile.draw(...)` is `draw.draw(...)`. `automaton_graphs` makes the graphs; matplotlib is imported when a plot is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.palette import ACCENT, FILL, HEAT, INK, LINE, STYLE
from fsa_compile.errors import CallError, ConstraintError, MissingPackageError, is_whole, naming
from fsa_compile.inspection import automaton_graphs as graphs
from fsa_compile.inspection.automaton_graphs import Automaton, Graph, graph_to_dot
from fsa_compile.inspection.draw_labels import RADIUS, Arrangement, arrange
from fsa_compile.inspection.explain import token_text
from fsa_compile.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fsa_compile.languages.language import Language

__all__ = [
    "STYLE", "Drawing", "Graph", "build_graph", "draw", "graph_to_dot", "plot_automaton", "plot_graph", "plot_mask", "to_dot",
]  # fmt: skip

UNIT, LABEL = 0.95, 9
"""Inches of one unit of a drawing; points of its labels."""


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
        return _labels_on_top(done.stdout.decode()) if done.returncode == 0 else None

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


_EDGE = re.compile(r'<g id="[^"]*" class="edge">.*?</g>\n', re.DOTALL)
_TEXT = re.compile(r"<text .*?</text>\n", re.DOTALL)


def _labels_on_top(svg: str) -> str:
    """A picture by Graphviz whose arcs' labels are drawn after all arcs, on a white rim: it lets arcs pass through labels."""
    labels = [text for edge in _EDGE.findall(svg) for text in _TEXT.findall(edge)]
    below = _EDGE.sub(lambda edge: _TEXT.sub("", edge.group()), svg)
    head, end, tail = below.rpartition("</g>\n</svg>")
    rim = '<g class="labels" style="paint-order: stroke; stroke: white; stroke-width: 4px; stroke-linejoin: round">\n'
    return "".join([head, rim, *labels, "</g>\n", end, tail]) if end else svg


@naming(CallError)
def draw(
    automaton: Automaton | Language,
    tokenizer: Any = None,
    *,
    max_nodes: int | None = None,
    max_labels: int = 4,
    pieces: bool = False,
) -> Drawing:
    """A picture of an automaton that a notebook shows.

    Args:
      automaton: a compiled constraint (its token automaton), a set of items (its trie), a byte automaton, a byte machine with a
        stack, a `Language` (its byte automaton), an acceptor or transducer of pynini (as it is, with its weights).
      tokenizer: tokenizer or vocabulary whose texts label a constraint's arcs; without it they are ids. For a transducer of
        pynini: what reads tokens, as the ones of `detokenize` do.
      max_nodes: states to draw, those nearest to the start. None: at most 20, fewer where they have more than 24 arcs.
      max_labels: most texts written on one arc.
      pieces: whether states inside a character are drawn, with its bytes. By default the arcs around them are labelled with
        characters, or with "characters in several tokens".

    Raises:
      ArtifactError: the constraint belongs to another vocabulary.
    """
    graph = build_graph(automaton, tokenizer, max_nodes=max_nodes, max_labels=max_labels, pieces=pieces)
    return Drawing(graph, graph_to_dot(graph))


def build_graph(
    automaton: Any,
    tokenizer: Any = None,
    *,
    max_nodes: int | None = None,
    max_labels: int = 6,
    pieces: bool = False,
) -> Graph:
    """The part of an automaton that is drawn; the arguments are `draw`'s."""
    if max_nodes is not None and not is_whole(max_nodes, 1):
        raise ConstraintError(f"max_nodes is {max_nodes!r:.60}, so there is nothing to draw", fix="Give 1 or more.")
    if not is_whole(max_labels, 0):
        raise ConstraintError(f"max_labels is {max_labels!r:.60}", fix="Give a whole number.")
    nodes = graphs.MOST_NODES if max_nodes is None else max_nodes
    if type(automaton).__module__.partition(".")[0] in ("pynini", "_pynini", "_pywrapfst", "pywrapfst"):
        from fsa_compile.inspection.draw_transducer import transducer_graph  # needs pynini, which drawing does not

        vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
        graph = transducer_graph(automaton, vocabulary, max_nodes=nodes, max_labels=max_labels)
    else:
        automaton = automaton.to_byte_dfa() if hasattr(automaton, "to_byte_dfa") else automaton
        graph = graphs.graph_of(automaton, tokenizer, max_nodes=nodes, max_labels=max_labels, pieces=pieces)
    return graphs.readable(graph) if max_nodes is None else graph


@naming(CallError)
def to_dot(
    automaton: Automaton | Language,
    tokenizer: Any = None,
    *,
    max_nodes: int | None = 40,
    max_labels: int = 6,
    pieces: bool = False,
) -> str:
    """Graphviz text of an automaton; the arguments are `draw`'s."""
    graph = build_graph(automaton, tokenizer, max_nodes=max_nodes, max_labels=max_labels, pieces=pieces)
    return graph_to_dot(graph)


@naming(CallError)
def plot_automaton(
    automaton: Automaton | Language,
    tokenizer: Any = None,
    *,
    max_nodes: int | None = None,
    max_labels: int = 3,
    pieces: bool = False,
    ax: Any = None,
) -> Any:
    """Draws an automaton with matplotlib, from left to right by the distance from the start.

    Args:
      automaton, tokenizer, max_nodes, max_labels, pieces: as in `draw`.
      ax: axes to draw on; by default a new figure of fitting size.

    Returns:
      The matplotlib figure.

    Raises:
      MissingPackageError: matplotlib is not installed.
    """
    graph = build_graph(automaton, tokenizer, max_nodes=max_nodes, max_labels=max_labels, pieces=pieces)
    return plot_graph(graph, ax=ax)


def plot_graph(graph: Graph, *, ax: Any = None) -> Any:
    """Draws a graph with matplotlib; see `plot_automaton`."""
    plt = pyplot()
    arrangement = arranged(graph)
    if ax is None:
        wide, high = (arrangement.high - arrangement.low) * UNIT
        title = 0.3 if graph.remark else 0.0
        figure = plt.figure(figsize=(wide, high + title))
        ax = figure.add_axes((0, 0, 1, high / (high + title)))
    else:
        box = ax.get_window_extent()
        scale = min(np.array([box.width, box.height]) / ax.figure.dpi / (arrangement.high - arrangement.low))
        if scale < UNIT:  # letters keep their size, so the labels take more of a smaller drawing
            arrangement = arranged(graph, UNIT / scale)
    draw_arranged(ax, graph, arrangement)
    if graph.remark:
        ax.set_title(graph.remark, fontsize=9, color=LINE)
    return ax.figure


def arranged(graph: Graph, scale: float = 1.0) -> Arrangement:
    """Places for the states, arcs and labels of a graph that is drawn at `UNIT` inches, or as many times smaller."""
    labels = [label_size(graphs.wrapped(plain(label)), LABEL) * scale for _, _, label in graph.edges]
    marks = [(0.32, -0.17) if node in graph.cut else (0.0, 0.0) for node in graph.nodes]
    return arrange(graph.nodes, [(source, target) for source, target, _ in graph.edges], [(w, h) for w, h in labels], marks)


def label_size(text: str, points: float) -> NDArray[np.float64]:
    """Width and height of a text of some lines, with a little room, in the units of the drawing."""
    from matplotlib.textpath import TextPath

    lines = text.split("\n")
    widths = [TextPath((0, 0), line, size=points).get_extents().width if line.strip() else 0.0 for line in lines]
    return np.array([max(widths) + 4.0, len(lines) * 1.25 * points + 2.0]) / 72 / UNIT


def draw_arranged(ax: Any, graph: Graph, arrangement: Arrangement) -> None:
    """Draws a graph whose places are known on axes."""
    from matplotlib.patches import Circle, FancyArrowPatch
    from matplotlib.path import Path as Curve

    low, high = arrangement.low, arrangement.high
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.axis("off")
    arrow: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "color": LINE, "lw": 1.1, "zorder": 2}
    box = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none"}
    for corners, (x, y), (_, _, label) in zip(arrangement.curves, arrangement.labels, graph.edges):
        ax.add_patch(FancyArrowPatch(path=Curve(corners, [Curve.MOVETO] + [Curve.CURVE4] * (len(corners) - 1)), **arrow))
        ax.text(x, y, graphs.wrapped(plain(label)), ha="center", va="center", fontsize=LABEL, color=ACCENT, zorder=5, bbox=box)
    x, y = arrangement.place[graph.nodes[0]]
    start: dict[str, Any] = {"arrowstyle": "-|>", "color": LINE, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=(x - RADIUS, y), xytext=(x - 0.7, y), arrowprops=start, zorder=2)
    for node, (x, y) in arrangement.place.items():
        if node in graph.accepting:
            ax.add_patch(Circle((x, y), RADIUS + 0.045, fc="white", ec=INK, lw=1.2, zorder=3))
        ax.add_patch(Circle((x, y), RADIUS, fc=FILL, ec=INK, lw=1.2, zorder=3))
        name = graph.names.get(node, str(node))
        ax.text(x, y, name, ha="center", va="center", fontsize=min(9, 28 / len(name)), color=INK, zorder=4)
        if node in graph.cut:
            ax.text(x + 0.26, y - 0.2, "…", fontsize=12, color=LINE, zorder=4)


@naming(CallError)
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
    shades = plt.get_cmap(HEAT)(np.linspace(0.3, 1, 64))  # its first ones cannot be told from the background
    colours = ListedColormap(shades).with_extremes(bad="#f4f4f2")
    norm = LogNorm(1 / widths.max(), 1) if widths.max() > 1 else None
    extent = (0, size, len(grid) - 0.5, -0.5)
    image = ax.imshow(share, aspect="auto", cmap=colours, norm=norm, interpolation="nearest", extent=extent)
    ids = list(ids or [])
    if ids:
        ax.plot(np.array(ids) + 0.5, np.arange(len(ids)), "o", ms=7, mfc="none", mec=ACCENT, mew=1.8, clip_on=False)
    names = _step_names(len(grid), ids, getattr(tokenizer, "vocabulary", tokenizer))
    ax.set_yticks(range(len(grid)), [plain(name) for name in names], fontsize=9)
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
    taken = ["end of text" if t in stops else f"'{graphs.shortened(token_text(vocabulary.tokens[t]), 14)}'" for t in ids]
    return [f"{taken[n]}  {n}" if n < len(taken) else f"{n}" for n in range(steps)]


def plain(text: str) -> str:
    """A text that matplotlib writes as it is: no formulas, and code points for the characters that its font lacks."""
    font = _font()
    return "".join(r"\$" if c == "$" else c if c == "\n" or ord(c) in font else f"U+{ord(c):04X}" for c in text)


@functools.cache
def _font() -> frozenset[int]:
    """The characters of matplotlib's font."""
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(font_manager.findfont(font_manager.FontProperties())).get_charmap())


def pyplot() -> Any:
    """matplotlib's plotting module, or an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        ways = "; Graphviz text needs no package: fsa_compile.inspection.draw.to_dot."
        raise MissingPackageError("matplotlib", "drawing", "notebooks", otherwise=ways) from error
    return plt


class _Callable(types.ModuleType):
    """The module as what most people take it for: `fsa_compile.draw(constraint, tokenizer)`."""

    def __call__(self, *arguments: Any, **options: Any) -> Drawing:
        return draw(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
