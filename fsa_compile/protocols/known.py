"""The protocols of published chat models, each with its source.

| Name | Models | A call |
| --- | --- | --- |
| `gemma4` | Gemma 4 | `<|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|>` |
| `functiongemma` | FunctionGemma | `<start_function_call>call:NAME{key:<escape>text<escape>}<end_function_call>` |
| `gemma3-json` | Gemma 3, as its guide prompts it | `{"name": NAME, "parameters": {...}}` |
| `gemma3-python` | likewise | `[NAME(key='text'), NAME(...)]` |
| `harmony` | gpt-oss | `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`, or `to=` first |
| `qwen3` | Qwen 2.5 and 3, Hermes 2 and 3 | `<tool_call>`, `{"name": NAME, "arguments": {...}}`, `</tool_call>`, a line each |
| `llama3` | Llama 3.1 to 3.3 | `{"name": NAME, "parameters": {...}}`; built-in tools behind `<|python_tag|>` |
| `llama3.2`, `llama4` | Llama 3.2 (1B, 3B), Llama 4 | `[NAME(key='text'), NAME(...)]` |
| `deepseek-v3` | DeepSeek V3 and R1 | `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, the arguments in a fence of JSON |
| `deepseek-v3.1` | DeepSeek V3.1 | `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>` |
| `mistral` | Mistral Small 3.2, Magistral, Devstral | `[TOOL_CALLS]NAME[ARGS]{...}` |
| `mistral-v3` | Mistral 7B v0.3, Nemo, Large 2 | `[TOOL_CALLS] [{"name": NAME, "arguments": {...}}]` |
| `phi4` | Phi-4-mini | `<|tool_call|>[{"name": NAME, "arguments": {...}}]<|/tool_call|>` |
| `olmo3` | OLMo 3 | `<function_calls>`, `NAME(key="text", other=true)` a line each, `</function_calls>` |
"""

from __future__ import annotations

from typing import Any

from fsa_compile.call_syntax.syntax import CallSyntax
from fsa_compile.errors import ConstraintError
from fsa_compile.protocols.protocol import Builtin, Calls, Protocol, Section

_THINK = Section(begin="<think>", end="</think>")
_PYTHON = CallSyntax("python")
_ANYWHERE = Section()
_QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"], "additionalProperties": False}


def _json_objects(**more: Any) -> Calls:
    return Calls(begin='{"name": "', middle='", "arguments": ', end="}", separator=", ", **more)


GEMMA4 = Protocol(
    name="gemma4",
    reasoning=Section(begin="<|channel>thought\n", end="<channel|>"),
    calls=Calls(
        begin="<|tool_call>call:", end="<tool_call|>", arguments=CallSyntax("marked", '<|"|>'), preamble=_ANYWHERE
    ),
    tokens=("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_response>", "<|turn>", "<turn|>"),
    stops=("<turn|>", "<|tool_response>", "<eos>"),
    source="ai.google.dev/gemma/docs/core/prompt-formatting-gemma4, and the chat template of Gemma 4, April 2026.",
)

FUNCTIONGEMMA = Protocol(
    name="functiongemma",
    calls=Calls(
        begin="<start_function_call>call:", end="<end_function_call>", arguments=CallSyntax("marked", "<escape>"),
        preamble=_ANYWHERE,
    ),
    tokens=(
        "<start_function_call>", "<end_function_call>", "<escape>", "<start_function_response>", "<start_of_turn>",
        "<end_of_turn>",
    ),
    stops=("<end_of_turn>", "<start_function_response>", "<eos>"),
    source="FunctionGemma formatting guide, ai.google.dev/gemma/docs/functiongemma, December 2025.",
)  # fmt: skip

_GEMMA3 = ("<start_of_turn>", "<end_of_turn>")

GEMMA3_JSON = Protocol(
    name="gemma3-json",
    calls=Calls(begin='{"name": "', middle='", "parameters": ', end="}", many=False),
    tokens=_GEMMA3,
    stops=("<end_of_turn>", "<eos>"),
    source="Function calling with Gemma, ai.google.dev/gemma/docs/capabilities/function-calling, 2025: JSON style; the prompt "
    "asks for one object.",
)

GEMMA3_PYTHON = Protocol(
    name="gemma3-python",
    calls=Calls(all_begin="[", all_end="]", separator=", ", arguments=_PYTHON),
    tokens=_GEMMA3,
    stops=("<end_of_turn>", "<eos>"),
    source="Function calling with Gemma, ai.google.dev/gemma/docs/capabilities/function-calling, 2025: Python style.",
)

HARMONY = Protocol(
    name="harmony",
    reasoning=Section(begin="<|channel|>analysis<|message|>", end="<|end|>"),
    content=Section(begin="<|channel|>final<|message|>"),
    calls=Calls(
        begin="<|channel|>commentary to=functions.", middle=" <|constrain|>json<|message|>", many=False,
        preamble=Section(begin="<|channel|>commentary<|message|>", end="<|end|>"),
        also=(
            Calls(begin=" to=functions.", middle="<|channel|>commentary <|constrain|>json<|message|>"),
            Calls(begin=" to=functions.", middle="<|channel|>commentary json<|message|>"),
        ),
    ),
    join="<|start|>assistant",
    tokens=("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"),
    stops=("<|return|>", "<|call|>"),
    source="OpenAI harmony response format, cookbook.openai.com/articles/openai-harmony, August 2025: the recipient behind the "
    "channel; before it, as its library renders calls, and as the chat template of gpt-oss does, which writes `json` alone.",
)  # fmt: skip

QWEN3 = Protocol(
    name="qwen3",
    reasoning=_THINK,
    calls=Calls(
        begin='<tool_call>\n{"name": "', middle='", "arguments": ', end="}\n</tool_call>", separator="\n", preamble=_ANYWHERE
    ),
    tokens=("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    stops=("<|im_end|>", "<|endoftext|>"),
    source="Chat template of Qwen3, May 2025 (of Hermes 2 Pro, NousResearch, March 2024, without reasoning).",
)

_PYTHON_TAG = "<|python_tag|>"
_LLAMA3 = (_PYTHON_TAG, "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>")

LLAMA3 = Protocol(
    name="llama3",
    calls=Calls(
        begin='{"name": "', middle='", "parameters": ', end="}", separator="; ",
        builtins={
            "brave_search": Builtin(begin=_PYTHON_TAG, middle=".call", parameters=_QUERY),
            "wolfram_alpha": Builtin(begin=_PYTHON_TAG, middle=".call", parameters=_QUERY),
            "code_interpreter": Builtin(begin=_PYTHON_TAG, text="code"),
        },
    ),
    tokens=_LLAMA3,
    stops=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    source="Llama 3.1 model card and prompt formats, llama.meta.com, July 2024; separator of calls: vLLM's parser llama3_json.",
)  # fmt: skip

LLAMA32 = Protocol(
    name="llama3.2",
    calls=Calls(all_begin="[", all_end="]", separator=", ", arguments=_PYTHON),
    tokens=_LLAMA3,
    stops=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    source="Llama 3.2 text prompt format, github.com/meta-llama/llama-models, September 2024: "
    "`[get_user_info(user_id=7890, special='black')]`.",
)

LLAMA4 = Protocol(
    name="llama4",
    calls=Calls(all_begin="[", all_end="]", separator=", ", arguments=_PYTHON),
    tokens=("<|python_start|>", "<|python_end|>", "<|eot|>", "<|eom|>", "<|header_start|>", "<|header_end|>"),
    stops=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
    source="Llama 4 prompt format, github.com/meta-llama/llama-models, April 2025: zero-shot function calling.",
)

_DEEPSEEK = (
    "<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
)  # fmt: skip

DEEPSEEK_V3 = Protocol(
    name="deepseek-v3",
    reasoning=_THINK,
    calls=Calls(
        all_begin="<｜tool▁calls▁begin｜>", all_end="<｜tool▁calls▁end｜>", begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        middle="\n```json\n", end="\n```<｜tool▁call▁end｜>", separator="\n", preamble=_ANYWHERE,
    ),
    tokens=_DEEPSEEK,
    stops=("<｜end▁of▁sentence｜>",),
    source="Chat templates of DeepSeek-V3, December 2024, and DeepSeek-R1, January 2025.",
)  # fmt: skip

DEEPSEEK_V31 = Protocol(
    name="deepseek-v3.1",
    reasoning=_THINK,
    calls=Calls(
        all_begin="<｜tool▁calls▁begin｜>", all_end="<｜tool▁calls▁end｜>", begin="<｜tool▁call▁begin｜>",
        middle="<｜tool▁sep｜>", end="<｜tool▁call▁end｜>", preamble=_ANYWHERE,
    ),
    tokens=_DEEPSEEK,
    stops=("<｜end▁of▁sentence｜>",),
    source="Model card of DeepSeek-V3.1, August 2025.",
)  # fmt: skip

_MISTRAL = ("[TOOL_CALLS]", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "</s>")

MISTRAL = Protocol(
    name="mistral",
    reasoning=Section(begin="[THINK]", end="[/THINK]"),
    calls=Calls(begin="[TOOL_CALLS]", middle="[ARGS]", call_id="[CALL_ID]", preamble=_ANYWHERE),
    tokens=(*_MISTRAL, "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
    stops=("</s>",),
    source="mistral-common, tokenizers v11 and v13, and the chat template of Mistral Small 3.2, June 2025.",
)

MISTRAL_V3 = Protocol(
    name="mistral-v3",
    calls=_json_objects(
        all_begin="[TOOL_CALLS] [", all_end="]", id_behind=', "id": "', preamble=_ANYWHERE,
        also=(_json_objects(all_begin="[TOOL_CALLS][", all_end="]", id_behind=', "id": "'),),
    ),
    tokens=_MISTRAL,
    stops=("</s>",),
    source="mistral-common, tokenizer v3; chat templates of Mistral-7B-Instruct-v0.3, May 2024, and of Mistral-Nemo, July 2024, "
    "which has no space before the list; both write ids of calls behind their arguments.",
)

PHI4 = Protocol(
    name="phi4",
    reasoning=_THINK,
    calls=_json_objects(
        all_begin="<|tool_call|>[", all_end="]<|/tool_call|>", preamble=_ANYWHERE,
        also=(
            Calls(
                all_begin="<|tool_call|>[", all_end="]<|/tool_call|>", begin='{"name":"', middle='","arguments":', end="}",
                separator=",",
            ),
        ),
    ),
    tokens=("<|tool_call|>", "<|/tool_call|>", "<think>", "</think>", "<|end|>", "<|user|>", "<|assistant|>", "<|endoftext|>"),
    stops=("<|end|>", "<|endoftext|>"),
    source="Model cards of Phi-4-mini-instruct, February 2025, and Phi-4-mini-reasoning, April 2025; without spaces as Ollama's "
    "template of phi4-mini writes calls. (vLLM's template prompts for another form, a list behind `functools`: not read.)",
)

OLMO3 = Protocol(
    name="olmo3",
    reasoning=_THINK,
    calls=Calls(
        all_begin="<function_calls>", all_end="</function_calls>", separator="\n", arguments=CallSyntax("keywords"),
        preamble=_ANYWHERE,
    ),
    tokens=("<function_calls>", "</function_calls>", "<think>", "</think>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    stops=("<|im_end|>", "<|endoftext|>"),
    source="Chat template of Olmo-3-7B-Instruct, November 2025: values by `tojson`; vLLM's parser olmo3.",
)  # fmt: skip

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        GEMMA4, FUNCTIONGEMMA, GEMMA3_JSON, GEMMA3_PYTHON, HARMONY, QWEN3, LLAMA3, LLAMA32, LLAMA4, DEEPSEEK_V3, DEEPSEEK_V31,
        MISTRAL, MISTRAL_V3, PHI4, OLMO3,
    )
}  # fmt: skip
"""By name."""

_TELLING = (
    ("harmony", ("<|constrain|>", "<|channel|>")),
    ("gemma4", ("<|tool_call>", "<tool_call|>")),
    ("functiongemma", ("<start_function_call>",)),
    ("deepseek-v3", ("<｜tool▁calls▁begin｜>",)),
    ("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral-v3", ("[TOOL_CALLS]",)),
    ("phi4", ("<|/tool_call|>",)),
    ("llama4", ("<|python_start|>",)),
    ("llama3", ("<|python_tag|>",)),
    ("qwen3", ("<|im_start|>",)),
    ("gemma3-json", ("<start_of_turn>",)),
)
"""Special tokens that tell a protocol, in the order in which they are looked for."""


def protocol_of(protocol: Any, vocabulary: Any, template: str = "") -> Protocol:
    """The protocol that a user names, or describes, or that a tokenizer's special tokens and chat template tell.

    Args:
      protocol: a `Protocol`, a name, or None.
      vocabulary: whose special tokens are looked at.
      template: text of the chat template, "" for none.

    Raises:
      ConstraintError: the name is not known, or nothing tells which it is; the error lists those known.
    """
    known = f"Known are {', '.join(PROTOCOLS)}; or describe one with Protocol(...)."
    if isinstance(protocol, Protocol):
        return protocol
    if protocol is None:
        if "<function_calls>" in template:
            return OLMO3
        for name, tokens in _TELLING:
            if all(token in vocabulary.special for token in tokens):
                return PROTOCOLS[name]
        if "<tool_call>" in template:
            return QWEN3
        what = "neither the special tokens of this tokenizer nor a chat template tell how its model writes calls"
        raise ConstraintError(what, fix=f"Say protocol=...: {known}")
    if protocol not in PROTOCOLS if isinstance(protocol, str) else True:
        raise ConstraintError(f"there is no protocol {protocol!r:.60}", fix=known)
    return PROTOCOLS[protocol]
