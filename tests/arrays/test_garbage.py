"""Compiling leaves Python's cycle collector as it was."""

from __future__ import annotations

import gc

import pytest

import fsa_compile
from fsa_compile.arrays.garbage import rare_collections
from fsa_compile.json_schema import UnsupportedSchemaError, schema_machine


@pytest.mark.parametrize("threshold", [(700, 10, 10), (0, 10, 10), (9_000_000, 5, 5)])
def test_thresholds_are_restored(threshold):
    before = gc.get_threshold()
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a"], stop_ids=[0])
    try:
        gc.set_threshold(*threshold)
        with rare_collections():
            assert gc.get_threshold()[0] == (1_000_000 if 0 < threshold[0] < 1_000_000 else threshold[0])
        fsa_compile.compile_regex("a+", vocabulary)
        with pytest.raises(fsa_compile.ConstraintError):
            fsa_compile.compile_regex("b", vocabulary)
        assert gc.get_threshold() == threshold
    finally:
        gc.set_threshold(*before)


def test_a_refused_schema_leaves_nothing_to_collect():
    properties = {f"key {i}": {"type": "string", "minLength": i % 7} for i in range(100)}
    schema = {"properties": properties, "additionalProperties": {"type": "array", "uniqueItems": True}}
    gc.collect()
    try:
        gc.disable()
        with pytest.raises(UnsupportedSchemaError):
            schema_machine(schema)
        assert gc.collect() < 1_000
    finally:
        gc.enable()
