"""How many operations a CPU's compiler makes of a constrained step: each is compiled and started on its own."""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
from jax_decode.decoding.loop import Carry, _choose
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.samplers import prepared
from jax_decode.step.packing import packed

TOKENS = fsa_compile.Vocabulary.from_tokens([b"", *(bytes([c]) for c in b"abc[],"), b"ab", b"],", b"[["], stop_ids=[0])
WIDTH, ROWS = 2048, 4
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
MOST = {("regular", "greedy"): 26, ("regular", "categorical"): 36, ("nested", "greedy"): 53, ("nested", "categorical"): 63}
"""They may only be lowered."""


def operations(text: str) -> int:
    """Instructions of the program, those of the bodies of loops among them, that run."""
    fused = set(re.findall(r"(?:calls|to_apply)=%([\w.\-]+)", text))
    bodies = re.findall(r"^(?:ENTRY )?%([\w.\-]+) \(.*?\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    found = [re.findall(r" = .*? ([\w\-]+)\(", body) for name, body in bodies if name not in fused]
    return sum(name not in FREE for names in found for name in names)


@pytest.mark.parametrize(("profile", "sampler"), MOST)
def test_operations_of_a_step(profile, sampler):
    grammar = 'start: "[" (start ("," start)*)? "]" | "ab"'
    constraint = (
        fsa_compile.compile_grammar(grammar, TOKENS) if profile == "nested" else fsa_compile.compile_regex("a[bc]*", TOKENS)
    )
    tables = jax_decode.to_device(constraint, profile=profile)
    state = jax_decode.init_state(tables, np.zeros(ROWS, np.int32), max_tokens=64)
    nothing = dict.fromkeys(("cache", "tokens", "logprobs", "raw_logprobs"))
    carry = Carry(rows=packed(state), logits=jnp.zeros((ROWS, WIDTH)), step=jnp.int32(0), **nothing)
    keys = key_words(jax.random.split(jax.random.key(0), ROWS))
    chosen = prepared(jax_decode.Greedy() if sampler == "greedy" else jax_decode.Categorical(0.9))

    def step(*arguments):  # as the loop does
        state, *others = _choose(*arguments, True)
        return packed(state), others

    # As users compile: the suite's own flags choose emitters that fuse less.
    usual = {"xla_cpu_use_fusion_emitters": True} if "fusion_emitters=false" in os.environ.get("XLA_FLAGS", "") else None
    count = operations(jax.jit(step).lower(tables, chosen, keys, carry).compile(usual).as_text())
    assert count <= MOST[profile, sampler], count
