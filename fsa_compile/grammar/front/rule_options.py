"""Options in brackets behind a rule's name: `name[capture, max_chars=80]: /[^"]*/`.

`max_chars`, `max_tokens` and `temperature` are of one lexeme, so the rule's body has to be one; `capture` and `capture="other"`
name the rule for `parse_captures`. A temperature makes the lexeme a terminal of its own. It holds where the next byte may belong
to the lexeme, as its first or a further one; of several such lexemes the greatest holds, and where there is none the sampler's.
Source: llguidance, docs/syntax.md (the notation).
"""

from __future__ import annotations

import difflib
from typing import NamedTuple, NoReturn

from fsa_compile.artifact.arrays import LEAST_TEMPERATURE, MOST_TEMPERATURE
from fsa_compile.grammar.grammar_tree import Bounded, Embedded, Expression, Reference, Repeat, Sequence, SpecialToken, Tempered
from fsa_compile.grammar.source import GrammarText, walk
from fsa_compile.grammar.templates import Definition

_REFUSED = {
    "lazy": r'Write a lazy loop in the pattern (/.*?<end>/), or %until("<end>").',
    "stop": 'Write the text that ends it into the rule, as in %until("<end>").',
    "suffix": 'Write %until("<end>"), or the text behind the rule\'s name where it is used.',
    "stop_capture": "Give the text that ends it a rule of its own, with capture.",
}
_KNOWN = ("capture", "max_chars", "max_tokens", "temperature")


class Option(NamedTuple):
    """An option as written: its name, a number, a text or nothing, and its span."""

    name: str
    value: int | float | str | None
    start: int
    end: int


class Bounds(NamedTuple):
    """What options make of a rule.

    Attributes:
      body: the rule's new body.
      terminals: definitions that the body needs.
      capture: the name under which its texts are given back; "" for none.
    """

    body: Expression
    terminals: list[Definition]
    capture: str


def bounded(source: GrammarText, rule: str, body: Expression, options: list[Option]) -> Bounds:
    """A rule's body under its options.

    Raises:
      GrammarSyntaxError: an option that is not known, or with a value of the wrong kind.
      UnsupportedGrammarError: an option that is not offered, or a bound on what is no single lexeme.
    """
    given = {option.name: option for option in options}
    for option in options:
        _check(source, option)
    terminals = list[Definition]()

    def terminal(name: str, of: Expression) -> str:
        shown = f"{rule}[{name}]"
        terminals.append(Definition(shown, (), of, True, 0, body.start, body.end))
        return shown

    bounds = [given[name] for name in ("max_chars", "temperature", "max_tokens") if name in given]
    if bounds:
        _check_lexeme(source, rule, body, bounds[0])
        inner = terminal("", body)
    for option in bounds:
        assert isinstance(option.value, int | float)
        shown, place = f"{option.name}={option.value}", (option.start, option.end)
        if option.name == "max_tokens":
            body = Embedded(inner, *place, "tokens", str(option.value))
            continue
        heated = option.name == "temperature"
        inner = terminal(shown, Tempered(inner, *place, option.value) if heated else Bounded(inner, *place, int(option.value)))
        body = Reference(inner, *place)
    capture = given.get("capture")
    return Bounds(body, terminals, "" if capture is None else str(capture.value or rule))


def _check(source: GrammarText, option: Option) -> None:
    name, value = option.name, option.value
    if name in _REFUSED:
        source.unsupported(f"the option {name} of a rule is not offered", option.start, option.end, fix=_REFUSED[name])
    if name not in _KNOWN:
        close = difflib.get_close_matches(name, _KNOWN, n=1)
        fix = f"Known are {', '.join(_KNOWN)}." + (f" Did you mean {close[0]}?" if close else "")
        source.syntax(f"unknown option {name} of a rule", option.start, option.end, fix=fix)
    if name == "capture" and isinstance(value, int):
        source.syntax("capture takes a name in quotes", option.start, option.end, fix='Write capture, or capture="name".')
    inside = not isinstance(value, int | float) or value == 0 or LEAST_TEMPERATURE <= value <= MOST_TEMPERATURE
    if name == "temperature" and not (isinstance(value, int | float) and inside):
        what = "temperature takes 0, or a number from 0.001 to 1000000"
        source.syntax(what, option.start, option.end, fix="Write temperature=0.7; 0 takes the most probable token.")
    if name in ("max_chars", "max_tokens") and not (isinstance(value, int) and 0 < value <= 1 << 20):
        source.syntax(f"{name} takes a number from 1 to 1048576", option.start, option.end, fix=f"Write {name}=80.")


def _check_lexeme(source: GrammarText, rule: str, body: Expression, option: Option) -> None:
    """Refuses bounds on what is more than one lexeme."""
    if isinstance(body, Sequence | Repeat):
        _refuse_rule(source, rule, body, option)
    for node in walk(body):
        name = node.name if isinstance(node, Reference) else ""
        if isinstance(node, SpecialToken) or (name and not name.isupper()):
            _refuse_rule(source, rule, node, option)


def _refuse_rule(source: GrammarText, rule: str, node: Expression, option: Option) -> NoReturn:
    does, fix = "bounds", ", or write the bound as a repetition, such as item~0..5."
    if option.name == "temperature":
        does, fix = "is of", ", or give the option to the rules of its lexemes."
    what = f"{option.name} {does} one terminal, and {rule} uses {source.text[node.start : node.end]:.40}"
    fix = f"Make a terminal (upper case) or one pattern of it{fix}"
    source.unsupported(what, node.start, node.end, fix=fix)
