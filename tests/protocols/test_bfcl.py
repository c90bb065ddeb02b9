"""Gold calls of the Berkeley Function Calling Leaderboard in every protocol, written by chat templates; nearly right ones refused."""

from __future__ import annotations

import random

import jsonschema
import numpy as np
import pytest
from oracles.call_writers import ONE_CALL, write_turn
from protocols import bfcl
from protocols.turns import ids_of, names_of, real_tokenizer, refused_at, small_vocabulary

from fsa_compile import PROTOCOLS, compile_response, parse_response

COLLECTIONS = ("simple_python", "multiple", "parallel")


def chosen(data_dir, name, everything, seed):
    """All entries of a collection whose gold calls keep to their own descriptions, or one of them."""
    found = [entry for entry in bfcl.entries(data_dir, name) if all(bfcl.is_valid(entry[1], *call) for call in entry[2])]
    return found if everything else random.Random(seed).sample(found, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROTOCOLS)
def test_gold_calls_come_back_and_wrong_ones_are_refused(name, data_dir, exhaustive):
    protocol = PROTOCOLS[name]
    vocabulary = small_vocabulary(protocol, special=True)
    for collection in COLLECTIONS:
        for ident, functions, gold in chosen(data_dir, collection, exhaustive, name + collection):
            rng = random.Random(ident)
            constraint = compile_response(vocabulary, protocol=name, tools=functions, tool_choice="required")
            calls = gold[:1] if name in ONE_CALL else gold
            ids = ids_of(write_turn(name, calls=calls), vocabulary)
            assert refused_at(constraint, ids) is None, ident
            found = parse_response(ids, vocabulary, protocol=name, tools=functions)
            assert [(call.name, call.arguments) for call in found.calls] == calls
            text = write_turn(name, calls=gold[:1])
            wrong = [write_turn(name, calls=[call]) for call in bfcl.wrong_calls(functions, *gold[0], rng)[:20]]
            wrong += bfcl.broken_texts(text, rng)
            assert len(wrong) >= 20
            for broken in wrong:
                assert refused_at(constraint, ids_of(broken, vocabulary)) is not None, broken
            ids = ids_of(text, vocabulary)
            at = rng.randrange(1, len(ids))
            for special in rng.sample(list(protocol.tokens), 2):
                if special in vocabulary.special and special not in text:
                    broken = [*ids[:at], vocabulary.special[special], *ids[at:]]
                    assert refused_at(constraint, broken) is not None, (special, at)


@pytest.mark.parametrize("name", ["gemma4", "qwen3", "llama4"])
def test_gold_calls_over_a_real_vocabulary(name, data_dir):
    protocol = PROTOCOLS[name]
    tokenizer = real_tokenizer(data_dir, tuple(names_of(protocol)), protocol.stops)
    for ident, functions, gold in chosen(data_dir, "parallel", False, name):
        constraint = compile_response(tokenizer, protocol=name, tools=functions)
        ids = ids_of(write_turn(name, calls=gold), tokenizer.vocabulary, tokenizer.encode)
        assert refused_at(constraint, ids) is None, ident
        found = parse_response(ids, tokenizer, protocol=name, tools=functions)
        assert [(call.name, call.arguments) for call in found.calls] == gold


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROTOCOLS)
def test_random_turns_are_valid_calls(name, data_dir, exhaustive):
    """What the masks let through, drawn at random, reads back as calls that are valid under their schemas."""
    protocol = PROTOCOLS[name]
    vocabulary = small_vocabulary(protocol, special=True)
    rng = np.random.default_rng(25)
    _, functions, _ = chosen(data_dir, "multiple", False, name)[0]
    schemas = {f["name"]: jsonschema.Draft202012Validator(bfcl.json_schema(f["parameters"])) for f in functions}
    constraint = compile_response(vocabulary, protocol=name, tools=functions, tool_choice="required")
    most = 300
    for _ in range(6_000 if exhaustive else 5):
        walk, ids = constraint.walk(), []
        while len(ids) < most and not (walk.accepting and rng.random() < 0.5):
            allowed = [t for t in np.flatnonzero(walk.allowed(remaining=most - len(ids))) if t not in vocabulary.stop_ids]
            if not allowed:
                break
            special = [t for t in allowed if not vocabulary.tokens[t]]  # so that strings end
            token = int(rng.choice(special if special and rng.random() < 0.2 else allowed))
            walk.advance(token, remaining=most - len(ids))
            ids.append(token)
        assert walk.accepting
        found = parse_response(ids, vocabulary, protocol=name, tools=functions, tool_choice="required")
        assert found.calls
        assert all(schemas[call.name].is_valid(call.arguments) for call in found.calls), found
