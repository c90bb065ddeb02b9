"""Terminals that need more than their parts: order, lazy loops and conditions mean something for a lexeme as a whole only.

In longest-match mode a terminal is what a matcher takes that tries alternatives and loops in order (`first_match`). Where that
is always its longest text, its parts stay as they are. Where its conditions see more than that reads, it is its longest match; if
its loops are all lazy, it ends where the conditions first hold; if some are, it is its shortest matches: a match that begins with
another match is none, and alternatives count one by one, so that strings in one and in three quotes do not get into each other's
way. Conditions (lookaround, boundaries, anchors) see the text around the lexeme, too (`match_ends`); without a lexer, and where
matches are the shortest, those that would are refused. All are settled by joining the terminal to one regular expression.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.errors import LimitError, PatternError
from fsa_compile.grammar.grammar_tree import (  # fmt: skip
    Bounded,
    Choice,
    Embedded,
    Expression,
    Literal,
    Match,
    Pattern,
    Reference,
    Repeat,
    Rule,
    Sequence,
    Size,
    SpecialToken,
    Tempered,
)
from fsa_compile.grammar.lexing.terminal_automata import matches_of
from fsa_compile.grammar.lexing.terminal_sizes import size_of
from fsa_compile.grammar.source import GrammarText, children, flag_bits, walk
from fsa_compile.languages.group_syntax import parse_with_groups as parse_pattern
from fsa_compile.limits import Deadline
from fsa_compile.patterns.first_match import empty_rounds, order_matters, tried_in_order
from fsa_compile.patterns.match_ends import BeginsDiffer, Matches, may_see_before
from fsa_compile.patterns.regex_tree import Alternate, Anchor, Atomic, Concat, Look, Node, has_lazy_loop, widths
from fsa_compile.patterns.regex_tree import Repeat as Loop
from fsa_compile.patterns.shortest_match import MOST_ALTERNATIVES, alternatives, optional_end, shortest
from fsa_compile.patterns.trailing_guards import first_character
from fsa_compile.unicode.code_points import NONE

_FLAGS = re.compile(r"\(\?([aimsux]+)\)").match
MAX_HEIGHT = 200
"""Largest number of levels of a terminal's expression, other terminals written out."""


_ordered: SizedMemo[tuple[bool, int]] = SizedMemo(1 << 20, lambda found: 200 + found[1])
"""Whether order matters in a pattern, and how long it is, for other grammars; an entry takes about 200 bytes besides."""


def settle_terminals(
    source: GrammarText, rules: dict[str, Rule], ignore: tuple[Expression, ...], *, lazy: bool, exact: bool = False
) -> tuple[dict[str, Rule], tuple[Expression, ...]]:
    """The rules and the ignored expressions with every lexeme that needs it joined to one pattern.

    Args:
      rules: by name; every name in them is defined.
      lazy: whether lazy loops shorten lexemes (longest-match mode), or mean nothing.
      exact: whether terminals are refused that are not certain to match what `re` does.

    Raises:
      GrammarSyntaxError: a terminal uses itself, or a rule.
      UnsupportedGrammarError: a terminal is too deep, or mixes text with tokens that are no text; a condition would look
        outside; a lazy and a greedy loop both decide where a lexeme ends.
    """
    return _Terminals(source, rules, lazy, exact).settled(ignore)


def terminal_order(source: GrammarText, rules: dict[str, Rule]) -> list[str]:
    """Names of the terminals, each after those that it uses.

    Raises:
      GrammarSyntaxError: a terminal uses a rule, or uses itself.
      UnsupportedGrammarError: a terminal mixes text with tokens that are no text.
    """
    uses = {rule.name: _terminals_in(source, rule, rules) for rule in rules.values() if rule.terminal}
    order, state = list[str](), dict[str, int]()
    for root in uses:
        path = [(root, iter(uses[root]))] if root not in state else []
        state.setdefault(root, 1)
        while path:
            name, rest = path[-1]
            after = next(rest, None)
            if after is None:
                path.pop()
                state[name] = 2
                order.append(name)
            elif state.get(after.name, 0) == 1:
                _refuse_recursion(source, [name for name, _ in path], after)
            elif after.name not in state:
                state[after.name] = 1
                path.append((after.name, iter(uses[after.name])))
    return order


def _terminals_in(source: GrammarText, rule: Rule, rules: dict[str, Rule]) -> list[Reference]:
    found = []
    for node in walk(rule.body):
        if isinstance(node, SpecialToken) and not _is_token(rule):
            fix = "Use it in a rule (a name in lower case)."
            what = f"terminal {rule.name} mixes text and a token that is no text"
            source.unsupported(what, node.start, node.end, fix=fix)
        if isinstance(node, Reference):
            used = rules[node.name]
            if not used.terminal or _is_token(used):
                shown, other = f"{used.name}, which is no text", ""
                if not used.terminal:
                    shown, other = f"the rule {used.name}", f", or {used.name} a terminal (upper case)"
                fix = f"Make {rule.name} a rule (lower case){other}."
                source.syntax(f"terminal {rule.name} uses {shown}", node.start, node.end, fix=fix)
            found.append(node)
    return found


def _is_token(rule: Rule) -> bool:
    """Whether a terminal is one token that is no text, or a choice of such tokens."""
    branches = rule.body.branches if isinstance(rule.body, Choice) else (rule.body,)
    return all(isinstance(branch, SpecialToken) for branch in branches)


def _refuse_recursion(source: GrammarText, path: list[str], back: Reference) -> None:
    cycle = [*path[path.index(back.name) :], back.name]
    fix = "Terminals are regular expressions: repeat with * or +, or make it a rule (lower case), which may be recursive."
    source.syntax(f"a terminal uses itself: {' → '.join(cycle)}", back.start, back.end, fix=fix)


def _extent(node: Expression, extents: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Levels and nodes of an expression, with the terminals written out that it uses."""
    if isinstance(node, Reference):
        height, size = extents[node.name]
        return 1 + height, 1 + size
    parts = [_extent(part, extents) for part in children(node)]
    return 1 + max((height for height, _ in parts), default=0), 1 + sum(size for _, size in parts)


class _Terminals:
    def __init__(self, source: GrammarText, rules: dict[str, Rule], lazy: bool, exact: bool) -> None:
        self.source, self.rules, self.lazy, self.exact = source, rules, lazy, exact
        self.order = terminal_order(source, rules)
        self.trees: dict[tuple[str, str], Node] = {}
        self.joined: dict[str, str] = {}
        self.delicate: set[str] = set()
        self.texts: set[str] = set()
        self.size_named = functools.cache(lambda name: self.size(rules[name].body))
        self.written: dict[str, Expression] = {}  # terminals that are one pattern now, as parts of others

    def refuse_large(self) -> None:
        """Refuses terminals that are built from terminals in too many steps."""
        extents: dict[str, tuple[int, int]] = {}
        for name in self.order:
            rule = self.rules[name]
            height, size = extents[name] = _extent(rule.body, extents)
            if height > MAX_HEIGHT:
                what = f"terminal {name}, written out, is more than {MAX_HEIGHT} levels deep"
                self.source.unsupported(what, rule.start, rule.end, fix="Use fewer terminals inside terminals.")
            if size > self.source.limits.max_pattern:
                raise LimitError("max_pattern", self.source.limits.max_pattern, f"Writing out the terminal {name}")

    def settled(self, ignore: tuple[Expression, ...]) -> tuple[dict[str, Rule], tuple[Expression, ...]]:
        self.refuse_large()
        for name in self.order:
            if self.needs_joining(self.rules[name].body):
                self.delicate.add(name)
            if self.is_text(self.rules[name].body):
                self.texts.add(name)
        outside = self.outside(ignore)
        heads = {node.name for node in outside if isinstance(node, Reference | Embedded)}
        unnamed = {(node.pattern, node.flags) for node in outside if isinstance(node, Pattern)}
        for rule in self.rules.values():  # a pattern in a rule is the terminal with that pattern
            if rule.terminal and isinstance(rule.body, Pattern) and (rule.body.pattern, rule.body.flags) in unnamed:
                heads.add(rule.name)
        heads |= {rule.body.name for rule in self.rules.values() if isinstance(rule.body, Bounded | Tempered)}
        for name in reversed(self.order):  # another name for a terminal is that terminal
            if name in heads and isinstance(body := self.rules[name].body, Reference):
                heads.add(body.name)
        bodies = {name: self.terminal_body(self.rules[name], name in heads) for name in self.order}
        out = {
            name: Rule(name, bodies[name] if rule.terminal else _replaced(rule.body, self.in_rule), rule.terminal, rule.priority,
                       rule.start, rule.end)
            for name, rule in self.rules.items()
        }  # fmt: skip
        return out, tuple(self.lexeme(expression) for expression in ignore)

    def outside(self, ignore: tuple[Expression, ...]) -> list[Expression]:
        """All expressions outside terminals; terminals named there are lexemes, others only parts of lexemes."""
        bodies = [*(rule.body for rule in self.rules.values() if not rule.terminal), *ignore]
        return [node for body in bodies for node in walk(body)]

    def terminal_body(self, rule: Rule, is_lexeme: bool) -> Expression:
        body = self.lexeme(rule.body) if is_lexeme else self.written_out(rule.body)
        if isinstance(body, Pattern) and body != rule.body:
            self.written[rule.name] = self.written_out(rule.body)
        return body

    def written_out(self, body: Expression) -> Expression:
        """A terminal that stays as it is: terminals in it are what was written, not what they are as lexemes."""
        return _replaced(body, self.in_terminal)

    def in_terminal(self, node: Expression) -> Expression:
        return self.written.get(node.name, node) if type(node) is Reference else node

    def in_rule(self, node: Expression) -> Expression:
        return self.lexeme(node) if isinstance(node, Pattern) else node

    def needs_joining(self, body: Expression) -> bool:
        return any(
            _is_delicate(self.tree(node), self.lazy) if isinstance(node, Pattern)
            else isinstance(node, Reference) and node.name in self.delicate
            for node in walk(body)
        )  # fmt: skip

    def tree(self, node: Pattern) -> Node:
        key = node.pattern, node.flags
        if key not in self.trees:
            self.trees[key] = parse_pattern(node.pattern, flag_bits(node.flags), self.source.limits)
        return self.trees[key]

    def lexeme(self, body: Expression) -> Expression:
        """A lexeme's expression: as it is, or one pattern where its parts cannot be taken one by one."""
        if isinstance(body, Reference | Literal):
            return body
        if isinstance(body, Choice) and all(isinstance(branch, Literal) for branch in body.branches):
            return body  # the longest is tried first
        delicate = self.needs_joining(body)
        if not delicate and not (self.lazy and self.is_text(body)):
            return self.written_out(body)
        pattern, flags = (body.pattern, body.flags) if isinstance(body, Pattern) else (self.join(body), "")
        tree = self.parsed(pattern, flags, body)
        lazy = self.lazy and has_lazy_loop(tree)
        limits = self.source.limits

        def told() -> tuple[bool, int]:
            return order_matters(tree, limits), len(pattern)

        ordered = lazy or (self.lazy and _ordered.get((pattern, flags, limits), told)[0])
        if not delicate and not ordered:
            return self.written_out(body)
        if ordered and empty_rounds(tree):
            fix = "Let each round of the loop read something: + for *, and no alternative that may be empty."
            what = "a loop repeats what a lazy loop or an alternative lets be empty"
            self.source.unsupported(what, body.start, body.end, fix=fix)
        if not self.lazy:
            self.refuse_outlook(tree, body)
            return Pattern(self.checked_length(pattern), body.start, body.end, flags)
        if ordered and tried_in_order(tree, self.source.limits):
            return Pattern(self.checked_length(pattern), body.start, body.end, flags, Match.FIRST)
        soonest = lazy and _soonest(tree)
        if self.exact and not soonest and (lazy or not self.is_longest(tree)):
            fix = "Write a longer alternative before those that it begins with, and lazy loops without ?."
            what = "beside a condition, the order of alternatives and lazy loops are not followed"
            self.source.unsupported(what, body.start, body.end, fix=fix)
        if lazy and not soonest:
            found = self.matches(pattern, flags, body)
            self.refuse_outlook(tree, body, beyond=found.before is not None or any(end.forbidden != NONE for end in found.ends))
            return self.shortened(pattern, flags, body)
        if may_see_before(tree):
            self.matches(pattern, flags, body)
        match = Match.SOONEST if lazy else Match.LOOKING
        return Pattern(self.checked_length(pattern), body.start, body.end, flags, match)

    def is_longest(self, tree: Node) -> bool:
        """Whether, where conditions at the edges of a tree hold, its first match is certain to be the longest."""
        edges = [*_edge(tree, leading=True), *_edge(tree, leading=False)]
        conditions = [node for node in _below(tree) if isinstance(node, Look | Anchor)]
        at_edges = all(any(node is other for other in edges) for node in conditions)
        return at_edges and not order_matters(_without_conditions(tree), self.source.limits)

    def is_text(self, body: Expression) -> bool:
        """Whether an expression can be written as one pattern."""
        written = Literal | Pattern | Sequence | Choice | Repeat
        return all(node.name in self.texts if type(node) is Reference else isinstance(node, written) for node in walk(body))

    def matches(self, pattern: str, flags: str, body: Expression) -> Matches:
        """What a pattern matches within longer texts, if that is the same behind all texts that may stand before it."""
        try:
            return matches_of(pattern, flags, self.source.limits, Deadline(self.source.limits))
        except BeginsDiffer:
            what = "behind some texts this terminal matches others than behind other texts"
            fix = r"Make terminals of its alternatives, each with one condition on that text: /\bif/ and /\B-/ for /\bif|\B-/."
            self.source.unsupported(what, body.start, body.end, fix=fix)

    def shortened(self, pattern: str, flags: str, body: Expression) -> Expression:
        """What a lexer can take for this terminal: of every alternative with a lazy loop the shortest matches.

        What may be left out at the end, as the flags behind a closing slash, follows the shortest match of what precedes it.
        """

        def part(pattern: str) -> Pattern:
            self.parsed(pattern, flags, body)
            return Pattern(self.checked_length(pattern), body.start, body.end, flags)

        out, branches, verbose = list[str](), list[Expression](), "x" in flags
        for alternative in alternatives(pattern, verbose=verbose) or self.too_many_alternatives(body):
            tail = ""
            if has_lazy_loop(self.parsed(alternative, flags, body)):
                alternative, tail = self.divided(alternative, flags, body)
                self.refuse_mixture(self.parsed(alternative, flags, body), body)
                alternative = shortest(alternative, verbose=verbose)
            if tail:
                branches.append(Sequence((part(alternative), part(tail)), body.start, body.end))
            else:
                out.append(alternative + "\n" * verbose)
        branches += [part("|".join(out))] if out else []
        return branches[0] if len(branches) == 1 else Choice(tuple(branches), body.start, body.end)

    def divided(self, pattern: str, flags: str, body: Expression) -> tuple[str, str]:
        """A pattern without the greedy loops at its end that may be left out, and these, where no condition sees both."""
        cut = optional_end(pattern, verbose="x" in flags)
        head, tail = (_below(self.parsed(text, flags, body)) for text in (pattern[:cut], pattern[cut:]))
        ahead = [node for node in head if isinstance(node, Look) and not node.behind]
        if (
            has_lazy_loop(tail[0])
            or any(isinstance(node, Look | Anchor | Atomic) for node in tail)
            or any(first_character(node.item) is None for node in ahead)
            or _condition_at_edge(head[0], leading=False)
        ):
            return pattern, ""
        return pattern[:cut], pattern[cut:]

    def too_many_alternatives(self, body: Expression) -> NoReturn:
        fix = "Make several terminals of it, or write its lazy loops without ?."
        what = f"this terminal has lazy loops in more than {MOST_ALTERNATIVES} alternatives"
        self.source.unsupported(what, body.start, body.end, fix=fix)

    def parsed(self, pattern: str, flags: str, body: Expression) -> Node:
        """The tree of a joined pattern; its errors are shown at the terminal."""
        try:
            return self.tree(Pattern(pattern, body.start, body.end, flags))
        except PatternError as error:
            what = error.what.removesuffix(f" (offset {error.start})")
            fix = "Write (?:...) for groups with names, and flags such as (?i) behind the closing slash: /.../i."
            self.source.unsupported(f"the parts of this terminal do not join: {what}", body.start, body.end, fix=fix)

    def refuse_outlook(self, tree: Node, body: Expression, *, beyond: bool = False) -> None:
        """Refuses conditions that would look at the text before or after a lexeme; `beyond`: whether one does look after it."""
        if beyond or _condition_at_edge(tree, leading=True) or _condition_at_edge(tree, leading=False):
            fix = (
                "Write its loops without ?, naming the characters that they may pass: [^<]* instead of .*?."
                if self.lazy else "Remove it, and say in the rules what may follow; or compile with mode=\"longest\"."
            )  # fmt: skip
            what = "a condition at the edge of this terminal (\\b, ^, $, a lookaround) would look at the text around it"
            self.source.unsupported(what, body.start, body.end, fix=fix)

    def refuse_mixture(self, tree: Node, body: Expression) -> None:
        """Refuses terminals whose end a lazy loop wants early and a greedy one late."""
        if _greedy_at_end(tree):
            fix = 'Write the lazy loop without ?, naming the characters it may pass: "[^"]*" instead of ".*?".'
            self.source.unsupported("this terminal has a lazy loop and ends in a greedy one", body.start, body.end, fix=fix)

    def join(self, node: Expression) -> str:
        """An expression as one pattern, which may stand in a sequence or a choice; groups nest no deeper than they need."""
        match node:
            case Literal(text=text, ignore_case=ignore_case):
                return f"(?i:{re.escape(text)})" if ignore_case else re.escape(text)
            case Pattern(pattern=pattern, flags=flags):
                if own := _FLAGS(pattern):
                    pattern, flags = pattern[own.end() :], "".join(sorted({*flags, *own[1]}))
                return f"(?{flags}:{pattern}{chr(10) * ('x' in flags)})"
            case Reference(name=name):
                if name not in self.joined:
                    self.joined[name] = self.checked_length(self.join(self.rules[name].body))
                return self.joined[name]
            case Sequence(parts=parts):
                return "".join(map(self.join, parts))
            case Choice(branches=branches):
                tried = sorted([(branch, self.join(branch)) for branch in branches], key=self.precedence)
                return f"(?:{'|'.join(text for _, text in tried)})"
            case Repeat(part=part, low=low, high=high):
                text = self.join(part)
                group = text if isinstance(part, Choice | Pattern) else f"(?:{text})"
                return f"{group}{{{low},{'' if high is None else high}}}"
        fix = "Give it a rule of its own."
        self.source.unsupported(
            "free text cannot be part of a terminal with lazy loops or conditions", node.start, node.end, fix=fix
        )

    def precedence(self, joined: tuple[Expression, str]) -> tuple[float, int, int]:
        """The order in which Lark lets a lexer try alternatives of one terminal: those that may be longest first."""
        branch, text = joined
        least, most = widths(self.parsed(text, "", branch))
        return -most, -least, -self.size(branch).length

    def size(self, node: Expression) -> Size:
        return size_of(node, self.size_named, self.source.text, self.source.limits)

    def checked_length(self, pattern: str) -> str:
        if len(pattern) > self.source.limits.max_pattern:
            raise LimitError("max_pattern", self.source.limits.max_pattern, "Joining the parts of a terminal")
        return pattern


def _replaced(node: Expression, leaf: Callable[[Expression], Expression]) -> Expression:
    """An expression with something in the place of each of its leaves."""
    match node:
        case Sequence(parts=parts):
            return Sequence(tuple(_replaced(part, leaf) for part in parts), node.start, node.end)
        case Choice(branches=branches):
            return Choice(tuple(_replaced(branch, leaf) for branch in branches), node.start, node.end)
        case Repeat(part=part):
            return Repeat(_replaced(part, leaf), node.low, node.high, node.start, node.end)
    return leaf(node)


def _below(tree: Node, chosen: Callable[[list[Node]], Iterable[Node]] = iter) -> list[Node]:
    """A node and all nodes in it, but not those inside conditions; of the items of a sequence those that are chosen."""
    out, todo = [], [tree]
    while todo:
        node = todo.pop()
        out.append(node)
        match node:
            case Concat(items=items):
                todo += chosen(items)
            case Alternate(branches=branches):
                todo += branches
            case Loop(item=item) | Atomic(item=item):
                todo.append(item)
    return out


def _without_conditions(tree: Node) -> Node:
    match tree:
        case Look() | Anchor():
            return Concat([], tree.start, tree.end)
        case Concat(items=items):
            return dataclasses.replace(tree, items=[_without_conditions(item) for item in items])
        case Alternate(branches=branches):
            return dataclasses.replace(tree, branches=[_without_conditions(branch) for branch in branches])
        case Loop(item=item) | Atomic(item=item):
            return dataclasses.replace(tree, item=_without_conditions(item))
    return tree


def _is_delicate(tree: Node, lazy: bool) -> bool:
    return (lazy and has_lazy_loop(tree)) or any(isinstance(node, Look | Anchor) for node in _below(tree))


def _soonest(tree: Node) -> bool:
    """Whether the first match of a tree is the shortest one behind which its conditions hold.

    So it is where loops are lazy and read a character in each round, and all else is of one length.
    """
    nodes = _below(tree)
    loops = [node for node in nodes if isinstance(node, Loop) and node.low != node.high]
    return (
        all(node.lazy and widths(node.item) == (1, 1) for node in loops)
        and all(len({widths(branch) for branch in node.branches}) == 1 for node in nodes if isinstance(node, Alternate))
        and not any(isinstance(node, Atomic) for node in nodes)
    )


def _edge(tree: Node, *, leading: bool) -> list[Node]:
    """All nodes that may stand at the beginning (or else the end) of a match."""

    def outermost(items: list[Node]) -> Iterator[Node]:
        for item in items if leading else reversed(items):
            yield item
            if widths(item)[0]:
                return

    return _below(tree, outermost)


def _condition_at_edge(tree: Node, *, leading: bool) -> bool:
    outward = ("text start", "line start") if leading else ("text end", "line end", "end or final newline")
    for node in _edge(tree, leading=leading):
        match node:
            case Look(behind=behind) if behind == leading:
                return True
            case Anchor(kind=kind) if kind in outward or kind.endswith("word boundary"):
                return True
    return False


def _greedy_at_end(tree: Node) -> bool:
    return any(isinstance(node, Loop) and not node.lazy and node.low != node.high for node in _edge(tree, leading=False))
