"""Token languages of grammars by OpenFst's own pushdown operations: `pdt_replace`, `pdt_compose`, `pdt_expand`.

The grammar becomes a pushdown transducer as it stands (a call is a parenthesis), the detokenizing transducer is composed with
it, and what is left is expanded, which needs a bound: either texts nest only so deep, or calls do and texts are short. Nothing of
the compiler takes part but the parsed grammar. Patterns must be single characters of ASCII.

Source: C. Allauzen, M. Riley, "A pushdown transducer extension for the OpenFst library", CIAA 2012.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pynini

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.automata.labels import byte_label, token_label
from fsa_compile.grammar import grammar_tree as g
from fsa_compile.vocabulary import Vocabulary

FIRST_RULE, FIRST_PARENTHESIS = 10_000, 20_000


def acceptor(labels: Iterable[int]) -> pynini.Fst:
    """One string of labels."""
    fst = pynini.Fst()
    at = fst.add_state()
    fst.set_start(at)
    for label in labels:
        after = fst.add_state()
        fst.add_arc(at, pynini.Arc(label, label, 0, after))
        at = after
    return fst.set_final(at)


def nothing() -> pynini.Fst:
    """The empty language, with a state."""
    fst = pynini.Fst()
    fst.set_start(fst.add_state())
    return fst


def pushdown_of(grammar: g.Grammar) -> tuple[pynini.Fst, pynini.PdtParentheses]:
    """A grammar over characters as a pushdown acceptor of byte labels."""
    number = {name: FIRST_RULE + i for i, name in enumerate(grammar.rules)}

    def build(e: g.Expression) -> pynini.Fst:
        match e:
            case g.Literal():
                return acceptor(map(byte_label, e.text.encode()))
            case g.Pattern():
                fits = [b for b in range(128) if re.fullmatch(e.pattern, chr(b))]
                return pynini.union(*(acceptor([byte_label(b)]) for b in fits))
            case g.Reference():
                return acceptor([number[e.name]])
            case g.Sequence():
                out = acceptor([])
                for part in e.parts:
                    out.concat(build(part))
                return out
            case g.Choice():
                return pynini.union(nothing(), *map(build, e.branches))
            case g.Repeat():
                return pynini.closure(build(e.part), e.low, e.high or 0)
        raise TypeError(type(e).__name__)

    root = (FIRST_RULE - 1, acceptor([number[grammar.start]]))
    rules = [(number[name], build(rule.body).optimize()) for name, rule in grammar.rules.items()]
    return pynini.pdt_replace([root, *rules], start_paren_labels=FIRST_PARENTHESIS)


def within_calls(fst: pynini.Fst, parentheses: pynini.PdtParentheses, most: int) -> pynini.Fst:
    """A pushdown acceptor whose calls nest at most so deep: composed with a counter, for which parentheses are labels."""
    counter = pynini.Fst()
    for _ in range(most + 1):
        counter.add_state()
    counter.set_start(0).set_final(0)
    plain = {arc.ilabel for state in fst.states() for arc in fst.arcs(state)} - {0}
    plain -= {label for pair in parentheses for label in pair}
    for depth in range(most + 1):
        for label in plain:
            counter.add_arc(depth, pynini.Arc(label, label, 0, depth))
        for opening, closing in parentheses if depth < most else ():
            counter.add_arc(depth, pynini.Arc(opening, opening, 0, depth + 1))
            counter.add_arc(depth + 1, pynini.Arc(closing, closing, 0, depth))
    return pynini.compose(fst.copy().arcsort("olabel"), counter.arcsort("ilabel"))


def nesting(most: int, alphabet: str, brackets: str) -> pynini.Fst:
    """Byte strings over an alphabet whose brackets nest at most so deep (of one or several kinds, told apart or not)."""
    fst = pynini.Fst()
    for _ in range(most + 1):
        fst.set_final(fst.add_state())
    fst.set_start(0)
    for depth in range(most + 1):
        for c in alphabet:
            step = (c in brackets[::2]) - (c in brackets[1::2])
            if 0 <= depth + step <= most:
                fst.add_arc(depth, pynini.Arc(byte_label(ord(c)), byte_label(ord(c)), 0, depth + step))
    return fst


def shorter(most: int, labels: Iterable[int]) -> pynini.Fst:
    """Strings of at most so many labels."""
    return pynini.closure(pynini.union(*(acceptor([label]) for label in labels)), 0, most).optimize()


def token_language(
    fst: pynini.Fst, parentheses: pynini.PdtParentheses, detokenizer: pynini.Fst, *, text: pynini.Fst | None = None,
    tokens: pynini.Fst | None = None,
) -> pynini.Fst:
    """The token strings of a pushdown acceptor of byte labels, as a minimal automaton.

    Args:
      fst, parentheses: the acceptor.
      detokenizer: from tokens to bytes.
      text, tokens: bounds, as acceptors; with them the stack must be bounded, or this does not end.
    """  # fmt: skip
    if text is not None:
        fst = pynini.pdt_compose(text.copy().arcsort("olabel"), fst.copy().arcsort("ilabel"), parentheses, left_pdt=False)
    fst = pynini.pdt_compose(detokenizer.copy().arcsort("olabel"), fst.arcsort("ilabel"), parentheses, left_pdt=False)
    if tokens is not None:
        fst = pynini.pdt_compose(tokens.copy().arcsort("olabel"), fst.arcsort("ilabel"), parentheses, left_pdt=False)
    return minimal(pynini.pdt_expand(fst, parentheses).project("input"))


def minimal(fst: pynini.Fst) -> pynini.Fst:
    """Deterministic, minimal, trimmed."""
    fst = pynini.determinize(fst.copy().rmepsilon().connect())
    return fst.minimize().connect()


def artifact_language(
    constraint: CompiledConstraint, vocabulary: Vocabulary, *, brackets: str, deepest: int, most: int | None = None
) -> pynini.Fst:
    """The token strings of an artifact whose text nests at most so deep, and of at most so many tokens."""
    fst, walk = pynini.Fst(), constraint.walk()
    names = {(walk.configurations, 0, 0): fst.add_state()}
    fst.set_start(0)
    todo: list[tuple[tuple[int, ...], int]] = [((), 0)]
    for tokens, depth in todo:
        walk.rewind(walk.num_tokens)
        for token in tokens:
            walk.advance(token)
        count = len(tokens) if most is not None else 0
        here = names[walk.configurations, depth, count]
        fst.set_final(here, 0 if walk.accepting else float("inf"))
        mask = walk.allowed()
        for token, data in enumerate(vocabulary.tokens):
            after = _depth(depth, data, brackets, deepest) if data and mask[token] else -1
            if after < 0 or count == most:
                continue
            walk.advance(token)
            key = (walk.configurations, after, count + 1 if most is not None else 0)
            walk.rewind(1)
            if key not in names:
                names[key] = fst.add_state()
                todo.append(((*tokens, token), after))
            fst.add_arc(here, pynini.Arc(token_label(token), token_label(token), 0, names[key]))
    return minimal(fst)


def _depth(depth: int, data: bytes, brackets: str, deepest: int) -> int:
    """Depth after a token's brackets; -1 when it goes too deep on the way."""
    for byte in data:
        depth += (chr(byte) in brackets[::2]) - (chr(byte) in brackets[1::2])
        if not 0 <= depth <= deepest:
            return -1
    return depth
