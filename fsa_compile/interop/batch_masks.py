"""`BatchMasks`: bit rows for a batch of growing token sequences, for samplers without a state of their own. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fsa_compile.artifact.bitmask import BitmaskWalk, bitmask_shape, words_of
from fsa_compile.errors import ConstraintError, is_whole
from fsa_compile.interop.walks import walk_of


class BatchMasks:
    """The masks of rows that are known by their tokens alone.

    A row's text is what stands behind its prompt. Its place is found from that of the text one token shorter, in the last call or
    in this one, so that rows may be reordered, copied and dropped between calls, as beam search does; a text never seen
    before is walked from its start.

    Args:
      constraints: one for every row, or a list with one per prompt; None for a prompt without a constraint.
      beams: rows per prompt, neighbours of each other. With more than one, a row may hold a forbidden token, as beam search
        fills up beams of probability zero: nothing can follow then. With 1 that is an error.
      tables: canonical tables, for canonical constraints.
      max_new_tokens: tokens that a text may take in all, so that it is complete in time; None for no limit.
      max_depth: most cells of a stack.

    Raises:
      ConstraintError: `beams` is not positive, there is no constraint, or one has no end-of-text ids.
      BudgetError: no text of a constraint is known to fit into the limits.
      ArtifactError: see `Matcher`.
    """

    def __init__(
        self,
        constraints: Any,
        *,
        beams: int = 1,
        tables: Any = None,
        max_new_tokens: int | None = None,
        max_depth: int | None = None,
    ) -> None:
        listed = list(constraints) if isinstance(constraints, Sequence) else [constraints]
        if not listed or not is_whole(beams, 1):
            raise ConstraintError("at least one constraint and one beam are needed", fix="Pass constraints=[...] and beams=1.")
        self._one_for_all = not isinstance(constraints, Sequence)
        self._starts = [None if c is None else walk_of(c, tables, max_depth, max_new_tokens) for c in listed]
        sizes = {start.vocab_size for start in self._starts if start is not None}
        if len(sizes) > 1:
            raise ConstraintError(f"the constraints are for vocabularies of {sorted(sizes)} ids", fix="Use one tokenizer.")
        self.vocab_size = sizes.pop() if sizes else 0
        if any(c is not None and not c.stop_ids for c in listed):
            what = "a constraint without end-of-text ids cannot say when its row has ended"
            raise ConstraintError(what, fix="Compile it with stop_ids=, the ids at which the sampler stops.")
        self._stops = [words_of(() if c is None else c.stop_ids, self.vocab_size) for c in listed]
        self._beams, self._max_new_tokens = int(beams), max_new_tokens
        self._known: dict[tuple[int, tuple[int, ...]], BitmaskWalk | None] = {}

    def __call__(self, texts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """The masks of the next tokens.

        Args:
          texts: the ids behind the prompt, by row.

        Returns:
          int32[B, ceil(V / 32)], and bool[B], the rows with a constraint. A row that has ended allows end-of-text ids only,
          whatever stands behind its end; a row that holds a forbidden token allows nothing.

        Raises:
          ConstraintError: the rows do not fit the constraints, or (with one beam) hold a forbidden token; says where.
        """
        out = np.full(bitmask_shape(len(texts), self.vocab_size), -1, np.int32)
        masked = np.zeros(len(texts), bool)
        now: dict[tuple[int, tuple[int, ...]], BitmaskWalk | None] = {}
        for row, text in enumerate(texts):
            which = self._which(row, len(texts))
            start = self._starts[which]
            if start is None:
                continue
            key = which, tuple(int(token) for token in text)
            if key not in now:
                now[key] = self._found(key, start, row)
            walk = now[key]
            masked[row] = True
            if walk is None:
                out[row] = 0
            elif walk.finished:
                out[row] = self._stops[which].view(np.int32)
            else:
                out[row] = walk.allowed_words(self._remaining(len(key[1]))).view(np.int32)
        self._known = now
        return out, masked

    def _which(self, row: int, rows: int) -> int:
        """The constraint of a row."""
        if self._one_for_all:
            return 0
        if rows != len(self._starts) * self._beams:
            what = f"there are {rows} rows, for {len(self._starts)} constraints with {self._beams} beams each"
            raise ConstraintError(what, fix="Give one constraint per prompt, and beams= as the sampler's num_beams.")
        return row // self._beams

    def _found(self, key: tuple[int, tuple[int, ...]], start: BitmaskWalk, row: int) -> BitmaskWalk | None:
        """Where a text stands; None if it holds a forbidden token."""
        which, text = key
        if key in self._known:
            return self._known[key]
        first = len(text)
        while first and (which, text[:first]) not in self._known:
            first -= 1
        known = self._known.get((which, text[:first]), start)
        if known is None or known.finished:
            return known
        walk = known.copy()
        for i in range(first, len(text)):
            if walk.finished:
                break
            try:
                walk.advance(text[i], self._remaining(i))
            except ValueError:
                if self._beams > 1:
                    return None
                fix = "Let nothing behind this processor choose tokens; for beam search pass beams=num_beams."
                raise ConstraintError(
                    f"token {text[i]} is not allowed", where=f"row {row}, {i} tokens behind its prompt", fix=fix
                ) from None
        return walk

    def _remaining(self, taken: int) -> int | None:
        return None if self._max_new_tokens is None else max(self._max_new_tokens - taken, 0)
