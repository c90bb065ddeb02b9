"""Reads the exchanges between devices off a compiled program. A part of `tpu_aot_sharded.py` and `vocabulary_shards.py`."""

from __future__ import annotations

import math
import re

_KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute|collective-broadcast"
_CALL = re.compile(rf"= (.*?) ({_KINDS})(?:-start)?\(")
_SHAPE = re.compile(r"\b(pred|[a-z]+(\d+))\[([\d,]*)\]")


def collectives(text: str) -> list[dict]:
    """Kind of every exchange in a program's HLO, the bytes it leaves on each device, and shapes; those in loops once."""
    found = []
    for shapes, kind in _CALL.findall(text):
        arrays = _SHAPE.findall(shapes)
        sizes = [math.prod(int(n) for n in dims.split(",") if n) * int(bits or 8) // 8 for _, bits, dims in arrays]
        found.append({"kind": kind, "bytes": max(sizes, default=0), "shapes": shapes})
    return found
