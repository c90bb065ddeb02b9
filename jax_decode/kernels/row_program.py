"""Functions of one row as programs whose numbers are vectors over the rows of a batch: what a kernel for all rows is made of.

A function is traced for a batch of one row, and every number of it becomes a vector over the rows: all that only arranges numbers
is done while tracing. Only what is read from memory is the kernel's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.kernels.target import compiled_for


class NotARowProgramError(Exception):
    """A function cannot be such a kernel: a table is too large, or JAX writes it with an operation that is not known here."""


class Memory(Protocol):
    """An array that is read, or written, where it lies."""

    shape: tuple[int, ...]

    def gather(self, index: Any, sizes: Sequence[int], columns: Sequence[int], sums: dict[int, Any]) -> Any:
        """`jax.lax.gather` in the forms of `kernels.gather`: the first axes at indices, the others whole or up to a column.

        Args:
          index: numbers [..., n], vectors or of NumPy, of the first n axes.
          sizes: static, of what is read along every axis.
          columns: those of the last axis that anything depends on.
          sums: of which numbers an index is a sum, if it is a number and a constant.
        """

    def scatter(self, index: Any, values: Any) -> Memory:
        """The array with other numbers at indices [..., n] of all its n axes; what it was is not read any more."""


class RowProgram(NamedTuple):
    """A traced function of one row: its operations, the shapes of its results, and which inputs any result depends on."""

    jaxpr: Any
    consts: Sequence[Any]
    shapes: Any
    used: Sequence[bool]

    def run(self, given: Sequence[Any]) -> list[Any]:
        """The results of inputs in order, numbers (object arrays of the shapes of one row) or `Memory` each."""
        return _run(self.jaxpr, self.consts, given, {})


def traced(platform: str, function: Callable[..., Any], common: Any, rows: Any) -> RowProgram:
    """`function(common, *rows)` as such a program.

    Args:
      platform: what it is traced for, `target.LANES` or `target.PROGRAMS`.
      function: of integers and truth values; closes over nothing that is traced.
      common: a tree of arrays, the same for all rows.
      rows: trees of arrays [B, ...].

    Raises:
      NotARowProgramError: it has an operation that is not known here.
    """
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), tuple(rows))
    with compiled_for(platform):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(common, *one)
    if not _is_known(closed.jaxpr):
        raise NotARowProgramError(function.__name__)
    used = {id(v) for v in closed.jaxpr.outvars} | {id(v) for eqn in _needed(closed.jaxpr) for v in eqn.invars}
    return RowProgram(closed.jaxpr, closed.consts, shapes, [id(v) in used for v in closed.jaxpr.invars])


def where_compiled(
    platform: str, traced_for: str, kernel: Callable[..., Any], function: Callable[..., Any], *arguments: Any
) -> Any:
    """`kernel(*arguments)` in what is compiled for a platform, "tpu" or "cuda", and the function itself for other devices of the
    machine: a program may be traced where there is a GPU and run on the CPU beside it. `traced_for`: as in `traced`."""

    def elsewhere(common: Any, *rows: Any) -> Any:
        with compiled_for(traced_for):  # it returns what the kernel does
            return jax.vmap(lambda *own: _each_first(function(common, *jax.tree.map(lambda x: x[None], own))))(*rows)

    return jax.lax.platform_dependent(*arguments, **{platform: kernel, "default": elsewhere})


def _each_first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


def numbers(values: Sequence[Any], shape: Sequence[int]) -> Any:
    """Vectors, or numbers of NumPy, as an array of a shape."""
    out = np.empty(len(values), object)
    for i, x in enumerate(values):
        out[i] = x
    return out.reshape(shape)


def typed(x: Any, dtype: Any) -> Any:
    """A vector or a number of another type."""
    if x.dtype == dtype:
        return x
    if isinstance(x, np.generic):
        return x.astype(dtype)
    if x.dtype == bool:
        return jnp.where(x, np.int32(1), np.int32(0)).astype(dtype)  # Triton takes numbers without a type for truth values
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
        elif name == "scatter":
            found = [ins[0].scatter(ins[1], ins[2])]
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
        _is_known(getattr(inner, "jaxpr", inner)) if (inner := _inner(eqn)) is not None else eqn.primitive.name in _KNOWN
        for eqn in jaxpr.eqns
    )


def _known(x: Any) -> Any:
    x = np.asarray(x)
    return numbers([x.dtype.type(y) for y in x.flat], x.shape)


def _each(function: Callable[..., Any], *arrays: Any) -> Any:
    arrays = np.broadcast_arrays(*arrays)
    return numbers([function(*x) for x in zip(*(a.flat for a in arrays))], arrays[0].shape)


def _reduced(function: Callable[[Any, Any], Any], x: Any, axes: Sequence[int]) -> Any:
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = [x.shape[i] for i in kept]
    lines = x.transpose(*kept, *axes).reshape(*shape, -1)
    out = lines[..., 0]
    for i in range(1, lines.shape[-1]):
        out = _each(function, out, lines[..., i])
    return out


def _gather(operand: Any, index: Any, sizes: Sequence[int], columns: Sequence[int], sums: dict[int, Any]) -> Any:
    """See `Memory.gather`; of an array of numbers, all are looked at."""
    if not isinstance(operand, np.ndarray):
        return operand.gather(index, sizes, columns, sums)
    shape, count, rest = operand.shape, index.shape[-1], tuple(sizes[index.shape[-1] :])
    lines = operand.reshape(-1, *shape[count:])[..., : rest[0]] if rest else operand.reshape(-1, 1)
    found = [_chosen(line, flat(place, shape)) for place in index.reshape(-1, count) for line in lines.T]
    return numbers(found, (*index.shape[:-1], *rest))


def flat(place: Sequence[Any], shape: Sequence[int]) -> Any:
    """The index of a place as if its axes were one."""
    index = place[0]
    for x, size in zip(place[1:], shape[1:]):
        index = index * np.int32(size) + x
    return index


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
        return lambda x: typed(x, eqn.params["new_dtype"])
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
    "shift_right_arithmetic": operator.rshift,
    "shift_right_logical": jax.lax.shift_right_logical,
    "shift_left": _both(operator.lshift, jax.lax.shift_left),
    "select_n": _select,
}
_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call")
_PASSED_ON = ("optimization_barrier", "reshard")
_KNOWN = {*_ARRANGED, *_REDUCED, *_ELEMENTWISE, *_PASSED_ON, "gather", "scatter", "convert_element_type"}
