"""Sequential Monte Carlo: masses and weighted samples against exact sums, rows against a replay, resampling, errors."""

from __future__ import annotations

import collections
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import exact_sums, hand_made
from oracles import hand_pushdown as by_hand
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
from fsa_compile import Vocabulary
from fsa_compile.json_schema.schema_options import SchemaOptions
from jax_decode import DecodeError, LookAhead, Masked, Rejection, Status
from jax_decode.probability import weights
from jax_decode.probability.resampling import effective_size, systematic
from jax_decode.probability.smc import run_particles

SIZE, GROUPS, LIMIT = 8, 400, 4
CONSTRAINTS = [hand_made.random_constraint(i, SIZE, num_nodes=6) for i in range(25)]
TABLES = jax_decode.to_device(CONSTRAINTS)
WHICH, PROMPT = 12, [1, 2]
FAR = 5.0
"""Standard errors; a fair estimate is that far off once in 1.7 million tests."""


def decoder():
    """Of distributions not too peaked, so that means over 600 groups are nearly normal."""
    one = toy(SIZE, seed=5)
    return dataclasses.replace(one, params=jax.tree.map(lambda x: x * 0.4, one.params))


def run(proposal=Masked(), below=0.5, seed=0, which=WHICH, model=None, **options):  # noqa: B008
    return jax_decode.generate_smc(
        model or decoder(), [PROMPT] * GROUPS, TABLES, key=jax.random.key(seed), max_new_tokens=LIMIT, particles=6, resample_below=below,
        proposal=proposal, constraint=[which] * GROUPS, **options,
    )  # fmt: skip


def deviation(estimates: np.ndarray, expected: float) -> float:
    """Standard errors between a mean and what it should be."""
    error = estimates.std(ddof=1) / np.sqrt(len(estimates))
    return float((estimates.mean() - expected) / max(error, 1e-6 * expected))


def by_sequence(out, log_weights, found) -> list[float]:
    """Deviations of the mass and of every sequence that is not rare."""
    rows = [tuple(t.tolist()) for t in out.generation.tokens]
    each = np.exp(log_weights) / log_weights.shape[1]
    deviations = [deviation(each.sum(1), exact_sums.mass(found))]
    for leaf in found:
        if leaf.raw > 0.02 * exact_sums.mass(found):
            same = np.array([row == leaf.tokens for row in rows]).reshape(each.shape)
            deviations.append(deviation(np.where(same, each, 0).sum(1), leaf.raw))
    return deviations


def exact(which=WHICH, **options):
    return exact_sums.leaves(decoder(), CONSTRAINTS[which], PROMPT, LIMIT, **options)


WRONG = LookAhead(candidates=3, slots=37, values=np.random.default_rng(0).uniform(-1.5, 0, 37).astype(np.float32))
"""Knows nothing true, and looks behind three of eight tokens."""


@pytest.mark.sampled(5, every=("proposal", "below"))
@pytest.mark.parametrize("proposal", [Masked(), Rejection(2), WRONG], ids=["masked", "rejection", "wrong table"])
@pytest.mark.parametrize("below", [0.0, 0.95, 2.0])
def test_masses_and_weighted_samples_are_unbiased(proposal, below):
    out = run(proposal, below, seed=3)
    assert set(out.generation.status) == {Status.ACCEPTED}
    assert out.resampled.any() == (below > 0)
    deviations = by_sequence(out, out.log_weights, exact())
    assert len(deviations) > 8
    assert np.abs(deviations).max() < FAR
    assert (out.draws > 0) == isinstance(proposal, Rejection)


def test_looking_ahead_learns_where_texts_complete():
    """Weights become more even, rows without weights come nearer to the model's distribution, and estimates stay unbiased.

    With the parameters of a restored model, committed to a device, and so is what was learned: one program.
    """
    found, out, sizes, distances = exact(), run(below=0.0, seed=1), [], []
    restored, before = jax.device_put(decoder(), jax.local_devices()[0]), run_particles._cache_size()
    expected = {leaf.tokens: leaf.raw / exact_sums.mass(found) for leaf in found}
    proposal = LookAhead()
    for seed in range(4):
        rows = [tuple(t.tolist()) for t in out.generation.tokens]
        counts = collections.Counter(rows)
        distances.append(sum(abs(counts[text] / len(rows) - p) for text, p in expected.items()) / 2)
        sizes.append(out.effective_sample_size.mean())
        out = run(proposal, below=0.0, seed=10 + seed, model=restored)
        proposal = out.proposal
    assert run_particles._cache_size() == before + 1
    assert sizes[-1] > 1.25 * sizes[0]
    assert distances[-1] < 0.7 * distances[0]
    assert np.abs(by_sequence(out, out.log_weights, found)).max() < FAR
    values = np.asarray(proposal.values)
    assert (values < 0).sum() >= 4
    assert (values <= 0).all()


def test_the_test_finds_biased_estimates():
    """Rows without weights; weights that are normalised in groups of six, whose bias is of the order of a sixth."""
    found, out = exact(), run(below=0.0, seed=3)
    mass = exact_sums.mass(found)
    alike = np.full_like(out.log_weights, np.log(mass))
    assert np.abs(by_sequence(out, alike, found)).max() > 2 * FAR
    normalized = np.log(weights.normalized(out.log_weights) * 6 * mass)
    assert np.abs(by_sequence(out, normalized, found)).max() > FAR


def test_always_stop():
    which = 2
    found = exact(which, always_stop=True)
    assert exact_sums.mass(found) < 0.5 * exact_sums.mass(exact(which))
    out = run(which=which, always_stop=True)
    assert abs(deviation(np.exp(out.log_mass), exact_sums.mass(found))) < FAR
    assert abs(deviation(np.exp(run(which=which).log_mass), exact_sums.mass(found))) > 2 * FAR


def test_rows_are_what_the_model_says_of_their_tokens():
    """Copies of caches, states and outputs belong together, after any number of resamplings."""
    out, model = run(below=2.0), exact_sums.ToyModel(decoder())
    assert out.resampled.sum(0).max() > 1
    rows = out.generation
    for i in range(0, len(rows), 97):
        walk, tokens = CONSTRAINTS[WHICH].walk(), [*rows.tokens[i].tolist()]
        taken = [*tokens] if rows.stop_token[i] is None else [*tokens, rows.stop_token[i]]
        raw = [np.log(model.probabilities([*PROMPT, *taken[:t]])[token]) for t, token in enumerate(taken)]
        assert rows.raw_total_logprob[i] == pytest.approx(sum(raw), abs=1e-4)
        local = 0.0
        for t, token in enumerate(taken):
            mask = walk.allowed(LIMIT - t)
            local += raw[t] - np.log(model.probabilities([*PROMPT, *taken[:t]])[mask].sum())
            walk.advance(token)
        assert walk.accepting
        assert rows.total_logprob[i] == pytest.approx(local, abs=1e-4)


def test_without_resampling_it_is_importance_sampling():
    out = run(below=0.0)
    np.testing.assert_allclose(jax_decode.log_weights(out.generation), out.log_weights.reshape(-1), atol=1e-5)
    assert (np.diff(out.ess, axis=0) < 1e-3 + out.ess[:-1]).all()
    np.testing.assert_allclose(out.ess[-1], out.effective_sample_size, rtol=1e-4)


def test_other_settings_cause_no_trace():
    run()
    run(Rejection(2))
    before = run_particles._cache_size()
    for i in range(4):
        run(Rejection(1 + i) if i % 2 else Masked(), below=0.1 * i, seed=i, which=i, always_stop=i > 2)
    assert run_particles._cache_size() == before


@pytest.mark.parametrize("proposal", [Masked(), LookAhead()], ids=["masked", "look-ahead"])
def test_stacks_are_copied_too(exhaustive, proposal):
    if not exhaustive and proposal == Masked():
        pytest.skip("run by --exhaustive: stacks are another program")
    c = by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS)
    model = toy(c.vocab_size, seed=2)
    found = exact_sums.leaves(model, c, [1], 3)
    out = jax_decode.generate_smc(
        model, [[1]] * GROUPS, jax_decode.to_device(c), key=jax.random.key(0), max_new_tokens=3, particles=6, resample_below=2,
        proposal=proposal,
    )  # fmt: skip
    assert abs(deviation(np.exp(out.log_mass), exact_sums.mass(found))) < FAR
    for row in out.generation.tokens[::50]:
        walk = c.walk()
        for token in row:
            walk.advance(int(token))
        assert walk.accepting


KEY_TOKENS = [b"{", b'"a":', b'"b":', b'"c":', b"true", b"false", b",", b"}", b'{"', b'a":', b',"', b'b":', b'true,"', b'"', b":",
              *(bytes([c]) for c in b"abctruefls"), b""]  # fmt: skip


def test_keys_in_every_order_are_copied_too():
    """Particles keep the set of the keys they have written; no key comes twice, whatever was resampled."""
    vocabulary = Vocabulary.from_tokens(KEY_TOKENS, stop_ids=[len(KEY_TOKENS) - 1])
    flag = {"type": "boolean"}
    schema = {"properties": {"a": flag, "b": flag, "c": {"const": False}}, "required": ["a", "b"], "additionalProperties": False}
    options = SchemaOptions(key_order="any", whitespace="compact")
    c = fsa_compile.compile_json_schema({"type": "object"} | schema, vocabulary, options=options)
    assert c.has_sets
    model = toy(len(KEY_TOKENS), seed=2)
    model = dataclasses.replace(model, params=jax.tree.map(lambda x: x * 0.3, model.params))
    found = exact_sums.leaves(model, c, [1], 10)
    assert len(found) > 100
    out = jax_decode.generate_smc(
        model, [[1]] * GROUPS, jax_decode.to_device(c), key=jax.random.key(4), max_new_tokens=10, particles=6, resample_below=2
    )
    assert abs(deviation(np.exp(out.log_mass), exact_sums.mass(found))) < FAR
    orders = set()
    for text in out.generation.text(vocabulary):
        pairs = json.loads(text, object_pairs_hook=list)
        keys = [key for key, _ in pairs]
        orders.add(tuple(keys))
        assert len(set(keys)) == len(keys)
        assert {"a", "b"} <= set(keys) <= {"a", "b", "c"}
    assert len(orders) >= 4


def test_draw_follows_the_weights():
    out = run()
    rows = out.draw(seed=0, size=400)
    assert rows.shape == (GROUPS, 400)
    assert (rows // 6 == np.arange(GROUPS)[:, None]).all()
    expected = weights.normalized(out.log_weights)
    shares = (rows[:, :, None] % 6 == np.arange(6)).mean(1)
    assert (np.abs(shares - expected) <= 6 * np.sqrt(expected * (1 - expected) / 400)).all()


def test_systematic_resampling():
    rng = np.random.default_rng(0)
    log_weights = jnp.asarray(np.where(rng.random((300, 7)) < 0.3, -np.inf, rng.normal(size=(300, 7)) * 2), jnp.float32)
    log_weights = log_weights.at[:, 3].set(0.0)
    key = jax_decode.key_words(jax.random.split(jax.random.key(0), 300))
    share = np.exp(log_weights) / np.exp(log_weights).sum(1, keepdims=True) * 7
    counts, resampled = [], jax.jit(systematic)
    for step in range(40):
        parent = np.asarray(resampled(log_weights, key, jnp.full(300, step, jnp.uint32)))
        counts.append((parent[:, :, None] == np.arange(7)).sum(1))
        assert (np.floor(share - 1e-4) <= counts[-1]).all()
        assert (np.ceil(share + 1e-4) >= counts[-1]).all()
    assert (np.stack(counts)[:, np.isinf(log_weights)] == 0).all()
    assert np.abs(np.mean(counts, 0) - share).max() < FAR * 0.5 / np.sqrt(40)
    np.testing.assert_allclose(effective_size(log_weights), weights.effective_sample_size(log_weights), rtol=1e-5)
    assert effective_size(jnp.full((1, 3), -jnp.inf)).tolist() == [0]


def test_arithmetic_of_weights():
    assert weights.log_sum_exp([-np.inf, -np.inf]) == -np.inf
    assert weights.normalized([0.0, np.log(3)]).tolist() == pytest.approx([0.25, 0.75])
    assert weights.normalized([-np.inf]).tolist() == [0]
    assert weights.effective_sample_size([5.0, 5.0, -np.inf]) == pytest.approx(2)
    mean, error = weights.log_mean_exp(np.log([1.0, 2.0, 3.0]))
    assert (np.exp(mean), error) == (pytest.approx(2), pytest.approx(1 / np.sqrt(3) / 2))
    assert weights.log_mean_exp([1.0])[1] == np.inf
    with pytest.raises(DecodeError, match="no row has any weight"):
        weights.draw_rows([-np.inf, -np.inf], 0, 1)


def test_the_loop_never_talks_to_the_host(monkeypatch):
    from jax_decode.probability import particles

    lowered = {}

    def spy(*args, **kwargs):
        lowered["text"] = run_particles.lower(*args, **kwargs).as_text()
        with jax.transfer_guard("disallow"):
            return run_particles(*args, **kwargs)

    monkeypatch.setattr(particles, "run_particles", spy)
    run()
    assert not [word for word in ("callback", "infeed", "outfeed", "stablehlo.send", "stablehlo.recv") if word in lowered["text"]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"particles": 0}, "particles is 0"),
        ({"resample_below": -1}, "resample_below is -1\n  Give a number of at least 0"),
        ({"resample_below": float("nan")}, "resample_below is nan"),
        ({"proposal": "masked"}, "the proposal is 'masked'"),
        ({"constraint": [None]}, "the prompt has no constraint\n  prompt 0"),
        ({"key": 3}, "the key is int 3"),
    ],
)
def test_errors(options, text):
    given = {"key": jax.random.key(0), "max_new_tokens": 4, "constraint": 12} | options
    with pytest.raises(DecodeError, match=text):
        jax_decode.generate_smc(decoder(), [[1]], TABLES, **given)
