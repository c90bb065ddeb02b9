"""Filters: small automata that narrow any constraint, alone or together, in any order with the same result.

    compile_regex(r"(?s).{1,99}", tokenizer, filters=[filters.nfc(max_marks=1), filters.scripts(["Latin"])])

Filters over text are languages: they can be combined with others by `&`, and any `Language` is a filter. They are intersected
with the constraint before composition with the vocabulary. Filters over tokens restrict how a text may be spelled; their
product is taken after it.

Source: Cognetta et al. 2025, "Pitfalls, Subtleties, and Techniques in Automata-Based Subword-Level Constrained Generation", §3–4.
"""

from __future__ import annotations

from fsa_compile.filters.characters import ascii, characters, length, nfc_inert, scripts, valid_utf8
from fsa_compile.filters.filter_base import Filter, Filters, TextFilter, TokenDfa, TokenFilter, checked_filters
from fsa_compile.filters.nfc import nfc
from fsa_compile.filters.phrases import forbid, words
from fsa_compile.filters.token_filters import byte_fallback, fused_spaces, token_count, token_set

__all__ = [
    "Filter", "Filters", "TextFilter", "TokenDfa", "TokenFilter", "ascii", "byte_fallback", "characters", "checked_filters",
    "forbid", "fused_spaces", "length", "nfc", "nfc_inert", "scripts", "token_count", "token_set", "valid_utf8", "words",
]  # fmt: skip
