"""Sets of items against plain Python sets: every prefix of every item, with and without limits, on the host and on the device."""

from __future__ import annotations

import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
from fsa_compile import CompiledItems, compile_items, draw, inspect
from jax_decode import Status
from jax_decode.tables import items as catalogue

V = 12
STOP = 11


def random_items(rng: random.Random, count: int, longest: int) -> list[list[int]]:
    """Items that share beginnings, some of them beginnings of others, some equal."""
    return [[rng.choice((0, 1, 2, 7, 10)) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def expected(items: list[list[int]], text: tuple[int, ...], remaining: int | None, stop: list[int]) -> set[int]:
    """The tokens that may follow a text, by the definition."""
    rest = [tuple(item[len(text) :]) for item in items if tuple(item[: len(text)]) == text]
    ends = set(stop) if () in rest else set()
    rest = [r for r in rest if r]
    if remaining is not None and (ends or any(len(r) <= remaining for r in rest)):
        rest = [r for r in rest if len(r) <= remaining]
    elif remaining is not None and () in [tuple(item[len(text) :]) for item in items if tuple(item[: len(text)]) == text]:
        rest = []
    return {r[0] for r in rest} | ends


def prefixes(items: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(item[:n]) for item in items for n in range(len(item) + 1)}


@pytest.mark.parametrize("seed", range(12))
def test_the_walk_is_the_set(seed):
    rng = random.Random(seed)
    items = random_items(rng, rng.choice((1, 3, 40)), rng.choice((1, 3, 6)))
    compiled = compile_items(items, V, stop_ids=(STOP,))
    assert compiled.num_items == len(set(map(tuple, items)))
    assert compiled.num_nodes == len(prefixes(items))
    for text in prefixes(items):
        walk = compiled.walk()
        for token in text:
            walk.advance(token)
        assert walk.accepting == (list(text) in items)
        for remaining in (None, 1, 2, 3, 9):
            if remaining is not None and remaining < walk.distance:
                with pytest.raises(fsa_compile.BudgetError):
                    walk.allowed(remaining)
                continue
            assert set(np.flatnonzero(walk.allowed(remaining))) == expected(items, text, remaining, [STOP]), (text, remaining)
        for token in set(range(V)) - expected(items, text, None, [STOP]):
            with pytest.raises(fsa_compile.ConstraintError):
                walk.advance(token)
        assert compiled.find(text) == (items.index(list(text)) if list(text) in items else None)


@pytest.mark.parametrize("listed", [16, 2])
def test_the_device_is_the_walk(listed, monkeypatch):
    """Rows in two sets of items, in a pattern, a grammar with a stack, and without a constraint, in one batch."""
    monkeypatch.setattr(catalogue, "LISTED", listed)
    rng = random.Random(listed)
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"(", b")", *[bytes([97 + i]) for i in range(9)], b""], stop_ids=[STOP])
    sets = [compile_items(random_items(rng, n, 5), vocabulary) for n in (30, 7)]
    others = [
        fsa_compile.compile_regex("[a-e]*f", vocabulary),
        fsa_compile.compile_grammar('s: "(" s ")" | "a"', vocabulary, mode="characters", **{"start": "s"}),
    ]
    tables = jax_decode.to_device([sets[0], others[0], sets[1], others[1]])
    which = [0, 1, 2, 3, -1] * 8
    limits = [3 + i % 5 for i in range(len(which))]
    state = jax_decode.init_state(tables, which, limits, max_tokens=8)
    walks = [[sets[0], others[0], sets[1], others[1]][i].walk() if i >= 0 else None for i in which]
    step = jax.jit(lambda t, s, x: jax_decode.advance(t, s, x))
    masks = jax.jit(lambda t, s: jax_decode.mask(t, s))
    for taken in range(7):
        mask = np.asarray(masks(tables, state))
        tokens = []
        for row, walk in enumerate(walks):
            if int(state.status[row]) != Status.RUNNING or walk is None:
                tokens.append(rng.randrange(11) if walk is None else 0)
                continue
            allowed = walk.allowed(limits[row] - taken)
            assert (mask[row] == allowed).all(), (row, taken)
            tokens.append(int(rng.choice(np.flatnonzero(allowed))))
            walk.advance(tokens[-1])
        state = step(tables, state, jnp.asarray(tokens, jnp.int32))
    for row, walk in enumerate(walks):
        if walk is not None:
            assert int(state.status[row]) == Status.ACCEPTED, row
    state = jax_decode.init_state(tables, which, limits, max_tokens=8)
    after = step(tables, state, jnp.full(len(which), 9, jnp.int32))  # in no item
    assert [int(s) == Status.DEAD_END for s in after.status] == [i >= 0 for i in which]


def bigram_model(size: int, seed: int) -> tuple[jax_decode.FunctionDecoder, np.ndarray]:
    logits = np.random.default_rng(seed).normal(0, 2, (size, size)).astype(np.float32)
    model = jax_decode.FunctionDecoder(
        lambda p, tokens, cache, lengths: (p[tokens], cache + lengths), jnp.asarray(logits), lambda b, n: jnp.zeros(b, jnp.int32), size
    )
    return model, logits - np.logaddexp.reduce(logits, 1, keepdims=True)


def test_beams_find_the_best_items():
    """With as many beams as prefixes, beam search ranks the items as their log-probabilities do."""
    rng = np.random.default_rng(3)
    items = np.unique(rng.integers(0, 40, (60, 3)), axis=0)
    model, logprob = bigram_model(40, 1)
    compiled = compile_items(items, 40)
    best = jax_decode.beam_search(model, [5], jax_decode.to_device(compiled), beams=64, num_return=10, max_new_tokens=3)
    score = logprob[5, items[:, 0]] + logprob[items[:, 0], items[:, 1]] + logprob[items[:, 1], items[:, 2]]
    order = np.argsort(-score)[:10]
    assert [compiled.find(tokens[:3]) for tokens in best.tokens] == order.tolist()
    np.testing.assert_allclose(np.asarray(best.raw_logprobs).sum(-1), score[order], rtol=1e-4)


def test_samples_are_items():
    rng = random.Random(8)
    items = random_items(rng, 50, 6)
    model, _ = bigram_model(V, 2)
    tables = jax_decode.to_device(compile_items(items, V, stop_ids=(STOP,)))
    out = jax_decode.generate(
        model, [[0]] * 64, tables, max_new_tokens=7, key=jax.random.key(0), sampler=jax_decode.Categorical(), forced=4
    )
    for tokens, status in zip(out.tokens, out.status):
        assert status == Status.ACCEPTED
        assert [int(t) for t in tokens if t not in (-1, STOP)] in items


def test_strings_are_the_tokenizers_tokens(tmp_path):
    import models

    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    names = ["red lamp", "red chair", "blue lamp"]
    compiled = compile_items(names, tokenizer)
    assert [compiled.find(tokenizer.encode(name)) for name in names] == [0, 1, 2]
    compiled.save(tmp_path / "names.npz")
    again = CompiledItems.load(tmp_path / "names.npz", tokenizer)
    assert all((getattr(again, name) == getattr(compiled, name)).all() for name in ("token", "first", "distance", "item"))
    assert again.stop_ids == compiled.stop_ids
    assert again.source == compiled.source
    other = compile_items([[1, 2]], 5)
    other.save(tmp_path / "other.npz")
    with pytest.raises(fsa_compile.ArtifactError, match="another vocabulary"):
        CompiledItems.load(tmp_path / "other.npz", tokenizer)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("first", 1, 0), ("token", 2, 99), ("token", 2, 0), ("distance", 0, 9), ("distance", 3, 1), ("first", 0, 0)],
)
def test_damaged_files_are_refused(tmp_path, name, place, value):
    compiled = compile_items([[0, 1], [2, 1], [2, 3]], V)
    array = getattr(compiled, name).copy()
    array[place] = value
    fields = {n: getattr(compiled, n) for n in ("token", "first", "distance", "item")} | {name: array}
    CompiledItems(vocab_size=V, fingerprint=compiled.fingerprint, stop_ids=(), source="x", **fields).save(tmp_path / "x.npz")
    with pytest.raises(fsa_compile.ArtifactError, match="damaged"):
        CompiledItems.load(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([[1, 2], [12]], "item 1, position 0"),
        ([[1, 2], [1, -3]], "item 1, position 1"),
        ([[1], []], "item 1, position 0"),
        (np.array([[1, -1, 2]]), "stands after the end"),
        ([[1, STOP]], "ends the text"),
        (["a"], "item 0: 'a'"),
        ([[1], 5], "item 1: 5"),
        ("abc", "cannot be a str"),
        (np.zeros((2, 2)), "float64"),
        ([], "no items"),
    ],
)
def test_what_is_no_item_is_named(items, said):
    with pytest.raises(fsa_compile.ConstraintError, match=said):
        compile_items(items, V, stop_ids=(STOP,))


def test_limits():
    items = np.random.default_rng(0).integers(0, 9, (1000, 4))
    with pytest.raises(fsa_compile.LimitError, match="max_bytes"):
        compile_items(items, 9, limits=fsa_compile.CompileLimits(max_bytes=1000))


def test_equal_and_wide_ids():
    """Ids beyond 16 bits; items given twice."""
    size = 200_000
    items = [[199_999, 0], [70_000, 65_536], [199_999, 0]]
    compiled = compile_items(items, size)
    assert compiled.token.dtype == np.int32
    assert compiled.num_items == 2
    assert [compiled.find(item) for item in items] == [0, 1, 0]
    for text in itertools.product((199_999, 70_000, 3), repeat=2):
        assert (compiled.find(text) is not None) == (list(text) in items)


def test_mask_rows_within_their_memory(monkeypatch):
    """Fewer nodes have mask rows where these would take too much memory; the masks stay the same."""
    rng = np.random.default_rng(5)
    compiled = compile_items(np.unique(rng.integers(0, 60, (900, 2)), axis=0), 60)
    masks = []
    for most in (1 << 20, -(1 << 40)):
        monkeypatch.setattr(catalogue, "ROW_BYTES", most)
        tables = jax_decode.to_device(compiled)
        state, see = jax_decode.init_state(tables, [0] * 60, None), jax.jit(lambda t, s: jax_decode.mask(t, s))
        first = np.asarray(see(tables, state))
        state = jax.jit(lambda t, s, x: jax_decode.advance(t, s, x))(tables, state, jnp.arange(60, dtype=jnp.int32))
        masks.append((first, np.asarray(see(tables, state)), tables.max_candidates))
    assert (masks[0][0] == masks[1][0]).all()
    assert (masks[0][1] == masks[1][1]).all()
    for token in range(60):
        walk = compiled.walk()
        if walk.allowed()[token]:
            walk.advance(token)
            assert (masks[0][1][token] == walk.allowed()).all()


def test_beside_two_stacks_and_beside_keys_in_every_order(exhaustive):
    """Rows in a set of items, in a grammar that needs two stacks or a schema of keys in every order, and free ones."""
    letters = [bytes([c]) for c in range(256)]
    vocabulary = fsa_compile.Vocabulary.from_tokens([*letters, b"aa", b"ab", b"bb", b'"a":', b'{"', b""], stop_ids=[261])
    items = compile_items([[97, 98], [97, 256, 98], [98], [257, 257, 257, 99]], vocabulary)
    two = fsa_compile.compile_grammar(
        's: "a" s "b" | "a" s "bb" | "c"', vocabulary, mode="characters", start="s", stacks=2
    )
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    options = fsa_compile.SchemaOptions(key_order="any", whitespace="compact")
    keyed = fsa_compile.compile_json_schema(schema, vocabulary, options=options)

    @jax.jit
    def stepped(tables, state, tokens, moves):
        after = jax_decode.advance(tables, state, tokens)
        state = jax.tree.map(lambda new, old: jnp.where(moves, new, old), after, state)
        return state, jax_decode.mask(tables, state)

    for other, most in ((two, 8), (keyed, 26)):
        constraints = [items, other]
        tables = jax_decode.to_device(constraints, vocabulary=vocabulary)
        rng, which = random.Random(1), [0, 1, -1] * 4
        limits = [4 if w == 0 else most - i % 3 for i, w in enumerate(which)]
        state = jax_decode.init_state(tables, which, limits, max_tokens=30)
        state, mask = stepped(tables, state, jnp.zeros(len(which), jnp.int32), False)
        walks = [constraints[w].walk() if w >= 0 else None for w in which]
        for taken in range(max(limits)):
            mask, tokens = np.asarray(mask), []
            for row, walk in enumerate(walks):
                if walk is None or int(state.status[row]) != Status.RUNNING:
                    tokens.append(97)
                    continue
                allowed = walk.allowed(limits[row] - taken)
                assert (mask[row] == allowed).all(), (row, taken)
                tokens.append(int(rng.choice(np.flatnonzero(allowed))))
                walk.advance(tokens[-1])
            state, mask = stepped(tables, state, jnp.asarray(tokens, jnp.int32), True)
        ended = {0: Status.ACCEPTED, 1: Status.ACCEPTED, -1: Status.TRUNCATED}
        assert [int(s) for s in state.status] == [ended[w] for w in which]
        if not exhaustive:  # beams over several stacks take half a minute to compile
            continue
        beams = jax_decode.beam_search(
            bigram_model(vocabulary.size, 3)[0], [[99]] * 3, tables, constraint=[0, 1, 0], beams=3, max_new_tokens=most
        )
        assert [beams.found[0], beams.found[2]] == [3, 3]
        assert all(items.find([t for t in tokens if t != 261]) is not None for tokens in beams.tokens[:3])
        for tokens in beams.tokens[3 : 3 + beams.found[1]]:
            walk = other.walk()
            for token in tokens.tolist():
                assert walk.allowed()[token]
                walk.advance(token)
            assert walk.accepting


def test_items_in_the_tools_for_constraints():
    """Sizes and pictures work; healing says what to compile instead."""
    letters = [bytes([c]) for c in range(97, 105)]
    vocabulary = fsa_compile.Vocabulary.from_tokens([*letters, b""], stop_ids=[8])
    items = compile_items([[0, 1], [0, 1, 2, 3], [5]], vocabulary)
    numbers = inspect.statistics(items)
    assert (numbers.states, numbers.arcs, numbers.accepting) == (6, 5, 3)
    assert (numbers.shortest, numbers.longest, numbers.nbytes) == (1, 4, items.nbytes)
    assert inspect.shortest_tokens(items) == [5]
    graph = draw.build_graph(items, vocabulary)
    assert graph.edges == ((0, 1, "a"), (0, 2, "f"), (1, 3, "b"), (3, 4, "c"), (4, 5, "d"))
    assert graph.accepting == {2, 3, 5}
    few = draw.draw(items, max_nodes=3)
    assert few.graph.hidden == 3
    assert few.graph.cut == {1}
    with pytest.raises(fsa_compile.ConstraintError, match="compile_choices"):
        fsa_compile.heal([0], items, vocabulary)
    other = fsa_compile.Vocabulary.from_tokens([b"x", b""], stop_ids=[1])
    with pytest.raises(fsa_compile.ArtifactError, match="compiled for vocabulary"):
        draw.draw(items, other)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_items_beside_checkpoints(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    items = compile_items([[3, 1, 4], [3, 1], [70_000]], 80_000, stop_ids=(9,))
    jax_decode.save_orbax(items, tmp_path / "items")
    again = jax_decode.load_orbax(tmp_path / "items")
    assert isinstance(again, CompiledItems)
    for name, array in items.arrays.items():
        assert getattr(again, name).dtype == array.dtype
        assert (getattr(again, name) == array).all()
    assert again.header == items.header
