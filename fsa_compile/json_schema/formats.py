"""`format`: the languages of the formats that are enforced exactly, each built once per process.

Date and time follow RFC 3339 (leap years counted; a leap second is 23:59:60 UTC, written with an offset of whole hours), host
names RFC 1123, email RFC 5321 (without its bounds on the length of the two parts), URIs RFC 3986, IRIs RFC 3987, IPv6 RFC
4291, durations RFC 3339 appendix A, pointers RFC 6901, URI templates RFC 6570. Names that are not listed here are
annotations, as the standard says of unknown formats.

Host names have at most 253 characters, which no small automaton counts: without a smaller `maxLength`, which a register counts,
accepted are up to four labels, the fourth of at most 61 characters, and up to ten labels of at most 24 characters each.
Labels that begin with `xn--` encode others by rules that no automaton here decides, and are not accepted. Regular expressions
are written in a part of ECMA-262: groups nest at most two deep and have no names and no back-references, the ranges of a class
are any of digits, and those of hexadecimal digits, all letters and ASCII's printable characters, no class is empty, `\\0` and
`\\c` are left out, counts have at most three digits, and a count `{m,n}` begins with one digit.

Where a standard can be read in two ways only what both readings take is written: durations have capital letters, the index of a
relative pointer is not shifted, numbers of an address in brackets behind `@` do not begin with 0, and `::` stands there for two
groups and more. As the public test suite has it, labels of an internationalized email are any characters beyond ASCII.

What such a part leaves out is undecided: it is neither written as a text of the format nor, under `not`, as one that is none.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from pathlib import Path

import numpy as np

from fsa_compile.automata.labelled_dfa import TextDfa, from_letters
from fsa_compile.automata.labelled_product import product
from fsa_compile.limits import CompileLimits, Deadline

_MOST_STATES = 20_000
"""Bound on the joint states of a format's two patterns; the formats here stay far below it."""
REFUSED_FORMATS = frozenset({"idn-hostname"})
"""Formats of the standard that no automaton here decides."""

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"
_ANY_QUAD = r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})(?:\.(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})){3}"


def _ipv6(most: int, quad: str) -> str:
    """Addresses with at most so many groups beside `::`, the last two of which may be written as an IPv4 address."""
    last = f"(?:{_GROUP}:{_GROUP}|{quad})"
    ends = ["", _GROUP, *(f"(?:{_GROUP}:){{{n}}}{last}" for n in range(most - 1))]
    starts = [*(f"(?:(?:{_GROUP}:){{0,{n}}}{_GROUP})?" for n in reversed(range(most))), ""]
    return f"(?:(?:{_GROUP}:){{6}}{last}|" + "|".join(f"{start}::{end}" for start, end in zip(starts, ends)) + ")"


_IPV6 = _ipv6(7, _IPV4)

_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_LONG_MONTH, _SHORT_MONTH = "(?:0[13578]|1[02])", "(?:0[469]|11)"
_DATE = (
    f"(?:[0-9]{{4}}-(?:{_LONG_MONTH}-(?:0[1-9]|[12][0-9]|3[01])|{_SHORT_MONTH}-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR, _MINUTE = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"


def _leap_seconds() -> str:
    """Seconds 60, which are 23:59:60 in UTC, for the offsets of whole hours that are in use."""
    zones: dict[int, list[str]] = {23: ["[Zz]", "-00:00"]}
    for offset in range(-12, 15):
        zones.setdefault((23 + offset) % 24, []).append(rf"\{'-' if offset < 0 else '+'}{abs(offset):02}:00")
    return "|".join(f"{hour:02}:59:60{_FRACTION}(?:{'|'.join(ends)})" for hour, ends in zones.items())


_ZONE = f"(?:[Zz]|[+-]{_HOUR}:{_MINUTE})"
_TIME = f"(?:{_HOUR}:{_MINUTE}:[0-5][0-9]{_FRACTION}{_ZONE}|{_leap_seconds()})"
_ANY_TIME = f"{_HOUR}:{_MINUTE}:(?:[0-5][0-9]|60){_FRACTION}{_ZONE}"
_DATE_UNITS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_TIME_UNITS = "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))"
_DURATION = f"P(?:[0-9]+W|{_DATE_UNITS}{_TIME_UNITS}?|{_TIME_UNITS})"

_UCS = (
    r"\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF"
    + "".join(rf"\U000{p:X}0000-\U000{p:X}FFFD" for p in range(1, 14))
    + r"\U000E1000-\U000EFFFD"
)
_PRIVATE = r"\uE000-\uF8FF\U000F0000-\U000FFFFD\U00100000-\U0010FFFD"


def _identifier(wide: str, private: str) -> tuple[str, str]:
    """The patterns of an absolute identifier and of a relative reference, with more characters allowed than ASCII."""
    plain = rf"[A-Za-z0-9\-._~{wide}]"
    percent, sub = "%[0-9A-Fa-f]{2}", "[!$&'()*+,;=]"
    path_char = f"(?:{plain}|{percent}|{sub}|[:@])"
    segments = f"(?:/{path_char}*)*"
    name = f"(?:{plain}|{percent}|{sub})*"
    future = rf"[vV][0-9A-Fa-f]+\.(?:[A-Za-z0-9\-._~]|{sub}|:)+"
    authority = rf"(?:(?:{plain}|{percent}|{sub}|:)*@)?(?:\[(?:{_IPV6}|{future})\]|{name})(?::[0-9]*)?"
    query = rf"(?:\?(?:{path_char}|[/?{private}])*)?" if private else rf"(?:\?(?:{path_char}|[/?])*)?"
    tail = rf"{query}(?:\#(?:{path_char}|[/?])*)?"
    rooted = f"//{authority}{segments}|/(?:{path_char}+{segments})?"
    first_segment = f"(?:{plain}|{percent}|{sub}|@)+"
    absolute = f"[A-Za-z][A-Za-z0-9+.-]*:(?:{rooted}|{path_char}+{segments}|){tail}"
    return absolute, f"(?:{rooted}|{first_segment}{segments}|){tail}"


_URI, _RELATIVE = _identifier("", "")
_IRI, _RELATIVE_IRI = _identifier(_UCS, _PRIVATE)
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"


def _label(most: int) -> str:
    """A label of a host name of up to `most` characters that does not encode another."""
    return f"(?![xX][nN]--)[A-Za-z0-9](?:[A-Za-z0-9-]{{0,{most - 2}}}[A-Za-z0-9])?"


_SHORT_HOST = rf"{_label(63)}(?:\.{_label(63)}){{0,2}}(?:\.{_label(61)})?"
_LONG_HOST = rf"{_label(24)}(?:\.{_label(24)}){{4,9}}"
_PLAIN_HOST = f"(?:{_SHORT_HOST}|{_LONG_HOST})"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_LOCAL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})"
_ADDRESS = rf"\[(?:{_IPV4}|IPv6:{_ipv6(6, _IPV4)})\]"
_ANY_ADDRESS = rf"\[(?:{_ANY_QUAD}|[Ii][Pp][Vv]6:{_ipv6(7, _ANY_QUAD)})\]"
_WIDE = r"\u0080-\uD7FF\uE000-\U0010FFFF"
_WIDE_ATOM = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~\-{_WIDE}]+"
_WIDE_LABEL = rf"[A-Za-z0-9{_WIDE}](?:[A-Za-z0-9\-{_WIDE}]{{0,61}}[A-Za-z0-9{_WIDE}])?"
_WIDE_HOST = rf"{_WIDE_LABEL}(?:\.{_WIDE_LABEL})*"
_WIDE_LOCAL = rf'(?:{_WIDE_ATOM}(?:\.{_WIDE_ATOM})*|"(?:[ !#-\[\]-~{_WIDE}]|\\[ -~])*")'

_VARIABLE = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(?:\:[1-9][0-9]{0,3}|\*)?"
_TEMPLATE = (
    rf"(?:[!\#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~{_UCS}{_PRIVATE}]|%[0-9A-Fa-f]{{2}}"
    rf"|\{{[+\#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)
_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_INDEX = "(?:0|[1-9][0-9]*)"


def _regex(depth: int) -> str:
    """Patterns of ECMA-262, valid with the flag `u` and without it, whose groups nest at most `depth` deep."""
    hexadecimal = "[0-9A-Fa-f]"
    syntax = r"[\^$\\.*+?()\[\]{}|/]"
    code = rf"x{hexadecimal}{{2}}|u(?:[0-9A-CE-Fa-ce-f]{hexadecimal}{{3}}|[Dd][0-7]{hexadecimal}{{2}})"
    ranges = "|".join(f"{low}-[{low}-9]" for low in range(10)) + r"|a-z|A-Z|a-f|A-F|!-/|[ !]-~"
    in_class = rf"(?:{ranges}|[^\\\]\[\-\^]|\\(?:[dDsSwWtnvfrb\-]|{syntax}|{code}))"
    atom = rf"[^\^$\\.*+?()\[\]{{}}|]|\.|\\(?:[dDsSwWtnvfr]|{syntax}|{code})|\[\^?{in_class}+-?\]"
    counts = "|".join(f"{low},(?:[{max(low, 1)}-9]|[1-9][0-9]{{1,2}})" for low in range(10))  # low <= high
    times = rf"(?:[*+?]|\{{[0-9]{{1,3}},?\}}|\{{(?:{counts})\}})\??"
    pattern = ""
    for _ in range(depth + 1):
        group = rf"|\((?:\?:)?(?:{pattern})\)" if pattern else ""
        look = rf"|\(\?<?[=!](?:{pattern})\)" if pattern else ""
        sequence = rf"(?:(?:{atom}{group})(?:{times})?|[\^$]|\\[bB]{look})*"
        pattern = rf"{sequence}(?:\|{sequence})*"
    return pattern


FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": _DURATION,
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "ipv4": _IPV4,
    "ip-address": _IPV4,
    "ipv6": _IPV6,
    "hostname": _PLAIN_HOST,
    "host-name": _PLAIN_HOST,
    "email": f"{_LOCAL}@(?:{_HOST}|{_ADDRESS})",
    "idn-email": f"{_WIDE_LOCAL}@(?:{_WIDE_HOST}|{_ADDRESS})",
    "uri": _URI,
    "uri-reference": f"(?:{_URI}|{_RELATIVE})",
    "iri": _IRI,
    "iri-reference": f"(?:{_IRI}|{_RELATIVE_IRI})",
    "uri-template": _TEMPLATE,
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"{_INDEX}(?:\#|{_POINTER})",
    "regex": _regex(2),
}
"""Pattern of each enforced format, in the dialect of `re`."""

_ANY_HOST = rf"{_label(63)}(?:\.{_label(63)})*"
LENGTH_APART = {"hostname": (_ANY_HOST, 253), "host-name": (_ANY_HOST, 253)}
"""Formats with a bound on the length: a pattern without it, and the bound. Under a smaller `maxLength` the pattern is all that is
left of them, and a register can count."""


_PERHAPS = {
    "time": _ANY_TIME,
    "date-time": f"{_DATE}[Tt]{_ANY_TIME}",
    "duration": re.sub("[A-Z]", lambda letter: f"[{letter[0]}{letter[0].lower()}]", _DURATION),
    "hostname": _HOST,
    "host-name": _HOST,
    "email": f"{_LOCAL}@(?:{_HOST}|{_ANY_ADDRESS})",
    "idn-email": f"{_WIDE_LOCAL}@(?:{_WIDE_HOST}|{_ANY_ADDRESS})",
    "relative-json-pointer": rf"{_INDEX}(?:[+-][1-9][0-9]*)?(?:\#|{_POINTER})",
    "regex": r"(?![*+?])(?![^\\(\[]*\))(?![^\\]*\\\Z).*",  # no quantifier first, no `)` of nothing, no `\` at the end
}
"""For formats whose pattern leaves out texts that have the format, or may have it: all texts but those that certainly do not."""

UNDECIDED = 2
"""Label of texts of which it is not known here whether they have a format."""


STORED = Path(__file__).with_name("formats.npz")
"""Automata of the patterns of this module, which take up to a fifth of a second to make; `python -m tools.format_automata` writes
it, and what it lacks is made."""


def key_of(*patterns: str) -> str:
    """The name in `STORED` of what `made` returns."""
    return hashlib.sha256("\n".join(patterns).encode()).hexdigest()[:16]


def made(certain: str, *perhaps: str) -> TextDfa:
    """The texts of a pattern, labelled 1; those that only another one has besides are labelled `UNDECIDED`."""
    every = [_built(pattern) for pattern in (certain, *perhaps)]
    if not perhaps:
        return every[0]
    return product(every, lambda said: 1 if said[0] else UNDECIDED * said[1], _MOST_STATES, "a format")


def _built(pattern: str) -> TextDfa:
    from fsa_compile.patterns.python_syntax import parse
    from fsa_compile.patterns.regex_automaton import build_automaton

    limits = CompileLimits()
    tree = parse(pattern, int(re.ASCII | re.DOTALL), limits)
    return from_letters(build_automaton(tree, limits, Deadline(limits)))


def as_array(dfa: TextDfa) -> np.ndarray:
    """An automaton as `STORED` has it, int32[1 + 2 * S + 3 * M]: S, labels, moves of every state, moves."""
    moves = [number for row in dfa.rows for move in row for number in move]
    return np.array([len(dfa.rows), *dfa.labels, *map(len, dfa.rows), *moves], np.int32)


@functools.cache
def _automaton(*patterns: str) -> TextDfa:
    try:
        with np.load(STORED, allow_pickle=False) as file:
            size, *numbers = file[key_of(*patterns)].tolist()
    except (OSError, KeyError):
        return made(*patterns)
    flat = iter(numbers[2 * size :])
    moves = list(zip(flat, flat, flat))
    ends = list(itertools.accumulate(numbers[size : 2 * size], initial=0))
    return TextDfa([tuple(moves[begin:end]) for begin, end in itertools.pairwise(ends)], numbers[:size])


def patterns_of(name: str, length_apart: bool = False) -> list[str]:
    """The pattern of an enforced format, and for some another of all texts that may have it; `length_apart`: without its bound on
    the length."""
    certain = LENGTH_APART[name][0] if length_apart else FORMATS[name]
    return [certain, _PERHAPS[name]] if name in _PERHAPS else [certain]


def format_dfa(name: str, length_apart: bool = False) -> TextDfa:
    """The texts of an enforced format; `length_apart`: without its bound on the length."""
    return _automaton(patterns_of(name, length_apart)[0])


def decided_format_dfa(name: str, length_apart: bool = False) -> TextDfa:
    """The same texts, labelled 1, and those that may have the format besides, labelled `UNDECIDED`."""
    return _automaton(*patterns_of(name, length_apart))
