"""Grammars of several files: the modules that `%import` names, as sections behind a grammar's own text.

`read_grammar` puts the files together: behind the grammar each module stands under a line `%module name`, so that a grammar is
one text wherever it goes. What is imported is renamed as Lark does it: all that the imported definitions need comes along as
`module__name`, or `_module__name` where the name begins with `_`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from fsa_compile.errors import ConstraintError, GrammarError
from fsa_compile.grammar.grammar_tree import Choice, Embedded, Expression, Reference, Repeat, Sequence
from fsa_compile.grammar.lark_tokens import Token, tokenize
from fsa_compile.grammar.names import undefined
from fsa_compile.grammar.source import GrammarText, walk
from fsa_compile.grammar.templates import Definition, TemplateUse
from fsa_compile.inputs.guard import guarded

Renaming: TypeAlias = Callable[[str], str]
_NAME = re.compile(r"\w+(\.\w+)*").fullmatch
_MOST_MODULES = 100


@guarded
def read_grammar(path: str | Path, *, import_paths: Iterable[str | Path] = ()) -> str:
    """The text of a grammar's file, with the modules that it imports behind it.

    Args:
      path: a file in Lark's syntax; one in GBNF, which imports nothing, is read as it is.
      import_paths: folders in which modules are looked for first. Then come, for `%import .module`, the folder of the file that
        imports, and the grammars of the package `lark`, if it is installed. `common` is built in.

    Returns:
      A text for `compile_grammar`: a line `%module name` stands before every module.

    Raises:
      ConstraintError: a file cannot be read, or two files are the same module.
    """
    places = None if isinstance(import_paths, str) or not isinstance(import_paths, Iterable) else list(import_paths)
    if places is None or not all(isinstance(place, str | Path) for place in (path, *places)):
        what = f"read_grammar takes a path and a list of folders, not {path!r:.60} and {import_paths!r:.60}"
        raise ConstraintError(what, fix='Write read_grammar("a.lark", import_paths=["folder"]).')
    path, folders = Path(path), [Path(place) for place in places]
    text = _read(path)
    parts, files, todo = [text], dict[str, Path](), [("", path, text)]
    for module, file, source in todo:  # grows
        for name, relative in _needed(source):
            full = ".".join(filter(None, (module.rpartition(".")[0] if relative else "", name)))
            found = _file_of(name, folders, file.parent, relative)
            if found is None:
                continue  # `common`, or an error with its place once the grammar is compiled
            if files.setdefault(full, found) != found:
                what = f"the module {full} is two files: {files[full]} and {found}"
                raise ConstraintError(what, fix="Rename one of them.")
            if found != path and not any(full == known for known, *_ in todo):
                if len(todo) > _MOST_MODULES:
                    raise ConstraintError(f"{path} imports more than {_MOST_MODULES} modules")
                todo.append((full, found, _read(found)))
                parts.append(f"%module {full}\n{todo[-1][2]}")
    return "\n".join(part.removesuffix("\n") for part in parts) + "\n" if len(parts) > 1 else text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # a name with a zero byte, bytes that are no UTF-8
        raise ConstraintError(f"the grammar {str(path)!r} cannot be read: {error}", fix="Give the file's path.") from None


def _file_of(name: str, folders: list[Path], own: Path, relative: bool) -> Path | None:
    """The file of a module."""
    lark = importlib.util.find_spec("lark")
    places = [*folders, *([own] if relative else []), *([Path(lark.origin).parent / "grammars"] if lark and lark.origin else [])]
    if name == "common" and not relative:
        places = folders
    files = (place.joinpath(*name.split(".")).with_suffix(".lark") for place in places)
    return next((file for file in files if file.is_file()), None)


def _needed(text: str) -> Iterator[tuple[str, bool]]:
    """(module, whether it is relative to the file) of every import."""
    try:
        source = GrammarText(text, None)
        tokens = tokenize(source)
    except GrammarError:
        return  # compiling it says what is wrong
    for at, token in enumerate(tokens):
        if token.kind != "directive" or text[token.start : token.end] != "%import":
            continue
        relative, names = tokens[at + 1].kind == ".", list[str]()
        at += 1 + relative
        while tokens[at].kind == "name":
            names.append(text[tokens[at].start : tokens[at].end])
            at += 1 + (tokens[at + 1].kind == ".")
        if tokens[at].kind != "(":
            names = names[:-1]
        if names:
            yield ".".join(names), relative


def sections_of(source: GrammarText) -> dict[str, list[Token]]:
    """The words of every module by its name, the last of kind "end"; of the grammar itself, before the first module, by "".

    Raises:
      GrammarSyntaxError: a line `%module` without a name, or with that of another.
    """
    section = list[Token]()
    sections, words = {"": section}, iter(tokenize(source))
    for token in words:
        if token.kind != "directive" or source.text[token.start : token.end] != "%module":
            section.append(token)
            continue
        end = len(source.text[: token.start].rstrip())
        section.append(Token("end", end, end))
        end = token.end
        while (part := next(words)).kind in ("name", "."):
            end = part.end
        name = source.text[token.end : end].strip()
        if part.kind not in ("line end", "end") or not _NAME(name):
            source.syntax("a module has a name here", token.start, end, fix="Write %module name on a line of its own.")
        if name in sections:
            source.syntax(f"the module {name} is there twice", token.start, end, fix="Rename one of them.")
        section = sections[name] = [part] if part.kind == "end" else []
    return sections


def needed_for(source: GrammarText, definitions: Mapping[str, Definition], names: Iterable[str]) -> list[Definition]:
    """The definitions of some names, and of all that these use; refuses names that are not defined."""
    found = {name: definitions[name] for name in names}
    todo = list(found.values())
    for definition in todo:  # grows
        for node in _references(definition.body):
            name = str(node.name)
            if name in found or name in definition.parameters:
                continue
            if name not in definitions:
                undefined(source, node, definitions)
            found[name] = definitions[name]
            todo.append(found[name])
    return todo


def _references(body: Expression) -> Iterator[Reference | Embedded]:
    for node in walk(body):
        if isinstance(node, Reference) or (isinstance(node, Embedded) and node.kind == "tokens"):
            yield node
        if isinstance(node, TemplateUse):
            for argument in node.arguments:
                yield from _references(argument)


def mangled(prefix: str, aliases: Mapping[str, str]) -> Renaming:
    """How the definitions of an imported module are called."""

    def rename(name: str) -> str:
        if name in aliases:
            return aliases[name]
        return f"_{prefix}__{name[1:]}" if name.startswith("_") else f"{prefix}__{name}"

    return rename


def renamed(definition: Definition, rename: Renaming) -> Definition:
    """A definition with other names, in its body as well."""

    def name_of(name: str) -> str:
        return name if name in definition.parameters else rename(name)

    def body(node: Expression) -> Expression:
        match node:
            case TemplateUse(name=name, arguments=arguments):
                return dataclasses.replace(node, name=name_of(name), arguments=tuple(map(body, arguments)))
            case Reference(name=name):
                return dataclasses.replace(node, name=name_of(name))
            case Embedded(kind="tokens", name=name):
                return dataclasses.replace(node, name=rename(str(name)))
            case Sequence(parts=parts):
                return dataclasses.replace(node, parts=tuple(map(body, parts)))
            case Choice(branches=branches):
                return dataclasses.replace(node, branches=tuple(map(body, branches)))
            case Repeat(part=part):
                return dataclasses.replace(node, part=body(part))
        return node

    return dataclasses.replace(definition, name=rename(definition.name), body=body(definition.body))
