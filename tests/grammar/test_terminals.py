"""Terminals as automata, and the rules of longest match: each sentence of `longest_match` has a text that shows it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest
from oracles.earley import Recogniser

from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import GrammarError, UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.gbnf_syntax import parse_gbnf
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import (
    Choice,
    Expression,
    FreeText,
    Grammar,
    Literal,
    Pattern,
    Reference,
    Repeat,
    Rule,
    Sequence,
)
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.grammar.lexing.terminal_automata import trimmed
from fsa_compile.grammar.lexing.terminals import Automaton, automaton_of, widest
from fsa_compile.limits import CompileLimits, Deadline


def machine(text: str, **options: int) -> ByteMachine:
    return machine_of(parse_lark(text), **options)


def one_rule(body: Expression, mode: str = "characters") -> Grammar:
    assert mode in ("characters", "longest")
    rule = Rule("start", body, False, 0, 0, 1)
    return Grammar(rules={"start": rule}, start="start", ignore=(), mode=mode, text="x")  # type: ignore[arg-type]


def accepted(built: ByteMachine, *texts: str) -> list[bool]:
    return [built.accepts(text.encode()) for text in texts]


class TestTerminals:
    def test_expressions_of_terminals(self) -> None:
        built = machine('start: T\nT: "a" (/[0-9]/ | D)+ "z"~2..3 "end"?\nD: /[x-y]/')
        assert accepted(built, "a1xzz", "ayzzz", "a1zzend") == [True] * 3
        assert accepted(built, "azz", "a1z", "a1zzzz", "b1zz") == [False] * 4

    def test_utf8_is_exact(self) -> None:
        built = machine("start: /[é-€]+/")
        assert built.accepts("é€Ω".encode())
        assert not built.accepts("è".encode())
        assert not built.run("é".encode()[:1] + b"a")
        assert not built.run(b"\xed\xa0\x80")

    def test_free_text_ends_at_the_first_trigger(self) -> None:
        built = machine_of(one_rule(Sequence((FreeText(("</t>", "<!"), 0, 1), Literal("x", 0, 1)), 0, 1)))
        assert accepted(built, "</t>x", "a<b</t>x", "ä<!x", "<<</t>x") == [True] * 4
        assert accepted(built, "</t></t>x", "a</t>", "a<!</t>x", "x") == [False] * 4
        assert not built.run(b"\xff")

    def test_special_tokens_are_symbols(self) -> None:
        from fsa_compile.grammar.grammar_tree import SpecialToken

        token = SpecialToken("<turn>", 0, 1)
        built = machine_of(one_rule(Sequence((token, Pattern("a+", 0, 1), token), 0, 1), "longest"), specials={"<turn>": 77})
        assert built.specials == (77,)
        assert built.accepts([256, 97, 97, 256])
        assert not built.accepts([97, 256])
        assert not built.accepts([256, 97])

    def test_a_special_token_inside_a_terminal_is_refused(self) -> None:
        from fsa_compile.grammar.grammar_tree import SpecialToken

        body = Sequence((SpecialToken(5, 0, 1), Literal("a", 0, 1)), 0, 1)
        rules = {"start": Rule("start", Reference("T", 0, 1), False, 0, 0, 1), "T": Rule("T", body, True, 0, 0, 1)}
        grammar = Grammar(rules=rules, start="start", ignore=(Reference("T", 0, 1),), mode="longest", text="x")
        with pytest.raises(UnsupportedGrammarError, match="special token stands inside a terminal"):
            machine_of(grammar, specials={5: 5})

    def test_a_terminal_that_needs_itself_is_refused(self) -> None:
        rules = {
            "start": Rule("start", Reference("T", 0, 1), False, 0, 0, 1),
            "T": Rule(
                "T", Choice((Sequence((Literal("a", 0, 1), Reference("T", 0, 1)), 0, 1), Literal("b", 0, 1)), 0, 1), True, 0, 0, 1
            ),
        }
        with pytest.raises(UnsupportedGrammarError, match="refers to itself"):
            machine_of(Grammar(rules=rules, start="start", ignore=(), mode="longest", text="x"))

    def test_the_empty_text_of_a_pattern_over_characters(self) -> None:
        built = machine_of(one_rule(Sequence((Pattern("a*", 0, 1), Literal("b", 0, 1), Pattern("(?:ca)*", 0, 1)), 0, 1)))
        assert accepted(built, "b", "aab", "bca", "abcaca") == [True] * 4
        assert not built.accepts(b"abc")

    def test_an_initial_state_that_comes_back(self) -> None:
        limits = CompileLimits()
        automaton, nullable = automaton_of(("pattern", "(?:ab)*", ""), limits, Deadline(limits))
        assert nullable
        assert not automaton.final[0]
        assert any(automaton.final)

    def test_widths(self) -> None:
        line = Automaton([[(1, 1), (2, 2)], [(1, 2)], []], [False, False, True])
        assert widest(line) == 2
        assert widest(Automaton([[(1, 0), (2, 1)], []], [False, True])) == float("inf")
        left, number = trimmed(Automaton([[(1, 1), (2, 2)], [], []], [False, True, False]))
        assert left == Automaton([[(1, 1)], []], [False, True])
        assert number == {0: 0, 1: 1}


class TestLongestMatch:
    def test_a_lexeme_goes_on_while_it_can(self) -> None:
        built = machine('start: (NUMBER | "." | NAME)+\nNUMBER: /[0-9]+(\\.[0-9]+)?/\nNAME: /[a-z]+/\n%ignore " "')
        assert accepted(built, "1.5", "1 .foo", "1 . 5", ". 1", "a.1.2") == [True] * 5
        assert accepted(built, "1.foo", "1..") == [True] * 2  # a fraction had begun: the lexer goes back

    def test_the_longer_operator(self) -> None:
        built = machine('start: N (("<" | "<=" | "=") N?)*\nN: /[a-z]+/')
        assert accepted(built, "a<=b", "a<b", "a==b", "a<==b") == [True] * 4
        spaced = machine('start: N "<" N | N "<=" "+"\nN: /[=a-z]+/')
        assert accepted(spaced, "a<b", "a<=+", "a<=b") == [True, True, False]

    def test_ignored_text_stands_everywhere_between(self) -> None:
        built = machine('start: "(" NAME* ")"\nNAME: /[a-z]+/\n%ignore / +/\n%ignore /#[^\\n]*\\n/')
        assert accepted(built, "( a b )", "  (#x\n)", "()  ", "(a#c\nb) #y\n", "( ab )") == [True] * 5
        assert accepted(built, "(a b", "#x", "( a b ) x") == [False] * 3

    def test_ignored_text_inside_a_lexeme_belongs_to_it(self) -> None:
        built = machine('start: STRING+\nSTRING: /"[^"]*"/\n%ignore " "')
        assert accepted(built, '"a b"', '" " ""', '"a" "b"') == [True] * 3

    def test_keywords_are_reserved_where_a_name_may_stand_too(self) -> None:
        text = 'start: statement+\nstatement: NAME "=" value ";" | "while" value ";"\nvalue: NAME\nNAME: /[a-z]+/\n%ignore " "'
        built = machine(text)
        assert accepted(built, "while x;", "whiles = y;", "x = whilex;") == [True] * 3
        assert accepted(built, "while = x;", "x = while;", "while while;") == [False] * 3

    def test_a_word_that_never_meets_a_name_is_free(self) -> None:
        built = machine('start: "<" tag ">" TEXT "<" "/" tag ">"\ntag: "aa" | "b"\nTEXT: /[^<>]+/')
        assert accepted(built, "<aa>b</aa>", "<b>aa</b>") == [True, True]

    def test_keywords_are_not_glued_to_names(self) -> None:
        built = machine('start: "select" NAME "from" NAME\nNAME: /[a-z]+/\n%ignore " "')
        assert accepted(built, "select a from b", "select a  from b ") == [True] * 2
        assert accepted(built, "selecta from b", "select a fromb", "select from b") == [False] * 3

    def test_keywords_are_not_glued_to_names_with_dollars(self) -> None:
        built = machine('start: "class" NAME\nNAME: /[A-Za-z$]+/\n%ignore " "')
        assert accepted(built, "class $a", "class a", "class$a", "classa") == [True, True, False, False]
        assert machine('start: "echo" TEXT\nTEXT: /[$e][^;]*/').accepts(b"echo$x")  # no names: more than words and $

    def test_keywords_are_not_glued_to_names_beyond_ascii(self) -> None:
        built = machine('start: ("var" NAME ";" | "где" NAME ";" | "say" QUOTED)*\nNAME: /\\w+/\nQUOTED: /“[^”]*”/\n%ignore " "')
        assert accepted(built, "var é;", "var varα;", "где x;", "где где1;", "say“é”", "say “”") == [True] * 6
        assert accepted(built, "varé;", "varα;", "var日;", "гдеx;", "гдея;") == [False] * 5
        words = machine('start: SEASON NAME | "x" SEASON "."\nSEASON: /été|hiver/\nNAME: /[a-zé]+/\n%ignore " "')
        assert accepted(words, "été a", "hiver étés", "x été.") == [True] * 3
        assert accepted(words, "étéé", "hiveré", "x étéé.") == [False] * 3

    def test_priority_decides_about_the_same_text(self) -> None:
        assert machine('start: A "1" | B "2"\nA.1: /[ab]+/\nB: /[bc]+/').accepts(b"b1")
        lower = machine('start: A "1" | B "2"\nA: /[ab]+/\nB.1: /[bc]+/')
        assert accepted(lower, "b1", "b2", "a1", "c2") == [False, True, True, True]

    def test_then_strings_win_then_the_wider(self) -> None:
        built = machine('start: A "1" | "b" "2" | C "3"\nA: /[ab]+/\nC: /[bc]{1,2}/')
        assert accepted(built, "b1", "b2", "b3", "bb1", "bb3", "c3") == [False, True, False, True, False, True]

    def test_a_terminal_that_always_loses_is_an_error(self) -> None:
        with pytest.raises(UnsupportedGrammarError, match=r"terminal IF can never match: .* NAME, which wins"):
            machine("start: IF | NAME\nIF: /i[f]/\nNAME: /[a-z]+/")

    def test_an_empty_lexeme_is_an_error(self) -> None:
        with pytest.raises(GrammarError, match="match"):
            machine('start: A "b"\nA: /a*/')

    def test_scannerless_mode_has_none_of_it(self) -> None:
        built = machine_of(parse_gbnf('root ::= [a-z]+ "while" [a-z.]+'))
        assert built.accepts(b"awhilewhile.x")

    def test_what_is_no_keyword_loses_only_where_the_other_may_stand(self) -> None:
        built = machine('start: ("#" NAME "{" (NAME ":" "#" HEX ";")* "}")*\nNAME: /[a-z]+/\nHEX: /[0-9a-f]{3}/')
        assert accepted(built, "#fff{a:#0ff;fff:#fff;}", "#0ff{}", "#abc{abc:#xyz;}") == [True, False, False]
        both = machine('start: (NAME "." | HEX ";")*\nNAME: /[a-z]+/\nHEX: /[0-9a-f]{3}/')
        assert accepted(both, "fff.", "0ff;", "fff;") == [True, True, False]

    def test_names_that_exclude_keywords_themselves(self) -> None:
        built = machine('start: NAME "if" NAME\nNAME: /(?!if\\b)[a-z]+/\n%ignore " "')
        assert accepted(built, "iffy if a", "a if iff") == [True] * 2
        assert not built.accepts(b"if if a")


def random_lexical(rng: random.Random) -> Grammar:
    def expression(depth: int) -> Expression:
        kind = rng.random()
        if depth == 0 or kind < 0.25:
            if rng.random() < 0.3:
                return Reference(rng.choice(names), 0, 1)
            literal = Literal(rng.choice(["+", "++", "(", ")", ".", "-", "aa"]), 0, 1)
            return literal if rng.random() < 0.5 else Reference(rng.choice(["ID", "NUM"]), 0, 1)
        parts = tuple(expression(depth - 1) for _ in range(rng.randint(2, 3)))
        if kind < 0.65:
            return Sequence(parts, 0, 1)
        if kind < 0.85:
            return Choice(parts, 0, 1)
        low = rng.randint(0, 1)
        return Repeat(parts[0], low, rng.choice([None, low + 1]), 0, 1)

    names = ["r", "s", "t"][: rng.randint(1, 3)]
    rules = {n: Rule(n, Choice((expression(2), expression(2)), 0, 1), False, 0, 0, 1) for n in names}
    rules["ID"] = Rule("ID", Pattern(rng.choice(["a+", "aa?", "(?:a-?)*a"]), 0, 1), True, 0, 0, 1)
    rules["NUM"] = Rule("NUM", Pattern(rng.choice(["1+", "1+(?:\\.1+)?", "-?1"]), 0, 1), True, 0, 0, 1)
    ignore = (Pattern(rng.choice([" +", " ", " \\.?|\\+ "]), 0, 1),) if rng.random() < 0.6 else ()
    return Grammar(rules=rules, start="r", ignore=ignore, mode="longest", text="x")


def random_overlapping(rng: random.Random) -> Grammar:
    """Terminals that match the same texts, in contexts of their own and in common ones."""
    grammar = random_lexical(rng)
    patterns = ["[a1]+", "a|1a", "[a1]{2}", "aa?", "1+", "a-?", "[a-]+1?", "(?i:aa)", "a+(?!1)"]
    for name in ("ID", "NUM"):
        grammar.rules[name] = Rule(name, Pattern(rng.choice(patterns), 0, 1), True, rng.choice([0, 0, 1]), 0, 1)
    hashed = Choice(tuple(Sequence((Literal("(", 0, 1), Reference(n, 0, 1)), 0, 1) for n in ("ID", "NUM")), 0, 1)
    for name in [n for n in grammar.rules if n.islower()]:
        if rng.random() < 0.5:
            body = Choice((grammar.rules[name].body, rng.choice(hashed.branches)), 0, 1)
            grammar.rules[name] = Rule(name, body, False, 0, 0, 1)
    return grammar


@pytest.mark.parametrize("stacks", [1, 2])
@pytest.mark.parametrize("make", [random_lexical, random_overlapping])
def test_random_grammars_against_an_earley_recogniser(make: Callable[[random.Random], Grammar], stacks: int, exhaustive: bool) -> None:
    """Equal with one stack; with several, nothing more is accepted."""
    done = 0
    for seed in range(60 if exhaustive else 18):
        grammar = make(random.Random(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            try:
                built = machine_of(grammar, stacks=stacks)
            except (GrammarError, UnsatisfiableError):
                continue
        done += 1
        level = [("", {built.initial}, Recogniser(grammar).start)]
        for _ in range(5):
            for text, configurations, prefix in level:
                mine, theirs = built.may_end(configurations), prefix is not None and prefix.accepting
                assert mine == theirs or (theirs and stacks > 1), (seed, text)
            level = [
                (text + c, after, there)
                for text, before, prefix in level
                for c in "a1+.(- "
                if (after := built.step(before, ord(c))) or (prefix and prefix.read(c.encode()))
                for there in [prefix.read(c.encode()) if prefix else None]
            ][:4000]
    assert done >= (20 if exhaustive else 6)


_DAYS = "start: YEAR \"-\" MONTH \"-\" DAY (\"T\" HOUR \":\" MINUTE)?\nYEAR: /\\d{{4}}/\nMONTH{}: /0[1-9]|1[0-2]/\nDAY: {}\nHOUR: /[01]\\d|2[0-3]/\nMINUTE: /[0-5]\\d/"


@pytest.mark.parametrize(
    ("grammar", "read", "refused"),
    [
        *[
            (_DAYS.format(priority, day), ["2024-01-05", "2024-12-31T10:59", "1999-11-01T23:00"], ["2024-13-01", "2024-1-01"])
            for priority in ("", ".1")
            for day in (r"/0[1-9]|[12]\d|3[01]/", r"/\d{1,2}/", r"/\d\d/")
        ],
        ('start: "light" ":" KA | "answer" ":" KB\nKA: /on|off/\nKB: /on|yes/', ["light:on", "answer:on", "answer:yes"], ["answer:off"]),
        ('start: "light" ":" ("on" | "off") | "answer" ":" KB\nKB: /on|yes/', ["light:on", "answer:on"], ["light:yes"]),
        ('start: "id" ":" ID | "zip" ":" ZIP | "name" ":" NAME\nID: /[0-9]{5}/\nZIP: /[0-9]{5}(-[0-9]{4})?/\nNAME: /\\w+/',
         ["id:12345", "zip:12345", "zip:12345-1234", "name:12345"], ["id:123456", "id:12345-1234"]),
    ],
)  # fmt: skip
def test_finitely_many_texts_are_told_by_the_place(grammar: str, read: list[str], refused: list[str]) -> None:
    """Two terminals with finitely many texts, or with digits, take no texts from one another where but one of them may stand."""
    built = machine(grammar)
    assert accepted(built, *read) == [True] * len(read)
    assert accepted(built, *refused) == [False] * len(refused)
