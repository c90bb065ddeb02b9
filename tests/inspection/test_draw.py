"""Drawings: every arc and state is there, summarised where there are too many, and plots can be made without a display."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
from oracles.collisions import collisions

import fsa_compile
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
    assert {"a, b, ␣the", '"\\', "24 tokens: c, d, e, f, g, h, …"} == labels
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
    text = draw.to_dot(dfa, pieces=True)
    assert 'label="a-z"' in text
    assert r'label="\\xc3"' in text
    assert len(draw.build_graph(dfa, pieces=True).edges) == 3
    whole = draw.build_graph(dfa)
    assert ({label for _, _, label in whole.edges}, whole.merged, whole.hidden) == ({"a-z", "é"}, 1, 0)


def test_a_foreign_vocabulary_is_refused():
    with pytest.raises(ArtifactError):
        draw.to_dot(compile_regex("a", VOCABULARY), Vocabulary.from_tokens([b"a"]))


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_labels_over_all_arcs(tmp_path):
    drawing = fsa_compile.draw(compile_regex('x[a-z]*( the|y)', VOCABULARY), VOCABULARY)
    drawing.save(tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    arcs, labels = svg.split('<g class="labels"')
    plain = subprocess.run(["dot", "-Tsvg"], input=drawing.dot.encode(), capture_output=True, check=True).stdout.decode()
    assert labels.count("<text") + arcs.count("<text") == plain.count("<text")
    assert labels.count("<text") >= len(drawing.graph.edges)
    assert "<path" not in labels
    assert len(ElementTree.fromstring(svg)) == 1


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
    assert {"a, b", r"\$x\$", "1"} <= texts
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


def test_languages_and_automata_of_pynini_are_drawn():
    pynini = pytest.importorskip("pynini")
    of_pattern = draw.draw(regex("ab?"))
    assert of_pattern.graph.edges == draw.draw(regex("ab?").to_byte_dfa()).graph.edges
    assert draw.draw(pynini.accep("ab")).graph.edges == ((0, 1, "a"), (1, 2, "b"))
    weighted = draw.draw(pynini.accep("a", weight=2.0) | pynini.accep("b")).graph
    assert any(name.endswith("/2") for name in weighted.names.values())
    assert "/2" in draw.graph_to_dot(weighted)
    assert draw.draw(pynini.cross("a", "é")).graph.edges[0][2] == "a:\\xc3"
    arcs = pynini.union(*(pynini.accep(c) for c in "abcdeéx")).optimize()
    assert draw.draw(arcs).graph.edges[0][2] == "a-e, x"
    symbols = pynini.SymbolTable()
    for symbol in ("<eps>", "yes", "no"):
        symbols.add_symbol(symbol)
    labelled = pynini.accep("yes no", token_type=symbols)
    labelled.set_input_symbols(symbols)
    labelled.set_output_symbols(symbols)
    assert [label for *_, label in draw.draw(labelled).graph.edges] == ["yes", "no"]
    assert draw.draw(pynini.Fst()).graph.nodes == (0,)  # nothing in it


@pytest.mark.parametrize("pattern", ['"[^"]*"', "(é|ß|[一-龥])+", "[^a-z]", "\\\\p{Lu}x", "a.?b", "[\ud7ff\ue000]", "😀*é"])
def test_characters_are_whole(pattern):
    """Labels without byte by byte: the states inside a character are counted, and every label is of characters."""
    dfa = regex(pattern).to_byte_dfa()
    graph, bytewise = draw.build_graph(dfa, max_nodes=99), draw.build_graph(dfa, max_nodes=99, pieces=True)
    assert len(graph.nodes) + graph.merged == len(bytewise.nodes)
    assert graph.hidden == bytewise.merged == 0
    assert not any(re.search(r"\\\\x[89a-f]", label) for *_, label in graph.edges)


def test_sets_of_characters_in_words():
    label = lambda pattern: draw.build_graph(regex(pattern).to_byte_dfa()).edges[0][2]  # noqa: E731
    assert label("[^,]") == 'any but ","'
    assert label("(?s).") == "any character"
    assert label("[,;a-c é-ü]") == 'space, ",", ";", a-c, é-ü'
    assert label(r"(?s)[^\ud7ff]") == r"any but \ud7ff"
    assert label("[acegikmoqsuwy]") == "a, c, e, g, i, k, … 7 more"
    everything = fsa_compile.acceptor(pynini_bytes())
    assert draw.build_graph(everything.to_byte_dfa()).edges[0][2] == r"\x80-\xff"


def pynini_bytes():
    """Any single byte above 127: no character of UTF-8."""
    pynini = pytest.importorskip("pynini")
    return pynini.union(*(pynini.accep(f"[{byte}]") for byte in range(128, 256))).optimize()


def test_tokens_inside_characters_are_merged():
    tokens = [*(bytes([b]) for b in range(256)), "é".encode(), b""]
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=[257])
    constraint = compile_regex('"[^"]*"', vocabulary)
    graph = draw.build_graph(constraint, vocabulary)
    assert (len(graph.nodes), graph.hidden) == (3, 0)
    assert graph.merged == constraint.num_nodes - 4
    assert next(label for a, b, label in graph.edges if a == b).endswith("; characters in several tokens")
    assert "inside characters" in graph.remark
    assert len(draw.build_graph(constraint, vocabulary, max_nodes=99, pieces=True).nodes) == constraint.num_nodes - 1


def test_pictures_stay_readable_by_themselves():
    constraint = compile_regex("[a-z]{1,30}|( the|a){40}", VOCABULARY)
    graph = draw.build_graph(constraint, VOCABULARY, max_nodes=None)
    assert len(graph.edges) <= 24 < len(draw.build_graph(constraint, VOCABULARY, max_nodes=40).edges)
    assert len(graph.nodes) + graph.hidden == constraint.num_nodes - 1
    assert {a for a, b, _ in graph.edges} | {b for a, b, _ in graph.edges} <= set(graph.nodes)


def test_the_module_can_be_called():
    assert fsa_compile.draw(regex("ab")).graph == draw.draw(regex("ab")).graph


def test_pictures_are_saved(tmp_path):
    pytest.importorskip("matplotlib")

    picture = draw.draw(regex("ab?"))
    for ending, start in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".dot", b"digraph")):
        picture.save(tmp_path / f"picture{ending}")
        assert (tmp_path / f"picture{ending}").read_bytes().startswith(start)
    with pytest.raises(ConstraintError, match=r"\.jpeg"):
        picture.save(tmp_path / "picture.jpeg")


@pytest.mark.parametrize("seed", range(12))
def test_labels_lie_on_nothing(seed):
    """Random automata with long labels: rendered boxes of labels touch neither each other nor a state."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    edges = {(int(rng.integers(0, i)), i) for i in range(1, n)}
    edges |= {(int(a), int(b)) for a, b in rng.integers(0, n, (n, 2))}
    words = ["a", '"', "no, yes", "1,896 tokens: a, b, c, …; characters in several tokens", "‹list#1›, NUMBER", "ε:a"]
    labelled = tuple((a, b, words[int(rng.integers(len(words)))]) for a, b in sorted(edges))
    graph = draw.Graph(tuple(range(n)), frozenset({n - 1}), labelled, 3, frozenset({0}))
    assert collisions(draw.plot_graph(graph)) == []


@pytest.mark.parametrize("pattern", [r'"([^"\\]|\\.)*"', "(yes|no)!*", "[a-z]+( the)*", "(a|b)*c?", r"\d{4}-\d\d-\d\d"])
def test_pictures_of_defaults_are_small_and_clear(pattern):
    tokens = [*(bytes([b]) for b in range(256)), b"yes", b"no", b'":', b'",', b""]
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=[260])
    for drawn in (regex(pattern), compile_regex(pattern, vocabulary)):
        graph = draw.draw(drawn, vocabulary).graph
        figure = draw.plot_graph(graph)
        assert collisions(figure) == []
        assert max(figure.get_size_inches()) < 20
        assert np.prod(figure.get_size_inches()) < 80


def test_an_axes_of_ones_own():
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 2, figsize=(9, 3))
    for ax, pattern in zip(axes, ("(ab|c)*", '"[^"]*"')):
        assert collisions(draw.plot_automaton(regex(pattern), ax=ax)) == []


def test_the_oracle_of_collisions_sees_them():
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    ax.text(0.5, 0.5, "one label")
    ax.text(0.52, 0.5, "another")
    assert len(collisions(figure)) == 1
