"""Random small byte-pair encoders, and what they make of texts by plain simulation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

ALPHABET = (b"a", b"b", b"c")


def random_encoder(rng: random.Random, letters: int = 2, merges: int = 6) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Tokens and merges in order, as training would find them: parts exist before they are merged; (x, x) is common."""
    return random_merges(rng, ALPHABET[:letters], merges)


def random_merges(rng: random.Random, letters: Sequence[bytes], merges: int) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The same over any letters, single bytes."""
    tokens = list(letters)
    pairs: list[tuple[int, int]] = []
    for _ in range(50 * merges):  # with one letter there may be fewer
        if len(pairs) == merges:
            break
        left = rng.randrange(len(tokens))
        right = left if rng.random() < 0.3 else rng.randrange(len(tokens))
        if tokens[left] + tokens[right] not in tokens and len(tokens[left] + tokens[right]) <= 6:
            pairs.append((left, right))
            tokens.append(tokens[left] + tokens[right])
    return tokens, pairs


def encode(text: bytes, tokens: list[bytes], merges: list[tuple[int, int]]) -> list[int]:
    """Applies the merges one after another over the whole text, each from left to right."""
    ids = [tokens.index(bytes([byte])) for byte in text]
    for left, right in merges:
        made = tokens.index(tokens[left] + tokens[right])
        out: list[int] = []
        for token in ids:
            if out and out[-1] == left and token == right:
                out[-1] = made
            else:
                out.append(token)
        ids = out
    return ids


def all_texts(letters: int, longest: int) -> list[bytes]:
    """All texts of 1 to `longest` letters."""
    return [b"".join(t) for n in range(1, longest + 1) for t in itertools.product(ALPHABET[:letters], repeat=n)]
