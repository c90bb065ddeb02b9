"""Printed names that mark an id as markup of a chat model rather than text, and those that end a text.

A tokenizer file often does not say which ids end a text, and some files declare chat markup as ordinary pieces; the
names here are those of published models. Callers can override both with `special_tokens` and `stop_ids`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsa_compile.errors import TokenizerError
from fsa_compile.vocabulary.vocabulary import MAX_TOKENS, Vocabulary

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
    """Whether a piece declared as text is really markup of a known model (Gemma's turn, tool, image and unused ids), which a
    constraint over text must never produce."""
    return name in STOP_NAMES or _MARKUP.fullmatch(name) is not None


def default_stop_ids(special: Mapping[str, int]) -> tuple[int, ...]:
    """The ids, ascending, of those special tokens whose names end a text."""
    return tuple(sorted({i for name, i in special.items() if name in STOP_NAMES}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What the caller of `load_tokenizer` says of the ids of any format; see there."""

    special_tokens: Mapping[str, int] | Sequence[str] | None = None
    stop_ids: Iterable[int | str] | None = None
    logits_width: int | None = None

    def special(self, first: int) -> dict[str, int]:
        """The special tokens that are listed: name -> id, those without an id numbered on from `first`.

        Raises:
          TokenizerError: they are neither a mapping from names to ids nor a list of distinct names.
        """
        given = self.special_tokens
        if given is None:
            return {}
        pairs: list[tuple[Any, Any]] = [(None, None)]
        if isinstance(given, Mapping):
            pairs = list(given.items())
        elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
            pairs = [(name, first + i) for i, name in enumerate(given[: MAX_TOKENS + 1])]
        right = all(isinstance(n, str) and isinstance(i, int) and not isinstance(i, bool) and i >= 0 for n, i in pairs)
        if not right or len({name for name, _ in pairs}) != len(pairs):
            raise TokenizerError(
                "special_tokens is neither a mapping from names to ids nor a list of distinct names",
                fix='Give {"<|endoftext|>": 50256}, or ["<|endoftext|>"] to number them after the last rank.',
            )
        return dict(pairs)

    def special_among(self, ids: Mapping[str, int], source: str) -> dict[str, int]:
        """The special tokens that are listed, of a tokenizer that has ids for all of its names.

        Raises:
          TokenizerError: as for `special`; one of them is no name of it, or has another id.
        """
        found = {}
        for name, token_id in self.special(0).items():
            own = ids.get(name)
            if own is None or (isinstance(self.special_tokens, Mapping) and own != token_id):
                raise TokenizerError(
                    f"special_tokens names {name!r}, which {'is no token' if own is None else f'has the id {own}'}",
                    where=source,
                    fix="Give the names of tokens of this tokenizer.",
                )
            found[name] = own
        return found

    def stops(self, special: Mapping[str, int], default: Iterable[int]) -> tuple[Any, ...]:
        """The end-of-text ids that are asked for, unchecked apart from names; `default` where none are.

        Raises:
          TokenizerError: a name is not that of a special token, or `stop_ids` is no list.
        """
        given = self.stop_ids
        if given is None:
            return tuple(default)
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise TokenizerError(f"stop_ids is {given!r}, not a list", fix='Give ids or names, such as [2] or ["</s>"].')
        resolved = []
        for stop in itertools.islice(given, MAX_TOKENS + 1):  # one too many is for the vocabulary to refuse
            if isinstance(stop, str) and stop not in special:
                raise TokenizerError(
                    f"stop_ids names {stop!r}, which is not a special token",
                    fix=f"Special tokens of this tokenizer: {_listed(special)}",
                )
            resolved.append(special[stop] if isinstance(stop, str) else stop)
        return tuple(resolved)

    def vocabulary(
        self, tokens: Iterable[bytes], special: Mapping[str, int], also_stop: Iterable[int] = (), bos_id: int | None = None
    ) -> Vocabulary:
        """The vocabulary of tokens and special tokens, a text being over after those asked for, else after `also_stop` and
        those whose names say so; it begins with `bos_id`, else with the one whose name says so."""
        if bos_id is None:
            bos_id = next((special[name] for name in BOS_NAMES if name in special), None)
        stops = self.stops(special, sorted({*also_stop, *default_stop_ids(special)}))
        return Vocabulary.from_tokens(tokens, special=special, stop_ids=stops, bos_id=bos_id, logits_width=self.logits_width)


def _listed(names: Iterable[str], most: int = 12) -> str:
    shown = list(names)
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "") if shown else "none"
