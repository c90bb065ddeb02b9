"""What cannot be enforced is refused, or left out on demand and named in the artifact; never where that would forbid valid values."""

import dataclasses

import jax
import pytest

import jax_decode
import models
from fsa_compile import (
    ArtifactError,
    CompileCache,
    CompiledConstraint,
    ConstraintError,
    SchemaOptions,
    UnsupportedSchemaError,
    Vocabulary,
    compile_json_schema,
)
from jax_decode.tables.remarks import Remarks

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])
UNIQUE = {"type": "object", "properties": {"a/b": {"type": "array", "uniqueItems": True}}, "required": ["a/b"], "additionalProperties": False}
PLACE = "#/properties/a~1b/uniqueItems"


def accepted(constraint: CompiledConstraint, text: bytes) -> bool:
    walk = constraint.walk()
    for byte in text:
        if not walk.allowed()[byte]:
            return False
        walk.advance(byte)
    return walk.accepting


def test_refused_by_default():
    with pytest.raises(UnsupportedSchemaError) as caught:
        compile_json_schema(UNIQUE, LETTERS)
    assert caught.value.pointer == PLACE


def test_left_out_on_demand(tmp_path):
    options, cache = SchemaOptions(unenforced={"uniqueItems"}), CompileCache(tmp_path / "cache")
    for _ in range(2):
        made = compile_json_schema(UNIQUE, LETTERS, options=options, cache=cache)
        assert made.unenforced == (PLACE,)
        assert accepted(made, b'{"a/b": [1, 1]}')
        assert not accepted(made, b'{"a/b": 1}')
    assert cache.hits == 1
    made.save(tmp_path / "c.npz")
    assert CompiledConstraint.load(tmp_path / "c.npz").unenforced == (PLACE,)
    assert UNIQUE["properties"]["a/b"] == {"type": "array", "uniqueItems": True}


def test_what_can_be_enforced_stays():
    listed = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}
    schema = {"prefixItems": [listed, {"type": "array", "uniqueItems": True}, {"format": "idn-hostname"}], "type": "array"}
    made = compile_json_schema(schema, LETTERS, options=SchemaOptions(unenforced=["format", "uniqueItems"]))
    assert set(made.unenforced) == {"#/prefixItems/1/uniqueItems", "#/prefixItems/2/format"}
    assert accepted(made, b'[["a"], [1, 1], "x"]')
    assert not accepted(made, b'[["a", "a"], [1, 1], "x"]')
    with pytest.raises(UnsupportedSchemaError, match="idn-hostname"):
        compile_json_schema(schema, LETTERS, options=SchemaOptions(unenforced=["uniqueItems"]))


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "array", "uniqueItems": True}},
        {"oneOf": [{"type": "array", "uniqueItems": True}, {"type": "null"}]},
        {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "array", "uniqueItems": True}}},
        {"if": {"type": "array", "uniqueItems": True}, "then": False},
    ],
)
def test_where_less_would_be_allowed(schema):
    with pytest.raises(UnsupportedSchemaError):
        compile_json_schema(schema, LETTERS, options=SchemaOptions(unenforced=["uniqueItems"]))


def test_files_that_say_something_else(tmp_path):
    made = compile_json_schema({"const": 1}, LETTERS)
    for wrong in (5, [1], {"a": 1}):
        dataclasses.replace(made, extra={"unenforced": wrong}).save(tmp_path / "c.npz")
        with pytest.raises(ArtifactError, match="'unenforced'"):
            CompiledConstraint.load(tmp_path / "c.npz")


def test_options_that_are_wrong():
    for given in ({"items"}, "items", [5]):
        with pytest.raises(ConstraintError, match=r"SchemaOptions\.unenforced"):
            SchemaOptions(unenforced=given)


def test_results_say_what_is_to_be_checked():
    made = compile_json_schema(UNIQUE, LETTERS, options=SchemaOptions(unenforced={"uniqueItems"}))
    plain = compile_json_schema({"type": "boolean"}, LETTERS)
    tables = jax_decode.to_device([plain, made])
    silent = dataclasses.replace(tables, remarks=Remarks())
    assert jax.tree.structure(tables) == jax.tree.structure(silent)  # no part of a program
    assert hash(jax.tree.structure(tables)) == hash(jax.tree.structure(silent))
    decoder, limits = models.tiny_gemma(vocab_size=LETTERS.size), {"max_new_tokens": 40, "bos_id": False}
    out = jax_decode.generate(decoder, [[1], [1], [1]], tables, constraint=[0, 1, None], **limits)
    assert out.unenforced == [(), (PLACE,), ()]
    assert PLACE in repr(out[1])
    assert PLACE not in repr(out[0])
    assert PLACE in out._repr_html_()


def test_a_pool_says_it_too():
    left_out = compile_json_schema(UNIQUE, LETTERS, options=SchemaOptions(unenforced={"uniqueItems"}))
    without = UNIQUE | {"properties": {"a/b": {"type": "array"}}}
    pool = jax_decode.ConstraintPool(LETTERS, profile="general")
    slot = pool.add(left_out)
    assert pool.tables.remarks.unenforced == {slot: (PLACE,)}
    pool.remove(slot)
    assert pool.add(compile_json_schema(without, LETTERS)) == slot  # the same arrays
    assert pool.tables.remarks.unenforced.get(slot, ()) == ()
