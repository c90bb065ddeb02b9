"""One object for all requests: filters and canonical tokens hold for every constraint, prompts are healed, turns end where they end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fsa_compile
import models
from fsa_compile import CanonicalWalk, ChatTemplateError, ConstraintError, TextPipeline, filters
from fsa_compile.prompts.continuation import encode_continuation


@dataclasses.dataclass
class Pair:
    name: str
    twice: bool


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


def accepts(walk, tokens) -> bool:
    try:
        for token in tokens:
            walk.advance(token)
    except ValueError:
        return False
    return walk.accepting


@pytest.mark.parametrize("canonical", [False, True])
def test_filters_hold_for_every_constraint(tokenizer, canonical):
    pipeline = TextPipeline(tokenizer, filters=[filters.ascii(), filters.forbid("red")], canonical=canonical)
    grammar = 'start: "[" [start ("," start)*] "]" | /[a-zé]{1,5}/'
    schema = {"type": "string", "maxLength": 6}
    options = {"max_depth": 3} if canonical else {}
    cases = (
        (fsa_compile.compile_regex, ".{1,6}", {}, ["blue"], ["é", "a red"]),
        (fsa_compile.compile_choices, ["red", "blue", "grün"], {}, ["blue"], ["red", "grün"]),
        (fsa_compile.compile_json_schema, schema, {}, ['"blue"'], ['"red"', '"é"', '"too long"']),
        (fsa_compile.compile_grammar, grammar, options, ["[a,[bcd]]"], ["[red]", "[é]"]),
        (fsa_compile.compile_type, Pair, options, ['{"name": "Ada", "twice": true}'], ['{"name": "red", "twice": true}']),
    )
    for function, what, more, right, wrong in cases:
        if function is fsa_compile.compile_type and canonical:
            continue  # free text in a record takes seconds to write out
        constraint = pipeline.compile(function, what, **more)
        request = pipeline.prompt("It is:", constraint)
        tables = pipeline.canonical_tables
        for text, expected in [(text, True) for text in right] + [(text, False) for text in wrong]:
            walk = CanonicalWalk(request.constraint, tables) if tables is not None else request.constraint.walk()
            whole = tokenizer.encode("It is:" + text)
            tokens = whole[len(request.prompt) :] if whole[: len(request.prompt)] == request.prompt else None
            if tokens is None:
                tokens = encode_continuation(tokenizer, request.written.decode() + text)
            assert accepts(walk, tokens) == expected, (function, text)
            assert request.text(tokens) == text


def test_conversations(tokenizer):
    pipeline = TextPipeline(tokenizer, canonical=True, template="gemma")
    constraint = pipeline.compile(fsa_compile.compile_regex, "(d|al)\\.")
    request = pipeline.prompt([{"role": "user", "content": "Is it red?"}], constraint, response_prefix="It is re")
    special = tokenizer.vocabulary.special
    assert request.prompt[0] == special["<bos>"]
    assert request.bos_id is None
    assert request.stop_ids == (special["<eos>"], special["<end_of_turn>"])
    assert request.response_prefix == "It is re"
    text = tokenizer.vocabulary.decode([*request.prompt]) + request.written.decode()
    assert text.endswith("model\nIt is re")
    walk = CanonicalWalk(request.constraint, pipeline.canonical_tables)
    first = {tokenizer.vocabulary.tokens[t] for t in np.flatnonzero(walk.allowed())}
    assert any(data.startswith(b" red") for data in first)
    plain = TextPipeline(tokenizer).prompt("Is it", fsa_compile.compile_regex(" red", tokenizer))
    assert plain.bos_id == special["<bos>"]
    assert plain.stop_ids == tokenizer.vocabulary.stop_ids


def test_what_is_refused(tokenizer):
    with pytest.raises(ConstraintError, match="takes filters over text"):
        TextPipeline(tokenizer, filters=[filters.byte_fallback()])
    pipeline = TextPipeline(tokenizer, canonical=True)
    with pytest.raises(ConstraintError, match="canonical is the pipeline's to say"):
        pipeline.compile(fsa_compile.compile_regex, "a", canonical=True)
    with pytest.raises(ConstraintError, match='canonical="heal", which writes them out'):
        pipeline.prompt("a", fsa_compile.compile_grammar('start: "(" start ")" | "x"', tokenizer))
    with pytest.raises(ChatTemplateError, match="tools are for messages"):
        pipeline.prompt("a", fsa_compile.regex("a"), tools=[])
    with pytest.raises(ConstraintError, match="canonical is 'yes'"):
        fsa_compile.compile_regex("a", tokenizer, canonical="yes")
    with pytest.raises(ConstraintError, match=r"encoder|merges|byte-pair"):
        TextPipeline([b"a", b"b"], canonical=True)
