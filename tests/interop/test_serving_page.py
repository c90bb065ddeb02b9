"""`docs/serving.md` is true."""

from __future__ import annotations

import re
from pathlib import Path

from oracles.markdown import python_blocks

import fsa_compile
from fsa_compile.interop import structural_tags

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


def test_the_page_is_true(capsys):
    text = PAGE.read_text(encoding="utf-8")
    names: dict = {}
    for block in python_blocks(text):
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    assert printed.startswith(", because \n")
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city":' in printed
    assert "'at_least_one' is not known" in printed
    assert "at #/response_format/at_least_one" in printed
    assert names["must_apply"]
    assert isinstance(names["calls"], fsa_compile.CompiledConstraint)
    listed = set(re.findall(r"`(\w+)`", text[text.index("\nFormats:") : text.index("Refused, with")]))
    assert listed - {"excludes", "max_chars", "max_tokens", "exclude_tokens", "trigger_tokens", "begin", "end"} == set(structural_tags._Reader()._kinds)
    assert max(len(block.splitlines()) for block in python_blocks(text)) <= 25
