"""What a tokenizer's encoder does, read from the tokenizer: its merges, its splitter, its rule for characters it lacks.

Whatever would make the encoder more than that is refused by name here, so that the rest of the package may rely on it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from fsa_compile.canonical.merge_table import MergeTable, all_splits, make_table
from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.base import Tokenizer
from fsa_compile.tokenizers.byte_level import BYTE_TO_CHAR, unprint_bytes
from fsa_compile.tokenizers.families import GPT2_PATTERN
from fsa_compile.tokenizers.gpt2 import Gpt2Tokenizer
from fsa_compile.tokenizers.hugging_face import HuggingFaceTokenizer, names_by_id
from fsa_compile.tokenizers.ranks import TiktokenTokenizer
from fsa_compile.tokenizers.sentence_piece import BYTE, NORMAL, SPACE, USER_DEFINED, Model, SentencePieceTokenizer
from fsa_compile.tokenizers.sentence_piece import UNUSED as UNUSED_PIECE
from fsa_compile.vocabulary import Vocabulary

Engine = Literal["tiktoken", "tokenizers"]
_PLACEHOLDER = "\0"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Encoder:
    """A byte-pair encoder.

    Attributes:
      vocabulary: the bytes of all ids.
      table: its merges.
      pattern: regular expression that cuts a text into pieces before merging; None where nothing is cut.
      engine: the package whose regular expressions and Unicode tables interpret the pattern.
      unicode_form: normal form a text is brought to first, or None.
      byte_tokens: int32[256], tokens that spell a character byte by byte where it has no token of its own; None for encoders
        whose atoms are bytes.
      characters: code points that are spelled by tokens of their own, ascending, where there are `byte_tokens`; else None.
      cut_pieces: int32[*], tokens that are cut out of a text before merging, the longest where one begins; see `piece_filter`.
    """

    vocabulary: Vocabulary
    table: MergeTable
    pattern: str | None = None
    engine: Engine | None = None
    unicode_form: str | None = None
    byte_tokens: np.ndarray | None = None
    characters: np.ndarray | None = None
    cut_pieces: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))


def encoder_of(tokenizer: Tokenizer) -> Encoder:
    """The encoder of a tokenizer.

    Args:
      tokenizer: from `load_tokenizer`.

    Raises:
      TokenizerError: it is no byte-pair encoder, or one whose canonical form is not decided by merges and a splitter.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _sentence_piece(tokenizer)
    if isinstance(tokenizer, TiktokenTokenizer):
        return _ranks(tokenizer)
    if isinstance(tokenizer, Gpt2Tokenizer):
        names, merges = tokenizer.merges
        pattern = _known(tokenizer.pattern)
        table = _printed_table(names, merges, tokenizer.vocabulary, whole_tokens=False)
        return Encoder(vocabulary=tokenizer.vocabulary, table=table, pattern=pattern, engine="tokenizers")
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return _hugging_face(tokenizer)
    raise _refused(f"a tokenizer of kind {tokenizer.kind!r} has no merges")


def digest_of(tokenizer: Tokenizer) -> str:
    """A digest (hex) of everything `encoder_of` depends on, without making it.

    Args:
      tokenizer: from `load_tokenizer`.
    """
    digest = hashlib.sha256(f"{tokenizer.kind}\0{tokenizer.vocabulary.fingerprint}\0".encode())
    parts: list[Any] = []
    if isinstance(tokenizer, TiktokenTokenizer):
        parts = [tokenizer.pattern, tokenizer.unicode_form]
    elif isinstance(tokenizer, Gpt2Tokenizer):
        parts = [tokenizer.pattern, *map(" ".join, tokenizer.merges[1])]
    elif isinstance(tokenizer, HuggingFaceTokenizer):
        parts = [json.dumps(tokenizer.spec, sort_keys=True)]
    elif isinstance(tokenizer, SentencePieceTokenizer):
        digest.update(tokenizer.serialized)
    digest.update("\n".join(map(str, parts)).encode())
    return digest.hexdigest()


def _refused(what: str, where: str = "") -> TokenizerError:
    fix = "Use byte-pair encoding as of Llama, GPT, or Qwen, or compile without canonical=True."
    return TokenizerError(f"canonical tokenization is not defined here: {what}", where=where, fix=fix)


def _known(pattern: str | None) -> str:
    if pattern is None:
        raise TokenizerError(
            "how this tokenizer cuts a text into pieces is not known, so which tokens are canonical is not either",
            fix='Give load_tokenizer the pattern its model was trained with: pattern=r"…".',
        )
    return pattern


def _ranks(tokenizer: TiktokenTokenizer) -> Encoder:
    """tiktoken: any two neighbours that spell a token are merged, of the least id first."""
    vocabulary = tokenizer.vocabulary
    units, offset = vocabulary.packed
    single = np.full(256, -1, np.int32)
    alone = np.flatnonzero(np.diff(offset) == 1)
    single[units[offset[alone]]] = alone
    if (single < 0).any():
        raise _refused(f"the byte {int(np.argmin(single)):#04x} has no token")
    left, right, result = all_splits(units, offset)
    table = make_table(
        atoms=single[units], atom_offset=offset, merges=(left, right, result, result), whole_tokens=True
    )
    return Encoder(
        vocabulary=vocabulary, table=table, pattern=_known(tokenizer.pattern), engine="tiktoken",
        unicode_form=tokenizer.unicode_form,
    )  # fmt: skip


def _printed_table(
    names: Mapping[str, int], merges: list[tuple[str, str]], vocabulary: Vocabulary, *, whole_tokens: bool
) -> MergeTable:
    """Byte-level merges written in GPT-2's byte characters; the encoder merges what the list says and nothing else."""
    raw = unprint_bytes(list(names))
    if any(token is None or vocabulary.tokens[i] != token for i, token in zip(names.values(), raw)):
        raise _refused("a token is not written in byte characters, or two tokens of one id differ")
    single = np.array([names.get(BYTE_TO_CHAR[byte], -1) for byte in range(256)], np.int32)
    if (single < 0).any():
        raise _refused(f"the byte {int(np.argmin(single)):#04x} has no token")
    triples = np.array([(names[a], names[b], names[a + b]) for a, b in merges], np.int64).reshape(-1, 3)
    units, offset = vocabulary.packed
    listed = np.zeros(vocabulary.size, bool)
    listed[list(names.values())] = True
    length = np.where(listed, np.diff(offset), 0)
    if not listed[np.diff(offset) > 0].all():
        raise _refused("text is written by tokens that are cut out of a text before merging (added tokens)")
    atom_offset = np.concatenate([[0], np.cumsum(length)])
    return make_table(
        atoms=single[units],
        atom_offset=atom_offset,
        merges=(triples[:, 0], triples[:, 1], triples[:, 2], np.arange(len(triples))),
        whole_tokens=whole_tokens,
    )


def _hugging_face(tokenizer: HuggingFaceTokenizer) -> Encoder:
    spec, model = tokenizer.spec, tokenizer.spec["model"]
    if tokenizer.kind != "huggingface-bpe":
        raise _refused(f"a {model.get('type')} model has no merge table")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise _refused(f"the model has {option}={model[option]!r}")
    pattern, form = _byte_level_pattern(spec.get("pre_tokenizer")), _unicode_form(spec.get("normalizer"))
    special = set(tokenizer.vocabulary.special.values())
    names = {name: i for name, i in model["vocab"].items() if i not in special and tokenizer.vocabulary.tokens[i]}
    names_by_id(names, "vocab")
    merges = []
    for merge in model["merges"]:
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        if {left, right, left + right} <= names.keys():
            merges.append((left, right))
    table = _printed_table(names, merges, tokenizer.vocabulary, whole_tokens=bool(model.get("ignore_merges")))
    return Encoder(
        vocabulary=tokenizer.vocabulary, table=table, pattern=pattern, engine="tokenizers", unicode_form=form
    )


def _unicode_form(normalizer: Any) -> str | None:
    if normalizer is None:
        return None
    if isinstance(normalizer, dict) and normalizer.get("type") in ("NFC", "NFD", "NFKC", "NFKD"):
        return str(normalizer["type"])
    raise _refused(f"the tokenizer has the normalizer {str(normalizer)[:60]}")


def _byte_level_pattern(pre: Any) -> str:
    """The splitting pattern of a byte-level pre-tokenizer: `ByteLevel` alone, or `Split` and then `ByteLevel`."""
    steps = pre.get("pretokenizers", []) if isinstance(pre, dict) and pre.get("type") == "Sequence" else [pre]
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    if kinds and kinds[-1] == "ByteLevel" and not steps[-1].get("add_prefix_space"):
        splits = steps[-1].get("use_regex", True)
        if kinds == ["ByteLevel"] and splits:
            return GPT2_PATTERN
        if kinds == ["Split", "ByteLevel"] and not splits:
            cut, pattern = steps[0], steps[0].get("pattern")
            if cut.get("behavior") == "Isolated" and not cut.get("invert") and isinstance(pattern, dict) and "Regex" in pattern:
                return str(pattern["Regex"])
    raise _refused(f"the pre-tokenizer is not one pattern and then bytes ({str(pre)[:60]})")


def _sentence_piece(tokenizer: SentencePieceTokenizer) -> Encoder:
    if tokenizer.kind != "sentencepiece-bpe":
        what = "finds the best of all ways to cut a text, so no rule on neighbouring tokens decides"
        raise _refused(f"a model of kind {tokenizer.kind!r} {what}" if "unigram" in tokenizer.kind else tokenizer.kind)
    model, scores = tokenizer.model
    _check_settings(model)
    kinds = np.array(model.types)
    cut = np.flatnonzero(kinds == USER_DEFINED)
    texts = [piece if kind in (NORMAL, USER_DEFINED) else "" for piece, kind in zip(model.pieces, model.types)]
    # Of one character it is an atom like others, only that it never merges; of several, one of a character that there is not.
    longer = np.array([token for token in cut.tolist() if len(model.pieces[token]) > 1], np.int64)
    for token in longer.tolist():
        texts[token] = _PLACEHOLDER
    length = np.fromiter(map(len, texts), np.int64, len(texts))
    offset = np.concatenate([[0], np.cumsum(length)])
    units = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4").copy()
    units[offset[longer]] = 0x110000 + longer
    alone = np.flatnonzero(length == 1)
    single = np.full(0x110000 + len(texts), -1, np.int32)
    single[units[offset[alone]]] = alone
    atoms = single[units]
    if (atoms < 0).any():
        raise _refused(f"the character U+{int(units[np.argmin(atoms)]):04X} stands in a piece but is none itself")
    left, right, result = all_splits(units, offset)
    merges = (kinds[left] == NORMAL) & (kinds[right] == NORMAL)
    left, right, result = left[merges], right[merges], result[merges]
    # Llama 2's runs of spaces share one score: of equal ones the leftmost is merged first.
    order = np.unique(-np.array(scores), return_inverse=True)[1]
    table = make_table(
        atoms=atoms, atom_offset=offset, merges=(left, right, result, order[result]), whole_tokens=False
    )
    space = ord(SPACE)  # a space is written as one, and one in the text reads back as a space
    held = np.unique(np.append(units[offset[alone]], [ord(" "), space] if single[space] >= 0 else []).astype(np.int64))
    return Encoder(
        vocabulary=tokenizer.vocabulary, table=table, byte_tokens=_byte_tokens(model),
        characters=held[held < 0x110000], cut_pieces=cut.astype(np.int32),
    )  # fmt: skip


def _check_settings(model: Model) -> None:
    """Raises for what changes a text before merging, or is matched apart from merging."""
    if model.has_character_map:
        raise _refused("the model's normalizer rewrites characters")
    if model.remove_extra_whitespaces:
        raise _refused("the model's normalizer removes white space")
    if not model.escape_whitespaces or model.whitespace_as_suffix:
        raise _refused("the model writes spaces in an unusual way")
    if not model.byte_fallback:
        raise _refused("characters without a piece become the unknown token, which reads back as no text")
    for piece, kind in zip(model.pieces, model.types):
        if kind == USER_DEFINED and " " in piece:
            raise _refused(f"the piece {piece!r} is matched before spaces are rewritten")
        if kind == UNUSED_PIECE:
            raise _refused(f"the piece {piece!r} is merged and then taken apart")


def _byte_tokens(model: Model) -> np.ndarray:
    out = np.full(256, -1, np.int32)
    for i, kind in enumerate(model.types):
        if kind == BYTE:
            out[int(model.pieces[i][3:5], 16)] = i
    if (out < 0).any():
        raise _refused(f"the byte {int(np.argmin(out)):#04x} has no token")
    return out
