"""What the mask took away, against sums over the model's own probabilities."""

from __future__ import annotations

import re

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
from jax_decode import report

LETTERS = [b"", *(bytes([i]) for i in range(97, 113))]


@pytest.fixture(scope="module")
def made():
    vocabulary = fsa_compile.Vocabulary.from_tokens(LETTERS, stop_ids=[0])
    constraint = fsa_compile.compile_regex("[a-f]{3}[b-p]*c", vocabulary)
    decoder = toy(len(LETTERS))
    out = jax_decode.generate(
        decoder,
        [[1, 2], [3]],
        jax_decode.to_device(constraint),
        max_new_tokens=8,
        key=jax.random.key(1),
        sampler=jax_decode.Categorical(),
    )
    return vocabulary, constraint, decoder, out


def test_forbidden_probability_is_the_sum_over_forbidden_tokens(made):
    _, constraint, decoder, out = made
    for row, prompt in enumerate(([1, 2], [3])):
        steps = report.steps_of(out, row)
        walk, text = constraint.walk(), list(prompt)
        for i, token in enumerate(steps.tokens):
            cache = decoder.init_cache(1, 16)
            logits, _ = decoder.apply(jax.numpy.array([text]), cache, jax.numpy.array([len(text)]))
            probabilities = np.asarray(jax.nn.softmax(logits[0, -1]))
            allowed = walk.allowed(8 - i)
            assert steps.forbidden[i] == pytest.approx(probabilities[~allowed].sum(), abs=1e-5)
            assert steps.probability[i] == pytest.approx(probabilities[token] / probabilities[allowed].sum(), rel=1e-4)
            walk.advance(int(token))
            text.append(int(token))


def test_the_page_has_every_token(made):
    vocabulary, constraint, _, out = made
    page = report.to_html(out, vocabulary, title="a < b", constraint=constraint)
    assert "<title>a &lt; b</title>" in page
    assert page.count("<h2>Row") == 2
    steps = sum(len(report.steps_of(out, row).tokens) for row in range(2))
    assert len(re.findall(r"<span style=", page)) == len(re.findall(r"<tr><td>\d", page)) == steps
    assert "<td>6</td></tr>" in page  # six letters may come first


def test_the_picture_adds_up(made):
    vocabulary, _, _, out = made
    ax = report.plot_flow(out, vocabulary, 1)
    heights = np.array([[bar.get_height() for bar in bars] for bars in ax.containers])
    np.testing.assert_allclose(heights.sum(0), 1, atol=1e-5)
    plt.close(ax.figure)


def test_what_cannot_be_reported_is_an_error(made):
    _, constraint, decoder, out = made
    with pytest.raises(jax_decode.DecodeError, match="no row 2"):
        report.steps_of(out, 2)
    bare = jax_decode.generate(decoder, [1], jax_decode.to_device(constraint), max_new_tokens=8, raw_logprobs=False)
    with pytest.raises(jax_decode.DecodeError, match="raw_logprobs=True"):
        report.steps_of(bare)
