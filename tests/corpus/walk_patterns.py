"""Patterns for the token walk, in the part of the language that the independent oracle reads (no lookaround)."""

from __future__ import annotations

_CLASSES = ["a", "[ab]", "[a-z]", "[A-Z]", "[0-9]", r"\d", r"\w", r"\s", ".", "[^a]", '[^"]', r'[^"\\]', "[^é]", "[é-€]", r"\W", r"\D", r"[^\n]"]
_SHAPES = ["{}", "{}*", "{}+", "{}?", "{}{{3}}", "{}{{0,4}}", "{}{{2,}}", "b{}*b", '"{}*"', "(?:{}b)*", "{}+@{}+"]

WIDE = [
    ".*", r"(.|\n){0,40}", "[a-zA-Z0-9 ]{1,60}", r"\w+( \w+)*", "[^a]*", r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}", "(foo|bar|[a-z]+)", r"[^aeiou]+", r"\S+(\s\S+)*", r"(?s:.)*x", "[a-z]*ing",
    r"[\u0400-\u04ff]+", r"[一-龥]{2,6}", "[^一-龥]*", r"(?:[^<]|<(?:b|i)>)*", r"[a-z]{5,30}[0-9]?", r"[a-m]+[n-z]+", "[0-9a-f]{8}-[0-9a-f]{4}",
    r"\s*\{\s*\}\s*", "-{3,}[a-z ]*-{3,}", r"(?:[A-Z][a-z]+ ){2,5}", ".{3,9}", r"\d+(,\d{3})*(\.\d*)?", "[^é€]*é", r"(?:\w|-)*\.",
    r"[a-z]{1,6}(?:\.[a-z][a-z-]{1,4}){0,2}!",
]  # fmt: skip
"""Patterns whose states read most of a vocabulary."""

REAL = [
    "Red|Orange|Yellow|Green|Blue|Indigo|Violet",
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]([+-][0-2][0-9]:[0-5][0-9]|Z)",
    r"((25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)",
    r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", "a|ab", r"-?[0-9]+(\.[0-9]+)?", "(yes|no), because [a-z ]{3,20}\\.", "true|false|null",
    r"\{"+r'"name": "[a-z]+", "age": [0-9]{1,3}\}', "[A-Z][a-z]+ [A-Z][a-z]+", r"\(\d{3}\) \d{3}-\d{4}", "#[0-9a-fA-F]{6}",
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"(?:0[1-9]|[12]\d|3[01])/(?:0[1-9]|1[0-2])/\d{4}", r"\$\d{1,3}(,\d{3})*\.\d{2}",
    "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day", r"v\d+\.\d+\.\d+(-[a-z]+)?", "naïve|café|Zürich", "[àáâä]+", "日本|東京|京都",
    "😀|😃|👍🏽", r"a{3,7}", "(ab|ba)*", r"<b>[a-z]*</b>", r"\t+x", "(?:na ){2,4}batman", r"[+-]?\d{1,3}°[CF]", r"[01]+", r"(?:\w\d)+",
    r"x=(?:[0-9]+|\"[a-z]*\")", r"[A-Z]{2}\d{2}(?: \d{4}){4}", "I(?:I{0,2}|V|X)", r"\[(?:\d+(?:, \d+)*)?\]",
]  # fmt: skip
"""Patterns as users write them; small enough to compose with OpenFst over a real vocabulary."""

TOY = [shape.format(c, c) for shape in _SHAPES for c in _CLASSES] + REAL + [p for p in WIDE if p not in (".*", "[^a]*")]
