"""`pattern`: regular expressions of ECMA-262, as JSON Schema searches them in a decoded string.

A pattern becomes the syntax tree that the rest of the compiler knows, so lookahead and word boundaries are exact here too. It
is read as under the flag `u`, except that needless escapes such as `\\-` are allowed; `\\d`, `\\w`, `\\b` are ASCII, `.` excludes
line ends, `$` is the very end of the string.
"""

from __future__ import annotations

import functools

from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.automata.labelled_dfa import TextDfa, from_letters, num_moves
from fsa_compile.automata.labelled_product import product
from fsa_compile.automata.letter_dfa import LetterDfa, trim, without_unreachable
from fsa_compile.automata.minimize import minimize
from fsa_compile.errors import ConstraintError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.ecma_syntax import (
    parse_ecma,
)
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.patterns.regex_tree import Alternate, Anchor, Atomic, Chars, Concat, Look, Node, Repeat, Text
from fsa_compile.unicode.code_points import ANY, complement

_FEW_COUNTED, _SPELLED = 512, 20
"""States of a repetition up to which it is left to the automaton, and how many one character beyond ASCII takes."""

_FEW_WORDS = 64
"""Texts of a pattern that are listed."""


_FOUND: SizedMemo[TextDfa] = SizedMemo(1 << 19, num_moves)
"""Automata of patterns, kept for other schemas."""


def search_dfa(pattern: str, limits: CompileLimits) -> TextDfa:
    """The texts in which a pattern is found. Raises `PatternError`: the pattern is refused."""
    return _FOUND.get((pattern, limits), lambda: _search_dfa(pattern, limits))


def _search_dfa(pattern: str, limits: CompileLimits) -> TextDfa:
    tree = parse_ecma(pattern, limits)
    deadline = Deadline(limits)
    ended, open_, guarded = list[Node](), list[Node](), list[Node]()
    for branch, ends in map(_unanchored, _branches(tree)):
        if ends:
            ended.append(branch)
        elif _looks_around(branch):  # what comes later still matters
            guarded.append(Concat([branch, _anything()], 0, 0))
        else:
            open_.append(branch)
    parts = []
    if open_ and (found := build_automaton(_alternate(open_), limits, deadline)) is not None:
        parts.append(from_letters(_with_anything_after(found)))
    if ended or guarded:
        parts.append(from_letters(build_automaton(_alternate(ended + guarded), limits, deadline)))
    if not parts:
        return from_letters(None)
    if len(parts) == 1:
        return parts[0]
    return product(parts, lambda labels: int(any(labels)), limits.max_states, f"the pattern {pattern!r}")


def without_count(pattern: str) -> tuple[str, int, int | None] | None:
    """(pattern, low, high): a text matches exactly when it matches that pattern and has `low` to `high` code points.

    For a whole text in which one character is repeated many times, such as `^[a-z].{0,500}$`, and everything else has one length.
    A register can count what would otherwise be as many states. None for other patterns, and for those that are refused.
    """
    try:
        tree = parse_ecma(pattern, CompileLimits())
    except ConstraintError:
        return None
    branches = _branches(tree)
    items = _items(branches[0])
    if len(branches) > 1 or not (_is(items[:1], "text start") and _is(items[-1:], "text end")):
        return None
    counted = [item for item in items if isinstance(item, Repeat) and item.low != item.high]
    if len(counted) != 1:
        counted = [item for item in items if isinstance(item, Repeat)]
    others = [_length(item) for item in items if item not in counted]
    if len(counted) != 1 or None in others or _length(counted[0].item) != 1:
        return None
    (repeat,) = counted
    most = repeat.low if repeat.high is None else repeat.high
    written = pattern[repeat.start : repeat.end]
    if most * (1 if _is_ascii(repeat.item) else _SPELLED) <= _FEW_COUNTED or "{" not in written:
        return None
    fixed = sum(length for length in others if length is not None)
    endless = written[: written.rindex("{")] + "*"
    high = None if repeat.high is None else repeat.high + fixed
    return pattern[: repeat.start] + endless + pattern[repeat.end :], repeat.low + fixed, high


@functools.lru_cache(maxsize=1024)
def listed_words(pattern: str) -> tuple[str, ...] | None:
    """The texts of a pattern that is found in a few texts of printable ASCII only, such as `^(on|off)$`; None for any other.

    Words exclude each other, which does not show of patterns.
    """
    if not (pattern.startswith(("^", "(")) and pattern.endswith(("$", ")"))) or any(c in pattern for c in "*+{"):
        return None
    try:
        tree = parse_ecma(pattern, CompileLimits())
    except ConstraintError:
        return None
    words: list[str] = []
    for branch in _branches(tree):
        items = _items(branch)
        if not (_is(items[:1], "text start") and _is(items[-1:], "text end")):
            return None
        found = _texts(Concat(items[1:-1], 0, 0))
        if found is None:
            return None
        words += found
    return tuple(dict.fromkeys(words)) if len(words) <= _FEW_WORDS else None


def _texts(tree: Node) -> list[str] | None:
    """The texts of a tree, None when they are not a few of printable ASCII."""
    if isinstance(tree, Text):
        return [tree.text] if tree.text.isascii() and tree.text.isprintable() else None
    if isinstance(tree, Chars):
        found = [chr(c) for c in range(0x20, 0x7F) if tree.members[0] >> c & 1]
        return found if not tree.members[1] and len(found) == tree.members[0].bit_count() <= _FEW_WORDS else None
    if isinstance(tree, Alternate):
        branches = [_texts(branch) for branch in tree.branches]
        return None if None in branches else [text for branch in branches if branch for text in branch]
    if not isinstance(tree, Concat):
        return None
    out = [""]
    for item in tree.items:
        after = _texts(item)
        if after is None or len(out) * len(after) > _FEW_WORDS:
            return None
        out = [text + more for text in out for more in after]
    return out


def _length(tree: Node) -> int | None:
    """How many characters a tree reads, None when that may be one number or another."""
    if isinstance(tree, (Anchor, Look)):
        return 0
    if isinstance(tree, Chars):
        return 1
    if isinstance(tree, Text):
        return len(tree.text)
    if isinstance(tree, Repeat):
        length = _length(tree.item)
        return None if length is None or tree.low != tree.high else length * tree.low
    if isinstance(tree, (Concat, Alternate)):
        lengths = [_length(child) for child in (tree.items if isinstance(tree, Concat) else tree.branches)]
        if None not in lengths and (isinstance(tree, Concat) or len(set(lengths)) == 1):
            return sum(x for x in lengths if x is not None) if isinstance(tree, Concat) else lengths[0]
    return None


def _is_ascii(tree: Node) -> bool:
    if isinstance(tree, Chars):
        return not tree.members[1]
    children = tree.items if isinstance(tree, Concat) else tree.branches if isinstance(tree, Alternate) else ()
    return all(map(_is_ascii, children)) and (not isinstance(tree, Text) or tree.text.isascii())


def _looks_around(tree: Node) -> bool:
    """Whether a condition on the text around stands in the tree."""
    if isinstance(tree, (Anchor, Look)):
        return True
    children = tree.items if isinstance(tree, Concat) else tree.branches if isinstance(tree, Alternate) else ()
    return any(map(_looks_around, children)) or (isinstance(tree, (Repeat, Atomic)) and _looks_around(tree.item))


def _anything() -> Node:
    return Repeat(Chars(ANY, 0, 0), 0, None, 0, 0)


def _alternate(branches: list[Node]) -> Node:
    return branches[0] if len(branches) == 1 else Alternate(branches, 0, 0)


def _branches(tree: Node) -> list[Node]:
    if isinstance(tree, Alternate):
        return [leaf for branch in tree.branches for leaf in _branches(branch)]
    if isinstance(tree, Concat) and len(tree.items) == 1:
        return _branches(tree.items[0])
    return [tree]


def _items(tree: Node) -> list[Node]:
    return [leaf for item in tree.items for leaf in _items(item)] if isinstance(tree, Concat) else [tree]


def _unanchored(branch: Node) -> tuple[Node, bool]:
    """The branch with any text before it, unless it begins with `^`; and whether it ends with `$`, which is left out."""
    items = _items(branch)
    begins, ends = _is(items[:1], "text start"), _is(items[-1:], "text end")
    while _is(items[:1], "text start"):
        items = items[1:]
    while _is(items[-1:], "text end"):
        items = items[:-1]
    return Concat(items if begins else [_anything(), *items], 0, 0), ends


def _is(items: list[Node], kind: str) -> bool:
    return bool(items) and isinstance(items[0], Anchor) and items[0].kind == kind


def _with_anything_after(dfa: LetterDfa) -> LetterDfa:
    """The automaton whose final states read anything from then on."""
    everything = (1 << 128) - 1
    for j in range(len(dfa.atoms)):
        everything |= 1 << 128 + j
    rest = complement((0, tuple(sorted(r for ranges in dfa.atoms for r in ranges))))[1]
    atoms = list(dfa.atoms)
    if rest:
        everything |= 1 << 128 + len(atoms)
        atoms.append(rest)
    arcs = [[(everything, q)] if final else arcs for q, (arcs, final) in enumerate(zip(dfa.arcs, dfa.final))]
    found = trim(LetterDfa(arcs, dfa.final, atoms))
    assert found is not None  # a minimal automaton that accepts something
    return minimize(without_unreachable(found))
