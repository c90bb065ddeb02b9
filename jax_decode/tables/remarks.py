"""`Remarks`: what a user is told of constraints on the device, beside their tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems


@dataclasses.dataclass(frozen=True, eq=False)
class Remarks:
    """What a user is told of constraints, beside the tables. All remarks are equal, so that none is a part of a program.

    Attributes:
      unenforced: places in their schemas that constraints leave out, by the constraint's index; see `SchemaOptions.unenforced`.
      in_use: of a pool's tables, the slots that are in use at any time; None where every index has its constraint.
    """

    unenforced: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    in_use: Collection[int] | None = None

    @classmethod
    def of(cls, constraints: Sequence[CompiledConstraint | CompiledItems]) -> Remarks:
        """Of constraints in their order."""
        return cls({i: c.unenforced for i, c in enumerate(constraints) if isinstance(c, CompiledConstraint) and c.unenforced})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remarks)

    def __hash__(self) -> int:
        return hash(Remarks)

    def __repr__(self) -> str:
        return "Remarks()"  # a tree's structure is compared by what it prints, too


NO_REMARKS = Remarks()
