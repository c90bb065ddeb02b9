"""Files whose names a stranger may have sent: only regular ones are opened, so that no pipe or device keeps a process waiting;
and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fsa_compile.errors import ConstraintError, shown


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


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes a path's place once the block has written it: all of it, or nothing."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def path_or_none(path: Any) -> Path | None:
    """A path as users give it, None for what is none, or what no file system can hold."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        return None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return None
    return Path(text)


def checked_path(path: Any, error: type[ConstraintError] = ConstraintError) -> Path:
    """A path as users give it; raises an error of the given type for what is none."""
    found = path_or_none(path)
    if found is None:
        raise error(f"a file's path is needed, not {shown(path)}", fix="Give a str or a Path.")
    return found
