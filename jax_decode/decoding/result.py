"""`Generation`: what `generate` returns, on the host."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding.origin import Origin
from jax_decode.decoding.row_pages import STYLE, row_as_html, vocabulary_of
from jax_decode.decoding.vocabularies import speller
from jax_decode.errors import DecodeError
from jax_decode.step.state import Status

_SHOWN = 8
"""Rows that are shown."""
_WIDTH = 72
"""Characters of a text that are shown."""


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
      origin: prompts, vocabulary and limits of the rows, for `text`, `squeezed` and `report`; None where they are not known.
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
    origin: Origin | None = dataclasses.field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """int32[B], tokens of each row's text."""
        return np.array([len(t) for t in self.tokens], np.int32)

    @functools.cached_property
    def squeezed(self) -> NDArray[np.int32]:
        """int32[B], per row the position of the first token that was chosen where the limit narrowed the mask, -1 for none.

        The stop token counts. Such a text was ended, or kept short, by `max_new_tokens`; a higher limit may give another. The
        rows are walked once more through their tables, without the model, when this is first asked for.
        """
        if self.origin is None:
            return np.full(len(self), -1, np.int32)
        stops = [[] if stop is None else [stop] for stop in self.stop_token]
        rows = [np.array([*row.tolist(), *stop], np.int32) for row, stop in zip(self.tokens, stops)]
        tokens = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int32)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)] = ids
        return self.origin.first_narrowed(tokens)

    @property
    def unenforced(self) -> list[tuple[str, ...]]:
        """Per row the places in its schema that its constraint leaves out, to be checked; see `SchemaOptions.unenforced`."""
        return [() if self.origin is None else self.origin.unenforced(row) for row in range(len(self))]

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

    def text(self, tokenizer: Any = None) -> Any:
        """The texts.

        Args:
          tokenizer: anything with `decode(ids) -> str`. Where it has a `vocabulary` (as `fsa_compile.load_tokenizer`'s
            have), that decodes, because the rows continue a text: a tokenizer's own `decode` may drop a first space.
            None: the vocabulary of this process that the constraint belongs to.

        Returns:
          list[str], one per row; one str when one prompt was given by itself and sampled once.

        Raises:
          DecodeError: the tokenizer is another's, or none was given and this process has loaded none that fits.
        """
        tokenizer = speller(tokenizer, "" if self.origin is None else self.origin.fingerprint)
        # A model may have more logits than the tokenizer has ids; without a constraint it may take one, which writes nothing.
        size = getattr(tokenizer, "size", None)
        rows = [[int(t) for t in row if size is None or t < size] for row in self.tokens]
        texts = [tokenizer.decode(row) for row in rows]
        return texts[0] if self.single else texts

    def __getitem__(self, row: int) -> Row:
        """One row; negative numbers count from the end."""
        if isinstance(row, bool) or not isinstance(row, (int, np.integer)):
            what = f"rows have numbers; {row!r} is none"
            raise DecodeError(what, fix="Write out[0], or out.tokens, out.status and so on for all rows.")
        if not -len(self) <= row < len(self):
            raise IndexError(f"there is no row {row} among {len(self)}")
        return Row(self, int(row) % len(self))

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, row) for row in range(len(self)))

    def __repr__(self) -> str:
        rows = [f"  {row.index}: {row!r}" for row in itertools.islice(self, _SHOWN)]
        more = [f"  … {len(self) - _SHOWN} more"] if len(self) > _SHOWN else []
        return "\n".join([f"{type(self).__name__} of {len(self)} row{'s' if len(self) != 1 else ''}:", *rows, *more])

    def _repr_html_(self) -> str | None:
        """The coloured report in a notebook; None where tokens cannot be spelled or raw log-probabilities were left out."""
        try:
            rows = [row_as_html(self, None, row) for row in range(min(len(self), _SHOWN))]
        except DecodeError:
            return None
        more = f"<p>… {len(self) - _SHOWN} more rows</p>" if len(self) > _SHOWN else ""
        return f"<style>{STYLE}</style>" + "\n".join(rows) + more


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a `Generation`, which it looks into."""

    generation: Generation = dataclasses.field(repr=False)
    index: int

    @property
    def text(self) -> str:
        """What the row wrote; see `Generation.text`."""
        texts = getattr(self.generation, "texts", None)  # a stream's, which may be cut inside a token
        if texts is not None:
            return str(texts[self.index])
        vocabulary = vocabulary_of(self.generation, None)
        return str(vocabulary.decode([token for token in self.tokens.tolist() if token < vocabulary.size]))

    @property
    def tokens(self) -> NDArray[np.int32]:
        """int32[n], without the stop token."""
        return self.generation.tokens[self.index]

    @property
    def status(self) -> Status:
        """How the row ended."""
        return self.generation.status[self.index]

    @property
    def logprob(self) -> float:
        """Log-probability among the allowed tokens, nats."""
        return float(self.generation.total_logprob[self.index])

    @property
    def raw_logprob(self) -> float:
        """Log-probability under the model alone, nats."""
        return float(self.generation.raw_total_logprob[self.index])

    @property
    def squeezed(self) -> int:
        """See `Generation.squeezed`."""
        return int(self.generation.squeezed[self.index])

    @property
    def unenforced(self) -> tuple[str, ...]:
        """See `Generation.unenforced`."""
        return self.generation.unenforced[self.index]

    @property
    def _looks_squeezed(self) -> bool:
        """Whether it is worth a walk to know: the row took more than half of its limit, or somebody has asked before."""
        if "squeezed" in self.generation.__dict__:
            return True
        origin = self.generation.origin
        return origin is not None and 2 * len(self.tokens) > int(origin.numbers.limits[self.index])

    def __repr__(self) -> str:
        try:
            said = shown_text(self.text)
        except DecodeError:
            said = f"ids {self.tokens.tolist()}"  # no tokenizer in this process spells it
            said = said if len(said) <= _WIDTH else said[: _WIDTH - 1] + "…"
        numbers = f"{len(self.tokens)} tokens, log-probability {self.logprob:.3f}, raw {self.raw_logprob:.3f}"
        short = f", squeezed by its limit from token {self.squeezed} on" if self._looks_squeezed and self.squeezed >= 0 else ""
        left = f"; not enforced: {', '.join(self.unenforced)}" if self.unenforced else ""
        return f"{self.status.name} {said} ({numbers}{short}{left})"


def shown_text(text: str) -> str:
    """A text in quotes, cut to a line."""
    return repr(text) if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]!r}…"


_STATUSES = {int(status): status for status in Status}


class Written(NamedTuple):
    """What a loop has written.

    Attributes:
      tokens: int32[B, T], -1 after the last one.
      logprobs, raw_logprobs: float32[B, T].
      status: int32[B].
      dropped: bool[B].
    """

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    raw_logprobs: NDArray[np.float32]
    status: NDArray[np.int32]
    dropped: NDArray[np.bool_]


def collect(
    written: Written,
    stop_ids: NDArray[np.int32],
    *,
    single: bool,
    work: Work | None = None,
    origin: Origin | None = None,
) -> Generation:
    """Splits the loop's output into rows.

    Args:
      written: on the host.
      stop_ids: int32[B, E], padded with -1.
      single, origin: see `Generation`.
      work: what it cost; by default one pass per token.
    """
    tokens, logprobs, raw_logprobs, status, dropped = written
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
        origin=origin,
    )


def _split(padded: NDArray[Any], lengths: NDArray[np.intp]) -> list[NDArray[Any]]:
    """The first `lengths` entries int[B] of every row [B, T], copied together."""
    if len(lengths) and (lengths == lengths[0]).all():
        return list(padded[:, : lengths[0]].copy())
    kept = padded[np.arange(padded.shape[1])[None] < lengths[:, None]]
    ends = np.cumsum(lengths).tolist()
    return [kept[lo:hi] for lo, hi in zip([0, *ends], ends)]
