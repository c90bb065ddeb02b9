"""What the tests of protocols share: vocabularies with a protocol's special tokens or without, turns as ids, walks."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from fsa_compile import Vocabulary, load_tokenizer
from fsa_compile.protocols import Protocol

PIECES = [b"he", b"llo", b"get_", b"weather", b'{"', b'": ', b'", "', b"\n\n", b"</", b"think>", b"tool_call>", b"<|", b"call:", b"}}", b"'}"]


def names_of(protocol: Protocol) -> list[str]:
    """Every special token of a protocol."""
    return list(dict.fromkeys((*protocol.tokens, *protocol.stops)))


def small_vocabulary(protocol: Protocol, special: bool) -> Vocabulary:
    """A token for every byte and a few longer ones, with the protocol's special tokens, or only its first stop token."""
    tokens = [*(bytes([byte]) for byte in range(256)), *PIECES]
    names = names_of(protocol) if special else [protocol.stops[0]]
    ids = {name: len(tokens) + place for place, name in enumerate(names)}
    stops = [ids[name] for name in protocol.stops if name in ids]
    return Vocabulary.from_tokens([*tokens, *[b""] * len(names)], special=ids, stop_ids=stops)


@functools.cache
def real_tokenizer(folder: Path, names: tuple[str, ...], stops: tuple[str, ...]):
    """Llama 3's 128,000 tokens with other special tokens."""
    ids = {name: 128_000 + place for place, name in enumerate(names)}
    return load_tokenizer(folder / "tokenizers" / "llama3" / "tokenizer.model", special_tokens=ids, stop_ids=[ids[n] for n in stops])


def ids_of(text: str, vocabulary: Vocabulary, encode=None) -> list[int]:
    """A turn's ids: names of special tokens are these, the rest is encoded, by bytes where no encoder is given."""
    encode = encode or (lambda part: list(part.encode()))
    out: list[int] = []
    at = 0
    pattern = "|".join(map(re.escape, sorted(vocabulary.special, key=len, reverse=True)))
    for found in re.finditer(pattern or "(?!)", text):
        out += [*encode(text[at : found.start()]), vocabulary.special[found[0]]]
        at = found.end()
    return out + encode(text[at:])


def refused_at(constraint, ids: list[int]) -> int | None:
    """Place of the first token that is forbidden, the length where the turn is not complete, None where it is accepted."""
    walk = constraint.walk()
    for place, token in enumerate(ids):
        if not walk.allowed()[token]:
            return place
        walk.advance(token)
    return None if walk.allowed()[constraint.stop_ids[0]] else len(ids)
