"""The constraint whose texts are one text: its token sequences are all tokenizations of that text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fsa_compile.artifact.arrays import ARC_BURST, UNREACHABLE
from fsa_compile.artifact.constraint import CompiledConstraint
from jax_decode.errors import DecodeError, named_arguments, shown


@named_arguments
def tokenizations(texts: Sequence[str], tokenizer: Any) -> list[CompiledConstraint]:
    """A constraint for every text that allows exactly the token sequences that write its bytes.

    Node 1 + i stands before byte i, so a text of n bytes has n + 2 nodes, and an arc per token that its bytes hold somewhere.

    Args:
      texts: one or more.
      tokenizer: has, or is, a vocabulary with `tokens` (bytes by id, empty for ids that are not text), `stop_ids` and
        `fingerprint`, as `fsa_compile.load_tokenizer` gives.

    Returns:
      The constraints, in order, all over the tokenizer's vocabulary.

    Raises:
      DecodeError: a text is none, or no token sequence writes it.
    """
    vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
    if not all(hasattr(vocabulary, name) for name in ("tokens", "stop_ids", "fingerprint")):
        what = f"a {type(tokenizer).__name__} is no tokenizer"
        raise DecodeError(what, fix="Pass what fsa_compile.load_tokenizer(path) returns.")
    if not isinstance(texts, Sequence) or isinstance(texts, (str, bytes)) or not all(isinstance(text, str) for text in texts):
        raise DecodeError(f"the texts are {shown(texts)}, not a list of texts", fix="Give a list of strings.")
    for i, text in enumerate(texts):
        if not text.isascii() and (lone := next((c for c in text if "\ud800" <= c <= "\udfff"), "")):
            what = f"the text holds the lone surrogate U+{ord(lone):04X}, which no token can spell"
            raise DecodeError(what, where=f"text {i}", fix="Give texts of whole characters.")
    spelled = [text.encode() for text in texts]
    ids = _ids_of(vocabulary, spelled)
    return [_lattice(vocabulary, text, ids, f"text {i}") for i, text in enumerate(spelled)]


def _ids_of(vocabulary: Any, texts: Iterable[bytes]) -> dict[bytes, list[int]]:
    """The ids of every token that occurs in the texts."""
    longest = max(map(len, vocabulary.tokens), default=0)
    parts = {text[i : i + n] for text in texts for i in range(len(text)) for n in range(1, min(longest, len(text) - i) + 1)}
    ids: dict[bytes, list[int]] = {}
    for i, token in enumerate(vocabulary.tokens):
        if token in parts:
            ids.setdefault(token, []).append(i)
    return ids


def _lattice(vocabulary: Any, text: bytes, ids: dict[bytes, list[int]], where: str) -> CompiledConstraint:
    length, longest = len(text), max(map(len, ids), default=0)
    distance = np.full(length + 2, int(UNREACHABLE), np.int64)
    distance[-1] = 0
    arcs: list[list[tuple[int, int]]] = [[] for _ in range(length + 2)]
    for i in reversed(range(length)):
        for n in range(1, min(longest, length - i) + 1):
            after = 1 + i + n
            if distance[after] <= length:
                arcs[1 + i] += [(token, after) for token in ids.get(text[i : i + n], ())]
        if arcs[1 + i]:
            distance[1 + i] = 1 + min(distance[after] for _, after in arcs[1 + i])
    if distance[1] > length:
        raise DecodeError("no token sequence writes the text", where=where, fix="Check that the tokenizer is the model's.")
    return _packed(vocabulary, text, [sorted(mine) for mine in arcs], distance)


def _packed(vocabulary: Any, text: bytes, arcs: list[list[tuple[int, int]]], distance: np.ndarray) -> CompiledConstraint:
    """The artifact; a node with too many arcs for a list gets bit rows, one per cost."""
    nodes, words = len(arcs), (len(vocabulary.tokens) + 31) // 32
    rows, levels, level_offset = [np.zeros(words, np.uint32)], [], [0]
    for mine in arcs:
        if len(mine) > ARC_BURST:
            tokens, after = np.array(mine).T
            for cost in np.unique(1 + distance[after]):
                row = np.zeros(words, np.uint32)
                fits = tokens[1 + distance[after] <= cost]
                np.bitwise_or.at(row, fits >> 5, np.uint32(1) << (fits & 31).astype(np.uint32))
                levels.append((cost, len(rows)))
                rows.append(row)
        level_offset.append(len(levels))
    flat = np.array([arc for mine in arcs for arc in mine], np.int32).reshape(-1, 2)
    level = np.array(levels, np.int32).reshape(-1, 2)
    none = np.zeros(0, np.int32)
    return CompiledConstraint(
        vocab_size=len(vocabulary.tokens),
        fingerprint=vocabulary.fingerprint,
        stop_ids=tuple(vocabulary.stop_ids),
        source=f"tokenizations of {text.decode()!r}",
        start=1,
        accept=np.arange(nodes) == nodes - 1,
        distance=np.minimum(distance, UNREACHABLE).astype(np.int32),
        rows=np.stack(rows),
        group_offset=np.zeros(nodes + 1, np.int32),
        group_row=none,
        group_next=none,
        arc_offset=np.cumsum([0, *map(len, arcs)]).astype(np.int32),
        arc_token=flat[:, 0].copy(),
        arc_effect=flat[:, 1].copy(),
        level_offset=np.array(level_offset, np.int32),
        level_cost=level[:, 0].copy(),
        level_row=level[:, 1].copy(),
    )
