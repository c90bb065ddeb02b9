# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reinforcement learning with rollouts that always parse
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/reinforcement.ipynb)
#
# Reward for a right answer in JSON teaches nothing as long as no answer is JSON. Here [google-tunix](https://github.com/google/tunix)'s GRPO
# learner, unmodified, samples its rollouts inside a constraint: each of them has the form from the first step on. The model is the small one that
# comes with the package; it has never seen JSON behind such a question.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package, "google-tunix"], check=True)

# %%
import contextlib
import io
import logging
import random
import re
import warnings

warnings.simplefilter("ignore")  # the trainer's warnings and logs are not what this is about
logging.disable(logging.WARNING)

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
import sentencepiece
from tunix.rl import rl_cluster
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout.base_rollout import RolloutConfig

import fsa_compile
import jax_decode
import models
from fsa_compile import draw
from jax_decode.integrations.tunix import constrained_rollout

plt.rcParams.update(draw.STYLE)  # the colours of the library's pictures

# %% [markdown]
# ## Task and reward
#
# Sums of two digits, answered as `{"answer": 12}`: 1 for the right sum, a tenth less for every unit beside it, nothing for another form.

# %%
FORM = r'\{"answer": (\d{1,2})\}'
STEPS, PROMPTS, GENERATIONS = 20, 8, 4


def questions(seed=0):
    rng = random.Random(seed)
    for _ in range(STEPS):
        pairs = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(PROMPTS)]
        prompts = [f"Question: What is {a} + {b}?\nAnswer: " for a, b in pairs]
        yield {"prompts": np.array(prompts), "sums": np.array([a + b for a, b in pairs])}


def reward(prompts, completions, sums, **_):
    found = [re.fullmatch(FORM, text) for text in completions]
    return [max(1 - abs(int(m[1]) - int(s)) / 10, 0.0) if m else 0.0 for m, s in zip(found, sums)]


# %% [markdown]
# ## A training run
#
# All that is ours is `engine`. `constraint=None` leaves a prompt free. With `importance=True` the learner is told how rollouts were sampled, and
# weighs each by its probability under the model over that of being sampled under the mask.

# %%
tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(models.small_tokenizer_path()))
compiled = fsa_compile.compile_regex(FORM, fsa_compile.load_tokenizer(models.small_tokenizer_path()))
tables = jax_decode.to_device(compiled)
mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
roles = dict.fromkeys((rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT), mesh)


def train(constraint, importance=False):
    """A trained cluster, and of every step the mean reward, the texts, and how many programs the rollouts have needed."""
    seen = []
    engine = constrained_rollout(tables, lambda prompt: constraint, importance=importance)
    training = rl_cluster.RLTrainingConfig(
        actor_optimizer=optax.adam(1e-3), eval_every_n_steps=10**9, max_steps=2 * STEPS, mini_batch_size=PROMPTS,
        train_micro_batch_size=PROMPTS,
    )  # fmt: skip
    rollout = RolloutConfig(max_tokens_to_generate=16, max_prompt_length=32, kv_cache_size=64, temperature=1.0)
    config = rl_cluster.ClusterConfig(
        role_to_mesh=roles, rollout_engine=engine, training_config=training, rollout_config=rollout
    )
    actor = models.to_tunix(models.load_small())
    cluster = rl_cluster.RLCluster(actor=actor, tokenizer=tokenizer, cluster_config=config)
    loss = {"policy_loss_fn": "importance_weighted"} if importance else {}
    grpo = GRPOConfig(num_generations=GENERATIONS, num_iterations=2, beta=0.0, **loss)

    def noted(prompts, completions, **columns):
        rewards = reward(prompts, completions, **columns)
        seen.append((np.mean(rewards), completions, cluster.rollout.sampler.compilations))
        return rewards

    with contextlib.redirect_stderr(io.StringIO()):  # progress bars
        GRPOLearner(cluster, grpo, reward_fns=noted).train(questions())
    return cluster, seen


runs = {"no constraint": train(None), "constraint": train(0), "constraint, weighted": train(0, importance=True)}

# %%
for name, (_, seen) in runs.items():
    texts = [text for _, completions, _ in seen for text in completions]
    share = np.mean([re.fullmatch(FORM, text) is not None for text in texts])
    print(f"{name:21} {share:4.0%} in the form; programs {seen[0][2]} after step 1, {seen[-1][2]} in the end; last: {texts[-1]!r}")

# %%
plt.figure(figsize=(7, 3))
for name, (_, seen) in runs.items():
    rewards = np.array([value for value, _, _ in seen])
    smooth = np.convolve(np.pad(rewards, (4, 0), mode="edge"), np.ones(5) / 5, mode="valid")
    plt.plot(smooth, label=name)
plt.xlabel("step")
plt.ylabel("reward (mean of five steps)")
plt.legend()
plt.title("GRPO with and without a constraint", loc="left");

# %% [markdown]
# ## Both log-probabilities
#
# What a mask has sampled is not what the model would have written: the form is very improbable under the model itself. Rewards compare texts of the
# form with each other, so training decides which of them is written, and hardly whether the form is: the mask remains needed. Weights of texts that
# differ by many nats under the model leave little of a group but its most probable text, so that weighted runs learn more slowly, and not for every
# seed. What they improve is the model's own distribution given the form. A point is a rollout.

# %%
untrained = rl_cluster.RLCluster(
    actor=models.to_tunix(models.load_small()),
    tokenizer=tokenizer,
    cluster_config=runs["constraint"][0].cluster_config,
)
plt.figure(figsize=(9, 3))
prompts = [prompt for prompt in next(questions(1))["prompts"] for _ in range(GENERATIONS)]
trained = {name: cluster for name, (cluster, _) in runs.items() if name != "no constraint"}
for name, cluster in {"before": untrained, **trained}.items():
    out = cluster.generate(prompts)
    rows = np.array([np.pad(row, (0, 16 - len(row)), constant_values=tokenizer.pad_id()) for row in out.tokens])
    given = jax.numpy.asarray(out.left_padded_prompt_tokens), jax.numpy.asarray(rows)
    masked = np.asarray(cluster.rollout.get_constrained_per_token_logps(*given)).sum(1)
    own = np.asarray(cluster.get_actor_per_token_logps(*given, tokenizer.pad_id(), tokenizer.eos_id()))
    own = (own * (rows != tokenizer.pad_id())).sum(1)
    plt.scatter(masked, own, s=12, label=f"{name}: {own.mean():.1f}")
plt.xlabel("log-probability under the mask")
plt.ylabel("under the model alone")
plt.legend(title="mean under the model alone", loc="upper left", bbox_to_anchor=(1, 1))
plt.tight_layout();
