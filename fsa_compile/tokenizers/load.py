"""`load_tokenizer`: finds out by content which format a path or object is, and hands it to that format's module."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsa_compile.errors import TokenizerError
from fsa_compile.inputs.guard import guarded
from fsa_compile.tokenizers import gpt2, hugging_face, sentence_piece
from fsa_compile.tokenizers import tiktoken_ranks as ranks
from fsa_compile.tokenizers.explicit import ExplicitTokenizer
from fsa_compile.tokenizers.markup_names import Asked
from fsa_compile.tokenizers.tokenizer import MAX_FILE_BYTES, Tokenizer, read_file
from fsa_compile.vocabulary.vocabulary import Vocabulary

_SNIFFED = 4096
_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+=* +\d+\s*")
_MERGE_LINE = re.compile(rb"[^\s]+ [^\s]+\s*")
_FORMATS = (
    "a SentencePiece .model, a tiktoken rank file, a Hugging Face tokenizer.json, or GPT-2's encoder.json with "
    "vocab.bpe"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(Asked):
    """What the caller of `load_tokenizer` added."""

    pattern: str | None

    def common(self) -> dict[str, Any]:
        """The options every format takes."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(Asked)}

    def refuse_pattern(self, kind: str) -> None:
        """Raises when a pattern was given to a format that has its own."""
        if self.pattern is not None:
            raise TokenizerError(
                f"pattern was given, but {kind} has its own way of cutting a text",
                fix="Leave pattern out: it belongs to rank files and to encoder.json with vocab.bpe.",
            )


@guarded
def load_tokenizer(
    path_or_object: Any,
    *,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | Sequence[str] | None = None,
    stop_ids: Iterable[int | str] | None = None,
    logits_width: int | None = None,
) -> Tokenizer:
    """The tokenizer of a file, a folder or an object, whatever its format and name.

    Files: a SentencePiece model, a tiktoken rank file, a Hugging Face `tokenizer.json`, GPT-2's `encoder.json` and
    `vocab.bpe` (either of them), or a folder that holds one of these. Objects: `SentencePieceProcessor`,
    `tiktoken.Encoding`, `tokenizers.Tokenizer`, a fast tokenizer of `transformers`, a `Vocabulary`, or a list of
    bytes, one per id.

    Args:
      path_or_object: the file, folder or object.
      pattern: regular expression that cuts a text into pieces before merging; for files that do not hold one and are
        of no known family. Only `encode` needs it.
      special_tokens: printed name -> id of ids that are not text, or just names. For a rank file the names are
        numbered on from the last rank; elsewhere they must be tokens of the file.
      stop_ids: ids or printed names after which a text is over; None takes those the format or the names say.
      logits_width: number of logits of the model, when larger than the vocabulary.

    Returns:
      The tokenizer: `encode`, `decode`, `vocabulary`, `kind`.

    Raises:
      TokenizerError: nothing there, no known format, a damaged file, or a tokenizer whose tokens have no exact bytes.

    Examples:
      >>> load_tokenizer([b"a", b"b", b"ab"]).encode("aab")
      [0, 2]
    """
    if pattern is not None and not isinstance(pattern, str):
        raise TokenizerError(f"pattern is {type(pattern).__name__}, not str")
    options = _Options(
        pattern=pattern, special_tokens=special_tokens, stop_ids=stop_ids, logits_width=logits_width
    )
    if isinstance(path_or_object, (str, os.PathLike)):
        path = Path(path_or_object)
        try:
            tokenizer = _from_folder(path, options) if os.path.isdir(path) else _from_file(path, options)
        except TokenizerError as error:
            if str(path) in error.where:
                raise
            where = f"{path}, {error.where}" if error.where else str(path)
            raise TokenizerError(error.what, where=where, fix=error.fix) from error
    else:
        tokenizer = _from_object(path_or_object, options)
    if tokenizer is not path_or_object:
        tokenizer.origin = path_or_object
    return tokenizer


def _from_object(value: Any, options: _Options) -> Tokenizer:
    options.refuse_pattern(f"an object of type {type(value).__name__}")
    if isinstance(value, Tokenizer):
        value = _unchanged(value, options)
        if isinstance(value, Tokenizer):
            return value
    bases = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(value).__mro__}
    if "tiktoken.Encoding" in bases:
        return ranks.from_encoding(value, **options.common())
    if bases & {"tokenizers.Tokenizer", "tokenizers.BaseTokenizer"}:
        return hugging_face.from_object(value, **options.common())
    if "sentencepiece.SentencePieceProcessor" in bases:
        return _from_processor(value, options)
    if hasattr(value, "backend_tokenizer"):
        return hugging_face.from_transformers(value, **options.common())
    if isinstance(value, Vocabulary):
        return ExplicitTokenizer(_with_options(value, options))
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        special = options.special(len(value))
        stops = options.stops(special, ())
        tokens = list(value)
        if special and not isinstance(options.special_tokens, Mapping):
            tokens += [b""] * len(special)
        return ExplicitTokenizer(
            Vocabulary.from_tokens(tokens, special=special, stop_ids=stops, logits_width=options.logits_width)
        )
    raise TokenizerError(
        f"an object of type {type(value).__module__}.{type(value).__qualname__} is no known tokenizer",
        fix="Give a path, a SentencePieceProcessor, a tiktoken.Encoding, a tokenizers.Tokenizer, a fast transformers "
        "tokenizer, a Vocabulary, or a list of bytes.",
    )


def _unchanged(value: Tokenizer, options: _Options) -> Tokenizer | Vocabulary:
    """A tokenizer given where one is made: itself, unless options ask for another vocabulary."""
    if options.common() == dict.fromkeys(options.common()):
        return value
    raise TokenizerError(
        "options were given together with a tokenizer that is already loaded",
        fix="Give them when it is loaded, or use tokenizer.vocabulary.with_logits_width(...).",
    )


def _with_options(vocabulary: Vocabulary, options: _Options) -> Vocabulary:
    special = {**vocabulary.special, **options.special(vocabulary.size)}
    return Vocabulary(
        tokens=vocabulary.tokens,
        special=special,
        stop_ids=options.stops(special, vocabulary.stop_ids),
        bos_id=vocabulary.bos_id,
        logits_width=vocabulary.logits_width if options.logits_width is None else options.logits_width,
    )


def _from_processor(value: Any, options: _Options) -> Tokenizer:
    try:
        data = value.serialized_model_proto()
    except RuntimeError as error:
        raise TokenizerError(
            f"the SentencePieceProcessor holds no model ({error})", fix="Load a model into it first."
        ) from error
    if not data:
        raise TokenizerError("the SentencePieceProcessor holds no model", fix="Load a model into it first.")
    return sentence_piece.load_sentence_piece(
        data, source="SentencePieceProcessor object", **options.common()
    )


def _from_file(path: Path, options: _Options) -> Tokenizer:
    data = read_file(path)
    kind = _sniff(data)
    if kind == "sentencepiece":
        options.refuse_pattern("a SentencePiece model")
        return sentence_piece.load_sentence_piece(data, source=str(path), **options.common())
    if kind == "ranks":
        return ranks.load_ranks(data, source=str(path), pattern=options.pattern, **options.common())
    if kind == "json":
        spec = _parse_json(data, str(path))
        if not _is_encoder(spec):
            options.refuse_pattern("a tokenizer.json")
            return hugging_face.load_hugging_face(spec, source=str(path), **options.common())
        return _from_gpt2_pair(path, options, encoder=spec, merges=None)
    if kind == "merges":
        return _from_gpt2_pair(path, options, encoder=None, merges=data)
    raise _unrecognised(data, str(path))


def _from_folder(folder: Path, options: _Options) -> Tokenizer:
    """The one tokenizer in a folder: tokenizer.json first, then SentencePiece, ranks, GPT-2's pair."""
    found = _survey(folder)
    specs, damaged = _parse_all(found["json"])
    if tokenizers := [
        p for p, s in specs.items() if isinstance(s, dict) and isinstance(s.get("model"), dict)
    ]:
        path = _only(tokenizers, folder)
        options.refuse_pattern("a tokenizer.json")
        stops, bos = _beside(specs, path)
        return hugging_face.load_hugging_face(
            specs[path], source=str(path), also_stop=stops, bos_id=bos, **options.common()
        )
    for kind in ("sentencepiece", "ranks"):
        if found[kind]:
            return _from_file(_only(found[kind], folder), options)
    encoders = [path for path, spec in specs.items() if _is_encoder(spec)]
    if encoders or found["merges"]:
        return _from_gpt2_pair(_only(encoders or found["merges"], folder), options, encoder=None, merges=None)
    if damaged is not None:
        raise damaged
    raise TokenizerError(
        "no file in this folder is a tokenizer", where=str(folder), fix=f"It should hold {_FORMATS}."
    )


def _parse_all(paths: Iterable[Path]) -> tuple[dict[Path, Any], TokenizerError | None]:
    """The content of the JSON files that can be read, and the error of one that cannot.

    A damaged tokenizer.json is an error at once: what lies beside it could have other added tokens.
    """
    specs: dict[Path, Any] = {}
    damaged: TokenizerError | None = None
    for path in paths:
        try:
            specs[path] = _parse_json(read_file(path), str(path))
        except TokenizerError as error:
            if path.name == "tokenizer.json":
                raise
            damaged = damaged or error
    return specs, damaged


def _survey(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder by the format their beginning shows; files too large to be read are left out."""
    found: dict[str, list[Path]] = {"sentencepiece": [], "ranks": [], "json": [], "merges": []}
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise TokenizerError(f"the folder cannot be read ({error.strerror})", where=str(folder)) from error
    for path in paths:
        try:
            if not 0 < path.stat().st_size <= MAX_FILE_BYTES:
                continue
            with open(path, "rb") as file:
                start = file.read(_SNIFFED)
        except OSError:
            continue
        kind = _sniff(start)
        if kind:
            found[kind].append(path)
    return found


def _from_gpt2_pair(path: Path, options: _Options, *, encoder: Any, merges: bytes | None) -> Tokenizer:
    """The tokenizer of encoder.json and vocab.bpe, of which `path` is one (and perhaps read already)."""
    folder = path.parent
    found = _survey(folder)
    if encoder is None:
        candidates, damaged = _parse_all(found["json"])
        encoders = {p: spec for p, spec in candidates.items() if _is_encoder(spec)}
        if not encoders:
            raise damaged or TokenizerError(
                "the merges have no vocabulary beside them",
                where=str(path),
                fix="Put the encoder.json that belongs to them into the same folder.",
            )
        encoder = encoders[_only(list(encoders), folder)]
    if merges is None:
        if not found["merges"]:
            raise TokenizerError(
                "the vocabulary has no merges beside it, and without them the special tokens are not known",
                where=str(path),
                fix="Put the vocab.bpe (merges.txt) that belongs to it into the same folder.",
            )
        merges = read_file(_only(found["merges"], folder))
    return gpt2.load_gpt2(encoder, merges, source=str(folder), pattern=options.pattern, **options.common())


def _only(paths: list[Path], folder: Path) -> Path:
    if len(paths) == 1:
        return paths[0]
    raise TokenizerError(
        "several files of one tokenizer format lie in this folder",
        where=f"{folder}: {', '.join(path.name for path in paths[:6])}",
        fix="Give the path of the one you mean.",
    )


def _beside(specs: Mapping[Path, Any], tokenizer: Path) -> tuple[list[int], int | None]:
    """Stop ids and start id from the model's other settings files in the folder."""
    spec = specs[tokenizer]
    ids = {_content(t): t["id"] for t in _dicts(spec.get("added_tokens")) if type(t.get("id")) is int}
    stops: list[int] = []
    bos: int | None = None
    for path, other in specs.items():
        if not isinstance(other, dict) or path == tokenizer:
            continue
        if path.name == "generation_config.json":
            eos = other.get("eos_token_id")
            stops += [i for i in (eos if isinstance(eos, list) else [eos]) if type(i) is int]
        elif path.name == "tokenizer_config.json":
            named = {key: _content(other.get(f"{key}_token")) for key in ("eos", "bos")}
            stops += [ids[named["eos"]]] if named["eos"] in ids else []
            bos = ids.get(named["bos"], bos)
    return stops, bos


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _content(token: Any) -> str:
    """The name of a token that is written as a string or as an object."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _is_encoder(spec: Any) -> bool:
    """Whether parsed JSON is an encoder.json: names to integers from 0, printed bytes among the names."""
    if not isinstance(spec, dict) or set(map(type, spec.values())) != {int}:
        return False
    return 0 in spec.values() and any(len(name) == 1 for name in spec)


def _parse_json(data: bytes, source: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TokenizerError(
            "the JSON file is not UTF-8", where=f"{source}, byte {error.start:,}", fix="Download it again."
        ) from None
    except json.JSONDecodeError as error:
        raise TokenizerError(
            f"the JSON file is damaged or cut off: {error.msg}",
            where=f"{source}, line {error.lineno}, column {error.colno}",
            fix="Download it again.",
        ) from None
    except (RecursionError, ValueError) as error:
        raise TokenizerError(f"the JSON file cannot be read ({error})", where=source) from None


def _sniff(data: bytes) -> str:
    """The format that the beginning of a file shows: "sentencepiece", "json", "ranks", "merges" or ""."""
    # A model begins with its first piece (field 1, a length), whose own fields are its text and then its score.
    if data[:1] == b"\n" and b"\n" in data[2:5] and b"\x15" in data[:300]:
        return "sentencepiece"
    text = data[:_SNIFFED].removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"{":
        return "json"
    lines = [line for line in text.split(b"\n") if line.strip()]
    complete = lines[:-1] if len(data) >= _SNIFFED and len(lines) > 1 else lines
    if not complete:
        return ""
    if _RANK_LINE.fullmatch(complete[0]):
        return "ranks"
    body = complete[1:] if complete[0].startswith(b"#version") else complete
    if complete[0].startswith(b"#version") or (
        len(body) > 3 and all(map(_MERGE_LINE.fullmatch, body)) and b"version https://" not in complete[0]
    ):
        return "merges"
    return ""


def _unrecognised(data: bytes, source: str) -> TokenizerError:
    start = data[:200].lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        return TokenizerError(
            "this is a Git LFS pointer, not the tokenizer itself", where=source, fix="Fetch it: git lfs pull"
        )
    if start.startswith((b"<!doctype", b"<html")):
        return TokenizerError(
            "this is a web page, not a tokenizer",
            where=source,
            fix="Download the raw file; a login may be needed.",
        )
    if data[:2] == b"\x1f\x8b" or data[:4] in (b"PK\x03\x04", b"\x28\xb5\x2f\xfd"):
        return TokenizerError("this file is compressed", where=source, fix="Unpack it first.")
    if data[:4] == b"GGUF":
        return TokenizerError(
            "a GGUF file is not read", where=source, fix="Give the tokenizer.json or .model it was made from."
        )
    return TokenizerError(
        "this file is in no tokenizer format that is known",
        where=f"{source}, which begins {data[:24]!r}",
        fix=f"Give {_FORMATS}.",
    )
