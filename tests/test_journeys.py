"""The ways of eight kinds of new user, from an empty folder to what each came for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import constrax
import fsa_compile
import jax_decode

ROOT = Path(__file__).parents[1]
KETTLE = "Question: Is the kettle red?\nAnswer: "
BIO = "Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: "


@pytest.fixture(scope="module")
def lm():
    return constrax.load("small")


def run(folder, code: str) -> str:
    """What a script of the user's prints, in a folder of its own."""
    (folder / "script.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_three_lines(tmp_path):
    """The curious: three lines, four concepts."""
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].partition("```")[0]
    assert len(first.strip().splitlines()) == 3
    assert run(tmp_path, first) == "yes, because the kettle is red.\n"


def test_an_application_with_pydantic(lm):
    """The application: values of a model, checked by pydantic itself, for a list of prompts and in several samples."""
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(min_length=1, max_length=30)
        born: int = pydantic.Field(ge=1000, le=2100)
        city: str | None = None

    people = lm([BIO, BIO.replace("1815", "1922")], Person, samples=2, temperature=1.0, seed=3)
    assert [len(group) for group in people] == [2, 2]
    assert all(isinstance(one, Person) and 1000 <= one.born <= 2100 for group in people for one in group)


def test_an_agent_with_tools(lm):
    """The agent: a function in, a call out, which runs."""

    def weather(city: str, days: int = 1):
        """The weather in a city."""
        return f"sunny in {city}"

    call = lm.chat("How is the weather in Oslo?", weather, max_new_tokens=80)
    assert call.function is weather
    assert call().startswith("sunny in ")


def test_a_loop_of_ones_own(lm):
    """The researcher: a jitted loop with a model of plain functions, four rows, exact masks and limits."""
    constraint = fsa_compile.compile_regex(r"(yes|no), because [a-z ]{3,20}\.", lm.tokenizer)
    tables, rows = jax_decode.to_device(constraint), 4
    size = lm.tokenizer.vocabulary.size
    weights = jax.random.normal(jax.random.key(0), (size,))

    @jax.jit
    def sample(tables, key):
        state = jax_decode.init_state(tables, jnp.zeros(rows, jnp.int32), jnp.full(rows, 30))

        def step(state, key):
            logits = jax_decode.mask_logits(tables, state, jnp.broadcast_to(weights, (rows, size)))
            token = jax.random.categorical(key, logits).astype(jnp.int32)
            taken = jnp.where(state.running, token, -1)
            return jax_decode.advance(tables, state, token), taken

        return jax.lax.scan(step, state, jax.random.split(key, 32))[1].T

    for row in np.asarray(sample(tables, jax.random.key(1))):
        text = lm.tokenizer.decode([int(t) for t in row if t >= 0 and t not in lm.tokenizer.vocabulary.stop_ids])
        assert re.fullmatch(r"(yes|no), because [a-z ]{3,20}\.", text), text


def test_an_automaton_of_pynini(lm):
    """The linguist: an acceptor of pynini's, drawn, combined with a pattern, and decoded with."""
    pynini = pytest.importorskip("pynini")
    letter = pynini.union(*"abcdefghijklmnopqrstuvwxyz").optimize()
    no_e = pynini.difference(pynini.closure(letter, 1), pynini.closure(letter) + "e" + pynini.closure(letter)).optimize()
    assert fsa_compile.draw(no_e).graph.nodes
    language = fsa_compile.acceptor(no_e) & fsa_compile.regex(".{3,8}")
    text = lm("Title: A word\nStory: ", language)
    assert re.fullmatch("[a-df-z]{3,8}", text)


def test_the_command_line(tmp_path, monkeypatch, capsys):
    """The shell user: compile, look, decode; no Python."""
    from fsa_compile import cli as compiling
    from jax_decode import cli as decoding

    monkeypatch.chdir(tmp_path)
    Path("person.json").write_text(json.dumps({"properties": {"name": {"type": "string"}}, "required": ["name"]}))
    assert compiling.main(["compile", "--schema", "person.json", "--tokenizer", "small", "-o", "person.npz", "--closed"]) == 0
    assert compiling.main(["inspect", "person.npz"]) == 0
    assert "may have keys" not in capsys.readouterr().out
    assert compiling.main(["check", "person.npz", '{"name": "Ada", "age": 3}', "--tokenizer", "small"]) == 1
    assert decoding.main(["--constraint", "person.npz", "--max-new-tokens", "40", "--no-progress", BIO]) == 0
    assert set(json.loads(capsys.readouterr().out.splitlines()[-1])) == {"name"}


def test_a_server_without_jax(tmp_path):
    """The server: masks on the host in NumPy, in a process that has no jax; another row's rollback."""
    code = """
import sys
for name in ("jax", "flax", "models.gemma"):
    sys.modules[name] = None
import numpy as np
import fsa_compile, models
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
matcher = fsa_compile.Matcher(fsa_compile.compile_choices(["yes", "no"], tokenizer), tokenizer)
mask = np.zeros((1, (tokenizer.vocabulary.size + 31) // 32), np.int32)
matcher.fill_next_token_bitmask(mask, 0)
allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
print(sorted(tokenizer.vocabulary.tokens[t].decode() for t in allowed))
print(matcher.accept_token(int(allowed[0])), matcher.rollback(1))
"""
    lines = run(tmp_path, code).splitlines()
    assert eval(lines[0]) == sorted({"y", "ye", "yes", "n", "no"} & set(eval(lines[0])))
    assert {"yes", "no"} <= set(eval(lines[0]))
    assert lines[1].startswith("True")


def test_a_device_without_pynini(tmp_path, lm):
    """The deployer: an artifact made elsewhere is decoded where pynini is not; compiling there names the command that helps."""
    fsa_compile.compile_choices(["yes", "no"], lm.tokenizer).save(tmp_path / "answer.npz")
    code = f"""
import sys
for name in ("pynini", "pywrapfst", "_pynini", "_pywrapfst"):
    sys.modules[name] = None
import fsa_compile, jax_decode, models
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
constraint = fsa_compile.CompiledConstraint.load("answer.npz", tokenizer)
out = jax_decode.generate(models.load_small(), {KETTLE!r}, jax_decode.to_device(constraint), tokenizer=tokenizer, max_new_tokens=8)
print(out.text())
try:
    fsa_compile.compile_regex("a", tokenizer)
except ImportError as error:
    print(error)
"""
    said = run(tmp_path, code)
    assert said.startswith("yes\n")
    assert "pip install" in said
    assert "conda-forge" in said
