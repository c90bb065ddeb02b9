"""Registries: what is saved is loaded, for its own vocabulary only; names stay in the folder; the index is made of the files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from interop.constraints import all_kinds, vocabulary

import fsa_compile
from fsa_compile.cli.commands import main
from fsa_compile.errors import ArtifactError, ConstraintError
from fsa_compile.interop.registry import Registry


def test_saved_is_loaded(tmp_path):
    registry = Registry(tmp_path / "made" / "here")
    assert registry.names() == []
    for name, constraint in all_kinds().items():
        registry.save(name, constraint)
    assert registry.names() == sorted(all_kinds())
    for name, constraint in all_kinds().items():
        loaded = registry.load(name, vocabulary())
        assert type(loaded) is type(constraint)
        assert (loaded.walk().allowed() == constraint.walk().allowed()).all()
        entry = registry.entry(name)
        assert (entry.fingerprint, entry.vocab_size) == (constraint.fingerprint, vocabulary().size)
        assert entry.kind == ("items" if name == "items" else "constraint")
    index = json.loads((registry.folder / "index.json").read_text())
    assert sorted(index) == registry.names()
    assert index["pattern"]["source"] == all_kinds()["pattern"].source


def test_names_of_other_places_are_refused(tmp_path):
    folder = tmp_path / "registry"
    outside = all_kinds()["words"].save(tmp_path / "outside.npz")
    assert outside is None
    registry = Registry(folder)
    registry.save("inside", all_kinds()["words"])
    for name in ("../outside", "..", "", ".hidden", "a/b", "a\\b", "/etc/passwd", "a\0b", "a\n", "x" * 101, "CON", "nul.txt", "é", None, 3):
        for use in (lambda n: registry.save(n, all_kinds()["words"]), lambda n: registry.load(n, vocabulary()), registry.entry, registry.remove):
            with pytest.raises(ConstraintError, match="no name of a constraint"):
                use(name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outside.npz", "registry"]


def test_what_does_not_fit_is_refused(tmp_path):
    registry = Registry(tmp_path)
    other = fsa_compile.Vocabulary.from_tokens([b"yes", b""], stop_ids=[1])
    registry.save("words", all_kinds()["words"])
    registry.save("items", all_kinds()["items"])
    registry.save("ids", fsa_compile.compile_items([[1, 2]], 9))
    assert registry.load("ids", 9).num_items == 1
    for name in ("words", "items"):
        with pytest.raises(ArtifactError, match="compiled for vocabulary"):
            registry.load(name, other)
    for name, tokenizer in (("ids", 10), ("items", 9)):
        with pytest.raises(ArtifactError):
            registry.load(name, tokenizer)
    with pytest.raises(ArtifactError, match="vocabulary or tokenizer is needed"):
        registry.load("words", None)
    with pytest.raises(ConstraintError, match="replace=True"):
        registry.save("words", all_kinds()["pattern"])
    registry.save("words", all_kinds()["pattern"], replace=True)
    assert registry.load("words", vocabulary()).source == all_kinds()["pattern"].source
    with pytest.raises(ArtifactError, match="begin with ids, items, words"):
        registry.load("missing", vocabulary())
    with pytest.raises(ConstraintError, match="compiled constraint is needed"):
        registry.save("text", "yes|no")


def test_damage_and_the_index(tmp_path):
    registry = Registry(tmp_path)
    for name in ("good", "cut", "gone"):
        registry.save(name, all_kinds()["words"])
    whole = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.savez(tmp_path / "alien.npz", a=np.zeros(3))
    (tmp_path / "gone.npz").unlink()
    (tmp_path / "index.json").write_text("{ not json")
    assert sorted(registry.rebuild()) == ["good"]
    assert sorted(json.loads((tmp_path / "index.json").read_text())) == ["good"]
    assert registry.names() == ["alien", "cut", "good"]
    for name in ("cut", "alien"):
        with pytest.raises(ArtifactError):
            registry.load(name, vocabulary())
    registry.remove("good")
    with pytest.raises(ArtifactError, match="no constraint 'good'"):
        registry.remove("good")
    assert json.loads((tmp_path / "index.json").read_text()) == {}
    assert not list(tmp_path.glob(".*"))


def test_the_command(tmp_path, capsys):
    made = tmp_path / "words.npz"
    all_kinds()["words"].save(made)
    folder = str(tmp_path / "registry")
    assert main(["registry", "add", folder, str(made)]) == 0
    assert main(["registry", "add", folder, str(made), "--name", "again"]) == 0
    capsys.readouterr()
    assert main(["registry", "list", folder]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["again", "words"]
    assert main(["registry", "show", folder, "words", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] == vocabulary().fingerprint
    assert main(["registry", "add", folder, str(made)]) == 2
    assert main(["registry", "show", folder, "../words"]) == 2
    assert "no name of a constraint" in capsys.readouterr().err
