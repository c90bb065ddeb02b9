"""Controls whose tokens are put together from those of another control, and leaves walked before: as if each had been walked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.compose import compose_machine
from fsa_compile.composition.pushdown import pushdown_walk as stack_walk
from fsa_compile.composition.pushdown import summaries as leaf_walks
from fsa_compile.composition.pushdown.default_transitions import NONE_DERIVED, derived_controls
from fsa_compile.composition.pushdown.length_summaries import measure_of
from fsa_compile.json_schema import schema_machine
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

_PIECES = (
    'na nam name names ame me e ": "," ", "} {" {"na {"name": " :" ":" ":{" ":{} }} },{ } "}, null nul true number er num "] ],',
    r'value val alue e":"x" e":1} e":{" \u00 \" u006 é lé clé name" name": na" "name" "name": "na x":null,"name a b c d aa ab "]}',
)
_SCHEMAS: dict[str, Any] = {
    "open": {"properties": {"name": {"type": "string"}, "nam": {"type": "integer"}, "number": {}}, "type": "object"},
    "nested": {
        "type": "object",
        "properties": {"name": {"properties": {"name": {}, "value": {"type": "null"}}}, "value": {"additionalProperties": {"type": "null"}}},
        "required": ["value"],
    },
    "recursive": {"type": "object", "properties": {"name": {"$ref": "#"}, "names": {"type": "array", "items": {"$ref": "#"}}}},
    "banned": {"type": "object", "properties": {"name": False, "na": {"type": "null"}, "clé": {"type": "null"}}},
    "strings": {"anyOf": [{"enum": ["name", "number"]}, {"type": "array", "items": {"not": {"enum": ["name", "na", 1]}}}]},
    "outcomes": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}, "contains": {"const": "name"}}},
    "patterns": {"type": "object", "patternProperties": {"^na": {"type": "null"}, "e$": {"type": "integer"}}, "properties": {"val": True}},
}  # fmt: skip


def _vocabulary() -> Vocabulary:
    tokens = [bytes([b]) for b in range(256)] + [w.encode() for w in dict.fromkeys(" ".join(_PIECES).split())]
    tokens += [letter.encode() * n for letter in "abxyz" for n in (2, 3)] + [b"ame"]  # b"ame" twice: two ids write the same
    letters = [x.encode() for x in "abcdefghijklmnopqrstuvwxyz"]
    tokens += [*(a + b for a in letters for b in letters), b""]
    return Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1])


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return _vocabulary()


def contents(c: CompiledConstraint) -> list[Any]:
    """Everything a constraint says, node by node, whatever the order of its rows and sets."""
    rows = [row.tobytes() for row in c.rows]
    out: list[Any] = [c.start, c.max_pops, c.accept.tolist(), c.distance.tolist(), c.need.tolist()]
    out += [c.ladder.tolist(), c.level_slope.tolist(), c.symbol_ladder.tolist(), c.symbol_cost.tolist()]

    def number(value: int) -> Any:
        return value if value >= 0 else c.increments[-1 - value].tobytes()

    out.append(c.delta[c.delta_offset[:, None] + np.arange(c.num_symbols)].tolist() if c.num_symbols else [])
    for n in range(c.num_nodes):
        groups = slice(c.group_offset[n], c.group_offset[n + 1])
        levels = range(c.level_offset[n], c.level_offset[n + 1])
        arcs = slice(c.arc_offset[n], c.arc_offset[n + 1])
        columns = c.group_row, c.group_next, c.group_push, c.group_add, c.group_set
        out.append(sorted((rows[r], n, p, str(number(a)), str(number(s))) for r, n, p, a, s in zip(*(x[groups].tolist() for x in columns))))
        out.append([(int(c.level_cost[i]), int(c.level_need[i]), rows[c.level_row[i]]) for i in levels])
        out.append((c.arc_token[arcs].tolist(), c.effects[c.arc_effect[arcs]].tolist()))
    return out


def _machine(name: str) -> ByteMachine:
    return schema_machine(_SCHEMAS[name])


@pytest.mark.parametrize("name", _SCHEMAS)
def test_as_if_walked(name: str, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _machine(name)
    first = compose_machine(machine, vocabulary, source=name)
    again = compose_machine(machine, vocabulary, source=name)
    monkeypatch.setattr(stack_walk, "leaf_procedures_of", lambda *_: [])
    derived = compose_machine(machine, vocabulary, source=name)
    monkeypatch.setattr(stack_walk, "derived_controls", lambda *_: NONE_DERIVED)
    walked = contents(compose_machine(machine, vocabulary, source=name))
    assert [contents(c) == walked for c in (first, again, derived)] == [True] * 3


def test_shared_runs_change_nothing(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = {"type": "string", "pattern": "^(ab|cd|[e-h]+x){1,4}$"}
    machine = schema_machine({"patternProperties": {"ab+c": pattern, "d.*e": {"type": "integer"}}, "additionalProperties": pattern})
    calls = []
    monkeypatch.setattr(stack_walk, "leaf_procedures_of", lambda *_: [])
    alone = contents(compose_machine(machine, vocabulary, source=""))
    monkeypatch.setattr(stack_walk, "_SHARED", 1)
    monkeypatch.setattr(stack_walk, "_SEVERAL", 1)
    take = stack_walk.Links.take
    monkeypatch.setattr(stack_walk.Links, "take", lambda self, *given: (calls.append(given), take(self, *given))[1])
    assert contents(compose_machine(machine, vocabulary, source="")) == alone
    shared = [given for given in calls if len(given[3]) and (given[3] < 0).all()]
    assert max(len(given[0]) - len(set(given[0].tolist())) for given in shared) > 5  # several owners of one run


_LEAVES = {
    "counted": ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 7}, {"type": "string", "minLength": 2, "maxLength": 7}),
    "numbers": ({"type": "integer"}, {"type": "array", "items": {"type": "integer"}}, {"type": "number"}),
    "least lengths": ({"type": "string", "minLength": 6}, {"type": "array", "items": {"type": "string", "minLength": 4}}, {"minLength": 2}),
    "measured": (
        {"type": "string", "format": "email", "maxLength": 300},
        {"type": "array", "items": {"type": "string", "pattern": "^[a-e]{3}(-[a-z0-9]{1,40})+$", "maxLength": 500}},
    ),
    "strings": (
        {"type": "string"}, {"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"enum": [1, True]}]},
        {"properties": {"na": {"type": ["string", "null"]}, "b": {"enum": ["x", None]}}, "additionalProperties": {"type": "string"}},
    ),
    "formats": ({"type": "string", "format": "ipv6"}, {"properties": {"a": {"type": "string", "format": "ipv6"}}}, {"format": "ipv4"}),
}  # fmt: skip


@pytest.mark.parametrize("family", _LEAVES)
def test_leaves_of_other_machines(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept of one schema serves the others only where it is the same."""
    vocabulary = _vocabulary()
    machines = [schema_machine(schema) for schema in _LEAVES[family]]
    found = [compose_machine(machine, vocabulary, source="") for machine in machines]
    monkeypatch.setattr(stack_walk, "leaf_procedures_of", lambda *_: [])
    for machine, constraint in zip(machines, found, strict=True):
        assert contents(constraint) == contents(compose_machine(machine, vocabulary, source=""))


def test_bounded_shapes_are_measured(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(stack_walk, "measure_of", lambda *given: (found.append(measure_of(*given)), found[-1])[1])
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    leaf_walks.forget_summaries()
    for schema in _LEAVES["measured"]:
        compose_machine(schema_machine(schema), vocabulary, source="")
    assert sum(measure is not None for measure in found) == 2


_MAIL = r"^[a-z0-9]{1,64}@[a-z]{1,63}(\.[a-z]{1,63}){1,9}$"


@pytest.mark.parametrize("more", [{}, {"minLength": 3}, {"pattern": _MAIL}, {"pattern": "^[^b]*$"}])
def test_one_walk_serves_all_bounds(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over tokens that are longer than most bounds."""
    written = [x * n + end for x in ("a", "é", r"\n") for n in (2, 7, 19, 24, 30, 31, 32, 40) for end in ("", "@", '"', '", "a')]
    tokens = [bytes([b]) for b in range(256)] + [text.encode() for text in written] + [b""]
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1])
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    leaf_walks.forget_summaries()
    schemas = [{"type": "array", "items": {"type": "string", "maxLength": most, **more}} for most in (31, 20, 33, 300)]
    machines = [schema_machine(schema) for schema in schemas]
    walked, walk = list[int](), stack_walk.summarize
    monkeypatch.setattr(stack_walk, "summarize", lambda *given, **named: (walked.append(1), walk(*given, **named))[1])
    found = [(compose_machine(machine, vocabulary, source=""), len(walked)) for machine in machines]
    assert found[0][1] > 0
    assert found[-1][1] == found[0][1] or "pattern" in more  # the first one's serves them all; shapes depend on their bounds
    monkeypatch.setattr(stack_walk, "leaf_procedures_of", lambda *_: [])
    for machine, (constraint, _) in zip(machines, found, strict=True):
        assert contents(constraint) == contents(compose_machine(machine, vocabulary, source=""))


def test_leaves_are_kept(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = schema_machine({"type": "array", "items": {"type": ["string", "number"]}})
    compose_machine(machine, vocabulary, source="")
    monkeypatch.setattr(stack_walk.Walk, "leaf", None)
    compose_machine(machine, vocabulary, source="")


def test_a_body_of_a_string_is_one_leaf_whatever_stands_beside_it(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    leaf_walks.forget_summaries()
    read, walk = list[int](), stack_walk.summarize

    def recorded(machine: ByteMachine, size: int, *given: Any, **named: Any) -> leaf_walks.Summary:
        moves = machine.action[1 : size + 1] != machine.action.max()  # whatever else a leaf reads leaves it by the last action
        read.append(int((moves & (machine.action[1 : size + 1] > 0))[:, machine.byte_class].sum(1).max()))
        return walk(machine, size, *given, **named)

    monkeypatch.setattr(stack_walk, "summarize", recorded)
    for items in ({"type": "string"}, {"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"enum": [12, 13, None]}]}):
        compose_machine(schema_machine({"type": "array", "items": items}), vocabulary, source="")
    assert sum(number > 100 for number in read) == 1


@pytest.mark.parametrize("name", _SCHEMAS)
def test_some_controls_are_derived(name: str, vocabulary: Vocabulary) -> None:
    found = derived_controls(_machine(name), tables_for(vocabulary), Deadline(CompileLimits()))
    assert len(found.node) >= 2
    assert not set(found.base.tolist()) & set(found.node.tolist())
    assert len(found.lost[0])
