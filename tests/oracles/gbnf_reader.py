"""GBNF read by itself, and Earley's algorithm over characters: shares nothing with `fsa_compile.grammar`.

Source: the grammar's own page, https://github.com/ggml-org/llama.cpp, grammars/README.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "[": "[", "]": "]", "-": "-"}
_NAME = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_HEX = {"x": 2, "u": 4, "U": 8}


class Class(NamedTuple):
    """A set of characters: ranges, or all others."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool

    def holds(self, character: str) -> bool:
        """Whether a character is in it."""
        return any(low <= character <= high for low, high in self.ranges) != self.negated


ANY = Class((), True)
Symbol = Any
"""A `Class`, or the name of a rule."""


class Reader:
    """Reads a grammar into productions; repetitions and groups become rules of their own, whose names hold a space."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.rules: dict[str, list[tuple[Symbol, ...]]] = {}
        self.space(True)
        while self.at < len(text):
            name = self.name()
            self.space(False)
            assert text.startswith("::=", self.at)
            self.at += 3
            self.space(True)
            self.rules[name] = self.alternatives()
            self.space(True)

    def space(self, lines: bool) -> None:
        """White space and comments; line ends too inside parentheses, or where they mean nothing."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                while self.at < len(self.text) and self.text[self.at] not in "\r\n":
                    self.at += 1
            elif self.text[self.at] in " \t" or ((lines or self.depth) and self.text[self.at] in "\r\n"):
                self.at += 1
            else:
                return

    def name(self) -> str:
        """The name here."""
        begin = self.at
        while self.at < len(self.text) and self.text[self.at] in _NAME:
            self.at += 1
        return self.text[begin : self.at]

    def alternatives(self) -> list[tuple[Symbol, ...]]:
        """What stands between bars, up to the end of the rule or group."""
        out = [self.sequence()]
        while self.text[self.at : self.at + 1] == "|":
            self.at += 1
            self.space(True)
            out.append(self.sequence())
        return out

    def sequence(self) -> tuple[Symbol, ...]:
        """Items with their repetitions."""
        out: list[Symbol] = []
        item: tuple[Symbol, ...] = ()
        while (c := self.text[self.at : self.at + 1]) and c not in "|)\r\n":
            if c in "*+?{":
                del out[len(out) - len(item) :]
                item = (self.repeated(item),)
            else:
                item = self.item()
            out += item
            self.space(False)
        return tuple(out)

    def item(self) -> tuple[Symbol, ...]:
        """A string, a class, a dot, a group or a name."""
        c = self.text[self.at]
        if c in _NAME:
            return (self.name(),)
        self.at += 1
        if c == '"':
            out = []
            while self.text[self.at] != '"':
                one = self.character()
                out.append(Class(((one, one),), False))
            self.at += 1
            return tuple(out)
        if c == "[":
            return (self.set_of(),)
        if c == ".":
            return (ANY,)
        assert c == "("
        self.depth += 1
        self.space(True)
        body = self.alternatives()
        self.depth -= 1
        assert self.text[self.at] == ")"
        self.at += 1
        return (self.new(body),)

    def set_of(self) -> Class:
        """What stands in brackets."""
        negated = self.text[self.at] == "^"
        self.at += negated
        ranges = []
        while self.text[self.at] != "]":
            low = high = self.character()
            if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                high = self.character()
            ranges.append((low, high))
        self.at += 1
        return Class(tuple(ranges), negated)

    def character(self) -> str:
        """One character, escaped or not."""
        c = self.text[self.at]
        self.at += 1
        if c != "\\":
            return c
        letter = self.text[self.at]
        self.at += 1
        if letter in _HEX:
            digits = self.text[self.at : self.at + _HEX[letter]]
            self.at += len(digits)
            return chr(int(digits, 16))
        return _ESCAPES[letter]

    def repeated(self, item: tuple[Symbol, ...]) -> Symbol:
        """The rule of a repeated item."""
        c = self.text[self.at]
        self.at += 1
        low, high = {"*": (0, -1), "+": (1, -1), "?": (0, 1), "{": (0, 0)}[c]
        if c == "{":
            end = self.text.index("}", self.at)
            counts = [part.strip() for part in self.text[self.at : end].split(",")]
            self.at = end + 1
            low = int(counts[0] or 0)
            high = low if len(counts) == 1 else int(counts[1]) if counts[1] else -1
        if high < 0:
            loop = self.new([()])
            self.rules[loop].append((*item, loop))
            return self.new([(*item * low, loop)])
        return self.new([item * count for count in range(low, high + 1)])

    def new(self, body: list[tuple[Symbol, ...]]) -> str:
        """A rule without a name in the text."""
        name = f"rule {len(self.rules)}"
        self.rules[name] = list(body)
        return name


class Item(NamedTuple):
    """A production, how much of it was read, and where it began."""

    rule: str
    production: tuple[Symbol, ...]
    done: int
    begin: int

    @property
    def next(self) -> Symbol:
        """The symbol after the dot, None at the end."""
        return self.production[self.done] if self.done < len(self.production) else None

    def moved(self) -> Item:
        """One symbol further."""
        return Item(self.rule, self.production, self.done + 1, self.begin)


class Earley:
    """Sets of items by position; `take` and `back` move along a text."""

    def __init__(self, text: str, start: str = "root") -> None:
        rules = Reader(text).rules
        productive: set[str] = set()
        while True:
            more = {n for n, body in rules.items() if any(all(isinstance(s, Class) or s in productive for s in p) for p in body)}
            if more == productive:
                break
            productive = more
        self.start = start
        self.rules = {
            name: [p for p in rules[name] if all(isinstance(s, Class) or s in productive for s in p)] for name in productive
        }
        self.sets: list[set[Item]] = []
        self.waiting: list[dict[str, list[Item]]] = []
        self._close({Item(start, p, 0, 0) for p in self.rules.get(start, [])})

    def _close(self, items: set[Item]) -> None:
        """Adds a set: predicted and completed items, until there are no more."""
        here, todo = len(self.sets), list(items)
        waiting: dict[str, list[Item]] = {}
        empty: set[str] = set()
        self.sets.append(items)
        self.waiting.append(waiting)
        while todo:
            item = todo.pop()
            found: list[Item] = []
            if item.next is None:
                found += [at.moved() for at in self.waiting[item.begin].get(item.rule, ())]
                if item.begin == here:
                    empty.add(item.rule)
            elif isinstance(item.next, str):
                waiting.setdefault(item.next, []).append(item)
                found += [Item(item.next, p, 0, here) for p in self.rules.get(item.next, [])]
                if item.next in empty:
                    found.append(item.moved())
            for other in found:
                if other not in items:
                    items.add(other)
                    todo.append(other)

    def take(self, character: str) -> bool:
        """Reads a character; whether some text of the grammar begins so."""
        read = {item.moved() for item in self.sets[-1] if isinstance(item.next, Class) and item.next.holds(character)}
        self._close(read)
        return bool(read)

    def back(self) -> None:
        """Takes the last character back."""
        self.sets.pop()
        self.waiting.pop()

    @property
    def accepting(self) -> bool:
        """Whether the text so far is one of the grammar."""
        return any(item.rule == self.start and item.begin == 0 and item.next is None for item in self.sets[-1])
