"""Classes with named fields to shapes: dataclasses, pydantic models, TypedDict, NamedTuple."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable
from typing import Any

from fsa_compile.errors import LimitError
from fsa_compile.python_types.read_marks import Condition, conditions
from fsa_compile.python_types.scopes import Scope, TypeReader, hints_of, substituted
from fsa_compile.python_types.shapes import Field, Record, Shape, Wrapped
from fsa_compile.python_types.type_errors import UnsupportedTypeError

_CODE = "Remove it, or pass allow_code=True: then parse runs it, and may refuse a text that the constraint accepts."


def read(reader: TypeReader, T: Any, origin: Any, args: tuple[Any, ...], scope: Scope, tag: str | None = None) -> Shape | None:
    """The shape of a class with fields, or None for any other type; the field `tag` cannot be left out."""
    cls = origin if isinstance(origin, type) else T
    if not isinstance(cls, type):
        return None
    if hasattr(cls, "__pydantic_fields__"):
        make: Callable[..., Shape] = _pydantic
    elif dataclasses.is_dataclass(cls):
        make = _dataclass
    elif typing.is_typeddict(cls) or type(cls).__name__ == "_TypedDictMeta":
        make = _typed_dict
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        make = _named_tuple
    else:
        return None
    given = tuple([substituted(x, scope) for x in args])
    variables = dict(zip(getattr(cls, "__type_params__", ()) or getattr(cls, "__parameters__", ()), given))
    module = sys.modules.get(cls.__module__)
    name = cls.__name__ + (f"[{', '.join(getattr(x, '__name__', str(x)) for x in given)}]" if given else "")
    texts = _conditions_of_texts(cls, name, scope)
    itself = {"typing.Self": cls[given] if given else cls, **_recursive(cls)}  # type: ignore[index]
    names = {**(vars(module) if module else {}), cls.__name__: cls, **reader.namespace, **itself}
    by_value = bool(_config(cls).get("use_enum_values")) if _is_configured(cls) else scope.by_value
    inner = Scope(names, variables, texts, by_value)
    if tag is None:
        return reader.defined((cls, *given, *inner[2:]), name, lambda: make(reader, cls, name, inner))
    return reader.defined((cls, *given, *inner[2:], "tag", tag), name, lambda: _tagged(make(reader, cls, name, inner), tag))


def _conditions_of_texts(cls: type, name: str, scope: Scope) -> tuple[Condition, ...]:
    """Lengths that a config asks of every str: that of the class, or where it has none of its own, that around it."""
    config = _config(cls)
    for option in _CONFIG_OF_TEXT:
        if config.get(option):
            raise UnsupportedTypeError(
                f"{option} changes a string after its conditions were checked", place=name, fix="Remove it from the config."
            )
    if not _is_configured(cls):
        return scope.texts
    lengths = (("min_length", config.get("str_min_length") or None), ("max_length", config.get("str_max_length")))
    return tuple([Condition(kind, length) for kind, length in lengths if length is not None])


def _config(cls: Any) -> dict[str, Any]:
    return dict(getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {})


def _is_configured(cls: Any) -> bool:
    """Whether a class has a config of its own; to others, that of the class around them applies."""
    return bool(_config(cls)) or hasattr(cls, "__pydantic_fields__")


def _tagged(shape: Shape, tag: str) -> Shape:
    """A record that always has a field, under its name."""
    if not isinstance(shape, Record):
        return shape
    fields = [dataclasses.replace(f, required=True) if f.name == tag else f for f in shape.fields]
    return dataclasses.replace(shape, fields=tuple(fields))


def _hints(cls: type, scope: Scope, name: str) -> dict[str, Any]:
    try:
        return hints_of(cls, scope.names)
    except LimitError:
        raise
    except Exception as error:
        raise UnsupportedTypeError(
            f"its annotations cannot be resolved ({error})", place=name,
            fix="Define the names in the type's module, or pass namespace={...}.",
        ) from None  # fmt: skip


def _variables(cls: type, scope: Scope) -> Scope:
    """The scope with the type variables of generic bases, as the class binds them."""
    variables = dict(scope.variables)
    for base in getattr(cls, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin is not typing.Generic:
            found = [substituted(x, scope._replace(variables=variables)) for x in typing.get_args(base)]
            variables.update(zip(getattr(origin, "__parameters__", ()), found))
            variables = {**_variables(origin, scope._replace(variables=variables)).variables, **variables}
    return scope._replace(variables=variables)


# dataclasses


def _dataclass(reader: TypeReader, cls: Any, name: str, scope: Scope) -> Shape:
    code = [x for x in ("__post_init__",) if hasattr(cls, x)]
    if not cls.__dataclass_params__.init:
        raise UnsupportedTypeError("a dataclass without a made __init__ is not supported", place=name, fix="Remove init=False.")
    if code and not reader.allow_code:
        raise UnsupportedTypeError(f"{code[0]} is code, which may refuse values", place=name, fix=_CODE)
    hints, scope = _hints(cls, scope, name), _variables(cls, scope)
    fields = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        shape = reader.read(hints[field.name], f"{name}.{field.name}", scope)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        fields.append(Field(field.name, field.name, shape, required))
    if any(getattr(x, "_field_type", None) is dataclasses._FIELD_INITVAR for x in cls.__dataclass_fields__.values()):  # type: ignore[attr-defined]
        raise UnsupportedTypeError("InitVar is not supported", place=name, fix="Use a field.")
    return Record(name, cls, "object", tuple(fields), lambda values: cls(**values))


# pydantic


def _pydantic(reader: TypeReader, cls: Any, name: str, scope: Scope) -> Shape:
    _check_code(reader, cls, name)
    config, fields_of = _config(cls), cls.__pydantic_fields__
    if any(_unresolved(f.annotation) for f in fields_of.values()):
        rebuild = getattr(cls, "model_rebuild", None)
        if rebuild is not None:
            rebuild(force=True, raise_errors=False, _types_namespace={**scope.names})
            fields_of = cls.__pydantic_fields__
    fields = []
    for field_name, field in fields_of.items():
        place = name if field_name == "root" else f"{name}.{field_name}"
        if getattr(field, "init", None) is False:
            continue
        shape = reader.read(field.annotation, place, scope, tuple(conditions([field], place, reader.allow_code)))
        fields.append(Field(field_name, _alias(field, field_name, config, place), shape, field.is_required()))
    if _is_root_model(cls):
        return Wrapped(cls, fields[0].shape, lambda value: cls.model_validate(value))
    build = (lambda values: cls.model_validate(values)) if hasattr(cls, "model_validate") else (lambda values: cls(**values))
    return Record(name.partition("[")[0], cls, "object", tuple(fields), build)


def _recursive(cls: Any) -> dict[str, Any]:
    """The classes that a generic model's fields know by references of pydantic's own, as they recur."""
    schema = vars(cls).get("__pydantic_core_schema__")
    found = schema.get("definitions", ()) if isinstance(schema, dict) else ()
    return {part["ref"]: part["cls"] for part in found if "cls" in part}


def _is_root_model(cls: Any) -> bool:
    return bool(getattr(cls, "__pydantic_root_model__", False))


def _unresolved(annotation: Any) -> bool:
    return isinstance(annotation, (str, typing.ForwardRef)) or any(_unresolved(x) for x in typing.get_args(annotation))


_CONFIG_OF_TEXT = ("str_strip_whitespace", "str_to_lower", "str_to_upper")


def _check_code(reader: TypeReader, cls: Any, name: str) -> None:
    """Raises where a class has validators."""
    if reader.allow_code:
        return
    decorators = cls.__pydantic_decorators__
    for kind in ("validators", "field_validators", "root_validators", "model_validators"):
        for function in getattr(decorators, kind, {}):
            raise UnsupportedTypeError(f"the validator {function} is code, which may refuse values", place=name, fix=_CODE)
    if hasattr(cls, "__get_pydantic_core_schema__") and "__get_pydantic_core_schema__" in vars(cls):
        raise UnsupportedTypeError("__get_pydantic_core_schema__ is code", place=name, fix=_CODE)
    if "model_post_init" in vars(cls) and not getattr(cls, "__private_attributes__", None):
        raise UnsupportedTypeError("model_post_init is code, which may refuse values", place=name, fix=_CODE)
    if hasattr(cls, "__post_init__"):
        raise UnsupportedTypeError("__post_init__ is code, which may refuse values", place=name, fix=_CODE)


def _alias(field: Any, name: str, config: dict[str, Any], place: str) -> str:
    alias = field.validation_alias if field.validation_alias is not None else field.alias
    if alias is None or config.get("validate_by_alias") is False:
        return name
    if not isinstance(alias, str):
        raise UnsupportedTypeError("an alias must be a str", place=place, fix="Use one alias instead of a choice or a path.")
    return alias


# typed dicts and named tuples


def _typed_dict(reader: TypeReader, cls: Any, name: str, scope: Scope) -> Shape:
    hints, inner = _hints(cls, scope, name), _variables(cls, scope)
    fields = []
    for key, hint in hints.items():
        qualifier = _qualifier(hint)
        required = key in cls.__required_keys__ if qualifier is None else qualifier == "Required"
        fields.append(Field(key, key, reader.read(hint, f"{name}.{key}", inner), required))
    return Record(name, cls, "dict", tuple(fields), dict)


def _qualifier(hint: Any) -> str | None:
    """Required or NotRequired around a type, also below ReadOnly and Annotated."""
    while (origin := typing.get_origin(hint)) is not None:
        named = getattr(origin, "_name", None) or getattr(origin, "__name__", "")
        if named in ("Required", "NotRequired"):
            return str(named)
        if origin is not typing.Annotated and named != "ReadOnly":
            return None
        hint = typing.get_args(hint)[0]
    return None


def _named_tuple(reader: TypeReader, cls: Any, name: str, scope: Scope) -> Shape:
    hints, inner = _hints(cls, scope, name), _variables(cls, scope)
    if cls.__new__.__qualname__ not in (f"{cls.__qualname__}.__new__", "__new__") and not reader.allow_code:
        raise UnsupportedTypeError("__new__ is code, which may refuse values", place=name, fix=_CODE)
    fields = [
        Field(key, key, reader.read(hints.get(key, Any), f"{name}.{key}", inner), key not in cls._field_defaults)
        for key in cls._fields
    ]
    return Record(name, cls, "row", tuple(fields), lambda values: cls(**values))


