"""Templates of a grammar become ordinary rules: one instance for each different list of arguments that is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fsa_compile.errors import LimitError
from fsa_compile.grammar.grammar_tree import Choice, Expression, Reference, Repeat, Rule, Sequence
from fsa_compile.grammar.names import undefined
from fsa_compile.grammar.source import GrammarText, walk


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateUse(Reference):
    """A template's name with arguments; only front ends know these, a finished grammar has none."""

    arguments: tuple[Expression, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """A rule, a terminal, or a template (which has parameters) as it was written.

    Attributes: as of `Rule`; parameters: names that stand for arguments in the body.
    """

    name: str
    parameters: tuple[str, ...]
    body: Expression
    terminal: bool
    priority: int
    start: int
    end: int


def instantiate(source: GrammarText, definitions: Mapping[str, Definition]) -> dict[str, Rule]:
    """The rules of a grammar without templates, followed by the instances that they use, directly or not.

    Raises:
      GrammarSyntaxError: undefined names, wrong numbers of arguments.
      LimitError: more than `max_rules` rules, for example since a template uses itself with ever new arguments.
    """
    for definition in definitions.values():
        _check_names(source, definition, definitions)
    instances = _Instances(source, definitions)
    for definition in definitions.values():
        if not definition.parameters:
            instances.add(definition.name, definition, {})
    return instances.finished()


class _Instances:
    def __init__(self, source: GrammarText, definitions: Mapping[str, Definition]) -> None:
        self.source, self.definitions = source, definitions
        self.names: dict[tuple[str, ...], str] = {}
        self.todo: list[tuple[str, Definition, dict[str, Expression]]] = []

    def add(self, name: str, definition: Definition, arguments: dict[str, Expression]) -> None:
        """Notes a rule that is to be made."""
        limit = self.source.limits.max_rules
        if len(self.todo) >= limit:
            line = self.source.line_of(definition.start)
            fix = "Check that no template uses itself with ever new arguments, or raise CompileLimits.max_rules."
            raise LimitError("max_rules", limit, f"This grammar (at {definition.name}, line {line})", fix=fix)
        self.todo.append((name, definition, arguments))

    def finished(self) -> dict[str, Rule]:
        """Makes all rules, with those that turn out to be needed on the way."""
        rules = {}
        for name, definition, arguments in self.todo:  # grows
            body = self.replaced(definition.body, arguments)
            rules[name] = Rule(name, body, definition.terminal, definition.priority, definition.start, definition.end)
        return rules

    def replaced(self, node: Expression, arguments: Mapping[str, Expression]) -> Expression:
        """An expression with arguments in the place of parameters, and instances in the place of templates."""
        match node:
            case TemplateUse():
                return self.instance(node, arguments)
            case Reference():
                return self.plain(self.argument(node, arguments), node)
            case Sequence(parts=parts):
                return Sequence(tuple(self.replaced(part, arguments) for part in parts), node.start, node.end)
            case Choice(branches=branches):
                return Choice(tuple(self.replaced(branch, arguments) for branch in branches), node.start, node.end)
            case Repeat(part=part):
                return Repeat(self.replaced(part, arguments), node.low, node.high, node.start, node.end)
        return node

    def argument(self, node: Expression, arguments: Mapping[str, Expression]) -> Expression:
        """What an argument of a template stands for; a template's bare name may be one."""
        if isinstance(node, TemplateUse):
            return self.instance(node, arguments)
        return arguments.get(node.name, node) if isinstance(node, Reference) else node

    def plain(self, node: Expression, at: Expression) -> Expression:
        """Refuses the bare name of a template where an expression must stand."""
        template = self.definitions.get(node.name) if isinstance(node, Reference) else None
        if template and template.parameters:
            fix = f"Write {template.name}{{{', '.join(template.parameters)}}} with the arguments you mean."
            self.source.syntax(f"the template {template.name} is used without arguments", at.start, at.end, fix=fix)
        return node

    def instance(self, use: TemplateUse, arguments: Mapping[str, Expression]) -> Reference:
        """The rule that a use of a template stands for."""
        target = arguments.get(use.name)
        name = target.name if isinstance(target, Reference) else use.name
        template = self.definitions.get(name)
        if (target is not None and not isinstance(target, Reference)) or template is None or not template.parameters:
            self.source.syntax(f"{use.name!r} is no template here", use.start, use.end, fix="Use it without { }.")
        if len(use.arguments) != len(template.parameters):
            needed, fix = len(template.parameters), f"It is {name}{{{', '.join(template.parameters)}}}."
            what = f"the template {name} takes {needed} argument{'s' * (needed != 1)}, not {len(use.arguments)}"
            self.source.syntax(what, use.start, use.end, fix=fix)
        given = [self.argument(argument, arguments) for argument in use.arguments]
        key = (name, *(self.spelled(argument) for argument in given))
        if key not in self.names:
            self.names[key] = self.named(key)
            self.add(self.names[key], template, dict(zip(template.parameters, given)))
        return Reference(self.names[key], use.start, use.end)

    def spelled(self, argument: Expression) -> str:
        """An argument as it was written, or the name of the rule that it has become."""
        if isinstance(argument, Reference):
            return argument.name
        return self.source.text[argument.start : argument.end]

    def named(self, key: tuple[str, ...], longest: int = 200) -> str:
        """The name of an instance; a long one is cut and numbered."""
        name = f"{key[0]}{{{', '.join(key[1:])}}}"
        return name if len(name) <= longest else f"{name[:longest]}…#{len(self.names)}}}"


def _check_names(source: GrammarText, definition: Definition, definitions: Mapping[str, Definition]) -> None:
    for node in walk(definition.body):
        for part in _uses(node):
            if part.name not in definitions and part.name not in definition.parameters:
                undefined(source, part, [*definitions, *definition.parameters])


def _uses(node: Expression) -> list[Reference]:
    """The names that an expression uses itself, those in a template's arguments included."""
    out, todo = [], [node]
    while todo:
        if isinstance(here := todo.pop(), Reference):
            out.append(here)
            if isinstance(here, TemplateUse):
                todo += here.arguments
    return out
