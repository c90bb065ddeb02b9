"""How long does a turn with many tools take to compile, and how large is it, in every protocol?

    python benchmarks/protocols.py --data ../shared/data

Tools are the first functions of the Berkeley Function Calling Leaderboard with different names, over Llama 3's 128,000 tokens
with each protocol's special tokens. Processor time: the first compilation of a protocol, that of as many other tools, and
those of as many tools drawn from all of these at random: each tool is known then, and no such turn was asked for before.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from pathlib import Path

from fsa_compile import PROTOCOLS, compile_response, load_tokenizer

RESULTS = Path(__file__).parent / "results"


def tools_of(data: Path, count: int) -> list[dict]:
    """Descriptions of different tools."""
    found: dict[str, dict] = {}
    for name in ("simple_python", "multiple", "parallel"):
        for line in (data / "bfcl" / f"{name}.jsonl").read_text().splitlines():
            for function in json.loads(line)["function"] if line.strip() else ():
                found.setdefault(function["name"], function)
    return list(found.values())[:count]


def measured(protocol, data: Path, tools: list[dict], others: list[dict], repeats: int) -> dict:
    """Seconds of processor time, nodes, rows and bytes."""
    names = list(dict.fromkeys((*protocol.tokens, *protocol.stops)))
    ids = {name: 128_000 + place for place, name in enumerate(names)}
    stops = [ids[name] for name in protocol.stops]
    tokenizer = load_tokenizer(data / "tokenizers" / "llama3" / "tokenizer.model", special_tokens=ids, stop_ids=stops)
    seconds = []
    rng = random.Random(25)
    for given in (tools, others, *(rng.sample(tools + others, len(tools)) for _ in range(repeats))):
        begin = time.process_time()
        made = compile_response(tokenizer, protocol=protocol, tools=given)
        seconds.append(time.process_time() - begin)
    sizes = {"nodes": made.num_nodes, "rows": len(made.rows), "row_bytes": made.rows.shape[1] * 4, "bytes": made.nbytes}
    first, other, *later = (round(s, 3) for s in seconds)
    return {"protocol": protocol.name, "tools": len(tools), "first_s": first, "others_s": other, "later_s": later, **sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tools", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    every = tools_of(arguments.data, 2 * arguments.tools)
    tools, others = every[: arguments.tools], every[arguments.tools :]
    out = [measured(protocol, arguments.data, tools, others, arguments.repeats) for protocol in PROTOCOLS.values()]
    for row in out:
        size = f"{row['nodes']:7,} nodes  {row['bytes'] / 1e6:.2f} MB"
        again = statistics.median(row["later_s"])
        print(f"{row['protocol']:15} {row['others_s']:6.3f} s, again {again:6.3f} s  {size}")
    RESULTS.mkdir(exist_ok=True)
    about = {"python": platform.python_version(), "machine": platform.machine(), "time": "processor seconds"}
    (RESULTS / "protocols.json").write_text(json.dumps({"about": about, "rows": out}, indent=1) + "\n")


if __name__ == "__main__":
    main()
