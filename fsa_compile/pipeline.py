"""The only module that knows the order of the steps: language → byte automaton → token automaton → artifact."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

from fsa_compile import language as languages
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.errors import ConstraintError
from fsa_compile.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.promote import promote
from fsa_compile.vocabulary import Vocabulary


def compile_language(language: Language, tokenizer: Any, *, limits: CompileLimits | None = None) -> CompiledConstraint:
    """Compiles a language over a tokenizer's vocabulary.

    Args:
      language: from `regex`, `choices`, `literal` or `acceptor`, possibly combined with `|`, `&`, `-`, `~`, `+`.
      tokenizer: from `load_tokenizer`, a `Vocabulary`, or anything `load_tokenizer` takes (a path, for example).
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
    if limits is not None and not isinstance(limits, CompileLimits):
        raise ConstraintError(
            f"limits must be CompileLimits, not {type(limits).__name__}",
            fix="Write limits=CompileLimits(max_seconds=10), for example.",
        )
    vocabulary = vocabulary_of(tokenizer)
    limits = limits or CompileLimits()
    deadline = Deadline(limits)
    dfa = language.to_byte_dfa(limits, deadline)
    return promote(dfa, vocabulary, source=language.description, limits=limits, deadline=deadline)


def compile_regex(
    pattern: str | Language, tokenizer: Any, *, flags: int = 0, limits: CompileLimits | None = None
) -> CompiledConstraint:
    r"""Compiles a regular expression: the texts that `re.fullmatch(pattern, text, flags)` matches.

    Args:
      pattern: Python's dialect, plus `\p{...}` and lookbehind of any width; or a language made from patterns.
      tokenizer: see `compile_language`.
      flags: `re.A`, `re.I`, `re.M`, `re.S`, `re.X`.
      limits: see `compile_language`.

    Raises:
      RegexSyntaxError, UnsupportedPatternError: with the offset in the pattern and a caret below it.
      ConstraintError: see `compile_language`.
    """
    language = pattern if isinstance(pattern, Language) else languages.regex(pattern, flags=flags)
    return compile_language(language, tokenizer, limits=limits)


def compile_choices(strings: Iterable[str], tokenizer: Any, *, limits: CompileLimits | None = None) -> CompiledConstraint:
    """Compiles a finite list of texts, through a minimal trie; 100,000 of them are fine.

    Args:
      strings: the texts; duplicates do no harm.
      tokenizer, limits: see `compile_language`.
    """
    return compile_language(languages.choices(strings), tokenizer, limits=limits)


def compile_acceptor(
    automaton: Any,
    tokenizer: Any,
    *,
    alphabet: Literal["bytes", "code points"] = "bytes",
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a user's own automaton: a pynini acceptor, an `interegular` FSM, or a transition table.

    Args:
      automaton: see `fsa_compile.acceptor` for the forms and their labels.
      alphabet: what its labels stand for.
      tokenizer, limits: see `compile_language`.
    """
    return compile_language(languages.acceptor(automaton, alphabet), tokenizer, limits=limits)


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
