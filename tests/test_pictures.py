"""The figures of the documentation are what the library draws; what reports and pictures refuse. (`test_readme` runs the page.)"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import fsa_compile
import jax_decode
from fsa_compile import detokenize, draw
from fsa_compile.inspection.draw_transducer import transducer_graph

plt = pytest.importorskip("matplotlib.pyplot")
DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "figures"


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def words(path: Path) -> list[str]:
    return sorted(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8")))


def test_what_cannot_be_measured_is_an_error():
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a"], stop_ids=[0])
    tables = jax_decode.to_device(fsa_compile.compile_regex("a", vocabulary))
    with pytest.raises(jax_decode.DecodeError, match="nothing to measure"):
        jax_decode.step_report(tables, repeats=0)
    with pytest.raises(jax_decode.DecodeError, match="1 logits are fewer than the vocabulary's 2 ids"):
        jax_decode.step_report(tables, logits_width=1)


def test_the_figures_are_the_library_s(tmp_path):
    """All but the one that runs the model: the same words in the same pictures."""
    spec = importlib.util.spec_from_file_location("make_figures", FIGURES / "make_figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    drawn = [name for name in figures.FIGURES if name != "flow"]
    figures.make(tmp_path, drawn)
    for name in drawn:
        assert words(tmp_path / f"{name}.svg") == words(FIGURES / f"{name}.svg") != [], f"make figures: {name}"
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(r"\(figures/(\w+)\.svg\)", page.read_text(encoding="utf-8"))}
    assert shown - {"layers"} == set(figures.FIGURES) == {path.stem for path in FIGURES.glob("*.svg")} - {"layers"}  # tests/test_layers.py


def test_transducers_are_drawn_whole():
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a", b"ab", b"abc", b"\xc3"], stop_ids=[0])
    for fst, states in ((detokenize.build_trie(vocabulary), 3), (detokenize.build_cycles(vocabulary), 4)):
        graph = transducer_graph(fst, vocabulary)
        assert (len(graph.nodes), graph.hidden, graph.accepting) == (states, 0, frozenset({0}))
        assert sum(label.count(":") for _, _, label in graph.edges) == sum(fst.num_arcs(state) for state in fst.states())
    assert {label for _, _, label in transducer_graph(detokenize.build_trie(vocabulary), vocabulary).edges} == {
        "a:a, \\xc3:\\xc3", "ε:a", "ab:b", "ε:b", "abc:c",
    }  # fmt: skip
    cut = transducer_graph(fst, vocabulary, max_nodes=2)
    assert (len(cut.nodes), cut.hidden, len(cut.cut)) == (2, 2, 1 if cut.nodes[1] else 2)
    assert draw.graph_to_dot(graph).count("doublecircle") == 1


def test_a_notebook_shows_text_where_nothing_draws(monkeypatch):
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a"], stop_ids=[0])
    picture = draw.draw(fsa_compile.compile_regex("a", vocabulary), vocabulary)
    monkeypatch.setattr(draw.shutil, "which", lambda name: None)
    assert set(picture._repr_mimebundle_()) == {"image/png"}
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    assert picture._repr_mimebundle_() == {"text/plain": picture.dot}
