"""Controls and stack symbols: conflicts and their examples, dead ends, returns, parallel stacks, the finished machine."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import warnings

import numpy as np
import pytest

from fsa_compile.arrays.bit_sets import disjoint, members
from fsa_compile.automata.pushdown import END_HERE, RETURN, ByteMachine, Configuration
from fsa_compile.errors import GrammarConflictError, GrammarError, LimitError, UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Reference, Repeat, Rule, Sequence, SpecialToken
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.library import grammar_text
from fsa_compile.limits import CompileLimits

JSON = r"""
start: value
value: "{" [pair ("," pair)*] "}" | "[" [value ("," value)*] "]" | STRING | NUMBER | "true" | "false" | "null"
pair: STRING ":" value
STRING: /"(?:[^"\\\x00-\x1f]|\\(?:["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
NUMBER: /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/
%ignore /[ \t\n\r]+/
"""

DANGLING = """
start: s*
s: "i" s | "i" s "e" s | "x"
"""


def completes(machine: ByteMachine, here: Configuration, alphabet: bytes, most: int = 20_000) -> bool:
    """Whether an accepted text follows: best first, low stacks before high ones."""
    order = itertools.count()
    heap, seen = [(len(here.stack), next(order), here)], {here}
    for _ in range(most):
        if not heap:
            return False
        *_, one = heapq.heappop(heap)
        if machine.may_end([one]):
            return True
        for byte in alphabet:
            for after in machine.step([one], byte):
                if after not in seen:
                    seen.add(after)
                    heapq.heappush(heap, (len(after.stack), next(order), after))
    raise AssertionError("search gave up")


def conflict(text: str, **options: int) -> GrammarConflictError:
    with pytest.raises(GrammarConflictError) as caught:
        machine_of(parse_lark(text), **options)
    return caught.value


@pytest.mark.parametrize("mode", ["longest", "characters"])
def test_a_terminal_may_be_longer_than_a_call_stack(mode: str) -> None:
    word = b"ab" * 750
    machine = machine_of(parse_lark(f'start: "(" start ")" | "{word.decode()}"', mode=mode))
    assert machine.accepts(b"((" + word + b"))")
    assert not machine.accepts(b"((" + word[1:] + b"))")


class TestConflicts:
    def test_example_symbol_readings_and_lines(self) -> None:
        error = conflict('start: "x" palindrome\n\npalindrome: ["a" palindrome "a"]')
        assert (error.example, error.symbol) == (b"xa", b"a")
        assert error.readings == (
            'it begins "a" in palindrome (line 3)', "it begins the bracketed group in palindrome (line 3)"
        )  # fmt: skip
        assert "after 'xa', 'a' can be read in two ways" in str(error)
        assert "stacks=2" in error.fix

    def test_the_example_is_shortest_and_real(self) -> None:
        error = conflict(DANGLING)
        grammar = parse_lark(DANGLING)
        machine = machine_of(grammar, stacks=2)
        assert len(machine.step(machine.run(error.example), error.symbol[0])) > 1
        for n in range(len(error.example)):
            for letters in itertools.product(b"iex", repeat=n):
                for byte in b"iex":
                    assert len(machine.step(machine.run(letters), byte)) <= 1

    def test_moving_on_or_returning(self) -> None:
        error = conflict('start: "c" list\nlist: "c" list list | "b" ["c" "b"]')
        assert (error.example, error.symbol) == (b"ccb", b"c")
        assert error.readings == ('it begins "c" in list (line 2)', "it comes after the end of list (line 2)")

    def test_the_end_of_a_text_and_special_tokens_are_named(self) -> None:
        token = SpecialToken("<t>", 0, 1)
        inner = Sequence((token, Reference("r", 0, 1), token), 0, 1)
        rules = {"r": Rule("r", Choice((inner, Sequence((), 0, 1)), 0, 1), False, 0, 0, 1)}
        with pytest.raises(GrammarConflictError, match="special token 9 can be read in two ways") as caught:
            machine_of(Grammar(rules=rules, start="r", ignore=(), mode="characters", text="r"), specials={"<t>": 9})
        assert caught.value.symbol == "special token 9"

    def test_one_is_told_where_a_limit_ends_the_search(self) -> None:
        lists = " | ".join(f'"{a}" list "{b}"' for a, b in ("()", "[]", "{}", "<>", "de", "fg", "hi", "jk"))
        grammar = parse_lark(f'start: pair | list\npair: "a" pair "a" | "b" pair "b" | "c"?\nlist: {lists} | "x"')
        plain = parse_lark(f'start: list\nlist: {lists} | "x"')
        with pytest.raises(GrammarConflictError) as caught:
            machine_of(grammar, limits=CompileLimits(max_states=40))
        ways = 'it begins "%s" in pair (line 2)', "it begins the bracketed group in pair (line 2)"
        assert caught.value.readings in [(ways[0] % letter, ways[1]) for letter in "ab"]
        for one in (grammar, plain):
            with pytest.raises(LimitError, match="max_states"):
                machine_of(one, limits=CompileLimits(max_states=20))

    @pytest.mark.parametrize("stacks", [1, 4])
    def test_endless_returns_are_a_conflict_for_any_number_of_stacks(self, stacks: int) -> None:
        error = conflict('start: "(" start start* | "a"', stacks=stacks)
        assert stacks == 1 or "may end any number of nested rules at once" in str(error)


class TestParallelStacks:
    def test_dangling_else(self) -> None:
        machine = machine_of(parse_lark(DANGLING), stacks=2)
        assert not machine.deterministic
        for n in range(7):
            for letters in itertools.product("iex", repeat=n):
                text = "".join(letters)
                assert machine.accepts(text.encode()) == derived(text), text

    def test_one_reading_does_not_end_a_lexeme_that_another_goes_on_with(self) -> None:
        text = 'start: x "c" | y "d"\nx: A x B | A B\ny: A y P Q | A P Q\nA: "a"\nB: "+" \nP: "+-" \nQ: "b"'
        machine = machine_of(parse_lark(text + "\n"), stacks=3)
        assert machine.accepts(b"aa++c")
        assert machine.accepts(b"aa+-b+-bd")
        assert not machine.accepts(b"aa+-c")


def derived(text: str) -> bool:
    """Whether a text is a list of statements of `DANGLING`: which ends a statement that begins at each place may have."""
    ends: dict[int, frozenset[int]] = {}
    for i in range(len(text) - 1, -1, -1):
        if text[i] == "x":
            ends[i] = frozenset([i + 1])
        elif text[i] == "i":
            body = ends.get(i + 1, frozenset())
            more = {k for j in body if text[j : j + 1] == "e" for k in ends.get(j + 1, ())}
            ends[i] = body | more
    places = {0}
    for i in range(len(text)):
        if i in places:
            places |= ends.get(i, frozenset())
    return len(text) in places


class TestDeadEnds:
    def test_a_lexeme_that_could_never_end_is_cut(self) -> None:
        """After a name only a letter could follow, which would belong to the name."""
        machine = machine_of(parse_lark('start: "(" ( NAME "x" | "1" ) ")"\nNAME: /[a-z]+/'))
        assert machine.accepts(b"(1)")
        assert not machine.run(b"(a")

    def test_nothing_left_is_unsatisfiable(self) -> None:
        with pytest.raises(UnsatisfiableError, match="no text"):
            machine_of(parse_lark('start: NAME "x"\nNAME: /[a-z]+/'))

    @pytest.mark.parametrize("name", ["json", "arithmetic", "c_functions", "python_values"])
    def test_random_walks_through_the_library_can_end(self, name: str) -> None:
        machine = machine_of(parse_lark(grammar_text(name)))
        alphabet = bytes(range(32, 127))
        rng = random.Random(3)
        for _ in range(15):
            here = {machine.initial}
            for _ in range(rng.randint(1, 25)):
                steps = [after for byte in alphabet if (after := machine.step(here, byte))]
                if not steps:
                    break
                here = rng.choice(steps)
                assert len(here) == 1
            assert all(completes(machine, one, alphabet, 60_000) for one in here)

    def test_random_small_grammars(self) -> None:
        done = 0
        for seed in range(120):
            grammar = random_grammar(random.Random(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GrammarWarning)
                try:
                    machine = machine_of(grammar)
                except (GrammarError, UnsatisfiableError):
                    continue
            done += 1
            level = [machine.initial]
            for _ in range(4):
                assert all(completes(machine, one, b"ab()") for one in level)
                level = [after for one in level for byte in b"ab()" for after in machine.step([one], byte)]
        assert done > 30


def random_grammar(rng: random.Random) -> Grammar:
    names = ["r", "s"]

    def expression(depth: int) -> Expression:
        kind = rng.random()
        if depth == 0 or kind < 0.2:
            return Reference(rng.choice(names), 0, 1) if rng.random() < 0.4 else Literal(rng.choice("ab"), 0, 1)
        if kind < 0.5:
            return Sequence((Literal("(", 0, 1), expression(depth - 1), Literal(")", 0, 1)), 0, 1)
        parts = (expression(depth - 1), expression(depth - 1))
        if kind < 0.7:
            return Sequence(parts, 0, 1)
        return Choice(parts, 0, 1) if kind < 0.9 else Repeat(parts[0], 0, None, 0, 1)

    rules = {n: Rule(n, Choice((expression(2), Literal(rng.choice("ab"), 0, 1)), 0, 1), False, 0, 0, 1) for n in names}
    return Grammar(rules=rules, start="r", ignore=(), mode="characters", text="x")


class TestMachine:
    def test_json_is_what_json_loads_reads(self) -> None:
        machine = machine_of(parse_lark(JSON))
        rng = random.Random(1)
        pieces = ['{"', '":', '"a"', "[", "]", "{", "}", ",", "1", "-0.5e3", "true", " ", "null", '"\\u00e9"', "\n", "01", '"']
        for _ in range(3000):
            text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 9)))
            try:
                json.loads(text)
                expected = True
            except ValueError:
                expected = False
            assert machine.accepts(text.encode()) == expected, text

    def test_shape(self) -> None:
        machine = machine_of(parse_lark(JSON))
        assert machine.deterministic
        assert machine.num_controls < 60
        assert machine.num_symbols <= 12
        assert not machine.action[0].any()
        assert not machine.ret[0].any()
        assert machine.end[0] == 0
        assert (np.diff(machine.entry_offset)[1:] == 1).all()
        assert machine.entry_offset[1] == 0
        assert (machine.bounds == -1).all()
        assert machine.stack == ()
        assert len(machine.control_names) == machine.num_controls
        assert len(machine.symbol_names) == machine.num_symbols
        assert all(machine.entry_push[machine.entry_next == RETURN] == 0)
        assert (machine.end == END_HERE).sum() >= 1

    def test_equal_controls_are_one(self) -> None:
        """No two controls have the same actions, returns and ends (a necessary condition of being minimal)."""
        machine = machine_of(parse_lark(JSON))
        rows = np.concatenate([machine.action, machine.ret, machine.end[:, None]], axis=1)
        assert len(np.unique(rows, axis=0)) == machine.num_controls

    def test_regular_grammars_have_no_stack(self) -> None:
        machine = machine_of(parse_lark('start: ("a" x)*\nx: "b" | "c" x'))
        assert machine.num_symbols == 0
        assert machine.accepts(b"abaccb")
        assert not machine.accepts(b"aa")

    def test_the_empty_text(self) -> None:
        assert machine_of(parse_lark('start: ["a"]')).accepts(b"")
        only = machine_of(parse_lark("start:"))
        assert only.accepts(b"")
        assert not only.run(b"a")

    def test_numbers_are_the_same_each_time(self) -> None:
        one, two = (machine_of(parse_lark(JSON)) for _ in range(2))
        assert (one.action == two.action).all()
        assert one.pushes == two.pushes
        assert (one.ret == two.ret).all()

    def test_limit_on_controls(self) -> None:
        with pytest.raises(LimitError, match="max_states"):
            machine_of(parse_lark(JSON), limits=CompileLimits(max_states=30))


def test_disjoint_sets() -> None:
    parts = {mask: set(tags) for mask, tags in disjoint([(0b0110, ["a"]), (0b1100, ["b"]), (0, ["c"])])}
    assert parts == {0b0010: {"a"}, 0b0100: {"a", "b"}, 0b1000: {"b"}}
    assert list(members(0b10110)) == [1, 2, 4]


COUNTED = {
    "characters": ('start: "[" "a"~3..500 "]"', lambda n: f"[{'a' * n}]", 3, 500),
    "at the end": ('start: "a"~3..500', lambda n: "a" * n, 3, 500),
    "before what may be missing": ('start: "a"~3..500 "b"?', lambda n: "a" * n + "b", 3, 500),
    "items": ('start: "[" "a" ("," "a")~9..9999 "]"', lambda n: f"[a{',a' * n}]", 9, 9999),
    "exactly, then more": ('start: "a"~70 "a"*', lambda n: "a" * n, 70, 10**9),
    "exactly, then some": ('start: "a"~80..100 "a"~70', lambda n: "a" * n, 150, 170),
    "pieces": ('start: "[" ("a" "b"~0..3 "c")~20..90 "]"', lambda n: f"[{'abcac' * (n // 2)}{'ac' * (n % 2)}]", 20, 90),
    "counted inside counted": ('start: ("a" "b"~70..90 "c")~80..99', lambda n: ("a" + "b" * 80 + "c") * n, 80, 99),
    "items that may be empty": ('start: ("a"? "b"?)~70..90 "."', lambda n: "a" * n + ".", 0, 90),
    "recursion inside": ('start: "(" (start ";")~2..100 ")" | "x"', lambda n: f"({'x;' * n})", 2, 100),
    "words, as a lexer cuts them": ('start: NAME~2..100 "."\nNAME: /[a-z]+/\n%ignore " "', lambda n: "ab " * n + ".", 2, 100),
    "names before a keyword": ('start: NAME~2..90 "end"\nNAME: /[a-z]+/\n%ignore " "', lambda n: "ab " * n + "end", 2, 90),
}


@pytest.mark.parametrize("name", COUNTED)
def test_large_bounds(name: str) -> None:
    text, example, low, high = COUNTED[name]
    machine = machine_of(parse_lark(text, mode="longest" if "NAME" in text else "characters"))
    assert machine.deterministic
    assert machine.num_controls < 250
    around = {0, 1, 2, low - 1, low, low + 1, (low + min(high, 300)) // 2, min(high, 9000), high - 1, high, high + 1}
    for n in sorted(k for k in around if 0 <= k < 20_000):
        assert machine.accepts(example(n).encode()) == (low <= n <= high), n


def test_counting_needs_few_controls() -> None:
    for bound in (100, 10_000):
        machine = machine_of(parse_lark(f'start: "[" ("a" ";")~2..{bound} "]"'))
        assert machine.num_controls < 10
        assert [2, bound] in machine.bounds.tolist()


def test_counted_frames_have_no_dead_ends() -> None:
    """Bounds too large to be written out, small enough to be met: every configuration on the way can end."""
    for text in (
        'start: "[" ("a" "b"?)~12..40 "]"',
        'start: ("a" ("b" "c")~11..20 "d")~9..10',
        'start: ("a" start? ";")~9..33 "."',
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            machine = machine_of(parse_lark(text, mode="characters"))
        assert (machine.bounds[:, 1] > 8).any()
        rng = random.Random(5)
        for _ in range(5):
            here = [machine.initial]
            for i in range(100):
                assert i % 9 or completes(machine, here[0], b"abcd;[].", 60_000)
                after = [next(iter(d)) for byte in b"abcd;[]." if (d := machine.step(here, byte))]
                if not after:
                    break
                here = [rng.choice(after)]


def test_what_cannot_be_counted_is_written_out_or_refused() -> None:
    assert (machine_of(parse_lark('start: /[a-z]/~1..90 "x"', mode="characters")).bounds == -1).all()
    with pytest.raises(UnsupportedGrammarError, match="9,000 repetitions can be neither counted nor written out"):
        machine_of(parse_lark("start: /[a-z]/~1..9000 /[a-z]/", mode="characters"))
    with pytest.raises(LimitError, match="max_repeat"):
        machine_of(parse_lark('start: "a"~1..90', mode="characters"), limits=CompileLimits(max_repeat=80))


def test_a_counted_loop_over_left_recursion_is_refused() -> None:
    with pytest.raises(UnsupportedGrammarError, match="begins with the rule that it stands in"):
        machine_of(parse_lark('start: (start "x")~2..100 | "y"', mode="characters"))
