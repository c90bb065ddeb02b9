"""Structural tags over special tokens, against `regex`, in which special tokens are letters of a private plane."""

from __future__ import annotations

import random

import numpy as np
import pytest
import regex

from fsa_compile import FormatError, Vocabulary, compile_response_format

_NAMES = ["<call>", "</call>", "<think>", "<eos>"]
_SHORT = [b"a", b"b", b"c", b"{", b"}", b'"', b":", b"1", b"ab", b'{"', b'":', b"\n"]
_TOKENS = [*_SHORT, *(bytes([byte]) for byte in range(256) if bytes([byte]) not in _SHORT)]
VOCABULARY = Vocabulary.from_tokens(
    [*_TOKENS, *[b""] * len(_NAMES)], special={name: len(_TOKENS) + i for i, name in enumerate(_NAMES)}, stop_ids=[len(_TOKENS) + 3]
)
_LETTERS = {len(_TOKENS) + i: chr(0xF0000 + i) for i in range(3)}
CALL, END, THINK = (chr(0xF0000 + i) for i in range(3))
_TEXT = r"[^\U000F0000-\U000FFFFF]"


def token(name):
    return {"type": "token", "token": name}


TAG = {"type": "tag", "begin": token("<call>"), "content": {"type": "json_schema", "json_schema": {"const": 1}}, "end": token("</call>")}
CASES = {
    "a token": (token("<think>"), THINK),
    "a token by its id": (token(len(_TOKENS) + 2), THINK),
    "a tag": (TAG, f"{CALL}1{END}"),
    "free text in a tag": ({**TAG, "content": {"type": "any_text"}}, f"(?s:{CALL}{_TEXT}*{END})"),
    "a text's begin": ({**TAG, "begin": "a"}, f"a1{END}"),
    "a text's end": ({**TAG, "content": {"type": "any_text"}, "end": "b"}, f"(?s:{CALL}(?:(?!b){_TEXT})*b)"),
    "a grammar": ({**TAG, "content": {"type": "grammar", "grammar": 'start: "(" start ")" | "a"'}}, f"{CALL}(?P<g>\\((?&g)\\)|a){END}"),
    "any tokens": ({"type": "any_tokens"}, f"(?s:(?:{_TEXT}|[{CALL}{END}{THINK}])*)"),
    "but for some": ({"type": "any_tokens", "exclude_tokens": ["<call>"]}, f"(?s:(?:{_TEXT}|[{END}{THINK}])*)"),
    "any tokens in a tag": (
        {**TAG, "content": {"type": "any_tokens", "exclude_tokens": ["</call>"]}}, f"(?s:{CALL}(?:{_TEXT}|[{CALL}{THINK}])*{END})"
    ),
    "triggered": ({"type": "token_triggered_tags", "trigger_tokens": ["<call>"], "tags": [TAG]}, f"(?s:{_TEXT}*(?:{CALL}1{END}{_TEXT}*)*)"),
    "triggered once": (
        {"type": "token_triggered_tags", "trigger_tokens": ["<call>"], "tags": [TAG], "at_least_one": True, "stop_after_first": True},
        f"{CALL}1{END}",
    ),
    "a sequence": (
        {"type": "sequence", "elements": [token("<think>"), {"type": "any_text", "max_chars": 3}, TAG]}, f"(?s:{THINK}{_TEXT}{{0,3}}{CALL}1{END})"
    ),
    "few characters, then an end": (
        {"type": "tag", "begin": "a", "content": {"type": "any_text", "max_chars": 2}, "end": ["bb", "c"]},
        f"(?s:a(?:(?!.*(?:bb|c).+$){_TEXT}{{0,2}}(?:bb|c)))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_masks_are_those_of_partial_matches(name, exhaustive):
    given, pattern = CASES[name]
    constraint = compile_response_format({"type": "structural_tag", "format": given}, VOCABULARY)
    compiled = regex.compile(pattern)
    written = {i: piece.decode() for i, piece in enumerate(_SHORT)} | _LETTERS
    lookahead = "(?!.*" in pattern
    rng = random.Random(name)
    for _ in range(100 if exhaustive else 10):
        walk, text = constraint.walk(), ""
        for _ in range(12):
            allowed = walk.allowed()
            assert allowed[len(_TOKENS) + 3] == (compiled.fullmatch(text) is not None), text
            for i, more in written.items():
                if lookahead:  # what comes later decides
                    continue
                assert allowed[i] == (compiled.fullmatch(text + more, partial=True) is not None), (text, more)
            choices = [int(i) for i in np.flatnonzero(allowed) if i in written]
            if not choices:
                break
            choice = rng.choice([i for i in choices if i in _LETTERS] or choices) if rng.random() < 0.5 else rng.choice(choices)
            walk.advance(choice)
            text += written[choice]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (token("<nothing>"), "no special token '<nothing>'"),
        (token("<eos>"), "ends a text in this vocabulary"),
        (token(0), "may be written in other tokens"),
        ({"type": "exclude_token", "exclude_tokens": ["<eos>"]}, "not supported"),
        ({"type": "triggered_tags", "triggers": ["a"], "tags": [TAG]}, "a text triggers no special token"),
        ({"type": "token_triggered_tags", "trigger_tokens": ["<think>"], "tags": [TAG]}, "none of the trigger tokens"),
        ({**TAG, "begin": {"type": "regex", "token": "a"}}, "no mark of a tag"),
        ({"type": "any_text", "max_chars": 5_000}, "whole number from 0 to 4,096"),
    ],
)
def test_what_is_no_token_of_its_own_is_refused(given, message):
    with pytest.raises(FormatError, match=message):
        compile_response_format({"type": "structural_tag", "format": given}, VOCABULARY)
