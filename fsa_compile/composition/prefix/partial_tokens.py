"""`PartialTokens`: where a constraint stands after the bytes of a token that began before it.

A token that lies across the end of a prompt writes its first bytes there and its last ones in the constraint. The constraint's
artifact knows tokens only, but its state after some bytes is that after any tokens which write them: bytes are followed token by
token, each (state, byte) once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.configurations import Configuration
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.errors import ConstraintError
from fsa_compile.vocabulary.lookup import TokenLookup

WHOLE_TOKENS = "whole_tokens"
"""Key of `CompiledConstraint.extra` where a constraint is about tokens (`TEXT_TOKEN`, filters over tokens), so that bytes do not
tell its state."""
_MOST_KEPT = 64


class Landing(NamedTuple):
    """A state of the constraint that bridging tokens lead to.

    Attributes:
      configurations: what is followed there.
      distance, need: tokens to the end of the text, and stack cells, as of `HostWalk`.
    """

    configurations: tuple[Configuration, ...]
    distance: int
    need: int


class PartialTokens:
    """The states of one constraint after bytes that need not be whole tokens.

    Args:
      constraint: compiled without `canonical=True`.
      lookup: of the vocabulary it was compiled for.

    Attributes:
      landings: all states reached so far; number 0 is the constraint's start.

    Raises:
      ConstraintError: the constraint is about tokens.
    """

    def __init__(self, constraint: CompiledConstraint, lookup: TokenLookup) -> None:
        if constraint.extra.get(WHOLE_TOKENS):
            raise ConstraintError(
                "the constraint is about tokens (TEXT_TOKEN, PARAGRAPH_TOKEN, filters over tokens), and one that begins before "
                "it is no whole token of it",
                where=f"  {constraint.source:.200}",
                fix="Describe the text alone, by a pattern such as [^\\n]* and filters over text; heal(..., canonical=True) also "
                "keeps spaces and bytes as the tokenizer has them.",
            )
        self.constraint, self._lookup = constraint, lookup
        self._walk = constraint.walk()
        self._numbers: dict[tuple[Configuration, ...], int] = {}
        self.landings: list[Landing] = []
        self._number(self._walk)
        self._steps: dict[int, int] = {}
        """256 * state + byte → state, -1 for none."""
        self._spelled: dict[tuple[int, bytes], int] = {}
        self._found: dict[bytes, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def after(self, written: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens that write some bytes and go on into the constraint.

        Args:
          written: what they begin with.

        Returns:
          Ids, and the number of the state after each; tokens that the constraint does not allow are left out.

        Raises:
          ConstraintError: whether a token is allowed cannot be told, because no other tokens write its last bytes.
        """
        found = self._found.get(written)
        if found is None:
            tokens = self._lookup.longer(written)
            states = self._bytewise(tokens, len(written)) if self._lookup.every_byte else self._spelling(tokens, len(written))
            if len(self._found) >= _MOST_KEPT:
                self._found.pop(next(iter(self._found)))
            found = self._found[written] = tokens[states >= 0], states[states >= 0]
        return found

    def _bytewise(self, tokens: NDArray[np.int64], skipped: int) -> NDArray[np.int64]:
        """Of every token, the state after its bytes but the first `skipped`: all tokens together, byte by byte."""
        texts = [self._lookup.text(t)[skipped:] for t in tokens.tolist()]
        length = np.array([len(text) for text in texts], np.int64)
        begin = np.cumsum(length) - length
        data = np.frombuffer(b"".join(texts), np.uint8)
        state = np.zeros(len(texts), np.int64)
        live = np.arange(len(texts))
        for at in range(int(length.max(initial=0))):
            live = live[(length[live] > at) & (state[live] >= 0)]
            steps, which = np.unique(state[live] * 256 + data[begin[live] + at], return_inverse=True)
            state[live] = np.array([self._step(step) for step in steps.tolist()], np.int64)[which]
        return state

    def _step(self, step: int) -> int:
        found = self._steps.get(step)
        if found is None:
            found = self._steps[step] = self._taken(step // 256, self._lookup.ids[bytes([step % 256])])
        return found

    def _spelling(self, tokens: NDArray[np.int64], skipped: int) -> NDArray[np.int64]:
        """The same where not every byte is a token: by any tokens that write the rest."""
        out = []
        for token in tokens.tolist():
            rest = self._lookup.text(token)[skipped:]
            if not self._lookup.spells(rest):
                raise ConstraintError(
                    f"token {token} writes {rest!r} behind the end of the prompt, and no other tokens write that: whether the "
                    "constraint allows it cannot be told from the compiled constraint",
                    fix="Give heal the language itself, for example fsa_compile.regex(pattern).",
                )
            out.append(self._spell(0, rest))
        return np.array(out, np.int64)

    def _spell(self, state: int, rest: bytes) -> int:
        if not rest:
            return state
        key = (state, rest)
        if key not in self._spelled:
            self._spelled[key] = -1
            for n, ids in reversed(self._lookup.prefixes(rest)):
                after = self._taken(state, ids)
                after = self._spell(after, rest[n:]) if after >= 0 else -1
                if after >= 0:
                    self._spelled[key] = after
                    break
        return self._spelled[key]

    def _taken(self, state: int, ids: tuple[int, ...]) -> int:
        """The state after a token, one of several that write the same; -1 where none is allowed."""
        for token in ids:
            walk: HostWalk = self._walk.resumed(self.landings[state].configurations)
            try:
                walk.advance(token)
            except ValueError:
                continue
            if walk.dropped:
                what = f"a token across the prompt's end has more readings than the constraint's {self.constraint.stacks} stacks"
                raise ConstraintError(what, fix="Compile the grammar with more stacks.")
            return self._number(walk)
        return -1

    def _number(self, walk: HostWalk) -> int:
        at = walk.configurations
        if at not in self._numbers:
            self._numbers[at] = len(self.landings)
            self.landings.append(Landing(at, walk.distance, walk.need))
        return self._numbers[at]
