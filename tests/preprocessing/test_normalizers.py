"""Normalizers on texts and languages against the libraries, `tokenizers` and `sentencepiece`."""

from __future__ import annotations

import itertools
import json
import random
import re

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from fsa_compile import choices, load_tokenizer, preprocessing, regex
from fsa_compile.errors import ConstraintError, TokenizerError
from fsa_compile.preprocessing.normalizers import _finite_texts, normalizer_of_spec

STEPS = {
    "lowercase": normalizers.Lowercase(),
    "accents": normalizers.StripAccents(),
    "nfd": normalizers.NFD(),
    "nfkd": normalizers.NFKD(),
    "nfc": normalizers.NFC(),
    "nfkc": normalizers.NFKC(),
    "strip": normalizers.Strip(),
    "left": normalizers.Strip(left=True, right=False),
    "right": normalizers.Strip(left=False, right=True),
    "replace": normalizers.Replace("aba", "x"),
    "delete": normalizers.Replace("ab", ""),
    "grow": normalizers.Replace("b", "é€"),
    "prepend": normalizers.Prepend("é"),
    "chain": normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace("a", "o")]
    ),
}
ALPHABETS = {
    "letters": "abé A",
    "forms": "ﬁÅ각a\u0301 ",
    "scripts": "Жא日\u3000İß",
}


def spec_of(step) -> dict:
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = step
    return json.loads(made.to_str())["normalizer"]


@pytest.mark.sampled(20, every=("name", "alphabet"))
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("name", STEPS)
def test_images_of_languages(name, alphabet):
    """All texts of up to four characters, at once as a language and one by one through the library."""
    letters = ALPHABETS[alphabet]
    if name in ("nfc", "nfkc", "nfd", "nfkd", "chain"):
        letters = letters[:5]
    longest = 4
    normalizer = normalizer_of_spec(spec_of(STEPS[name]))
    dfa = normalizer.apply(regex(f"[{letters}]{{0,{longest}}}")).to_byte_dfa()
    wanted = {
        STEPS[name].normalize_str("".join(text)) for length in range(longest + 1) for text in itertools.product(letters, repeat=length)
    }
    found = _finite_texts(dfa)
    assert found is not None
    assert {text.decode() for text in found} == wanted
    for text in list(wanted)[:20]:
        assert normalizer.normalize(text) == STEPS[name].normalize_str(text)


@pytest.mark.parametrize("name", ["lowercase", "accents", "nfd", "nfkd", "strip", "replace", "prepend", "grow"])
def test_images_of_infinite_languages(name):
    normalizer = normalizer_of_spec(spec_of(STEPS[name]))
    pattern = "(?:(?:aba|Ab|é|ﬁ|각| |Ω)(?: |É)?)*"
    dfa = normalizer.apply(regex(pattern)).to_byte_dfa()
    rng = random.Random(4)
    for _ in range(300):
        text = "".join(rng.choice(["aba", "Ab", "é", "ﬁ", "각", " ", "Ω"]) + rng.choice(["", " ", "É"]) for _ in range(rng.randint(0, 5)))
        assert re.fullmatch(pattern, text)
        assert dfa.accepts(STEPS[name].normalize_str(text).encode())
    for wrong in ("zz", "ab€z", "\u0301"):
        assert not dfa.accepts(wrong.encode())


def test_what_is_no_finite_state_function():
    spec = spec_of(normalizers.NFD())
    with pytest.raises(ConstraintError, match=r"normalizer NFD .* combining marks change places"):
        normalizer_of_spec(spec).apply(regex("(?:a\u0301\u0323)*")).to_byte_dfa()
    with pytest.raises(ConstraintError, match="different combining marks"):
        normalizer_of_spec(spec_of(normalizers.NFC())).apply(regex("(?s).*")).to_byte_dfa()
    with pytest.raises(ConstraintError, match="normalizer BertNormalizer cannot"):
        normalizer_of_spec(spec_of(normalizers.BertNormalizer())).apply(regex("a+")).to_byte_dfa()
    few = normalizer_of_spec(spec_of(normalizers.BertNormalizer())).apply(choices(["Été 日本", "A\tb"])).to_byte_dfa()
    assert {text.decode() for text in _finite_texts(few)} == {normalizers.BertNormalizer().normalize_str(t) for t in ("Été 日本", "A\tb")}
    with pytest.raises(ConstraintError, match="normalizer Replace cannot"):
        normalizer_of_spec(spec_of(normalizers.Replace(tokenizers.Regex("a+"), "b"))).apply(regex("a+")).to_byte_dfa()
    with pytest.raises(TokenizerError, match="does not accept this normalizer"):
        normalizer_of_spec({"type": "Klingon"})


def test_nothing_to_do(data_dir):
    language = regex("a+")
    for name in ("llama2", "llama3", "gpt2"):
        normalizer = preprocessing.normalizer_of(load_tokenizer(data_dir / "tokenizers" / name))
        assert normalizer.steps == ()
        assert normalizer.apply(language) is language
        assert normalizer.normalize("Ｃafé ") == "Ｃafé "
    assert preprocessing.normalizer_of(load_tokenizer(data_dir / "tokenizers" / "qwen")).normalize("e\u0301") == "é"


def sentence_piece(tmp_path, **options):
    import sentencepiece

    text = tmp_path / "text.txt"
    text.write_text("\n".join(["hello world", "the kettle is red", "Ａ ｂ 17 café", "日本 語"] * 30))
    prefix = tmp_path / "model"
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(prefix), vocab_size=320, model_type="bpe", byte_fallback=True, minloglevel=2,
        hard_vocab_limit=False, **options,
    )  # fmt: skip
    return load_tokenizer(f"{prefix}.model")


def test_sentence_piece_removes_spaces(tmp_path):
    tokenizer = sentence_piece(tmp_path, normalization_rule_name="identity", remove_extra_whitespaces=True)
    normalizer = preprocessing.normalizer_of(tokenizer)
    assert normalizer.steps == ("extra spaces",)
    texts = ["".join(t) for n in range(5) for t in itertools.product("a é", repeat=n)]
    wanted = {normalizer.normalize(text) for text in texts}
    assert wanted == {re.sub(" +", " ", text).strip(" ") for text in texts}
    found = _finite_texts(normalizer.apply(regex("[a é]{0,4}")).to_byte_dfa())
    assert {text.decode() for text in found} == wanted
    rule = sentence_piece(tmp_path, normalization_rule_name="nmt_nfkc")
    normal = preprocessing.normalizer_of(rule)
    assert normal.steps == ("character map", "extra spaces")
    assert normal.normalize(" Ｃafé  ①") == "Café 1"
    assert [t.decode() for t in _finite_texts(normal.apply(choices(["Ａ  ｂ", "A b"])).to_byte_dfa())] == ["A b"]
    with pytest.raises(ConstraintError, match="character map cannot be applied"):
        normal.apply(regex("a+")).to_byte_dfa()


def byte_level(add_prefix_space: bool):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(alphabet)} | {"Ġa": 256, "ab": 257, "Ġab": 258}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("Ġ", "a"), ("a", "b"), ("Ġa", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    made.decoder = decoders.ByteLevel()
    return load_tokenizer(made)


def metaspace():
    pieces = ["<unk>", "▁", "a", "b", "▁a", "▁ab", "▁▁", "ab", "▁a▁b", *(f"<0x{b:02X}>" for b in range(256))]
    made = tokenizers.Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[("▁", "a"), ("▁a", "b"), ("a", "b")], unk_token="<unk>", byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    return load_tokenizer(made)


def test_conventions(data_dir, tmp_path):
    start = preprocessing.TextStart
    assert preprocessing.text_start(load_tokenizer(data_dir / "tokenizers/llama2")) == start(prefix=" ", always=True, dropped=True, keeps_spaces=True)
    assert preprocessing.text_start(load_tokenizer(data_dir / "tokenizers/llama3")).prefix == ""
    assert preprocessing.text_start(byte_level(True)) == start(prefix=" ", always=False, dropped=False, keeps_spaces=True)
    assert preprocessing.text_start(byte_level(False)).prefix == ""
    assert preprocessing.text_start(metaspace()) == start(prefix=" ", always=False, dropped=True, keeps_spaces=False)
    removing = sentence_piece(tmp_path, normalization_rule_name="identity", remove_extra_whitespaces=True)
    assert preprocessing.text_start(removing) == start(prefix=" ", always=False, dropped=True, keeps_spaces=False)
    with pytest.raises(ConstraintError, match="vocabulary without its encoder"):
        preprocessing.text_start(load_tokenizer([b"a", b" a"]))
