"""A recogniser of grammars by characters, straight from `fsa_compile.grammar.Grammar`: Earley's algorithm, independent of the compiler.

There is no network, no frame, no loop made of a recursion and no byte automaton in it. Lexemes are automata by derivatives
(`lexeme_automata`), rules are read as they stand, bytes of an unfinished character are kept aside.

Longest-match mode knows two rules. The one that the compiler documents: a lexeme may not end before a character with which
some lexeme of its context that began with it could go on (`Rule.NEXT`). And that of a lexer with unbounded lookahead
(`Rule.WHOLE`): no longer lexeme of the context may get complete. Either way a lexeme that ends while a longer one is still
possible leaves an *obligation*, which travels with the parse until it is met or broken. Earley sets are therefore told apart
by position and obligations.

Source: J. Earley, "An efficient context-free parsing algorithm", CACM 13(2), 1970; nullable rules as in J. Aycock and
R. N. Horspool, "Practical Earley Parsing", The Computer Journal 45(6), 2002.
"""

from __future__ import annotations

import dataclasses
import enum
import heapq
import itertools
from collections.abc import Callable, Iterable

from oracles import lexeme_automata as la

from fsa_compile import grammar as g


class Rule(enum.Enum):
    """What longest match means."""

    NEXT = enum.auto()
    WHOLE = enum.auto()


Obligations = frozenset  # of (lexeme, state): these must never reach a final state
Item = tuple  # (continuation, rule, set it began in)
END: tuple = ()


class Compiled:
    """A grammar as rules of numbered nodes and lexeme automata; unproductive parts are cut away."""

    def __init__(self, grammar: g.Grammar) -> None:
        self.grammar = grammar
        self.sets = la.CharacterSets()
        self._reader = la.PatternReader(self.sets)
        self.lexeme_names: list[str] = []
        self.priorities: list[tuple] = []
        self._expressions: list[la.Expression] = []
        self._ids: dict[la.Expression | str, int] = {}
        self._in_lexeme = grammar.mode == "longest"
        self.regular = {name for name, rule in grammar.rules.items() if rule.terminal and not self._recursive(name)}
        self.bodies = {n: self._node(r.body) for n, r in grammar.rules.items() if n not in self.regular}
        self.entry = self._node(g.Reference(grammar.start, 0, 0))
        self.ignored = frozenset(self._lexeme_of(e) for e in grammar.ignore)
        self.sets.close()
        self.automata = [la.LexemeAutomaton(e, self.sets) for e in self._expressions]
        self._cut()
        self.nullable = self._least(self._is_nullable)
        self.shortest = self._shortest()

    def _recursive(self, name: str) -> bool:
        seen, todo = set(), [name]
        while todo:
            for other in _names(self.grammar.rules[todo.pop()].body):
                if other == name:
                    return True
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return False

    # Lexemes.

    def _lexeme_of(self, e: g.Expression) -> int:
        rule = self.grammar.rules[e.name] if isinstance(e, g.Reference) else None
        expression = self._expression(e)
        key = e.name if isinstance(e, g.Reference) else expression
        if key not in self._ids:
            self._ids[key] = len(self._expressions)
            self._expressions.append(expression)
            name = e.name if isinstance(e, g.Reference) else getattr(e, "text", getattr(e, "pattern", "..."))
            self.lexeme_names.append(name)
            self.priorities.append(lexeme_priority(self.grammar, rule, e))
        return self._ids[key]

    def _expression(self, e: g.Expression) -> la.Expression:
        match e:
            case g.Literal():
                return self.sets.characters(e.text, e.ignore_case)
            case g.Pattern():
                return self._reader.read(e.pattern, e.flags)
            case g.FreeText():
                ends = la.cat(la.EVERYTHING, la.alt([self.sets.characters(t) for t in e.until]))
                anything = la.repeat(self._reader.read(".", "s"), 1, None)
                text = la.repeat(self._reader.read(".", "s"), 0, None)
                return la.both([ends, la.negation(la.cat(ends, anything)), text])
            case g.Reference():
                return self._expression(self.grammar.rules[e.name].body)
            case g.Sequence():
                return la.cat(*map(self._expression, e.parts))
            case g.Choice():
                return la.alt(map(self._expression, e.branches))
            case g.Repeat():
                return la.repeat(self._expression(e.part), e.low, e.high)
        raise la.UnsupportedError(f"{type(e).__name__} in a lexeme")

    # Rules. A node is ("lexeme", id), ("special", name), ("call", rule), ("sequence", ...), ("choice", ...), ("repeat", node, low, high).

    def _node(self, e: g.Expression) -> tuple:
        match e:
            case g.SpecialToken():
                return ("special", e.name)
            case g.Sequence():
                return ("sequence", *map(self._node, e.parts))
            case g.Choice():
                return ("choice", *map(self._node, e.branches))
            case g.Repeat():
                return ("repeat", self._node(e.part), e.low, e.high)
            case g.Reference() if e.name not in self.regular:
                return ("call", e.name)
        return ("lexeme", self._lexeme_of(e))

    def _least(self, test: Callable[[tuple, set[str]], bool]) -> set[str]:
        known: set[str] = set()
        while True:
            more = {name for name, node in self.bodies.items() if test(node, known)}
            if more == known:
                return known
            known = more

    def _is_productive(self, node: tuple, known: set[str]) -> bool:
        match node:
            case ("lexeme", k):
                return self.automata[k].start > 0
            case ("call", name):
                return name in known
            case ("sequence", *parts):
                return all(self._is_productive(p, known) for p in parts)
            case ("choice", *parts):
                return any(self._is_productive(p, known) for p in parts)
            case ("repeat", part, low, _):
                return low == 0 or self._is_productive(part, known)
        return True

    def _is_nullable(self, node: tuple, known: set[str]) -> bool:
        match node:
            case ("lexeme", k):
                return self.automata[k].final[self.automata[k].start]
            case ("call", name):
                return name in known
            case ("sequence", *parts):
                return all(self._is_nullable(p, known) for p in parts)
            case ("choice", *parts):
                return any(self._is_nullable(p, known) for p in parts)
            case ("repeat", part, low, _):
                return low == 0 or self._is_nullable(part, known)
        return False

    def _shortest(self) -> dict[str, int]:
        """Least number of characters of every rule; what special tokens take is not counted."""
        out = dict.fromkeys(self.bodies, 1 << 30)
        while (new := {name: self.length(node, out) for name, node in self.bodies.items()}) != out:
            out = new
        return out

    def length(self, node: tuple, rules: dict[str, int]) -> int:
        """Least number of characters of a node."""
        match node:
            case ("lexeme", k):
                return self.automata[k].left[self.automata[k].start]
            case ("call", name):
                return rules[name]
            case ("sequence", *parts):
                return min(sum(self.length(p, rules) for p in parts), 1 << 30)
            case ("choice", *parts):
                return min(self.length(p, rules) for p in parts)
            case ("repeat", part, low, _):
                return min(low * self.length(part, rules), 1 << 30) if low else 0
        return 0

    def _cut(self) -> None:
        productive = self._least(self._is_productive)

        def cut(node: tuple) -> tuple:
            match node:
                case ("sequence", *parts):
                    return ("sequence", *map(cut, parts))
                case ("choice", *parts):
                    return ("choice", *(cut(p) for p in parts if self._is_productive(p, productive)))
                case ("repeat", part, low, high):
                    return ("repeat", cut(part), low, high) if self._is_productive(part, productive) else ("sequence",)
            return node

        self.productive = productive
        self.bodies = {name: cut(node) for name, node in self.bodies.items() if name in productive}


def _names(e: g.Expression) -> Iterable[str]:
    if isinstance(e, g.Reference):
        yield e.name
    for child in (*getattr(e, "parts", ()), *getattr(e, "branches", ()), *((e.part,) if isinstance(e, g.Repeat) else ())):
        yield from _names(child)


def lexeme_priority(grammar: g.Grammar, rule: g.Rule | None, e: g.Expression) -> tuple:
    """What wins where two lexemes are the same text: the higher priority, then a string before a pattern."""
    body = rule.body if rule else e
    while isinstance(body, g.Reference):
        body = grammar.rules[body.name].body
    return (rule.priority if rule else 0, isinstance(body, g.Literal))


@dataclasses.dataclass(frozen=True)
class Moves:
    """What a continuation can do next: end its rule, begin lexemes, read special tokens, call rules."""

    ends: bool
    lexemes: tuple[tuple[int, tuple], ...]
    specials: tuple[tuple[str | int, tuple], ...]
    calls: tuple[tuple[str, tuple], ...]


class EarleySet:
    """All items at one position under one set of obligations."""

    def __init__(self, recogniser: Recogniser, kernel: Iterable[Item]) -> None:
        self.kernel = tuple(dict.fromkeys(kernel))
        self.callers: dict[str, list[Item]] = {}
        self.waiting: dict[int, list[Item]] = {}
        self.specials: dict[str | int, list[Item]] = {}
        self.accepting = False
        self._exits: dict[str, int] | None = None
        compiled, seen, todo = recogniser.compiled, set(self.kernel), list(self.kernel)

        def add(item: Item) -> None:
            if item not in seen:
                seen.add(item)
                todo.append(item)

        while todo:
            continuation, rule, origin = todo.pop()
            moves = recogniser.moves(continuation)
            for lexeme, rest in moves.lexemes:
                self.waiting.setdefault(lexeme, []).append((rest, rule, origin))
            for name, rest in moves.specials:
                self.specials.setdefault(name, []).append((rest, rule, origin))
            for name, rest in moves.calls:
                self.callers.setdefault(name, []).append((rest, rule, origin))
                add(((compiled.bodies[name], END), name, self))
                if name in compiled.nullable:
                    add((rest, rule, origin))
            if moves.ends and rule is None:
                self.accepting = True
            elif moves.ends and origin is not self:
                for item in origin.callers[rule]:
                    add(item)


    def cost(self, item: Item, recogniser: Recogniser) -> int:
        """Least number of characters from an item to the end of the text, lexical rules aside."""
        continuation, rule, origin = item
        own = recogniser.length(continuation)
        return own if rule is None else own + origin.exits(recogniser).get(rule, 1 << 30)

    def exits(self, recogniser: Recogniser) -> dict[str, int]:
        """The same from the end of every rule that began here."""
        if self._exits is None:
            self._exits, old = dict.fromkeys(self.callers, 1 << 30), None
            while old != self._exits:
                old = dict(self._exits)
                for rule, items in self.callers.items():
                    self._exits[rule] = min(self.cost(item, recogniser) for item in items)
        return self._exits


class Chart:
    """Everything known after some whole characters. Immutable; charts of the same prefix share their successors."""

    def __init__(self, recogniser: Recogniser, sets: dict[Obligations, EarleySet], threads: list) -> None:
        self._recogniser = recogniser
        self.sets = sets
        self.threads = [*threads, *(recogniser.begin(s, f) for f, s in sets.items())]
        self._after: dict[int, Chart | None] = {}

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return any(s.accepting for s in self.sets.values())

    def after(self, atom: int) -> Chart | None:
        """The chart after one character of an atom, None when no accepted text continues so."""
        if atom not in self._after:
            self._after[atom] = self._recogniser.advance(self, atom)
        return self._after[atom]

    @property
    def cost(self) -> int:
        """A lower bound of the number of characters to an accepted text."""
        recogniser, automata = self._recogniser, self._recogniser.compiled.automata
        costs = [0] if self.accepting else []
        for here, _, states in self.threads:
            for k, q in states:
                items = [*here.waiting.get(k, ()), *(here.kernel if k in recogniser.skipped else ())]
                costs += [automata[k].left[q] + here.cost(item, recogniser) for item in items]
        return min(costs, default=1 << 30)

    def special(self, name: str | int) -> Chart | None:
        """The chart after a special token."""
        kernel = [item for s in self.sets.values() for item in s.specials.get(name, ())]
        return Chart(self._recogniser, {frozenset(): EarleySet(self._recogniser, kernel)}, []) if kernel else None


class Recogniser:
    """Tells of any byte string whether it is accepted and whether an accepted one begins with it."""

    def __init__(self, grammar: g.Grammar, rule: Rule = Rule.NEXT) -> None:
        self.compiled = Compiled(grammar)
        self._rule = rule
        self._longest = grammar.mode == "longest"
        self.skipped = self.compiled.ignored if self._longest else frozenset()
        self._moves: dict[tuple, Moves] = {}
        self._lengths: dict[tuple, int] = {END: 0}
        entry = self.compiled.entry
        empty = self.compiled._is_productive(entry, self.compiled.productive)
        kernel = [((entry, END), None, None)] if empty else []
        self.start = Prefix(self, Chart(self, {frozenset(): EarleySet(self, kernel)}, []), b"")

    def accepts(self, data: bytes) -> bool:
        """Whether a byte string is in the language."""
        prefix = self.start.read(data)
        return prefix is not None and prefix.accepting

    def moves(self, continuation: tuple) -> Moves:
        """What a continuation, a linked list of nodes, can do next."""
        if continuation not in self._moves:
            self._moves[continuation] = self._expand(continuation)
        return self._moves[continuation]

    def _expand(self, continuation: tuple) -> Moves:
        ends, lexemes, specials, calls = False, {}, {}, {}
        seen, todo = {continuation}, [continuation]
        while todo:
            here = todo.pop()
            if here == END:
                ends = True
                continue
            more: list[tuple] = []
            node, rest = here
            match node:
                case ("lexeme", k):
                    lexemes[k, rest] = None
                    if self.compiled._is_nullable(node, set()):
                        more = [rest]
                case ("special", name):
                    specials[name, rest] = None
                case ("call", name):
                    calls[name, rest] = None
                case ("sequence", *parts):
                    for part in reversed(parts):
                        rest = (part, rest)
                    more = [rest]
                case ("choice", *parts):
                    more = [(part, rest) for part in parts]
                case ("repeat", part, low, high):
                    again = ("repeat", part, max(low - 1, 0), None if high is None else high - 1)
                    more = [rest] if low == 0 else []
                    more += [(part, (again, rest))] if high != 0 else []
            for item in more:
                if item not in seen:
                    seen.add(item)
                    todo.append(item)
        return Moves(ends, tuple(lexemes), tuple(specials), tuple(calls))

    def length(self, continuation: tuple) -> int:
        """Least number of characters of a continuation."""
        if continuation not in self._lengths:
            node, rest = continuation
            self._lengths[continuation] = self.compiled.length(node, self.compiled.shortest) + self.length(rest)
        return self._lengths[continuation]

    # Lexemes.

    def begin(self, here: EarleySet, obligations: Obligations) -> tuple:
        """The lexemes that may begin in a set, at their first states."""
        automata = self.compiled.automata
        wanted = {*here.waiting, *self.skipped}
        return here, obligations, tuple((k, automata[k].start) for k in sorted(wanted))

    def advance(self, chart: Chart, atom: int) -> Chart | None:
        """The chart after one character."""
        automata = self.compiled.automata
        kernels: dict[Obligations, list[Item]] = {}
        threads = []
        for here, obligations, states in chart.threads:
            left = frozenset((k, q) for k, p in obligations if (q := automata[k].step[p][atom]))
            if any(automata[k].final[q] for k, q in left) or (left and self._rule is Rule.NEXT):
                continue
            left = frozenset((k, q) for k, q in left if automata[k].more[q])
            states = tuple((k, q) for k, p in states if (q := automata[k].step[p][atom]))
            ended = [k for k, q in states if automata[k].final[q]]
            states = tuple((k, q) for k, q in states if automata[k].more[q])
            if states:
                threads.append((here, left, states))
            if ended:
                left |= frozenset(states) if self._longest else frozenset()
                kernels.setdefault(left, []).extend(self._completed(here, ended))
        sets = {key: EarleySet(self, kernel) for key, kernel in kernels.items() if kernel}
        return Chart(self, sets, threads) if sets or threads else None

    def _completed(self, here: EarleySet, ended: list[int]) -> Iterable[Item]:
        """Items after lexemes that end together; an ignored one leaves everything as it was."""
        if self._longest:
            best = max(self.compiled.priorities[k] for k in ended)
            ended = [k for k in ended if self.compiled.priorities[k] == best]
        for k in ended:
            yield from here.waiting.get(k, ())
            if k in self.skipped:
                yield from here.kernel


@dataclasses.dataclass(frozen=True)
class Prefix:
    """A viable prefix: a chart and the bytes of an unfinished character."""

    recogniser: Recogniser
    chart: Chart
    pending: bytes

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return not self.pending and self.chart.accepting

    def read(self, symbols: Iterable[int | str]) -> Prefix | None:
        """After bytes (0..255) and special tokens (their names); None when no accepted text continues so."""
        here: Prefix | None = self
        for symbol in symbols:
            here = here._byte(symbol) if isinstance(symbol, int) else here._special(symbol)
            if here is None:
                return None
        return here

    def completion(self, most: int = 2000) -> bytes | None:
        """Text after which the whole is accepted, found by best-first search over at most so many charts; None if none was."""
        order = itertools.count()
        heap = [(chart.cost, chart.cost, next(order), text, chart) for text, chart in self._whole_characters()]
        heapq.heapify(heap)
        sets = self.recogniser.compiled.sets
        for _ in range(most):
            if not heap:
                break
            *_, text, chart = heapq.heappop(heap)
            if chart.accepting:
                return text
            for atom in range(sets.num_atoms):
                if atom != sets.surrogates and (after := chart.after(atom)):
                    longer = text + chr(sets.example(atom)).encode()
                    heapq.heappush(heap, (len(longer) + after.cost, after.cost, next(order), longer, after))
        return None

    def _whole_characters(self) -> Iterable[tuple[bytes, Chart]]:
        if not self.pending:
            yield b"", self.chart
            return
        sets, (low, high) = self.recogniser.compiled.sets, completions(self.pending)
        for atom in sets.atoms_between(low, high):
            if after := self.chart.after(atom):
                yield chr(sets.example(atom, low, high)).encode()[len(self.pending) :], after

    def _special(self, name: str) -> Prefix | None:
        chart = None if self.pending else self.chart.special(name)
        return chart and Prefix(self.recogniser, chart, b"")

    def _byte(self, byte: int) -> Prefix | None:
        pending = self.pending + bytes([byte])
        low, high = completions(pending)
        if low > high:
            return None
        atoms = self.recogniser.compiled.sets.atoms_between(low, high)
        if len(pending) < character_length(pending[0]):
            return Prefix(self.recogniser, self.chart, pending) if any(map(self.chart.after, atoms)) else None
        chart = self.chart.after(atoms[0])
        return chart and Prefix(self.recogniser, chart, b"")


def character_length(lead: int) -> int:
    """Bytes of a character by its first byte; 0 when no character starts so."""
    return 1 if lead < 0x80 else 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0


def completions(pending: bytes) -> tuple[int, int]:
    """Lowest and highest scalar value whose UTF-8 form begins with some bytes; (1, 0) when there is none."""
    need = character_length(pending[0])
    found = [
        tail
        for tail in (pending + bytes([0x80] * (need - len(pending))), pending + bytes([0xBF] * (need - len(pending))))
        if need
    ]
    if not need or any(not 0x80 <= b < 0xC0 for b in pending[1:]):
        return 1, 0
    low, high = (_plain_value(t) for t in found)
    low, high = max(low, (0, 0, 0x80, 0x800, 0x10000)[need]), min(high, la.TOP - 1)
    low = 0xE000 if 0xD800 <= low <= 0xDFFF else low
    high = 0xD7FF if 0xD800 <= high <= 0xDFFF else high
    return (low, high) if low <= high else (1, 0)


def _plain_value(data: bytes) -> int:
    value = data[0] if len(data) == 1 else data[0] & (0x7F >> len(data))
    for b in data[1:]:
        value = value << 6 | b & 0x3F
    return value
