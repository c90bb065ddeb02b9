"""Options of all front ends together over odd vocabularies: which token sequences are allowed, by the text alone.

The oracle reads bytes with the constraint that was compiled without options; filters, the tokenizer's own tokens and the start of
a text are judged by Python and by the tokenizer.
"""

from __future__ import annotations

import itertools
import random
import re
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest
import tokenizers
from oracles.text_walks import takes
from tokenizers import decoders, models, pre_tokenizers

import fsa_compile
from fsa_compile import CanonicalWalk, CompileLimits, Vocabulary, filters, preprocessing
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError, UnspellableError
from fsa_compile.prompts.continuation import encode_continuation

BYTES = Vocabulary.from_tokens([*(bytes([i]) for i in range(256)), b""], stop_ids=[256])
ALPHABET = 'ab1[], "é\n:-'
LIMITS = CompileLimits(max_states=20_000, max_seconds=20)
LARK = [
    'start: "[" (start ("," start)*)? "]" | "a"', 'start: " " x\nx: "[" x "]" | /[ab]{1,3}/', 'start: x?\nx: "a" x "a" | "b" | " " x',
    'start: A B?\nA: /a+/\nB: /b{2,80}/\n%ignore " "', 'start: (" " | "a")*', 'start: "" | "a" start " "', 'start: " " start "a" | " "',
]  # fmt: skip
GBNF = ['root ::= " "? "a" root? "1"', 'root ::= "[" root{0,2} "]" | [ab]{1,2}', 'root ::= ("a" | " ")* "b"?']
TYPES: list[Any] = [list[int], Literal["a", "b", "a b", 1], dict[str, bool], tuple[int, str], bool | None, list[list[Literal["a"]]]]


def random_encoder(rng: random.Random) -> Any:
    """A byte-level encoder, or one with a sign for spaces, over random merges; each in several conventions for the start."""
    byte_level = rng.random() < 0.5
    if byte_level:
        splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        letters, space = [c for letter in ALPHABET for c in splitter.pre_tokenize_str(letter)[0][0]], "Ġ"
        pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        letters, space = ["▁", *ALPHABET.replace(" ", "")], "▁"
        pieces = ["<unk>", *letters, *(f"<0x{b:02X}>" for b in range(256))]
    merges, parts = [], list(letters)
    for _ in range(rng.choice([0, 3, 8, 16])):
        left, right = (space if rng.random() < 0.3 else rng.choice(parts)), rng.choice(parts)
        if left + right not in pieces and len(left + right) <= 5:
            merges.append((left, right))
            pieces.append(left + right)
            parts.append(left + right)
    unknown = {} if byte_level else {"unk_token": "<unk>", "byte_fallback": True}
    made = tokenizers.Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges, **unknown))
    if byte_level:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.5, use_regex=True)
        made.decoder = decoders.ByteLevel()
    else:
        scheme = rng.choice(["always", "never", "first"])
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=rng.random() < 0.5)
        own = decoders.Metaspace(prepend_scheme=scheme)
        made.decoder = own if rng.random() < 0.2 else decoders.Sequence([own, decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(["<eos>"])
    return fsa_compile.load_tokenizer(made)


def random_vocabulary(rng: random.Random) -> Vocabulary:
    """Tokens that repeat, cut characters, write nothing; not always one for each byte."""
    tokens = [bytes([b]) for b in ALPHABET.encode()]
    tokens = rng.sample(tokens, rng.randint(8, len(tokens))) if rng.random() < 0.4 else tokens
    for _ in range(rng.choice([0, 4, 10])):
        some = "".join(rng.choices(ALPHABET, k=rng.randint(2, 4))).encode()
        tokens.append(some[rng.randrange(2) :])
    tokens += [*rng.choices(tokens, k=rng.randint(0, 3)), *[b""] * rng.randint(1, 3)]
    rng.shuffle(tokens)
    empty = [i for i, token in enumerate(tokens) if not token]
    return Vocabulary.from_tokens(tokens, stop_ids=rng.sample(empty, rng.randint(1, len(empty))))


def random_pattern(rng: random.Random, depth: int = 3) -> str:
    kind = rng.random()
    if not depth or kind < 0.35:
        return rng.choice(["a", "b", "1", " ", "é", "[ab]", "[a1é ]", "a b", r"\[", "ab"])
    if kind < 0.6:
        return random_pattern(rng, depth - 1) + random_pattern(rng, depth - 1)
    if kind < 0.8:
        return f"({random_pattern(rng, depth - 1)}|{random_pattern(rng, depth - 1)})"
    return f"({random_pattern(rng, depth - 1)}){rng.choice(['*', '?', '+', '{2}', '{1,3}', '{0,70}'])}"


def random_schema(rng: random.Random, depth: int = 2) -> Any:
    kind = rng.randrange(7 if depth else 3)
    if kind == 0:
        return {"enum": rng.sample([1, 11, "a", "ab", "é", None, True, "", " a", [], [1]], rng.randint(1, 4))}
    if kind == 1:
        return {"type": "integer", "minimum": 0, "maximum": rng.choice([1, 11, 111])}
    if kind == 2:
        return {"type": "string", "maxLength": rng.choice([1, 3])}
    if kind < 5:
        return {"type": "array", "items": random_schema(rng, depth - 1), **rng.choice([{}, {"maxItems": 2}, {"maxItems": 100, "minItems": 1}])}
    if kind == 5:
        return {"type": "array", "items": {"anyOf": [{"const": 1}, {"$ref": "#"}]}} if depth == 2 else {"const": [1, 1]}
    members = {key: random_schema(rng, depth - 1) for key in "ab"}
    return {"type": "object", "properties": members, "additionalProperties": False, "required": rng.choice([[], ["a"]])}


def front_end(rng: random.Random) -> tuple[str, Callable[..., Any]]:
    """A random language: its name, and what compiles it with a tokenizer and options."""
    pattern, schema, style = random_pattern(rng), random_schema(rng), rng.choice(["json", "python"])
    words = ["".join(rng.choices("ab1 é[", k=rng.randint(0, 4))) for _ in range(3)]
    grammar, mode, stacks = rng.choice(LARK + GBNF), rng.choice(["characters", "longest"]), rng.choice([1, 1, 4])
    options = fsa_compile.SchemaOptions(key_order=rng.choice(["declared", "any"]), whitespace=rng.choice(["compact", "optional"]))
    made: Any = rng.choice(TYPES)

    def called(a: int, b: str = "x") -> None: ...

    how: dict[str, Callable[..., Any]] = {
        f"pattern {pattern}": lambda tokenizer, **o: fsa_compile.compile_regex(pattern, tokenizer, **o),
        f"choices {words}": lambda tokenizer, **o: fsa_compile.compile_choices(words, tokenizer, **o),
        f"schema {schema}, {options}": lambda tokenizer, **o: fsa_compile.compile_json_schema(schema, tokenizer, options=options, **o),
        f"YAML {schema}": lambda tokenizer, **o: fsa_compile.compile_yaml_schema(schema, tokenizer, **o),
        f"type {made}, {style}": lambda tokenizer, **o: fsa_compile.compile_type(made, tokenizer, style=style, **o),
        f"call, {style}": lambda tokenizer, **o: fsa_compile.compile_call(called, tokenizer, style=style, **o),
        f"grammar {grammar!r}, {mode}, {stacks}": lambda tokenizer, **o: fsa_compile.compile_grammar(grammar, tokenizer, mode=mode, stacks=stacks, **o),
    }  # fmt: skip
    return rng.choice([*how.items(), list(how.items())[-1]])


def random_filters(rng: random.Random, vocabulary: Vocabulary) -> tuple[list[Any], list[Callable[[str], bool]], list[Callable[[tuple], bool]]]:
    """Filters, what they say of a text, and what they say of tokens."""
    made, of_text, of_tokens = list[Any](), list[Callable[[str], bool]](), list[Callable[[tuple], bool]]()
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        kind, count = rng.randrange(6), rng.randint(0, 6)
        if kind == 0:
            letters = "".join(rng.sample(ALPHABET, 9))
            made.append(filters.characters(letters))
            of_text.append(lambda text, letters=letters: set(text) <= set(letters))
        elif kind == 1:
            word = rng.choice(["a", "ab", "1", "[[", "é", " a", "bb", ",", '"'])
            made.append(filters.forbid(word))
            of_text.append(lambda text, word=word: word not in text)
        elif kind == 2:
            unit, measure = rng.choice([("characters", len), ("words", lambda text: len(text.split())), ("bytes", lambda text: len(text.encode()))])
            least = rng.random() < 0.3
            made.append(filters.length(at_least=count, unit=unit) if least else filters.length(at_most=count, unit=unit))
            of_text.append(lambda text, m=measure, n=count, least=least: m(text) >= n if least else m(text) <= n)
        elif kind == 3:
            known = rng.sample(["a", "ab", "b", "1", "11", "é", "aa"], 4)
            made.append(filters.words(known))
            of_text.append(lambda text, known=known: set(re.findall(r"\w+", text)) <= set(known))
        elif kind == 4:
            made.append(filters.token_count(at_least=count // 3, at_most=count))
            of_tokens.append(lambda ids, n=count: n // 3 <= len(ids) <= n)
        else:
            denied = rng.sample(range(vocabulary.size), 3)
            made.append(filters.token_set(deny=denied))
            of_tokens.append(lambda ids, denied=denied: not set(ids) & set(denied))
    return made, of_text, of_tokens


class Oracle:
    """Which token sequences a constraint with options should allow."""

    def __init__(self, base: Any, tokenizer: Any, of_text: list, of_tokens: list, options: dict[str, Any]) -> None:
        self.base, self.tokenizer, self.of_text, self.of_tokens = base, tokenizer, of_text, of_tokens
        self.vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
        self.canonical = "canonical" in options
        self.start = preprocessing.text_start(tokenizer) if "starts_text" in options else None
        self.leaves_spaces_out = self.start is not None and self.start.prefix and self.start.keeps_spaces and not self.start.always
        self.by_text: dict[bytes, list[int]] = {}
        for i, token in enumerate(self.vocabulary.tokens):
            self.by_text.setdefault(token, []).append(i)

    def is_text(self, data: bytes) -> bool:
        """Whether the bytes are a text of the language that passes the filters over text."""
        walk = self.base.walk()
        for byte in data:
            if not walk.allowed()[byte]:
                return False
            walk.advance(byte)
        return walk.accepting and all(passes(data.decode()) for passes in self.of_text)

    def is_after_prefix(self, data: bytes) -> bool:
        """Whether what follows one space is a text that does not begin with another."""
        return not data[1:].startswith(b" ") and self.is_text(data[1:])

    def before(self, text: bytes) -> bytes | None:
        """The bytes of a text's tokens; None where it cannot be read back."""
        start = self.start
        if start is None or not text or not (start.prefix or text.startswith(b" ")):
            return text
        if text.startswith(b" ") and not start.keeps_spaces:
            return None
        return text if text.startswith(b" ") and not start.always else start.prefix.encode() + text

    def allows(self, ids: tuple[int, ...]) -> bool:
        if not all(passes(ids) for passes in self.of_tokens):
            return False
        data = self.vocabulary.decode_bytes(ids)
        texts = {text for text in (data, data[1:]) if self.before(text) == data and self.is_text(text)}
        start = self.start
        if start is not None:
            read = self.tokenizer.decode(list(ids)).encode()
            texts = {text for text in texts if read == (text if start.dropped or not start.prefix else data)}
        if not self.canonical:
            return bool(texts)
        own = (lambda text: self.tokenizer.encode(text)) if start is not None else (lambda text: encode_continuation(self.tokenizer, text))
        return any(tuple(own(text.decode())) == ids for text in texts)

    def sequences(self, longest: int = 6) -> list[tuple[int, ...]]:
        """Those of short texts, by trying."""
        out, todo, looked_at = list[tuple[int, ...]](), deque([b""]), 0
        letters = set(ALPHABET.encode()) | set(b"trufalsn")
        while todo and looked_at < 400:
            text, looked_at = todo.popleft(), looked_at + 1
            walk = self.base.walk()
            for byte in text:
                walk.advance(byte)
            if walk.accepting and self.is_text(text) and (data := self.before(text)) is not None:
                out += filter(self.allows, itertools.islice(self._spellings(data), 300))
            if len(text) < longest:
                todo += [text + bytes([b]) for b in np.flatnonzero(walk.allowed()[:256]).tolist() if b in letters]
        return out

    def _spellings(self, data: bytes) -> Iterator[tuple[int, ...]]:
        if not data:
            yield ()
        for n in range(1, min(len(data), 8) + 1):
            for token in self.by_text.get(data[:n], ()):
                yield from ((token, *rest) for rest in self._spellings(data[n:]))


def one_case(rng: random.Random) -> Counter:
    """A language, a vocabulary and options: sequences of the oracle are allowed, and random ones that are allowed are the oracle's."""
    tokenizer = random_vocabulary(rng) if (bare := rng.random() < 0.3) else random_encoder(rng)
    name, compiled = front_end(rng)
    made, of_text, of_tokens = random_filters(rng, getattr(tokenizer, "vocabulary", tokenizer))
    options: dict[str, Any] = {"filters": made}
    options |= {key: True for key in ("canonical", "starts_text") if not bare and rng.random() < 0.4}
    if name[:7] in ("grammar", "call, j") and (made or "canonical" in options) and rng.random() < 0.4:
        options["max_depth"] = rng.randint(1, 6)
    try:
        oracle = Oracle(compiled(BYTES), tokenizer, of_text, of_tokens, options)
    except ConstraintError:
        return Counter(none=1)
    wanted = oracle.sequences() if "max_depth" not in options else []
    if oracle.leaves_spaces_out and name.startswith("grammar"):
        wanted = [ids for ids in wanted if not ids or oracle.is_after_prefix(oracle.vocabulary.decode_bytes(ids))]
    case = (name, options, getattr(oracle, "start", None), oracle.vocabulary.tokens[-8:])
    constraint, empty = None, ""
    try:
        constraint = compiled(tokenizer, limits=LIMITS, **options)
    except (UnsatisfiableError, UnspellableError) as error:
        empty = str(error)
    except (LimitError, ConstraintError):
        return Counter(refused=1)
    if constraint is None:
        assert not wanted or "a token for each byte" in empty, case  # what these vocabularies may lack
        return Counter(empty=1)
    tables = fsa_compile.canonical_tables(tokenizer) if oracle.canonical else None
    walk_of = lambda: constraint.walk() if tables is None else CanonicalWalk(constraint, tables)  # noqa: E731
    for ids in wanted[:200]:
        walk = walk_of()
        for token in ids:
            assert walk.allowed()[token], (case, ids, walk)
            walk.advance(token)
        assert walk.accepting, (case, ids)
    for _ in range(8):
        walk, ids = walk_of(), list[int]()
        for _ in range(rng.randint(0, 8)):
            some = [token for token in np.flatnonzero(walk.allowed()).tolist() if token not in constraint.stop_ids]
            if not some:
                break
            ids.append(rng.choice(some))
            walk.advance(ids[-1])
        ids += _completed(walk, rng)
        assert getattr(walk, "dropped", False) or oracle.allows(tuple(ids)), (case, ids, oracle.vocabulary.decode_bytes(ids))
    return Counter({"made": 1, "checks": len(wanted[:200]) + 8, name[:7]: 1, **dict.fromkeys(options, 1)})


def _completed(walk: Any, rng: random.Random) -> list[int]:
    """The tokens of a random completion within the least limit."""
    out: list[int] = []
    limit = 0 if walk.accepting else walk.distance if hasattr(walk, "distance") else walk._needed(walk._history[-1])
    while not walk.accepting:
        out.append(int(rng.choice(np.flatnonzero(walk.allowed(limit - len(out))).tolist())))
        walk.advance(out[-1])
    return out


def test_random_combinations(tally):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rng in tally.cases(60, least=1_000):
            tally.update(one_case(rng))
    assert tally["made"] > 20
    assert min(tally["canonical"], tally["starts_text"]) > 1


def spaced() -> Any:
    """A byte-level tokenizer that puts a space before a text which has none."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    return fsa_compile.load_tokenizer(made)


@pytest.mark.parametrize(
    ("grammar", "fine", "wrong"),
    [
        ('start: ("a" start "b")?', ["", " ab", " aabb"], [" ", "ab"]),
        ('start: " " x\nx: "a" x "b" | ""', [" ", " ab"], ["", "  ", "  ab"]),  # all begin with a space: nothing is put before them
        ('start: " "? "a" "b"?', [" a", " ab"], ["a", "  a"]),
        ('start: " a" | "b" | ""', ["", " a", " b"], [" ", "b", "  a"]),
        ('start: " " x | "c"\nx: "a" x "b" | ""', [" c"], ["", " ", " ab"]),  # left out: docs/limits.md
    ],
)
def test_the_start_of_a_text_with_a_stack(grammar, fine, wrong):
    tokenizer = spaced()
    constraint = fsa_compile.compile_grammar(grammar, tokenizer, starts_text=True)
    ids = {text: [tokenizer.vocabulary.tokens.index(bytes([byte])) for byte in text.encode()] for text in [*fine, *wrong]}
    assert [text for text in ids if takes(constraint, ids[text])] == fine
