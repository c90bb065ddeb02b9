"""The only module that knows the order of the steps: language → byte automaton → token automaton → artifact."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.compiler.arguments import Canonical, Request
from fsa_compile.compiler.grammars import is_grammar
from fsa_compile.compiler.machines import compile_of_language
from fsa_compile.errors import ConstraintError
from fsa_compile.inputs.guard import guarded
from fsa_compile.languages import constructors as languages
from fsa_compile.languages.language import Extension, Language
from fsa_compile.limits import CompileLimits

if TYPE_CHECKING:
    from fsa_compile.filters import Filter


@guarded
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

    Examples:
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
    request = Request.of(
        tokenizer, language.description, canonical=canonical, filters=filters, starts_text=starts_text, limits=limits
    )
    return compile_of_language(language, request)


@guarded
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
    if isinstance(pattern, str) and is_grammar(pattern):
        how = "compile_grammar(text, tokenizer) compiles grammars"
        warnings.warn(f"this pattern reads like a grammar, and is compiled as a pattern; {how}", stacklevel=3)
    language = pattern if isinstance(pattern, Language) else languages.regex(pattern, flags=flags, extensions=extensions)
    return compile_language(language, tokenizer, canonical=canonical, filters=filters, starts_text=starts_text, limits=limits)


@guarded
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


@guarded
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
