"""`ConstraintLogitsProcessor`: constraints in PyTorch `transformers`. torch is imported when the processor is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fsa_compile.errors import ConstraintError, MissingPackageError, is_whole, named_fields, shown
from fsa_compile.interop.batch_masks import BatchMasks


@named_fields
class ConstraintLogitsProcessor:
    """A logits processor, `(input_ids, scores) -> scores`, that lets constrained rows write nothing else.

        processor = ConstraintLogitsProcessor(constraint, max_new_tokens=64)
        model.generate(**inputs, logits_processor=[processor], max_new_tokens=64)

    It has no state but a cache: where a row stands is found from its tokens, so that sampling, beam search and contrastive
    search may reorder rows as they like. Use a new one, or `reset()`, for every call of `generate`. Put it last, so that nothing
    behind it brings forbidden tokens back.

    Args:
      constraints: one for all rows, or a list with one per prompt; None for a prompt without a constraint.
      prompt_length: tokens of the prompts, padding on the left included; None: the width of `input_ids` in the first call. A
        list gives every row its own (rows padded on the right).
      beams: the sampler's `num_beams` (or `num_return_sequences`, where rows of one prompt are neighbours).
      tables, max_new_tokens, max_depth: as for `BatchMasks`.

    Raises:
      ConstraintError, ArtifactError: as `BatchMasks`.
    """

    def __init__(
        self,
        constraints: Any,
        *,
        prompt_length: int | Sequence[int] | None = None,
        beams: int = 1,
        tables: Any = None,
        max_new_tokens: int | None = None,
        max_depth: int | None = None,
    ) -> None:
        self._masks = BatchMasks(constraints, beams=beams, tables=tables, max_new_tokens=max_new_tokens, max_depth=max_depth)
        self._given: int | list[int] | None = _lengths(prompt_length)
        self._prompt_length = self._given

    def reset(self) -> None:
        """Forgets the prompt's length, for another call of `generate`."""
        self._prompt_length = self._given

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Scores with -inf in place of what is forbidden.

        Args:
          input_ids: LongTensor[B, T], prompt and text.
          scores: FloatTensor[B, V'] with V' at least V; ids past V are forbidden in constrained rows.

        Returns:
          A new FloatTensor[B, V']. Rows that have ended allow end-of-text ids only, for samplers that do not stop at all of them.

        Raises:
          ConstraintError: the shapes do not fit, torch is missing (`MissingPackageError`), or see `BatchMasks`.
        """
        try:
            import torch
        except ModuleNotFoundError as error:
            raise MissingPackageError("torch", "The logits processor", "torch") from error
        rows = input_ids.tolist()
        if self._prompt_length is None:
            self._prompt_length = input_ids.shape[1]
        length = self._prompt_length
        lengths = [length] * len(rows) if isinstance(length, int) else length
        if len(lengths) != len(rows) or len(scores) != len(rows) or any(n > len(row) for n, row in zip(lengths, rows)):
            what = f"{len(rows)} rows of {input_ids.shape[1]} tokens do not fit prompts of lengths {lengths}"
            raise ConstraintError(what, fix="Call reset() before another generate, or give prompt_length.")
        if scores.shape[1] < self._masks.vocab_size:
            what = f"the scores are for {scores.shape[1]} ids and the constraint for {self._masks.vocab_size}"
            raise ConstraintError(what, fix="Compile it for the model's tokenizer.")
        words, masked = self._masks([row[n:] for n, row in zip(lengths, rows)])
        bits = torch.from_numpy(words).to(scores.device)
        shifts = torch.arange(32, dtype=torch.int32, device=scores.device)
        forbidden = torch.ones(scores.shape, dtype=torch.bool, device=scores.device)
        size = self._masks.vocab_size
        forbidden[:, :size] = ((bits[:, :, None] >> shifts) & 1).reshape(len(rows), 32 * bits.shape[1])[:, :size] == 0
        forbidden &= torch.from_numpy(masked).to(scores.device)[:, None]
        return scores.masked_fill(forbidden, float("-inf"))


def _lengths(given: Any) -> int | list[int] | None:
    """Lengths of prompts as plain integers; raises `ConstraintError` for what are none."""
    if given is None or is_whole(given, 0):
        return None if given is None else int(given)
    several = given.ndim == 1 if isinstance(given, np.ndarray) else isinstance(given, (list, tuple))
    if not several or not all(is_whole(n, 0) for n in given):
        fix = "Give the number of tokens of all prompts, or one for each row, or leave it out."
        raise ConstraintError(f"prompt_length is {shown(given)}", fix=fix)
    return [int(n) for n in given]
