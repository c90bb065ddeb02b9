"""Small vocabularies of ambiguous, misaligned tokens."""

from __future__ import annotations

from fsa_compile.vocabulary import Vocabulary

AMBIGUOUS = [
    b"a", b"b", b"c", b"ab", b"ba", b"aab", b"abc", b"bb", b"aaaa", b"1", b"2", b"12", b"0", b"01", b"-", b"--", b".", b".1", b"a.",
    b" ", b"  ", b" a", b"b ", b'"', b'",', b'"a', b"\\", b'\\"', b"n", b"u0", b"A", b"Ab", b"_", b"@", b"a@b", b",", b"\n", b"\n\n",
    "é".encode(), b"\xc3", b"\xa9", b"a\xc3", b"\xa9b", "€".encode(), b"\xe2\x82", b"\xac", b"\xe2", b"\x82", b"\x82\xac",
    "日本".encode(), "日".encode()[:2], "日".encode()[2:], "😀".encode(), b"\xf0\x9f", b"\x98\x80", b"\xf0", b"\xff", "éa€".encode(),
]  # fmt: skip


def every_byte(extra: list[bytes] | None = None) -> Vocabulary:
    """The 256 bytes, ambiguous longer tokens, two of them twice, an empty id and two stop ids."""
    longer = [t for t in AMBIGUOUS if len(t) > 1]
    tokens = [bytes([b]) for b in range(256)] + longer + (extra or []) + [longer[0], longer[3], b"", b"", b""]
    return Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1, len(tokens) - 3])


def few_bytes() -> Vocabulary:
    """Ambiguous tokens only: most bytes cannot be spelled alone."""
    tokens = [*AMBIGUOUS, b"ab", b"", b""]
    return Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1])
