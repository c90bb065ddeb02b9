"""What rows were made from: their vocabulary, their prompts, and where the limit of tokens narrowed their masks.

The last is found by walking rows once more through their tables, without the model, when somebody asks: so a step costs
nothing for it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import UNREACHABLE
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Numbers, Request, first_state
from jax_decode.kernels.placement import on_automatic_axes, put_rows
from jax_decode.step.masking import mask_parts
from jax_decode.step.state import ConstraintState, Status
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


@dataclasses.dataclass(frozen=True)
class Origin:
    """What is known of rows beside what they are.

    Attributes:
      fingerprint: of the vocabulary, "" where it is not known.
      prompts: token ids of the prompts, the id that starts a text among them.
      each: rows per prompt.
      tables: the constraints, or None.
      numbers: of every row its constraint and limits.
      steps: see `Request`.
    """

    fingerprint: str
    prompts: list[list[int]]
    each: int
    tables: ConstraintTables | None
    numbers: Numbers
    steps: int

    @classmethod
    def of(cls, request: Request, each: int) -> Origin:
        """Of the rows of a request, `each` per prompt."""
        prompts = [row[:length].tolist() for row, length in zip(request.prompts.tokens, request.prompts.lengths)]
        return cls(request.fingerprint, prompts, each, request.tables, request.numbers(each), request.steps)

    def unenforced(self, row: int) -> tuple[str, ...]:
        """Places in the schema of a row that its constraint leaves out, see `CompiledConstraint.unenforced`."""
        return () if self.tables is None else self.tables.remarks.unenforced.get(int(self.numbers.which[row]), ())

    @on_automatic_axes
    def first_narrowed(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """int32[B], position of the first of tokens int32[B, T] (-1: no more) that was chosen under a narrowed mask; -1 for none.

        A mask is narrowed where it allows fewer tokens than it would without a limit of tokens.
        """
        if self.tables is None:
            return np.full(len(tokens), -1, np.int32)
        padded = np.full((len(tokens), self.steps), -1, np.int32)
        padded[:, : min(tokens.shape[1], self.steps)] = tokens[:, : self.steps]
        found = _first_narrowed(self.tables, *put_rows((self.numbers, padded)))
        return np.asarray(to_host(found), np.int32)


@jax.jit
def _first_narrowed(tables: ConstraintTables, numbers: Numbers, tokens: jax.Array) -> jax.Array:
    """See `Origin.first_narrowed`; stops at the last token of the longest row."""
    rows, steps = tokens.shape
    longest = (tokens >= 0).sum(1).max().astype(jnp.int32)

    def step(carry: tuple[jax.Array, ConstraintState, jax.Array]) -> tuple[jax.Array, ConstraintState, jax.Array]:
        i, state, first = carry
        token = jax.lax.dynamic_index_in_dim(tokens, i, 1, keepdims=False)
        state = dataclasses.replace(state, status=jnp.where(token < 0, jnp.int32(Status.STOPPED), state.status))
        free = dataclasses.replace(state, remaining=jnp.full_like(state.remaining, int(UNREACHABLE)))
        narrowed = _count(tables, state) < _count(tables, free)
        first = jnp.where((first < 0) & state.running & narrowed, i, first)
        return i + 1, advance(tables, state, jnp.maximum(token, 0)), first

    start = jnp.int32(0), first_state(tables, numbers, steps), jnp.full(rows, -1, jnp.int32)
    return jax.lax.while_loop(lambda carry: carry[0] < longest, step, start)[2]


def _count(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """How many tokens every row allows, int32[B]."""
    parts = mask_parts(tables, state)
    return jax.lax.population_count(parts.words).sum(1).astype(jnp.int32) + parts.allowed.sum(1).astype(jnp.int32)
