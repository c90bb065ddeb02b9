"""From a tree of formats to a constraint."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Request
from fsa_compile.compiler.machines import compile_dfa, compile_machine
from fsa_compile.errors import SchemaError
from fsa_compile.formats import tree
from fsa_compile.formats.framing import framed_machine
from fsa_compile.formats.machine_values import as_value
from fsa_compile.formats.request import FormatError
from fsa_compile.formats.text_automaton import text_automaton, text_dfa
from fsa_compile.formats.text_labels import TextAutomaton
from fsa_compile.formats.token_counts import token_limited
from fsa_compile.json_schema import schema_machine
from fsa_compile.json_schema.bounded_depth import without_counters
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.languages.constructors import regex
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for


def compile_format(root: tree.Format, request: Request, options: SchemaOptions | None) -> CompiledConstraint:
    """The constraint of a tree of texts, special tokens and values. `options`: how its schemas are read, and JSON is written."""
    return compile_named(root, request, options)[0]


def compile_named(
    root: tree.Format, request: Request, options: SchemaOptions | None, *, sketch: bool = False
) -> tuple[CompiledConstraint, TextAutomaton, tuple[str, ...]]:
    """The constraint of a tree, the automaton of its text, and where the tree has names: by node but the dead one, the state of
    that automaton, "" for none. `sketch`: that of a sketch will do."""
    if not request.is_plain:
        options = without_counters(options or SchemaOptions())
    limits, deadline = request.limits, request.deadline
    automaton = text_automaton(resolved(root, request), limits, deadline, sketch=sketch)
    if not automaton.calls and not automaton.specials:
        dfa = ByteDfa(automaton.table, automaton.byte_class.astype("uint8"), automaton.final, automaton.start)
        return compile_dfa(dfa, request), automaton, ()
    machines: list[ByteMachine] = []
    starts = []
    for node in automaton.schemas:
        if isinstance(node, tree.Json):
            with schemas_at(node):
                machines.append(schema_machine(node.schema, options=options, limits=limits, deadline=deadline))
            starts.append(machines[-1].start)
        else:
            machines.append(node.machine)
            starts.append(node.start)
    made = compile_machine(framed_machine(automaton, machines, deadline, starts), request)
    extra = dict(made.extra)
    states = extra.pop("controls", ()) if automaton.labels else ()
    return dataclasses.replace(made, extra=extra), automaton, tuple(states)


def short_text(most: int, without: tuple[str, ...], pointer: str, request: Request) -> tree.Format:
    """Free text of at most `most` characters: counted in a register where that is exact, else by states."""
    language = regex(f"(?s:.{{0,{most}}})")
    if without:
        language = language - regex(f"(?s:.*(?:{'|'.join(map(re.escape, without))}).*)")
    elif request.is_plain and tables_for(request.vocabulary).spells_every_byte:
        machine = language.to_byte_machine(request.limits, request.deadline)
        if machine is not None:
            value = as_value(machine)
            return tree.OneOf((tree.NOTHING, tree.Value(value, value.start, pointer)))
    return tree.Words(language, pointer)


def _few_tokens(node: tree.FewTokens, request: Request) -> tree.Format:
    """Text whose tokens are counted in a register. Raises `FormatError`: tokens cannot be counted here."""
    tables = tables_for(request.vocabulary)
    what, fix = "", "Bound it by characters."
    if not tables.spells_every_byte:
        what = "tokens are counted exactly only where every byte has a token of its own"
    elif not request.is_plain:
        what, fix = "tokens are counted only without canonical= and filters=", "Leave these out, or bound it by characters."
    if what:
        raise FormatError(what, pointer=node.pointer, fix=fix)
    free = text_dfa(tree.FreeText(node.without, node.pointer), request.limits, request.deadline)
    if not node.most or free.num_states < 2:
        return tree.NOTHING
    machine = token_limited(free, node.most, tables)
    return tree.OneOf((tree.NOTHING, tree.Value(machine, machine.start, node.pointer)))


def resolved(root: tree.Format, request: Request, choices: dict[int, tree.Format] | None = None) -> tree.Format:
    """A tree with what a vocabulary has in the place of names of special tokens and of texts of at most n tokens.

    Args:
      choices: by identity, those that were resolved: one that stands in several places stays one.

    Raises:
      FormatError: the vocabulary has no such special token, or nothing can follow it, or tokens cannot be counted.
    """
    vocabulary = request.vocabulary
    choices = {} if choices is None else choices
    match root:
        case tree.FewTokens():
            return _few_tokens(root, request)
        case tree.Special(tokens=tokens, pointer=pointer, excluded=excluded):
            ids = frozenset(_special_id(token, vocabulary, pointer) for token in tokens)
            if not excluded:
                return tree.Token(ids)
            others = set(vocabulary.special.values()) - ids - set(vocabulary.stop_ids) - {vocabulary.bos_id}
            return tree.Token(frozenset(token for token in others if token is not None))
        case tree.Parts(parts=parts):
            return tree.Parts(tuple(resolved(part, request, choices) for part in parts))
        case tree.OneOf(branches=branches):
            if id(root) not in choices:
                choices[id(root)] = tree.OneOf(tuple(resolved(branch, request, choices) for branch in branches))
            return choices[id(root)]
        case tree.Named(branches=branches):
            return tree.Named(tuple((name, resolved(behind, request, choices)) for name, behind in branches))
        case tree.Repeated(part=part):
            return dataclasses.replace(root, part=resolved(part, request, choices))
        case tree.Joined(part=part, between=between):
            return tree.Joined(resolved(part, request, choices), resolved(between, request, choices))
    return root


def _special_id(token: str | int, vocabulary: Vocabulary, pointer: str) -> int:
    found = vocabulary.special.get(token, -1) if isinstance(token, str) else token
    what = fix = ""
    if not 0 <= found < vocabulary.size:
        what = f"the vocabulary has no special token {token!r}"
        known = ", ".join(sorted(vocabulary.special)[:8])
        fix = f"Its special tokens begin with {known}." if known else "It has none."
    elif vocabulary.tokens[found]:
        what = f"token {token!r} is the text {vocabulary.tokens[found]!r:.60}, which may be written in other tokens, too"
        fix = 'Write it as {"type": "const_string", "value": ...}; only special tokens are tokens of their own.'
    elif found in vocabulary.stop_ids:
        what = f"the special token {token!r} ends a text in this vocabulary, so nothing can follow it"
        fix = "Leave it out: it is allowed where the output may end."
    if what:
        raise FormatError(what, pointer=pointer, fix=fix)
    return int(found)


class schemas_at:  # noqa: N801 (a context manager, used like a function)
    """Errors of a schema name its place in the request."""

    def __init__(self, node: tree.Json) -> None:
        self._pointer = node.pointer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SchemaError):
            raise type(error)(error.what, pointer=self._pointer + error.pointer.removeprefix("#"), fix=error.fix) from None
