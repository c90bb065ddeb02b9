"""Statistics, shortest and random texts, stacks and explanations of constraints with a stack."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from fsa_compile import Vocabulary, compile_grammar, library
from fsa_compile.artifact.stack_view import effects, outgoing_sets, stack_at, stack_history
from fsa_compile.inspection.explain import explain, sample, shortest_tokens, statistics

BYTES = [bytes([b]) for b in range(256)]
VOCABULARY = Vocabulary.from_tokens([*BYTES, b"((", b"))", b"(x", b"x)", b"))))", b'{"', b'":', b"]}", b"}]", b""], stop_ids=[265])
STOP = 265
NESTED = 'start: "(" start ")" | "x"'
TWICE = 'start: "a" start "a" | "a"'  # odd numbers of a: where the middle is, one stack cannot know


@pytest.fixture(scope="module")
def nested():
    return compile_grammar(NESTED, VOCABULARY)


@pytest.fixture(scope="module")
def json_constraint():
    return compile_grammar(library.grammar_text("json"), VOCABULARY, **library.options("json"))


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def test_statistics(nested):
    numbers = statistics(nested)
    assert (numbers.stacks, numbers.symbols > 0, numbers.shortest, numbers.longest) == (1, True, 1, None)
    assert numbers.max_pops == nested.max_pops >= 4  # the token "))))" closes four
    assert numbers.step_bytes == (numbers.max_pops + 1) * 4 * ((len(VOCABULARY.tokens) + 31) // 32)


def test_verdicts(nested):
    verdicts = {text: explain(nested, VOCABULARY, text).verdict for text in ("x", "((x))", "((x)", "(x))", "", "()")}
    assert verdicts == {
        "x": "accepted", "((x))": "accepted", "((x)": "incomplete", "(x))": "refused", "": "incomplete", "()": "refused",
    }  # fmt: skip


def test_an_explanation_says_what_was_open(nested):
    found = explain(nested, VOCABULARY, ids_of("((x()"))
    assert (found.verdict, found.position, found.matched) == ("refused", 3, 3)
    assert [frame.since for frame in found.stack[0].frames] == [0, 1]
    assert all("start" in frame.name for frame in found.stack[0].frames)
    assert not found.too_deep
    assert set(np.flatnonzero(found.allowed_bytes)) == {ord(")")}
    assert explain(nested, VOCABULARY, [*ids_of("((x"), *found.completion]).accepted


def test_what_matches_inside_a_refused_token(nested):
    found = explain(nested, VOCABULARY, [256, ord("x"), 260])  # "((", "x", "))))": two of the four brackets fit
    assert (found.verdict, found.position, found.matched) == ("refused", 2, 5)


def test_a_limit_on_the_stack(nested):
    deep = "(" * 6 + "x" + ")" * 6
    found = explain(nested, VOCABULARY, ids_of(deep), max_depth=4)
    assert (found.verdict, found.too_deep, found.position) == ("refused", True, 4)
    assert explain(nested, VOCABULARY, ids_of(deep), max_depth=6).accepted
    wrong = explain(nested, VOCABULARY, ids_of("((y"), max_depth=4)
    assert (wrong.verdict, wrong.too_deep) == ("refused", False)


def test_the_stack_along_a_text(nested):
    history = stack_history(nested, [256, 258, ord(")"), 257])  # "((", "(x", ")", "))"
    assert [len(views) for views in history] == [1] * 5
    assert [[frame.since for frame in views[0].frames] for views in history] == [[], [0, 0], [0, 0, 1], [0, 0, 1], [0]]
    assert stack_at(nested, []) == history[0]


def test_the_stack_knows_when_frames_were_entered(json_constraint):
    text = '{"a": [1, {"b'
    view = stack_at(json_constraint, ids_of(text))[0]
    opened = [text[frame.since] for frame in view.frames]
    assert opened == ["{", "[", "{", '"']
    assert "STRING" in view.frames[-1].name
    assert str(view).count("›") == 4
    closed = stack_at(json_constraint, ids_of('{"a": [1, {"b": 2}], "c": '))[0]
    assert [frame.since for frame in closed.frames] == [0]


def test_frames_that_end_and_begin_in_one_token(json_constraint):
    ids = [*ids_of('[{"a":1'), 264, *ids_of(" ")]  # "}]" closes two
    views = stack_history(json_constraint, ids)
    assert len(views) == len(ids) + 1
    assert len(views[-1][0].frames) == 0
    with pytest.raises(ValueError, match="not allowed after 0 tokens"):
        stack_history(json_constraint, ids_of("]"))


def test_the_sets_of_tokens_are_the_mask(json_constraint):
    walk = json_constraint.walk()
    for token in ids_of('{"a": [1, "x\\n'):
        allowed = walk.allowed()
        every = np.zeros(len(allowed), int)
        for found in outgoing_sets(walk):
            every += found.tokens
        assert (every <= 1).all()  # disjoint, one effect for each token
        assert ((effects(walk) > 0) == (every > 0)).all()
        assert (np.delete(allowed, STOP) == np.delete(every > 0, STOP)).all()
        walk.advance(token)


def test_shortest_texts(nested, json_constraint):
    assert shortest_tokens(nested) == [ord("x")]
    walk = json_constraint.walk()
    for token in ids_of('{"a": [1, {'):
        walk.advance(token)
    rest = shortest_tokens(json_constraint, walk)
    assert walk.num_tokens == len('{"a": [1, {')  # left as it was
    text = '{"a": [1, {' + VOCABULARY.decode(rest)
    assert json.loads(text) == {"a": [1, {}]}


@pytest.mark.parametrize("name", [n for n in library.names() if n not in ("c", "go", "sql_select", "c_functions", "java", "javascript", "python", "sql", "typescript", "python_values")])
def test_samples_are_accepted_and_finish(name):
    constraint = compile_grammar(library.grammar_text(name), VOCABULARY, **library.options(name))
    depth = constraint.shortest_depth + 3
    for seed, most in itertools.product(range(6), (0, 3, 25)):
        ids = sample(constraint, seed=seed, max_tokens=most, stop=0.1, max_depth=depth)
        assert len(ids) <= max(most, constraint.shortest_completion)
        assert explain(constraint, VOCABULARY, ids).accepted
        if constraint.stacks == 1:
            assert all(len(views[0].frames) <= depth for views in stack_history(constraint, ids))


def test_several_stacks():
    constraint = compile_grammar(TWICE, VOCABULARY, stacks=4)
    assert explain(constraint, VOCABULARY, "aaa").accepted
    assert explain(constraint, VOCABULARY, "aa").verdict == "incomplete"
    found = explain(constraint, VOCABULARY, "aab")
    assert (found.verdict, found.position) == ("refused", 2)
    assert len(found.stack) > 1


def test_names_without_a_grammar(nested):
    import dataclasses

    bare = dataclasses.replace(nested, extra={})
    view = stack_at(bare, ids_of("(("))[0]
    assert view.inside.startswith("state ")
    assert all(frame.name.startswith("frame ") for frame in view.frames)
