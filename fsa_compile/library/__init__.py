"""Ready grammars: one file each, whose first comment says exactly which language it is and what it leaves out.

    fsa_compile.compile_grammar(library.grammar_text("json"), tokenizer, **library.options("json"))

Texts only; reading and compiling them belong to `compiler`. A grammar that is not listed in `_GRAMMARS` is not in the library.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from fsa_compile.errors import ConstraintError, is_word

_GRAMMARS: dict[str, dict[str, Any]] = {
    "arithmetic": {"syntax": "lark", "mode": "longest"},
    "c": {"syntax": "lark", "mode": "longest"},
    "c_dangling_else": {"syntax": "lark", "mode": "longest", "stacks": 8},
    "c_functions": {"syntax": "lark", "mode": "longest"},
    "csv": {"syntax": "lark", "mode": "characters"},
    "go": {"syntax": "lark", "mode": "longest"},
    "graphql": {"syntax": "lark", "mode": "longest"},
    "java": {"syntax": "lark", "mode": "longest"},
    "javascript": {"syntax": "lark", "mode": "longest"},
    "json": {"syntax": "lark", "mode": "longest"},
    "json_compact": {"syntax": "lark", "mode": "longest"},
    "json_object": {"syntax": "gbnf", "mode": "characters"},
    "json_tutorial": {"syntax": "lark", "mode": "longest"},
    "python": {"syntax": "lark", "mode": "longest"},
    "python_values": {"syntax": "lark", "mode": "longest"},
    "regex": {"syntax": "lark", "mode": "characters"},
    "sql": {"syntax": "lark", "mode": "longest"},
    "sql_select": {"syntax": "lark", "mode": "longest"},
    "tags": {"syntax": "lark", "mode": "characters"},
    "toml": {"syntax": "lark", "mode": "characters"},
    "typescript": {"syntax": "lark", "mode": "longest"},
    "xml": {"syntax": "lark", "mode": "characters"},
}
_EXTENDED = {"typescript": "javascript"}
"""Grammars whose file overrides and adds rules of another one."""


def names() -> tuple[str, ...]:
    """Names of all grammars, sorted."""
    return tuple(sorted(_GRAMMARS))


def grammar_text(name: str) -> str:
    """The text of a grammar, comments included.

    Args:
      name: one of `names()`.

    Raises:
      ConstraintError: there is no such grammar.

    Examples:
      >>> grammar_text("json").count("value:")
      1
    """
    return _text(name, options(name)["syntax"])


@cache
def _text(name: str, syntax: str) -> str:
    text = resources.files(__name__).joinpath(f"{name}.{syntax}").read_text(encoding="utf-8")
    if name not in _EXTENDED:
        return text
    comment, rules = text.split("\n\n", 1)
    return f"{comment}\n\n{grammar_text(_EXTENDED[name])}\n{rules}"


def options(name: str) -> dict[str, Any]:
    """The arguments `compile_grammar` needs for a grammar beside its text: syntax, mode, and stacks where one is not enough.

    Args:
      name: one of `names()`.

    Raises:
      ConstraintError: there is no such grammar.
    """
    if not is_word(name, _GRAMMARS):
        raise ConstraintError(f"the library has no grammar {name!r}", fix=f"It has {', '.join(names())}.")
    return dict(_GRAMMARS[name])


def description(name: str) -> str:
    """Which language a grammar is and what it leaves out: the comment at the beginning of its text.

    Args:
      name: one of `names()`.

    Raises:
      ConstraintError: there is no such grammar.

    Examples:
      >>> description("arithmetic").partition(",")[0]
      'Arithmetic with the usual precedence'
    """
    lines = []
    for line in grammar_text(name).splitlines():
        comment = re.match(r"(?://|#) ?", line)
        if comment is None:
            break
        lines.append(line[comment.end() :])
    return "\n".join(lines)
