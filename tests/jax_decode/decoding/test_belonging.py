"""Tables, model, tokenizer and prompts that do not belong together; the id that starts a text; what a limit has forced; what results show."""

from __future__ import annotations

import dataclasses
import pickle

import jax
import numpy as np
import pytest
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
import models
from jax_decode import Categorical, DecodeError, StopStrings

LETTERS = [b"", b"", *(bytes([i]) for i in range(97, 113))]
VOCABULARY = fsa_compile.Vocabulary.from_tokens(LETTERS, stop_ids=[0], bos_id=1)
SIZE = len(LETTERS)


class Letters:
    """A tokenizer of single letters."""

    vocabulary = VOCABULARY

    def encode(self, text: str) -> list[int]:
        return [2 + ord(letter) - 97 for letter in text]


TOKENIZER = Letters()


@pytest.fixture(scope="module")
def small():
    return models.load_small(), fsa_compile.load_tokenizer(models.small_tokenizer_path())


def tables_of(pattern, vocabulary=VOCABULARY):
    return jax_decode.to_device(fsa_compile.compile_regex(pattern, vocabulary))


def test_a_model_that_knows_its_vocabulary_refuses_another(small):
    """The case of the review: 257 tokens under a model of 2,048, which was accepted and spelled 'ZZZZZ['."""
    decoder, tokenizer = small
    assert decoder.vocabulary_fingerprint == tokenizer.vocabulary.fingerprint
    foreign = fsa_compile.Vocabulary.from_tokens([bytes([i]) for i in range(256)] + [b""], stop_ids=[256])
    with pytest.raises(DecodeError, match="the model was trained with aae7f0330db9"):
        jax_decode.generate(decoder, [1], tables_of("Z{5}", foreign), max_new_tokens=8, bos_id=False)
    nameless = dataclasses.replace(decoder, vocabulary_fingerprint="")
    with pytest.raises(DecodeError, match="257 ids, the model has 2,048 logits: they do not belong together"):
        jax_decode.generate(nameless, [1], tables_of("Z{5}", foreign), max_new_tokens=8)


def test_the_fingerprint_is_saved(small, tmp_path):
    models.save(small[0], tmp_path / "model")
    assert models.load(None, tmp_path / "model").vocabulary_fingerprint == small[0].vocabulary_fingerprint
    models.save(dataclasses.replace(small[0], vocabulary_fingerprint=""), tmp_path / "other")
    assert models.load(None, tmp_path / "other").vocabulary_fingerprint == ""


def test_a_foreign_tokenizer(small):
    out = jax_decode.generate(toy(SIZE), "ab", tables_of("c{3}"), max_new_tokens=8, tokenizer=TOKENIZER)
    assert out.text() == out.text(VOCABULARY) == out.text(TOKENIZER) == "ccc"
    with pytest.raises(DecodeError, match="the tokens belong to"):
        out.text(small[1])
    with pytest.raises(DecodeError, match="the tables were made for"):
        jax_decode.generate(toy(SIZE), "ab", tables_of("c{3}"), max_new_tokens=8, tokenizer=small[1])
    with pytest.raises(DecodeError, match="has no 'encode'"):
        jax_decode.generate(toy(SIZE), "ab", tables_of("c{3}"), max_new_tokens=8, tokenizer=VOCABULARY)
    with pytest.raises(DecodeError, match="has no 'decode'"):
        out.text("tokenizer.model")


def test_other_stop_ids_are_no_other_tokens():
    other = fsa_compile.Vocabulary.from_tokens(LETTERS, stop_ids=[1])
    assert other.fingerprint != VOCABULARY.fingerprint
    out = jax_decode.generate(toy(SIZE), [1, 2], tables_of("c{3}"), max_new_tokens=8)
    assert out.text(other) == "ccc"


def test_a_vocabulary_that_this_process_has_not():
    own = fsa_compile.Vocabulary.from_tokens([*LETTERS, b"zz"], stop_ids=[0])
    tables = tables_of("c{3}", own)
    out = jax_decode.generate(toy(SIZE + 1), [2], tables, max_new_tokens=8)
    assert out.text() == "ccc"
    del own
    with pytest.raises(DecodeError, match="this process has loaded no tokenizer of their vocabulary"):
        out.text()
    assert "ACCEPTED ids [4, 4, 4] (3 tokens" in repr(out)
    with pytest.warns(UserWarning, match="Are their tokens the same"):
        assert len(out.text(VOCABULARY)) == 3
    free = jax_decode.generate(toy(SIZE), [1, 2], max_new_tokens=2)
    with pytest.raises(DecodeError, match=r"Pass the tokenizer: out\.text\(tokenizer\)"):
        free.text()


def test_the_id_that_starts_a_text():
    """From the tokenizer, once; asked for by a number; left out by False; forgotten and doubled ones are said."""
    tables, options = tables_of("[c-p]{3}"), {"max_new_tokens": 4}
    with_start = jax_decode.generate(toy(SIZE), [1, 2, 3], tables, **options)
    for prompt, more in (
        ("ab", {"tokenizer": TOKENIZER}),
        ([2, 3], {"tokenizer": TOKENIZER}),
        ([1, 2, 3], {"tokenizer": TOKENIZER}),
        ([2, 3], {"bos_id": 1}),
    ):
        out = jax_decode.generate(toy(SIZE), prompt, tables, **options, **more)
        assert out.origin.prompts == [[1, 2, 3]]
        np.testing.assert_array_equal(out.tokens[0], with_start.tokens[0])
    assert jax_decode.generate(toy(SIZE), "ab", tables, tokenizer=TOKENIZER, bos_id=False, **options).origin.prompts == [[2, 3]]
    with pytest.warns(UserWarning, match=r"a prompt does not begin with 1.*Pass bos_id=1"):
        jax_decode.generate(toy(SIZE), [[1, 2], [2, 3]], tables, **options)
    with pytest.warns(UserWarning, match="begins with bos_id=1 already"):
        jax_decode.generate(toy(SIZE), [1, 2], tables, bos_id=1, **options)
    with pytest.warns(UserWarning, match="a prompt begins with 1 twice"):
        jax_decode.generate(toy(SIZE), [1, 1, 2], tables, **options)
    pieces = jax_decode.stream(toy(SIZE), ["ab", "b"], tables, tokenizer=TOKENIZER, **options)
    assert [row.text for row in pieces.result] == ["", ""]
    list(pieces)
    assert pieces.result.text()[0] == with_start.text()


def test_text_needs_a_tokenizer():
    with pytest.raises(DecodeError, match=r"pass tokenizer=, and text"):
        jax_decode.generate(toy(SIZE), "ab", max_new_tokens=4)


def test_the_tokenizer_ends_free_texts():
    out = jax_decode.generate(
        toy(SIZE), "ab", tokenizer=TOKENIZER, max_new_tokens=100, key=jax.random.key(0), sampler=Categorical()
    )
    assert out.status[0].name == "FINISHED"
    assert out.stop_token == [0]


PATTERNS = ["[a-d]{2,9}", "(ab|cdefgh)*p", "a{0,20}", "(a(bc){0,3}){1,4}"]
GRAMMAR = 'start: "a" start "b" | "c" | "d" start "e" start "f"'


def narrowed(constraint, tokens, limit):
    """Position of the first token under a mask that the limit narrowed, by the walk on the host."""
    walk = constraint.walk()
    for i, token in enumerate(tokens):
        if walk.allowed(limit - i).sum() < walk.allowed().sum():
            return i
        walk.advance(int(token))
    return -1


@pytest.mark.parametrize("limit", [3, 6, 11, 30])
def test_squeezed_is_what_the_walk_says(limit):
    """Every form of text, on several rows, against the walk on the host; drafts and streams agree."""
    constraints = [fsa_compile.compile_regex(pattern, VOCABULARY) for pattern in PATTERNS] + [
        fsa_compile.compile_grammar(GRAMMAR, VOCABULARY)
    ]
    tables = jax_decode.to_device(constraints)
    options = {
        "max_new_tokens": limit,
        "sampler": Categorical(),
        "key": jax.random.key(limit),
        "num_samples": 3,
        "allow_truncation": True,
    }
    which = [*range(len(constraints)), None]
    prompts = [[1, 2]] * len(which)
    out = jax_decode.generate(toy(SIZE), prompts, tables, constraint=which, **options)
    for row, found in enumerate(out.squeezed):
        index = which[row // 3]
        stop = [] if out.stop_token[row] is None else [out.stop_token[row]]
        assert found == (-1 if index is None else narrowed(constraints[index], [*out.tokens[row], *stop], limit)), row
    assert out.squeezed.dtype == np.int32
    if limit == 6:
        assert (out.squeezed >= 0).any()
        assert (out.squeezed < 0).any()
        assert f"squeezed by its limit from token {out.squeezed.max()} on" in "".join(map(repr, out))


def test_squeezed_of_a_stream_and_of_blocks():
    tables = tables_of("[a-d]{2,9}")
    options = {"max_new_tokens": 5, "tokenizer": TOKENIZER}
    out = jax_decode.generate(toy(SIZE), "ab", tables, **options)
    flow = jax_decode.stream(toy(SIZE), "ab", tables, stopping=StopStrings("zz"), **options)
    list(flow)
    assert flow.result.squeezed.tolist() == out.squeezed.tolist()
    blocks = jax_decode.generate(toy(SIZE), "ab", tables, forced=4, **options)
    assert blocks.squeezed.tolist() == out.squeezed.tolist()
    beams = jax_decode.beam_search(toy(SIZE), [1, 2, 3], tables, beams=2, max_new_tokens=5)
    assert beams.squeezed.shape == (2,)


def test_rows():
    out = jax_decode.generate(toy(SIZE), ["ab", "b"], tables_of("[c-e]{3}"), tokenizer=TOKENIZER, max_new_tokens=8)
    assert [row.text for row in out] == out.text()
    assert out[-1].index == 1
    assert out[0].status is out.status[0]
    assert out[0].logprob == pytest.approx(out.total_logprob[0])
    assert out[1].raw_logprob == pytest.approx(out.raw_total_logprob[1])
    assert out[0].tokens.tolist() == out.tokens[0].tolist()
    with pytest.raises(IndexError, match="no row 2 among 2"):
        out[2]
    with pytest.raises(DecodeError, match=r"Write out\[0\]"):
        out["text"]
    first = repr(out).splitlines()
    assert first[0] == "Generation of 2 rows:"
    assert first[1].startswith(f"  0: ACCEPTED {out.text()[0]!r} (3 tokens, log-probability -")
    assert pickle.loads(pickle.dumps(out)).text() == out.text()


def test_many_rows_are_cut():
    out = jax_decode.generate(toy(SIZE), ["ab"] * 10, tables_of("[c-e]{3}"), tokenizer=TOKENIZER, max_new_tokens=8)
    assert repr(out).splitlines()[-1] == "  … 2 more"
    assert out._repr_html_().count("<h2>Row") == 8
    assert "2 more rows" in out._repr_html_()


def test_the_page_of_a_result():
    """Prompt, coloured tokens, and an underline where the limit allowed fewer."""
    out = jax_decode.generate(toy(SIZE), "ab", tables_of("(ab|cdefgh)*p"), tokenizer=TOKENIZER, max_new_tokens=4)
    page = out._repr_html_()
    assert '<div class="prompt">&lt;1&gt;ab</div>' in page
    squeezed = int(out.squeezed[0])
    assert squeezed >= 0
    assert page.count('class="squeezed"') == out.lengths[0] + (out.stop_token[0] is not None) - squeezed
    assert f"squeezed by its limit from token {squeezed} on" in page
    assert jax_decode.report.to_html(out).count("<h2>") == 1
    with pytest.raises(DecodeError, match="'constraint' is a list"):
        jax_decode.report.to_html(out, constraint=[])
    quiet = jax_decode.generate(toy(SIZE), "ab", tables_of("[a-d]{2}"), tokenizer=TOKENIZER, max_new_tokens=4, raw_logprobs=False)
    assert quiet._repr_html_() is None


def test_rows_are_no_longer_than_a_line():
    out = jax_decode.generate(toy(SIZE), "ab", tables_of("a{200}"), tokenizer=TOKENIZER, max_new_tokens=256)
    assert all(len(line) < 180 for line in repr(out).splitlines())
    assert out[0].text == "a" * 200
