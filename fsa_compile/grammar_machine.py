"""Grammar to byte machine: the order of the steps between the front ends and the token walk."""

from __future__ import annotations

from collections.abc import Mapping

from fsa_compile.byte_machine import ByteMachine
from fsa_compile.conflicts import check_conflicts
from fsa_compile.frame_trim import trim
from fsa_compile.frames import FrameBuilder
from fsa_compile.grammar import Grammar
from fsa_compile.grammar_checks import check_grammar
from fsa_compile.lexemes import Lexicon
from fsa_compile.lexical_rules import settle
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.machine_minimize import minimal_machine
from fsa_compile.network import Node, UncountableError, build_network


def machine_of(
    grammar: Grammar,
    *,
    stacks: int = 1,
    specials: Mapping[str | int, int] | None = None,
    limits: CompileLimits | None = None,
    deadline: Deadline | None = None,
) -> ByteMachine:
    """The trimmed, minimal byte machine of a grammar.

    Args:
      grammar: as a front end made it.
      stacks: with more than 1, what one stack cannot decide becomes several entries of one action.
      specials: token id of every special token that the grammar names.
      limits: bounds of the compilation; `max_states` holds for rule automata and for controls.
      deadline: an already running time budget.

    Raises:
      GrammarConflictError: one stack cannot decide the grammar, and `stacks` is 1.
      UnsatisfiableError: the start rule has no finite text.
      GrammarError, LimitError: see their classes.
    """
    limits = limits or CompileLimits()
    deadline = deadline or Deadline(limits)
    check_grammar(grammar)
    written_out: set[Node] = set()
    while True:
        try:
            return _machine(grammar, stacks, specials or {}, written_out, limits, deadline)
        except UncountableError as error:
            written_out |= error.nodes


def _machine(
    grammar: Grammar,
    stacks: int,
    specials: Mapping[str | int, int],
    written_out: set[Node],
    limits: CompileLimits,
    deadline: Deadline,
) -> ByteMachine:
    """The machine when some large repetitions are written out and the others counted."""
    longest = grammar.mode == "longest"
    lexicon = Lexicon(grammar, specials, limits, deadline)
    network = build_network(grammar, lexicon, limits, deadline, written_out)
    if longest:
        settle(lexicon, [frame.dfa for frame in network.frames], network.ignore, grammar)
    builder = FrameBuilder(network, longest=longest, stacks=stacks, limits=limits, deadline=deadline)
    tables = builder.build()
    trim(tables, builder, grammar.text)
    check_conflicts(tables, builder, grammar, stacks)
    return minimal_machine(tables, lexicon.byte_class, lexicon.specials, builder.control_name, builder.symbol_name)
