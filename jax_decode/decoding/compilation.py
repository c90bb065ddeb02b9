"""What XLA compiles and where it is kept: a line while compiling takes long, and programs on disk.

The programs themselves belong to `loop` and its relatives; `warm_up` compiles them ahead.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import jax

from jax_decode.errors import named_arguments, path_of

PATIENCE = 1.0
"""Seconds of compiling before a line says so."""
_PROGRAMS = ("prefill", "decode", "begin", "proceed", "search")
_BEFORE, _AFTER = "/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"


class _Announcer:
    """Hears JAX's own events, and writes a line on standard error when a program of this package is still being compiled."""

    def __init__(self) -> None:
        self.enabled = "JAX_DECODE_QUIET" not in os.environ
        self.timers: dict[int, threading.Timer] = {}

    def __call__(self, event: str, duration_secs: float, **facts: Any) -> None:
        if event not in (_BEFORE, _AFTER):
            return
        own = threading.get_ident()
        if (timer := self.timers.pop(own, None)) is not None:
            timer.cancel()
        name = str(facts.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
        if event == _BEFORE and name in _PROGRAMS and self.enabled and "PYTEST_CURRENT_TEST" not in os.environ:
            text = f"jax_decode: XLA compiles '{name}' for these sizes; later calls of the same sizes start at once\n"
            timer = self.timers[own] = threading.Timer(PATIENCE, sys.stderr.write, [text])
            timer.daemon = True
            timer.start()


_ANNOUNCER: list[_Announcer] = []


@named_arguments
def announce_compilation(enabled: bool | None = None) -> None:
    """Says in one line on standard error when a decoding program has been compiling for more than a second.

    `generate` and `stream` turn that on by themselves; under pytest, and where JAX_DECODE_QUIET is set, nothing is said.

    Args:
      enabled: False silences it for the process, True undoes that; None leaves that as it is.
    """
    if not _ANNOUNCER:
        _ANNOUNCER.append(_Announcer())
        jax.monitoring.register_event_duration_secs_listener(_ANNOUNCER[0])
    if enabled is not None:
        _ANNOUNCER[0].enabled = enabled


@named_arguments
def keep_programs(folder: str | Path | None = None) -> Path:
    """Keeps compiled programs on disk, so that the next process need not compile them; call it before the first of them runs.

    The command line does so by itself. A folder that JAX was told of before (`JAX_COMPILATION_CACHE_DIR`) is left as it is.

    Args:
      folder: None for `constrax/xla` in the user's cache folder.

    Returns:
      The folder.
    """
    known = jax.config.values.get("jax_compilation_cache_dir")
    if folder is None and known:
        return Path(known)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = path_of(folder, "a folder") if folder is not None else base / "constrax" / "xla"
    jax.config.update("jax_compilation_cache_dir", str(path.absolute()))  # wherever the process goes
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    return path
