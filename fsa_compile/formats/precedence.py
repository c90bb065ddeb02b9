"""Text that yields to values, in constraints that are put together: nodes read as their *defaults* where names say nothing else.

Where an answer may be free text, and may be a call that no token marks, a node stands for what is read of a name and for the text
that goes on otherwise, its default. Which of the default's tokens the names take depends on which names there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts
from fsa_compile.arrays.ranges import joined
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

TOKEN_BITS = 22


def taken_by_names(
    made: CompiledConstraint, default: np.ndarray, names: Callable[[int, list[int]], list[int | None]]
) -> np.ndarray | None:
    """int64[K, 3] of (node, token, place of a name): what the default of a node reads, and the name's arguments forbid here.

    Args:
      default: int64[N], the default of each node, 0 for none.
      names: of a node and tokens, the places of the names, -1 for none; None where it could be several. Then there is no result.
    """
    out = list[tuple[int, int, int]]()
    for node in default.nonzero()[0].tolist():
        lacking = _tokens_of(made, int(default[node])) & ~_tokens_of(made, node)
        tokens = np.unpackbits(lacking.view(np.uint8), bitorder="little").nonzero()[0].tolist()
        for token, place in zip(tokens, names(node, tokens)):
            if place is None:
                return None
            out.append((node, token, place))
    return np.array(out, np.int64).reshape(-1, 3)


def _tokens_of(made: CompiledConstraint, node: int) -> np.ndarray:
    """uint32[W], all tokens of a node."""
    levels = made.level_offset[node : node + 2]
    if levels[1] > levels[0]:
        return made.rows[made.level_row[levels[1] - 1]]
    row = np.zeros(made.rows.shape[1], np.uint32)
    tokens = made.arc_token[made.arc_offset[node] : made.arc_offset[node + 1]]
    np.bitwise_or.at(row, tokens >> 5, np.uint32(1) << (tokens & 31).astype(np.uint32))
    return row


def with_defaults(
    arcs: Mapping[str, np.ndarray], groups: Mapping[str, np.ndarray], default: np.ndarray, taken: np.ndarray,
    rows: dict[int, np.ndarray], tables: VocabularyTables,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None:
    """Arcs and groups with those that nodes take from their defaults; None where a node has wide sets of its own.

    Args:
      arcs, groups: columns by node, token or set, and more; by node, without what nodes with a default take from it.
      default: int64[nodes], 0 for none.
      taken: of `taken_by_names`, as node << TOKEN_BITS | token.
      rows: sets by their hashes; takes new ones.
    """
    nodes = default.nonzero()[0]
    if default[groups["node"]].any():
        return None
    own = default[arcs["node"]] > 0
    pairs = distinct(np.concatenate((arcs["node"][own] << TOKEN_BITS | arcs["token"][own], taken)))
    count = np.bincount(arcs["node"], minlength=len(default))
    begin = count.cumsum() - count
    at = joined(begin[default[nodes]], count[default[nodes]])
    node = nodes.repeat(count[default[nodes]])
    kept = ~np.isin(node << TOKEN_BITS | arcs["token"][at], pairs)
    more = {name: values[at[kept]] for name, values in arcs.items()} | {"node": node[kept]}
    parts = [{name: values[:0] for name, values in groups.items()}]
    of_pair = default[pairs >> TOKEN_BITS]
    for group in np.isin(groups["node"], default[nodes]).nonzero()[0].tolist():
        which = nodes[default[nodes] == groups["node"][group]]
        hashes = _cleared(int(groups["hash"][group]), pairs[of_pair == groups["node"][group]], len(default), rows, tables)[which]
        some = hashes != 0
        columns = {name: values[group].repeat(int(some.sum())) for name, values in groups.items()}
        parts.append(columns | {"node": which[some], "hash": hashes[some]})
    return (
        {name: np.concatenate((values, more[name])) for name, values in arcs.items()},
        {name: np.concatenate((values, *(part[name] for part in parts))) for name, values in groups.items()},
    )


def _cleared(row_hash: int, pairs: np.ndarray, size: int, rows: dict[int, np.ndarray], tables: VocabularyTables) -> np.ndarray:
    """uint64[size], by node the hash of a set without the tokens that are paired with the node; new sets are added to `rows`."""
    row, out = rows[row_hash], np.full(size, row_hash, np.uint64)
    token = pairs & ((1 << TOKEN_BITS) - 1)
    pairs = pairs[(row[token >> 5] >> (token & 31).astype(np.uint32) & 1) > 0]
    node, token = pairs >> TOKEN_BITS, pairs & ((1 << TOKEN_BITS) - 1)
    np.subtract.at(out, node, tables.token_hash[token])
    begin = firsts(node, size)
    changed = distinct(node)
    for one in changed[np.unique(out[changed], return_index=True)[1]].tolist():
        if int(out[one]) not in rows:
            tokens = token[begin[one] : begin[one + 1]]
            rows[int(out[one])] = new = row.copy()
            np.bitwise_and.at(new, tokens >> 5, ~(np.uint32(1) << (tokens & 31).astype(np.uint32)))
    return out
