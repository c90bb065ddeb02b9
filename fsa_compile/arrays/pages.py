"""Memory pages of NumPy's arrays while something large is compiled.

NumPy asks the system for pages of 2 MB for every array of 4 MB or more. A compilation makes thousands of such arrays that live
for a moment; on a virtual machine, finding and clearing large pages took up to a third of the time for large grammars, and small
pages took less than half of that.
"""

from __future__ import annotations

import contextlib
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
