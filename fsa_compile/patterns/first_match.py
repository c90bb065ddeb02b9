"""Regular expressions read as a lexer reads them: alternatives and loops tried in order, the first match taken.

A backtracking matcher tries the left alternative first, a greedy loop's next round before its end, a lazy loop's end before its
next round. All tries side by side are an ordered list of threads; a match ends those that stand behind it. So the texts at which
the list holds a match are a regular language, and the longest prefix of a text in it is what the matcher takes. A condition on
the next character keeps its thread from some letters; a match with one ends the threads behind it before all others.

Source: R. Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009 (ordered threads).
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, TypeAlias

from fsa_compile.arrays.bit_sets import disjoint, union
from fsa_compile.arrays.graphs import Numbers
from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets, trim
from fsa_compile.automata.minimize import minimize
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import ConditionFound, count_positions
from fsa_compile.patterns.regex_tree import Alternate, Atomic, Chars, Concat, Node, Repeat, Text, children, has_lazy_loop, widths
from fsa_compile.patterns.trailing_guards import forbidden_next
from fsa_compile.unicode.code_points import CodePointSet, single
from fsa_compile.unicode.code_points import union as union_of

_DOING = "Making the pattern deterministic"
_BYTES_PER_MEMBER = 2048
"""Memory that one thread of one state is reckoned to need by the time the automaton has been walked with a vocabulary."""
_MATCH, _END = 0, -1
Thread: TypeAlias = tuple[int, frozenset[int]]
"""A step, and the numbers of the sets of characters that may not come next."""


class _Step(NamedTuple):
    """Steps that are tried in order, behind a character of a set, or behind a condition that none of a set comes next."""

    next: tuple[int, ...]
    reads: int = -1
    forbids: int = -1


def first_match(
    tree: Node, limits: CompileLimits, deadline: Deadline
) -> tuple[LetterDfa | None, list[tuple[LetterDfa, CodePointSet]]]:
    """The texts that a matcher may take, and the characters before which it does not.

    Args:
      tree: with no other conditions than those that forbid characters to come next (`forbidden_next`), and without
        `empty_rounds`.

    Returns:
      the minimal automaton of all texts, None if there is none; and automata, each with characters that may not follow its texts.
      A text of several automata is taken unless all of them forbid it.

    Raises:
      ConditionFound: the tree holds other conditions.
      LimitError: too many states.
    """
    if count_positions(tree) > limits.max_states:
        raise LimitError("max_states", limits.max_states, "Expanding the repetitions of the pattern")
    threads = _Threads(tree, deadline)
    number = Numbers([threads.closed([threads.start])])
    arcs: list[list[tuple[int, int]]] = []
    members = 0
    for state in number.order:
        deadline.check(_DOING)
        out: dict[int, int] = {}
        for read, found in threads.moves(state):
            if after := threads.closed(found):
                out[number[after]] = out.get(number[after], 0) | read
        arcs.append([(read, target) for target, read in out.items()])
        if len(number) > limits.max_states:
            raise LimitError("max_states", limits.max_states, _DOING)
        members += len(state)
        if members > limits.max_bytes // _BYTES_PER_MEMBER:
            raise LimitError("max_bytes", limits.max_bytes, _DOING)
    matches = [{sets for step, sets in state if step == _MATCH} for state in number]

    def automaton(final: list[bool]) -> LetterDfa | None:
        live = trim(LetterDfa([list(own) for own in arcs], final, threads.ranges))
        return live and minimize(live)

    ends = [
        (dfa, union_of(*(threads.sets[i] for i in sets)))
        for sets in sorted(set().union(*matches), key=sorted)
        if (dfa := automaton([sets in own for own in matches]))
    ]
    return automaton([bool(own) for own in matches]), ends


def tried_in_order(tree: Node, limits: CompileLimits) -> bool:
    """Whether `first_match` reads a tree."""
    try:
        _Threads(tree, Deadline(limits))
    except ConditionFound:
        return False
    return True


def empty_rounds(tree: Node) -> bool:
    """Whether a loop in a tree repeats what prefers to read nothing: matchers differ in what they do after such a round."""
    todo = [tree]
    while todo:
        node = todo.pop()
        todo += children(node)
        if isinstance(node, Repeat) and node.high not in (0, 1) and not widths(node.item)[0] and has_lazy_loop(node.item):
            return True
    return False


class _Threads:
    """The steps of a tree, and lists of them."""

    def __init__(self, tree: Node, deadline: Deadline) -> None:
        self.sets: list[CodePointSet] = []
        self._number: dict[CodePointSet, int] = {}
        self._steps = [_Step(())]
        self._deadline = deadline
        self.start = self._add(tree, _MATCH)
        self._letters, self.ranges = letter_sets(self.sets)

    def _step(self, step: _Step) -> int:
        self._steps.append(step)
        return len(self._steps) - 1

    def _set(self, members: CodePointSet) -> int:
        if members not in self._number:
            self._number[members] = len(self.sets)
            self.sets.append(members)
        return self._number[members]

    def _add(self, node: Node, after: int) -> int:
        """The step that begins a node, behind which another step comes."""
        self._deadline.check(_DOING)
        match node:
            case Text(text=text):
                for letter in reversed(text):
                    after = self._step(_Step((after,), reads=self._set(single(ord(letter)))))
                return after
            case Chars(members=members):
                return self._step(_Step((after,), reads=self._set(members)))
            case Concat(items=items):
                for i in range(len(items) - 1, -1, -1):
                    forbidden = forbidden_next(items[i], Concat(items[:i], node.start, node.end))
                    if forbidden is None:
                        after = self._add(items[i], after)
                    else:
                        after = self._step(_Step((after,), forbids=self._set(forbidden)))
                return after
            case Alternate(branches=branches):
                return self._step(_Step(tuple([self._add(branch, after) for branch in branches])))
            case Repeat():
                return self._loop(node, after)
            case Atomic(item=item):  # allowed only where it changes nothing
                return self._add(item, after)
        forbidden = forbidden_next(node, Concat([], 0, 0))
        if forbidden is None:
            raise ConditionFound
        return self._step(_Step((after,), forbids=self._set(forbidden)))

    def _loop(self, loop: Repeat, after: int) -> int:
        first = after
        if loop.high is None:
            first = self._step(_Step(()))
            self._steps[first] = self._choice(loop, self._add(loop.item, first), after)
        else:
            for _ in range(loop.high - loop.low):
                first = self._step(self._choice(loop, self._add(loop.item, first), after))
        for _ in range(loop.low):
            first = self._add(loop.item, first)
        return first

    @staticmethod
    def _choice(loop: Repeat, again: int, after: int) -> _Step:
        return _Step((after, again) if loop.lazy else (again, after))

    def closed(self, todo: list[int]) -> tuple[Thread, ...]:
        """The threads that read or match, in order, down to a match without a condition."""
        out, seen = list[Thread](), set[Thread]()
        stack: list[Thread] = [(step, frozenset()) for step in reversed(todo)]
        while stack:
            thread = number, sets = stack.pop()
            if thread in seen:
                continue
            seen.add(thread)
            step = self._steps[number]
            if number == _MATCH or step.reads >= 0:
                out.append(thread)
                if number == _MATCH and not sets:
                    break
            else:
                sets = sets | {step.forbids} if step.forbids >= 0 else sets
                stack += [(following, sets) for following in reversed(step.next)]
        return tuple(out)

    def moves(self, state: tuple[Thread, ...]) -> list[tuple[int, list[int]]]:
        """The steps after each letter, in order; a match that the letter does not forbid ends those behind it."""
        every = union(self._letters[self._steps[step].reads] for step, _ in state if step != _MATCH)
        by_letters: dict[int, list[tuple[int, int]]] = {}
        for place, (number, sets) in enumerate(state):
            step = self._steps[number]
            read, after = (every, _END) if number == _MATCH else (self._letters[step.reads], step.next[0])
            by_letters.setdefault(read & ~union(self._letters[i] for i in sets), []).append((place, after))
        out = []
        for read, groups in disjoint([(letters, [found]) for letters, found in by_letters.items()]):
            steps = [after for _, after in (heapq.merge(*groups) if len(groups) > 1 else groups[0])]
            steps = steps[: steps.index(_END)] if _END in steps else steps
            if steps:
                out.append((read, steps))
        return out
