"""The schema document: its draft, what `$ref` refers to, where each part stands, and which of its objects are open."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar
from urllib.parse import unquote, urldefrag, urljoin

from fsa_compile.arrays.recursion import deep_recursion
from fsa_compile.errors import SchemaError, UnsupportedSchemaError
from fsa_compile.inputs.json_input import check_json, escaped, parse_json
from fsa_compile.json_schema.keyword_types import DATA, KEYWORDS, NAMES, of_draft
from fsa_compile.json_schema.schema_options import Draft, SchemaOptions
from fsa_compile.limits import CompileLimits

_DRAFTS = {"draft-03": 3, "draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}
_NUMBER = {"3": 3, "4": 4, "6": 6, "7": 7, "2019-09": 2019, "2020-12": 2020}
_Built = TypeVar("_Built")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
"""Of these, the target of the last two is a matter of the resources through which a value's schema was reached."""
_MOST_COPIES = 50_000
_RECURSIVE, _BROKEN = "recursive", "broken"
_Scope = dict[str, str]
"""Of every name of dynamic anchors met the base URI of the outermost resource that has it."""


def read_schema(schema: Any, limits: CompileLimits) -> Any:
    """The decoded schema: a text is parsed, with numbers kept exactly. What is behind may rely on its being JSON.

    Raises:
      SchemaError: it is no JSON, or neither an object nor a boolean.
      LimitError: it is longer or deeper than `limits` allow, or has a number with more digits.
    """
    if isinstance(schema, str) and re.fullmatch(r"[\w./\\~-]+\.(json|yaml|yml)", schema.strip()):
        what = f"{schema!r} looks like the name of a file, not like a schema"
        raise SchemaError(what, pointer="#", fix=f"Read the file first: Path({schema!r}).read_text().")
    if isinstance(schema, type):
        what = f"{schema.__name__} is a class, not a JSON Schema"
        raise SchemaError(what, pointer="#", fix=f"Use compile_type({schema.__name__}, tokenizer).")
    if isinstance(schema, (str, bytes)):
        fix = "Pass a dict, or the schema as JSON; YAML goes through yaml.safe_load, a pattern to compile_regex."
        schema = parse_json(schema, limits, SchemaError, fix=fix)
    elif isinstance(schema, dict):
        check_json(schema, limits, SchemaError)
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(
            f"a schema must be an object or a boolean, not {type(schema).__name__}", pointer="#",
            fix="Pass a dict, True, False, or the schema's text.",
        )  # fmt: skip
    return schema


def enforceable(schema: Any, unenforced: Collection[str], build: Callable[[Any], _Built]) -> tuple[_Built, list[str]]:
    """What is built of a schema, and the JSON pointers of the keywords that had to be left out for it.

    Args:
      schema: as it was read.
      unenforced: keywords that may be left out where they are refused.
      build: raises `UnsupportedSchemaError` for what cannot be enforced.

    Raises:
      UnsupportedSchemaError: something else is refused, or a keyword where leaving it out would forbid valid values.
    """
    left_out: list[str] = []
    while True:
        try:
            return build(schema), left_out
        except UnsupportedSchemaError as error:
            path = [name.replace("~1", "/").replace("~0", "~") for name in error.pointer.split("/")[1:]]
            if not path or path[-1] not in unenforced or not _only_widens(schema, path):
                raise
            schema = _without(schema, path)
            left_out.append(error.pointer)


_TURNED = ("not", "if", "oneOf", "contains", "disallow")
"""Keywords below which a wider schema may allow less."""


def _only_widens(schema: Any, path: list[str]) -> bool:
    """Whether a schema allows more once something in it is left out: it is not below keywords that turn it round, and no
    reference leads from there to it."""
    names = False
    for name in path:
        if not names and name in _TURNED:
            return False
        names = not names and name in NAMES
    todo = [(schema, False, False)]
    while todo:
        part, turned, names = todo.pop()
        if isinstance(part, list):
            todo += [(child, turned, False) for child in part]
        elif isinstance(part, dict):
            if turned and not names and any(name in part for name in REFERENCES):
                return False
            todo += [
                (child, turned or (not names and name in _TURNED), not names and name in NAMES)
                for name, child in part.items()
                if names or name not in DATA
            ]
    return True


def _without(schema: Any, path: list[str]) -> Any:
    """A schema without one member; the rest of it is shared."""
    if isinstance(schema, list):
        return [_without(child, path[1:]) if str(i) == path[0] else child for i, child in enumerate(schema)]
    if len(path) == 1:
        return {name: child for name, child in schema.items() if name != path[0]}
    return {name: _without(child, path[1:]) if name == path[0] else child for name, child in schema.items()}


class Document:
    """A schema document whose references can be resolved.

    Attributes:
      root: the whole schema, without keywords that a declared draft does not have: there they are annotations.
      roots: the schemas whose values are written: the whole one, or those in its `$defs`, each a document of its own.
      draft: 3, 4, 6, 7, 2019 or 2020.
      declared: whether the draft was given, by the schema or by the caller.

    Raises:
      UnsupportedSchemaError: dynamic references lead to too many parts.
    """

    def __init__(self, root: Any, draft: Draft, *, of_defs: bool = False) -> None:
        named = str(root.get("$schema", "")) if isinstance(root, dict) else ""
        found = next((number for name, number in _DRAFTS.items() if name in named), None)
        self.declared = draft != "auto" or found is not None
        self.draft = _NUMBER[draft] if draft != "auto" else found or 2020
        if self.declared:
            root = of_draft(root, self.draft)
        self._scopes: list[_Scope] = [{}]
        self._scope_number: dict[tuple[tuple[str, str], ...], int] = {(): 0}
        self._after_entering: dict[tuple[str, int], int] = {}
        self._scope: dict[int, int] = {}
        self._size = 0.0
        self._targets: dict[int, list[Any] | SchemaError] = {}
        if not self._visit(root, of_defs):
            self._visit(root := _unshared(root), of_defs)
        self._is_one_resource = not self._refers_dynamically and all(part is root for part in self._resources.values())
        self.root = self._copied_by_scope(root) if self._refers_dynamically else root
        self.roots = list(self.root["$defs"].values()) if of_defs else [self.root]

    def pointer(self, schema: Any) -> str:
        """Where a part of the document stands, "#" when it was made from others."""
        names: list[str] = []
        while id(schema) in self._place:
            schema, name = self._place[id(schema)]
            names.append(name)
        return "/".join(["#", *reversed(names)])

    def base(self, schema: Any) -> str:
        """The base URI in force in a part of the document."""
        return self._base.get(id(schema), "")

    def scope(self, schema: Any) -> Any:
        """What tells, with a part's text, what the references in it refer to; for a schema that was made from several parts
        this is the schema itself, unless the document is one resource."""
        if self._is_one_resource:
            return None
        is_part = id(schema) in self._place or schema is self.root
        return (self.base(schema), self._scope.get(id(schema))) if is_part else id(schema)

    def _visit(self, root: Any, of_defs: bool) -> bool:
        """Notes the base URI of every part, the part that it stands in, and every name that a reference may use. What stands
        below unknown keywords comes last: it may be no schema, and a schema that has the same name is meant.

        Returns:
          False if one Python object stands below several base URIs: references in it would mean those of one of them.
        """
        self._resources: dict[str, Any] = {"": root}
        self._ambiguous = set[str]()
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic_anchors: dict[tuple[str, str], Any] = {}
        self._base: dict[int, str] = {}
        self._place: dict[int, tuple[Any, str]] = {}
        self._refers_dynamically = False
        todo, unknown = [(root, "", False)], list[tuple[Any, str, bool]]()
        seen, is_one_each, is_known = {id(root): ""}, True, True
        while todo or unknown:
            is_known &= bool(todo)
            part, base, names = (todo or unknown).pop()
            if isinstance(part, dict):
                if not names:
                    base = self._named(part, base, is_known)
                if base:
                    self._base[id(part)] = base
            for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
                below = isinstance(value, (dict, list)) and (names or key not in DATA)
                if of_defs and part is root["$defs"]:
                    base = f"urn:constrax:defs:{key}"
                    self._resources[base] = value
                is_one_each &= not below or seen.get(id(value), base) == base
                if below and id(value) not in seen:
                    seen[id(value)] = base
                    self._place[id(value)] = part, escaped(str(key))
                    known = names or isinstance(part, list) or key in KEYWORDS
                    (todo if known else unknown).append((value, base, not names and key in NAMES and isinstance(value, dict)))
        return is_one_each

    def _named(self, part: dict[str, Any], base: str, is_known: bool) -> str:
        """Registers the names of one part; its base URI. `is_known`: it stands below no unknown keyword."""
        identifier = part.get("id" if self.draft <= 4 else "$id")
        if isinstance(identifier, str) and not (self.draft <= 7 and "$ref" in part):
            try:
                resource, fragment = urldefrag(identifier)
                joined = _join(base, resource)
            except ValueError as error:
                keyword = "id" if self.draft <= 4 else "$id"
                what = f"{keyword} {identifier!r:.80} is no URI ({error})"
                raise SchemaError(what, pointer=f"{self.pointer(part)}/{keyword}") from None
            if resource or not fragment:
                base = joined
                if self._resources.setdefault(base, part) != part and is_known:
                    self._ambiguous.add(base)
            if fragment:
                self._anchors.setdefault((base, fragment), part)
        for keyword, anchors in (("$anchor", self._anchors), ("$dynamicAnchor", self._dynamic_anchors)):
            if isinstance(part.get(keyword), str):
                anchors.setdefault((base, part[keyword]), part)
        self._refers_dynamically |= any(keyword in part for keyword in REFERENCES[1:])
        return base

    def referred(self, schema: dict[str, Any]) -> list[Any]:
        """What the references in a part of the document refer to.

        Raises:
          SchemaError: it refers to nothing.
          UnsupportedSchemaError: it refers to another document.
        """
        found = self._targets.get(id(schema))
        if isinstance(found, SchemaError):
            raise found
        if found is None:
            return [self._resolved(schema, "$ref", {})] if isinstance(schema.get("$ref"), str) else []
        return found

    def _resolved(self, source: dict[str, Any], keyword: str, scope: _Scope) -> Any:
        """What a keyword in a part refers to where certain resources were entered before."""
        reference = source[keyword]
        if keyword == "$recursiveRef" and reference != "#":
            what = f"$recursiveRef is {reference!r:.80}; only '#' has a meaning"
            raise SchemaError(what, pointer=f"{self.pointer(source)}/$recursiveRef", fix="Use $ref.")
        try:
            resource, fragment = urldefrag(reference)
            base = _join(self.base(source), resource) if resource else self.base(source)
        except ValueError as error:
            what = f"{keyword} {reference!r:.80} is no URI reference ({error})"
            raise SchemaError(what, pointer=f"{self.pointer(source)}/{keyword}") from None
        found = self._resources.get(base)
        if found is None:
            raise UnsupportedSchemaError(
                f"{keyword} {reference!r:.80} refers to another document", pointer=self.pointer(source),
                fix="Put that document into $defs and give it its $id, or refer to it there.",
            )  # fmt: skip
        fragment = unquote(fragment)
        if self._ambiguous and (base in self._ambiguous or not self._ambiguous.isdisjoint(scope.values())):
            what = f"{keyword} {reference!r:.80} is ambiguous: several schemas have one $id"
            raise SchemaError(what, pointer=self.pointer(source), fix="Give each of them an $id of its own, or none.")
        if not fragment:
            if keyword != "$recursiveRef" or not _recurs(found):
                return found
            if _BROKEN in scope:
                what = "$recursiveRef reached through a schema without $recursiveAnchor is not supported"
                raise UnsupportedSchemaError(what, pointer=f"{self.pointer(source)}/$recursiveRef", fix="Use $ref.")
            return self._resources[scope[_RECURSIVE]]
        if not fragment.startswith("/"):
            found = self._dynamic_anchors.get((base, fragment))
            if found is None:
                found = self._anchors.get((base, fragment))
            elif keyword == "$dynamicRef":
                found = self._dynamic_anchors[scope.get(f"#{fragment}", base), fragment]
            if found is None:
                raise SchemaError(f"{keyword} {reference!r:.80} refers to nothing", pointer=self.pointer(source))
            return found
        for name in fragment[1:].split("/"):
            name = name.replace("~1", "/").replace("~0", "~")
            try:
                if isinstance(found, list):
                    found = found[int(name)] if name.isdecimal() else None
                else:
                    found = found[name]
            except (KeyError, ValueError, IndexError, TypeError):
                found = None
            if found is None:
                raise SchemaError(f"{keyword} {reference!r:.80} refers to nothing", pointer=self.pointer(source))
        return found

    def _copied_by_scope(self, root: Any) -> Any:
        """A copy of the document in which every dynamic reference has one target: of every part one copy for each set of
        outermost resources with which it is reached."""
        made: dict[tuple[int, int, bool], Any] = {}
        todo = list[tuple[Any, int, bool, Any]]()

        def copied(part: Any, scope: int, names: bool = False) -> Any:
            if not isinstance(part, (dict, list)):
                return part
            if isinstance(part, dict):
                scope = self._entered(self.base(part), scope)
            key = id(part), scope, names
            if key not in made:
                self._grow(1)
                made[key] = {} if isinstance(part, dict) else []
                self._note(made[key], part, scope)
                todo.append((part, scope, names, made[key]))
            return made[key]

        top = copied(root, 0)
        while todo:
            part, scope, names, copy = todo.pop()
            if isinstance(part, list):
                copy += [copied(child, scope) for child in part]
                continue
            for key, child in part.items():
                data = not names and key in DATA
                copy[key] = child if data else copied(child, scope, not names and key in NAMES and isinstance(child, dict))
            referring = [] if names else [keyword for keyword in REFERENCES if isinstance(part.get(keyword), str)]
            if referring:
                try:
                    self._targets[id(copy)] = [
                        copied(self._resolved(part, keyword, self._scopes[scope]), scope) for keyword in referring
                    ]
                except SchemaError as error:  # for who compiles this part
                    self._targets[id(copy)] = error
        return top

    def _grow(self, size: float) -> None:
        """Counts parts that are copied; twenty names that are kept of a set of resources are as large as one."""
        self._size += size
        if self._size > _MOST_COPIES:
            what = f"the dynamic references of the schema lead to more than {_MOST_COPIES:,} parts"
            raise UnsupportedSchemaError(what, pointer="#", fix="Use $ref where the target is known.")

    def _note(self, copy: Any, part: Any, scope: int) -> None:
        self._scope[id(copy)] = scope
        if id(part) in self._base:
            self._base[id(copy)] = self._base[id(part)]
        if id(part) in self._place:
            self._place[id(copy)] = self._place[id(part)]

    def _entered(self, base: str, scope: int) -> int:
        """The number of the outermost resources once that of a base URI is entered, too."""
        found = self._after_entering.get((base, scope))
        if found is None:
            known = dict(self._scopes[scope])
            for name in self._names_of_anchors.get(base, ()):
                known.setdefault(f"#{name}", base)
            if _recurs(self._resources.get(base)):
                known.setdefault(_RECURSIVE, base)
            elif _RECURSIVE in known:
                known[_BROKEN] = ""
            found = self._scope_number.setdefault(tuple(sorted(known.items())), len(self._scopes))
            if found == len(self._scopes):
                self._grow(len(known) / 20)
                self._scopes.append(known)
            self._after_entering[base, scope] = found
        return found

    @functools.cached_property
    def _names_of_anchors(self) -> dict[str, list[str]]:
        """The names of dynamic anchors by the base URI of their resource."""
        found: dict[str, list[str]] = {}
        for base, name in self._dynamic_anchors:
            found.setdefault(base, []).append(name)
        return found


def _recurs(resource: Any) -> bool:
    return isinstance(resource, dict) and resource.get("$recursiveAnchor") is True


def _unshared(part: Any) -> Any:
    """A copy in which every part is an object of its own."""
    if isinstance(part, dict):
        return {key: _unshared(child) for key, child in part.items()}
    return [_unshared(child) for child in part] if isinstance(part, list) else part


def _join(base: str, resource: str) -> str:
    if not resource:
        return base
    return urljoin(base, resource) if base and not base.startswith("urn:") else resource


# Objects that name some of their keys and allow any others, the default of the standard. `additional_properties=False` closes
# them as `"unevaluatedProperties": false` would, in every draft.

_MOST_PLACES = 20
_CLOSING = ("additionalProperties", "unevaluatedProperties")
_MEMBERS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", *_CLOSING)
_CONDITIONS = ("not", "if", "contains", "propertyNames", "disallow")
_PLAIN = ("enum", "const", "default", "examples", "example", "required", "dependentRequired")
_NAMING = ("properties", "patternProperties")
_SEARCHED = frozenset(
    (*_NAMING, *_MEMBERS, *REFERENCES, "allOf", "anyOf", "dependencies", "dependentSchemas", "else", "extends", "oneOf", "then")
)
"""Keywords without which a schema names no keys, and holds no schema that may."""


def open_objects(document: Document) -> list[dict[str, Any]]:
    """The schemas of values that name keys and, in no branch that must hold, say anything of others."""
    return _Search(document).found


def open_places(document: Document, options: SchemaOptions) -> list[str]:
    """JSON pointers of the objects that stay open; of many the first ones, and then "…"."""
    if not options.additional_properties:
        return []
    with deep_recursion():
        places = [document.pointer(found) for found in open_objects(document)]
    return places if len(places) <= _MOST_PLACES else [*places[:_MOST_PLACES], "…"]


@deep_recursion()
def document_of(schema: Any, options: SchemaOptions, *, of_defs: bool = False) -> Document:
    """The document of a schema; where its objects are to be closed, with a schema of its own for each use of a Python object.

    Args:
      schema: as it was read.
      options: how it is read.
      of_defs: whether the values are not those of the whole schema, but of each of its `$defs`.
    """
    if not options.additional_properties:
        apart = _Apart()
        if of_defs:
            schema = schema | {"$defs": {name: apart.copied(part, "value") for name, part in schema["$defs"].items()}}
        else:
            schema = apart.copied(schema, "value")
    return Document(schema, options.draft, of_defs=of_defs)


class _Apart:
    """Copies a schema, so that what describes a value alone, beside other schemas, or in a condition are different objects."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], Any] = {}

    def copied(self, schema: Any, use: str) -> Any:
        if not isinstance(schema, dict):
            return schema
        made = self._made.get((id(schema), use))
        if made is None:
            made = self._made[id(schema), use] = {}
            made.update({key: self._below(key, value, use) for key, value in schema.items()})
        return made

    def _below(self, key: str, value: Any, use: str) -> Any:
        if key in _PLAIN or not isinstance(value, (dict, list)):
            return value
        if use != "condition":
            use = "condition" if key in _CONDITIONS else "value" if key in (*_NAMING, *_MEMBERS) else "together"
        if isinstance(value, list):
            return [self.copied(part, use) for part in value]
        if key in (*_NAMING, "$defs", "definitions", "dependentSchemas", "dependencies"):
            return {name: self.copied(part, use) for name, part in value.items()}
        return self.copied(value, use)


class _Search:
    """Looks at every schema once as that of a value, and once as one of several that speak of the same value."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[int, bool] = {}
        self._closes: dict[int, bool] = {}
        self.found: list[dict[str, Any]] = []
        seen, todo = set[tuple[int, bool]](), [(root, True) for root in reversed(document.roots)]
        while todo:
            schema, alone = todo.pop()
            if not isinstance(schema, dict) or _SEARCHED.isdisjoint(schema) or (id(schema), alone) in seen:
                continue
            seen.add((id(schema), alone))
            if alone and self._has_names(schema) and not self._is_closed(schema):
                self.found.append(schema)
            below = [part for keyword in _NAMING for part in _parts(schema.get(keyword), named=True)]
            below += [part for keyword in _MEMBERS for part in _parts(schema.get(keyword))]
            todo += [(part, False) for part in reversed([*self._together(schema), *_choices(schema)])]
            todo += [(part, True) for part in reversed(below)]

    def _together(self, schema: dict[str, Any]) -> list[Any]:
        """The schemas that a value must satisfy besides."""
        found = [*_parts(schema.get("allOf")), *_parts(schema.get("extends"))]
        with contextlib.suppress(SchemaError):  # where it matters, who compiles the schema says so
            found += self._document.referred(schema)
        return found

    def _has_names(self, schema: Any) -> bool:
        """Whether a schema, or one that may speak of the same value, names keys."""
        if not isinstance(schema, dict):
            return False
        if id(schema) not in self._names:
            self._names[id(schema)] = False  # of what it contains itself
            own = any(schema.get(keyword) for keyword in _NAMING)
            self._names[id(schema)] = own or any(map(self._has_names, [*self._together(schema), *_choices(schema)]))
        return self._names[id(schema)]

    def _is_closed(self, schema: Any) -> bool:
        """Whether a schema speaks of additional keys, in every branch."""
        if not isinstance(schema, dict):
            return False
        if id(schema) not in self._closes:
            self._closes[id(schema)] = False
            own = any(keyword in schema for keyword in _CLOSING)
            branches = [group for keyword in ("anyOf", "oneOf") if (group := _parts(schema.get(keyword)))]
            self._closes[id(schema)] = (
                own
                or any(map(self._is_closed, self._together(schema)))
                or any(all(map(self._is_closed, group)) for group in branches)
            )
        return self._closes[id(schema)]


def _choices(schema: dict[str, Any]) -> list[Any]:
    """The schemas that may hold for the same value."""
    found = [part for keyword in ("anyOf", "oneOf", "then", "else") for part in _parts(schema.get(keyword))]
    dependent = (schema.get(keyword) for keyword in ("dependentSchemas", "dependencies"))
    return [*found, *(part for parts in dependent for part in _parts(parts, named=True))]


def _parts(value: Any, *, named: bool = False) -> list[Any]:
    """The subschemas of a keyword: those of a map, of a list, or the one."""
    if named:
        return list(value.values()) if isinstance(value, dict) else []
    return value if isinstance(value, list) else [value]
