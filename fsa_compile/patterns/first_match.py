"""Regular expressions read as a lexer reads them: alternatives and loops tried in order, the first match taken.

A backtracking matcher tries the left alternative first, a greedy loop's next round before its end, a lazy loop's end before its
next round. All tries side by side are an ordered list of threads; a match ends those that stand behind it. So the texts at which
the list holds a match are a regular language, and the longest prefix of a text in it is what the matcher takes. A condition on
what follows keeps its thread from some letters, now or some letters later; a match with one ends the threads behind it before all
others. One on the character before is decided by the letter read last.

Source: R. Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009 (ordered threads).
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, TypeAlias

from fsa_compile.arrays.bit_sets import disjoint, members, union
from fsa_compile.arrays.graphs import Numbers
from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets, trim
from fsa_compile.automata.minimize import minimize
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import ConditionFound, count_positions
from fsa_compile.patterns.match_ends import may_see_before
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.patterns.regex_tree import (  # fmt: skip
    Alternate,
    Anchor,
    Atomic,
    Chars,
    Concat,
    Look,
    Node,
    Repeat,
    Text,
    children,
    has_lazy_loop,
    widths,
)
from fsa_compile.patterns.trailing_guards import first_character, forbidden_next, forbidden_words
from fsa_compile.unicode.code_points import CodePointSet, atoms, single
from fsa_compile.unicode.code_points import union as union_of

_DOING = "Making the pattern deterministic"
_BYTES_PER_MEMBER = 2048
"""Memory that one thread of one state is reckoned to need by the time the automaton has been walked with a vocabulary."""
_MATCH = 0
Word: TypeAlias = tuple[int, ...]
"""Numbers of sets of characters: of a text that begins with a character of each, one after another."""
Thread: TypeAlias = tuple[int, frozenset[Word]]
"""A step, and the words that may not come next."""


class _Step(NamedTuple):
    """Steps that are tried in order.

    Attributes:
      reads: set of characters behind one of which they are.
      forbids: words that may not come next.
      behind: (set, True) where the character before must be of it, (set, False) where it may not.
      rounds: whether they are a greedy loop's next round, which may read nothing, and what is behind the loop.
    """

    next: tuple[int, ...]
    reads: int = -1
    forbids: tuple[Word, ...] = ()
    behind: tuple[int, bool] | None = None
    rounds: bool = False


def first_match(
    tree: Node, limits: CompileLimits, deadline: Deadline
) -> tuple[LetterDfa | None, list[tuple[LetterDfa, CodePointSet]]]:
    """The texts that a matcher may take, and the characters before which it does not.

    Args:
      tree: with no other conditions than those that forbid characters or words to come next (`forbidden_next`,
        `forbidden_words`), of words all but the last character within the match, and those on one character before, within the
        match, too; and without `empty_rounds`.

    Returns:
      the minimal automaton of all texts, None if there is none; and automata, each with characters that may not follow its texts.
      A text of several automata is taken unless all of them forbid it.

    Raises:
      ConditionFound: the tree holds other conditions.
      LimitError: too many states.
    """
    threads = _Threads(tree, limits, deadline)
    states, arcs = threads.automaton()
    matches = [{words for step, words in state if step == _MATCH} for state in states]

    ends = [
        (dfa, union_of(*(threads.sets[i] for (i,) in words)))
        for words in sorted(set().union(*matches), key=sorted)
        if (dfa := _minimal(arcs, [words in own for own in matches], threads))
    ]
    return _minimal(arcs, [bool(own) for own in matches], threads), ends


def _minimal(arcs: list[list[tuple[int, int]]], final: list[bool], threads: _Threads) -> LetterDfa | None:
    live = trim(LetterDfa([list(own) for own in arcs], final, threads.ranges))
    return live and minimize(live)


def tried_in_order(tree: Node, limits: CompileLimits) -> bool:
    """Whether `first_match` reads a tree."""
    try:
        _Threads(tree, limits, Deadline(limits))
    except ConditionFound:
        return False
    return True


def order_matters(tree: Node, limits: CompileLimits) -> bool:
    """Whether the first match of a tree is not always its longest one; no where `first_match` does not read it.

    Of trees with conditions it may say so where both are the same.
    """
    deadline = Deadline(limits)
    try:
        threads = _Threads(tree, limits, deadline)
    except ConditionFound:
        return False
    states, arcs = threads.automaton()
    if not threads.ended or threads.conditions:
        return threads.ended
    first = _minimal(arcs, [any(step == _MATCH for step, _ in state) for state in states], threads)
    return not _same(first, build_automaton(tree, limits, deadline))


def _same(a: LetterDfa | None, b: LetterDfa | None) -> bool:
    """Whether trimmed automata have the same texts."""
    if a is None or b is None:
        return a is b
    classes = list(dict.fromkeys([*a.atoms, *b.atoms]))
    parts = dict(zip(classes, atoms(classes)[1])) if classes else {}
    arcs_of = [
        [[(_over([parts[own] for own in dfa.atoms], letters), target) for letters, target in arcs] for arcs in dfa.arcs]
        for dfa in (a, b)
    ]
    pairs = Numbers([(0, 0)])
    for p, q in pairs.order:
        here, there = arcs_of[0][p], arcs_of[1][q]
        if a.final[p] != b.final[q] or union(letters for letters, _ in here) != union(letters for letters, _ in there):
            return False
        for letters, target in here:
            for others, other in there:
                if letters & others:
                    pairs[target, other]
    return True


def _over(parts: list[int], letters: int) -> int:
    """A letter set over finer atoms: those in the place of each atom."""
    return letters & (1 << 128) - 1 | union(parts[j] for j in members(letters >> 128)) << 128


def empty_rounds(tree: Node) -> bool:
    """Whether a loop in a tree repeats what prefers to read nothing: matchers differ in what they do after such a round.

    The greedy loops `*` and `+` end with it, as in `re`; in others, which are copies of a round, it is not told from the rest,
    unless there is one number of rounds.
    """
    todo = [tree]
    while todo:
        node = todo.pop()
        todo += children(node)
        if isinstance(node, Repeat) and node.high not in (0, 1, node.low) and not widths(node.item)[0]:
            copies = node.low > 1 or node.high is not None
            if has_lazy_loop(node.item) or (copies and _has_empty_alternative(node.item)):
                return True
    return False


def _has_empty_alternative(tree: Node) -> bool:
    """Whether an alternative before the last one may read nothing."""
    here = isinstance(tree, Alternate) and not all(widths(branch)[0] for branch in tree.branches[:-1])
    return here or any(map(_has_empty_alternative, children(tree)))


class _Threads:
    """The steps of a tree, and lists of them.

    Attributes:
      ended: whether a match has ended threads that read on.
      conditions: whether the tree has conditions.
    """

    def __init__(self, tree: Node, limits: CompileLimits, deadline: Deadline) -> None:
        if count_positions(tree) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Expanding the repetitions of the pattern")
        self.ended = False
        self._limits = limits
        self.sets: list[CodePointSet] = []
        self._number: dict[CodePointSet, int] = {}
        self._steps = [_Step(())]
        self._least = [0]  # characters from each step to a match
        self._deadline = deadline
        self.start = self._add(tree, _MATCH)
        self._letters, self.ranges = letter_sets(self.sets)
        self._behind = {self._letters[step.behind[0]] for step in self._steps if step.behind}
        if self._behind and may_see_before(tree):
            raise ConditionFound
        self.conditions = any(step.forbids or step.behind for step in self._steps)

    def automaton(self) -> tuple[list[tuple[Thread, ...]], list[list[tuple[int, int]]]]:
        """All lists of threads that a text leads to, that of the empty text first, and of each (letters, number of the next)."""
        number = Numbers([self.closed([(self.start, frozenset())], 0)])
        arcs: list[list[tuple[int, int]]] = []
        members = 0
        for state in number.order:
            self._deadline.check(_DOING)
            out: dict[int, int] = {}
            for letters, found in self.moves(state):
                for read in self.alike(letters):
                    if after := self.closed(found, read):
                        out[number[after]] = out.get(number[after], 0) | read
            arcs.append([(read, target) for target, read in out.items()])
            if len(number) > self._limits.max_states:
                raise LimitError("max_states", self._limits.max_states, _DOING)
            members += len(state)
            if members > self._limits.max_bytes // _BYTES_PER_MEMBER:
                raise LimitError("max_bytes", self._limits.max_bytes, _DOING)
        return number.order, arcs

    def _step(self, step: _Step) -> int:
        self._steps.append(step)
        self._least.append(min([self._least[i] for i in step.next], default=0) + (step.reads >= 0))
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
                    if isinstance(items[i], Look | Anchor):
                        after = self._condition(items[i], Concat(items[:i], node.start, node.end), after)
                    else:
                        after = self._add(items[i], after)
                return after
            case Alternate(branches=branches):
                return self._step(_Step(tuple([self._add(branch, after) for branch in branches])))
            case Repeat():
                return self._loop(node, after)
            case Atomic(item=item):  # allowed only where it changes nothing
                return self._add(item, after)
        return self._condition(node, Concat([], 0, 0), after)

    def _condition(self, node: Node, before: Concat, after: int) -> int:
        forbidden = forbidden_next(node, before)
        words = forbidden_words(node) if forbidden is None else [(forbidden,)]
        if words is not None and max(map(len, words)) <= 1 + self._least[after]:
            return self._step(_Step((after,), forbids=tuple([tuple(map(self._set, word)) for word in words])))
        if not isinstance(node, Look) or not node.behind or widths(node.item) != (1, 1):
            raise ConditionFound
        if (last := first_character(node.item)) is None:
            raise ConditionFound
        return self._step(_Step((after,), behind=(self._set(last), not node.negative)))

    def _loop(self, loop: Repeat, after: int) -> int:
        first = after
        if loop.high is None:
            first = self._step(_Step((after,)))
            step = self._choice(loop, self._add(loop.item, first), after)
            self._steps[first] = step._replace(rounds=not loop.lazy and not widths(loop.item)[0])
        else:
            for _ in range(loop.high - loop.low):
                first = self._step(self._choice(loop, self._add(loop.item, first), after))
        for _ in range(loop.low):
            first = self._add(loop.item, first)
        return first

    @staticmethod
    def _choice(loop: Repeat, again: int, after: int) -> _Step:
        return _Step((after, again) if loop.lazy else (again, after))

    def alike(self, letters: int) -> list[int]:
        """Letters in parts that conditions on the character before do not tell apart."""
        parts = [letters]
        for some in self._behind:
            parts = [part for own in parts for part in (own & some, own & ~some) if part]
        return parts

    def closed(self, todo: list[Thread], last: int) -> tuple[Thread, ...]:
        """The threads that read or match, in order, down to a match without a condition; `last`: letters read last, `alike`."""
        out, seen = dict[Thread, None](), set[tuple[Thread, frozenset[int]]]()
        stack = [(thread, frozenset[int]()) for thread in todo[::-1]]  # with the loops whose round has read nothing yet
        while stack:
            if (found := stack.pop()) in seen:
                continue
            seen.add(found)
            thread, idle = found
            number, words = thread
            step = self._steps[number]
            if number == _MATCH or step.reads >= 0:
                out[thread] = None
                if number == _MATCH and not words:
                    self.ended = self.ended or any(self._reads_on(thread) for thread, _ in stack)
                    break
            elif not step.behind or bool(self._letters[step.behind[0]] & last) == step.behind[1]:
                words = words.union(step.forbids)
                if step.rounds:
                    again, after = step.next
                    stack.append(((after, words), idle - {number}))
                    if number not in idle:  # a round of a greedy loop that reads nothing is its last, as in `re`
                        stack.append(((again, words), idle | {number}))
                else:
                    stack += [((following, words), idle) for following in reversed(step.next)]
        return tuple(out)

    def _reads_on(self, thread: Thread) -> bool:
        """Whether a thread, or one that it stands for, reads."""
        todo, seen = [thread[0]], set[int]()
        while todo:
            number = todo.pop()
            if self._steps[number].reads >= 0:
                return True
            if number not in seen:
                seen.add(number)
                todo += self._steps[number].next
        return False

    def moves(self, state: tuple[Thread, ...]) -> list[tuple[int, list[Thread]]]:
        """The threads after each letter, in order; a match that the letter does not forbid ends those behind it."""
        every = union(self._letters[self._steps[step].reads] for step, _ in state if step != _MATCH)
        by_letters: dict[int, list[tuple[int, Thread | None]]] = {}  # None: of a match
        for place, (number, words) in enumerate(state):
            read = every if number == _MATCH else self._letters[self._steps[number].reads]
            read &= ~union(self._letters[word[0]] for word in words if len(word) == 1)
            if number == _MATCH:
                by_letters.setdefault(read, []).append((place, None))
            else:
                for letters, left in self._begun(words, read):
                    by_letters.setdefault(letters, []).append((place, (self._steps[number].next[0], left)))
        out = []
        for read, groups in disjoint([(letters, [found]) for letters, found in by_letters.items()]):
            after = list[Thread]()
            threads = iter(heapq.merge(*groups) if len(groups) > 1 else groups[0])
            for _, thread in threads:
                if thread is None:
                    self.ended = self.ended or next(threads, None) is not None
                    break
                after.append(thread)
            if after:
                out.append((read, after))
        return out

    def _begun(self, words: frozenset[Word], read: int) -> list[tuple[int, frozenset[Word]]]:
        """Letters in parts, each with what is left of the words that begin with its letters."""
        parts = [(read, frozenset[Word]())]
        for word in [word for word in words if len(word) > 1]:
            first = self._letters[word[0]]
            parts = [
                (both, left | {word[1:]} if begins else left)
                for letters, left in parts
                for both, begins in ((letters & first, True), (letters & ~first, False))
                if both
            ]
        return parts
