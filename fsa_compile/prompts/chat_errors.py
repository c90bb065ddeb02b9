"""What is wrong with a conversation or its template."""

from __future__ import annotations

from fsa_compile.errors import TokenizerError


class ChatTemplateError(TokenizerError):
    """A tokenizer without a chat template, a template that cannot be run, or messages that it refuses."""
