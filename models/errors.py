"""Exceptions of the model half. Imports nothing.

Every text has three parts, in this order: what is wrong, where, what to do; they are attributes too. This package does
not import the compiling half, so its base class is its own.
"""

from __future__ import annotations

_INSTALL = (
    'Install it with: pip install "constrax[models] @ git+https://github.com/constrax/constrax" '
    '(in a clone: pip install ".[models]")'
)


class ModelError(ValueError):
    """Base of every error that building, loading or saving a model can raise.

    Args:
      what: one sentence that says what is wrong.
      where: the place in the user's input (a file, a parameter), or "".
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__("\n  ".join(part for part in (what, where, fix) if part))


class MissingPackageError(ModelError, ModuleNotFoundError):
    """A package of the extra `models` is needed and not installed.

    Args:
      package: what is missing.
    """

    def __init__(self, package: str) -> None:
        what = f"models of this package need the package {package}, which is not installed"
        super().__init__(what, fix=_INSTALL)
        self.name = package


class ConfigError(ModelError):
    """A model configuration that contradicts itself, or a name that is not in the registry."""


class CheckpointError(ModelError):
    """A checkpoint that is missing, incomplete, or does not fit the configuration."""
