"""Small Python functions for the small programmer: a comment that says what is wanted, and the function.

One responsibility: text. Every function parses and does what its comment says.
"""

import ast
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from tools.small_model import corpus

INDENT = "    "


@dataclass(frozen=True)
class _Draft:
    """A function before it is written out: blocks of the body are indented by tabs."""

    wanted: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    result: str
    body: str


_LISTS = ("numbers", "values", "scores", "prices", "ages", "items", "points", "sizes", "weights", "costs")
_WORDS = ("words", "names", "lines", "titles", "cities", "tags", "labels", "keys")
_ITEMS = ("x", "n", "value", "item", "number", "one")
_TOTALS = ("total", "result", "found", "out", "count")


def _condition(rng: random.Random, name: str) -> tuple[str, str, str]:
    """A property of whole numbers: an adjective, a word for names, and the test."""
    bound, factor = rng.randint(2, 99), rng.randint(3, 9)
    return rng.choice((
        ("even", "even", f"{name} % 2 == 0"),
        ("odd", "odd", f"{name} % 2 == 1"),
        ("positive", "positive", f"{name} > 0"),
        ("negative", "negative", f"{name} < 0"),
        (f"greater than {bound}", "large", f"{name} > {bound}"),
        (f"less than {bound}", "small", f"{name} < {bound}"),
        (f"divisible by {factor}", f"multiples_of_{factor}", f"{name} % {factor} == 0"),
        ("not zero", "nonzero", f"{name} != 0"),
    ))  # fmt: skip


def _change(rng: random.Random, name: str) -> tuple[str, str]:
    """What becomes of a number, in words and in Python."""
    by = rng.randint(2, 20)
    return rng.choice((
        ("the squares of", f"{name} * {name}"),
        ("the cubes of", f"{name} ** 3"),
        (f"{by} times", f"{name} * {by}"),
        (f"{by} more than", f"{name} + {by}"),
        ("the absolute values of", f"abs({name})"),
        ("", name),
    ))  # fmt: skip


def _filtered(rng: random.Random) -> _Draft:
    many, one, total = rng.choice(_LISTS), rng.choice(_ITEMS), rng.choice(_TOTALS)
    (kind, word, test), (of, changed) = _condition(rng, one), _change(rng, one)
    what = f"{of} the {many} that are {kind}".strip()
    parameters = ((many, "list[int]"),)
    choice = rng.randrange(5)
    if choice == 0:
        body = f"{total} = 0\nfor {one} in {many}:\n\tif {test}:\n\t\t{total} += 1\nreturn {total}"
        return _Draft(f"Count the {many} that are {kind}", f"count_{word}", parameters, "int", body)
    if choice == 1:
        body = f"{total} = 0\nfor {one} in {many}:\n\tif {test}:\n\t\t{total} += {changed}\nreturn {total}"
        return _Draft(f"Sum {what}", f"sum_{word}", parameters, "int", body)
    if choice == 2:
        body = f"{total} = []\nfor {one} in {many}:\n\tif {test}:\n\t\t{total}.append({changed})\nreturn {total}"
        return _Draft(f"Collect {what}", f"{word}_{many}", parameters, "list[int]", body)
    if choice == 3:
        body = f"return [{changed} for {one} in {many} if {test}]"
        return _Draft(f"List {what}", f"{word}_{many}", parameters, "list[int]", body)
    body = f"return sum({changed} for {one} in {many} if {test})"
    return _Draft(f"Add up {what}", f"sum_of_{word}", parameters, "int", body)


def _search(rng: random.Random) -> _Draft:
    many, one = rng.choice(_LISTS), rng.choice(_ITEMS)
    kind, word, test = _condition(rng, one)
    parameters = ((many, "list[int]"),)
    choice = rng.randrange(4)
    if choice == 0:
        body = f"for {one} in {many}:\n\tif {test}:\n\t\treturn {one}\nreturn None"
        return _Draft(f"Find the first of the {many} that is {kind}", f"first_{word}", parameters, "int | None", body)
    if choice == 1:
        body = f"for i, {one} in enumerate({many}):\n\tif {test}:\n\t\treturn i\nreturn -1"
        return _Draft(f"Say where the first of the {many} is that is {kind}", f"index_of_{word}", parameters, "int", body)
    if choice == 2:
        every = rng.choice(("any", "all"))
        body = f"return {every}({test} for {one} in {many})"
        return _Draft(f"Test if {every} of the {many} are {kind}", f"{every}_{word}", parameters, "bool", body)
    best, sign = rng.choice((("largest", ">"), ("smallest", "<")))
    body = f"{best} = {many}[0]\nfor {one} in {many}[1:]:\n\tif {one} {sign} {best}:\n\t\t{best} = {one}\nreturn {best}"
    return _Draft(f"Find the {best} of the {many}", f"{best}_of", parameters, "int", body)


def _texts(rng: random.Random) -> _Draft:
    text, many, one = rng.choice(("text", "line", "word", "name")), rng.choice(_WORDS), rng.choice(("word", "w", "item", "part"))
    size, sign = rng.randint(2, 12), rng.choice("-+,;|/")
    letter = rng.choice("aeiou")
    on_text, on_many = ((text, "str"),), ((many, "list[str]"),)
    method, done = rng.choice((
        ("upper", "in capitals"), ("lower", "in small letters"), ("strip", "without spaces"), ("title", "as titles"),
    ))  # fmt: skip
    return rng.choice((
        _Draft(f"Count the vowels of a {text}", "count_vowels", on_text, "int",
               f'count = 0\nfor c in {text}.lower():\n\tif c in "aeiou":\n\t\tcount += 1\nreturn count'),
        _Draft(f"Count how often the letter {letter} is in a {text}", f"count_{letter}", on_text, "int",
               f'return {text}.count("{letter}")'),
        _Draft(f"Turn a {text} around", "reverse", on_text, "str", f"return {text}[::-1]"),
        _Draft(f"Test if a {text} reads the same backwards", "is_palindrome", on_text, "bool",
               f"letters = [c for c in {text}.lower() if c.isalpha()]\nreturn letters == letters[::-1]"),
        _Draft(f"Join the {many} with {sign}", f"join_{many}", on_many, "str", f'return "{sign}".join({many})'),
        _Draft(f"Write the {many} {done}", f"{method}_{many}", on_many, "list[str]",
               f"return [{one}.{method}() for {one} in {many}]"),
        _Draft(f"List the {many} longer than {size} letters", f"long_{many}", on_many, "list[str]",
               f"out = []\nfor {one} in {many}:\n\tif len({one}) > {size}:\n\t\tout.append({one})\nreturn out"),
        _Draft(f"Number the {many}", f"numbered_{many}", on_many, "list[str]",
               f'return [f"{{i}}. {{{one}}}" for i, {one} in enumerate({many}, 1)]'),
        _Draft(f"Find the longest of the {many}", "longest", on_many, "str",
               f'best = ""\nfor {one} in {many}:\n\tif len({one}) > len(best):\n\t\tbest = {one}\nreturn best'),
        _Draft(f"Sort the {many} by length", f"sort_{many}", on_many, "list[str]",
               f"return sorted({many}, key=lambda {one}: len({one}))"),
    ))  # fmt: skip


def _mappings(rng: random.Random) -> _Draft:
    many, one, table = rng.choice(_WORDS), rng.choice(("word", "w", "item")), rng.choice(("table", "counts", "groups", "found"))
    stock = rng.choice(("stock", "prices", "ages", "ranks", "points"))
    bound = rng.randint(2, 60)
    on_many, on_stock = ((many, "list[str]"),), ((stock, "dict[str, int]"),)
    return rng.choice((
        _Draft(f"Count each of the {many}", f"count_{many}", on_many, "dict[str, int]",
               f"{table} = {{}}\nfor {one} in {many}:\n\t{table}[{one}] = {table}.get({one}, 0) + 1\nreturn {table}"),
        _Draft(f"Group the {many} by length", f"group_{many}", on_many, "dict[int, list[str]]",
               f"{table} = {{}}\nfor {one} in {many}:\n\tsize = len({one})\n\tif size not in {table}:\n\t\t{table}[size] = []\n"
               f"\t{table}[size].append({one})\nreturn {table}"),
        _Draft(f"Group the {many} by their first letter", "by_letter", on_many, "dict[str, list[str]]",
               f"{table} = {{}}\nfor {one} in {many}:\n\tif not {one}:\n\t\tcontinue\n"
               f"\t{table}.setdefault({one}[0], []).append({one})\nreturn {table}"),
        _Draft(f"Exchange keys and values of the {stock}", f"invert_{stock}", on_stock, "dict[int, str]",
               f"return {{value: key for key, value in {stock}.items()}}"),
        _Draft(f"Keep the {stock} above {bound}", f"high_{stock}", on_stock, "dict[str, int]",
               f"return {{key: value for key, value in {stock}.items() if value > {bound}}}"),
        _Draft(f"Print all {stock}", f"show_{stock}", on_stock, "None",
               f'for key, value in sorted({stock}.items()):\n\tprint(f"{{key}}: {{value}}")'),
        _Draft(f"Find the key with the highest of the {stock}", "best_key", on_stock, "str | None",
               f"best = None\nfor key in {stock}:\n"
               f"\tif best is None or {stock}[key] > {stock}[best]:\n\t\tbest = key\nreturn best"),
        _Draft(f"Collect the different {many}", f"different_{many}", on_many, "list[str]",
               f"seen = set()\nout = []\nfor {one} in {many}:\n"
               f"\tif {one} not in seen:\n\t\tseen.add({one})\n\t\tout.append({one})\nreturn out"),
    ))  # fmt: skip


def _attempts(rng: random.Random) -> _Draft:
    text, path = rng.choice(("text", "word", "field", "value")), rng.choice(("path", "name", "source"))
    default = rng.randint(0, 9)
    kind, error = rng.choice((("int", "whole number"), ("float", "number")))
    left, right = rng.choice((("a", "b"), ("x", "y"), ("total", "parts")))
    on_text, on_path = ((text, "str"),), ((path, "str"),)
    return rng.choice((
        _Draft(f"Read a {error}, or give {default}", f"read_{kind}", on_text, kind,
               f"try:\n\treturn {kind}({text})\nexcept ValueError:\n\treturn {default}"),
        _Draft(f"Divide {left} by {right}, or give {default}", "divide", ((left, "float"), (right, "float")), "float",
               f"try:\n\treturn {left} / {right}\nexcept ZeroDivisionError:\n\treturn {default}"),
        _Draft("Count the lines of a file", "count_lines", on_path, "int",
               f"count = 0\nwith open({path}) as file:\n\tfor line in file:\n\t\tcount += 1\nreturn count"),
        _Draft("Read the lines of a file that are not empty", "read_lines", on_path, "list[str]",
               f"with open({path}) as file:\n\treturn [line.strip() for line in file if line.strip()]"),
        _Draft("Read a file, or give an empty text", "read_text", on_path, "str",
               f'try:\n\twith open({path}) as file:\n\t\treturn file.read()\nexcept OSError:\n\treturn ""'),
        _Draft("Write lines to a file", "write_lines", (*on_path, ("lines", "list[str]")), "None",
               f'with open({path}, "w") as file:\n\tfor line in lines:\n\t\tfile.write(line + "\\n")'),
        _Draft(f"Add up all fields that are a {error}", "sum_fields", (("fields", "list[str]"),), kind,
               f"total = 0\nfor field in fields:\n"
               f"\ttry:\n\t\ttotal += {kind}(field)\n\texcept ValueError:\n\t\tcontinue\nreturn total"),
        _Draft("Call a function, and say when it is done", "call", (("function", "Callable"),), "None",
               'try:\n\tfunction()\nexcept Exception as error:\n'
               '\tprint(f"failed: {error}")\nelse:\n\tprint("done")\nfinally:\n\tprint("end")'),
    ))  # fmt: skip


def _recursive(rng: random.Random) -> _Draft:
    n, a, b = rng.choice(("n", "k", "number")), rng.choice("ax"), rng.choice("by")
    on_n, on_two = ((n, "int"),), ((a, "int"), (b, "int"))
    return rng.choice((
        _Draft(f"The factorial of {n}", "factorial", on_n, "int", f"if {n} < 2:\n\treturn 1\nreturn {n} * factorial({n} - 1)"),
        _Draft(f"The factorial of {n} in a loop", "factorial", on_n, "int",
               f"result = 1\nfor i in range(2, {n} + 1):\n\tresult *= i\nreturn result"),
        _Draft(f"The Fibonacci number {n}", "fibonacci", on_n, "int",
               f"if {n} < 2:\n\treturn {n}\nreturn fibonacci({n} - 1) + fibonacci({n} - 2)"),
        _Draft(f"The first {n} Fibonacci numbers", "fibonacci_list", on_n, "list[int]",
               f"out = []\na, b = 0, 1\nwhile len(out) < {n}:\n\tout.append(a)\n\ta, b = b, a + b\nreturn out"),
        _Draft(f"The greatest common divisor of {a} and {b}", "gcd", on_two, "int",
               f"while {b}:\n\t{a}, {b} = {b}, {a} % {b}\nreturn {a}"),
        _Draft(f"The power of {a} to {b}", "power", on_two, "int",
               f"result = 1\nfor _ in range({b}):\n\tresult *= {a}\nreturn result"),
        _Draft(f"The sum of the digits of {n}", "digit_sum", on_n, "int",
               f"total = 0\nwhile {n} > 0:\n\ttotal += {n} % 10\n\t{n} //= 10\nreturn total"),
        _Draft(f"Test if {n} is prime", "is_prime", on_n, "bool",
               f"if {n} < 2:\n\treturn False\nfor i in range(2, {n}):\n\tif {n} % i == 0:\n\t\treturn False\nreturn True"),
        _Draft(f"The divisors of {n}", "divisors", on_n, "list[int]", f"return [i for i in range(1, {n} + 1) if {n} % i == 0]"),
        _Draft(f"The steps from {n} to 1", "steps", on_n, "int",
               f"count = 0\nwhile {n} != 1:\n"
               f"\tif {n} % 2 == 0:\n\t\t{n} //= 2\n\telse:\n\t\t{n} = 3 * {n} + 1\n\tcount += 1\nreturn count"),
        _Draft(f"Count down from {n}", "countdown", on_n, "Iterator[int]", f"while {n} > 0:\n\tyield {n}\n\t{n} -= 1"),
    ))  # fmt: skip


def _branches(rng: random.Random) -> _Draft:
    name, words = rng.choice((
        ("age", ("child", "young", "adult", "old")), ("score", ("bad", "fair", "good", "great")),
        ("speed", ("slow", "normal", "fast", "too fast")), ("price", ("cheap", "fair", "dear", "too dear")),
        ("size", ("tiny", "small", "large", "huge")), ("degrees", ("cold", "cool", "warm", "hot")),
    ))  # fmt: skip
    bounds = sorted(rng.sample(range(1, 100), len(words) - 1))[: rng.randint(1, 3)]
    body = "".join(
        f'{"elif" if i else "if"} {name} < {bound}:\n\treturn "{word}"\n' for i, (bound, word) in enumerate(zip(bounds, words))
    )
    end = f'else:\n\treturn "{words[len(bounds)]}"' if rng.random() < 0.5 else f'return "{words[len(bounds)]}"'
    told = ", ".join(f"{word} below {bound}" for bound, word in zip(bounds, words))
    return _Draft(f"Say {told}, else {words[len(bounds)]}", f"{name}_word", ((name, "int"),), "str", body + end)


def _nested(rng: random.Random) -> _Draft:
    rows, many = rng.choice(("board", "table", "matrix", "grid")), rng.choice(_LISTS)
    kind, word, test = _condition(rng, "x")
    low, high = sorted(rng.sample(range(1, 100), 2))
    on_rows, on_many = ((rows, "list[list[int]]"),), ((many, "list[int]"),)
    return rng.choice((
        _Draft(f"Count what is {kind} in a {rows}", f"count_{word}", on_rows, "int",
               f"count = 0\nfor row in {rows}:\n\tfor x in row:\n\t\tif {test}:\n\t\t\tcount += 1\nreturn count"),
        _Draft(f"Add up a {rows}", f"sum_{rows}", on_rows, "int",
               f"total = 0\nfor row in {rows}:\n\tfor x in row:\n\t\ttotal += x\nreturn total"),
        _Draft(f"Put the rows of a {rows} into one list", "flatten", on_rows, "list[int]",
               f"return [x for row in {rows} for x in row]"),
        _Draft(f"List pairs of {many} with a sum", "pairs", (*on_many, ("total", "int")), "list[tuple[int, int]]",
               f"out = []\nfor i, a in enumerate({many}):\n"
               f"\tfor b in {many}[i + 1:]:\n\t\tif a + b == total:\n\t\t\tout.append((a, b))\nreturn out"),
        _Draft(f"Keep the {many} between {low} and {high}", "clip", on_many, "list[int]",
               f"out = []\nfor x in {many}:\n\tif x < {low}:\n\t\tout.append({low})\n\telif x > {high}:\n\t\tout.append({high})\n"
               f"\telse:\n\t\tout.append(x)\nreturn out"),
        _Draft(f"The mean of the {many}", "mean", on_many, "float",
               f"if not {many}:\n\treturn 0.0\nreturn sum({many}) / len({many})"),
        _Draft(f"Sort the {many}", f"sort_{many}", on_many, "list[int]",
               f"out = []\nfor x in {many}:\n\ti = 0\n"
               f"\twhile i < len(out) and out[i] < x:\n\t\ti += 1\n\tout.insert(i, x)\nreturn out"),
        _Draft(f"A function that adds {low}", f"adder_{low}", (), "Callable", f"def add(x):\n\treturn x + {low}\nreturn add"),
        _Draft(f"A function that calls another one {low} times", f"repeat_{low}", (("function", "Callable"),), "Callable",
               f"def repeated(x):\n\tfor _ in range({low}):\n\t\tx = function(x)\n\treturn x\nreturn repeated"),
        _Draft(f"Print for 1 to n if it is {kind}", "answers", (("n", "int"),), "None",
               f'for x in range(1, n + 1):\n\tif {test}:\n\t\tprint(f"{{x}}: yes")\n\telse:\n\t\tprint(f"{{x}}: no")'),
    ))  # fmt: skip


_KINDS: tuple[Callable[[random.Random], _Draft], ...] = (
    _filtered, _filtered, _search, _texts, _mappings, _attempts, _recursive, _branches, _nested,
)  # fmt: skip


def is_held_out(prompt: str) -> bool:
    """Whether training leaves a comment out: one in sixteen."""
    return zlib.crc32(prompt.encode()) % 16 == 0


def program(rng: random.Random) -> corpus.Example:
    """A function behind the comment that asks for it, with or without types, a docstring, and a check of its argument."""
    draft = rng.choice(_KINDS)(rng)
    typed = rng.random() < 0.5
    parameters = ", ".join(f"{name}: {kind}" if typed else name for name, kind in draft.parameters)
    lines = [f"def {draft.name}({parameters})" + (f" -> {draft.result}:" if typed else ":")]
    if rng.random() < 0.25:
        lines.append(f'\t"""{draft.wanted}."""')
    name, kind = draft.parameters[0] if draft.parameters else ("", "")
    if kind.startswith("list") and draft.name != "mean" and rng.random() < 0.15:
        lines += [f"\tif not {name}:", f'\t\traise ValueError("no {name}")']
    lines += [f"\t{line}" for line in draft.body.split("\n")]
    output = "\n".join(lines).replace("\t", INDENT) + "\n"
    ast.parse(output)
    return corpus.Example("program", f"# {draft.wanted}.\n", output, output)
