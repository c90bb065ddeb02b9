"""Deep recursion for a while: Python's limit belongs to the whole process, so threads that need more of it share one change."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_MOST = 20_000
_lock = threading.Lock()
_inside = 0
_before = 0


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Raises Python's recursion limit within; the last thread that leaves puts it back to what it was before the first came."""
    global _inside, _before
    with _lock:
        if not _inside:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, _MOST))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setrecursionlimit(_before)
