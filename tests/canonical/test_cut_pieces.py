"""Pieces that SentencePiece cuts out of a text before merging, as Gemma's runs of spaces and line breaks, and its tags."""

from __future__ import annotations

import io
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.library_encoders import segmentations, texts

import jax_decode
from fsa_compile import CanonicalWalk, compile_regex, heal
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, canonical_tables
from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers import Tokenizer, load_tokenizer
from fsa_compile.tokenizers.sentence_piece import SentencePieceTokenizer, load_sentence_piece
from tests.canonical.test_device_canonical import follow
from tests.canonical.test_lazy_product import both, same_masks
from tests.canonical.test_restrict import texts_of, walked

GEMMA = [
    *("▁" * n for n in range(2, 32)), *("\n" * n for n in range(2, 32)), *("\t" * n for n in range(1, 32)),
    *(f"<{end}{tag}>" for tag in ("table", "caption", "thead", "tr", "th", "td", "h1", "ul", "li") for end in ("", "/")),
    "<a", "<ab>", "ßx", "日本語", "<unused0>", "<start_of_turn>", "<end_of_turn>",
]  # fmt: skip
PARTS = [
    "<", ">", "</", "table", "t", "d", "h", "1", " ", "  ", "   ", "\n", "\n\n", "\t", "a", "b", "ab", "x", "ß", "日", "本", "語", "é", "🙂",
    "ka", "lo", "<a", "<ab>", "<table>", "</td>", "<unused0>", "\x00", "ü", ".",
]  # fmt: skip


def trained(parts: list[str], pieces: list[str], size: int, seed: int, **changes: Any) -> Tokenizer:
    """A small tokenizer with byte fallback that was trained on random words of some parts."""
    sentencepiece = pytest.importorskip("sentencepiece")
    rng = random.Random(seed)
    words = ["".join(rng.choices(parts, k=rng.randrange(1, 5))) for _ in range(300)]
    lines = [" ".join(rng.choices(words, k=8)).replace("\x00", "").replace("\n", "") for _ in range(500)]
    model = io.BytesIO()
    options = {"model_type": "bpe", "vocab_size": size, "byte_fallback": True, "character_coverage": 0.995, "minloglevel": 9}
    options |= {"normalization_rule_name": "identity", "num_threads": 1, "hard_vocab_limit": False, "add_dummy_prefix": False}
    options |= {"remove_extra_whitespaces": False, "user_defined_symbols": pieces}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **(options | changes))
    return load_sentence_piece(model.getvalue(), source="trained")


def ids_of(tokenizer: Tokenizer) -> dict[bytes, list[int]]:
    ids: dict[bytes, list[int]] = {}
    for i, token in enumerate(tokenizer.vocabulary.tokens):
        if token:
            ids.setdefault(token, []).append(i)
    return ids


@pytest.fixture(scope="module")
def gemma_like() -> tuple[Tokenizer, CanonicalTables]:
    tokenizer = trained(PARTS, GEMMA, 1300, 0)
    return tokenizer, canonical_tables(tokenizer)


@pytest.mark.exhaustive
def test_all_segmentations_of_texts(gemma_like: tuple[Tokenizer, CanonicalTables], exhaustive: bool) -> None:
    """Of all ways to spell a text, exactly the encoder's own is accepted."""
    tokenizer, tables = gemma_like
    ids, rng, cut = ids_of(tokenizer), random.Random(1), set(tables.cut_pieces.tolist())
    held = 0
    for _ in range(20_000 if exhaustive else 600):
        text = "".join(rng.choices(PARTS, k=rng.randrange(1, 8)))
        want = tuple(tokenizer.encode(text))
        assert segmentations(tables.filter, text.encode(), ids, 512) == [want], text
        held += not cut.isdisjoint(want)
    assert held > 200


@pytest.mark.exhaustive
def test_random_pieces(exhaustive: bool) -> None:
    """Small alphabets, pieces that begin with, hold and overlap one another, of one character and of several: all short texts."""
    for seed in range(200 if exhaustive else 8):
        rng = random.Random(seed)
        pieces = {"".join(rng.choices("ab▁c", k=rng.randrange(1, 5))) for _ in range(rng.randrange(1, 5))}
        tokenizer = trained(["a", "b", "c", "ab", "ba", "aab", "bc"], sorted(pieces), 300, seed)
        tables, ids = canonical_tables(tokenizer), ids_of(tokenizer)
        for length in range(1, 7 if exhaustive else 6):
            for letters in itertools.product("ab c", repeat=length):
                text = "".join(letters)
                assert segmentations(tables.filter, text.encode(), ids, 16) == [tuple(tokenizer.encode(text))], (pieces, text)


BOUNDED = (
    " {1,5}x?", r"\n{1,4} {0,3}a?", r"(a| |<|t|d|>|</){1,4}", r"</?t(d|h|able)>(\n| ){0,3}", r"[\t\n ]{1,4}", "(日|本|語){1,4}", "ß?x?ß?x",
    r"<unused0>|<table|<ab?>?", r"\{\n  \"a\": [0-9],\n  \"b\": (true|null)\n\}",
)  # fmt: skip


def test_bounded_languages(gemma_like: tuple[Tokenizer, CanonicalTables]) -> None:
    tokenizer, tables = gemma_like
    for pattern in BOUNDED:
        language = texts_of(compile_regex(pattern, tokenizer), tokenizer.vocabulary.tokens)
        constraint = compile_regex(pattern, tokenizer, canonical=True)
        want = {tuple(tokenizer.encode(text.decode())) for text in language}
        assert set(walked(CanonicalWalk(constraint, tables), 40)) == want, pattern
        assert constraint.shortest_completion == min(map(len, want))


def test_both_forms() -> None:
    """Followed beside the filter, and multiplied with it."""
    tokenizer = trained(["a", "b", "c", "ab", "ba", "aab", "bc"], ["▁▁", "ab", "abc", "<b>", "<b", "\n\n"], 300, 1)
    tables, rng = canonical_tables(tokenizer), random.Random(5)
    for pattern in (r"[abc \n]{0,4}", r"[ -~]*", r"(<b>?|\n| |c){2,}", "(ab|c)*"):
        one, other = both(pattern, tokenizer.vocabulary, tables, [])
        assert one is not None
        assert same_masks(one, other, tables, rng, 12) > 12


def test_tables_from_disk(gemma_like: tuple[Tokenizer, CanonicalTables], tmp_path: Path) -> None:
    """States are numbered as they were."""
    tokenizer, tables = gemma_like
    tables.save(tmp_path / "tables.npz")
    again = CanonicalTables.load(tmp_path / "tables.npz", tokenizer)
    assert again.identity == tables.identity
    rng = random.Random(2)
    for _ in range(300):
        state = last = other = 0
        for token in tokenizer.encode("".join(rng.choices(PARTS, k=5))):
            state, other = tables.filter.step(state, last, token), again.filter.step(other, last, token)
            assert state == other >= 0
            last = token


def test_on_the_device(gemma_like: tuple[Tokenizer, CanonicalTables]) -> None:
    tokenizer, tables = gemma_like
    constraints = [compile_regex(pattern, tokenizer, canonical=True) for pattern in (*[r"[ -~\n]{20,}"] * 3, *BOUNDED[:4])]
    device = jax_decode.to_device(constraints, canonical=tables)
    assert follow(constraints, tables, device, 12, random.Random(3)) > 30


def test_behind_a_prompt(gemma_like: tuple[Tokenizer, CanonicalTables]) -> None:
    """A space in front of spaces would be one piece with them; healing takes the prompt's own spaces back."""
    tokenizer, tables = gemma_like
    prompt = tokenizer.encode("ka  ")
    walk = CanonicalWalk(compile_regex(r" {1,3}lo|lo", tokenizer, canonical=prompt), tables)
    assert tokenizer.vocabulary.decode_bytes(walk.shortest()) == b"lo"
    assert not walk.allowed()[tokenizer.encode(" ")[0]]
    healed = heal(prompt, compile_regex(r" {1,3}lo", tokenizer), tokenizer, canonical=True)
    found = CanonicalWalk(healed.constraint, tables).shortest()
    whole = [*healed.prompt, *found]
    assert whole == tokenizer.encode(tokenizer.decode(whole))
    assert tokenizer.decode(whole).startswith("ka   ")


def test_pieces_with_raw_spaces_are_refused() -> None:
    with pytest.raises(TokenizerError, match="matched before spaces are rewritten"):
        canonical_tables(trained(["a", "b"], ["a b"], 280, 0))


def test_unusual_pieces_never_stand(gemma_like: tuple[Tokenizer, CanonicalTables]) -> None:
    """Markup writes no text; a piece cut in two is not the encoder's."""
    tokenizer, tables = gemma_like
    for name in ("<start_of_turn>", "<end_of_turn>"):
        assert not tables.is_canonical([tokenizer.vocabulary.special[name]])
    apart = [token for part in ("<", "table", ">") for token in tokenizer.encode(part)]
    assert not tables.is_canonical(apart)
    assert tables.is_canonical(tokenizer.encode("<table>"))
    assert len(tokenizer.encode("<table>")) == 1
    assert np.isin(tokenizer.encode("<table>"), tables.cut_pieces).all()


def as_hugging_face(tokenizer: Tokenizer, added: list[str], **changes: Any) -> Tokenizer:
    """The same pieces in the form of a `tokenizer.json` as transformers converts them, with some that are cut out of a text."""
    tokenizers = pytest.importorskip("tokenizers")
    assert isinstance(tokenizer, SentencePieceTokenizer)
    model, scores = tokenizer.model
    ids = {piece: i for i, piece in enumerate(model.pieces)}
    merges = []
    for piece in model.pieces:
        for at in range(1, len(piece)):
            if piece[:at] in ids and piece[at:] in ids and not piece.startswith("<0x"):
                merges.append((-scores[ids[piece]], len(merges), piece[:at], piece[at:]))
    pairs = [(left, right) for _, _, left, right in sorted(merges)]
    bpe = tokenizers.models.BPE(ids, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    made = tokenizers.Tokenizer(bpe)
    replace, decoders = tokenizers.normalizers.Replace(" ", "▁"), tokenizers.decoders
    made.normalizer = changes.get("normalizer", replace)
    made.pre_tokenizer = changes.get("pre_tokenizer", tokenizers.pre_tokenizers.Split(" ", "merged_with_previous"))
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.add_tokens([tokenizers.AddedToken(piece, normalized=changes.get("normalized", False)) for piece in added])
    return load_tokenizer(made)


def test_tokenizer_json(gemma_like: tuple[Tokenizer, CanonicalTables]) -> None:
    """Runs of spaces are merged there, and line breaks and tags cut out of a text."""
    added = [piece for piece in GEMMA if "_of_turn" not in piece]
    tokenizer = as_hugging_face(gemma_like[0], added)
    tables, ids, rng = canonical_tables(tokenizer), ids_of(tokenizer), random.Random(4)
    held = 0
    for _ in range(600):
        text = "".join(rng.choices(PARTS, k=rng.randrange(1, 8)))
        want = tuple(tokenizer.encode(text))
        assert segmentations(tables.filter, text.encode(), ids, 512) == [want], text
        held += not set(tables.cut_pieces.tolist()).isdisjoint(want)
    assert held > 150
    for pattern in BOUNDED[::2]:
        language = texts_of(compile_regex(pattern, tokenizer), tokenizer.vocabulary.tokens)
        constraint = compile_regex(pattern, tokenizer, canonical=True)
        want_all = {tuple(tokenizer.encode(text.decode())) for text in language}
        assert set(walked(CanonicalWalk(constraint, tables), 40)) == want_all


def test_llama_as_tokenizer_json(data_dir: Path, documents: list[str]) -> None:
    """Llama 2 in the form that transformers reads, which puts a space in front of a text; behind a prompt it does not."""
    tokenizers = pytest.importorskip("tokenizers")
    original = load_tokenizer(data_dir / "tokenizers" / "llama2")
    normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    tables = canonical_tables(as_hugging_face(original, [], normalizer=normalizer, pre_tokenizer=None))
    library = as_hugging_face(original, [])
    ids = ids_of(library)
    for _, text in texts(np.random.default_rng(6), 250, library.vocabulary.tokens, documents):
        if "▁" not in text:  # the encoder reads it as a space
            assert segmentations(tables.filter, text.encode(), ids, 512) == [tuple(library.encode(text))], text


def test_refused_tokenizer_json(gemma_like: tuple[Tokenizer, CanonicalTables]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    prepended = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    for added, changes, message in (
        (["\n\n"], {"normalizer": prepended}, "a space is put behind"),
        ([], {"normalizer": tokenizers.normalizers.Lowercase()}, "normalizer"),
        ([], {"pre_tokenizer": tokenizers.pre_tokenizers.Whitespace()}, "pre-tokenizer"),
        (["a b"], {}, "holds a space"),
    ):
        with pytest.raises(TokenizerError, match=message):
            canonical_tables(as_hugging_face(gemma_like[0], added, **changes))
