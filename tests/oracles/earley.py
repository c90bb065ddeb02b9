"""A recogniser of grammars by characters, straight from `fsa_compile.grammar.grammar_tree.Grammar`: Earley's algorithm, independent of the compiler.

There is no network, no frame, no loop made of a recursion and no byte automaton in it. Lexemes are automata by derivatives
(`lexeme_automata`), rules are read as they stand, bytes of an unfinished character are kept aside.

Longest-match mode follows what `fsa_compile.grammar.lexing.longest_match` promises, by other means: a lexeme that ends leaves behind which
characters may not come next; Earley sets are told apart by position and these characters. Which texts a lexeme loses to a
keyword is settled on expressions, from the pairs of lexemes that are neighbours in some text; of others that end together in
one set the best remains.

Source: J. Earley, "An efficient context-free parsing algorithm", CACM 13(2), 1970; nullable rules as in J. Aycock and
R. N. Horspool, "Practical Earley Parsing", The Computer Journal 45(6), 2002.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import operator
import re
from collections.abc import Callable, Iterable

from oracles import lexeme_automata as la

from fsa_compile.grammar import grammar_tree as g

_GUARDED = re.compile(r"(?P<bare>.*)(?:\(\?!(?P<set>\[(?:[^]\\]|\\.)+\]|[^()\\])\)|(?P<boundary>\\b))", re.S).fullmatch
"""A pattern with a condition at its end: a character that may not follow, or the end of a word."""

Item = tuple  # (continuation, rule, set it began in)
END: tuple = ()


class Compiled:
    """A grammar as rules of numbered nodes and lexeme automata; unproductive parts are cut away."""

    def __init__(self, grammar: g.Grammar) -> None:
        self.grammar = grammar
        self.sets = la.CharacterSets()
        self._reader = la.PatternReader(self.sets)
        self.expressions: list[la.Expression] = []
        self._guards: dict[int, la.Expression] = {}
        self._names: list[tuple[int, bool, int, str]] = []  # priority, literal, length in the grammar, name
        self._ids: dict[tuple, int] = {}
        self.ignored = frozenset(self._lexeme_of(e) for e in grammar.ignore)
        self.bodies = {name: self._node(grammar.rules[name].body) for name in self._reachable()}
        self.entry = ("call", grammar.start)
        words = la.cat(la.repeat(self._reader.read("[A-Za-z0-9_À-ÖØ-öø-ÿ]"), 0, None))  # of Unicode's, those that tests use
        dollar, plain = self._reader.read(r"\$"), self._reader.read(r"[\x00-\x7f]")
        self.sets.close()
        self.automata = [la.LexemeAutomaton(e, self.sets) for e in self.expressions]
        self.shadows: list[la.LexemeAutomaton] = []
        self.keywords: set[int] = set()
        self.order = [0] * len(self.expressions)
        self.words: list[int] = []
        self.guards = {k: self.sets.masks[members[1]] for k, members in self._guards.items()}
        if grammar.mode == "longest":
            self._settle(words)
            word, one, ascii_ = (self.sets.masks[part[1]] for part in (words[1], dollar, plain))
            for a in self.shadows:
                others = functools.reduce(operator.or_, a.on) & ascii_ & ~word & ~one
                self.words.append(word if others else word | one | ~ascii_)
        self._cut()
        self.nullable = self._least(self._is_nullable)
        self.shortest = self._shortest()

    def _settle(self, words: la.Expression) -> None:
        """Lexemes lose texts to better rivals; keywords are those of finitely many words of two characters and more."""
        originals = self.automata
        self._cut()
        rivals = lexeme_rivals(self)
        odd = la.alt([la.negation(words), la.EPSILON, la.cat(words[1])])
        for k, (e, a) in enumerate(zip(self.expressions, originals)):
            if a.longest < la.UNBOUNDED and not la.LexemeAutomaton(la.both([e, odd]), self.sets).start:
                self.keywords.add(k)
        rank = [(p, literal, a.longest, length) for (p, literal, length, _), a in zip(self._names, originals)]
        best_first = sorted(range(len(originals)), key=lambda i: (*(-x for x in rank[i]), self._names[i][3], i))
        self.order = [best_first.index(i) for i in range(len(originals))]
        better: list[set[int]] = [set() for _ in originals]
        for i in range(len(originals)):
            for j in rivals.get(i, ()):
                if self.order[j] < self.order[i] and (self._names[j][1] or j in self.keywords):
                    better[i].add(j)
        lost = [la.alt(self.expressions[j] for j in sorted(others)) for others in better]
        left = [la.both([e, la.negation(x)]) for e, x in zip(self.expressions, lost)]
        self.automata = [la.LexemeAutomaton(e, self.sets) for e in left]
        self.shadows = [a for a in originals if a.longest == la.UNBOUNDED]

    def _reachable(self) -> list[str]:
        found, todo = {self.grammar.start}, [self.grammar.start]
        while todo:
            for name in _names(self.grammar.rules[todo.pop()].body):
                if name not in found and not self._is_lexeme(name):
                    found.add(name)
                    todo.append(name)
        return [name for name in self.grammar.rules if name in found]

    def _is_lexeme(self, name: str) -> bool:
        rule = self.grammar.rules[name]
        return rule.terminal and not any(isinstance(e, g.SpecialToken) for e in _inside(rule.body))

    # Lexemes.

    def _lexeme_of(self, e: g.Expression) -> int:
        rule = self.grammar.rules[e.name] if isinstance(e, g.Reference) else None
        body, priority = (rule.body, rule.priority) if rule else (e, 0)
        key = (self._plain(body), priority)
        if key not in self._ids:
            self._ids[key] = len(self.expressions)
            self.expressions.append(self._guarded(body))
            name = rule.name if rule else self.grammar.text[e.start : e.end]
            literal = key[0][0] == "Literal"
            self._names.append((priority, literal, body.end - body.start, name))
        return self._ids[key]

    def _guarded(self, body: g.Expression) -> la.Expression:
        """The expression of a lexeme; the characters that a condition at its end forbids to follow are noted."""
        found = _GUARDED(body.pattern) if isinstance(body, g.Pattern) and self.grammar.mode == "longest" else None
        if not found:
            return self._expression(body)
        self._guards[len(self.expressions)] = self._reader.read(found["set"] or r"\w", body.flags)
        return self._reader.read(found["bare"], body.flags)

    def _plain(self, e: g.Expression) -> tuple:
        """An expression without places and names."""
        if isinstance(e, g.Reference):
            return self._plain(self.grammar.rules[e.name].body)
        children = [self._plain(child) for child in _children(e)]
        if len(children) == 1 and not isinstance(e, g.Repeat):
            return children[0]
        values = [getattr(e, f.name) for f in dataclasses.fields(e) if f.name not in ("start", "end", "part", "parts", "branches")]
        return (type(e).__name__, *values, *children)

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
            case g.Reference() if not self._is_lexeme(e.name):
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


def _children(e: g.Expression) -> list[g.Expression]:
    return [*getattr(e, "parts", ()), *getattr(e, "branches", ()), *((e.part,) if isinstance(e, g.Repeat) else ())]


def _inside(e: g.Expression) -> Iterable[g.Expression]:
    yield e
    for child in _children(e):
        yield from _inside(child)


def _names(e: g.Expression) -> Iterable[str]:
    return (node.name for node in _inside(e) if isinstance(node, g.Reference))


def lexeme_rivals(compiled: Compiled) -> dict[int, set[int]]:
    """Per lexeme those that may follow the same lexeme as it does, or begin the text as it does; the ignored ones rival with all."""
    first: dict[str, set] = {name: set() for name in compiled.bodies}
    last: dict[str, set] = {name: set() for name in compiled.bodies}
    empty = compiled._least(compiled._is_nullable)
    after: dict[object, set] = {}

    def visit(node: tuple) -> tuple[set, set, bool]:
        """First and last symbols of a node, and whether it may be empty; notes neighbours."""
        match node:
            case ("lexeme", _) | ("special", _):
                return {node}, {node}, compiled._is_nullable(node, empty)
            case ("call", name):
                return first[name], last[name], name in empty
            case ("choice", *parts):
                found = [visit(p) for p in parts]
                return set().union(*(f for f, _, _ in found)), set().union(*(x for _, x, _ in found)), any(n for _, _, n in found)
            case ("repeat", _, _, 0):
                return set(), set(), True
            case ("repeat", part, low, high):
                begin, end, nullable = visit(part)
                if high is None or high > 1:
                    join(end, begin)
                return begin, end, nullable or low == 0
        begin, end, nullable = set(), set(), True
        for part in node[1:]:
            b, e, n = visit(part)
            join(end, b)
            begin = begin | b if nullable else begin
            end = end | e if n else e
            nullable = nullable and n
        return begin, end, nullable

    def join(ends: set, begins: set) -> None:
        for symbol in ends:
            after.setdefault(symbol, set()).update(begins)

    size = -1
    while size != (size := sum(map(len, [*first.values(), *last.values(), *after.values()]))):
        for name, node in compiled.bodies.items():
            begin, end, _ = visit(node)
            first[name] |= begin
            last[name] |= end
    ignored = {("lexeme", k) for k in compiled.ignored}
    out: dict[int, set[int]] = {}
    for context in [first.get(compiled.grammar.start, set()), *after.values()]:
        lexemes = {x[1] for x in context | ignored if x[0] == "lexeme"}
        for k in lexemes:
            out.setdefault(k, set()).update(lexemes - {k})
    return out


@dataclasses.dataclass(frozen=True)
class Moves:
    """What a continuation can do next: end its rule, begin lexemes, read special tokens, call rules."""

    ends: bool
    lexemes: tuple[tuple[int, tuple], ...]
    specials: tuple[tuple[str | int, tuple], ...]
    calls: tuple[tuple[str, tuple], ...]


class EarleySet:
    """All items at one position, for one set of characters that may not come next."""

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

    def __init__(self, recogniser: Recogniser, sets: dict[int, EarleySet], threads: list) -> None:
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
        for here, _, states, _ in self.threads:
            for k, q in states:
                items = [*here.waiting.get(k, ()), *(here.kernel if k in recogniser.skipped else ())]
                costs += [automata[k].left[q] + here.cost(item, recogniser) for item in items]
        return min(costs, default=1 << 30)

    def special(self, name: str | int) -> Chart | None:
        """The chart after a special token."""
        kernel = [item for s in self.sets.values() for item in s.specials.get(name, ())]
        return Chart(self._recogniser, {0: EarleySet(self._recogniser, kernel)}, []) if kernel else None


class Recogniser:
    """Tells of any byte string whether it is accepted and whether an accepted one begins with it."""

    def __init__(self, grammar: g.Grammar) -> None:
        self.compiled = Compiled(grammar)
        self._longest = grammar.mode == "longest"
        self.skipped = self.compiled.ignored if self._longest else frozenset()
        self._moves: dict[tuple, Moves] = {}
        self._lengths: dict[tuple, int] = {END: 0}
        entry = self.compiled.entry
        any_text = self.compiled._is_productive(entry, self.compiled.productive)
        sets = {0: EarleySet(self, [((entry, END), None, None)])} if any_text else {}
        self.start = Prefix(self, Chart(self, sets, []), b"")

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

    def begin(self, here: EarleySet, forbidden: int) -> tuple:
        """The lexemes that may begin in a set, at their first states, and the unbounded ones anywhere, against which keywords stand."""
        automata = self.compiled.automata
        wanted = sorted({*here.waiting, *self.skipped})
        shadows = tuple((k, a.start) for k, a in enumerate(self.compiled.shadows))
        return here, forbidden, tuple((k, automata[k].start) for k in wanted), shadows

    def advance(self, chart: Chart, atom: int) -> Chart | None:
        """The chart after one character."""
        automata = self.compiled.automata
        kernels: dict[int, list[Item]] = {}
        threads = []
        for here, forbidden, states, shadows in chart.threads:
            if forbidden >> atom & 1:
                continue
            states = tuple((k, q) for k, p in states if (q := automata[k].step[p][atom]))
            shadows = tuple((k, q) for k, p in shadows if (q := self.compiled.shadows[k].step[p][atom]))
            going = tuple((k, q) for k, q in states if automata[k].more[q])
            if going:
                threads.append((here, 0, going, shadows))
            ended = [k for k, q in states if automata[k].final[q]]
            if ended:
                self._end(here, ended, going, shadows, kernels)
        sets = {key: EarleySet(self, kernel) for key, kernel in kernels.items() if kernel}
        return Chart(self, sets, threads) if sets or threads else None

    def _end(self, here: EarleySet, ended: list[int], going: tuple, shadows: tuple, kernels: dict[int, list[Item]]) -> None:
        """Adds the items after lexemes that end together; an ignored one leaves everything as it was."""
        compiled = self.compiled
        longer = glued = 0
        if self._longest:
            for k, q in going:
                longer |= compiled.automata[k].on[q]
            for k, q in shadows:
                glued |= compiled.shadows[k].on[q] & compiled.words[k]
            ended = [min(ended, key=compiled.order.__getitem__)]
        for k in ended:
            key = longer | compiled.guards.get(k, 0) | (glued if k in compiled.keywords else 0)
            kernels.setdefault(key, []).extend(here.waiting.get(k, ()))
            if k in self.skipped:
                kernels[key].extend(here.kernel)


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


@functools.lru_cache(1 << 16)
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
