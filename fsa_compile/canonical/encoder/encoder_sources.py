"""What a tokenizer's encoder does, read from the tokenizer: its merges, its splitter, its rule for characters it lacks.

Whatever would make the encoder more than that is refused by name here, so that the rest of the package may rely on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fsa_compile.canonical.encoder.character_encoders import hugging_face_characters, sentence_piece
from fsa_compile.canonical.encoder.encoder import Encoder, listed_merges, refused
from fsa_compile.canonical.encoder.merge_table import MergeTable, all_splits, make_table
from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.byte_level import BYTE_TO_CHAR, unprint_bytes
from fsa_compile.tokenizers.families import GPT2_PATTERN
from fsa_compile.tokenizers.gpt2 import Gpt2Tokenizer
from fsa_compile.tokenizers.hugging_face import HuggingFaceTokenizer, names_by_id
from fsa_compile.tokenizers.sentence_piece import SentencePieceTokenizer
from fsa_compile.tokenizers.tiktoken_ranks import TiktokenTokenizer
from fsa_compile.tokenizers.tokenizer import Tokenizer
from fsa_compile.vocabulary.vocabulary import Vocabulary


def encoder_of(tokenizer: Tokenizer) -> Encoder:
    """The encoder of a tokenizer.

    Raises:
      TokenizerError: it is no byte-pair encoder, or one whose canonical form is not decided by merges and a splitter.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        return sentence_piece(tokenizer)
    if isinstance(tokenizer, TiktokenTokenizer):
        return _ranks(tokenizer)
    if isinstance(tokenizer, Gpt2Tokenizer):
        names, merges = tokenizer.merges
        pattern = _known(tokenizer.pattern)
        table = _printed_table(names, merges, tokenizer.vocabulary, whole_tokens=False)
        return Encoder(vocabulary=tokenizer.vocabulary, table=table, pattern=pattern, engine="tokenizers")
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return _hugging_face(tokenizer)
    raise refused(f"a tokenizer of kind {tokenizer.kind!r} has no merges")


def digest_of(tokenizer: Tokenizer) -> str:
    """A digest (hex) of everything `encoder_of` depends on, without making it."""
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
        raise refused(f"the byte {int(np.argmin(single)):#04x} has no token")
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
        raise refused("a token is not written in byte characters, or two tokens of one id differ")
    single = np.array([names.get(BYTE_TO_CHAR[byte], -1) for byte in range(256)], np.int32)
    if (single < 0).any():
        raise refused(f"the byte {int(np.argmin(single)):#04x} has no token")
    triples = np.array([(names[a], names[b], names[a + b]) for a, b in merges], np.int64).reshape(-1, 3)
    units, offset = vocabulary.packed
    listed = np.zeros(vocabulary.size, bool)
    listed[list(names.values())] = True
    length = np.where(listed, np.diff(offset), 0)
    if not listed[np.diff(offset) > 0].all():
        raise refused("text is written by tokens that are cut out of a text before merging (added tokens)")
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
        raise refused(f"a {model.get('type')} model has no merge table")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise refused(f"the model has {option}={model[option]!r}")
    if model.get("byte_fallback"):
        return hugging_face_characters(tokenizer)
    pattern, form = _byte_level_pattern(spec.get("pre_tokenizer")), _unicode_form(spec.get("normalizer"))
    special = set(tokenizer.vocabulary.special.values())
    names = {name: i for name, i in model["vocab"].items() if i not in special and tokenizer.vocabulary.tokens[i]}
    names_by_id(names, "vocab")
    merges = listed_merges(model, names)
    table = _printed_table(names, merges, tokenizer.vocabulary, whole_tokens=bool(model.get("ignore_merges")))
    return Encoder(
        vocabulary=tokenizer.vocabulary, table=table, pattern=pattern, engine="tokenizers", unicode_form=form
    )


def _unicode_form(normalizer: Any) -> str | None:
    if normalizer is None:
        return None
    if isinstance(normalizer, dict) and normalizer.get("type") in ("NFC", "NFD", "NFKC", "NFKD"):
        return str(normalizer["type"])
    raise refused(f"the tokenizer has the normalizer {str(normalizer)[:60]}")


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
    raise refused(f"the pre-tokenizer is not one pattern and then bytes ({str(pre)[:60]})")
