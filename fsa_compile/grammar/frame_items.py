"""Items of the frame construction: places between lexemes, points inside them, and copies of both that know more of the text.

An item may be *aged* (its lexeme began beside an older one that may still match) or *look ahead* (conditions on what follows must
hold, or fail, for it to be the text).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.errors import LimitError
from fsa_compile.grammar.frame_actions import Call, Shadow, first_symbols
from fsa_compile.grammar.lexing.follow_sets import first_and_last
from fsa_compile.grammar.lexing.lexeme_ends import LexemeEnds
from fsa_compile.grammar.lexing.longest_match import called_terminals, closed_frames
from fsa_compile.grammar.lexing.text_ahead import NO_LOOKS, Look, Looks, further
from fsa_compile.grammar.transition_network import Network
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "Following conditions of the grammar's terminals"
_STATES = 32
"""States that an item with conditions counts for: it has arcs and conditions of its own."""


class FrameItems:
    """The items of a network, made as they are met.

    Args:
      network: the frames and their lexemes.
      longest: whether lexemes are cut by the longest match.
      back: whether a lexeme may end where a longer match may still fail.

    Attributes:
      arcs: per item its (set of symbols, next item) pairs.
      after: per item the place after its lexeme, where that may end; else -1.
      calls: per item its calls, each with the symbols that the callee may begin with.
      ends: per item the callee that ends there, or -1.
      begins: of places, arcs that begin an iteration.
      point: terminal, state and place after of the points inside lexemes; the terminal is -1 where another stack reads it.
      start: the first place of a text.
      place_frame: frame and state of the places.
      generation: of the items that are aged.
      looks: of the items that look ahead.
    """

    def __init__(self, network: Network, *, longest: bool, back: bool, limits: CompileLimits, deadline: Deadline) -> None:
        self.network, self.longest, self.lexicon = network, longest, network.lexicon
        self.limits, self.deadline = limits, deadline
        self.every = (1 << self.lexicon.num_classes) - 1
        self.end_bit = 1 << self.lexicon.num_classes
        self.arcs: list[list[tuple[int, int]]] = []
        self.after: list[int] = []
        self.begins: dict[int, list[tuple[int, int]]] = {}
        self.calls: list[list[tuple[int, Call]]] = []
        self.ends: list[int] = []
        self.inside: dict[tuple[int, int, int], int] = {}
        self.point: dict[int, tuple[int, int, int]] = {}
        self.entry: dict[int, int] = {}
        self.place_frame: dict[int, tuple[int, int]] = {}
        self.generation: dict[int, int] = {}
        self.looks: dict[int, Looks] = {}
        self._plain: dict[int, int] = {}
        self._looking: dict[tuple[int, Looks], int] = {}
        self._further: dict[Looks, list[tuple[int, Looks]]] = {}
        self.called_terminals: dict[int, int] = {}
        if longest:
            dfas = [frame.dfa for frame in network.frames]
            self.called_terminals = called_terminals(dfas, self.lexicon.terminals, network.ignore, network.in_brackets, back)
        self.groups = {len(network.frames) + t: group for t, group in self.called_terminals.items()}
        self.lexemes = LexemeEnds(self.lexicon.terminals, self.arcs, self.point, self.generation, self.looks)
        self._lay_out()
        self.shadow_start, self.shadow_terminal = dict[int, int](), dict[int, int]()
        self.start = self.entry[0]
        if longest and self.lexicon.history:
            self.start = self.looking(self.start, [Look(self.lexicon.history.ahead, 0, True)])

    def _item(self, arcs: list[tuple[int, int]], after: int) -> int:
        self.arcs.append(arcs)
        self.after.append(after)
        self.calls.append([])
        self.ends.append(-1)
        return len(self.arcs) - 1

    def _lay_out(self) -> None:
        """Makes the places. Where text may be ignored, a state has a second place, for after a lexeme.

        Who ignores text after a frame? If nothing of the frame can follow its end, nor a callee's that ends it (`closed`), the
        caller; else the frame.
        """
        frames, ignore = self.network.frames, self.longest and bool(self.network.ignore or self.network.blocks)
        place: dict[tuple[int, int, bool], int] = {}
        for k, frame in enumerate(frames):
            for q in range(len(frame.dfa.arcs)):
                for loose in (False, True) if ignore and not frame.block else (False,):
                    place[k, q, loose] = item = self._item([], -1)
                    self.place_frame[item] = (k, q)
                    if frame.dfa.final[q]:
                        self.ends[item] = k
            self.entry[k] = place[k, 0, ignore and k == 0 and not frame.block]
        self.terminal_end = {t: self._item([], -1) for t in self.called_terminals}
        for t, item in self.terminal_end.items():
            self.ends[item] = len(frames) + t
            # No point inside the lexeme, which would keep what begins beside it from beginning.
            arcs = self.lexicon.terminals[t].automaton.arcs[0]
            self.entry[len(frames) + t] = self._item([(symbols, self._point(t, q, item)) for symbols, q in arcs], -1)
        of_terminal = [first_symbols(terminal.automaton.arcs[:1]) for terminal in self.lexicon.terminals]
        first, _ = first_and_last([frame.dfa for frame in frames])
        first_of_frame = [union(of_terminal[t] for t in members(terminals)) for terminals in first]
        closed = closed_frames([frame.dfa for frame in frames], [frame.line for frame in frames])
        for (k, q, loose), item in place.items():
            loop = frames[k].loop
            for symbol, target in frames[k].dfa.arcs[q].items():
                add = int(loop is not None and (q, symbol) in loop.begins)
                loose_after = ignore and not frames[k].block and not (closed[k] and frames[k].dfa.final[target])
                if symbol >= 0:
                    self._add_lexeme(item, symbol, place[k, target, loose_after], add)
                else:
                    after = place[k, target, loose_after and closed[~symbol]]
                    self.calls[item].append((first_of_frame[~symbol], Call(~symbol, after, add)))
            for t in self.network.ignored(k, q) if loose else ():
                self._add_lexeme(item, t, item)

    def _add_lexeme(self, item: int, t: int, target: int, add: int = 0) -> None:
        arcs = self.lexicon.terminals[t].automaton.arcs[0]
        if t in self.called_terminals:
            self.calls[item].append((first_symbols([arcs]), Call(len(self.network.frames) + t, target, add)))
        else:
            moves = self.begins.setdefault(item, []) if add else self.arcs[item]
            moves += [(symbols, self._point(t, q, target)) for symbols, q in arcs]

    def _point(self, t: int, q: int, target: int) -> int:
        """The item inside a lexeme; a lexeme that cannot go on is at its end."""
        pending: list[tuple[int, int]] = []
        first = self._reached_point(t, q, target, pending)
        terminal, ended = self.lexicon.terminals[t], list[tuple[int, Look]]()
        while pending:  # a lexeme may be thousands of characters long
            item, at = pending.pop()
            self.arcs[item] = [(s, self._reached_point(t, r, target, pending)) for s, r in terminal.automaton.arcs[at]]
            if terminal.soonest and at in terminal.ahead:
                ended.append((item, terminal.ahead[at]))
        if ended:
            self._end_soon(ended)
        return first

    def _end_soon(self, ended: list[tuple[int, Look]]) -> None:
        """Lets lexemes that may end go on only where the condition at their end fails."""
        copies: list[int] = []
        further = [
            [
                (both, self._looking_at(target, left, copies))
                for symbols, target in self.arcs[item]
                for possible, left in self.further(frozenset([look.opposite]))
                if (both := symbols & possible)
            ]
            for item, look in ended
        ]
        for (item, _), arcs in zip(ended, further, strict=True):
            self.arcs[item] = arcs
        while copies:
            self._follow(copies.pop(), copies)

    def _reached_point(self, t: int, q: int, target: int, pending: list[tuple[int, int]]) -> int:
        """The item of one state of a lexeme; a new one is also appended to what has no arcs yet."""
        terminal = self.lexicon.terminals[t]
        automaton = terminal.automaton
        alone = not terminal.ties and not terminal.precedes and terminal.begin < 0
        if automaton.final[q] and not automaton.arcs[q] and not terminal.doubt(q) and alone:
            return target
        found = self.inside.get((t, q, target))
        if found is None:
            found = self.inside[t, q, target] = self._item([], target if automaton.final[q] else -1)
            self.point[found] = (t, q, target)
            pending.append((found, q))
        return found

    def _shadow(self, t: int, q: int) -> int:
        """The item of a lexeme that another stack reads. What cannot go on, nor be what this stack reads, is one item, of which
        no control has need."""
        terminal = self.lexicon.terminals[t]
        automaton = terminal.automaton
        key = (t, q, -1) if automaton.arcs[q] or (automaton.final[q] and terminal.ties) else (-1, 0, -1)
        found = self.inside.get(key)
        if found is None:
            found = self.inside[key] = self._item([], -1)
            self.point[found] = key
            self.arcs[found] = [(symbols, self._shadow(t, r)) for symbols, r in automaton.arcs[q]]
        return found

    def _shadow_starts(self, shadows: list[Shadow]) -> list[int]:
        """Items of lexemes that another stack may begin with the next symbol."""
        out = []
        for t in {shadow.terminal for shadow in shadows}:
            if t not in self.shadow_start:
                self.shadow_start[t] = self._item([], -1)
                self.shadow_terminal[self.shadow_start[t]] = t
            out.append(self.shadow_start[t])
        return out

    def readable_at(self, p: int) -> int:
        """The symbols with which something begins at a place."""
        return first_symbols([self.arcs[p], self.begins.get(p, []), [(mask, 0) for mask, _ in self.calls[p]]])

    def _aged(self, item: int, level: int) -> int:
        """The item of a generation that stands for an item; places have none."""
        if not level or item not in self.point:
            return item
        if item in self.looks:
            return self.looking(self._aged(self._plain[item], level), self.looks[item])
        key = (item, level, -2)
        found = self.inside.get(key)
        if found is None:
            found = self.inside[key] = self._item(self.arcs[item], self.after[item])
            self.point[found], self.generation[found] = self.point[item], level
        return found

    # ---------------------------------------------------------------- looking ahead

    def further(self, looks: Looks) -> list[tuple[int, Looks]]:
        """Disjoint sets of symbols, END among them, that leave conditions possible, and what is left to be decided after them."""
        found = self._further.get(looks)
        if found is None:
            found = self._further[looks] = further(looks, self.every | self.end_bit)
        return found

    def looks_of(self, item: int) -> Looks:
        """The conditions that an item needs."""
        return self.looks.get(item, NO_LOOKS)

    def looking(self, item: int, looks: Iterable[Look]) -> int:
        """The item that needs further conditions to come true."""
        pending: list[int] = []
        if not looks:
            return item
        found = self._looking_at(item, frozenset(looks), pending)
        while pending:
            self._follow(pending.pop(), pending)
        return found

    def _looking_at(self, item: int, looks: Looks, pending: list[int]) -> int:
        """The item with further conditions; a new one is also appended to what has no arcs yet."""
        if not looks:
            return item
        item, looks = self._plain.get(item, item), looks | self.looks_of(item)
        found = self._looking.get((item, looks))
        if found is None:
            found = self._looking[item, looks] = self._item([], self.after[item])
            self._plain[found], self.looks[found], self.ends[found] = item, looks, self.ends[item]
            tables: tuple[dict[int, Any], ...] = (self.point, self.place_frame, self.generation)
            for table in tables:
                if item in table:
                    table[found] = table[item]
            pending.append(found)
            self.deadline.check(_DOING)
            if len(self._looking) > self.limits.max_states // _STATES:
                raise LimitError("max_states", self.limits.max_states, _DOING)
        return found

    def _follow(self, item: int, pending: list[int]) -> None:
        """The arcs and calls of an item with conditions, in place."""
        plain, looks = self._plain[item], self.looks[item]
        moves, lost = self.further(looks), self.not_begun(looks) if plain not in self.point else ()

        def left(arcs: list[tuple[int, int]]) -> list[tuple[int, int]]:
            return [
                (both, self._looking_at(target, after, pending))
                for symbols, target in arcs
                if not lost or self.point.get(target, (-1,))[0] not in lost
                for possible, after in moves
                if (both := symbols & possible)
            ]

        self.arcs[item] = left(self.arcs[plain])
        if plain in self.begins:
            self.begins[item] = left(self.begins[plain])
        possible, first = union(symbols for symbols, _ in moves), len(self.network.frames)
        calls = [
            (both, call._replace(looks=looks))
            for symbols, call in self.calls[plain]
            if (both := symbols & possible) and call.callee - first not in lost
        ]
        self.calls[item] = calls

    def not_begun(self, looks: Looks) -> Collection[int]:
        """The terminals whose condition on the text so far does not hold."""
        history = self.lexicon.history
        if history is None:
            return ()
        met = next(history.met[look.state] for look in looks if look.ahead is history.ahead)
        return {t for t, terminal in enumerate(self.lexicon.terminals) if terminal.begin >= 0 and terminal.begin not in met}
