"""Every canvas that a constraint allows, by walking it token by token: for small canvases."""

from __future__ import annotations

import numpy as np

from fsa_compile.vocabulary import Vocabulary

MANY = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(32, 126)), b"ab", b'":', b'{"', b"12", b"]]", b"[["], stop_ids=[0])
"""Single characters and longer tokens, enough of them for classes of tokens; id 0 ends a text."""


WIDE = Vocabulary.from_tokens(
    [*MANY.tokens, *(bytes([i, j]) for i in b"abcdefghijklm" for j in b"nopqrstuvwxyz")], stop_ids=[0]
)
"""The same and more: its sets of letters are large enough to be classes of tokens."""


def logprobs_of(seed, rows, length, width, spread=2.0):
    """Made-up log-probabilities, float32[rows, length, width]."""
    x = np.random.default_rng(seed).normal(size=(rows, length, width)) * spread
    return (x - np.logaddexp.reduce(x, axis=-1, keepdims=True)).astype(np.float32)


def _ends_within(walk, tokens):
    """Whether a text can be completed in so many tokens: tried, since a walk's own bound is not exact with a stack."""
    if walk.accepting:
        return True
    if tokens == 0:
        return False
    for token in np.flatnonzero(walk.allowed()):
        after = walk.copy()
        after.advance(int(token))
        if _ends_within(after, tokens - 1):
            return True
    return False


def canvases(constraint, length, *, remaining=0, max_depth=None, pad_ids=()):
    """All token rows of a length, int64[n, length]: a text that can be completed in `remaining` more tokens, or one with its stop id
    and what may stand behind it."""
    stops = sorted(constraint.stop_ids)
    behind = sorted({*stops, *pad_ids})
    found = []

    def end(row):
        if len(row) == length:
            found.append(row)
            return
        for token in behind:
            end([*row, token])

    def go(walk, row):
        if len(row) == length:
            if _ends_within(walk, remaining):
                found.append(row)
            return
        for token in np.flatnonzero(walk.allowed()):
            if token in stops:
                end([*row, int(token)])
            else:
                after = walk.copy()
                after.advance(int(token))
                go(after, [*row, int(token)])

    walk = constraint.walk() if max_depth is None else constraint.walk(max_depth=max_depth)
    go(walk, [])
    return np.array(found, np.int64).reshape(-1, length)
