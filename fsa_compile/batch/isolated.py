"""`isolated`: one compilation in a process of its own, which is killed where the limits end."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fsa_compile.errors import ConstraintError, DefectError, LimitError
from fsa_compile.inputs.guard import guarded_loop
from fsa_compile.limits import CompileLimits, checked_limits

_STARTING = 120.0
"""Seconds after which a process that has not begun is given up."""
_READY, _OUT_OF_MEMORY = b"R", b"M"
_DOING = "compiling in a process of its own"
_FROM_OUTSIDE = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} if os.name == "posix" else set[signal.Signals]()
"""Signals that no lack of memory sends."""
_ROOM = 256 << 20
"""Bytes of addresses that a process gets beside `max_bytes`: for the stacks of its threads, and for what is freed too late."""
_WORKER = "from fsa_compile.batch.isolated import _work; _work()"


@guarded_loop
def isolated(function: Callable[..., Any], *args: Any, limits: CompileLimits | None = None, **options: Any) -> Any:
    """Compiles in a process of its own, with hard limits on its memory and its time.

    The limits of a compilation are looked at between its steps. A process is stopped by the system, whatever it is doing: its
    memory may grow by `max_bytes`, and it is killed somewhat after `max_seconds`. Starting it takes about a second.

    Args:
      function: a function of this package, such as `fsa_compile.compile_json_schema`.
      args: its arguments; they are pickled.
      limits: of the compilation; None: `CompileLimits.for_requests()`.
      options: its other arguments.

    Returns:
      What the function returns.

    Raises:
      LimitError: of `max_seconds` or `max_bytes`, where the process had to be stopped.
      ConstraintError: what the function raises, or somebody ended the process.

    Examples:
      >>> from fsa_compile.vocabulary.vocabulary import Vocabulary
      >>> from fsa_compile.json_schema import compile_json_schema
      >>> vocabulary = Vocabulary.from_tokens([b"true", b"t", b"null", b""], stop_ids=[3])
      >>> isolated(compile_json_schema, {"type": "boolean"}, vocabulary).walk().allowed().tolist()
      [True, False, False, False]
    """
    limits = checked_limits(CompileLimits.for_requests() if limits is None else limits)
    if not str(getattr(function, "__module__", "")).startswith("fsa_compile"):
        raise ConstraintError("only functions of this package are run", fix="Give fsa_compile.compile_json_schema, for example.")
    try:
        request = pickle.dumps((function, args, options | {"limits": limits}))
    except Exception as error:
        what = f"an argument cannot be sent to another process ({type(error).__name__})"
        raise ConstraintError(what, fix="Give plain values, and tokenizers by their path.") from error
    answer, killed, code = _answer(request, limits.max_seconds * 1.25 + 0.5)
    if killed:
        raise LimitError("max_seconds", limits.max_seconds, _DOING)
    if -code in _FROM_OUTSIDE and len(answer) < 2:
        what = f"the process that compiled was ended by {signal.Signals(-code).name}"
        raise ConstraintError(what, fix="Call again: neither the constraint nor a limit is the reason.")
    if not answer.startswith(_READY) or answer[1:2] in (b"", _OUT_OF_MEMORY):
        raise LimitError("max_bytes", limits.max_bytes, _DOING)
    good, result = pickle.loads(answer[1:])
    if good:
        return result
    raise result


def _answer(request: bytes, seconds: float) -> tuple[bytes, bool, int]:
    """What a new process answers, whether it was killed because its time was over, and its exit status."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", _WORKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with _killed_after(process, _STARTING):
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(request)
                    process.stdin.close()
                begun = process.stdout.read(1)
            with _killed_after(process, seconds) as over:
                rest = process.stdout.read()
                if not rest:
                    process.wait()  # its own end, before it is killed here
        finally:
            process.kill()
    return begun + rest, over.is_set(), process.returncode


@contextlib.contextmanager
def _killed_after(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    over = threading.Event()

    def end() -> None:
        over.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()


def _work() -> None:
    """In the process: reads a request, limits itself, and writes the answer."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed must not get into the answer
        function, args, options = pickle.load(sys.stdin.buffer)
        limits: CompileLimits = options["limits"]
        out.write(_READY)
        out.flush()
        _limit_this_process(limits)
        try:
            answer = pickle.dumps((True, function(*args, **options)))
        except ConstraintError as error:
            answer = _OUT_OF_MEMORY if isinstance(error.__cause__, MemoryError) else pickle.dumps((False, error))
        except MemoryError:
            answer = _OUT_OF_MEMORY
        except Exception as error:
            answer = pickle.dumps((False, DefectError(function.__name__, error, "in another process")))
        out.write(answer)


def _limit_this_process(limits: CompileLimits) -> None:
    """Lets the system enforce the limits, where it can."""
    try:
        import resource

        with open("/proc/self/statm", "rb") as file:
            addresses = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = int(min(addresses + _ROOM + limits.max_bytes, 1 << 62))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        seconds = int(min(limits.max_seconds * 1.25 + 2, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds + int(sum(os.times()[:2])), resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        return
