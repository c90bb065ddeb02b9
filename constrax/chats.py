"""The prompt of a conversation: messages to token ids, with the tools described where the template has no place for them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fsa_compile
from fsa_compile.prompts.chat_conventions import CONVENTIONS
from fsa_compile.python_types.calls import shape_of_calls
from fsa_compile.python_types.to_json_schema import schema_of


def chat_ids(
    messages: Any,
    tokenizer: Any,
    template: str | None,
    tools: Sequence[Callable[..., Any]] | None,
    trigger: str,
    variables: Mapping[str, Any],
    example: str = "",
) -> fsa_compile.ChatPrompt:
    """The rendered conversation; the id that starts a text stands first, whether or not the template writes it.

    Args:
      messages: a list of dicts, or a string for one message of the user's.
      tokenizer, template: see `constrax.load`.
      tools: functions to describe.
      trigger: what begins a call in the answer.
      variables: more values for the template.
      example: what a call looks like, where `trigger` and JSON do not say it.
    """
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if template is None:
        template = _convention(tokenizer)
    described = None if tools is None else [tool if isinstance(tool, Mapping) else describe(tool) for tool in tools]
    if described is None:
        made = fsa_compile.chat_prompt(given, tokenizer, template=template, **variables)
    else:
        example = example or f'{trigger}{{"name": ..., "arguments": {{...}}}}'
        made = _with_tools(given, tokenizer, template, described, example, variables)
    bos = tokenizer.vocabulary.bos_id
    if bos is None or made.ids[:1] == [bos]:
        return made
    return fsa_compile.ChatPrompt([bos, *made.ids], made.stop_ids, made.text)


def _convention(tokenizer: Any) -> str | None:
    """The name of the convention whose markers the vocabulary has, where the tokenizer brings no template; None if it does."""
    probe = [{"role": "user", "content": "Hello."}]
    try:
        fsa_compile.chat_prompt(probe, tokenizer)
    except fsa_compile.ChatTemplateError as error:
        if "chat template" not in error.what or not error.what.startswith(("there is no", "this ")):
            return None  # there is a template, and it fails: the prompt's own error says how
        special = tokenizer.vocabulary.special
        return next((name for name, (markers, _) in CONVENTIONS.items() if all(m in special for m in markers)), None)
    return None


def _with_tools(
    messages: Any, tokenizer: Any, template: str | None, tools: list[Any], example: str, variables: Mapping[str, Any]
) -> fsa_compile.ChatPrompt:
    """The prompt with descriptions of tools where the template puts them, else before the first message."""
    without = fsa_compile.chat_prompt(messages, tokenizer, template=template, **variables)
    try:
        made = fsa_compile.chat_prompt(messages, tokenizer, template=template, tools=tools, **variables)
    except fsa_compile.ChatTemplateError:
        made = without
    if made.ids != without.ids:
        return made
    lines = "\n".join(json.dumps(tool["function"]) for tool in tools)
    about = f"Functions you may call:\n{lines}\nTo call one, write {example}."
    first, *rest = messages
    told = {**first, "content": f"{about}\n\n{first.get('content', '')}"}
    return fsa_compile.chat_prompt([told, *rest], tokenizer, template=template, **variables)


def describe(function: Callable[..., Any]) -> dict[str, Any]:
    """A function as chat templates and servers describe a tool: name, first paragraph of its docstring, JSON Schema."""
    schema = schema_of(shape_of_calls([function], "json", None, False))
    parameters = schema["properties"]["arguments"] | {key: schema[key] for key in ("$defs",) if key in schema}
    about = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    found = {"name": function.__name__, "description": about, "parameters": _plain(parameters)}
    return {"type": "function", "function": found}


def _plain(schema: Any) -> Any:
    """A schema without the keywords that are for the compiler."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if not key.startswith("x-fsa-")}
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema
