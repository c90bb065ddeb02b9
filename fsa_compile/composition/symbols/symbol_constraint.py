"""Languages with special tokens or any-token symbols over a vocabulary: to an artifact."""

from __future__ import annotations

import numpy as np

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.composition.prefix.partial_tokens import WHOLE_TOKENS
from fsa_compile.composition.regular.regular_artifact import assemble
from fsa_compile.composition.regular.trie_walk import walk_tokens
from fsa_compile.composition.symbols.any_token import with_any_tokens
from fsa_compile.errors import ConstraintError, UnsatisfiableError
from fsa_compile.languages.language import Language
from fsa_compile.languages.symbols import AnyToken, SpecialToken, Symbol, SymbolArcs
from fsa_compile.languages.token_symbols import without_symbols
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for


def compile_with_symbols(
    language: Language, vocabulary: Vocabulary, limits: CompileLimits, deadline: Deadline
) -> CompiledConstraint:
    """The artifact of a language with symbols.

    Raises:
      ConstraintError: a special token that the vocabulary does not have, that is text, or that ends it; and see
        `compiler.entry_points.compile_language`.
    """
    ids: dict[Symbol, int] = {s: special_id(s.name, vocabulary) for s in language.symbols if isinstance(s, SpecialToken)}
    built = language._build(limits, deadline)
    if built is None or built.start == 0:
        where, fix = f"  {language.description:.200}", "Change it so that some text is accepted."
        raise UnsatisfiableError("the constraint accepts no text at all", where=where, fix=fix)
    dfa, symbols = without_symbols(built, language, limits, deadline)
    tables = tables_for(vocabulary)
    arcs = walk_tokens(dfa, tables, deadline)
    special = np.array([isinstance(symbol, SpecialToken) for symbol in symbols.symbols])
    read = special[symbols.symbol]
    token = np.array([ids.get(symbol, -1) for symbol in symbols.symbols], np.int64)[symbols.symbol[read]]
    arcs = arcs._replace(
        state=np.concatenate([arcs.state, symbols.source[read]]),
        token=np.concatenate([arcs.token, token]),
        target=np.concatenate([arcs.target, symbols.target[read]]),
    )
    extra = {} if read.all() else {WHOLE_TOKENS: True}
    if not read.all():
        dfa, arcs = with_any_tokens(dfa, arcs, _any_tokens(symbols, ~read), tables, limits, deadline)
    return assemble(dfa, arcs, tables, source=language.description, limits=limits, deadline=deadline, extra=extra)


def _any_tokens(arcs: SymbolArcs, chosen: np.ndarray) -> list[tuple[int, bool, int]]:
    """(state, whether line breaks are forbidden, next state)."""
    kinds: list[Symbol] = arcs.symbols
    forbidden = [isinstance(kind, AnyToken) and kind.kind == "paragraph" for kind in kinds]
    rows = zip(arcs.source[chosen].tolist(), arcs.symbol[chosen].tolist(), arcs.target[chosen].tolist())
    return [(q, forbidden[s], r) for q, s, r in rows]


def special_id(name: str | int, vocabulary: Vocabulary) -> int:
    """The id of a special token.

    Raises:
      ConstraintError: there is none, or it is text, or it ends the text.
    """
    token = vocabulary.special.get(name, -1) if isinstance(name, str) else name
    if not 0 <= token < vocabulary.size:
        known = ", ".join(sorted(vocabulary.special)[:8])
        fix = f"Its special tokens begin with {known}." if known else "It has no named special tokens: give the id."
        raise ConstraintError(f"the vocabulary has no special token {name!r}", fix=fix)
    if vocabulary.tokens[token]:
        what = f"token {token} is the text {vocabulary.tokens[token]!r}, not a special token"
        raise ConstraintError(what, fix="Write the text itself into the pattern.")
    if token in vocabulary.stop_ids:
        what = f"special token {name!r} ends the text, so nothing can follow it"
        raise ConstraintError(what, fix="Leave it out: it is allowed wherever the text is complete.")
    return token
