"""Takes away what cannot be completed, so that no text leads into a dead end, and returns that nothing follows.

An *exit* of a frame is a control that can return, or in which the text may end. First the exits that each control can reach in
its frame are collected (calls on the way included), then an exit is struck out for a symbol if the frame below cannot go on to
an exit of its own in every context, until nothing changes. A control can be completed below a symbol if it reaches an exit
that is still valid for it; by induction over the height of the stack it then can in every configuration.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN
from fsa_compile.errors import UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.frame_actions import Action, Entry, FrameTables, Push, lists_with_return
from fsa_compile.grammar.frame_subsets import BOTTOM, FrameBuilder
from fsa_compile.grammar.rule_automata import UncountableError


def trim(tables: FrameTables, builder: FrameBuilder, text: str) -> None:
    """Removes, in place, entries and returns that cannot be completed.

    Raises:
      UnsatisfiableError: the initial control cannot be completed.
      UnsupportedGrammarError: whether one of them can depends on more than the symbol on top of the stack.
    """
    contexts, below = _contexts(tables, builder)
    for c in range(len(tables.actions)):
        if not contexts[c]:
            tables.actions[c], tables.ret[c], tables.end[c] = [], {}, NO_END
    bottom = 1 << len(tables.symbol_callees)
    exits = _Exits(tables, below, bottom)
    good = exits.good()
    met = contexts
    while exits.disagree(good):
        met, fewer = _met(tables, _Exits(tables, below, bottom).good(some=True), below, bottom)
        exits = _Exits(tables, fewer, bottom)
        good = exits.good()
        if fewer == below:
            break
        below = fewer
    _check_loops(tables, builder, contexts, exits, good, lambda: _Exits(tables, below, bottom, adding=True).good())
    if not good[tables.start] & bottom:
        what = "the grammar accepts no text: whatever is begun, some lexeme can never end"
        fix = "A lexeme ends only where it cannot go on: let what follows begin with other characters, or ignore spaces."
        raise UnsatisfiableError(what, fix=fix)

    def dead(there: int, where: int) -> bool:
        """Whether a control is dead for the given symbols below it; they must agree."""
        if where & ~good[there] and where & good[there]:
            what = "in one place, whether the text can be completed depends on what stands further outside"
            fix = "Let the rules in question end with a closing bracket or a keyword of their own."
            raise UnsupportedGrammarError(what, text=text, start=0, fix=fix)
        return not where & good[there]

    @functools.cache
    def dead_below(there: int, symbol: int) -> bool:
        return dead(there, 1 << symbol)

    def alive(entries: list[Entry], where: int) -> list[Entry]:
        some = [
            e for e in entries if e[0] == RETURN or not (dead_below(e[0], e[1][-1][0]) if e[1] else dead(e[0], where))
        ]
        return some if len(some) < len(entries) else entries

    # A control is not entered below symbols below which it is dead.
    entered = [symbols & good[c] for c, symbols in enumerate(met)]
    _drop_dead(tables, contexts, entered, alive, lambda row: {s: r for s, r in row.items() if not dead(r, below[s])})
    _drop_returns(tables)


def _drop_dead(
    tables: FrameTables,
    contexts: list[int],
    entered: list[int],
    alive: Callable[[list[Entry], int], list[Entry]],
    returns: Callable[[dict[int, int]], dict[int, int]],
) -> None:
    """Leaves what can be completed; `alive`: of a list of entries, below some symbols, `returns`: of a row of returns.

    Args:
      contexts: per control the symbols that may be on top of its stack; `entered`: those left when nothing dead is entered.
    """
    lists: dict[int, tuple[list[Entry], list[Entry]]] = {}  # by identity: lists that are all calls, and what is left of them
    rows: dict[int, tuple[list[Action], list[Action], list[int]]] = {}  # likewise rows; where other lists stand in each
    rets: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
    for c, row in enumerate(tables.actions):
        if not contexts[c]:
            continue
        if id(row) not in rows:
            left, others = [], []
            for i, (mask, entries) in enumerate(row):
                if id(entries) not in lists:
                    if not all(push for _, push, _ in entries):
                        others.append(i)
                        left.append((mask, entries))
                        continue
                    lists[id(entries)] = entries, alive(entries, 0)
                left.append((mask, lists[id(entries)][1]))
            rows[id(row)] = row, left, others
        _, left, others = rows[id(row)]
        own = left
        for i in others:
            mask, entries = left[i]
            if (some := alive(entries, entered[c])) is not entries:
                own = [*left] if own is left else own
                own[i] = mask, some
        tables.actions[c] = own
        if id(ret := tables.ret[c]) not in rets:
            rets[id(ret)] = ret, returns(ret)
        tables.ret[c] = rets[id(ret)][1]


def _check_loops(
    tables: FrameTables, builder: FrameBuilder, contexts: list[int], exits: _Exits, good: list[int], more: Callable[[], list[int]]
) -> None:
    """A counted frame must be able to end without another iteration, and below its lower bound to begin one, from everywhere.

    Raises:
      UncountableError: it is not so.
    """
    loops = {c: loop for c in range(len(tables.actions)) if contexts[c] and (loop := builder.loop(c))}
    if not loops:
        return
    adding = more()
    wrong = {
        loop.node
        for c, loop in loops.items()
        if good[c] != adding[c] or (loop.low > 1 and good[c] and not exits.reached[c] & exits.another)
    }
    if wrong:
        raise UncountableError(wrong)


def _contexts(tables: FrameTables, builder: FrameBuilder) -> tuple[list[int], list[int]]:
    """Per control the symbols that may be on top of its stack, and per symbol those that may lie right below it."""
    by_callees: dict[frozenset[int], int] = {BOTTOM: 1 << len(tables.symbol_callees)}
    for s, callees in enumerate(tables.symbol_callees):
        if s in builder.below:
            by_callees[callees] = by_callees.get(callees, 0) | 1 << s
    contexts = [0] * len(tables.actions)
    for c, callees in builder.reached:
        contexts[c] |= by_callees[callees]
    below = [0] * len(tables.symbol_callees)
    for s, under in builder.below.items():
        for callees in under:
            below[s] |= by_callees[callees]
    return contexts, below


def _met(tables: FrameTables, good: list[int], below: list[int], bottom: int) -> tuple[list[int], list[int]]:
    """`_contexts` where controls are entered only below symbols below which they may be completed.

    Args:
      good: per control these symbols.
      below: per symbol those that may lie right below it; the result has no others.
      bottom: the symbol at the bottom, as a bit set.
    """
    contexts, fewer = [0] * len(tables.actions), [0] * len(below)
    onward: list[set[int]] = [set() for _ in below]
    todo: dict[int, int] = {}

    def enter(c: int, symbols: int) -> None:
        if new := symbols & good[c] & ~contexts[c]:
            contexts[c] |= new
            todo[c] = todo.get(c, 0) | new

    def lie_below(s: int, symbols: int) -> None:
        if new := symbols & below[s] & ~fewer[s]:
            fewer[s] |= new
            for r in onward[s]:
                enter(r, new)

    enter(tables.start, bottom)
    while todo:
        c, new = todo.popitem()
        for there, push, _ in (e for _, entries in tables.actions[c] for e in entries if e[0] != RETURN):
            under = new
            for s, _ in push:
                lie_below(s, under)
                under = 1 << s
            enter(there, under)
        for s, r in tables.ret[c].items():
            if new >> s & 1 and r not in onward[s]:
                onward[s].add(r)
                enter(r, fewer[s])
    return contexts, fewer


class _Exits:
    """The exits that controls reach. In a set of them, bit 0 is the end of the text, bit 1 + i a return by row i of the returns.

    A *way* is a move, or a call: the lowest symbol that it pushes, and the rest of it, a way of the callee. Behind calls with one
    lowest symbol lies what returns through it from any exit of their rests. So sets of ways are nodes: those of controls, and the
    rests behind each symbol, which many controls share.
    """

    def __init__(self, tables: FrameTables, below: list[int], bottom: int, *, adding: bool = False) -> None:
        self.tables, self.below = tables, below
        self.set_of: list[int] = []
        """The set of ways of each control."""
        self.moves: list[list[int]] = [[] for _ in tables.actions]
        """Sets with a move, by its target."""
        self.calls: list[dict[int, list[int]]] = []
        """Per set of rests, by the symbol below them, the sets with these calls."""
        self.iterating: list[int] = []
        """Controls that may begin another iteration."""
        self._lay_out(*self._ways(adding))
        self.users: list[list[int]] = [[] for _ in self.calls]
        """Controls of each set."""
        for c, x in enumerate(self.set_of):
            self.users[x].append(c)
        self.reached: list[int] = []
        self.rows = list({id(row): row for row in tables.ret if row}.values())
        """Rows of returns: controls that return alike are one exit."""
        self.another = 1 << (len(self.rows) + 1)
        """No exit, but where a frame may begin another iteration."""
        self.through: list[list[tuple[int, int]]] = [[] for _ in below]
        for i, row in enumerate(self.rows, 1):
            for s, r in row.items():
                self.through[s].append((i, r))
        self.valid = [bottom, *(union(1 << s for s in row) for row in self.rows)]

    def _ways(self, adding: bool) -> tuple[list[tuple[int, int]], dict[frozenset[int], int]]:
        """All ways, each as the symbol of a call and its rest, or as -1 and the target of a move; and the numbers of the sets of
        controls' ways, with or without those that begin an iteration."""
        number: dict[tuple[int, Push], int] = {}
        ways: list[tuple[int, int]] = []

        def way(target: int, push: Push) -> int:
            found = number.get((target, push))
            if found is None:
                one = (push[0][0], way(target, push[1:])) if push else (-1, target)
                found = number[target, push] = len(ways)
                ways.append(one)
            return found

        sets: dict[frozenset[int], int] = {}
        lists = {id(entries): entries for actions in self.tables.actions for _, entries in actions}
        known: dict[int, list[int]] = {}
        begin: set[int] = set()
        for key, entries in lists.items():
            some = [(t, push, push[0][1] if push else add) for t, push, add in entries]
            known[key] = [way(t, push) for t, push, add in some if t != RETURN and (adding or not add)]
            if any(add for *_, add in some):
                begin.add(key)
        of_row: dict[int, tuple[int, bool]] = {}
        for c, actions in enumerate(self.tables.actions):
            if id(actions) not in of_row:
                found = frozenset(chain.from_iterable([known[id(entries)] for _, entries in actions]))
                begins = bool(begin) and any(id(entries) in begin for _, entries in actions)
                of_row[id(actions)] = sets.setdefault(found, len(sets)), begins
            number_of, begins = of_row[id(actions)]
            self.set_of.append(number_of)
            if begins:
                self.iterating.append(c)
        return ways, sets

    def _lay_out(self, ways: list[tuple[int, int]], sets: dict[frozenset[int], int]) -> None:
        """Lists who has each move and each call, and adds the sets of what is left of calls."""
        todo = list(sets)
        self.calls += [{} for _ in todo]
        for x, some in enumerate(todo):  # grows
            left: dict[int, list[int]] = {}
            for symbol, rest in map(ways.__getitem__, some):
                if symbol < 0:
                    self.moves[rest].append(x)
                else:
                    left.setdefault(symbol, []).append(rest)
            for symbol, rests in left.items():
                y = sets.setdefault(key := frozenset(rests), len(todo))
                if y == len(todo):
                    todo.append(key)
                    self.calls.append({})
                self.calls[y].setdefault(symbol, []).append(x)

    def disagree(self, good: list[int]) -> bool:
        """Whether a return can be completed above some symbols and not above others."""
        returns = [(self.below[s], good[r]) for row in self.rows for s, r in row.items()]
        return any(below & ~alive and below & alive for below, alive in returns)

    def good(self, *, some: bool = False) -> list[int]:
        """Per control the symbols below which it can be completed: whatever lies below these, or with `some` of that."""
        while True:
            exits = self.reached = self._reached()
            known = {mask: self._valid_for(mask) for mask in dict.fromkeys(exits)}
            good = [known[mask] for mask in exits]
            changed = False
            for i, row in enumerate(self.rows, 1):
                lost = union(
                    1 << s
                    for s, r in row.items()
                    if (dead := self.below[s] & ~good[r]) and not (some and dead != self.below[s])
                )
                if self.valid[i] & lost:
                    self.valid[i] &= ~lost
                    changed = True
            if not changed:
                return good

    def _valid_for(self, exits: int) -> int:
        return union(self.valid[i] for i in members(exits & ~self.another))

    def _reached(self) -> list[int]:
        exits = [int(end == END_HERE) for end in self.tables.end]
        number = {id(row): i for i, row in enumerate(self.rows, 1)}
        for c, row in enumerate(self.tables.ret):
            if row:
                exits[c] |= (self.valid[number[id(row)]] != 0) << number[id(row)]
        for c in self.iterating:
            exits[c] |= self.another
        through = [self._by_return(s) for s in range(len(self.through))]
        relevant = [union(masks.values()) for masks in through]
        behind: dict[tuple[int, int], _Behind] = {}
        waiting: list[list[_Behind]] = [[] for _ in exits]
        value = [0] * len(self.calls)
        """The exits of each set of ways."""
        controls = deque(c for c in range(len(exits) - 1, -1, -1) if exits[c])
        queued = [mask != 0 for mask in exits]
        grown: dict[int, None] = {}
        """Sets of ways of which calls have not been followed since they grew."""

        def add(x: int, mask: int) -> None:
            if mask & ~value[x]:
                value[x] |= mask
                grown[x] = None
                for c in self.users[x]:
                    if mask & ~exits[c]:
                        exits[c] |= mask
                        if not queued[c]:
                            queued[c] = True
                            controls.append(c)

        def follow(x: int) -> None:
            """Adds what lies behind calls whose callees' ways are a set."""
            for s, callers in self.calls[x].items():
                key = value[x] & relevant[s], s
                after = behind.get(key)
                if after is None:
                    returns = [r for r, some in through[s].items() if key[0] & some]
                    after = behind[key] = _Behind(union(exits[r] for r in returns), {})
                    for r in returns:
                        waiting[r].append(after)
                for caller in callers:
                    after.callers[caller] = None
                    add(caller, after.exits)

        while controls or grown:
            while controls:
                c = controls.popleft()
                queued[c], mask = False, exits[c]
                for x in self.moves[c]:
                    add(x, mask)
                for after in waiting[c]:
                    if mask & ~after.exits:
                        after.exits |= mask
                        for x in after.callers:
                            add(x, after.exits)
            now = list(grown)
            grown.clear()
            for x in now:
                follow(x)
        return exits

    def _by_return(self, symbol: int) -> dict[int, int]:
        """Controls after returns through a symbol, with the exits that are valid for it and lead there."""
        out: dict[int, int] = {}
        for i, r in self.through[symbol]:
            if self.valid[i] >> symbol & 1:
                out[r] = out.get(r, 0) | 1 << i
        return out


@dataclasses.dataclass(eq=False, slots=True)
class _Behind:
    """The exits that can be reached after a frame with some exits returns through a symbol, and the sets of ways that call so."""

    exits: int
    callers: dict[int, None]


def _drop_returns(tables: FrameTables) -> None:
    """Returns stay only on symbols with which something can go on after them."""
    n = len(tables.actions)
    rows = {id(row): row for row in tables.actions}
    returning = lists_with_return(rows.values())
    back_of = {key: union([m for m, entries in row if id(entries) in returning]) for key, row in rows.items()}
    own_of = {key: union([m for m, entries in row if len(entries) > (id(entries) in returning)]) for key, row in rows.items()}
    back, own = ([of[id(row)] for row in tables.actions] for of in (back_of, own_of))
    # Bit sets of symbols; END is the bit after the last class.
    end_bit = 1 << max((mask.bit_length() for row in rows.values() for mask, _ in row), default=0)
    users: list[list[int]] = [[] for _ in range(n)]
    after_return = {id(row): frozenset(row.values()) for row in tables.ret}
    onward = [after_return[id(row)] for row in tables.ret]
    for c in range(n):
        if tables.end[c] == END_HERE:
            own[c] |= end_bit
        elif tables.end[c] == END_RETURN:
            back[c] |= end_bit
        if back[c] & ~own[c]:
            for r in onward[c]:
                users[r].append(c)
    live = list(own)
    todo, queued = deque(range(n)), [True] * n
    while todo:
        c = todo.popleft()
        queued[c], mask = False, live[c]
        for user in users[c]:
            more = mask & back[user]
            if more & ~live[user]:
                live[user] |= more
                if not queued[user]:
                    queued[user] = True
                    todo.append(user)
    behind = {rows: union(live[r] for r in rows) for rows in set(onward)}
    after = [behind[rows] for rows in onward]
    left: dict[tuple[int, int], list[Action]] = {}
    for c in range(n):
        if tables.end[c] == END_RETURN and not after[c] & end_bit:
            tables.end[c] = NO_END
        row = tables.actions[c]
        key = id(row), after[c] & back_of[id(row)]
        if key not in left:
            returns = back_of[id(row)] > 0
            left[key] = list(_with_returns(row, after[c])) if returns else [action for action in row if action[0] and action[1]]
        tables.actions[c] = left[key]


def _with_returns(actions: list[Action], after: int) -> Iterator[tuple[int, list[Entry]]]:
    for mask, entries in actions:
        if any(e[0] == RETURN for e in entries):
            if mask & after:
                yield mask & after, entries
                mask &= ~after
            entries = [e for e in entries if e[0] != RETURN]
        if mask and entries:
            yield mask, entries
