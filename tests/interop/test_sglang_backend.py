"""sglang-jax's grammar backend: its masks are those of the constraints; with that package's own classes where they are installed.

Elsewhere the base classes are stand-ins with the published methods: what the server calls, in the order in which it does.
"""

from __future__ import annotations

import concurrent.futures
import sys
import types

import numpy as np
import pytest

import fsa_compile
import models
from fsa_compile.errors import ConstraintError, MissingPackageError
from fsa_compile.interop import sglang_backend

SPECS = {
    ("json", '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}'): '{"a": 12}',
    ("json", "$$ANY$$"): '{"any": ["thing"]}',
    ("regex", "[a-z]{2,4}[0-9]"): "abc7",
    ("ebnf", 'root ::= "(" root ")" | "x"'): "((x))",
    ("structural_tag", '{"structures": [{"begin": "<f>", "schema": {"type": "boolean"}, "end": "</f>"}], "triggers": ["<f>"]}'): (
        "well: <f>true</f>"
    ),
}


class Grammar:
    """The state that every grammar has."""

    def __init__(self):
        self.finished = False


class Backend:
    """Compiles in threads, and keeps what was compiled."""

    def __init__(self, num_threads=4):
        self.executor = concurrent.futures.ThreadPoolExecutor(num_threads)
        self.cache = {}

    def get_cached_or_future_value(self, key):
        if key not in self.cache:
            return self.executor.submit(getattr(self, f"dispatch_{key[0]}"), key[1]), False
        return self.cache[key], True

    def set_cache(self, key, value):
        self.cache[key] = value


@pytest.fixture(params=["installed", "stand-in"])
def base(request, monkeypatch):
    """sglang-jax's module of base classes, or what stands for it."""
    if request.param == "installed":
        module = pytest.importorskip("sgl_jax.srt.constrained.base_grammar_backend", reason="sglang-jax with grammars is not installed")
        guidance = pytest.importorskip("sgl_jax.srt.constrained.llguidance_backend", reason="llguidance is not installed")
    else:
        module, guidance = types.ModuleType("base"), types.ModuleType("guidance")
        module.BaseGrammarObject, module.BaseGrammarBackend, module.INVALID_GRAMMAR_OBJ = Grammar, Backend, Grammar()
        for name in ("sgl_jax", "sgl_jax.srt", "sgl_jax.srt.constrained"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "sgl_jax.srt.constrained.base_grammar_backend", module)
        monkeypatch.setitem(sys.modules, "sgl_jax.srt.constrained.llguidance_backend", guidance)
    monkeypatch.setattr(guidance, "GuidanceBackend", None, raising=False)
    for made in (sglang_backend.grammar_class, sglang_backend.backend_class):
        made.cache_clear()
    sglang_backend.install()
    yield types.SimpleNamespace(module=module, backend=guidance.GuidanceBackend)
    for made in (sglang_backend.grammar_class, sglang_backend.backend_class):
        made.cache_clear()


@pytest.fixture(scope="module")
def tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


def made(backend, key):
    """A grammar as the scheduler gets it: from a thread, a copy of it kept for the next request."""
    value, hit = backend.get_cached_or_future_value(key)
    if hit:
        return value.copy()
    grammar = value.result(timeout=60)
    backend.set_cache(key, grammar.copy())
    return grammar


@pytest.mark.parametrize("key", SPECS)
def test_every_step_of_the_server_is_masked_exactly(base, tokenizer, key):
    backend = base.backend(tokenizer=tokenizer, n_vocab=tokenizer.vocabulary.size + 40)
    assert isinstance(backend, base.module.BaseGrammarBackend)
    width = tokenizer.vocabulary.size + 40
    for _again in range(2):
        grammar = made(backend, key)
        assert isinstance(grammar, base.module.BaseGrammarObject)
        walk = grammar.matcher.constraint.walk()
        for token in [*tokenizer.encode(SPECS[key]), tokenizer.vocabulary.stop_ids[0]]:
            assert not grammar.is_terminated()
            mask = grammar.allocate_vocab_mask(width, 3)
            assert mask.dtype == np.int32
            assert (mask == -1).all()
            grammar.fill_vocab_mask(mask, 1)
            bits = np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little").astype(bool)
            assert bits[[0, 2]].all()
            assert (bits[1, : tokenizer.vocabulary.size] == walk.allowed()).all()
            assert not bits[1, tokenizer.vocabulary.size :].any()
            grammar.accept_token(token)
            walk.advance(token)
        assert grammar.is_terminated()
        grammar.accept_token(0)  # the server goes on with a row whose text has ended
        grammar.rollback(1)
        assert not grammar.is_terminated()
        assert grammar.copy().matcher.tokens == []


def test_a_forbidden_token_is_an_error_and_changes_nothing(base, tokenizer):
    grammar = made(base.backend(tokenizer=tokenizer), ("regex", "[a-c]{3}"))
    with pytest.raises(ConstraintError, match="not allowed after 0 tokens"):
        grammar.accept_token(tokenizer.encode("x")[0])
    assert grammar.matcher.tokens == []


def test_what_cannot_be_enforced_is_invalid(base, tokenizer, caplog):
    backend = base.backend(tokenizer=tokenizer)
    for kind, spec, said in (("json", '{"items": 5}', "items"), ("json", "{", "json"), ("regex", "(a", r"(a"), ("ebnf", "root ::= x", "x")):
        caplog.clear()
        assert getattr(backend, f"dispatch_{kind}")(spec) is base.module.INVALID_GRAMMAR_OBJ
        assert said in caplog.text
    with pytest.raises(ConstraintError, match="white space"):
        base.backend(tokenizer=tokenizer, whitespace_pattern=" *")


def test_compact_json(base, tokenizer):
    grammar = made(base.backend(tokenizer=tokenizer, any_whitespace=False), ("json", '{"type": "array", "maxItems": 0}'))
    assert grammar.matcher.accept_tokens(tokenizer.encode("[]"))
    loose = made(base.backend(tokenizer=tokenizer), ("json", '{"type": "array", "items": {"type": "boolean"}}'))
    tight = made(base.backend(tokenizer=tokenizer, any_whitespace=False), ("json", '{"type": "array", "items": {"type": "boolean"}}'))
    text = tokenizer.encode("[true, true]")
    assert loose.matcher.accept_tokens(text)
    assert not tight.matcher.accept_tokens(text)


def test_without_the_package_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sgl_jax", None)
    for call in (sglang_backend.grammar_class.__wrapped__, sglang_backend.backend_class.__wrapped__):
        with pytest.raises(MissingPackageError, match="sglang-jax"):
            call()
