"""Filters over text that look for words and phrases: forbidden substrings, and lists of allowed words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.acyclic import checked_texts, choices_dfa
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.utf8_classes import BAD, utf8_classes
from fsa_compile.errors import ConstraintError, LimitError, checked_flag
from fsa_compile.filters.filter_base import TextFilter
from fsa_compile.languages.constructors import regex
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.unicode.properties import category

_CHUNK = 4096
"""States whose 256 successors are computed at once."""


def forbid(*phrases: str, ignore_case: bool = False) -> Language:
    """Texts in which none of the phrases occurs, anywhere.

    Args:
      phrases: one or more texts, taken literally.
      ignore_case: whether other spellings of upper and lower case are forbidden as well, as `re.I` tells them.

    Raises:
      ConstraintError: no phrase, or an empty one, which occurs everywhere.
    """
    texts = checked_texts(phrases)
    if not texts or not texts[0]:
        what = "forbid was given no phrase" if not texts else "forbid was given the empty text, which occurs in every text"
        raise ConstraintError(what, fix='Write forbid("secret").')
    description = f"forbid({_digest(texts)}, ignore_case={checked_flag(ignore_case, 'ignore_case')})"
    if not ignore_case:
        return TextFilter(description, lambda limits, deadline: _without(texts, limits, deadline))

    def build(limits: CompileLimits, deadline: Deadline) -> ByteDfa:
        import re

        inner = "|".join(re.escape(text.decode()) for text in texts)
        return (~regex(f"(?si).*(?:{inner}).*")).to_byte_dfa(limits, deadline)

    return TextFilter(description, build)


def words(allowed: Iterable[str], *, inside: str = "") -> Language:
    """Texts whose every word is in a list; between words stands anything else.

    A word is a longest run of word characters (`\\w`: letters, digits, underscore) and of those in `inside`.

    Args:
      allowed: the words, a hundred thousand are fine. Case counts: list "Tree" beside "tree" if it may begin a sentence.
      inside: further characters that belong to words, such as "'-".

    Raises:
      ConstraintError: no word, or one that holds another character.
    """
    if not isinstance(inside, str):
        raise ConstraintError(f"inside must be a str, not {type(inside).__name__}", fix='Write inside="\'-".')
    texts = [text for text in checked_texts(allowed) if text]
    if not texts:
        raise ConstraintError("words was given no word", fix='Write words(["yes", "no"]).')
    letters = _word_characters(inside)
    for text in texts:
        wrong = [c for c in text.decode() if not letters[ord(c)]]
        if wrong:
            fix = "Split it into words, or name the character in inside=..."
            raise ConstraintError(f"{wrong[0]!r} is no word character", where=f"  {text.decode()!r:.60}", fix=fix)
    description = f"words({_digest(texts)}, inside={''.join(sorted(set(inside)))!r})"
    return TextFilter(description, lambda limits, deadline: _word_list(texts, letters, limits, deadline))


def _digest(texts: list[bytes]) -> str:
    """All texts if they are few, else some of them and a digest of all."""
    shown = ", ".join(repr(text.decode()) for text in texts[:8])
    if len(texts) <= 8:
        return shown
    return f"{shown}, … {len(texts):,} in all, {hashlib.sha256(repr(texts).encode()).hexdigest()[:20]}"


def _word_characters(inside: str) -> np.ndarray:
    """bool[0x110000]."""
    ascii_, wide = category("w")
    out = np.zeros(0x110000, bool)
    out[[c for c in range(128) if ascii_ >> c & 1]] = True
    for low, high in wide:
        out[low : high + 1] = True
    out[[ord(c) for c in inside]] = True
    return out


def _without(phrases: list[bytes], limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """Aho and Corasick's automaton over bytes, which cannot match between characters of valid UTF-8, without its matches."""
    children: list[dict[int, int]] = [{}]
    ends = [False]
    for phrase in phrases:
        node = 0
        for byte in phrase:
            node = children[node].setdefault(byte, len(children))
            if node == len(children):
                children.append({})
                ends.append(False)
        ends[node] = True
    if len(children) > limits.max_states:
        raise LimitError("max_states", limits.max_states, "Searching for forbidden phrases")
    deadline.check_bytes(len(children) * 1024, "Searching for forbidden phrases")
    table = np.zeros((len(children) + 1, 256), np.int32)
    suffix = [0] * len(children)  # longest proper suffix that is a beginning of a phrase
    todo = [0]
    table[1] = 1
    for node in todo:
        if node:
            table[node + 1] = table[suffix[node] + 1]
            ends[node] |= ends[suffix[node]]
        for byte, child in children[node].items():
            suffix[child] = int(table[node + 1, byte]) - 1
            table[node + 1, byte] = child + 1
            todo.append(child)
    bad = np.append(True, ends)
    table[bad[table]] = 0
    table[bad] = 0
    searched = ByteDfa(table=table, byte_class=np.arange(256, dtype=np.uint8), final=~bad, start=1)
    return algebra.combine("&", searched, algebra.universal_text(), limits, deadline)


def _word_list(texts: list[bytes], letters: np.ndarray, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """Runs the trie of the words and the class of every character side by side.

    A state is (UTF-8 node, state of the trie, whether no word character may come next). Only its last byte tells a character's
    class, so inside one both ways go on: the trie's thread, and the end of the word.
    """
    classes = np.where(letters, 1, 0)
    classes[0xD800:0xE000] = -1
    nodes = utf8_classes(classes)
    trie = choices_dfa(texts, limits, deadline)
    step, final = trie.table[:, trie.byte_class].astype(np.int64), trie.final
    size = len(final)

    def after(key: np.ndarray) -> np.ndarray:
        node, rest = np.divmod(key, 2 * size)
        at, may_end = np.divmod(rest, 2)
        there, word = nodes[node].astype(np.int64), step[at]
        may_end = np.broadcast_to(may_end[:, None] == 1, there.shape)
        between = 2 * trie.start + 1
        out = np.where((word > 0) | may_end, (there * size + word) * 2 + may_end, 0)  # inside a character
        out = np.where(there == ~1, np.where(word > 0, 2 * word + final[word], 0), out)
        out = np.where(there == ~0, np.where(may_end, between, 0), out)
        return np.where(there == BAD, 0, out)

    first = np.array([2 * trie.start + 1])
    known, frontier, rows = first, first, []
    order = [first]
    while len(frontier):
        deadline.check("Building the automaton of a word list")
        deadline.check_bytes(len(known) * 4096, "Building the automaton of a word list")
        found = [np.zeros(0, np.int64)]
        for begin in range(0, len(frontier), _CHUNK):
            reached = after(frontier[begin : begin + _CHUNK])
            rows.append(reached)
            found.append(np.unique(reached))
        frontier = np.setdiff1d(np.unique(np.concatenate(found)), np.append(known, 0))
        known = np.union1d(known, frontier)
        order.append(frontier)
        if len(known) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Building the automaton of a word list")
    keys = np.append(0, np.concatenate(order))
    sorted_at = np.argsort(keys)
    table = np.zeros((len(keys), 256), np.int32)
    table[1:] = sorted_at[np.searchsorted(keys[sorted_at], np.concatenate(rows))]
    ends = (keys < 2 * size) & (keys % 2 == 1)  # between characters, where the word, if any, may end
    whole = ByteDfa(table=table, byte_class=np.arange(256, dtype=np.uint8), final=ends, start=1)
    return algebra.combine("&", whole, algebra.universal_text(), limits, deadline)
