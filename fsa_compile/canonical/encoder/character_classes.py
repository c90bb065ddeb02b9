"""Which code points a one-character pattern matches, asked of the encoder's own regular-expression engine.

Engines of different versions class thousands of code points differently, so canonical means canonical for one build of one
engine; the answers are kept on disk by the package's version.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from importlib import metadata

import numpy as np

from fsa_compile.canonical.encoder.encoder import Engine
from fsa_compile.inputs.files import replacing
from fsa_compile.tokenizers.tokenizer import require
from fsa_compile.vocabulary.vocabulary_tables import cache_folder

NUM_CODE_POINTS = 0x110000
SURROGATES = slice(0xD800, 0xE000)
_PART = 200_000


def members(item: str, engine: Engine) -> np.ndarray:
    """Which code points a one-character pattern matches.

    Args:
      item: such as `\\p{L}`.
      engine: the package that interprets it.

    Returns:
      bool[0x110000]; False for surrogates.

    Raises:
      TokenizerError: the package is missing.
    """
    return _members(item, engine, engine_version(engine))


def engine_version(engine: Engine) -> str:
    """Version of the package behind an engine."""
    require(engine)
    return metadata.version(engine)


@functools.lru_cache(maxsize=64)
def _members(item: str, engine: Engine, version: str) -> np.ndarray:
    digest = hashlib.sha256(f"{engine} {version} {item}".encode()).hexdigest()[:32]
    if len(item) == 1:  # a literal
        found = np.zeros(NUM_CODE_POINTS, bool)
        found[ord(item)] = True
        return _frozen(found)
    folder = cache_folder()
    path = None if folder is None else folder / f"characters-{digest}.npy"
    if path is not None:
        with contextlib.suppress(OSError, ValueError):
            packed = np.load(path, allow_pickle=False)
            if packed.shape == (NUM_CODE_POINTS // 8,) and packed.dtype == np.uint8:
                return _frozen(np.unpackbits(packed).astype(bool))
    found = _probe_tiktoken(item) if engine == "tiktoken" else _probe_tokenizers(item)
    if path is not None:
        with contextlib.suppress(OSError):  # a disk that cannot be written only costs time
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                np.save(file, np.packbits(found), allow_pickle=False)
    return _frozen(found)


def _frozen(found: np.ndarray) -> np.ndarray:
    found.flags.writeable = False
    return found


def _texts() -> list[tuple[int, str]]:
    """All code points in a few texts, with the first of each."""
    points = np.concatenate([np.arange(SURROGATES.start), np.arange(SURROGATES.stop, NUM_CODE_POINTS)])
    out = []
    for low in (0, *range(SURROGATES.start, len(points), _PART)):
        high = SURROGATES.start if low == 0 else low + _PART
        part = points[low:high]
        out.append((int(part[0]), part.astype("<u4").tobytes().decode("utf-32-le")))
    return out


def _probe_tiktoken(item: str) -> np.ndarray:
    """With an alphabet of single bytes, the encoder writes exactly the characters that its pattern matches."""
    tiktoken = require("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("characters", pat_str=item, mergeable_ranks=ranks, special_tokens={})
    found = np.zeros(NUM_CODE_POINTS, bool)
    for _, text in _texts():
        matched = bytes(encoding.encode_ordinary(text)).decode()
        found[np.frombuffer(matched.encode("utf-32-le"), "<u4")] = True
    return found


def _probe_tokenizers(item: str) -> np.ndarray:
    tokenizers = require("tokenizers")
    # Runs of matching characters are few; single ones would be a million Python objects.
    cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(f"(?:{item})+"), "removed", invert=True)
    found = np.zeros(NUM_CODE_POINTS, bool)
    for _, text in _texts():
        for run, _ in cut.pre_tokenize_str(text):
            found[np.frombuffer(run.encode("utf-32-le"), "<u4")] = True
    return found
