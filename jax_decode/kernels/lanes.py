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
MOST_ENTRIES = 1 << 14
"""Of a table: every read looks at all of it, 128 entries at a time."""
MORE_ENTRIES = 1 << 15
"""Likewise, for functions that read few records."""
_SUBLANES, _UNROLLED = 8, 32


class NotInLanesError(Exception):
    """A function cannot be such a kernel: a table is too large, or JAX writes it with an operation that is not known here."""


def in_lanes(*tables: jax.Array, most: int | None = None) -> bool:
    """Whether what is traced now is a program that uses this kernel, and the tables have few enough entries (`MOST_ENTRIES`)."""
    if any(_entries(table) > (most or MOST_ENTRIES) for table in tables):
        return False
    return target() == "tpu" and wanted("tpu") and _reads_along_lanes() and not spread_by_xla()


def _reads_along_lanes() -> bool:
    """Whether the TPU that is here, if one is, has the instruction that reads at an index for every lane: not a v2 or v3."""
    return jax.default_backend() != "tpu" or jax.devices()[0].device_kind not in ("TPU v2", "TPU v3")


def by_lanes(
    function: Callable[[Any, Any], Any], tables: Any, rows: Any, *, most: int | None = None, interpret: bool = False
) -> Any:
    """`function(tables, rows)` by one kernel.

    Args:
      function: of integers and truth values; closes over nothing that is traced.
      tables: a tree of arrays that it only reads records of, by `kernels.gather`: all axes but the last at indices.
      rows: a tree of arrays [B, ...], and what it returns likewise.
      most: entries of each table that it reads; see `MOST_ENTRIES`.
      interpret: run without a TPU, slowly.

    Raises:
      NotInLanesError: while tracing.
    """
    leaves, rows_tree = jax.tree.flatten(rows)
    of_tables = jax.tree.leaves(tables)
    one = jax.tree.unflatten(rows_tree, [jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype) for x in leaves])
    with compiled_for(TARGET):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(tables, one)
    used = {id(v) for v in closed.jaxpr.outvars} | {id(v) for eqn in closed.jaxpr.eqns for v in eqn.invars}
    ins, count = closed.jaxpr.invars, len(of_tables)
    ours = [i for i in range(count) if id(ins[i]) in used]
    if not (_is_known(closed.jaxpr) and all(_entries(of_tables[i]) <= (most or MOST_ENTRIES) for i in ours)):
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
        for ref, found in zip(refs[len(ours) + len(own) :], _run(closed.jaxpr, closed.consts, given)):
            for k, x in enumerate(found.flat):
                ref[k : k + 1] = jnp.broadcast_to(_typed(x, np.int32), (1, LANES))

    def spec(count: int) -> pl.BlockSpec:
        return pl.BlockSpec((count, LANES), lambda i: (0, i))

    shown = [_across(of_tables[i]) for i in ours]
    whole = [pl.BlockSpec(tuple(-(-n // k) * k for n, k in zip(x.shape, (_SUBLANES, LANES))), lambda i: (0, 0)) for x in shown]
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
        self.read: dict[Any, Any] = {}

    def records(self, index: Sequence[Any], columns: Sequence[int]) -> list[list[Any]]:
        """Columns of the records at every index."""
        groups = sorted({c // _SUBLANES for c in columns})
        new = sum((id(i), group) not in self.read for i in index for group in groups)
        if new <= -(-len(index) // _SUBLANES) * len(columns):
            return [self._record(i, groups, columns) for i in index]
        found: list[list[Any]] = [[] for _ in index]
        for begin in range(0, len(index), _SUBLANES):
            some = index[begin : begin + _SUBLANES]
            wide = [jnp.broadcast_to(x, (1, LANES)) for x in some]
            at = jnp.concatenate(wide + wide[:1] * (_SUBLANES - len(wide)), 0)
            for c in columns:
                every = self._gathered(at, c, 1)
                for k in range(len(some)):
                    found[begin + k].append(every[k : k + 1])
        return found

    def _record(self, index: Any, groups: Sequence[int], columns: Sequence[int]) -> list[Any]:
        for group in groups:
            if (id(index), group) not in self.read:
                at = jnp.broadcast_to(index, (_SUBLANES, LANES))
                self.read[id(index), group] = index, self._gathered(at, group * _SUBLANES, _SUBLANES)
        every = [self.read[id(index), c // _SUBLANES][1] for c in columns]
        return [x[c % _SUBLANES : c % _SUBLANES + 1] for x, c in zip(every, columns)]

    def _gathered(self, at: jax.Array, first: int, count: int) -> jax.Array:
        """The entries int32[8, 128] at indices, of 8 columns or of one for all sublanes."""
        place, tile = at & (LANES - 1), at >> 7
        tiles = self.ref.shape[1] // LANES

        def another(j: Any, found: jax.Array) -> jax.Array:
            own = self.ref[first : first + count, pl.ds(j * LANES, LANES)]
            own = jnp.take_along_axis(jnp.broadcast_to(own, at.shape), place, 1, mode="promise_in_bounds")
            return own if tiles == 1 else jnp.where(tile == j, own, found)

        found = jnp.zeros_like(at)
        if tiles > _UNROLLED:
            return jax.lax.fori_loop(0, tiles, another, found, unroll=8)
        for j in range(tiles):
            found = another(j, found)
        return found


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


def _run(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The results of a program of one row; its numbers are vectors over the rows, or of NumPy where they are known."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, (_known(x) for x in consts)))
    known.update(zip(jaxpr.invars, given))

    def value(atom: Any) -> Any:
        return known[atom] if not hasattr(atom, "val") else _known(atom.val)

    for eqn in jaxpr.eqns:
        name, ins, inner = eqn.primitive.name, [value(v) for v in eqn.invars], _inner(eqn)
        if inner is not None:
            found = _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), ins)
        elif name in _PASSED_ON:
            found = ins
        elif name == "gather":
            found = [_gather(ins[0], ins[1], eqn.params["slice_sizes"])]
        elif name in _ARRANGED:
            found = [_ARRANGED[name](eqn, *ins)]
        elif name in _REDUCED:
            found = [_reduced(_REDUCED[name], ins[0], eqn.params["axes"])]
        else:
            found = [_each(_elementwise(eqn), *ins)]
        known.update(zip(eqn.outvars, found))
    return [value(v) for v in jaxpr.outvars]


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


def _gather(operand: Any, index: Any, sizes: Sequence[int]) -> Any:
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
    every = operand.records(rows, range(rest[0]) if rest else [*own])
    return _numbers([x for record in every for x in record], (*index.shape[:-1], *rest))


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
