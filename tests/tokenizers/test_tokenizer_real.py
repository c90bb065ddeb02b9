"""Published tokenizers: every id against the format's own library, texts in many scripts, one vocabulary in two formats."""

from __future__ import annotations

import json
import random
import unicodedata

import pytest
import sentencepiece
import tiktoken
import tokenizers
from tiktoken.load import load_tiktoken_bpe

from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.tokenizers.byte_level import BYTE_TO_CHAR
from fsa_compile.tokenizers.families import LLAMA3_PATTERN

FILES = {
    "llama2": "tokenizer.model",
    "llama3": "tokenizer.model",
    "llama4": "tokenizer.model",
    "qwen": "qwen.tiktoken",
    "gpt2": "encoder.json",
}
RANK_FILES = [name for name in FILES if name not in ("llama2", "gpt2")]

TEXTS = [
    "",
    " ",
    "a",
    "  two  spaces\t\ttabs\n\n\nlines \r\n end ",
    "The quick brown fox can't jump, it's 12345678 metres (or 3.14) — isn't it?",
    "def f(x):\n    return {'a': [1, 2, 3], \"b\": x ** 2}  # done\n",
    "Ünïcödé naïve façade Straße ßẞ İstanbul ſtrange",
    "Привет, мир! Это проверка. Ελληνικά κείμενο.",
    "日本語のテキスト、漢字とカタカナ。中文测试，简体与繁體。한국어 문장입니다.",
    "العربية نص تجريبي ١٢٣ עברית",
    "हिन्दी पाठ ๑๒๓ ภาษาไทย தமிழ் አማርኛ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 😀 🇫🇷 ₿ ∑∫√ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𒀀 𐍈",
    "\x00\x01\x7f\x80\x9f\u00a0\u200b\u2028\ufeff\ufffd\U0010ffff",
    "e\u0301 n\u0303 composed é ñ",
    "<|begin_of_text|><|eot_id|></s><s><unk><|endoftext|><|im_end|><|end_of_text|><|eot|> <0x41>",
    '{"name": "Ada", "tags": ["x", "y"], "n": -1.5e-7, "s": "\\u00e9\\n"}',
]


@pytest.fixture(scope="module")
def folder(data_dir):
    return data_dir / "tokenizers"


@pytest.fixture(scope="module")
def loaded(folder):
    return {name: load_tokenizer(folder / name / file) for name, file in FILES.items()}


def random_texts(rng, tokens, count):
    """Joined vocabulary tokens and random code points: what no natural text holds."""
    for _ in range(count):
        joined = b"".join(rng.choice(tokens) for _ in range(rng.randrange(1, 12)))
        yield joined.decode("utf-8", errors="ignore")
        yield "".join(
            chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])) for _ in range(6)
        )


@pytest.mark.parametrize("name", RANK_FILES)
def test_every_rank_has_the_bytes_that_tiktoken_reads(folder, loaded, name):
    theirs = load_tiktoken_bpe(str(folder / name / FILES[name]))
    ours = loaded[name].vocabulary
    assert {token: i for i, token in enumerate(ours.tokens) if token} == theirs
    assert all(ours.tokens[i] == b"" for i in ours.special.values())
    assert sorted(ours.special.values()) == list(range(len(theirs), ours.size))


@pytest.mark.parametrize("name", RANK_FILES)
def test_every_id_against_tiktokens_own_decoding(loaded, name):
    tokenizer = loaded[name]
    encoding = tokenizer._encoding
    assert encoding.n_vocab == tokenizer.vocabulary.size
    special = {encoding.encode_single_token(token) for token in encoding.special_tokens_set}
    for i, token in enumerate(tokenizer.vocabulary.tokens):
        assert token == (b"" if i in special else encoding.decode_single_token_bytes(i))


def test_every_piece_against_sentencepiece(folder, loaded):
    ours = loaded["llama2"].vocabulary
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / "llama2" / "tokenizer.model"))
    assert ours.size == len(theirs)
    assert (ours.bos_id, ours.stop_ids) == (theirs.bos_id(), (theirs.eos_id(),))
    assert dict(ours.special) == {"<unk>": 0, "<s>": 1, "</s>": 2}
    anchor = theirs.piece_to_id("x")
    for i, token in enumerate(ours.tokens):
        if theirs.is_control(i) or theirs.is_unknown(i):
            assert token == b""
        elif theirs.is_byte(i):
            assert token == bytes([int(theirs.id_to_piece(i)[3:5], 16)])
        else:
            assert token.decode() == theirs.id_to_piece(i).replace("▁", " ")
            assert theirs.decode([anchor, i]) == "x" + token.decode()


def test_every_gpt2_id_against_tokenizers(folder, loaded):
    ours = loaded["gpt2"].vocabulary
    theirs = gpt2_as_hugging_face(folder)
    assert ours.size == theirs.get_vocab_size()
    assert dict(ours.special) == {"<|endoftext|>": 50256}
    for i, token in enumerate(ours.tokens[:-1]):
        assert theirs.decode([i]) == token.decode("utf-8", errors="replace")
    assert ours.tokens[-1] == b""


def reference_encoder(name, folder, tokenizer):
    """Encoding by the format's own library, built from the file without our reader."""
    path = folder / name / FILES[name]
    if name == "llama2":
        return sentencepiece.SentencePieceProcessor(model_file=str(path)).encode
    if name == "gpt2":
        encoder = gpt2_as_hugging_face(folder)
        encoder.encode_special_tokens = True
        return lambda text: encoder.encode(text, add_special_tokens=False).ids
    ranks = load_tiktoken_bpe(str(path))
    bare = tiktoken.Encoding("bare", pat_str=tokenizer._pattern, mergeable_ranks=ranks, special_tokens={})
    return bare.encode_ordinary


@pytest.mark.parametrize("name", FILES)
def test_encode_and_decode(folder, loaded, name):
    tokenizer, rng = loaded[name], random.Random(7)
    encode = reference_encoder(name, folder, tokenizer)
    texts = [*TEXTS, *random_texts(rng, tokenizer.vocabulary.tokens, 150)]
    for text in texts:
        ids = tokenizer.encode(text)
        spelled = unicodedata.normalize("NFC", text) if name == "qwen" else text
        assert ids == encode(spelled)
        assert not set(ids) & set(tokenizer.vocabulary.special.values())
        if name == "llama2":  # U+2581 in a text reads back as a space: the model cannot tell them apart
            spelled = spelled.replace("▁", " ")
        prefix = " " if name == "llama2" and text else ""
        assert tokenizer.vocabulary.decode_bytes(ids) == (prefix + spelled).encode()
        assert tokenizer.decode(ids) == spelled


def test_llama2_decodes_as_sentencepiece(folder, loaded):
    ours = loaded["llama2"]
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / "llama2" / "tokenizer.model"))
    space = theirs.piece_to_id("▁")
    choices, rng = [space, space + 1, 259, 1, 2, 3 + 0x20], random.Random(3)
    for _ in range(3000):
        ids = [rng.choice([*choices, rng.randrange(259, 32000)]) for _ in range(rng.randrange(6))]
        assert ours.decode(ids) == theirs.decode(ids)


EXPECTED = {
    "llama3": (128256, 128000, (128001, 128008, 128009), {"<|eot_id|>": 128009, "<|image|>": 128011}),
    "llama4": (202048, 200000, (200001, 200007, 200008), {"<|patch|>": 200092, "<|image_start|>": 200080}),
    "qwen": (151851, None, (151643, 151645), {"<|im_start|>": 151644, "<|extra_204|>": 151850}),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_families_are_recognised_by_content(folder, loaded, name, tmp_path):
    vocabulary = loaded[name].vocabulary
    size, bos, stops, some = EXPECTED[name]
    assert (vocabulary.size, vocabulary.bos_id, vocabulary.stop_ids) == (size, bos, stops)
    assert some.items() <= dict(vocabulary.special).items()
    # Not by name or place: a copy under another name is the same, one changed byte is another family.
    data = (folder / name / FILES[name]).read_bytes()
    (tmp_path / "x.bin").write_bytes(data)
    assert load_tokenizer(tmp_path / "x.bin").vocabulary == vocabulary
    (tmp_path / "y.bin").write_bytes(data + b"\n")
    assert load_tokenizer(tmp_path / "y.bin").vocabulary.special == {}


@pytest.mark.parametrize("name", FILES)
def test_folder_and_file_give_the_same(folder, loaded, name):
    assert load_tokenizer(str(folder / name)).vocabulary == loaded[name].vocabulary


def test_gpt2_by_its_merges_file(folder, loaded):
    assert load_tokenizer(folder / "gpt2" / "vocab.bpe").vocabulary == loaded["gpt2"].vocabulary


def test_sentencepiece_object(folder, loaded):
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / "llama2" / "tokenizer.model"))
    ours = load_tokenizer(theirs)
    assert ours.vocabulary == loaded["llama2"].vocabulary
    assert ours.kind == "sentencepiece-bpe"
    assert ours.encode(TEXTS[4]) == theirs.encode(TEXTS[4])


def test_tiktoken_object(loaded):
    ours = load_tokenizer(loaded["llama3"]._encoding)
    assert ours.vocabulary == loaded["llama3"].vocabulary
    assert ours.encode(TEXTS[-2]) == loaded["llama3"].encode(TEXTS[-2])


def gpt2_as_hugging_face(folder):
    """GPT-2 as a `tokenizers.Tokenizer`."""
    vocab = json.loads((folder / "gpt2" / "encoder.json").read_text("utf-8"))
    lines = (folder / "gpt2" / "vocab.bpe").read_text("utf-8").split("\n")[1:]
    model = tokenizers.models.BPE(vocab=vocab, merges=[tuple(line.split()) for line in lines if line])
    built = tokenizers.Tokenizer(model)
    built.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = tokenizers.decoders.ByteLevel()
    built.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    built.add_special_tokens(["<|endoftext|>"])
    return built


def test_gpt2_in_four_formats_is_one_vocabulary(folder, loaded, tmp_path):
    built = gpt2_as_hugging_face(folder)
    built.save(str(tmp_path / "gpt2.tok"))
    vocabulary = loaded["gpt2"].vocabulary
    ranks = {token: i for i, token in enumerate(vocabulary.tokens) if token}
    encoding = tiktoken.Encoding(
        "gpt2",
        pat_str=loaded["gpt2"]._pattern,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 50256},
    )
    for other in (built, tmp_path / "gpt2.tok", encoding):
        tokenizer = load_tokenizer(other)
        assert tokenizer.vocabulary.tokens == vocabulary.tokens
        assert tokenizer.vocabulary.fingerprint == vocabulary.fingerprint
        for text in TEXTS:
            ids = loaded["gpt2"].encode(text)
            assert tokenizer.encode(text) == ids
            assert tokenizer.decode(ids) == text


def llama3_as_json(vocabulary):
    """A `tokenizer.json` in the published style: GPT-2's printed bytes, all merges, special tokens added behind."""
    ranks = {token: i for i, token in enumerate(vocabulary.tokens) if token}
    printed = {token: "".join(map(BYTE_TO_CHAR.get, token)) for token in ranks}
    merges = []
    for token in ranks:
        splits = [(token[:k], token[k:]) for k in range(1, len(token))]
        splits = sorted((ranks[a], ranks[b], a, b) for a, b in splits if a in ranks and b in ranks)
        merges += [[printed[a], printed[b]] for _, _, a, b in splits]
    split = {"type": "Split", "pattern": {"Regex": LLAMA3_PATTERN}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": name} | plain for name, i in vocabulary.special.items()]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True}
    model |= {"vocab": {printed[token]: i for token, i in ranks.items()}, "merges": merges}
    return {
        **{"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        **{"post_processor": level, "decoder": level, "model": model},
    }


def test_llama3_as_tokenizer_json_is_the_same_vocabulary(loaded, tmp_path):
    ours = loaded["llama3"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(llama3_as_json(ours.vocabulary)))
    other = load_tokenizer(tmp_path)
    assert other.kind == "huggingface-bpe"
    assert other.vocabulary == ours.vocabulary
    assert other.vocabulary.fingerprint == ours.vocabulary.fingerprint
    for text in [*TEXTS, *random_texts(random.Random(1), ours.vocabulary.tokens, 60)]:
        ids = ours.encode(text)
        assert other.encode(text) == ids
        assert other.decode(ids) == text


def llama2_as_json(path):
    """Llama 2 as the published `tokenizer.json`: Replace, ByteFallback, Fuse, Strip."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [processor.id_to_piece(i) for i in range(len(processor))]
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece in pieces[259:]:
        for k in range(1, len(piece)):
            if piece[:k] in ids and piece[k:] in ids:
                merges.append((ids[piece], ids[piece[:k]], ids[piece[k:]], [piece[:k], piece[k:]]))
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    model |= {"vocab": ids, "merges": [merge for *_, merge in sorted(merges)]}
    return {
        **{"version": "1.0", "truncation": None, "padding": None},
        "added_tokens": [{"id": i, "content": pieces[i]} | plain for i in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]},
        **{"pre_tokenizer": None, "post_processor": None},
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": model,
    }


def test_llama2_as_tokenizer_json_is_the_same_vocabulary(folder, loaded, tmp_path):
    ours = loaded["llama2"]
    (tmp_path / "llama2.json").write_text(json.dumps(llama2_as_json(folder / "llama2" / "tokenizer.model")))
    other = load_tokenizer(tmp_path / "llama2.json")
    assert other.vocabulary.tokens == ours.vocabulary.tokens
    assert other.vocabulary.fingerprint == ours.vocabulary.fingerprint
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "llama2.json"))
    rng = random.Random(5)
    for text in TEXTS:
        assert other.decode(ours.encode(text)) == text
        if "<" not in text:
            assert other.encode(text) == theirs.encode(text, add_special_tokens=False).ids
    for _ in range(2000):
        ids = [rng.choice([29871, 259, 0x23, rng.randrange(259, 32000)]) for _ in range(rng.randrange(6))]
        assert other.decode(ids) == theirs.decode(ids)
