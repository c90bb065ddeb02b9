"""Hugging Face tokenizers: `tokenizer.json`, `tokenizers.Tokenizer` and `transformers` fast tokenizers."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers.decoders import Decoder, read_decoder
from fsa_compile.tokenizers.markup_names import Asked, is_markup
from fsa_compile.tokenizers.tokenizer import Tokenizer, encoded, require
from fsa_compile.vocabulary.vocabulary import MAX_TOKENS, Vocabulary, listed_ids

_MODEL_TYPES = ("BPE", "Unigram", "WordLevel", "WordPiece")


@dataclasses.dataclass(kw_only=True)
class _Names:
    """Token names by id, and which ids are never text."""

    by_id: list[str | None]
    special: dict[str, int]


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` package; `names` has the name of each id, None for ids that are never text."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        kind: str,
        spec: Mapping[str, Any],
        decoder: Decoder,
        names: Sequence[str | None],
        source: str,
    ) -> None:
        self.vocabulary, self.kind = vocabulary, kind
        self._spec, self._decoder, self._names, self._source = spec, decoder, names, source

    @property
    def spec(self) -> Mapping[str, Any]:
        """The parsed `tokenizer.json`."""
        return self._spec

    def encode(self, text: str) -> list[int]:
        return encoded(text, lambda: self._encoder, self._source)

    def decode(self, ids: Iterable[int]) -> str:
        ids = listed_ids(ids)
        raw = self.vocabulary.decode_bytes(ids)
        if self._decoder.drops_first == "space":
            raw = raw.removeprefix(b" ")
        elif self._decoder.drops_first == "marks":
            first = next((i for i in ids if self.vocabulary.decode_bytes([i])), None)
            name = None if first is None else self._names[first]
            if name is not None:
                whole = self.vocabulary.tokens[first] if first is not None else b""
                raw = self._decoder.token_bytes([name.replace(self._decoder.mark, "")])[0] + raw[len(whole) :]
        return raw.decode("utf-8", errors="replace")

    @functools.cached_property
    def _encoder(self) -> Any:
        tokenizers = require("tokenizers")
        _check_merges(self._spec["model"], self._source)
        spec, renamed = _without_special(self._spec, self.vocabulary.special)
        try:
            encoder = tokenizers.Tokenizer.from_str(json.dumps(spec))
        except Exception as error:
            raise TokenizerError(
                f"tokenizers does not accept this tokenizer.json ({error})",
                where=self._source,
                fix="Update the package, or export the tokenizer again.",
            ) from error
        for token in spec.get("added_tokens") or ():
            if encoder.token_to_id(token["content"]) != token["id"]:
                raise TokenizerError(
                    f"tokenizers does not give the added token {renamed.get(token['content'], token['content'])!r} "
                    f"the id {token['id']} that the file says",
                    where=f'{self._source}, "added_tokens"',
                    fix="Added tokens must be numbered on from the model's vocabulary without gaps.",
                )
        return encoder


def load_hugging_face(
    spec: Any, *, source: str, also_stop: Iterable[int] = (), bos_id: int | None = None, **options: Any
) -> HuggingFaceTokenizer:
    """The tokenizer of a parsed `tokenizer.json`.

    Added tokens are text unless they are special, chat markup, or written differently by different versions of the
    package; ids of all these are never text.

    Args:
      spec: the parsed file.
      source: its name, for messages.
      also_stop: end-of-text ids from files or objects beside the tokenizer.
      bos_id: id that starts a text, or None for the special name known to do so.
      **options: those of `Asked`.

    Raises:
      TokenizerError: a missing or wrong part, or a decoder without exact bytes per token.
    """
    model = _model_of(spec, source)
    kind = _model_type(model, source)
    _check_pairs(model, kind, source)
    decoder = read_decoder(spec.get("decoder"), source)
    names = _model_names(model, kind, source)
    added = _checked_added(spec.get("added_tokens") or [], source)
    _add_tokens(names, added, _ambiguous(spec, added, decoder, source))
    asked = Asked(**options)
    _mark_special(names, model, kind, asked, source)
    also_stop = [i for i in also_stop if 0 <= i < len(names.by_id)]
    for extra in (*also_stop, *(() if bos_id is None else (bos_id,))):
        name = names.by_id[extra] if 0 <= extra < len(names.by_id) else None
        if name is not None:
            names.special[name], names.by_id[extra] = extra, None
    vocabulary = asked.vocabulary(_token_bytes(names.by_id, decoder, source), names.special, also_stop, bos_id)
    kind = f"huggingface-{kind.lower()}"
    return HuggingFaceTokenizer(
        vocabulary, kind=kind, spec=spec, decoder=decoder, names=names.by_id, source=source
    )


def _model_of(spec: Any, source: str) -> dict[str, Any]:
    """The model in a parsed `tokenizer.json`."""
    model = spec.get("model") if isinstance(spec, dict) else None
    if not isinstance(model, dict):
        raise TokenizerError(
            'the JSON file has no "model", so it is no tokenizer.json',
            where=source,
            fix="Give the tokenizer.json that `tokenizers` writes, or the folder it lies in.",
        )
    return model


def from_object(tokenizer: Any, **options: Any) -> HuggingFaceTokenizer:
    """The tokenizer of a `tokenizers.Tokenizer` as it is now; options are those of `load_hugging_face`, without `source`.

    Raises:
      TokenizerError: the object cannot be written as JSON, or is refused by `load_hugging_face`.
    """
    source = f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__} object"
    try:
        text = tokenizer.to_str()
    except Exception as error:
        raise TokenizerError(
            f"the tokenizer cannot be written as JSON ({error})",
            where=source,
            fix="Components written in Python have no exact description; use the package's own.",
        ) from error
    return load_hugging_face(json.loads(text), source=source, **options)


def from_transformers(tokenizer: Any, **options: Any) -> HuggingFaceTokenizer:
    """The tokenizer of a `transformers` fast tokenizer, recognised by its `backend_tokenizer`, as `from_object` makes it; its
    stop ids include the object's `eos_token_id`."""
    eos, bos = getattr(tokenizer, "eos_token_id", None), getattr(tokenizer, "bos_token_id", None)
    also_stop = [] if eos is None else list(eos) if isinstance(eos, (list, tuple)) else [eos]
    return from_object(tokenizer.backend_tokenizer, also_stop=also_stop, bos_id=bos, **options)


def _model_type(model: dict[str, Any], source: str) -> str:
    """The model's type; files of early versions do not name it."""
    kind = model.get("type")
    if kind is None:
        kind = "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else None
    if kind not in _MODEL_TYPES:
        raise TokenizerError(
            f"the model type {kind!r} is unknown",
            where=f'{source}, "model"',
            fix=f"Known types are {', '.join(_MODEL_TYPES)}.",
        )
    return str(kind)


def _model_names(model: dict[str, Any], kind: str, source: str) -> _Names:
    """Names by id of the model's own vocabulary."""
    vocab, where = model.get("vocab"), f'{source}, "model" "vocab"'
    if kind == "Unigram":
        if not isinstance(vocab, list) or not vocab:
            raise TokenizerError("a Unigram vocabulary is not a list of [piece, score]", where=where)
        for i, entry in enumerate(vocab):
            if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
                raise TokenizerError("an entry is not [piece, score]", where=f"{where}, entry {i}")
        if len(vocab) > MAX_TOKENS:
            raise TokenizerError(f"{len(vocab):,} tokens are more than allowed ({MAX_TOKENS:,})", where=where)
        return _Names(by_id=[entry[0] for entry in vocab], special={})
    if not isinstance(vocab, dict) or not vocab:
        raise TokenizerError("the vocabulary is not a mapping from names to ids", where=where)
    return _Names(by_id=names_by_id(vocab, where), special={})


def names_by_id(vocab: Mapping[str, Any], where: str) -> list[str | None]:
    """Token names in id order, from at least one; None where no name has the id.

    Raises:
      TokenizerError: an id is no integer, absurd, or given twice.
    """
    ids = list(vocab.values())
    if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) >= MAX_TOKENS:
        wrong = next(n for n, i in vocab.items() if type(i) is not int or not 0 <= i < MAX_TOKENS)
        raise TokenizerError(
            f"the token {wrong[:40]!r} has the id {vocab[wrong]!r}",
            where=where,
            fix=f"Ids are integers from 0, below {MAX_TOKENS:,}.",
        )
    by_id: list[str | None] = [None] * (max(ids) + 1)
    for name, token_id in vocab.items():
        by_id[token_id] = name
    if len(set(ids)) < len(ids):
        twice = next(n for n, i in vocab.items() if by_id[i] != n)
        raise TokenizerError(
            f"the tokens {twice[:40]!r} and {by_id[vocab[twice]]!r} have the same id {vocab[twice]}",
            where=where,
        )
    return by_id


def _checked_added(added: Any, source: str) -> list[dict[str, Any]]:
    """The added tokens, each with a content and an id."""
    if not isinstance(added, list):
        raise TokenizerError("the added tokens are not a list", where=f'{source}, "added_tokens"')
    for i, token in enumerate(added):
        content, token_id = (
            (token.get("content"), token.get("id")) if isinstance(token, dict) else (None, None)
        )
        if not isinstance(content, str) or type(token_id) is not int or not 0 <= token_id < MAX_TOKENS:
            raise TokenizerError(
                f"an added token has the id {token_id!r} and the content {content!r}",
                where=f'{source}, "added_tokens" entry {i}',
                fix=f"It needs a name and an id from 0, below {MAX_TOKENS:,}.",
            )
    return added


def _ambiguous(
    spec: Mapping[str, Any], added: list[dict[str, Any]], decoder: Decoder, source: str
) -> frozenset[str]:
    """Added tokens that different versions of `tokenizers` decode to different texts.

    Up to 0.22 a token marked "normalized" is decoded from its content, later from its normalized content: with
    Llama 2's normalizer, which prepends a space, `<b>` writes "<b>" or " <b>".
    """
    doubtful = [t["content"] for t in added if t.get("normalized") and not t.get("special")]
    if not doubtful or spec.get("normalizer") is None:
        return frozenset()
    bare = {"version": "1.0", "normalizer": spec["normalizer"], "added_tokens": []}
    bare |= dict.fromkeys(("truncation", "padding", "pre_tokenizer", "post_processor", "decoder"))
    bare["model"] = {"type": "BPE", "vocab": {}, "merges": []}
    try:
        normalizer = require("tokenizers").Tokenizer.from_str(json.dumps(bare)).normalizer
        normalized = [normalizer.normalize_str(content) for content in doubtful]
    except TokenizerError:
        raise
    except Exception as error:
        raise TokenizerError(
            f"tokenizers does not accept this normalizer ({error})",
            where=f'{source}, "normalizer"',
            fix="Update the package, or export the tokenizer again.",
        ) from error
    pairs = zip(doubtful, decoder.token_bytes(doubtful), decoder.token_bytes(normalized))
    return frozenset(content for content, old, new in pairs if old != new)


def _add_tokens(names: _Names, added: list[dict[str, Any]], never: frozenset[str]) -> None:
    """Adds the tokens that are cut out of a text before the model sees it; those in `never` are no text."""
    for token in added:
        content, token_id = token["content"], token["id"]
        names.by_id.extend([None] * (token_id + 1 - len(names.by_id)))
        if token.get("special") or is_markup(content) or content in never:
            names.by_id[token_id], names.special[content] = None, token_id
        else:
            names.by_id[token_id] = content


def _mark_special(names: _Names, model: dict[str, Any], kind: str, asked: Asked, source: str) -> None:
    """Takes the unknown token, and what the caller names, out of the text."""
    unknown = model.get("unk_id") if kind == "Unigram" else model.get("unk_token")
    if kind == "Unigram" and type(unknown) is int and 0 <= unknown < len(names.by_id):
        unknown = names.by_id[unknown]
    wanted = asked.special(0).keys() | ({unknown} if isinstance(unknown, str) else set())
    ids = {**names.special, **{name: i for i, name in enumerate(names.by_id) if name in wanted}} if wanted else {}
    found = asked.special_among(ids, source)
    if isinstance(unknown, str) and unknown in ids:
        found[unknown] = ids[unknown]
    for name, token_id in found.items():
        names.by_id[token_id], names.special[name] = None, token_id


def _token_bytes(by_id: list[str | None], decoder: Decoder, source: str) -> list[bytes]:
    """Bytes per id; nothing for ids without a name or with a special one."""
    known = [(i, name) for i, name in enumerate(by_id) if name is not None]
    tokens = [b""] * len(by_id)
    try:
        written = decoder.token_bytes([name for _, name in known])
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the token {error.object!r} holds a lone surrogate, which no text has",
            where=f'{source}, "vocab"',
            fix="The file is damaged: export it again.",
        ) from None
    for (i, _), raw in zip(known, written):
        tokens[i] = raw
    return tokens


def _without_special(
    spec: Mapping[str, Any], special: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, str]]:
    """A description whose encoder never matches a special token by its printed name, and new name -> old name.

    Special tokens get names that no text has: the model and the added tokens both look names up in the text, and
    merges that spell one are left out. Added tokens stay, since their number decides the ids of those behind them.
    """
    fresh = {name: f"\U0010fffe\U0010ffff\U000ffffe special {i} \U000fffff" for name, i in special.items()}
    model = dict(spec["model"])
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {fresh.get(name, name): i for name, i in vocab.items()}
    else:
        model["vocab"] = [[fresh.get(entry[0], entry[0]), *entry[1:]] for entry in vocab]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = fresh.get(model["unk_token"], model["unk_token"])
    if isinstance(model.get("merges"), list):
        model["merges"] = [m for m in model["merges"] if "".join(_parts(m)) not in fresh]
    added = [
        {**token, "content": fresh.get(token["content"], token["content"])}
        for token in spec.get("added_tokens") or ()
    ]
    kept = {
        key: value for key, value in spec.items() if key not in ("post_processor", "truncation", "padding")
    }
    renamed = {new: old for old, new in fresh.items()}
    return {**kept, "post_processor": None, "model": model, "added_tokens": added}, renamed


def _check_pairs(model: Mapping[str, Any], kind: str, source: str) -> None:
    """Raises for merges that are no list of pairs of names, and for their lack."""
    if kind != "BPE" and "merges" not in model:
        return
    merges, where = model.get("merges"), f'{source}, "model" "merges"'
    if not isinstance(merges, list):
        what = f"the merges are {type(merges).__name__}, not a list"
        raise TokenizerError(what, where=where, fix="Export the tokenizer again.")
    for number, merge in enumerate(merges, 1):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(parts, list) and len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], str)):
            what = f"the merge {str(merge)[:60]!r} is no pair of names"
            raise TokenizerError(what, where=f"{where} entry {number}", fix="Export the tokenizer again.")


def _check_merges(model: Mapping[str, Any], source: str) -> None:
    """Raises for merges that do not fit the prefix of continuing pieces.

    The package cuts the prefix off the right part of every merge unseen, and ends the whole process where it cannot.
    """
    prefix = model.get("continuing_subword_prefix")
    if not prefix or not isinstance(model.get("merges"), list):
        return
    for number, merge in enumerate(model["merges"], 1):
        _, right = _parts(merge)
        if not isinstance(prefix, str) or not right.startswith(prefix):
            raise TokenizerError(
                f"the right part of a merge does not begin with the continuing_subword_prefix {prefix!r}",
                where=f'{source}, "model" "merges" entry {number}: {str(merge)[:60]}',
                fix="Export the tokenizer again.",
            )


def _parts(merge: str | list[str]) -> list[str]:
    """Both parts of a merge; older files write it as one string with a space."""
    return merge.split(" ") if isinstance(merge, str) else merge
