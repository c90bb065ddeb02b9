"""Constraints inside the unmodified samplers of the official `gemma` package, and its models inside our loop.

Needs that package's environment: `make test-parity` has gemma 3, `make test-gemma4` gemma 4. Model and tokenizer are the shipped
small ones, see `oracles.official_small`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import io
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.markdown import python_blocks

if importlib.util.find_spec("gemma") is None:
    pytest.skip("the official gemma package is not installed: make test-parity", allow_module_level=True)

import regex
from oracles import official_small

import fsa_compile
import jax_decode
from fsa_compile.protocols import stop_ids
from jax_decode import Status
from jax_decode.integrations.gemma import GemmaDecoder, constrain, statuses

PAGE = Path(__file__).parents[2] / "docs" / "gemma.md"
PERSON = r'\{"name": "[A-Z][a-z]+( [A-Z][a-z]+){1,2}", "born": (1[89]|20)[0-9]{2}, "city": "[A-Z][a-z]+"\}'
ANSWER = r"(yes|no|perhaps), because [a-z ]{3,40}\."
BIO = "Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: "
OTHER = "Bio: Nina Stone was born in 1974 in Oslo and works as a pilot.\nJSON: "
LIMIT = 64


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> official_small.Small:
    return official_small.load(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def both(small):
    """Tables of two patterns."""
    return jax_decode.to_device([fsa_compile.compile_regex(p, small.our_tokenizer) for p in (PERSON, ANSWER)])


@pytest.fixture(scope="module")
def person(small):
    return jax_decode.to_device(fsa_compile.compile_regex(PERSON, small.our_tokenizer))


def tokens_of(state, row: int = 0) -> list[int]:
    """A row's tokens in a sampler's state, the stop token included."""
    row = np.asarray(state.predicted_tokens[row])
    return row[row != 0].tolist()


def chosen(out, row: int = 0) -> list[int]:
    """The same of a `Generation`; a text that the limit has completed has no stop token."""
    return [*out.tokens[row].tolist(), *([] if out.stop_token[row] is None else [out.stop_token[row]])]


def text_of(small, state, row: int = 0) -> str:
    ids = tokens_of(state, row)
    return small.vocabulary.decode(ids[:-1] if ids[-1] in (official_small.EOS, official_small.END_OF_TURN) else ids)


# The samplers


def test_a_mixed_batch_is_legal_and_compiles_once(small, both):
    """Two constraints, rows without one, hot sampling: every row keeps to its own, whatever its neighbours are, in one program."""
    loop = importlib.import_module("gemma.gm.text._sampler_loop").SamplerLoop._sample_loop
    hot = small.gm.text.RandomSampling(temperature=3.0)
    before = None
    for seed, which in enumerate([[0, 1, None, 0], [1, None, 0, 1], [None, 0, 1, 1]]):
        model, params = constrain(small.model, small.params, both, constraint=which, max_new_tokens=LIMIT)
        sampler = small.sampler(model, params, sampling=hot)
        out = sampler.sample([BIO, OTHER, BIO, OTHER], rng=seed, return_state=True)
        for row, index in enumerate(which):
            ended = statuses(out.state, params)[row]
            if index is None:
                assert ended in (Status.FINISHED, Status.TRUNCATED)
                assert (ended is Status.FINISHED) == bool(out.state.done[row])
            else:
                assert ended is Status.ACCEPTED
                assert re.fullmatch((PERSON, ANSWER)[index], text_of(small, out.state, row))
        before = loop._cache_size() if before is None else before
    assert loop._cache_size() == before
    # Other patterns of sizes that were there: the tables are arguments.
    programs = {tuple(x.shape for x in jax.tree.leaves(sampler.params))}
    others = [r"(red|green|blue)(, (red|green|blue)){0,5}", r"[a-z]{2,8}@[a-z]{2,8}\.(com|org)"]
    for pattern in others:
        pair = [fsa_compile.compile_regex(p, small.our_tokenizer) for p in (PERSON, pattern)]
        model, params = constrain(
            small.model, small.params, jax_decode.to_device(pair), constraint=[1, 1, 1, 0], max_new_tokens=LIMIT
        )
        programs.add(tuple(x.shape for x in jax.tree.leaves(params)))
        out = small.sampler(model, params, sampling=hot).sample([BIO, OTHER, BIO, OTHER], rng=7, return_state=True)
        assert [re.fullmatch(pattern, text_of(small, out.state, row)) is not None for row in range(3)] == [True] * 3
        assert loop._cache_size() == before + len(programs) - 1
    assert len(programs) <= len(others), "at least two of the pairs are of one size"


def test_constraints_of_all_kinds_in_one_profile_share_a_program(small):
    """A pattern, a schema, and a grammar in the room of one profile: the first call compiles, no later one does."""
    loop = importlib.import_module("gemma.gm.text._sampler_loop").SamplerLoop._sample_loop
    tok = small.our_tokenizer
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]}
    made = [
        fsa_compile.compile_regex(ANSWER, tok),
        fsa_compile.compile_json_schema(schema | {"additionalProperties": False}, tok),
        fsa_compile.compile_grammar('start: "(" start ")" | "x"', tok),
    ]
    sizes = []
    for constraint in made:
        tables = jax_decode.to_device(constraint, profile="general")
        model, params = constrain(small.model, small.params, tables, max_new_tokens=LIMIT)
        out = small.sampler(model, params).sample([BIO, OTHER], return_state=True)
        assert statuses(out.state, params) == [Status.ACCEPTED] * 2
        sizes.append(loop._cache_size())
    assert sizes == sizes[:1] * 3


@pytest.fixture(scope="module")
def greedy(small, person):
    """One greedy batch, of a prompt that suits the pattern, one that does not, and a long one."""
    prompts = [BIO, "What is the capital of France?", OTHER + OTHER]
    model, params = constrain(small.model, small.params, person, max_new_tokens=LIMIT)
    out = small.sampler(model, params, pad_length=128).sample(prompts, return_state=True)
    return prompts, params, out


def test_token_for_token_as_our_own_loop(small, person, greedy):
    """With the official model inside our loop, and with our model of the same parameters."""
    prompts, params, out = greedy
    ids = [small.tokenizer.encode(p, add_bos=True) for p in prompts]
    for decoder in (GemmaDecoder(small.model, small.params), small.ours):
        mine = jax_decode.generate(decoder, ids, person, constraint=0, max_new_tokens=LIMIT)
        for row in range(len(prompts)):
            assert tokens_of(out.state, row) == chosen(mine, row)
        assert statuses(out.state, params) == mine.status
    assert out.text[0].startswith('{"name": "Ada Lovelace", "born": 1815, "city": "')  # the prompt's own facts
    assert re.fullmatch(PERSON, text_of(small, out.state))


def test_finished_rows_keep_what_they_have(small, both):
    """A short answer beside a long one: the loop steps on, its text and status stay, and are those of the row alone."""
    colour = fsa_compile.compile_regex("yes|no", small.our_tokenizer)
    tables = jax_decode.to_device([fsa_compile.compile_regex(PERSON, small.our_tokenizer), colour])
    model, params = constrain(small.model, small.params, tables, constraint=[1, 0], max_new_tokens=LIMIT)
    out = small.sampler(model, params).sample([BIO, BIO], return_state=True)
    assert int(out.state.step) > len(tokens_of(out.state, 0)) + 10
    assert statuses(out.state, params) == [Status.ACCEPTED, Status.ACCEPTED]
    ids = small.tokenizer.encode(BIO, add_bos=True)
    alone = jax_decode.generate(small.ours, ids, tables, constraint=1, max_new_tokens=LIMIT)
    assert tokens_of(out.state, 0) == chosen(alone)
    assert re.fullmatch(PERSON, text_of(small, out.state, 1))


_SEEN: list[np.ndarray] = []


def test_every_mask_on_the_way_is_exact(small):
    """The logits that the sampler's own method was given, against partial matches of the `regex` library: both sides."""

    @dataclasses.dataclass(frozen=True)
    class Recording(small.gm.text.SamplingMethod):
        def get_next_tokens(self, logits, rng):
            jax.debug.callback(lambda x: _SEEN.append(np.array(x)), logits, ordered=True)
            return jax.random.categorical(rng, logits / 2, axis=-1)

    pattern = r"(yes|no|perhaps), because [a-z]{2,6}( [a-z]{2,6}){0,2}\."
    tables = jax_decode.to_device(fsa_compile.compile_regex(pattern, small.our_tokenizer))
    model, params = constrain(small.model, small.params, tables)  # no limit that matters
    sampler, vocabulary = small.sampler(model, params, sampling=Recording()), small.vocabulary
    _SEEN.clear()
    out = sampler.sample("Is it so? ", rng=3, return_state=True)
    jax.effects_barrier()
    taken = tokens_of(out.state)
    assert len(_SEEN) == len(taken) > 8
    text = b""
    for logits, token in zip(_SEEN, taken):
        want = set()
        for i in range(vocabulary.size):
            piece = vocabulary.decode_bytes([i])
            if piece and regex.fullmatch(pattern.encode(), text + piece, partial=True):
                want.add(i)
        if regex.fullmatch(pattern.encode(), text):
            want |= {official_small.EOS, official_small.END_OF_TURN}
        assert set(np.flatnonzero(np.isfinite(logits[0])).tolist()) == want
        text += vocabulary.decode_bytes([token])


@pytest.fixture(scope="module")
def chat(small, person):
    """A conversation of three turns, its answers, and how they ended."""
    model, params = constrain(small.model, small.params, person, max_new_tokens=LIMIT)
    sampler = small.gm.text.ChatSampler(
        model=model, params=params, tokenizer=small.tokenizer, multi_turn=True, cache_length=1024, max_out_length=LIMIT
    )
    turns = []
    for prompt in (BIO, OTHER, "And who else?"):
        turns.append((sampler.chat(prompt), statuses(sampler.last_state, params), sampler.last_state))
    return sampler, turns


def test_every_turn_of_a_chat_begins_anew(small, person, chat):
    sampler, turns = chat
    for text, ended, state in turns:
        assert ended == [Status.ACCEPTED]
        assert re.fullmatch(PERSON, text_of(small, state))
        assert text in (text_of(small, state), text_of(small, state) + "<eos>")
    assert len(sampler.turns) == 6
    # The first turn is our own loop's; a later one depends on the conversation.
    formatted = f"<start_of_turn>user\n{BIO}<end_of_turn>\n<start_of_turn>model\n"
    ids = small.tokenizer.encode(formatted, add_bos=True)
    mine = jax_decode.generate(small.ours, ids, person, max_new_tokens=LIMIT)
    assert tokens_of(turns[0][2]) == chosen(mine)
    alone = sampler.chat("And who else?", multi_turn=False)
    assert re.fullmatch(PERSON, alone)
    assert alone != turns[2][0]


def test_other_constraints_in_later_turns_and_turns_of_one_token(small, both):
    """The state of a conversation goes on with other parameters; a prompt of one token is a turn of its own."""
    samplers = []
    for which in ([0], [1], [None]):
        model, params = constrain(small.model, small.params, both, constraint=which, max_new_tokens=LIMIT)
        samplers.append(small.sampler(model, params, cache_length=512))
    assert len({s.model for s in samplers}) == 1
    assert len(small.tokenizer.encode("\n")) == 1
    state = None
    for index, prompt in ((0, BIO), (1, "\n"), (1, "\n"), (2, "\n"), (0, OTHER)):
        out = samplers[index].sample(prompt, return_state=True, last_state=state, max_new_tokens=48)
        state = out.state
        ended = statuses(state, samplers[index].params)
        if index < 2:
            assert ended == [Status.ACCEPTED]
            assert re.fullmatch((PERSON, ANSWER)[index], text_of(small, state))
        else:
            assert ended[0] in (Status.FINISHED, Status.TRUNCATED)


def test_streaming_gives_the_same_tokens(small, person, greedy):
    prompts, _, whole = greedy
    model, params = constrain(small.model, small.params, person, max_new_tokens=LIMIT)
    states = [out.state for out in small.sampler(model, params).sample(prompts[0], stream=True, return_state=True)]
    assert tokens_of(states[-1]) == tokens_of(whole.state, 0)
    assert len(states) == len(tokens_of(states[-1]))
    assert statuses(states[-1], params) == [Status.ACCEPTED]
    assert statuses(states[3], params) == [Status.TRUNCATED]  # as if it ended there
    chat = small.gm.text.ChatSampler(
        model=model, params=params, tokenizer=small.tokenizer, print_stream=True, cache_length=256, max_out_length=LIMIT
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        chat.chat(BIO)
    assert statuses(chat.last_state, params) == [Status.ACCEPTED]
    assert re.fullmatch(PERSON, text_of(small, chat.last_state))
    assert printed.getvalue()


def test_a_full_cache_and_the_samplers_limit_are_told(small, person):
    model, params = constrain(small.model, small.params, person, max_new_tokens=LIMIT)
    prompt = small.tokenizer.encode(BIO, add_bos=True)
    out = small.sampler(model, params, cache_length=len(prompt) + 10, pad_length=None).sample(BIO, return_state=True)
    assert 5 < int(out.state.step) < 12
    assert statuses(out.state, params) == [Status.TRUNCATED]
    assert regex.fullmatch(PERSON, text_of(small, out.state), partial=True)
    sampler = small.sampler(model, params)
    cut = sampler.sample(BIO, return_state=True, max_new_tokens=5)
    assert statuses(cut.state, params) == [Status.TRUNCATED]
    whole = sampler.sample(BIO, return_state=True)
    length = len(tokens_of(whole.state))
    just = sampler.sample(BIO, return_state=True, max_new_tokens=length - 1)  # everything but the stop token
    assert statuses(just.state, params) == [Status.ACCEPTED]
    # A prompt that fills the cache to its last slot: not one step, and not the status of the turn before.
    tight = small.sampler(model, params, cache_length=len(prompt) + length + 20, pad_length=None)
    first = tight.sample(BIO, return_state=True)
    assert statuses(first.state, params) == [Status.ACCEPTED]
    second = tight.sample("\n" * 20, return_state=True, last_state=first.state)
    assert int(second.state.step) == 0
    assert statuses(second.state, params) == [Status.TRUNCATED]


def test_limits_of_rows_complete_their_texts(small, both):
    """A pattern that hot sampling would go on with: within the limit it is complete, row by row."""
    tables = jax_decode.to_device(fsa_compile.compile_regex(r"([a-z]+ )*[a-z]+\.", small.our_tokenizer))
    limits = [4, 9, 30]
    model, params = constrain(small.model, small.params, tables, max_new_tokens=limits)
    sampler = small.sampler(model, params, sampling=small.gm.text.RandomSampling(temperature=5.0))
    for seed in range(3):
        out = sampler.sample([BIO] * 3, rng=seed, return_state=True)
        assert statuses(out.state, params) == [Status.ACCEPTED] * 3
        for row, limit in enumerate(limits):
            ids = tokens_of(out.state, row)  # a text that the limit has completed gets its stop token nevertheless
            assert len(ids) <= limit + 1
            assert len(ids) <= limit or ids[-1] == official_small.EOS
            assert re.fullmatch(r"([a-z]+ )*[a-z]+\.", text_of(small, out.state, row))


def test_the_other_sampling_methods(small, person):
    """None of them falls over rows of one allowed token, which are most of those of this pattern."""
    text = small.gm.text
    model, params = constrain(small.model, small.params, person, max_new_tokens=LIMIT)
    for method in (text.TopkSampling(k=5, temperature=2.0), text.TopPSampling(p=0.9, temperature=2.0)):
        out = small.sampler(model, params, sampling=method).sample(BIO, rng=1, return_state=True)
        assert re.fullmatch(PERSON, text_of(small, out.state))
        assert statuses(out.state, params) == [Status.ACCEPTED]


def test_grammars_with_a_stack_counters_and_canonical_tokens(small):
    """Not only plain automata: JSON values by a grammar, and a canonical pattern, each from hot sampling."""
    hot = small.gm.text.RandomSampling(temperature=1.5)
    nested = fsa_compile.compile_grammar(
        'start: value\nvalue: "[" [value ("," value)*] "]" | "x"~2..5 | /[0-9]{3,40}z/\n', small.our_tokenizer
    )
    tables = jax_decode.to_device(nested)
    assert tables.has_stack
    model, params = constrain(small.model, small.params, tables, max_new_tokens=40, max_depth=6)
    sampler = small.sampler(model, params, sampling=hot)
    last = None
    for seed in range(4):
        out = sampler.sample(["Go: ", BIO], rng=seed, return_state=True, last_state=None if seed % 2 == 0 else last)
        last = out.state
        assert statuses(out.state, params) == [Status.ACCEPTED] * 2
        for row in range(2):
            text = text_of(small, out.state, row)
            json.loads(re.sub("x+", "1", re.sub(r"[0-9]{3,40}z", "1", text)))
            assert re.fullmatch(r"[\[\],0-9xz]+", text)
            assert set(map(len, re.findall("x+", text))) <= {2, 3, 4, 5}
    canonical = fsa_compile.canonical_tables(small.our_tokenizer)
    pattern = r'"[a-z ]{3,30}"'
    tables = jax_decode.to_device(fsa_compile.compile_regex(pattern, small.our_tokenizer, canonical=True), canonical=canonical)
    model, params = constrain(small.model, small.params, tables, max_new_tokens=32)
    for seed in range(3):
        out = small.sampler(model, params, sampling=hot).sample("Say: ", rng=seed, return_state=True)
        ids, text = tokens_of(out.state), text_of(small, out.state)
        assert re.fullmatch(pattern, text)
        assert ids[:-1] == small.our_tokenizer.encode(text)


def test_turns_of_a_chat_model(small):
    """Calls as Gemma 3 is prompted for them, and a thought before a value of a schema, from hot sampling; both are read back."""

    def get_weather(city: str, days: int = 1) -> str:
        return f"{city} {days}"

    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    asked = [
        {"protocol": "gemma3-python", "tools": [get_weather], "tool_choice": "required"},
        {"protocol": "qwen3", "response": schema},
    ]
    constraints = [fsa_compile.compile_response(small.our_tokenizer, **given) for given in asked]
    tables = jax_decode.to_device(constraints)
    model, params = constrain(small.model, small.params, tables, constraint=[0, 1], max_new_tokens=LIMIT)
    sampler = small.sampler(model, params, sampling=small.gm.text.RandomSampling(temperature=1.5))
    for seed in range(3):
        out = sampler.sample([BIO, OTHER], rng=seed, return_state=True)
        assert statuses(out.state, params) == [Status.ACCEPTED] * 2
        calls, value = (
            fsa_compile.parse_response(text_of(small, out.state, row), small.our_tokenizer, **given) for row, given in enumerate(asked)
        )
        assert calls.calls
        assert all(call() == f"{call.arguments['city']} {call.arguments.get('days', 1)}" for call in calls.calls)
        assert set(value.content) == {"ok"}


def test_the_parameters_keep_the_dtype_of_the_cache(small, person):
    """The sampler takes it from the first leaf: the model's leaves come before the tables, whose first ones are integers."""
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), small.params)
    model = dataclasses.replace(small.model, dtype=jnp.bfloat16)
    model, params = constrain(model, half, person, max_new_tokens=LIMIT)
    assert jax.tree.leaves(params)[0] is jax.tree.leaves(half)[0]
    assert jax.tree.leaves(params)[-1].dtype != jnp.bfloat16
    out = small.sampler(model, params).sample(BIO, return_state=True)
    assert {layer[name].dtype for layer in out.state.cache.values() for name in "kv"} == {jnp.dtype(jnp.bfloat16)}
    assert re.fullmatch(PERSON, text_of(small, out.state))


def test_a_sampling_method_cannot_hold_tables(small, person):
    """What the documentation says of the obvious other way."""

    @dataclasses.dataclass(frozen=True)
    class Method(small.gm.text.SamplingMethod):
        tables: jax_decode.ConstraintTables

        def get_next_tokens(self, logits, rng):
            return jnp.argmax(logits, -1)

    with pytest.raises((TypeError, ValueError), match="hashable"):
        small.sampler(small.model, small.params, sampling=Method(person)).sample(BIO)


# Gemma 4: another architecture (layers share caches), tokenizer and sampler


@pytest.fixture(scope="module")
def small4(small):
    """A random model of four layers, the last two on the caches of the others, and the small vocabulary as its tokenizer's."""
    if not hasattr(small.gm.nn, "Gemma4_E2B"):
        pytest.skip("this gemma package has no Gemma 4: make test-gemma4")
    kinds, sharing = (importlib.import_module(f"gemma.gm.nn.gemma4.{name}") for name in ("_modules", "_config"))
    layers = (kinds.AttentionType.LOCAL_SLIDING, kinds.AttentionType.GLOBAL) * 2
    config = dataclasses.replace(
        small.gm.nn.Gemma4_E2B.config,
        num_embed=2048, embed_dim=64, hidden_dim=128, num_heads=4, head_dim=16, num_kv_heads=1, attention_types=layers,
        sliding_window_size=16, global_key_size=32, per_layer_input_dim=8, override_kv_shared_ffw_hidden=192,
        kv_cache_sharing_config=sharing.KVCacheSharingConfig(frac_shared_layers=0.5, share_global=True, share_local=True),
        vision_encoder=None, audio_encoder=None,
    )  # fmt: skip
    model = small.gm.nn.Gemma4_E2B(config=config, dtype=jnp.float32)
    params = model.init(jax.random.key(0), jnp.ones((1, 4), jnp.int32))["params"]
    return model, params, small.gm.text.Gemma4Tokenizer(path=small.path)


def test_the_samplers_of_gemma_4(small, small4, both, person):
    model, params, tokenizer = small4
    hot = small.gm.text.RandomSampling(temperature=2.0)
    sizes = {"tokenizer": tokenizer, "cache_length": 512, "max_out_length": LIMIT, "pad_length": 64}
    constrained, packed = constrain(model, params, both, constraint=[0, 1, None], max_new_tokens=[LIMIT, LIMIT, 8])
    sampler = small.gm.text.Gemma4Sampler(model=constrained, params=packed, sampling=hot, **sizes)
    out = sampler.sample([BIO, OTHER, "Once "], rng=3, return_state=True)
    assert statuses(out.state, packed)[:2] == [Status.ACCEPTED] * 2
    for row, pattern in enumerate((PERSON, ANSWER)):
        assert re.fullmatch(pattern, text_of(small, out.state, row))
    constrained, packed = constrain(model, params, person, max_new_tokens=LIMIT)
    chat = small.gm.text.ChatSampler(model=constrained, params=packed, multi_turn=True, **sizes)
    for prompt in ("Who was it?", "And who else?"):
        chat.chat(prompt)
        assert statuses(chat.last_state, packed) == [Status.ACCEPTED]
        assert re.fullmatch(PERSON, text_of(small, chat.last_state))
    greedy = small.gm.text.Gemma4Sampler(model=constrained, params=packed, **sizes).sample(BIO, return_state=True)
    ids = tokenizer.encode(BIO, add_bos=True)
    mine = jax_decode.generate(GemmaDecoder(model, params), ids, person, max_new_tokens=LIMIT)
    assert tokens_of(greedy.state) == chosen(mine)


def test_turns_of_gemma_4(small, small4, tmp_path):
    """Calls, and a thought before a value, in Gemma 4's own tokens from its own sampler, which stops at each id that ends a turn."""
    model, params, _ = small4
    path = official_small.gemma_4_tokenizer(tmp_path)
    tokenizer, ours = small.gm.text.Gemma4Tokenizer(path=path), fsa_compile.load_tokenizer(path)
    names = tokenizer.special_tokens
    ends = {names.EOS, names.END_OF_TURN, names.BEGIN_OF_TOOL_RESPONSE}
    stops = stop_ids(ours, "gemma4")
    assert set(stops) == ends

    def get_weather(city: str, days: int = 1) -> str:
        return f"{city} {days}"

    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    asked = [
        {"tools": [get_weather], "tool_choice": "required", "reasoning": "off"},
        {"tools": [get_weather], "response": schema, "reasoning": "required", "tool_choice": "none"},
        {"tools": [get_weather], "reasoning": "off"},
    ]
    bounds = ({}, {"max_reasoning_tokens": 8}, {})
    made = [fsa_compile.compile_response(ours, **given, **more) for given, more in zip(asked, bounds)]  # the tokenizer tells: gemma4
    tables = jax_decode.to_device(made)
    constrained, packed = constrain(model, params, tables, constraint=[0, 1, 2], max_new_tokens=LIMIT, stop_ids=stops)
    hot = small.gm.text.RandomSampling(temperature=2.0)
    sizes = {"tokenizer": tokenizer, "cache_length": 512, "max_out_length": LIMIT, "pad_length": 64}
    sampler = small.gm.text.Gemma4Sampler(model=constrained, params=packed, sampling=hot, **sizes)
    ended = set()
    for seed in range(8):
        out = sampler.sample([BIO, OTHER, BIO], rng=seed, return_state=True)
        assert statuses(out.state, packed) == [Status.ACCEPTED] * 3
        ids = [tokens_of(out.state, row) for row in range(3)]
        ended |= {row[-1] for row in ids} & ends
        calls, value, either = (fsa_compile.parse_response(row, ours, **given) for row, given in zip(ids, asked))
        assert calls.calls
        assert all(call() == f"{call.arguments['city']} {call.arguments.get('days', 1)}" for call in calls.calls)
        assert set(value.content) == {"ok"}
        assert value.reasoning
        assert either.calls or either.content
    assert len(ended) > 1


# Errors


def test_errors_say_what_to_do(small, person, both):
    def given(**options):
        return constrain(small.model, small.params, person, **options)

    with pytest.raises(jax_decode.DecodeError, match="below the number of tokens of the shortest text"):
        given(max_new_tokens=3)
    assert given(max_new_tokens=3, allow_truncation=True)
    with pytest.raises(jax_decode.DecodeError, match="different numbers of rows: 2, 3"):
        given(constraint=[0, 0], max_new_tokens=[64, 64, 64])
    with pytest.raises(jax_decode.DecodeError, match="constraint index of prompt 0 is 1"):
        given(constraint=1)
    with pytest.raises(jax_decode.DecodeError, match="tables are a CompiledConstraint"):
        constrain(small.model, small.params, fsa_compile.compile_regex("a", small.our_tokenizer))
    endless = fsa_compile.Vocabulary.from_tokens([b"a", b"b"], stop_ids=[])
    with pytest.raises(jax_decode.DecodeError, match="names no id that ends a text"):
        constrain(small.model, small.params, jax_decode.to_device(fsa_compile.compile_regex("a", endless)))
    wide = fsa_compile.Vocabulary.from_tokens([b"a"] * 3000 + [b""], stop_ids=[3000])
    with pytest.raises(jax_decode.DecodeError, match="3,001 ids, the model has 2,048 logits"):
        constrain(small.model, small.params, jax_decode.to_device(fsa_compile.compile_regex("a", wide)))
    model, params = given()
    with pytest.raises(jax_decode.DecodeError, match=r"constrain\(model.model"):
        constrain(model, params, person)
    with pytest.raises(jax_decode.DecodeError, match="Use both results of constrain"):
        small.sampler(model, small.params).sample(BIO)
    model, params = constrain(small.model, small.params, both)  # constraint i for row i
    with pytest.raises(jax_decode.DecodeError, match="given for 2 rows, and there are 1"):
        small.sampler(model, params).sample(BIO)
    cache = model.init_cache(batch_size=2, dtype=jnp.float32, cache_length=16)
    block = jnp.ones((2, 3), jnp.int32)
    with pytest.raises(jax_decode.DecodeError, match="one token of every row"):
        model.apply({"params": params}, block, cache=cache, positions=block, attention_mask=jnp.ones((2, 3, 16), bool))


# The decoder


@pytest.fixture(scope="module")
def decoder(small):
    return GemmaDecoder(small.model, small.params)


def test_the_decoder_keeps_the_promises(small, decoder):
    """Past the sliding window: blocks equal single steps, ragged rows equal rows alone, and a rewound cache is a fresh one."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 2048, (3, 112)).astype(np.int32)  # id 0 too, which the library takes for padding
    ids[:, 70] = 0
    want = np.asarray(jax.jit(type(small.ours).forward)(small.ours, jnp.asarray(ids)))
    apply = jax.jit(lambda d, t, c, n, last: d.apply(t, c, n, last_only=last), static_argnums=4)
    lengths = np.array([90, 71, 5], np.int32)
    logits, cache = apply(decoder, ids[:, :90], decoder.init_cache(3, 112), jnp.asarray(lengths), False)
    last, other = apply(decoder, ids[:, :90], decoder.init_cache(3, 112), jnp.asarray(lengths), True)
    for row, n in enumerate(lengths):
        np.testing.assert_allclose(logits[row, :n], want[row, :n], atol=2e-4)
        np.testing.assert_allclose(last[row, 0], want[row, n - 1], atol=2e-4)
    np.testing.assert_array_equal(cache.n, other.n)
    taken = lengths.copy()
    for fed in ([4, 0, 3], [1, 2, 4], [0, 4, 4], [4, 4, 1]):  # blocks of 4, partly real
        block = np.stack([np.pad(row[t : t + n], (0, 4 - n), constant_values=7) for row, t, n in zip(ids, taken, fed)])
        logits, cache = apply(decoder, block, cache, jnp.asarray(fed, jnp.int32), False)
        for row, n in enumerate(fed):
            np.testing.assert_allclose(logits[row, :n], want[row, taken[row] : taken[row] + n], atol=2e-4)
        taken += fed
    kept = np.array([80, 3, 12], np.int32)
    cache = decoder.rewind(cache, jnp.asarray(kept))
    np.testing.assert_array_equal(cache.n, np.minimum(kept, taken))
    for step in range(4):
        block = np.stack([row[n + step : n + step + 1] for row, n in zip(ids, kept)])
        logits, cache = apply(decoder, block, cache, jnp.ones(3, jnp.int32), False)
        for row, n in enumerate(kept):
            np.testing.assert_allclose(logits[row, 0], want[row, n + step], atol=2e-4)


def test_a_prefill_makes_the_logits_of_one_token(decoder):
    tokens = jax.ShapeDtypeStruct((1, 384), jnp.int32)
    cache = jax.eval_shape(lambda: decoder.init_cache(1, 400))
    for last_only, found in ((True, False), (False, True)):
        lowered = jax.jit(lambda d, t, c, n, last=last_only: d.apply(t, c, n, last_only=last)[0]).lower(
            decoder, tokens, cache, jax.ShapeDtypeStruct((1,), jnp.int32)
        )
        assert ("f32[1,384,2048]" in lowered.compile().as_text()) is found


def test_drafts_and_beams_over_the_decoder(small, decoder, person, greedy):
    prompts, _, out = greedy
    ids = [small.tokenizer.encode(p, add_bos=True) for p in prompts[:2]]
    drafted = jax_decode.generate(
        decoder, ids, person, constraint=0, max_new_tokens=LIMIT, draft=jax_decode.PromptLookup(), forced=8
    )
    for row in range(2):
        assert chosen(drafted, row) == tokens_of(out.state, row)
    assert drafted.passes_per_token < 0.9
    beams = jax_decode.beam_search(decoder, ids, person, constraint=0, beams=3, max_new_tokens=LIMIT)
    mine = jax_decode.beam_search(small.ours, ids, person, constraint=0, beams=3, max_new_tokens=LIMIT)
    np.testing.assert_array_equal(beams.padded, mine.padded)


# The documentation


def test_the_page_runs_as_printed(small):
    """Every block of `docs/gemma.md`, at most 25 lines each, with a user's model, parameters and tokenizer."""
    blocks = python_blocks(PAGE.read_text(encoding="utf-8"))
    names = {"gm": small.gm, "model": small.model, "params": small.params, "tokenizer": small.tokenizer}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            assert len(block.strip().splitlines()) <= 25
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    assert "ACCEPTED" in printed.getvalue()
