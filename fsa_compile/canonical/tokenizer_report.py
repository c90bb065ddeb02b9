"""What is worth knowing about one tokenizer's canonical tokens: counts, and the tokens that are out of the ordinary."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np

from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.vocabulary.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerReport:
    """Counts and lists of token ids.

    Attributes:
      tokens: ids of the vocabulary.
      special: ids that write no text.
      canonical: tokens that the encoder makes of their own bytes by merging.
      unmerged: tokens that merging does not reach; with `whole_tokens` the encoder still makes them where a piece of text equals
        one.
      whole_tokens: see there.
      byte_tokens: tokens of single bytes that spell characters without a token of their own.
      duplicates: groups of ids that write the same bytes.
      incomplete: tokens whose bytes are not whole characters.
      forbidden_sets: distinct sets of tokens that may not come next, which is about how many states the canonical automaton of
        all texts has, per state of the splitter.
      forbidden_share: share of all pairs of canonical tokens that may not be neighbours within a piece.
      forbidden_per_token: smallest, median and largest number of tokens that one token forbids.
      splitter_states: states of the splitter's automaton, 0 where nothing is cut.
      unicode_form: normal form of texts before they are encoded, or None.
    """

    tokens: int
    special: int
    canonical: int
    unmerged: list[int]
    whole_tokens: bool
    byte_tokens: int
    duplicates: list[list[int]]
    incomplete: int
    forbidden_sets: int
    forbidden_share: float
    forbidden_per_token: tuple[int, int, int]
    splitter_states: int
    unicode_form: str | None


def tokenizer_report(tables: CanonicalTables, vocabulary: Vocabulary) -> TokenizerReport:
    """The report of one tokenizer."""
    rule, tokens = tables.rule, vocabulary.tokens
    own = np.flatnonzero(rule.own)
    sizes = np.zeros(len(rule.set_offset) - 1, np.int64)
    np.add.at(sizes, np.repeat(np.arange(len(sizes)), np.diff(rule.set_offset)), rule.end - rule.begin)
    forbidden = sizes[rule.set_of[own]]
    same = Counter(token for token in tokens if token)
    alike: dict[bytes, list[int]] = {token: [] for token, count in same.items() if count > 1}
    for i, token in enumerate(tokens):
        if token in alike:
            alike[token].append(i)
    middle = int(np.median(forbidden)) if len(own) else 0
    return TokenizerReport(
        tokens=vocabulary.size,
        special=sum(not token for token in tokens),
        canonical=len(own),
        unmerged=sorted(tables.unmerged),
        whole_tokens=tables.whole_tokens,
        byte_tokens=0 if tables.byte_tokens is None else len(tables.byte_tokens),
        duplicates=sorted(alike.values()),
        incomplete=sum(not _is_text(token) for token in tokens),
        forbidden_sets=len(sizes),
        forbidden_share=float(forbidden.sum() / max(1, len(own)) ** 2),
        forbidden_per_token=(int(forbidden.min(initial=0)), middle, int(forbidden.max(initial=0))),
        splitter_states=0 if tables.splitter is None else len(tables.splitter.next),
        unicode_form=tables.unicode_form,
    )


def _is_text(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


def describe(report: TokenizerReport, vocabulary: Vocabulary, most: int = 10) -> str:
    """The report as lines of text, with at most `most` examples of each kind."""
    least, middle, largest = report.forbidden_per_token
    lines = [
        f"tokens               {report.tokens:,}, of them {report.special:,} that write no text",
        f"own canonical form   {report.canonical:,}",
        f"byte fallback        {report.byte_tokens:,}",
        f"not whole characters {report.incomplete:,}",
        f"forbidden pairs      {report.forbidden_share:.2%} of all; per token {least:,} to {largest:,}, median {middle:,}",
        f"distinct sets        {report.forbidden_sets:,}",
        f"splitter states      {report.splitter_states or 'none: texts are not cut'}",
        f"normal form          {report.unicode_form or 'none: texts are taken as they are'}",
    ]
    how = "only where a piece of text equals one" if report.whole_tokens else "never"
    lines.append(f"not reached          {len(report.unmerged):,} tokens" + (f", which are made {how}" if report.unmerged else ""))
    lines += [f"  {i}: {vocabulary.tokens[i]!r}" for i in report.unmerged[:most]]
    lines.append(f"same bytes           {len(report.duplicates):,} groups of tokens")
    lines += [f"  {ids}: {vocabulary.tokens[ids[0]]!r}" for ids in report.duplicates[:most]]
    return "\n".join(lines)
