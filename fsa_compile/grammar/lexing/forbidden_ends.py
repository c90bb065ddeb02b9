"""Where a lexeme may not end, for a condition on what follows it, and what is read instead."""

from __future__ import annotations

import functools
from typing import TypeAlias

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.automata.symbol_dfa import SymbolDfa
from fsa_compile.grammar.frame_actions import first_symbols
from fsa_compile.grammar.lexing.follow_sets import contexts_of, following
from fsa_compile.grammar.lexing.terminal_automata import Automaton, read_beside
from fsa_compile.grammar.lexing.terminals import End, Terminal
from fsa_compile.grammar.lexing.text_ahead import FAILS, HOLDS, Ahead, Look, either

_MOST_PAIRS = 20_000
"""Most pairs of lexemes beside one another that are looked at for ends that a condition may forbid."""
_Pair: TypeAlias = tuple[int, int, int, bool]


def settle_conditions(terminals: list[Terminal], frames: list[SymbolDfa], ignore: list[int], end: int) -> None:
    """Finds the ends that a condition may forbid while shorter lexemes have been read that go on, in place (`Terminal.failing`),
    and what matters behind terminals with conditions (`Terminal.follow`).

    What may have begun where the lexeme, or one beside it, could have ended is taken from what may follow anywhere in the
    grammar: too many symbols may be found, never too few. `end` is the bit for the end of the text.
    """
    follow, begin = following(terminals, frames, ignore)
    for t, symbols in zip(terminals, begin, strict=True):
        if t.ends:
            t.follow = symbols | end
            _leave_to_longer(t, 2 * end - 1)
    contexts = contexts_of(len(terminals), frames, ignore)
    for number, terminal in enumerate(terminals):
        if terminal.ends and (terminal.guard or terminal.ahead):
            together = union(context for context in contexts if context >> number & 1)
            terminal.failing = _Beside(terminals, number, follow, begin, end).failing(together)


class _Beside:
    """Lexemes that are read beside one with a condition at its end.

    A *pair* is a state of that one's automaton, another terminal, its state, and whether it began where the first one did.
    """

    def __init__(self, terminals: list[Terminal], t: int, follow: list[int], begin: list[int], end: int) -> None:
        self.terminals, self.follow, self.begin = terminals, follow, [symbols | end for symbols in begin]
        self.guard = {q: terminals[t].doubt(q) for q in (*terminals[t].guard, *terminals[t].ahead)}
        self.arcs, self.final = terminals[t].automaton

    def failing(self, together: int) -> dict[int, int]:
        """By final state the symbols at which a younger lexeme may be needed.

        Args:
          together: terminals that may begin where this one does, itself among them.
        """
        needed: list[_Pair] = []
        out: dict[int, int] = {}
        todo: list[_Pair] = [(0, u, 0, True) for u in members(together)]
        before: dict[_Pair, list[tuple[int, _Pair]]] = {pair: [] for pair in todo}
        while todo:
            pair = todo.pop()
            if lost := self.guard.get(pair[0], 0) & self._read(pair):
                out[pair[0]] = out.get(pair[0], 0) | lost
                needed.append(pair)
            for symbols, after in self._further(pair):
                if after not in before:
                    before[after] = []
                    todo.append(after)
                before[after].append((symbols, pair))
            if len(before) > _MOST_PAIRS:
                return {q: guard | first_symbols([self.arcs[q]]) for q, guard in self.guard.items()}
        seen = set(needed)
        while needed:
            for symbols, pair in before[needed.pop()]:
                if pair[0] in self.guard:
                    out[pair[0]] = out.get(pair[0], 0) | symbols
                if pair not in seen:
                    seen.add(pair)
                    needed.append(pair)
        return out

    def _read(self, pair: _Pair) -> int:
        """The symbols that a younger lexeme, or what follows it, reads next."""
        _, u, r, together = pair
        if together:
            return 0
        return first_symbols([self.terminals[u].automaton.arcs[r]]) | self._open(u, r)

    def _open(self, u: int, r: int) -> int:
        """The symbols before which terminal u may end in a state, and with which something may follow."""
        other = self.terminals[u]
        return self.begin[u] & ~other.guard.get(r, 0) if other.automaton.final[r] else 0

    def _further(self, pair: _Pair) -> list[tuple[int, _Pair]]:
        q, u, r, together = pair
        if self.final[q] and q not in self.guard:
            return []  # a match, whatever follows
        here, allowed = self.arcs[q], self._open(u, r)
        moves = [(x & y, (q2, u, r2, together)) for x, q2 in here for y, r2 in self.terminals[u].automaton.arcs[r] if x & y]
        starts = [(v, arc) for v in members(self.follow[u]) for arc in self.terminals[v].automaton.arcs[0]] if allowed else []
        moves += [(both, (q2, v, s, False)) for x, q2 in here if x & allowed for v, (y, s) in starts if (both := x & y & allowed)]
        return moves


def guard_ends(t: Terminal, every: int) -> None:
    """Tells states apart by the alternatives that end there: a lexeme may not end where all their conditions forbid it.

    `every`: all symbols and the end of the text.
    """
    if not t.ends:
        return
    order, arcs = read_beside(t.automaton, [end.automaton for end in t.ends])
    guard, ahead = dict[int, int](), dict[int, Look]()
    known: dict[tuple[int, ...], Look] = {}
    for number, (p, beside) in enumerate(order):
        own = tuple(i for i, q in beside if t.ends[i].automaton.final[q])
        if not t.automaton.final[p] or not own:
            continue
        guard[number] = t.guard.get(p, 0) | functools.reduce(int.__and__, (t.ends[i].guard for i in own))
        if t.soonest or any(t.ends[i].look for i in own):
            if own not in known:
                known[own] = either([_condition(t.ends[i], every) for i in own], every)
            if known[own].undecided() or t.soonest:
                ahead[number] = known[own]
    t.reserved = frozenset(number for number, (p, _) in enumerate(order) if p in t.reserved)
    t.automaton, t.guard, t.ahead = Automaton(arcs, [t.automaton.final[p] for p, _ in order]), guard, ahead


def _leave_to_longer(t: Terminal, every: int) -> None:
    """Forbids lexemes to end before symbols with which a longer one has ended whenever their condition holds, in place.

    `every`: all symbols and the end of the text.
    """
    if t.soonest:  # there the shorter one is taken
        return
    automaton, looks = t.automaton, dict(t.ahead)
    guards, final = dict(t.guard), list(automaton.final)
    for q, arcs in enumerate(automaton.arcs):
        if not final[q] or q not in guards:
            continue
        look, lost = looks.get(q), guards[q]
        for symbols, r in arcs:
            if final[r]:
                decided = look.ahead.arcs[look.state] if look else [(every & ~guards[q], HOLDS)]
                own, more = looks.get(r), guards.get(r, 0)
                lost |= union(both for part, left in decided if (both := symbols & part) and _implied(look, left, own, more))
        t.guard[q] = lost
        if look and not look.undecided() & ~lost:
            del t.ahead[q]
        if lost == every:
            automaton.final[q] = False
            del t.guard[q]
            t.ahead.pop(q, None)


def _implied(look: Look | None, left: int, longer: Look | None, guard: int) -> bool:
    """Whether a longer lexeme's condition holds wherever a shorter one's does.

    Args:
      look: the condition of the shorter one, read up to the end of the longer one: `left`, a state or how it was decided.
      longer: the condition of the longer one; without it, `guard` are the symbols before which that may not end.
    """
    if longer:
        return look is not None and longer.ahead is look.ahead and longer.state == left
    if left < 0:
        return left == FAILS or not guard
    return look is not None and not guard & ~look._replace(state=left).before(FAILS)


def _condition(end: End, every: int) -> Look:
    return end.look or Look(Ahead([[(end.guard, FAILS), (every & ~end.guard, HOLDS)]]), 0, True)
