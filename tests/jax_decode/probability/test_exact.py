"""Adaptive rejection: the law of the samples against exact sums, whatever is remembered; bounds, costs, memory, errors."""

from __future__ import annotations

import dataclasses
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import exact_sums, hand_made
from oracles import hand_pushdown as by_hand
from oracles.toy_decoder import toy

import jax_decode
from jax_decode import Adaptive, DecodeError, Status
from jax_decode.probability.exact_loop import run_rounds

SIZE, LIMIT, PROMPT = 8, 4, [1, 2]
CONSTRAINTS = [hand_made.random_constraint(i, SIZE, num_nodes=6) for i in range(25)]
TABLES = jax_decode.to_device(CONSTRAINTS)
DECODER = toy(SIZE, seed=5)
LIKELY, RARE = 12, 2
"""Constraints of mass 0.026 with 365 texts, and of mass 0.0017 with 208."""


def run(which=LIKELY, method=Adaptive(nodes=256), samples=3000, seed=0, **options):  # noqa: B008
    options = {"rows": 32, "constraint": which, "prompts": PROMPT, "max_rounds": 5000} | options
    return jax_decode.generate_exact(
        options.pop("decoder", DECODER), options.pop("prompts"), TABLES, key=jax.random.key(seed), max_new_tokens=LIMIT, num_samples=samples,
        method=method, **options,
    )  # fmt: skip


def exact(which, **options):
    """The conditional distribution of texts with whether a stop token ends them."""
    found = exact_sums.leaves(DECODER, CONSTRAINTS[which], PROMPT, LIMIT, **options)
    return {(leaf.tokens, leaf.stopped): leaf.raw / exact_sums.mass(found) for leaf in found}


def texts(generation):
    return [(tuple(t.tolist()), stop is not None) for t, stop in zip(generation.tokens, generation.stop_token)]


def excess(drawn, expected) -> float:
    """Pearson's statistic in standard deviations above its mean; rare texts count together."""
    counts, size = Counter(drawn), len(drawn)
    assert set(counts) <= set(expected)
    common = [text for text, p in expected.items() if p * size >= 8]
    rest = 1 - sum(expected[text] for text in common)
    pairs = [(counts[text], size * expected[text]) for text in common]
    pairs.append((size - sum(count for count, _ in pairs), max(size * rest, 1e-9)))
    degrees = len(pairs) - 1
    return (sum((count - mean) ** 2 / mean for count, mean in pairs if mean > 1) - degrees) / np.sqrt(2 * degrees)


@pytest.mark.parametrize(
    ("which", "method"),
    [
        (LIKELY, Adaptive(nodes=256)),
        (RARE, Adaptive(nodes=256, scout=False)),
        (LIKELY, Adaptive(nodes=20)),  # most is forgotten
        (RARE, Adaptive(nodes=20)),
        (LIKELY, Adaptive(nodes=0)),
    ],
    ids=repr,
)
def test_samples_follow_the_conditional_distribution(which, method):
    samples = 3000 if method.nodes else 1000  # without memory, every sample is drawn from the start
    out = run(which, method, samples, seed=3)
    assert out.found == samples
    assert set(out.generation.status) == {Status.ACCEPTED}
    assert excess(texts(out.generation), exact(which)) < 5


def test_pairs_from_nothing_known_are_independent(exhaustive):
    """Two samples of each of 400 runs (1,000 in full) that begin without memory: neither depends on what the other one taught."""
    drawn = []
    for seed in range(20 if exhaustive else 8):
        out = run(prompts=[PROMPT] * 50, constraint=[RARE] * 50, samples=2, seed=seed, rows=2, method=Adaptive(nodes=2048))
        drawn += zip(texts(out.generation)[::2], texts(out.generation)[1::2])
    one = exact(RARE)
    assert excess([text for pair in drawn for text in pair], one) < 5
    assert excess(drawn, {(a, b): p * q for a, p in one.items() for b, q in one.items()}) < 5


def test_the_test_finds_what_masking_writes():
    masked = run(RARE, Adaptive(nodes=0, reject=False), seed=3)
    assert excess(texts(masked.generation), exact(RARE)) > 50
    local = exact_sums.leaves(DECODER, CONSTRAINTS[RARE], PROMPT, LIMIT)
    assert excess(texts(masked.generation), {(leaf.tokens, leaf.stopped): leaf.local for leaf in local}) < 5


def test_without_rejection_it_comes_near():
    """Every draw is kept, and later ones know what earlier ones met."""
    method = Adaptive(nodes=256, reject=False)
    first = run(RARE, method, seed=3)
    assert first.tries == len(first.generation)
    later = run(RARE, method, seed=4, memory=first.memory)
    assert excess(texts(later.generation), exact(RARE)) < 5


@pytest.mark.parametrize("always_stop", [False, True])
def test_bounds_hold_the_mass(always_stop):
    known, memory = [], None
    mass = np.log(exact_sums.mass(exact_sums.leaves(DECODER, CONSTRAINTS[RARE], PROMPT, LIMIT, always_stop=always_stop)))
    for seed in range(4):
        out = run(RARE, seed=seed, max_rounds=1 + 9 * seed, always_stop=always_stop, memory=memory)
        memory = out.memory
        ((low, high),) = out.log_mass_bounds
        assert low - 1e-4 < mass < high + 1e-4
        known.append(high - low)
    assert known == sorted(known, reverse=True)
    assert known[-1] < 0.5 * known[0]


def test_log_probabilities_are_the_models():
    out, found = run(), {}
    for leaf in exact_sums.leaves(DECODER, CONSTRAINTS[LIKELY], PROMPT, LIMIT):
        found[leaf.tokens, leaf.stopped] = leaf
    for i, text in enumerate(texts(out.generation)[:300]):
        assert out.generation.raw_total_logprob[i] == pytest.approx(np.log(found[text].raw), abs=1e-4)
        assert out.generation.total_logprob[i] == pytest.approx(np.log(found[text].local), abs=1e-4)


def test_what_is_remembered_is_not_asked_again():
    first = run(RARE)
    again = run(RARE, seed=1, memory=first.memory)
    assert again.passes < 0.5 * first.passes
    assert first.positions >= first.passes
    assert again.tries < 3050
    plain = run(RARE, Adaptive(nodes=0), max_rounds=300)
    assert plain.passes > 20 * first.passes
    assert plain.found < 100


def test_too_few_rounds():
    out = run(LIKELY, Adaptive(nodes=0), max_rounds=20)
    number = int(out.found[0])
    assert 0 < number < 3000
    assert out.generation.status == [Status.ACCEPTED] * number + [Status.ABSENT] * (3000 - number)


def test_no_numbers():
    broken = dataclasses.replace(DECODER, params=jax.tree.map(lambda x: x * jnp.nan, DECODER.params))
    with pytest.raises(DecodeError, match="prompt 0"):
        run(decoder=broken)


def test_stacks_are_remembered_too(exhaustive):
    if not exhaustive:
        pytest.skip("run by --exhaustive: stacks are another program")
    c = by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS)
    model = toy(c.vocab_size, seed=2)
    found = exact_sums.leaves(model, c, [1], 5)
    out = jax_decode.generate_exact(
        model, [1], jax_decode.to_device(c), key=jax.random.key(0), max_new_tokens=5, num_samples=3000, rows=32
    )
    expected = {(leaf.tokens, leaf.stopped): leaf.raw / exact_sums.mass(found) for leaf in found}
    assert excess(texts(out.generation), expected) < 5


def test_other_settings_cause_no_trace():
    run()
    before = run_rounds._cache_size()
    run(RARE, Adaptive(nodes=256, scout=False, reject=False), samples=2900, seed=5, max_rounds=7, always_stop=True)
    assert run_rounds._cache_size() == before
    restored = jax.device_put(DECODER, jax.local_devices()[0])  # committed, and so is what is remembered
    run(memory=run(decoder=restored).memory, decoder=restored)
    assert run_rounds._cache_size() == before + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "cars"}, "method is 'cars'"),
        ({"method": Adaptive(nodes=-1)}, "nodes is -1"),
        ({"samples": 0}, "num_samples is 0"),
        ({"rows": 0}, "rows is 0"),
    ],
    ids=str,
)
def test_errors(options, message):
    with pytest.raises(DecodeError, match=message):
        run(**options)


def test_memory_of_something_else():
    memory = run(RARE).memory
    with pytest.raises(DecodeError, match="memory is of other"):
        run(LIKELY, memory=memory)
