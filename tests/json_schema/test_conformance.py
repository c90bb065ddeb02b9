"""Public suites: no invalid instance is accepted, and what is refused or rejected is on a list that may only shrink.

The list is `known_limits.json`: per suite the schemas that are refused, and per schema the valid instances that are rejected,
because their keys come in an order that the schema does not name, or, in `formats`, because a format is written in part only.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.schema_conformance import judge, rows_of

KNOWN = json.loads((Path(__file__).parent / "known_limits.json").read_text())


@pytest.mark.parametrize(("suite", "every"), [("dev", 25), ("official", 5), ("formats", 2)])
def test_suite(suite, every, data_dir, exhaustive):
    known = KNOWN[suite]
    for row in rows_of(suite, data_dir)[:: 1 if exhaustive else every]:
        verdict, name = judge(row, suite), row["name"]
        assert not verdict.get("false_accept"), name
        assert (verdict["refused"] is not None) == (name in known["refused"]), (name, verdict["refused"])
        assert verdict.get("false_reject", []) == known["rejected"].get(name, []), name


def test_bars():
    """Of the dev schemas with instances, at least 96 % are judged right; of the official groups, at least 92 %."""
    refused = [name for name in KNOWN["dev"]["refused"] if name not in KNOWN["dev"]["without instances"]]
    assert len(refused) + len(KNOWN["dev"]["rejected"]) <= 888 * 0.04
    assert len(KNOWN["official"]["refused"]) + len(KNOWN["official"]["rejected"]) <= 600 * 0.08
