"""vLLM's backend: its masks are those of the constraints; in vLLM's own manager where that package is installed."""

from __future__ import annotations

import json
import re
import types

import numpy as np
import pytest

import fsa_compile
import models
from fsa_compile.errors import ConstraintError, MissingPackageError
from fsa_compile.interop import vllm_backend

KINDS = {
    "json": ('{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}', '{"a": 12}'),
    "json_object": ("", '{"any": ["thing"]}'),
    "regex": ("[a-z]{2,4}[0-9]", "abc7"),
    "choice": ('["red", "blue"]', "blue"),
    "grammar": ('root ::= "(" root ")" | "x"', "((x))"),
    "structural_tag": (
        '{"structures": [{"begin": "<f>", "schema": {"type": "boolean"}, "end": "</f>"}], "triggers": ["<f>"]}',
        "well: <f>true</f>",
    ),
}


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


def walked(grammar, tokens, width: int) -> list[bool]:
    """Whether the mask allows each token, in turn."""
    allowed, mask = [], np.zeros((2, -(-width // 32)), np.int32)
    for token in tokens:
        grammar.fill_bitmask(mask, 1)
        allowed.append(bool(mask[1, token >> 5] >> (token & 31) & 1))
        if not grammar.accept_tokens("request", [token]):
            break
    return allowed


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_masked_as_it_is_compiled(tokenizer, kind):
    spec, text = KINDS[kind]
    masks = vllm_backend.Masks(tokenizer)
    matcher = masks.matcher(kind, spec)
    matcher.fill_bitmask = matcher.fill_next_token_bitmask
    tokens = [*tokenizer.encode(text), tokenizer.vocabulary.stop_ids[0]]
    assert all(matcher.accept_tokens([token]) for token in tokens)
    assert matcher.is_terminated()
    assert masks.matcher(kind, spec).constraint is matcher.constraint


def test_stop_ids_are_those_of_the_request(tokenizer):
    masks = vllm_backend.Masks(tokenizer)
    special = sorted(set(tokenizer.vocabulary.special.values()) - set(tokenizer.vocabulary.stop_ids))[:1]
    matcher = masks.matcher("choice", '["red"]', set(special))
    assert matcher.stop_token_ids == special
    assert matcher.accept_tokens([*tokenizer.encode("red"), *special])
    text = next(i for i, data in enumerate(tokenizer.vocabulary.tokens) if data == b"a")
    with pytest.raises(ConstraintError, match="stop id"):
        masks.matcher("choice", '["red"]', {text})


def test_without_vllm_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    for call in (vllm_backend.backend_class.__wrapped__, vllm_backend.install):
        with pytest.raises(MissingPackageError, match="vllm"):
            call()
    monkeypatch.delenv("CONSTRAX_VLLM", raising=False)
    vllm_backend.plugin()  # does nothing where nobody asked


@pytest.fixture
def manager(tokenizer, monkeypatch):
    """vLLM's own manager, over this package's tokenizer, with the backend installed."""
    structured = pytest.importorskip("vllm.v1.structured_output", reason="vllm is not installed")
    monkeypatch.setenv("CONSTRAX_VLLM", "1")
    vllm_backend.plugin()
    monkeypatch.setattr(structured, "cached_tokenizer_from_config", lambda model_config: tokenizer)
    space = types.SimpleNamespace
    width = tokenizer.vocabulary.size
    config = space(
        parallel_config=space(distributed_executor_backend="external_launcher"),
        scheduler_config=space(max_num_seqs=8),
        model_config=space(skip_tokenizer_init=False, is_diffusion=False, get_vocab_size=lambda: width),
        structured_outputs_config=space(
            reasoning_parser_plugin="", reasoning_parser="", enable_in_reasoning=False, disable_any_whitespace=False
        ),
        num_speculative_tokens=0,
    )
    return structured.StructuredOutputManager(config)


def request_of(kind: str, spec: str, stop: int):
    """A request as vLLM's engine has it after its front end."""
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams
    from vllm.v1.structured_output.request import StructuredOutputRequest

    value = json.loads(spec) if kind == "choice" else True if kind == "json_object" else spec
    params = StructuredOutputsParams(**{kind: value})
    params._backend = "outlines"
    sampling = SamplingParams(structured_outputs=params, max_tokens=32)
    sampling._all_stop_token_ids = {stop}
    return types.SimpleNamespace(
        request_id=kind, sampling_params=sampling, structured_output_request=StructuredOutputRequest.from_sampling_params(sampling)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_vllms_manager_masks_with_it(manager, tokenizer, kind):
    spec, text = KINDS[kind]
    request = request_of(kind, spec, tokenizer.vocabulary.stop_ids[0])
    manager.grammar_init(request)
    grammar = request.structured_output_request.grammar
    assert isinstance(manager.backend, vllm_backend.backend_class())
    tokens = [*tokenizer.encode(text), tokenizer.vocabulary.stop_ids[0]]
    assert grammar.validate_tokens(tokens) == tokens
    assert walked(grammar, tokens, tokenizer.vocabulary.size) == [True] * len(tokens)
    assert grammar.is_terminated()
    grammar.rollback(len(tokens))
    assert not grammar.is_terminated()
    grammar.reset()
    bitmask = manager.backend.allocate_token_bitmask(3)
    grammar.fill_bitmask(bitmask, 2)
    allowed = np.unpackbits(bitmask[2].numpy().view(np.uint8), bitorder="little")[: tokenizer.vocabulary.size].astype(bool)
    assert (allowed == grammar.matcher.constraint.walk().allowed()).all()


def test_vllms_front_end_refuses_with_the_place(manager, tokenizer):
    from vllm.exceptions import VLLMValidationError

    check = __import__("vllm.v1.structured_output.backend_outlines", fromlist=["x"]).validate_structured_output_request_outlines
    for kind, (spec, _) in KINDS.items():
        check(request_of(kind, spec, 0).sampling_params)
    for kind, spec, said in (("json", '{"items": 5}', "#/structured_outputs/json"), ("regex", "(a", r"\(a"), ("grammar", "root ::= x", "x")):
        with pytest.raises(VLLMValidationError, match=said):
            check(request_of(kind, spec, 0).sampling_params)
    assert re.fullmatch(KINDS["regex"][0], KINDS["regex"][1])
