"""The stack of a grammar constraint at a place in a text, in the grammar's words. Reads artifacts, NumPy only.

A *frame* is what the constraint is inside of: a rule or a long terminal that was called. Names come from the artifact's
`extra["controls"]` and `extra["symbols"]`; where there are none, numbers stand for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import unpack_row
from fsa_compile.artifact.configurations import Configuration, Source
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk


@dataclasses.dataclass(frozen=True)
class OpenFrame:
    """One frame that has been entered and not yet left.

    Attributes:
      name: the rules or terminals it may be (several begin alike, or are told apart by their end only), with ` | ` between them.
      since: number of tokens before the one that entered it; -1 for frames that are open from the start.
      register: count of the loop that the frame below it was in when it was entered, 0 where it counts nothing.
    """

    name: str
    since: int
    register: int


@dataclasses.dataclass(frozen=True)
class StackView:
    """One configuration of a constraint.

    Attributes:
      inside: where in the innermost frame the text stands.
      register: count of the loop the innermost frame is in, 0 where it counts nothing.
      frames: the open frames, outermost first; none in a regular constraint.
    """

    inside: str
    register: int
    frames: tuple[OpenFrame, ...]

    def __str__(self) -> str:
        return " › ".join([*(frame.name for frame in self.frames), self.inside])


class Outgoing(NamedTuple):
    """Tokens with one effect: the source they start from, what they do, and bool[V]."""

    source: Source
    effect: tuple[int, int, int, int]
    tokens: NDArray[np.bool_]


def outgoing_sets(walk: HostWalk) -> Iterator[Outgoing]:
    """The sets of tokens that can follow, one per effect, limits aside; end-of-text ids are in none."""
    c = walk.constraint
    if walk.finished:
        return
    for source in (source for at in walk.configurations for source in walk.sources(at)):
        n = source.node
        for g in range(c.group_offset[n], c.group_offset[n + 1]):
            effect = int(c.group_next[g]), int(c.group_push[g]), int(c.group_add[g]), int(c.group_set[g])
            yield Outgoing(source, effect, unpack_row(c.rows[c.group_row[g]], c.vocab_size))
        arcs = slice(c.arc_offset[n], c.arc_offset[n + 1])
        effects = c.effects[c.arc_effect[arcs], :4]
        kinds, which = np.unique(effects, axis=0, return_inverse=True)
        for i, kind in enumerate(kinds):
            tokens = np.zeros(c.vocab_size, bool)
            tokens[c.arc_token[arcs][which.ravel() == i]] = True
            yield Outgoing(source, (int(kind[0]), int(kind[1]), int(kind[2]), int(kind[3])), tokens)


def effects(walk: HostWalk) -> NDArray[np.int32]:
    """What each token does next, as a number: int32[V], 0 where it is forbidden, equal where the effect is the same."""
    out = np.zeros(walk.constraint.vocab_size, np.int32)
    allowed = walk.allowed()
    allowed[list(walk.constraint.stop_ids)] = False
    for i, found in enumerate(outgoing_sets(walk)):
        out[found.tokens & allowed] = i + 1
    return out


def stack_at(constraint: CompiledConstraint, ids: Iterable[int]) -> tuple[StackView, ...]:
    """The configurations of a constraint after some tokens: one unless it was compiled with several stacks.

    Args:
      ids: token ids, allowed one after the other.

    Raises:
      ValueError: one of the tokens is not allowed.
    """
    return stack_history(constraint, ids)[-1]


def stack_history(constraint: CompiledConstraint, ids: Iterable[int]) -> list[tuple[StackView, ...]]:
    """`stack_at` before the first token, and after each; the arguments are its."""
    walk = constraint.walk()
    since = {at: (-1,) * len(at.stack) for at in walk.configurations}
    history = [tuple(_view(constraint, at, since[at]) for at in walk.configurations)]
    for position, token in enumerate(ids):
        before = [(at, source) for at in walk.configurations for source in walk.sources(at)]
        walk.advance(token)
        since = {at: _since(at, before, since, position) for at in walk.configurations}
        history.append(tuple(_view(constraint, at, since[at]) for at in walk.configurations))
    return history


def control_name(constraint: CompiledConstraint, node: int) -> str:
    """What a node stands for, in the grammar's words where the artifact has them."""
    names = constraint.extra.get("controls", [])
    return names[node - 1] if 0 < node <= len(names) and names[node - 1] else f"state {node}"


def symbol_name(constraint: CompiledConstraint, symbol: int) -> str:
    """What a stack symbol waits for, in the grammar's words where the artifact has them."""
    names = constraint.extra.get("symbols", [])
    return names[symbol] if symbol < len(names) and names[symbol] else f"frame {symbol}"


def _view(constraint: CompiledConstraint, at: Configuration, since: tuple[int, ...]) -> StackView:
    frames = [
        OpenFrame(symbol_name(constraint, cell.symbol), when, cell.register) for cell, when in zip(at.stack, since, strict=True)
    ]
    return StackView(control_name(constraint, at.node), at.register, tuple(frames))


def _since(
    at: Configuration, before: list[tuple[Configuration, Source]], since: dict[Configuration, tuple[int, ...]], position: int
) -> tuple[int, ...]:
    """When each cell was pushed: those that a source left as they were keep their time, the fewest if several could have."""
    kept = [since[old][: source.left] for old, source in before if old.stack[: source.left] == at.stack[: source.left]]
    fitting = [times for times in kept if len(times) <= len(at.stack)]
    longest = max(fitting, key=len, default=())
    return longest + (position,) * (len(at.stack) - len(longest))
