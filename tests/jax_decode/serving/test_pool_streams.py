"""Everything that may go on over one small pool at the same time: rows of a loop, which are forked, moved and rewound, streams, decoding
with drafts, an engine whose requests are cancelled, and constraints that come and go.

Rows of a loop are compared with host walks, mask by mask; all other texts with `generate` over the constraint alone.
"""

from __future__ import annotations

import dataclasses
import functools
import random

import jax
from oracles.block_decoder import block_toy, disturbed
from oracles.pooled_rows import TurnedRows

import fsa_compile
import jax_decode
from fsa_compile import Vocabulary
from jax_decode import PROFILES, Categorical, ConstraintPool, Engine, ModelDraft, PoolFullError, PromptLookup, Status, stream

TOKENS = [
    b"", b"{", b"}", b"[", b"]", b'"', b",", b":", b"a", b"b", b"c", b"ab", b"bc", b"1", b"2", b"0", b"12", b"true", b'"a"', b'{"a"', b'":', b"null",
    b'"b', b"(", b")", b"((", b"))", b"aa", b"aaa", b"e", b"f", b"l", b"n", b"r", b"s", b"t", b"u", b"\n", b" ", b"\n ", b"  ", b"a\n",
    *(bytes([one, other]) for one in b"abc12x" for other in b"xyzabc12,"), b"", b"",
]  # fmt: skip
VOCABULARY = Vocabulary.from_tokens(TOKENS, stop_ids=[0, len(TOKENS) - 2])
SIZE, LIMIT, ROWS, DEPTH = len(TOKENS), 16, 4, 64
TREE = """
start: (NAME _NL [_INDENT tree+ _DEDENT])+
tree: NAME _NL [_INDENT tree+ _DEDENT]
NAME: /[a-c]+/
_NL: /(\\n *)+/
%declare _INDENT _DEDENT
%ignore " "
%indent 1 3
"""
LEXED = 'start: (NAME | NUMBER | "ab" "(" start ")")+\nNAME: /[a-c]+/\nNUMBER: /[0-2]+/\n%ignore " "'
GRAMMARS = [
    ('start: "(" start ")" | "a"', {}),
    ('start: ("(" start ")")* | "a" start "b"', {}),
    ('start: "[" (start ("," start)*)? "]" | "1"', {}),
    (LEXED, {"mode": "longest"}),
    (TREE, {"mode": "longest"}),
]
STATICS = {"max_groups": 16, "max_levels": 16, "max_candidates": 64, "search_depth": 3, "max_pops": 6, "max_push": 4}
ROOM = {
    "nodes": 640, "groups": 512, "arcs": 2048, "levels": 512, "rows": 64, "delta": 768, "pushes": 64, "symbols": 64, "increments": 3,
}  # fmt: skip
PROFILE = dataclasses.replace(
    PROFILES["general"], room=tuple(ROOM.items()), statics=tuple((dict(PROFILES["general"].statics) | STATICS).items())
)
DECODER = block_toy(SIZE, 3, scale=1.0)
SAMPLER = Categorical(1.3)
MODES = [
    {},
    {"draft": ModelDraft(disturbed(DECODER, 0.5), 3, same_noise=True), "forced": 4},
    {"draft": PromptLookup(4, ngram=2)},
]
DRAFTED = {"draft": ModelDraft(disturbed(DECODER, 0.5), 3)}
"""Drafts whose texts have the distribution, not the tokens, of decoding without them."""


@functools.cache
def _constraints():
    """Of every kind that a pool takes."""
    patterns = ["[abc]{2,5}", "(ab|c)*1", "a", "(aa|b){1,9}[12]?", "(true|null)(12)*", "[^c]{1,9}c", "(a|1){2,120}0"]
    schemas = [
        {"type": "array", "items": {"type": "array", "items": {"const": 1}}},
        {"type": "object", "properties": {"a": {"enum": ["a", 1, None]}}, "additionalProperties": False},
        {"type": "string", "minLength": 2, "maxLength": 90},
        {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"], "additionalProperties": {"type": "null"}},
        {"type": "array", "items": {"type": "boolean"}, "maxItems": 70},
        {"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 300}, "minItems": 1},
        {"type": "array", "items": {"type": "array", "items": {"enum": [1, 2, 12]}, "maxItems": 80}, "minItems": 1, "maxItems": 40},
    ]
    made = [fsa_compile.compile_regex(p, VOCABULARY) for p in patterns]
    made += [fsa_compile.compile_json_schema(s, VOCABULARY) for s in schemas]
    made += [fsa_compile.compile_grammar(text, VOCABULARY, **given) for text, given in GRAMMARS]
    made += [dataclasses.replace(made[2 * i], start=1 + made[2 * i].num_nodes // 2) for i in (0, 1)]
    return [c for c in made if c.shortest_completion <= LIMIT]


@functools.cache
def _another_pool():
    """As large as those of the cases, so that programs are the same."""
    return ConstraintPool(VOCABULARY, profile=PROFILE, slots=16)


def alone(constraint, prompt, key, **mode):
    """The tokens that `generate` gives for the constraint alone in a pool."""
    pool = _another_pool()
    slot = pool.add(constraint)
    out = generated(pool, slot, prompt, key, **mode)
    pool.remove(slot)
    pool.clear()
    return out.tokens[0].tolist()


def generated(pool, slot, prompt, key, **mode):
    given = {"max_new_tokens": LIMIT, "sampler": SAMPLER, "max_depth": DEPTH, "raw_logprobs": False, "key": key[None]}
    return jax_decode.generate(DECODER, prompt, pool.tables, constraint=slot, **given, **mode)


def check_inside(constraint, out, row=0):
    """Every token of a row is one that the host walk allows, and the text is complete."""
    walk = constraint.walk(max_depth=DEPTH)
    for i, token in enumerate(out.tokens[row].tolist()):
        assert walk.allowed(LIMIT - i)[token], (constraint.source, out.tokens[row], i)
        walk.advance(token)
    assert walk.accepting
    assert out.status[row] is Status.ACCEPTED


@dataclasses.dataclass
class _Live:
    """A stream of two prompts: their constraints, slots, prompts and the seed."""

    flow: object
    constraints: list
    slots: list
    prompts: list
    seed: int


class _Server(TurnedRows):
    """A batch, its streams and its engine.

    Attributes:
      live: streams; asked: requests of the engine, by number.
      modes: options of `generate`.
      grows: whether the pool may, after which programs compile once more.
    """

    def __init__(self, rng: random.Random, *, modes: list, with_engine: bool, grows: bool) -> None:
        super().__init__(ConstraintPool(VOCABULARY, profile=PROFILE, slots=16), ROWS, LIMIT, rng)
        self.modes, self.grows, self.live, self.asked, self.engine = modes, grows, [], {}, None
        if with_engine:
            sizes = {"rows": 3, "max_prompt": 4, "max_new_tokens": LIMIT, "steps": 3, "together": 2, "max_depth": DEPTH}
            self.engine = Engine(DECODER, self.pool, sampler=SAMPLER, **sizes)

    def prompt(self):
        return [self.rng.randrange(1, SIZE) for _ in range(self.rng.randrange(1, 5))]

    def entered(self, constraint=None):
        """A constraint that has got a slot, and the slot; None where the pool is full."""
        constraint = constraint or self.rng.choice(_constraints())
        try:
            return constraint, self.pool.add(constraint, grow=self.grows and self.rng.random() < 0.3)
        except PoolFullError as error:
            self.counts["full"] += 1
            self.counts["full, with nothing missing"] += not error.missing
            return None

    def again(self, slot):
        assert self.pool.add(self.constraint_of[slot]) == slot

    def given_back(self, slot):
        self.pool.remove(slot)

    # Streams.

    def stream_begins(self):
        found = [self.entered() for _ in range(2)]
        if len(self.live) > 3 or None in found:
            for one in found:
                if one:
                    self.pool.remove(one[1])
            return
        constraints, slots = map(list, zip(*found))
        prompts, seed = [self.prompt(), self.prompt()], self.rng.randrange(100)
        flow = stream(
            DECODER, prompts, self.pool, tokenizer=VOCABULARY, max_new_tokens=LIMIT, constraint=slots, sampler=SAMPLER,
            key=jax.random.key(seed), chunk=3, max_depth=DEPTH, raw_logprobs=False,
        )  # fmt: skip
        self.live.append(_Live(flow, constraints, slots, prompts, seed))

    def stream_goes_on(self):
        if not self.live:
            return
        one = self.rng.choice(self.live)
        for _ in range(self.rng.randrange(1, 4)):
            if next(one.flow, None) is None:
                self.stream_ended(one)
                return

    def stream_ended(self, one):
        self.live.remove(one)
        out, key = one.flow.result, jax.random.key(one.seed)
        for row, (constraint, prompt) in enumerate(zip(one.constraints, one.prompts)):
            due = alone(constraint, prompt, jax.random.fold_in(key, row))
            assert out.tokens[row].tolist() == due, constraint.source
            check_inside(constraint, out, row)
            self.counts["streamed"] += 1
        for slot in one.slots:
            self.pool.remove(slot)

    def stream_is_left(self):
        """Cancelled: what it has written so far is the beginning of its text."""
        if self.live and self.rng.random() < 0.3:
            one = self.live.pop(self.rng.randrange(len(self.live)))
            out, key = one.flow.result, jax.random.key(one.seed)
            for row, (constraint, prompt) in enumerate(zip(one.constraints, one.prompts)):
                due = alone(constraint, prompt, jax.random.fold_in(key, row))
                own = out.tokens[row].tolist()
                assert own == due[: len(own)]
                self.counts["left"] += 1
            for slot in one.slots:
                self.pool.remove(slot)

    # Decoding in one go, with drafts.

    def generates(self):
        found = self.entered()
        if found is None:
            return
        constraint, slot = found
        mode = self.rng.choice(self.modes)
        prompt, key = self.prompt(), jax.random.key(self.rng.randrange(100))
        out = generated(self.pool, slot, prompt, key, **mode)
        check_inside(constraint, out)
        assert out.tokens[0].tolist() == alone(constraint, prompt, key, **(mode if mode is DRAFTED else {}))
        self.counts["generated"] += 1
        self.pool.remove(slot)

    # The engine.

    def request_arrives(self):
        if self.engine is None or self.engine.pending > 5:
            return
        constraint = self.rng.choice([*_constraints(), None])
        prompt, seed, samples = self.prompt(), self.rng.randrange(100), self.rng.choice([1, 1, 2])
        number = self.engine.submit(prompt, constraint, seed=seed, samples=samples)
        self.asked[number] = (constraint, prompt, seed)

    def engine_turns(self):
        if self.engine is None:
            return
        try:
            done = self.engine.turn()
        except PoolFullError:
            self.counts["engine waits"] += 1
            return
        self.finished(done)

    def finished(self, done):
        for one in done:
            constraint, prompt, seed = self.asked[one.request]
            if constraint is None:
                continue
            due = alone(constraint, prompt, jax.random.fold_in(jax.random.key(seed), one.sample))
            if one.status is Status.STOPPED:
                assert one.tokens == due[: len(one.tokens)]
                self.counts["cancelled"] += 1
            else:
                assert one.tokens == due
                assert one.status is Status.ACCEPTED
                self.counts["served"] += 1

    def request_is_cancelled(self):
        if self.engine is not None and self.asked and self.rng.random() < 0.4:
            self.engine.cancel(self.rng.choice(list(self.asked)[-4:]))

    # The pool.

    def constraint_comes_and_goes(self):
        if found := self.entered():
            self.pool.remove(found[1])

    def pool_is_cleared(self):
        if self.rng.random() < 0.2:
            self.pool.clear()

    def ends(self):
        """Everything is taken back, and nothing is left."""
        while self.live:
            for _ in self.live[0].flow:
                pass
            self.stream_ended(self.live[0])
        self.rows_leave()
        if self.engine is not None:
            self.finished(self.engine.run())
        self.pool.clear()
        assert len(self.pool) == 0
        assert all(used == 0 for name, (used, _) in self.pool.usage.items() if name != "delta")


HAPPENINGS = [
    *TurnedRows.HAPPENINGS, _Server.stream_begins, _Server.stream_goes_on, _Server.stream_goes_on, _Server.stream_is_left, _Server.generates,
    _Server.request_arrives, _Server.engine_turns, _Server.engine_turns, _Server.request_is_cancelled, _Server.constraint_comes_and_goes,
    _Server.pool_is_cleared,
]  # fmt: skip


def warmed(modes):
    """Runs every program that a case may need, before its compilations are counted."""
    server = _Server(random.Random(0), modes=modes, with_engine=True, grows=False)
    constraint = _constraints()[0]
    slot = server.pool.add(constraint)
    for mode in modes:
        generated(server.pool, slot, [1], jax.random.key(0), **mode)
    for row in range(ROWS):
        server.start(row, constraint, server.pool.add(constraint))
    server.pool.remove(slot)
    for happening in HAPPENINGS:
        happening(server)
    server.rows_aside()
    server.rows_back()
    server.ends()


def test_nothing_disturbs_anything(tally, compiled, exhaustive):
    modes = [*MODES, DRAFTED] if exhaustive else MODES[:2]
    warmed(modes)
    for rng in tally.cases(1, least=400):
        compiled.clear()
        server = _Server(rng, modes=modes, with_engine=rng.random() < 0.7, grows=exhaustive and rng.random() < 0.05)
        for _ in range(400 if exhaustive else 150):
            rng.choice(HAPPENINGS)(server)
        server.ends()
        assert not server.counts["full, with nothing missing"]
        assert compiled == [] or server.grows
        tally.update(server.counts)
        tally["checks"] += sum(server.counts.values())
        tally["made"] += 1
    assert min(tally[name] for name in ("masks", "streamed", "generated", "served", "rewound")) > 0
