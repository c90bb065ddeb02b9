"""SentencePiece models trained here: all piece types, both algorithms, dummy prefix, damaged files."""

from __future__ import annotations

import contextlib
import io
import random

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as protobuf

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.tokenizers.sentence_piece import load_sentence_piece

USER = ["<b>", "\n", "▁▁", "<start_of_turn>", "<end_of_turn>", "<unused0>", "<|tool_call>", "<channel|>", '<|"|>', "zq"]
MARKUP = ["<start_of_turn>", "<end_of_turn>", "<unused0>", "<|tool_call>", "<channel|>", '<|"|>']


def train(**changes):
    """A small serialized model."""
    rng = random.Random(0)
    syllables = ["ka", "lo", "mi", "ne", "ru", "sta", "tion", "ü", "è", "日", "本"]
    words = ["".join(rng.choices(syllables, k=rng.randrange(1, 4))) for _ in range(300)]
    lines = [" ".join(rng.choices(words, k=8)) for _ in range(400)]
    writer = io.BytesIO()
    options = {"model_type": "bpe", "vocab_size": 400, "byte_fallback": True, "character_coverage": 0.98}
    options |= {"user_defined_symbols": USER, "control_symbols": ["<ctl>"], "pad_id": 3, "minloglevel": 2}
    options |= {"normalization_rule_name": "identity", "num_threads": 1, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=writer, **(options | changes)
    )
    return writer.getvalue()


VARIANTS = {
    "bpe": {},
    "unigram": {"model_type": "unigram"},
    "no_prefix": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "keep_spaces": {"remove_extra_whitespaces": False},
    "no_bytes": {"byte_fallback": False, "vocab_size": 150},
    "suffix": {"treat_whitespace_as_suffix": True, "remove_extra_whitespaces": False},
    "char": {"model_type": "char", "vocab_size": 300},
}


@pytest.fixture(scope="module")
def models():
    return {name: train(**changes) for name, changes in VARIANTS.items()}


@pytest.fixture(scope="module")
def gemma_like(models):
    """As Gemma's: byte fallback, no dummy prefix, spaces kept, newline and chat markup user-defined."""
    return load_sentence_piece(models["no_prefix"], source="gemma-like")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_piece_against_the_library(models, name, tmp_path):
    (tmp_path / "model").write_bytes(models[name])
    tokenizer = load_tokenizer(tmp_path / "model")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=models[name])
    vocabulary = tokenizer.vocabulary
    assert vocabulary.size == len(theirs)
    assert tokenizer.kind == "sentencepiece-" + VARIANTS[name].get("model_type", "bpe")
    anchor = theirs.piece_to_id("zq")
    for i, token in enumerate(vocabulary.tokens):
        piece = theirs.id_to_piece(i)
        if theirs.is_control(i) or theirs.is_unknown(i) or theirs.is_unused(i) or piece in MARKUP:
            assert token == b""
        elif theirs.is_byte(i):
            assert token == bytes([int(piece[3:5], 16)])
        else:
            assert theirs.decode([anchor, i]) == "zq" + token.decode()
    assert {"<unk>", "<s>", "</s>", "<pad>", "<ctl>", *MARKUP} == set(vocabulary.special)
    assert vocabulary.stop_ids == tuple(sorted((theirs.eos_id(), theirs.piece_to_id("<end_of_turn>"))))
    assert vocabulary.bos_id == theirs.bos_id()


@pytest.mark.parametrize("name", VARIANTS)
def test_decode_against_the_library(models, name):
    tokenizer = load_tokenizer(sentencepiece.SentencePieceProcessor(model_proto=models[name]))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=models[name])
    rng = random.Random(1)
    unknown = theirs.unk_id()
    plain = [i for i in range(len(theirs)) if theirs.id_to_piece(i) not in MARKUP and i != unknown]
    starts = [i for i in plain if theirs.id_to_piece(i) in ("▁", "▁▁", "<s>", "<0x20>")]
    for _ in range(2000):
        ids = [rng.choice(starts if rng.random() < 0.4 else plain) for _ in range(rng.randrange(6))]
        try:
            tokenizer.vocabulary.decode_bytes(ids).decode()
        except UnicodeDecodeError:
            continue  # the library marks each byte of a broken character, Python each character
        parts = [i for i in ids if tokenizer.vocabulary.tokens[i]]
        assert tokenizer.decode(ids) == theirs.decode(parts)


@pytest.mark.parametrize("name", ["bpe", "unigram", "no_prefix", "keep_spaces"])
def test_encode_spells_the_text(models, name):
    tokenizer = load_tokenizer(sentencepiece.SentencePieceProcessor(model_proto=models[name]))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=models[name])
    for text in ["karu mistation", "日本 ü", "x\ty\x00z", "ka<b>lo zq", "emoji 😀 and é", "line\nbreak"]:
        ids = tokenizer.encode(text)
        assert ids == theirs.encode(text)
        assert tokenizer.decode(ids) == text
        prefix = "" if name == "no_prefix" else " "
        assert tokenizer.vocabulary.decode_bytes(ids) == (prefix + text).encode()


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=30))
def test_round_trip(gemma_like, text):
    ids = gemma_like.encode(text)
    assert gemma_like.vocabulary.decode_bytes(ids) == text.encode()
    assert gemma_like.decode(ids) == text


def test_printed_special_names_are_ordinary_text(gemma_like, models):
    special = set(gemma_like.vocabulary.special.values())
    library = sentencepiece.SentencePieceProcessor(model_proto=models["no_prefix"])
    for name in gemma_like.vocabulary.special:
        text = f"ka{name}lo"
        ids = gemma_like.encode(text)
        assert not special & set(ids)
        assert gemma_like.decode(ids) == text
    # Two-sided: the library itself would have matched the markup, and other user-defined pieces still are matched.
    assert library.piece_to_id("<end_of_turn>") in library.encode("ka<end_of_turn>")
    assert library.piece_to_id("<b>") in gemma_like.encode("ka<b>")
    assert gemma_like.vocabulary.tokens[library.piece_to_id("<b>")] == b"<b>"
    assert gemma_like.vocabulary.tokens[library.piece_to_id("\n")] == b"\n"


def test_special_tokens_of_the_caller(models):
    plain = load_sentence_piece(models["no_prefix"], source="m")
    for asked in (["<b>", "<s>"], {"<b>": plain.vocabulary.tokens.index(b"<b>")}):
        tokenizer = load_sentence_piece(models["no_prefix"], source="m", special_tokens=asked)
        special = tokenizer.vocabulary.special["<b>"]
        assert tokenizer.vocabulary.tokens[special] == b""
        assert special not in tokenizer.encode("ka<b>lo")
        assert tokenizer.vocabulary.fingerprint != plain.vocabulary.fingerprint
    with pytest.raises(TokenizerError, match="special_tokens names '<x>', which is no token"):
        load_sentence_piece(models["bpe"], source="m", special_tokens=["<x>"])
    with pytest.raises(TokenizerError, match="special_tokens names '<b>', which has the id"):
        load_sentence_piece(models["bpe"], source="m", special_tokens={"<b>": 0})
    with pytest.raises(TokenizerError, match="'▁ka' is an ordinary piece of the model"):
        load_sentence_piece(models["bpe"], source="m", special_tokens=["▁ka"])


def test_stop_ids_and_logits_width(models):
    tokenizer = load_tokenizer(
        sentencepiece.SentencePieceProcessor(model_proto=models["bpe"]),
        stop_ids=["</s>", "<ctl>"],
        logits_width=512,
    )
    special = tokenizer.vocabulary.special
    assert tokenizer.vocabulary.stop_ids == tuple(sorted((special["</s>"], special["<ctl>"])))
    assert tokenizer.vocabulary.width == 512


def rewritten(data, change):
    """The model after `change` edited its protobuf."""
    proto = protobuf.ModelProto.FromString(data)
    change(proto)
    return proto.SerializeToString()


def test_unused_pieces_and_renamed_end(models):
    def change(proto):
        proto.pieces[-1].type = protobuf.ModelProto.SentencePiece.UNUSED
        proto.trainer_spec.eos_piece = "<ctl>"

    vocabulary = load_sentence_piece(rewritten(models["bpe"], change), source="m").vocabulary
    assert vocabulary.tokens[-1] == b""
    assert vocabulary.special["<ctl>"] in vocabulary.stop_ids


def test_pieces_in_unusual_layout_are_read(models):
    """Long pieces, pieces without a score and unknown fields take the general path."""

    def change(proto):
        proto.pieces.add(piece="y" * 300, score=-1.0)
        proto.pieces.add(piece="w" * 3)
        proto.pieces.add(piece="after", score=-1.0, type=4)

    data = rewritten(models["bpe"], change)
    extra = b"\x0a\x08" + b"\x18\x01" + b"\x0a\x02vv" + b"\x20\x07"  # type before text, then an unknown field
    tokens = load_sentence_piece(data + extra, source="m").vocabulary.tokens
    assert tokens[-4:] == (b"y" * 300, b"www", b"after", b"vv")


def denormalizing(proto):
    proto.denormalizer_spec.precompiled_charsmap = b"abc"


def wrong_byte(proto):
    next(p for p in proto.pieces if p.type == 6).piece = "<0xZZ>"


def twice(proto):
    proto.pieces[-1].piece = proto.pieces[-2].piece


DAMAGE = {
    "denormalizer": (
        denormalizing,
        r"rewrites text after decoding.*\n  m, denormalizer_spec\n  Train or export",
    ),
    "byte piece": (wrong_byte, r"the byte piece '<0xZZ>' does not name a byte\n  m, piece \d+"),
    "twice": (twice, r"the piece '.*' is given twice\n  m, pieces \d+ and \d+"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_refused_models(models, name):
    change, message = DAMAGE[name]
    with pytest.raises(TokenizerError, match=message):
        load_sentence_piece(rewritten(models["bpe"], change), source="m")


RAW = {
    "no pieces": (b"\x12\x00\x1a\x00", "the SentencePiece model has no pieces"),
    "no settings": (b"\x0a\x08\x0a\x01a\x15\x00\x00\x00\x00", "the sections behind the pieces are missing"),
    "bad type": (b"\x0a\x05\x0a\x01a\x18\x09", "piece 0 has the unknown type 9"),
    "not utf-8": (b"\x0a\x08\x0a\x01\xff\x15\x00\x00\x00\x00", "piece 0 is not UTF-8"),
    "not utf-8, other path": (b"\x0a\x03\x0a\x01\xff", "piece 0 is not UTF-8"),
    "wire type": (b"\x0b", "field 1 has wire type 3"),
    "field zero": (b"\x00\x00", "a field ends beyond its message"),
    "long number": (b"\x0a" + b"\xff" * 12, "a number is cut off"),
    "huge length": (b"\x0a\xff\xff\xff\xff\x7f", "a field ends beyond its message"),
    "model type": (
        b"\x0a\x08\x0a\x01a\x15\x00\x00\x00\x00\x12\x02\x18\x09\x1a\x00",
        "the SentencePiece model type 9 is unknown",
    ),
}


@pytest.mark.parametrize("name", RAW)
def test_damaged_bytes(name):
    data, message = RAW[name]
    with pytest.raises(TokenizerError, match=message) as caught:
        load_sentence_piece(data, source="m")
    assert caught.value.where.startswith("m")


def test_truncated_anywhere_is_an_error(models, tmp_path):
    data = models["bpe"]
    settings = data.index(
        b"\x12", data.rindex(b"\x15")
    )  # the trainer's section, behind the last piece's score
    for cut in [*range(1, 60), *range(60, settings, 97), settings]:
        (tmp_path / "cut").write_bytes(data[:cut])
        with pytest.raises(TokenizerError, match=r"damaged or cut off|no tokenizer format") as caught:
            load_tokenizer(tmp_path / "cut")
        assert str(tmp_path / "cut") in caught.value.where


@settings(deadline=None)
@given(st.data())
def test_flipped_bytes_raise_nothing_else(models, data):
    damaged = bytearray(models["bpe"])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TokenizerError):
        load_sentence_piece(bytes(damaged), source="m")


def test_model_that_only_the_library_refuses():
    data = b"\x0a\x08\x0a\x01a\x15\x00\x00\x00\x00\x12\x00\x1a\x00"  # one piece and no unknown piece
    tokenizer = load_sentence_piece(data, source="m")
    assert tokenizer.vocabulary.tokens == (b"a",)
    with pytest.raises(TokenizerError, match="sentencepiece does not accept this model"):
        tokenizer.encode("a")


def test_processor_without_a_model():
    with pytest.raises(TokenizerError, match="the SentencePieceProcessor holds no model"):
        load_tokenizer(sentencepiece.SentencePieceProcessor())
