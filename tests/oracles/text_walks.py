"""Strings drawn from byte automata, all strings over a small alphabet, and single characters: material for two-sided checks."""

from __future__ import annotations

import itertools
import random
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fsa_compile.automata.pushdown import ByteMachine, Configuration

SCALARS = np.array([c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF])


def all_texts(alphabet: Iterable[str], longest: int) -> list[str]:
    """Every string over the alphabet up to a length."""
    return ["".join(w) for n in range(longest + 1) for w in itertools.product(alphabet, repeat=n)]


def takes(constraint: Any, tokens: Iterable[int]) -> bool:
    """Whether a compiled constraint allows tokens one after another, and a text may end behind them."""
    walk = constraint.walk()
    for token in tokens:
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return walk.accepting


def accepted_texts(dfa, rng: random.Random, count: int, longest: int = 80) -> Iterator[str]:
    """Random members of the language of a `ByteDfa`; printable ASCII bytes are preferred."""
    arcs = defaultdict(list)
    for source, byte, target in zip(*(a.tolist() for a in dfa.arcs)):
        arcs[source].append((byte, target))
    plain = {q: [arc for arc in out if 32 <= arc[0] < 127] for q, out in arcs.items()}
    for _ in range(count):
        q, word, member = dfa.start, bytearray(), None
        for _ in range(rng.randint(0, longest)):
            if dfa.final[q]:
                member = bytes(word)
            if not arcs[q]:
                break
            byte, q = rng.choice(plain[q] if plain[q] and rng.random() < 0.8 else arcs[q])
            word.append(byte)
        if dfa.final[q]:
            member = bytes(word)
        if member is not None:
            yield member.decode()


def written(machine: ByteMachine, rng: random.Random, letters: str, longest: int) -> str:
    """A random text along a byte machine, not always to its end: what closes is preferred."""
    here, text = {machine.initial}, ""
    for _ in range(longest):
        viable = [(c, after) for c in letters if (after := machine.run(c.encode(), here))]
        if not viable or (machine.may_end(here) and rng.random() < 0.1):
            break
        closing = [way for way in viable if way[0] in ")}];"]
        c, here = rng.choice(closing if closing and rng.random() < 0.5 else viable)
        text += c
    return text


def mutations(text: str, rng: random.Random, count: int, extra: str = 'aA1 .-\n"\\é٣0_zſK日') -> Iterator[str]:
    """Texts that differ from `text` in one place."""
    for _ in range(count):
        chars = list(text)
        at = rng.randrange(len(chars) + 1)
        kind = rng.random()
        if kind < 0.35 and chars:
            del chars[min(at, len(chars) - 1)]
        elif kind < 0.7:
            chars.insert(at, rng.choice(extra))
        elif chars:
            chars[min(at, len(chars) - 1)] = rng.choice(extra)
        yield "".join(chars)


def accepted_characters(dfa) -> np.ndarray:
    """bool[0x110000]: which one-character texts a `ByteDfa` accepts (False for surrogates)."""
    out = np.zeros(0x110000, bool)
    full = dfa.table[:, dfa.byte_class]
    for low, high, shifts, lead in (
        (0, 0x80, (), 0),
        (0x80, 0x800, (0,), 0xC0),
        (0x800, 0x10000, (6, 0), 0xE0),
        (0x10000, 0x110000, (12, 6, 0), 0xF0),
    ):
        points = np.arange(low, high)
        points = points[(points < 0xD800) | (points > 0xDFFF)]
        state = full[dfa.start, lead | points >> 6 * len(shifts)]
        for shift in shifts:
            state = full[state, 0x80 | points >> shift & 0x3F]
        out[points] = dfa.final[state]
    return out


def is_trim(dfa) -> bool:
    """Whether every state but 0 lies on a path from the start to a final state, and state 0 is dead."""
    source, _, target = dfa.arcs
    if dfa.final[0] or dfa.table[0].any():
        return False
    forward, backward = defaultdict(list), defaultdict(list)
    for q, t in zip(source.tolist(), target.tolist()):
        forward[q].append(t)
        backward[t].append(q)
    everything = set(range(1, dfa.num_states))
    for begin, edges in (([dfa.start], forward), (np.flatnonzero(dfa.final).tolist(), backward)):
        seen, todo = set(begin), list(begin)
        while todo:
            for t in edges[todo.pop()]:
                if t not in seen:
                    seen.add(t)
                    todo.append(t)
        if seen != everything:
            return False
    return True


def derived(machine: ByteMachine, rng: random.Random, eager: int, closing: bytes, rare: bytes = b"", begin: Configuration | None = None) -> str | None:
    """A random text that a byte machine accepts; None if none was found in time.

    Classes of bytes are equally likely, so that bytes with moves of their own are common; punctuation is preferred.

    Args:
      eager: after so many bytes those are preferred that close something, or are letters and digits.
      closing: bytes that close something; before that they are taken seldom.
      rare: bytes that are taken seldom always.
      begin: where the text begins; None where the machine does.
    """
    classes = defaultdict(list)
    for byte in range(256):
        classes[int(machine.byte_class[byte])].append(byte)
    here, text = {begin or machine.initial}, bytearray()
    while len(text) < 500 and not machine.may_end(here):
        drawn = [rng.choice(members) for members in classes.values()]
        ways = {byte: after for byte in drawn if (after := machine.step(here, byte))}
        seldom = [byte for byte in ways if byte in closing]
        common = [byte for byte in ways if byte not in closing and (byte not in rare or rng.random() < 0.1)]
        if len(text) > eager and rng.random() < 0.7:
            common = [byte for byte in common if chr(byte).isascii() and chr(byte).isalnum()] or common
        elif rng.random() < 0.3:
            common = [byte for byte in common if chr(byte) in string.punctuation] or common
        takes = seldom and (not common or rng.random() < (0.7 if len(text) > eager else 0.1))
        byte = rng.choice(seldom if takes else common or list(ways))
        here = ways[byte]
        text.append(byte)
    return text.decode() if machine.may_end(here) else None
