"""Arguments that grammars have besides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from fsa_compile.errors import ConstraintError, UnsupportedGrammarError, is_word
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:  # a pattern needs none of it
    from fsa_compile.grammar.grammar_tree import Expression, Grammar, LexicalMode, SpecialToken

Syntax = Literal["lark", "gbnf"]


_MOST_LOOKED_AT = 100_000
"""Characters of a pattern that is looked at for being a grammar."""
MAX_STACKS = 16
"""Most parallel stacks of a constraint: the cost of a step grows with them."""


def parse_grammar(
    text: str,
    *,
    start: str | None = None,
    syntax: Syntax | None = None,
    mode: LexicalMode | None = None,
    limits: CompileLimits | None = None,
) -> Grammar:
    """Reads a grammar without compiling it; the arguments and errors are `compile_grammar`'s."""
    limits = limits or CompileLimits()
    if not is_word(syntax, (None, "lark", "gbnf")):
        raise ConstraintError(f"unknown grammar syntax {syntax!r}", fix='Write syntax="lark" or syntax="gbnf".')
    if not is_word(mode, (None, "longest", "lark", "characters")):
        raise ConstraintError(f"unknown lexical mode {mode!r}", fix='Write mode="longest", mode="lark" or mode="characters".')
    if syntax == "gbnf" or (syntax is None and isinstance(text, str) and _RULE_OF_GBNF.search(text)):
        from fsa_compile.grammar.gbnf_syntax import parse_gbnf

        if mode in ("longest", "lark"):
            what = "GBNF describes characters; it has no lexer"
            raise ConstraintError(what, fix='Leave mode out, or write the grammar in Lark\'s syntax.')
        return parse_gbnf(text, start="root" if start is None else start, limits=limits)
    from fsa_compile.grammar.lark_syntax import parse_lark

    return parse_lark(text, start="start" if start is None else start, mode=mode, limits=limits)


_RULE_OF_GBNF = re.compile(r"^[ \t]*[A-Za-z][\w-]*[ \t]*::=", re.M)
_BNF = re.compile(r"^[ \t]*<?[A-Za-z][\w-]*>?[ \t]*::=", re.M)
_RULE = re.compile(r"^[ \t]*[?!]*([A-Za-z_][\w-]*)[ \t]*:[ \t]*\S", re.M)


def is_grammar(text: str) -> bool:
    """Whether a text given as a pattern is a grammar: it can be read as one, and has a rule `start` or uses its own rules."""
    if _BNF.search(text):
        return True
    names = _RULE.findall(text)
    if not names or len(text) > _MOST_LOOKED_AT:
        return False
    start = next((name for name in ("start", "root") if name in names), names[0])
    uses = any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])(?![ \t]*:)", text) for name in names)
    if start not in ("start", "root") and not uses:
        return False
    try:
        parse_grammar(text, start=start)
    except ConstraintError:
        return False
    return True


def check_grammar_text(text: str) -> None:
    """Raises `ConstraintError` for the name of a grammar, or of a file, in the place of its text."""
    name = text.strip()
    if not re.fullmatch(r"[\w./\\~-]+", name):
        return
    from fsa_compile import library

    if name in library.names():
        fix = f"Write compile_grammar(library.grammar_text({name!r}), tokenizer, **library.options({name!r}))."
        raise ConstraintError(f"{name!r} is the name of a grammar of the library, not its text", fix=fix)
    if re.search(r"[/\\]|\.(lark|gbnf|ebnf|txt)$", name):
        fix = f"Read the file first: read_grammar({name!r})."
        raise ConstraintError(f"{name!r} looks like the name of a file, not like a grammar", fix=fix)


def special_ids(grammar: Grammar, vocabulary: Vocabulary) -> dict[str | int, int]:
    """Token id of every special token that the grammar names.

    Raises:
      UnsupportedGrammarError: the vocabulary has no such token, or it is text, or it ends the text.
    """
    from fsa_compile.grammar.grammar_tree import Embedded

    out: dict[str | int, int] = {}
    for node in special_tokens(grammar):
        if isinstance(node, Embedded):
            continue
        token = vocabulary.special.get(node.name, -1) if isinstance(node.name, str) else node.name
        what = fix = ""
        if not 0 <= token < vocabulary.size:
            what = f"the vocabulary has no special token {node.name!r}"
            known = ", ".join(sorted(vocabulary.special)[:8])
            fix = f"Its special tokens begin with {known}." if known else "It has no named special tokens: write <[id]>."
        elif vocabulary.tokens[token]:
            what = f"token {token} is the text {vocabulary.tokens[token]!r}, not a special token"
            fix = "Write the text as a string instead."
        elif token in vocabulary.stop_ids:
            what = f"special token {node.name!r} ends the text, so nothing can follow it"
            fix = "Leave it out: it is allowed wherever the grammar is complete."
        if what:
            raise UnsupportedGrammarError(what, text=grammar.text, start=node.start, end=node.end, fix=fix)
        out[node.name] = token
    return out


def special_tokens(grammar: Grammar) -> Iterator[SpecialToken]:
    """Every place in a grammar where a special token stands."""
    from fsa_compile.grammar.grammar_tree import Choice, Repeat, Sequence, SpecialToken

    todo: list[Expression] = [rule.body for rule in grammar.rules.values()] + list(grammar.ignore)
    while todo:
        node = todo.pop()
        match node:
            case SpecialToken():
                yield node
            case Sequence(parts=children) | Choice(branches=children):
                todo += children
            case Repeat(part=child):
                todo.append(child)
