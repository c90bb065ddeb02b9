"""Texts that a constraint forces although their tokens are not: found when the tables are made, from the tokens' bytes.

NumPy only; used by `tables`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.constraint import CompiledConstraint
from jax_decode.errors import DecodeError

_MOST = 64
"""Tokens of a node that can all begin one text: not many more than a token has bytes."""


def forced_spellings(constraint: CompiledConstraint, vocabulary: Any) -> NDArray[np.int32]:
    """The longest token of every node whose tokens all begin the same text, int32[N]; -1 for the other nodes.

    Args:
      constraint: whose nodes are asked about.
      vocabulary: of the constraint, or a tokenizer that has it.

    Raises:
      DecodeError: it is not the constraint's vocabulary.
    """
    vocabulary = getattr(vocabulary, "vocabulary", vocabulary)
    if not hasattr(vocabulary, "packed") or getattr(vocabulary, "fingerprint", None) != constraint.fingerprint:
        raise DecodeError("the vocabulary is not the constraint's", fix="Pass the tokenizer that it was compiled for.")
    data, offset = vocabulary.packed
    data = bytes(data)
    of_row = [_tokens(row) for row in constraint.rows]
    out = np.full(constraint.num_nodes, -1, np.int32)
    if constraint.has_sets:  # what is forced depends on the keys that have come
        return out
    for node in range(1, constraint.num_nodes):
        arcs = slice(constraint.arc_offset[node], constraint.arc_offset[node + 1])
        groups = constraint.group_row[constraint.group_offset[node] : constraint.group_offset[node + 1]]
        found = [constraint.arc_token[arcs], *(of_row[row] for row in groups)]
        if any(part is None for part in found) or not 0 < sum(map(len, found)) <= _MOST:
            continue
        tokens = [(data[offset[t] : offset[t + 1]], -int(t)) for part in found for t in part]
        longest = max(tokens, key=lambda pair: (len(pair[0]), pair[1]))
        if all(longest[0].startswith(text) for text, _ in tokens):
            out[node] = -longest[1]
    return out


def _tokens(row: NDArray[np.uint32]) -> NDArray[np.int64] | None:
    """The tokens of a bit row, None for more than a node may have."""
    word = np.flatnonzero(row)
    if len(word) > _MOST:
        return None
    bits = np.unpackbits(row[word].astype("<u4").view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    at, bit = np.nonzero(bits)
    return word[at] * 32 + bit
