"""Bounds on the rest of a text at every node of random walks, against breadth-first searches of the byte machine over tokens."""

from __future__ import annotations

import random

import numpy as np
import pytest
from oracles.recursive_grammars import recursive_grammar, vocabulary_for
from oracles.recursive_schemas import recursive_schema
from oracles.shortest_texts import ShortestTexts

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.compose import compose_machine
from fsa_compile.errors import ConstraintError, GrammarError, UnsatisfiableError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.json_schema import SchemaOptions, schema_machine
from fsa_compile.vocabulary import Vocabulary

PARTS = [
    b'{"', b'":', b"},", b"}}", b"}]", b"]}", b',"', b'"a"', b'"b":', b'[{"', b'{"a":0', b"]]", b"1,", b'":{"a', b"null", b"true", b"[[",
    b"0}", b"1]",
]  # fmt: skip
"""Longer tokens of JSON that cross the borders of frames."""


def most_bound(c: CompiledConstraint, rest: int) -> int:
    """The largest bound that a text with a rest of so many tokens can have: what docs/limits.md proves."""
    node = c.distance.astype(np.int64) + c.level_slope[:, 2] * -(-c.level_slope[:, 0] // c.level_slope[:, 1])
    if len(c.wanted):
        node = np.maximum(node, c.wanted[:, 1])
    cell = c.symbol_cost.astype(np.int64) + c.symbol_slope[:, 2] * -(-c.symbol_slope[:, 0] // c.symbol_slope[:, 1])
    return int(node[1:].max() + cell.max(initial=0) * c.max_pops * (rest + 1))


class Checks:
    """Random walks of one constraint beside its machine.

    Attributes:
      nodes: nodes where the bound was compared; loose: how many of these had a shorter rest than the bound.
    """

    def __init__(self, machine: ByteMachine, constraint: CompiledConstraint, vocabulary: Vocabulary, rng: random.Random) -> None:
        self.machine, self.constraint, self.rng = machine, constraint, rng
        self.tokens = vocabulary.tokens
        self.texts = ShortestTexts(machine, vocabulary.tokens, 3_000)
        self.nodes = self.loose = 0

    def free(self, steps: int) -> None:
        """Without limits: masks, and the bound is never below the shortest rest."""
        walk, here = self.constraint.walk(), {self.machine.initial}
        for _ in range(steps):
            assert walk.accepting == self.machine.may_end(here)
            allowed = walk.allowed()
            for token, data in enumerate(self.tokens):
                assert not data or bool(allowed[token]) == bool(self.machine.run(data, here)), (walk.num_tokens, data)
            self._bound(walk, here)
            some = [token for token in allowed.nonzero()[0].tolist() if self.tokens[token]]
            if not some:
                break
            token = self.rng.choice(some)
            walk.advance(token)
            here = self.machine.run(self.tokens[token], here)

    def _bound(self, walk: HostWalk, here: object) -> None:
        rest = self.texts.rest(here, walk.distance)
        if self.texts.decided:
            assert rest is not None, "the bound is below the shortest rest"
            self.nodes += 1
            self.loose += rest < walk.distance
            assert walk.distance <= most_bound(self.constraint, rest)

    def _check_depth(self, walk: HostWalk, depth: int) -> None:
        """What is reported may be more than what masks know of a frame with a set of keys."""
        assert self.machine.sets is not None or walk.need <= depth
        assert all(len(at.stack) <= depth for at in walk.configurations)

    def limited(self, more: int, deeper: int) -> None:
        """Within limits of tokens and cells: never stuck, both are kept, and every allowed token can be completed."""
        c, left = self.constraint, self.constraint.shortest_completion + more
        depth = c.shortest_depth + deeper
        walk, here = HostWalk(c, max_depth=depth), {self.machine.initial}
        while left:
            assert walk.distance <= left
            self._check_depth(walk, depth)
            some = [token for token in walk.allowed(left).nonzero()[0].tolist() if self.tokens[token]]
            assert some or walk.accepting
            if not some or (walk.accepting and self.rng.random() < 0.2):
                break
            for token in some:
                after = walk.copy()
                after.advance(token, left)
                assert after.distance <= left - 1
                self._check_depth(after, depth)
            token = self.rng.choice(some)
            walk.advance(token, left)
            here = self.machine.run(self.tokens[token], here)
            left -= 1
            self._bound(walk, here)
        assert walk.accepting
        assert self.machine.may_end(here)


def checked(machine: ByteMachine, constraint: CompiledConstraint, vocabulary: Vocabulary, rng: random.Random) -> Checks:
    """Walks with and without limits."""
    checks = Checks(machine, constraint, vocabulary, rng)
    checks.free(8)
    if constraint.has_bounds:
        for more in (0, 0, 0, 1, 1, 2, 5, 9, 20):
            checks.limited(more, rng.choice([0, 1, 4]))
    return checks


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
def test_recursive_grammars(tally):
    for rng in tally.cases(36):
        text = recursive_grammar(rng)
        try:
            machine = machine_of(parse_lark(text, mode=rng.choice(["characters", "longest"])))
        except (GrammarError, UnsatisfiableError):
            continue
        vocabulary = vocabulary_for(rng, merges=rng.choice([0, 4, 12, 30]))
        checks = checked(machine, compose_machine(machine, vocabulary, source=text), vocabulary, rng)
        tally.update(made=1, checks=checks.nodes, loose=checks.loose)
    assert tally["checks"] > 300
    assert tally["loose"] < tally["checks"] / 30


@pytest.mark.exhaustive
def test_recursive_schemas(tally):
    for rng in tally.cases(15):
        schema = recursive_schema(rng)
        options = SchemaOptions(key_order=rng.choice(["declared", "any"]), whitespace=rng.choice(["compact", "optional"]))
        longer = rng.sample(PARTS, rng.choice([0, 5, 12]))
        vocabulary = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256)), *longer], stop_ids=[0])
        try:
            machine = schema_machine(schema, options=options)
            constraint = compose_machine(machine, vocabulary, source="", flat_states=rng.choice([0, 500]))
        except UnsatisfiableError:
            continue
        except ConstraintError as error:
            if "no bound was found" not in str(error):
                raise
            tally["unbounded"] += 1
            continue
        checks = checked(machine, constraint, vocabulary, rng)
        tally.update(made=1, checks=checks.nodes, loose=checks.loose)
    assert tally["checks"] > 200
    assert tally["loose"] < tally["checks"] / 2
    assert tally["unbounded"] <= tally["checks"] / 500
