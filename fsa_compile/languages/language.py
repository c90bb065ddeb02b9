"""`Language`: an unevaluated regular language and its operators. Constructors and automata are elsewhere.

A language is over Unicode text, except that an acceptor over bytes may also hold byte strings that are no text. Operators work
on whole strings: `a & b` holds the texts that both hold, `~a` every Unicode string that `a` does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import ConstraintError, UnsatisfiableError
from fsa_compile.limits import CompileLimits, Deadline, checked_limits

if TYPE_CHECKING:
    from fsa_compile.languages.symbols import Symbol

DEFAULT_LIMITS = CompileLimits()


class Language:
    """A regular language that has not been compiled yet.

    Made by `regex`, `choices`, `literal`, `acceptor`; combined with `|` (either), `&` (both), `-` (but not), `~` (any text
    but), `+` (one after the other). Nothing is built before `to_byte_dfa`, except that a pattern is parsed at once so that its
    errors come early.

    Attributes:
      description: source text, for people.
    """

    description: str = ""

    def to_byte_dfa(self, limits: CompileLimits | None = None, deadline: Deadline | None = None) -> ByteDfa:
        """The language as a trimmed, deterministic byte automaton.

        Args:
          limits: bounds of the compilation.
          deadline: an already running time budget; by default one of `limits.max_seconds` starts now.

        Raises:
          UnsatisfiableError: the language has no member.
          LimitError: a limit is exceeded.
        """
        if self.symbols:
            raise ConstraintError(
                "the language holds special tokens or whole tokens, which are no bytes", where=f"  {_cut(self.description)}",
                fix="Compile it over a vocabulary: compile_language(language, tokenizer).",
            )  # fmt: skip
        limits = DEFAULT_LIMITS if limits is None else checked_limits(limits)
        dfa = self._build(limits, deadline or Deadline(limits))
        if dfa is None or dfa.start == 0:
            raise UnsatisfiableError(
                self._why_empty(), where=f"  {_cut(self.description)}", fix="Change it so that some text is accepted."
            )
        return dfa

    @property
    def symbols(self) -> frozenset[Symbol]:
        """What it holds besides text: special tokens, and symbols for any token (see `extensions.token_symbols`)."""
        return frozenset()

    @property
    def holds_bytes(self) -> bool:
        """Whether an automaton over bytes takes part, whose strings need not be UTF-8."""
        return False

    def to_byte_machine(self, limits: CompileLimits | None = None, deadline: Deadline | None = None) -> ByteMachine | None:
        """The language as a byte automaton that counts large repetitions such as `{0,500}` instead of writing them out.

        Args:
          limits, deadline: as for `to_byte_dfa`.

        Returns:
          None when there is nothing to count or it cannot be counted exactly: then use `to_byte_dfa`.

        Raises:
          LimitError: a limit is exceeded.
        """
        return None

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        """The automaton, or None when there is no member."""
        raise NotImplementedError

    def _why_empty(self) -> str:
        return "the constraint accepts no text at all"

    def __or__(self, other: Language) -> Language:
        return _combine("|", self, other)

    def __and__(self, other: Language) -> Language:
        return _combine("&", self, other)

    def __sub__(self, other: Language) -> Language:
        return _combine("-", self, other)

    def __add__(self, other: Language) -> Language:
        return _combine("+", self, other)

    def __ror__(self, other: Any) -> Language:
        return _combine("|", other, self)

    def __rand__(self, other: Any) -> Language:
        return _combine("&", other, self)

    def __rsub__(self, other: Any) -> Language:
        return _combine("-", other, self)

    def __radd__(self, other: Any) -> Language:
        return _combine("+", other, self)

    def __invert__(self) -> Language:
        _refuse_any_token("~", self)
        return _Complement(self)

    def __repr__(self) -> str:
        return f"Language({_cut(self.description)})"


Extension: TypeAlias = "Language | Callable[..., Language]"
"""What a name of `extensions` stands for: a language, or a function of the texts between the bars of the group's body."""


class _Combined(Language):
    def __init__(self, operator: algebra.Operator, left: Language, right: Language) -> None:
        self._operator, self._left, self._right = operator, left, right
        self.description = f"({left.description}) {operator} ({right.description})"

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self._left.symbols | self._right.symbols

    @property
    def holds_bytes(self) -> bool:
        return self._left.holds_bytes or self._right.holds_bytes

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        left, right = self._left._build(limits, deadline), self._right._build(limits, deadline)
        if left is None or left.start == 0:
            return right if self._operator == "|" else None
        if right is None or right.start == 0:
            return left if self._operator in "|-" else None
        return algebra.combine(self._operator, left, right, limits, deadline)

    def _why_empty(self) -> str:
        return {
            "|": "neither side of | accepts any text",
            "&": "no text is accepted by both sides of &",
            "-": "every text of the left side of - is also accepted by the right side",
            "+": "one side of + accepts no text",
        }[self._operator]


class _Complement(Language):
    def __init__(self, inner: Language) -> None:
        self._inner = inner
        self.description = f"~({inner.description})"

    @property
    def holds_bytes(self) -> bool:
        return self._inner.holds_bytes

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        inner = self._inner._build(limits, deadline)
        everything = algebra.universal_text()
        return everything if inner is None or inner.start == 0 else algebra.combine("-", everything, inner, limits, deadline)

    def _why_empty(self) -> str:
        return "the complement ~ is empty, because its operand accepts every text"


def _combine(operator: algebra.Operator, left: Any, right: Any) -> Language:
    for side, given in (("left", left), ("right", right)):
        if not isinstance(given, Language):
            raise ConstraintError(
                f"the {side} side of {operator} is a {type(given).__name__}, not a Language",
                fix="Wrap it: regex(...), literal(...), choices(...) or acceptor(...).",
            )
    if operator in "&-":
        _refuse_any_token(operator, left, right)
    return _Combined(operator, left, right)


def _refuse_any_token(operator: str, *operands: Language) -> None:
    """Any token is also a text, so that these operators would have to compare tokens with texts."""
    for language in operands:
        if any(not symbol.is_one_token for symbol in language.symbols):
            raise ConstraintError(
                f"{operator} cannot be used with TEXT_TOKEN or PARAGRAPH_TOKEN", where=f"  {_cut(language.description)}",
                fix="Describe the text instead, by a pattern such as [^\\n]*.",
            )  # fmt: skip


def checked_text(text: Any, what: str) -> str:
    if not isinstance(text, str):
        raise ConstraintError(f"{what} must be a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConstraintError(
            f"{what} holds a surrogate at offset {error.start}, which has no UTF-8 form", where=f"  {text[:60]!r}",
            fix="Write the character itself.",
        ) from None  # fmt: skip
    return text


def _cut(text: str, width: int = 200) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
