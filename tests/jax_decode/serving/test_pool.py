"""Constraints that come and go: every row follows its own as the host walk does, and nothing is compiled or left behind."""

from __future__ import annotations

import dataclasses
import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.pooled_rows import PooledRows, move, put, swap, taken_out

import fsa_compile
import jax_decode
import models
from jax_decode import PROFILES, ConstraintPool, DecodeError, PoolFullError
from jax_decode.serving.extents import Extents, Piece, Shared, entries

LIMIT = 40
PATTERNS = [
    "[a-z]{3,8}",
    "(yes|no), because [a-z ]{3,30}\\.",
    "[0-9]{4}-[0-9]{2}",
    "(ab|c)*d",
    "x",
    '[^"]{0,200}',
    "(red|dark green|blue)( and more)?",
]
SCHEMAS = [
    {"type": "array", "items": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 90}, "b": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
    {"$defs": {"n": {"type": "object", "properties": {"k": {"$ref": "#/$defs/n"}, "v": {"enum": ["p", "q"]}}, "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/n"},
    {"type": "string", "minLength": 300, "maxLength": 700},
]  # fmt: skip


@functools.cache
def _tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


@functools.cache
def _constraints():
    made = [fsa_compile.compile_regex(p, _tokenizer()) for p in PATTERNS]
    return made + [fsa_compile.compile_json_schema(s, _tokenizer()) for s in SCHEMAS]


_Batch = functools.partial(PooledRows, max_tokens=LIMIT)


@pytest.mark.parametrize("profile", ["general", "nested", "regular"])
def test_rows_follow_their_constraints_while_others_come_and_go(profile, compiled):
    rng = random.Random(3)
    pool = ConstraintPool(_tokenizer(), profile=profile, slots=8)
    fitting, refused = [], []
    for c in _constraints():
        try:
            pool.remove(pool.add(c))
            fitting.append(c)
        except DecodeError as error:
            refused.append(error)
    assert len(fitting) >= 5
    assert all(not isinstance(error, PoolFullError) and "profile" in str(error) for error in refused)
    batch = _Batch(pool, 6)
    done = ended = 0
    for step in range(120):
        if step == 8:
            compiled.clear()
        for row in range(6):
            if batch.walks[row] is None:
                if batch.slots[row] is not None:
                    pool.remove(batch.slots[row])
                    ended += 1
                c = rng.choice(fitting)
                batch.start(row, c, pool.add(c))
                done += 1
        if step == 60:
            pool.clear()
        batch.step(rng)
    assert ended > 20
    assert compiled == []
    for slot in batch.slots:
        pool.remove(slot)
    pool.clear()
    dead = bool(dict(pool.usage).get("delta")) and 64
    assert {name: used for name, (used, _) in pool.usage.items() if used and name != "delta"} == {}
    assert pool.usage.get("delta", (0, 0))[0] in (0, dead)
    assert repr(pool).startswith(f"ConstraintPool(profile {profile!r}, 0 in use, 0 kept")


@pytest.mark.parametrize("name", ["keys", "parallel", "items", "parallel x4"])
def test_profiles_of_what_no_pool_holds(name):
    with pytest.raises(DecodeError, match=f"profile '{name}'.*\n.*Give one of regular, wide, nested, general"):
        ConstraintPool(_tokenizer(), profile=name)


def test_slots_that_are_not_in_use_are_told():
    """A slot that nobody has used is a dead end; what lies in one that was removed may be written over at any time."""
    pool = ConstraintPool(_tokenizer(), profile="regular", slots=4)
    decoder, slot = models.tiny_gemma(vocab_size=_tokenizer().vocabulary.size), pool.add(_constraints()[0])
    tables = pool.tables
    for changed in (False, True):
        for wrong in (3, slot)[: 1 + changed]:
            with pytest.raises(DecodeError, match=f"slot {wrong} of the pool is not in use\n.*row 1"):
                jax_decode.generate(decoder, [[5], [6]], tables, constraint=[None, wrong], max_new_tokens=9, bos_id=False)
            with pytest.raises(DecodeError, match=f"init_state: slot {wrong} of the pool"):
                jax_decode.init_state(pool.tables, np.array([wrong]), max_tokens=9)
        if not changed:
            jax_decode.init_state(tables, np.array([-1, slot]), max_tokens=9)
            pool.remove(slot)


def test_equal_constraints_share_a_slot_and_rows_by_content():
    pool = ConstraintPool(_tokenizer(), profile="regular")
    one, again = (fsa_compile.compile_regex("[a-z]{3,8}", _tokenizer()) for _ in range(2))
    longer = fsa_compile.compile_regex("[a-z]{3,9}", _tokenizer())
    slot = pool.add(one)
    before = pool.usage
    assert pool.add(again) == slot
    assert pool.usage == before
    other = pool.add(longer)
    fresh = pool.usage["rows"][0] - before["rows"][0]
    assert fresh < longer.num_rows
    assert len(pool) == 2
    pool.remove(slot)
    assert len(pool) == 2
    pool.remove(slot)
    assert len(pool) == 1
    with pytest.raises(DecodeError, match=f"slot {slot} is not in use"):
        pool.remove(slot)
    assert pool.add(one) == slot  # it was kept
    pool.remove(slot)
    pool.clear()
    pool.remove(other)
    pool.clear()
    assert pool.usage["rows"][0] == 0


def test_a_full_pool_names_what_is_missing_and_grows():
    pool = ConstraintPool(_tokenizer(), profile="regular", slots=32)
    made = [fsa_compile.compile_regex(f"x{i}[a-z]{{{i},{i + 20}}}", _tokenizer()) for i in range(1, 14)]
    slots = list[int]()

    def fill() -> None:
        slots.extend(map(pool.add, made))

    with pytest.raises(PoolFullError, match=r"the pool of profile 'regular' is full: \w+: [\d,]+ needed, [\d,]+ free") as caught:
        fill()
    assert set(caught.value.missing) <= set(pool.usage)
    assert all(needed > free for needed, free in caught.value.missing.values())
    batch = _Batch(pool, len(slots))
    for row, slot in enumerate(slots):
        batch.start(row, made[row], slot)
    rng = random.Random(0)
    batch.step(rng)
    late = pool.add(made[len(slots)], grow=True)
    assert str(pool.profile) == str(pool.tables.profile) == "regular x4"
    batch.step(rng)  # rows go on in the larger tables
    batch.start(0, made[len(slots)], late)
    batch.step(rng)
    pool.remove(late)
    pool.remove(slots[0])
    assert pool.add(made[len(slots)]) == late
    again = ConstraintPool(_tokenizer(), profile="regular x64")
    with pytest.raises(PoolFullError, match="as large as any"):
        again.grow()


def test_a_pool_grows_by_what_is_missing():
    """Slots alone where only these are; nothing where no scale has the room."""
    pool = ConstraintPool(_tokenizer(), profile="regular", slots=2)
    made = _constraints()[:5]
    slots = [pool.add(c, grow=True) for c in made]
    assert (len(set(slots)), pool.num_slots, str(pool.profile)) == (5, 8, "regular")
    assert int(pool.tables.num_constraints) == 8
    batch, rng = _Batch(pool, 5), random.Random(2)
    for row, (c, slot) in enumerate(zip(made, slots)):
        batch.start(row, c, slot)
    for _ in range(2):
        batch.step(rng)
    pool.grow()
    assert (pool.num_slots, str(pool.profile)) == (32, "regular x4")
    batch.step(rng)
    tight = dataclasses.replace(PROFILES["regular"], room=(("nodes", 4), *PROFILES["regular"].room[1:]))
    small = ConstraintPool(_tokenizer(), profile=tight)
    huge = fsa_compile.compile_regex("".join(rng.choices("abcdefg", k=900)), _tokenizer())
    with pytest.raises(PoolFullError, match=r"is too small for this constraint: nodes: [\d,]+ needed, 2 in all\n.*\n  Call grow"):
        small.add(huge)
    with pytest.raises(PoolFullError, match=r"nodes: [\d,]+ needed, 254 in all\n.*\n  Compile a smaller") as caught:
        small.add(huge, grow=True)
    assert caught.value.missing
    assert small.profile.scale == 1


def test_the_constraint_used_longest_ago_makes_room():
    pool = ConstraintPool(_tokenizer(), profile="general", slots=4)
    a, b, c, d, e = _constraints()[:5]
    slots = [pool.add(x) for x in (a, b, c, d)]
    for slot in slots[1:3]:
        pool.remove(slot)
    assert pool.add(b) == slots[1]  # used again: now c's turn is first
    pool.remove(slots[1])
    assert pool.add(e) == slots[2]
    assert pool.add(b) == slots[1]
    with pytest.raises(PoolFullError, match="slots: 1 needed, 0 free"):
        pool.add(c)


def test_what_a_pool_cannot_hold_is_refused_with_the_way_out():
    pool = ConstraintPool(_tokenizer(), profile="regular")
    with pytest.raises(DecodeError, match="does not fit the pool's profile 'regular'"):
        pool.add(_constraints()[7 + 3])
    with pytest.raises(DecodeError, match="not a set of items"):
        pool.add(fsa_compile.compile_items(["one", "two"], _tokenizer()))
    with pytest.raises(DecodeError, match="not a str"):
        pool.add("[a-z]")
    other = fsa_compile.Vocabulary.from_tokens([b"a", b"b", b""], stop_ids=[2])
    with pytest.raises(DecodeError, match="another vocabulary"):
        pool.add(fsa_compile.compile_regex("a", other))
    with pytest.raises(DecodeError, match="a pool is of one vocabulary"):
        ConstraintPool("general")
    for slots in (0, -1, None, "4", 1.5, True, 2**33):
        with pytest.raises(DecodeError, match=r"slots is .*\n  Give how many"):
            ConstraintPool(_tokenizer(), slots=slots)
    with pytest.raises(DecodeError, match="the sharding is a str"):
        ConstraintPool(_tokenizer(), sharding="cpu")


def test_rows_are_set_aside_moved_swapped_and_forked():
    rng = random.Random(1)
    pool = ConstraintPool(_tokenizer(), profile="general")
    batch = _Batch(pool, 5)
    chosen = [_constraints()[i] for i in (1, 8, 9, 10)]
    for row, c in enumerate(chosen):
        batch.start(row, c, pool.add(c))
    for _ in range(3):
        batch.step(rng)
    aside, walk = taken_out(batch.state, np.array([1])), batch.walks[1]
    batch.start(1, chosen[0], pool.add(chosen[0]))
    batch.state = swap(batch.state, np.int32(0), np.int32(3))
    batch.walks[0], batch.walks[3] = batch.walks[3], batch.walks[0]
    batch.state = move(batch.state, np.int32(2), np.int32(4))
    batch.walks[4], batch.slots[4] = batch.walks[2] and batch.walks[2].copy(), batch.slots[2]
    for _ in range(2):
        batch.step(rng)
    batch.state = put(batch.state, np.int32(2), aside)
    batch.walks[2] = walk
    for _ in range(3):
        batch.step(rng)
    with pytest.raises(DecodeError, match="put_row: cell has columns"):
        jax_decode.put_row(batch.state, 0, jax_decode.init_state(pool.tables, jnp.array([0]), max_tokens=7))


@pytest.fixture
def lenient():
    """The package's models rely on promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_streams_go_on_while_constraints_enter_and_leave(lenient):
    pool, decoder = ConstraintPool(_tokenizer(), profile="general", slots=64), models.load_small()
    schema, other = _constraints()[8], _constraints()[0]
    together = jax_decode.to_device([schema, other], profile=pool.profile)
    slot = pool.add(schema)
    asked = {"tokenizer": _tokenizer(), "constraint": slot, "max_new_tokens": 24, "key": jax.random.key(2)}
    stream = jax_decode.stream(decoder, "A person: ", pool, sampler=jax_decode.Categorical(1.0), chunk=4, **asked)
    for i, _ in enumerate(stream):
        pool.remove(pool.add(_constraints()[i % 7]))
        if i % 2:
            pool.clear()
    alone = jax_decode.generate(decoder, "A person: ", together, **asked | {"constraint": 0}, sampler=jax_decode.Categorical(1.0))
    assert stream.result.text() == alone.text(_tokenizer())


def test_extents_hand_out_every_entry_once():
    rng = random.Random(5)
    room, held = Extents(200, 3), []
    for _ in range(2000):
        if held and rng.random() < 0.5:
            room.give(held.pop(rng.randrange(len(held)))[0])
        else:
            units = np.array([rng.randrange(0, 9) for _ in range(rng.randrange(1, 9))])
            pieces = room.take(units)
            if pieces is None:
                assert int(units.sum()) > 0
                continue
            ends = np.cumsum([0, *(p.size for p in pieces)])
            assert set(ends.tolist()) <= {0, *np.cumsum(units).tolist()}  # units are whole
            held.append((pieces, units))
        used = np.concatenate([entries(p) for p, _ in held]) if held else np.zeros(0, int)
        assert len(set(used.tolist())) == len(used) == 197 - room.free
        assert not len(used) or (used.min() >= 3 and used.max() < 200)
    for pieces, _ in held:
        room.give(pieces)
    assert room.take(np.array([197])) == [Piece(3, 197)]


def test_shared_entries_are_counted():
    shared = Shared(4, [b"", b"all"])
    assert shared.take([b"a", b"", b"a"]) == ([2, 0, 2], [0])
    assert shared.take([b"b", b"c"]) is None
    assert shared.take([b"b", b"a"]) == ([3, 2], [0])
    shared.give([2, 0, 2])
    assert shared.free == 0
    shared.give([3, 2])
    assert shared.free == 2
