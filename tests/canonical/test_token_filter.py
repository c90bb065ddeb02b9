"""Whole token sequences against the encoders: among all ways to spell a text, exactly the encoder's own is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from oracles.library_encoders import segmentations, texts

from fsa_compile.automata.utf8_classes import BAD, utf8_classes
from fsa_compile.canonical.encoder.splitter import build_splitter
from fsa_compile.canonical.encoder.splitter_syntax import parse_splitter
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, build_tables, canonical_tables
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.errors import UnsupportedPatternError
from fsa_compile.tokenizers import families, load_tokenizer
from tests.canonical.conftest import load_encoder, load_piece_encoder


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["llama2", "gpt2", "llama3", "llama4"])
def test_all_segmentations_of_texts(name: str, data_dir: Path, documents: list[str], exhaustive: bool) -> None:
    """Odd and random texts in many scripts: the encoder's sequence is accepted, and no other."""
    if name in ("llama3", "llama4") and not exhaustive:
        pytest.skip("larger vocabularies: only with --exhaustive")
    tokenizer, encoder, _, _ = load_encoder(name, data_dir)
    tables = build_tables(encoder)
    ids: dict[bytes, list[int]] = {}
    for i, token in enumerate(tokenizer.vocabulary.tokens):
        if token:
            ids.setdefault(token, []).append(i)
    encode: Callable[[str], list[int]] = tokenizer.encode
    if name == "llama2":  # without the space that it puts before a text
        piece = load_piece_encoder(name, data_dir)
        encode = lambda text: piece(text.encode())  # noqa: E731
    checked = 0
    for _, text in texts(np.random.default_rng(5), 20_000 if exhaustive else 200, tokenizer.vocabulary.tokens, documents):
        if "▁" in text and name == "llama2":
            continue  # the encoder reads it as a space
        want = tuple(encode(text))
        assert segmentations(tables.filter, text.encode(), ids, 512) == [want], text
        assert tables.is_canonical(list(want))
        checked += 1
    assert checked > 150


def test_fallback_characters(data_dir: Path) -> None:
    """Byte tokens spell what has no piece, and nothing else: not a letter, not U+2581, not half a character."""
    _, encoder, _, _ = load_encoder("llama2", data_dir)
    tables = build_tables(encoder)
    assert encoder.byte_tokens is not None
    spell = lambda text: encoder.byte_tokens[list(text.encode())].tolist()  # noqa: E731
    assert tables.is_canonical(spell("\u0e53"))
    assert not tables.is_canonical(spell("a"))
    assert not tables.is_canonical(spell("\u2581"))
    assert not tables.is_canonical(spell("\u0e53")[:-1])
    assert not tables.is_canonical([1])  # a special token is of no text


def plain(pattern: str) -> CanonicalTables:
    tokens = [bytes([b]) for b in range(256)]
    return toy_tables(tokens, [], pattern=pattern)


def cuts_of(tables: CanonicalTables, text: str) -> list[list[int]]:
    """All sets of cuts that the splitter accepts."""
    splitter = tables.splitter
    assert splitter is not None
    states: list[tuple[int, list[int]]] = [(0, [])]
    for i, char in enumerate(text):
        kind = splitter.class_of[ord(char)]
        states = [
            (int(splitter.next[s, kind]), cuts)
            for state, before in states
            for s, cuts in ((state, before), (int(splitter.cut[state]), [*before, i]))
            if s >= 0 and splitter.next[s, kind] >= 0
        ]
    return [cuts for state, cuts in states if splitter.final[state]]


@pytest.mark.parametrize(
    "pattern", [families.GPT2_PATTERN, families.LLAMA3_PATTERN, families.CL100K_PATTERN, families.QWEN_PATTERN, families.O200K_PATTERN]
)
def test_cuts_are_the_engines(pattern: str) -> None:
    """Exactly one set of cuts of every text is accepted: where the engine cuts."""
    regex = pytest.importorskip("regex")
    tables = plain(pattern)
    alphabet = "a A'srel1٣ \n\r\t.{ſÉ日\u0301!/\u00a0"
    rng = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(alphabet[k] for k in rng.integers(len(alphabet), size=rng.integers(1, 10)))
        want, at, pieces = [], 0, regex.findall(pattern, text)  # agrees with the engine on this alphabet
        for piece in pieces[:-1]:
            at += len(piece)
            want.append(at)
        assert cuts_of(tables, text) == [want], text


def test_the_engine_decides_what_a_letter_is() -> None:
    """Every code point has one class, and UTF-8 leads to it."""
    splitter = build_splitter(families.LLAMA3_PATTERN, "tiktoken")
    nodes = utf8_classes(splitter.class_of)
    for point in [*range(0x900), 0x2028, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]:
        at = 0
        for byte in chr(point).encode():
            at = int(nodes[at, byte])
        assert ~at == splitter.class_of[point]
    for wrong in (b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"):
        at = 0
        for byte in wrong:
            at = int(nodes[at, byte])
            if at == BAD:
                break
        assert at == BAD


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"\w+(?=x)|.", "is not read"),
        (r"(?<=a)b|[\s\S]", "is not read"),
        (r"a*?|[\s\S]", "lazy"),
        (r"\p{L}+", "begins no match"),
        (r"[\s\S]*", "match nothing"),
        (r"a++a|[\s\S]", "possessive"),
        (r"(?!ab)c|[\s\S]", "more than one character"),
        (r"(?:a", "open parenthesis"),
    ],
)
def test_refused_splitters(pattern: str, message: str) -> None:
    with pytest.raises(UnsupportedPatternError, match=message):
        plain(pattern)


def test_possessive_loops_that_are_harmless() -> None:
    parse_splitter(families.CL100K_PATTERN)
    assert cuts_of(plain(r"\s++$|\s|\S++"), "ab  c  ") == [[2, 3, 4, 5]]


def test_the_small_models_tokenizer() -> None:
    """Byte fallback and a user-defined line break, which stands alone: of all segmentations exactly sentencepiece's own."""
    sentencepiece = pytest.importorskip("sentencepiece")
    from sentencepiece import sentencepiece_model_pb2

    path = Path(__file__).parents[2] / "models" / "small" / "tokenizer.model"
    tokenizer, tables = load_tokenizer(path), canonical_tables(path)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(path.read_bytes())
    proto.normalizer_spec.add_dummy_prefix = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    ids: dict[bytes, list[int]] = {}
    for i, token in enumerate(tokenizer.vocabulary.tokens):
        if token:
            ids.setdefault(token, []).append(i)
    checked = 0
    for _, text in texts(np.random.default_rng(0), 400, tokenizer.vocabulary.tokens, ["\n\n a\n b: [1, 2]\n" * 9]):
        if "▁" not in text and "<" not in text:
            checked += 1
            assert segmentations(tables.filter, text.encode(), ids, 64) == [tuple(processor.encode(text))], text
    assert checked > 150
