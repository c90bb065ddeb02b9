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

    gone: dict[tuple[tuple[int, int], ...], list[int]] = {}
    calls: dict[int, tuple[list[Entry], list[Entry]]] = {}  # lists that are all calls, and what is left of them
    for c, actions in enumerate(tables.actions):
        if not contexts[c]:
            continue
        for i, (mask, entries) in enumerate(actions):
            found = calls.get(id(entries))
            if found is None:
                alive = [
                    e for e in entries
                    if e[0] == RETURN or not (dead_below(e[0], e[1][-1][0]) if e[1] else dead(e[0], contexts[c]))
                ]  # fmt: skip
                found = entries, alive
                if all([e[1] for e in entries]):
                    calls[id(entries)] = found
            if len(found[1]) < len(entries):
                actions[i] = mask, found[1]
        row = tuple(tables.ret[c].items())
        if row not in gone:
            gone[row] = [s for s, r in row if dead(r, below[s])]
        for symbol in gone[row]:
            del tables.ret[c][symbol]
    _drop_returns(tables)


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


class _Exits:
    """The exits that controls reach. Bit 0 of a set of exits is the end of the text, bit 1 + i the i-th control that returns.

    A *way* is a move, or a call: its lowest pushed symbol and the rest of it, a way of the callee. What lies behind calls with one
    lowest symbol is what returns through it from any exit of their rests. So sets of ways are nodes: those of controls, and the
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
        self.returning = [c for c, row in enumerate(tables.ret) if row]
        self.another = 1 << (len(self.returning) + 1)
        """No exit, but where a frame may begin another iteration."""
        self.number = {c: i + 1 for i, c in enumerate(self.returning)}
        self.through: list[list[tuple[int, int]]] = [[] for _ in below]
        for c, i in self.number.items():
            for s, r in tables.ret[c].items():
                self.through[s].append((i, r))
        rows = [tuple(tables.ret[c]) for c in self.returning]
        symbols = {row: union(1 << s for s in row) for row in dict.fromkeys(rows)}  # controls share rows of returns
        self.valid = [bottom, *(symbols[row] for row in rows)]

    def _ways(self, adding: bool) -> tuple[list[tuple[int, int]], dict[frozenset[int], int]]:
        """All ways, each as the symbol of a call and the way that is left, or as -1 and the target of a move; and the sets of those
        of controls, numbered, with or without what begins an iteration."""
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
        known: dict[int, list[int]] = {}  # by identity: controls share lists of entries
        begin: set[int] = set()
        for c, actions in enumerate(self.tables.actions):
            found, begins = set[int](), False
            for _, entries in actions:
                own = known.get(key := id(entries))
                if own is None:
                    some = [(t, push, push[0][1] if push else add) for t, push, add in entries]
                    own = known[key] = [way(t, push) for t, push, add in some if t != RETURN and (adding or not add)]
                    if any(add for *_, add in some):
                        begin.add(key)
                found.update(own)
                begins |= key in begin
            if begins:
                self.iterating.append(c)
            self.set_of.append(sets.setdefault(frozenset(found), len(sets)))
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

    def good(self) -> list[int]:
        """Per control the symbols below which it can be completed."""
        while True:
            exits = self.reached = self._reached()
            known = {mask: self._valid_for(mask) for mask in dict.fromkeys(exits)}
            good = [known[mask] for mask in exits]
            changed = False
            lost: dict[tuple[tuple[int, int], ...], int] = {}  # controls share rows of returns
            for c, i in self.number.items():
                row = tuple(self.tables.ret[c].items())
                if row not in lost:
                    lost[row] = union(1 << s for s, r in row if self.below[s] & ~good[r])
                if self.valid[i] & lost[row]:
                    self.valid[i] &= ~lost[row]
                    changed = True
            if not changed:
                return good

    def _valid_for(self, exits: int) -> int:
        return union(self.valid[i] for i in members(exits & ~self.another))

    def _reached(self) -> list[int]:
        exits = [int(end == END_HERE) for end in self.tables.end]
        for c, i in self.number.items():
            exits[c] |= (self.valid[i] != 0) << i
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
    own, back = [0] * n, [0] * n  # bit sets of symbols; END is the bit after the last class
    end_bit = 1 << max((mask.bit_length() for actions in tables.actions for mask, _ in actions), default=0)
    users: list[list[int]] = [[] for _ in range(n)]
    onward = [frozenset(row.values()) for row in tables.ret]
    returning = lists_with_return(tables.actions)
    for c, actions in enumerate(tables.actions):
        back[c] = union([mask for mask, entries in actions if id(entries) in returning])
        own[c] = union([mask for mask, entries in actions if len(entries) > (id(entries) in returning)])
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
    for c in range(n):
        if tables.end[c] == END_RETURN and not after[c] & end_bit:
            tables.end[c] = NO_END
        if back[c]:
            tables.actions[c] = list(_with_returns(tables.actions[c], after[c]))
        else:
            tables.actions[c] = [action for action in tables.actions[c] if action[0] and action[1]]


def _with_returns(actions: list[Action], after: int) -> Iterator[tuple[int, list[Entry]]]:
    for mask, entries in actions:
        if any(e[0] == RETURN for e in entries):
            if mask & after:
                yield mask & after, entries
                mask &= ~after
            entries = [e for e in entries if e[0] != RETURN]
        if mask and entries:
            yield mask, entries
