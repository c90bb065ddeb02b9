"""Extension groups in pattern text: `(?P<NAME>argument|argument)` to a syntax tree. What they mean is said in `languages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from fsa_compile.errors import ConstraintError
from fsa_compile.languages import groups as languages
from fsa_compile.languages.embedding import Embedded, PatternWithPlaces, condition_in, place
from fsa_compile.languages.language import Extension, Language
from fsa_compile.languages.pattern_language import from_tree
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns.python_syntax import Parser, parse
from fsa_compile.patterns.regex_tree import Chars, Concat, Node, Text

_WITHOUT_ARGUMENT: dict[str, Callable[..., Language]] = {
    "QUOTED_TEXT": languages.quoted_text,
    "UNQUOTED_TEXT": languages.unquoted_text,
    "TEXT_TOKEN": languages.text_token,
    "PARAGRAPH_TOKEN": languages.paragraph_token,
}
_OF_TEXTS: dict[str, Callable[..., Language]] = {
    "TEXT_UNTIL": languages.text_until,
    "SUBSTRING_OF": languages.substring_of,
    "IMAGE": languages.special_token,
}
_OF_PATTERNS = ("DELIMITED_LIST", "DELIMITED_SUBSEQUENCE_OF")
_USAGE = {
    "TEXT_UNTIL": r"Write the stop phrases: (?P<TEXT_UNTIL>\n\n|END).",
    "SUBSTRING_OF": "Write the text, (?P<SUBSTRING_OF>some text), or pass extensions={'NAME': substring_of(text)}.",
    "IMAGE": "Name the special tokens, (?P<IMAGE><image>), or pass extensions={'IMAGE': image([...])}.",
    "DELIMITED_LIST": "Write the element, a bar and the delimiter: (?P<DELIMITED_LIST>[a-z]+|, ).",
    "DELIMITED_SUBSEQUENCE_OF": "Write the elements and last the delimiter: (?P<DELIMITED_SUBSEQUENCE_OF>red|green|blue|, ).",
}

EXTENSION_NAMES = frozenset({*_WITHOUT_ARGUMENT, *_OF_TEXTS, *_OF_PATTERNS})
"""Names of groups that stand for languages of their own in every pattern."""


class ExtensionGroups:
    """Reads the extension groups of one pattern.

    Args:
      given: the user's languages, or functions that return one, by name; they take precedence.
      embeds: whether languages that are no patterns may be placed in the tree; else they are refused.

    Raises:
      ConstraintError: a name that cannot be a group's, or a value that is neither.
    """

    def __init__(self, given: Mapping[str, Extension] | None = None, *, embeds: bool = True) -> None:
        self._given, self._embeds = dict(given or {}), embeds
        self.embedded: list[Embedded] = []
        for name, value in self._given.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ConstraintError(f"{name!r} is not a group name", fix="Use letters, digits and _.")
            if not isinstance(value, Language) and not callable(value):
                raise ConstraintError(
                    f"the extension {name} is a {type(value).__name__}, not a language",
                    fix="Give regex(...), choices([...]), substring_of(text), or a function that returns one.",
                )

    def knows(self, name: str) -> bool:
        """Whether groups of this name are extensions."""
        return name in self._given or name in EXTENSION_NAMES

    def node(self, parser: Parser, name: str, body: list[Node] | None, start: int, end: int) -> Node:
        """The tree of a group (see `python_syntax.GroupReader`).

        Raises:
          RegexSyntaxError: arguments missing, too many, or of the wrong kind.
          UnsupportedPatternError: the group cannot stand here.
        """
        given = self._given.get(name) or _WITHOUT_ARGUMENT.get(name) or _OF_TEXTS.get(name)
        if given is None:
            return self._of_patterns(parser, name, body, start, end)
        if isinstance(given, Language) or name in _WITHOUT_ARGUMENT:
            if body is not None:
                parser.syntax(f"the extension {name} takes no argument", start, end, fix=f"Write (?P<{name}>).")
            return self._put(parser, given if isinstance(given, Language) else given(), start, end)
        if body is None and name in _USAGE:
            parser.syntax(f"the extension {name} needs an argument", start, end, fix=_USAGE[name])
        _check_parentheses(parser, name, start, end)
        texts = [_plain_text(parser, name, branch) for branch in body or ()]
        try:
            language = given(*texts)
        except TypeError as error:
            parser.syntax(f"the extension {name} does not take {len(texts)} arguments", start, end, fix=f"{error}.")
        except ConstraintError as error:
            parser.syntax(error.what, start, end, fix=error.fix)
        if not isinstance(language, Language):
            what = f"the extension {name} returned a {type(language).__name__}, not a language"
            parser.syntax(what, start, end, fix="Return regex(...), choices([...]) or another language.")
        return self._put(parser, language, start, end)

    def language(self, tree: Node, pattern: str, flags: int) -> Language | None:
        """The language of a pattern whose groups have been read; None when it is an ordinary pattern.

        Raises:
          UnsupportedPatternError: see `PatternWithPlaces`.
        """
        return PatternWithPlaces(tree, self.embedded, pattern, flags, self) if self.embedded else None

    def check(self, pattern: str, flags: int, limits: CompileLimits) -> None:
        """Reads a pattern again, under other limits."""
        parse(pattern, flags, limits, ExtensionGroups(self._given))

    def _of_patterns(self, parser: Parser, name: str, body: list[Node] | None, start: int, end: int) -> Node:
        """DELIMITED_LIST and DELIMITED_SUBSEQUENCE_OF, whose arguments are patterns."""
        many = name == "DELIMITED_SUBSEQUENCE_OF"
        if body is None or len(body) < 2 or (len(body) > 2 and not many):
            what = "at least two arguments" if many else "two arguments"
            parser.syntax(f"the extension {name} needs {what}", start, end, fix=_USAGE[name])
        if not many:
            return languages.list_tree(body[0], body[1], 1, None)
        parts = [self._part(parser, name, branch) for branch in body]
        return self._put(parser, languages.delimited_subsequence_of(parts[:-1], parts[-1]), start, end)

    def _part(self, parser: Parser, name: str, tree: Node) -> Language:
        """The language of an argument."""
        if (condition := condition_in(tree)) is not None:
            parser.unsupported(
                f"an anchor, lookaround or atomic group cannot stand in an argument of {name}",
                condition.start, condition.end, fix="Write the condition out as a pattern.",
            )  # fmt: skip
        source = parser.text[tree.start : tree.end]
        return PatternWithPlaces(tree, self.embedded, source) if self.embedded else from_tree(tree, source)

    def _put(self, parser: Parser, language: Language, start: int, end: int) -> Node:
        """The node that stands for a language."""
        tree = languages.embeddable(language, start, end)
        if tree is not None:
            return tree
        if not self._embeds:
            parser.unsupported(
                "this extension group can stand in regex(...) and compile_regex(...) only", start, end,
                fix="Write the language out as a pattern.",
            )  # fmt: skip
        self.embedded.append(Embedded(language, start, end))
        return place(len(self.embedded) - 1, start, end)


class TreeGroups(ExtensionGroups):
    """Reads extension groups where nothing can be embedded: terminals of grammars, patterns of schemas."""

    def __init__(self) -> None:
        super().__init__(embeds=False)


def parse_with_groups(pattern: str, flags: int = 0, limits: CompileLimits | None = None) -> Node:
    """The syntax tree of a pattern with those extension groups that are patterns themselves; raises what `parse` does."""
    return parse(pattern, flags, limits, TreeGroups())


def _check_parentheses(parser: Parser, name: str, start: int, end: int) -> None:
    """Refuses groups in arguments that are texts: whoever writes a text means its parentheses."""
    for at in parser.plain_groups:
        if start < at < end:
            fix = r"Write \( and \) for parentheses in the text, or leave the group out."
            parser.syntax(f"an argument of {name} is a text, and this is a group", at, at + 1, fix=fix)


def _plain_text(parser: Parser, name: str, node: Node) -> str:
    """The text of an argument that has to be a text."""
    match node:
        case Text():
            return node.text
        case Chars(members=(ascii_, ())) if ascii_.bit_count() == 1:
            return chr(ascii_.bit_length() - 1)
        case Chars(members=(0, ((low, high),))) if low == high:
            return chr(low)
        case Concat():
            return "".join(_plain_text(parser, name, item) for item in node.items)
    return _not_text(parser, name, node)


def _not_text(parser: Parser, name: str, node: Node) -> NoReturn:
    parser.syntax(
        f"an argument of {name} is a pattern, not a text", node.start, node.end,
        fix=r"Escape what means something in patterns (\. for a dot), and switch the flag i off.",
    )  # fmt: skip
