"""A turn of the assistant as its model writes it: prompt in, thinking, answer and calls out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import fsa_compile
from fsa_compile.protocols import protocol_of_tokenizer, stop_ids


@dataclasses.dataclass(frozen=True)
class TurnPlan:
    """How a turn is compiled and read.

    Attributes:
      protocol: how the model writes it.
      asked: arguments that `compile_response` and `parse_response` share.
    """

    protocol: fsa_compile.Protocol
    asked: dict[str, Any]

    @classmethod
    def of(cls, tokenizer: Any, protocol: Any, tools: Sequence[Any] | None, wanted: Any, reasoning: str) -> TurnPlan:
        """The plan of a request."""
        known = protocol_of_tokenizer(tokenizer, protocol)
        return cls(known, {"protocol": known, "tools": tools, "response": wanted, "reasoning": reasoning})

    def compiled(self, tokenizer: Any) -> fsa_compile.CompiledConstraint:
        """The constraint."""
        return fsa_compile.compile_response(tokenizer, **self.asked)

    def read(self, tokens: Sequence[int], tokenizer: Any) -> fsa_compile.Response:
        """The turn that was generated."""
        return fsa_compile.parse_response(tokens, tokenizer, **self.asked)

    def stop_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Ids that end it."""
        return stop_ids(tokenizer, self.protocol)

    def example(self) -> str:
        """What a call looks like, for prompts whose template has no place for tools."""
        calls = self.protocol.calls
        styles = {
            "json": '{"KEY": VALUE}',
            "python": "(KEY=VALUE)",
            "keywords": "(KEY=VALUE)",
            "marked": f"{{KEY:{calls.arguments.mark}TEXT{calls.arguments.mark}}}",
        }
        return f"{calls.opening}NAME{calls.middle}{styles[calls.arguments.style]}{calls.end}{calls.all_end}"
