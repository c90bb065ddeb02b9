"""What people get wrong at first: each is an error of this package, in words of the user's, with what to do."""

from __future__ import annotations

import dataclasses
import inspect as signatures
import pickle
from pathlib import Path

import jax
import pynini
import pytest

import constrax
import constrax.errors
import fsa_compile
import jax_decode
import jax_decode.errors
import models
import models.errors
from constrax.wanted import plan_of
from fsa_compile import inspect, library


@dataclasses.dataclass
class Person:
    born: int


VOCABULARY = fsa_compile.Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])
CONSTRAINT = fsa_compile.compile_regex("a|b", VOCABULARY)
TABLES = jax_decode.to_device(CONSTRAINT)
DECODER = models.tiny_gemma(vocab_size=257)
HERE = {"max_new_tokens": 4, "bos_id": False}
SYMBOLS = pynini.SymbolTable()
SYMBOLS.add_symbol("<eps>", 0)
SYMBOLS.add_symbol("yes", 1)


def with_symbols():
    fst = pynini.accep("yes", token_type=SYMBOLS)
    fst.set_input_symbols(SYMBOLS)
    fst.set_output_symbols(SYMBOLS)
    return fst


def generated(*arguments, **options):
    return jax_decode.generate(*arguments, **(HERE | options))


MISTAKES = {
    "a word that is no JSON": (lambda: fsa_compile.compile_json_schema("not json", VOCABULARY), "Pass a dict, or the schema as JSON"),
    "an option of a schema as an argument": (lambda: fsa_compile.compile_json_schema({}, VOCABULARY, whitespace="compact"), "options=SchemaOptions(whitespace='compact')"),
    "a misspelt option": (lambda: fsa_compile.SchemaOptions(whitespce="compact"), "Write whitespace='compact'"),
    "a misspelt limit": (lambda: fsa_compile.CompileLimits(max_second=3), "Write max_seconds=3"),
    "JSON's options for YAML": (lambda: fsa_compile.compile_yaml_schema({}, VOCABULARY, options=fsa_compile.SchemaOptions()), "YamlOptions(schema=SchemaOptions("),
    "a schema for additional_properties": (lambda: fsa_compile.SchemaOptions(additional_properties={}), "Give True or False"),
    "a misspelt argument": (lambda: fsa_compile.compile_regex("a", VOCABULARY, canonicl=True), "Write canonical=True"),
    "no tokenizer at all": (lambda: fsa_compile.compile_regex("a"), "missing a required argument: 'tokenizer'"),
    "a vocabulary by another name": (lambda: fsa_compile.compile_regex("a", vocab=VOCABULARY), "Write tokenizer=..."),
    "a misspelt argument of a picture": (lambda: fsa_compile.draw(CONSTRAINT, VOCABULARY, max_node=3), "Write max_nodes=3"),
    "no text to explain": (lambda: inspect.explain(CONSTRAINT, VOCABULARY), "missing a required argument: 'text'"),
    "a misspelt argument of a canvas": (lambda: jax_decode.canvas.denoise(DECODER, [[1]], None, key=None, lenght=5), "Write length=5"),
    "another one": (lambda: jax_decode.canvas.most_probable(None, None, remaning=5), "Write remaining=5"),
    "max_tokens": (lambda: generated(DECODER, [1], TABLES, max_tokens=3), "Write max_new_tokens=3"),
    "a temperature": (lambda: generated(DECODER, [1], TABLES, temperature=0.5), "sampler=jax_decode.Categorical(0.5)"),
    "stop strings": (lambda: jax_decode.stream(DECODER, [1], TABLES, tokenizer=VOCABULARY, max_new_tokens=3, stop="a"), "stopping=jax_decode.StopStrings('a')"),
    "a misspelt profile": (lambda: jax_decode.to_device(CONSTRAINT, profil="regular"), "Write profile='regular'"),
    "no rows of a state": (lambda: jax_decode.init_state(TABLES), "missing a required argument: 'which'"),
    "a schema as a type": (lambda: fsa_compile.compile_type({"type": "integer"}, VOCABULARY), "compile_json_schema(schema"),
    "a value as a type": (lambda: fsa_compile.compile_type(Person(1), VOCABULARY), "Pass the class itself: Person"),
    "type and tokenizer swapped": (lambda: fsa_compile.compile_type(VOCABULARY, Person), "the tokenizer or text comes second"),
    "a list of choices as a type": (lambda: fsa_compile.compile_type([1, 2], VOCABULARY), "Literal[1, 2]"),
    "an answer of too many digits": (lambda: plan_of({"type": "integer"}).read("1" * 5000), "Exceeds the limit"),
    "a class as a function": (lambda: fsa_compile.compile_call(Person, VOCABULARY), "Write a def"),
    "a class as a schema": (lambda: fsa_compile.compile_json_schema(Person, VOCABULARY), "Use compile_type(Person, tokenizer)"),
    "a file's name as a schema": (lambda: fsa_compile.compile_json_schema("person.json", VOCABULARY), "Path('person.json').read_text()"),
    "a path as a schema": (lambda: fsa_compile.compile_json_schema(Path("person.json"), VOCABULARY), "Pass a dict"),
    "half a schema": (lambda: fsa_compile.compile_json_schema("{", VOCABULARY), "the schema is not JSON"),
    "schema and tokenizer swapped": (lambda: fsa_compile.compile_json_schema(VOCABULARY, {}), "Pass a dict"),
    "a dict as options": (lambda: fsa_compile.compile_json_schema({}, VOCABULARY, options={"whitespace": "compact"}), "options=SchemaOptions("),
    "a dict as limits": (lambda: fsa_compile.compile_regex("a", VOCABULARY, limits={"max_states": 3}), "limits=CompileLimits("),
    "a path as a cache": (lambda: fsa_compile.compile_json_schema({}, VOCABULARY, cache="cache"), "cache=CompileCache(folder)"),
    "code points read as bytes": (lambda: fsa_compile.compile_acceptor(pynini.accep("é", token_type="utf8"), VOCABULARY), 'alphabet="code points"'),
    "code points above a byte": (lambda: fsa_compile.compile_acceptor(pynini.accep("€", token_type="utf8"), VOCABULARY), 'alphabet="code points"'),
    "an Fst with symbols": (lambda: fsa_compile.compile_acceptor(with_symbols(), VOCABULARY), "symbol table"),
    "an Fst with weights": (lambda: fsa_compile.compile_acceptor(pynini.accep("a", weight=2.0), VOCABULARY), 'map_type="rmweight"'),
    "a transducer": (lambda: fsa_compile.compile_acceptor(pynini.cross("a", "b"), VOCABULARY), 'fst.project("input")'),
    "a pattern as an automaton": (lambda: fsa_compile.compile_acceptor("a", VOCABULARY), "Give a pynini acceptor"),
    "a repository as a tokenizer": (lambda: fsa_compile.load_tokenizer("google/gemma-3-1b-it"), "hf download google/gemma-3-1b-it"),
    "a folder that is not there": (lambda: fsa_compile.load_tokenizer("no/such/folder/"), "or the folder that holds it"),
    "no tokenizer": (lambda: fsa_compile.compile_regex("a", None), "Pass load_tokenizer(path)"),
    "a number as a tokenizer": (lambda: fsa_compile.compile_regex("a", 5), "Give a path"),
    "an artifact that is not there": (lambda: fsa_compile.CompiledConstraint.load("nothing.npz"), "there is no such file"),
    "a tokenizer as a path": (lambda: fsa_compile.CompiledConstraint.load(VOCABULARY, "a.npz"), "Give a str or a Path"),
    "a path as a pattern": (lambda: fsa_compile.compile_regex(Path("a.txt"), VOCABULARY), "a pattern must be a str"),
    "pattern and tokenizer swapped": (lambda: fsa_compile.compile_regex(VOCABULARY, "a"), "a pattern must be a str"),
    "a path as a grammar": (lambda: fsa_compile.compile_grammar(Path("a.lark"), VOCABULARY), "read_grammar(file)"),
    "a file's name as a grammar": (lambda: fsa_compile.compile_grammar("query.lark", VOCABULARY), "read_grammar('query.lark')"),
    "a grammar's text as its file": (lambda: fsa_compile.read_grammar('start: "a"'), "Give the file's path"),
    "no path of a grammar": (lambda: fsa_compile.read_grammar(None), "takes a path and a list of folders"),
    "one folder of modules": (lambda: fsa_compile.read_grammar("a.lark", import_paths="lib"), 'import_paths=["folder"]'),
    "a number of a folder": (lambda: fsa_compile.read_grammar("a.lark", import_paths=[3]), "list of folders"),
    "no folders of modules": (lambda: fsa_compile.read_grammar("a.lark", import_paths=None), "list of folders"),
    "a library's name as a grammar": (lambda: fsa_compile.compile_grammar("json", VOCABULARY), "library.grammar_text('json')"),
    "a grammar the library has not": (lambda: library.grammar_text("cobol"), "json"),
    "one string as choices": (lambda: fsa_compile.compile_choices("abc", VOCABULARY), "Put it into a list"),
    "numbers as choices": (lambda: fsa_compile.compile_choices([1, 2], VOCABULARY), "Convert it with str()"),
    "no choices": (lambda: fsa_compile.compile_choices([], VOCABULARY), "no choice in the list"),
    "a filter's name": (lambda: fsa_compile.compile_regex("a", VOCABULARY, filters="ascii"), "filters=[filters.ascii()]"),
    "names of filters": (lambda: fsa_compile.compile_regex("a", VOCABULARY, filters=["ascii"]), "filters.ascii()"),
    "a word for canonical": (lambda: fsa_compile.compile_regex("a", VOCABULARY, canonical="yes"), "canonical is 'yes'"),
    "a string beside a language": (lambda: fsa_compile.regex("a") | "b", "Wrap it"),
    "a dict to parse": (lambda: fsa_compile.parse(Person, {"born": 1}), "parse(T, out.text())"),
    "type and text swapped": (lambda: fsa_compile.parse('{"born": 1}', Person), "Pass the type first"),
    "a text that is none of the type": (lambda: fsa_compile.parse(Person, '{"born": "x"}'), "born"),
    "a message as messages": (lambda: fsa_compile.chat_prompt("Hello.", VOCABULARY, template="gemma"), "special"),
    "a number to explain": (lambda: inspect.explain(CONSTRAINT, VOCABULARY, 5), "a list of token ids"),
    "constraint and tokenizer swapped": (lambda: inspect.explain(VOCABULARY, CONSTRAINT, "a"), "then the tokenizer"),
    "another tokenizer": (lambda: inspect.explain(CONSTRAINT, models.small_tokenizer_path(), "a"), "load_tokenizer"),
    "text for a token": (lambda: CONSTRAINT.walk().advance("a"), "for token in tokenizer.encode(text)"),
    "a token that is not allowed": (lambda: CONSTRAINT.walk().advance(3), "inspect.explain"),
    "a token that is none": (lambda: CONSTRAINT.walk().advance(10**6), "ids from 0 to 256"),
    "a text to draw": (lambda: fsa_compile.draw.draw("a|b"), "to_byte_dfa()"),
    "matcher and tokenizer swapped": (lambda: fsa_compile.Matcher(VOCABULARY, CONSTRAINT), "a compiled constraint is needed"),
    "a pattern for the device": (lambda: jax_decode.to_device("a|b"), "Compile one with fsa_compile"),
    "an unknown profile": (lambda: jax_decode.to_device(CONSTRAINT, profile="big"), "There are"),
    "an artifact as tables": (lambda: generated(DECODER, [1], CONSTRAINT), "Pass jax_decode.to_device(constraint)"),
    "a tokenizer as a model": (lambda: generated(VOCABULARY, [1], TABLES), "See jax_decode.Decoder"),
    "a sampler's name": (lambda: generated(DECODER, [1], TABLES, sampler="greedy"), "Greedy()"),
    "no key": (lambda: generated(DECODER, [1], TABLES, sampler=jax_decode.Categorical()), "key=jax.random.key(seed)"),
    "a seed as a key": (lambda: generated(DECODER, [1], TABLES, sampler=jax_decode.Categorical(), key=0), "Give jax.random.key(seed)"),
    "text without a tokenizer": (lambda: generated(DECODER, "a", TABLES), "pass tokenizer="),
    "no room": (lambda: generated(DECODER, [1], TABLES, max_new_tokens=0), "at least 1"),
    "a limit that is too low": (lambda: generated(DECODER, [1], jax_decode.to_device(fsa_compile.compile_regex("a{9}", VOCABULARY))), "allow_truncation"),
    "constraints of a report": (lambda: jax_decode.report.to_html(generated(DECODER, [1], TABLES), VOCABULARY, constraint=[CONSTRAINT]), "the one that all rows have"),
    "a row that is not there": (lambda: jax_decode.report.steps_of(generated(DECODER, [1], TABLES), 3), "Rows count from 0"),
    "a number as a stop string": (lambda: jax_decode.StopStrings(5), "Give strings"),
    "a text to score": (lambda: jax_decode.score_texts(DECODER, [1], "b", VOCABULARY), "Give a list of strings"),
    "a size that is not published": (lambda: models.load("gemma9", "."), "Use one of gemma"),
    "a checkpoint that is not there": (lambda: models.load("gemma3-1b", "nothing"), "Check the path"),
}  # fmt: skip


def test_there_are_enough():
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, says = MISTAKES[mistake]
    with jax.numpy_dtype_promotion("standard"), pytest.raises(ValueError) as caught:  # noqa: PT011 (all of ours are)
        call()
    assert isinstance(caught.value, (fsa_compile.ConstraintError, jax_decode.DecodeError, models.ModelError)), caught.value
    assert not isinstance(caught.value, fsa_compile.DefectError), caught.value
    assert says in str(caught.value), str(caught.value)


MADE_HERE = {
    "Call", "CanonicalTables", "ChatPrompt", "Choice", "CompiledConstraint", "CompiledItems", "Constraint", "ConstraintState",
    "ConstraintTables", "Drafted", "ExactGeneration", "Finished", "Generation", "Healed", "Hypotheses", "KVCache", "Mass",
    "Response", "Scores", "Sequences", "Streamed", "TextScores", "TextStream", "TokenLogprobs", "ToolCall",
    "WeightedGeneration", "Work",
}
"""Public classes that only this package makes objects of."""
ABSTRACT = {"Language", "Tokenizer", "Decoder", "Status", "Attention"}


@pytest.mark.parametrize("package", [constrax, fsa_compile, jax_decode, models], ids=lambda package: package.__name__)
def test_wrong_arguments_of_everything_public(package):
    names, tried = set(package.__all__) - MADE_HERE - ABSTRACT, 0
    for name in names:
        function = getattr(package, name)
        if not callable(function) or (isinstance(function, type) and issubclass(function, Exception)):
            continue
        for arguments, options in (((), {}), ((), {"no_such_argument": 1}), ((None,) * 40, {})):
            try:
                signatures.signature(function).bind(*arguments, **options)
            except TypeError:
                tried += 1
                with pytest.raises((fsa_compile.ConstraintError, jax_decode.DecodeError, models.ModelError, constrax.UseError)) as caught:
                    function(*arguments, **options)
                assert not isinstance(caught.value, fsa_compile.DefectError), name
    assert tried >= 2 * len(names) // 3


def test_a_grammar_as_a_pattern_is_told():
    for text in ('start: "a" | "b"', 'sum: NUMBER "+" NUMBER\nNUMBER: /[0-9]+/', 'root ::= "a"'):
        with pytest.warns(UserWarning, match="reads like a grammar"):
            fsa_compile.compile_regex(text, VOCABULARY)
    for text in ("start: a|b", 'name: "[a-z]+"\nage: "[0-9]+"', "note: .*", '(yes|no): "a"', "a: b c\nb: [0-9]"):
        assert fsa_compile.compile_regex(text, VOCABULARY).source  # warnings are errors here


def test_a_folder_to_save_in(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such folder; make it first"):
        CONSTRAINT.save(tmp_path / "nothing" / "a.npz")


@pytest.mark.parametrize(
    "error",
    [
        jax_decode.errors.PoolFullError("no room", missing={"nodes": (3, 1)}, fix="Close some."),
        jax_decode.errors.MissingPackageError("orbax", "Saving", "models"),
        jax_decode.DecodeError("row 3 is half a pair \ud800", where="row 3"),
        constrax.errors.MissingPackageError(["jax", "flax"]),
        models.errors.MissingPackageError("flax"),
        models.errors.CheckpointError("no file", where="here", fix="Save one."),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_errors_of_the_other_packages_pass_between_processes(error):
    """Those of the compiling half: `tests/batch`."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)
    assert str(again).encode()
