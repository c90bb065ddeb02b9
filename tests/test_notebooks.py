"""The notebooks run, their stored outputs are complete and small, and they are what their sources say.

One of them runs in Jupyter's kernel, the others cell by cell in this process, where they share what is compiled; of all of them, every call is
held against the signature of what it calls. `--exhaustive` runs all in kernels.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 600_000
REFRESH = "run: make notebook"

PRINTED = {
    # healed, the model writes the word that the prompt breaks off
    "tokenization": r"^healed +\[▁kettle\].*\n +the kett\|le .*$",
    # a text, a value, the picture's row, why a text is refused
    "welcome": r"^yes, because .*\.\nPerson\(name='Ada Lovelace', born=1815, .*\n(.*\n)*.*ACCEPTED 'yes, because .*\nrefused after .*\nallowed there: ",
    # two tools one after the other, and every call inside the constraint runs
    "agents": r"^gemma4: Tell Clara .*\n(.*\n)*?    calls   find_email\(.*\n(.*\n)*?    calls   send_mail\(.*\n(.*\n)*gemma4 .* inside 100%\nqwen3 .* inside 100%$",
    # valid shares, and the probability of the pattern
    "diffusion": r"^without +\d+% .*\ninside +100% in the form.*\n\d draws +100% in the form.*\n.*by the weights.*\nlog-probability of the pattern",
    # every function inside the grammar parses, in little room too, and one runs
    "programs": r"^without +\d of 8 parse\nwith +8 of 8 parse\nin 40 tokens +8 of 8 parse\ndef (.*\n)*\w+\(\[1, 2, 3, 5\]\) = ",
    # no program after the first step, every rollout in the form only with a constraint
    "reinforcement": r"^no constraint +\d% in.*\n(constraint.* 100% in the form; programs \(1, 1\) after step 1, \(1, 1\) in the end.*\n){2}",
    # the same text from every way to decode greedily
    "speculative_and_mass": r'^plain +(\{"name": .*\})\nprompt lookup +\1\ndraft model +\1$',
}
"""What a notebook must print once; by default the table of texts without and with a constraint."""


def read(path: Path):
    return pytest.importorskip("nbformat").read(path, as_version=4)


def test_there_are_notebooks():
    names = ["agents", "diffusion", "grammars", "programs", "quickstart", "reinforcement", "speculative_and_mass"]
    names += ["structured_output", "tokenization", "welcome"]
    assert [path.stem for path in NOTEBOOKS] == names
    assert [path.stem for path in sorted((ROOT / "notebooks").glob("*.py"))] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_notebook_is_its_source(path):
    source = pytest.importorskip("jupytext").read(path.with_suffix(".py"))
    stored = [(cell.cell_type, cell.source) for cell in read(path).cells]
    assert stored == [(cell.cell_type, cell.source) for cell in source.cells], REFRESH


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stored_outputs(path):
    assert path.stat().st_size < MOST_BYTES
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), REFRESH
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work)/", text), "a path of the machine it ran on"
    assert f"colab.research.google.com/github/constrax/constrax/blob/main/notebooks/{path.name}" in notebook.cells[0].source
    assert 'if "google.colab" in sys.modules' in code[0].source


NEEDED = {"reinforcement": "tunix"}
"""What a notebook imports that the tests' environment lacks."""

IN_A_KERNEL = ("welcome", "reinforcement")


FEWER = {
    # the cells take as long as canvases and draws are many
    "diffusion": [("[prompt] * 6", "[prompt] * 2"), ("draws=4)", "draws=2)"), ("4 draws", "2 draws")],
    "speculative_and_mass": [("samples=512", "samples=64"), ("num_samples=8", "num_samples=2")],
}
"""What a notebook is given less of where it does not run in a kernel: what it prints is held against the same patterns."""


def with_fewer(name: str, source: str) -> str:
    for usual, fewer in FEWER.get(name, []):
        source = source.replace(usual, fewer)
    return source


def without_a_kernel(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, int]:
    """What the cells print, and how many pictures they make; a cell's last value has a form to be shown in."""
    plt = pytest.importorskip("matplotlib.pyplot")
    names: dict = {"__name__": path.stem}
    pictures = 0
    with plt.rc_context():
        for cell in read(path).cells:
            if cell.cell_type != "code":
                continue
            tree = ast.parse(with_fewer(path.stem, cell.source))
            last = tree.body.pop().value if isinstance(tree.body[-1], ast.Expr) else ast.parse("None", mode="eval").body
            exec(compile(tree, path.name, "exec", dont_inherit=True), names)
            repr(eval(compile(ast.Expression(last), path.name, "eval", dont_inherit=True), names))
            pictures += len(plt.get_fignums())
            plt.close("all")
    return capsys.readouterr().out, pictures


def in_a_kernel(path: Path, folder: Path) -> tuple[str, int]:
    """The same by Jupyter's kernel."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()  # an error in a cell is raised
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs), sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_notebook_runs(path, tmp_path, tmp_path_factory, monkeypatch, capsys, exhaustive):
    package = NEEDED.get(path.stem)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make test-parity runs this notebook")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "programs"))
    if exhaustive or path.stem in IN_A_KERNEL:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel brings its own
        printed, pictures = in_a_kernel(path, tmp_path)
    else:
        monkeypatch.chdir(tmp_path)
        printed, pictures = without_a_kernel(path, capsys)
    assert pictures >= 2
    assert len(re.findall(PRINTED.get(path.stem, r"^with$(\n    matches .*){8}"), printed, re.M)) == 1, printed


def wrong_calls(source: str) -> list[str]:
    """Calls of our packages' functions and classes that do not exist, or do not take what they are given."""
    tree, found = ast.parse(source), []
    names: dict = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and re.match(OURS, getattr(node, "module", None) or node.names[0].name):
            exec(compile(ast.Module([node], []), "imports", "exec"), names)
    for node in ast.walk(tree):
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not (isinstance(node, ast.Attribute) and isinstance(root, ast.Name) and root.id in names):
            continue
        try:
            eval(ast.unparse(node), dict(names))
        except AttributeError:
            found.append(ast.unparse(node))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).partition(".")[0] not in names or ast.unparse(node.func) in found:
            continue
        try:
            signature = inspect.signature(eval(ast.unparse(node.func), dict(names)))
        except (ValueError, TypeError, SyntaxError, NameError):
            continue  # of a value that the notebook makes
        few = any(isinstance(part, ast.Starred) for part in node.args) or any(part.arg is None for part in node.keywords)
        bind = signature.bind_partial if few else signature.bind
        try:
            bind(*[0 for part in node.args if not isinstance(part, ast.Starred)], **{part.arg: 0 for part in node.keywords if part.arg})
        except TypeError:
            found.append(ast.unparse(node))
    return found


OURS = r"(constrax|fsa_compile|jax_decode|models)\b"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_a_notebook_calls_takes_what_it_is_given(path):
    source = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    assert len(re.findall(OURS, source)) >= 3
    assert wrong_calls(source) == []


def test_a_wrong_call_is_found():
    right = 'import fsa_compile as fc\nfrom jax_decode import generate\nfc.compile_regex("a", v)\ngenerate(*a, key=1)\n'
    assert wrong_calls(right) == []
    wrong = ["fc.compile_regexp", "fc.compile_regex('a')", "fc.compile_regex('a', v, stack=1)", "generate(a, b, tokens=5)"]
    assert sorted(wrong_calls(right + "\n".join(wrong))) == sorted(wrong)


def test_the_welcome_is_short():
    """Ten cells, among them no more than three lines to the first text."""
    cells = read(ROOT / "notebooks" / "welcome.ipynb").cells
    assert len(cells) == 10
    first = next(cell.source for cell in cells if "constrax.load" in cell.source)
    assert len([line for line in first.splitlines() if line]) <= 4


@pytest.mark.parametrize("name", FEWER)
def test_what_is_fewer_occurs_in_the_notebook(name):
    source = (ROOT / "notebooks" / f"{name}.py").read_text(encoding="utf-8")
    assert [usual for usual, _ in FEWER[name] if source.count(usual) != 1] == []


def test_a_failing_cell_is_noticed(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
