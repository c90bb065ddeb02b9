"""Checks a user's arguments to `generate` and turns them into arrays. Raises `DecodeError`; runs before the first token."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fsa_compile.errors import shown
from jax_decode.decoding.programs import program
from jax_decode.decoding.vocabularies import encoded, start_id
from jax_decode.errors import DecodeError, check_function, is_whole
from jax_decode.kernels.noise import key_words
from jax_decode.step.argument_checks import check_in_use
from jax_decode.tables.concatenation import SHALLOWEST, SHORTEST, TEXT_ROW
from jax_decode.tables.tables import ConstraintTables


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Prompts as an array.

    Attributes:
      tokens: int32[P, L], right padded to a bucket; lengths: int32[P].
      single: whether the user gave one prompt, not a list of them.
    """

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]
    single: bool


MOST_LISTED = 1 << 24
"""Most entries of a list, and the largest of most counts: more would fill the memory before anything could tell."""


def bucket(size: int, least: int = 16, linear: int = 256) -> int:
    """A size that nearby sizes share: a power of two, and multiples of `linear` beyond it."""
    if size > linear:
        return -(-size // linear) * linear
    return max(least, 1 << (max(size, 1) - 1).bit_length())


def read_prompts(prompts: Any, vocab_size: int, bos_id: Any, tokenizer: Any = None, tables: Any = None) -> Prompts:
    """Prompts in any accepted form: a list of token lists, one token list, or an integer array of 1 or 2 dimensions; with a
    tokenizer also text."""
    fix = "Give token ids: tokenizer.encode(text), or a list of such lists; or pass tokenizer=, and text."
    prompts = encoded(prompts, tokenizer)
    if not is_listed(prompts):
        raise DecodeError(f"the prompts are {_brief(prompts)}, not token ids", fix=fix)
    if len(prompts) == 0:
        raise DecodeError("there is no prompt", fix=fix if bos_id is None else "Give [[]] for one empty prompt.")
    single = all(_is_scalar(x) for x in prompts)
    rows = [prompts] if single else list(prompts)
    if bos_id is not None and bos_id is not False:
        bos_id = _checked_id(bos_id, vocab_size, "bos_id", "Give an id of the model.")
    ids = [_read_prompt(row, i, vocab_size, fix) for i, row in enumerate(rows)]
    start = start_id(bos_id, ids, tokenizer, tables)
    is_default = bos_id is None
    ids = [row if start is None or (is_default and row[:1] == [start]) else [start, *row] for row in ids]
    for i, row in enumerate(ids):
        if not row:
            raise DecodeError("the prompt is empty", where=f"prompt {i}", fix="Give bos_id, the id that starts a text.")
    lengths = np.array([len(row) for row in ids], np.int32)
    tokens = np.zeros((len(ids), bucket(int(lengths.max()))), np.int32)
    for i, row in enumerate(ids):
        tokens[i, : len(row)] = row
    return Prompts(tokens, lengths, single)


def _read_prompt(row: Any, i: int, vocab_size: int, fix: str) -> list[int]:
    if not is_listed(row):
        raise DecodeError(f"the prompt is {_brief(row)}, not a list of token ids", where=f"prompt {i}", fix=fix)
    wrong = f"Its ids must be whole numbers from 0 to {vocab_size - 1}; check that the tokenizer is the model's."
    return [_checked_id(t, vocab_size, f"token at position {at} of prompt {i}", wrong) for at, t in enumerate(row)]


def read_ids(ids: Any, size: int, what: str, fix: str) -> list[int]:
    """Token ids below `size`, of a list or an array of one dimension; `what`: the argument's name.

    Raises:
      DecodeError: they are something else; `fix`: what to give.
    """
    return [_checked_id(t, size, f"id at position {at} of {what}", fix) for at, t in enumerate(_listed(ids, what, fix))]


def read_keys(key: Any, num_prompts: int, num_samples: int) -> jax.Array:
    """A typed key per row, [num_prompts * num_samples].

    One key gives row r `fold_in(key, r)`; an array of one key per row is taken as it is; one key per prompt gives its
    sample s `fold_in(key, s)`.
    """
    return _row_keys(checked_key(key, num_prompts, num_samples), num_prompts=num_prompts, num_samples=num_samples)


def read_words(key: Any, num_prompts: int, num_samples: int) -> jax.Array:
    """`key_words` of `read_keys`, uint32[num_prompts * num_samples, 2], by one program."""
    return _row_words(checked_key(key, num_prompts, num_samples), num_prompts=num_prompts, num_samples=num_samples)


def checked_key(key: Any, num_prompts: int, num_samples: int) -> jax.Array:
    """Typed keys: one, or one for each prompt or row; raises `DecodeError` for anything else."""
    fix = "Give jax.random.key(seed), or an array of one key per row such as jax.random.split(key, rows)."
    if not isinstance(key, (jax.Array, np.ndarray)):
        raise DecodeError(f"the key is {_brief(key)}, not a PRNG key", fix=fix)
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.dtype != np.uint32 or key.ndim not in (1, 2) or key.shape[-1] != 2:
            raise DecodeError(f"the key is an array of {key.dtype}{list(key.shape)}, not a PRNG key", fix=fix)
        key = jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")
    rows = num_prompts * num_samples
    if key.shape not in ((), (rows,), (num_prompts,)):
        raise DecodeError(f"there are {key.shape} keys for {rows} rows", fix=fix)
    return key


def _folded(key: jax.Array, num_prompts: int, num_samples: int) -> jax.Array:
    """See `read_keys`."""
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    rows = num_prompts * num_samples
    if key.ndim == 0:
        return fold(key, jnp.arange(rows, dtype=jnp.uint32))
    if key.shape == (rows,):
        return key
    return jax.vmap(fold, (0, None))(key, jnp.arange(num_samples, dtype=jnp.uint32)).reshape(rows)


@program()
def _row_keys(key: jax.Array, *, num_prompts: int, num_samples: int) -> jax.Array:
    return _folded(key, num_prompts, num_samples)


@program()
def _row_words(key: jax.Array, *, num_prompts: int, num_samples: int) -> jax.Array:
    return key_words(_folded(key, num_prompts, num_samples))


def read_constraints(constraint: Any, tables: ConstraintTables | None, num_prompts: int) -> NDArray[np.int32]:
    """Index of each prompt's constraint, int32[P], -1 for none."""
    if tables is None:
        if constraint is not None:
            raise DecodeError("'constraint' was given without tables", fix="Pass to_device(...) as tables.")
        return np.full(num_prompts, -1, np.int32)
    if not isinstance(tables, ConstraintTables):
        raise DecodeError(f"the tables are {_brief(tables)}", fix="Pass jax_decode.to_device(constraint).")
    count = int(_host(tables.num_constraints))
    fix = f"Give constraint=: one index from 0 to {count - 1} (or None for none) per prompt."
    if constraint is None:
        if count not in (1, num_prompts):
            raise DecodeError(f"there are {count} constraints for {num_prompts} prompts", fix=fix)
        which = np.zeros(num_prompts, np.int32) if count == 1 else np.arange(num_prompts, dtype=np.int32)
        check_in_use(tables, which, "constraint")
        return which
    given = [constraint] * num_prompts if _is_scalar(constraint) else _listed(constraint, "constraint", fix)
    if len(given) != num_prompts:
        raise DecodeError(f"'constraint' has {len(given)} entries for {num_prompts} prompts", fix=fix)
    which = np.full(num_prompts, -1, np.int32)
    for i, index in enumerate(given):
        if index is not None:
            which[i] = _checked_id(index, count, f"constraint index of prompt {i}", fix)
    check_in_use(tables, which, "constraint")
    return which


def read_limits(max_new_tokens: Any, num_prompts: int) -> NDArray[np.int32]:
    """Most new tokens per prompt, int32[P]."""
    limits = _read_numbers(max_new_tokens, "max_new_tokens", num_prompts, "Give a whole number of at least 1, or one per prompt.")
    for i in np.flatnonzero(limits == 0):
        raise DecodeError(f"max_new_tokens of prompt {i} is 0", fix="Give a whole number of at least 1, or one per prompt.")
    return limits


def read_depths(max_depth: Any, num_prompts: int) -> NDArray[np.int32]:
    """Most stack cells per prompt, int32[P]."""
    return _read_numbers(max_depth, "max_depth", num_prompts, "Give a whole number, or one per prompt.")


def _read_numbers(value: Any, what: str, num_prompts: int, fix: str) -> NDArray[np.int32]:
    """One number for all prompts, or one for each, int32[P]."""
    given = [value] * num_prompts if _is_scalar(value) else _listed(value, what, fix)
    if len(given) != num_prompts:
        raise DecodeError(f"'{what}' has {len(given)} entries for {num_prompts} prompts", fix=fix)
    return np.array([_checked_id(x, 1 << 24, f"{what} of prompt {i}", fix) for i, x in enumerate(given)], np.int32)


def read_stop_ids(stop_ids: Any, tables: ConstraintTables | None, which: NDArray[np.int32], vocab_size: int) -> NDArray[np.int32]:
    """Distinct stop ids per prompt, int32[P, E], padded with -1; they must not be text of the prompt's constraint."""
    size = vocab_size if tables is None else tables.vocab_size
    fix = "Give a list of end-of-text ids for all prompts, or one list per prompt."
    if stop_ids is None:
        default = np.zeros((1, 0), np.int32) if tables is None else _host(tables.stop_ids)
        rows = [[int(t) for t in default[max(w, 0)] if t >= 0] for w in which] if tables is not None else [[]] * len(which)
    else:
        given = [stop_ids] if _is_scalar(stop_ids) else _listed(stop_ids, "stop_ids", fix)
        if all(_is_scalar(x) for x in given):
            given = [given] * len(which)
        if len(given) != len(which):
            raise DecodeError(f"'stop_ids' has {len(given)} lists for {len(which)} prompts", fix=fix)
        rows = [
            sorted({_checked_id(t, size, f"stop id of prompt {i}", fix) for t in _listed(row, "stop_ids", fix)})
            for i, row in enumerate(given)
        ]
    widest = max(map(len, rows), default=0)
    out = np.full((len(which), 1 << (max(widest, 1) - 1).bit_length()), -1, np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    if tables is not None and stop_ids is not None:
        _check_not_text(out, tables, which)
    return out


def _check_not_text(stops: NDArray[np.int32], tables: ConstraintTables, which: NDArray[np.int32]) -> None:
    constrained = np.flatnonzero(which >= 0)
    if not len(constrained):
        return
    ids = np.maximum(stops[constrained], 0)
    row = _host(tables.constraints)[which[constrained], TEXT_ROW]
    column, plane = tables.columns.place(ids)
    words = tables.rows[_device(row[:, None].astype(np.int32)), _device(column)]
    text = (_host(words) >> plane.astype(np.uint32)) & 1
    bad = np.argwhere((text != 0) & (stops[constrained] >= 0))
    if len(bad):
        i, e = bad[0]
        raise DecodeError(
            f"stop id {ids[i, e]} is a token that the constraint's text may contain",
            where=f"prompt {constrained[i]}",
            fix="A constrained row ends where its text is complete; give an id that is never text, or leave stop_ids out.",
        )


def check_budget(tables: ConstraintTables, which: NDArray[np.int32], limits: NDArray[np.int32]) -> None:
    """Raises `DecodeError` naming the prompts whose limit is below their constraint's shortest text."""
    table = _host(tables.constraints)
    shortest = np.where(which >= 0, table[np.maximum(which, 0), SHORTEST], 0)
    bad = np.flatnonzero(shortest > limits)
    if len(bad):
        named = ", ".join(f"prompt {i}: {limits[i]} of {shortest[i]}" for i in bad[:5]) + (" …" if len(bad) > 5 else "")
        raise DecodeError(
            "max_new_tokens is below the number of tokens of the shortest text that the constraint accepts",
            where=named,
            fix="Raise the limit, or pass allow_truncation=True to get incomplete text.",
        )


def check_depth(tables: ConstraintTables, which: NDArray[np.int32], depths: NDArray[np.int32]) -> None:
    """Raises `DecodeError` naming the prompts whose depth limit no text of their constraint keeps."""
    table = _host(tables.constraints)
    needed = np.where(which >= 0, table[np.maximum(which, 0), SHALLOWEST], 0)
    bad = np.flatnonzero(needed > depths)
    if len(bad):
        named = ", ".join(f"prompt {i}: {depths[i]} of {needed[i]}" for i in bad[:5]) + (" …" if len(bad) > 5 else "")
        raise DecodeError(
            "max_depth is below the depth of stack that the constraint's text needs", where=named, fix="Raise max_depth."
        )


def check_decoder(decoder: Any, tables: ConstraintTables | None, what: str = "decoder") -> int:
    """The vocabulary size of a decoder, which errors call `what`, if it has the protocol's shape and fits the tables."""
    for name in ("vocab_size", "init_cache", "apply"):
        if not hasattr(decoder, name):
            raise DecodeError(
                f"the {what} ({type(decoder).__name__}) has no '{name}'",
                fix="See jax_decode.Decoder; FunctionDecoder adapts plain functions.",
            )
    for name in ("init_cache", "apply"):
        check_function(getattr(decoder, name), f"{name} of the {what}", "See jax_decode.Decoder.")
    check_pytree(decoder, f"the {what} ({type(decoder).__name__})")
    if not is_whole(decoder.vocab_size, 1):
        fix = "Give the number of its logits, a whole number."
        raise DecodeError(f"the {what}: its vocab_size is {shown(decoder.vocab_size)}", fix=fix)
    vocab_size = int(decoder.vocab_size)
    if isinstance(tables, ConstraintTables) and tables.vocab_size > vocab_size:
        raise DecodeError(
            f"the constraint is for a vocabulary of {tables.vocab_size:,} ids, the model has {vocab_size:,} logits",
            fix="Compile the constraint for the tokenizer of this model.",
        )
    return vocab_size


def check_pytree(model: Any, what: str) -> None:
    """Raises `DecodeError` for a model, which errors call `what`, that no program can take as an argument."""
    structure: Any = jax.tree.structure(model)
    if structure == jax.tree.structure(0):
        fix = "Register it with jax.tree_util.register_dataclass; FunctionDecoder adapts plain functions."
        raise DecodeError(f"{what} is no pytree", fix=fix)
    try:
        hash(structure)
    except TypeError:
        why = f"{what} holds something that cannot be hashed, which names its program"
        raise DecodeError(why, fix="Give functions and numbers as its static fields, and arrays as leaves.") from None


def _host(x: jax.Array) -> NDArray[Any]:
    """An explicit transfer the other way; of what was transferred before it costs less than `jax.device_get`."""
    with jax.transfer_guard_device_to_host("allow"):
        return np.asarray(x)


def _device(x: Any) -> jax.Array:
    """An explicit transfer, which `jax.transfer_guard('disallow')` lets pass."""
    return jax.device_put(x)


def is_listed(x: Any) -> bool:
    """Whether something holds several values: it has a length, as arrays without dimensions have not, and is no text."""
    if isinstance(x, (str, bytes, bytearray)) or not hasattr(x, "__len__") or getattr(x, "ndim", 1) == 0:
        return False
    return len(x) <= MOST_LISTED


def _is_scalar(x: Any) -> bool:
    return isinstance(x, (bool, int, float, np.generic)) or getattr(x, "ndim", None) == 0


def _listed(x: Any, what: str, fix: str) -> Sequence[Any]:
    if not is_listed(x):
        raise DecodeError(f"'{what}' is {_brief(x)}", fix=fix)
    return list(x)


def _checked_id(value: Any, size: int, what: str, fix: str) -> int:
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        index = operator.index(value)
    except TypeError:
        raise DecodeError(f"the {what} is {_brief(value)}, not a whole number", fix=fix) from None
    if not 0 <= index < size:
        raise DecodeError(f"the {what} is {index}, outside 0..{size - 1}", fix=fix)
    return index


def _brief(x: Any) -> str:
    text = repr(x)
    return f"{type(x).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
