"""Keywords to values: what a schema object says, as formulas over atoms. Knows nothing of bytes.

Subschemas of members and elements are only numbered here and read when a frame comes to them, so recursion through members is
free; recursion that consumes nothing is refused.
"""

from __future__ import annotations

import contextlib
import json
import math
from fractions import Fraction
from typing import Any

from fsa_compile.artifact.arrays import MOST_COUNT
from fsa_compile.errors import SchemaError, UnsupportedSchemaError
from fsa_compile.json_schema import number_conditions as numbers
from fsa_compile.json_schema.atoms import (
    ARRAY,
    FALSE,
    KIND_NAMES,
    KINDS,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    TRUE,
    AtLeast,
    Contains,
    Count,
    Differ,
    Equals,
    Found,
    Has,
    HasFormat,
    IsInteger,
    IsMultiple,
    Items,
    Length,
    Members,
    MemberTable,
    Names,
    Once,
    OneOf,
    Spelled,
    holds_of,
)
from fsa_compile.json_schema.decision_diagrams import Decisions
from fsa_compile.json_schema.documents import Document, open_objects
from fsa_compile.json_schema.formats import FORMATS, LENGTH_APART, REFUSED_FORMATS
from fsa_compile.json_schema.keyword_types import check_keywords
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.json_schema.values import ANYTHING, NOTHING, UNORDERED, Value, Values

SPELLING = "x-fsa-spelling"
"""Keyword of our own: a pattern in Python's dialect for the whole decoded string, and for the whole text of a number."""
_ANNOTATIONS = frozenset(("title", "description", "default", "examples", "$comment"))
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_MOST_NUMBERS = 4_096
"""Integers between two bounds that are looked through for a list."""


class Keywords:
    """Reads the schemas of one document.

    Attributes:
      tables: what `Members` atoms refer to.
      origin: JSON pointer where an atom was first read.
      uncertain: that of a count that may be kept only if keys differ which the schema does not name; None for none.
    """

    def __init__(self, document: Document, decisions: Decisions, values: Values, options: SchemaOptions) -> None:
        self._document, self._decisions, self._values, self._options = document, decisions, values, options
        self.tables: list[MemberTable] = []
        self.origin: dict[Any, str] = {}
        self.uncertain: str | None = None
        self._table_number: dict[Any, int] = {}
        self._read: dict[int, Value] = {}
        self._open: set[int] = set()
        self._schemas: list[Any] = []
        self._schema_number: dict[Any, int] = {}
        self._number_of: dict[int, int] = {}
        self._made: list[Any] = []
        self._to_close = set() if options.additional_properties else {id(schema) for schema in open_objects(document)}

    # numbered subschemas

    def number(self, schema: Any) -> int:
        """The number of a subschema; schemas of the same text, their own annotations aside, have the same number."""
        if isinstance(schema, bool):
            return self._numbered(schema, schema)
        found = self._number_of.get(id(schema))
        if found is None:
            said = schema if _ANNOTATIONS.isdisjoint(schema) else {k: v for k, v in schema.items() if k not in _ANNOTATIONS}
            key: Any = id(schema)
            if not self._to_close:
                with contextlib.suppress(TypeError):  # it holds a Decimal: a schema of its own
                    text = json.dumps(said)
                    scope = self._document.scope(schema) if 'ef"' in text else None  # "$ref" and the like
                    key = id(schema) if scope == id(schema) else (scope, text)
            found = self._number_of[id(schema)] = self._numbered(key, schema)
        return found

    def _numbered(self, key: Any, schema: Any) -> int:
        found = self._schema_number.get(key)
        if found is None:
            found = self._schema_number[key] = len(self._schemas)
            self._schemas.append(schema)
        return found

    def numbered(self, number: int) -> Value:
        """The value of a numbered subschema."""
        return self.value(self._schemas[number])

    def text(self, number: int) -> Any:
        """A numbered subschema as it is written."""
        return self._schemas[number]

    def accepts_nothing(self, number: int) -> bool:
        """Whether a numbered subschema is plainly false."""
        return self._schemas[number] is False

    def accepts_anything(self, number: int) -> bool:
        """Whether a numbered subschema plainly says nothing."""
        schema = self._schemas[number]
        return schema is True or (isinstance(schema, dict) and _ANNOTATIONS.issuperset(schema))

    # one schema

    def value(self, schema: Any) -> Value:
        """The language of a schema."""
        if schema is True or schema == {}:
            return ANYTHING
        if schema is False:
            return NOTHING
        if not isinstance(schema, dict):
            raise SchemaError(
                f"a schema must be an object or a boolean, not {type(schema).__name__}", pointer=self._document.pointer(schema)
            )
        key = id(schema)
        found = self._read.get(key)
        if found is None:
            if key in self._open:
                raise SchemaError(
                    "this schema refers to itself without reading anything", pointer=self._document.pointer(schema),
                    fix="Let the reference stand below properties or items.",
                )  # fmt: skip
            self._open.add(key)
            found = self._read[key] = self._schema(schema)
            self._open.discard(key)
        return found

    def _schema(self, schema: dict[str, Any]) -> Value:
        draft = self._document.draft
        check_keywords(schema, draft, self._document.pointer(schema))
        parts = [self.value(target) for target in self._document.referred(schema)]
        if "$ref" in schema and draft <= 7 and self._document.declared:
            return self._values.all_of([*parts, *self._unevaluated(schema)])
        for read in (self._type, self._words, self._spelled, self._numeric, self._text, self._array, self._object):
            part = read(schema)
            if part != ANYTHING:
                parts.append(part)
        parts += self._dependent_schemas(schema)
        parts += self._combined(schema)
        parts += self._unevaluated(schema)
        return self._values.all_of(parts)

    def _at(self, schema: Any, keyword: str) -> str:
        return f"{self._document.pointer(schema)}/{keyword}"

    def _atom(self, atom: Any, schema: Any, keyword: str) -> int:
        self.origin.setdefault(atom, self._at(schema, keyword))
        return self._decisions.atom(atom)

    def _made_of(self, schema: dict[str, Any]) -> Value:
        """The value of a schema that is made here; it lives as long as the values that are known by its identity."""
        self._made.append(schema)
        return self.value(schema)

    def _count(self, schema: dict[str, Any], keyword: str, default: int | None) -> int | None:
        """The value of a keyword that counts; None where there is no upper bound, or one that no text reaches."""
        value = schema.get(keyword, default)
        if value is None or value < MOST_COUNT:
            return None if value is None else int(value)
        if keyword.startswith("max"):
            return None
        what = f"{keyword} is {int(value):,}: no text of that many can be written"
        raise UnsupportedSchemaError(what, pointer=self._at(schema, keyword), fix=f"Ask for fewer than {MOST_COUNT:,}.")

    # types and finite lists

    def _type(self, schema: dict[str, Any]) -> Value:
        if "type" not in schema:
            return ANYTHING
        given = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        out = [0] * KINDS
        for name in given:
            if isinstance(name, dict) and self._document.draft == 3:
                return self._values.any_of([self._type({"type": x}) if isinstance(x, str) else self.value(x) for x in given])
            if name == "any" and self._document.draft == 3:
                return ANYTHING
            if name == "boolean":
                out[TRUE] = out[FALSE] = 1
            elif name == "integer":
                integer = self._decisions.atom(IsInteger())
                if self._options.integers == "all" and self._document.draft < 6:  # where 4.0 and 4e3 are none
                    integer = self._decisions.both(integer, self._atom(Spelled("-?(0|[1-9][0-9]*)"), schema, "type"))
                out[NUMBER] = self._decisions.either(out[NUMBER], integer)
            elif name in ("null", "number", "string", "array", "object"):
                out[KIND_NAMES.index(name)] = 1
            else:
                raise SchemaError(
                    f"unknown type {name!r:.40}", pointer=self._at(schema, "type"),
                    fix="The types are null, boolean, integer, number, string, array, object.",
                )  # fmt: skip
        return Value(tuple(out), UNORDERED)

    def _words(self, schema: dict[str, Any]) -> Value:
        """enum and const."""
        parts = []
        if "enum" in schema:
            parts.append(self._listed(schema["enum"], schema, "enum"))
        if "const" in schema:
            parts.append(self._listed([schema["const"]], schema, "const"))
        return self._values.all_of(parts)

    def _listed(self, instances: list[Any], schema: dict[str, Any], keyword: str) -> Value:
        d, out = self._decisions, [0] * KINDS
        words, structured = list[str](), list[Value]()
        for x in instances:
            if x is None or isinstance(x, bool):
                out[NULL if x is None else TRUE if x else FALSE] = 1
            elif numbers.is_number(x):
                out[NUMBER] = d.either(out[NUMBER], self._atom(Equals(numbers.exact(x)), schema, keyword))
            elif isinstance(x, str):
                words.append(x)
            elif isinstance(x, list):
                same: dict[str, Any] = {"prefixItems": [_constant(y) for y in x], "items": False, "minItems": len(x)}
                structured.append(self._exactly("array", same))
            elif isinstance(x, dict):
                same = {"properties": {k: _constant(y) for k, y in x.items()}, "required": list(x), "additionalProperties": False}
                structured.append(self._exactly("object", same))
            else:
                raise SchemaError(f"{x!r:.40} is no JSON value", pointer=self._at(schema, keyword))
        if words:
            out[STRING] = self._atom(OneOf(tuple(dict.fromkeys(words))), schema, keyword)
        listed = Value(tuple(out), UNORDERED)
        return self._values.any_of([listed, *structured]) if structured else listed

    def _exactly(self, kind: str, schema: dict[str, Any]) -> Value:
        """The value of a made schema, for values of one kind and no others; its keywords are those of 2020-12."""
        index = KIND_NAMES.index(kind)
        self._made.append(schema)
        formulas, orders = self._array(schema) if index == ARRAY else self._object(schema)
        return Value(tuple(f if k == index else 0 for k, f in enumerate(formulas)), orders)

    def _spelled(self, schema: dict[str, Any]) -> Value:
        if SPELLING not in schema:
            return ANYTHING
        atom = self._atom(Spelled(schema[SPELLING]), schema, SPELLING)
        return self._values.both(self._values.only(NUMBER, atom), self._values.only(STRING, atom))

    # numbers

    def _numeric(self, schema: dict[str, Any]) -> Value:
        d = self._decisions
        parts = []
        for keyword, exclusive, lower in (("minimum", "exclusiveMinimum", True), ("maximum", "exclusiveMaximum", False)):
            strict = schema.get(exclusive)
            if keyword in schema:
                parts.append(self._bound(schema, keyword, lower, strict is True))
            elif strict is True:
                what = f"{exclusive}: true needs the bound, and there is no {keyword!r}"
                raise SchemaError(what, pointer=self._at(schema, exclusive), fix=f"Give {keyword}, or {exclusive} as a number.")
            if exclusive in schema and not isinstance(strict, bool):
                parts.append(self._bound(schema, exclusive, lower, True))
        for keyword in ("multipleOf", "divisibleBy"):
            if keyword in schema and (keyword == "multipleOf" or self._document.draft == 3):
                divisor = schema[keyword]
                parts.append(self._atom(IsMultiple(numbers.exact(divisor)), schema, keyword))
        return self._values.only(NUMBER, d.all_of(parts)) if parts else ANYTHING

    def _bound(self, schema: dict[str, Any], keyword: str, lower: bool, strict: bool) -> int:
        d = self._decisions
        bound = numbers.exact(schema[keyword])
        least = self._atom(AtLeast(bound), schema, keyword)
        if lower and not strict:
            return least
        if not lower and strict:
            return d.negated(least)
        equal = self._atom(Equals(bound), schema, keyword)
        return d.choose(equal, 0, least) if lower else d.choose(equal, 1, d.negated(least))

    # strings

    def _text(self, schema: dict[str, Any]) -> Value:
        parts = []
        low, high = self._count(schema, "minLength", 0), self._count(schema, "maxLength", None)
        assert low is not None
        named = "minLength" if high is None else "maxLength"
        if "pattern" in schema:
            from fsa_compile.json_schema.patterns import listed_words, without_count  # what reads patterns is slow to load

            pattern = schema["pattern"]
            words = listed_words(pattern) if self._options.lists_patterns else None
            counted = None if words is not None else without_count(pattern)
            if counted is not None:
                pattern, least, most = counted
                if least > low or (most is not None and (high is None or most < high)):
                    named = "pattern"
                low, high = max(low, least), most if high is None else high if most is None else min(high, most)
            parts.append(self._atom(Found(pattern) if words is None else OneOf(words), schema, "pattern"))
        if high is not None and low > high:
            parts.append(0)
        elif low or high is not None:
            parts.append(self._atom(Length(low, high), schema, named))
        name = schema.get("format")
        if isinstance(name, str) and self._options.formats == "assert":
            if name in FORMATS:
                apart = name in LENGTH_APART and high is not None and high < LENGTH_APART[name][1]
                parts.append(self._atom(HasFormat(name, apart), schema, "format"))
            elif name in REFUSED_FORMATS and self._options.unenforced_formats == "refuse":
                raise UnsupportedSchemaError(
                    f"the format {name!r} cannot be enforced exactly", pointer=self._at(schema, "format"),
                    fix='Remove it, or set SchemaOptions(unenforced_formats="annotate") and check the value after parsing.',
                )  # fmt: skip
        return self._values.only(STRING, self._decisions.all_of(parts)) if parts else ANYTHING

    # arrays

    def _array(self, schema: dict[str, Any]) -> Value:
        prefix, rest = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(rest, list):
            prefix, rest = rest, schema.get("additionalItems", True)
        parts = []
        items = Items(tuple(map(self.number, prefix)), self.number(rest))
        if items.prefix or not self.accepts_anything(items.rest):
            parts.append(self._atom(items, schema, "items"))
        parts += self._member_count(schema, "minItems", "maxItems")
        if "contains" in schema:
            low, high = self._count(schema, "minContains", 1), self._count(schema, "maxContains", None)
            assert low is not None
            if low or high is not None:
                parts.append(self._atom(Contains(self.number(schema["contains"]), low, high), schema, "contains"))
        most = self._count(schema, "maxItems", None)
        if schema.get("uniqueItems") is True and (most is None or most > 1):
            parts.append(self._unique(schema, items))
        return self._values.only(ARRAY, self._decisions.all_of(parts)) if parts else ANYTHING

    def _member_count(self, schema: dict[str, Any], least: str, most: str) -> list[int]:
        low, high = self._count(schema, least, 0), self._count(schema, most, None)
        assert low is not None
        if not low and high is None:
            return []
        if high is not None and low > high:
            return [0]
        return [self._atom(Count(low, high), schema, least if high is None else most)]

    def _unique(self, schema: dict[str, Any], items: Items) -> int:
        """uniqueItems: over a short list of values, each at most once."""
        schemas = [*items.prefix, items.rest]
        domains = [None if self.accepts_anything(x) else self._domain(self.numbered(x)) for x in schemas]
        domain: dict[str, dict[str, Any]] = {}
        for found in domains:
            domain.update({json.dumps(constant): constant for constant in found or ()})
        if None in domains or len(domain) > self._options.max_unique:
            return self._decisions.atom(Differ(self._at(schema, "uniqueItems"), None if None in domains else len(domain)))
        atoms = []
        for constant in domain.values():
            self._made.append(constant)
            atoms.append(self._atom(Once(self.number(constant)), schema, "uniqueItems"))
        return self._decisions.all_of(atoms)

    def _domain(self, value: Value) -> list[dict[str, Any]] | None:
        """Schemas of the single values of a finite language without arrays and objects; None for any other."""
        d = self._decisions
        formulas = value.formulas
        numeric = self.few_numbers(formulas[NUMBER])
        if formulas[ARRAY] or formulas[OBJECT] or numeric is None:
            return None
        out = [_constant(x) for kind, x in ((NULL, None), (TRUE, True), (FALSE, False)) if formulas[kind]]
        out += [_constant(x.numerator if x.denominator == 1 else float(x)) for x in numeric]
        listed = [d.atoms[v] for v in d.support(formulas[STRING])]
        if any(not isinstance(a, OneOf) for a in listed) or d.evaluate(formulas[STRING], lambda _: False):
            return None
        words = dict.fromkeys(word for a in listed if isinstance(a, OneOf) for word in a.words)
        for word in words:
            if d.evaluate(formulas[STRING], lambda v, w=word: w in d.atoms[v].words):  # type: ignore
                out.append(_constant(word))
        return out

    def few_numbers(self, formula: int) -> list[Fraction] | None:
        """The numbers of a formula that only has a few, None for any other."""
        d = self._decisions
        formula = d.substitute(formula, {v: 1 for v in d.support(formula) if isinstance(d.atoms[v], Spelled)})
        atoms = [d.atoms[v] for v in d.support(formula)]
        bounds = sorted({a.bound for a in atoms if isinstance(a, (AtLeast, Equals))})
        beyond = [bounds[0] - 1, bounds[-1] + 1] if bounds else [Fraction(0)]
        multiples = [v for v in d.support(formula) if isinstance(d.atoms[v], (IsInteger, IsMultiple))]
        for x in beyond:  # nothing below the least bound and above the largest
            if d.substitute(formula, {v: int(holds_of(d.atoms[v], x)) for v in d.support(formula) if v not in multiples}):
                return None
        if all(isinstance(a, Equals) for a in atoms):
            candidates = bounds
        else:
            fractions = d.substitute(formula, {v: 0 for v in d.support(formula) if isinstance(d.atoms[v], IsInteger)})
            listed = all(isinstance(d.atoms[v], Equals) for v in d.support(fractions))
            if not listed or d.evaluate(fractions, lambda _: False) or bounds[-1] - bounds[0] > _MOST_NUMBERS:
                return None
            candidates = [Fraction(x) for x in range(math.ceil(bounds[0]), math.floor(bounds[-1]) + 1)]
            candidates += [bound for bound in bounds if bound.denominator > 1]
        return [x for x in candidates if d.evaluate(formula, lambda v, x=x: holds_of(d.atoms[v], x))]  # type: ignore[misc]

    # objects

    def _object(self, schema: dict[str, Any]) -> Value:
        properties = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        additional = schema.get("additionalProperties", True)
        order = dict.fromkeys(properties)
        parts = []
        if properties or patterns or not (additional is True or additional == {}):
            parts.append(self._atom(Members(self._table(properties, patterns, additional)), schema, "properties"))
            for pattern in patterns:
                self.origin.setdefault(Found(pattern), self._at(schema, "patternProperties"))
        required = schema.get("required")
        if isinstance(required, list):
            order.update(dict.fromkeys(required))
            parts += [self._decisions.atom(Has(key)) for key in dict.fromkeys(required)]
        for key, below in properties.items():
            if isinstance(below, dict) and below.get("required") is True and self._document.draft == 3:
                parts.append(self._decisions.atom(Has(key)))
        if "propertyNames" in schema:
            names = self.value(schema["propertyNames"]).formulas[STRING]
            parts += [] if names == 1 else [self._atom(Names(names), schema, "propertyNames")]
            if schema.get("minProperties", 0) > 1:
                order.update(dict.fromkeys(self._listed_names(names)))  # so that these keys are told apart
        parts += self._member_count(schema, "minProperties", "maxProperties")
        orders = [tuple(order)]
        if isinstance(required, list) and len(order) <= self._options.max_reordered:
            orders.append(tuple(dict.fromkeys([*required, *order])))
        parts += self._dependent_required(schema, orders)
        if not parts and not order:
            return ANYTHING
        return self._values.only(OBJECT, self._decisions.all_of(parts), self._values.few(orders))

    def _listed_names(self, formula: int) -> list[str]:
        """The keys of a string formula that is a finite list; none for any other."""
        d = self._decisions
        listed = [atom for v in d.support(formula) if isinstance(atom := d.atoms[v], OneOf)]
        if len(listed) < len(d.support(formula)) or d.evaluate(formula, lambda _: False):
            return []
        words = dict.fromkeys(word for atom in listed for word in atom.words)
        return [w for w in words if d.evaluate(formula, lambda v, w=w: w in d.atoms[v].words)]  # type: ignore[attr-defined, misc]

    def _table(self, properties: dict[str, Any], patterns: dict[str, Any], additional: Any) -> int:
        by_key = {key: self.number(x) for key, x in properties.items()}
        by_pattern = tuple((pattern, self.number(x)) for pattern, x in patterns.items())
        key = (tuple(by_key.items()), by_pattern, self.number(additional))
        found = self._table_number.get(key)
        if found is None:
            found = self._table_number[key] = len(self.tables)
            self.tables.append(MemberTable(by_key, by_pattern, key[2]))
        return found

    def _dependencies(self, schema: dict[str, Any], current: str) -> list[tuple[str, Any]]:
        return [*schema.get(current, {}).items(), *schema.get("dependencies", {}).items()]

    def _dependent_required(self, schema: dict[str, Any], orders: list[tuple[str, ...]]) -> list[int]:
        """The conditions, and in `orders` the keys they name: a key before those it needs, or after them."""
        d = self._decisions
        out = []
        before, after = dict[str, None](), dict[str, None]()
        for key, needed in self._dependencies(schema, "dependentRequired"):
            others = [needed] if isinstance(needed, str) else needed if isinstance(needed, list) else []
            out += [d.choose(d.atom(Has(key)), d.atom(Has(other)), 1) for other in others]
            before.update(dict.fromkeys([key, *others] if others else []))
            after.update(dict.fromkeys([*others, key] if others else []))
        if before:
            orders[:] = [tuple(dict.fromkeys([*order, *named])) for order in orders for named in (before, after)]
        return out

    def _dependent_schemas(self, schema: dict[str, Any]) -> list[Value]:
        return [
            self._values.dependent(key, self.value(below))
            for key, below in self._dependencies(schema, "dependentSchemas")
            if isinstance(below, (dict, bool))
        ]

    # combinators

    def _combined(self, schema: dict[str, Any]) -> list[Value]:
        values = self._values
        out = [self.value(x) for x in schema.get("allOf", [])]
        if "anyOf" in schema:
            out.append(values.any_of([self.value(x) for x in schema["anyOf"]]))
        if "oneOf" in schema:
            out.append(values.one_of([self.value(x) for x in schema["oneOf"]]))
        if "not" in schema:
            out.append(values.negated(self.value(schema["not"])))
        if "if" in schema and ("then" in schema or "else" in schema):
            then, other = self.value(schema.get("then", True)), self.value(schema.get("else", True))
            out.append(values.choose(self.value(schema["if"]), then, other))
        if self._document.draft == 3:
            out += self._draft_3(schema)
        return out

    def _draft_3(self, schema: dict[str, Any]) -> list[Value]:
        extended = schema.get("extends", [])
        out = [self.value(x) for x in (extended if isinstance(extended, list) else [extended])]
        if "disallow" in schema:
            out.append(self._values.negated(self._type({"type": schema["disallow"]})))
        return out

    def _unevaluated(self, schema: dict[str, Any]) -> list[Value]:
        """Last of all, so that its branches have no say in the order of keys."""
        alone = "$ref" in schema and self._document.draft <= 7 and self._document.declared
        said = list[str]() if alone else [k for k in _UNEVALUATED if k in schema and schema[k] is not True and schema[k] != {}]
        said += ["unevaluatedProperties"] if id(schema) in self._to_close else []
        if not said:
            return []
        from fsa_compile.json_schema.unevaluated import Unevaluated  # few schemas say so

        parts = (self._document, self._values, self._options)
        return [Unevaluated(self, *parts, keyword, schema).value(self._made_of) for keyword in said]


def _constant(x: Any) -> dict[str, Any]:
    """A schema of exactly one value, in every draft."""
    return {"enum": [x]}
