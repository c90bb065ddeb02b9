"""Constraints compiled by the tasks of a Ray cluster of this machine. Skipped where Ray is not installed (`make test-ray`)."""

from __future__ import annotations

import pytest

from fsa_compile import CompiledConstraint, Vocabulary, compile_on_ray, read_manifest

ray = pytest.importorskip("ray")
LETTERS = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], stop_ids=[256])


@pytest.fixture
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_all_parts_are_compiled_and_known_later(cluster, tmp_path):
    constraints = {f"n{i}": {"regex": f"{i}[a-z]"} for i in range(30)} | {"odd": {"regex": "(a"}}
    made = compile_on_ray(constraints, LETTERS, tmp_path, parts=5)
    assert list(made) == list(constraints)
    assert [name for name, record in made.items() if record.error] == ["odd"]
    assert len(list(tmp_path.glob("manifest-*-of-5.jsonl"))) == 5
    walk = CompiledConstraint.load(tmp_path / "n7.npz", LETTERS).walk()
    assert bytes(walk.allowed().nonzero()[0].tolist()) == b"7"
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    again = compile_on_ray(constraints | {"new": {"choice": ["yes"]}}, LETTERS, tmp_path, parts=3)
    assert {name: record for name, record in again.items() if name != "new"} == made
    assert {name: path.stat().st_mtime_ns for name in times for path in [tmp_path / name]} == times
    assert set(read_manifest(tmp_path)) == {*constraints, "new"}
