"""Lexemes that end where a longer match has begun and fails: the corpus, and random grammars of overlapping terminals, against Lark."""

from __future__ import annotations

import random

import lark
import pytest
from oracles.grammar_judges import parses

from fsa_compile import Vocabulary, compile_grammar
from fsa_compile.errors import ConstraintError, GrammarConflictError
from fsa_compile.grammar import grammar_machine
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

NUMBERS = 'start: (NUM | NAME) (("." | "..") (NUM | NAME))*\nNAME: /[a-z]+/\nNUM: '
CORPUS = {
    'start: ("a"|"abq"|"c") tail?\ntail: "bQ"': ("abQ abq a abqbQ cbQ", "ab abqb abqQ bQ aabq"),
    NUMBERS + "/[0-9]+([.][0-9]+)?/": ("1..5 1.5 1.foo 1.0.foo 1.5.5 a.5 a..1.2 1.5..2.5.x", "1. 1...5 1.5. 1..5. .5 1a"),
    NUMBERS + "/[0-9]+([.][0-9]+)?(e[0-9]+)?/": ("1..5 1.e 1.5e5 1e5.e 1.5e5..7", "1.e5x. 1.5e 1e 1.5e5e 1..5e"),
    'start: (TEXT|call)*\ncall: "！！！" /[a-z]+/ "。"\nTEXT: /[^！。]+/': (
        "日本！！！x。ok 日本 ！！！x。 a！！！b。c！！！d。", "日本！x ！！x。 ！！！x 日本！！！！x。 。",
    ),
    'start: (A | B | C)+\nA: "a"\nB: "abab"\nC: "b" | "ba"': ("ab aba abab ababa abaabab", "c abc"),
    'start: (A|B)+\nA: "a"\nB: /a+b/': ("a aa aab aaba ab abab abaa", "b abb aabb ba"),
    'start: "(" start? ")" | "a" t\nt: "bc" | "b" "(" start ")"\n%ignore "abd"': ("abc (abc) ab(abc) abdabc", "abb abd ab (ab)"),
}  # fmt: skip
LITERALS = ["a", "b", "ab", "abc", "abab", "bc", "c", "ca", "cab", "aab", "bb", "abca", "bcab"]


@pytest.mark.parametrize("grammar", CORPUS)
def test_the_corpus_is_read_as_lark_reads_it(grammar):
    parser, machine = lark.Lark(grammar, parser="lalr"), machine_of(parse_lark(grammar, mode="longest"))
    assert machine.deterministic
    for texts, wanted in zip(CORPUS[grammar], (True, False)):
        for text in texts.split(" "):
            assert (parses(parser, text), machine.accepts(text.encode())) == (wanted, wanted), text


def test_masks_allow_what_can_be_completed_and_nothing_else():
    grammar = 'start: ("a"|"abq"|"c") tail?\ntail: "bQ"'
    tokens = [b"", *(bytes([b]) for b in b"abcqQ"), b"ab", b"bQ", b"bq", b"abQ", b"bb", b"qb"]
    constraint = compile_grammar(grammar, Vocabulary.from_tokens(tokens, stop_ids=[0]))
    language = {head + tail for head in (b"a", b"abq", b"c") for tail in (b"", b"bQ")}
    todo = [(constraint.walk(), b"")]
    while todo:
        walk, text = todo.pop()
        allowed = walk.allowed()
        assert bool(allowed[0]) == walk.accepting == (text in language)
        for token, piece in list(enumerate(tokens))[1:]:
            assert bool(allowed[token]) == any(t.startswith(text + piece) for t in language), (text, piece)
            if allowed[token]:
                further = constraint.walk()
                for byte in text + piece:
                    further.advance(tokens.index(bytes([byte])))
                todo.append((further, text + piece))


def random_grammar(rng: random.Random) -> tuple[str, list[str]]:
    """A grammar whose terminals begin alike, and texts over them. Strings only: of patterns Lark takes the wider, not the longer."""
    terminals = rng.sample(LITERALS, rng.randint(2, 5))
    names = [f'"{text}"' for text in terminals]

    def some(count: int) -> str:
        return " ".join(rng.choice([*names, "x"]) + rng.choice(["", "", "?"]) for _ in range(count))

    lines = [f"start: ({some(rng.randint(1, 2))} | {some(1)})+", f"x: {rng.choice(names)} {rng.choice(names)}?"]
    lines += rng.choice([[], ['%ignore " "']])
    pieces = [*terminals, "a", "b", "c", " "]
    return "\n".join(lines), ["".join(rng.choices(pieces, k=rng.randint(1, 5))) for _ in range(50)]


@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
def test_random_grammars_are_read_as_lark_reads_them(exhaustive):
    both = {True: 0, False: 0}
    refused = 0
    for seed in range(6_000 if exhaustive else 120):
        grammar, texts = random_grammar(random.Random(seed))
        try:
            parser = lark.Lark(grammar, parser="lalr", strict=True)  # else it prefers to shift where it has a choice
            machine = machine_of(parse_lark(grammar, mode="longest"))
        except (lark.exceptions.GrammarError, ConstraintError) as error:
            refused += "cannot go back that far" in str(error)
            continue
        for text in texts:
            taken = machine.accepts(text.encode())
            both[taken] += 1
            assert parses(parser, text) == taken, (seed, grammar, text)
    assert min(both.values()) > 100
    assert not exhaustive or 0 < refused < 60


REFUSED = {
    'start: (A|B|C)+\nA: "a"\nB: "ababababababx"\nC: "b"': "ababababa",  # more than four lexemes; with several stacks the first
    'start: x ("!" "z")?\nx: "(" x B | "a"\nB: ")" | ")!!"': "(a)",  # the next lexeme follows the end of a call
}
"""Grammars, and the shortest text after which going back takes more than there is."""


@pytest.mark.parametrize("grammar", REFUSED)
@pytest.mark.parametrize("stacks", [1, 2])
def test_what_the_lexer_cannot_go_back_over_is_refused_with_its_place(grammar, stacks):
    with pytest.raises(GrammarConflictError) as caught:
        machine_of(parse_lark(grammar, mode="longest"), stacks=stacks)
    assert "cannot go back that far" in str(caught.value)
    assert "goes on with B" in caught.value.readings[1]
    assert caught.value.example == (REFUSED[grammar] if stacks == 1 or REFUSED[grammar][0] == "(" else "a").encode()
    assert 'mode="characters"' in caught.value.fix


def test_with_several_stacks_the_lexer_does_not_go_back_and_says_so():
    grammar = 'start: x\nx: A x A | A\nA: "a" | "a.a"\n%ignore "."'
    with pytest.raises(GrammarConflictError, match="cannot go back that far"):
        machine_of(parse_lark(grammar, mode="longest"), stacks=4)


def test_a_call_goes_on_behind_its_opener_where_the_lexer_goes_back_over_that():
    machine = machine_of(parse_lark('start: A y\nA: "a" | "a(b"\ny: "(" y ")" | "c"', mode="longest"))
    texts = {"a(c)": True, "a(bc": True, "a(b(c)": True, "a((c))": True, "ac": True, "a(b)": False, "a(c": False}
    assert {text: machine.accepts(text.encode()) for text in texts} == texts


def test_the_beginning_of_a_reserved_word_is_no_lexeme():
    grammar = 'start: NAME+ ";" | "any" ";" | "if" NAME\nNAME: /[a-z]+/\n%ignore " "'
    machine = machine_of(parse_lark(grammar, mode="longest"))
    verdicts = {"if an": True, "an y;": True, "if any": False, "a any;": False, "anyx;": True}
    assert {text: machine.accepts(text.encode()) for text in verdicts} == verdicts


@pytest.mark.parametrize("comment", [r"/\/\/[^\n]*/", r"/\/\/.*/", r"/\/\/([^\n;]|;[^\n])+/"])
def test_a_comment_goes_on_within_a_character_that_other_lexemes_begin_with(comment):
    """What begins with the same byte need not be read beside it: whichever the character is, the comment has it."""
    grammar = f"start: block\nblock: \"{{\" (NUMBER \";\" | block)* \"}}\"\nNUMBER: /\\d+/\n%ignore {comment}\n%ignore /\\s+/"
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    for text in ("{１;}", "{//１\n２;}", "{1;//é１\n{}}", "{1;//é１}", "{//１;\n}", "{//a１\n;}"):
        assert machine.accepts(text.encode()) == parses(judge, text), text
    assert not machine.run("{//１".encode()[:-1] + b"\n")


def test_what_ends_within_characters_is_gone_back_over():
    """Of the characters with one first byte the longer terminal reads some only."""
    grammar = 'start: (A | B)+\nA: /a[^ê]?/\nB: /[é-ë]/'
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    for text in ("aé", "aê", "aêaé", "éa", "aëê", "a", "aèê", "ê"):
        assert machine.accepts(text.encode()) == parses(judge, text), text


def test_what_going_back_cannot_remove_is_told_without_going_back(monkeypatch):
    """A call is never read beside a longer match; nor does going back undo a call that is possible beside a lexeme."""
    tried = list[bool]()

    class Noted(grammar_machine.FrameBuilder):
        def __init__(self, *args, back, **options):
            tried.append(back)
            super().__init__(*args, back=back, **options)

    monkeypatch.setattr(grammar_machine, "FrameBuilder", Noted)
    cannot_go_back = 'start: e+\ne: A | M | "(" e ")"\nA: "a"\nM: "a(b"\n%call e'
    two_ways = 'start: ("(" "x" | e)+\ne: "(" e? ")"\nX: "y" | "yzz"\n%ignore X\n%call e'
    for grammar, why in ((cannot_go_back, "cannot go back that far"), (two_ways, "two ways")):
        with pytest.raises(GrammarConflictError, match=why):
            machine_of(parse_lark(grammar))
    assert len(tried) > 1
    assert not any(tried)


def test_the_way_out_is_in_the_words_of_the_grammar():
    greedy = 'start: e\ne: "(" e ")" | N | e "&" e\nN: /\\w+|".*"/\n%ignore " "'
    ignored = 'start: (x | C)*\nx: C "{" x* "}"\nC: /#[a-z]*;/\n%ignore C\n%call x'
    for grammar, fix in (
        (greedy, r'N goes on to the last " of a line: write [^"\n]*" for .*", and it ends at the first.'),
        (ignored, "C is ignored, and also stands in start (line 1) and x (line 2): choose one"),
    ):
        with pytest.raises(GrammarConflictError) as caught:
            machine_of(parse_lark(grammar))
        assert caught.value.fix.startswith(fix)
    machine_of(parse_lark(greedy.replace(".*", r'[^"\n]*')))
    far = 'start: x\nx: A x A | A\nA: "a" | "a.a"\n%ignore "."'
    with pytest.raises(GrammarConflictError) as caught:
        machine_of(parse_lark(far))
    assert "characters" not in caught.value.fix  # that mode ignores nothing
