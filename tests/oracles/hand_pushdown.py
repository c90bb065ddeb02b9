"""Small pushdown and counter constraints made by hand: byte machines written as dictionaries, and their artifacts by brute force.

Nothing of the compiler is used but the `ByteMachine` record, whose `run` is the byte-level reference for every artifact here.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.arrays import ARC_BURST
from fsa_compile.artifact.effects import arc_effects
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine


@dataclasses.dataclass(frozen=True)
class TokenSet:
    """Tokens of one effect at a node; see `fsa_compile.artifact.arrays`. `lands`: the node it leads to where that is not the base;
    `extra`: what the slope adds there."""

    tokens: tuple[int, ...]
    target: int
    push: tuple[int, ...] = ()
    add: int = 0
    set_to: int = 0
    lands: int = 0
    extra: int = 0


@dataclasses.dataclass(frozen=True)
class Node:
    """A node by its definition."""

    sets: tuple[TokenSet, ...] = ()
    accept: bool = False
    distance: int = 0
    need: int = 0
    ladder: tuple[int, int, int, int] = (0, 0, 0, 0)
    slope: tuple[int, int, int] = (0, 1, 0)


def from_nodes(
    nodes: Sequence[Node],
    vocab_size: int,
    *,
    stop_ids: tuple[int, ...] = (0,),
    symbols: Sequence[tuple[int, int]] = (),
    symbol_ladders: Sequence[tuple[int, int, int, int]] | None = None,
    delta: Mapping[tuple[int, int], int] | None = None,
    initial: tuple[int, ...] = (),
    increments: Iterable[Sequence[int]] = (),
    stacks: int = 1,
    start: int = 1,
    wide: int = 3,
) -> CompiledConstraint:
    """The artifact of nodes written down one by one; node 0 must be `Node()`.

    Args:
      nodes: all nodes.
      vocab_size: V.
      stop_ids: end-of-text ids.
      symbols: cost and need of each effective symbol.
      symbol_ladders: of each symbol; none by default.
      delta: (node, symbol) -> node.
      initial: symbols of the initial stack (registers 0).
      increments: per-token tables.
      stacks: K.
      start: first node.
      wide: token sets of at least this many tokens become bit rows.
    """
    delta = delta or {}
    num_symbols = len(symbols)
    words = (vocab_size + 31) // 32
    rows: dict[bytes, int] = {np.zeros(words, np.uint32).tobytes(): 0}
    strings: dict[tuple[int, ...], int] = {(): 0}

    def row_of(tokens: Iterable[int]) -> int:
        bits = np.zeros(words * 32, bool)
        bits[list(tokens)] = True
        return rows.setdefault(np.packbits(bits, bitorder="little").tobytes(), len(rows))

    def limits_of(s: TokenSet) -> tuple[int, int]:
        node = s.lands or s.target
        cost = 1 + s.extra + nodes[node].distance + sum(symbols[p][0] for p in s.push)
        return cost, max([len(s.push) + nodes[node].need, *(i + symbols[p][1] for i, p in enumerate(s.push))])

    groups, arcs, levels = [], [], []
    offsets: list[list[int]] = [[0], [0], [0]]
    for node in nodes:
        broad = [s for s in node.sets if len(s.tokens) >= wide]
        narrow = sorted((t, i) for i, s in enumerate(node.sets) if len(s.tokens) < wide for t in s.tokens)
        for s in node.sets:
            strings.setdefault(s.push, len(strings))
        groups += [(row_of(s.tokens), s.target, strings[s.push], s.add, s.set_to) for s in broad]
        for token, i in narrow:
            s = node.sets[i]
            arcs.append((token, s.target, strings[s.push], s.add, s.set_to, *limits_of(s)))
        if broad or len(narrow) > ARC_BURST:
            each = [(limits_of(s), s.tokens) for s in node.sets]
            grid = [(c, n) for c in sorted({c for (c, _), _ in each}) for n in sorted({n for (_, n), _ in each})]
            for c, n in grid:
                row = row_of(t for (cost, need), tokens in each if cost <= c and need <= n for t in tokens)
                if row:
                    levels.append((c, n, row))
        for offset, items in zip(offsets, (groups, arcs, levels)):
            offset.append(len(items))
    initial_push = strings.setdefault(initial, len(strings))
    table = np.zeros((len(nodes), num_symbols), np.int32)
    for (node_id, symbol), child in delta.items():
        table[node_id, symbol] = child
    segments, which = np.unique(table, axis=0, return_inverse=True) if num_symbols else (table[:0], np.zeros(len(nodes), int))
    column = lambda items, width: np.array(items, np.int32).reshape(-1, width).T.copy()  # noqa: E731
    group, arc, level = column(groups, 5), column(arcs, 7), column(levels, 3)
    effects, effect = arc_effects(*arc[1:])
    name = f"{vocab_size} {stop_ids} ".encode()  # as `hand_made` does
    text = [x for s in strings for x in s]
    return CompiledConstraint(
        vocab_size=vocab_size,
        fingerprint=hashlib.sha256(name).hexdigest(),
        stop_ids=stop_ids,
        source="by hand",
        start=start,
        accept=np.array([n.accept for n in nodes]),
        distance=np.array([2**30] + [n.distance for n in nodes[1:]], np.int32),
        rows=np.frombuffer(b"".join(rows), np.uint32).reshape(len(rows), -1).copy(),
        group_offset=np.array(offsets[0], np.int32),
        group_row=group[0],
        group_next=group[1],
        group_push=group[2],
        group_add=group[3],
        group_set=group[4],
        arc_offset=np.array(offsets[1], np.int32),
        arc_token=arc[0],
        arc_effect=effect,
        effects=effects,
        level_offset=np.array(offsets[2], np.int32),
        level_cost=level[0],
        level_need=level[1],
        level_row=level[2],
        level_slope=np.array([n.slope for n in nodes], np.int32),
        need=np.array([n.need for n in nodes], np.int32),
        ladder=np.array([n.ladder for n in nodes], np.int32),
        increments=np.array(list(increments), np.uint16).reshape(-1, vocab_size),
        push_offset=np.cumsum([0, *(len(s) for s in strings)]).astype(np.int32),
        push_symbol=np.array(text, np.int32),
        push_register=np.zeros(len(text), np.int32),
        symbol_ladder=np.array(symbol_ladders or [(0, 0, 0, 0)] * num_symbols, np.int32).reshape(-1, 4),
        symbol_cost=np.array([c for c, _ in symbols], np.int32),
        symbol_need=np.array([n for _, n in symbols], np.int32),
        symbol_slope=np.array([(0, 1, 0)] * num_symbols, np.int32).reshape(-1, 3),
        delta_offset=(which.reshape(-1) * num_symbols).astype(np.int32),
        delta=segments.reshape(-1).astype(np.int32),
        initial_push=initial_push,
        max_pops=longest_path(delta),
        max_push=max(map(len, strings)),
        stacks=stacks,
    )


def longest_path(delta: Mapping[tuple[int, int], int]) -> int:
    """Edges on the longest path of `delta`."""
    after: dict[int, set[int]] = {}
    for (node, _), child in delta.items():
        after.setdefault(node, set()).add(child)

    def length(node: int) -> int:
        return max((1 + length(child) for child in after.get(node, ())), default=0)

    return max(map(length, after), default=0)


Moves = Mapping[tuple[int, str], Sequence[tuple]]
"""(control, character) -> what can happen: ("move", control), ("push", symbols, control), ("return",)."""


def machine(
    moves: Moves,
    returns: Mapping[tuple[int, int], int],
    ends: Mapping[int, int],
    *,
    start: int = 1,
    stack: tuple[int, ...] = (),
) -> ByteMachine:
    """A byte machine from dictionaries: `returns` (control, symbol) -> control, `ends` control -> END_HERE or END_RETURN."""
    targets = [t[-1] for options in moves.values() for t in options if t[0] != "return"]
    num = 1 + max([start, *targets, *(c for c, _ in moves), *returns.values()])
    num_symbols = 1 + max([-1, *stack, *(s for _, s in returns)])
    letters = sorted({ch for _, ch in moves})
    classes = np.zeros(256, np.int32)
    for i, ch in enumerate(letters):
        classes[ord(ch)] = i + 1
    action = np.zeros((num, len(letters) + 1), np.int32)
    offset, after, pushed = [0, 0], [], []
    pushes: dict[tuple, int] = {(): 0}
    for (control, ch), options in moves.items():
        action[control, letters.index(ch) + 1] = len(offset) - 1
        for kind, *rest in options:
            string = tuple((s, 0) for s in rest[0]) if kind == "push" else ()
            after.append(RETURN if kind == "return" else rest[-1])
            pushed.append(pushes.setdefault(string, len(pushes)))
        offset.append(len(after))
    ret = np.zeros((num, num_symbols), np.int32)
    for (control, symbol), back in returns.items():
        ret[control, symbol] = back
    return ByteMachine(
        byte_class=classes,
        specials=(),
        action=action,
        entry_offset=np.array(offset, np.int32),
        entry_next=np.array(after, np.int32),
        entry_push=np.array(pushed, np.int32),
        entry_add=np.zeros(len(after), np.int8),
        pushes=tuple(pushes),
        ret=ret,
        end=np.array([ends.get(c, NO_END) for c in range(num)], np.int8),
        bounds=np.full((num, 2), UNCOUNTED, np.int32),
        start=start,
        stack=stack,
        deterministic=all(len(options) == 1 for options in moves.values()),
    )


def composed(m: ByteMachine, tokens: Sequence[bytes], *, stop_ids: tuple[int, ...] = (0,), stacks: int = 1) -> CompiledConstraint:
    """The artifact of an uncounted machine by brute force: every token from every node, byte by byte.

    Args:
      m: the machine; every byte it can read must be a token.
      tokens: bytes per id; stop ids are skipped.
      stop_ids: end-of-text ids.
      stacks: K.
    """
    text = {t: data for t, data in enumerate(tokens) if t not in stop_ids and data}
    cost, need, symbols = _limits(m)
    controls = list(range(m.num_controls))
    # A node is a set of (token or None for the end, bytes read, control): what remains after popping.
    nodes: list[frozenset | None] = [None] * len(controls)
    ids: dict[frozenset, int] = {}
    made = [Node()]
    delta: dict[tuple[int, int], int] = {}
    at = 1
    while at < len(nodes):
        inner = nodes[at]
        items = inner if inner is not None else {(t, 0, at) for t in [*text, None]}
        found: dict[tuple, set[int]] = {}
        pending, accept = set(), False
        for t, read, control in items:
            if t is None:
                accept |= m.end[control] == END_HERE
                pending |= {(None, 0, control)} if m.end[control] == END_RETURN else set()
            else:
                _run(m, text[t], t, read, control, found, pending)
        for symbol in range(m.num_symbols):
            child = frozenset((t, read, int(m.ret[c, symbol])) for t, read, c in pending if m.ret[c, symbol])
            child = frozenset(x for x in child if _lives(m, x, text))
            if child:
                if child not in ids:
                    ids[child] = len(nodes)
                    nodes.append(child)
                delta[at, symbol] = ids[child]
        sets = tuple(TokenSet(tuple(sorted(ts)), target, push) for (target, push), ts in sorted(found.items()))
        own = inner is None
        made.append(Node(sets, accept, cost[at] if own else 0, need[at] if own else 0))
        at += 1
    return from_nodes(
        made, len(tokens), stop_ids=stop_ids, symbols=symbols, delta=delta, initial=m.stack, stacks=stacks, start=m.start
    )


def _run(m: ByteMachine, data: bytes, token: int, read: int, control: int, found: dict, pending: set) -> None:
    todo = [(read, control, ())]
    while todo:
        i, c, stack = todo.pop()
        if i == len(data):
            found.setdefault((c, stack), set()).add(token)
            continue
        action = m.action[c, m.byte_class[data[i]]]
        for e in range(m.entry_offset[action], m.entry_offset[action + 1]):
            if m.entry_next[e] != RETURN:
                todo.append((i + 1, int(m.entry_next[e]), stack + tuple(s for s, _ in m.pushes[m.entry_push[e]])))
            elif not stack:
                pending.add((token, i, c))
            elif m.ret[c, stack[-1]]:
                todo.append((i, int(m.ret[c, stack[-1]]), stack[:-1]))


def _lives(m: ByteMachine, item: tuple, text: Mapping[int, bytes]) -> bool:
    """Whether what remains of a token may lead anywhere, whatever lies below."""
    token, read, control = item
    if token is None:
        return m.end[control] != NO_END
    found: dict = {}
    pending: set = set()
    _run(m, text[token], token, read, control, found, pending)
    return bool(found or pending)


def _limits(m: ByteMachine) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Least tokens and cells of every control to the end of its frame, and of every symbol; one witness for both."""
    far = 10**6
    need, symbol_need = [far] * m.num_controls, [0] * m.num_symbols
    cost, symbol_cost = [far] * m.num_controls, [0] * m.num_symbols
    options: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(m.num_controls)]
    done = [m.end[c] != NO_END for c in range(m.num_controls)]
    for c in range(1, m.num_controls):
        for action in set(m.action[c].tolist()) - {0}:
            for e in range(m.entry_offset[action], m.entry_offset[action + 1]):
                if m.entry_next[e] == RETURN:
                    done[c] = True
                else:
                    options[c].append((int(m.entry_next[e]), tuple(s for s, _ in m.pushes[m.entry_push[e]])))
    for values, of_symbol, least in ((need, symbol_need, _need_of), (cost, symbol_cost, _cost_of)):
        for _ in range(4 * m.num_controls):
            for c in range(1, m.num_controls):
                fitting = [o for o in options[c] if values is need or _need_of(need, symbol_need, *o) <= need[c]]
                values[c] = 0 if done[c] else min([far, *(least(values, of_symbol, *o) for o in fitting)])
            for s in range(m.num_symbols):
                of_symbol[s] = max([0, *(values[m.ret[c, s]] for c in range(m.num_controls) if m.ret[c, s])])
    return cost, need, list(zip(symbol_cost, symbol_need))


def _need_of(need: list[int], of_symbol: list[int], target: int, push: tuple[int, ...]) -> int:
    return max([len(push) + need[target], *(i + of_symbol[s] for i, s in enumerate(push))])


def _cost_of(cost: list[int], of_symbol: list[int], target: int, push: tuple[int, ...]) -> int:
    return 1 + cost[target] + sum(of_symbol[s] for s in push)


def brackets() -> ByteMachine:
    """One item: a letter, or items in round or square brackets; `x` inside round ones is closed by `y`, two calls at once."""
    moves = {
        (1, "a"): [("move", 2)],
        (1, "("): [("push", (0,), 3)],
        (1, "["): [("push", (1,), 4)],
        (1, "x"): [("push", (0, 2), 6)],
    }
    returns: dict[tuple[int, int], int] = {}
    for inside, close in ((3, ")"), (4, "]")):
        moves |= {
            (inside, "a"): [("move", inside)],
            (inside, "("): [("push", (2 + inside - 3,), 3)],
            (inside, "["): [("push", (2 + inside - 3,), 4)],
            (inside, close): [("move", 5)],
        }
    # 5: a bracket was closed: its frame returns on whatever follows. Symbols 0, 1: at the top; 2, 3: inside ( and [.
    moves |= {(5, ch): [("return",)] for ch in "a()[]"}
    moves[6, "y"] = [("move", 5)]
    returns |= {(5, 0): 2, (5, 1): 2, (5, 2): 3, (5, 3): 4}
    return machine(moves, returns, {2: END_HERE, 5: END_RETURN})


BRACKET_TOKENS = [
    b"", b"a", b"(", b")", b"[", b"]", b"x", b"y", b"()", b"))", b")]", b"](", b"((", b"([", b")))", b"a)", b"aa", b"aaa", b"]]",
    b")](", b"a)a", b"([a", b"))a", b"[]", b"[[]", b"y)", b")])", b"a]", b"(a)", b"((((", b"[[[[", b"]]]]", b"a((", b"a[(a)a]",
]  # fmt: skip
"""A vocabulary for `brackets`; id 0 ends the text."""


def twins() -> ByteMachine:
    """a^n b^n or a^n c^n, n ≥ 1: which of the two was meant shows after the last a, so two configurations are needed."""
    moves = {
        (1, "a"): [("move", 2), ("move", 3)],
        (2, "a"): [("push", (0,), 2)],
        (3, "a"): [("push", (1,), 3)],
        (2, "b"): [("move", 4)],
        (3, "c"): [("move", 5)],
        (4, "b"): [("return",)],
        (5, "c"): [("return",)],
        (6, "b"): [("move", 4)],
        (7, "c"): [("move", 5)],
    }
    returns = {(4, 0): 6, (5, 1): 7, (4, 2): 8, (5, 2): 8}
    return machine(moves, returns, {4: END_RETURN, 5: END_RETURN, 8: END_HERE}, stack=(2,))


def palindromes() -> ByteMachine:
    """A word of a and b, then its mirror image: no number of configurations is enough."""
    moves: dict = {(2, "a"): [("return",)], (2, "b"): [("return",)], (3, "a"): [("move", 2)], (4, "b"): [("move", 2)]}
    for symbol, ch in enumerate("ab"):
        moves[1, ch] = [("push", (symbol,), 1), ("push", (symbol,), 2)]
    return machine(moves, {(2, 0): 3, (2, 1): 4, (2, 2): 5}, {2: END_RETURN, 5: END_HERE}, stack=(2,))


COUNTED_TOKENS = [b"", b"[", b"]", b"a", b"aa", b"aaa", b"(", b")", b"][", b"])", b"b", b"c"]
"""A vocabulary for `counted`; id 0 ends the text."""


def counted(low: int, high: int, most: int = 3) -> CompiledConstraint:
    """`(`, 1 to `most` items, `)`; an item is `[`, low to high of the letters a, b, c, `]`. Needs 1 ≤ low ≤ high ≥ 3.

    Two registers, letters in an item and items so far; a ladder and a slope for the first, a ladder of symbols for the second,
    and a per-token table of letters.
    """
    below = max(low - 3, 0)  # class 0 of an item: this many letters or fewer
    rungs = high - below
    ones, two, three = (3, 10, 11), (4,), (5,)
    t0, o0, closed, done, first = 1, 2, 3, 4, 5
    item = list(range(first, first + rungs + 1))
    resumed = {m: item[-1] + m for m in range(1, most + 1)}  # after an item, m so far: `[` or `)`
    both = {m: item[-1] + most + m for m in range(1, most + 1)}  # the same for tokens that also close the item
    ended, accepting = item[-1] + 2 * most + 1, item[-1] + 2 * most + 2
    away = -(-below // 3)
    enter = {"target": item[0], "push": (1,), "add": 1, "extra": away}
    nodes = {
        t0: Node((TokenSet((6,), o0, (0,)),), distance=4 + away + -(-(low - below) // 3), need=2),
        o0: Node((TokenSet((1,), **enter),), distance=3 + away + -(-(low - below) // 3), need=1),
        closed: Node(),
        done: Node(accept=True),
        ended: Node(),
        accepting: Node(accept=True),
    }
    for i, node in enumerate(item):
        letters, sets = below + i, []
        for k, tokens in ((1, ones), (2, two), (3, three)):
            if letters + k <= high:
                sets.append(TokenSet(tokens, item[0], add=-1, lands=item[min(i + k, rungs)]))
        if letters >= low:
            sets.append(TokenSet((2,), closed))
        left = -(-max(0, low - letters) // 3) + 1
        slope = (below, 3, 1) if i == 0 else (0, 1, 0)
        nodes[node] = Node(tuple(sets), distance=left, ladder=(below, rungs, 0, 0) if i == 0 else (0, 0, 0, 0), slope=slope)
    delta = {(ended, 0): accepting}
    for m in range(1, most + 1):
        for at, again, end in ((resumed[m], 1, 7), (both[m], 8, 9)):
            more = (TokenSet((again,), **enter),) if m < most else ()
            nodes[at] = Node((*more, TokenSet((end,), ended)))
        delta[closed, 1 + m] = resumed[m]
        delta |= {(node, 1 + m): both[m] for i, node in enumerate(item) if below + i >= low}
    table = [len(text) if text.isalpha() else 0 for text in COUNTED_TOKENS]
    return from_nodes(
        [Node(), *(nodes[i] for i in sorted(nodes))],
        len(COUNTED_TOKENS),
        symbols=[(0, 0)] + [(1, 1 if m < most else 0) for m in range(most + 1)],
        symbol_ladders=[(0, 0, 0, 0), (0, most, 0, 0)] + [(0, 0, 0, 0)] * most,
        delta=delta,
        increments=[table],
    )
