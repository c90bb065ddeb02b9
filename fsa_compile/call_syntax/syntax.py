"""`CallSyntax`: how the arguments of a call are written."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias, get_args

from fsa_compile.errors import ConstraintError

Style: TypeAlias = Literal["json", "python", "keywords", "marked"]

MARK = 0xFF
"""The byte that stands for a mark that is a special token, while a machine is built: no UTF-8 text has it."""


@dataclasses.dataclass(frozen=True)
class CallSyntax:
    """How the arguments of a call are written.

    Attributes:
      style: "json": an object, `{"city": "Rome", "days": 3}`. "python": keyword arguments in parentheses and literals,
        `(city='Rome', days=3)`; the function's own arguments are those of the schema and no others. "keywords": the same with
        values of JSON, `(city="Rome", exact=true)`. "marked": an object without
        white space, its keys bare and its strings raw between two marks, `{city:<|"|>Rome<|"|>,days:3}`.
      mark: what stands before and behind a string of the style "marked". Where it is no special token of the vocabulary it begins
        with one of `<>|"` or a control character, which nothing outside strings has.
    """

    style: Style = "json"
    mark: str = ""

    def __post_init__(self) -> None:
        if self.style not in get_args(Style):
            fix = f"It is one of {', '.join(map(repr, get_args(Style)))}."
            raise ConstraintError(f"unknown style of arguments {self.style!r}", fix=fix)
        if not isinstance(self.mark, str) or bool(self.mark) != (self.style == "marked"):
            fix = """Write CallSyntax("marked", '<|"|>'); the other styles have none."""
            raise ConstraintError(f"arguments in the style {self.style!r} with the mark {self.mark!r}", fix=fix)

    @property
    def is_call(self) -> bool:
        """Whether arguments are named in parentheses, as in Python."""
        return self.style in ("python", "keywords")


JSON, PYTHON = CallSyntax(), CallSyntax("python")
