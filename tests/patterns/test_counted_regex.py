"""Patterns with large repetitions: the counted machine's language is that of the pattern written out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.counting import language_difference, mask_differences
from oracles.samples import examples

from fsa_compile import compile_regex, load_tokenizer, regex
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.artifact_checks import check_contents
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.compose import compose
from fsa_compile.errors import UnsatisfiableError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.counting.counted_regex import counted_machine
from fsa_compile.patterns.python_syntax import parse
from fsa_compile.vocabulary import Vocabulary

LIMITS = CompileLimits()


def machine_of(pattern: str, flags: int = 0, large: int | None = None) -> ByteMachine | None:
    options = {} if large is None else {"large": large}
    return counted_machine(parse(pattern, flags, LIMITS), LIMITS, Deadline(LIMITS), **options)


COUNTED = [
    r".{0,9}",
    r"(.|\n){0,12}",
    r"[a-zA-Z0-9 ]{1,15}",
    r".{11}",
    r"(?s).{8,}",
    r"a{0,9}b",
    r'"[^"]{2,9}"',
    r'"[^"]{9}"',
    r"a{1,9}b{1,9}",
    r"(?:a{1,9}b{1,9}){2,8}",
    r"(?:[a-c]{1,8},){2,9}",
    r"(?:[a-c]{1,8},){9}",
    r"(?:\w+ ){0,9}",
    r"(?:[aé]{1,8} ){1,8}",
    r"[^“”]{0,9}”",
    r"“[^“”]{9}”",
    r"(?:“[^“”]{2,9}”)+",
    r"(?:[^„“]{2,9}“){1,3}",
    r"(?:é|è{9}x){9}",
    r"(?:é|è{9}x){3,9}ê",
    r"(?:é{8}|è){1,9}",
    r"(?:[^。、]{1,9}(?:。|、é))*",
    r"[é]{0,9}è",
    r"[é]{9}è",
    r"(?:é{8}x|è{9}y|ê)é?",
    r"(?:é{8}|è{9}y){9}",
    r"(?:[é-ü]{8}|è?è{9}y){9}",
    r"[^😀]{3,9}😀",
    r"(?i)(?:ab|Ks){1,9}!?",
    r"a{9,}",
    r"a{9,}b",
    r"(?:ab){8,}c?",
    r"(?:a|bc{9}d){8}e",
    r"(?:a|bc{0,9}d){8}e",
    r"(?:a?){9}",
    r"(?:a?b?c){9}",
    r"(?:(?:a{8}|b){8}c){8}",
    r"x(?:y{9}|z){8}",
    r"(?:x{9}y)?(?:z{9}w)*",
    r"^a{2,9}$",
    r"[é-ü]{1,9}[a-z]",
    r"(?:é{8}|è){8}",
    r"(?:[^\n]|\n\n){9}",
    r"(?:a{8}b{8}){8}",
    r"(?:a{8}){8}",
    r"(?:(?:a{8}){8}){8}",
    r"(?:😀|é|a){10}",
    r"[^a]{8}é",
    r"(?>a{9})b",
]
"""Patterns that can be counted; with `large=2` all their repetitions of 8 or more are."""

WRITTEN_OUT = [
    r".{0,9}x",
    r"(?:a|ab?b|b){9}",
    r"(?:a*b?){9}",
    r"(?:a{1,9}){9}",
    r"a{0,9}a{0,9}",
    r"(?:ab{9}|ab{8})",
    r"(?:a{9}b|a{9}c)",
    r"(?:a+){9}",
    r"(?=a)a{9}",
    r"\ba{9}\b",
    r"a{7}",
    r"abc",
    r"(?:a{9})*a",
    r"(?:é{0,9}è){0,9}ê{0,9}" + "(?=)",
]
"""Patterns in which nothing can be counted."""


@pytest.mark.sampled(20)
@pytest.mark.parametrize("pattern", COUNTED)
def test_equals_the_pattern_written_out(pattern: str) -> None:
    machine = machine_of(pattern, large=2)
    assert machine is not None
    assert machine.bounds[:, 1].max() >= 8
    assert language_difference(regex(pattern).to_byte_dfa(), machine) is None


@pytest.mark.parametrize("pattern", WRITTEN_OUT)
def test_what_is_not_counted(pattern: str) -> None:
    assert machine_of(pattern, large=2) is None


CHARACTERS = st.sampled_from(["a", "b", "c", "é", "è", "[ab]", "[^a]", ".", r"\w", "[à-ý]", "ab", "aé", "€"])
BOUNDS = st.sampled_from(["{8}", "{0,8}", "{1,9}", "{3,8}", "{8,}", "?", "*", "+", "{2}", "{0,2}"])
PATTERNS = st.recursive(
    CHARACTERS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, BOUNDS).map(lambda two: f"(?:{two[0]}){two[1]}"),
    ),
    max_leaves=5,
)


@settings(max_examples=examples(80, 2_000), deadline=None)
@given(PATTERNS)
def test_random_patterns(pattern: str) -> None:
    machine = machine_of(pattern, large=2)
    if machine is None:
        return
    try:
        written_out = regex(pattern).to_byte_dfa()
    except UnsatisfiableError:
        pytest.fail("a counted machine has members")
    if written_out.num_states < 3_000:
        assert language_difference(written_out, machine) is None


BOUNDARIES = [
    (r".{0,65535}", "aé€😀", 65535),
    (r"(.|\n){0,200}", "\né😀", 200),
    (r"[a-zA-Z0-9 ]{1,500}", "a 9", 500),
    (r"(?:\w+ ){0,500}", ["a ", "ñandú ", "日本 "], 500),
    (r"(?:[a-z]{1,300},){2,900}", ["a" * 300 + ",", "b,"], 900),
    (r"[\w ]{700}", "é日 ", 700),
]


@pytest.mark.parametrize(("pattern", "items", "n"), BOUNDARIES)
def test_boundary_counts(pattern: str, items: str | list[str], n: int) -> None:
    machine = machine_of(pattern)
    assert machine is not None
    for count in (0, 1, 2, n - 1, n, n + 1):
        text = "".join(items[i % len(items)] for i in range(count))
        assert machine.accepts(text.encode()) == bool(re.fullmatch(pattern, text)), count


def test_small_bounds_stay_states() -> None:
    assert machine_of(r"[a-z]{1,60}") is None
    assert machine_of(r"[a-z]{1,70}") is not None


def test_only_what_is_ambiguous_is_written_out() -> None:
    machine = machine_of(r"[a-y]{0,100}y[0-9]{0,5000}\n")
    assert machine is not None
    assert 100 < machine.num_controls < 500
    assert machine.bounds[:, 1].max() == 5000
    assert machine.accepts(b"aay" * 3 + b"7" * 5000 + b"\n")
    assert not machine.accepts(b"aay" + b"7" * 5001 + b"\n")
    assert not machine.accepts(b"a" * 101 + b"y\n")


PIECES = [
    "aa",
    "ab",
    "abc",
    "a" * 9,
    "b,",
    ", ",
    "a,b",
    "é",
    "éé",
    "aé",
    "é,",
    "€",
    "a€",
    "x9 ",
    " x",
    "aaa ",
    "\n\n",
    '"',
    'a"',
    '",',
]
TOY = Vocabulary.from_tokens(
    [bytes((b,)) for b in range(256)]
    + [piece.encode() for piece in PIECES]
    + ["é€".encode()[1:], "a€".encode()[:2], "é€".encode()[1:4], b""],
    stop_ids=[256 + len(PIECES) + 3],
)

COMPILED = [
    r".{0,70}",
    r"(.|\n){0,90}",
    r"[a-zA-Z0-9 ]{1,75}",
    r"[a-c]{80}",
    r"[a-cé€]{66,83}",
    r"[a-é]{100}",
    r"[a-z]{90,}",
    r"(?:\w+ ){0,80}",
    r"(?:\w+ ){70}",
    r"(?:ab?c?,){66,70}",
    r'"[^"]{0,80}"',
    r'"[^"]{70,80}",?',
    r"a{1,70}b{1,90}",
    r"(?:[a-c]{1,70},){2,80}",
    r"(?:[ab]{70},){66,}",
    r"x[^\n]{0,70}\n\n",
]


def budget_failure(constraint: CompiledConstraint, rng: np.random.Generator, texts: int) -> str | None:
    """Random texts under random budgets: each must end in time, whatever is chosen."""
    for _ in range(texts):
        walk = constraint.walk()
        remaining = walk.distance + int(rng.integers(0, 5))
        taken: list[int] = []
        while not walk.accepting or (remaining and rng.random() < 0.9):
            mask = walk.allowed(remaining)
            mask[list(constraint.stop_ids)] = False
            choices = np.flatnonzero(mask)
            if not len(choices) or not remaining:
                if walk.accepting:
                    break
                return f"after {taken} no token with {remaining} left"
            taken.append(int(rng.choice(choices)))
            walk.advance(taken[-1])
            remaining -= 1
    return None


@pytest.mark.sampled(10)
@pytest.mark.parametrize("pattern", COMPILED)
def test_compiled(pattern: str, tmp_path: Path, exhaustive: bool) -> None:
    rng = np.random.default_rng(1)
    constraint = compile_regex(pattern, TOY)
    machine = machine_of(pattern)
    assert machine is not None
    assert constraint.ladder.any()
    check_contents(constraint, tmp_path)
    checked, wrong = mask_differences(constraint, machine, TOY.tokens, rng, walks=8 if exhaustive else 4, length=120, eager=0.8)
    assert checked > 10_000
    assert not wrong
    assert budget_failure(constraint, rng, 6) is None
    written_out = compose(regex(pattern).to_byte_dfa(), TOY, source=pattern)
    assert written_out.shortest_completion <= constraint.shortest_completion
    if not machine.num_symbols:
        assert constraint.shortest_completion <= written_out.shortest_completion + 2
    walks = constraint.walk(), written_out.walk()
    for _ in range(100):
        masks = [walk.allowed() for walk in walks]
        assert (masks[0] == masks[1]).all()
        choices = np.flatnonzero(masks[0][:-1])
        if not len(choices):
            break
        token = int(rng.choice(choices))
        for walk in walks:
            walk.advance(token)


def test_incomplete_vocabulary_writes_out() -> None:
    vocabulary = Vocabulary.from_tokens([b"aa", b""], stop_ids=[1])
    constraint = compile_regex("a{70,71}", vocabulary)
    walk = constraint.walk()
    for _ in range(35):
        assert walk.allowed().tolist() == [True, False]
        walk.advance(0)
    assert walk.allowed().tolist() == [False, True]


REAL = [
    (r".{0,65535}", 5_000_000),
    (r"(.|\n){0,200}", 5_000_000),
    (r"[a-zA-Z0-9 ]{1,500}", 3_000_000),
    (r"[^\n]{300,}", 10_000_000),
    (r"(?:[a-z]{1,9} ){0,500}", 3_000_000),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("pattern", "size"), REAL)
def test_real_vocabulary(pattern: str, size: int, data_dir: Path, exhaustive: bool) -> None:
    vocabulary = load_tokenizer(data_dir / "tokenizers" / "llama3" / "tokenizer.model").vocabulary
    constraint, machine = compile_regex(pattern, vocabulary), machine_of(pattern)
    assert machine is not None
    assert constraint.nbytes < size
    rng = np.random.default_rng(2)
    checked, wrong = mask_differences(constraint, machine, vocabulary.tokens, rng, walks=1, length=12 if exhaustive else 5)
    assert checked > 300_000
    assert not wrong
    assert budget_failure(constraint, rng, 2) is None
