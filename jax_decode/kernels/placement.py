"""Where the rows of a batch are placed: on one device, or spread over the devices of a mesh; and meshes with explicit axes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jax_decode.errors import DecodeError, named_arguments, shown
from jax_decode.kernels.target import target

_ROWS = jax.make_user_context(None)  # a NamedSharding; part of the key of JAX's caches
_Call = TypeVar("_Call", bound=Callable[..., Any])


@named_arguments
@contextlib.contextmanager
def sharded_rows(mesh: Mesh, axis: str) -> Iterator[None]:
    """Within, `generate`, `stream`, `beam_search` and their relatives spread the rows of a batch over an axis of a mesh.

    Every device decodes its own rows; only whether all are done is asked of all devices, once per chunk (by beams over sets of
    items also, once per step, whether all rows stand at lists). The texts are those of one device. Parameters and tables must
    lie on the same mesh: `jax.device_put(params, NamedSharding(mesh, P()))` and `to_device(..., sharding=...)` with the same
    sharding, for a copy on each device. Parameters may as well be spread over another axis of the mesh, which XLA then takes
    care of; if the logits are, name that axis to `to_device(..., vocabulary_axis=)`.

    Args:
      mesh: of the devices; its axes may be automatic or explicit (`jax.make_mesh`'s default).
      axis: name of the axis; its size must divide the number of prompts.

    Raises:
      DecodeError: the mesh has no such axis; in a call, a number of prompts that the axis does not divide.
    """
    if not isinstance(mesh, Mesh):
        raise DecodeError(f"the mesh is {shown(mesh)}", fix="Give jax.make_mesh(...).")
    if not isinstance(axis, str) or axis not in mesh.axis_names:
        raise DecodeError(f"the mesh has no axis {shown(axis)}", where=f"axes {mesh.axis_names}", fix="Name one of its axes.")
    with _ROWS(with_automatic_axes(NamedSharding(mesh, PartitionSpec(axis)))):
        yield


def put_rows(tree: Any) -> Any:
    """Arrays whose first axis counts rows (or prompts), on the device or over the mesh; with several processes, as they are."""
    sharding = spread_rows()
    if sharding is None:
        return jax.device_put(tree) if jax.process_count() == 1 else tree
    devices = sharding.mesh.shape[sharding.spec[0]]
    for leaf in jax.tree.leaves(tree):
        if np.shape(leaf)[0] % devices:
            raise DecodeError(
                f"{np.shape(leaf)[0]} prompts cannot be spread evenly over {devices} devices",
                where=f"axis {sharding.spec[0]!r}",
                fix="Give a multiple of that; repeat a prompt where one is missing.",
            )
    return jax.device_put(tree, sharding)


def placed_like(tree: Any, other: Any) -> Any:
    """Arrays committed to the one device that arrays of `other` are committed to; where those lie on a mesh, are traced, or are
    nowhere in particular, as they are.

    Restored parameters are committed to their device, and so is whatever a program makes of them. A loop whose first call had
    arrays that are not would be compiled again for its second call.
    """
    leaves = jax.tree.leaves(other)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return tree
    places = {leaf.sharding for leaf in leaves if isinstance(leaf, jax.Array) and leaf.committed}
    if len(places) != 1 or not isinstance(place := places.pop(), SingleDeviceSharding):
        return tree
    return jax.device_put(tree, place)


def spread_rows() -> NamedSharding | None:
    """How rows lie within `sharded_rows`; None elsewhere."""
    sharding: NamedSharding | None = _ROWS.value
    return sharding


def rows_may_stand_last() -> bool:
    """Whether a step is traced for a TPU and XLA does not spread its rows over devices.

    A TPU's compiler reads fewer times where rows are the last axis of what is read; but rows that XLA spreads stay on their
    devices only along the first one. A function of `on_own_rows` has its device's rows alone.
    """
    return target() == "tpu" and not spread_by_xla()


def spread_by_xla() -> bool:
    """Whether the rows of what is traced are spread over devices, and not each device's own are traced."""
    sharding = spread_rows()
    return sharding is not None and sharding.spec[0] not in jax.sharding.get_abstract_mesh().manual_axes


def on_own_rows(function: Callable[..., Any], sharding: NamedSharding | None) -> Callable[..., Any]:
    """A function of what is common and of arrays of rows, in which every device works on its own rows and asks no other."""
    if sharding is None:
        return function
    mesh, axis = sharding.mesh, sharding.spec[0]

    def spread(common: Any, *rows: Any) -> Any:
        each = (PartitionSpec(), *(PartitionSpec(axis) for _ in rows))
        own = jax.shard_map(
            function, mesh=mesh, in_specs=each, out_specs=PartitionSpec(axis), axis_names={axis}, check_vma=False
        )
        return own(common, *rows)

    return spread


def on_gpu(placed: Any) -> bool:
    """Whether what `put_rows` returned is on a GPU, or will be."""
    devices = placed.devices() if isinstance(placed, jax.Array) else jax.local_devices()
    return any(device.platform == "gpu" for device in devices)


def rows_axis(mesh: Mesh) -> str | None:
    """The axis of a mesh that rows are spread over, None where they are not spread over this mesh."""
    sharding = spread_rows()
    return None if sharding is None or sharding.mesh != mesh else sharding.spec[0]


def with_automatic_axes(sharding: Any) -> Any:
    """The same sharding over a mesh whose axes are all automatic; whatever else it is, as it is."""
    if not isinstance(sharding, NamedSharding) or not _is_explicit(sharding.mesh):
        return sharding
    mesh = Mesh(sharding.mesh.devices, sharding.mesh.axis_names, axis_types=(AxisType.Auto,) * sharding.mesh.devices.ndim)
    return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)


def on_automatic_axes(call: _Call) -> _Call:
    """Lets a function of the public surface be called with arrays on explicit axes, and under a mesh that has some.

    In arrays with explicit axes JAX asks of every operation how its result is spread. Within, the axes are automatic: the same
    buffers under another name, nothing is copied, and XLA decides.
    """

    @functools.wraps(call)
    def inside(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):  # within `jax.grad`: what is around decides
            return call(*args, **kwargs)
        meshes = [leaf.sharding.mesh for leaf in leaves if _on_explicit_axes(leaf)]
        around = jax.sharding.get_mesh()
        if not meshes and not _is_explicit(around):
            return call(*args, **kwargs)
        args, kwargs = jax.tree.map(_relabelled, (args, kwargs))
        mesh = with_automatic_axes(NamedSharding(meshes[0] if meshes else around, PartitionSpec())).mesh
        with jax.set_mesh(mesh):
            return call(*args, **kwargs)

    return inside  # type: ignore[return-value]


def _is_explicit(mesh: Any) -> bool:
    return any(kind == AxisType.Explicit for kind in mesh.axis_types)


def _on_explicit_axes(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return False
    return isinstance(leaf.sharding, NamedSharding) and _is_explicit(leaf.sharding.mesh)


def _relabelled(leaf: Any) -> Any:
    return jax.device_put(leaf, with_automatic_axes(leaf.sharding)) if _on_explicit_axes(leaf) else leaf
