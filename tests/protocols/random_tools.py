"""Random sets of tools that are hard to tell apart: names that begin alike, equal parameters, keys and values that look like marks."""

from __future__ import annotations

import random
from typing import Any

from oracles.call_writers import ONE_CALL, write_turn
from protocols.turns import names_of

from fsa_compile import Vocabulary
from fsa_compile.protocols import Protocol

NAMES = ("g", "ge", "get", "get_x", "get_xy", "get.x", "gets", "set", "a", "a.b", "ab", "b", "name", "x1")
KEYS = ("é", "k", "kk", "a", "name", "arguments", "x_1")
ODD_KEYS = ("(", "a)b", ")", "a b", "k'", "日本", "-", "k=1", "a\\b")
QUOTED_KEYS = ('q"q', "[", "a: b", "}", "{x", "<|")
"""What no bare key holds."""
WORDS = (
    "", "a", ")", "), get(", ", ", '"}', "}", "]", ")]", "'", '"', "\\", "; ", "}\n", "\n", "é", "日", '{"name": "get", "parameters": {}}',
    "[get()]", "call:get{}", "get()", "</", "True", "null", "a: b", "((", "{{",
)  # fmt: skip


def random_parameters(rng: random.Random, style: str) -> dict[str, Any]:
    """The schema of a tool's arguments, often without any."""
    count = rng.choice((0, 0, 1, 1, 2, 3))
    odd = rng.random() < 0.4 and style in ("json", "marked")
    keys = rng.sample((*KEYS, *_odd_keys(style)) if odd else KEYS[style in ("python", "keywords") :], count)
    return _object(rng, keys, 2, style)


def _odd_keys(style: str) -> tuple[str, ...]:
    return ODD_KEYS if style == "marked" else (*ODD_KEYS, *QUOTED_KEYS)


def _object(rng: random.Random, keys: list[str], depth: int, style: str) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "object", "properties": {key: _schema(rng, depth - 1, style) for key in keys}}
    needed = [key for key in keys if rng.random() < 0.6]
    return {**out, "required": needed} if needed else out


def _schema(rng: random.Random, depth: int, style: str) -> dict[str, Any]:
    kind = rng.choice(("boolean", "integer", "string", "enum", "counted", "number", "null", *(("array", "object") if depth else ())))
    if kind == "enum":
        return {"enum": rng.sample(WORDS, 2)}
    if kind == "counted":
        low = rng.randrange(3)
        return {"type": "string", "minLength": low, "maxLength": low + rng.choice((0, 2, 30))}
    if kind == "array":
        low = rng.randrange(3)
        return {"type": "array", "items": _schema(rng, depth - 1, style), "minItems": low, "maxItems": low + rng.randrange(3)}
    if kind == "object":
        return _object(rng, rng.sample((*KEYS, *_odd_keys(style)), rng.randrange(3)), depth, style)
    return {"type": kind}


def random_value(rng: random.Random, schema: dict[str, Any]) -> Any:
    """A value of a schema."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            needed = schema.get("required", ())
            some = [key for key in schema["properties"] if key in needed or rng.random() < 0.5]
            rng.shuffle(some)
            return {key: random_value(rng, schema["properties"][key]) for key in some}
        case "array":
            return [random_value(rng, schema["items"]) for _ in range(rng.randint(schema["minItems"], schema["maxItems"]))]
        case "string":
            low, high = schema.get("minLength", 0), schema.get("maxLength", 60)
            fitting = [word for word in WORDS if low <= len(word) <= high]
            return rng.choice(fitting) if fitting else "é" * low
        case "boolean":
            return rng.random() < 0.5
        case "integer":
            return rng.choice((0, 7, -12, 10**6))
        case "number":
            return rng.choice((0, -1.5, 2.25, 1e-7))
    return None


def random_tools(rng: random.Random, protocol: Protocol) -> list[dict[str, Any]]:
    """Descriptions of two to six tools, several of which often have the same parameters."""
    style = protocol.calls.arguments.style
    names = rng.sample((*NAMES, *(() if protocol.calls.arguments.is_call else ("get-x", "0"))), rng.randint(2, 6))
    shared = random_parameters(rng, style)
    return [{"name": name, "parameters": shared if rng.random() < 0.4 else random_parameters(rng, style)} for name in names]


def random_calls(rng: random.Random, name: str, tools: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Calls of some of the tools."""
    chosen = [rng.choice(tools) for _ in range(1 if name in ONE_CALL else rng.randint(1, 3))]
    return [(tool["name"], random_value(rng, tool["parameters"])) for tool in chosen]


def random_vocabulary(rng: random.Random, name: str, protocol: Protocol, tools: list[dict[str, Any]]) -> Vocabulary:
    """A token for every byte, and pieces of turns, which reach from a name into its arguments, or into the next call."""
    special = names_of(protocol) if rng.random() < 0.75 else [protocol.stops[0]]
    pieces: set[bytes] = set()
    for _ in range(6):
        text = write_turn(name, calls=random_calls(rng, name, tools))
        for mark in special:
            text = text.replace(mark, "\0")
        for part in text.encode().split(b"\0"):
            for _ in range(rng.randrange(1, 8) if len(part) > 1 else 0):
                begin = rng.randrange(len(part) - 1)
                pieces.add(part[begin : begin + rng.randint(2, 12)])
    tokens = [*(bytes([byte]) for byte in range(256)), *sorted(piece for piece in pieces if len(piece) > 1)]
    ids = {mark: len(tokens) + place for place, mark in enumerate(special)}
    stops = [ids[stop] for stop in protocol.stops if stop in ids]
    return Vocabulary.from_tokens([*tokens, *[b""] * len(special)], special=ids, stop_ids=stops)


def random_ids(rng: random.Random, text: str, vocabulary: Vocabulary) -> list[int]:
    """A turn's ids, its text cut into tokens at random, mostly long ones."""
    out: list[int] = []
    data = text.encode()
    marks = {mark.encode(): token for mark, token in vocabulary.special.items()}
    at = 0
    while at < len(data):
        mark = next((m for m in sorted(marks, key=len, reverse=True) if data.startswith(m, at)), b"")
        if mark:
            out.append(marks[mark])
            at += len(mark)
            continue
        longer = [t for t in range(256, vocabulary.size) if vocabulary.tokens[t] and data.startswith(vocabulary.tokens[t], at)]
        longer = [t for t in longer if not any(m in data[at : at + len(vocabulary.tokens[t])] for m in marks)]
        token = rng.choice(longer) if longer and rng.random() < 0.7 else data[at]
        out.append(token)
        at += len(vocabulary.tokens[token])
    return out
