"""Whatever is nearly valid gives a result or an error of our own, in the time that the limits name; never a defect."""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracles import nearly_valid as nearly

import models
from fsa_compile import (
    ArtifactError,
    CompiledConstraint,
    CompileLimits,
    ConstraintError,
    SchemaOptions,
    Vocabulary,
    compile_grammar,
    compile_json_schema,
    compile_regex,
    compile_response,
    compile_response_format,
    compile_yaml_schema,
    load_tokenizer,
)
from fsa_compile.artifact.artifact_checks import check_contents
from fsa_compile.canonical.encoder.encoder_sources import encoder_of
from fsa_compile.errors import DefectError

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "<|eot_id|>", "<|python_tag|>", "<|eom_id|>")
TURNS = Vocabulary.from_tokens(
    [*(bytes([b]) for b in range(256)), *[b""] * (len(_MARKS) + 1)], special={m: 256 + i for i, m in enumerate(_MARKS)}, stop_ids=[264]
)
SECONDS, SLACK = 1.0, 3.0
LIMITS = CompileLimits(max_seconds=SECONDS, max_bytes=500 << 20)


def schema(rng: random.Random) -> Callable[[], Any]:
    given = nearly.changed_value(rng, rng.choice(nearly.SCHEMAS))
    options = SchemaOptions(key_order=rng.choice(["declared", "any"]), whitespace=rng.choice(["compact", "optional"]))
    return functools.partial(compile_json_schema, given, LETTERS, options=options, limits=LIMITS)


def schema_as_text(rng: random.Random) -> Callable[[], Any]:
    given = nearly.changed_text(rng, json.dumps(rng.choice(nearly.SCHEMAS)))
    return functools.partial(compile_json_schema, given, LETTERS, limits=LIMITS)


def pattern(rng: random.Random) -> Callable[[], Any]:
    return functools.partial(compile_regex, nearly.changed_text(rng, rng.choice(nearly.PATTERNS)), LETTERS, limits=LIMITS)


def grammar(rng: random.Random) -> Callable[[], Any]:
    given = nearly.changed_text(rng, rng.choice(nearly.GRAMMARS))
    return functools.partial(compile_grammar, given, LETTERS, mode=rng.choice(["characters", "longest"]), limits=LIMITS)


def request(rng: random.Random) -> Callable[[], Any]:
    names = ["type", "schema", "json_schema", "name", "strict", "tags", "begin", "end", "content", "triggers", "format", "function"]
    given = nearly.changed_value(rng, rng.choice(nearly.FORMATS), names)
    tools = [{"type": "function", "function": {"name": "f", "parameters": nearly.SCHEMAS[0]}}]
    asked: dict[str, Any] = {"limits": LIMITS}
    if rng.random() < 0.4:
        given, asked["tools"] = rng.choice([None, given]), nearly.changed_value(rng, tools, [*names, "parameters"])
        asked["tool_choice"] = rng.choice(["auto", "required", "none", {"type": "function", "function": {"name": "f"}}, *nearly.VALUES])
    return functools.partial(compile_response_format, given, LETTERS, **asked)


def yaml_schema(rng: random.Random) -> Callable[[], Any]:
    given = nearly.changed_value(rng, rng.choice(nearly.SCHEMAS))
    return functools.partial(compile_yaml_schema, given, LETTERS, limits=LIMITS)


def response(rng: random.Random) -> Callable[[], Any]:
    """A whole turn, its tools, what an answer is, and how much may be thought."""
    asked: dict[str, Any] = {"tools": nearly.changed_value(rng, nearly.TOOLS, ["type", "name", "parameters", "function", "strict", "required"])}
    if rng.random() < 0.5:
        asked["response"] = rng.choice([nearly.changed_value(rng, rng.choice(nearly.SCHEMAS)), *nearly.VALUES])
    if rng.random() < 0.3:
        name = rng.choice(["protocol", "tool_choice", "reasoning", "max_reasoning_chars", "max_depth", "strict", "parallel_tool_calls"])
        asked[name] = rng.choice([*nearly.VALUES, "required", "off", ["f"], "g"])
    return functools.partial(compile_response, TURNS, **{"protocol": rng.choice(["qwen3", "llama3", "gemma3-json"]), "limits": LIMITS} | asked)


def tokenizer_json(rng: random.Random, folder: Path) -> Callable[[], Any]:
    file = nearly.byte_level_tokenizer()
    part = rng.choice(["model", "pre_tokenizer", "decoder", "added_tokens"])
    if part == "model" and rng.random() < 0.7:
        name = rng.choice(["merges", "type", "unk_token"])
        file["model"][name] = rng.choice([nearly.changed_value(rng, file["model"][name]), rng.choice(nearly.VALUES)])
    else:
        file[part] = nearly.changed_value(rng, file[part], ["type", "vocab", "merges", "id", "content", "pattern", "pretokenizers"])
    text = json.dumps(file, default=str)
    (folder / "tokenizer.json").write_text(nearly.changed_text(rng, text) if rng.random() < 0.3 else text, "utf-8", "surrogatepass")
    return functools.partial(read_whole, folder / "tokenizer.json")


def read_whole(path: Path) -> Any:
    """What needs the whole file: its vocabulary, merges, normalizer and splitter."""
    tokenizer = load_tokenizer(path)
    tokenizer.encode("abc a<end>")
    return encoder_of(tokenizer)


def tokenizer_model(rng: random.Random, folder: Path) -> Callable[[], Any]:
    (folder / "tokenizer.model").write_bytes(nearly.changed_bytes(rng, models.small_tokenizer_path().read_bytes()))
    return functools.partial(load_tokenizer, folder / "tokenizer.model")


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "few", "many", "wrong"),
    [
        (schema, 500, 20_000, 40), (schema_as_text, 200, 5_000, 15), (pattern, 300, 20_000, 15), (grammar, 200, 5_000, 20),
        (request, 200, 5_000, 15), (yaml_schema, 30, 5_000, 2), (response, 60, 5_000, 15), (tokenizer_json, 60, 500, 3),
        (tokenizer_model, 60, 500, 2),
    ],
    ids=lambda x: x.__name__ if callable(x) else "",
)  # fmt: skip
def test_a_result_or_an_error_of_our_own(kind, few, many, wrong, exhaustive, tmp_path):
    rng, refused, defects = random.Random(2026), 0, []
    for _ in range(many if exhaustive else few):
        call = kind(rng, tmp_path) if kind in (tokenizer_json, tokenizer_model) else kind(rng)
        start = time.process_time()
        try:
            made = call()
            if isinstance(made, CompiledConstraint):
                check_contents(made, tmp_path)  # as when it is loaded
        except DefectError as error:
            defects.append((call.args, call.keywords, error))
        except ArtifactError as error:
            defects.append((call.args, call.keywords, error))
        except ConstraintError:
            refused += 1
        assert time.process_time() - start < SECONDS + SLACK, (call.args, call.keywords)
    assert not defects
    assert refused >= wrong
