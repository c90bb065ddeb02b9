"""Comments and white space in patterns, wherever they may stand, against `re`."""

from __future__ import annotations

import itertools
import re
import warnings

import pytest

from fsa_compile import UnsatisfiableError, regex
from fsa_compile.errors import RegexSyntaxError, UnsupportedPatternError

PIECES = (
    ["a", "b", "ab", "a b", "(?#", ")", "(?#c)", "(?#\\))", "#", "#c\n", "# c\\\n", "\\", "\n", " ", "\\#", "\\ ", "\\\\", "[#]", "[ a]", "*", "+", "?", "{2}", "{,1}", "|", "(", "(?:", "(?x:", "(?-x:", "(?:ab)", "(ab)"]
)  # fmt: skip
TEXTS = ["".join(letters) for n in range(4) for letters in itertools.product("ab# \n\\", repeat=n)]


def matched(pattern: str, flags: int) -> set[str] | None:
    """The texts that Python matches; None for what it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = re.compile(pattern, flags)
        except re.error:
            return None
    return {text for text in TEXTS if compiled.fullmatch(text)}


def accepted(pattern: str, flags: int) -> set[str] | None:
    """The same here."""
    try:
        language = regex(pattern, flags=flags).to_byte_dfa()
    except RegexSyntaxError:
        return None
    except UnsatisfiableError:
        return set()
    return {text for text in TEXTS if language.accepts(text.encode())}


@pytest.mark.parametrize(
    "pattern",
    [r"x(?#\)(y)z", "(?x)a # c\\\n b", "(?x)ab *", "ab(?#c)*", "(?x)ab#c\n{2}", "(?x)a#\\", "(?#\\", "(?#a\\\\)b", "(?x)ab (?#\\)) {2}", "(?:ab)*(?#)b", "(?:ab)(?#)*"],
)
def test_as_python_reads_them(pattern):
    assert accepted(pattern, 0) == matched(pattern, 0)


@pytest.mark.exhaustive
def test_random_patterns_with_comments(tally):
    for rng in tally.cases(2_500, least=100_000):
        pattern = "".join(rng.choices(PIECES, k=rng.randint(2, 7)))
        flags = rng.choice([0, re.X])
        try:
            got = accepted(pattern, flags)
        except UnsupportedPatternError:  # possessive quantifiers, which change the language
            continue
        want = matched(pattern, flags)
        assert got == want, (pattern, flags)
        tally.update(made=1, read=want is not None, checks=len(TEXTS))
    assert tally["read"] > 500
