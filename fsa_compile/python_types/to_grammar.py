"""Shapes to a grammar of Python expressions, terminals as they are written: what `python_values` reads.

After a comma one space may come, after the colon of a dict too; nothing else is free but quotes and escapes of strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fsa_compile.automata.labelled_dfa import TextDfa, from_letters, lengths
from fsa_compile.automata.labelled_product import product
from fsa_compile.errors import UnsatisfiableError
from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Pattern, Repeat, Rule, Sequence
from fsa_compile.grammar.grammar_tree import Reference as RuleReference
from fsa_compile.json_schema import number_conditions as numbers
from fsa_compile.languages.group_syntax import parse_with_groups
from fsa_compile.limits import CompileLimits, Deadline, check_time
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.python_types import python_literals, shapes, spellings
from fsa_compile.python_types.python_literals import QUOTES
from fsa_compile.python_types.shapes import Shape, TypeShape
from fsa_compile.python_types.type_errors import UnsupportedTypeError

_MAX_PRODUCT = 20_000
_MAX_MODULUS = 4_000


def grammar_of(shape: TypeShape, limits: CompileLimits, deadline: Deadline) -> Grammar:
    """The grammar of a type. Raises `UnsupportedTypeError`: Python has no exact form for a part."""
    return _Writer(shape, limits, deadline).grammar()


def _literal(text: str) -> Literal:
    return Literal(text, 0, 0)


def _pattern(pattern: str) -> Pattern:
    return Pattern(pattern, 0, 0)


def _sequence(*parts: Expression | str) -> Sequence:
    return Sequence(tuple(_literal(x) if isinstance(x, str) else x for x in parts), 0, 0)


def _choice(*branches: Expression | str) -> Expression:
    made = [_literal(x) if isinstance(x, str) else x for x in branches]
    return Choice(tuple(made), 0, 0) if len(made) > 1 else made[0]


_EMPTY = Sequence((), 0, 0)
_COMMA = _pattern(", ?")


class _Writer:
    def __init__(self, shape: TypeShape, limits: CompileLimits, deadline: Deadline) -> None:
        self._types, self._limits, self._deadline = shape, limits, deadline
        self._rules: dict[str, Rule] = {}
        self._known: dict[object, RuleReference] = {}

    def grammar(self) -> Grammar:
        types = self._types
        self._rules["start"] = Rule("start", _EMPTY, False, 0, 0, 0)
        for name, shape in types.definitions.items():
            self._define(f"type {name}", self.expression(shape, name))
        self._define("start", self.expression(types.root, types.name))
        return Grammar(rules=_reached(self._rules), start="start", ignore=(), mode="characters", text=types.name)

    def _define(self, name: str, body: Expression) -> RuleReference:
        self._rules[name] = Rule(name, body, False, 0, 0, 0)
        return RuleReference(name, 0, 0)

    def _shared(self, key: object, name: str, make: Callable[[], Expression]) -> RuleReference:
        """A rule that is made once for a key."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = RuleReference(f"{name} {len(self._known)}", 0, 0)
            self._define(found.name, make())
        return found

    def expression(self, shape: Shape, place: str) -> Expression:
        match shape:
            case shapes.Reference():
                return RuleReference(f"type {shape.name}", 0, 0)
            case shapes.Nothing():
                return _literal("None")
            case shapes.Truth():
                return _choice("True", "False")
            case shapes.Anything():
                return self._anything()
            case shapes.Number():
                return self._shared(shape, "number", lambda: self._number(shape, place))
            case shapes.Text():
                return self._shared(shape, "text", lambda: self._text(shape, place))
            case shapes.Binary():
                return _pattern(python_literals.BYTES)
            case shapes.Special():
                return _special(shape)
            case shapes.Options():
                return self._options(shape)
            case shapes.Many():
                return self._many(shape, place)
            case shapes.Row():
                items = [self.expression(x, f"{place}[{i}]") for i, x in enumerate(shape.items)]
                return _tuple(items)
            case shapes.Mapping():
                return self._mapping(shape, place)
            case shapes.Record():
                return self._record(shape, place)
            case shapes.Wrapped():
                return _sequence(f"{shapes.constructor(shape.type)}(", self.expression(shape.inner, place), ")")
            case shapes.Either():
                return _choice(*(self.expression(x, place) for x in shape.members))

    def _anything(self) -> Expression:
        key = shapes.Anything()
        if key not in self._known:
            itself = self._known[key] = RuleReference("anything", 0, 0)
            self._rules["anything"] = Rule("anything", _EMPTY, False, 0, 0, 0)
            string = self.expression(shapes.Text(), "")
            pair = _sequence(string, _pattern(": ?"), itself)
            numbers_ = _choice(self.expression(shapes.Number("int"), ""), self.expression(shapes.Number("float"), ""))
            lists = _sequence("[", _items(itself, 0, None), "]"), _sequence("{", _items(pair, 0, None), "}")
            self._define("anything", _choice("None", "True", "False", numbers_, string, *lists))
        return self._known[key]

    # scalars

    def _number(self, shape: shapes.Number, place: str) -> Expression:
        body = self._number_body(shape, place)
        return _choice(*(_sequence(f"Decimal({q}", body, f"{q})") for q in QUOTES)) if shape.kind == "Decimal" else body

    def _number_body(self, shape: shapes.Number, place: str) -> Expression:
        pattern = spellings.number_pattern(shape)
        universe: numbers.Universe = "all" if spellings.has_exponent(shape) else "plain"
        conditions: list[numbers.Condition] = []
        for bound in (shape.low, shape.high):
            if bound is not None:
                conditions.append(numbers.Compare(bound, exponents=universe == "all") if bound else numbers.Sign())
        conditions += [numbers.MultipleOf(m, _MAX_MODULUS, place) for m in shape.multiples]
        if not conditions:
            return _pattern(pattern)
        conditions.append(numbers.Written(self._dfa(pattern)))

        def label(said: tuple[int, ...]) -> int:
            rest = list(said)
            if numbers.UNDECIDED in rest:
                return 0
            if shape.low is not None and rest.pop(0) < (1 if shape.low_open else 0):
                return 0
            if shape.high is not None and rest.pop(0) > (-1 if shape.high_open else 0):
                return 0
            return int(all(rest))

        dfa = numbers.number_dfa(conditions, universe, label, _MAX_PRODUCT, place)
        return self._automaton(dfa, lambda low, high: _pattern(_class(low, high)), place)

    def _dfa(self, pattern: str) -> TextDfa:
        return from_letters(build_automaton(parse_with_groups(pattern, 0, self._limits), self._limits, self._deadline))

    def _text(self, shape: shapes.Text, place: str) -> Expression:
        if not shape.patterns:
            return _pattern(python_literals.string_pattern(shape.low, shape.high))
        dfas = [self._dfa(pattern) for pattern in shape.patterns]
        if shape.low or shape.high is not None:
            dfas.append(lengths(shape.low, shape.high))
        dfa = product(dfas, lambda said: int(all(said)), _MAX_PRODUCT, place)
        return _choice(
            *(_sequence(q, self._automaton(dfa, lambda low, high, q=q: _characters(low, high, q), place), q) for q in QUOTES)  # type: ignore[misc]
        )

    def _automaton(self, dfa: TextDfa, spell: Callable[[int, int], Expression], place: str) -> Expression:
        """A rule for every state, in terms of the next states."""
        if not any(dfa.labels):
            raise UnsatisfiableError("no value keeps to all conditions", where=f"at {place}")
        base = f"at {place} {len(self._rules)} "
        for state, (row, label) in enumerate(zip(dfa.rows, dfa.labels)):
            branches = [_sequence(spell(low, high), RuleReference(f"{base}{t}", 0, 0)) for low, high, t in row]
            self._define(f"{base}{state}", _choice(*branches, *([_EMPTY] if label or not branches else [])))
        return RuleReference(f"{base}0", 0, 0)

    def _options(self, shape: shapes.Options) -> Expression:
        out: list[Expression | str] = []
        for option in shape.options:
            if isinstance(option.value, str) and option.source == repr(option.value):
                out += _quotings(option.value)
            else:
                out.append(option.source)
        return _choice(*out)

    # collections

    def _many(self, shape: shapes.Many, place: str) -> Expression:
        item = self.expression(shape.item, f"{place}[]")
        if shape.is_set and shape.low > 1:
            raise UnsupportedTypeError(
                "elements of a set may be written twice, so that it may become smaller than its least size", place=place,
                fix="Leave the least size out.",
            )  # fmt: skip
        if shape.build is tuple:
            return _long_tuple(item, shape.low, shape.high)
        if not shape.is_set:
            made = _sequence("[", _items(item, shape.low, shape.high), "]")
            return made if shape.build is list else _sequence("deque(", made, ")")
        full = _sequence("{", _items(item, max(shape.low, 1), shape.high), "}")
        frozen = shape.build is frozenset
        branches: list[Expression | str] = [_sequence("frozenset(", full, ")") if frozen else full] if shape.high != 0 else []
        return _choice(*branches, *(["frozenset()" if frozen else "set()"] if not shape.low else []))

    def _mapping(self, shape: shapes.Mapping, place: str) -> Expression:
        if shape.low > 1:
            raise UnsupportedTypeError(
                "a key may be written twice, so that the dict may become smaller than its least size", place=place,
                fix="Leave the least size out.",
            )  # fmt: skip
        key, value = self.expression(shape.key, f"{place}{{key}}"), self.expression(shape.value, f"{place}{{}}")
        return _sequence("{", _items(_sequence(key, _pattern(": ?"), value), shape.low, shape.high), "}")

    def _record(self, shape: shapes.Record, place: str) -> Expression:
        members = [(f, self._member(f, shape, place)) for f in shape.fields]
        body = self._optional(f"fields of {place} {len(self._rules)}", members)
        return _sequence("{", body, "}") if shape.kind == "dict" else _sequence(f"{shapes.constructor(shape.type)}(", body, ")")

    def _member(self, field: shapes.Field, shape: shapes.Record, place: str) -> Expression:
        value = self.expression(field.shape, f"{place}.{field.name}")
        if shape.kind == "dict":
            return _sequence(_choice(*_quotings(field.key)), _pattern(": ?"), value)
        if not field.key.isidentifier() or not field.key.isascii():
            raise UnsupportedTypeError(
                f"{field.key!r} cannot be the name of an argument", place=f"{place}.{field.name}", fix='Use style="json".'
            )
        return _sequence(f"{field.key}=", value)

    def _optional(self, name: str, members: list[tuple[shapes.Field, Expression]]) -> Expression:
        """Members in order with commas between, those that are not required left out or not."""
        after: dict[bool, Expression] = {False: _EMPTY, True: _EMPTY}
        for i, (field, member) in reversed(list(enumerate(members))):
            rest, after = after, {}
            for begun in (False, True):
                taken = _sequence(*([_COMMA] if begun else []), member, rest[True])
                body = taken if field.required else _choice(taken, rest[begun])
                after[begun] = self._define(f"{name} {i}{' more' if begun else ''}", body)
        return after[False]


def _reached(rules: dict[str, Rule]) -> dict[str, Rule]:
    """The rules that the start rule needs."""
    seen, todo = {"start"}, [rules["start"].body]
    while todo:
        check_time("Writing a type as a grammar")
        match todo.pop():
            case RuleReference(name=name) if name not in seen:
                seen.add(name)
                todo.append(rules[name].body)
            case Sequence(parts=children) | Choice(branches=children):
                todo += children
            case Repeat(part=child):
                todo.append(child)
    return {name: rule for name, rule in rules.items() if name in seen}


def _items(item: Expression, low: int, high: int | None) -> Expression:
    """`low` to `high` items with commas between."""
    if high == 0:
        return _EMPTY
    more = Repeat(_sequence(_COMMA, item), max(0, low - 1), None if high is None else high - 1, 0, 0)
    some = _sequence(item, more)
    return some if low else _choice(some, _EMPTY)


def _tuple(items: list[Expression]) -> Expression:
    if len(items) == 1:
        return _sequence("(", items[0], ",)")
    parts: list[Expression | str] = ["("]
    for i, item in enumerate(items):
        parts += [_COMMA, item] if i else [item]
    return _sequence(*parts, ")")


def _long_tuple(item: Expression, low: int, high: int | None) -> Expression:
    branches: list[Expression | str] = []
    if not low:
        branches.append("()")
    if low <= 1 and (high is None or high >= 1):
        branches.append(_sequence("(", item, ",)"))
    if high is None or high >= 2:
        branches.append(_sequence("(", _items(item, max(low, 2), high), ")"))
    return _choice(*branches)


def _special(shape: shapes.Special) -> Expression:
    if shape.name == "date":
        return _pattern(python_literals.DATE)
    if shape.name == "timedelta":
        return _pattern(python_literals.TIMEDELTA)
    return _choice(*(_sequence(f"{shape.call}({q}", _pattern(shape.pattern), f"{q})") for q in QUOTES))


def _quotings(text: str) -> list[Expression | str]:
    """A string in either quotes."""
    return [f"{q}{''.join([python_literals.escaped(ord(c), q) or c for c in text])}{q}" for q in QUOTES]


def _class(low: int, high: int) -> str:
    return re.escape(chr(low)) if low == high else f"[\\U{low:08x}-\\U{high:08x}]"


def _characters(low: int, high: int, quote: str) -> Expression:
    """The characters of a range, each in its one spelling between these quotes."""
    branches: list[Expression | str] = []
    begin = low
    for special in sorted({*range(0x20), ord(quote), 0x5C, 0x7F}):
        if low <= special <= high:
            if begin < special:
                branches.append(_pattern(_class(begin, special - 1)))
            branches.append(python_literals.escaped(special, quote) or "")
            begin = special + 1
    if begin <= high:
        branches.append(_pattern(_class(begin, high)))
    return _choice(*branches)

