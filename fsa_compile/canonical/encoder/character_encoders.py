"""Encoders that merge characters and spell what they lack by bytes: SentencePiece models, as such and as `tokenizer.json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fsa_compile.canonical.encoder.encoder import Encoder, listed_merges, refused
from fsa_compile.canonical.encoder.merge_table import all_splits, make_table
from fsa_compile.tokenizers.hugging_face import HuggingFaceTokenizer
from fsa_compile.tokenizers.sentence_piece import BYTE, NORMAL, SPACE, USER_DEFINED, Model, SentencePieceTokenizer
from fsa_compile.tokenizers.sentence_piece import UNUSED as UNUSED_PIECE
from fsa_compile.vocabulary.vocabulary import Vocabulary

_PLACEHOLDER = "\0"
_NO_CHARACTER = 0x110000
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")


def sentence_piece(tokenizer: SentencePieceTokenizer) -> Encoder:
    """The encoder of a SentencePiece model."""
    if tokenizer.kind != "sentencepiece-bpe":
        what = "finds the best of all ways to cut a text, so no rule on neighbouring tokens decides"
        raise refused(f"a model of kind {tokenizer.kind!r} {what}" if "unigram" in tokenizer.kind else tokenizer.kind)
    model, scores = tokenizer.model
    _check_settings(model)
    kinds = np.array(model.types)
    texts = [piece if kind in (NORMAL, USER_DEFINED) else "" for piece, kind in zip(model.pieces, model.types)]
    units, offset, _ = _atoms(texts, cut := np.flatnonzero(kinds == USER_DEFINED))
    left, right, result = all_splits(units, offset)
    merges = (kinds[left] == NORMAL) & (kinds[right] == NORMAL)
    left, right, result = left[merges], right[merges], result[merges]
    # Llama 2's runs of spaces share one score: of equal ones the leftmost is merged first.
    order = np.unique(-np.array(scores), return_inverse=True)[1]
    return _of_characters(tokenizer.vocabulary, texts, cut, _byte_tokens(model), (left, right, result, order[result]))


def _atoms(texts: list[str], cut: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is merged: the characters of all tokens, their offsets, and the token of each character, -1 for none.

    A piece that is cut out is an atom too: of one character like others, only that it never merges, of several one of a number
    that no character has.
    """
    texts = list(texts)
    longer = np.array([token for token in cut.tolist() if len(texts[token]) > 1], np.int64)
    for token in longer.tolist():
        texts[token] = _PLACEHOLDER
    length = np.fromiter(map(len, texts), np.int64, len(texts))
    offset = np.concatenate([[0], np.cumsum(length)])
    units = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4").copy()
    units[offset[longer]] = _NO_CHARACTER + longer
    alone = np.flatnonzero(length == 1)
    single = np.full(_NO_CHARACTER + len(texts), -1, np.int32)
    single[units[offset[alone]]] = alone
    return units, offset, single


def _of_characters(
    vocabulary: Vocabulary, texts: list[str], cut: np.ndarray, byte_tokens: np.ndarray, merges: tuple[np.ndarray, ...]
) -> Encoder:
    """The encoder that merges characters.

    Args:
      texts: of all tokens but bytes and markup, spaces as `SPACE`.
      cut: int64[*], tokens that are cut out of a text, ascending.
      byte_tokens: int32[256].
      merges: as `make_table` takes them.
    """
    units, offset, single = _atoms(texts, cut)
    atoms = single[units]
    if (atoms < 0).any():
        raise refused(f"the character U+{int(units[np.argmin(atoms)]):04X} stands in a piece but is none itself")
    left, right, result, rank = merges
    table = make_table(atoms=atoms, atom_offset=offset, merges=(left, right, result, rank), whole_tokens=False)
    space = ord(SPACE)  # a space is written as one, and one in the text reads back as a space
    held = np.append(np.flatnonzero(single[:_NO_CHARACTER] >= 0), [ord(" "), space] if single[space] >= 0 else [])
    return Encoder(
        vocabulary=vocabulary, table=table, byte_tokens=byte_tokens, characters=np.unique(held.astype(np.int64)),
        cut_pieces=cut.astype(np.int32),
    )  # fmt: skip


def _check_settings(model: Model) -> None:
    """Raises for what changes a text before merging, or is matched apart from merging."""
    if model.has_character_map:
        raise refused("the model's normalizer rewrites characters")
    if model.remove_extra_whitespaces:
        raise refused("the model's normalizer removes white space")
    if not model.escape_whitespaces or model.whitespace_as_suffix:
        raise refused("the model writes spaces in an unusual way")
    if not model.byte_fallback:
        raise refused("characters without a piece become the unknown token, which reads back as no text")
    for piece, kind in zip(model.pieces, model.types):
        if kind == USER_DEFINED and " " in piece:
            raise refused(f"the piece {piece!r} is matched before spaces are rewritten")
        if kind == UNUSED_PIECE:
            raise refused(f"the piece {piece!r} is merged and then taken apart")


def _byte_tokens(model: Model) -> np.ndarray:
    out = np.full(256, -1, np.int32)
    for i, kind in enumerate(model.types):
        if kind == BYTE:
            out[int(model.pieces[i][3:5], 16)] = i
    if (out < 0).any():
        raise refused(f"the byte {int(np.argmin(out)):#04x} has no token")
    return out


def hugging_face_characters(tokenizer: HuggingFaceTokenizer) -> Encoder:
    """A SentencePiece model in the form of a `tokenizer.json`: it merges characters, as a list says."""
    spec, model, vocabulary = tokenizer.spec, tokenizer.spec["model"], tokenizer.vocabulary
    if model.get("ignore_merges"):
        raise refused("the model has ignore_merges=True beside byte_fallback")
    in_front = _writes_spaces(spec.get("normalizer"), spec.get("pre_tokenizer"))
    texts = [""] * vocabulary.size
    byte_tokens = np.full(256, -1, np.int32)
    special = set(vocabulary.special.values())
    for name, token in model["vocab"].items():
        if _BYTE_NAME.fullmatch(name):
            byte_tokens[int(name[3:5], 16)] = token
        elif token not in special and vocabulary.tokens[token]:
            texts[token] = name
    if (byte_tokens < 0).any():
        raise refused(f"the byte {int(np.argmin(byte_tokens)):#04x} has no token")
    if by_name := [b for b, token in enumerate(byte_tokens.tolist()) if vocabulary.tokens[token] != bytes([b])]:
        raise refused(f"the decoder writes the token of byte {by_name[0]:#04x} by its name, without a ByteFallback")
    cut = _added_pieces(spec.get("added_tokens") or (), texts, special)
    if in_front and cut:
        raise refused(f"a space is put behind every {next(iter(cut.values()))!r} that is cut out of a text")
    texts = [cut.get(token, text) for token, text in enumerate(texts)]
    # A character without a token is spelled by bytes, which never merge: what holds one is never made.
    single = {text for text in texts if len(text) == 1}
    texts = [text if token in cut or single.issuperset(text) else "" for token, text in enumerate(texts)]
    names = {text: token for token, text in enumerate(texts) if text and token not in cut}
    merges = listed_merges(model, names)
    triples = np.array([(names[a], names[b], names[a + b]) for a, b in merges], np.int64).reshape(-1, 3)
    return _of_characters(vocabulary, texts, np.array(sorted(cut), np.int64), byte_tokens, (*triples.T, np.arange(len(triples))))


def _writes_spaces(normalizer: Any, pre: Any) -> bool:
    """Whether a space is put in front of every stretch of text, where spaces are written as `SPACE` and nothing else is done."""
    nested = isinstance(normalizer, dict) and normalizer.get("type") == "Sequence"
    steps = normalizer.get("normalizers", []) if nested else [normalizer]
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    kind = pre.get("type") if isinstance(pre, dict) else None
    if pre is None or (kind == "Split" and pre.get("pattern") == {"String": " "}):  # there are no spaces left to split at
        if steps in ([replaced], [{"type": "Prepend", "prepend": SPACE}, replaced]):
            return len(steps) == 2
    elif kind == "Metaspace" and normalizer is None and pre.get("replacement") == SPACE and pre.get("split") is False:
        scheme = pre.get("prepend_scheme")
        if scheme in ("first", "never", "always"):
            return bool(scheme == "always")
    raise refused(f"beside byte_fallback, the normalizer {str(normalizer)[:60]} and the pre-tokenizer {str(pre)[:60]}")


def _added_pieces(added: Iterable[Mapping[str, Any]], texts: list[str], special: set[int]) -> dict[int, str]:
    """The added tokens that are cut out of a text before merging; those in which a space is written are never met in one."""
    out, kinds = {}, set()
    for token in added:
        content, number = token["content"], token["id"]
        if number in special:
            continue
        if any(token.get(option) for option in ("single_word", "lstrip", "rstrip")):
            raise refused(f"the added token {content!r} looks at what stands beside it")
        if SPACE in content and not token.get("normalized") and texts[number] == content:
            continue
        if SPACE in content or " " in content:
            raise refused(f"the added token {content!r} holds a space")
        out[number] = content
        kinds.add(bool(token.get("normalized")))
    if len(kinds) > 1:
        raise refused("some added tokens are matched before spaces are rewritten and some behind")
    return out
