"""`chat_prompt`: a list of messages as the token ids a chat model was trained on, and the ids that end its turn.

The text is made by the tokenizer's own template: the Jinja template beside its file, the renderer of a `transformers` tokenizer,
or one of the conventions of `chat_conventions`, by name. Its markers become special tokens; what messages, tools and other
variables say stays text, even where it spells a marker.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsa_compile.errors import checked_flag
from fsa_compile.inputs.guard import guarded
from fsa_compile.prompts.chat_conventions import CONVENTIONS
from fsa_compile.prompts.chat_errors import ChatTemplateError
from fsa_compile.prompts.continuation import encode_continuation
from fsa_compile.tokenizers.load import load_tokenizer
from fsa_compile.tokenizers.tokenizer import Tokenizer, checked_text, read_file

_WAYS = (
    "Pass template= with the Jinja text of the model's chat_template, or the name of a convention "
    f"({', '.join(CONVENTIONS)}), or encode a prompt of your own."
)
_PROBE = "constrax end of turn"
Renderer = Callable[..., str]


@dataclasses.dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation.

    Attributes:
      ids: token ids, markers as special tokens; the id that starts a text is among them where the template writes it, so that
        `generate` needs no `bos_id` then.
      stop_ids: ids that end the model's turn: the vocabulary's end-of-text ids, and what the template writes behind a message of
        the assistant. For `generate(..., stop_ids=)`.
      text: what the template wrote, for people.
    """

    ids: list[int]
    stop_ids: tuple[int, ...]
    text: str


@guarded
def chat_prompt(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    *,
    template: str | None = None,
    add_generation_prompt: bool = True,
    tools: Sequence[Any] | None = None,
    **variables: Any,
) -> ChatPrompt:
    """The prompt of a conversation.

    Args:
      messages: dicts with "role" ("system", "user", "assistant", ...) and "content", oldest first.
      tokenizer: from `load_tokenizer`, or anything it takes.
      template: Jinja text, or the name of a convention; by default what belongs to the tokenizer: `chat_template.jinja`,
        `chat_template.json` or the "chat_template" of `tokenizer_config.json` beside its file, or `transformers`' own renderer.
      add_generation_prompt: whether the prompt ends where the assistant's answer begins.
      tools: descriptions of tools (dicts), for templates that know them.
      variables: more values for the template, such as `enable_thinking=False` or `documents=[...]`. What they say stays text, but
        in those whose name ends in `_token`.

    Returns:
      Ids, stop ids and text.

    Raises:
      ChatTemplateError: no template, one that fails, or that names tokens the vocabulary does not have; says what to do. Jinja
        templates need the package `jinja2`.
    """
    tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(tokenizer)
    renderer = _renderer(tokenizer, template)
    _check_messages(messages)
    checked_flag(add_generation_prompt, "add_generation_prompt")
    text = _render(renderer, messages, tokenizer, add_generation_prompt=add_generation_prompt, tools=tools, **variables)
    stops = set(tokenizer.vocabulary.stop_ids) | _end_of_turn(renderer, tokenizer)
    shown = "".join(part for _, part in text)
    return ChatPrompt(_encoded(text, tokenizer), tuple(sorted(stops)), shown)


Parts = list[tuple[int, str]]
"""Pieces of a text: the id of a special token and its name, or -1 and text."""


def _render(renderer: Renderer, messages: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, **variables: Any) -> Parts:
    """The rendered text in pieces. Names of special tokens in what is given are broken by a mark, taken out afterwards."""
    names = sorted(tokenizer.vocabulary.special, key=len, reverse=True)
    if not names:
        return [(-1, renderer(messages, **variables))]
    pattern = re.compile("|".join(map(re.escape, names)))
    own = [name for name in variables if not name.endswith("_token")]
    try:
        given = [[*map(dict, messages)], [variables[name] for name in own]]
        said = json.dumps(given, ensure_ascii=False, default=str, skipkeys=True)
    except ValueError:
        raise ChatTemplateError("a list or dict of the messages, tools or variables holds itself") from None
    mark = next(chr(code) for code in range(0xF0000, 0xFFFFD) if chr(code) not in said)
    hidden = [_broken(dict(message), pattern, mark) for message in messages]
    variables |= {name: _broken(variables[name], pattern, mark) for name in own}
    text = renderer(hidden, **variables)
    parts: Parts = []
    at = 0
    for found in pattern.finditer(text):
        parts += [(-1, text[at : found.start()]), (tokenizer.vocabulary.special[found[0]], found[0])]
        at = found.end()
    parts.append((-1, text[at:]))
    escaped = json.dumps(mark)[1:-1]  # as a template writes it that asks for ASCII
    return [(token, part.replace(mark, "").replace(escaped, "")) for token, part in parts if part]


def _broken(value: Any, pattern: re.Pattern[str], mark: str) -> Any:
    if isinstance(value, str):
        return pattern.sub(lambda found: found[0][0] + mark + found[0][1:], value)
    if isinstance(value, Mapping):
        keys = [_broken(key, pattern, mark) if isinstance(key, str) else key for key in value]
        return dict(zip(keys, [_broken(part, pattern, mark) for part in value.values()]))
    if isinstance(value, (list, tuple)):
        return [_broken(part, pattern, mark) for part in value]
    return value


def _encoded(parts: Parts, tokenizer: Tokenizer) -> list[int]:
    """The ids of a rendered text: only at its start, and behind the id that starts a text, the tokenizer's own prefix stands."""
    ids: list[int] = []
    for token, text in parts:
        if token >= 0:
            ids.append(token)
        elif not ids or ids[-1] == tokenizer.vocabulary.bos_id:
            ids += tokenizer.encode(checked_text(text))
        else:
            ids += encode_continuation(tokenizer, checked_text(text))
    return ids


def _end_of_turn(renderer: Renderer, tokenizer: Tokenizer) -> set[int]:
    """The special token that a template writes behind the assistant's messages, if it writes one."""
    messages = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": _PROBE}]
    try:
        parts = _render(renderer, messages, tokenizer, add_generation_prompt=False, tools=None)
    except ChatTemplateError:
        return set()
    for place, (_, text) in enumerate(parts):
        _, found, behind = text.rpartition(_PROBE)
        if found and not behind.strip() and place + 1 < len(parts):
            token = parts[place + 1][0]
            return {token} if token != tokenizer.vocabulary.bos_id else set()
    return set()


def _renderer(tokenizer: Tokenizer, template: str | None) -> Renderer:
    """What makes the text of messages for a tokenizer."""
    if template is not None and not isinstance(template, str):
        raise ChatTemplateError(f"template is {type(template).__name__}, not str", fix=_WAYS)
    if template in CONVENTIONS:
        return _convention(template, tokenizer)
    if template is not None:
        if "{" not in template:
            raise ChatTemplateError(f"{template!r} is no Jinja text and the name of no convention", fix=_WAYS)
        return _jinja(template, tokenizer, {})
    origin = tokenizer.origin
    if hasattr(origin, "apply_chat_template"):
        if not getattr(origin, "chat_template", None):
            raise ChatTemplateError(f"this {type(origin).__name__} has no chat template", fix=_WAYS)
        return _transformers(origin)
    if isinstance(origin, (str, os.PathLike)):
        source, settings = _beside(Path(origin))
        if source:
            return _jinja(source, tokenizer, settings)
        raise ChatTemplateError("there is no chat template beside this tokenizer", where=str(origin), fix=_WAYS)
    raise ChatTemplateError("this tokenizer has no chat template", where=repr(tokenizer)[:120], fix=_WAYS)


def _beside(path: Path) -> tuple[str, dict[str, Any]]:
    """The template that lies beside a tokenizer's file ("" if there is none), and the tokenizer's settings."""
    folder = path if path.is_dir() else path.parent
    settings = _json(folder / "tokenizer_config.json")
    if (folder / "chat_template.jinja").is_file():
        return read_file(folder / "chat_template.jinja").decode("utf-8"), settings
    source = _json(folder / "chat_template.json").get("chat_template") or settings.get("chat_template") or ""
    if isinstance(source, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in source if isinstance(one, dict)}
        source = named.get("default") or ""
    return source if isinstance(source, str) else "", settings


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(read_file(path).decode("utf-8-sig"))
    except ValueError as error:
        raise ChatTemplateError(f"the file is no JSON ({error})", where=str(path), fix="Download it again.") from None
    return found if isinstance(found, dict) else {}


def _convention(name: str, tokenizer: Tokenizer) -> Renderer:
    markers, write = CONVENTIONS[name]
    missing = [marker for marker in markers if marker not in tokenizer.vocabulary.special]
    if missing:
        raise ChatTemplateError(
            f"the convention {name!r} needs the special tokens {', '.join(missing)}, which this vocabulary does not have",
            fix="Choose the convention of the model, or load the tokenizer with special_tokens=.",
        )

    def render(messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool, tools: Any = None, **_: Any) -> str:
        if tools:
            raise ChatTemplateError(f"the convention {name!r} has no place for tools", fix="Describe them in a message.")
        try:
            return write(messages, add_generation_prompt)
        except ValueError as error:
            raise ChatTemplateError(f"the convention {name!r} refuses the messages: {error}") from None

    return render


def _transformers(value: Any) -> Renderer:
    def render(messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        try:
            return str(value.apply_chat_template(list(messages), tokenize=False, **variables))
        except Exception as error:  # whatever its template raises
            raise ChatTemplateError(f"the chat template refuses the messages: {error}") from error

    return render


def _jinja(source: str, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> Renderer:
    from fsa_compile.prompts.chat_jinja import render_jinja

    names: dict[str, str] = {}
    special = tokenizer.vocabulary.special
    by_id = {token: name for name, token in special.items()}
    known = {"bos_token": tokenizer.vocabulary.bos_id, "eos_token": next(iter(tokenizer.vocabulary.stop_ids), None)}
    for key, token in known.items():
        name = settings.get(key)
        name = name.get("content") if isinstance(name, dict) else name
        names[key] = name if isinstance(name, str) else by_id.get(-1 if token is None else token, "")
        if names[key] and names[key] not in special and re.search(rf"\b{key}\b", source):
            what = f"the template writes the {key} {names[key]!r}, which is no special token of this vocabulary"
            raise ChatTemplateError(what, fix="Load the tokenizer with special_tokens=, or with the files that belong together.")

    def render(messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        return render_jinja(source, {**names, "messages": list(messages), **variables})

    return render


def _check_messages(messages: Any) -> None:
    fix = 'Give a list such as [{"role": "user", "content": "Hello."}].'
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise ChatTemplateError(f"the messages are {type(messages).__name__}, not a list", fix=fix)
    if not messages:
        raise ChatTemplateError("there is no message", fix=fix)
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ChatTemplateError("a message is a dict with a role", where=f"messages[{place}]", fix=fix)
