"""Tables of numbers by token: what is kept for other constraints changes nothing, and stays as it is."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fsa_compile.composition.pushdown import nodes as stack_nodes
from fsa_compile.composition.pushdown.nodes import Increments

_SIZE = 40
Contents = dict[bytes, tuple[np.ndarray, np.ndarray]]


def _contents(rng: random.Random) -> Contents:
    out: Contents = {}
    for i in range(6):
        token = np.array(sorted(rng.sample(range(_SIZE), rng.randint(1, 20))))
        out[bytes([i])] = token, np.array([rng.randint(0, 2) for _ in token])
    return out


def _made(memo: dict[Any, Any], contents: Contents, batches: list[list[bytes]]) -> tuple[list[list[int]], np.ndarray]:
    tables: Any = SimpleNamespace(vocab_size=_SIZE, memo=memo)
    increments = Increments(tables)
    numbers = []
    for keys in batches:

        def content(new: np.ndarray, keys: list[bytes] = keys) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            found = [contents[keys[i]] for i in new.tolist()]
            which = np.repeat(np.arange(len(found)), [len(token) for token, _ in found])
            return which, np.concatenate([token for token, _ in found]), np.concatenate([value for _, value in found])

        numbers.append(increments.numbers(keys, content).tolist())
    return numbers, increments.stacked()


def test_what_is_kept_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_nodes, "_SEVERAL", 8)
    rng = random.Random(0)
    for _ in range(20):
        contents, memo = _contents(rng), dict[Any, Any]()
        every = list(contents)
        choices = [[rng.choices(every, k=rng.randint(1, 3)) for _ in range(rng.randint(1, 3))] for _ in range(5)]
        for _ in range(30):
            batches = rng.choice(choices)
            numbers, rows = _made(memo, contents, batches)
            want, want_rows = _made({}, contents, batches)
            assert numbers == want
            assert np.array_equal(rows, want_rows)
            for keys, found in zip(batches, numbers):
                for key, number in zip(keys, found):
                    token, value = contents[key]
                    assert (rows[number][token] == value).all()
