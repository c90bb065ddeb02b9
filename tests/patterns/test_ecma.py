"""Patterns of ECMA-262, as JSON Schema searches them: random ones against Node, and what only that dialect has."""

from __future__ import annotations

import json
import random
import shutil
import subprocess

import pytest

from fsa_compile.errors import ConstraintError, RegexSyntaxError, UnsupportedPatternError
from fsa_compile.json_schema.patterns import search_dfa
from fsa_compile.limits import CompileLimits

LIMITS = CompileLimits(max_seconds=20)
_LETTERS = "abA1_ \n\r\u2028éſ\u212a\ufeff\x85-]^z٣\xa0\\/k{}"  # none beyond U+FFFF: Node finds \B within pairs of surrogates
_ATOMS = (
    "a", "b", "ab", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\n", r"\cJ", r"\0", r"\x61", r"\u0061", "é", "[^]", "[]",
    "[a-z]", "[^a-z]", r"[\w-]", r"[\s\S]", r"[\d-a]", r"[a-\d]", r"[^\W_]", r"[\b]", "[-a]", "[a-]", r"[\-a]", r"[\]]", "[[]", "[a^]", r"\/", r"\-",
    r"\^", r"\.", "{", "}", "]", "a{", "{1}", "a{,2}", "x{1,", "^", "$", r"\b", r"\B", "/", "-", "_", "A", "1", " ", "\\ ", r"\_", r"\k", r"\1",
    r"\c", r"\u", r"\x1", "[z-a]", r"\t", r"[\cJ]", r"[\0]", "[.]", "[$^]", r"[\u2028]", r"\v", r"\f", r"\r",
)  # fmt: skip
_UNICODE = (
    r"\u{61}", r"\u{1F600}", r"\ud83d\ude00", "😀", "𝒳", "[😀-😂]", r"[\u{1F600}-\u{1F602}]", r"[\ud83d\ude00]", r"\p{L}", r"\P{L}", r"\p{Lu}", r"[\p{N}_]",
    r"[^\p{L}]", r"\p{Script=Greek}", r"\p{Letter}", r"\p{ASCII}", r"\p{Any}", r"\p{Alphabetic}", r"[\P{L}a]",
)  # fmt: skip
_COUNTS = ("*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,2}?", "{0}", "{2}{2}", "++", "{2,1}", "{,3}", "{02}")


def random_pattern(rng: random.Random, depth: int, atoms: tuple[str, ...]) -> str:
    """The text of a pattern, not always well formed."""
    kind = rng.random()
    if not depth or kind < 0.25:
        return rng.choice(atoms)
    one = random_pattern(rng, depth - 1, atoms)
    if kind < 0.5:
        return one + random_pattern(rng, depth - 1, atoms)
    if kind < 0.64:
        return rng.choice(["(?:{}|{})", "{}|{}"]).format(one, random_pattern(rng, depth - 1, atoms))
    if kind < 0.78:
        return (f"(?:{one})" if rng.random() < 0.7 else rng.choice(atoms)) + rng.choice(_COUNTS)
    if kind < 0.98:
        return rng.choice(["(?={})", "(?!{})", "(?<={})", "(?<!{})", f"(?<n{rng.getrandbits(30)}>{{}})", "({})", "^(?:{})$"]).format(one)
    at = rng.randrange(len(one) + 1)
    return one[:at] + rng.choice("()[]{}*+?^$\\|.-") + one[at:]


_SCRIPT = """
for (const line of require('fs').readFileSync(0, 'utf8').split('\\n').filter(x => x)) {
  const [pattern, texts] = JSON.parse(line);
  console.log(JSON.stringify(['u', ''].map(flag => {
    try { const r = new RegExp(pattern, flag); return texts.map(t => r.test(t)); } catch { return null; }
  })));
}
"""


def judged(cases):
    """Per pattern, which texts Node finds it in: with the flag u and without, None where it is malformed."""
    lines = "\n".join(json.dumps(case) for case in cases)
    done = subprocess.run(["node", "-e", _SCRIPT], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_random_patterns_against_node(tally):
    """As with the flag u where that takes them, else as without it."""
    cases = []
    for rng in tally.cases(500):
        atoms = (*_ATOMS, *_UNICODE) if rng.random() < 0.5 else _ATOMS
        texts = ["", *_LETTERS, *("".join(rng.choices(rng.choice([_LETTERS, "ab\n1 A"]), k=rng.randint(2, 5))) for _ in range(60))]
        cases.append((random_pattern(rng, rng.choice([2, 3, 4]), atoms), texts))
        tally["made"] += 1
        tally["checks"] += len(texts)
    read = 0
    for (pattern, texts), (unicode, legacy) in zip(cases, judged(cases), strict=True):
        try:
            found = search_dfa(pattern, LIMITS)
        except RegexSyntaxError:
            assert unicode is None, pattern
            continue
        except UnsupportedPatternError:
            continue
        wanted = unicode or (legacy if not any(atom in pattern for atom in (r"\p", r"\P", r"\u", *"😀😂𝒳")) else None)
        if wanted is not None:
            read += 1
            assert [bool(found.label(text)) for text in texts] == wanted, pattern
        elif unicode is None and legacy is None:
            assert not pattern.isascii() or r"\u" in pattern or r"\p" in pattern.lower(), pattern
    assert read > len(cases) // 3


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("(?:^)?a", ("a", "ba"), ("b",)),
        (r"a(?:\b)+", ("a", "a-", "ba"), ("ab",)),
        ("^a(?:$){0,2}", ("a", "ab"), ("ba",)),
        ("(?:(?<=b))*a", ("a", "ba"), ("b",)),
        (r"\B", ("", "ab", "-"), ("a",)),
        (r"^(?!\B)", ("a",), ("", "-")),
        ("{a}", ("{a}",), ("a",)),
    ],
)  # fmt: skip
def test_what_python_reads_otherwise(pattern, found, not_found):
    dfa = search_dfa(pattern, LIMITS)
    assert [text for text in (*found, *not_found) if dfa.label(text)] == list(found)


@pytest.mark.parametrize("pattern", ["^?", r"\b+", "$*", "(?<=a)?", "(?<!a){2}", "{1}", "a|{2,}", "(?:{1}){2}", r"\c", r"[\c]", r"\c1"])
def test_malformed(pattern):
    with pytest.raises(ConstraintError, match=r"nothing to repeat|without a letter"):
        search_dfa(pattern, LIMITS)
