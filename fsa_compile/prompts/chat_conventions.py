"""How published chat models mark the turns of a conversation, for tokenizers whose files say nothing about it.

Each convention is the list of special tokens it needs and a function (messages, add_generation_prompt) → text, which raises
ValueError with the reason for messages that the model was not trained on.

Source: the formats are described on the models' own cards (Gemma, Llama 2, Llama 3, Llama 4, ChatML as used by Qwen).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, Any]]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        raise ValueError(f"the content of a message is {type(content).__name__}, not text")
    return content.strip()


def _turns(messages: Messages) -> tuple[str, list[tuple[str, str]]]:
    """The system message ("" for none) and the turns, which must begin with the user's and alternate."""
    system = ""
    rest = list(messages)
    if rest and rest[0]["role"] == "system":
        system = _text(rest.pop(0))
    turns = [(message["role"], _text(message)) for message in rest]
    for place, (role, _) in enumerate(turns):
        wanted = ("user", "assistant")[place % 2]
        if role != wanted:
            raise ValueError(f"message {place + bool(system)} is the {role}'s, but the {wanted}'s turn is due")
    return system, turns


def _gemma(messages: Messages, generate: bool) -> str:
    system, turns = _turns(messages)
    if system and turns:
        turns[0] = ("user", f"{system}\n\n{turns[0][1]}")
    names = {"assistant": "model", "user": "user"}
    body = "".join(f"<start_of_turn>{names[role]}\n{text}<end_of_turn>\n" for role, text in turns)
    return f"<bos>{body}" + ("<start_of_turn>model\n" if generate else "")


def _llama2(messages: Messages, generate: bool) -> str:
    system, turns = _turns(messages)
    if system and turns:
        turns[0] = ("user", f"<<SYS>>\n{system}\n<</SYS>>\n\n{turns[0][1]}")
    return "".join(f"<s>[INST] {text} [/INST]" if role == "user" else f" {text} </s>" for role, text in turns)


def _headed(start: str, before: str, after: str, end: str) -> Callable[[Messages, bool], str]:
    """Turns of any roles: a header with the role, two line breaks, the text, and an end marker."""

    def write(messages: Messages, generate: bool) -> str:
        body = "".join(f"{before}{message['role']}{after}\n\n{_text(message)}{end}" for message in messages)
        return start + body + (f"{before}assistant{after}\n\n" if generate else "")

    return write


def _chatml(messages: Messages, generate: bool) -> str:
    body = "".join(f"<|im_start|>{message['role']}\n{_text(message)}<|im_end|>\n" for message in messages)
    return body + ("<|im_start|>assistant\n" if generate else "")


CONVENTIONS: dict[str, tuple[tuple[str, ...], Callable[[Messages, bool], str]]] = {
    "gemma": (("<bos>", "<start_of_turn>", "<end_of_turn>"), _gemma),
    "llama2": (("<s>", "</s>"), _llama2),
    "llama3": (
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        _headed("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    "llama4": (
        ("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>"),
        _headed("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>"),
    ),
    "chatml": (("<|im_start|>", "<|im_end|>"), _chatml),
}
