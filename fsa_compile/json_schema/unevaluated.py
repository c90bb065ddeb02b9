"""`unevaluatedProperties` and `unevaluatedItems`: which members count as evaluated is a matter of which branches hold.

Every in-place branch splits the cases: with it, its members are evaluated; without it they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fsa_compile.errors import UnsupportedSchemaError
from fsa_compile.json_schema.documents import Document
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.json_schema.values import ANYTHING, Value, Values


class _Evaluated(NamedTuple):
    """What the schemas passed so far evaluate."""

    keys: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    prefix: int = 0
    contains: tuple[Any, ...] = ()


class Unevaluated:
    """Reads one of the two keywords of one schema. `keyword`: which of the two. `schema`: the schema that holds it."""

    def __init__(
        self, keywords: Any, document: Document, values: Values, options: SchemaOptions, keyword: str, schema: dict[str, Any]
    ) -> None:
        self._keywords, self._document, self._values, self._options = keywords, document, values, options
        self._keyword, self._schema = keyword, schema

    def value(self, made_of: Callable[[dict[str, Any]], Value]) -> Value:
        """The values whose unevaluated members satisfy the keyword's schema."""
        self._made_of = made_of
        return self._with([self._schema], _Evaluated())

    def _with(self, todo: list[Any], evaluated: _Evaluated) -> Value:
        """The language when the schemas `todo` hold and others have evaluated something already."""
        while todo and not isinstance(todo[0], dict):
            todo = todo[1:]
        if not todo:
            return self._rest(evaluated)
        schema, todo = todo[0], todo[1:]
        if self._evaluates_all(schema):
            return ANYTHING
        evaluated = self._add(schema, evaluated)
        extended = schema.get("extends", ()) if self._document.draft == 3 else ()
        todo = [*todo, *schema.get("allOf", ()), *(extended if isinstance(extended, list | tuple) else [extended])]
        todo += self._document.referred(schema)
        return self._split(self._branches(schema), todo, evaluated)

    def _evaluates_all(self, schema: dict[str, Any]) -> bool:
        if self._keyword in schema and schema is not self._schema:
            return True
        if self._keyword == "unevaluatedProperties":
            return "additionalProperties" in schema
        items = schema.get("items")
        return isinstance(items, (dict, bool)) or (isinstance(items, list) and "additionalItems" in schema)

    def _add(self, schema: dict[str, Any], evaluated: _Evaluated) -> _Evaluated:
        if self._keyword == "unevaluatedProperties":
            return evaluated._replace(
                keys=evaluated.keys | schema.get("properties", {}).keys(),
                patterns=evaluated.patterns | schema.get("patternProperties", {}).keys(),
            )
        items = schema.get("items")
        prefix = max(evaluated.prefix, len(schema.get("prefixItems", ())), len(items) if isinstance(items, list) else 0)
        contains = evaluated.contains
        if "contains" in schema and self._document.draft >= 2020:
            contains = (*contains, schema["contains"])
        return evaluated._replace(prefix=prefix, contains=contains)

    def _branches(self, schema: dict[str, Any]) -> list[tuple[Value, list[Any], list[Any]]]:
        """(condition, schemas that hold with it, schemas that hold without it) of the in-place branches."""
        read = self._keywords.value
        out = [(read(x), [x], list[Any]()) for keyword in ("anyOf", "oneOf") for x in schema.get(keyword, ())]
        if "if" in schema:
            out.append((read(schema["if"]), [schema["if"], schema.get("then", True)], [schema.get("else", True)]))
        dependent = dict(schema.get("dependentSchemas", {}))
        dependent |= {key: x for key, x in schema.get("dependencies", {}).items() if isinstance(x, dict)}
        out += [(self._values.has(key), [x], []) for key, x in dependent.items()]
        if len(out) > self._options.max_branches:
            raise self._refusal(f"over more than max_branches={self._options.max_branches} branches")
        return out

    def _split(self, branches: list[tuple[Value, list[Any], list[Any]]], todo: list[Any], evaluated: _Evaluated) -> Value:
        if not branches:
            return self._with(todo, evaluated)
        condition, yes, no = branches[0]
        then = self._split(branches[1:], todo + yes, evaluated)
        other = self._split(branches[1:], todo + no, evaluated)
        return self._values.choose(condition, then, other)

    def _rest(self, evaluated: _Evaluated) -> Value:
        """The members that nothing evaluates satisfy the keyword's schema."""
        rest = self._schema.get(self._keyword, False)  # not written where an option closes the object
        if self._keyword == "unevaluatedProperties":
            return self._made_of({
                "properties": dict.fromkeys(sorted(evaluated.keys), True),
                "patternProperties": dict.fromkeys(sorted(evaluated.patterns), True),
                "additionalProperties": rest,
            })  # fmt: skip
        if evaluated.contains:
            rest = {"anyOf": [rest, *evaluated.contains]}
        if evaluated.prefix:
            return self._made_of({"items": [True] * evaluated.prefix, "additionalItems": rest})
        return self._made_of({"items": rest})

    def _refusal(self, why: str) -> UnsupportedSchemaError:
        pointer = f"{self._document.pointer(self._schema)}/{self._keyword}"
        return UnsupportedSchemaError(f"{self._keyword} {why} is not supported", pointer=pointer, fix="List the members instead.")
