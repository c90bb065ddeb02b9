"""The small model's training text and tokenizer: deterministic, in form, split by name, and round-tripping."""

import itertools
import re

import numpy as np
import pytest
import sentencepiece

from models.small_model import small_tokenizer_path
from tools.small_model import corpus, corpus_tokens, corpus_words


@pytest.fixture(scope="module")
def processor() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(small_tokenizer_path()))


def _take(count: int, seed: int, **options) -> list[corpus.Example]:
    return list(itertools.islice(corpus.generate(seed, **options), count))


def test_text_depends_on_the_seed_alone():
    assert _take(300, 4) == _take(300, 4)
    assert _take(300, 4) != _take(300, 5)
    assert _take(300, 4) != _take(300, 4, held_out=True)


@pytest.mark.parametrize("domain", list(corpus.DOMAINS))
@pytest.mark.parametrize("held_out", [False, True])
def test_every_answer_has_its_form(domain, held_out):
    pattern = re.compile(corpus.DOMAINS[domain].pattern)
    for example in _take(200, 1, domain=domain, held_out=held_out):
        assert pattern.fullmatch(example.answer), example
        assert f"\n{corpus.DOMAINS[domain].cue}:" in example.prompt or domain == "question"
        assert corpus.parse_fields(domain, example.answer)


@pytest.mark.parametrize("domain", ["biography", "email", "ip", "phone", "address", "record"])
def test_fields_can_be_copied_from_the_prompt(domain):
    for example in _take(200, 2, domain=domain):
        for value in corpus.parse_fields(domain, example.answer).values():
            assert value in example.prompt or value[0].lower() + value[1:] in example.prompt.replace("\n", " "), example


def test_some_outputs_are_chatty_and_most_of_those_are_out_of_form():
    examples = [example for example in _take(6000, 3) if example.domain != "story"]
    chatty = [example for example in examples if example.output != example.answer]
    assert 0.16 < len(chatty) / len(examples) < 0.22  # CHATTY_SHARE is 0.2; a few chatty outputs equal the answer
    in_form = [re.fullmatch(corpus.DOMAINS[example.domain].pattern, example.output) for example in chatty]
    assert sum(match is not None for match in in_form) / len(in_form) < 0.05
    assert all(example.output == example.answer for example in _take(300, 3, chatty_share=0.0))


def test_no_held_out_name_is_in_the_training_text():
    trained = {word for example in _take(5000, 0) for word in re.findall(r"\w+", example.prompt)}
    people = [corpus.parse_fields("biography", example.answer)["name"] for example in _take(
        300, 9, domain="biography", held_out=True)]  # fmt: skip
    assert all(corpus_words.is_held_out(part) for name in people for part in name.split())
    assert not {part for name in people for part in name.split() if len(part) > 4} & trained


def test_parse_fields_refuses_what_is_out_of_form():
    assert corpus.parse_fields("biography", '{"name": "A"}') is None
    assert corpus.parse_fields("ip", "256.1.1.1") is None
    assert corpus.parse_fields("ip", "255.1.1.1") == {"value": "255.1.1.1"}


def test_example_prompts_cover_all_domains():
    assert list(corpus.EXAMPLE_PROMPTS) == list(corpus.DOMAINS)
    for domain, prompt in corpus.EXAMPLE_PROMPTS.items():
        assert prompt.endswith(f"\n{corpus.DOMAINS[domain].cue}: ")


def test_tokenizer_has_the_layout_of_gemmas(processor):
    pieces = [processor.id_to_piece(number) for number in range(8)]
    assert pieces == ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "\n", "<0x00>"]
    assert processor.get_piece_size() == corpus_tokens.VOCABULARY_SIZE
    assert all(processor.is_control(number) for number in (0, 1, 2, 4, 5))
    assert processor.is_unknown(3)
    assert sum(processor.is_byte(number) for number in range(processor.get_piece_size())) == 256
    assert processor.encode("12", out_type=str) == ["1", "2"]


def test_tokenizer_gives_text_back(processor):
    texts = [example.prompt + example.output for example in _take(500, 11)]
    for text in [*texts, "", " a", "a  b ", "tab\tand \x00 and 🎉 and 漢字", "\n\n x\n"]:
        ids = processor.encode(text)
        assert processor.decode(ids) == text
        assert corpus_tokens.UNK not in ids


def test_names_have_the_same_pieces_after_a_space_and_after_a_quote(processor):
    for name in ("Ada", "Lovelace", "Walkinberg", "Xooskea", "Porto"):
        assert processor.encode(" " + name, out_type=str) == ["▁", *processor.encode(name, out_type=str)]


def test_the_shipped_tokenizer_is_what_the_script_trains(processor):
    trained = sentencepiece.SentencePieceProcessor(model_proto=corpus_tokens.train_tokenizer())
    numbers = range(corpus_tokens.VOCABULARY_SIZE)
    same = sum(trained.id_to_piece(number) == processor.id_to_piece(number) for number in numbers)
    assert same >= 0.99 * len(numbers)  # all, with the same version of SentencePiece


def test_rows_mark_outputs_and_batches_lose_nothing_but_leftovers(processor):
    tokenizer = small_tokenizer_path().read_bytes()
    rows = corpus_tokens.encode_rows(tokenizer, 3, 600)
    again = corpus_tokens.encode_rows(tokenizer, 3, 600)
    assert all(np.array_equal(a.ids, b.ids) and np.array_equal(a.is_output, b.is_output) for a, b in zip(rows, again))
    for row in rows:
        assert row.ids[0] == corpus_tokens.BOS
        assert row.ids[-1] in (corpus_tokens.EOS, corpus_tokens.END_OF_TURN)
        assert row.is_output[-1]
        assert not row.is_output[0]
    seen = 0
    for ids, kind in corpus_tokens.batches(rows, 1024, seed=0):
        assert ids.shape == kind.shape
        assert ids.size <= 1024
        assert ids.shape[1] in corpus_tokens.BUCKETS
        assert np.all(ids[kind == 0] == corpus_tokens.PAD)
        assert np.all(ids[kind > 0] != corpus_tokens.PAD)
        seen += len(ids)
    sizes = [1024 // length for length in corpus_tokens.BUCKETS]
    assert len(rows) - sum(size - 1 for size in sizes) <= seen <= len(rows)
    turns = [row for row in rows if corpus_tokens.START_OF_TURN in row.ids]
    assert 0.03 < len(turns) / len(rows) < 0.14
