"""Arguments of the compile functions: checked, with defaults filled in."""

from __future__ import annotations

import os
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsa_compile.errors import ConstraintError
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fsa_compile.filters import Filters


Canonical: TypeAlias = bool | Literal["heal"] | SequenceOf[int]
"""Whether only the tokenizer's own token sequences are allowed; token ids: those of the prompt that the text continues; "heal":
in the form that `heal(..., canonical=True)` takes."""


def _is_result(canonical: Canonical) -> bool:
    """Whether the artifact of every tokenization is the result, and not what `canonical_form` makes its own of."""
    return canonical is False or isinstance(canonical, str)


def filters_of(filters: Any) -> Filters:
    """Filters as users give them; see `compile_language`."""
    from fsa_compile.filters import checked_filters

    return checked_filters(filters)


def check_depth(max_depth: int | None, canonical: Canonical, filters: Filters | None = None) -> None:
    """Raises `ConstraintError` for a bound on depth where none can be kept."""
    if max_depth is not None and canonical is False and not filters:
        what = "max_depth bounds canonical and filtered constraints, whose stacks are written out; others keep a stack"
        raise ConstraintError(what, fix="Give generate(..., max_depth=), or compile with canonical=True.")


def _checked_limits(limits: Any) -> None:
    if limits is not None and not isinstance(limits, CompileLimits):
        raise ConstraintError(
            f"limits must be CompileLimits, not {type(limits).__name__}",
            fix="Write limits=CompileLimits(max_seconds=10), for example.",
        )


def _loaded(tokenizer: Any) -> Any:
    """A tokenizer or vocabulary as it is; anything else as `load_tokenizer` reads it."""
    if isinstance(tokenizer, Vocabulary) or isinstance(getattr(tokenizer, "vocabulary", None), Vocabulary):
        return tokenizer
    from fsa_compile.tokenizers import load_tokenizer

    return load_tokenizer(tokenizer)


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer, a vocabulary itself, or of anything `load_tokenizer` reads."""
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    vocabulary = getattr(tokenizer, "vocabulary", None)
    if isinstance(vocabulary, Vocabulary):
        return vocabulary
    if tokenizer is None or (isinstance(tokenizer, (str, os.PathLike)) and not os.fspath(tokenizer)):
        raise ConstraintError("no tokenizer was given", fix="Pass load_tokenizer(path), or the path itself.")
    from fsa_compile.tokenizers import load_tokenizer

    return load_tokenizer(tokenizer).vocabulary
