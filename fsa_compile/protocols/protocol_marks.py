"""Marks over one vocabulary: which are special tokens, and which are text that nothing else may imitate."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fsa_compile.errors import ConstraintError
from fsa_compile.formats.tree import Format, FreeText, Parts, Text, Token, Until
from fsa_compile.protocols.protocol import Protocol
from fsa_compile.vocabulary.vocabulary import Vocabulary

_FIRST = 0xD800
"""Halves of surrogate pairs, which no text has, stand for special tokens in the text that is read."""


class Marks:
    """The marks of a protocol over a vocabulary.

    Attributes:
      special: token id of the names that are special tokens.
      texts: the other names.
      within_calls: those of them that are written around calls and their arguments.
    """

    def __init__(self, protocol: Protocol, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        names = list(dict.fromkeys(protocol.tokens))
        self.special = {name: vocabulary.special[name] for name in names if name in vocabulary.special}
        self.texts = tuple(name for name in names if name not in self.special)
        calls = protocol.calls
        written = "".join([w.all_begin + w.begin + w.middle + w.end + w.separator + w.all_end for w in calls.ways])
        self.within_calls = tuple(name for name in self.texts if name in written)
        self._letter = {name: chr(_FIRST + place) for place, name in enumerate(self.special)}
        self._name = {letter: name for name, letter in self._letter.items()}
        found = sorted(names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, found))) if found else None
        special = sorted(self.special, key=len, reverse=True)
        self._specials = re.compile("|".join(map(re.escape, special)) or "(?!)")

    def pieces(self, mark: str) -> list[Format]:
        """A mark as a list of tokens, names that are text, and other text."""
        out: list[Format] = []
        at = 0
        for found in self._pattern.finditer(mark) if self._pattern else ():
            out += [Text(mark[at : found.start()]), self._piece(found[0])]
            at = found.end()
        return [piece for piece in (*out, Text(mark[at:])) if piece != Text("")]

    def _piece(self, name: str) -> Format:
        if name not in self.special:
            return Text(name)
        token = self.special[name]
        if token in self._vocabulary.stop_ids:
            what = f"the special token {name!r} ends a text in this vocabulary, and here something follows it"
            raise ConstraintError(what, fix="Load the tokenizer with stop_ids= that leave it out.")
        return Token(frozenset({token}))

    def format(self, mark: str) -> Format:
        """A mark."""
        return Parts(tuple(self.pieces(mark)))

    def is_special(self, mark: str) -> bool:
        """Whether a mark begins with a special token."""
        return any(mark.startswith(name) for name in self.special)

    def imitated(self, *own: str) -> tuple[str, ...]:
        """The names that are text, without those that some marks are part of."""
        return tuple(name for name in self.texts if not any(name in mark for mark in own))

    def until(self, mark: str, rest: Format, pointer: str) -> Format:
        """Free text, a mark where it first occurs, and the rest."""
        return self.until_first(mark, Parts((*self.pieces(mark)[1:], rest)), pointer)

    def until_first(self, mark: str, behind: Format, pointer: str) -> Format:
        """Free text, the first piece of a mark where it first occurs, and what stands behind it."""
        match self.pieces(mark)[0]:
            case Text(text=text):
                return Parts((Until(text, (text,), self.imitated(text), pointer), behind))
            case first:
                return Parts((FreeText(self.texts, pointer), first, behind))

    # reading

    @property
    def letters(self) -> dict[int, str]:
        """What stands for the special tokens of the protocol, by id."""
        return {token: self._letter[name] for name, token in self.special.items()}

    def read(self, mark: str) -> str:
        """A mark, or text in which names of special tokens stand for these, with their letters."""
        return self._specials.sub(lambda found: self._letter[found[0]], mark)

    def shown(self, text: str) -> str:
        """Text with letters written as the names of their tokens."""
        return "".join([self._name.get(c, c) for c in text])

    def stop_ids(self, stops: Iterable[str]) -> tuple[int, ...]:
        """Ids that end a turn: the vocabulary's own, and those of the protocol."""
        known: dict[str, Any] = dict(self._vocabulary.special)
        return tuple(sorted({*self._vocabulary.stop_ids, *(known[name] for name in stops if name in known)}))
