"""Pictures of pynini's acceptors and transducers, as they are: symbols, epsilons, weights. Needs pynini, as what it draws does.

`draw` makes pictures of the graph: `draw.plot_graph`, `draw.graph_to_dot`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pynini
import pywrapfst

from fsa_compile.automata.labels import EPSILON, label_byte, label_token
from fsa_compile.inspection.automaton_graphs import Graph, ranges_text, shortened
from fsa_compile.inspection.explain import token_text
from fsa_compile.vocabulary.vocabulary import Vocabulary


def transducer_graph(
    fst: pynini.Fst, vocabulary: Vocabulary | None = None, *, max_nodes: int = 40, max_labels: int = 12
) -> Graph:
    """An automaton of pynini as a graph: labels are `read:written/weight`, ε for nothing; an acceptor's have one side.

    Args:
      fst: the automaton.
      vocabulary: whose tokens it reads, where it is from `detokenize.build_cycles` or `build_trie`, or has their labels. Without
        one, labels are written by the symbol tables of the automaton, else as bytes or characters.
      max_nodes: states to draw, those nearest to the start.
      max_labels: most labels on an arc that is drawn; more are counted.

    Returns:
      The graph, states numbered as in the transducer; final weights stand behind the numbers.
    """
    read, write = _namers(fst, vocabulary)
    one, zero = pywrapfst.Weight.one(fst.weight_type()), pywrapfst.Weight.zero(fst.weight_type())
    both = vocabulary is not None or fst.properties(pywrapfst.ACCEPTOR, True) != pywrapfst.ACCEPTOR
    between: dict[tuple[int, int], list[tuple[int, str]]] = {}
    start = fst.start()
    nodes, known, cut = ([start], {start}, set()) if start >= 0 else ([0], {0}, set())
    for node in nodes if start >= 0 else []:  # grows while it is read
        for arc in fst.arcs(node):
            if arc.nextstate not in known and len(nodes) < max_nodes:
                known.add(arc.nextstate)
                nodes.append(arc.nextstate)
            if arc.nextstate in known:
                label = f"{read(arc.ilabel)}:{write(arc.olabel)}" if both else read(arc.ilabel)
                plain = arc.weight == one
                byte = arc.ilabel if plain and not both and fst.input_symbols() is None and 0 < arc.ilabel < 256 else -1
                between.setdefault((node, arc.nextstate), []).append((byte, label if plain else f"{label}/{arc.weight}"))
            else:
                cut.add(node)
    ends = {node: fst.final(node) for node in nodes} if start >= 0 else {}
    accepting = frozenset(node for node, weight in ends.items() if weight != zero)
    names = {node: f"{node}/{ends[node]}" for node in accepting if ends[node] != one}
    edges = tuple((source, target, _label(labels, max_labels)) for (source, target), labels in between.items())
    return Graph(tuple(nodes), accepting, edges, max(fst.num_states() - len(nodes), 0), frozenset(cut), names=names)


def _label(labels: list[tuple[int, str]], most: int) -> str:
    """The labels between two states: bytes of an acceptor as ranges, others one by one."""
    present = np.zeros(256, bool)
    present[[byte for byte, _ in labels if byte >= 0]] = True
    others = [text for byte, text in labels if byte < 0]
    shown = ([ranges_text(present)] if present.any() else []) + others[:most]
    return ", ".join([*shown, f"… {len(others) - most:,} more"] if len(others) > most else shown)


def _namers(fst: pynini.Fst, vocabulary: Vocabulary | None) -> tuple[Callable[[int], str], Callable[[int], str]]:
    """How the labels of both sides are written."""
    if vocabulary is not None:
        tokens = vocabulary.tokens
        return (
            lambda label: "ε" if label == EPSILON else shortened(token_text(tokens[label_token(label)]), 12),
            lambda label: "ε" if label == EPSILON else token_text(bytes([label_byte(label)])),
        )
    sides = []
    for symbols in (fst.input_symbols(), fst.output_symbols()):
        sides.append(_plain if symbols is None else lambda label, table=symbols: str(table.find(label)) if label else "ε")
    return sides[0], sides[1]


def _plain(label: int) -> str:
    """A label of pynini's without a symbol table: a byte, or a character above them."""
    if label == EPSILON:
        return "ε"
    if label < 0 or label > 0x10FFFF:
        return str(label)
    return token_text(bytes([label]) if label < 256 else chr(label).encode("utf-8", "surrogatepass"))
