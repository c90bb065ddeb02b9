"""Are canonical judgements the encoders' own, and what do the tables cost? Raw counts and times as JSON.

    CONSTRAX_DATA=/path/to/data python benchmarks/canonical.py [--names gpt2 llama3] [--pairs 1000000] [--texts 100000]

pairs: (a, b) is judged canonical exactly when the library encodes their joint bytes, as one piece, to [a, b]. Uniform pairs, ends
of merge trees that share a merge, halves of tokens, runs of one character, whole rows, tokens with late parts, neighbours from
texts. Pairs whose joint bytes are a token that merging does not reach are counted apart: encoders return it as a whole.
texts: of *all* token sequences that spell a text, exactly the encoder's own is accepted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from oracles.library_encoders import NAMES, pair_kinds, piece_encoder, segmentations, text_pairs, texts  # noqa: E402

from fsa_compile.canonical.encoder.encoder_sources import encoder_of  # noqa: E402
from fsa_compile.canonical.encoder.merge_trees import merge_trees  # noqa: E402
from fsa_compile.canonical.filter import canonical_tables as tables_module  # noqa: E402
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, build_tables, canonical_tables  # noqa: E402
from fsa_compile.tokenizers import Tokenizer, load_tokenizer  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=list(NAMES))
    parser.add_argument("--pairs", type=int, default=1_000_000, help="pairs of each tokenizer, of all kinds together")
    parser.add_argument("--texts", type=int, default=100_000, help="texts of each tokenizer")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "canonical.json")
    args = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA") or HERE.parents[1] / "shared" / "data")
    versions = {name: metadata.version(name) for name in ("numpy", "tiktoken", "tokenizers", "sentencepiece")}
    result: dict[str, Any] = {"python": platform.python_version(), "versions": versions, "tokenizers": {}}
    for name in args.names:
        tokenizer = load_tokenizer(data / "tokenizers" / name)
        found = result["tokenizers"][name] = {"cost": cost(tokenizer)}
        print(name, json.dumps(found["cost"]), flush=True)
        encoder = encoder_of(tokenizer)
        tables = build_tables(encoder)
        found["pairs"] = check_pairs(name, data, tokenizer, tables, args.pairs)
        print(name, json.dumps(found["pairs"]), flush=True)
        if tables.unicode_form is None:
            found["texts"] = check_texts(name, data, tokenizer, tables, args.texts)
            print(name, json.dumps(found["texts"]), flush=True)
        args.output.write_text(json.dumps(result, indent=1) + "\n")


def cost(tokenizer: Tokenizer) -> dict[str, Any]:
    """Seconds of CPU to make the tables with empty caches and to read them again, and bytes on disk."""
    before = os.environ.get("CONSTRAX_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CONSTRAX_CACHE"] = folder
        tables_module._memory.clear()
        start = time.process_time()
        tables = canonical_tables(tokenizer)
        made = time.process_time() - start
        tables_module._memory.clear()
        start = time.process_time()
        canonical_tables(tokenizer)
        read = time.process_time() - start
        size = max(path.stat().st_size for path in Path(folder).glob("canonical-*.npz"))
    os.environ.pop("CONSTRAX_CACHE")
    if before is not None:
        os.environ["CONSTRAX_CACHE"] = before
    tables_module._memory.clear()
    count = np.diff(tables.rule.set_offset)[tables.rule.set_of[tables.rule.own]]
    return {
        "make_cpu_s": round(made, 3), "read_cpu_s": round(read, 3), "disk_bytes": size, "tokens": tables.vocab_size,
        "own_form": int(tables.rule.own.sum()), "unmerged": len(tables.unmerged),
        "forbidden_sets": len(tables.rule.set_offset) - 1, "intervals": len(tables.rule.begin),
        "intervals_per_token": {str(p): int(np.percentile(count, p)) for p in (50, 99, 100)},
        "splitter_states": 0 if tables.splitter is None else len(tables.splitter.next),
    }  # fmt: skip


def documents(data: Path) -> list[str]:
    with gzip.open(data / "maskbench_dev.jsonl.gz", "rt") as lines:
        return [json.dumps(json.loads(line)["schema"], ensure_ascii=False, indent=2) for _, line in zip(range(200), lines)]


def check_pairs(name: str, data: Path, tokenizer: Tokenizer, tables: CanonicalTables, count: int) -> dict[str, Any]:
    encode, tokens, rule = piece_encoder(name, data), tokenizer.vocabulary.tokens, tables.rule
    encoder = encoder_of(tokenizer)
    unmerged = {tokens[token] for token in tables.unmerged}
    trees = merge_trees(encoder.table)
    kinds = pair_kinds(rule, trees, encoder.table, tokens, np.random.default_rng(0), count // 4)
    kinds["text"] = text_pairs(lambda text: encode(text.encode()), documents(data), rule.own, count // 4)
    out: dict[str, Any] = {}
    for kind, pairs in kinds.items():
        tally = {"pairs": len(pairs), "forbidden": 0, "whole_tokens_apart": 0, "wrong": 0}
        for (a, b), never in zip(pairs.tolist(), rule.forbidden(pairs[:, 0], pairs[:, 1]).tolist()):
            joint = tokens[a] + tokens[b]
            apart = joint in unmerged
            tally["forbidden"] += never
            tally["whole_tokens_apart"] += apart
            tally["wrong"] += not apart and (encode(joint) != [a, b]) != never
        out[kind] = tally
    return out


def check_texts(name: str, data: Path, tokenizer: Tokenizer, tables: CanonicalTables, count: int) -> dict[str, Any]:
    ids: dict[bytes, list[int]] = {}
    for i, token in enumerate(tokenizer.vocabulary.tokens):
        if token:
            ids.setdefault(token, []).append(i)
    encode = tokenizer.encode
    if name == "llama2":  # without the space that it puts before a text
        piece = piece_encoder(name, data)
        encode = lambda text: piece(text.encode())  # noqa: E731
    out: dict[str, Any] = {}
    for kind, text in texts(np.random.default_rng(1), count, tokenizer.vocabulary.tokens, documents(data)):
        tally = out.setdefault(kind, {"texts": 0, "own_refused": 0, "other_accepted": 0, "read_in_two_ways": 0})
        if "▁" in text and name == "llama2":
            continue  # the encoder reads it as a space
        want, found = tuple(encode(text)), segmentations(tables.filter, text.encode(), ids, 512)
        tally["texts"] += 1
        tally["own_refused"] += want not in found
        tally["other_accepted"] += bool(set(found) - {want})
        tally["read_in_two_ways"] += len(found) != len(set(found))
    return out


if __name__ == "__main__":
    main()
