"""How many bytes do many different JSON Schemas take in one table, and how many without sharing bit rows by content?

    CONSTRAX_DATA=... python benchmarks/shared_rows.py [--schemas 256]

Over MaskBench's development schemas and Llama 3's tokenizer. Writes `benchmarks/results/shared_rows.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
from numpy.typing import NDArray

import fsa_compile
import jax_decode
from jax_decode.tables import concatenation

RESULTS = Path(__file__).parent / "results" / "shared_rows.json"
DATA = Path(os.environ.get("CONSTRAX_DATA", Path(__file__).parents[2] / "shared" / "data"))


class Apart(concatenation._Rows):
    """Every row by itself, as before rows were shared."""

    def numbers(self, rows: NDArray[np.uint32]) -> NDArray[np.int32]:
        first = len(self.kept)
        self.kept += list(rows)
        return np.arange(first, first + len(rows), dtype=np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=256)
    args = parser.parse_args()
    tokenizer = fsa_compile.load_tokenizer(DATA / "tokenizers" / "llama3" / "tokenizer.model")
    with gzip.open(DATA / "maskbench_dev.jsonl.gz", "rt") as file:
        texts = list(dict.fromkeys(json.dumps(json.loads(line)["schema"]) for line in file))
    random.Random(0).shuffle(texts)
    constraints = []
    for text in texts:
        if len(constraints) < args.schemas and len(text) < 6000:
            try:
                constraints.append(fsa_compile.compile_json_schema(json.loads(text), tokenizer))
            except ValueError as error:
                print(str(error)[:100])
    report = {"schemas": len(constraints), "vocabulary": constraints[0].vocab_size, "jax": jax.__version__}
    for name, rows in (("shared", concatenation._Rows), ("apart", Apart)):
        begin = time.process_time()
        with mock.patch.object(concatenation, "_Rows", rows):
            tables = jax_decode.to_device(constraints)
        line = {"bytes": tables.nbytes, "bytes_of_rows": tables.rows.nbytes, "profile": str(tables.profile)}
        report[name] = {**line, "to_device_cpu_s": round(time.process_time() - begin, 1)}
        print(name, report[name], flush=True)
        del tables
    report["ratio"] = round(report["shared"]["bytes"] / report["apart"]["bytes"], 4)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    print(report["ratio"])


if __name__ == "__main__":
    main()
