"""Trees of formats to deterministic automata whose letters are bytes, special tokens, and calls of values."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Callable, Collection, Hashable

import numpy as np

from fsa_compile.arrays.graphs import moves as distinct_moves
from fsa_compile.arrays.graphs import reach, reached
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.errors import LimitError, PatternError, UnsatisfiableError
from fsa_compile.formats import tree
from fsa_compile.formats.letter_masks import byte_masks, classes_of, parted, table_of
from fsa_compile.formats.request import FormatError
from fsa_compile.formats.text_labels import END, Answer, Before, TextAutomaton
from fsa_compile.formats.written_names import checked_masks, one_name, written_out
from fsa_compile.languages import constructors as languages
from fsa_compile.limits import CompileLimits, Deadline


class _NoSketchError(Exception):
    """What an answer goes on with is more than any text."""


def text_automaton(root: tree.Format, limits: CompileLimits, deadline: Deadline, *, sketch: bool = False) -> TextAutomaton:
    """The automaton of a tree; `sketch`: a sketch of it will do. Raises `FormatError`: a pattern that is not one."""
    small = one_name(root)
    if small is not None:
        try:
            build, made = _read(small.root, limits, deadline, sketch, frozenset(b"".join(small.names)))
        except _NoSketchError:
            masks = None
        else:
            masks = checked_masks(build.moves, build.labels)
        found = None if masks is None else written_out(made, masks, small, limits)
        if found is not None:
            return found
    try:
        return _read(root, limits, deadline, sketch)[1]
    except _NoSketchError:
        return text_automaton(root, limits, deadline)


def _read(
    root: tree.Format, limits: CompileLimits, deadline: Deadline, sketch: bool, letters: frozenset[int] = frozenset()
) -> tuple[_Nondeterministic, TextAutomaton]:
    """The automaton of a tree, and that from which it was made; `letters`: of the names for which a name of the tree stands."""
    build = _Nondeterministic(limits, deadline, sketch, letters)
    build.specials = sorted(_tokens(root))
    start, end = build.state(), build.state(END)
    build.add(root, start, end)
    return build, _deterministic(build, start, end, limits, deadline)


def _tokens(root: tree.Format) -> set[int]:
    """The ids of all special tokens of a tree."""
    out: set[int] = set()
    todo: list[tree.Format] = [root]
    while todo:
        match todo.pop():
            case tree.Token(ids=ids):
                out |= ids
            case tree.Parts(parts=children) | tree.OneOf(branches=children):
                todo += children
            case tree.Named(branches=named):
                todo += [child for _, child in named]
            case tree.Repeated(part=child):
                todo.append(child)
            case tree.Joined(part=child, between=between):
                todo += [child, between]
    return out


class _Nondeterministic:
    """States with moves that read nothing, moves by letters, and calls. A letter is a byte, or 256 + i for special token i.

    Attributes:
      free: by state, states that are reached without a letter.
      moves: by state, (letters as a bit mask, state).
      calls: by state, (number of a schema, state behind its value).
      labels: by state, its place in the tree; see `TextAutomaton`.
      has_names: whether the tree has names.
      hidden: of a sketch, by state of an answer that has begun like a call, the letters with which it goes on as text, whether
        the next one may be the last of a lead, and how much is read of what stands behind the name.
      left: the last of these, by subset, where it is not 0.
    """

    def __init__(self, limits: CompileLimits, deadline: Deadline, sketch: bool, letters: frozenset[int]) -> None:
        self._limits, self._deadline, self._sketch, self._letters = limits, deadline, sketch, letters
        self.hidden: dict[int, tuple[int, bool, int]] = {}
        self.left: dict[int, int] = {}
        self.free: list[list[int]] = []
        self.moves: list[list[tuple[int, int]]] = []
        self.calls: list[list[tuple[int, int]]] = []
        self.schemas: dict[object, tuple[int, tree.Json | tree.Value]] = {}
        self.specials: list[int] = []
        self._dfas: dict[tree.Format, ByteDfa] = {}
        self._moves_of: dict[ByteDfa, list[tuple[int, int, int]]] = {}
        self._firsts: dict[tuple[int, int, tuple[Hashable, ...]], list[int]] = {}
        """Of one and the same choice in two places before the same state, where its branches begin: it is written out once."""
        self.labels: list[Hashable] = []
        self.has_names = False
        self._numbers, self._behind = itertools.count(), tuple[Hashable, ...]()

    def state(self, label: Hashable = None) -> int:
        if len(self.free) >= self._limits.max_states:
            raise LimitError("max_states", self._limits.max_states, "Writing out the text around the values")
        self.free.append([])
        self.moves.append([])
        self.calls.append([])
        self.labels.append(self._label() if label is None else label)
        return len(self.free) - 1

    def _label(self) -> Hashable:
        return (*self._behind, next(self._numbers)) if self._behind else next(self._numbers)

    def add(self, node: tree.Format, begin: int, end: int) -> None:
        """The node's texts between two states."""
        match node:
            case tree.Text(text=text):
                self._text(text.encode(), begin, end)
            case tree.Json():
                key = json.dumps(node.schema, sort_keys=False, default=repr)
                number, _ = self.schemas.setdefault(key, (len(self.schemas), node))
                self.calls[begin].append((number, end))
            case tree.Special():
                raise TypeError("the vocabulary of a special token is not known")
            case tree.Value():
                number, _ = self.schemas.setdefault((id(node.machine), node.start), (len(self.schemas), node))
                self.calls[begin].append((number, end))
            case tree.Token(ids=ids):
                self.moves[begin].append((sum(1 << 256 + self.specials.index(token) for token in ids), end))
            case tree.Parts(parts=parts):
                here = begin
                for part in parts[:-1]:
                    there = self.state()
                    self.add(part, here, there)
                    here = there
                if parts:
                    self.add(parts[-1], here, end)
                else:
                    self.free[here].append(end)
            case tree.OneOf(branches=branches):
                place = id(node), end, self._behind
                if (firsts := self._firsts.get(place)) is None:
                    firsts = []
                    for branch in branches:
                        firsts.append(self.state())
                        self.add(branch, firsts[-1], end)
                    self._firsts[place] = firsts
                self.free[begin] += firsts
            case tree.Named(branches=named):
                self.has_names = True
                self._named(named, begin, end)
            case tree.Repeated():
                self._repeated(node, begin, end)
            case tree.Joined(part=part, between=between):
                first, last = self.state(), self.state()
                self.free[begin].append(first)
                self.add(part, first, last)
                self.add(between, last, first)
                self.free[last].append(end)
            case _:
                self._automaton(node, begin, end)

    def _text(self, text: bytes, begin: int, end: int) -> None:
        if not text:
            self.free[begin].append(end)
            return
        first, more = len(self.free), len(text) - 1
        if more:
            self._chain(text[1:-1], [self._label() for _ in range(more)])
            self.moves[-1].append((1 << text[-1], end))
        self.moves[begin].append((1 << text[0], first if more else end))

    def _chain(self, text: bytes, labels: list[Hashable]) -> None:
        """New states with a text between them, one more than it has letters."""
        first = len(self.free)
        if first + len(labels) > self._limits.max_states:
            raise LimitError("max_states", self._limits.max_states, "Writing out the text around the values")
        self.free += [[] for _ in labels]
        self.calls += [[] for _ in labels]
        self.labels += labels
        self.moves += [[(1 << byte, there)] for there, byte in enumerate(text, first + 1)]
        self.moves.append([])

    def _named(self, named: tuple[tuple[str, tree.Format], ...], begin: int, end: int) -> None:
        """A trie of names, with what stands behind each where it ends."""
        place = self.labels[begin]
        first = self.state((place, b""))
        self.free[begin].append(first)
        states = {b"": first}
        for text, behind in named:
            name, here = text.encode(), first
            for size in range(1, len(name) + 1):
                read = name[:size]
                there = states.get(read)
                if there is None:
                    there = states[read] = self.state((place, read))
                    self.moves[here].append((1 << name[size - 1], there))
                here = there
            outside = self._numbers, self._behind
            self._numbers, self._behind = itertools.count(), (place, name)
            self.add(behind, here, end)
            self._numbers, self._behind = outside

    def _repeated(self, node: tree.Repeated, begin: int, end: int) -> None:
        here = begin
        for _ in range(node.low):
            there = self.state()
            self.add(node.part, here, there)
            here = there
        for _ in range(0 if node.high is None else node.high - node.low):
            self.free[here].append(end)
            there = self.state()
            self.add(node.part, here, there)
            here = there
        if node.high is None:
            loop = self.state()
            self.free[here].append(loop)
            self.add(node.part, loop, loop)
            here = loop
        self.free[here].append(end)

    def _automaton(self, node: tree.Format, begin: int, end: int) -> None:
        leads = node.leads if isinstance(node, tree.FreeText) else ()
        if isinstance(node, tree.FreeText):
            node = dataclasses.replace(node, leads=())
        if node not in self._dfas:
            self._dfas[node] = text_dfa(node, self._limits, self._deadline)
        dfa = self._dfas[node]
        if dfa.num_states < 2:
            return
        answer = _answer(leads, dfa, next(self._numbers), self._letters) if leads else None
        states = [s if s != dfa.start else 0 for s in range(dfa.num_states)]
        number = [self.state(answer and dataclasses.replace(answer, state=state)) for state in states]
        for at, mask, there in self._dfa_moves(dfa):
            self.moves[number[at]].append((mask, number[there]))
        for state in np.flatnonzero(dfa.final).tolist():
            self.free[number[state]].append(end)
        self.free[begin].append(self._led(leads, answer, dfa, number, end) if leads else number[dfa.start])

    def check_sketch(self, number: int, states: Collection[int], read: list[tuple[int, int]], called: bool) -> None:
        """Notes what is left of a call in a subset. Raises `_NoSketchError`: beside an answer that has begun like a call is
        something else that reads what is left out."""
        for others, is_last, behind in filter(None, map(self.hidden.get, states)):
            if (called and not is_last) or any(mask & others for mask, _ in read):
                raise _NoSketchError
            if behind:
                self.left[number] = behind

    def _dfa_moves(self, dfa: ByteDfa) -> list[tuple[int, int, int]]:
        """(state, letters, next state) of all moves."""
        if dfa not in self._moves_of:
            source, target = distinct_moves(dfa.table)
            self._moves_of[dfa] = list(zip(source.tolist(), byte_masks(dfa, source, target), target.tolist()))
        return self._moves_of[dfa]

    def _led(
        self, leads: tuple[tuple[str, str, str], ...], answer: Answer | None, dfa: ByteDfa, number: list[int], end: int
    ) -> int:
        """Where free text begins that begins with none of some leads; `number`: by state of its automaton, that where it goes on
        in any way."""
        tail = answer.behind if self._sketch and answer is not None else b""
        if tail and (not dfa.final[dfa.start] or any(tail.decode()[0] in name for _, name, _ in leads)):
            raise _NoSketchError
        whole = {"".join(lead).encode() for lead in leads}
        states: dict[bytes, tuple[int, int]] = {}
        letters: dict[bytes, set[int]] = {}
        for lead in leads:
            text, inside = "".join(lead).encode(), dfa.start
            for read, byte in enumerate(text[: len(text) + 1 - len(tail)] if tail else text):
                here = text[:read]
                if here in whole or not inside:
                    break
                if here not in states:
                    states[here] = self.state(_lead_label(answer, lead, read)), inside
                    letters[here] = set()
                letters[here].add(byte)
                inside = int(dfa.table[inside, dfa.byte_class[byte]])
        after = {text: state for text, (state, _) in states.items()}
        if answer is not None and len(tail) > 1:
            for _, name, _ in leads:
                after[answer.before + name.encode() + tail[:1]] = self._tail(answer, name.encode(), end)
        for here, (state, inside) in states.items():
            others = ~sum(1 << byte for byte in letters[here])
            begun = [(1 << byte, here + bytes([byte])) for byte in sorted(letters[here])]
            if tail and here:
                self.hidden[state] = others, any(text in whole for _, text in begun), 0
            else:
                moves = [(mask & others, there) for mask, there in self.moves[number[inside]]]
                self.moves[state] += [move for move in moves if move[0]]
            self.moves[state] += [(mask, after[text]) for mask, text in begun if text in after]
            if dfa.final[inside]:
                self.free[state].append(end)
        return after[b""]

    def _tail(self, answer: Answer, name: bytes, end: int) -> int:
        """Of a sketch, an answer that has begun like a call up to behind its name: the first of its states."""
        tail, first = answer.behind, len(self.free)
        self._chain(tail[1:-1], [(answer, name, len(name) + read) for read in range(1, len(tail))])
        for state, letter in enumerate(tail[1:], first):
            self.free[state].append(end)
            self.hidden[state] = ~(1 << letter), state == first + len(tail) - 2, 1 + state - first
        return first


def _answer(leads: tuple[tuple[str, str, str], ...], dfa: ByteDfa, number: int, more: frozenset[int]) -> Answer | None:
    """The label of an answer; None where leads do not differ in their names alone. `more`: letters of names besides theirs."""
    around = {(before, behind) for before, _, behind in leads}
    letters = {byte for lead in leads for byte in "".join(lead).encode()} | more
    if len(around) > 1 or not all(name for _, name, _ in leads):
        return None
    if any(dfa.table[dfa.start, dfa.byte_class[byte]] != dfa.start for byte in letters):
        return None
    ((before, behind),) = around
    return Answer(number, before.encode(), behind.encode())


def _lead_label(answer: Answer | None, lead: tuple[str, str, str], read: int) -> Hashable:
    """The label of an answer that has begun like a lead."""
    before, name, _ = (part.encode() for part in lead)
    if answer is None:
        return "".join(lead).encode()[:read].decode("latin-1") if name else None
    within = read - len(before)
    if within < 0:
        return Before(answer, before[:read])
    return (answer, name[:within]) if within <= len(name) else (answer, name, within)


def text_dfa(node: tree.Format, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """The automaton of text without calls and special tokens; of free text without leads.

    Raises:
      FormatError: a pattern that is not one.
    """
    match node:
        case tree.FreeText(without=without):
            made = languages.regex("(?s:.*)") if not without else ~languages.regex(f"(?s:.*(?:{_any(without)}).*)")
        case tree.Words(language=made):
            pass
        case tree.Until(end=mark, marks=marks, without=without):
            made = languages.regex(f"(?s:.*){re.escape(mark)}") - languages.regex(f"(?s:.*(?:{_any(marks)}).+)")
            if without:
                made = made - languages.regex(f"(?s:.*(?:{_any(without)}).*)")
        case tree.Regex(pattern=pattern, pointer=pointer):
            try:
                return languages.regex(pattern).to_byte_dfa(limits, deadline)
            except (PatternError, UnsatisfiableError) as error:
                raise FormatError(f"this pattern cannot be used: {error}", pointer=pointer) from None
        case _:
            raise TypeError(type(node).__name__)
    return made.to_byte_dfa(limits, deadline)


def _any(texts: tuple[str, ...]) -> str:
    return "|".join(re.escape(text) for text in texts)


def _closures(free: list[list[int]]) -> Callable[[int], frozenset[int]]:
    """What is reached without a letter, by state. `free`: by state, what is reached so at once."""
    far = functools.cache(lambda state: frozenset(reach([state], free.__getitem__)))

    @functools.cache
    def closure(state: int) -> frozenset[int]:
        more = free[state]
        if any(map(free.__getitem__, more)):
            return far(more[0]) | {state} if len(more) == 1 else far(state)
        return frozenset((state, *more))

    return closure


def _deterministic(build: _Nondeterministic, start: int, end: int, limits: CompileLimits, deadline: Deadline) -> TextAutomaton:
    """Subsets of states; a letter is a class of bytes that no state tells apart."""
    order: list[Collection[int]] = []
    free, all_moves, all_calls = build.free, build.moves, build.calls
    alone, known = [0] * len(free), dict[frozenset[int], int]()
    closure = _closures(free)

    def new(states: Collection[int]) -> int:
        order.append(states)
        if len(order) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Writing out the text around the values")
        return len(order)

    def number(states: int | frozenset[int]) -> int:
        if isinstance(states, int):
            found = alone[states]
            if not found:
                found = alone[states] = numbered(closure(states)) if free[states] else new((states,))
            return found
        return numbered(states if not any(map(free.__getitem__, states)) else frozenset().union(*map(closure, states)))

    def numbered(key: frozenset[int]) -> int:
        if len(key) == 1:
            (state,) = key
            found = alone[state] = alone[state] or new((state,))
            return found
        found = known.get(key, 0)
        if not found:
            found = known[key] = new(key)
        return found

    number(start)
    moves, calls = list[tuple[int, int, int]](), dict[int, dict[int, int]]()
    for at, states in enumerate(order, 1):
        if not at & 63:
            deadline.check("Writing out the text around the values")
        if len(states) == 1:
            (state,) = states
            read, called = all_moves[state], all_calls[state]
        else:
            read, called = [], []
            for state in states:
                read += all_moves[state]
                called += all_calls[state]
            if build.hidden:
                build.check_sketch(at, states, read, bool(called))
        if len(read) == 1:
            moves.append((at, read[0][0], alone[read[0][1]] or number(read[0][1])))
        elif len({mask for mask, _ in read}) == 1:
            moves.append((at, read[0][0], number(frozenset([there for _, there in read]))))
        elif read:
            moves += [(at, mask, number(there)) for mask, there in parted(read)]
        if called:
            targets: dict[int, set[int]] = {}
            for schema, target in called:
                targets.setdefault(schema, set()).add(target)
            calls[at] = {schema: number(frozenset(there)) for schema, there in targets.items()}
    return _of_subsets(build, order, moves, calls, end)


def _of_subsets(
    build: _Nondeterministic, order: list[Collection[int]], moves: list[tuple[int, int, int]],
    calls: dict[int, dict[int, int]], end: int,
) -> TextAutomaton:  # fmt: skip
    """The automaton of numbered subsets, with their moves, (subset, letters, next one), and calls; without those that lead
    nowhere."""
    final = np.array([False, *(end in states for states in order)])
    at, there = (np.array([move[i] for move in moves], np.int64) for i in (0, 2))
    called = np.array([(call, after) for call, to in calls.items() for after in to.values()], np.int64).reshape(-1, 2)
    edges = np.concatenate((there, called[:, 1])), np.concatenate((at, called[:, 0]))
    live = reached(*edges, final.nonzero()[0].tolist(), len(final))
    kept = np.where(live, live.cumsum(), 0).astype(np.int32)
    number, subsets = kept.tolist(), [(), *itertools.compress(order, live[1:].tolist())]
    alive = {number[call]: {schema: number[after] for schema, after in to.items() if number[after]} for call, to in calls.items()}
    byte_class = classes_of((mask for moves_of in build.moves for mask, _ in moves_of), 256 + len(build.specials))
    left = np.full(len(subsets), -1)
    left[kept[list(build.left)]] = list(build.left.values())
    left[0] = -1  # of what leads nowhere
    return TextAutomaton(
        table=table_of([mask for _, mask, _ in moves], kept[at], kept[there], byte_class, len(subsets)),
        byte_class=byte_class,
        final=np.append(False, final[live]),
        start=number[1],
        calls={call: to for call, to in alive.items() if call and to},
        schemas=tuple(node for _, node in build.schemas.values()),
        specials=tuple(build.specials),
        labels=tuple(_labels(build, subsets)) if build.has_names else (),
        left=left,
        is_sketch=bool(build.hidden),
    )


def _labels(build: _Nondeterministic, subsets: list[Collection[int]]) -> list[frozenset[Hashable] | bytes]:
    """The labels of subsets; of states outside of names those that read something, or where all is read."""
    told = [
        bool(moves or calls) or label == END or isinstance(label, tuple)
        for moves, calls, label in zip(build.moves, build.calls, build.labels)
    ]
    names: list[bytes | None] = [  # None: not behind a name; b"": nothing is told
        label[1] if isinstance(label, tuple) and len(label) > 2 else b"" if label == END or not some else None
        for some, label in zip(told, build.labels)
    ]
    out: list[frozenset[Hashable] | bytes] = []
    for states in subsets:
        behind = {names[state] for state in states}
        behind.discard(b"")
        name = behind.pop() if len(behind) == 1 else None
        out.append(frozenset([build.labels[state] for state in states if told[state]]) if name is None else name)
    return out
