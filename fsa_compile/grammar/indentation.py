"""Blocks by indentation: newline terminals with columns instead of `%declare _INDENT _DEDENT`.

A newline is read together with the spaces that begin the next line. Their number says whether a block begins, how many blocks
end, or neither; the grammar has terminals for that, which Lark's `Indenter` puts in. Here frames are multiplied with what is
known of the text: at which *level* (number of open blocks) it stands, and at which level the newline that was read last has put
it, while blocks are still to be ended. A frame of a block at level k is one frame for each level at which a line can follow it,
all called together, so that the return tells which line it was, and one newline can end any number of blocks. So the stack holds
the level of every open block, and what knows no newlines (a line) is one frame for all levels.

Where a bracket is open, newlines are ignored, and so is what `%ignore` has and begins as a newline does, such as a comment; but
not within rules of one line. At the end of the text the last line end may be missing unless the newline terminal looks back,
also behind a comment that the newline terminal reads, and all blocks end.

Source: the language of Lark's `Indenter`, https://lark-parser.readthedocs.io, with a fixed number of spaces for each level.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from fsa_compile.arrays.bit_sets import union
from fsa_compile.arrays.graphs import Numbers, reach
from fsa_compile.automata.symbol_dfa import SymbolDfa, SymbolNfa, without_empty
from fsa_compile.errors import UnsupportedGrammarError
from fsa_compile.grammar.frame_actions import first_symbols
from fsa_compile.grammar.grammar_tree import Grammar, Indentation
from fsa_compile.grammar.lexing.terminal_automata import difference, trimmed
from fsa_compile.grammar.lexing.terminals import Automaton, End, Lexicon, Terminal
from fsa_compile.grammar.lexing.text_ahead import HOLDS
from fsa_compile.grammar.rule_automata import UncountableError
from fsa_compile.grammar.transition_network import Frame, Network
from fsa_compile.limits import CompileLimits, Deadline

At: TypeAlias = "tuple[int, int, bool]"
"""Level of the text; the level at which the last newline has put it, `_END` for the end of the text; and whether a newline was
read last that would hold a further line end as well, so that none can be missing."""
Copy: TypeAlias = "tuple[int, At, At]"
"""A frame with the levels at its begin and at its end."""
State: TypeAlias = "tuple[int, At]"
"""A state of a frame, with levels."""
Moves: TypeAlias = "dict[State, list[tuple[int | Copy | None, State]]]"
"""By state, what may be read there, a symbol, a frame with its levels or nothing; and what follows."""
_END = -1
_OPENING, _CLOSING = "([{", ")]}"
_DOING = "Giving the grammar's blocks levels"


class _Place(enum.Enum):
    """Where a frame stands: newlines are ignored in brackets only."""

    ELSEWHERE, IN_BRACKETS, ONE_LINE = range(3)


def indented(network: Network, grammar: Grammar, limits: CompileLimits, deadline: Deadline) -> Network:
    """The network over newline terminals with columns, without the terminals for the begin and the end of blocks.

    Args:
      network: as `build_network` made it; its lexicon gets more terminals.
      grammar: with `indentation`.

    Raises:
      UncountableError: a counted repetition holds lines.
      UnsupportedGrammarError: the newline terminal does not end with spaces.
    """
    assert grammar.indentation is not None
    assert network.blocks is not None
    newline = network.blocks[0]
    columns = _column_terminals(network.lexicon, newline, grammar.indentation, grammar)
    last, blank = _last_terminals(network.lexicon, newline, columns)
    frames = _Levels(network, columns, last, blank, limits, deadline).frames()
    ignore, in_brackets = _ignored(network, newline)
    frames, inside = _brackets(frames, network.lexicon.terminals, set(grammar.one_line))
    return dataclasses.replace(network, frames=frames, ignore=ignore, inside=inside, in_brackets=in_brackets)


def _ignored(network: Network, newline: int) -> tuple[list[int], list[int]]:
    """The terminals that are ignored everywhere, and those that are ignored in brackets only: these begin as a newline does.

    What is a newline itself, such as a comment, is not ignored besides where the newline terminal is.
    """
    automata = [terminal.automaton for terminal in network.lexicon.terminals]
    first = [first_symbols(automaton.arcs[:1]) for automaton in automata]
    like = [t for t in network.ignore if first[t] & first[newline]]
    if not union(first[t] for t in like) & network.lexicon.class_set(1 << ord("\n")):
        like = [newline, *(t for t in like if difference(automata[t], [automata[newline]])[0].arcs[0])]
    return [t for t in network.ignore if not first[t] & first[newline]], like


def _column_terminals(lexicon: Lexicon, newline: int, indentation: Indentation, grammar: Grammar) -> list[dict[int, bool]]:
    """The newline terminals that put the next line at level 0, 1, and so on: by number, whether the newline terminal reads all
    their texts with a further line end, too; else it reads none of them so."""
    base = lexicon.terminals[newline]
    space, line = lexicon.class_set(1 << ord(" ")), lexicon.class_set(1 << ord("\n"))
    out = []
    for level in range(indentation.levels + 1):
        column = level * indentation.unit
        parts = [(more, trimmed(_with_column(part, space, line, column))[0]) for more, part in _by_more(base.automaton, line)]
        parts = [(more, part) for more, part in parts if any(part.final)]
        if not parts:
            what = f"terminal {base.name} does not end with {column} spaces, which begin a line in {level} blocks"
            fix = r"Let it read the spaces of the next line: /(\r?\n[\t ]*)+/."
            raise UnsupportedGrammarError(what, text=grammar.text, start=base.start, end=base.end, fix=fix)
        numbers = {}
        for more, part in parts:
            ends = _column_ends(lexicon, base, column, [other for _, other in parts if other is not part])
            name, key = f"{base.name} before level {level}", ("column", level, more, base.key)
            numbers[len(lexicon.terminals)] = more
            terminal = Terminal(name, base.priority, False, key, base.start, base.end, part, False, ends, begin=base.begin)
            lexicon.terminals.append(terminal)
        out.append(numbers)
    return out


def _by_more(newline: Automaton, line: int) -> Iterator[tuple[bool, Automaton]]:
    """The texts of the newline terminal by whether it reads them with a further line end, too."""
    more = [any(symbols & line and newline.final[there] for symbols, there in arcs) for arcs in newline.arcs]
    for wanted in (True, False):
        yield wanted, Automaton(newline.arcs, [final and own == wanted for final, own in zip(newline.final, more)])


def _column_ends(lexicon: Lexicon, base: Terminal, column: int, others: list[Automaton]) -> list[End]:
    """The conditions at the end of a newline terminal that puts the next line at a column; `others`: texts of another one."""
    space, tab, feed, line = (lexicon.class_set(1 << ord(c)) for c in " \t\f\n")
    ends = [
        End(difference(part, others)[0] if others else part, end.guard | space | tab | feed | further, end.look)
        for end in base.ends or [End(base.automaton, 0)]
        for further, part in _by_continuation(_with_column(end.automaton, space, line, column))
    ]
    return [end for end in ends if not others or any(end.automaton.final)]


def _by_continuation(automaton: Automaton) -> Iterator[tuple[int, Automaton]]:
    """The texts of an automaton by the symbols with which longer ones may go on; those are given as well."""
    further = [first_symbols([arcs]) for arcs in automaton.arcs]
    for symbols in sorted({further[q] for q, final in enumerate(automaton.final) if final}):
        yield symbols, Automaton(automaton.arcs, [final and further[q] == symbols for q, final in enumerate(automaton.final)])


def _last_terminals(lexicon: Lexicon, newline: int, columns: list[dict[int, bool]]) -> tuple[list[int], bool]:
    """Numbers of terminals for a last line that is a newline but for its end, such as a comment, and is none without it.

    Also whether the last line may be blank, as it may where a newline must stand at the end of the text (`\\Z`). There are
    terminals for that, too, but for the spaces of a column.
    """
    base, end = lexicon.terminals[newline], 1 << lexicon.num_classes
    line, starts = lexicon.class_set(1 << ord("\n")), union(first_symbols(t.automaton.arcs[:1]) for t in lexicon.terminals)
    last = [one for one in base.ends or [End(base.automaton, 0)] if not one.guard & end]
    last = [one for one in last if not one.look or one.look.before(HOLDS) & end]
    blank = any(not starts & ~one.guard and not one.look for one in last)
    out, known = list[int](), [lexicon.terminals[t].automaton for t in itertools.chain(*columns)] if blank else [base.automaton]
    for one in last:
        arcs, final = one.automaton
        ends = [(blank and final[q]) or any(symbols & line and final[t] for symbols, t in some) for q, some in enumerate(arcs)]
        moved = [[(symbols, q + 1) for symbols, q in some] for some in arcs]
        automaton = difference(Automaton([moved[0], *moved], [False, *ends]), known)[0]
        if any(automaton.final):
            known += [automaton] * blank
            out.append(len(lexicon.terminals))
            key, name = ("last line", len(out), base.key), f"{base.name} without its end"
            terminal = Terminal(name, base.priority + 1, False, key, base.start, base.end, automaton, False, begin=base.begin)
            terminal.ends.append(End(automaton, end - 1))
            lexicon.terminals.append(terminal)
    return out, blank


def _with_column(base: Automaton, space: int, line: int, column: int) -> Automaton:
    """The texts of an automaton whose last line is a number of spaces. Positions: -1 not blank, else spaces so far."""
    number = Numbers([(0, -1)])
    arcs: list[list[tuple[int, int]]] = []
    for q, at in number.order:
        out = []
        for symbols, target in base.arcs[q]:
            further = at + 1 if 0 <= at < column else -1
            for part, there in ((symbols & line, 0), (symbols & space, further), (symbols & ~line & ~space, -1)):
                if part:
                    out.append((part, number[target, there]))
        arcs.append(out)
    return Automaton(arcs, [base.final[q] and at == column for q, at in number])


class _Levels:
    """Frames multiplied with levels."""

    def __init__(
        self, network: Network, columns: list[dict[int, bool]], last: list[int], blank: bool, limits: CompileLimits,
        deadline: Deadline,
    ) -> None:  # fmt: skip
        assert network.blocks is not None
        self.network, self.columns, self.last = network, columns, last
        looks_back = network.lexicon.terminals[network.blocks[0]].begin >= 0
        # Where nothing stands for the last line's end, nothing would read its condition on the text before it.
        self.missing: list[int | None] = [*([] if looks_back else [None]), *last, *itertools.chain(*columns[1:] * blank)]
        self.limits, self.deadline = limits, deadline
        self.newline, self.indent, self.dedent = network.blocks
        self.deep = self._deep()
        self.begin_with_newline = self._begin_with_newline() if any(any(some.values()) for some in columns) else set()
        self.exits: dict[tuple[int, At], set[At]] = {}
        self.silent: dict[tuple[int, At], set[At]] = {}
        """Of the exits those that are reached without a text, since a line end is missing: there is no frame for these."""
        self.users: dict[tuple[int, At], set[tuple[int, At]]] = {}
        """Frames with the levels at their begin that the exits of a frame matter to."""
        self.todo: dict[tuple[int, At], None] = {}
        """Frames of which the exits are to be looked for, perhaps again."""
        self.reached = functools.lru_cache(maxsize=4)(self._reached)  # copies with other ends are made one after another
        self.number: dict[Copy | int, int] = {}

    def _deep(self) -> set[int]:
        """Frames that hold newlines, or begins or ends of blocks."""
        frames, marks = self.network.frames, set(self.network.blocks or ())
        deep: set[int] = {0}
        size = -1
        while size != len(deep):
            size = len(deep)
            for k, frame in enumerate(frames):
                symbols = {symbol for arcs in frame.dfa.arcs for symbol in arcs}
                if symbols & marks or any(symbol < 0 and ~symbol in deep for symbol in symbols):
                    deep.add(k)
        counted = {frames[k].loop.node for k in deep if frames[k].loop}  # type: ignore[union-attr]
        if counted:
            raise UncountableError(counted)
        return deep

    def _begin_with_newline(self) -> set[int]:
        """Frames that may begin with a newline, or hold no text."""
        found: set[int] = set()
        while True:
            more = {k for k in self.deep - found if self._begins_with(k, found)}
            if not more:
                return found
            found |= more

    def _begins_with(self, k: int, found: set[int]) -> bool:
        """Whether a frame begins with a newline or one of the frames found, or ends before anything else."""
        dfa, passed = self.network.frames[k].dfa, {self.indent, self.dedent}
        reached = reach([0], lambda q: [there for symbol, there in dfa.arcs[q].items() if symbol in passed])
        symbols = {symbol for q in reached for symbol in dfa.arcs[q]}
        ends = any(dfa.final[q] for q in reached if q)
        return ends or self.newline in symbols or any(symbol < 0 and ~symbol in found for symbol in symbols)

    def frames(self) -> list[Frame]:
        """All frames that the first one needs, that one first."""
        self._find_exits()
        out = [self._copy(0, (0, 0, False), {(0, 0, False), (0, 0, True), (0, _END, False)})]
        done = 0
        while done < len(self.number):
            key = list(self.number)[done]
            done += 1
            out.append(self._renumbered(key) if isinstance(key, int) else self._copy(key[0], key[1], {key[2]}))
        return out

    def _moves(self, user: tuple[int, At], q: int, at: At) -> Iterator[tuple[int | Copy | None, int, At]]:
        """What may be read from a state of a frame at a level: a symbol, a frame with its levels or nothing; and what follows."""
        level, target, newly = at
        for symbol, there in self.network.frames[user[0]].dfa.arcs[q].items():
            if symbol == self.indent:
                if target == level + 1:
                    yield None, there, (level + 1, level + 1, newly)
            elif symbol == self.dedent:
                if target < level:
                    yield None, there, (level - 1, target, newly)
            elif symbol < 0 and ~symbol in self.deep:
                callee = ~symbol, (level, target, newly and ~symbol in self.begin_with_newline)
                if callee not in self.users:
                    self.users[callee], self.todo[callee] = set(), None
                self.users[callee].add(user)
                for end in sorted(self.exits.get(callee, ())):
                    yield (*callee, end), there, end
                for end in sorted(self.silent.get(callee, ())):
                    yield None, there, end
            elif level == target:
                if symbol != self.newline:
                    yield symbol, there, (level, target, False)
                    continue
                for put, some in enumerate(self.columns[: level + 2]):
                    for column, more in some.items():
                        yield column, there, (level, put, more)
                for missing in self.missing:
                    if missing is not None or not newly:
                        yield missing, there, (level, _END, False)

    def _reached(self, k: int, first: At) -> Moves:
        """States with levels that a copy of a frame reaches, with their moves."""
        out: Moves = {}
        todo = [(0, first)]
        while todo:
            state = todo.pop()
            if state not in out:
                out[state] = [(label, (there, at)) for label, there, at in self._moves((k, first), *state)]
                todo += [where for _, where in out[state]]
        return out

    def _find_exits(self) -> None:
        """Per frame and level at its begin the levels at its end: the least fixed point."""
        self.todo[0, (0, 0, False)] = None
        while self.todo:
            self.deadline.check(_DOING)
            del self.todo[key := next(iter(self.todo))]
            final, reached = self.network.frames[key[0]].dfa.final, self._reached(*key)
            exits = {at for q, at in reached if final[q]}
            silent = {at for q, at in _without_a_text(reached, (0, key[1])) if final[q]}
            if (exits, silent) != (self.exits.get(key, set()), self.silent.get(key, set())):
                self.exits[key], self.silent[key] = exits, silent
                self.todo.update(dict.fromkeys(self.users.get(key, ())))

    def _call(self, key: Copy | int) -> int:
        return ~(self.number.setdefault(key, len(self.number)) + 1)

    def _copy(self, k: int, first: At, ends: set[At]) -> Frame:
        """A frame from one level to others."""
        frame = self.network.frames[k]
        nfa = SymbolNfa()
        reached = self.reached(k, first)
        states = {state: nfa.state() for state in reached}
        end = nfa.state()
        for state, moves in reached.items():
            if frame.dfa.final[state[0]] and state[1] in ends:
                nfa.empty[states[state]].append(end)
            for label, where in moves:
                if label is None:
                    nfa.empty[states[state]].append(states[where])
                else:
                    nfa.arcs[states[state]].append((self._labels(label), states[where]))
        dfa = nfa.minimal(states[0, first], end, lambda _: self.deadline.check(_DOING))
        newlines = [*itertools.chain(*self.columns), *self.last]
        homes = {**frame.homes, **dict.fromkeys(newlines, frame.homes.get(self.newline, [frame.rule]))}
        return dataclasses.replace(frame, dfa=dfa if k == 0 else without_empty(dfa), homes=homes, block=True)

    def _labels(self, label: int | Copy) -> int:
        if isinstance(label, tuple):
            return self._call(label)
        return label if label >= 0 else self._call(~label)

    def _renumbered(self, k: int) -> Frame:
        """A frame that knows no levels."""
        frame = self.network.frames[k]
        number = {symbol: symbol if symbol >= 0 else self._call(~symbol) for arcs in frame.dfa.arcs for symbol in arcs}
        arcs = [{number[symbol]: target for symbol, target in one.items()} for one in frame.dfa.arcs]
        loop = frame.loop and dataclasses.replace(frame.loop, begins={(q, number[symbol]) for q, symbol in frame.loop.begins})
        return dataclasses.replace(frame, dfa=SymbolDfa(arcs, frame.dfa.final), loop=loop)


def _without_a_text(reached: Moves, first: State) -> Iterable[State]:
    """The states with levels that are reached before anything is read."""
    return reach([first], lambda state: [there for label, there in reached[state] if label is None])


def _brackets(
    frames: list[Frame], terminals: list[Terminal], one_line: set[str]
) -> tuple[list[Frame], list[list[bool]]]:
    """The frames, once for each place where they stand; and by frame and state whether newlines are ignored there.

    Places: elsewhere, in brackets, and within a rule of one line, whose brackets do not matter.
    """
    weight = [_weight(terminal) for terminal in terminals]
    depth = _depths(frames, weight)
    number: dict[tuple[int, _Place], int] = {}

    @functools.cache
    def alike(k: int) -> bool:
        """Whether it makes no difference for a frame where it stands."""
        dfa = frames[k].dfa
        entered = {target for arcs in dfa.arcs for target in arcs.values()}
        return all(
            depth[k][q] > 0 or not (arcs or (q and dfa.final[q] and not dfa.closed))
            for q, arcs in enumerate(dfa.arcs)
            if q in entered or q
        )

    def numbered(k: int, place: _Place) -> int:
        if place is _Place.ONE_LINE or frames[k].name in one_line:
            return number.setdefault((k, _Place.ONE_LINE), len(number))
        return number.setdefault((k, _Place.ELSEWHERE if alike(k) else place), len(number))

    numbered(0, _Place.ELSEWHERE)
    out: list[Frame] = []
    inside: list[list[bool]] = []
    while len(out) < len(number):
        k, place = list(number)[len(out)]
        frame = frames[k]
        places = [_Place.IN_BRACKETS if d > 0 and place is _Place.ELSEWHERE else place for d in depth[k]]
        for q, one in enumerate(frame.dfa.arcs):
            if one and all(s < 0 and frames[~s].name in one_line for s in one):
                places[q] = _Place.ONE_LINE
        inside.append([there is _Place.IN_BRACKETS for there in places])
        arcs = [
            {s if s >= 0 else ~numbered(~s, places[q]): target for s, target in one.items()}
            for q, one in enumerate(frame.dfa.arcs)
        ]
        begins = {(q, s if s >= 0 else ~numbered(~s, places[q])) for q, s in (frame.loop.begins if frame.loop else ())}
        loop = frame.loop and dataclasses.replace(frame.loop, begins=begins)
        out.append(dataclasses.replace(frame, dfa=SymbolDfa(arcs, frame.dfa.final), loop=loop))
    return out, inside


def _weight(terminal: Terminal) -> int:
    text = terminal.key[1] if terminal.key[0] == "literal" else ""
    return (text in tuple(_OPENING)) - (text in tuple(_CLOSING))


def _depths(frames: list[Frame], weight: list[int]) -> list[list[int]]:
    """By frame and state how many brackets have been opened since the frame began."""
    net: dict[int, int] = {}
    while True:
        out = []
        for frame in frames:
            depth = {0: 0}
            todo = [0]
            while todo:
                q = todo.pop()
                for symbol, target in frame.dfa.arcs[q].items():
                    change = weight[symbol] if symbol >= 0 else net.get(~symbol)
                    if change is not None and target not in depth:
                        depth[target] = depth[q] + change
                        todo.append(target)
            out.append([depth.get(q, 0) for q in range(len(frame.dfa.arcs))])
        known = {
            k: found[0] for k, frame in enumerate(frames) if (found := [out[k][q] for q, f in enumerate(frame.dfa.final) if f])
        }
        if known == net:
            return out
        net = known
