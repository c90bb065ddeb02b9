"""How long does a grammar take to compile, here and in other libraries, and how large is the result?

    python -m pip install -e ".[compile,bench]"
    python benchmarks/grammar_speed.py [--quick] [--no-peers] [--only NAME ...]

Times grammars and large counters on real vocabularies (`$CONSTRAX_DATA`, else `../shared/data`): this project from text to ready
`CompiledConstraint` of all states, the peers from text to first mask, where they can express the constraint. How it is measured,
and what "first" and "repeated" mean, is `compile_speed.py`'s. Writes raw numbers to `benchmarks/results/grammar_speed.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import compile_speed as speed
import numpy as np
from compilers import Compiler, Constrax, Form, GlrMask, Llguidance, XGrammar

from fsa_compile import ConstraintError, compile_grammar, compile_regex, library
from fsa_compile.inspection.explain import statistics

RESULTS = Path(__file__).parent / "results" / "grammar_speed.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrammarConstraint:
    """What is compiled, and how to tell that it was.

    Attributes:
      name: short name, for `--only`.
      grammar: text in Lark's syntax, or None where `regex` is given.
      options: arguments of `compile_grammar` beside its text.
      portable: the grammar as peers with a Lark-like syntax take it, or None: no templates, no lookahead.
      ebnf: the same language in XGrammar's EBNF, or None.
      regex: a regular expression with a large counter, or None.
      accept, refuse: a text of the language and one outside it.
      bar_ms: most milliseconds of CPU time for Llama-3's vocabulary.
      bar_mb: most megabytes of the result.
    """

    name: str
    grammar: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    portable: str | None = None
    ebnf: str | None = None
    regex: str | None = None
    accept: str
    refuse: str
    bar_ms: float
    bar_mb: float


_STRING = r"""STRING: /"(?:[^"\\\x00-\x1f]|\\(?:["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/"""
_NUMBER = r"NUMBER: /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/"
_EBNF_SCALARS = r"""
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" hex hex hex hex))* "\""
hex ::= [0-9a-fA-F]
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
"""

TREE = rf"""
start: node
node: "{{" name COMMA kind COMMA value COMMA children COMMA next "}}"
name: "\"name\"" COLON STRING
kind: "\"kind\"" COLON ("\"leaf\"" | "\"branch\"")
value: "\"value\"" COLON (NUMBER | "null")
children: "\"children\"" COLON "[" (node (COMMA node)*)? "]"
next: "\"next\"" COLON ("null" | node)
COMMA: /, ?/
COLON: /: ?/
{_STRING}
{_NUMBER}
"""
TREE_EBNF = rf"""root ::= node
node ::= "{{" name comma kind comma value comma children comma next "}}"
comma ::= "," " "?
name ::= "\"name\":" " "? string
kind ::= "\"kind\":" " "? ("\"leaf\"" | "\"branch\"")
value ::= "\"value\":" " "? (number | "null")
children ::= "\"children\":" " "? "[" (node (comma node)*)? "]"
next ::= "\"next\":" " "? ("null" | node)
{_EBNF_SCALARS}"""
JSON_EBNF = rf"""root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{{" (member ("," " "? member)*)? "}}"
member ::= string ":" " "? value
array ::= "[" (value ("," " "? value)*)? "]"
{_EBNF_SCALARS}"""
ARITHMETIC_EBNF = r"""root ::= s sum
s ::= [ \t]*
sum ::= product (("+" | "-") s product)*
product ::= signed (("*" | "/" | "//" | "%") s signed)*
signed ::= (("+" | "-") s)* power
power ::= atom ("**" s signed)?
atom ::= (number | name | name s "(" s (sum ("," s sum)*)? ")" | "(" s sum ")") s
number ::= ("0" | [1-9] [0-9]*) ("." [0-9]+)? ("e" [+-]? [0-9]+)?
name ::= [a-z] [a-z0-9]*
"""


def portable(name: str) -> str:
    """A grammar of the library as peers take it: templates written out, `(...)?` for `[...]`, names that may be keywords."""
    text = "\n".join(line for line in library.grammar_text(name).splitlines() if not line.startswith("//"))
    text = re.sub(r"\n_list\{item\}.*\n", "\n", text)
    text = re.sub(r"_list\{(\w+)\}", r'\1 ("," \1)*', text)
    rules, terminals = [], []
    for line in text.splitlines():
        (terminals if re.match(r"[A-Z_]+:|%", line) else rules).append(line)
    plain = [re.sub(r"\[", "(", re.sub(r"\](?!\")", ")?", line)) if '"["' not in line else line for line in rules]
    named = [re.sub(r"\(\?!\(?.*?\\b\)|\(\?![^()]*\)(?=/$)", "", line).replace("(?ai:", "(?i:") for line in terminals]
    return "\n".join([*plain, *named]) + "\n"


def constraints() -> list[GrammarConstraint]:
    """What is timed: grammars of the library, a recursive tree of JSON objects, and counters."""

    def of_library(name: str, ebnf: str | None, accept: str, refuse: str, bar_ms: float, bar_mb: float) -> GrammarConstraint:
        return GrammarConstraint(
            name=name, grammar=library.grammar_text(name), options=library.options(name), portable=portable(name), ebnf=ebnf,
            accept=accept, refuse=refuse, bar_ms=bar_ms, bar_mb=bar_mb,
        )  # fmt: skip

    def counter(name: str, regex: str, accept: str, refuse: str, bar_ms: float, bar_mb: float) -> GrammarConstraint:
        return GrammarConstraint(name=name, regex=regex, accept=accept, refuse=refuse, bar_ms=bar_ms, bar_mb=bar_mb)

    leaf = '{"name": "a", "kind": "leaf", "value": %s, "children": [], "next": null}'
    tree = '{"name": "é", "kind": "branch", "value": 1.5, "children": [' + leaf % "null" + '], "next": ' + leaf % "2" + "}"
    query = "SELECT a, count(*) AS n FROM t WHERE (a + 1) * 2 < 7 AND b IS NOT NULL GROUP BY a ORDER BY n DESC LIMIT 5"
    program = "int f(int n) { if (n <= 1) return 1; else { x[n] = f(n - 1) * 2; } return x[n]; }"
    return [
        of_library("json_compact", JSON_EBNF, '{"a": [1, {"b": null}], "c": "x\\n"}', '{"a": [1, 2}', 40.0, 15.0),
        of_library("json", None, '{"a" : [1,\n {"b": null}] }', '{"a": [1, 2}', 40.0, 15.0),
        GrammarConstraint(
            name="tree", grammar=TREE, portable=TREE, ebnf=TREE_EBNF, accept=tree, refuse=tree.replace("leaf", "loaf"),
            bar_ms=25.0, bar_mb=15.0,
        ),
        of_library("arithmetic", ARITHMETIC_EBNF, "(1 + x) * -y ** 2 / f(3, 4)", "(1 + x * 2", 30.0, 15.0),
        of_library("sql_select", None, query, query.replace("GROUP BY", "GROUP"), 1500.0, 15.0),
        of_library("c_functions", None, program, program[:-1], 1500.0, 15.0),
        of_library("python_values", None, "f(1, key=('a', b'\\x00'), x={1: 2.5})", "f(key=1, 2)", 1500.0, 15.0),
        counter("any200", r"(.|\n){0,200}", "x\n" * 100, "x\n" * 100 + "x", 10.0, 5.0),
        counter("alnum500", "[a-zA-Z0-9 ]{1,500}", "ab 1" * 125, "ab 1" * 125 + "x", 10.0, 5.0),
        counter("dot65535", r".{0,65535}", "ab 1" * 125, "ab\n", 20.0, 5.0),
    ]  # fmt: skip


_SMALL = GrammarConstraint(name="small", regex="Red|Blue", accept="Red", refuse="Reds", bar_ms=1.0, bar_mb=1.0)


class _Grammars(Compiler):
    """Sets up with a first constraint of this script's kind."""

    def _setup_and_compile(self) -> None:
        self.setup()
        self.forms(_SMALL)[0].make()


class ConstraxGrammar(_Grammars, Constrax):
    """This project: text → `CompiledConstraint`."""

    def _compile(self, constraint: Any) -> Any:
        if constraint.grammar is None:
            return compile_regex(constraint.regex, self.vocabulary)
        return compile_grammar(constraint.grammar, self.vocabulary, **constraint.options)

    def sizes(self, made: Any) -> dict[str, int]:
        numbers = statistics(made)
        named = {"nodes": numbers.states, "D": numbers.max_pops, "K": numbers.max_groups}
        names = ("symbols", "max_push", "rows", "groups", "arcs", "levels", "step_bytes", "nbytes")
        return named | {name: int(getattr(numbers, name)) for name in names}


class XGrammarGrammar(_Grammars, XGrammar):
    """XGrammar: EBNF, a regular expression, or for any JSON its own grammar too."""

    def forms(self, constraint: Any) -> list[Form]:
        def first_mask(made: Any) -> Any:
            self.module.GrammarMatcher(made).fill_next_token_bitmask(self.words)
            return made

        if constraint.regex is not None:
            return [Form("regex", lambda: first_mask(self.compiler.compile_regex(constraint.regex)))]
        if constraint.ebnf is None:
            return []
        forms = [Form("EBNF", lambda: first_mask(self.compiler.compile_grammar(constraint.ebnf)))]
        if constraint.name == "json_compact":
            forms.append(Form("built-in JSON", lambda: first_mask(self.compiler.compile_builtin_json_grammar())))
        return forms


class LlguidanceGrammar(_Grammars, Llguidance):
    """llguidance: its Lark-like syntax."""

    def forms(self, constraint: Any) -> list[Form]:
        def make(kind: str, text: str) -> Any:
            matcher = self.module.LLMatcher(self.tokenizer, self.module.grammar_from(kind, text))
            words = self._empty_words()
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if matcher.is_error():
                raise ValueError(matcher.get_error())
            return matcher, words

        kind, text = ("regex", constraint.regex) if constraint.portable is None else ("lark", constraint.portable)
        return [Form(kind, lambda: make(kind, text))]


class GlrMaskGrammar(_Grammars, GlrMask):
    """glrmask: its Lark-like syntax."""

    def forms(self, constraint: Any) -> list[Form]:
        strategy = getattr(self.module.MaskStrategy, self.strategy)
        text = constraint.portable
        if text is None:
            text = "start: /" + constraint.regex.replace("/", r"\/") + "/"

        def make() -> Any:
            made = self.module.Grammar.from_lark(text).compile(self.table, mask_strategy=strategy)
            words = np.zeros(max(made.mask_len(), self._empty_words().size), np.int32)
            made.start().fill_mask(words)
            return made

        return [Form("lark", make)]


class GlrMaskTrieGrammar(GlrMaskGrammar):
    """glrmask walking the vocabulary for each mask: lazy."""

    name = "glrmask (trie)"
    strategy = "TOKEN_TRIE"
    lazy = True


COMPILERS: dict[str, type[Compiler]] = {
    c.name: c for c in (ConstraxGrammar, XGrammarGrammar, GlrMaskGrammar, GlrMaskTrieGrammar, LlguidanceGrammar)
}


def work(connection: Any, name: str, model: str, options: dict[str, Any]) -> None:
    """A compiler's process; see `compile_speed.serve`."""
    speed.serve(connection, COMPILERS[name], constraints(), model, options)


class Worker(speed.Worker):
    """A process for grammars."""

    work = staticmethod(work)


def table(results: dict[str, Any], chosen: Sequence[GrammarConstraint], peers: list[str]) -> str:
    """The Markdown table of CPU milliseconds and sizes."""
    head = ["constraint", "first; repeated", "bar", "Llama-4", "nodes", "D", "K", "rows", "MB", *peers]
    lines = [
        "CPU ms, Llama-3, medians: constrax to all masks, peers to the first mask (– where no form is written for them). K: wide",
        "sets of one node.",
        "",
        row(head),
        row(["---"] * len(head)),
    ]
    for constraint in chosen:
        entry = results[constraint.name]
        ours, wide = entry["constrax/llama3"], entry["constrax/llama4"]
        others = [speed.cell(entry[peer]) if entry[peer] else "–" for peer in peers]
        if not complete(ours):
            lines.append(row([constraint.name, speed.cell(ours), f"{constraint.bar_ms:g}", *["–"] * 6, *others]))
            continue
        first, again, sizes = ours["first"]["cpu_ms"]["median"], ours["repeated"]["cpu_ms"]["median"], ours["first"]["sizes"]
        size = sizes["nbytes"] / 1e6
        met = "met" if again <= constraint.bar_ms and size <= constraint.bar_mb else "**not met**"
        four = f"{wide['first']['cpu_ms']['median']:.1f}; {wide['repeated']['cpu_ms']['median']:.1f}" if complete(wide) else "–"
        numbers = [f"{sizes[name]:,}" for name in ("nodes", "D", "K", "rows")]
        bar = f"{constraint.bar_ms:g} ms, {constraint.bar_mb:g} MB: {met}"
        lines.append(row([constraint.name, f"{first:.1f}; {again:.1f}", bar, four, *numbers, f"{size:.2f}", *others]))
    return "\n".join(lines)


def row(cells: Sequence[str]) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def complete(ours: dict[str, Any]) -> bool:
    """Whether this project's forms gave right answers."""
    forms = [ours.get(name) for name in ("first", "repeated")]
    return all(isinstance(f, dict) and f.get("accepts_sample") and f["refuses_sample"] for f in forms)


def main() -> None:
    """Measures, writes the JSON, prints the table."""
    every = constraints()
    names = [c.name for c in every]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--no-peers", action="store_true", help="this project only")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--limit", type=float, default=60, help="most seconds without a sign of life from a compiler (60)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the raw numbers go")
    given = parser.parse_args()
    for variable in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"  # for the compilers' processes
    data = Path(os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (data / "tokenizers").is_dir():
        raise SystemExit(f"No folder 'tokenizers' in {data}: set CONSTRAX_DATA to the folder that holds it.")
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    options = {"data": str(data), "core": core, "limit": given.limit, "repeats": 15, "budget": 8.0, "setups": 1}
    if given.quick:
        options |= {"repeats": 5, "budget": 2.0}
    chosen = [c for c in every if not given.only or c.name in given.only]
    peers = [] if given.no_peers else [name for name in COMPILERS if name != "constrax"]
    workers = {f"constrax/{model}": Worker("constrax", model, options) for model in ("llama3", "llama4")}
    workers |= {peer: Worker(peer, "llama3", options) for peer in peers}
    results: dict[str, dict[str, Any]] = {}
    try:
        for constraint in chosen:
            results[constraint.name] = {}
            for name, worker in workers.items():
                print(f"{constraint.name}: {name}", file=sys.stderr)
                results[constraint.name][name] = worker.measure(constraint)
    finally:
        for worker in workers.values():
            worker.stop()
    report = {
        "environment": speed.environment(core),
        "options": {k: v for k, v in options.items() if k not in ("data", "core")},
        "bars": {c.name: {"ms": c.bar_ms, "mb": c.bar_mb} for c in chosen},
        "constraints": results,
    }
    speed.write_report(report, given.output)
    print(table(results, chosen, peers))


if __name__ == "__main__":
    try:
        main()
    except ConstraintError as error:
        raise SystemExit(str(error)) from error
