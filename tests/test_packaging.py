"""What imports what, what the distribution contains, and that names mean what they say."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fsa_compile
import models

ROOT = Path(__file__).parents[1]
PACKAGES = ("constrax", "fsa_compile", "jax_decode", "models")
JAX = {"jax", "jaxlib", "flax", "orbax", "optax"}
COMPILERS = {"pynini", "_pynini", "sentencepiece", "tiktoken", "tokenizers", "regex", "interegular"}
NUMPY_ONLY = JAX | COMPILERS | {"matplotlib", "tqdm", "safetensors", "models", "jax_decode", "constrax"}


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
    assert not names & (JAX | {"constrax", "jax_decode", "models", "matplotlib"})
    assert {"pynini", "fsa_compile.artifact.arrays", "fsa_compile.cli.commands"} <= names  # so the modules were really imported


def test_jax_decode_imports_of_the_compiler_the_artifact_only():
    names = imported(everything("jax_decode"))
    assert not names & (COMPILERS | {"flax", "orbax", "models", "constrax", "tqdm"})
    ours = ("fsa_compile.artifact", "fsa_compile.arrays", "fsa_compile.errors", "fsa_compile.inputs")
    assert {n for n in names if n.startswith("fsa_compile") and not n.startswith(ours)} == {"fsa_compile"}
    assert "fsa_compile.artifact.constraint" in names
    assert {"jax", "jax_decode.decoding.generate"} <= names


def test_models_imports_neither_other_half():
    no_training = "\n".join(f"import {n}" for n in modules_of("models"))
    names = imported(no_training)
    assert not names & {"pynini", "_pynini", "fsa_compile", "jax_decode", "constrax"}
    assert {"flax", "models.gemma"} <= names


@pytest.mark.parametrize("module", ["constrax", "fsa_compile", "fsa_compile.artifact", "fsa_compile.inspection", "jax_decode", "models"])
def test_light_imports(module):
    assert not imported(f"import {module}") & (NUMPY_ONLY - {module})


def test_the_artifact_imports_only_numpy_beside_the_standard_library():
    plain = imported("pass") | imported("import numpy, lazy_loader") | sys.stdlib_module_names
    ours = ("fsa_compile.artifact", "fsa_compile.arrays", "fsa_compile.errors", "fsa_compile.inputs")
    assert {n for n in imported("import fsa_compile.artifact") - plain if not n.startswith(ours)} == {"fsa_compile"}


_FORMATS = {
    "a": {"type": "string", "format": "date-time"},
    "b": {"type": "string", "maxLength": 90},
    "c": {"type": "array", "items": {"type": "string", "format": "hostname"}, "maxItems": 5},
}
_SPECIAL = {
    "fsa_compile.compiler.cache", "fsa_compile.filters.characters", "fsa_compile.json_schema.bounded_depth",
    "fsa_compile.json_schema.unevaluated", "fsa_compile.json_schema.unordered_objects", "fsa_compile.languages.groups",
}  # fmt: skip
_CLOSED = "'type': 'object', 'additionalProperties': False"
_OF_OPEN = {"fsa_compile.composition.pushdown.pushdown_walk", "fsa_compile.json_schema.unique_items"}
"""A closed schema has no place for any array, and needs no stack."""


@pytest.mark.parametrize(
    ("call", "unwanted"),
    [
        ("compile_json_schema({'properties': {'a': {'type': 'integer'}}}, v)", _SPECIAL),
        (f"compile_json_schema({{'properties': {{'a': {{'type': 'integer'}}}}, {_CLOSED}}}, v)", _SPECIAL | _OF_OPEN),
        (f"compile_json_schema({{'type': 'object', 'properties': {_FORMATS!r}}}, v)", {"pynini", "fsa_compile.patterns.python_syntax"}),
        ("compile_regex('<[a-z]*>', v)", {"fsa_compile.grammar.grammar_tree", "fsa_compile.composition.pushdown.pushdown_artifact"}),
    ],
    ids=["schema", "closed schema", "formats", "pattern"],
)
def test_the_first_constraint_of_a_process_imports_only_what_it_needs(call, unwanted):
    """`np.unique` imports masked arrays, which takes as long as a small schema, and so do filters, grammars and `importlib.metadata`."""
    code = (
        "import sys, fsa_compile as f\nv = f.Vocabulary.from_tokens([bytes([i]) for i in range(256)] + [b''], stop_ids=[256])\n"
        f"f.{call}\nprint(sorted({unwanted | {'numpy.ma', 'email.message'}!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


WITHOUT = {
    # what a plain `pip install constrax`, or one extra of it, leaves out: (use, package, extra, what else is said)
    "every extra": [
        ("fsa_compile.compile_regex", "pynini", "compile", "CompiledConstraint.load"),
        ("importlib.import_module('fsa_compile.filters').ascii", "pynini", "compile", "conda-forge"),
        ("importlib.import_module('jax_decode')", "jax", "decode", "not installed"),
        ("importlib.import_module('jax_decode.report')", "jax", "decode", "not installed"),
        ("models.load_small()", "jax", "models", "not installed"),
        ("draw.pyplot()", "matplotlib", "notebooks", "draw.to_dot"),
    ],
    "the extra models": [
        ("models.load_small()", "orbax", "models", "not installed"),
        ("jax_decode.load_orbax('x')", "orbax-checkpoint", "models", "not installed"),
    ],
}


@pytest.mark.parametrize("missing", WITHOUT)
def test_a_missing_package_is_named_with_its_extra(missing):
    names = ["pynini", "jax", "matplotlib"] if missing == "every extra" else ["flax", "orbax.checkpoint"]
    code = (
        f"import importlib, sys\nfor name in {names}:\n    sys.modules[name] = None\n"
        f"import fsa_compile, models\nfrom fsa_compile import draw\n"
    )
    if "jax" not in names:
        code += "import jax_decode\n"
    for use, *_ in WITHOUT[missing]:
        code += f"try:\n    {use}\nexcept ImportError as error:\n    print(type(error).__name__, error.name, *str(error).split())\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(WITHOUT[missing])
    for line, (_, package, extra, more) in zip(lines, WITHOUT[missing]):
        assert line.startswith(f"MissingPackageError {package} ")
        assert f'pip install "constrax[{extra}] @ git+https://github.com/constrax/constrax" (in a clone: pip install ".[{extra}]")' in line
        assert more in line


def test_numpy_alone_reads_walks_and_tells(tmp_path):
    """What works without any extra: artifacts, walks, masks, item sets, Graphviz text, the shipped files, `inspect`."""
    fsa_compile.compile_regex("(yes|no), because [a-z ]{3,60}", models.small_tokenizer_path()).save(tmp_path / "answer.npz")
    code = f"""
import sys
for name in {sorted(JAX | COMPILERS | {"matplotlib", "tqdm", "safetensors"})}:
    sys.modules[name] = None
import fsa_compile, models
from fsa_compile import cli, draw, inspect
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
constraint = fsa_compile.CompiledConstraint.load("answer.npz", tokenizer)
walk = constraint.walk()
for token in inspect.shortest_tokens(constraint):
    walk.advance(token)
print(walk.accepting, draw.to_dot(constraint, tokenizer).splitlines()[0])
print(fsa_compile.compile_items([[3, 1], [3, 2]], 8).find([3, 2]), fsa_compile.Matcher(constraint, tokenizer).is_terminated())
print(cli.main(["inspect", "answer.npz"]), cli.main(["compile", "a", "--tokenizer", str(models.small_tokenizer_path()), "-o", "y.npz"]))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True digraph automaton {\n1 False\nSource: (yes|no)"), done.stdout
    assert done.stdout.endswith("\n0 2\n")
    assert "error: Compiling needs the package pynini" in done.stderr


def test_the_check_can_fail():
    assert "jax" in imported("import jax_decode.tables.tables")
    assert "pynini" in imported("import pynini")
    assert "fsa_compile.compiler.entry_points" in imported("import fsa_compile\nfsa_compile.compile_regex")
    with pytest.raises(subprocess.CalledProcessError):
        imported("import no_such_module")


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names(package):
    module = importlib.import_module(package)
    for name in modules_of(package):
        if "cli" not in name:
            importlib.import_module(name)  # importing a submodule sets an attribute of the package
    submodules = {"bitmask", "detokenize", "draw", "draw_grammar", "extensions", "filters", "inspect", "integrations", "library"}
    submodules |= {"canvas", "preprocessing", "report"}  # public as modules
    for name in set(module.__all__) - submodules:
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
    installed = tmp_path / "installed"
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    (about,) = installed.glob("constrax-*.dist-info")
    metadata = (about / "METADATA").read_text(encoding="utf-8")
    assert (about / "licenses" / "LICENSE").read_text(encoding="utf-8").strip().startswith("Apache License")
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line] == [
        "Requires-Dist: numpy>=2.0",
        "Requires-Dist: lazy-loader>=0.4",
    ]
    assert {"License-Expression: Apache-2.0", "Requires-Python: >=3.11", "Classifier: Typing :: Typed"} <= set(metadata.splitlines())
    assert {f"Provides-Extra: {extra}" for extra in ("all", "chat", "compile", "decode", "models")} <= set(metadata.splitlines())
    assert "fsa-compile = fsa_compile.cli:main" in (about / "entry_points.txt").read_text()
    code = """
import fsa_compile, models
from models.small_model import small_checkpoint_path
print(fsa_compile.__file__, models.__file__, small_checkpoint_path().is_dir())
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
json = fsa_compile.library.grammar_text("json_compact")
print(fsa_compile.compile_grammar(json, tokenizer, **fsa_compile.library.options("json_compact")).walk().allowed().sum() > 9)
"""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "dist", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    places = [str(installed / package / "__init__.py") for package in ("fsa_compile", "models")]
    assert done.stdout.split() == [*places, "True", "True"]
