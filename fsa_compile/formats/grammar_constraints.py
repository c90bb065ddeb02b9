"""Grammars as constraints, with what other machines read inside them: JSON values, other grammars, texts of so many tokens."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Canonical, Request
from fsa_compile.compiler.grammars import MAX_STACKS, Syntax, check_grammar_text, parse_grammar, special_ids, special_tokens
from fsa_compile.compiler.machines import compile_machine
from fsa_compile.compiler.stored_machines import packaged_machine, stored_machine
from fsa_compile.errors import ConstraintError, SchemaError, UnsupportedGrammarError, is_whole
from fsa_compile.formats.framing import with_values
from fsa_compile.formats.machine_values import as_value
from fsa_compile.formats.request import FormatError
from fsa_compile.formats.token_counts import token_limited
from fsa_compile.formats.tree import NOTHING, Format, OneOf, Value
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import Embedded, Grammar, LexicalMode, Tempered
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.grammar.lexing.terminals import terminal_dfa
from fsa_compile.inputs.guard import guarded
from fsa_compile.json_schema import schema_machine
from fsa_compile.json_schema.bounded_depth import without_counters
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import tables_for

if TYPE_CHECKING:
    from fsa_compile.filters import Filter

_MAX_INSIDE = 8
"""Most grammars inside each other."""


@guarded
def compile_grammar(
    text: str,
    tokenizer: Any,
    *,
    start: str | None = None,
    syntax: Syntax | None = None,
    mode: LexicalMode | None = None,
    stacks: int = 1,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a context-free grammar, written in Lark's syntax or in GBNF.

    Args:
      text: the grammar; `fsa_compile.library.grammar_text(name)` has ready ones, and `read_grammar(path)` reads a file with its
        imports. `%json {...}` in it is a JSON Schema, whose values are written as `compile_json_schema` has them by default.
      tokenizer: see `compile_language`.
      start: the start rule; by default `start` in Lark's syntax, `root` in GBNF.
      syntax: "lark" or "gbnf"; None tells them apart by GBNF's `::=`.
      mode: "longest" cuts text into lexemes as a lexer does, with `%ignore` between them (the default in Lark's syntax);
        "lark" does so, and reads what Lark's LALR parser with its contextual lexer reads, or refuses the grammar; but where LALR
        merges states it does not look for what cannot stand there;
        "characters" concatenates terminals as they are (the default, and the only mode, in GBNF).
      stacks: parallel stacks for grammars that one stack cannot decide; 1 makes every conflict an error. With more, the
        constraint is exact while they suffice; when they do not, readings are dropped, which can only forbid valid text, and
        the decoding result says so.
      canonical: see `compile_language`. Counts and stacks are written out, so that such a constraint keeps none while decoding.
      starts_text: see `compile_language`; texts that begin with a space are left out for tokenizers that cannot keep it.
      filters: see `compile_language`. Those over text keep the stack; those over tokens have it written out, as `canonical` does.
      max_depth: where stacks are written out, how many frames of rules that contain themselves may be open at once; what nests
        deeper is left out. Needed for grammars that nest without bound.
      limits: see `compile_language`.

    Returns:
      The artifact.

    Raises:
      GrammarError: with line, column and the way out: not well formed, not supported, or undecidable with this many stacks.
      ConstraintError: see `compile_language`.
    """
    if not isinstance(text, str):
        what = f"a grammar is a str, not {type(text).__name__}"
        raise ConstraintError(what, fix="Pass its text; for a file, read_grammar(file).")
    check_grammar_text(text)
    if not is_whole(stacks, 1, MAX_STACKS):
        raise ConstraintError(f"stacks must be an int from 1 to {MAX_STACKS}, not {stacks!r}", fix="Begin with stacks=2.")
    request = Request.of(
        tokenizer, text, canonical=canonical, filters=filters, starts_text=starts_text, max_depth=max_depth, limits=limits
    )
    machine = packaged_machine(text, start=start, syntax=syntax, mode=mode, stacks=stacks, limits=request.limits)
    if machine is None:
        grammar = parse_grammar(text, start=start, syntax=syntax, mode=mode, limits=request.limits)
        specials = special_ids(grammar, request.vocabulary)
        machine = grammar_machine(grammar, stacks=stacks, specials=specials, request=request)
    return compile_machine(machine, request, stacks=stacks)


def grammar_machine(
    grammar: Grammar,
    *,
    stacks: int = 1,
    specials: Mapping[str | int, int] | None = None,
    request: Request | None = None,
    limits: CompileLimits | None = None,
    deadline: Deadline | None = None,
    depth: int = 0,
) -> ByteMachine:
    """The machine of a grammar and of the values in it.

    Args:
      grammar, stacks, specials: see `machine_of`.
      request: what it is compiled for; None: for any vocabulary, so that no tokens can be counted.
      limits, deadline: the request's by default.
      depth: number of grammars around this one.

    Raises:
      GrammarError, ConstraintError: see `compile_grammar`.
    """
    limits = limits or (request.limits if request else CompileLimits())
    deadline = deadline or (request.deadline if request else Deadline(limits))
    inside = Embeddings(grammar, request, limits, deadline, depth)
    if not inside.nodes:
        made = functools.partial(machine_of, grammar, stacks=stacks, specials=specials, limits=limits, deadline=deadline)
        return stored_machine(grammar, made, stacks=stacks, specials=specials or {}, limits=limits)
    named = {**(specials or {}), **inside.tokens}
    outer = machine_of(grammar, stacks=stacks, specials=named, limits=limits, deadline=deadline, values=inside.starts)
    if not outer.deterministic:
        fix = "Change the grammar so that stacks=1 is enough."
        _refuse(grammar, inside.nodes[0], "a value in a grammar that needs several stacks", fix)
    try:
        return with_values(outer, inside.values, deadline)
    except FormatError as error:
        fix = "Let the text before and behind it begin otherwise; alternatives inside one schema may begin alike."
        return _refuse(grammar, inside.nodes[int(error.pointer)], error.what, fix if "tokens" not in error.what else error.fix)


def grammar_format(text: str, start: str | None, pointer: str, limits: CompileLimits, deadline: Deadline) -> Format:
    """The texts of a grammar in Lark's syntax or in GBNF. Raises `GrammarError`: see `compile_grammar`."""
    machine = packaged_machine(text, start=start, limits=limits)
    if machine is None:
        machine = grammar_machine(parse_grammar(text, start=start, limits=limits), limits=limits, deadline=deadline)
    value = as_value(machine)
    read = Value(value, value.start, pointer)
    return OneOf((NOTHING, read)) if machine.may_end([machine.initial]) else read


def _refuse(grammar: Grammar, node: Embedded, what: str, fix: str) -> NoReturn:
    raise UnsupportedGrammarError(what, text=grammar.text, start=node.start, end=node.end, fix=fix)


class Embeddings:
    """The values in one grammar.

    Attributes:
      nodes: of the grammar, different ones only.
      values: their machines.
      tokens: the token in the place of each, by the names of nodes.
      starts: of these tokens, the bytes with which the values may begin, and whether the empty text is one besides.
    """

    def __init__(
        self, grammar: Grammar, request: Request | None, limits: CompileLimits, deadline: Deadline, depth: int = 0
    ) -> None:  # fmt: skip
        self.grammar, self.request, self.limits, self.deadline, self.depth = grammar, request, limits, deadline, depth
        found = {node.name: node for node in special_tokens(grammar) if isinstance(node, Embedded)}
        self.nodes = list(found.values())
        self.tokens = {name: ~number for number, name in enumerate(found)}
        self.values, self.starts = list[Value](), dict[int, tuple[int, bool]]()
        for number, node in enumerate(self.nodes):
            machine, nullable = self.machine(node)
            self.values.append(Value(machine, machine.start, str(number)))
            first = np.flatnonzero(machine.action[machine.start, machine.byte_class[:256]])
            self.starts[~number] = sum(1 << byte for byte in first.tolist()), nullable

    def machine(self, node: Embedded) -> tuple[ByteMachine, bool]:
        """The machine of a value, and whether the empty text is one besides."""
        if node.kind == "json":
            return self.json_machine(node), False
        if node.kind == "tokens":
            return self.counted_machine(node)
        if self.depth >= _MAX_INSIDE:
            _refuse(self.grammar, node, f"more than {_MAX_INSIDE} grammars inside each other", "Write some of them as rules.")
        inner = parse_lark(node.content, mode=self.grammar.mode, limits=self.limits)
        if inner.captures:
            _refuse(self.grammar, node, "a captured rule in a grammar in a grammar", "Capture rules of the outer grammar.")
        specials = special_ids(inner, self.request.vocabulary) if self.request else None
        machine = grammar_machine(
            inner, specials=specials, request=self.request, limits=self.limits, deadline=self.deadline, depth=self.depth + 1
        )
        if machine.token_reserve is not None:
            _refuse(self.grammar, node, "a grammar in a grammar cannot count tokens", "Count them in a rule of the outer one.")
        return as_value(machine), machine.may_end([machine.initial])

    def json_machine(self, node: Embedded) -> ByteMachine:
        options = None if self.request is None or self.request.is_plain else without_counters(SchemaOptions())
        try:
            return schema_machine(node.content, options=options, limits=self.limits, deadline=self.deadline)
        except SchemaError as error:
            line = self.grammar.text.count("\n", 0, node.start) + 1
            raise type(error)(error.what, pointer=f"{error.pointer} of %json in line {line}", fix=error.fix) from None

    def counted_machine(self, node: Embedded) -> tuple[ByteMachine, bool]:
        """The texts of a terminal with so many tokens at most."""
        fix = "Bound it by max_chars."
        if self.request is None or not self.request.is_plain:
            _refuse(self.grammar, node, "tokens are counted in compile_grammar only, without canonical= and filters=", fix)
        tables = tables_for(self.request.vocabulary)
        if not tables.spells_every_byte:
            _refuse(self.grammar, node, "tokens are counted exactly only where every byte has a token of its own", fix)
        dfa = terminal_dfa(self.grammar, node, self.limits, self.deadline)
        body = self.grammar.rules[str(node.name)].body
        heat = body.temperature if isinstance(body, Tempered) else None
        return token_limited(dfa, int(node.content), tables, heat), bool(dfa.final[dfa.start])
