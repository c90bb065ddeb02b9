"""The merge tree of every token, by running the encoder on the atoms of all tokens at once."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.canonical.encoder.merge_table import NO_RANK, MergeTable


@dataclasses.dataclass(frozen=True, eq=False)
class MergeTrees:
    """How the encoder builds each token from its atoms.

    Attributes:
      left, right: int64[V], parts of the last merge, -1 for atoms and for tokens that are not their own form.
      rank: int64[V], rank of the last merge, -1 likewise.
      own: bool[V], whether merging the token's atoms gives exactly the token.
      pieces: what merging gives instead, for tokens inside the encoder that are not their own form.
    """

    left: np.ndarray
    right: np.ndarray
    rank: np.ndarray
    own: np.ndarray
    pieces: dict[int, tuple[int, ...]]

    def births(self) -> np.ndarray:
        """int64[V], the largest rank in each token's tree, -1 for atoms."""
        birth = self.rank.copy()
        made = np.flatnonzero(self.left >= 0)
        while True:
            parts = np.maximum(birth[self.left[made]], birth[self.right[made]])
            later = np.maximum(birth[made], parts)
            if (later == birth[made]).all():
                return birth
            birth[made] = later


def merge_trees(table: MergeTable) -> MergeTrees:
    """The trees of all tokens; tokens of one length are merged together, one merge a round."""
    size = table.vocab_size
    none = np.full(size, -1, np.int64)
    trees = MergeTrees(none, none.copy(), none.copy(), np.zeros(size, bool), {})
    length = np.diff(table.atom_offset)
    for n in np.unique(length[length > 0]).tolist():
        tokens = np.flatnonzero(length == n)
        rows = table.atoms[table.atom_offset[tokens][:, None] + np.arange(n)].astype(np.int64)
        spelled = (rows >= 0).all(1)
        tokens, rows = tokens[spelled], rows[spelled]
        if n == 1:
            trees.own[tokens] = rows[:, 0] == tokens
        elif len(tokens):
            _merge_rows(table, tokens, rows, trees)
    return trees


def _merge_rows(table: MergeTable, tokens: np.ndarray, rows: np.ndarray, trees: MergeTrees) -> None:
    """Fills in the trees of tokens with equally many atoms, int64[n, L]."""
    rank, result = table.find(rows[:, :-1], rows[:, 1:])
    while len(tokens):
        width = rows.shape[1]
        at = rank.argmin(1)  # the first least one: leftmost
        every = np.arange(len(tokens))
        live = rank[every, at] < NO_RANK
        if not live.all():  # stuck before one symbol is left: not its own form
            trees.pieces.update(zip(tokens[~live].tolist(), map(tuple, rows[~live].tolist())))
            tokens, rows, rank, result, at = tokens[live], rows[live], rank[live], result[live], at[live]
            every = np.arange(len(tokens))
        if width == 2:
            good = result[:, 0] == tokens
            trees.pieces.update((int(token), (int(made),)) for token, made in zip(tokens[~good], result[~good, 0]))
            done = tokens[good]
            trees.own[done] = True
            trees.left[done], trees.right[done], trees.rank[done] = rows[good, 0], rows[good, 1], rank[good, 0]
            return
        merged = result[every, at]
        rows = _without_column(rows, at + 1)
        rows[every, at] = merged
        rank, result = _without_column(rank, at), _without_column(result, at)
        for side in (0, 1):  # the two pairs that hold the new symbol are looked up again
            inner = np.flatnonzero(at > 0 if side == 0 else at < width - 2)
            column = at[inner] - 1 + side
            rank[inner, column], result[inner, column] = table.find(rows[inner, column], rows[inner, column + 1])


def _without_column(values: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The matrix without one element per row."""
    keep = np.ones(values.shape, bool)
    keep[np.arange(len(values)), column] = False
    return values[keep].reshape(len(values), values.shape[1] - 1)
