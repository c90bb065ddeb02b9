"""Subset construction for position automata with guards: exact lookahead, lookbehind, anchors and boundaries, in any nesting.

A thread is a position together with its obligations: what it has promised about the rest of the text. An obligation is a sign
and a set of threads of lookaheads, which must accept the rest (or must not); it is advanced letter by letter with the thread that
made it. A lookbehind runs beside the pattern from the start of the text, a new attempt at every place, so that its value is
known everywhere; a lookbehind that contains a lookahead has threads with obligations, and its value is then a condition on the
rest of the text too. A state of the result is the threads of all lookbehinds and of the pattern itself: a positive Boolean
formula over futures in disjunctive form, as in the subset construction for alternating automata.

Source: A. K. Chandra, D. C. Kozen, L. J. Stockmeyer, "Alternation", 1981.
"""

from __future__ import annotations

from typing import TypeAlias

from fsa_compile.arrays.bit_sets import union
from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets, trim
from fsa_compile.automata.minimize import letter_classes
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.guarded_glushkov import ALWAYS, Guard, GuardedPositions, weakest

SINK = -1
"""The position of a lookahead that is satisfied: it accepts any rest."""

Threads: TypeAlias = "frozenset[tuple[int, Obligations]]"
Obligations: TypeAlias = "frozenset[tuple[bool, Threads]]"

_NO_OBLIGATION: Obligations = frozenset()
_SATISFIED: Threads = frozenset(((SINK, _NO_OBLIGATION),))
_NOTHING: Threads = frozenset()
_BYTES_PER_THREAD = 2048
"""Memory that one step of one thread is reckoned to need by the time its state has been walked with a vocabulary."""

_DOING = "Making a pattern with lookarounds deterministic"


def determinize_with_conditions(positions: GuardedPositions, limits: CompileLimits, deadline: Deadline) -> LetterDfa | None:
    """The deterministic automaton of a guarded position automaton, trimmed; None when no text matches."""
    masks, ranges = letter_sets(positions.sets)
    distinct = {mask: i for i, mask in enumerate(dict.fromkeys(mask for mask in masks if mask))}
    if not distinct:
        return LetterDfa([[]], [True], ranges) if _Machine(positions, []).accepts_empty() else None
    contains, class_letters = letter_classes(list(distinct), len(ranges))
    rows = contains.tolist()
    nothing = [False] * len(class_letters)
    machine = _Machine(positions, [rows[distinct[mask]] if mask else nothing for mask in masks])
    first = machine.initial()
    ids, todo = {first: 0}, [first]
    arcs: list[list[tuple[int, int]]] = []
    final: list[bool] = []
    budget = limits.max_bytes // _BYTES_PER_THREAD
    for state in todo:
        deadline.check(_DOING)
        values = machine.lookbehind_values(state)
        final.append(machine.accepts(state[-1], values))
        by_target: dict[int, int] = {}
        asked = machine.asked(state)
        steps: dict[int, tuple[tuple[Threads, ...] | None, int]] = {}  # letters that the state does not tell apart have one
        for letter, letters in enumerate(class_letters):
            alike = machine.read_by[letter] & asked
            if alike in steps:
                after, cost = steps[alike]
                machine.threads += cost
            else:
                before = machine.threads
                after = machine.step(state, letter, values)
                steps[alike] = after, machine.threads - before
            if after is None:
                continue
            target = ids.get(after)
            if target is None:
                target = ids[after] = len(todo)
                todo.append(after)
            by_target[target] = by_target.get(target, 0) | letters
        arcs.append([(letters, target) for target, letters in by_target.items()])
        if len(todo) > limits.max_states:
            raise LimitError("max_states", limits.max_states, _DOING)
        if machine.threads > budget:
            raise LimitError("max_bytes", limits.max_bytes, _DOING)
    return trim(LetterDfa(arcs, final, ranges))


class _Values:
    """What each lookbehind is worth at one place: alternatives of obligations; and results for that place and one letter."""

    __slots__ = ("advanced", "behind", "guards", "letter")

    def __init__(self) -> None:
        self.behind: dict[int, list[Obligations]] = {}
        self.guards: dict[Guard, list[Obligations]] = {}
        self.letter = -1
        self.advanced: dict[Threads, Threads] = {}


class _Machine:
    """Steps of the alternating automaton. `reads`: per position and letter class whether the position reads it."""

    def __init__(self, positions: GuardedPositions, reads: list[list[bool]]) -> None:
        self.follow, self.ends, self.open_ended = positions.follow, positions.ends, positions.open_ended
        self.looks = positions.looks
        self.start = positions.start
        self.reads = reads
        self.threads = 0
        self.behind = [(i, body.start) for i, body in enumerate(positions.looks) if body.behind]
        self.read_by = [sum(1 << q for q, reading in enumerate(column) if reading) for column in zip(*reads)]
        """Per letter class the positions that read it, as bits."""
        self._asked_at: dict[int, int] = {SINK: 0}
        self._asked: dict[Threads, int] = {}

    def asked(self, state: tuple[Threads, ...]) -> int:
        """The positions, as bits, that a step from a state asks whether they read the letter."""
        started = union(self._asked_from(start) for _, start in self.behind)
        return started | union(self._asked_by(threads) for threads in state)

    def _asked_by(self, threads: Threads) -> int:
        found = self._asked.get(threads)
        if found is None:
            found = union(self._asked_from(p) for p, _ in threads)
            found |= union(self._asked_by(inner) for _, obligations in threads for _, inner in obligations)
            self._asked[threads] = found
        return found

    def _asked_from(self, p: int) -> int:
        """Those that follow a position, or begin a lookaround that a guard there asks for."""
        found = self._asked_at.get(p)
        if found is None:
            guards = [guard for guard, _ in self.follow[p]] + list(self.ends[p])
            started = {self.looks[condition >> 1].start for guard in guards for condition in guard}
            found = self._asked_at[p] = union(1 << q for _, q in self.follow[p]) | union(map(self._asked_from, started - {p}))
        return found

    def initial(self) -> tuple[Threads, ...]:
        """The state before the first character: threads of each lookbehind, then of the pattern."""
        return (*(_NOTHING for _ in self.behind), frozenset(((self.start, _NO_OBLIGATION),)))

    def accepts_empty(self) -> bool:
        """Whether the empty text matches."""
        state = self.initial()
        return self.accepts(state[-1], self.lookbehind_values(state))

    def lookbehind_values(self, state: tuple[Threads, ...]) -> _Values:
        """The values of all lookbehinds in a state; inner ones come first because outer ones ask for them."""
        values = _Values()
        for (look, start), threads in zip(self.behind, state):
            alternatives = [
                obligations | more
                for p, obligations in (*threads, (start, _NO_OBLIGATION))
                for guard in self.ends[p]
                for more in self.guard_value(guard, values)
            ]
            values.behind[look] = weakest(alternatives)
        return values

    def guard_value(self, guard: Guard, values: _Values) -> list[Obligations]:
        """The alternatives under which all conditions of the guard hold at this place."""
        if not guard:
            return [_NO_OBLIGATION]
        found = values.guards.get(guard)
        if found is None:
            found = [_NO_OBLIGATION]
            for condition in sorted(guard):
                options = self.condition_value(condition, values)
                found = [have | more for have in found for more in options]
            found = values.guards[guard] = weakest(found)
        return found

    def condition_value(self, condition: int, values: _Values) -> list[Obligations]:
        """The alternatives under which one condition holds at this place."""
        look, negative = condition >> 1, bool(condition & 1)
        body = self.looks[look]
        if not body.behind:
            return [frozenset(((not negative, frozenset(((body.start, _NO_OBLIGATION),))),))]
        value = values.behind[look]
        if not negative:
            return value
        if not value:
            return [_NO_OBLIGATION]
        if not value[0]:
            return []
        return [frozenset(((False, frozenset((SINK, obligations) for obligations in value)),))]

    def step(self, state: tuple[Threads, ...], letter: int, values: _Values) -> tuple[Threads, ...] | None:
        """The state after one letter, or None when the pattern has no thread left."""
        values.letter = letter
        values.advanced = {}
        main = self.advance(state[-1], values)
        if not main:
            return None
        after = [self.advance(threads | {(start, _NO_OBLIGATION)}, values) for (_, start), threads in zip(self.behind, state)]
        return (*after, main)

    def advance(self, threads: Threads, values: _Values) -> Threads:
        """The threads after the current letter."""
        found = values.advanced.get(threads)
        if found is not None:
            return found
        letter = values.letter
        out: set[tuple[int, Obligations]] = set()
        for p, obligations in threads:
            if p == SINK:
                self._keep(out, SINK, obligations, values)
                continue
            for guard, q in self.follow[p]:
                if self.reads[q][letter]:
                    for more in self.guard_value(guard, values):
                        self._keep(out, q, obligations | more, values)
            if self.open_ended[p]:
                for guard in self.ends[p]:
                    for more in self.guard_value(guard, values):
                        self._keep(out, SINK, obligations | more, values)
        found = values.advanced[threads] = _simplified(out)
        return found

    def _keep(self, out: set[tuple[int, Obligations]], position: int, obligations: Obligations, values: _Values) -> None:
        """Adds a thread with its obligations advanced, unless one of them is broken."""
        self.threads += 1 + len(obligations)
        left = []
        for positive, threads in obligations:
            after = self.advance(threads, values)
            if (not after) if positive else after == _SATISFIED:
                return
            if after and after != _SATISFIED:
                left.append((positive, after))
        out.add((position, frozenset(left)))

    def accepts(self, threads: Threads, values: _Values) -> bool:
        """Whether one of the threads accepts when the text ends here."""
        for p, obligations in threads:
            if p == SINK:
                if self._kept(obligations, values):
                    return True
                continue
            for guard in self.ends[p]:
                for more in self.guard_value(guard, values):
                    if self._kept(obligations | more, values):
                        return True
        return False

    def _kept(self, obligations: Obligations, values: _Values) -> bool:
        return all(self.accepts(threads, values) == positive for positive, threads in obligations)


def _simplified(threads: set[tuple[int, Obligations]]) -> Threads:
    """An equivalent smaller set: threads that promise more than another at the same position go."""
    if (SINK, _NO_OBLIGATION) in threads:
        return _SATISFIED
    if all(not obligations for _, obligations in threads):
        return frozenset(threads)
    by_position: dict[int, list[Obligations]] = {}
    for p, obligations in threads:
        if p == SINK and len(obligations) == 1:
            ((positive, inner),) = obligations
            if positive:  # "satisfied, if these threads accept the rest" is those threads
                for q, inner_obligations in inner:
                    by_position.setdefault(q, []).append(inner_obligations)
                continue
        by_position.setdefault(p, []).append(obligations)
    out = [(p, one) for p, alternatives in by_position.items() for one in weakest(alternatives)]
    return _SATISFIED if (SINK, ALWAYS) in out else frozenset(out)
