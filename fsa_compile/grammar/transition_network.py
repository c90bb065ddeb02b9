"""Grammar to network: each called rule ("frame") a minimal automaton over terminals and calls.

Only self-embedding needs a stack. Left recursion and right recursion become loops; what embeds itself becomes a call, of the
bracketed group around the recursion where there is one (`outlining`). Rules that do not recurse are written out in place. All of
this keeps the language and forgets the trees, so that a grammar whose trees are ambiguous may well have a deterministic network.
No called frame accepts the empty text.

Source: M.-J. Nederhof, "Practical experiments with regular approximation of context-free languages", 2000 (linear recursion).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from fsa_compile.arrays.graphs import reach
from fsa_compile.automata.symbol_dfa import SymbolDfa
from fsa_compile.errors import LimitError, UnsupportedGrammarError
from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Reference, Repeat, Sequence, inside
from fsa_compile.grammar.lexing.terminals import Lexicon
from fsa_compile.grammar.outlining import WAYS, Outliner, Outlining, call_lines
from fsa_compile.grammar.rule_automata import Loop, RuleAutomata, is_end, recursion_sides, substituted
from fsa_compile.grammar.rule_expressions import (  # fmt: skip
    EMPTY,
    Node,
    branches_of,
    choice,
    recurs,
    recursive_components,
    references,
    sequence,
    speaks,
    strong_components,
    terminals_in,
    with_calls,
    without,
)
from fsa_compile.limits import CompileLimits, Deadline

_MAX_BRANCHES = 256
_FEW = 8
"""Repetitions of fewer iterations are written out."""
LARGE = 64
"""Repetitions with more states than this, written out, are counted."""
_CALL_SIZE = 8
_MAX_WRITTEN = 4096
"""Most states of a repetition that cannot be counted."""
_DOING = "Turning the grammar's rules into automata"


@dataclasses.dataclass(eq=False)
class Frame:
    """A unit that is called.

    Attributes:
      name: of its rule, with a number when it is a group inside the rule.
      rule: name of the rule in whose definition it stands.
      dfa: its minimal automaton; symbols are terminals t >= 0 and calls of frame k, written ~k.
      homes: names of the rules in which each terminal stands that this frame holds.
      loop: the repetition that the frame counts, if it does.
      line: whether it is a line, or a part of one, between newlines that tell blocks: it reads what is ignored after it.
      block: whether it holds such newlines: all else that it holds are lines.
    """

    name: str
    rule: str
    dfa: SymbolDfa
    homes: dict[int, list[str]]
    loop: Loop | None = None
    line: bool = False
    block: bool = False


@dataclasses.dataclass(eq=False)
class Network:
    """Frames that call one another; frame 0 is where a text starts: nothing calls it, and it alone may accept the empty text.

    Attributes:
      frames: all of them.
      ignore: terminals that may stand between lexemes.
      lexicon: the terminals, closed.
      blocks: terminals for newlines and the begin and end of blocks, where blocks are told by indentation.
      inside: by frame and state whether a bracket is open, so that newlines are ignored.
      in_brackets: terminals that are ignored there besides.
    """

    frames: list[Frame]
    ignore: list[int]
    lexicon: Lexicon
    blocks: tuple[int, int, int] | None = None
    inside: list[list[bool]] = dataclasses.field(default_factory=list)
    in_brackets: list[int] = dataclasses.field(default_factory=list)

    def ignored(self, frame: int, state: int) -> list[int]:
        """The terminals that may stand before and after a lexeme in a state of a frame."""
        return [*self.ignore, *self.in_brackets] if self.blocks and self.inside[frame][state] else self.ignore


def build_network(
    grammar: Grammar,
    lexicon: Lexicon,
    limits: CompileLimits,
    deadline: Deadline,
    written_out: set[Node] | None = None,
    outlining: Outlining = WAYS[0],
) -> Network:
    """The network of a grammar whose rules are all productive.

    Args:
      lexicon: an empty one; it is closed afterwards.
      written_out: repetitions that are not to be counted, as `UncountableError` names them.
      outlining: which parts of recursive rules become calls.

    Raises:
      UncountableError: other repetitions cannot be counted either.
      GrammarError: a terminal cannot be an automaton.
    """
    return _Builder(grammar, lexicon, limits, deadline, written_out or set(), outlining).network()


class _Builder:
    def __init__(
        self, grammar: Grammar, lexicon: Lexicon, limits: CompileLimits, deadline: Deadline, written_out: set[Node],
        outlining: Outlining,
    ) -> None:  # fmt: skip
        self.written_out, self.outlining = written_out, outlining
        self.rule = grammar.start
        self.loops: dict[str, Loop] = {}
        self.grammar, self.lexicon, self.limits, self.deadline = grammar, lexicon, limits, deadline
        self.bodies: dict[str, Node] = {}
        self.branches: dict[str, list[list[Node]]] = {}
        """Rules of recursive components once they are split: the non-empty texts, branch by branch."""
        self.nullable: set[str] = set()
        self.frame_of: dict[str, int] = {}
        self.home: dict[str, str] = {}
        self.groups: dict[Node, str] = {}

    def network(self) -> Network:
        ignore = [self._lexeme(node, ignored=True) for node in self.grammar.ignore]
        for name in self._reachable():
            self.home[name] = self.rule = name
            self.bodies[name] = self._node(self.grammar.rules[name].body)
        blocks = self._blocks()
        self.lexicon.close()
        self._drop_blank_rules()
        self._find_nullable()
        self.bodies = {name: self._counting(body) for name, body in self.bodies.items()}
        numbers = {name: self._frame(name) for name in self.grammar.called if name in self.bodies}
        self.bodies = {name: with_calls(body, numbers, self.nullable) for name, body in self.bodies.items()}
        counted = set(self.frame_of)
        if blocks:
            call_lines(self.bodies, set(blocks), numbers, self._can_be_empty, self._group)
        lines = self.frame_of.keys() - counted
        self.outliner = Outliner(
            self.bodies, self.lexicon, self.outlining, self._can_be_empty, self._first_terminals, self._group, self.deadline
        )
        self.outliner.outline()
        for component in self._components():
            self._split(component)
        while any(self._cut(component) for component in self._components()):
            self.deadline.check(_DOING)
        rules = RuleAutomata(
            self.bodies, self.branches, self.nullable, self.loops, self._can_be_empty, self.limits, self.deadline
        )
        for component in self._components(everything=True):
            rules.build(component)
        start = self.grammar.start
        frames = [Frame(start, start, rules.whole(start), self._homes(start))]
        frames += [
            Frame(name, self.home[name], rules.automata[name], self._homes(name), self.loops.get(name), name in lines)
            for name in self.frame_of
        ]
        self._check_first_calls(frames)
        return Network(frames, ignore, self.lexicon, blocks)

    def _blocks(self) -> tuple[int, int, int] | None:
        """Terminals for newlines and the begin and end of blocks."""
        names = self.grammar.indentation
        if not names:
            return None
        self.lexicon.apart = tuple(1 << ord(c) for c in " \t\f\n")
        newline, indent, dedent = (self._lexeme(Reference(n, 0, 0)) for n in (names.newline, names.indent, names.dedent))
        return newline, indent, dedent

    # ---------------------------------------------------------------- reading the grammar

    def _lexeme(self, node: Expression, *, ignored: bool = False) -> int:
        if isinstance(node, Reference):
            rule = self.grammar.rules[node.name]
            return self.lexicon.number(rule.body, rule.name, rule.priority)
        return self.lexicon.number(node, ignored=ignored)

    def _is_lexeme(self, name: str) -> bool:
        """Whether a rule is one lexeme. Special tokens are no text: a terminal that names some is read like a rule."""
        rule = self.grammar.rules[name]
        return rule.terminal and not self.lexicon.names_special_token(rule.body)

    def _reachable(self) -> list[str]:
        """Rules that the start needs, in the grammar's order."""

        def named(name: str) -> list[str]:
            parts = inside(self.grammar.rules[name].body)
            return [node.name for node in parts if isinstance(node, Reference) and not self._is_lexeme(node.name)]

        found = reach([self.grammar.start], named)
        return [name for name in self.grammar.rules if name in found]

    def _node(self, node: Expression) -> Node:
        match node:
            case Sequence():
                return sequence(*(self._node(part) for part in node.parts))
            case Choice():
                return choice(*(self._node(branch) for branch in node.branches))
            case Repeat():
                return self._repeat(self._node(node.part), node)
            case Reference() if not self._is_lexeme(node.name):
                return ("rule", node.name)
            case _:
                number = self._lexeme(node)
                terminal = ("terminal", number)
                return choice(terminal, EMPTY) if self.lexicon.terminals[number].nullable else terminal

    def _repeat(self, part: Node, node: Repeat) -> Node:
        low, high = node.low, node.high
        if max(low, high or 0) > self.limits.max_repeat:
            raise LimitError("max_repeat", self.limits.max_repeat, "A repetition in the grammar")
        if part == EMPTY:
            return EMPTY
        if high is None:
            return sequence(self._times(part, low, low, node), ("star", part))
        return self._times(part, low, high, node)

    def _times(self, part: Node, low: int, high: int, place: Expression) -> Node:
        """`low` to `high` parts: counted if they are many, else written out."""
        named: Node = ("times", part, low, high)
        if high > _FEW and high * self._size(part) > LARGE:
            if named not in self.written_out:
                return self._counted(named, place)
            if high * self._size(part) > _MAX_WRITTEN:
                raise self._uncountable(place, high)
        return sequence(*[part] * low, ("upto", part, high - low) if high > low else EMPTY)

    def _counted(self, named: Node, place: Expression) -> Node:
        """A call of the frame that counts. Iterations are never empty: where the item may be, there is no lower bound."""
        _, part, low, high = named
        body: Node = ("loop", part, len(self.loops))
        number = self._group(body, self.rule)
        self.loops[self.groups[body]] = Loop(named, low, high, set(), place)
        return ("count", self.groups[body], number)

    def _size(self, node: Node) -> int:
        """Roughly the states of an expression."""
        match node[0]:
            case "terminal":
                return len(self.lexicon.terminals[node[1]].automaton.final) - 1
            case "rule" | "core" | "call" | "count":
                return _CALL_SIZE
            case "upto":
                return self._size(node[1]) * int(node[2])
            case _:
                return sum(self._size(part) for part in node[1:] if isinstance(part, tuple))

    def _uncountable(self, place: Expression, high: int) -> UnsupportedGrammarError:
        what = f"up to {high:,} repetitions can be neither counted nor written out: the text does not tell where each begins"
        fix = "Let what is repeated, or what follows it, begin with characters of its own; or use smaller bounds."
        return UnsupportedGrammarError(what, text=self.grammar.text, start=place.start, end=place.end, fix=fix)

    def _check_first_calls(self, frames: list[Frame]) -> None:
        """A frame must read something before it can call itself; a loop over recursion at its left end would not."""
        needs = {str(k): [str(~s) for s in frame.dfa.arcs[0] if s < 0] for k, frame in enumerate(frames)}
        for component in strong_components(needs):
            if len(component) == 1 and not any(k in needs[k] for k in component):
                continue
            among = [frames[int(k)] for k in sorted(component)]
            loop = next((frame.loop for frame in among if frame.loop), None)
            rule = self.grammar.rules[among[0].rule]
            what = "what is repeated many times begins with the rule that it stands in"
            fix = "Let each iteration begin with something else, a bracket for example, or repeat it without bounds."
            if loop is None:
                what = f"a repetition in rule {rule.name} may be empty and begins with the rule that it stands in"
                fix = "Let each iteration begin with something else, such as a bracket, or take the empty text out of the rule."
            place = rule if loop is None else loop.place
            raise UnsupportedGrammarError(what, text=self.grammar.text, start=place.start, end=place.end, fix=fix)

    def _homes(self, name: str) -> dict[int, list[str]]:
        out: dict[int, list[str]] = {}
        seen, todo = {name}, [name]
        while todo:
            rule = todo.pop()
            for node in [self.bodies[rule]] if rule in self.bodies else [p for parts in self.branches[rule] for p in parts]:
                for t in terminals_in(node):
                    if self.home[rule] not in out.setdefault(t, []):
                        out[t].append(self.home[rule])
                for other in references(node):
                    if other not in seen:
                        seen.add(other)
                        todo.append(other)
        return out

    # ---------------------------------------------------------------- properties

    def _drop_blank_rules(self) -> None:
        """Rules whose only text is empty are written out: nothing needs to be split or called because of them."""
        speaking = {name for name, body in self.bodies.items() if speaks(body)}
        while more := {n for n, body in self.bodies.items() if n not in speaking and speaking & set(references(body))}:
            speaking |= more
        if len(speaking) < len(self.bodies):
            self.bodies = {name: without(body, speaking) for name, body in self.bodies.items()}

    def _find_nullable(self) -> None:
        while more := {n for n, body in self.bodies.items() if n not in self.nullable and self._can_be_empty(body)}:
            self.nullable |= more

    def _can_be_empty(self, node: Node) -> bool:
        match node[0]:
            case "rule":
                return node[1] in self.nullable
            case "sequence":
                return all(self._can_be_empty(part) for part in node[1:])
            case "choice":
                return any(self._can_be_empty(branch) for branch in node[1:])
            case "star" | "upto":
                return True
            case "count":
                return not self.loops[node[1]].low or self._can_be_empty(self.loops[node[1]].node[1])
            case _:
                return False

    def _counting(self, node: Node) -> Node:
        """The expression with counted repetitions as calls, which are never empty."""
        match node[0]:
            case "count":
                call: Node = ("call", node[2])
                return choice(call, EMPTY) if self._can_be_empty(node) else call
            case "sequence":
                return sequence(*(self._counting(part) for part in node[1:]))
            case "choice":
                return choice(*(self._counting(branch) for branch in node[1:]))
            case "star" | "upto" | "loop":
                return (node[0], self._counting(node[1]), *node[2:])
            case _:
                return node

    def _components(self, *, everything: bool = False) -> list[set[str]]:
        """Sets of rules that need one another, callees first; without those that do not recurse unless asked."""
        needs = {name: list(references(body)) for name, body in self.bodies.items()}
        for name, branches in self.branches.items():
            needs[name] = [other for parts in branches for part in parts for other in references(part)]
        return strong_components(needs) if everything else recursive_components(needs)

    # ---------------------------------------------------------------- recursion to loops and calls

    def _first_terminals(self, node: Node, seen: set[str] | None = None) -> set[int]:
        seen = set() if seen is None else seen
        match node[0]:
            case "terminal":
                return {node[1]}
            case "call":
                return set()
            case "rule" | "core":
                if node[1] in seen:
                    return set()
                seen.add(node[1])
                bodies = [self.bodies[node[1]]] if node[1] in self.bodies else [("sequence", *b) for b in self.branches[node[1]]]
                return {t for body in bodies for t in self._first_terminals(body, seen)}
            case "sequence":
                out: set[int] = set()
                for part in node[1:]:
                    out |= self._first_terminals(part, seen)
                    if not self._can_be_empty(part):
                        break
                return out
            case _:
                return {t for part in node[1:] if isinstance(part, tuple) for t in self._first_terminals(part, seen)}

    def _group(self, body: Node, name: str) -> int:
        """Number of the frame of a group inside a rule."""
        home = self.home[name]
        group = self.groups.get(body)
        if group is None:
            count = sum(1 for other in self.groups.values() if self.home[other] == home)
            group = self.groups[body] = f"{home}#{count + 1}"
            self.bodies[group], self.home[group] = body, home
        return self._frame(group)

    def _frame(self, name: str) -> int:
        return self.frame_of.setdefault(name, len(self.frame_of) + 1)

    def _split(self, component: set[str]) -> None:
        """Splits the rules of a component into branches."""
        bodies = {name: self._branched(name, component) for name in sorted(component)}
        for name, branches in bodies.items():
            del self.bodies[name]
            self.branches[name] = [self.outliner.outlined_parts(parts, component, name) for parts in branches]

    def _branched(self, name: str, component: set[str]) -> list[list[Node]]:
        """The non-empty texts of a rule as branches in which recursive rules stand for their non-empty texts.

        Recursion then stands at the top of a branch or inside a loop, and what may be empty is split where it hides recursion
        at an end of the branch.
        """
        out: dict[tuple[Node, ...], None] = {}
        flat = self._flat(self.bodies[name], component)
        for parts in flat:
            for less in self._without_outer_loop(parts, flat, name, component):
                for hidden in self._without_hidden_ends(less, component):
                    for branch in _without_first_loop(hidden, component):
                        if branch and branch != [("core", name)]:
                            out[tuple(branch)] = None
        return [list(branch) for branch in out]

    def _flat(self, node: Node, component: set[str]) -> list[list[Node]]:
        if not recurs(node, component):
            return [[node] if node != EMPTY else []]
        match node[0]:
            case "rule":
                core: Node = ("core", node[1])
                return [[core], []] if node[1] in self.nullable else [[core]]
            case "core":
                return [[node]]
            case "choice":
                return [parts for branch in node[1:] for parts in self._flat(branch, component)]
            case "sequence":
                out: list[list[Node]] = [[]]
                for part in node[1:]:
                    ends = self._flat(part, component)
                    if len(out) * len(ends) > _MAX_BRANCHES:
                        raise LimitError("max_rules", _MAX_BRANCHES, "Writing out the branches of a recursive rule")
                    out = [begin + end for begin in out for end in ends]
                return out
            case "upto":
                once = [parts for parts in self._flat(node[1], component) if parts]
                if sum(len(once) ** i for i in range(node[2] + 1)) > _MAX_BRANCHES:
                    raise LimitError("max_rules", _MAX_BRANCHES, "Writing out the branches of a recursive rule")
                return [
                    list(itertools.chain(*rounds)) for n in range(node[2] + 1) for rounds in itertools.product(once, repeat=n)
                ]
            case _:
                rounds = [r for parts in self._flat(node[1], component) for r in self._rounds(parts, component)]
                return [[("star", choice(*rounds))], []]

    def _rounds(self, parts: list[Node], component: set[str]) -> list[Node]:
        """A round of a loop as rounds that are not empty: one that may be empty is as good as each of its parts alone."""
        if not self._can_be_empty(sequence(*parts)):
            return [sequence(*parts)]
        out: list[Node] = []
        for part in parts:
            out += branches_of(part[1]) if recurs(part, component) else [("nonempty", part)]
        return out

    def _without_outer_loop(self, parts: list[Node], flat: list[list[Node]], name: str, component: set[str]) -> list[list[Node]]:
        """`A: x ("+" A)*` has the texts of `A: x ["+" A]`: further rounds are inside A. Likewise at the left end.

        This holds when the loop may follow every branch of A, so that A "+" A is an A.
        """
        me: Node = ("core", name)
        if parts == [("star", me)]:
            return [[me, me]]
        for last in (True, False):
            loop = parts[-1 if last else 0] if parts else EMPTY
            if len(component) > 1 or loop[0] != "star" or not recurs(loop, component):
                continue
            rounds = [list(r[1:]) if r[0] == "sequence" else [r] for r in branches_of(loop[1])]
            everywhere = all(
                other[-1 if last else 0 :][:1] == [loop] or ([*other, loop] if last else [loop, *other]) in flat for other in flat
            )
            if everywhere and all(len(r) > 1 and r[-1 if last else 0] == me for r in rounds):
                return [[*parts[:-1], *r] if last else [*r, *parts[1:]] for r in rounds]
        return [parts]

    def _without_hidden_ends(self, parts: list[Node], component: set[str]) -> Iterator[list[Node]]:
        where = [i for i, part in enumerate(parts) if recurs(part, component)]
        if not where:
            whole = sequence(*parts)
            yield ([("nonempty", whole)] if self._can_be_empty(whole) else [whole]) if whole != EMPTY else []
            return
        for begin in self._split_ends(sequence(*parts[: where[0]])):
            for end in self._split_ends(sequence(*parts[where[-1] + 1 :])):
                yield [*begin, *parts[where[0] : where[-1] + 1], *end]

    def _split_ends(self, node: Node) -> list[list[Node]]:
        if node == EMPTY:
            return [[]]
        if self._can_be_empty(node):
            return [[], [("nonempty", node)]]
        return [list(node[1:]) if node[0] == "sequence" else [node]]

    def _cut(self, component: set[str]) -> bool:
        """Makes calls of the recursion that is neither at the left nor at the right end; whether anything changed."""
        sides = {side for name in component for parts in self.branches[name] for side in recursion_sides(parts, component)}
        if "inside" in sides:
            for name in sorted(component):
                self.branches[name] = [
                    [p if is_end(i, parts) and p[0] == "core" else self._called(p, component) for i, p in enumerate(parts)]
                    for parts in self.branches[name]
                ]
            return True
        if {"left", "right"} <= sides and len(component) > 1:
            if not self._collapse(component):
                for name in sorted(component):
                    self.branches[name] = [
                        [*p[:-1], self._called(p[-1], component)] if len(p) > 1 else p for p in self.branches[name]
                    ]
            return True
        return False

    def _collapse(self, component: set[str]) -> bool:
        """Writes out one rule that does not refer to itself in the others; whether there was one."""
        for name in sorted(component):
            mine = self.branches[name]
            me: Node = ("core", name)
            if (name in self.frame_of and len(mine) > 4) or any(me in parts for parts in mine):
                continue
            written: dict[str, list[list[Node]]] = {}
            for other in sorted(component - {name}):
                out: dict[tuple[Node, ...], None] = {}
                for parts in self.branches[other]:
                    for branch in substituted(parts, me, mine):
                        if branch != [("core", other)]:
                            out[tuple(branch)] = None
                written[other] = [list(parts) for parts in out]
            if sum(map(len, written.values())) <= _MAX_BRANCHES:
                self.branches.update(written)
                return True
        return False

    def _called(self, node: Node, component: set[str]) -> Node:
        """The node with references to the component as calls."""
        if node[0] in ("terminal", "call") or not recurs(node, component):
            return node
        if node[0] == "core":
            return ("call", self._frame(node[1]))
        return (node[0], *(self._called(part, component) if isinstance(part, tuple) else part for part in node[1:]))


def _without_first_loop(parts: list[Node], component: set[str]) -> Iterator[list[Node]]:
    """A recursion in a loop at the left end is one at the left end in the first round; no call may stand there."""
    if not parts or parts[0][0] != "star" or not recurs(parts[0], component):
        yield parts
        return
    for one in branches_of(parts[0][1]):
        yield from _without_first_loop([*(one[1:] if one[0] == "sequence" else [one]), *parts], component)
