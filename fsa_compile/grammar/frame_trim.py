"""Takes away what cannot be completed, so that no text leads into a dead end, and returns that nothing follows.

An *exit* of a frame is a control that can return, or in which the text may end. First the exits that each control can reach in
its frame are collected (calls on the way included), then an exit is struck out for a symbol if the frame below cannot go on to
an exit of its own in every context, until nothing changes. A control can be completed below a symbol if it reaches an exit
that is still valid for it; by induction over the height of the stack it then can in every configuration.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN
from fsa_compile.errors import UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.frame_actions import Action, Entry, FrameTables, Push
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

    gone: dict[tuple[tuple[int, int], ...], list[int]] = {}
    calls: dict[int, tuple[list[Entry], list[Entry]]] = {}  # lists that are all calls, and what is left of them
    for c, actions in enumerate(tables.actions):
        if not contexts[c]:
            continue
        for i, (mask, entries) in enumerate(actions):
            if id(entries) not in calls:
                alive = [e for e in entries if e[0] == RETURN or not dead(e[0], 1 << e[1][-1][0] if e[1] else contexts[c])]
                if all(e[1] for e in entries):
                    calls[id(entries)] = entries, alive
            else:
                alive = calls[id(entries)][1]
            if len(alive) < len(entries):
                actions[i] = mask, alive
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
    """The exits that controls reach. Bit 0 of a set of exits is the end of the text, bit 1 + i the i-th control that returns."""

    def __init__(self, tables: FrameTables, below: list[int], bottom: int, *, adding: bool = False) -> None:
        self.tables, self.below = tables, below
        self.moves: list[list[int]] = [[] for _ in tables.actions]
        """By target."""
        self.calls: list[list[int]] = [[] for _ in tables.actions]
        """Places in `ways`, by target."""
        self.ways: list[tuple[int, ...]] = []
        """The pushed symbols of different calls, from the top down."""
        self.target: list[int] = []
        self.users: list[list[int]] = []
        """The target of each way, and the controls that have it."""
        self._find_ways(adding)
        self.reached: list[int] = []
        self.another = 1 << (len(tables.actions) + 1)
        """No exit, but where a frame may begin another iteration."""
        self.returning = [c for c, row in enumerate(tables.ret) if row]
        self.number = {c: i + 1 for i, c in enumerate(self.returning)}
        self.through: list[list[tuple[int, int]]] = [[] for _ in below]
        for c, i in self.number.items():
            for s, r in tables.ret[c].items():
                self.through[s].append((i, r))
        self.valid = [bottom, *(sum(1 << s for s in tables.ret[c]) for c in self.returning)]

    def _find_ways(self, adding: bool) -> None:
        """Collects moves and calls, with or without those that begin an iteration."""
        number: dict[tuple[int, Push], int] = {}
        for c, actions in enumerate(self.tables.actions):
            both = {
                (target, push)
                for _, entries in actions
                for target, push, add in entries
                if target != RETURN and (adding or not (push[0][1] if push else add))
            }
            for target, push in both:
                if not push:
                    self.moves[target].append(c)
                    continue
                way = number.setdefault((target, push), len(number))
                if way == len(self.ways):
                    self.ways.append(tuple(s for s, _ in reversed(push)))
                    self.users.append([])
                    self.target.append(target)
                    self.calls[target].append(way)
                self.users[way].append(c)

    def good(self) -> list[int]:
        """Per control the symbols below which it can be completed."""
        while True:
            exits = self.reached = self._reached()
            good: list[int] = []
            known: dict[int, int] = {}
            for mask in exits:
                if mask not in known:
                    known[mask] = self._valid_for(mask)
                good.append(known[mask])
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
        tables, n = self.tables, len(self.tables.actions)
        exits = [int(end == END_HERE) for end in tables.end]
        for c, i in self.number.items():
            exits[c] |= (self.valid[i] != 0) << i
        for c, actions in enumerate(tables.actions):
            if any(push[0][1] if push else add for _, entries in actions for _, push, add in entries):
                exits[c] |= self.another
        through = [self._by_return(s) for s in range(len(self.through))]
        relevant = [union(masks.values()) for masks in through]
        behind: dict[tuple[int, int], _Behind] = {}
        waiting: list[list[_Behind]] = [[] for _ in range(n)]
        known = [0] * len(self.ways)
        """The exits behind each way."""
        todo, queued = deque(c for c in range(n - 1, -1, -1) if exits[c]), [mask != 0 for mask in exits]

        def add(c: int, mask: int) -> None:
            if mask & ~exits[c]:
                exits[c] |= mask
                if not queued[c]:
                    queued[c] = True
                    todo.append(c)

        def follow(way: int, found: int) -> None:
            """Adds what lies behind a way whose target reaches some exits."""
            for s in self.ways[way]:  # the frame of the call first, the caller's own at last
                key = found & relevant[s], s
                after = behind.get(key)
                if after is None:
                    returns = [r for r, some in through[s].items() if found & some]
                    after = behind[key] = _Behind(union(exits[r] for r in returns), {})
                    for r in returns:
                        waiting[r].append(after)
                after.ways[way] = None
                found = after.exits
            if found & ~known[way]:
                known[way] |= found
                for user in self.users[way]:
                    add(user, found)

        changed: dict[int, None] = {}
        while todo:
            while todo:
                c = todo.popleft()
                queued[c], mask = False, exits[c]
                for user in self.moves[c]:
                    add(user, mask)
                changed[c] = None
            ways: dict[int, None] = {}
            for c in changed:
                ways.update(dict.fromkeys(self.calls[c]))
                for after in waiting[c]:
                    if exits[c] & ~after.exits:
                        after.exits |= exits[c]
                        ways.update(after.ways)
            changed.clear()
            for way in ways:
                follow(way, exits[self.target[way]])
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
    """The exits that can be reached after a frame with some exits returns through a symbol, and the ways with such a return."""

    exits: int
    ways: dict[int, None]


def _drop_returns(tables: FrameTables) -> None:
    """Returns stay only on symbols with which something can go on after them."""
    n = len(tables.actions)
    own, back = [0] * n, [0] * n  # bit sets of symbols; END is the bit after the last class
    end_bit = 1 << max((mask.bit_length() for actions in tables.actions for mask, _ in actions), default=0)
    users: list[list[int]] = [[] for _ in range(n)]
    onward = [frozenset(row.values()) for row in tables.ret]
    for c, actions in enumerate(tables.actions):
        for mask, entries in actions:
            for target, _, _ in entries:
                if target == RETURN:
                    back[c] |= mask
                else:
                    own[c] |= mask
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
        tables.actions[c] = list(_with_returns(tables.actions[c], after[c]))


def _with_returns(actions: list[Action], after: int) -> Iterator[tuple[int, list[Entry]]]:
    for mask, entries in actions:
        if any(e[0] == RETURN for e in entries):
            if mask & after:
                yield mask & after, entries
                mask &= ~after
            entries = [e for e in entries if e[0] != RETURN]
        if mask and entries:
            yield mask, entries
