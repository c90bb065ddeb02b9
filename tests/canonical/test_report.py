"""The report on a tokenizer, as values and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fsa_compile.canonical.filter.canonical_tables import canonical_tables
from fsa_compile.canonical.tokenizer_report import tokenizer_report
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.cli.commands import main
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.vocabulary import Vocabulary


def test_counts_of_a_small_encoder() -> None:
    """abc is never reached; every number is counted again, pair by pair."""
    tokens = [*(bytes([b]) for b in range(256)), b"ab", b"bc", b"abc", b""]
    tables = toy_tables(tokens, [(97, 98), (98, 99), (97, 257)], stop_ids=[259])
    report = tokenizer_report(tables, Vocabulary.from_tokens(tokens, stop_ids=[259]))
    own = np.flatnonzero(tables.rule.own).tolist()
    forbidden = [sum(not tables.canonical_pair(a, b) for b in own) for a in own]
    assert (report.tokens, report.special, report.canonical, report.unmerged) == (260, 1, 258, [258])
    assert report.forbidden_share == pytest.approx(sum(forbidden) / 258**2)
    assert report.forbidden_per_token == (min(forbidden), int(np.median(forbidden)), max(forbidden))
    assert report.incomplete == 128
    assert report.duplicates == []


def test_command(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data_dir / "tokenizers" / "llama2"
    assert main(["tokenizer", "report", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tables, tokenizer = canonical_tables(str(path)), load_tokenizer(path)
    assert found["canonical"] == int(tables.rule.own.sum()) == 31_741
    assert found["byte_tokens"] == 256
    assert found["special"] == 3
    assert [65 + 3, tokenizer.vocabulary.tokens.index(b"A", 300)] in found["duplicates"]  # <0x41> and A
    assert main(["tokenizer", "report", str(path), "--examples", "2"]) == 0
    text = capsys.readouterr().out
    assert "own canonical form   31,741" in text
    assert "none: texts are not cut" in text
    assert main(["tokenizer", "report", str(path / "nothing")]) == 2
    assert "there is no tokenizer of this name here" in capsys.readouterr().err
