"""Canonical tables as a whole: what is refused, the file form, the disk cache, other formats of one tokenizer."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from fsa_compile.canonical.filter import canonical_tables as module
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, canonical_tables
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.errors import ArtifactError, TokenizerError
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.tokenizers.byte_level import BYTE_TO_CHAR
from fsa_compile.tokenizers.tiktoken_ranks import load_ranks
from fsa_compile.vocabulary import Vocabulary
from tests.canonical.conftest import load_encoder


def equal(a: CanonicalTables, b: CanonicalTables) -> bool:
    return all(np.array_equal(getattr(a.rule, n), getattr(b.rule, n)) for n in ("own", "place", "set_of", "begin", "end")) and (
        a.unmerged == b.unmerged and a.identity == b.identity and a.whole_tokens == b.whole_tokens
    )


def test_file_form(tmp_path: Path) -> None:
    tokens = [bytes([b]) for b in range(256)] + [b"ab", b""]
    made = toy_tables(tokens, [(97, 98)], pattern=r"\p{L}+|[\s\S]", stop_ids=[257])
    made.save(tmp_path / "t.npz")
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=[257])
    again = CanonicalTables.load(tmp_path / "t.npz", vocabulary)
    assert equal(made, again)
    for sequence in ([97, 98], [256], [256, 97], [98, 97], [97, 32, 98]):
        assert made.is_canonical(sequence) == again.is_canonical(sequence)
    assert not again.is_canonical([97, 98])
    with pytest.raises(ArtifactError, match="are those of vocabulary"):
        CanonicalTables.load(tmp_path / "t.npz", Vocabulary.from_tokens(tokens[:-1]))
    with pytest.raises(ArtifactError, match="no such file"):
        CanonicalTables.load(tmp_path / "none.npz", vocabulary)
    data = (tmp_path / "t.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(ArtifactError, match="damaged"):
        CanonicalTables.load(tmp_path / "half.npz", vocabulary)


def test_disk_cache(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once, read afterwards; a damaged file is made anew."""
    monkeypatch.setenv("CONSTRAX_CACHE", str(tmp_path))
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "llama2")
    monkeypatch.setattr(module, "_memory", {})
    made = canonical_tables(tokenizer)
    (path,) = tmp_path.glob("canonical-*.npz")
    assert path.stat().st_size < 60e6
    monkeypatch.setattr(module, "_memory", {})
    monkeypatch.setattr(module, "build_tables", lambda *_: pytest.fail("made again"))
    assert equal(made, canonical_tables(tokenizer))
    monkeypatch.undo()
    monkeypatch.setenv("CONSTRAX_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_memory", {})
    path.write_bytes(b"damaged")
    assert equal(made, canonical_tables(tokenizer))


def test_hugging_face_form_of_gpt2(data_dir: Path) -> None:
    """The same merges in a tokenizer.json give the same rule."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer, _, _, rule = load_encoder("gpt2", data_dir)
    names, merges = tokenizer.merges  # type: ignore[attr-defined]
    built = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=names, merges=merges))
    built.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = tokenizers.decoders.ByteLevel()
    found = canonical_tables(built)
    size = found.vocab_size
    assert np.array_equal(found.rule.own[:size], rule.own[:size])
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 50_000, (2, 20_000))
    assert np.array_equal(found.rule.forbidden(a, b), rule.forbidden(a, b))


def test_what_the_format_could_add_is_refused() -> None:
    """Normalizers, other pre-tokenizers and added tokens of a tokenizer.json."""
    tokenizers = pytest.importorskip("tokenizers")
    names = {char: byte for byte, char in BYTE_TO_CHAR.items()}
    built = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=names, merges=[]))
    built.decoder = tokenizers.decoders.ByteLevel()
    built.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert canonical_tables(built).is_canonical([97, 98])
    built.normalizer = tokenizers.normalizers.Lowercase()
    with pytest.raises(TokenizerError, match="normalizer"):
        canonical_tables(built)
    built.normalizer = tokenizers.normalizers.NFC()
    assert canonical_tables(built).is_canonical(list("é".encode()))
    assert not canonical_tables(built).is_canonical(list("e\u0301".encode()))
    with pytest.raises(TokenizerError, match="token 2 of the prompt"):
        canonical_tables(built).after(list("e\u0301".encode()))
    built.normalizer = None  # type: ignore[assignment]
    built.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    with pytest.raises(TokenizerError, match="pre-tokenizer"):
        canonical_tables(built)
    built.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.add_tokens(["<tag>x"])
    with pytest.raises(TokenizerError, match="added tokens"):
        canonical_tables(built)


def test_refused_models(data_dir: Path) -> None:
    """Unigram, WordPiece and plain lists of tokens have no pair rule."""
    tokenizers = pytest.importorskip("tokenizers")
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", -1.0), ("b", -2.0)]))
    unigram.decoder = tokenizers.decoders.Metaspace()
    word_piece = tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    word_piece.decoder = tokenizers.decoders.WordPiece()
    for model in (unigram, [b"a", b"b"]):
        with pytest.raises(TokenizerError, match="canonical tokenization is not defined here"):
            canonical_tables(model)
    with pytest.raises(TokenizerError, match="WordPiece"):
        canonical_tables(word_piece)


def test_sentence_piece_unigram_is_refused(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "text.txt").write_text("the cat sat on the mat\nthe dog sat too\n" * 50)
    for kind, message in (("unigram", "finds the best of all ways"), ("bpe", "normalizer")):
        prefix = tmp_path / kind
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / "text.txt"), model_prefix=str(prefix), vocab_size=15, model_type=kind, minloglevel=9
        )
        with pytest.raises(TokenizerError, match=message):
            canonical_tables(str(prefix) + ".model")


def test_unknown_splitter_and_lost_bytes_are_refused() -> None:
    ranks = b"".join(base64.b64encode(bytes([byte])) + f" {byte}\n".encode() for byte in range(256))
    with pytest.raises(TokenizerError, match="cuts a text into pieces is not known"):
        canonical_tables(load_ranks(ranks, source="ranks"))
    assert canonical_tables(load_ranks(ranks, source="ranks", pattern=r"[\s\S]")).is_canonical([97])
    few = load_ranks(b"YQ== 0\n", source="ranks", pattern="a")
    with pytest.raises(TokenizerError, match="the byte 0x00 has no token"):
        canonical_tables(few)
