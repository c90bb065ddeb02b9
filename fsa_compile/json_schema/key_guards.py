"""Where the controls of objects with key sets carry guards: worked out on what is left when dead ends are cut."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fsa_compile.arrays.integers import firsts, order_of
from fsa_compile.artifact.arrays import MAX_KEYS
from fsa_compile.artifact.guards import NO_GUARD, Guard, Guards, KeySets, composed
from fsa_compile.json_schema.machine_builder import Controls

_OTHERS = 1 << MAX_KEYS
"""Stands, among keys that may come, for those without a bit."""


class KeyGuards:
    """The guards of a finished pool.

    Args:
      outcomes: per control, whether anything follows there.
      edges: (control, next one) of own moves to those where something does, ascending.
      live: the controls in use.

    Attributes:
      guards: all of them.
      kind: kinds of the controls of frames with a set.
      is_run: per control, whether it has one way on, and neither it begins or ends a key, nor a member.
    """

    def __init__(
        self, controls: Controls, outcomes: Sequence[int], edges: tuple[np.ndarray, np.ndarray], live: list[int]
    ) -> None:
        self._controls, self._outcomes = controls, outcomes
        self.guards = Guards()
        targets, begin = self._find_following(*edges)
        self._targets, self._begin = targets.tolist(), begin.tolist()
        self.kind = self._find_kinds(live)
        self._ahead = self._find_ahead(targets, begin)
        begun = [c for c in live if c in controls.firsts]
        self._came = self._find_came(begun)
        self._coming = self._find_coming([c for c in live if c in controls.kind])
        self._count = self._find_counts(begun)

    def of_call(self, control: int) -> int:
        """Guard of the calls of a control: after a member, only the frame's end is called."""
        required = self._controls.closing.get(control, 0)
        return self.guards.number(Guard((), required, 0)) if required else 0

    def of_move(self, control: int, target: int) -> int:
        """Guard of a move from a control of a frame with a set."""
        controls = self._controls
        bit = controls.key_ends.get(target)
        if bit is not None and bit < 0:
            return 0
        if bit is not None:
            return self.guards.number(Guard(() if self._is_new(control, bit) else (1 << bit,), 0, 1 << bit))
        coming = self._coming.get(target)
        ended = controls.value_ends.get((control, target))
        if ended is not None:  # after a number, the comma already asks for one more value
            guard = composed(Guard((1 << ended,), 0, 1 << ended), NO_GUARD if coming is None else Guard((coming,), 0, 0))
            assert guard is not None  # there are more values than one
            return self.guards.number(guard)
        if coming is None:
            return self.of_call(control) if controls.outcome[target] else 0
        if coming & _OTHERS or coming == self._coming.get(control):
            return 0
        return self.guards.number(Guard((coming,), 0, 0))

    def sets(self, entry: np.ndarray, live: Sequence[int]) -> KeySets:
        """The sets of a machine. `entry`: guards of its entries. `live`: its controls, from the first that is not dead."""
        c = self._controls

        def column(known: Mapping[int, int], other: int) -> list[int]:
            return [other, *map(known.get, live, itertools.repeat(other))]

        coming = column(self._coming, 0)
        return KeySets(
            guards=tuple(self.guards.all),
            entry=entry,
            kind=np.array(column(self.kind, 0), np.int32),
            required=(0, *c.required),
            keys=tuple([keys & ~_OTHERS for keys in coming]),
            open=np.array([keys & _OTHERS > 0 for keys in coming]),
            first=np.array([False, *map(c.firsts.__contains__, live)]),
            after=np.array([False, *(control in c.kind and control not in self._coming for control in live)]),
            end=np.array(column(c.key_ends, -1), np.int32),
            came=np.array(column(self._count, 0), np.int32),
            new=(0, *[_OTHERS - 1 & ~came for came in column(self._came, -1)[1:]]),
        )

    def _find_came(self, firsts: list[int]) -> dict[int, int]:
        """The keys that may have come, by control of a frame with a set, from the controls where such frames begin."""
        out = dict.fromkeys(firsts, 0)
        todo = list(firsts)
        ahead, begin, key_ends, has_values = self._ahead, self._begin, self._controls.key_ends, bool(self._controls.value_ends)
        while todo:
            control = todo.pop()
            own = out[control]
            for target in ahead[begin[control] : begin[control + 1]]:
                bit = self._read(control, target) if has_values else key_ends.get(target, -1)
                came, known = own | 1 << bit if bit >= 0 else own, out.get(target)
                if known is None or came & ~known:
                    out[target] = came if known is None else known | came
                    todo.append(target)
        return self._filled(out, operator.or_)

    def _read(self, control: int, target: int) -> int:
        """The bit of the key or element that has been read after a move, -1 for none."""
        c = self._controls
        bit = c.key_ends.get(target, -1)
        return max(bit, c.value_ends.get((control, target), -1)) if c.value_ends else bit

    def _find_counts(self, firsts: list[int]) -> dict[int, int]:
        """The most keys that may have come of those that are not required, by control."""
        c = self._controls
        out = dict.fromkeys(firsts, 0)
        todo = list(firsts)
        has_values = bool(c.value_ends)
        while todo:
            control = todo.pop()
            if control not in self.kind:
                continue  # the set no longer matters
            required = c.required[self.kind[control] - 1]
            own = out[control]
            for target in self._ahead[self._begin[control] : self._begin[control + 1]]:
                bit = self._read(control, target) if has_values else c.key_ends.get(target, -1)
                known = out.get(target, -1)
                count = own + (bit >= 0 and not required >> bit & 1)
                if count > known:
                    count = min(count, (self._came[target] & ~required).bit_count())
                    if count > known:
                        out[target] = count
                        todo.append(target)
        return self._filled(out, max)

    def _filled(self, out: dict[int, int], both: Callable[[int, int], int]) -> dict[int, int]:
        """Values by control, of runs too: those of the controls before them."""
        for control, own in list(out.items()):
            for target in self._following(control):
                while self.is_run[target]:
                    known = out.get(target)
                    new = own if known is None else both(known, own)
                    if new == known:
                        break
                    out[target] = new
                    target = self._targets[self._begin[target]]
        return out

    def _is_new(self, control: int, bit: int) -> bool:
        """Whether a key that ends after a control cannot have come before."""
        return not self._came[control] >> bit & 1

    def _find_coming(self, objects: list[int]) -> dict[int, int]:
        """The keys that may come next, by control from a comma (or the object's beginning) to the end of a key."""
        c = self._controls
        before: dict[int, list[int]] = {}
        out: dict[int, int] = {}
        todo = [t for o in objects for low, _, t in c.moves[o] if self._outcomes[t] and not c.outcome[t]]
        todo += [o for o in objects if o in c.before]
        while todo:
            control = todo.pop()
            if control in out or control in c.key_ends:
                continue
            out[control] = 0
            for target in self._following(control):
                if (control, target) not in c.value_ends:
                    before.setdefault(target, []).append(control)
                    todo.append(target)
        changed = []
        for (control, target), ended in c.value_ends.items():
            if control in out and self._outcomes[target]:
                out[control] |= 1 << ended
                changed.append(control)
        for target in before:
            bit = c.key_ends.get(target)
            if bit is not None:
                for control in before[target]:
                    out[control] |= 1 << bit if bit >= 0 else 0
                    out[control] |= _OTHERS if bit < 0 or self._is_new(control, bit) else 0
                    changed.append(control)
        while changed:
            control = changed.pop()
            for earlier in before.get(control, ()):
                if out[control] & ~out[earlier]:
                    out[earlier] |= out[control]
                    changed.append(earlier)
        return out

    def _find_following(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the controls of the same frame that come next, one control's after the other's; where those of each begin)."""
        c, calls = self._controls, list[int]()
        for control, called in c.calls.items():
            for symbol, _ in called:
                for after in c.symbols[symbol].values():
                    calls += (control, after) if self._outcomes[after] else ()
        stays = np.array(c.outcome)[target] == 0
        more = np.array(calls, np.int64).reshape(-1, 2).T
        source, target = (np.concatenate(columns) for columns in ((source[stays], more[0]), (target[stays], more[1])))
        return target[order_of(source)], firsts(source, len(c.outcome))

    def _find_ahead(self, targets: np.ndarray, begin: np.ndarray) -> list[int]:
        """What comes next, past runs of controls with one way on where no key begins or ends."""
        c = self._controls
        is_run = np.zeros(len(c.outcome), bool)
        is_run[list(self.kind) if not c.value_ends else []] = True
        is_run[[*c.kind, *c.key_ends]] = False
        is_run &= np.diff(begin) == 1
        end = np.arange(len(is_run))
        end[is_run] = targets[begin[:-1][is_run]]
        for _ in range(len(end).bit_length()):
            end = end[end]
        self.is_run = is_run.tolist()
        return end[targets].tolist()

    def _following(self, control: int) -> list[int]:
        """Controls of the same frame that come next."""
        return self._targets[self._begin[control] : self._begin[control + 1]]

    def _find_kinds(self, live: list[int]) -> dict[int, int]:
        """Kinds of all controls of frames with a set, but those before their end, where the set no longer matters."""
        c = self._controls
        out = {control: c.kind[control] for control in live if control in c.kind}
        todo = list(out)
        while todo:
            control = todo.pop()
            if control in c.closing:
                following = [t for low, _, t in c.moves[control] if self._outcomes[t] and not c.outcome[t]]
            else:
                following = self._following(control)
            for target in following:
                if target not in out:
                    out[target] = out[control]
                    todo.append(target)
                assert out[target] == out[control]
        return out
