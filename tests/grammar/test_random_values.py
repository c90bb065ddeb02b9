"""Random grammars of values, other grammars, bounds, captures, temperatures and special tokens inside one another: every mask and
every distance to the end against the same language as one pattern, whose special tokens are letters."""

from __future__ import annotations

import json
import random
import re
import warnings
from collections import Counter

import numpy as np

from fsa_compile import Vocabulary, compile_grammar, compile_regex
from fsa_compile.errors import ConstraintError

SPECIALS = {"<|x|>": "\x01", "<|y|>": "\x02"}
JOINED = ["ab", "a<", "<a", ">;", "12", '"a', 'a"', '"a"', "é,", "1,", "]]", "a,b", "(a", "),", "b>", " a", "é<", ",,"]
PLAIN = [*(bytes([b]) for b in b'<>()[]{},;:"12ab -'), b"\xc3", b"\xa9", *(text.encode() for text in JOINED)]
VALUES = [("enum", [1, 12, "a"]), ("enum", ["a", "ab", None]), ("const", ["é"]), ("enum", [[[1]], [], -2])]


class Maker:
    """Makes rules; a part is its text in the grammar and its pattern."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.rules, self.options = rng, list[str](), 0

    def leaf(self) -> tuple[str, str]:
        rng = self.rng
        kind = rng.randrange(9)
        if kind < 2:
            text = rng.choice(["a", "b", "<", ">", ";", ",", "(", "é", "ab"])
            return json.dumps(text, ensure_ascii=False), re.escape(text)
        if kind == 2:
            name = rng.choice(list(SPECIALS))
            return name, SPECIALS[name]
        if kind == 3:
            keyword, values = rng.choice(VALUES)
            texts = [json.dumps(v, ensure_ascii=False) for v in (values if keyword == "enum" else [values])]
            return f"%json {json.dumps({keyword: values})}", f"(?:{'|'.join(map(re.escape, texts))})"
        if kind == 4:
            inner, pattern = rng.choice([('"a" "b"?', "ab?"), ('"(" x? ")"\n x: "1" | "[" "]"', r"\((?:1|\[\])?\)"), ("/[ab]/ (/,/ /[ab]/)*", "[ab](?:,[ab])*")])
            return f"%lark {{ start: {inner} }}", pattern
        if kind == 5:
            return '%regex {"substring_chunks": ["a", "é", "1"]}', "(?:a|é|1|aé|é1|aé1)?"
        self.options += 1
        high = rng.randint(1, 4)
        option, pattern = rng.choice([(f"max_chars={high}", f"[abé]{{1,{high}}}"), ("capture", "[abé]+"), ("temperature=0.5", "[abé]+"), (f"capture, max_chars={high}", f"[abé]{{1,{high}}}")])
        self.rules.append(f"r{self.options}[{option}]: /[abé]+/")
        return f"r{self.options}", pattern

    def part(self, depth: int) -> tuple[str, str]:
        rng = self.rng
        if not depth or rng.random() < 0.25:
            return self.leaf()
        parts = [self.part(depth - 1) for _ in range(rng.randint(1, 3))]
        kind = rng.randrange(6)
        if kind < 2:
            return " ".join(text for text, _ in parts), "".join(pattern for _, pattern in parts)
        if kind == 2:
            return f"({' | '.join(text for text, _ in parts)})", f"(?:{'|'.join(pattern for _, pattern in parts)})"
        text, pattern = parts[0]
        if kind == 3:
            low = rng.randint(0, 2)
            high = low + rng.randint(1, 3)
            return f"({text})~{low}..{high}", f"(?:{pattern}){{{low},{high}}}"
        open_, close, sign = rng.choice("<(["), rng.choice(">)]"), rng.choice("*+?")
        return f'("{open_}" {text} "{close}"){sign}', f"(?:{re.escape(open_)}{pattern}{re.escape(close)}){sign}"

    def grammar(self) -> tuple[str, str]:
        text, pattern = self.part(3)
        return "\n".join([f"start: {text}", *self.rules]), pattern


def vocabularies() -> tuple[Vocabulary, Vocabulary]:
    """One with special tokens, and one with letters in their place."""
    special = {name: 1 + len(PLAIN) + i for i, name in enumerate(SPECIALS)}
    return (
        Vocabulary.from_tokens([b"", *PLAIN, b"", b""], stop_ids=[0], special=special),
        Vocabulary.from_tokens([b"", *PLAIN, b"\x01", b"\x02"], stop_ids=[0]),
    )


def one_case(rng: random.Random) -> Counter:
    """A grammar, and walks over it and over its pattern."""
    grammar, pattern = Maker(rng).grammar()
    ours, plain = vocabularies()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            constraint, judge = compile_grammar(grammar, ours, mode="characters"), compile_regex(pattern, plain)
        except ConstraintError as error:
            return Counter({"refused": 1, f"refused {type(error).__name__}": 1})
    counts = Counter(made=1)
    for _ in range(6):
        one, other = constraint.walk(), judge.walk()
        for _ in range(rng.randint(1, 25)):
            allowed, wanted = (np.asarray(walk.allowed()) for walk in (one, other))
            assert allowed.tolist() == wanted.tolist(), (grammar, pattern, one)
            assert one.distance >= other.distance  # with a stack, that many are enough, but fewer may be
            assert one.accepting == other.accepting
            remaining = rng.randint(one.distance, one.distance + 3)
            limited = [np.asarray(walk.allowed(remaining)) for walk in (one, other)]
            assert limited[0].any(), (grammar, one, remaining)
            assert not (limited[0] & ~limited[1]).any(), (grammar, pattern, one, remaining)
            counts.update(masks=1, checks=2 * len(allowed))
            further = np.flatnonzero(allowed[1:]).tolist()
            if not further:
                break
            token = rng.choice(further) + 1
            one.advance(token)
            other.advance(token)
    return counts


def test_random_values(tally):
    for rng in tally.cases(30, least=1_000):
        tally.update(one_case(rng))
    assert tally["made"] > tally["refused"] / 2
