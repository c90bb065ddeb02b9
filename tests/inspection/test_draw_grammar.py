"""Drawings of grammars: frames, automata with a stack, and the stack along a text."""

from __future__ import annotations

import pytest

from fsa_compile import Vocabulary, compile_grammar, draw, draw_grammar, library
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.errors import ArtifactError, ConstraintError
from fsa_compile.grammar.grammar_machine import machine_of

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

VOCABULARY = Vocabulary.from_tokens([*(bytes([b]) for b in range(128)), b"((", b"))", b""], stop_ids=[130])
NESTED = 'start: "(" start ")" | "x"'


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def nested():
    return compile_grammar(NESTED, VOCABULARY)


def texts_of(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_frames():
    graphs = draw_grammar.frame_graphs(library.grammar_text("json"))
    assert next(iter(graphs)) == "start"
    assert len(graphs) == 3  # objects and arrays are called; values and members are written out
    labels = {name: {label for _, _, label in graph.edges} for name, graph in graphs.items()}
    assert any("‹array" in label and "‹object" in label and "STRING" in label for label in labels["start"])
    for name in graphs.keys() - {"start"}:
        assert any(("]" if "array" in name else "}") in label for label in labels[name])
        assert len(graphs[name].accepting) == 1
        assert all(s in graphs[name].nodes and t in graphs[name].nodes for s, t, _ in graphs[name].edges)


def test_large_frames_are_cut():
    graphs = draw_grammar.frame_graphs("start: " + " ".join(f'"{c}"' for c in "abcdefghij"), max_nodes=4)
    graph = graphs["start"]
    assert (len(graph.nodes), graph.hidden, len(graph.cut)) == (4, 7, 1)


def test_frames_with_special_tokens_and_other_syntaxes():
    assert any("start_of_turn" in e[2] for e in draw_grammar.frame_graphs('start: <start_of_turn> "a"')["start"].edges)
    assert next(iter(draw_grammar.frame_graphs('root ::= "a" root "b" | "c"'))) == "root"


def test_frames_can_be_plotted():
    figure = draw_grammar.plot_frames(NESTED)
    assert len(figure.axes) == 2
    assert any("‹start" in text for text in texts_of(figure))


def test_arcs_of_tokens_name_the_frames_they_enter_and_leave(nested):
    labels = {label for _, _, label in draw.build_graph(nested, VOCABULARY).edges}
    assert any("( +start" in label for label in labels)
    assert any("(( +start#1 +start#1" in label for label in labels)
    assert any("end of start" in label for label in labels)
    assert "end of start" in draw.to_dot(nested, VOCABULARY)


def test_machines():
    graph = draw.build_graph(machine_of(parse_grammar(NESTED)))
    labels = {label for _, _, label in graph.edges}
    assert any(label.startswith("( +start") for label in labels)
    assert {"x", ")"} <= labels
    assert any(label.startswith("end of start") for label in labels)
    assert len(graph.accepting) == 1
    assert len(draw.plot_automaton(machine_of(parse_grammar(NESTED))).axes) == 1


def test_bars_of_the_stack(nested):
    assert draw_grammar.stack_bars(nested, list(b"x")) == []
    bars = draw_grammar.stack_bars(nested, list(b"((x))"))
    assert [(level, begin, end) for level, begin, end, _ in bars] == [(0, 0, 5), (1, 1, 4)]
    assert [(level, begin) for level, begin, *_ in draw_grammar.stack_bars(nested, [128, ord("x"), 129])] == [(0, 0), (1, 0)]


def test_frames_of_the_same_name_that_follow_each_other():
    arrays = compile_grammar('start: "[" (start ("," start)*)? "]"', VOCABULARY)
    bars = draw_grammar.stack_bars(arrays, list(b"[[],[]]"))
    assert [(level, begin) for level, begin, *_ in bars] == [(0, 0), (1, 1), (1, 4)]


def test_the_stack_can_be_plotted(nested):
    figure = draw_grammar.plot_stack(nested, VOCABULARY, list(b"((x))"))
    assert sum("start" in text for text in texts_of(figure)) == 2
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["(", "(", "x", ")", ")"]
    assert draw_grammar.plot_stack(nested, VOCABULARY, [])


OUTLINE = r"""
start: item+
item: NAME _NL block?
block: _INDENT item+ _DEDENT
NAME: /[a-z]+/
_NL: /(\n *)+/
%declare _INDENT _DEDENT
%indent 1 3
"""


def test_the_lines_on_which_blocks_are_open():
    """For bytes, and for tokens that end a line and begin the next one."""
    text = b"a\n b\n\n  c\n  d\n e\nf\n g\n\n"
    outline = compile_grammar(OUTLINE, VOCABULARY)
    wanted = [(0, 1, 5), (0, 7, 7), (1, 3, 4)]
    assert draw_grammar.block_lines([bytes([b]) for b in text], draw_grammar.stack_bars(outline, text), "block") == wanted
    pieces = [b"a\n b", b"\n\n ", b" c\n", b"  d\n ", b"e\n", b"f\n ", b"g\n", b"\n"]
    joined = Vocabulary.from_tokens([*pieces, b""], stop_ids=[len(pieces)])
    bars = draw_grammar.stack_bars(compile_grammar(OUTLINE, joined), range(len(pieces)))
    assert draw_grammar.block_lines(pieces, bars, "block") == wanted
    figure = draw_grammar.plot_blocks(outline, VOCABULARY, list(text))
    assert texts_of(figure) == ["open frames of block", "1", "1", "2", "a", " b", "", "  c", "  d", " e", "f", " g"]
    assert texts_of(draw_grammar.plot_blocks(outline, VOCABULARY, list(b"a\n"))) == ["open frames of block", "a"]
    with pytest.raises(ConstraintError, match=r"no frame of a rule 'body'\n.*: block, item"):
        draw_grammar.plot_blocks(outline, VOCABULARY, list(text), rule="body")


def test_errors(nested):
    with pytest.raises(ConstraintError, match="token 41 is not allowed after 1 tokens"):
        draw_grammar.plot_stack(nested, VOCABULARY, list(b"()"))
    with pytest.raises(ArtifactError):
        draw_grammar.plot_stack(nested, Vocabulary.from_tokens([b"a"]), [])
