"""Does reinforcement learning with a constraint in its rollouts learn faster, and does every rollout parse?

    python benchmarks/grpo.py [--steps N] [--seeds N] [--output FILE]

Tunix's GRPO learner, unmodified, on the small model that comes with the package, with `constrained_rollout`: with a constraint
for every prompt, with none, and with a constraint and importance weights of both log-probabilities. The task: sums of two digits,
written as `{"answer": 12}`, a form that the model has never seen behind these prompts. Reward: 1 for the right sum, a tenth less
for every unit beside it, 0 for another form. Needs google-tunix with what its trainers import (`make test-parity` installs it).
Programs are counted at every step: ours by their caches, all of the process by JAX's events. Raw figures go to
`benchmarks/results/grpo.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
import optax
import sentencepiece
from tunix.rl import rl_cluster
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout.base_rollout import RolloutConfig

import fsa_compile
import jax_decode
import models
from jax_decode.integrations.tunix import IMPORTANCE, constrained_rollout

RESULTS = Path(__file__).parent / "results" / "grpo.json"
FORM = re.compile(r'\{"answer": (\d{1,2})\}')
PROMPTS, GENERATIONS, TOKENS = 8, 4, 16
COMPILED: list[str] = []
"""Programs that JAX has compiled in this process, by its events."""


def count_programs(event: str, seconds: float, **_: Any) -> None:
    """A listener of JAX's events."""
    if event.endswith("backend_compile_duration"):
        COMPILED.append(event)


def batches(steps: int, seed: int) -> Iterator[dict[str, Any]]:
    """Prompts and their sums."""
    rng = random.Random(seed)
    for _ in range(steps):
        pairs = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(PROMPTS)]
        prompts = [f"Question: What is {a} + {b}?\nAnswer: " for a, b in pairs]
        yield {"prompts": np.array(prompts), "sums": np.array([a + b for a, b in pairs])}


KINDS = "constraint", "none", "weighted"


def run(kind: str, steps: int, seed: int) -> dict[str, Any]:
    """One training run: per step the mean reward and the share of rollouts in the form."""
    jax.monitoring.register_event_duration_secs_listener(count_programs)  # a run's end takes all listeners away
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(models.small_tokenizer_path()))
    compiled = fsa_compile.compile_regex(FORM.pattern, fsa_compile.load_tokenizer(models.small_tokenizer_path()))
    seen: dict[str, list[Any]] = {"reward": [], "in_form": [], "right": [], "programs": [], "compiled": [], "seconds": []}
    which, tables = None if kind == "none" else 0, jax_decode.to_device(compiled)
    engine = constrained_rollout(tables, lambda prompt: which, importance=kind == "weighted")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
    training = rl_cluster.RLTrainingConfig(
        actor_optimizer=optax.adam(1e-3), eval_every_n_steps=10**9, max_steps=2 * steps, mini_batch_size=PROMPTS,
        train_micro_batch_size=PROMPTS,
    )  # fmt: skip
    rollout = RolloutConfig(
        max_tokens_to_generate=TOKENS, max_prompt_length=32, kv_cache_size=64, temperature=1.0, top_p=1.0, top_k=None
    )
    roles = dict.fromkeys((rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT), mesh)
    config = rl_cluster.ClusterConfig(
        role_to_mesh=roles, rollout_engine=engine, training_config=training, rollout_config=rollout
    )
    actor = models.to_tunix(models.load_small())
    cluster = rl_cluster.RLCluster(actor=actor, tokenizer=tokenizer, cluster_config=config)

    def reward(prompts: list[str], completions: list[str], sums: Any, **_: Any) -> list[float]:
        found = [FORM.fullmatch(text) for text in completions]
        right = [bool(m) and int(m[1]) == int(total) for m, total in zip(found, sums)]
        rewards = [max(1 - abs(int(m[1]) - int(total)) / 10, 0.0) if m else 0.0 for m, total in zip(found, sums)]
        seen["reward"].append(statistics.mean(rewards))
        seen["in_form"].append(sum(map(bool, found)) / len(found))
        seen["right"].append(sum(right) / len(right))
        seen["seconds"].append(time.process_time())
        seen["programs"].append(cluster.rollout.sampler.compilations)
        seen["compiled"].append(len(COMPILED))
        return rewards

    loss = IMPORTANCE if kind == "weighted" else "grpo"
    grpo = GRPOConfig(num_generations=GENERATIONS, num_iterations=2, beta=0.0, policy_loss_fn=loss)
    learner = GRPOLearner(cluster, grpo, reward_fns=reward)
    learner.train(batches(steps, seed))
    return seen


def main() -> None:
    """Runs both, for every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    report: dict[str, Any] = {"jax": jax.__version__, "prompts": PROMPTS, "generations": GENERATIONS, "runs": []}
    for seed in range(args.seeds):
        for kind in KINDS:
            seen = run(kind, args.steps, seed)
            report["runs"].append({"seed": seed, "kind": kind} | seen)
            last = statistics.mean(seen["reward"][-8:])
            print(f"seed {seed}, {kind}: first {seen['reward'][0]:.3f}, last 8 {last:.3f}", flush=True)
            programs, all_of_them = seen["programs"], seen["compiled"]
            print(f"  in form {min(seen['in_form']):.3f} at least; programs {programs[0]} {programs[-1]}", flush=True)
            print(f"  compiled in the process by step 1, 2 and the last: {all_of_them[0]}, {all_of_them[1]}, {all_of_them[-1]}")
            args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
