"""The one number space of FST labels. Imports nothing.

OpenFst reserves label 0 for epsilon, so byte 0 and token 0 cannot be labels of their own: every symbol is moved up by one.
"""

from __future__ import annotations

EPSILON = 0
"""OpenFst's empty label."""

FIRST_BYTE = 1
"""Label of byte 0."""

LAST_BYTE = 256
"""Label of byte 255."""

FIRST_TOKEN = 1
"""Label of token 0 on the token side of a transducer."""


def byte_label(byte: int) -> int:
    """FST label of a byte value 0..255."""
    return byte + FIRST_BYTE


def label_byte(label: int) -> int:
    """Byte value of an FST label 1..256."""
    return label - FIRST_BYTE


def token_label(token: int) -> int:
    """FST label of a token id."""
    return token + FIRST_TOKEN


def label_token(label: int) -> int:
    """Token id of an FST label."""
    return label - FIRST_TOKEN
