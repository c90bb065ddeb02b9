"""Grammars in the jitted loop: random models that love brackets, many budgets and depths in one batch, real parsers as judges."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import grammar_judges as judges
from oracles.earley import Recogniser
from oracles.grammar_checks import grammar_of

import fsa_compile
import jax_decode
from fsa_compile import library
from jax_decode import Status

OPENING = (b"(", b"[", b"{", b'"', b"'", b"<", b"if", b"SELECT", b"CASE", b"NOT", b"-")
JUDGES = {
    "arithmetic": judges.is_arithmetic,
    "json": judges.is_json,
    "json_compact": judges.is_compact_json,
    "json_object": judges.is_json_object,
    "python_values": judges.is_python_value,
    "sql_select": judges.sqlite_reads,
    "tags": judges.is_tagged,
}
"""Parsers that know nothing of the grammar; for the other ones there is the recogniser alone, which judges them all."""
EXTRA_TOKENS, EXTRA_DEPTH = (0, 3, 10, 28), (0, 2, 30)


def bracket_lover(vocabulary: fsa_compile.Vocabulary, seed: int) -> jax_decode.FunctionDecoder:
    """A random bigram model that adds much to the logits of tokens with opening brackets, most to those with many."""
    opening = [max((data.count(b) for b in OPENING), default=0) for data in vocabulary.tokens]
    first, second = jax.random.split(jax.random.key(seed))
    params = (
        jax.random.normal(first, (vocabulary.size, 8), jnp.float32),
        jax.random.normal(second, (8, vocabulary.size), jnp.float32),
        jnp.asarray(3 * np.minimum(opening, 3), jnp.float32),
    )
    return jax_decode.FunctionDecoder(_logits, params, lambda batch, length: jnp.zeros((batch,), jnp.int32), vocabulary.size)


def _logits(params, tokens, cache, lengths):
    return params[0][tokens] @ params[1] + params[2], cache + lengths


@pytest.mark.exhaustive
@pytest.mark.parametrize(("family", "passes"), [("gpt2", 4), ("llama3", 1)])
def test_every_sequence_is_complete_and_parses(family: str, passes: int, data_dir, exhaustive: bool) -> None:
    """600 sequences in all; by default 48 over some of the grammars."""
    if family != "gpt2" and not exhaustive:
        pytest.skip("the larger vocabulary is for --exhaustive")
    vocabulary = fsa_compile.load_tokenizer(data_dir / "tokenizers" / family).vocabulary
    names = library.names() if exhaustive else ("arithmetic", "json", "python_values", "tags")
    constraints = [fsa_compile.compile_grammar(library.grammar_text(n), vocabulary, **library.options(n)) for n in names]
    tables = jax_decode.to_device(constraints)
    rows = [
        (i, constraints[i].shortest_completion + 1 + tokens, constraints[i].shortest_depth + depth)
        for i in range(len(names))
        for tokens in EXTRA_TOKENS
        for depth in EXTRA_DEPTH
    ]
    recognisers = {name: Recogniser(grammar_of(name)) for name in names}
    texts = set()
    for seed in range(passes if exhaustive else 1):
        out = jax_decode.generate(
            bracket_lover(vocabulary, seed),
            [[7 * i] for i in range(len(rows))],
            tables,
            key=jax.random.key(seed),
            constraint=[i for i, _, _ in rows],
            max_new_tokens=[limit for _, limit, _ in rows],
            max_depth=[depth for _, _, depth in rows],
            sampler=jax_decode.Categorical(),
            raw_logprobs=False,
        )
        for (i, limit, depth), tokens, status in zip(rows, out.tokens, out.status):
            check_row(names[i], constraints[i], recognisers[names[i]], vocabulary, limit, depth, tokens, status)
            texts.add((names[i], tuple(tokens)))
    assert len(texts) > len(rows) // 2


def check_row(name, constraint, recogniser, vocabulary, limit, depth, tokens, status) -> None:
    """The row ended by itself, inside its limits, with a text that every judge reads."""
    data = b"".join(vocabulary.tokens[t] for t in tokens)
    what = (name, data, limit, depth)
    assert status == Status.ACCEPTED, (*what, status)
    assert len(tokens) <= limit, what
    walk = constraint.walk()
    deepest = max(len(at.stack) for at in walk.configurations)
    for token in tokens:
        walk.advance(int(token))
        deepest = max(deepest, min(len(at.stack) for at in walk.configurations))
    assert walk.accepting, what
    assert deepest <= depth, what
    assert recogniser.accepts(data), what
    assert JUDGES.get(name, bool_of)(data.decode()), what


def bool_of(text: str) -> bool:
    return True
