"""Merges nodes of a canonical product from which the same token sequences follow, whatever came before."""

from __future__ import annotations

import numpy as np

from fsa_compile.canonical.product_artifact import ProductEdges

_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xBF58476D1CE4E5B9))


def minimize_product(edges: ProductEdges) -> ProductEdges:
    """The same product with as few nodes as its tokens tell apart; the start stays the first.

    Nodes are told apart by 64-bit hashes of their tokens, branches and targets' classes; that two different ones agree has a
    chance below 2**-30 for the largest products.
    """
    count = len(edges.accept) // 2
    owner = np.concatenate([np.zeros(0, np.int64), *(np.full(len(part[1]), (part[0] - 1) // 2) for part in edges.parts)])
    branch = np.concatenate([np.zeros(0, np.int64), *(np.full(len(part[1]), (part[0] - 1) % 2) for part in edges.parts)])
    token = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in edges.parts)])
    target = np.concatenate([np.zeros(0, np.int64), *(part[2] for part in edges.parts)]) // 2
    label = _mixed((2 * token + branch).astype(np.uint64), 0)
    begin = np.searchsorted(owner, np.arange(count + 1))
    accept = edges.accept[1::2]
    kind, kinds = accept.astype(np.int64), 0
    while True:
        each = _mixed(label ^ _mixed(kind[target].astype(np.uint64) + np.uint64(1), 1), 2)
        sums = np.append(np.uint64(0), np.cumsum(each, dtype=np.uint64))
        total = sums[begin[1:]] - sums[begin[:-1]] + _mixed(kind.astype(np.uint64) + np.uint64(1), 0)
        _, kind = np.unique(total, return_inverse=True)
        kind = kind.ravel()
        if int(kind.max()) == kinds:
            break
        kinds = int(kind.max())
    first = np.full(kinds + 1, count)
    np.minimum.at(first, kind, np.arange(count))
    order = np.argsort(first)
    number = np.empty(kinds + 1, np.int64)
    number[order] = np.arange(kinds + 1)
    kept = first[order]
    parts = []
    for node in kept.tolist():
        for part in edges.parts[2 * node : 2 * node + 2]:
            old = (part[2] - 1) // 2
            parts.append((2 * int(number[kind[node]]) + 1 + (part[0] - 1) % 2, part[1], 2 * number[kind[old]] + 1, part[3]))
    distance = np.full(kinds + 1, np.iinfo(np.int64).max)
    np.minimum.at(distance, number[kind], edges.distance[1::2])
    return ProductEdges(
        np.append(False, np.repeat(accept[kept], 2)), np.append(edges.distance[0], np.repeat(distance, 2)), parts
    )


def _mixed(values: np.ndarray, salt: int) -> np.ndarray:
    values = (values + _MIX[salt]) * _MIX[1]
    values ^= values >> np.uint64(29)
    values *= _MIX[2]
    return values ^ (values >> np.uint64(32))
