"""SentencePiece models: the `.model` protobuf and `sentencepiece.SentencePieceProcessor` objects.

The protobuf is read here directly: that takes no package for the exact bytes, says where a damaged file breaks, and
lets the encoder be given a copy in which chat markup is never matched by its printed name.

Source: Kudo and Richardson 2018, and google/sentencepiece `sentencepiece_model.proto`.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.markup_names import Asked, is_markup
from fsa_compile.tokenizers.tokenizer import Tokenizer, checked_text, require
from fsa_compile.vocabulary.vocabulary import MAX_TOKENS, Vocabulary, listed_ids

SPACE = "▁"
"""How a piece writes a space (U+2581)."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_MARKUP = frozenset({UNKNOWN, CONTROL})
_MODEL_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_BYTE_PIECES = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


@dataclasses.dataclass(kw_only=True)
class Model:
    """What is read from a model file; the defaults are the format's.

    Attributes:
      pieces: text of each piece.
      types: type of each piece, one of `NORMAL` and so on.
      type_at: offset in the file of each piece's one-byte type, or -1 where it has none (an ordinary piece).
      score_at: offset in the file of each piece's score (a 32-bit float), or -1 where it has none (a score of 0).
      has_character_map: whether the normalizer rewrites characters.
    """

    pieces: list[str]
    types: list[int]
    type_at: list[int]
    kind: int = 1
    eos_piece: str = "</s>"
    bos_piece: str = "<s>"
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    score_at: list[int] = dataclasses.field(default_factory=list)
    has_character_map: bool = False
    escape_whitespaces: bool = True
    whitespace_as_suffix: bool = False
    byte_fallback: bool = False


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model.

    A token's bytes are what it writes when it continues a text, so `▁` is a space; the space of the dummy prefix is
    dropped only by `decode`, at the start of a text.

    Args:
      model: serialized model whose markup pieces are control pieces.
      pieces: the piece of each id; the space at the beginning of one may be the dummy prefix.
      drops: 0 when a text's first space is kept, 1 when one is dropped, 2 when one per piece is dropped until
        something is written.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        kind: str,
        model: bytes,
        pieces: list[str],
        drops: int,
        source: str,
    ) -> None:
        self.vocabulary, self.kind = vocabulary, kind
        self._model, self._pieces, self._drops, self._source = model, pieces, drops, source

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(checked_text(text), out_type=int))

    def decode(self, ids: Iterable[int]) -> str:
        ids = listed_ids(ids)
        text = self.vocabulary.decode_bytes(ids)
        dropped = 0
        for token_id in ids:
            if self._drops == 0 or (self._drops == 1 and dropped):
                break
            if not self.vocabulary.decode_bytes([token_id]):
                continue
            if not self._pieces[token_id].startswith(SPACE):
                break
            dropped += 1
            if self.vocabulary.tokens[token_id] != b" ":
                break
        return text[dropped:].decode("utf-8", errors="replace")

    @property
    def serialized(self) -> bytes:
        """The serialized model that encodes: the one given, with markup as control pieces."""
        return self._model

    @property
    def model(self) -> tuple[Model, list[float]]:
        """What the encoder's model says, markup as control pieces, and the score of every piece; read anew."""
        model = _parse_model(self._model, self._source)
        scores = [struct.unpack_from("<f", self._model, at)[0] if at >= 0 else 0.0 for at in model.score_at]
        return model, scores

    @property
    def processor(self) -> Any:
        """The library's `SentencePieceProcessor` of the model that encodes."""
        return self._processor

    @functools.cached_property
    def _processor(self) -> Any:
        sentencepiece = require("sentencepiece")
        try:
            return sentencepiece.SentencePieceProcessor(model_proto=self._model)
        except (RuntimeError, ValueError) as error:
            raise TokenizerError(
                f"sentencepiece does not accept this model ({error})",
                where=self._source,
                fix="Download it again.",
            ) from error


def load_sentence_piece(data: bytes, *, source: str, **options: Any) -> SentencePieceTokenizer:
    """The tokenizer of a serialized SentencePiece model; options are those of `Asked`, whose special tokens are pieces that are
    markup although the model calls them text.

    Raises:
      TokenizerError: a damaged file, a piece given twice, a wrong byte piece, or decoding that no fixed bytes per
        token can describe.
    """
    model = _parse_model(data, source)
    asked = Asked(**options)
    listed = {*asked.special_among({piece: i for i, piece in enumerate(model.pieces)}, source).values()}
    encoder = bytearray(data)
    tokens = [piece.replace(SPACE, " ").encode() for piece in model.pieces]
    special: dict[str, int] = {}
    for i, kind in enumerate(model.types):
        if kind == NORMAL and i not in listed:
            continue
        piece = model.pieces[i]
        if kind not in _MARKUP and (i in listed or (kind == USER_DEFINED and is_markup(piece))):
            _make_control(encoder, model.type_at[i], piece, source)
            kind = CONTROL
        if kind in _MARKUP:
            special[piece] = i
        if kind != USER_DEFINED:
            tokens[i] = _byte_of(piece, i, source) if kind == BYTE else b""
    eos = special.get(model.eos_piece)
    return SentencePieceTokenizer(
        asked.vocabulary(tokens, special, () if eos is None else (eos,), special.get(model.bos_piece)),
        kind=f"sentencepiece-{_MODEL_KINDS[model.kind]}",
        model=bytes(encoder),
        pieces=model.pieces,
        drops=2 if model.remove_extra_whitespaces else int(model.add_dummy_prefix),
        source=source,
    )


def _byte_of(piece: str, token_id: int, source: str) -> bytes:
    """The byte that a byte piece names."""
    byte = _BYTE_PIECES.get(piece)
    if byte is None:
        raise TokenizerError(
            f"the byte piece {piece!r} does not name a byte",
            where=f"{source}, piece {token_id}",
            fix='Byte pieces are written "<0x00>" to "<0xFF>".',
        )
    return byte


def _make_control(model: bytearray, type_at: int, piece: str, source: str) -> None:
    """Turns a piece into a control piece in place; the encoder never matches those in a text."""
    if type_at < 0:
        raise TokenizerError(
            f"the piece {piece!r} is an ordinary piece of the model and cannot be taken out of its encoder",
            where=source,
            fix="special_tokens may name control, unknown, unused and user-defined pieces only.",
        )
    model[type_at] = CONTROL


def _parse_model(data: bytes, source: str) -> Model:
    """The pieces and settings of a serialized model."""
    model = Model(pieces=[], types=[], type_at=[])
    sections: dict[int, tuple[int, int]] = {}
    at = _read_common_pieces(data, model, source)
    for field, wire, start, end in _fields(data, at, len(data), source):
        if field == 1 and wire == 2:
            _read_piece(data, start, end, model, source)
        elif wire == 2:
            sections[field] = start, end
        if len(model.pieces) > MAX_TOKENS:
            break
    count = len(model.pieces)
    if count > MAX_TOKENS:
        raise TokenizerError(f"the model has more than the {MAX_TOKENS:,} pieces allowed", where=source)
    if not count:
        raise TokenizerError("the SentencePiece model has no pieces", where=source, fix="Download it again.")
    if not {2, 3} <= set(sections):
        raise _damaged("the sections behind the pieces are missing", len(data), source)
    if len(set(model.pieces)) < count:
        seen: dict[str, int] = {}
        again = next(i for i, piece in enumerate(model.pieces) if seen.setdefault(piece, i) != i)
        raise TokenizerError(
            f"the piece {model.pieces[again][:40]!r} is given twice",
            where=f"{source}, pieces {seen[model.pieces[again]]} and {again}",
            fix="The file is damaged: download it again.",
        )
    _read_settings(model, data, sections, source)
    return model


def _read_common_pieces(data: bytes, model: Model, source: str) -> int:
    """Reads pieces as long as they have the usual form; returns where the first other field begins.

    Nearly every piece is `0a n 0a m text 15 score` with an optional `18 type` and lengths below 128; reading these
    without the general machinery takes a quarter of the time.
    """
    at, last = 0, len(data) - 4
    pieces, types, type_at, score_at = model.pieces, model.types, model.type_at, model.score_at
    while at < last and data[at] == 0x0A and data[at + 2] == 0x0A and len(pieces) <= MAX_TOKENS:
        end, text_end = at + 2 + data[at + 1], at + 4 + data[at + 3]
        rest = end - text_end
        # A length of 128 or more has a second byte, which `rest` would misread; 0x15 stands behind the text.
        if data[at + 1] > 127 or end > len(data) or rest not in (5, 7) or data[text_end] != 0x15:
            break
        kind = data[end - 1] if rest == 7 else NORMAL
        if not 1 <= kind <= BYTE or (rest == 7 and data[end - 2] != 0x18):
            break
        try:
            pieces.append(data[at + 4 : text_end].decode())
        except UnicodeDecodeError:
            raise _damaged(f"piece {len(pieces)} is not UTF-8", at, source) from None
        types.append(kind)
        type_at.append(end - 1 if rest == 7 else -1)
        score_at.append(text_end + 1)
        at = end
    return at


def _read_settings(model: Model, data: bytes, sections: dict[int, tuple[int, int]], source: str) -> None:
    """Fills in what the trainer, normalizer and denormalizer sections say."""
    for field, wire, start, end in _fields(data, *sections.get(2, (0, 0)), source):
        if field == 3 and wire == 0:
            model.kind = _varint_at(data, start, end)
        elif field == 24 and wire == 0:
            model.whitespace_as_suffix = bool(_varint_at(data, start, end))
        elif field == 35 and wire == 0:
            model.byte_fallback = bool(_varint_at(data, start, end))
        elif field in (46, 47) and wire == 2:
            name = _text(data, start, end, "a piece name", source)
            model.bos_piece, model.eos_piece = (
                (name, model.eos_piece) if field == 46 else (model.bos_piece, name)
            )
    for field, wire, start, end in _fields(data, *sections.get(3, (0, 0)), source):
        if field == 3 and wire == 0:
            model.add_dummy_prefix = bool(_varint_at(data, start, end))
        elif field == 4 and wire == 0:
            model.remove_extra_whitespaces = bool(_varint_at(data, start, end))
        elif field == 2 and wire == 2:
            model.has_character_map = end > start
        elif field == 5 and wire == 0:
            model.escape_whitespaces = bool(_varint_at(data, start, end))
    rewrites = any(
        field == 2 and wire == 2 and end > start
        for field, wire, start, end in _fields(data, *sections.get(5, (0, 0)), source)
    )
    if model.kind not in _MODEL_KINDS:
        raise TokenizerError(
            f"the SentencePiece model type {model.kind} is unknown", where=source, fix="Download it again."
        )
    if rewrites:
        raise TokenizerError(
            "the SentencePiece model rewrites text after decoding, so no token has fixed bytes",
            where=f"{source}, denormalizer_spec",
            fix="Train or export the model without a denormalization rule.",
        )


def _read_piece(data: bytes, start: int, end: int, model: Model, source: str) -> None:
    """Adds one piece of any form: text (field 1) and type (field 3)."""
    number, text, kind, at, score = len(model.pieces), "", NORMAL, -1, -1
    for field, wire, first, last in _fields(data, start, end, source):
        if field == 1 and wire == 2:
            text = _text(data, first, last, f"piece {number}", source)
        elif field == 3 and wire == 0:
            kind, at = _varint_at(data, first, last), first if last - first == 1 else -1
        elif field == 2 and wire == 5:
            score = first
    if not 1 <= kind <= BYTE:
        raise _damaged(f"piece {number} has the unknown type {kind}", start, source)
    model.pieces.append(text)
    model.types.append(kind)
    model.type_at.append(at)
    model.score_at.append(score)


def _fields(data: bytes, start: int, end: int, source: str) -> Iterator[tuple[int, int, int, int]]:
    """Field number, wire type, and the span of the value, for every field of the message in `data[start:end]`."""
    at = start
    while at < end:
        tag, at = _varint(data, at, end, source)
        field, wire = tag >> 3, tag & 7
        first = at
        if wire == 0:
            _, at = _varint(data, at, end, source)
        elif wire == 1:
            at += 8
        elif wire == 5:
            at += 4
        elif wire == 2:
            length, first = _varint(data, at, end, source)
            at = first + length
        else:
            raise _damaged(f"field {field} has wire type {wire}", first, source)
        if at > end or field == 0:
            raise _damaged("a field ends beyond its message", first, source)
        yield field, wire, first, at


def _varint(data: bytes, at: int, end: int, source: str) -> tuple[int, int]:
    """The variable-length integer at `at`, and the offset behind it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _damaged("a number is cut off", at, source)


def _varint_at(data: bytes, start: int, end: int) -> int:
    """The integer in `data[start:end]`, whose extent `_fields` has checked."""
    return sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(data[start:end]))


def _text(data: bytes, start: int, end: int, what: str, source: str) -> str:
    try:
        return data[start:end].decode("utf-8")
    except UnicodeDecodeError:
        raise _damaged(f"{what} is not UTF-8", start, source) from None


def _damaged(what: str, at: int, source: str) -> TokenizerError:
    return TokenizerError(
        f"the SentencePiece model is damaged or cut off: {what}",
        where=f"{source}, byte {at:,}",
        fix="Download it again.",
    )
