"""The page on tool calls and thinking: its blocks run, and it takes twelve lines to executed calls."""

from __future__ import annotations

from pathlib import Path

from oracles.markdown import python_blocks

PAGE = Path(__file__).parents[2] / "docs" / "tool_calls.md"


def test_the_page_runs(capsys):
    names: dict = {}
    blocks = python_blocks(PAGE.read_text(encoding="utf-8"))
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 12
    for block in blocks:
        exec(compile(block, PAGE.name, "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    assert "get_weather" in printed
    assert "CallFinished(index=0" in printed


def test_the_page_lists_every_protocol():
    from fsa_compile import PROTOCOLS

    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in PROTOCOLS)
