"""Gold calls of the Berkeley Function Calling Leaderboard in every protocol, written by chat templates; nearly right ones refused."""

from __future__ import annotations

import random

import jsonschema
import numpy as np
import pytest
from oracles.call_readers import read_calls
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
@pytest.mark.sampled(9)
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
    """What the masks let through, drawn at random, are valid calls for independent readers, and ours finds the same ones."""
    rng = random.Random(25)
    entries = [chosen(data_dir, "multiple", False, f"{name}{number}")[0] for number in range(12 if exhaustive else 1)]
    for _, functions, _ in entries:
        random_turns(name, functions, 560 if exhaustive else 5, rng)


def random_turns(name, functions, count, rng):
    """Checks random turns of a set of functions."""
    vocabulary = small_vocabulary(PROTOCOLS[name], special=True)
    tokens, special = list(vocabulary.tokens), dict(vocabulary.special)
    schemas = {f["name"]: jsonschema.Draft202012Validator(bfcl.json_schema(f["parameters"])) for f in functions}
    constraint = compile_response(vocabulary, protocol=name, tools=functions, tool_choice="required", reasoning="off")
    for _ in range(count):
        ids = random_turn(constraint, vocabulary, rng)
        calls = read_calls(name, ids, tokens, special)
        assert calls
        assert all(schemas[called].is_valid(arguments) for called, arguments in calls), calls
        found = parse_response(ids, vocabulary, protocol=name, tools=functions, tool_choice="required", reasoning="off")
        assert [(call.name, call.arguments) for call in found.calls] == calls


def random_turn(constraint, vocabulary, rng, most=300):
    """Ids of a turn, each drawn from the tokens that are allowed, special ones more often, so that strings end."""
    walk, ids = constraint.walk(), []
    stops = set(vocabulary.stop_ids)
    while len(ids) < most and not (walk.accepting and rng.random() < 0.5):
        allowed = [t for t in np.flatnonzero(walk.allowed(remaining=most - len(ids))).tolist() if t not in stops]
        if not allowed:
            break
        special = [t for t in allowed if not vocabulary.tokens[t] or vocabulary.tokens[t] in b"\"'"]
        token = rng.choice(special if special and rng.random() < 0.2 else allowed)
        walk.advance(token, remaining=most - len(ids))
        ids.append(token)
    assert walk.accepting
    return ids
