r"""How strings are written: as Python literals, or raw between marks. The only module that knows.

Python: every character but the quote, the backslash and control characters as itself, and every character by an escape (`\n`,
`\x41`, `\u0041`, `\U00000041`), but for halves of surrogate pairs. Raw: every character as itself.
"""

from __future__ import annotations

import functools

from fsa_compile.automata.labelled_dfa import Row
from fsa_compile.json_schema.machine_builder import Bounds, Controls, Moves
from fsa_compile.json_schema.schema_options import Escapes
from fsa_compile.json_schema.string_spelling import BACKSLASH, Pieces, Speller, Tree, _classes, _hex_node, _utf8_tree

_LETTERS = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 0x22: '"', 0x27: "'", 0x5C: "\\"}
_DIGITS = (("x", 2, 0xFF), ("u", 4, 0xFFFF), ("U", 8, 0x10FFFF))
"""Letter, number of hexadecimal digits, and the last character that may be written so."""
_HIDDEN = ((0, 0x1F), (0x7F, 0x7F))
"""Characters that are always escaped, besides the quote and the backslash."""


class PythonSpeller(Speller):
    """Strings between quotes of one kind.

    Args:
      quote: the byte of the quote.
    """

    def __init__(self, controls: Controls, quote: int) -> None:
        super().__init__(controls)
        self.quote = quote

    def _spell(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> Moves:
        targets, pieces = _classes(row)
        out = [
            (a, z, targets[tree]) if isinstance(tree, int) else (a, z, self._control(tree, targets, bounds))
            for a, z, tree in _raw(pieces, self.quote)
        ]
        hidden = (*_HIDDEN, (self.quote, self.quote), (BACKSLASH, BACKSLASH))
        escaped = _escape_tree(pieces if escapes == "all" else _within(pieces, tuple(sorted(hidden))))
        if escaped is not None:
            out.append((BACKSLASH, BACKSLASH, self._control(escaped, targets, bounds)))
        return tuple(out)

    def encoded(self, text: str) -> bytes:
        """The spelling that escapes least, without the quotes."""
        return "".join([_escaped(c) if _is_hidden(ord(c), self.quote) else c for c in text]).encode()


class RawSpeller(Speller):
    """Strings whose every character stands for itself.

    Args:
      close: the byte that ends them.
    """

    def __init__(self, controls: Controls, close: int) -> None:
        super().__init__(controls)
        self.quote = close

    def _spell(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> Moves:
        targets, pieces = _classes(row)
        out = [(max(a, 0), min(z, 0x7F), targets[c]) for a, z, c in pieces if a <= 0x7F]
        wide = tuple([(max(a, 0x80), z, c) for a, z, c in pieces if z >= 0x80])
        if wide:
            out += self._hang(_utf8_tree(wide), targets, bounds)
        return tuple(out)

    def encoded(self, text: str) -> bytes:
        """The text itself."""
        return text.encode()


def _is_hidden(code_point: int, quote: int) -> bool:
    return code_point in (quote, BACKSLASH) or any(a <= code_point <= z for a, z in _HIDDEN)


def _escaped(character: str) -> str:
    letter = _LETTERS.get(ord(character))
    return f"\\{letter}" if letter else f"\\x{ord(character):02x}"


def _within(pieces: Pieces, ranges: tuple[tuple[int, int], ...]) -> Pieces:
    """The parts of the pieces inside some ranges."""
    return tuple(
        sorted((max(a, low), min(z, high), c) for low, high, c in pieces for a, z in ranges if low <= z and a <= high)
    )


def _raw(pieces: Pieces, quote: int) -> list[tuple[int, int, Tree | int]]:
    """The moves of characters that stand for themselves."""
    plain = tuple(
        (a, z)
        for a, z in ((0x20, min(quote, BACKSLASH) - 1), (min(quote, BACKSLASH) + 1, max(quote, BACKSLASH) - 1),
                     (max(quote, BACKSLASH) + 1, 0x7E))
    )  # fmt: skip
    out: list[tuple[int, int, Tree | int]] = list(_within(pieces, plain))
    wide = tuple([(max(a, 0x80), z, c) for a, z, c in pieces if z >= 0x80])
    return [*out, *_utf8_tree(wide).moves] if wide else out


@functools.lru_cache(maxsize=4096)
def _escape_tree(pieces: Pieces) -> Tree | None:
    """What follows a backslash."""
    moves: list[tuple[int, int, Tree | int]] = []
    for low, high, c in pieces:
        moves += [(ord(letter), ord(letter), c) for code_point, letter in _LETTERS.items() if low <= code_point <= high]
    for letter, digits, last in _DIGITS:
        inside = [(low, min(high, last), c) for low, high, c in pieces if low <= last]
        below = _hexadecimal(inside, 0, digits, {})
        if isinstance(below, Tree):
            moves.append((ord(letter), ord(letter), below))
    return Tree(tuple(sorted(moves, key=lambda move: move[0]))) if moves else None


def _hexadecimal(
    pieces: list[tuple[int, int, int]], low: int, digits: int, whole: dict[tuple[int, int], Tree | int]
) -> Tree | int | None:
    """The tree of `digits` digits for the code points from `low` on; a subtree inside one piece is made once."""
    high = low + (1 << 4 * digits) - 1
    inside = [piece for piece in pieces if piece[0] <= high and piece[1] >= low]
    if not inside:
        return None
    if not digits:
        return inside[0][2]
    key = (inside[0][2], digits)
    covered = inside[0][0] <= low and inside[0][1] >= high
    if covered and key in whole:
        return whole[key]
    step = 1 << 4 * digits - 4
    made = _hex_node([_hexadecimal(inside, low + h * step, digits - 1, whole) for h in range(16)])
    if covered and made is not None:
        whole[key] = made
    return made
