"""`stream`: text as it is generated, and rules that end rows early. The jitted loop is the one of `generate`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fsa_compile.errors import shown
from jax_decode.decoding import loop
from jax_decode.decoding.generate import Way, on_host, prefilled, read_key_words, read_way
from jax_decode.decoding.incremental import RowText
from jax_decode.decoding.inputs import is_listed
from jax_decode.decoding.programs import program, to_host
from jax_decode.decoding.requests import Asked, Request, read_request
from jax_decode.decoding.result import Generation
from jax_decode.decoding.stopping import StoppingRule
from jax_decode.decoding.vocabularies import encodes, spells
from jax_decode.errors import DecodeError, check_function, named_arguments
from jax_decode.kernels.placement import on_automatic_axes
from jax_decode.sampling.samplers import Greedy, Sampler
from jax_decode.step.state import MAX_DEPTH, Status
from jax_decode.tables.tables import ConstraintTables


@runtime_checkable
class TablesNow(Protocol):
    """What has tables that may change: `jax_decode.ConstraintPool`."""

    @property
    def tables(self) -> ConstraintTables: ...


class Piece(NamedTuple):
    """More text of one row.

    Attributes:
      row: index of the row; the samples of prompt i are rows `i * num_samples ...`.
      text: whole characters; may be empty in a row's last piece.
      status: RUNNING, or how the row ended: then this is its last piece.
    """

    row: int
    text: str
    status: Status


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Streamed(Generation):
    """What a stream has generated: `generate`'s rows, cut where a stopping rule ended them.

    Attributes:
      texts: the text of each row, as the pieces spelled it. A cut may lie inside a token: `tokens` then ends before that.
    """

    texts: list[str]

    def text(self, tokenizer: Any = None) -> Any:
        """The texts; no tokenizer is needed. One str when one prompt was given by itself and sampled once."""
        del tokenizer
        return self.texts[0] if self.single else list(self.texts)


@named_arguments
@on_automatic_axes
def stream(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables | TablesNow | None = None,
    *,
    tokenizer: Any,
    max_new_tokens: Any,
    stopping: StoppingRule | Sequence[StoppingRule] = (),
    key: jax.Array | None = None,
    constraint: Any = None,
    sampler: Sampler = Greedy(),  # noqa: B008 (frozen)
    num_samples: int = 1,
    stop_ids: Any = None,
    bos_id: int | bool | None = None,
    max_depth: Any = MAX_DEPTH,
    chunk: int = 8,
    allow_truncation: bool = False,
    raw_logprobs: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Stream:
    """Generates as `generate` does, and hands out the text of every row while it grows.

    Between two chunks the loop returns to the host, which decodes the new tokens and applies the stopping rules; the rows are the
    same as those of `generate`. Arguments are checked, and the prompts fed, before this function returns.

    Args:
      decoder, prompts, max_new_tokens, key, constraint, sampler, num_samples, stop_ids, bos_id, max_depth,
        allow_truncation, raw_logprobs: see `generate`.
      tables: from `to_device`, None, or a `ConstraintPool`, whose constraints may change between two pieces.
      tokenizer: spells the tokens; see `Generation.text`. Special tokens and stop tokens are not text.
      stopping: one rule or several: `StopStrings`, `StopWhen`, `TimeLimit`, or anything like them. The rule that leaves the least
        text counts.
      chunk: tokens per row between two returns to the host. The first piece comes after the first token.
      clock: seconds, for the rules; starts when the prompts have been fed.

    Returns:
      An iterator of `Piece`; its `result` has the rows when it is exhausted, or what there is if it was left early.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.

    Examples:
      >>> for piece in stream(decoder, prompt, tables, tokenizer=tokenizer, max_new_tokens=64, stopping=StopStrings("\\n")):
      ...     print(piece.text, end="", flush=True)
    """
    way = read_way(sampler, num_samples, chunk, raw_logprobs)
    rules: Any = stopping
    output = _Output(tokenizer, tuple(rules) if is_listed(rules) else (rules,), clock)
    asked = Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth, tokenizer if encodes(tokenizer) else None)
    request = read_request(decoder, prompts, _now(tables), asked, least_steps=way.chunk, allow_truncation=allow_truncation)
    words = read_key_words(key, sampler, request, way.num_samples)

    def further(carry: loop.Carry, until: jax.Array) -> loop.Carry:
        return loop.decode(decoder, _now(tables), way.sampler, words, carry, until, chunk=way.chunk, with_raw=way.with_raw)

    return Stream(prefilled(decoder, request, way), further, request, output, way)


def _now(tables: ConstraintTables | TablesNow | None) -> ConstraintTables | None:
    """The tables as they are between two chunks."""
    return tables.tables if isinstance(tables, TablesNow) else tables


@dataclasses.dataclass(frozen=True)
class _Output:
    """What spells the tokens, what ends rows, and the clock; see `stream`."""

    tokenizer: Any
    rules: tuple[StoppingRule, ...]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        for rule in self.rules:
            if not (hasattr(rule, "cut") and hasattr(rule, "held")):
                fix = "Give StopStrings(...), StopWhen(...) or TimeLimit(...)."
                raise DecodeError(f"{shown(rule)} is no stopping rule", fix=fix)
        if not spells(self.tokenizer):
            raise DecodeError("the tokenizer has no 'decode'", fix="Pass the tokenizer that made the prompt's ids.")
        check_function(self.clock, "the clock", "Give a function that returns seconds, or leave it out.")


class Stream:
    """An iterator of `Piece`, made by `stream`.

    Attributes:
      status: how every row stands.
    """

    def __init__(
        self,
        carry: loop.Carry,
        further: Callable[..., loop.Carry],
        request: Request,
        output: _Output,
        way: Way,
    ) -> None:
        self._carry, self._further, self._request = carry, further, request
        self._rules, self._num_samples, self._chunk, self._clock = output.rules, way.num_samples, way.chunk, output.clock
        owners = request.rows(way.num_samples)
        self._stops = [{int(t) for t in request.stop_ids[owner] if t >= 0} for owner in owners]
        self._rows = [RowText(output.tokenizer) for _ in owners]
        self._shown = [0] * len(owners)
        self._cut: list[int | None] = [None] * len(owners)
        self._read = 0
        self._started = output.clock()
        self.status = [Status.RUNNING] * len(owners)
        self._pieces = self._generated()

    def __iter__(self) -> Iterator[Piece]:
        return self

    @on_automatic_axes
    def __next__(self) -> Piece:
        return next(self._pieces)

    @property
    def result(self) -> Streamed:
        """The rows so far, cut where rules ended them; a row that still runs is given as `STOPPED`."""
        made = on_host(self._carry, self._request, self._num_samples)
        fields = {f.name: getattr(made, f.name) for f in dataclasses.fields(Generation)}
        for row, status in enumerate(self.status):
            if status is Status.RUNNING:
                fields = _trimmed(fields, row, self._rows[row].tokens_within(len(self._rows[row].text)))
            elif self._cut[row] is not None:
                fields = _trimmed(fields, row, self._rows[row].tokens_within(self._cut[row] or 0))
        texts = [text.text[: self._cut[row]] for row, text in enumerate(self._rows)]
        return Streamed(**fields | {"padded": _padded(fields["tokens"])}, texts=texts)

    def _generated(self) -> Iterator[Piece]:
        while any(status is Status.RUNNING for status in self.status):
            until = jax.device_put(np.int32(self._read + self._chunk if self._read else 1))
            self._carry = self._further(self._carry, until)
            yield from self._look()

    def _look(self) -> list[Piece]:
        """Reads the tokens of the last chunk, applies the rules, and ends on the device the rows that they end."""
        tokens, status, step = _window(self._carry, jax.device_put(np.int32(self._read)), size=self._chunk)
        tokens, status, step = to_host((tokens, status, step))
        seconds = self._clock() - self._started
        pieces = [
            self._advanced(row, tokens[row], Status(int(status[row])), seconds)
            for row in range(len(self._rows))
            if self.status[row] is Status.RUNNING
        ]
        self._read = int(step)
        if any(piece is not None and piece.status is Status.STOPPED for piece in pieces):
            stopped = np.array([s is Status.STOPPED for s in self.status])
            self._carry = _ended(self._carry, jax.device_put(stopped))
        return [piece for piece in pieces if piece is not None]

    def _advanced(self, row: int, tokens: NDArray[np.int32], status: Status, seconds: float) -> Piece | None:
        """What a row's new tokens add to what can be shown; None for nothing."""
        text = self._rows[row]
        for token in tokens.tolist():
            if token >= 0 and token not in self._stops[row]:
                text.feed(token)
        if status is not Status.RUNNING:
            text.finish()
        cuts = [cut for rule in self._rules if (cut := rule.cut(row, text.text, seconds)) is not None]
        end = len(text.text)
        if cuts:
            cut = max(min(*cuts, end), self._shown[row])
            if status is Status.RUNNING or cut < end:
                status, end, self._cut[row] = Status.STOPPED, cut, cut
        elif status is Status.RUNNING:
            end -= max((rule.held(text.text) for rule in self._rules), default=0)
        start = self._shown[row]
        self._shown[row], self.status[row] = max(start, end), status
        more = text.text[start : self._shown[row]]
        return Piece(row, more, status) if more or status is not Status.RUNNING else None


@program()
def _window(carry: loop.Carry, start: jax.Array, *, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens int32[B, size] from `start` on, the rows' status, and how many tokens there are."""
    tokens = jax.lax.dynamic_slice_in_dim(carry.tokens, start, size, axis=1)
    inside = start + jnp.arange(size, dtype=jnp.int32)[None] < carry.step
    return jnp.where(inside, tokens, -1), carry.rows.status, carry.step


@program(donate=["carry"])
def _ended(carry: loop.Carry, stopped: jax.Array) -> loop.Carry:
    """The carry with rows ended, bool[B]."""
    status = jnp.where(stopped, jnp.int32(Status.STOPPED), carry.rows.status)
    return dataclasses.replace(carry, rows=carry.rows.with_status(status))


def _trimmed(fields: dict[str, Any], row: int, count: int) -> dict[str, Any]:
    """The fields of a `Generation` with only `count` tokens in a row, which was stopped."""
    fields = {name: list(value) if isinstance(value, list) else value for name, value in fields.items()}
    for name in ("tokens", "logprobs", "raw_logprobs"):
        fields[name][row] = fields[name][row][:count]
    fields["status"][row], fields["stop_token"][row] = Status.STOPPED, None
    for name in ("stop_logprobs", "raw_stop_logprobs"):
        fields[name] = np.where(np.arange(len(fields[name])) == row, np.float32(0), fields[name])
    return fields


def _padded(tokens: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    out = np.full((len(tokens), max(1, *map(len, tokens))), -1, np.int32)
    for row, ids in enumerate(tokens):
        out[row, : len(ids)] = ids
    return out
