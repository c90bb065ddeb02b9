"""Machines of long grammars in files: what of a compilation no vocabulary changes.

* Those of the library's larger languages come with the package, and are taken for the library's text, word for word, with its
  options: that text is not even parsed. `tools/library_machines.py` writes them; a test makes each of them anew, and compares.
* Others lie on disk beside the tables of vocabularies, so that another vocabulary, or another process, takes the machine from
  there. A file is named by a digest of the grammar, of what else the machine depends on, and of this package's code and Unicode's
  version, so a file that does not fit is never read; one that is damaged is replaced.

Which machine a grammar has belongs to `grammar`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from fsa_compile import library
from fsa_compile.arrays.pages import small_pages
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.cache import code_digest
from fsa_compile.compiler.grammars import Syntax
from fsa_compile.grammar.grammar_checks import check_grammar
from fsa_compile.grammar.grammar_tree import Grammar, LexicalMode
from fsa_compile.inputs.files import open_regular, replacing
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary.vocabulary_tables import cache_folder

LONG = 5_000
"""Characters from which on a grammar's machine is kept: those of shorter ones are made in less than a second."""
MOST_FILES = 32
"""Most machines of a folder; those used longest ago are deleted."""
LIBRARY = Path(library.__file__).parent
_PACKAGED = ".machine.xz"
_ARRAYS = ("byte_class", "action", "entry_offset", "entry_next", "entry_push", "entry_add", "end", "bounds")
_TEXTS = ("specials", "pushes", "start", "stack", "control_names", "symbol_names", "deterministic")


def stored_machine(
    grammar: Grammar,
    make: Callable[[], ByteMachine],
    *,
    stacks: int,
    specials: Mapping[str | int, int],
    limits: CompileLimits,
) -> ByteMachine:
    """The machine of a grammar, from disk or made now.

    Args:
      grammar: as a front end made it.
      make: makes the machine; its exceptions pass through, and nothing is kept of them.
      stacks, specials, limits: as `machine_of` is given them.
    """
    folder = cache_folder() if len(grammar.text) >= LONG else None
    if folder is None:
        return make()
    key = _digest(grammar, stacks, list(specials.items()), _bounds(limits), code_digest())
    path = folder / f"machine-{key[:40]}.npz"
    found = _load(path, key)
    if found is None:
        _save(made := make(), path, key)
        return made
    with contextlib.suppress(OSError):
        path.touch()  # the time of last use, for `_shrink`
    check_grammar(grammar)  # for its warnings
    return found


def packaged_machine(
    text: str,
    *,
    start: str | None = None,
    syntax: Syntax | None = None,
    mode: LexicalMode | None = None,
    stacks: int = 1,
    limits: CompileLimits,
) -> ByteMachine | None:
    """The machine that comes with the package for a grammar that is not parsed yet; None where there is none, or where smaller
    limits might forbid to make it. The arguments are `compile_grammar`'s."""
    if not isinstance(text, str) or len(text) < LONG:
        return None
    if any(getattr(limits, name) < most for name, most in _bounds(CompileLimits())):
        return None
    asked = {"syntax": "lark" if syntax is None else syntax, "mode": "longest" if mode is None else mode, "stacks": stacks}
    for path in LIBRARY.glob(f"*{_PACKAGED}"):
        name = path.name.removesuffix(_PACKAGED)
        if library.grammar_text(name) == text:
            own = {"stacks": 1, **library.options(name)}
            return _load(path, packaged_key(name)) if start in (None, "start") and asked == own else None
    return None


def packaged_path(name: str) -> Path:
    """Where the machine of a language of the library lies, if it comes with the package."""
    return LIBRARY / f"{name}{_PACKAGED}"


def packaged_bytes(machine: ByteMachine, key: str) -> bytes:
    """The content of a file of the package."""
    import lzma

    out = io.BytesIO()
    _write(machine, out, key, np.savez)
    return lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def packaged_key(name: str) -> str:
    """What the file of a language of the library must have been made of: not the code, which a test sees to, nor limits that are
    large enough."""
    return _digest(library.grammar_text(name), sorted(library.options(name).items()))


def _bounds(limits: CompileLimits) -> list[tuple[str, Any]]:
    """All limits but that on time, by name."""
    return [(field.name, getattr(limits, field.name)) for field in dataclasses.fields(limits) if field.name != "max_seconds"]


def _digest(*values: Any) -> str:
    return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()


def _load(path: Path, key: str) -> ByteMachine | None:
    try:
        with open_regular(path) as opened, np.load(_unpacked(path, opened), allow_pickle=False) as file:
            texts = json.loads(file["texts"].tobytes())
            if texts.pop("key") != key:
                return None
            arrays = {name: file[name] for name in _ARRAYS}
            control, symbol, after = file["returns"].astype(np.int64)
            temperature = file["temperature"] if "temperature" in file.files else None
    except Exception:  # a file that cannot be read, for whatever reason, is made anew
        return None
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in texts.items()}
    values["pushes"] = tuple(tuple(map(tuple, string)) for string in texts["pushes"])
    return SparseMachine.of(returns=(control, symbol, after), temperature=temperature, **arrays, **values)


class SparseMachine(ByteMachine):
    """A machine whose table of returns, few of whose entries are not 0, is written out when it is asked for: that of a large
    grammar takes hundreds of megabytes."""

    @classmethod
    def of(cls, **values: Any) -> SparseMachine:
        """From the fields of `ByteMachine`, but `num_symbols` and `returns` for `ret`."""
        machine = cls.__new__(cls)
        vars(machine).update(values)
        return machine

    @cached_property
    def num_symbols(self) -> int:
        """P, where it was not given."""
        return self.ret.shape[1]

    @cached_property
    def ret(self) -> np.ndarray:
        """int32[S, P]."""
        control, symbol, after = self.returns
        with small_pages():
            ret = np.zeros((self.num_controls, self.num_symbols), np.int32)
            ret[control, symbol] = after
        return ret


def _unpacked(path: Path, opened: IO[bytes]) -> IO[bytes]:
    if not path.name.endswith(_PACKAGED):
        return opened
    import lzma  # not every Python has it; the machine is made then

    return io.BytesIO(lzma.decompress(opened.read()))


def _save(machine: ByteMachine, path: Path, key: str) -> None:
    """Writes a machine atomically; a disk that cannot be written only costs time, and what is not known here is not kept."""
    if machine.strays is not None or machine.sets is not None or machine.token_reserve is not None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            _write(machine, file, key, np.savez_compressed)
        _shrink(path.parent)


def _write(machine: ByteMachine, file: IO[bytes], key: str, save: Callable[..., None]) -> None:
    texts: dict[str, Any] = {name: getattr(machine, name) for name in _TEXTS}
    texts |= {"key": key, "num_symbols": machine.num_symbols}
    arrays = {name: getattr(machine, name) for name in _ARRAYS} | {"returns": np.stack(machine.returns).astype(np.int32)}
    if machine.temperature is not None:
        arrays["temperature"] = machine.temperature
    save(file, texts=np.frombuffer(json.dumps(texts).encode(), np.uint8), **arrays)


def _shrink(folder: Path) -> None:
    """Deletes all but the files used last."""
    files = [(path.stat().st_mtime, path) for path in folder.glob("machine-*.npz")]
    for _, path in sorted(files, reverse=True)[MOST_FILES:]:
        path.unlink(missing_ok=True)
