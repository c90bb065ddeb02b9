"""`Splitter`: a pre-tokenizer as a small automaton over character classes that checks claimed cuts.

A pre-tokenizer is a regular expression of which the leftmost match, by priority, is cut off again and again. Whether a cut lies
before a character may depend on text that comes later: two spaces are one piece before a line break and two before a word. So the
token sequence *claims* its cuts, and the automaton checks the claim:

    state = (threads of the match that is running, in order of priority; threads that must never match any more)

A claimed cut before a character is right if the running match can end there, lookahead included; its threads of higher priority
that survive the character become obligations, since the real matcher would have preferred them. No two ways to claim the cuts of
one text are both accepted.

Source: thread lists by priority as in Cox 2009, "Regular Expression Matching: the Virtual Machine Approach".
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.arrays.graphs import Numbers, reached, refined_table
from fsa_compile.arrays.integers import exampled
from fsa_compile.canonical.encoder import splitter_syntax as syntax
from fsa_compile.canonical.encoder.character_classes import NUM_CODE_POINTS, SURROGATES, members
from fsa_compile.canonical.encoder.encoder import Engine
from fsa_compile.errors import UnsupportedPatternError

_END = -1
_MAX_STATES = 20_000
_MATCH, _CHARACTER, _NOT_NEXT, _AT_END, _SPLIT = range(5)


@dataclasses.dataclass(frozen=True, eq=False)
class Splitter:
    """The automaton, minimal and trimmed. State 0 is the start of a text, where nothing was read.

    Axes: S states, C character classes.

    Attributes:
      class_of: int16[0x110000], class of each code point, -1 for surrogates.
      next: int32[S, C], state after a character, -1 for none.
      cut: int32[S], state after a claimed cut, -1 where none may be claimed; the next thing read is then a character.
      final: bool[S], whether the text may end.
    """

    class_of: np.ndarray
    next: np.ndarray
    cut: np.ndarray
    final: np.ndarray


def build_splitter(pattern: str, engine: Engine) -> Splitter:
    """The automaton of a splitting pattern.

    Raises:
      UnsupportedPatternError: the pattern is outside the dialect of `splitter_syntax`, may match nothing, does not cover every
        character, or has more states than allowed.
    """
    tree = syntax.parse_splitter(pattern)
    class_of, sets = _classes(sorted(syntax.items_of(tree)), engine)
    program = _Program(pattern, tree, sets)
    raw = _determinize(program, int(class_of.max()) + 1)
    return Splitter(class_of, *_minimize(*raw))


def _classes(items: list[str], engine: Engine) -> tuple[np.ndarray, dict[str, frozenset[int]]]:
    """Class of every code point (one class: in the same sets), and the classes of each item."""
    bits = np.zeros(NUM_CODE_POINTS, np.int64)
    for k, item in enumerate(items):
        bits |= members(item, engine).astype(np.int64) << k
    bits[SURROGATES] = bits[0]
    kinds, class_of = np.unique(bits, return_inverse=True)
    class_of = class_of.ravel().astype(np.int16)
    class_of[SURROGATES] = -1
    sets = {item: frozenset(np.flatnonzero(kinds >> k & 1).tolist()) for k, item in enumerate(items)}
    return class_of, sets


class _Program:
    """The pattern as instructions for threads: node 0 is a match."""

    def __init__(self, pattern: str, tree: syntax.Splitting, sets: dict[str, frozenset[int]]) -> None:
        self._pattern, self._sets = pattern, sets
        self.nodes: list[tuple[int, frozenset[int], list[int]]] = [(_MATCH, frozenset(), [])]
        self.start = self._compile(tree, 0)
        if self.closure((self.start,), _END)[1]:
            raise self._refused("it can match nothing, so it does not say how a text is cut")

    def _refused(self, what: str) -> UnsupportedPatternError:
        return UnsupportedPatternError(
            f"canonical tokenization cannot follow this splitting pattern: {what}", pattern=self._pattern, start=0
        )

    def _node(self, kind: int, classes: frozenset[int], after: list[int]) -> int:
        self.nodes.append((kind, classes, after))
        return len(self.nodes) - 1

    def _compile(self, tree: syntax.Splitting, after: int) -> int:
        match tree:
            case syntax.Character(item):
                return self._node(_CHARACTER, self._sets[item], [after])
            case syntax.NotNext(item):
                return self._node(_NOT_NEXT, self._sets[item], [after])
            case syntax.AtEnd():
                return self._node(_AT_END, frozenset(), [after])
            case syntax.Sequence(parts):
                for part in reversed(parts):
                    after = self._compile(part, after)
                return after
            case syntax.Choice(branches):
                return self._node(_SPLIT, frozenset(), [self._compile(branch, after) for branch in branches])
        return self._repeat(tree, after)

    def _repeat(self, tree: syntax.Repeat, after: int) -> int:
        if tree.possessive:
            self._check_possessive(tree, after)
        if tree.high is None:
            loop = self._node(_SPLIT, frozenset(), [])
            body = self._compile(tree.part, loop)
            self.nodes[loop][2].extend([body, after])
            first = loop
            for _ in range(tree.low):
                first = self._compile(tree.part, first)
            return first
        leave = after
        for count in range(tree.high, 0, -1):
            body = self._compile(tree.part, after)
            after = body if count <= tree.low else self._node(_SPLIT, frozenset(), [body, leave])
        return after

    def _check_possessive(self, tree: syntax.Repeat, after: int) -> None:
        """A possessive loop over one character is an ordinary one where what follows cannot begin with that character."""
        if not isinstance(tree.part, syntax.Character):
            raise self._refused("a possessive repetition of more than a character")
        todo, seen = [after], set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            kind, classes, then = self.nodes[node]
            if kind == _NOT_NEXT or (kind == _CHARACTER and classes & self._sets[tree.part.item]):
                raise self._refused("what follows a possessive repetition may begin with what it repeats")
            todo += then if kind == _SPLIT else []

    def closure(self, threads: tuple[int, ...], char: int) -> tuple[tuple[int, ...], bool]:
        """Reads one character class, or looks at the end of the text.

        Returns:
          The threads that survive, by priority, as far as none of higher priority matched; and whether one matched before the
          character.
        """
        out: list[int] = []
        seen: set[int] = set()
        stack = list(reversed(threads))
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            kind, classes, after = self.nodes[node]
            if kind == _MATCH:
                return tuple(out), True
            if kind == _SPLIT:
                stack.extend(reversed(after))
            elif (kind == _NOT_NEXT and char not in classes) or (kind == _AT_END and char == _END):
                stack.append(after[0])
            elif kind == _CHARACTER and char in classes and after[0] not in out:
                out.append(after[0])
        return tuple(out), False

    def without_match(self, threads: frozenset[int], char: int) -> frozenset[int] | None:
        """Obligations after a character; None when one of them matched before it."""
        out: set[int] = set()
        for thread in threads:
            live, hit = self.closure((thread,), char)
            if hit:
                return None
            out.update(live)
        return frozenset(out)

    def check_covers(self, num_classes: int) -> None:
        for char in range(num_classes):
            if not self.closure((self.start,), char)[0]:
                raise self._refused("some character begins no match, so the encoder loses it")


_State = tuple[tuple[int, ...], frozenset[int], bool]


def _determinize(program: _Program, num_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All reachable states: (next [S, C], cut [S], final [S]), unminimized; state 0 is the start."""
    program.check_covers(num_classes)
    begin: _State = ((program.start,), frozenset(), False)
    number = Numbers([begin])
    rows, cuts, finals = [], [], []

    def numbered(state: _State | None) -> int:
        if len(number) > _MAX_STATES:
            raise program._refused(f"it has more than {_MAX_STATES:,} states")
        return -1 if state is None else number[state]

    for at, state in enumerate(number.order):
        rows.append([numbered(_after(program, state, char)) for char in range(num_classes)])
        threads, never, claimed = state
        cuts.append(-1 if claimed or at == 0 else numbered((threads, never, True)))
        ends = not claimed and program.without_match(never, _END) is not None
        finals.append(ends and (at == 0 or program.closure(threads, _END)[1]))
    return np.array(rows), np.array(cuts), np.array(finals)


def _after(program: _Program, state: _State, char: int) -> _State | None:
    threads, never, claimed = state
    still = program.without_match(never, char)
    if still is None:
        return None
    live, hit = program.closure(threads, char)
    if not claimed:
        return (live, still, False) if live else None
    if not hit:
        return None
    fresh, _ = program.closure((program.start,), char)
    return (fresh, still | frozenset(live), False) if fresh else None


def _minimize(step: np.ndarray, cut: np.ndarray, final: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The trimmed minimal automaton; the start stays state 0."""
    table = np.concatenate([step, cut[:, None]], 1)
    source, kind = np.nonzero(table >= 0)
    live = reached(table[source, kind], source, final.nonzero()[0].tolist(), len(table))
    table = np.where((table >= 0) & live[table], table, -1)
    part = refined_table(table, np.where(live, final.astype(np.int64) + 1, 0))
    assert part is not None  # without a bound on rounds
    kept = np.flatnonzero(live)
    parts, first, _ = exampled(part[kept])  # by first state: the start's comes first
    number = np.full(len(table), -1)
    number[parts] = np.arange(len(parts))
    small = table[kept[first]]
    small = np.where(small >= 0, number[part[small]], -1).astype(np.int32)
    return small[:, :-1], small[:, -1], final[kept[first]]
