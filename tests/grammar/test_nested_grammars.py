"""Grammars in grammars that nest without a bound, with text behind them: every mask is that of the same rules in one grammar."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest
from oracles.recursive_grammars import ALPHABET, recursive_grammar, vocabulary_for
from oracles.text_walks import takes

from fsa_compile import CompileLimits, Vocabulary, compile_grammar, compile_structured_outputs
from fsa_compile.errors import ConstraintError, LimitError

EVERY_BYTE = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])


def letters(text: str) -> list[int]:
    """Ids of a text's bytes."""
    return [byte + 1 for byte in text.encode()]


def random_nest(rng: random.Random, level: int = 0) -> tuple[str, str]:
    """The rules of a grammar with others inside, and the same without: their rules have names of their own."""
    text = recursive_grammar(rng)
    mine = re.sub(r"\b(start|a|b|c)\b", rf"g{level}_\1", text)
    if level == 2 or rng.random() < 0.2:
        return text, mine
    inner, flat = random_nest(rng, level + 1)
    before, behind = ("".join(rng.choices(ALPHABET.decode(), k=rng.choice([0, 1, 1, 2]))) for _ in range(2))
    value = "%lark {\n" + inner + "}"
    for place in rng.sample(["start", "a"], 1) if "\na:" in f"\n{text}" else ["start"]:
        around = f'"!{before}" VALUE "{behind}"' if behind else f'"!{before}" VALUE'  # no other alternative begins so
        text = re.sub(f"(?m)^{place}:", lambda m, around=around: f"{m[0]} {around.replace('VALUE', value)} |", text, count=1)
        mine = re.sub(f"(?m)^g{level}_{place}:", lambda m, around=around: f"{m[0]} {around.replace('VALUE', f'g{level + 1}_start')} |", mine, count=1)
    return text, f"{mine}\n{flat}"


def one_case(rng: random.Random) -> Counter:
    nested, flat = random_nest(rng)
    vocabulary = vocabulary_for(rng, ALPHABET + b"!", merges=rng.choice([0, 8, 20]))
    ours, why = None, ""
    try:
        ours = compile_grammar(nested, vocabulary, mode="characters")
    except ConstraintError as error:
        why = str(error)
    if ours is None:
        assert "so it cannot be told what it is" in why or "cannot spell" in why, (nested, why)
        return Counter(refused=1)
    try:
        judge = compile_grammar(flat, vocabulary, start="g0_start", mode="characters", limits=CompileLimits(max_seconds=8))
    except (ConstraintError, LimitError):
        return Counter(none=1)
    counts = Counter(made=1, nested=nested.count("%lark"))
    for _ in range(8):
        one, other = ours.walk(), judge.walk()
        for _ in range(rng.randint(1, 30)):
            allowed, wanted = np.asarray(one.allowed()), np.asarray(other.allowed())
            assert allowed.tolist() == wanted.tolist(), (nested, one)
            assert one.accepting == other.accepting, (nested, one)
            within = np.asarray(one.allowed(one.distance))
            assert one.accepting or within.any(), (nested, one)
            counts["checks"] += len(allowed)
            further = np.flatnonzero((within if rng.random() < 0.3 else allowed)[1:]).tolist()
            if not further:
                break
            token = rng.choice(further) + 1
            one.advance(token)
            other.advance(token)
    return counts


@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
def test_random_nests(tally):
    for rng in tally.cases(22, least=1_500):
        tally.update(one_case(rng))
    assert tally["made"] > 8
    assert tally["nested"] > tally["made"] / 2


@pytest.mark.parametrize(
    ("grammar", "fine", "wrong"),
    [
        ('start: "(" %lark { start: "[" start "]" | "a" } ")"', ["(a)", "([a])", "([[a]])"], ["([a)", "([a", "([a]"]),
        ('start: ("<" %lark { start: %json {"enum": [1, 12, "a"]} } ")")*', ["<1)<12)", '<"a")'], ["<1", "<11)"]),
        ('start: "(" %lark { start: "y" %lark { start: "x" | "{" start "}" } } "]" "."', ["(yx].", "(y{{x}}]."], ["(yx", "(y{x]."]),
        ('start: "(" %lark { start: "[" start "]" ("+" start)? | "a" } ")"', ["([a]+[a])", "([[a]+a])"], ["(a+a)", "([a]+)"]),
        ('start: "[" %lark { start: "[" start "]" | "a" } "]" "]"', ["[a]]", "[[a]]]"], ["[a]", "[[a]]"]),
    ],
)
def test_what_is_behind_nested_values(grammar, fine, wrong):
    for vocabulary in (EVERY_BYTE, Vocabulary.from_tokens([*EVERY_BYTE.tokens, b"])", b"}]", b"]].", b"])<", b"1)"], stop_ids=[0])):
        constraint = compile_grammar(grammar, vocabulary)
        assert [text for text in [*fine, *wrong] if takes(constraint, letters(text))] == fine


def test_a_value_that_goes_on_as_the_text_behind_it_is_refused():
    for inner in ('"[" start "]" ("+" start)? | "a"', '"[" start "]" | "a" "+"?'):
        with pytest.raises(ConstraintError, match=r"'\+' goes on with the value as well as with the text behind it"):
            compile_grammar(f'start: "(" %lark {{ start: {inner} }} "+" ")"', EVERY_BYTE)


def test_grammars_between_tags():
    """Structural tags put grammars before other text in the same way."""
    grammar = {"type": "grammar", "grammar": 'root ::= "[" root "]" | "a"'}
    tag = {"type": "tag", "begin": "<x>", "content": grammar, "end": "</x>"}
    row = {"type": "sequence", "elements": [grammar, {"type": "const_string", "value": "."}]}
    several = {"type": "tags_with_separator", "tags": [tag], "separator": ",", "at_least_one": True}
    for form, text in ((tag, "<x>[[a]]</x>"), (row, "[a]."), (several, "<x>a</x>,<x>[a]</x>")):
        constraint = compile_structured_outputs({"structural_tag": {"type": "structural_tag", "format": form}}, EVERY_BYTE)
        assert takes(constraint, letters(text)), form
        assert not takes(constraint, letters(text[:-1])), form
