"""Printed names that mark an id as markup of a chat model rather than text, and those that end a text.

A tokenizer file often does not say which ids end a text, and some files declare chat markup as ordinary pieces; the
names here are those of published models. Callers can override both with `special_tokens` and `stop_ids`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsa_compile.errors import TokenizerError

STOP_NAMES = frozenset(
    {
        "</s>",
        "<eos>",
        "[EOS]",
        "<|eos|>",
        "<end_of_turn>",  # Gemma 1 to 3
        "<turn|>",  # Gemma 4
        "<|endoftext|>",  # GPT-2, Qwen
        "<|im_end|>",  # Qwen
        "<|end_of_text|>",  # Llama 3, Llama 4
        "<|eom_id|>",
        "<|eot_id|>",
        "<|eom|>",
        "<|eot|>",
        "<|return|>",  # o200k_harmony
        "<|call|>",
        "<|end_of_turn|>",
        "<|END_OF_TURN_TOKEN|>",
        "<EOS_TOKEN>",
        "<｜end▁of▁sentence｜>",
    }
)
"""Names of ids after which a text is over, in published models."""

BOS_NAMES = ("<bos>", "<s>", "<|begin_of_text|>", "<BOS_TOKEN>", "<｜begin▁of▁sentence｜>")
"""Names of ids that start a text, in order of preference."""

_MARKUP = re.compile(
    r"<unused\d+>|<(?:start|end)_of_(?:turn|image)>|<(?:image|audio)_soft_token>"
    r"|<\|(?:turn|image|audio)\|?>|<(?:turn|image|audio)\|>|\[multimodal\]|\[@BOS@\]|<mask>|<2mass>"
    r'|<\|(?:tool|tool_call|tool_response|channel)>|<(?:tool|tool_call|tool_response|channel)\|>|<\|think\|>|<\|"\|>'  # Gemma 4
    r"|<(?:start|end)_function_(?:declaration|call|response)>|<escape>"  # FunctionGemma
)


def is_markup(name: str) -> bool:
    """Whether a piece declared as text is really markup of a known model (Gemma's turn, tool, image and unused ids).

    Args:
      name: the piece as printed.

    Returns:
      True for markup, which a constraint over text must never produce.
    """
    return name in STOP_NAMES or _MARKUP.fullmatch(name) is not None


def default_stop_ids(special: Mapping[str, int]) -> tuple[int, ...]:
    """The ids of `special` whose names end a text, ascending.

    Args:
      special: printed name -> id of the ids that are not text.

    Returns:
      Their ids.
    """
    return tuple(sorted({i for name, i in special.items() if name in STOP_NAMES}))


def default_bos_id(special: Mapping[str, int]) -> int | None:
    """The id of `special` whose name starts a text, or None."""
    return next((special[name] for name in BOS_NAMES if name in special), None)


def resolve_stop_ids(
    stop_ids: Iterable[int | str] | None, special: Mapping[str, int], default: Iterable[int]
) -> tuple[Any, ...]:
    """The stop ids a caller asked for, with names looked up; `default` when the caller asked for none in particular.

    Args:
      stop_ids: ids or printed names of special ids, or None.
      special: printed name -> id.
      default: what None means.

    Returns:
      The ids, unchecked apart from the names.

    Raises:
      TokenizerError: a name is not the name of a special id, or `stop_ids` is no list.
    """
    if stop_ids is None:
        return tuple(default)
    if isinstance(stop_ids, (str, bytes)) or not isinstance(stop_ids, Iterable):
        raise TokenizerError(
            f"stop_ids is {stop_ids!r}, not a list", fix='Give ids or names, such as [2] or ["</s>"].'
        )
    resolved = []
    for stop in stop_ids:
        if isinstance(stop, str) and stop not in special:
            raise TokenizerError(
                f"stop_ids names {stop!r}, which is not a special token",
                fix=f"Special tokens of this tokenizer: {_listed(special)}",
            )
        resolved.append(special[stop] if isinstance(stop, str) else stop)
    return tuple(resolved)


def named_ids(special_tokens: Mapping[str, int] | Sequence[str] | None, first: int) -> dict[str, int]:
    """The special tokens a caller listed, as a mapping from name to id.

    Args:
      special_tokens: name -> id, or names numbered on from `first`.
      first: id of the first name of a list.

    Returns:
      name -> id, empty for None.

    Raises:
      TokenizerError: neither a mapping from names to ids nor a list of distinct names.
    """
    if special_tokens is None:
        return {}
    pairs: list[tuple[Any, Any]] = [(None, None)]
    if isinstance(special_tokens, Mapping):
        pairs = list(special_tokens.items())
    elif isinstance(special_tokens, Sequence) and not isinstance(special_tokens, (str, bytes)):
        pairs = [(name, first + i) for i, name in enumerate(special_tokens)]
    right = all(
        isinstance(n, str) and isinstance(i, int) and not isinstance(i, bool) and i >= 0 for n, i in pairs
    )
    if not right or len({name for name, _ in pairs}) != len(pairs):
        raise TokenizerError(
            "special_tokens is neither a mapping from names to ids nor a list of distinct names",
            fix='Give {"<|endoftext|>": 50256}, or ["<|endoftext|>"] to number them after the last rank.',
        )
    return dict(pairs)


def _listed(names: Iterable[str], most: int = 12) -> str:
    shown = list(names)
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "") if shown else "none"
