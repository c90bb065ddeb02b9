"""Filters over tokens: how a text may be spelled, and with how many tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from fsa_compile.automata.utf8_classes import BAD, utf8_classes
from fsa_compile.errors import ConstraintError, LimitError, listed
from fsa_compile.filters.characters import checked_bounds
from fsa_compile.filters.filter_base import TokenDfa, TokenFilter
from fsa_compile.limits import CompileLimits
from fsa_compile.tokenizers.tokenizer import Tokenizer
from fsa_compile.unicode.code_points import FIRST_SURROGATE, LAST_SURROGATE
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CONTINUATION = range(0x80, 0xC0)


def byte_fallback() -> TokenFilter:
    """Characters are spelled by tokens for characters; bytes spell only characters that have no token of their own.

    A character has a token of its own if some token, not a byte token, writes exactly that character. Such a character must come
    whole from one token that is no byte token; every other character may also be put together from byte tokens, and from tokens
    that end or begin inside it. Byte tokens are those the tokenizer itself calls so (SentencePiece's byte pieces, names like
    `<0x0A>`); byte-level encoders have none, and only pieces of characters matter there. Texts must be UTF-8.

    Source: Cognetta et al. 2025, §4 (characters and byte-fallback tokens).
    """
    return _ByteFallback()


def fused_spaces() -> TokenFilter:
    """A space before a word is written as the tokenizer itself writes it: not alone where it belongs to the word's token.

    A token that writes one space and nothing else may not be followed by a token t that begins with another character, if the
    tokenizer, given that space and the text of t inside a text, makes the space part of a larger token: `[▁][Hello]` is refused
    where the tokenizer writes `[▁Hello]`, and `[▁][17]` stays where it writes `[▁][1][7]`. Tokens that hold no whole characters
    are not looked at. Without an encoder (a bare `Vocabulary`) the space belongs to t if it has a token that writes both.

    Source: Cognetta et al. 2025, §4 (isolated spaces).
    """
    return _FusedSpaces()


def token_count(exactly: int | None = None, *, at_least: int = 0, at_most: int | None = None) -> TokenFilter:
    """Sequences of an exact, least or greatest number of tokens, without the one that ends the text (Γ^k).

    The states of the constraint are multiplied by the bound; for an upper bound alone, `max_new_tokens` of the decoding functions
    costs nothing, and is as exact.

    Args:
      exactly: this number, instead of bounds.
      at_least, at_most: bounds, both included.

    Raises:
      ConstraintError: bounds that are no counts, or that exclude each other.
    """
    return _TokenCount(*checked_bounds(exactly, at_least, at_most, "token_count"))


def token_set(*, allow: Iterable[int | str] | None = None, deny: Iterable[int | str] = ()) -> TokenFilter:
    """Sequences of certain tokens only.

    Args:
      allow: ids, or texts that stand for all tokens that write exactly this; None for all tokens.
      deny: tokens that are not allowed even so.

    Raises:
      ConstraintError: an entry that is neither; nothing to allow.
    """
    return _TokenSet(None if allow is None else _entries(allow, "allow"), _entries(deny, "deny"))


class _TokenCount(TokenFilter):
    def __init__(self, low: int, high: int | None) -> None:
        self._low, self._high = low, high
        self.description = f"token_count(at_least={low}, at_most={high})"

    def automaton(self, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits) -> TokenDfa:
        last = self._low if self._high is None else self._high
        if last > limits.max_states:
            raise LimitError("max_states", limits.max_states, f"The filter {self.description}")
        count = np.arange(-1, last + 1)
        after = np.where(count < 0, 0, np.where(count < last, count + 2, 0 if self._high is not None else last + 1))
        return TokenDfa(after[:, None].astype(np.int32), np.zeros(vocabulary.size, np.int32), count >= self._low)


class _TokenSet(TokenFilter):
    def __init__(self, allow: tuple[int | str, ...] | None, deny: tuple[int | str, ...]) -> None:
        self._allow, self._deny = allow, deny
        self.description = f"token_set(allow={allow}, deny={deny})"

    def automaton(self, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits) -> TokenDfa:
        denied = self.denied(vocabulary)
        return TokenDfa(np.array([[0, 0], [1, 0]], np.int32), denied.astype(np.int32), np.array([False, True]))

    def denied(self, vocabulary: Vocabulary) -> np.ndarray:
        out = np.zeros(vocabulary.size, bool)
        if self._allow is not None:
            out[:] = True
            out[self._ids(self._allow, vocabulary)] = False
        out[self._ids(self._deny, vocabulary)] = True
        return out

    def _ids(self, entries: tuple[int | str, ...], vocabulary: Vocabulary) -> list[int]:
        by_text: dict[bytes, list[int]] = {}
        if any(isinstance(entry, str) for entry in entries):
            for i, token in enumerate(vocabulary.tokens):
                by_text.setdefault(token, []).append(i)
        out: list[int] = []
        for entry in entries:
            if isinstance(entry, str):
                found = by_text.get(entry.encode(), [])
                if not found:
                    fix = "Give ids, or texts as tokens write them (a space first, where one belongs to the token)."
                    raise ConstraintError(f"no token writes exactly {entry!r:.60}", where=self.description[:200], fix=fix)
                out += found
            elif not 0 <= entry < vocabulary.size:
                what = f"token {entry} does not exist in a vocabulary of {vocabulary.size:,} ids"
                raise ConstraintError(what, where=self.description[:200], fix="Use ids of this tokenizer.")
            else:
                out.append(entry)
        return out


class _ByteFallback(TokenFilter):
    description = "byte_fallback()"
    needs_encoder = True

    def automaton(self, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits) -> TokenDfa:
        byte_of = byte_tokens(tokenizer, vocabulary)
        whole, cut = 0, []
        class_of = np.zeros(vocabulary.size, np.int32)
        kinds: dict[Any, int] = {None: whole}
        lacking = np.zeros(0x110000, np.int64)
        lacking[FIRST_SURROGATE : LAST_SURROGATE + 1] = -1
        for i, token in enumerate(vocabulary.tokens):
            if i in byte_of:
                class_of[i] = kinds.setdefault(byte_of[i], len(kinds))
                continue
            try:
                text = token.decode()
            except UnicodeDecodeError:
                class_of[i] = kinds.setdefault(_parts(token), len(kinds))
                continue
            if len(text) == 1:
                cut.append(ord(text))
        lacking[cut] = -1
        nodes = utf8_classes(lacking)
        table = np.zeros((len(nodes) + 1, len(kinds)), np.int32)
        table[1, whole] = 1
        for kind, number in kinds.items():
            for node in range(len(nodes)):
                if isinstance(kind, int):
                    table[node + 1, number] = _read(nodes, node, bytes([kind])) + 1
                elif kind is not None:
                    table[node + 1, number] = _after(nodes, node, kind) + 1
        final = np.zeros(len(table), bool)
        final[1] = True
        return TokenDfa(table, class_of, final)


_Parts = tuple[bytes, bool, bytes]
_NOWHERE = -1


def _parts(token: bytes) -> _Parts | str:
    """How a token continues a character, whether it holds whole ones, how it begins another; "bad" where that is not UTF-8."""
    begin = 0
    while begin < len(token) and token[begin] in _CONTINUATION:
        begin += 1
    end = len(token)
    for length in range(1, 4):
        lead = token[-length] if begin + length <= len(token) else 0
        if lead >= 0xC0:
            if length < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4):
                end = len(token) - length
            break
    try:
        middle = token[begin:end].decode()
    except UnicodeDecodeError:
        return "bad"
    return token[:begin], bool(middle), token[end:]


def _read(nodes: np.ndarray, node: int, data: bytes) -> int:
    """Node after some bytes of one character, 0 when it is complete; `_NOWHERE` when it is none that lacks a token."""
    for at, byte in enumerate(data):
        after = int(nodes[node, byte])
        if after == BAD or (after < 0 and at + 1 < len(data)):
            return _NOWHERE
        node = max(after, 0)
    return node


def _after(nodes: np.ndarray, node: int, kind: _Parts | str) -> int:
    if isinstance(kind, str):
        return _NOWHERE
    before, middle, after = kind
    if bool(before) != (node > 0):
        return _NOWHERE
    node = _read(nodes, node, before)
    if node and (middle or after):
        return _NOWHERE
    return _read(nodes, node, after) if node == 0 else node


def byte_tokens(tokenizer: Any, vocabulary: Vocabulary) -> dict[int, int]:
    """The tokens that the tokenizer itself calls bytes, and their bytes."""
    from fsa_compile.tokenizers.hugging_face import HuggingFaceTokenizer
    from fsa_compile.tokenizers.sentence_piece import BYTE, SentencePieceTokenizer

    names: Iterable[tuple[str, int]] = ()
    if isinstance(tokenizer, SentencePieceTokenizer):
        model, _ = tokenizer.model
        names = [(piece, i) for i, (piece, kind) in enumerate(zip(model.pieces, model.types)) if kind == BYTE]
    elif isinstance(tokenizer, HuggingFaceTokenizer):
        vocab = tokenizer.spec["model"]["vocab"]
        names = vocab.items() if isinstance(vocab, dict) else [(entry[0], i) for i, entry in enumerate(vocab)]
    out = {}
    for name, i in names:
        match = _BYTE_NAME.fullmatch(name)
        if match and vocabulary.tokens[i] == bytes([int(match[1], 16)]):
            out[i] = int(match[1], 16)
    return out


class _FusedSpaces(TokenFilter):
    description = "fused_spaces()"
    needs_encoder = True

    def automaton(self, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits) -> TokenDfa:
        other, space, joined = 0, 1, 2
        class_of = np.full(vocabulary.size, other, np.int32)
        class_of[[i for i, token in enumerate(vocabulary.tokens) if token == b" "]] = space
        class_of[joined_to_space(tokenizer, vocabulary)] = joined
        table = np.array([[0, 0, 0], [1, 2, 1], [1, 2, 0]], np.int32)
        return TokenDfa(table, class_of, np.array([False, True, True]))


def joined_to_space(tokenizer: Any, vocabulary: Vocabulary) -> np.ndarray:
    """int64[n], tokens that a space before them belongs to; see `fused_spaces`."""
    encodes = isinstance(tokenizer, Tokenizer) and tokenizer.kind != "bytes"
    memo = tables_for(vocabulary).memo
    key = ("joined to space", tokenizer.kind if encodes else None)
    found = memo.get(key)
    if found is None:
        known = set(vocabulary.tokens)
        verdict: dict[bytes, bool] = {}
        for token in known:
            try:
                text = token.decode()
            except UnicodeDecodeError:
                continue
            if text and not text[0].isspace():
                fused = _is_fused(tokenizer, vocabulary, text) if encodes else None
                verdict[token] = b" " + token in known if fused is None else fused
        found = np.array([i for i, token in enumerate(vocabulary.tokens) if verdict.get(token)], np.int64)
        memo[key] = found
    return found


def _is_fused(tokenizer: Tokenizer, vocabulary: Vocabulary, text: str) -> bool | None:
    """Whether the encoder joins a space to what follows; None where it does not give the text back."""
    data = text.encode()
    ids = tokenizer.encode("a " + text)
    if not vocabulary.decode_bytes(ids).endswith(b"a " + data):
        return None
    ends = np.cumsum([len(vocabulary.tokens[token]) for token in ids]).tolist()
    after = ends[-1] - len(data)
    return not (after in ends and after - 1 in ends)


def _entries(entries: Any, name: str) -> tuple[int | str, ...]:
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Iterable):
        raise ConstraintError(f"{name} must be a list of tokens, not {type(entries).__name__}", fix=f'Write {name}=["a"].')
    out: list[int | str] = []
    for entry in listed(entries, name):
        if isinstance(entry, (bool, np.bool_)) or not isinstance(entry, (int, str, np.integer)):
            raise ConstraintError(f"{entry!r:.40} is neither a token id nor a text", fix="Give ids or strings.")
        out.append(entry if isinstance(entry, str) else int(entry))
    return tuple(sorted(set(out), key=lambda entry: (isinstance(entry, str), entry)))
