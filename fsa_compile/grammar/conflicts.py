"""Where one stack cannot decide: finds it, with a shortest text that leads there, and says it in the grammar's words."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.arrays.graphs import reach
from fsa_compile.automata.pushdown import END_RETURN, RETURN, UNCOUNTED
from fsa_compile.errors import GrammarConflictError
from fsa_compile.grammar.frame_actions import Entry, FrameTables, Push, lists_with_return
from fsa_compile.grammar.frame_subsets import FrameBuilder
from fsa_compile.grammar.grammar_checks import line_of
from fsa_compile.grammar.grammar_tree import Grammar, Reference
from fsa_compile.grammar.rule_automata import UncountableError

_MAX_SEARCHED = 30_000
"""Configurations to look through for an example whose stack makes the conflict real."""
_ReadAfter: TypeAlias = Callable[[frozenset[int], frozenset[int]], int]
_GREEDY = re.compile(r"[.]([*+])(?![?+])([\"'`|/#%;,])")
"""A loop over all characters of a line, and the sign behind it."""
_SHOWN_FIRST = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 " + bytes(range(33, 127))


@dataclasses.dataclass(frozen=True)
class _Place:
    """Control, suspended frames' symbols, bottom first, and the text that led there."""

    control: int
    stack: tuple[int, ...]
    text: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Conflict:
    """Something that one stack (or, if it is endless, any number of them) cannot decide.

    Attributes:
      tables: trimmed tables.
      builder: what made them.
      crowded: controls with several entries, with the sets of symbols; empty if the conflict is
      circle: controls that return into one another for ever, with the sets of symbols.
      narrowed: controls in which a lexer would read what the machine does not, with the sets of symbols.
    """

    tables: FrameTables
    builder: FrameBuilder
    crowded: dict[int, int]
    circle: dict[int, int]
    narrowed: dict[int, int] = dataclasses.field(default_factory=dict)

    def error(self, grammar: Grammar) -> GrammarConflictError:
        """The error, with a shortest example."""
        explainer = _Explainer(self.tables, self.builder, grammar)
        if self.narrowed:
            return explainer.narrowed(self.narrowed)
        return explainer.two_ways(self.crowded) if self.crowded else explainer.endless(self.circle)


def find_conflict(tables: FrameTables, builder: FrameBuilder, stacks: int) -> Conflict | None:
    """What one stack cannot decide; with more than one stack several entries are fine, but no chain of returns without bound.

    Args:
      tables: trimmed tables.

    Raises:
      UncountableError: a counted repetition has to do with it.
    """
    crowded = _crowded(tables) if stacks == 1 else {}
    if crowded:
        _check_counted(tables, builder, crowded)
        return Conflict(tables, builder, crowded, {})
    circle = _circle(tables, builder.end_bit)
    if circle:
        return Conflict(tables, builder, {}, circle)
    lost = narrowing(builder)
    return Conflict(tables, builder, {}, {}, lost) if lost else None


def find_unfinished(builder: FrameBuilder) -> Conflict | None:
    """What one stack cannot decide in as much as a limit has left of a build: mostly why it has grown that far.

    Nothing is trimmed then, so conditions of terminals may have left a reading that leads nowhere.
    """
    tables = builder.tables()
    crowded = _crowded(tables)
    try:
        _check_counted(tables, builder, crowded)
    except UncountableError:
        return None
    return Conflict(tables, builder, crowded, {}) if crowded else None


def _crowded(tables: FrameTables) -> dict[int, int]:
    """Controls with several entries for a symbol, with the sets of such symbols."""
    return {
        c: mask
        for c, actions in enumerate(tables.actions)
        if (mask := union(m for m, some in actions if len(some) > 1 and not is_decided(some, tables.bounds[c])))
    }


def lasting(found: Conflict) -> Conflict | None:
    """The conflict, if a lexer that goes back meets it, too: it only reads more, in frames that call and return as before.

    Args:
      found: by a builder that does not go back.
    """
    tables, builder = found.tables, found.builder
    frames = len(builder.network.frames)

    def stays(c: int, target: int, push: Push) -> bool:
        """Whether an entry is no call of terminals alone, nor a return from one: going back, some of these are not called."""
        callees = tables.symbol_callees[push[0][0]] if push else builder.ended(c) if target == RETURN else frozenset((0,))
        return any(k < frames for k in callees)

    for c, mask in found.crowded.items():
        for _, entries in [action for action in tables.actions[c] if action[0] & mask]:
            if sum(stays(c, target, push) for target, push, _ in entries) > 1:
                return found
    lost: dict[int, int] = {}
    read_after, waiting = _after_returns(builder)
    for c, callees in builder.reached if found.narrowed else ():
        for ending in builder.endings(c) if c in builder.early else ():
            called = frozenset(builder.ends[p] for p in ending.early_places if builder.ends[p] >= frames)
            behind = [(s, under) for s in waiting.get(callees, ()) for under in builder.below[s]] if called else []
            levels = [(ending.early_places, callees), *((builder.after_call(called, s), under) for s, under in behind)]
            for places, under in levels:
                ended = frozenset(builder.ends[p] for p in places if 0 < builder.ends[p] < frames)
                first = union(mask for p in places for mask, call in builder.calls[p] if call.callee < frames)
                if unread := (first | read_after(ended, under)) & ending.early:
                    lost[c] = lost.get(c, 0) | unread
    return dataclasses.replace(found, narrowed=lost) if lost else None


def narrowing(builder: FrameBuilder) -> dict[int, int]:
    """Controls with sets of symbols, each of which begins a longer match and also a next lexeme that is not read beside it.

    Moves in the same frame are read beside the longer match where the builder goes back. Calls and returns never are, nor are
    more lexemes than there are generations.

    Args:
      builder: after `build`.
    """
    reached = {c for c, _ in builder.reached}
    out = {c: mask for c, mask in builder.too_far.items() if c in reached}
    for c in builder.early.keys() & reached:
        for ending in builder.endings(c):
            unread = union(_calls_at(builder, p) if builder.back else builder.readable_at(p) for p in ending.early_places)
            if unread & ending.early:
                out[c] = out.get(c, 0) | unread & ending.early
    read_after, _ = _after_returns(builder)
    for c, callees in builder.reached:
        for ending in builder.endings(c) if c in builder.early else ():
            ended = frozenset(builder.ends[p] for p in ending.early_places if builder.ends[p] > 0)
            after = ending.early and read_after(ended, callees) & ending.early
            if after:
                out[c] = out.get(c, 0) | after
    return out


def _after_returns(builder: FrameBuilder) -> tuple[_ReadAfter, dict[frozenset[int], list[int]]]:
    """What may be read once some callees have ended, of those that were entered; and the stack symbols that wait for these."""
    waiting: dict[frozenset[int], list[int]] = {}
    for symbol in builder.below:
        waiting.setdefault(builder.symbol_callees[symbol], []).append(symbol)

    def further(node: tuple[frozenset[int], int]) -> list[tuple[frozenset[int], int]]:
        """Ends that the end of some callees may be at once, each with a symbol that waits for it."""
        ended = frozenset(builder.ends[p] for p in builder.after_call(*node) if builder.ends[p] > 0)
        return [(ended, under) for callees in builder.below[node[1]] if ended for under in waiting.get(callees, ())]

    known: dict[tuple[frozenset[int], frozenset[int]], int] = {}  # what may be read once some callees have ended

    def read_after(ended: frozenset[int], callees: frozenset[int]) -> int:
        if (ended, callees) not in known:
            nodes = reach([(ended, symbol) for symbol in waiting.get(callees, ())], further) if ended else ()
            known[ended, callees] = union(builder.readable_at(p) for node in nodes for p in builder.after_call(*node))
        return known[ended, callees]

    return read_after, waiting


def _calls_at(builder: FrameBuilder, p: int) -> int:
    """The symbols with which a call begins at a place."""
    return union(mask for mask, _ in builder.calls[p])


def is_decided(entries: list[Entry], bounds: tuple[int, int]) -> bool:
    """Whether at most one entry is possible: with equal bounds, the register tells one more iteration from a return."""
    if len(entries) < 2:
        return True
    low, high = bounds
    exact = low == high != UNCOUNTED and len(entries) == 2
    return exact and entries[1][0] == RETURN and bool(entries[0][1][0][1] if entries[0][1] else entries[0][2])


def _check_counted(tables: FrameTables, builder: FrameBuilder, crowded: dict[int, int]) -> None:
    """Conflicts that have to do with a counted repetition are no errors yet: it may be written out."""
    frames = builder.network.frames
    nodes = set()
    for c, mask in crowded.items():
        loops = [builder.loop(c)]
        for _, entries in [action for action in tables.actions[c] if action[0] & mask]:
            callees = {k for _, push, _ in entries for s, _ in push for k in tables.symbol_callees[s] if k < len(frames)}
            loops += [frames[k].loop for k in callees]
        nodes |= {loop.node for loop in loops if loop}
    if nodes:
        raise UncountableError(nodes)


def _circle(tables: FrameTables, end_bit: int) -> dict[int, int]:
    """Controls that return into one another for ever on one symbol, with the set of such symbols."""
    rows = {id(row): row for row in tables.actions}
    returning = lists_with_return(rows.values())
    back_of = {key: union([mask for mask, entries in row if id(entries) in returning]) for key, row in rows.items()}
    back = [back_of[id(row)] for row in tables.actions]
    for c, end in enumerate(tables.end):
        if end == END_RETURN:
            back[c] |= end_bit
    onward = [{r for r in row.values() if back[r] & back[c]} if back[c] else set() for c, row in enumerate(tables.ret)]
    left = {c for c, targets in enumerate(onward) if targets}
    changed = True
    while changed:  # what has no successor is on no circle
        gone = {c for c in left if not onward[c] & left}
        left -= gone
        changed = bool(gone)
    for bit in members(union(back[c] for c in left)):
        inside = {c for c in left if back[c] >> bit & 1}
        size = -1
        while size != len(inside):
            size = len(inside)
            inside = {c for c in inside if onward[c] & inside}
        if inside:
            return dict.fromkeys(inside, 1 << bit)
    return {}


class _Explainer:
    def __init__(self, tables: FrameTables, builder: FrameBuilder, grammar: Grammar) -> None:
        self.tables, self.builder, self.grammar = tables, builder, grammar
        self.shown: dict[int, int] = {}
        of_class = builder.lexicon.byte_class.tolist()
        for symbol in [*_SHOWN_FIRST, *range(len(of_class))]:
            self.shown.setdefault(of_class[symbol], symbol)

    def two_ways(self, crowded: dict[int, int]) -> GrammarConflictError:
        """The error for a control with several entries for a symbol."""
        first: tuple[_Place, int] | None = None
        for place in self._search():
            for kind in members(crowded.get(place.control, 0)):
                first = first or (place, kind)
                entries = self._entries(place.control, kind)
                if all(e[0] != RETURN or self._after_return(place, kind) for e in entries):
                    return self._conflict(place, kind)
        if first is None:
            control, mask = next(iter(crowded.items()))
            first = _Place(control, (), ()), next(members(mask))
        return self._conflict(*first)

    def endless(self, circle: dict[int, int]) -> GrammarConflictError:
        """The error for a chain of returns that has no bound."""
        place = next((p for p in self._search() if p.control in circle and len(p.stack) > 1), None)
        place = place or _Place(next(iter(circle)), (), ())
        kind = next(members(circle[place.control]))
        ending = self._ending(place.control)
        readings = (ending, "and so may end all that stands around it, however deep")
        rule = self.builder.network.frames[min(self._frames(place.control))].rule
        what = (
            f"after {self._quoted(place)}, {self._symbol_words(kind)} may end any number of nested rules at once: {ending}, "
            "and around it the same again"
        )
        fix = f"Let {rule} end with a closing bracket or a keyword of its own, so that each level is closed by some text."
        return self._error(what, place, kind, readings, rule, fix)

    def narrowed(self, narrowed: dict[int, int]) -> GrammarConflictError:
        """The error for a place where a lexer would go back over what the machine cannot read beside the longer match."""
        place = next((p for p in self._search() if p.control in narrowed), None)
        place = place or _Place(next(iter(narrowed)), (), ())
        kind = next(members(narrowed[place.control]))
        longer, names = self._longer(place.control, kind), self._ended_terminals(place.control)
        if not longer:
            return self._by_conditions(place, kind, names)
        readings = (f"{names} ends and the next lexeme begins", f"it goes on with {longer}")
        rule = self.builder.network.frames[min(self._frames(place.control))].rule
        what = (
            f"after {self._quoted(place)}, {self._symbol_words(kind)} may go on with {longer}, or begin the next lexeme after "
            f"{names}: a later character tells which, and the lexer cannot go back that far here"
        )
        return self._error(what, place, kind, readings, rule, self._shorter(longer.split(" or ")))

    def _shorter(self, longer: list[str]) -> str:
        """How lexemes of some terminals may be told to have ended."""
        terminals = [t for t in self.builder.lexicon.terminals if t.name in longer]
        if any(t.key[0] == "ordered" for t in terminals):
            return "Let the alternatives in its lazy loop begin with different characters, as in /<(!.|[^>!])*?>/."
        for t in terminals:
            if found := _GREEDY.search(self.grammar.text, t.start, t.end):
                loop, last = found.groups()
                instead = rf"[^{last}\n]{loop}{last}"
                return f"{t.name} goes on to the last {last} of a line: write {instead} for {found[0]}, and it ends at the first."
        characters = "" if self.grammar.ignore else '; or compile with mode="characters"'
        return (
            "Let the shorter lexeme end with a condition that decides, such as (?![.]), make one terminal of both, or let "
            f"the next lexeme stand in the same rule without recursion{characters}."
        )

    def _by_conditions(self, place: _Place, kind: int, names: str) -> GrammarConflictError:
        """The error where conditions tell which lexeme has ended, and with it which of several rules."""
        rule = self.builder.network.frames[min(self._frames(place.control))].rule
        after = f"after {self._quoted(place)}, {self._symbol_words(kind)}"
        what = f"{after} tells whether {names} has ended, and these end different rules"
        fix = f"Make one terminal of {names}, or let them stand in the same rule without recursion."
        return self._error(what, place, kind, (f"one of {names} ends", "its condition forbids that"), rule, fix)

    def _ended_terminals(self, control: int) -> str:
        """Names of the terminals that may end in a control."""
        builder = self.builder
        return self._terminals(i for i in builder.sets[control][0] if i in builder.point and builder.after[i] >= 0) or "it"

    def _longer(self, control: int, kind: int) -> str:
        """Names of the terminals whose lexemes go on with a symbol."""
        arcs = self.builder.arcs
        return self._terminals(i for i in self.builder.sets[control][0] if any(mask >> kind & 1 for mask, _ in arcs[i]))

    def _terminals(self, items: Iterable[int]) -> str:
        point, terminals = self.builder.point, self.builder.lexicon.terminals
        names = dict.fromkeys(terminals[point[i][0]].name for i in sorted(items) if i in point and point[i][0] >= 0)
        return " or ".join(list(names)[:2])

    def _conflict(self, place: _Place, kind: int) -> GrammarConflictError:
        readings = [
            self._ending(place.control) if entry[0] == RETURN
            else self._beginning(entry[1], kind) if entry[1]
            else self._going_on(place.control, kind)
            for entry in self._entries(place.control, kind)
        ]  # fmt: skip
        pair = (readings[0], readings[1] if readings[1] != readings[0] else f"{readings[1]}, in another way")
        rule = self.builder.network.frames[min(self._frames(place.control))].rule
        what = f"after {self._quoted(place)}, {self._symbol_words(kind)} can be read in two ways: {pair[0]}; or {pair[1]}"
        fix = (
            "Put a bracket or a keyword of its own around one of the two, or let both begin with the same rule; "
            "or compile with stacks=2."
        )
        return self._error(what, place, kind, pair, rule, self._ignored_twice(kind) or fix)

    def _ignored_twice(self, kind: int) -> str:
        """What to do where an ignored terminal that begins with a symbol stands in rules as well."""
        network, terminals = self.builder.network, self.builder.lexicon.terminals
        named = {node.name for node in self.grammar.ignore if isinstance(node, Reference)}
        for t in [t for t, terminal in enumerate(terminals) if t in network.ignore or terminal.name in named]:
            holders = [f for f in network.frames if any(t in arcs for arcs in f.dfa.arcs)]
            rules = dict.fromkeys(f"{name} (line {self._line(name)})" for f in holders for name in f.homes.get(t, ()))
            if rules and any(mask >> kind & 1 for mask, _ in terminals[t].automaton.arcs[0]):
                name, some = terminals[t].name, " and ".join(list(rules)[:2])
                lark = 'or compile with mode="lark", which ignores it only.'
                return f"{name} is ignored, and also stands in {some}: choose one of the two, {lark}"
        return ""

    def _error(self, what: str, place: _Place, kind: int, readings: tuple[str, str], rule: str, fix: str) -> GrammarConflictError:
        at = self.grammar.rules[rule]
        return GrammarConflictError(
            what, text=self.grammar.text, start=at.start, end=at.end, example=self._text(place),
            symbol=self._symbol(kind), readings=readings, fix=fix,
        )  # fmt: skip

    # ---------------------------------------------------------------- searching

    def _search(self) -> Iterator[_Place]:
        """Configurations by the length of their texts, one for each that differs near the top of the stack."""
        start = _Place(self.tables.start, (), ())
        seen, todo = {(start.control, start.stack)}, deque([start])
        for _ in range(_MAX_SEARCHED):
            if not todo:
                return
            place = todo.popleft()
            yield place
            for mask, _ in self.tables.actions[place.control]:
                for kind in members(mask):
                    for control, stack in self._step(place.control, place.stack, kind):
                        key = (control, stack[-4:])
                        if key not in seen:
                            seen.add(key)
                            todo.append(_Place(control, stack, (*place.text, self.shown[kind])))
                    if all(e[0] != RETURN for e in self._entries(place.control, kind)):
                        break  # one symbol stands for all that do the same

    def _step(self, control: int, stack: tuple[int, ...], kind: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        for target, push, _ in self._entries(control, kind):
            if target != RETURN:
                yield target, stack + tuple(symbol for symbol, _ in push)
            elif stack and stack[-1] in self.tables.ret[control]:
                yield from self._step(self.tables.ret[control][stack[-1]], stack[:-1], kind)

    def _after_return(self, place: _Place, kind: int) -> bool:
        if not place.stack or place.stack[-1] not in self.tables.ret[place.control]:
            return False
        below = self.tables.ret[place.control][place.stack[-1]]
        return any(True for _ in self._step(below, place.stack[:-1], kind))

    def _entries(self, control: int, kind: int) -> list[tuple[int, tuple[tuple[int, int], ...], int]]:
        return next((entries for mask, entries in self.tables.actions[control] if mask >> kind & 1), [])

    # ---------------------------------------------------------------- words

    def _frames(self, control: int) -> set[int]:
        builder = self.builder
        items = builder.sets[control][0]
        places = {builder.point[i][2] if i in builder.point else i for i in items}
        return {builder.place_frame[p][0] for p in places if p in builder.place_frame} or {0}

    def _rule(self, callee: int) -> str:
        frames = self.builder.network.frames
        if callee >= len(frames):
            return callee_name(self.builder, callee)
        name = frames[callee].rule
        line = self._line(name)
        group = "" if frames[callee].name == name else "the bracketed group in "
        return f"{group}{name} (line {line})"

    def _rules(self, callees: Iterable[int]) -> str:
        names = list(dict.fromkeys(self._rule(k) for k in sorted(callees)))
        return " or ".join(names[:3]) + (" or others" if len(names) > 3 else "")

    def _line(self, rule: str) -> int:
        return line_of(self.grammar, self.grammar.rules[rule])

    def _ending(self, control: int) -> str:
        return "it comes after the end of " + self._rules(self.builder.ended(control))

    def _beginning(self, push: Push, kind: int) -> str:
        levels = [self.builder.symbol_callees[symbol] for symbol, _ in push]
        rules = len(self.builder.network.frames)
        outer = [[k for k in callees if k < rules] for callees in levels[:-1]]
        inner = [k for k in levels[-1] if self._reads(k, kind)] or levels[-1]
        return "it begins " + ", and in it ".join(self._rules(callees) for callees in [*outer, inner])

    def _reads(self, callee: int, kind: int) -> bool:
        """Whether a rule or a terminal reads a symbol first, without a call."""
        frames, terminals = self.builder.network.frames, self.builder.lexicon.terminals
        first = frames[callee].dfa.arcs[0] if callee < len(frames) else [callee - len(frames)]
        return any(mask >> kind & 1 for t in first if t >= 0 for mask, _ in terminals[t].automaton.arcs[0])

    def _going_on(self, control: int, kind: int) -> str:
        builder = self.builder
        terminals = builder.lexicon.terminals
        names: dict[str, None] = {}
        for item in builder.sets[control][0]:
            if item in builder.point and builder.point[item][2] >= 0 and any(mask >> kind & 1 for mask, _ in builder.arcs[item]):
                names[f"goes on with {terminals[builder.point[item][0]].name}"] = None
        for place in builder.places(control):
            frame, state = builder.place_frame.get(place, (-1, 0))
            for symbol in builder.network.frames[frame].dfa.arcs[state] if frame >= 0 else ():
                if symbol >= 0 and any(mask >> kind & 1 for mask, _ in terminals[symbol].automaton.arcs[0]):
                    homes = builder.network.frames[frame].homes.get(symbol, [])
                    where = " or ".join(f"{name} (line {self._line(name)})" for name in homes[:2])
                    names[f"begins {terminals[symbol].name} in {where}"] = None
        return "it " + (" or ".join(list(names)[:3]) or "is ignored")

    def _quoted(self, place: _Place) -> str:
        text = self._text(place)
        return repr(text.decode(errors="replace")) if text else "nothing"

    def _text(self, place: _Place) -> bytes:
        return bytes(symbol for symbol in place.text if symbol < 256)

    def _symbol(self, kind: int) -> bytes | str:
        symbol = self.shown.get(kind, -1)
        if symbol < 0:
            return ""
        token = -1 if symbol < 256 else self.builder.lexicon.specials[symbol - 256]
        return bytes([symbol]) if symbol < 256 else f"special token {token}" if token >= 0 else "an embedded value"

    def _symbol_words(self, kind: int) -> str:
        symbol = self._symbol(kind)
        if symbol == "":
            return "the end of the text"
        if isinstance(symbol, str):
            return symbol
        return repr(symbol.decode()) if symbol < b"\x80" else f"byte 0x{symbol[0]:02X}"


def control_name(builder: FrameBuilder, c: int) -> str:
    """What a control stands for: the places it holds, by frame and state, and the lexemes it is inside of."""
    items, only = builder.sets[c]
    parts = []
    for i in sorted(items)[:4]:
        if i in builder.point and builder.point[i][2] >= 0:
            t, q, _ = builder.point[i]
            parts.append(f"{builder.lexicon.terminals[t].name}@{q}")
        elif i in builder.place_frame:
            k, q = builder.place_frame[i]
            parts.append(f"{builder.network.frames[k].name}:{q}")
    return " ".join(dict.fromkeys(parts)) + (" …" if len(items) > 4 else "") + ("" if only == -1 else " guarded")


def symbol_name(builder: FrameBuilder, symbol: int) -> str:
    """The callees that a stack symbol waits for."""
    return " | ".join(dict.fromkeys(callee_name(builder, callee) for callee in sorted(builder.symbol_callees[symbol])))


def callee_name(builder: FrameBuilder, callee: int) -> str:
    """A rule or a terminal."""
    frames = builder.network.frames
    return frames[callee].name if callee < len(frames) else builder.lexicon.terminals[callee - len(frames)].name
