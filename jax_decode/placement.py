"""Where the rows of a batch are placed: on one device, or spread over the devices of a mesh."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jax_decode.errors import DecodeError

_ROWS: contextvars.ContextVar[NamedSharding | None] = contextvars.ContextVar("rows", default=None)


@contextlib.contextmanager
def sharded_rows(mesh: jax.sharding.Mesh, axis: str) -> Iterator[None]:
    """Within, `generate`, `stream`, `beam_search` and their relatives spread the rows of a batch over an axis of a mesh.

    Every device decodes its own rows; only whether all are done is asked of all devices, once per chunk. The texts are those
    of one device. Parameters and tables must lie on the same mesh: `jax.device_put(params, NamedSharding(mesh, P()))` and
    `to_device(..., sharding=NamedSharding(mesh, P()))` for a copy on each device. Parameters may as well be spread over another
    axis of the mesh, which XLA then takes care of.

    Args:
      mesh: with automatic axes (`jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,) * n)`).
      axis: name of the axis; its size must divide the number of prompts.

    Raises:
      DecodeError: the mesh has no such axis, or an explicit one; in a call, a number of prompts that the axis does not divide.
    """
    if axis not in mesh.axis_names:
        raise DecodeError(f"the mesh has no axis {axis!r}", where=f"axes {mesh.axis_names}", fix="Name one of its axes.")
    if any(kind != jax.sharding.AxisType.Auto for kind in mesh.axis_types):
        fix = "Make it with jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))."
        raise DecodeError("the mesh has axes that are not automatic", where=str(mesh.axis_types), fix=fix)
    before = _ROWS.set(NamedSharding(mesh, PartitionSpec(axis)))
    try:
        yield
    finally:
        _ROWS.reset(before)


def put_rows(tree: Any) -> Any:
    """Arrays whose first axis counts rows (or prompts), on the device or over the mesh."""
    sharding = _ROWS.get()
    if sharding is None:
        return jax.device_put(tree)
    devices = sharding.mesh.shape[sharding.spec[0]]
    for leaf in jax.tree.leaves(tree):
        if np.shape(leaf)[0] % devices:
            raise DecodeError(
                f"{np.shape(leaf)[0]} prompts cannot be spread evenly over {devices} devices",
                where=f"axis {sharding.spec[0]!r}",
                fix="Give a multiple of that; repeat a prompt where one is missing.",
            )
    return jax.device_put(tree, sharding)
