r"""Lark's grammar language to a `Grammar`.

Understood: rules and terminals with `|`, groups, `[...]`, `* + ? ~n ~n..m`, strings, character ranges, regular expressions with
flags, priorities of terminals, `%ignore`, `%import common`, `%override`, `%extend`, templates, comments. What only shapes Lark's
trees (`?rule`, `!rule`, `-> alias`, priorities of rules) is accepted and means nothing. Ours are the atoms `<name>`, `<[id]>`,
`%token("name")` and `%until("text")` of `lark_tokens`, and the empty string `""`. Values in braces (`front.blocks`) and options
of rules (`front.rule_options`) are as llguidance has them.

Departures from Lark, each for the sake of one clear meaning:

* An escape that Lark would leave as a backslash and a letter (`"\d"`) is an error, as are a mixed-case word and flags of a range.
* Escapes in a regular expression mean what they mean to `re`. Lark decodes some of them before, so that its `/\x2b/` is an
  operator.
* Of several terminals the longest match is taken, not the first in Lark's order, unless the mode is "lark"; `longest_match`
  has the rules, `lark_order` those of that mode. `terminal_patterns` says what lazy loops and conditions mean.
* `%declare` is for indentation only: `%declare _INDENT _DEDENT`, as Lark's `Indenter` has them. The newline terminal is called
  `_NEWLINE` or `_NL`. Each block is indented by four spaces and at most ten are open, unless `%indent 2 6` says otherwise.
* `%call name` gives a rule a frame of its own on the stack in every place; the language stays as it is.
* Modules that are imported stand behind the grammar (`front.modules`), where `read_grammar` writes them.

Source: https://lark-parser.readthedocs.io, "Grammar Reference".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.grammar.front.common_terminals import COMMON_TERMINALS
from fsa_compile.grammar.front.expressions import ExpressionReader
from fsa_compile.grammar.front.modules import Renaming, mangled, needed_for, renamed, sections_of
from fsa_compile.grammar.front.rule_options import Option, bounded
from fsa_compile.grammar.grammar_tree import (
    Choice,
    Chunks,
    Expression,
    FreeText,
    Grammar,
    Indentation,
    LexicalMode,
    Pattern,
    Reference,
    Rule,
    Sequence,
    SpecialToken,
)
from fsa_compile.grammar.lark_tokens import Token
from fsa_compile.grammar.lexing.terminal_patterns import settle_terminals
from fsa_compile.grammar.lexing.terminal_sizes import sizes_of
from fsa_compile.grammar.names import check_names, enumeration, suggestion
from fsa_compile.grammar.source import GrammarText, walk
from fsa_compile.grammar.templates import Definition, instantiate
from fsa_compile.limits import CompileLimits

_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|[^\\\[]", re.DOTALL)
"""Of a pattern: an escape, a set of characters, or one character."""
_NEWLINES = ("_NEWLINE", "NEWLINE", "_NL", "NL")


def parse_lark(
    text: str, *, start: str = "start", mode: LexicalMode | None = None, limits: CompileLimits | None = None
) -> Grammar:
    """Reads a grammar.

    Args:
      start: name of the start rule.
      mode: how terminals become text; None is "longest".
      limits: `max_pattern` bounds the text, `max_repeat` counts, `max_rules` the number of rules.

    Raises:
      GrammarSyntaxError, UnsupportedGrammarError: with line and column.
    """
    if mode not in (None, "longest", "lark", "characters"):
        raise ConstraintError(f"there is no lexical mode {mode!r}", fix='Use "longest", "lark" or "characters".')
    source = GrammarText(text, limits)
    return _Parser(source, sections_of(source)).parse(start, mode or "longest")


class _Parser(ExpressionReader):
    """Reads a section of a grammar's text: the grammar itself, or a module that it imports.

    Args:
      sections: words of all sections, by name.
      within: the modules that import one another down to this one; none: the grammar itself.
    """

    def __init__(self, source: GrammarText, sections: Mapping[str, list[Token]], within: tuple[str, ...] = ()) -> None:
        super().__init__(source.text, source.limits, sections[within[-1] if within else ""])
        self.sections, self.within = sections, within
        self.modules: dict[tuple[str, str], dict[str, tuple[Token, Token]]] = {}
        self.definitions: dict[str, Definition] = {}
        self.imported: dict[str, str] = {}
        self.ignored: list[Expression] = []
        self.statements: list[tuple[str, Definition]] = []
        self.declared: dict[str, str] = {}
        self.indent: tuple[int, ...] = ()
        self.newline: str | None = None
        self.called: dict[str, list[tuple[str, Token]]] = {"%call": [], "%one_line": []}
        self.captures: dict[str, str] = {}

    def read(self) -> None:
        """Reads the section and the modules that it imports."""
        while self.peek.kind != "end":
            if not self.taken("line end"):
                self.statement()
        for (module, prefix), names in self.modules.items():
            self.take_module(module, prefix, names)
        for directive, definition in self.statements:
            self.define(directive, definition)
        self.newline = next((name for name in _NEWLINES if name in self.definitions), self.newline)

    def parse(self, start: str, mode: LexicalMode) -> Grammar:
        self.read()
        rules = instantiate(self, self.definitions)
        self.check_start(start)
        check_names(self, rules, start, self.ignored)
        self.check_ignored(mode)
        if mode == "lark":
            self.check_joined(rules)
        settled, ignore = settle_terminals(self, rules, tuple(self.ignored), lazy=mode != "characters", exact=mode == "lark")
        indentation = self.indentation(mode)
        return Grammar(
            rules=settled, start=start, ignore=ignore, mode=mode, text=self.text, indentation=indentation,
            captures=tuple(self.captures.items()), called=self.calls("%call") + self.calls("%one_line"),
            one_line=self.calls("%one_line"), sizes=sizes_of(rules, self.text, self.limits),
        )  # fmt: skip

    def calls(self, directive: str) -> tuple[str, ...]:
        """The rules named by `%call` or `%one_line`."""
        for name, token in self.called[directive]:
            definition = self.definitions.get(name)
            if definition is None or definition.terminal or definition.parameters:
                fix = f"Name rules of this grammar.{suggestion(name, self.definitions)}"
                self.syntax(f"{directive} names {name}, which is no rule", token.start, token.end, fix=fix)
        return tuple(name for name, _ in self.called[directive])

    # Statements

    def statement(self) -> None:
        token = self.peek
        if token.kind != "directive":
            self.statements.append(("", self.definition()))
        elif (name := self.spelled(token)) in ("%override", "%extend"):
            self.at += 1
            self.statements.append((name, self.definition()))
        elif name == "%ignore":
            self.at += 1
            ignored = self.alternatives()
            self.ignored += ignored.branches if isinstance(ignored, Choice) else [ignored]
        elif name == "%import":
            self.at += 1
            self.imports(token)
        elif name == "%declare":
            self.at += 1
            self.declares(token)
        elif name == "%indent":
            self.at += 1
            self.indent = tuple(int(self.spelled(self.expect("number", "after %indent"))) for _ in range(2))
        elif name in self.called:
            self.at += 1
            rule: Token | None = self.expect("name", f"after {name}")
            while rule:
                self.called[name].append((self.spelled(rule), rule))
                rule = self.taken("name")
        else:
            self.unknown_directive(token)
        if not self.taken("line end") and self.peek.kind != "end":
            self.unexpected("a line end is expected here")

    def declares(self, statement: Token) -> None:
        """`%declare _INDENT _DEDENT`: terminals of which no text is one."""
        names = list[Token]()
        while token := self.taken("name"):
            names.append(token)
        kinds = {self.spelled(token).strip("_"): self.spelled(token) for token in names}
        if set(kinds) != {"INDENT", "DEDENT"}:
            fix = "Define it with a pattern; a token of the vocabulary that is no text is written <name> in a rule."
            what = "a terminal without a pattern cannot be generated, but for %declare _INDENT _DEDENT"
            self.unsupported(what, statement.start, self.last_end, fix=fix)
        self.declared = kinds
        for token in names:
            body = Pattern(rf"[^\s\S]{self.spelled(token)}", token.start, token.end)
            self.define("", Definition(self.spelled(token), (), body, True, 0, token.start, token.end))

    def indentation(self, mode: LexicalMode) -> Indentation | None:
        """Blocks by indentation, if the grammar declares them."""
        if not self.declared:
            for _, token in self.called["%one_line"]:
                fix = "Leave it out: without blocks, newlines are ignored where %ignore says so."
                self.syntax("%one_line needs %declare _INDENT _DEDENT", token.start, token.end, fix=fix)
            return None
        if self.newline is None or mode == "characters":
            at = self.definitions[self.declared["INDENT"]]
            what = 'indentation needs mode="longest"' if self.newline else "indentation needs a terminal for the ends of lines"
            fix = "Leave mode out." if self.newline else r"Define _NEWLINE: /(\r?\n[\t ]*)+/."
            self.unsupported(what, at.start, at.end, fix=fix)
        unit, levels = self.indent or (4, 10)
        if not (1 <= unit <= 16 and 1 <= levels <= 32):
            fix = "Write %indent 4 10: spaces for each block, 1 to 16, and the most open blocks, 1 to 32."
            self.syntax("%indent has numbers out of bounds", 0, fix=fix)
        return Indentation(self.newline, self.declared["INDENT"], self.declared["DEDENT"], unit, levels)

    def definition(self) -> Definition:
        marks = []
        while mark := self.taken("?", "!"):
            marks.append(mark)
        token = self.taken("name") or self.unexpected("a rule, a terminal or a %directive is expected here")
        name, terminal = self.spelled(token), self.is_terminal(token)
        if marks and terminal:
            self.syntax(f"terminal {name} is marked {self.spelled(marks[0])}", marks[0].start, fix="Only rules take ? and !.")
        parameters = self.parameters(token) if self.peek.kind == "{" else ()
        priority = self.priority() if self.taken(".") else 0
        options = self.options(token, terminal or bool(parameters)) if self.peek.kind == "[" else []
        self.expect(":", f"after the name {name}")
        body = self.alternatives()
        if options:
            body, terminals, capture = bounded(self, name, body, options)
            self.statements += [("", made) for made in terminals]
            if capture:
                self.captures[name] = capture
        return Definition(name, parameters, body, terminal, priority if terminal else 0, token.start, token.end)

    def options(self, name: Token, refused: bool) -> list[Option]:
        """`[capture, max_chars=80]` behind a rule's name."""
        opening, out = self.expect("[", "here"), list[Option]()
        if refused:
            fix = "Give them to a rule without parameters that uses it."
            self.unsupported("terminals and templates take no options", name.start, name.end, fix=fix)
        while not out or self.taken(","):
            option = self.expect("name", "as an option of a rule")
            value: int | float | str | None = None
            if self.taken("="):
                given = self.taken("number", "string") or self.unexpected("a number or a text is expected after =")
                value = int(self.spelled(given)) if given.kind == "number" else self.decoded(given, flags_allowed=False)
                if given.kind == "number" and self.taken("."):
                    fraction = self.spelled(self.expect("number", "behind the decimal point"))
                    value = float(f"{value}.{fraction}") if fraction.isdigit() else math.nan
            out.append(Option(self.spelled(option), value, option.start, self.last_end))
        if not self.taken("]"):
            self.syntax("these options are never closed", opening.start, fix="Add the missing ].")
        return out

    def parameters(self, template: Token) -> tuple[str, ...]:
        if self.is_terminal(template):
            fix = "Make it a rule (lower case)."
            self.unsupported("terminals cannot be templates", template.start, template.end, fix=fix)
        self.at += 1
        names = list[str]()
        while not names or self.taken(","):
            token = self.expect("name", "as a template's parameter")
            name = self.spelled(token)
            if self.is_terminal(token) or name in names:
                what = f"parameter {name} is {'there twice' if name in names else 'in upper case'}"
                self.syntax(what, token.start, token.end, fix="Parameters are different names in lower case.")
            names.append(name)
        self.expect("}", "after a template's parameters")
        return tuple(names)

    def priority(self) -> int:
        token = self.expect("number", "after the dot, as a priority,")
        if token.end - token.start > 9:
            self.syntax("a priority is too large", token.start, token.end, fix="Use small whole numbers.")
        return int(self.spelled(token))

    def imports(self, statement: Token) -> None:
        """`%import common.NAME`, `%import .module.name -> other`, `%import module (A, b)`."""
        relative = self.taken(".")
        path = [self.expect("name", "after %import")]
        while self.taken("."):
            if self.peek.kind == "(":
                break
            path.append(self.expect("name", "after the dot"))
        if self.peek.kind == "(":
            module, names = path, self.import_list()
        else:
            module, names = path[:-1], path[-1:]
        alias = self.expect("name", "after ->") if len(names) == 1 and self.taken("->") else None
        parts = [self.spelled(part) for part in module]
        section = ".".join([*(self.within[-1].split(".")[:-1] if relative and self.within else []), *parts])
        if parts and section in self.sections:
            wanted = self.modules.setdefault((section, "__".join(parts)), {})
            wanted.update({self.spelled(name): (name, alias or name) for name in names})
        elif relative or parts != ["common"]:
            self.refuse_module(path, names, section)
        else:
            for name in names:
                self.import_common(name, alias or name, statement.start, self.last_end)

    def take_module(self, module: str, prefix: str, names: Mapping[str, tuple[Token, Token]]) -> None:
        """Defines what is imported of a module, and all that it needs under names of its own."""
        first = next(iter(names.values()))[0]
        if module in self.within:
            ring = " and ".join(dict.fromkeys((self.within[-1], module)))
            what = f"{ring} import each other" if module != self.within[-1] else f"{module} imports itself"
            self.syntax(what, first.start, first.end, fix="Move what both need to a third module.")
        inner = _Parser(self, self.sections, (*self.within, module))
        inner.read()
        for name, (token, alias) in names.items():
            if name not in inner.definitions:
                fix = f"It has {enumeration(list(inner.definitions))}.{suggestion(name, inner.definitions)}"
                self.syntax(f"the module {module} has no {name}", token.start, token.end, fix=fix)
            if self.is_terminal(alias) != inner.definitions[name].terminal:
                kind, case = ("terminal", "upper") if inner.definitions[name].terminal else ("rule", "lower")
                what = f"{self.spelled(alias)!r} stands for a {kind}"
                self.syntax(what, alias.start, alias.end, fix=f"Write its name in {case} case.")
        needed = needed_for(self, inner.definitions, names)
        rename = mangled(prefix, {name: self.spelled(alias) for name, (_, alias) in names.items()})
        for definition in needed:
            self.define("", renamed(definition, rename))
        known = {definition.name for definition in needed}
        self.captures.update({rename(name): capture for name, capture in inner.captures.items() if name in known})
        for directive, called in inner.called.items():
            self.called[directive] += [(rename(name), token) for name, token in called if name in known]
        if known & set(inner.declared.values()):
            self.take_blocks(inner, known, rename, first)

    def take_blocks(self, inner: _Parser, known: set[str], rename: Renaming, at: Token) -> None:
        """Takes the blocks by indentation of a module."""
        if self.declared or not {*inner.declared.values(), inner.newline} <= known:
            what = "two modules have blocks by indentation" if self.declared else "blocks are imported without ends of lines"
            self.unsupported(what, at.start, at.end, fix="Write %declare _INDENT _DEDENT and the rules with blocks in one file.")
        self.declared = {kind: rename(name) for kind, name in inner.declared.items()}
        self.newline, self.indent = rename(str(inner.newline)), self.indent or inner.indent

    def import_list(self) -> list[Token]:
        self.at += 1
        names = [self.expect("name", "in a list of imports")]
        while self.taken(","):
            names.append(self.expect("name", "in a list of imports"))
        self.expect(")", "after a list of imports")
        return names

    def refuse_module(self, path: list[Token], names: list[Token], module: str) -> NoReturn:
        shown = self.text[path[0].start : path[-1].end]
        if not module:
            what, fix = f"nothing is imported from {shown}", f"Write %import {shown}.NAME."
        else:
            what = f"cannot import {self.spelled(names[0])}: there is no module {module} behind this grammar"
            fix = f"Read its file by read_grammar(path), or write %module {module} below the grammar, and the module's text."
        self.unsupported(what, path[0].start, path[-1].end, fix=fix)

    def import_common(self, name: Token, alias: Token, start: int, end: int) -> None:
        source, target = self.spelled(name), self.spelled(alias)
        if source not in COMMON_TERMINALS:
            public = [known for known in COMMON_TERMINALS if not known.startswith("_")]
            fix = f"There are {', '.join(public)}.{suggestion(source, COMMON_TERMINALS)}"
            self.syntax(f"common has no terminal {source}", name.start, name.end, fix=fix)
        if not self.is_terminal(alias):
            self.syntax(f"{target!r} stands for a terminal", alias.start, alias.end, fix=f"Write {target.upper()}.")
        if self.imported.setdefault(target, source) != source:
            self.syntax(f"{target} is imported twice, as different terminals", alias.start, alias.end, fix="Rename one with ->.")
        pattern = Pattern(COMMON_TERMINALS[source], start, end)
        self.definitions[target] = Definition(target, (), pattern, True, 0, start, end)

    def define(self, directive: str, definition: Definition) -> None:
        name, old = definition.name, self.definitions.get(definition.name)
        place = definition.start, definition.end
        if not directive and old:
            fix = "Join them with |, rename one, or write %override or %extend before the second."
            self.syntax(f"{name} is defined a second time (first in line {self.line_of(old.start)})", *place, fix=fix)
        if directive and not old:
            what = f"there is no {name} to {directive[1:]} above or among the imports"
            self.syntax(what, *place, fix=f"Remove {directive}.{suggestion(name, self.definitions)}")
        if directive == "%extend" and old:
            if old.parameters != definition.parameters:
                self.syntax(f"{name} has other parameters in line {self.line_of(old.start)}", *place, fix="Use the same ones.")
            body = Choice((old.body, definition.body), definition.body.start, definition.body.end)
            definition = Definition(name, old.parameters, body, old.terminal, old.priority, old.start, old.end)
        if name not in self.definitions and len(self.definitions) >= self.limits.max_rules:
            raise LimitError("max_rules", self.limits.max_rules, "This grammar")
        self.definitions[name] = definition

    # Checks

    def check_start(self, start: str) -> None:
        definition = self.definitions.get(start) if isinstance(start, str) else None
        if definition and (definition.parameters or definition.terminal):
            what = f"the start rule {start} is a {'terminal' if definition.terminal else 'template'}"
            fix = f"Write a rule that uses it, such as start: {start}{'' if definition.terminal else '{...}'}"
            self.syntax(what, definition.start, definition.end, fix=fix)

    def check_ignored(self, mode: LexicalMode) -> None:
        for expression in self.ignored:
            if mode == "characters":
                fix = 'Use mode "longest", or write the white space into the rules.'
                what = '%ignore has no meaning in mode "characters", where nothing stands between terminals'
                self.unsupported(what, expression.start, expression.end, fix=fix)
            for node in walk(expression):
                if not self.may_be_ignored(node):
                    fix = "Give a terminal (upper case), a string or a pattern."
                    self.unsupported("only terminals can be ignored", node.start, node.end, fix=fix)

    def check_joined(self, rules: Mapping[str, Rule]) -> None:
        """Refuses what Lark joins without brackets: `/a|b/ "c"` is `a|bc` to it."""
        sequences = [node for rule in rules.values() if rule.terminal for node in walk(rule.body) if isinstance(node, Sequence)]
        for node in sequences:
            for part in node.parts if len(node.parts) > 1 else ():
                meant: Expression = part
                while isinstance(meant, Reference):
                    meant = rules[meant.name].body
                if isinstance(meant, Pattern) and _has_branches(meant.pattern):
                    what = "Lark joins the alternatives of this pattern with what stands beside it"
                    self.unsupported(what, part.start, part.end, fix="Put them in brackets: /(a|b)/.")

    def may_be_ignored(self, node: Expression) -> bool:
        if isinstance(node, Reference):
            used = self.definitions[node.name]
            return used.terminal and not any(isinstance(part, SpecialToken | FreeText | Chunks) for part in walk(used.body))
        return not isinstance(node, SpecialToken | FreeText | Chunks)


def _has_branches(pattern: str) -> bool:
    """Whether a pattern has alternatives that no brackets hold."""
    depth = 0
    for part in _PARTS.findall(pattern):
        depth += (part == "(") - (part == ")")
        if part == "|" and not depth:
            return True
    return False
