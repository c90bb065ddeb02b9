"""Memory of NumPy's arrays while something large is compiled.

NumPy asks the system for pages of 2 MB for every array of 4 MB or more. A compilation makes thousands of such arrays that live
for a moment; on a virtual machine, finding and clearing large pages took up to a third of the time for large grammars, and small
pages took less than half of that. Small ones, given back and asked for again, still took a third of what was left; the allocator
of the GNU C library keeps them when told to.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator

try:
    from numpy._core import multiarray
except ImportError:  # NumPy 1
    from numpy.core import multiarray  # type: ignore[no-redef]

_ASK: Callable[[bool], bool] | None = getattr(multiarray, "_set_madvise_hugepage", None)
"""NumPy's own switch. It has no public name but an environment variable that is read once; without it, nothing changes."""


@contextlib.contextmanager
def small_pages() -> Iterator[None]:
    """Within, new arrays get pages of the usual size; what a user has set stays."""
    if _ASK is None or not _ASK(False):
        yield
        return
    try:
        yield
    finally:
        _ASK(True)


_TRIM, _MAPPED = -1, -3
"""Parameters of `mallopt`: from how many free bytes at its end the heap shrinks, and from which size on an array has pages of its
own, which go back to the system with it."""
_SETTINGS = ("MALLOC_", "GLIBC_TUNABLES")
_AFTERWARDS = ((_MAPPED, 32 << 20), (_TRIM, 64 << 20))
"""What the allocator comes to by itself once an array of 32 MB was let go of."""


_inside = 0
_LOCK = threading.Lock()


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Within, memory of arrays that are let go of is kept for others, and after the last one of several, one within another or in
    other threads, all that is free goes back to the system; nothing changes with another C library, or where the environment sets
    its allocator."""
    global _inside
    free = sys.platform == "linux" and not any(name.startswith(_SETTINGS) for name in os.environ)
    library = ctypes.CDLL(None) if free else None
    if library is None or not (hasattr(library, "mallopt") and hasattr(library, "malloc_trim")):
        yield
        return
    with _LOCK:
        _inside += 1
        if _inside == 1:
            library.mallopt(_TRIM, 1 << 30)
            if not library.mallopt(_MAPPED, 1 << 30):  # older versions take no more than they come to by themselves
                library.mallopt(*_AFTERWARDS[0])
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if not _inside:
                for parameter, size in _AFTERWARDS:
                    library.mallopt(parameter, size)
                library.malloc_trim(0)
