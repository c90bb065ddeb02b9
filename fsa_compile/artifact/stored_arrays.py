"""Arrays of large constraints that take less room than they are long: equal pieces of rows and equal lists of arcs stand once,
children that are none not at all.

They are read as read-only NumPy arrays are; what is asked for is made anew of `parts`. Imports NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import exampled, sorted_rows
from fsa_compile.arrays.ranges import blocks, joined, spread
from fsa_compile.artifact.row_pieces import PIECE, PieceTable, rows_of

LEAST_BYTES = 8 << 20
"""Smaller arrays but rows are in parts in files alone, so that small constraints compile no slower."""
LEAST_IN_PARTS = 1 << 17
"""Smaller arrays are in parts nowhere."""
_SETS = 1 << 15
"""Token sets of nodes that are looked at together."""
_LISTED = 1 << 14
"""Token sets whose tokens are listed together."""
MOST_TIMES = 1 << 10
"""An array is at most so many times as large as its parts, so that no small file fills the memory."""

Parts = Mapping[str, np.ndarray]
Need = Callable[[Any, str], None]


class StoredArray(np.lib.mixins.NDArrayOperatorsMixin):
    """What the kinds of arrays below have in common.

    Attributes:
      parts: the arrays it is made of; `PARTS` says of which types and numbers of dimensions.
      shape, dtype: of the array.
    """

    PARTS: ClassVar[dict[str, tuple[type, int]]] = {}
    dtype: np.dtype[Any] = np.dtype(np.int32)

    def __init__(self, parts: Parts, shape: tuple[int, ...]) -> None:
        self.parts, self.shape = dict(parts), shape
        self.ndim = len(shape)
        self.size = int(np.prod(shape, dtype=np.int64))

    def values(self, at: np.ndarray) -> np.ndarray:
        """The entries at places int64[n] of the first axis."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of the parts."""
        return sum(part.nbytes for part in self.parts.values())

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        out = self.values(np.arange(len(self)))
        return out if dtype is None else out.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, StoredArray) else x for x in inputs), **options)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.values(np.arange(*index.indices(len(self))))
        if isinstance(index, tuple):
            first, *others = index
            return self[first][(..., *others)]
        at = np.asarray(index)
        at = at.nonzero()[0] if at.dtype == bool else at.astype(np.int64, copy=False)
        if at.size and (at.min() < -len(self) or at.max() >= len(self)):
            raise IndexError(f"index out of {len(self)} entries")
        found = self.values(np.where(at < 0, at + len(self), at).ravel())
        return found.reshape((*at.shape, *self.shape[1:]))[()]

    def setflags(self, *, write: bool) -> None:
        """As of an array: sets those of the parts."""
        for part in self.parts.values():
            part.setflags(write=write)

    def astype(self, dtype: Any, copy: bool = True) -> np.ndarray:
        """As an array of a type."""
        return np.asarray(self).astype(dtype, copy=False)

    def reshape(self, *shape: int) -> np.ndarray:
        """As an array of a shape."""
        return np.asarray(self).reshape(*shape)

    def tolist(self) -> Any:
        """As lists."""
        return np.asarray(self).tolist()

    def tobytes(self) -> bytes:
        """As bytes of the array."""
        return np.asarray(self).tobytes()


class StoredRows(StoredArray):
    """Bit rows uint32[R, W] cut into pieces: `piece[index[row, i]]` is the i-th of a row."""

    PARTS: ClassVar = {"piece": (np.uint32, 2), "index": (np.int32, 2)}
    dtype: np.dtype[Any] = np.dtype(np.uint32)

    def values(self, at: np.ndarray) -> np.ndarray:
        """See `StoredArray.values`."""
        return rows_of(self.parts["piece"], self.parts["index"][at], self.shape[1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)):
            return rows_of(self.parts["piece"], self.parts["index"][index], self.shape[1])
        if isinstance(index, tuple) and len(index) == 2 and not isinstance(index[1], slice):
            row, word = index
            word = np.where(np.asarray(word) < 0, np.asarray(word) + self.shape[1], word)
            return self.parts["piece"][self.parts["index"][row, word // PIECE], word % PIECE]
        return super().__getitem__(index)

    @classmethod
    def of(cls, rows: Callable[[slice], np.ndarray], shape: tuple[int, int]) -> StoredRows:
        """Rows in pieces, each piece once, in order of their first occurrence.

        Args:
          rows: makes some of the rows uint32[*, W], a few at once.
          shape: R, W.
        """
        table = PieceTable(shape[1])
        index = table.cut(rows, shape[0])
        return cls({"piece": table.piece[: table.size].copy(), "index": index}, shape)


class StoredChildren(StoredArray):
    """Children of nodes, most of which are 0: `value` at the ascending places `at`."""

    PARTS: ClassVar = {"at": (np.int32, 1), "value": (np.int32, 1)}

    def values(self, at: np.ndarray) -> np.ndarray:
        """See `StoredArray.values`."""
        own, value = self.parts["at"], self.parts["value"]
        found = np.minimum(own.searchsorted(at), len(own) - 1)
        return np.where(own[found] == at, value[found], 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        out = np.zeros(self.shape, self.dtype)
        out[self.parts["at"]] = self.parts["value"]
        return out

    @classmethod
    def of(cls, children: np.ndarray) -> StoredChildren:
        """What of int32[n] is not 0."""
        at = children.nonzero()[0]
        return cls(_int32(at=at, value=children[at]), children.shape)


class StoredTokens(StoredArray):
    """Tokens of arcs, where many nodes have the same ones: node n those at `offset[l]:offset[l + 1]` in `token`, l being its
    `list`."""

    PARTS: ClassVar = {"list": (np.int32, 1), "offset": (np.int32, 1), "token": (np.int32, 1)}

    def __init__(self, parts: Parts) -> None:
        size = np.diff(parts["offset"])[parts["list"]]
        self.arc_offset = np.append(0, size.cumsum(dtype=np.int64))
        super().__init__(parts, (int(self.arc_offset[-1]),))

    @property
    def begin(self) -> np.ndarray:
        """Where the list of every node begins, int32[N]."""
        return self.parts["offset"][self.parts["list"]]

    def places(self, at: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(node, place in its list) of arcs int64[n]; of all where None is given."""
        if at is None:
            return spread(self.begin.astype(np.int64), np.diff(self.arc_offset))  # one list after another
        node = self.arc_offset.searchsorted(at, side="right") - 1
        return node, at - self.arc_offset[node] + self.parts["offset"][self.parts["list"][node]]

    def node_of(self, arcs: slice) -> tuple[int, slice] | None:
        """(node, places) where all arcs of a slice are of one node, else None."""
        begin, end, step = arcs.indices(len(self))
        if step != 1 or begin >= end:
            return None
        node = int(self.arc_offset.searchsorted(begin, side="right")) - 1
        if end > self.arc_offset[node + 1]:
            return None
        moved = int(self.parts["offset"][self.parts["list"][node]]) - int(self.arc_offset[node])
        return node, slice(begin + moved, end + moved)

    def values(self, at: np.ndarray | None) -> np.ndarray:
        """See `StoredArray.values`."""
        return self.parts["token"][self.places(at)[1]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values(None)

    def __getitem__(self, index: Any) -> Any:
        one = self.node_of(index) if isinstance(index, slice) else None
        return super().__getitem__(index) if one is None else self.parts["token"][one[1]]


class StoredEffects(StoredArray):
    """Effects of arcs: an arc of node n whose token is of class k of its list has the effect `effect[first[n] + k]`."""

    PARTS: ClassVar = {"class": (np.uint16, 1), "first": (np.int32, 1), "effect": (np.int32, 1)}

    def __init__(self, parts: Parts, tokens: StoredTokens) -> None:
        super().__init__(parts, tokens.shape)
        self.tokens = tokens

    def values(self, at: np.ndarray | None) -> np.ndarray:
        """See `StoredArray.values`."""
        node, place = self.tokens.places(at)
        return self.parts["effect"][self.parts["first"][node] + self.parts["class"][place]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values(None)

    def __getitem__(self, index: Any) -> Any:
        one = self.tokens.node_of(index) if isinstance(index, slice) else None
        if one is None:
            return super().__getitem__(index)
        node, places = one
        return self.parts["effect"][int(self.parts["first"][node]) + self.parts["class"][places].astype(np.int32)]

    def of_nodes(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place among some nodes, effect) of every effect that their arcs have, by node."""
        offset = self.tokens.parts["offset"]
        classes = _classes(self.parts["class"], offset)
        own = (node < len(self.parts["first"])).nonzero()[0]  # nodes behind all others have no arcs
        node = node[own]
        which, at = spread(self.parts["first"][node].astype(np.int64), classes[self.tokens.parts["list"][node]])
        return own[which], self.parts["effect"][at]


def _classes(classes: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """int64[L], how many classes the tokens of every list have: one more than the largest number at `offset[l]:offset[l + 1]`."""
    some, out = (offset[1:] > offset[:-1]).nonzero()[0], np.zeros(len(offset) - 1, np.int64)
    if len(some):
        out[some] = np.maximum.reduceat(classes, offset[some]) + np.int64(1)
    return out


class TokenSets(NamedTuple):
    """Disjoint token sets.

    Attributes:
      hash: of each one, the sum of those of its tokens.
      tokens: (place among some of them, token) of every token of these, in any order.
    """

    hash: np.ndarray
    tokens: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def stored_arcs(
    first: np.ndarray, columns: Callable[[slice], tuple[np.ndarray, np.ndarray]], sets: TokenSets, alike: np.ndarray | None
) -> dict[str, Any] | None:
    """`arc_offset`, `arc_token` and `arc_effect` of a deterministic constraint; None where a node has too many effects, or two
    kinds of nodes have one hash.

    Args:
      first: int64[N + 1], where the token sets of every node begin.
      columns: integers [*] each, the effects and the numbers of the token sets of some nodes; no node has an effect twice.
      sets: what these count into.
      alike: the node that each one has the arcs of; None for itself.
    """
    hashes, example, kind_of = exampled(sets.hash)
    size = np.diff(first)
    if size.max(initial=0) > 1 << 16:
        return None
    kind, own = np.empty(first[-1], np.int32), np.empty(first[-1], np.int32)
    for some in blocks(size, _SETS):
        here = slice(first[some.start], first[some.stop])
        own[here], which = columns(some)
        # The sets of a node by their hashes, so that nodes with the same ones number them alike.
        kind[here] = kind_of.take(which)
        falls = np.zeros(len(which) + 1, bool)
        np.less(kind[here][1:], kind[here][:-1], out=falls[1:-1])
        falls[first[some] - here.start] = False
        if falls.any():
            of = np.arange(some.stop - some.start).repeat(size[some])
            _, kind[here], own[here] = sorted_rows(of, kind[here].astype(np.int64), own[here])
    same_lists, same_effects = _alike(first, kind, mixed(hashes)), _alike(first, own)
    if same_lists is None or same_effects is None:
        return None
    (lists, list_of), (effects, effect_of) = same_lists, same_effects
    length, token, classes = _listed((first[lists], size[lists]), kind, example, sets)
    listed = first[effects], size[effects]
    first_effect = np.cumsum(listed[1]) - listed[1]
    if alike is not None:
        list_of, effect_of = list_of[alike], effect_of[alike]
    tokens = StoredTokens(_int32(list=list_of, offset=np.append(0, length.cumsum()), token=token))
    pieces = [own[joined(*(column[some] for column in listed))] for some in blocks(listed[1], _SETS)]
    effect = np.concatenate(pieces) if pieces else own[:0]
    rest = {"class": classes} | _int32(first=first_effect[effect_of]) | {"effect": effect}
    return {"arc_offset": tokens.arc_offset, "arc_token": tokens, "arc_effect": StoredEffects(rest, tokens)}


def _listed(
    lists: tuple[np.ndarray, np.ndarray], kind: np.ndarray, example: np.ndarray, sets: TokenSets
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the number of tokens of each list, the tokens of all lists, the class of each token in its list).

    Args:
      lists: where each one begins in `kind`, and how many token sets it has.
      kind, example: of token sets, and a set of each kind.
    """
    number, at = spread(*lists)
    place = at - lists[0][number]
    pieces = [np.zeros(0, np.int64)]
    for begin in range(0, len(at), _LISTED):
        some = slice(begin, begin + _LISTED)
        of, token = sets.tokens(example[kind[at[some]]])
        pieces.append((number[some] << 38 | place[some])[of] | token.astype(np.int64) << 16)
    key = np.concatenate(pieces)
    key.sort()
    return np.bincount(key >> 38, minlength=len(lists[0])), key >> 16 & (1 << 22) - 1, (key & 0xFFFF).astype(np.uint16)


def _int32(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {name: array.astype(np.int32) for name, array in arrays.items()}


def _alike(
    first: np.ndarray, values: np.ndarray, hashes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """(an example of every kind of node; the kind of every node): nodes of one kind have the same values, numbers, at
    `first[n]:first[n + 1]`; where they are in order, `hashes` has one for each number. None where two kinds have one hash."""
    total, size = np.zeros(len(first) - 1, np.uint64), np.diff(first)
    for some in blocks(size, _SETS):
        here, begin = values[first[some.start] : first[some.stop]], first[some] - first[some.start]
        if hashes is None:
            each = mixed(here.astype(np.int64) << 16 | (np.arange(len(here)) - begin.repeat(size[some])))
        else:
            each = hashes.take(here)
        full = size[some].nonzero()[0]
        if len(full):
            total[some.start + full] = np.add.reduceat(each, begin[full])
    _, example, kind = exampled(total)
    of = example[kind]
    others = (of != np.arange(len(of))).nonzero()[0]
    same = [(size[others] == size[of[others]]).all()]
    for some in blocks(size[others], _SETS) if same[0] else ():
        mine, theirs = others[some], of[others[some]]
        pair = (values.take(joined(first[of], size[mine])) for of in (mine, theirs))
        same.append((next(pair) == next(pair)).all())
    return (example, kind) if all(same) else None


def stored_arrays(rows: np.ndarray, delta: np.ndarray, least: int) -> dict[str, Any]:
    """`rows` and `delta` of a constraint, those of them that have at least so many bytes and take less room so."""
    out: dict[str, StoredArray | None] = {}
    if isinstance(rows, np.ndarray) and rows.nbytes >= least:
        out["rows"] = StoredRows.of(rows.__getitem__, rows.shape)
    if isinstance(delta, np.ndarray) and delta.nbytes >= least and delta.any():
        out["delta"] = StoredChildren.of(delta)
    return {name: array for name, array in out.items() if array is not None and is_smaller(array)}


def is_smaller(array: StoredArray) -> bool:
    """Whether an array takes half its room at most, and a file of it is read."""
    return array.nbytes * 2 <= array.size * array.dtype.itemsize <= array.nbytes * MOST_TIMES


KINDS: dict[str, type[StoredArray]] = {
    "rows": StoredRows,
    "arc_token": StoredTokens,
    "arc_effect": StoredEffects,
    "delta": StoredChildren,
}
"""The fields of `ConstraintArrays` that may be stored so."""


def of_parts(name: str, parts: Parts, shape: tuple[int, ...], fields: Mapping[str, Any], need: Need) -> StoredArray:
    """A field made of parts of the right types; `need` complains where reading it could trip over something.

    Args:
      shape: of the array, as a file says; fields: those that come before it.
    """
    array: StoredArray
    held = sum(part.nbytes for part in parts.values())
    need(np.prod(shape, dtype=np.float64) * 4 <= held * MOST_TIMES, f"'{name}' is much longer than its parts")
    if name == "rows":
        piece, index = parts["piece"], parts["index"]
        need(piece.shape[1] == PIECE and index.shape == (shape[0], -(-shape[-1] // PIECE)), "'rows' are not cut into pieces")
        _inside(index, len(piece), name, need)
        array = StoredRows(parts, shape)
    elif name == "delta":
        at = parts["at"]
        need(len(at) == len(parts["value"]) and len(at) and (at[1:] > at[:-1]).all(), "'delta' is not sorted")
        _inside(at, shape[0], name, need)
        array = StoredChildren(parts, shape)
    elif name == "arc_token":
        offset, own = parts["offset"], fields["arc_offset"]
        rises = len(offset) > 1 and offset[0] == 0 and offset[-1] == len(parts["token"]) and (offset[1:] >= offset[:-1]).all()
        need(rises, "the lists of 'arc_token' do not rise")
        _inside(parts["list"], len(offset) - 1, name, need)
        array = tokens = StoredTokens(parts)
        nodes = len(tokens.arc_offset)
        need(0 < nodes <= len(own) and (own[:nodes] == tokens.arc_offset).all(), "the lists of 'arc_token' are not its nodes'")
        need((own[nodes:] == own[nodes - 1]).all(), "the lists of 'arc_token' are not its nodes'")
    else:
        tokens, klass, first = fields["arc_token"], parts["class"], parts["first"]
        need(isinstance(tokens, StoredTokens), "'arc_effect' is in parts, but 'arc_token' is not")
        sizes = len(tokens.parts["token"]), len(tokens.parts["list"])
        need((len(klass), len(first)) == sizes, "the lists of 'arc_effect' are not those of 'arc_token'")
        some = _classes(klass, tokens.parts["offset"])[tokens.parts["list"]]
        need(((first >= 0) & (first + some <= len(parts["effect"]))).all(), "'arc_effect' has too few effects")
        array = StoredEffects(parts, tokens)
    need(array.shape == shape, f"'{name}' has not the shape its header promises")
    return array


def _inside(numbers: np.ndarray, bound: int, name: str, need: Need) -> None:
    need(not numbers.size or (numbers.min() >= 0 and numbers.max() < bound), f"'{name}' has a number outside 0..{bound - 1}")
