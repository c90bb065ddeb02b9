"""The schema document: its draft, what `$ref` refers to, and where each part stands."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from fsa_compile.errors import SchemaError, UnsupportedSchemaError
from fsa_compile.json_schema.schema_options import Draft

_DRAFTS = {"draft-03": 3, "draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}
_NUMBER = {"3": 3, "4": 4, "6": 6, "7": 7, "2019-09": 2019, "2020-12": 2020}
_DATA = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose value is an instance and no schema."""
_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose value has names for keys, and no keywords."""


def read_schema(schema: Any) -> Any:
    """The decoded schema: a text is parsed, with numbers kept exactly.

    Raises:
      SchemaError: it is no JSON, or neither an object nor a boolean.
    """
    if isinstance(schema, (str, bytes)):
        try:
            schema = json.loads(schema, parse_float=_exact_float, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the schema is not JSON: {error}", pointer="#") from None
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(
            f"a schema must be an object or a boolean, not {type(schema).__name__}", pointer="#",
            fix="Pass a dict, True, False, or the schema's text.",
        )  # fmt: skip
    return schema


def _exact_float(text: str) -> float | Decimal:
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else Decimal(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


class Document:
    """A schema document whose references can be resolved.

    Attributes:
      root: the whole schema.
      draft: 3, 4, 6, 7, 2019 or 2020.
      declared: whether the draft was given, by the schema or by the caller.
    """

    def __init__(self, root: Any, draft: Draft) -> None:
        self.root = root
        named = str(root.get("$schema", "")) if isinstance(root, dict) else ""
        found = next((number for name, number in _DRAFTS.items() if name in named), None)
        self.declared = draft != "auto" or found is not None
        self.draft = _NUMBER[draft] if draft != "auto" else found or 2020
        self._resources: dict[str, Any] = {"": root}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._base: dict[int, str] = {}
        self._pointer: dict[int, str] = {}
        self.dynamic = False
        self._visit(root, "", "#")

    def pointer(self, schema: Any) -> str:
        """Where a part of the document stands, "#" when it was made from others."""
        return self._pointer.get(id(schema), "#")

    def base(self, schema: Any) -> str:
        """The base URI in force in a part of the document."""
        return self._base.get(id(schema), "")

    def _visit(self, schema: Any, base: str, pointer: str) -> None:
        """Notes the base URI and pointer of every part, and every name that a reference may use."""
        todo = [(schema, base, pointer, False)]
        while todo:
            part, base, pointer, names = todo.pop()
            if isinstance(part, list):
                todo += [(x, base, f"{pointer}/{i}", False) for i, x in enumerate(part) if isinstance(x, (dict, list))]
            if not isinstance(part, dict):
                continue
            self._pointer.setdefault(id(part), pointer)
            if not names:
                base = self._named(part, base)
            if base:
                self._base[id(part)] = base
            for key, value in part.items():
                if isinstance(value, (dict, list)) and (names or key not in _DATA):
                    below = f"{pointer}/{_escaped(str(key))}"
                    todo.append((value, base, below, not names and key in _NAMES and isinstance(value, dict)))

    def _named(self, part: dict[str, Any], base: str) -> str:
        """Registers the names of one part; its base URI."""
        identifier = part.get("id" if self.draft <= 4 else "$id")
        if isinstance(identifier, str) and not (self.draft <= 7 and "$ref" in part):
            resource, fragment = urldefrag(identifier)
            if resource or not fragment:
                base = _join(base, resource)
                self._resources.setdefault(base, part)
            if fragment:
                self._anchors.setdefault((base, fragment), part)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(part.get(keyword), str):
                self._anchors.setdefault((base, part[keyword]), part)
        self.dynamic |= "$dynamicAnchor" in part or "$recursiveAnchor" in part
        return base

    def resolve(self, reference: str, source: Any) -> Any:
        """What a `$ref` in a part of the document refers to.

        Raises:
          SchemaError: it refers to nothing.
          UnsupportedSchemaError: it refers to another document.
        """
        resource, fragment = urldefrag(reference)
        base = _join(self.base(source), resource) if resource else self.base(source)
        found = self._resources.get(base)
        if found is None:
            raise UnsupportedSchemaError(
                f"$ref {reference!r} refers to another document", pointer=self.pointer(source),
                fix="Put that document into $defs and give it its $id, or refer to it there.",
            )  # fmt: skip
        fragment = unquote(fragment)
        if not fragment:
            return found
        if not fragment.startswith("/"):
            found = self._anchors.get((base, fragment))
            if found is None:
                raise SchemaError(f"$ref {reference!r} refers to nothing", pointer=self.pointer(source))
            return found
        for name in fragment[1:].split("/"):
            name = name.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, ValueError, IndexError, TypeError):
                raise SchemaError(f"$ref {reference!r} refers to nothing", pointer=self.pointer(source)) from None
        return found


def _join(base: str, resource: str) -> str:
    if not resource:
        return base
    return urljoin(base, resource) if base and not base.startswith("urn:") else resource


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
