"""Published rank files, recognised by the SHA-256 of their content: splitting pattern, special and stop ids.

A rank file holds merges only. What is missing is public knowledge, written here once per family; any other file needs
it from the caller.

Source: the patterns and names published with the models: meta-llama/llama-models `llama3/tokenizer.py` and
`llama4/tokenizer.py`, QwenLM/Qwen `tokenization_qwen.py`, openai/tiktoken `openai_public.py`.
"""

from __future__ import annotations

import dataclasses

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How GPT-2 cuts a text into pieces before merging."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"

LLAMA3_PATTERN = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
"""Llama 3: words with one leading mark, numbers in threes."""

CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""cl100k: as Llama 3, except that white space at the very end of a text stays one piece."""

QWEN_PATTERN = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
"""Qwen: as Llama 3, but every digit alone."""

O200K_PATTERN = (
    rf"{_START}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_START}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
)
"""Llama 4 and o200k: words also end where lower case turns to upper case."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """What a rank file does not say; `unicode_form`: normal form the model's own encoder applies to a text first, or None."""

    name: str
    pattern: str
    special: dict[str, int]
    unicode_form: str | None = None


def find_family(sha256: str) -> Family | None:
    """The family of the rank file with this content hash (hex), or None."""
    return _BY_HASH.get(sha256)


def _numbered(names: list[str], first: int) -> dict[str, int]:
    return {f"<|{name}|>": first + i for i, name in enumerate(names)}


_LLAMA3 = [
    "begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "finetune_right_pad_id", "step_id",
    "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag", "image",
]  # fmt: skip
_LLAMA3 += [f"reserved_special_token_{i}" for i in range(2, 2 + 256 - len(_LLAMA3))]
_TEXT, _VISION, _REASONING = (f"{kind}_reserved_special_token_" for kind in ("text_post_train", "vision", "reasoning"))
_LLAMA4 = [
    *("begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix"),
    *("header_start", "header_end", "eom", "eot", "step"),
    *(f"{_TEXT}{i}" for i in range(6)),
    *("python_start", "python_end", "finetune_right_pad"),
    *(f"{_TEXT}{i}" for i in range(8, 69)),
    *("image_start", "image_end", f"{_VISION}0", f"{_VISION}1", "tile_x_separator", "tile_y_separator"),
    *(f"{_VISION}{i}" for i in range(2, 6)),
    *("image", f"{_VISION}6", "patch"),
    *(f"{_VISION}{i}" for i in range(7, 1048)),
    *(f"{_REASONING}{i}" for i in range(8)),
    *("reasoning_thinking_start", "reasoning_thinking_end"),
]
_LLAMA4 += [f"reserved_special_token_{i}" for i in range(2_048 - len(_LLAMA4))]
_QWEN = ["endoftext", "im_start", "im_end", *(f"extra_{i}" for i in range(205))]
_CL100K = _numbered(["endoftext", "fim_prefix", "fim_middle", "fim_suffix"], 100_257) | {"<|endofprompt|>": 100_276}
_O200K = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}

_BY_HASH = {
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": Family(
        name="llama3", pattern=LLAMA3_PATTERN, special=_numbered(_LLAMA3, 128_000)
    ),
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed": Family(
        name="llama4", pattern=O200K_PATTERN, special=_numbered(_LLAMA4, 200_000)
    ),
    "6cf5f2a2560a7d581548aeb0c31c6a60de2d3e873152346e421affc871699be4": Family(
        name="qwen", pattern=QWEN_PATTERN, special=_numbered(_QWEN, 151_643), unicode_form="NFC"
    ),
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": Family(
        name="r50k_base", pattern=GPT2_PATTERN, special={"<|endoftext|>": 50_256}
    ),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": Family(
        name="p50k_base", pattern=GPT2_PATTERN, special={"<|endoftext|>": 50_256}
    ),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": Family(
        name="cl100k_base", pattern=CL100K_PATTERN, special=_CL100K
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": Family(
        name="o200k_base", pattern=O200K_PATTERN, special=_O200K
    ),
}
