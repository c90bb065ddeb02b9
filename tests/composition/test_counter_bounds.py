"""How many tokens a counted loop still takes: the bound of every register beside a shortest path over lengths of tokens."""

import random
import re

import numpy as np
import pytest

import fsa_compile as fc

TOKENS = [b"a", b"b", b" ", b"aa", b"aab", b"bbbbb", b"aaaaaaa", b" " * 11, b"a b", b"abababababab"]


def shortest(lengths: set[int], low: int, high: int) -> list[int]:
    """Least number of tokens that bring n characters between the bounds, for n = 0..low."""
    out = [0] * (low + 1)
    for n in range(low - 1, -1, -1):
        out[n] = 1 + min(out[min(n + k, low)] for k in lengths if n + k <= high)
    return out


@pytest.mark.parametrize("seed", range(4))
def test_made_vocabularies(seed):
    rng = random.Random(seed)
    tokens = [b"", *(bytes([i]) for i in range(256)), *rng.sample(TOKENS, 5)]
    vocabulary = fc.Vocabulary.from_tokens(tokens, stop_ids=[0])
    lengths = {len(t) for t in tokens if re.fullmatch(rb"[ab ]+", t)}
    for low in [*range(1, 40), *rng.sample(range(40, 900), 12)]:
        high = low + rng.choice([0, 1, 5, 300])
        made = fc.compile_regex(f"[ab ]{{{low},{high}}}", vocabulary)
        walk, left, read = fc.HostWalk(made), shortest(lengths, low, high), 0
        while read < low:
            exact = high - low >= max(lengths)  # else what is missing may not divide into long tokens
            assert left[read] <= walk.distance <= left[read] + (0 if exact else 3), (low, high, read)
            fits = [i for i in walk.allowed().nonzero()[0].tolist() if tokens[i]]
            token = rng.choice(fits)
            walk.advance(token)
            read += len(tokens[token])
        assert walk.distance == 0


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_real_vocabularies(name, data_dir):
    tok = fc.load_tokenizer(data_dir / "tokenizers" / name)
    spelled = [tok.vocabulary.tokens[i] for i in range(tok.vocabulary.size)]
    lengths = {len(t) for t in spelled if t and re.fullmatch(rb"[a-z ]+", t)}
    for low in (1, 2, 37, 127, 128, 129, 500, 777, 1000):
        made = fc.compile_regex(f"[a-z ]{{{low},1000}}", tok)
        left = shortest(lengths, low, 1000)
        slack = 0 if 1000 - low >= max(lengths) else 2
        walk, read = fc.HostWalk(made), 0
        rng = np.random.default_rng(low)
        while read < low:
            assert left[read] <= walk.distance <= left[read] + slack, (low, read)
            token = rng.choice(tok.encode("a the   " + "abc " * 8))
            if not walk.allowed()[token]:
                break
            walk.advance(int(token))
            read += len(spelled[token])
