"""`ConstraintArrays`: the frozen NumPy arrays that carry a constraint to the device, and what each means.

Imports NumPy and the standard library only, so that a decoding process needs neither pynini nor a tokenizer library. The
layout is written down here once; the compiler fills it, `jax_decode.tables.tables` repacks it, `host_walk` executes it in
NumPy, and `file` and `artifact_checks` read and check it.

A *node* stands for a control of a pushdown automaton over tokens (for a control of a counted frame: together with a class
of its register), or for what remains of tokens that have popped stack symbols (an *inner node*). Node 0 is dead.

A *configuration* is a node, a register, and a stack of cells, each holding an effective symbol and the register of the
frame it suspends. Its *sources* are n_0 = the node, and n_(d+1) = `delta[delta_offset[n_d] + symbol]`, where the symbol is
that of the d-th cell from the top: the tokens of source n_d pop exactly d cells. Its register is the current one for d = 0,
else that of the last cell popped. The text so far belongs to the language if any source accepts. A regular constraint is
the case without symbols: its only source is its node.

The outgoing tokens of a node are sets, one per effect (target, push string, registers), stored in one of two ways: *wide*
sets are bit rows shared by all nodes (`group_*`), *narrow* ones are arcs sorted by token (`arc_*`), each with the number of
its effect (`effects`). A node whose tokens
are all narrow and few (`ARC_BURST` at most) has no mask row: its arcs are its mask. Every other node has *levels*: bit
rows of all its tokens that can still finish within a number of tokens and a number of stack cells. In deterministic
constraints (`stacks == 1`) all token sets of all sources of a configuration are disjoint.

The effect of a token taken at source n_d, in a frame whose register is n: d cells are popped; the register becomes
n' = n + add. Without a push string, the target frame is the same one: its register is n'. With one, the frame is suspended
in the first cell of the string (register n'), the further cells hold `push_register`, and the register of the target frame
is `set`. The new node is the target's base node plus its ladder of the final register. Symbols in push strings are base
symbols: the effective symbol is the base symbol plus its ladder of the register of the frame it suspends. A *ladder*
(a0, b0, a1, b1) maps a register n to clip(n - a0, 0, b0) + clip(n - a1, 0, b1). `add` and `set` are constants where they
are not negative; a value k < 0 is looked up per token: `increments[-1 - k, token]`.

A constraint may have *sets of keys* (`keys` is not empty): every frame then has a bit set beside its register, which is saved
and restored with it and starts empty. A *guard* is a condition on a set S, and a change: it allows S if each of its `unset` masks
has a bit that is not in S and its `all` mask lies in S, and then adds its `set` mask. An effect's guard is about the set of the
frame that the token set starts in, before anything is pushed; the set of the frame that a push string opens is the effect's mask,
those of the suspended frames but the first are `push_keys`. A node's guarded arcs belong to its *twin*, a node that is one more
source beside it; a token may occur there several times, with guards of which at most one allows any set. Where tokens leave the
frame of a node under conditions on its set, `pop_guard` lists these, and its children begin at `pop_offset[node, case]`, bit i of
the case saying whether condition i holds. Costs may be negative in such constraints.

What a cell costs may depend on the cells below (`context` is not 0). Every cell then has a *context*, a node without tokens that
no token leads to: the child of the context below by the cell's symbol, the first one below being `context`. Its `distance` is
what the cell costs less than its symbol does.

Rules may have a *temperature*. That of a configuration is the greatest of its sources; where none has any, the sampler's holds.

Costs count tokens, needs count stack cells. The text can be finished in `distance[node]` + cost of all cells tokens. The
tokens of a level of source n_d need, themselves included, at most `level_cost` tokens besides the cost of the cells left
after the d pops, and at most `level_need` cells besides those left. Where a counter is far below its lower bound, a
*slope* (a, k, w) adds w * ceil(max(0, a - n) / k) to `distance` and to the cost of every level and arc of its node.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, Self

import numpy as np

from fsa_compile.artifact.canonical_part import EVERY_SEQUENCE, CanonicalPart
from fsa_compile.artifact.stored_arrays import KINDS, StoredArray, StoredChildren
from fsa_compile.errors import ArtifactError, whole

ARC_BURST = 64
"""Most arcs a node without a mask row may have; the device reads them in one burst."""
UNREACHABLE = np.int32(2**30)
"""Distance of a node from which no accepting node can be reached (node 0 only)."""
UNBOUNDED = 1 << 20
"""Costs and needs of what is not known to be bounded; everything can be finished all the same."""
MAX_REGISTER = 2**29
"""Registers stop here; every bound of a counter is smaller."""
MOST_COUNT = 2**28
"""Costs, needs and bounds of counters are smaller, so that sums of three of them, and a saturated one, fit int32."""
NO_TEMPERATURE = -1.0
"""Temperature of a node of which no lexeme has one."""
LEAST_TEMPERATURE, MOST_TEMPERATURE = 1e-3, 1e6
"""The smallest temperature of a rule, but for 0, and the largest."""
MAX_KEYS = 256
"""Most keys of a set."""
MAX_CONDITIONS = 8
"""Most conditions of a node on what leaves its frame."""
MOST_EXCEPTIONS = 1 << 27
"""Largest number of nodes times the most exceptions of one, in canonical constraints."""
_REGULAR = np.zeros(0, np.int32)
"""Stands for the array of a regular constraint, which `__post_init__` puts in its place."""


def _array(dtype: type, dimensions: int) -> Any:
    """A field for an array that every constraint says."""
    return dataclasses.field(metadata={"array": (dtype, dimensions)})


def _regular(dtype: type, *shape: int | str) -> Any:
    """A field for an array that is left out where it is 0 throughout and of this shape, as in regular constraints; letters are
    those of the axes."""
    return dataclasses.field(default_factory=lambda: _REGULAR, metadata={"array": (dtype, len(shape)), "shape": shape})


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ConstraintArrays:
    """The arrays of a constraint over one vocabulary.

    `rows`, `arc_token`, `arc_effect` and `delta` may be `StoredArray`s: read like arrays, they take less room.

    Axes: N nodes, R rows, W = ceil(V / 32) words, G wide groups, A narrow arcs, L levels, V tokenizer ids, P effective stack
    symbols, S push strings, U symbols in them, I per-token tables. The arrays from `group_push` on have defaults, which are
    those of a regular constraint; its effects are its nodes.

    Attributes:
      vocab_size: V.
      fingerprint: of the vocabulary it was compiled for (hex).
      stop_ids: default end-of-text ids of that vocabulary; never part of a token set.
      source: what was compiled, for people (a pattern, a description).
      start: initial node (a base node; the register is 0).
      accept: bool[N], the text may end when this node is a source of the configuration.
      distance: int32[N], least number of further tokens to the end of the node's own frame (0 when it may return or end
        here); of inner nodes 0.
      rows: uint32[R, W], token sets; token t is bit t % 32 of word t // 32; row 0 is empty.
      group_offset: int32[N + 1]; groups of node n are `group_offset[n]:group_offset[n + 1]`.
      group_row, group_next: int32[G], token set and target's base node of each wide group.
      arc_offset: int32[N + 1]; arcs of node n, sorted by token.
      arc_token, arc_effect: int32[A], row of `effects`, never 0.
      level_offset: int32[N + 1]; levels of node n, by ascending (cost, need); none when the node's arcs are its mask.
      level_cost: int32[L], tokens that the level's costliest token and the rest of its completion take.
      level_row: int32[L], row of all tokens whose cost is at most `level_cost` and whose need is at most `level_need`. The
        levels of a node form a grid: where (c, n) and (c', n') are levels, so is (max c, c'; max n, n') unless it adds nothing,
        so that the last level within two limits holds every token within them.
      group_push: int32[G], push string, 0 for none.
      group_add: int32[G], added to the register of the frame the token set starts in.
      group_set: int32[G], register of the target frame where something is pushed.
      effects: int32[E, 6] (int32[E, 8] with sets of keys), the distinct effects of arcs (`arc_effects` numbers them): target's
        base node, push string, add and set as above, then cost and need, which are what `level_cost` and `level_need` are to
        sets; then guard, and row of `keys`. Row 0 stands for none.
      level_need: int32[L], stack cells beyond those left after the pops.
      level_slope: int32[N, 3], slope of `distance` and of the costs of a node, by the register of its frame.
      need: int32[N], least number of cells beyond the present ones to the end of the node's own frame; of inner nodes 0.
      ladder: int32[N, 4], of base nodes.
      increments: uint16[I, V].
      push_offset: int32[S + 1]; symbols of push string s, bottom first, are `push_offset[s]:push_offset[s + 1]`.
      push_symbol: int32[U], base symbols.
      push_register: int32[U], registers of the frames they suspend; that of a string's first symbol is not used, except in
        `initial_push`.
      symbol_ladder: int32[P, 4], of base symbols.
      symbol_cost: int32[P], tokens to the end of the suspended frame after the return to it, whatever lies below.
      symbol_need: int32[P], cells beyond those below the symbol that this may take.
      symbol_slope: int32[P, 3], slope of `symbol_cost`, by the register of the suspended frame.
      keys: uint32[Q, W'], masks of keys, key i is bit i % 32 of word i // 32; row 0 is empty. The arrays from here to
        `push_keys` have no elements where there are no sets.
      guards: int32[D, 4], first row of `keys` and number of the `unset` masks, rows of `all` and `set`; guard 0 allows all.
      twin: int32[N], 0 for none.
      wanted: int32[N, 2], a guard (0: none), and the distance in place of `distance` where it allows the set of the node's frame.
      pop_guard: int32[N, M], guards, 0 from the node's last condition on.
      pop_offset: int32[N, 2 ** M].
      push_keys: int32[U], rows of `keys`.
      delta_offset: int32[N], where the P children of each node begin in `delta`, a multiple of P.
      delta: int32[*], segments of P: source after popping each symbol, 0 for none; equal segments are shared.
      temperature: float32[N], greatest temperature of the lexemes that a text may begin or go on where the node is a source,
        NO_TEMPERATURE for none; of no elements where no rule has one.
      initial_push: push string of the stack at the start.
      context: the context of the empty stack; 0 where every cell costs what its symbol does, as in canonical constraints.
      max_pops: D, the longest path in `delta`: most cells one token pops.
      max_push: length of the longest push string.
      stacks: how many configurations are followed at once; 1 for a deterministic constraint.
      canonical: what a canonical constraint says of its tokenizer's filter.
      extra: small JSON values a front end wants to keep (names, options).
    """

    vocab_size: int
    fingerprint: str
    stop_ids: tuple[int, ...]
    source: str
    start: int
    accept: np.ndarray = _array(np.bool_, 1)
    distance: np.ndarray = _array(np.int32, 1)
    rows: np.ndarray = _array(np.uint32, 2)
    group_offset: np.ndarray = _array(np.int32, 1)
    group_row: np.ndarray = _array(np.int32, 1)
    group_next: np.ndarray = _array(np.int32, 1)
    arc_offset: np.ndarray = _array(np.int32, 1)
    arc_token: np.ndarray = _array(np.int32, 1)
    arc_effect: np.ndarray = _array(np.int32, 1)
    level_offset: np.ndarray = _array(np.int32, 1)
    level_cost: np.ndarray = _array(np.int32, 1)
    level_row: np.ndarray = _array(np.int32, 1)
    group_push: np.ndarray = _regular(np.int32, "G")
    group_add: np.ndarray = _regular(np.int32, "G")
    group_set: np.ndarray = _regular(np.int32, "G")
    effects: np.ndarray = _regular(np.int32, "N", 6)
    level_need: np.ndarray = _regular(np.int32, "L")
    level_slope: np.ndarray = _regular(np.int32, "N", 3)
    need: np.ndarray = _regular(np.int32, "N")
    ladder: np.ndarray = _regular(np.int32, "N", 4)
    increments: np.ndarray = _regular(np.uint16, 0, "V")
    push_offset: np.ndarray = _regular(np.int32, 2)
    push_symbol: np.ndarray = _regular(np.int32, 0)
    push_register: np.ndarray = _regular(np.int32, 0)
    symbol_ladder: np.ndarray = _regular(np.int32, 0, 4)
    symbol_cost: np.ndarray = _regular(np.int32, 0)
    symbol_need: np.ndarray = _regular(np.int32, 0)
    symbol_slope: np.ndarray = _regular(np.int32, 0, 3)
    delta_offset: np.ndarray = _regular(np.int32, "N")
    delta: np.ndarray = _regular(np.int32, 0)
    keys: np.ndarray = _regular(np.uint32, 0, 0)
    guards: np.ndarray = _regular(np.int32, 0, 4)
    twin: np.ndarray = _regular(np.int32, 0)
    wanted: np.ndarray = _regular(np.int32, 0, 2)
    pop_guard: np.ndarray = _regular(np.int32, 0, 0)
    pop_offset: np.ndarray = _regular(np.int32, 0, 0)
    push_keys: np.ndarray = _regular(np.int32, 0)
    temperature: np.ndarray = _regular(np.float32, 0)
    initial_push: int = 0
    context: int = 0
    max_pops: int = 0
    max_push: int = 0
    stacks: int = 1
    canonical: CanonicalPart = EVERY_SEQUENCE
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in [name for name in ARRAYS if getattr(self, name) is _REGULAR]:
            object.__setattr__(self, name, _regular_array(self, name))
        if self.is_canonical:  # contexts count on tokens that a tokenizer's filter may forbid
            object.__setattr__(self, "context", 0)
        for name in ARRAYS:
            getattr(self, name).setflags(write=False)

    @property
    def num_nodes(self) -> int:
        """N, the dead node included."""
        return len(self.accept)

    @property
    def num_rows(self) -> int:
        """R, the empty row included."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(self, name).nbytes for name in ARRAYS)

    def written_out(self) -> Self:
        """The constraint without arrays in parts, or itself if it has none."""
        arrays = {name: getattr(self, name) for name in KINDS}
        changes: dict[str, Any] = {name: np.asarray(x) for name, x in arrays.items() if isinstance(x, StoredArray)}
        return dataclasses.replace(self, **changes) if changes else self

    @property
    def children(self) -> tuple[np.ndarray, np.ndarray]:
        """(place, child) of the entries of `delta` that are not 0, by place: int64[E], int32[E]."""
        if isinstance(self.delta, StoredChildren):
            at, value = self.delta.parts["at"].astype(np.int64), self.delta.parts["value"]
            return (at, value) if value.all() else (at[value != 0], value[value != 0])
        at = self.delta.nonzero()[0]
        return at, self.delta[at]

    @property
    def num_symbols(self) -> int:
        """P, effective stack symbols; 0 for a regular constraint."""
        return len(self.symbol_cost)

    @property
    def has_sets(self) -> bool:
        """Whether frames have sets of keys."""
        return len(self.keys) > 0

    @property
    def arc_next(self) -> np.ndarray:
        """int32[A], target's base node of each arc, made anew."""
        return self.effects[np.asarray(self.arc_effect), 0]

    @property
    def arc_push(self) -> np.ndarray:
        """int32[A], push string of each arc, made anew."""
        return self.effects[np.asarray(self.arc_effect), 1]

    @property
    def arc_add(self) -> np.ndarray:
        """int32[A], what each arc adds to the register, made anew."""
        return self.effects[np.asarray(self.arc_effect), 2]

    @property
    def arc_set(self) -> np.ndarray:
        """int32[A], register of the target frame of each arc, made anew."""
        return self.effects[np.asarray(self.arc_effect), 3]

    @property
    def arc_cost(self) -> np.ndarray:
        """int32[A], cost of each arc, made anew."""
        return self.effects[np.asarray(self.arc_effect), 4]

    @property
    def arc_need(self) -> np.ndarray:
        """int32[A], need of each arc, made anew."""
        return self.effects[np.asarray(self.arc_effect), 5]

    @property
    def is_regular(self) -> bool:
        """Whether the node alone says where a text stands: there are neither stack symbols nor registers."""
        return not (self.num_symbols or self.increments.size or self.ladder.any() or self.level_slope[:, 2].any())

    @property
    def is_canonical(self) -> bool:
        """Whether only canonical token sequences are allowed: then a walk needs the tokenizer's canonical tables too."""
        return bool(self.canonical.tables)

    @property
    def canonical_start(self) -> tuple[int, int, int]:
        """Of a canonical constraint: the last token of the prompt that its texts continue, -1 for none, the number of tokens of a
        shortest text, and the state of the tokenizer's filter behind the prompt."""
        if self.canonical.state < 0:
            what = "where a canonical constraint begins is missing: it may be an earlier version's"
            raise ArtifactError(what, fix="Compile the constraint again.")
        return self.canonical.last, self.canonical.shortest, self.canonical.state

    @property
    def canonical_unless(self) -> tuple[list[list[int]], np.ndarray]:
        """Of a canonical constraint: lists of states of the tokenizer's filter; and by node, rows of the tokens that may not lead
        to a state of some list, each with the number of its list, int32[N, K, 2], row 0 for none."""
        notes = self.canonical.unless
        at = Counter(node for node, *_ in notes)
        unless = np.zeros((self.num_nodes, max(at.values(), default=1), 2), np.int32)
        for node, row, number in reversed(notes):
            at[node] -= 1
            unless[node, at[node]] = row, number
        return [list(states) for states in self.canonical.excepted], unless

    @property
    def max_groups(self) -> int:
        """The largest number of wide groups of a node."""
        return int(np.diff(self.group_offset).max())

    def __repr__(self) -> str:
        source = self.source if len(self.source) <= 60 else self.source[:57] + "..."
        return (
            f"{type(self).__name__}({source!r}, {self.num_nodes:,} nodes, {self.num_rows:,} rows, "
            f"{self.nbytes / 1e6:.2f} MB, {self.vocab_size:,} tokens{self._open_objects()})"
        )

    def _open_objects(self) -> str:
        """Where a JSON Schema lets objects have keys that it does not name, in words."""
        places = self.extra.get("open_objects", [])
        shown = ", ".join(places[:3]) + (", …" if len(places) > 3 else "")
        return f", objects open to other keys at {shown}" if places else ""

    def outgoing(self, node: int) -> np.ndarray:
        """Base target of every token of one node, int32[V], 0 where it has none. Slow and plain: for tests and drawings.

        Raises:
          ConstraintError: there is no such node.
        """
        node = whole(node, "the node", self.num_nodes - 1)
        out = np.zeros(self.vocab_size, np.int32)
        for g in range(self.group_offset[node], self.group_offset[node + 1]):
            out[self.row_tokens(self.group_row[g])] = self.group_next[g]
        arcs = slice(self.arc_offset[node], self.arc_offset[node + 1])
        out[self.arc_token[arcs]] = self.effects[self.arc_effect[arcs], 0]
        return out

    def row_tokens(self, row: int) -> np.ndarray:
        """Token ids of a bit row, ascending, int64; raises `ConstraintError` where there is none of that number."""
        row = whole(row, "the row", self.num_rows - 1)
        return np.flatnonzero(unpack_row(self.rows[row], self.vocab_size))


_FIELDS = {field.name: field.metadata for field in dataclasses.fields(ConstraintArrays) if "array" in field.metadata}
ARRAYS: dict[str, tuple[type, int]] = {name: about["array"] for name, about in _FIELDS.items()}
"""Array fields of `ConstraintArrays`: dtype and number of dimensions."""
SET_ARRAYS = ("keys", "guards", "twin", "wanted", "pop_guard", "pop_offset", "push_keys")
"""Those of them that files of constraints without sets of keys do not hold."""
OPTIONAL_ARRAYS = (*SET_ARRAYS, "temperature")
"""Those of them that some files do not hold."""

SCALARS: dict[str, type] = {
    "vocab_size": int,
    "fingerprint": str,
    "stop_ids": list,
    "source": str,
    "start": int,
    "initial_push": int,
    "context": int,
    "max_pops": int,
    "max_push": int,
    "stacks": int,
    "extra": dict,
}
"""The other fields but `canonical`: their types in the file's header."""


def _regular_array(c: ConstraintArrays, name: str) -> np.ndarray:
    """What an array that was left out is: that of a regular constraint."""
    n = len(c.accept)
    axes = {"N": n, "G": len(c.group_row), "L": len(c.level_row), "V": c.vocab_size}
    out: np.ndarray = np.zeros([axes.get(size, size) for size in _FIELDS[name]["shape"]], ARRAYS[name][0])
    if name == "effects":
        out[1:, 0], out[1:, 4] = np.arange(1, n), 1 + c.distance[1:]
    elif name == "level_slope":
        out[:, 1] = 1
    return out


def check_vocabulary(constraint: Any, vocabulary: Any, *, where: str = "") -> None:
    """Raises `ArtifactError` unless a constraint (or items) was compiled for this vocabulary (or tokenizer)."""
    if not all(hasattr(constraint, name) for name in ("vocab_size", "fingerprint")):
        what = f"a compiled constraint is needed, not {type(constraint).__name__}"
        raise ArtifactError(what, where=where, fix="Pass what compile_... or load returned, then the tokenizer.")
    vocabulary = getattr(vocabulary, "vocabulary", vocabulary)
    if not all(hasattr(vocabulary, name) for name in ("fingerprint", "size")):  # as neither a constraint nor tables have
        what = f"a vocabulary or tokenizer is needed to check the constraint, not {type(vocabulary).__name__}"
        raise ArtifactError(what, where=where, fix="Pass what fsa_compile.load_tokenizer(path) returns.")
    if constraint.fingerprint != vocabulary.fingerprint:
        raise ArtifactError(
            f"the constraint was compiled for vocabulary {constraint.fingerprint[:12]} "
            f"({constraint.vocab_size:,} tokens); this one is {vocabulary.fingerprint[:12]} ({vocabulary.size:,})",
            where=where,
            fix="Compile it again for this tokenizer.",
        )


def unpack_row(words: np.ndarray, size: int) -> np.ndarray:
    """A bit row as booleans, bool[size]."""
    return np.unpackbits(words.view(np.uint8), bitorder="little", count=size).view(bool)
