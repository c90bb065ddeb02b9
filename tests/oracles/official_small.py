"""The shipped small model inside the official `gemma` package, with that package's own tokenizer class. Needs its environment.

The class fixes the ids of the turn tokens, 105 and 106; the small tokenizer has them at 4 and 5. They change places with what is
there, in the tokenizer's file and in the embedding's rows, so that nothing of the official package needs to be changed.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from oracles import official_gemma

import fsa_compile
import models
from models.small_model import small_tokenizer_path

EOS, END_OF_TURN = 1, 106
_SWAPPED = ((4, 105), (5, 106))


@dataclasses.dataclass(frozen=True)
class Small:
    """The official module `gm`, its model, parameters and tokenizer, and ours of the same parameters and file."""

    gm: Any
    model: Any
    params: Any
    tokenizer: Any
    path: str
    ours: Any
    our_tokenizer: Any

    @property
    def vocabulary(self) -> Any:
        return self.our_tokenizer.vocabulary

    def sampler(self, model: Any, params: Any, **options: Any) -> Any:
        """An unmodified `gm.text.Sampler`; one size of everything, so that the tests share compilations."""
        sizes = {"cache_length": 256, "max_out_length": 64, "pad_length": 64}
        return self.gm.text.Sampler(model=model, params=params, tokenizer=self.tokenizer, **(sizes | options))


def load(folder: Path) -> Small:
    """Everything of `Small`; writes the tokenizer's file to a folder."""
    from sentencepiece import sentencepiece_model_pb2

    gm = official_gemma.import_gm()
    proto = sentencepiece_model_pb2.ModelProto.FromString(small_tokenizer_path().read_bytes())
    ours = models.load_small()
    order = np.arange(ours.vocab_size)
    for a, b in _SWAPPED:
        pieces = [type(proto.pieces[0]).FromString(proto.pieces[i].SerializeToString()) for i in (b, a)]
        proto.pieces[a].CopyFrom(pieces[0])
        proto.pieces[b].CopyFrom(pieces[1])
        order[[a, b]] = [b, a]
    path = folder / "tokenizer.model"
    path.write_bytes(proto.SerializeToString())
    embedder = {**ours.params["embedder"], "input_embedding": ours.params["embedder"]["input_embedding"][order]}
    params = {**ours.params, "embedder": embedder}
    return Small(
        gm=gm,
        model=gm.nn.Gemma3_1B(config=official_gemma.official_config(ours.config), dtype=jnp.float32),
        params=params,
        tokenizer=gm.text.Gemma3Tokenizer(path=str(path)),
        path=str(path),
        ours=dataclasses.replace(ours, params=params),
        our_tokenizer=fsa_compile.load_tokenizer(path),
    )
