"""Puts constraints together from parts of others of the same form (`known_parts`): arrays are renumbered, and no token is walked.

What depends on which names there are is made anew: the tokens, costs and mask rows of the nodes that have a role. All else is
taken as it is. Symbols of different parts that are alike share a number, since no frame of one part is seen by another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fsa_compile.arrays.graphs import followed
from fsa_compile.arrays.integers import distinct, firsts, order_of
from fsa_compile.arrays.ranges import joined, segment_sizes, segment_starts
from fsa_compile.artifact.arrays import ARC_BURST, ARRAYS, UNBOUNDED, UNREACHABLE
from fsa_compile.artifact.artifact_checks import longest_path
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.formats.answer_leads import TOKEN_BITS, Rows, called_tokens, levels_of, with_text
from fsa_compile.formats.known_parts import NO_ROLE, Part, Roles
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """A part, and which of its names are wanted."""

    part: Part
    names: frozenset[bytes]


def join_parts(
    chosen: Sequence[Chosen], roles: Roles, rows: Mapping[int, np.ndarray], tables: VocabularyTables, pool: RowPool, source: str
) -> CompiledConstraint | None:
    """The constraint of the wanted names; None where it cannot be made of the parts alone.

    Args:
      chosen: parts of one form; each name is wanted of one of them.
      rows: bit rows of all parts, by their hashes.
      pool: for the rows of the result.
    """
    if any(one.part.outside != chosen[0].part.outside for one in chosen):
        return None
    return _Join(chosen, roles, rows, tables, pool).constraint(source)


class _Join:
    """Nodes and all else of the parts are numbered one part after the other here; `new` numbers are those of the result."""

    def __init__(
        self, chosen: Sequence[Chosen], roles: Roles, rows: Mapping[int, np.ndarray], tables: VocabularyTables, pool: RowPool
    ) -> None:
        self.chosen, self.roles = chosen, roles
        self.parts = parts = [one.part for one in chosen]
        self.rows, self.tables, self.pool = Rows(rows), tables, pool
        self.alive = np.append(roles.alive([name for one in chosen for name in one.names]), True)
        self.wanted = np.array([*(name in one.names for one in chosen for name in one.part.names), True])
        self.is_whole = bool(self.wanted.all())
        self.base = _bases(len(part.role) for part in parts)
        self.role = np.concatenate([part.role for part in parts])
        self.total = len(self.role)
        self.arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in _PLAIN}
        self.twin = self.arrays["twin"] + np.where(self.arrays["twin"] > 0, self._shift("twin", self.base), 0)
        self.is_role = (self.role >= 0) & self.alive[self.role]
        self.plain: int | None = None  # how many arcs of nodes with a role are not among `sets`
        self.sets = {"node": np.zeros(0, np.int64), "effect": np.zeros(0, np.int64), "hash": np.zeros(0, np.uint64)}
        self._read_effects()
        self._read_groups()

    def _shift(self, name: str, bases: np.ndarray) -> np.ndarray:
        """What is added to the numbers in an array of all parts."""
        return np.repeat(bases, [len(part.arrays[name]) for part in self.parts])

    def _read_effects(self) -> None:
        sizes = [np.diff(part.arrays["arc_offset"]) for part in self.parts]
        self.arc_count = np.concatenate(sizes)
        self.arc_source = np.arange(self.total).repeat(self.arc_count)
        self.arc_token, self.arc_effect, self.effects = (self.arrays[name] for name in ("arc_token", "arc_effect", "effects"))
        bases = _bases(len(part.arrays["effects"]) for part in self.parts)
        self.arc_effect += self._shift("arc_effect", bases)
        names = _bases(len(part.names) for part in self.parts)
        at = np.concatenate([part.arc_name for part in self.parts])
        self.arc_name = np.where(at >= 0, at + self._shift("arc_effect", names), -1)
        self.effects[:, 0] += np.where(self.effects[:, 0] > 0, self._shift("effects", self.base), 0)
        pushes = _bases(len(part.arrays["push_offset"]) - 1 for part in self.parts)
        self.push_base = pushes
        self.effects[:, 1] += np.where(self.effects[:, 1] > 0, self._shift("effects", pushes), 0)
        tables = self._shift("effects", _bases(len(part.increments) for part in self.parts))
        for column in (2, 3):
            self.effects[:, column] -= np.where(self.effects[:, column] < 0, tables, 0)
        role = self.role[self.effects[:, 0]]
        self.leads = np.where(self.effects[:, 0] > 0, role, -1)  # role that each effect leads to

    def _read_groups(self) -> None:
        counts = [np.diff(part.arrays["group_offset"]) for part in self.parts]
        self.group_count = np.concatenate(counts)
        self.group_source = np.arange(self.total).repeat(self.group_count)
        target = self.arrays["group_next"].astype(np.int64) + self._shift("group_next", self.base)
        push = self.arrays["group_push"].astype(np.int64)
        push += np.where(push > 0, self._shift("group_next", self.push_base), 0)
        tables = self._shift("group_next", _bases(len(part.increments) for part in self.parts))
        add, final = (self.arrays[name] - np.where(self.arrays[name] < 0, tables, 0) for name in ("group_add", "group_set"))
        hashes = np.concatenate([part.hashes[part.arrays["group_row"]] for part in self.parts])
        cost, need = (np.concatenate([getattr(p, name) for p in self.parts]) for name in ("group_cost", "group_need"))
        self.groups = {"target": target, "push": push, "add": add, "set": final, "hash": hashes, "cost": cost, "need": need}

    def constraint(self, source: str) -> CompiledConstraint | None:
        arcs, groups = self._of_roles()
        kept = self._kept(arcs, groups)
        present = distinct(self.role[self.is_role])
        self.count = len(present)
        number = np.zeros(len(self.alive), np.int64)
        number[present] = 1 + np.arange(self.count)
        self.new = np.zeros(self.total + 1, np.int64)
        self.new[:-1][self.is_role] = number[self.role[self.is_role]]
        is_twin = np.zeros(self.total, bool)
        is_twin[self.twin[self.twin > 0]] = True
        self.own = np.concatenate([(kept & ~is_twin).nonzero()[0], (kept & is_twin).nonzero()[0]])  # twins come last
        self.new[self.own] = 1 + self.count + np.arange(len(self.own))
        self.role_number = number
        self._number_sets()
        entries = self._role_entries(arcs, groups)
        if entries is None or not self._solve(*entries):
            return None
        return self._made(source, *entries)

    def _of_roles(self) -> tuple[np.ndarray, np.ndarray]:
        """The arcs and groups of nodes with a role that stay. What is the same in all parts is the first one's."""
        leads = self.leads[self.arc_effect]
        stays = self.is_role[self.arc_source] & self.alive[leads] & self.wanted[self.arc_name]
        first = self.arc_source < len(self.parts[0].role)
        arcs = (stays & ((leads >= 0) | (self.arc_name >= 0) | first)).nonzero()[0]
        leads = self.role[self.groups["target"]]
        stays = self.is_role[self.group_source] & self.alive[leads]
        return arcs, (stays & ((leads >= 0) | (self.group_source < len(self.parts[0].role)))).nonzero()[0]

    def _kept(self, arcs: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """bool[N], which nodes without a role stay: those that can be reached."""
        own = self.role < 0
        own[self.base] = False
        if self.is_whole:
            return own
        first = np.concatenate((self.effects[self.arc_effect[arcs], 0], self.groups["target"][groups], self.is_role.nonzero()[0]))
        first = distinct(first)
        cut = first.searchsorted([*self.base.tolist(), self.total]).tolist()
        for part, base, low, high in zip(self.parts, self.base.tolist(), cut, cut[1:]):
            seen = followed(*part.inner_edges, (first[low:high] - base).tolist())
            own[base : base + len(part.role)] &= seen[: len(part.role)]
        return own

    def _delta_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """(row of delta of each node, rows by case int64[N, 2 ** M])."""
        self.row_base = _bases(part.num_delta_rows for part in self.parts)
        widths = np.array([max(1, len(part.arrays["symbol_cost"])) for part in self.parts])
        most = max(part.arrays["pop_offset"].shape[1] for part in self.parts)
        width, base = (self._shift("delta_offset", column) for column in (widths, self.row_base))
        pops = np.concatenate([np.tile(p.arrays["pop_offset"], (1, most // p.arrays["pop_offset"].shape[1])) for p in self.parts])
        return self.arrays["delta_offset"] // width + base, pops // width[:, None] + base[:, None]

    def _cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(row, symbol, child) of all entries of delta."""
        symbols = _bases(len(part.arrays["symbol_cost"]) for part in self.parts)
        columns = [[part.cells[i] + base for part, base in zip(self.parts, bases.tolist())]
                   for i, bases in enumerate((self.row_base, symbols, self.base))]  # fmt: skip
        row, symbol, child = (np.concatenate(column) for column in columns)
        return row, symbol, child

    # sets of keys, and tables of what tokens add

    def _number_sets(self) -> None:
        """Numbers guards, masks of keys and tables of numbers by what they hold."""
        guards: dict[tuple[tuple[int, ...], int, int], int] = {((), 0, 0): 0}
        guard = [guards.setdefault(one, len(guards)) for part in self.parts for one in part.guards]
        keys = {0: 0}
        key = [keys.setdefault(one, len(keys)) for part in self.parts for one in part.keys]
        tables: dict[bytes, int] = {}
        table = [tables.setdefault(one, len(tables)) for part in self.parts for one in part.increments]
        self.guards, self.key_number, self.increments = list(guards), keys, list(tables)
        guard_map, key_map, table_map = (np.array(column, np.int64) for column in (guard, key, table))
        bases = _bases(len(part.guards) for part in self.parts)
        self.guard_of = lambda values, name: guard_map[values + _wide(self._shift(name, bases), values)]
        key_bases = _bases(len(part.keys) for part in self.parts)
        self.key_of = lambda values, name: key_map[values + self._shift(name, key_bases)]
        self.effects[:, 6] = self.guard_of(self.effects[:, 6], "effects")
        self.effects[:, 7] = self.key_of(self.effects[:, 7], "effects")
        for values in (self.effects[:, 2], self.effects[:, 3], self.groups["add"], self.groups["set"]):
            some = (values < 0).nonzero()[0]
            values[some] = -1 - table_map[-1 - values[some]]
        self.push_keys = self.key_of(self.arrays["push_keys"], "push_keys")

    def _set_arrays(self) -> dict[str, np.ndarray]:
        """Keys and guards of the result."""
        keys, rows = dict(self.key_number), list(self.key_number)
        out = []
        for unset, every, some in self.guards:
            for mask in (every, some):
                if mask not in keys:
                    keys[mask] = len(rows)
                    rows.append(mask)
            out.append((len(rows) if unset else 0, len(unset), keys[every], keys[some]))
            rows += unset
        words = max(1, -(-max(mask.bit_length() for mask in rows) // 32))
        data = b"".join(mask.to_bytes(4 * words, "little") for mask in rows)
        table = np.frombuffer(data, np.uint32).reshape(-1, words).copy()
        return {"keys": table, "guards": np.array(out, np.int64).reshape(-1, 4)}

    # nodes with a role

    def _role_entries(self, arcs: np.ndarray, groups: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None:
        """Arcs and groups of the nodes with a role, those of several parts once; None where they do not fit together."""
        columns = {"node": self.new[self.arc_source[arcs]], "token": self.arc_token[arcs], "effect": self.arc_effect[arcs]}
        target, _, add, final, *_ = self.effects[columns["effect"]].T
        one = _once(columns, columns["node"] << TOKEN_BITS | columns["token"], (self.new[target], add, final))
        some = {"node": self.new[self.group_source[groups]], "role": self.role[self.groups["target"][groups]]}
        some |= {name: values[groups] for name, values in self.groups.items()}
        some["target"] = self.new[some["target"]]
        two = _once(some, some["node"] << 32 | some["target"], [some[name] for name in ("add", "set", "hash")])
        return None if one is None or two is None else self._with_text(one, two)

    def _with_text(
        self, arcs: dict[str, np.ndarray], groups: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None:
        """The entries with those of answers that may yet be calls as any text."""
        roles, number = self.roles, self.role_number
        begun = np.array(roles.begun)
        some = ((begun >= 0) & (number[: len(begun)] > 0)).nonzero()[0]
        if roles.answer is None or not len(some):
            return arcs, groups
        if roles.goes_on == NO_ROLE or not number[roles.goes_on]:
            return None
        nodes = number[some]
        if np.isin(groups["node"], nodes).any():
            return None
        taken = [one.part.taken[name] for one in self.chosen for name in one.names]
        called = called_tokens(taken, roles.rests, nodes, begun[some])
        found = with_text(arcs, groups, int(number[roles.goes_on]), called, self.rows, self.tables)
        if found is None:
            return None
        if len(found[2]["node"]):
            self.plain, self.sets = len(arcs["node"]), found[2]
        return found[:2]

    def _solve(self, arcs: dict[str, np.ndarray], groups: dict[str, np.ndarray]) -> bool:
        """Finds distances and needs of the nodes with a role, and what their tokens take; whether those of all else stay."""
        size = self.count + 1
        distance, least = np.full(size, UNREACHABLE, np.int64), np.full(size, UNREACHABLE, np.int64)
        ends = self.new[:-1][self.is_role & self.arrays["accept"]]
        distance[ends] = least[ends] = 0
        arc, group = ((distance[entries["node"]] > 0).nonzero()[0] for entries in (arcs, groups))  # of nodes that are no ends
        effect = arcs["effect"][arc]
        own = arcs["node"][arc], self.leads[effect], self.new[self.effects[effect, 0]], *self.effects[effect, 4:6].T
        rest = (groups[name][group] for name in ("node", "role", "target", "cost", "need"))
        node, role, target, cost, need = map(np.concatenate, zip(own, rest))
        inside = role >= 0
        np.minimum.at(least, node[~inside], need[~inside])
        pair = distinct(node[inside] * size + target[inside])
        at, to = np.divmod(pair, size)
        _relax(least, at, to, 0)
        np.minimum.at(distance, *(column[~inside & (need <= least[node])] for column in (node, cost)))
        fits = least[to] <= least[at]
        _relax(distance, at[fits], to[fits], 1)
        if distance[1:].max() >= UNBOUNDED:
            return False
        inside, into = groups["role"] >= 0, np.where(groups["role"] >= 0, groups["target"], 0)
        groups["cost"] = np.where(inside, 1 + distance[into], groups["cost"])
        groups["need"] = np.where(inside, least[into], groups["need"])
        self.distance, self.need = distance, least
        return self._take_costs()

    def _take_costs(self) -> bool:
        """Writes the costs of the nodes with a role into what leads to them; whether nothing else depends on them."""
        distance, least = self.distance, self.need
        changed = np.zeros(len(self.alive), bool)
        before = self.is_role.nonzero()[0]
        now = self.new[before]
        differs = (self.arrays["distance"][before] != distance[now]) | (self.arrays["need"][before] != least[now])
        changed[self.role[before[differs]]] = True
        changed[-1] = False
        behind = np.array([role for part in self.parts for role in part.after.values()], np.int64)
        own = self.new[:-1] > self.count
        arcs = own[self.arc_source] & changed[self.leads[self.arc_effect]]
        groups = own[self.group_source] & changed[self.role[self.groups["target"]]]
        self.redone = np.zeros(self.total, bool)
        self.redone[self.arc_source[arcs]] = self.redone[self.group_source[groups]] = True
        some = self.leads >= 0
        to = self.new[self.effects[some, 0]]
        self.effects[some, 4], self.effects[some, 5] = 1 + distance[to], least[to]
        # Inner nodes have no distance of their own, so that nothing depends on what their tokens take.
        of_redone = self.redone[self.group_source]
        into = self.new[self.groups["target"][of_redone]]
        self.groups["cost"][of_redone] = 1 + distance[np.minimum(into, self.count)]
        self.groups["need"][of_redone] = least[np.minimum(into, self.count)]
        inner = not self.arrays["distance"][self.redone].any()
        return inner and bool((into <= self.count).all()) and not changed[behind].any()

    # the result

    def _made(self, source: str, arcs: dict[str, np.ndarray], groups: dict[str, np.ndarray]) -> CompiledConstraint:
        own_arcs, own_groups = (self._of_own(count) for count in (self.arc_count, self.group_count))
        order = order_of(arcs["node"] << TOKEN_BITS | arcs["token"])
        of_arcs = np.concatenate((arcs["effect"][order], self.arc_effect[own_arcs]))
        number = np.zeros(len(self.effects), np.int32)
        number[of_arcs] = 1
        used, number = number.nonzero()[0], number.cumsum(dtype=np.int32)
        pushes = [self.effects[used, 1], groups["push"], self.groups["push"][own_groups]]
        strings = self._number_pushes(np.concatenate(pushes))
        effects = np.zeros((1 + len(used), 8), np.int32)
        np.take(self.effects, used, 0, out=effects[1:])
        effects[1:, 0] = self.new[effects[1:, 0]]
        effects[1:, 1] = self.push_number[effects[1:, 1]]
        arrays: dict[str, Any] = dict(strings)
        arrays["effects"] = effects
        arrays["arc_token"] = np.concatenate((arcs["token"][order], self.arc_token[own_arcs]))
        arrays["arc_effect"] = number[of_arcs]
        counts = np.bincount(arcs["node"], minlength=self.count + 1)
        arrays["arc_offset"] = _offsets(counts, self.arc_count[self.own])
        self._add_groups(arrays, groups, own_groups)
        masked = (arrays["group_offset"][1:] > arrays["group_offset"][:-1]) | (np.diff(arrays["arc_offset"]) > ARC_BURST)
        self._add_levels(arrays, arcs, groups, masked)
        self._add_nodes(arrays)
        some = bool(len(self.guards) > 1 or len(self.key_number) > 1)
        arrays |= self._set_arrays() if some else {}
        if not some:
            arrays = {name: values for name, values in arrays.items() if name not in _SETS}
            arrays["effects"] = arrays["effects"][:, :6]
        first, tables = self.parts[0], self.tables
        rows: Any = self.pool.stored()
        increments = np.frombuffer(b"".join(self.increments), np.uint16).reshape(-1, tables.vocab_size).copy()
        return CompiledConstraint(
            vocab_size=tables.vocab_size, fingerprint=tables.fingerprint, stop_ids=tables.stop_ids, source=source,
            start=int(self.new[first.start]), rows=rows, increments=increments,
            max_pops=self._most_pops(arrays), max_push=self.longest, stacks=1,
            **{name: values.astype(ARRAYS[name][0], copy=False) for name, values in arrays.items()},
        )  # fmt: skip

    def _most_pops(self, arrays: dict[str, Any]) -> int:
        """The longest path in `delta`, which may be shorter where names are left out."""
        most, width = max(part.longest[0] for part in self.parts), len(arrays["symbol_cost"])
        if self.is_whole or not width:
            return most if width else 0
        segments = arrays["pop_offset"].T if "pop_offset" in arrays else arrays["delta_offset"][None]
        at = arrays["delta"].nonzero()[0]
        return longest_path(at // width, arrays["delta"][at], segments // width, most)

    def _of_own(self, count: np.ndarray) -> np.ndarray:
        """Indices of the entries of the nodes without a role, from how many every node has."""
        return joined(count.cumsum()[self.own] - count[self.own], count[self.own])

    def _number_pushes(self, used: np.ndarray) -> dict[str, np.ndarray]:
        """Numbers the push strings in use and their symbols; the arrays of both."""
        slots: dict[tuple[bytes, int], int] = {}
        contents: list[bytes] = []
        starts = [int(start) for start in self.push_base]
        self.push_number = np.zeros(sum(len(part.arrays["push_offset"]) - 1 for part in self.parts) + 1, np.int64)
        strings: dict[tuple[tuple[int, int, int], ...], int] = {(): 0}
        of_part = np.searchsorted(self.push_base, used := distinct(used[used > 0]), side="right") - 1
        symbol_base = _bases(len(part.arrays["symbol_cost"]) for part in self.parts)
        self.symbol_slot = np.full(sum(len(part.arrays["symbol_cost"]) for part in self.parts) + 1, -1)
        key_base = _bases(len(part.arrays["push_keys"]) for part in self.parts)
        seen: dict[int, dict[int, int]] = {}
        alike: dict[int, dict[bytes, int]] = {}
        for push, number in zip(used.tolist(), of_part.tolist()):
            part, local, times = self.parts[number], seen.setdefault(number, {}), alike.setdefault(number, {})
            offset, symbols, registers = (part.arrays[name] for name in ("push_offset", "push_symbol", "push_register"))
            string = []
            for at in range(offset[push - starts[number]], offset[push - starts[number] + 1]):
                symbol = int(symbols[at])
                if symbol not in local:
                    size, content = part.symbols[symbol]
                    place = times[content] = times.get(content, -1) + 1
                    slot = slots.get((content, place))
                    if slot is None:
                        slot = slots[content, place] = len(contents)
                        table = np.frombuffer(content[content.index(b" ") + 1 :], np.int32).reshape(size, -1)
                        contents += [row.tobytes() for row in table]
                    local[symbol] = slot
                    first = int(symbol_base[number]) + symbol
                    self.symbol_slot[first : first + size] = np.arange(slot, slot + size)
                string.append((local[symbol], int(registers[at]), int(self.push_keys[key_base[number] + at])))
            self.push_number[push] = strings.setdefault(tuple(string), len(strings))
        self.longest = max(map(len, strings))
        flat = np.array([cell for string in strings for cell in string], np.int64).reshape(-1, 3)
        table = np.frombuffer(b"".join(contents), np.int32).reshape(-1, 9)
        return {
            "push_offset": np.cumsum([0, *map(len, strings)]), "push_symbol": flat[:, 0], "push_register": flat[:, 1],
            "push_keys": flat[:, 2], "symbol_ladder": table[:, :4], "symbol_cost": table[:, 4], "symbol_need": table[:, 5],
            "symbol_slope": table[:, 6:],
        }  # fmt: skip

    def _add_groups(self, arrays: dict[str, Any], groups: dict[str, np.ndarray], own: np.ndarray) -> None:
        order = order_of(groups["node"])
        both = {name: np.concatenate((groups[name][order], self.groups[name][own])) for name in ("push", "add", "set", "hash")}
        arrays["group_next"] = np.concatenate((groups["target"][order], self.new[self.groups["target"][own]]))
        arrays["group_push"], arrays["group_add"], arrays["group_set"] = self.push_number[both["push"]], both["add"], both["set"]
        arrays["group_row"] = self._numbers(both["hash"])
        counts = np.bincount(groups["node"], minlength=self.count + 1)
        arrays["group_offset"] = _offsets(counts, self.group_count[self.own])

    def _numbers(self, hashes: np.ndarray) -> np.ndarray:
        return self.pool.numbers(hashes, lambda i: self.rows[int(hashes[i])])

    def _add_levels(
        self, arrays: dict[str, Any], arcs: dict[str, np.ndarray], groups: dict[str, np.ndarray], masked: np.ndarray
    ) -> None:
        """Levels: new ones of nodes with a role, those of all others as they are."""
        arcs = {name: values[: self.plain] for name, values in arcs.items()}
        for entries in (arcs, self.sets):
            entries["cost"], entries["need"] = self.effects[entries["effect"], 4:6].T
        arcs, groups = self._with_redone(arcs, groups)
        some, more = ({name: values[masked[entries["node"]]] for name, values in entries.items()} for entries in (arcs, groups))
        made, _ = levels_of(some, more, self.rows, self.pool)
        counts = np.concatenate([np.diff(part.arrays["level_offset"]) for part in self.parts])
        own = self._of_own(counts)
        source = np.arange(self.total).repeat(counts)[own]
        own = own[~self.redone[source]]
        every = np.concatenate([part.hashes[part.arrays["level_row"]] for part in self.parts])
        node = np.concatenate((made["node"], self.new[source[~self.redone[source]]]))
        order = order_of(node)
        arrays["level_row"] = np.concatenate((made["row"], self._numbers(every[own])))[order]
        arrays["level_cost"] = np.concatenate((made["cost"], self.arrays["level_cost"][own]))[order]
        arrays["level_need"] = np.concatenate((made["need"], self.arrays["level_need"][own]))[order]
        arrays["level_offset"] = firsts(node[order], 1 + self.count + len(self.own))

    def _with_redone(
        self, arcs: dict[str, np.ndarray], groups: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Arcs, and groups and sets, of all nodes whose levels are made anew."""
        at = self.redone[self.arc_source].nonzero()[0]
        effect = self.effects[self.arc_effect[at]]
        more = {"node": self.new[self.arc_source[at]], "token": self.arc_token[at], "cost": effect[:, 4], "need": effect[:, 5]}
        of = self.redone[self.group_source].nonzero()[0]
        some = {"node": self.new[self.group_source[of]], **{name: self.groups[name][of] for name in ("hash", "cost", "need")}}
        return ({name: np.concatenate((arcs[name], values)) for name, values in more.items()},
                {name: np.concatenate((groups[name], self.sets[name], values)) for name, values in some.items()})  # fmt: skip

    def _add_nodes(self, arrays: dict[str, Any]) -> None:
        """Arrays by node, and delta."""
        own, n = self.own, self.count + 1
        rows, pops = self._delta_rows()
        row, symbol, child = self._cells()
        used = distinct(np.concatenate((rows[own], pops[own].ravel())))
        number = np.zeros(int(max(used.max(initial=0), row.max(initial=0))) + 1, np.int64)
        number[used] = 1 + np.arange(len(used))
        width = len(arrays["symbol_cost"])
        slot = self.symbol_slot[symbol]
        some = ((number[row] > 0) & (slot >= 0) & (self.new[child] > 0)).nonzero()[0]
        delta = np.zeros((len(used) + 1, width), np.int64)
        delta[number[row[some]], slot[some]] = self.new[child[some]]
        accept, roots = np.zeros(n, bool), self.new[:-1][self.is_role & self.arrays["accept"]]
        accept[roots] = True
        guards = np.concatenate([_padded(part.arrays["pop_guard"], _most(self.parts)) for part in self.parts])
        wanted = self.arrays["wanted"].astype(np.int64)
        wanted[:, 0] = self.guard_of(wanted[:, 0], "wanted")
        slope = np.tile(np.array([0, 1, 0]), (n, 1))
        begin = {
            "accept": accept, "distance": np.concatenate(([UNREACHABLE], self.distance[1:])),
            "need": np.concatenate(([0], self.need[1:])), "ladder": np.zeros((n, 4), np.int64), "level_slope": slope,
            "twin": np.zeros(n, np.int64), "wanted": np.zeros((n, 2), np.int64),
        }  # fmt: skip
        rest = {name: self.arrays[name][own] for name in ("accept", "distance", "need", "ladder", "level_slope")}
        rest |= {"twin": self.new[self.twin[own]], "wanted": wanted[own]}
        arrays |= {name: np.concatenate((values, rest[name])) for name, values in begin.items()}
        arrays["delta"] = delta.ravel()
        arrays["delta_offset"] = np.concatenate((np.zeros(n, np.int64), number[rows[own]])) * width
        arrays["pop_offset"] = np.concatenate((np.zeros((n, pops.shape[1]), np.int64), number[pops[own]])) * width
        guards = self.guard_of(guards, "twin")
        arrays["pop_guard"] = np.concatenate((np.zeros((n, guards.shape[1]), np.int64), guards[own]))


_SETS = ("keys", "guards", "twin", "wanted", "pop_guard", "pop_offset", "push_keys")
_PLAIN = (
    "accept", "distance", "need", "ladder", "level_slope", "twin", "wanted", "delta_offset", "arc_token", "arc_effect", "effects",
    "group_next", "group_push", "group_add", "group_set", "level_cost", "level_need", "push_keys",
)  # fmt: skip


def _bases(sizes: Any) -> np.ndarray:
    """Where the numbers of each part begin."""
    sizes = np.array(list(sizes), np.int64)
    return sizes.cumsum() - sizes


def _offsets(first: np.ndarray, rest: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.concatenate((first, rest)).cumsum()))


def _wide(shift: np.ndarray, values: np.ndarray) -> np.ndarray:
    return shift.reshape(-1, *(1,) * (values.ndim - 1))


def _most(parts: Sequence[Part]) -> int:
    return max(part.arrays["pop_guard"].shape[1] for part in parts)


def _padded(guards: np.ndarray, width: int) -> np.ndarray:
    return np.pad(guards, ((0, 0), (0, width - guards.shape[1])))


def _relax(value: np.ndarray, at: np.ndarray, to: np.ndarray, step: int) -> None:
    """Least values that exceed those of no target by more than a step."""
    while True:
        before = value.copy()
        np.minimum.at(value, at, before[to] + step)
        if (value == before).all():
            return


def _once(columns: dict[str, np.ndarray], key: np.ndarray, same: Iterable[np.ndarray]) -> dict[str, np.ndarray] | None:
    """Entries of equal keys once, in the order of the keys; None where they differ in what should be the same."""
    order = order_of(key)
    begin = segment_starts(key[order])
    if len(begin) < len(order):
        size = segment_sizes(begin, len(order))
        if any((values[order] != values[order[begin]].repeat(size)).any() for values in same):
            return None
    return {name: values[order[begin]] for name, values in columns.items()}
