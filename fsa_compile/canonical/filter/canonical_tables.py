"""`CanonicalTables`: all that decides whether a token sequence is canonical for one tokenizer; made once, then read from disk."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import threading
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fsa_compile.canonical.encoder.character_classes import cache_folder, engine_version
from fsa_compile.canonical.encoder.encoder import Encoder
from fsa_compile.canonical.encoder.encoder_sources import digest_of, encoder_of
from fsa_compile.canonical.encoder.merge_trees import merge_trees
from fsa_compile.canonical.encoder.normal_form import is_normal
from fsa_compile.canonical.encoder.pair_rule import PairRule, pair_rule
from fsa_compile.canonical.encoder.splitter import Splitter, build_splitter
from fsa_compile.canonical.filter.contexts import Contexts
from fsa_compile.canonical.filter.device_rows import ModelRows, model_rows
from fsa_compile.canonical.filter.filter_trim import trimmed
from fsa_compile.canonical.filter.piece_filter import PieceFilter
from fsa_compile.canonical.filter.state_table import BLOCK, FilterTable, filter_table
from fsa_compile.canonical.filter.token_filter import NONE, START, SplitterFilter, TokenFilter
from fsa_compile.errors import ArtifactError, CallError, TokenizerError, is_whole, listed, naming, shown
from fsa_compile.inputs.files import checked_path, open_regular, replacing
from fsa_compile.tokenizers.load import load_tokenizer
from fsa_compile.tokenizers.tokenizer import Tokenizer
from fsa_compile.vocabulary.vocabulary import Vocabulary

_FORMAT = 2
_MOST_KEPT = 4
_memory: dict[str, CanonicalTables] = {}
_digests: weakref.WeakKeyDictionary[Tokenizer, str] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CanonicalTables:
    """The canonical token sequences of one tokenizer.

    A sequence is canonical when the tokenizer's encoder makes exactly it of the text it writes: of the text after a prompt, so
    that no space is put in front.

    Attributes:
      fingerprint: of the vocabulary (hex).
      identity: of the vocabulary, the encoder and the build of its regular-expression engine (hex).
      rule: which tokens may not be neighbours within a piece.
      splitter: what cuts a text into pieces, or None.
      unmerged: token → what merging makes of its bytes, for the tokens that merging does not reach.
      whole_tokens: whether such a token stands for a piece that equals it.
      byte_tokens: int32[256], tokens that spell characters without a token of their own, or None.
      characters: code points that have one, where there are `byte_tokens`, else None.
      unicode_form: normal form a text is brought to before it is encoded, or None.
      cut_pieces: int32[*], tokens that are cut out of a text before merging, the longest where one begins.
      packed: token bytes and offsets, as `Vocabulary.packed`.
    """

    fingerprint: str
    identity: str
    rule: PairRule
    splitter: Splitter | None
    unmerged: dict[int, tuple[int, ...]]
    whole_tokens: bool
    byte_tokens: np.ndarray | None
    characters: np.ndarray | None
    unicode_form: str | None
    cut_pieces: np.ndarray
    packed: tuple[np.ndarray, np.ndarray]

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.rule.vocab_size

    def canonical_pair(self, first: int, second: int) -> bool:
        """Whether two tokens may be neighbours inside one piece of a canonical sequence.

        Args:
          first, second: token ids in [0, V).

        Raises:
          TokenizerError: an id is out of range.

        Examples:
          >>> from fsa_compile.canonical.toy import toy_tables
          >>> tables = toy_tables([b"a", b"b", b"ab"], [(0, 1)])
          >>> tables.canonical_pair(1, 0), tables.canonical_pair(0, 1)
          (True, False)
        """
        self._check_ids((first, second))
        return self.rule.canonical_pair(first, second)

    def is_canonical(self, tokens: list[int]) -> bool:
        """Whether the encoder makes exactly these tokens of the text they write.

        Args:
          tokens: token ids in [0, V); special tokens, which write no text, are none of any text.

        Raises:
          TokenizerError: an id is out of range.
        """
        tokens = listed(tokens, "the list of tokens")
        self._check_ids(tokens)
        return self._is_normal(tokens) and self.filter.accepts(tokens)

    def _check_ids(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not is_whole(token, 0, self.vocab_size - 1):
                raise TokenizerError(f"token id {shown(token)} does not exist in a vocabulary of {self.vocab_size:,} ids")

    def after(self, prompt: Sequence[int]) -> tuple[int, int]:
        """Where a prompt leaves the filter: its state, and the prompt's last token (-1 for none).

        Args:
          prompt: token ids. What stands before its last special token plays no part.

        Raises:
          TokenizerError: the tokens are not the encoder's own for their text, so that nothing behind them could be.
        """
        prompt = listed(prompt, "the prompt")
        self._check_ids(prompt)
        if not prompt:
            return START, -1
        length, state, last = np.diff(self.packed[1]), START, -1
        special = [place for place, token in enumerate(prompt) if not length[token]]
        for place in range(special[-1] + 1 if special else 0, len(prompt)):
            state, last = self.filter.step(state, last, prompt[place]), prompt[place]
            if state == NONE or (place + 1 == len(prompt) and not self._is_normal(prompt[special[-1] + 1 if special else 0 :])):
                raise TokenizerError(
                    "the prompt's tokens are not the tokenizer's own for its text, so no canonical text can follow them",
                    where=f"token {place} of the prompt, id {last}",
                    fix="Encode the prompt as one text, or give only its tokens from where a new text begins.",
                )
        return state, last

    @cached_property
    def filter(self) -> TokenFilter:
        """The states a token sequence can be in, with the numbers of `filter_table`."""
        made, table = self._new_filter(), self.filter_table
        pairs = [tuple(pair) for pair in table.reading.tolist()]
        ends = itertools.pairwise(table.reading_offset.tolist())
        made.number_as(table.position.tolist(), [pairs[begin:end] for begin, end in ends])
        return made

    @cached_property
    def filter_table(self) -> FilterTable:
        """All these states as arrays."""
        length = np.diff(self.packed[1])
        return trimmed(filter_table(self._new_filter(), length == 0), self.rule, length)

    @cached_property
    def single_bytes(self) -> np.ndarray:
        """int64[V], the byte of each token of one byte, -1 for others."""
        data, offset = self.packed
        alone = np.flatnonzero(np.diff(offset) == 1)
        out = np.full(self.vocab_size, -1)
        out[alone] = data[offset[alone]]
        return out

    @cached_property
    def contexts(self) -> Contexts:
        """What may follow a token wherever it stands."""
        return Contexts(self.filter_table, self.rule, np.diff(self.packed[1]))

    def _new_filter(self) -> TokenFilter:
        if self.splitter is None:
            if self.byte_tokens is None or self.characters is None:
                raise ArtifactError("canonical tables without a splitter lack their byte tokens", fix="Make them again.")
            return PieceFilter(self.rule, self.packed, self.byte_tokens, self.characters, self.cut_pieces)
        return SplitterFilter(self.rule, self.splitter, self.packed, self.unmerged if self.whole_tokens else None)

    @cached_property
    def model_rows(self) -> ModelRows:
        """The forbidden sets as bit rows for the device; made when first asked for."""
        return model_rows(self.rule)

    def _is_normal(self, tokens: Sequence[int]) -> bool:
        """Whether the encoder takes the text of some tokens as it is, without bringing it to a normal form first."""
        if self.unicode_form is None:
            return True
        data, offset = self.packed
        return is_normal(b"".join(data[offset[t] : offset[t + 1]].tobytes() for t in tokens), self.unicode_form)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the tables to one uncompressed `.npz` file, atomically.

        Raises:
          OSError: the file cannot be written.
        """
        arrays: dict[str, Any] = _arrays(self)
        with replacing(checked_path(path, ArtifactError)) as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], vocabulary: Vocabulary | Tokenizer) -> CanonicalTables:
        """Reads tables and checks that they belong to the vocabulary.

        Raises:
          ArtifactError: what is wrong with the file, or that it belongs to another vocabulary.
        """
        vocabulary = getattr(vocabulary, "vocabulary", vocabulary)
        if not isinstance(vocabulary, Vocabulary):
            raise ArtifactError(f"the vocabulary is {shown(vocabulary)}", fix="Give the tokenizer.")
        path = checked_path(path, ArtifactError)
        try:
            with open_regular(path) as file, np.load(file, allow_pickle=False) as members:
                tables = _from_arrays({name: members[name] for name in members.files}, vocabulary)
        except FileNotFoundError as error:
            raise ArtifactError("there is no such file", where=str(path), fix="Check the path.") from error
        except Exception as error:  # NumPy and the standard library raise errors of many types for damaged files
            what = f"this is no file of canonical tables, or it is damaged ({error})"
            raise ArtifactError(what, where=str(path), fix="Make the tables again.") from error
        if tables.fingerprint != vocabulary.fingerprint:
            what = f"the canonical tables are those of vocabulary {tables.fingerprint[:12]}, not {vocabulary.fingerprint[:12]}"
            raise ArtifactError(what, where=str(path), fix="Make them for this tokenizer.")
        return tables


@naming(CallError)
def canonical_tables(tokenizer: Any) -> CanonicalTables:
    """The tables of a tokenizer, from memory, from the disk cache (`$CONSTRAX_CACHE`), or made now.

    Args:
      tokenizer: from `load_tokenizer`, or anything it takes. A `Vocabulary` alone is not enough: it has no merges.

    Raises:
      TokenizerError: no byte-pair encoder, or one whose canonical form is not decided by merges and a splitter.
      UnsupportedPatternError: its splitting pattern cannot be followed.
    """
    tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(tokenizer)
    encoder_kind = _digests.get(tokenizer)
    if encoder_kind is None:
        encoder_kind = _digests[tokenizer] = digest_of(tokenizer)
    with _lock:
        found = _memory.get(encoder_kind)
        if found is None:
            found = _cached(tokenizer, encoder_kind)
            while len(_memory) >= _MOST_KEPT:
                _memory.pop(next(iter(_memory)))
            _memory[encoder_kind] = found
    return found


def _cached(tokenizer: Tokenizer, digest: str) -> CanonicalTables:
    folder = cache_folder()
    if folder is None:
        return build_tables(encoder_of(tokenizer), digest)
    # Which engine runs the splitter is known from the kind of tokenizer; both packages' versions take part in the name.
    versions = "".join(_version(engine) for engine in ("tiktoken", "tokenizers"))
    name = hashlib.sha256(f"{digest} {versions} {_code()}".encode()).hexdigest()[:32]
    path = folder / f"canonical-{name}-v{_FORMAT}.npz"
    with contextlib.suppress(ArtifactError):
        return CanonicalTables.load(path, tokenizer.vocabulary)
    made = build_tables(encoder_of(tokenizer), digest)
    with contextlib.suppress(OSError):  # a disk that cannot be written only costs time
        folder.mkdir(parents=True, exist_ok=True)
        made.save(path)
    return made


def _version(engine: Any) -> str:
    try:
        return engine_version(engine)
    except TokenizerError:
        return "none"


def _code() -> str:
    """Digest of this package's source: other code may make other tables."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build_tables(encoder: Encoder, digest: str = "") -> CanonicalTables:
    """Makes the tables of an encoder. `digest`: of what the encoder was read from."""
    trees = merge_trees(encoder.table)
    splitter, version = None, ""
    if encoder.pattern is not None and encoder.engine is not None:
        splitter, version = build_splitter(encoder.pattern, encoder.engine), engine_version(encoder.engine)
    identity = hashlib.sha256(f"{_FORMAT} {encoder.vocabulary.fingerprint} {digest} {encoder.engine} {version}".encode())
    return CanonicalTables(
        fingerprint=encoder.vocabulary.fingerprint,
        identity=identity.hexdigest(),
        rule=pair_rule(encoder.table, trees),
        splitter=splitter,
        unmerged=trees.pieces,
        whole_tokens=encoder.table.whole_tokens,
        byte_tokens=encoder.byte_tokens,
        characters=encoder.characters,
        unicode_form=encoder.unicode_form,
        cut_pieces=encoder.cut_pieces,
        packed=encoder.vocabulary.packed,
    )


_FILTER = tuple(field.name for field in dataclasses.fields(FilterTable))
_RULE = ("own", "place", "set_of", "set_offset", "begin", "end")


def _arrays(tables: CanonicalTables) -> dict[str, np.ndarray]:
    texts = [str(_FORMAT), tables.fingerprint, tables.identity, tables.unicode_form or ""]
    tokens = np.array(list(tables.unmerged), np.int32)
    pieces = [np.array(p, np.int32) for p in tables.unmerged.values()]
    out = {f"rule_{name}": getattr(tables.rule, name) for name in _RULE}
    out |= {"texts": np.array(texts), "whole_tokens": np.array(tables.whole_tokens), "unmerged_token": tokens}
    out["unmerged_count"] = np.array([len(p) for p in pieces], np.int32)
    out["unmerged_piece"] = np.concatenate([np.zeros(0, np.int32), *pieces])
    if tables.splitter is not None:
        s = tables.splitter
        first = np.flatnonzero(np.append(True, s.class_of[1:] != s.class_of[:-1]))
        out |= {"class_first": first.astype(np.int32), "class_value": s.class_of[first], "splitter_next": s.next}
        out |= {"splitter_cut": s.cut, "splitter_final": s.final}
    out |= {f"filter_{name}": getattr(tables.filter_table, name) for name in _FILTER}
    out["cut_pieces"] = tables.cut_pieces
    if tables.byte_tokens is not None and tables.characters is not None:
        out |= {"byte_tokens": tables.byte_tokens, "characters": tables.characters}
    return out


def _from_arrays(arrays: dict[str, np.ndarray], vocabulary: Vocabulary) -> CanonicalTables:
    version, fingerprint, identity, form = arrays["texts"].tolist()
    if version != str(_FORMAT):
        raise ValueError(f"format version {version}, not {_FORMAT}")
    rule = PairRule(**{name: arrays[f"rule_{name}"] for name in _RULE})
    _check_rule(rule, vocabulary.size if fingerprint == vocabulary.fingerprint else rule.vocab_size)
    splitter = None
    if "splitter_next" in arrays:
        length = np.diff(np.append(arrays["class_first"], 0x110000))
        class_of = np.repeat(arrays["class_value"], length)
        splitter = Splitter(class_of, arrays["splitter_next"], arrays["splitter_cut"], arrays["splitter_final"])
    ends = np.cumsum(arrays["unmerged_count"])
    pieces = [tuple(p.tolist()) for p in np.split(arrays["unmerged_piece"], ends)[:-1]]
    made = CanonicalTables(
        fingerprint=fingerprint, identity=identity, rule=rule, splitter=splitter, unicode_form=form or None,
        unmerged=dict(zip(arrays["unmerged_token"].tolist(), pieces)), whole_tokens=bool(arrays["whole_tokens"]),
        byte_tokens=arrays.get("byte_tokens"), characters=arrays.get("characters"), cut_pieces=arrays["cut_pieces"],
        packed=vocabulary.packed,
    )  # fmt: skip
    states = FilterTable(**{name: arrays[f"filter_{name}"] for name in _FILTER})
    _check_states(states, rule.vocab_size)
    made.__dict__["filter_table"] = states  # what the property would make
    return made


def _check_states(states: FilterTable, size: int) -> None:
    """Raises ValueError where an index of the filter leads outside its arrays."""
    count, kinds = states.num_states, states.block.shape[2] * BLOCK
    right = states.kind.shape == states.inner.shape == (size,) and states.final.shape == (count,)
    right = right and states.block.shape[:2] == (count, 2) and states.target.shape[1:] == (BLOCK,)
    right = right and states.left.shape == states.inner_kind.shape[:1]
    right = right and len(states.reading_offset) == count + 1 and int(states.reading_offset[-1]) == len(states.reading)
    for index, end in (
        (states.position, len(states.inner_kind)), (states.kind, kinds), (states.inner_kind, kinds),
        (states.inner, states.inner_kind.shape[1]), (states.block, len(states.target)), (states.target + 1, count + 1),
    ):  # fmt: skip
        right = right and bool(((index >= 0) & (index < end)).all())
    if not right:
        raise ValueError("a state is out of range")


def _check_rule(rule: PairRule, size: int) -> None:
    """Raises ValueError where an index of the rule leads outside its arrays."""
    right = rule.own.shape == rule.place.shape == rule.set_of.shape == (size,) and rule.begin.shape == rule.end.shape
    right = right and len(rule.set_offset) > 0 and rule.set_offset[0] == 0 and rule.set_offset[-1] == len(rule.begin)
    right = right and bool((np.diff(rule.set_offset) >= 0).all())
    right = right and bool((np.sort(rule.place) == np.arange(size)).all())
    right = right and bool(((rule.set_of >= 0) & (rule.set_of < len(rule.set_offset) - 1)).all())
    right = right and bool(((rule.begin >= 0) & (rule.begin < rule.end) & (rule.end <= size)).all())
    if not right:
        raise ValueError("an index is out of range")
