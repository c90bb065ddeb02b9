"""Every token sequence of a small constraint, with its exact probability."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Asked, Request, check_places, read_request
from jax_decode.decoding.vocabularies import speller
from jax_decode.errors import DecodeError, checked_flag, is_number, is_whole, named_arguments, no_numbers, shown
from jax_decode.kernels.placement import on_automatic_axes
from jax_decode.probability.endings import first_state
from jax_decode.probability.tree import Levels, Room, walk_tree
from jax_decode.probability.weights import by_group
from jax_decode.step.state import MAX_DEPTH
from jax_decode.tables.tables import ConstraintTables

MAX_PREFIXES = 1024
"""Default limit of the prefixes of one length that can go on: rows of the cache."""
_FIRST_PREFIXES = 64
_CHILDREN = 8
"""Prefixes of one length per row of the cache: most of them are whole sequences."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequences:
    """The token sequences of the constraint of each prompt, n in all; none begins another one of its prompt.

    Attributes:
      tokens: int32[*] each, without the stop token.
      prompt: int32[n], which prompt it follows.
      stopped: bool[n], whether a stop token is part of it; several stop ids count together.
      raw_logprobs: float64[n], log-probability under the model, the stop token's included.
      logprobs: float64[n], log-probability that sampling token by token among the allowed ones writes it.
      ignored: float64[P], the probability of all sequences that `ignore_below` left out is at most this.
      num_prompts: P.
    """

    tokens: list[NDArray[np.int32]]
    prompt: NDArray[np.int32]
    stopped: NDArray[np.bool_]
    raw_logprobs: NDArray[np.float64]
    logprobs: NDArray[np.float64]
    ignored: NDArray[np.float64]
    num_prompts: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def log_mass(self) -> NDArray[np.float64]:
        """float64[P], log-probability of the constraint after each prompt."""
        return by_group(self.raw_logprobs, self.prompt, self.num_prompts)

    @property
    def conditional(self) -> NDArray[np.float64]:
        """float64[n], probability of each sequence given that its prompt's constraint holds: what sampling should follow."""
        return np.exp(self.raw_logprobs - self.log_mass[self.prompt])

    def text(self, tokenizer: Any) -> list[str]:
        """The texts; `tokenizer` is as in `Generation.text`."""
        tokenizer = speller(tokenizer, "")
        return [tokenizer.decode(row.tolist()) for row in self.tokens]


@named_arguments
@on_automatic_axes
def enumerate_sequences(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables,
    *,
    max_new_tokens: Any,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    always_stop: bool = False,
    max_prefixes: int = MAX_PREFIXES,
    ignore_below: float = 0.0,
) -> Sequences:
    """Every token sequence that the constraint allows after each prompt, with its probability, prefixes fed once.

    Args:
      decoder, prompts, tables, max_new_tokens, constraint, stop_ids, bos_id, max_depth: as in `generate`; every prompt needs a
        constraint.
      always_stop: whether the stop token counts even where nothing else is allowed; see `jax_decode.probability`.
      max_prefixes: limit of the prefixes of one length that can go on, of all prompts together. The model is run with this many
        rows at most.
      ignore_below: probability under the model; sequences whose beginning is less probable are left out, and the probability they
        have together is bounded. Most texts have very many tokenizations, and all but a few are very improbable.

    Returns:
      The sequences, of prompt 0 first, shorter ones first.

    Raises:
      DecodeError: an argument is wrong, or the limit was reached.
    """
    request = read_constrained(decoder, prompts, tables, Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth))
    found = enumerated(decoder, request, always_stop=always_stop, max_prefixes=max_prefixes, ignore_below=ignore_below)
    if found is None:
        raise DecodeError(
            f"the constraint has too many token sequences to enumerate: over {max_prefixes:,} prefixes of one length can go on, "
            f"or there are over {_CHILDREN * max_prefixes:,}",
            fix="Give ignore_below=1e-9, raise max_prefixes, lower max_new_tokens, or sample with generate_smc.",
        )
    return found


def read_constrained(decoder: Any, prompts: Any, tables: Any, asked: Asked) -> Request:
    """`read_request` for functions in which every prompt has a constraint.

    Raises:
      DecodeError: an argument is wrong.
    """
    if tables is None:
        raise DecodeError("there are no tables, so no constraint", fix="Pass jax_decode.to_device(constraint).")
    request = read_request(decoder, prompts, tables, asked, least_steps=16, allow_truncation=False)
    for i in np.flatnonzero(request.which < 0):
        raise DecodeError("the prompt has no constraint", where=f"prompt {i}", fix="Leave it out: its mass is 1.")
    return request


def enumerated(decoder: Any, request: Request, *, always_stop: bool, max_prefixes: int, ignore_below: float) -> Sequences | None:
    """The sequences, or None when there are too many; first with few rows, then with as many as are allowed."""
    tables = request.tables
    assert tables is not None
    if not is_whole(max_prefixes, 0):
        raise DecodeError(f"max_prefixes is {shown(max_prefixes)}", fix="Give a whole number of at least 1, such as 1024.")
    if not is_number(ignore_below, 0) or ignore_below >= 1:
        raise DecodeError(f"ignore_below is {shown(ignore_below)}", fix="Give a probability below 1; 0 leaves nothing out.")
    if max_prefixes < request.num_prompts:
        return None
    least = np.float32(-np.inf if ignore_below == 0 else np.log(float(ignore_below)))
    given, (stop, least) = request.batch(), jax.device_put((np.bool_(checked_flag(always_stop, "always_stop")), least))
    state = first_state(request, 1, stop)
    for rows in sorted({max(min(_FIRST_PREFIXES, max_prefixes), request.num_prompts), max_prefixes}):
        check_places(rows, max(request.vocab_size, _CHILDREN), "prefixes")
        tree = walk_tree(decoder, tables, state, given, stop, least, room=Room(request.steps, rows, _CHILDREN * rows))
        if bool(to_host(tree.fits)):
            tree = to_host(tree)
            for prompt in np.flatnonzero(np.isnan(tree.ignored)):
                raise no_numbers(f"after prompt {prompt} or one of its continuations")
            return _collect(tree.levels, int(tree.depth), tree.empty, tree.ignored)
    return None


def _collect(levels: Levels, depth: int, empty: NDArray[np.bool_], ignored: NDArray[np.float32]) -> Sequences:
    """Reads the sequences off the tree."""
    found: list[tuple[int, int, list[int], bool, Any, Any]] = [(int(p), 0, [], False, 0, 0) for p in np.flatnonzero(empty)]
    prefixes: list[tuple[int, list[int]]] = []
    children: list[tuple[int, list[int]]] = [(p, []) for p in range(len(empty))]
    for t in range(depth):
        prefixes = [children[c] for c in levels.row[t] if c >= 0]
        for r, (owner, tokens) in enumerate(prefixes):
            if levels.stop[t, r] > -np.inf:
                found.append((owner, t, tokens, True, levels.stop[t, r], levels.stop_local[t, r]))
        children = []
        for c in np.flatnonzero(levels.parent[t] >= 0):
            owner, tokens = prefixes[levels.parent[t, c]]
            children.append((owner, [*tokens, int(levels.token[t, c])]))
            if levels.ends[t, c]:
                found.append((owner, t + 1, children[-1][1], False, levels.total[t, c], levels.local[t, c]))
    found.sort(key=lambda item: item[:2])
    return Sequences(
        tokens=[np.array(item[2], np.int32) for item in found],
        prompt=np.array([item[0] for item in found], np.int32),
        stopped=np.array([item[3] for item in found], bool),
        raw_logprobs=np.array([item[4] for item in found], np.float64),
        logprobs=np.array([item[5] for item in found], np.float64),
        ignored=ignored.astype(np.float64),
        num_prompts=len(empty),
    )
