r"""How strings are written: as Python literals, or raw between marks. The only module that knows.

Python: every character but the quote, the backslash and control characters as itself, and every character by an escape (`\n`,
`\x41`, `\u0041`, `\U00000041`), but for halves of surrogate pairs. Raw: every character as itself.
"""

from __future__ import annotations

from fsa_compile.automata.labelled_dfa import Row
from fsa_compile.json_schema import string_spelling as spelling
from fsa_compile.json_schema.machine_builder import Bounds, Controls, Moves
from fsa_compile.json_schema.schema_options import Escapes

_LETTERS = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 0x22: '"', 0x27: "'", 0x5C: "\\"}
_FORMS = spelling.EscapeForms(
    tuple(_LETTERS.items()), (("x", 2, ((0, 0xFF),)), ("u", 4, ((0, 0xFFFF),)), ("U", 8, ((0, 0x10FFFF),)))
)
_HIDDEN = ((0, 0x1F), (0x7F, 0x7F))
"""Characters that are always escaped, besides the quote and the backslash."""


class PythonSpeller(spelling.Speller):
    """Strings between quotes of one kind. `quote`: the byte of the quote."""

    def __init__(self, controls: Controls, quote: int) -> None:
        super().__init__(controls)
        self.quote = quote

    def _spell(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> Moves:
        targets, pieces = spelling.classes(row)
        out = [
            (a, z, targets[tree]) if isinstance(tree, int) else (a, z, self._control(tree, targets, bounds))
            for a, z, tree in _raw(pieces, self.quote)
        ]
        hidden = (*_HIDDEN, (self.quote, self.quote), (spelling.BACKSLASH, spelling.BACKSLASH))
        escaped = spelling.tree_of_escapes(pieces if escapes == "all" else _within(pieces, tuple(sorted(hidden))), _FORMS)
        if escaped is not None:
            out.append((spelling.BACKSLASH, spelling.BACKSLASH, self._control(escaped, targets, bounds)))
        return tuple(out)

    def encoded(self, text: str) -> bytes:
        """The spelling that escapes least, without the quotes."""
        return "".join([_escaped(c) if _is_hidden(ord(c), self.quote) else c for c in text]).encode()


class RawSpeller(spelling.Speller):
    """Strings whose every character stands for itself. `close`: the byte that ends them."""

    def __init__(self, controls: Controls, close: int) -> None:
        super().__init__(controls)
        self.quote = close

    def _spell(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> Moves:
        targets, pieces = spelling.classes(row)
        out = [(max(a, 0), min(z, 0x7F), targets[c]) for a, z, c in pieces if a <= 0x7F]
        wide = tuple([(max(a, 0x80), z, c) for a, z, c in pieces if z >= 0x80])
        if wide:
            out += self._hang(spelling.utf8_tree(wide), targets, bounds)
        return tuple(out)

    def encoded(self, text: str) -> bytes:
        """The text itself."""
        return text.encode()


def _is_hidden(code_point: int, quote: int) -> bool:
    return code_point in (quote, spelling.BACKSLASH) or any(a <= code_point <= z for a, z in _HIDDEN)


def _escaped(character: str) -> str:
    letter = _LETTERS.get(ord(character))
    return f"\\{letter}" if letter else f"\\x{ord(character):02x}"


def _within(pieces: spelling.Pieces, ranges: tuple[tuple[int, int], ...]) -> spelling.Pieces:
    """The parts of the pieces inside some ranges."""
    return tuple(
        sorted((max(a, low), min(z, high), c) for low, high, c in pieces for a, z in ranges if low <= z and a <= high)
    )


def _raw(pieces: spelling.Pieces, quote: int) -> list[tuple[int, int, spelling.Tree | int]]:
    """The moves of characters that stand for themselves."""
    low, high = sorted((quote, spelling.BACKSLASH))
    plain = (0x20, low - 1), (low + 1, high - 1), (high + 1, 0x7E)
    out: list[tuple[int, int, spelling.Tree | int]] = list(_within(pieces, plain))
    wide = tuple([(max(a, 0x80), z, c) for a, z, c in pieces if z >= 0x80])
    return [*out, *spelling.utf8_tree(wide).moves] if wide else out
