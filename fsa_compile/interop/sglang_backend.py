"""Structured outputs of sglang-jax by this package: a grammar backend in the place of its own, `llguidance`.

The server makes its backend by name and has no list that others could enter, so `install` takes the place of the one class that
it knows. sglang-jax is imported when `install` or `backend_class` is called.

Source: sglang-jax, `srt/constrained/base_grammar_backend.py` of its repository; the package on PyPI (0.0.1) has no grammars yet.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Any

import numpy as np

from fsa_compile.errors import ConstraintError, MissingPackageError
from fsa_compile.interop.matcher import Matcher
from fsa_compile.interop.vllm_backend import Masks

_FOLDER = "sgl_jax.srt.constrained"
_ANY_OBJECT = "$$ANY$$"
"""What the server writes in place of a schema for any JSON object."""
_log = logging.getLogger(__name__)


def _base() -> Any:
    try:
        return importlib.import_module(f"{_FOLDER}.base_grammar_backend")
    except ModuleNotFoundError as error:
        raise MissingPackageError("sglang-jax", "A grammar backend of sglang-jax") from error


@functools.cache
def grammar_class() -> type:
    """The grammar of one request, a subclass of sglang-jax's `BaseGrammarObject`.

    Raises:
      MissingPackageError: sglang-jax is not installed, or has no grammars.
    """
    parent: Any = _base().BaseGrammarObject

    class ConstraxGrammar(parent):
        """A text of one request."""

        def __init__(self, matcher: Matcher) -> None:
            super().__init__()
            self.matcher = matcher

        def accept_token(self, token: int) -> None:
            """Follows a token; one that the mask forbids is an error, not the end of the constraint."""
            if self.finished or self.matcher.is_terminated():
                return
            if not self.matcher.accept_token(int(token)):
                raise ConstraintError(
                    f"token {token} is not allowed after {len(self.matcher.tokens)} tokens of a structured request",
                    fix="Every token must be sampled under the mask: speculative decoding needs `verify_drafts`.",
                )

        def allocate_vocab_mask(self, vocab_size: int, batch_size: int) -> np.ndarray:
            """int32[B, ceil(V / 32)], everything allowed: rows without a grammar are left so."""
            return np.full((batch_size, -(-vocab_size // 32)), -1, np.int32)

        def fill_vocab_mask(self, vocab_mask: np.ndarray, idx: int) -> None:
            self.matcher.fill_next_token_bitmask(vocab_mask, idx)

        def is_terminated(self) -> bool:
            return self.matcher.is_terminated()

        def rollback(self, num_tokens: int) -> None:
            self.matcher.rollback(num_tokens)

        def copy(self) -> ConstraxGrammar:
            """The grammar of another request for the same: from the start."""
            other = self.matcher.copy()
            other.reset()
            return ConstraxGrammar(other)

    return ConstraxGrammar


@functools.cache
def backend_class() -> type:
    """The backend, a subclass of sglang-jax's `BaseGrammarBackend`; its constructor takes what `GuidanceBackend` does.

    Raises:
      MissingPackageError: sglang-jax is not installed, or has no grammars.
    """
    base: Any = _base()
    parent: Any = base.BaseGrammarBackend
    grammar = grammar_class()

    class ConstraxBackend(parent):
        """The constraints of one server. What cannot be enforced is logged and becomes `INVALID_GRAMMAR_OBJ`, which the server
        answers with an error."""

        def __init__(
            self,
            tokenizer: Any,
            any_whitespace: bool = True,
            whitespace_pattern: str | None = None,
            n_vocab: int = 0,
            num_threads: int = 4,
        ) -> None:
            if whitespace_pattern is not None:
                raise ConstraintError(
                    "a pattern for white space in JSON is not supported",
                    fix="Leave --constrained-json-whitespace-pattern out.",
                )
            super().__init__(num_threads=num_threads)
            self._masks = Masks(getattr(tokenizer, "tokenizer", tokenizer), compact=not any_whitespace)

        def _grammar(self, kind: str, spec: str) -> Any:
            try:
                return grammar(self._masks.matcher(kind, spec))
            except (ConstraintError, ValueError) as error:
                _log.error("%s", error)
                return base.INVALID_GRAMMAR_OBJ

        def dispatch_json(self, key_string: str) -> Any:
            return self._grammar("json_object" if key_string == _ANY_OBJECT else "json", key_string)

        def dispatch_regex(self, key_string: str) -> Any:
            return self._grammar("regex", key_string)

        def dispatch_ebnf(self, key_string: str) -> Any:
            return self._grammar("grammar", key_string)

        def dispatch_structural_tag(self, key_string: str) -> Any:
            return self._grammar("structural_tag", key_string)

    return ConstraxBackend


def install() -> None:
    """Lets the backend `llguidance` of sglang-jax be this package's, in this process: call it before the server is made.

    Raises:
      MissingPackageError: sglang-jax is not installed, or has no grammars.
    """
    own = backend_class()
    module: Any = importlib.import_module(f"{_FOLDER}.llguidance_backend")
    module.GuidanceBackend = own
