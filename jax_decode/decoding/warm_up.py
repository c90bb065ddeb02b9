"""`warm_up`: compiles the programs of `generate` ahead, for the sizes of the calls to come."""

from __future__ import annotations

import contextvars
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from fsa_compile.errors import shown
from jax_decode.decoding.compilation import announce_compilation
from jax_decode.decoding.generate import generate
from jax_decode.decoding.inputs import MOST_LISTED
from jax_decode.decoding.requests import read_positive
from jax_decode.errors import DecodeError, checked_flag, named_arguments
from jax_decode.tables.concatenation import placeholder
from jax_decode.tables.tables import ConstraintTables, to_device


@named_arguments
def warm_up(
    decoder: Any,
    *,
    profile: Any = None,
    vocabulary: Any = None,
    batch: int | Sequence[int] = 1,
    prompt: int | Sequence[int] = 64,
    max_new_tokens: int | Sequence[int] = 64,
    quiet: bool = False,
    threads: int | None = None,
    **options: Any,
) -> int:
    """Compiles the programs of `generate` and `stream` ahead, for every combination of the sizes given.

    Sizes are those of the calls to come: prompts up to 256 tokens share programs between powers of two from 16 on, and limits
    likewise; beyond, between multiples of 256. What is compiled serves every constraint of the same profile and scale.

    Args:
      decoder: the model.
      profile: a name out of `jax_decode.PROFILES`, a `Profile`, or tables; one or a list of them. None for no constraint.
      vocabulary: the tokenizer or vocabulary of the constraints; needed with a profile that is not given as tables.
      batch: prompts per call; prompt: tokens of the longest of them; max_new_tokens: the largest limit.
      quiet: say nothing while compiling.
      threads: how many compile at once, by default as many as there are processors. JAX keeps what `with jax...` blocks set for
        each thread: within such blocks give 1, which compiles here.
      options: of `generate` that are part of a program: `sampler`, `num_samples`, `chunk`, `raw_logprobs`, …

    Returns:
      How many combinations there were.

    Raises:
      DecodeError: a profile needs a vocabulary, or has none of that name; a size is no whole number.
    """
    announce_compilation(False if checked_flag(quiet, "quiet") else None)
    threads = None if threads is None else read_positive(threads, "threads")
    sizes = _sizes(batch, "batch"), _sizes(prompt, "prompt"), _sizes(max_new_tokens, "max_new_tokens")
    _check_together(*map(max, filter(None, sizes)))
    cases = list(itertools.product(profile if isinstance(profile, (list, tuple)) else [profile], *sizes))

    def compiled(case: tuple[Any, int, int, int]) -> None:
        which, rows, length, limit = case
        asked: dict[str, Any] = {"key": jax.random.key(0), "bos_id": False} | options
        tables = None if which is None else _empty_tables(which, vocabulary)
        prompts, constraint = [[0] * length] * rows, None if tables is None else [0] * rows
        generate(decoder, prompts, tables, constraint=constraint, max_new_tokens=limit, allow_truncation=True, **asked)

    if threads == 1 or len(cases) == 1:
        list(map(compiled, cases))
        return len(cases)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        running = [pool.submit(contextvars.copy_context().run, compiled, case) for case in cases]
        for one in running:
            one.result()
    return len(cases)


def _sizes(value: Any, what: str) -> list[int]:
    """One size, or several."""
    every = value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
    return [read_positive(x, what) for x in every]


def _check_together(rows: int = 0, *lengths: int) -> None:
    """Raises `DecodeError` where the largest batch of the longest texts is none that memory holds."""
    if rows * sum(lengths) > MOST_LISTED:
        what = f"{rows:,} rows of {sum(lengths):,} tokens are more than {MOST_LISTED:,} in all"
        raise DecodeError(what, fix="Give the sizes of the calls to come.")


def _empty_tables(profile: Any, vocabulary: Any) -> Any:
    """Tables of a profile whose constraints allow nothing: they end a call at once."""
    if isinstance(profile, ConstraintTables):
        return profile
    if vocabulary is None:
        fix = "Pass vocabulary=tokenizer, or tables of that profile in its place."
        raise DecodeError(f"the profile {shown(str(profile))} alone does not say over which vocabulary", where="profile", fix=fix)
    own = getattr(vocabulary, "vocabulary", vocabulary)
    if not all(hasattr(own, name) for name in ("size", "fingerprint", "stop_ids")):
        raise DecodeError(f"the vocabulary is {shown(own)}", fix="Pass the tokenizer, or its vocabulary.")
    return to_device([placeholder(own.size, own.fingerprint, tuple(own.stop_ids))], profile=profile)
