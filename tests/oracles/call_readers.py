"""Readers of turns that hold calls, one for each published format, by `json`, `ast` and patterns; they know nothing of the project.

In the text that they read every special token is one half of a surrogate pair, which no UTF-8 text holds.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

Found = list[tuple[str, Any]]
_JSON = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


class _Text:
    """A text that is read from left to right; `mark` turns names of special tokens into what stands for them."""

    def __init__(self, text: str, mark: Callable[[str], str]) -> None:
        self.text, self.mark, self.at = text, mark, 0

    def take(self, wanted: str) -> None:
        wanted = self.mark(wanted)
        assert self.text.startswith(wanted, self.at), (wanted, self.text[self.at :][:80])
        self.at += len(wanted)

    def sees(self, wanted: str) -> bool:
        return self.text.startswith(self.mark(wanted), self.at)

    def name(self) -> str:
        found = re.compile(r"[A-Za-z0-9_.-]+").match(self.text, self.at)
        assert found
        self.at = found.end()
        return found[0]

    def json(self) -> Any:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        value, self.at = _JSON.raw_decode(self.text, self.at)
        return value

    def over(self) -> None:
        assert self.at == len(self.text), self.text[self.at :][:80]


def _repeated(text: _Text, begin: str, middle: str, end: str, separator: str = "", all_end: str = "") -> Found:
    out: Found = []
    while True:
        text.take(begin)
        name = text.name()
        text.take(middle)
        out.append((name, text.json()))
        text.take(end)
        if all_end and text.sees(all_end):
            text.take(all_end)
            break
        if text.at == len(text.text):
            break
        text.take(separator)
    text.over()
    return out


def _objects(text: _Text, key: str, begin: str = "", end: str = "", separator: str = "", list_begin: str = "", list_end: str = "") -> Found:
    """Objects with a name and arguments, each parsed as one JSON value."""
    out: Found = []
    if list_begin:
        text.take(list_begin if text.sees(list_begin) else list_begin.replace(" ", ""))
        for value in text.json():
            out.append((value["name"], value[key]))
            assert set(value) <= {"name", key, "id"}
        text.take(list_end)
    else:
        while True:
            text.take(begin)
            value = text.json()
            assert set(value) == {"name", key}
            out.append((value["name"], value[key]))
            text.take(end)
            if text.at == len(text.text):
                break
            text.take(separator)
    text.over()
    return out


def _python(text: _Text) -> Found:
    listed = ast.parse(text.text, mode="eval").body
    assert isinstance(listed, ast.List)
    out: Found = []
    for call in listed.elts:
        assert isinstance(call, ast.Call)
        assert not call.args
        out.append((ast.unparse(call.func), {word.arg: _listed(ast.literal_eval(word.value)) for word in call.keywords}))
    return out


def _listed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_listed(part) for part in value]
    return {key: _listed(part) for key, part in value.items()} if isinstance(value, dict) else value


def _marked(text: _Text, begin: str, mark: str, end: str) -> Found:
    out: Found = []
    while text.at < len(text.text):
        text.take(begin)
        name = text.name()
        out.append((name, _marked_value(text, mark)))
        text.take(end)
    return out


def _marked_value(text: _Text, mark: str) -> Any:
    if text.sees(mark):
        text.take(mark)
        begin, text.at = text.at, text.text.index(text.mark(mark), text.at)
        value: Any = text.text[begin : text.at]
        text.take(mark)
        return value
    if text.sees("{") or text.sees("["):
        is_object = text.sees("{")
        close, value = ("}", {}) if is_object else ("]", [])
        text.at += 1
        while not text.sees(close):
            if value:
                text.take(",")
            if is_object:
                key = text.text[text.at : text.text.index(":", text.at)]
                text.at += len(key) + 1
                value[key] = _marked_value(text, mark)
            else:
                value.append(_marked_value(text, mark))
        text.at += 1
        return value
    if text.sees("None"):
        text.take("None")
        return None
    return text.json()


def read_marked(text: str, mark: str) -> Any:
    """A value whose keys are bare, and whose strings stand between marks that are text."""
    whole = _Text(text, lambda name: name)
    value = _marked_value(whole, mark)
    whole.over()
    return value


def _keywords(text: _Text) -> Found:
    out: Found = []
    text.take("<function_calls>")
    while not text.sees("</function_calls>"):
        if out:
            text.take("\n")
        name, given = text.name(), {}
        text.take("(")
        while not text.sees(")"):
            if given:
                text.take(",")
                text.at += text.sees(" ")
            key = text.name()
            text.take("=")
            given[key] = text.json()
        text.take(")")
        out.append((name, given))
    text.take("</function_calls>")
    text.over()
    return out


def _harmony(text: _Text) -> Found:
    if text.sees(" to=functions."):
        text.take(" to=functions.")
        name = text.name()
        text.take("<|channel|>commentary ")
        text.take("<|constrain|>json<|message|>" if text.sees("<|constrain|>") else "json<|message|>")
    else:
        text.take("<|channel|>commentary to=functions.")
        name = text.name()
        text.take(" <|constrain|>json<|message|>")
    out = [(name, text.json())]
    text.over()
    return out


def _mistral(text: _Text) -> Found:
    out: Found = []
    while text.at < len(text.text):
        text.take("[TOOL_CALLS]")
        name = text.name()
        if text.sees("[CALL_ID]"):
            text.take("[CALL_ID]")
            text.at += 9
        text.take("[ARGS]")
        out.append((name, text.json()))
    return out


_DEEP = {"begin": "<｜tool▁call▁begin｜>", "all_end": "<｜tool▁calls▁end｜>"}


def _deepseek(text: _Text, old: bool) -> Found:
    text.take("<｜tool▁calls▁begin｜>")
    if old:
        begin, middle, end = f"{_DEEP['begin']}function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"
        return _repeated(text, begin, middle, end, "\n", _DEEP["all_end"])
    return _repeated(text, _DEEP["begin"], "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "", _DEEP["all_end"])


READERS: dict[str, Callable[[_Text], Found]] = {
    "gemma4": lambda text: _marked(text, "<|tool_call>call:", '<|"|>', "<tool_call|>"),
    "functiongemma": lambda text: _marked(text, "<start_function_call>call:", "<escape>", "<end_function_call>"),
    "gemma3-json": lambda text: _objects(text, "parameters"),
    "gemma3-python": _python,
    "harmony": _harmony,
    "qwen3": lambda text: _objects(text, "arguments", "<tool_call>\n", "\n</tool_call>", "\n"),
    "llama3": lambda text: _objects(text, "parameters", separator="; "),
    "llama3.2": _python,
    "llama4": _python,
    "deepseek-v3": lambda text: _deepseek(text, True),
    "deepseek-v3.1": lambda text: _deepseek(text, False),
    "mistral": _mistral,
    "mistral-v3": lambda text: _objects(text, "arguments", list_begin="[TOOL_CALLS] ", list_end=""),
    "phi4": lambda text: _objects(text, "arguments", list_begin="<|tool_call|>", list_end="<|/tool_call|>"),
    "olmo3": _keywords,
}
"""What reads a turn of calls, without thinking and text before them."""


def read_calls(protocol: str, ids: list[int], tokens: list[bytes], special: dict[str, int]) -> Found:
    """The calls of a turn of token ids: (name, arguments)."""
    letter = {token: chr(0xD800 + place) for place, token in enumerate(sorted(set(special.values())))}
    pieces, run = list[str](), b""
    for token in ids:
        if token in letter:
            pieces += [run.decode(), letter[token]]
            run = b""
        else:
            run += tokens[token]
    names = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)")
    text = "".join(pieces) + run.decode()
    return READERS[protocol](_Text(text, lambda name: names.sub(lambda found: letter[special[found[0]]], name)))
