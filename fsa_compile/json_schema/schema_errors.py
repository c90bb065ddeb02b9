"""Exceptions of the JSON Schema front end; each knows the JSON pointer of the place in the schema."""

from __future__ import annotations

from fsa_compile.errors import ConstraintError, UnsatisfiableError


class SchemaError(ConstraintError):
    """A schema that is not well formed.

    Args:
      what: one sentence that says what is wrong.
      pointer: JSON pointer of the place in the schema, as a URI fragment such as `#/properties/age`.
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, pointer: str, fix: str = "") -> None:
        self.pointer = pointer
        super().__init__(what, where=f"at {pointer}", fix=fix)


class UnsupportedSchemaError(SchemaError):
    """The schema is well formed, but asks for what is not enforced exactly, so it is refused."""


class UnsatisfiableSchemaError(SchemaError, UnsatisfiableError):
    """No JSON value satisfies the schema."""
