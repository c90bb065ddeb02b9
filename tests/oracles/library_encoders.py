"""Real encoders run by their own libraries, and pairs and texts to try them on. Knows nothing of the pair rule."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("llama2", "gpt2", "llama3", "llama4", "qwen")


def piece_encoder(name: str, data: Path) -> Callable[[bytes], list[int]]:
    """Bytes of one piece of text → ids: the library's merging without its splitter and without a dummy prefix."""
    folder = data / "tokenizers" / name
    if name == "llama2":
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((folder / "tokenizer.model").read_bytes())
        proto.normalizer_spec.add_dummy_prefix = False
        processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        return lambda text: processor.encode(text.decode())
    if name == "gpt2":
        from tokenizers import Tokenizer, models

        from fsa_compile.tokenizers.byte_level import BYTE_TO_CHAR

        vocabulary = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
        lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
        merges = [tuple(line.split()) for line in lines if line]
        encoder = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, cache_capacity=0))
        return lambda text: list(encoder.encode("".join(BYTE_TO_CHAR[byte] for byte in text)).ids)
    import base64

    import tiktoken

    lines = next(path for path in folder.iterdir() if path.suffix in (".model", ".tiktoken")).read_bytes().split(b"\n")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    core = tiktoken.Encoding("pairs", pat_str=r"[\s\S]+", mergeable_ranks=ranks, special_tokens={})._core_bpe
    return core.encode_single_piece


def pair_kinds(rule: Any, trees: Any, table: Any, tokens: tuple[bytes, ...], rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """About n pairs of each kind, int64[*, 2]: uniform; ends of spines that share a merge; halves of a token; runs of one
    character; a few whole rows; and, where there are any, tokens with a part that is born after them.
    """
    own = np.flatnonzero(rule.own)
    kinds = {"uniform": rng.choice(own, (n, 2))}
    on_right, on_left = _spines(own, trees.right), _spines(own, trees.left)
    use = np.flatnonzero(rule.own[table.left] & rule.own[table.right])
    chosen = rng.choice(use, n)
    kinds["spine ends that share a merge"] = np.stack(
        [_pick(on_right, table.left[chosen], rng), _pick(on_left, table.right[chosen], rng)], 1
    )
    halves = table.left[chosen], table.right[chosen]
    kinds["halves of a token"] = np.stack([_pick(on_right, halves[0], rng), halves[1]], 1)
    runs = [int(t) for t in own if len(tokens[t].decode("utf-8", "replace")) > 0 and len(set(tokens[t].decode("utf-8", "replace"))) == 1]
    by_char: dict[str, list[int]] = {}
    for token in runs:
        by_char.setdefault(tokens[token].decode("utf-8", "replace")[0], []).append(token)
    pairs = [(a, b) for same in by_char.values() for a in same[:60] for b in same[:60]]
    kinds["runs of one character"] = np.array(pairs)[rng.permutation(len(pairs))[:n]]
    rows = rng.choice(own, max(1, n // len(own) + (n >= 50_000)))
    kinds["whole rows"] = np.stack([rows.repeat(len(own)), np.tile(own, len(rows))], 1)[:n]
    birth = trees.births()
    odd = np.flatnonzero(rule.own & (birth > trees.rank) & (trees.rank >= 0))
    if len(odd):
        ends = rng.choice(odd, n), rng.choice(own, n)
        kinds["parts born late"] = np.concatenate([np.stack(ends, 1), np.stack(ends[::-1], 1)])
    return kinds


def _spines(own: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(symbol, token) of all tokens with the symbol on their spine, sorted by symbol."""
    token, at = own, own
    tokens, symbols = [], []
    while len(at):
        tokens.append(token)
        symbols.append(at)
        token, at = token[part[at] >= 0], part[at][part[at] >= 0]
    symbol, token = np.concatenate(symbols), np.concatenate(tokens)
    order = np.argsort(symbol, kind="stable")
    return symbol[order], token[order]


def _pick(spines: tuple[np.ndarray, np.ndarray], symbols: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    low, high = np.searchsorted(spines[0], symbols), np.searchsorted(spines[0], symbols, side="right")
    return spines[1][low + (rng.random(len(symbols)) * (high - low)).astype(np.int64)]


def text_pairs(encode: Callable[[str], list[int]], documents: list[str], own: np.ndarray, n: int) -> np.ndarray:
    """Adjacent tokens of real texts and, shifted by one, tokens that stand two apart: int64[<= n, 2]."""
    out: list[tuple[int, int]] = []
    for document in documents:
        ids = [i for i in encode(document) if own[i]]
        out += [*itertools.pairwise(ids), *zip(ids, ids[2:])]
        if len(out) >= n:
            break
    return np.array(out[:n], np.int64)


ODD = (
    "'", "'s", "'S", "'\u017f", "'re", "'RE", "'r", "'v", "'l", "'ll", "''", "s", "t", "d", "ve", " ", "  ", "   ", "\n", "\r\n", "\r",
    "\t", " \n", "\u00a0", "\u3000", "\u2028", "\x85", "\x1c", "\x0b", "1", "12", "1234", " 7", "\u0663", "\u00b2", "\u2167", "a",
    "The", " the", "ing", "foo", " Foo", "BAR", "xY", "\u00e9", "\u00df", "\u65e5", "\u672c\u8a9e", "\u091c", "\u093f", "\u0301",
    "\u01c5", "\u02b0", "\u0130", "\u212a", "!", "/", "//", "...", "_", "(", ")", '{"', '": ', "\ud55c", "\U0001f642",
    "\U0001f44d\U0001f3fd", "\u200d", "\x00", "\ufeff", "\U00010400", "=", "==", "--",
)  # fmt: skip
"""Pieces on which splitters and encoders have been wrong."""

SCRIPTS = (
    (0x20, 0x7F), (0xA0, 0x250), (0x370, 0x400), (0x400, 0x530), (0x530, 0x590), (0x590, 0x600), (0x600, 0x700), (0x900, 0x980),
    (0xE00, 0xE80), (0x10A0, 0x1100), (0x1100, 0x1200), (0x1F00, 0x2000), (0x2000, 0x2100), (0x3040, 0x3100), (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A4), (0x1F300, 0x1F650),
)  # fmt: skip
"""Ranges of code points of common scripts."""


def texts(rng: np.random.Generator, n: int, tokens: tuple[bytes, ...], documents: list[str]) -> Iterator[tuple[str, str]]:
    """(kind, text): odd pieces; ASCII with much space; joined tokens; any code points; one script; pieces of documents."""
    whole = [t for t in tokens if t and _is_text(t)]
    plain = [chr(c) for c in range(32, 127)] + [" ", "\n", "'", " ", "e", "s"] * 12
    for i in range(n):
        kind = ("odd", "ascii", "tokens", "any", "script", "document")[i % 6]
        if kind == "odd":
            text = "".join(ODD[k] for k in rng.integers(len(ODD), size=rng.integers(1, 9)))
        elif kind == "ascii":
            text = "".join(plain[k] for k in rng.integers(len(plain), size=rng.integers(1, 16)))
        elif kind == "tokens":
            text = b"".join(whole[k] for k in rng.integers(len(whole), size=rng.integers(1, 4))).decode()
        elif kind == "any":
            size = int(rng.integers(1, 7))
            points = np.where(rng.random(size) < 0.5, rng.integers(0, 0x3100, size), rng.integers(0, 0x110000, size))
            text = "".join(chr(c) for c in points if not 0xD800 <= c < 0xE000)
        elif kind == "script":
            low, high = SCRIPTS[rng.integers(len(SCRIPTS))]
            points = np.where(rng.random(12) < 0.2, 32, rng.integers(low, high, 12))
            text = "".join(map(chr, points[: rng.integers(1, 13)]))
        else:
            document = documents[rng.integers(len(documents))]
            start = int(rng.integers(len(document)))
            text = document[start : start + int(rng.integers(1, 25))]
        yield kind, text


def _is_text(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


def segmentations(filter_: Any, data: bytes, ids: Mapping[bytes, list[int]], longest: int) -> list[tuple[int, ...]]:
    """All token sequences that spell `data` and that a `TokenFilter` accepts."""
    layers: list[dict[tuple[int, int], list[tuple[int, ...]]]] = [{} for _ in range(len(data) + 1)]
    layers[0][-1, 0] = [()]
    for begin in range(len(data)):
        for (last, state), paths in layers[begin].items():
            for end in range(begin + 1, min(len(data), begin + longest) + 1):
                for token in ids.get(data[begin:end], ()):
                    after = filter_.step(state, last, token)
                    if after >= 0:
                        layers[end].setdefault((token, after), []).extend((*path, token) for path in paths)
    return [path for (_, state), paths in layers[-1].items() if filter_.final(state) for path in paths]
