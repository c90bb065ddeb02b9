"""Constraints for a canvas on the device: the edges of their automata, and which tokens each of them takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from jax_decode.canvas.unfolding import NEVER, TokenAutomaton, unfold
from jax_decode.decoding.inputs import read_ids
from jax_decode.errors import DecodeError, is_whole, named_arguments, shown
from jax_decode.tables.tables import checked_constraints

BLOCK = 64
"""Sets of fewer tokens are lists; larger ones are unions of token classes, whose tokens are read in blocks of this many."""
START = 1
"""Stands for the start of a text in any constraint."""
MAX_STATES = 8192
_LEAST = 64
_LEAST_WIDTHS = 4
"""Of `CanvasTables.leaving`, so that constraints of up to 8 edges at each state share a program."""
_NO_TOKEN = 2**30
"""An id past every vocabulary: reads of it are -inf."""


@dataclasses.dataclass(frozen=True)
class CanvasTables:
    """Constraints for a canvas; every array has a leading axis of C constraints. Made by `to_canvas`.

    Axes: S states, E edges, D edges of a state, T terms of labels, R wide token sets, K token classes, A listed tokens,
    G labels, J = R + A; padded to powers of two from 64 on, states as `leaving` has them.
    State 0 is dead, state 1 stands for the start; edge 0 leads from 0 to 0; label 0, set 0 and class 0 stand for none.

    Attributes:
      start: int32[C], the state of the start.
      distance: int32[C, S], least number of further tokens of a complete text.
      source, target: int32[C, E], states of each edge; edges of a state are neighbours.
      first_edge: int32[C, S], where the edges of each state begin; place: int32[C, D], 0 .. D - 1, no state has more.
      leaving: int32[C, W, n] for every power of two W up to D, the edges of states with at most W of them (and more than W / 2),
        0 for none; n is rounded up. States are numbered in this order.
      entering, entered: the same of the edges that lead to states; and int32[C, S], which column of all of them is a state's.
      edge_label: int32[C, E], the label of each edge: edges of the same tokens have one.
      term_label, term_value: int32[C, T], the label of each term, ascending, and its tokens: a wide set, or R + a listed token.
      first_term: int32[C, G], where the terms of each label begin, at most BLOCK.
      arc_token: int32[C, A], the listed tokens.
      token_class: int32[C, V], the class of every token among the wide sets: tokens of a class are in the same sets.
      order: int32[C, N], tokens by class, every class in whole blocks.
      block_class: int32[C, N / BLOCK], class of each block.
      held_row, held_class: int32[C, H], the classes of each wide set, by ascending set.
      holds: bool[C, R, K], whether a set holds a class.
    """

    start: jax.Array
    distance: jax.Array
    source: jax.Array
    target: jax.Array
    first_edge: jax.Array
    place: jax.Array
    leaving: tuple[jax.Array, ...]
    entering: tuple[jax.Array, ...]
    entered: jax.Array
    edge_label: jax.Array
    term_label: jax.Array
    term_value: jax.Array
    first_term: jax.Array
    arc_token: jax.Array
    token_class: jax.Array
    order: jax.Array
    block_class: jax.Array
    held_row: jax.Array
    held_class: jax.Array
    holds: jax.Array

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.token_class.shape[-1]

    def __repr__(self) -> str:
        count, states = self.distance.shape
        size = sum(table.nbytes for table in jax.tree.leaves(self))
        room = f"{states:,} states and {self.source.shape[1]:,} edges"
        return f"CanvasTables({count} constraint{'s' * (count != 1)}, room for {room}, {size / 1e6:.2f} MB)"


jax.tree_util.register_dataclass(CanvasTables, data_fields=[f.name for f in dataclasses.fields(CanvasTables)], meta_fields=[])


@named_arguments
def to_canvas(
    constraints: CompiledConstraint | CompiledItems | Sequence[CompiledConstraint | CompiledItems],
    *,
    max_depth: int = 4,
    max_states: int = MAX_STATES,
    pad_ids: Sequence[int] = (),
) -> CanvasTables:
    """Moves constraints to the device for a canvas.

    A text ends with one of the vocabulary's stop ids, or exactly where the canvas ends; behind a stop id come stop ids and
    `pad_ids` only.

    Args:
      constraints: one or more over one vocabulary: regular, with counters, sets of keys or a stack, or sets of items.
      max_depth: most stack cells of a text; deeper texts are not in the language of the canvas.
      max_states: limit of the states of each, when stacks and counters are written out.
      pad_ids: ids that may fill the canvas behind the end of a text, besides the stop ids.

    Raises:
      DecodeError: a constraint cannot be written out within the limits, or they belong to different vocabularies.
    """
    given = [constraints] if isinstance(constraints, (CompiledConstraint, CompiledItems)) else constraints
    given = checked_constraints(given, "to_canvas")
    for name, value in (("max_depth", max_depth), ("max_states", max_states)):
        if not is_whole(value, 0):
            raise DecodeError(f"{name} is {shown(value)}", fix="Give a whole number of at least 0.")
    pads = read_ids(pad_ids, given[0].vocab_size, "pad_ids", "Give a list of ids of the vocabulary.")
    laid = []
    for c in given:
        automaton = unfold(c, max_depth=max_depth, max_states=max_states)
        ends = [int(t) for t in c.stop_ids if t >= 0]
        behind = sorted({*ends, *pads})
        laid.append(_laid_out(_with_end(automaton, ends, behind), c.vocab_size))
    columns = [_columns([_degree(one, name) for one in laid]) for name in ("source", "target")]
    laid = [_numbered(one, *columns) for one in laid]
    names = ("start", "distance", "first_edge", "entered", "token_class")
    whole: dict[str, Any] = {name: np.stack([one.pop(name) for one in laid]) for name in names}
    for name in ("leaving", "entering"):
        whole[name] = tuple(np.stack(edges) for edges in zip(*[one.pop(name) for one in laid], strict=True))
    sizes = {name: _room(max(len(one[name]) for one in laid)) for name in laid[0] if name != "holds"}
    sizes["order"] = sizes["block_class"] * BLOCK
    rows, classes = (_room(max(one["holds"].shape[axis] for one in laid)) for axis in (0, 1))
    arrays = whole | {name: np.stack([_padded(name, one[name], n) for one in laid]) for name, n in sizes.items()}
    arrays["holds"] = np.zeros((len(laid), rows, classes), bool)
    for i, one in enumerate(laid):
        own_rows, own_classes = one["holds"].shape
        arrays["holds"][i, :own_rows, :own_classes] = one["holds"]
    # A listed token's number counts from the end of the wide sets, which is now the same for all constraints.
    arrays["place"] = np.broadcast_to(np.arange(sizes["place"], dtype=np.int32), arrays["place"].shape)
    arrays["term_value"] = np.where(arrays["term_value"] < 0, rows - 1 - arrays["term_value"], arrays["term_value"])
    return CanvasTables(**jax.tree.map(jax.numpy.asarray, arrays))


def _room(size: int) -> int:
    """Constraints of one room run in one program."""
    return max(1 << (size - 1).bit_length(), _LEAST)


def _degree(laid: dict[str, NDArray[Any]], end: str) -> NDArray[np.intp]:
    """How many edges have each state as their source or target."""
    return np.bincount(laid[end], minlength=len(laid["distance"]))


def _width(degree: NDArray[np.intp]) -> NDArray[np.intp]:
    """Logarithms of the least powers of two that are not below, for states of 1 edge or none 0."""
    return np.ceil(np.log2(np.maximum(degree, 1))).astype(np.intp)


def _columns(degrees: list[NDArray[np.intp]]) -> list[int]:
    """n of every array of `CanvasTables.leaving`, room for every constraint: in steps of a quarter of a power of two or, so that
    small constraints share a program, of several columns."""
    widths = max(_LEAST_WIDTHS, *(int(_width(degree).max()) + 1 for degree in degrees))
    most = np.stack([np.bincount(_width(degree), minlength=widths) for degree in degrees]).max(0)
    most[0] += 1  # START
    steps = [max(1 << max(int(n - 1).bit_length() - 3, 0), min(2 * _LEAST >> i, 16), 1) for i, n in enumerate(most)]
    return [max(-(-int(n) // step), 1) * step for n, step in zip(most, steps, strict=True)]


def _in_columns(
    edges: NDArray[np.intp], degree: NDArray[np.intp], columns: list[int]
) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """The column of every state, and edges of `CanvasTables.leaving`; `edges` are by state. Column START stays free."""
    width, number, out = _width(degree), np.zeros(len(degree), np.int32), []
    base, first = np.cumsum([0, *columns]), np.cumsum(degree) - degree
    for i, n in enumerate(columns):
        states = np.flatnonzero(width == i)
        own = np.arange(len(states)) + (i == 0) * (states > 0)
        number[states] = base[i] + own
        place, of_width = np.arange(1 << i)[:, None], np.zeros((1 << i, n), np.int32)
        of_width[:, own] = np.where(place < degree[states], edges[np.minimum(first[states] + place, len(edges) - 1)], 0)
        out.append(of_width)
    return number, out


def _numbered(laid: dict[str, NDArray[Any]], leaving: list[int], entering: list[int]) -> dict[str, Any]:
    """Arrays in which states are numbered as `CanvasTables.leaving` has them; `leaving` and `entering` are numbers of columns."""
    by_source, by_target = (np.argsort(laid[end], kind="stable") for end in ("source", "target"))
    number, edges = _in_columns(by_source, _degree(laid, "source"), leaving)
    entered, edges_to = _in_columns(by_target, _degree(laid, "target"), entering)
    out = {end: number[laid[end]] for end in ("source", "target")}
    for name, of_state in (("distance", laid["distance"]), ("first_edge", laid["first_edge"]), ("entered", entered)):
        out[name] = np.full(sum(leaving), NEVER if name == "distance" else 0, np.int32)
        out[name][number] = of_state
    out["distance"][START] = out["distance"][number[START]]
    return laid | out | {"start": number[START], "leaving": edges, "entering": edges_to}


def _padded(name: str, array: NDArray[Any], size: int) -> NDArray[Any]:
    """Padding: tokens that do not exist; edges, terms and sets 0, which lead nowhere."""
    fill = {"arc_token": _NO_TOKEN, "order": _NO_TOKEN}.get(name, 0)
    out = np.full(size, fill, array.dtype)
    out[: len(array)] = array
    return out


def _with_end(a: TokenAutomaton, ends: list[int], pads: list[int]) -> TokenAutomaton:
    """With a state behind the end of a text. States count from 1."""
    if not ends:
        return dataclasses.replace(a, source=a.source + 1, target=a.target + 1)
    accepting, end = np.flatnonzero(a.distance == 0) + 1, len(a.distance) + 1
    return TokenAutomaton(
        distance=np.append(a.distance, np.int32(0)),
        source=np.concatenate([a.source + 1, accepting, [end]]).astype(np.int32),
        target=np.concatenate([a.target + 1, np.full(len(accepting) + 1, end)]).astype(np.int32),
        tokens=[*a.tokens, *[np.array(ends, np.int64)] * len(accepting), np.array(pads, np.int64)],
    )


def _laid_out(a: TokenAutomaton, vocab_size: int) -> dict[str, NDArray[Any]]:
    """The arrays of `CanvasTables` of one constraint, unpadded; in `term_value` listed token i is -1 - i."""
    by_source = np.argsort(a.source, kind="stable")
    tokens = [a.tokens[e] for e in by_source]
    numbers: dict[bytes, int] = {}
    of_array = {id(t): numbers.setdefault(t.tobytes(), len(numbers) + 1) for t in tokens}
    labels = [np.frombuffer(key, np.int64) for key in numbers]
    sets = [t for t in labels if len(t) >= BLOCK]
    token_class, holds = _classes(sets, vocab_size)
    listed = [t for t in labels if len(t) < BLOCK]
    arc_token = np.unique(np.concatenate([np.zeros(0, np.int64), *listed]))
    term_label, term_value, row = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)], 0
    for label, t in enumerate(labels, 1):
        row += len(t) >= BLOCK
        values = np.array([row]) if len(t) >= BLOCK else -1 - np.searchsorted(arc_token, t)
        term_label.append(np.full(len(values), label))
        term_value.append(values)
    order, block_class = _blocks(token_class)
    held_row, held_class = np.nonzero(holds)
    source, labels_of_terms = np.concatenate([[0], a.source[by_source]]).astype(np.int32), np.concatenate(term_label)
    first_edge, first_term = (_firsts(x, n) for x, n in ((source, len(a.distance) + 1), (labels_of_terms, len(numbers) + 1)))
    return {
        "distance": np.concatenate([[NEVER], a.distance]).astype(np.int32),
        "source": source,
        "target": np.concatenate([[0], a.target[by_source]]).astype(np.int32),
        "first_edge": first_edge,
        "place": np.zeros(np.bincount(source).max(), np.int32),
        "edge_label": np.array([0, *(of_array[id(t)] for t in tokens)], np.int32),
        "term_label": labels_of_terms.astype(np.int32),
        "term_value": np.concatenate(term_value).astype(np.int32),
        "first_term": first_term,
        "arc_token": np.append(arc_token, _NO_TOKEN).astype(np.int32),
        "token_class": token_class,
        "order": order,
        "block_class": block_class,
        "held_row": np.append(held_row, 0).astype(np.int32),
        "held_class": np.append(held_class, 0).astype(np.int32),
        "holds": holds,
    }


def _firsts(ascending: NDArray[Any], count: int) -> NDArray[np.int32]:
    """Where each of 0 .. count - 1 begins in an array."""
    return ascending.searchsorted(np.arange(count)).astype(np.int32)


def _classes(sets: list[NDArray[np.int64]], vocab_size: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Classes of tokens that the same sets hold, class 0 for those in none; and bool[R + 1, K], the classes of every set."""
    split = np.zeros(vocab_size + 1, np.int64)  # one token more, which is in no set and comes first in its class
    outside = np.ones(vocab_size + 1, bool)
    for tokens in sets:  # splits every class by membership
        split *= 2
        split[tokens] += 1
        outside[tokens] = False
        split = np.unique(split, return_inverse=True)[1]
    found, classes = np.unique(np.where(outside, -1, split), return_inverse=True)
    token_class = classes[:-1].astype(np.int32)
    holds = np.zeros((len(sets) + 1, len(found)), np.bool_)
    for i, tokens in enumerate(sets, 1):
        holds[i, token_class[tokens]] = True
    return token_class, holds


def _blocks(token_class: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Tokens by class in whole blocks, and the class of every block; class 0 is left out."""
    order, classes = [np.full(BLOCK, _NO_TOKEN)], [np.zeros(1, np.int64)]
    by_class = np.argsort(token_class, kind="stable")
    ends = np.cumsum(np.bincount(token_class))
    for k in range(1, len(ends)):
        tokens = by_class[ends[k - 1] : ends[k]]
        blocks = -(-len(tokens) // BLOCK)
        order.append(np.pad(tokens, (0, blocks * BLOCK - len(tokens)), constant_values=_NO_TOKEN))
        classes.append(np.full(blocks, k))
    return np.concatenate(order).astype(np.int32), np.concatenate(classes).astype(np.int32)
