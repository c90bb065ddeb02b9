"""From an automaton over bytes to an artifact: which representation is chosen, and the order of the steps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, ByteMachine
from fsa_compile.automata.unfold_stacks import flattened
from fsa_compile.compiler.arguments import Canonical, _is_result, _loaded, filters_of
from fsa_compile.composition.compose import compose, compose_machine
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

if TYPE_CHECKING:
    from fsa_compile.filters import Filters
from fsa_compile.compiler.canonical_forms import canonical_form, canonical_stack


def _every_tokenization(
    language: Language,
    vocabulary: Vocabulary,
    limits: CompileLimits,
    *,
    counters: bool,
    tokenizer: Any = None,
    passing: Filters | None = None,
    levels: bool = True,
) -> CompiledConstraint:
    """The artifact of a language, with or without registers for its counts, and behind filters over tokens; without levels it
    is good for `canonical_form` alone."""
    deadline, passing = Deadline(limits), filters_of(()) if passing is None else passing
    if language.symbols:
        from fsa_compile.composition.symbols.symbol_constraint import compile_with_symbols

        return compile_with_symbols(language, vocabulary, limits, deadline)
    # Without a token for each byte a count may not be reachable: only written out is it exact then.
    if counters and not passing.tokens and tables_for(vocabulary).spells_every_byte:
        machine = language.to_byte_machine(limits, deadline)
        if machine is not None:
            return compose_machine(machine, vocabulary, source=language.description, limits=limits, deadline=deadline)
    dfa = language.to_byte_dfa(limits, deadline)
    return _composed(dfa, tokenizer, vocabulary, passing, language.description, limits, deadline, levels=levels)


def _composed(
    dfa: ByteDfa,
    tokenizer: Any,
    vocabulary: Vocabulary,
    passing: Filters,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    *,
    levels: bool = True,
) -> CompiledConstraint:
    """The artifact of a byte automaton and filters over tokens."""
    if not passing.tokens:
        return compose(dfa, vocabulary, source=source, limits=limits, deadline=deadline, levels=levels)
    from fsa_compile.filters.token_product import compose_filtered

    return compose_filtered(
        dfa, _loaded(tokenizer), vocabulary, passing.tokens, source=source, limits=limits, deadline=deadline
    )


def _starting(language: Language, tokenizer: Any, passing: Filters) -> tuple[Language, Filters]:
    """The tokens' text of a language whose texts start with it, and what its first tokens must pass."""
    from fsa_compile.preprocessing.text_start import first_tokens, text_start

    if language.symbols:
        what = "starts_text is for texts, and this language also holds special tokens or whole tokens"
        raise ConstraintError(what, where=f"  {language.description:.200}", fix="Put the tokenizer's space into the pattern.")
    tokenizer = _loaded(tokenizer)
    start = text_start(tokenizer)
    first = first_tokens(tokenizer, start)
    return start.before(language), passing if first is None else dataclasses.replace(passing, tokens=(*passing.tokens, first))


def compile_machine(
    machine: ByteMachine,
    tokenizer: Any,
    vocabulary: Vocabulary,
    *,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    canonical: Canonical = False,
    max_depth: int | None = None,
    filters: Filters | None = None,
    starts_text: bool = False,
    way_out: str = "Give max_depth=, the most frames that may be open at once: what nests deeper is left out then.",
    stacks: int = 1,
    flat_states: int = 0,
) -> CompiledConstraint:
    """The constraint of a machine, filtered and canonical if asked for.

    Stacks stay behind filters over text, but counters are written out as states. For canonical constraints and filters over
    tokens both are.

    Args:
      machine: trimmed.
      tokenizer, vocabulary, limits, canonical, filters, starts_text: see `compile_language`.
      source: what was compiled, for people.
      deadline: an already running time budget.
      max_depth: most cells of a stack, where stacks are written out; None for machines that nest to a bounded depth.
      way_out: what the error for others advises.
      stacks, flat_states: see `compose_machine`.

    Raises:
      UnsatisfiableError: nothing passes the filters.
      ConstraintError: see `canonical_form`; or the machine nests without a bound where that is not possible.
    """
    if isinstance(max_depth, bool) or not (max_depth is None or (isinstance(max_depth, int) and max_depth >= 0)):
        raise ConstraintError(f"max_depth must be an int that is not negative, not {max_depth!r}", fix="Begin with max_depth=4.")
    passing = filters_of(()) if filters is None else filters
    prefix, first, stacked = b"", None, canonical is False and not passing.tokens
    if starts_text:
        from fsa_compile.preprocessing.text_start import first_tokens, machine_start

        tokenizer = _loaded(tokenizer)
        start, needed = machine_start(tokenizer)
        prefix, first = start.prefix.encode(), first_tokens(tokenizer, start)
        stacked = stacked and (first is None or first.are_spaces)
        passing = dataclasses.replace(passing, text=(*passing.text, *needed))
    if passing.text:
        machine = _filtered(machine, passing, source, limits, deadline, max_depth, way_out)
        max_depth = None if not machine.num_symbols else max_depth
    if stacked:
        made = compose_machine(
            machine, vocabulary, source=source, limits=limits, deadline=deadline, stacks=stacks, flat_states=flat_states
        )
        made = _behind(prefix, made, vocabulary)
        return made if first is None else first.narrowed(made)
    flat = flattened(machine, min(limits.max_states, _MOST_FLAT)) if max_depth is None and machine.sets is None else None
    if flat is None and max_depth is None and not passing.tokens and not starts_text and not isinstance(canonical, str):
        try:
            found = canonical_stack(machine, tokenizer, vocabulary, source, limits, deadline, canonical)
        except LimitError as error:
            fix = f"{way_out} Or raise CompileLimits.{error.limit}."
            raise LimitError(error.limit, error.allowed, "a canonical constraint that nests without a bound", fix=fix) from error
        if found is not None:
            return found
    if flat is None:
        machine = _written_out(machine, limits, deadline, max_depth, way_out, "a filter over tokens" if passing.tokens else "")
        if not machine.specials:
            flat = ByteDfa(machine.action, machine.byte_class.astype(np.uint8), machine.end == END_HERE, machine.start)
    if flat is not None:
        over_tokens = dataclasses.replace(passing, text=())
        return compile_dfa(
            flat, tokenizer, vocabulary, source=source, limits=limits, deadline=deadline, canonical=canonical,
            filters=over_tokens, starts_text=starts_text,
        )  # fmt: skip
    if passing.tokens:
        what = f"{passing.tokens[0].description:.60} cannot be combined with a grammar that names special tokens"
        raise ConstraintError(what, fix="Leave the filter or the special tokens out; filters over text are fine.")
    if starts_text:
        what = "starts_text cannot be combined with canonical=True and a grammar that names special tokens"
        raise ConstraintError(what, fix="Write the space that the tokenizer puts first into the grammar.")
    every = compose_machine(machine, vocabulary, source=source, limits=limits, deadline=deadline)
    return canonical_form(every, tokenizer, vocabulary, limits, canonical)


def compile_dfa(
    dfa: ByteDfa,
    tokenizer: Any,
    vocabulary: Vocabulary,
    *,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    canonical: Canonical,
    filters: Filters,
    starts_text: bool = False,
) -> CompiledConstraint:
    """The constraint of a byte automaton, filtered and canonical if asked for; the arguments are `compile_machine`'s."""
    dfa = filters.narrowed(dfa, source, limits, deadline)
    if starts_text:
        from fsa_compile.filters import TextFilter

        language, filters = _starting(TextFilter(source, lambda limits, deadline: dfa), tokenizer, filters)
        dfa = language.to_byte_dfa(limits, deadline)
    every = _composed(
        dfa, tokenizer, vocabulary, filters, source, limits, deadline, levels=_is_result(canonical)
    )
    return every if canonical is False else canonical_form(every, tokenizer, vocabulary, limits, canonical)


def _behind(prefix: bytes, constraint: CompiledConstraint, vocabulary: Vocabulary) -> CompiledConstraint:
    """A constraint behind a text."""
    if not prefix:
        return constraint
    from fsa_compile.composition.prefix.partial_tokens import PartialTokens
    from fsa_compile.composition.prefix.prepend import with_prefixes
    from fsa_compile.vocabulary.lookup import token_lookup

    lookup = token_lookup(vocabulary)
    return with_prefixes(PartialTokens(constraint, lookup), lookup, [prefix])[0]


def _filtered(
    machine: ByteMachine,
    passing: Filters,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    max_depth: int | None,
    way_out: str,
) -> ByteMachine:
    """The machine behind filters over text."""
    from fsa_compile.automata.pushdown_product import filtered_machine, is_plain
    from fsa_compile.filters.filter_base import empty_after

    if max_depth is not None or not is_plain(machine):
        why = f"{passing.text[0].description:.60} behind counters, sets of keys or parallel stacks"
        machine = _written_out(machine, limits, deadline, max_depth, way_out, why)
    found = filtered_machine(machine, passing.automaton(limits, deadline), limits, deadline)
    if found is None:
        raise empty_after(source, passing.text)
    return found


def _written_out(
    machine: ByteMachine, limits: CompileLimits, deadline: Deadline, max_depth: int | None, way_out: str, why: str
) -> ByteMachine:
    from fsa_compile.automata.unfold_configurations import written_out

    why = why or "canonical=True"
    return written_out(machine, limits, deadline, max_depth=max_depth, way_out=way_out, why=why)


_MOST_FLAT = 200_000
