"""The jitted loop that feeds the model blocks instead of single tokens: forced runs, and drafts that are verified.

One turn of the loop: drafts extend every row's text by as many tokens as its constraint, its budget and the block's width let
it; the model reads all that it has not seen as one ragged block; each row keeps the drafts that stand, takes one more token,
and whatever that one forces. Rows are at different places of their texts all the time, and none waits for another.

A row's masks are made once, while drafting; the target's distributions use the same ones. Taking drafts back costs a few
numbers per row: the constraint's `position`, and the lengths of both caches.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.decoder import Decoder
from jax_decode.drafts import Draft, ModelDraft, look_up
from jax_decode.forced import Forced, advance_some, take_run
from jax_decode.forking import fork_cache
from jax_decode.history import read_block, write
from jax_decode.loop import Carry, check_logits
from jax_decode.masking import allows, mask_parts, parts_at
from jax_decode.planes import clean, log_sum
from jax_decode.samplers import Greedy, Sampler
from jax_decode.sampling import among, choose
from jax_decode.state import ConstraintState, Position
from jax_decode.tables import ConstraintTables, words_for
from jax_decode.transition import advance
from jax_decode.verification import Drafted, Verdict, by_rejection, by_same_draw, draft_key, drawn_logprob, scores_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """Of every row, int32[B]: passes of the target and of the draft model, tokens drafted (without forced ones) and accepted,
    tokens forced."""

    target_passes: jax.Array
    draft_passes: jax.Array
    drafted: jax.Array
    accepted: jax.Array
    forced: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """What one turn hands to the next.

    Attributes:
      cache, draft_cache: the decoders' caches; the latter None without a draft model.
      state: after the text so far.
      tokens: int32[B, H], prompts and texts; what lies at `end` and beyond is no longer, or not yet, text.
      logprobs, raw_logprobs: float32[B, H], of the tokens at these places.
      start: int32[B], length of the prompt.
      end: int32[B], length of prompt and text.
      fed, draft_fed: int32[B], how much of that is in the caches.
      counts: work so far.
    """

    cache: Any
    draft_cache: Any
    state: ConstraintState
    tokens: jax.Array
    logprobs: jax.Array
    raw_logprobs: jax.Array
    start: jax.Array
    end: jax.Array
    fed: jax.Array
    draft_fed: jax.Array
    counts: Counts


for _class in (Counts, Progress):
    _names = [f.name for f in dataclasses.fields(_class)]
    jax.tree_util.register_dataclass(_class, data_fields=_names, meta_fields=[])


class Decisions(NamedTuple):
    """The positions at which something was drafted, and the next one after them, [R + 1, B, ...]. Places past the last of a row
    repeat it.

    before: the state's position there; at: int32, the place in the text; words, token, allowed: the mask's parts (None without
    tables); drafts: int32[R, B], -1 for none; logprobs, logits: of the draft model, [R, B, ...], None where not needed.
    """

    before: Position
    at: jax.Array
    words: Any
    token: Any
    allowed: Any
    drafts: jax.Array
    logprobs: Any
    logits: Any


@functools.partial(jax.jit, static_argnames=("forced", "num_samples", "cache_length", "capacity"))
def begin(
    tables: ConstraintTables | None,
    draft: Draft | None,
    carry: Carry,
    prompts: jax.Array,
    lengths: jax.Array,
    *,
    forced: Forced | None,
    num_samples: int,
    cache_length: int,
    capacity: int,
) -> Progress:
    """The progress after `loop.prefill`: the first token's forced run, and the draft model's prefill.

    Args:
      tables, prompts, lengths, num_samples, cache_length: as `prefill` had them.
      draft: from `drafts.read_draft`.
      carry: what `prefill` returned.
      forced: from `forced.read_forced`.
      capacity: T, tokens the texts can hold.
    """
    rows = jnp.repeat(jnp.arange(len(lengths), dtype=jnp.int32), num_samples)
    tokens = jnp.pad(prompts[rows], ((0, 0), (0, capacity)))
    start, first = lengths[rows], carry.tokens[:, 0]
    taken = first >= 0
    empty = jnp.zeros(tokens.shape, jnp.float32)
    tokens = write(tokens, start, first, taken)
    one = start + taken.astype(jnp.int32)
    state, tokens, end = take_run(forced, tables, carry.state, tokens, one, jnp.full_like(one, capacity))
    draft_cache = None
    if isinstance(draft, ModelDraft):
        draft_cache = draft.decoder.init_cache(len(lengths), cache_length)
        _, draft_cache = draft.decoder.apply(prompts, draft_cache, lengths, last_only=True)
        if num_samples > 1:
            draft_cache = fork_cache(draft.decoder, draft_cache, rows, length=cache_length)
    zero = jnp.zeros_like(start)
    return Progress(
        cache=carry.cache,
        draft_cache=draft_cache,
        state=state,
        tokens=tokens,
        logprobs=write(empty, start, carry.logprobs[:, 0], taken),
        raw_logprobs=write(empty, start, carry.raw_logprobs[:, 0], taken),
        start=start,
        end=end,
        fed=start,
        draft_fed=start,
        counts=Counts(target_passes=zero + 1, draft_passes=zero, drafted=zero, accepted=zero, forced=end - one),
    )


@functools.partial(jax.jit, static_argnames=("forced", "most_drafts", "with_raw"), donate_argnames=("progress",))
def proceed(
    decoder: Decoder,
    tables: ConstraintTables | None,
    draft: Draft | None,
    sampler: Sampler,
    keys: jax.Array,
    progress: Progress,
    until: jax.Array,
    *,
    forced: Forced | None,
    most_drafts: int,
    with_raw: bool,
) -> Progress:
    """Decodes until every row is done or has at least `until` int32[] tokens.

    Args:
      decoder, tables, draft, sampler, keys: as before.
      progress: donated.
      until: tokens of a row's text.
      forced: from `forced.read_forced`.
      most_drafts: R, the bucket of the draft's length, 0 without drafts.
      with_raw: whether the log-probabilities over all logits are wanted. Rows that end in a forced run are then fed once more.
    """
    window = Window(decoder, tables, draft, sampler, keys, forced, most_drafts, with_raw and tables is not None)

    def going(p: Progress) -> jax.Array:
        return ((p.state.running & (p.end - p.start < until)) | window.unscored(p)).any()

    return jax.lax.while_loop(going, window.turn, progress)


@dataclasses.dataclass(frozen=True)
class Window:
    """One turn of the loop, and what stays the same from turn to turn; see `proceed`."""

    decoder: Decoder
    tables: ConstraintTables | None
    draft: Draft | None
    sampler: Sampler
    keys: jax.Array
    forced: Forced | None
    most_drafts: int
    with_raw: bool

    @property
    def run(self) -> int:
        """Longest forced run."""
        return 0 if self.forced is None or self.tables is None else self.forced.length

    @property
    def width(self) -> int:
        """Tokens of a block: the last token and what it forced, then drafts and what they force."""
        return 1 + self.run + self.most_drafts

    @property
    def rejects(self) -> bool:
        """Whether drafts are kept or not by rejection sampling."""
        return isinstance(self.draft, ModelDraft) and not self.draft.same_noise and not isinstance(self.sampler, Greedy)

    def unscored(self, p: Progress) -> jax.Array:
        """Rows that have ended in a forced run whose logits nobody has seen, bool[B]."""
        return ~p.state.running & (p.end - 1 > p.fed) & self.with_raw

    def turn(self, p: Progress) -> Progress:
        """Drafts, feeds, verifies, goes on."""
        p, state, decisions, end = self._drafted(p)
        logits, cache = self._fed(p, end)
        verdict = self._verdict(p, logits, decisions)
        at = _place(decisions.at, verdict.kept)
        before = jax.tree.map(lambda field: _place(field, verdict.kept), decisions.before)
        state = state.rewound(before)
        taken = state.running & (verdict.token >= 0)
        after = advance(self.tables, state, verdict.token)
        tokens = write(p.tokens, at, verdict.token, taken)
        one = at + taken.astype(jnp.int32)
        room = jnp.full_like(one, self.run)
        after, tokens, end = take_run(self.forced, self.tables, after, tokens, one, room)
        reads = p.state.running | self.unscored(p)
        fed = jnp.where(reads, at, p.fed)
        draft_cache, draft_fed = p.draft_cache, jnp.minimum(p.draft_fed, fed)
        if self.most_drafts:
            cache = self.decoder.rewind(cache, fed)
        if isinstance(self.draft, ModelDraft):
            draft_cache = self.draft.decoder.rewind(draft_cache, draft_fed)
        counts = dataclasses.replace(
            p.counts,
            drafted=p.counts.drafted + (decisions.drafts >= 0).sum(0, dtype=jnp.int32),
            accepted=p.counts.accepted + verdict.kept,
            forced=p.counts.forced + (at - p.end - verdict.kept) + (end - one),
            target_passes=p.counts.target_passes + reads.astype(jnp.int32),
        )
        logprobs, raw_logprobs = self._logprobs(p, decisions, verdict, taken), p.raw_logprobs
        if self.with_raw:
            raw_logprobs = self._raw_logprobs(p, tokens, logits, one)
        return Progress(
            cache=cache,
            draft_cache=draft_cache,
            state=after,
            tokens=tokens,
            logprobs=logprobs,
            raw_logprobs=raw_logprobs,
            start=p.start,
            end=end,
            fed=fed,
            draft_fed=draft_fed,
            counts=counts,
        )

    # Drafting.

    def _drafted(self, p: Progress) -> tuple[Progress, ConstraintState, Decisions, jax.Array]:
        """The progress with drafts in its texts and the draft's cache, the state and the texts' ends after them."""
        decisions = self._no_decisions(p)
        carry = (p, p.state, decisions, p.end)
        if self.draft is not None:
            # What the draft has not seen: the last draft, the token after it, and what both forced.
            carry = self._draft_one(jnp.int32(0), carry, 2 + 2 * self.run)
            more = functools.partial(self._draft_one, width=1 + self.run)
            carry = jax.lax.fori_loop(1, self.draft.length, more, carry)
        p, state, decisions, end = carry
        last = jnp.int32(0) if self.draft is None else self.draft.length
        return p, state, self._noted(decisions, last, state, end), end

    def _draft_one(self, i: jax.Array, carry: Any, width: int) -> Any:
        """Drafts one token in every row that can take one, and what it forces."""
        p, state, decisions, end = carry
        assert self.draft is not None
        decisions = self._noted(decisions, i, state, end)
        parts = None
        if self.tables is not None and self.draft.share_penalties:
            parts = parts_at(decisions.words[i], decisions.token[i], decisions.allowed[i])
        goes = state.running & (end - p.fed < self.width)
        if isinstance(self.draft, ModelDraft):
            block = read_block(p.tokens, p.draft_fed, width)
            lengths = jnp.where(goes, end - p.draft_fed, 0)
            logits, cache = self.draft.decoder.apply(block, p.draft_cache, lengths, last_only=True)
            check_logits(logits, self.draft.decoder.vocab_size)
            counts = dataclasses.replace(p.counts, draft_passes=p.counts.draft_passes + goes.astype(jnp.int32))
            p = dataclasses.replace(p, draft_cache=cache, draft_fed=p.draft_fed + lengths, counts=counts)
            token, decisions = self._draw(i, p, end, logits[:, -1], parts, decisions)
        else:
            token = look_up(p.tokens, end, self.draft.ngram)
            if parts is not None:
                token = jnp.where(allows(parts, token, self.num_words), token, -1)
        goes &= token >= 0
        decisions = decisions._replace(drafts=decisions.drafts.at[i].set(jnp.where(goes, token, -1)))
        state = advance_some(self.tables, state, token, goes)
        tokens, end = write(p.tokens, end, token, goes), end + goes.astype(jnp.int32)
        if self.draft.share_penalties:
            room = jnp.where(goes, self.width - (end - p.fed), 0)
            state, tokens, end = take_run(self.forced, self.tables, state, tokens, end, room)
        return dataclasses.replace(p, tokens=tokens), state, decisions, end

    def _draw(
        self, i: jax.Array, p: Progress, end: jax.Array, logits: jax.Array, parts: Any, decisions: Decisions
    ) -> tuple[jax.Array, Decisions]:
        """What the draft model draws, and the decisions with what rejection must know of it."""
        num_words = words_for(logits.shape[1]) if parts is None else self.num_words
        allowed = among(logits, parts, num_words)
        key = draft_key(self.keys) if self.rejects else self.keys
        token = choose(self.sampler, allowed, key, (end - p.start).astype(jnp.uint32), with_raw=False).token
        if self.rejects:
            own = drawn_logprob(self.sampler, allowed, scores_of(self.sampler, allowed), parts, token)
            decisions = decisions._replace(
                logprobs=decisions.logprobs.at[i].set(own), logits=decisions.logits.at[i].set(logits)
            )
        return token, decisions

    def _noted(self, decisions: Decisions, i: jax.Array, state: ConstraintState, end: jax.Array) -> Decisions:
        """The decisions with the next one at place `i`."""

        def at_place(room: Any, value: Any) -> Any:
            return room.at[i].set(value)

        if self.tables is not None:
            kept = (decisions.words, decisions.token, decisions.allowed)
            words, token, allowed = map(at_place, kept, _mask_arrays(self.tables, state))
            decisions = decisions._replace(words=words, token=token, allowed=allowed)
        before = jax.tree.map(at_place, decisions.before, state.position)
        return decisions._replace(before=before, at=at_place(decisions.at, end))

    @property
    def num_words(self) -> int:
        """W of the target's masks."""
        return words_for(self.decoder.vocab_size) if self.tables is None else self.tables.num_words

    def _no_decisions(self, p: Progress) -> Decisions:
        """Room for R + 1 decisions."""
        places, batch = self.most_drafts + 1, len(p.end)

        def room(leaf: Any) -> jax.Array:
            return jnp.zeros((places, *leaf.shape), leaf.dtype)

        words = token = allowed = None
        if self.tables is not None:
            words, token, allowed = map(room, jax.eval_shape(_mask_arrays, self.tables, p.state))
        logprobs = logits = None
        if self.rejects:
            assert isinstance(self.draft, ModelDraft)
            size = self.draft.decoder.vocab_size
            logprobs = jnp.zeros((self.most_drafts, batch), jnp.float32)
            logits = jnp.zeros((self.most_drafts, batch, size), jnp.float32)
        drafts = jnp.full((self.most_drafts, batch), -1, jnp.int32)
        before = jax.tree.map(room, p.state.position)
        return Decisions(before, room(p.end), words, token, allowed, drafts, logprobs, logits)

    # The target's pass.

    def _fed(self, p: Progress, end: jax.Array) -> tuple[jax.Array, Any]:
        """Logits after every token of the blocks, or after the last alone where no others are needed, and the cache."""
        block = read_block(p.tokens, p.fed, self.width)
        lengths = jnp.where(p.state.running | self.unscored(p), end - p.fed, 0)
        last_only = not self.most_drafts and not self.with_raw
        logits, cache = self.decoder.apply(block, p.cache, lengths, last_only=last_only)
        check_logits(logits, self.decoder.vocab_size)
        return logits, cache

    def _verdict(self, p: Progress, logits: jax.Array, decisions: Decisions) -> Verdict:
        """What the target says at every decision, under the masks that were made while drafting."""
        rows = jnp.arange(len(p.end), dtype=jnp.int32)[None]
        # Logits at place i are those of the token that follows the block's i-th.
        place = jnp.clip(decisions.at - 1 - p.fed[None], 0, logits.shape[1] - 1)
        picked = logits[rows, place].reshape(-1, logits.shape[-1])
        parts, width = None, logits.shape[-1]
        if self.tables is not None:
            arrays = (decisions.words, decisions.token, decisions.allowed)
            parts, width = parts_at(*(x.reshape(-1, x.shape[-1]) for x in arrays)), self.tables.vocab_size
        allowed, step = among(picked, parts, self.num_words), decisions.at - p.start[None]
        if not self.rejects:
            return by_same_draw(self.sampler, allowed, self.keys, step, decisions.drafts)
        assert isinstance(self.draft, ModelDraft)
        masked = self.draft.share_penalties and parts is not None
        drafted = Drafted(decisions.drafts, decisions.logprobs, decisions.logits, masked)
        return by_rejection(self.sampler, allowed, parts, self.keys, step, drafted, width)

    def _logprobs(self, p: Progress, decisions: Decisions, verdict: Verdict, taken: jax.Array) -> jax.Array:
        """Log-probabilities with those of the drafts kept and of the token after them; those of forced tokens are 0."""
        place = jnp.arange(self.most_drafts + 1, dtype=jnp.int32)[:, None]
        decided = (place < verdict.kept[None]) | ((place == verdict.kept[None]) & taken[None])
        at = jnp.where(decided, decisions.at, p.tokens.shape[1])
        rows = jnp.arange(len(p.end), dtype=jnp.int32)[None]
        return p.logprobs.at[rows, at].set(verdict.logprob, mode="drop")

    def _raw_logprobs(self, p: Progress, tokens: jax.Array, logits: jax.Array, end: jax.Array) -> jax.Array:
        """Log-probabilities over all logits, with those of the tokens that follow the block's; forced ones are among them."""
        following = read_block(tokens, p.fed + 1, self.width)
        x = clean(logits)
        own = jnp.take_along_axis(x, following[:, :, None], axis=2)[:, :, 0] - log_sum(x)
        at = p.fed[:, None] + 1 + jnp.arange(self.width, dtype=jnp.int32)[None]
        at = jnp.where(at < end[:, None], at, p.tokens.shape[1])
        rows = jnp.arange(len(p.end), dtype=jnp.int32)[:, None]
        return p.raw_logprobs.at[rows, at].set(own, mode="drop")


def _mask_arrays(tables: ConstraintTables, state: ConstraintState) -> tuple[jax.Array, jax.Array, jax.Array]:
    parts = mask_parts(tables, state)
    return parts.words, parts.token, parts.allowed


def _place(values: jax.Array, place: jax.Array) -> jax.Array:
    """values[place[b], b] of [R + 1, B, ...], [B, ...]."""
    return values[place, jnp.arange(len(place), dtype=jnp.int32)]
