"""Hugging Face decoders: from a token's name to the exact bytes it writes when it continues a text.

Only decoders that write each token the same way wherever it stands in a text (but for a dropped first space) have
exact bytes; the others are refused here with the reason.

Source: huggingface/tokenizers, `tokenizers/src/decoders`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.byte_level import unprint_bytes

_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_REASONS = {
    "WordPiece": "it puts a space before a word, but not before the first, and closes up punctuation",
    "BPEDecoder": "it puts a space after a word, but not after the last",
    "CTC": "it merges repeated tokens",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder:
    """What a chain of decoder steps does to one token.

    Attributes:
      byte_level: names are GPT-2's printed bytes.
      replacements: (old, new) text replacements, in order.
      byte_fallback: a name such as `<0x0A>` is that byte.
      drops_first: "" when the first token of a text is written like any other, "space" when one space is dropped at
        the start of the text, "marks" when every `mark` of the first token is dropped.
      mark: the space symbol that "marks" drops.
    """

    byte_level: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    drops_first: str = ""
    mark: str = ""

    def token_bytes(self, names: Sequence[str]) -> list[bytes]:
        """The exact bytes of each token when it continues a text, by the tokens' names.

        Raises:
          UnicodeEncodeError: a name holds a lone surrogate.
        """
        if self.byte_level:
            # The decoder writes a name with any other character (an added token) as it stands.
            return [name.encode() if raw is None else raw for name, raw in zip(names, unprint_bytes(names))]
        return [self._one(name) for name in names]

    def _one(self, name: str) -> bytes:
        for old, new in self.replacements:
            name = name.replace(old, new)
        if self.byte_fallback and name.startswith("<0x"):
            byte = _BYTE_NAME.fullmatch(name)
            if byte is not None:
                return bytes([int(byte[1], 16)])
        return name.encode()


def read_decoder(spec: Any, source: str) -> Decoder:
    """The decoder that the "decoder" entry of a `tokenizer.json` describes.

    Raises:
      TokenizerError: no decoder, an unknown one, or one without exact bytes per token.
    """
    if spec is None:
        raise TokenizerError(
            "the tokenizer has no decoder, so it joins tokens with spaces and no token has fixed bytes",
            where=f'{source}, "decoder"',
            fix="Export the tokenizer with its decoder (ByteLevel, Metaspace or ByteFallback).",
        )
    fused = False
    decoder = Decoder()
    for step, where in _steps(spec, source):
        kind = step.get("type")
        if fused and kind not in ("Fuse", "Strip"):
            raise _refused(kind, "it stands behind a step that has joined the tokens", where)
        if kind == "ByteLevel":
            if decoder != Decoder():
                raise _refused(kind, "it stands behind a step that has rewritten the names", where)
            decoder, fused = dataclasses.replace(decoder, byte_level=True), True
        elif kind == "Replace":
            decoder = _with_replacement(decoder, step, where)
        elif kind == "Metaspace":
            decoder = _with_metaspace(decoder, step, where)
        elif kind == "ByteFallback":
            decoder = dataclasses.replace(decoder, byte_fallback=True)
        elif kind == "Fuse":
            fused = True
        elif kind == "Strip":
            decoder = _with_strip(decoder, step, where, fused)
        else:
            raise _refused(kind, _REASONS.get(str(kind), "this version does not know it"), where)
    return decoder


def _steps(spec: Any, source: str, where: str = '"decoder"') -> list[tuple[dict[str, Any], str]]:
    """The steps of a decoder, sequences flattened, each with its place."""
    if not isinstance(spec, dict):
        raise TokenizerError("a decoder is not an object", where=f"{source}, {where}", fix="Export it again.")
    if spec.get("type") != "Sequence":
        return [(spec, f"{source}, {where}")]
    inner = spec.get("decoders")
    if not isinstance(inner, list):
        raise TokenizerError("a decoder sequence has no list of steps", where=f"{source}, {where}")
    return [step for i, one in enumerate(inner) for step in _steps(one, source, f"{where} step {i}")]


def _with_replacement(decoder: Decoder, step: dict[str, Any], where: str) -> Decoder:
    pattern, content = step.get("pattern"), step.get("content")
    old = pattern.get("String") if isinstance(pattern, dict) else None
    if not isinstance(old, str) or not old or not isinstance(content, str):
        raise _refused("Replace", "it replaces a regular expression, or nothing", where)
    if decoder.byte_fallback or decoder.drops_first:
        raise _refused("Replace", "it would also rewrite what byte tokens spell together", where)
    return dataclasses.replace(decoder, replacements=(*decoder.replacements, (old, content)))


def _with_metaspace(decoder: Decoder, step: dict[str, Any], where: str) -> Decoder:
    mark = step.get("replacement", "▁")
    if not isinstance(mark, str) or len(mark) != 1:
        raise _refused("Metaspace", "its replacement is not one character", where)
    if decoder.byte_fallback or decoder.drops_first:
        raise _refused("Metaspace", "it would also rewrite what byte tokens spell together", where)
    # Files of older versions say add_prefix_space instead of prepend_scheme.
    scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
    return dataclasses.replace(
        decoder,
        replacements=(*decoder.replacements, (mark, " ")),
        drops_first="" if scheme == "never" else "marks",
        mark=mark,
    )


def _with_strip(decoder: Decoder, step: dict[str, Any], where: str, fused: bool) -> Decoder:
    content, start, stop = step.get("content"), step.get("start", 0), step.get("stop", 0)
    if start == 0 and stop == 0:
        return decoder
    if not fused or content != " " or start != 1 or stop != 0 or decoder.drops_first:
        raise _refused("Strip", "it removes more than one space at the start of the text", where)
    return dataclasses.replace(decoder, drops_first="space")


def _refused(kind: Any, reason: str, where: str) -> TokenizerError:
    return TokenizerError(
        f"with the decoder step {kind!r} a token has no exact bytes: {reason}",
        where=where,
        fix="Use the model's SentencePiece or tiktoken file instead, if it has one.",
    )
