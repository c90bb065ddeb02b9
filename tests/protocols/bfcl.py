"""Function sets and gold calls of the Berkeley Function Calling Leaderboard, and calls that are nearly right."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import jsonschema

_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def entries(folder: Path, name: str) -> list[tuple[str, list[dict[str, Any]], list[tuple[str, dict[str, Any]]]]]:
    """(id, function descriptions, gold calls) of one collection."""
    def lines(path: Path) -> list[Any]:
        return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]

    answers = {one["id"]: one["ground_truth"] for one in lines(folder / "bfcl" / f"{name}_answers.jsonl")}
    return [
        (one["id"], one["function"], [_call(call) for call in answers[one["id"]]])
        for one in lines(folder / "bfcl" / f"{name}.jsonl")
        if one["id"] in answers
    ]


def _call(truth: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    (name, arguments), = truth.items()
    return name, {key: _first(values) for key, values in arguments.items() if values and _first(values) != ""}


def _first(values: Any) -> Any:
    """The first accepted value that is one; members of objects are lists of accepted values themselves."""
    found = next((value for value in values if value != ""), "")
    return _value(found)


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _first(inner) if isinstance(inner, list) else _value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    return value


def json_schema(parameters: Any) -> Any:
    """The JSON Schema that the leaderboard's descriptions mean, with objects closed; independent of the project."""
    if isinstance(parameters, list):
        return [json_schema(part) for part in parameters]
    if not isinstance(parameters, dict):
        return parameters
    out = {key: part for key, part in parameters.items() if key in ("enum", "required", "maximum")}
    kind = parameters.get("type")
    if kind is not None and kind != "any":
        out["type"] = _TYPES.get(kind, kind)
    if "items" in parameters:
        out["items"] = json_schema(parameters["items"])
    if isinstance(parameters.get("properties"), dict):
        out["properties"] = {key: json_schema(part) for key, part in parameters["properties"].items()}
        out["additionalProperties"] = False
    return out


def is_valid(functions: list[dict[str, Any]], name: str, arguments: Any) -> bool:
    """Whether a call keeps to the description of its function."""
    known = {function["name"]: function["parameters"] for function in functions}
    return name in known and jsonschema.Draft202012Validator(json_schema(known[name])).is_valid(arguments)


_WRONG = (7, "seven", True, None, [7], {"seven": 7}, 7.5, ["x", 1], "")


def wrong_calls(functions: list[dict[str, Any]], name: str, arguments: dict[str, Any], rng: random.Random) -> list[tuple[str, Any]]:
    """Calls with one thing wrong: what a model writes when it errs. None of them is valid."""
    out: list[tuple[str, Any]] = [(name + "_", arguments), (name[:-1], arguments), ("un" + name, arguments)]
    out += [(name, {**arguments, extra: 1}) for extra in ("extra", "Extra_2", "a")]
    for key in arguments:
        rest = {k: v for k, v in arguments.items() if k != key}
        out += [(name, rest), (name, {**rest, key + "_": arguments[key]}), (name, {**rest, key.upper() + "x": arguments[key]})]
        out += [(name, {**arguments, key: wrong}) for wrong in _WRONG]
        if isinstance(arguments[key], str):
            out += [(name, {**arguments, key: near}) for near in (arguments[key] + "x", arguments[key][:-1], arguments[key] + " ")]
        if isinstance(arguments[key], list) and arguments[key]:
            for wrong in _WRONG:
                changed = copy.deepcopy(arguments)
                changed[key][rng.randrange(len(changed[key]))] = wrong
                out.append((name, changed))
    wrong = [call for call in out if not is_valid(functions, *call)]
    rng.shuffle(wrong)
    return wrong


def broken_texts(text: str, rng: random.Random) -> list[str]:
    """Turns that are cut off, or go on where they are over."""
    cuts = sorted({0, 1, len(text) - 1, *(rng.randrange(len(text)) for _ in range(6))})
    return [text[:cut] for cut in cuts] + [text + more for more in (" and", "}", ")", "]", "\n\n", '"')] + [text[1:], "x" + text]
