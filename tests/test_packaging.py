"""What imports what, what the distribution contains, and that names mean what they say."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("fsa_compile", "jax_decode", "models")
JAX = {"jax", "jaxlib", "flax", "orbax", "optax"}
COMPILERS = {"pynini", "_pynini", "sentencepiece", "tiktoken", "tokenizers", "regex", "interegular"}
NUMPY_ONLY = JAX | COMPILERS | {"matplotlib", "tqdm", "safetensors", "models", "jax_decode"}


def modules_of(package: str) -> list[str]:
    """All modules of a package, except those that start a command."""
    found = pkgutil.walk_packages([str(ROOT / package)], f"{package}.")
    return sorted([package, *(m.name for m in found if not m.name.endswith("__main__"))])


def imported(statements: str) -> set[str]:
    """Names in `sys.modules` after the statements ran in a fresh interpreter: top-level names, and our own in full."""
    code = f"import sys\n{statements}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    return {name.partition(".")[0] for name in names} | {n for n in names if n.startswith(PACKAGES)}


def everything(package: str) -> str:
    return "\n".join(f"import {name}" for name in modules_of(package))


def test_fsa_compile_imports_no_jax_and_neither_other_half():
    names = imported(everything("fsa_compile"))
    assert not names & (JAX | {"jax_decode", "models", "matplotlib"})
    assert {"pynini", "fsa_compile.artifact", "fsa_compile.cli"} <= names  # so the modules were really imported


def test_jax_decode_imports_of_the_compiler_the_artifact_only():
    names = imported(everything("jax_decode"))
    assert not names & (COMPILERS | {"flax", "orbax", "models"})
    ours = {"artifact", "artifact_checks", "artifact_file", "bitmask", "errors", "items", "items.artifact", "set_checks"}
    assert {n for n in names if n.startswith("fsa_compile")} == {"fsa_compile", *(f"fsa_compile.{name}" for name in ours)}
    assert {"jax", "jax_decode.generating"} <= names


def test_models_imports_neither_other_half():
    no_training = "\n".join(f"import {n}" for n in modules_of("models"))
    names = imported(no_training)
    assert not names & {"pynini", "_pynini", "fsa_compile", "jax_decode"}
    assert {"flax", "models.gemma"} <= names


@pytest.mark.parametrize("module", ["fsa_compile", "fsa_compile.artifact", "fsa_compile.inspect", "jax_decode", "models"])
def test_light_imports(module):
    assert not imported(f"import {module}") & (NUMPY_ONLY - {module})


def test_the_artifact_imports_only_numpy_beside_the_standard_library():
    ours = {"fsa_compile", "fsa_compile.artifact", "fsa_compile.errors", "numpy"}
    plain = imported("pass")
    assert imported("import fsa_compile.artifact") - plain - ours - imported("import numpy") - sys.stdlib_module_names == set()


def test_the_check_can_fail():
    assert "jax" in imported("import jax_decode.tables")
    assert "pynini" in imported("import pynini")
    assert "fsa_compile.pipeline" in imported("import fsa_compile\nfsa_compile.compile_regex")
    with pytest.raises(subprocess.CalledProcessError):
        imported("import no_such_module")


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names(package):
    module = importlib.import_module(package)
    for name in modules_of(package):
        if "cli" not in name:
            importlib.import_module(name)  # importing a submodule sets an attribute of the package
    for name in module.__all__:
        value = getattr(module, name)
        assert not isinstance(value, type(sys)), f"{package}.{name} is shadowed by a submodule"
        assert name in dir(module)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_the_wheel_has_everything(tmp_path):
    """The file list of a wheel, from the build backend itself, in a copy: a build leaves folders behind."""
    pytest.importorskip("setuptools")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("needs a git checkout")
    for name in tracked.stdout.splitlines():
        if name.startswith(PACKAGES) or "/" not in name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    code = "import setuptools.build_meta as b; print(b.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    packaged = {n for n in tracked.stdout.splitlines() if n.startswith(tuple(f"{p}/" for p in PACKAGES))}
    assert packaged <= names, sorted(packaged - names)
    assert {f"{p}/py.typed" for p in PACKAGES} <= names
    assert "models/small/tokenizer.model" in names
    assert any(n.startswith("models/small/checkpoint/ocdbt.process_0/d/") for n in names)
    assert not [n for n in names if n.startswith(("tests", "benchmarks", "notebooks"))]
