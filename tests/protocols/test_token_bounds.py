"""Thoughts of so many tokens: every mask along random walks against a count of tokens and Python's UTF-8 decoder."""

from __future__ import annotations

import codecs
import random

import numpy as np
import pytest
from protocols.turns import ids_of, names_of, refused_at, small_vocabulary

from fsa_compile import PROTOCOLS, Vocabulary, compile_response, compile_response_format, filters
from fsa_compile.errors import ConstraintError
from fsa_compile.formats.request import FormatError

WIDE = [b"ab", b"he", b"\xc3", b"\xa9", "é".encode(), "é".encode() + b"\xf0", b"\x9f\x98", b"\x98\x80", b"\x9f\x98\x80a", b"ab\n",
        b"x\xe2", b"\x82\xac", b"\x80\xf0\x9f"]  # fmt: skip
"""Tokens that end or begin within characters."""


def split_vocabulary(name: str = "gemma4") -> Vocabulary:
    """A token for every byte, and some that cut characters in two."""
    tokens = [*(bytes([byte]) for byte in range(256)), *WIDE]
    protocol = PROTOCOLS[name]
    ids = {name: len(tokens) + place for place, name in enumerate(names_of(protocol))}
    stops = [ids[name] for name in protocol.stops]
    return Vocabulary.from_tokens([*tokens, *[b""] * len(ids)], special=ids, stop_ids=stops)


def open_bytes(text: bytes) -> bytes | None:
    """The bytes of a character that a text leaves open; None where no text begins so."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(text)
    except UnicodeDecodeError:
        return None
    return decoder.getstate()[0]


class Counted:
    """What may follow in a thought, told by counting."""

    def __init__(self, vocabulary: Vocabulary, most: int) -> None:
        self.known: dict[bytes, int] = {}
        self.most, self.tokens = most, {i: data for i, data in enumerate(vocabulary.tokens) if data}

    def fewest(self, rest: bytes) -> int:
        """Tokens that complete an open character."""
        if rest in self.known:
            return self.known[rest]
        level, count = {rest}, 0
        while b"" not in level:
            level = {after for held in level for data in self.tokens.values() if (after := open_bytes(held + data)) is not None}
            count += 1
        self.known[rest] = count
        return count

    def allowed(self, read: int, rest: bytes) -> set[int]:
        """Ids after so many tokens, the last of which left a character open."""
        after = {i: open_bytes(rest + data) for i, data in self.tokens.items()}
        return {i for i, held in after.items() if held is not None and read + 1 + self.fewest(held) <= self.most}


def weather(city: str, days: int = 1) -> str:
    """The weather."""
    return f"{city} {days}"


@pytest.mark.parametrize("tools", [None, [weather]], ids=["answer", "tools"])
@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 300])
def test_masks_within_a_thought_are_those_of_a_count(most, tools):
    vocabulary = split_vocabulary()
    asked = {"protocol": "gemma4", "response": "ok", "reasoning": "required", "tools": tools}
    constraint = compile_response(vocabulary, max_reasoning_tokens=most, **asked)
    begin = ids_of("<|channel>thought\n", vocabulary)
    end, counted = vocabulary.special["<channel|>"], Counted(vocabulary, most)
    rng = random.Random(most)
    often = [i for i, data in enumerate(vocabulary.tokens) if data in WIDE]
    for _ in range(12):
        walk, read, rest = constraint.walk(), 0, b""
        for token in begin:
            walk.advance(token)
        while True:
            allowed = counted.allowed(read, rest)
            expected = allowed | ({end} if not rest else set())
            assert set(np.flatnonzero(walk.allowed()).tolist()) == expected, (read, rest)
            assert walk.distance == counted.fewest(rest) + 3  # the end of the thought, then "o" and "k"
            assert set(np.flatnonzero(walk.allowed(walk.distance + 4)).tolist()) == expected
            if not allowed or (read > 8 and read < most - 3 and not rest and rng.random() < 0.2):
                break
            chosen = sorted(allowed.intersection(often)) if rng.random() < 0.7 else sorted(allowed)
            token = rng.choice(chosen or sorted(allowed))
            rest, read = open_bytes(rest + vocabulary.tokens[token]), read + 1
            walk.advance(token)
        if rest:
            continue
        for token in [end, *ids_of("ok", vocabulary)]:
            assert walk.allowed()[token]
            walk.advance(token)
        assert walk.accepting


def test_a_bound_on_tokens_beside_tools_and_text():
    """The count begins with the thought, whatever stands around it; other parts are not counted."""
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)
    constraint = compile_response(vocabulary, protocol="qwen3", tools=[weather], max_reasoning_tokens=5)
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "A long name of a city", "days": 12}}\n</tool_call>'
    for thought, right in (("\nabc\n", True), ("\nabcd\n", False), ("", True), ("abcde", True), ("abcdef", False)):
        for rest in (call, "Text of more than five tokens."):
            ids = ids_of(f"<think>{thought}</think>\n\n{rest}", vocabulary)
            assert (refused_at(constraint, ids) is None) == right, (thought, rest)
    one = [vocabulary.special["<think>"], *[vocabulary.tokens.index(b"he")] * 5, vocabulary.special["</think>"], *b"\n\nyes"]
    assert refused_at(constraint, one) is None
    assert refused_at(constraint, [one[0], one[1], *one[1:]]) == 6
    begun = compile_response(vocabulary, protocol="qwen3", reasoning="begun", max_reasoning_tokens=5)
    assert refused_at(begun, one[1:]) is None
    assert refused_at(begun, [one[1], *one[1:]]) == 5


def test_limits_count_the_rest_of_a_thought():
    """Under a limit of tokens a thought ends in time, within its own bound."""
    vocabulary = split_vocabulary()
    constraint = compile_response(vocabulary, protocol="gemma4", response="ok", reasoning="required", max_reasoning_tokens=20)
    rng = random.Random(0)
    for limit in (constraint.shortest_completion, 24, 30, 60):
        walk, taken = constraint.walk(), 0
        while not walk.accepting:
            ids = np.flatnonzero(walk.allowed(max_tokens := limit - taken))
            assert len(ids), (limit, taken, max_tokens)
            walk.advance(int(rng.choice(ids.tolist())))
            taken += 1
        assert taken <= limit


def test_structural_tags_count_tokens():
    vocabulary = split_vocabulary("qwen3")
    free = {"type": "any_text", "max_tokens": 3}
    begin, end = ({"type": "token", "token": name} for name in ("<think>", "</think>"))
    tag = {"type": "tag", "begin": begin, "content": free, "end": end}
    form = {"type": "structural_tag", "format": {"type": "sequence", "elements": [tag, {"type": "const_string", "value": "ok"}]}}
    constraint = compile_response_format(form, vocabulary)
    for thought, right in (("", True), ("abc", True), ("abcd", False)):
        assert (refused_at(constraint, ids_of(f"<think>{thought}</think>ok", vocabulary)) is None) == right
    whole = compile_response_format({"type": "structural_tag", "format": free}, vocabulary)  # the end of the text ends it, too
    assert refused_at(whole, list(b"abc")) is None
    assert refused_at(whole, list(b"abcd")) == 3
    assert refused_at(whole, []) is None
    for content in (free, {**free, "excludes": ["o"]}):
        bad = {"type": "sequence", "elements": [content, {"type": "const_string", "value": "ok"}]}
        with pytest.raises(FormatError, match="ends only with a special token"):
            compile_response_format({"type": "structural_tag", "format": bad}, vocabulary)
    with pytest.raises(FormatError, match="only up to a special token"):
        compile_response_format({"type": "structural_tag", "format": {**tag, "end": "</done>"}}, vocabulary)


def test_what_cannot_be_counted_is_refused():
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)
    for more, error in (
        ({"canonical": True}, "without canonical"), ({"filters": [filters.forbid("red")]}, "without canonical"),
        ({"max_reasoning_chars": 3}, "by characters and by tokens"), ({"max_reasoning_tokens": -1}, "whole number of tokens"),
    ):  # fmt: skip
        with pytest.raises(ConstraintError, match=error):
            compile_response(vocabulary, protocol="qwen3", **{"max_reasoning_tokens": 7, **more})
    plain = small_vocabulary(PROTOCOLS["qwen3"], special=False)
    with pytest.raises(FormatError, match="is text in this vocabulary"):
        compile_response(plain, protocol="qwen3", max_reasoning_tokens=10)
    few = Vocabulary.from_tokens([b"a", b"", b"", b""], special={"<think>": 1, "</think>": 2}, stop_ids=[3])
    with pytest.raises(FormatError, match="every byte has a token"):
        compile_response(few, protocol="qwen3", max_reasoning_tokens=10)
