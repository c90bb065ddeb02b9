"""Small constraints of every kind, which language each accepts, and how the files in `tests/artifacts` were made of them.

    python tests/oracles/saved_artifacts.py tests/artifacts/format-N      # from the repository's folder, with a new format

Files of earlier formats stay as they are: later versions must go on reading them, or say what to do.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fsa_compile
import models
from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.ranges import ranges
from fsa_compile.artifact.stored_arrays import StoredArray, StoredChildren, StoredRows, TokenSets, stored_arcs

TOKENS = [
    b"", *(bytes([c]) for c in b'abciexflrstu()[],{}:"'), b"ab", b"aa", b"a" * 10, b"a" * 50, b"()", b"((", b"])", b"ie", b'{"', b'":', b'"a":',
    b"true", b"false", b',"', b"}}", b"\xc3", b"\xa9",
]  # fmt: skip
VOCABULARY = fsa_compile.Vocabulary.from_tokens(TOKENS, stop_ids=[0])

CITIES = ["Cologne", "Berlin", "Munich"]
ITEMS = [[3, 1, 4], [3, 1, 5], [9, 2, 6], [9, 2], [5]]
OBJECT = {
    "type": "object", "additionalProperties": False, "required": ["a"],
    "properties": {name: {"type": "boolean"} for name in "abc"},
}  # fmt: skip
GRAMMARS = {
    "stack": 'start: "(" start* ")" | "[" start ("," start)* "]" | "a"',
    "counter": 'start: "a"~3..200 ("b" | "c")',
    "stack and counter": 'start: "(" start ")" | /[ab]/~2..300',
    "temperatures": 'start: x ("," x)*\nx: "(" x ")" | a\na[temperature=0.5]: /a{1,3}/',
    "several stacks": 'start: "i" start | "i" start "e" start | "x"',
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of artifact.

    Attributes:
      compile: makes it with the version at hand.
      texts: all its texts of at most `length` characters.
      length: as said; None: all its texts.
      longer: other texts, and whether they belong to the language.
    """

    compile: Callable[[], Any]
    texts: Callable[[], set[str]]
    length: int | None = None
    longer: tuple[tuple[str, bool], ...] = ()


def strings(alphabet: str, length: int) -> Iterator[str]:
    """All strings of at most so many characters."""
    for n in range(length + 1):
        yield from map("".join, itertools.product(alphabet, repeat=n))


def matching(pattern: str, alphabet: str, length: int) -> set[str]:
    """By `re`."""
    return {text for text in strings(alphabet, length) if re.fullmatch(pattern, text)}


def reduced(text: str) -> bool:
    """Whether brackets and lists can be replaced from the inside until one `a` is left."""
    while text != "a":
        shorter = re.sub(r"\(a*\)|\[a(,a)*\]", "a", text)
        if shorter == text:
            return False
        text = shorter
    return True


def branching(text: str) -> bool:
    """Whether it is a statement with an `i` before each of two, of which the second with its `e` may be missing."""
    known: dict[str, bool] = {"x": True}

    def statement(part: str) -> bool:
        if part not in known:
            rest = part[1:]
            cuts = [k for k, c in enumerate(rest) if c == "e"]
            known[part] = part[:1] == "i" and (statement(rest) or any(statement(rest[:k]) and statement(rest[k + 1 :]) for k in cuts))
        return known[part]

    return statement(text)


def objects() -> set[str]:
    """The object's texts without white space, keys in every order."""
    texts = set()
    for n in range(1, 4):
        for names in itertools.permutations("abc", n):
            if "a" in names:
                for values in itertools.product([True, False], repeat=n):
                    texts.add(json.dumps(dict(zip(names, values)), separators=(",", ":")))
    return texts


def _grammar(name: str, stacks: int = 1) -> Callable[[], Any]:
    return lambda: fsa_compile.compile_grammar(GRAMMARS[name], VOCABULARY, mode="characters", stacks=stacks)


REGULAR = r"(ab|[a-c])+é?b{0,2}"
_NESTED = re.compile(r"\(*a{1,3}\)*")
_BRACKETS = re.compile(r"\(*[ab]{2,300}\)*")

KINDS = {
    "regular": Kind(lambda: fsa_compile.compile_regex(REGULAR, VOCABULARY), lambda: matching(REGULAR, "abcé", 5), 5),
    "counter": Kind(
        _grammar("counter"), lambda: matching(r"a{3,200}(b|c)", "abc", 6), 6,
        (("a" * 200 + "b", True), ("a" * 201 + "b", False), ("a" * 201, False)),
    ),
    "stack": Kind(_grammar("stack"), lambda: {text for text in strings("()[],a", 6) if reduced(text)}, 6),
    "stack_and_counter": Kind(
        _grammar("stack and counter"),
        lambda: {t for t in strings("()ab", 6) if _BRACKETS.fullmatch(t) and t.count("(") == t.count(")")}, 6,
        (("(" * 40 + "a" * 300 + ")" * 40, True), ("((" + "a" * 301 + "))", False), ("((aaa)))", False)),
    ),
    "several_stacks": Kind(_grammar("several stacks", 4), lambda: {text for text in strings("iex", 7) if branching(text)}, 7),
    "keys": Kind(
        lambda: fsa_compile.compile_json_schema(
            OBJECT, VOCABULARY, options=fsa_compile.SchemaOptions(key_order="any", whitespace="compact")
        ),
        objects,
    ),
    "temperatures": Kind(
        _grammar("temperatures"),
        lambda: {t for t in strings("(),a", 6) if all(_NESTED.fullmatch(x) and x.count("(") == x.count(")") for x in t.split(","))}, 6,
    ),
    "canonical": Kind(
        lambda: fsa_compile.compile_choices(CITIES, models.small_tokenizer_path(), canonical=True), lambda: set(CITIES)
    ),
    "items": Kind(lambda: fsa_compile.compile_items(ITEMS, 12, stop_ids=[11]), set),
}  # fmt: skip
"""By the name of the file."""


def in_parts(c: fsa_compile.CompiledConstraint) -> fsa_compile.CompiledConstraint:
    """A deterministic constraint with the arrays in parts that large ones have."""
    token = np.asarray(c.arc_token)
    node = np.repeat(np.arange(c.num_nodes), np.diff(c.arc_offset))
    effect = np.asarray(c.arc_effect, np.int64)
    pairs, which = np.unique(np.stack((node, effect)), axis=1, return_inverse=True)
    order, hashes = which.ravel().argsort(kind="stable"), np.zeros(pairs.shape[1], np.uint64)
    np.add.at(hashes, which.ravel(), mixed(token))
    begin = np.append(0, np.bincount(which.ravel(), minlength=len(hashes)).cumsum())

    def tokens(i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place, at = ranges(begin[i], begin[i + 1])
        return place, token[order[at]]

    sets = TokenSets(hashes, tokens)
    rows = StoredRows.of(np.asarray(c.rows).__getitem__, c.rows.shape)
    assert rows is not None
    changes: dict[str, StoredArray] = {"rows": rows}
    first = np.append(0, np.bincount(pairs[0], minlength=c.num_nodes).cumsum())

    def columns(nodes: slice) -> tuple[np.ndarray, np.ndarray]:
        some = np.arange(first[nodes.start], first[nodes.stop])
        return pairs[1][some], some

    made = stored_arcs(first, columns, sets, None)
    if len(token) and made is not None:
        changes |= {name: made[name] for name in ("arc_token", "arc_effect")}
    if c.delta.any():
        changes["delta"] = StoredChildren.of(np.asarray(c.delta))
    return dataclasses.replace(c, **changes)


def make(folder: Path) -> None:
    """Writes all kinds in today's form."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, kind in KINDS.items():
        kind.compile().save(folder / f"{name}.npz")
    (folder / "in parts").mkdir()
    for name in ("stack", "temperatures"):  # as large ones are written
        in_parts(KINDS[name].compile()).save(folder / "in parts" / f"{name}.npz")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
