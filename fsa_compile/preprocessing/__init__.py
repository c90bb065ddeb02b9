"""What a tokenizer does to a text before it cuts it into tokens, as functions on texts and on whole languages.

    normalizer_of(tokenizer).normalize("Ｃafé")           # as the tokenizer's own library
    normalizer_of(tokenizer).apply(regex("Ｃaf(é|e)"))    # all normalized texts of the language
    text_start(tokenizer)                                # the space before a text, if the tokenizer puts one there

A constraint is on the text that is read after decoding, and decoding undoes no normalization: a constraint on output needs none.
What a normalizer loses (case, widths, accents) matters for *inputs*: texts that are to be looked up in, or compared with, what
the tokenizer was given; `apply` is exact for these, or refuses. Where output starts a text, `starts_text=True` of the compile
functions keeps to the tokenizer's convention; where it continues a prompt, nothing is put before it.
"""

from __future__ import annotations

from fsa_compile.preprocessing.normalizers import Normalizer, normalizer_of
from fsa_compile.preprocessing.text_start import TextStart, text_start

__all__ = ["Normalizer", "TextStart", "normalizer_of", "text_start"]
