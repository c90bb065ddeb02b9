"""What the mask took away: the probability that the model gave to forbidden tokens, step by step, as numbers, picture and page.

Nothing is computed again. At temperature 1 a token's log-probability among the allowed tokens is its raw one minus the logarithm
of the allowed tokens' mass; so the difference of the two that `generate` returns is that mass.

Source: Cognetta et al. 2025, §5, on the probability mass of a constraint; here for every step of one text.
"""

from __future__ import annotations

import dataclasses
import html
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding.result import Generation
from jax_decode.errors import DecodeError, MissingPackageError

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; color: #222; }
.text { font: 15px/2 ui-monospace, monospace; white-space: pre-wrap; border: 1px solid #ccc; padding: 0.6em 0.8em; }
.text span { border-radius: 3px; padding: 1px 0; }
table { border-collapse: collapse; font-size: 13px; }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #eee; }
td:nth-child(2), th:nth-child(2) { text-align: left; font-family: ui-monospace, monospace; white-space: pre; }
summary { cursor: pointer; margin: 0.6em 0; }
""".strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of one row, the stop token included; n of them.

    Attributes:
      tokens: int32[n].
      probability: float64[n], of each token among the allowed ones.
      raw_probability: float64[n], among all.
      forbidden: float64[n], probability that the model gave to tokens that were not allowed; 0 for a row without constraint.
    """

    tokens: NDArray[np.int32]
    probability: NDArray[np.float64]
    raw_probability: NDArray[np.float64]
    forbidden: NDArray[np.float64]


def steps_of(generation: Generation, row: int = 0) -> Steps:
    """What happened at every step of a row.

    Raises:
      DecodeError: there is no such row, or the raw log-probabilities were left out (`raw_logprobs=False`).
    """
    if not 0 <= row < len(generation):
        raise DecodeError(f"there is no row {row} among {len(generation)}", fix="Rows count from 0.")
    tokens, own, raw = generation.tokens[row], generation.logprobs[row], generation.raw_logprobs[row]
    stop = generation.stop_token[row]
    if stop is not None:
        tokens = np.append(tokens, np.int32(stop))
        own = np.append(own, generation.stop_logprobs[row])
        raw = np.append(raw, generation.raw_stop_logprobs[row])
    if np.isnan(raw).any():
        fix = "Generate with raw_logprobs=True, the default."
        raise DecodeError("the raw log-probabilities were not computed", where=f"row {row}", fix=fix)
    own, raw = own.astype(np.float64), raw.astype(np.float64)
    mass = np.exp(np.minimum(raw - own, 0.0))
    return Steps(tokens=tokens, probability=np.exp(own), raw_probability=np.exp(raw), forbidden=1.0 - mass)


def plot_flow(generation: Generation, tokenizer: Any, row: int = 0, *, ax: Any = None) -> Any:
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
    ax = ax if ax is not None else plt.subplots(figsize=(max(4.0, 0.35 * len(steps.tokens)), 3.2))[1]
    at = np.arange(len(steps.tokens))
    others = np.maximum(1.0 - steps.forbidden - steps.raw_probability, 0.0)
    ax.bar(at, steps.raw_probability, color="#3a7d44", label="chosen")
    ax.bar(at, others, bottom=steps.raw_probability, color="#b7d3bc", label="other allowed tokens")
    ax.bar(at, steps.forbidden, bottom=1.0 - steps.forbidden, color="#c8553d", label="forbidden")
    ax.set_xticks(at, [_shown(text) for text in _texts(steps.tokens, tokenizer)], rotation=90, family="monospace")
    ax.set_ylim(0, 1)
    ax.set_ylabel("probability under the model")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=3, frameon=False)
    return ax


def to_html(generation: Generation, tokenizer: Any, *, title: str = "Generation", constraint: Any = None) -> str:
    """A page about all rows: each text with its tokens coloured by what the mask took away, and a table of the steps.

    Args:
      generation: from `generate`, with raw log-probabilities.
      tokenizer: as in `Generation.text`.
      title: of the page.
      constraint: the artifact that all rows have, to say how many tokens were allowed at every step; None leaves that out.

    Returns:
      A page of HTML that needs nothing else.
    """
    rows = [_row(generation, tokenizer, row, constraint) for row in range(len(generation))]
    name = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style></head>\n'
        f"<body><h1>{name}</h1>\n<p>The redder a token, the more probability the model had given to tokens that were not allowed "
        "there.</p>\n" + "\n".join(rows) + "\n</body></html>\n"
    )


def _row(generation: Generation, tokenizer: Any, row: int, constraint: Any) -> str:
    steps = steps_of(generation, row)
    texts = _texts(steps.tokens, tokenizer)
    counts = None if constraint is None else _allowed(constraint, steps.tokens)
    spans, lines = [], []
    for i, text in enumerate(texts):
        lost, shown = steps.forbidden[i], html.escape(_shown(text))
        hint = f"{steps.probability[i]:.3f} among the allowed, {steps.raw_probability[i]:.3f} in all; forbidden {lost:.3f}"
        spans.append(f'<span style="background: rgba(200, 85, 61, {lost:.2f})" title="{hint}">{html.escape(text)}</span>')
        count = "" if counts is None else f"<td>{counts[i]:,}</td>"
        numbers = f"<td>{steps.probability[i]:.4f}</td><td>{steps.raw_probability[i]:.4f}</td><td>{lost:.4f}</td>"
        lines.append(f"<tr><td>{i}</td><td>{shown}</td>{numbers}{count}</tr>")
    head = "<th>step</th><th>token</th><th>among the allowed</th><th>raw</th><th>forbidden</th>"
    head += "" if counts is None else "<th>allowed tokens</th>"
    total, raw = generation.total_logprob[row], generation.raw_total_logprob[row]
    return (
        f"<h2>Row {row}: {generation.status[row].name}</h2>\n<p>log-probability {total:.3f} among the allowed tokens, {raw:.3f} "
        f'under the model alone</p>\n<div class="text">{"".join(spans)}</div>\n<details><summary>{len(texts)} steps</summary>\n'
        f"<table><tr>{head}</tr>\n" + "\n".join(lines) + "\n</table></details>"
    )


def _texts(tokens: NDArray[np.int32], tokenizer: Any) -> list[str]:
    """What each token adds to the text; tokens that are no text, or not a whole character, in angle brackets."""
    vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
    out = []
    for token in tokens.tolist():
        text = vocabulary.decode([token])
        out.append(text if text and "\ufffd" not in text else f"<{token}>")
    return out


def _shown(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "⏎")


def _allowed(constraint: Any, tokens: NDArray[np.int32]) -> list[int]:
    walk, out = constraint.walk(), []
    for token in tokens.tolist():
        out.append(int(walk.allowed().sum()))
        walk.advance(token)
    return out
