"""`Value`: a language of JSON values as one formula per kind of value, and the boolean operations on such languages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from fsa_compile.json_schema.atoms import KINDS, OBJECT, Has
from fsa_compile.json_schema.decision_diagrams import Decisions

Order: TypeAlias = "tuple[str, ...]"
"""Keys in the order in which an object lists them."""
Orders: TypeAlias = "tuple[Order, ...]"
"""The key orders that an object may keep to; the first holds every key that any of them names."""

CASES = 2
"""Outcome of the first of several cases. It is not 1, the outcome of a value that is asked for alone: a frame that ended in both
ways would have one bound for both, and none where the cases call themselves. Lists of cases inside others have the same effect on
each other if they have outcomes in common; then each needs its own."""
_MEETING = 1 << 10
"""Outcomes from here on belong to cases that have something in common; smaller ones are of white space and of counted frames."""
_APART = 1 << 12
"""Outcomes from here on belong to one list of cases alone."""
UNORDERED: Orders = ((),)
Meets: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""(i, j, k): a value that belongs to one of the cases i < j, but it is not sure to which, has the outcome of case k. Cases after
those that are given are for such values alone."""


class Value(NamedTuple):
    """A language of JSON values, or a classification of them.

    Attributes:
      formulas: per kind of value (see `atoms`) a diagram: false, true or a formula over atoms of that kind.
      orders: how objects list their keys.
    """

    formulas: tuple[int, ...]
    orders: Orders


ANYTHING = Value((1,) * KINDS, UNORDERED)
NOTHING = Value((0,) * KINDS, UNORDERED)


class Values:
    """Operations on values over one store of diagrams.

    Args:
      max_orders: key orders kept for one object.
      apart: whether every list of cases has outcomes of its own (see `CASES`).
    """

    def __init__(self, decisions: Decisions, max_orders: int, *, apart: bool = False) -> None:
        self.decisions = decisions
        self._max_orders, self.apart = max_orders, apart
        self._first: dict[Any, int] = {}
        self._next = _APART if apart else _MEETING

    def only(self, kind: int, formula: int, orders: Orders = UNORDERED) -> Value:
        """The formula for values of one kind; all others belong."""
        return Value(tuple(formula if k == kind else 1 for k in range(KINDS)), orders)

    def has(self, key: str) -> Value:
        """The objects with a key."""
        formula = self.decisions.atom(Has(key))
        return Value(tuple(formula if k == OBJECT else 0 for k in range(KINDS)), ((key,),))

    def both(self, a: Value, b: Value) -> Value:
        """The values in both."""
        if a == ANYTHING:
            return b
        if b == ANYTHING:
            return a
        d = self.decisions
        return Value(tuple(map(d.both, a.formulas, b.formulas)), self.in_turn(a.orders, b.orders))

    def all_of(self, values: Iterable[Value]) -> Value:
        """The values in all."""
        out = ANYTHING
        for value in values:
            out = self.both(out, value)
        return out

    def any_of(self, values: Sequence[Value]) -> Value:
        """The values in at least one."""
        out = NOTHING.formulas
        for value in values:
            out = tuple(map(self.decisions.either, out, value.formulas))
        return Value(out, self._either([v.orders for v in values]))

    def one_of(self, values: Sequence[Value]) -> Value:
        """The values in exactly one."""
        d = self.decisions
        none, one = ANYTHING.formulas, NOTHING.formulas
        for value in values:
            one = tuple(map(d.choose, value.formulas, none, one))
            none = tuple(map(d.choose, value.formulas, NOTHING.formulas, none))
        return Value(one, self._either([v.orders for v in values]))

    def negated(self, a: Value) -> Value:
        """The values that are not in a."""
        return Value(tuple(map(self.decisions.negated, a.formulas)), a.orders)

    def choose(self, condition: Value, then: Value, other: Value) -> Value:
        """`then` for values in `condition`, `other` for the rest."""
        formulas = tuple(map(self.decisions.choose, condition.formulas, then.formulas, other.formulas))
        turns = [self.in_turn(condition.orders, then.orders), self.in_turn(condition.orders, other.orders)]
        return Value(formulas, self._either(turns))

    def dependent(self, key: str, below: Value) -> Value:
        """The values that are in `below` if they have a key; the key comes before the keys of `below`, or after them."""
        has = self.has(key)
        value = self.choose(has, below, ANYTHING)
        return Value(value.formulas, self._either([value.orders, self.in_turn(below.orders, has.orders)]))

    def classify(self, cases: Sequence[Value], meets: Meets = ()) -> tuple[int, Value]:
        """(first, the value whose outcome is first + i for the values in case i); the cases are disjoint.

        Args:
          meets: what pairs of cases have in common; others have nothing.
        """
        first = CASES
        if self.apart or meets:
            first = self._first.setdefault((tuple(cases) if self.apart else len(cases), meets), self._next)
            self._next = max(self._next, first + len(cases), *(first + k + 1 for _, _, k in meets))
            self.decisions.meets.update({(first + i, first + j): first + k for i, j, k in meets})
        formulas = NOTHING.formulas
        for i, case in enumerate(cases):
            formulas = tuple(self.decisions.choose(c, first + i, f) for c, f in zip(case.formulas, formulas))
        return first, Value(formulas, self._either([case.orders for case in cases]))

    def met(self, a: Value, b: Value) -> Value:
        """The values in both; their objects keep to the orders of either."""
        return Value(self.both(a, b).formulas, widest(self._either([a.orders, b.orders])))

    def before(self, value: Value, behind: Orders) -> Value:
        """The value, whose objects may have other keys behind its own."""
        return value._replace(orders=self.in_turn(value.orders, behind))

    def in_turn(self, a: Orders, b: Orders) -> Orders:
        """An order of a, then one of b."""
        if a == UNORDERED:
            return b
        if b == UNORDERED:
            return a
        return self.few([_merged(x, y) for x in a for y in b])

    def _either(self, branches: list[Orders]) -> Orders:
        """All orders of the branches; the first is all their keys, the first branch's first."""
        distinct = [orders for orders in dict.fromkeys(branches) if orders != UNORDERED]
        if len(distinct) <= 1:
            return distinct[0] if distinct else UNORDERED
        union: Order = ()
        for orders in distinct:
            union = _merged(union, orders[0])
        return self.few([union, *(order for orders in distinct for order in orders)])

    def few(self, orders: list[Order]) -> Orders:
        """The orders (the first holds all keys), as many as are kept. Those that an earlier one contains come last: other keys
        may still be merged into them."""
        distinct = tuple(dict.fromkeys(orders))
        alone = widest(distinct)
        return (*alone, *(order for order in distinct if order not in alone))[: self._max_orders]


def widest(orders: Orders) -> Orders:
    """The orders without those that an earlier one contains."""
    out: list[Order] = []
    for order in orders:
        if not any(_within(order, kept) for kept in out):
            out.append(order)
    return tuple(out)


def _merged(a: Order, b: Order) -> Order:
    if not a or not b:
        return a or b
    known = set(a)
    return a + tuple(key for key in b if key not in known)


def _within(part: Order, whole: Order) -> bool:
    """Whether the keys of `part` stand in the same order in `whole`."""
    keys = iter(whole)
    return all(key in keys for key in part)
