"""Fixtures every test may use: where the public test data lies, and how thorough to be."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from oracles.samples import FULL, sampled
from oracles.tallies import Tally

_MOST_MAPPINGS = 8_000
"""Mappings of a worker above which it drops what it has compiled."""


_QUICKER = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""Of XLA's compiler: where programs need little optimization, most of its time is the newer emitters'."""

_KEPT = "constrax-tests-xla-"
"""How the folders begin that keep XLA's programs for one run."""


def pytest_configure(config: pytest.Config) -> None:
    """What XLA compiles is kept on disk for this run, so that a worker and the processes its tests start compile nothing twice.

    Each worker has a folder of its own: JAX writes a program in place, and a reader beside the writer would find half of it. After
    each module the others get links to what is new.
    """
    _defer_iris()
    gc.set_threshold(20_000, *gc.get_threshold()[1:])  # with Python's own 700, cycles take a twentieth of the time
    flags = os.environ.get("XLA_FLAGS", "")
    if "optimization_level=0" in flags and metadata.version("jaxlib").startswith("0.10."):  # later ones end at a flag unknown to them
        os.environ["XLA_FLAGS"] = f"{flags} {_QUICKER}"
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # nobody reads from which lines an operation came
    if config.getoption("--exhaustive"):
        os.environ[FULL] = "1"
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if chosen is None or (hasattr(config, "workerinput") and Path(chosen).name.startswith(_KEPT)):
        folder = tempfile.TemporaryDirectory(prefix=_KEPT, dir=chosen, ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ |= {
            "JAX_COMPILATION_CACHE_DIR": folder.name,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }


def _give(own: Path) -> None:
    """The other workers' folders get links to a worker's programs."""
    if own.parent.name.startswith(_KEPT):
        for other in own.parent.iterdir():
            with contextlib.suppress(OSError):  # the other has ended, or the disk has no links
                for name in set(os.listdir(own)) - set(os.listdir(other)):
                    with contextlib.suppress(FileExistsError):  # the other has compiled it by now
                        os.link(own / name, other / name)


def _defer_iris() -> None:
    """What judges IRIs for jsonschema is imported with their first: it makes 38 parsers, which took 2.7 s of every worker."""
    name = "rfc3987_syntax"
    if importlib.util.find_spec(name) is not None and name not in sys.modules:
        stand_in = types.ModuleType(name)

        @functools.cache
        def judge() -> Any:
            sys.modules.pop(name)
            return importlib.import_module(name).is_valid_syntax

        stand_in.is_valid_syntax = lambda *given: judge()(*given)  # type: ignore[attr-defined]
        sys.modules[name] = stand_in


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run the exhaustive checks in full, not sampled")


_FIRST = (
    "/test_readme.py", "/test_notebooks.py", "/test_welcome.py", "/test_lanes.py", "/test_profiles.py", "/test_sampling.py", "/test_real_languages.py",
    "/test_stack.py", "/test_executors.py", "/test_small_model.py", "/test_smc.py", "/test_target.py", "/test_denoising.py", "/test_canvas.py",
)  # fmt: skip
"""What takes longest, a minute and more, the longest first."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases outside the samples are deselected; what takes longest comes first, so that all processes are busy to the end."""
    if not (config.getoption("--exhaustive") or config.getoption("keyword")):  # who names cases with -k wants just them
        kept = sampled(items)
        left_out = [item for item in items if item not in kept]
        config.hook.pytest_deselected(items=left_out)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = [item.nodeid for item in left_out]
        items[:] = [item for item in items if item in kept]
    items.sort(key=lambda item: next((place for place, name in enumerate(_FIRST) if name in item.nodeid), len(_FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The summary counts what the workers, each in the same way, have deselected: pytest-xdist does not."""
    left_out = getattr(node, "workeroutput", {}).get("left_out")
    if left_out:
        reporter = node.config.pluginmanager.get_plugin("terminalreporter")
        reporter.stats["deselected"] = [types.SimpleNamespace(nodeid=name) for name in left_out]


def pytest_collection_finish() -> None:
    """What was collected lives to the end: the cycle collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a module stay in one process, in their order, so that what they share is made once.

    Marks of groups would not do: pytest-xdist 3.8 writes them into names that pytest 9.2 no longer reads.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByModule(config, log)


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether exhaustive checks run in full."""
    return bool(request.config.getoption("--exhaustive"))


@pytest.fixture
def tally(exhaustive: bool, record_property) -> Iterator[Tally]:
    """Counts the checks of a random generator; they are reported with the test."""
    counts = Tally(exhaustive)
    yield counts
    record_property("checks", dict(counts))
    if counts.seed:
        print(f"the case of random.Random({counts.seed!r})")


def find_data() -> Path | None:
    """Folder of public test data, or None: a user's clone has none."""
    for path in (os.environ.get("CONSTRAX_DATA"), Path(__file__).parents[2] / "shared" / "data"):
        if path and Path(path).is_dir():
            return Path(path)
    return None


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real tokenizers and public suites; skips the test where there is none."""
    path = find_data()
    if path is None:
        pytest.skip("needs the public test data: set CONSTRAX_DATA to its folder")
    return path


@pytest.fixture(scope="module", autouse=True)
def what_a_module_made_is_forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empties a module's own caches after it, and drops XLA's programs when they are many: each holds mappings of memory, of
    which a process may have 65,530 on Linux."""
    yield
    if "jax" in sys.modules:
        _give(Path(os.environ["JAX_COMPILATION_CACHE_DIR"]))
    for made in vars(request.module).values():
        if isinstance(made, functools._lru_cache_wrapper) and made.__module__ == request.module.__name__:
            made.cache_clear()
    maps = Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists() and maps.read_bytes().count(b"\n") > _MOST_MAPPINGS:
        sys.modules["jax"].clear_caches()
        gc.collect()
