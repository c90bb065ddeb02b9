"""What a filter is: a language over text, or an automaton over whole tokens. The filters themselves are in other modules."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.errors import ConstraintError, UnsatisfiableError, listed
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary


class TextFilter(Language):
    """A filter over text: a `Language`, so it also goes with `|`, `&`, `-`, `~`, `+`.

    Args:
      description: how it was asked for, in full: two filters with one description are the same.
      build: makes its automaton.
    """

    def __init__(self, description: str, build: Callable[[CompileLimits, Deadline], ByteDfa | None]) -> None:
        self.description, self._automaton = description, build

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        return self._automaton(limits, deadline)

    def _why_empty(self) -> str:
        return "no text passes this filter"


@dataclasses.dataclass(frozen=True, eq=False)
class TokenDfa:
    """A deterministic automaton over whole tokens. State 0 is dead and loops to itself, state 1 is the start.

    Attributes:
      table: int32[F, K], next state by state and class of token.
      token_class: int32[V], class of every token; those that write no text (special tokens) have one too.
      final: bool[F], whether the text may end.
    """

    table: np.ndarray
    token_class: np.ndarray
    final: np.ndarray

    def accepts(self, tokens: Iterable[int]) -> bool:
        """Whether a token sequence passes."""
        state = 1
        for token in tokens:
            state = int(self.table[state, self.token_class[token]])
        return bool(self.final[state])


class TokenFilter(abc.ABC):
    """A filter over token sequences, whatever they spell.

    Attributes:
      description: how it was asked for, in full.
      needs_encoder: whether more of the tokenizer than its vocabulary counts.
    """

    description: str
    needs_encoder: bool = False

    @abc.abstractmethod
    def automaton(self, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits) -> TokenDfa:
        """Its automaton over a tokenizer's vocabulary.

        Raises:
          ConstraintError: the tokenizer does not tell what the filter needs, a token that does not exist, a limit exceeded.
        """

    def denied(self, vocabulary: Vocabulary) -> np.ndarray | None:
        """bool[V], the tokens it forbids, where it forbids them everywhere and nothing else; else None."""
        return None

    def __repr__(self) -> str:
        return self.description


Filter = Language | TokenFilter


@dataclasses.dataclass(frozen=True)
class Filters:
    """Filters of one compilation, by what they read; the order does not matter.

    Attributes:
      text: over text, applied before composition with the vocabulary.
      tokens: over token sequences, applied after it.
    """

    text: tuple[Language, ...] = ()
    tokens: tuple[TokenFilter, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)

    @property
    def identity(self) -> list[str] | None:
        """What names these filters among all others; None where an arbitrary language or an encoder takes part."""
        if not all(isinstance(one, TextFilter) for one in self.text) or any(one.needs_encoder for one in self.tokens):
            return None
        return sorted([one.description for one in self.text] + [one.description for one in self.tokens])

    def automaton(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
        """The texts that pass all filters over text, of which there is at least one.

        Raises:
          UnsatisfiableError: there are none.
        """
        return self.text[0].to_byte_dfa(limits, deadline) if len(self.text) == 1 else self.narrowed(None, "", limits, deadline)

    def narrowed(self, dfa: ByteDfa | None, source: str, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
        """The texts of an automaton (None: all texts) that pass all filters over text.

        Args:
          source: what the automaton stands for, for the message.

        Raises:
          UnsatisfiableError: there are none.
        """
        for number, one in enumerate(self.text):
            passing = one.to_byte_dfa(limits, deadline)
            dfa = passing if dfa is None else algebra.combine("&", dfa, passing, limits, deadline)
            if dfa.start == 0:
                raise empty_after(source or "all texts", self.text[: number + 1])
        return algebra.universal_text() if dfa is None else dfa

    def applied_to(self, language: Language) -> Language:
        """The texts of a language that pass all text filters."""
        return _Filtered(language, self) if self.text else language


NO_FILTERS = Filters()


def checked_filters(filters: Any) -> Filters:
    """Filters as a user gives them, sorted by what they read.

    Args:
      filters: a list of `TextFilter`, `TokenFilter` or `Language`.

    Raises:
      ConstraintError: something else; a language that holds special tokens.
    """
    if isinstance(filters, (list, tuple)) and not filters:
        return NO_FILTERS
    if isinstance(filters, (str, bytes, Language, TokenFilter)) or not isinstance(filters, Iterable):
        raise ConstraintError(
            f"filters must be a list of filters, not one {type(filters).__name__}",
            fix="Write filters=[filters.ascii()], for example.",
        )
    text: list[Language] = []
    tokens: list[TokenFilter] = []
    for i, one in enumerate(listed(filters, "filters")):
        if isinstance(one, TokenFilter):
            tokens.append(one)
        elif isinstance(one, Language):
            if one.symbols:
                raise ConstraintError(
                    "a filter over text cannot hold special tokens", where=f"  filters[{i}] = {one.description:.80}",
                    fix="Write it without them.",
                )  # fmt: skip
            text.append(one)
        else:
            raise ConstraintError(
                f"filter {i} is a {type(one).__name__}", where=f"  filters[{i}] = {one!r:.80}",
                fix="Use fsa_compile.filters, such as filters.ascii(), or a language such as regex(...).",
            )  # fmt: skip
    return Filters(tuple(text), tuple(tokens))


def empty_after(what: str, filters: Iterable[Language | TokenFilter], fix: str = "") -> UnsatisfiableError:
    """The error for a constraint of which nothing passes its filters."""
    names = ", ".join(f"{one.description:.60}" for one in filters)
    return UnsatisfiableError(
        f"nothing that the constraint accepts passes {names}",
        where=f"  {what:.200}",
        fix=fix or "Loosen the filter, or the constraint.",
    )


class _Filtered(Language):
    """A language and filters over it."""

    def __init__(self, language: Language, filters: Filters) -> None:
        self._language, self._filters = language, filters
        self.description = language.description

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        return self._filters.narrowed(self._language.to_byte_dfa(limits, deadline), self.description, limits, deadline)
