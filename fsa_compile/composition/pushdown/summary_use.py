"""What was found of the leaves of a machine (`summaries`), in the numbers of the walk of the whole machine."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.items import NO_ITEMS, Items, joined
from fsa_compile.composition.pushdown.summaries import LeafProcedure, summary_calls
from fsa_compile.composition.tokens.token_sets import Parts


class UsedSummaries:
    """The leaves of a machine, and the calls that do what a control of a leaf does.

    Attributes:
      runs: number of runs of all leaves.
      parts, links: of `StackArcs`, once the leaves are taken.
    """

    def __init__(self, machine: ByteMachine, leaves: list[LeafProcedure]) -> None:
        self._leaves, self._calls = leaves, summary_calls(machine, leaves)
        self.runs = sum(leaf.walk.runs for leaf in leaves)
        self.parts: list[Parts] = []
        self.links: list[tuple[np.ndarray, ...]] = []

    def known(self, live: np.ndarray, byte: np.ndarray) -> None:
        """Takes away what need not be walked.

        Args:
          live: bool[S, n], which controls read the bytes; changed in place.
          byte: int64[n].
        """
        for controls, found in self._leaves:
            live[controls[: found.size]] = False
        for call in self._calls:
            live[call.caller] &= ~call.bytes[byte]

    def taken(self, first_run: int) -> Items:
        """Fills `parts` and `links`, runs numbered from `first_run` on; where tokens leave the leaves, in the controls there."""
        leaving = [NO_ITEMS]
        for controls, found in self._leaves:
            number = np.concatenate([[0], controls, np.arange(first_run, first_run + found.runs)])
            first_run += found.runs
            parts = found.parts
            self.parts.append(dataclasses.replace(parts, owner=number[parts.owner], target=number[parts.target]))
            run, caller, symbol, count = found.links
            self.links.append((number[run], number[caller], symbol, count))
            owner, node, control, count = found.leaving
            leaving.append(Items(number[owner], node, number[control], count))
        return joined(leaving)

    def called(self, pending: Items, ret: np.ndarray) -> list[Items]:
        """Links the calls; what is to be read in the callers where tokens return from there.

        Args:
          pending: what leaves the leaves by a return, in frames that may end there.
          ret: of the machine.
        """
        out = []
        none = np.zeros(1, np.int64)
        for caller, entry, symbol, _ in self._calls:
            self.links.append((none + entry, none + caller, none + symbol, none))
            back = pending.at(pending.owner == entry)
            there = ret[back.control, symbol]
            back, there = back.at(there > 0), there[there > 0]
            out.append(Items(back.owner * 0 + caller, back.node, there, back.begun * 0))
        return out
