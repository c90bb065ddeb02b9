"""Requests that come and go in a fused decoding loop get the tokens that masks of the host would give them.

The loop is tpu-inference's own where that package is installed (`make test-servers`), else one with the same calls.
"""

from __future__ import annotations

import collections
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.fused_loop import fused_loop

import fsa_compile
import jax_decode
from jax_decode.errors import DecodeError
from jax_decode.integrations.tpu_inference import FusedRows

TEXT = b'abcdefghij0123456789[]{}":, .-x'
WORDS = fsa_compile.Vocabulary.from_tokens(
    [b"", *(bytes([c]) for c in TEXT), b"ab", b"12", b'": ', b"[[", b"]]", *[b""] * 27], stop_ids=[0]
)
SIZE, STEPS, MOST = len(WORDS.tokens), 6, 24
PATTERNS = ["[a-j]{2,9}", "(ab|cd)*x", r"[0-9]{1,3}(\.[0-9]{2})?", "x", "(12)+( ab)?", "[a-c]*"]
GRAMMARS = ['start: v\nv: "[" [v ("," v)*] "]" | /[a-j]{1,3}/\n', 'start: "{" v "}"\nv: "[" v "]" | "x"~2..9\n']
_TABLE = np.argsort(np.random.default_rng(0).random((SIZE, 7, SIZE)), axis=2).astype(np.float32)


def model_fn(state, kv_caches, tokens, metadata, *_, **__):
    """A model whose caches count what it has read; its hidden state is the last token and the position."""
    return [kv_caches[0] + 1], (jnp.maximum(tokens, 0), metadata.input_positions), None, None


def compute_logits_fn(state, hidden, _):
    tokens, positions = hidden
    return state["table"][tokens, positions % 7]


def sample_fn(rng, mesh, logits, metadata, **_):
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), None


def own_loop(state, model, logits, tokens, positions, caches, most):
    given = (state, model, logits, sample_fn, tokens, positions, caches, jnp.int32(most))
    return fused_loop(*given, steps=STEPS, stops=(0,), padding=-1)


def their_loop(monkeypatch):
    """`continue_decode`, whose options are for a TPU's compiler alone."""
    module = pytest.importorskip("tpu_inference.runner.decode_loop", reason="tpu-inference is not installed")
    from tpu_inference.layers.common.attention_metadata import AttentionMetadata

    for name in ("get_step_fn_compiler_options", "get_sampling_compiler_options"):
        monkeypatch.setattr(module, name, dict)

    def loop(state, model, logits, tokens, positions, caches, most):
        rows = len(tokens)
        metadata = AttentionMetadata(
            input_positions=positions, block_tables=jnp.zeros((rows, 16), jnp.int32), seq_lens=positions + 1,
            query_start_loc=jnp.arange(rows + 1, dtype=jnp.int32), request_distribution=jnp.zeros(2, jnp.int32),
            mamba_state_indices=None,
        )  # fmt: skip
        begin = module.TpuSamplingState(tokens, tokens >= 0, metadata, jnp.int32(0))
        out, caches, end, *_ = module.continue_decode(
            state=state, model_fn=model, compute_logits_fn=logits, sample_fn=sample_fn, init_state=begin, kv_caches=caches,
            max_decode_steps=jnp.int32(most), static_max_decode_steps=STEPS, eos_token_id=(0,), padding_token_id=-1,
            rng=jax.random.PRNGKey(0), mesh=None, sampling_metadata=None,
        )  # fmt: skip
        return out, end.step_counter, caches

    return loop


@pytest.fixture(params=["own", "theirs"])
def loop(request, monkeypatch):
    return own_loop if request.param == "own" else their_loop(monkeypatch)


class Request:
    """What a runner knows of a request, and the mask of the host."""

    def __init__(self, rng: random.Random, constraint, slot) -> None:
        self.prompt, self.limit, self.slot = rng.randrange(SIZE), rng.randrange(12, MOST), slot
        self.constraint, self.tokens = constraint, list[int]()
        self.matcher = None if constraint is None else host_masks(constraint, self.limit)

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.prompt

    def choose(self) -> int:
        """The next token by the host's mask."""
        logits = _TABLE[self.last, len(self.tokens) % 7].copy()
        if self.matcher is not None:
            mask = np.zeros((1, -(-SIZE // 32)), np.int32)
            self.matcher.fill_next_token_bitmask(mask)
            logits[~np.unpackbits(mask.view(np.uint8), bitorder="little")[:SIZE].astype(bool)] = -np.inf
        token = int(logits.argmax())
        assert np.isfinite(logits[token])
        return token

    def take(self, token: int) -> None:
        self.tokens.append(token)
        if self.matcher is not None:
            assert self.matcher.accept_token(token)

    @property
    def ended(self) -> bool:
        return self.tokens[-1:] == [0] or len(self.tokens) >= self.limit


def host_masks(constraint, limit: int) -> fsa_compile.Matcher:
    """The host's masks; end-of-text ids count in the limits of the device, and not in those of a `Matcher`."""
    return fsa_compile.Matcher(constraint, max_tokens=limit - 1)


def served(loop, count: int, rows: int, seed: int) -> collections.Counter:
    """Lets requests come and go, in the loop and in steps of one token, and compares every token with the host's."""
    rng, met = random.Random(seed), collections.Counter()
    constraints = [fsa_compile.compile_regex(text, WORDS) for text in PATTERNS]
    constraints += [fsa_compile.compile_grammar(text, WORDS) for text in GRAMMARS]
    pool = jax_decode.ConstraintPool(WORDS, profile="general", slots=16)
    fused = FusedRows(pool, requests=rows, max_tokens=MOST, max_depth=24)
    state, caches = {"table": jnp.asarray(_TABLE)}, [jnp.zeros((), jnp.int32)]
    live: dict[int, Request] = {}
    while count or live:
        while count and len(live) < rows and rng.random() < 0.8:
            number, constraint = min(set(range(rows)) - set(live)), rng.choice([*constraints, None])
            new = Request(rng, constraint, None if constraint is None else pool.add(constraint))
            count -= 1
            new.take(new.choose())  # the step that reads the prompt
            if not new.ended:
                fused.enter(number, new.slot, new.limit)
                live[number] = new
            elif new.slot is not None:
                pool.remove(new.slot)
        order = rng.sample([*live, *[-1] * (rows - len(live))], rows)
        tokens = np.array([live[n].last if n >= 0 else -1 for n in order], np.int32)
        if rng.random() < 0.2:
            fused.follow(order, tokens)
            made = [[live[n].choose()] if n >= 0 else [] for n in order]
            met["single steps"] += 1
        else:
            positions = jnp.asarray([len(live[n].tokens) if n >= 0 else 0 for n in order], jnp.int32)
            given = fused.carried(state, caches, order)
            functions = fused.functions(model_fn, compute_logits_fn)
            out, done, kept = loop(given[0], *functions, jnp.asarray(tokens), positions, given[1], rng.randrange(1, STEPS + 1))
            caches = fused.kept(kept)
            made = np.asarray(out)[: int(done)].T.tolist()
            met["loops"] += 1
        for number, row in zip(order, made):
            for token in row if number >= 0 else []:
                request = live[number]
                assert token == request.choose(), (request.constraint, request.tokens)
                request.take(token)
                met["tokens"] += 1
                if request.ended:
                    if request.slot is not None:
                        assert request.tokens[-1] == 0
                        pool.remove(request.slot)
                    del live[number]
                    met["requests"] += 1
                    break
    return met


def test_requests_in_the_loop_get_the_tokens_of_the_hosts_masks(loop, exhaustive):
    met = served(loop, 10_000 if exhaustive else 150, 64 if exhaustive else 8, seed=1)
    assert met["single steps"] > 5
    assert met["tokens"] > 3 * met["requests"]


def test_other_requests_compile_nothing(loop):
    """By JAX's own events; and the loop does without the host."""
    served(loop, 60, 8, seed=2)
    names: list[str] = []

    def heard(event: str, duration_secs: float, **facts) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(str(facts.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(heard)
    served(loop, 60, 8, seed=3)
    jax.monitoring.unregister_event_duration_listener(heard)
    assert names == []


def test_functions_around_the_same_functions_are_equal():
    pool = jax_decode.ConstraintPool(WORDS, profile="regular", slots=4)
    fused = FusedRows(pool, requests=2, max_tokens=8)
    one, other = fused.functions(model_fn, compute_logits_fn), fused.functions(model_fn, compute_logits_fn)
    assert one == other
    assert hash(one) == hash(other)
    assert one != fused.functions(sample_fn, compute_logits_fn)


def test_the_lowered_loop_calls_no_host():
    pool = jax_decode.ConstraintPool(WORDS, profile="general", slots=4)
    fused = FusedRows(pool, requests=2, max_tokens=8)
    parameters, caches = fused.carried({"table": jnp.asarray(_TABLE)}, [jnp.zeros((), jnp.int32)], [0, -1])
    given = (parameters, *fused.functions(model_fn, compute_logits_fn), sample_fn, jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32))
    text = fused_loop.lower(*given, caches, jnp.int32(4), steps=4, stops=(0,), padding=-1).as_text()
    assert not [word for word in ("callback", "infeed", "outfeed", "send", "recv") if word in text]


def test_wrong_calls_are_errors_that_say_what_to_do():
    pool = jax_decode.ConstraintPool(WORDS, profile="regular", slots=4)
    for wrong in ({"requests": 0}, {"requests": True}, {"max_tokens": 2.5}):
        with pytest.raises(DecodeError, match=f"{next(iter(wrong))} is"):
            FusedRows(pool, **({"requests": 2, "max_tokens": 8} | wrong))
    fused = FusedRows(pool, requests=2, max_tokens=8)
    with pytest.raises(DecodeError, match="there is no request 2 of 2"):
        fused.enter(2, None, 4)
    with pytest.raises(DecodeError, match="request 0 has a limit of 9 tokens"):
        fused.enter(0, None, 9)
    with pytest.raises(DecodeError, match=r"numbers are \[0, 2\]"):
        fused.follow([0, 2], [1, 1])
    with pytest.raises(DecodeError, match="'kept' needs the caches"):
        fused.kept([])
    fused.carried({}, [], [0])
    with pytest.raises(DecodeError, match="twice"):
        fused.carried({}, [], [0])
