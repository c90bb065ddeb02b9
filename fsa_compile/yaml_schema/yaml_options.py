"""`YamlOptions`: the layout of YAML texts, and the named limits of the YAML front end."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from fsa_compile.errors import ConstraintError, is_whole, named_fields
from fsa_compile.json_schema.schema_options import DEFAULT_OPTIONS, SchemaOptions, checked_options

Style: TypeAlias = Literal["block", "flow"]
_JSON_ONLY = ("whitespace", "max_indent", "string_escapes", "word_escapes", "key_order", "max_object_depth", "max_array_depth")
"""Options of JSON texts that mean nothing for YAML texts."""


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class YamlOptions:
    """How values are laid out as YAML.

    Attributes:
      max_indent: last column at which a block collection may begin; collections that would begin further to the right are written
        in flow style, which has no such bound. Even.
      max_key_length: longest key, in code points, among those that the schema does not name. Readers of YAML refuse keys that
        take more than 1,024 characters of text.
      max_plain: where the length of a string is counted in a register (bounds above `schema.max_string_chain`), or its automaton
        is large: the longest one that is written plain or in single quotes. If nothing but the length is asked for, plain ones go
        on up to half the bound. Longer ones are written in double quotes.
      schema: how the schema is read: draft, formats, limits. What it says of JSON texts must be left at its default.
    """

    max_indent: int = 12
    max_key_length: int = 40
    max_plain: int = 32
    schema: SchemaOptions = DEFAULT_OPTIONS

    def __post_init__(self) -> None:
        for name, most in (("max_indent", 60), ("max_key_length", 96), ("max_plain", 1_000)):
            value = getattr(self, name)
            if not is_whole(value, 0, most):
                raise ConstraintError(f"YamlOptions.{name} must be an int from 0 to {most}, not {value!r}")
            object.__setattr__(self, name, int(value))
        if self.max_indent % 2:
            what = f"YamlOptions.max_indent must be even, not {self.max_indent}"
            raise ConstraintError(what, fix="Levels are two columns apart.")
        object.__setattr__(self, "schema", checked_options(self.schema))
        for name in _JSON_ONLY:
            if getattr(self.schema, name) != getattr(DEFAULT_OPTIONS, name):
                raise ConstraintError(f"SchemaOptions.{name} is about JSON texts", fix="Leave it at its default for YAML.")


DEFAULT_LAYOUT = YamlOptions()
