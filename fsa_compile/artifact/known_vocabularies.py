"""The vocabularies of this process by their fingerprints, so that whoever has only an artifact can find what spells its tokens.

Held weakly: a vocabulary that nobody uses any more is forgotten. Nothing may depend on finding one but messages and spelling.
"""

from __future__ import annotations

import weakref
from typing import Any

_KNOWN = dict[str, list["weakref.ref[Any]"]]()


def remember(fingerprint: str, vocabulary: Any) -> None:
    """Makes a vocabulary known."""
    alive = [known for known in _KNOWN.get(fingerprint, []) if known() is not None]
    _KNOWN[fingerprint] = [*alive, weakref.ref(vocabulary)]  # any of them may be the last to go


def recall(fingerprint: str) -> Any | None:
    """A vocabulary of this fingerprint, or None where this process has none."""
    return next((known for ref in _KNOWN.get(fingerprint, []) if (known := ref()) is not None), None)
