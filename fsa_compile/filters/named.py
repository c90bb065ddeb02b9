"""Filters by name, as a command line writes them: a name and words behind it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from fsa_compile import filters
from fsa_compile.errors import ConstraintError

_NAMED: dict[str, tuple[str, Callable[[list[str]], filters.Filter]]] = {
    "ascii": ("", lambda words: filters.ascii()),
    "byte_fallback": ("", lambda words: filters.byte_fallback()),
    "characters": ("CHARACTERS", lambda words: filters.characters(" ".join(words))),
    "forbid": ("PHRASE ...", lambda words: filters.forbid(*words)),
    "fused_spaces": ("", lambda words: filters.fused_spaces()),
    "length": ("MOST [characters|words|bytes]", lambda words: filters.length(at_most=int(words[0]), unit=_unit(words))),
    "nfc": ("[MARKS]", lambda words: filters.nfc(max_marks=int(words[0]) if words else None)),
    "nfc_inert": ("", lambda words: filters.nfc_inert()),
    "scripts": ("SCRIPT ...", filters.scripts),
    "token_count": ("MOST", lambda words: filters.token_count(at_most=int(words[0]))),
    "valid_utf8": ("", lambda words: filters.valid_utf8()),
    "words": ("WORD ...", filters.words),
}


def named_filter(text: str) -> filters.Filter:
    """The filter that a text such as `ascii`, `scripts Latin Hangul` or `length 20 words` names.

    Args:
      text: a name of `fsa_compile.filters`, and its arguments, quoted as in a shell.

    Raises:
      ConstraintError: no such filter, or wrong arguments.
    """
    try:
        name, *words = shlex.split(text) or [""]
    except ValueError as error:
        raise ConstraintError(f"no filter is named {text!r:.60} ({error})", fix=_usage()) from None
    if name not in _NAMED:
        raise ConstraintError(f"there is no filter {name!r:.40}", fix=_usage())
    usage, make = _NAMED[name]
    try:
        if words and not usage:
            raise ValueError
        return make(words)
    except (ValueError, IndexError) as error:
        if isinstance(error, ConstraintError):
            raise
        raise ConstraintError(f"the filter {text!r:.60} is not understood", fix=f"Write {name} {usage}".rstrip() + ".") from None


def _unit(words: list[str]) -> Any:
    return words[1] if len(words) > 1 else "characters"


def _usage() -> str:
    return "Write one of: " + "; ".join(f"{name} {usage}".rstrip() for name, (usage, _) in _NAMED.items()) + "."
