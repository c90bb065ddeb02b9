"""Exact bytes of every token, the trie over them, look-ups, and a memo of derived tables."""

from fsa_compile.vocabulary.vocabulary import Vocabulary as Vocabulary
