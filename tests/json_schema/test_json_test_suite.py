"""JSONTestSuite (Nicolas Seriot) through the masks of the library's JSON grammar: bytes one by one, and spelled in longer tokens.

RFC 8259 lets a parser limit depth; the grammar and the host walk have no limit of their own, so none of the cases to be accepted
needs an exception. How the cases that the suite leaves open (`i_`) are decided is said in OPEN_ACCEPTED.
"""

from __future__ import annotations

import base64
import gzip
import json
import random

import pytest
from oracles.stack_sets import random_tokens

import fsa_compile
from fsa_compile import library
from fsa_compile.artifact.host_walk import HostWalk

OPEN_ACCEPTED = {
    # Numbers have no bound: their range is the reader's affair.
    "i_number_double_huge_neg_exp.json", "i_number_huge_exp.json", "i_number_neg_int_huge_exp.json",
    "i_number_pos_double_huge_exp.json", "i_number_real_neg_overflow.json", "i_number_real_pos_overflow.json",
    "i_number_real_underflow.json", "i_number_too_big_neg_int.json", "i_number_too_big_pos_int.json",
    "i_number_very_big_negative_int.json",
    # Escaped surrogates need not come in pairs.
    "i_object_key_lone_2nd_surrogate.json", "i_string_1st_surrogate_but_2nd_missing.json",
    "i_string_1st_valid_surrogate_2nd_invalid.json", "i_string_incomplete_surrogate_and_escape_valid.json",
    "i_string_incomplete_surrogate_pair.json", "i_string_incomplete_surrogates_escape_valid.json",
    "i_string_invalid_lonely_surrogate.json", "i_string_invalid_surrogate.json", "i_string_inverted_surrogates_U+1D11E.json",
    "i_string_lone_second_surrogate.json",
    # Any depth.
    "i_structure_500_nested_arrays.json",
}  # fmt: skip
"""Accepted; all others left open are texts that are not UTF-8, or begin with a byte order mark, and are refused."""

DEEP = {"n_structure_100000_opening_arrays.json", "n_structure_open_array_object.json"}
"""Texts that open brackets 100,000 and 50,000 times and close none. The host walk keeps its whole history, stacks included, so of
these only the first 3,000 bytes are read: all brackets stay open, as at the end."""


@pytest.fixture(scope="module")
def cases(data_dir) -> list[dict]:
    with gzip.open(data_dir / "json_parsing.jsonl.gz", "rt", encoding="utf-8") as file:
        return [{**case, "bytes": base64.b64decode(case["bytes"])} for case in map(json.loads, file)]


@pytest.fixture(scope="module")
def vocabulary(data_dir) -> fsa_compile.Vocabulary:
    return fsa_compile.load_tokenizer(data_dir / "tokenizers" / "llama3").vocabulary


@pytest.fixture(scope="module")
def constraint(vocabulary) -> fsa_compile.CompiledConstraint:
    return fsa_compile.compile_grammar(library.grammar_text("json"), vocabulary, **library.options("json"))


def accepted(constraint, tokens: list[int]) -> bool:
    walk = HostWalk(constraint)
    for token in tokens:
        try:
            walk.advance(token)
        except ValueError:
            return False
    return walk.accepting


@pytest.mark.parametrize("spelling", ["bytes", "random", "longest"])
def test_suite(spelling: str, cases, constraint, vocabulary) -> None:
    ids: dict[bytes, list[int]] = {}
    for token, data in enumerate(vocabulary.tokens):
        if data:
            ids.setdefault(data, []).append(token)
    rng, wrong = random.Random(5), []
    for case in cases:
        data = case["bytes"][: 3000 if case["name"] in DEEP else None]
        tokens = {
            "bytes": lambda data=data: [ids[bytes([b])][0] for b in data],
            "random": lambda data=data: random_tokens(data, ids, rng),
            "longest": lambda data=data: longest_tokens(data, ids),
        }[spelling]()
        expected = {"accept": True, "reject": False}.get(case["expect"], case["name"] in OPEN_ACCEPTED)
        if accepted(constraint, tokens) != expected:
            wrong.append((case["name"], case["expect"]))
    assert wrong == []
    assert {case["name"] for case in cases if case["expect"] == "either"} >= OPEN_ACCEPTED
    assert len(cases) > 300


def longest_tokens(data: bytes, ids: dict[bytes, list[int]]) -> list[int]:
    out, at = [], 0
    while at < len(data):
        n = next(n for n in range(min(128, len(data) - at), 0, -1) if data[at : at + n] in ids)
        out.append(ids[data[at : at + n]][0])
        at += n
    return out


def test_no_limit_of_depth(constraint, vocabulary) -> None:
    """500 brackets are no more than the stack makes them; the same walk under a limit refuses the first bracket beyond it."""
    ids = {data: token for token, data in enumerate(vocabulary.tokens) if data}
    walk = HostWalk(constraint, max_depth=20)
    while walk.allowed()[ids[b"["]]:
        walk.advance(ids[b"["])
    assert 10 < walk.num_tokens <= 20
    while not walk.accepting:
        walk.advance(ids[b"]"])
