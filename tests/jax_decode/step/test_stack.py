"""Stacks, counters and several configurations: the device against the host walk, and the host walk against byte machines."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made, stack_walks
from oracles import hand_pushdown as by_hand
from oracles.stack_walks import advance, any_of, favouring, mask, walk_together
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile.artifact.artifact_checks import check_contents
from jax_decode import Categorical, DecodeError, Status
from jax_decode.step.popping import kept, popped
from jax_decode.step.stack import appended
from jax_decode.step.state import ConstraintState

TWIN_TOKENS = [b"", b"a", b"b", b"c", b"aa", b"ab", b"bb", b"cc", b"abb", b"aabb", b"aaa", b"ccc", b"ac", b"aac"]
WORD_TOKENS = [b"", b"a", b"b", b"aa", b"ab", b"ba", b"aba", b"abba", b"bb", b"baab"]
BRACKETS = by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS)
MACHINES = {
    "brackets": (by_hand.brackets(), by_hand.BRACKET_TOKENS, BRACKETS),
    "twins": (by_hand.twins(), TWIN_TOKENS, by_hand.composed(by_hand.twins(), TWIN_TOKENS, stacks=2)),
    "palindromes": (by_hand.palindromes(), WORD_TOKENS, by_hand.composed(by_hand.palindromes(), WORD_TOKENS, stacks=40)),
}
COUNTED = {f"{low}..{high}": (low, high, by_hand.counted(low, high)) for low, high in ((1, 3), (2, 5), (7, 9), (40, 60))}
EVERY = [*(c for _, _, c in MACHINES.values()), *(c for _, _, c in COUNTED.values())]
OPENING = [2, 4, 11, 12, 21, 24, 29, 30, 32]
"""Ids of `BRACKET_TOKENS` that open more than they close."""
ON_DEVICE = {name: c for name, (_, _, c) in (MACHINES | COUNTED).items()}
ON_DEVICE["palindromes"] = dataclasses.replace(ON_DEVICE["palindromes"], stacks=7)
"""As many configurations as a program of a few seconds' compilation follows; the host walk drops the same ones."""


def limits_of(constraint, extra: int) -> int:
    return constraint.shortest_completion + extra


@pytest.mark.parametrize("name", MACHINES)
def test_the_host_walk_is_the_byte_machine(name):
    """Every token at every step of random walks: allowed exactly where the machine can read its bytes."""
    machine, tokens, c = MACHINES[name]
    check_contents(c, None)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        walk, here = c.walk(), {machine.initial}
        for _ in range(12):
            want = [bool(data) and bool(machine.run(data, here)) for data in tokens]
            want[0] = machine.may_end(here)
            assert walk.allowed().tolist() == want
            assert len(walk.configurations) == len(here)
            text = np.array(want)
            text[0] = False
            if not text.any():
                break
            token = any_of(rng, text)
            walk.advance(token)
            here = machine.run(tokens[token], here)
        assert not walk.dropped


@pytest.mark.parametrize("name", COUNTED)
def test_the_host_walk_counts(name):
    """Random walks, ended by the budget, spell texts of the pattern; every prefix allows what some text continues with."""
    low, high, c = COUNTED[name]
    check_contents(c, None)
    tokens = by_hand.COUNTED_TOKENS
    pattern = re.compile(r"\((\[[abc]{%d,%d}\]){1,3}\)" % (low, high))  # noqa: UP031

    def viable(text: str) -> bool:
        """Whether a text begins one of the pattern: what is missing is filled in the only way there is."""
        inside = text.rpartition("[")[2] if text.rfind("[") > text.rfind("]") else None
        filled = text if inside is None else text + "a" * (low - len(inside)) + "]"
        ends = ("", "]", ")", "])", "[" + "a" * low + "])", "([" + "a" * low + "])")
        return any(pattern.fullmatch(filled + end) for end in ends)

    for seed in range(4):
        rng, walk, text = np.random.default_rng(seed), c.walk(), ""
        while not walk.accepting:
            allowed = walk.allowed()
            assert allowed.tolist() == [bool(data) and viable(text + data.decode()) for data in tokens]
            token = any_of(rng, allowed)
            walk.advance(token)
            text += tokens[token].decode()
        assert pattern.fullmatch(text)


@pytest.mark.parametrize("name", [*MACHINES, *COUNTED])
def test_the_device_is_the_host_walk(name, exhaustive):
    """Alone, under budgets from the tightest on and depths from the least on: masks, nodes, registers, stacks, statuses."""
    c = ON_DEVICE[name]
    limits = [max(limits_of(c, extra), 1) + i % 3 for i in range(5 if exhaustive else 3) for extra in (0, 3, 11)]
    depths = [c.shortest_depth + i % 4 for i in range(len(limits))]
    for seed, pick in enumerate((any_of, favouring(OPENING))):
        walk_together([c], [0] * len(limits), limits=limits, depths=depths, pick=pick, seed=seed)


def test_mixed_batches_are_the_host_walks():
    """Regular, pushdown, counted and ambiguous constraints over one vocabulary size, side by side."""
    size = len(by_hand.BRACKET_TOKENS)
    mixed = [hand_made.random_constraint(0, size), BRACKETS, hand_made.one_of([[1, 2], [3]], size)]
    mixed += [padded(c, size) for c in (MACHINES["twins"][2], COUNTED["2..5"][2], COUNTED["40..60"][2])]
    mixed[3] = dataclasses.replace(mixed[3], stacks=3)
    which = [i % len(mixed) for i in range(18)]
    limits = [limits_of(mixed[w], 4 + w) for w in which]
    walk_together(mixed, which, limits=limits, depths=[9] * len(which), pick=favouring(OPENING))


def padded(c, size: int):
    """The constraint over a vocabulary with more ids, all of them forbidden."""
    rows = np.zeros((c.num_rows, (size + 31) // 32), np.uint32)
    rows[:, : c.rows.shape[1]] = c.rows
    table = np.zeros((len(c.increments), size), np.uint16)
    table[:, : c.vocab_size] = c.increments
    return dataclasses.replace(c, vocab_size=size, rows=rows, increments=table, fingerprint=BRACKETS.fingerprint)


def test_neighbours_change_nothing():
    """A row's masks, tokens and stack are the same alone and in a batch with larger D, K and PM."""
    size = len(by_hand.BRACKET_TOKENS)
    few = hand_made.random_constraint(0, size)
    twins = padded(MACHINES["twins"][2], size)
    alone = jax_decode.to_device(BRACKETS)
    together = jax_decode.to_device([few, twins, BRACKETS])
    assert together.stacks == 2
    a = jax_decode.init_state(alone, np.zeros(4, np.int32), np.full(4, 30))
    b = jax_decode.init_state(together, np.array([0, 1, 2, 2, 2, 2]), np.full(6, 30))
    rng = np.random.default_rng(0)
    for _ in range(30):
        ours, theirs = np.asarray(mask(alone, a)), np.asarray(mask(together, b))
        assert (ours == theirs[2:]).all()
        tokens = [any_of(rng, row) if row.any() else -1 for row in theirs]
        a = advance(alone, a, jnp.asarray(tokens[2:], jnp.int32))
        b = advance(together, b, jnp.asarray(tokens, jnp.int32))
        assert a.status.tolist() == b.status.tolist()[2:]


def test_rows_with_several_stacks_are_the_same_in_large_batches():
    """Those rows are worked on a few at a time: more of them than that, in any places, change nothing."""
    twins = MACHINES["twins"][2]
    brackets = padded(BRACKETS, twins.vocab_size) if BRACKETS.vocab_size < twins.vocab_size else BRACKETS
    twins = padded(twins, brackets.vocab_size)
    tables = jax_decode.to_device([brackets, twins])
    which = np.random.default_rng(1).permutation([0] * 8 + [1] * 19)
    many = jax_decode.init_state(tables, which, np.full(27, 30))
    single = jax_decode.init_state(tables, np.array([0, 1]), np.full(2, 30))
    several = 0
    for i in range(12):
        ours, theirs = np.asarray(mask(tables, single)), np.asarray(mask(tables, many))
        assert (ours[which] == theirs).all()
        rng = np.random.default_rng(i)
        pair = np.array([any_of(rng, row) if row.any() else -1 for row in ours], np.int32)
        single, many = advance(tables, single, jnp.asarray(pair)), advance(tables, many, jnp.asarray(pair[which]))
        assert (np.asarray(single.status)[which] == np.asarray(many.status)).all()
        several += (np.asarray(many.node) > 0).all(1).sum()
    assert several


def test_deep_pops_in_one_token():
    """D cells in one token, all the way down, and one closing bracket too many is refused."""
    tables = jax_decode.to_device(BRACKETS)
    assert BRACKETS.max_pops >= 3
    opened = [by_hand.BRACKET_TOKENS.index(x) for x in (b"([", b"(", b"(")]
    state = jax_decode.init_state(tables, np.zeros(1, np.int32), np.full(1, 50))
    for token in opened:
        state = advance(tables, state, jnp.array([token], jnp.int32))
    close = by_hand.BRACKET_TOKENS.index(b")))")
    allowed = np.asarray(mask(tables, state))[0]
    assert not allowed[close]
    assert not allowed[by_hand.BRACKET_TOKENS.index(b")])")]
    after = advance(tables, state, jnp.array([by_hand.BRACKET_TOKENS.index(b"))")], jnp.int32))
    assert np.asarray(mask(tables, after))[0, by_hand.BRACKET_TOKENS.index(b"]")]
    assert advance(tables, state, jnp.array([close], jnp.int32)).status.tolist() == [Status.DEAD_END]


def test_cells_are_appended_where_they_belong():
    """New cells at the very start and the very end too."""
    rng = np.random.default_rng(0)
    cell, new = (jnp.asarray(rng.integers(0, 99, shape), jnp.int32) for shape in ((4, 30, 6), (4, 3, 6)))
    alloc = jnp.array([0, 5, 27, 12], jnp.int32)
    want = np.array(cell)
    for row in range(4):
        want[row, alloc[row] : alloc[row] + 3] = new[row]
    after = jax.jit(appended)(cell.reshape(4, -1), [new[..., c] for c in range(6)], alloc)
    assert (np.asarray(after).reshape(want.shape) == want).all()


@pytest.mark.parametrize("name", ["brackets", "2..5"])
def test_a_state_carries_what_its_stack_leads_to(name):
    """What a step has found is what a walk down the stack finds, whatever was taken, allowed or not."""
    tables = jax_decode.to_device(ON_DEVICE[name])
    size, rng = tables.vocab_size, np.random.default_rng(0)
    walked = jax.jit(lambda t, at: kept(t, popped(t, at.cell, at.node, at.top, at.register, ())))
    state = jax_decode.init_state(tables, np.zeros(16, np.int32), np.full(16, 30))
    for i in range(12):
        assert (np.asarray(walked(tables, state)) == np.asarray(state.sources)).all()
        allowed = np.asarray(mask(tables, state))
        tokens = [int(rng.choice(np.flatnonzero(row))) if row.any() and i < 9 else int(rng.integers(-1, size)) for row in allowed]
        state = advance(tables, state, jnp.asarray(tokens, jnp.int32))
    assert len(set(state.status.tolist())) > 1


def test_too_many_configurations_are_dropped_and_said_to_be():
    """Palindromes with three configurations: what is allowed is a palindrome's beginning, and the flag tells when some are not."""
    _, tokens, every = MACHINES["palindromes"]
    few = dataclasses.replace(every, stacks=3)
    for seed in range(4):
        for ids in walk_together([few], [0] * 8, limits=[10] * 8, depths=[12] * 8, seed=seed):
            text = b"".join(tokens[t] for t in ids)
            assert text == text[::-1]
    walk = few.walk()
    for token in (b"aa", b"aa"):
        walk.advance(tokens.index(token))
    assert walk.dropped


def test_no_configuration_is_counted_twice():
    """Sampling among overlapping configurations: log-probabilities are those of a set, and the candidates list no token twice."""
    tokens, c = WORD_TOKENS, ON_DEVICE["palindromes"]
    tables = jax_decode.to_device(c)
    state = jax_decode.init_state(tables, np.zeros(1, np.int32), np.full(1, 20))
    draw, listing = jax.jit(jax_decode.sample), jax.jit(jax_decode.step.masking.candidates)
    logits = jnp.log(jnp.arange(1, len(tokens) + 1, dtype=jnp.float32))[None]
    for token in (3, 3, 1):
        allowed = np.asarray(mask(tables, state))[0]
        listed, ok = listing(tables, state)
        got = np.asarray(listed)[np.asarray(ok)].tolist()
        assert len(got) == len(set(got))
        key, step = jnp.zeros((1, 2), jnp.uint32), jnp.zeros(1, jnp.uint32)
        choice = draw(Categorical(None), logits, key, step, tables, state)
        weight = np.arange(1, len(tokens) + 1) * allowed
        want = np.log(weight[int(choice.token[0])] / weight.sum())
        assert float(choice.logprob[0]) == pytest.approx(want, abs=1e-5)
        state = advance(tables, state, jnp.array([token], jnp.int32))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("c", [BRACKETS, MACHINES["twins"][2], COUNTED["7..9"][2]], ids=["brackets", "twins", "counted"])
def test_rewind_inside_scan_is_a_replay(c):
    """Random drafts of four tokens, a random number of which is kept, many times: states equal a replay of the kept ones."""
    tables = jax_decode.to_device(c)
    batch, rounds = 6, 12
    first = jax_decode.init_state(tables, np.zeros(batch, np.int32), np.full(batch, 200), max_depth=8)
    last, (drafted, kept) = drafted_and_rewound(tables, first, jax.random.split(jax.random.key(0), rounds))
    drafted, kept = np.asarray(drafted), np.asarray(kept)
    assert (kept < 4).any()
    base = stack_walks.Bases(tables, [c])
    for row in range(batch):
        walk = c.walk(8)
        for r in range(rounds):
            for i in range(kept[r, row]):
                walk.advance(int(drafted[r, i, row]))
        want = [at._replace(stack=tuple((x.symbol, x.register) for x in at.stack)) for at in walk.configurations]
        assert stack_walks.configurations(last, row, base.node[0], 0, tables.cell_width) == want


@jax.jit
def drafted_and_rewound(tables, state: ConstraintState, keys):
    """A `scan` of rounds: four random allowed tokens are taken, then every row returns to a position among the five."""

    def draft(state, key):
        allowed = jax_decode.mask(tables, state).at[:, 0].set(False)
        token = jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)).astype(jnp.int32)
        token = jnp.where(allowed.any(1), token, -1)
        return jax_decode.advance(tables, state, token), (state.position, token)

    def one_round(state, key):
        keys = jax.random.split(key, 5)
        state, (before, tokens) = jax.lax.scan(draft, state, keys[:4])
        after = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), before, state.position)
        # Rows whose text ended keep what they took while it ran.
        most = ((before.status == Status.RUNNING) & (tokens >= 0)).sum(0)
        kept = jnp.minimum(jax.random.randint(keys[4], most.shape, 0, 5), most)
        chosen = jax.tree.map(lambda field: field[kept, jnp.arange(len(kept))], after)
        return state.rewound(chosen), (tokens, kept)

    return jax.lax.scan(one_round, state, keys)


def test_generate_completes_inside_budget_and_depth():
    """Logits that favour opening brackets: every row complete within both limits."""
    tokens = by_hand.BRACKET_TOKENS
    tables = jax_decode.to_device(BRACKETS)
    decoder = toy(len(tokens))
    bias = jnp.zeros(len(tokens)).at[jnp.array(OPENING)].set(6.0).at[0].set(-9.0)

    def biased(*args):
        logits, cache = decoder.apply_fn(*args)
        return logits + bias[None, None], cache

    favoured = dataclasses.replace(decoder, apply_fn=biased)
    machine = by_hand.brackets()
    for depth in (0, 1, 3, 20):
        out = jax_decode.generate(
            favoured, [[1]] * 3, tables, key=jax.random.key(depth), max_new_tokens=[3, 9, 24], sampler=Categorical(1.0),
            num_samples=8, max_depth=depth,
        )  # fmt: skip
        assert out.status == [Status.ACCEPTED] * 24
        assert not out.dropped.any()
        for ids in out.tokens:
            assert machine.accepts(b"".join(tokens[t] for t in ids))
            walk = BRACKETS.walk()
            for t in ids:
                walk.advance(int(t))
                assert len(walk.configurations[0].stack) <= depth


def test_generate_says_when_configurations_were_dropped():
    few = dataclasses.replace(MACHINES["palindromes"][2], stacks=2)
    out = jax_decode.generate(
        toy(len(WORD_TOKENS)), [[1]] * 4, jax_decode.to_device(few), key=jax.random.key(0), max_new_tokens=12,
        sampler=Categorical(9.0),
    )  # fmt: skip
    assert out.status == [Status.ACCEPTED] * 4
    assert out.dropped.any()
    for ids in out.tokens:
        text = b"".join(WORD_TOKENS[t] for t in ids)
        assert text == text[::-1]


def test_depths_that_no_text_keeps_are_an_error_before_the_first_token():
    c = COUNTED["2..5"][2]
    tables = jax_decode.to_device(c)
    with pytest.raises(DecodeError, match=r"max_depth is below the depth.*\n  prompt 1: 1 of 2"):
        jax_decode.generate(toy(c.vocab_size), [[1], [2]], tables, max_new_tokens=40, max_depth=[2, 1])
    with pytest.raises(DecodeError, match="max_depth of prompt 0 is -1"):
        jax_decode.generate(toy(c.vocab_size), [[1]], tables, max_new_tokens=40, max_depth=-1)
    state = jax_decode.init_state(tables, np.zeros(1, np.int32), np.full(1, 40), max_depth=1)
    assert not mask(tables, state).any()


def test_room_for_cells_is_known_before_the_first_token():
    tables = jax_decode.to_device(BRACKETS)
    with pytest.raises(DecodeError, match="for how many tokens their cells must last"):
        jax_decode.init_state(tables, np.zeros(2, np.int32))
    state = jax_decode.init_state(tables, np.array([0, -1]), max_tokens=7)
    assert state.remaining.tolist() == [7, 2**30]
    regular = jax_decode.to_device(hand_made.random_constraint(0))
    state = jax_decode.init_state(regular, np.zeros(2, np.int32))
    assert state.cell.size == state.top.size == state.register.size == 0


def test_twenty_pushdown_constraints_of_a_bucket_have_one_shape():
    shapes = set()
    for low in range(1, 7):
        tables = jax_decode.to_device(by_hand.counted(low, low + 5))
        shapes.add((jax.tree.structure(tables), tuple(x.shape for x in jax.tree.leaves(tables))))
    assert len(shapes) == 1
