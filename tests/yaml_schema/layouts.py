"""A plain dumper of the layouts that `yaml_schema` defines, written independently of it, and a reader that judges texts."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml


def quoted(text: str) -> str:
    r"""A string in double quotes: escapes for `"`, `\` and what is not printable."""
    out = []
    for c in text:
        if c in '"\\':
            out.append("\\" + c)
        elif c.isprintable() and c not in "\u2028\u2029\ufeff":
            out.append(c)
        else:
            out.append(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}")
    return '"' + "".join(out) + '"'


def number(x: int | float) -> str:
    """A number that readers of YAML 1.1 take for one: exponents have a fraction and a sign."""
    text = json.dumps(x)
    found = re.fullmatch(r"(-?\d+)(\.\d+)?e([-+]?)(\d+)", text)
    return text if found is None else f"{found[1]}{found[2] or '.0'}e{found[3] or '+'}{found[4]}"


def scalar(x: Any) -> str:
    """A scalar, strings in double quotes."""
    if isinstance(x, str):
        return quoted(x)
    return number(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else json.dumps(x)


def flow(x: Any) -> str:
    """A value on one line."""
    if isinstance(x, list):
        return "[" + ", ".join(map(flow, x)) + "]"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{quoted(key)}: {flow(below)}" for key, below in x.items()) + "}"
    return scalar(x)


def block(x: Any, *, indented: bool = False, max_indent: int = 12) -> str:
    """A value by indentation.

    Args:
      indented: lists two columns to the right of their key, not below it.
    """
    return _here(x, 0, indented, max_indent) + "\n"


def _here(x: Any, column: int, indented: bool, most: int) -> str:
    """A value whose column this is, its first line without indentation."""
    if not isinstance(x, (list, dict)) or not x or column > most:
        return flow(x)
    margin = "\n" + " " * column
    if isinstance(x, list):
        return margin.join("- " + _here(item, column + 2, indented, most) for item in x)
    return margin.join(f"{quoted(key)}:" + _under(below, column, indented, most) for key, below in x.items())


def _under(x: Any, column: int, indented: bool, most: int) -> str:
    """What follows the colon of a key at a column."""
    below = column + (2 if isinstance(x, dict) or (indented and column + 2 <= most) else 0)
    if not isinstance(x, (list, dict)) or not x or below > most:
        return " " + flow(x)
    return "\n" + " " * below + _here(x, below, indented, most)


def pyyaml_block(x: Any) -> str:
    """What PyYAML writes by default, on lines of any length."""
    text = yaml.safe_dump(x, default_flow_style=False, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text.removesuffix("...\n")


class StrictLoader(yaml.SafeLoader):
    """Refuses mappings with a key twice, as YAML 1.2 does."""


def _mapping(loader: StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    if len(set(keys)) < len(keys):
        raise DuplicateKeyError
    return loader.construct_mapping(node, deep=True)


class DuplicateKeyError(ValueError):
    """A key comes twice."""


StrictLoader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read(text: str) -> Any:
    """The value of a text, as PyYAML reads it."""
    return yaml.load(text, StrictLoader)
