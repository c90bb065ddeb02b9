"""What the user asks of any kind of decoding, checked and as arrays: prompts, constraints, limits and what follows of them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding import inputs, vocabularies
from jax_decode.decoding.inputs import MOST_LISTED
from jax_decode.decoding.programs import check_memory, program
from jax_decode.errors import DecodeError, checked_flag, is_whole, shown
from jax_decode.kernels.placement import put_rows
from jax_decode.step.packing import PackedState, packed
from jax_decode.step.state import MAX_DEPTH, ConstraintState, init_state, unconstrained_state
from jax_decode.tables.tables import ConstraintTables


class Asked(NamedTuple):
    """Arguments that `generate` has in common with its relatives, as they were given; see there."""

    max_new_tokens: Any
    constraint: Any = None
    stop_ids: Any = None
    bos_id: int | bool | None = None
    max_depth: Any = MAX_DEPTH
    tokenizer: Any = None


@functools.partial(jax.tree_util.register_dataclass, data_fields=["tokens", "lengths"], meta_fields=["cache_length"])
@dataclasses.dataclass(frozen=True)
class PromptBatch:
    """Prompts as the programs take them.

    Attributes:
      tokens: int32[P, L], right padded.
      lengths: int32[P], at least 1.
      cache_length: static, slots of the cache.
    """

    tokens: Any
    lengths: Any
    cache_length: int


class Numbers(NamedTuple):
    """Of every row: which: index of its constraint; limits; stop_ids [B, E]; depths. int32[B], see `Request`."""

    which: Any
    limits: Any
    stop_ids: Any
    depths: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Checked arguments.

    Attributes:
      tables: the constraints, or None.
      prompts: as an array.
      which: int32[P], index of each prompt's constraint, -1 for none.
      limits: int32[P], most new tokens.
      stop_ids: int32[P, E], padded with -1.
      depths: int32[P], most stack cells.
      steps: the largest limit, in buckets.
      cache_length: slots of the cache, the bucket of prompt and limit together.
      vocab_size: columns of the model's logits.
      fingerprint: of the vocabulary, "" where it is not known.
    """

    tables: ConstraintTables | None
    prompts: inputs.Prompts
    which: NDArray[np.int32]
    limits: NDArray[np.int32]
    stop_ids: NDArray[np.int32]
    depths: NDArray[np.int32]
    steps: int
    cache_length: int
    vocab_size: int
    fingerprint: str = ""

    @property
    def num_prompts(self) -> int:
        """P."""
        return len(self.which)

    @property
    def most(self) -> int:
        """The largest limit."""
        return int(self.limits.max())

    def rows(self, each: int) -> NDArray[np.intp]:
        """The prompt of every row, with `each` rows per prompt together."""
        return np.repeat(np.arange(self.num_prompts), each)

    def numbers(self, each: int) -> Numbers:
        """What the first state is made of, with `each` rows per prompt.

        Raises:
          DecodeError: of `check_rows`.
        """
        check_rows(each * self.num_prompts, self.vocab_size)
        rows = self.rows(each)
        return Numbers(self.which[rows], self.limits[rows], self.stop_ids[rows], self.depths[rows])

    def joined(self) -> NDArray[np.int32]:
        """`numbers(1)` and prompts in one array, int32[P, 4 + E + L]: transfers cost by the piece. `parted` is the inverse."""
        which, limits, stops, depths = self.numbers(1)
        few = np.stack([which, limits, depths, self.prompts.lengths], 1)
        return np.concatenate([few, stops, self.prompts.tokens], 1)

    def batch(self) -> PromptBatch:
        """The prompts on the device."""
        tokens, lengths = put_rows((self.prompts.tokens, self.prompts.lengths))
        return PromptBatch(tokens, lengths, self.cache_length)

    def first_state(self, each: int) -> ConstraintState:
        """The state of every row before its first token, on the device."""
        return _first_state(self.tables, put_rows(self.numbers(each)), steps=self.steps)

    def first_rows(self, each: int) -> PackedState:
        """The same as the decode loop carries it."""
        return _first_rows(self.tables, put_rows(self.numbers(each)), steps=self.steps)


def read_request(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables | None,
    asked: Asked,
    *,
    least_steps: int,
    allow_truncation: bool,
) -> Request:
    """Checks what `generate` and its relatives have in common; for the arguments see there.

    Args:
      decoder, prompts, tables, asked, allow_truncation: as given.
      least_steps: the least bucket of limits.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.
    """
    vocab_size = inputs.check_decoder(decoder, tables)
    vocabularies.check_tokenizer(asked.tokenizer, tables)
    vocabularies.check_model(decoder, tables)
    given = inputs.read_prompts(prompts, vocab_size, asked.bos_id, asked.tokenizer, tables)
    num_prompts = len(given.lengths)
    which = inputs.read_constraints(asked.constraint, tables, num_prompts)
    limits = inputs.read_limits(asked.max_new_tokens, num_prompts)
    given_stops = asked.stop_ids
    if given_stops is None and tables is None and asked.tokenizer is not None:
        given_stops = list(getattr(getattr(asked.tokenizer, "vocabulary", None), "stop_ids", ())) or None
    stops = inputs.read_stop_ids(given_stops, tables, which, vocab_size)
    depths = inputs.read_depths(asked.max_depth, num_prompts)
    if tables is not None:
        inputs.check_depth(tables, which, depths)
        if not checked_flag(allow_truncation, "allow_truncation"):
            inputs.check_budget(tables, which, limits)
    steps = inputs.bucket(int(limits.max()), least=least_steps)
    return Request(
        tables=tables,
        prompts=given,
        which=which,
        limits=limits,
        stop_ids=stops,
        depths=depths,
        steps=steps,
        cache_length=_cache_length(decoder, given, limits, steps),
        vocab_size=vocab_size,
        fingerprint=vocabularies.fingerprint_of(asked.tokenizer) if tables is None else tables.fingerprint,
    )


def check_rows(rows: int, vocab_size: int) -> None:
    """Raises `DecodeError` for more rows than the devices have memory for the logits of a single step."""
    what = f"a step's logits of {rows:,} rows over {vocab_size:,} ids take"
    check_memory(4 * rows * vocab_size, what, "Ask for fewer rows, prompts or samples at once.")


def check_places(rows: int, ids: int, what: str) -> None:
    """Raises `DecodeError` where 32 bits do not number the ids of all rows, which errors call `what`."""
    if rows * ids >> 31:
        fix = f"Use {((1 << 31) - 1) // ids:,} {what} at most."
        raise DecodeError(f"{rows:,} {what} over {ids:,} ids are more places than a program can number", fix=fix)


def read_positive(value: Any, what: str, most: int = MOST_LISTED) -> int:
    """A whole number from 1 to `most`; else raises `DecodeError`."""
    if not is_whole(value, 1, most):
        upto = f"from 1 to {most:,}" if is_whole(value, 1) else "of at least 1"
        raise DecodeError(f"{what} is {shown(value)}", fix=f"Give a whole number {upto}.")
    return int(value)


def parted(joined: jax.Array, num_stops: int) -> tuple[Numbers, jax.Array, jax.Array]:
    """What `Request.joined` is made of: numbers, prompts int32[P, L], and their lengths int32[P]; `num_stops`: static, E."""
    which, limits, depths, lengths = (joined[:, i] for i in range(4))
    return Numbers(which, limits, joined[:, 4 : 4 + num_stops], depths), joined[:, 4 + num_stops :], lengths


def first_state(tables: ConstraintTables | None, numbers: Numbers, steps: int) -> ConstraintState:
    """The state of every row before its first token, inside and outside `jax.jit`; `steps`: static, see `Request`."""
    if tables is None:
        return unconstrained_state(numbers.limits, numbers.stop_ids)
    which, limits, stops, depths = numbers
    return init_state(tables, which, limits, stops, max_depth=depths, max_tokens=steps)


@program()
def _first_state(tables: ConstraintTables | None, numbers: Numbers, *, steps: int) -> ConstraintState:
    return first_state(tables, numbers, steps)


@program()
def _first_rows(tables: ConstraintTables | None, numbers: Numbers, *, steps: int) -> PackedState:
    return packed(first_state(tables, numbers, steps))


def _cache_length(decoder: Any, given: inputs.Prompts, limits: Any, steps: int) -> int:
    """Slots of the cache, in buckets too: the turns of a chat then share programs. Never more than the decoder can serve."""
    check_positions(decoder, given, limits, "model")
    return slots(decoder, inputs.bucket(given.tokens.shape[1] + steps))


def slots(decoder: Any, length: int) -> int:
    """At most `length`, and no more than the decoder can serve."""
    most = getattr(decoder, "max_length", None)
    return length if most is None else min(length, most)


def check_positions(decoder: Any, given: inputs.Prompts, limits: Any, what: str) -> None:
    """Raises `DecodeError` naming a prompt for whose longest text a decoder has too few positions."""
    most = getattr(decoder, "max_length", None)
    if most is None:
        return
    bad = np.flatnonzero(given.lengths + limits > most)
    if len(bad):
        i = int(bad[0])
        raise DecodeError(
            f"{given.lengths[i]} prompt tokens and {limits[i]} new ones do not fit the {what}'s {most} positions",
            where=f"prompt {i}",
            fix="Shorten the prompt or lower max_new_tokens.",
        )
