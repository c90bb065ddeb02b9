"""`docs/canonical.md` is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "canonical.md"


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        exec(compile(block, "canonical.md", "exec", dont_inherit=True), names)
    count, sentence, answer = capsys.readouterr().out.splitlines()
    assert (count, answer in (" yes", " no")) == ("3", True)
    assert re.fullmatch(r"(yes|no), because [a-z ]{3,60}\.", sentence)
    assert names["tokenizer"].encode(sentence) == names["out"].tokens[0].tolist()
    assert names["lists"].is_canonical
