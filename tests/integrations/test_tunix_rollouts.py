"""Constraints in the rollouts of google-tunix's trainers: its cluster and its GRPO learner, unmodified. Needs that package."""

from __future__ import annotations

import dataclasses
import importlib.util
import re

import jax
import numpy as np
import pytest

if importlib.util.find_spec("tunix") is None or importlib.util.find_spec("metrax") is None:
    pytest.skip("google-tunix is not installed with what its trainers need: make test-parity", allow_module_level=True)
import optax
import sentencepiece
from flax import nnx
from tunix.models.gemma3 import model as gemma3
from tunix.rl import common, function_registry, rl_cluster
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout.base_rollout import BaseRollout, RolloutConfig

import fsa_compile
import jax_decode
import models
from jax_decode.integrations.tunix import IMPORTANCE, constrained_rollout

PATTERNS = [r'\{"answer": [0-9]{1,2}\}', "(yes|no)"]
LENGTH = 16


def cluster_of(engine, **training):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
    roles = dict.fromkeys((rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT), mesh)
    rollout = RolloutConfig(
        max_tokens_to_generate=LENGTH, max_prompt_length=32, kv_cache_size=64, temperature=1.0, return_logprobs=True
    )
    given = {"actor_optimizer": optax.adam(1e-3), "eval_every_n_steps": 10**9, "max_steps": 3}
    config = rl_cluster.ClusterConfig(
        role_to_mesh=roles, rollout_engine=engine, rollout_config=rollout, training_config=rl_cluster.RLTrainingConfig(**given | training)
    )
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(models.small_tokenizer_path()))
    return rl_cluster.RLCluster(actor=models.to_tunix(models.load_small()), tokenizer=tokenizer, cluster_config=config)


@pytest.fixture(scope="module")
def tables():
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    return jax_decode.to_device([fsa_compile.compile_regex(pattern, tokenizer) for pattern in PATTERNS])


@pytest.fixture(scope="module")
def cluster(tables):
    return cluster_of(constrained_rollout(tables, lambda prompt: int("?" in prompt)))


def test_the_model_is_the_small_one():
    """The same logits as the package's own, so that what is trained is a model that can do something."""
    small, tokens = models.load_small(), np.array([[2, 50, 60, 70, 80]])
    model = models.to_tunix(models.load_small())
    mask = np.tril(np.ones((5, 5), bool))[None]
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        want = small.forward(tokens)
        got, _ = model(tokens, np.arange(5)[None], None, mask)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_the_cluster_takes_it_and_every_prompt_has_its_constraint(cluster):
    assert isinstance(cluster.rollout, BaseRollout)
    out = cluster.generate(["Say: ", "Is it late? "] * 3)
    for i, text in enumerate(out.text):
        assert re.fullmatch(PATTERNS[i % 2], text)
    assert {status.name for status in cluster.rollout.sampler.statuses} == {"ACCEPTED"}


def test_both_log_probabilities(cluster):
    """Those of the masked choice are the sampler's own; the model's are never larger."""
    out = cluster.generate(["Say: ", "Is it late? "])
    pad = cluster.rollout.pad_id()
    completions = np.array([np.pad(row, (0, LENGTH - len(row)), constant_values=pad) for row in out.tokens])
    prompts = np.asarray(out.left_padded_prompt_tokens)
    model = np.asarray(cluster.rollout.get_per_token_logps(prompts, completions))
    masked = np.asarray(cluster.rollout.get_constrained_per_token_logps(prompts, completions, np.array([0, 1])))
    for i, row in enumerate(out.tokens):
        np.testing.assert_allclose(masked[i, : len(row)], out.logprobs[i], rtol=1e-3, atol=1e-3)
        assert (model[i, : len(row)] <= masked[i, : len(row)] + 1e-4).all()
        assert not masked[i, len(row) :].any()


def test_new_weights_compile_nothing(cluster):
    """Nor do weights whose shardings a trainer's program has written otherwise, which mean the same."""
    cluster.generate(["Say: ", "Is it late? "])
    programs = cluster.rollout.sampler.compilations
    other = jax.tree.map(lambda x: x * 1.01, nnx.state(cluster.rollout.model(), nnx.Param))
    mesh = cluster.r2m[rl_cluster.Role.ROLLOUT]
    spelled = jax.tree.map(lambda x: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*["tp"][: x.ndim])), other)
    assert any(x.sharding != y for x, y in zip(jax.tree.leaves(other), jax.tree.leaves(spelled)))
    for weights in (other, jax.device_put(other, spelled)):
        cluster.rollout.update_params(weights)
        cluster.generate(["Say: ", "Is it late? "])
    assert cluster.rollout.sampler.compilations == programs


def test_samples_of_a_prompt_share_its_prefill(tables, monkeypatch):
    """A third of the rows is read, and every token and log-probability is what it is when all rows are read."""
    rows, outs, call = [], [], gemma3.Gemma3.__call__

    def counted(self, tokens, *args, **kwargs):
        rows.append(tokens.shape)
        return call(self, tokens, *args, **kwargs)

    monkeypatch.setattr(gemma3.Gemma3, "__call__", counted)
    prompts = [prompt for prompt in ("Say: ", "Is it late? ") for _ in range(3)]
    for shared in (True, False):
        engine = cluster_of(constrained_rollout(tables, lambda prompt: int("?" in prompt)))
        if not shared:
            engine.rollout.sampler._groups[len(prompts)] = 1
        rows.clear()
        outs.append(engine.generate(prompts))
        assert rows == [(2 if shared else 6, 32), (6, 1)]
        engine.generate(prompts[1:4] + prompts[3:])  # other runs: what divides them all
        assert rows[2:] == ([(6, 32)] if shared else [])
        engine.generate(prompts)
        assert len(rows) == (3 if shared else 2)  # and stays so: nothing is compiled again
    for one, other in zip(outs[0].tokens, outs[1].tokens):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(outs[0].logprobs, outs[1].logprobs):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert len({tuple(row) for row in outs[0].tokens}) > 2  # every sample has noise of its own


@pytest.mark.parametrize("importance", [False, True])
def test_the_grpo_learner_runs_and_every_rollout_parses(tables, importance):
    """Three steps of the learner as it comes; rewards are given for large first digits. The first step alone compiles anything."""
    engine = constrained_rollout(tables, importance=importance)
    cluster, seen, programs = cluster_of(engine, mini_batch_size=2, train_micro_batch_size=2, max_steps=6), [], []

    def reward(prompts, completions, **_):
        seen.extend(completions)
        programs.append(cluster.rollout.sampler.compilations)
        return [float(text[11]) for text in completions]

    before = np.asarray(nnx.state(cluster.rollout.model(), nnx.Param)["embedder"]["input_embedding"].get_value())
    loss = {"policy_loss_fn": IMPORTANCE} if importance else {}
    learner = GRPOLearner(cluster, GRPOConfig(num_generations=4, num_iterations=2, beta=0.0, **loss), reward_fns=reward)
    learner.train({"prompts": np.array(["Say: ", "Count: "])} for _ in range(3))
    assert len(seen) == 3 * 2 * 4
    assert all(re.fullmatch(PATTERNS[0], text) for text in seen)
    assert len(set(seen)) > 4  # every step has noise of its own
    assert programs == [(1, 1)] * 3
    after = np.asarray(nnx.state(cluster.rollout.model(), nnx.Param)["embedder"]["input_embedding"].get_value())
    assert not np.array_equal(before, after)


def test_weighted_rollouts(tables):
    """Old log-probabilities are those of the masked choice, under each prompt's own constraint; the loss is Tunix's, weighted."""
    cluster = cluster_of(constrained_rollout(tables, lambda prompt: int("?" in prompt), importance=True))
    out = cluster.generate(["Say: ", "Say: ", "Is it late? ", "Is it late? "])
    pad, eos = cluster.rollout.pad_id(), cluster.rollout.eos_id()
    completions = np.array([np.pad(row, (0, LENGTH - len(row)), constant_values=pad) for row in out.tokens])
    prompts, mask = np.asarray(out.left_padded_prompt_tokens), completions != pad
    old = np.asarray(cluster.get_old_per_token_logps(prompts, completions))
    for i, row in enumerate(out.tokens):
        np.testing.assert_allclose(old[i, : len(row)], out.logprobs[i], rtol=1e-3, atol=1e-3)
    graph, state = nnx.split(cluster.rollout.model())

    def logps(state):
        return common.compute_per_token_logps(graph, state, prompts, completions, pad_id=pad, eos_id=eos, stop_gradient=False)

    log_weights = ((np.asarray(logps(state), np.float64) - old) * mask).sum(1).reshape(2, 2)
    weights = np.exp(log_weights - log_weights.max(1, keepdims=True))
    weights /= weights.mean(1, keepdims=True)
    advantages = np.array([1.0, -1.0, 0.5, -0.5], np.float32)
    centred = advantages.reshape(2, 2) - (weights * advantages.reshape(2, 2)).mean(1, keepdims=True)
    example = common.TrainExample(prompts, prompts != pad, completions, mask, advantages, None, old)
    config = GRPOConfig(num_generations=2, num_iterations=2, beta=0.0, policy_loss_fn=IMPORTANCE)
    config.temperature = 1.0
    loss = function_registry.get_policy_loss_fn(IMPORTANCE)
    got = jax.grad(lambda state: loss(nnx.merge(graph, state), example, config, pad, eos)[0])(state)
    factor = (weights * centred).astype(np.float32).reshape(4, 1) * mask / mask.sum(1, keepdims=True) / 4
    want = jax.grad(lambda state: -(factor * logps(state)).sum())(state)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-5)
    with pytest.raises(jax_decode.DecodeError, match="num_iterations=2"):
        loss(nnx.merge(graph, state), dataclasses.replace(example, old_per_token_logps=None), config, pad, eos)
