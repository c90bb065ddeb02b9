"""`Engine`: continuous batching around one jitted loop. Requests enter and leave between turns of several steps.

Small on purpose: one cache of fixed length per row, one sampler for all requests, first come, first served. What a server adds
(pages of the cache, priorities, transport) is not here.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fsa_compile.errors import named_fields, shown
from jax_decode.decoding import inputs
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Numbers, check_rows, read_positive
from jax_decode.errors import DecodeError, PoolFullError, is_whole
from jax_decode.sampling.samplers import Greedy, Sampler, check_sampler, prepared
from jax_decode.serving import turns
from jax_decode.serving.pool import ConstraintPool
from jax_decode.step.state import MAX_DEPTH, Status

_MOST_PROGRAMS = 64
"""Most programs for long prompts, beside those for powers of two: all are compiled ahead."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """What became of one sample of a request.

    Attributes:
      request: what `submit` returned; sample: its number among the request's samples.
      tokens: the text, without the stop token.
      status: how it ended: `Status.STOPPED` where it was cancelled.
    """

    request: int
    sample: int
    tokens: list[int]
    status: Status


@dataclasses.dataclass(frozen=True)
class _Request:
    number: int
    prompt: list[int]
    constraint: Any
    limit: int
    stops: tuple[int, ...]
    seed: int
    samples: int


@dataclasses.dataclass
class _Row:
    """A row in use: its request, sample and slot, what it has written, and whether it was cancelled."""

    request: _Request
    sample: int
    slot: int
    tokens: list[int] = dataclasses.field(default_factory=list)
    cancelled: bool = False


@named_fields
class Engine:
    """Decodes requests that come and go, each inside its own constraint, in one batch of rows.

    Between two turns of the loop requests enter free rows: their prompts are fed together, and their constraints are written into
    the pool in place. Programs depend on the sizes given here alone. A row's tokens are those of
    `generate(decoder, prompt, tables, key=jax.random.key(seed))`, whoever its neighbours are.

    Args:
      decoder: the model, see `Decoder`.
      pool: the constraints' tables; None for an engine without constraints.
      rows: B, requests that decode at once.
      max_prompt: longest prompt in tokens, in buckets.
      max_new_tokens: most new tokens of a request, its stop token included.
      sampler: of all requests.
      steps: tokens per row in one turn.
      together: most samples that enter between two turns.
      stop_ids: end-of-text ids of requests that name none; by default those of the pool's vocabulary.
      max_depth: most stack cells of a row.

    Raises:
      DecodeError: an argument is wrong; says which, and what to do.

    Examples:
      >>> engine = Engine(decoder, ConstraintPool(tokenizer), rows=8, max_prompt=32, max_new_tokens=64)
      >>> number = engine.submit(tokenizer.encode("A person: "), constraint)
      >>> texts = [tokenizer.decode(done.tokens) for done in engine.run()]
    """

    def __init__(
        self,
        decoder: Any,
        pool: ConstraintPool | None,
        *,
        rows: int,
        max_prompt: int,
        max_new_tokens: int,
        sampler: Sampler = Greedy(),  # noqa: B008 (frozen)
        steps: int = 8,
        together: int = 4,
        stop_ids: Sequence[int] | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        check_sampler(sampler)
        if pool is not None and not isinstance(pool, ConstraintPool):
            raise DecodeError(f"the pool is a {type(pool).__name__}", fix="Pass a ConstraintPool, or None for free texts only.")
        size = inputs.check_decoder(decoder, None if pool is None else pool.tables)
        self.decoder, self.pool = decoder, pool
        self._ids = size, size if pool is None else pool.tables.vocab_size
        self._count, self._steps = read_positive(rows, "rows"), read_positive(steps, "steps")
        check_rows(self._count, size)
        self._together = min(read_positive(together, "together"), self._count)
        longest = read_positive(max_prompt, "max_prompt")
        self._linear = 256 * -(-longest // (256 * _MOST_PROGRAMS))
        self._longest = self._bucket(longest)
        if not is_whole(max_depth, 0):
            raise DecodeError(f"max_depth is {shown(max_depth)}", fix="Give a whole number of stack cells.")
        self._limit, self._depth = read_positive(max_new_tokens, "max_new_tokens"), int(max_depth)
        self._sampler = jax.device_put(prepared(sampler))
        own = () if pool is None else tuple(int(t) for t in pool.stop_ids)
        self._stops = own if stop_ids is None else self._read_stops(stop_ids)
        self._num_stops = max(len(self._stops), len(own), 1)
        most = getattr(decoder, "max_length", None)
        length = self._longest + self._limit
        self._room = turns.Room(length if most is None else min(length, most), self._limit)
        self._waiting = collections.deque[_Request]()
        self._rows: list[_Row | None] = [None] * self._count
        self._finished = list[Finished]()
        self._next = 0
        self._device = turns.no_rows(decoder, self._tables(), count=self._count, num_stops=self._num_stops, room=self._room)
        for length in self._warm_lengths():
            self._warm(length)
        self._out: tuple[jax.Array, list[_Row | None]] | None = None

    def submit(
        self,
        prompt: Sequence[int],
        constraint: Any = None,
        *,
        max_new_tokens: int | None = None,
        stop_ids: Sequence[int] | None = None,
        seed: int = 0,
        samples: int = 1,
    ) -> int:
        """Queues a request; its number.

        Args:
          prompt: token ids.
          constraint: a `CompiledConstraint`, or None for free text.
          max_new_tokens: most new tokens; by default the engine's.
          stop_ids: end-of-text ids, by default the engine's; of constrained requests their constraint's.
          seed: of the draws.
          samples: rows that share the prompt, which is fed once.

        Raises:
          DecodeError: an argument is wrong, the constraint can never enter the pool, or its shortest text is beyond the limit.
        """
        limit = self._limit if max_new_tokens is None else read_positive(max_new_tokens, "max_new_tokens")
        tokens = inputs.read_ids(prompt, self._ids[0], "prompt", "Give the token ids of one prompt: tokenizer.encode(text).")
        if not 0 < len(tokens) <= self._longest or limit > self._limit or len(tokens) + limit > self._room.cache_length:
            what = f"{len(tokens)} prompt tokens and {limit} new ones do not fit the engine's {self._longest} and {self._limit}"
            raise DecodeError(what, fix="Give at least one prompt token, and make the engine with larger limits.")
        if not is_whole(samples, 1, self._together):
            raise DecodeError(f"{shown(samples)} samples of one request", fix=f"Give 1 to {self._together}; see together=.")
        if not is_whole(seed, -(1 << 63), (1 << 63) - 1):
            raise DecodeError(f"the seed is {shown(seed)}", fix="Give a whole number, as to jax.random.key.")
        stops = self._stops if stop_ids is None else self._read_stops(stop_ids)
        if constraint is not None:
            stops = self._checked(constraint, limit)
        if len(stops) > self._num_stops:
            what = f"the request has {len(stops)} end-of-text ids, the engine's rows have room for {self._num_stops}"
            raise DecodeError(what, fix="Make the engine with as many stop_ids.")
        self._next += 1
        self._waiting.append(_Request(self._next, tokens, constraint, limit, stops, int(seed), int(samples)))
        return self._next

    def _read_stops(self, stop_ids: Any) -> tuple[int, ...]:
        return tuple(dict.fromkeys(inputs.read_ids(stop_ids, self._ids[1], "stop_ids", "Give a list of end-of-text ids.")))

    def _checked(self, constraint: Any, limit: int) -> tuple[int, ...]:
        """The end-of-text ids of a constraint that can be carried out."""
        if self.pool is None:
            raise DecodeError("the engine has no pool of constraints", fix="Make it with Engine(decoder, ConstraintPool(...)).")
        self.pool.check(constraint)
        if constraint.shortest_completion > limit or constraint.shortest_depth > self._depth:
            what = (
                f"the constraint's shortest text takes {constraint.shortest_completion} tokens and "
                f"{constraint.shortest_depth} stack cells"
            )
            raise DecodeError(
                what, where=f"limits {limit} and {self._depth}", fix="Raise max_new_tokens, or the engine's limits."
            )
        return tuple(int(t) for t in constraint.stop_ids)

    def cancel(self, number: int) -> None:
        """Ends a request wherever it is; what it has written so far is among the next finished ones. Others are ignored.

        Args:
          number: what `submit` returned.

        Raises:
          DecodeError: it is no whole number.
        """
        if not is_whole(number, 0):
            raise DecodeError(f"the request is {shown(number)}", fix="Give the number that submit(...) returned.")
        for request in [r for r in self._waiting if r.number == number]:
            self._waiting.remove(request)
            self._finished += [
                Finished(request=number, sample=i, tokens=[], status=Status.STOPPED) for i in range(request.samples)
            ]
        ended = np.zeros(self._count, bool)
        for i, row in enumerate(self._rows):
            if row is not None and row.request.number == number:
                ended[i] = row.cancelled = True
        if ended.any():
            self._device = turns.end_rows(self._device, ended)
            if self._out is None:  # otherwise after the tokens of the turn that is on its way
                self._release()

    def _warm_lengths(self) -> list[int]:
        """The buckets of prompts; the first twice, because what a program returns is bound to its device and may be another
        kind of argument."""
        buckets, length = list[int](), 1
        while length <= self._longest:
            buckets.append(self._bucket(length))
            length = buckets[-1] + 1
        return [buckets[0], *buckets]

    def _bucket(self, length: int) -> int:
        """What the prompts of a program are padded to."""
        return inputs.bucket(length, linear=self._linear)

    def _warm(self, length: int) -> None:
        """Compiles what a prompt of this length needs, by letting nothing enter."""
        self._device = turns.enter(self.decoder, self._tables(), self._device, self._entering([], [], length), room=self._room)
        self._device, _ = turns.turn(self.decoder, self._tables(), self._sampler, self._device, steps=self._steps)
        self._device = turns.end_rows(self._device, np.zeros(self._count, bool))

    @property
    def pending(self) -> int:
        """Samples that wait or decode."""
        return sum(r.samples for r in self._waiting) + sum(row is not None for row in self._rows)

    def turn(self) -> list[Finished]:
        """Lets requests enter, starts the next steps, and meanwhile reads those of the turn before.

        Returns:
          The samples known to have finished since.
        """
        self._enter()
        busy = any(row is not None for row in self._rows)
        started = None
        if busy:
            self._device, out = turns.turn(self.decoder, self._tables(), self._sampler, self._device, steps=self._steps)
            started = out, list(self._rows)
        self._read()
        self._out = started
        done, self._finished = self._finished, []
        return done

    def run(self) -> list[Finished]:
        """Turns until nothing waits or decodes; everything that has finished."""
        done = self.turn()
        while self.pending:
            done += self.turn()
        return done

    def _tables(self) -> Any:
        return None if self.pool is None else self.pool.tables

    def _enter(self) -> None:
        """Feeds the prompts of the requests that have room, up to `together` samples."""
        free = [i for i, row in enumerate(self._rows) if row is None]
        new = list[tuple[_Request, int]]()
        while self._waiting and len(new) + self._waiting[0].samples <= min(self._together, len(free)):
            slot = self._slot(self._waiting[0], waits=bool(new) or any(row is not None and row.slot >= 0 for row in self._rows))
            if slot is None:
                break
            request = self._waiting.popleft()
            new += [(request, slot)] * request.samples
        if not new:
            return
        length = self._bucket(max(len(request.prompt) for request, _ in new))
        entering = self._entering(new, free, length)
        self._device = turns.enter(self.decoder, self._tables(), self._device, entering, room=self._room)
        for place, (request, slot), sample in zip(free, new, entering.samples.tolist()):
            self._rows[place] = _Row(request, sample, slot)

    def _slot(self, request: _Request, waits: bool) -> int | None:
        """The slot of a request's constraint, used once for every sample; -1 for none, None where it has to wait.

        Args:
          request: the next one.
          waits: whether it may wait in a full pool: for rows that end and make room, or until those before it have entered.

        Raises:
          PoolFullError: the pool is full, and the request may not wait.
        """
        if request.constraint is None or self.pool is None:
            return -1
        try:
            slot = self.pool.add(request.constraint)
        except PoolFullError:
            if waits:
                return None
            raise
        for _ in range(request.samples - 1):
            self.pool.add(request.constraint)
        return slot

    def _entering(self, new: list[tuple[_Request, int]], free: list[int], length: int) -> turns.Entering:
        """The arrays of requests that enter; as many as may, so that there is one program for each bucket of prompts."""
        count = self._together
        tokens, lengths = np.zeros((count, length), np.int32), np.zeros(count, np.int32)
        rows, owner = np.full(count, self._count, np.int32), np.arange(count, dtype=np.int32)
        seeds, samples = np.zeros(count, jax.dtypes.canonicalize_dtype(np.int64)), np.zeros(count, np.uint32)
        which, limits, depths = (np.full(count, x, np.int32) for x in (-1, 1, self._depth))
        stops = np.full((count, self._num_stops), -1, np.int32)
        for i, (request, slot) in enumerate(new):
            rows[i], which[i], limits[i] = free[i], slot, request.limit
            seeds[i] = np.int64(request.seed).astype(seeds.dtype)  # without 64 bits its lower half, as in `jax.random.key`
            stops[i, : len(request.stops)] = request.stops
            if i and new[i - 1][0] is request:
                owner[i], samples[i] = owner[i - 1], samples[i - 1] + 1
            else:
                tokens[i, : len(request.prompt)], lengths[i] = request.prompt, len(request.prompt)
        return turns.Entering(tokens, lengths, rows, owner, seeds, samples, Numbers(which, limits, stops, depths))

    def _read(self) -> None:
        """Takes in what the turn before has written."""
        if self._out is None:
            return
        out: NDArray[np.int32] = to_host(self._out[0])
        rows, self._out = self._out[1], None
        for i, row in enumerate(rows):
            if row is None or self._rows[i] is not row:
                continue
            row.tokens += [t for t in out[:-1, i].tolist() if t >= 0]
            if not row.cancelled and (status := Status(int(out[-1, i]))) is not Status.RUNNING:
                self._end(i, row, status)
        self._release()

    def _release(self) -> None:
        """Frees the rows of cancelled requests."""
        for i, row in enumerate(self._rows):
            if row is not None and row.cancelled:
                self._end(i, row, Status.STOPPED)

    def _end(self, place: int, row: _Row, status: Status) -> None:
        tokens = row.tokens
        if tokens and tokens[-1] in row.request.stops:  # of a cancelled row, too, which may have ended by itself meanwhile
            tokens = tokens[:-1]
        done = Finished(request=row.request.number, sample=row.sample, tokens=tokens, status=status)
        self._finished.append(done)
        self._rows[place] = None
        if row.slot >= 0 and self.pool is not None:
            self.pool.remove(row.slot)
