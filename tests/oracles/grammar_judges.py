"""Real parsers as judges of the grammar library: does a text belong to the language that a grammar's comment describes?

Each judge runs a parser that shares nothing with this project (json, ast, expat, Lark) and then takes away what the comment
says is left out, by looking at the parser's result and at the text outside strings.
"""

from __future__ import annotations

import ast
import csv
import io
import itertools
import json
import re
import shutil
import sqlite3
import subprocess
import tempfile
import tokenize
import tomllib
import warnings
from functools import cache
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree
from xml.parsers import expat

_XML_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_JSON_NUMBER = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE][+-]?([0-9]+))?")
_SQLITE_SYNTAX = re.compile(
    r"syntax error|incomplete input|unrecognized token|null character|one statement|no statement|must not|unknown (?:table option|join type)"
)


def is_json(text: str) -> bool:
    """RFC 8259, by Python's parser without its additions."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return not text.startswith("\ufeff")


def is_compact_json(text: str) -> bool:
    """JSON with no white space but single spaces after commas and colons."""
    return is_json(text) and not re.search(r"[\t\n\r]|(?<![,:]) ", _JSON_STRING.sub('""', text))


def is_json_object(text: str) -> bool:
    """JSON objects as the GBNF grammar bounds them."""
    if not is_json(text) or not text.startswith("{") or "\x7f" in text:
        return False
    outside = _JSON_STRING.sub('""', text)
    gaps = re.findall(r"[ \t\n\r]+", outside)
    numbers = [[len(part) for part in n] for n in _JSON_NUMBER.findall(outside)]
    return all(re.fullmatch(r" |\n[ \t]{0,20}", gap) for gap in gaps) and all(
        whole <= 16 and part <= 16 and exponent <= 3 for whole, part, exponent in numbers
    )


def is_csv(text: str) -> bool:
    """What Python's csv module reads without a complaint."""
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        return False
    return True


def is_graphql(text: str) -> bool:
    """Executable documents without descriptions, by graphql-core, whose newest version lets braces be empty."""
    import graphql

    empty = list[graphql.Node]()

    class FindEmpty(graphql.Visitor):
        def enter_selection_set(self, node: graphql.SelectionSetNode, *_: object) -> None:
            empty.extend([] if node.selections else [node])

    try:
        document = graphql.parse(text)
    except graphql.GraphQLSyntaxError:
        return False
    executable = graphql.OperationDefinitionNode, graphql.FragmentDefinitionNode
    if not all(isinstance(node, executable) and not getattr(node, "description", None) for node in document.definitions):
        return False
    graphql.visit(document, FindEmpty())
    return not empty


def is_toml(text: str) -> bool:
    """TOML's syntax by Python's tomllib, whose tables forget their keys meanwhile, so that none is defined twice."""
    tables = tomllib._parser.NestedDict
    with (
        mock.patch.object(tomllib._parser.Flags, "is_", return_value=False),
        mock.patch.object(tables, "get_or_create_nest", side_effect=lambda *_, **__: {}),
        mock.patch.object(tables, "append_nest_to_list"),
    ):
        try:
            tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError):
            return False
    return True


def is_arithmetic(text: str) -> bool:
    """Python's expressions of the kind; names get a letter in front, so that none is a keyword."""
    named = re.sub(r"(?<![0-9a-z_.])([a-z])", r"v\1", text.lstrip(" \t"))
    tree = _python(named)
    if tree is None or not re.fullmatch(r"[a-z0-9 \t+\-*/%().,]*", text) or re.search(r",[ \t]*\)", text):
        return False
    numbers = [t.string for t in _tokens(named) if t.type == tokenize.NUMBER]
    return all(re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?", n) for n in numbers) and _arithmetic(tree, named)


def is_python_value(text: str) -> bool:
    """Literals, names and calls by `ast.parse`, less what the grammar leaves out."""
    text = text.lstrip(" \t")
    tree = _python(text)
    if tree is None or text.startswith(("\n", "\r")) or text.rstrip(" \t").endswith(("\n", "\r")):
        return False
    inside = _python(f"[{text}\n]")
    if not isinstance(inside, ast.List) or [ast.dump(item) for item in inside.elts] != [ast.dump(tree)]:
        return False  # a tuple without parentheses
    return _plain_layout(text) and _Values(text).value(tree)


def is_tagged(text: str) -> bool:
    """XML content with the fixed tags, by expat, in the grammar's spelling of it."""
    try:
        root = ElementTree.fromstring(f"<r>{text}</r>")
    except (ElementTree.ParseError, ValueError):
        return False
    bare = re.sub(r'</?(p|b|i|a|ul|li)>|<br/>|<a href="([^<>&"]|&amp;)*">', "", text)
    entity = r"&(?:amp|lt|gt|quot|apos|#(?:3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6]));"
    if re.search("[<>&]", re.sub(entity, "", bare)):
        return False
    return _well_nested(root, None)


def sqlite_reads(text: str) -> bool:
    """Whether SQLite accepts the syntax; unknown tables, functions and the like are no matter of syntax."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("EXPLAIN " + text)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return not _SQLITE_SYNTAX.search(str(error))
    finally:
        connection.close()
    return True


def is_regex(text: str) -> bool:
    """What `re.compile` takes, warnings aside."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError, ValueError):  # the last for flags that do not go together
            return False
    return True


_C_TYPES = "size_t ssize_t ptrdiff_t wchar_t intptr_t uintptr_t bool FILE " + " ".join(
    f"{sign}int{n}_t" for sign in ("", "u") for n in (8, 16, 32, 64)
)
_C_HEADERS = "".join(f"typedef int {name};" for name in _C_TYPES.split())
_C_WORDS = {
    tuple(sorted(words.split()))
    for words in [
        *("void", "_Bool", "float", "double", "long double", "char", "signed char", "unsigned char"),
        *(f"{s} {z} {i}" for s in ("", "signed", "unsigned") for z in ("", "short", "long", "long long") for i in ("", "int")),
        *_C_TYPES.split(),
    ]
    if words.split()
}


def is_c(text: str) -> bool:
    """C99 by pycparser behind its headers' types, comments taken out, less words of a type that do not go together or are not there."""
    import pycparser

    tokens = r"/\*.*?\*/|//[^\n]*|L?\"(?:[^\"\\\n]|\\.)*\"|L?'(?:[^'\\\n]|\\.)*'"
    text = re.sub(tokens, lambda m: " " if m[0].startswith("/") else m[0], text, flags=re.DOTALL)
    try:
        tree = pycparser.CParser().parse(text := _C_HEADERS + text)
    except (pycparser.c_parser.ParseError, RecursionError, AssertionError, AttributeError):
        return False
    lines = list(itertools.accumulate((len(line) for line in text.split("\n")), lambda a, b: a + b + 1, initial=-1))

    def is_missing(node: pycparser.c_ast.Node) -> bool:
        """Whether int stands for a type that is not written, or a parameter has none."""
        if not isinstance(node, pycparser.c_ast.TypeDecl) or getattr(node.type, "names", None) != ["int"] or not node.coord:
            return isinstance(node, pycparser.c_ast.ParamList) and any(isinstance(p, pycparser.c_ast.ID) for p in node.params)
        begin, end = (lines[c.line - 1] + c.column for c in (node.type.coord, node.coord))
        return not re.search(r"\bint\b", text[begin:end])

    todo = [child for _, child in tree.children()][len(_C_TYPES.split()) :]
    while todo:
        node = todo.pop()
        words = node.names if isinstance(node, pycparser.c_ast.IdentifierType) else []
        if (words and tuple(sorted(words)) not in _C_WORDS) or len(getattr(node, "storage", None) or []) > 1:
            return False
        if is_missing(node):
            return False
        todo += [child for _, child in node.children()]
    return True


def has_present_gofmt() -> bool:
    """Whether gofmt leaves to the type checker what is no syntax, such as `4 := 8`."""
    return is_go("package a\nfunc f() { 4 := 8 }\n")


def is_go(text: str) -> bool:
    """What gofmt reads as a source file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.go"
        path.write_text(text, encoding="utf-8", newline="")
        return subprocess.run(["gofmt", "-e", "-l", path], capture_output=True, check=False).returncode == 0


_JAVASCRIPT_JUDGE = """
const { SourceTextModule } = require("vm");
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  let answer = "";
  try { new SourceTextModule(JSON.parse(line)); } catch (error) { answer = error.message.split("\\n")[0]; }
  console.log(answer);
});
"""
_JAVASCRIPT_MEANING = re.compile(
    "already been declared|not defined in module|must be declared|Undefined label|Illegal (return|break|continue)|[Dd]uplicate"
    "|'super' keyword|new.target|await is only|Invalid regular expression: /|Delete of|More than one default|constructor|prototype"
)


_TYPESCRIPT_JUDGE = """
const ts = require("typescript");
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const file = ts.createSourceFile("a.ts", JSON.parse(line), ts.ScriptTarget.ES2022);
  console.log(file.parseDiagnostics.map((d) => ts.flattenDiagnosticMessageText(d.messageText, " ")).join("; "));
});
"""


@cache
def _node(script: str, *options: str) -> subprocess.Popen[str]:
    """A process that answers a line with a complaint, or with nothing."""
    command = ["node", *options, "-e", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def _answer(node: subprocess.Popen[str], text: str) -> str:
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(json.dumps(text) + "\n")
    node.stdin.flush()
    return node.stdout.readline().strip()


def is_javascript(text: str) -> bool:
    """Whether V8 reads a module; names without a meaning, and words where they mean nothing, are no matter of syntax."""
    answer = _answer(_node(_JAVASCRIPT_JUDGE, "--experimental-vm-modules", "--no-warnings"), text)
    misplaced = "reserved word" in answer and re.search("yield|await", text)
    return not answer or bool(misplaced or _JAVASCRIPT_MEANING.search(answer))


@cache
def has_typescript() -> bool:
    """Whether Node finds TypeScript's compiler (NODE_PATH says where else it looks)."""
    return (
        bool(shutil.which("node"))
        and not subprocess.run(
            ["node", "-e", 'require("typescript").createSourceFile.length'], capture_output=True, check=False
        ).returncode
    )


def is_typescript(text: str) -> bool:
    """Whether TypeScript's parser reads a module; what its checker refuses is no matter of syntax."""
    return not _answer(_node(_TYPESCRIPT_JUDGE), text)


def is_xml(text: str, *, names: bool = False) -> bool:
    """Whether expat reads a document; unless names are to be compared, each name is replaced, so that all are equal or differ."""
    number = itertools.count()

    def plain(tag: re.Match[str]) -> str:
        if tag[1] is None:
            return tag[0]
        attributes = re.sub(
            rf"{_XML_NAME}(?=[ \t\r\n]*=)|\"[^\"]*\"|'[^']*'", lambda m: m[0] if m[0][0] in "\"'" else f"n{next(number)}", tag[3]
        )
        return f"<{tag[1]}n{attributes}>"

    if not names:
        skipped = r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>"
        text = re.sub(rf"{skipped}|<(/?)({_XML_NAME})((?:\"[^\"]*\"|'[^']*'|[^>\"'])*)>", plain, text, flags=re.DOTALL)
    try:
        expat.ParserCreate().Parse(text.encode(), True)
    except (expat.ExpatError, LookupError):
        return False
    declared = re.match(r"<\?xml\s", text)
    usual = declared is None or re.match(
        r"""<\?xml\s+version\s*=\s*["']1\.0["'](?!\s+encoding\s*=\s*["'](?!utf-8["']))""", text, re.I
    )
    return bool(usual) and not re.search(r"<!DOCTYPE|^\ufeff", text)


@cache
def lark_parser(grammar: str):
    """Lark's own parser of a grammar of the library."""
    import lark
    import lark.lexer

    lark.lexer.has_interegular = False  # its check for collisions takes minutes on wide character classes
    return lark.Lark(grammar, parser="lalr", lexer="basic")


def lark_reads(grammar: str, text: str) -> bool:
    """Whether Lark (LALR, a lexer that knows no context) parses a text."""
    return parses(lark_parser(grammar), text)


def parses(parser, text: str) -> bool:
    """Whether one of Lark's parsers reads a text."""
    import lark

    try:
        parser.parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(name)


def _python(text: str) -> ast.expr | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, Warning, RecursionError, MemoryError):
            return None


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))


def _arithmetic(node: ast.expr, text: str) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.Name():
            return True
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _arithmetic(operand, text)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Mod() | ast.Pow()):
            return _arithmetic(node.left, text) and _arithmetic(node.right, text)
        case ast.Call(func=ast.Name() as name, args=args, keywords=[]):
            bare = text[name.end_col_offset :].lstrip(" \t").startswith("(")
            return bare and all(_arithmetic(arg, text) for arg in args)
        case _:
            return False


def _plain_layout(text: str) -> bool:
    """No comments, no strings side by side, no continued lines, and line breaks only beside brackets, commas and colons."""
    tokens = [t for t in _tokens(text) if t.type not in (tokenize.INDENT, tokenize.DEDENT)]
    if any(t.type == tokenize.COMMENT for t in tokens):
        return False
    solid = [t for t in tokens if t.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)]
    for before, after in itertools.pairwise(solid):
        if before.type == after.type == tokenize.STRING:
            return False
        broken = after.start[0] > before.end[0]
        if broken and before.string not in ("(", "[", "{", ",", ":") and after.string not in (")", "]", "}", ",", ":"):
            return False
    lines = text.splitlines(keepends=True) or [""]
    outside = "".join(lines)
    for t in reversed([t for t in solid if t.type == tokenize.STRING]):
        begin, end = (sum(map(len, lines[: row - 1])) + column for row, column in (t.start, t.end))
        outside = outside[:begin] + "''" + outside[end:]
    return outside.isascii() and not re.search(r"[\\\f]|\r(?!\n)", outside)


class _Values:
    """The check of a parsed expression; places in the text tell parentheses, which a tree does not show."""

    def __init__(self, text: str) -> None:
        self.lines = text.encode().splitlines(keepends=True)

    def value(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=value):
                return type(value) in (str, bytes, int, float, complex, bool, type(None))
            case ast.UnaryOp() | ast.BinOp():
                return self.number(node)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return all(map(self.value, items))
            case ast.Dict(keys=keys, values=values):
                return all(key is not None and self.value(key) for key in keys) and all(map(self.value, values))
            case _:
                return self.reference(node)

    def number(self, node: ast.expr) -> bool:
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=complex()) as right):
                return self.real(left) and self.start(node) == self.start(left) and self.adjacent(left, right)
            case _:
                return self.signed(node, (int, float, complex))

    def real(self, node: ast.expr) -> bool:
        return self.signed(node, (int, float))

    def signed(self, node: ast.expr, kinds: tuple[type, ...]) -> bool:
        if isinstance(node, ast.Constant):
            return type(node.value) in kinds
        if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.UAdd | ast.USub):
            return False
        inner = node.operand
        bare = b"(" not in self.between(self.start(node), self.start(inner))
        return bare and isinstance(inner, ast.Constant) and type(inner.value) in kinds

    def reference(self, node: ast.expr) -> bool:
        match node:
            case ast.Name():
                return True
            case ast.Attribute(value=owner):
                return self.start(owner) == self.start(node) and self.reference(owner)
            case ast.Call(func=function, args=args, keywords=keywords):
                bare = self.start(function) == self.start(node) and self.reference(function)
                plain = all(not isinstance(a, ast.Starred | ast.GeneratorExp) and self.value(a) for a in args)
                return bare and plain and all(k.arg is not None and self.value(k.value) for k in keywords)
            case _:
                return False

    def adjacent(self, left: ast.expr, right: ast.expr) -> bool:
        between = self.between(self.end(left), self.start(right))
        return b"(" not in between and b")" not in between

    def start(self, node: ast.expr) -> int:
        return sum(map(len, self.lines[: node.lineno - 1])) + node.col_offset

    def end(self, node: ast.expr) -> int:
        return sum(map(len, self.lines[: (node.end_lineno or 1) - 1])) + (node.end_col_offset or 0)

    def between(self, begin: int, end: int) -> bytes:
        return b"".join(self.lines)[begin:end]


def _well_nested(node: ElementTree.Element, parent: str | None) -> bool:
    if (node.tag == "li") != (parent == "ul"):
        return False
    if node.tag == "ul" and any((text or "").strip(" \t\n\r") for text in (node.text, *(child.tail for child in node))):
        return False
    return all(_well_nested(child, node.tag) for child in node)
