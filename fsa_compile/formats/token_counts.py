"""Text of so many tokens at most, as a machine whose register counts tokens.

Tokens are known to the walk alone, so the machine only says in which frame they count. The register holds the tokens that were
read and the fewest that still complete a character: a token that leaves a character open is allowed only where the tokens that
complete it fit as well.
"""

from __future__ import annotations

import numpy as np

from fsa_compile.artifact.arrays import NO_TEMPERATURE
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, UNCOUNTED, ByteMachine
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

MAX_TOKENS = 1 << 20
"""The largest bound that can be asked for."""


def token_limited(dfa: ByteDfa, most: int, tables: VocabularyTables, temperature: float | None = None) -> ByteMachine:
    """The value of the texts of an automaton that take at most so many tokens, but for the empty one.

    Args:
      dfa: of texts that a special token, or the end of all text, ends.
      most: tokens, at least 1.
      tables: of a vocabulary with a token for every byte.
      temperature: of the texts, if they have one.
    """
    states, classes = dfa.table.shape
    table, size = dfa.table.astype(np.int32), states + 2
    action = np.zeros((size, classes), np.int32)
    action[1] = np.where(table[dfa.start] > 0, states - 1 + table[dfa.start], 0)  # the token that begins the text
    action[2 : states + 1] = table[1:]
    target = np.tile(np.arange(2, states + 1), 2).astype(np.int32)
    end, ret = np.full(size, NO_END, np.int8), np.zeros((size, 1), np.int32)
    final = 1 + np.flatnonzero(dfa.final)
    end[final], ret[final, 0], end[-1] = END_RETURN, size - 1, END_HERE
    bounds = np.full((size, 2), UNCOUNTED, np.int32)
    bounds[1:-1] = 0, most
    return ByteMachine(
        byte_class=dfa.byte_class.astype(np.int32),
        specials=(),
        action=action,
        entry_offset=np.append(0, np.arange(len(target) + 1)).astype(np.int32),
        entry_next=target,
        entry_push=np.zeros(len(target), np.int32),
        entry_add=np.repeat([0, 1], states - 1).astype(np.int8),
        pushes=((),),
        ret=ret,
        end=end,
        bounds=bounds,
        start=1,
        stack=(0,),
        token_reserve=np.concatenate(([-1, 0], _fewest(dfa, tables)[1:], [-1])).astype(np.int32),
        temperature=None if temperature is None else np.where(action.any(1), temperature, NO_TEMPERATURE).astype(np.float32),
    )


def _fewest(dfa: ByteDfa, tables: VocabularyTables) -> np.ndarray:
    """int64[S], the fewest tokens from every state to a final one."""
    out = np.where(dfa.final, 0, np.iinfo(np.int64).max >> 1)
    full = dfa.table[:, dfa.byte_class]
    ends = {state: _one_token(full, state, tables) for state in range(1, dfa.num_states) if not dfa.final[state]}
    while True:
        better = {state: 1 + int(out[reached].min(initial=out.max())) for state, reached in ends.items()}
        new = out.copy()
        for state, value in better.items():
            new[state] = min(value, int(out[state]))
        if (new == out).all():
            return out
        out = new


def _one_token(full: np.ndarray, state: int, tables: VocabularyTables) -> np.ndarray:
    """The states in which a token can end that is read from a state."""
    node = np.zeros(1, np.int64)
    here = np.array([state])
    found = np.zeros(len(full), bool)
    while len(node):
        count = tables.trie_count[node]
        parent = np.arange(len(node)).repeat(count)
        child = (tables.trie_first[node] + count - count.cumsum())[parent] + np.arange(len(parent))
        after = full[here[parent], tables.trie_byte[child]]
        live = after > 0
        node, here = child[live], after[live]
        found[here[tables.trie_token[node] >= 0]] = True
    return found.nonzero()[0]
