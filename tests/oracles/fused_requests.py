"""Requests that come and go in a fused loop, and what masks of the host would have chosen for them, token by token."""

from __future__ import annotations

import collections
import functools
import random
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from oracles.fused_loop import STEPS

import fsa_compile
import jax_decode
import models
from jax_decode.integrations.tpu_inference import FusedRows
from jax_decode.step.forking import row_axes

MOST = 24
TEXT = b'abcdefghij0123456789[]{}":, .-x'
WORDS = fsa_compile.Vocabulary.from_tokens(
    [b"", *(bytes([c]) for c in TEXT), b"ab", b"12", b'": ', b"[[", b"]]", *[b""] * 27], stop_ids=[0]
)
PATTERNS = ["[a-j]{2,9}", "(ab|cd)*x", r"[0-9]{1,3}(\.[0-9]{2})?", "x", "(12)+( ab)?", "[a-c]*"]
GRAMMARS = ['start: v\nv: "[" [v ("," v)*] "]" | /[a-j]{1,3}/\n', 'start: "{" v "}"\nv: "[" v "]" | "x"~2..9\n']
_TABLE = np.argsort(np.random.default_rng(0).random((len(WORDS.tokens), 7, len(WORDS.tokens))), axis=2).astype(np.float32)


class Request:
    """What a runner knows of a request, and the mask of the host."""

    def __init__(self, prompt: list[int], limit: int, constraint, slot) -> None:
        self.prompt, self.limit, self.slot = prompt, limit, slot
        self.constraint, self.tokens = constraint, list[int]()
        self.matcher = None if constraint is None else fsa_compile.Matcher(constraint, max_tokens=limit)

    @property
    def last(self) -> int:
        return [*self.prompt, *self.tokens][-1]

    def masked(self, logits: np.ndarray) -> np.ndarray:
        """float64[V], the model's logits under the host's mask."""
        logits = logits.astype(np.float64)
        if self.matcher is not None:
            mask = np.zeros((1, -(-len(logits) // 32)), np.int32)
            self.matcher.fill_next_token_bitmask(mask)
            logits[~np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(logits)].astype(bool)] = -np.inf
        assert np.isfinite(logits.max())
        return logits

    def take(self, token: int) -> None:
        self.tokens.append(token)
        if self.matcher is not None:
            assert self.matcher.accept_token(token)


class Toy:
    """A table of logits by the last token and the position; its caches count what it has read."""

    vocabulary, stops, near = WORDS, (0,), 0.0

    def __init__(self, rows: int) -> None:
        self.state, self.caches = {"table": jnp.asarray(_TABLE)}, [jnp.zeros((), jnp.int32)]

    @staticmethod
    def constraints():
        return [fsa_compile.compile_regex(text, WORDS) for text in PATTERNS] + [
            fsa_compile.compile_grammar(text, WORDS) for text in GRAMMARS
        ]

    @staticmethod
    def model_fn(state, kv_caches, tokens, metadata, *_, **__):
        return [kv_caches[0] + 1], (jnp.maximum(tokens, 0), metadata.input_positions), None, None

    @staticmethod
    def logits_fn(state, hidden, _):
        tokens, positions = hidden
        return state["table"][tokens, positions % 7]

    def prompt(self, rng: random.Random) -> list[int]:
        return [rng.randrange(len(_TABLE))]

    def enter(self, number: int, request: Request) -> None:
        pass

    def follow(self, live: dict[int, Request]) -> None:
        pass

    def logits(self, number: int, request: Request) -> np.ndarray:
        return _TABLE[request.last, len(request.tokens) % 7]

    def fed(self, order: list[int], tokens: np.ndarray, positions: jax.Array) -> None:
        pass


class Small:
    """The small trained model. A row of its caches is a page; the runner's batches say which page each of their rows has.

    The host decodes the same texts with caches of its own, one token at a time.
    """

    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    vocabulary = tokenizer.vocabulary
    stops, near = tuple(tokenizer.vocabulary.stop_ids), 1e-4
    LONGEST = 8

    def __init__(self, rows: int) -> None:
        model = small_model()
        caches = (model.init_cache(n, self.LONGEST + MOST) for n in (rows + 1, rows))
        # Bound to their place, as what comes out of a program is; programs depend on it.
        self.state, self.caches, self._own = jax.device_put((model, *caches), jax.devices()[0])
        self.rows, self._logits = rows, np.zeros((rows, model.vocab_size), np.float32)

    @classmethod
    @functools.cache
    def constraints(cls):
        pair = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", 1]}}, "additionalProperties": False}
        nested = {"$ref": "#/$defs/v", "$defs": {"v": {"type": "array", "items": {"$ref": "#/$defs/v"}}}}
        return [
            *(fsa_compile.compile_regex(p, cls.tokenizer) for p in ("(yes|no), because [a-z ]{3,60}\\.", "[0-9]{1,3}", "[A-Z][a-z]+( [a-z]+)*")),
            *(fsa_compile.compile_json_schema(s, cls.tokenizer) for s in (pair, nested, {"type": "string", "maxLength": 9})),
            fsa_compile.compile_grammar('start: "(" start ")" | "x"~2..9', cls.tokenizer),
        ]  # fmt: skip

    @staticmethod
    def model_fn(state, kv_caches, tokens, metadata, *_, **__):
        axes, pages = row_axes(state), metadata.block_tables
        rows = jax.tree.map(lambda leaf, axis: jnp.take(leaf, pages, axis), kv_caches, axes)
        logits, rows = state.apply(jnp.maximum(tokens, 0)[:, None], rows, (tokens >= 0).astype(jnp.int32))
        return jax.tree.map(lambda leaf, row, axis: _put(leaf, pages, row, axis), kv_caches, rows, axes), logits[:, -1], None, None

    @staticmethod
    def logits_fn(state, hidden, _):
        return hidden

    def prompt(self, rng: random.Random) -> list[int]:
        return self.tokenizer.encode(rng.choice(["A person: ", "Is the sky blue? ", "2 + 2 = ", "One day "]))[: self.LONGEST]

    def enter(self, number: int, request: Request) -> None:
        tokens = np.zeros((1, self.LONGEST), np.int32)
        tokens[0, : len(request.prompt)] = request.prompt
        logits, self.caches, self._own = _read(self.state, tokens, len(request.prompt), self.caches, self._own, number)
        self._logits[number] = logits[0, -1]

    def follow(self, live: dict[int, Request]) -> None:
        """The host reads the last token of these requests."""
        tokens = np.full(self.rows, -1, np.int32)
        for number, request in live.items():
            tokens[number] = request.last
        logits, self._own = _host_step(self.state, self._own, tokens)
        self._logits[list(live)] = np.asarray(logits[:, -1])[list(live)]

    def logits(self, number: int, request: Request) -> np.ndarray:
        return self._logits[number]

    def fed(self, order: list[int], tokens: np.ndarray, positions: jax.Array) -> None:
        self.caches = _fed(self.state, self.caches, tokens, self.pages(order))

    def pages(self, order: list[int]) -> np.ndarray:
        return np.where(np.asarray(order) < 0, self.rows, order).astype(np.int32)


@functools.cache
def small_model():
    return models.load_small()


def _put(leaf, at, rows, axis):
    return jnp.moveaxis(jnp.moveaxis(leaf, axis, 0).at[at].set(jnp.moveaxis(rows, axis, 0)), 0, axis)


@jax.jit
def _read(decoder, tokens, length, caches, own, number):
    empty = decoder.init_cache(1, Small.LONGEST + MOST)
    logits, rows = decoder.apply(tokens, empty, length[None], last_only=True)
    axes = row_axes(decoder)
    return logits, *(jax.tree.map(lambda leaf, row, axis: _put(leaf, number[None], row, axis), x, rows, axes) for x in (caches, own))


@jax.jit
def _host_step(decoder, cache, tokens):
    return decoder.apply(jnp.maximum(tokens, 0)[:, None], cache, (tokens >= 0).astype(jnp.int32))


@jax.jit
def _fed(decoder, caches, tokens, pages):
    return Small.model_fn(decoder, caches, tokens, SimpleNamespace(block_tables=pages))[0]


def choose(met: collections.Counter, model, number: int, request: Request, token: int | None = None) -> int:
    """The next token by the host's mask, which must be `token`, if it is given, or as good as that to the model's last digits."""
    logits = request.masked(model.logits(number, request))
    best = int(logits.argmax())
    if token is None or token == best:
        return best
    assert logits[best] - logits[token] <= model.near, (request.constraint, request.tokens, token, best)
    met["ties"] += 1
    return token


def is_text(request: Request) -> bool:
    walk = request.constraint.walk()
    for token in request.tokens:
        walk.advance(token)
    return walk.accepting


def served(loop, model, count: int, rows: int, seed: int, sharding=None) -> collections.Counter:
    """Lets requests come and go, in the loop and in steps of one token, and compares every token with the host's."""
    rng, met = random.Random(seed), collections.Counter()
    constraints = model.constraints()
    pool = jax_decode.ConstraintPool(model.vocabulary, profile="general", slots=16, sharding=sharding)
    fused = FusedRows(pool, requests=rows, max_tokens=MOST, max_depth=24)
    live: dict[int, Request] = {}

    def taken(number: int, token: int) -> bool:
        """Whether a text goes on after a token."""
        request = live[number]
        request.take(token)
        if token not in model.stops and len(request.tokens) < request.limit:
            return True
        if request.slot is not None:
            assert token in model.stops or is_text(request)
            met["at the limit"] += token not in model.stops
            pool.remove(request.slot)
        del live[number]
        met["requests"] += 1
        return False

    while count or live:
        while count and len(live) < rows and rng.random() < 0.8:
            number, constraint = min(set(range(rows)) - set(live)), rng.choice([*constraints, None])
            slot = None if constraint is None else pool.add(constraint)
            live[number] = new = Request(model.prompt(rng), rng.randrange(12, MOST), constraint, slot)
            model.enter(number, new)
            count -= 1
            if taken(number, choose(met, model, number, new)):  # the step that reads the prompt
                fused.enter(number, slot, new.limit)
                model.follow({number: new})
        order = rng.sample([*live, *[-1] * (rows - len(live))], rows)
        tokens = np.array([live[n].last if n >= 0 else -1 for n in order], np.int32)
        positions = jnp.asarray([len(live[n].tokens) if n >= 0 else 0 for n in order], jnp.int32)
        if rng.random() < 0.2:
            fused.follow(order, tokens)
            model.fed(order, tokens, positions)
            steps = [[choose(met, model, n, live[n]) if n >= 0 else -1 for n in order]]
            met["single steps"] += 1
        else:
            pages = model.pages(order) if isinstance(model, Small) else np.zeros(rows, np.int32)
            state, caches = fused.carried(model.state, model.caches, order)
            given = (state, *fused.functions(model.model_fn, model.logits_fn), jnp.asarray(tokens), positions, jnp.asarray(pages), caches)
            out, done, kept = loop(*given, rng.randrange(1, STEPS + 1), model.stops)
            model.caches = fused.kept(kept)
            steps = np.asarray(out)[: int(done)].tolist()
            met["loops"] += 1
        for step in steps:
            for number, token in zip(order, step):
                if number in live:
                    met["tokens"] += 1
                    taken(number, choose(met, model, number, live[number], token))
            model.follow(live)
    return met
