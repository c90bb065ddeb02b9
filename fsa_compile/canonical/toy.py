"""Canonical tables of small encoders made by hand: for examples and tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fsa_compile.canonical.encoder.encoder import Encoder, Engine
from fsa_compile.canonical.encoder.merge_table import MergeTable, make_table
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, build_tables
from fsa_compile.vocabulary.vocabulary import Vocabulary


def toy_merge_table(tokens: Sequence[bytes], merges: Sequence[tuple[int, int]]) -> MergeTable:
    """The merge table of a list of merges.

    Args:
      tokens: bytes per id; single bytes are atoms, and b"" is not text. No two are equal.
      merges: pairs of ids, first merge first; the joint bytes of each pair are a token.
    """
    ids = {token: i for i, token in enumerate(tokens) if token}
    length = [len(token) for token in tokens]
    atoms = [ids.get(bytes([byte]), -1) for byte in b"".join(tokens)]
    triples = [(a, b, ids[tokens[a] + tokens[b]], rank) for rank, (a, b) in enumerate(merges)]
    columns = np.array(triples, np.int64).reshape(-1, 4)
    return make_table(
        atoms=np.array(atoms, np.int32),
        atom_offset=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        merges=(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3]),
        whole_tokens=False,
    )


def toy_tables(
    tokens: Sequence[bytes],
    merges: Sequence[tuple[int, int]],
    *,
    pattern: str = r"[\s\S]+",
    engine: Engine = "tiktoken",
    stop_ids: Sequence[int] = (),
) -> CanonicalTables:
    """The canonical tables of a byte-level encoder.

    Args:
      tokens, merges: see `toy_merge_table`.
      pattern, engine: the splitter; by default nothing is cut.
      stop_ids: end-of-text ids, each b"".
    """
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=stop_ids)
    encoder = Encoder(vocabulary=vocabulary, table=toy_merge_table(tokens, merges), pattern=pattern, engine=engine)
    return build_tables(encoder)
