"""GPT-2's own files: `encoder.json` (printed bytes -> id) with `vocab.bpe` (merges in order)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.byte_level import BYTE_TO_CHAR, unprint_bytes
from fsa_compile.tokenizers.families import GPT2_PATTERN
from fsa_compile.tokenizers.hugging_face import names_by_id
from fsa_compile.tokenizers.markup_names import Asked
from fsa_compile.tokenizers.tokenizer import Tokenizer, encoded, require
from fsa_compile.vocabulary.vocabulary import MAX_TOKENS, Vocabulary

_GPT2_MERGES = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
"""SHA-256 of the published vocab.bpe."""


class Gpt2Tokenizer(Tokenizer):
    """Byte-level BPE with a list of merges; `names` are printed bytes -> id, special tokens left out."""

    kind = "gpt2"

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        names: dict[str, int],
        merges: list[tuple[str, str]],
        pattern: str | None,
        source: str,
    ) -> None:
        self.vocabulary = vocabulary
        self._names, self._merges, self._pattern, self._source = names, merges, pattern, source

    @property
    def merges(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """Id of each token by its printed bytes, and the merges in order, of printed bytes."""
        return self._names, self._merges

    @property
    def pattern(self) -> str | None:
        """The splitting pattern, or None when it is not known."""
        return self._pattern

    def encode(self, text: str) -> list[int]:
        return encoded(text, lambda: self._encoder, self._source)

    @functools.cached_property
    def _encoder(self) -> Any:
        if self._pattern is None:
            raise TokenizerError(
                "these files do not say how a text is cut into pieces, and they are not GPT-2's",
                where=self._source,
                fix='Give load_tokenizer the pattern its model was trained with: pattern=r"…" (the vocabulary '
                "and all compilation work without it; only encode() needs it).",
            )
        tokenizers = require("tokenizers")
        try:
            encoder = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=self._names, merges=self._merges))
            split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(self._pattern), "isolated")
        except Exception as error:
            raise TokenizerError(
                f"tokenizers does not accept these files or this pattern ({error})",
                where=f"{self._source}, pattern={self._pattern!r}",
            ) from error
        printed = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        encoder.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, printed])
        return encoder


def load_gpt2(
    encoder: Any, merges: bytes, *, source: str, pattern: str | None = None, **options: Any
) -> Gpt2Tokenizer:
    """The tokenizer of a parsed `encoder.json` and the content of its `vocab.bpe`; options are those of `Asked`.

    An entry that is neither one byte nor the result of a merge is a special token. Without a pattern GPT-2's own files have
    GPT-2's, and with others `encode` is unavailable.

    Raises:
      TokenizerError: a merge that is no pair, or whose parts or result have no id; a wrong id.
    """
    if not isinstance(encoder, dict) or not encoder:
        raise TokenizerError("encoder.json is not a mapping from tokens to ids", where=source)
    by_id, pairs = names_by_id(encoder, source), parse_merges(merges, source)
    made = _mergeable(encoder, pairs, source)
    asked = Asked(**options)
    listed = asked.special_among(encoder, source)
    special = {n: i for i, n in enumerate(by_id) if n is not None and (n not in made or n in listed)}
    text = {n: i for i, n in enumerate(by_id) if n is not None and n not in special}
    tokens = [b""] * len(by_id)
    for i, raw in zip(text.values(), unprint_bytes(list(text))):
        tokens[i] = raw or b""  # never None: every name here is made of printed bytes
    known = hashlib.sha256(merges).hexdigest() == _GPT2_MERGES
    return Gpt2Tokenizer(
        asked.vocabulary(tokens, special),
        names=text,
        merges=[(a, b) for a, b in pairs if a + b in text],
        pattern=GPT2_PATTERN if pattern is None and known else pattern,
        source=source,
    )


def _mergeable(encoder: Mapping[str, int], pairs: list[tuple[str, str]], source: str) -> set[str]:
    """Names of the bytes and of what merges make."""
    made = {*BYTE_TO_CHAR.values()}
    for number, (left, right) in enumerate(pairs, 1):
        if left not in made or right not in made or left + right not in encoder:
            raise TokenizerError(
                f"the merge of {left!r} and {right!r} does not fit the vocabulary",
                where=f"{source}, merge {number}",
                fix="encoder.json and vocab.bpe must belong to the same tokenizer.",
            )
        made.add(left + right)
    return made


def parse_merges(data: bytes, source: str) -> list[tuple[str, str]]:
    """The pairs of printed bytes of a vocab.bpe file, first merge first.

    Raises:
      TokenizerError: not UTF-8, a line that is no pair, a pair given twice, too many lines.
    """
    if (count := data.count(b"\n")) > MAX_TOKENS:
        raise TokenizerError(f"{count:,} merges are more than allowed ({MAX_TOKENS:,})", where=source)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError("the merges are not UTF-8", where=f"{source}, byte {error.start:,}") from None
    pairs: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines, 1):
        # A printed byte is never white space, so splitting at any of it is safe. Only the first line is a comment:
        # "#" is a printed byte, and merges may begin with it.
        fields = line.split()
        if not fields or (number == 1 and line.startswith("#version")):
            continue
        if len(fields) != 2 or (fields[0], fields[1]) in pairs:
            what = "is given twice" if len(fields) == 2 else "is not two tokens"
            raise TokenizerError(
                f"a merge {what}",
                where=f"{source}, line {number}: {line[:60]!r}",
                fix="The file is damaged or cut off: download it again.",
            )
        pairs[fields[0], fields[1]] = number
    return list(pairs)
