"""What `fsa-compile` prints: sizes, verdicts and stacks in words, and the same as JSON. Computes nothing and prints JSON only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.stack_view import StackView
from fsa_compile.inspection.explain import Explanation, Statistics, byte_ranges, statistics, token_text


def facts_of(constraint: CompiledConstraint) -> dict[str, Any]:
    """Source and sizes, as JSON."""
    numbers = dataclasses.asdict(statistics(constraint))
    numbers["shortest_tokens"], numbers["longest_tokens"] = numbers.pop("shortest"), numbers.pop("longest")
    return {"source": constraint.source, "fingerprint": constraint.fingerprint, **numbers}


def sizes(numbers: Statistics) -> str:
    """States, token sets, bytes and lengths of texts."""
    if numbers.longest is None:  # without a bound, or bounded by a stack or a count
        length = f"A text takes {numbers.shortest:,} token{'' if numbers.shortest == 1 else 's'} or more."
    else:
        least = "Every text takes" if numbers.longest == numbers.shortest else f"A text takes {numbers.shortest:,} to"
        length = f"{least} {numbers.longest:,} token{'' if numbers.longest == 1 else 's'}."
    return (
        f"{numbers.states:,} states ({numbers.accepting:,} accepting), {numbers.rows:,} token sets, {in_bytes(numbers.nbytes)}. "
        f"{length}"
    )


def inspected(constraint: CompiledConstraint) -> list[str]:
    """Lines on a constraint's sizes and its end-of-text ids."""
    numbers = statistics(constraint)
    lines = [
        f"Source: {title(constraint)}",
        sizes(numbers),
        f"One state has up to {numbers.max_groups} wide sets of tokens and {numbers.max_levels} mask rows; "
        f"{numbers.groups:,} wide sets, {numbers.levels:,} mask rows and {numbers.arcs:,} single arcs in all.",
    ]
    if numbers.symbols:
        stacks = f"{numbers.stacks} stacks" if numbers.stacks > 1 else "One stack"
        lines.append(
            f"{stacks}, {numbers.symbols:,} symbols; one token pops at most {numbers.max_pops} cells and pushes at most "
            f"{numbers.max_push}. A step reads at most {in_bytes(numbers.step_bytes)} of mask rows for each sequence."
        )
    if numbers.open_objects:
        places = ", ".join(numbers.open_objects)
        lines.append(f"Objects that may have keys which the schema does not name: {places} (--closed forbids them).")
    return [*lines, f"End-of-text ids: {', '.join(map(str, constraint.stop_ids)) or 'none'}."]


def sentence(found: Explanation, tokenizer: Any, item: Any) -> str:
    """The verdict in words."""
    tokens = tokenizer.vocabulary.tokens
    shown = repr(cut(item)) if isinstance(item, str) else f"the sequence of {len(found.ids)} ids"
    if found.accepted:
        return f"accepted: {shown} ({counted(len(found.ids))})"
    ending = f"A shortest way to finish: {text_of(tokenizer, found.completion)!r} ({counted(len(found.completion))})."
    if found.verdict == "incomplete":
        return f"incomplete: {shown} is a valid beginning of {counted(found.position)}, but not accepted.\n  {ending}"
    if not found.token_bytes:
        refused = f"id {found.token}, which is not text"
        if found.token in tokenizer.vocabulary.stop_ids:
            refused = f"id {found.token}, which ends the text"
    else:
        refused = f"id {found.token}, '{token_text(found.token_bytes)}'"
    begin = tokenizer.vocabulary.decode_bytes(found.ids)[: found.matched]
    lines = [f"refused: {shown} stops at token {found.position + 1} of {len(found.ids)} ({refused})."]
    lines.append(f"  Longest valid beginning: {cut(begin.decode('utf-8', 'backslashreplace'))!r} ({found.matched} bytes).")
    if found.allowed_count:
        examples = ", ".join(f"{i} '{token_text(tokens[i])}'" for i in found.examples)
        lines.append(
            f"  After {counted(found.position)}, {found.allowed_count:,} were allowed, beginning with "
            f"{byte_ranges(found.allowed_bytes)}; for example {examples}."
        )
        if found.completion:
            lines.append(f"  {ending}")
    if found.too_deep:
        lines.append("  It would be allowed without the limit on the stack.")
    lines += [f"  Open there: {_open_frames(found, view, tokenizer)}." for view in found.stack if view.frames]
    if found.stop_allowed:
        lines.append(f"  The text may end after {counted(found.position)}{'' if found.allowed_count else ', and must'}.")
    return "\n".join(lines)


def _open_frames(found: Explanation, view: StackView, tokenizer: Any) -> str:
    """The frames of a stack with what stood where each was entered, outermost first."""
    frames = [f"{f.name} since '{text_of(tokenizer, found.ids[f.since : f.since + 1])}'" for f in view.frames if f.since >= 0]
    return "; ".join([*map(cut, frames), f"at {view.inside}"])


def as_json(found: Explanation, tokenizer: Any, item: Any) -> dict[str, Any]:
    """The verdict as JSON."""
    tokens = tokenizer.vocabulary.tokens
    out = {"text": item} if isinstance(item, str) else {}
    return out | {
        "verdict": found.verdict,
        "ids": list(found.ids),
        "position": found.position,
        "token": found.token,
        "token_text": None if found.token is None else token_text(found.token_bytes),
        "matched_bytes": found.matched,
        "allowed_count": found.allowed_count,
        "allowed_bytes": [i for i in range(256) if found.allowed_bytes[i]],
        "examples": [{"id": i, "text": token_text(tokens[i])} for i in found.examples],
        "stop_allowed": found.stop_allowed,
        "completion_ids": list(found.completion),
        "completion": text_of(tokenizer, found.completion),
        "stack": [dataclasses.asdict(view) for view in found.stack],
        "too_deep": found.too_deep,
    }


def text_of(tokenizer: Any, ids: Iterable[int]) -> str:
    """Exactly what the ids write (a tokenizer's own `decode` may drop a first space)."""
    return str(tokenizer.vocabulary.decode(ids))


def in_bytes(count: int) -> str:
    """A size in bytes, kB or MB (powers of ten)."""
    return f"{count:,} bytes" if count < 10_000 else f"{count / 1e3:,.0f} kB" if count < 1e7 else f"{count / 1e6:,.1f} MB"


def counted(count: int) -> str:
    """So many tokens."""
    return f"{count:,} token{'' if count == 1 else 's'}"


def title(constraint: CompiledConstraint) -> str:
    """The source on one line."""
    return cut(" ".join(constraint.source.split()) if "\n" in constraint.source else constraint.source)


def cut(text: str, width: int = 300) -> str:
    """The beginning of a text that is longer than the width."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def print_json(value: dict[str, Any]) -> None:
    """Prints one object on one line."""
    print(json.dumps(value, ensure_ascii=False))
