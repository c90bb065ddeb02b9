"""Normalizers of tokenizers, on texts and on languages.

On texts the tokenizer's own library does the work. On languages every step is a transducer; what single characters become is
asked of the library too, so that both agree whatever their Unicode versions. Steps that are no finite-state function are
applied where that makes no difference, and to finite languages text by text; everything else is refused:

* forms D and KD also sort combining marks. A run of marks can be as long as it likes, so that this is exact only where no text of
  the language has marks out of order once its characters are decomposed;
* forms C and KC compose: s is the form C of a text exactly if it is in form C and has the same form D. This is exact where no two
  marks of different classes stand side by side in the decomposed texts.

Source: Koo et al. 2024, §2 (transducers before composition with the vocabulary); Cognetta et al. 2025, §3; UAX 15.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unicodedata import category, combining

import numpy as np

from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.acyclic import choices_dfa
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.transducers import character_map, image, prepended, replacement, stripped
from fsa_compile.automata.utf8_dfa import class_dfa
from fsa_compile.errors import ConstraintError, TokenizerError
from fsa_compile.filters.composed import nfc
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.tokenizers.tokenizer import require

_FEW_TEXTS = 20_000
"""Finite languages up to this size can be normalized text by text."""
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_SCALARS = (range(0x0A), range(0x0B, 0xD800), range(0xE000, 0x110000))  # without the line break that parts them

_Image = Callable[[ByteDfa, CompileLimits, Deadline], ByteDfa]


class _NotFiniteStateError(Exception):
    """A step cannot be applied to this language; the message says why."""


@dataclasses.dataclass(frozen=True, eq=False)
class Normalizer:
    """What a tokenizer does to the characters of a text before it cuts it.

    Attributes:
      steps: the names of its steps, in order; none for a tokenizer that takes texts as they are.
    """

    steps: tuple[str, ...]
    _on_text: Callable[[str], str]
    _on_language: tuple[_Image, ...]

    def normalize(self, text: str) -> str:
        """The text as the tokenizer cuts it, spaces written as spaces."""
        return self._on_text(text)

    def apply(self, language: Language) -> Language:
        """All normalized texts of a language.

        Args:
          language: over texts, without special tokens.

        Returns:
          A language. Building it raises `ConstraintError` where the normalizer is no finite-state function on this language and
          the language is not finite; the message names step and way out.
        """
        return language if not self.steps else _Normalized(language, self)

    def _image(self, dfa: ByteDfa, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
        current = dfa
        for name, step in zip(self.steps, self._on_language):
            try:
                current = step(current, limits, deadline)
            except _NotFiniteStateError as error:
                texts = _finite_texts(dfa)
                if texts is None:
                    raise ConstraintError(
                        f"the normalizer {name} cannot be applied to this language: {error}",
                        fix=f"Give a finite language (at most {_FEW_TEXTS:,} texts), or intersect it with filters.nfc().",
                    ) from None
                normal = sorted({self._on_text(text.decode()).encode() for text in texts})
                return choices_dfa(normal, limits, deadline)
        return current


class _Normalized(Language):
    def __init__(self, language: Language, normalizer: Normalizer) -> None:
        self._language, self._normalizer = language, normalizer
        self.description = f"{' ∘ '.join(reversed(normalizer.steps))}({language.description})"

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        return self._normalizer._image(self._language.to_byte_dfa(limits, deadline), limits, deadline)


def normalizer_of(tokenizer: Any) -> Normalizer:
    """The normalizer of a tokenizer.

    Args:
      tokenizer: from `load_tokenizer`, or anything `load_tokenizer` takes.

    Returns:
      The normalizer. What puts a space before a text is no part of it (see `text_start`), nor is the symbol that stands for a
      space inside tokens.

    Raises:
      TokenizerError: the tokenizer's file cannot be read, or the library does not accept its normalizer.
    """
    from fsa_compile.tokenizers import load_tokenizer
    from fsa_compile.tokenizers.hugging_face import HuggingFaceTokenizer
    from fsa_compile.tokenizers.sentence_piece import SentencePieceTokenizer

    tokenizer = load_tokenizer(tokenizer)
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _of_sentence_piece(tokenizer)
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return normalizer_of_spec(tokenizer.spec.get("normalizer"))
    form = getattr(tokenizer, "unicode_form", None)
    return normalizer_of_spec({"type": form} if form else None)


def normalizer_of_spec(spec: Mapping[str, Any] | None) -> Normalizer:
    """The normalizer that the entry "normalizer" of a `tokenizer.json` describes.

    Steps that only put the space symbol `▁` in place of spaces, or before a text, are left out.

    Raises:
      TokenizerError: the library does not accept it.
    """
    steps = [step for step in _flat(spec) if not _is_space_symbol(step)]
    images = tuple(_image_of(step) for step in steps)
    if not steps:
        return Normalizer((), str, ())
    library = _library({"type": "Sequence", "normalizers": steps})
    return Normalizer(tuple(str(step.get("type")) for step in steps), library, images)


def _flat(spec: Any) -> Iterator[dict[str, Any]]:
    if isinstance(spec, dict) and spec.get("type") == "Sequence":
        for one in spec.get("normalizers", []):
            yield from _flat(one)
    elif isinstance(spec, dict):
        yield spec


def _is_space_symbol(step: Mapping[str, Any]) -> bool:
    pattern = step.get("pattern")
    return (step.get("type") == "Prepend" and step.get("prepend") == "▁") or (
        step.get("type") == "Replace" and isinstance(pattern, dict) and pattern == {"String": " "} and step.get("content") == "▁"
    )


def _library(spec: Mapping[str, Any]) -> Callable[[str], str]:
    """The normalizer as the package `tokenizers` runs it."""
    tokenizers = require("tokenizers")
    bare: dict[str, Any] = {"version": "1.0", "added_tokens": [], "normalizer": spec}
    bare |= dict.fromkeys(("truncation", "padding", "pre_tokenizer", "post_processor", "decoder"))
    bare["model"] = {"type": "BPE", "vocab": {}, "merges": []}
    try:
        made = tokenizers.Tokenizer.from_str(json.dumps(bare)).normalizer
    except Exception as error:
        what = f"tokenizers does not accept this normalizer ({error})"
        raise TokenizerError(what, where='"normalizer"', fix="Update the package, or export the tokenizer again.") from error
    return lambda text: str(made.normalize_str(text))


def _image_of(step: Mapping[str, Any]) -> _Image:
    kind = step.get("type")
    if kind == "Prepend":
        return prepended(str(step["prepend"]).encode())
    if kind == "Replace" and isinstance(old := (step.get("pattern") or {}).get("String"), str) and old:
        transducer = replacement(old.encode(), str(step["content"]).encode())
        return lambda dfa, limits, deadline: image(dfa, transducer, limits, deadline)
    if kind in ("Lowercase", "StripAccents"):
        return lambda dfa, limits, deadline: image(dfa, _characters(str(kind)), limits, deadline)
    if kind == "Strip":
        left, right = bool(step.get("strip_left", True)), bool(step.get("strip_right", True))
        return lambda dfa, limits, deadline: image(dfa, stripped(_removable(), left, right), limits, deadline)
    if kind in _FORMS:
        return functools.partial(_normal_form, str(kind))
    return _refuse("it is no function of single characters that is known here")


def _refuse(why: str) -> _Image:
    def refused(dfa: ByteDfa, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
        raise _NotFiniteStateError(why)

    return refused


@functools.cache
def _changed(kind: str) -> dict[int, str]:
    """The characters that a step changes, and what they become."""
    library = _library({"type": kind})
    out: dict[int, str] = {}
    for points in _SCALARS:
        lines = library("\n".join(map(chr, points))).split("\n")
        out |= {point: line for point, line in zip(points, lines) if line != chr(point)}
    return out


@functools.cache
def _characters(kind: str) -> Any:
    return character_map(_changed(kind))


@functools.cache
def _removable() -> frozenset[int]:
    """White space as `Strip` removes it."""
    library = _library({"type": "Strip", "strip_left": True, "strip_right": True})
    return frozenset(point for point in range(0x3001) if not library(chr(point)))


def _normal_form(form: str, dfa: ByteDfa, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """The image under a normalization form, where it is finite-state."""
    decomposing = _characters("NFKD" if "K" in form else "NFD")
    decomposed = image(dfa, decomposing, limits, deadline)
    inside = _orders(sorted_marks=form.endswith("D"))
    if algebra.combine("-", decomposed, inside, limits, deadline).start:
        why = "combining marks change places" if form.endswith("D") else "different combining marks follow each other"
        raise _NotFiniteStateError(f"{why} in some of its texts")
    if form.endswith("D"):
        return decomposed
    same = image(decomposed, _characters("NFD"), limits, deadline, inverse=True)
    return algebra.combine("&", same, nfc().to_byte_dfa(limits, deadline), limits, deadline)


@functools.cache
def _orders(*, sorted_marks: bool) -> ByteDfa:
    """Texts whose runs of combining marks have classes that do not fall, or that are all the same."""
    marks = np.fromiter(map(combining, map(chr, range(0x110000))), np.int64, 0x110000)
    classes, class_of = np.unique(marks, return_inverse=True)
    # Python's tables may be older than the library's: what they do not know is left to texts one by one.
    class_of[[point for point in range(0x110000) if category(chr(point)) in ("Cn", "Cs")]] = -1
    before, now = classes[:, None], classes[None, :]
    allowed = (now == 0) | (before == 0) | ((before <= now) if sorted_marks else (before == now))
    table = np.where(allowed, np.arange(len(classes))[None, :], -1)
    return class_dfa(class_of, table, np.ones(len(classes), bool))


def _finite_texts(dfa: ByteDfa) -> list[bytes] | None:
    """All texts of an automaton; None where there are more than a few."""
    out: list[bytes] = []
    todo = [(dfa.start, b"")]
    source, byte, target = dfa.arcs
    begin = np.searchsorted(source, np.arange(dfa.num_states + 1))
    while todo:
        state, text = todo.pop()
        if dfa.final[state]:
            out.append(text)
        if len(out) > _FEW_TEXTS or len(text) > dfa.num_states:
            return None
        todo += [(int(target[i]), text + bytes([int(byte[i])])) for i in range(begin[state], begin[state + 1])]
        if len(todo) > 8 * _FEW_TEXTS:
            return None
    return out


def _of_sentence_piece(tokenizer: Any) -> Normalizer:
    """SentencePiece: a table of characters, and white space that is removed; both parts of the model."""
    model, _ = tokenizer.model
    steps: list[str] = []
    images: list[_Image] = []
    if model.has_character_map:
        steps.append("character map")
        images.append(_refuse("its table replaces longest matches of several characters"))
    if model.remove_extra_whitespaces:
        spaces = stripped(frozenset([0x20]), True, True, joined=True)
        steps.append("extra spaces")
        images.append(lambda dfa, limits, deadline: image(dfa, spaces, limits, deadline))
    if not steps:
        return Normalizer((), str, ())
    processor, prefix = tokenizer.processor, int(model.add_dummy_prefix)

    def on_text(text: str) -> str:
        normal = str(processor.normalize(text)).replace("▁", " ")
        return normal[prefix:] if normal else normal

    return Normalizer(tuple(steps), on_text, tuple(images))


__all__ = ["Normalizer", "normalizer_of", "normalizer_of_spec"]
