"""Grammar to byte machine: the order of the steps between the front ends and the token walk."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from fsa_compile.arrays.garbage import rare_collections
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.conflicts import Conflict, control_name, find_conflict, find_unfinished, lasting, narrowing, symbol_name
from fsa_compile.grammar.frame_subsets import FrameBuilder
from fsa_compile.grammar.frame_trim import trim
from fsa_compile.grammar.grammar_checks import check_grammar
from fsa_compile.grammar.grammar_tree import Grammar
from fsa_compile.grammar.indentation import indented
from fsa_compile.grammar.lexing.lark_order import without_ignored
from fsa_compile.grammar.lexing.lexeme_temperatures import temperature_of_controls
from fsa_compile.grammar.lexing.longest_match import settle
from fsa_compile.grammar.lexing.terminals import Lexicon
from fsa_compile.grammar.minimize_machine import minimal_machine
from fsa_compile.grammar.outlining import WAYS, Outlining
from fsa_compile.grammar.rule_automata import UncountableError
from fsa_compile.grammar.rule_expressions import Node
from fsa_compile.grammar.transition_network import build_network
from fsa_compile.limits import CompileLimits, Deadline


def machine_of(
    grammar: Grammar,
    *,
    stacks: int = 1,
    specials: Mapping[str | int, int] | None = None,
    limits: CompileLimits | None = None,
    deadline: Deadline | None = None,
    values: Mapping[int, tuple[int, bool]] | None = None,
) -> ByteMachine:
    """The trimmed, minimal byte machine of a grammar.

    Args:
      grammar: as a front end made it.
      stacks: with more than 1, what one stack cannot decide becomes several entries of one action.
      specials: token id of every special token that the grammar names.
      values: special tokens in whose place values will stand: the bytes with which these may begin, as a bit set, and whether
        the empty text is one.

    Raises:
      GrammarConflictError: one stack cannot decide the grammar, and `stacks` is 1; or no number of stacks can.
      UnsatisfiableError: the start rule has no finite text.
      GrammarError, LimitError: see their classes.
    """
    limits = limits or CompileLimits()
    deadline = deadline or Deadline(limits)
    check_grammar(grammar)
    attempts = _Attempts(grammar, specials or {}, limits, deadline, values or {})
    with rare_collections():
        for number in (1, stacks) if stacks > 1 else (1,):
            machine = attempts.machine(number)
            if machine is not None:
                return machine
    raise attempts.error()


class _Attempts:
    """Machines of one grammar by several ways to choose what is called: of one language, but not all for one stack."""

    def __init__(
        self, grammar: Grammar, specials: Mapping[str | int, int], limits: CompileLimits, deadline: Deadline,
        values: Mapping[int, tuple[int, bool]],
    ) -> None:  # fmt: skip
        self.grammar, self.specials, self.limits, self.deadline, self.values = grammar, specials, limits, deadline, values
        self.problem: Conflict | UnsupportedGrammarError | None = None

    def machine(self, stacks: int) -> ByteMachine | None:
        """The machine of the first way of outlining that `stacks` stacks can decide; None if there is none."""
        problem: Conflict | UnsupportedGrammarError | None = None
        tried: list[object] = []
        for way in sorted(WAYS, key=lambda way: self.grammar.indentation is not None and not way.alike):
            found: ByteMachine | Conflict | UnsupportedGrammarError | None
            try:
                found = self._counted_machine(stacks, way, tried)
            except UnsupportedGrammarError as error:
                found = error
            except LimitError:
                if problem is None:
                    raise
                break
            if isinstance(found, ByteMachine):
                return found
            problem = problem or found
        self.problem = problem
        return None

    def error(self) -> ConstraintError:
        """Why the usual way failed."""
        assert self.problem is not None
        return self.problem.error(self.grammar) if isinstance(self.problem, Conflict) else self.problem

    def _counted_machine(self, stacks: int, way: Outlining, tried: list[object]) -> ByteMachine | Conflict | None:
        written_out: set[Node] = set()
        while True:
            try:
                return self._machine(stacks, way, written_out, tried)
            except UncountableError as error:
                written_out |= error.nodes

    def _machine(self, stacks: int, way: Outlining, written_out: set[Node], tried: list[object]) -> ByteMachine | Conflict | None:
        """The machine when some large repetitions are written out and the others counted; None if that was tried before."""
        grammar, limits, deadline = self.grammar, self.limits, self.deadline
        longest = grammar.mode != "characters"
        lexicon = Lexicon(grammar, self.specials, limits, deadline, self.values)
        network = build_network(grammar, lexicon, limits, deadline, written_out, way)
        if grammar.mode == "lark":
            network = without_ignored(network, grammar)
        if grammar.indentation:
            network = indented(network, grammar, limits, deadline)
        frames = [(frame.dfa, frame.loop and frame.loop.node) for frame in network.frames]
        if frames in tried:
            return None
        tried.append(frames)
        if longest:
            dfas = [frame.dfa for frame in network.frames]
            settle(lexicon, dfas, network.ignore, network.in_brackets, grammar, deadline)
        conflict: Conflict | None = None
        for back in (False, True) if longest and stacks == 1 else (False,):  # going back needs more lexemes inline
            builder = FrameBuilder(network, longest=longest, stacks=stacks, back=back, limits=limits, deadline=deadline)
            try:
                tables = builder.build()
            except LimitError:
                conflict = conflict or (find_unfinished(builder) if stacks == 1 else None)
                if conflict:
                    break
                raise
            try:
                trim(tables, builder, grammar.text)
                found = find_conflict(tables, builder, stacks)
            except (UnsatisfiableError, UnsupportedGrammarError):
                lost = narrowing(builder)  # the machine reads too little
                if not lost:
                    raise
                found = Conflict(tables, builder, {}, {}, lost)
            conflict = found and (conflict if conflict and not conflict.narrowed else found)
            if not conflict or not (builder.early or builder.too_far):
                break
            if not back and (stays := lasting(conflict)):
                conflict = stays
                break
        if conflict:
            return conflict
        heat = temperature_of_controls(tables, builder)
        names = functools.partial(control_name, builder), functools.partial(symbol_name, builder)
        return minimal_machine(tables, lexicon.byte_class, lexicon.specials, *names, heat)
