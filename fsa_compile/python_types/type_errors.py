"""Exceptions of the front end for Python types; each knows the place in the type, such as `Person.address.zip`."""

from __future__ import annotations

from fsa_compile.errors import ConstraintError


class UnsupportedTypeError(ConstraintError):
    """A type that cannot be enforced exactly, so it is refused.

    Args:
      what: one sentence that says what is wrong.
      place: the place in the type: fields after dots, `[]` for elements, `{}` for the values of a dict.
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, place: str, fix: str = "") -> None:
        self.place = place
        super().__init__(what, where=f"at {place}", fix=fix)


class TypeTextError(ConstraintError):
    """A text that is not a value of the type.

    Args:
      what: one sentence that says what is wrong.
      place: the place in the value, as in `UnsupportedTypeError`.
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, place: str, fix: str = "") -> None:
        self.place = place
        super().__init__(what, where=f"at {place}", fix=fix)


class UnwritableError(TypeTextError):
    """A value of the type that no text of the constraint has."""
