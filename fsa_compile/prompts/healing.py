"""`heal`: a prompt and a constraint whose border may lie inside a token.

The tokens of a prompt are those of a text that ends there. Where the text goes on, the tokenizer would often have cut it
elsewhere: a space at the end of `Answer: ` keeps the model from writing the token ` yes`. Healing takes the last tokens back
and lets the model choose them again, together with what follows: their text is put before the constraint.

Source: the idea is guidance's ("token healing"); as a constraint it is prefix followed by pattern, Koo et al. 2024, §2; with
canonical tokens Cognetta et al. 2025, §3.3 and §4.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.compiler.arguments import Request, vocabulary_of
from fsa_compile.compiler.entry_points import compile_language
from fsa_compile.compiler.machines import every_tokenization
from fsa_compile.composition.prefix.partial_tokens import PartialTokens
from fsa_compile.composition.prefix.prepend import with_prefixes
from fsa_compile.errors import ConstraintError, TokenizerError, checked_flag, listed
from fsa_compile.inputs.guard import guarded
from fsa_compile.languages.constructors import acceptor
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits
from fsa_compile.prompts.continuation import encode_continuation
from fsa_compile.tokenizers.tokenizer import Tokenizer
from fsa_compile.vocabulary.lookup import TokenLookup, token_lookup
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Healed:
    """A prompt without its last tokens, and the constraint on them and on what follows.

    Attributes:
      prompt: token ids, for `generate`; may be empty, so a `bos_id` is needed then.
      constraint: for `to_device`; its texts begin with `written`.
      written: bytes of the prompt that are chosen again; b"" where nothing was taken back.
      taken_back: the ids that wrote them: as many more new tokens may be needed.
      response_prefix: the text that the response begins with, which is a part of the prompt.
      vocabulary: of both.
    """

    prompt: list[int]
    constraint: CompiledConstraint
    written: bytes
    taken_back: tuple[int, ...]
    response_prefix: str
    vocabulary: Vocabulary

    def text(self, tokens: Iterable[int]) -> str:
        """What generated tokens write behind the prompt, as if nothing had been taken back.

        Args:
          tokens: ids of one row, as in `Generation.tokens`; a text that is not yet as long as `written` gives "".
        """
        return self.vocabulary.decode_bytes(tokens)[len(self.written) :].decode("utf-8", errors="replace")


@guarded
def heal(
    prompt: str | Sequence[int],
    constraint: CompiledConstraint | Language,
    tokenizer: Any,
    *,
    response_prefix: str | Sequence[int] = "",
    canonical: bool = False,
    limits: CompileLimits | None = None,
) -> Healed:
    """Takes back the tokens of a prompt that keep the model from writing a token across its end.

    Tokens are taken back as far as some token of the vocabulary begins inside the prompt, goes on behind its end, and is allowed
    there. The constraint then holds their text and what follows, in any tokenization; with `canonical=True` in the one the
    tokenizer itself makes of prompt and text together, whatever the text: then the tokens that are the same for all texts stay in
    the prompt, and no others.

    A compiled constraint is not compiled again: it gets a few more nodes (milliseconds).

    Args:
      prompt: a text, or token ids. Special tokens are never taken back.
      constraint: on the text behind the prompt: compiled, of any kind, without `canonical=True`; or a language. With `canonical`
        it may not have a stack or counters: compile it with `canonical="heal"`, which writes them out.
      tokenizer: from `load_tokenizer`; for ids, and without `canonical`, a `Vocabulary` is enough.
      response_prefix: text or ids behind the prompt that the response must begin with; the constraint is on what follows it.
      canonical: see above; decoding then takes `to_device(..., canonical=canonical_tables(tokenizer))`.
      limits: of what has to be compiled.

    Returns:
      Prompt, constraint, and `text`, which gives the text behind the prompt.

    Raises:
      ConstraintError: no prompt, no constraint, one for another vocabulary (`ArtifactError`), or a border that cannot be told
        exactly; says what to do.

    Examples:
      >>> from fsa_compile import compile_regex
      >>> vocabulary = Vocabulary.from_tokens([b" ", b"a", b" a", b"b", b"c", b""], stop_ids=[5])
      >>> healed = heal([3, 0], compile_regex("a|c", vocabulary), vocabulary)
      >>> healed.prompt, healed.written, healed.text([2])
      ([3], b' ', 'a')
    """
    return heal_batch(
        [prompt], constraint, tokenizer, response_prefix=response_prefix, canonical=canonical, limits=limits
    )[0]  # fmt: skip


@guarded
def heal_batch(
    prompts: Iterable[str | Sequence[int]],
    constraint: CompiledConstraint | Language | list[Any] | tuple[Any, ...],
    tokenizer: Any,
    *,
    response_prefix: str | Sequence[int] = "",
    canonical: bool = False,
    limits: CompileLimits | None = None,
) -> list[Healed]:
    """`heal` of several prompts; rows with one constraint share its arrays, on the device too.

    Args:
      prompts: the prompts; each may be taken back by another number of tokens.
      constraint: one for all, or one for each.
      tokenizer, response_prefix, canonical, limits: see `heal`.

    Returns:
      One result for each prompt: `generate(decoder, [h.prompt for h in healed], to_device([h.constraint for h in healed]), ...)`.
    """
    vocabulary = vocabulary_of(tokenizer)
    if isinstance(prompts, str):
        raise ConstraintError("heal_batch takes a list of prompts, not one str", fix="Call heal(prompt, ...).")
    canonical = checked_flag(canonical, "canonical")
    rows, prefix = [], ""
    for prompt in listed(prompts, "prompts"):
        ids, prefix = _prompt_ids(prompt, response_prefix, tokenizer, vocabulary)
        rows.append(ids)
    each = [constraint] * len(rows) if not isinstance(constraint, (list, tuple)) else list(constraint)
    if len(each) != len(rows):
        fix = "Give one constraint, or one for each prompt."
        raise ConstraintError(f"there are {len(rows)} prompts and {len(each)} constraints", fix=fix)
    out: list[Healed | None] = [None] * len(rows)
    for one in {id(c): c for c in each}.values():
        mine = [i for i, c in enumerate(each) if c is one]
        borders = _borders([rows[i] for i in mine], one, tokenizer, vocabulary, canonical, limits)
        for i, (kept, written, taken, made) in zip(mine, borders):
            out[i] = Healed(
                prompt=kept, constraint=made, written=written, taken_back=taken, response_prefix=prefix, vocabulary=vocabulary
            )
    return [healed for healed in out if healed is not None]


_Border = tuple[list[int], bytes, tuple[int, ...], CompiledConstraint]
"""Tokens that stay, bytes that are chosen again, tokens that wrote them, and the constraint."""


def _borders(
    rows: list[list[int]],
    constraint: CompiledConstraint | Language,
    tokenizer: Any,
    vocabulary: Vocabulary,
    canonical: bool,
    limits: CompileLimits | None,
) -> list[_Border]:
    """The border of every prompt with one constraint."""
    lookup = token_lookup(vocabulary)
    if isinstance(constraint, CompiledConstraint):
        check_vocabulary(constraint, vocabulary)
        if constraint.is_canonical:
            what = "the constraint was compiled with canonical=True: which tokens it allows depends on those before it"
            raise ConstraintError(what, fix="Compile it without, and call heal(..., canonical=True).")
    elif isinstance(constraint, CompiledItems):
        what = "a set of items cannot be healed: its items are sequences of tokens, none of which begins inside a prompt"
        fix = "Use compile_choices(texts, tokenizer) for texts, in every tokenization; for ids give the prompt as it is."
        raise ConstraintError(what, fix=fix)
    elif not isinstance(constraint, Language):
        what = f"a constraint is needed, not {type(constraint).__name__}"
        raise ConstraintError(what, fix="Compile one, for example with compile_regex(pattern, tokenizer).")
    if canonical:
        return _canonical_borders(rows, constraint, tokenizer, vocabulary, limits or CompileLimits())
    if isinstance(constraint, Language):
        return [_of_language(ids, constraint, vocabulary, lookup, limits) for ids in rows]
    partial_tokens = _partial_tokens(constraint, lookup)
    cuts = []
    for ids in rows:
        begin, offset, data = last_text(ids, vocabulary)
        first = next((i for i in suffixes(data, lookup) if len(partial_tokens.after(data[i:])[0])), len(data))
        cuts.append(begin + int(np.searchsorted(offset, first, side="right")) - 1)
    texts = [vocabulary.decode_bytes(ids[cut:]) for ids, cut in zip(rows, cuts)]
    made = with_prefixes(partial_tokens, lookup, texts)
    return [(ids[:cut], text, tuple(ids[cut:]), c) for ids, cut, text, c in zip(rows, cuts, texts, made)]


def _canonical_borders(
    rows: list[list[int]],
    constraint: CompiledConstraint | Language,
    tokenizer: Any,
    vocabulary: Vocabulary,
    limits: CompileLimits,
) -> list[_Border]:
    from fsa_compile.canonical.filter.canonical_tables import canonical_tables
    from fsa_compile.canonical.prompt_border import canonical_border

    tables, lookup = canonical_tables(tokenizer), token_lookup(vocabulary)
    if isinstance(constraint, Language):
        constraint = every_tokenization(constraint, Request.of(tokenizer, constraint.description, limits=limits), counters=False)
    if not constraint.is_regular:
        raise ConstraintError(
            "healing with canonical tokens takes a constraint without a stack and without counters",
            fix='Compile it with canonical="heal", which writes them out (and max_depth= where it nests without bound).',
        )
    partial_tokens = _partial_tokens(constraint, lookup)
    out = []
    for ids in rows:
        begin, _, _ = last_text(ids, vocabulary)
        out.append(
            canonical_border(
                ids[:begin],
                ids[begin:],
                partial_tokens,
                tables,
                lookup,
                tables_for(vocabulary),
                limits,
                lambda text: encode_continuation(_encoder(tokenizer), text),
            )
        )
    return out


def _of_language(
    ids: list[int], language: Language, vocabulary: Vocabulary, lookup: TokenLookup, limits: CompileLimits | None
) -> _Border:
    """The border with a language, which is compiled behind the text taken back: vocabularies may lack tokens of single bytes."""
    begin, offset, data = last_text(ids, vocabulary)
    first = next((i for i in suffixes(data, lookup) if len(lookup.longer(data[i:]))), len(data))
    cut = begin + int(np.searchsorted(offset, first, side="right")) - 1
    text = vocabulary.decode_bytes(ids[cut:])
    if text:
        language = acceptor((0, [len(text)], {i: {byte: i + 1} for i, byte in enumerate(text)})) + language
    return ids[:cut], text, tuple(ids[cut:]), compile_language(language, vocabulary, limits=limits)


def last_text(ids: list[int], vocabulary: Vocabulary) -> tuple[int, np.ndarray, bytes]:
    """The text behind a prompt's last special token.

    Returns:
      How many tokens lie before it; int64[n + 1], where each of its n tokens begins in it, and its end; and its bytes.
    """
    begin = 1 + max((i for i, token in enumerate(ids) if not vocabulary.tokens[token]), default=-1)
    texts = [vocabulary.tokens[token] for token in ids[begin:]]
    return begin, np.cumsum([0, *map(len, texts)]), b"".join(texts)


def suffixes(data: bytes, lookup: TokenLookup) -> range:
    """Where the suffixes of a text begin that a longer token can begin with, the longest first."""
    return range(max(0, len(data) - lookup.longest + 1), len(data))


@functools.lru_cache(maxsize=8)
def _partial_tokens(constraint: CompiledConstraint, lookup: TokenLookup) -> PartialTokens:
    return PartialTokens(constraint, lookup)


def _prompt_ids(prompt: Any, prefix: Any, tokenizer: Any, vocabulary: Vocabulary) -> tuple[list[int], str]:
    """The ids of prompt and response prefix, and the prefix as text."""
    if isinstance(prompt, str) and isinstance(prefix, str):
        return _encoder(tokenizer).encode(prompt + prefix), prefix
    ids = _encoder(tokenizer).encode(prompt) if isinstance(prompt, str) else _checked_ids(prompt, "the prompt", vocabulary)
    if isinstance(prefix, str):
        return (ids + encode_continuation(_encoder(tokenizer), prefix) if prefix else ids), prefix
    more = _checked_ids(prefix, "response_prefix", vocabulary)
    return ids + more, vocabulary.decode(more)


def _encoder(tokenizer: Any) -> Tokenizer:
    """The tokenizer as something that encodes."""
    from fsa_compile.tokenizers.load import load_tokenizer

    if isinstance(tokenizer, Vocabulary):
        raise TokenizerError(
            "a prompt in text needs a tokenizer, and a Vocabulary cannot encode", fix="Pass token ids, or load_tokenizer(path)."
        )
    return tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(tokenizer)


def _checked_ids(ids: Any, what: str, vocabulary: Vocabulary) -> list[int]:
    fix = "Give a text, or token ids: tokenizer.encode(text)."
    if isinstance(ids, (str, bytes)) or not isinstance(ids, (Sequence, np.ndarray)) or getattr(ids, "ndim", 1) == 0:
        raise ConstraintError(f"{what} is {type(ids).__name__}, neither text nor token ids", fix=fix)
    out = []
    for position, value in enumerate(ids):
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise ConstraintError(f"{what} holds {value!r}, which is no token id", where=f"position {position}", fix=fix)
        if not 0 <= value < vocabulary.size:
            what = f"token id {value} does not exist in a vocabulary of {vocabulary.size:,} ids"
            raise ConstraintError(what, where=f"position {position}", fix="Check that the ids were made with this tokenizer.")
        out.append(int(value))
    return out
