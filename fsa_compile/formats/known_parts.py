"""What compiled constraints of named parts hold, so that others of the same form are put together from them (`part_joins`).

Constraints of one *form*, such as the turns of a protocol with different tools, differ in their names and in what stands behind
each. Their nodes are of two kinds:

* a node of a *role* stands for the same place of the text in all constraints of the form: outside of names, or behind some
  letters of a name. Where it leads, and what it costs, depends on which names there are;
* a node behind one name, and whatever values lead to, belongs to its constraint, and depends on that name alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts, order_of
from fsa_compile.arrays.ranges import joined
from fsa_compile.artifact.arrays import ARRAYS, UNBOUNDED
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.formats.answer_leads import TOKEN_BITS, Called, Rests, Rows, levels_of, with_text
from fsa_compile.formats.text_labels import END, Answer, Before, TextAutomaton
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

NO_ROLE = -1


class Roles:
    """Numbers of the roles of a form.

    Attributes:
      prefix: by role, number of what is read of a name, -1 outside of names.
      prefixes: numbers of beginnings of names.
      crossed: whether a token might reach from inside a value into the next name; None while it is not known.
      answer: the label of the answers that may not begin like a call; None for none.
      goes_on: role of such an answer where anything may follow, or NO_ROLE.
      is_text: by role, whether it stands for such an answer that can be no call.
      begins_names: by role, whether names begin there.
      begun: by role, number of what is read of an answer that may yet be a call; -1 where there is none.
      rests: what is left of leads.
    """

    def __init__(self) -> None:
        self._number: dict[frozenset[Hashable], int] = {}
        self.prefix: list[int] = []
        self.prefixes: dict[bytes, int] = {}
        self.crossed: bool | None = None
        self.answer: Answer | None = None
        self.goes_on = NO_ROLE
        self.is_text: list[bool] = []
        self.begins_names: list[bool] = []
        self.begun: list[int] = []
        self._reads: dict[bytes, int] = {}
        self.rests = Rests()

    def __len__(self) -> int:
        return len(self.prefix)

    def number(self, labels: frozenset[Hashable]) -> int | bytes | None:
        """The role of a state by its labels; the name that it stands behind; None where it is both."""
        if (found := self._number.get(labels)) is not None:
            return found
        within: set[bytes] = set()
        behind: set[bytes] = set()
        text: list[Answer] = []
        outside = lead = False
        for label in labels:
            if isinstance(label, tuple):
                (within if len(label) == 2 else behind).add(label[1])
                lead = lead or isinstance(label[0], Answer)
            elif isinstance(label, str):
                return None
            elif label != END:
                outside, lead = True, lead or isinstance(label, (Answer, Before))
                text += [label] if isinstance(label, Answer) else []
        if len(within) > 1 or len(behind) > 1 or (behind and (outside or (within and within != behind))):
            return None
        if text and len(labels - {END}) > 1:
            return None
        if behind and not within:
            return behind.pop()
        if behind:  # the end of a name, which may be the beginning of another
            labels = frozenset(label for label in labels if not isinstance(label, tuple) or len(label) == 2)
            if (found := self._number.get(labels)) is not None:
                return found
        begun, is_certain = self._begun(labels) if lead else (None, True)
        if not is_certain:
            return None
        found = self._number[labels] = len(self.prefix)
        read = next(iter(within), b"")
        self.prefix.append(-1 if outside or not read else self.prefixes.setdefault(read, len(self.prefixes)))
        self.is_text.append(bool(text))
        self.begins_names.append(bool(within) and not read)
        self.begun.append(-1 if begun is None else self.read(begun))
        if text and not text[0].state:
            self.goes_on = found
        return found

    def read(self, text: bytes) -> int:
        """Number of what is read of an answer that may yet be a call."""
        return self._reads.setdefault(text, len(self._reads))

    def _begun(self, labels: frozenset[Hashable]) -> tuple[bytes | None, bool]:
        """(what is read of an answer that may yet be a call, None for none; whether that is certain)."""
        read: set[bytes] = set()
        answer = self.answer
        for label in labels:
            found = answer
            if isinstance(label, tuple):
                if isinstance(label[0], Answer):
                    found = label[0]
                    read.add(found.before + label[1])
            elif isinstance(label, Answer):
                found = dataclasses.replace(label, state=0)
            elif isinstance(label, Before):
                found = label.answer
                read.add(label.read)
            if found is not answer:  # one object, most often
                if answer is not None and found != answer:
                    return None, False
                answer = found
        if len(read) > 1:
            return None, False
        self.answer = answer
        return next(iter(read), None), True

    def alive(self, names: list[bytes]) -> np.ndarray:
        """bool[roles], roles outside of names, or in one of some names."""
        some = np.zeros(len(self.prefixes) + 1, bool)
        some[-1] = True
        known = self.prefixes.get
        some[[known(name[:read], -1) for name in names for read in range(len(name) + 1)]] = True
        return some[self.prefix]


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A compiled constraint of a form, ready to be joined with others. Arrays are as in `ConstraintArrays` if nothing is said.

    Axes: N nodes, A arcs, G wide groups, R rows.

    Attributes:
      arrays: those of the constraint but `rows`, with those of sets of keys even where it has none.
      start: its start.
      longest: its `max_pops` and `max_push`.
      outside: its roles outside of names.
      role: int64[N], role of each node, or NO_ROLE.
      names: of what stands behind a name in this constraint.
      arc_name: int64[A], place in `names` of what an arc of a node with a role leads to, -1 for none.
      after: role of the state behind the value, by symbol.
      hashes: uint64[R], of each row.
      group_cost, group_need: int64[G], of the groups of nodes with a role.
      taken: of each name, where answers may begin like calls, number of what is read of its lead << TOKEN_BITS | number of what
        is left of it; what answers go on with as text is left out.
      keys: masks of keys.
      guards: `unset` masks, `all` and `set` of each guard.
      cells: (row of `delta`, symbol, child) of its entries, int64[*] each.
      increments: contents of each table.
      symbols: by base symbol that is pushed, how many effective ones it has, and all that is known of these.
      more: by hash, rows that are not the constraint's.
    """

    arrays: dict[str, np.ndarray]
    start: int
    longest: tuple[int, int]
    outside: frozenset[int]
    role: np.ndarray
    names: tuple[bytes, ...]
    arc_name: np.ndarray
    after: dict[int, int]
    hashes: np.ndarray
    group_cost: np.ndarray
    group_need: np.ndarray
    taken: Mapping[bytes, np.ndarray]
    keys: tuple[int, ...]
    guards: tuple[tuple[tuple[int, ...], int, int], ...]
    cells: tuple[np.ndarray, np.ndarray, np.ndarray]
    increments: tuple[bytes, ...]
    symbols: dict[int, tuple[int, bytes]]
    num_delta_rows: int
    more: dict[int, np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        own = (self.role, self.arc_name, self.hashes, *self.cells, *self.taken.values())
        return sum(array.nbytes for array in (*self.arrays.values(), *own))

    @cached_property
    def inner_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """(targets, where those of each node begin): of nodes without a role what tokens lead to, of all what may be popped to.
        Rows of `delta` are nodes behind all others."""
        arrays, n = self.arrays, len(self.role)
        width = max(1, len(arrays["symbol_cost"]))
        nodes = np.arange(n)
        pops, rungs = arrays["pop_offset"] // width, arrays["ladder"][:, 1::2].sum(1)
        arcs, groups = (nodes.repeat(np.diff(arrays[f"{kind}_offset"])) for kind in ("arc", "group"))
        arc, group = (self.role[column] < 0 for column in (arcs, groups))
        source = [arcs[arc], groups[group], nodes, nodes, nodes.repeat(pops.shape[1]), nodes.repeat(rungs), n + self.cells[0]]
        target = [arrays["effects"][arrays["arc_effect"][arc], 0], arrays["group_next"][group], arrays["twin"],
                  n + arrays["delta_offset"] // width, n + pops.ravel(), joined(nodes + 1, rungs), self.cells[2]]  # fmt: skip
        size = n + self.num_delta_rows
        at, to = np.divmod(distinct(np.concatenate(source) * size + np.concatenate(target)), size)
        return to, firsts(at, size)

    @property
    def rows_in_use(self) -> np.ndarray:
        """The rows that the result of a join may have; masks of nodes with a role are made anew."""
        own = np.repeat(self.role < 0, np.diff(self.arrays["level_offset"]))
        return distinct(np.concatenate((self.arrays["group_row"], self.arrays["level_row"][own])))


def part_of(
    made: CompiledConstraint, automaton: TextAutomaton, states: tuple[str, ...], pointers: Mapping[str, str], roles: Roles,
    vocabulary: Vocabulary, pool: RowPool, closing: bytes,
) -> Part | None:  # fmt: skip
    """A constraint as a part; None where what it holds cannot be told apart.

    Args:
      made: deterministic.
      automaton: of its text.
      states: by node but the dead one, the state of the automaton, "" for none; nodes without a state may be left out at the end.
      pointers: the name before each value, by the value's pointer.
      roles: of the form; takes new ones.
      pool: makes new rows.
      closing: the last byte of every value behind a name.
    """
    if made.stacks != 1 or made.context or len(made.temperature) or np.diff(made.push_offset)[made.initial_push]:
        return None
    found = [labels if isinstance(labels, bytes) else roles.number(labels) for labels in automaton.labels[1:]]
    if not states or None in found:
        return None
    names = tuple(dict.fromkeys(name.encode() for name in pointers.values()))
    place = {name: i for i, name in enumerate(names)}
    role_of = np.array([NO_ROLE, *(f if isinstance(f, int) else NO_ROLE for f in found)])
    name_of = np.array([-1, *(place[f] if isinstance(f, bytes) else -1 for f in found)])
    state = np.zeros(made.num_nodes, np.int64)
    state[1 : 1 + len(states)] = [int(s) if s else 0 for s in states]
    role = role_of[state]
    if made.distance[1:].max(initial=0) >= UNBOUNDED or (made.has_sets and made.twin[role >= 0].any()):
        return None
    after = sorted({there for called in automaton.calls.values() for there in called.values()})
    symbols = range(made.num_symbols - len(after), made.num_symbols)
    behind = {symbol: int(role_of[there]) for symbol, there in zip(symbols, after)}
    if NO_ROLE in behind.values() or not _is_closed(made, state, role, roles, symbols[0]):
        return None
    if roles.crossed is None:
        roots = {number for number, f in enumerate(found, 1) if isinstance(f, int) and roles.begins_names[f]}
        roles.crossed = _crosses(automaton, pointers, roots, closing, vocabulary)
    if roles.crossed:
        return None
    reader = _Reader(automaton, place, vocabulary)
    made = _without_text(made, role, roles)
    leads = _named_arcs(made, state, role, name_of, reader, np.array([*(prefix >= 0 for prefix in roles.prefix), False]))
    costs = _group_costs(made, state, role, reader)
    if leads is None or costs is None:
        return None
    hashes = np.array([pool.tables.row_hash(row) for row in made.rows], np.uint64)
    left = None if automaton.left is None else automaton.left[state]
    whole = _with_leads(made, left, role, roles, (leads, *costs, hashes), pool)
    if whole is None:
        return None
    made, (leads, cost, need, hashes), more = whole
    arrays, keys, guards = _with_sets(made)
    cells, num_delta_rows = _cells(made)
    return Part(
        arrays=arrays, start=made.start, longest=(made.max_pops, made.max_push),
        outside=frozenset(f for f in found if isinstance(f, int) and roles.prefix[f] < 0),
        role=role, names=names, arc_name=leads, after=behind, hashes=hashes, group_cost=cost, group_need=need, more=more,
        taken=_taken(names, roles, pool.tables), keys=keys, guards=guards, cells=cells, num_delta_rows=num_delta_rows,
        increments=tuple(table.tobytes() for table in made.increments), symbols=_symbols(made, behind),
    )  # fmt: skip


def _without_text(made: CompiledConstraint, role: np.ndarray, roles: Roles) -> CompiledConstraint:
    """The constraint without what answers that may yet be calls go on with as any text."""
    begun, text = (np.array([*column, False])[role] for column in ([read >= 0 for read in roles.begun], roles.is_text))
    if not begun.any():
        return made
    node = np.arange(made.num_nodes)
    arcs, groups = node.repeat(np.diff(made.arc_offset)), node.repeat(np.diff(made.group_offset))
    arc, group = ~(begun[arcs] & text[made.arc_next]), ~(begun[groups] & text[made.group_next])
    return dataclasses.replace(
        made, arc_offset=firsts(arcs[arc], made.num_nodes), arc_token=made.arc_token[arc], arc_effect=made.arc_effect[arc],
        group_offset=firsts(groups[group], made.num_nodes), group_row=made.group_row[group], group_next=made.group_next[group],
        group_push=made.group_push[group], group_add=made.group_add[group], group_set=made.group_set[group],
    )  # fmt: skip


def _with_leads(
    made: CompiledConstraint, left: np.ndarray | None, role: np.ndarray, roles: Roles, columns: tuple[np.ndarray, ...],
    pool: RowPool,
) -> tuple[CompiledConstraint, tuple[np.ndarray, ...], dict[int, np.ndarray]] | None:  # fmt: skip
    """A sketch with what answers that have begun like a call, up to behind its name, go on with as any text.

    Args:
      left: by node, as by state of the automaton; None: no sketch.
      columns: names of arcs, costs and needs of groups, hashes of rows.

    Returns:
      The constraint, whose rows may have numbers behind the last one; the columns; the rows that were added, by hash. None where
      both the text and the call read a token, or there is no one place where an answer goes on.
    """
    if left is None or left.max() < 0:
        return made, columns, {}
    name, cost, need, hashes = columns
    texts = (role == roles.goes_on).nonzero()[0]
    if len(texts) != 1:
        return None
    nodes, answer, rests = (left >= 0).nonzero()[0], roles.answer, roles.rests
    assert answer is not None
    of = np.array(rests.numbers([answer.behind], [len(answer.behind) - 1], pool.tables)[0])
    called = Called.of(nodes, of[left[nodes]], distinct(of) << TOKEN_BITS | distinct(of), rests)
    every = np.arange(made.num_nodes)
    arcs = {"node": every.repeat(np.diff(made.arc_offset)), "token": made.arc_token.astype(np.int64), "effect": made.arc_effect,
            "name": name}  # fmt: skip
    groups = {"node": every.repeat(np.diff(made.group_offset)), "hash": hashes[made.group_row], "cost": cost, "need": need}
    groups |= {column: getattr(made, f"group_{column}") for column in ("next", "push", "add", "set")}
    for group in (left[groups["node"]] >= 0).nonzero()[0].tolist():
        cost[group], need[group] = _group_cost(made, int(groups["node"][group]), int(made.row_tokens(made.group_row[group])[0]))
    rows = Rows({int(hashes[row]): made.rows[row] for row in distinct(made.group_row).tolist()})
    both = with_text(arcs, groups, int(texts[0]), called, rows, pool.tables)
    if both is None:
        return None
    own = both[0] if not len(both[2]["node"]) else arcs
    own = {column: own[column][left[own["node"]] >= 0] for column in ("node", "token", "effect")}
    for entries in (own, both[2]):
        entries["cost"], entries["need"] = made.effects[entries["effect"], 4:6].T
    order, of_groups = order_of(both[0]["node"] << TOKEN_BITS | both[0]["token"]), order_of(both[1]["node"])
    arcs, groups = ({n: v[o] for n, v in entries.items()} for entries, o in zip(both[:2], (order, of_groups)))
    others = left[groups["node"]] >= 0
    some = {n: np.concatenate((groups[n][others], both[2][n])) for n in ("node", "hash", "cost", "need")}
    levels, hash_of_level, rows_of_levels = _with_levels(made, left, hashes, levels_of(own, some, rows, pool), pool)
    number = {row: place for place, row in enumerate(hashes.tolist())}
    more = {row: values for row, values in rows_of_levels.items() if row not in number}
    more |= {row: rows[row] for row in distinct(groups["hash"][others]).tolist() if row not in number}
    number |= {row: len(hashes) + place for place, row in enumerate(more)}
    numbers = [np.array([number[row] for row in column.tolist()], np.int64) for column in (groups["hash"], hash_of_level)]
    made = dataclasses.replace(
        made, arc_offset=firsts(arcs["node"], made.num_nodes), arc_token=arcs["token"], arc_effect=arcs["effect"],
        group_offset=firsts(groups["node"], made.num_nodes), group_row=numbers[0], group_next=groups["next"],
        group_push=groups["push"], group_add=groups["add"], group_set=groups["set"], level_row=numbers[1], **levels,
    )  # fmt: skip
    hashes = np.append(hashes, np.array(list(more), np.uint64))
    return made, (arcs["name"], groups["cost"], groups["need"], hashes), more


def _with_levels(
    made: CompiledConstraint, left: np.ndarray, hashes: np.ndarray, new: tuple[dict[str, np.ndarray], np.ndarray], pool: RowPool
) -> tuple[dict[str, Any], np.ndarray, dict[int, np.ndarray]]:
    """(the levels but their rows, the hash of each, rows of the new ones by hash); `new`: of the nodes of which `left` tells."""
    levels, union = new
    node = np.arange(made.num_nodes).repeat(np.diff(made.level_offset))
    kept = left[node] < 0
    node = np.concatenate((node[kept], levels["node"]))
    order = order_of(node)
    cost, need = (np.concatenate((getattr(made, f"level_{n}")[kept], levels[n]))[order] for n in ("cost", "need"))
    every = np.concatenate((hashes[made.level_row[kept]], union))[order]
    rows = {row: pool[place] for row, place in dict(zip(union.tolist(), levels["row"].tolist())).items()}
    return {"level_cost": cost, "level_need": need, "level_offset": firsts(node, made.num_nodes)}, every, rows


def _taken(names: tuple[bytes, ...], roles: Roles, tables: VocabularyTables) -> dict[bytes, np.ndarray]:
    if roles.answer is None or not names:
        return {}
    leads = [roles.answer.lead(name) for name in names]
    within = [len(lead) - len(roles.answer.behind) for lead in leads]
    left = roles.rests.numbers(leads, within, tables)
    return {
        name: np.array([roles.read(lead[:read]) << TOKEN_BITS | rest for read, rest in enumerate(rests)])
        for name, lead, rests in zip(names, leads, left)
    }


_FEW, _LONGEST = 4, 64
_NAMES = [*b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.", *range(128, 256)]


def _crosses(
    automaton: TextAutomaton, pointers: Mapping[str, str], roots: set[int], closing: bytes, vocabulary: Vocabulary
) -> bool:
    """Whether some token might lead from within a value, whose end has been read or not, into the next name or past it.

    That is for whatever names: a token that ends a value, and goes on up to the first letter of a name; or that begins behind a
    value, and goes on up to the end of the next one.
    """
    named = {number for number, node in enumerate(automaton.schemas) if node.pointer in pointers}
    after = sorted({there for called in automaton.calls.values() for number, there in called.items() if number in named})
    todo, found = [(state, b"") for state in after], list[bytes]()
    for state, text in todo:
        letters = automaton.table[state][automaton.byte_class[:256]].nonzero()[0].tolist()
        if state in roots or len(letters) > _FEW or len(text) > _LONGEST:
            some = re.escape(text) + b"[%s]" % re.escape(bytes(_NAMES if state in roots else letters))
            found += [re.escape(closing) + some, some + b".*" + re.escape(closing)]
        else:
            todo += [(int(automaton.table[state, automaton.byte_class[letter]]), text + bytes([letter])) for letter in letters]
    matches = re.compile(b"|".join(found), re.DOTALL).search
    data, end = b"".join(vocabulary.tokens), np.fromiter(map(len, vocabulary.tokens), np.int64, vocabulary.size).cumsum()
    closed = distinct(end.searchsorted((np.frombuffer(data, np.uint8) == closing[0]).nonzero()[0], side="right"))
    return bool(found) and any(matches(vocabulary.tokens[token]) for token in closed.tolist())


def _cells(made: CompiledConstraint) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], int]:
    """((row, symbol, child) of the entries of `delta`; how many rows it has)."""
    delta = made.delta.reshape(-1, max(1, made.num_symbols))
    row, symbol = delta.nonzero()
    return (row, symbol, delta[row, symbol].astype(np.int64)), len(delta)


def _symbols(made: CompiledConstraint, after: Mapping[int, int]) -> dict[int, tuple[int, bytes]]:
    columns = [made.symbol_ladder, made.symbol_cost[:, None], made.symbol_need[:, None], made.symbol_slope]
    table, out = np.concatenate(columns, axis=1), dict[int, tuple[int, bytes]]()
    for symbol in distinct(made.push_symbol).tolist():
        size = 1 + int(made.symbol_ladder[symbol, 1] + made.symbol_ladder[symbol, 3])
        out[symbol] = size, b"%d " % after.get(symbol, -1) + table[symbol : symbol + size].tobytes()
    return out


def _is_closed(made: CompiledConstraint, state: np.ndarray, role: np.ndarray, roles: Roles, first_after: int) -> bool:
    """Whether no token from inside a value, or from behind a name, reaches into a name."""
    named = np.array([*(prefix >= 0 for prefix in roles.prefix), False])
    into = named[role]
    source = np.arange(made.num_nodes).repeat(np.diff(made.arc_offset))
    if into[made.arc_next[role[source] < 0]].any():
        return False
    outermost = np.append(made.push_symbol, -1)[made.push_offset[:-1]] >= first_after
    if (outermost[made.arc_push] & (made.arc_push > 0) & (state[source] == 0)).any():
        return False
    source = np.arange(made.num_nodes).repeat(np.diff(made.group_offset))
    return not into[made.group_next[role[source] < 0]].any()


class _Reader:
    """Reads tokens in the automaton of a text."""

    def __init__(self, automaton: TextAutomaton, place: Mapping[bytes, int], vocabulary: Vocabulary) -> None:
        self._automaton, self._place, self._tokens = automaton, place, vocabulary.tokens

    def name(self, state: int, token: int) -> int | None:
        """Place of the name before the value that a token leads into; -1 for none; None where it could be several."""
        automaton = self._automaton
        text = self._tokens[token]
        letters = list(text) if text else [256 + automaton.specials.index(token)]
        for letter in letters:
            there = int(automaton.table[state, automaton.byte_class[letter]])
            if not there:
                labels = automaton.labels[state]
                within = [] if isinstance(labels, bytes) else [label for label in labels if isinstance(label, tuple)]
                behind = [label[1] for label in within if len(label) == 3]  # the value does not tell: names may share one
                behind += [labels] if isinstance(labels, bytes) else []
                if len(automaton.calls.get(state, {})) != 1 or (within and not behind):
                    return None
                return self._place[behind[0]] if behind else -1
            state = there
        return -1


def _named_arcs(
    made: CompiledConstraint, state: np.ndarray, role: np.ndarray, name_of: np.ndarray, reader: _Reader, named: np.ndarray
) -> np.ndarray | None:
    """int64[A], which name the arcs of nodes with a role lead behind, if only for a while; `named`: roles within names."""
    source = np.arange(made.num_nodes).repeat(np.diff(made.arc_offset))
    target = made.arc_next
    out = name_of[state[target]]
    out[role[source] < 0] = -1
    unknown = ((role[source] >= 0) & (name_of[state[target]] < 0) & ~named[role[target]]).nonzero()[0]
    for arc in unknown.tolist():
        found = reader.name(int(state[source[arc]]), int(made.arc_token[arc]))
        if found is None:
            return None
        out[arc] = found
    return out


def _group_costs(
    made: CompiledConstraint, state: np.ndarray, role: np.ndarray, reader: _Reader
) -> tuple[np.ndarray, np.ndarray] | None:
    """What the tokens of the groups of nodes with a role cost and need; None where one leads behind a name."""
    cost, need = np.zeros(len(made.group_row), np.int64), np.zeros(len(made.group_row), np.int64)
    source = np.arange(made.num_nodes).repeat(np.diff(made.group_offset))
    for group in (role[source] >= 0).nonzero()[0].tolist():
        node, token = int(source[group]), int(made.row_tokens(made.group_row[group])[0])
        if reader.name(int(state[node]), token) != -1:
            return None
        cost[group], need[group] = _group_cost(made, node, token)
    return cost, need


def _group_cost(made: CompiledConstraint, node: int, token: int) -> tuple[int, int]:
    """What a token of a group costs and needs."""
    levels = slice(made.level_offset[node], made.level_offset[node + 1])
    holds = made.rows[made.level_row[levels], token >> 5] >> np.uint32(token & 31) & 1
    first = int(holds.argmax())
    return int(made.level_cost[levels][first]), int(made.level_need[levels][first])


def _with_sets(
    made: CompiledConstraint,
) -> tuple[dict[str, np.ndarray], tuple[int, ...], tuple[tuple[tuple[int, ...], int, int], ...]]:
    """(the arrays, those of sets filled in where there are none; masks of keys; guards)."""
    arrays = {name: getattr(made, name) for name in ARRAYS if name not in ("rows", "keys", "guards", "delta", "increments")}
    n = made.num_nodes
    if not made.has_sets:
        arrays |= {
            "twin": np.zeros(n, np.int32), "wanted": np.zeros((n, 2), np.int32), "pop_guard": np.zeros((n, 1), np.int32),
            "pop_offset": np.tile(made.delta_offset[:, None], (1, 2)), "push_keys": np.zeros(len(made.push_symbol), np.int32),
            "effects": np.pad(made.effects, ((0, 0), (0, 2))),
        }  # fmt: skip
        return arrays, (0,), (((), 0, 0),)
    keys = tuple(int.from_bytes(row.tobytes(), "little") for row in made.keys)
    guards = tuple((tuple(keys[at : at + count]), keys[every], keys[some]) for at, count, every, some in made.guards.tolist())
    return arrays, keys, guards
