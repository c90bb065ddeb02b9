"""Real tokenizers, loaded once per process."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from oracles.library_encoders import piece_encoder

from fsa_compile.canonical.encoder.encoder import Encoder
from fsa_compile.canonical.encoder.encoder_sources import encoder_of
from fsa_compile.canonical.encoder.merge_trees import MergeTrees, merge_trees
from fsa_compile.canonical.encoder.pair_rule import PairRule, pair_rule
from fsa_compile.tokenizers import Tokenizer, load_tokenizer


@functools.lru_cache(maxsize=2)
def load_encoder(name: str, data: Path) -> tuple[Tokenizer, Encoder, MergeTrees, PairRule]:
    """A real tokenizer, its encoder, merge trees and pair rule."""
    tokenizer = load_tokenizer(data / "tokenizers" / name)
    encoder = encoder_of(tokenizer)
    trees = merge_trees(encoder.table)
    return tokenizer, encoder, trees, pair_rule(encoder.table, trees)


@functools.lru_cache(maxsize=2)
def load_piece_encoder(name: str, data: Path) -> Callable[[bytes], list[int]]:
    """The library's encoder of one piece."""
    return piece_encoder(name, data)


@pytest.fixture(scope="session")
def documents(data_dir: Path) -> list[str]:
    """Real texts of many kinds: JSON Schemas."""
    with gzip.open(data_dir / "maskbench_dev.jsonl.gz", "rt") as lines:
        return [json.dumps(json.loads(line)["schema"], ensure_ascii=False, indent=2) for _, line in zip(range(150), lines)]
