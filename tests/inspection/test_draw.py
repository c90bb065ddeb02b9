"""Drawings: every arc and state is there, summarised where there are too many, and plots can be made without a display."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

from fsa_compile import Vocabulary, compile_regex, draw, regex
from fsa_compile.errors import ArtifactError, ConstraintError
from fsa_compile.inspection.draw_layout import layout

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

TOKENS = [*(bytes([b]) for b in range(97, 123)), b" the", b"\xc3", b'"\\', b"$x$", b""]
VOCABULARY = Vocabulary.from_tokens(TOKENS, stop_ids=[len(TOKENS) - 1])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize("pattern", ["ab|cd", "(a|b)*c", "a{7}", "( the|a)+", "[a-z]{2}"])
def test_every_arc_is_drawn(pattern):
    constraint = compile_regex(pattern, VOCABULARY)
    graph = draw.build_graph(constraint, VOCABULARY, max_nodes=50)
    assert sorted(graph.nodes) == list(range(1, constraint.num_nodes))
    assert graph.accepting == set(np.flatnonzero(constraint.accept))
    assert (graph.hidden, graph.cut) == (0, frozenset())
    expected = {(n, int(t)) for n in graph.nodes for t in constraint.outgoing(n) if t}
    assert sorted((source, target) for source, target, _ in graph.edges) == sorted(expected)
    text = draw.to_dot(constraint, VOCABULARY)
    assert len(re.findall(r"\d+ -> \d+ \[label=", text)) == len(expected)
    assert text.count("doublecircle") == constraint.accept.sum()


def test_labels():
    constraint = compile_regex(r'( the|a|b)["][\\]|[c-z]', VOCABULARY)
    labels = {label for _, _, label in draw.build_graph(constraint, VOCABULARY).edges}
    assert {"a b ␣the", '"\\', "24 tokens: c d e f g h …"} == labels
    assert '[label="\\"\\\\"]' in draw.to_dot(constraint, VOCABULARY)
    assert {label for _, _, label in draw.build_graph(compile_regex("a", VOCABULARY)).edges} == {"0"}


def test_large_automata_are_cut():
    constraint = compile_regex("a{100}", VOCABULARY)
    graph = draw.build_graph(constraint, VOCABULARY, max_nodes=10)
    assert (len(graph.nodes), graph.hidden, len(graph.cut)) == (10, constraint.num_nodes - 11, 1)
    assert "… 91 more states" in draw.to_dot(constraint, VOCABULARY, max_nodes=10)
    with pytest.raises(ConstraintError, match="nothing to draw"):
        draw.to_dot(constraint, VOCABULARY, max_nodes=0)


def test_byte_automata():
    dfa = regex("[a-z]é?").to_byte_dfa()
    text = draw.to_dot(dfa)
    assert 'label="a-z"' in text
    assert r'label="\\xc3"' in text
    assert len(draw.build_graph(dfa).edges) == 3


def test_a_foreign_vocabulary_is_refused():
    with pytest.raises(ArtifactError):
        draw.to_dot(compile_regex("a", VOCABULARY), Vocabulary.from_tokens([b"a"]))


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_the_text():
    text = draw.to_dot(compile_regex(r'(" the|a|b)*["][\\]|[$]x[$]', VOCABULARY), VOCABULARY)
    subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, check=True)


@pytest.mark.parametrize("seed", range(20))
def test_layout_keeps_things_apart(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 15))
    edges = {(int(rng.integers(0, i)), i) for i in range(1, n)}  # each is reached from an earlier one
    edges |= {(int(a), int(b)) for a, b in rng.integers(0, n, (2 * n, 2))}
    place, bends = layout(range(n), sorted(edges))
    points = [*place.values(), *(p for way in bends.values() for p in way)]
    assert set(place) == set(range(n))
    for i, (x, y) in enumerate(points):
        for u, v in points[:i]:
            assert abs(x - u) > 1 or abs(y - v) > 0.8
    for i, way in bends.items():
        source, target = sorted(edges)[i]
        xs = [place[source][0], *(x for x, _ in way), place[target][0]]
        assert xs == sorted(xs)


def test_layout_of_an_acyclic_automaton_leads_rightwards():
    constraint = compile_regex("(ab|c)(d|ef)( the)?", VOCABULARY)
    graph = draw.build_graph(constraint, VOCABULARY)
    edges = [(source, target) for source, target, _ in graph.edges]
    place, _ = layout(graph.nodes, edges)
    assert all(place[source][0] < place[target][0] for source, target in edges)


def test_plots_hold_their_labels():
    constraint = compile_regex(r"(a|b)*([$]x[$])?", VOCABULARY)
    figure = draw.plot_automaton(constraint, VOCABULARY)
    texts = {t.get_text() for t in figure.axes[0].texts}
    assert {"a b", r"\$x\$", "1"} <= texts
    figure.canvas.draw()
    hidden = draw.plot_automaton(compile_regex("a{30}", VOCABULARY), VOCABULARY)
    assert "more" in hidden.axes[0].get_title()


def test_mask_plot():
    constraint = compile_regex("a[a-z]", VOCABULARY)
    walk = constraint.walk()
    masks = [walk.allowed()]
    for token in (0, 25):
        walk.advance(token)
        masks.append(walk.allowed())
    figure = draw.plot_mask(masks, VOCABULARY, ids=[0, 25, len(TOKENS) - 1])
    figure.canvas.draw()
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["'a'  0", "'z'  1", "end of text  2"]
    shown = axes.images[0].get_array()
    assert np.array_equal(~np.ma.getmaskarray(np.ma.masked_invalid(shown)), np.stack(masks))
    draw.plot_mask(masks, bins=7).canvas.draw()
    with pytest.raises(ConstraintError, match="no mask to draw"):
        draw.plot_mask([])


def test_notebooks_show_a_picture(monkeypatch):
    drawing = draw.draw(compile_regex("ab|c", VOCABULARY), VOCABULARY)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert drawing._repr_mimebundle_()["image/png"].startswith(b"\x89PNG")


def test_languages_and_acceptors_of_pynini_are_drawn():
    pynini = pytest.importorskip("pynini")

    of_pattern = draw.draw(regex("ab?"))
    assert of_pattern.graph.edges == draw.draw(regex("ab?").to_byte_dfa()).graph.edges
    assert draw.draw(pynini.accep("ab")).graph.edges == draw.draw(regex("ab").to_byte_dfa()).graph.edges
    with pytest.raises(ConstraintError, match="weight"):
        draw.draw(pynini.accep("ab", weight=2.0))


def test_pictures_are_saved(tmp_path):
    pytest.importorskip("matplotlib")

    picture = draw.draw(regex("ab?"))
    for ending, start in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".dot", b"digraph")):
        picture.save(tmp_path / f"picture{ending}")
        assert (tmp_path / f"picture{ending}").read_bytes().startswith(start)
    with pytest.raises(ConstraintError, match=r"\.jpeg"):
        picture.save(tmp_path / "picture.jpeg")
