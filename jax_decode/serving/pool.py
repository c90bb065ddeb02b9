"""`ConstraintPool`: tables on the device that constraints enter and leave one by one, in place, while rows decode."""

from __future__ import annotations

import collections
import dataclasses
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.errors import named_fields, shown
from jax_decode.errors import DecodeError, PoolFullError, checked_flag, is_whole
from jax_decode.kernels.row_layout import only_tokens, packed
from jax_decode.serving.device_writes import Tables, Written, warm, write
from jax_decode.serving.extents import Extents, Piece, Shared, entries
from jax_decode.serving.relocation import TOGETHER, Alone, Body, Places, alone, body_of, content_key, placed, record_of
from jax_decode.tables.concatenation import bucket, placeholder, static_sizes
from jax_decode.tables.profiles import GROWTH, MOST_SCALES, PROFILES, Profile, named
from jax_decode.tables.remarks import Remarks
from jax_decode.tables.tables import SLACK, ConstraintTables, to_device

_KEPT = 64 << 20
"""Bytes of arrays of constraints that are kept on the host, for the time when they are added again."""
_LARGEST = GROWTH ** (MOST_SCALES - 1)
"""The scale of the largest tables of every profile."""
_MOST_SLOTS = 1 << 20
"""Most constraints that may be there at once."""
_OF_ROWS = ("rows", "only")
_STEP = 5
"""Column of a symbol's slope that numbers are divided by."""
_FIXED = {"nodes": 2, "groups": 1, "arcs": 0, "levels": 1, "delta": 1, "pushes": 1, "symbols": 1, "rows": 2}
"""First entries of each table that belong to no constraint."""


@dataclasses.dataclass
class _Resident:
    """A constraint in the tables: its places, the pieces of every table, and how many slots it has."""

    places: Places
    pieces: Mapping[str, list[Piece]]
    slots: int = 0


@named_fields
class ConstraintPool:
    """Constraints of one vocabulary on the device, which come and go while rows decode.

    The tables have the sizes of one profile from the beginning, so that no constraint compiles anything, and every change is
    written into them in place. Bit rows are stored once for all constraints that have them. A constraint that nobody uses any
    more stays until its room is needed, the one used longest ago first; one that is added again costs nothing.

    Args:
      vocabulary: the tokenizer, its `Vocabulary`, or a constraint over it.
      profile: a name out of `jax_decode.PROFILES`, with a scale or without; see `docs/profiles.md`.
      slots: constraints that may be there at once, in buckets.
      logits_width, sharding: see `to_device`; with a sharding, every device of its mesh has the tables.

    Raises:
      DecodeError: there is no such profile, or no vocabulary.

    Examples:
      >>> pool = ConstraintPool(tokenizer, profile="general")
      >>> slot = pool.add(constraint)
      >>> generate(decoder, prompt, pool.tables, constraint=slot, max_new_tokens=64)
      >>> pool.remove(slot)
    """

    def __init__(
        self,
        vocabulary: Any,
        *,
        profile: Profile | str = "general",
        slots: int = 256,
        logits_width: int | None = None,
        sharding: Any = None,
    ) -> None:
        known = getattr(vocabulary, "vocabulary", vocabulary)
        if not all(hasattr(known, name) for name in ("fingerprint", "stop_ids")) or isinstance(known, ConstraintTables):
            what = f"a pool is of one vocabulary, not of a {type(vocabulary).__name__}"
            raise DecodeError(what, fix="Pass the tokenizer, its vocabulary, or a constraint.")
        size = getattr(known, "vocab_size", None) or len(known.tokens)
        stops = tuple(int(t) for t in known.stop_ids)
        asked = named(profile) if isinstance(profile, str) else profile
        if isinstance(asked, Profile) and (asked.items or asked.key_words or dict(asked.statics).get("stacks", 1) > 1):
            what = f"a pool has no room for the constraints of profile {str(asked)!r}: sets of keys, of items, or several stacks"
            raise DecodeError(what, fix=f"Give one of {', '.join(PROFILES)}; and those to to_device(...) of their own.")
        empty = placeholder(size, known.fingerprint, stops)
        self._tables = to_device(empty, profile=asked, logits_width=logits_width, sharding=sharding)
        self._profile = self._tables.profile or asked
        if not is_whole(slots, 1, _MOST_SLOTS):
            fix = f"Give how many constraints may be there at once, 1 to {_MOST_SLOTS:,}."
            raise DecodeError(f"slots is {shown(slots)}", fix=fix)
        self._slots = bucket(int(slots), 1)
        self._lock = threading.RLock()
        self._bodies = weakref.WeakKeyDictionary[CompiledConstraint, Body]()
        self._alone = SizedMemo[Alone](_KEPT, _num_bytes)
        self._resident = dict[bytes, _Resident]()
        self._slot_of = dict[bytes, int]()
        self._keys = dict[int, tuple[bytes, bytes]]()
        self._uses = dict[int, int]()
        self._idle = collections.OrderedDict[int, None]()
        self._free_slots = list(range(self._slots - 1, -1, -1))
        room = self._capacity()
        self._extents = {name: Extents(room[name], first) for name, first in _FIXED.items() if name in room and name != "rows"}
        full = np.packbits(np.arange(-(-size // 32) * 32) < size, bitorder="little").view("<u4")
        self._rows = Shared(room["rows"], [content_key(np.zeros_like(full)), content_key(full)])
        self._increments = Shared(room.get("increments", 0), [])
        self._stops = stops
        self._begin()

    def _begin(self) -> None:
        """Gives the tables their slots, and compiles what writes into them."""
        t = self._tables
        more: dict[str, Any] = {
            "constraints": jnp.zeros((self._slots, t.constraints.shape[1]), jnp.int32),
            "stop_ids": jnp.full((self._slots, t.stop_ids.shape[1]), -1, jnp.int32),
            "num_constraints": jnp.asarray(np.int32(self._slots)),
        }
        if t.has_stack:
            more["initial"] = jnp.zeros((self._slots, *t.initial.shape[1:]), jnp.int32)
        if t.has_counters:
            more["symbols"] = t.symbols.at[:, _STEP].set(1)
        self._tables = dataclasses.replace(t, **jax.device_put(more, t.constraints.sharding if t.constraints.committed else None))
        self._replace({"remarks": Remarks(in_use=self._uses)})
        self._warm()

    def _warm(self) -> None:
        """Compiles all writes, of the sizes that the tables have now."""
        own = vars(self._tables)
        every = TOGETHER | {"constraints": ("constraints", "stop_ids", "initial")}
        self._records = {t: there for t, names in every.items() if (there := tuple(n for n in names if own[n].shape[0]))}
        for tables in (self._records, {"rows": _OF_ROWS}, {"increments": ("increments",)}):
            if all(own[name].shape[0] for names in tables.values() for name in names):
                self._replace(warm(own, tables))

    def _capacity(self, scale: int | None = None) -> dict[str, int]:
        """Entries of every table that constraints may have; `scale`: of another one of the profile."""
        profile = self._profile if scale is None else dataclasses.replace(self._profile, scale=scale)
        names = dict(profile.room)
        if not profile.has_stack:
            names = {n: 0 for n in names if n not in ("delta", "pushes", "symbols", "increments")}
        return {name: profile.size(name) - SLACK.get(name, 0) for name in names}

    @property
    def tables(self) -> ConstraintTables:
        """The tables as they are now. `add` and `grow` give up the arrays of earlier ones: ask for them again after each."""
        return self._tables

    @property
    def profile(self) -> Profile:
        """What programs over the tables depend on."""
        return self._profile

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """End-of-text ids of the vocabulary."""
        return self._stops

    @property
    def num_slots(self) -> int:
        """How many constraints may be there at once."""
        return self._slots

    def __len__(self) -> int:
        """How many slots are in use."""
        return len(self._uses)

    def __repr__(self) -> str:
        used = ", ".join(f"{name} {used:,} of {size:,}" for name, (used, size) in self.usage.items())
        return f"ConstraintPool(profile {str(self._profile)!r}, {len(self)} in use, {len(self._idle)} kept; {used})"

    @property
    def usage(self) -> dict[str, tuple[int, int]]:
        """Of every table how many entries are taken, constraints that are only kept included, and how many there are."""
        room = self._capacity() | {"slots": self._slots}
        sizes = {name: room[name] - _FIXED.get(name, 0) for name in room}
        return {name: (sizes[name] - free, sizes[name]) for name, free in self._free().items()}

    def _free(self) -> dict[str, int]:
        free = {name: extents.free for name, extents in self._extents.items()} | {"rows": self._rows.free}
        if "increments" in self._capacity():
            free["increments"] = self._increments.free
        return free | {"slots": len(self._free_slots)}

    def add(self, constraint: CompiledConstraint, *, grow: bool = False) -> int:
        """The slot of a constraint, which is written into the tables where it is not there yet.

        No row that decodes is disturbed. Every call is one use, which `remove` takes back.

        Args:
          constraint: over the pool's vocabulary.
          grow: whether a full pool grows (`grow`; where only slots are missing, by slots alone), after which programs over its
            tables compile once more.

        Raises:
          PoolFullError: there is no room for it beside the constraints in use; `missing` says of what.
          DecodeError: its vocabulary is another, or its kind has no room in the profile.
        """
        grow = checked_flag(grow, "grow")
        with self._lock:
            body = self._body(constraint)
            slot = self._slot_of.get(body.slot_key)
            if slot is None:
                slot = self._entered(body, constraint, grow)
            self._idle.pop(slot, None)
            self._uses[slot] = self._uses.get(slot, 0) + 1
            left_out = self._tables.remarks.unenforced
            if constraint.unenforced != left_out.get(slot, ()):
                self._replace({"remarks": Remarks({**left_out, slot: constraint.unenforced}, self._uses)})
            return slot

    def check(self, constraint: CompiledConstraint) -> None:
        """Raises `DecodeError` for a constraint that the pool could not hold even if it were empty."""
        with self._lock:
            body = self._body(constraint)
            if missing := self._too_large(body):
                raise _too_small(self._profile, missing)

    def remove(self, slot: int) -> None:
        """Takes back one use of a slot. Its constraint stays while nothing else needs its room.

        Call it when the row that used it has ended.

        Raises:
          DecodeError: the slot is not in use.
        """
        with self._lock:
            if not is_whole(slot, 0) or slot not in self._uses:
                what = f"slot {shown(slot)} is not in use"
                raise DecodeError(what, fix="Remove what add(...) returned, once for every call.")
            self._uses[slot] -= 1
            if not self._uses[slot]:
                del self._uses[slot]
                self._idle[slot] = None

    def clear(self) -> None:
        """Forgets all constraints that are kept without being in use."""
        with self._lock:
            while self._idle:
                self._evict()

    def grow(self) -> None:
        """Gives every table the room of the profile's next scale, and more slots; those in use and all rows stay as they are.

        Raises:
          PoolFullError: there is no larger scale.
        """
        with self._lock:
            scale = self._profile.scale * GROWTH
            if scale > _LARGEST:
                what = f"a pool of profile {str(self._profile)!r} is as large as any"
                raise PoolFullError(what, missing={}, fix="Use several pools.")
            before, self._profile = self._tables, dataclasses.replace(self._profile, scale=scale)
            every = {"rows": _OF_ROWS, "increments": ("increments",)} | TOGETHER
            larger: dict[str, Any] = {}
            for table, names in every.items():
                for name in names:
                    array = getattr(before, name)
                    if array.shape[0]:
                        more = self._profile.size(table) - array.shape[0]
                        pad = jnp.zeros((more, *array.shape[1:]), array.dtype)
                        pad = pad.at[:, _STEP].set(1) if name == "symbols" else pad
                        larger[name] = jnp.concatenate([array, pad])
            self._tables = dataclasses.replace(before, **larger, profile=self._profile)
            room = self._capacity()
            for name, extents in self._extents.items():
                extents.extend(room[name])
            self._rows.extend(room["rows"])
            self._increments.extend(room.get("increments", 0))
            self._add_slots()

    def _add_slots(self) -> None:
        """Gives the tables more slots, as far as there are more, and compiles what writes into them."""
        before, count = self._tables, min(self._slots * GROWTH, _MOST_SLOTS)
        where = before.num_constraints.sharding if before.num_constraints.committed else None
        larger: dict[str, Any] = {"num_constraints": jax.device_put(np.int32(count), where)}
        for name, fill in (("constraints", 0), ("stop_ids", -1), ("initial", 0)):
            array = getattr(before, name)
            if array.shape[0]:
                pad = jnp.full((count - self._slots, *array.shape[1:]), fill, array.dtype)
                larger[name] = jnp.concatenate([array, pad])
        self._tables = dataclasses.replace(before, **larger)
        self._free_slots = [*range(count - 1, self._slots - 1, -1), *self._free_slots]
        self._slots = count
        self._warm()

    def _body(self, c: Any) -> Body:
        """A constraint ready to be placed; checked."""
        if not isinstance(c, CompiledConstraint):
            kind = "a set of items" if isinstance(c, CompiledItems) else f"a {type(c).__name__}"
            raise DecodeError(f"a pool holds compiled constraints, not {kind}", fix="Give it to_device(...) of its own.")
        t = self._tables
        if (c.fingerprint, c.vocab_size) != (t.fingerprint, t.vocab_size):
            what = f"the constraint is over another vocabulary ({c.fingerprint[:12]}) than the pool ({t.fingerprint[:12]})"
            raise DecodeError(what, fix="Compile it for the tokenizer that the pool was made with.")
        if c.is_canonical or c.has_sets:
            what = "no profile has room for canonical constraints or keys in every order"
            raise DecodeError(what, fix="Give it to_device(...) of its own.")
        if len(c.temperature):
            what = "the constraint's grammar has temperatures of its own, for which a pool has no room"
            raise DecodeError(what, fix="Give it to_device(...) of its own, or leave the option temperature out of the grammar.")
        body = self._bodies.get(c)
        if body is None:
            lacking = self._profile.lacks(static_sizes([c]), {}, False)
            if lacking:
                what = f"the constraint does not fit the pool's profile {str(self._profile)!r}: {lacking}"
                raise DecodeError(what, fix="Make the pool with a larger profile; 'general' has nearly all.")
            made = alone(c, self._profile)
            body = self._bodies[c] = body_of(c, made, self._profile)
            self._alone.get(body.slot_key, lambda: made)
        if (body.counters and not self._profile.counters) or (body.num_symbols and not self._profile.has_stack):
            kind = "counters" if body.counters else "a stack"
            what = f"the constraint has {kind}, the pool's profile {self._profile.name!r} none"
            raise DecodeError(what, fix="Make the pool with profile='general'.")
        if len(c.stop_ids) > t.stop_ids.shape[1]:
            what = f"the constraint has {len(c.stop_ids)} end-of-text ids, the pool has room for {t.stop_ids.shape[1]}"
            raise DecodeError(what, fix="Make the pool with a vocabulary that has all of them.")
        return body

    def _entered(self, body: Body, c: CompiledConstraint, grow: bool) -> int:
        """Writes a constraint into the tables; its slot."""
        while (resident := None if (missing := self._too_large(body)) else self._room_for(body)) is None:
            if not grow:
                raise _too_small(self._profile, missing) if missing else _full(self._profile, self._missing(body))
            self._make_room(body, missing or self._missing(body))
        slot, what = self._free_slots.pop(), dict[str, Written]()
        made = self._alone.get(body.slot_key, lambda: alone(c, self._profile))
        if not resident.slots:
            self._write_rows(made, resident.places)
            values = placed(body, made, resident.places, self._profile)
            for table, entries_ in resident.places.entries.items():
                what[table] = Written(entries_, values)
            self._resident[body.key] = resident
        stops = np.full((1, self._tables.stop_ids.shape[1]), -1, np.int32)
        stops[0, : len(c.stop_ids)] = c.stop_ids
        own = record_of(made, resident.places, self._profile) | {"stop_ids": stops}
        self._write(self._records, what | {"constraints": Written(np.array([slot], np.int32), own)})
        resident.slots += 1
        self._slot_of[body.slot_key], self._keys[slot] = slot, (body.key, body.slot_key)
        return slot

    def _make_room(self, body: Body, missing: Mapping[str, tuple[int, int]]) -> None:
        """Grows what is full: the slots, or all tables.

        Raises:
          PoolFullError: no scale of the profile has the room.
        """
        if set(missing) == {"slots"} and self._slots < _MOST_SLOTS:
            self._add_slots()
            return
        if never := self._too_large(body, _LARGEST):
            raise _too_small(self._profile, never, "Compile a smaller constraint, or make the pool with another profile.")
        if self._profile.scale == _LARGEST:
            raise _full(self._profile, missing, "It is as large as any: remove slots whose rows have ended, or use more pools.")
        self.grow()

    def _room_for(self, body: Body) -> _Resident | None:
        """Where a body is, or places for it; constraints that nobody uses make room. None where that is not enough."""
        while True:
            resident = (self._resident.get(body.key) or self._reserved(body)) if self._free_slots else None
            if resident is not None or not self._idle:
                return resident
            self._evict()

    def _reserved(self, body: Body) -> _Resident | None:
        """Places for a body, not yet written; None where there is no room now."""
        pieces = dict[str, list[Piece]]()
        rows: tuple[list[int], list[int]] | None = None
        increments: tuple[list[int], list[int]] | None = None
        for name, extents in self._extents.items():
            found = extents.take(body.units[name])
            if found is None:
                break
            pieces[name] = found
        if len(pieces) == len(self._extents):
            rows = self._rows.take(body.row_keys)
            increments = None if rows is None else self._increments.take(body.increment_keys)
        if rows is not None and increments is not None:
            own = {name: entries(pieces.get(name, [])) for name in TOGETHER}
            return _Resident(Places(own, rows[0], increments[0], rows[1], increments[1]), pieces)
        self._give_back(pieces, [] if rows is None else rows[0], [] if increments is None else increments[0])
        return None

    def _write_rows(self, made: Alone, at: Places) -> None:
        """Writes the bit rows, and numbers per token, that the tables do not have yet."""
        if at.new_rows:
            own, columns = made.parts.rows[2:][at.new_rows], self._tables.columns
            values = {"rows": packed(own, columns.num_words, columns.shards), "only": only_tokens(own)}
            self._write({"rows": _OF_ROWS}, {"rows": Written(np.array(at.rows, np.int32)[at.new_rows], values)})
        if at.new_increments:
            numbers = {"increments": made.stacks.increments[at.new_increments]}
            what = {"increments": Written(np.array(at.increments, np.int32)[at.new_increments], numbers)}
            self._write({"increments": ("increments",)}, what)

    def _write(self, tables: Tables, what: Mapping[str, Written]) -> None:
        self._replace(write(vars(self._tables), tables, what))

    def _replace(self, arrays: Mapping[str, Any]) -> None:
        tables = object.__new__(ConstraintTables)  # `dataclasses.replace` takes as long as a write
        vars(tables).update(vars(self._tables) | dict(arrays))
        self._tables = tables

    def _evict(self) -> None:
        """Forgets the constraint that has not been in use for the longest time."""
        slot, _ = self._idle.popitem(last=False)
        key, slot_key = self._keys.pop(slot)
        del self._slot_of[slot_key]
        self._free_slots.append(slot)
        resident = self._resident[key]
        resident.slots -= 1
        if not resident.slots:
            del self._resident[key]
            self._give_back(resident.pieces, resident.places.rows, resident.places.increments)

    def _give_back(self, pieces: Mapping[str, list[Piece]], rows: list[int], increments: list[int]) -> None:
        for name, taken in pieces.items():
            self._extents[name].give(taken)
        self._rows.give(rows)
        self._increments.give(increments)

    def _too_large(self, body: Body, scale: int | None = None) -> dict[str, tuple[int, int]]:
        """What a body needs more of than the whole pool has, now or at a scale: (needed, there), by table."""
        room = {name: size - _FIXED.get(name, 0) for name, size in self._capacity(scale).items()}
        return {name: (count, room[name]) for name, count in self._needed(body).items() if count > room[name]}

    def _missing(self, body: Body) -> dict[str, tuple[int, int]]:
        """What a body needs more of than is free; where only lists in one piece are missing, what it needs at all."""
        free, needed = self._free(), self._needed(body) | {"slots": 1}
        return {n: (c, free[n]) for n, c in needed.items() if c > free[n]} or {n: (c, free[n]) for n, c in needed.items() if c}

    def _needed(self, body: Body) -> dict[str, int]:
        """New entries of every table that a body needs."""
        if body.key in self._resident:
            return {}
        sizes = {name: int(body.units[name].sum()) for name in self._extents}
        sizes["rows"] = len(set(body.row_keys) - self._rows.contents)
        if body.increment_keys:
            sizes["increments"] = len(set(body.increment_keys) - self._increments.contents)
        return sizes


def _num_bytes(made: Alone) -> int:
    return sum(x.nbytes for x in jax.tree.leaves((vars(made.parts), vars(made.stacks))))


def _full(profile: Profile, missing: Mapping[str, tuple[int, int]], fix: str = "") -> PoolFullError:
    """The error of a full pool."""
    lacking = ", ".join(f"{name}: {needed:,} needed, {free:,} free" for name, (needed, free) in missing.items())
    fix = fix or "Remove slots whose rows have ended, call grow() (or add(..., grow=True)), or make it with a larger profile."
    return PoolFullError(f"the pool of profile {str(profile)!r} is full: {lacking}", missing=missing, fix=fix)


def _too_small(profile: Profile, missing: Mapping[str, tuple[int, int]], fix: str = "") -> PoolFullError:
    """The error of a pool that would not hold a constraint if it were empty."""
    lacking = ", ".join(f"{name}: {needed:,} needed, {there:,} in all" for name, (needed, there) in missing.items())
    fix = fix or "Call grow() (or add(..., grow=True)), make it with a larger profile, or compile a smaller constraint."
    what = f"the pool of profile {str(profile)!r} is too small for this constraint: {lacking}"
    return PoolFullError(what, missing=missing, fix=fix)
