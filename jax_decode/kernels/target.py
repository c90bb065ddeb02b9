"""For which kind of device a step is traced.

Compilers differ in what they fuse: a reduction over a few entries is one operation of a TPU's program and a kernel of its own on
a GPU, and so on. Both forms of such an operation give the same result everywhere, so the choice is made while tracing, and the
other form costs no time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

LANES, PROGRAMS = "lanes", "programs"
"""What a function of one row is traced for: to be a kernel with a row in every lane of a TPU, or in every program on a GPU."""
_TARGET = jax.make_user_context(None)  # part of the key of JAX's caches


def target() -> str:
    """The platform that what is traced now is meant for, such as "cpu", "gpu" or "tpu"."""
    chosen: str | None = _TARGET.value
    return jax.default_backend() if chosen is None else chosen


def of_one_row() -> bool:
    """Whether what is traced now is a function of one row for such a kernel, where every number costs and no array does."""
    return target() in (LANES, PROGRAMS)


@contextlib.contextmanager
def compiled_for(platform: str) -> Iterator[None]:
    """Within, steps are traced for this platform rather than for JAX's default: to compile ahead for a device elsewhere."""
    with _TARGET(platform):
        yield
