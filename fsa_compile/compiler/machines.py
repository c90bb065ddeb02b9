"""From an automaton over bytes to an artifact: which representation is chosen, when, and why.

`compile_machine` takes the first of these representations that the request allows (`_REPRESENTATIONS`):

| Representation | When | Why |
| --- | --- | --- |
| the machine's own stack and counters | every tokenization is allowed, no filter over tokens | smallest; exact at any depth |
| a finite automaton of few stacks | not too many stacks can occur, no bound on depth is given | filters over tokens and canonical
  forms are products of finite automata |
| a canonical constraint with a stack | `canonical`, nests without a bound, and every token's completability is decided | no bound
  on depth is needed |
| an unfolded automaton | all others: configurations up to `max_depth` become states | as for few stacks, with a bound |

Filters over text come first: they are a product with the machine, which keeps its stack where it has no counters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, ByteMachine
from fsa_compile.automata.unfold_stacks import flattened
from fsa_compile.compiler.arguments import Request
from fsa_compile.compiler.canonical_forms import canonical_form, canonical_stack
from fsa_compile.composition.compose import compose, compose_machine
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.languages.language import Language
from fsa_compile.vocabulary.vocabulary_tables import tables_for

if TYPE_CHECKING:
    from fsa_compile.preprocessing.text_start import TextStart

_MOST_FLAT = 200_000
"""Most states of a machine whose few stacks are written out."""
GIVE_DEPTH = "Give max_depth=, the most frames that may be open at once: what nests deeper is left out then."


def compile_of_language(language: Language, request: Request) -> CompiledConstraint:
    """The constraint of a language; see `compile_language`."""
    if request.filters:
        if language.symbols:
            what = "filters are for text, and this language also holds special tokens or whole tokens"
            raise ConstraintError(what, where=f"  {language.description:.200}", fix="Filter the texts in it: language & filter.")
        language = request.filters.applied_to(language)
    if request.starts_text:
        language, request = _starting(language, request)
    made = every_tokenization(language, request, counters=request.canonical is False)
    return canonical_form(made, request)


def every_tokenization(language: Language, request: Request, *, counters: bool) -> CompiledConstraint:
    """The artifact of every tokenization of a language, with or without registers for its counts, behind filters over tokens."""
    if language.symbols:
        from fsa_compile.composition.symbols.symbol_constraint import compile_with_symbols

        return compile_with_symbols(language, request.vocabulary, request.limits, request.deadline)
    request = dataclasses.replace(request, source=language.description)
    # Without a token for each byte a count may not be reachable: only written out is it exact then.
    if counters and not request.filters.tokens and tables_for(request.vocabulary).spells_every_byte:
        machine = language.to_byte_machine(request.limits, request.deadline)
        if machine is not None:
            return _composed_machine(machine, request)
    return _composed(language.to_byte_dfa(request.limits, request.deadline), request)


def compile_dfa(dfa: ByteDfa, request: Request) -> CompiledConstraint:
    """The constraint of a byte automaton."""
    dfa = request.filters.narrowed(dfa, request.source, request.limits, request.deadline)
    if request.starts_text:
        from fsa_compile.filters import TextFilter

        language, request = _starting(TextFilter(request.source, lambda limits, deadline: dfa), request)
        dfa = language.to_byte_dfa(request.limits, request.deadline)
    return canonical_form(_composed(dfa, request), request)


def compile_machine(
    machine: ByteMachine, request: Request, *, stacks: int = 1, flat_states: int = 0, way_out: str = GIVE_DEPTH
) -> CompiledConstraint:
    """The constraint of a machine with a stack, in the first representation of this module's table that the request allows.

    Args:
      machine: trimmed.
      request: what it is compiled for; `max_depth` counts cells of the stack.
      stacks, flat_states: see `compose_machine`.
      way_out: what the error for machines that nest without a bound advises, where that is not possible.

    Raises:
      UnsatisfiableError: nothing passes the filters.
      ConstraintError: see `canonical_form`; or the machine nests without a bound where that is not possible.
    """
    if machine.token_reserve is not None and (not request.is_plain or request.starts_text):
        raise ConstraintError("tokens are counted only without canonical=, filters= and starts_text=", fix="Leave these out.")
    if machine.temperature is not None and (not request.is_plain or request.starts_text):
        what = "temperatures of rules are kept only without canonical=, filters= and starts_text="
        raise ConstraintError(what, fix="Leave these out, or the option temperature.")
    case = _Case(machine, request, stacks, flat_states, way_out)
    if case.request.filters.text:
        case = case.behind_text_filters()
    return next(made for representation in _REPRESENTATIONS if (made := representation(case)) is not None)


class _Case(NamedTuple):
    """A machine on its way to a representation.

    Attributes:
      machine, request, stacks, flat_states, way_out: as for `compile_machine`.
    """

    machine: ByteMachine
    request: Request
    stacks: int
    flat_states: int
    way_out: str

    def behind_text_filters(self) -> _Case:
        """The case of the machine's product with the filters over text."""
        from fsa_compile.automata.pushdown_product import filtered_machine, is_plain
        from fsa_compile.filters.filter_base import empty_after

        request, machine = self.request, self.machine
        filters = request.filters
        if request.max_depth is not None or not is_plain(machine):
            machine = self.unfolded(f"{filters.text[0].description:.60} behind counters, sets of keys or parallel stacks")
        automaton = filters.automaton(request.limits, request.deadline)
        found = filtered_machine(machine, automaton, request.limits, request.deadline)
        if found is None:
            raise empty_after(request.source, filters.text)
        depth = request.max_depth if found.num_symbols else None
        filters = dataclasses.replace(filters, text=())
        return self._replace(machine=found, request=dataclasses.replace(request, filters=filters, max_depth=depth))

    def composed(self) -> CompiledConstraint:
        """The artifact of the machine as it is."""
        return _composed_machine(self.machine, self.request, stacks=self.stacks, flat_states=self.flat_states)

    def unfolded(self, why: str) -> ByteMachine:
        """The machine with its configurations as controls; `why` names what needs that."""
        from fsa_compile.automata.unfold_configurations import written_out

        request = self.request
        return written_out(
            self.machine, request.limits, request.deadline, max_depth=request.max_depth, way_out=self.way_out, why=why
        )


def _own_stack(case: _Case) -> CompiledConstraint | None:
    """The machine's own stack and counters."""
    request = case.request
    if request.canonical is not False or request.filters.tokens:
        return None
    if request.starts_text:
        return _own_stack_at_start(case)
    return case.composed()


def _own_stack_at_start(case: _Case) -> CompiledConstraint | None:
    """The artifact of a machine with its stack, behind what the tokenizer puts before a text.

    Where a text may begin with a space, which is then its prefix, and others get one, two texts come to the same bytes: with
    few stacks that is written out, else the texts that begin with a space are left out (see `docs/limits.md`).

    Args:
      case: its request asks for `starts_text`, and for nothing that takes the stack away.

    Returns:
      None where the first token has to be looked at: then a representation over tokens is needed.
    """
    from fsa_compile.composition.prefix.partial_tokens import PartialTokens
    from fsa_compile.composition.prefix.prepend import with_prefixes
    from fsa_compile.preprocessing.text_start import WITHOUT_SPACE, first_tokens, text_start
    from fsa_compile.vocabulary.lookup import token_lookup

    start = text_start(case.request.tokenizer)
    first = first_tokens(case.request.tokenizer, start)
    if first is not None and not first.are_spaces:
        return None
    spaced, has_empty = bool(case.machine.run(b" ")), case.machine.accepts(b"")
    if not start.prefix:
        return (_narrowed(case, WITHOUT_SPACE) if spaced and not start.keeps_spaces else case).composed()
    if spaced and start.keeps_spaces and not start.always:
        made = _few_stacks(case)
        if made is not None:
            return made
    behind = _behind_prefix(case, start, spaced, has_empty)
    if behind is None:
        return case.composed() if start.keeps_spaces else _empty(case)
    lookup = token_lookup(case.request.vocabulary)
    made = with_prefixes(PartialTokens(behind.composed(), lookup), lookup, [start.prefix.encode()])[0]
    made = made if first is None else first.narrowed(made)
    return _also_empty(made) if has_empty else made


def _behind_prefix(case: _Case, start: TextStart, spaced: bool, has_empty: bool) -> _Case | None:
    """The case of the texts that get a prefix; None where there is none, and yet there are texts."""
    from fsa_compile.preprocessing.text_start import NOT_EMPTY, WITHOUT_SPACE

    if has_empty:
        try:
            case = _narrowed(case, NOT_EMPTY)
        except UnsatisfiableError:
            return None
    if spaced and not (start.always and start.keeps_spaces):
        try:
            case = _narrowed(case, WITHOUT_SPACE)
        except UnsatisfiableError:
            if has_empty or start.keeps_spaces:
                return None
            raise
    return case


def _narrowed(case: _Case, passing: Language) -> _Case:
    filters = dataclasses.replace(case.request.filters, text=(passing,))
    return case._replace(request=dataclasses.replace(case.request, filters=filters)).behind_text_filters()


def _empty(case: _Case) -> CompiledConstraint:
    """The artifact of the empty text."""
    from fsa_compile.languages.pattern_language import literal

    request = case.request
    dfa = literal("").to_byte_dfa(request.limits, request.deadline)
    return compose(dfa, request.vocabulary, source=request.source, limits=request.limits, deadline=request.deadline)


def _also_empty(made: CompiledConstraint) -> CompiledConstraint:
    """A constraint whose start is no other node's successor, with the empty text."""
    accept, distance, need = made.accept.copy(), made.distance.copy(), made.need.copy()
    accept[made.start], distance[made.start], need[made.start] = True, 0, 0
    return dataclasses.replace(made, accept=accept, distance=distance, need=need)


def _few_stacks(case: _Case) -> CompiledConstraint | None:
    """A finite automaton whose states are the few stacks that can occur."""
    if case.request.max_depth is not None or case.machine.sets is not None:
        return None
    flat = flattened(case.machine, min(case.request.limits.max_states, _MOST_FLAT))
    return None if flat is None else compile_dfa(flat, case.request)


def _canonical_with_stack(case: _Case) -> CompiledConstraint | None:
    """A canonical constraint that keeps its stack, where it is certain what can be completed."""
    request = case.request
    if request.max_depth is not None or request.filters.tokens or request.starts_text or isinstance(request.canonical, str):
        return None
    try:
        return canonical_stack(case.machine, request)
    except LimitError as error:
        fix = f"{case.way_out} Or raise CompileLimits.{error.limit}."
        raise LimitError(error.limit, error.allowed, "a canonical constraint that nests without a bound", fix=fix) from error


def _unfolded(case: _Case) -> CompiledConstraint:
    """A finite automaton whose states are the configurations up to a depth; over bytes and special tokens where it has these."""
    request = case.request
    machine = case.unfolded("a filter over tokens" if request.filters.tokens else "canonical=True")
    if not machine.specials:
        dfa = ByteDfa(machine.action, machine.byte_class.astype(np.uint8), machine.end == END_HERE, machine.start)
        return compile_dfa(dfa, request)
    if request.filters.tokens:
        what = f"{request.filters.tokens[0].description:.60} cannot be combined with a grammar that names special tokens"
        raise ConstraintError(what, fix="Leave the filter or the special tokens out; filters over text are fine.")
    if request.starts_text:
        what = "starts_text cannot be combined with canonical=True and a grammar that names special tokens"
        raise ConstraintError(what, fix="Write the space that the tokenizer puts first into the grammar.")
    return canonical_form(_composed_machine(machine, request), request)


_REPRESENTATIONS: tuple[Callable[[_Case], CompiledConstraint | None], ...] = (
    _own_stack,
    _few_stacks,
    _canonical_with_stack,
    _unfolded,
)
"""In the order in which they are tried; None: not this one."""


def _starting(language: Language, request: Request) -> tuple[Language, Request]:
    """The tokens' text of a language whose texts start with it, and the request with what its first tokens must pass."""
    from fsa_compile.preprocessing.text_start import first_tokens, text_start

    if language.symbols:
        what = "starts_text is for texts, and this language also holds special tokens or whole tokens"
        raise ConstraintError(what, where=f"  {language.description:.200}", fix="Put the tokenizer's space into the pattern.")
    start = text_start(request.tokenizer)
    first = first_tokens(request.tokenizer, start)
    if first is not None:
        filters = dataclasses.replace(request.filters, tokens=(*request.filters.tokens, first))
        request = dataclasses.replace(request, filters=filters)
    return start.before(language), request


def _composed_machine(machine: ByteMachine, request: Request, **how: Any) -> CompiledConstraint:
    """The artifact of a machine, in every tokenization; `how` goes to `compose_machine`."""
    return compose_machine(
        machine, request.vocabulary, source=request.source, limits=request.limits, deadline=request.deadline, **how
    )


def _composed(dfa: ByteDfa, request: Request) -> CompiledConstraint:
    """The artifact of a byte automaton and filters over tokens; without levels where only `canonical_form` reads it."""
    within: dict[str, Any] = {"source": request.source, "limits": request.limits, "deadline": request.deadline}
    if not request.filters.tokens:
        is_result = request.canonical is False or isinstance(request.canonical, str)
        return compose(dfa, request.vocabulary, levels=is_result, **within)
    from fsa_compile.filters.token_product import compose_filtered

    return compose_filtered(dfa, request.tokenizer, request.vocabulary, request.filters.tokens, **within)
