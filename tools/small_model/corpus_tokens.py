"""The small model's tokenizer, and its training text as rows of token ids.

One responsibility: from text to ids. Imports no JAX, so that worker processes which prepare batches start quickly.
"""

import io
import itertools
import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import sentencepiece

from tools.small_model import corpus

VOCABULARY_SIZE = 2048
"""Pieces of the tokenizer, a multiple of 128, so that the logits need no padding ids."""

PAD, EOS, BOS, UNK, START_OF_TURN, END_OF_TURN = range(6)
CONTROL_PIECES = ("<start_of_turn>", "<end_of_turn>")

TURN_SHARE = 0.08
"""Share of training rows in Gemma's chat form, with turn markers."""
CHAIN_SHARE = 0.05
"""Share of training rows with several examples one after the other, separated by an empty line."""
BUCKETS = (96, 160, 256, 512)
"""Lengths to which rows are padded, in tokens."""

_LINE_ENDS = re.compile(r"\n| (?=[A-Z])")
"""Where text is cut before the tokenizer is trained: also at the space before a capital. So no piece joins the two, and
a name has the same pieces after a space (in a prompt) as after a quotation mark (in an object): copying is copying."""


def train_tokenizer(seed: int = 0, examples: int = 40_000) -> bytes:
    """Trains the SentencePiece BPE model on corpus text, in the manner of Gemma's.

    Byte fallback, digits one by one, no dummy prefix, no normalisation, a line break as a piece of its own.

    Args:
      seed: Seed of the text.
      examples: Number of corpus examples it sees.

    Returns:
      The bytes of the `.model` file.
    """
    stream = itertools.islice(corpus.generate(seed), examples)
    lines = (line for example in stream for line in _LINE_ENDS.split(f"{example.prompt}{example.output}"))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCABULARY_SIZE,
        byte_fallback=True,
        split_digits=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        allow_whitespace_only_pieces=True,
        max_sentencepiece_length=12,
        character_coverage=1.0,
        required_chars=string.printable.strip(),
        control_symbols=list(CONTROL_PIECES),
        user_defined_symbols=["\n"],
        pad_id=PAD,
        eos_id=EOS,
        bos_id=BOS,
        unk_id=UNK,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        unk_piece="<unk>",
        num_threads=1,  # the order of merges must not depend on the machine
        minloglevel=2,
    )
    return model.getvalue()


@dataclass(frozen=True)
class Row:
    """One training row.

    Attributes:
      ids: int16[n], from `BOS` to the end marker.
      is_output: bool[n], whether the token belongs to an output (its end marker included), not to a prompt.
    """

    ids: np.ndarray
    is_output: np.ndarray


def encode_example(processor: sentencepiece.SentencePieceProcessor, example: corpus.Example, turns: bool) -> Row:
    """The ids of one example; prompt and output are encoded apart, as they are when an output is sampled.

    Args:
      processor: The tokenizer.
      example: The example.
      turns: In the chat form, with turn markers, instead of `BOS prompt output EOS`.
    """
    prompt, output = processor.encode(example.prompt), processor.encode(example.output)
    if turns:
        head = [BOS, START_OF_TURN, *processor.encode("user\n"), *prompt, END_OF_TURN, *processor.encode("\n")]
        head += [START_OF_TURN, *processor.encode("model\n")]
        tail = [*output, END_OF_TURN]
    else:
        head, tail = [BOS, *prompt], [*output, EOS]
    return Row(np.array(head + tail, np.int16), np.arange(len(head) + len(tail)) >= len(head))


def _chain(processor: sentencepiece.SentencePieceProcessor, examples: list[corpus.Example]) -> Row:
    """Several examples of one domain in one row: every one but the last shows how the next is to be answered."""
    gap = processor.encode("\n\n")
    ids, is_output = [BOS], [False]
    for number, example in enumerate(examples):
        prompt, output = processor.encode(example.prompt), processor.encode(example.output)
        end = [EOS] if number == len(examples) - 1 else gap
        ids += prompt + output + end
        is_output += [False] * len(prompt) + [True] * (len(output) + len(end))
    return Row(np.array(ids, np.int16), np.array(is_output))


def encode_rows(
    tokenizer: bytes, seed: int, count: int, *, held_out: bool = False, chatty_share: float = corpus.CHATTY_SHARE
) -> list[Row]:
    """Training rows; the same arguments give the same rows, in any process.

    Args:
      tokenizer: The bytes of the tokenizer's model file.
      seed: Seed of the text.
      count: Number of rows.
      held_out: Rows of the held-out split, plain ones only.
      chatty_share: See `corpus.generate`.

    Returns:
      `count` rows of at most `BUCKETS[-1]` tokens.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer)
    rng = random.Random(f"rows/{seed}")
    stream = corpus.generate(seed, held_out=held_out, chatty_share=chatty_share)
    rows: list[Row] = []
    while len(rows) < count:
        example, form = next(stream), 1.0 if held_out else rng.random()
        if form < CHAIN_SHARE:
            more = corpus.generate(rng.getrandbits(32), domain=example.domain, chatty_share=0.0)
            row = _chain(processor, list(itertools.islice(more, rng.randint(2, 4))))
        else:
            row = encode_example(processor, example, turns=form < CHAIN_SHARE + TURN_SHARE)
        if len(row.ids) <= BUCKETS[-1]:
            rows.append(row)
    return rows


def batches(rows: list[Row], tokens_per_batch: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of like length put together and padded; every row once, leftovers of a length dropped.

    Args:
      rows: From `encode_rows`.
      tokens_per_batch: Size of every batch, padding included.
      seed: Seed of the order of the batches.

    Yields:
      ids int32[B, L] padded with `PAD`, and kind int8[B, L]: 0 padding, 1 prompt, 2 output.
    """
    shelves: dict[int, list[Row]] = {length: [] for length in BUCKETS}
    for row in rows:
        shelves[next(length for length in BUCKETS if len(row.ids) <= length)].append(row)
    groups = []
    for length, shelf in shelves.items():
        size = max(1, tokens_per_batch // length)
        groups += [(length, shelf[at : at + size]) for at in range(0, len(shelf) - size + 1, size)]
    random.Random(seed).shuffle(groups)
    for length, group in groups:
        ids = np.zeros((len(group), length), np.int32)
        kind = np.zeros((len(group), length), np.int8)
        for at, row in enumerate(group):
            ids[at, : len(row.ids)] = row.ids
            kind[at, : len(row.ids)] = 1 + row.is_output
        yield ids, kind
