"""The lines that let the runner of tpu-inference keep structured requests in its fused loop, put into its own code and run.

The method is taken out of the installed file, so that neither a TPU nor an engine is needed; what surrounds it stands in.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import importlib.util
import random
import textwrap
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.fused_loop import greedy
from oracles.fused_requests import MOST, Request, Toy, choose

import jax_decode
from jax_decode.integrations.tpu_inference import FusedRows

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
REPLACED = {
    "state=self.state_leaves": "state=state_leaves", "model_fn=self.model.step_fn_no_options": "model_fn=model_fn",
    "compute_logits_fn=self.compute_logits_fn": "compute_logits_fn=compute_logits_fn", "kv_caches=self.kv_caches": "kv_caches=kv_caches",
}  # fmt: skip


def block(name: str) -> str:
    """The lines of the page that begin with a comment."""
    found = PAGE[PAGE.index(f"    # {name}") :]
    return textwrap.dedent(found[: found.index("\n\n")])


def changed(source: str) -> str:
    """The method with the page's lines before and after the loop."""
    for old, new in REPLACED.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    before, after = "lora_metadata = self.lora_utils.extract_lora_metadata()\n", "if self.scheduler_config.async_scheduling:\n"
    assert source.count(before) == source.count(after) == 1
    source = source.replace(before, before + textwrap.indent(block("before the loop"), 8 * " ") + "\n")
    return source.replace(after, textwrap.indent(block("after it"), 8 * " ").lstrip() + "\n" + 8 * " " + after)


@pytest.fixture
def method(monkeypatch):
    """`TPUModelRunner._execute_continue_decode`, changed."""
    module = pytest.importorskip("tpu_inference.runner.decode_loop", reason="tpu-inference is not installed")
    for name in ("get_step_fn_compiler_options", "get_sampling_compiler_options"):
        monkeypatch.setattr(module, name, dict)
    text = Path(importlib.util.find_spec("tpu_inference.runner.tpu_runner").origin).read_text(encoding="utf-8")
    nodes = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    source = "    " + ast.get_source_segment(text, nodes["_execute_continue_decode"])
    source = textwrap.dedent(changed(source)).replace("from tpu_inference.layers.jax.sample.sampling import sample", "pass")
    names = {
        "jax": jax, "jnp": jnp, "np": np, "continue_decode": module.continue_decode, "TpuSamplingState": module.TpuSamplingState,
        "sample": greedy, "_compute_active_mask": lambda indices, *_: indices >= 0, "ModelRunnerOutput": SimpleNamespace,
        "set_forward_context": lambda *_: contextlib.nullcontext(), "_log_continue_decode_summary": lambda **_: None,
        "_process_continue_decode_outputs": lambda generated_tokens, actual_steps, **_: (
            np.asarray(generated_tokens)[: int(actual_steps)].T.tolist(), None, [], int(actual_steps), 0
        ),
    }  # fmt: skip
    exec(compile("from __future__ import annotations\n" + source, "tpu_runner", "exec", dont_inherit=True), names)
    return names["_execute_continue_decode"]


def test_the_page_s_lines_in_the_runner(method):
    from tpu_inference.layers.common.attention_metadata import AttentionMetadata

    model, rng, met = Toy(8), random.Random(5), collections.Counter()
    pool = jax_decode.ConstraintPool(model.vocabulary, profile="general", slots=16)
    fused = FusedRows(pool, requests=8, max_tokens=MOST, max_depth=24)
    live: dict[str, Request] = {}
    for number, constraint in enumerate([*model.constraints()[:5], None]):
        slot = None if constraint is None else pool.add(constraint)
        new = Request(model.prompt(rng), MOST, constraint, slot)
        new.take(choose(met, model, number, new))
        fused.enter(number, slot, MOST)
        live[f"request {number}"] = new
    runner = SimpleNamespace(
        scheduler_config=SimpleNamespace(async_scheduling=False), _pre_async_results=None, dp_size=1, zero_array=jnp.int32(0),
        _get_min_remaining_slots=lambda: 100, static_max_decode_steps=4, lora_utils=SimpleNamespace(extract_lora_metadata=lambda: None),
        maybe_forbid_compile=contextlib.nullcontext(), vllm_config=None, maybe_get_kv_connector_output=contextlib.nullcontext,
        state_leaves=model.state, model=SimpleNamespace(step_fn_no_options=model.model_fn), compute_logits_fn=model.logits_fn, mesh=None,
        kv_caches=model.caches, eos_token_id=model.stops, pad_token_id=63, rng_params_for_sampling=jax.random.PRNGKey(0),
        layer_name_to_kvcache_index={}, is_first_rank=True, is_last_rank=True, aux_output_worker=None, requests={},
        model_config=SimpleNamespace(max_logprobs=0, logprobs_mode="raw"), continue_decode_eos_check_interval=1,
        routed_experts_attn_gid=0, max_num_reqs=8, max_model_len=64, fused=fused, numbers={f"request {n}": n for n in range(8)},
    )  # fmt: skip
    for _ in range(3):
        names = rng.sample([n for n, r in live.items() if r.tokens[-1] not in model.stops], k=3)
        last = np.array([live[n].last for n in names] + [63], np.int32)
        positions = jnp.asarray([len(live[n].tokens) for n in names] + [0], jnp.int32)
        metadata = AttentionMetadata(
            input_positions=positions, block_tables=jnp.zeros(4, jnp.int32), seq_lens=positions + 1,
            query_start_loc=jnp.arange(5, dtype=jnp.int32), request_distribution=jnp.zeros(2, jnp.int32), mamba_state_indices=None,
        )  # fmt: skip
        prepared = (jnp.asarray(last), positions, metadata, None, jnp.asarray([0, 1, 2, -1]), None, None, 4, None, 4, None, None)
        runner._prepare_inputs = lambda scheduled, prepared=prepared: prepared
        runner.input_batch = SimpleNamespace(req_ids=names, num_reqs=3, req_id_to_index={})
        method(runner, SimpleNamespace(num_scheduled_tokens={}))
        for name, row in zip(names, runner._continue_decode_output.sampled_token_ids):
            for token in row:
                if live[name].tokens[-1] not in model.stops:
                    live[name].take(choose(met, model, 0, live[name], token))
    assert not met["ties"]
    assert max(len(request.tokens) for request in live.values()) > 3
