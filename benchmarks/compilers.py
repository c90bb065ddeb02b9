"""The compilers that `compile_speed.py` times, behind one interface: constrax and its peers.

A compiler gets the vocabulary once (`setup`), then offers one or more ways (`forms`) to bring a constraint to its first mask.
Every way starts from the pattern's text or the list of strings, keeps no cache of compilations and uses one thread.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Any

import numpy as np

from fsa_compile import compile_choices, compile_regex
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary import vocabulary_tables as vt


@dataclasses.dataclass(frozen=True)
class Constraint:
    """What is compiled, and how to tell that it was.

    Attributes:
      name: short name, for `--only`.
      pattern: regular expression, or None when the constraint is the list `strings`.
      strings: the choices, without characters that mean something in a regular expression.
      accept, refuse: a text of the language and one outside it.
      bar_ms: most milliseconds of CPU time for Llama-3's vocabulary.
    """

    name: str
    pattern: str | None
    strings: tuple[str, ...]
    accept: str
    refuse: str
    bar_ms: float

    @property
    def regex(self) -> str:
        """The constraint as one regular expression."""
        return "|".join(self.strings) if self.pattern is None else self.pattern


_SMALL = Constraint("small", "Red|Blue", (), "Red", "Reds", 1.0)


@dataclasses.dataclass(frozen=True)
class Form:
    """One way to compile a constraint: `make` is timed, `prepare` runs untimed before every repetition."""

    name: str
    make: Callable[[], Any]
    prepare: Callable[[], object] = lambda: None


class Compiler:
    """Base of the adapters.

    Attributes:
      name: what the table calls it.
      package: distribution whose version is recorded.
      lazy: whether masks are computed while decoding, so that compiling is only part of the cost.
    """

    name = ""
    package = ""
    lazy = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.eos = vocabulary.stop_ids[0]
        self.text_ids = [i for i, token in enumerate(vocabulary.tokens) if token]

    @classmethod
    def version(cls) -> str:
        """Installed version; raises `PackageNotFoundError` when there is none."""
        return metadata.version(cls.package)

    def setup(self) -> None:
        """Builds what depends on the vocabulary only."""
        raise NotImplementedError

    def setups(self, repeats: int) -> dict[str, list[tuple[float, float]]]:
        """(CPU, wall) seconds of setting the vocabulary up, by kind; the compiler is ready and warm afterwards."""
        self.setup()  # imports
        figures: dict[str, list[tuple[float, float]]] = {"cold": [], "cold, with a first constraint": []}
        for _ in range(repeats):
            figures["cold"].append(timed(self.setup)[:2])
            figures["cold, with a first constraint"].append(timed(self._setup_and_compile)[:2])
        return figures

    def _setup_and_compile(self) -> None:
        self.setup()
        self.forms(_SMALL)[0].make()

    def forms(self, constraint: Constraint) -> list[Form]:
        """The ways to compile, each from text to first mask."""
        raise NotImplementedError

    def accepts(self, made: Any, ids: Sequence[int]) -> bool:
        """Whether the first mask allows the first id, all ids can be followed, and the text may end there."""
        raise NotImplementedError

    def sizes(self, made: Any) -> dict[str, int]:
        """Sizes of what was made, where the compiler tells."""
        return {}

    def _empty_words(self) -> np.ndarray:
        return np.zeros((self.vocabulary.size + 31) // 32, np.int32)


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds of the process (all threads), wall seconds, and the result of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return time.process_time() - cpu, time.perf_counter() - wall, result


def bit(words: np.ndarray, token: int) -> bool:
    """Bit of a token in a mask of 32-bit words."""
    return bool(words[token >> 5] >> (token & 31) & 1)


class Constrax(Compiler):
    """This project: pattern → `CompiledConstraint`; a first mask on the host is timed as a form of its own."""

    name = "constrax"
    package = "constrax"

    def setup(self) -> None:
        vt._memory.clear()
        vt.tables_for(self.vocabulary)

    def setups(self, repeats: int) -> dict[str, list[tuple[float, float]]]:
        before = os.environ.get("CONSTRAX_CACHE")
        figures: dict[str, list[tuple[float, float]]] = {"cold": [], "disk": [], "cold, with a first constraint": []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(repeats):
                os.environ["CONSTRAX_CACHE"] = ""
                self._forget()
                figures["cold"].append(timed(self.setup)[:2])
                self._forget()
                figures["cold, with a first constraint"].append(timed(self._setup_and_compile)[:2])
            os.environ["CONSTRAX_CACHE"] = folder
            self.setup()
            for _ in range(repeats):
                self._forget()
                figures["disk"].append(timed(self.setup)[:2])
        if before is None:
            del os.environ["CONSTRAX_CACHE"]
        else:
            os.environ["CONSTRAX_CACHE"] = before
        return figures

    def _forget(self) -> None:
        """A vocabulary object of a new process: without its packed bytes, fingerprint and tables."""
        vt._memory.clear()
        self.vocabulary = dataclasses.replace(self.vocabulary)

    def _compile(self, constraint: Constraint) -> Any:
        if constraint.pattern is None:
            return compile_choices(constraint.strings, self.vocabulary)
        return compile_regex(constraint.pattern, self.vocabulary)

    def forms(self, constraint: Constraint) -> list[Form]:
        memo = vt.tables_for(self.vocabulary).memo

        def first_mask() -> Any:
            made = self._compile(constraint)
            made.walk().allowed()
            return made

        return [
            Form("first", lambda: self._compile(constraint), memo.clear),
            Form("repeated", lambda: self._compile(constraint)),
            Form("first, with mask", first_mask, memo.clear),
            Form("repeated, with mask", first_mask),
        ]

    def accepts(self, made: Any, ids: Sequence[int]) -> bool:
        walk = made.walk()
        for token in ids:
            if not walk.allowed()[token]:
                return False
            walk.advance(token)
        return bool(walk.accepting)

    def sizes(self, made: Any) -> dict[str, int]:
        return {
            name: int(value)
            for name in ("num_nodes", "num_rows", "nbytes")
            if isinstance(value := getattr(made, name, None), (int, np.integer))
        }


class OutlinesCore(Compiler):
    """outlines-core: an index of all states × tokens, then a guide."""

    name = "outlines-core"
    package = "outlines_core"

    def setup(self) -> None:
        self.module = import_module("outlines_core")
        ids: dict[bytes, list[int]] = {}
        for token in self.text_ids:
            ids.setdefault(self.vocabulary.tokens[token], []).append(token)
        self.table = self.module.Vocabulary(self.eos, ids)

    def _mask(self, guide: Any) -> np.ndarray:
        words = self._empty_words()
        guide.write_mask_into(words.ctypes.data, words.size, words.itemsize)
        return words

    def forms(self, constraint: Constraint) -> list[Form]:
        def make() -> Any:
            index = self.module.Index(constraint.regex, self.table)
            self._mask(self.module.Guide(index))
            return index

        return [Form("regex", make)]

    def accepts(self, made: Any, ids: Sequence[int]) -> bool:
        guide = self.module.Guide(made)
        if not bit(self._mask(guide), ids[0]):
            return False
        return bool(guide.accepts_tokens(list(ids))) and self._ends(guide, ids)

    def _ends(self, guide: Any, ids: Sequence[int]) -> bool:
        for token in ids:
            guide.advance(token, return_tokens=False)
        return bool(guide.is_finished())


class XGrammar(Compiler):
    """XGrammar: a grammar with a precomputed mask cache, then a matcher."""

    name = "XGrammar"
    package = "xgrammar"

    def setup(self) -> None:
        self.module = import_module("xgrammar")
        info = self.module.TokenizerInfo(
            list(self.vocabulary.tokens), vocab_size=self.vocabulary.size, stop_token_ids=list(self.vocabulary.stop_ids)
        )
        self.compiler = self.module.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.words = self.module.allocate_token_bitmask(1, self.vocabulary.size)

    def forms(self, constraint: Constraint) -> list[Form]:
        def first_mask(made: Any) -> Any:
            self.module.GrammarMatcher(made).fill_next_token_bitmask(self.words)
            return made

        def grammar() -> Any:
            return first_mask(self.compiler.compile_grammar("root ::= " + " | ".join(map(json.dumps, constraint.strings))))

        regex = Form("regex", lambda: first_mask(self.compiler.compile_regex(constraint.regex)))
        return [regex] if constraint.pattern is not None else [Form("EBNF choice", grammar), regex]

    def accepts(self, made: Any, ids: Sequence[int]) -> bool:
        matcher = self.module.GrammarMatcher(made)
        self.module.reset_token_bitmask(self.words)
        restricted = matcher.fill_next_token_bitmask(self.words)
        if restricted and not bit(self.words[0].numpy(), ids[0]):
            return False
        return all(matcher.accept_token(token) for token in ids) and bool(matcher.accept_token(self.eos))

    def sizes(self, made: Any) -> dict[str, int]:
        return {"nbytes": int(made.memory_size_bytes)}


class Llguidance(Compiler):
    """llguidance: masks computed lazily, one per step on the host."""

    name = "llguidance"
    package = "llguidance"
    lazy = True

    def setup(self) -> None:
        self.module = import_module("llguidance")
        vocabulary = self.vocabulary
        named = {token: name for name, token in vocabulary.special.items()}
        # A leading byte 0xFF, which no text has, is llguidance's own mark of a special token.
        tokens = [token or b"\xff" + named.get(i, f"<|unused_{i}|>").encode() for i, token in enumerate(vocabulary.tokens)]
        special = [i for i, token in enumerate(vocabulary.tokens) if not token]
        encoder = _GreedyEncoder(vocabulary, eos_token_id=self.eos, tokens=tokens, special_token_ids=special)
        wrapper = self.module.TokenizerWrapper(encoder)
        self.tokenizer = self.module.LLTokenizer(wrapper, n_vocab=vocabulary.size)

    def forms(self, constraint: Constraint) -> list[Form]:
        def make(kind: str, text: str) -> Any:
            matcher = self.module.LLMatcher(self.tokenizer, self.module.grammar_from(kind, text))
            words = self._empty_words()
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if matcher.is_error():
                raise ValueError(matcher.get_error())
            return matcher, words

        regex = Form("regex", lambda: make("regex", constraint.regex))
        if constraint.pattern is not None:
            return [regex]
        return [Form("choice", lambda: make("choice", json.dumps(constraint.strings))), regex]

    def accepts(self, made: Any, ids: Sequence[int]) -> bool:
        matcher, words = made[0].deep_copy(), made[1]
        return bit(words, ids[0]) and matcher.try_consume_tokens(list(ids)) == len(ids) and bool(matcher.is_accepting())


class _GreedyEncoder:
    """Longest-match tokenization; llguidance uses its tokenizer for forced text only."""

    def __init__(self, vocabulary: Vocabulary, *, eos_token_id: int, tokens: list[bytes], special_token_ids: list[int]) -> None:
        self.eos_token_id, self.bos_token_id = eos_token_id, vocabulary.bos_id
        self.tokens, self.special_token_ids = tokens, special_token_ids
        self.ids = {token: i for i, token in enumerate(vocabulary.tokens) if token}
        self.longest = max(map(len, self.ids))

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else bytes(text)
        ids = []
        while data:
            size = next(n for n in range(min(self.longest, len(data)), 0, -1) if data[:n] in self.ids)
            ids.append(self.ids[data[:size]])
            data = data[size:]
        return ids


class GlrMask(Compiler):
    """glrmask with its precomputed masks (`PARSER_DWA`)."""

    name = "glrmask"
    package = "glrmask"
    strategy = "PARSER_DWA"

    def setup(self) -> None:
        self.module = import_module("glrmask")
        self.table = self.module.Vocab.from_id_to_bytes({i: self.vocabulary.tokens[i] for i in self.text_ids})

    def forms(self, constraint: Constraint) -> list[Form]:
        grammars, strategy = self.module.Grammar, getattr(self.module.MaskStrategy, self.strategy)

        def make(grammar: Any) -> Any:
            made = grammar.compile(self.table, mask_strategy=strategy)
            words = np.zeros(max(made.mask_len(), self._empty_words().size), np.int32)
            made.start().fill_mask(words)
            return made

        def lark() -> Any:
            return make(grammars.from_lark("start: /" + constraint.regex.replace("/", r"\/") + "/"))

        def listed() -> Any:
            literal = self.module.Expr.literal
            return make(grammars.from_expr(self.module.Expr.choice(*map(literal, constraint.strings))))

        def alternatives() -> Any:
            return make(grammars.from_lark("start: " + " | ".join(map(json.dumps, constraint.strings))))

        if constraint.pattern is not None:
            return [Form("regex", lark)]
        return [Form("Expr.choice", listed), Form("Lark choice", alternatives), Form("regex", lark)]

    def accepts(self, made: Any, ids: Sequence[int]) -> bool:
        state = made.start()
        return bool(state.mask(size=self.vocabulary.size)[ids[0]]) and state.commit_tokens(list(ids)) and state.is_accepting()


class GlrMaskTrie(GlrMask):
    """glrmask walking the vocabulary for each mask (`TOKEN_TRIE`): lazy, its fastest way to a first mask."""

    name = "glrmask (trie)"
    strategy = "TOKEN_TRIE"
    lazy = True


COMPILERS: dict[str, type[Compiler]] = {
    compiler.name: compiler for compiler in (Constrax, OutlinesCore, XGrammar, GlrMask, GlrMaskTrie, Llguidance)
}
