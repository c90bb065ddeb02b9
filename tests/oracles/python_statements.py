"""Random `match`, `with` and `try` statements of Python, valid ones and others."""

from __future__ import annotations

import random
import re

SUBJECTS = (
    "x", "x.y", "f(x)", "x, y", "x,", "(x)", "(x, y)", "[a]", "-x", "1", '"s"', "{1: 2}", "x + 1", "x if y else z", "x == y", "x and y",
    "await x", "x[0]", "x, *y", 'f"a"', "None", "x not in y", "iff", "a", "n", "o", "ina", "isx", "x or y", "match", "case", "()",
    "x.y.z(1)[2].w", "~x", "(yield)", "x for x in y", "(a for a in b)", "(a=1)", "[1:2]", "*a", "x as y", "",
)  # fmt: skip
SIMPLE = ("1", "-1.5", '"s"', "None", "x", "_", "a.b", 'b"x"', "1j", "''", 'r"a"', "0x1f", '"a" "b"', "match", "case", "x y", "-x", "a.b()", "_.a", "_()")
CONTEXTS = (
    "a", "open(x)", "a.b", "(a)", "(a, b)", "x if y else z", "[a]", '"s"', "a[0]", "-a", "await x", "a + b", "*a", "yield", "a for b in c",
    "{}", "(a).b", "(x, y)[0]", "a is b", "f(a as b)", 'b"x"', "1", "x := 1",
)  # fmt: skip
TARGETS = ("f", "a.b", "(a, b)", "[a, *b]", "x[0]", "f()", "a, b", "1")
LEFT_OUT_STATEMENTS = re.compile(
    r"""(?x) match[ ]*(not|lambda|[*]) | ^match[^\n]*:= | case\b[^\n]*\b[fF]["'] | \b_[ ]*= | case\b[^\n]*\d[ ]*[-+] | \d[a-z]+\b | as[ ]*[*] | with[ ]*(not|lambda)\b"""
    r"""| ^(case|match)[ ]*:[ ]*\S | \\ | ^[ ]{1,3}\S | ^[ ]{5,7}\S | ^[ ]{9,} | \s\Z(?<!\n)""",
    re.MULTILINE | re.VERBOSE,
)
"""What the library's `python` leaves out, of them: see its comment."""


def pattern(rng: random.Random, depth: int = 0) -> str:
    kind = rng.randrange(11)
    if kind < 2 or depth > 2:
        return rng.choice(SIMPLE)
    if kind < 4:
        return " | ".join(pattern(rng, depth + 1) for _ in range(rng.randint(1, 3)))
    if kind == 4:
        return f"{pattern(rng, depth + 1)} as {rng.choice(('x', 'y', '_', 'z.a', '1'))}"
    if kind < 7:
        parts = [rng.choice((pattern(rng, depth + 1), "*x", "*_")) for _ in range(rng.randint(0, 3))]
        return ", ".join(parts).join(rng.choice(("()", "[]"))) if rng.random() < 0.8 else f"({', '.join(parts)},)"
    if kind < 9:
        keys = ('"a"', "1", "-2", "None", "a.b", "x", 'b"a"', "True")
        parts = [f"{rng.choice(keys)}: {pattern(rng, depth + 1)}" for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.4:
            parts.insert(rng.randint(max(0, len(parts) - 1), len(parts)), rng.choice(("**rest", "**_")))
        return f"{{{', '.join(parts)}{rng.choice(('', ','))}}}"
    parts = [pattern(rng, depth + 1) for _ in range(rng.randint(0, 2))]
    parts += [rng.choice(("x=", "y=", "a.b=")) + pattern(rng, depth + 1) for _ in range(rng.randint(0, 2))]
    rng.shuffle(parts) if rng.random() < 0.1 else None
    return f"{rng.choice(('Foo', 'a.B', 'int'))}({', '.join(parts)}{rng.choice(('', '', ','))})"


def match_statement(rng: random.Random) -> str:
    rows = [f"match {rng.choice(SUBJECTS)}:"]
    for _ in range(rng.randint(1, 2)):
        whole = pattern(rng)
        if rng.random() < 0.3:
            whole = ", ".join(rng.choice((pattern(rng, 1), "*x")) for _ in range(rng.randint(1, 3))) + rng.choice(("", ","))
        guard = rng.choice(("", "", " if x", " if (y := 1)", " if x, y"))
        rows.append(f"    case {whole}{guard}:{rng.choice((' pass', chr(10) + '        pass'))}")
    return "\n".join([*rows, rng.choice(("", "x = 1\n", "match = 1\n", "case(match)\n"))])


def with_statement(rng: random.Random) -> str:
    items = [rng.choice(CONTEXTS) + (f" as {rng.choice(TARGETS)}" if rng.random() < 0.5 else "") for _ in range(rng.randint(1, 3))]
    text = ", ".join(items) + rng.choice(("", "", "", ","))
    if rng.random() < 0.6:
        text = f"({text})"
        if rng.random() < 0.3:
            text += rng.choice((" as f", ".x", ", b", " + 1", "(a)", "[0]", ", c as d", ".x as y", " if a else b"))
    return f"{rng.choice(('', 'async '))}with {text}: pass\n"


def try_statement(rng: random.Random) -> str:
    heads = ("except* A", "except* A", "except* (A, B) as e", "except A", "except", "except *A.b", "except* A, B", "except*", "except* A as b.c")
    parts = [f"{rng.choice(heads)}:\n    pass\n" for _ in range(rng.randint(1, 3))]
    return "try: pass\n" + "".join(parts) + rng.choice(("", "else: pass\n", "finally: pass\n", "else: pass\nfinally: pass\n", "else: pass\nexcept* A: pass\n"))


def statement(rng: random.Random) -> str:
    """One of them; two of five are changed in one place."""
    text = rng.choice((match_statement, match_statement, with_statement, try_statement))(rng)
    return changed(rng, text) if rng.random() < 0.4 else text


def changed(rng: random.Random, text: str) -> str:
    parts = re.findall(r"\w+|\s+|.", text)
    k = rng.randrange(len(parts))
    words = ("match", "case", "_", "as", "if", "*", "**", "(", ")", "[", "]", ",", ":", "|", ".", "=", "in", "not", "x", "1", "\n")
    parts[k : k + 1] = rng.choice(([], [parts[k], parts[k]], [rng.choice(words), parts[k]], [rng.choice(words)]))
    return "".join(parts)
