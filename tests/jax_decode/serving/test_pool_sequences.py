"""Random sequences of what a server does to a pool and its rows, in tables so small that constraints lie in pieces and make room.

After every step the pool's books agree with what lies in it, and every row's mask is that of its host walk.
"""

from __future__ import annotations

import collections
import dataclasses
import random

import numpy as np
import pytest
from oracles.pooled_rows import PooledRows, move, put, swap, taken_out

import fsa_compile
from fsa_compile import Vocabulary
from jax_decode import PROFILES, ConstraintPool, DecodeError, PoolFullError
from jax_decode.serving.extents import entries

TOKENS = [
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"a", b"b", b"c", b"ab", b"bc", b"1", b"2", b"0", b"12", b"true", b'"a"', b'{"a"', b'":', b"null",
    b'"b', b"(", b")", b"((", b"))", b"aa", b"aaa", b"e", b"f", b"l", b"n", b"r", b"s", b"t", b"u", b"", b"",
]  # fmt: skip
VOCABULARY = Vocabulary.from_tokens(TOKENS, stop_ids=[len(TOKENS) - 1, len(TOKENS) - 2])
GRAMMARS = ['start: "(" start ")" | "a"', 'start: ("(" start ")")* | "a" start "b"', 'start: "[" (start ("," start)*)? "]" | "1"']
ROOM = {
    "regular": {"nodes": 64, "groups": 64, "arcs": 256, "levels": 64, "rows": 24},
    "general": {"nodes": 512, "groups": 256, "arcs": 1024, "levels": 256, "rows": 24, "delta": 512, "pushes": 32, "symbols": 32, "increments": 2},
}  # fmt: skip
LIMIT, ROWS = 24, 5


def _pattern(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth > 3 or kind < 0.3:
        return rng.choice(["a", "b", "c", "ab", "[abc]", "1", "12", "0", '"a"'])
    if kind < 0.5:
        return _pattern(rng, depth + 1) + _pattern(rng, depth + 1)
    if kind < 0.65:
        return f"({_pattern(rng, depth + 1)}|{_pattern(rng, depth + 1)})"
    low = rng.randrange(4)
    return f"({_pattern(rng, depth + 1)})" + rng.choice(["*", "?", "+", f"{{{low},{low + rng.randrange(1, 6)}}}"])


def _schema(rng: random.Random, depth: int = 0) -> dict:
    kind = rng.random()
    if depth > 1 or kind < 0.4:
        return rng.choice([{"type": "boolean"}, {"enum": ["a", "b", 1]}, {"type": "null"}, {"type": "string", "minLength": 9, "maxLength": 70}])
    if kind < 0.7:
        return {"type": "array", "items": _schema(rng, depth + 1), "maxItems": rng.randrange(1, 4)}
    more = rng.choice([False, _schema(rng, depth + 1)])
    return {"type": "object", "properties": {"a": _schema(rng, depth + 1)}, "additionalProperties": more}


class _Server(PooledRows):
    """A batch, and what happens to it."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.rng, self.kind = rng, kind
        profile = dataclasses.replace(PROFILES[kind], room=tuple(ROOM[kind].items()))
        super().__init__(ConstraintPool(VOCABULARY, profile=profile, slots=4), ROWS, LIMIT)
        self.aside, self.made, self.counts = [], [], collections.Counter()

    def constraint(self):
        """One that was used before, a new one, or one that begins where another goes on."""
        if self.made and self.rng.random() < 0.4:
            return self.rng.choice(self.made)
        kind = 0.0 if self.kind == "regular" else self.rng.random()
        try:
            if kind < 0.5:
                made = fsa_compile.compile_regex(_pattern(self.rng), VOCABULARY)
            elif kind < 0.8:
                made = fsa_compile.compile_json_schema(_schema(self.rng), VOCABULARY)
            else:
                made = fsa_compile.compile_grammar(self.rng.choice(GRAMMARS), VOCABULARY)
        except fsa_compile.ConstraintError:
            return self.constraint()  # these tokens cannot write it
        self.made.append(made)
        if made.is_regular and self.rng.random() < 0.2:
            self.made.append(dataclasses.replace(made, start=self.rng.randrange(1, made.num_nodes)))
        return self.made[-1]

    def enter(self, row: int) -> None:
        if self.slots[row] is not None:
            self.pool.remove(self.slots[row])
            self.slots[row] = None
        made = self.constraint()
        if made.shortest_completion > LIMIT:
            return
        try:
            slot = self.pool.add(made, grow=self.rng.random() < 0.03)
        except PoolFullError as error:
            self.counts["full, with nothing missing"] += not error.missing
            return
        except DecodeError:
            return  # of another kind
        self.counts["added"] += 1
        self.start(row, made, slot)

    def happen(self) -> None:
        """Something that servers do."""
        kind, one, other = self.rng.random(), self.rng.randrange(ROWS), self.rng.randrange(ROWS)
        free = next((i for i in range(ROWS) if self.slots[i] is None), None)
        if kind < 0.1:
            self.pool.clear()
        elif kind < 0.3:
            self.state = swap(self.state, np.int32(one), np.int32(other))
            for held in (self.walks, self.slots):
                held[one], held[other] = held[other], held[one]
        elif kind < 0.4 and free is not None and self.walks[one] is not None:
            self.state = move(self.state, np.int32(one), np.int32(free))
            self.walks[free], self.slots[free] = self.walks[one].copy(), self.pool.add(self.walks[one].constraint)
            assert self.slots[free] == self.slots[one]
        elif kind < 0.5 and self.walks[one] is not None:
            self.aside.append((taken_out(self.state, np.array([one], np.int32)), self.walks[one], self.slots[one]))
            self.walks[one] = self.slots[one] = None
        elif kind < 0.65 and self.aside and free is not None:
            kept, self.walks[free], self.slots[free] = self.aside.pop()
            self.state = put(self.state, np.int32(free), kept)
        elif kind < 0.67 and self.pool.profile.scale < 16:
            self.pool.grow()

    def check(self) -> None:
        """The pool's books: every entry has one owner or is free, and uses of bit rows are those of what lies there."""
        pool, there = self.pool, list(self.pool._resident.values())
        for name, extents in pool._extents.items():
            taken = np.concatenate([np.zeros(0, np.int32), *(entries(one.pieces[name]) for one in there)])
            assert len(np.unique(taken)) == len(taken) == pool.usage[name][1] - extents.free
        uses = collections.Counter(row for one in there for row in one.places.rows if row >= 2)
        assert uses == pool._rows._count
        assert sum(one.slots for one in there) == len(pool._slot_of) == pool.usage["slots"][0]


@pytest.mark.parametrize("kind", ROOM)
def test_any_sequence_leaves_every_row_its_own_constraint(kind, tally):
    for rng in tally.cases(2, least=500, name=kind):
        server = _Server(rng, kind)
        for _ in range(50):
            for row in range(ROWS):
                if server.walks[row] is None and rng.random() < 0.7:
                    server.enter(row)
            server.happen()
            server.check()
            server.counts["masks"] += server.step(rng)
        for slot in [*server.slots, *(slot for _, _, slot in server.aside)]:
            if slot is not None:
                server.pool.remove(slot)
        server.pool.clear()
        server.check()
        assert len(server.pool) == 0
        assert all(used == 0 for name, (used, _) in server.pool.usage.items() if name != "delta")
        assert not server.counts["full, with nothing missing"]
        tally["checks"] += server.counts["masks"]
        tally["made"] += server.counts["added"]
    assert tally["made"] >= 20
