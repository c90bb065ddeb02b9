"""`HostWalk`: executes a constraint token by token in NumPy, with the semantics of the device step.

Slow and plain, one configuration at a time; the layout it reads is described in `artifact`. Imports NumPy only.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fsa_compile.artifact.arrays import MAX_REGISTER, NO_TEMPERATURE, UNREACHABLE, ConstraintArrays
from fsa_compile.artifact.bitmask import BitmaskWalk, token_id, whole_limit, words_of, write_row
from fsa_compile.artifact.configurations import Cell, Configuration, Effect, Position, Source
from fsa_compile.artifact.row_pieces import PIECE
from fsa_compile.artifact.step_memo import Mask, mask_from, memo_of
from fsa_compile.errors import ArtifactError, BudgetError, ConstraintError, listed, named_fields, shown

_MANY_GROUPS = 48
"""Above this many wide sets of a node, NumPy looks for those that hold a token."""


@named_fields
class HostWalk(BitmaskWalk):
    """Where a text stands in its constraint.

    End-of-text ids are allowed exactly where the text so far is accepted; after one the walk is `finished` and allows
    nothing more.

    Args:
      constraint: what to execute.
      max_depth: most stack cells, or None for no limit. Only tokens after which the text can still be completed within it are
        allowed; where it is less than `constraint.shortest_depth`, nothing is.

    Raises:
      ArtifactError: the constraint is canonical: what it allows depends on more than its own arrays.
    """

    def __init__(self, constraint: ConstraintArrays, max_depth: int | None = None) -> None:
        if not isinstance(constraint, ConstraintArrays):
            fix = "Give a compiled one: compile_regex(pattern, tokenizer)."
            raise ArtifactError(f"the constraint is {shown(constraint)}", fix=fix)
        if constraint.is_canonical:
            what = "a constraint on canonical tokens is walked together with its tokenizer's tables"
            raise ArtifactError(what, fix="Use fsa_compile.CanonicalWalk(constraint, fsa_compile.canonical_tables(tokenizer)).")
        self._begin(constraint, max_depth)

    def __repr__(self) -> str:
        if self.finished:
            return f"HostWalk(ended after {self.num_tokens} tokens)"
        may = "may end here" if self.accepting else f"{self.distance} more are enough"
        return f"HostWalk(after {self.num_tokens} tokens: {int(self.allowed().sum()):,} may come next; {may})"

    @classmethod
    def of_arrays(cls, constraint: ConstraintArrays, max_depth: int | None = None) -> HostWalk:
        """A walk by the arrays alone: of a canonical constraint, what is allowed before the tokenizer's tables narrow it."""
        walk = cls.__new__(cls)
        walk._begin(constraint, max_depth)
        return walk

    def _begin(self, constraint: ConstraintArrays, max_depth: int | None) -> None:
        self.constraint = constraint
        max_depth = whole_limit(max_depth, "max_depth")
        self.max_depth = int(UNREACHABLE) if max_depth is None else max_depth
        self._memo = memo = memo_of(constraint)
        self._keys, self._guards = memo.keys, memo.guards
        self._plain = constraint.stacks == 1 and not constraint.has_sets
        first = memo.firsts.get(self.max_depth)
        if first is None:
            at = Configuration(constraint.start, 0, self._pushed((), constraint.initial_push, None))
            first = memo.firsts[self.max_depth] = Position((at,))
        self._history = [first]

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """What is followed: one configuration in a deterministic constraint, else at most `constraint.stacks`."""
        return self._history[-1].configurations

    @property
    def node(self) -> int:
        """Current node of the first configuration; 0 only for a constraint that accepts nothing."""
        return self.configurations[0].node

    @property
    def accepting(self) -> bool:
        """Whether the text so far belongs to the language."""
        return any(map(self.accepts_at, self.configurations))

    @property
    def dropped(self) -> bool:
        """Whether more configurations arose than are followed: then some accepted texts may be refused."""
        return self._history[-1].dropped

    @property
    def distance(self) -> int:
        """Number of further tokens within which the text can be completed; the least one for a regular constraint, else a bound
        (docs/limits.md says how far it can be off)."""
        found = self._history[-1]
        if found.distance is None:
            found.distance = min(self._distance(at) for at in self.configurations)
        return found.distance

    @property
    def temperature(self) -> float | None:
        """The greatest temperature that rules of a grammar give to the lexemes that the next byte may begin or go on; None where
        none has one."""
        own = self.constraint.temperature
        if not len(own) or self.finished:
            return None
        found = max(float(own[source.node]) for at in self.configurations for source in self.sources(at))
        return None if found == NO_TEMPERATURE else found

    @property
    def need(self) -> int:
        """Depth of stack within which the text can be completed."""
        return min(self._need(at) for at in self.configurations)

    def sources(self, at: Configuration) -> list[Source]:
        """The live nodes whose tokens pop 0, 1, … cells of a configuration; each of them before its twin."""
        _check_configuration(at)
        c = self.constraint
        out = [Source(at.node, at.register, len(at.stack), at.used)]
        for cell in at.stack[: -c.max_pops - 1 : -1]:
            node = self._memo.delta[self._children(out[-1]) + cell.symbol]
            if not node:
                break
            out.append(Source(node, cell.register, out[-1].left - 1, cell.used))
        if c.has_sets:
            twins = [source._replace(node=int(c.twin[source.node])) for source in out]
            out = [s for pair in zip(out, twins) for s in pair if s.node]
        return out

    def _children(self, source: Source) -> int:
        """Where the children of a source begin in `delta`."""
        c = self.constraint
        if not c.has_sets:
            return int(self._memo.delta_offset[source.node])
        guards = c.pop_guard[source.node].tolist()
        case = sum(1 << i for i, guard in enumerate(guards) if guard and self._guards[guard].allows(source.used))
        return int(c.pop_offset[source.node, case])

    def allowed_words(self, remaining: int | None = None) -> np.ndarray:
        """The mask of the next token as bits, uint32[ceil(V / 32)]: a union of the artifact's rows; see `allowed`."""
        return self._mask(remaining).words.copy()

    def fill_bitmask(self, out: Any, row: int = 0, remaining: int | None = None) -> bool:
        """See `BitmaskWalk.fill_bitmask`."""
        mask = self._mask(remaining)
        write_row(out, row, mask.signed)
        return mask.must_apply

    def _mask(self, remaining: int | None) -> Mask:
        """The mask within a limit; the one without, made once for each position, where the limit binds nothing."""
        found = self._history[-1]
        limit = None if found.finished else whole_limit(remaining, "remaining")
        if limit is None or (limit >= self._limit(limit) >= self._widest(found)):
            if found.mask is None:
                found.mask = self._unlimited()
            return found.mask
        return mask_from(self._words(limit), self.constraint.vocab_size)

    def _unlimited(self) -> Mask:
        c = self.constraint
        if self.finished or c.has_sets or self.max_depth < UNREACHABLE:
            return mask_from(self._words(int(UNREACHABLE)), c.vocab_size)
        nodes = list[int]()
        delta, offset, most = self._memo.delta, self._memo.delta_offset, c.max_pops
        for at in self.configurations:
            node = at.node
            nodes.append(node)
            for cell in at.stack[: -most - 1 : -1]:
                node = delta[offset[node] + cell.symbol]
                if not node:
                    break
                nodes.append(node)
        return self._memo.mask_of(c, tuple(nodes))

    def _words(self, limit: int) -> np.ndarray:
        """The mask within a limit that some text fits, source by source."""
        c = self.constraint
        words = np.zeros(c.rows.shape[1], np.uint32)
        if self.finished:
            return words
        for at in self.configurations:
            words |= self.words_at(at, limit)
        if self.accepting:
            words |= words_of(c.stop_ids, c.vocab_size)
        return words

    def _widest(self, found: Position) -> int:
        """Tokens within which every token of the mask without limits can still be completed."""
        if found.widest is None:
            costs = [0]
            for at in self.configurations:
                for source in self.sources(at):
                    below = at.stack[source.left - 1].cost if source.left else 0
                    costs.append(self._memo.cost_of(self.constraint, source.node, source.register) + below)
            found.widest = max(costs)
        return found.widest

    def words_at(self, at: Configuration, limit: int) -> np.ndarray:
        """The text tokens of a configuration that some completion within `limit` tokens takes, uint32[ceil(V / 32)]."""
        words = np.zeros(self.constraint.rows.shape[1], np.uint32)
        for source in self.sources(at):
            below = at.stack[source.left - 1].cost if source.left else 0
            self._add_tokens(words, source, limit - below, self.max_depth - source.left)
        return words

    def accepts_at(self, at: Configuration) -> bool:
        """Whether the text may end at a configuration."""
        return any(self._memo.accept[source.node] for source in self.sources(at))

    def after(self, at: Configuration, token: int) -> Configuration | None:
        """Where a text token leads from a configuration of a deterministic constraint, None where it is forbidden."""
        _check_configuration(at)
        token = token_id(token)
        if not 0 <= token < self.constraint.vocab_size:
            return None
        return next((there for there, _ in self._reached([at], token, int(UNREACHABLE))), None)

    def next_node(self, token: int) -> int:
        """The node after `token` (0 when it is forbidden); end-of-text ids keep the node."""
        after = self._after(token_id(token), None)
        return after.configurations[0].node if after else 0

    def _refused(self, token: int) -> ConstraintError:
        what = f"token {token} is not allowed after {self.num_tokens} tokens"
        if not 0 <= token < self.constraint.vocab_size:
            return ConstraintError(what, fix=f"The vocabulary has ids from 0 to {self.constraint.vocab_size - 1:,}.")
        return ConstraintError(what, fix="Ask walk.allowed() first; inspect.explain(constraint, tokenizer, text) says why.")

    def advance(self, token: int, remaining: int | None = None) -> None:
        """Takes one token.

        Args:
          token: id of the token.
          remaining: tokens that may be taken in all, this one included; None for no limit. Where several configurations are
            followed, those that can be completed within it are kept.

        Raises:
          ConstraintError: the token is not allowed here, within the limit of tokens, or is no token id; the walk is unchanged.
            (A ValueError.) The limit of depth is for masks alone.
        """
        c, found = self.constraint, self._history[-1]
        remaining = whole_limit(remaining, "remaining")
        known = found.after.get(token) if token.__class__ is int else None
        if known is not None and (remaining is None or (known.finished or self._fits(known, remaining))):
            self._history.append(known)
            return
        token = token_id(token)
        by_mask = c.has_sets and remaining is not None
        if by_mask and 0 <= token < c.vocab_size and not self.allowed_words(remaining)[token >> 5] >> np.uint32(token & 31) & 1:
            raise self._refused(token)
        after = self._after(token, remaining)
        if after is None:
            raise self._refused(token)
        if remaining is None or self._plain:
            found.after[token] = after
        self._history.append(after)

    def _fits(self, after: Position, remaining: int) -> bool:
        """Whether a step that is known may be taken within a limit; other walks may have taken it without one."""
        if not self._plain or remaining < self.distance:
            return False
        if after.distance is None:
            after.distance = self._distance(after.configurations[0])
        return after.distance < remaining

    def resumed(self, configurations: Iterable[Configuration]) -> HostWalk:
        """A walk of the same constraint at configurations that another one reached; it counts its tokens from there."""
        walk, begin = self.copy(), tuple(listed(configurations, "configurations"))
        for at in begin or [None]:
            _check_configuration(at)
        walk._history = [Position(begin)]
        return walk

    def __getstate__(self) -> Any:
        """Without what walks of one constraint share, which stays in its process."""
        return self.constraint, self.max_depth, [at.key for at in self._history]

    def __setstate__(self, state: Any) -> None:
        constraint, self.max_depth, history = state
        self._begin(constraint, None if self.max_depth == UNREACHABLE else self.max_depth)
        self._history = [Position(*key) for key in history]

    def _limit(self, remaining: int | None) -> int:
        if remaining is not None and remaining < self.distance:
            raise BudgetError(remaining, self.distance, where=f"after {self.num_tokens} tokens")
        return int(UNREACHABLE) if remaining is None else remaining

    def _distance(self, at: Configuration) -> int:
        c = self.constraint
        own = int(self._memo.distance[at.node])
        if c.has_sets and (guard := int(c.wanted[at.node, 0])) and self._guards[guard].allows(at.used):
            own = int(c.wanted[at.node, 1])
        own += sloped(self._memo.level_slope, at.node, at.register)
        return own + (at.stack[-1].cost if at.stack else 0)

    def _need(self, at: Configuration, known: int = 0) -> int:
        """Depth of stack that a configuration needs, apart from what its lowest `known` suspended frames need."""
        memo = self._memo
        below = [i + memo.symbol_need[at.stack[i].symbol] for i in range(known, len(at.stack))]
        return max([len(at.stack) + memo.need[at.node], *below])

    def _add_tokens(self, words: np.ndarray, source: Source, cost: int, need: int) -> None:
        """Adds the tokens of a source that fit into limits of cost and need."""
        c, n = self.constraint, source.node
        cost -= sloped(self._memo.level_slope, n, source.register)
        lo, hi = int(c.level_offset[n]), int(c.level_offset[n + 1])
        if hi > lo:
            fitting = np.flatnonzero((c.level_cost[lo:hi] <= cost) & (c.level_need[lo:hi] <= need))
            if len(fitting):
                words |= c.rows[c.level_row[lo + fitting[-1]]]
        else:
            arcs = slice(c.arc_offset[n], c.arc_offset[n + 1])
            least = c.effects[c.arc_effect[arcs], 4:]
            fits = (least[:, 0] <= cost) & (least[:, 1] <= need)
            if c.has_sets:
                allows = [self._guards[guard].allows(source.used) for guard in least[:, 2].tolist()]
                fits &= np.array(allows, bool)
            words |= words_of(c.arc_token[arcs][fits], c.vocab_size)

    def _after(self, token: int, remaining: int | None) -> Position | None:
        """The next position, or None when the token is not allowed."""
        c = self.constraint
        if self.finished or not 0 <= token < c.vocab_size:
            return None
        if token in c.stop_ids:
            return Position(self.configurations, True, self.dropped) if self.accepting else None
        limit = self._limit(remaining) - 1
        if self._plain:
            there = self._only_step(token)
            if there is None or (remaining is not None and self._distance(there) > limit):
                return None
            return self._memo.kept((there,), self.max_depth, Position)
        reached = dict(self._reached(self.configurations, token, limit))
        fitting = [there for there, fits in reached.items() if fits]
        kept = fitting or list(reached)
        if not kept or (remaining is not None and min(map(self._distance, kept)) > limit):
            return None
        return Position(tuple(kept[: c.stacks]), False, self.dropped or len(kept) > c.stacks)

    def _only_step(self, token: int) -> Configuration | None:
        """Where a text token leads in a deterministic constraint without sets of keys: `_reached` without its generality."""
        m = self._memo
        node, register, stack, _ = self._history[-1].configurations[0]
        left = len(stack)
        lowest = max(left - self.constraint.max_pops, 0)
        while (effect := self._only_effect(node, token)) is None:
            if left == lowest or not (node := m.delta[m.delta_offset[node] + stack[left - 1].symbol]):
                return None
            left -= 1
            register = stack[left].register
        target, push, add, set_to = effect
        if not (m.has_registers or push):
            return Configuration(target, register, stack[:left])
        return self.applied(stack[:left], Source(node, register, left), Effect(target, push, add, set_to), token)

    def _only_effect(self, node: int, token: int) -> tuple[int, int, int, int] | None:
        """Target, push string and numbers of the only set of a node that holds a token; None where none does."""
        m, word, bit = self._memo, token >> 5, token & 31
        lo, hi = m.group_offset[node], m.group_offset[node + 1]
        for g in range(lo, hi) if hi - lo <= _MANY_GROUPS else self._holding(lo, hi, word, bit):
            row = m.group_row[g]
            found = m.rows[row, word] if m.row_index is None else m.rows[m.row_index[row, word // PIECE], word % PIECE]
            if found >> bit & 1:
                return m.group_next[g], m.group_push[g], m.group_add[g], m.group_set[g]
        begin = m.arc_begin[node]
        end = begin + m.arc_offset[node + 1] - m.arc_offset[node]
        a = bisect.bisect_left(m.arc_token, token, begin, end)
        if a == end or m.arc_token[a] != token:
            return None
        e, effects = m.effect_of(node, a), m.effects
        return effects[e, 0], effects[e, 1], effects[e, 2], effects[e, 3]

    def _holding(self, lo: int, hi: int, word: int, bit: int) -> list[int]:
        """Which groups from `lo` to `hi` hold a token."""
        c = self.constraint
        holding = (c.rows[c.group_row[lo:hi], word] >> np.uint32(bit) & 1).nonzero()[0]
        return [lo + g for g in holding.tolist()]

    def _reached(self, configurations: Iterable[Configuration], token: int, limit: int) -> Iterator[tuple[Configuration, bool]]:
        """All configurations that a token leads to, and whether they can be completed in `limit` tokens and within the depth."""
        every = [(at, source) for at in configurations for source in self.sources(at)]
        for effects in (self._wide, self._narrow):
            for at, source in every:
                for effect in effects(source.node, token):
                    if effect.guard and not self._guards[effect.guard].allows(source.used):
                        continue
                    there = self.applied(at.stack[: source.left], source, effect, token)
                    fits = self._distance(there) <= limit and self._need(there, source.left) <= self.max_depth
                    yield there, fits

    def applied(self, stack: tuple[Cell, ...], source: Source, effect: Effect, token: int) -> Configuration:
        """Where an effect leads from a source, whose suspended frames are in `stack`."""
        register = min(source.register + self._number(effect.add, token), MAX_REGISTER)
        used = source.used | (self._guards[effect.guard].set if effect.guard else 0)
        if effect.push:
            stack = self._pushed(stack, effect.push, register, used)
            register = min(self._number(effect.set_to, token), MAX_REGISTER)
            used = self._keys[effect.held] if effect.held else 0
        return Configuration(effect.target + _rung(self._memo.ladder, effect.target, register), register, stack, used)

    def _wide(self, node: int, token: int) -> Iterator[Effect]:
        """Effects of the groups of a node that hold the token."""
        m, word, bit = self._memo, token >> 5, token & 31
        lo, hi = m.group_offset[node], m.group_offset[node + 1]
        for g in range(lo, hi) if hi - lo <= _MANY_GROUPS else self._holding(lo, hi, word, bit):
            row = m.group_row[g]
            found = m.rows[row, word] if m.row_index is None else m.rows[m.row_index[row, word // PIECE], word % PIECE]
            if found >> bit & 1:
                yield Effect(m.group_next[g], m.group_push[g], m.group_add[g], m.group_set[g])

    def _narrow(self, node: int, token: int) -> Iterator[Effect]:
        """Effects of the arcs of a node with the token."""
        m = self._memo
        begin = m.arc_begin[node]
        end = begin + m.arc_offset[node + 1] - m.arc_offset[node]
        a = bisect.bisect_left(m.arc_token, token, begin, end)
        while a < end and m.arc_token[a] == token:
            e = m.effect_of(node, a)
            sets = (m.effects[e, 6], m.effects[e, 7]) if self.constraint.has_sets else ()
            yield Effect(m.effects[e, 0], m.effects[e, 1], m.effects[e, 2], m.effects[e, 3], *sets)
            a += 1

    def _number(self, value: int, token: int) -> int:
        return value if value >= 0 else int(self.constraint.increments[-1 - value, token])

    def _pushed(self, stack: tuple[Cell, ...], push: int, first: int | None, used: int = 0) -> tuple[Cell, ...]:
        """The stack with a push string on top; `first` is the register of its first cell, None for the string's own, and `used`
        that cell's set of keys."""
        c, m = self.constraint, self._memo
        cost, context = (stack[-1].cost, stack[-1].context) if stack else (0, c.context)
        for i in range(m.push_offset[push], m.push_offset[push + 1]):
            base, register = m.push_symbol[i], m.push_register[i] if first is None else first
            symbol = base + _rung(m.symbol_ladder, base, register)
            context = m.delta[m.delta_offset[context] + symbol] if context else 0
            cost += m.symbol_cost[symbol] + sloped(m.symbol_slope, symbol, register) - (m.distance[context] if context else 0)
            stack += (Cell(symbol, register, min(cost, int(UNREACHABLE)), used, context),)
            cost, first = stack[-1].cost, None
            used = self._keys[c.push_keys[i + 1]] if c.has_sets and i + 1 < m.push_offset[push + 1] else 0
        return stack


def _check_configuration(at: Any) -> None:
    if at.__class__ is not Configuration:
        raise ConstraintError(f"the configuration is {shown(at)}", fix="Give one of walk.configurations.")


def rung(ladder: np.ndarray, register: int) -> int:
    """Which class of a ladder a register falls in."""
    return _rung(ladder[None], 0, register)


def _rung(ladders: Any, i: int, register: int) -> int:
    """Which class of the i-th ladder a register falls in."""
    b0, b1 = int(ladders[i, 1]), int(ladders[i, 3])
    if not b0 and not b1:
        return 0
    return min(max(register - int(ladders[i, 0]), 0), b0) + min(max(register - int(ladders[i, 2]), 0), b1)


def sloped(slopes: Any, i: int, register: int) -> int:
    """Tokens that the i-th slope adds at a register."""
    w = int(slopes[i, 2])
    return w and w * -(-max(0, int(slopes[i, 0]) - register) // int(slopes[i, 1]))
