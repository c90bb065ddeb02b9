"""Exceptions of the decoding half. Imports nothing.

The twin of `fsa_compile.errors`: an error text says what was wrong, where in the user's input, and what to do; the parts
are kept as attributes.
"""

from __future__ import annotations


class DecodeError(ValueError):
    """Base of every error that moving a constraint to the device, sampling or generating can raise.

    Args:
      what: one sentence that says what is wrong.
      where: the place in the user's input (a row, a position), or "".
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__("\n  ".join(part for part in (what, where, fix) if part))


def no_numbers(where: str) -> DecodeError:
    """The error of a model whose logits are all NaN (or -inf) at a place: no probability can be computed from them."""
    fix = "Check its parameters and their dtype: float16 overflows where bfloat16 and float32 do not."
    return DecodeError("none of the model's logits is a number", where=where, fix=fix)
