"""`load_tokenizer`: formats by content, folders, explicit vocabularies, everything that is no tokenizer."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsa_compile.errors import ConstraintError, TokenizerError
from fsa_compile.tokenizers import Tokenizer, load_tokenizer
from fsa_compile.tokenizers import tokenizer as base
from fsa_compile.vocabulary import Vocabulary

RANKS = b"YQ== 0\nYg== 1\nYWI= 2\n"
FUSE = {"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"}}
TOKENIZER_JSON = FUSE | {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}
MODEL = (
    b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"
    + b"".join(b"\x0a\x08\x0a\x01%c\x15\x00\x00\x00\x00" % c for c in b"ab")
    + b"\x0a\x09\x0a\x02ab\x15\x00\x00\x80\xbf"
    + b"\x12\x02\x18\x02\x1a\x02\x18\x00"
)
ENCODER = {"a": 0, "b": 1, "ab": 2}
MERGES = b"#version: 0.2\na b\n"


def write(folder, **files):
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (RANKS, "tiktoken"),
        (RANKS.rstrip(), "tiktoken"),
        (b"\n" + RANKS, "tiktoken"),
        (json.dumps(TOKENIZER_JSON).encode(), "huggingface-bpe"),
        (b"\xef\xbb\xbf" + json.dumps(TOKENIZER_JSON, indent=2).encode(), "huggingface-bpe"),
        (b"\n\n  " + json.dumps(TOKENIZER_JSON).encode(), "huggingface-bpe"),
        (MODEL, "sentencepiece-bpe"),
    ],
)
@pytest.mark.parametrize("name", ["tokenizer.model", "x.json", "noname"])
def test_the_name_does_not_matter(tmp_path, content, kind, name):
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path / name, str(tmp_path / name), tmp_path):
        tokenizer = load_tokenizer(path)
        assert isinstance(tokenizer, Tokenizer)
        assert tokenizer.kind == kind
        assert [token for token in tokenizer.vocabulary.tokens if token] == [b"a", b"b", b"ab"]
        assert kind in repr(tokenizer)


def test_order_within_a_folder(tmp_path):
    write(tmp_path, e=ENCODER, m=MERGES)
    assert load_tokenizer(tmp_path).kind == "gpt2"
    write(tmp_path, r=RANKS)
    assert load_tokenizer(tmp_path).kind == "tiktoken"
    write(tmp_path, s=MODEL)
    assert load_tokenizer(tmp_path).kind == "sentencepiece-bpe"
    write(tmp_path, t=TOKENIZER_JSON)
    assert load_tokenizer(tmp_path).kind == "huggingface-bpe"


def test_folder_with_other_files(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", r=RANKS)
    write(
        tmp_path,
        config__json={"hidden_size": 8},
        added_tokens__json={"<|x|>": 900},
        notes__md=b"# Notes\nab cd\n",
    )
    write(tmp_path, weights=bytes([0x7B]) + b"\x00" * 100, lines__jsonl=b'{"a": 1}\n{"a": 2}\n')
    with pytest.raises(TokenizerError, match="the JSON file is damaged"):
        load_tokenizer(tmp_path)
    write(tmp_path, e=ENCODER, m=MERGES)
    assert load_tokenizer(tmp_path).vocabulary.tokens == (b"a", b"b", b"ab")


def test_damaged_tokenizer_json_is_not_passed_over(tmp_path):
    write(tmp_path, tokenizer__json=b'{"model": ', r=RANKS)
    with pytest.raises(TokenizerError, match=r"damaged or cut off.*\n.*tokenizer.json, line 1, column 11"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("one", "two"), [(RANKS, RANKS + b"YWFh 3\n"), (MODEL, MODEL), (TOKENIZER_JSON, FUSE)]
)
def test_two_of_one_format(tmp_path, one, two):
    write(tmp_path, a=one, b=(two | {"model": {}}) if isinstance(two, dict) else two)
    with pytest.raises(
        TokenizerError, match=r"several files of one tokenizer format.*\n.*: a, b\n  Give the path"
    ):
        load_tokenizer(tmp_path)


def test_two_encoders_for_one_merges_file(tmp_path):
    write(tmp_path, a=ENCODER, b=ENCODER, m=MERGES)
    with pytest.raises(TokenizerError, match="several files"):
        load_tokenizer(tmp_path / "m")
    assert load_tokenizer(tmp_path / "a").kind == "gpt2"


NOT_TOKENIZERS = {
    "empty": (b"", "the tokenizer file is empty\n.*\n  Download it again"),
    "spaces": (b"  \n\n ", "in no tokenizer format that is known"),
    "text": (
        b"Hello there, reader.\nHow are you?\n",
        r"no tokenizer format.*\n.*begins b'Hello there.*\n  Give a Sent",
    ),
    "binary": (bytes(range(256)), "no tokenizer format"),
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\nx y\n",
        "Git LFS .*\n.*\n.*git lfs pull",
    ),
    "web page": (b"<!DOCTYPE html>\n<html></html>", "this is a web page"),
    "gzip": (gzip.compress(RANKS), "this file is compressed"),
    "zip": (b"PK\x03\x04abc", "this file is compressed"),
    "gguf": (b"GGUF\x03\x00", "a GGUF file is not read"),
    "list": (b"[1, 2]", "no tokenizer format"),
    "json": (b'{"a": {}}', 'the JSON file has no "model"'),
    "cut json": (
        b'{"model": {"vo',
        r"the JSON file is damaged or cut off.*\n.*, line 1, column 12\n  Download",
    ),
    "json not utf-8": (b'{"model": "\xff"}', "the JSON file is not UTF-8\n.*, byte 11"),
    "deep json": (b'{"a":' * 100_000, "the JSON file cannot be read"),
    "long number": (b'{"a": ' + b"9" * 5000 + b"}", "the JSON file cannot be read"),
    "vocabulary of words": (b"the\nof\nand\nto\n", "no tokenizer format"),
}


@pytest.mark.parametrize("name", NOT_TOKENIZERS)
def test_files_that_are_no_tokenizer(tmp_path, name):
    data, message = NOT_TOKENIZERS[name]
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(path)
    assert str(path) in caught.value.where
    assert isinstance(caught.value, ConstraintError)


def test_missing_and_unreadable_paths(tmp_path):
    with pytest.raises(TokenizerError, match=r"no tokenizer of this name here\n.*/none\n  Check the path"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(TokenizerError, match=r"no file in this folder is a tokenizer\n.*\n  It should hold"):
        load_tokenizer(tmp_path)
    with pytest.raises(TokenizerError, match="cannot be read"):
        load_tokenizer(tmp_path / ("x" * 5000))
    with pytest.raises(TokenizerError, match="cannot be read"):
        load_tokenizer("null\0character")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(TokenizerError, match="cannot be read"):
        load_tokenizer(tmp_path / "loop")


def test_errors_of_the_vocabulary_name_the_file(tmp_path):
    write(tmp_path, r=RANKS)
    with pytest.raises(TokenizerError, match=r"stop id 2 writes the text b'ab'\n  .*/r, tokens\[2\]"):
        load_tokenizer(tmp_path / "r", stop_ids=[2])
    with pytest.raises(TokenizerError, match=r"logits_width=2 does not fit.*\n  .*/r\n"):
        load_tokenizer(tmp_path / "r", logits_width=2)


def test_sizes_are_limited(tmp_path, monkeypatch):
    write(tmp_path, r=RANKS)
    monkeypatch.setattr(base, "MAX_FILE_BYTES", 10)
    with pytest.raises(
        TokenizerError, match=r"the file of 21 bytes is larger than a tokenizer may be \(10\)"
    ):
        load_tokenizer(tmp_path / "r")
    monkeypatch.undo()
    with open(tmp_path / "sparse", "wb") as file:
        os.truncate(file.fileno(), base.MAX_FILE_BYTES + 1)
    with pytest.raises(TokenizerError, match="larger than a tokenizer may be"):
        load_tokenizer(tmp_path / "sparse")
    assert load_tokenizer(tmp_path).kind == "tiktoken"  # a folder's huge files are passed over
    (tmp_path / "r").write_bytes(b"YQ== 0\n" + b"\n" * (1 << 23))
    with pytest.raises(TokenizerError, match="lines are more tokens than allowed"):
        load_tokenizer(tmp_path / "r")


@pytest.mark.parametrize("content", [MODEL, TOKENIZER_JSON])
def test_pattern_where_none_belongs(tmp_path, content):
    write(tmp_path, t=content)
    for path in (tmp_path, tmp_path / "t"):
        with pytest.raises(TokenizerError, match=r"pattern was given, but .* its own way of cutting a text"):
            load_tokenizer(path, pattern="x")
    with pytest.raises(TokenizerError, match="pattern is int, not str"):
        load_tokenizer(tmp_path, pattern=3)


@pytest.mark.parametrize(
    "value", [None, 7, 1.5, object(), {"a": 0}, b"abc", bytearray(b"a"), io.BytesIO(RANKS)]
)
def test_objects_that_are_no_tokenizer(value):
    with pytest.raises(
        TokenizerError, match=r"an object of type \w+\.\w+ is no known tokenizer\n  Give a path"
    ):
        load_tokenizer(value)


def test_a_missing_package_is_named(tmp_path):
    """Vocabularies load without the package; encoding says how to install it."""
    write(tmp_path, r=RANKS, s=MODEL, t=TOKENIZER_JSON)
    code = f"""
import sys
for name in ("sentencepiece", "tiktoken", "tokenizers"):
    sys.modules[name] = None
from fsa_compile.errors import TokenizerError
from fsa_compile.tokenizers import load_tokenizer
for file, package in (("r", "tiktoken"), ("s", "sentencepiece"), ("t", "tokenizers")):
    options = {{"pattern": "a+"}} if file == "r" else {{}}
    tokenizer = load_tokenizer({str(tmp_path)!r} + "/" + file, **options)
    assert b"ab" in tokenizer.vocabulary.tokens
    try:
        tokenizer.encode("ab")
    except TokenizerError as error:
        assert f"needs the package {{package!r}}" in str(error), error
        assert 'pip install "constrax[compile] @ git+' in str(error), error
    else:
        raise SystemExit("no error")
assert "jax" not in sys.modules and "pynini" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_explicit_list_of_bytes():
    tokenizer = load_tokenizer(
        [b"a", b"b", b"ab", b"abc", b"cd", b"a", b""], special_tokens={"<e>": 6}, stop_ids=[6]
    )
    assert tokenizer.kind == "bytes"
    assert tokenizer.encode("ab") == [2]
    assert tokenizer.encode("abcd") == [2, 4]  # the longest first token would leave a "d" that nothing spells
    assert tokenizer.encode("aa") == [0, 0]  # the lowest id of equal bytes
    assert tokenizer.encode("") == []
    assert tokenizer.decode([6, 3, 4]) == "abccd"
    assert tokenizer.vocabulary.stop_ids == (6,)
    with pytest.raises(
        TokenizerError, match=r"no tokens of this vocabulary spell the text from byte 2: b'xa'"
    ):
        tokenizer.encode("abxa")
    appended = load_tokenizer((b"a", b"b"), special_tokens=["<s>", "</s>"], stop_ids=["</s>"], logits_width=8)
    assert appended.vocabulary.tokens == (b"a", b"b", b"", b"")
    assert appended.vocabulary.stop_ids == (3,)
    assert appended.vocabulary.width == 8


@pytest.mark.parametrize("tokens", [[], ["a"], [b"a", 3], "text"])
def test_wrong_lists(tokens):
    with pytest.raises(TokenizerError):
        load_tokenizer(tokens)


def counts(pieces, data):
    """Numbers of pieces that spell `data`, by trying every first piece."""
    if not data:
        return {0}
    return {1 + n for piece in pieces if data.startswith(piece) for n in counts(pieces, data[len(piece) :])}


TOY = [b"a", b"b", b"ab", b"ba", b"aab", b"bb", b"\xc3", b"\xa9", b""]


@settings(deadline=None)
@given(st.lists(st.sampled_from(TOY), min_size=1).filter(any), st.text("abé", max_size=7))
def test_explicit_encoding_has_the_fewest_tokens(tokens, text):
    tokenizer = load_tokenizer(tokens)
    data = text.encode()
    fewest = min(counts({token for token in tokens if token}, data), default=None)
    if fewest is None:
        with pytest.raises(TokenizerError, match="no tokens of this vocabulary spell"):
            tokenizer.encode(text)
    else:
        ids = tokenizer.encode(text)
        assert len(ids) == fewest
        assert tokenizer.vocabulary.decode_bytes(ids) == data
        assert tokenizer.decode(np.array(ids, int)) == text


def test_vocabularies_and_loaded_tokenizers():
    vocabulary = Vocabulary.from_tokens([b"a", b""], special={"<e>": 1}, stop_ids=[1], bos_id=1)
    tokenizer = load_tokenizer(vocabulary)
    assert tokenizer.vocabulary == vocabulary
    assert load_tokenizer(tokenizer) is tokenizer
    assert load_tokenizer(vocabulary, stop_ids=[], logits_width=4).vocabulary.width == 4
    assert load_tokenizer(vocabulary, stop_ids=[]).vocabulary.stop_ids == ()
    with pytest.raises(
        TokenizerError, match="options were given together with a tokenizer that is already loaded"
    ):
        load_tokenizer(tokenizer, logits_width=4)


def test_a_folder_with_the_name_of_a_package_is_not_the_package(tmp_path, monkeypatch):
    """Python imports any folder on its path, such as a user's own `tokenizers`, where the package is not installed."""
    (tmp_path / "package_of_an_encoder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TokenizerError, match=r"cannot be imported \(.*package_of_an_encoder is a folder without a package"):
        base.require("package_of_an_encoder")
