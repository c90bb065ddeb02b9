"""Chat templates of strangers end: whatever they compute, within a bounded time and memory."""

import sys
import time

import pytest

from fsa_compile.prompts.chat_errors import ChatTemplateError
from fsa_compile.prompts.chat_jinja import render_jinja

HOSTILE = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "power": "{{ 2**(10**9) }}",
    "product": "{% set ns = namespace(x=10**1000) %}{% for i in range(30) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "repeated": "{{ 'a' * 10**9 }}",
    "repeated list": "{{ ([0] * 10**8)|length }}",
    "width": "{{ '%1000000000d'|format(1) }}",
    "width of an operator": "{{ '%1000000000d' % 1 }}",
    "width of an argument": "{{ '%*d' % (1000000000, 1) }}",
    "width of a method": "{{ '{:1000000000d}'.format(1) }}",
    "padded": "{{ 'a'.ljust(10**9) }}",
    "centred": "{{ 'a'|center(10**9) }}",
    "indented": "{{ 'a\nb'|indent(10**9) }}",
    "doubled": "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "added": "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "replaced": "{% set a = 'a' * 10000000 %}{{ a|replace('a', 'b' * 10000)|length }}",
    "replaced by a method": "{% set a = 'a' * 10000000 %}{{ a.replace('a', 'b' * 10000)|length }}",
    "joined": "{{ (['a'] * 1000000)|join('b' * 1000000)|length }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursion in two": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "lists in lists": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|string|length }}",
    "tuples as keys": "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1}|length }}",
    "dicts in dicts": "{% set ns = namespace(x={}) %}{% for i in range(60) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x|tojson }}",
    "equal lists": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}"
    "{% endfor %}{{ ns.x == ns.y }}",
    "filled": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% for r in [1]|batch(3, fill_with=ns.x) %}{% set ns.x = r %}{% endfor %}"
    "{% endfor %}{{ ns.x|string|length }}",
    "grouped": "{% set ns = namespace(x=1) %}{% for i in range(60) %}{% for g in [{'a': ns.x}]|groupby('a') %}{% set ns.x = g %}{% endfor %}"
    "{% endfor %}{{ ns.x|string|length }}",
    "formatted": "{{ ('{0}' * 1000000).format('a' * 10000000) }}",
    "formatted by an operator": "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
    "repeated texts": "{{ (['b' * 1000000] * 1000000)|string|length }}",
    "indented JSON": "{{ ([1] * 1000)|tojson(indent=1000000000)|length }}",
    "mapped": "{{ ('a,' * 8000000).split(',')|map('upper')|list|length }}",
    "long": "a" * (1 << 21),
    "Python's objects": "{{ ''.__class__.__mro__ }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates(name, monkeypatch):
    monkeypatch.setattr("fsa_compile.prompts.chat_bounds._LIMITS", _few())
    start, trace = time.process_time(), sys.gettrace()
    with pytest.raises(ChatTemplateError):
        render_jinja(HOSTILE[name], {})
    assert time.process_time() - start < 15  # none runs on; a busy machine takes its time
    assert sys.gettrace() is trace


def _few():
    from fsa_compile import CompileLimits

    return CompileLimits(max_seconds=0.3, max_bytes=200 << 20)


def test_what_templates_make_of_lists():
    text = (
        "{% for a, b in {'x': 1}|items %}{{ a }}{{ b }}{% endfor %}{% set c, d = 2, (3, [4]) %}{{ c }}{{ (1, 2)[0] }}"
        "{{ {'a': [1, d]}|tojson(indent=1) }}{% set e = [c] + [d] %}{{ e|length }}"
    )
    assert render_jinja(text, {}) == 'x121{\n "a": [\n  1,\n  [\n   3,\n   [\n    4\n   ]\n  ]\n ]\n}2'


def test_plain_templates():
    text = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|trim + '\n' * 2 }}{{ '%05d' % loop.index }}"
        "{{ '12345 {}'.format('12345'.upper()) }}{{ '%s 12345' % 1 }}{{ m.content|replace('a', 'b')|indent(4) }}{{ {'n': 10**18}|tojson }}{% endfor %}"
    )
    assert render_jinja(text, {"messages": [{"role": "user", "content": " a\nc "}]}) == '<|user|>a\nc\n\n0000112345 123451 12345 b\n    c {"n": 1000000000000000000}'
