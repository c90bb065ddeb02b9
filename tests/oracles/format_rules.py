"""The rules of formats as their RFCs' ABNF has them, one by one, for texts to be derived from."""

from __future__ import annotations

_CORE = r"""
DIGIT: /[0-9]/
ALPHA: /[A-Z]/ | /[a-z]/
HEX: /[0-9]/ | /[A-F]/ | /[a-f]/
pct: "%" HEX HEX
"""
_WIDE = "\u00a0\ud7ff\uf900\ufdcf\ufdf0\uffef\U00010000\U0001fffd\U0002fffd\U000d0000\U000dfffd\U000e1000\U000efffd"
"""RFC 3987, ucschar: ends of its ranges."""
_PRIVATE = "\ue000\uf8ff\U000f0000\U000ffffd\U00100000\U0010fffd"


def _one_of(name: str, characters: str) -> str:
    return f"{name}: " + " | ".join(f'"{c}"' for c in characters) + "\n"


_ADDRESSES = r"""
ipv6: (h16 ":")~6 ls32
    | "::" (h16 ":")~5 ls32
    | h16? "::" (h16 ":")~4 ls32
    | ((h16 ":")~0..1 h16)? "::" (h16 ":")~3 ls32
    | ((h16 ":")~0..2 h16)? "::" (h16 ":")~2 ls32
    | ((h16 ":")~0..3 h16)? "::" h16 ":" ls32
    | ((h16 ":")~0..4 h16)? "::" ls32
    | ((h16 ":")~0..5 h16)? "::" h16
    | ((h16 ":")~0..6 h16)? "::"
h16: HEX~1..4
ls32: h16 ":" h16 | ipv4
ipv4: octet "." octet "." octet "." octet
octet: DIGIT | /[1-9]/ DIGIT | "1" DIGIT DIGIT | "2" /[0-4]/ DIGIT | "25" /[0-5]/
"""
_IDENTIFIERS = r"""
uri: scheme ":" _hier ("?" query)? ("#" fragment)?
_hier: "//" authority abempty | absolute | rootless |
reference: uri | _relative ("?" query)? ("#" fragment)?
_relative: "//" authority abempty | absolute | noscheme |
scheme: ALPHA (ALPHA | DIGIT | "+" | "-" | ".")*
authority: (userinfo "@")? host (":" DIGIT*)?
userinfo: (unreserved | pct | SUB | ":")*
host: "[" (ipv6 | future) "]" | ipv4 | (unreserved | pct | SUB)*
future: /[vV]/ HEX+ "." (plain | SUB | ":")+
abempty: ("/" pchar*)*
absolute: "/" rootless?
rootless: pchar+ ("/" pchar*)*
noscheme: (unreserved | pct | SUB | "@")+ ("/" pchar*)*
pchar: unreserved | pct | SUB | ":" | "@"
query: (pchar | PRIVATE | "/" | "?")*
fragment: (pchar | "/" | "?")*
SUB: /[!$&'()*+,;=]/ | /[+,;=]/ | /[(-*]/
plain: ALPHA | DIGIT | "-" | "." | "_" | "~"
unreserved: plain
"""
_URI = _IDENTIFIERS.replace(" | PRIVATE", "") + _ADDRESSES + _CORE
_IRI = _IDENTIFIERS.replace("unreserved: plain", "unreserved: plain | WIDE")
_IRI += _one_of("WIDE", _WIDE) + _one_of("PRIVATE", _PRIVATE) + _ADDRESSES + _CORE
_HOST = r"""
host: label ("." label)*
label: _ends ((_ends | "-")* _ends)?
_ends: ALPHA | DIGIT
"""
_MAILBOX = r"""
start: (atom ("." atom)* | quoted) "@" (host | "[" ipv4 "]" | "[IPv6:" literal "]")
atom: (ALPHA | DIGIT | ATEXT)+
ATEXT: "!" | "#" | "$" | "%" | "&" | "'" | "*" | "+" | "-" | "/" | "=" | "?" | "^" | "_" | "`" | "{" | "|" | "}" | "~"
quoted: "\"" (QTEXT | "\\" /[ -~]/)* "\""
QTEXT: /[ -!]/ | /[#-\[]/ | /[\]-~]/
literal: h16 (":" h16)~7
       | (h16 (":" h16)~0..2)? "::" (h16 (":" h16)~0..2)?
       | h16 (":" h16)~5 ":" ipv4
       | (h16 (":" h16)~0..1)? "::" (h16 ":")~0..2 ipv4
"""
_WIDER = {"atom: (ALPHA": "atom: (WIDE | ALPHA", "(QTEXT": "(WIDE | QTEXT", "_ends: ALPHA": "_ends: WIDE | ALPHA"}
_WIDE_MAILBOX = _MAILBOX + _HOST
for _narrow, _wider in _WIDER.items():
    _WIDE_MAILBOX = _WIDE_MAILBOX.replace(_narrow, _wider)
_PERIOD = r"""
start: "P" ((day | month | year) clock? | clock | DIGIT+ "W")
day: DIGIT+ "D"
month: DIGIT+ "M" day?
year: DIGIT+ "Y" month?
clock: "T" (hour | minute | second)
hour: DIGIT+ "H" minute?
minute: DIGIT+ "M" second?
second: DIGIT+ "S"
"""
_CLOCK = r"""
time: HOUR ":" MINUTE ":" MINUTE ("." DIGIT+)? (/[Zz]/ | /[+-]/ HOUR ":" MINUTE)
HOUR: /[01][0-9]/ | /2[0-3]/
MINUTE: /[0-5][0-9]/
"""
_TEMPLATE = r"""
start: (LITERAL | WIDE | PRIVATE | pct | expression)*
LITERAL: /[a-z]/ | /[?-\[]/ | /[#-$]/ | /[&-;]/ | "!" | "=" | "]" | "_" | "~"
expression: "{" /[+#.\/;?&=,!@|]/? _variable ("," _variable)* "}"
_variable: _letter ("."? _letter)* (":" /[1-9]/ DIGIT~0..3 | "*")?
_letter: ALPHA | DIGIT | "_" | pct
"""
_TOKENS = r"""
pointer: ("/" (TOKEN | "~0" | "~1")*)*
TOKEN: /[a-z]/ | /[ -.]/ | /[0-}]/ | /[\x7f-\xa0]/ | "\ue000" | "\U0010ffff"
"""

RULES: dict[str, str] = {
    "uri": "start: uri\n" + _URI,
    "uri-reference": "start: reference\n" + _URI,
    "iri": "start: uri\n" + _IRI,
    "iri-reference": "start: reference\n" + _IRI,
    "ipv4": "start: ipv4\n" + _ADDRESSES + _CORE,
    "ipv6": "start: ipv6\n" + _ADDRESSES + _CORE,
    "hostname": "start: host\n" + _HOST + _CORE,
    "email": _MAILBOX + _HOST + _ADDRESSES + _CORE,
    "idn-email": _WIDE_MAILBOX + _one_of("WIDE", "\x80\ud7ff\ue000\uffff\u0301\U00010000\U0010ffff") + _ADDRESSES + _CORE,
    "duration": _PERIOD + _CORE,
    "time": "start: time\n" + _CLOCK + _CORE,
    "date-time": 'start: DIGIT~4 "-" (/0[1-9]/ | /1[0-2]/) "-" (/0[1-9]/ | /1[0-9]/ | /2[0-8]/) /[Tt]/ time\n' + _CLOCK + _CORE,
    "uuid": 'start: HEX~8 "-" HEX~4 "-" HEX~4 "-" HEX~4 "-" HEX~12\n' + _CORE,
    "uri-template": _TEMPLATE + _one_of("WIDE", _WIDE) + _one_of("PRIVATE", _PRIVATE) + _CORE,
    "json-pointer": "start: pointer\n" + _TOKENS,
    "relative-json-pointer": 'start: ("0" | /[1-9]/ DIGIT*) ("#" | pointer)\n' + _TOKENS + _CORE,
}
"""By format. Left out are leap seconds, Punycode, and what the standards leave open."""
