"""Files whose names a stranger may have sent: only regular ones are opened, so that no pipe or device keeps a process waiting."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, BinaryIO


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, opened for reading.

    Raises:
      OSError: there is none of this name, it cannot be read, or it is a folder, a pipe or a device.
    """
    try:
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except ValueError as error:  # the path holds a null character
        raise OSError(None, str(error)) from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(None, "it is no regular file")
    return os.fdopen(opened, "rb")


def path_or_none(path: Any) -> Path | None:
    """A path as users give it, None for what is none."""
    return Path(path) if isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str) else None
