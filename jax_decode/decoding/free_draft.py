"""`draft_then_constrain`: a free draft of every row, then its answer inside the constraint, in one jitted program.

A model that is held to a form from its first token may answer worse than one that may first write what it likes. Here it drafts
without a mask; the draft stays in its cache; and the answer, in form, follows in the same loop, for every row as soon as its own
draft has ended.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.decoding import inputs
from jax_decode.decoding.decoder import Decoder
from jax_decode.decoding.generate import read_key_words, read_way
from jax_decode.decoding.loop import prefill
from jax_decode.decoding.origin import Origin
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Asked, Request, read_positive, read_request, slots
from jax_decode.decoding.result import Generation, Written, collect
from jax_decode.errors import DecodeError, named_arguments
from jax_decode.kernels.placement import on_automatic_axes
from jax_decode.sampling.samplers import Greedy, Sampler
from jax_decode.sampling.sampling import checked, sample
from jax_decode.step.state import MAX_DEPTH, ConstraintState, Status, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables

_CHUNK = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drafted:
    """Rows as in `Generation`, one of each for every row.

    Attributes:
      drafts: what was written freely; `FINISHED` where a stop token ended it, `TRUNCATED` where the limit did, `NOT_A_NUMBER`
        where the model gave NaN. All of them are answered.
      answers: what was written after it inside the constraint. Log-probabilities are those given prompt, draft and bridge.
    """

    drafts: Generation
    answers: Generation


@named_arguments
@on_automatic_axes
def draft_then_constrain(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables,
    *,
    key: jax.Array | None = None,
    max_draft_tokens: int,
    max_new_tokens: Any,
    bridge: Any = (),
    draft_stop_ids: Any = (),
    constraint: Any = None,
    sampler: Sampler = Greedy(),  # noqa: B008 (frozen)
    num_samples: int = 1,
    stop_ids: Any = None,
    bos_id: int | bool | None = None,
    tokenizer: Any = None,
    max_depth: Any = MAX_DEPTH,
) -> Drafted:
    """Lets the model write what it likes, and then its answer inside the constraint, with the draft before its eyes.

    Args:
      decoder, prompts, tables, key, max_new_tokens, constraint, sampler, num_samples, stop_ids, bos_id, tokenizer, max_depth: as
        in `generate`; the limits, and the constraints, are those of the answers.
      max_draft_tokens: most tokens of a draft.
      bridge: token ids that are put between every draft and its answer, such as those of "\\nJSON: ".
      draft_stop_ids: ids that end a draft, such as a line break or the end of thinking; they do not enter the model. The stop ids
        of the constraints end drafts too.

    Returns:
      Drafts and answers. A draft is what `generate` writes from the same key in a row of these tables without a constraint.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.

    Source: Draft-Conditioned Constrained Decoding (arXiv 2603.03305).
    """
    if tables is None:
        raise DecodeError("there are no tables, so no constraint", fix="Pass jax_decode.to_device(constraint).")
    asked = Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth, tokenizer)
    way = read_way(sampler, num_samples, _CHUNK, True)
    most = read_positive(max_draft_tokens, "max_draft_tokens")
    request = read_request(decoder, prompts, tables, asked, least_steps=_CHUNK, allow_truncation=False)
    between, ends = (_ids(x, name, decoder.vocab_size) for x, name in ((bridge, "bridge"), (draft_stop_ids, "draft_stop_ids")))
    request = _with_room(decoder, request, most + len(between))
    keys = read_key_words(key, sampler, request, way.num_samples)
    rows = request.rows(way.num_samples)
    stops = np.concatenate([request.stop_ids, np.broadcast_to(ends, (request.num_prompts, len(ends)))], axis=1)
    numbers = request.numbers(way.num_samples)
    answer = numbers._replace(stop_ids=np.pad(numbers.stop_ids, ((0, 0), (0, len(ends))), constant_values=-1))
    draft = numbers._replace(
        which=np.full(len(rows), -1, np.int32), limits=np.full(len(rows), most, np.int32), stop_ids=stops[rows]
    )
    sizes = _Sizes(way.num_samples, inputs.bucket(most, least=_CHUNK), request.steps)
    out = _run(decoder, tables, way.sampler, keys, request.batch(), jax.device_put((draft, answer, between)), sizes=sizes)
    return _collected(request, to_host(out), stops[rows], way.num_samples)


def _ids(ids: Any, name: str, size: int) -> np.ndarray:
    return np.array(inputs.read_ids(ids, size, name, "Give a list of token ids, encoded with the model's tokenizer."), np.int32)


def _with_room(decoder: Any, request: Request, more: int) -> Request:
    """The request with a cache that has room for the draft, too."""
    length, most = request.prompts.tokens.shape[1] + request.steps + more, getattr(decoder, "max_length", None)
    needed = int((request.prompts.lengths + request.limits).max()) + more
    if most is not None and needed > most:
        what = f"prompt, draft, bridge and answer may take {needed} positions, the model has {most}"
        raise DecodeError(what, fix="Lower max_draft_tokens or max_new_tokens.")
    return dataclasses.replace(request, cache_length=slots(decoder, inputs.bucket(length)))


class _Growing(NamedTuple):
    """What is being written, `Written` of arrays on the device, and how many tokens each row has, int32[B]."""

    written: Written
    taken: jax.Array

    @classmethod
    def nothing(cls, rows: int, room: int) -> _Growing:
        none, zeros = jnp.zeros(rows, jnp.int32), jnp.zeros((rows, room), jnp.float32)
        columns: Any = (jnp.full((rows, room), -1, jnp.int32), zeros, zeros, none, none > 0)
        return cls(Written(*columns), none)

    def taking(self, yes: jax.Array, choice: Any, after: ConstraintState) -> _Growing:
        """With the tokens of the rows in `yes`."""
        old, rows = self.written, jnp.arange(len(yes), dtype=jnp.int32)
        some = yes & (choice.token >= 0)
        place = jnp.where(some, self.taken, old.tokens.shape[1])
        pairs: Any = zip(old[:3], (choice.token, choice.logprob, choice.raw_logprob))
        columns: Any = [buffer.at[rows, place].set(value, mode="drop") for buffer, value in pairs]
        columns += [jnp.where(yes, after.status, old.status), jnp.where(yes, after.dropped, old.dropped)]
        return _Growing(Written(*columns), self.taken + some.astype(jnp.int32))


class _Carry(NamedTuple):
    """phase: int32[B], -1 while drafting, then how many ids of the bridge were fed; step: int32[]."""

    cache: Any
    logits: jax.Array
    state: ConstraintState
    phase: jax.Array
    draft: _Growing
    answer: _Growing
    step: jax.Array


class _Sizes(NamedTuple):
    """What is static: samples of a prompt, most tokens of a draft and of an answer."""

    num_samples: int
    draft: int
    steps: int


@functools.partial(jax.jit, static_argnames="sizes")
def _run(
    decoder: Decoder,
    tables: ConstraintTables,
    sampler: Sampler,
    keys: jax.Array,
    prompts: Any,
    given: Any,
    *,
    sizes: _Sizes,
) -> tuple[Written, Written]:
    first, last, bridge = given
    num_samples, draft, steps = sizes
    room = max(draft, steps)
    begin, answering = (
        init_state(tables, n.which, n.limits, n.stop_ids, max_depth=n.depths, max_tokens=room) for n in (first, last)
    )
    filled = prefill(decoder, prompts, capacity=1, num_samples=num_samples)

    def going(c: _Carry) -> jax.Array:
        return (c.state.running | (c.phase < len(bridge))).any() & (c.step < draft + len(bridge) + steps)

    def step(c: _Carry) -> _Carry:
        drafting, bridging = c.phase < 0, (c.phase >= 0) & (c.phase < len(bridge))
        taking = c.state.running & ~bridging
        choice = sample(sampler, c.logits, keys, jnp.full(len(keys), c.step, jnp.uint32), tables, c.state)
        choice = choice._replace(token=checked(choice.token, c.logits))
        after = advance(tables, c.state, choice.token)
        over = drafting & ~after.running
        stopped = over & (after.status == Status.FINISHED)
        state = _either(over, answering, _either(bridging, c.state, after))
        forced = jnp.pad(bridge, (0, 1))[jnp.clip(c.phase, 0, len(bridge))]
        token = jnp.where(bridging, forced, jnp.maximum(choice.token, 0))
        feeds = bridging | (taking & (choice.token >= 0) & ~stopped)
        logits, cache = decoder.apply(token[:, None], c.cache, feeds.astype(jnp.int32))
        return _Carry(
            cache=cache,
            logits=jnp.where(feeds[:, None], logits[:, -1].astype(c.logits.dtype), c.logits),
            state=state,
            phase=jnp.where(over, 0, c.phase + bridging.astype(jnp.int32)),
            draft=c.draft.taking(taking & drafting, choice, after),
            answer=c.answer.taking(taking & ~drafting, choice, after),
            step=c.step + 1,
        )

    phase = jnp.full(len(keys), -1, jnp.int32)
    carry = _Carry(
        cache=filled["cache"],
        logits=filled["logits"],
        state=begin,
        phase=phase,
        draft=_Growing.nothing(len(keys), draft),
        answer=_Growing.nothing(len(keys), steps),
        step=jnp.int32(0),
    )
    out = jax.lax.while_loop(going, step, carry)
    return out.draft.written, out.answer.written


def _either(yes: jax.Array, one: ConstraintState, other: ConstraintState) -> ConstraintState:
    """Rows of one state where `yes`, bool[B], else of the other."""
    return jax.tree.map(lambda a, b: jnp.where(yes.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other)


def _collected(request: Request, out: Any, draft_stops: Any, num_samples: int) -> Drafted:
    single = request.prompts.single and num_samples == 1
    draft, answer = out
    rows = request.rows(num_samples)
    drafts = collect(draft, draft_stops, single=single)
    answers = collect(answer, request.stop_ids[rows], single=single, origin=Origin.of(request, num_samples))
    return Drafted(drafts=drafts, answers=answers)
