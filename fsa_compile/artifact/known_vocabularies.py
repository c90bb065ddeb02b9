"""The vocabularies of this process by their fingerprints, so that whoever has only an artifact can find what spells its tokens.

Held weakly: a vocabulary that nobody uses any more is forgotten. Nothing may depend on finding one but messages and spelling.
"""

from __future__ import annotations

import weakref
from typing import Any

_KNOWN: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def remember(fingerprint: str, vocabulary: Any) -> None:
    """Makes a vocabulary known."""
    _KNOWN.setdefault(fingerprint, vocabulary)


def recall(fingerprint: str) -> Any | None:
    """A vocabulary of this fingerprint, or None where this process has none."""
    return _KNOWN.get(fingerprint)
