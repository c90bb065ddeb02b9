"""vLLM's structured outputs by this package: a backend of `vllm.v1.structured_output`, in the place of one of vLLM's own.

vLLM chooses among backends by their names and has no list that others could enter, so `install` takes the place of one, that of
`outlines`: requests are then checked and masked here. vLLM is imported when `install` or `backend_class` is called.

Source: vLLM 0.33.0, `v1/structured_output/backend_types.py`.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from collections.abc import Iterable
from typing import Any

from fsa_compile.errors import ConstraintError, MissingPackageError
from fsa_compile.interop.matcher import Matcher
from fsa_compile.interop.structured_outputs import compile_structured_outputs
from fsa_compile.limits import CompileLimits
from fsa_compile.tokenizers.hugging_face import from_transformers
from fsa_compile.vocabulary.vocabulary import Vocabulary

PLACE = "outlines"
"""The backend whose place is taken: `--structured-outputs-config.backend outlines`."""
ASKED = "CONSTRAX_VLLM"
"""Environment variable that asks for `install` in every process of vLLM; see `plugin`."""
_KEPT, _STOPS = 512, 8


class Masks:
    """What compiles the requests of one engine, without anything of vLLM: a tokenizer, limits, and what was compiled last.

    Args:
      tokenizer: a `transformers` tokenizer, or one of this package, or a `Vocabulary`.
      compact: whether JSON is written without whitespace.
      limits: for each request.
    """

    def __init__(self, tokenizer: Any, *, compact: bool = False, limits: CompileLimits | None = None) -> None:
        own: Any = tokenizer
        if not isinstance(own, Vocabulary) and not hasattr(own, "vocabulary"):
            own = from_transformers(own)
        self._vocabulary: Vocabulary = getattr(own, "vocabulary", own)
        self._compact, self._limits = compact, limits or CompileLimits.for_requests()
        self._compiled = functools.lru_cache(_KEPT)(self._compile)
        self._ending = functools.lru_cache(_STOPS)(self._ending_with)

    def matcher(self, kind: str, spec: str, stop_ids: Iterable[int] | None = None) -> Matcher:
        """What follows a text of a request.

        Args:
          kind: "json", "json_object", "regex", "choice", "grammar" or "structural_tag".
          spec: its text, as vLLM hands it over: of choices the JSON list.
          stop_ids: ids that end the text; None for those of the tokenizer.

        Raises:
          ConstraintError: as `compile_structured_outputs`; or a stop id writes text, so that a text could end in its middle.
        """
        stops = self._vocabulary.stop_ids if stop_ids is None else tuple(sorted(stop_ids))
        return Matcher(self._compiled(kind, spec, stops))

    def _compile(self, kind: str, spec: str, stops: tuple[int, ...]) -> Any:
        return compile_structured_outputs(self._params(kind, spec), self._ending(stops), limits=self._limits)

    def _ending_with(self, stops: tuple[int, ...]) -> Vocabulary:
        known = self._vocabulary
        if stops == known.stop_ids:
            return known
        more = {"special": known.special, "bos_id": known.bos_id, "logits_width": known.logits_width}
        return Vocabulary(tokens=known.tokens, stop_ids=stops, **more)  # type: ignore[arg-type]

    def _params(self, kind: str, spec: str) -> dict[str, Any]:
        value: Any = True if kind == "json_object" else json.loads(spec) if kind == "choice" else spec
        return {kind: value, "disable_any_whitespace": self._compact}


def _types() -> Any:
    try:
        return importlib.import_module("vllm.v1.structured_output.backend_types")
    except ModuleNotFoundError as error:
        raise MissingPackageError("vllm", "A backend of vLLM") from error


@functools.cache
def backend_class() -> type:
    """The backend, a subclass of vLLM's `StructuredOutputBackend`; its grammars are subclasses of `StructuredOutputGrammar`.

    Raises:
      MissingPackageError: vLLM is not installed.
    """
    types = _types()
    grammars: Any = types.StructuredOutputGrammar
    backends: Any = types.StructuredOutputBackend

    class ConstraxGrammar(grammars):
        """A text of one request."""

        def __init__(self, matcher: Matcher) -> None:
            self.matcher = matcher

        def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
            return self.matcher.accept_tokens(tokens)

        def validate_tokens(self, tokens: list[int]) -> list[int]:
            return self.matcher.validate_tokens(tokens)

        def rollback(self, num_tokens: int) -> None:
            self.matcher.rollback(num_tokens)

        def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
            self.matcher.fill_next_token_bitmask(bitmask, batch_index)

        def is_terminated(self) -> bool:
            return self.matcher.is_terminated()

        def reset(self) -> None:
            self.matcher.reset()

    class ConstraxBackend(backends):
        """The constraints of one engine."""

        def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int) -> None:
            self.vllm_config, self.tokenizer, self.vocab_size = vllm_config, tokenizer, vocab_size
            compact = bool(getattr(vllm_config.structured_outputs_config, "disable_any_whitespace", False))
            self._masks = Masks(tokenizer, compact=compact)

        def compile_grammar(
            self, request_type: Any, grammar_spec: str, stop_token_ids: set[int] | None = None
        ) -> ConstraxGrammar:
            return ConstraxGrammar(self._masks.matcher(request_type.name.lower(), grammar_spec, stop_token_ids))

        def allocate_token_bitmask(self, max_num_seqs: int) -> Any:
            torch = importlib.import_module("torch")
            return torch.full((max_num_seqs, -(-self.vocab_size // 32)), -1, dtype=torch.int32)

        def destroy(self) -> None:
            del self._masks

    return ConstraxBackend


@functools.cache
def _bytes_only() -> Vocabulary:
    return Vocabulary.from_tokens([*(bytes([value]) for value in range(256)), b""], stop_ids=[256])


def check(params: Any) -> None:
    """Refuses structured outputs of a request before they reach an engine: what vLLM's front end calls, which has no tokenizer.

    Args:
      params: vLLM's `SamplingParams`.

    Raises:
      VLLMValidationError: what `compile_structured_outputs` says.
    """
    key = importlib.import_module("vllm.v1.structured_output.request").get_structured_output_key(params.structured_outputs)
    try:
        Masks(_bytes_only()).matcher(key[0].name.lower(), key[1])
    except (ConstraintError, json.JSONDecodeError) as error:
        raise importlib.import_module("vllm.exceptions").VLLMValidationError(str(error)) from None


def install() -> None:
    """Lets vLLM's backend `outlines` be this package's, in this process: what checks requests, and what masks.

    Raises:
      MissingPackageError: vLLM is not installed.
    """
    _types()
    module: Any = importlib.import_module(f"vllm.v1.structured_output.backend_{PLACE}")
    module.OutlinesBackend = backend_class()
    module.validate_structured_output_request_outlines = check


def plugin() -> None:
    """A plugin of vLLM (`vllm.general_plugins`), which it calls in each of its processes: `install`, where the environment
    variable `CONSTRAX_VLLM` is set to 1."""
    if os.environ.get(ASKED) == "1":
        install()
