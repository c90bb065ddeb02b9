"""The only module that knows the order of the steps: language → byte automaton → token automaton → artifact."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from fsa_compile import language as languages
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.byte_dfa import ByteDfa
from fsa_compile.byte_machine import END_HERE, ByteMachine
from fsa_compile.errors import ConstraintError, LimitError, UnsupportedGrammarError
from fsa_compile.flatten import flattened
from fsa_compile.grammar import Choice, Expression, Grammar, LexicalMode, Repeat, Sequence, SpecialToken
from fsa_compile.language import Extension, Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.promote import promote, promote_machine
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary_tables import tables_for

if TYPE_CHECKING:
    from fsa_compile.filters import Filter, Filters

Canonical: TypeAlias = bool | Literal["heal"] | SequenceOf[int]
"""Whether only the tokenizer's own token sequences are allowed; token ids: those of the prompt that the text continues; "heal":
in the form that `heal(..., canonical=True)` takes."""


def compile_language(
    language: Language,
    tokenizer: Any,
    *,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a language over a tokenizer's vocabulary.

    Args:
      language: from `regex`, `choices`, `literal` or `acceptor`, possibly combined with `|`, `&`, `-`, `~`, `+`.
      tokenizer: from `load_tokenizer`, a `Vocabulary`, or anything `load_tokenizer` takes (a path, for example).
      canonical: whether only those token sequences are allowed that the tokenizer itself makes of a text. It takes a byte-pair
        encoder (not a bare `Vocabulary`), and `fsa_compile.canonical_tables(tokenizer)` beside the artifact when it is used.
        Token ids of a prompt instead of True: only those that, behind the prompt, are the tokenizer's own for both together.
        "heal": all of them, but counts and stacks are written out as for True, which is what `heal(..., canonical=True)` takes.
      filters: from `fsa_compile.filters`, or languages: only texts, and spellings of them, that pass all of these.
      starts_text: whether the output starts a text instead of continuing a prompt. Then its first token begins with the space
        that the tokenizer puts before a text, if it does, and decoding takes away again; see `fsa_compile.preprocessing`.
      limits: bounds of the compilation; defaults to `CompileLimits()`.

    Returns:
      The artifact. The constraint is on the text that is generated, exactly as its tokens spell it.

    Raises:
      ConstraintError: one of its subclasses, each saying what is wrong, where, and what to do: a pattern that cannot be
        enforced, a language without members, a vocabulary that cannot spell it, a limit exceeded.

    >>> tokens = [b"yes", b"no", b"n", b"o", b""]
    >>> from fsa_compile import regex
    >>> walk = compile_language(regex("yes|no"), Vocabulary.from_tokens(tokens, stop_ids=[4])).walk()
    >>> walk.allowed().tolist()
    [True, True, True, False, False]
    """
    if not isinstance(language, Language):
        raise ConstraintError(
            f"a language is needed, not {type(language).__name__}",
            fix="Make one with regex(...), choices([...]) or acceptor(...).",
        )
    _checked_limits(limits)
    vocabulary = vocabulary_of(tokenizer)
    limits = limits or CompileLimits()
    passing = filters_of(filters)
    if passing:
        if language.symbols:
            what = "filters are for text, and this language also holds special tokens or whole tokens"
            raise ConstraintError(what, where=f"  {language.description:.200}", fix="Filter the texts in it: language & filter.")
        language = passing.applied_to(language)
    if starts_text:
        language, passing = _starting(language, tokenizer, passing)
    constraint = _every_tokenization(
        language, vocabulary, limits, counters=canonical is False, tokenizer=tokenizer, passing=passing,
        levels=_is_result(canonical),
    )  # fmt: skip
    return constraint if canonical is False else canonical_form(constraint, tokenizer, vocabulary, limits, canonical)


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
        from fsa_compile.extensions.token_constraint import compile_with_symbols

        return compile_with_symbols(language, vocabulary, limits, deadline)
    # Without a token for each byte a count may not be reachable: only written out is it exact then.
    if counters and not passing.tokens and tables_for(vocabulary).spells_every_byte:
        machine = language.to_byte_machine(limits, deadline)
        if machine is not None:
            return promote_machine(machine, vocabulary, source=language.description, limits=limits, deadline=deadline)
    dfa = language.to_byte_dfa(limits, deadline)
    return _promoted(dfa, tokenizer, vocabulary, passing, language.description, limits, deadline, levels=levels)


def _promoted(
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
        return promote(dfa, vocabulary, source=source, limits=limits, deadline=deadline, levels=levels)
    from fsa_compile.filters.token_product import promote_filtered

    return promote_filtered(
        dfa, _loaded(tokenizer), vocabulary, passing.tokens, source=source, limits=limits, deadline=deadline
    )


def _is_result(canonical: Canonical) -> bool:
    """Whether the artifact of every tokenization is the result, and not what `canonical_form` makes its own of."""
    return canonical is False or isinstance(canonical, str)


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


def filters_of(filters: Any) -> Filters:
    """Filters as users give them; see `compile_language`."""
    from fsa_compile.filters import checked_filters

    return checked_filters(filters)


def canonical_form(
    constraint: CompiledConstraint, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits, canonical: Canonical = True
) -> CompiledConstraint:
    """A constraint restricted to the token sequences that the tokenizer itself makes of a text.

    Args:
      constraint: a regular one, over `vocabulary`.
      tokenizer: it must know its merges, so a `Vocabulary` is not enough.
      vocabulary: the tokenizer's.
      limits: bounds of this step; its time starts anew.
      canonical: True, or the tokens of a prompt; see `compile_language`.

    Raises:
      ConstraintError: the constraint has a stack or counters, the tokenizer is no byte-pair encoder, the prompt is not its own
        encoding, a limit is exceeded.
    """
    from fsa_compile.canonical.product import canonical_product
    from fsa_compile.canonical.tables import canonical_tables

    tables = canonical_tables(tokenizer)
    if isinstance(canonical, str):
        if canonical != "heal":
            raise ConstraintError(f"canonical is {canonical!r}", fix='Give True, False, "heal", or the token ids of a prompt.')
        return constraint
    prompt = [] if isinstance(canonical, bool) else [int(token) for token in canonical]
    try:
        return canonical_product(constraint, tables, tables_for(vocabulary), limits, Deadline(limits), prompt=prompt)
    except LimitError as error:
        fix = (
            "Counts, stacks and the states of the tokenizer's splitter are written out as states: leave out upper bounds on the "
            f"length of free text, lower bounds on depth, or raise CompileLimits.{error.limit}."
        )
        raise LimitError(error.limit, error.allowed, "a canonical constraint", fix=fix) from error


def canonical_stack(
    machine: ByteMachine,
    tokenizer: Any,
    vocabulary: Vocabulary,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    canonical: Canonical,
) -> CompiledConstraint | None:
    """The canonical constraint of a machine that nests without a bound, stack and all; None where it is not certain what can be
    completed. The arguments are those of `compile_machine` and `canonical_form`."""
    if not machine.deterministic or machine.sets is not None or canonical is False:
        return None
    from fsa_compile.canonical.normal_form import check_machine_normal
    from fsa_compile.canonical.product import with_stack
    from fsa_compile.canonical.tables import canonical_tables
    from fsa_compile.canonical.without_registers import without_registers

    tables, prompt = canonical_tables(tokenizer), [] if isinstance(canonical, bool) else [int(token) for token in canonical]
    if tables.unicode_form is not None:
        check_machine_normal(machine, tables.unicode_form)
    fewer = dataclasses.replace(limits, max_states=min(limits.max_states, _MOST_CONTROLS))
    try:
        counting_nothing = without_registers(machine, fewer, deadline)
    except LimitError as error:
        if error.limit != "max_states":
            raise
        return None
    plain = promote_machine(counting_nothing, vocabulary, source=source, limits=limits, deadline=deadline)
    if plain.is_regular:
        return canonical_form(plain, tokenizer, vocabulary, limits, canonical)
    return with_stack(plain, tables, tables_for(vocabulary), limits, deadline, prompt=prompt)


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
      stacks, flat_states: see `promote_machine`.

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
        made = promote_machine(
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
    every = promote_machine(machine, vocabulary, source=source, limits=limits, deadline=deadline)
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
    every = _promoted(
        dfa, tokenizer, vocabulary, filters, source, limits, deadline, levels=_is_result(canonical)
    )
    return every if canonical is False else canonical_form(every, tokenizer, vocabulary, limits, canonical)


def _behind(prefix: bytes, constraint: CompiledConstraint, vocabulary: Vocabulary) -> CompiledConstraint:
    """A constraint behind a text."""
    if not prefix:
        return constraint
    from fsa_compile.bridges import Bridges
    from fsa_compile.prefixed import with_prefixes
    from fsa_compile.token_lookup import token_lookup

    lookup = token_lookup(vocabulary)
    return with_prefixes(Bridges(constraint, lookup), lookup, [prefix])[0]


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
    from fsa_compile.filters.base import empty_after
    from fsa_compile.filters.machine_product import filtered_machine, is_plain

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
    from fsa_compile.canonical.written_out import written_out

    why = why or "canonical=True"
    return written_out(machine, limits, deadline, max_depth=max_depth, way_out=way_out, why=why)


def check_depth(max_depth: int | None, canonical: Canonical, filters: Filters | None = None) -> None:
    """Raises `ConstraintError` for a bound on depth where none can be kept."""
    if max_depth is not None and canonical is False and not filters:
        what = "max_depth bounds canonical and filtered constraints, whose stacks are written out; others keep a stack"
        raise ConstraintError(what, fix="Give generate(..., max_depth=), or compile with canonical=True.")


def compile_regex(
    pattern: str | Language,
    tokenizer: Any,
    *,
    flags: int = 0,
    extensions: Mapping[str, Extension] | None = None,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    r"""Compiles a regular expression: the texts that `re.fullmatch(pattern, text, flags)` matches.

    Args:
      pattern: Python's dialect, plus `\p{...}` and lookbehind of any width; or a language made from patterns.
      tokenizer: see `compile_language`.
      flags: `re.A`, `re.I`, `re.M`, `re.S`, `re.X`.
      extensions: languages by name, for groups `(?P<NAME>)` of the pattern; see `fsa_compile.extensions`.
      canonical, filters, starts_text, limits: see `compile_language`.

    Raises:
      RegexSyntaxError, UnsupportedPatternError: with the offset in the pattern and a caret below it.
      ConstraintError: see `compile_language`.
    """
    if isinstance(pattern, Language) and extensions:
        what = "extensions are for a pattern in text, and this one is a language already"
        raise ConstraintError(what, fix="Give them to regex(pattern, extensions=...).")
    language = pattern if isinstance(pattern, Language) else languages.regex(pattern, flags=flags, extensions=extensions)
    return compile_language(language, tokenizer, canonical=canonical, filters=filters, starts_text=starts_text, limits=limits)


def compile_choices(
    strings: Iterable[str],
    tokenizer: Any,
    *,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a finite list of texts, through a minimal trie; 100,000 of them are fine.

    Args:
      strings: the texts; duplicates do no harm.
      tokenizer, canonical, filters, starts_text, limits: see `compile_language`.
    """
    language = languages.choices(strings)
    return compile_language(
        language, tokenizer, canonical=canonical, filters=filters, starts_text=starts_text, limits=limits
    )


def compile_acceptor(
    automaton: Any,
    tokenizer: Any,
    *,
    alphabet: Literal["bytes", "code points"] = "bytes",
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a user's own automaton: a pynini acceptor, an `interegular` FSM, or a transition table.

    Args:
      automaton: see `fsa_compile.acceptor` for the forms and their labels.
      alphabet: what its labels stand for.
      tokenizer, canonical, filters, starts_text, limits: see `compile_language`.
    """
    language = languages.acceptor(automaton, alphabet)
    return compile_language(language, tokenizer, canonical=canonical, filters=filters, starts_text=starts_text, limits=limits)


Syntax = Literal["lark", "gbnf"]


def compile_grammar(
    text: str,
    tokenizer: Any,
    *,
    start: str | None = None,
    syntax: Syntax | None = None,
    mode: LexicalMode | None = None,
    stacks: int = 1,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a context-free grammar, written in Lark's syntax or in GBNF.

    Args:
      text: the grammar; `fsa_compile.library.grammar_text(name)` has ready ones.
      tokenizer: see `compile_language`.
      start: the start rule; by default `start` in Lark's syntax, `root` in GBNF.
      syntax: "lark" or "gbnf"; None tells them apart by GBNF's `::=`.
      mode: "longest" cuts text into lexemes as a lexer does, with `%ignore` between them (the default in Lark's syntax);
        "characters" concatenates terminals as they are (the default, and the only mode, in GBNF).
      stacks: parallel stacks for grammars that one stack cannot decide; 1 makes every conflict an error. With more, the
        constraint is exact while they suffice; when they do not, readings are dropped, which can only forbid valid text, and
        the decoding result says so.
      canonical: see `compile_language`. Counts and stacks are written out, so that such a constraint keeps none while decoding.
      starts_text: see `compile_language`; texts that begin with a space are left out for tokenizers that cannot keep it.
      filters: see `compile_language`. Those over text keep the stack; those over tokens have it written out, as `canonical` does.
      max_depth: where stacks are written out, how many frames of rules that contain themselves may be open at once; what nests
        deeper is left out. Needed for grammars that nest without bound.
      limits: see `compile_language`.

    Returns:
      The artifact.

    Raises:
      GrammarError: with line, column and the way out: not well formed, not supported, or undecidable with this many stacks.
      ConstraintError: see `compile_language`.
    """
    from fsa_compile.grammar_machine import machine_of

    _checked_limits(limits)
    passing = filters_of(filters)
    check_depth(max_depth, canonical, passing)
    if not isinstance(text, str):
        what = f"a grammar is a str, not {type(text).__name__}"
        raise ConstraintError(what, fix="Pass its text; for a file, Path(file).read_text().")
    if not isinstance(stacks, int) or isinstance(stacks, bool) or not 1 <= stacks <= MAX_STACKS:
        raise ConstraintError(f"stacks must be an int from 1 to {MAX_STACKS}, not {stacks!r}", fix="Begin with stacks=2.")
    limits = limits or CompileLimits()
    deadline = Deadline(limits)
    grammar = parse_grammar(text, start=start, syntax=syntax, mode=mode, limits=limits)
    vocabulary = vocabulary_of(tokenizer)
    specials = _special_ids(grammar, vocabulary)
    machine = machine_of(grammar, stacks=stacks, specials=specials, limits=limits, deadline=deadline)
    return compile_machine(
        machine, tokenizer, vocabulary, source=text, limits=limits, deadline=deadline, canonical=canonical, filters=passing,
        starts_text=starts_text, max_depth=max_depth, stacks=stacks,
    )  # fmt: skip


_MOST_FLAT = 200_000
_MOST_CONTROLS = 20_000
"""Most controls of a machine whose canonical constraint keeps its stack."""
MAX_STACKS = 16
"""Most parallel stacks of a constraint: the cost of a step grows with them."""


def parse_grammar(
    text: str,
    *,
    start: str | None = None,
    syntax: Syntax | None = None,
    mode: LexicalMode | None = None,
    limits: CompileLimits | None = None,
) -> Grammar:
    """Reads a grammar without compiling it; the arguments and errors are `compile_grammar`'s."""
    limits = limits or CompileLimits()
    if syntax not in (None, "lark", "gbnf"):
        raise ConstraintError(f"unknown grammar syntax {syntax!r}", fix='Write syntax="lark" or syntax="gbnf".')
    if mode not in (None, "longest", "characters"):
        raise ConstraintError(f"unknown lexical mode {mode!r}", fix='Write mode="longest" or mode="characters".')
    if syntax == "gbnf" or (syntax is None and re.search(r"^[ \t]*[A-Za-z][\w-]*[ \t]*::=", text, re.M)):
        from fsa_compile.gbnf_syntax import parse_gbnf

        if mode == "longest":
            what = "GBNF describes characters; it has no lexer to match longest"
            raise ConstraintError(what, fix='Leave mode out, or write the grammar in Lark\'s syntax.')
        return parse_gbnf(text, start=start or "root", limits=limits)
    from fsa_compile.lark_syntax import parse_lark

    return parse_lark(text, start=start or "start", mode=mode, limits=limits)


def _special_ids(grammar: Grammar, vocabulary: Vocabulary) -> dict[str | int, int]:
    """Token id of every special token that the grammar names.

    Raises:
      UnsupportedGrammarError: the vocabulary has no such token, or it is text, or it ends the text.
    """
    out: dict[str | int, int] = {}
    for node in special_tokens(grammar):
        token = vocabulary.special.get(node.name, -1) if isinstance(node.name, str) else node.name
        what = fix = ""
        if not 0 <= token < vocabulary.size:
            what = f"the vocabulary has no special token {node.name!r}"
            known = ", ".join(sorted(vocabulary.special)[:8])
            fix = f"Its special tokens begin with {known}." if known else "It has no named special tokens: write <[id]>."
        elif vocabulary.tokens[token]:
            what = f"token {token} is the text {vocabulary.tokens[token]!r}, not a special token"
            fix = "Write the text as a string instead."
        elif token in vocabulary.stop_ids:
            what = f"special token {node.name!r} ends the text, so nothing can follow it"
            fix = "Leave it out: it is allowed wherever the grammar is complete."
        if what:
            raise UnsupportedGrammarError(what, text=grammar.text, start=node.start, end=node.end, fix=fix)
        out[node.name] = token
    return out


def special_tokens(grammar: Grammar) -> Iterator[SpecialToken]:
    """Every place in a grammar where a special token stands."""
    todo: list[Expression] = [rule.body for rule in grammar.rules.values()] + list(grammar.ignore)
    while todo:
        node = todo.pop()
        match node:
            case SpecialToken():
                yield node
            case Sequence(parts=children) | Choice(branches=children):
                todo += children
            case Repeat(part=child):
                todo.append(child)


def _checked_limits(limits: Any) -> None:
    if limits is not None and not isinstance(limits, CompileLimits):
        raise ConstraintError(
            f"limits must be CompileLimits, not {type(limits).__name__}",
            fix="Write limits=CompileLimits(max_seconds=10), for example.",
        )


def _loaded(tokenizer: Any) -> Any:
    """A tokenizer or vocabulary as it is; anything else as `load_tokenizer` reads it."""
    if isinstance(tokenizer, Vocabulary) or isinstance(getattr(tokenizer, "vocabulary", None), Vocabulary):
        return tokenizer
    from fsa_compile.tokenizers import load_tokenizer

    return load_tokenizer(tokenizer)


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer, a vocabulary itself, or of anything `load_tokenizer` reads."""
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    vocabulary = getattr(tokenizer, "vocabulary", None)
    if isinstance(vocabulary, Vocabulary):
        return vocabulary
    if tokenizer is None or (isinstance(tokenizer, (str, os.PathLike)) and not os.fspath(tokenizer)):
        raise ConstraintError("no tokenizer was given", fix="Pass load_tokenizer(path), or the path itself.")
    from fsa_compile.tokenizers import load_tokenizer

    return load_tokenizer(tokenizer).vocabulary
