"""What the mask took away: the probability that the model gave to forbidden tokens, step by step, as numbers, picture and page.

Nothing is computed again. At temperature 1 a token's log-probability among the allowed tokens is its raw one minus the logarithm
of the allowed tokens' mass; so the difference of the two that `generate` returns is that mass.

Source: Cognetta et al. 2025, §5, on the probability mass of a constraint; here for every step of one text.
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from fsa_compile.artifact.palette import ALLOWED, CHOSEN, FORBIDDEN
from jax_decode.decoding.result import Generation
from jax_decode.decoding.row_pages import END, STYLE, Steps, row_as_html, shown, steps_of, texts_of, vocabulary_of
from jax_decode.errors import DecodeError, MissingPackageError

__all__ = ["Steps", "plot_flow", "steps_of", "to_html"]


def plot_flow(generation: Generation, tokenizer: Any = None, row: int = 0, *, ax: Any = None) -> Any:
    """A bar per step: the chosen token's probability, that of the other allowed tokens, and what the mask took away.

    Args:
      generation: from `generate`.
      tokenizer: as in `Generation.text`.
      row: which row.
      ax: matplotlib axes; None makes some.

    Returns:
      The axes.

    Raises:
      MissingPackageError: matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise MissingPackageError("matplotlib", "Plotting", "notebooks") from error
    steps = steps_of(generation, row)
    if ax is None:
        ax = plt.subplots(figsize=(max(5.0, 0.35 * len(steps.tokens) + 1.0), 3.4), layout="constrained")[1]
    at = np.arange(len(steps.tokens))
    others = np.maximum(1.0 - steps.forbidden - steps.raw_probability, 0.0)
    ax.bar(at, steps.raw_probability, color=CHOSEN, label="chosen")
    ax.bar(at, others, bottom=steps.raw_probability, color=ALLOWED, label="other allowed tokens")
    ax.bar(at, steps.forbidden, bottom=1.0 - steps.forbidden, color=FORBIDDEN, label="forbidden")
    names = texts_of(steps.tokens, vocabulary_of(generation, tokenizer), generation.stop_token[row])
    shown_names = [_drawable(shown(text)) for text in names]
    if generation.stop_token[row] is not None:
        shown_names[-1] = END
    ax.set_xticks(at, shown_names, rotation=90, family="monospace")
    ax.set_ylim(0, 1)
    ax.set_ylabel("probability under the model")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9)
    return ax


def _drawable(text: str) -> str:
    """A text that matplotlib writes as it is: no formulas, and code points for the characters that its font lacks."""
    from matplotlib import font_manager

    known = font_manager.get_font(font_manager.findfont("monospace")).get_charmap()
    return "".join(r"\$" if c == "$" else c if ord(c) in known else f"U+{ord(c):04X}" for c in text)


def to_html(generation: Generation, tokenizer: Any = None, *, title: str = "Generation", constraint: Any = None) -> str:
    """A page about all rows: each text with its tokens coloured by what the mask took away, and a table of the steps.

    Args:
      generation: from `generate`, with raw log-probabilities.
      tokenizer: as in `Generation.text`.
      title: of the page.
      constraint: the artifact that all rows have, to say how many tokens were allowed at every step; None leaves that out.

    Returns:
      A page of HTML that needs nothing else.
    """
    if not isinstance(generation, Generation):
        raise DecodeError(f"a {type(generation).__name__} is no result of generate", fix="Pass what generate returned.")
    rows = [row_as_html(generation, tokenizer, row, _checked(constraint)) for row in range(len(generation))]
    name = html.escape(str(title))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>{STYLE}</style></head>\n'
        f"<body><h1>{name}</h1>\n<p>The stronger the colour of a token, the more probability the model had given to tokens that "
        "were not allowed there. Underlined are tokens chosen where the limit allowed fewer.</p>\n"
        + "\n".join(rows) + "\n</body></html>\n"
    )


def _checked(constraint: Any) -> Any:
    if constraint is None or hasattr(constraint, "walk"):
        return constraint
    what = f"'constraint' is a {type(constraint).__name__}, not a compiled constraint"
    raise DecodeError(what, fix="Pass the one that all rows have; leave it out where rows have different ones.")
