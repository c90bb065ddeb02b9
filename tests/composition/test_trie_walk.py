"""The token walk against OpenFst's composition, against an independent byte recogniser, and by brute force."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pynini
import pytest
from corpus.walk_patterns import REAL, TOY, WIDE
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.byte_oracle import ByteOracle
from oracles.samples import examples
from oracles.toy import every_byte, few_bytes

import fsa_compile
from fsa_compile import detokenize
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.arrays import ARC_BURST, UNREACHABLE
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.composition.compose import compose
from fsa_compile.composition.regular.trie_walk import join
from fsa_compile.composition.tokens import class_walk as entry_walk
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

TOY_VOCABULARIES = {"every byte": every_byte(), "few bytes": few_bytes()}


def compiled(pattern: str, vocabulary: Vocabulary) -> CompiledConstraint | None:
    """The constraint, or None when this vocabulary cannot spell it."""
    try:
        return fsa_compile.compile_regex(pattern, vocabulary)
    except fsa_compile.UnspellableError:
        return None


@pytest.fixture(scope="module")
def transducers() -> dict[str, tuple[pynini.Fst, pynini.Fst]]:
    return {k: (detokenize.build_cycles(v), detokenize.build_trie(v)) for k, v in TOY_VOCABULARIES.items()}


@pytest.mark.parametrize("which", TOY_VOCABULARIES)
def test_equals_composition_on_toy_vocabulary(which: str, transducers) -> None:
    """Both forms of the detokenizing transducer give the token language of the fast walk, for every pattern."""
    assert len(TOY) >= 200
    for pattern in TOY:
        dfa = fsa_compile.regex(pattern).to_byte_dfa()
        constraint = compiled(pattern, TOY_VOCABULARIES[which])
        for form in transducers[which]:
            reference = detokenize.composed_by_openfst(dfa, form)
            if constraint is None:
                assert reference.start() == pynini.NO_STATE_ID, pattern
            else:
                assert pynini.equivalent(reference, detokenize.token_acceptor(constraint)), pattern


def test_comparison_with_composition_can_fail(transducers) -> None:
    constraint = fsa_compile.compile_regex("ab?", TOY_VOCABULARIES["every byte"])
    other = fsa_compile.regex("ab|a|b").to_byte_dfa()
    reference = detokenize.composed_by_openfst(other, transducers["every byte"][0])
    assert not pynini.equivalent(reference, detokenize.token_acceptor(constraint))


def test_equals_composition_on_real_vocabulary(data_dir, exhaustive) -> None:
    tokenizer = fsa_compile.load_tokenizer(data_dir / "tokenizers" / "gpt2")
    form = detokenize.build_trie(tokenizer.vocabulary)
    assert len(REAL) >= 30
    chosen = REAL if exhaustive else random.Random(7).sample(REAL, 8)
    for pattern in chosen:
        reference = detokenize.composed_by_openfst(fsa_compile.regex(pattern).to_byte_dfa(), form)
        ours = detokenize.token_acceptor(fsa_compile.compile_regex(pattern, tokenizer))
        assert pynini.equivalent(reference, ours), pattern


class Checker:
    """Follows a host walk and the oracle side by side and compares whole masks."""

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        self.constraint = fsa_compile.compile_regex(pattern, vocabulary)
        self.oracle = ByteOracle(pattern)
        self.data, self.offset = vocabulary.packed
        self.stops = list(vocabulary.stop_ids)
        self.reached: dict[int, np.ndarray] = {}

    def expected(self, state: int) -> np.ndarray:
        if state not in self.reached:
            self.reached[state] = self.oracle.run_tokens(state, self.data, self.offset)
        mask = self.reached[state] > 0
        mask[self.stops] = self.oracle.accepting(state)
        return mask

    def walk(self, rng: np.random.Generator, states: int) -> int:
        """Compares masks along random walks until `states` were checked, or 40 walks met no new one; returns how many were."""
        done, idle, seen = 0, 0, set()
        while idle < 40:
            walk, state, idle = self.constraint.walk(), self.oracle.start, idle + 1
            for _ in range(int(rng.integers(1, 24))):
                mask = walk.allowed()
                if state not in seen:
                    seen.add(state)
                    wrong = np.flatnonzero(mask != self.expected(state))
                    assert not len(wrong), (self.constraint.source, walk.num_tokens, wrong[:5])
                    assert walk.accepting == self.oracle.accepting(state)
                    done, idle = done + 1, 0
                choices = np.flatnonzero(mask & (self.reached[state] > 0))
                if done >= states:
                    return done
                if not len(choices):
                    break
                token = int(rng.choice(choices))
                walk.advance(token)
                state = int(self.reached[state][token])
        return done


@pytest.mark.sampled(60)
@pytest.mark.parametrize("pattern", TOY)
def test_masks_equal_the_oracle_on_toy_vocabulary(pattern: str) -> None:
    vocabulary = TOY_VOCABULARIES["every byte"]
    assert Checker(pattern, vocabulary).walk(np.random.default_rng(1), 30) >= 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["llama2", "llama3", "llama4", "gpt2"])
def test_masks_equal_the_oracle_on_real_vocabularies(family: str, data_dir, exhaustive) -> None:
    """Every token of the vocabulary in up to 20 states of each pattern: nothing invalid allowed, nothing valid forbidden."""
    vocabulary = fsa_compile.load_tokenizer(data_dir / "tokenizers" / family).vocabulary
    patterns = [p for p in TOY if p not in WIDE] + REAL + WIDE
    assert len(set(patterns)) >= 150
    rng = np.random.default_rng(len(family))
    chosen = patterns if exhaustive else random.Random(family).sample(patterns, 6)
    for pattern in dict.fromkeys(chosen):
        assert Checker(pattern, vocabulary).walk(rng, 20 if exhaustive else 6) >= 1


def test_oracle_check_can_fail() -> None:
    checker = Checker("ab*", TOY_VOCABULARIES["every byte"])
    checker.oracle = ByteOracle("ab+")
    with pytest.raises(AssertionError):
        checker.walk(np.random.default_rng(0), 10)


ALPHABET = ["a", "b", "é", "€"]
TOKENS = [
    b"a",
    b"b",
    b"ab",
    b"aab",
    b"ba",
    b"\xc3",
    b"\xa9",
    "é".encode(),
    b"b\xc3",
    b"\xa9a",
    b"\xe2\x82",
    b"\xac",
    "€".encode(),
    b"\xe2",
]
SMALL = Vocabulary.from_tokens([*TOKENS, b"ab", b""], stop_ids=[len(TOKENS) + 1])


def patterns() -> st.SearchStrategy[str]:
    atom = st.sampled_from([*ALPHABET, ".", "[ab]", "[^a]", "[^é]", "[a-é]", "(?:ab|b)", r"\w", r"\W"])

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        quantified = st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,3}", "*?"])).map(
            lambda x: f"(?:{x[0]}){x[1]}"
        )
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda x: f"(?:{'|'.join(x)})"),
            quantified,
        )

    return st.recursive(atom, extend, max_leaves=6)


@settings(max_examples=examples(60, 1_500), deadline=None, derandomize=True)
@given(patterns())
def test_generated_patterns_by_brute_force(pattern: str) -> None:
    """All token strings up to a length, against `re.fullmatch` and the oracle, on a vocabulary that lacks most bytes."""
    oracle = ByteOracle(pattern)
    constraint = compiled(pattern, SMALL)
    spellable = spellable_states(oracle, SMALL)
    if constraint is None:
        assert oracle.start not in spellable
        return
    frontier = [(constraint.walk(), oracle.start, b"")]
    for _ in range(3):
        following = []
        for walk, state, text in frontier:
            assert walk.accepting == (
                re.fullmatch(pattern, text.decode()) is not None if valid(text) else False
            )
            mask = walk.allowed()
            assert mask[-1] == walk.accepting
            for token, data in enumerate(SMALL.tokens[:-1]):
                after = oracle.run(data, state)
                assert mask[token] == (after in spellable), (pattern, text, data)
                if mask[token]:
                    branch = HostWalk(constraint)
                    branch._history = [*walk._history]
                    branch.advance(token)
                    following.append((branch, after, text + data))
        frontier = following[:400]


def spellable_states(oracle: ByteOracle, vocabulary: Vocabulary) -> set[int]:
    """Oracle states from which tokens lead to an accepted text: a plain fixed point."""
    after: dict[int, set[int]] = {}
    todo = [oracle.start]
    while todo:
        state = todo.pop()
        if state in after:
            continue
        after[state] = {oracle.run(data, state) for data in vocabulary.tokens if data} - {0}
        todo += after[state]
    good = {s for s in after if oracle.accepting(s)}
    while more := {s for s in after if s not in good and after[s] & good}:
        good |= more
    return good


def valid(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _paths(outgoing: dict[int, np.ndarray], start: int) -> dict[int, tuple[int, ...]]:
    """A shortest path of tokens to every node."""
    paths: dict[int, tuple[int, ...]] = {start: ()}
    todo = [start]
    for n in todo:
        for m, token in zip(*np.unique(outgoing[n], return_index=True)):
            if m and int(m) not in paths:
                paths[int(m)] = (*paths[n], int(token))
                todo.append(int(m))
    return paths


@pytest.mark.parametrize("pattern", TOY[::5])
def test_distances_and_budgets_are_exact(pattern: str) -> None:
    """With r tokens left exactly those tokens are allowed after which r - 1 suffice, by brute force over nodes."""
    constraint = fsa_compile.compile_regex(pattern, TOY_VOCABULARIES["every byte"])
    nodes = range(1, min(constraint.num_nodes, 40))
    outgoing = (
        {n: constraint.outgoing(n) for n in range(constraint.num_nodes)} if constraint.num_nodes < 400 else {}
    )
    distance = [0 if a else int(UNREACHABLE) for a in constraint.accept]
    for _ in range(len(outgoing)):
        before = list(distance)
        for n, after in outgoing.items():
            if not constraint.accept[n]:
                distance[n] = min(
                    [distance[m] + 1 for m in np.unique(after[after > 0]).tolist()], default=int(UNREACHABLE)
                )
        if before == distance:
            break
    assert constraint.is_regular
    paths = _paths(outgoing, constraint.start)
    for n in nodes if outgoing else ():
        assert constraint.distance[n] == distance[n]
        if n not in paths:
            continue
        walk = constraint.walk()
        for token in paths[n]:
            walk.advance(token)
        for remaining in range(distance[n], distance[n] + 4):
            after = outgoing[n]
            fits = (after > 0) & (np.array(distance)[after] < remaining)
            fits[list(constraint.stop_ids)] = constraint.accept[n]
            assert (walk.allowed(remaining) == fits).all(), (pattern, n, remaining)


def test_structure_is_what_the_device_expects(tmp_path) -> None:
    """Saved and loaded, every constraint passes the loader's checks; nodes without mask row have few arcs."""
    for i, pattern in enumerate(TOY[::7] + WIDE):
        constraint = fsa_compile.compile_regex(pattern, TOY_VOCABULARIES["every byte"])
        path = tmp_path / f"{i}.npz"
        constraint.save(path)
        again = CompiledConstraint.load(path, TOY_VOCABULARIES["every byte"])
        assert again.num_nodes == constraint.num_nodes
        assert (again.rows == constraint.rows).all()
        unmasked = np.diff(constraint.level_offset) == 0
        assert (np.diff(constraint.arc_offset)[unmasked] <= ARC_BURST).all()


def test_aliases_are_all_allowed() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"ab", b"b", b"ab", b"a", b""], stop_ids=[5])
    walk = fsa_compile.compile_regex("(ab)+", vocabulary).walk()
    assert walk.allowed().tolist() == [True, True, False, True, True, False]
    walk.advance(3)
    assert walk.accepting


def test_vocabulary_that_cannot_spell_the_pattern() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b""], stop_ids=[2])
    with pytest.raises(fsa_compile.UnspellableError, match="cannot spell"):
        fsa_compile.compile_regex("a€", vocabulary)
    constraint = fsa_compile.compile_regex("a€|ab", vocabulary)
    assert list(
        itertools.chain.from_iterable(
            np.flatnonzero(constraint.outgoing(n)) for n in range(1, constraint.num_nodes)
        )
    ) == [0, 1]


def test_join_of_very_many_pairs_with_few_children() -> None:
    """More pairs at once than the walk keeps numbers for, most of them leaves of the trie."""
    vocabulary = TOY_VOCABULARIES["every byte"]
    tables, dfa = tables_for(vocabulary), fsa_compile.regex("[abx]*").to_byte_dfa()
    deadline = Deadline(fsa_compile.CompileLimits())
    count = len(tables.numbers) + 5
    origin = np.arange(count)
    node = np.where(origin % 1000 == 0, tables.root_child[ord("a")], tables.root_child[ord("x")])
    state = np.full(count, dfa.start)
    whole = join(dfa, tables, origin, node, state, deadline)
    parts = [join(dfa, tables, origin[i::3], node[i::3], state[i::3], deadline) for i in range(3)]
    assert sorted(zip(*(x.tolist() for x in whole))) == sorted(zip(*(np.concatenate(x).tolist() for x in zip(*parts))))
    assert (whole[1] == vocabulary.tokens.index(b"ab")).any()


@pytest.mark.parametrize("pattern", [WIDE[1], r'"[^"]{0,20}"', r"[a-z]+@[a-z]+(\.[a-z]{2,9})*"])
def test_walking_entries_in_chunks_changes_nothing(pattern: str, monkeypatch) -> None:
    vocabulary = TOY_VOCABULARIES["every byte"]
    whole = fsa_compile.compile_regex(pattern, vocabulary)
    monkeypatch.setattr(entry_walk, "_CHUNK", 1)
    monkeypatch.setattr(entry_walk, "HEAVY", -1)
    pieces = fsa_compile.compile_regex(pattern, vocabulary)
    assert pynini.equivalent(detokenize.token_acceptor(whole), detokenize.token_acceptor(pieces))


@pytest.mark.parametrize("pattern", TOY[::3])
def test_every_wide_state_as_entry(pattern: str, monkeypatch, transducers) -> None:
    """The walk over symbol strings alone: no state is too light to become an entry."""
    monkeypatch.setattr(entry_walk, "HEAVY", -1)
    monkeypatch.setattr(entry_walk, "_WIDE_BYTES", 1)
    constraint = fsa_compile.compile_regex(pattern, TOY_VOCABULARIES["every byte"])
    reference = detokenize.composed_by_openfst(fsa_compile.regex(pattern).to_byte_dfa(), transducers["every byte"][1])
    assert pynini.equivalent(reference, detokenize.token_acceptor(constraint))


@pytest.mark.parametrize("pattern", ["(?:é|ab?|[x-z]){0,400}", ".{0,900}", "[^a]{1,99}"])
def test_memory_is_bounded(pattern: str) -> None:
    vocabulary = every_byte([bytes([a, b]) for a in range(97, 123) for b in range(97, 123)])
    limits = fsa_compile.CompileLimits(max_bytes=100_000)
    dfa = fsa_compile.regex(pattern).to_byte_dfa()
    with pytest.raises(fsa_compile.LimitError, match="max_bytes=100,000"):
        compose(dfa, vocabulary, source=pattern, limits=limits)


@pytest.mark.parametrize(("name", "value"), [("max_states", -1), ("max_seconds", float("nan")), ("max_rows", "many"), ("max_bytes", True)])
def test_limits_are_numbers(name: str, value) -> None:
    with pytest.raises(fsa_compile.ConstraintError, match=f"CompileLimits.{name} must be a number"):
        fsa_compile.CompileLimits(**{name: value})


def test_wrong_options_are_named() -> None:
    with pytest.raises(fsa_compile.ConstraintError, match="limits must be CompileLimits, not dict"):
        fsa_compile.compile_regex("a", TOY_VOCABULARIES["every byte"], limits={})
    with pytest.raises(fsa_compile.ConstraintError, match="flags must be a number such as"):
        fsa_compile.compile_regex("a", TOY_VOCABULARIES["every byte"], flags="i")


def test_limits_are_named() -> None:
    vocabulary = TOY_VOCABULARIES["every byte"]
    limits = fsa_compile.CompileLimits(max_rows=2)
    with pytest.raises(fsa_compile.LimitError, match="max_rows"):
        fsa_compile.compile_regex(r"(\w+ )*[^a]*x?[a-z0-9]*", vocabulary, limits=limits)
    with pytest.raises(fsa_compile.LimitError, match="max_seconds"):
        fsa_compile.compile_regex("a{0,3000}", vocabulary, limits=fsa_compile.CompileLimits(max_seconds=0.0))
