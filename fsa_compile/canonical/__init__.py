"""Canonical tokenization: which token sequences a tokenizer's own encoder makes, as automata and tables.

Names load when first used.
"""
