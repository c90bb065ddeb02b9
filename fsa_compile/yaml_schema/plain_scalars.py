r"""Plain scalars of YAML: which texts may stand without quotes and mean exactly themselves to every reader.

A text is safe when readers of YAML 1.1 and of the core schema of YAML 1.2 both take it for a string: it is no null, boolean,
number (octal, sexagesimal, with underscores), date, `<<` or `=`, no indicator begins it, `: ` and ` #` are not in it, and it
holds printable characters only. In flow style it holds none of `,[]{}?` either. Known readers take more than the standards say:
Ruby's Psych numbers with commas, `08:00`, `nULL`, and `:a` for a symbol; Go's `0X1F` and the date `2020-1-1`; npm's `yaml` a
lone point, and `e1` under YAML 1.1, for numbers. Those are not safe either.

Source: YAML 1.2.2, §5.1, §7.3.3, §10.3; YAML 1.1 and its type repository; the readers' own rules of resolution.
"""

from __future__ import annotations

import functools

from fsa_compile.automata.labelled_dfa import TextDfa, any_text, from_letters
from fsa_compile.automata.labelled_product import product
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.python_syntax import parse
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.yaml_schema.yaml_options import Style

NUMBER_PATTERN = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+](?:[0-9]{1,2}|[12][0-9]{2}))?)?"
"""Numbers that readers of both versions take for the same number: an exponent needs a fraction and a sign, and is below 300."""

NUMERIC_KEY = 6
"""Longest plain key that begins like a number, among those that a schema does not name."""

_WIDE = r"\xa0-\u2027\u202a-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"
_INSIDE = {
    "block": rf"!-\"$-9;-~{_WIDE}",
    "flow": rf"!-\"$-+\--9;->@-Z\\\^-z|~{_WIDE}",
}
"""Characters within a plain scalar, but for ':' and '#'."""
_FIRST = rf"$()+./0-9;<=A-Z\\\^_a-z~{_WIDE}"
_MARKS = {("block", False): r"?\-", ("block", True): "?", ("flow", False): r"\-", ("flow", True): ""}
"""Indicators that may begin a plain scalar when no space follows, by style and whether it is a key."""

_SPECIAL = "|".join([
    r"~|(?ai:null|y|yes|n|no|true|false|on|off)|<<|=",
    r"[-+][0-9_,]+|[-+]?0[bB][01_,]+|[-+]?0[oO]?[0-7_,]+|[-+]?0[xX][0-9a-fA-F_,]+",
    r"[-+]?(?:[0-9][0-9_,]*(?:\.[0-9_,]*)?|\.[0-9_,]*)?(?:[eE][-+]?[0-9]+)?",
    r"[-+]?[0-9][0-9_,]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?",
    r"[-+]?\.(?ai:inf|nan)",
    r"-?[0-9]{4}-(?:[0-9]{2}-[0-9]{2}|(?:0?[0-9]|1[0-2])-(?:[0-2]?[0-9]|3[01]))",
    r"-?[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?"
    r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?(?:[0-9]{2})?)?))?",
    r"(?:---|\.\.\.).*",
])  # fmt: skip
"""Texts that some reader takes for something else than a string; those that begin like a document marker among them."""


@functools.cache
def plain_text(style: Style, key: bool = False) -> TextDfa:
    """The automaton of safe plain scalars.

    Args:
      style: where they stand.
      key: as keys, which do not begin with "-" either, so that they are told from the items of a list at once.
    """
    inside = _INSIDE[style]
    after = rf"(?:[{inside}#]|:+[{inside}#])"
    mark = "" if not _MARKS[style, key] else rf"|[{_MARKS[style, key]}]{after}"
    pattern = rf"(?:[{_FIRST}]{mark}){after}*(?: +(?:[{inside}]|:+[{inside}#]){after}*)*"
    dfas = [_automaton(pattern), _automaton(_SPECIAL), any_text()]
    return product(dfas, lambda said: int(said[0] > said[1]), 10_000, "plain scalars")


@functools.cache
def other_keys(most: int, numeric: bool) -> TextDfa:
    """The keys that are written among those that a schema does not name: printable, of at most `most` characters.

    Args:
      numeric: whether keys that begin as numbers do are kept to `NUMERIC_KEY` characters, because they stay ambiguous for long.
    """
    if not most:
        return _automaton("")
    any_ = rf"[ !-~{_WIDE}]"
    if not numeric:
        return _automaton(rf"{any_}{{0,{most}}}")
    return _automaton(rf"(?:(?![0-9+.\-]){any_}{{1,{most}}})?|[0-9+.\-]{any_}{{0,{min(NUMERIC_KEY, most) - 1}}}")


def _automaton(pattern: str) -> TextDfa:
    limits = CompileLimits()
    return from_letters(build_automaton(parse(pattern, 0, limits), limits, Deadline(limits)))
