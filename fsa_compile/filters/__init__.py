"""Filters: small automata that narrow any constraint, alone or together, in any order with the same result.

    compile_regex(r"(?s).{1,99}", tokenizer, filters=[filters.nfc(max_marks=1), filters.scripts(["Latin"])])

Filters over text are languages: they can be combined with others by `&`, and any `Language` is a filter. They are intersected
with the constraint before composition with the vocabulary. Filters over tokens restrict how a text may be spelled; their
product is taken after it. Names load when first used: most constraints have no filter.

Source: Cognetta et al. 2025, "Pitfalls, Subtleties, and Techniques in Automata-Based Subword-Level Constrained Generation", §3–4.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
