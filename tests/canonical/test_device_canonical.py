"""Canonical constraints on the device: the host walk's masks and steps, and whole generations."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import toy_merges

import jax_decode
from fsa_compile import CanonicalWalk, CompiledConstraint, CompileLimits, compile_regex
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables, canonical_tables
from fsa_compile.canonical.restrict import canonical_product, factored, multiplied
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.limits import Deadline
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for
from jax_decode.step.forced import only_token
from jax_decode.step.masking import mask
from jax_decode.step.state import ConstraintState, Status, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.canonical import forbids, pair_words
from jax_decode.tables.tables import ConstraintTables

SMALL = Path(__file__).parents[2] / "models" / "small" / "tokenizer.model"
STRING = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


def small(
    rng: random.Random, pattern: str, splitter: str, text: bytes = b""
) -> tuple[CompiledConstraint, CanonicalTables, Vocabulary]:
    """A constraint over a random encoder, behind a prompt."""
    tokens, merges = toy_merges.random_encoder(rng, letters=3, merges=6)
    every = [*tokens, *(bytes([b]) for b in range(256) if bytes([b]) not in tokens), b""]
    stop = len(every) - 1
    tables = toy_tables(every, merges, pattern=splitter, stop_ids=[stop])
    vocabulary, limits = Vocabulary.from_tokens(every, stop_ids=[stop]), CompileLimits()
    plain = compile_regex(pattern, vocabulary)
    prompt = toy_merges.encode(text, tokens, merges)
    made = canonical_product(plain, tables, tables_for(vocabulary), limits, Deadline(limits), prompt=prompt)
    return made, tables, vocabulary


_mask = jax.jit(mask)
_advance = jax.jit(advance)
_only = jax.jit(only_token)


def follow(
    constraints: list[CompiledConstraint], tables: CanonicalTables, device: ConstraintTables, steps: int, rng: random.Random,
    limits: list[int] | None = None,
) -> int:  # fmt: skip
    """Random walks of one row per constraint; masks and forced tokens must be the host's. Returns how many masks were compared."""
    walks = [CanonicalWalk(c, tables) for c in constraints]
    state: ConstraintState = init_state(device, np.arange(len(walks)), None if limits is None else np.array(limits))
    compared = 0
    for step in range(steps):
        got, forced, tokens = np.asarray(_mask(device, state)), np.asarray(_only(device, state)), []
        for row, walk in enumerate(walks):
            if walk.finished or (limits is not None and step >= limits[row]):
                tokens.append(-1)
                continue
            left = None if limits is None or limits[row] < walk.constraint.shortest_completion else limits[row] - step
            want = walk.allowed(left)
            np.testing.assert_array_equal(got[row], want)
            choices = np.flatnonzero(want)
            if forced[row] >= 0:
                assert choices.tolist() == [forced[row]]
            compared += 1
            more = [t for t in choices.tolist() if t not in walk.constraint.stop_ids]
            token = int(rng.choice(more or choices.tolist()))
            walk.advance(token)
            tokens.append(token)
        state = _advance(device, state, jnp.asarray(tokens, jnp.int32))
    assert not (np.asarray(state.status) == Status.DEAD_END).any()
    return compared


@pytest.mark.parametrize("splitter", [r"[\s\S]+", r"a+(?!b)|[\s\S]"])
def test_masks_are_the_host_walks(splitter: str) -> None:
    rng, compared = random.Random(3), 0
    patterns = ("[abc]{0,6}", "(a|b)*c", "[ab]*aba[ab]{0,4}")
    made = [small(random.Random(8), pattern, splitter) for pattern in patterns]
    made += [small(random.Random(8), pattern, splitter, b"b") for pattern in patterns[:2]]
    assert made[-1][0].canonical_start[0] >= 0
    tables = made[0][1]
    constraints = [c for c, _, _ in made]
    device = jax_decode.to_device(constraints, canonical=tables)
    for _ in range(8):
        compared += follow(constraints, tables, device, 10, rng)
        compared += follow(constraints, tables, device, 10, rng, limits=[4, 7, 2, 3, 5])
    assert compared > 150


def test_both_forms_in_one_batch() -> None:
    """Factored constraints, one with tokens that may not lead to some states, beside a multiplied one and rows without constraint."""
    rng = random.Random(5)
    every = [bytes([b]) for b in range(256)] + [b"ab", b"aa", b""]
    tables = toy_tables(every, [(97, 98), (97, 97)], pattern=r"a+(?!b)|[\s\S]", stop_ids=[258])
    vocabulary, limits = Vocabulary.from_tokens(every, stop_ids=[258]), CompileLimits()
    plain = compile_regex("[ab]{0,5}c?", vocabulary)
    options = (tables_for(vocabulary), limits, Deadline(limits), *tables.after([]))
    one, other = factored(plain, tables, *options), multiplied(plain, tables, *options)
    assert one is not None
    assert one.canonical_unless[0]
    assert other.canonical.partners
    unless = tuple((node, row, number + 1) for node, row, number in one.canonical.unless)  # the same by the second of two lists
    second = dataclasses.replace(one.canonical, excepted=((), *one.canonical.excepted), unless=unless)
    listed = dataclasses.replace(one, canonical=second)
    for constraints in ([one, listed], [other, one]):
        device = jax_decode.to_device(constraints, canonical=tables)
        assert sum(follow(constraints, tables, device, 7, rng) for _ in range(6)) > 20
        follow(constraints, tables, device, 7, rng, limits=[3, 4])
        free = _mask(device, init_state(device, np.array([-1, 0])))
        assert np.asarray(free)[0].all()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "most"), [("gpt2", 3), ("llama3", 3)])
def test_tokens_of_a_node_may_depend_on_several_lists(name: str, most: int, data_dir: Path, exhaustive: bool) -> None:
    """Letters: which characters may be begun depends on what came before, for some tokens of a node in other states than for
    others. The masks are those of the states written out, on the host and on the device."""
    if name != "gpt2" and not exhaustive:
        pytest.skip("larger vocabularies: only with --exhaustive")
    tokenizer = load_tokenizer(data_dir / "tokenizers" / name)
    tables, limits = canonical_tables(tokenizer), CompileLimits()
    options = (tables_for(tokenizer.vocabulary), limits, Deadline(limits), *tables.after([]))
    plain = [compile_regex(pattern, tokenizer) for pattern in (r"\w+", r"\p{L}+", "[a-z]+")]
    made = [factored(constraint, tables, *options) for constraint in plain]
    assert all(one is not None for one in made)
    several = [one for one in made if one is not None]
    assert [one.canonical_unless[1].shape[1] for one in several] == [2, most, 1]
    rng, compared = random.Random(5), 0
    for one, constraint in list(zip(several[:2], plain))[0 if exhaustive else 1 :]:  # the second has most lists
        other = multiplied(constraint, tables, *options)
        assert other.canonical.partners
        rows = [[row for row, _ in notes if row] for notes in one.canonical_unless[1].tolist()]
        for _ in range(150 if exhaustive else 12):
            walk, beside = CanonicalWalk(one, tables), CanonicalWalk(other, tables)
            for _ in range(12):
                allowed = walk.allowed()
                np.testing.assert_array_equal(allowed, beside.allowed())
                compared += 1
                noted = [t for row in rows[walk.node] for t in one.row_tokens(row).tolist() if allowed[t]]
                more = [t for t in np.flatnonzero(allowed).tolist() if t not in one.stop_ids]
                token = rng.choice(noted if noted and rng.random() < 0.6 else more)
                walk.advance(token)
                beside.advance(token)
    assert compared > 100
    device = jax_decode.to_device(several, canonical=tables)
    assert device.unless.shape[1] >= most  # in buckets
    for _ in range(20 if exhaustive else 3):
        follow(several, tables, device, 9, rng)
        follow(several, tables, device, 9, rng, limits=[9, 6, 7])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["small", "llama2", "gpt2"])
def test_real_vocabularies(name: str, request: pytest.FixtureRequest, exhaustive: bool) -> None:
    """Free text in quotes, beside a choice: rows of both kinds; and all base rows and flips give the pair rule."""
    if name != "small" and not exhaustive:
        pytest.skip("larger vocabularies: only with --exhaustive")
    tokenizer = load_tokenizer(SMALL if name == "small" else request.getfixturevalue("data_dir") / "tokenizers" / name)
    tables = canonical_tables(tokenizer)
    constraints = [compile_regex(p, tokenizer, canonical=True) for p in (STRING, "Cologne|Berlin|Munich", r"[\s\S]*")]
    device = jax_decode.to_device(constraints, canonical=tables)
    rng = random.Random(0)
    assert follow(constraints, tables, device, 9, rng, limits=[12, 9, 9]) > 12
    assert device.pairs is not None
    own = np.flatnonzero(tables.rule.own)
    last = np.random.default_rng(1).choice(own, 64)
    words = np.asarray(pair_words(device.pairs, jnp.asarray(last, jnp.int32), device.columns))
    planes = (words[:, None, :] >> np.arange(32, dtype=np.uint32)[:, None]) & 1
    want = np.stack([tables.rule.forbidden_row(int(t)) for t in last])
    np.testing.assert_array_equal(planes.reshape(64, -1)[:, : tables.vocab_size].astype(bool), want)
    tokens = np.where(np.arange(64) % 2, [np.flatnonzero(row)[0] if row.any() else 0 for row in want], last)
    got = forbids(device.pairs, jnp.asarray(last, jnp.int32), jnp.asarray(tokens, jnp.int32), device.columns)
    np.testing.assert_array_equal(np.asarray(got), tables.rule.forbidden(last, tokens))


def apply(
    table: jax.Array, tokens: jax.Array, count: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Logits that depend on the token and its position."""
    at = count[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    return table[(tokens + at) % table.shape[0]], count + lengths


def test_generation() -> None:
    """A decoder's texts are spelled as the tokenizer spells them, forced runs included; rows without a constraint are left alone."""
    tokenizer = load_tokenizer(SMALL)
    tables = canonical_tables(tokenizer)
    pattern = r"\{\"city\": \"(Cologne|Berlin|Munich)\", \"note\": \"[a-z ,.']{0,6}\"\}"
    constraint = compile_regex(pattern, tokenizer, canonical=True)
    device = jax_decode.to_device(constraint, canonical=tables)
    table = jax.random.normal(jax.random.key(1), (16, tables.vocab_size), jnp.float32)
    decoder = jax_decode.FunctionDecoder(apply, table, lambda batch, _: jnp.zeros(batch, jnp.int32), tables.vocab_size)
    out = jax_decode.generate(
        decoder, [[350, 351], [360], [370]], device, key=jax.random.key(3), max_new_tokens=40, forced=8,
        constraint=[0, 0, None], sampler=jax_decode.Categorical(),
    )  # fmt: skip
    assert np.asarray(out.status)[:2].tolist() == [Status.ACCEPTED] * 2
    for row in range(2):
        ids = [int(t) for t in out.tokens[row] if t >= 0 and t not in constraint.stop_ids]
        assert len(ids) > 8
        assert tables.is_canonical(ids)
        assert tokenizer.vocabulary.decode(ids).startswith('{"city": "')


def test_tables_must_fit() -> None:
    tokenizer = load_tokenizer(SMALL)
    tables = canonical_tables(tokenizer)
    plain, canonical = compile_regex("yes|no", tokenizer), compile_regex("yes|no", tokenizer, canonical=True)
    with pytest.raises(jax_decode.DecodeError, match="tokenizer's tables are not given"):
        jax_decode.to_device(canonical)
    for wrong in ([canonical, plain], [plain]):
        with pytest.raises(jax_decode.DecodeError, match="not made with the canonical tables"):
            jax_decode.to_device(wrong, canonical=tables)
    with pytest.raises(jax_decode.DecodeError, match="not made with the canonical tables"):
        jax_decode.to_device(canonical, canonical=toy_tables([bytes([b]) for b in range(256)], []))
