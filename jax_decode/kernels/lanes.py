"""A function of one row as one kernel for all rows of a batch, a row in every lane (Pallas, compiled by Mosaic for a TPU).

On a TPU every operation of a step takes more than a microsecond, however little it does, and most of a step's work is on a few
numbers of every row. The function is traced for a batch of one row, and every number of it becomes a vector over the rows: all
that only arranges numbers is done while tracing. Tables lie in the core's memory with their records along the lanes, where one
instruction reads a record of 128 for each of 128 rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from jax_decode.kernels.one_pass import wanted
from jax_decode.kernels.placement import spread_by_xla
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.target import compiled_for, target

TARGET = "lanes"
"""What functions of one row are traced for."""
MOST_ENTRIES = 1 << 15
"""Of a table: every read looks at all of it, 1,024 entries at a time."""
_SUBLANES, _BLOCK = 8, 1024
_AT_ONCE, _RUNS = 24, 2
"""Entries, or lists of entries, that one loop looks for: more do not fit into the registers."""
_MANY = 4
"""Blocks from which on lists of entries are looked for together."""


class NotInLanesError(Exception):
    """A function cannot be such a kernel: a table is too large, or JAX writes it with an operation that is not known here."""


def in_lanes(*tables: jax.Array) -> bool:
    """Whether what is traced now is a program that uses this kernel, and the tables have few enough entries (`MOST_ENTRIES`)."""
    if any(_entries(table) > MOST_ENTRIES for table in tables):
        return False
    return target() == "tpu" and wanted("tpu") and _reads_along_lanes() and not spread_by_xla()


def _reads_along_lanes() -> bool:
    """Whether the TPU that is here, if one is, has the instruction that reads at an index for every lane: not a v2 or v3."""
    return jax.default_backend() != "tpu" or jax.devices()[0].device_kind not in ("TPU v2", "TPU v3")


def by_lanes(function: Callable[[Any, Any], Any], tables: Any, rows: Any, *, interpret: bool = False) -> Any:
    """`function(tables, rows)` by one kernel.

    Args:
      function: of integers and truth values; closes over nothing that is traced.
      tables: a tree of arrays that it only reads records of, by `kernels.gather`: all axes but the last at indices.
      rows: a tree of arrays [B, ...], and what it returns likewise.
      interpret: run without a TPU, slowly.

    Raises:
      NotInLanesError: while tracing.
    """
    leaves, rows_tree = jax.tree.flatten(rows)
    of_tables = jax.tree.leaves(tables)
    one = jax.tree.unflatten(rows_tree, [jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype) for x in leaves])
    with compiled_for(TARGET):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(tables, one)
    used = {id(v) for v in closed.jaxpr.outvars} | {id(v) for eqn in _needed(closed.jaxpr) for v in eqn.invars}
    ins, count = closed.jaxpr.invars, len(of_tables)
    ours = [i for i in range(count) if id(ins[i]) in used]
    if not (_is_known(closed.jaxpr) and all(_entries(of_tables[i]) <= MOST_ENTRIES for i in ours)):
        raise NotInLanesError(function.__name__)
    own = [i for i, x in enumerate(leaves) if x.size and id(ins[count + i]) in used]
    outs, out_tree = jax.tree.flatten(shapes)
    batch = len(leaves[0])

    def kernel(*refs: Any) -> None:
        given: list[Any] = [None] * count + [_numbers([], (1, *x.shape[1:])) if not x.size else None for x in leaves]
        for i, ref in zip(ours, refs):
            given[i] = _Table(ref, of_tables[i].shape)
        for i, ref in zip(own, refs[len(ours) :]):
            x = leaves[i]
            given[count + i] = _numbers([_typed(ref[k : k + 1], x.dtype) for k in range(ref.shape[0])], (1, *x.shape[1:]))
        for ref, found in zip(refs[len(ours) + len(own) :], _run(closed.jaxpr, closed.consts, given, {})):
            for k, x in enumerate(found.flat):
                ref[k : k + 1] = jnp.broadcast_to(_typed(x, np.int32), (1, LANES))

    def spec(count: int) -> pl.BlockSpec:
        return pl.BlockSpec((count, LANES), lambda i: (0, i))

    shown = [_across(of_tables[i]) for i in ours]
    whole = [pl.BlockSpec((x.shape[0], -(-x.shape[1] // _BLOCK) * _BLOCK), lambda i: (0, 0)) for x in shown]
    columns = [leaves[i].reshape(batch, -1).T for i in own]
    columns = [x if x.dtype.itemsize == 4 else x.astype(jnp.int32) for x in columns]
    sizes = [max(x.size, 1) for x in outs]
    found = pl.pallas_call(
        kernel,
        grid=(-(-batch // LANES),),
        in_specs=[*whole, *(spec(len(x)) for x in columns)],
        out_specs=[spec(n) for n in sizes],
        out_shape=[jax.ShapeDtypeStruct((n, batch), jnp.int32) for n in sizes],
        interpret=interpret,
        name=f"lanes_{function.__name__}",
    )(*shown, *columns)
    return jax.tree.unflatten(out_tree, [x.T.reshape(batch, *s.shape[1:]).astype(s.dtype) for x, s in zip(found, outs)])


def _entries(table: jax.Array) -> int:
    return int(np.prod(table.shape[:-1] or table.shape))


def _across(table: jax.Array) -> jax.Array:
    """Records along the lanes, columns along the sublanes."""
    return table.reshape(_entries(table), -1).T.astype(jnp.int32)


class _Table:
    """Reads of a table in the core's memory."""

    def __init__(self, ref: Any, shape: Sequence[int]) -> None:
        self.ref, self.shape = ref, tuple(shape)
        self.blocks = ref.shape[1] // _BLOCK
        self.read: dict[Any, Any] = {}

    def records(self, index: Sequence[Any], columns: Sequence[int], sums: dict[int, Any]) -> list[list[Any]]:
        """Columns of the records at every index; `sums`: of which numbers an index is a sum, if it is a number and a constant."""
        runs: dict[int, Any] = {}
        for i in index:
            base, place, _ = sums.get(id(i), (i, 0, None))
            runs.setdefault(id(base), (base, {}))[1][int(place)] = i
        every = list(runs.values())
        together = self.blocks >= _MANY and min(len(own) for _, own in every) > _SUBLANES
        for begin in range(0, len(every) if together else 0, _RUNS):
            self._read_runs(every[begin : begin + _RUNS], columns)
        left = [(i, c) for i in index for c in columns if (id(i), c) not in self.read]
        for begin in range(0, len(left), _AT_ONCE):
            self._read_some(left[begin : begin + _AT_ONCE])
        return [[self.read[id(i), c][1] for c in columns] for i in index]

    def _read_runs(self, runs: Sequence[tuple[Any, dict[int, Any]]], columns: Sequence[int]) -> None:
        """Of lists of entries that lie one after another: 8 of them by one instruction, where those of 128 lie along sublanes."""
        spans = [(base + min(own), range(min(own), max(own) + 1)) for base, own in runs]
        windows = [
            [(begin >> 3) + k for k in range(-(-(len(span) + _SUBLANES - 1) // _SUBLANES))] for begin, span in spans
        ]
        at = {(r, k): jnp.broadcast_to(x, (_SUBLANES, LANES)) for r, own in enumerate(windows) for k, x in enumerate(own)}
        place, block = {k: (x >> 4) & (LANES - 1) for k, x in at.items()}, {k: ((x >> 11) << 4) | (x & 15) for k, x in at.items()}
        found = {(key, c): jnp.zeros((_SUBLANES, LANES), jnp.int32) for key in at for c in columns}
        for b in range(-(-self.ref.shape[1] // (LANES * LANES)) * 16):
            if b % 16 == 0:
                across = {c: self._transposed(c, b // 16 * LANES * LANES) for c in columns}
            for key in at:
                for c in columns:
                    own = across[c][b % 16 * _SUBLANES : (b % 16 + 1) * _SUBLANES]
                    own = jnp.take_along_axis(own, place[key], 1, mode="promise_in_bounds")
                    found[key, c] = jnp.where(block[key] == b, own, found[key, c])
        for r, (begin, span) in enumerate(spans):
            for c in columns:
                x = jnp.concatenate([found[(r, k), c] for k in range(len(windows[r]))], 0)
                for bit in (4, 2, 1):  # from where the list begins on
                    moves = jnp.broadcast_to((begin & bit) != 0, x.shape)
                    x = jnp.where(moves, jnp.concatenate([x[bit:], x[:bit]], 0), x)
                for k, i in runs[r][1].items():
                    self.read[id(i), c] = i, x[k - span.start : k - span.start + 1]

    def _transposed(self, column: int, first: int) -> jax.Array:
        """Entries of a column from one on, int32[128, 128], those of 128 along the sublanes."""
        tiles = min((self.ref.shape[1] - first) // LANES, LANES)
        own = self.ref[column : column + 1, first : first + tiles * LANES].reshape(tiles, LANES)
        return jnp.concatenate([own, jnp.zeros((LANES - tiles, LANES), jnp.int32)], 0).T if tiles < LANES else own.T

    def _read_some(self, some: list[tuple[Any, int]]) -> None:
        """Of every index the entry of a column: one instruction looks at 1,024 of them."""
        at = {id(i): jnp.broadcast_to(i, (_SUBLANES, LANES)) for i, _ in some}
        place, block = {k: x & (LANES - 1) for k, x in at.items()}, {k: x >> 10 for k, x in at.items()}

        def another(j: Any, found: Sequence[jax.Array]) -> list[jax.Array]:
            own = {c: self.ref[c : c + 1, pl.ds(j * _BLOCK, _BLOCK)].reshape(_SUBLANES, LANES) for _, c in some}
            seen = [jnp.take_along_axis(own[c], place[id(i)], 1, mode="promise_in_bounds") for i, c in some]
            return seen if self.blocks == 1 else [jnp.where(block[id(i)] == j, x, y) for (i, _), x, y in zip(some, seen, found)]

        found = [jnp.zeros((_SUBLANES, LANES), jnp.int32)] * len(some)
        if self.blocks > 1:
            found = jax.lax.fori_loop(0, self.blocks, another, found, unroll=max(_AT_ONCE // len(some), 1))
        else:
            found = another(0, found)
        order = jax.lax.broadcasted_iota(jnp.int32, (_SUBLANES, LANES), 0)
        for (i, c), x in zip(some, found):
            own = order == ((at[id(i)] >> 7) & (_SUBLANES - 1))
            self.read[id(i), c] = i, jnp.where(own, x, 0).sum(0, keepdims=True)


def _numbers(values: Sequence[Any], shape: Sequence[int]) -> Any:
    out = np.empty(len(values), object)
    for i, x in enumerate(values):
        out[i] = x
    return out.reshape(shape)


def _typed(x: Any, dtype: Any) -> Any:
    """A vector or a number of another type."""
    if x.dtype == dtype:
        return x
    if isinstance(x, np.generic):
        return x.astype(dtype)
    if x.dtype == bool:
        return jnp.where(x, 1, 0).astype(dtype)
    return x != 0 if np.dtype(dtype).kind == "b" else x.astype(dtype)


def _needed(jaxpr: Any) -> list[Any]:
    """The operations that a result depends on."""
    used, found = {id(v) for v in jaxpr.outvars}, []
    for eqn in reversed(jaxpr.eqns):
        if any(id(v) in used for v in eqn.outvars):
            found.append(eqn)
            used |= {id(v) for v in eqn.invars}
    return found[::-1]


def _run(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], sums: dict[int, Any]) -> list[Any]:
    """The results of a program of one row; its numbers are vectors over the rows, or of NumPy where they are known."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, (_known(x) for x in consts)))
    known.update(zip(jaxpr.invars, given))

    def value(atom: Any) -> Any:
        return known[atom] if not hasattr(atom, "val") else _known(atom.val)

    needed = _needed(jaxpr)
    for eqn in needed:
        name, ins, inner = eqn.primitive.name, [value(v) for v in eqn.invars], _inner(eqn)
        if inner is not None:
            found = _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), ins, sums)
        elif name in _PASSED_ON:
            found = ins
        elif name == "gather":
            found = [_gather(ins[0], ins[1], eqn.params["slice_sizes"], _columns_of(eqn, needed), sums)]
        elif name in _ARRANGED:
            found = [_ARRANGED[name](eqn, *ins)]
        elif name in _REDUCED:
            found = [_reduced(_REDUCED[name], ins[0], eqn.params["axes"])]
        else:
            found = [_each(_elementwise(eqn), *ins)]
        if name == "add":
            for x, y, z in zip(found[0].flat, *(np.broadcast_to(x, found[0].shape).flat for x in ins)):
                if isinstance(z, np.generic) and not isinstance(y, np.generic):
                    sums[id(x)] = y, z, x
        known.update(zip(eqn.outvars, found))
    return [value(v) for v in jaxpr.outvars]


def _columns_of(gather: Any, eqns: Sequence[Any]) -> list[int]:
    """Which columns of the records that are read anything depends on."""
    [out] = gather.outvars
    users = [eqn for eqn in eqns if any(v is out for v in eqn.invars)]
    every = range(out.aval.shape[-1] if out.aval.ndim else 1)
    if any(eqn.primitive.name != "slice" for eqn in users):
        return [*every]
    return sorted({i for eqn in users for i in every[eqn.params["start_indices"][-1] : eqn.params["limit_indices"][-1]]})


def _inner(eqn: Any) -> Any:
    """The function that an operation only calls; None for others."""
    return eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")) if eqn.primitive.name in _CALLS else None


def _is_known(jaxpr: Any) -> bool:
    """Whether all operations of a program can be read."""
    return all(
        _is_known(getattr(inner, "jaxpr", inner)) if (inner := _inner(eqn)) is not None else eqn.primitive.name in _READ
        for eqn in jaxpr.eqns
    )


def _known(x: Any) -> Any:
    x = np.asarray(x)
    return _numbers([x.dtype.type(y) for y in x.flat], x.shape)


def _each(function: Callable[..., Any], *arrays: Any) -> Any:
    arrays = np.broadcast_arrays(*arrays)
    return _numbers([function(*x) for x in zip(*(a.flat for a in arrays))], arrays[0].shape)


def _reduced(function: Callable[[Any, Any], Any], x: Any, axes: Sequence[int]) -> Any:
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = [x.shape[i] for i in kept]
    lines = x.transpose(*kept, *axes).reshape(*shape, -1)
    out = lines[..., 0]
    for i in range(1, lines.shape[-1]):
        out = _each(function, out, lines[..., i])
    return out


def _gather(operand: Any, index: Any, sizes: Sequence[int], columns: Sequence[int], sums: dict[int, Any]) -> Any:
    """`jax.lax.gather` in the forms of `kernels.gather`: the first axes at indices, the others whole or up to a column."""
    shape, count, rest = operand.shape, index.shape[-1], tuple(sizes[index.shape[-1] :])
    places = index.reshape(-1, count)
    if not isinstance(operand, _Table):
        lines = operand.reshape(-1, *shape[count:])[..., : rest[0]] if rest else operand.reshape(-1, 1)
        found = [_chosen(line, _flat(place, shape)) for place in places for line in lines.T]
        return _numbers(found, (*index.shape[:-1], *rest))
    of_records = max(len(shape) - 1, 1)
    rows = [_flat(place[:of_records], shape[:of_records]) for place in places]
    own = {int(place[-1]) for place in places} if count > of_records else {0}
    assert len(own) == 1, "the numbers of one read are of one column"
    columns = columns if rest else [*own]
    numbers = np.empty((len(rows), rest[0] if rest else 1), object)
    for k, record in enumerate(operand.records(rows, columns, sums)):
        for c, x in zip(columns, record):
            numbers[k, c if rest else 0] = x
    return numbers.reshape(*index.shape[:-1], *rest)


def _flat(place: Sequence[Any], shape: Sequence[int]) -> Any:
    flat = place[0]
    for x, size in zip(place[1:], shape[1:]):
        flat = flat * np.int32(size) + x
    return flat


def _chosen(values: Any, index: Any) -> Any:
    if isinstance(index, np.generic):
        return values[int(index)]
    out = values[0]
    for i in range(1, len(values)):
        out = jnp.where(index == i, values[i], out)
    return out


def _elementwise(eqn: Any) -> Callable[..., Any]:
    name = eqn.primitive.name
    if name == "convert_element_type":
        return lambda x: _typed(x, eqn.params["new_dtype"])
    return _ELEMENTWISE[name]


def _both(of_numbers: Callable[..., Any], of_vectors: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *x: (of_numbers if all(isinstance(y, np.generic) for y in x) else of_vectors)(*x)


def _select(which: Any, no: Any, yes: Any) -> Any:
    if isinstance(which, np.generic):
        return yes if which else no
    if yes is no:
        return yes
    return (which & yes) | (~which & no) if no.dtype == bool else jnp.where(which, yes, no)


def _iota(eqn: Any) -> Any:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    own = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return _known(np.broadcast_to(own, shape).astype(eqn.params["dtype"]))


def _broadcast(eqn: Any, x: Any) -> Any:
    own = [1] * len(eqn.params["shape"])
    for i, axis in enumerate(eqn.params["broadcast_dimensions"]):
        own[axis] = x.shape[i]
    return np.broadcast_to(x.reshape(own), eqn.params["shape"])


def _slice(eqn: Any, x: Any) -> Any:
    p = eqn.params
    return x[tuple(slice(*one) for one in zip(p["start_indices"], p["limit_indices"], p["strides"] or (1,) * x.ndim))]


_ARRANGED: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda eqn, *x: np.concatenate(x, eqn.params["dimension"]),
    "iota": _iota,
    "reshape": lambda eqn, x: x.reshape(eqn.params["new_sizes"]),
    "slice": _slice,
    "squeeze": lambda eqn, x: x.reshape(eqn.outvars[0].aval.shape),
    "stack": lambda eqn, *x: np.stack(x, eqn.params["axis"]),
    "transpose": lambda eqn, x: x.transpose(eqn.params["permutation"]),
}
_MAX, _MIN = _both(np.maximum, jnp.maximum), _both(np.minimum, jnp.minimum)
_REDUCED: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_max": _MAX,
    "reduce_min": _MIN,
    "reduce_sum": operator.add,
    "reduce_or": operator.or_,
    "reduce_and": operator.and_,
}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _both(lambda x, y: type(x)(int(x) // int(y)), jax.lax.div),
    "max": _MAX,
    "min": _MIN,
    "clamp": lambda low, x, high: _MIN(_MAX(x, low), high),
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "shift_right_logical": jax.lax.shift_right_logical,
    "shift_left": _both(operator.lshift, jax.lax.shift_left),
    "select_n": _select,
}
_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call")
_PASSED_ON = ("optimization_barrier", "reshard")
_READ = {*_ARRANGED, *_REDUCED, *_ELEMENTWISE, *_PASSED_ON, "gather", "convert_element_type"}
