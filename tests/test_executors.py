"""Every constraint of the corpus on every executor: one table, in which a new case is one row of `corpus.constraints`."""

from __future__ import annotations

import pytest
from corpus.constraints import ROWS
from oracles.executors import EXECUTORS, PAIRS

_LEAST = {"judge": 1_000, "openfst": 1_000}
"""Verdicts that an executor gives at least, where it does not judge every row."""


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_text_is_judged_right(name: str, tmp_path, exhaustive) -> None:
    """By the slowest executor, of every row the shortest text of its language and the shortest outside; in full with --exhaustive."""
    pairs = PAIRS
    if name == "drafts" and not exhaustive:
        by_length = sorted(PAIRS, key=lambda pair: -len(pair.text))
        pairs = tuple({(pair.row, pair.good): pair for pair in by_length}.values())
    verdicts = EXECUTORS[name](pairs, tmp_path)
    wrong = [(ROWS[pair.row].name, pair.text, pair.good) for pair, verdict in zip(pairs, verdicts) if verdict not in (None, pair.good)]
    assert wrong == []
    assert sum(verdict is not None for verdict in verdicts) >= _LEAST.get(name, len(pairs))


def test_the_table_is_broad() -> None:
    assert len(ROWS) >= 280
    assert len(PAIRS) >= 1_400
    assert all(row.accepted for row in ROWS)
    assert sum(not row.rejected for row in ROWS) <= 2
