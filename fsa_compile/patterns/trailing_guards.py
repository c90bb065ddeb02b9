r"""Characters that may not follow a lexeme, as in `/select\b/` and `/[0-9]+(?![A-Za-z_])/`, and the bytes that they begin with.

In longest-match mode such a condition is no part of the lexeme: it only forbids the lexeme to end before some characters. One
that demands a character forbids all others, and the end of the text. Which first bytes are forbidden is exact: a byte with which
both forbidden and other characters begin matters only where some lexeme can begin with it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from fsa_compile.patterns.regex_tree import Alternate, Anchor, Atomic, Chars, Concat, Look, Node, Repeat, Text
from fsa_compile.unicode.code_points import ANY, NONE, CodePointSet, Ranges, complement, intersection, interval, single, union
from fsa_compile.unicode.properties import category

Arcs = Sequence[tuple[int, int]]
"""(set of bytes, next state) pairs; a set of bytes is a bit set."""

WORD_BYTES = sum(1 << b for b in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
"""Word characters of one byte, as a set of bytes."""
END_OF_TEXT = 0x110000
"""Stands for the end of the text among the characters that may not follow."""
_MOST_WORDS, _LONGEST = 64, 8
_ASCII, _DOLLAR = (1 << 0x80) - 1, 1 << ord("$")
_LEADS = [(b, interval(b - 0xC0 << 6, (b - 0xBF << 6) - 1)) for b in range(0xC2, 0xE0)]
_LEADS += [(b, interval(max(b - 0xE0 << 12, 0x800), (b - 0xDF << 12) - 1)) for b in range(0xE0, 0xF0)]
_LEADS += [(b, interval(max(b - 0xF0 << 18, 0x10000), min((b - 0xEF << 18) - 1, 0x10FFFF))) for b in range(0xF0, 0xF5)]


def forbidden_next(condition: Node, before: Node) -> CodePointSet | None:
    """What a condition forbids to follow; None when it is no such condition."""
    match condition:
        case Look(item=item, behind=False, negative=True):
            return first_character(item)
        case Look(item=item, behind=False):
            demanded = first_character(item)
            return None if demanded is None else union(complement(demanded), single(END_OF_TEXT))
        case Anchor(kind="word boundary", word=word):
            last = _last_characters(before)
            return word if last is not None and intersection(last, complement(word)) == NONE else None
    return None


def forbidden_words(condition: Node) -> list[tuple[CodePointSet, ...]] | None:
    """The words that a lookahead forbids to follow, each the sets of its characters; None where it is no such condition."""
    if not isinstance(condition, Look) or condition.behind:
        return None
    words = _words(condition.item)
    if words is None or () in words or (len(words) != 1 and not condition.negative):
        return None
    if condition.negative:
        return words
    (word,) = words
    others = [complement(members) for members in word]
    others[-1] = union(others[-1], single(END_OF_TEXT))
    return [(*[ANY] * place, members) for place, members in enumerate(others)]


def _words(tree: Node) -> list[tuple[CodePointSet, ...]] | None:
    """The texts of a tree as sets of characters; None where they are many, long, or held to conditions."""
    out: list[tuple[CodePointSet, ...]] = [()]
    match tree:
        case Chars(members=members):
            return [(members,)]
        case Text(text=text):
            return [tuple(single(ord(letter)) for letter in text)] if len(text) <= _LONGEST else None
        case Alternate(branches=branches):
            found = [_words(branch) for branch in branches]
            out = [word for words in found if words is not None for word in words]
            return out if None not in found and len(out) <= _MOST_WORDS else None
        case Concat(items=parts):
            pass
        case Repeat(item=item, low=low, high=high) if low == high and low <= _LONGEST:
            parts = [item] * low
        case _:
            return None
    for part in parts:
        words = _words(part)
        if words is None or len(out) * len(words) > _MOST_WORDS or any(len(a) + len(b) > _LONGEST for a in out for b in words):
            return None
        out = [a + b for a in out for b in words]
    return out


def first_character(tree: Node) -> CodePointSet | None:
    """The characters with one of which a text must begin to match the tree; None when that does not decide it."""
    match tree:
        case Chars(members=members):
            return members
        case Text(text=text) if len(text) == 1:
            return single(ord(text))
        case Repeat(item=item, low=1) | Atomic(item=item):
            return first_character(item)
        case Alternate(branches=branches):
            sets = [first_character(branch) for branch in branches]
            return union(*(s for s in sets if s is not None)) if None not in sets else None
        case Concat(items=[first, *rest]) if all(isinstance(item, Repeat) and item.low == 0 for item in rest):
            return first_character(first)
    return None


def _last_characters(tree: Node) -> CodePointSet | None:
    """The characters with which a text of the tree ends; None when that is not known, or the text may be empty."""
    match tree:
        case Chars(members=members):
            return members
        case Text(text=text) if text:
            return single(ord(text[-1]))
        case Repeat(item=item, low=low) if low:
            return _last_characters(item)
        case Atomic(item=item):
            return _last_characters(item)
        case Alternate(branches=branches):
            sets = [_last_characters(branch) for branch in branches]
            return union(*(s for s in sets if s is not None)) if None not in sets else None
        case Concat(items=[*items, Repeat(item=item, low=0)]):
            sets = [_last_characters(item), _last_characters(Concat(items, tree.start, tree.end))]
            return union(*(s for s in sets if s is not None)) if None not in sets else None
        case Concat(items=[*_, last]):
            return _last_characters(last)
    return None


def forbidden_bytes(forbidden: CodePointSet, automata: Sequence[Sequence[Arcs]]) -> int | None:
    """The bytes before which a lexeme may not end, as a bit set.

    Args:
      forbidden: characters that may not follow it.
      automata: arcs by state of everything that may follow, over bytes; state 0 is initial.

    Returns:
      The bytes; None when characters of both kinds may follow that begin with the same byte.
    """
    out = forbidden[0]
    for byte, characters in _LEADS:
        inside, outside = _sides(byte, characters, forbidden, automata)
        if inside and outside:
            return None
        out |= inside << byte
    return out


def glued_bytes(arcs: Sequence[Arcs], state: int, automata: Sequence[Sequence[Arcs]]) -> int:
    """The bytes before which a keyword may not end, where a name could go on with a word character.

    Where all ASCII characters of the automaton are word characters or $, all its characters are taken for word characters.

    Args:
      arcs: by state of the automaton of names, over bytes.
      state: its state behind the keyword.
      automata: as in `forbidden_bytes`.

    Returns:
      The bytes, but for those with which also other characters begin that may follow.
    """
    symbols = _read(arcs[state : state + 1])
    names = not _read(arcs) & _ASCII & ~(WORD_BYTES | _DOLLAR)
    out = symbols & (WORD_BYTES | (_DOLLAR if names else 0))
    for byte, characters in _LEADS if symbols >> 0x80 else ():
        if symbols >> byte & 1:
            on = _begun(byte, [(arcs, state)])
            on = on if names else intersection(on, category("w"))
            out |= (_sides(byte, characters, on, automata) == (True, False)) << byte
    return out


def _read(arcs: Sequence[Arcs]) -> int:
    """The bytes that are read from any of some states."""
    out = 0
    for moves in arcs:
        for symbols, _ in moves:
            out |= symbols
    return out


def all_words(arcs: Sequence[Arcs], final: Sequence[bool]) -> bool:
    """Whether each text of an automaton over bytes consists of two word characters and more."""
    for state, moves in enumerate(arcs):
        for symbols, _ in moves:
            if symbols & _ASCII & ~WORD_BYTES:
                return False
            for byte, _ in _LEADS if symbols >> 0xC0 else ():
                if symbols >> byte & 1 and intersection(_begun(byte, [(arcs, state)]), complement(category("w"))) != NONE:
                    return False
    ends = [target for _, target in arcs[0]]
    for q in ends:  # and on inside the first character
        ends += [target for symbols, target in arcs[q] if symbols >> 0x80 & (1 << 64) - 1]
    return not any(final[q] for q in ends)


def _sides(byte: int, characters: CodePointSet, forbidden: CodePointSet, automata: Sequence[Sequence[Arcs]]) -> tuple[bool, bool]:
    """Whether forbidden characters, and whether others, of those with a first byte, may follow."""
    inside = 0, _within(characters[1], forbidden[1])
    outside = intersection(characters, complement(inside))
    if inside[1] and outside[1]:
        begun = _begun(byte, [(arcs, 0) for arcs in automata])
        inside, outside = intersection(inside, begun), intersection(outside, begun)
    return bool(inside[1]), bool(outside[1])


def _within(few: Ranges, many: Ranges) -> Ranges:
    """What few ranges have in common with many, which are searched."""
    out = []
    for low, high in few:
        at = bisect.bisect_left(many, low, key=lambda pair: pair[1])
        while at < len(many) and many[at][0] <= high:
            out.append((max(low, many[at][0]), min(high, many[at][1])))
            at += 1
    return tuple(out)


def _begun(byte: int, begins: Sequence[tuple[Sequence[Arcs], int]]) -> CodePointSet:
    """The characters of more than one byte, the first one given, with which texts from states of automata begin."""
    length, value = (2, byte & 0x1F) if byte < 0xE0 else (3, byte & 0x0F) if byte < 0xF0 else (4, byte & 0x07)
    ranges: set[tuple[int, int]] = set()
    todo = [(arcs, q, value, length - 1) for arcs, state in begins for symbols, q in arcs[state] if symbols >> byte & 1]
    while todo:
        arcs, q, value, left = todo.pop()
        for symbols, target in arcs[q]:
            if symbols >> 0x80 & (1 << 64) - 1 == (1 << 64) - 1 and left == 1:
                ranges.add((value << 6, value << 6 | 0x3F))
                continue
            for low in range(64):
                if symbols >> (0x80 + low) & 1:
                    if left == 1:
                        ranges.add((value << 6 | low, value << 6 | low))
                    else:
                        todo.append((arcs, target, value << 6 | low, left - 1))
    return union(*(interval(low, high) for low, high in ranges)) if ranges else NONE
