"""`encode_continuation`: the ids of a text that goes on where other tokens end."""

from __future__ import annotations

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.tokenizer import Tokenizer

_BEFORE = ("\n", ":", ".", ")", "=", "0")
"""Texts that seldom share a token with what follows them."""


def encode_continuation(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids that write exactly a text behind other tokens: without the space that some tokenizers put before a text.

    Such a tokenizer is given the text behind another one, whose tokens are then left out.

    Args:
      tokenizer: from `load_tokenizer`.
      text: the text; "" gives no ids.

    Raises:
      TokenizerError: the tokenizer changes the text (normalizes it), so that no ids of its making write exactly it.
    """
    wanted = tokenizer.vocabulary
    if not text:
        return []
    ids = tokenizer.encode(text)
    if wanted.decode_bytes(ids) == text.encode():
        return ids
    for before in _BEFORE:
        head, ids = tokenizer.encode(before), tokenizer.encode(before + text)
        rest = ids[len(head) :]
        if ids[: len(head)] == head and wanted.decode_bytes(rest) == text.encode():
            return rest
    raise TokenizerError(
        "the tokenizer makes no ids that write exactly this text behind others",
        where=repr(text[:60]),
        fix="Give token ids instead, or write the text as the tokenizer normalizes it.",
    )
