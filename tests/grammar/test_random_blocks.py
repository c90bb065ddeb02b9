"""Random grammars with blocks by indentation: texts against Lark's `Indenter`, and masks over tokens that hold line ends, spaces
and the next word against all that the byte machine can read."""

from __future__ import annotations

import logging
import random
import re
import warnings
from collections import Counter

import lark
import numpy as np
import pytest
from lark.indenter import DedentError, Indenter
from oracles.text_walks import all_texts, written

from fsa_compile import Vocabulary, compile_grammar
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import ConstraintError, UnsatisfiableError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

UNIT, LEVELS = 2, 3
LETTERS = 'ab i1.=+;,:()[]"#\n\n\n  \t\\'
NEWLINES = [
    r"(\n *)+", r"(\r?\n[\t ]*)+", r"(#[^\n]*)?\n([ ]*(#[^\n]*)?\n)*[ ]*(?!#)", r"\n *(\n *)*", r"(\n[ \t]*(#[^\n]*)?)*\n *", r"\n *",
    r"(\n *)+(?!ab)", r"(\n *)+(?![+;(])", r"\n *(?!x)",
]  # fmt: skip
BLOCKS = [
    "_NL _INDENT item+ _DEDENT", "_NL [_INDENT item+ _DEDENT]", "_NL _INDENT item+ _DEDENT | line _NL", "_NL _INDENT (item | _NL)+ _DEDENT",
    "_NL _INDENT [line _NL] item* _DEDENT", '":" _NL _INDENT item+ _DEDENT | ":" line _NL', '":" (line _NL | _NL _INDENT item+ _DEDENT)',
    "_NL _INDENT line (_NL line)* _NL _DEDENT", '_NL (_INDENT item+ _DEDENT)? "end" _NL', '_NL _INDENT item+ _DEDENT "end" _NL',
    "_NL _INDENT item+ _DEDENT _NL?", "_NL _INDENT (line _NL)+ _DEDENT", "_NL _INDENT NAME _NL _DEDENT",
    "_NL _INDENT line _NL [_INDENT item+ _DEDENT] _DEDENT", "_NL _INDENT field+ _DEDENT",
]  # fmt: skip
BRANCHES = [
    "block", "NAME block", 'expr ":" block', 'block ("else" block)?', 'block ("elif" expr block)* ["else" block]', "line _NL", "block block", '"(" line* ")" block',
]  # fmt: skip
LINES = ["NAME", "NAME+", "expr", 'NAME "=" expr', 'NAME ("," NAME)*', 'expr (";" expr)*', "STRING", 'NAME "=" STRING', '"*" expr']
ATOMS = ["NUMBER", "STRING", '"(" expr ")"', '"[" [expr ("," expr)*] "]"', '"(" (expr ";")* ")"', '"[" NAME+ "]"', '"(" ")"']
IGNORED = [[], ["/ +/"], ['" "'], ["/ +/", r"/#[^\n]*/"], ['" "', r"/#[^\n]*/"], [r"/[ \t]+/"]]
WORDS = ["if", "do", "a", "ab", "in", "else", "end", "x", "1", "=", "+", ";", ",", ":", "(", ")", "[", "]", '"s"', '"a\n b"', "#c", " "]
PARTS = ["\n", "\n", " ", "  ", "a", "b", "(", ")", ":", "=", ";", "#c", "if", "do", "else", "end", "\n  ", "\n    ", "\n\n", '"', ",", "1"]


SIDE_BY_SIDE = [
    "start: A _NL _NL", "start: A _NL [_INDENT A _NL _DEDENT] _NL", "start: A block block\nblock: _NL [_INDENT A _NL _DEDENT]", "start: (A _NL)* _NL?",
    "start: A b*\nb: _NL [A]", "start: A b b?\nb: _NL | _NL A", "start: A _NL b\nb: _NL? A |", "start: A [_NL _INDENT A b _DEDENT] _NL\nb: _NL [_INDENT A _NL _DEDENT]",
]  # fmt: skip
"""Rules in which newlines may stand side by side."""


class _Units(Indenter):
    """Lark's `Indenter` where every block is indented by the unit and only so many may be open."""

    NL_type, INDENT_type, DEDENT_type, tab_len = "_NL", "_INDENT", "_DEDENT", 8
    OPEN_PAREN_types, CLOSE_PAREN_types = ["LPAR", "LSQB"], ["RPAR", "RSQB"]

    def handle_NL(self, token):  # noqa: N802
        spaces, here = token.rsplit("\n", 1)[1], self.indent_level[-1]
        if self.paren_level <= 0 and (spaces.strip(" ") or here < len(spaces) != here + UNIT or len(spaces) > UNIT * LEVELS):
            raise DedentError
        yield from super().handle_NL(token)


class _Conflicts(logging.Handler):
    """Counts the conflicts that Lark's LALR decides without a word."""

    found = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.found += "Shift/Reduce" in record.getMessage()


def random_grammar(rng: random.Random) -> str:
    """Items that begin with keywords, lines, blocks, brackets over lines, comments."""
    branches = [f'"{word}" {rng.choice(BRANCHES)}' for word in rng.sample(["if", "do", "a", "ab", "el", "in"], rng.randint(1, 3))]
    branches.append(rng.choice(["line _NL", "NAME _NL", "line _NL", "line block", 'NAME ":" block', 'line (";" line)* [";"] _NL']))
    rules = [
        f"start: {rng.choice(['(_NL | item)*', 'item*', '_NL? item*', 'item+', '(item _NL*)*', '_NL* item'])}",
        f"item: {' | '.join(branches)}",
        f"block: {rng.choice(BLOCKS)}",
        f"line: {rng.choice(LINES)}",
        "field: NAME " + rng.choice(["_NL", '"=" expr _NL', '":" block']),
        "expr: " + rng.choice(["atom", 'atom ("+" atom)*', "atom+", 'atom ["-" expr]']),
        f"atom: {' | '.join(['NAME', *rng.sample(ATOMS, rng.randint(1, 4))])}",
        f"NAME: {rng.choice(['/[a-z]+/', '/[a-z][a-z0-9]*/'])}",
        f"NUMBER: {rng.choice(['/[0-9]+/', '/[0-9]+([.][0-9]+)?/'])}",
        "STRING: " + rng.choice(['/"[^"]*"/', r'/"[^"\n]*"/']),
        f"_NL: /{rng.choice(NEWLINES)}/",
        "%declare _INDENT _DEDENT",
    ]
    return "\n".join([*rules, *(f"%ignore {one}" for one in rng.choice(IGNORED))])


def random_text(rng: random.Random) -> str:
    """Lines of words at some level or beside one."""
    text, level = "", 0
    for _ in range(rng.randint(1, 5)):
        level = max(0, min(LEVELS + 1, level + rng.choice([1, 1, 0, 0, 0, -1, -2])))
        words = rng.choice(["", " "]).join(rng.choices(WORDS, k=rng.choice([0, 1, 1, 2, 3, 4])))
        text += " " * (UNIT * level + rng.choice([0] * 12 + [1, 2])) + words + rng.choice(["\n", "\n", "\n\n", "\n  \n", "#c\n", " \n"])
    return text if rng.random() < 0.8 else text.rstrip("\n")


def changed(text: str, rng: random.Random) -> str:
    """With a few letters more, fewer or changed."""
    for _ in range(rng.choice([0, 1, 1, 2])):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(["", *LETTERS, "\n", "\n  ", "\n    "]) + text[at + rng.randint(0, 1) :]
    return text


def parsers_of(grammar: str) -> tuple[lark.Lark, lark.Lark] | None:
    """Lark's parsers with the contextual and with the basic lexer; None where LALR has a conflict."""
    conflicts, level = _Conflicts(), lark.logger.level
    lark.logger.addHandler(conflicts)
    lark.logger.setLevel(logging.DEBUG)
    lark.logger.propagate, said = False, lark.logger.handlers[:-1]
    lark.logger.handlers = [conflicts]
    try:
        lark.Lark(grammar, parser="lalr", postlex=_Units(), debug=True)
    except lark.exceptions.LarkError:
        return None
    finally:
        lark.logger.handlers, lark.logger.propagate = said, True
        lark.logger.setLevel(level)
    if conflicts.found:
        return None
    contextual, basic = (lark.Lark(grammar, parser="lalr", lexer=lexer, postlex=_Units()) for lexer in ("contextual", "basic"))
    return contextual, basic


def parses(parser: lark.Lark, text: str) -> bool:
    """Whether Lark reads a text, to which the last line end may be put."""
    for whole in (text, text + "\n"):
        try:
            parser.parse(whole)
        except (lark.exceptions.LarkError, DedentError):
            continue
        return True
    return False


def is_left_out(text: str) -> bool:
    """Whether a text has what the documentation says is left out: spaces before the first line, and tabs before others; spaces
    behind the last line end, and comments that are ignored at the begin of a line."""
    rows = text.split("\n")
    return text[:1] in " \t" or any(row.lstrip(" ")[:1] in ("\t", "#") for row in rows) or bool(re.search(r"[ \t]\Z", text))


def check_texts(grammar: str, parsers: tuple[lark.Lark, lark.Lark], machine: ByteMachine, rng: random.Random) -> Counter:
    """What is read, contextual Lark reads; what Lark reads with both lexers, which reserve keywords more or less, is read."""
    counts: Counter = Counter()
    for i in range(40):
        text = random_text(rng) if i % 3 == 0 else changed(written(machine, rng, LETTERS, rng.randint(0, 40)), rng)
        ours, (contextual, basic) = machine.accepts(text.encode()), (parses(parser, text) for parser in parsers)
        out = is_left_out(text)
        assert contextual if ours else not (basic and contextual) or out, (grammar, text, ours)
        counts.update(["checks", f"texts {ours}"])
    return counts


def check_masks(grammar: str, machine: ByteMachine, rng: random.Random) -> Counter:
    """A token is allowed if and only if the machine can read it; so no walk ends before a text does."""
    made = {"".join(rng.choices(PARTS, k=rng.randint(2, 4))).encode() for _ in range(24)}
    pieces = [b"", *(bytes([b]) for b in range(256)), *sorted(piece for piece in made if len(piece) > 1)]
    walks, counts = compile_grammar(grammar, Vocabulary.from_tokens(pieces, stop_ids=[0])), Counter()
    for _ in range(4):
        walk, here = walks.walk(), {machine.initial}
        for _ in range(rng.randint(5, 30)):
            allowed = np.asarray(walk.allowed())[: len(pieces)]
            wanted = [machine.may_end(here), *(bool(machine.run(piece, here)) for piece in pieces[1:])]
            assert allowed.tolist() == wanted, (grammar, walk)
            assert allowed.any()
            counts.update(masks=1, checks=len(pieces))
            further = np.flatnonzero(allowed[1:]).tolist()
            if not further:
                break
            token = rng.choice([t for t in further if pieces[t + 1].isascii()] or further) + 1
            walk.advance(token)
            here = machine.run(pieces[token], here)
    return counts


def check_calls(grammar: str, machine: ByteMachine, rng: random.Random) -> Counter:
    """Rules that are called, whether or not they hold newlines, leave the language as it is."""
    names = rng.sample(["block", "line", "item", "expr", "atom"], rng.randint(1, 2))
    try:
        called = machine_of(parse_lark(f"{grammar}\n%call {' '.join(names)}"))
    except ConstraintError:
        return Counter({"calls refused": 1})
    for i in range(30):
        text = changed(written((machine, called)[i % 2], rng, LETTERS, rng.randint(0, 40)), rng).encode()
        assert machine.accepts(text) == called.accepts(text), (grammar, names, text)
    return Counter({f"{name} called": 1 for name in names}, checks=30)


def one_case(rng: random.Random) -> Counter:
    """A grammar with texts and masks."""
    grammar = random_grammar(rng)
    parsers = parsers_of(grammar)
    if parsers is None:
        return Counter(conflict=1)
    grammar += f"\n%indent {UNIT} {LEVELS}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            machine = machine_of(parse_lark(grammar))
        except ConstraintError:
            return Counter(refused=1)
        found = check_texts(grammar, parsers, machine, rng) + check_masks(grammar, machine, rng)
        return Counter(made=1) + found + check_calls(grammar, machine, rng)


NEWLINES_READ = [
    r"(\n *)+", r"( *\n)+ *", r"\n *", r"(\r?\n[\t ]*)+", r"(\n *)+(?!ab)", r"\n+ *", r"\n(\n *)?", r"\n\n? *(?!a)",
]  # fmt: skip
"""The last three read a further line end behind some of their texts alone."""


@pytest.mark.parametrize("newline", NEWLINES_READ)
@pytest.mark.parametrize("rules", SIDE_BY_SIDE)
def test_a_line_end_is_not_missing_behind_one_that_would_hold_it(rules, newline):
    """All texts of some pieces: a newline that reads several line ends is one lexeme with the last one."""
    grammar = f'{rules}\nA: "a"\n_NL: /{newline}/\n%declare _INDENT _DEDENT\n'
    parsers = parsers_of(grammar)
    assert parsers is not None
    wanted = {text for text in all_texts(["a", "\n", "  "], 6) if parses(parsers[0], text)}
    try:
        machine = machine_of(parse_lark(f"{grammar}%indent {UNIT} {LEVELS}"))
    except UnsatisfiableError:
        assert not wanted
        return
    taken = {text for text in all_texts(["a", "\n", "  "], 6) if machine.accepts(text.encode())}
    assert taken <= wanted
    assert all(map(is_left_out, wanted - taken))


def test_random_blocks(tally):
    for rng in tally.cases(12, least=400):
        tally.update(one_case(rng))
    assert tally["made"] > tally["refused"]
    assert min(tally["texts True"], tally["texts False"]) > 2 * tally["made"]
    assert any(name.endswith(" called") for name in tally)
