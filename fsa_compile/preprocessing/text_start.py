"""What a tokenizer puts before a text, and what its decoder takes away there: found out by asking it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.errors import ConstraintError
from fsa_compile.filters.filter_base import TextFilter, TokenDfa, TokenFilter
from fsa_compile.languages.constructors import regex
from fsa_compile.languages.language import Language
from fsa_compile.languages.pattern_language import literal
from fsa_compile.limits import CompileLimits
from fsa_compile.tokenizers.tokenizer import Tokenizer
from fsa_compile.vocabulary.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextStart:
    """A tokenizer's convention for the start of a text.

    Attributes:
      prefix: what it puts before a text: "" or " ".
      always: whether it does so before a text that begins with a space, too.
      dropped: whether decoding takes the prefix away again.
      keeps_spaces: whether a text that begins with a space can be read back; where not, constraints leave such texts out.
    """

    prefix: str
    always: bool
    dropped: bool
    keeps_spaces: bool

    def before(self, language: Language) -> Language:
        """The bytes of the tokens that start a text of a language; the empty text gets no prefix."""
        if not self.keeps_spaces:
            language = language & _WITHOUT_SPACE
        if not self.prefix:
            return language
        if self.always or not self.keeps_spaces:
            return (literal(self.prefix) + (language - _EMPTY)) | (language & _EMPTY)
        return (literal(self.prefix) + ((language - _EMPTY) & _WITHOUT_SPACE)) | (language - (_WITHOUT_SPACE - _EMPTY))


_EMPTY = literal("")
_WITHOUT_SPACE = regex(r"(?s)(?! ).*")
WITHOUT_SPACE: Language = TextFilter(
    "no space at the start of a text", lambda limits, deadline: _WITHOUT_SPACE.to_byte_dfa(limits, deadline)
)
"""Texts that do not begin with a space: the others cannot be told from these where both get one space, or lose all."""
NOT_EMPTY: Language = TextFilter("a text", lambda limits, deadline: regex(r"(?s).+").to_byte_dfa(limits, deadline))
"""Texts before which a tokenizer may put something; the empty text gets nothing."""


def text_start(tokenizer: Any) -> TextStart:
    """What a tokenizer does at the start of a text.

    Args:
      tokenizer: from `load_tokenizer`.

    Returns:
      SentencePiece's dummy prefix, the `Metaspace` and `Prepend` steps of a `tokenizer.json`, `add_prefix_space` of byte-level
      ones, and what their decoders do: all of it as the tokenizer encodes and decodes "a" and " a".

    Raises:
      ConstraintError: a bare vocabulary, which has no such convention; or a tokenizer that does something else.
    """
    if not isinstance(tokenizer, Tokenizer) or tokenizer.kind == "bytes":
        what = "a vocabulary without its encoder does not say how it starts a text"
        raise ConstraintError(what, fix="Pass load_tokenizer(path).")
    written = tokenizer.vocabulary.decode_bytes
    one, two = tokenizer.encode("a"), tokenizer.encode(" a")
    prefix, spaced = written(one)[:-1], written(two)[:-1]
    known = prefix in (b"", b" ") and spaced in (b"", b" ", b"  ")
    if not known or not written(one).endswith(b"a") or not written(two).endswith(b"a"):
        what = f"this tokenizer starts texts in a way that is not known: it writes {written(one)!r} for 'a'"
        raise ConstraintError(what, fix="Write what it puts first into the constraint, and leave starts_text out.")
    return TextStart(
        prefix=prefix.decode(), always=len(spaced) > len(prefix) > 0, dropped=bool(prefix) and tokenizer.decode(one) == "a",
        keeps_spaces=tokenizer.decode(two) == " a",
    )  # fmt: skip


def first_tokens(tokenizer: Tokenizer, start: TextStart) -> FirstTokens | None:
    """A filter of the first tokens of a text, where decoding some would take more away than the prefix; else None."""
    if not start.dropped:
        return None
    tokens = tokenizer.vocabulary.tokens
    spaced = [i for i, token in enumerate(tokens) if token[:1] == b" " and (len(token) == 1 or b" " in token[1:])]
    wrong = [i for i in spaced if tokenizer.decode([i]).encode() != tokens[i][1:]]
    return FirstTokens(tuple(wrong), tokenizer.vocabulary) if wrong else None


class FirstTokens(TokenFilter):
    """Sequences that do not begin with some tokens.

    Attributes:
      wrong: these tokens.
      are_spaces: whether they write one space each, as some other token does.
    """

    description = "what decoding leaves of the first token"

    def __init__(self, wrong: tuple[int, ...], vocabulary: Vocabulary) -> None:
        self.wrong = wrong
        others = [i for i, token in enumerate(vocabulary.tokens) if token == b" " and i not in set(wrong)]
        self.are_spaces = bool(others) and all(vocabulary.tokens[i] == b" " for i in wrong)

    def narrowed(self, constraint: CompiledConstraint) -> CompiledConstraint:
        """A constraint whose start is no other node's successor, without these tokens there; only for spaces."""
        start, words = constraint.start, constraint.rows.shape[1]
        gone = np.zeros(words, np.uint32)
        for token in self.wrong:
            gone[token >> 5] |= np.uint32(1 << (token & 31))
        rows = [constraint.rows]

        def cleared(offset: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            numbers = numbers.copy()
            for i in range(int(offset[start]), int(offset[start + 1])):
                rows.append((constraint.rows[numbers[i]] & ~gone)[None])
                numbers[i] = len(constraint.rows) + len(rows) - 2
            return numbers

        group_row = cleared(constraint.group_offset, constraint.group_row)
        level_row = cleared(constraint.level_offset, constraint.level_row)
        at = np.arange(int(constraint.arc_offset[start]), int(constraint.arc_offset[start + 1]))
        lost = at[np.isin(constraint.arc_token[at], self.wrong)]
        arc_offset = constraint.arc_offset.copy()
        arc_offset[start + 1 :] -= len(lost)
        return dataclasses.replace(
            constraint, rows=np.concatenate(rows), group_row=group_row, level_row=level_row, arc_offset=arc_offset,
            arc_token=np.delete(constraint.arc_token, lost), arc_effect=np.delete(constraint.arc_effect, lost),
        )  # fmt: skip

    def automaton(self, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits) -> TokenDfa:
        kind = np.zeros(vocabulary.size, np.int32)
        kind[list(self.wrong)] = 1
        return TokenDfa(np.array([[0, 0], [2, 0], [2, 2]], np.int32), kind, np.array([False, True, True]))
