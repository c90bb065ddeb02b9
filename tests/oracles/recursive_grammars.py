"""Random deterministic grammars that nest without a bound: every alternative begins with a byte of its own, and closes."""

from __future__ import annotations

import random

from fsa_compile.vocabulary import Vocabulary

ALPHABET = b"[](){}<>,;xy01k"
_BRACKETS = ["[]", "()", "{}", "<>"]


def recursive_grammar(rng: random.Random, *, ambiguous: bool = False) -> str:
    """Lark text over `ALPHABET`: brackets, lists with counts, words with counts, options; the first rule is in a bracket of another.

    With `ambiguous`, alternatives of a rule may begin alike, so that several readings have to be followed.
    """
    names = ["start", "a", "b", "c"][: rng.randint(1 + ambiguous, 4)]
    return "".join(f"{name}: {_alternatives(rng, names, ambiguous)}\n" for name in names)


def _alternatives(rng: random.Random, names: list[str], ambiguous: bool) -> str:
    brackets = rng.sample(_BRACKETS, rng.randint(1, 3))
    nested = [f'"{left}" {_body(rng, names)} "{right}"' for left, right in brackets]
    if ambiguous:
        left, right = rng.choice(brackets)
        nested += [f'"{left}" {rng.choice(names)} "{rng.choice([right, ";"])}"' for _ in range(2)]
        nested += [f'"{sign}" {rng.choice(names)} "{sign}" | "{sign}"' for sign in rng.sample("01", rng.randint(0, 2))]
    leaf = rng.choice(['"k"', "/[xy]+/", f"/[xy]{{{rng.randint(1, 2)},{rng.randint(2, 9)}}}/", "/[01]+/", '"kk" | /x+y/'])
    parts = [*nested, leaf]
    rng.shuffle(parts)
    return " | ".join(parts)


def _body(rng: random.Random, names: list[str]) -> str:
    one, other, sign = rng.choice(names), rng.choice(names), rng.choice(",;")
    low = rng.randint(0, 3)
    return rng.choice(
        [
            one,
            f"{one}?",
            f'[{one} ("{sign}" {other})*]',
            f'{one} ("{sign}" {other})~{low}..{low + rng.randint(0, 4)}',
            f'({one} "{sign}")~{low}..{low + rng.randint(1, 3)}',
            f'{one} "{sign}" {other}',
            f'("{sign}" {one})*',
            "/[xy]{0,3}/",
            f'/[01]{{{rng.randint(1, 4)}}}/ ("{sign}" {one})?',
        ]
    )


def vocabulary_for(rng: random.Random, alphabet: bytes = ALPHABET, merges: int = 12) -> Vocabulary:
    """The bytes alone and longer tokens, mostly runs of closing brackets; `merges=0` is the poorest."""
    closing = bytes([b for b in alphabet if b in b"])}>,;"])
    longer = [bytes(rng.choices(rng.choice([alphabet, closing]), k=rng.randint(2, 4))) for _ in range(merges)]
    tokens = dict.fromkeys([*(bytes([b]) for b in alphabet), *longer])
    return Vocabulary.from_tokens([b"", *tokens], stop_ids=[0])
