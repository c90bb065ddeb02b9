"""A set of token sequences or strings to `CompiledItems`."""

from __future__ import annotations

from typing import Any

from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.errors import ConstraintError, UnsatisfiableError
from fsa_compile.inputs.guard import guarded
from fsa_compile.items.item_inputs import catalogue_vocabulary, item_matrix
from fsa_compile.items.trie import trie_of
from fsa_compile.limits import CompileLimits, Deadline

_LIMITS = CompileLimits(max_seconds=600, max_bytes=8 << 30)


@guarded
def compile_items(
    items: Any,
    tokenizer: Any,
    *,
    stop_ids: tuple[int, ...] | None = None,
    source: str | None = None,
    limits: CompileLimits | None = None,
) -> CompiledItems:
    """Compiles a set of token sequences.

    The text is complete after any of the sequences. Where one is the beginning of another, both can be written.

    Args:
      items: int[N, L] with -1 after the end of shorter items, or N sequences of ids, or N strings; strings are written in the
        tokenizer's own tokens only (`compile_choices` allows every tokenization).
      tokenizer: as in `compile_language`; or a number V, for ids 0..V-1 that stand for no text. Strings need a tokenizer.
      stop_ids: end-of-text ids; None for the tokenizer's own, or none where a number was given: the text is complete then when
        nothing can follow, or when the limit is reached.
      source: a description, for people.
      limits: `max_seconds` and `max_bytes` count here, by default ten minutes and 8 GB; ten million items of 8 ids take 2.3 GB.

    Returns:
      The artifact, for `jax_decode.to_device`, alone or beside other constraints.

    Raises:
      ConstraintError: an item that is no sequence of ids, an id that does not exist or ends the text, with the item's index.
      UnsatisfiableError: no items.
      LimitError: more memory or time than the limits allow.

    Examples:
      >>> walk = compile_items([[3, 1, 4], [3, 1, 5], [2]], 8).walk()
      >>> walk.allowed().nonzero()[0].tolist()
      [2, 3]
    """
    if limits is not None and not isinstance(limits, CompileLimits):
        raise ConstraintError("limits must be CompileLimits", fix="Write limits=CompileLimits(max_seconds=...).")
    deadline = Deadline(limits or _LIMITS)
    vocabulary, tokenizer = catalogue_vocabulary(tokenizer, stop_ids)
    matrix = item_matrix(items, vocabulary, tokenizer, deadline)
    if not len(matrix):
        raise UnsatisfiableError("there are no items, so there is nothing that could be generated", fix="Give at least one item.")
    trie = trie_of(matrix, vocabulary.size, deadline)
    return CompiledItems(
        vocab_size=vocabulary.size,
        fingerprint=vocabulary.fingerprint,
        stop_ids=vocabulary.stop_ids,
        source=f"{len(trie.item):,} items" if source is None else source,
        token=trie.token,
        first=trie.first,
        distance=trie.distance,
        item=trie.item,
    )
