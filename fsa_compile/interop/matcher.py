"""`Matcher`: one request's constraint, with the vocabulary of the grammar backends of serving engines."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fsa_compile.artifact.bitmask import BitmaskWalk, host_array, write_row
from fsa_compile.errors import CallError, ConstraintError, checked_flag, is_whole, listed, named_fields, naming, shown
from fsa_compile.interop.jump_forward import forced_bytes
from fsa_compile.interop.walks import check_tokenizer, walk_of


@named_fields
class Matcher:
    """Follows one generated text and says which tokens may come next.

    The names are those that vLLM's and SGLang's backends call (XGrammar's `GrammarMatcher`), so that a backend is a few lines:
    see `docs/serving.md`. A token that is not allowed is refused, never followed.

    Args:
      constraint: a `CompiledConstraint` or `CompiledItems`.
      tokenizer: the tokenizer, or its `Vocabulary`; needed by `find_jump_forward_string`, and checked against the constraint.
      tables: `fsa_compile.canonical_tables(tokenizer)`, for canonical constraints.
      max_tokens: tokens the text may take in all (end-of-text ids not counted): only tokens are then allowed, and accepted,
        after which the text can be completed.
      max_depth: most cells of the stack of a grammar, None for no limit.
      terminate_without_stop_token: whether a text that nothing can follow ends by itself. Without it, it ends with an end-of-text
        id, as sampled. A constraint without end-of-text ids always ends by itself.

    Raises:
      ArtifactError: a canonical constraint without its tables, or another vocabulary's.
      BudgetError: `max_tokens` is below `constraint.shortest_completion`, or `max_depth` below its `shortest_depth`.
    """

    def __init__(
        self,
        constraint: Any,
        tokenizer: Any = None,
        *,
        tables: Any = None,
        max_tokens: int | None = None,
        max_depth: int | None = None,
        terminate_without_stop_token: bool = False,
    ) -> None:
        self.constraint, self.max_tokens, self._max_depth = constraint, max_tokens, max_depth
        self._vocabulary = None if tokenizer is None else check_tokenizer(constraint, tokenizer)
        self._walk = walk_of(constraint, tables, max_depth, max_tokens)
        self._ends_itself = checked_flag(terminate_without_stop_token, "terminate_without_stop_token") or not constraint.stop_ids
        self._taken: list[int] = []

    @property
    def walk(self) -> BitmaskWalk:
        """The host walk below."""
        return self._walk

    @property
    def stop_token_ids(self) -> list[int]:
        """End-of-text ids."""
        return list(self.constraint.stop_ids)

    @property
    def tokens(self) -> list[int]:
        """Tokens accepted so far."""
        return list(self._taken)

    def accept_token(self, token_id: int) -> bool:
        """Takes a token if it is allowed; False, and nothing is changed, if not.

        Raises:
          ConstraintError: the token is no whole number.
        """
        return self._takes(_whole(token_id))

    def _takes(self, token: int) -> bool:
        if self.is_terminated():
            return False
        if self._max_depth is not None and token not in _ids(self._walk.allowed_words(self._remaining())):
            return False
        try:
            self._walk.advance(token, self._remaining())
        except ValueError:
            return False
        self._taken.append(token)
        return True

    def accept_tokens(self, tokens: Iterable[int]) -> bool:
        """Takes all of some tokens, or none of them.

        Raises:
          ConstraintError: one is no whole number; then none was taken.
        """
        before, ids = len(self._taken), _all_whole(tokens)
        if all(map(self._takes, ids)):
            return True
        self.rollback(len(self._taken) - before)
        return False

    def validate_tokens(self, tokens: Iterable[int]) -> list[int]:
        """The longest beginning of some tokens that is allowed, such as of a draft. Changes nothing.

        Raises:
          ConstraintError: one is no whole number.
        """
        ids = _all_whole(tokens)
        taken = list(itertools.takewhile(self._takes, ids))
        self.rollback(len(taken))
        return taken

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """Writes the mask of the next token.

        Args:
          bitmask: int32[B, W] with W at least ceil(V / 32), NumPy array or CPU tensor; token t is bit t % 32 of word t // 32.
          index: the row to write. When the text has ended, only end-of-text ids are allowed; where there are none, everything is.

        Returns:
          Whether the mask must be applied: False when everything is allowed.

        Raises:
          ConstraintError: `bitmask` is something else, or too small.
        """
        if not self.is_terminated():
            return self._walk.fill_bitmask(bitmask, index, self._remaining())
        stops = np.zeros(-(-self._walk.vocab_size // 32), np.uint32)
        for token in self.constraint.stop_ids:
            stops[token >> 5] |= np.uint32(1 << (token & 31))
        write_row(bitmask, index, stops if self.constraint.stop_ids else ~stops)
        return bool(self.constraint.stop_ids)

    def is_accepting(self) -> bool:
        """Whether the text so far is accepted."""
        return bool(self._walk.accepting)

    def is_terminated(self) -> bool:
        """Whether the text has ended: by an end-of-text id, or by itself where that is enough."""
        if self._walk.finished:
            return True
        if not self._ends_itself or not self._walk.accepting:
            return False
        words = self._walk.allowed_words(self._remaining())
        return not np.setdiff1d(_ids(words), np.array(self.constraint.stop_ids, np.int64)).size

    def rollback(self, num_tokens: int = 1) -> None:
        """Takes back the last tokens; any number of them.

        Raises:
          ConstraintError: more than were accepted.
        """
        if not is_whole(num_tokens, 0, len(self._taken)):
            raise ConstraintError(f"cannot take back {shown(num_tokens)} of {len(self._taken)} tokens", fix="Take back fewer.")
        self._walk.rewind(num_tokens)
        del self._taken[len(self._taken) - num_tokens :]

    def reset(self) -> None:
        """Back to the start of the text."""
        self.rollback(len(self._taken))

    def copy(self) -> Matcher:
        """A matcher at the same place that goes its own way."""
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        out._walk, out._taken = self._walk.copy(), list(self._taken)
        return out

    def find_jump_forward_string(self) -> str:
        """The text that the constraint forces from here on, "" for none; whole characters only, and so "" within one.

        How it is cut into tokens is the caller's choice; tokens of it are accepted only as far as they are allowed.

        Raises:
          ConstraintError: the matcher was made without a tokenizer.
        """
        if self._vocabulary is None:
            fix = "Write Matcher(constraint, tokenizer)."
            raise ConstraintError("without a tokenizer it is not known what tokens write", fix=fix)
        forced = b"" if self.is_terminated() else forced_bytes(self._walk, self._vocabulary.tokens)
        try:
            return forced.decode()
        except UnicodeDecodeError as error:
            return forced[: error.start].decode()

    def _remaining(self) -> int | None:
        return None if self.max_tokens is None else max(self.max_tokens - len(self._taken), 0)


@naming(CallError)
def step_matchers(
    matchers: Sequence[Matcher], tokens: Sequence[int | None] | None, bitmask: Any, indices: Sequence[int] | None = None
) -> tuple[list[bool], list[bool]]:
    """One step of a batch: takes a token in every matcher, then writes every mask of the next one.

    Args:
      matchers: one per row.
      tokens: what was sampled in each row, None for nothing; None instead of the list before the first token.
      bitmask: as in `Matcher.fill_next_token_bitmask`.
      indices: the rows to write, by default 0, 1, ...

    Returns:
      Whether each token was accepted (a row without one counts as accepted), and whether each mask must be applied.

    Raises:
      ConstraintError: an argument is wrong; then no token was taken.
    """
    if isinstance(matchers, (str, bytes)) or not all(isinstance(one, Matcher) for one in _listed(matchers, "the matchers")):
        raise ConstraintError("the matchers are no list of matchers", fix="Give one Matcher per row.")
    array = host_array(bitmask)
    given = [None] * len(matchers) if tokens is None else [t if t is None else _whole(t) for t in _listed(tokens, "the tokens")]
    rows = range(len(matchers)) if indices is None else listed(indices, "indices")
    for what, count in (("tokens", len(given)), ("indices", len(rows))):
        if count != len(matchers):
            raise ConstraintError(f"there are {count} {what} for {len(matchers)} matchers", fix="Give one per matcher.")
    accepted = [token is None or matcher._takes(token) for matcher, token in zip(matchers, given, strict=True)]
    return accepted, [m.fill_next_token_bitmask(array, row) for m, row in zip(matchers, rows, strict=True)]


def _whole(token: Any) -> int:
    try:
        return operator.index(token)
    except TypeError:
        raise ConstraintError(f"the token is {shown(token)}, not a whole number", fix="Give a token id.") from None


def _all_whole(tokens: Any) -> list[int]:
    return [_whole(token) for token in _listed(tokens, "the tokens")]


def _listed(values: Any, what: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise ConstraintError(f"{what} are {shown(values)}, not a list", fix="Give a list of them.") from None


def _ids(words: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
