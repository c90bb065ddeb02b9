"""Trains the small programmer of the repository: `python -m tools.small_model.train_programmer --out models/small_programmer`.

One responsibility: its rows. The network begins with the small model's parameters and keeps its tokenizer; every row is a
comment, and the function that it asks for.
"""

import random
import sys

import sentencepiece

import models
from tools.small_model import corpus_tokens, program_corpus, train_further

_LONGEST = 256


def rows(seed: int, count: int, *, held_out: bool = False) -> list[corpus_tokens.Row]:
    """Functions behind their comments. A function is held out by the text of its comment, so that no training row has it."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=models.small_tokenizer_path().read_bytes())
    rng, out = random.Random(f"program/{seed}"), list[corpus_tokens.Row]()
    while len(out) < count:
        program = program_corpus.program(rng)
        row = corpus_tokens.encode_example(processor, program, turns=False)
        if program_corpus.is_held_out(program.prompt) == held_out and len(row.ids) <= _LONGEST:
            out.append(row)
    return out


def main(arguments: list[str] | None = None) -> int:
    """The command line; see `--help`."""
    train_further.main("train_programmer", (__doc__ or "").split("\n")[0], lambda _: models.load_small(), rows, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
