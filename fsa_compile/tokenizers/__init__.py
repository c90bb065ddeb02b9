"""Tokenizers of all common formats, each reduced to exact bytes per id: see `load_tokenizer`."""

from fsa_compile.tokenizers.load import load_tokenizer
from fsa_compile.tokenizers.tokenizer import Tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]
