"""A lexer that takes the longest match and a machine of rules with a stack, both by hand: what a grammar reads, lexeme by lexeme.

Of the terminals that may stand in the state reached, the longest match is taken, of equal ones that of higher priority. Rules are
right-linear but for brackets, so a state and a stack are all it needs.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

LETTERS = "<>="  # no word characters: keywords have rules of their own
Terminal = tuple[str, Callable[[str, int], list[int]]]
"""A pattern, and where a lexeme of it that begins somewhere in a text may end."""


@dataclasses.dataclass
class Rules:
    """A random grammar: states with lexemes, and brackets that hold a text from one state and lead to another.

    Attributes:
      terminals: in ascending priority.
      arcs: per state the next one by terminal.
      brackets: by state where the text within begins, and where it goes on behind it.
      final: states in which a text, or what stands in brackets, may end.
    """

    terminals: dict[str, Terminal]
    arcs: list[dict[str, int]]
    brackets: dict[int, tuple[int, int]]
    final: list[bool]

    def written(self) -> str:
        """In Lark's syntax."""
        lines = ["start: s0"]
        for q, arcs in enumerate(self.arcs):
            ways = [f"{t} s{r}" for t, r in arcs.items()]
            ways += [f'"(" s{inner} ")" s{r}' for at, (inner, r) in self.brackets.items() if at == q]
            lines.append(f"s{q}: " + " | ".join(ways + [""] * self.final[q]))
        lines += [f"{name}.{priority}: /{pattern}/" for priority, (name, (pattern, _)) in enumerate(self.terminals.items())]
        return "\n".join(lines)

    def accepts(self, text: str) -> bool:
        """Whether a lexer that takes the longest match reads a text."""
        at = state = 0
        stack: list[int] = []
        while at < len(text):
            if text[at] == "(":
                if state not in self.brackets:
                    return False
                state, after = self.brackets[state]
                stack.append(after)
                at += 1
            elif text[at] == ")":
                if not stack or not self.final[state]:
                    return False
                state, at = stack.pop(), at + 1
            else:
                found = [(end, rank, t) for rank, t in enumerate(self.terminals) for end in self.terminals[t][1](text, at)]
                allowed = [x for x in found if x[2] in self.arcs[state]]
                if not allowed:
                    return False
                at, _, terminal = max(allowed)
                state = self.arcs[state][terminal]
        return self.final[state] and not stack


def random_rules(rng: random.Random, terminal: Callable[[random.Random], Terminal]) -> Rules:
    """One to three terminals and states."""
    names, states = "ABC"[: rng.choice([1, 2, 2, 3])], range(rng.choice([1, 2, 3]))
    arcs = [{t: rng.choice(states) for t in names if rng.random() < 0.6} for _ in states]
    brackets = {q: (rng.choice(states), rng.choice(states)) for q in states if rng.random() < 0.3}
    final = [rng.random() < 0.6 or not (arcs[q] or q in brackets) for q in states]
    return Rules({t: terminal(rng) for t in names}, arcs, brackets, final)


def random_text(rng: random.Random) -> str:
    """Letters, most often in brackets that match."""
    text, depth = "", 0
    for letter in rng.choices("<>=<>=()", k=rng.randint(0, 9)):
        if letter == ")" and not depth and rng.random() < 0.9:
            continue
        depth += (letter == "(") - (letter == ")")
        text += letter
    return text + ")" * max(depth, 0)
