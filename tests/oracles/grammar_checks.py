"""Two-sided checks of a compiled grammar at random positions: what the mask says of a token, against two references.

The references are the byte machine, run on the token's bytes with its stacks written out, and the recogniser that reads the
grammar itself. A prefix that no text completes must not be allowed (a false accept), one that a text completes must be (a false
reject). Where the recogniser alone cannot tell, it must show the completed text; what it cannot show is counted as undecided.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from oracles.earley import Prefix, Recogniser
from oracles.stack_sets import Configurations, StackSets, random_tokens

from fsa_compile import library
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.stored_machines import stored_machine
from fsa_compile.composition.compose import compose_machine
from fsa_compile.grammar.gbnf_syntax import parse_gbnf
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import Grammar
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary import Vocabulary

BRACKETS = b"()[]{}<>\"',:;= \n"
STYLES = ((BRACKETS, 0.3), (b"([{<", 0.8), (b"([{<\"',", 0.5))
"""Which bytes random texts favour, and how much: any mix, deep nesting, and between."""
_BOUNDARY = set(b"()[]{}<>\"',:;=+-*/.\\&|!?% \t\r\n_0")


@dataclasses.dataclass
class Tally:
    """What was counted: positions, checks, how many of them found the token allowed, what was wrong, what stayed undecided."""

    positions: int = 0
    checks: int = 0
    allowed: int = 0
    dropped: int = 0
    wrong: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    undecided: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Adds the counts of another one."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class TokenSampler:
    """Draws tokens: equally many at random, with some byte of a lexical boundary, with such bytes only, and of the allowed ones."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.ids: dict[bytes, list[int]] = {}
        for token, data in enumerate(vocabulary.tokens):
            if data:
                self.ids.setdefault(data, []).append(token)
        text = [t for t, data in enumerate(vocabulary.tokens) if data]
        self.every = np.array(text)
        special = [any(b in _BOUNDARY for b in vocabulary.tokens[t]) or vocabulary.tokens[t][-1] >= 0x80 for t in text]
        self._boundary = self.every[np.array(special)]
        self._closing = self.every[[len(vocabulary.tokens[t]) > 1 and _BOUNDARY.issuperset(vocabulary.tokens[t]) for t in text]]

    def draw(self, mask: np.ndarray, rng: random.Random, count: int) -> list[int]:
        """Ids of tokens that are text."""
        allowed = self.every[mask[self.every]]
        pools = [p for p in (self.every, self._boundary, self._closing, allowed) if len(p)]
        return [int(p[rng.randrange(len(p))]) for p in pools for _ in range(count // len(pools))]


def walk_along(constraint: CompiledConstraint, tokens: list[int]) -> HostWalk | int:
    """The walk after some tokens, or the place of the first one that was refused."""
    walk = constraint.walk()
    for place, token in enumerate(tokens):
        try:
            walk.advance(token)
        except ValueError:
            return place
    return walk


def positions(
    constraint: CompiledConstraint, texts: Iterator[bytes], sampler: TokenSampler, rng: random.Random, tally: Tally
) -> Iterator[tuple[bytes, HostWalk]]:
    """Random positions inside viable texts, reached by random spellings."""
    for text in texts:
        cut = text[: rng.randint(0, len(text))] if rng.random() < 0.5 else text
        tokens = random_tokens(cut, sampler.ids, rng)
        if tokens is None:
            continue
        walk = walk_along(constraint, tokens)
        if isinstance(walk, int):
            lost = HostWalk(constraint)
            for token in tokens[:walk]:
                lost.advance(token)
            if not lost.dropped:
                tally.wrong.append({"kind": "prefix refused", "text": repr(cut), "tokens": tokens[: walk + 1]})
            continue
        tally.positions += 1
        tally.dropped += walk.dropped
        yield cut, walk


def check_machine(
    constraint: CompiledConstraint, sets: StackSets, sampler: TokenSampler, rng: random.Random,
    *, prefixes: int = 0, tokens: int, whole: int = 0, texts: Iterator[bytes] | None = None,
) -> Tally:
    """Masks against the byte machine: inside `texts`, or so many random ones, of some tokens, at the first `whole` of all tokens."""
    tally, vocabulary = Tally(), sampler.vocabulary
    if texts is None:
        texts = (sets.random_text(rng, rng.randint(0, 60), *rng.choice(STYLES)) for _ in range(prefixes))
    for text, walk in positions(constraint, texts, sampler, rng, tally):
        here = sets.run(sets.start, text)
        mask = walk.allowed()
        drawn = sampler.draw(mask, rng, tokens) if tally.positions > whole else sampler.every.tolist()
        reached = sets.run_tokens(here, [vocabulary.tokens[t] for t in drawn])
        for token, after in zip(drawn, reached):
            _compare(tally, text, vocabulary.tokens[token], bool(mask[token]), bool(after), walk.dropped)
        _compare(tally, text, b"<end>", bool(mask[list(vocabulary.stop_ids)].all()), sets.accepting(here), walk.dropped)
    return tally


def _compare(tally: Tally, text: bytes, token: bytes, allowed: bool, right: bool, dropped: bool) -> None:
    tally.checks += 1
    tally.allowed += allowed
    if allowed != right and not (dropped and right):
        kind = "false accept" if allowed else "false reject"
        tally.wrong.append({"kind": kind, "text": repr(text), "token": repr(token)})


def check_recogniser(
    constraint: CompiledConstraint, recogniser: Recogniser, texts: Iterator[bytes], sampler: TokenSampler, rng: random.Random,
    *, tokens: int, shown: int,
) -> Tally:
    """Masks against the recogniser; of the allowed tokens at every position, so many are completed to a text that it accepts."""
    tally, vocabulary = Tally(), sampler.vocabulary
    for text, walk in positions(constraint, texts, sampler, rng, tally):
        prefix = recogniser.start.read(text)
        if prefix is None:
            tally.wrong.append({"kind": "false accept", "text": repr(text), "token": ""})
            continue
        mask = walk.allowed()
        drawn = sampler.draw(mask, rng, tokens)
        left = shown
        for token in drawn:
            data = vocabulary.tokens[token]
            after = prefix.read(data)
            if mask[token] and after is not None and left:
                left -= 1
                _show(tally, constraint, walk, token, prefix, data, vocabulary)
            if mask[token] or after is None or walk.dropped:
                _compare(tally, text, data, bool(mask[token]), after is not None, walk.dropped)
            else:
                _refused(tally, text, data, after)
        _compare(tally, text, b"<end>", bool(mask[list(vocabulary.stop_ids)].all()), prefix.accepting, walk.dropped)
    return tally


def _refused(tally: Tally, text: bytes, data: bytes, after: Prefix) -> None:
    """A refused token after which the recogniser sees a way on: it is wrong if there is a text at its end."""
    tally.checks += 1
    rest = after.completion()
    note = {"kind": "false reject", "text": repr(text), "token": repr(data), "rest": repr(rest)}
    (tally.undecided if rest is None else tally.wrong).append(note)


def _show(
    tally: Tally, constraint: CompiledConstraint, walk: HostWalk, token: int, prefix: Prefix, data: bytes, vocabulary: Vocabulary
) -> None:
    """Completes the text by the cheapest tokens; the recogniser must accept all of it."""
    rest = bytearray(data)
    at = walk.num_tokens
    walk.advance(token)
    limit = walk.distance
    while limit and walk.num_tokens - at < 1000:
        best = next((t for t in np.flatnonzero(walk.allowed(limit)).tolist() if t not in vocabulary.stop_ids), None)
        if best is None:
            break
        walk.advance(best, remaining=limit)
        rest += vocabulary.tokens[best]
        limit = min(limit - 1, walk.distance)
    end = prefix.read(bytes(rest))
    if not walk.accepting or end is None or not end.accepting:
        tally.wrong.append({"kind": "dead end or false accept", "text": "", "token": repr(data), "rest": repr(bytes(rest))})
    walk.rewind(walk.num_tokens - at)


def check_bytes(sets: StackSets, recogniser: Recogniser, texts: Iterable[bytes]) -> Tally:
    """The byte machine against the recogniser: after every prefix of some texts every byte, and whether the text may end."""
    tally = Tally()
    seen: set[bytes] = set()
    for text in texts:
        here, prefix = sets.start, recogniser.start
        for end in range(len(text) + 1):
            if text[:end] not in seen:
                seen.add(text[:end])
                tally.positions += 1
                _check_position(tally, text[:end], sets, here, prefix)
            if end < len(text):
                after = prefix.read(text[end : end + 1])
                here = sets.run(here, text[end : end + 1])
                if after is None or not here:
                    break
                prefix = after
    return tally


def _check_position(tally: Tally, text: bytes, sets: StackSets, here: Configurations, prefix: Prefix) -> None:
    every = sets.bytes_allowed(here)
    for byte in range(256):
        after, allowed = prefix.read([byte]), bool(every[byte])
        if allowed or after is None:
            _compare(tally, text, bytes([byte]), allowed, after is not None, False)
        else:
            _refused(tally, text, bytes([byte]), after)
    _compare(tally, text, b"<end>", sets.accepting(here), prefix.accepting, False)


def recogniser_texts(recogniser: Recogniser, rng: random.Random, count: int, length: int, favour: bytes = BRACKETS) -> Iterator[bytes]:
    """Random texts of the grammar, drawn from the recogniser alone: so many characters at random, then the shortest way to the end."""
    sets = recogniser.compiled.sets
    atoms = [(a, chr(sets.example(a)).encode()) for a in range(sets.num_atoms) if a != sets.surrogates]
    for _ in range(count):
        prefix, text = recogniser.start, b""
        for _ in range(rng.randint(0, length)):
            rng.shuffle(atoms)
            order = sorted(atoms, key=lambda x: x[1] not in favour) if rng.random() < 0.3 else atoms
            found = next(((c, p) for _, c in order if (p := prefix.read(c))), None)
            if found is None:
                break
            text, prefix = text + found[0], found[1]
        rest = prefix.completion()
        yield text + (rest or b"")


def grammar_of(name: str) -> Grammar:
    """A grammar of the library as its front end reads it."""
    chosen, text = library.options(name), library.grammar_text(name)
    return parse_gbnf(text) if chosen["syntax"] == "gbnf" else parse_lark(text, mode=chosen["mode"])


def library_machine(name: str) -> ByteMachine:
    """The machine of a grammar of the library, not that of the package; of a file if this grammar was read by this code before."""
    grammar, limits = grammar_of(name), CompileLimits()
    return stored_machine(grammar, lambda: machine_of(grammar), stacks=1, specials={}, limits=limits)


@dataclasses.dataclass
class Case:
    """A grammar of the library with its machine, its artifact over one vocabulary, and the two references."""

    name: str
    constraint: CompiledConstraint
    sets: StackSets
    recogniser: Recogniser

    @classmethod
    def of(cls, name: str, vocabulary: Vocabulary) -> Case:
        """Compiles a grammar of the library step by step, so that the machine between the steps can be had."""
        stacks, grammar = library.options(name).get("stacks", 1), grammar_of(name)
        machine = machine_of(grammar, stacks=stacks)
        several = {"stacks": stacks} if stacks > 1 else {}
        constraint = compose_machine(machine, vocabulary, source=name, **several)
        return cls(name, constraint, StackSets(machine), Recogniser(grammar))

    def texts(self, rng: random.Random, count: int, length: int) -> Iterator[bytes]:
        """Random texts and prefixes, half from the recogniser, half from the machine."""
        yield from recogniser_texts(self.recogniser, rng, count // 2, length // 2)
        yield from (self.sets.random_text(rng, rng.randint(0, length), *rng.choice(STYLES)) for _ in range(count - count // 2))
