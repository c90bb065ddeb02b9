"""Constraints in the rollouts of google-tunix's trainers: its cluster and its GRPO learner, unmodified. Needs that package."""

from __future__ import annotations

import importlib.util
import re
import sys
import types

import jax
import numpy as np
import pytest

if importlib.util.find_spec("tunix") is None or importlib.util.find_spec("metrax") is None:
    pytest.skip("google-tunix is not installed with what its trainers need: make test-parity", allow_module_level=True)
try:
    import tunix
except ImportError:
    spec = importlib.util.find_spec("tunix")
    tunix = types.ModuleType("tunix")
    tunix.__path__, tunix.__spec__ = list(spec.submodule_search_locations), spec
    sys.modules["tunix"] = tunix

import optax
import sentencepiece
from flax import nnx
from oracles.small_tunix import small_tunix
from tunix.rl import rl_cluster
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout.base_rollout import BaseRollout, RolloutConfig

import fsa_compile
import jax_decode
import models
from jax_decode.integrations.tunix import constrained_rollout

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
    return rl_cluster.RLCluster(actor=small_tunix(), tokenizer=tokenizer, cluster_config=config)


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
    model = small_tunix()
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
    cluster.generate(["Say: ", "Is it late? "])
    programs = [program._cache_size() for program in cluster.rollout.sampler._programs]
    other = jax.tree.map(lambda x: x * 1.01, nnx.state(cluster.rollout.model(), nnx.Param))
    cluster.rollout.update_params(other)
    cluster.generate(["Say: ", "Is it late? "])
    assert [program._cache_size() for program in cluster.rollout.sampler._programs] == programs


def test_the_grpo_learner_runs_and_every_rollout_parses(tables):
    """Three steps of the learner as it comes; rewards are given for large first digits."""
    cluster, seen = cluster_of(constrained_rollout(tables), mini_batch_size=2, train_micro_batch_size=2), []

    def reward(prompts, completions, **_):
        seen.extend(completions)
        return [float(text[11]) for text in completions]

    before = np.asarray(nnx.state(cluster.rollout.model(), nnx.Param)["embedder"]["input_embedding"].get_value())
    learner = GRPOLearner(cluster, GRPOConfig(num_generations=4, num_iterations=1, beta=0.0), reward_fns=reward)
    learner.train({"prompts": np.array(["Say: ", "Count: "])} for _ in range(3))
    assert len(seen) == 3 * 2 * 4
    assert all(re.fullmatch(PATTERNS[0], text) for text in seen)
    assert len(set(seen)) > 4  # every step has noise of its own
    after = np.asarray(nnx.state(cluster.rollout.model(), nnx.Param)["embedder"]["input_embedding"].get_value())
    assert not np.array_equal(before, after)
