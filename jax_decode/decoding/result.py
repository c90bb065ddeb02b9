"""`Generation`: what `generate` returns, on the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jax_decode.step.state import Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What decoding cost, int32[B] each.

    Attributes:
      target_passes: passes of the model that a row took part in, the prompt's included.
      draft_passes: passes of the draft model, its prompt's not included.
      drafted: tokens drafted, those that were forced not counted.
      accepted: how many of them were accepted.
      forced: tokens taken without sampling because they were the only ones.
    """

    target_passes: NDArray[np.int32]
    draft_passes: NDArray[np.int32]
    drafted: NDArray[np.int32]
    accepted: NDArray[np.int32]
    forced: NDArray[np.int32]

    @property
    def acceptance_rate(self) -> float:
        """Drafts accepted, as a share of those made; NaN where there were none."""
        drafted = int(self.drafted.sum())
        return float(self.accepted.sum()) / drafted if drafted else float("nan")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """Generated rows; with several samples per prompt, the samples of prompt i are rows `i * n .. i * n + n - 1`.

    Attributes:
      tokens: int32[n_b] per row: the text, without the stop token.
      status: how each row ended.
      stop_token: the stop token of each row, or None.
      logprobs: float32[n_b] per row: log-probability in nats of each token among the allowed ones, at temperature 1 and before
        any truncation.
      raw_logprobs: float32[n_b] per row: the same over all of the model's logits.
      stop_logprobs, raw_stop_logprobs: float32[B], the same of the stop token; 0 where there is none.
      padded: int32[B, T], the tokens right padded with -1.
      dropped: bool[B], whether a row of an ambiguous constraint followed fewer configurations than there were: then some texts
        of its language could not be chosen. What was chosen is in the language all the same.
      single: whether one prompt was given by itself and sampled once: `text` then returns one string.
      work: passes, drafts and forced tokens of each row; None where nobody counted.
    """

    tokens: list[NDArray[np.int32]]
    status: list[Status]
    stop_token: list[int | None]
    logprobs: list[NDArray[np.float32]]
    raw_logprobs: list[NDArray[np.float32]]
    stop_logprobs: NDArray[np.float32]
    raw_stop_logprobs: NDArray[np.float32]
    padded: NDArray[np.int32]
    dropped: NDArray[np.bool_]
    single: bool = False
    work: Work | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """int32[B], tokens of each row's text."""
        return np.array([len(t) for t in self.tokens], np.int32)

    @property
    def total_logprob(self) -> NDArray[np.float64]:
        """float64[B], log-probability of each row, its stop token included, among the allowed tokens; nats."""
        return np.array([x.sum(dtype=np.float64) for x in self.logprobs]) + self.stop_logprobs

    @property
    def raw_total_logprob(self) -> NDArray[np.float64]:
        """float64[B], the same under the model alone."""
        return np.array([x.sum(dtype=np.float64) for x in self.raw_logprobs]) + self.raw_stop_logprobs

    @property
    def passes_per_token(self) -> float:
        """Passes of the model for each token taken, stop tokens included, over all rows: 1 without drafts and forced runs."""
        stops = sum(stop is not None for stop in self.stop_token)
        return float("nan") if self.work is None else float(self.work.target_passes.sum() / max(self.lengths.sum() + stops, 1))

    def text(self, tokenizer: Any) -> Any:
        """The texts.

        Args:
          tokenizer: anything with `decode(ids) -> str`. Where it has a `vocabulary` (as `fsa_compile.load_tokenizer`'s
            have), that decodes, because the rows continue a text: a tokenizer's own `decode` may drop a first space.

        Returns:
          list[str], one per row; one str when one prompt was given by itself and sampled once.
        """
        tokenizer = getattr(tokenizer, "vocabulary", tokenizer)
        # A model may have more logits than the tokenizer has ids; without a constraint it may take one, which writes nothing.
        size = getattr(tokenizer, "size", None)
        rows = [[int(t) for t in row if size is None or t < size] for row in self.tokens]
        texts = [tokenizer.decode(row) for row in rows]
        return texts[0] if self.single else texts

    def __repr__(self) -> str:
        rows = [
            f"  {i}: {self.status[i].name}, {len(t)} tokens, log-probability {self.total_logprob[i]:.3f} "
            f"(raw {self.raw_total_logprob[i]:.3f})"
            for i, t in enumerate(self.tokens[:8])
        ]
        more = [f"  … {len(self) - 8} more"] if len(self) > 8 else []
        return "\n".join([f"Generation of {len(self)} row{'s' if len(self) != 1 else ''}:", *rows, *more])


_STATUSES = {int(status): status for status in Status}


def collect(
    tokens: NDArray[np.int32],
    logprobs: NDArray[np.float32],
    raw_logprobs: NDArray[np.float32],
    status: NDArray[np.int32],
    dropped: NDArray[np.bool_],
    stop_ids: NDArray[np.int32],
    *,
    single: bool,
    work: Work | None = None,
) -> Generation:
    """Splits the loop's output into rows.

    Args:
      tokens: int32[B, T], -1 after the last token; logprobs, raw_logprobs: float32[B, T]; status: int32[B];
      dropped: bool[B]; stop_ids: int32[B, E], padded with -1.
      single: see `Generation`.
      work: what it cost; by default one pass per token.
    """
    taken = np.count_nonzero(tokens >= 0, axis=1)
    batch, at = np.arange(len(tokens)), np.maximum(taken - 1, 0)
    last = tokens[batch, at]
    ended = ((status == Status.ACCEPTED) | (status == Status.FINISHED)) & (taken > 0)
    stopped = ended & (last[:, None] == stop_ids).any(1)
    lengths = taken - stopped
    if work is None:
        none, passes = np.zeros_like(status), np.maximum(taken, 1).astype(np.int32)
        work = Work(target_passes=passes, draft_passes=none, drafted=none, accepted=none, forced=none)
    longest = max(int(lengths.max()), 1)
    padded = np.where(np.arange(longest) < lengths[:, None], tokens[:, :longest], -1)
    return Generation(
        tokens=_split(tokens, lengths),
        status=[_STATUSES[s] for s in status.tolist()],
        stop_token=[token if has else None for token, has in zip(last.tolist(), stopped.tolist())],
        logprobs=_split(logprobs, lengths),
        raw_logprobs=_split(raw_logprobs, lengths),
        stop_logprobs=np.where(stopped, logprobs[batch, at], 0).astype(np.float32),
        raw_stop_logprobs=np.where(stopped, raw_logprobs[batch, at], 0).astype(np.float32),
        padded=padded.astype(np.int32),
        dropped=dropped,
        single=single,
        work=work,
    )


def _split(padded: NDArray[Any], lengths: NDArray[np.intp]) -> list[NDArray[Any]]:
    """The first `lengths` entries int[B] of every row [B, T], copied together."""
    if len(lengths) and (lengths == lengths[0]).all():
        return list(padded[:, : lengths[0]].copy())
    kept = padded[np.arange(padded.shape[1])[None] < lengths[:, None]]
    ends = np.cumsum(lengths).tolist()
    return [kept[lo:hi] for lo, hi in zip([0, *ends], ends)]
