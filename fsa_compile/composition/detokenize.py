"""The detokenizing transducer as OpenFst transducers, and composition by OpenFst: the reference for the token walk.

Slow, short and independent of the fast path: tests compare the two with `pynini.equivalent`.

Source: Koo, Liu and He, "Automata-based constraints for language model decoding", 2024, Algorithms 1 and 2.
"""

from __future__ import annotations

import numpy as np
import pynini
import pywrapfst

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.labels import EPSILON, byte_label, token_label
from fsa_compile.automata.openfst import Arcs, fst_from_arcs, to_pynini
from fsa_compile.vocabulary.vocabulary import Vocabulary


def build_cycles(vocabulary: Vocabulary) -> pynini.Fst:
    """Algorithm 1: one cycle through the initial state per token; it reads the token and writes its bytes.

    Args:
      vocabulary: ids that are not text get no cycle.

    Returns:
      A transducer from token labels to byte labels (see `labels.py`).
    """
    fst = pynini.Fst()
    root = fst.add_state()
    fst.set_start(root).set_final(root)
    for token, data in enumerate(vocabulary.tokens):
        at = root
        for place, byte in enumerate(data):
            after = root if place == len(data) - 1 else fst.add_state()
            read = token_label(token) if place == 0 else EPSILON
            fst.add_arc(at, pywrapfst.Arc(read, byte_label(byte), 0, after))
            at = after
    return fst


def build_trie(vocabulary: Vocabulary) -> pynini.Fst:
    """Algorithm 2: the compact form. Tokens share the arcs of common prefixes and are read at their end.

    Args:
      vocabulary: ids that are not text are left out.

    Returns:
      A transducer from token labels to byte labels with one state per distinct proper prefix.
    """
    fst = pynini.Fst()
    root = fst.add_state()
    fst.set_start(root).set_final(root)
    inner: dict[bytes, int] = {b"": root}
    for token, data in enumerate(vocabulary.tokens):
        if not data:
            continue
        at = root
        for end in range(1, len(data)):
            after = inner.get(data[:end])
            if after is None:
                after = inner[data[:end]] = fst.add_state()
                fst.add_arc(at, pywrapfst.Arc(EPSILON, byte_label(data[end - 1]), 0, after))
            at = after
        fst.add_arc(at, pywrapfst.Arc(token_label(token), byte_label(data[-1]), 0, root))
    return fst


def composed_by_openfst(dfa: ByteDfa, detokenizer: pynini.Fst) -> pynini.Fst:
    """Token acceptor of a byte automaton: the token side of transducer ∘ automaton, epsilons removed.

    Args:
      dfa: byte automaton.
      detokenizer: from `build_cycles` or `build_trie`.

    Returns:
      A deterministic acceptor over token labels, trimmed. The end-of-text token is not part of it.
    """
    composed = pynini.compose(detokenizer.copy().arcsort("olabel"), to_pynini(dfa).arcsort("ilabel"))
    composed.project("input").rmepsilon().connect()
    return pynini.determinize(composed)


def token_acceptor(constraint: CompiledConstraint) -> pynini.Fst:
    """The artifact's token automaton as an acceptor over token labels; node n is state n - 1."""
    source, label, target = [], [], []
    for node in range(1, constraint.num_nodes):
        after = constraint.outgoing(node)
        tokens = np.flatnonzero(after)
        source.append(np.full(len(tokens), node - 1))
        label.append(tokens + token_label(0))
        target.append(after[tokens].astype(np.int64) - 1)
    arcs = Arcs(constraint.start - 1, constraint.accept[1:], *(np.concatenate(x) for x in (source, label, target)))
    return fst_from_arcs(arcs)
