"""Draws the figures of the documentation with the library itself.

`make figures`, or python docs/figures/make_figures.py FOLDER.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import fsa_compile
import jax_decode
import models
from fsa_compile import detokenize, draw, draw_grammar
from fsa_compile.inspection.draw_transducer import transducer_graph
from jax_decode import report

WORDS = [b"", b"a", b"b", b"c", b"ab", b"bb", b"bc", b"ba"]
VOCABULARY = fsa_compile.Vocabulary.from_tokens(WORDS, stop_ids=[0])
PATTERN = fsa_compile.regex("ab*c")
LISTS = 'start: list\nlist: "[" [value ("," value)*] "]"\nvalue: list | NUMBER\nNUMBER: /[0-9]+/'
ANSWER = r"(yes|no), because [a-z ]{3,60}\."


def byte_automaton() -> Any:
    return draw.plot_automaton(PATTERN.to_byte_dfa())


def detokenizer() -> Any:
    return draw.plot_graph(transducer_graph(detokenize.build_trie(VOCABULARY), VOCABULARY))


def token_automaton() -> Any:
    return draw.plot_automaton(fsa_compile.compile_language(PATTERN, VOCABULARY), VOCABULARY)


def frames() -> Any:
    return draw_grammar.plot_frames(LISTS)


def stack() -> Any:
    tokenizer = _tokenizer()
    lists = fsa_compile.compile_grammar(LISTS, tokenizer)
    return draw_grammar.plot_stack(lists, tokenizer, tokenizer.encode("[1,[2,[34]],[]]"))


def masks() -> Any:
    tokenizer = _tokenizer()
    walk = fsa_compile.compile_regex(ANSWER, tokenizer).walk()
    ids, seen = tokenizer.encode("no, because the kettle is red."), []
    for token in ids:
        seen.append(walk.allowed())
        walk.advance(token)
    return draw.plot_mask(seen, tokenizer, ids=ids)


def flow() -> Any:
    tokenizer = _tokenizer()
    tables = jax_decode.to_device(fsa_compile.compile_regex(ANSWER, tokenizer))
    prompt = tokenizer.encode("Question: Is the kettle red?\nAnswer: ")
    out = jax_decode.generate(models.load_small(), prompt, tables, max_new_tokens=48, bos_id=tokenizer.vocabulary.bos_id)
    return report.plot_flow(out, tokenizer).figure


def _tokenizer() -> Any:
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


FIGURES: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (byte_automaton, detokenizer, token_automaton, frames, stack, masks, flow)
}


def make(folder: Path, names: Iterable[str] = tuple(FIGURES)) -> None:
    """Writes figures as SVG files whose text stays text."""
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "constrax", "font.family": "sans-serif"}):
        for name in names:
            figure = FIGURES[name]()
            figure.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
            plt.close(figure)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
