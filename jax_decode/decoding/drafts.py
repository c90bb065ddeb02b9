"""Where drafts come from: a smaller model, or the text so far. How they are verified is `verification`'s business."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.errors import named_fields
from jax_decode.decoding.inputs import check_decoder
from jax_decode.errors import DecodeError, checked_flag, is_whole, shown
from jax_decode.tables.tables import ConstraintTables

MAX_DRAFT = 32
"""Most tokens that may be drafted before one pass of the target."""


@named_fields
@dataclasses.dataclass(frozen=True)
class ModelDraft:
    """Drafts by a smaller model over the same tokens.

    The text has the distribution it has without drafts; with `Greedy` it is the same text, as long as the model gives a block the
    logits that it gives single tokens.

    Attributes:
      decoder: the draft model, see `Decoder`; it needs `rewind`.
      length: tokens it samples before each pass of the target, 1..32. Lengths in one bucket (1, 2, 4, 8 …) share a compilation.
      share_penalties: the draft samples inside the constraint, and its masks serve the target too. False leaves the draft
        without constraint, for measurements: forbidden drafts are then rejected by the target.
      same_noise: draft and target draw with the same noise, and a draft is accepted where both draw the same token. The text is
        then, token for token, the one that decoding without a draft gives for the same key; somewhat fewer drafts are
        accepted. By default acceptance is by rejection sampling, which accepts the most that any method can.

    Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding, Algorithm 1; Koo et al. 2024,
    §5.3, for shared penalties; Daliri et al. 2025, Coupling without Communication, for the same noise.
    """

    decoder: Any
    length: Any = 4
    share_penalties: bool = True
    same_noise: bool = False


jax.tree_util.register_dataclass(ModelDraft, data_fields=["decoder", "length"], meta_fields=["share_penalties", "same_noise"])


@named_fields
@dataclasses.dataclass(frozen=True)
class PromptLookup:
    """Drafts copied from where the last few tokens stood before, in the prompt or in the text; no second model.

    A draft is accepted where the target draws the same token, so the text is the one without drafts, token for token.

    Attributes:
      length: most tokens before each pass of the target, 1..32; lengths in one bucket share a compilation.
      ngram: the longest match that is looked for; of equally long ones the last counts. Static.
      share_penalties: forbidden tokens end a draft. False drafts them all the same, for measurements.

    Source: Saxena 2023, Prompt Lookup Decoding.
    """

    length: Any = 4
    ngram: int = 3
    share_penalties: bool = True


jax.tree_util.register_dataclass(PromptLookup, data_fields=["length"], meta_fields=["ngram", "share_penalties"])


@named_fields
@dataclasses.dataclass(frozen=True)
class ForcedText:
    """Drafts what the constraint forces and nothing else; no second model.

    Between two places where there is something to decide, such as the keys and the punctuation of an object, the text is forced,
    while its tokens are not, because it can be cut in several ways. The longest tokens are drafted, and the model has the last
    word, as with `PromptLookup`: the text is the one without drafts, token for token. The tables must know the tokens' texts:
    `to_device(constraint, vocabulary=tokenizer)`. With such tables the other drafts begin with what is forced, too.

    Attributes:
      length: most tokens before each pass of the target, 1..32; lengths in one bucket share a compilation.

    Source: Cognetta et al. 2025, §3.3.1, where the model is not asked.
    """

    length: Any = 8

    @property
    def share_penalties(self) -> bool:
        """Forced texts come from the constraint: always."""
        return True


jax.tree_util.register_dataclass(ForcedText, data_fields=["length"], meta_fields=[])

Draft = ModelDraft | PromptLookup | ForcedText


def read_draft(draft: Any, decoder: Any, tables: ConstraintTables | None) -> tuple[Draft | None, int]:
    """The draft as it is traced, and the bucket of its length, 0 for None.

    Raises:
      DecodeError: it cannot be used with this decoder; says why.
    """
    if draft is None:
        return None, 0
    fix = "Give draft=ModelDraft(decoder, length), PromptLookup(length, ngram) or ForcedText(length)."
    if not isinstance(draft, Draft):
        raise DecodeError(f"the draft is {type(draft).__name__}", fix=fix)
    for name in ("share_penalties", "same_noise"):
        checked_flag(getattr(draft, name, False), f"{name} of the draft")
    length = _whole(draft.length, "the draft's length", MAX_DRAFT, fix)
    _check_rewind(decoder, "decoder")
    if isinstance(draft, ModelDraft):
        _check_model(draft.decoder, decoder, tables)
    elif isinstance(draft, ForcedText):
        if tables is None or not tables.spelling.shape[0]:
            fix = "Call to_device(constraint, vocabulary=tokenizer)."
            raise DecodeError("the tables do not know the texts of the tokens", fix=fix)
    else:
        _whole(draft.ngram, "the draft's ngram", MAX_DRAFT, fix)
    return dataclasses.replace(draft, length=jax.device_put(np.int32(length))), 1 << (length - 1).bit_length()


def _check_model(draft: Any, decoder: Any, tables: ConstraintTables | None) -> None:
    check_decoder(draft, None, "draft's decoder")
    _check_rewind(draft, "draft's decoder")
    need = decoder.vocab_size if tables is None else tables.vocab_size
    if draft.vocab_size < need or (tables is None and draft.vocab_size != need):
        raise DecodeError(
            f"the draft has {draft.vocab_size:,} logits, the model {decoder.vocab_size:,}",
            fix="Draft and model must share a tokenizer; without tables their logits must be equally many.",
        )


def _check_rewind(decoder: Any, what: str) -> None:
    if not hasattr(decoder, "rewind") or getattr(decoder, "rewind_fn", decoder) is None:
        raise DecodeError(
            f"the {what} ({type(decoder).__name__}) cannot take tokens back",
            fix="Give it a rewind method, or a FunctionDecoder its rewind_fn; forced runs alone (forced=8) need none.",
        )


def _whole(value: Any, what: str, most: int, fix: str) -> int:
    if not is_whole(value, 1, most):
        raise DecodeError(f"{what} is {shown(value)}, not a whole number from 1 to {most}", fix=fix)
    return int(value)


def look_up(tokens: jax.Array, end: jax.Array, ngram: int) -> jax.Array:
    """The token that followed where the last tokens of a row stood before, int32[B], -1 where they never did.

    Args:
      tokens: int32[B, H], the texts.
      end: int32[B], tokens of each row.
      ngram: tokens that are compared at most.
    """
    place = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    alike = place < end[:, None] - 1  # something follows
    score = jnp.zeros_like(tokens)
    for back in range(ngram):
        last = jnp.take_along_axis(tokens, jnp.maximum(end - 1 - back, 0)[:, None], axis=1)
        shifted = jnp.pad(tokens, ((0, 0), (back, 0)))[:, : tokens.shape[1]]
        alike &= (shifted == last) & (place >= back) & (end > back)[:, None]
        score += alike.astype(jnp.int32)
    longest = score.max(1)
    found = jnp.where((score == longest[:, None]) & (score > 0), place, -1).max(1)
    following = jnp.take_along_axis(tokens, jnp.minimum(found + 1, tokens.shape[1] - 1)[:, None], axis=1)[:, 0]
    return jnp.where(found >= 0, following, -1)
