"""Free text that begins with none of some leads."""

from __future__ import annotations

import random
import re

import pytest

from fsa_compile.formats.text_automaton import text_automaton
from fsa_compile.formats.tree import FreeText
from fsa_compile.languages import constructors as languages
from fsa_compile.limits import CompileLimits, Deadline

LIMITS = CompileLimits()


def words(rng, most):
    return "".join(rng.choice("ab<é") for _ in range(rng.randint(0, most)))


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_difference_of_languages(seed):
    """Leads may begin alike, be parts of others, and hold beginnings of what no text holds."""
    rng = random.Random(seed)
    leads = {(words(rng, 2), words(rng, 3), words(rng, 2)) for _ in range(rng.randint(1, 4))}
    leads = tuple(lead for lead in sorted(leads) if any(lead)) or (("a", "b", ""),)
    without = tuple(word for word in sorted({words(rng, 3), words(rng, 3)}) if word)
    every = languages.regex("(?s:.*)")
    wanted = every - languages.regex(f"(?s:.*(?:{'|'.join(map(re.escape, without))}).*)") if without else every
    wanted = wanted - (languages.choices(tuple("".join(lead) for lead in leads)) + every)
    dfa = wanted.to_byte_dfa(LIMITS, Deadline(LIMITS))
    made = text_automaton(FreeText(without, "#", leads), LIMITS, Deadline(LIMITS))
    seen = {(made.start, dfa.start)}
    todo = list(seen)
    while todo:
        one, other = todo.pop()
        assert made.final[one] == dfa.final[other]
        for byte in range(256):
            pair = int(made.table[one, made.byte_class[byte]]), int(dfa.table[other, dfa.byte_class[byte]])
            assert bool(pair[0]) == bool(pair[1]), (leads, without, byte)
            if pair[0] and pair not in seen:
                seen.add(pair)
                todo.append(pair)
