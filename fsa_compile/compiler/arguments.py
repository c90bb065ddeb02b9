"""`Request`: the arguments that all compile functions share, checked, with defaults filled in."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.errors import ConstraintError, checked_flag, is_whole, shown
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fsa_compile.compiler.cache import CompileCache
    from fsa_compile.filters import Filter, Filters


Canonical: TypeAlias = bool | Literal["heal"] | SequenceOf[int]
"""Whether only the tokenizer's own token sequences are allowed; token ids: those of the prompt that the text continues; "heal":
in the form that `heal(..., canonical=True)` takes."""
_MOST_IDS = 1 << 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a constraint is compiled for, beside its language.

    Attributes:
      tokenizer: loaded, or a `Vocabulary`.
      vocabulary: the tokenizer's.
      source: what is compiled, for people.
      canonical, filters, starts_text: see `compile_language`.
      max_depth: see `compile_grammar`.
      limits: bounds of the compilation.
      deadline: its time, which runs from the making of the request on.
    """

    tokenizer: Any
    vocabulary: Vocabulary
    source: str
    canonical: Canonical
    filters: Filters
    starts_text: bool
    max_depth: int | None
    limits: CompileLimits
    deadline: Deadline

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        source: str,
        *,
        canonical: Canonical = False,
        filters: Iterable[Filter] = (),
        starts_text: bool = False,
        max_depth: int | None = None,
        limits: CompileLimits | None = None,
    ) -> Request:
        """The request of a user's arguments.

        Raises:
          ConstraintError: an argument is of the wrong kind, or a bound on depth cannot be kept.
        """
        limits = limits or CompileLimits()
        deadline, passing = Deadline(limits), filters_of(filters)
        canonical = _checked_canonical(canonical)
        _check_depth(max_depth, canonical, passing)
        tokenizer = tokenizer_of(tokenizer)
        return cls(
            tokenizer=tokenizer, vocabulary=vocabulary_of(tokenizer), source=source, canonical=canonical, filters=passing,
            starts_text=checked_flag(starts_text, "starts_text"), max_depth=None if max_depth is None else int(max_depth),
            limits=limits, deadline=deadline,
        )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """Whether every tokenization of every text is asked for, so that counters may stay."""
        return self.canonical is False and not self.filters

    def cached(
        self, cache: CompileCache | None, what: dict[str, Any], make: Callable[[], CompiledConstraint]
    ) -> CompiledConstraint:
        """The constraint out of a cache, or made now.

        Args:
          cache: None for none.
          what: names the language and its options, as JSON values.
          make: compiles it.
        """
        cache = checked_cache(cache)
        if cache is None or self.starts_text or self.filters.identity is None:
            return make()  # an arbitrary language is not known by its name, an encoder not by its vocabulary
        bounds = {name: value for name, value in dataclasses.asdict(self.limits).items() if name != "max_seconds"}
        what = {**what, "limits": bounds, "max_depth": self.max_depth}
        if self.canonical is not False:
            from fsa_compile.canonical.filter.canonical_tables import canonical_tables

            what["canonical"] = [canonical_tables(self.tokenizer).identity, self.canonical]
        if self.filters:
            what["filters"] = self.filters.identity
        return cache.get(what, self.vocabulary, make)


def checked_cache(cache: Any) -> CompileCache | None:
    """A cache as users give it, None for none; raises `ConstraintError` for anything else."""
    if cache is None:
        return None
    from fsa_compile.compiler.cache import CompileCache

    if not isinstance(cache, CompileCache):
        what = f"the cache is a {type(cache).__name__}"
        raise ConstraintError(what, fix="Pass cache=CompileCache(folder), or leave it out.")
    return cache


def filters_of(filters: Any) -> Filters:
    """Filters as users give them; see `compile_language`."""
    from fsa_compile.filters.filter_base import checked_filters

    return checked_filters(filters)


def _checked_canonical(canonical: Any) -> Canonical:
    """What `canonical` asks for; raises `ConstraintError` for what it cannot be."""
    if isinstance(canonical, bool):
        return canonical
    if isinstance(canonical, str) and canonical == "heal":
        return "heal"
    fix = 'Give True, False, "heal", or the token ids of a prompt.'
    try:
        ids = None if isinstance(canonical, (str, bytes, Mapping)) else list(itertools.islice(canonical, _MOST_IDS + 1))
    except TypeError:
        ids = None
    if ids is None or len(ids) > _MOST_IDS:
        raise ConstraintError(f"canonical is {shown(canonical)}", fix=fix)
    for place, token in enumerate(ids):
        if not is_whole(token, -sys.maxsize, sys.maxsize):
            where = f"position {place} of canonical="
            raise ConstraintError(f"the prompt holds {shown(token)}, which is no token id", where=where, fix=fix)
    return [int(token) for token in ids]


def _check_depth(max_depth: int | None, canonical: Canonical, filters: Filters) -> None:
    """Raises `ConstraintError` for a bound on depth that is none, or where none can be kept."""
    if max_depth is not None and not is_whole(max_depth, 0, sys.maxsize):
        raise ConstraintError(f"max_depth must be an int that is not negative, not {max_depth!r}", fix="Begin with max_depth=4.")
    if max_depth is not None and canonical is False and not filters:
        what = "max_depth bounds canonical and filtered constraints, whose stacks are written out; others keep a stack"
        raise ConstraintError(what, fix="Give generate(..., max_depth=), or compile with canonical=True.")


def tokenizer_of(tokenizer: Any) -> Any:
    """A tokenizer or vocabulary as it is; anything else as `load_tokenizer` reads it."""
    if isinstance(tokenizer, Vocabulary) or isinstance(getattr(tokenizer, "vocabulary", None), Vocabulary):
        return tokenizer
    if tokenizer is None or (isinstance(tokenizer, (str, os.PathLike)) and not os.fspath(tokenizer)):
        raise ConstraintError("no tokenizer was given", fix="Pass load_tokenizer(path), or the path itself.")
    from fsa_compile.tokenizers import load_tokenizer

    return load_tokenizer(tokenizer)


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer, a vocabulary itself, or of anything `load_tokenizer` reads."""
    tokenizer = tokenizer_of(tokenizer)
    return tokenizer if isinstance(tokenizer, Vocabulary) else tokenizer.vocabulary
