"""Rank files, tiktoken objects and GPT-2's pair of files: small ones made here, known families, damage."""

from __future__ import annotations

import base64
import json
import random

import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given, settings
from hypothesis import strategies as st

from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.tokenizers.byte_level import BYTE_TO_CHAR, unprint_bytes
from fsa_compile.tokenizers.families import CL100K_PATTERN, GPT2_PATTERN, LLAMA3_PATTERN, O200K_PATTERN, QWEN_PATTERN, find_family
from fsa_compile.tokenizers.tiktoken_ranks import load_ranks

TOKENS = [bytes([byte]) for byte in range(256)] + [
    b"ab",
    b"abc",
    " é".encode(),
    b"12",
    b"\xe6\x97",
    "日".encode(),
]


def rank_lines(tokens=TOKENS, ranks=None):
    ranks = range(len(tokens)) if ranks is None else ranks
    return [base64.b64encode(token) + b" %d" % rank for token, rank in zip(tokens, ranks)]


def rank_file(*args, **kwargs):
    return b"\n".join(rank_lines(*args, **kwargs)) + b"\n"


def load(data, **options):
    return load_ranks(data, source="f", **options)


def test_layout_of_special_tokens():
    by_name = load(rank_file(), special_tokens=["<|a|>", "<|endoftext|>"])
    assert by_name.vocabulary.tokens == (*TOKENS, b"", b"")
    assert dict(by_name.vocabulary.special) == {"<|a|>": 262, "<|endoftext|>": 263}
    assert by_name.vocabulary.stop_ids == (263,)
    by_id = load(rank_file(), special_tokens={"<|a|>": 300}, stop_ids=["<|a|>"])
    assert by_id.vocabulary.size == 301
    assert by_id.vocabulary.tokens[262:] == (b"",) * 39
    assert by_id.vocabulary.stop_ids == (300,)
    assert load(rank_file()).vocabulary.stop_ids == ()


def test_special_tokens_may_fill_gaps():
    """As in p50k_base, whose end token stands between two runs of ranks."""
    ranks = [*range(256), *range(258, 264)]
    tokenizer = load(
        rank_file(ranks=ranks), special_tokens={"<|x|>": 256, "<|y|>": 257}, pattern=LLAMA3_PATTERN
    )
    assert tokenizer.vocabulary.tokens == (*TOKENS[:256], b"", b"", *TOKENS[256:])
    assert tokenizer.encode("abc") == [259]


def test_line_ends_order_and_empty_lines():
    lines = rank_lines()
    random.Random(0).shuffle(lines)
    expected = load(rank_file()).vocabulary
    for data in (b"\r\n".join(lines), b"\n".join(lines), b"\n\n".join(lines) + b"\n\n\n"):
        assert load(data).vocabulary == expected


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_round_trip(text):
    tokenizer = load(rank_file(), pattern=O200K_PATTERN)
    ids = tokenizer.encode(text)
    assert tokenizer.vocabulary.decode_bytes(ids) == text.encode()
    assert tokenizer.decode(ids) == text


def test_encode_without_a_pattern_says_what_to_do():
    tokenizer = load(rank_file())
    assert tokenizer.decode([256, 99]) == "abc"
    with pytest.raises(TokenizerError, match=r"of no known family\n  f\n  Give load_tokenizer the pattern"):
        tokenizer.encode("abc")


def test_printed_special_names_are_ordinary_text():
    tokenizer = load(rank_file(), pattern=LLAMA3_PATTERN, special_tokens=["<|endoftext|>"])
    ids = tokenizer.encode("ab<|endoftext|>")
    assert 262 not in ids
    assert tokenizer.decode([262, *ids]) == "ab<|endoftext|>"


def test_wrong_pattern():
    with pytest.raises(
        TokenizerError, match=r"tiktoken does not accept this splitting pattern.*\n  pattern="
    ):
        load(rank_file(), pattern="(").encode("a")


def test_text_beyond_the_splitter(capfd):
    """Some versions of tiktoken run out of stack, as a Rust panic that is no Exception."""
    tokenizer = load(rank_file(), pattern=LLAMA3_PATTERN)
    text = " " * 1_000_000
    try:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    except TokenizerError as error:
        assert "tiktoken cannot encode this text of 1,000,000 characters" in error.what  # noqa: PT017
    assert tokenizer.encode("ab") == [256]


def changed(index, line):
    lines = rank_lines()
    lines[index] = line
    return b"\n".join(lines)


DAMAGE = {
    "no rank": (changed(7, b"IQ=="), r"it has 1 fields, not 2.*\n  f, line 8: 'IQ=='\n  The file is damaged"),
    "three fields": (changed(7, b"IQ== 7 7"), r"it has 3 fields, not 2.*\n  f, line 8"),
    "wrong base64": (changed(7, b"IQ= 7"), r"padding.*\n  f, line 8"),
    "no base64": (changed(9, b"I!== 9"), r"base64.*\n  f, line 10"),
    "rank no number": (changed(0, b"IQ== x"), r"invalid literal.*\n  f, line 1: 'IQ== x'"),
    "rank twice": (changed(7, b"QUFB 6"), r"rank 6 is given twice\n  f, line 8 \(first in line 7\)"),
    "token twice": (
        changed(7, b"Bg== 7"),
        r"the token b'\\x06' is given twice\n  f, line 8 \(first in line 7\)",
    ),
    "gap": (
        rank_file(ranks=[*range(100), *range(101, 263)]),
        r"rank 100 is missing\n  f\n  Name the special token",
    ),
    "wide gap": (rank_file([b"a", b"b"], [0, 10**15]), "rank 1 is missing"),
    "negative": (rank_file([b"a", b"b"], [0, -1]), "holds no ranks from 0 up"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files(name):
    data, message = DAMAGE[name]
    with pytest.raises(TokenizerError, match=message):
        load(data)


@settings(deadline=None)
@given(st.integers(1, len(rank_file()) - 1))
def test_truncated_anywhere(cut):
    data = rank_file()[:cut]
    try:
        tokenizer = load(data)
    except TokenizerError:
        return
    # Cut at the end of a line, or inside its rank: never a wrong token under a right rank.
    assert tokenizer.vocabulary.tokens == tuple(TOKENS[: tokenizer.vocabulary.size])


SPECIAL = {
    "rank": (
        {"<|x|>": 5},
        r"gives '<\|x\|>' the id 5, which is the rank of b'\\x05'\n  f\n  Ranks end at 261",
    ),
    "huge": ({"<|x|>": 10**12}, "larger than allowed"),
    "text": ("<|x|>", "special_tokens is neither a mapping from names to ids nor a list"),
    "twice": (["<|x|>", "<|x|>"], "special_tokens is neither"),
    "number": ([3], "special_tokens is neither"),
    "numbers": (range(2**40), "special_tokens is neither"),
    "id text": ({"<|x|>": "3"}, "special_tokens is neither"),
    "negative": ({"<|x|>": -3}, "special_tokens is neither"),
    "set": ({"<|x|>"}, "special_tokens is neither"),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_wrong_special_tokens(name):
    special, message = SPECIAL[name]
    with pytest.raises(TokenizerError, match=message):
        load(rank_file(), special_tokens=special)


@pytest.mark.parametrize(
    ("stops", "message"),
    [
        (["<|y|>"], "Special tokens of this tokenizer: none"),
        (3, "stop_ids is 3, not a list"),
        ("ab", "not a list"),
        (range(2**40), "there are over 4,194,304 stop ids"),
    ],
)
def test_wrong_stop_ids(stops, message):
    with pytest.raises(TokenizerError, match=message):
        load(rank_file(), stop_ids=stops)


def encoding(**changes):
    options = {"pat_str": O200K_PATTERN, "special_tokens": {"<|endoftext|>": 270, "<|x|>": 280}}
    ranks = {token: i for i, token in enumerate(TOKENS)}
    return tiktoken.Encoding("small", mergeable_ranks=ranks, **(options | changes))


def test_tiktoken_objects():
    theirs = encoding()
    ours = load_tokenizer(theirs, logits_width=300)
    assert ours.vocabulary.tokens == (*TOKENS, *[b""] * 19)
    assert dict(ours.vocabulary.special) == {"<|endoftext|>": 270, "<|x|>": 280}
    assert ours.vocabulary.stop_ids == (270,)
    assert ours.vocabulary.width == 300
    text = "abc é<|endoftext|>日本 12"
    assert ours.encode(text) == theirs.encode_ordinary(text)
    assert ours.decode(ours.encode(text)) == text
    assert load_tokenizer(theirs, special_tokens={"<|x|>": 280}, stop_ids=["<|x|>"]).vocabulary.stop_ids == (
        280,
    )
    with pytest.raises(TokenizerError, match=r"gives '<\|y\|>' the id 3, but the encoding has None"):
        load_tokenizer(theirs, special_tokens={"<|y|>": 3})
    with pytest.raises(TokenizerError, match="pattern was given, but an object of type Encoding"):
        load_tokenizer(theirs, pattern="x")
    with pytest.raises(TokenizerError, match="more than allowed"):
        load_tokenizer(encoding(special_tokens={"<|x|>": 10**9}))


PUBLIC = {
    "r50k_base": (GPT2_PATTERN, None),
    "p50k_base": (GPT2_PATTERN, None),
    "cl100k_base": (CL100K_PATTERN, CL100K_PATTERN),
    "o200k_base": (O200K_PATTERN, O200K_PATTERN),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_families_agree_with_tiktoken(name, monkeypatch):
    """tiktoken's own table says hash, pattern and special tokens; its rank files are not needed for that."""
    asked = []

    def remember(url, expected_hash):
        asked.append(expected_hash)
        return {bytes([byte]): byte for byte in range(256)}

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", remember)
    theirs = getattr(tiktoken_ext.openai_public, name)()
    ours = find_family(asked[0])
    assert ours.name == name
    assert ours.special == theirs["special_tokens"]
    pattern, same = PUBLIC[name]
    assert ours.pattern == pattern
    assert same is None or theirs["pat_str"] == same
    # GPT-2's is written differently there; both must cut every text alike.
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"  ": 257, b"'s": 258, b"\n\n": 259}
    pair = [
        tiktoken.Encoding("x", pat_str=p, mergeable_ranks=ranks, special_tokens={})
        for p in (ours.pattern, theirs["pat_str"])
    ]
    rng = random.Random(4)
    for _ in range(3000):
        text = "".join(
            rng.choices(["ab", " ", "  ", "\n", "\n\n", "'s", "'ll", "'", "1", "23", "é", "\t", "!"], k=7)
        )
        assert pair[0].encode_ordinary(text) == pair[1].encode_ordinary(text)


def test_qwen_composes_characters_first():
    family = find_family("6cf5f2a2560a7d581548aeb0c31c6a60de2d3e873152346e421affc871699be4")
    assert (family.pattern, family.unicode_form) == (QWEN_PATTERN, "NFC")
    assert find_family("0" * 64) is None


def printed(token):
    return "".join(BYTE_TO_CHAR[byte] for byte in token)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=5), max_size=12))
def test_printed_bytes_are_read_back(tokens):
    assert unprint_bytes([printed(token) for token in tokens]) == tokens


def test_printed_bytes_with_other_characters():
    assert unprint_bytes(["a", " ", "ab ", "", "日", "\ud800", "Ġx"]) == [
        b"a",
        None,
        None,
        b"",
        None,
        None,
        b" x",
    ]


ENCODER = {printed(bytes([byte])): byte for byte in range(256)} | {
    "ab": 256,
    "abc": 257,
    "Ġab": 258,
    "<|end|>": 259,
}
MERGES = "#version: 0.2\na b\nab c\nĠ ab\n"


def gpt2_folder(path, encoder=None, merges=MERGES):
    (path / "v.json").write_text(json.dumps(ENCODER if encoder is None else encoder))
    if merges is not None:
        (path / "m.txt").write_text(merges)
    return path


def test_gpt2_pair(tmp_path):
    gpt2_folder(tmp_path)
    tokenizer = load_tokenizer(tmp_path, pattern=GPT2_PATTERN, stop_ids=["<|end|>"])
    assert tokenizer.kind == "gpt2"
    assert tokenizer.vocabulary.tokens[256:] == (b"ab", b"abc", b" ab", b"")
    assert dict(tokenizer.vocabulary.special) == {"<|end|>": 259}
    assert tokenizer.vocabulary.stop_ids == (259,)
    assert tokenizer.encode("abc ab<|end|>")[:2] == [257, 258]
    assert tokenizer.decode(tokenizer.encode("abc ab<|end|> é\n")) == "abc ab<|end|> é\n"
    assert 259 not in tokenizer.encode("<|end|>")
    for part in ("v.json", "m.txt"):
        assert load_tokenizer(tmp_path / part, stop_ids=[259]).vocabulary == tokenizer.vocabulary


def test_gpt2_merges_may_begin_with_a_hash(tmp_path):
    encoder = ENCODER | {"##": 260, "#v": 261}
    gpt2_folder(tmp_path, encoder, "#version: 0.2\n# #\n# v\na b\nab c\nĠ ab\n")
    tokenizer = load_tokenizer(tmp_path, pattern=GPT2_PATTERN)
    assert tokenizer.vocabulary.tokens[260:] == (b"##", b"#v")
    assert tokenizer.encode("##") == [260]


def test_gpt2_without_a_header_line(tmp_path):
    gpt2_folder(tmp_path, ENCODER | {"cd": 260}, "a b\nab c\nĠ ab\nc d")
    assert load_tokenizer(tmp_path).vocabulary.tokens[260] == b"cd"


def test_gpt2_special_tokens_of_the_caller(tmp_path):
    gpt2_folder(tmp_path)
    tokenizer = load_tokenizer(tmp_path, special_tokens=["abc"], pattern=GPT2_PATTERN)
    assert tokenizer.vocabulary.tokens[257] == b""
    assert tokenizer.encode("abc") == [256, 99]
    for wrong in (["<|x|>"], {"abc": 3}):
        with pytest.raises(TokenizerError, match=r"which (is no token|has the id)"):
            load_tokenizer(tmp_path, special_tokens=wrong)


BROKEN_PAIRS = {
    "no merges": (ENCODER, None, r"no merges beside it.*\n.*v.json\n  Put the vocab.bpe"),
    "no pattern": (ENCODER, MERGES, r"they are not GPT-2's\n.*\n  Give load_tokenizer the pattern"),
    "other merges": (
        ENCODER,
        MERGES + "x y\n",
        r"the merge of 'x' and 'y' does not fit the vocabulary\n.*merge 4",
    ),
    "unmade part": (ENCODER, "#version: 0.2\nab c\na b\n", "the merge of 'ab' and 'c' does not fit"),
    "one field": (ENCODER, MERGES + "ab\n", r"a merge is not two tokens\n.*line 5: 'ab'"),
    "merge twice": (ENCODER, MERGES + "a b\n", r"a merge is given twice\n.*line 5: 'a b'"),
    "id twice": (ENCODER | {"zz": 5}, MERGES, "have the same id 5"),
    "id huge": (ENCODER | {"zz": 10**12}, MERGES, "the token 'zz' has the id 1000000000000"),
}


@pytest.mark.parametrize("name", BROKEN_PAIRS)
def test_broken_pairs(name, tmp_path):
    encoder, merges, message = BROKEN_PAIRS[name]
    gpt2_folder(tmp_path, encoder, merges)
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(tmp_path / "v.json").encode("a")


def test_merges_alone_or_not_utf8(tmp_path):
    (tmp_path / "m").write_text(MERGES)
    with pytest.raises(TokenizerError, match="the merges have no vocabulary beside them"):
        load_tokenizer(tmp_path / "m")
    gpt2_folder(tmp_path, merges=None)
    (tmp_path / "m").write_bytes(MERGES.encode() + b"\xff a\n")
    with pytest.raises(TokenizerError, match=r"the merges are not UTF-8\n.*, byte \d+"):
        load_tokenizer(tmp_path / "v.json")


def test_wrong_gpt2_pattern(tmp_path):
    with pytest.raises(TokenizerError, match="tokenizers does not accept these files or this pattern"):
        load_tokenizer(gpt2_folder(tmp_path), pattern="(").encode("a")
