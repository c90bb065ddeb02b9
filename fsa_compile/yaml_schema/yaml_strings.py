r"""How YAML writes a string: in double quotes with escapes, in single quotes, or plain. The only module that knows.

Characters stand for themselves where readers of every version take them so: printable ones that break no lines. In double quotes
`"` and `\` are escaped, and every character outside printable ASCII may be: by its letter, or as `\xXX`, `\uXXXX`, `\UXXXXXXXX`.
Pairs of surrogates, which JSON has, mean two characters in YAML and are not written.
"""

from __future__ import annotations

import itertools

from fsa_compile.automata.labelled_dfa import Row
from fsa_compile.json_schema import string_spelling as spelling
from fsa_compile.json_schema.machine_builder import Bounds, Moves
from fsa_compile.json_schema.schema_options import Escapes

APOSTROPHE = 0x27
_RAW = ((0x20, 0x7E), (0xA0, 0x2027), (0x202A, 0xD7FF), (0xE000, 0xFEFE), (0xFF00, 0xFFFD), (0x10000, 0x10FFFF))
"""Characters that stand for themselves."""
_LETTERS = {
    0: "0", 7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 27: "e", 0x22: '"', 0x5C: "\\", 0x85: "N", 0xA0: "_",
    0x2028: "L", 0x2029: "P",
}  # fmt: skip
_FORMS = spelling.EscapeForms(tuple(_LETTERS.items()), (
    ("x", 2, ((0, 0x1F), (0x7F, 0xFF))),
    ("u", 4, ((0, 0x1F), (0x7F, 0xD7FF), (0xE000, 0xFFFF))),
    ("U", 8, ((0x10000, 0x10FFFF),)),
))  # fmt: skip


class YamlSpeller(spelling.Speller):
    """Spells the states of strings into controls; `body` is for double quotes.

    Escapes are "all", or "shortest": only of characters that do not stand for themselves.
    """

    def _spell(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> Moves:
        targets, pieces = spelling.classes(row)
        out = self._raw(row, b'"\\', bounds)
        escaped = spelling.tree_of_escapes(pieces if escapes == "all" else _needing_escape(pieces), _FORMS)
        if escaped is not None:
            out.append((spelling.BACKSLASH, spelling.BACKSLASH, self._control(escaped, targets, bounds)))
        return tuple(out)

    def single(self, row: Row, close: int, bounds: Bounds | None = None) -> Moves:
        """The moves of a state in single quotes, in which two apostrophes stand for one.

        Args:
          row: next control by code point.
          close: control after the closing apostrophe, 0 when the string may not end here. It must read no apostrophe.
          bounds: of a counted frame that the controls belong to; it reads no apostrophes.
        """
        moves = tuple(self._raw(row, b"'", bounds))
        if bounds is not None:
            return moves
        again = next((t for low, high, t in row if low <= APOSTROPHE <= high), 0)
        if not again:
            return (*moves, (APOSTROPHE, APOSTROPHE, close)) if close else moves
        key = ("after an apostrophe", again, close)

        def make(control: int) -> None:
            controls = self._controls
            controls.outcome[control] = controls.outcome[close]
            controls.moves[control] = (*controls.moves[close], (APOSTROPHE, APOSTROPHE, again))

        return (*moves, (APOSTROPHE, APOSTROPHE, self._controls.later(key, make)))

    def plain(self, row: Row, bounds: Bounds | None = None) -> Moves:
        """The moves of a state in a plain scalar."""
        return tuple(self._raw(row, b"", bounds))

    def _raw(self, row: Row, without: bytes, bounds: Bounds | None) -> list[tuple[int, int, int]]:
        """The moves of characters that stand for themselves."""
        out: list[tuple[int, int, int]] = []
        wide: list[tuple[int, int, int]] = []
        for low, high, target in row:
            for a, z in _RAW:
                a, z = max(low, a), min(high, z)
                if a > z:
                    continue
                if z > 0x7F:
                    wide.append((a, z, target))
                    continue
                for mark in without:
                    if a <= mark <= z:
                        if a < mark:
                            out.append((a, mark - 1, target))
                        a = mark + 1
                if a <= z:
                    out.append((a, z, target))
        if wide:
            targets, pieces = spelling.classes(tuple(wide))
            out += self._hang(spelling.utf8_tree(pieces), targets, bounds)
        return out


def encoded(text: str) -> bytes:
    """The spelling of a text in double quotes that escapes least, without the quotes."""
    return "".join(map(_character, text)).encode()


def _character(c: str) -> str:
    if c in '"\\' or not any(a <= ord(c) <= z for a, z in _RAW):
        letter = _LETTERS.get(ord(c))
        return f"\\{letter}" if letter else f"\\x{ord(c):02X}" if ord(c) < 0x100 else f"\\u{ord(c):04X}"
    return c


def _needing_escape(pieces: spelling.Pieces) -> spelling.Pieces:
    """The parts that do not stand for themselves."""
    gaps = [(a + 1, b - 1) for (_, a), (b, _) in itertools.pairwise([(0, -1), *_RAW, (0x110000, 0x110000)])]
    gaps += [(spelling.QUOTE, spelling.QUOTE), (spelling.BACKSLASH, spelling.BACKSLASH)]
    return tuple(sorted((max(a, low), min(z, high), c) for low, high, c in pieces for a, z in gaps if low <= z and a <= high))
