"""Programs with a keyword in the place of a name or before it: where a lexer knows keywords only where they may stand, they are
read as names."""

from __future__ import annotations

import random
import re


def keywords_of(grammar: str) -> list[str]:
    """Words that a grammar in Lark's syntax has in quotes, or in patterns that ignore case."""
    quoted = re.findall(r'"([A-Za-z_]+)"i?', grammar)
    patterns = re.findall(r"\(\?ai:([a-z_|]+)\)", grammar)
    return sorted({*quoted, *(word for part in patterns for word in part.split("|"))})


def with_keyword(draw: random.Random, text: str, words: list[str]) -> str:
    """The text with one of the words instead of one of its own, or in a fifth of the cases before it."""
    place = draw.choice(list(re.finditer(r"[A-Za-z_]\w*", text)))
    rest = text[place.end() :] if draw.random() < 0.8 else " " + text[place.start() :]
    return text[: place.start()] + draw.choice(words) + rest
