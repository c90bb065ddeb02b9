"""The small programmer: its corpus is Python inside the library's grammar, and it has learned it."""

from __future__ import annotations

import ast
import random

import numpy as np
import pytest
from oracles.grammar_checks import library_machine

import models
from tools.small_model import corpus_tokens, program_corpus, train_programmer
from tools.small_model.train_small import loss_sums

OUTPUT_NATS = 0.3  # per token


@pytest.fixture(scope="module")
def programs():
    rng = random.Random(26)
    return [program_corpus.program(rng) for _ in range(400)]


def test_every_function_is_one_of_the_librarys_grammar(programs):
    machine = library_machine("python")
    for program in programs[:150]:
        (function,) = ast.parse(program.output).body
        assert isinstance(function, ast.FunctionDef)
        assert machine.accepts(program.output.encode()), program.output


def test_functions_do_what_their_comments_say(programs):
    """Those of lists of numbers, on examples."""
    checked = 0
    for program in programs:
        words = program.prompt.rstrip(".\n").split()
        if words[1:3] not in (["Count", "the"], ["Sum", "the"], ["List", "the"]) or "that are even" not in program.prompt:
            continue
        names: dict = {}
        exec(program.output, names)
        (name,) = (node.name for node in ast.parse(program.output).body)
        wanted = {"Count": 3, "Sum": 12, "List": [4, 2, 6]}
        if f"{words[1]} the {words[3]} that are even" in program.prompt:
            assert names[name]([4, 7, 2, 9, 6]) == wanted[words[1]], program.output
            checked += 1
    assert checked


def test_training_has_no_comment_that_is_held_out():
    trained, held_out = (
        {tuple(row.ids[~row.is_output]) for row in train_programmer.rows(seed, 300, held_out=held)} for seed, held in ((1, False), (2, True))
    )
    assert not trained & held_out


def test_it_has_learned_them():
    ids, kind = next(corpus_tokens.batches(train_programmer.rows(90_001, 100, held_out=True), 2048, seed=0))
    sums, counts = loss_sums(models.load_small_programmer(), ids, kind)
    assert float(np.asarray(sums)[1] / np.asarray(counts)[1]) < OUTPUT_NATS
