"""Gold calls of the Berkeley Function Calling Leaderboard in every protocol, written by chat templates; nearly right ones refused."""

from __future__ import annotations

import random

import jsonschema
import numpy as np
import pytest
from oracles.call_writers import ONE_CALL, write_turn
from protocols import bfcl
from protocols.turns import ids_of, real_vocabulary, refused_at, small_vocabulary

from fsa_compile import PROTOCOLS, compile_response, parse_response

COLLECTIONS = ("simple_python", "multiple", "parallel")


def chosen(data_dir, name, everything, seed):
    """All entries of a collection, or one whose gold calls keep to their own descriptions."""
    found = bfcl.entries(data_dir, name)
    if everything:
        return found
    return random.Random(seed).sample([e for e in found if all(bfcl.is_valid(e[1], *call) for call in e[2])], 1)


def check_entry(name, vocabulary, encode, entry):
    """Number of turns that were tried: the gold calls are accepted and come back, what is wrong is refused.

    A gold call that is not valid under its own description is one of the wrong ones.
    """
    ident, functions, gold = entry
    rng = random.Random(ident + name)
    constraint = compile_response(vocabulary, protocol=name, tools=functions, tool_choice="required")
    calls = [call for call in gold if bfcl.is_valid(functions, *call)]
    wrong = [write_turn(name, calls=[call]) for call in gold if call not in calls]
    if calls:
        told = calls[:1] if name in ONE_CALL else calls
        ids = ids_of(write_turn(name, calls=told), vocabulary, encode)
        assert refused_at(constraint, ids) is None, (ident, vocabulary.tokens[ids[refused_at(constraint, ids)]])
        found = parse_response(ids, vocabulary, protocol=name, tools=functions)
        assert [(call.name, call.arguments) for call in found.calls] == told, ident
        text = write_turn(name, calls=calls[:1])
        wrong += [write_turn(name, calls=[call]) for call in bfcl.wrong_calls(functions, *calls[0], rng)[:20]]
        wrong += bfcl.broken_texts(text, rng)
        assert len(wrong) >= 20
        ids = ids_of(text, vocabulary, encode)
        at = rng.randrange(1, len(ids))
        for special in rng.sample(list(PROTOCOLS[name].tokens), 2):
            if special in vocabulary.special and special not in text:
                broken = [*ids[:at], vocabulary.special[special], *ids[at:]]
                assert refused_at(constraint, broken) is not None, (ident, special, at)
    for broken in wrong:
        assert refused_at(constraint, ids_of(broken, vocabulary, encode)) is not None, (ident, broken)
    return len(wrong) + 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROTOCOLS)
def test_gold_calls_come_back_and_wrong_ones_are_refused(name, data_dir, exhaustive):
    """In full over published vocabularies; sampled over a small one, but for three protocols."""
    real = exhaustive or name in ("gemma4", "qwen3", "llama4")
    vocabulary, encode = real_vocabulary(data_dir, name) if real else (small_vocabulary(PROTOCOLS[name], special=True), None)
    for collection in COLLECTIONS:
        for entry in chosen(data_dir, collection, exhaustive, name + collection):
            check_entry(name, vocabulary, encode, entry)


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
