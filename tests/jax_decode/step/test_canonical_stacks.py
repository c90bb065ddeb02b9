"""Canonical constraints with a stack: the device does what the host's walks do, in every way to decode.

The constraints are ordinary ones that follow the tokenizer's filter too (`marked`): what cannot be completed was not taken out of them, so
rows run into dead ends. What is compared is only whether both halves allow the same.
"""

from __future__ import annotations

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import searches, toy_merges
from oracles.block_decoder import block_toy, disturbed
from oracles.device_limits import allowed_on_the_device
from oracles.filtered_walks import FilteredWalk, marked
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile import CanonicalWalk, CompiledConstraint, CompileLimits, Vocabulary, compile_grammar, compile_regex
from fsa_compile.artifact.canonical_part import EVERY_SEQUENCE
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.canonical.restrict import canonical_product, multiplied
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.errors import ArtifactError
from fsa_compile.inspection.explain import statistics
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import tables_for
from jax_decode import Categorical, Greedy, ModelDraft, Status
from jax_decode.integrations.carried import carry
from jax_decode.step.forced import only_token

NESTED = ('start: "(" (start | "a" | "b")* ")"', 'start: item\nitem: "(" [item ("a" item)*] ")" | "b"+')
CUTS = r"\(+|a+(?!b)|[\s\S]"
LIMIT = 12


def world(seed: int, pattern: str) -> tuple[Vocabulary, CanonicalTables, list[CompiledConstraint]]:
    """A random encoder, two constraints with a stack, one of them behind a prompt too, and a regular one."""
    tokens, merges = toy_merges.random_merges(random.Random(seed), [b"a", b"b", b"(", b")"], 10)
    every = [*tokens, b""]
    stops = [len(every) - 1]
    vocabulary, limits = Vocabulary.from_tokens(every, stop_ids=stops), CompileLimits()
    tables = toy_tables(every, merges, pattern=pattern, stop_ids=stops)
    nested = [compile_grammar(text, vocabulary) for text in NESTED]
    assert all(c.stacks == 1 and c.num_symbols for c in nested)
    regular = canonical_product(compile_regex("[ab()]*", vocabulary), tables, tables_for(vocabulary), limits, Deadline(limits))
    behind = marked(nested[0], tables, [tokens.index(b"(")])
    return vocabulary, tables, [*(marked(c, tables) for c in nested), behind, regular]


VOCABULARY, CANONICAL, CONSTRAINTS = world(5, r"[\s\S]+")
STOP = VOCABULARY.stop_ids[0]
DEVICE = jax_decode.to_device(CONSTRAINTS, canonical=CANONICAL)
_mask, _advance, _only = jax.jit(jax_decode.mask), jax.jit(jax_decode.advance), jax.jit(only_token)


def walks_of(constraints, tables, limits, depths):
    return [FilteredWalk(c, tables, limit, depth) for c, limit, depth in zip(constraints, limits, depths, strict=True)]


def follow(tables, device, constraints, limits, depths, rng) -> tuple[int, int]:
    """Random walks, all rows in one batch behind one without a constraint: masks, forced tokens and ends must be the host's.

    Returns how many masks were compared, and how many were less than the constraint alone allows.
    """
    walks = walks_of(constraints, tables, limits, depths)
    seconds = [CanonicalWalk(c, tables, depth) for c, depth in zip(constraints, depths)]
    which = np.array([-1, *range(len(walks))], np.int32)
    state = jax_decode.init_state(device, which, np.array([LIMIT, *limits]), max_depth=np.array([0, *depths]), max_tokens=LIMIT)
    compared = narrower = 0
    ended: dict[int, Status] = {}
    for step in range(LIMIT):
        got, forced, tokens = np.asarray(_mask(device, state)), np.asarray(_only(device, state)), [int(rng.integers(0, STOP))]
        assert got[0].all()
        for row, (walk, second) in enumerate(zip(walks, seconds), 1):
            left = limits[row - 1] - step
            if row in ended:
                assert not got[row].any()
                tokens.append(-1)
                continue
            want = walk.allowed(left)
            np.testing.assert_array_equal(got[row], want)
            np.testing.assert_array_equal(second.allowed(), walk.allowed())
            if want.any() and walk.bounded and left >= walk.own.distance:
                np.testing.assert_array_equal(second.allowed(left), want)
            compared, narrower = compared + 1, narrower + int((want != allowed_on_the_device(walk.own, left)).any())
            choices = np.flatnonzero(want)
            assert forced[row] == (choices[0] if len(choices) == 1 else -1)
            if not len(choices):
                assert not walk.accepting
                tokens.append(int(rng.integers(0, STOP)))
                ended[row] = Status.DEAD_END
                continue
            more = choices[choices != STOP]
            token = int(rng.choice(more if len(more) else choices))
            walk.advance(token, left)
            second.advance(token)
            assert (second.accepting, second.finished, second.state) == (walk.accepting, walk.finished, walk.history[-1][1])
            if walk.finished or left == 1:
                ended[row] = Status.ACCEPTED if walk.accepting or walk.finished else Status.TRUNCATED
            tokens.append(token)
        state = _advance(device, state, jnp.asarray(tokens, jnp.int32))
        for row, status in ended.items():
            assert int(state.status[row]) == status
    return compared, narrower


@pytest.mark.parametrize(("seed", "pattern"), [(5, r"[\s\S]+"), (1, CUTS)])
def test_masks_and_steps_of_the_device_are_the_hosts(seed, pattern):
    """Limits of tokens and depth that can be kept and that cannot, beside a regular constraint and a row without one."""
    _, tables, constraints = (VOCABULARY, CANONICAL, CONSTRAINTS) if seed == 5 else world(seed, pattern)
    device = jax_decode.to_device(constraints, canonical=tables)
    rng, total = np.random.default_rng(seed), np.zeros(2, int)
    for _ in range(12):
        limits = rng.integers(1, LIMIT + 1, len(constraints)).tolist()
        depths = [c.shortest_depth + int(d) for c, d in zip(constraints, rng.integers(0, 5, len(constraints)))]
        total += follow(tables, device, constraints, limits, depths, rng)
    compared, narrower = total
    assert compared > 150
    assert narrower > compared / 4


ROWS = 16
PROMPTS = [[i % 5, i % 3] for i in range(ROWS)]
GIVEN = {
    "constraint": [i % len(CONSTRAINTS) for i in range(ROWS)], "max_new_tokens": [4 + i % 9 for i in range(ROWS)], "max_depth": 6,
    "key": jax.random.key(2), "raw_logprobs": False,
}  # fmt: skip


def of_the_host(out, logits=None) -> int:
    """Every token of the rows is allowed by the host, and is the likeliest by `logits` [ROWS, T, V]; returns how many were accepted."""
    accepted = 0
    for row, (tokens, which, limit) in enumerate(zip(out.tokens, GIVEN["constraint"], GIVEN["max_new_tokens"])):
        walk = FilteredWalk(CONSTRAINTS[which], CANONICAL, limit, GIVEN["max_depth"])
        for at, token in enumerate(tokens.tolist()):
            allowed = walk.allowed(limit - at)
            assert allowed[token]
            assert logits is None or token == np.argmax(np.where(allowed, logits[row, at], -np.inf))
            walk.advance(token, limit - at)
        accepted += out.status[row] == Status.ACCEPTED
        assert walk.accepting == (out.status[row] == Status.ACCEPTED)
    return accepted


def test_greedy_drafts_of_the_device_are_the_hosts():
    """Drafted tokens are taken back, with the last token, the filter's state and the stack."""
    decoder = block_toy(STOP + 1, 2, scale=0.8)
    draft = ModelDraft(disturbed(decoder, 0.5), 4)
    out = jax_decode.generate(decoder, PROMPTS, DEVICE, **GIVEN, sampler=Greedy(), draft=draft, forced=3)
    tokens = np.zeros((ROWS, 16), np.int32)
    for row, (prompt, text) in enumerate(zip(PROMPTS, out.tokens)):
        tokens[row, : 2 + len(text)] = [*prompt, *text.tolist()]
    logits, _ = decoder.apply(jnp.asarray(tokens), decoder.init_cache(ROWS, 16), jnp.full(ROWS, 16, jnp.int32))
    assert of_the_host(out, np.asarray(logits)[:, 1:]) > ROWS / 4
    assert 0 < out.work.accepted.sum() < out.work.drafted.sum()


def test_sampled_drafts_and_forced_runs_change_no_text_of_the_device(exhaustive):
    if not exhaustive:
        pytest.skip("run with --exhaustive")
    decoder = block_toy(STOP + 1, 2, scale=0.8)
    plain = jax_decode.generate(decoder, PROMPTS, DEVICE, **GIVEN, sampler=Categorical(1.2))
    draft = ModelDraft(disturbed(decoder, 0.5), 4, same_noise=True)
    out = jax_decode.generate(decoder, PROMPTS, DEVICE, **GIVEN, sampler=Categorical(1.2), draft=draft, forced=3)
    assert [t.tolist() for t in out.tokens] == [t.tolist() for t in plain.tokens]
    assert out.status == plain.status
    assert of_the_host(out) > ROWS / 4
    assert len({tuple(t.tolist()) for t in plain.tokens}) > 6
    assert 0 < out.work.accepted.sum() < out.work.drafted.sum()


def test_beams_of_the_device_are_the_hosts_search():
    decoder, limits, depth = toy(STOP + 1, 4), [7, 6, 8, 5], 4
    out = jax_decode.beam_search(
        decoder, [[1, 2]] * 4, DEVICE, constraint=range(4), beams=4, max_new_tokens=limits, length_penalty=1.0, max_depth=depth
    )
    logits, found = searches.toy_logits(decoder, [1, 2]), 0
    for row, (constraint, limit) in enumerate(zip(CONSTRAINTS, limits)):
        want = searches.beam_search(
            logits, lambda c=constraint, n=limit: FilteredWalk(c, CANONICAL, n, depth), limit, (STOP,), 4, 1.0
        )[:4]
        assert out.found[row] == len(want)
        found += len(want)
        for at, text in enumerate(want, row * 4):
            assert tuple(out.tokens[at].tolist()) == text.tokens
            np.testing.assert_allclose(out.scores[at], searches.score(text, 1.0), atol=3e-4)
    assert found > 6


def test_every_text_of_the_device_is_one_of_the_hosts(exhaustive):
    """All texts within a limit, with their probabilities under the model."""
    if not exhaustive:
        pytest.skip("run with --exhaustive")
    decoder, limit = toy(STOP + 1, 4), 4
    given = {"constraint": [0, 1, 2], "max_new_tokens": limit, "always_stop": True}
    found = jax_decode.enumerate_sequences(decoder, [[1, 2]] * 3, DEVICE, **given)
    logits, total = searches.toy_logits(decoder, [1, 2]), 0
    for row in range(3):
        got = {tuple(t.tolist()): p for t, p, at in zip(found.tokens, found.raw_logprobs, found.prompt) if at == row}
        want = {}
        for text in searches.all_texts(logits, FilteredWalk(CONSTRAINTS[row], CANONICAL, limit), limit, (STOP,)):
            walk = FilteredWalk(CONSTRAINTS[row], CANONICAL)
            for token in text.tokens:
                walk.advance(token)
            if walk.accepting:
                want[text.tokens] = text.logprob
        assert set(got) == set(want)
        for tokens, logprob in got.items():
            np.testing.assert_allclose(logprob, want[tokens], atol=3e-4)
        total += len(got)
    assert total > 10


def test_a_carried_state_is_the_devices():
    """What other libraries' loops carry holds the last token and the filter's state."""
    rows = len(CONSTRAINTS)
    carried, layout = carry(
        DEVICE, vocab_size=STOP + 1, constraint=list(range(rows)), max_new_tokens=9, max_depth=5, stop_ids=None, allow_truncation=True
    )  # fmt: skip
    state = jax_decode.init_state(DEVICE, np.arange(rows), np.full(rows, 9), max_depth=5, max_tokens=9)
    before, step = layout.zeros(rows), jax.jit(lambda carried, before, tokens, going: carried.state(before, tokens, going))
    tokens = jnp.zeros(rows, jnp.int32)
    for at in range(5):
        before = step(carried, before, tokens, jnp.asarray(at > 0))
        want = np.asarray(_mask(DEVICE, state))
        np.testing.assert_array_equal(np.asarray(_mask(DEVICE, before)), want)
        np.testing.assert_array_equal(np.asarray(before.canonical), np.asarray(state.canonical))
        tokens = jnp.asarray([np.flatnonzero(row)[at % row.sum()] if row.any() else -1 for row in want], jnp.int32)
        state = _advance(DEVICE, state, tokens)


def test_constraints_of_one_size_share_a_program():
    """No constraint is compiled into the step."""
    stacked = [jax_decode.to_device([c, CONSTRAINTS[3]], canonical=CANONICAL) for c in (CONSTRAINTS[0], CONSTRAINTS[2])]
    step = jax.jit(lambda tables, state, tokens: jax_decode.advance(tables, state, tokens))
    for device in stacked:
        state = jax_decode.init_state(device, np.arange(2), np.full(2, 5), max_tokens=5)
        step(device, state, jnp.zeros(2, jnp.int32))
    assert step._cache_size() == 1


def test_a_constraint_of_two_nodes_for_every_place_beside_those_with_a_stack():
    """Then theirs have two nodes as well; masks and steps stay the host's. With registers that is refused."""
    limits = CompileLimits()
    start, plain = CANONICAL.after([]), compile_regex("[ab()]*", VOCABULARY)
    doubled = multiplied(plain, CANONICAL, tables_for(VOCABULARY), limits, Deadline(limits), *start)
    assert doubled.canonical.partners
    device = jax_decode.to_device([*CONSTRAINTS, doubled], canonical=CANONICAL)
    rng = np.random.default_rng(3)
    for _ in range(4):
        bounds = rng.integers(1, LIMIT + 1, len(CONSTRAINTS)).tolist()
        depths = [c.shortest_depth + int(d) for c, d in zip(CONSTRAINTS, rng.integers(0, 5, len(CONSTRAINTS)))]
        follow(CANONICAL, device, CONSTRAINTS, bounds, depths, rng)
    walk, state = CanonicalWalk(doubled, CANONICAL), jax_decode.init_state(device, np.array([4]), max_tokens=LIMIT)
    for _ in range(6):
        choices = walk.allowed()
        np.testing.assert_array_equal(np.asarray(_mask(device, state))[0], choices)
        token = int(rng.choice(np.flatnonzero(choices)[:-1]))
        walk.advance(token)
        state = _advance(device, state, jnp.asarray([token], jnp.int32))
    counted = marked(compile_grammar('start: "(" ("a" | "b")~3..400 ")"', VOCABULARY), CANONICAL)
    assert counted.ladder.any()
    with pytest.raises(jax_decode.DecodeError, match="with registers cannot share tables with constraint 0") as refused:
        jax_decode.to_device([doubled, counted], canonical=CANONICAL)
    assert "tables of their own" in str(refused.value)


def test_several_stacks_are_refused():
    several = dataclasses.replace(CONSTRAINTS[0], stacks=2)
    with pytest.raises(jax_decode.DecodeError, match="followed on 2 stacks"):
        jax_decode.to_device(several, canonical=CANONICAL)
    with pytest.raises(ArtifactError, match="several stacks"):
        CanonicalWalk(several, CANONICAL)


def test_files_sizes_and_shortest_texts(tmp_path):
    for wrong in ({"stacks": 2}, {"canonical": dataclasses.replace(CONSTRAINTS[0].canonical, partners=True)}):
        dataclasses.replace(CONSTRAINTS[0], **wrong).save(tmp_path / "wrong.npz")
        with pytest.raises(ArtifactError, match=r"stacks|two nodes"):
            CompiledConstraint.load(tmp_path / "wrong.npz")
    for c in CONSTRAINTS[:2]:
        c.save(tmp_path / "nested.npz")
        read = CompiledConstraint.load(tmp_path / "nested.npz", VOCABULARY)
        plain = dataclasses.replace(c, canonical=EVERY_SEQUENCE)
        assert read.is_canonical
        assert (read.shortest_depth, read.shortest_completion) == (plain.shortest_depth, plain.shortest_completion)
        assert statistics(read) == statistics(plain)
        walk = CanonicalWalk(read, CANONICAL)
        for token in walk.shortest():
            walk.advance(token)
        assert walk.accepting
