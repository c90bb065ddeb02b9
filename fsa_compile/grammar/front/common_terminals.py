r"""The terminals that `%import common` offers, as regular expressions of our own with the language that Lark's have.

Lark writes strings and comments with lazy loops, which its lexer ends at the first chance; here the same texts are described
without them. Only the two parts of strings that begin with `_STRING` stay lazy: they are of use inside other terminals alone,
whose ends decide. Source: https://lark-parser.readthedocs.io, "Importing terminals from common".
"""

from __future__ import annotations

_EXPONENT = r"[eE][+-]?[0-9]+"
_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_FLOAT = rf"(?:[0-9]+{_EXPONENT}|{_DECIMAL}(?:{_EXPONENT})?)"
_NUMBER = rf"(?:{_FLOAT}|[0-9]+)"

COMMON_TERMINALS = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": _DECIMAL,
    "_EXP": _EXPONENT,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?{_FLOAT}",
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": f"[+-]?{_NUMBER}",
    "_STRING_INNER": ".*?",
    "_STRING_ESC_INNER": r".*?(?<!\\)(?:\\\\)*?",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[A-Za-z_][A-Za-z0-9_]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""Pattern in Python's dialect, no flags, by name."""

_LENGTHS = {
    "DIGIT": 5, "HEXDIGIT": 21, "INT": 10, "SIGNED_INT": 24, "DECIMAL": 44, "_EXP": 31, "FLOAT": 126, "SIGNED_FLOAT": 140,
    "NUMBER": 141, "SIGNED_NUMBER": 155, "_STRING_INNER": 3, "_STRING_ESC_INNER": 18, "ESCAPED_STRING": 20, "LCASE_LETTER": 5,
    "UCASE_LETTER": 5, "LETTER": 15, "WORD": 20, "CNAME": 53, "WS_INLINE": 13, "WS": 12, "CR": 1, "LF": 1, "NEWLINE": 12,
    "SH_COMMENT": 6, "CPP_COMMENT": 9, "C_COMMENT": 13, "SQL_COMMENT": 7,
}  # fmt: skip
COMMON_LENGTHS = {COMMON_TERMINALS[name]: length for name, length in _LENGTHS.items()}
"""Length of Lark's own regular expression, by pattern: of two that match the same text the longer one wins."""
