"""Which cases of a parametrised test run by default: a fixed sample; `--exhaustive` runs all."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

FULL = "CONSTRAX_TESTS_IN_FULL"
"""The environment variable that is set where `--exhaustive` is: decorators are read before there are fixtures."""


def examples(sampled: int, in_full: int) -> int:
    """How many examples Hypothesis tries: `sampled` by default, `in_full` with `--exhaustive`."""
    return in_full if os.environ.get(FULL) else sampled


def sample(cases: Mapping[str, Mapping[str, object]], keep: int, every: Sequence[str] = ()) -> set[str]:
    """Ids of the cases to run.

    The choice depends on the ids alone, by their hashes: neither on the order of the cases nor on the process.

    Args:
      cases: for each id, its parameters' values (hashable).
      keep: how many to choose; all of them where there are no more.
      every: names of parameters. Each value that a case has for one of them occurs in the sample.

    Raises:
      ValueError: so many cases cannot hold every value.
    """
    order = sorted(cases, key=lambda name: hashlib.sha256(name.encode()).digest())
    values = {name: {(parameter, cases[name][parameter]) for parameter in every} for name in order}
    missing = set[tuple[str, object]]().union(*values.values())
    chosen: list[str] = []
    while missing:
        best = max(order, key=lambda name: len(values[name] & missing))
        missing -= values[best]
        chosen.append(best)
    if len(chosen) > keep:
        raise ValueError(f"a sample of {keep} cannot hold every value of {', '.join(every)}: {len(chosen)} are needed")
    rest = [name for name in order if name not in chosen]
    return {*chosen, *rest[: keep - len(chosen)]}


def _key(value: object) -> object:
    """The value, or where it cannot be hashed its identity: cases of one value share its object."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def sampled(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The items to run: those without the mark `sampled`, and of each marked test a sample of its cases.

    Raises:
      pytest.UsageError: a mark's sample is too small, or its test has no cases.
    """
    tests: defaultdict[tuple[object, str], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
                raise pytest.UsageError(f"{item.nodeid} is marked as sampled and has no cases")
            tests[item.parent, item.originalname][item.callspec.id] = item
    left_out: set[pytest.Item] = set()
    for (_, name), cases in tests.items():
        mark = next(iter(cases.values())).get_closest_marker("sampled")
        values = {key: {name: _key(value) for name, value in item.callspec.params.items()} for key, item in cases.items()}
        try:
            chosen = sample(values, *mark.args, **mark.kwargs)
        except ValueError as error:
            raise pytest.UsageError(f"{name}: {error}") from None
        left_out.update(item for key, item in cases.items() if key not in chosen)
    return set(items) - left_out
