"""The small agent: its tokenizer, its templates beside the turns it was trained on, and calls that it writes without a constraint."""

from __future__ import annotations

import random

import jax
import pytest
from oracles.call_writers import write_turn

import fsa_compile
import jax_decode
import models
from models.errors import ModelError
from tools.small_model import agent_corpus


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(models.small_agent_tokenizer_path())


def test_the_tokenizer_is_the_small_models_with_the_protocols_tokens(tokenizer):
    small = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    assert tokenizer.vocabulary.tokens[: small.vocabulary.size] == small.vocabulary.tokens
    assert tokenizer.vocabulary.size == 2176
    for name in ("gemma4", "qwen3"):
        known = fsa_compile.PROTOCOLS[name]
        assert {token for token in known.tokens if token != "<|endoftext|>"} <= set(tokenizer.vocabulary.special)
    assert tokenizer.encode("Oslo <tool_call>") == small.encode("Oslo <tool_call>")
    with pytest.raises(ModelError, match="knows no protocol"):
        models.small_agent_template("harmony")


@pytest.mark.parametrize("protocol", ["gemma4", "qwen3"])
def test_the_corpus_is_written_as_chat_templates_write_it(protocol):
    """The turns it was trained on are those of the templates that the tests of protocols have."""
    rng = random.Random(25)
    for _ in range(50):
        _, turns = agent_corpus.conversation(rng)
        for turn in turns:
            text = write_turn(protocol, thought=turn.thought, content=turn.content, calls=turn.calls)
            written = turn.written(protocol)
            assert written.startswith(text)
            assert written[len(text) :] in ("<|tool_response>", "<turn|>", "<|im_end|>")


def test_it_calls_without_a_constraint(tokenizer):
    """Greedily, a sum is a call of the right tool with the right arguments, in both protocols and one batch."""
    prompts, stops = [], set()
    for protocol in ("gemma4", "qwen3"):
        tools = [{"function": {"name": name}} for name in agent_corpus.TOOLS]
        template, chat = models.small_agent_template(protocol), [{"role": "user", "content": "What is 37 times 8?"}]
        prompts.append(fsa_compile.chat_prompt(chat, tokenizer, template=template, tools=tools).ids)
        stops |= set(fsa_compile.protocols.stop_ids(tokenizer, protocol))
    out = jax_decode.generate(
        models.load_small_agent(), prompts, None, key=jax.random.key(0), sampler=jax_decode.Greedy(), max_new_tokens=96,
        stop_ids=sorted(stops),
    )  # fmt: skip
    described = [{"name": "calculate", "parameters": {"type": "object"}}]
    for protocol, tokens in zip(("gemma4", "qwen3"), out.tokens):
        (call,) = fsa_compile.parse_response(tokens.tolist(), tokenizer, protocol=protocol, tools=described).calls
        assert call.arguments == {"left": 37, "operation": "multiply", "right": 8}
