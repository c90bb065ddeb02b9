"""Encoders that bring a text to a Unicode normal form: which constraints have only texts that are in it already.

A text that normalizing changes has no canonical tokens, and the filter does not see which these are. So a canonical constraint
over such an encoder is taken where no character of any of its texts can be changed, whatever stands beside it, and refused
elsewhere.

Source: Unicode Standard Annex #15, "Unicode Normalization Forms" (Quick_Check, canonical combining classes).
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable

import numpy as np

from fsa_compile.artifact.bitmask import words_of
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.pushdown import RETURN, ByteMachine
from fsa_compile.automata.utf8_classes import BAD, utf8_classes
from fsa_compile.errors import ConstraintError

_HANGUL = ((0x1161, 0x1176), (0x11A8, 0x11C3))
"""Vowels and final consonants, which join what stands before them."""
_ASSIGNED = (range(0x80, 0x33480), range(0xE0000, 0xE0200), range(0xF0000, 0x110000))
"""Where characters are looked for; those that Unicode adds elsewhere count as unknown."""


def check_normal(constraint: CompiledConstraint, single_bytes: np.ndarray, form: str) -> None:
    """Raises unless every text of a constraint is in a normal form.

    Args:
      constraint: a regular one whose vocabulary has a token for each byte.
      single_bytes: int64[V], the byte of each token of one byte, -1 for others.
      form: "NFC", "NFD", "NFKC" or "NFKD".

    Raises:
      ConstraintError: it allows a character that may be changed; says which.
    """
    alone = np.flatnonzero(single_bytes >= 0x80)
    here = (constraint.rows[constraint.group_row] & words_of(alone, constraint.vocab_size)).any()
    if not here and not (single_bytes[constraint.arc_token] >= 0x80).any():
        return  # ASCII stays as it is
    following = _byte_steps(constraint, single_bytes)
    readable = functools.cache(lambda node: np.flatnonzero(following[node]).tolist())
    _check_texts(constraint.start, readable, lambda node, byte: [int(following[node, byte])], form)


def check_machine_normal(machine: ByteMachine, form: str) -> None:
    """The same for the texts of a machine with a stack, at the byte.

    Every return counts that some frame has, so a machine may be refused for a character that stands only where no text gets.
    """
    read = machine.action[:, machine.byte_class[:256]]
    if not read[:, 0x80:].any():
        return

    @functools.cache
    def after(control: int, byte: int) -> list[int]:
        found, todo, known = set(), [control], {control}
        for at in todo:  # grows
            action = read[at, byte]
            for there in machine.entry_next[machine.entry_offset[action] : machine.entry_offset[action + 1]].tolist():
                if there == RETURN:
                    new = set(machine.ret[at][machine.ret[at] > 0].tolist()) - known
                    known |= new
                    todo += new
                else:
                    found.add(there)
        return sorted(found)

    _check_texts(machine.start, functools.cache(lambda control: np.flatnonzero(read[control]).tolist()), after, form)


def _check_texts(start: int, readable: Callable[[int], list[int]], after: Callable[[int, int], list[int]], form: str) -> None:
    """Raises where a text that is read from a place has a character that may be changed: `after` leads from place to place, by
    the bytes that are `readable` there."""
    nodes = _characters(form)
    seen = {(start, 0): b""}
    todo = [(start, 0)]
    for place, inside in todo:  # grows
        begun = seen[place, inside] if inside else b""
        for byte in readable(place):
            there = int(nodes[inside, byte])
            for following in after(place, byte) if there != BAD else ():
                if there == ~1:
                    raise _changed(begun + bytes([byte]), form)
                key = (following, max(there, 0))
                if key not in seen:
                    seen[key] = begun + bytes([byte])
                    todo.append(key)


def is_normal(text: bytes, form: str) -> bool:
    """Whether bytes are text in a normal form."""
    try:
        return unicodedata.is_normalized(form, text.decode())  # type: ignore[arg-type]
    except UnicodeDecodeError:
        return False


def _changed(character: bytes, form: str) -> ConstraintError:
    letter = character.decode()
    what = f"this tokenizer brings a text to the normal form {form} before it cuts it into tokens, and that may change texts here"
    return ConstraintError(
        what,
        where=f"for example with U+{ord(letter):04X} {unicodedata.name(letter, '')}".rstrip(),
        fix="Allow only characters that stay as they are, such as [ -~] (ASCII), or for NFC all of them by "
        "filters=[filters.nfc_inert()]; or compile without canonical=True.",
    )


def _byte_steps(constraint: CompiledConstraint, single_bytes: np.ndarray) -> np.ndarray:
    """int32[N, 256], node after each byte, 0 for none."""
    alone = np.flatnonzero(single_bytes >= 0)
    byte = single_bytes[alone]
    out = np.zeros((constraint.num_nodes, 256), np.int32)
    owner = np.repeat(np.arange(constraint.num_nodes), np.diff(constraint.group_offset))
    bits = constraint.rows[constraint.group_row][:, alone >> 5] >> (alone & 31).astype(np.uint32) & 1
    group, at = np.nonzero(bits)
    out[owner[group], byte[at]] = constraint.group_next[group]
    arc = np.flatnonzero(single_bytes[constraint.arc_token] >= 0)
    owner = np.repeat(np.arange(constraint.num_nodes), np.diff(constraint.arc_offset))
    out[owner[arc], single_bytes[constraint.arc_token[arc]]] = constraint.arc_next[arc]
    return out


@functools.lru_cache(maxsize=4)
def _characters(form: str) -> np.ndarray:
    """`utf8_classes` with class 0 for characters that stay as they are, 1 for others."""
    changes = np.ones(0x110000, np.int64)
    changes[:0x80] = 0
    if form == "NFC":
        changes[nfc_inert_points()] = 0
    changes[0xD800:0xE000] = -1
    return utf8_classes(changes)


@functools.cache
def nfc_inert_points() -> np.ndarray:
    """int64[n], code points that NFC leaves alone in every text, ASCII left out: starters in the form that join nothing before
    them.

    Code points that this Python's version of Unicode does not know are left out: a newer one may give them other properties.
    """
    joins = {c for low, high in _HANGUL for c in range(low, high)}
    known = []
    for point in (p for part in _ASSIGNED for p in part):
        letter = chr(point)
        if unicodedata.category(letter) in ("Cn", "Cs"):
            continue
        parts = unicodedata.decomposition(letter)
        if parts and parts[0] != "<":
            if not unicodedata.is_normalized("NFC", letter):
                continue
            joins.update(int(part, 16) for part in parts.split()[1:])
        if not unicodedata.combining(letter):
            known.append(point)
    return np.array([c for c in known if c not in joins])
