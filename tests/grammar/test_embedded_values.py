"""Values inside grammars (`%json`, `%lark`, `%regex`, bounds on rules), both sides, and captures against Lark's trees."""

from __future__ import annotations

import itertools
import json
import random

import lark
import pytest
from grammar.test_longest_texts import written

import fsa_compile
from fsa_compile import Vocabulary, compile_grammar, parse_captures
from fsa_compile.errors import ConstraintError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

BYTES = Vocabulary.from_tokens(
    [b"", *(bytes([b]) for b in range(256)), b"", b""], stop_ids=[0], special={"<|x|>": 257, "<|y|>": 258}
)


def reads(constraint, text: str | list[int]) -> bool:
    walk = constraint.walk()
    for token in [b + 1 for b in text.encode()] if isinstance(text, str) else text:
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return walk.accepting


def test_masks_of_values_allow_what_can_be_completed_and_nothing_else():
    grammar = """start: "<" v (";" v)? ">"
v: %json {"enum": [1, 12, "a"]} | %lark { start: "x" y?
 y: "y" } | "b" """
    values = ["1", "12", '"a"', "x", "xy", "b"]
    language = {f"<{';'.join(some)}>".encode() for n in (1, 2) for some in itertools.product(values, repeat=n)}
    tokens = [
        b"",
        *(bytes([b]) for b in b'<>12"axyb;'),
        b"<1",
        b"12",
        b"2;",
        b'"a',
        b'a">',
        b"xy",
        b"y;x",
        b"1;1",
        b'<"a"',
        b';"',
    ]
    constraint = compile_grammar(grammar, Vocabulary.from_tokens(tokens, stop_ids=[0]))
    todo, count = [(b"", list[int]())], 0
    while todo:
        text, taken = todo.pop()
        walk = constraint.walk()
        for token in taken:
            walk.advance(token)
        allowed = walk.allowed()
        assert bool(allowed[0]) == (text in language)
        for token, piece in list(enumerate(tokens))[1:]:
            assert bool(allowed[token]) == any(t.startswith(text + piece) for t in language), (text, piece)
            if allowed[token]:
                todo.append((text + piece, [*taken, token]))
            count += 1
    assert count > 3_000


def test_schemas_may_recur_and_stand_in_recursion():
    schema = {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}
    grammar = f'start: "(" start ")" | %json {json.dumps(schema)} ("," start)?\n%ignore " "'
    constraint = compile_grammar(grammar, BYTES)
    rng = random.Random(5)
    counts = {True: 0, False: 0}

    def text(depth: int) -> str:
        if depth and rng.random() < 0.4:
            return f"({text(depth - 1)})"
        nested = rng.randint(1, 3)
        return "[" * nested + "]" * nested + (f" , {text(depth - 1)}" if depth and rng.random() < 0.5 else "")

    def judge(text: str) -> bool:
        """Values are found by `json`."""
        text = text.strip(" ")
        if text.startswith("("):
            return text.endswith(")") and judge(text[1:-1])
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return False
        rest = text[end:].lstrip(" ")
        return (
            text[:end] == json.dumps(value)
            and set(text[:end]) == set("[]")
            and (not rest or (rest[0] == "," and judge(rest[1:])))
        )

    for _ in range(300):
        sample = text(3)
        if rng.random() < 0.6:
            at = rng.randrange(len(sample))
            sample = sample[:at] + rng.choice(["", "(", "]", ",", " "]) + sample[at + 1 :]
        wanted = judge(sample)
        assert reads(constraint, sample) == wanted, sample
        counts[wanted] += 1
    assert min(counts.values()) > 80


def test_substrings_of_lists_are_those_of_python():
    chunks = ["ab", "a", "b", "", "é", "ab"]
    wanted = {"".join(chunks[i:j]) for i in range(7) for j in range(i, 7)}
    constraint = compile_grammar(f'start: "<" X ">"\nX: %regex {json.dumps({"substring_chunks": chunks})}', BYTES)
    letters = ["", *("".join(some) for n in range(1, 6) for some in itertools.product("abé", repeat=n))]
    assert {text for text in letters if reads(constraint, f"<{text}>")} == {text for text in wanted if len(text) < 6}
    words = compile_grammar('start: %regex {"substring_words": "foo bar. baz"} "!"', BYTES)
    verdicts = {"foo bar!": True, "bar. !": True, "!": True, "ba!": False, "foobar!": False}
    assert {text: reads(words, text) for text in verdicts} == verdicts


def test_bounds_on_rules():
    few = compile_grammar('start: x ";" x?\nx[max_chars=3]: /[aé]+/', BYTES)
    texts = ["".join(some) for n in range(1, 5) for some in itertools.product("aé", repeat=n)]
    assert [reads(few, f"{text};") for text in texts] == [len(text) <= 3 for text in texts]
    tokens = [b"", b"a", b"b", b"ab", b"c", b"", b"bb", *(bytes([b]) for b in range(256) if b not in b"abc")]
    counted = compile_grammar(
        "start: 'c' x <|x|>\nx[max_tokens=2]: /[ab]*/".replace("'", '"'),
        Vocabulary.from_tokens(tokens, stop_ids=[0], special={"<|x|>": 5}),
    )
    for n in range(4):
        for some in itertools.product((1, 2, 3, 6), repeat=n):
            assert reads(counted, [4, *some, 5]) == (n <= 2)
            assert not reads(counted, [4, *some])


def test_counted_lexemes_behind_which_nothing_returns_for_some_tokens():
    longer = [b"a;", b"ba", b"aba", b";a", b"b;", b",a", b"aa", b"1,", b"1;", b" a", b"a "]
    pieces = [b"", *(bytes([b]) for b in range(256)), "é".encode(), *longer, b"", b""]
    x = len(pieces) - 2
    vocabulary = Vocabulary.from_tokens(pieces, stop_ids=[0], special={"<|x|>": x, "<|y|>": x + 1})
    grammar = 'start: "a" r <|x|> "a" ("1")? <|x|> s\nr[max_tokens=1]: /[^;]*/\ns[max_tokens=2]: /a?/'
    constraint = compile_grammar(grammar, vocabulary, mode="characters")
    a, one, semicolon, two = ord("a") + 1, ord("1") + 1, ord(";") + 1, pieces.index(b"aa")
    for good in ([], [two], [a], [one], [pieces.index(b"1,")]):
        assert reads(constraint, [a, *good, x, a, x])
        assert reads(constraint, [a, *good, x, a, one, x, a])
    assert reads(constraint, [two, x, a, x])
    for bad in ([semicolon], [pieces.index(b"a;")], [a, a], [x]):
        assert not reads(constraint, [a, *bad, x, a, x])


REFUSED = {
    'start: NAME %json {"enum": [true]}\nNAME: /[a-z]+/': "line 1.*\n.*\n.*\n.*begin otherwise",
    'start: %json {"type": "integer"} "1"': "the byte '1' goes on with the value",
    'start: /a\\b/ %json {"type": "strin"}': "unknown type 'strin'.*\n.*of %json in line 1",
    'start: %json {"type":': "this { is never closed",
    "start: %json 3": "%json takes a schema in braces",
    "start: %json {3}": "line 1, column 8.*\n.*\n.*\n.*The block is JSON",
    "start: a\na: %lark {\n start: b }": "rule 'b' is not defined .line 3",
    'start: %regex {"x": 1}': "%regex takes one key",
    'start: x "b"\nx[max_tokens=3]: /[a-z]+/': "ends only with a special token",
    'start: x\nx[max_chars=3]: y+\ny: "a"': "line 2.*\n.*\n.*\n.*upper case",

    'start: x\nx[lazy]: "a"': "Write a lazy loop",
    'start: x\nx[captur]: "a"': "Did you mean capture",
    'start: x\nx[capture: "a"': "never closed",
    'start: X\nX[capture]: "a"': "take no options",
    'start: (x|y)+\nx: "a" %json {"enum": ["b"]}\ny: "a" /"c/': "begins the value",
}


@pytest.mark.parametrize("grammar", REFUSED)
def test_what_cannot_be_enforced_is_refused_with_its_place(grammar):
    with pytest.raises(ConstraintError, match=REFUSED[grammar]):
        compile_grammar(grammar, BYTES)


def test_a_condition_at_the_end_of_a_terminal_holds_before_a_value():
    constraint = compile_grammar('start: /if\\b/ %json {"enum": [1, "a"]}\n%ignore " "', BYTES)
    assert [reads(constraint, text) for text in ("if 1", 'if "a"', "if1")] == [True, True, False]
    assert not reads(constraint, 'if"a"')  # on the page of limits


PROGRAMS = """start: statement*
statement[capture]: NAME "=" expr ";" | "if" expr block | block
block[capture="body"]: "{" statement* "}"
expr[capture]: atom (("+" | "==") atom)*
atom[capture]: NAME | NUMBER | "(" expr ")" | call
call: NAME "(" [expr ("," expr)*] ")"
NAME: /[a-z]+/
NUMBER: /[0-9]+([.][0-9]+)?/
%ignore / +/
"""


def test_captures_are_the_spans_of_larks_trees():
    plain = "\n".join(
        line.split("[capture")[0] + line[line.index(":") :] if "[capture" in line else line for line in PROGRAMS.split("\n")
    )
    parser = lark.Lark(plain, parser="lalr", propagate_positions=True)
    machine, rng, texts = machine_of(parse_lark(plain)), random.Random(3), 0
    for _ in range(400):
        text = written(machine, rng, "abif09.{}()=;+ ", 40)
        if not machine.accepts(text.encode()):
            continue
        texts += bool(text)
        tree = parser.parse(text)
        found = parse_captures(PROGRAMS, BYTES, [b + 1 for b in text.encode()] + [0])
        for rule, name in {"statement": "statement", "block": "body", "expr": "expr", "atom": "atom"}.items():
            spans = sorted((t.meta.start_pos, t.meta.end_pos) for t in tree.find_data(rule))
            assert sorted((c.start, c.end) for c in found[name]) == spans, (text, name)
            assert all(text[c.start : c.end] == c.text for c in found[name])
    assert texts > 30


def test_captures_read_conditions_at_the_end_as_the_machine_does():
    grammar = 'start: (head | word | ":")*\nhead[capture]: /[a-z]+(?=:)/\nword[capture]: /[a-z]/\n'
    parser = lark.Lark(grammar.replace("[capture]", ""), parser="lalr", propagate_positions=True)
    for text in map("".join, itertools.product("ab:", repeat=5)):
        found, tree = parse_captures(grammar, BYTES, text), parser.parse(text)
        for rule in ("head", "word"):
            assert [(c.start, c.end) for c in found[rule]] == sorted((t.meta.start_pos, t.meta.end_pos) for t in tree.find_data(rule)), text


@pytest.mark.parametrize(
    ("grammar", "letters"),
    [
        ("start: (text | tag)*\ntext[capture]: /(?!<<)[a<]+?(?=<<|$)/\ntag[capture]: \"<<\"", "a<"),
        ("start: (x | y)*\nx[capture]: /(?<!b)aa?/\ny[capture]: /[ab]/", "ab"),
        ("start: (x | y)*\nx[capture]: /a+(?!ab|ba)b?/\ny[capture]: /[ab]/", "ab"),
    ],
)
def test_captures_see_the_text_around_terminals_as_the_machine_does(grammar: str, letters: str):
    parser = lark.Lark(grammar.replace("[capture]", ""), parser="lalr", propagate_positions=True)
    machine, count = machine_of(parse_lark(grammar, mode="longest")), 0
    for text in map("".join, itertools.product(letters, repeat=6)):
        try:
            tree = parser.parse(text)
        except lark.exceptions.UnexpectedInput:
            assert not machine.accepts(text.encode())
            with pytest.raises(ConstraintError, match="the text is not the grammar's"):
                parse_captures(grammar, BYTES, text)
            continue
        assert machine.accepts(text.encode())
        for rule, found in parse_captures(grammar, BYTES, text).items():
            assert [(c.start, c.end) for c in found] == sorted((t.meta.start_pos, t.meta.end_pos) for t in tree.find_data(rule)), text
        count += 1
    assert count > 20


def test_conditions_on_the_text_around_are_refused_where_tokens_are_counted_or_values_stand_before():
    for condition in ("b+(?!c)", "b+(?!cd)", "(?<!a)b+", "(?!bc)b+"):
        with pytest.raises(ConstraintError, match="condition on the text around it cannot be kept where tokens are counted"):
            compile_grammar(f"start: v\nv[max_tokens=2]: T\nT: /{condition}/", BYTES)
    with pytest.raises(ConstraintError, match="would look at values whose text is not known"):
        compile_grammar('start: %json {"enum": [1]} T\nT: /(?<!2)b/', BYTES)


def test_captures_with_values_special_tokens_and_without_a_lexer():
    grammar = 'start: x <|x|> y? z\nx[capture]: /[a-z]+/\ny[capture="v"]: %json {"type": "object"}\nz[capture]: "é"*'
    ids = [t + 1 for t in b"ab"] + [257] + [t + 1 for t in b'{"k": 1}'] + [t + 1 for t in "éé".encode()] + [0]
    found = parse_captures(grammar, BYTES, ids)
    Capture = fsa_compile.Capture
    assert found == {"x": [Capture(0, 2, "ab")], "v": [Capture(2, 10, '{"k": 1}')], "z": [Capture(10, 14, "éé")]}
    anywhere = 'start: (a | "aab")+\na[capture]: "a"'
    assert [c.start for c in parse_captures(anywhere, BYTES, "aaaba", mode="characters")["a"]] == [0, 4]
    for wrong in ("b", "aaa"):
        with pytest.raises(ConstraintError, match="the text is not the grammar's, at byte"):
            parse_captures('start: "aa" x?\nx[capture]: "c"', BYTES, wrong)
    with pytest.raises(ConstraintError, match="begins with itself"):
        parse_captures('start: e\ne[capture]: e "+" "a" | "a"', BYTES, "a+a")
    with pytest.raises(ConstraintError, match="no rule with the option capture"):
        parse_captures('start: "a"', BYTES, "a")


def test_lists_of_special_tokens():
    either = compile_grammar('start: "a" <[257-258]>', BYTES)
    assert [reads(either, [ord("a") + 1, token]) for token in (257, 258)] == [True, True]
    for wrong in ("<[^257]>", "<[*]>", "<[3-]>", "<[0-5000]>"):
        with pytest.raises(ConstraintError, match="no list of token numbers"):
            compile_grammar(f'start: "a" {wrong}', BYTES)


def test_the_table_of_differences():
    """What docs/grammars.md says of Lark and of this project."""

    def larks(grammar: str, text: str, **options: str) -> bool:
        try:
            lark.Lark(grammar, parser="lalr", **options).parse(text)
        except (lark.exceptions.UnexpectedInput, lark.exceptions.GrammarError):
            return False
        return True

    merged = 'start: (x x | "aab")+\nx: "ab" "a"?'
    assert (larks(merged, "abaab"), reads(compile_grammar(merged, BYTES), "abaab")) == (False, True)
    differing = {
        ('start: BIN "x" | INT "y"\nBIN: /0b[01]+/\nINT: /[0-9][0-9_]*/', "0b1x"): (False, True),
        ('start: "a" X | X "c"\nX: /[ab]+/\n%ignore " "', "a a"): (True, False),
        ('start: "return" "("? X\nX: /[a-z]+/', "returnx"): (True, False),
        ('start: A "1" | B "2"\nA: /x+/\nB: /x+/', "x2"): (False, True),
        ('start: x "a"\nx: "a"*', "a"): (False, True),
        ('start: T\nT: /a|b/ "c"', "ac"): (False, True),
        ('start: T\nT: /a|b/ "c"', "a"): (True, False),
        ('start: T\nT: "a"\n%ignore T', "a"): (False, True),
        ('start: "IF"i "1" | /[a-z]+/ "2"', "if1"): (False, True),
        ('start: "IF"i "1" | /[a-z]+/ "2"', "if2"): (True, False),
        ('start: "a" "\\n" "b"\n%ignore /\\s+/', "a\nb"): (False, True),
    }
    assert {case: (larks(*case), reads(compile_grammar(case[0], BYTES), case[1])) for case in differing} == differing
    far = 'start: (A|B|C)+\nA: "a"\nB: "ababababababx"\nC: "b"'
    assert larks(far, "abababababab")
    for refused in (
        far,
        'start: "a"{2,5}',
        'start: A & "b"\nA: "a"',
        'start: "\\d"',
        "%declare X\nstart: X",
        'start: "a"\n%import x.Y',
    ):
        with pytest.raises(ConstraintError):
            compile_grammar(refused, BYTES)
    assert not reads(compile_grammar('start: "a" "b"', BYTES), "a b")
    assert not larks('start: "a" "b"', "a b")
