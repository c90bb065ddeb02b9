"""Runs the official `gemma` package on small random models and writes its logits as fixtures.

Needs the environment of `requirements-gemma3.txt` beside this file. From the repository root:
`PYTHONPATH=.:tests .venv-parity/bin/python tests/models/parity/make_fixtures.py`; it rewrites `fixtures/*.npz`.
"""

from __future__ import annotations

import json
import pathlib

import numpy as np
from oracles import official_gemma

from models import layouts
from models.tiny import VARIANTS, tiny_config

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def main() -> None:
    FIXTURES.mkdir(exist_ok=True)
    for seed, variant in enumerate(VARIANTS):
        config = tiny_config(variant)
        params, tokens = official_gemma.random_case(config, seed)
        arrays = {f"param:{name}": value for name, value in layouts.flatten(params).items()}
        logits = official_gemma.official_logits(config, params, tokens)
        file = FIXTURES / f"{variant}.npz"
        np.savez_compressed(
            file, config=np.array(json.dumps(config.to_json())), tokens=tokens, logits=logits, **arrays
        )
        print(f"{file.name}: {file.stat().st_size:,} bytes, logits std {logits.std():.3f}")


if __name__ == "__main__":
    main()
