"""Frames to controls over letters: the subset construction of patterns that count. Bytes come later, in `counted_pushdown`.

A control is a set of positions of one frame that may come next. All of them stand in the same iteration, so one register per
frame suffices. On every letter there is one way on: inside the iteration, into the next one, into the frame of a repetition, or
out of this one; where two meet, how many iterations were read is not known from the text so far, and there is a `Conflict`. Only
"into the next one" and "out" of a repetition `{n}` may meet, since its register tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias, TypeVar

from fsa_compile.arrays.bit_sets import disjoint
from fsa_compile.automata.letter_dfa import letter_sets
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, UNCOUNTED
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.counting.counted_loops import Frame
from fsa_compile.patterns.glushkov import END
from fsa_compile.unicode.code_points import Ranges, normal

Futures: TypeAlias = "frozenset[int]"
"""Positions that may come next in a frame; END: its piece may stop here."""
Subset: TypeAlias = "tuple[int, Futures]"
"""A frame's number and what may come next in it."""
Site: TypeAlias = "tuple[int, int]"
"""A call site: frame and position."""
T = TypeVar("T")

_MAX_PASSES = 8
"""Merging equal controls is repeated this often; what is left then are cycles, which seldom hold equal controls."""
_DOING = "Making the pattern deterministic"


class Way(NamedTuple):
    """How a control reads a letter, apart from where it leads.

    Attributes:
      pushes: push string, bottom first: symbols, each with the `add` of the frame it suspends.
      add: of the frame that it ends in.
    """

    pushes: tuple[tuple[int, int], ...]
    add: int

    @property
    def counts(self) -> int:
        """1 if it begins an iteration of the frame it starts in, else 0."""
        return self.pushes[0][1] if self.pushes else self.add

    def uncounted(self) -> Way:
        """The same way, but the iteration has begun already."""
        if not self.pushes:
            return Way((), 0)
        return Way(((self.pushes[0][0], 0), *self.pushes[1:]), self.add)


class Conflict(Exception):  # noqa: N818  (a signal between modules, never shown)
    """The repetitions of these frames cannot be counted."""

    def __init__(self, frames: Iterable[int]) -> None:
        self.frames = set(frames)


class Control(NamedTuple):
    """What one control does.

    Attributes:
      frame: number of its frame.
      ways: (way, letters, number of the control it leads to); the letter sets are disjoint.
      returned: letters that may be read after a return.
      leaves: whether the frame's piece, or an iteration, may stop here.
      end: NO_END, END_HERE or END_RETURN.
    """

    frame: int
    ways: list[tuple[Way, int, int]]
    returned: int
    leaves: bool
    end: int


class Symbol(NamedTuple):
    """A stack symbol: the call site it stands for, the frame that is called, the control to go on with after the return."""

    callee: int
    back: int


class Controls:
    """The deterministic automaton over letters.

    Attributes:
      frames: the pattern's frames.
      controls: the controls; the first is initial. Their numbers are one more than their index.
      symbols: the stack symbols.
      ranges: characters of each atom of the letters.
    """

    def __init__(self, frames: list[Frame], limits: CompileLimits, deadline: Deadline) -> None:
        self.frames = frames
        every, self.ranges = letter_sets([members for frame in frames for members in frame.positions.sets])
        self._letters: list[list[int]] = []
        for frame in frames:
            size = len(frame.positions.sets)
            self._letters.append(every[:size])
            every = every[size:]
        self._iterations: dict[int, list[tuple[Way, int, Subset]]] = {}
        self._reads: dict[Subset, int] = {}
        self._ends: dict[Subset, bool] = {}
        self._sites: dict[Site, int] = {}
        self._number: dict[Subset, int] = {}
        self._todo: list[Subset] = []
        self.controls: list[Control] = []
        self.symbols: list[Symbol] = []
        self._explore(limits, deadline)
        self._merge()

    def _explore(self, limits: CompileLimits, deadline: Deadline) -> None:
        root = len(self.frames) - 1
        counts = self.frames[root].high != UNCOUNTED
        self._numbered((root, frozenset((END,)) if counts else self.frames[root].positions.first))
        for subset in self._todo:
            self.controls.append(self._control(subset))
            if len(self._todo) > limits.max_states:
                raise LimitError("max_states", limits.max_states, _DOING)
            if not len(self.controls) & 255:
                deadline.check(_DOING)

    def _numbered(self, subset: Subset) -> int:
        found = self._number.get(subset)
        if found is None:
            self._todo.append(subset)
            found = self._number[subset] = len(self._todo)
        return found

    def _symbol(self, site: Site) -> int:
        found = self._sites.get(site)
        if found is None:
            f, p = site
            found = self._sites[site] = len(self.symbols)
            positions = self.frames[f].positions
            self.symbols.append(Symbol(positions.calls[p], self._numbered((f, positions.follow[p]))))
        return found

    def _after(self, f: int) -> list[Subset]:
        """Where a frame may return to."""
        return [(g, self.frames[g].positions.follow[p]) for g, p in self.frames[f].sites]

    def _may_end(self, subset: Subset) -> bool:
        """Whether the text may end here, enough iterations provided."""
        found = self._ends.get(subset)
        if found is None:
            after = self._after(subset[0])
            found = self._ends[subset] = END in subset[1] and (not after or any(map(self._may_end, after)))
        return found

    def _begin(self, f: int, futures: Iterable[int], add: int) -> list[tuple[Way, int, Subset]]:
        """The ways into the given positions."""
        positions, letters = self.frames[f].positions, self._letters[f]
        out = []
        for p in futures:
            callee = positions.calls.get(p)
            if callee is not None:
                push = ((self._symbol((f, p)), add),)
                out += [(Way(push + way.pushes, way.add), read, target) for way, read, target in self._iteration(callee)]
            elif p != END:
                out.append((Way((), add), letters[p], (f, positions.follow[p])))
        return out

    def _iteration(self, f: int) -> list[tuple[Way, int, Subset]]:
        """The ways into the next iteration of a counted frame."""
        found = self._iterations.get(f)
        if found is None:
            found = self._iterations[f] = self._begin(f, self.frames[f].positions.first, 1)
        return found

    def _read_after(self, f: int) -> int:
        """Letters that may be read after the last iteration of a frame."""
        out = 0
        for subset in self._after(f):
            found = self._reads.get(subset)
            if found is None:
                found = 0
                for _, letters, _ in self._ways(subset):
                    found |= letters
                if END in subset[1]:
                    found |= self._read_after(subset[0])
                self._reads[subset] = found
            out |= found
        return out

    def _ways(self, subset: Subset) -> list[tuple[Way, int, Subset]]:
        f, futures = subset
        ways = self._begin(f, futures, 0)
        return ways + self._iteration(f) if END in futures and self.frames[f].high != UNCOUNTED else ways

    def _control(self, subset: Subset) -> Control:
        f, futures = subset
        frame = self.frames[f]
        returned = self._read_after(f) if END in futures else 0
        exact = frame.low == frame.high
        by_way: dict[tuple[Way, Subset], int] = {}
        for letters, together in disjoint([(letters, [(way, target)]) for way, letters, target in self._ways(subset)]):
            way, (g, after) = together[0]
            if len(together) > 1:
                if any(other != way for other, _ in together):
                    self._refuse(f, {way for way, _ in together})
                after = after.union(*[more for _, (_, more) in together])
            if letters & returned and not (exact and way.counts):
                raise Conflict((f,))
            by_way[way, (g, after)] = by_way.get((way, (g, after)), 0) | letters
        end = NO_END if not self._may_end(subset) else END_RETURN if frame.sites else END_HERE
        ways = [(way, letters, self._numbered(target)) for (way, target), letters in by_way.items()]
        return Control(f, ways, returned, END in futures, end)

    def _refuse(self, f: int, ways: set[Way]) -> None:
        """Raises the conflict between different ways on one letter."""
        if len({way.counts for way in ways}) > 1:
            raise Conflict((f,))
        strings = {tuple(symbol for symbol, _ in way.pushes) for way in ways}
        shared = 0
        while len({s[shared] if len(s) > shared else None for s in strings}) == 1:
            shared += 1
        raise Conflict(self.symbols[symbol].callee for s in strings for symbol in s[shared:])

    def _merge(self) -> None:
        """Merges controls, and symbols, that do the same."""
        for _ in range(_MAX_PASSES):
            kept: dict[object, int] = {}
            new = [0] * (len(self.controls) + 1)
            symbols: dict[Symbol, int] = {}
            which = [symbols.setdefault(symbol, len(symbols)) for symbol in self.symbols]
            for number, control in enumerate(self.controls, 1):
                frame = self.frames[control.frame]
                ways = frozenset([(_renamed(way, which), letters, target) for way, letters, target in control.ways])
                callee = control.frame if control.leaves else -1
                key = (frame.low, frame.high, callee, control.returned, control.end, ways)
                new[number] = kept.setdefault(key, len(kept) + 1)
            if len(kept) == len(self.controls) and len(symbols) == len(self.symbols):
                return
            first = dict(zip(reversed(new[1:]), reversed(self.controls)))
            self.controls = [self._renumbered(first[number], new, which) for number in range(1, len(kept) + 1)]
            self.symbols = [Symbol(symbol.callee, new[symbol.back]) for symbol in symbols]

    @staticmethod
    def _renumbered(control: Control, new: list[int], which: list[int]) -> Control:
        ways: dict[tuple[Way, int], int] = {}
        for way, letters, target in control.ways:
            key = _renamed(way, which), new[target]
            ways[key] = ways.get(key, 0) | letters
        return control._replace(ways=[(way, letters, target) for (way, target), letters in ways.items()])

    def name(self, f: int) -> str:
        """What a call of a frame stands for, in the pattern's terms."""
        frame = self.frames[f]
        return f"{{{frame.low},{frame.high}}}" + (f" at offset {frame.repeat.start}" if frame.repeat else "")

    def characters(self, letters: int) -> Ranges:
        """The non-ASCII characters of a set of letters."""
        members = [ranges for j, ranges in enumerate(self.ranges) if letters >> 128 + j & 1]
        return members[0] if len(members) == 1 else normal([r for m in members for r in m])


def _renamed(way: Way, which: list[int]) -> Way:
    return Way(tuple([(which[symbol], add) for symbol, add in way.pushes]), way.add) if way.pushes else way
