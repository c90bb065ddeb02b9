"""Hugging Face tokenizers trained here: every decoder with exact bytes, added tokens, refusals."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import types

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.tokenizers.decoders import Decoder, read_decoder
from fsa_compile.tokenizers.hugging_face import load_hugging_face

SPECIAL = ["<unk>", "<s>", "</s>"]


def lines():
    rng = random.Random(0)
    syllables = ["ka", "lo", "mi", "ne", "ru", "sta", "tion", "ü", "è", "日", "本", "😀"]
    words = ["".join(rng.choices(syllables, k=rng.randrange(1, 4))) for _ in range(200)]
    return [" ".join(rng.choices(words, k=8)) for _ in range(200)]


def byte_level():
    """As GPT-2, Llama 3 and Qwen."""
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    built.train_from_iterator(lines(), trainer)
    built.add_tokens(["<think>", AddedToken("   ", normalized=False), "Āx", "ü y"])
    built.add_special_tokens(["<|im_end|>"])
    return built


def metaspace(scheme="first"):
    """As older SentencePiece conversions."""
    built = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    built.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    built.train_from_iterator(lines(), trainer)
    return built


def byte_fallback(prefix):
    """As Llama 2 (with a prefix) and Gemma (without): Replace, ByteFallback, Fuse, and Strip."""
    pieces = [
        *SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "ab",
        "▁a",
        "▁ab",
        "é",
        "▁▁",
    ]
    merges = [("a", "b"), ("▁", "a"), ("▁", "ab"), ("▁", "▁")]
    model = models.BPE(
        vocab={p: i for i, p in enumerate(pieces)}, merges=merges, unk_token="<unk>", byte_fallback=True
    )
    built = tokenizers.Tokenizer(model)
    space = normalizers.Replace(" ", "▁")
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if prefix else space
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    built.add_special_tokens(SPECIAL)
    names = ["<start_of_turn>", "<end_of_turn>", "<b>"]
    built.add_tokens([AddedToken(name, normalized=not prefix) for name in names])
    return built


def unigram():
    pieces = [
        *SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "ab",
        "▁ab",
        "<",
        "s",
        ">",
    ]
    model = models.Unigram([(p, -float(i) / 10) for i, p in enumerate(pieces)], unk_id=0, byte_fallback=True)
    built = tokenizers.Tokenizer(model)
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence(steps)
    built.add_special_tokens(SPECIAL)
    return built


BUILDERS = {
    "byte_level": byte_level,
    "metaspace": metaspace,
    "metaspace_never": lambda: metaspace("never"),
    "llama2_like": lambda: byte_fallback(True),
    "gemma_like": lambda: byte_fallback(False),
    "unigram": unigram,
}
ANCHORS = {"byte_level": "k", "metaspace": "k", "metaspace_never": "k"}


@pytest.fixture(scope="module")
def built():
    return {name: build() for name, build in BUILDERS.items()}


@pytest.fixture(scope="module")
def loaded(built):
    return {name: load_tokenizer(one) for name, one in built.items()}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_id_against_the_librarys_decoding(built, loaded, name):
    theirs, vocabulary = built[name], loaded[name].vocabulary
    assert vocabulary.size == theirs.get_vocab_size()
    never = {t.content for t in theirs.get_added_tokens_decoder().values() if t.special}
    never |= {"<start_of_turn>", "<end_of_turn>"}
    anchor = theirs.token_to_id(ANCHORS.get(name, "b"))
    before = theirs.decode([anchor])
    for i, token in enumerate(vocabulary.tokens):
        if theirs.id_to_token(i) in never:
            assert token == b""
            assert theirs.id_to_token(i) in vocabulary.special
        else:
            assert theirs.decode([anchor, i]) == before + token.decode("utf-8", errors="replace")


@pytest.mark.parametrize("name", BUILDERS)
def test_decode_against_the_library(built, loaded, name):
    theirs, ours = built[name], loaded[name]
    rng = random.Random(2)
    ids = [i for i, token in enumerate(ours.vocabulary.tokens) if token]
    spaced = [i for i in ids if ours.vocabulary.tokens[i].startswith(b" ")]
    for _ in range(2000):
        some = [rng.choice(spaced if rng.random() < 0.4 else ids) for _ in range(rng.randrange(6))]
        if "\ufffd" not in (text := theirs.decode(some)):
            assert ours.decode(some) == text
            assert ours.decode([1, *some]) == text


@pytest.mark.parametrize("name", BUILDERS)
def test_encode_against_the_library(built, loaded, name):
    for text in ["", "ka lo", " kalo mistation", "日本 ü", "ab  ab é", "ab<b>a", "a<think>   b"]:
        ids = loaded[name].encode(text)
        assert ids == built[name].encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", BUILDERS)
def test_printed_special_names_are_ordinary_text(built, loaded, name):
    ours = loaded[name]
    for special, token_id in ours.vocabulary.special.items():
        ids = ours.encode(f"a{special}b")
        assert token_id not in ids or special == "<unk>"
        if name not in ("metaspace", "metaspace_never"):  # those have no "<": the unknown token stands for it
            assert not set(ids) & set(ours.vocabulary.special.values())
            assert ours.decode(ids) == f"a{special}b"
        assert token_id in built[name].encode(f"a{special}b").ids  # the library would match it


@pytest.mark.parametrize("name", ["byte_level", "llama2_like", "gemma_like", "unigram"])
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁Ā"), max_size=20))
def test_round_trip(loaded, name, text):
    ours = loaded[name]
    ids = ours.encode(text)
    assert ours.decode(ids) == text
    prefix = b" " if name == "llama2_like" and text else b""
    assert ours.vocabulary.decode_bytes(ids) == prefix + text.encode()


def test_added_tokens(loaded):
    vocabulary = loaded["byte_level"].vocabulary
    for text in (b"<think>", b"   ", "ü y".encode()):
        assert text in vocabulary.tokens
    # The decoder reads an added name as printed bytes where it can, as the library does: Ā prints byte 0.
    assert b"\x00x" in vocabulary.tokens
    assert vocabulary.stop_ids == tuple(
        sorted((vocabulary.special["</s>"], vocabulary.special["<|im_end|>"]))
    )
    gemma = loaded["gemma_like"].vocabulary
    assert gemma.stop_ids == (gemma.special["</s>"], gemma.special["<end_of_turn>"])
    assert b"<b>" in gemma.tokens
    assert gemma.bos_id == gemma.special["<s>"]


def test_added_tokens_whose_text_depends_on_the_version(built):
    """With a normalizer that prepends a space, versions of the package disagree about what such a token writes."""
    theirs = tokenizers.Tokenizer.from_str(built["llama2_like"].to_str())
    theirs.add_tokens(["<c>", AddedToken("<d>", normalized=False)])
    ours = load_tokenizer(theirs)
    assert ours.vocabulary.tokens[ours.vocabulary.special["<c>"]] == b""
    assert b"<d>" in ours.vocabulary.tokens
    assert ours.decode(ours.encode("a<c><d>")) == "a<c><d>"


def test_the_object_is_not_changed_nor_seen_again(built):
    theirs = tokenizers.Tokenizer.from_str(built["gemma_like"].to_str())
    before = theirs.to_str()
    ours = load_tokenizer(theirs)
    ours.encode("ab")
    assert theirs.to_str() == before
    theirs.add_tokens(["new"])
    assert ours.vocabulary.size == theirs.get_vocab_size() - 1


def test_file_folder_and_object_are_the_same(built, loaded, tmp_path):
    for name, one in built.items():
        (tmp_path / name).mkdir()
        one.save(str(tmp_path / name / "any.name"))
        (tmp_path / name / "README.md").write_text("# A model\n")
        (tmp_path / name / "other.json").write_text("{broken")
        assert load_tokenizer(tmp_path / name / "any.name").vocabulary == loaded[name].vocabulary
        assert load_tokenizer(tmp_path / name).vocabulary == loaded[name].vocabulary


def test_settings_beside_the_file(built, tmp_path):
    built["byte_level"].save(str(tmp_path / "tokenizer.json"))
    plain = load_tokenizer(tmp_path / "tokenizer.json").vocabulary
    think, kind = plain.tokens.index(b"<think>"), plain.tokens.index(b"   ")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [think, 99_999, "x"]}))
    config = {"eos_token": {"content": "   "}, "bos_token": "<|im_end|>", "added_tokens_decoder": {}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    vocabulary = load_tokenizer(tmp_path).vocabulary
    assert set(vocabulary.stop_ids) == {think, kind, *plain.stop_ids}
    assert vocabulary.bos_id == plain.special["<|im_end|>"]
    assert vocabulary.tokens[think] == vocabulary.tokens[kind] == b""
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}))
    assert 1 in load_tokenizer(tmp_path).vocabulary.stop_ids


def test_transformers_objects_by_their_backend(built, loaded):
    backend = built["byte_level"]
    fast = types.SimpleNamespace(backend_tokenizer=backend, eos_token_id=2, bos_token_id=None)
    assert load_tokenizer(fast).vocabulary == loaded["byte_level"].vocabulary
    think = backend.token_to_id("<think>")
    fast = types.SimpleNamespace(backend_tokenizer=backend, eos_token_id=[2, think], bos_token_id=0)
    vocabulary = load_tokenizer(fast, logits_width=1024).vocabulary
    assert think in vocabulary.stop_ids
    assert vocabulary.tokens[think] == b""
    assert vocabulary.bos_id == 0
    assert vocabulary.width == 1024


def test_wrappers_of_the_package(tmp_path):
    wrapper = tokenizers.ByteLevelBPETokenizer()
    wrapper.train_from_iterator(lines(), vocab_size=300, show_progress=False)
    assert load_tokenizer(wrapper).decode(load_tokenizer(wrapper).encode("kalo")) == "kalo"


def test_special_tokens_and_stop_ids_of_the_caller(built):
    tokenizer = load_tokenizer(built["gemma_like"], special_tokens=["<b>", "▁a"], stop_ids=["<b>", 1])
    special = tokenizer.vocabulary.special
    assert tokenizer.vocabulary.stop_ids == (1, special["<b>"])
    assert tokenizer.vocabulary.tokens[special["▁a"]] == b""
    assert not {special["<b>"], special["▁a"]} & set(tokenizer.encode("b a a<b>"))
    assert tokenizer.decode(tokenizer.encode("b a a<b>")) == "b a a<b>"
    with pytest.raises(TokenizerError, match="special_tokens names '<x>', which is no token"):
        load_tokenizer(built["gemma_like"], special_tokens=["<x>"])
    with pytest.raises(TokenizerError, match="special_tokens names '<b>', which has the id 269"):
        load_tokenizer(built["gemma_like"], special_tokens={"<b>": 1})
    with pytest.raises(
        TokenizerError, match="stop_ids names '<x>', which is not a special token\n  Special tokens"
    ):
        load_tokenizer(built["gemma_like"], stop_ids=["<x>"])
    with pytest.raises(TokenizerError, match="stop id 262 writes the text b'ab'"):
        load_tokenizer(built["gemma_like"], stop_ids=[262])


def test_files_of_early_versions(built, loaded):
    spec = json.loads(built["metaspace"].to_str())
    del spec["model"]["type"], spec["decoder"]["prepend_scheme"]
    spec["decoder"]["add_prefix_space"] = True
    spec["model"]["merges"] = [" ".join(merge) for merge in spec["model"]["merges"]]
    ours = load_hugging_face(spec, source="old")
    assert ours.vocabulary == loaded["metaspace"].vocabulary
    spec["model"]["type"] = "BPE"
    spec["decoder"]["prepend_scheme"] = "first"
    assert load_hugging_face(spec, source="old").encode("kalo ru") == loaded["metaspace"].encode("kalo ru")
    spec = json.loads(built["unigram"].to_str())
    del spec["model"]["type"]
    assert load_hugging_face(spec, source="old").vocabulary == loaded["unigram"].vocabulary


REFUSED = {
    "none": (None, r'no decoder, so it joins tokens with spaces.*\n  f, "decoder"\n  Export'),
    "no object": (["Fuse"], "a decoder is not an object"),
    "word piece": ({"type": "WordPiece", "prefix": "##"}, "'WordPiece' .* puts a space before a word"),
    "bpe": ({"type": "BPEDecoder", "suffix": "</w>"}, "'BPEDecoder' .* puts a space after a word"),
    "ctc": ({"type": "CTC"}, "'CTC' .* merges repeated tokens"),
    "unknown": ({"type": "New"}, "'New' .* this version does not know it"),
    "no list": ({"type": "Sequence", "decoders": 1}, "a decoder sequence has no list of steps"),
    "regex": (
        {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}]},
        r"'Replace' .* replaces a regular expression.*\n  f, \"decoder\" step 0\n  Use the model's",
    ),
    "late replace": (
        {
            "type": "Sequence",
            "decoders": [
                {"type": "ByteFallback"},
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            ],
        },
        r"'Replace' .* rewrite what byte tokens spell together\n.*step 1",
    ),
    "late metaspace": (
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace"}]},
        "'Metaspace' .* rewrite what byte tokens",
    ),
    "metaspace mark": ({"type": "Metaspace", "replacement": "__"}, "its replacement is not one character"),
    "after fuse": (
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]},
        "behind a step that has joined the tokens",
    ),
    "late byte level": (
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "ByteLevel"}]},
        "behind a step that has rewritten the names",
    ),
    "strip end": (
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "stop": 1}]},
        "'Strip' .* removes more than one space",
    ),
    "strip each": ({"type": "Strip", "content": " ", "start": 1, "stop": 0}, "removes more than one space"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_decoders_without_exact_bytes(name):
    spec, message = REFUSED[name]
    with pytest.raises(TokenizerError, match=message):
        read_decoder(spec, "f")


def test_decoder_that_strips_nothing():
    strip = {"type": "Strip", "content": " ", "start": 0, "stop": 0}
    assert read_decoder({"type": "Sequence", "decoders": [strip, {"type": "Fuse"}]}, "f") == Decoder()


def broken(spec, path, value):
    """A copy of the parsed file with one entry replaced (or removed, for a value of `del`)."""
    spec = copy.deepcopy(spec)
    *parents, last = path
    place = spec
    for key in parents:
        place = place[key]
    if value == "del":
        del place[last]
    else:
        place[last] = value
    return spec


BROKEN = {
    "no model": (["model"], "del", 'the JSON file has no "model"'),
    "model": (["model"], [], 'has no "model"'),
    "model type": (
        ["model", "type"],
        "Ngram",
        "the model type 'Ngram' is unknown\n.*\n  Known types are BPE",
    ),
    "vocab": (["model", "vocab"], [], "the vocabulary is not a mapping"),
    "no vocab": (["model", "vocab"], {}, "the vocabulary is not a mapping"),
    "id type": (["model", "vocab", "ab"], "7", "the token 'ab' has the id '7'"),
    "id negative": (["model", "vocab", "ab"], -1, "the token 'ab' has the id -1"),
    "id huge": (["model", "vocab", "ab"], 10**12, "the token 'ab' has the id 1000000000000"),
    "id twice": (["model", "vocab", "ab"], 5, "the tokens '.*' and '.*' have the same id 5"),
    "surrogate": (["model", "vocab", "\ud800"], 300, "holds a lone surrogate"),
    "added": (["added_tokens"], {"a": 1}, "the added tokens are not a list"),
    "added entry": (
        ["added_tokens", 0],
        "x",
        'has the id None and the content None\n  f, "added_tokens" entry 0',
    ),
    "added id": (["added_tokens", 0, "id"], 10**12, "an added token has the id 1000000000000"),
    "decoder": (["decoder"], None, "no decoder"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(built, name):
    path, value, message = BROKEN[name]
    with pytest.raises(TokenizerError, match=message):
        load_hugging_face(broken(json.loads(built["gemma_like"].to_str()), path, value), source="f")


@pytest.mark.parametrize(
    ("vocab", "message"), [({}, "not a list"), ([], "not a list"), ([["a", 0], 3], "entry 1")]
)
def test_broken_unigram(built, vocab, message):
    with pytest.raises(TokenizerError, match=message):
        load_hugging_face(
            broken(json.loads(built["unigram"].to_str()), ["model", "vocab"], vocab), source="f"
        )


def test_ids_without_a_name_are_padding(built):
    spec = broken(json.loads(built["gemma_like"].to_str()), ["model", "vocab", "zz"], 290)
    vocabulary = load_hugging_face(spec, source="f").vocabulary
    assert vocabulary.size == 291
    assert vocabulary.tokens[290] == b"zz"
    assert set(vocabulary.tokens[275:290]) == {b""}


def test_what_only_the_library_refuses(built):
    spec = broken(json.loads(built["llama2_like"].to_str()), ["normalizer"], {"type": "Unknown"})
    tokenizer = load_hugging_face(spec, source="f")
    with pytest.raises(TokenizerError, match=r"tokenizers does not accept this tokenizer\.json"):
        tokenizer.encode("ab")
    spec = broken(json.loads(built["gemma_like"].to_str()), ["normalizer"], {"type": "Unknown"})
    with pytest.raises(TokenizerError, match="tokenizers does not accept this normalizer"):
        load_hugging_face(spec, source="f")
    spec = broken(json.loads(built["gemma_like"].to_str()), ["added_tokens", -1, "id"], 400)
    with pytest.raises(TokenizerError, match="does not give the added token '<b>' the id 400"):
        load_hugging_face(spec, source="f").encode("ab")


def test_encoding_that_the_library_refuses():
    built = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="?"))
    built.decoder = decoders.Fuse()
    tokenizer = load_tokenizer(built)
    assert tokenizer.vocabulary.tokens == (b"a", b"b")
    with pytest.raises(TokenizerError, match="tokenizers cannot encode this text"):
        tokenizer.encode("c")


def test_models_whose_decoder_is_not_exact():
    built = tokenizers.Tokenizer(models.WordPiece({"a": 0, "##b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    with pytest.raises(TokenizerError, match="no decoder"):
        load_tokenizer(built)
    built.decoder = decoders.WordPiece()
    with pytest.raises(
        TokenizerError, match="'WordPiece' a token has no exact bytes: it puts a space before"
    ):
        load_tokenizer(built)


def test_components_written_in_python(built):
    class Splitter:
        def pre_tokenize(self, text):
            return text

    theirs = tokenizers.Tokenizer.from_str(built["gemma_like"].to_str())
    theirs.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Splitter())
    with pytest.raises(TokenizerError, match="cannot be written as JSON"):
        load_tokenizer(theirs)


@pytest.mark.parametrize("text", ["a\ud800b", b"ab", None])
def test_wrong_text(loaded, text):
    message = r"the lone surrogate U\+D800.*\n  character 1\n" if isinstance(text, str) else "not str"
    with pytest.raises(TokenizerError, match=message):
        loaded["byte_level"].encode(text)


ODD = [None, True, -1, 3, 1e9, "", "x", "<unk>", [], [1], ["a", "b"], {}, {"type": "BPE"}, [["a"]]]


@pytest.mark.parametrize("name", BUILDERS)
def test_any_entry_may_be_odd(built, tmp_path, name):
    """Whatever stands anywhere in the files, there is a tokenizer or one error."""
    rng = random.Random(name)
    text, loaded = built[name].to_str(), 0
    for _ in range(150):
        spec = json.loads(text)
        for _ in range(rng.choice([1, 1, 2])):
            place = spec
            while True:
                key = rng.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
                if not isinstance(place[key], (dict, list)) or not place[key] or rng.random() < 0.4:
                    break
                place = place[key]
            place[key] = copy.deepcopy(rng.choice(ODD))
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
        config = {"eos_token": rng.choice([*ODD, *[None] * 9]), "bos_token": "<s>"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": rng.choice(ODD)}))
        with contextlib.suppress(TokenizerError):
            tokenizer = load_tokenizer(tmp_path)
            tokenizer.decode(tokenizer.encode("kalo a<s>b"))
            loaded += 1
    assert 10 < loaded < 150


@pytest.mark.parametrize("merges", [None, 5, "a b", {}, [5], [None], [""], ["ab"], ["a b c"], [["a", 5]], [["a"]], [1.5], ["a b", {}]])
def test_merges_that_are_no_pairs(built, merges):
    spec = json.loads(built["gemma_like"].to_str())
    spec["model"]["merges"] = merges
    with pytest.raises(TokenizerError, match=r"the merges are|no pair of names"):
        load_hugging_face(spec, source="f")


@pytest.mark.parametrize("merges", [["a b"], [["a", "b"]], [["a", ""]]])
def test_merges_that_would_end_the_process(built, merges):
    """The package cuts the prefix off blindly and aborts, so such a file must not reach it."""
    spec = json.loads(built["gemma_like"].to_str())
    spec["model"] |= {"continuing_subword_prefix": "##", "merges": merges}
    with pytest.raises(
        TokenizerError, match=r"does not begin with the continuing_subword_prefix '##'\n.* entry 1"
    ):
        load_hugging_face(spec, source="f").encode("ab")
