"""How many checks a random generator does: a fixed number of cases by default, 10⁵ checks and more when it is run in full."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

CHECKS = 100_000
"""Checks of a generator that is run in full."""


class Tally(Counter[str]):
    """Counts of one generator.

    `checks` counts single comparisons with an oracle: a text, a token of a mask, or a bound at a node. `made` counts the
    constraints that they were done with. Other names are a test's own.

    Attributes:
      seed: of the case in progress; `random.Random(seed)` repeats it.
    """

    def __init__(self, in_full: bool) -> None:
        super().__init__()
        self.in_full, self.seed = in_full, ""

    def cases(self, sampled: int, least: int = 1_000, name: str = "") -> Iterator[random.Random]:
        """A generator of random numbers for each case.

        Args:
          sampled: cases by default.
          least: constraints when it is run in full, beside `CHECKS` checks.
          name: begins the seeds.
        """
        number = 0
        while number < sampled or (self.in_full and (self["checks"] < CHECKS or self["made"] < least)):
            self.seed = f"{name}{number}"
            yield random.Random(self.seed)
            number += 1
            self["cases"] = number
        self.seed = ""
