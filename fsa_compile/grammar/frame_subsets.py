"""Frame determinisation: a network becomes controls and stack symbols over classes of bytes.

A *place* is a state of a frame's automaton between two lexemes; an *item* is a place, or a point inside a lexeme together with
the place after it. A control is the set of items that the text so far allows within one frame of the stack; a stack symbol maps
each callee that may have been entered to the places after it. Several callees are entered together, and the return is told by
which of them has ended. Reading a symbol is a move (within the frame), a call, or a return, after which the same symbol is
looked at again.

In the lexical mode "longest" a lexeme ends only before a symbol with which no lexeme that began with it could go on, and which
its terminal's guard allows (`longest_match`). So at most one terminal ends in a control.

In the mode "lark" a match also ends lexemes that began with it and that Lark would try after it (`lark_order`).

A lexeme may also end where a longer match has begun that may still fail: the next lexeme then begins beside it, one *generation*
younger. A match of an older generation ends all younger ones; where an older one fails, they become the text. A match with a
condition on what follows is one only before the symbols that it allows: until they are seen the younger generations stay. Both
readings lie in one control, so the older lexeme must be inline, and while it lasts the younger must neither call nor return.

Where more than the next symbol decides a condition, the reading that needs it to hold and the one that needs it to fail go on
side by side, each with its *looks* (`text_ahead`). Lexemes are compared with those alone that need no more than they do. Looks go
along into calls and returns, so all readings that call, or return, before one symbol must have the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fsa_compile.arrays.bit_sets import disjoint, members, union
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED
from fsa_compile.errors import LimitError
from fsa_compile.grammar.frame_actions import (  # fmt: skip
    Action,
    Begin,
    Call,
    Entry,
    FrameTables,
    Part,
    Shadow,
    Words,
    Young,
    entered,
    first_symbols,
    pushed,
    words_of,
)
from fsa_compile.grammar.frame_items import FrameItems
from fsa_compile.grammar.lexing.competing_lexemes import competitor_sets
from fsa_compile.grammar.lexing.lexeme_ends import MOST_GENERATIONS, Ending
from fsa_compile.grammar.lexing.text_ahead import NO_LOOKS, Looks
from fsa_compile.grammar.rule_automata import Loop
from fsa_compile.grammar.transition_network import Network
from fsa_compile.limits import CompileLimits, Deadline

_NEXT = MOST_GENERATIONS + 1
_DOING = "Making the grammar's frames deterministic"
BOTTOM: frozenset[int] = frozenset()
"""Callees entered below the first frame."""


class FrameBuilder(FrameItems):
    """The subset construction over the frames of a network.

    Args:
      network: the frames and their lexemes.
      longest: whether lexemes are cut by the longest match.
      back: whether a lexeme may end where a longer match may still fail; with one stack only.
      stacks: with more than 1, readings of one symbol on different stacks respect one another's lexemes (`competitors`).
    """

    def __init__(
        self, network: Network, *, longest: bool, stacks: int = 1, back: bool = False, limits: CompileLimits, deadline: Deadline
    ) -> None:
        self.back = back and longest and stacks == 1
        self.ordered = any(terminal.precedes for terminal in network.lexicon.terminals)
        super().__init__(network, longest=longest, back=self.back, limits=limits, deadline=deadline)
        self.early, self.too_far = dict[int, int](), dict[int, int]()
        self.counting = {k for k, frame in enumerate(network.frames) if frame.loop}
        self.controls: dict[tuple[frozenset[int], int], int] = {}
        self.sets: list[tuple[frozenset[int], int]] = []
        self.actions: list[list[Action] | None] = []
        self.endings_of: dict[int, list[Ending]] = {}
        self.at_places: dict[tuple[int, ...], list[Part]] = {}
        self.called: dict[tuple[int, int, int], list[Action]] = {}
        self.readable: dict[int, int] = {}
        self.returning: dict[int, tuple[frozenset[int], int, Looks]] = {}
        self.returns: dict[tuple[frozenset[int], int, Looks], dict[int, int]] = {}  # by `_returning` and stack symbol
        self.symbols: dict[frozenset[tuple[int, frozenset[int]]], int] = {}
        self.symbol_places: list[dict[int, frozenset[int]]] = []
        self.symbol_callees: list[frozenset[int]] = []
        self.ret: list[dict[int, int]] = []
        self.competitors: list[list[int]] = []
        if longest and stacks > 1:
            dfas = [frame.dfa for frame in network.frames]
            self.competitors = competitor_sets(dfas, len(self.lexicon.terminals), network.ignore)

    def _competitors(self, c: int) -> int:
        """Terminals that some stack may begin where control c reads its next lexeme; none when there is one stack."""
        mask = 0
        for p in self.places(c) if self.competitors else ():
            if p in self.shadow_terminal:
                mask |= 1 << self.shadow_terminal[p]
            elif p in self.place_frame:
                k, q = self.place_frame[p]
                mask |= self.competitors[k][q]
        if mask and self.lexicon.history:
            looks = next(self.looks[i] for i in self.sets[c][0] if i in self.looks)
            mask &= ~union(1 << t for t in self.not_begun(looks))
        return mask

    # ---------------------------------------------------------------- controls

    def control(self, items: Iterable[int], only: int = -1) -> int:
        """Number of a control: a set of items, restricted to some symbols (END among them)."""
        key = (frozenset(items), only)
        found = self.controls.get(key)
        if found is None:
            found = self.controls[key] = len(self.sets)
            self.sets.append(key)
            self.actions.append(None)
            self.ret.append({})
            if found > self.limits.max_states:
                raise LimitError("max_states", self.limits.max_states, _DOING)
        return found

    def _symbol(self, places: dict[int, set[int]]) -> int:
        key = frozenset((callee, frozenset(after)) for callee, after in places.items())
        found = self.symbols.get(key)
        if found is None:
            found = self.symbols[key] = len(self.symbol_places)
            self.symbol_places.append(dict(key))
            self.symbol_callees.append(frozenset(places))
        return found

    def going(self, c: int) -> list[int]:
        """The points inside lexemes that a control holds."""
        return [i for i in self.sets[c][0] if i in self.point]

    def endings(self, c: int) -> list[Ending]:
        """How the lexeme of a control may end, before disjoint sets of symbols.

        An older match comes before a younger one, a terminal of less rank before another that matches the same text. Symbols
        before which a condition forbids one of them to end are left to the next.
        """
        found = self.endings_of.get(c)
        if found is None:
            found = self.endings_of[c] = self._endings(c)
        return found

    def _endings(self, c: int) -> list[Ending]:
        items, only = self.sets[c]
        going, left = self.going(c), (self.every | self.end_bit) & only
        held = frozenset(items).difference(going)
        if not self.longest:
            return [Ending(held.union(self.after[i] for i in going if self.after[i] >= 0), left, 0, 0)]
        out = list[Ending]()
        for points in self.lexemes.matching(going):
            after = [self.after[i] for i in points if self.after[i] >= 0]
            look = self.lexemes.ahead(points[0])
            doubt = look.opposite if look else None
            generation = self.generation.get(points[0], 0)
            ending = Ending(frozenset(after), left, 0, generation, self.looks_of(points[0]), doubt)
            if self.ordered:
                ending = ending._replace(precedes=self._preceded(points, going, generation))
            forbidden = union(self.lexemes.condition(i) for i in points)
            out.append(self._ending(c, ending, forbidden, out, going, self.lexemes.follow(points[0])))
        for looks in dict.fromkeys(map(self.looks_of, sorted(held))):
            places = frozenset(p for p in held if self.looks_of(p) == looks)
            out.append(self._ending(c, Ending(places, left, 0, MOST_GENERATIONS, looks), 0, out, going, -1))
        return out

    def _ending(
        self, c: int, ending: Ending, forbidden: int, before: list[Ending], going: list[int], follow: int
    ) -> Ending:
        """An ending before symbols that conditions allow, and that lexemes before it leave, while others may go on.

        Args:
          ending: its places as they are; `rest`: all symbols.
          forbidden: symbols before which its own condition forbids it.
          before: endings of older lexemes, and of terminals that win.
          going: all points of the control.
          follow: symbols that something may begin with then, and END.
        """
        older = [x for x in before if x.looks <= ending.looks]
        left = ending.rest & ~forbidden & ~union(x.taken for x in older)
        more = [x.doubt for x in older if x.doubt] + ([ending.doubt.opposite] if ending.doubt else [])
        looks = ending.looks.union(more)
        allowed = left & union(symbols for symbols, _ in self.further(looks)) if looks else left
        within = [i for i in going if self.generation.get(i, 0) <= ending.generation and self.looks_of(i) <= ending.looks]
        within = [i for i in within if not self._ended_by(i, ending)] if ending.precedes else within
        soon = [i for i in within if self.looks and self.lexemes.soonest(i)]  # they go on where the condition at their end fails
        on = first_symbols(self.arcs[i] for i in within if i not in soon)
        alone = ending.doubt and {self.lexemes.ahead(i) for i in soon} == {ending.doubt.opposite}
        lost = 0 if alone else first_symbols(self.arcs[i] for i in soon) & allowed & follow & self.every
        if lost:
            self.too_far[c] = self.too_far.get(c, 0) | lost
        taken, allowed = left & ~ending.doubt.undecided() if ending.doubt else left, allowed & follow
        early = on & allowed & ~self.lexemes.settling(within) if on & allowed else 0
        rest = allowed & ~on
        open_ones = ending.looks.union(look for look in more if look.undecided() & rest)
        return ending._replace(
            places=self._looking_ahead(ending.places, open_ones),
            rest=rest,
            early=early,
            taken=taken,
            early_places=self._looking_ahead(ending.places, looks) if early else frozenset(),
        )

    def _preceded(self, points: list[int], going: list[int], generation: int) -> int:
        """The terminals (a bit set) that do not go on where the lexeme ends at some points, since Lark tries them after it."""
        beside = [i for i in going if self.generation.get(i, 0) == generation]
        precedes = self.lexemes.preceded(points, beside)
        return union(1 << self.point[i][0] for i in beside if self.lexemes.lost(i, precedes, beside))

    def _ended_by(self, i: int, ending: Ending) -> bool:
        """Whether a point does not go on where an ending is the text."""
        t = self.point[i][0]
        return t >= 0 and bool(ending.precedes >> t & 1) and ending.generation == self.generation.get(i, 0)

    def _looking_ahead(self, places: frozenset[int], looks: Looks) -> frozenset[int]:
        return frozenset(self.looking(p, looks) for p in places) if looks else places

    def after_call(self, ended: frozenset[int], symbol: int) -> set[int]:
        """The places after callees that have ended and that a stack symbol waits for."""
        return {p for callee, where in self.symbol_places[symbol].items() if callee in ended for p in where}

    def places(self, c: int) -> set[int]:
        """The places of a control: those it holds, and those after lexemes that may end here."""
        return {p for ending in self.endings(c) for p in ending.places}

    def ended(self, c: int) -> frozenset[int]:
        """Callees that may end here; not the first frame, behind which the text ends."""
        return self._returning(c)[0]

    def _returning(self, c: int) -> tuple[frozenset[int], int, Looks]:
        """Callees that may end in a control, the symbols before which they do, and conditions that must then come true; others,
        before other symbols, are too far."""
        found = self.returning.get(c)
        if found is None:
            found = frozenset(), 0, NO_LOOKS
            for ending in self.endings(c):
                ended = frozenset(self.ends[p] for p in ending.places if self.ends[p] > 0)
                looks = self.looks_of(next(iter(ending.places), -1))
                if ended and ending.rest:
                    if found[0] and (ended, looks) != (found[0], found[2]):
                        self.too_far[c] = self.too_far.get(c, 0) | (ending.rest & self.every or self.every)
                    else:
                        found = ended, found[1] | ending.rest, looks
            self.returning[c] = found
        return found

    def actions_of(self, c: int, inside: tuple[int, ...] = ()) -> list[Action]:
        """What may be done in a control: at most one move and one return, and calls, per set of symbols."""
        found = self.actions[c]
        if found is None:
            assert c not in inside, "a frame calls itself before it reads anything"
            found = self.actions[c] = self._actions(c, inside)
        return found

    def _actions(self, c: int, inside: tuple[int, ...]) -> list[Action]:
        endings, going, only = self.endings(c), self.going(c), self.sets[c][1]
        young = any(i in self.generation for i in going) if self.generation else False
        if self.looks:
            young |= len({self.looks_of(i) for i in self.sets[c][0]}) > 1 or any(map(self.lexemes.soonest, going))
        entwined = len(endings) > 1 or any(ending.early or ending.precedes for ending in endings)
        if not self.longest or self.competitors or young or entwined:
            return self._entwined_actions(c, endings, inside)
        # Another symbol goes on with the lexeme than ends it.
        moves = disjoint([(mask & only, [q]) for i in going for mask, q in self.arcs[i]])
        out = [(mask, self._own_entries(found, [], c, mask)) for mask, found in moves]
        for ending in endings:
            out += self._actions_at(tuple(ending.places), ending.rest, c, inside)
        return out

    def _actions_at(self, places: tuple[int, ...], rest: int, c: int, inside: tuple[int, ...]) -> list[Action]:
        """What may be done at places before some symbols. For all controls with these places it is worked out once, where one
        of them needs it."""
        parts = self.at_places.get(places)
        if parts is None:
            calls = [both for p in places for both in self.calls[p]]
            words = words_of((call for _, call in calls), self.groups)
            tags: list[tuple[int, Any]] = []
            for p in places:
                tags += [*self.arcs[p], *((mask, Begin(target)) for mask, target in self.begins.get(p, ()))]
            tags += [*calls, *([(self.every, RETURN)] if any(self.ends[p] > 0 for p in places) else [])]
            parts = [Part(mask, found, words) for mask, found in disjoint([(mask, [tag]) for mask, tag in tags])]
            self.at_places[places] = parts
        out: list[Action] = []
        for part in parts:
            if part.mask & rest:
                if part.actions is None:
                    part.actions = self._actions_on(part.mask, part.found, part.words, c, inside)
                out += [(both, entries) for mask, entries in part.actions if (both := mask & rest)]
        return out

    def _entwined_actions(self, c: int, endings: list[Ending], inside: tuple[int, ...]) -> list[Action]:
        """The actions of a control in which a symbol may both go on with a lexeme and end it, or end one of several."""
        moves: list[tuple[int, Any]] = []
        for i in self.going(c):
            generation, looks = self.generation.get(i, 0), self.looks_of(i)
            older = [x for x in endings if x.looks <= looks and (x.generation < generation or self._ended_by(i, x))]
            ended = union(x.taken for x in older)
            i = self.looking(i, [x.doubt for x in older if x.doubt])
            moves += [(mask & self.sets[c][1] & ~ended, Young(q, generation) if generation else q) for mask, q in self.arcs[i]]
        calls: list[tuple[int, Any]] = []
        for p, early in [(p, x.early) for x in endings for p in x.early_places] if self.back else ():
            moves += [(mask & early, Young(target, _NEXT)) for mask, target in self.arcs[p]]
        for p, rest in [(p, x.rest) for x in endings if x.rest for p in x.places]:
            moves += [(mask & rest, target) for mask, target in self.arcs[p]]
            moves += [(mask & rest, Begin(target)) for mask, target in self.begins.get(p, ())]
            calls += [(mask & rest, call) for mask, call in self.calls[p]]
        if early := union(x.early for x in endings):
            self.early[c] = early
        rest = union(x.rest for x in endings)
        words = dict[tuple[int, ...], Words]()
        shadows = [
            (mask & rest, Shadow(t, q))
            for t in members(self._competitors(c))
            for mask, q in self.lexicon.terminals[t].automaton.arcs[0]
        ]
        callees, before, _ = self._returning(c)
        returns = [(before & self.every, RETURN)] if callees else []
        out: list[Action] = []
        for mask, found in disjoint([(mask, [tag]) for mask, tag in [*moves, *calls, *returns, *shadows]]):
            here = tuple(n for n, x in enumerate(endings) if not mask & ~x.rest)
            if here not in words:
                words[here] = words_of((both[1] for n in here for p in endings[n].places for both in self.calls[p]), self.groups)
            out += self._actions_on(mask, found, words[here], c, inside)
        return out

    def _actions_on(self, mask: int, found: list[Any], words: Words, c: int, inside: tuple[int, ...]) -> list[Action]:
        """The actions on symbols on which the same is possible: what is done in the frame, and all that is called with it."""
        others, looks = [x for x in found if type(x) is Shadow], {x.looks for x in found if type(x) is Call}
        if len(looks) > 1:  # nothing would tell which of the places after it goes with which conditions
            self.too_far[c] = self.too_far.get(c, 0) | mask
        ahead = next(iter(looks), NO_LOOKS)
        parts = [(mask, self._own_entries(found, others, c, mask))]
        for add, callees in entered([x for x in found if type(x) is Call], words, self.groups, self.counting):
            symbol = self._symbol(callees)
            entrances = [*(self.looking(self.entry[k], ahead) for k in callees), *self._shadow_starts(others)]
            assert self.point.keys().isdisjoint(entrances), "lexemes of a control must begin together"
            first = self.control(entrances)
            self.actions_of(first, (*inside, c))
            readable = self._readable(first)
            parts = [
                (both, entries + deeper if entries else deeper)
                for inner, deeper in self._called(symbol, add, first)
                for have, entries in parts
                if (both := have & inner)
            ] + [(left, entries) for have, entries in parts if (left := have & ~readable) and entries]
        return parts

    def _called(self, symbol: int, add: int, first: int) -> list[Action]:
        """The actions of a callee's first control as those of its caller."""
        if (key := (symbol, add, first)) not in self.called:
            self.called[key] = [(mask, pushed(symbol, add, entries)) for mask, entries in self.actions[first] or []]
        return self.called[key]

    def _readable(self, c: int) -> int:
        """The symbols that a control reads in its own frame or by calls."""
        found = self.readable.get(c)
        if found is None:
            found = union(mask for mask, entries in self.actions[c] or [] if any(e[0] != RETURN for e in entries))
            self.readable[c] = found
        return found

    def _own_entries(self, found: list[Any], others: list[Shadow], c: int, mask: int) -> list[Entry]:
        """The move and the return among what is possible in a control on some symbols."""
        entries: list[Entry] = []
        targets = [x for x in found if type(x) is int and x != RETURN]
        young = [x for x in found if type(x) is Young]
        if young:
            targets, whole = self._generations(targets, young)
            if not whole:
                self.too_far[c] = self.too_far.get(c, 0) | mask
        begun = [x.target for x in found if type(x) is Begin]
        beside = [self._shadow(x.terminal, x.state) for x in others]
        for add, into in enumerate((targets, begun)):
            if any(x not in self.point or self.point[x][2] >= 0 for x in into):
                items = [x for x in [*into, *beside] if x != self.inside.get((-1, 0, -1))]
                entries.append((self.control(items), (), add))
        if RETURN in found:
            entries.append((RETURN, (), 0))
        return entries

    def _generations(self, oldest: list[int], young: list[Young]) -> tuple[list[int], bool]:
        """The items of a move, generations numbered anew, and whether these were not too many."""
        rest = [[x.target for x in young if x.generation == g] for g in sorted({x.generation for x in young})]
        levels = self.lexemes.not_settled([oldest, *rest])
        items = [self._aged(i, level) for level, targets in enumerate(levels[: _NEXT]) for i in targets]
        return items, len(levels) <= _NEXT

    def loop(self, c: int) -> Loop | None:
        """The loop that the frame of a control counts."""
        for item in self.sets[c][0]:
            place = self.point[item][2] if item in self.point else item
            if place in self.place_frame:
                return self.network.frames[self.place_frame[place][0]].loop
        return None

    def bounds(self, c: int) -> tuple[int, int]:
        """The bounds of what the frame of a control counts."""
        loop = self.loop(c)
        return (loop.low, loop.high) if loop else (UNCOUNTED, UNCOUNTED)

    def end_of(self, c: int) -> int:
        """Whether the text may end in a control."""
        if any(self.ends[p] == 0 for ending in self.endings(c) if ending.rest & self.end_bit for p in ending.places):
            return END_HERE
        return END_RETURN if self._returning(c)[1] & self.end_bit else NO_END

    def returned(self, c: int, symbol: int) -> int:
        """The control after a return from control c through a symbol; -1 when nothing that it waits for has ended."""
        row = self.returns.setdefault(ending := self._returning(c), {})
        found = row.get(symbol)
        if found is None:
            after, only = {self.looking(p, ending[2]) for p in self.after_call(ending[0], symbol)}, ending[1]
            found = self.control(after, -1 if self._reads_only(after, only) else only) if after else -1
            row[symbol] = found
        self.ret[c][symbol] = found
        return found

    def _reads_only(self, places: set[int], only: int) -> bool:
        """Whether nothing is read, and nothing ends, at some places on other symbols than these."""
        whole = only == self.every | self.end_bit
        return whole or not any(self.ends[p] >= 0 or self.readable_at(p) & ~only for p in places)

    def build(self) -> FrameTables:
        """All controls that some text reaches, with every symbol that may lie below them."""
        start = self.control([self.start])
        reachable = _Reachable(self)
        reachable.from_start(start)
        self.reached = reachable.seen
        self.below = reachable.below
        return self.tables(start)

    def tables(self, start: int = 0) -> FrameTables:
        """What is built so far; controls that nothing has looked at yet do nothing."""
        rows: dict[tuple[tuple[int, int], ...], list[Action]] = {}
        every = [row or [] for row in self.actions]
        actions = [rows.setdefault(tuple([(mask, id(entries)) for mask, entries in row]), row) for row in every]
        ends_of = [self.end_of(c) for c in range(len(self.sets))]
        returns: dict[tuple[tuple[int, int], ...], dict[int, int]] = {}
        ret = [returns.setdefault(tuple(row.items()), {s: r for s, r in row.items() if r >= 0}) for row in self.ret]
        bounds = [self.bounds(c) for c in range(len(self.sets))]
        return FrameTables(actions, ends_of, ret, self.symbol_callees, self.symbol_places, bounds, start, self.sets)


class _Reachable:
    """The controls that some text reaches, with what may lie below them.

    Attributes:
      seen: controls with callees that have been entered below them.
      below: per symbol, callees that have been entered below the frame that it suspends.
    """

    def __init__(self, builder: FrameBuilder) -> None:
        self.builder = builder
        self.seen: set[tuple[int, frozenset[int]]] = set()
        self.below: dict[int, set[frozenset[int]]] = {}
        self._todo: list[tuple[int, frozenset[int]]] = []
        self._behind: dict[int, dict[int, None]] = {}  # controls after a return through each symbol
        self._entered_by: dict[frozenset[int], list[int]] = {}
        self._ends: dict[frozenset[int], list[int]] = {}
        self._begun: dict[int, list[tuple[int, int]]] = {}  # distinct moves, as -1 and the target, and symbols of calls
        self._heads: dict[int, int] = {}  # by identity: lists that are calls of one symbol, which controls share

    def from_start(self, start: int) -> None:
        """Follows everything that can be done from the first control on."""
        builder, ends = self.builder, self._ends
        self._reach(start, BOTTOM)
        while self._todo:
            builder.deadline.check(_DOING)
            c, callees = self._todo.pop()
            known = self._begun.get(c)
            if known is None:
                self._begun[c] = self._begin(c, callees)
            else:
                for symbol, target in known:
                    if symbol < 0:
                        self._reach(target, callees)
                    else:
                        self._enter(symbol, callees)
            if callees and builder.ended(c):
                ends.setdefault(callees, []).append(c)
                for symbol in list(self._entered_by.get(callees, ())):
                    self._leave(c, symbol)

    def _begin(self, c: int, callees: frozenset[int]) -> list[tuple[int, int]]:
        """What a control does in its first context; how its calls go on is the same in all."""
        out: dict[tuple[int, int], None] = {}
        symbol_callees = self.builder.symbol_callees
        for _, entries in self.builder.actions_of(c):
            if (head := self._heads.get(id(entries), -1)) >= 0:
                if (head, 0) not in out:
                    out[head, 0] = None
                    self._enter(head, callees)
                continue
            for target, push, _ in entries:
                if target == RETURN:
                    continue
                under = callees
                for symbol, _ in push:
                    self._enter(symbol, under)
                    under = symbol_callees[symbol]
                self._reach(target, under)
                out[(push[0][0], 0) if push else (-1, target)] = None
            heads = {push[0][0] if push else -1 for _, push, _ in entries}
            if len(heads) == 1:
                self._heads[id(entries)] = heads.pop()
        return list(out)

    def _reach(self, c: int, callees: frozenset[int]) -> None:
        if (c, callees) not in self.seen:
            self.seen.add((c, callees))
            self._todo.append((c, callees))

    def _enter(self, symbol: int, under: frozenset[int]) -> None:
        if symbol not in self.below:
            callees = self.builder.symbol_callees[symbol]
            self.below[symbol], self._behind[symbol] = {under}, {}
            self._entered_by.setdefault(callees, []).append(symbol)
            for d in list(self._ends.get(callees, ())):
                self._leave(d, symbol)
        elif under not in self.below[symbol]:
            self.below[symbol].add(under)
            for r in self._behind[symbol]:
                self._reach(r, under)

    def _leave(self, c: int, symbol: int) -> None:
        r = self.builder.returned(c, symbol)
        if r >= 0 and r not in self._behind[symbol]:
            self._behind[symbol][r] = None
            for callees in self.below[symbol]:
                self._reach(r, callees)
