"""The page on requests that come and go runs, and says what is printed."""

from __future__ import annotations

from pathlib import Path

import jax
from oracles.markdown import python_blocks

PAGE = Path(__file__).parents[3] / "docs" / "continuous_batching.md"


def test_the_page_runs(capsys):
    names: dict[str, object] = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in python_blocks(PAGE.read_text(encoding="utf-8")):
            exec(compile(block, PAGE.name, "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    assert "ConstraintPool(profile 'regular', 1 in use, 1 kept" in printed
    assert "the pool of profile 'regular' is full: slots: 1 needed, 0 free" in printed
    for line in ("1 0 ACCEPTED", "1 1 ACCEPTED", "3 0 STOPPED"):
        assert line in printed
