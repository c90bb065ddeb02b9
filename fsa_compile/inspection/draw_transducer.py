"""Pictures of the detokenizing transducer and its like: arcs read a token and write a byte. Needs pynini, as what it draws does.

`draw` makes pictures of the graph: `draw.plot_graph`, `draw.graph_to_dot`.
"""

from __future__ import annotations

from fsa_compile.automata.labels import EPSILON, label_byte, label_token
from fsa_compile.automata.openfst import pynini, pywrapfst
from fsa_compile.inspection.draw import Graph, shortened
from fsa_compile.inspection.explain import token_text
from fsa_compile.vocabulary.vocabulary import Vocabulary


def transducer_graph(fst: pynini.Fst, vocabulary: Vocabulary, *, max_nodes: int = 40) -> Graph:
    """A transducer from tokens to bytes as a graph; labels are `token:byte`, with ε for nothing.

    Args:
      fst: from `detokenize.build_cycles` or `build_trie`, or another one with their labels.
      vocabulary: whose tokens it reads.
      max_nodes: states to draw, those nearest to the start.

    Returns:
      The graph, states numbered as in the transducer.
    """
    between: dict[tuple[int, int], list[str]] = {}
    nodes, known, cut = [fst.start()], {fst.start()}, set()
    for node in nodes:  # grows while it is read
        for arc in fst.arcs(node):
            if arc.nextstate not in known and len(nodes) < max_nodes:
                known.add(arc.nextstate)
                nodes.append(arc.nextstate)
            if arc.nextstate in known:
                read = "ε" if arc.ilabel == EPSILON else shortened(token_text(vocabulary.tokens[label_token(arc.ilabel)]), 12)
                write = "ε" if arc.olabel == EPSILON else token_text(bytes([label_byte(arc.olabel)]))
                between.setdefault((node, arc.nextstate), []).append(f"{read}:{write}")
            else:
                cut.add(node)
    accepting = frozenset(node for node in nodes if fst.final(node) != pywrapfst.Weight.zero(fst.weight_type()))
    edges = tuple((source, target, " ".join(labels)) for (source, target), labels in between.items())
    return Graph(tuple(nodes), accepting, edges, fst.num_states() - len(nodes), frozenset(cut))
