"""Compiled grammars on the device: library grammars, counters and ambiguity against the host walk, and generated texts parsed."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.stack_walks import favouring, walk_together
from oracles.toy import every_byte
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
from fsa_compile import library
from fsa_compile.composition.compose import compose_machine
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.counting.counted_regex import counted_machine
from fsa_compile.patterns.python_syntax import parse
from jax_decode import Categorical, Status

VOCABULARY = every_byte(
    [b'{"', b'":', b'"]}', b"}}}", b"]]", b"}]}", b'":[{"', b"[[[[", b"((", b"))", b")))", b") {", b"if (", b" else ", b"SELECT ",
     b"FROM", b"0.", b"e+1", b"true", b'\\"', b"abc", b"a,b,c,", b"</b>", b"<b><i>", b"123", b"xx", b"xxxx", b'", "']
)  # fmt: skip
OPENING = [VOCABULARY.tokens.index(t) for t in (b"{", b"[", b"(", b"[[[[", b"((", b'":[{"', b'{"', b"<b><i>", b"if (", b"<")]
COUNTED = {
    "register alone": "[a-z ]{3,300}",
    "code points": r"(.|\n){0,200}",
    "nested": "([a-z]{2,200},){1,150}",
    "under brackets": r"\[(\(x{3,300}\),?){2,400}\]",
}


def compiled(name: str):
    if name in COUNTED:
        limits = CompileLimits()
        machine = counted_machine(parse(COUNTED[name], 0, limits), limits, Deadline(limits))
        return compose_machine(machine, VOCABULARY, source=name)
    return fsa_compile.compile_grammar(library.grammar_text(name), VOCABULARY, **library.options(name))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["json", "arithmetic", "c_functions", "c_dangling_else", "tags", *COUNTED])
def test_library_grammars_on_the_device_are_the_host_walk(name, exhaustive):
    """Budgets and depths from the tightest on; masks, nodes, registers, stacks and statuses after every token."""
    c = compiled(name)
    rows = 6 if exhaustive else 4
    limits = [c.shortest_completion + 9 * i for i in range(rows)]
    depths = [c.shortest_depth + 2 * i for i in range(rows)]
    walk_together([c], [0] * rows, limits=limits, depths=depths, pick=favouring(OPENING), seed=1)


def test_a_batch_of_grammars_and_a_pattern_is_the_host_walks():
    mixed = [compiled("json"), fsa_compile.compile_regex("[a-z]{2,9}[0-9]?", VOCABULARY), compiled("nested"), compiled("tags")]
    which = [0, 1, 2, 3, 2, 0]
    limits = [mixed[w].shortest_completion + 12 for w in which]
    walk_together(mixed, which, limits=limits, depths=[12] * len(which), pick=favouring(OPENING), seed=2)


def test_every_generated_text_is_json_within_its_limits():
    """Logits that favour brackets, tight budgets and depths: all complete, all parse, none deeper than allowed."""
    tables = jax_decode.to_device(compiled("json"))
    decoder = toy(VOCABULARY.size)
    bias = jnp.zeros(VOCABULARY.size).at[jnp.array(OPENING)].set(9.0)

    def biased(*args):
        logits, cache = decoder.apply_fn(*args)
        return logits + bias[None, None], cache

    out = jax_decode.generate(
        dataclasses.replace(decoder, apply_fn=biased), [[1], [2], [3]], tables, key=jax.random.key(0),
        max_new_tokens=[7, 19, 60], sampler=Categorical(1.0), num_samples=16, max_depth=[4, 12, 30],
    )  # fmt: skip
    assert out.status == [Status.ACCEPTED] * 48
    deepest = 0
    for row, ids in enumerate(out.tokens):
        data = b"".join(VOCABULARY.tokens[t] for t in ids)
        json.loads(data)
        assert len(ids) + (out.stop_token[row] is not None) <= (7, 19, 60)[row // 16]
        deepest = max(deepest, data.count(b"[") + data.count(b"{"))
    assert deepest > 5
    assert np.isfinite(np.concatenate(out.logprobs)).all()
