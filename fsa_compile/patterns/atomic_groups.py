"""Decides whether an atomic group or possessive quantifier leaves the pattern's language as it is.

Atomic matching forgets how else the group could have matched. That cannot matter in two cases, and only these are let through:
no text the group matches is the beginning of another one, or the group is a loop over one character set and what follows the
loop never begins with a character of that set.
"""

from __future__ import annotations

from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import END, ConditionFound, Positions, one_character
from fsa_compile.patterns.regex_tree import Alternate, Anchor, Atomic, Concat, Look, Node, Repeat, children
from fsa_compile.unicode.code_points import NONE, CodePointSet, intersection


def check_atomics(tree: Node, limits: CompileLimits) -> Atomic | None:
    """The first atomic group that may matter, or None when all of them can be read as ordinary groups."""
    deadline = Deadline(limits)
    open_loops = []
    for node, behind in _atomics(tree, False):
        if not _prefix_free(node.item, limits, deadline):
            if behind or _loop_members(node.item) is None:
                return node
            open_loops.append(node)
    if open_loops:
        positions = Positions(_without_conditions(tree), limits, deadline)
        wanted = {(node.start, node.end) for node in open_loops}
        for node, last, inside in positions.atomics:
            if (node.start, node.end) not in wanted:
                continue
            members = _loop_members(node.item) or NONE
            for p, own in zip(last, inside):
                for q in positions.follow[p] - own:
                    if q != END and intersection(positions.sets[q], members) != NONE:
                        return node
    return None


def _loop_members(node: Node) -> CodePointSet | None:
    """The characters of a greedy loop over one set, or None for anything else."""
    return one_character(node.item) if isinstance(node, Repeat) and not node.lazy else None


def _prefix_free(item: Node, limits: CompileLimits, deadline: Deadline) -> bool:
    """Whether no match of the item is the beginning of another match."""
    from fsa_compile.patterns.subset_construction import determinize

    try:
        positions = Positions(item, limits, deadline)
    except ConditionFound:
        return False
    if not positions.first:
        return True
    dfa = determinize(positions, limits, deadline)
    return not any(final and arcs for final, arcs in zip(dfa.final, dfa.arcs))


def _atomics(node: Node, behind: bool) -> list[tuple[Atomic, bool]]:
    """All atomic groups of the tree, and whether each is part of a lookbehind."""
    found = [(node, behind)] if isinstance(node, Atomic) else []
    behind |= isinstance(node, Look) and node.behind
    return found + [atomic for child in children(node) for atomic in _atomics(child, behind)]


def _without_conditions(node: Node) -> Node:
    """The tree with every condition dropped; each atomic group keeps its span. What may follow what can only grow."""
    if isinstance(node, Anchor):
        return Concat([], node.start, node.end)
    if isinstance(node, Look):
        # The body is kept as an optional detour so that atomic groups in it are checked with what follows them there.
        return Repeat(_without_conditions(node.item), 0, 1, node.start, node.end)
    if isinstance(node, Concat):
        return Concat([_without_conditions(item) for item in node.items], node.start, node.end)
    if isinstance(node, Alternate):
        return Alternate([_without_conditions(branch) for branch in node.branches], node.start, node.end)
    if isinstance(node, Repeat):
        return Repeat(_without_conditions(node.item), node.low, node.high, node.start, node.end, node.lazy)
    if isinstance(node, Atomic):
        return Atomic(_without_conditions(node.item), node.start, node.end)
    return node
