"""Odd values in place of each argument of public functions, one at a time: a result, or an error of ours, never another exception."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import constrax
import fsa_compile
import jax_decode
import models

VOCABULARY = fsa_compile.Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])
CONSTRAINT = fsa_compile.compile_regex("(yes|no)!", VOCABULARY)
TABLES = jax_decode.to_device(CONSTRAINT)
DECODER = models.tiny_gemma(vocab_size=257)
STATE = jax_decode.init_state(TABLES, [0], [8])
LOGITS, KEY = jnp.zeros((1, 257)), jax.random.key(0)
WORDS = jax_decode.key_words(KEY[None])
OUT = jax_decode.generate(DECODER, [1], TABLES, max_new_tokens=8, bos_id=False)
POOL = jax_decode.ConstraintPool(VOCABULARY, profile="regular")
OURS = (fsa_compile.ConstraintError, jax_decode.DecodeError, constrax.UseError, models.ModelError, OSError)
ODD = (
    None, 5, np.array(5), -1, 2**70, 1.5, float("nan"), "x", "", b"x", bytearray(b"x"), [], [1], [[1]], [None], ["a", 5], {}, {"a": 1}, (), True, object(), type,
    "\0", np.zeros(3), np.zeros((2, 2), np.int32), np.array(["a"]), jnp.zeros((0, 257)), range(3), len, CONSTRAINT, TABLES, VOCABULARY, DECODER,
    STATE, jax_decode.Greedy(), KEY, OUT,
)  # fmt: skip


def streamed(*arguments, **options):
    return list(jax_decode.stream(*arguments, **options))


ONE = {"max_new_tokens": 8, "bos_id": False}
CALLS = {
    "init_state": (jax_decode.init_state, [TABLES, [0], [8]], {"stop_ids": [[0]], "max_depth": 9, "max_tokens": 8}),
    "mask": (jax_decode.mask, [TABLES, STATE], {}),
    "mask_logits": (jax_decode.mask_logits, [TABLES, STATE, LOGITS], {}),
    "advance": (jax_decode.advance, [TABLES, STATE, jnp.array([65])], {}),
    "to_device": (jax_decode.to_device, [CONSTRAINT], {"profile": None, "logits_width": None, "canonical": None, "vocabulary": None}),
    "pool.add": (POOL.add, [CONSTRAINT], {}),
    "pool.remove": (POOL.remove, [0], {}),
    "put_row": (jax_decode.put_row, [STATE, 0, STATE], {"source": 0}),
    "take_rows": (jax_decode.take_rows, [STATE, [0]], {}),
    "move_row": (jax_decode.move_row, [STATE, 0, 0], {}),
    "swap_rows": (jax_decode.swap_rows, [STATE, 0, 0], {}),
    "fork": (jax_decode.fork, [STATE, [0]], {}),
    "rewind": (jax_decode.rewind, [STATE, STATE.position], {}),
    "TopK": (jax_decode.TopK, [3], {"temperature": 1.0}),
    "TopP": (jax_decode.TopP, [0.5], {"temperature": 1.0}),
    "MinP": (jax_decode.MinP, [0.5], {"temperature": 1.0}),
    "Categorical": (jax_decode.Categorical, [1.0], {}),
    "StopStrings": (jax_decode.StopStrings, ["a"], {}),
    "TimeLimit": (jax_decode.TimeLimit, [1.0], {}),
    "load": (constrax.load, [], {"checkpoint": None, "tokenizer": None, "template": None}),
    "draw": (fsa_compile.draw, [CONSTRAINT, VOCABULARY], {"max_nodes": 10, "max_labels": 4}),
    "to_html": (jax_decode.report.to_html, [OUT, VOCABULARY], {"constraint": None}),
    "Matcher": (fsa_compile.Matcher, [CONSTRAINT, VOCABULARY], {"max_tokens": 9, "max_depth": 9}),
    "parse": (fsa_compile.parse, [int, "5"], {}),
    "dump": (fsa_compile.dump, [int, 5], {}),
    "text": (OUT.text, [VOCABULARY], {}),
    "tokenizations": (jax_decode.tokenizations, [["ab"], VOCABULARY], {}),
    "log_weights": (jax_decode.log_weights, [OUT], {}),
    "save_orbax": (jax_decode.save_orbax, [CONSTRAINT, "there/is/no/folder\0"], {}),
    "load_orbax": (jax_decode.load_orbax, ["there/is/no/folder"], {"vocabulary": VOCABULARY}),
    "generate": (jax_decode.generate, [DECODER, [1], TABLES], {"constraint": 0, "sampler": None, "tokenizer": None, "stop_ids": None} | ONE),
    "stream": (streamed, [DECODER, [1], TABLES], {"tokenizer": VOCABULARY, "stopping": ()} | ONE),
}  # fmt: skip
SLOW = {"generate", "load", "stream"}


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments(name, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, arguments, options = CALLS[name]
    odd = ODD if name not in SLOW or request.config.getoption("exhaustive") else ODD[::6]
    with jax.numpy_dtype_promotion("standard"):
        for place in [*range(len(arguments)), *options]:
            for value in odd:
                given, named = list(arguments), dict(options)
                if isinstance(place, int):
                    given[place] = value
                else:
                    named[place] = value
                try:
                    function(*given, **named)
                except Exception as error:
                    if isinstance(error, OURS) and not isinstance(error, fsa_compile.DefectError):
                        continue
                    pytest.fail(f"{name}, {place}={value!r:.60}: {type(error).__name__}: {error}")
