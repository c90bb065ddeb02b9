"""How JSON writes a string: decoded code points become raw UTF-8 bytes and escapes. The only module that knows.

What a state reads is cut into classes, one per next state. The bytes of a character that tell classes apart are a tree whose
shape depends on the classes alone, kept for the life of the process; a state is spelt by hanging its targets on the leaves.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from fsa_compile.automata.labelled_dfa import Row, loop
from fsa_compile.automata.utf8 import template
from fsa_compile.json_schema.machine_builder import Bounds, Controls, Moves
from fsa_compile.json_schema.schema_options import Escapes
from fsa_compile.unicode.code_points import normal

Pieces: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""(first code point, last code point, class), sorted and disjoint."""

QUOTE, BACKSLASH = 0x22, 0x5C
_SHORT = {0x22: '"', 0x5C: "\\", 0x2F: "/", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t"}
_LONG_CONTROLS = ((0, 7), (11, 11), (14, 0x1F))
"""Control characters that have no short escape."""
_HEX_BYTES = [sorted({ord(f"{h:x}"), ord(f"{h:X}")}) for h in range(16)]


class Tree:
    """A node of the bytes of one character.

    Attributes:
      moves: (first byte, last byte, subtree or class of the completed character).
      classes: classes that its leaves name.
    """

    __slots__ = ("classes", "moves")

    moves: tuple[tuple[int, int, Tree | int], ...]
    classes: tuple[int, ...]

    def __init__(self, moves: tuple[tuple[int, int, Tree | int], ...]) -> None:
        self.moves = moves
        found: set[int] = set()
        for _, _, child in moves:
            found.update((child,) if isinstance(child, int) else child.classes)
        self.classes = tuple(sorted(found))


class Speller:
    """Spells the states of string bodies into controls. `quote`: the byte that closes a string."""

    quote = QUOTE

    def __init__(self, controls: Controls) -> None:
        self._controls = controls
        self._hung: dict[object, int] = {}
        self._bodies: dict[object, Moves] = {}
        self._beyonds: dict[object, Moves] = {}

    def body(self, row: Row, close: int, escapes: Escapes, bounds: Bounds | None = None) -> Moves:
        """The moves of a state inside a string.

        Args:
          row: next control by decoded code point.
          close: control after the closing quote, 0 when the string may not end here.
          escapes: which spellings are allowed.
          bounds: of the counted frame that the controls inside a character belong to.
        """
        key = (row, escapes, bounds)
        moves = self._bodies.get(key)
        if moves is None:
            moves = self._bodies[key] = self._spell(row, escapes, bounds)
        return (*moves, (self.quote, self.quote, close)) if close else moves

    def branching(self, branches: list[tuple[int, int]], others: int, close: int) -> Moves:
        """The moves of a state that a few characters leave for another control than all others, in the shortest spelling.

        Args:
          branches: (plain character, next control), ascending; control 0: the character is not read.
          others: next control after all other characters, 0 when none is read.
          close: see `body`.
        """
        out: list[tuple[int, int, int]] = []
        todo = iter(branches)
        byte, target = next(todo)
        moves: Moves = self.body(loop(others), 0, "shortest") if others else ((0x20, 0x7E, 0),)
        for at, (low, high, after) in enumerate(moves):
            if byte > 0xFF:
                out += moves[at:]
                break
            while low <= byte <= high:
                if after and low < byte:
                    out.append((low, byte - 1, after))
                if target:
                    out.append((byte, byte, target))
                low = byte + 1
                byte, target = next(todo, (0x100, 0))
            if after and low <= high:
                out.append((low, high, after))
        return (*out, (self.quote, self.quote, close)) if close else tuple(out)

    def _spell(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> Moves:
        out: list[tuple[int, int, int]] = []
        rest = []
        for piece in row:
            low, high, target = piece
            if low > 0x7F:
                rest.append(piece)
                continue
            if low == high and low >= 0x20 and low != QUOTE and low != BACKSLASH:
                out.append(piece)
                if escapes == "shortest":
                    continue
            else:
                out += [(a, z, target) for a, z in _without_marks(max(low, 0x20), min(high, 0x7F))]
            rest.append(piece)
        return (*out, *self._beyond(tuple(rest), escapes, bounds)) if rest else tuple(out)

    def _beyond(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> Moves:
        """The moves of characters that are no ASCII, and of escapes.

        Rows that differ only in ASCII characters have the same in their shortest spelling, so these are cut out of the key.
        """
        if escapes == "shortest":
            row = tuple([piece for low, high, t in row for piece in _kept(low, high, t)])
        key = (row, escapes, bounds)
        found = self._beyonds.get(key)
        if found is None:
            found = self._beyonds[key] = tuple(self._spell_beyond(row, escapes, bounds))
        return found

    def _spell_beyond(self, row: Row, escapes: Escapes, bounds: Bounds | None) -> list[tuple[int, int, int]]:
        out = []
        targets, pieces = classes(row)
        wide = tuple([(max(a, 0x80), z, c) for a, z, c in pieces if z >= 0x80])
        if wide:
            out += self._hang(utf8_tree(wide), targets, bounds)
        escaped = _escape_tree(pieces, pieces) if escapes == "all" else _escape_tree(*_needing_escape(pieces))
        if escaped is not None:
            out.append((BACKSLASH, BACKSLASH, self._control(escaped, targets, bounds)))
        return out

    def _hang(self, tree: Tree, targets: Sequence[int], bounds: Bounds | None) -> list[tuple[int, int, int]]:
        return [
            (a, z, targets[child] if isinstance(child, int) else self._control(child, targets, bounds))
            for a, z, child in tree.moves
        ]

    def _control(self, tree: Tree, targets: Sequence[int], bounds: Bounds | None) -> int:
        key = (tree, bounds, *[targets[c] for c in tree.classes])
        found = self._hung.get(key)
        if found is None:
            found = self._hung[key] = self._controls.node(self._hang(tree, targets, bounds), bounds)
        return found


def is_plain(row: Row) -> bool:
    """Whether a state reads nothing but single characters that are written as one ASCII byte in the shortest spelling."""
    return all(low == high and 0x20 <= low < 0x7F and low != QUOTE and low != BACKSLASH for low, high, _ in row)


def _kept(low: int, high: int, target: int) -> list[tuple[int, int, int]]:
    """The parts of a range that are not written as one ASCII byte: control characters, the marks, and what is beyond ASCII."""
    if high < 0x20 or low > 0x7F:
        return [(low, high, target)]
    parts = ((0, 0x1F), (QUOTE, QUOTE), (BACKSLASH, BACKSLASH), (0x80, 0x10FFFF))
    return [(max(low, a), min(high, z), target) for a, z in parts if low <= z and a <= high]


def _without_marks(low: int, high: int) -> list[tuple[int, int]]:
    """An ASCII range without the quote and the backslash."""
    out = []
    for mark in (QUOTE, BACKSLASH):
        if low <= mark <= high:
            if low < mark:
                out.append((low, mark - 1))
            low = mark + 1
    if low <= high:
        out.append((low, high))
    return out


def encoded(text: str) -> bytes:
    """The shortest spelling of a text inside a string."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text.encode()
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def classes(row: Row) -> tuple[list[int], Pieces]:
    """Targets in the order of their first use, and the row with targets numbered so."""
    number: dict[int, int] = {}
    pieces = tuple([(low, high, number.setdefault(target, len(number))) for low, high, target in row])
    return list(number), pieces


def _needing_escape(pieces: Pieces) -> tuple[Pieces, Pieces]:
    """The parts whose shortest spelling is a short escape, and those that need hexadecimal digits."""
    short = [(mark, mark, c) for mark in _SHORT if mark != ord("/") for a, z, c in pieces if a <= mark <= z]
    digits = [(max(a, low), min(z, high), c) for low, high, c in pieces for a, z in _LONG_CONTROLS if a <= high and low <= z]
    return tuple(sorted(short)), tuple(sorted(digits))


# UTF-8


@functools.lru_cache(maxsize=4096)
def utf8_tree(pieces: Pieces) -> Tree:
    """The bytes of the characters from U+0080 on."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for low, high, c in pieces:
        ranges.setdefault(c, []).append((low, high))
    lead, rows = template(tuple([normal(of_class) for of_class in ranges.values()]))
    classes = [*ranges]
    trees: list[Tree] = []
    for row in [*rows.tolist(), lead.tolist()]:  # children come before their parents
        moves: list[tuple[int, int, Tree | int]] = []
        byte = 0x80
        for entry, run in itertools.groupby(row):
            after = byte + len(list(run))
            if entry:
                moves.append((byte, after - 1, classes[-entry - 1] if entry < 0 else trees[entry - 1]))
            byte = after
        trees.append(Tree(tuple(moves)))
    return trees[-1]


# escapes


@functools.lru_cache(maxsize=4096)
def _escape_tree(short: Pieces, digits: Pieces) -> Tree | None:
    r"""What follows a backslash: short escapes, \uXXXX, and pairs of these for the characters from U+10000 on."""
    moves: list[tuple[int, int, Tree | int]] = []
    for low, high, c in short:
        moves += [(ord(letter), ord(letter), c) for code_point, letter in _SHORT.items() if low <= code_point <= high]
    hexadecimal = _Hexadecimal(digits).root()
    if hexadecimal is not None:
        moves.append((ord("u"), ord("u"), hexadecimal))
    return Tree(tuple(moves)) if moves else None


class _Hexadecimal:
    r"""The trees of hexadecimal digits that tell the classes of code points apart."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._starts = [low for low, _, _ in pieces]
        self._uniform: dict[tuple[int, int, int], Tree | int] = {}

    def root(self) -> Tree | None:
        return _hex_node([self._after_d() if h == 13 else self._digits(h << 12, 3, 1) for h in range(16)])

    def _after_d(self) -> Tree | None:
        """After the digit D: U+D000 to U+D7FF, then the first halves of pairs; lone halves are no characters."""
        low: list[Tree | int | None] = [self._digits(0xD000 + (g << 8), 2, 1) for g in range(8)]
        pairs: list[Tree | int | None] = [self._digits(0x10000 + (g << 18), 2, 1024) for g in range(4)]
        return _hex_node([*low, *pairs, None, None, None, None])

    def _digits(self, low: int, digits: int, span: int) -> Tree | int | None:
        """The tree of the next digits, whose values stand for `span` code points each, from `low` on."""
        high = low + (span << 4 * digits) - 1
        at = max(0, bisect.bisect_right(self._starts, low) - 1)
        inside = [p for p in self._pieces[at : bisect.bisect_right(self._starts, high)] if p[1] >= low]
        if not inside:
            return None
        if len(inside) == 1 and inside[0][0] <= low and inside[0][1] >= high:
            return self._all_of(inside[0][2], digits, span)
        if digits:
            return _hex_node([self._digits(low + h * (span << 4 * digits - 4), digits - 1, span) for h in range(16)])
        quarters: list[Tree | int | None] = [self._digits(low + (i << 8), 2, 1) for i in range(4)]
        return _second_half(quarters)

    def _all_of(self, c: int, digits: int, span: int) -> Tree | int:
        """The tree below which everything is in one class."""
        if not digits and span == 1:
            return c
        key = (c, digits, span)
        found = self._uniform.get(key)
        if found is None:
            if digits:
                made = _hex_node([self._all_of(c, digits - 1, span)] * 16)
            else:
                made = _second_half([self._all_of(c, 2, 1)] * 4)
            assert made is not None
            found = self._uniform[key] = made
        return found


def _second_half(quarters: list[Tree | int | None]) -> Tree | None:
    r"""`\uDXXX` with a second digit C to F."""
    tree = _hex_node([*[None] * 12, *quarters])
    for letters in (b"Dd", b"u", b"\\"):
        if tree is None:
            return None
        tree = Tree(tuple((byte, byte, tree) for byte in letters))
    return tree


def _hex_node(children: Sequence[Tree | int | None]) -> Tree | None:
    """One hexadecimal digit."""
    moves: list[tuple[int, int, Tree | int]] = []
    for byte, child in sorted((byte, h) for h in range(16) for byte in _HEX_BYTES[h] if children[h] is not None):
        target = children[child]
        assert target is not None
        if moves and moves[-1][1] + 1 == byte and moves[-1][2] == target:
            moves[-1] = (moves[-1][0], byte, target)
        else:
            moves.append((byte, byte, target))
    return Tree(tuple(moves)) if moves else None


class EscapeForms(NamedTuple):
    """How characters are escaped behind a backslash.

    letters: code points, and the letter that stands for each; digits: a letter, the number of hexadecimal digits behind it, and
    the ranges of code points that may be written so.
    """

    letters: tuple[tuple[int, str], ...]
    digits: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...]


@functools.lru_cache(maxsize=4096)
def tree_of_escapes(pieces: Pieces, forms: EscapeForms) -> Tree | None:
    """What follows a backslash where characters may be escaped in these forms."""
    moves: list[tuple[int, int, Tree | int]] = []
    for low, high, c in pieces:
        moves += [(ord(letter), ord(letter), c) for code_point, letter in forms.letters if low <= code_point <= high]
    for letter, digits, ranges in forms.digits:
        inside = [(max(a, low), min(z, high), c) for low, high, c in pieces for a, z in ranges if low <= z and a <= high]
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
