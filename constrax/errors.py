"""Exceptions of the welcome. Imports nothing.

The other packages' errors pass through as they are; these are about the call itself. A text has three parts, which are attributes
too: what is wrong, where, and what to do.
"""

from __future__ import annotations

_INSTALL = (
    'Install everything with: pip install "constrax[all] @ git+https://github.com/constrax/constrax" '
    '(in a clone: pip install ".[all]")'
)


class UseError(ValueError):
    """Base of the errors that `constrax` raises by itself.

    Args:
      what: one sentence that says what is wrong.
      where: the place in the user's input (a prompt, a file), or "".
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__("\n  ".join(part for part in (what, where, fix) if part))


class CallError(UseError, TypeError):
    """A call whose arguments do not fit: an unknown name, one too many, one too few."""


class MissingPackageError(UseError, ModuleNotFoundError):
    """Packages that a model needs are not installed.

    Args:
      packages: the names of what is missing.
    """

    def __init__(self, packages: list[str]) -> None:
        what = f"loading a model needs {' and '.join(packages)}, not installed here"
        super().__init__(what, fix=_INSTALL)
        self.name = packages[0]
