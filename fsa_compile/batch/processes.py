"""A task done for many names in several processes, of which some may die."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from fsa_compile.errors import ConstraintError

_T = TypeVar("_T")
_AHEAD = 4
"""Times as many are handed out as there are processes."""


def in_processes(
    task: Callable[..., _T], given: Mapping[str, tuple[Any, ...]], count: int, lost: Callable[[str, Exception], _T]
) -> Iterator[_T]:
    """What a task makes of names and what is given with them, as they are done.

    Where a process dies, what was handed out is done again, one by one, to find the reason.

    Args:
      task: `task(name, *given[name])`; it and what it is given are pickled.
      given: by name.
      count: of processes.
      lost: what to say of a name whose process died, or which cannot be sent to one.

    Raises:
      ConstraintError: no process can be started, as in a script that is not guarded.
    """
    waiting = collections.deque(given)
    while True:
        suspects = yield from _until_broken(task, given, waiting, count, count * _AHEAD, lost)
        if suspects is None:
            return
        _check_that_one_starts(task)
        again = collections.deque(suspects)
        while (guilty := (yield from _until_broken(task, given, again, 1, 1, lost))) is not None:
            for name in guilty:
                yield lost(name, BrokenProcessPool("its process died: out of memory, perhaps"))


def _until_broken(
    task: Callable[..., _T],
    given: Mapping[str, tuple[Any, ...]],
    waiting: collections.deque[str],
    count: int,
    ahead: int,
    lost: Callable[[str, Exception], _T],
) -> Any:
    """Yields results; returns None when all are done, or the names that were handed out when a process died, at most `ahead`."""
    with processes(task, count) as submit:
        out: dict[concurrent.futures.Future[_T], str] = {}
        try:
            while True:
                while waiting and len(out) < ahead:
                    out[submit(waiting[0], *given[waiting[0]])] = waiting[0]
                    waiting.popleft()  # now that it was taken: a process that has died may show here first
                if not out:
                    return None
                done, _ = concurrent.futures.wait(out, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    name = out[future]
                    try:
                        result = future.result()
                    except BrokenProcessPool:
                        raise
                    except Exception as error:  # it could not be sent to the process
                        result = lost(name, error)
                    del out[future]
                    yield result
        except BrokenProcessPool:
            return list(out.values())


@contextlib.contextmanager
def processes(task: Callable[..., _T], count: int) -> Iterator[Callable[..., concurrent.futures.Future[_T]]]:
    """Calls of a task, each in one of some processes; an error in the block gives up those that wait."""
    with _pool(task, count) as pool:
        try:
            yield functools.partial(pool.submit, _work)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _pool(task: Callable[..., Any], count: int) -> concurrent.futures.ProcessPoolExecutor:
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # another pool's process reads the script that made it
        raise _not_guarded()
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of whatever else runs here
    return concurrent.futures.ProcessPoolExecutor(count, context, _begin, (task,))


def _check_that_one_starts(task: Callable[..., Any]) -> None:
    """Asked where a process died: else each name would be blamed for it, one after another."""
    try:
        with _pool(task, 1) as pool:
            pool.submit(os.getpid).result()
    except BrokenProcessPool as error:
        raise _not_guarded() from error


def _not_guarded() -> ConstraintError:
    fix = 'Call this within `if __name__ == "__main__":`, or pass workers=1.'
    return ConstraintError("processes for the batch end before they begin", fix=fix)


_task: Callable[..., Any] | None = None
"""In a worker process: what to do."""


def _begin(task: Callable[..., Any]) -> None:
    global _task
    _task = task


def _work(*given: Any) -> Any:
    assert _task is not None
    return _task(*given)
