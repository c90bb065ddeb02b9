r"""Lark's grammar language to a `Grammar`.

Understood: rules and terminals with `|`, groups, `[...]`, `* + ? ~n ~n..m`, strings, character ranges, regular expressions with
flags, priorities of terminals, `%ignore`, `%import common`, `%override`, `%extend`, templates, comments. What only shapes Lark's
trees (`?rule`, `!rule`, `-> alias`, priorities of rules) is accepted and means nothing. Ours are the atoms `<name>`, `<[id]>`,
`%token("name")` and `%until("text")` of `lark_tokens`, and the empty string `""`.

Departures from Lark, each for the sake of one clear meaning:

* An escape that Lark would leave as a backslash and a letter (`"\d"`) is an error, as are a mixed-case word and flags of a range.
* Escapes in a regular expression mean what they mean to `re`. Lark decodes some of them before, so that its `/\x2b/` is an
  operator.
* Terminals are matched as long as can be; `terminal_patterns` says what lazy loops and conditions mean then. The order of
  alternatives within a terminal means nothing.
* `%declare` is for indentation only: `%declare _INDENT _DEDENT`, as Lark's `Indenter` has them. The newline terminal is called
  `_NEWLINE` or `_NL`. Each block is indented by four spaces and at most ten are open, unless `%indent 2 6` says otherwise.
* `%call name` gives a rule a frame of its own on the stack in every place; the language stays as it is.
* Imports from files are refused.

Source: https://lark-parser.readthedocs.io, "Grammar Reference".
"""

from __future__ import annotations

import difflib
import re
from typing import NoReturn

from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.grammar.common_terminals import COMMON_TERMINALS
from fsa_compile.grammar.grammar_tree import (
    Choice,
    Expression,
    FreeText,
    Grammar,
    Indentation,
    LexicalMode,
    Literal,
    Pattern,
    Reference,
    Repeat,
    SpecialToken,
)
from fsa_compile.grammar.lark_tokens import Kind, Token, tokenize
from fsa_compile.grammar.names import check_names, suggestion
from fsa_compile.grammar.source import MAX_DEPTH, GrammarText, choice, class_char, sequence, walk
from fsa_compile.grammar.templates import Definition, TemplateUse, instantiate
from fsa_compile.grammar.terminal_patterns import settle_terminals
from fsa_compile.limits import CompileLimits

_RULE_NAME = re.compile(r"_?[a-z][_a-z0-9]*").fullmatch
_TERMINAL_NAME = re.compile(r"_?[A-Z][_A-Z0-9]*").fullmatch
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "\\": "\\", '"': '"'}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_DIRECTIVES = ("%ignore", "%import", "%declare", "%indent", "%call", "%override", "%extend")
_NEWLINES = ("_NEWLINE", "NEWLINE", "_NL", "NL")
_ATOMS = ("%until", "%token")
_COUNTS: dict[Kind, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def parse_lark(
    text: str, *, start: str = "start", mode: LexicalMode | None = None, limits: CompileLimits | None = None
) -> Grammar:
    """Reads a grammar.

    Args:
      text: the grammar.
      start: name of the start rule.
      mode: how terminals become text; None is "longest".
      limits: `max_pattern` bounds the text, `max_repeat` counts, `max_rules` the number of rules.

    Raises:
      GrammarSyntaxError, UnsupportedGrammarError: with line and column.
      LimitError: a limit is exceeded.
    """
    if mode not in (None, "longest", "characters"):
        raise ConstraintError(f"there is no lexical mode {mode!r}", fix='Use "longest" or "characters".')
    return _Parser(text, limits).parse(start, mode or "longest")


class _Parser(GrammarText):
    def __init__(self, text: str, limits: CompileLimits | None) -> None:
        super().__init__(text, limits)
        self.tokens = tokenize(self)
        self.at = 0
        self.open: list[Token] = []
        self.definitions: dict[str, Definition] = {}
        self.imported: dict[str, str] = {}
        self.ignored: list[Expression] = []
        self.statements: list[tuple[str, Definition]] = []
        self.declared: dict[str, str] = {}
        self.indent: tuple[int, ...] = ()
        self.called = list[Token]()

    def parse(self, start: str, mode: LexicalMode) -> Grammar:
        while self.peek.kind != "end":
            if not self.taken("line end"):
                self.statement()
        for directive, definition in self.statements:
            self.define(directive, definition)
        rules = instantiate(self, self.definitions)
        self.check_start(start)
        check_names(self, rules, start, self.ignored)
        self.check_ignored(mode)
        settled, ignore = settle_terminals(self, rules, tuple(self.ignored), lazy=mode == "longest")
        indentation = self.indentation(mode)
        return Grammar(
            rules=settled, start=start, ignore=ignore, mode=mode, text=self.text, indentation=indentation, called=self.calls()
        )

    def calls(self) -> tuple[str, ...]:
        """The rules named by `%call`."""
        for token in self.called:
            definition = self.definitions.get(self.spelled(token))
            if definition is None or definition.terminal or definition.parameters:
                fix = f"Name rules of this grammar.{suggestion(self.spelled(token), self.definitions)}"
                self.syntax(f"%call names {self.spelled(token)}, which is no rule", token.start, token.end, fix=fix)
        return tuple(map(self.spelled, self.called))

    # Tokens

    @property
    def peek(self) -> Token:
        return self.tokens[self.at]

    def taken(self, *kinds: Kind) -> Token | None:
        """The next token if it is of one of the kinds; moves past it."""
        token = self.tokens[self.at]
        if token.kind not in kinds or token.kind == "end":
            return None
        self.at += 1
        return token

    def expect(self, kind: Kind, where: str) -> Token:
        return self.taken(kind) or self.unexpected(f"{kind} is expected {where}")

    def spelled(self, token: Token) -> str:
        return self.text[token.start : token.end]

    @property
    def last_end(self) -> int:
        return self.tokens[self.at - 1].end if self.at else 0

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
        elif name == "%call":
            self.at += 1
            self.called.append(self.expect("name", "after %call"))
            while more := self.taken("name"):
                self.called.append(more)
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
            return None
        newline = next((name for name in _NEWLINES if name in self.definitions), None)
        if newline is None or mode != "longest":
            at = self.definitions[self.declared["INDENT"]]
            what = 'indentation needs mode="longest"' if newline else "indentation needs a terminal for the ends of lines"
            fix = "Leave mode out." if newline else r"Define _NEWLINE: /(\r?\n[\t ]*)+/."
            self.unsupported(what, at.start, at.end, fix=fix)
        unit, levels = self.indent or (4, 10)
        if not (1 <= unit <= 16 and 1 <= levels <= 32):
            fix = "Write %indent 4 10: spaces for each block, 1 to 16, and the most open blocks, 1 to 32."
            self.syntax("%indent has numbers out of bounds", 0, fix=fix)
        return Indentation(newline, self.declared["INDENT"], self.declared["DEDENT"], unit, levels)

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
        self.expect(":", f"after the name {name}")
        body = self.alternatives()
        return Definition(name, parameters, body, terminal, priority if terminal else 0, token.start, token.end)

    def is_terminal(self, token: Token) -> bool:
        """Whether a name is a terminal's; refuses those that are neither a rule's nor a terminal's."""
        name = self.spelled(token)
        if _TERMINAL_NAME(name):
            return True
        if not _RULE_NAME(name):
            fix = "Rules are lower case (expr), terminals upper case (NUMBER); one _ may stand in front."
            self.syntax(f"{name!r} names neither a rule nor a terminal", token.start, token.end, fix=fix)
        return False

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
        """`%import common.NAME`, `%import common.NAME -> OTHER`, `%import common (A, B)`."""
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
        if relative or [self.spelled(part) for part in module] != ["common"]:
            self.refuse_module(path, bare=not module)
        alias = self.expect("name", "after ->") if len(names) == 1 and self.taken("->") else None
        for name in names:
            self.import_common(name, alias or name, statement.start, self.last_end)

    def import_list(self) -> list[Token]:
        self.at += 1
        names = [self.expect("name", "in a list of imports")]
        while self.taken(","):
            names.append(self.expect("name", "in a list of imports"))
        self.expect(")", "after a list of imports")
        return names

    def refuse_module(self, path: list[Token], bare: bool) -> NoReturn:
        shown = self.text[path[0].start : path[-1].end]
        fix = "Only %import common.NAME is known; copy other definitions into the grammar."
        what = f"nothing is imported from {shown}" if bare else f"cannot import {shown}: the only module is common"
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

    # Expressions

    def alternatives(self) -> Expression:
        begin = self.peek.start
        branches = [self.branch()]
        while self.taken("|"):
            branches.append(self.branch())
        return choice(branches, begin, max(begin, self.last_end))

    def branch(self) -> Expression:
        begin, parts = self.peek.start, list[Expression]()
        while self.peek.kind not in ("|", "->", ")", "]", "line end", "end"):
            parts.append(self.repeated())
        end = max(begin, self.last_end)
        if self.taken("->"):
            self.is_terminal(self.expect("name", "after ->"))
        return sequence(parts, begin, end)

    def repeated(self) -> Expression:
        part = self.atom()
        operator = self.taken("?", "*", "+", "~")
        if not operator:
            return part
        if operator.kind == "~":
            part = self.tilde(part, operator)
        else:
            part = self.counted(part, *_COUNTS[operator.kind], operator.start, operator.end)
        if second := self.taken("?", "*", "+", "~"):
            fix = "Put the inner repetition in parentheses; lazy loops exist in /regular expressions/ only."
            self.syntax("two repetitions follow each other", operator.start, second.end, fix=fix)
        return part

    def tilde(self, part: Expression, operator: Token) -> Repeat:
        low = high = self.repeat_count()
        if self.taken(".."):
            if self.peek.kind != "number":
                fix = f"For {low} or more write the item ~{low} and once more with *."
                self.syntax("a repetition ~n..m has no end", operator.start, self.last_end, fix=fix)
            high = self.repeat_count()
        return self.counted(part, low, high, operator.start, self.last_end)

    def repeat_count(self) -> int:
        token = self.expect("number", "after ~, as in ~3 or ~2..5,")
        if self.text[token.start] == "-":
            self.syntax("a repetition count is negative", token.start, token.end, fix="Counts begin at 0.")
        return self.number(token.start + (self.text[token.start] == "+"), token.end, "The repetition count")

    def atom(self) -> Expression:
        token = self.peek
        if self.taken("("):
            return self.group(token)
        if self.taken("["):
            body = self.group(token)
            return Repeat(body, 0, 1, token.start, self.last_end)
        return self.value()

    def group(self, opening: Token) -> Expression:
        self.enter(opening)
        body = self.alternatives()
        self.expect(_CLOSING[opening.kind], "here")
        self.open.pop()
        return body

    def enter(self, opening: Token) -> None:
        self.open.append(opening)
        if len(self.open) > MAX_DEPTH:
            self.too_deep(opening.start)

    def value(self) -> Expression:
        """An atom that is no group: what may be a template's argument."""
        token = self.peek
        if self.taken("name"):
            self.is_terminal(token)
            return self.template_use(token) if self.peek.kind == "{" else Reference(self.spelled(token), token.start, token.end)
        if self.taken("string"):
            return self.range_from(token) if self.peek.kind == ".." else self.literal(token)
        if self.taken("regex"):
            return self.regex(token)
        if self.taken("special"):
            return self.special_token(token.start)
        if token.kind == "directive" and self.spelled(token) in _ATOMS:
            self.at += 1
            return self.call(token)
        self.unexpected("a name, a string, a pattern or a group is expected here")

    def template_use(self, token: Token) -> Expression:
        opening = self.expect("{", "here")
        if self.peek.kind in ("number", ","):
            fix = "Write ~2..5 for a repetition; braces hold the arguments of templates."
            self.syntax("a number is no argument", opening.start, self.peek.end, fix=fix)
        self.enter(opening)
        arguments = [self.value()]
        while self.taken(","):
            arguments.append(self.value())
        self.expect("}", "after a template's arguments (names and texts; give a longer expression a rule of its own)")
        self.open.pop()
        return TemplateUse(self.spelled(token), token.start, self.last_end, tuple(arguments))

    def call(self, token: Token) -> Expression:
        """`%until("a", "b")` or `%token("name")`."""
        name, texts = self.spelled(token), list[str]()
        self.enter(self.expect("(", f"after {name}"))
        while not texts or self.taken(","):
            text = self.expect("string", f"in {name}")
            texts.append(self.decoded(text, flags_allowed=False))
        self.expect(")", f"after the texts of {name}")
        self.open.pop()
        if "" in texts or (name == "%token" and len(texts) > 1):
            what = "%token takes one name" if name == "%token" else "%until needs texts that are not empty"
            self.syntax(what, token.start, self.last_end, fix="Names and texts are strings in double quotes.")
        if name == "%token":
            return SpecialToken(texts[0], token.start, self.last_end)
        return FreeText(tuple(texts), token.start, self.last_end)

    def literal(self, token: Token) -> Expression:
        text = self.decoded(token)
        if not text:
            return sequence([], token.start, token.end)
        return Literal(text, token.start, token.end, self.text[token.end - 1] == "i")

    def decoded(self, token: Token, flags_allowed: bool = True) -> str:
        """The text that a string stands for."""
        begin, end = token.start + 1, self.text.rindex('"', token.start, token.end)
        if end + 1 < token.end and not flags_allowed:
            self.syntax("a flag has no meaning here", end + 1, token.end, fix="Remove it.")
        out, at = list[str](), begin
        while at < end:
            stop = self.text.find("\\", at, end)
            stop = end if stop < 0 else stop
            out.append(self.text[at:stop])
            at = stop
            if at < end:
                character, at = self.escape(at)
                out.append(character)
        return "".join(out)

    def escape(self, at: int) -> tuple[str, int]:
        letter = self.text[at + 1]
        if letter in _HEX_ESCAPES:
            return self.code_point(at, at + 2, _HEX_ESCAPES[letter])
        if letter not in _ESCAPES:
            fix = (
                rf"Write \\{letter} for a backslash and the character, {letter} or \x{ord(letter) & 255:02x} for "
                r"the character alone; known are \n \t \r \f \\ \" \xHH \uHHHH \UHHHHHHHH. Patterns stand between slashes."
            )
            self.syntax(f"unknown escape \\{letter} in a string", at, at + 2, fix=fix)
        return _ESCAPES[letter], at + 2

    def range_from(self, first: Token) -> Pattern:
        self.at += 1
        last = self.expect("string", "after ..")
        low, high = (self.decoded(token, flags_allowed=False) for token in (first, last))
        if len(low) != 1 or len(high) != 1 or high < low:
            fix = 'Ranges are written "a".."z": two single characters, the smaller one first.'
            self.syntax("this is no range of characters", first.start, last.end, fix=fix)
        return Pattern(f"[{class_char(low)}-{class_char(high)}]", first.start, last.end)

    def regex(self, token: Token) -> Pattern:
        end = self.text.rindex("/", token.start, token.end)
        given = self.text[end + 1 : token.end]
        if "l" in given:
            self.unsupported("the flag l depends on the machine's settings", end + 1, token.end, fix="Remove it.")
        flags = "".join(flag for flag in "imsx" if flag in given)
        self.pattern(token.start + 1, end, flags)
        return Pattern(self.text[token.start + 1 : end], token.start, token.end, flags)

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

    def may_be_ignored(self, node: Expression) -> bool:
        if isinstance(node, Reference):
            used = self.definitions[node.name]
            return used.terminal and not any(isinstance(part, SpecialToken | FreeText) for part in walk(used.body))
        return not isinstance(node, SpecialToken | FreeText)

    def unknown_directive(self, token: Token) -> NoReturn:
        name = self.spelled(token)
        close = difflib.get_close_matches(name, _DIRECTIVES, n=1)
        fix = f"Known are {', '.join(_DIRECTIVES)}; inside rules {', '.join(_ATOMS)}."
        self.syntax(
            f"unknown directive {name}", token.start, token.end, fix=fix + (f" Did you mean {close[0]}?" if close else "")
        )

    def unexpected(self, what: str) -> NoReturn:
        """Refuses the next token."""
        token = self.peek
        if self.open and token.kind in (":", "end", "directive", "line end", "number"):
            opening = self.open[-1]
            self.syntax(f"this {opening.kind} is never closed", opening.start, fix=f"Add the missing {_CLOSING[opening.kind]}.")
        if token.kind == "directive" and self.spelled(token) not in _DIRECTIVES + _ATOMS:
            self.unknown_directive(token)
        fix = self.advice(token)
        shown = {"line end": "the line ends", "end": "the grammar ends"}.get(token.kind, f"there is {self.spelled(token)[:30]}")
        self.syntax(f"{what}, but {shown}", token.start, max(token.end, token.start + 1), fix=fix)

    def advice(self, token: Token) -> str:
        before = self.tokens[self.at - 1].kind if self.at else ""
        if token.kind in ("*", "+", "?", "~"):
            return "Repetitions stand behind what they repeat."
        if token.kind in (")", "]", "}"):
            return f"Remove the {token.kind}, or add what opens it."
        if before in ("line end", "name", ":"):
            return "Definitions are written name: expression, begun on one line; further lines begin with |."
        if token.kind == ":":
            return "A definition begins on a line of its own."
        return "Definitions are written name: expression, with | between alternatives."
