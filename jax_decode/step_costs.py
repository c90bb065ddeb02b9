"""`step_report`: what one decoding step costs on this device with a constraint and without, in seconds and in bytes.

A step is what the package's own loops do between two passes of the model: mask, sample, advance. The model is no part of it.
"""

from __future__ import annotations

import dataclasses
import html
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.errors import shown
from jax_decode.decoding.requests import check_rows
from jax_decode.errors import MOST_LOGITS, DecodeError, is_whole, named_arguments
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.samplers import Greedy, Sampler, check_sampler
from jax_decode.sampling.sampling import sample
from jax_decode.step.argument_checks import check_tables, numbers_of
from jax_decode.step.masking import mask_rows
from jax_decode.step.stack import sources
from jax_decode.step.state import ConstraintState, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables

_MOST = 1 << 16
"""Rows of a batch, and timed calls."""
_ROOM = 64
"""Tokens that the stacks of the measured rows have room for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCost:
    """One compiled program.

    Attributes:
      seconds: wall time of the fastest of several calls.
      accessed: bytes that its operations read and write, by XLA's cost model, which on some backends counts whole tables of which
        a step reads single rows; None where the backend does not say.
      temporaries: bytes of its temporary buffers; None where the backend does not say.
    """

    seconds: float
    accessed: int | None
    temporaries: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReport:
    """Costs of a step; notebooks show it as a table.

    Attributes:
      device: kind of the device.
      batch_size, logits_width, dtype: shape and dtype of the logits.
      constrained, free: the step with the constraint, and the same sampler without.
      logits_bytes: of the batch.
      mask_bytes: most bytes of mask rows that the step reads.
      state_bytes: of the rows' states, stacks with room for 64 tokens included.
      table_bytes: of the tables, which all rows share.
    """

    device: str
    batch_size: int
    logits_width: int
    dtype: str
    constrained: StepCost
    free: StepCost
    logits_bytes: int
    mask_bytes: int
    state_bytes: int
    table_bytes: int

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """What, without, with, ratio."""
        free, own = (f"{1e6 * cost.seconds:,.0f} µs" for cost in (self.free, self.constrained))
        lines = [("time", free, own, f"{self.constrained.seconds / self.free.seconds:.2f}")]
        for what, name in (("bytes read and written", "accessed"), ("temporary bytes", "temporaries")):
            before, after = getattr(self.free, name), getattr(self.constrained, name)
            if before is not None and after is not None:
                lines.append((what, f"{before:,}", f"{after:,}", f"{after / before:.2f}" if before else ""))
        return lines

    @property
    def heading(self) -> str:
        """What was measured."""
        return f"One step of {self.batch_size:,} rows of {self.logits_width:,} logits ({self.dtype}) on {self.device}"

    @property
    def sizes(self) -> str:
        """Sizes of what the step works on."""
        share = 100 * self.mask_bytes / self.logits_bytes
        return (
            f"logits {self.logits_bytes:,} bytes; mask rows at most {self.mask_bytes:,} ({share:.1f} % of the logits); "
            f"states {self.state_bytes:,}; tables {self.table_bytes:,}"
        )

    def __str__(self) -> str:
        lines = [("", "without", "with", "ratio"), *self.rows]
        table = [f"{a:<24}{b:>16}{c:>16}{d:>8}" for a, b, c, d in lines]
        return "\n".join([self.heading, *table, self.sizes])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("", "without", "with", "ratio"))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        caption = f"<caption>{html.escape(self.heading)}</caption>"
        return f"<table>{caption}<tr>{head}</tr>{body}</table><p>{html.escape(self.sizes)}</p>"


@named_arguments
def step_report(
    tables: ConstraintTables,
    *,
    batch_size: int = 8,
    logits_width: int | None = None,
    dtype: Any = "float32",
    sampler: Sampler | None = None,
    max_depth: int = 64,
    repeats: int = 20,
) -> StepReport:
    """Compiles and times the first step of a batch, with its constraints and without.

    Args:
      tables: from `to_device`; the rows have its constraints in turn.
      batch_size: B.
      logits_width: V', logits of the model; by default the vocabulary's size.
      dtype: of the logits.
      sampler: one of the package's; by default `Greedy()`.
      max_depth: most cells of a row's stack.
      repeats: timed calls, after one that is not.

    Returns:
      The report. Times are wall times of whole calls, and include what it takes to start one: for steps of a few microseconds on
      an accelerator that is most of it.

    Raises:
      DecodeError: there is nothing to measure or too much, or the logits are narrower than the vocabulary.

    Examples:
      >>> import fsa_compile, jax_decode
      >>> vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a", b"b"], stop_ids=[0])
      >>> tables = jax_decode.to_device(fsa_compile.compile_regex("[ab]{2}", vocabulary))
      >>> jax_decode.step_report(tables, batch_size=4, repeats=2).logits_bytes
      48
    """
    sampler = Greedy() if sampler is None else sampler
    check_tables(tables, "step_report")
    width = tables.vocab_size if logits_width is None else logits_width
    _check(tables, batch_size, width, sampler, repeats)
    numbers_of(max_depth, f"max_depth is {shown(max_depth)}", "Give a whole number.")
    kind = _floating(dtype)
    logits = jax.random.normal(jax.random.key(0), (batch_size, width), jnp.float32).astype(kind)
    keys = key_words(jax.random.split(jax.random.key(1), batch_size))
    step = jnp.zeros(batch_size, jnp.uint32)
    which = jnp.arange(batch_size, dtype=jnp.int32) % jnp.maximum(tables.num_constraints, 1)
    begin = jax.jit(lambda tables, which: init_state(tables, which, None, max_depth=max_depth, max_tokens=_ROOM))
    state = begin(tables, which)
    return StepReport(
        device=jax.devices()[0].device_kind,
        batch_size=batch_size,
        logits_width=width,
        dtype=logits.dtype.name,
        constrained=_cost(_constrained, (sampler, logits, keys, step, tables, state), repeats),
        free=_cost(sample, (sampler, logits, keys, step), repeats),
        logits_bytes=logits.nbytes,
        mask_bytes=4 * tables.num_words * jax.eval_shape(_rows, tables, state).size,
        state_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(state)),
        table_bytes=tables.nbytes,
    )


def _rows(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    return mask_rows(tables, state, sources(tables, state))


def _check(tables: ConstraintTables, batch_size: int, width: int, sampler: Any, repeats: int) -> None:
    if not is_whole(batch_size, 1, _MOST) or not is_whole(repeats, 1, _MOST):
        what = f"a step is not measured with batch_size={shown(batch_size)}, repeats={shown(repeats)}"
        raise DecodeError(what, fix=f"Give whole numbers from 1 to {_MOST:,}.")
    if not is_whole(width, 0, MOST_LOGITS):
        fix = f"Give the number of logits of the model, at most {MOST_LOGITS:,}, or leave it out."
        raise DecodeError(f"logits_width is {shown(width)}", fix=fix)
    check_rows(batch_size, width)
    if width < tables.vocab_size:
        fix = "Give the number of logits of the model."
        raise DecodeError(f"{width:,} logits are fewer than the vocabulary's {tables.vocab_size:,} ids", fix=fix)
    check_sampler(sampler)


def _floating(dtype: Any) -> Any:
    try:
        none = dtype is None or isinstance(dtype, (jax.Array, np.ndarray))  # NumPy would take float64, or the dtype of the array
        kind = np.dtype(bool if none else dtype)
    except (TypeError, ValueError):
        kind = np.dtype(bool)
    if not jnp.issubdtype(kind, jnp.floating):
        raise DecodeError(f"the dtype is {shown(dtype)}", fix='Give that of the logits, such as "bfloat16".')
    return kind


def _constrained(sampler: Any, logits: Any, keys: Any, step: Any, tables: Any, state: Any) -> Any:
    choice = sample(sampler, logits, keys, step, tables, state)
    return choice, advance(tables, state, choice.token)


def _cost(function: Callable[..., Any], arguments: tuple[Any, ...], repeats: int) -> StepCost:
    program = jax.jit(function).lower(*arguments).compile()
    costs, memory = program.cost_analysis(), program.memory_analysis()
    accessed = costs.get("bytes accessed") if isinstance(costs, dict) else None
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.perf_counter() - begin)
    return StepCost(
        seconds=min(seconds[1:]),
        accessed=None if accessed is None else int(accessed),
        temporaries=getattr(memory, "temp_size_in_bytes", None),
    )
