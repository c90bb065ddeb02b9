"""Counters, sets of keys, several stacks, filters and text before a constraint, together and under true recursion: by definition."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from oracles.combined_machines import UNBOUNDED_DEPTH, Combined, Kept, everything, random_filter
from oracles.recursive_grammars import ALPHABET, recursive_grammar, vocabulary_for
from oracles.recursive_schemas import recursive_schema

from fsa_compile import CompileLimits, Vocabulary, compile_grammar, compile_json_schema
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.composition.prefix.partial_tokens import PartialTokens
from fsa_compile.composition.prefix.prepend import with_prefixes
from fsa_compile.errors import ConstraintError, GrammarError, LimitError, UnsatisfiableError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.json_schema import SchemaOptions, schema_machine
from fsa_compile.vocabulary.lookup import TokenLookup

PARTS = [b'{"', b'":', b"},", b"}}", b"}]", b"]}", b',"', b'"a"', b'"b":', b'[{"', b'{"a":0', b"]]", b"1,", b'":{"a', b"0}", b"1]"]
JSON_ALPHABET = b'{}[]":,0123456789abcntrulesfE.+-\\/'
LIMITS = CompileLimits(max_states=20_000)


class Run:
    """Checks of one constraint, and what they counted."""

    def __init__(self, constraint: CompiledConstraint, texts: Combined, vocabulary: Vocabulary, rng: random.Random) -> None:
        self.constraint, self.texts, self.tokens, self.rng = constraint, texts, vocabulary.tokens, rng
        self.counts: Counter[str] = Counter()

    def masks(self, steps: int, looked_at: Iterable[int]) -> None:
        """Along a random walk, a token is allowed exactly if some text goes on behind it."""
        walk, here = self.constraint.walk(), self.texts.start
        looked_at = [token for token in looked_at if self.tokens[token]]
        for _ in range(steps):
            assert walk.accepting == self.texts.may_end(here)
            allowed = walk.allowed()
            for token in looked_at:
                alive = self.texts.alive(self.texts.run(here, self.tokens[token]))
                self.counts["undecided" if alive is None else "checks"] += 1
                assert alive is None or alive == bool(allowed[token]), (walk.num_tokens, self.tokens[token], alive)
            if not (some := self._text_of(allowed.nonzero()[0])):
                break
            here = self._taken(walk, here, self.rng.choice(some), None)
            if walk.dropped:
                self.counts["dropped"] += 1
                break

    def limited(self, more: int, deeper: int) -> None:
        """Within limits a text always comes to its end, and is one."""
        c, left, here = self.constraint, self.constraint.shortest_completion + more, self.texts.start
        walk = HostWalk(c, max_depth=c.shortest_depth + deeper)
        while left:
            assert walk.distance <= left
            some = self._text_of(walk.allowed(left).nonzero()[0])
            assert some or walk.accepting
            if not some or (walk.accepting and self.rng.random() < 0.2):
                break
            here = self._taken(walk, here, self.rng.choice(some), left)
            left -= 1
        assert walk.accepting
        assert self.texts.may_end(here)
        self.counts["texts"] += 1

    def _text_of(self, tokens: Iterable[int]) -> list[int]:
        return [int(token) for token in tokens if self.tokens[token]]

    def _taken(self, walk: HostWalk, here: frozenset, token: int, left: int | None) -> frozenset:
        walk.advance(token, left)
        return self.texts.run(here, self.tokens[token])


def behind(constraint: CompiledConstraint, vocabulary: Vocabulary, prefix: bytes) -> CompiledConstraint:
    """The constraint behind a text, as healing makes it."""
    lookup = TokenLookup(vocabulary)
    return with_prefixes(PartialTokens(constraint, lookup), lookup, [prefix])[0]


def within(rng: random.Random, kept: Kept, compile_it: Callable[..., CompiledConstraint]) -> tuple[CompiledConstraint, int]:
    """The constraint within a filter, and the bound on its depth: one is given where the filter needs it."""
    if kept.made is None:
        return compile_it(), UNBOUNDED_DEPTH
    try:
        return compile_it(filters=[kept.made]), UNBOUNDED_DEPTH
    except ConstraintError as error:
        if "needs a bound on how deep" not in str(error):
            raise
    deepest = rng.randint(2, 4)
    return compile_it(filters=[kept.made], max_depth=deepest), deepest


def checked(made: CompiledConstraint, texts: Combined, vocabulary: Vocabulary, rng: random.Random, looked_at: Iterable[int]) -> Counter:
    """A walk over masks, and texts within limits."""
    run = Run(made, texts, vocabulary, rng)
    run.masks(6, looked_at)
    if made.has_bounds and not run.counts["dropped"]:
        for more in (0, 3):
            run.limited(more, rng.choice([0, 1, 4]))
    run.counts["made"] += 1
    return run.counts


def one_grammar(rng: random.Random) -> Counter:
    """A random grammar with some of all: counts, several stacks, a filter, a text before it."""
    stacks = rng.choice([1, 1, 2, 8])
    text, mode = recursive_grammar(rng, ambiguous=stacks > 1), rng.choice(["characters", "longest"])
    kept = random_filter(rng, ALPHABET) if rng.random() < 0.6 else everything()
    vocabulary = vocabulary_for(rng, merges=rng.choice([0, 4, 12, 30]))
    try:
        machine = machine_of(parse_lark(text, mode=mode), stacks=stacks)
        made, deepest = within(rng, kept, functools.partial(compile_grammar, text, vocabulary, mode=mode, stacks=stacks, limits=LIMITS))
    except (GrammarError, UnsatisfiableError):
        return Counter(none=1)
    except LimitError:
        if kept.made is None:
            raise
        return Counter(refused=1)
    prefix = bytes(rng.choices(ALPHABET, k=rng.randint(1, 4))) if rng.random() < 0.4 else b""
    if prefix:
        made = behind(made, vocabulary, prefix)
    counts = checked(made, Combined(machine, kept, ALPHABET, prefix, deepest), vocabulary, rng, range(vocabulary.size))
    return counts + Counter(filtered=kept.made is not None, prefixed=bool(prefix), stacks=made.stacks > 1, deep=deepest < UNBOUNDED_DEPTH, counters=bool(made.ladder.any()))


def one_schema(rng: random.Random) -> Counter:
    """A random recursive schema with some of all: keys in any order, counts, a filter, a text before it."""
    schema = recursive_schema(rng)
    options = SchemaOptions(key_order=rng.choice(["declared", "any"]), whitespace="compact")
    kept = random_filter(rng, b'[]{},:01ab"') if rng.random() < 0.5 else everything()
    longer = rng.sample(PARTS, rng.choice([0, 5, 12]))
    vocabulary = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256)), *longer], stop_ids=[0])
    try:
        machine = schema_machine(schema, options=options)
        made = compile_json_schema(schema, vocabulary, options=options, filters=[] if kept.made is None else [kept.made])
    except UnsatisfiableError:
        return Counter(none=1)
    except ConstraintError as error:
        if "no bound was found" not in str(error) and (kept.made is None or "needs a bound on how deep" not in str(error)):
            raise
        return Counter(refused=1)
    prefix = bytes(rng.choices(JSON_ALPHABET, k=rng.randint(1, 4))) if rng.random() < 0.4 else b""
    if prefix:
        made = behind(made, vocabulary, prefix)
    looked_at = [vocabulary.tokens.index(bytes([b])) for b in JSON_ALPHABET] + list(range(257, vocabulary.size)) + rng.sample(range(257), 8)
    counts = checked(made, Combined(machine, kept, JSON_ALPHABET, prefix), vocabulary, rng, looked_at)
    return counts + Counter(filtered=kept.made is not None, prefixed=bool(prefix), sets=made.has_sets)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
def test_grammars(tally):
    for rng in tally.cases(18, least=600):
        tally.update(one_grammar(rng))
    assert tally["checks"] > 40 * tally["undecided"]
    assert min(tally[name] for name in ("filtered", "prefixed", "stacks", "texts")) > 1
    assert tally["made"] > tally["refused"] + tally["none"]


@pytest.mark.exhaustive
def test_schemas(tally):
    for rng in tally.cases(50, least=2_000):
        tally.update(one_schema(rng))
    assert tally["checks"] > 10 * tally["undecided"]
    assert min(tally[name] for name in ("filtered", "prefixed", "sets", "texts")) > 4
    assert tally["made"] > tally["refused"] + tally["none"]
