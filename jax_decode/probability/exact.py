"""`generate_exact`: independent samples of the model's own distribution given a constraint, by adaptive rejection."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fsa_compile.errors import named_fields
from jax_decode.decoding import inputs
from jax_decode.decoding.origin import Origin
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Asked, Request, read_positive
from jax_decode.decoding.result import Generation, Work, Written, collect
from jax_decode.errors import DecodeError, checked_flag, is_whole, named_arguments, no_numbers, shown
from jax_decode.kernels.noise import key_words
from jax_decode.kernels.placement import on_automatic_axes, placed_like
from jax_decode.probability.endings import first_state
from jax_decode.probability.envelope import Envelope, first_envelope
from jax_decode.probability.exact_loop import Rules, run_rounds
from jax_decode.probability.sequences import read_constrained
from jax_decode.probability.weights import by_group
from jax_decode.step.state import MAX_DEPTH, Status
from jax_decode.tables.tables import ConstraintTables


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Rejection that learns: what leads nowhere once is not drawn again.

    Attributes:
      nodes: prefixes that are remembered, of all prompts together; 0 remembers none: plain rejection. More than there is room for
        is not remembered, which costs time and never exactness.
      reject: False keeps every draw. Then each costs one walk, however improbable the constraint, and the samples are not exact:
        they come nearer to the model's distribution as more is remembered. Those of the first round are those of masking.
      scout: whether rejected rows go on, to be remembered, while their neighbours finish and most rows are rejected: fewer
        rounds, more passes.
    """

    nodes: int = 4096
    reject: bool = True
    scout: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """What a call of `generate_exact` has learned of its prompts and constraints, for later calls; see `memory` there.

    Attributes:
      envelope: on the device.
      asked: prompts, constraints and limits that it belongs to.
    """

    envelope: Envelope
    asked: tuple[Any, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactGeneration:
    """Samples, n per prompt; those of prompt i are rows `i * n .. i * n + n - 1`.

    Attributes:
      generation: the rows. Those behind the last sample of a prompt whose rounds were over are `Status.ABSENT`.
      found: int32[P], samples of each prompt.
      tries: int32[P], draws made for them; their share that was kept is the rate of acceptance.
      passes: int32[P], how often the model was asked about a row of the prompt; the prompt itself is not counted.
      positions: int32[P], tokens fed to it for that; prefixes that are known enter as blocks.
      log_mass_bounds: float64[P, 2], between which the constraint's log-mass lies, but for rounding: the probability of the whole
        texts that are remembered, and that of everything not known to lead nowhere. Equal once all is known.
      memory: for later calls.
    """

    generation: Generation
    found: NDArray[np.int32]
    tries: NDArray[np.int32]
    passes: NDArray[np.int32]
    positions: NDArray[np.int32]
    log_mass_bounds: NDArray[np.float64]
    memory: Memory = dataclasses.field(repr=False)


@named_arguments
@on_automatic_axes
def generate_exact(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables,
    *,
    key: jax.Array,
    max_new_tokens: Any,
    num_samples: int = 1,
    method: Adaptive = Adaptive(),
    memory: Memory | None = None,
    rows: int = 16,
    max_rounds: int = 1000,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    always_stop: bool = False,
) -> ExactGeneration:
    """Independent samples of the model's own distribution given the constraint.

    No weights, no bias, no burn-in. The price is draws that are rejected: for each sample about the bound of the mass divided by
    the mass, and the bound falls with every draw, rejected or not.

    Args:
      decoder, prompts, tables, max_new_tokens, constraint, stop_ids, bos_id, max_depth: as in `generate`; every prompt needs a
        constraint.
      key: as in `generate`, with `rows` rows per prompt.
      num_samples: n, samples per prompt.
      method: how; see `Adaptive`.
      memory: of an earlier call with the same model, prompts, constraints and limits: what was learned there is not asked again.
      rows: draws of a prompt that are made side by side.
      max_rounds: most rounds of such draws.
      always_stop: whether the stop token counts even where nothing else is allowed; see `jax_decode.probability`.

    Returns:
      The samples, and what they cost.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.

    Source: see `jax_decode.probability.exact_loop`.
    """
    request = read_constrained(decoder, prompts, tables, Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth))
    method = _checked(method)
    wanted, each, most = (
        read_positive(value, name) for value, name in ((num_samples, "num_samples"), (rows, "rows"), (max_rounds, "max_rounds"))
    )
    asked = _signature(request, checked_flag(always_stop, "always_stop"))
    if memory is not None and not _same(memory, asked):
        what = "the memory is of other prompts, constraints or limits"
        raise DecodeError(what, fix="Pass the memory of a call with the same ones, or leave it out.")
    words = key_words(inputs.read_keys(key, request.num_prompts, each))
    learns = method.nodes > 0
    flags = (np.bool_(flag) for flag in (learns, method.reject, method.scout and learns, always_stop))
    rules = jax.device_put(Rules(np.int32(wanted), np.int32(most), *flags))
    size = max(method.nodes, request.num_prompts)
    envelope = memory.envelope if memory else _first(first_state(request, 1, rules.always_stop), request.steps, size)
    room = inputs.bucket(wanted, least=16)
    out = run_rounds(decoder, tables, rules, words, placed_like(envelope, decoder), request.batch(), room=room)
    return _result(request, out, wanted, room, Memory(envelope=out.envelope, asked=asked))


def _result(request: Request, out: Any, wanted: int, room: int, memory: Memory) -> ExactGeneration:
    envelope = out.envelope
    got = to_host((out.samples, out.broken, envelope.masses, envelope.ends, envelope.owner))
    samples, broken, masses, ends, owner = got
    for prompt in np.flatnonzero(broken):
        raise no_numbers(f"after prompt {prompt} or one of its continuations")
    count = request.num_prompts
    kept = (np.arange(count)[:, None] * room + np.arange(wanted)[None, :]).reshape(-1)
    there = (np.arange(wanted)[None, :] < samples.found[:, None]).reshape(-1)
    tokens, none = samples.tokens[kept], np.zeros(len(kept), np.int32)
    passes = np.repeat(samples.passes // np.maximum(samples.found, 1), wanted).astype(np.int32)
    status = np.where(there, Status.ACCEPTED, Status.ABSENT).astype(np.int32)
    rows = collect(
        Written(tokens, samples.local[kept], samples.raw[kept], status, samples.dropped[kept]),
        request.stop_ids[request.rows(wanted)],
        single=request.prompts.single and wanted == 1,
        work=Work(target_passes=passes, draft_passes=none, drafted=none, accepted=none, forced=none),
        origin=Origin.of(request, wanted),
    )
    bounds = [by_group(np.where(yes & (owner >= 0), masses, -np.inf), owner, count) for yes in (ends, True)]
    return ExactGeneration(
        generation=rows,
        found=samples.found,
        tries=samples.tries,
        passes=samples.passes,
        positions=samples.positions,
        log_mass_bounds=np.stack(bounds, axis=1),
        memory=memory,
    )


_first = jax.jit(first_envelope, static_argnums=(1, 2))


def _checked(method: Any) -> Adaptive:
    if not isinstance(method, Adaptive):
        raise DecodeError(f"the method is {shown(method)}", fix="Give Adaptive(...).")
    nodes = method.nodes
    if not is_whole(nodes, 0, 1 << 24):
        raise DecodeError(f"nodes is {shown(nodes)}", where="Adaptive", fix="Give a whole number from 0 to 16,777,216.")
    for name in ("reject", "scout"):
        checked_flag(getattr(method, name), f"{name} of Adaptive")
    return method


def _signature(request: Request, always_stop: bool) -> tuple[Any, ...]:
    """What the memory depends on beside the model's parameters and the tables."""
    given = request.prompts
    return given.tokens, given.lengths, *request.numbers(1), np.bool_(always_stop)


def _same(memory: Any, asked: tuple[Any, ...]) -> bool:
    if not isinstance(memory, Memory):
        raise DecodeError(f"the memory is {shown(memory)}", fix="Pass the memory of a call before, or leave it out.")
    return all(np.shape(a) == np.shape(b) and np.array_equal(a, b) for a, b in zip(memory.asked, asked, strict=True))
