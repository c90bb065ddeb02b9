"""Exceptions of the welcome. Imports nothing but those of the compiling half.

The other packages' errors pass through as they are; these are about the call itself. A text has three parts, which are attributes
too: what is wrong, where, and what to do.
"""

from __future__ import annotations

from fsa_compile.errors import PartsError, install_command


class UseError(PartsError):
    """Base of the errors that `constrax` raises by itself; their arguments are those of the other packages' errors."""


class CallError(UseError, TypeError):
    """A call whose arguments do not fit: an unknown name, one too many, one too few."""


class MissingPackageError(UseError, ModuleNotFoundError):
    """Packages that a model needs are not installed.

    Args:
      packages: the names of what is missing.
    """

    def __init__(self, packages: list[str]) -> None:
        what = f"loading a model needs {' and '.join(packages)}, not installed here"
        super().__init__(what, fix=f"Install everything with: {install_command('all')}")
        self.name = packages[0]
