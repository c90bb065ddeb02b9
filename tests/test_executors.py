"""Every constraint of the corpus on every executor: one table, in which a new case is one row of `corpus.constraints`."""

from __future__ import annotations

import random

import pytest
from corpus.constraints import ROWS
from oracles.executors import EXECUTORS, PAIRS, Pair

_LEAST = {"judge": 1_000, "openfst": 1_000}
"""Verdicts that an executor gives at least, where it does not judge every row."""
_DECODES = ("drafts",)
"""Executors that run a whole decoding loop: one text of each kind in each row, unless exhaustive."""


def _one_of_each() -> tuple[Pair, ...]:
    """Of every row one accepted text and one rejected text, where there is one."""
    kinds: dict[tuple[int, bool], list[Pair]] = {}
    for pair in PAIRS:
        kinds.setdefault((pair.row, pair.good), []).append(pair)
    return tuple(random.Random(kind[0].text).choice(kind) for kind in kinds.values())


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_text_is_judged_right(name: str, tmp_path, exhaustive: bool) -> None:
    pairs = PAIRS if exhaustive or name not in _DECODES else _one_of_each()
    verdicts = EXECUTORS[name](pairs, tmp_path)
    wrong = [(ROWS[pair.row].name, pair.text, pair.good) for pair, verdict in zip(pairs, verdicts) if verdict not in (None, pair.good)]
    assert wrong == []
    assert sum(verdict is not None for verdict in verdicts) >= _LEAST.get(name, len(pairs))


def test_the_table_is_broad() -> None:
    assert len(ROWS) >= 280
    assert len(PAIRS) >= 1_400
    assert all(row.accepted for row in ROWS)
    assert sum(not row.rejected for row in ROWS) <= 2
