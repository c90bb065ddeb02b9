"""What the tests of protocols share: vocabularies with a protocol's special tokens or without, turns as ids, walks."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

from fsa_compile import PROTOCOLS, Vocabulary, load_tokenizer
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


FAMILIES = {
    "llama2/tokenizer.model": ("gemma4", "functiongemma", "gemma3-json", "gemma3-python"),  # Gemma's kind of vocabulary
    "llama3/tokenizer.model": ("llama3", "llama3.2", "deepseek-v3.1"),
    "llama4/tokenizer.model": ("llama4", "harmony", "phi4"),
    "qwen/qwen.tiktoken": ("qwen3", "mistral", "mistral-v3"),
    "gpt2": ("deepseek-v3", "olmo3"),
}
"""Vocabularies that can be had here, each for the protocols whose models have one of its kind."""


@functools.cache
def real_vocabulary(folder: Path, protocol: str) -> tuple[Vocabulary, Callable[[str], list[int]]]:
    """A published vocabulary in which a protocol's special tokens take the place of its own; and what encodes text with it."""
    path = next(path for path, protocols in FAMILIES.items() if protocol in protocols)
    tokenizer = load_tokenizer(folder / "tokenizers" / path)
    own = set(tokenizer.vocabulary.special.values())
    tokens = [b"" if token in own else text for token, text in enumerate(tokenizer.vocabulary.tokens)]
    names = names_of(PROTOCOLS[protocol])
    ids = {name: len(tokens) + place for place, name in enumerate(names)}
    stops = [ids[name] for name in PROTOCOLS[protocol].stops]
    vocabulary = Vocabulary.from_tokens([*tokens, *[b""] * len(names)], special=ids, stop_ids=stops)
    break_ = tokenizer.encode("\n")  # no token holds a break and more at its beginning; it stands before what a text begins with

    def encode(text: str) -> list[int]:
        if not path.startswith("llama2"):
            return list(tokenizer.encode(text))
        ids = list(tokenizer.encode("\n" + text))
        assert ids[: len(break_)] == break_
        return ids[len(break_) :]

    return vocabulary, encode


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
