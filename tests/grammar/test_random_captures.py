"""Captures of random grammars: with marks at their places, a text is one of the same grammar whose captured rules have marks around them."""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import regex
from grammar.test_random_values import Maker, vocabularies
from oracles.recursive_grammars import ALPHABET, recursive_grammar, vocabulary_for

from fsa_compile import Vocabulary, compile_grammar, parse_captures
from fsa_compile.errors import ConstraintError

_WORDS = [("/[abé]+/", "[abé]+"), ("/a+b?/", "a+b?"), ('"ab"', "ab"), ("/[12]{1,3}/", "[12]{1,3}"), ("/é|éa/", "(?:é|éa)")]


class CapturingMaker(Maker):
    """Makes rules of one lexeme and of many that are captured; in the pattern, marks stand around what they read."""

    def __init__(self, rng) -> None:
        super().__init__(rng)
        self.names: dict[str, int] = {}

    def captured(self, name: str, pattern: str) -> str:
        mark = 0xE000 + 2 * self.names.setdefault(name, len(self.names))
        return f"{chr(mark)}(?:{pattern}){chr(mark + 1)}"

    def leaf(self) -> tuple[str, str]:
        rng = self.rng
        if rng.random() < 0.5:
            text, pattern = super().leaf()
            return (text, pattern) if not text.startswith("r") else ('"b"', "b")
        self.options += 1
        rule, (text, pattern) = f"w{self.options}", rng.choice(_WORDS)
        name, option = rng.choice([(rule, "capture"), ("c0", 'capture="c0"'), (rule, "capture, temperature=0.5")])
        self.rules.append(f"{rule}[{option}]: {text}")
        return rule, self.captured(name, pattern)

    def part(self, depth: int) -> tuple[str, str]:
        if not depth or self.rng.random() > 0.25:
            return super().part(depth)
        text, pattern = super().part(depth - 1)
        self.options += 1
        self.rules.append(f"q{self.options}[capture]: {text}")
        return f"q{self.options}", self.captured(f"q{self.options}", pattern)


def marked(data: bytes, captures) -> str:
    """A text with marks around captures (start, end, number), of which outer ones come first."""
    out, last = "", 0
    for place in sorted({place for start, end, _ in captures for place in (start, end)}):
        out, last = out + data[last:place].decode(), place
        out += "".join(chr(0xE001 + 2 * number) for _, end, number in reversed(captures) if end == place)
        out += "".join(chr(0xE000 + 2 * number) for start, _, number in captures if start == place)
    return out + data[last:].decode()


def derived(constraint, rng) -> list[int]:
    """Ids of a random text."""
    walk, out = constraint.walk(), []
    for left in range(max(rng.choice([5, 15, 30]), walk.distance), 0, -1):
        found = [int(token) for token in np.flatnonzero(walk.allowed(max(left, walk.distance))) if token]
        if not found or (walk.accepting and rng.random() < 0.15):
            break
        out.append(rng.choice(found))
        walk.advance(out[-1], max(left, walk.distance))
    assert walk.accepting
    return out


def test_captures_lie_where_the_rules_may_have_read(tally):
    vocabulary, _ = vocabularies()
    for rng in tally.cases(40):
        maker, mode = CapturingMaker(rng), rng.choice(["characters", "longest"])
        text, pattern = maker.part(3)
        grammar = "\n".join([f"start: {text}", *maker.rules])
        if not maker.names:
            continue
        try:
            constraint = compile_grammar(grammar, vocabulary, mode=mode)
        except ConstraintError:
            continue
        tally["made"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judge = regex.compile(pattern, re.S)
        for _ in range(3):
            ids = derived(constraint, rng)
            data = b"".join(vocabulary.tokens[token] for token in ids)
            found = [(c.start, c.end, maker.names[n]) for n, cs in parse_captures(grammar, vocabulary, ids, mode=mode).items() for c in cs if n in maker.names]
            if any(start == end for start, end, _ in found) or not all(vocabulary.tokens[token] for token in ids):
                continue  # where an empty capture, or a special token, stands among marks at its place is not told
            found.sort(key=lambda c: (c[0], -c[1]))
            same = [list(group) for _, group in itertools.groupby(found, key=lambda c: c[:2])]
            orders = itertools.islice(itertools.product(*map(itertools.permutations, same)), 200)  # which of two at one place is the outer one
            assert any(judge.fullmatch(marked(data, [c for group in order for c in group])) for order in orders), (grammar, data, found)
            tally["checks"] += 1
    assert tally["checks"] > tally["made"]


def marked_rules(text: str, captured: list[str]) -> str:
    """A grammar whose captured rules have letters around them, a pair of its own for each."""
    for i, name in enumerate(captured):
        begin, end = chr(ord("A") + i), chr(ord("N") + i)
        text = re.sub(rf"(?m)^{name}: ((?:.*\n)(?:(?!\w+:).*\n)*)", rf'{name}: "{begin}" {name}_in "{end}"\n{name}_in: \1', text, count=1)
    return text


def with_letters(data: bytes, spans: list[tuple[int, int, int]]) -> str:
    """A text with these letters at the places of captures."""
    out = ""
    for place in range(len(data) + 1):
        out += "".join(chr(ord("N") + i) for _, end, i in sorted(spans, key=lambda span: -span[0]) if end == place)
        out += "".join(chr(ord("A") + i) for start, _, i in sorted(spans, key=lambda span: -span[1]) if start == place)
        out += data[place : place + 1].decode()
    return out


def test_captures_of_rules_that_nest_without_bound(tally):
    """Grammars that have one reading, some with another grammar as a captured value: the letters are where the rules put them."""
    letters = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])
    for rng in tally.cases(16):
        text, mode = recursive_grammar(rng), rng.choice(["characters", "longest"])
        names = re.findall(r"(?m)^(\w+):", text)
        captured = rng.sample(names, rng.randint(1, len(names)))
        if rng.random() < 0.3:
            text = text.replace("start:", 'start: "!" v ">" |', 1) + f"v: %lark {{\n{recursive_grammar(rng)}}}\n"
            captured.append("v")
        grammar = text
        for name in captured:
            grammar = re.sub(rf"(?m)^{name}:", f"{name}[capture]:", grammar, count=1)
        vocabulary = vocabulary_for(rng, ALPHABET + b"!", merges=rng.choice([0, 8]))
        try:
            constraint, judge = compile_grammar(grammar, vocabulary, mode=mode), compile_grammar(marked_rules(text, captured), letters, mode="characters")
        except ConstraintError:
            continue
        tally["made"] += 1
        for _ in range(3):
            ids = derived(constraint, rng)
            found = parse_captures(grammar, vocabulary, ids, mode=mode)
            spans = [(c.start, c.end, captured.index(name)) for name, several in found.items() for c in several]
            if any(start == end for start, end, _ in spans) or len({span[:2] for span in spans}) < len(spans):
                continue  # which of two at one place is the outer one is not told
            walk = judge.walk()
            for byte in with_letters(vocabulary.decode_bytes(ids), spans).encode():
                assert walk.allowed()[byte + 1], (grammar, ids, found)
                walk.advance(byte + 1)
            assert walk.accepting, (grammar, ids, found)
            tally["checks"] += 1
    assert tally["checks"] > tally["made"]
