"""A user's own automaton to a byte automaton: pynini acceptors, `interegular` machines, transition tables.

Symbols are bytes or code points:

* a pynini acceptor over bytes has the labels of `pynini.accep`: byte b is label b, label 0 is epsilon, and byte 0, which has no
  label of its own there, is label 256; over code points a label is the code point (U+0000 cannot be written), 0 is epsilon;
* an `interegular` machine has characters as symbols and possibly "anything else", which is every character it does not name;
* a table is `(start, finals, {state: {symbol: next}})` or `(start, finals, array)` with array[state, symbol] and -1 for no
  transition; symbols are integers, characters or one-byte strings, `next` is a state or a set of them, symbol None is epsilon.

Over bytes the strings are taken as they are, UTF-8 or not. Over code points they become UTF-8; surrogates are refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from fsa_compile.arrays.integers import occupied
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.labels import FIRST_BYTE
from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets
from fsa_compile.automata.openfst import Arcs, arcs_from_fst, byte_dfa_from_arcs, determinize, fst_from_arcs
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import ConstraintError, LimitError, is_word
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.unicode.code_points import LAST, CodePointSet, complement, is_surrogate, normal, union

Alphabet = Literal["bytes", "code points"]

_PYNINI_BYTE_ZERO = 256


class _Machine(NamedTuple):
    """A possibly nondeterministic automaton over integers.

    Attributes:
      final: bool[S].
      source, symbol, target: int64[E]; symbol -1 is epsilon.
      sets: characters of each symbol, when symbols stand for sets and not for themselves.
    """

    start: int
    final: np.ndarray
    source: np.ndarray
    symbol: np.ndarray
    target: np.ndarray
    sets: list[CodePointSet] | None = None


def read_automaton(automaton: Any, alphabet: Alphabet) -> _Machine:
    """Recognises the kind of automaton and checks its labels.

    Raises:
      ConstraintError: it is of no known kind, or a label is not a symbol of the alphabet.
    """
    if not is_word(alphabet, ("bytes", "code points")):
        raise ConstraintError(f"unknown alphabet {alphabet!r}", fix='Use alphabet="bytes" or alphabet="code points".')
    if isinstance(automaton, ByteDfa):
        source, byte, target = automaton.arcs
        return _Machine(automaton.start, automaton.final, source, byte, target)
    if callable(getattr(automaton, "write_to_string", None)) and callable(getattr(automaton, "num_states", None)):
        return _from_fst(automaton, alphabet)
    if all(hasattr(automaton, name) for name in ("alphabet", "initial", "finals", "map")):
        return _from_interegular(automaton, alphabet)
    if isinstance(automaton, tuple) and len(automaton) == 3:
        return _from_table(*automaton, alphabet)
    raise ConstraintError(
        f"a {type(automaton).__name__} is no automaton that is understood here",
        fix="Give a pynini acceptor, an interegular FSM, or (start, finals, {state: {symbol: next}}).",
    )


def acceptor_dfa(
    machine: _Machine, alphabet: Alphabet, limits: CompileLimits, deadline: Deadline | None = None
) -> ByteDfa | None:
    """The minimal byte automaton, or None when it accepts nothing."""
    if len(machine.final) > limits.max_states:
        raise LimitError("max_states", limits.max_states, "The given automaton")
    symbols, machine = _numbered(machine)
    order = machine.source.argsort(kind="stable")
    fst = fst_from_arcs(
        Arcs(machine.start, machine.final, machine.source[order], machine.symbol[order] + 1, machine.target[order])
    )
    arcs = arcs_from_fst(determinize(fst, limits, deadline))
    if not len(arcs.final):
        return None
    if alphabet == "bytes":
        label = np.array(symbols or [0], np.int64)[arcs.label - 1]
        return byte_dfa_from_arcs(arcs._replace(label=label + FIRST_BYTE))
    return to_byte_dfa(_letters(arcs, symbols), limits)


def _numbered(machine: _Machine) -> tuple[list[Any], _Machine]:
    """Symbols as consecutive numbers, and what each stands for: a byte, a code point, or a set."""
    if machine.sets is not None:
        return machine.sets, machine
    epsilon = machine.symbol < 0
    values, number = np.unique(machine.symbol[~epsilon], return_inverse=True)
    symbol = np.full(len(machine.symbol), -1, np.int64)
    symbol[~epsilon] = number
    return values.tolist(), machine._replace(symbol=symbol)


def _letters(arcs: Arcs, symbols: list[Any]) -> LetterDfa:
    """A deterministic acceptor over code points as a letter automaton; arcs between the same states become one."""
    label = (arcs.label - 1).tolist()
    by_state: list[dict[int, list[int]]] = [{} for _ in arcs.final]
    for q, a, t in zip(arcs.source.tolist(), label, arcs.target.tolist()):
        by_state[q].setdefault(t, []).append(a)
    known: dict[tuple[int, ...], CodePointSet] = {}
    sets: list[CodePointSet] = []
    shape = []
    for targets in by_state:
        row = []
        for t, members in targets.items():
            key = tuple(members)
            if key not in known:
                known[key] = union(*(_as_set(symbols[a]) for a in members))
            row.append((len(sets), t))
            sets.append(known[key])
        shape.append(row)
    masks, ranges = letter_sets(sets)
    order = [arcs.start, *(q for q in range(len(shape)) if q != arcs.start)]
    number = {q: i for i, q in enumerate(order)}
    return LetterDfa([[(masks[i], number[t]) for i, t in shape[q]] for q in order], [bool(arcs.final[q]) for q in order], ranges)


def _as_set(symbol: int | CodePointSet) -> CodePointSet:
    if isinstance(symbol, tuple):
        return symbol
    return (1 << symbol, ()) if symbol < 128 else (0, ((symbol, symbol),))


def _from_fst(fst: Any, alphabet: Alphabet) -> _Machine:
    import pywrapfst

    if fst.num_states() and not fst.properties(pywrapfst.ACCEPTOR, True):
        raise ConstraintError(
            "the pynini FST is a transducer", fix='Give one side of it: fst.project("input") or fst.project("output").'
        )
    if fst.input_symbols() is not None:
        what = "the pynini FST has a symbol table, so its labels stand for the table's words"
        fix = "Build it from bytes: replace every symbol by its text (pynini.string_map), then fst.set_input_symbols(None)."
        raise ConstraintError(what, fix=fix)
    if fst.num_states() and not fst.properties(pywrapfst.UNWEIGHTED, True):
        fix = 'Drop the weights: pynini.arcmap(fst, map_type="rmweight"). To prefer some texts, weigh the model\'s logits.'
        raise ConstraintError("the pynini FST has weights, and a constraint only says what is allowed", fix=fix)
    arcs = arcs_from_fst(fst)
    symbol = arcs.label.copy()
    symbol[symbol == 0] = -1
    if alphabet == "bytes":
        symbol[symbol == _PYNINI_BYTE_ZERO] = 0
        lead = symbol[(symbol >= 0xC2) & (symbol <= 0xF4)]
        if len(lead) and not ((symbol >= 0x80) & (symbol < 0xC0)).any():  # no text in UTF-8 has the first without the second
            label = int(lead[0])
            what = f"label {label} is read as a byte, and no text in UTF-8 has it here; as a code point it is {chr(label)!r}"
            raise ConstraintError(what, fix='Pass alphabet="code points" for an FST made with token_type="utf8".')
    _check_symbols(symbol, alphabet, "label")
    if arcs.start < 0:
        none = np.zeros(0, np.int64)
        return _Machine(0, np.zeros(1, bool), none, none, none)
    return _Machine(arcs.start, arcs.final, arcs.source, symbol, arcs.target)


def _check_symbols(symbol: np.ndarray, alphabet: Alphabet, what: str) -> None:
    last = 255 if alphabet == "bytes" else LAST
    wrong = symbol[(symbol < -1) | (symbol > last)]
    if len(wrong):
        hint = " (byte 0 is label 256)" if alphabet == "bytes" and what == "label" else ""
        other = 'Pass alphabet="code points".' if alphabet == "bytes" else "Give Unicode scalar values."
        raise ConstraintError(f"{what} {int(wrong[0])} is not one of the {alphabet}{hint}", fix=other)
    if alphabet == "code points":
        bad = symbol[(symbol >= 0xD800) & (symbol <= 0xDFFF)]
        if len(bad):
            raise ConstraintError(f"{what} U+{int(bad[0]):04X} is a surrogate, which has no UTF-8 form", fix="Remove its arcs.")


def _from_interegular(fsm: Any, alphabet: Alphabet) -> _Machine:
    if alphabet == "bytes":
        raise ConstraintError("an interegular FSM reads characters, not bytes", fix='Pass alphabet="code points".')
    by_key: dict[Any, list[Any]] = {}
    for symbol, key in fsm.alphabet.items():
        by_key.setdefault(key, []).append(symbol)
    named = [ord(s) for symbols in by_key.values() for s in symbols if isinstance(s, str) and len(s) == 1]
    rest = complement(_points_set(named))
    sets: list[CodePointSet] = []
    index: dict[Any, int] = {}
    for key, symbols in by_key.items():
        parts = [_points_set([ord(s) for s in symbols if isinstance(s, str)])]
        if any(not isinstance(s, str) for s in symbols):
            parts.append(rest)
        index[key] = len(sets)
        sets.append(union(*parts))
    number = {state: i for i, state in enumerate(fsm.states)}
    arcs = [
        (number[q], index[key], number[t])
        for q, row in fsm.map.items()
        for key, t in row.items()
        if t in number and key in index and sets[index[key]] != (0, ())
    ]
    final = np.zeros(len(number), bool)
    final[[number[q] for q in fsm.finals]] = True
    source, symbol, target = np.array(arcs, np.int64).reshape(-1, 3).T
    return _Machine(number[fsm.initial], final, source, symbol, target, sets)


def _points_set(points: Iterable[int]) -> CodePointSet:
    ascii_, wide = 0, []
    for c in points:
        if c < 128:
            ascii_ |= 1 << c
        elif not is_surrogate(c):
            wide.append((c, c))
    return ascii_, normal(wide)


def _from_table(start: Hashable, finals: Any, table: Any, alphabet: Alphabet) -> _Machine:
    if isinstance(table, np.ndarray):
        return _from_array(start, finals, table, alphabet)
    if not isinstance(table, Mapping):
        raise ConstraintError(
            f"the transition table is a {type(table).__name__}", fix="Give {state: {symbol: next}} or a 2-D array."
        )
    number: dict[Hashable, int] = {}

    def index(state: Hashable) -> int:
        return number.setdefault(state, len(number))

    first = index(start)
    arcs = []
    for state, row in table.items():
        index(state)
        if not isinstance(row, Mapping):
            raise ConstraintError(f"the transitions of state {state!r} are a {type(row).__name__}", fix="Give {symbol: next}.")
        for symbol, after in row.items():
            value = _symbol_value(symbol, state, alphabet)
            for t in after if isinstance(after, (set, frozenset, list)) else (after,):
                arcs.append((index(state), value, index(t)))
    if isinstance(finals, str) or not isinstance(finals, Iterable):
        raise ConstraintError(f"the final states are {finals!r}, not a list", fix="Give a list of them: [state].")
    final_states = list(finals)
    unknown = [q for q in final_states if not isinstance(q, Hashable) or q not in number]
    if unknown:
        raise ConstraintError(f"the final state {unknown[0]!r} occurs in no transition", fix="Check its name.")
    final = np.zeros(len(number), bool)
    final[[number[q] for q in final_states]] = True
    source, symbols, target = np.array(arcs, np.int64).reshape(-1, 3).T
    _check_symbols(symbols, alphabet, "symbol")
    return _Machine(first, final, source, symbols, target)


def _symbol_value(symbol: Any, state: Hashable, alphabet: Alphabet) -> int:
    if symbol is None:
        return -1
    if isinstance(symbol, (str, bytes)) and len(symbol) == 1:
        value = ord(symbol)
        if isinstance(symbol, bytes) != (alphabet == "bytes") and value > 127:
            raise ConstraintError(f"the symbol {symbol!r} of state {state!r} does not fit the alphabet {alphabet}")
        return value
    if isinstance(symbol, (int, np.integer)) and not isinstance(symbol, bool) and symbol >= 0:
        return int(symbol)
    raise ConstraintError(
        f"state {state!r} has the symbol {symbol!r}", fix="A symbol is an integer, one character, one byte, or None for epsilon."
    )


def _from_array(start: Any, finals: Any, table: np.ndarray, alphabet: Alphabet) -> _Machine:
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise ConstraintError(
            f"the transition array has shape {table.shape} and dtype {table.dtype}", fix="Give int[states, symbols]."
        )
    S = len(table)
    outside = table[(table < -1) | (table >= S)]
    if len(outside):
        raise ConstraintError(f"the transition array leads to state {int(outside[0])} of {S}", fix="Use -1 for no transition.")
    final = np.zeros(S, bool)
    for q in [start, *finals]:
        if not 0 <= int(q) < S:
            raise ConstraintError(f"state {int(q)} is not one of the {S} states")
    final[[int(q) for q in finals]] = True
    source, symbol = occupied(table >= 0)
    _check_symbols(symbol, alphabet, "symbol")
    return _Machine(int(start), final, source, symbol, table[source, symbol].astype(np.int64))
