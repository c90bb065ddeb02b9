"""`PieceFilter`: the filter of encoders without a splitter, as of SentencePiece.

Such an encoder reads a text character by character from the left. Where one of its *cut pieces* begins (Gemma's runs of spaces
and line breaks, tags), the longest of them becomes a token that never merges; any other character is a symbol to be merged, or
is spelled by byte tokens if it has none. So a token sequence is the encoder's own, beside the pair rule, when

    no cut piece begins at a character of another token, and none longer than itself where a cut piece begins;
    byte tokens spell whole characters, of those without a token.

What is still open of the first is a set of nodes in the trie of cut pieces, whose pieces must not be completed: together with a
node of the UTF-8 automaton of the characters without a token that is the state.

Source: google/sentencepiece, `bpe_model.cc` and the prefix matcher of `normalizer.cc` (behaviour); Cognetta et al. 2025, §4.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from fsa_compile.automata.utf8_classes import BAD, utf8_classes
from fsa_compile.canonical.encoder.pair_rule import PairRule
from fsa_compile.canonical.filter.token_filter import NONE, Moves, TokenFilter

_Open: TypeAlias = tuple[int, ...]
"""Nodes of the trie, ascending, below which lie pieces that the text must not complete."""
_Steps: TypeAlias = dict[int, int]
"""What follows nodes of the trie, `_COMPLETED` for a piece's end; nodes without an entry are left behind."""
_ROOT, _COMPLETED, _LEFT = 0, -1, -2


class PieceFilter(TokenFilter):
    """The filter of one encoder.

    Args:
      packed: all token bytes and their offsets, as `Vocabulary.packed`.
      byte_tokens: int32[256], token of each byte.
      characters: code points that have tokens of their own.
      cut_pieces: int32[*], tokens that are cut out of a text before merging; their texts differ.
    """

    def __init__(
        self,
        rule: PairRule,
        packed: tuple[np.ndarray, np.ndarray],
        byte_tokens: np.ndarray,
        characters: np.ndarray,
        cut_pieces: np.ndarray,
    ) -> None:
        super().__init__(rule)
        data, offset = packed
        self._trie = _Trie([bytes(data[offset[token] : offset[token + 1]]).decode() for token in cut_pieces.tolist()])
        letters = np.array(list(self._trie.letters), np.int64)
        missing = np.zeros(0x110000, np.int64)
        missing[letters] = np.arange(1, len(letters) + 1)
        missing[characters] = -1
        missing[0xD800:0xE000] = -1
        self._nodes = utf8_classes(missing)
        self._letters = [None, *map(chr, letters.tolist())]
        """The character of each class; None stands for any that is in no cut piece."""
        self._bytes = np.full(rule.vocab_size, NONE, np.int32)
        self._bytes[byte_tokens] = np.arange(256)
        kind, self._effects = self._classes(packed, set(cut_pieces.tolist()))
        self._class_of = np.where(kind >= 0, kind + 256, self._bytes).astype(np.int32)
        for node in range(len(self._nodes)):
            self._number(node, ())

    def final(self, state: int) -> bool:
        return self._states[state][0] == 0

    def readings(self, state: int) -> list[tuple[int, int]]:
        return [(node, 0) for node in self._states[state][1]]

    def number_as(self, positions: list[int], readings: list[list[tuple[int, int]]]) -> None:
        for position, pairs in zip(positions, readings):
            self._number(position, tuple(node for node, _ in pairs))

    def _classes(self, packed: tuple[np.ndarray, np.ndarray], cut: set[int]) -> tuple[np.ndarray, list[tuple[_Steps, _Open]]]:
        """int32[V], what kind of token each one is that is no byte, -1 for those that may never stand; and what each kind does
        to nodes of the trie, and leaves open itself."""
        data, offset = packed
        text = bytes(data)
        class_of = np.full(self.rule.vocab_size, NONE, np.int32)
        effects: list[tuple[_Steps, _Open]] = []
        kinds: dict[tuple[tuple[tuple[int, int], ...], _Open], int] = {}
        usual = self.rule.own & (self._bytes < 0) & (np.diff(offset) > 0)
        for token in np.flatnonzero(usual).tolist():
            written = text[offset[token] : offset[token + 1]].decode()
            steps = self._trie.steps(written)
            left = self._trie.left_by_piece(written) if token in cut else self._trie.left_open(written)
            if left is None:
                continue
            key = tuple(sorted(steps.items())), left
            if key not in kinds:
                kinds[key] = len(effects)
                effects.append((steps, left))
            class_of[token] = kinds[key]
        return class_of, effects

    def _new_moves(self, state: int) -> Moves:
        node, nodes = self._states[state]
        allowed = np.full(256 + (len(self._effects) if node == 0 else 0), NONE, np.int32)
        for byte in np.flatnonzero(self._nodes[node] != BAD).tolist():
            after = int(self._nodes[node, byte])
            then: _Open | None = nodes
            if after < 0:
                letter = self._letters[~after]
                then = () if letter is None else self._trie.after(nodes, self._trie.steps(letter), self._trie.left_open(letter))
            if then is not None:
                allowed[byte] = self._number(max(after, 0), then)
        if node == 0:
            for kind, (steps, left) in enumerate(self._effects):
                then = self._trie.after(nodes, steps, left)
                if then is not None:
                    allowed[256 + kind] = self._number(0, then)
        return Moves(self._bytes if node else self._class_of, allowed, np.full_like(allowed, NONE))


class _Trie:
    """The characters of cut pieces; node 0 is the root."""

    def __init__(self, pieces: list[str]) -> None:
        self._children: list[dict[str, int]] = [{}]
        self._ends: set[int] = set()
        self._by_letter: dict[str, _Steps] = {}
        for piece in pieces:
            node = _ROOT
            for letter in piece:
                if letter not in self._children[node]:
                    self._children.append({})
                    self._children[node][letter] = len(self._children) - 1
                node = self._children[node][letter]
            self._ends.add(node)
        for node, children in enumerate(self._children):
            for letter, child in children.items():
                self._by_letter.setdefault(letter, {})[node] = _COMPLETED if child in self._ends else child
        self.letters = sorted(map(ord, self._by_letter))

    def steps(self, text: str) -> _Steps:
        """What a text, of one character or more, makes of every node but the root that it does not leave behind."""
        first = self._by_letter.get(text[0], {})
        out = {node: then for node, then in first.items() if node != _ROOT}
        for letter in text[1:]:
            step = self._by_letter.get(letter, {})
            out = {node: step.get(then, _LEFT) if then >= 0 else then for node, then in out.items()}
        return {node: then for node, then in out.items() if then != _LEFT}

    def left_open(self, text: str) -> _Open | None:
        """The nodes that pieces which begin in a text have come to at its end, None if one is completed."""
        nodes: list[int] = []
        for letter in text:
            step = self._by_letter.get(letter, {})
            nodes = [step[node] for node in [*nodes, _ROOT] if node in step]
            if _COMPLETED in nodes:
                return None
        return tuple(sorted(nodes))

    def left_by_piece(self, text: str) -> _Open:
        """The node of a cut piece, if longer ones begin with it."""
        node = _ROOT
        for letter in text:
            node = self._children[node][letter]
        return (node,) if self._children[node] else ()

    def after(self, nodes: _Open, steps: _Steps, left: _Open | None) -> _Open | None:
        """What is open behind a token or a character, None if a piece was completed."""
        if left is None:
            return None
        then = {steps[node] for node in nodes if node in steps}
        return None if _COMPLETED in then else tuple(sorted(then | set(left)))
