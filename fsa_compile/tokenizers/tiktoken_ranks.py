"""tiktoken: rank files (one `base64 rank` per line) and `tiktoken.Encoding` objects."""

from __future__ import annotations

import binascii
import functools
import hashlib
import unicodedata
from collections.abc import Mapping
from typing import Any

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.families import find_family
from fsa_compile.tokenizers.markup_names import Asked
from fsa_compile.tokenizers.tokenizer import Tokenizer, checked_text, require
from fsa_compile.vocabulary.vocabulary import MAX_TOKENS, Vocabulary


class TiktokenTokenizer(Tokenizer):
    """Byte-pair ranks with a splitting pattern.

    Args:
      encoding: a `tiktoken.Encoding`, or None to build one from the other arguments when it is first needed.
    """

    kind = "tiktoken"

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        encoding: Any = None,
        pattern: str | None = None,
        unicode_form: str | None = None,
        source: str = "",
    ) -> None:
        self.vocabulary = vocabulary
        self._given, self._pattern, self._form, self._source = encoding, pattern, unicode_form, source

    @property
    def pattern(self) -> str | None:
        """The splitting pattern, or None when it is not known."""
        return self._pattern if self._given is None else str(self._given._pat_str)

    @property
    def unicode_form(self) -> str | None:
        """The normal form a text is brought to first, or None."""
        return self._form

    def encode(self, text: str) -> list[int]:
        text = checked_text(text)
        if self._form is not None:
            text = unicodedata.normalize(self._form, text)  # type: ignore[arg-type]
        try:
            return list(self._encoding.encode_ordinary(text))
        except TokenizerError:
            raise
        except BaseException as error:
            # The encoder's regular-expression engine reports an exhausted backtracking stack as a Rust panic, which
            # derives from BaseException.
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
                raise
            raise TokenizerError(
                f"tiktoken cannot encode this text of {len(text):,} characters ({error})",
                where=self._source,
                fix="Encode it in parts: very long runs of white space are beyond its splitter.",
            ) from error

    @functools.cached_property
    def _encoding(self) -> Any:
        if self._given is not None:
            return self._given
        if self._pattern is None:
            raise TokenizerError(
                "a rank file does not say how a text is cut into pieces, and this one is of no known family",
                where=self._source,
                fix='Give load_tokenizer the pattern its model was trained with: pattern=r"…" (the vocabulary '
                "and all compilation work without it; only encode() needs it).",
            )
        vocabulary, tiktoken = self.vocabulary, require("tiktoken")
        try:
            return tiktoken.Encoding(
                name="constrax",
                pat_str=self._pattern,
                mergeable_ranks={token: i for i, token in enumerate(vocabulary.tokens) if token},
                special_tokens=dict(vocabulary.special),
            )
        except ValueError as error:
            raise TokenizerError(
                f"tiktoken does not accept this splitting pattern ({error})",
                where=f"pattern={self._pattern!r}",
            ) from error


def load_ranks(data: bytes, *, source: str, pattern: str | None = None, **options: Any) -> TiktokenTokenizer:
    """The tokenizer of the content of a tiktoken rank file; options are those of `Asked`.

    Pattern and special tokens that are not given are those of a known family; without a pattern `encode` is unavailable.

    Raises:
      TokenizerError: a line that is no rank, a rank given twice, a gap, a token given twice.
    """
    by_rank = _parse(data, source)
    family = find_family(hashlib.sha256(data).hexdigest())
    asked = Asked(**options)
    special = asked.special(len(by_rank))
    if family is not None:
        pattern = family.pattern if pattern is None else pattern
        special = family.special if asked.special_tokens is None else special
    return TiktokenTokenizer(
        asked.vocabulary(_lay_out(by_rank, special, source), special),
        pattern=pattern,
        unicode_form=None if family is None else family.unicode_form,
        source=source,
    )


def from_encoding(encoding: Any, **options: Any) -> TiktokenTokenizer:
    """The tokenizer of a `tiktoken.Encoding` object; options are those of `Asked`, whose special tokens must agree with it.

    Raises:
      TokenizerError: the object is too large or contradicts `special_tokens`.
    """
    source = f"tiktoken.Encoding {encoding.name!r}"
    size = encoding.n_vocab
    if size > MAX_TOKENS:
        raise TokenizerError(f"{size:,} tokens are more than allowed ({MAX_TOKENS:,})", where=source)
    special = {name: encoding.encode_single_token(name) for name in sorted(encoding.special_tokens_set)}
    asked = Asked(**options)
    for name, token_id in asked.special(size - len(special)).items():
        if special.get(name) != token_id:
            raise TokenizerError(
                f"special_tokens gives {name!r} the id {token_id}, but the encoding has {special.get(name)}",
                where=source,
                fix="Leave special_tokens out: the object knows its own.",
            )
    tokens, never_text = [], set(special.values())
    for i in range(size):
        try:
            tokens.append(b"" if i in never_text else encoding.decode_single_token_bytes(i))
        except KeyError:  # published encodings leave ids unused between the ranks and the special tokens
            tokens.append(b"")
    return TiktokenTokenizer(asked.vocabulary(tokens, special), encoding=encoding, source=source)


def _parse(data: bytes, source: str) -> dict[int, bytes]:
    """rank -> token, in the order of the file."""
    count = data.count(b"\n")
    if count > MAX_TOKENS:
        raise TokenizerError(f"{count:,} lines are more tokens than allowed ({MAX_TOKENS:,})", where=source)
    lines = data.rstrip().split(b"\n")
    decode = functools.partial(binascii.a2b_base64, strict_mode=True)
    try:
        pairs = [(int(rank), decode(token)) for token, rank in map(bytes.split, lines)]
    except ValueError:
        pairs = [_parse_line(line, number, source) for number, line in enumerate(lines, 1) if line.strip()]
    by_rank = dict(pairs)
    if len(by_rank) < len(pairs) or len(set(by_rank.values())) < len(pairs):
        raise _duplicate(lines, source)
    if min(by_rank, default=0) < 0 or not by_rank:
        raise TokenizerError("the rank file holds no ranks from 0 up", where=source, fix="Download it again.")
    return by_rank


def _parse_line(line: bytes, number: int, source: str) -> tuple[int, bytes]:
    """rank and token of one line, or an error that names the line."""
    fields = line.split()
    try:
        token, rank = fields
        parsed = int(rank), binascii.a2b_base64(token, strict_mode=True)
        if not parsed[1]:
            raise ValueError("the token is empty")
    except ValueError as error:
        reason = str(error) if len(fields) == 2 else f"it has {len(fields)} fields, not 2"
        raise TokenizerError(
            f"a line is not a base64 token and its rank ({reason})",
            where=f"{source}, line {number}: {line[:60].decode('utf-8', 'replace')!r}",
            fix="The file is damaged or cut off: download it again.",
        ) from None
    return parsed


def _duplicate(lines: list[bytes], source: str) -> TokenizerError:
    """The error for the first line that repeats a rank or a token."""
    seen: dict[int | bytes, int] = {}
    for number, line in enumerate(lines, 1):
        for key in _parse_line(line, number, source) if line.strip() else ():
            if key in seen:
                what = f"rank {key}" if isinstance(key, int) else f"the token {key[:40]!r}"
                return TokenizerError(
                    f"{what} is given twice",
                    where=f"{source}, line {number} (first in line {seen[key]})",
                    fix="The file is damaged: download it again.",
                )
            seen[key] = number
    raise AssertionError("called without a duplicate")


def _lay_out(by_rank: dict[int, bytes], special: Mapping[str, int], source: str) -> list[bytes]:
    """Bytes per id: ranks are ids, special ids may fill gaps between ranks or follow them."""
    last_rank, reserved = max(by_rank), set(special.values())
    if last_rank >= len(by_rank) + len(reserved):
        missing = next(r for r in range(last_rank) if r not in by_rank and r not in reserved)
        raise _gap(missing, source)
    for name, token_id in special.items():
        if token_id in by_rank:
            raise TokenizerError(
                f"special_tokens gives {name!r} the id {token_id}, which is the rank of {by_rank[token_id][:40]!r}",
                where=source,
                fix=f"Ranks end at {last_rank}; number special tokens from {last_rank + 1}.",
            )
    size = max(last_rank, *reserved, 0) + 1
    if size > MAX_TOKENS:
        raise TokenizerError(
            f"a special id of {size - 1:,} is larger than allowed ({MAX_TOKENS:,})", where=source
        )
    tokens = [by_rank.get(i, b"") for i in range(size)]
    for i in range(last_rank):
        if not tokens[i] and i not in reserved:
            raise _gap(i, source)
    return tokens


def _gap(rank: int, source: str) -> TokenizerError:
    return TokenizerError(
        f"rank {rank} is missing",
        where=source,
        fix="Name the special token that stands there with special_tokens={name: id}; if none does, the file is "
        "damaged.",
    )
