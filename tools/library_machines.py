"""Writes `fsa_compile/library/*.machine.xz`: the machines of the library's larger languages. Run it when one of their grammars
changes, or the code that makes another machine of it.

    python -m tools.library_machines [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fsa_compile import library
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.compiler.stored_machines import packaged_bytes, packaged_key, packaged_path
from fsa_compile.grammar.grammar_machine import machine_of

LANGUAGES = ("go", "java", "javascript", "python", "sql", "typescript")
"""Those whose machines take some seconds to make, and have no class of characters that changes from one version of Unicode to the
next."""


def write(names: Sequence[str]) -> None:
    """Makes the machines of some languages, and writes their files."""
    for name in names:
        grammar = parse_grammar(library.grammar_text(name), **library.options(name))
        content = packaged_bytes(machine_of(grammar), packaged_key(name))
        packaged_path(name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes")


if __name__ == "__main__":
    write(sys.argv[1:] or LANGUAGES)
