"""Turns as chat templates write them: one Jinja template per protocol, in our own words after the published ones.

They know nothing of the project. Arguments go through `tojson` as in `transformers` (no sorting, no escapes of non-ASCII), through
`dictsort` where a template sorts keys, and through Python's `repr` where calls are Python.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jinja2

_MARKED = """
{%- macro value(v) -%}
{%- if v is none -%}null
{%- elif v is string -%}MARK{{ v }}MARK
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is mapping -%}{ {%- for k, x in v | dictsort %}{{ ',' if not loop.first }}{{ k }}:{{ value(x) }}{% endfor -%} }
{%- elif v is sequence -%}[{%- for x in v %}{{ ',' if not loop.first }}{{ value(x) }}{% endfor -%}]
{%- else -%}{{ v }}
{%- endif -%}
{%- endmacro -%}
"""
_PYTHON = "{{ c.name }}({% for k, x in c.arguments.items() %}{{ ', ' if not loop.first }}{{ k }}={{ x | repr }}{% endfor %})"
_LIST = "[{% for c in calls %}{{ ', ' if not loop.first }}" + _PYTHON + "{% endfor %}]"

_THINK = "{% if thought %}<think>\n{{ thought }}\n</think>\n\n{% endif %}"

TEMPLATES: dict[str, str] = {
    "gemma4": _MARKED.replace("MARK", '<|"|>')
    + "{% if thought %}<|channel>thought\n{{ thought }}\n<channel|>{% endif %}{{ content }}"
    + "{% for c in calls %}<|tool_call>call:{{ c.name }}{{ value(c.arguments) }}<tool_call|>{% endfor %}",
    "functiongemma": _MARKED.replace("MARK", "<escape>")
    + "{{ content }}{% for c in calls %}<start_function_call>call:{{ c.name }}{{ value(c.arguments) }}<end_function_call>{% endfor %}",
    "gemma3-json": '{{ content }}{% for c in calls %}{"name": {{ c.name | tojson }}, "parameters": {{ c.arguments | tojson }}}{% endfor %}',
    "gemma3-python": "{{ content }}{% if calls %}" + _LIST + "{% endif %}",
    "harmony": "{% if thought %}<|channel|>analysis<|message|>{{ thought }}<|end|><|start|>assistant{% endif %}"
    "{% if calls %}{% if content %}<|channel|>commentary<|message|>{{ content }}<|end|><|start|>assistant{% endif %}"
    "{% for c in calls %}<|channel|>commentary to=functions.{{ c.name }} <|constrain|>json<|message|>{{ c.arguments | tojson }}"
    "{% endfor %}{% else %}<|channel|>final<|message|>{{ content }}{% endif %}",
    "qwen3": _THINK + "{{ content }}{% for c in calls %}{{ '\n' if content or not loop.first }}<tool_call>\n"
    '{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}\n</tool_call>{% endfor %}',
    "llama3": '{{ content }}{% for c in calls %}{{ "; " if not loop.first }}{"name": "{{ c.name }}", "parameters": '
    "{{ c.arguments | tojson }}}{% endfor %}",
    "llama3.2": "{{ content }}{% if calls %}" + _LIST + "{% endif %}",
    "llama4": "{{ content }}{% if calls %}" + _LIST + "{% endif %}",
    "deepseek-v3": _THINK + "{{ content }}{% if calls %}<｜tool▁calls▁begin｜>{% for c in calls %}{{ '\n' if not loop.first }}"
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.name }}\n```json\n{{ c.arguments | tojson }}\n```<｜tool▁call▁end｜>"
    "{% endfor %}<｜tool▁calls▁end｜>{% endif %}",
    "deepseek-v3.1": _THINK + "{{ content }}{% if calls %}<｜tool▁calls▁begin｜>{% for c in calls %}<｜tool▁call▁begin｜>"
    "{{ c.name }}<｜tool▁sep｜>{{ c.arguments | tojson }}<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}",
    "mistral": "{% if thought %}[THINK]{{ thought }}[/THINK]{% endif %}{{ content }}{% for c in calls %}[TOOL_CALLS]{{ c.name }}"
    "[ARGS]{{ c.arguments | tojson }}{% endfor %}",
    "mistral-v3": "{{ content }}{% if calls %}[TOOL_CALLS] [{% for c in calls %}{{ ', ' if not loop.first }}"
    '{"name": {{ c.name | tojson }}, "arguments": {{ c.arguments | tojson }}}{% endfor %}]{% endif %}',
    "phi4": _THINK + "{{ content }}{% if calls %}<|tool_call|>[{% for c in calls %}{{ ', ' if not loop.first }}"
    '{"name": {{ c.name | tojson }}, "arguments": {{ c.arguments | tojson }}}{% endfor %}]<|/tool_call|>{% endif %}',
    "olmo3": _THINK + "{{ content }}{% if calls %}<function_calls>{% for c in calls %}{{ '\n' if not loop.first }}"
    + _PYTHON.replace("x | repr", "x | tojson") + "{% endfor %}</function_calls>{% endif %}",
}  # fmt: skip
"""What a template writes for an assistant's message, up to the token that ends the turn."""

_HARMONY = "{% for c in calls %} to=functions.{{ c.name }}<|channel|>commentary CONTENT<|message|>{{ c.arguments | tojson }}{% endfor %}"
_MISTRAL = (
    "{{ content }}[TOOL_CALLS]SPACE[{% for c in calls %}{% set out = c | tojson %}{{ ', ' if not loop.first }}"
    "{{ out[:-1] }}, \"id\": \"{{ 'abcdefgh%d' % loop.index }}\"}{% endfor %}]"
)
OTHER_WAYS: dict[str, tuple[str, ...]] = {
    "harmony": (_HARMONY.replace("CONTENT", "<|constrain|>json"), _HARMONY.replace("CONTENT", "json")),
    "mistral-v3": (_MISTRAL.replace("SPACE", " "), _MISTRAL.replace("SPACE", "")),
    "phi4": (
        "{{ content }}<|tool_call|>[{% for c in calls %}{{ ',' if not loop.first }}"
        '{"name":"{{ c.name }}","arguments":{{ c.arguments | compact }}}{% endfor %}]<|/tool_call|>',
    ),
}
"""Other ways in which a protocol's published templates and libraries write calls."""

ONE_CALL = frozenset({"gemma3-json", "harmony"})
"""Protocols whose turns hold one call."""
CONTENT_OR_CALLS = frozenset({"gemma3-json", "gemma3-python", "llama3", "llama3.2", "llama4"})
"""Protocols whose turns hold no content before calls."""
THINKING = frozenset({"gemma4", "harmony", "qwen3", "deepseek-v3", "deepseek-v3.1", "mistral", "phi4", "olmo3"})


def write_turn(protocol: str, *, thought: str = "", content: str = "", calls: Sequence[tuple[str, Any]] = (), way: int | None = None) -> str:
    """The text of a turn; calls are (name, arguments); `way`: place in `OTHER_WAYS`."""
    environment = jinja2.Environment(keep_trailing_newline=True, autoescape=False)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["compact"] = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    environment.filters["repr"] = repr
    named = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return environment.from_string(TEMPLATES[protocol] if way is None else OTHER_WAYS[protocol][way]).render(thought=thought, content=content, calls=named)
