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
_OF_GEMMA_4 = {
    48: "<|tool_call>", 49: "<tool_call|>", 50: "<|tool_response>", 51: "<tool_response|>", 52: '<|"|>', 100: "<|channel>",
    101: "<channel|>", 105: "<|turn>", 106: "<turn|>",
}  # fmt: skip
"""Special tokens of Gemma 4: the package fixes the ids of 50, 105 and 106."""


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
    our_tokenizer = fsa_compile.load_tokenizer(path)
    return Small(
        gm=gm,
        model=gm.nn.Gemma3_1B(config=official_gemma.official_config(ours.config), dtype=jnp.float32),
        params=params,
        tokenizer=gm.text.Gemma3Tokenizer(path=str(path)),
        path=str(path),
        ours=dataclasses.replace(ours, params=params, vocabulary_fingerprint=our_tokenizer.vocabulary.fingerprint),
        our_tokenizer=our_tokenizer,
    )


def gemma_4_tokenizer(folder: Path) -> str:
    """Path of the small tokenizer's file with the special tokens of Gemma 4 at their ids, which it writes to a folder.

    What is there takes the places of long pieces.
    """
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(small_tokenizer_path().read_bytes())
    pieces = proto.pieces
    for place, name in ((4, "<mask>"), (5, "[multimodal]")):
        pieces[place].piece = name
    kinds = type(pieces[0])
    normal = [i for i, piece in enumerate(pieces) if piece.type == kinds.NORMAL and i not in _OF_GEMMA_4]
    longest = sorted(normal, key=lambda i: -len(pieces[i].piece))
    for (place, name), freed in zip(_OF_GEMMA_4.items(), longest):
        pieces[freed].CopyFrom(pieces[place])
        pieces[place].CopyFrom(kinds(piece=name, score=0.0, type=kinds.USER_DEFINED))
    path = folder / "gemma4.model"
    path.write_bytes(proto.SerializeToString())
    return str(path)
