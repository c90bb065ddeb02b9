"""One object: every form of what an answer shall be, lists, samples, chats, streams, and errors that say what to write."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pydantic
import pytest

import constrax
import fsa_compile
import jax_decode
import models

ROOT = Path(__file__).parents[2]
KETTLE = "Question: Is the kettle red or is the kettle blue?\nAnswer: "
BIO = "Bio: Ada Lovelace was born in 1815 in London.\nJSON: "
STORY = "Title: The red kettle, the blue kettle and the yellow kettle\nStory: "
"""Prompts of 17 to 32 tokens; with the same limits and numbers of samples they share what is compiled."""


@dataclasses.dataclass
class Person:
    name: str
    born: int
    city: Literal["London", "Oslo"]


ADA = Person("Ada Lovelace", 1815, "London")


class City(pydantic.BaseModel):
    name: Literal["London", "Oslo"]


def weather(city: Literal["London", "Oslo"], days: Literal[1, 2] = 1) -> str:
    """The weather in a city.

    What else is said about it.
    """
    return f"{city} {days}"


@pytest.fixture(scope="module")
def lm() -> constrax.LanguageModel:
    return constrax.load("small")


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "city": {"enum": ["London", "Oslo"]}},
    "required": ["name", "city"],
    "additionalProperties": False,
}
FORMS = {
    "pattern": (r"(yes|no), because [a-z ]{3,60}\.", "yes, because the kettle is red."),
    "Regex": (constrax.Regex(r"(YES|NO)", re.I), r"(?i)yes|no"),
    "re": (re.compile(r"(yes|no)\Z"), "yes|no"),
    "choices": (["yes", "no"], "yes"),
    "a set": ({"yes", "no"}, "yes"),
    "grammar": (constrax.Grammar('start: "yes" | "no"'), "yes"),
    "GBNF": (constrax.Grammar('root ::= "yes" | "no"'), "yes"),
    "a start": (constrax.Grammar('answer: "yes" | "no"', start="answer"), "yes"),
    "language": (fsa_compile.regex("[a-z]+") & fsa_compile.choices(["yes", "No"]), "yes"),
    "type": (bool, True),
    "Literal": (Literal["yes", "no"], "yes"),
    "union": (Literal["yes"] | None, "yes|None"),
    "list": (list[Literal[1]], r"\[(1(, 1)*)?\]"),
    "function": (weather, ("weather", {"London", "Oslo"})),
    "functions": ([weather], ("weather", {"London", "Oslo"})),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(lm, form):
    wanted, expected = FORMS[form]
    got = lm(KETTLE, wanted)
    if isinstance(expected, tuple):
        assert got.function is weather
        assert got.arguments["city"] in expected[1]
        assert got().startswith(got.arguments["city"])
    elif isinstance(expected, bool):
        assert isinstance(got, bool)
    else:
        assert re.fullmatch(expected, str(got)), got


def test_values(lm):
    assert lm(BIO, Person) == ADA
    assert lm(BIO, City) in (City(name="London"), City(name="Oslo"))
    assert lm(BIO, SCHEMA) == {"name": "Ada Lovelace", "city": "London"}


def test_free_text_ends_by_itself_or_at_the_limit(lm):
    assert lm(STORY, max_new_tokens=3).startswith("Once there was")


def test_shapes(lm):
    """One prompt, one answer; a list for a list; with samples a list of so many for each."""
    assert isinstance(lm(KETTLE, ["yes", "no"]), str)
    assert lm([KETTLE] * 3, ["yes", "no"]) == ["yes"] * 3
    assert [len(group) for group in lm([KETTLE, KETTLE], ["yes", "no"], samples=3)] == [3, 3]
    assert len(lm(KETTLE, ["yes", "no"], samples=1)) == 1
    answer, person, text = lm([KETTLE, BIO, KETTLE], constrax.Each(["yes", "no"], Person, None))
    assert (answer, person) == ("yes", ADA)
    assert isinstance(text, str)


def test_seeds(lm):
    wanted = r"[a-z ]{5,20}"
    one = lm(KETTLE, wanted, samples=4, seed=1)
    assert one == lm(KETTLE, wanted, samples=4, seed=1) != lm(KETTLE, wanted, samples=4, seed=2)
    assert lm(KETTLE, wanted, samples=4, sampler=jax_decode.TopK(1)) == [lm(KETTLE, wanted)] * 4


def test_what_is_kept(lm, monkeypatch):
    """A constraint is compiled once, whatever its form; types are known by identity, choices whatever their order."""
    calls = []
    for name in ("compile_regex", "compile_choices", "compile_type", "compile_json_schema"):
        real = getattr(fsa_compile, name)
        monkeypatch.setattr(fsa_compile, name, lambda *a, real=real, **k: calls.append(real.__name__) or real(*a, **k))
    model = constrax.LanguageModel(lm.decoder, lm.tokenizer)
    for _ in range(2):
        for wanted in ("a|b", ["yes", "no"], ["no", "yes"], Person, dict(SCHEMA), constrax.Regex("a|b")):
            model.compile(wanted)
    assert calls == ["compile_regex", "compile_choices", "compile_type", "compile_json_schema"]
    assert model.compile("a|b", canonical=True) is not model.compile("a|b") is model.compile("a|b")
    assert model.compile(Literal[1]) is not model.compile(Literal[True])
    assert model.compile(dict[str, int], filters=[fsa_compile.filters.ascii()]).artifact is not None


def test_options_and_compiled_constraints(lm):
    own = lm.compile(Person, style="python")
    assert lm(BIO, own).__class__ is Person
    assert lm.generate(BIO, own).text(lm.tokenizer).startswith("Person(name=")
    canonical = lm.compile(r"[a-z]{2,10}", canonical=True)
    text = lm(KETTLE, canonical)
    assert lm.generate(KETTLE, canonical).tokens[0].tolist() == lm.tokenizer.encode("." + text)[-len(lm.tokenizer.encode(text)):] or text
    assert lm(KETTLE, canonical.artifact) == text
    items = fsa_compile.compile_items([lm.tokenizer.encode("yes"), lm.tokenizer.encode("no")], lm.tokenizer)
    assert lm(KETTLE, items) in ("yes", "no")
    assert repr(own).startswith("Constraint(Person: ")
    assert lm.compile(None) is None


def test_it_is_what_the_parts_make(lm):
    """The same tokens as by hand; weights restored from the Orbax checkpoint."""
    constraint = fsa_compile.compile_type(Person, lm.tokenizer)
    by_hand = jax_decode.generate(
        models.load(None, models.small_model.small_checkpoint_path(), dtype="float32"), lm.tokenizer.encode(BIO), jax_decode.to_device(constraint),
        max_new_tokens=256, bos_id=lm.tokenizer.vocabulary.bos_id,
    )  # fmt: skip
    out = lm.generate(BIO, Person)
    assert out.tokens[0].tolist() == by_hand.tokens[0].tolist()
    np.testing.assert_allclose(out.logprobs[0], by_hand.logprobs[0], atol=1e-4)


def test_streams(lm):
    """In chunks as long as those of a call, whose programs they then run."""
    words = lm.stream(STORY, chunk=16)
    pieces = list(words)
    assert len(pieces) > 1
    assert "".join(pieces) == words.text == words.value == lm(STORY)
    assert lm.stream(STORY, stop=".", chunk=16).value == words.text.partition(".")[0]
    assert lm.stream(BIO, Person, chunk=16).value == lm(BIO, Person)
    short = lm.stream(STORY, max_new_tokens=3, chunk=16)
    assert short.value == lm(STORY, max_new_tokens=3)
    assert short.result.lengths.tolist() == [3]


def test_chats(lm):
    assert lm.chat("Is the kettle red?", ["yes", "no"]) in ("yes", "no")
    asked = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Hi."}]
    assert lm.chat(asked, [weather])().split()[0] in ("London", "Oslo")
    assert isinstance(lm.chat("Hello there.", max_new_tokens=4), str)
    assert len(lm.chat("Hello there.", ["a", "b"], samples=4)) == 4
    with_tools = lm.chat("How is the weather in Oslo?", tools=[weather])
    assert isinstance(with_tools, (str, type(lm(KETTLE, weather))))


def test_turns(lm):
    """In the protocol that the special tokens tell, Gemma 3's; calls that can be run, and answers of a type."""
    turn = lm.respond("How is the weather in Oslo?", tools=[weather])
    assert turn.content is None or isinstance(turn.content, str)
    assert all(call().split()[0] in ("London", "Oslo") for call in turn.calls)
    assert lm.respond("Who is it there?", City).content.name in ("London", "Oslo")
    must = lm.respond("Is it there now?", "(yes|no)", protocol="qwen3", reasoning="off")
    assert must.content in ("yes", "no")
    with pytest.raises(fsa_compile.ConstraintError, match="no protocol"):
        lm.respond("Hi.", protocol="other")


def test_the_prompt_of_a_chat(lm):
    """Tools are described where the template puts them, else before the first message; the start id stands first, once."""
    from constrax.chats import chat_ids, describe

    bos = lm.tokenizer.vocabulary.bos_id
    made = chat_ids("Hi.", lm.tokenizer, None, None, "<call>", {})
    assert made.text == "<bos><start_of_turn>user\nHi.<end_of_turn>\n<start_of_turn>model\n"
    assert made.ids.count(bos) == 1
    assert made.ids[0] == bos
    told = chat_ids("Hi.", lm.tokenizer, None, [weather], "<call>", {})
    assert '"name": "weather"' in told.text
    assert "x-fsa" not in told.text
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert chat_ids("Hi.", lm.tokenizer, plain, None, "<call>", {}).ids[0] == bos
    placed = chat_ids("Hi.", lm.tokenizer, "{{ tools | length if tools else 0 }}{{ messages[0].content }}", [weather], "<call>", {})
    assert placed.text == "1Hi."
    assert describe(weather)["function"]["description"] == "The weather in a city."
    assert describe(weather)["function"]["parameters"]["required"] == ["city"]


WRONG = {
    # what is called → words of the error
    "a grammar as a string": (lambda lm: lm(KETTLE, 'start: "a"\nA: "b"'), r"Grammar\(\.\.\.\).*Regex\(\.\.\.\)"),
    "GBNF as a string": (lambda lm: lm(KETTLE, 'root ::= "a"'), r"Grammar\(\.\.\.\)"),
    "a grammar without start as a string": (lambda lm: lm(KETTLE, 'sum: NUMBER "+" NUMBER\nNUMBER: /[0-9]+/'), r"Grammar\(\.\.\.\)"),
    "a grammar with a mistake": (lambda lm: lm(KETTLE, 'start: "a" (nothing'), r"Grammar\(\.\.\.\)"),
    "max_tokens": (lambda lm: lm(KETTLE, "a", max_tokens=4), r"no argument 'max_tokens' .*Write max_new_tokens=4\."),
    "pattern": (lambda lm: lm(KETTLE, pattern="a"), "Write wanted='a'"),
    "top_k": (lambda lm: lm(KETTLE, "a", top_k=4), r"Write sampler=jax_decode\.TopK\(4\)"),
    "n": (lambda lm: lm(KETTLE, "a", n=3), "Write samples=3"),
    "stop": (lambda lm: lm(KETTLE, "a", stop="."), r"lm\.stream\(prompt, wanted, stop='\.'\)"),
    "a misspelt name": (lambda lm: lm(KETTLE, "a", temprature=1), "Write temperature=1"),
    "an unknown name": (lambda lm: lm(KETTLE, "a", zeppelin=1), "lm takes prompt, wanted, samples"),
    "nothing": (lambda lm: lm(), "missing a required argument: 'prompt'"),
    "one too many": (lambda lm: lm(KETTLE, "a", 4), "too many positional arguments"),
    "max_tokens of a chat": (lambda lm: lm.chat("a", max_tokens=4), "Write max_new_tokens=4"),
    "a misspelt name of a chat": (lambda lm: lm.chat("a", tol=[weather]), "Write tools="),
    "max_tokens of a turn": (lambda lm: lm.respond("a", max_tokens=4), "Write max_new_tokens=4"),
    "a misspelt name of load": (lambda lm: constrax.load("small", tokeniser=lm.tokenizer), "Write tokenizer="),
    "model_name": (lambda lm: constrax.load(model_name="small"), "Write model='small'"),
    "a schema as a string": (lambda lm: lm(KETTLE, json.dumps(SCHEMA)), r"json\.loads"),
    "a file's name": (lambda lm: lm(KETTLE, "person.json"), "Read the file first"),
    "an artifact's name": (lambda lm: lm(KETTLE, "out/person.npz"), r"CompiledConstraint\.load"),
    "a path": (lambda lm: lm(KETTLE, Path("person.json")), "Read the file first"),
    "a value": (lambda lm: lm(KETTLE, ADA), "Pass Person, without parentheses"),
    "a pydantic value": (lambda lm: lm(KETTLE, City(name="Oslo")), "Pass City, without parentheses"),
    "True": (lambda lm: lm(KETTLE, True), "write bool, the type"),
    "a number": (lambda lm: lm(KETTLE, 7), "a text cannot be held to a int"),
    "bytes": (lambda lm: lm(KETTLE, b"a"), "Decode it first"),
    "numbers as choices": (lambda lm: lm(KETTLE, [1, 2]), r"Literal\[1, 2\]"),
    "no choices": (lambda lm: lm(KETTLE, []), "at least one string"),
    "a response format": (lambda lm: lm(KETTLE, {"type": "json_schema", "json_schema": {}}), "compile_response_format"),
    "a list of types": (lambda lm: lm([KETTLE] * 2, [Person, City]), r"Each\(a, b\)"),
    "Each of one prompt": (lambda lm: lm(KETTLE, constrax.Each("a")), "list of prompts"),
    "Each of too few": (lambda lm: lm([KETTLE] * 2, constrax.Each("a")), "1 constraints for 2 prompts"),
    "ids as a prompt": (lambda lm: lm([1, 2], "a"), "a prompt is a str, not int"),
    "bytes as a prompt": (lambda lm: lm(b"a", "a"), "not text"),
    "messages as a prompt": (lambda lm: lm([{"role": "user", "content": "a"}], "a"), r"lm\.chat"),
    "no prompt": (lambda lm: lm([], "a"), "there is no prompt"),
    "no samples": (lambda lm: lm(KETTLE, "a", samples=0), "samples=0"),
    "a key as seed": (lambda lm: lm(KETTLE, "a", seed=1.5), r"lm\.generate"),
    "equal samples": (lambda lm: lm(KETTLE, "a|b", samples=2, temperature=0), "Raise the temperature"),
    "two samplers": (lambda lm: lm(KETTLE, "a", sampler=jax_decode.Greedy(), temperature=1), "given together"),
    "options too late": (lambda lm: lm.compile(lm.compile("a"), canonical=True), "Give them when it is compiled"),
    "tools and a form": (lambda lm: lm.chat("a", "b", tools=[weather]), "given together"),
    "a stream of two": (lambda lm: lm.stream([KETTLE, KETTLE]), "of one prompt"),
    "an unknown model": (lambda lm: constrax.load("gemma9"), "'small', one of gemma"),
    "a repository": (lambda lm: constrax.load("google/gemma-3-1b-it"), "hf download google/gemma-3-1b-it"),
    "a size alone": (lambda lm: constrax.load("gemma3-1b"), "needs a checkpoint"),
    "small and a folder": (lambda lm: constrax.load("small", "x"), "brings its own"),
    "no decoder": (lambda lm: constrax.load(object(), tokenizer=lm.tokenizer), "has no vocab_size and no init_cache"),
    "a decoder alone": (lambda lm: constrax.load(lm.decoder), "needs a tokenizer"),
    "a repository as tokenizer": (lambda lm: constrax.load(lm.decoder, tokenizer="google/gemma"), "hf download google/gemma"),
    "a tokenizer of another model": (lambda lm: constrax.load(lm.decoder, tokenizer=[bytes([b]) for b in range(256)]), "do not belong together"),
    "too many ids": (lambda lm: constrax.load(lm.decoder, tokenizer=[b"%d" % i for i in range(2049)]), "do not belong together"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes(lm, mistake):
    call, says = WRONG[mistake]
    with pytest.raises(constrax.UseError) as caught:
        call(lm)
    assert re.search(says, str(caught.value).replace("\n", " ")), str(caught.value)
    assert caught.value.fix


def test_errors_of_the_parts_pass(lm):
    for call, says in (
        (lambda: lm.generate(KETTLE, "a", samples=2), "Write num_samples=2"),
        (lambda: lm.generate(KETTLE, "a", seed=2), r"Write key=jax\.random\.key\(2\)"),
        (lambda: lm.stream(KETTLE, "a", max_tokens=2), "Write max_new_tokens=2"),
        (lambda: lm.compile("a", canonicl=True), "Write canonical=True"),
    ):
        with pytest.raises((jax_decode.DecodeError, fsa_compile.ConstraintError), match=says) as caught:
            call()
        assert isinstance(caught.value, TypeError)
    with pytest.raises(fsa_compile.RegexSyntaxError):
        lm(KETTLE, "(")
    with pytest.raises(fsa_compile.SchemaError):
        lm(KETTLE, {"type": "strin"})
    with pytest.raises(jax_decode.DecodeError, match="max_new_tokens"):
        lm(KETTLE, "a{9}", max_new_tokens=1)
    other = fsa_compile.compile_regex("a", [b"a", b""])
    with pytest.raises(fsa_compile.ArtifactError, match="compiled for vocabulary"):
        lm(KETTLE, other)


def test_a_pattern_that_looks_like_something_else_has_a_way(lm):
    assert lm(KETTLE, constrax.Regex("start: [ab]")) in ("start: a", "start: b")


def test_a_folder_with_checkpoint_and_tokenizer(lm, tmp_path):
    """What a published model's folder looks like: its size is said by its files, its tokenizer lies in it, or beside it."""
    folder = tmp_path / "model"
    models.save(lm.decoder, folder)
    with pytest.raises(constrax.UseError, match="there is no tokenizer with this checkpoint"):
        constrax.load(folder)
    (tmp_path / "tokenizer.model").write_bytes(models.small_tokenizer_path().read_bytes())
    assert constrax.load(str(folder))(KETTLE, ["yes", "no"]) == "yes"
    (folder / "tokenizer.model").write_bytes(models.small_tokenizer_path().read_bytes())
    assert constrax.load(folder, dtype="float32").tokenizer.vocabulary.fingerprint == lm.tokenizer.vocabulary.fingerprint
    assert constrax.load(folder, tokenizer=lm.tokenizer).tokenizer is lm.tokenizer
    with pytest.raises(constrax.UseError, match="two folders"):
        constrax.load(folder, folder)


def test_a_model_of_ones_own(lm):
    own = constrax.load(lm.decoder, tokenizer=models.small_tokenizer_path())
    assert own(KETTLE, ["yes", "no"]) == "yes"
    assert repr(own).startswith("LanguageModel(Gemma(")


def test_sizes_that_may_not_belong_together_warn(lm):
    tokens = lm.tokenizer.vocabulary.tokens[:1500]
    nameless = dataclasses.replace(lm.decoder, vocabulary_fingerprint="")
    with pytest.warns(UserWarning, match=r"1,500 ids, the model 2,048 logits"):
        constrax.load(nameless, tokenizer=list(tokens))
    constrax.load(nameless, tokenizer=fsa_compile.load_tokenizer(list(tokens), logits_width=2048))


def run(code: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": ""}
    )
    return done.stdout + done.stderr


def test_importing_costs_nothing():
    heavy = "('jax', 'pynini', 'flax', 'fsa_compile', 'jax_decode', 'models', 'numpy')"
    assert run(f"import sys, constrax\nprint([n for n in {heavy} if n in sys.modules], dir(constrax)[0])") == "[] Constraint\n"


def test_what_is_missing_is_named():
    for missing, named in ((["jax"], "jax"), (["flax", "orbax"], "flax and orbax")):
        code = f"import sys\nfor n in {missing}: sys.modules[n] = None\nimport constrax\nconstrax.load('small')"
        printed = run(code)
        assert f"loading a model needs {named}, not installed here" in printed
        assert 'pip install "constrax[all] @ git+' in printed
    code = "import sys\nsys.modules['pynini'] = None\nimport constrax\nconstrax.load('small').compile('a')"
    assert 'pip install "constrax[compile] @ git+' in run(code)


def test_a_module_of_the_users_hides_ours(tmp_path):
    (tmp_path / "models.py").write_text("class Mine: pass\n")
    (tmp_path / "app.py").write_text("import constrax\nconstrax.load('small')\n")
    printed = run(f"import runpy, sys\nsys.path.insert(0, {str(tmp_path)!r})\nrunpy.run_path('app.py')", tmp_path)
    assert "hidden by another module of this name" in printed
    assert "models.py" in printed
    assert "Rename that file" in printed


def test_a_misspelt_keyword_is_told(lm):
    with pytest.warns(UserWarning, match="propertes.*Did you mean 'properties'"):
        lm.compile({"type": "object", "propertes": {"name": {"type": "string"}}})
