"""Lexemes whose conditions forbid them to end, and lazy ones: random grammars against a lexer with `re`."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import warnings
from collections import Counter

import lark
import pytest
from oracles.grammar_judges import parses
from oracles.lexed_rules import LETTERS, Terminal, random_rules, random_text

from fsa_compile import Vocabulary, compile_grammar
from fsa_compile.errors import ConstraintError, GrammarConflictError, UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import _Attempts, machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.limits import CompileLimits, Deadline


def random_pattern(rng: random.Random, depth: int = 2) -> str:
    """A pattern over the letters."""
    kind = rng.random()
    if not depth or kind < 0.35:
        return rng.choice([*LETTERS, "[<>]", "[>=]"])
    one = random_pattern(rng, depth - 1)
    if kind < 0.65:
        return one + random_pattern(rng, depth - 1)
    if kind < 0.9:
        return f"(?:{one}){'?' if kind < 0.8 else '+'}"
    return f"(?:{one}|{random_pattern(rng, depth - 1)})"


def first_match(pattern: str) -> Terminal:
    """A pattern, and where `re` ends it."""
    match = re.compile(pattern).match
    return pattern, lambda text, at: [found.end() for found in [match(text, at)] if found and found.end() > at]


def random_terminal(rng: random.Random) -> Terminal:
    """One or two alternatives, with and without conditions on what follows; never empty."""
    while True:
        found = [
            (random_pattern(rng), "".join(sorted(rng.sample(LETTERS, rng.choice([0, 1, 1, 2]))))) for _ in range(rng.choice([1, 1, 2]))
        ]
        if not any(re.fullmatch(pattern, "") for pattern, _ in found):
            return first_match("|".join(pattern + (f"(?![{forbidden}])" if forbidden else "") for pattern, forbidden in found))


def random_lazy_pattern(rng: random.Random, depth: int = 3) -> str:
    """A pattern with loops of all kinds, and conditions on the next character."""
    kind = rng.random()
    if not depth or kind < 0.3:
        return rng.choice([*LETTERS, "[<>]", "[>=]", "[<>=]"])
    one = random_lazy_pattern(rng, depth - 1)
    if kind < 0.55:
        return one + random_lazy_pattern(rng, depth - 1)
    if kind < 0.8:
        return f"(?:{one}){rng.choice(['*?', '+?', '??', '{1,3}?', '*', '?'])}"
    if kind < 0.92:
        return f"(?:{one}|{random_lazy_pattern(rng, depth - 1)})"
    return f"{one}(?![{rng.choice(LETTERS)}])"


def random_lazy_terminal(rng: random.Random) -> Terminal:
    """A pattern with a lazy loop, of which `re` takes the first match; never empty."""
    while True:
        pattern = random_lazy_pattern(rng)
        if re.search(r"[*+?}]\?", pattern) and not re.match(pattern, "") and not re.fullmatch(pattern, ""):
            return first_match(pattern)


def random_condition(rng: random.Random) -> str:
    """Most often none, or what must or must not stand before or behind a place."""
    kind, sign = rng.random(), rng.choice("=!")
    if kind < 0.04:
        return f"(?<{sign}{rng.choice([*LETTERS, '[<>]'])})"
    return f"(?{sign}{random_pattern(rng)}{'$' if rng.random() < 0.1 else ''})" if kind < 0.16 else ""


def random_looking_pattern(rng: random.Random, depth: int = 2) -> str:
    """A pattern with conditions anywhere."""
    kind = rng.random()
    if not depth or kind < 0.3:
        return random_condition(rng) + rng.choice([*LETTERS, "[<>]", "[>=]"]) + random_condition(rng)
    one = random_looking_pattern(rng, depth - 1)
    if kind < 0.65:
        return one + random_looking_pattern(rng, depth - 1)
    if kind < 0.9:
        return f"(?:{one}){'?' if kind < 0.8 else '+'}"
    return f"(?:{one}|{random_looking_pattern(rng, depth - 1)})"


def random_looking_terminal(rng: random.Random) -> Terminal:
    """A pattern whose conditions look around the lexeme, matched longest; never empty."""
    begin = f"(?<{rng.choice('=!')}{rng.choice([*LETTERS, '[<>]', '<=', '[^<]>'])})" if rng.random() < 0.25 else ""
    begin = begin if rng.random() < 0.9 else "^"
    while True:
        bare = random_looking_pattern(rng)
        if not any(re.match(rf"{bare}(?=[\s\S]{{{len(text)}}}\Z)", text) for text in ["", *LETTERS, "<>", "><", "==", "<=>"]):
            break
    pattern = f"{begin}(?:{bare})" if "|" in bare else begin + bare

    def ends(text: str, at: int) -> list[int]:
        all_ends = range(at + 1, len(text) + 1)
        return [end for end in all_ends if re.compile(rf"{pattern}(?=[\s\S]{{{len(text) - end}}}\Z)").match(text, at)]

    return pattern, ends


def random_soonest_terminal(rng: random.Random) -> Terminal:
    """A pattern with lazy loops over characters and conditions on several characters, of which `re` takes the first match."""
    classes = [*LETTERS, "[<>]", "[>=]", "[<>=]"]
    loops = [rng.choice(["*?", "+?", "??", "{1,3}?"]), *rng.choices(["", "", "*?", "+?"], k=rng.randint(0, 2)), ""]
    parts = [rng.choice(classes) + loop for loop in rng.sample(loops, len(loops))]
    for _ in range(rng.randint(1, 2)):
        condition = f"(?{rng.choice('=!')}{random_pattern(rng)}{'$' if rng.random() < 0.2 else ''})"
        parts.insert(rng.randint(0, len(parts)), condition)
    pattern = "".join(parts)
    match = re.compile(pattern).match
    return pattern, lambda text, at: [found.end() for found in [match(text, at)] if found]


@pytest.mark.parametrize("terminal", [random_terminal, random_lazy_terminal, random_looking_terminal, random_soonest_terminal])
def test_random_grammars_are_read_as_a_lexer_with_re_reads_them(terminal, exhaustive):
    seen: Counter[object] = Counter()
    for seed in range(6_000 if exhaustive else 80):
        rng = random.Random(seed)
        rules = random_rules(rng, terminal)
        texts = [random_text(rng) for _ in range(400)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GrammarWarning)
                machine = machine_of(parse_lark(rules.written(), mode="longest"))
        except UnsatisfiableError:
            assert not any(map(rules.accepts, texts)), (seed, rules.written())
            continue
        except ConstraintError as error:
            seen[type(error).__name__] += 1
            continue
        for text in texts:
            taken = machine.accepts(text.encode())
            assert rules.accepts(text) == taken, (seed, text, rules.written())
            seen[taken] += 1
    assert min(seen[True], seen[False]) > 2_000
    assert sum(count for kind, count in seen.items() if isinstance(kind, str)) < seen.total() / 1_000  # few are refused


def test_with_two_stacks_nothing_more_is_read_than_with_one(exhaustive):
    """And little less: of what other stacks may be reading each knows roughly (docs/limits.md)."""
    seen: Counter[tuple[bool, bool]] = Counter()
    for seed in range(2_000 if exhaustive else 60):
        rng = random.Random(seed)
        rules = random_rules(rng, random_looking_terminal)
        texts, limits = [random_text(rng) for _ in range(200)], CompileLimits()
        with warnings.catch_warnings(), contextlib.suppress(ConstraintError):
            warnings.simplefilter("ignore", GrammarWarning)
            machine = _Attempts(parse_lark(rules.written(), mode="longest"), {}, limits, Deadline(limits), {}).machine(2)
            for text in texts if machine else ():
                seen[rules.accepts(text), machine.accepts(text.encode())] += 1
    assert not seen[False, True]
    assert seen[True, False] < seen[True, True] / 20
    assert seen[True, True] > 1_000


@pytest.mark.parametrize(
    ("grammar", "texts"),
    [
        ("start: T R?\nT: /bc?(?!a)/\nR: /b|ca/", "b bca bcb bb bc ba bcca"),
        ("start: T R?\nT: /bc(?![ac])|b(?!b)/\nR: /b|ca/", "bca bcb bb b bcca bc"),
        ('start: (NAME | NUMBER)+ ";"\nNUMBER: /[0-9]+(?![a-z])/\nNAME: /[a-z]+/', "12; 1a; 12a; a12; a1b;"),
        ('start: (WORD | call)+\ncall: CALLED "(" ")"\nWORD: /[a-z]+(?![a-z(])/\nCALLED.1: /[a-z]+(?![a-z])/', "ab( ab() abcd() ab()ab() ()"),
        ('start: (INT | FLOAT | "..")+\nINT: /[0-9]+(?![.][0-9])/\nFLOAT: /[0-9]+[.][0-9]+/', "1..5 1.5 12..3 1.2.3 1. 1...2 1.23..4"),
        ('start: "(" arg ("," arg)* ")"\narg: (KEY "=")? NAME\nKEY.1: /[a-z]+(?=_*=)/\nNAME: /[a-z]+/\n%ignore "_"', "(a) (a_=b,c) (ab_) (a=b_,c=d) (a=) (a_b)"),
        ('start: x ".." x | x\nx: INT | "(" x ")"\nINT: /[0-9]+(?![.][0-9])/', "1..5 (1)..2 (1)..(3) 1.5 (1.5) (1..2)"),
        ('start: "{" pair ("," pair)* "}"\npair: KEY ":" value\nvalue: TEXT | start\nKEY: /"[a-z]*"(?=_*:)/\nTEXT: /"[a-z]*"(?!_*:)/\n%ignore "_"',
         '{"a":"b"} {"a"_:_"b"} {"a":{"b":"c"}} {"a":"b":"c"} {"a"}'),
        ('start: (IF | NAME | "-" | NUM)+\nIF.2: /\\bif\\b/\nNAME: /[a-z]+/\nNUM: /[0-9]+/\n%ignore "_"', "if ifx 1if if1 1_if if-if a_if 1ifx"),
        ('start: (NAME | ".")+\nNAME: /(?!if\\b)[a-z]+/', "if a if. .if ifx a.if.b i.f iff"),
        ('start: A "y"?\nA: B\nB: C\nC: /x(?!y)|xy(?!y)/', "x xy xyy"),
        ('start: A "b"?\nA: B\nB: /a.*?b/', "ab abb acb acbb"),
        ('start: T "b"?\nT: /(?!ab)a|(?=abb)ab/', "a ab abb abbb"),
        ('start: (A | B)+\nA: /(?<!b)aa/\nB: /[ab]/', "a aa ba baa aaa baaa abaa"),
        ('start: (TEXT | tag)*\ntag: "{{" /[a-z]+/ "}}"\nTEXT: /(?!\\{\\{).+?(?=\\{\\{|$)/', "a {{x}} a{{x}}b a{b {{x}}{{y}} a{{{x}} {{ a}}b {{x}}}} a{{b}}{"),
        ('start: A B?\nA: /<.*?>(?=xy|$)/\nB: /xyz/', "<a> <a>xyz <a>x>xyz <>>xyz <a>xz <a>xy>"),
        ('start: (SOFT | NAME) "(" ")" | SOFT NAME\nSOFT.1: /print(?![(])/\nNAME: /[a-z]+/\n%ignore " "', "print() print x prin() print( )"),
    ],
)  # fmt: skip
def test_agrees_with_lark(grammar, texts):
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    for text in texts.split(" "):
        expected = parses(judge, text)
        assert machine.accepts(text.encode()) == expected, text


LOOKING = [
    "start: x (DOTS x)?\nx: INT | FLOAT\nINT: /[0-9]{1,2}(?![.][0-9])/\nFLOAT: /[0-9][.][0-9]/\nDOTS: \"..\"",
    "start: (TEXT | T) T?\nTEXT: /(?!<<)[<0]+?(?=<<|$)/\nT: /<<[0]{0,2}/",
    "start: (A | B)~1..4\nA: /(?<!<)00/\nB: /[0<]/",
]


@pytest.mark.parametrize("grammar", LOOKING)
def test_masks_of_conditions_allow_what_can_be_completed_and_nothing_else(grammar):
    letters = "0<" if "<" in grammar else "0."
    judge, language = lark.Lark(grammar, parser="lalr"), set[str]()
    for text in ("".join(t) for n in range(9) for t in itertools.product(letters, repeat=n)):
        with contextlib.suppress(lark.exceptions.UnexpectedInput):
            judge.parse(text)
            language.add(text)
    pieces = [a + b for a in letters for b in ["", *letters]] + [letters[1] * 2 + letters[0], letters * 2]
    constraint = compile_grammar(grammar, Vocabulary.from_tokens([b"", *(piece.encode() for piece in pieces)], stop_ids=[0]))
    todo, count = [(constraint.walk(), "")], 0
    while todo:
        walk, text = todo.pop()
        allowed = walk.allowed()
        assert bool(allowed[0]) == (text in language), text
        for token, piece in enumerate(pieces, 1):
            if len(text + piece) < 6:  # what can be completed can be so within three characters
                assert bool(allowed[token]) == any(t.startswith(text + piece) for t in language), (text, piece)
                count += 1
                if allowed[token]:
                    further = constraint.walk()
                    for letter in text + piece:
                        further.advance(pieces.index(letter) + 1)
                    todo.append((further, text + piece))
    assert count > 100


def test_a_younger_lexeme_behind_the_end_of_a_call_is_refused_with_its_place():
    read = machine_of(parse_lark('start: x R\nx: "(" x ")" x | T\nT: /bc?(?!a)/\nR: "ca"', mode="longest"))
    texts = {"bca": True, "(b)bca": True, "(bc)bcca": True, "(bca)bca": False, "bc": False}
    assert {text: read.accepts(text.encode()) for text in texts} == texts
    with pytest.raises(GrammarConflictError, match=r"after '\(a\)', '!' may go on with T.*cannot go back that far"):
        machine_of(parse_lark('start: x ("!" "z")?\nx: "(" x T | "a"\nT: /[)]!?(?!z)/', mode="longest"))


def test_conditions_that_tell_which_of_two_rules_has_ended_are_read_or_refused_with_their_place():
    grammar = 'start: q "x" | r "y"\nq: "(" q ")" | A\nr: "(" r "]" | B\nA: /a(?{}[y\\]]{})/\nB.1: /a(?=[y\\]]{})/'
    read = machine_of(parse_lark(grammar.format("!", "", ""), mode="longest"))
    texts = {"ax": True, "ay": True, "(a)x": True, "(a]y": True, "(a]x": False, "(a)y": False}
    assert {text: read.accepts(text.encode()) for text in texts} == texts
    with pytest.raises(UnsupportedGrammarError, match="depends on what stands further outside"):
        machine_of(parse_lark(grammar.replace("(?{}[y\\]]{})", "(?=\\)|xx)").replace("[y\\]]{}", "y|\\]\\]"), mode="longest"))


FURTHER = """
start: s0
s0: C s1 | "(" s1 ")" s0 |
s1: A s2 | B s2 | C s0 |
s2: A s1 | B s1 | "(" s1 ")" s2
A.0: /(?:[>=](?!(?:[<>]|<)<>))/
B.1: /[>=](?![<>]>=)/
C.2: /(?:(?!(?:=[>=]|[>=][<>]))[<>][>=](?<=[<>])[>=](?=[<>])>)/
"""


def test_readings_that_differ_below_a_call_are_refused_with_their_place():
    with pytest.raises(GrammarConflictError, match=r"after '\(>=', '<' tells whether A or B has ended, and these end different rules"):
        machine_of(parse_lark(FURTHER, mode="longest"))


@pytest.mark.parametrize(
    ("rules", "texts"),
    [
        ("start: V T U | A T\nA: /a/\nV: /a(?=[.])/\nT: /<[^>]*>/\nU: /bcd?/", {"a<>": True, "a<>bc": False, "a<b>bcd": False}),
        ("start: V T U | A T W\nA: /a(?![.])/\nV: /a(?=[.])/\nT: /[.]?<[^>]*>/\nU: /b/\nW: /c/",
         {"a<>c": True, "a<>b": False, "a.<>b": True, "a.<>c": False}),
    ],
)  # fmt: skip
def test_where_a_condition_forbids_a_terminal_nothing_that_follows_it_is_called(rules, texts):
    """Neither a terminal that may stand behind another one as well."""
    machine = machine_of(parse_lark(rules, mode="longest"))
    assert {text: machine.accepts(text.encode()) for text in texts} == texts
