"""Languages from text: patterns, choices, automata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.errors import ConstraintError, shown
from fsa_compile.inputs.guard import guarded
from fsa_compile.languages.language import DEFAULT_LIMITS, Extension, Language
from fsa_compile.languages.pattern_language import PatternLanguage
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.python_syntax import parse

if TYPE_CHECKING:
    from fsa_compile.automata.external import Alphabet


@guarded
def regex(
    pattern: str,
    *,
    flags: int = 0,
    limits: CompileLimits | None = None,
    extensions: Mapping[str, Extension] | None = None,
) -> Language:
    r"""The texts that `re.fullmatch(pattern, text, flags)` matches.

    Args:
      pattern: Python's dialect, plus `\p{...}` and lookbehind of any width.
      flags: `re.A`, `re.I`, `re.M`, `re.S`, `re.U`, `re.X`.
      limits: bounds on the size of the pattern and its repetitions; those given to `to_byte_dfa` hold too.
      extensions: languages by name, for groups `(?P<NAME>)` of the pattern; see `fsa_compile.extensions`.

    Raises:
      RegexSyntaxError: the pattern is not well formed.
      UnsupportedPatternError: it is not a regular language.
      ConstraintError: an extension that is no language, or whose name is no name.
    """
    limits = limits or DEFAULT_LIMITS
    if extensions is None and not (isinstance(pattern, str) and "(?P<" in pattern):
        return PatternLanguage(parse(pattern, flags, limits), pattern, int(flags), limits)
    if not isinstance(extensions, Mapping | None):
        raise ConstraintError(f"extensions is {shown(extensions)}", fix="Give languages by the names of their groups.")
    from fsa_compile.languages.group_syntax import ExtensionGroups  # most patterns have no groups, which load many modules

    groups = ExtensionGroups(extensions or {})
    tree = parse(pattern, flags, limits, groups)
    return groups.language(tree, pattern, int(flags)) or PatternLanguage(tree, pattern, int(flags), limits, groups)


@guarded
def choices(strings: Iterable[str]) -> Language:
    """Exactly the given texts, of which there may be hundreds of thousands.

    Args:
      strings: the texts; repetitions and "" are fine.

    Raises:
      ConstraintError: an entry is not a str, or holds a surrogate.
    """
    from fsa_compile.automata.acyclic import checked_texts  # patterns do without

    return _Choices(checked_texts(strings))


@guarded
def acceptor(automaton: Any, alphabet: Alphabet = "bytes") -> Language:
    """The language of an automaton made elsewhere.

    Args:
      automaton: a pynini acceptor, an `interegular` FSM, a transition table; `acceptors` says how symbols are written.
        Epsilons and nondeterminism are removed; weights and symbol tables are refused.
      alphabet: what its symbols are. Over bytes, strings that are not UTF-8 are kept.

    Raises:
      ConstraintError: it is no automaton, or has a label that is no symbol.
    """
    from fsa_compile.automata.external import read_automaton  # patterns do without

    return _Acceptor(read_automaton(automaton, alphabet), alphabet, type(automaton).__name__)


class _Choices(Language):
    def __init__(self, texts: list[bytes]) -> None:
        self._texts = texts
        shown = ", ".join(repr(text.decode()) for text in texts[:5])
        self.description = f"choices of {len(texts):,}: {shown}{', …' if len(texts) > 5 else ''}"

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        from fsa_compile.automata.acyclic import choices_dfa

        return choices_dfa(self._texts, limits, deadline) if self._texts else None

    def _why_empty(self) -> str:
        return "there is no choice in the list"


class _Acceptor(Language):
    def __init__(self, machine: Any, alphabet: Alphabet, kind: str) -> None:
        self._machine, self._alphabet = machine, alphabet
        self.description = f"{kind} over {alphabet}, {len(machine.final):,} states"

    @property
    def holds_bytes(self) -> bool:
        return self._alphabet == "bytes"

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        from fsa_compile.automata.external import acceptor_dfa

        return acceptor_dfa(self._machine, self._alphabet, limits, deadline)

    def _why_empty(self) -> str:
        return "the automaton accepts no string"
