"""What the extension groups mean, said again in the plainest Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Member = Callable[[str], bool]


def is_quoted(text: str) -> bool:
    """Read character by character: a quote opens and closes, a backslash takes the next character with it."""
    if len(text) < 2 or text[0] != '"' or "\n" in text or "\r" in text:
        return False
    i = 1
    while i < len(text):
        if text[i] == '"':
            return i == len(text) - 1
        i += 2 if text[i] == "\\" else 1
    return False


def is_plain_scalar(text: str) -> bool:
    """Rule `ns-plain-one-line` of YAML 1.2.2 in a flow collection, without tabs and the line breaks of YAML 1.1."""

    def safe(c: str) -> bool:
        printable = 0x21 <= ord(c) <= 0x7E or 0xA0 <= ord(c) <= 0xFFFD or ord(c) >= 0x10000
        return printable and c not in ",[]{}\u2028\u2029\ufeff"

    if not text or text[0] == " " or text[-1] == " ":
        return False
    for i, c in enumerate(text):
        before, after = text[i - 1 : i] if i else "", text[i + 1 : i + 2]
        followed = bool(after) and safe(after)
        if c == " ":
            continue
        if not safe(c):
            return False
        if i == 0 and c in "-?:":
            if not followed:
                return False
        elif (i == 0 and c in "#&*!|>'\"%@`") or (c == "#" and before == " ") or (c == ":" and not followed):
            return False
    return True


def is_until(stops: Sequence[str]) -> Member:
    """The first place where a stop phrase ends is the end of the text."""

    def member(text: str) -> bool:
        ends = [i for i in range(len(text) + 1) if any(text[:i].endswith(stop) for stop in stops)]
        return bool(ends) and ends[0] == len(text)

    return member


def is_list(element: str, delimiter: str, low: int = 1, high: int | None = None) -> Member:
    """By `re`."""
    more = "" if high is None else high - 1
    pattern = re.compile(f"(?:{element})(?:(?:{delimiter})(?:{element})){{{max(low - 1, 0)},{more}}}")
    return lambda text: (not text and low == 0) or pattern.fullmatch(text) is not None


def is_subsequence(elements: Sequence[str], delimiter: str, allow_empty: bool = False) -> Member:
    """All subsets written out."""
    texts = {""} if allow_empty else set()
    for bits in range(1, 1 << len(elements)):
        texts.add(delimiter.join(e for i, e in enumerate(elements) if bits >> i & 1))
    return lambda text: text in texts


def concatenated(*parts: Member | str) -> Member:
    """Some way of cutting the text gives each part its own."""

    def fits(text: str, rest: tuple[Member | str, ...]) -> bool:
        if not rest:
            return not text
        first = rest[0]
        if isinstance(first, str):
            return text.startswith(first) and fits(text[len(first) :], rest[1:])
        return any(first(text[:i]) and fits(text[i:], rest[1:]) for i in range(len(text) + 1))

    return lambda text: fits(text, parts)
