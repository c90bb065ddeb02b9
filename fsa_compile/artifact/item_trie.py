"""`CompiledItems`: a set of token sequences as a trie in level order, its file, and its walk on the host.

Imports NumPy and the standard library only, so that a decoding process needs neither pynini nor a tokenizer library.

Nodes are numbered level by level, and within a level in the order of their texts. So the children of a node are neighbours, their
tokens ascend, and a node's number is also that of the edge that leads to it: no pointer is stored.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.artifact.bitmask import BitmaskWalk, token_id, whole_limit, words_of
from fsa_compile.artifact.file import read_members, write_members
from fsa_compile.errors import ArtifactError, BudgetError, ConstraintError, listed, whole
from fsa_compile.inputs.files import checked_path

MAGIC = "constrax items"
FORMAT_VERSION = 1
LONGEST_ITEM = {np.uint8: 255, np.uint16: 65_535}
"""Distances are kept in the smaller type that can hold them; no item may be longer than the last of these."""
_DTYPES = {
    "token": (np.dtype("<u2"), np.dtype("<i4")),
    "first": (np.dtype("<i4"),),
    "distance": (np.dtype("u1"), np.dtype("<u2")),
    "item": (np.dtype("<i4"),),
}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CompiledItems:
    """A set of items over one vocabulary, ready for the host walk and for the device. Made by `compile_items`.

    Axes: N nodes, node 0 the root; M distinct items.

    Attributes:
      vocab_size: V, the tokenizer's ids.
      fingerprint: of the vocabulary (hex).
      stop_ids: default end-of-text ids; in no item.
      source: a description, for people.
      token: uint16[N] (int32 where V needs it), the token that leads to each node; 0 for the root.
      first: int32[N + 1]; the children of node n are the nodes `first[n]` to `first[n + 1] - 1`, by ascending token.
      distance: uint8[N] (uint16 where items are long), tokens to the end of the nearest item; 0 where one ends.
      item: int32[M], index, in the list that was compiled, of the item that ends at each node of distance 0, in the nodes' order;
        the first of equal ones.
    """

    vocab_size: int
    fingerprint: str
    stop_ids: tuple[int, ...]
    source: str
    token: np.ndarray
    first: np.ndarray
    distance: np.ndarray
    item: np.ndarray

    def __post_init__(self) -> None:
        for name in _DTYPES:
            getattr(self, name).setflags(write=False)

    @property
    def num_nodes(self) -> int:
        """N, the root included."""
        return len(self.token)

    @property
    def num_items(self) -> int:
        """M, distinct items."""
        return len(self.item)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by their names."""
        return {name: getattr(self, name) for name in _DTYPES}

    @property
    def header(self) -> dict[str, Any]:
        """What a file says beside the arrays."""
        return {
            "magic": MAGIC,
            "format_version": FORMAT_VERSION,
            "vocab_size": self.vocab_size,
            "fingerprint": self.fingerprint,
            "stop_ids": list(self.stop_ids),
            "source": self.source,
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def shortest_completion(self) -> int:
        """Length of the shortest item."""
        return int(self.distance[0])

    @property
    def longest(self) -> int:
        """Length of the longest item."""
        level, length = slice(0, 1), -1
        while level.start < level.stop:  # the children of one level's nodes are the next level
            level, length = slice(int(self.first[level.start]), int(self.first[level.stop])), length + 1
        return length

    def __repr__(self) -> str:
        return (
            f"CompiledItems({self.num_items:,} items, {self.num_nodes:,} nodes, {self.nbytes / 1e6:.2f} MB, "
            f"{self.vocab_size:,} tokens)"
        )

    def child(self, node: int, token: int) -> int:
        """The node after one more token, 0 for none; raises `ConstraintError` for what is no node, or no whole number."""
        node, token = whole(node, "the node", self.num_nodes - 1), token_id(token)
        begin, end = int(self.first[node]), int(self.first[node + 1])
        at = begin + int(np.searchsorted(self.token[begin:end], token)) if 0 <= token < self.vocab_size else end
        return at if at < end and int(self.token[at]) == token else 0

    def find(self, tokens: Iterable[int]) -> int | None:
        """Index of the item with these tokens in the list that was compiled, None where there is none.

        The first search makes a table of one number per node.

        Raises:
          ConstraintError: the tokens are no list of whole numbers.
        """
        node = 0
        for token in listed(tokens, "an item"):
            node = self.child(node, token)
            if not node:
                return None
        return int(self.item[self._number[node]]) if self.distance[node] == 0 else None

    @property
    def _number(self) -> np.ndarray:
        """int32[N], how many items end at smaller nodes."""
        found = self.__dict__.get("_numbers")
        if found is None:
            ends = self.distance == 0
            found = self.__dict__["_numbers"] = np.cumsum(ends, dtype=np.int32) - ends
        return found

    def walk(self) -> ItemWalk:
        """A new host executor at the start of the text."""
        return ItemWalk(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the items to one uncompressed `.npz` file, atomically; raises `OSError` where that fails."""
        text = np.frombuffer(json.dumps(self.header, sort_keys=True).encode(), np.uint8)
        write_members(checked_path(path, ArtifactError), {"header": text} | self.arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], vocabulary: Any = None) -> CompiledItems:
        """Reads a file and checks everything a device step relies on; nothing is unpickled.

        Args:
          path: file written by `save`.
          vocabulary: optional; the vocabulary, or a tokenizer that has one, that the items must belong to.

        Raises:
          ArtifactError: no such file, not ours, damaged, or of another vocabulary.
        """
        arrays: dict[str, Any] = read_members(checked_path(path, ArtifactError))
        data = arrays.pop("header", None)
        try:
            header = json.loads(data.tobytes()) if data is not None and data.dtype == np.uint8 else None
        except (ValueError, RecursionError):
            header = None
        return cls.checked(header, arrays, str(path), vocabulary)

    @classmethod
    def checked(cls, header: Any, arrays: dict[str, np.ndarray], where: str, vocabulary: Any = None) -> CompiledItems:
        """Items of a header and arrays that were read; the checks are those of `load`, `where` says where they came from."""
        _check_header(header, where)
        _check_arrays(arrays, header["vocab_size"], where)
        fields: dict[str, Any] = {k: header[k] for k in ("vocab_size", "fingerprint", "source")}
        out = cls(**(arrays | fields), stop_ids=tuple(header["stop_ids"]))
        vocabulary = getattr(vocabulary, "vocabulary", vocabulary)
        if vocabulary is not None and vocabulary.fingerprint != out.fingerprint:
            what = "the items were compiled for another vocabulary"
            raise ArtifactError(what, where=where, fix="Compile them again for this tokenizer.")
        return out


class _Place(NamedTuple):
    node: int
    finished: bool


class ItemWalk(BitmaskWalk):
    """Where a text stands in a set of items; the methods are those of `HostWalk`."""

    def __init__(self, items: CompiledItems) -> None:
        self.items = self.constraint = items
        self._history = [_Place(0, False)]

    @property
    def node(self) -> int:
        """Current node."""
        return self._history[-1].node

    @property
    def accepting(self) -> bool:
        """Whether the text so far is an item."""
        return int(self.items.distance[self.node]) == 0

    @property
    def distance(self) -> int:
        """Least number of further tokens to the end of an item."""
        return int(self.items.distance[self.node])

    def allowed_words(self, remaining: int | None = None) -> np.ndarray:
        """The mask of the next token as bits, uint32[ceil(V / 32)]; see `allowed`."""
        items = self.items
        if self.finished:
            return words_of((), items.vocab_size)
        children = slice(int(items.first[self.node]), int(items.first[self.node + 1]))
        tokens = items.token[children]
        remaining = whole_limit(remaining, "remaining")
        if remaining is not None:
            self._check(remaining)
            tokens = tokens[items.distance[children].astype(np.int64) + 1 <= remaining]
        return words_of([*tokens.tolist(), *(items.stop_ids if self.accepting else ())], items.vocab_size)

    def advance(self, token: int, remaining: int | None = None) -> None:
        """Takes a token, within a limit; raises `ConstraintError` where it is not allowed."""
        token = token_id(token)
        if not self.finished and token in self.items.stop_ids and self.accepting:
            self._history.append(_Place(self.node, True))
            return
        remaining = whole_limit(remaining, "remaining")
        if remaining is not None:
            self._check(remaining)
        node = 0 if self.finished else self.items.child(self.node, token)
        if not node or (remaining is not None and self.items.distance[node] >= remaining):
            what = f"token {token} is not allowed after {self.num_tokens} tokens"
            raise ConstraintError(what, fix="Ask allowed() for the tokens that are.")
        self._history.append(_Place(node, False))

    def _check(self, remaining: int) -> None:
        """Raises `BudgetError` where no item ends within a limit."""
        if remaining < self.distance:
            raise BudgetError(remaining, self.distance, where=f"after {self.num_tokens} tokens")


def _check_header(header: Any, where: str) -> None:
    """Raises `ArtifactError` unless this is a header of items of the version this module reads."""
    fix = "Compile and save the items again."
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise ArtifactError("this is not a file of items", where=where, fix=fix)
    if header.get("format_version") != FORMAT_VERSION:
        what = f"the file has format version {header.get('format_version')}; this constrax reads version {FORMAT_VERSION}"
        raise ArtifactError(what, where=where, fix=fix)
    size, stops = header.get("vocab_size"), header.get("stop_ids")
    good = isinstance(size, int) and 0 < size < 2**24 and isinstance(stops, list)
    good = good and all(isinstance(i, int) and 0 <= i < header["vocab_size"] for i in header["stop_ids"])
    if not good or not all(isinstance(header.get(name), str) for name in ("fingerprint", "source")):
        raise ArtifactError("the header is damaged", where=where, fix=fix)


def _check_arrays(arrays: dict[str, np.ndarray], vocab_size: int, where: str) -> None:
    """Raises `ArtifactError` unless the arrays are a trie in level order with the distances it has."""

    def check(good: bool, what: str) -> None:
        if not good:
            raise ArtifactError(f"the file is damaged: {what}", where=where, fix="Compile and save the items again.")

    check(set(arrays) == set(_DTYPES), "arrays are missing")
    for name, kinds in _DTYPES.items():
        check(arrays[name].dtype in kinds and arrays[name].ndim == 1, f"array '{name}' is of another type")
    token, first, distance, item = (arrays[name] for name in _DTYPES)
    n = len(token)
    check(n > 1 and len(first) == n + 1 and len(distance) == n, "arrays of nodes differ in length")
    check(first[0] == 1 and first[-1] == n and bool((first[1:] >= first[:-1]).all()), "'first' does not ascend to the last node")
    check(bool((first[:-1] > np.arange(n)).all()), "a node comes before its parent")
    check(int(token.min()) >= 0 and int(token.max()) < vocab_size, "a token is out of range")
    begins = np.zeros(n + 1, bool)
    begins[first] = True
    check(bool((begins[1:-1] | (token[1:] > token[:-1])).all()), "the tokens of a node do not ascend")
    children = np.diff(first)
    inner = children > 0
    nearest = np.minimum.reduceat(distance, first[:-1][inner]).astype(np.int64) + 1
    check(bool((distance[~inner] == 0).all()), "a text that does not end has no continuation")
    check(bool(((distance[inner] == 0) | (distance[inner] == nearest)).all()), "distances do not fit")
    check(len(item) == int((distance == 0).sum()) and int(item.min(initial=0)) >= 0, "'item' has another length")
