"""The figures of the documentation are what the library draws; what reports and pictures refuse. (`test_readme` runs the page.)"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Literal

import pytest
from oracles.collisions import collisions

import fsa_compile
import jax_decode
import models
from fsa_compile import detokenize, draw, draw_grammar
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
    with pytest.raises(jax_decode.DecodeError, match="not measured with batch_size="):
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
        assert collisions(figures.FIGURES[name]()) == [], name
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(r"\(figures/(\w+)\.svg\)", page.read_text(encoding="utf-8"))}
    assert shown - {"layers"} == set(figures.FIGURES) == {path.stem for path in FIGURES.glob("*.svg")} - {"layers"}  # tests/test_layers.py


def test_the_notebooks_pictures_have_no_collisions():
    """What notebooks draw, drawn here: automata over the small model's tokens, frames, stacks by the fields' names."""
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    cities = fsa_compile.compile_choices(["Cologne", "Berlin", "Munich"], tokenizer)
    answer = fsa_compile.compile_type(Literal["yes", "no"] | None, tokenizer)
    cheer = fsa_compile.compile_regex("(yes|no)!*", tokenizer)
    for constraint, how in ((cities, {"max_nodes": 20, "max_labels": 2}), (answer, {}), (cheer, {})):
        assert collisions(draw.plot_automaton(constraint, tokenizer, **how)) == []
    arrays = 'start: array\narray: "[" [value ("," value)*] "]"\nvalue: array | NUMBER\nNUMBER: /[0-9]+/'
    assert collisions(draw_grammar.plot_frames(arrays)) == []
    order = {"properties": {"customer": {"type": "string"}, "items": {"items": {"properties": {"price": {"type": "number"}}}}}}
    constraint = fsa_compile.compile_json_schema(order, tokenizer)
    ids = tokenizer.encode('{"customer": "Ada", "items": [{"price": 18.99}, {"price": 2}], "other": [1, 2, {"a": "long enough for two lines"}]}')
    figure = draw_grammar.plot_stack(constraint, tokenizer, ids)
    assert len(figure.axes) > 1
    assert collisions(figure) == []
    names = {text.get_text() for ax in figure.axes for text in ax.texts}
    assert any(name.startswith("customer") for name in names)
    assert not any(name.startswith("frame ") for name in names)


def test_the_flow_says_where_the_text_ends():
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a", "龍".encode()], stop_ids=[0])
    tables = jax_decode.to_device(fsa_compile.compile_regex("aa龍", vocabulary))
    out = jax_decode.generate(models.tiny_gemma(vocab_size=3), [1], tables, max_new_tokens=9, bos_id=False)
    ax = jax_decode.report.plot_flow(out, vocabulary)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "a", "U+9F8D", "end of text"]
    figure = ax.figure
    figure.canvas.draw()
    legend, whole = ax.get_legend().get_window_extent(), figure.bbox
    assert whole.x0 <= legend.x0 < legend.x1 <= whole.x1
    assert whole.y0 <= legend.y0 < legend.y1 <= whole.y1
    assert 'class="end"' in jax_decode.report.to_html(out, vocabulary)


def test_one_palette():
    """Colours of pictures come from one module, and notebooks name none."""
    for path in (DOCS.parent / "notebooks").glob("*.py"):
        assert not re.search(r"#[0-9a-f]{6}\b|cmap=|tab:", path.read_text(encoding="utf-8")), path
        assert "plt." not in path.read_text(encoding="utf-8") or "draw.STYLE" in path.read_text(encoding="utf-8"), path
    for module in ("draw", "draw_grammar", "draw_transducer"):
        source = (DOCS.parent / "fsa_compile" / "inspection" / f"{module}.py").read_text(encoding="utf-8")
        assert not re.search(r'"#(?!f4f4f2)[0-9a-f]{6}"', source), module  # the background of a mask


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
