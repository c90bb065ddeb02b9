"""The jitted loop that feeds the model blocks instead of single tokens: forced runs, and drafts that are verified.

One turn of the loop: every row takes the token that was chosen last and what it forces, then drafts, as many tokens as its
constraint, its budget and the block's width let it; the model reads all that it has not seen as one ragged block; each row
keeps the drafts that stand, and a token is chosen after them. Rows are at different places of their texts all the time, and
none waits for another.

A row's masks are made once, while drafting; the target's distributions use the same ones. Taking drafts back costs a few
numbers per row: the constraint's `position`, and the lengths of both caches.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.decoding.decoder import Decoder
from jax_decode.decoding.drafts import Draft, ModelDraft, PromptLookup, look_up
from jax_decode.decoding.loop import check_logits
from jax_decode.decoding.programs import program
from jax_decode.decoding.requests import PromptBatch, slots
from jax_decode.decoding.verification import Drafted, Verdict, by_rejection, by_same_draw, draft_key, drawn_logprob, scores_of
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.history import read_block, write
from jax_decode.kernels.planes import LOWEST, clean, log_sum
from jax_decode.kernels.row_layout import words_for
from jax_decode.sampling.samplers import Greedy, Sampler
from jax_decode.sampling.sampling import among, checked, choose, sample
from jax_decode.step.forced import Forced, take_run
from jax_decode.step.forking import fork_cache
from jax_decode.step.masking import allows, likely_spelling, mask_parts, parts_at
from jax_decode.step.state import ConstraintState, Position, Status
from jax_decode.tables.tables import ConstraintTables


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
      token: int32[B], chosen to follow it, but not taken yet; -1 where nothing is allowed, -2 where the logits are NaN.
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
    token: jax.Array
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

    before: the state's position there; at: int32, the place in the text; parts: the mask's arrays (none without tables); drafts:
    int32[R, B], -1 for none; logprobs, logits: of the draft model, [R, B, ...], None where not needed.
    """

    before: Position
    at: jax.Array
    parts: tuple[jax.Array, ...]
    drafts: jax.Array
    logprobs: Any
    logits: Any


@program()
def begin(turn: Turn, state: ConstraintState, prompts: PromptBatch, *, num_samples: int, capacity: int) -> Progress:
    """Feeds the prompts to both models, with what the constraints force at once, and chooses the first token after that.

    Args:
      turn: what stays the same from turn to turn.
      state, prompts, num_samples: as in `loop.prefill`.
      capacity: T, tokens the texts can hold.
    """
    rows = jnp.repeat(jnp.arange(len(prompts.lengths), dtype=jnp.int32), num_samples)
    tokens, start = jnp.pad(prompts.tokens[rows], ((0, 0), (0, capacity))), prompts.lengths[rows]
    end, width = start, prompts.tokens.shape[1]
    # Log-probabilities of the run itself would take logits at every place of a block as wide as the prompts.
    if turn.forced is not None and turn.tables is not None and not turn.with_raw:
        first = turn.forced.choose(turn.tables, state)
        goes, room = state.running & (first >= 0), jnp.full_like(start, turn.forced.length - 1)
        state, tokens, end = take_run(turn.forced, turn.tables, state, tokens, start, first, goes, room)
        width = min(width + turn.forced.length, tokens.shape[1])

    def fed(decoder: Any) -> tuple[jax.Array, Any]:
        length = slots(decoder, prompts.cache_length)  # a draft model may have fewer positions than the target
        block, each = tokens[::num_samples, :width], end[::num_samples]  # samples of a prompt are forced the same
        logits, cache = decoder.apply(block, decoder.init_cache(len(each), length), each, last_only=True)
        check_logits(logits, decoder.vocab_size)
        return logits, cache if num_samples == 1 else fork_cache(decoder, cache, rows, length=length)

    logits, cache = fed(turn.decoder)
    step = (end - start).astype(jnp.uint32)
    choice = sample(turn.sampler, logits[rows, -1], turn.keys, step, turn.tables, state, with_raw=turn.with_raw)
    token = checked(choice.token, logits[rows, -1])
    taken = state.running & (token >= 0)
    empty, zero = jnp.zeros(tokens.shape, jnp.float32), jnp.zeros_like(start)
    return Progress(
        cache=cache,
        draft_cache=fed(turn.draft.decoder)[1] if isinstance(turn.draft, ModelDraft) else None,
        state=state,
        token=token,
        tokens=tokens,
        logprobs=write(empty, end, choice.logprob, taken),
        raw_logprobs=write(empty, end, choice.raw_logprob, taken),
        start=start,
        end=end,
        fed=end,
        draft_fed=end,
        counts=Counts(target_passes=zero + 1, draft_passes=zero, drafted=zero, accepted=zero, forced=end - start),
    )


@program(donate=["progress"])
def proceed(turn: Turn, progress: Progress, until: jax.Array) -> Progress:
    """Decodes until every row is done or has at least `until` int32[] tokens.

    Args:
      turn: as before.
      progress: donated.
      until: tokens of a row's text.
    """

    def going(p: Progress) -> jax.Array:
        return (p.state.running & (p.end - p.start < until)).any()

    return jax.lax.while_loop(going, turn.taken, progress)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["decoder", "tables", "draft", "sampler", "keys"],
    meta_fields=["forced", "most_drafts", "with_raw"],
)
@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn of the loop, and what stays the same from turn to turn.

    Attributes:
      decoder, tables, sampler, keys: as in `loop.decode`.
      draft: from `drafts.read_draft`.
      forced: static, from `forced.read_forced`.
      most_drafts: static, R, the bucket of the draft's length, 0 without drafts.
      with_raw: static, whether the log-probabilities over all logits are wanted. Rows that end in a forced run are then fed once
        more.
    """

    decoder: Decoder
    tables: ConstraintTables | None
    draft: Draft | None
    sampler: Sampler
    keys: jax.Array
    forced: Forced | None
    most_drafts: int
    with_raw: bool

    @property
    def scores(self) -> bool:
        """Whether the log-probabilities over all logits differ from those among the allowed ones, and are wanted."""
        return self.with_raw and self.tables is not None

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

    @property
    def spells(self) -> bool:
        """Whether drafts begin with what the constraint forces."""
        known = self.tables is not None and self.tables.spelling.shape[0] > 0
        return known and self.draft is not None and self.draft.share_penalties

    @property
    def columns(self) -> Columns:
        """How tokens lie in the target's masks."""
        return Columns(words_for(self.decoder.vocab_size)) if self.tables is None else self.tables.columns

    def taken(self, p: Progress) -> Progress:
        """Extends the texts, then feeds and verifies what rows still need it for."""
        p, decisions = self._extended(p)
        running = decisions.before.status[0] == Status.RUNNING
        reads = running | ((decisions.at[0] - 1 > p.fed) & self.scores)  # texts that ended in a forced run are scored
        return _if(reads.any(), functools.partial(self._verified, decisions, reads), p)

    # The constraint's side: taking, noting, drafting.

    def _extended(self, p: Progress) -> tuple[Progress, Decisions]:
        """Takes the chosen token and what it forces, then drafts; `state` and `end` are then those after all drafts."""
        rounds = jnp.int32(0) if self.draft is None else self.draft.length

        def step(i: jax.Array, p: Progress, decisions: Decisions) -> tuple[Progress, Decisions]:
            p, decisions = self._noted(i, self._took(i, p), decisions)
            if self.draft is None:
                return p, decisions
            return _if(i < rounds, lambda carry: self._draft_one(i, *carry), (p, decisions))

        def next_step(carry: tuple[jax.Array, jax.Array, Progress, Decisions]) -> Any:
            i, _, p, decisions = carry
            p, decisions = step(i, p, decisions)
            return i + 1, (i < rounds) & (p.token >= 0).any(), p, decisions

        start = (p, self._no_decisions(p))
        if self.draft is None:
            return step(jnp.int32(0), *start)
        # Ends early where no row has drafted anything: what is noted of the place after the last draft is then complete.
        return jax.lax.while_loop(lambda carry: carry[1], next_step, (jnp.int32(0), jnp.bool_(True), *start))[2:]

    def _took(self, i: jax.Array, p: Progress) -> Progress:
        """Takes `token` in every running row, and what it forces as far as the block has room."""
        drafting = i > 0
        goes = p.state.running & (~drafting | (p.token >= 0))
        room = jnp.where(drafting, self.width - (p.end - p.fed) - 1, self.run)
        if self.draft is not None and not self.draft.share_penalties:
            room = jnp.where(drafting, 0, room)
        state, tokens, end = take_run(self.forced, self.tables, p.state, p.tokens, p.end, p.token, goes, room)
        forced = jnp.where(drafting, 0, jnp.maximum(end - p.end - 1, 0))
        counts = dataclasses.replace(p.counts, forced=p.counts.forced + forced)
        return dataclasses.replace(p, state=state, tokens=tokens, end=end, counts=counts)

    def _noted(self, i: jax.Array, p: Progress, decisions: Decisions) -> tuple[Progress, Decisions]:
        """The decisions with the next one at place `i`."""

        def at_place(room: Any, value: Any) -> Any:
            return room.at[i].set(value)

        if self.tables is not None:
            decisions = decisions._replace(parts=tuple(map(at_place, decisions.parts, _mask_arrays(self.tables, p.state))))
        before = jax.tree.map(at_place, decisions.before, p.state.position)
        return p, decisions._replace(before=before, at=at_place(decisions.at, p.end))

    def _draft_one(self, i: jax.Array, p: Progress, decisions: Decisions) -> tuple[Progress, Decisions]:
        """Drafts one token in every row that can take one."""
        assert self.draft is not None
        parts = None
        if self.tables is not None and self.draft.share_penalties:
            parts = parts_at(*(x[i] for x in decisions.parts))
        goes = p.state.running & (p.end - p.fed < self.width) & ((i == 0) | (p.token >= 0))
        spelled = jnp.full_like(p.end, -1)
        if self.spells:
            assert self.tables is not None
            assert parts is not None
            spelled = likely_spelling(self.tables, p.state)
            spelled = jnp.where(goes & allows(parts, spelled, self.columns), spelled, -1)
        if isinstance(self.draft, ModelDraft):
            p, logits = self._draft_fed(p, goes & (spelled < 0))
            token, decisions = self._drawn(i, p, logits, parts, decisions, spelled)
        elif isinstance(self.draft, PromptLookup):
            token = look_up(p.tokens, p.end, self.draft.ngram)
            if parts is not None:
                token = jnp.where(allows(parts, token, self.columns), token, -1)
            token = jnp.where(spelled >= 0, spelled, token)
        else:
            token = spelled
        token = jnp.where(goes, token, -1)
        return dataclasses.replace(p, token=token), decisions._replace(drafts=decisions.drafts.at[i].set(token))

    def _draft_fed(self, p: Progress, goes: jax.Array) -> tuple[Progress, jax.Array]:
        """The draft model's logits after the texts so far, [B, V'']."""
        assert isinstance(self.draft, ModelDraft)
        # At most: the last draft, the token chosen after it, and what both forced; and drafts that are not this model's.
        width = 2 + 2 * self.run + (self.most_drafts if self.spells else 0)
        if self.spells:
            p = self._caught_up(p, goes, width)
        block = read_block(p.tokens, p.draft_fed, width)
        lengths = jnp.where(goes, p.end - p.draft_fed, 0)
        logits, cache = self.draft.decoder.apply(block, p.draft_cache, lengths, last_only=True)
        check_logits(logits, self.draft.decoder.vocab_size)
        counts = dataclasses.replace(p.counts, draft_passes=p.counts.draft_passes + goes.astype(jnp.int32))
        p = dataclasses.replace(p, draft_cache=cache, draft_fed=p.draft_fed + lengths, counts=counts)
        return p, logits[:, -1]

    def _caught_up(self, p: Progress, goes: jax.Array, width: int) -> Progress:
        """Feeds the draft model until a block of `width` holds the rest: turns that draft forced text alone leave it behind."""
        assert isinstance(self.draft, ModelDraft)
        model = self.draft.decoder

        def behind(carry: tuple[Any, jax.Array, jax.Array]) -> jax.Array:
            return jnp.where(goes, p.end - carry[1] - width, 0)

        def feed(carry: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
            cache, fed, passes = carry
            lengths = jnp.clip(behind(carry), 0, width)
            _, cache = model.apply(read_block(p.tokens, fed, width), cache, lengths, last_only=True)
            return cache, fed + lengths, passes + (lengths > 0).astype(jnp.int32)

        start = (p.draft_cache, p.draft_fed, p.counts.draft_passes)
        cache, fed, passes = jax.lax.while_loop(lambda carry: (behind(carry) > 0).any(), feed, start)
        counts = dataclasses.replace(p.counts, draft_passes=passes)
        return dataclasses.replace(p, draft_cache=cache, draft_fed=fed, counts=counts)

    def _drawn(
        self, i: jax.Array, p: Progress, logits: jax.Array, parts: Any, decisions: Decisions, spelled: jax.Array
    ) -> tuple[jax.Array, Decisions]:
        """What the draft model draws, or what is forced, and the decisions with what rejection must know of it."""
        if self.spells and self.rejects:  # a forced text is drafted with probability 1
            place = jnp.arange(logits.shape[1], dtype=jnp.int32)[None]
            logits = jnp.where((spelled >= 0)[:, None] & (place != spelled[:, None]), LOWEST, logits.astype(jnp.float32))
        allowed = among(logits, parts, Columns(words_for(logits.shape[1])) if parts is None else self.columns)
        key = draft_key(self.keys) if self.rejects else self.keys
        token = choose(self.sampler, allowed, key, (p.end - p.start).astype(jnp.uint32), with_raw=False).token
        if self.rejects:
            own = drawn_logprob(self.sampler, allowed, scores_of(self.sampler, allowed), parts, token)
            logprobs, kept = decisions.logprobs.at[i].set(own), decisions.logits.at[i].set(logits.astype(jnp.float32))
            decisions = decisions._replace(logprobs=logprobs, logits=kept)
        return jnp.where(spelled >= 0, spelled, token), decisions

    def _no_decisions(self, p: Progress) -> Decisions:
        """Room for R + 1 decisions."""
        places, batch = self.most_drafts + 1, len(p.end)

        def room(leaf: Any) -> jax.Array:
            return jnp.zeros((places, *leaf.shape), leaf.dtype)

        logprobs = logits = None
        parts = () if self.tables is None else tuple(map(room, jax.eval_shape(_mask_arrays, self.tables, p.state)))
        if self.rejects:
            assert isinstance(self.draft, ModelDraft)
            logprobs = jnp.zeros((self.most_drafts, batch), jnp.float32)
            logits = jnp.zeros((self.most_drafts, batch, self.draft.decoder.vocab_size), jnp.float32)
        drafts = jnp.full((self.most_drafts, batch), -1, jnp.int32)
        before = jax.tree.map(room, p.state.position)
        return Decisions(before, room(p.end), parts, drafts, logprobs, logits)

    # The target's side: feeding, verifying, taking back.

    def _verified(self, decisions: Decisions, reads: jax.Array, p: Progress) -> Progress:
        """Feeds the rows that read, keeps the drafts that stand, and chooses a token after them."""
        lengths = jnp.where(reads, p.end - p.fed, 0)
        logits = None
        if self.scores:
            logits, cache = self._fed(p, p.cache, lengths, self.width)
            picked = self._picked(p, logits, decisions)
        else:
            cache, picked = self._read(p, decisions, lengths)
        verdict = self._verdict(p, picked, decisions)
        at = _place(decisions.at, verdict.kept)
        state = p.state.rewound(jax.tree.map(lambda field: _place(field, verdict.kept), decisions.before))
        chosen = state.running & (verdict.token >= 0)
        tokens = write(p.tokens, at, verdict.token, chosen)
        fed = jnp.where(reads, at, p.fed)
        draft_cache, draft_fed = p.draft_cache, jnp.minimum(p.draft_fed, fed)
        if self.most_drafts:
            cache = self.decoder.rewind(cache, fed)
        if isinstance(self.draft, ModelDraft):
            draft_cache = self.draft.decoder.rewind(draft_cache, draft_fed)
        counts = dataclasses.replace(
            p.counts,
            target_passes=p.counts.target_passes + reads.astype(jnp.int32),
            drafted=p.counts.drafted + (decisions.drafts >= 0).sum(0, dtype=jnp.int32),
            accepted=p.counts.accepted + verdict.kept,
            forced=p.counts.forced + at - decisions.at[0] - verdict.kept,
        )
        logprobs, raw_logprobs = self._logprobs(p, decisions, verdict, chosen), p.raw_logprobs
        if logits is not None:
            raw_logprobs = self._raw_logprobs(p, tokens, logits, jnp.where(reads, at + chosen.astype(jnp.int32), 0))
        return Progress(
            cache=cache,
            draft_cache=draft_cache,
            state=state,
            token=verdict.token,
            tokens=tokens,
            logprobs=logprobs,
            raw_logprobs=raw_logprobs,
            start=p.start,
            end=at,
            fed=fed,
            draft_fed=draft_fed,
            counts=counts,
        )

    def _fed(self, p: Progress, cache: Any, lengths: jax.Array, width: int) -> tuple[jax.Array, Any]:
        """Logits after every token of blocks of a static width, or after the last alone where no others are wanted; the cache."""
        last_only = not self.scores and (width == 1 or not self.most_drafts)
        logits, cache = self.decoder.apply(read_block(p.tokens, p.fed, width), cache, lengths, last_only=last_only)
        check_logits(logits, self.decoder.vocab_size)
        return logits, cache

    def _picked(self, p: Progress, logits: jax.Array, decisions: Decisions) -> jax.Array:
        """Logits of the decisions, [(R + 1) * B, V']: those at place i are of the token that follows the block's i-th."""
        place = jnp.clip(decisions.at - 1 - p.fed[None], 0, logits.shape[1] - 1)
        rows = jnp.arange(len(p.end), dtype=jnp.int32)[None]
        return logits[rows, place].reshape(-1, logits.shape[-1])

    def _read(self, p: Progress, decisions: Decisions, lengths: jax.Array) -> tuple[Any, jax.Array]:
        """The cache and the logits of the decisions. Where no row has more than one token to read, the block is that narrow."""

        def block(width: int, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            logits, cache = self._fed(p, carry[0], lengths, width)
            return cache, self._picked(p, logits, decisions)

        wide = functools.partial(block, self.width)
        shape = jax.eval_shape(wide, (p.cache, None))[1]
        carry, narrow = (p.cache, jnp.zeros(shape.shape, shape.dtype)), lengths.max() <= 1
        if self.width == 1:
            return wide(carry)
        return _if(~narrow, wide, _if(narrow, functools.partial(block, 1), carry))

    def _verdict(self, p: Progress, logits: jax.Array, decisions: Decisions) -> Verdict:
        """What the target says at every decision, under the masks that were made while drafting."""
        parts, width = None, logits.shape[-1]
        if self.tables is not None:
            parts, width = parts_at(*(x.reshape(-1, *x.shape[2:]) for x in decisions.parts)), self.tables.vocab_size
        allowed, step = among(logits, parts, self.columns), decisions.at - p.start[None]
        if not self.rejects:
            return by_same_draw(self.sampler, allowed, self.keys, step, decisions.drafts)
        assert isinstance(self.draft, ModelDraft)
        masked = self.draft.share_penalties and parts is not None
        drafted = Drafted(decisions.drafts, decisions.logprobs, decisions.logits, masked)
        return by_rejection(self.sampler, allowed, parts, self.keys, step, drafted, width)

    def _logprobs(self, p: Progress, decisions: Decisions, verdict: Verdict, chosen: jax.Array) -> jax.Array:
        """Log-probabilities with those of the drafts kept and of the token after them; those of forced tokens are 0."""
        place = jnp.arange(self.most_drafts + 1, dtype=jnp.int32)[:, None]
        decided = (place < verdict.kept[None]) | ((place == verdict.kept[None]) & chosen[None])
        at = jnp.where(decided, decisions.at, p.tokens.shape[1])
        rows = jnp.arange(len(p.end), dtype=jnp.int32)[None]
        return p.logprobs.at[rows, at].set(verdict.logprob, mode="drop")

    def _raw_logprobs(self, p: Progress, tokens: jax.Array, logits: jax.Array, end: jax.Array) -> jax.Array:
        """Log-probabilities over all logits, with those of the tokens that follow the block's; forced ones are among them."""
        following = read_block(tokens, p.fed + 1, self.width)
        x = clean(logits)
        total = log_sum(x)
        own = jnp.take_along_axis(x, following[:, :, None], axis=2)[:, :, 0] - total
        own = jnp.where(total > LOWEST, own, jnp.nan)
        at = p.fed[:, None] + 1 + jnp.arange(self.width, dtype=jnp.int32)[None]
        at = jnp.where(at < end[:, None], at, p.tokens.shape[1])
        rows = jnp.arange(len(p.end), dtype=jnp.int32)[:, None]
        return p.raw_logprobs.at[rows, at].set(own, mode="drop")


def _if(condition: jax.Array, then: Callable[[Any], Any], value: Any) -> Any:
    """`then(value)` where bool[] holds, else `value`: a loop of at most one round, which updates caches in place."""

    def once(carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        return jnp.zeros_like(condition), then(carry[1])

    return jax.lax.while_loop(lambda carry: carry[0], once, (condition, value))[1]


def _mask_arrays(tables: ConstraintTables, state: ConstraintState) -> tuple[jax.Array, ...]:
    return mask_parts(tables, state).arrays


def _place(values: jax.Array, place: jax.Array) -> jax.Array:
    """values[place[b], b] of [R + 1, B, ...], [B, ...]."""
    return values[place, jnp.arange(len(place), dtype=jnp.int32)]
