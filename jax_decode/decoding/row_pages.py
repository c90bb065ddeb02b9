"""One row of a result as HTML, and what happened at each of its steps: what the mask took, and where the limit narrowed it.

Takes a `Generation` by its fields and does not import it, so that a result can show itself. Pages are `jax_decode.report`'s.
"""

from __future__ import annotations

import dataclasses
import html
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding.vocabularies import speller
from jax_decode.errors import DecodeError

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; color: #222; }
.text { font: 15px/2 ui-monospace, monospace; white-space: pre-wrap; border: 1px solid #ccc; padding: 0.6em 0.8em; }
.text span { border-radius: 3px; padding: 1px 0; }
table { border-collapse: collapse; font-size: 13px; }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #eee; }
td:nth-child(2), th:nth-child(2) { text-align: left; font-family: ui-monospace, monospace; white-space: pre; }
summary { cursor: pointer; margin: 0.6em 0; }
.squeezed { border-bottom: 2px solid #2f6690; }
.end { color: #888; font-size: 12px; }
.prompt { font: 13px/1.6 ui-monospace, monospace; white-space: pre-wrap; color: #666; }
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


def steps_of(generation: Any, row: int = 0) -> Steps:
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


def vocabulary_of(generation: Any, tokenizer: Any) -> Any:
    """What spells a result's tokens: the tokenizer given, or for None the vocabulary of this process that they belong to."""
    return speller(tokenizer, "" if generation.origin is None else generation.origin.fingerprint)


def row_as_html(generation: Any, tokenizer: Any, row: int, constraint: Any = None) -> str:
    """A row's prompt, its text with tokens coloured by what the mask took away, and a table of its steps.

    Args:
      generation, tokenizer, constraint: see `jax_decode.report.to_html`.
      row: which row.
    """
    vocabulary, steps = vocabulary_of(generation, tokenizer), steps_of(generation, row)
    texts, squeezed = texts_of(steps.tokens, vocabulary, generation.stop_token[row]), int(generation.squeezed[row])
    ended = generation.stop_token[row] is not None
    counts = None if constraint is None else _allowed(constraint, steps.tokens)
    spans, lines = [], []
    for i, text in enumerate(texts):
        is_end = ended and i == len(texts) - 1
        lost, name = steps.forbidden[i], html.escape(text if is_end else shown(text))
        hint = f"{steps.probability[i]:.3f} among the allowed, {steps.raw_probability[i]:.3f} in all; forbidden {lost:.3f}"
        hint += "; under the limit" if 0 <= squeezed <= i else ""
        kind = ' class="squeezed"' if 0 <= squeezed <= i else ' class="end"' if is_end else ""
        spans.append(f'<span style="background: rgba(180, 77, 18, {lost:.2f})"{kind} title="{hint}">{html.escape(text)}</span>')
        count = "" if counts is None else f"<td>{counts[i]:,}</td>"
        numbers = f"<td>{steps.probability[i]:.4f}</td><td>{steps.raw_probability[i]:.4f}</td><td>{lost:.4f}</td>"
        lines.append(f"<tr><td>{i}</td><td>{name}</td>{numbers}{count}</tr>")
    head = "<th>step</th><th>token</th><th>among the allowed</th><th>raw</th><th>forbidden</th>"
    head += "" if counts is None else "<th>allowed tokens</th>"
    total, raw = generation.total_logprob[row], generation.raw_total_logprob[row]
    short = "" if squeezed < 0 else f"; squeezed by its limit from token {squeezed} on (underlined)"
    if left_out := generation.unenforced[row]:
        short += f"; not enforced, to be checked: {html.escape(', '.join(left_out))}"
    return (
        f"<h2>Row {row}: {generation.status[row].name}</h2>\n{_prompt(generation, vocabulary, row)}"
        f"<p>log-probability {total:.3f} among the allowed tokens, {raw:.3f} under the model alone{short}</p>\n"
        f'<div class="text">{"".join(spans)}</div>\n'
        f"<details><summary>{len(texts)} steps</summary>\n<table><tr>{head}</tr>\n" + "\n".join(lines) + "\n</table></details>"
    )


def _prompt(generation: Any, vocabulary: Any, row: int) -> str:
    if generation.origin is None:
        return ""
    ids = generation.origin.prompts[row // generation.origin.each]
    return f'<div class="prompt">{html.escape("".join(texts_of(np.array(ids, np.int32), vocabulary)))}</div>\n'


END = "end of text"


def texts_of(tokens: NDArray[np.int32], vocabulary: Any, stop: int | None = None) -> list[str]:
    """What each token adds to the text; tokens that are no text, or not a whole character, in angle brackets.

    Args:
      tokens: ids.
      vocabulary: what spells them.
      stop: the token that ended the text, where it is the last one.
    """
    out = []
    for token in tokens.tolist():
        text = vocabulary.decode([token])
        out.append(text if text and "\ufffd" not in text else f"<{token}>")
    return [*out[:-1], END] if out and stop is not None else out


def shown(text: str) -> str:
    """A token's text with what cannot be seen made visible."""
    return text.replace(" ", "␣").replace("\n", "⏎")


def _allowed(constraint: Any, tokens: NDArray[np.int32]) -> list[int]:
    walk, out = constraint.walk(), []
    for token in tokens.tolist():
        out.append(int(walk.allowed().sum()))
        walk.advance(token)
    return out
