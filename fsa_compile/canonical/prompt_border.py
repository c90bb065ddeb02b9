"""`canonical_borders`: prompt and constraint as one language, of which only the tokens are chosen that no text of it shares.

Whatever text follows, the tokenizer cuts prompt and text together, and the first tokens are always the same ones: these stay in
the prompt. They go up to the *anchor*, a place in the prompt where every encoding of every continuation has a border, and on from
there for as long as the canonical constraint on "rest of the prompt, then text" leaves one choice. What is left of the prompt the
constraint's first tokens write, so that the border is where the tokenizer puts it.

Source: Cognetta et al. 2025, §3.3 (canonical filter) and §3.3.1 (tokens without a choice are skipped).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.canonical_walk import CanonicalWalk
from fsa_compile.canonical.encoder.splitter import Splitter
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.canonical.restrict import canonical_product
from fsa_compile.composition.prefix.partial_tokens import PartialTokens
from fsa_compile.composition.prefix.prepend import with_prefixes
from fsa_compile.errors import ConstraintError, TokenizerError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.lookup import TokenLookup
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

Border: TypeAlias = tuple[list[int], bytes, tuple[int, ...], CompiledConstraint]
"""Tokens that stay, bytes that are chosen again, tokens that wrote them, and the constraint."""


def canonical_border(
    before: list[int],
    ids: list[int],
    partial_tokens: PartialTokens,
    tables: CanonicalTables,
    lookup: TokenLookup,
    vocabulary: VocabularyTables,
    limits: CompileLimits,
    encode: Callable[[str], list[int]],
) -> Border:
    """The border of one prompt and a constraint on the canonical tokens of both.

    Args:
      before: the prompt's tokens up to its last special one.
      ids: those behind it.
      partial_tokens: of the constraint on what follows, a regular one that allows every tokenization.
      tables, lookup, vocabulary: of the tokenizer.
      encode: the tokenizer, for prompts whose tokens are not its own.

    Raises:
      ConstraintError: the constraint has a stack or counters; the prompt is no text that the tokenizer can encode.
      UnspellableError: no text of the constraint can follow the prompt.
    """
    data = b"".join(lookup.text(token) for token in ids)
    own = ids if _is_own(ids, tables) else _encoded(data, tables, lookup, encode)
    ends = np.cumsum([0, *(len(lookup.text(token)) for token in own)])
    anchor = _unspanned(data, lookup) if tables.splitter is None else _last_certain_cut(data, tables.splitter)
    count = int(np.searchsorted(ends, anchor))
    if ends[count] != anchor:  # the prompt ends inside a character, or in the middle of what is one piece with all that follows
        count -= 1
    kept, rest = [*before, *own[:count]], data[ends[count] :]
    (behind,) = with_prefixes(partial_tokens, lookup, [rest])
    made = canonical_product(behind, tables, vocabulary, limits, Deadline(limits), prompt=kept)
    walk = CanonicalWalk(made, tables)
    forced: list[int] = []
    while rest and not walk.accepting:
        allowed = np.flatnonzero(walk.allowed())
        token = int(allowed[0])
        if len(allowed) > 1 or len(lookup.text(token)) > len(rest):
            break
        walk.advance(token)
        forced.append(token)
        rest = rest[len(lookup.text(token)) :]
    if forced:
        shortest = made.shortest_completion - len(forced)
        there = dataclasses.replace(made.canonical, last=forced[-1], shortest=shortest, state=walk.state)
        made = dataclasses.replace(made, start=walk.node, canonical=there)
        kept += forced
    at = len(data) - len(rest)
    taken = tuple(own[int(np.searchsorted(ends, at)) :]) if at in ends else tuple(own[int(np.searchsorted(ends, at)) - 1 :])
    return kept, rest, taken, made


def _is_own(ids: list[int], tables: CanonicalTables) -> bool:
    try:
        tables.after(ids)
    except TokenizerError:
        return False
    return True


def _encoded(data: bytes, tables: CanonicalTables, lookup: TokenLookup, encode: Callable[[str], list[int]]) -> list[int]:
    """The tokenizer's own ids for a text."""
    what = "the prompt's tokens are not the tokenizer's own, and "
    fix = "Give the prompt as text, or heal it without canonical=True."
    try:
        ids = encode(data.decode())
    except UnicodeDecodeError:
        raise ConstraintError(f"{what}their bytes are no text that it could encode", where=f"{data[-40:]!r}", fix=fix) from None
    if b"".join(lookup.text(token) for token in ids) != data or not _is_own(ids, tables):
        raise ConstraintError(f"{what}it makes none that write the same", where=f"{data[-40:]!r}", fix=fix)
    return ids


def _unspanned(data: bytes, lookup: TokenLookup) -> int:
    """The last place of a text that no token can lie across, neither one of the text itself nor one that goes on behind it."""
    place = len(data)
    for begin in range(len(data) - 1, -1, -1):
        if begin < place - lookup.longest:
            break
        if lookup.reaches(data, begin) > place:
            place = begin
    return place


def _last_certain_cut(data: bytes, splitter: Splitter) -> int:
    """The end of the pieces that a splitter cuts off a text whatever follows it, in bytes.

    All ways to read the text's cuts that some continuation bears out are followed; the cuts before the first place where two of
    them differ are certain.
    """
    text = _whole_characters(data)
    after, cut = splitter.next, splitter.cut
    readings: dict[int, _Cuts | None] = {0: None}
    for place, character in enumerate(text):
        kind = int(splitter.class_of[ord(character)])
        made: dict[_Cuts | None, _Cuts] = {}  # equal lists of cuts are one object
        reached: dict[int, _Cuts | None] = {}
        for state, cuts in readings.items():
            options = [(state, cuts)]
            if place and cut[state] >= 0:
                options.append((int(cut[state]), made.setdefault(cuts, _Cuts(place, 1 + (cuts.count if cuts else 0), cuts))))
            for begin, known in options:
                there = int(after[begin, kind])
                if there >= 0:
                    reached[there] = _shared(known, reached[there]) if there in reached else known
        readings = reached
    if not readings:
        return 0
    common = functools.reduce(_shared, readings.values())
    return len(text[: common.place].encode()) if common else 0


def _whole_characters(data: bytes) -> str:
    """A text without the character that it ends inside of; "" for bytes that are no text."""
    for end in range(len(data), max(len(data) - 4, -1), -1):
        try:
            return data[:end].decode()
        except UnicodeDecodeError:
            continue
    return ""


@dataclasses.dataclass(frozen=True, eq=False)
class _Cuts:
    """The cuts of one reading: the last one's place, their number, and those before it."""

    place: int
    count: int
    before: _Cuts | None


def _shared(one: _Cuts | None, other: _Cuts | None) -> _Cuts | None:
    """The cuts that two readings begin with."""
    while one is not other:
        if one is None or other is None:
            return None
        longer = one.count - other.count
        one, other = (one.before if longer >= 0 else one), (other.before if longer <= 0 else other)
    return one
