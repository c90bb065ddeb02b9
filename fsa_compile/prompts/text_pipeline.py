"""`TextPipeline`: what goes for every constraint and every prompt of one model, in one object."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, canonical_tables
from fsa_compile.compiler.arguments import filters_of
from fsa_compile.errors import ConstraintError, checked_flag, listed, named_fields, shown
from fsa_compile.languages.language import Language
from fsa_compile.prompts.chat import chat_prompt
from fsa_compile.prompts.chat_errors import ChatTemplateError
from fsa_compile.prompts.healing import Healed, heal
from fsa_compile.tokenizers.load import load_tokenizer
from fsa_compile.tokenizers.tokenizer import Tokenizer


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelinePrompt(Healed):
    """A healed prompt, and how `generate` is to begin and end it.

    Attributes:
      stop_ids: ids that end the text: the vocabulary's, and in a conversation what ends a turn.
      bos_id: id to put before the prompt; None where the chat template wrote it, or the vocabulary has none.
    """

    stop_ids: tuple[int, ...]
    bos_id: int | None


@named_fields
class TextPipeline:
    """Tokenizer, restriction of characters and other filters, canonical tokens and chat template of one model.

    Args:
      tokenizer: from `load_tokenizer`, or anything it takes.
      filters: from `fsa_compile.filters`, or languages; every constraint of the pipeline stays within them. Filters over text, so
        that prompts can be healed: canonical tokens already keep spaces and bytes as the tokenizer has them.
      canonical: whether prompt and text get the tokens that the tokenizer makes of both together.
      template: chat template, see `chat_prompt`; by default the tokenizer's own.

    Raises:
      ConstraintError: an argument is wrong, or the tokenizer has no canonical tokens.

    Source: the one pipeline of Cognetta et al. 2025, §3: pattern, preprocessing, composition, canonical filter.
    """

    def __init__(
        self, tokenizer: Any, *, filters: Iterable[Any] = (), canonical: bool = False, template: str | None = None
    ) -> None:
        self.tokenizer: Tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(tokenizer)
        self.filters, self.template = tuple(listed(filters, "filters")), template
        self.canonical = checked_flag(canonical, "canonical")
        if filters_of(self.filters).tokens:
            what = "a pipeline takes filters over text; this one restricts tokens, and prompts could not be healed"
            raise ConstraintError(what, fix="Leave it out: with canonical=True spaces and bytes are as the tokenizer has them.")
        if canonical:
            _ = self.canonical_tables  # an error comes now, not with the first prompt

    @functools.cached_property
    def canonical_tables(self) -> CanonicalTables | None:
        """For `to_device(..., canonical=)`; None where the pipeline is not canonical."""
        return canonical_tables(self.tokenizer) if self.canonical else None

    def compile(self, function: Callable[..., CompiledConstraint], what: Any, **options: Any) -> CompiledConstraint:
        """A constraint within the pipeline's filters.

        Args:
          function: a compile function of the package: `compile_regex`, `compile_json_schema`, `compile_type`, ...
          what: its first argument.
          options: its others. `filters` are added to the pipeline's; `max_depth` bounds what nests, in canonical pipelines.

        Returns:
          The artifact, for `prompt`.
        """
        if not callable(function):
            what = f"the compile function is {shown(function)}"
            raise ConstraintError(what, fix="Give one of the package's: pipeline.compile(compile_regex, pattern).")
        if "canonical" in options:
            raise ConstraintError("canonical is the pipeline's to say", fix="Give it to TextPipeline(..., canonical=True).")
        if more := [*self.filters, *listed(options.pop("filters", ()), "filters")]:
            options["filters"] = more
        if self.canonical:
            options["canonical"] = "heal"
        return function(what, self.tokenizer, **options)

    def prompt(
        self,
        prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
        constraint: CompiledConstraint | Language,
        *,
        response_prefix: str | Sequence[int] = "",
        **variables: Any,
    ) -> PipelinePrompt:
        """A prompt and a constraint behind it, healed at their border.

        Args:
          prompt: a text, token ids, or messages.
          constraint: from `compile`.
          response_prefix: see `heal`; the filters do not hold for it.
          variables: for messages: tools and values of the template, see `chat_prompt`.

        Returns:
          What `generate` needs: `prompt`, `constraint` (for `to_device(..., canonical=pipeline.canonical_tables)`), `stop_ids`,
          `bos_id`; and `text`.
        """
        vocabulary = self.tokenizer.vocabulary
        ids: Any = prompt
        stops, bos = vocabulary.stop_ids, vocabulary.bos_id
        if isinstance(prompt, Sequence) and not isinstance(prompt, str) and prompt and isinstance(prompt[0], Mapping):
            chat = chat_prompt(prompt, self.tokenizer, template=self.template, **variables)  # type: ignore[arg-type]
            ids, stops = chat.ids, chat.stop_ids
            bos = None if bos in ids[:1] else bos
        elif variables:
            raise ChatTemplateError(f"{', '.join(variables)} are for messages, and the prompt has none")
        healed = heal(ids, constraint, self.tokenizer, response_prefix=response_prefix, canonical=self.canonical)
        fields = {field.name: getattr(healed, field.name) for field in dataclasses.fields(healed)}
        return PipelinePrompt(**fields, stop_ids=stops, bos_id=bos)
