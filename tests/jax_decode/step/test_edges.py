"""Lazy imports, Orbax, the command line, and a real Flax model in the loop."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from oracles import hand_made

import jax_decode
from fsa_compile.artifact.arrays import ARRAYS
from fsa_compile.errors import ArtifactError
from jax_decode import Categorical, DecodeError, Status


def test_the_package_itself_is_lazy():
    code = "import sys, jax_decode; print('jax' in sys.modules, 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="nothing"):
        jax_decode.nothing  # noqa: B018
    assert set(jax_decode.__all__) <= set(dir(jax_decode))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_orbax_round_trip_and_its_errors(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    constraint = hand_made.random_constraint(2)
    plain = hand_made.one_of([[1, 2]], 64)  # arrays without elements: no groups, no levels
    for name, c in (("a", constraint), ("b", plain)):
        jax_decode.save_orbax(c, tmp_path / name)
        back = jax_decode.load_orbax(tmp_path / name)
        for field in ARRAYS:
            got, want = getattr(back, field), getattr(c, field)
            assert got.dtype == want.dtype
            assert (got == want).all()
        assert (back.fingerprint, back.stop_ids, back.start) == (c.fingerprint, c.stop_ids, c.start)
    with pytest.raises(DecodeError, match="something here already"):
        jax_decode.save_orbax(constraint, tmp_path / "a")
    with pytest.raises(DecodeError, match="no such folder"):
        jax_decode.load_orbax(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DecodeError, match="not a constraint checkpoint"):
        jax_decode.load_orbax(tmp_path / "empty")

    class Other:
        fingerprint, size = "0" * 64, 64

    with pytest.raises(ArtifactError, match="compiled for vocabulary"):
        jax_decode.load_orbax(tmp_path / "a", Other())


def test_a_tiny_gemma_decodes_inside_constraints():
    models = pytest.importorskip("models.tiny")
    decoder = models.tiny_gemma(vocab_size=64)
    constraints = [hand_made.random_constraint(i) for i in range(2)]
    with jax.numpy_rank_promotion("allow"):  # the model's own business
        check_gemma(decoder, constraints)


def check_gemma(decoder, constraints):
    out = jax_decode.generate(
        decoder, [[1, 2, 3, 4, 5, 6, 7, 8, 9], [4]], jax_decode.to_device(constraints), key=jax.random.key(0),
        max_new_tokens=20, sampler=Categorical(), num_samples=2,
    )  # fmt: skip
    assert out.status == [Status.ACCEPTED] * 4
    for row, tokens in enumerate(out.tokens):
        walk = constraints[row // 2].walk()
        for token in tokens:
            walk.advance(token)
        assert walk.accepting
    # the raw log-probabilities are those of one forward pass without a cache
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, *out.tokens[0].tolist()]
    logits = jax.nn.log_softmax(decoder.forward(np.array([ids], np.int32)), -1)[0]
    want = [logits[8 + i, t] for i, t in enumerate(out.tokens[0])]
    np.testing.assert_allclose(out.raw_logprobs[0], want, atol=1e-4)


def cli(*arguments):
    """Runs the command in this process: its exit code and both streams are the test's own."""
    from jax_decode.cli import main

    return main(list(arguments))


@pytest.fixture
def small():
    models = pytest.importorskip("models")
    pytest.importorskip("pynini")
    try:
        return models.small_tokenizer_path()
    except ValueError:
        pytest.skip("the small model's files are not here")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_command_line_writes_json_lines(small, capsys, tmp_path):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        file = tmp_path / "prompts.txt"
        file.write_text("Maria was born in\nThe year is\n")
        code = cli("--pattern", "(19|20)[0-9]{2}", "--prompt-file", str(file), "--n", "2", "--format", "json",
                   "--temperature", "0.9", "--max-new-tokens", "8")  # fmt: skip
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert code == 0
        assert [line["prompt"] for line in lines] == ["Maria was born in"] * 2 + ["The year is"] * 2
        for line in lines:
            assert line["status"] == "accepted"
            assert line["text"][:2] in ("19", "20")
            assert len(line["text"]) == 4
            assert len(line["logprobs"]) == len(line["raw_logprobs"]) == len(line["tokens"])

        import fsa_compile

        artifact = tmp_path / "year.npz"
        fsa_compile.compile_regex("(19|20)[0-9]{2}", fsa_compile.load_tokenizer(small)).save(artifact)
        assert cli("--constraint", str(artifact), "Maria was born in", "--max-new-tokens", "8") == 0
        text = capsys.readouterr().out
        assert len(text) == 5
        assert text[:2] in ("19", "20")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--top-k", "3", "--top-p", "0.5", "x"), "--top-k and --top-p were given together"),
        (("--temperature", "-1", "x"), "temperature -1.0 is out of range"),
        (("--checkpoint", "x", "hello"), "--checkpoint was given without --tokenizer"),
        (("--config", "gemma3-1b", "hello"), "--config was given without --checkpoint"),
        (("--seed", "99999999999999999999", "x"), "the seed 99999999999999999999 does not fit 64 bits"),
        (("--prompt-file", "/nowhere/at/all", "x"), "No such file"),
        (("--pattern", "(", "x"), "never closed"),
        (("--constraint", "/nowhere/at.npz", "x"), "there is no such file"),
        (("--pattern", "a{40}", "--max-new-tokens", "1", "x"), "below the number of tokens of the shortest text"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_command_line_errors_are_one_message(small, capsys, arguments, text):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert cli(*arguments) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.startswith("jax-decode: error: ")
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_a_prompt_file_that_is_no_text_is_one_message(capsys, tmp_path):
    file = tmp_path / "prompts.bin"
    file.write_bytes(b"caf\xe9\n")
    assert cli("--prompt-file", str(file)) == 2
    assert capsys.readouterr().err.startswith(f"jax-decode: error: the prompts are not text in UTF-8 (byte 3)\n  {file}")
