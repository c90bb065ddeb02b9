"""`SUBSTRING_OF`: every substring of a text, by a suffix automaton, in time and memory linear in the text.

The automaton is built over UTF-8 bytes and then entered only at characters. Whether a state lies between two characters is a
matter of the place in the text where its strings end; strings that begin with a character and share a state agree on it.

Source: A. Blumer et al., "The smallest automaton recognizing the subwords of a text", 1985; used by Koo et al. 2024, Table 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from fsa_compile.arrays.integers import distinct
from fsa_compile.automata.byte_dfa import ByteDfa, dfa_from_arcs
from fsa_compile.automata.byte_nfa import ByteNfa
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "Building the suffix automaton"
_BYTES_PER_BYTE = 900
"""Working memory per byte of text, for the limit check: two states with a dictionary of arcs each."""


def substring_dfa(text: bytes, min_bytes: int, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
    """The automaton of the substrings of a text, or None when there is none.

    Args:
      text: UTF-8. Substrings begin and end between characters.
      min_bytes: 0 to allow the empty substring, else 1.
    """
    if not text:
        return None if min_bytes else _empty_text(limits)
    deadline.check_bytes(len(text) * _BYTES_PER_BYTE, _DOING)
    arcs, link, length, ends = _suffix_automaton(text, deadline)
    count = np.fromiter(map(len, arcs), np.int64, len(arcs))
    E = int(count.sum())
    source = np.arange(len(arcs)).repeat(count)
    byte = np.fromiter(itertools.chain.from_iterable(arcs), np.int64, E)
    target = np.fromiter(itertools.chain.from_iterable(map(dict.values, arcs)), np.int64, E)
    del arcs
    data = np.frombuffer(text, np.uint8)
    continues = np.append((data & 0xC0) == 0x80, False)
    after = np.array(ends) + 1
    final = ~continues[after]  # the byte after the string's end begins a character
    final[0] = min_bytes == 0
    if continues.any():
        keep = _begin_characters(~continues, after, np.array(length), np.array(link))
        number = keep.cumsum() - 1
        inner = (source == 0) & ((byte & 0xC0) == 0x80)
        on = keep[source] & ~inner
        source, byte, target, final = number[source[on]], byte[on], number[target[on]], final[keep]
    order = (source << 8 | byte).argsort(kind="stable")
    return dfa_from_arcs(source[order], byte[order], target[order], final, 0, limits)


def chunks_dfa(chunks: Sequence[bytes], limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
    """The automaton of chunks that follow each other in a list, any number of them."""
    text = np.frombuffer(b"".join(chunks), np.uint8).astype(np.int64)
    borders = np.cumsum([0, *map(len, chunks)])
    begins = distinct(borders[borders < len(text)])
    final = np.zeros(len(text) + 2, bool)
    final[0], final[1 + borders] = True, True
    nfa = ByteNfa(limits, deadline)
    nfa.add_states(final)
    nfa.add_arcs(1 + np.arange(len(text)), text, 2 + np.arange(len(text)))
    nfa.add_arcs(np.zeros(len(begins), np.int64), text[begins], 2 + begins)
    return nfa.deterministic(0)


def _begin_characters(begins: np.ndarray, after: np.ndarray, length: np.ndarray, link: np.ndarray) -> np.ndarray:
    """States with a string that begins with a character: bool[S].

    The strings of a state end at one place and are of all lengths from the one after its link's up to its own.

    Args:
      begins: bool[n + 1], bytes of the text that begin a character.
      after: int64[S], place after the strings of each state.
      length, link: int64[S] of the suffix automaton.
    """
    before = np.concatenate([[0], begins.cumsum()])
    shortest = np.where(link < 0, 0, length[link] + 1)
    keep = before[after - shortest + 1] > before[after - length]
    keep[0] = True
    return keep


def _empty_text(limits: CompileLimits) -> ByteDfa:
    none = np.zeros(0, np.int64)
    return dfa_from_arcs(none, none, none, np.ones(1, bool), 0, limits)


def _suffix_automaton(text: bytes, deadline: Deadline) -> tuple[list[dict[int, int]], list[int], list[int], list[int]]:
    """Of each state its arcs, suffix link, longest string's length, and one place in the text where its strings end.

    State 0 is initial; its link is -1.
    """
    arcs: list[dict[int, int]] = [{}]
    link, length, ends = [-1], [0], [-1]
    last = 0
    for i, c in enumerate(text):
        if not i & 0xFFF:
            deadline.check(_DOING)
        new = len(arcs)
        arcs.append({})
        length.append(i + 1)
        ends.append(i)
        link.append(0)
        p = last
        last = new
        while p >= 0 and c not in arcs[p]:
            arcs[p][c] = new
            p = link[p]
        if p < 0:
            continue
        q = arcs[p][c]
        if length[p] + 1 == length[q]:
            link[new] = q
            continue
        copy = len(arcs)
        arcs.append(arcs[q].copy())
        length.append(length[p] + 1)
        ends.append(ends[q])
        link.append(link[q])
        link[q] = link[new] = copy
        while p >= 0 and arcs[p].get(c) == q:
            arcs[p][c] = copy
            p = link[p]
    return arcs, link, length, ends
