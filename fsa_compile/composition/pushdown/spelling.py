"""Vocabularies that lack tokens of single bytes: whether bounds decide what can be completed.

`costs` bounds the rest of a text by control and by symbol, for all stacks alike. Where every byte is a token, every text has a
rest, and bounds say only how long it is. Else whether a text can be completed may depend on more of its stack than the bounds
know: after n times `[`, the token `]]` completes it only if n is even. Bounds are never too low, so no text gets stuck; what is
checked here is that no text is lost.
"""

from __future__ import annotations

import numpy as np

from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.arcs import StackArcs
from fsa_compile.composition.pushdown.costs import Costs
from fsa_compile.composition.pushdown.token_groups import Groups
from fsa_compile.errors import UnspellableError
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_SHOWN = 16
"""Most bytes that an error names."""


def bytes_not_alone(machine: ByteMachine, tables: VocabularyTables) -> np.ndarray:
    """int64[*], bytes that the machine reads and that are no tokens of their own. Without any, every text can be completed."""
    child = tables.root_child
    alone = (child > 0) & (tables.trie_token[child] >= 0)
    read = (machine.action != 0).any(0)[machine.byte_class[:256]]
    return np.flatnonzero(read & ~alone)


def check_bounds_of_some(
    machine: ByteMachine, arcs: StackArcs, groups: Groups, costs: Costs, tables: VocabularyTables, source: str
) -> None:
    """Compares the bounds with what some stack allows.

    Raises:
      UnspellableError: a token that some stack completes has no bound; names the bytes that are missing.
    """
    graph = _Graph(machine, arcs, groups)
    live = graph.live()
    if not (live & graph.reached(live) & (costs.group_cost >= UNREACHABLE)).any():
        return
    missing = bytes_not_alone(machine, tables)
    inside = missing[np.isin(missing, tables.data)]  # the others end every text that they begin
    missing = (inside if len(inside) else missing).tolist()
    names = ", ".join(f"{byte:02x}" + (f" ({chr(byte)!r})" if 32 < byte < 127 else "") for byte in missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    raise UnspellableError(
        f"what the vocabulary can complete depends on the whole stack: no token is one of the bytes {names}{more} alone",
        where=source if len(source) <= 200 else source[:197] + "...",
        fix="Use a tokenizer with a token for each byte (byte fallback), or bound how deep the constraint nests.",
    )


class _Graph:
    """Nodes, symbols and token sets of a walk, as if every return led wherever any stack leads it."""

    def __init__(self, machine: ByteMachine, arcs: StackArcs, groups: Groups) -> None:
        self.arcs, self.groups = arcs, groups
        self.start, self.stack = machine.start, np.array(machine.stack, np.int64)
        size = arcs.classes.size[arcs.shape]
        self.of_row = np.concatenate((np.repeat(np.arange(len(size)), size), arcs.pops.node))
        self.delta_row = np.concatenate((arcs.delta_row, arcs.pops.row))
        self.row, self.symbol, self.child = arcs.delta[:3]
        strings = groups.strings
        self.which, self.pushed = np.arange(len(strings)).repeat(strings.length), strings.symbol

    def live(self) -> np.ndarray:
        """bool[G], token sets after which some stack lets the text be completed."""
        arcs, groups = self.arcs, self.groups
        node = arcs.accept.copy()
        symbol = np.zeros(arcs.delta.num_symbols, bool)
        while True:
            symbol[self.symbol[node[self.child]]] = True
            string = np.ones(len(groups.strings), bool)
            string[self.which[~symbol[self.pushed]]] = False
            group = (node[groups.effects.target] & string[groups.effects.push])[groups.effect]
            full = np.zeros(arcs.delta.num_rows, bool)
            full[self.row[node[self.child]]] = True
            more = node.copy()
            more[groups.node[group]] = True
            more[self.of_row[full[self.delta_row]]] = True
            if (more == node).all():
                return group
            node = more

    def reached(self, live: np.ndarray) -> np.ndarray:
        """bool[G], token sets of nodes that live ones lead to."""
        arcs, groups = self.arcs, self.groups
        node, symbol = np.zeros(len(arcs.accept), bool), np.zeros(arcs.delta.num_symbols, bool)
        node[self.start], symbol[self.stack] = True, True
        while True:
            group = live & node[groups.node]
            string = np.zeros(len(groups.strings), bool)
            effect = groups.effect[group]
            string[groups.effects.push[effect]] = True
            symbol[self.pushed[string[self.which]]] = True
            more = node.copy()
            more[groups.effects.target[effect]] = True
            full = np.zeros(arcs.delta.num_rows, bool)
            full[self.delta_row[node[self.of_row]]] = True
            more[self.child[full[self.row] & symbol[self.symbol]]] = True
            if (more == node).all():
                return group
            node = more
