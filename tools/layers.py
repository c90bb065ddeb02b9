"""The layer table of `docs/architecture.md`: reads it, checks every import against it, draws it.

    python tools/layers.py            # what is wrong, if anything; exit status 1 then
    python tools/layers.py --draw     # writes docs/figures/layers.svg

A row of the table names one or more packages (or modules at the top of a distribution). A module belongs to the row with the
longest name that it begins with, and imports from its own package and from rows above only; packages of one row do not
import each other. Imports are read from the syntax tree, so that lazy ones and those under `TYPE_CHECKING` count too.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FIGURE = ROOT / "docs" / "figures" / "layers.svg"
DISTRIBUTIONS = ("constrax", "fsa_compile", "jax_decode", "models")
TOP = "constrax"
"""What may import all others, and no other may import."""
BRIDGE = ("fsa_compile.artifact", "fsa_compile.arrays", "fsa_compile.errors")
"""What `jax_decode` may import of `fsa_compile`."""
WHOLE = {"jax_decode.cli": ("fsa_compile", "models")}
"""The command of the decoding half, which compiles and loads models by their public names."""

_ROW = re.compile(r"^\| *\d+ *\| *(`[\w.]+`(?:, `[\w.]+`)*) *\| *(.+?) *\|$")


class Row(NamedTuple):
    """Packages of one layer, and the sentence about them."""

    packages: tuple[str, ...]
    sentence: str


class Import(NamedTuple):
    """`source`, a module, imports `target`, a module or package, in a line."""

    source: str
    target: str
    line: int


def read_table(page: Path = PAGE) -> list[Row]:
    """The rows of the layer table, from the ground up.

    Raises:
      ValueError: there is no table, or a package stands in two rows.
    """
    rows = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if found := _ROW.match(line):
            rows.append(Row(tuple(re.findall(r"`([\w.]+)`", found[1])), found[2]))
    names = [package for row in rows for package in row.packages]
    if not rows or len(set(names)) < len(names):
        raise ValueError(f"{page.name} has no layer table, or names a package twice")
    return rows


def modules(root: Path = ROOT) -> dict[str, Path]:
    """The files of all modules, by their names."""
    out = {}
    for distribution in DISTRIBUTIONS:
        for path in sorted((root / distribution).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            out[name.removesuffix(".__init__")] = path
    return out


def imports_of(name: str, text: str, known: Mapping[str, object]) -> Iterator[Import]:
    """The imports of our own modules in a module's text, wherever they stand in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [target if target in known else node.module for target in whole]
        else:
            continue
        for target in targets:
            if target in known and target != name:
                yield Import(name, target, node.lineno)


def place(module: str, rows: list[Row]) -> tuple[int, str] | None:
    """The row of a module, and the package of it that the module belongs to; None where it belongs nowhere."""
    best: tuple[int, str] | None = None
    for number, row in enumerate(rows):
        for package in row.packages:
            whole = package in ("fsa_compile", "jax_decode")  # these rows hold the package's own file only
            fits = module == package or (not whole and module.startswith(package + "."))
            if fits and (best is None or len(package) > len(best[1])):
                best = number, package
    return best


def wrong_imports(found: list[Import], rows: list[Row]) -> list[str]:
    """A sentence about every import that the table does not allow."""
    out = []
    for source, target, line in found:
        here, there = place(source, rows), place(target, rows)
        if here is None or there is None:
            continue  # said by `unplaced`
        where = f"{source}:{line} imports {target}"
        if source.split(".")[0] != target.split(".")[0]:
            allowed = target.startswith(BRIDGE) or target in WHOLE.get(source, ())
            if not (source.split(".")[0] == TOP or (source.startswith("jax_decode") and allowed)):
                out.append(f"{where}: one distribution does not import another, but for {', '.join(BRIDGE)}")
        elif here[1] != there[1] and there[0] >= here[0]:
            out.append(f"{where}: {there[1]} does not lie below {here[1]}")
    return out


def unplaced(names: Mapping[str, object], rows: list[Row]) -> list[str]:
    """Modules that stand in no row, and rows without a module."""
    homes = {name: place(name, rows) for name in names}
    used = {home[1] for home in homes.values() if home}
    missing = [f"{name} stands in no row" for name, home in homes.items() if home is None]
    return missing + [f"row {p} has no module" for row in rows for p in row.packages if p not in used]


def circles(found: list[Import]) -> list[list[str]]:
    """Groups of modules that import each other (strongly connected components; Tarjan 1972)."""
    after: dict[str, set[str]] = {}
    for source, target, _ in found:
        after.setdefault(source, set()).add(target)
        after.setdefault(target, set())
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(after[module]):
            if target not in index:
                visit(target)
            if target in stack:
                low[module] = min(low[module], low[target])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                out.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(after):
        if module not in index:
            visit(module)
    return out


def all_imports(root: Path = ROOT) -> list[Import]:
    """Every import of one of our modules by another."""
    known = modules(root)
    return [found for name, path in known.items() for found in imports_of(name, path.read_text(encoding="utf-8"), known)]


def needed(found: list[Import], rows: list[Row]) -> dict[str, set[str]]:
    """For every package of the table the packages that it imports, without those that follow from others."""
    direct: dict[str, set[str]] = {package: set() for row in rows for package in row.packages}
    for source, target, _ in found:
        here, there = place(source, rows), place(target, rows)
        if here and there and here[1] != there[1]:
            direct[here[1]].add(there[1])
    reach: dict[str, set[str]] = {}
    for row in rows:  # from the ground up, so what is below is known
        for package in row.packages:
            reach[package] = direct[package].union(*(reach.get(below, set()) for below in direct[package]))
    return {p: {b for b in direct[p] if not any(b in reach[other] for other in direct[p] - {b})} for p in direct}


def levels(edges: Mapping[str, set[str]], rows: list[Row]) -> dict[str, int]:
    """The height of every package: the longest path down to one that imports nothing of its distribution."""
    out: dict[str, int] = {}
    for row in rows:
        for package in row.packages:
            same = [out[b] for b in edges[package] if b in out and b.split(".")[0] == package.split(".")[0]]
            out[package] = 1 + max(same, default=-1)
    return out


def drawn(rows: list[Row], edges: Mapping[str, set[str]]) -> str:
    """The packages as an SVG picture: what is imported lies below, arrows that follow from others are left out."""
    step, box, aside = 58, 26, {"fsa_compile": 0, "jax_decode": 1, "models": 2, "constrax": 2}
    colours = {"fsa_compile": "#dbe9f6", "jax_decode": "#e3f2dd", "models": "#f8e6cf", "constrax": "#efdcef"}
    height_of = levels(edges, rows)
    top = max(height_of.values()) - 1  # without the commands' own file
    height_of[TOP] = top
    bands: dict[tuple[str, int], list[str]] = {}
    for package, level in height_of.items():
        if package in ("fsa_compile", "fsa_compile.__main__", "jax_decode"):
            continue  # public names that are loaded by name: they would point everywhere
        bands.setdefault((package.split(".")[0], level), []).append(package)
    at: dict[str, tuple[float, float, float]] = {}
    for (distribution, level), band in sorted(bands.items(), key=lambda item: (aside[item[0][0]], item[0][1])):
        middle = {p: [at[b][0] + at[b][2] / 2 for b in edges[p] if b in at] or [0.0] for p in band}
        before = [x + wide + 60 for p, (x, _, wide) in at.items() if aside[p.split(".")[0]] < aside[distribution]]
        left = max(before, default=20.0)  # each distribution to the right of what it imports
        x = left + 12.0 * (level % 4)
        for package in sorted(band, key=lambda p: (sum(middle[p]) / len(middle[p]), p)):
            wide = 14 + 7.3 * len(_shown(package))
            x = max(x, min(sum(middle[package]) / len(middle[package]) - wide / 2, left + 700.0))
            at[package] = x, 20.0 + (top - level) * step, wide
            x += wide + 22
    lines, boxes = [], []
    for package, (x, y, wide) in at.items():
        colour = colours[package.split(".")[0]]
        boxes.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{box}" rx="4" fill="{colour}" stroke="#607080"/>')
        boxes.append(f'<text x="{x + 7:.0f}" y="{y + 17:.0f}">{_shown(package)}</text>')
        below = sorted((b for b in edges[package] if b in at), key=lambda p: at[p][0])
        for number, target in enumerate(below):
            tx, ty, tw = at[target]
            start, end = x + wide * (number + 1) / (len(below) + 1), tx + tw / 2
            if target.split(".")[0] != package.split(".")[0]:  # across distributions, from side to side
                start, end = x, tx + tw
                lines.append(f'<path class="across" d="M{start:.0f} {y + 13:.0f} L{end + 4:.0f} {ty + 13:.0f}"/>')
                continue
            bend = max((ty - y - box) / 2, 8)
            curve = f"C{start:.0f} {y + box + bend:.0f} {end:.0f} {ty - bend:.0f} {end:.0f} {ty - 3:.0f}"
            lines.append(f'<path d="M{start:.0f} {y + box:.0f} {curve}"/>')
    width, height = max(x + wide for x, _, wide in at.values()) + 20, 20 + (top + 1) * step
    tip = '<path d="M0 0 L6 3 L0 6 z" style="fill:#8090a0;stroke:none;marker-end:none"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="monospace" font-size="12">',
            '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
            f"{tip}</marker></defs>",
            "<style>path{fill:none;stroke:#8090a0;stroke-width:.9;marker-end:url(#tip)}.across{stroke-dasharray:4 3}</style>",
            f'<rect width="{width:.0f}" height="{height}" fill="white"/>',
            *lines,
            *boxes,
            "</svg>",
            "",
        ]
    )


def _shown(package: str) -> str:
    return package.removeprefix("fsa_compile.").removeprefix("jax_decode.")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help=f"write {FIGURE.relative_to(ROOT)}")
    options = parser.parse_args()
    rows, found = read_table(), all_imports()
    if options.draw:
        FIGURE.write_text(drawn(rows, needed(found, rows)), encoding="utf-8")
    problems = [*unplaced(modules(), rows), *wrong_imports(found, rows), *(f"circle: {', '.join(c)}" for c in circles(found))]
    print("\n".join(problems) or f"{len(modules())} modules, {len(found)} imports: all as the table says")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
