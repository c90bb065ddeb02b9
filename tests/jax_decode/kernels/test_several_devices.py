"""Eight devices give the texts of one, whether rows or the vocabulary are spread over them, and exchange no logits."""

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
from jax.sharding import NamedSharding, PartitionSpec
from oracles import hand_made
from oracles.markdown import python_blocks

import jax_decode
from jax_decode.kernels.columns import Columns, Shards
from jax_decode.kernels.row_layout import packed, words_for

ROOT = Path(__file__).parents[3]
SAMPLED = ["regular:both:explicit:top_k", "tempered:both:explicit:sampled,nucleus"]
GENERATED = "greedy,sampled,plain,top_k,nucleus,min_p,forced,looked_up,progress,drafted,rejection,unmasked"
EVERY_MODE = f"{GENERATED},beams,long_beams,without_replacement,stream,own_loop,smc,smc_rejection,score,sequences,mass,options"
OF_TEXTS = "longest,spelled"
EVERY = [
    f"regular:ids:auto:{EVERY_MODE}",
    f"regular:rows:explicit:{EVERY_MODE}",
    f"regular:both:auto:{EVERY_MODE}",
    f"stacks:both:explicit:{EVERY_MODE}",
    f"items:ids:auto:{EVERY_MODE}",
    f"items:rows:auto:{EVERY_MODE}",
    f"beside_items:both:explicit:{EVERY_MODE}",
    f"texts:ids:auto:{EVERY_MODE},{OF_TEXTS},text_scores",
    f"canonical:both:auto:{EVERY_MODE},{OF_TEXTS}",
    "ambiguous:ids:explicit:greedy,nucleus,beams",
    "ambiguous:rows:auto:greedy,nucleus,beams",
    "tempered:ids:auto:greedy,sampled,top_k,nucleus,min_p,drafted,rejection,stream",
]
"""Every kind of constraint in every way to decode; see the script."""
PAGE = ["True", "RegexSyntaxError", "['answer', 'date', 'odd']"]
"""What the page on devices prints after its first line."""
STEPS = ["5003:5016:8:top_k,greedy,rejection,distinct"]
EVERY_STEP = ["5003:5016:8", "1000:1000:4", "32768:32768:8", "40:48:8", "16384:16384:2", "128256:128256:4", "12345:12345:5"]


def printed(script: str, jobs: list[str]) -> list[str]:
    """What a script prints in a process with eight devices."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *jobs],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def check(*jobs: str) -> None:
    *lines, divided, pieces, wide = printed("several_devices.py", [*jobs])
    assert [line.rsplit(":", 1)[0].split(":")[-1] for line in lines] == [way for job in jobs for way in job.split(":")[3].split(",")]
    assert all(line.endswith(": equal") for line in lines), "\n".join(lines)
    assert divided.startswith("refused: 5 prompts cannot be spread evenly over 8 devices")
    assert pieces == "pieces: [(2, 2)]"
    assert wide.startswith("refused: 41 logits cannot be spread evenly over 8 devices")


def test_eight_devices_write_what_one_does():
    check(*SAMPLED)


@pytest.mark.parametrize("job", EVERY, ids=lambda job: ":".join(job.split(":")[:3]))
def test_every_mode_and_kind(job: str, exhaustive: bool):
    if not exhaustive:
        pytest.skip("minutes each: run with --exhaustive")
    check(job)


def test_the_page_on_eight_devices(exhaustive: bool):
    if not exhaustive:
        pytest.skip("run with --exhaustive")
    text, *rest = printed("several_devices.py", ["page"])[:-3]
    assert re.fullmatch("[a-z]{2,8}(-[0-9]{2})?", text)
    assert rest == [*PAGE, "explicit: True"]


def test_the_page_is_true(capsys):
    """On one device; in full it is run on eight."""
    names: dict = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in python_blocks((ROOT / "docs" / "devices.md").read_text(encoding="utf-8")):
            exec(compile(block, "devices.md", "exec", dont_inherit=True), names)
    text, *rest = capsys.readouterr().out.splitlines()
    assert re.fullmatch("[a-z]{2,8}(-[0-9]{2})?", text)
    assert rest == PAGE


def test_a_step_exchanges_no_logits(exhaustive: bool):
    """Masks, tokens and log-probabilities of one step are those of one device; the largest exchange is that of the columns."""
    lines = printed("vocabulary_steps.py", [*EVERY_STEP, "canonical"] if exhaustive else STEPS)
    if exhaustive:
        counts = json.loads(lines.pop())
        assert counts["canonical"] == 0
        assert counts["tokens"] > 40
    assert len(lines) == (8 * len(EVERY_STEP) if exhaustive else 4)
    for line in map(json.loads, lines):
        assert line["wrong"] == 0, line
        assert line["error"] < 1e-4, line
        sizes = [size for _, size in line["collectives"]]
        columns = 0 if line["sampler"] == "greedy" else line["batch"] * line["columns"]
        assert max(sizes) <= max(columns, line["batch"] * line["shards"] * 8), line
        assert sum(sizes) < line["batch"] * line["tokens"] / 4 or line["tokens"] < 5000, line
    assert any(kind == "reduce-scatter" for line in map(json.loads, lines) for kind, _ in line["collectives"])


@pytest.mark.parametrize(("vocab_size", "count"), [(5016, 8), (4096 * 8, 8), (40, 8), (999, 3), (31, 31)])
def test_packed_rows_hold_every_bit_once(vocab_size, count):
    rng = np.random.default_rng(vocab_size)
    rows = rng.integers(0, 2**32, (3, -(-vocab_size // 32)), np.uint64).astype(np.uint32)
    rows[:, -1] &= np.uint32(0xFFFFFFFF >> (-vocab_size % 32))
    mesh, width = jax.make_mesh((1,), ("ids",)), vocab_size // count
    columns = Columns(count * words_for(width), Shards(mesh, "ids", count, width, words_for(width), words_for(vocab_size)))
    words = packed(rows, columns.num_words, columns.shards)
    token = np.arange(vocab_size)
    word, bit = columns.place(token)
    expected = (rows[:, token // 32] >> (token % 32).astype(np.uint32)) & 1
    assert (((words[:, word] >> bit.astype(np.uint32)) & 1) == expected).all()
    assert np.unpackbits(words.view(np.uint8)).sum() == expected.sum()  # and no other bit
    assert (columns.token(word, bit) == token).all()
    assert (word // columns.shards.num_words == token // width).all()


def test_axes_that_do_not_fit_are_refused():
    mesh = jax.make_mesh((1,), ("rows",))
    with pytest.raises(jax_decode.DecodeError, match="no axis 'row'"), jax_decode.sharded_rows(mesh, "row"):
        pass
    made = hand_made.random_constraint(0, 40)
    with pytest.raises(jax_decode.DecodeError, match="no mesh with an axis 'ids'"):
        jax_decode.to_device(made, sharding=NamedSharding(mesh, PartitionSpec()), vocabulary_axis="ids")
    with pytest.raises(jax_decode.DecodeError, match="no mesh with an axis 'rows'"):
        jax_decode.to_device(made, vocabulary_axis="rows")
    tables = jax_decode.to_device(made, sharding=NamedSharding(mesh, PartitionSpec()), vocabulary_axis="rows")
    state = jax_decode.init_state(tables, np.zeros(1, np.int32))
    with pytest.raises(jax_decode.DecodeError, match="logits are 48 wide"):
        jax_decode.sample(jax_decode.Greedy(), jnp.zeros((1, 48)), jnp.zeros((1, 2), jnp.uint32), jnp.zeros(1, jnp.uint32),
                          tables, state)  # fmt: skip
