"""Checks of what a loop of one's own gives to the step's functions: shapes and dtypes while tracing, values where they are known.

Nothing of it is left in a compiled program. `generate` has checked its arguments before.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.errors import DecodeError, is_whole, shown
from jax_decode.kernels.projected import Projected
from jax_decode.tables.tables import ConstraintTables

_STATE_FIELDS = ("node", "stop_ids", "remaining", "status")


def check_tables(tables: Any, where: str, *, optional: bool = False) -> None:
    """Raises `DecodeError` unless these are tables (or None, where that is allowed)."""
    if isinstance(tables, ConstraintTables) or (optional and tables is None):
        return
    if _is_state(tables):
        raise DecodeError(f"{where}: a state was given as tables", fix=f"Write {where}(tables, state, ...), in this order.")
    if hasattr(tables, "dtype"):
        raise DecodeError(f"{where}: an array was given as tables", fix=f"Write {where}(tables, state, ...), in this order.")
    what = f"{where}: the tables are a {type(tables).__name__}"
    raise DecodeError(what, fix="Pass jax_decode.to_device(constraint); make it once, outside the loop.")


def check_state(tables: ConstraintTables | None, state: Any, where: str) -> None:
    """Raises `DecodeError` unless a state has the shape of one that `init_state` makes of these tables."""
    if not _is_state(state):
        what = f"{where}: the state is a {type(state).__name__}"
        raise DecodeError(what, fix="Pass what init_state(tables, which, ...) or advance(...) returned.")
    if tables is None:
        return
    stacks = tables.stacks if tables.has_stack else 0
    own = (state.node.shape[1:], state.top.shape[1:], state.used.shape[1:], state.canonical.shape[1:])
    due = ((tables.stacks,), (stacks,), (tables.key_words,), (0 if tables.pairs is None else 3,))
    if own != due:
        what = f"{where}: the state was made from other tables (columns {own}, these have {due})"
        raise DecodeError(what, fix="Make the state with init_state(tables, ...) of the same tables.")


def check_rows(state: Any, where: str, *, beyond: bool = False, **rows: Any) -> None:
    """Checks the arguments of functions that copy rows of a state, whose numbers are one or several.

    Args:
      state: has the rows.
      where: the function.
      beyond: whether numbers from B up are no mistake, and leave rows out.
      rows: by the argument's name; values are looked at where they are known.
    """
    check_state(None, state, where)
    count = state.node.shape[0]
    for name, value in rows.items():
        numbers_of(value, f"{where}: {name} is no row's number, and no numbers of rows")
        if np.ndim(value) > 1:
            raise DecodeError(f"{where}: {name} has shape {tuple(np.shape(value))}", fix="Pass one row's number, or int32[n].")
        if (wrong := first_outside(value, 0, 2**31 if beyond else count)) is not None:
            what = f"{where}: {name} is {wrong}, and the state has {count} row{'s' * (count != 1)}"
            raise DecodeError(what, fix=f"Count rows from 0 to {count - 1}.")


def check_advance(tables: ConstraintTables | None, state: Any, tokens: Any) -> None:
    """Checks the arguments of `advance`."""
    check_tables(tables, "advance", optional=True)
    check_state(tables, state, "advance")
    check_tokens(tokens, state, "advance")


def check_tokens(tokens: Any, state: Any, where: str) -> None:
    """Raises `DecodeError` unless tokens are whole numbers, one per row."""
    rows = state.node.shape[0]
    if not hasattr(tokens, "shape") or not jnp.issubdtype(tokens.dtype, jnp.integer):
        what = f"{where}: the tokens are {kind_of(tokens)}, not whole numbers in an array"
        raise DecodeError(what, fix="Pass int32[B], such as jnp.array([5, 7], jnp.int32).")
    if tuple(tokens.shape) != (rows,):
        what = f"{where}: the tokens have shape {tuple(tokens.shape)}, the state has {rows} row{'s' * (rows != 1)}"
        raise DecodeError(what, fix=f"Pass one token per row, shape ({rows},); -1 for a row that takes none.")


def check_logits(logits: Any, tables: ConstraintTables | None, state: Any, where: str) -> None:
    """Raises `DecodeError` unless logits are float[B, V'] with V' at least the vocabulary's size."""
    if isinstance(logits, Projected):
        raise DecodeError(f"{where}: the logits are projected, and not written", fix="Pass their own: projected.logits.")
    if not hasattr(logits, "shape") or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise DecodeError(f"{where}: the logits are {kind_of(logits)}, not floating numbers in an array", fix="Pass float[B, V].")
    shape = tuple(logits.shape)
    if len(shape) == 3:
        what = f"{where}: the logits have shape {shape}, with one axis too many"
        raise DecodeError(what, fix="Pass those of one position per row: logits[:, -1].")
    if len(shape) != 2:
        raise DecodeError(f"{where}: the logits have shape {shape}", fix="Pass float[B, V]; for one row logits[None].")
    if state is not None and shape[0] != state.node.shape[0]:
        what = f"{where}: there are logits of {shape[0]} rows, and the state has {state.node.shape[0]}"
        raise DecodeError(what, fix="Pass logits and state of the same rows.")
    if tables is not None and shape[1] < tables.vocab_size:
        what = f"{where}: the logits have {shape[1]:,} columns, the constraint's vocabulary has {tables.vocab_size:,} ids"
        raise DecodeError(what, fix="Pass the model's whole logits, and compile for the tokenizer of this model.")


def check_key_words(key: Any, rows: int, where: str) -> None:
    """Raises `DecodeError` unless these are the words of one key per row."""
    fix = "Pass jax_decode.key_words(jax.random.split(key, B)), made once; the step number makes each draw another."
    if not hasattr(key, "shape") or jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise DecodeError(f"{where}: the key is {kind_of(key)}, not words of keys", fix=fix)
    if key.dtype != jnp.uint32 or tuple(key.shape) != (rows, 2):
        what = f"{where}: the key is {key.dtype}{list(key.shape)}, not uint32[{rows}, 2]"
        raise DecodeError(what, fix=fix)


def check_step(step: Any, rows: int, where: str) -> None:
    """Raises `DecodeError` unless these are positions in the rows' texts."""
    if getattr(step, "dtype", None) != jnp.uint32 or tuple(step.shape) not in ((), (rows,), (rows, 1)):
        what = f"{where}: the step is {kind_of(step)}, not uint32[{rows}]"
        raise DecodeError(what, fix="Pass how many tokens each row has written: jnp.full(B, step, jnp.uint32).")


def checked_indices(tables: ConstraintTables, which: Any, limits: Any, stop_ids: Any) -> jax.Array:
    """Checks the arguments of `init_state`: shapes and dtypes, and values where they are known. Returns `which` as int32[B]."""
    where = "init_state"
    check_tables(tables, where)
    rows = _rows_of(which)
    for name, value, shapes in (("limits", limits, ((), (rows,))), ("stop_ids", stop_ids, None)):
        if value is None:
            continue
        value = numbers_of(value, f"{where}: {name} are no whole numbers")
        shape = tuple(np.shape(value))
        if shapes is not None and shape not in shapes:
            what = f"{where}: {name} has shape {shape} for {rows} row{'s' * (rows != 1)}"
            raise DecodeError(what, fix=f"Pass one number, or an array of shape ({rows},).")
        if shapes is None and (len(shape) != 2 or shape[0] != rows):
            what = f"{where}: {name} has shape {shape}"
            raise DecodeError(what, fix=f"Pass shape ({rows}, E), padded with -1; None for the vocabulary's own.")
    count = _known(tables.num_constraints)
    if count is not None:
        check_among(which, int(count), where, -1, "in the order of to_device; -1 for no constraint")
    check_in_use(tables, which, where)
    if (wrong := first_outside(limits, 0, 2**31)) is not None:
        raise DecodeError(f"{where}: a limit is {wrong}", fix="Give tokens from 0 up, the stop token included.")
    return jnp.asarray(which, jnp.int32)


def check_among(which: Any, count: int, where: str, least: int, told: str) -> None:
    """Raises `DecodeError` for indices of constraints, as far as they are known, that are not from `least` to `count` - 1."""
    if (wrong := first_outside(which, least, count)) is not None:
        what = f"{where}: there is no constraint {wrong} among {count}"
        raise DecodeError(what, fix=f"Give indices from 0 to {count - 1}, {told}.")


def check_in_use(tables: ConstraintTables, which: Any, where: str) -> None:
    """Raises `DecodeError` for slots of a pool, as far as they are known, that have no constraint or may lose it at any time."""
    slots, known = tables.remarks.in_use, _known(which)
    if slots is None or known is None:
        return
    for row, slot in enumerate(known.ravel().tolist()):
        if slot >= 0 and slot not in slots:
            fix = "Pass what pool.add(constraint) returned, and remove it when the rows that use it have ended."
            raise DecodeError(f"{where}: slot {slot} of the pool is not in use", where=f"row {row}", fix=fix)


def first_outside(value: Any, least: int, count: int) -> int | None:
    """The first of some numbers that is not from `least` to `count` - 1; None where there is none, or they are not known now."""
    known = _known(value)
    wrong = None if known is None else (known < least) | (known >= count)
    return None if known is None or not np.any(wrong) else int(known[wrong].ravel()[0])


def check_room(rows: int, max_depth: Any, max_tokens: Any) -> None:
    """Checks the limits of `init_state` on stacks."""
    numbers_of(max_depth, "init_state: max_depth is no whole number")
    if np.shape(max_depth) not in ((), (rows,)):
        raise DecodeError(f"init_state: max_depth has shape {np.shape(max_depth)}", fix=f"Pass one number, or int32[{rows}].")
    if (wrong := first_outside(max_depth, 0, 2**31)) is not None:
        raise DecodeError(f"init_state: max_depth is {wrong}", fix="Give stack cells from 0 up.")
    if max_tokens is not None and not is_whole(max_tokens, 0):
        raise DecodeError(f"init_state: max_tokens is {shown(max_tokens)}", fix="Give a whole number; it is static.")


def numbers_of(value: Any, what: str, fix: str = "Pass int32.") -> Any:
    """Whole numbers of 32 bits as given, an array or what makes one.

    Raises:
      DecodeError: they are none, with `what` is wrong and `fix`.
    """
    try:
        given = value if hasattr(value, "aval") else np.asarray(value)
        fits = jnp.issubdtype(given.dtype, jnp.integer) and (
            hasattr(value, "aval") or not given.size or (given.min() >= -(1 << 31) and given.max() < 1 << 31)
        )
    except (TypeError, ValueError, OverflowError, MemoryError):
        fits = False
    if not fits:
        raise DecodeError(what, fix=fix)
    return value


def is_floats(value: Any, axes: int) -> bool:
    """Whether something is an array of floating numbers with so many axes."""
    return _is_array(value) and jnp.issubdtype(value.dtype, jnp.floating) and len(value.shape) == axes


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _rows_of(which: Any) -> int:
    what = f"init_state: the constraints' indices are {kind_of(which)}"
    fix = "Pass one index per row in an array: jnp.zeros(B, jnp.int32) for the only constraint."
    if np.ndim(numbers_of(which, what, fix)) != 1:
        raise DecodeError(what, fix=fix)
    return int(np.shape(which)[0])


def _is_state(value: Any) -> bool:
    return all(hasattr(value, name) for name in _STATE_FIELDS)


def _known(value: Any) -> Any:
    """The value as a NumPy array where it is known now, else None."""
    if value is None or isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    with jax.transfer_guard_device_to_host("allow"):
        return np.asarray(value)


def kind_of(value: Any) -> str:
    """Dtype and shape of an array, else the type."""
    if _is_array(value):
        return f"{value.dtype}{list(value.shape)}"
    return f"a {type(value).__name__}"
