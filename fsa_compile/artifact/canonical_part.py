"""`CanonicalPart`: what a canonical constraint says of its tokenizer's filter, which is followed beside it.

Imports the standard library only. In files it is a few entries of the header, written and read here; earlier formats had them
among the entries of `extra`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fsa_compile.errors import ArtifactError

NAMES = ("canonical", "canonical_start", "canonical_unless", "canonical_partners")
"""Entries of a file's header."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CanonicalPart:
    """Fields of a canonical constraint; of all others, the defaults.

    Attributes:
      tables: identity of the tokenizer's canonical tables; empty where every token sequence is allowed.
      last: the last token of the prompt that its texts continue, -1 for none.
      shortest: number of tokens of a shortest text.
      state: of the tokenizer's filter behind the prompt; -1 where the file is of a version that did not keep it.
      excepted: lists of states of the filter.
      unless: (node, row, list): from the node, tokens of the bit row may not lead to a state of the list.
      partners: whether every place, of a regular constraint, has two nodes, the second, right behind the first, for tokens that
        the last one forbids.
    """

    tables: str = ""
    last: int = -1
    shortest: int = 0
    state: int = -1
    excepted: tuple[tuple[int, ...], ...] = ()
    unless: tuple[tuple[int, int, int], ...] = ()
    partners: bool = False

    def header(self) -> dict[str, Any]:
        """Entries of a file's header; none where every token sequence is allowed."""
        if not self.tables:
            return {}
        out: dict[str, Any] = {"canonical": self.tables, "canonical_start": [self.last, self.shortest, self.state]}
        if self.unless:
            rows = [list(note) for note in self.unless]
            out["canonical_unless"] = {"states": [list(states) for states in self.excepted], "rows": rows}
        return out | ({"canonical_partners": True} if self.partners else {})

    @classmethod
    def of_header(cls, header: dict[str, Any], bad: Callable[[str], ArtifactError]) -> CanonicalPart:
        """Reads what `header` wrote; types are checked.

        Args:
          header: of a file; of earlier formats its `extra`.
          bad: makes an error of what is wrong.

        Raises:
          ArtifactError: an entry is of a wrong type.
        """
        tables, partners = header.get("canonical", ""), header.get("canonical_partners", False)
        start, noted = header.get("canonical_start", [-1, 0, -1]), header.get("canonical_unless", {"states": [], "rows": []})
        if not isinstance(tables, str):
            raise bad(f"'canonical' is not the identity of canonical tables but {tables!r:.60}")
        if not isinstance(partners, bool):
            raise bad(f"'canonical_partners' is neither true nor false but {partners!r:.60}")
        if not _are_numbers(start, 3):
            raise bad(f"'canonical_start' is not three numbers but {start!r:.60}")
        if not isinstance(noted, dict) or noted.keys() != {"states", "rows"}:
            raise bad("'canonical_unless' is not lists of states and rows: it may be an earlier version's")
        for name, size in (("states", None), ("rows", 3)):
            if not isinstance(noted[name], list) or not all(_are_numbers(one, size) for one in noted[name]):
                raise bad(f"'canonical_unless' has {name} that are not lists of numbers")
        last, shortest, state = start
        excepted = tuple(map(tuple, noted["states"]))
        unless = tuple(map(tuple, noted["rows"]))
        return cls(tables=tables, last=last, shortest=shortest, state=state, excepted=excepted, unless=unless, partners=partners)


EVERY_SEQUENCE = CanonicalPart()
"""Of a constraint that allows every token sequence."""


def _are_numbers(value: Any, size: int | None) -> bool:
    """Whether a JSON value is a list of `size` integers; None for any number of them."""
    return isinstance(value, list) and (size is None or len(value) == size) and all(type(one) is int for one in value)
