"""Writes `fsa_compile/json_schema/formats.npz`: the automata of JSON Schema's formats. Run it when a pattern of a format changes.

    python -m tools.format_automata
"""

from __future__ import annotations

import numpy as np

from fsa_compile.json_schema.formats import FORMATS, LENGTH_APART, STORED, as_array, key_of, made, patterns_of


def every() -> list[tuple[str, ...]]:
    """The patterns of every automaton."""
    both = [patterns_of(name) for name in FORMATS] + [patterns_of(name, True) for name in LENGTH_APART]
    return sorted({tuple(patterns[:count]) for patterns in both for count in (1, len(patterns))})


if __name__ == "__main__":
    np.savez_compressed(STORED, **{key_of(*patterns): as_array(made(*patterns)) for patterns in every()})
