"""Compiled programs that can be kept in a file: a jitted function that records what it compiles, and files of such programs.

`Program` stands where `jax.jit` would. A program belongs to the structure of its arguments, their shapes and the static sizes;
a call with the same ones runs a loaded program without tracing, lowering or compiling anything.

Source: JAX, `jax.experimental.serialize_executable`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import importlib
import json
import os
import pickle
import platform
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import jax
import numpy as np
from jax.experimental import serialize_executable

from jax_decode.errors import DecodeError, named_arguments, path_of

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Signature: TypeAlias = Hashable
_Recorded: TypeAlias = dict[tuple[str, Signature], jax.stages.Compiled]

_MAGIC = b"constrax programs 1\n"
_FEWER = "Ask for fewer rows, samples or beams, fewer tokens, or lower depths of stacks."
_ANEW = {"xla_embed_ir_in_executable": False}
"""The default, but given: so a program is compiled anew. One that JAX has read from its cache on disk cannot be written again."""
_CACHED_FROM = "jax_persistent_cache_min_compile_time_secs"
_RECORDING: contextvars.ContextVar[_Recorded | None] = contextvars.ContextVar("recording", default=None)
_PROGRAMS: dict[str, Program[..., Any]] = {}


class Program(Generic[P, R]):
    """A function compiled by `jax.jit`, or taken compiled from a file.

    Args:
      function: of pytrees given by position, and of static sizes given by name.
      donate: names of the arguments whose memory the result may take.
    """

    def __init__(self, function: Callable[P, R], *, donate: Sequence[str] = ()) -> None:
        functools.update_wrapper(self, function)
        self.loaded: dict[Signature, jax.stages.Compiled] = {}
        self._name = f"{function.__module__}.{function.__qualname__}"

        @functools.wraps(function)
        def traced(*arguments: P.args, **sizes: P.kwargs) -> R:
            made = function(*arguments, **sizes)
            needed = sum(x.size * x.dtype.itemsize for x in map(jax.typeof, jax.tree.leaves(made)))
            check_memory(needed, f"the results of {self._name} take", _FEWER)
            return made

        self.jitted: Any = jax.jit(traced, static_argnames=_keyword_names(function), donate_argnames=tuple(donate))
        _PROGRAMS[self._name] = self

    def __call__(self, *arguments: P.args, **sizes: P.kwargs) -> R:
        try:
            return self._run(*arguments, **sizes)
        except jax.errors.JaxRuntimeError as error:
            _tell_of_memory(error, self._name)
            raise

    def _run(self, *arguments: P.args, **sizes: P.kwargs) -> R:
        recording = _RECORDING.get()
        if recording is None and not self.loaded:
            made: R = self.jitted(*arguments, **sizes)
            return made
        signature = _signature(arguments, sizes)
        compiled = None if signature is None else self.loaded.get(signature)
        if recording is not None and signature is not None:
            compiled = recording.get((self._name, signature))
            if compiled is None:
                compiled = self.jitted.lower(*arguments, **sizes).compile(_ANEW)
                recording[self._name, signature] = compiled
        result: R = self.jitted(*arguments, **sizes) if compiled is None else compiled(*arguments)
        return result

    def __getattr__(self, name: str) -> Any:
        if name == "jitted":
            raise AttributeError(name)
        return getattr(self.jitted, name)  # such as `lower`


def program(*, donate: Sequence[str] = ()) -> Callable[[Callable[P, R]], Program[P, R]]:
    """Decorates a function as a `Program`; its arguments by keyword alone are static."""
    return lambda function: Program(function, donate=donate)


def to_host(tree: Any) -> Any:
    """`jax.device_get` of what programs have made: where they run beside Python, what they lack is known only here."""
    try:
        return jax.device_get(tree)
    except jax.errors.JaxRuntimeError as error:
        _tell_of_memory(error, "the loop")
        raise


def _tell_of_memory(error: Exception, name: str) -> None:
    """Raises `DecodeError` where a program's error is that it lacks memory."""
    if "RESOURCE_EXHAUSTED" in str(error):
        what = f"the device has not the memory that {name} takes"
        raise DecodeError(what, where=str(error).partition("\n")[0][:200], fix=_FEWER) from error


def check_memory(needed: int, what: str, fix: str) -> None:
    """Raises `DecodeError` where so many bytes, which `what` says for what, are more than all devices have."""
    most = _memory()
    if most is not None and needed > most:
        raise DecodeError(f"{what} {needed / 1e9:,.0f} GB, and the devices have {most / 1e9:,.0f} GB", fix=fix)


def _memory() -> int | None:
    """Bytes of all devices together; None where they are not known."""
    devices = jax.devices()
    if devices[0].platform == "cpu":
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):  # such as on Windows
            return None
    each = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return None if each is None else int(each) * len(devices)


def _keyword_names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def _signature(arguments: tuple[Any, ...], sizes: dict[str, Any]) -> Signature | None:
    """What a program is compiled for; None for arguments that are traced, or that do not lie on the first device alone."""
    leaves, structure = jax.tree.flatten(arguments)
    first, shapes = jax.local_devices()[0], []
    for leaf in leaves:
        if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
            return None
        if isinstance(leaf, jax.Array) and leaf.sharding.device_set != {first}:
            return None
        shapes.append((leaf.shape, str(leaf.dtype), bool(getattr(leaf, "weak_type", False))))
    return structure, tuple(shapes), tuple(sorted(sizes.items()))


@named_arguments
@contextlib.contextmanager
def export_programs(path: str | os.PathLike[str]) -> Iterator[None]:
    """Writes every program that runs within to a file, compiled, for `load_programs` in another process.

    What runs within is up to the caller: `warm_up`, or calls of `generate`, `stream`, `beam_search`, `score`, an `Engine`, as
    they will be made later. Programs over several devices are left out.

    Args:
      path: the file; replaced at once when the block ends, and not touched when it ends with an error.

    Raises:
      DecodeError: no program has run, one cannot be written because its decoder's structure cannot be pickled, or the file
        cannot.

    Examples:
      >>> with jax_decode.export_programs("programs.bin"):
      ...     jax_decode.warm_up(decoder, profile="general", vocabulary=tokenizer, batch=[1, 8])
    """
    path = path_of(path, "a file")
    recorded: _Recorded = {}
    token, before = _RECORDING.set(recorded), jax.config.values[_CACHED_FROM]
    jax.config.update(_CACHED_FROM, float("inf"))  # or a later process would read these programs from JAX's cache
    try:
        yield
    finally:
        _RECORDING.reset(token)
        jax.config.update(_CACHED_FROM, before)
    if not recorded:
        fix = "Call warm_up, generate or another loop within, on one device."
        raise DecodeError("no program has run within export_programs", where=str(path), fix=fix)
    try:
        made = [(name, signature, *serialize_executable.serialize(one)) for (name, signature), one in recorded.items()]
        body = pickle.dumps(made)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        fix = "Let the decoder be a registered dataclass of an importable module; functions inside it need names, too."
        raise DecodeError(f"a program cannot be written: {error}", where=str(path), fix=fix) from None
    header = json.dumps(_here() | {"sha256": hashlib.sha256(body).hexdigest()}).encode()
    try:
        with tempfile.TemporaryDirectory(dir=Path(path).resolve().parent) as folder:
            whole = Path(folder) / "programs"
            whole.write_bytes(_MAGIC + header + b"\n" + body)
            whole.replace(path)
    except OSError as error:
        fix = "Give the path of a file in a folder that can be written."
        raise DecodeError(f"the programs cannot be written: {error.strerror}", where=str(path), fix=fix) from None


@named_arguments
def load_programs(path: str | os.PathLike[str]) -> int:
    """Loads the programs of a file, so that calls of their sizes compile nothing and trace nothing.

    The file holds machine code, and reading it runs what it says: load only files that you have written yourself. It serves the
    same versions of JAX and of this package on the same kind of device. It knows a decoder by its structure, not by its code:
    after a change of a decoder's code write it anew.

    Args:
      path: from `export_programs`.

    Returns:
      How many programs there are.

    Raises:
      DecodeError: the file is no such file, damaged, or of other versions or another device; says which.
    """
    path = path_of(path, "the file that export_programs has written")
    try:
        with open(path, "rb") as file:
            magic, header, body = file.readline(len(_MAGIC)), file.readline(1 << 16), file.read()
    except OSError as error:
        fix = "Give the file that export_programs has written."
        raise DecodeError(f"the programs cannot be read: {error.strerror}", where=str(path), fix=fix) from None
    fix = "Write it anew with export_programs, on this machine."
    try:
        said = json.loads(header) if magic == _MAGIC else None
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("sha256") != hashlib.sha256(body).hexdigest():
        raise DecodeError("this is no whole file of programs", where=str(path), fix=fix)
    if other := [f"{name} {said.get(name)}, here {own}" for name, own in _here().items() if said.get(name) != own]:
        raise DecodeError("the programs were compiled elsewhere: " + "; ".join(other), where=str(path), fix=fix)
    made = pickle.loads(body)
    for name, signature, payload, inner, outer in made:
        importlib.import_module(name.rpartition(".")[0])
        _PROGRAMS[name].loaded[signature] = serialize_executable.deserialize_and_load(payload, inner, outer)
    return len(made)


@functools.cache
def _own_code() -> str:
    """Digest of the code of this package, which programs are made of."""
    found = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _here() -> dict[str, str]:
    """All that programs depend on beside their arguments."""
    device = jax.local_devices()[0]
    kind = device.device_kind
    if device.platform == "cpu":  # where programs use what this very processor can do
        known = Path("/proc/cpuinfo")
        lines = known.read_text().splitlines() if known.exists() else [platform.processor()]
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), lines[0] if lines else "")
        kind = f"{platform.machine()} {hashlib.sha256(flags.encode()).hexdigest()[:8]}"
    options = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion")
    asked = " ".join(str(jax.config.values.get(name)) for name in options)
    versions = f"{jax.__version__}, jaxlib {jax.lib.__version__}"
    return {"jax": versions, "device": f"{device.platform} {kind}", "options": asked, "code": _own_code()}
