"""Where tests run: those of a module in one process, or each process would make what they share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = """
import os, pathlib, pytest
@pytest.mark.parametrize("n", range(4))
def test_one(n):
    pathlib.Path(__file__).with_name(f"{__name__} {os.getpid()}").touch()
"""


def test_the_tests_of_a_module_run_in_one_process(tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    for name in ("test_a", "test_b", "test_c"):
        (tmp_path / f"{name}.py").write_text(MODULE)
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ["-n", "2", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)], cwd=tmp_path, check=True, capture_output=True,
        env=outer | {"PYTHONPATH": str(Path(__file__).parent)},
    )  # fmt: skip
    ran = [path.name.split() for path in tmp_path.iterdir() if " " in path.name]
    assert sorted(module for module, _ in ran) == ["test_a", "test_b", "test_c"]
    assert len({process for _, process in ran}) == 2
