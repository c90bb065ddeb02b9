"""`VocabularyTables`: everything the token walk needs that depends on the vocabulary alone, computed once.

Three views of the same tokens: a byte trie (the compact detokenizing transducer of Koo et al. 2024, Algorithm 2, as
arrays), bit rows by first byte, and *symbol strings*: what follows a token's first byte, as runs of coarse symbols.
128,000 tokens have only a few thousand distinct symbol strings, which is what makes wide states cheap to walk.
`tables_for` caches in memory and on disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fsa_compile.arrays.integers import exampled, firsts
from fsa_compile.arrays.ranges import gather_segments
from fsa_compile.inputs.files import open_regular, replacing
from fsa_compile.vocabulary.subtrees import Subtrees, levels, subtree_arrays
from fsa_compile.vocabulary.vocabulary import Vocabulary

_FORMAT = 2
_FEW = 2000
"""Bits of fewer tokens are added one by one."""

SYMBOL_CHARACTER = 4
"""Symbol of one complete, well-formed non-ASCII character."""
BYTE_SYMBOL = np.zeros(256, np.uint8)
"""Symbol of each single byte, from 1. Letters and digits share one symbol each, other ASCII has its own. Bytes of
incomplete characters get the structural classes of UTF-8 (continuation thirds, lead kinds)."""
BYTE_SYMBOL[0x61:0x7B], BYTE_SYMBOL[0x41:0x5B], BYTE_SYMBOL[0x30:0x3A] = 1, 2, 3
BYTE_SYMBOL[0x80:0x90], BYTE_SYMBOL[0x90:0xA0], BYTE_SYMBOL[0xA0:0xC0] = 5, 6, 7
BYTE_SYMBOL[0xC2:0xE0], BYTE_SYMBOL[0xE0], BYTE_SYMBOL[0xE1:0xF0] = 8, 9, 10
BYTE_SYMBOL[0xED], BYTE_SYMBOL[0xF0], BYTE_SYMBOL[0xF1:0xF4], BYTE_SYMBOL[0xF4] = 11, 12, 13, 14
_own = np.flatnonzero(BYTE_SYMBOL == 0)
BYTE_SYMBOL[_own] = np.arange(15, 15 + len(_own))
NUM_SYMBOLS = 15 + len(_own)
MAX_RUN = 255
"""Longest run stored in one piece; longer ones are split."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class VocabularyTables:
    """Arrays derived from one vocabulary.

    Attributes:
      vocab_size: V, tokenizer ids.
      fingerprint: of the vocabulary.
      stop_ids: its default end-of-text ids.
      data, offset: uint8[*] all token bytes and int64[V + 1] where each token starts.
      trie_first, trie_count, trie_byte, trie_token: int64[T] byte trie in breadth-first order: first child, number of
        children (contiguous, ascending byte), byte read into the node, token ending there or -1. Node 0 is the root.
      alias_offset, alias_token: int32; ids that write the same bytes as the trie's representative, by representative:
        `alias_offset` is empty when no two ids write the same bytes.
      run_offset: int32[G + 1]; symbol string g is runs `run_offset[g]:run_offset[g + 1]`.
      run_symbol, run_length: uint8[*] of each run.
      string_of: int32[V], symbol string of each token without its first byte; -1 for ids that are not text.
      below_kinds, below_start, below_count, below_token: uint64[T], int32[T], int32[T], int32[*]; see `subtree_arrays`.
    """

    vocab_size: int
    fingerprint: str
    stop_ids: tuple[int, ...]
    data: np.ndarray
    offset: np.ndarray
    trie_first: np.ndarray
    trie_count: np.ndarray
    trie_byte: np.ndarray
    trie_token: np.ndarray
    alias_offset: np.ndarray
    alias_token: np.ndarray
    run_offset: np.ndarray
    run_symbol: np.ndarray
    run_length: np.ndarray
    string_of: np.ndarray
    below_kinds: np.ndarray
    below_start: np.ndarray
    below_count: np.ndarray
    below_token: np.ndarray

    @property
    def num_words(self) -> int:
        """W, 32-bit words of a token set."""
        return (self.vocab_size + 31) // 32

    @cached_property
    def length(self) -> np.ndarray:
        """int64[V], bytes of each token."""
        return np.diff(self.offset)

    @cached_property
    def first_byte(self) -> np.ndarray:
        """int16[V], first byte of each token, -1 for ids that are not text."""
        out = np.full(self.vocab_size, -1, np.int16)
        text = self.length > 0
        out[text] = self.data[self.offset[:-1][text]]
        return out

    @cached_property
    def weight(self) -> np.ndarray:
        """int64[256], number of tokens by first byte."""
        return np.bincount(self.first_byte[self.first_byte >= 0], minlength=256)

    @cached_property
    def by_first_byte(self) -> tuple[np.ndarray, np.ndarray]:
        """(tokens by their first byte, int64[*]; where those of each byte begin, int64[257])."""
        text = self.length.nonzero()[0]
        byte = self.first_byte[text].astype(np.uint8)
        return text[byte.argsort(kind="stable")], firsts(byte, 256)

    @cached_property
    def root_child(self) -> np.ndarray:
        """int64[256], trie node of each first byte, 0 where no token starts with it."""
        out = np.zeros(256, np.int64)
        children = np.arange(self.trie_first[0], self.trie_first[0] + self.trie_count[0])
        out[self.trie_byte[children]] = children
        return out

    @cached_property
    def trie_beyond(self) -> np.ndarray:
        """int64[T], node after each node's last child."""
        return self.trie_first + self.trie_count

    @cached_property
    def trie_key(self) -> np.ndarray:
        """int64[T - 1], ascending: 256 * parent + byte of node 1, 2, ...: finds a child by binary search."""
        out = np.arange(0, 256 * len(self.trie_count), 256).repeat(self.trie_count)
        out += self.trie_byte[1:]
        return out

    @cached_property
    def trie_bytes(self) -> np.ndarray:
        """int64[256], number of trie nodes by their byte."""
        return np.bincount(self.trie_byte[1:], minlength=256)

    @cached_property
    def subtrees(self) -> Subtrees:
        """What is below each node of the trie."""
        begin, depth = self.below_start + (self.trie_token >= 0), levels(self.trie_first)
        of_node = np.arange(len(depth), dtype=np.int32).repeat(np.diff(depth, prepend=0))
        token = self.below_token.astype(np.int64)
        return Subtrees(self.below_kinds, begin, begin + self.below_count, self.below_start, token, of_node)

    @cached_property
    def spells_every_byte(self) -> bool:
        """Whether each of the 256 bytes is a token, so that every byte string can be spelled."""
        nodes = self.root_child[self.root_child > 0]
        return len(nodes) == 256 and bool((self.trie_token[nodes] >= 0).all())

    @cached_property
    def byte_hash(self) -> np.ndarray:
        """uint64[4 W], random odd multipliers of a row's bytes; see `row_hash`."""
        return np.random.default_rng(20240807).integers(0, 1 << 63, self.num_words * 4, np.uint64) * 2 + 1

    @cached_property
    def token_hash(self) -> np.ndarray:
        """uint64[V], hash of each one-token set."""
        return (self.byte_hash[:, None] << np.arange(8, dtype=np.uint64)).ravel()[: self.vocab_size]

    @cached_property
    def numbers(self) -> np.ndarray:
        """int64[65536], 0, 1, 2, ...: sliced where a walk needs small ranges."""
        return np.arange(1 << 16)

    def row_hash(self, row: np.ndarray) -> int:
        """Hash of a bit row, equal to the sum of its tokens' hashes modulo 2**64.

        Token sets are told apart by this hash: two given different sets collide with probability at most 2**-57.
        """
        return int(np.dot(row.view(np.uint8).astype(np.uint64), self.byte_hash))

    @cached_property
    def _word_and_bit(self) -> tuple[np.ndarray, np.ndarray]:
        bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
        return np.arange(self.num_words).repeat(32), np.tile(bits, self.num_words)

    def pack(self, tokens: np.ndarray) -> np.ndarray:
        """Bit row uint32[W] of distinct tokens."""
        if len(tokens) < _FEW:  # adding single bits is then cheaper than packing a row of booleans
            word, bit = self._word_and_bit
            row = np.zeros(self.num_words, np.uint32)
            np.add.at(row, word[tokens], bit[tokens])
            return row
        member = np.zeros(self.num_words * 32, bool)
        member[tokens.astype(np.int64, copy=False)] = True  # other integers as an index take twice as long
        return np.packbits(member, bitorder="little").view(np.uint32)

    def add(self, row: np.ndarray, tokens: np.ndarray) -> None:
        """Adds distinct tokens that a bit row does not have yet."""
        if len(tokens) >= _FEW:
            row |= self.pack(tokens)
            return
        word, bit = self._word_and_bit
        np.add.at(row, word[tokens], bit[tokens])

    def add_to(self, rows: np.ndarray, which: np.ndarray, tokens: np.ndarray) -> None:
        """Adds tokens to bit rows uint32[n, W], token i to row `which[i]`; one may be listed twice, or be there already."""
        word, bit = self._word_and_bit
        flat, at, bits = rows.reshape(-1), which * self.num_words + word.take(tokens), bit.take(tokens)
        while len(at):  # of several tokens of a word one counts each time: a third of the time of `np.bitwise_or.at`
            flat[at] |= bits
            left = (flat.take(at) & bits == 0).nonzero()[0]
            at, bits = at[left], bits[left]

    def unpack(self, row: np.ndarray) -> np.ndarray:
        """int64[*], the tokens of a bit row uint32[W], ascending."""
        word = row.nonzero()[0]
        bit = np.unpackbits(row[word].view(np.uint8), bitorder="little").nonzero()[0]
        return word[bit >> 5] << 5 | bit & 31

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """In-memory results that depend on the vocabulary and a few byte classes (see `token_classes.py`)."""
        return {}

    @cached_property
    def set_memo(self) -> dict[Any, Any]:
        """The same, token sets alone."""
        return {}


def build_tables(vocabulary: Vocabulary) -> VocabularyTables:
    """Computes the tables of a vocabulary; no Python loop over tokens except one sort."""
    tokens = vocabulary.tokens
    length = np.fromiter(map(len, tokens), np.int64, len(tokens))
    offset = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum(length, out=offset[1:])
    data = np.frombuffer(b"".join(tokens), np.uint8)
    trie, (alias_offset, alias_token) = _build_trie(tokens, data, offset)
    run_offset, run_symbol, run_length, string_of = _symbol_strings(data, offset)
    below = subtree_arrays(*trie)
    return VocabularyTables(
        vocab_size=len(tokens),
        fingerprint=vocabulary.fingerprint,
        stop_ids=tuple(vocabulary.stop_ids),
        data=data,
        offset=offset,
        trie_first=trie[0],
        trie_count=trie[1],
        trie_byte=trie[2],
        trie_token=trie[3],
        alias_offset=alias_offset,
        alias_token=alias_token,
        run_offset=run_offset,
        run_symbol=run_symbol,
        run_length=run_length,
        string_of=string_of,
        below_kinds=below[0],
        below_start=below[1],
        below_count=below[2],
        below_token=below[3],
    )


def _build_trie(
    tokens: tuple[bytes, ...], data: np.ndarray, offset: np.ndarray
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, np.ndarray]]:
    """The byte trie, breadth first, and the aliases of tokens with equal bytes.

    In the sorted token list, a token's new nodes are its bytes past the common prefix with its predecessor; this
    lists all nodes depth first, and a stable sort by depth makes the order breadth first.
    """
    text = np.flatnonzero(np.diff(offset) > 0).tolist()
    order = np.array(sorted(text, key=tokens.__getitem__), np.int64)
    start, length = offset[order], (offset[order + 1] - offset[order])
    n = len(order)
    common = np.zeros(n, np.int64)
    rows = np.arange(1, n)
    depth = 0
    while len(rows):
        rows = rows[(length[rows] > depth) & (length[rows - 1] > depth)]
        rows = rows[data[start[rows] + depth] == data[start[rows - 1] + depth]]
        depth += 1
        common[rows] = depth
    new = length - common
    # A token equal to its predecessor adds no node: it is an alias of the first of its equals.
    duplicate = new == 0
    aliases = _aliases(order, duplicate, len(tokens))
    order, start, common, new = order[~duplicate], start[~duplicate], common[~duplicate], new[~duplicate]
    total, before = int(new.sum()), np.cumsum(new) - new
    owner = np.repeat(np.arange(len(order)), new)
    node_depth = common[owner] + np.arange(total) - before[owner]
    byte = data[start[owner] + node_depth]
    token = np.full(total, -1, np.int32)
    token[before + new - 1] = order
    breadth = np.argsort(node_depth, kind="stable")
    levels = np.searchsorted(node_depth[breadth], np.arange(int(node_depth.max()) + 2 if total else 1))
    parent = np.zeros(total, np.int64)
    for k in range(1, len(levels) - 1):
        above, here = breadth[levels[k - 1] : levels[k]], breadth[levels[k] : levels[k + 1]]
        parent[levels[k] : levels[k + 1]] = levels[k - 1] + np.searchsorted(above, here)
    count = np.bincount(parent, minlength=total + 1) if total else np.zeros(1, np.int64)
    first = 1 + np.cumsum(count) - count
    trie = (
        first.astype(np.int64),
        count.astype(np.int64),
        np.concatenate([[0], byte[breadth]]).astype(np.int64),
        np.concatenate([[-1], token[breadth]]).astype(np.int64),
    )
    return trie, aliases


def _aliases(order: np.ndarray, duplicate: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    if not duplicate.any():
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    representative = order[np.flatnonzero(~duplicate)[np.cumsum(~duplicate)[duplicate] - 1]]
    counts = np.bincount(representative, minlength=size)
    by_representative = np.argsort(representative, kind="stable")
    offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return offset, order[duplicate][by_representative].astype(np.int32)


def _symbol_strings(data: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct symbol strings of all tokens without their first byte, and each token's string."""
    length = np.diff(offset)
    size = len(length)
    owner = np.repeat(np.arange(size), length)
    symbol, dropped = _symbols(data, owner, offset)
    rest = ~dropped
    rest[offset[:-1][length > 0]] = False
    owner, symbol = owner[rest], symbol[rest]
    run_owner, run_symbol, run_length = runs(owner, symbol, np.ones(len(symbol), np.int64))
    count = np.bincount(run_owner, minlength=size) if len(run_owner) else np.zeros(size, np.int64)
    string_of, chosen = distinct_strings(run_symbol, run_length, count)
    run_offset, picked = gather_segments(np.cumsum(count) - count, count, chosen)
    string_of[length == 0] = -1
    return run_offset, run_symbol[picked].astype(np.uint8), run_length[picked].astype(np.uint8), string_of


def _symbols(data: np.ndarray, owner: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symbol of every byte, and which bytes continue a complete character and so have none.

    The first byte of each token stands apart (the walk reads it on its own), so a character counts as complete only
    when its lead byte is not that first one.
    """
    symbol, dropped = BYTE_SYMBOL[data], np.zeros(len(data), bool)
    lead = np.flatnonzero((data >= 0xC2) & (data <= 0xF4))
    lead = lead[lead != offset[owner[lead]]]
    need = np.where(data[lead] < 0xE0, 1, np.where(data[lead] < 0xF0, 2, 3))
    inside = lead + need < offset[owner[lead] + 1]
    lead, need = lead[inside], need[inside]
    second = data[lead + 1]
    low = np.select([data[lead] == 0xE0, data[lead] == 0xF0], [0xA0, 0x90], 0x80)
    high = np.select([data[lead] == 0xED, data[lead] == 0xF4], [0x9F, 0x8F], 0xBF)
    good = (second >= low) & (second <= high)
    for k in (2, 3):
        third = data[np.minimum(lead + k, len(data) - 1)]
        good &= (need < k) | ((third >= 0x80) & (third <= 0xBF))
    lead, need = lead[good], need[good]
    symbol[lead] = SYMBOL_CHARACTER
    for k in (1, 2, 3):
        dropped[lead[need >= k] + k] = True
    return symbol, dropped


def runs(owner: np.ndarray, symbol: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Joins neighbouring runs of one owner and symbol: (owner, symbol, length) of each joined run."""
    if not len(owner):
        return owner, symbol, length
    begin = np.ones(len(owner), bool)
    begin[1:] = (symbol[1:] != symbol[:-1]) | (owner[1:] != owner[:-1])
    at = np.flatnonzero(begin)
    total = np.add.reduceat(length, at)
    if total.max() > MAX_RUN:  # split: the pieces are read one after the other
        pieces = -(-total // MAX_RUN)
        last = np.cumsum(pieces) - 1
        at = np.repeat(at, pieces)
        split = np.full(len(at), MAX_RUN)
        split[last] = total - (pieces - 1) * MAX_RUN
        total = split
    return owner[at], symbol[at], total


def distinct_strings(symbol: np.ndarray, length: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers equal run strings alike.

    Args:
      symbol, length: of all runs, string after string.
      count: runs of each string.

    Returns:
      (int32 number of each string, int64 one example string per number).
    """
    start = np.cumsum(count) - count
    place = (np.arange(len(symbol)) - np.repeat(start, count)).astype(np.uint64)
    mixed = (symbol.astype(np.uint64) << np.uint64(16)) | length.astype(np.uint64)
    mixed = (mixed + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ (place * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    total = np.zeros(len(count), np.uint64)
    some = count > 0
    if some.any():
        total[some] = np.add.reduceat(mixed, start[some])
    _, chosen, number = exampled(total)
    same = count == count[chosen[number]]
    if len(symbol) and same.all():  # compare contents: a collision would merge different strings
        other = np.repeat(start[chosen[number]] - start, count) + np.arange(len(symbol))
        same = np.array([bool(((symbol == symbol[other]) & (length == length[other])).all())])
    if not same.all():
        raise RuntimeError("two symbol strings share a 64-bit hash")
    return number.astype(np.int32), chosen


_ARRAY_FIELDS = [f.name for f in dataclasses.fields(VocabularyTables)][3:]
_memory: dict[str, VocabularyTables] = {}
_lock = threading.Lock()


def tables_for(vocabulary: Vocabulary) -> VocabularyTables:
    """The tables of a vocabulary, from memory, from the disk cache, or computed now.

    The disk cache lies in `$CONSTRAX_CACHE` (default: the user's cache folder; empty string: no disk cache) and is
    keyed by the vocabulary's fingerprint. A file that cannot be used is replaced.
    """
    key = vocabulary.fingerprint
    with _lock:
        tables = _memory.get(key)
        if tables is None:
            path = _cache_path(key)
            tables = _load(path, vocabulary) if path else None
            if tables is None:
                tables = build_tables(vocabulary)
                if path:
                    _save(tables, path)
            while len(_memory) >= 8:
                _memory.pop(next(iter(_memory)))
            _memory[key] = tables
    return tables


def cache_folder() -> Path | None:
    """The folder of the disk cache; None where there is to be none."""
    folder = os.environ.get("CONSTRAX_CACHE")
    if folder == "":
        return None
    return Path(folder) if folder else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "constrax"


def _cache_path(key: str) -> Path | None:
    base = cache_folder()
    return None if base is None else base / f"vocabulary-{key[:32]}-v{_FORMAT}.npz"


def _load(path: Path, vocabulary: Vocabulary) -> VocabularyTables | None:
    try:
        with open_regular(path) as opened, np.load(opened, allow_pickle=False) as file:
            arrays, multipliers = {name: file[name] for name in _ARRAY_FIELDS}, file["byte_hash"]
            if str(file["fingerprint"]) != vocabulary.fingerprint or str(file["digest"]) != _digest(arrays):
                return None
    except Exception:  # a cache that cannot be read, for whatever reason, is made anew
        return None
    tables = VocabularyTables(vocabulary.size, vocabulary.fingerprint, tuple(vocabulary.stop_ids), **arrays)
    vars(tables)["byte_hash"] = multipliers  # importing NumPy's generators takes as long as a small schema
    return tables


def _digest(arrays: Any) -> str:
    """Shapes and dtypes of all arrays; zip's own checksums guard their contents."""
    text = "".join(f"{n}{arrays[n].dtype}{arrays[n].shape}" for n in _ARRAY_FIELDS)
    return hashlib.sha256(text.encode()).hexdigest()


def _save(tables: VocabularyTables, path: Path) -> None:
    """Writes the cache file atomically; a disk that cannot be written only costs time."""
    arrays = {name: getattr(tables, name) for name in _ARRAY_FIELDS}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, fingerprint=tables.fingerprint, digest=_digest(arrays), byte_hash=tables.byte_hash, **arrays)
