"""Whether tokenizer, tables, model and prompts belong together, and the id that starts a text."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from fsa_compile.artifact.known_vocabularies import recall
from jax_decode.errors import DecodeError
from jax_decode.tables.tables import ConstraintTables

_MOST_PADDING = 2
"""No model has this many times more logits than its tokenizer has ids."""


def encodes(tokenizer: Any) -> bool:
    """Whether something encodes text, as tokenizers do; texts have a method of that name, too."""
    return hasattr(tokenizer, "encode") and not isinstance(tokenizer, str)


def spells(tokenizer: Any) -> bool:
    """Whether something decodes tokens, as tokenizers and vocabularies do; bytes have a method of that name, too."""
    found = getattr(tokenizer, "vocabulary", tokenizer)
    return hasattr(found, "decode") and not isinstance(found, (bytes, bytearray))


def check_tokenizer(tokenizer: Any, tables: ConstraintTables | None) -> None:
    """Raises `DecodeError` where a tokenizer cannot encode, or is certainly not the tables'; warns where that is not certain."""
    if tokenizer is None:
        return
    if not encodes(tokenizer):
        what = f"the tokenizer ({type(tokenizer).__name__}) has no 'encode'"
        raise DecodeError(what, fix="Pass what fsa_compile.load_tokenizer(path) returns.")
    if isinstance(tables, ConstraintTables):
        _check_same(tokenizer, tables.fingerprint, tables.vocab_size, "the tables were made for")


def fingerprint_of(tokenizer: Any) -> str:
    """Of a tokenizer or vocabulary; "" where it has none."""
    return str(getattr(getattr(tokenizer, "vocabulary", tokenizer), "fingerprint", ""))


def speller(tokenizer: Any, fingerprint: str) -> Any:
    """What decodes tokens of a vocabulary: a tokenizer's vocabulary, or the one of this process; see `Generation.text`."""
    if tokenizer is None:
        if (found := recall(fingerprint)) is None:
            what = "the tokens cannot be spelled: this process has loaded no tokenizer of their vocabulary"
            raise DecodeError(what, fix="Pass the tokenizer: out.text(tokenizer).")
        return found
    found = getattr(tokenizer, "vocabulary", tokenizer)
    if not spells(found):
        what = f"a {type(tokenizer).__name__} has no 'decode'"
        raise DecodeError(what, fix="Pass what fsa_compile.load_tokenizer(path) returns.")
    if fingerprint:
        _check_same(found, fingerprint, None, "the tokens belong to")
    return found


def _check_same(tokenizer: Any, fingerprint: str, size: int | None, whose: str) -> None:
    """Raises `DecodeError` where a tokenizer's tokens differ from those of a fingerprint, whatever the ids that end a text."""
    own = fingerprint_of(tokenizer)
    if own in ("", fingerprint):
        return
    vocabulary, known = getattr(tokenizer, "vocabulary", tokenizer), recall(fingerprint)
    what = f"the tokenizer has vocabulary {own[:12]}; {whose} {fingerprint[:12]}"
    certain = size not in (None, vocabulary.size) if known is None else known.tokens != vocabulary.tokens
    if certain:
        raise DecodeError(what, fix="Pass the tokenizer that the constraint was compiled for.")
    if known is None:
        warnings.warn(f"{what}. Are their tokens the same?", stacklevel=2)


def check_model(decoder: Any, tables: ConstraintTables | None) -> None:
    """Raises `DecodeError` where tables are certainly of another model's vocabulary."""
    if not isinstance(tables, ConstraintTables):
        return
    own = getattr(decoder, "vocabulary_fingerprint", "")
    if own and own != tables.fingerprint:
        what = f"the constraint was compiled for vocabulary {tables.fingerprint[:12]}; the model was trained with {own[:12]}"
        raise DecodeError(what, fix="Compile the constraint for the tokenizer of this model.")
    if _MOST_PADDING * tables.vocab_size < decoder.vocab_size:
        what = f"the constraint is for a vocabulary of {tables.vocab_size:,} ids, the model has {decoder.vocab_size:,} logits"
        fix = 'Compile the constraint for the tokenizer of this model. (If it is, give the tokenizer its unused ids as b"".)'
        raise DecodeError(f"{what}: they do not belong together", fix=fix)


def encoded(prompts: Any, tokenizer: Any) -> Any:
    """Prompts as token ids: what is text is encoded; anything else stays as it is, to be checked."""
    if tokenizer is None:
        return prompts
    if isinstance(prompts, str):
        return tokenizer.encode(prompts)
    if isinstance(prompts, Sequence) and any(isinstance(one, str) for one in prompts):
        return [tokenizer.encode(one) if isinstance(one, str) else one for one in prompts]
    return prompts


def start_id(bos_id: Any, rows: list[list[int]], tokenizer: Any, tables: Any) -> int | None:
    """The id to put before the prompts that lack it, after saying what was probably forgotten or doubled.

    Args:
      bos_id: as given: an id, None for the tokenizer's (without a tokenizer: none), or False for none.
      rows: the prompts' ids.
      tokenizer, tables: as given, or None.
    """
    if bos_id is False:
        return None
    if tokenizer is not None and bos_id is None:
        return getattr(getattr(tokenizer, "vocabulary", tokenizer), "bos_id", None)
    known = recall(tables.fingerprint) if isinstance(tables, ConstraintTables) else None
    usual = getattr(known, "bos_id", None)
    if usual is not None and any(row[:2] == [usual, usual] for row in rows):
        warnings.warn(f"a prompt begins with {usual} twice, the id that starts a text of this vocabulary", stacklevel=2)
    if bos_id is None:
        if usual is not None and any(row[:1] != [usual] for row in rows):
            warnings.warn(
                f"a prompt does not begin with {usual}, the id that starts a text of this vocabulary. Pass bos_id={usual}, or "
                "tokenizer=, which puts it there; bos_id=False where it is left out on purpose",
                stacklevel=2,
            )
        return None
    if any(row[:1] == [bos_id] for row in rows):
        warnings.warn(f"a prompt begins with bos_id={bos_id} already; it is put there a second time", stacklevel=2)
    return int(bos_id)
