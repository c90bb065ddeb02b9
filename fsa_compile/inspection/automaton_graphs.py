"""Automata as labelled graphs, cut and merged to what can be read: constraints, items, byte automata, machines with a stack.

Arcs between the same two states are one. States inside a character of UTF-8 are left out: the arcs around them are labelled with
characters. States far from the start are counted. `+name` on an arc enters a frame, `end of name` leaves one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.artifact.stack_view import symbol_name
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, RETURN, ByteMachine
from fsa_compile.errors import ConstraintError
from fsa_compile.inspection.explain import token_text

Automaton: TypeAlias = CompiledConstraint | CompiledItems | ByteDfa | ByteMachine
Bits: TypeAlias = NDArray[np.bool_]

MOST_NODES, _MOST_ARCS = 20, 24
"""States and arcs of a picture, unless the user says how many states."""
_MOST_RANGES = 8
"""Ranges of characters written on one arc; of more, some are left out."""
_PIECES = "characters in several tokens"
_LAST_SCALAR, _SURROGATES = 0x10FFFF, slice(0xD800, 0xE000)


@dataclasses.dataclass(frozen=True)
class Graph:
    """A labelled automaton, cut to the states that are drawn.

    Attributes:
      nodes: state numbers, breadth first from the start, which comes first.
      accepting: those of them that accept.
      edges: (source, target, label), one per pair of drawn states.
      hidden: number of states that are not drawn for their distance from the start.
      cut: drawn states with arcs to states that are not.
      merged: number of states inside characters, which are not drawn; the arcs around them tell their characters.
      names: what is written in a state, where it is not its number.
    """

    nodes: tuple[int, ...]
    accepting: frozenset[int]
    edges: tuple[tuple[int, int, str], ...]
    hidden: int
    cut: frozenset[int]
    merged: int = 0
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @property
    def remark(self) -> str:
        """What the picture leaves out, in words; "" for nothing."""
        far = f"the {len(self.nodes)} states nearest to the start; {self.hidden:,} more" if self.hidden else ""
        inside = f"{self.merged:,} states inside characters are not drawn" if self.merged else ""
        return "; ".join(part for part in (far, inside) if part)


@dataclasses.dataclass(frozen=True)
class _Outline:
    """What is drawn of an automaton: its start, `accept` by state, its number of states, (target, label) of a state's arcs."""

    start: int
    accept: Any
    total: int
    arcs: Callable[[int], list[tuple[int, str]]]
    merged: Callable[[], int] = lambda: 0


def graph_of(automaton: Any, tokenizer: Any, *, max_nodes: int, max_labels: int, pieces: bool) -> Graph:
    """The first states of an automaton and their arcs; the arguments are those of `draw.build_graph`."""
    outline = _outline(automaton, tokenizer, max_labels, pieces)
    nodes, edges, cut = [outline.start], [], set()
    known = {outline.start}
    for source in nodes:  # grows while it is read
        for target, label in outline.arcs(source):
            if target not in known and len(nodes) < max_nodes:
                known.add(target)
                nodes.append(target)
            if target in known:
                edges.append((source, target, label))
            else:
                cut.add(source)
    accepting, merged = frozenset(n for n in nodes if outline.accept[n]), outline.merged()
    hidden = max(outline.total - len(nodes) - merged, 0) if cut else 0  # else all that can be reached is drawn
    return Graph(tuple(nodes), accepting, tuple(edges), hidden, frozenset(cut), merged)


def readable(graph: Graph) -> Graph:
    """The first states of a graph, as many as have no more arcs than can be followed."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    whole = sorted(max(number[source], number[target]) for source, target, _ in graph.edges)  # drawn from this state on
    if len(whole) <= _MOST_ARCS:
        return graph
    keep = set(graph.nodes[: max(whole[_MOST_ARCS], 2)])
    edges = tuple(edge for edge in graph.edges if edge[0] in keep and edge[1] in keep)
    lost = {source for source, target, _ in graph.edges if source in keep and target not in keep}
    return dataclasses.replace(
        graph,
        nodes=graph.nodes[: len(keep)],
        accepting=graph.accepting & keep,
        edges=edges,
        hidden=graph.hidden + len(graph.nodes) - len(keep),
        cut=(graph.cut & keep) | lost,
        names={node: name for node, name in graph.names.items() if node in keep},
    )


def _outline(automaton: Any, tokenizer: Any, max_labels: int, pieces: bool) -> _Outline:
    if isinstance(automaton, ByteDfa | ByteMachine):
        view = _DfaBytes(automaton, pieces) if isinstance(automaton, ByteDfa) else _MachineBytes(automaton, pieces)
        return _Outline(automaton.start, view.accept, view.total, view.arcs, lambda: len(view.seen))
    artifact = getattr(automaton, "artifact", automaton)  # what `LanguageModel.compile` returns holds one
    if not isinstance(artifact, CompiledConstraint | CompiledItems):
        what = f"a {type(automaton).__name__} cannot be drawn"
        fix = "Give a compiled constraint, a language such as fsa_compile.regex(...), or an automaton: regex(...).to_byte_dfa()."
        raise ConstraintError(what, fix=fix)
    if tokenizer is not None:
        check_vocabulary(artifact, tokenizer)
    vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
    tokens = getattr(vocabulary, "tokens", None)  # numbered ids have none
    if isinstance(artifact, CompiledItems):
        return _Outline(0, artifact.distance == 0, artifact.num_nodes, lambda node: _item_arcs(artifact, tokens, node))
    whole = _TokenArcs(artifact, tokens, max_labels, pieces)
    return _Outline(artifact.start, artifact.accept, artifact.num_nodes - 1, whole.arcs, lambda: len(whole.seen))


def graph_to_dot(graph: Graph) -> str:
    """Graphviz text of a graph."""
    lines = [
        "digraph automaton {",
        "  rankdir=LR;",
        '  node [shape=circle, fontname="Helvetica", fontsize=11, style=filled, fillcolor="#e8eef4"];',
        '  edge [fontname="Helvetica", fontsize=10];',
        '  start [shape=point, label=""];',
        f"  start -> {graph.nodes[0]};",
    ]
    lines += [f"  {node} [label={_quoted(name)}];" for node, name in graph.names.items()]
    lines += [f"  {n} [shape=doublecircle];" for n in graph.nodes if n in graph.accepting]
    lines += [f"  {source} -> {target} [label={_quoted(wrapped(label))}];" for source, target, label in graph.edges]
    if graph.hidden:
        lines.append(f'  more [shape=plaintext, style="", label="… {graph.hidden:,} more states"];')
        lines += [f"  {n} -> more [style=dashed];" for n in sorted(graph.cut)]
    return "\n".join([*lines, "}", ""])


class _TokenArcs:
    """Arcs of a constraint's states.

    Args:
      tokens: texts of its tokens; None writes ids.
      max_labels: most texts of one set of tokens.
      pieces: whether states inside a character are drawn.

    Attributes:
      seen: states inside a character that were met.
    """

    def __init__(self, constraint: CompiledConstraint, tokens: Sequence[bytes] | None, max_labels: int, pieces: bool) -> None:
        self._constraint, self._tokens, self._most = constraint, tokens, max_labels
        self._continues: Bits | None = None  # bool[V], tokens that begin inside a character
        if tokens is not None and not pieces:
            self._continues = np.array([bool(t) and 0x80 <= t[0] < 0xC0 for t in tokens], bool)
        self._inside: dict[int, bool] = {}
        self.seen: set[int] = set()

    def arcs(self, state: int) -> list[tuple[int, str]]:
        """Targets of a state with the tokens that lead there, in words; targets of few tokens first, frames that end last."""
        c, found = self._constraint, self._moves(state)
        labels: dict[int, list[str]] = {}
        through: dict[int, None] = {}
        for (target, push), present in sorted(found.items(), key=lambda item: (int(item[1].sum()), item[0])):
            if self.inside(target):
                through.update(dict.fromkeys(self._beyond(target)))
                continue
            ids = np.flatnonzero(present)
            texts = [str(i) if self._tokens is None else token_text(self._tokens[i]) for i in ids[:400]]
            texts = sorted(dict.fromkeys(texts), key=lambda t: (not t.isascii(), "\\x" in t, len(t), t))
            labels.setdefault(target, []).append(_summary(texts, len(ids), self._most) + _pushed(c, push))
        for target in through:
            labels.setdefault(target, []).append(_PIECES)
        for symbol in range(c.num_symbols):
            child = int(c.delta[c.delta_offset[state] + symbol])
            if child:
                labels.setdefault(child, []).append(f"end of {symbol_name(c, symbol)}")
        return [(target, "; ".join(dict.fromkeys(parts))) for target, parts in labels.items()]

    def inside(self, state: int) -> bool:
        """Whether a text in this state stands inside a character: all that may follow are further bytes of it."""
        if self._continues is None:
            return False
        if state not in self._inside:
            self._inside[state] = self._is_inside(state, self._continues)
        return self._inside[state]

    def _is_inside(self, state: int, continues: Bits) -> bool:
        c = self._constraint
        if state == c.start or c.accept[state]:
            return False
        if any(c.delta[c.delta_offset[state] + symbol] for symbol in range(c.num_symbols)):
            return False
        found = self._moves(state)
        plain = all(push == 0 or not _pushed(c, push) for _, push in found)
        return bool(found) and plain and not any((present & ~continues).any() for present in found.values())

    def _moves(self, state: int) -> dict[tuple[int, int], Bits]:
        """Tokens by target and push string."""
        found: dict[tuple[int, int], Bits] = {}
        for target, push, ids in _effects(self._constraint, state):
            found.setdefault((target, push), np.zeros(self._constraint.vocab_size, bool))[ids] = True
        return found

    def _beyond(self, state: int) -> list[int]:
        """Where the characters that a state stands inside of end."""
        ends, todo, seen = [], [state], {state}
        for at in todo:  # grows while it is read
            for target, _ in self._moves(at):
                if not self.inside(target):
                    ends.append(target)
                elif target not in seen:
                    seen.add(target)
                    todo.append(target)
        self.seen |= seen
        return ends


def _item_arcs(items: CompiledItems, tokens: Sequence[bytes] | None, node: int) -> list[tuple[int, str]]:
    """Children of a trie's node with the token that leads to each."""
    children = range(items.first[node], items.first[node + 1])
    ids = items.token[children.start : children.stop].tolist()
    texts = map(str, ids) if tokens is None else (_name(token_text(tokens[i])) for i in ids)
    return list(zip(children, texts))


def _effects(c: CompiledConstraint, state: int) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(target, push string, tokens) of the token sets of a state."""
    for g in range(c.group_offset[state], c.group_offset[state + 1]):
        yield int(c.group_next[g]), int(c.group_push[g]), c.row_tokens(c.group_row[g])
    for a in range(c.arc_offset[state], c.arc_offset[state + 1]):
        target, push = c.effects[c.arc_effect[a], :2].tolist()
        yield target, push, np.array([c.arc_token[a]], np.int64)


def _pushed(c: CompiledConstraint, push: int) -> str:
    """The frames that a push string enters, in words."""
    symbols = c.push_symbol[c.push_offset[push] : c.push_offset[push + 1]].tolist()
    return "".join(f" +{symbol_name(c, symbol)}" for symbol in symbols)


def _summary(texts: list[str], count: int, max_labels: int) -> str:
    names = [_name(text) for text in texts]
    if len(texts) <= max_labels and count <= 400:
        return ", ".join(names)
    return f"{count:,} tokens: {', '.join(names[:max_labels])}, …"


def _name(text: str) -> str:
    """A token's text as it stands in a list: spaces visible, in quotation marks where it has a comma or a semicolon."""
    short = shortened(text.replace(" ", "␣"), 16)
    if not {",", ";"} & set(short):
        return short
    return f"'{short}'" if '"' in short else f'"{short}"'


class _ByteArcs:
    """Arcs of an automaton over bytes; the ways of its states through a character are arcs with the characters' names.

    Attributes:
      accept, total: what accepts, and the number of live states.
      seen: states inside a character that were met.
    """

    accept: Any
    total: int

    def __init__(self, start: int, pieces: bool) -> None:
        self._start, self._pieces = start, pieces
        self._inside: dict[int, bool] = {}
        self.seen: set[int] = set()

    def moves(self, state: int) -> list[tuple[int, str, Bits]]:
        """(target, frames entered in words, bool[256]) of a state."""
        raise NotImplementedError

    def others(self, state: int) -> list[tuple[int, str]]:
        """Arcs that read no byte; a state with one is never inside a character."""
        return []

    def arcs(self, state: int) -> list[tuple[int, str]]:
        """(target, label) of a state."""
        labels: dict[int, list[str]] = {}
        for target, pushed, bits in self._characters(state):
            labels.setdefault(target, []).append(ranges_text(bits) + pushed)
        for target, label in self.others(state):
            labels.setdefault(target, []).append(label)
        return [(target, "; ".join(dict.fromkeys(parts))) for target, parts in sorted(labels.items())]

    def _characters(self, state: int) -> list[tuple[int, str, Bits]]:
        """Moves of a state by whole characters; bool[256] of bytes where it has none of several bytes."""
        moves = self.moves(state)
        met: set[int] = set()
        found: dict[tuple[int, str], Bits] = {}
        for target, pushed, bits in moves:
            if not self.inside(target):
                found[target, pushed] = found.get((target, pushed), np.zeros(256, bool)) | bits
                continue
            for end, low, high in self._ways(target, [(int(a), int(b)) for a, b in _runs(bits)], met):
                if low < 0:
                    return moves  # no character of UTF-8: the bytes are drawn as they are
                wide = found.get((end, pushed), np.zeros(256, bool))
                if len(wide) == 256:
                    wide = np.concatenate((wide, np.zeros(_LAST_SCALAR + 1 - 256, bool)))
                wide[low : high + 1] = True
                found[end, pushed] = wide
        if any(len(bits) > 256 and bits[128:256].any() and self._reads_raw(moves, at) for (at, _), bits in found.items()):
            return moves
        self.seen |= met
        return [(target, pushed, bits) for (target, pushed), bits in found.items()]

    def _reads_raw(self, moves: list[tuple[int, str, Bits]], target: int) -> bool:
        """Whether a byte above 127 alone leads to a target: it would be read as a character."""
        return any(to == target and bits[128:].any() for to, _, bits in moves)

    def inside(self, state: int) -> bool:
        """Whether nothing but further bytes of a character may follow."""
        if self._pieces or state == self._start or self.accept[state]:
            return False
        if state not in self._inside:
            moves = self.moves(state)
            further = all(not pushed and not bits[:0x80].any() and not bits[0xC0:].any() for _, pushed, bits in moves)
            self._inside[state] = bool(moves) and further and not self.others(state)
        return self._inside[state]

    def _ways(self, state: int, firsts: list[tuple[int, int]], met: set[int]) -> Iterator[tuple[int, int, int]]:
        """(target, first, last character) of what is read from inside a character to its end; -1 for none of UTF-8."""
        todo = [(state, [first]) for first in firsts]
        while todo:
            at, read = todo.pop()
            met.add(at)
            for target, _, bits in self.moves(at):
                for low, high in _runs(bits):
                    way = [*read, (int(low), int(high))]
                    if len(way) > 4:
                        yield target, -1, -1
                        return
                    if self.inside(target):
                        todo.append((target, way))
                    else:
                        yield from ((target, a, b) for a, b in _code_points(way))


class _DfaBytes(_ByteArcs):
    """Arcs of a `ByteDfa`."""

    def __init__(self, dfa: ByteDfa, pieces: bool) -> None:
        super().__init__(dfa.start, pieces)
        self._dfa, self.accept, self.total = dfa, dfa.final, dfa.num_states - 1

    def moves(self, state: int) -> list[tuple[int, str, Bits]]:
        targets = self._dfa.table[state, self._dfa.byte_class]
        return [(int(t), "", targets == t) for t in np.unique(targets[targets > 0])]


class _MachineBytes(_ByteArcs):
    """Arcs of a `ByteMachine`: moves and calls by their bytes, and where it returns to when a frame ends."""

    def __init__(self, machine: ByteMachine, pieces: bool) -> None:
        super().__init__(machine.start, pieces)
        self._machine, self.accept, self.total = machine, machine.end == END_HERE, machine.num_controls - 1

    def moves(self, state: int) -> list[tuple[int, str, Bits]]:
        machine, out = self._machine, []
        action = machine.action[state][machine.byte_class[:256]]
        for a in np.unique(action[action > 0]).tolist():
            for e in range(machine.entry_offset[a], machine.entry_offset[a + 1]):
                if machine.entry_next[e] != RETURN:
                    pushed = "".join(f" +{self._frame(symbol)}" for symbol, _ in machine.pushes[machine.entry_push[e]])
                    out.append((int(machine.entry_next[e]), pushed, action == a))
        return out

    def others(self, state: int) -> list[tuple[int, str]]:
        returns = enumerate(self._machine.ret[state].tolist())
        return [(target, f"end of {self._frame(symbol)}") for symbol, target in returns if target]

    def _frame(self, symbol: int) -> str:
        return self._machine.symbol_names[symbol] if self._machine.symbol_names else f"frame {symbol}"


_LEADS = {2: (0xC2, 0xDF, 0x1F), 3: (0xE0, 0xEF, 0x0F), 4: (0xF0, 0xF4, 0x07)}


def _code_points(way: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The characters whose bytes lie in the given ranges, as ranges; (-1, -1) where they are no character's."""
    low, high, mask = _LEADS[len(way)]
    if not low <= way[0][0] <= way[0][1] <= high:
        yield -1, -1
        return
    part = [(way[0][0] & mask, way[0][1] & mask)]
    for a, b in way[1:]:
        full = (a, b) == (0x80, 0xBF)
        spread = part if full else [(value, value) for first, last in part for value in range(first, last + 1)]
        part = [(first << 6 | a & 0x3F, last << 6 | b & 0x3F) for first, last in spread]
    yield from part


def _runs(present: Bits) -> NDArray[np.int64]:
    """(first, last) of the runs of a set."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], present, [False]]).astype(np.int8)))
    return np.stack((edges[::2], edges[1::2] - 1), 1)


def ranges_text(present: Bits) -> str:
    r"""A set of bytes (bool[256]) or of characters (bool[0x110000]) for people: `a-z, 0-9`, `any but "`."""
    if len(present) == 256:
        return _listed(_runs(present), lambda value: f"\\x{value:02x}" if value >= 0x80 else _character(value))
    present = present.copy()  # surrogates are no characters: they are not missed, and join what lies on both sides of them
    present[_SURROGATES] = True
    missing = _runs(~present)
    present[_SURROGATES] = present[0xD7FF] & present[0xE000]
    if len(missing) == 0:
        return "any character"
    if 2 * present.sum() > _LAST_SCALAR and len(missing) <= _MOST_RANGES:
        return f"any but {_listed(missing, _character)}"
    return _listed(_runs(present), _character)


def _listed(runs: NDArray[np.int64], name: Callable[[int], str]) -> str:
    """Runs as ranges; a run of two is written as two. Of many, and of many outside ASCII, the first ones."""
    near = int((runs[:, 0] < 0x80).sum())
    shown = runs if len(runs) <= min(_MOST_RANGES, near + 3) else runs[: min(_MOST_RANGES - 2, near + 2)]
    parts = []
    for low, high in shown.tolist():
        ends = [name(low)] if low == high else [name(low), name(high)]
        parts.append(("-" if high - low > 1 else ", ").join(ends))
    more = int((runs[len(shown) :, 1] - runs[len(shown) :, 0] + 1).sum())
    return ", ".join([*parts, f"… {more:,} more"] if more else parts)


def _character(value: int) -> str:
    named = {0x20: "space", 0x2C: '","', 0x3B: '";"'}.get(value)
    return named or token_text(chr(value).encode("utf-8", "surrogatepass"))


def shortened(text: str, width: int) -> str:
    """A text of at most `width` characters; … stands for what is cut off."""
    return text if len(text) <= width else text[: width - 1] + "…"


def wrapped(label: str, width: int = 16) -> str:
    """A label on several lines of about `width` characters, broken at spaces."""
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
