"""The extension groups as languages: what `(?P<NAME>)` stands for in a pattern, for use with `|`, `&`, `-` and `+` as well.

Source: Koo et al. 2024, §2.5 and Table 1, which names them; each docstring defines the exact language here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from fsa_compile.automata.aho_corasick import text_until_automaton
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.suffix_automaton import substring_dfa
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import ConstraintError, checked_flag, is_whole
from fsa_compile.languages.embedding import Embedded, PatternWithPlaces, moved, place, sequence_of_parts
from fsa_compile.languages.language import Language
from fsa_compile.languages.pattern_language import from_tree, literal, plain_pattern, tree_of
from fsa_compile.languages.symbols import AnyToken, SpecialToken, Symbol
from fsa_compile.languages.token_symbols import OneSymbol
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.regex_tree import Concat, Node, Repeat

QUOTED_TEXT_PATTERN = r'"(?:[^"\\\n\r]|\\[^\n\r])*"'
"""What QUOTED_TEXT matches."""

_PLAIN = r"""!"$-+\--9;-Z\\^-z|~\xa0-\u2027\u202a-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"""
"""Characters of a YAML plain scalar that are safe everywhere; those after a colon may also be ':' or '#'."""
_PLAIN_FIRST = r"""$()+./0-9;<=A-Z\\^_a-z~\xa0-\u2027\u202a-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"""
_REST = rf"(?:[{_PLAIN}#]|:+[{_PLAIN}#])*"
UNQUOTED_TEXT_PATTERN = (
    rf"(?:[{_PLAIN_FIRST}]{_REST}|[?\-](?:[{_PLAIN}#]|:+[{_PLAIN}#]){_REST}|:+[{_PLAIN}#]{_REST})"
    rf"(?: +(?:[{_PLAIN}]|:+[{_PLAIN}#]){_REST})*"
)
"""What UNQUOTED_TEXT matches."""


def quoted_text() -> Language:
    r"""A double-quoted string on one line, in which a backslash takes the next character with it.

    Every `"`, any number of characters other than `"`, backslash and line breaks, or pairs of a backslash and any character
    that is no line break (`\n`, `\r`), and a closing `"`. JSON strings are members; so is `"\q"`.
    """
    return plain_pattern(QUOTED_TEXT_PATTERN)


def unquoted_text() -> Language:
    """A YAML plain scalar on one line, safe in block and flow collections.

    YAML 1.2.2, rule `ns-plain-one-line` in a flow collection, so that it holds none of `,[]{}`, no `: ` and no ` #`, and
    begins with no indicator. Tabs, the line and paragraph separators and U+0085 are left out, since YAML 1.1 readers refuse them
    or break lines there. What a reader makes of it is another matter: `true` and `12` are plain scalars too.
    """
    return plain_pattern(UNQUOTED_TEXT_PATTERN)


def text_until(*stops: str) -> Language:
    """Any text up to and including the first occurrence of a stop phrase.

    The members end with one of the phrases and hold none that ends earlier.

    Raises:
      ConstraintError: no phrase, an empty one, or one that is no text.

    Examples:
      >>> text_until("END").to_byte_dfa().accepts(b"so it ENDs. END")
      False
    """
    return _TextUntil(_checked_phrases(stops))


def substring_of(text: str, *, allow_empty: bool = True) -> Language:
    """The substrings of a text, at character borders: `candidate in text`.

    Args:
      text: of any length; time and memory grow linearly with it.
      allow_empty: whether the empty text counts.

    Raises:
      ConstraintError: not a str, or holds a surrogate.
    """
    return _SubstringOf(literal_bytes(text, "the text of substring_of"), checked_flag(allow_empty, "allow_empty"))


def delimited_list(
    element: Language | str, delimiter: Language | str = ", ", *, low: int = 1, high: int | None = None
) -> Language:
    """Elements of one language with a delimiter between neighbours.

    Args:
      element, delimiter: languages; a str means itself.
      low, high: least and largest number of elements; with `low=0` the empty text is a member.

    Raises:
      ConstraintError: an argument of another type, or bounds that contradict each other.
    """
    low, high = _checked_counts(low, high, "a list", "elements")
    parts = _Parts()
    tree = list_tree(parts.node(element, "element"), parts.node(delimiter, "delimiter"), low, high)
    return parts.language(tree, f"delimited list of {parts.names[0]}, between them {parts.names[1]}")


def delimited_subsequence_of(
    elements: Iterable[Language | str], delimiter: Language | str = ", ", *, allow_empty: bool = False
) -> Language:
    """Some of the elements, in their order, each at most once, with a delimiter between neighbours.

    Args:
      elements: languages; a str means itself.
      delimiter: likewise.
      allow_empty: whether no element at all, the empty text, is a member.

    Raises:
      ConstraintError: no elements, or an argument of another type.
    """
    if isinstance(elements, str) or not isinstance(elements, Iterable):
        raise ConstraintError("the elements are no list", fix='Give a list such as ["red", "green"].')
    chosen = [_language(element, f"element {i}") for i, element in enumerate(elements)]
    if not chosen:
        raise ConstraintError("there are no elements to choose from", fix="Give at least one.")
    return _Subsequence(chosen, _language(delimiter, "delimiter"), checked_flag(allow_empty, "allow_empty"))


def text_token() -> Language:
    """Any one token that writes text.

    It is about tokens and not about bytes: whatever comes before ends with a token, and so does this. The text as a whole is
    UTF-8; a character that the vocabulary splits may be split between neighbouring text tokens.
    """
    return OneSymbol(frozenset({AnyToken("text")}), "any text token")


def paragraph_token() -> Language:
    r"""Any one token that writes text without line breaks (`\n`, `\r`); otherwise as `text_token`."""
    return OneSymbol(frozenset({AnyToken("paragraph")}), "any text token without line breaks")


def special_token(*names: str | int) -> Language:
    """Exactly one of some special tokens, which write no text.

    Args:
      names: printed names, or ids. Whether the vocabulary has them is checked when it is known, in `compile_language`.

    Raises:
      ConstraintError: none is given, or one is neither a name nor an id.
    """
    if not names:
        raise ConstraintError("no special token is named", fix='For example special_token("<image>").')
    for name in names:
        if not isinstance(name, str) and not is_whole(name, -sys.maxsize, sys.maxsize):
            raise ConstraintError(f"{name!r:.80} is neither the name nor the id of a token", fix="Give a str or an int.")
    names = tuple(name if isinstance(name, str) else int(name) for name in names)
    return OneSymbol(frozenset(map(SpecialToken, names)), f"special token {' or '.join(map(repr, names[:5]))}")


def image(
    tokens: Iterable[str | int],
    *,
    begin: str | int | None = None,
    end: str | int | None = None,
    low: int = 1,
    high: int | None = None,
) -> Language:
    """An image as a multi-modal model writes it: special tokens only.

    Args:
      tokens: names or ids of the special tokens that make up the image.
      begin, end: special tokens around it, or None.
      low, high: least and largest number of tokens between them.

    Raises:
      ConstraintError: see `special_token`; bounds that contradict each other.
    """
    low, high = _checked_counts(low, high, "an image", "tokens")
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise ConstraintError("the tokens of an image are no list", fix='Give a list such as ["<image>"].')
    parts = _Parts()
    body: Node = Repeat(parts.node(special_token(*tokens), "image token"), low, high, 0, 0)
    around = [[] if name is None else [parts.node(special_token(name), "border")] for name in (begin, end)]
    return parts.language(Concat([*around[0], body, *around[1]], 0, 0), f"image of {parts.names[0]}")


def _checked_counts(low: Any, high: Any, what: str, of: str) -> tuple[int, int | None]:
    """Bounds of a repetition as plain integers; raises `ConstraintError` for what are none."""
    if not is_whole(low, 0) or (high is not None and not is_whole(high, max(low, 1))):
        fix = f"Give whole numbers, 0 <= low <= high and 1 <= high < 2**31; leave high out for any number of {of}."
        raise ConstraintError(f"{what} of {low!r:.40} to {high!r:.40} {of} is impossible", fix=fix)
    return int(low), None if high is None else int(high)


def list_tree(element: Node, delimiter: Node, low: int, high: int | None) -> Node:
    """The syntax tree of a list."""
    start, end = element.start, delimiter.end
    more = Repeat(
        Concat([delimiter, element], start, end), max(low - 1, 0), None if high is None else high - 1, start, end
    )  # fmt: skip
    some = Concat([element, more], start, end)
    return some if low else Repeat(some, 0, 1, start, end)


def literal_bytes(text: Any, what: str) -> bytes:
    """The UTF-8 of a text. Raises `ConstraintError`: it is no str, or holds a surrogate."""
    if not isinstance(text, str):
        raise ConstraintError(f"{what} must be a str, not {type(text).__name__}", fix="Give the text itself.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        where = f"  {text[max(0, error.start - 20) : error.start + 20]!r}"
        fix = "Write the character itself."
        raise ConstraintError(f"{what} holds a surrogate at offset {error.start}", where=where, fix=fix) from None


class _Parts:
    """Languages as nodes of a syntax tree: their own trees where that is exact, places elsewhere."""

    def __init__(self) -> None:
        self.embedded: list[Embedded] = []
        self.names: list[str] = []

    def node(self, given: Language | str, what: str) -> Node:
        language = _language(given, what)
        self.names.append(language.description[:60])
        tree = embeddable(language, 0, 0)
        if tree is None:
            self.embedded.append(Embedded(language, 0, 0))
            tree = place(len(self.embedded) - 1, 0, 0)
        return tree

    def language(self, tree: Node, description: str) -> Language:
        return PatternWithPlaces(tree, self.embedded, description) if self.embedded else from_tree(tree, description)


def embeddable(language: Language, start: int, end: int) -> Node | None:
    """The syntax tree of a language that is a pattern of its own, or None when it has to be a place."""
    tree = tree_of(language)
    return None if tree is None else moved(tree, start, end)


def _language(given: Any, what: str) -> Language:
    if isinstance(given, Language):
        return given
    if isinstance(given, str):
        return literal(given)
    raise ConstraintError(f"the {what} is a {type(given).__name__}, not a language", fix="Give a str, or regex(...).")


def _checked_phrases(stops: tuple[str, ...]) -> tuple[str, ...]:
    if not stops:
        raise ConstraintError("TEXT_UNTIL needs a stop phrase", fix='For example text_until("\\n\\n").')
    for stop in stops:
        if not literal_bytes(stop, "a stop phrase"):
            raise ConstraintError("a stop phrase is empty, so no text comes before it", fix="Leave it out.")
    return stops


class _TextUntil(Language):
    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self.description = f"text until {' or '.join(map(repr, stops[:5]))}"

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        return to_byte_dfa(text_until_automaton(self._stops, limits), limits)


class _SubstringOf(Language):
    def __init__(self, text: bytes, allow_empty: bool) -> None:
        self._text, self._least = text, 0 if allow_empty else 1
        self.description = f"substring of a text of {len(text):,} bytes: {text[:40].decode(errors='ignore')!r}"

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        return substring_dfa(self._text, self._least, limits, deadline)

    def _why_empty(self) -> str:
        return "the reference text is empty, and so is its only substring"


class _Subsequence(Language):
    def __init__(self, elements: list[Language], delimiter: Language, allow_empty: bool) -> None:
        self._elements, self._delimiter, self._allow_empty = elements, delimiter, allow_empty
        shown = ", ".join(e.description[:30] for e in elements[:5])
        self.description = f"subsequence of {len(elements):,} elements: {shown}{', …' if len(elements) > 5 else ''}"

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self._delimiter.symbols.union(*(element.symbols for element in self._elements))

    @property
    def holds_bytes(self) -> bool:
        return any(part.holds_bytes for part in (self._delimiter, *self._elements))

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        """State 0 is the beginning, 1 + i comes after element i, n + 1 + i after the delimiter that follows it."""
        n = len(self._elements)
        delimiter = self._delimiter._build(limits, deadline)
        parts: list[tuple[list[int], ByteDfa | None, int]] = []
        for i, element in enumerate(self._elements):
            deadline.check("Building the subsequences")
            begins = [0, *range(n + 1, n + 1 + i)]
            parts += [(begins, element._build(limits, deadline), 1 + i), ([1 + i], delimiter, n + 1 + i)]
        final = [*range(0 if self._allow_empty else 1, n + 1)]
        return sequence_of_parts(2 * n + 1, final, parts, limits, deadline)
