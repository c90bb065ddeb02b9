"""What runs a compiled constraint on a text: each executor answers for many pairs of a row of `corpus.constraints` and a text."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pynini
from corpus.constraints import ROWS
from oracles.toy import every_byte

import jax_decode
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.automata.labels import byte_label
from fsa_compile.automata.openfst import to_pynini
from jax_decode import FunctionDecoder, PromptLookup, Status

VOCABULARY = every_byte([b'{"', b'":', b'", "', b"]}", b"}}", b"[1", b"tr", b"true", b" else ", b"12", b"null", b"))"])
STOP = VOCABULARY.stop_ids[0]
_BY_TEXT: dict[bytes, list[int]] = {}
for _id, _token in enumerate(VOCABULARY.tokens):
    _BY_TEXT.setdefault(_token, []).append(_id)


class Pair(NamedTuple):
    """A row of the table by its number, a text, and whether the text is of the row's language."""

    row: int
    text: str
    good: bool


PAIRS = tuple(
    Pair(number, text, good) for number, row in enumerate(ROWS) for good in (True, False) for text in (row.accepted if good else row.rejected)
)


@functools.cache
def compiled(row: int) -> CompiledConstraint:
    """The artifact of a row."""
    return ROWS[row].compile(VOCABULARY)


def spelled(pair: Pair) -> list[int]:
    """The text in tokens, cut at places that depend on the text alone, with a stop token."""
    rng, out, rest = random.Random(pair.text), [], pair.text.encode()
    while rest:
        pieces = [rest[:n] for n in range(1, 9) if n <= len(rest) and rest[:n] in _BY_TEXT]
        piece = rng.choice(pieces)
        out.append(rng.choice(_BY_TEXT[piece]))
        rest = rest[len(piece) :]
    return [*out, STOP]


def by_judge(pairs: Sequence[Pair], folder: Path) -> list[bool | None]:
    """The other implementation's verdict."""
    judges = [ROWS[pair.row].judge for pair in pairs]
    return [None if judge is None else judge(pair.text) for judge, pair in zip(judges, pairs)]


def by_openfst(pairs: Sequence[Pair], folder: Path) -> list[bool | None]:
    """Whether OpenFst finds a path of the text through the language's automaton, composed with every spelling of its tokens."""
    automata: dict[int, pynini.Fst] = {}
    out: list[bool | None] = []
    for pair in pairs:
        if (dfa := ROWS[pair.row].dfa) is None:
            out.append(None)
            continue
        if pair.row not in automata:
            automata[pair.row] = to_pynini(dfa())
        text = pynini.Fst()
        at = text.add_state()
        text.set_start(at)
        for byte in pair.text.encode():
            after = text.add_state()
            text.add_arc(at, pynini.Arc(byte_label(byte), byte_label(byte), 0, after))
            at = after
        text.set_final(at)
        out.append(pynini.intersect(text, automata[pair.row]).start() != pynini.NO_STATE_ID)
    return out


def _walks(constraint: CompiledConstraint, tokens: Sequence[int]) -> bool:
    walk = constraint.walk()
    for token in tokens:
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return True


def by_walk(pairs: Sequence[Pair], folder: Path) -> list[bool | None]:
    """The artifact on the host."""
    return [_walks(compiled(pair.row), spelled(pair)) for pair in pairs]


def by_reloaded(pairs: Sequence[Pair], folder: Path) -> list[bool | None]:
    """The artifact on the host, read from its file."""
    loaded: dict[int, CompiledConstraint] = {}
    for row in {pair.row for pair in pairs}:
        compiled(row).save(folder / f"{row}.npz")
        loaded[row] = CompiledConstraint.load(folder / f"{row}.npz")
    return [_walks(loaded[pair.row], spelled(pair)) for pair in pairs]


@functools.partial(jax.jit, static_argnames="max_tokens")
def _followed(tables, which, tokens, *, max_tokens: int):
    """Whether every row's tokens were allowed in their turn; tokens: int32[B, T], -1 behind the end."""
    state = jax_decode.init_state(tables, which, jnp.full(which.shape, 1 << 20, jnp.int32), max_tokens=max_tokens)

    def step(carry, token):
        state, good = carry
        allowed = jax_decode.mask(tables, state)
        mine = jnp.take_along_axis(allowed, jnp.maximum(token, 0)[:, None], axis=1)[:, 0]
        state = jax_decode.advance(tables, state, jnp.where(good & mine, token, -1))
        return (state, good & (mine | (token < 0))), None

    good = jnp.ones(which.shape, bool)
    (state, good), _ = jax.lax.scan(step, (state, good), tokens.T)
    return good & (state.status == Status.ACCEPTED)


_BATCH = 256
"""Rows of a batch; texts of like length share one, so that a long text is not waited for by thousands of short ones."""


def _on_device(pairs: Sequence[Pair], run: Callable[..., Sequence[bool]]) -> list[bool | None]:
    """Runs the pairs in batches of one kind: without a stack, with one, with several, with sets of keys."""
    kinds: dict[tuple[bool, ...], list[int]] = {}
    for place, pair in enumerate(pairs):
        c = compiled(pair.row)
        kinds.setdefault((c.is_regular, c.stacks > 1, c.has_sets), []).append(place)
    out: list[bool | None] = [None] * len(pairs)
    for places in kinds.values():
        rows = sorted({pairs[place].row for place in places})
        tables = jax_decode.to_device([compiled(row) for row in rows])
        ids = {place: spelled(pairs[place]) for place in places}
        places.sort(key=lambda place: len(ids[place]))
        size = min(_BATCH, len(places))
        for begin in range(0, len(places), size):
            batch = places[begin : begin + size]
            batch += places[: size - len(batch)]
            longest = max(len(ids[place]) for place in batch)
            tokens = np.full((size, 1 << max(longest - 1, 15).bit_length()), -1, np.int32)  # a power of two: widths share programs
            for row, place in enumerate(batch):
                tokens[row, : len(ids[place])] = ids[place]
            which = np.array([rows.index(pairs[place].row) for place in batch], np.int32)
            for place, good in zip(batch, run(tables, which, tokens), strict=True):
                out[place] = bool(good)
    return out


def by_device(pairs: Sequence[Pair], folder: Path) -> list[bool | None]:
    """Masks and transitions in one jitted scan over a batch of all constraints of a kind."""

    def run(tables, which, tokens):
        return np.asarray(_followed(tables, jnp.asarray(which), jnp.asarray(tokens), max_tokens=tokens.shape[1]))

    return _on_device(pairs, run)


def _apply(params, tokens, cache, lengths):
    """A model that wants to write one text per row: the row's number is its prompt, in two tokens."""
    count, number = cache
    place = count[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    begins = (count == 0)[:, None] & (jnp.arange(2)[None] < tokens.shape[1])
    weight = jnp.array([VOCABULARY.size, 1], jnp.int32)[: tokens.shape[1]]
    first = jnp.where(begins[:, : tokens.shape[1]], tokens[:, :2] * weight, 0).sum(axis=1)
    number = jnp.where(count == 0, first, number)
    wanted = params["texts"][number[:, None], jnp.clip(place - 1, 0, params["texts"].shape[1] - 1)]
    return jax.nn.one_hot(wanted, VOCABULARY.size) * 50.0, (count + lengths, number)


def _rewound(cache, kept):
    count, number = cache
    return jnp.minimum(count, kept), number


def _empty(batch, length):
    return jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.int32)


def by_drafts(pairs: Sequence[Pair], folder: Path) -> list[bool | None]:
    """Whether a model that wants to write the text gets it through, with drafts and forced runs."""

    def run(tables, which, tokens):
        decoder = FunctionDecoder(_apply, {"texts": jnp.maximum(jnp.asarray(tokens), 0)}, _empty, VOCABULARY.size, _rewound)
        prompts = [divmod(row, VOCABULARY.size) for row in range(len(tokens))]
        out = jax_decode.generate(
            decoder, [list(p) for p in prompts], tables, constraint=which.tolist(), max_new_tokens=tokens.shape[1],
            draft=PromptLookup(3), forced=3, key=jax.random.key(0), allow_truncation=True,
        )  # fmt: skip
        texts = [VOCABULARY.decode(ids) for ids in out.tokens]
        meant = [VOCABULARY.decode([t for t in row if t >= 0 and t != STOP]) for row in tokens.tolist()]
        return [text == wanted and how == Status.ACCEPTED for text, wanted, how in zip(texts, meant, out.status)]

    return _on_device(pairs, run)


EXECUTORS: dict[str, Callable[[Sequence[Pair], Path], list[bool | None]]] = {
    "judge": by_judge,
    "openfst": by_openfst,
    "host walk": by_walk,
    "reloaded": by_reloaded,
    "device": by_device,
    "drafts": by_drafts,
}
"""Each takes all pairs at once and gives a verdict on each, or None where it cannot judge that row."""
