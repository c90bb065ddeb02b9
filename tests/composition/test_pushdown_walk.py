"""The token walk with a stack against the byte machine itself, token by token; limits by brute force."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from fsa_compile import compile_grammar, library, load_tokenizer
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.automata.pushdown import ByteMachine, Configuration
from fsa_compile.composition.compose import compose_machine
from fsa_compile.composition.pushdown import costs, least_fixpoint, links, set_unions, token_groups
from fsa_compile.composition.pushdown import pushdown_walk as stack_walk
from fsa_compile.composition.pushdown.links import Links, called_alike
from fsa_compile.composition.tokens import row_pool
from fsa_compile.errors import ConstraintError, LimitError, UnspellableError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.subtrees import kinds_read
from fsa_compile.vocabulary.vocabulary_tables import tables_for
from models import small_tokenizer_path
from tests.oracles.counting import mask_differences
from tests.oracles.machines import (
    BACK,
    Arc,
    counted_lists,
    counted_words,
    machine,
    negations,
    nested_lists,
    prefixed_words,
    tool_calls,
    undecided,
)

_PARTS = ["[", "[[", "]", "]]", "],", "],[", "[a", "a]", "a,", "a,b", "ab", "a", "b", ",", "]]]", "[[[a", "a],[", "],[[a", "[]", "[],[]"]
_MORE = ["n", "nn", "na", "n(", "(", "((", "(a", "(n", "a)", ")", "))", ")>", "<", "<(", "a>", ">", "a)>", "(a)", "n(na)", ")))", " ", " a", "x"]
_WORDS = ["aa", "aaa", "aaaa", "aab", "ba", "bab", "abab", "b ", "a b", "  "]


def vocabulary(parts: Iterable[str], *, every_byte: bool = True) -> tuple[Vocabulary, list[list[int]]]:
    """A vocabulary with the given tokens, one of them twice, two ids without bytes and a stop id; symbols of every token."""
    listed = [p.encode() for p in parts]
    tokens = [bytes([b]) for b in range(256)] * every_byte + listed + [listed[0]] + [b"", b"", b""]
    symbols = [list(t) for t in tokens]
    symbols[-3:-1] = [[256], [257]]
    return Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1]), symbols


def reached(m: ByteMachine, symbols: list[list[int]], most: int) -> list[tuple[tuple[int, ...], Configuration]]:
    """(tokens, configuration) of at least one way to each of the first `most` configurations, breadth first."""
    found = {m.initial: ()}
    queue = [m.initial]
    for here in queue:
        for token, read in enumerate(symbols):
            if read and len(found) < most:
                for there in m.run(read, [here]):
                    if there not in found:
                        found[there] = (*found[here], token)
                        queue.append(there)
    return [(tokens, here) for here, tokens in found.items()]


def after(constraint: CompiledConstraint, tokens: Iterable[int]) -> HostWalk:
    walk = constraint.walk()
    for token in tokens:
        walk.advance(token)
    return walk


def compare(m: ByteMachine, symbols: list[list[int]], constraint: CompiledConstraint, most: int = 150) -> int:
    """Checks the masks of many configurations on every token; how many were checked."""
    checked = 0
    symbols = [read if max(read, default=0) < len(m.byte_class) else [] for read in symbols]
    stop = list(constraint.stop_ids)
    for tokens, here in reached(m, symbols, most):
        walk = after(constraint, tokens)
        assert walk.accepting == m.may_end([here]), (tokens, here)
        want = np.array([bool(read) and bool(m.run(read, [here])) for read in symbols])
        want[stop] = m.may_end([here])
        got = walk.allowed()
        assert (got == want).all(), (tokens, here, np.flatnonzero(got != want))
        checked += len(want)
    return checked


_MACHINES = {
    "nested lists": lambda v: nested_lists(),
    "negations": lambda v: negations(),
    "tool calls": lambda v: tool_calls(v.size - 3, v.size - 2),
}


_COUNTING = {
    "lists 0 to 2": (counted_lists, 0, 2),
    "lists 2 to 3": (counted_lists, 2, 3),
    "lists 3 to 40": (counted_lists, 3, 40),
    "lists from 9": (counted_lists, 9, -1),
    "words of 1 or 2": (counted_words, 1, 2),
    "words of 3": (counted_words, 3, 3),
    "words of 12": (counted_words, 12, 12),
    "words of 20 to 60": (counted_words, 20, 60),
    "prefixed 1 to 4": (prefixed_words, 1, 4),
    "prefixed 11 to 30": (prefixed_words, 11, 30),
}
_COUNTED = ["[a", "[a,a", "],", "],a", ",a,", ",a,a,a", "]]", "a]", "aa", "[[", "[[a", "(a", "(ab", "ab)", "ba)(", "aaaa", "bbb", ")", "()", "ab)(ab"]
_COUNTED += ["<aba", "a>", "aba>", "aa>(", "a;", "aa;", "b;a", "bb;bb", ";", ";a", "abb", "aaaaaaaaa", "abababab)", "(aab)(aab)(", ",a,a,a]]"]


@pytest.mark.parametrize("name", _COUNTING)
def test_counters_in_frames(name: str) -> None:
    v, symbols = vocabulary(_COUNTED)
    make, low, high = _COUNTING[name]
    m = make(low, high)
    constraint = compose_machine(m, v, source=name)
    assert compare(m, symbols, constraint, 200) > 1000
    tokens = [bytes(read) if max(read, default=0) < 256 else b"" for read in symbols]
    checked, wrong = mask_differences(constraint, m, tokens, np.random.default_rng(0), walks=10, length=30)
    assert not wrong, wrong
    assert checked > 1000


@pytest.mark.parametrize("name", _COUNTING)
@pytest.mark.parametrize("room", [0, 1, 3])
def test_counters_never_get_stuck(name: str, room: int) -> None:
    v, _symbols = vocabulary(_COUNTED)
    make, low, high = _COUNTING[name]
    constraint = compose_machine(make(low, high), v, source=name)
    rng = np.random.default_rng(room)
    for _ in range(20):
        walk = HostWalk(constraint, max_depth=constraint.shortest_depth + room)
        for _ in range(int(rng.integers(0, 12))):  # wander
            mask = np.flatnonzero(walk.allowed())
            mask = mask[~np.isin(mask, constraint.stop_ids)]
            if not len(mask):
                assert walk.accepting
                break
            walk.advance(int(rng.choice(mask)))
        for remaining in range(walk.distance + room, 0, -1):
            assert walk.distance <= remaining
            assert walk.need <= walk.max_depth
            mask = np.flatnonzero(walk.allowed(remaining))
            assert len(mask)
            token = int(rng.choice(mask))
            if token in constraint.stop_ids:
                break
            walk.advance(token, remaining)
        else:
            assert walk.accepting


@pytest.mark.parametrize("name", ["words of 12", "words of 20 to 60", "prefixed 11 to 30", "lists 3 to 40"])
def test_counters_never_get_stuck_whatever_is_chosen(name: str) -> None:
    v, _symbols = vocabulary(_COUNTED)
    make, low, high = _COUNTING[name]
    constraint = compose_machine(make(low, high), v, source=name)
    walk = HostWalk(constraint, max_depth=6)
    for begin in ("(a", "a", "[["):
        token = v.tokens.index(begin.encode())
        if walk.allowed()[token]:
            walk.advance(token)
            break
    seen, todo = set(), [(walk.configurations, walk.distance + spare, (token,)) for spare in (0, 1, 2, 5)]
    while todo and len(seen) < 1500:
        at, remaining, tokens = todo.pop()
        if (at, remaining) in seen:
            continue
        seen.add((at, remaining))
        walk = HostWalk(constraint, max_depth=6)
        for token in tokens:
            walk.advance(token)
        assert walk.distance <= remaining
        allowed = np.flatnonzero(walk.allowed(remaining))
        assert len(allowed), (tokens, remaining)
        for token in allowed.tolist():
            if token not in constraint.stop_ids:
                walk.advance(token)
                todo.append((walk.configurations, remaining - 1, (*tokens, token)))
                walk.rewind(1)
    assert len(seen) > 100, len(seen)


@pytest.mark.parametrize(
    ("low", "high", "most"),
    [
        (12, 12, 4),  # nine letters, three letters, end; one more because ends are reckoned apart
        (20, 60, 4),  # nine, nine, two letters, end
        (900, 900, 102),
        (900, 1000, 102),
    ],
)
def test_bounds_count_on_tokens_of_many_iterations(low: int, high: int, most: int) -> None:
    constraint = compose_machine(counted_words(low, high), vocabulary(_COUNTED)[0], source="words")
    walk = after(constraint, [ord("(")])
    assert walk.distance <= most
    walk.advance(ord("a"))
    assert walk.distance <= most + 1


@pytest.mark.parametrize("name", _MACHINES)
def test_masks_are_those_of_the_machine_on_every_token(name: str) -> None:
    v, symbols = vocabulary(_PARTS + _MORE + _WORDS)
    m = _MACHINES[name](v)
    constraint = compose_machine(m, v, source=name)
    assert compare(m, symbols, constraint) > 10_000


@pytest.mark.parametrize("name", _MACHINES)
def test_owners_share_what_they_read_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    v, symbols = vocabulary(_PARTS + _MORE + _WORDS)
    m = _MACHINES[name](v)
    alone = compose_machine(m, v, source=name)
    monkeypatch.setattr(stack_walk, "_SHARED", 1)
    shared = compose_machine(m, v, source=name)
    assert compare(m, symbols, shared, most=60) > 10_000
    assert len(shared.arc_token) == len(alone.arc_token)


@pytest.mark.parametrize("name", ["arithmetic", "json", "python_values", "sql_select", "regex"])
def test_large_machines_are_composed_as_small_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is joined, or worked on together, only where there is much of it makes no difference to any array."""
    tokenizer, text = load_tokenizer(small_tokenizer_path()), library.grammar_text(name)
    plain = compile_grammar(text, tokenizer, **library.options(name))
    joined, together, of_callers = list[int](), list[int](), Links.together

    def counted(begin: np.ndarray, *calls: np.ndarray) -> tuple[np.ndarray, ...]:
        found = called_alike(begin, *calls)
        joined.append(len(begin) - len(found[0]))
        return found

    def in_runs(links: Links, num_owners: int, *returns: np.ndarray) -> tuple:
        found = of_callers(links, num_owners, *returns)
        together.append(found[-1] - num_owners)
        return found

    monkeypatch.setattr(stack_walk, "called_alike", counted)
    monkeypatch.setattr(Links, "together", in_runs)
    for module, most in ((stack_walk, "_SEVERAL"), (token_groups, "_BLOCK"), (least_fixpoint, "_FEW"), (row_pool, "_MANY")):
        monkeypatch.setattr(module, most, 0)
    for most in ("_LONG", "_DENSE"):
        monkeypatch.setattr(links, most, 0)
    monkeypatch.setattr(costs, "_WRITTEN", 0)
    monkeypatch.setattr(set_unions, "_TOGETHER", 2)
    monkeypatch.setattr(stack_walk.Walk, "_repeated", lambda self, items: False)
    again = compile_grammar(text, tokenizer, **library.options(name))
    assert sum(joined) > 0
    assert sum(together) > 0 or name != "regex"
    for field in dataclasses.fields(plain):
        if isinstance(value := getattr(plain, field.name), np.ndarray):
            assert np.array_equal(value, getattr(again, field.name)), field.name


@pytest.mark.parametrize("name", _MACHINES)
@pytest.mark.parametrize("depth", [0, 1, 2, 4, 7])
def test_limits_never_get_stuck_and_are_kept(name: str, depth: int) -> None:
    v, _ = vocabulary([*_PARTS, *_MORE[:14], ">"], every_byte=False)
    m = _MACHINES[name](v)
    constraint = compose_machine(m, v, source=name)
    walk = HostWalk(constraint, max_depth=depth)
    if walk.need > depth:
        return
    seen, todo = set(), [(walk.configurations, remaining, ()) for remaining in range(walk.distance, 6)]
    assert todo
    while todo:
        at, remaining, tokens = todo.pop()
        if (at, remaining) in seen:
            continue
        seen.add((at, remaining))
        walk = HostWalk(constraint, max_depth=depth)
        for token in tokens:
            walk.advance(token)
        assert walk.distance <= remaining
        assert walk.need <= depth
        mask = walk.allowed(remaining)
        assert mask.any(), (tokens, remaining)
        for token in np.flatnonzero(mask).tolist():
            if token not in constraint.stop_ids:
                walk.advance(token)
                todo.append((walk.configurations, remaining - 1, (*tokens, token)))
                walk.rewind(1)


def test_several_readings_are_followed_at_once() -> None:
    v, symbols = vocabulary(["x", "xa", "xaa", "a", "aa", "aac", "ac", "c", "cb", "cbb", "b", "bb", "bbb", "acb"])
    m = undecided(3)
    tokens = [bytes(read) if max(read, default=0) < 256 else b"" for read in symbols]
    constraint = compose_machine(m, v, source="readings", stacks=8)
    assert constraint.stacks == 8
    checked, wrong = mask_differences(constraint, m, tokens, np.random.default_rng(0), walks=60, length=12)
    assert not wrong, wrong
    assert checked > 10_000
    few = compose_machine(m, v, source="readings", stacks=2)
    _, wrong = mask_differences(few, m, tokens, np.random.default_rng(0), walks=60, length=12)
    assert wrong
    assert all("allowed False" in line for line in wrong)


def test_depth_limit_alone_admits_what_can_be_completed_within_it() -> None:
    v, symbols = vocabulary(_PARTS)
    m = nested_lists()
    constraint = compose_machine(m, v, source="lists")
    walk = HostWalk(constraint, max_depth=3)
    for token in b"[[[":
        assert walk.allowed()[token]
        walk.advance(token)
    allowed = walk.allowed()
    assert [bool(allowed[byte]) for byte in b"[a]"] == [False, False, True]
    assert not any(allowed[t] for t, read in enumerate(symbols) if read[:2] == list(b"[a"))


def test_one_token_pops_as_many_cells_as_it_closes() -> None:
    v, _ = vocabulary([*_PARTS, "]]]]]]"])
    constraint = compose_machine(nested_lists(), v, source="lists")
    assert constraint.max_pops == 6
    assert compose_machine(nested_lists(), vocabulary(["[", "]", "a", ","])[0], source="lists").max_pops == 1


def test_vocabularies_that_cannot_close_refuse_to_open() -> None:
    v, _ = vocabulary(["a", "b", "[", "[a", ","], every_byte=False)
    walk = compose_machine(nested_lists(), v, source="lists").walk()
    assert np.flatnonzero(walk.allowed()).tolist() == [0, 1, 5]  # "a" is there twice
    v, _ = vocabulary(["[", ",", "[["], every_byte=False)
    with pytest.raises(UnspellableError):
        compose_machine(nested_lists(), v, source="lists")


def test_runs_with_the_same_calls_are_one() -> None:
    calls = [[5, 6, 6, 5, 5, 6, 5, 6], [1, 2, 2, 1, 1, 2, 2, 1], [0, 3, 3, 0, 0, 0, 0, 3]]  # callers, pushes, registers
    caller, push, count = (np.array(column, np.int64) for column in calls)
    begin = np.arange(0, 8, 2)
    for register, kinds in ((count, [0, 0, 1, 2]), (count * 0, [0, 0, 0, 1])):
        _, size, which, at = called_alike(begin, begin * 0 + 2, caller, push, register)
        first = list(dict.fromkeys(which.tolist()))
        assert [first.index(run) for run in which.tolist()] == kinds
        assert len(size) == len(first)
        assert len(at) == 2 * len(first)


@pytest.mark.parametrize("low", [1, 2, 100])
@pytest.mark.parametrize("token", [b"z", b"(z", b"(a"])
def test_counters_that_no_token_reaches(low: int, token: bytes) -> None:
    """Only the empty text is spelled, with nothing for a lower bound to count."""
    spelled = Vocabulary.from_tokens([b"", token], stop_ids=[0])
    rules = f'start: ("(" (start ",")~{low}..300 ")")*'
    given = [counted_words(low, 300), prefixed_words(low, 300), machine_of(parse_lark(rules))]
    for made in (compose_machine(m, spelled, source="no token") for m in given):
        assert made.walk().allowed().tolist() == [True, False]
        assert made.shortest_completion == 0


def test_unlimited_returns_are_an_error() -> None:
    # s: "a" s | "b", every "a" calling s in its last place: "b" may close any number of frames before the next byte
    arcs = [
        Arc("start", b"a", "again", ["main"]),
        Arc("again", b"a", "again", ["tail"]),
        Arc("again", b"b", "end"),
        Arc("end", b"c", BACK),
        Arc("last", b"c", "done"),
    ]
    arcs.append(Arc("tail end", b"c", BACK))
    returns = {("end", "tail"): "tail end", ("end", "main"): "last", ("tail end", "tail"): "tail end", ("tail end", "main"): "last"}
    m = machine(arcs, returns, ends=["done"])
    assert m.accepts(b"aaabc")
    with pytest.raises(ConstraintError, match="any number"):
        compose_machine(m, vocabulary(["a"])[0], source="tails")


def test_special_tokens_must_not_be_text() -> None:
    v, _ = vocabulary(["a"])
    for wrong in (97, v.size, v.stop_ids[0]):
        with pytest.raises(ConstraintError, match="special token"):
            compose_machine(tool_calls(wrong, v.size - 2), v, source="calls")


def test_limits_are_named() -> None:
    v, _ = vocabulary(_PARTS)
    with pytest.raises(LimitError, match="max_states"):
        compose_machine(nested_lists(), v, source="lists", limits=CompileLimits(max_states=3))
    with pytest.raises(LimitError, match="max_bytes"):
        compose_machine(nested_lists(), v, source="lists", limits=CompileLimits(max_bytes=100))
    with pytest.raises(LimitError, match="max_seconds"):
        compose_machine(nested_lists(), v, source="lists", limits=CompileLimits(max_seconds=0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["lists 2 to 3", "words of 20 to 60", "nested lists", "negations"])
def test_masks_over_a_real_vocabulary(name: str, data_dir: Path, exhaustive: bool) -> None:
    v = load_tokenizer(data_dir / "tokenizers" / "llama3" / "tokenizer.model").vocabulary
    make, *bounds = _COUNTING.get(name, (_MACHINES.get(name), v))
    m = make(*bounds)
    constraint = compose_machine(m, v, source=name)
    walks, length = (3, 6) if exhaustive else (2, 5)
    checked, wrong = mask_differences(constraint, m, v.tokens, np.random.default_rng(0), walks=walks, length=length)
    assert not wrong, wrong
    assert checked > 500_000


def test_subtrees_of_the_trie_hold_the_tokens_below() -> None:
    def bits(read: np.ndarray) -> np.uint64:
        byte = np.flatnonzero(read)
        return kinds_read(byte * 0, byte, (1, 256), np.arange(256))[0]

    v, _symbols = vocabulary([*_PARTS, *_WORDS, "    ", "   \n", "\t \n", "aé", "aéé", "a1", "aB"])
    tables = tables_for(v)
    below = tables.subtrees
    spelled = {0: b""}
    for node in range(len(tables.trie_first)):
        for child in range(tables.trie_first[node], tables.trie_first[node] + tables.trie_count[node]):
            spelled[child] = spelled[node] + bytes([tables.trie_byte[child]])
    distinct = set(tables.trie_token[tables.trie_token >= 0].tolist())
    for node, prefix in spelled.items():
        longer = {t for t in distinct if v.tokens[t].startswith(prefix) and v.tokens[t] != prefix}
        assert set(below.token[below.begin[node] : below.end[node]].tolist()) == longer
        for read in (np.arange(256) < 0x80, np.isin(np.arange(256), list(b"[] \n\t")), np.arange(256) != ord("a")):
            if not below.kinds[node] & ~bits(read):
                assert all(read[b] for t in longer for b in v.tokens[t][len(prefix) :])
    ascii_only = bits(np.arange(256) < 0x80)
    assert below.kinds[0] & ~ascii_only  # every byte is a token
    space = next(node for node, prefix in spelled.items() if prefix == b"  ")
    assert not below.kinds[space] & ~bits(np.isin(np.arange(256), list(b" \n")))
