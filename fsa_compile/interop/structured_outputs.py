"""`compile_structured_outputs`: vLLM's `structured_outputs` of a request, as a constraint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.compiler.arguments import Canonical
from fsa_compile.compiler.entry_points import compile_choices, compile_regex
from fsa_compile.formats.grammar_constraints import compile_grammar
from fsa_compile.formats.request import FormatError, child, decoded, flag, kind_of, members, text, texts
from fsa_compile.inputs.guard import guarded
from fsa_compile.interop.response_format import compile_response_format
from fsa_compile.json_schema import SchemaError, SchemaOptions
from fsa_compile.limits import CompileLimits

if TYPE_CHECKING:
    from fsa_compile.filters import Filter

_KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
_AT = "#/structured_outputs"


@guarded
def compile_structured_outputs(
    params: Any,
    tokenizer: Any,
    *,
    options: SchemaOptions | None = None,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles what vLLM calls structured outputs.

    Args:
      params: an object with exactly one of `json` (a schema, or its text), `json_object` (true), `regex` (Python's dialect, the
        whole text), `choice` (strings), `grammar` (GBNF or Lark's syntax) and `structural_tag` (an object, or its text); besides,
        `disable_any_whitespace`. Fields that are None or false are as if they were missing.
      tokenizer, options, canonical, filters, max_depth, limits: as for `compile_response_format`.

    Returns:
      The artifact.

    Raises:
      FormatError: not well formed, an unknown field, none or several of the kinds.
      ConstraintError: as `compile_response_format`, `compile_regex`, `compile_grammar`.

    Examples:
      >>> from fsa_compile.vocabulary.vocabulary import Vocabulary
      >>> vocabulary = Vocabulary.from_tokens([b"yes", b"no", b"n", b""], stop_ids=[3])
      >>> compile_structured_outputs({"choice": ["no"]}, vocabulary).walk().allowed().tolist()
      [False, True, False, False]
    """
    fields = members(params, _AT, optional=[*_KINDS, "disable_any_whitespace"])
    fields = {name: value for name, value in fields.items() if value is not False}
    compact = flag(fields.pop("disable_any_whitespace", False), child(_AT, "disable_any_whitespace"))
    if len(fields) != 1:
        what = f"there must be exactly one of {', '.join(_KINDS)}"
        raise FormatError(f"{what}, not {', '.join(fields) or 'none'}", pointer=_AT, fix="Leave the others out.")
    ((kind, value),) = fields.items()
    at = child(_AT, kind)
    options = dataclasses.replace(options or SchemaOptions(), whitespace="compact") if compact else options
    common: dict[str, Any] = {"canonical": canonical, "filters": filters, "limits": limits}
    match kind:
        case "regex":
            return compile_regex(text(value, at), tokenizer, **common)
        case "choice":
            return compile_choices(texts(value, at, least=1), tokenizer, **common)
        case "grammar":
            return compile_grammar(text(value, at, empty=False), tokenizer, max_depth=max_depth, **common)
        case "json":
            wanted: dict[str, Any] = {"type": "json_schema", "json_schema": {"schema": decoded(value, at, limits)}}
            inside = "#/response_format/json_schema/schema"
        case "json_object":
            flag(value, at)
            wanted, inside = {"type": "json_object"}, "#/response_format"
        case _:
            wanted, inside = _tag(decoded(value, at, limits), at), "#/response_format"
    try:
        return compile_response_format(wanted, tokenizer, options=options, max_depth=max_depth, **common)
    except (FormatError, SchemaError) as error:
        raise type(error)(error.what, pointer=at + error.pointer.removeprefix(inside), fix=error.fix) from None


def _tag(value: Any, pointer: str) -> dict[str, Any]:
    """A structural tag with its type, which the older form may leave out."""
    if not isinstance(value, dict):
        raise FormatError(f"this must be an object, not {kind_of(value)}", pointer=pointer)
    return {"type": "structural_tag", **value}
