"""Which parts of a text the rules marked `capture` have read.

Rules are marked with symbols of their own at both ends, and the network of the marked grammar is followed over the lexemes of the
text; marks read nothing. Lexemes are cut as by Lark's contextual lexer: of the terminals that may stand at a place, the longest
match, and of equally long ones the better ranked. In mode `characters` every cut is followed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.compiler.arguments import Request
from fsa_compile.compiler.grammars import Syntax, parse_grammar, special_ids
from fsa_compile.errors import ConstraintError, UnsupportedGrammarError, named_fields
from fsa_compile.formats.grammar_constraints import Embeddings
from fsa_compile.grammar.grammar_tree import Grammar, LexicalMode, Rule, SpecialToken
from fsa_compile.grammar.grammar_tree import Sequence as InOrder
from fsa_compile.grammar.lexing.forbidden_ends import guard_ends
from fsa_compile.grammar.lexing.lark_order import place_in_lark
from fsa_compile.grammar.lexing.longest_match import rank_of
from fsa_compile.grammar.lexing.terminals import Lexicon, Terminal, terminal_dfa
from fsa_compile.grammar.rule_automata import UncountableError
from fsa_compile.grammar.rule_expressions import Node
from fsa_compile.grammar.transition_network import Network, build_network
from fsa_compile.inputs.guard import guarded
from fsa_compile.limits import CompileLimits

_MARK = 1 << 40
"""Ids of marks begin here: twice the number of the rule, and one more at its end."""

Stack: TypeAlias = "tuple[tuple[int, int], ...]"
Marks: TypeAlias = "tuple[int, int, Marks] | None"
"""Marks passed so far, newest first: id and place."""


@named_fields
@dataclasses.dataclass(frozen=True)
class Capture:
    """A part of a text.

    Attributes:
      start, end: place in the bytes of the text; special tokens have none.
      text: its characters, special tokens left out.
    """

    start: int
    end: int
    text: str


class _Item(NamedTuple):
    """Where a reading stands: a state of a frame, and where the frames below it go on."""

    frame: int
    state: int
    stack: Stack


@guarded
def parse_captures(
    grammar: str,
    tokenizer: Any,
    ids: Sequence[int] | str,
    *,
    start: str | None = None,
    syntax: Syntax | None = None,
    mode: LexicalMode | None = None,
    limits: CompileLimits | None = None,
) -> dict[str, list[Capture]]:
    """The parts of a text that rules with the option `capture` have read, by the names of their captures, in order.

    Args:
      grammar: with rules such as `name[capture]: ...`, or `name[capture="other"]: ...`.
      tokenizer: see `compile_grammar`.
      ids: tokens, or the text, that the grammar's constraint has allowed to its end; tokens that end a text are left out.
      start, syntax, mode, limits: see `compile_grammar`.

    Returns:
      Captures by name. Ignored text at either end is no part of them. Of several readings of a text, one counts.

    Raises:
      ConstraintError: the text is not the grammar's; a captured rule begins with itself; blocks are told by indentation.
    """
    request = Request.of(tokenizer, grammar, limits=limits)
    parsed = parse_grammar(grammar, start=start, syntax=syntax, mode=mode, limits=request.limits)
    if not parsed.captures:
        fix = "Write name[capture]: ... for the rules whose texts you want."
        raise ConstraintError("this grammar has no rule with the option capture", fix=fix)
    if parsed.indentation:
        rule = parsed.rules[parsed.captures[0][0]]
        fix = "Parse the text with a parser of the language."
        what = "captures are not offered where blocks are told by indentation"
        raise UnsupportedGrammarError(what, text=grammar, start=rule.start, end=rule.end, fix=fix)
    return _Reading(parsed, request).captures(ids)


def _marked(grammar: Grammar) -> Grammar:
    """The grammar with marks around the rules that are captured."""
    rules = dict(grammar.rules)
    for number, (name, _) in enumerate(grammar.captures):
        rule = rules[name]
        marks = [SpecialToken(_MARK + 2 * number + end, rule.start, rule.end) for end in (0, 1)]
        body = InOrder((marks[0], rule.body, marks[1]), rule.body.start, rule.body.end)
        rules[name] = Rule(name, body, False, 0, rule.start, rule.end)
    return dataclasses.replace(grammar, rules=rules)


class _Reading:
    """A marked grammar and what reads its terminals."""

    def __init__(self, grammar: Grammar, request: Request) -> None:
        self.grammar, self.request = grammar, request
        self.embedded = Embeddings(grammar, request, request.limits, request.deadline)
        self.specials = {**special_ids(grammar, request.vocabulary), **self.embedded.tokens}
        self.network = self._network(_marked(grammar))
        self.lexicon = self.network.lexicon
        for terminal in self.lexicon.terminals:
            guard_ends(terminal, (1 << self.lexicon.num_classes + 1) - 1)
        order = sorted(range(len(self.lexicon.terminals)), key=lambda i: rank_of(self.lexicon.terminals[i], i))
        self.rank = {terminal: place for place, terminal in enumerate(order)}
        self.symbols: list[int] = []

    def _network(self, marked: Grammar) -> Network:
        marks: dict[str | int, int] = {_MARK + i: _MARK + i for i in range(2 * len(marked.captures))}
        written: set[Node] = set()
        while True:
            limits, deadline = self.request.limits, self.request.deadline
            lexicon = Lexicon(marked, {**self.specials, **marks}, limits, deadline, self.embedded.starts)
            try:
                return build_network(marked, lexicon, limits, deadline, written)
            except UncountableError as error:
                written |= error.nodes

    def captures(self, ids: Sequence[int] | str) -> dict[str, list[Capture]]:
        """The captures of a text."""
        self.symbols, data = self._symbols(ids)
        marks = self._marks()
        before = [0]
        for symbol in self.symbols:
            before.append(before[-1] + (symbol < 256))
        out: dict[str, list[Capture]] = {name: [] for _, name in self.grammar.captures}
        opened: list[int] = []
        found: list[tuple[int, int, str]] = []
        for mark, place in marks:
            number, ends = divmod(mark - _MARK, 2)
            if not ends:
                opened.append(place)
            else:
                found.append((min(opened.pop(), place), place, self.grammar.captures[number][1]))
        for first, last, name in sorted(found, key=lambda part: (part[0], -part[1])):
            begin, end = before[first], before[last]
            out[name].append(Capture(begin, end, data[begin:end].decode(errors="replace")))
        return out

    def _symbols(self, ids: Sequence[int] | str) -> tuple[list[int], bytes]:
        """Bytes and special tokens of the text, and its bytes alone."""
        if isinstance(ids, str):
            return list(ids.encode()), ids.encode()
        vocabulary, out = self.request.vocabulary, list[int]()
        for token in map(int, ids):
            if not 0 <= token < vocabulary.size:
                raise ConstraintError(f"token {token} is not in the vocabulary", fix="Pass the tokens that were generated.")
            if vocabulary.tokens[token]:
                out += vocabulary.tokens[token]
            elif token in self.lexicon.specials:
                out.append(256 + self.lexicon.specials.index(token))
            elif token not in vocabulary.stop_ids:
                self._refuse(len(out))
        return out, bytes(symbol for symbol in out if symbol < 256)

    def _refuse(self, at: int) -> None:
        fix = "Pass what a constraint of the same grammar has allowed, to its end and without the prompt."
        raise ConstraintError(f"the text is not the grammar's, at byte {at}", fix=fix)

    def _marks(self) -> list[tuple[int, int]]:
        """Marks with their places, in order: of a beginning before the next lexeme, of an end behind the last."""
        size, longest = len(self.symbols), self.grammar.mode != "characters"
        charts: list[dict[_Item, tuple[Marks, int]]] = [{} for _ in range(size + 1)]
        charts[0][_Item(0, 0, ())] = None, 0
        furthest = 0
        for at, chart in enumerate(charts):
            if not chart:
                continue
            furthest = at
            closed = self._closed(chart, at)
            if at == size and (marks := self._finished(closed)) is not None:
                return marks
            waiting = self._waiting(closed)
            for terminal, end in self._lexemes(at, waiting, longest):
                self.request.deadline.check("Looking for captures")
                for after, (marks_there, _) in waiting.get(terminal, ()):
                    charts[end].setdefault(after, (marks_there, end))
                if terminal not in waiting:
                    charts[end] |= {item: found for item, found in chart.items() if item not in charts[end]}
        self._refuse(furthest)
        return []

    def _closed(self, chart: dict[_Item, tuple[Marks, int]], at: int) -> dict[_Item, tuple[Marks, int]]:
        """All items that are reached without reading, with the marks that are passed and the end of the last lexeme."""
        out = dict(chart)
        todo = [(item, 0) for item in reversed(chart)]
        while todo:
            item, calls = todo.pop()
            marks, last = out[item]
            dfa = self.network.frames[item.frame].dfa
            if dfa.final[item.state] and item.stack:
                self._reach(out, todo, _Item(*item.stack[-1], item.stack[:-1]), (marks, last), calls)
            for symbol, target in dfa.arcs[item.state].items():
                if symbol < 0:
                    if calls > len(self.network.frames):
                        self._refuse_recursion()
                    below = (*item.stack, (item.frame, target))
                    self._reach(out, todo, _Item(~symbol, 0, below), (marks, last), calls + 1)
                elif (mark := self._mark(symbol)) >= 0:
                    passed = (mark, last if mark & 1 else at, marks)
                    self._reach(out, todo, _Item(item.frame, target, item.stack), (passed, last), calls)
        return out

    @staticmethod
    def _reach(
        out: dict[_Item, tuple[Marks, int]], todo: list[tuple[_Item, int]], item: _Item, found: tuple[Marks, int], calls: int
    ) -> None:
        if item not in out:
            out[item] = found
            todo.append((item, calls))

    def _refuse_recursion(self) -> None:
        rule = self.grammar.rules[self.grammar.captures[0][0]]
        what = "a captured rule begins with itself"
        fix = "Write it with a repetition (term (op term)*), or capture a rule that uses it."
        raise UnsupportedGrammarError(what, text=self.grammar.text, start=rule.start, end=rule.end, fix=fix)

    def _mark(self, terminal: int) -> int:
        key = self.lexicon.terminals[terminal].key
        return key[1] if key[0] == "special" and key[1] >= _MARK else -1

    def _finished(self, closed: dict[_Item, tuple[Marks, int]]) -> list[tuple[int, int]] | None:
        for item, (marks, _) in closed.items():
            if not item.stack and item.frame == 0 and self.network.frames[0].dfa.final[item.state]:
                out = []
                while marks:
                    out.append((marks[0], marks[1]))
                    marks = marks[2]
                return out[::-1]
        return None

    def _waiting(self, closed: dict[_Item, tuple[Marks, int]]) -> dict[int, list[tuple[_Item, tuple[Marks, int]]]]:
        """By terminal that may stand next, what follows it."""
        out: dict[int, list[tuple[_Item, tuple[Marks, int]]]] = {}
        for item, found in closed.items():
            for symbol, target in self.network.frames[item.frame].dfa.arcs[item.state].items():
                if symbol >= 0 and self._mark(symbol) < 0:
                    out.setdefault(symbol, []).append((_Item(item.frame, target, item.stack), found))
        return out

    def _lexemes(self, at: int, waiting: dict[int, Any], longest: bool) -> list[tuple[int, int]]:
        """The lexemes that begin at a place: terminals with their ends."""
        terminals = {*waiting, *self.network.ignore}
        ends = [(terminal, end) for terminal in sorted(terminals) for end in self._ends(self.lexicon.terminals[terminal], at)]
        if not longest or not ends:
            return ends
        if self.grammar.mode == "lark":
            return [self._first_in_lark(ends)]
        return [min(ends, key=lambda found: (-found[1], self.rank[found[0]]))]

    def _first_in_lark(self, ends: list[tuple[int, int]]) -> tuple[int, int]:
        """What Lark's lexer takes: the first in its order that matches, or, unless it is ignored, a string that it is."""
        terminals = self.lexicon.terminals

        def hosts(t: int, end: int) -> set[int]:
            own = terminals[t]
            patterns = {j for j, other in ends if other == end and not terminals[j].literal}
            return {j for j in patterns if terminals[j].priority == own.priority} if own.literal else set()

        first = min((t for t, end in ends if not hosts(t, end)), key=lambda t: place_in_lark(terminals[t], t))
        end = max(end for t, end in ends if t == first)
        within = [t for t, other in ends if other == end and first in hosts(t, end) and first not in self.network.ignore]
        return (within or [first])[0], end

    def _ends(self, terminal: Terminal, at: int) -> Iterator[int]:
        """Where a terminal's matches at a place end."""
        token = terminal.key[1] if terminal.key[0] == "special" else 0
        if token < 0:
            yield from self._value_ends(~token, at)
            return
        kinds, state, history = self.lexicon.byte_class, 0, self.lexicon.history
        if history and terminal.begin >= 0:
            before = history.after(int(kinds[symbol]) for symbol in self.symbols[:at])
            if terminal.begin not in history.met[before]:
                return
        for place in range(at, len(self.symbols)):
            kind = 1 << int(kinds[self.symbols[place]])
            state = next((target for symbols, target in terminal.automaton.arcs[state] if symbols & kind), -1)
            if state < 0:
                return
            if terminal.automaton.final[state] and self._may_end(terminal, state, place + 1):
                yield place + 1
                if terminal.soonest:
                    return

    def _may_end(self, terminal: Terminal, state: int, at: int) -> bool:
        """Whether the condition at the end of a terminal, if there is one, holds at a place."""
        kinds = self.lexicon.byte_class
        behind = (int(kinds[self.symbols[i]]) for i in range(at, len(self.symbols)))
        following = itertools.chain(behind, [self.lexicon.num_classes])
        if state in terminal.ahead:
            return terminal.ahead[state].met_by(following)
        return not terminal.guard.get(state, 0) >> next(following) & 1

    def _value_ends(self, number: int, at: int) -> Iterator[int]:
        """Where the texts of an embedded value end."""
        node, machine = self.embedded.nodes[number], self.embedded.values[number].machine
        if node.kind == "tokens":
            dfa = terminal_dfa(self.grammar, node, self.request.limits, self.request.deadline)
            yield from _ends_of(self.symbols, at, dfa.start, _step_of(dfa), lambda state: bool(dfa.final[state]))
            return
        special = {token: 256 + i for i, token in enumerate(machine.specials)}
        own = [s if s < 256 else special.get(self.lexicon.specials[s - 256], -1) for s in self.symbols]
        step = lambda here, symbol: machine.step(here, symbol) if symbol >= 0 else set()  # noqa: E731
        yield from _ends_of(own, at, {machine.initial}, step, machine.may_end)


def _step_of(dfa: ByteDfa) -> Callable[[int, int], int]:
    return lambda state, symbol: int(dfa.table[state, dfa.byte_class[symbol]]) if symbol < 256 else 0


def _ends_of(
    symbols: Sequence[int], at: int, here: Any, step: Callable[[Any, int], Any], final: Callable[[Any], bool]
) -> Iterator[int]:
    for place in range(at, len(symbols)):
        here = step(here, symbols[place])
        if not here:
            return
        if final(here):
            yield place + 1
