"""Constraints inside google-tunix's own sampler, with its Gemma 3. Needs that package: `make test-parity`."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import jax
import numpy as np
import pytest

if importlib.util.find_spec("tunix") is None:
    pytest.skip("google-tunix is not installed: make test-parity", allow_module_level=True)
import sentencepiece
from flax import nnx
from oracles.markdown import python_blocks
from tunix.generate.sampler import CacheConfig
from tunix.models.gemma3 import model as gemma3

import fsa_compile
import jax_decode
from jax_decode import Status
from jax_decode.integrations.tunix import constrained_sampler
from models.small_model import small_tokenizer_path

PATTERNS = (r'\{"name": "[A-Z][a-z]{1,8}", "born": (1[89]|20)[0-9]{2}\}', r"(yes|no), because [a-z ]{3,20}\.", r"[a-z]{2,8}@[a-z]{2,8}\.com")
PROMPTS = ["Who was it? ", "Is it raining, do you think? ", "Write: "]
LIMIT = 48


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(small_tokenizer_path())


@pytest.fixture(scope="module")
def sampler(tokenizer):
    config = gemma3.ModelConfig(
        num_layers=2, num_embed=2048, embed_dim=32, hidden_dim=64, num_heads=2, head_dim=16, num_kv_heads=1,
        sliding_window_size=32, param_dtype=np.float32,
    )  # fmt: skip
    model = gemma3.Gemma3(config, rngs=nnx.Rngs(0))
    return constrained_sampler(
        model,
        sentencepiece.SentencePieceProcessor(model_file=str(small_tokenizer_path())),
        CacheConfig(cache_size=128, num_layers=2, num_kv_heads=1, head_dim=16),
        tables(tokenizer, *PATTERNS[:2]),
    )


def test_the_page_runs_as_printed(sampler):
    page = Path(__file__).parents[2] / "docs" / "tunix.md"
    (block,) = python_blocks(page.read_text(encoding="utf-8"))
    assert len(block.strip().splitlines()) <= 25
    path = small_tokenizer_path()
    names = {
        "model": sampler.transformer,
        "tokenizer": sentencepiece.SentencePieceProcessor(model_file=str(path)),
        "cache_config": sampler.cache_config,
        "path": path,
    }
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block, str(page), "exec", dont_inherit=True), names)
    assert names["sampler"].statuses[0] is Status.ACCEPTED
    assert re.fullmatch(r"(yes|no), because [a-z ]{3,20}\.", names["out"].text[0])
    for row, (of_model, of_choice) in enumerate(zip(names["of_model"], names["of_choice"])):
        assert of_model.shape == of_choice.shape == (len(names["out"].tokens[row]),)
        assert (of_model <= of_choice + 1e-3).all()
    assert names["of_model"][0].sum() < names["of_choice"][0].sum() - 1
    np.testing.assert_allclose(names["of_model"][1], names["of_choice"][1], atol=1e-3)


def tables(tokenizer, *patterns):
    return jax_decode.to_device([fsa_compile.compile_regex(p, tokenizer) for p in patterns])


def texts(tokenizer, out):
    stops = set(tokenizer.vocabulary.stop_ids)
    rows = [[int(t) for t in row] for row in out.tokens]
    return [tokenizer.vocabulary.decode([t for t in row if t not in stops and t != 0]) for row in rows]


def test_mixed_batches_are_legal_and_tables_can_be_set_anew(sampler, tokenizer):
    """Hot samples of two constraints and a free row; other tables of the same sizes; nothing was donated away."""
    given = {"max_generation_steps": LIMIT, "temperature": 2.0, "top_p": 0.99, "max_prompt_length": 16}
    sizes = set()
    for seed, (second, which) in enumerate([(1, [0, 1, None]), (1, [1, None, 0]), (2, [1, 0, 1]), (1, [0, 0, 1])]):
        sampler.tables = tables(tokenizer, PATTERNS[0], PATTERNS[second])
        found = texts(tokenizer, sampler(PROMPTS, constraint=which, seed=seed, **given))
        for row, index in enumerate(which):
            if index is not None:
                assert re.fullmatch(PATTERNS[(0, second)[index]], found[row])
                assert sampler.statuses[row] is Status.ACCEPTED
            else:
                assert sampler.statuses[row] in (Status.FINISHED, Status.TRUNCATED)
        assert all(not x.is_deleted() for x in jax.tree.leaves(sampler.tables))
        sizes.add(tuple(x.shape for x in jax.tree.leaves(sampler.tables)))
        assert [program._cache_size() for program in sampler._programs] == [len(sizes)] * 2
    assert len(sizes) < 3


def test_constraints_of_all_kinds_in_one_profile_share_a_program(sampler, tokenizer):
    """A pattern, schemas, and a grammar in the room of one profile: the first call compiles, no later one does."""
    digits = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}
    wanted = [
        fsa_compile.compile_regex(PATTERNS[1], tokenizer),
        fsa_compile.compile_json_schema(digits | {"additionalProperties": False}, tokenizer),
        fsa_compile.compile_json_schema({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}, tokenizer),
        fsa_compile.compile_grammar('start: "(" start ")" | "x"', tokenizer),
        fsa_compile.compile_choices(["red", "green"], tokenizer),
    ]
    given = {"max_generation_steps": LIMIT, "temperature": 1.0, "max_prompt_length": 16}
    sizes = []
    for constraint in wanted:
        sampler.tables = jax_decode.to_device(constraint, profile="general")
        sampler(PROMPTS, seed=1, **given)
        assert sampler.statuses == [Status.ACCEPTED] * 3
        sizes.append([program._cache_size() for program in sampler._programs])
    assert sizes == sizes[:1] * len(wanted)


def test_log_probabilities_with_and_without_the_mask(sampler, tokenizer):
    """Both that a policy gradient needs: of the masked choice, and, from the raw logits, of the model alone."""
    sampler.tables = tables(tokenizer, PATTERNS[1])
    out = sampler(PROMPTS[:1], LIMIT, return_logits=True, return_logprobs=True, max_prompt_length=16)
    assert sampler.statuses == [Status.ACCEPTED]
    logits, chosen = np.asarray(out.logits[0], np.float64), [int(t) for t in out.tokens[0]]
    constraint = sampler.tables
    state = jax_decode.init_state(constraint, np.zeros(1, np.int32), np.array([LIMIT], np.int32))
    for i, token in enumerate(chosen):
        allowed = np.asarray(jax_decode.mask(constraint, state))[0]
        assert allowed[token]
        row = logits[i]
        masked = row[token] - np.logaddexp.reduce(row[allowed])
        np.testing.assert_allclose(out.logprobs[0][i], masked, atol=1e-3)
        assert row[token] - np.logaddexp.reduce(row) <= masked + 1e-6
        state = jax_decode.advance(constraint, state, np.array([token], np.int32))


def test_beams_take_their_states_along(sampler, tokenizer):
    """As many beams as texts find the best one, by log-probabilities among the allowed tokens; others write what is legal."""
    words = [list(tokenizer.encode(text)) for text in ("no", "no, it is not", "yes", "yes, it rains", "it is", "it was late")]
    items = fsa_compile.compile_items(words, tokenizer)
    totals = []
    for word in words:
        sampler.tables = jax_decode.to_device(fsa_compile.compile_items([word], tokenizer))
        out = sampler(PROMPTS[:1], LIMIT, return_logits=True, max_prompt_length=16)
        walk, total = items.walk(), 0.0
        for token, row in zip([*word, items.stop_ids[0]], np.asarray(out.logits[0], np.float64)):
            total += row[token] - np.logaddexp.reduce(row[walk.allowed()])
            if token not in items.stop_ids:
                walk.advance(token)
        totals.append(total)
    assert len(set(np.round(totals, 3))) == len(words)
    sampler.tables = jax_decode.to_device([items, fsa_compile.compile_regex(PATTERNS[1], tokenizer)])
    out = sampler(PROMPTS[:2], LIMIT, constraint=[0, 1], beam_size=len(words), max_prompt_length=16)
    assert sampler.statuses == [Status.ACCEPTED] * 2
    assert [t for t in out.tokens[0].tolist() if t not in items.stop_ids] == words[int(np.argmax(totals))]
    assert re.fullmatch(PATTERNS[1], texts(tokenizer, out)[1])


def test_what_beams_do_not_give_and_short_limits_are_refused(sampler, tokenizer):
    sampler.tables = tables(tokenizer, PATTERNS[1])
    with pytest.raises(jax_decode.DecodeError, match=r"jax_decode\.score"):
        sampler(PROMPTS[:1], LIMIT, beam_size=2, return_logprobs=True)
    with pytest.raises(jax_decode.DecodeError, match="below the number of tokens of the shortest text"):
        sampler(PROMPTS[:1], 3, constraint=0)


def test_turns_with_special_tokens():
    """Thinking, answers and calls in the tokens of two protocols, read back from the ids of hot samples."""
    from models.small_agent import small_agent_tokenizer_path

    def get_weather(city: str, days: int = 1) -> str:
        return f"{city} {days}"

    path = str(small_agent_tokenizer_path())
    tokenizer = fsa_compile.load_tokenizer(path)
    config = gemma3.ModelConfig(
        num_layers=1, num_embed=2176, embed_dim=16, hidden_dim=32, num_heads=1, head_dim=16, num_kv_heads=1,
        sliding_window_size=32, param_dtype=np.float32,
    )  # fmt: skip
    asked = [
        {"protocol": "gemma4", "tools": [get_weather], "tool_choice": "required", "reasoning": "required", "max_reasoning_tokens": 5},
        {"protocol": "qwen3", "tools": [get_weather], "tool_choice": "required", "reasoning": "off"},
    ]
    constraints = [fsa_compile.compile_response(tokenizer, parallel_tool_calls=False, **given) for given in asked]
    sampler = constrained_sampler(
        gemma3.Gemma3(config, rngs=nnx.Rngs(0)),
        sentencepiece.SentencePieceProcessor(model_file=path),
        CacheConfig(cache_size=128, num_layers=1, num_kv_heads=1, head_dim=16),
        jax_decode.to_device(constraints),
    )
    for seed in range(3):
        out = sampler(PROMPTS[:2], constraint=[0, 1], seed=seed, max_generation_steps=72, temperature=1.5, max_prompt_length=16)
        assert sampler.statuses == [Status.ACCEPTED] * 2
        for row, given in enumerate(asked):
            ids = [int(token) for token in out.tokens[row] if int(token) != 0]
            read = {name: value for name, value in given.items() if name != "max_reasoning_tokens"}
            (call,) = fsa_compile.parse_response(ids, tokenizer, **read).calls
            assert call() == f"{call.arguments['city']} {call.arguments.get('days', 1)}"
