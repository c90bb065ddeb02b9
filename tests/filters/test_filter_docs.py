"""`docs/filters.md` is true, and filters by name on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fsa_compile.cli.commands
from fsa_compile import filters
from fsa_compile.errors import ConstraintError
from fsa_compile.filters.named import named_filter

ROOT = Path(__file__).parents[2]


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "filters.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        exec(compile(block, "filters.md", "exec", dont_inherit=True), names)
        expected = re.findall(r"^# (.*)$", block, re.M)
        printed = capsys.readouterr().out.splitlines()
        assert printed == expected or not expected
    for name in filters.__all__:
        if name[0].islower() and name != "checked_filters":
            assert f"`{name}(" in text, name


def test_filters_by_name(tmp_path, capsys):
    assert named_filter("scripts Latin Hangul").description == filters.scripts(["Hangul", "Latin"]).description
    assert named_filter("length 3 words").description == filters.length(at_most=3, unit="words").description
    assert named_filter("forbid 'a b' c").description == filters.forbid("a b", "c").description
    for text, message in (("", "no filter"), ("asci", "no filter 'asci'"), ("length", "Write length MOST"), ("ascii 3", "Write ascii"), ("length x", "not understood"), ("scripts Klingon", "no script")):
        with pytest.raises(ConstraintError, match=message):
            named_filter(text)
    tokenizer = str(ROOT / "models/small/tokenizer.model")
    made = ["compile", "(?s).{1,9}", "--tokenizer", tokenizer, "--output", str(tmp_path / "a.npz"), "--filter", "ascii", "--filter", "forbid no", "--starts-text"]
    assert fsa_compile.cli.commands.main(made) == 0
    check = ["check", str(tmp_path / "a.npz"), "--tokenizer", tokenizer]
    assert fsa_compile.cli.commands.main([*check, "yes"]) == 0
    assert fsa_compile.cli.commands.main([*check, "no"]) == 1
    assert fsa_compile.cli.commands.main([*check, "é"]) == 1
    assert "accepted: 'yes'" in capsys.readouterr().out
