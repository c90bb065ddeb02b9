"""Plain scalars: what the automata take, PyYAML reads as exactly that string, wherever it stands."""

from __future__ import annotations

import random

import pytest
import yaml

from fsa_compile.yaml_schema.plain_scalars import NUMERIC_KEY, other_keys, plain_text

LETTERS = "aA0123456789-+._:;#?,[]{}!&*|>'\"%@`~<=eExobTZ tnuylrs\té\xa0\u2028\ufeff"
AMBIGUOUS = [
    "null", "Null", "~", "true", "Yes", "no", "on", "OFF", "y", "N", "2020-01-01", "2020-01-01T00:00:00Z", "2001-12-14 21:59:43.10 -5",
    "1:30", "190:20:30.15", "08:00.5", "-_", "0x1f", "0o7", "017", "0b1_0", "1_000", "1e5", "1.5e+3", ".5", "1.", "-.5", "+1", ".inf", "-.INF", ".NaN",
    "<<", "=", "---", "--- a", "...", "",
    "1,000", "-1,0.5", "08:00", "nULL", "tRUE", "oN", ":a", ":-)", "0X1F", "0B1", "0O7", "2020-1-1", "-2020-01-01", "2020-1-1 5:4:3", ".", "-.", ".e1", "e1", "+E-2", ".Inf",
]  # fmt: skip
PLAIN = [
    "7727-37-9", "a", "a b", "a  b", "a:b", "http://x.org/?q=1", "12 Main St", "10.0.0.1", "3f25-04e0", "2020-01", "1.2.3", "trues", "-a", "x#y", "é", "A&B", "a-", "(a)", "e1a", "1,a", ".a", "0X", "2020-1-",
]  # fmt: skip
PLACES = {
    "block": ("k: {}\n", lambda v: v["k"]),
    "item": ("- {}\n", lambda v: v[0]),
    "root": ("{}\n", lambda v: v),
    "key": ("{}: 1\n", lambda v: v == {(k := next(iter(v))): 1} and k),
    "flow": ("[x, {}, z]", lambda v: len(v) == 3 and v[1]),
    "flow key": ("{{{}: 1}}", lambda v: v == {(k := next(iter(v))): 1} and k),
}


def taken(text: str, place: str) -> bool:
    return bool(plain_text("flow" if place.startswith("flow") else "block", key="key" in place).label(text))


def means_itself(text: str, place: str) -> bool:
    pattern, get = PLACES[place]
    try:
        found = get(yaml.safe_load(pattern.format(text)))
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError, StopIteration):
        return False
    return isinstance(found, str) and found == text


@pytest.mark.parametrize("place", PLACES)
def test_what_is_taken_means_itself(place, exhaustive):
    rng = random.Random(place)
    words = AMBIGUOUS + PLAIN
    count = 0
    for i in range(30_000 if exhaustive else 1_500):
        text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 6)))
        if i % 4 == 0:
            at = rng.randint(0, 4)
            word = rng.choice(words)
            text = word[:at] + rng.choice(["", rng.choice(LETTERS)]) + word[at:]
        if taken(text, place):
            count += 1
            assert means_itself(text, place), text
    assert count > 300


def test_ambiguous_texts_are_left_to_quotes():
    assert [text for text in AMBIGUOUS if any(taken(text, place) for place in PLACES)] == []


def test_ordinary_texts_are_plain():
    assert [text for text in PLAIN if not taken(text, "block")] == []
    assert not taken("-a", "key"), "a key that begins with a dash is told from the items of a list too late"
    for text in ("a, b", "a[0]", "{x", "what?"):
        assert not taken(text, "flow")
    assert taken("a, b", "block")
    assert taken("a[0]", "key")


def test_texts_that_pyyaml_writes_plain_are_plain():
    """Of random words and phrases, all that PyYAML writes without quotes are taken, but for a known few."""
    rng = random.Random(2)
    for _ in range(800):
        text = "".join(rng.choice("abcXYZ019 -_./:,()@#é") for _ in range(rng.randint(1, 12)))
        if yaml.safe_dump({"k": text}, allow_unicode=True, width=1000) == f"k: {text}\n" and not taken(text, "block"):
            assert text[0] in "0123456789.+-:" or text in "yYnN", text


def test_keys_without_a_name():
    quoted, plain = other_keys(12, numeric=False), other_keys(12, numeric=True)
    for n in (0, 12, 13):
        assert bool(quoted.label("a" * n)) == bool(plain.label("a" * n)) == (n <= 12)
        assert bool(quoted.label("1" * n)) == (n <= 12)
    for n in (NUMERIC_KEY, NUMERIC_KEY + 1):
        assert bool(plain.label("1" * n)) == (n <= NUMERIC_KEY)
    assert not quoted.label("a\nb")
